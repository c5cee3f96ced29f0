// SPDX-License-Identifier: Apache-2.0
// A route: requests go to the backend, its events come back numbered, and what is no event stream
// passes as it is.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { startBackend } from "./lib/backend.mjs";
import {
    assertEvents,
    open,
    PATH,
    read,
    SECRET,
    startGateway,
    unpack,
    UUID,
} from "./lib/gateway.mjs";
import { startServer } from "./lib/server.mjs";
import { until } from "./lib/wait.mjs";

test("every event of the backend arrives once, numbered, behind the resume token", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "whole", tokens: 40 };
    const before = Date.now();
    const reader = await gateway.post(plan);
    assert.equal(reader.status, 200);
    assert.match(reader.headers["content-type"], /^text\/event-stream/);
    assert.match(reader.headers["cache-control"], /no-cache|no-store/);
    const requestId = reader.headers["x-correlation-id"];
    assert.match(requestId, UUID);

    const story = await read(reader);
    assert.equal(story.all[0].event, "resume", "the token comes first");
    assert.deepEqual(story.types, ["resume"], "a completed stream needs no other word of ours");
    assertEvents(story.events, plan);
    const token = unpack(story.token);
    assert.deepEqual(
        { requestId: token.requestId, step: token.step, seq: token.seq },
        { requestId, step: "DRAFTING", seq: 0 },
    );
    const fifteenMinutes = 15 * 60_000;
    assert.ok(token.expiresAt >= before + fifteenMinutes);
    assert.ok(token.expiresAt <= Date.now() + fifteenMinutes);
    assert.equal((await gateway.backend.seen()).length, 1);
});

test("the backend gets the body, and all headers but those that the route drops", async (t) => {
    const gateway = await startGateway(t, { route: { drop: "X-Private" } });
    const plan = { name: "headers", tokens: 1, note: "Zürich – 東京" };
    const reader = await gateway.post(plan, {
        Accept: "text/event-stream",
        Authorization: "Bearer of-the-backend",
        "X-Tenant": "acme",
        "X-Trace-ID": "t-1",
        "X-Private": "stays here",
        Cookie: "session=1",
    });
    await read(reader);
    const [{ method, url, headers, body }] = await gateway.backend.seen();
    assert.equal(method, "POST");
    assert.equal(url, "/answer");
    assert.deepEqual(JSON.parse(body), { plan });
    assert.equal(headers["content-type"], "application/json");
    assert.equal(headers.accept, "text/event-stream");
    assert.equal(headers.authorization, "Bearer of-the-backend");
    assert.equal(headers["x-tenant"], "acme");
    assert.equal(headers["x-trace-id"], "t-1");
    assert.equal(headers["x-private"], undefined);
    assert.equal(headers.cookie, undefined);
    assert.equal(headers["x-correlation-id"], reader.headers["x-correlation-id"]);
});

test("a body in chunks is forwarded whole", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "chunked", tokens: 2, note: "é".repeat(5000) };
    const bytes = Buffer.from(JSON.stringify({ plan }));
    async function* pieces() {
        for (let at = 0; at < bytes.length; at += 777) yield bytes.subarray(at, at + 777);
    }
    const answer = await gateway.request("POST", PATH, { body: pieces() });
    assert.equal(answer.status, 200, answer.text);
    assert.match(answer.text, /chunked-2/);
    assert.equal((await gateway.backend.seen())[0].body, bytes.toString());
});

test("large events are events", async (t) => {
    const gateway = await startGateway(t, { disk: true });
    const plan = { name: "large", tokens: 3, pad: 1_000_000 };
    const story = await read(await gateway.post(plan));
    assertEvents(story.events, plan);
    assertEvents((await read(await gateway.resume(story.token))).events, plan);
});

test("a route can be given on the command line", async (t) => {
    const backend = await startBackend(t);
    const flags = ["--route", `/short=${backend.url()}`];
    const server = await startServer(t, flags, { env: { SSE_RESUME_SECRET: SECRET } });
    const plan = { name: "short", tokens: 3 };
    const body = JSON.stringify({ plan });
    const story = await read(await open(t, server, "POST", "/short", {}, body));
    assertEvents(story.events, plan);
    assert.ok(story.token);
    const elsewhere = await open(t, server, "POST", "/shorter", {}, body);
    assert.equal(elsewhere.status, 404);
});

test("events are passed on when they come, not when the answer ends", async (t) => {
    const gateway = await startGateway(t, { flags: ["--heartbeat", "200ms"] });
    const plan = { name: "live", tokens: 10, gates: [0, 1, 4] };
    const reader = await gateway.post(plan);
    const story = await read(reader, 0);
    for (const count of [1, 4]) {
        await gateway.backend.go("live");
        await read(reader, count, story);
        assertEvents(story.events, plan, 1, count);
    }
    await gateway.backend.go("live");
    assertEvents((await read(reader, Infinity, story)).events, plan);
});

test("what server-sent events may look like", async (t) => {
    const gateway = await startGateway(t);
    const raw =
        "\ufeff: a comment first\n\n" +
        "data:no blank\n\n" +
        "data\n\n" + // an event with empty data
        "event: typed\r\ndata: one\r\ndata: two\r\n\r\n" +
        "event: no data, no event\n\n" +
        "id: 77\rdata: carriage returns\r\r" +
        "unknown: field\ndata:  two blanks\n\n" +
        'event: message\ndata: {"q":"é"}\n\n' +
        "data: never finished";
    const story = await read(await gateway.post({ name: "raw", raw }));
    assert.deepEqual(
        story.events.map(({ id, event = "message", data }) => [id, event, data]),
        [
            ["1", "message", "no blank"],
            ["2", "message", ""],
            ["3", "typed", "one\ntwo"],
            ["4", "message", "carriage returns"],
            ["5", "message", " two blanks"],
            ["6", "message", '{"q":"é"}'],
        ],
    );
});

