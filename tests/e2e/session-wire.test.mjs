// SPDX-License-Identifier: Apache-2.0
// Sessions byte by byte: curl sends and receives envelopes as they stand; nghttp and h2load.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { gunzipSync, gzipSync } from "node:zlib";
import { toBinary } from "@bufbuild/protobuf";
import { H2 } from "./lib/h2.mjs";
import { curl, run, Running } from "./lib/run.mjs";
import { AISERVER, SERVICES, TIDEMARK, varint } from "./lib/session-schema.mjs";
import { Peer, Session } from "./lib/session.mjs";
import { startSessions } from "./lib/session-server.mjs";
import { envelope, envelopes, hex, serverChunks } from "./lib/session-wire.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const CONNECT = { "content-type": "application/connect+proto", "connect-protocol-version": "1" };
const ABORT = hex("12 00");
const CLOSE = hex("1a 00");
const EMPTY_CHUNK_0 = hex("0a 00 28 00");
const GOOD_END = hex("02 00000002 7b7d");

const ack = (seqno) => Buffer.concat([hex("20"), varint(seqno)]);
const flagsOf = (headers) =>
    Object.entries(headers).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);

/** What curl gets: { status, type, version, bytes }. */
async function exchange(t, url, headers, body, flags = ["--http2-prior-knowledge"]) {
    const file = join(await tempFolder(t), "out");
    const input = `${file}.in`;
    await writeFile(input, body);
    const form = "%{http_code} %{http_version} %{content_type}";
    const args = [...flags, ...flagsOf(headers), "--data-binary", `@${input}`];
    const said = await curl(t, [...args, "-o", file, "-w", form, url]);
    const [status, version, type] = said.split(" ");
    const bytes = await readFile(file).catch(() => Buffer.alloc(0));
    return { status: Number(status), version, type, bytes };
}

const bidi = (t, server, session, messages, more = {}) =>
    exchange(
        t,
        server.base + session.service.path("bidi"),
        { ...CONNECT, ...session.headers(), ...more },
        Buffer.concat(messages),
    );

/** Is the message among them, as it stands? */
const contains = (list, message) => list.some((e) => e.flags === 0 && e.message.equals(message));

/** The error of an end-of-stream message, which has to be the last. */
function errorOf(list) {
    assert.equal(list.at(-1)?.flags, 2, "an end-of-stream message");
    return JSON.parse(list.at(-1).message.toString()).error;
}

/** Adds the field of a MAC as the server has to make it. */
function signed(session, before, covered) {
    const mac = session.sign(before, covered);
    const tag = varint((session.service.macField << 3) | 2);
    return { mac, chunk: Buffer.concat([covered, tag, Buffer.from([32]), mac]) };
}

/** Every event is, to the byte, what the facts say, with a MAC behind it. */
async function vectors(t, server) {
    const session = new Session(AISERVER);
    const chunk = (text, seqno) => toBinary(AISERVER.Request, session.chunk(seqno, text));
    const sent = [chunk("Hello", 0), chunk("Grüße", 1), EMPTY_CHUNK_0, chunk("x", 300), CLOSE];
    const answer = await bidi(
        t,
        server,
        session,
        sent.map((message) => envelope(message)),
    );
    assert.equal(answer.status, 200);
    assert.equal(answer.version, "2");
    assert.equal(answer.type, "application/connect+proto");
    const list = envelopes(answer.bytes);
    assert.equal(list[0].flags, 0);
    assert.equal(list[0].message[0], 0x1a, "a welcome comes first");
    for (const expected of [hex("20 00"), hex("20 01"), hex("20 ac 02")])
        assert.ok(contains(list, expected), `an ack ${expected.toString("hex")}`);
    assert.ok(answer.bytes.subarray(-GOOD_END.length).equals(GOOD_END));
    let before = Buffer.alloc(32);
    const covered = [
        hex("12070a0548656c6c6f 3a0131"),
        Buffer.concat([hex("12090a07"), Buffer.from("Grüße"), hex("3a0132")]),
        hex("12030a0178 3a0133"),
    ];
    const expected = covered.map((bytes) => {
        const { mac, chunk } = signed(session, before, bytes);
        before = mac;
        return chunk.toString("hex");
    });
    assert.deepEqual(
        serverChunks(list).map((bytes) => bytes.toString("hex")),
        expected,
    );
}

