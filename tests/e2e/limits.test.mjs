// SPDX-License-Identifier: Apache-2.0
// Too much, too slow, or plain nonsense: a clear answer or a close, and the server goes on.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { randomness } from "./lib/rand.mjs";
import { openRaw, wire } from "./lib/raw.mjs";
import { startServer } from "./lib/server.mjs";
import { openSse } from "./lib/sse.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const TEXT = { "Content-Type": "text/plain" };
const JSON_TYPE = { "Content-Type": "application/json" };
const SUBSCRIPTION = `{"type":"pull-wake","wake_stream":"w","streams":["x"]}`;
const GET = wire("GET", "x").slice(0, -2); // more headers may follow
const postHead = (headers) => wire("POST", "x", { ...TEXT, ...headers });
const CHUNKED = { "Transfer-Encoding": "chunked" };
const length = (n) => ({ "Content-Length": n });

/** Sends bytes and expects this status as the only answer, then a close. */
async function expectClose(t, server, bytes, status) {
    const raw = await openRaw(t, server);
    raw.send(bytes);
    const answers = await raw.answersUntilClose();
    assert.deepEqual(
        answers.map((answer) => answer.status),
        [status],
    );
    return answers[0];
}

test("heads: 431 and 414 beyond the limits, fine up to them", async (t) => {
    const server = await startServer(t);
    await server.create("x", "text/plain", { body: "fine" });
    const fine = async (bytes) => {
        const raw = await openRaw(t, server);
        raw.send(bytes);
        assert.equal((await raw.answer()).text, "fine");
        raw.destroy();
    };
    const many = (n) => Array.from({ length: n }, (_, i) => `X-${i}: y\r\n`).join("");

    await fine(`${GET}X: ${"y".repeat(7000)}\r\n\r\n`);
    await fine(`${GET}${many(63)}\r\n`);
    await fine(wire("GET", `x?ignored=${"y".repeat(7000)}`));
    await expectClose(t, server, `${GET}X: ${"y".repeat(9000)}\r\n\r\n`, 431);
    await expectClose(t, server, `${GET}${`X: ${"y".repeat(4000)}\r\n`.repeat(5)}\r\n`, 431);
    await expectClose(t, server, `${GET}${many(64)}\r\n`, 431);
    await expectClose(t, server, wire("GET", "y".repeat(9000)), 414);
    await expectClose(t, server, wire("GET", `x?offset=${"y".repeat(9000)}`), 414);
    await fine(`${GET}\r\n`);
});

test("a head without end is cut off", async (t) => {
    const server = await startServer(t);
    for (const [start, piece, statuses] of [
        [GET, "X: y\r\n", [431]],
        [`${GET}X: `, "y", [431]],
        [`${GET}`, "X", [431]],
        ["GET /", "y", [414, 431]],
        ["", "G", [400, 414, 431]],
        ["", "\r\n", [400, 431]],
    ]) {
        const raw = await openRaw(t, server);
        raw.send(start);
        for (let sent = 0; sent < 64 && !raw.ended; sent++) {
            raw.send(piece.repeat(1024 / piece.length));
            await new Promise(setImmediate);
        }
        const [answer, ...others] = await raw.answersUntilClose();
        assert.ok(
            statuses.includes(answer?.status),
            `${answer?.status} for ${JSON.stringify(start + piece)}...`,
        );
        assert.deepEqual(others, []);
        raw.destroy();
    }
});

test("bodies: 413 beyond --max-append, without waiting for the rest", async (t) => {
    const LIMIT = 64 * 1024;
    const server = await startServer(t, ["--max-append", "64k"]);
    await server.create("x", "text/plain");
    await server.create("json");
    const exact = "e".repeat(LIMIT);
    await server.append("x", exact, "text/plain");

    await expectClose(t, server, postHead(length(LIMIT + 1)), 413);
    await expectClose(t, server, postHead(length(9999999999999)), 413);
    await expectClose(t, server, postHead({ ...length(LIMIT + 1), Expect: "100-continue" }), 413);
    await expectClose(t, server, `${postHead(CHUNKED)}20000\r\n${exact}e`, 413);
    const half = `8001\r\n${"h".repeat(0x8001)}\r\n`;
    await expectClose(t, server, postHead(CHUNKED) + half + half, 413);
    const put = await server.stream("PUT", "new", {
        headers: { "content-type": "text/plain" },
        body: `${exact}e`,
    });
    assert.equal(put.status, 413);
    assert.equal((await server.stream("HEAD", "new")).status, 404);

    assert.equal((await server.stream("GET", "x")).text, exact, "nothing of the refused is stored");
});

