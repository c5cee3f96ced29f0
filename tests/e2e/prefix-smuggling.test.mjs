// SPDX-License-Identifier: Apache-2.0
// Where one request ends and the next begins must be the same to us and to an upstream. Whatever a
// client sends, the upstream sees requests that we have judged, each framed once, and no others.
import assert from "node:assert/strict";
import { test } from "node:test";
import { openRaw } from "./lib/raw.mjs";
import { namesOf, OK, startRawUpstream } from "./lib/raw-upstream.mjs";
import { startServer } from "./lib/server.mjs";
import { END_HEADERS, END_STREAM, frame, PREFACE, TYPES } from "./lib/h2.mjs";
import { until } from "./lib/wait.mjs";

const SMUGGLED = "GET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";
const CHUNKS = "4\r\nabcd\r\n0\r\n\r\n";
const START = "PUT /v1/x HTTP/1.1\r\nHost: localhost\r\n";

const start = async (t, answer = OK) => {
    const upstream = await startRawUpstream(t, answer);
    return { upstream, server: await startServer(t, ["--proxy", `/v1=${upstream.url}`]) };
};

/** No bytes that an upstream got begin a request that was meant to be a body, or the reverse. */
function assertClean(upstream) {
    for (const { text } of upstream.connections)
        assert.ok(!text.includes("/v1/smuggled"), `it was smuggled: ${JSON.stringify(text)}`);
}

const REFUSED = {
    "both lengths": `Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n${CHUNKS}`,
    "chunks, then a length": `Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n${CHUNKS}`,
    "two lengths": `Content-Length: 4\r\nContent-Length: 0\r\n\r\nabcd`,
    "two equal lengths": `Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd`,
    "a list of lengths": `Content-Length: 4, 4\r\n\r\nabcd`,
    "a signed length": `Content-Length: +4\r\n\r\nabcd`,
    "another coding": `Transfer-Encoding: xchunked\r\n\r\n${CHUNKS}`,
    "two codings": `Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n${CHUNKS}`,
    "a coding behind a tab": `Transfer-Encoding:\tchunked\r\n\r\n${CHUNKS}`,
    "a coding behind a vertical tab": `Transfer-Encoding: \x0bchunked\r\n\r\n${CHUNKS}`,
    "a name with a blank": `Content-Length : 4\r\n\r\nabcd`,
    "a folded line": `X: a\r\n Content-Length: 4\r\n\r\nabcd`,
    "a bare LF": `X: a\nContent-Length: 4\r\n\r\nabcd`,
    "a bare CR": `X: a\rContent-Length: 4\r\n\r\nabcd`,
    "a NUL": `X: a\0b\r\nContent-Length: 4\r\n\r\nabcd`,
    "a chunk's size with a sign": "Transfer-Encoding: chunked\r\n\r\n+4\r\nabcd\r\n0\r\n\r\n",
    "a chunk that is longer": "Transfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n",
    "a length as a trailer": "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 4\r\n\r\n",
};
test("what two parsers could read differently goes no further", async (t) => {
    const { upstream, server } = await start(t);
    for (const [what, rest] of Object.entries(REFUSED)) {
        const raw = await openRaw(t, server);
        raw.send(`${START}${rest}${SMUGGLED}`);
        const answers = await raw.answersUntilClose();
        assert.equal(answers.length, 1, `${what}: one answer, and a close`);
        assert.ok([400, 501].includes(answers[0].status), `${what}: ${answers[0].status}`);
    }
    assertClean(upstream);
});

test("what is passed on is framed once, as we have read it", async (t) => {
    const { upstream, server } = await start(t);
    const cases = {
        "a length": ["Content-Length: 4\r\n\r\nabcd", "Content-Length: 4", "abcd"],
        chunks: [`Transfer-Encoding: chunked\r\n\r\n${CHUNKS}`, "Transfer-Encoding: chunked", CHUNKS],
        "chunks with extensions and trailers": [
            "Transfer-Encoding: chunked\r\n\r\n4;a=b\r\nabcd\r\n0\r\nX-Trailer: evil\r\n\r\n",
            "Transfer-Encoding: chunked",
            CHUNKS,
        ],
        "a Connection that names the framing": [
            "Connection: Content-Length, Host, Transfer-Encoding\r\nContent-Length: 4\r\n\r\nabcd",
            "Content-Length: 4",
            "abcd",
        ],
        "names that some take for the framing": [
            "Content_Length: 0\r\nTransfer_Encoding: chunked\r\nContent-Length: 4\r\n\r\nabcd",
            "Content-Length: 4",
            "abcd",
        ],
        "a request as a body": [
            `Content-Length: ${"GET /admin HTTP/1.1\r\n\r\n".length}\r\n\r\nGET /admin HTTP/1.1\r\n\r\n`,
            `Content-Length: ${"GET /admin HTTP/1.1\r\n\r\n".length}`,
            "GET /admin HTTP/1.1\r\n\r\n",
        ],
    };
    for (const method of ["PUT", "DELETE", "GET", "OPTIONS-LIKE"])
        for (const [what, [rest, framing, body]] of Object.entries(cases)) {
            const n = upstream.connections.length;
            upstream.answer = undefined;
            const raw = await openRaw(t, server);
            raw.send(`${method} /v1/x HTTP/1.1\r\nHost: localhost\r\n${rest}`);
            const connection = await until(() => upstream.connections[n], `${method}, ${what}`);
            await until(() => connection.body === body, `the body of ${method}, ${what}`);
            const lines = await connection.head();
            const names = namesOf(lines);
            const framings = names.filter((name) => /length|encoding/.test(name));
            assert.deepEqual(framings.length, 1, `${what}: ${lines}`);
            assert.ok(lines.includes(framing), `${what}: ${lines}`);
            assert.equal(names.filter((name) => name === "host").length, 1);
            assert.ok(!connection.text.includes("evil"));
            connection.socket.end(OK);
            assert.equal((await raw.answer()).status, 200);
        }
});

