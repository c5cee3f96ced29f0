// SPDX-License-Identifier: Apache-2.0
// Requests whose end two parsers could see in different places. Each is followed by a request that
// must never be answered: the first is refused and the connection closed.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { openRaw } from "./lib/raw.mjs";
import { startServer } from "./lib/server.mjs";

const SMUGGLED = "GET /v1/stream/victim HTTP/1.1\r\nHost: localhost\r\n\r\n";
const START = "POST /v1/stream/target HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n";
const CHUNKS = "4\r\nabcd\r\n0\r\n\r\n";

const get = (line, headers = "Host: localhost\r\n") => `${line}\r\n${headers}\r\n`;
const post = (headers, body = "abcd") => `${START}${headers}\r\n${body}`;
const withLength = (value) => post(`Content-Length:${value}\r\n`);
const withCoding = (value) => post(`Transfer-Encoding:${value}\r\n`, CHUNKS);
const withChunks = (chunks) => post("Transfer-Encoding: chunked\r\n", chunks);
const withHeader = (line) => get("GET /v1/stream/victim HTTP/1.1", `Host: localhost\r\n${line}\r\n`);

/* name: bytes, or [bytes, statuses that are right beside 400] */
const FRAMING = {
    "Content-Length, then Transfer-Encoding": post(
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        CHUNKS,
    ),
    "Transfer-Encoding, then Content-Length": post(
        "Transfer-Encoding: chunked\r\nContent-Length: 14\r\n",
        CHUNKS,
    ),
    "Content-Length twice, equal": post("Content-Length: 4\r\nContent-Length: 4\r\n"),
    "Content-Length twice, different": post("Content-Length: 4\r\nContent-Length: 0\r\n"),
    "Content-Length twice, in other letters": post("Content-Length: 4\r\ncontent-LENGTH: 4\r\n"),
    "Content-Length: 4,4": withLength(" 4,4"),
    "Content-Length: 4, 4": withLength(" 4, 4"),
    "Content-Length: +4": withLength(" +4"),
    "Content-Length: -4": withLength(" -4"),
    "Content-Length: 0x4": withLength(" 0x4"),
    "Content-Length: 4 4": withLength(" 4 4"),
    "Content-Length: 4.0": withLength(" 4.0"),
    "Content-Length: 4e0": withLength(" 4e0"),
    "Content-Length: 4_0": withLength(" 4_0"),
    "Content-Length, empty": withLength(""),
    "Content-Length: 2^64 + 4": withLength(" 18446744073709551620"),
    "Content-Length: 4x": withLength(" 4x"),
    "Content-Length behind a vertical tab": withLength(" \x0b4"),
    "Content-Length in Arabic digits": withLength(" \xd9\xa4"),
    "Transfer-Encoding: xchunked": [withCoding(" xchunked"), 501],
    "Transfer-Encoding: identity": [withCoding(" identity"), 501],
    "Transfer-Encoding: gzip, chunked": [withCoding(" gzip, chunked"), 501],
    "Transfer-Encoding: chunked, identity": [withCoding(" chunked, identity"), 501],
    "Transfer-Encoding: chunked, chunked": [withCoding(" chunked, chunked"), 501],
    "Transfer-Encoding: chunked;q=1": [withCoding(" chunked;q=1"), 501],
    'Transfer-Encoding: "chunked"': [withCoding(' "chunked"'), 501],
    "Transfer-Encoding, empty": [withCoding(""), 501],
    "Transfer-Encoding: chunked behind a vertical tab": [withCoding(" \x0bchunked"), 501],
    "Transfer-Encoding: chunked before a NUL": [withCoding(" chunked\0"), 501],
    "Transfer-Encoding twice": [
        post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", CHUNKS),
        501,
    ],
    "Transfer-Encoding twice, one unknown": [
        post("Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n", CHUNKS),
        501,
    ],
    "Transfer-Encoding on HTTP/1.0": post("Transfer-Encoding: chunked\r\n", CHUNKS).replace(
        "HTTP/1.1",
        "HTTP/1.0",
    ),
};