test("a refused body that keeps coming does not keep the connection", async (t) => {
    const server = await startServer(t, ["--max-append", "64k"]);
    await server.create("x", "text/plain");
    const raw = await openRaw(t, server);
    raw.send(postHead(length(100000000)));
    while (!raw.ended && !raw.socket.destroyed) {
        raw.send(Buffer.alloc(256 * 1024, "z"));
        await delay(5);
    }
    assert.match(raw.pending.toString("latin1"), /^HTTP\/1\.1 413 /);
});

test("503: more bytes of bodies under way than --max-inflight-bytes", async (t) => {
    const server = await startServer(t, ["--max-append", "64k", "--max-inflight-bytes", "100k"]);
    await server.create("x", "text/plain");
    const body = "b".repeat(60_000);
    const upload = async () => {
        const raw = await openRaw(t, server);
        raw.send(postHead(length(body.length)) + body.slice(1));
        return { raw, answer: raw.answer("POST") };
    };
    // Both but for their last byte do not fit: one has to go, and then the other has room.
    const both = [await upload(), await upload()];
    const first = await Promise.race(both.map(({ answer }) => answer));
    assert.equal(first.status, 503);
    assert.match(first.headers["retry-after"] ?? "", /^\d+$/);
    for (const { raw } of both) raw.send("b");
    const answers = await Promise.all(both.map(({ answer }) => answer));
    assert.deepEqual(answers.map((answer) => answer.status).sort(), [204, 503]);
    for (let i = 0; i < 5; i++) await server.append("x", body, "text/plain");
    assert.equal((await server.readAll("x")).length, 6 * body.length);
});

test("408: a head that does not end in time", async (t) => {
    const server = await startServer(t, ["--head-timeout", "300ms"]);
    await expectClose(t, server, "GET /v1/stream/x HT", 408);
    await expectClose(t, server, `${GET}X-Slow: `, 408);
    // Dripping does not help.
    const raw = await openRaw(t, server);
    raw.send(GET);
    while (!raw.ended) {
        raw.send("X: y\r\n");
        await delay(20);
    }
    assert.match(raw.pending.toString("latin1"), /^HTTP\/1\.1 (408|431) /);
});

test("408: a body that does not come in time", async (t) => {
    const server = await startServer(t, ["--body-timeout", "300ms"]);
    await server.create("x", "text/plain");
    await expectClose(t, server, `${postHead(length(10))}abc`, 408);
    await expectClose(t, server, `${postHead(CHUNKED)}3\r\nab`, 408);
    await expectClose(t, server, postHead(length(10)), 408);
    assert.equal((await server.stream("GET", "x")).text, "");
});

test("time limits of requests do not end live readers", async (t) => {
    const server = await startServer(t, [
        "--head-timeout",
        "200ms",
        "--body-timeout",
        "200ms",
        "--idle-timeout",
        "200ms",
        "--heartbeat",
        "100ms",
    ]);
    await server.create("x", "text/plain");
    const reader = await openSse(t, server, "x?offset=-1&live=sse");
    for (let beats = 0; beats < 10;) {
        const next = await reader.next();
        assert.notEqual(next, null, "the reader was ended");
        if (next.comment !== undefined) beats++;
    }
    await server.append("x", "still here", "text/plain");
    assert.equal((await reader.event("data")).data, "still here");
});

test("an idle connection is closed without a word", async (t) => {
    const server = await startServer(t, ["--idle-timeout", "200ms", "--head-timeout", "200ms"]);
    const raw = await openRaw(t, server);
    raw.send(`${GET}\r\n`);
    assert.equal((await raw.answer()).status, 404);
    const rest = (await raw.takeAll()).toString("latin1");
    assert.ok(rest === "" || rest.startsWith("HTTP/1.1 408 "), rest);
});

test("503: more connections than --max-connections", async (t) => {
    const server = await startServer(t, ["--max-connections", "4"]);
    const tryOne = async () => {
        const raw = await openRaw(t, server);
        raw.send(`${GET}\r\n`);
        const answer = await raw.answer();
        if (answer?.status === 404) return { raw };
        raw.destroy();
        return { refusal: answer };
    };
    const held = [];
    while (held.length < 4) {
        // The connection that waited for the server's start may not be forgotten yet.
        const { raw } = await until(async () => {
            const result = await tryOne();
            return result.raw && result;
        }, "a connection");
        held.push(raw);
    }
    const { refusal } = await tryOne();
    assert.equal(refusal?.status, 503);
    assert.match(refusal.headers["retry-after"] ?? "", /^\d+$/);

    for (const raw of held) {
        raw.send(`${GET}\r\n`);
        assert.equal((await raw.answer()).status, 404, "those inside are not disturbed");
    }
    held[0].destroy();
    await until(async () => (await tryOne()).raw, "the free place");
});