async function ownVectors(t, server) {
    const session = new Session(TIDEMARK);
    const sent = [hex("0a 03 00ff80 28 00"), hex("0a 00 28 01"), CLOSE];
    const answer = await bidi(
        t,
        server,
        session,
        sent.map((message) => envelope(message)),
    );
    const list = envelopes(answer.bytes);
    const first = signed(session, Buffer.alloc(32), hex("0a0300ff80 3a0131"));
    const chunks = serverChunks(list);
    assert.equal(chunks.length, 2);
    assert.equal(chunks[0].toString("hex"), first.chunk.toString("hex"));
    // An empty payload may be left out or not; the MAC is over what is there.
    const { covered, mac } = TIDEMARK.signedBytes(chunks[1]);
    assert.ok(["3a0132", "0a003a0132"].includes(covered.toString("hex")));
    assert.ok(mac.equals(session.sign(first.mac, covered)));
    assert.ok(answer.bytes.subarray(-GOOD_END.length).equals(GOOD_END));
}

async function abortVector(t, server) {
    const session = new Session(AISERVER);
    const answer = await bidi(t, server, session, [envelope(EMPTY_CHUNK_0), envelope(ABORT)]);
    const list = envelopes(answer.bytes);
    assert.ok(contains(list, ack(0)));
    assert.ok(answer.bytes.subarray(-GOOD_END.length).equals(GOOD_END));
}

async function compressed(t, server) {
    const session = new Session(TIDEMARK);
    const chunk = toBinary(TIDEMARK.Request, session.chunk(0, "squeezed ".repeat(500)));
    const messages = [envelope(gzipSync(chunk), 1), envelope(gzipSync(CLOSE), 1)];
    const more = { "connect-content-encoding": "gzip", "connect-accept-encoding": "gzip" };
    const answer = await bidi(t, server, session, messages, more);
    const list = envelopes(answer.bytes).map(({ flags, message }) => ({
        flags: flags & ~1,
        message: flags & 1 ? gunzipSync(message) : message,
    }));
    assert.deepEqual(JSON.parse(list.at(-1).message.toString()), {});
    const [event] = serverChunks(list);
    assert.ok(event.includes(Buffer.from("squeezed squeezed")));
}

/** A message that unpacks to much more than a message may be. */
async function bomb(t, server) {
    const before = server.rss();
    const session = new Session(TIDEMARK);
    const bytes = envelope(gzipSync(Buffer.alloc(32 << 20)), 1);
    const more = { "connect-content-encoding": "gzip" };
    const answer = await bidi(t, server, session, [bytes], more);
    assert.equal(errorOf(envelopes(answer.bytes)).code, "resource_exhausted");
    assert.ok(server.rss() - before < 32 << 20, "not all of it was unpacked");
}

const NONSENSE = {
    "no protobuf": envelope(hex("ff ff ff")),
    "a message that says nothing": envelope(Buffer.alloc(0)),
    "a seqno and no chunk": envelope(hex("28 00")),
    "a field that ends early": envelope(hex("0a 7f 28 00")),
    "an unknown flag": envelope(EMPTY_CHUNK_0, 0x40),
    "gzip that is none": envelope(EMPTY_CHUNK_0, 1),
    "half an envelope": envelope(EMPTY_CHUNK_0).subarray(0, 7),
    "a length beyond all bounds": hex("00 ffffffff 0a"),
};

