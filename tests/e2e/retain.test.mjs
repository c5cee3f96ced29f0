// SPDX-License-Identifier: Apache-2.0
// Streams that keep only so much: what is older goes from the front, who asks for it is told so,
// and forks keep what was theirs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startSite } from "./lib/site.mjs";
import { startServer } from "./lib/server.mjs";
import { until } from "./lib/wait.mjs";

const JSON_TYPE = "application/json";
const nextOffset = (answer) => answer.headers["stream-next-offset"];
const read = async (server, name, query = "") =>
    (await server.stream("GET", `${name}${query}`)).json();
const numbers = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

async function fill(server, name, values) {
    const offsets = [];
    for (const value of values)
        offsets.push(nextOffset(await server.append(name, JSON.stringify(value))));
    return offsets;
}

/** A server on this store. */
async function start(t, store, flags = []) {
    return store === "memory" ? startServer(t, flags) : (await startSite(t, flags)).server;
}

for (const store of ["memory", "embedded"])
    test(`the newest events are kept: ${store}`, async (t) => {
        const server = await start(t, store);
        const headers = { "stream-retain-events": "10" };
        await server.create("s", JSON_TYPE, { headers });
        const offsets = await fill(server, "s", numbers(1, 25));
        assert.deepEqual(await read(server, "s"), numbers(16, 25));
        assert.deepEqual(await read(server, "s", `?offset=${offsets[14]}`), numbers(16, 25));
        assert.deepEqual(await read(server, "s", `?offset=${offsets[19]}`), numbers(21, 25));

        const late = await server.stream("GET", `s?offset=${offsets[3]}`);
        assert.equal(late.status, 410);
        const { gap } = late.json();
        assert.equal(gap.reason, "trimmed");
        assert.equal(gap.requested, offsets[3]);
        assert.deepEqual(await read(server, "s", `?offset=${gap.earliest}`), numbers(16, 25));

        // Many in one append; and the bound is part of what was asked for.
        await server.append("s", JSON.stringify(numbers(26, 60)));
        assert.deepEqual(await read(server, "s"), numbers(51, 60));
        const head = await server.stream("HEAD", "s");
        assert.equal(head.headers["stream-retain-events"], "10");
        const put = (extra) =>
            server.stream("PUT", "s", { headers: { "content-type": JSON_TYPE, ...extra } });
        assert.equal((await put(headers)).status, 200);
        assert.equal((await put({})).status, 409);
        assert.equal((await put({ "stream-retain-events": "many" })).status, 400);
    });

test("bytes are counted, and the newest event always stays", async (t) => {
    const server = await startServer(t);
    await server.create("s", "text/plain", { headers: { "stream-retain-bytes": "10" } });
    for (const text of ["aaaa", "bbbb", "cccc"]) await server.append("s", text, "text/plain");
    assert.equal((await server.stream("GET", "s")).text, "bbbbcccc");
    await server.append("s", "a long event, longer than the bound", "text/plain");
    assert.equal((await server.stream("GET", "s")).text, "a long event, longer than the bound");
    await server.append("s", "d", "text/plain");
    assert.equal((await server.stream("GET", "s")).text, "d");
});

test("events go when they are old enough", async (t) => {
    const server = await startServer(t);
    await server.create("s", JSON_TYPE, { headers: { "stream-retain-age": "1" } });
    const [first] = await fill(server, "s", [1, 2]);
    assert.deepEqual(await read(server, "s"), [1, 2]);
    await until(async () => (await server.stream("GET", `s?offset=${first}`)).status === 410);
    await fill(server, "s", [3]);
    assert.deepEqual(await read(server, "s"), [3]);
});

test("a fork keeps what its source trims, also over a restart", async (t) => {
    const site = await startSite(t);
    let server = site.server;
    await server.create("source", JSON_TYPE, { headers: { "stream-retain-events": "3" } });
    await fill(server, "source", [1, 2, 3]);
    await server.create("fork", JSON_TYPE, {
        headers: { "stream-forked-from": "/v1/stream/source", "stream-retain-events": "100" },
    });
    await fill(server, "source", [4, 5, 6]);
    for (const signal of ["SIGTERM", "SIGKILL"]) {
        assert.deepEqual(await read(server, "source"), [4, 5, 6]);
        assert.deepEqual(await read(server, "fork"), [1, 2, 3]);
        server = await site.restart(signal);
    }
    await fill(server, "source", [7]);
    await fill(server, "fork", [8]);
    await until(async () => (await read(server, "source")).length === 3);
    assert.deepEqual(await read(server, "source"), [5, 6, 7]);
    assert.deepEqual(await read(server, "fork"), [1, 2, 3, 8]);
});

for (const store of ["memory", "embedded"])
    test(`the server's bounds hold for streams without their own: ${store}`, async (t) => {
        const server = await start(t, store, ["--retain-events", "5"]);
        await server.create("plain");
        await server.create("own", JSON_TYPE, { headers: { "stream-retain-events": "8" } });
        for (const name of ["plain", "own"]) await fill(server, name, numbers(1, 20));
        assert.deepEqual(await read(server, "plain"), numbers(16, 20));
        assert.deepEqual(await read(server, "own"), numbers(13, 20));
    });