test("offsets with NULs, and other odd queries, are 400", async (t) => {
    const server = await startServer(t);
    const tail = (await server.create("x", "text/plain", { body: "abc" })).headers[
        "stream-next-offset"
    ];
    const odd = [
        "-1%00",
        "now%00",
        "%00",
        "%00-1",
        `${tail}%00`,
        `${tail}%00x`,
        `${tail}%0a`,
        `${tail}%20`,
        "",
        "-2",
        "NOW",
        "%2d1x",
        "-1%",
        "-1%0",
        "-1%zz",
        "0_0",
        `${tail}0`,
        tail.slice(1),
        "%ff%fe",
        "1,2",
        "../x",
    ];
    for (const offset of odd)
        for (const live of ["", "&live=long-poll", "&live=sse"])
            assert.equal(
                (await server.stream("GET", `x?offset=${offset}${live}`)).status,
                400,
                `offset=${offset}${live}`,
            );
    for (const query of [
        "?offset=-1&offset=-1",
        `?offset=-1&%6fffset=${tail}`,
        "?live=sse",
        "?live=long-poll",
    ])
        assert.equal((await server.stream("GET", `x${query}`)).status, 400, query);
    assert.equal((await server.stream("GET", "x?offset=%2d1")).text, "abc", "an encoded -1 is -1");
    assert.equal((await server.stream("GET", "x")).text, "abc");
});

test("odd names never upset the server", async (t) => {
    const server = await startServer(t);
    const put = (name) => server.stream("PUT", name, { headers: { "content-type": "text/plain" } });
    assert.equal((await put("n".repeat(480))).status, 201);
    for (const name of ["n".repeat(2000), "a%00b", "%00", "bad%", "bad%zz", "bad%4"]) {
        const { status } = await put(name);
        assert.ok(status >= 400 && status < 500, `${status} for ${name.slice(0, 20)}`);
    }
    for (const target of [
        "/v1/stream",
        "/v1/stream/",
        "/v1/stream//",
        "/v1/stream/../../etc/passwd",
        "/v1/stream/%2e%2e/x",
        "/v1/stream/__ds",
        "/v1/stream/__ds/",
        "/v1/stream/__ds/nothing",
        "/",
        "//",
        "/?",
        "/v1/stream/?%",
    ]) {
        for (const method of ["GET", "HEAD", "POST", "DELETE", "OPTIONS"]) {
            const { status } = await server.request(method, target);
            assert.ok(status < 500, `${method} ${target}: ${status}`);
        }
    }
    assert.equal((await server.stream("HEAD", "n".repeat(480))).status, 200);
});

test("mangled requests: proper answers or a close, never a crash", async (t) => {
    const COUNT = 600;
    const random = randomness(t);
    const server = await startServer(t);
    await server.create("x", "text/plain", { body: "x" });
    await server.create("json", "application/json");
    const samples = [
        `${GET}\r\n`,
        wire("GET", "x?offset=-1", { "If-None-Match": `"a"` }),
        wire("HEAD", "x"),
        wire("POST", "x", TEXT, "hello"),
        wire("POST", "x", TEXT, ["hello", "you"]),
        wire("POST", "json", JSON_TYPE, `[1,{"a":[2]},3]`),
        wire("PUT", "new", { ...TEXT, "Stream-TTL": 60 }, ""),
        wire("PUT", "__ds/subscriptions/s", JSON_TYPE, SUBSCRIPTION),
    ].map((text) => Buffer.from(text, "latin1"));
    const mangle = () => {
        let bytes = Buffer.from(samples[random.below(samples.length)]);
        for (let edits = 1 + random.below(4); edits > 0; edits--) {
            const at = random.below(bytes.length);
            const kind = random.below(5);
            if (kind === 0) bytes[at] ^= 1 << random.below(8);
            else if (kind === 1) bytes[at] = "\r\n\0 :;,\t%0"[random.below(10)].charCodeAt(0);
            else if (kind === 2)
                bytes = Buffer.concat([
                    bytes.subarray(0, at),
                    bytes.subarray(at + 1 + random.below(8)),
                ]);
            else if (kind === 3)
                bytes = Buffer.concat([
                    bytes.subarray(0, at),
                    bytes.subarray(random.below(at + 1)),
                ]);
            else
                bytes = Buffer.concat([
                    bytes.subarray(0, at),
                    Buffer.from(
                        Array.from({ length: 1 + random.below(40) }, () => random.below(256)),
                    ),
                    bytes.subarray(at),
                ]);
            if (bytes.length === 0) bytes = Buffer.from("\r");
        }
        return bytes;
    };
    const one = async () => {
        const bytes = mangle();
        const raw = await openRaw(t, server);
        const at = random.below(bytes.length);
        raw.send(bytes.subarray(0, at));
        await new Promise(setImmediate);
        raw.send(bytes.subarray(at));
        raw.finish();
        const received = (await raw.takeAll()).toString("latin1");
        assert.match(
            received,
            /^(HTTP\/1\.1 [1-5]\d\d |$)/,
            `to ${JSON.stringify(bytes.toString("latin1"))}`,
        );
        assert.doesNotMatch(
            received,
            /^HTTP\/1\.1 500 /m,
            `to ${JSON.stringify(bytes.toString("latin1"))}`,
        );
        raw.destroy();
    };
    const worker = async (n) => {
        for (let i = 0; i < n; i++) await one();
    };
    await Promise.all(Array.from({ length: 10 }, () => worker(COUNT / 10)));
    assert.ok(server.running, server.stderr);
    assert.match((await server.stream("GET", "x")).text, /^x/);
});

