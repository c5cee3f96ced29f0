// SPDX-License-Identifier: Apache-2.0
// HTTP/2 without TLS: Node.js's client, curl, nghttp and h2load; and peers that mean no good.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import {
    END_HEADERS,
    END_STREAM,
    fields,
    frame,
    frames,
    H2,
    PREFACE,
    TYPES,
} from "./lib/h2.mjs";
import { openRaw } from "./lib/raw.mjs";
import { curl, run, Running } from "./lib/run.mjs";
import { startServer } from "./lib/server.mjs";
import { until, within } from "./lib/wait.mjs";

const TEXT = { "content-type": "text/plain" };

test("forty live readers on one connection, and the requests beside them", async (t) => {
    const server = await startServer(t);
    const h2 = new H2(t, server);
    assert.equal((await h2.stream("PUT", "x", { headers: TEXT })).status, 201);
    const readers = [];
    for (let i = 0; i < 40; i++) readers.push(h2.sse("x?offset=-1&live=sse"));
    for (const reader of readers)
        assert.equal((await within(reader.reply, "a reader's head"))[":status"], 200);
    const poll = h2.request("GET", "/v1/stream/x?offset=now&live=long-poll");
    for (const word of ["one ", "two ", "three "]) {
        const answer = await h2.stream("POST", "x", { headers: TEXT, body: word });
        assert.equal(answer.status, 204);
        assert.match(answer.headers["stream-next-offset"], /^\d{16}_\d{16}$/);
    }
    for (const reader of readers) {
        await reader.seen("three ");
        assert.equal(reader.data().join(""), "one two three ");
    }
    assert.equal((await poll).text.slice(0, 4), "one ");
    const closing = await h2.stream("POST", "x", { headers: { "stream-closed": "true" } });
    assert.equal(closing.status, 204);
    for (const reader of readers)
        assert.equal(await within(reader.done, "the end of a closed stream"), 0);
    assert.equal(h2.goaways.length, 0);
    const head = await h2.stream("HEAD", "x");
    assert.equal(head.headers["stream-closed"], "true");
    assert.equal(head.text, "");
});

test("a reader that stops reading keeps nobody, and goes on where it stopped", async (t) => {
    const server = await startServer(t);
    const h2 = new H2(t, server);
    const line = "0123456789abcdef".repeat(4096); // 64 KiB
    await h2.stream("PUT", "x", { headers: TEXT });
    const slow = h2.sse("x?offset=-1&live=sse");
    await within(slow.reply, "the slow reader's head");
    slow.stream.pause();
    const quick = h2.sse("x?offset=-1&live=sse");
    const before = server.rss();
    for (let i = 0; i < 64; i++)
        assert.equal((await h2.stream("POST", "x", { headers: TEXT, body: line })).status, 204);
    await until(() => quick.data().join("").length === 64 * line.length, "all for the quick one");
    assert.ok(slow.text.length < line.length * 4, "the slow one has got what it had room for");
    assert.ok(server.rss() - before < 48 << 20, "the stream itself, and no copy for the slow one");
    slow.stream.resume();
    await until(() => slow.data().join("").length === 64 * line.length, "all for the slow one");
});

test("a body much larger than the windows, both ways", async (t) => {
    const server = await startServer(t);
    const h2 = new H2(t, server);
    const body = Buffer.alloc(3_000_000, "tidemark ").toString();
    await h2.stream("PUT", "big", { headers: TEXT });
    assert.equal((await h2.stream("POST", "big", { headers: TEXT, body })).status, 204);
    let got = "";
    for (let offset = "-1"; ; ) {
        const answer = await h2.stream("GET", `big?offset=${offset}`);
        got += answer.text;
        offset = answer.headers["stream-next-offset"];
        if (answer.headers["stream-up-to-date"]) break;
    }
    assert.ok(got === body, "what went in comes out");
    const tooLarge = await h2.stream("POST", "big", {
        headers: { ...TEXT, "content-length": String(1 << 30) },
        end: false,
    });
    assert.equal(tooLarge.status, 413);
    assert.equal((await h2.stream("HEAD", "big")).status, 200); // the connection goes on
});