async function nonsense(t, server, service) {
    for (const [what, bytes] of Object.entries(NONSENSE)) {
        const session = new Session(service);
        const more = { "connect-content-encoding": "gzip" };
        const answer = await bidi(t, server, session, [bytes], more);
        assert.equal(answer.status, 200, what);
        const list = envelopes(answer.bytes);
        const { code, message } = errorOf(list);
        const codes = ["invalid_argument", "internal", "resource_exhausted"];
        assert.ok(codes.includes(code), `${what}: ${code} ${message}`);
        assert.deepEqual(serverChunks(list), [], what);
    }
}

async function noCalls(t, server) {
    const session = new Session(TIDEMARK);
    const url = server.base + TIDEMARK.path("bidi");
    const headers = { ...CONNECT, ...session.headers() };
    const body = envelope(CLOSE);
    const old = await exchange(t, url, headers, body, ["--http1.1"]);
    assert.equal(old.status, 505, "both ways at once needs HTTP/2");
    // Not by curl 7.88: an answer that comes before its body was sent is an error to it.
    const h2 = new H2(t, server);
    const ask = (method, path, more) =>
        h2.request(method, path, {
            headers: { ...headers, ...more },
            ...(method === "POST" && { body }),
        });
    const path = TIDEMARK.path("bidi");
    assert.equal((await ask("POST", path, { "content-type": "text/plain" })).status, 415);
    assert.equal((await ask("GET", path)).status, 405);
    assert.ok((await ask("POST", "/tidemark.v1.SessionService/Nothing")).status >= 400);
}

/** The downlink of a request id, by a curl of its own over HTTP/1.1. */
async function openDownlink(t, server, session, requestId) {
    const folder = await tempFolder(t);
    const body = Buffer.concat([Buffer.from([0x0a, requestId.length]), Buffer.from(requestId)]);
    await writeFile(join(folder, "in"), envelope(body));
    const file = join(folder, "out");
    const headers = flagsOf({ ...CONNECT, ...session.headers() });
    const data = ["--data-binary", `@${join(folder, "in")}`];
    const url = server.base + session.service.path("sse");
    const child = new Running(t, "curl", [
        "-sSN",
        "--http1.1",
        ...headers,
        ...data,
        "-o",
        file,
        url,
    ]);
    const bytes = () => readFile(file).catch(() => Buffer.alloc(0));
    await until(async () => (await bytes()).length > 5, "a welcome on the downlink");
    return { child, bytes };
}

async function fallbackVectors(t, server) {
    const session = new Session(AISERVER);
    const { child, bytes } = await openDownlink(t, server, session, "rid");
    const url = server.base + AISERVER.path("append");
    const headers = { "content-type": "application/proto", ...session.headers() };
    const request = hex("0a083061303032383030 12050a03726964");
    const closing = hex("0a0431613030 12050a03726964 1801");
    for (const body of [request, request, closing]) {
        const answer = await exchange(t, url, headers, body, ["--http1.1"]);
        assert.equal(answer.status, 200, answer.bytes.toString());
        assert.equal(answer.type, "application/proto");
        assert.equal(answer.bytes.length, 0);
    }
    assert.equal((await child.end()).code, 0);
    const list = envelopes(await bytes());
    assert.equal(list[0].message[0], 0x1a);
    assert.equal(list.filter((e) => e.message.equals(hex("20 00"))).length, 1);
    const [event] = serverChunks(list);
    assert.ok(event.includes(hex("3a0131")));
    assert.ok(envelope(list.at(-1).message, list.at(-1).flags).equals(GOOD_END));
}

async function appendErrors(t, server) {
    const url = server.base + TIDEMARK.path("append");
    const headers = { "content-type": "application/proto", ...new Session(TIDEMARK).headers() };
    for (const body of [hex("ff"), hex("0a027a7a 12050a03726964"), hex("0a083061303032383030")]) {
        const answer = await exchange(t, url, headers, body, ["--http1.1"]);
        assert.equal(answer.status, 400, body.toString("hex"));
        assert.equal(answer.type, "application/json");
        const { code, message } = JSON.parse(answer.bytes.toString());
        assert.equal(code, "invalid_argument");
        assert.notEqual(message, "");
    }
}