test("what is no event stream passes unchanged", async (t) => {
    const gateway = await startGateway(t);
    for (const [status, type, bytes] of [
        [200, "application/json; charset=utf-8", Buffer.from('{"answer": 42}\n')],
        [422, "application/problem+json", Buffer.from('{"title":"no"}')],
        [503, "text/html", Buffer.from("<h1>down</h1>")],
        [200, "application/octet-stream", randomBytes(300_000)],
        [202, "text/plain", Buffer.alloc(0)],
        [500, "text/event-stream", Buffer.from("data: no answer of its own\n\n")],
    ]) {
        const answer = { status, type, base64: bytes.toString("base64") };
        const reader = await gateway.post({ name: type, answer });
        assert.equal(reader.status, status);
        assert.equal(reader.headers["content-type"], type);
        const got = reader.bytes ?? (await reader.raw.body(reader));
        assert.ok(got.equals(bytes), `${type}: ${got.length} bytes`);
    }
});

test("a generation goes on when its client goes away", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "alone", tokens: 30, gates: [5] };
    const reader = await gateway.post(plan);
    const requestId = reader.headers["x-correlation-id"];
    await read(reader, 5);
    reader.raw.destroy();
    await gateway.backend.go("alone");
    await until(async () => (await gateway.backend.seen())[0].finished, "the backend to finish");
    const story = await read(await gateway.get(requestId));
    assertEvents(story.events, plan);
});

test("a quiet answer carries comments", async (t) => {
    const gateway = await startGateway(t, { flags: ["--heartbeat", "100ms"] });
    const plan = { name: "quiet", tokens: 2, gates: [1] };
    const reader = await gateway.post(plan);
    const story = await read(reader, 1);
    while (!story.comments.includes("heartbeat")) story.add(await reader.next());
    await gateway.backend.go("quiet");
    await read(reader, Infinity, story);
    assertEvents(story.events, plan);
    assert.deepEqual(story.types, ["resume"], "a heartbeat is no event");
});

test("without a secret the stream works, and there is nothing to resume with", async (t) => {
    const gateway = await startGateway(t, { env: { SSE_RESUME_SECRET: "", HMAC_SECRET: "" } });
    const plan = { name: "bare", tokens: 5 };
    const reader = await gateway.post(plan);
    const story = await read(reader);
    assert.deepEqual(story.types, []);
    assertEvents(story.events, plan);
    const refused = await gateway.resume("any-token");
    assert.equal(refused.status, 426);
    const { schema, code, details } = refused.json();
    assert.deepEqual({ schema, code }, { schema: "error.v1", code: "INTERNAL" });
    assert.equal(details.upgrade, "resume=unsupported");
    // The standard's way needs no secret.
    const again = await read(await gateway.get(reader.headers["x-correlation-id"]));
    assertEvents(again.events, plan);
});

test("a body that is too large is refused", async (t) => {
    const gateway = await startGateway(t, { route: { "max-body": "1k" } });
    const reader = await gateway.post({ name: "x".repeat(2000), tokens: 1 });
    assert.equal(reader.status, 413);
    assert.equal((await gateway.backend.seen()).length, 0);
});

test("other methods and paths of a route are refused", async (t) => {
    const gateway = await startGateway(t);
    const unknown = "11111111-2222-4333-8444-555555555555";
    for (const [method, path, status] of [
        ["GET", PATH, 405],
        ["PUT", PATH, 405],
        ["GET", `${PATH}/resume`, 405],
        ["GET", `${PATH}/${unknown}`, 404],
        ["GET", `${PATH}/not-an-id`, 404],
        ["DELETE", `${PATH}/${unknown}`, 404],
        ["POST", `${PATH}/${unknown}/stop`, 404],
        ["POST", `${PATH}/${unknown}/other`, 404],
    ]) {
        const answer = await gateway.request(method, path);
        assert.equal(answer.status, status, `${method} ${path}: ${answer.text}`);
    }
    assert.equal((await gateway.backend.seen()).length, 0);
});

test("pages of sites that are listed may use a route", async (t) => {
    const gateway = await startGateway(t, { flags: ["--allow-origin", "https://page.example"] });
    const wanted = ["x-resume-token", "idempotency-key", "last-event-id", "content-type"];
    const headers = {
        origin: "https://page.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": wanted.join(", "),
    };
    for (const path of [PATH, `${PATH}/resume`]) {
        const preflight = await gateway.request("OPTIONS", path, { headers });
        assert.equal(preflight.status, 204);
        assert.equal(preflight.headers["access-control-allow-origin"], headers.origin);
        assert.match(preflight.headers["access-control-allow-methods"], /POST/);
        const allowed = preflight.headers["access-control-allow-headers"].toLowerCase();
        for (const name of wanted) assert.ok(allowed.includes(name), name);
    }
    const reader = await gateway.post({ name: "page", tokens: 1 }, { Origin: headers.origin });
    assert.equal(reader.headers["access-control-allow-origin"], headers.origin);
    const exposed = reader.headers["access-control-expose-headers"].toLowerCase();
    assert.match(exposed, /x-resume-token/);
    assert.match(exposed, /x-correlation-id/);
});
