// SPDX-License-Identifier: Apache-2.0
// A resource that can only be polled, as a stream: every change once, whatever happens in between.
import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { defer } from "./lib/defer.mjs";
import { open } from "./lib/gateway.mjs";
import { tidemark } from "./lib/run.mjs";
import { caller, configFile } from "./lib/pages.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

/** A resource whose answer the test sets: { status, headers, body }. `seen` are its requests. */
async function startResource(t) {
    const resource = { answer: { body: "" }, seen: [], open: 0, most: 0 };
    const server = createServer((request, response) => {
        resource.seen.push({ url: request.url, headers: request.headers });
        resource.most = Math.max(resource.most, ++resource.open);
        const { status = 200, headers = {}, body } = resource.tell?.(request) ?? resource.answer;
        setTimeout(() => {
            resource.open--;
            response.writeHead(status, headers).end(body);
        }, 5);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    defer(t, () => {
        server.closeAllConnections();
        server.close();
    });
    resource.url = `http://127.0.0.1:${server.address().port}/thing`;
    /** Waits for so many requests more. */
    resource.asked = async (n = 1) => {
        const goal = resource.seen.length + n;
        await until(() => resource.seen.length >= goal, `request ${goal} of the resource`);
    };
    return resource;
}

async function startPoll(t, settings, { disk = false, url } = {}) {
    const resource = await startResource(t);
    const folder = await tempFolder(t);
    const file = join(folder, "tidemark.ini");
    const all = { url: url ?? resource.url, every: "100ms", slowest: "200ms", ...settings };
    const lines = Object.entries(all).map(([key, value]) => `${key} = ${value}\n`);
    await writeFile(file, `[poll thing]\n${lines.join("")}`);
    const data = disk ? join(folder, "data") : undefined;
    const start = () => startServer(t, ["--config", file], { data });
    return { resource, server: await start(), start };
}

const items = async (server) => JSON.parse(await server.readAll("poll/thing"));

/** Reads the stream until it holds so many events: each read asks the resource. */
const grown = (server, n) =>
    until(async () => {
        const all = await items(server);
        assert.ok(all.length <= n, `${all.length} events: ${JSON.stringify(all)}`);
        return all.length === n && all;
    }, `${n} events`);

test("appended text, and a rewrite", async (t) => {
    const { resource, server } = await startPoll(t, { mode: "append" });
    resource.answer = { body: "one\n" };
    await grown(server, 1);
    resource.answer = { body: "one\ntwo\n" };
    await grown(server, 2);
    resource.answer = { body: "ONE\n" };
    assert.deepEqual(await grown(server, 3), [
        { text: "one\n" },
        { text: "two\n" },
        { rewrite: "ONE\n" },
    ]);
});

test("versions, and what is not fetched twice", async (t) => {
    const { resource, server } = await startPoll(t, { mode: "replace", header: "X-Key: k" });
    let version = 1;
    resource.tell = ({ headers }) => {
        const etag = `"v${version}"`;
        if (headers["if-none-match"] === etag) return { status: 304 };
        return { headers: { etag }, body: JSON.stringify({ version }) };
    };
    await grown(server, 1);
    await server.stream("GET", "poll/thing");
    await resource.asked();
    version = 2;
    const [one, two] = await grown(server, 2);
    assert.deepEqual([one.body, two.body], [{ version: 1 }, { version: 2 }]);
    assert.notEqual(one.digest, two.digest);
    assert.ok(resource.seen.some(({ headers }) => headers["if-none-match"] === '"v1"'));
    assert.ok(resource.seen.every(({ headers }) => headers["x-key"] === "k"));
});

test("new items by their key, with a cursor", async (t) => {
    const settings = { mode: "jsonlines", items: "/data", key: "/id", cursor: "since=/id" };
    const { resource, server } = await startPoll(t, settings);
    const all = [{ id: "a b" }, { id: "c&d" }];
    resource.tell = ({ url }) => {
        const since = new URL(url, "http://x").searchParams.get("since");
        const from = all.findIndex(({ id }) => id === since);
        return { body: JSON.stringify({ data: all.slice(Math.max(0, from)) }) }; // that one again
    };
    await grown(server, 2);
    all.push({ id: "e" }, { id: "f" });
    assert.deepEqual(await grown(server, 4), all);
    assert.ok(resource.seen.some(({ url }) => url.endsWith("?since=c%26d")));
});

test("large answers, which are looked at apart from the loop", async (t) => {
    const { resource, server } = await startPoll(t, { mode: "jsonlines", key: "/id" });
    const pad = "x".repeat(500);
    const all = Array.from({ length: 500 }, (_, n) => ({ id: `item ${n}`, pad }));
    resource.answer = { body: `${JSON.stringify(all).slice(0, -1)},` };
    await server.stream("GET", "poll/thing");
    await until(() => resource.seen.length > 0, "a request of the resource");
    resource.answer = { body: JSON.stringify(all) };
    assert.deepEqual(await grown(server, all.length), all);
    all.push({ id: "one more" });
    resource.answer = { body: JSON.stringify(all) };
    assert.deepEqual((await grown(server, all.length)).at(-1), { id: "one more" });
});

test("nobody reads, nobody asks; and many readers are one poller", async (t) => {
    const { resource, server } = await startPoll(t, { mode: "jsonlines" });
    assert.equal(resource.seen.length, 0, "no reader yet");
    resource.answer = { body: "[1]" };
    const path = "/v1/stream/poll/thing?offset=-1&live=sse";
    const readers = [];
    for (let i = 0; i < 5; i++) readers.push(await open(t, server, "GET", path));
    await resource.asked(3);
    resource.answer = { body: "[1,2]" };
    for (const reader of readers) {
        const got = [];
        while (got.length < 2) {
            const next = await reader.next();
            if (next.event === "data") got.push(...JSON.parse(next.data));
        }
        assert.deepEqual(got, [1, 2]);
    }
    assert.equal(resource.most, 1, "one request at a time for all of them");
    for (const reader of readers) reader.raw.destroy();
    // What is under way when the last one goes may still be asked, and then no more.
    let before;
    await until(async () => {
        before = resource.seen.length;
        await new Promise((resolve) => setTimeout(resolve, 600));
        return resource.seen.length === before;
    }, "the poller to rest");
});

test("always, without a reader", async (t) => {
    const { resource } = await startPoll(t, { mode: "replace", always: "yes" });
    await resource.asked(2);
});

test("a resource that fails, and says when to come back", async (t) => {
    const { resource, server } = await startPoll(t, { mode: "jsonlines", always: "yes" });
    resource.answer = { status: 503, headers: { "retry-after": "1" }, body: "[9]" };
    await resource.asked(1);
    resource.answer = { body: "not JSON" };
    await resource.asked(1);
    resource.answer = { body: "[1]" };
    assert.deepEqual(await grown(server, 1), [1]);
    assert.match(server.stderr, /polling for thing failed: the answer's status is 503/);
    assert.match(server.stderr, /polling for thing failed: a line is not JSON/);
});

test("a resource that wants to be left alone for long", async (t) => {
    const { resource, server } = await startPoll(t, { mode: "replace" });
    const said = (pattern) => until(() => pattern.test(server.stderr), String(pattern));
    resource.answer = { status: 503, headers: { "retry-after": "7200" }, body: "" };
    await server.stream("GET", "poll/thing");
    await said(/the answer's status is 503; next try in 7200000 ms/);
    await server.stream("GET", "poll/thing");
    assert.equal(resource.seen.length, 1, "and is");
});

test("nobody is led elsewhere", async (t) => {
    const { resource, server } = await startPoll(t, { mode: "replace", header: "X-Key: k" });
    const elsewhere = await startResource(t);
    elsewhere.answer = { body: "secret" };
    resource.answer = { status: 302, headers: { location: elsewhere.url }, body: "" };
    await server.stream("GET", "poll/thing");
    await until(() => /the answer's status is 302/.test(server.stderr), "it to be said");
    assert.equal(elsewhere.seen.length, 0);
    assert.deepEqual(await items(server), []);
});

test("an answer that is too large is not taken", async (t) => {
    const { resource, server } = await startPoll(t, { mode: "append", "max-answer": "1k" });
    resource.answer = { body: "x".repeat(1025) };
    await server.stream("GET", "poll/thing");
    await until(() => server.stderr.includes("polling for thing failed"), "it to be said");
    assert.deepEqual(await items(server), []);
    resource.answer = { body: "x".repeat(1024) };
    await grown(server, 1);
});

test("neither a crash nor a clean stop repeats or skips anything", async (t) => {
    const { resource, server: first, start } = await startPoll(
        t,
        { mode: "jsonlines", key: "/n", always: "yes" },
        { disk: true },
    );
    let n = 0;
    const window = []; // the newest twenty, as feeds are
    resource.tell = () => {
        for (let i = 0; i < 3; i++) window.push({ n: ++n });
        while (window.length > 20) window.shift();
        return { body: JSON.stringify(window) };
    };
    let server = first;
    for (let round = 0; round < 6; round++) {
        const goal = n + 9;
        await until(() => n >= goal, "some more items");
        await (round % 3 === 2 ? server.stop() : server.kill());
        server = await start();
    }
    const last = n;
    await until(async () => (await items(server)).at(-1).n >= last, "all of them");
    const all = await items(server);
    assert.deepEqual(all, all.map((_, i) => ({ n: i + 1 })));
});

test("the stream belongs to its poller", async (t) => {
    const { resource, server } = await startPoll(t, { mode: "jsonlines" });
    resource.tell = () => ({ body: `{"n":1}\n{"n":2}\n` });
    await grown(server, 2);
    await server.create("source");
    const type = { "content-type": "application/json" };
    for (const name of ["poll/thing", "poll%2Fthing", "%70oll/thing"])
        for (const [method, headers, body] of [
            ["POST", type, `{"n":"forged"}`],
            ["POST", { "stream-closed": "true" }],
            ["POST", { ...type, "stream-closed": "true" }, "1"],
            ["PUT", type],
            ["PUT", type, "[1]"],
            ["PUT", { ...type, "stream-forked-from": "/v1/stream/source" }],
            ["DELETE", {}],
        ]) {
            const answer = await server.stream(method, name, { headers, body });
            assert.equal(answer.status, 403, `${method} ${name}: ${answer.text}`);
            assert.equal(answer.json().error.code, "OWNED");
        }
    const subscribed = await server.request("PUT", "/v1/stream/__ds/subscriptions/s", {
        headers: type,
        body: JSON.stringify({ type: "pull-wake", pattern: "*", wake_stream: "poll/thing" }),
    });
    assert.equal(subscribed.status, 400, subscribed.text);
    // It goes on, others may have its neighbours, and a fork is whose it is.
    resource.tell = () => ({ body: `{"n":1}\n{"n":2}\n{"n":3}\n` });
    assert.deepEqual(await grown(server, 3), [{ n: 1 }, { n: 2 }, { n: 3 }]);
    await server.create("poll/other");
    const fork = { ...type, "stream-forked-from": "/v1/stream/poll/thing" };
    assert.equal((await server.stream("PUT", "mine", { headers: fork })).status, 201);
    await server.append("mine", `{"n":4}`);
    assert.equal((await server.stream("DELETE", "mine")).status, 204);
});

test("streams of routes and tools are written by the server alone, workers included", async (t) => {
    const file = await configFile(await tempFolder(t), { "caller w": caller("works", "worker") });
    const server = await startServer(t, ["--config", file]);
    const type = { "content-type": "application/json" };
    for (const name of [".route/chat/id", ".route/chat/id.snapshot", ".tool/rows", "sessions/k/in"])
        for (const method of ["PUT", "POST", "DELETE"]) {
            const options = { headers: type, body: method === "DELETE" ? undefined : "1" };
            assert.equal((await server.stream(method, name, options)).status, 404, name);
            options.headers = { ...type, authorization: "Bearer works" };
            const { status } = await server.stream(method, name, options);
            if (name.startsWith(".")) assert.equal(status, 403, `${method} ${name} by a worker`);
            else assert.notEqual(Math.floor(status / 100), 2, `${method} ${name} by a worker`);
        }
});

test("bad settings are refused with a reason", async (t) => {
    const file = join(await tempFolder(t), "tidemark.ini");
    for (const [line, pattern] of [
        ["mode = sometimes", /expected append, replace or jsonlines/],
        ["mode = append\nkey = /id", /mode = jsonlines/],
        ["mode = jsonlines\nkey = id", /key: expected POINTER/],
        ["mode = jsonlines\ncursor = /id", /expected PARAMETER=POINTER/],
        ["header = Authorization", /header: expected NAME: VALUE/],
    ]) {
        await writeFile(file, `[poll thing]\nurl = http://127.0.0.1:9/\n${line}\n`);
        const { code, stderr } = await tidemark(t, ["serve", "--config", file]);
        assert.equal(code, 2, stderr);
        assert.match(stderr, pattern);
    }
});
