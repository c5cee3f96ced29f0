// SPDX-License-Identifier: Apache-2.0
// What a person types first: curl, over TCP and over a Unix socket.
import assert from "node:assert/strict";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { openRaw, wire } from "./lib/raw.mjs";
import { curl, Running } from "./lib/run.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const TEXT = ["-H", "Content-Type: text/plain"];
const NEXT = ["-o", "-", "-w", "\n%header{stream-next-offset}"];

/** Body and Stream-Next-Offset of an answer that `curl ...NEXT` printed. */
function split(printed) {
    const at = printed.lastIndexOf("\n");
    return { body: printed.slice(0, at), next: printed.slice(at + 1) };
}

test("the two-minute start: put, post, get, wait, follow, resume", async (t) => {
    const server = await startServer(t);
    const url = server.url("hello");
    assert.match(await curl(t, ["-i", "-X", "PUT", url, ...TEXT]), /^HTTP\/1\.1 201 /);
    assert.match(
        await curl(t, ["-i", "-X", "POST", url, ...TEXT, "-d", "one "]),
        /^HTTP\/1\.1 204 /,
    );
    const { body, next } = split(await curl(t, [url, ...NEXT]));
    assert.equal(body, "one ");
    assert.match(next, /^\d{16}_\d{16}$/);

    const poll = new Running(t, "curl", ["-sS", ...NEXT, `${url}?offset=${next}&live=long-poll`]);
    await curl(t, ["-X", "POST", url, ...TEXT, "-d", "two "]);
    const polled = split((await poll.end()).stdout);
    assert.equal(polled.body, "two ");

    const follower = new Running(t, "curl", ["-sSN", `${url}?offset=-1&live=sse`]);
    await follower.output(/^data:one ([^]*data:)?two $/m); // one event or one per append
    await curl(t, ["-X", "POST", url, ...TEXT, "-d", "three "]);
    await follower.output(/^data:three $/m);
    follower.child.kill("SIGKILL"); // the reader drops ...

    await curl(t, ["-X", "POST", url, ...TEXT, "-d", "four"]);
    assert.equal(await curl(t, [`${url}?offset=${polled.next}`]), "three four"); // ... and goes on
    const again = new Running(t, "curl", ["-sSN", `${url}?offset=${polled.next}&live=sse`]);
    await again.output(/^data:three ([^]*data:)?four$/m);
    await curl(t, ["-X", "POST", url, "-H", "Stream-Closed: true"]);
    const { code, stdout } = await again.end();
    assert.equal(code, 0, "a closed stream ends the reader cleanly");
    assert.match(stdout, /"streamClosed":true/);
});

test("HEAD and OPTIONS", async (t) => {
    const server = await startServer(t);
    await server.create("meta", "text/plain", { body: "abc" });
    const head = await curl(t, ["-I", server.url("meta")]);
    assert.match(head, /^HTTP\/1\.1 200 /);
    assert.match(head, /^content-type: text\/plain\r$/im);
    assert.match(head, /^stream-next-offset: \d{16}_\d{16}\r$/im);
    assert.match(await curl(t, ["-I", server.url("nothing")]), /^HTTP\/1\.1 404 /);

    const preflight = [
        "-H",
        "Origin: https://example.org",
        "-H",
        "Access-Control-Request-Method: POST",
        "-H",
        "Access-Control-Request-Headers: content-type, producer-id",
    ];
    const options = await curl(t, ["-i", "-X", "OPTIONS", ...preflight, server.url("meta")]);
    assert.match(options, /^HTTP\/1\.1 20[04] /);
    assert.doesNotMatch(options, /^access-control-allow-origin/im); // nobody has listed it
    const list = (name) =>
        new RegExp(`^${name}: (.*)\r$`, "im").exec(options)?.[1].toLowerCase() ?? "";
    const methods = list("access-control-allow-methods");
    for (const method of ["get", "put", "post", "delete", "head"])
        assert.ok(methods.includes(method) || methods === "*", `${method} in ${methods}`);
    const headers = list("access-control-allow-headers");
    for (const header of [
        "content-type",
        "producer-id",
        "producer-epoch",
        "producer-seq",
        "last-event-id",
        "if-match",
    ])
        assert.ok(headers.includes(header) || headers === "*", `${header} in ${headers}`);
});

