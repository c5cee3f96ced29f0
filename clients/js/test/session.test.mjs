// SPDX-License-Identifier: Apache-2.0
// Sessions: each chunk reaches the backend once, each event its reader, whatever happens between.
import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { resumeReliableStreams, SessionError, startReliableStream } from "tidemark";
import { SessionServer } from "./lib/sessions.mjs";

const start = (server, options) =>
    startReliableStream({ url: "http://s.test/", fetch: server.fetch, reconnectMs: 1, ...options });

async function folder(t) {
    const path = await mkdtemp(join(tmpdir(), "tidemark-js-"));
    t.after(() => rm(path, { recursive: true, force: true }));
    return join(path, "state");
}

/** What is saved of the only session there. */
async function savedIn(state) {
    const [name] = await readdir(state);
    return JSON.parse(await readFile(join(state, name), "utf8"));
}

/** All events of a stream, by whoever reads it meanwhile. */
async function read(stream) {
    const events = [];
    for await (const event of stream) events.push(event);
    return events;
}

const lines = (count, from = 0) => Array.from({ length: count }, (_, n) => `line ${from + n} ü`);

/** Says these and closes: the texts of what was answered. */
async function converse(stream, said) {
    const reading = read(stream);
    await Promise.all(said.map((line) => stream.send(line)));
    await stream.close();
    return (await reading).map(({ text }) => text);
}

test("chunks go out in order, and answers come back", async () => {
    const server = new SessionServer();
    const stream = await start(server);
    const said = lines(30);
    assert.deepEqual(await converse(stream, said), said);
    assert.deepEqual(server.session(stream.key).order, said);
    const [{ headers, url }] = server.calls;
    assert.equal(url, "http://s.test/tidemark.v1.SessionService/StreamSSE");
    assert.equal(headers.get("x-idempotency-event-id"), "0");
    assert.equal(Buffer.from(headers.get("x-idempotent-encryption-key"), "base64").length, 32);
});

test("events are bytes, have ids, and are verified", async () => {
    const stream = await start(new SessionServer(), {
        key: "k",
        secret: new Uint8Array(32).fill(7),
    });
    const reading = read(stream);
    stream.send(Uint8Array.of(0, 255, 10));
    stream.send("");
    await stream.close();
    const [first, second] = await reading;
    assert.deepEqual([first.id, second.id], ["1", "2"]);
    assert.deepEqual([...first.data], [0, 255, 10]);
    assert.deepEqual([second.text, second.isVerified], ["", true]);
});

test("the downlink is cut at every byte", async () => {
    const said = lines(4);
    const checks = Array.from({ length: 420 }, async (_, at) => {
        let cuts = 0;
        const server = new SessionServer((_, { method }) =>
            method === "StreamSSE" && ++cuts === 1 ? { at } : undefined,
        );
        const stream = await start(server);
        assert.deepEqual(await converse(stream, said), said, `cut at ${at}`);
        assert.deepEqual(server.session(stream.key).order, said, `cut at ${at}`);
    });
    await Promise.all(checks);
});

test("calls that are refused, and answers that are lost", async () => {
    const checks = Array.from({ length: 60 }, async (_, seed) => {
        let x = seed + 1;
        const next = (n) => (x = (x * 1103515245 + 12345) % 2147483648) % n;
        const server = new SessionServer((n, { method }) => {
            if (n > 40 || next(3) > 0) return undefined;
            const faults = [{ refuse: true }, { lose: true }, { status: 503, body: "busy" }];
            if (method === "StreamSSE") faults.push({ at: next(300) }, { error: "unavailable" });
            return { final: false, ...faults[next(faults.length)] };
        });
        const stream = await start(server);
        const said = lines(12);
        assert.deepEqual(await converse(stream, said), said, `seed ${seed}`);
        assert.deepEqual(server.session(stream.key).order, said, `seed ${seed}`);
    });
    await Promise.all(checks);
});