test("a request that the client gives up is gone, the others are not", async (t) => {
    const server = await startServer(t);
    const h2 = new H2(t, server);
    await h2.stream("PUT", "x", { headers: TEXT });
    const stays = h2.sse("x?offset=-1&live=sse");
    for (let i = 0; i < 150; i++) {
        const goes = h2.sse("x?offset=-1&live=sse");
        await within(goes.reply, "a head");
        goes.stream.close(8);
        await within(goes.done, "a stream to be gone");
    }
    await h2.stream("POST", "x", { headers: TEXT, body: "still here" });
    await stays.seen("still here");
    assert.equal(h2.goaways.length, 0);
});

test("SIGTERM: GOAWAY, live readers end cleanly, exit code 0", async (t) => {
    const server = await startServer(t);
    const h2 = new H2(t, server);
    await h2.stream("PUT", "x", { headers: TEXT, body: "begin" });
    const readers = Array.from({ length: 8 }, () => h2.sse("x?offset=-1&live=sse"));
    for (const reader of readers) await reader.seen("begin");
    const append = h2.open("POST", "/v1/stream/x", { headers: TEXT, end: false });
    append.stream.write("almost");
    const idle = new H2(t, server);
    await idle.stream("HEAD", "x");

    server.signal("SIGTERM");
    for (const reader of readers) assert.equal(await within(reader.done, "a reader's end"), 0);
    await within(idle.closed, "an idle connection's end");
    assert.ok(server.running, "the append is waited for");
    append.stream.end(" done");
    assert.equal((await within(append.reply, "the append's answer"))[":status"], 204);
    await within(h2.closed, "the connection's end");
    assert.ok(h2.goaways.every(({ code }) => code === 0) && h2.goaways.length > 0);
    const { code, signal } = await within(server.ended, "the server to end");
    assert.deepEqual({ code, signal }, { code: 0, signal: null });
});

test("curl: by prior knowledge, and never by Upgrade", async (t) => {
    const server = await startServer(t);
    const url = server.url("hello");
    const h2 = ["--http2-prior-knowledge", "-H", "Content-Type: text/plain"];
    assert.match(await curl(t, [...h2, "-i", "-X", "PUT", url]), /^HTTP\/2 201 /);
    await curl(t, [...h2, "-X", "POST", url, "--data-binary", "@-"], { input: "x".repeat(200_000) });
    const printed = await curl(t, [...h2, "-o", "-", "-w", " %{http_version}", url]);
    assert.ok(printed === `${"x".repeat(200_000)} 2`);
    const follower = new Running(t, "curl", ["-sSN", ...h2, `${url}?offset=now&live=sse`]);
    await follower.output(/upToDate/);
    await curl(t, ["-X", "POST", url, "-H", "Content-Type: text/plain", "-d", "over HTTP/1.1"]);
    await follower.output(/^data:over HTTP\/1\.1$/m);
    assert.match(await curl(t, ["--http2", "-I", url]), /^HTTP\/1\.1 200 OK\r\n/);
});

test("nghttp and h2load", async (t) => {
    if (spawnSync("h2load", ["--version"]).status !== 0) {
        t.skip("h2load is not installed (Debian: nghttp2-client)");
        return;
    }
    const server = await startServer(t);
    await server.create("x", "text/plain", { body: "hello" });
    const said = await run(t, "nghttp", ["-v", server.url("x")]);
    assert.equal(said.code, 0);
    assert.match(said.stdout, /:status: 200/);
    assert.match(said.stdout, /SETTINGS_MAX_CONCURRENT_STREAMS\(0x03\):100/);
    const load = await run(t, "h2load", ["-n", "4000", "-c", "8", "-m", "50", server.url("x")]);
    assert.match(load.stdout, /4000 succeeded, 0 failed, 0 errored, 0 timeout/);
    assert.match(load.stdout, /4000 2xx/);
});

// ---- peers that mean no good ----

const request = (id, path, flags = END_STREAM) =>
    frame(
        TYPES.HEADERS,
        END_HEADERS | flags,
        id,
        fields({ ":method": "GET", ":scheme": "http", ":path": path, ":authority": "x" }).toString(
            "latin1",
        ),
    );
