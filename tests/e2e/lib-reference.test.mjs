// SPDX-License-Identifier: Apache-2.0
// The library against two servers: the protocol's reference implementation, which nobody here
// wrote, and tidemark. What is said to a server past the library is said by fetch.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { DurableStreamTestServer } from "@durable-streams/server";
import { startAdapter, textOf } from "./lib/adapter.mjs";
import { defer } from "./lib/defer.mjs";
import { startProxy } from "./lib/proxy.mjs";
import { startServer } from "./lib/server.mjs";

const TEXT = "text/plain";
const JSON_TYPE = "application/json";
const BYTES = "application/octet-stream";
const LIVE = ["sse", "long-poll", true];

async function startReference(t) {
    const server = new DurableStreamTestServer({ port: 0, longPollTimeout: 500 });
    const url = await server.start();
    defer(t, () => server.stop());
    return url;
}

const startTidemark = async (t) =>
    `${(await startServer(t, ["--long-poll-timeout", "500ms"])).base}/v1/stream`;

const servers = { reference: startReference, tidemark: startTidemark };

function eachServer(name, run) {
    for (const [who, start] of Object.entries(servers))
        test(`${name} (${who})`, async (t) => {
            const url = await start(t);
            await run(await startAdapter(t, url), url, t);
        });
}

async function say(url, path, type, body, headers = {}) {
    const all = { "content-type": type, ...headers };
    const { status } = await fetch(url + path, { method: "POST", headers: all, body });
    assert.ok(status < 300, `an append past the library: ${status}`);
}

/** A fault of the reference server's, for requests to this path to come. */
async function inject(url, path, fault) {
    const body = JSON.stringify({ path, count: 1, ...fault });
    const { ok } = await fetch(`${url}/_test/inject-error`, { method: "POST", body });
    assert.ok(ok, "the reference server takes no faults");
}

const names = (prefix, count) => Array.from({ length: count }, (_, i) => `${prefix}${i};`);

eachServer("create, append, read, head, close, delete", async (lib) => {
    const path = "/basic";
    const made = await lib.ask("create", { path, contentType: TEXT });
    assert.equal(made.status, 201);
    assert.equal((await lib.ask("create", { path, contentType: TEXT })).status, 200);
    const other = await lib.send("create", { path, contentType: JSON_TYPE });
    assert.equal(other.errorCode, "CONFLICT");

    const first = await lib.ask("append", { path, data: "a\r\nb" });
    await lib.ask("append", { path, data: "c", seq: 2 });
    const behind = await lib.send("append", { path, data: "d", seq: 1 });
    assert.equal(behind.errorCode, "SEQUENCE_CONFLICT");
    const all = await lib.ask("read", { path });
    assert.equal(textOf(all), "a\r\nbc");
    assert.equal(textOf(await lib.ask("read", { path, offset: first.offset })), "c");
    assert.equal((await lib.send("read", { path, offset: "junk" })).errorCode, "INVALID_OFFSET");

    await lib.ask("close", { path, data: "!" });
    assert.equal((await lib.send("append", { path, data: "e" })).errorCode, "STREAM_CLOSED");
    const head = await lib.ask("head", { path });
    assert.deepEqual([head.contentType, head.streamClosed], [TEXT, true]);
    const end = await lib.ask("read", { path, offset: all.offset });
    assert.deepEqual([textOf(end), end.streamClosed, end.offset], ["!", true, head.offset]);
    await lib.ask("delete", { path });
    for (const command of ["read", "head", "delete"])
        assert.equal((await lib.send(command, { path })).errorCode, "NOT_FOUND");
});

eachServer("what is appended meanwhile comes, in every mode and type", async (lib, url) => {
    const cases = [
        [TEXT, "text \u2028 🌊", "text \u2028 🌊"],
        [JSON_TYPE, '{"a":1}', '[{"a":1}]'],
        [BYTES, Buffer.from([0, 255]), "AP8="],
    ];
    for (const [i, [type, body, wanted]] of cases.entries())
        for (const live of LIVE) {
            const path = `/live-${i}-${live}`;
            const { offset } = await lib.ask("create", { path, contentType: type });
            const once = { maxChunks: 1, timeoutMs: 20_000 };
            const reading = lib.ask("read", { path, offset, live, ...once });
            await delay(100);
            await say(url, path, type, body);
            assert.equal(textOf(await reading), wanted, `${type} by ${live}`);
        }
});

eachServer("a reader sees the end, wherever it begins", async (lib) => {
    const path = "/end";
    await lib.ask("create", { path, contentType: JSON_TYPE });
    await lib.ask("append", { path, data: "1" });
    const { finalOffset: offset } = await lib.ask("close", { path, data: "[2,3]" });
    for (const live of LIVE) {
        const all = await lib.ask("read", { path, live });
        assert.deepEqual(JSON.parse(textOf(all)), [1, 2, 3]);
        assert.deepEqual([all.streamClosed, all.offset], [true, offset]);
        const none = await lib.ask("read", { path, live, offset });
        assert.deepEqual([none.chunks.length, none.streamClosed], [0, true]);
    }
});

