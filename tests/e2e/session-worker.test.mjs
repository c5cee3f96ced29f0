// SPDX-License-Identifier: Apache-2.0
// Sessions that are answered by workers: programs that read and write streams, here with the npm
// client of Durable Streams.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fromBinary } from "@bufbuild/protobuf";
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client";
import { defer } from "./lib/defer.mjs";
import { AISERVER, SERVICES, TIDEMARK } from "./lib/session-schema.mjs";
import { Code, Peer, Session } from "./lib/session.mjs";
import { startSessions, startSessionSite } from "./lib/session-server.mjs";
import { until, within } from "./lib/wait.mjs";

const JSON_TYPE = "application/json";
const CALLERS = {
    worker: { token: "works", capabilities: "worker" },
    tool: { token: "tools", capabilities: "tool" },
};
const AUTHORIZED = { authorization: "Bearer works" };
const as = (token) => (token ? { authorization: `Bearer ${token}` } : {});

const inOf = (session) => `sessions/${session.key}/in`;
const outOf = (session) => `sessions/${session.key}/out`;

/** A worker of one session: `seen` is what it has read of its input, live. */
class Worker {
    seen = [];

    constructor(t, server, session) {
        this.t = t;
        this.session = session;
        this.url = (name) => server.url(name);
        this.out = new DurableStream({
            url: server.url(outOf(session)),
            contentType: JSON_TYPE,
            headers: AUTHORIZED,
        });
    }

    async follow(live = "sse") {
        const url = this.url(inOf(this.session));
        const reader = await stream({ url, headers: AUTHORIZED, offset: "-1", live, json: true });
        defer(this.t, () => reader.cancel());
        reader.subscribeJson(({ items }) => void this.seen.push(...items));
        reader.closed.catch(() => {});
    }

    async input(count) {
        await until(() => this.seen.length >= count, `${count} entries of the input`);
        return this.seen[count - 1];
    }

    answer(value) {
        return this.out.append(JSON.stringify(value));
    }
}

/** What a chunk of the input says. */
function textOf(service, { data }) {
    const bytes = Buffer.from(data, "base64");
    if (service !== AISERVER) return bytes.toString();
    return fromBinary(AISERVER.ClientChunk, bytes).request.value.conversation.at(-1).text;
}

const CASES = {
    async "reads the input, writes the answer, ends it"({ t, server, service }) {
        const session = new Session(service);
        const call = new Peer(t, server).open(session).chunk(0, "first");
        await call.acked(1);
        const worker = new Worker(t, server, session);
        await worker.follow();
        await worker.input(1);
        call.chunk(7, "second").chunk(7, "second");
        await worker.input(2);
        assert.deepEqual(
            worker.seen.map(({ type, seqno }) => [type, seqno]),
            [
                ["chunk", 0],
                ["chunk", 7],
            ],
        );
        assert.equal(textOf(service, worker.seen[0]), "first");
        assert.equal(textOf(service, worker.seen[1]), "second");
        await worker.answer({ text: "hello" });
        await call.seen(1);
        await worker.answer({ text: "Grüße" });
        await call.seen(2);
        call.close();
        assert.equal((await worker.input(3)).type, "close");
        assert.equal(call.over, false, "only the worker knows when it has answered all");
        await worker.out.close();
        await call.endedWell();
        assert.deepEqual(call.events, [
            { id: "1", text: "hello" },
            { id: "2", text: "Grüße" },
        ]);
        assert.equal(worker.seen.length, 3, "a chunk that came twice was read once");
    },

    async "a producer's repetition is one event"({ t, server, service }) {
        const session = new Session(service);
        const call = new Peer(t, server).open(session).chunk(0, "go");
        await call.acked(1);
        const worker = new Worker(t, server, session);
        const producer = new IdempotentProducer(worker.out, "w", {
            lingerMs: 0,
            fetch: async (url, init) => {
                const first = await fetch(url, init);
                await first.arrayBuffer();
                return fetch(url, init); // as if the first answer had been lost
            },
        });
        const texts = Array.from({ length: 20 }, (_, i) => `piece ${i}`);
        for (const text of texts) producer.append(JSON.stringify({ text }));
        await producer.flush();
        await worker.out.close();
        await call.endedWell();
        assert.deepEqual(call.texts, texts);
    },

    async "abort stops the worker"({ t, server, service }) {
        const session = new Session(service);
        const peer = new Peer(t, server);
        const call = peer.open(session).chunk(0, "go");
        await call.acked(1);
        const worker = new Worker(t, server, session);
        await worker.follow("long-poll");
        await worker.input(1);
        await worker.answer({ text: "one" });
        await call.seen(1);
        call.abort();
        await call.endedWell();
        assert.equal((await worker.input(2)).type, "abort");
        await assert.rejects(worker.answer({ text: "too late" }), "the answer is closed");
        const late = peer.open(session, { position: "1" });
        await late.ended();
        assert.deepEqual(late.events, []);
    },

    async "bytes, and several at once"({ t, server, service }) {
        const session = new Session(service);
        const call = new Peer(t, server).open(session).chunk(0, "go");
        await call.acked(1);
        const payload =
            service === TIDEMARK
                ? Buffer.from("as bytes")
                : Buffer.from("120a0a086173206279746573", "hex"); // text "as bytes"
        const body = JSON.stringify([{ data: payload.toString("base64") }, { text: "as text" }]);
        const headers = { ...AUTHORIZED, "content-type": JSON_TYPE };
        const append = await server.stream("POST", outOf(session), { headers, body });
        assert.ok([200, 204].includes(append.status), append.text);
        await call.seen(2);
        assert.deepEqual(call.texts, ["as bytes", "as text"]);
        const there = await server.stream("GET", `${outOf(session)}?offset=-1`, {
            headers: AUTHORIZED,
        });
        assert.match(there.headers["content-type"], /^application\/json/);
        assert.deepEqual(
            there.json().map(({ id }) => id),
            ["1", "2"],
        );
        for (const wrong of ["{}", "7", `{"data":"%"}`, `{"text":7}`, "nonsense"]) {
            const refused = await server.stream("POST", outOf(session), { headers, body: wrong });
            assert.equal(refused.status, 400, `${wrong}: ${refused.status} ${refused.text}`);
        }
        call.cancel();
        await call.ended();
        const back = await new Peer(t, server).open(session, { position: "1" }).seen(1);
        assert.deepEqual(back.ids, ["2"]);
    },
};