test("requests in a pipeline are answered one by one, each by its own", async (t) => {
    const { server } = await start(t, ({ socket }, [line]) => {
        const path = line.split(" ")[1];
        socket.end(`HTTP/1.1 200 OK\r\nContent-Length: ${path.length}\r\n\r\n${path}`);
    });
    const raw = await openRaw(t, server);
    const paths = ["/v1/a", "/v1/bb", "/v1/ccc"];
    raw.send(
        `PUT ${paths[0]} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nabcd` +
            paths.slice(1).map((path) => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`).join(""),
    );
    for (const path of paths) assert.equal((await raw.answer()).text, path);
});

test("what an upstream says behind its answer is nobody's answer", async (t) => {
    const evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    let late = false;
    const { upstream, server } = await start(t, (connection, [line]) => {
        const path = line.split(" ")[1];
        const good = `HTTP/1.1 200 OK\r\nContent-Length: ${path.length}\r\n\r\n${path}`;
        connection.socket.write(late ? good : good + evil);
        if (late) setTimeout(() => connection.socket.write(evil), 20);
        connection.bytes = Buffer.alloc(0);
    });
    for (late of [false, true])
        for (let i = 0; i < 5; i++) {
            const path = `/v1/${late}-${i}`;
            const { text } = await server.request("GET", path);
            assert.equal(text, path);
            if (late) await until(() => upstream.last().socket.bytesWritten > 60, "the rest");
        }
});

test("HTTP/2: fields that HTTP/1 has no place for", async (t) => {
    const { upstream, server } = await start(t);
    const field = (name, value) =>
        Buffer.concat([
            Buffer.from([0x00, name.length]),
            Buffer.from(name, "latin1"),
            Buffer.from([value.length]),
            Buffer.from(value, "latin1"),
        ]);
    const open = (path, ...more) =>
        Buffer.concat([
            field(":method", "GET"),
            field(":scheme", "http"),
            field(":path", path),
            field(":authority", "localhost"),
            ...more.map(([name, value]) => field(name, value)),
        ]);
    const heads = {
        "a value with CR LF": open("/v1/x", ["x-a", "1\r\nx-injected: 1"]),
        "a value with LF": open("/v1/x", ["x-a", "1\nx-injected: 1"]),
        "a value with NUL": open("/v1/x", ["x-a", "1\0x-injected"]),
        "a name with a colon": open("/v1/x", ["x-a: 1\r\nx-injected", "1"]),
        "Transfer-Encoding": open("/v1/x", ["transfer-encoding", "chunked"]),
        "a path with a blank": open("/v1/x HTTP/1.1\r\nx-injected: 1"),
        "a path with CR LF": open("/v1/x\r\nx-injected:1"),
        "a length that is wrong": open("/v1/x", ["content-length", "9"]),
    };
    for (const [what, block] of Object.entries(heads)) {
        const raw = await openRaw(t, server);
        raw.send(Buffer.concat([Buffer.from(PREFACE), frame(TYPES.SETTINGS, 0, 0)]));
        raw.send(frame(TYPES.HEADERS, END_STREAM | END_HEADERS, 1, block));
        raw.send(frame(TYPES.PING, 0, 0, Buffer.alloc(8, "ping")));
        await Promise.race([raw.takeThrough("ping".repeat(2)), raw.takeAll().catch(() => {})]);
        raw.destroy();
        for (const connection of upstream.connections)
            assert.ok(!connection.text.includes("x-injected"), `${what} was injected`);
    }
    assert.equal(upstream.connections.length, 0, "none of them went on");
});