test("what is not acknowledged is said again by the next program", async (t) => {
    const state = await folder(t);
    const server = new SessionServer((_, { method }) =>
        method === "Append" ? { refuse: true } : undefined,
    );
    const first = await start(server, { state, key: "a/b c" });
    for (const line of [...lines(3), "saved before it is said"]) first.send(line).catch(() => {});
    while ((await savedIn(state)).playbackChunks.length < 4) await new Promise(setImmediate);
    first.detach();
    await first.done;

    server.fault = () => undefined;
    const [second] = await resumeReliableStreams({
        url: "http://s.test",
        fetch: server.fetch,
        state,
    });
    assert.equal(second.key, "a/b c");
    const said = [...lines(3), "saved before it is said", "and one more"];
    assert.deepEqual(await converse(second, ["and one more"]), said);
    assert.deepEqual(server.session("a/b c").order, said);
    assert.deepEqual(await readdir(state), [], "nothing is left to go on with");
});

test("events that were not dealt with come again to the next program", async (t) => {
    const state = await folder(t);
    const server = new SessionServer();
    const first = await start(server, { state, key: "k" });
    for (const line of lines(5)) await first.send(line);
    const seen = [];
    for await (const { text } of first) {
        seen.push(text);
        if (seen.length === 3) break; // in the middle of the third
    }
    first.detach();
    await first.done;
    const second = await start(server, { state, key: "k" });
    const rest = await converse(second, []);
    assert.deepEqual([...seen.slice(0, 2), ...rest], lines(5));
});

test("a program that ends behind the close finishes it the next time", async (t) => {
    const state = await folder(t);
    const server = new SessionServer((_, { method }) =>
        method === "Append" ? { refuse: true } : undefined,
    );
    const first = await start(server, { state, key: "k" });
    first.send("the last").catch(() => {});
    first.close().catch(() => {});
    while ((await savedIn(state)).last !== "close") await new Promise(setImmediate);
    first.detach();
    await first.done;
    server.fault = () => undefined;
    const second = await start(server, { state, key: "k" });
    assert.deepEqual(
        (await read(second)).map(({ text }) => text),
        ["the last"],
    );
    await assert.rejects(second.send("more"), /over/);
});

test("saved state is the owner's alone, and has the names that the protocol gives it", async (t) => {
    const state = await folder(t);
    const stream = await start(new SessionServer(), { state, key: "k" });
    await stream.send("x");
    const [name] = await readdir(state);
    assert.equal((await stat(join(state, name))).mode & 0o777, 0o600);
    assert.equal((await stat(state)).mode & 0o777, 0o700);
    const saved = await savedIn(state);
    assert.equal(saved.idempotencyKey, "k");
    assert.equal(saved.nextSeqno, 1);
    assert.deepEqual(saved.playbackChunks, [[0, '{"clientChunk":"eA==","seqno":0}']]);
    for (const member of ["idempotencyEventId", "idempotentEncryptionKey", "lastUpdatedAt"])
        assert.ok(member in saved, member);
    stream.detach();
    await stream.done;
});

test("what is too old is left alone", async (t) => {
    const state = await folder(t);
    const server = new SessionServer();
    const stream = await start(server, { state, key: "k" });
    stream.detach();
    await stream.done;
    const [name] = await readdir(state);
    const saved = await savedIn(state);
    saved.lastUpdatedAt -= 7_300_000;
    await writeFile(join(state, name), JSON.stringify(saved));
    const options = { url: "http://s.test", fetch: server.fetch, state };
    assert.deepEqual(await resumeReliableStreams(options), []);
    const [older] = await resumeReliableStreams({ ...options, lookbackMs: 8_000_000 });
    older.detach();
});

test("a chunk that cannot be saved is not said", async () => {
    const server = new SessionServer();
    let full = false;
    const state = {
        load: async () => undefined,
        remove: async () => {},
        save: async () => {
            if (full) throw new Error("no room");
        },
    };
    const stream = await start(server, { state });
    await stream.send("a");
    full = true;
    await assert.rejects(stream.send("b"), /no room/);
    full = false;
    assert.deepEqual(await converse(stream, ["c"]), ["a", "c"]);
});

test("an abort ends it at once", async (t) => {
    const state = await folder(t);
    const server = new SessionServer();
    const stream = await start(server, { state });
    await stream.send("a");
    await stream.abort();
    assert.equal(server.session(stream.key).end, "abort");
    assert.deepEqual(
        (await read(stream)).map(({ text }) => text),
        ["a"],
    );
    assert.deepEqual(await readdir(state), []);
});