test("workers", { concurrency: 4 }, async (t) => {
    const server = await startSessions(t, { session: null, callers: CALLERS });
    const all = SERVICES.flatMap((service) =>
        Object.entries(CASES).map(([what, check]) =>
            t.test(`${service.name}: ${what}`, (sub) => check({ t: sub, server, service })),
        ),
    );
    await Promise.all(all);
});

test("nobody else sees, lists, or is woken by them", async (t) => {
    const server = await startSessions(t, { session: null, callers: CALLERS });
    const session = new Session(TIDEMARK);
    const subscribe = (id, token, pattern) =>
        server.request("PUT", `/v1/stream/__ds/subscriptions/${id}`, {
            headers: { "content-type": JSON_TYPE, ...as(token) },
            body: JSON.stringify({ type: "pull-wake", pattern, wake_stream: "wakes" }),
        });
    await server.create("wakes");
    assert.equal((await subscribe("all", undefined, "**")).status, 201);
    const call = new Peer(t, server).open(session).chunk(0, "secret");
    await call.acked(1);

    for (const token of [undefined, "tools", "wrong"]) {
        for (const name of [inOf(session), outOf(session)]) {
            for (const method of ["GET", "HEAD", "DELETE", "POST", "PUT"]) {
                const { status } = await server.stream(method, name, {
                    headers: { ...as(token), "content-type": JSON_TYPE },
                    body: method === "POST" || method === "PUT" ? `{"text":"x"}` : undefined,
                });
                assert.ok([401, 403, 404].includes(status), `${method} as ${token}: ${status}`);
            }
            const live = `${name}?offset=-1&live=sse`;
            const { status } = await server.stream("GET", live, { headers: as(token) });
            assert.ok([401, 403, 404].includes(status), `live as ${token}: ${status}`);
        }
    }
    const list = async (token, query = "") => {
        const answer = await server.stream("GET", `?limit=1000${query}`, { headers: as(token) });
        return answer.json().streams.map(({ name }) => name);
    };
    for (const token of [undefined, "tools"]) {
        assert.deepEqual(await list(token), ["wakes"]);
        assert.deepEqual(await list(token, "&prefix=sessions/"), []);
    }
    const seen = await list("works");
    for (const name of [inOf(session), outOf(session)]) assert.ok(seen.includes(name), `${seen}`);
    // The stream of somebody's subscription to everything has had its chance: "plain" is newer.
    await server.create("plain");
    await server.append("plain", "1");
    const claim = await server.request("POST", "/v1/stream/__ds/subscriptions/all/claim", {
        headers: { "content-type": JSON_TYPE },
        body: JSON.stringify({ worker: "w" }),
    });
    assert.equal(claim.status, 200, claim.text);
    assert.ok(!claim.text.includes(session.key), claim.text);
    const shown = await server.request("GET", "/v1/stream/__ds/subscriptions/all");
    assert.ok(!shown.text.includes(session.key), shown.text);
    call.close();
});