const LINES = {
    "bare LF everywhere": get("GET /v1/stream/victim HTTP/1.1").replaceAll("\r\n", "\n"),
    "bare LF behind the request line": "GET /v1/stream/victim HTTP/1.1\nHost: localhost\r\n\r\n",
    "bare LF behind a header": "GET /v1/stream/victim HTTP/1.1\r\nHost: localhost\n\r\n",
    "bare LF ends the head": "GET /v1/stream/victim HTTP/1.1\r\nHost: localhost\r\n\n",
    "bare CR between headers": post("X: y\rTransfer-Encoding: chunked\r\n", CHUNKS),
    "bare CR in a value": withHeader("X: a\rb"),
    "bare CR ends a header": withHeader("X: a\r\rY: b"),
    "CR and a letter where the head should end": `GET /v1/stream/victim HTTP/1.1\r\nHost: localhost\r\n\rX${SMUGGLED}`,
    "a folded value": withHeader("X: a\r\n b"),
    "a value folded by a tab": withHeader("X: a\r\n\tb"),
    "a folded Transfer-Encoding": post("Transfer-Encoding:\r\n chunked\r\n", CHUNKS),
    "a folded Content-Length": post("Content-Length:\r\n 4\r\n"),
    "a space before the first header":
        "POST /v1/stream/target HTTP/1.1\r\n Content-Length: 4\r\nHost: localhost\r\n\r\nabcd",
    "a space before Content-Length": post(" Content-Length: 4\r\n"),
    "a space before the colon": post("Content-Length : 4\r\n"),
    "a tab before the colon": post("Content-Length\t: 4\r\n"),
    "an empty header name": withHeader(": x"),
    "a header without colon": withHeader("X"),
    "a space in a header name": withHeader("X Y: z"),
    "brackets in a header name": withHeader("X[Y]: z"),
    "a high byte in a header name": withHeader("X\xfc: z"),
    "a NUL in a header name": withHeader("X\0Y: z"),
    "a NUL in a value": withHeader("X: y\0z"),
    "a control byte in a value": withHeader("X: y\x01z"),
    "DEL in a value": withHeader("X: y\x7fz"),
    "no Host": get("GET /v1/stream/victim HTTP/1.1", ""),
    "two Hosts": get("GET /v1/stream/victim HTTP/1.1", "Host: a\r\nHost: b\r\n"),
    "the same Host twice": get("GET /v1/stream/victim HTTP/1.1", "Host: localhost\r\nHost: localhost\r\n"),
    "a Host with a space": get("GET /v1/stream/victim HTTP/1.1", "Host: a b\r\n"),
    "a Host with a path": get("GET /v1/stream/victim HTTP/1.1", "Host: a/b\r\n"),
    "a Host with a user": get("GET /v1/stream/victim HTTP/1.1", "Host: a@b\r\n"),
    "a Host of two": get("GET /v1/stream/victim HTTP/1.1", "Host: a, b\r\n"),
    "a Host with a quote": get("GET /v1/stream/victim HTTP/1.1", 'Host: a"b\r\n'),
    "two Hosts on HTTP/1.0": get("GET /v1/stream/victim HTTP/1.0", "Host: a\r\nHost: b\r\n"),
};

const REQUEST_LINES = {
    "HTTP/2.0": [get("GET /v1/stream/victim HTTP/2.0"), 505],
    "HTTP/1.2": [get("GET /v1/stream/victim HTTP/1.2"), 505],
    "HTTP/0.9": [get("GET /v1/stream/victim HTTP/0.9"), 505],
    "HTTP/1.10": [get("GET /v1/stream/victim HTTP/1.10"), 505],
    "HTTP/1": [get("GET /v1/stream/victim HTTP/1"), 505],
    "HTTP/11": [get("GET /v1/stream/victim HTTP/11"), 505],
    "http/1.1": [get("GET /v1/stream/victim http/1.1"), 505],
    "HTTQ/1.1": [get("GET /v1/stream/victim HTTQ/1.1"), 505],
    "no version": [get("GET /v1/stream/victim"), 505],
    "a space behind the version": [get("GET /v1/stream/victim HTTP/1.1 "), 505],
    "two spaces before the target": get("GET  /v1/stream/victim HTTP/1.1"),
    "two spaces before the version": get("GET /v1/stream/victim  HTTP/1.1"),
    "a tab for a space": get("GET\t/v1/stream/victim HTTP/1.1"),
    "a leading space": ` ${get("GET /v1/stream/victim HTTP/1.1")}`,
    "a method that is no token": get("G(T /v1/stream/victim HTTP/1.1"),
    "no method": get(" /v1/stream/victim HTTP/1.1"),
    "no target": get("GET  HTTP/1.1"),
    "a target without slash": get("GET v1/stream/victim HTTP/1.1"),
    "an asterisk for GET": get("GET * HTTP/1.1"),
    "a NUL in the target": get("GET /v1/stream/vic\0tim HTTP/1.1"),
    "a high byte in the target": get("GET /v1/stream/vic\xffim HTTP/1.1"),
    "a control byte in the target": get("GET /v1/stream/vic\x01im HTTP/1.1"),
    "a space in the target": get("GET /v1/stream/vic tim HTTP/1.1"),
    "an unknown expectation": [post("Content-Length: 4\r\nExpect: 200-maybe\r\n"), 417],
    "a TLS hello": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "almost an HTTP/2 preface": ["PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n", 505],
    "a NUL first": `\0${get("GET /v1/stream/victim HTTP/1.1")}`,
};