test("Expect: 100-continue before a larger body", async (t) => {
    const server = await startServer(t);
    await server.create("big", "text/plain");
    const body = "0123456789abcdef".repeat(128 * 1024); // 2 MiB
    const answer = await curl(
        t,
        [
            "-i",
            "-X",
            "POST",
            server.url("big"),
            ...TEXT,
            "-H",
            "Expect: 100-continue",
            "--data-binary",
            "@-",
        ],
        { input: body },
    );
    assert.match(answer, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 204 /);
    assert.equal(await server.readAll("big"), body);
});

test("chunked uploads, for PUT and POST", async (t) => {
    const server = await startServer(t);
    const url = server.url("chunked");
    const chunked = ["-H", "Transfer-Encoding: chunked", "-H", "Expect:"];
    assert.match(
        await curl(t, ["-i", "-T", "-", url, ...TEXT, "-H", "Expect:"], { input: "put," }),
        /^HTTP\/1\.1 201 /,
    );
    const big = "x".repeat(300_000);
    for (const input of ["post,", big])
        assert.match(
            await curl(t, ["-i", "-X", "POST", url, ...TEXT, ...chunked, "--data-binary", "@-"], {
                input,
            }),
            /^HTTP\/1\.1 204 /,
        );
    assert.equal(await server.readAll("chunked"), `put,post,${big}`);
});

test("an upload is read as it arrives and appended as one", async (t) => {
    const server = await startServer(t);
    await server.create("slow", "text/plain");
    const upload = new Running(t, "curl", [
        "-sS",
        "-i",
        "-X",
        "POST",
        "-T",
        "-",
        ...TEXT,
        "-H",
        "Expect:",
        server.url("slow"),
    ]);
    for (const part of ["a", "b", "c"]) {
        upload.child.stdin.write(part);
        assert.equal(
            (await server.stream("GET", "slow")).text,
            "",
            "nothing shows before the body has ended",
        );
    }
    upload.child.stdin.end("d");
    assert.match((await upload.end()).stdout, /^HTTP\/1\.1 204 /);
    assert.equal((await server.stream("GET", "slow")).text, "abcd");
});

test("HTTP/1.0: whole answers without chunks, live ones ended by the connection", async (t) => {
    const server = await startServer(t);
    const { headers } = await server.create("old", "text/plain", { body: "old but good" });
    const answer = await curl(t, ["-0", "-i", server.url("old")]);
    assert.match(answer, /^HTTP\/1\.[01] 200 /);
    assert.doesNotMatch(answer, /transfer-encoding/i);
    assert.ok(answer.endsWith("\r\n\r\nold but good"), answer);

    const follower = new Running(t, "curl", [
        "-0",
        "-sSN",
        "-i",
        server.url("old", "?offset=-1&live=sse"),
    ]);
    await follower.output(/^data:old but good$/m);
    await server.close("old");
    const { code, stdout } = await follower.end();
    assert.equal(code, 0);
    assert.doesNotMatch(stdout, /transfer-encoding/i);
    assert.match(stdout, new RegExp(`"streamNextOffset":"${headers["stream-next-offset"]}"`));
});

test("a Unix socket", async (t) => {
    const path = join(await tempFolder(t), "sock");
    const server = await startServer(t, [], { unix: path });
    const unix = ["--unix-socket", path];
    const url = "http://localhost/v1/stream/local";
    assert.match(
        await curl(t, [...unix, "-i", "-X", "PUT", url, ...TEXT, "-d", "here"]),
        /^HTTP\/1\.1 201 /,
    );
    assert.equal(await curl(t, [...unix, url]), "here");
    const follower = new Running(t, "curl", [...unix, "-sSN", `${url}?offset=now&live=sse`]);
    await follower.output(/^event: control$/m);
    await curl(t, [...unix, "-X", "POST", url, ...TEXT, "-d", "more"]);
    await follower.output(/^data:more$/m);
    follower.child.kill("SIGKILL");
    await server.stop();
    await assert.rejects(stat(path), { code: "ENOENT" }, "the socket's file is left behind");
});

