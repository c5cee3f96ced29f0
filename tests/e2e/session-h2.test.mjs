// SPDX-License-Identifier: Apache-2.0
// What browsers could not do over HTTP/1.1: more than six event streams at once, on one connection.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { toBinary } from "@bufbuild/protobuf";
import { Client } from "undici";
import { defer } from "./lib/defer.mjs";
import { startProxy } from "./lib/proxy.mjs";
import { H2 } from "./lib/h2.mjs";
import { startServer } from "./lib/server.mjs";
import { startSessions } from "./lib/session-server.mjs";
import { TIDEMARK } from "./lib/session-schema.mjs";
import { Session } from "./lib/session.mjs";
import { envelope, envelopes, hex, serverChunks } from "./lib/session-wire.mjs";
import { SseParser } from "./lib/sse.mjs";
import { Authority } from "./lib/tls.mjs";
import { until, within } from "./lib/wait.mjs";

const READERS = 24;
const TEXT = { "content-type": "text/plain" };

/** A live reader by undici: `data` so far, `done` at its end. */
async function follow(client, name) {
    const path = `/v1/stream/${name}?offset=-1&live=sse`;
    const answer = await within(client.request({ method: "GET", path }), `the head of ${name}`);
    assert.equal(answer.statusCode, 200);
    assert.match(answer.headers["content-type"], /^text\/event-stream/);
    const reader = { data: "" };
    const parser = new SseParser();
    const decoder = new TextDecoder();
    reader.done = (async () => {
        for await (const bytes of answer.body)
            for (const event of parser.feed(decoder.decode(bytes, { stream: true })))
                if (event.event === "data") reader.data += event.data;
    })();
    reader.done.catch(() => {});
    return reader;
}

test("undici over TLS: many live event streams on one connection", async (t) => {
    const tls = (await Authority.create(t)).issue("server");
    const server = await startServer(t, [], { tls });
    const proxy = await startProxy(t, server, () => null); // counts connections
    const origin = proxy.base.replace("http:", "https:");
    const client = new Client(origin, { allowH2: true, pipelining: 100, connect: { ca: tls.ca } });
    defer(t, () => client.destroy());
    // undici keeps requests that cannot be repeated until it is alone on its connection.
    const request = async (method, path, body, headers = TEXT) => {
        const asked = client.request({ method, path, headers, body, idempotent: true });
        const answer = await within(asked, `the answer to ${method} ${path}`);
        await answer.body.dump();
        return answer.statusCode;
    };
    const names = Array.from({ length: READERS }, (_, i) => `reader/${i}`);
    for (const name of names) assert.equal(await request("PUT", `/v1/stream/${name}`), 201);
    const readers = [];
    for (const name of names) readers.push(await follow(client, name));
    // All are open; now each gets something, in turns, and the requests get through beside them.
    for (const word of ["one ", "two ", "three "])
        for (const name of names)
            assert.equal(await request("POST", `/v1/stream/${name}`, `${word}${name} `), 204);
    for (const [i, reader] of readers.entries()) {
        const expected = ["one ", "two ", "three "].map((word) => `${word}${names[i]} `).join("");
        await until(() => reader.data.length >= expected.length, `all of ${names[i]}`);
        assert.equal(reader.data, expected);
    }
    for (const name of names) {
        const closing = { "stream-closed": "true" };
        assert.equal(await request("POST", `/v1/stream/${name}`, undefined, closing), 204);
    }
    for (const reader of readers) await within(reader.done, "a reader's end");
    assert.equal(proxy.connections, 1, "one connection for all of it");
});

// To Node.js a RST_STREAM, of whatever code, makes an end out of order of what it has not read yet,
// and a client that waits for the end of a call before it ends its own part is nothing unusual.
test("what has come of a call can be read after its end, with the request still open", async (t) => {
    const server = await startSessions(t);
    const h2 = new H2(t, server);
    const session = new Session(TIDEMARK);
    const headers = { "content-type": "application/connect+proto", ...session.headers() };
    const request = { ":method": "POST", ":path": TIDEMARK.path("bidi"), ...headers };
    const stream = h2.session.request(request, { endStream: false });
    let aborted = false;
    stream.on("aborted", () => (aborted = true));
    stream.on("error", () => {});
    const text = "x".repeat(40_000); // less than a window: all of it is sent, read or not
    stream.write(envelope(toBinary(TIDEMARK.Request, session.chunk(0, text))));
    stream.write(envelope(hex("1a00")));
    await delay(500); // nothing is read meanwhile; the longer, the surer all has come
    const pieces = [];
    stream.on("data", (piece) => pieces.push(piece));
    const ended = new Promise((resolve) => stream.once("end", resolve).once("close", resolve));
    await within(ended, "the end of what is read late");
    assert.equal(aborted, false, "the server cut off what it had ended well");
    const list = envelopes(Buffer.concat(pieces));
    assert.equal(list.at(-1).message.toString(), "{}");
    assert.equal(serverChunks(list).length, 1);
    stream.end();
});