test("a pull-wake subscription wakes a worker", async (t) => {
    const server = await startSessions(t, { session: null, callers: CALLERS });
    const request = (method, path, body, headers = AUTHORIZED) =>
        server.request(method, `/v1/stream/__ds/subscriptions/w${path}`, {
            headers: { "content-type": JSON_TYPE, ...headers },
            body: JSON.stringify(body),
        });
    await server.create("wakes");
    const configuration = { type: "pull-wake", pattern: "sessions/*/in", wake_stream: "wakes" };
    const put = await request("PUT", "", configuration);
    assert.equal(put.status, 201, put.text);

    const session = new Session(TIDEMARK);
    const peer = new Peer(t, server);
    const call = peer.open(session).chunk(0, "wake up");
    const wakes = await stream({ url: server.url("wakes"), offset: "-1", live: "sse", json: true });
    defer(t, () => wakes.cancel());
    const woken = [];
    wakes.subscribeJson(({ items }) => void woken.push(...items));
    wakes.closed.catch(() => {});
    await until(() => woken.length > 0, "a wake");
    assert.equal(woken[0].stream, inOf(session));
    const claim = await request("POST", "/claim", { worker: "w1" });
    assert.equal(claim.status, 200, claim.text);
    const { wake_id, generation, token, streams } = claim.json();
    const [{ path, tail_offset: offset }] = streams.filter((s) => s.has_pending);
    assert.equal(path, inOf(session));
    const worker = new Worker(t, server, session);
    await worker.follow();
    assert.equal(textOf(TIDEMARK, await worker.input(1)), "wake up");
    await worker.answer({ text: "awake" });
    await call.seen(1);
    const ack = await request(
        "POST",
        "/ack",
        { wake_id, generation, acks: [{ stream: path, offset }], done: true },
        { authorization: `Bearer ${token}` },
    );
    assert.equal(ack.status, 200, ack.text);
    // The next chunk makes the next wake.
    call.chunk(1, "and again");
    await until(() => woken.length > 1, "the next wake");
    assert.ok(woken[1].generation > generation);
});

test("after a restart the worker waits for the client's key", async (t) => {
    const site = await startSessionSite(t, { session: null, callers: CALLERS });
    const session = new Session(TIDEMARK);
    const peer = new Peer(t, site);
    for (const signal of ["SIGKILL", "SIGTERM"]) {
        const position = signal === "SIGKILL" ? "0" : "1";
        const call = peer.open(session, { position }).chunk(0, "before");
        await call.acked(1);
        await until(
            async () => (await worker("GET", `${inOf(session)}?offset=-1`)).status === 200,
            "the worker to be let in",
        );
        if (position === "0") {
            const append = await worker("POST", outOf(session), `{"text":"one"}`);
            assert.ok([200, 204].includes(append.status), append.text);
            await call.seen(1);
        }
        await site.restart(signal);
        peer.cut();
        await call.ended();
        for (const [method, name, body] of [
            ["GET", `${inOf(session)}?offset=-1`],
            ["GET", `${outOf(session)}?offset=-1`],
            ["POST", outOf(session), `{"text":"unsealed"}`],
        ]) {
            const answer = await worker(method, name, body);
            assert.equal(answer.status, 503, `${method} ${name}: ${answer.text}`);
            assert.equal(answer.json().error.code, "key-absent");
        }
        // A stranger's key does not open it.
        const stranger = new Session(TIDEMARK, { key: session.key });
        await new Peer(t, site).open(stranger).refused(Code.PermissionDenied);
        assert.equal((await worker("GET", `${inOf(session)}?offset=-1`)).status, 503);
    }
    const back = peer.open(session, { position: "1" }).chunk(1, "after");
    await back.acked(1);
    const there = await within(worker("GET", `${inOf(session)}?offset=-1`), "the input");
    assert.equal(there.status, 200, there.text);
    assert.deepEqual(
        there.json().map((entry) => [entry.seqno, textOf(TIDEMARK, entry)]),
        [
            [0, "before"],
            [1, "after"],
        ],
    );
    const last = await worker("POST", outOf(session), `{"text":"two"}`, {
        "stream-closed": "true",
    });
    assert.ok([200, 204].includes(last.status), last.text);
    await back.endedWell();
    assert.deepEqual(back.events, [{ id: "2", text: "two" }]);

    function worker(method, name, body, more = {}) {
        const headers = { ...AUTHORIZED, ...(body && { "content-type": JSON_TYPE }), ...more };
        return site.server.stream(method, name, { headers, body });
    }
});