test("who comes later has the session; the other one is told, and keeps its state", async (t) => {
    const state = await folder(t);
    const server = new SessionServer();
    const secret = new Uint8Array(32);
    const stream = await start(server, { key: "k", secret, state });
    await stream.send("a");
    const other = await start(server, { key: "k", secret });
    await assert.rejects(stream.done, { name: "SessionError", code: "aborted" });
    assert.equal((await readdir(state)).length, 1);
    await other.abort();
});

for (const code of ["permission_denied", "not_found", "internal", "data_loss"])
    test(`${code} with details is the end`, async () => {
        const server = new SessionServer(() => ({ error: code }));
        const stream = await start(server);
        await assert.rejects(
            stream.done,
            (error) => error instanceof SessionError && error.code === code,
        );
        await assert.rejects(read(stream), { code });
        await assert.rejects(stream.send("x"), { code });
        assert.equal(server.calls.length, 1);
    });

test("an append that is refused for good is the end", async () => {
    const server = new SessionServer((_, { method }) =>
        method === "Append" ? { error: "resource_exhausted" } : undefined,
    );
    const stream = await start(server);
    await assert.rejects(stream.send("too large"), { code: "resource_exhausted" });
    await assert.rejects(stream.done, { code: "resource_exhausted" });
});

test("a login page is the end, a proxy's 502 is not", async () => {
    const refused = await start(new SessionServer(() => ({ status: 401, body: "<p>who?" })));
    await assert.rejects(refused.done, /401/);
    const server = new SessionServer((n) =>
        n === 0 ? { status: 502, body: "<p>busy" } : undefined,
    );
    assert.deepEqual(await converse(await start(server), ["a"]), ["a"]);
});

test("a degraded session works, and nothing of it is kept", async (t) => {
    const state = await folder(t);
    const server = new SessionServer();
    server.degraded = true;
    const stream = await start(server, { state });
    assert.deepEqual(await converse(stream, ["a"]), ["a"]);
    assert.deepEqual(await readdir(state), []);
    server.fault = (_, { method }) => (method === "StreamSSE" ? { at: 14 } : undefined);
    const lost = await start(server, { state });
    lost.send("b").catch(() => {});
    await assert.rejects(lost.done, /terminated/);
    assert.deepEqual(await readdir(state), []);
});

for (const [what, mend] of [
    ["changed", (event, n) => (n === 2 ? Buffer.from(event).fill(88, 2, 3) : event)],
    ["without a MAC", (event, n) => (n === 2 ? event.subarray(0, -34) : event)],
])
    test(`an event that is ${what} ends it`, async () => {
        const server = new SessionServer();
        server.mend = mend;
        const stream = await start(server);
        stream.send("aaa").catch(() => {});
        stream.send("bbb").catch(() => {});
        await assert.rejects(read(stream), { code: "data_loss" });
    });

test("an event that is left out ends it", async () => {
    const server = new SessionServer();
    const secret = new Uint8Array(32);
    const stream = await start(server, { key: "k", secret });
    for (const line of lines(3)) await stream.send(line);
    stream.detach();
    const { events } = server.session("k");
    server.mend = (event, n) => (n === 2 ? events[2] : event);
    const later = await start(server, { key: "k", secret });
    await assert.rejects(read(later), { code: "data_loss", message: /event 3/ });
});

test("a reader that does not read holds the server back, not what it says", async () => {
    const server = new SessionServer();
    const stream = await start(server);
    for (const line of lines(300)) await stream.send(line);
    const reading = read(stream);
    await stream.close();
    assert.equal((await reading).length, 300);
});

test("a signal leaves, and the session stays", async (t) => {
    const state = await folder(t);
    const abort = new AbortController();
    const stream = await start(new SessionServer(), { state, signal: abort.signal });
    await stream.send("a");
    abort.abort();
    await stream.done;
    assert.equal((await readdir(state)).length, 1);
});

test("tokens are asked for each time", async () => {
    const server = new SessionServer((n) => (n === 0 ? { refuse: true } : undefined));
    let asked = 0;
    const stream = await start(server, { token: async () => `t${++asked}` });
    await stream.send("a");
    const shown = server.calls.map(({ headers }) => headers.get("Authorization"));
    assert.deepEqual(shown.slice(0, 3), ["Bearer t1", "Bearer t2", "Bearer t3"]);
    await stream.abort();
});