async function nghttp(t, server) {
    const folder = await tempFolder(t);
    const body = join(folder, "body");
    const session = new Session(TIDEMARK);
    const chunk = toBinary(TIDEMARK.Request, session.chunk(0, "said to nghttp"));
    await writeFile(body, Buffer.concat([envelope(chunk), envelope(CLOSE)]));
    const headers = flagsOf({ ...CONNECT, ...session.headers() });
    const url = server.base + TIDEMARK.path("bidi");
    const said = await run(t, "nghttp", ["-v", ...headers, "-d", body, url]);
    assert.equal(said.code, 0);
    assert.match(said.stdout, /:status: 200/);
    assert.match(said.stdout, /said to nghttp/);
    assert.match(said.stdout, /\{\}/);
}

async function h2load(t, server) {
    const folder = await tempFolder(t);
    const body = join(folder, "body");
    const session = new Session(TIDEMARK);
    const load = async (kind, headers, bytes, count) => {
        await writeFile(body, bytes);
        const flags = ["-n", String(count), "-c", "4", "-m", "10", "-d", body, ...flagsOf(headers)];
        const said = await run(t, "h2load", [...flags, server.base + TIDEMARK.path(kind)]);
        const all = `${count} succeeded, 0 failed, 0 errored, 0 timeout`;
        assert.ok(said.stdout.includes(all), said.stdout);
        assert.ok(said.stdout.includes(`${count} 2xx`), said.stdout);
    };
    // One append, a thousand times: it has effect once, and is answered each time.
    const requestId = randomUUID();
    const { child, bytes } = await openDownlink(t, server, session, requestId);
    const append = Buffer.concat([
        hex("1226 0a24"),
        Buffer.from(requestId),
        hex("2204"),
        EMPTY_CHUNK_0,
    ]);
    const unary = { "content-type": "application/proto", ...session.headers() };
    await load("append", unary, append, 1000);
    // And streams that take one session from each other.
    const other = new Session(TIDEMARK);
    const chunk = toBinary(TIDEMARK.Request, other.chunk(0, "one of many"));
    const stream = Buffer.concat([envelope(chunk), envelope(CLOSE)]);
    await load("bidi", { ...CONNECT, ...other.headers() }, stream, 300);
    // Not by curl 7.88, which waits for ever when the answer ends before it has sent its body.
    const call = new Peer(t, server).open(other).close();
    await call.endedWell();
    assert.deepEqual(call.texts, ["one of many"]);
    const closing = Buffer.concat([
        hex("1226 0a24"),
        Buffer.from(requestId),
        hex("1801 2202 1a00"),
    ]);
    const last = await exchange(t, server.base + TIDEMARK.path("append"), unary, closing);
    assert.equal(last.status, 200);
    assert.equal((await child.end()).code, 0);
    assert.equal(serverChunks(envelopes(await bytes())).length, 1);
}

test("bytes", { concurrency: 2 }, async (t) => {
    const server = await startSessions(t);
    const checks = {
        "aiserver.v1: the vectors, both ways": vectors,
        "tidemark.v1: the same": ownVectors,
        abort: abortVector,
        "compressed messages": compressed,
        "a bomb": bomb,
        "what is no call": noCalls,
        "a downlink and appends over HTTP/1.1": fallbackVectors,
        "appends that are none": appendErrors,
    };
    for (const service of SERVICES)
        checks[`${service.name}: nonsense`] = (sub, s) => nonsense(sub, s, service);
    const has = (program) => spawnSync(program, ["--version"]).status === 0;
    if (has("nghttp")) checks.nghttp = nghttp;
    if (has("h2load")) checks.h2load = h2load;
    else t.diagnostic("h2load is not installed (Debian: nghttp2-client)");
    await Promise.all(
        Object.entries(checks).map(([what, check]) => t.test(what, (sub) => check(sub, server))),
    );
    // After all of it somebody who means well is served.
    const h2 = new H2(t, server);
    assert.equal(
        (await h2.stream("PUT", "x", { headers: { "content-type": "text/plain" } })).status,
        201,
    );
});