const live = "/v1/stream/x?offset=-1&live=sse";

// One field of 4,000 bytes for the table, and then 4,000 references to it: 16 MB a request.
const bombTable = Buffer.concat([
    Buffer.from([0x40, 1, 0x62, 0x7f, 0xa1, 0x1e]),
    Buffer.alloc(4000, "b"),
]);
function bomb(step) {
    const list = fields({ ":method": "GET", ":scheme": "http", ":path": "/", ":authority": "x" });
    const block = [list, step === 0 ? bombTable : Buffer.alloc(0), Buffer.alloc(4000, 0x80 | 62)];
    const payload = Buffer.concat(block).toString("latin1");
    return [frame(TYPES.HEADERS, END_HEADERS | END_STREAM, 2 * step + 1, payload)];
}

/** Each gives its next frames. */
const ATTACKS = {
    "rapid reset": (i) => [
        request(2 * i + 1, live),
        frame(TYPES.RST_STREAM, 0, 2 * i + 1, "\0\0\0\x08"),
    ],
    "resets provoked by window overflow": (i) => [
        request(2 * i + 1, live),
        frame(TYPES.WINDOW_UPDATE, 0, 2 * i + 1, "\x7f\xff\xff\xff"),
    ],
    "empty DATA": (i) => [
        ...(i === 0 ? [request(1, "/v1/stream/x", 0)] : []),
        frame(TYPES.DATA, 0, 1),
    ],
    "header bombs": bomb,
    "CONTINUATION flood": (i) => [
        ...(i === 0 ? [frame(TYPES.HEADERS, END_STREAM, 1, "\x82")] : []),
        frame(TYPES.CONTINUATION, 0, 1, fields({ name: "value".repeat(20) }).toString("latin1")),
    ],
    "PING flood": () => [frame(TYPES.PING, 0, 0, "12345678")],
    "SETTINGS flood": () => [frame(TYPES.SETTINGS, 0, 0, "\0\x04\0\0\x10\0")],
    "oversized frames": () => [frame(TYPES.DATA, 0, 1, "x".repeat(20_000))],
};

for (const [name, next] of Object.entries(ATTACKS))
    test(`hostile: ${name}`, async (t) => {
        const server = await startServer(t);
        await server.create("x", "text/plain", { body: "hello" });
        const before = server.rss();
        const raw = await openRaw(t, server);
        raw.send(PREFACE);
        raw.send(frame(TYPES.SETTINGS, 0, 0));
        for (let i = 0; i < 100_000 && !raw.ended; i++) {
            for (const bytes of next(i)) raw.send(bytes);
            if (i % 64 === 0) await new Promise((resolve) => setImmediate(resolve));
        }
        const said = frames(await raw.takeAll());
        assert.ok(raw.ended);
        assert.ok(said.length < 2_000, `${said.length} frames in answer`);
        assert.ok(server.rss() - before < 48 << 20, `grown by ${server.rss() - before} bytes`);
        assert.equal((await server.stream("GET", "x")).text, "hello"); // and others are served
    });

test("hostile: windows of zero, on as many streams as there may be", async (t) => {
    const server = await startServer(t, ["--write-timeout", "1s"]);
    const body = "0123456789abcdef".repeat(65536); // 1 MiB
    await server.create("x", "text/plain", { body });
    const before = server.rss();
    const raw = await openRaw(t, server);
    raw.send(PREFACE);
    raw.send(frame(TYPES.SETTINGS, 0, 0, "\0\x04\0\0\0\0"));
    raw.send(frame(TYPES.SETTINGS, 1, 0));
    for (let i = 0; i < 100; i++) raw.send(request(2 * i + 1, "/v1/stream/x"));
    const resets = () => frames(raw.pending).filter(({ type }) => type === TYPES.RST_STREAM);
    await until(() => resets().length === 100 || raw.ended, "streams that take nothing to be cut");
    assert.ok(server.rss() - before < 48 << 20, `grown by ${server.rss() - before} bytes`);
});