const CHUNKED = {
    "no chunk size": withChunks(`\r\nabcd\r\n0\r\n\r\n`),
    "chunk size 0x4": withChunks(`0x4\r\nabcd\r\n0\r\n\r\n`),
    "chunk size +4": withChunks(`+4\r\nabcd\r\n0\r\n\r\n`),
    "chunk size -1": withChunks(`-1\r\nabcd\r\n0\r\n\r\n`),
    "chunk size 0_4": withChunks(`0_4\r\nabcd\r\n0\r\n\r\n`),
    "a space before the chunk size": withChunks(` 4\r\nabcd\r\n0\r\n\r\n`),
    "chunk size g": withChunks(`g\r\nabcd\r\n0\r\n\r\n`),
    "a chunk size of 17 digits": withChunks(`10000000000000004\r\nabcd\r\n0\r\n\r\n`),
    "a chunk size of 2^64 - 1": [withChunks(`ffffffffffffffff\r\nabcd\r\n0\r\n\r\n`), 413],
    "bare LF behind the chunk size": withChunks(`4\nabcd\r\n0\r\n\r\n`),
    "bare CR behind the chunk size": withChunks(`4\rabcd\r\n0\r\n\r\n`),
    "chunk data not followed by CRLF": withChunks(`4\r\nabcdX\r\n0\r\n\r\n`),
    "chunk data followed by LF": withChunks(`4\r\nabcd\n0\r\n\r\n`),
    "chunk data followed at once by a size": withChunks(`4\r\nabcd0\r\n\r\n`),
    "a chunk extension of 200 bytes": withChunks(`4;${"x".repeat(200)}\r\nabcd\r\n0\r\n\r\n`),
    "CR in a chunk extension": withChunks(`4;a=\rb\r\nabcd\r\n0\r\n\r\n`),
    "LF in a chunk extension": withChunks(`4;a=\nb\r\nabcd\r\n0\r\n\r\n`),
    "NUL in a chunk extension": withChunks(`4;a=\0\r\nabcd\r\n0\r\n\r\n`),
    "a trailer without colon": withChunks(`4\r\nabcd\r\n0\r\nX\r\n\r\n`),
    "a folded trailer": withChunks(`4\r\nabcd\r\n0\r\nX: y\r\n z\r\n\r\n`),
    "a space before a trailer's colon": withChunks(`4\r\nabcd\r\n0\r\nX : y\r\n\r\n`),
    "bare LF behind a trailer": withChunks(`4\r\nabcd\r\n0\r\nX: y\n\r\n`),
    "bare LF ends the trailers": withChunks(`4\r\nabcd\r\n0\r\n\n`),
    "CR and a letter where trailers should end": withChunks(`4\r\nabcd\r\n0\r\n\rX`),
};

async function sendWhole(raw, bytes) {
    raw.send(bytes);
}

async function sendByteByByte(raw, bytes) {
    for (let i = 0; i < bytes.length && !raw.ended; i++) {
        raw.send(bytes.slice(i, i + 1));
        if (raw.socket.writableNeedDrain)
            await Promise.race([once(raw.socket, "drain"), once(raw.socket, "close")]);
    }
}