eachServer("a producer stores all, once and in order", async (lib) => {
    const path = "/producer";
    const items = names("m", 60);
    await lib.ask("create", { path, contentType: TEXT });
    const producer = { path, producerId: "p", epoch: 0 };
    await lib.ask("idempotent-append-batch", { ...producer, items, maxInFlight: 5 });
    assert.equal(textOf(await lib.ask("read", { path })), items.join(""));

    const next = { ...producer, epoch: 1 };
    await lib.ask("idempotent-append", { ...next, data: "a" });
    await lib.ask("idempotent-append", { ...next, data: "b" });
    const stale = await lib.send("idempotent-append-batch", { ...producer, items: ["x"] });
    assert.equal(stale.status, 403);
    const claim = { ...producer, items: ["c"], autoClaim: true };
    await lib.ask("idempotent-append-batch", claim);
    await lib.ask("idempotent-close", { ...next, epoch: 3, data: "d" });
    const end = await lib.ask("read", { path });
    assert.deepEqual([textOf(end), end.streamClosed], [`${items.join("")}abcd`, true]);
});

eachServer("a producer sends JSON as values", async (lib) => {
    const path = "/values";
    const items = ["42", '"text"', "null", "[1,2]", '{"a":[]}'];
    await lib.ask("create", { path, contentType: `${JSON_TYPE}; charset=utf-8` });
    await lib.ask("idempotent-append-batch", { path, producerId: "p", epoch: 0, items });
    const { chunks } = await lib.ask("read", { path });
    assert.deepEqual(JSON.parse(chunks[0].data), items.map(JSON.parse));
});

test("faults of the reference server are got over", async (t) => {
    const url = await startReference(t);
    const lib = await startAdapter(t, url);
    const path = "/faults";
    await lib.ask("create", { path, contentType: TEXT });
    const late = { delayMs: 1, jitterMs: 40, method: "POST", count: 1000 };
    const faults = [
        { dropConnection: true, count: 2 },
        { status: 503, count: 2 },
        { status: 429, retryAfter: 1 },
        { delayMs: 300 },
        { dropConnection: true, probability: 0.3, count: 20 },
        late, // requests overtake each other
    ];
    let stored = "";
    for (const [i, fault] of faults.entries()) {
        const items = names(`${i}.`, 30);
        const producer = { path, producerId: `p${i}`, epoch: 0 };
        await inject(url, path, { method: "POST", ...fault });
        await lib.ask("idempotent-append-batch", { ...producer, items, maxInFlight: 5 });
        stored += items.join("");
        await inject(url, path, { ...fault, method: "GET", count: Math.min(fault.count ?? 1, 20) });
        assert.equal(textOf(await lib.ask("read", { path })), stored, JSON.stringify(fault));
    }
});

test("an answer that is not what it should be is not handed out", async (t) => {
    const url = await startReference(t);
    const lib = await startAdapter(t, url);
    const path = "/broken";
    await lib.ask("create", { path, contentType: JSON_TYPE });
    await lib.ask("append", { path, data: '{"a":1}' });
    await inject(url, path, { truncateBodyBytes: 5 });
    assert.equal((await lib.send("read", { path })).errorCode, "PARSE_ERROR");
    const event = { eventType: "control", data: "{half" };
    await inject(url, path, { injectSseEvent: event });
    assert.equal((await lib.send("read", { path, live: "sse" })).errorCode, "PARSE_ERROR");
});

/** Before the server at this URL, a proxy that cuts each connection somewhere. */
async function startCutter(t, url) {
    const { hostname: host, port, pathname } = new URL(url);
    const answers = (n) => ({ answerBytes: 100 + ((n * 389) % 1900) });
    const requests = (n) => ({ requestBytes: 100 + ((n * 211) % 900) });
    const plan = (n) => (n % 2 ? answers(n) : requests(n));
    const proxy = await startProxy(t, { where: { host, port: Number(port) } }, plan);
    return { proxy, through: proxy.base + pathname.replace(/\/$/, "") };
}

eachServer("a reader's connections may break", async (direct, url, t) => {
    const { proxy, through } = await startCutter(t, url);
    const lib = await startAdapter(t, through);
    const ways = [
        [TEXT, "long-poll"],
        [JSON_TYPE, "sse"],
        [JSON_TYPE, true],
    ];
    for (const [type, live] of ways) {
        const path = `/cut-${live}`;
        const { offset } = await direct.ask("create", { path, contentType: type });
        const reading = lib.ask("read", { path, offset, live, timeoutMs: 30_000 });
        const items = names("m", 40);
        for (const item of items) {
            await say(url, path, type, type === TEXT ? item : JSON.stringify(item));
            await delay(10);
        }
        await direct.ask("close", { path });
        const { chunks, streamClosed } = await reading;
        const got = chunks.flatMap(({ data }) => (type === TEXT ? [data] : JSON.parse(data)));
        assert.equal(got.join(""), items.join(""), `${type} by ${live}`);
        assert.equal(streamClosed, true);
    }
    assert.ok(proxy.cuts > 0, "no connection was cut");
});

eachServer("a producer's connections may break", async (direct, url, t) => {
    const { proxy, through } = await startCutter(t, url);
    const lib = await startAdapter(t, through);
    const path = "/produced";
    const items = names("m", 100);
    await direct.ask("create", { path, contentType: BYTES });
    const producer = { path, producerId: "p", epoch: 0, maxInFlight: 5 };
    await lib.ask("idempotent-append-batch", { ...producer, items });
    assert.equal(textOf(await direct.ask("read", { path })), items.join(""));
    assert.ok(proxy.cuts > 0, "no connection was cut");
});
