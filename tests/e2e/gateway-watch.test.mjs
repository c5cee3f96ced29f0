// SPDX-License-Identifier: Apache-2.0
// What can be seen of the gateway from outside: metrics, traces, health, and the streams below it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assertEvents, mint, PATH, read, startGateway } from "./lib/gateway.mjs";
import { until } from "./lib/wait.mjs";

const UNKNOWN = "11111111-2222-4333-8444-555555555555";
const NAMES = [
    "resume_issued",
    "resume_attempt",
    "resume_success",
    "resume_expired",
    "resume_incompatible",
    "resume_replay_count",
    "partial_recovery",
    "buffer_trimmed",
    "snapshot_created",
];

/** Has each of the nine events happen at least once. Returns a request's id. */
async function doEverything(gateway) {
    const reader = await gateway.post({ name: "all", tokens: 30, gates: [3] });
    const requestId = reader.headers["x-correlation-id"];
    await read(reader, 3);
    assert.equal((await gateway.resume(mint({ requestId, step: "OTHER" }))).status, 426);
    await gateway.backend.go("all");
    await read(reader);
    await read(await gateway.resume(mint({ requestId, seq: 25 })));
    assert.equal((await gateway.resume(mint({ requestId: UNKNOWN }))).status, 426);
    await until(
        async () => (await read(await gateway.resume(mint({ requestId })))).events.length === 0,
        "the events to expire",
    );
    return requestId;
}

const ROUTE = {
    trim: "strict",
    "buffer-max-events": "8",
    "state-ttl": "2s",
    "snapshot-ttl": "1h",
};

test("the nine events of resuming are counted and traced", async (t) => {
    const flags = ["--trace", "json", "--trace-level", "debug"];
    const gateway = await startGateway(t, { route: ROUTE, flags });
    const before = await gateway.request("GET", "/metrics");
    assert.equal(before.status, 200);
    assert.match(before.headers["content-type"], /^text\/plain/);
    const requestId = await doEverything(gateway);
    for (const name of NAMES)
        assert.ok(
            (await gateway.metric(`assist_sse_${name}_total`)) > 0,
            `${name} was not counted`,
        );
    assert.equal(await gateway.metric("assist_sse_snapshot_created_total"), 1);
    assert.equal(await gateway.metric("assist_sse_resume_incompatible_total"), 1);

    const lines = gateway.server.stderr.split("\n").filter((line) => line.startsWith("{"));
    const traces = lines.map((line) => JSON.parse(line));
    const traced = (name) =>
        traces.find((line) => JSON.stringify(line).includes(`assist.sse.${name}`));
    for (const name of NAMES) assert.ok(traced(name), `${name} was not traced`);
    const issued = traced("resume_issued");
    assert.equal(issued.request_id, requestId);
    assert.equal(issued.seq, 0);
    assert.equal(issued.step, "DRAFTING");
    const success = traced("resume_success");
    assert.equal(success.request_id, requestId);
    assert.equal(success.from_seq, 25);
    assert.equal(success.to_seq, 31);
    assert.equal(success.replayed_count, 6);
    const attempt = traced("resume_attempt");
    assert.equal(attempt.request_id, requestId);
    assert.equal(attempt.step, "OTHER");
});

test("traces never show a token or a secret", async (t) => {
    const flags = ["--trace", "json", "--trace-level", "debug"];
    const gateway = await startGateway(t, { flags });
    const { token } = await read(await gateway.post({ name: "silent", tokens: 2 }));
    await read(await gateway.resume(token));
    await gateway.resume(`${token}x`);
    const { stderr } = gateway.server;
    assert.match(stderr, /resume_issued/);
    assert.ok(!stderr.includes(token));
    assert.ok(!stderr.includes("a secret of the gateway tests"));
});

test("the names of the events can begin otherwise", async (t) => {
    const gateway = await startGateway(t, { flags: ["--telemetry-prefix", "acme.streams"] });
    await read(await gateway.post({ name: "prefix", tokens: 2 }));
    assert.equal(await gateway.metric("acme_streams_resume_issued_total"), 1);
    assert.equal(await gateway.metric("assist_sse_resume_issued_total"), undefined);
});

test("metrics are what Prometheus reads, with histograms", async (t) => {
    const gateway = await startGateway(t);
    const { token } = await read(await gateway.post({ name: "histograms", tokens: 10 }));
    await read(await gateway.resume(token));
    const { text } = await gateway.request("GET", "/metrics");
    const types = new Map();
    for (const line of text.split("\n")) {
        if (line === "" || line.startsWith("# HELP ")) continue;
        const type = /^# TYPE (\S+) (counter|gauge|histogram)$/.exec(line);
        if (type) types.set(type[1], type[2]);
        else assert.match(line, /^[a-zA-Z_:][\w:]*(\{[^}]*\})? (\d|\+Inf|-?\d)[\d.e+-]*$/);
    }
    const histograms = [...types].filter(([, type]) => type === "histogram").map(([name]) => name);
    for (const what of ["append", "resume", "replay"]) {
        const name = histograms.find((histogram) => histogram.includes(what));
        assert.ok(name, `no histogram of ${what} among ${histograms}`);
        assert.ok((await gateway.metric(`${name}_count`)) > 0, `${name} is empty`);
    }
});

test("health and readiness", async (t) => {
    const gateway = await startGateway(t);
    for (const path of ["/healthz", "/readyz"])
        assert.equal((await gateway.request("GET", path)).status, 200, path);
    // A server that is about to end is alive, but nobody should come any more.
    const plan = { name: "ready", tokens: 4, gates: [2] };
    await read(await gateway.post(plan), 2);
    assert.equal((await gateway.request("GET", "/readyz")).status, 200, "under load as well");
});

test("streams of routes are there for workers and for nobody else", async (t) => {
    const gateway = await startGateway(t, {
        callers: {
            worker: { token: "works", capabilities: "worker" },
            tool: { token: "tools", capabilities: "tool" },
        },
    });
    const plan = { name: "hidden", tokens: 5 };
    const reader = await gateway.post(plan);
    await read(reader);
    await gateway.server.create("visible", "text/plain", { body: "x" });
    const name = `.route${PATH}/${reader.headers["x-correlation-id"]}`;
    const ask = (method, target, token) =>
        gateway.server.stream(method, target, {
            headers: token ? { authorization: `Bearer ${token}` } : {},
        });
    const listed = async (token) =>
        (await ask("GET", "?limit=1000", token)).json().streams.map((stream) => stream.name);

    for (const token of [undefined, "tools", "wrong"]) {
        for (const method of ["GET", "HEAD", "DELETE", "POST", "PUT"]) {
            const { status } = await ask(method, name, token);
            assert.ok([401, 403, 404].includes(status), `${method} as ${token}: ${status}`);
        }
        const live = await ask("GET", `${name}?offset=-1&live=sse`, token);
        assert.ok([401, 403, 404].includes(live.status));
    }
    for (const token of [undefined, "tools"]) assert.deepEqual(await listed(token), ["visible"]);
    const seen = await listed("works");
    assert.ok(seen.includes(name), `${seen}`);
    const whole = await ask("GET", `${name}?offset=-1`, "works");
    assert.equal(whole.status, 200);
    assert.match(whole.headers["content-type"], /^text\/event-stream/);
    assert.equal(whole.headers["stream-closed"], "true");
    assert.match(whole.text, /^id: 1\nevent: token\ndata: \{"n":1,"text":"hidden-1 "\}\n\nid: 2\n/);
    assertEvents((await read(await gateway.get(reader.headers["x-correlation-id"]))).events, plan);
});