async function refused(t, server, bytes, statuses, send) {
    const raw = await openRaw(t, server);
    await send(raw, bytes + SMUGGLED);
    const received = (await raw.takeAll()).toString("latin1");
    raw.destroy();
    assert.doesNotMatch(received, /SECRET/, "the smuggled request was answered");
    const lines = received.match(/^HTTP\/1\.\d \d{3}/gm) ?? [];
    assert.equal(
        lines.length,
        1,
        `expected one answer and a close, received ${JSON.stringify(received)}`,
    );
    assert.ok(statuses.includes(Number(lines[0].slice(-3))), `${lines[0]}, expected ${statuses}`);
}

for (const [group, shapes] of Object.entries({ FRAMING, LINES, REQUEST_LINES, CHUNKED })) {
    test(`refused and closed: ${group.toLowerCase().replace("_", " ")}`, async (t) => {
        const server = await startServer(t);
        await server.create("victim", "text/plain", { body: "SECRET" });
        await server.create("target", "text/plain");
        for (const [name, shape] of Object.entries(shapes)) {
            const [bytes, ...others] = [shape].flat();
            for (const send of [sendWhole, sendByteByByte])
                await t.test(`${name} (${send.name})`, (each) =>
                    refused(each, server, bytes, [400, ...others], send),
                );
        }
        assert.equal((await server.stream("GET", "target")).text, "", "something was appended");
        assert.equal(
            (await server.stream("GET", "victim")).text,
            "SECRET",
            "the server still answers",
        );
    });
}

test("trailers are dropped and do not move the end of a message", async (t) => {
    const server = await startServer(t);
    await server.create("target", "text/plain");
    await server.create("victim", "text/plain", { body: "SECRET" });
    for (const trailer of [
        "Content-Length: 100",
        "Transfer-Encoding: chunked",
        "Stream-Closed: true",
        "X: y",
    ]) {
        const raw = await openRaw(t, server);
        raw.send(withChunks(`4\r\nabcd\r\n0\r\n${trailer}\r\n\r\n`) + SMUGGLED);
        const first = await raw.answer("POST");
        if (first.status === 400) {
            assert.deepEqual(await raw.answersUntilClose(), [], trailer);
        } else {
            assert.equal(first.status, 204, trailer);
            assert.equal(
                (await raw.answer()).text,
                "SECRET",
                "the next request begins right behind the trailers",
            );
        }
        raw.destroy();
    }
    assert.equal((await server.stream("HEAD", "target")).headers["stream-closed"], undefined);
});

test("what follows `Connection: close` is not looked at", async (t) => {
    const server = await startServer(t);
    await server.create("target", "text/plain");
    await server.create("victim", "text/plain", { body: "SECRET" });
    for (const bytes of [
        post("Content-Length: 4\r\nConnection: close\r\n"),
        post("Transfer-Encoding: chunked\r\nConnection: close\r\n", CHUNKS),
        get("GET /v1/stream/target HTTP/1.1", "Host: localhost\r\nConnection: close\r\n"),
        get("GET /v1/stream/target HTTP/1.0"),
    ]) {
        const raw = await openRaw(t, server);
        raw.send(bytes + SMUGGLED);
        const answers = await raw.answersUntilClose();
        assert.equal(answers.length, 1);
        assert.ok([200, 204].includes(answers[0].status));
        assert.equal(answers[0].headers.connection, "close");
    }
});

test("a body that a handler does not want is still not taken for a request", async (t) => {
    const server = await startServer(t);
    await server.create("victim", "text/plain", { body: "SECRET" });
    const length = (body) =>
        `Host: localhost\r\nContent-Type: text/plain\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    for (const line of [
        "GET /v1/stream/victim",
        "HEAD /v1/stream/victim",
        "DELETE /v1/stream/nothing",
        "POST /v1/stream/nothing",
        "OPTIONS /v1/stream/victim",
        "PATCH /v1/stream/victim",
        "POST /nowhere",
    ]) {
        const raw = await openRaw(t, server);
        raw.send(`${line} HTTP/1.1\r\n${length(SMUGGLED)}`);
        raw.send("GET /v1/stream/last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        const first = await raw.answer(line.split(" ")[0]);
        assert.notEqual(first, null, line);
        const rest = await raw.answersUntilClose();
        assert.ok(rest.length <= 1, line);
        for (const answer of rest) assert.equal(answer.status, 404, line);
    }
});
