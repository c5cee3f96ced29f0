// SPDX-License-Identifier: Apache-2.0
// Large and slow bodies through a prefix route, both ways: in memory there is a piece of each, and
// whoever does not go on is held to the limits that hold for him.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer, request as ask } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { defer } from "./lib/defer.mjs";
import { H2 } from "./lib/h2.mjs";
import { openRaw } from "./lib/raw.mjs";
import { startRawUpstream } from "./lib/raw-upstream.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until, within } from "./lib/wait.mjs";

const MIB = 1024 * 1024;
const LARGE = 100 * MIB;
const ROOM = 40 * MIB; // what the server may grow by: sanitizers keep some of what was freed
const LONG_MS = 120_000;
const PIECE = Buffer.alloc(64 * 1024, "0123456789abcdef");

function* pieces(bytes) {
    for (let left = bytes; left > 0; left -= PIECE.length)
        yield left >= PIECE.length ? PIECE : PIECE.subarray(0, left);
}

const digestOf = (bytes) => {
    const hash = createHash("sha256");
    for (const piece of pieces(bytes)) hash.update(piece);
    return hash.digest("hex");
};

/** It can take more, or will take nothing any more. */
const drained = (to) =>
    new Promise((resolve) => {
        const done = () => {
            to.off("drain", done).off("close", done);
            resolve();
        };
        to.on("drain", done).on("close", done);
    });