test("TCP and a Unix socket at once", async (t) => {
    const path = join(await tempFolder(t), "sock");
    const server = await startServer(t, ["--listen", `unix:${path}`]);
    await server.create("both", "text/plain", { body: "two doors" });
    assert.equal(
        await curl(t, ["--unix-socket", path, "http://localhost/v1/stream/both"]),
        "two doors",
    );
});

test("one connection is kept and used again", async (t) => {
    const server = await startServer(t);
    await server.create("keep", "text/plain", { body: "k" });
    const url = server.url("keep");
    const args = [
        "-w",
        "%{num_connects} ",
        "-o",
        "/dev/null",
        url,
        "-o",
        "/dev/null",
        url,
        "-o",
        "/dev/null",
        `${url}x`,
    ];
    assert.equal(await curl(t, args), "1 0 0 ", "connections made for each of three requests");
});

test("pipelined requests are answered in their order", async (t) => {
    const server = await startServer(t);
    const raw = await openRaw(t, server);
    const text = { "Content-Type": "text/plain" };
    const post = (body) => wire("POST", "pipe", text, body);
    const bare = (method, name = "pipe") => wire(method, name);
    const requests = [
        ["PUT", wire("PUT", "pipe", text, ""), 201],
        ["GET", bare("GET"), 200, ""],
        ["POST", post("a"), 204],
        ["GET", bare("GET"), 200, "a"],
        ["HEAD", bare("HEAD"), 200],
        ["GET", bare("GET", "missing"), 404],
        ["POST", post(["b", "c"]), 204],
        ["GET", bare("GET"), 200, "abc"],
        ["OPTIONS", bare("OPTIONS"), [200, 204]],
        ["POST", post("d"), 204],
        ["GET", bare("GET"), 200, "abcd"],
        ["DELETE", bare("DELETE"), 204],
        ["GET", bare("GET"), 404],
    ];
    raw.send(requests.map(([, bytes]) => bytes).join(""));
    for (const [method, bytes, status, body] of requests) {
        const answer = await raw.answer(method);
        assert.notEqual(answer, null, `no answer to ${bytes}`);
        assert.ok([status].flat().includes(answer.status), `${answer.status} to ${bytes}`);
        if (body !== undefined) assert.equal(answer.text, body, bytes);
    }
});

test("a pipelined request waits behind a long-poll", async (t) => {
    const server = await startServer(t);
    await server.create("line", "text/plain");
    const raw = await openRaw(t, server);
    raw.send(wire("GET", "line?offset=-1&live=long-poll") + wire("GET", "line"));
    assert.equal((await server.stream("HEAD", "line")).status, 200);
    assert.equal(raw.pending.length, 0, "an answer before there is data");
    await server.append("line", "woke", "text/plain");
    for (const which of ["long-poll", "catch-up"]) {
        const answer = await raw.answer();
        assert.equal(answer.status, 200);
        assert.equal(answer.text, "woke", which);
        assert.equal("stream-cursor" in answer.headers, which === "long-poll");
    }
});

test("a client that has said all it has to say still gets its answers", async (t) => {
    const server = await startServer(t);
    const text = { "Content-Type": "text/plain" };
    const raw = await openRaw(t, server);
    raw.send(wire("PUT", "half", text, "one ") + wire("POST", "half", text, "two"));
    raw.send(wire("GET", "half"));
    raw.finish();
    assert.deepEqual(
        (await raw.answersUntilClose()).map(({ status, text }) => [status, text]),
        [
            [201, ""],
            [204, ""],
            [200, "one two"],
        ],
    );
});

test("and all of a long one, however slowly it takes that", async (t) => {
    const server = await startServer(t, [], { data: await tempFolder(t) });
    const long = "0123456789abcdef".repeat(500_000);
    await server.create("long", "text/plain");
    await server.append("long", long, "text/plain");
    const raw = await openRaw(t, server);
    raw.pause();
    raw.send(wire("GET", "long"));
    raw.finish();
    const held = async () => {
        const { text } = await server.request("GET", "/metrics");
        return !text.includes("tidemark_unsent_bytes 0\n");
    };
    await until(held, "something to be held");
    raw.resume();
    const [{ status, text }] = await raw.answersUntilClose();
    assert.equal(status, 200);
    assert.ok(text === long, `${text.length} bytes`);
});