test("garbage: a close, and the server still answers", async (t) => {
    const random = randomness(t);
    const server = await startServer(t);
    for (const length of [1, 10, 100, 1000, 20_000, 200_000]) {
        const raw = await openRaw(t, server);
        raw.send(Buffer.from(Array.from({ length }, () => random.below(256))));
        raw.finish();
        const received = (await raw.takeAll()).toString("latin1");
        assert.match(received, /^(HTTP\/1\.1 4\d\d |$)/);
    }
    assert.equal((await server.stream("GET", "x")).status, 404);
});

test("readers and writers that vanish leave nothing behind", async (t) => {
    const server = await startServer(t);
    await server.create("x", "text/plain", { body: "x" });
    for (let i = 0; i < 50; i++) {
        const raw = await openRaw(t, server);
        raw.send(
            [
                wire("GET", "x?offset=-1&live=sse"),
                wire("GET", "x?offset=now&live=long-poll"),
                `${postHead(length(100))}partial`,
                `${postHead(CHUNKED)}5\r\nhel`,
                "GET /v1/stream/x HT",
            ][i % 5],
        );
        await new Promise(setImmediate);
        if (i % 2) raw.socket.resetAndDestroy();
        else raw.destroy();
    }
    assert.equal((await server.stream("GET", "x")).text, "x");
});

test("events of one append: 413 beyond 1,048,576, and others are served meanwhile", async (t) => {
    const server = await startServer(t);
    await server.create("x", "application/json");
    const ones = (n) => `[${"1,".repeat(n - 1)}1]`;
    const post = (body) => server.stream("POST", "x", { headers: JSON_TYPE, body });
    const tooMany = await post(ones(1024 * 1024 + 1));
    assert.equal(tooMany.status, 413);
    assert.equal(tooMany.json().error.code, "TOO_MANY_EVENTS");
    const [most] = await Promise.all([post(ones(1024 * 1024)), post("2")]);
    assert.equal(most.status, 204);
    const head = await server.stream("HEAD", "x");
    assert.match(head.headers["stream-next-offset"], new RegExp(`_0*${2 * 1024 * 1024 + 2}$`));
});

/** Forks one of the other until it is refused; how many there are then, and the answer. */
async function forkUntilRefused(server, most) {
    await server.create("0", "text/plain", { body: "x" });
    for (let i = 1; i <= most; i++) {
        const headers = { ...TEXT, "Stream-Forked-From": `/v1/stream/${i - 1}` };
        const answer = await server.stream("PUT", String(i), { headers, body: "x" });
        if (answer.status !== 201) return [i - 1, answer];
    }
    return [most, null];
}

test("forks of forks: 422 beyond max-fork-depth, and what is there stays readable", async (t) => {
    const data = await tempFolder(t);
    for (const [flags, options, depth] of [
        [[], {}, 64],
        [["--max-fork-depth", "5"], { data }, 5],
    ]) {
        const server = await startServer(t, flags, options);
        const [made, answer] = await forkUntilRefused(server, 100);
        assert.equal(made, depth);
        assert.equal(answer.status, 422);
        assert.equal(answer.json().error.code, "FORK_DEPTH");
        assert.equal(await server.readAll(String(depth)), "x".repeat(depth + 1));
        const headers = { ...TEXT, "Stream-Forked-From": "/v1/stream/0" };
        assert.equal((await server.stream("PUT", "beside", { headers })).status, 201);
    }
});