/** Takes uploads, with their digest as the answer, and gives downloads of ?bytes=. */
async function startStore(t, { slow = false, create = createServer } = {}) {
    const store = { taken: 0, given: 0, gone: 0, slow };
    const server = create(async (request, response) => {
        response.on("close", () => (store.gone += !response.writableFinished));
        const { searchParams } = new URL(request.url, "http://x");
        if (request.method === "GET") {
            const bytes = Number(searchParams.get("bytes"));
            if (!searchParams.has("chunked")) response.setHeader("content-length", bytes);
            for (const piece of pieces(bytes)) {
                store.given += piece.length;
                if (!response.write(piece)) await drained(response);
                if (response.destroyed) return;
            }
            response.end();
            return;
        }
        const hash = createHash("sha256");
        try {
            for await (const part of request) {
                hash.update(part);
                store.taken += part.length;
                while (store.slow) await delay(20);
            }
        } catch {
            return; // it broke off
        }
        response.end(JSON.stringify({ digest: hash.digest("hex"), headers: request.headers }));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    defer(t, () => {
        store.slow = false;
        server.closeAllConnections?.();
        server.close();
    });
    store.url = `http://127.0.0.1:${server.address().port}`;
    return store;
}

/** The most memory that the server has while it does something. */
async function most(server, work) {
    let peak = server.rss();
    const watch = setInterval(() => (peak = Math.max(peak, server.rss())), 20);
    try {
        await within(work(), "a large body", LONG_MS);
    } finally {
        clearInterval(watch);
    }
    return Math.max(peak, server.rss());
}

/** Sends a large body as fast as it is taken; the answer's JSON. */
async function upload(server, path, bytes, headers) {
    const request = ask(`${server.base}${path}`, { method: "PUT", headers });
    const answered = once(request, "response");
    for (const piece of pieces(bytes))
        if (!request.write(piece)) await Promise.race([drained(request), answered]);
    request.end();
    const [response] = await answered;
    let text = "";
    for await (const part of response) text += part;
    assert.equal(response.statusCode, 200, text);
    return JSON.parse(text);
}

async function download(server, path) {
    const response = await fetch(`${server.base}${path}`);
    const hash = createHash("sha256");
    for await (const part of response.body) hash.update(part);
    return { hash: hash.digest("hex"), length: response.headers.get("content-length") };
}

const passing = async (server) => {
    const { text } = await server.request("GET", "/metrics");
    return Number(/^tidemark_gateway_passing\{route="\/v1"\} (\d+)$/m.exec(text)[1]);
};

test("100 MiB up and down in constant memory", async (t) => {
    const store = await startStore(t);
    const server = await startServer(t, ["--proxy", `/v1=${store.url}`]);
    await upload(server, "/v1/warm", MIB, {});
    const before = server.rss();
    const digest = digestOf(LARGE);
    const peak = await most(server, async () => {
        const sized = await upload(server, "/v1/up", LARGE, { "content-length": LARGE });
        assert.equal(sized.digest, digest);
        assert.equal(sized.headers["content-length"], String(LARGE));
        const chunked = await upload(server, "/v1/up", LARGE, {});
        assert.equal(chunked.digest, digest);
        assert.equal(chunked.headers["transfer-encoding"], "chunked");
        const down = await download(server, `/v1/down?bytes=${LARGE}`);
        assert.deepEqual(down, { hash: digest, length: String(LARGE) });
        const loose = await download(server, `/v1/down?bytes=${LARGE}&chunked`);
        assert.deepEqual(loose, { hash: digest, length: null });
    });
    t.diagnostic(`${Math.round(before / MIB)} MiB before, at most ${Math.round(peak / MIB)} MiB`);
    assert.ok(peak < before + ROOM, `${peak} bytes, after ${before}`);
});

test("a POST that is too large to be looked at is passed on, not refused", async (t) => {
    const store = await startStore(t);
    const file = join(await tempFolder(t), "tidemark.ini");
    await writeFile(file, `[route /v1]\nprefix = yes\nmax-body = 1m\nupstream = ${store.url}\n`);
    const server = await startServer(t, ["--config", file]);
    const post = (headers, body) => server.request("POST", "/v1/files", { headers, body });
    const large = Buffer.concat([...pieces(4 * MIB)]);
    const multipart = { "content-type": "multipart/form-data; boundary=x" };
    for (const headers of [multipart, { "content-type": "application/json" }]) {
        const { status, text } = await post(headers, large);
        assert.equal(status, 200);
        assert.equal(JSON.parse(text).digest, digestOf(4 * MIB));
    }
    async function* parts() {
        yield* pieces(4 * MIB);
    }
    assert.equal((await post(multipart, parts())).json().digest, digestOf(4 * MIB));
    const json = await post({ "content-type": "application/json" }, parts());
    assert.equal(json.status, 413, "JSON of no known length is held until it is too much");
});

test("over HTTP/2", async (t) => {
    const store = await startStore(t);
    const server = await startServer(t, ["--proxy", `/v1=${store.url}`]);
    const h2 = new H2(t, server);
    const { stream, reply, done } = h2.open("PUT", "/v1/up", { end: false });
    let text = "";
    stream.on("data", (part) => (text += part));
    for (const piece of pieces(20 * MIB)) if (!stream.write(piece)) await once(stream, "drain");
    stream.end();
    assert.equal((await reply)[":status"], 200);
    await done;
    assert.equal(JSON.parse(text).digest, digestOf(20 * MIB));
    const down = await h2.request("GET", `/v1/down?bytes=${20 * MIB}`);
    assert.equal(down.text.length, 20 * MIB);
});

test("to an upstream that speaks HTTP/2", async (t) => {
    const store = await startStore(t, { create: createHttp2Server });
    const file = join(await tempFolder(t), "tidemark.ini");
    const route = "[route /v1]\nprefix = yes\nupstream-http = 2\n";
    await writeFile(file, `${route}upstream = ${store.url}\n`);
    const server = await startServer(t, ["--config", file]);
    for (const headers of [{ "content-length": 20 * MIB }, {}]) {
        const { digest } = await upload(server, "/v1/up", 20 * MIB, headers);
        assert.equal(digest, digestOf(20 * MIB));
    }
    const down = await download(server, `/v1/down?bytes=${20 * MIB}`);
    assert.equal(down.hash, digestOf(20 * MIB));
});

test("a slow upstream holds the client's upload back, a slow client the upstream's answer", async (t) => {
    const store = await startStore(t, { slow: true });
    const server = await startServer(t, ["--proxy", `/v1=${store.url}`]);
    const before = server.rss();
    const request = ask(`${server.base}/v1/up`, { method: "PUT", headers: { "content-length": LARGE } });
    request.on("error", () => {});
    let sent = 0;
    const pump = (async () => {
        for (const piece of pieces(LARGE)) {
            sent += piece.length;
            if (!request.write(piece)) await once(request, "drain");
        }
        request.end();
    })();
    let last = -1;
    await until(async () => {
        const same = sent === last;
        last = sent;
        await delay(300);
        return same && sent > 0;
    }, "the client to be held back");
    assert.ok(sent < LARGE / 2, `${sent} bytes were taken`);
    assert.ok(server.rss() < before + ROOM);
    store.slow = false;
    const [response] = await within(once(request, "response"), "the answer", LONG_MS);
    await pump;
    response.resume();
    await once(response, "end");

    const raw = await openRaw(t, server);
    raw.send(`GET /v1/down?bytes=${LARGE} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
    await raw.head();
    raw.pause();
    store.given = 0;
    last = -1;
    await until(async () => {
        const same = store.given === last;
        last = store.given;
        await delay(300);
        return same;
    }, "the upstream to be held back");
    assert.ok(store.given < LARGE / 2, `${store.given} bytes were given`);
    assert.ok(server.rss() < before + ROOM);
    raw.destroy();
    await until(() => store.gone > 0, "the upstream to be told");
    await until(async () => (await passing(server)) === 0, "the request to end");
});

test("a client that goes takes its request along", async (t) => {
    const upstream = await startRawUpstream(t);
    const server = await startServer(t, ["--proxy", `/v1=${upstream.url}`]);
    const cases = {
        "before the head": ["GET /v1/x", ""],
        "in its upload": ["PUT /v1/x", "Content-Length: 100\r\n", "half"],
        "in its chunks": ["PUT /v1/x", "Transfer-Encoding: chunked\r\n", "4\r\nhalf\r\n"],
        "in the answer": ["GET /v1/x", "", "", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"],
    };
    for (const [what, [line, headers, body = "", answer]] of Object.entries(cases)) {
        const n = upstream.connections.length;
        const raw = await openRaw(t, server);
        raw.send(`${line} HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n${body}`);
        const connection = await until(() => upstream.connections[n], `a request, ${what}`);
        await connection.head();
        if (body) await until(() => connection.body.includes("half"), "what there is of the body");
        if (answer) connection.socket.write(answer);
        if (answer) await raw.head();
        raw.destroy();
        await until(() => connection.closed, `the upstream to be told, ${what}`);
        assert.ok(!connection.body.endsWith("0\r\n\r\n"), "half a body does not look whole");
    }
    await until(async () => (await passing(server)) === 0, "all requests to end");
    const over2 = new H2(t, server).open("GET", "/v1/x");
    const connection = await until(() => upstream.connections[4], "a request over HTTP/2");
    over2.stream.close();
    await until(() => connection.closed, "the upstream to be told");
});

test("who does not go on: limits of the client, and of the upstream", async (t) => {
    const upstream = await startRawUpstream(t);
    const file = join(await tempFolder(t), "tidemark.ini");
    await writeFile(
        file,
        `body-timeout = 1s
[route /v1]
prefix = yes
upstream = ${upstream.url}
first-byte-timeout = 300ms
idle-timeout = 300ms
`,
    );
    const server = await startServer(t, ["--config", file]);
    const answerTo = async (bytes) => {
        const raw = await openRaw(t, server);
        raw.send(bytes);
        const answer = await raw.answer();
        return answer.status;
    };
    const put = "PUT /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf";
    assert.equal(await answerTo("GET /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n"), 504);
    assert.equal(await answerTo(put), 408, "the upload stops; that is no fault of the upstream");
    upstream.answer = ({ socket }) => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
    const raw = await openRaw(t, server);
    raw.send("GET /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert.equal((await raw.head()).status, 200);
    assert.equal((await raw.takeAll()).toString(), "half", "cut off");
    await until(async () => (await passing(server)) === 0, "all requests to end");
});

test("many at once: each has its place, none is lost, and memory stays in bounds", async (t) => {
    const many = 500;
    let waiting = [];
    const backend = createServer((request, response) => {
        request.resume().on("end", () => waiting.push(response));
    });
    backend.listen(0, "127.0.0.1");
    await once(backend, "listening");
    defer(t, () => {
        backend.closeAllConnections();
        backend.close();
    });
    const url = `http://127.0.0.1:${backend.address().port}`;
    const server = await startServer(t, ["--proxy", `/v1=${url}`]);
    const before = server.rss();
    const raws = await Promise.all(Array.from({ length: many }, () => openRaw(t, server)));
    for (const raw of raws)
        raw.send("PUT /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
    await until(() => waiting.length === many, "all of them to be asked", LONG_MS);
    assert.equal(await passing(server), many);
    const each = (server.rss() - before) / many;
    t.diagnostic(`${Math.round(each / 1024)} KiB each`);
    assert.ok(each < 256 * 1024, `${each} bytes each`);
    waiting.forEach((response, i) => response.end(String(i)));
    const texts = await Promise.all(raws.map(async (raw) => (await raw.answer()).text));
    assert.equal(new Set(texts).size, many, "each has its own answer");
    await until(async () => (await passing(server)) === 0, "all requests to end");
});

test("parallel and quotas count what is passed on", async (t) => {
    const upstream = await startRawUpstream(t);
    const file = join(await tempFolder(t), "tidemark.ini");
    const route = (path, more) => `[route ${path}]\nprefix = yes\nupstream = ${upstream.url}\n${more}\n`;
    await writeFile(file, route("/v1", "parallel = 2") + route("/v2", "requests-per-minute = 2"));
    const server = await startServer(t, ["--config", file]);
    const under = [await openRaw(t, server), await openRaw(t, server)];
    for (const raw of under) raw.send("GET /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await until(() => upstream.connections.length === 2, "both to be asked");
    for (const method of ["GET", "PUT", "POST"]) {
        const { status, headers } = await server.request(method, "/v1/x");
        assert.deepEqual([status, headers["retry-after"]], [429, "1"], method);
    }
    under[0].destroy();
    await until(async () => (await passing(server)) === 1, "one to go");
    const third = await openRaw(t, server);
    third.send("GET /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await until(() => upstream.connections.length === 3, "the next to be asked");
    upstream.answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    const statuses = [];
    for (let i = 0; i < 3; i++) statuses.push((await server.request("GET", "/v2/x")).status);
    assert.deepEqual(statuses, [200, 200, 429]);
});

test("an upstream that answers before it has all, and one that hangs up on an upload", async (t) => {
    const upstream = await startRawUpstream(t, ({ socket }) =>
        socket.write("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"),
    );
    const server = await startServer(t, ["--proxy", `/v1=${upstream.url}`]);
    const raw = await openRaw(t, server);
    raw.send(`PUT /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${LARGE}\r\n\r\n`);
    raw.send(PIECE);
    const answer = await raw.answer();
    assert.deepEqual([answer.status, answer.text], [413, "no"]);
    upstream.answer = ({ socket }) => socket.destroy();
    const cut = await openRaw(t, server);
    cut.send(`PUT /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${LARGE}\r\n\r\n`);
    const more = setInterval(() => cut.send(PIECE), 20);
    defer(t, () => clearInterval(more));
    assert.equal((await cut.answer()).status, 502);
    await until(async () => (await passing(server)) === 0, "all requests to end");
});

test("a drain lets what is passed on finish, and takes nothing new", async (t) => {
    const upstream = await startRawUpstream(t);
    const server = await startServer(t, ["--proxy", `/v1=${upstream.url}`, "--drain-timeout", "20s"]);
    const kept = await openRaw(t, server);
    const raw = await openRaw(t, server);
    raw.send("GET /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const connection = await until(() => upstream.connections[0], "a request");
    await connection.head();
    kept.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/y HTTP/1.1\r\n");
    assert.equal((await kept.answer()).status, 200);
    server.signal("SIGTERM");
    await until(() => server.stderr.includes("draining"), "the drain to begin");
    kept.send("Host: localhost\r\n\r\n");
    assert.equal((await kept.answer()).status, 503);
    connection.socket.end("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    assert.equal((await raw.answer()).text, "hello");
    const { code } = await within(server.ended, "the server to end");
    assert.equal(code, 0);
});

test("the rest of an answer that is gone is 410, and the upstream is not asked", async (t) => {
    const asked = [];
    const upstream = createServer((request, response) => {
        asked.push(request.url);
        response.end("{}");
    });
    upstream.listen(0, "127.0.0.1");
    await once(upstream, "listening");
    defer(t, () => upstream.close());
    const url = `http://127.0.0.1:${upstream.address().port}`;
    const server = await startServer(t, ["--proxy", `/v1=${url}`]);
    const id = "0b9f6a3e-51f4-4bd6-9a0c-3c8a44f2e0d1";
    const headers = { "last-event-id": `${id}:3` };
    for (const [method, path] of [
        ["GET", `/v1/chat/completions/${id}`],
        ["GET", "/v1/chat/completions"],
        ["POST", "/v1/chat/completions"],
    ]) {
        const { status, text } = await server.request(method, path, { headers });
        assert.equal(status, 410, `${method} ${path}`);
        assert.equal(JSON.parse(text).error.details.gap.requested, "3");
    }
    assert.deepEqual(asked, []);
    // An id that looks like ours is the upstream's, unless somebody says that he has a part of it.
    assert.equal((await server.request("GET", `/v1/files/${id}`)).status, 200);
    assert.deepEqual(asked, [`/v1/files/${id}`]);
});
