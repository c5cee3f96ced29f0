// SPDX-License-Identifier: Apache-2.0
// What a prefix route sends on, and what comes back: methods, paths, headers, bodies, byte by byte.
import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { gunzipSync, gzipSync } from "node:zlib";
import { defer } from "./lib/defer.mjs";
import { UUID } from "./lib/gateway.mjs";
import { H2 } from "./lib/h2.mjs";
import { openRaw } from "./lib/raw.mjs";
import { namesOf, OK, startRawUpstream } from "./lib/raw-upstream.mjs";
import { tidemark } from "./lib/run.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

/** An upstream that tells what it was asked, unless `act` answers. */
async function startEcho(t, act = () => false) {
    const echo = { asked: [] };
    const server = createServer((request, response) => {
        const parts = [];
        request.on("data", (part) => parts.push(part));
        request.on("end", () => {
            const { method, url, headers } = request;
            const body = Buffer.concat(parts).toString();
            echo.asked.push({ method, url, headers, body });
            if (act(request, response, body) !== false) return;
            response.setHeader("content-type", "application/json");
            response.end(JSON.stringify({ method, url, headers, body }));
        });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    defer(t, () => {
        server.closeAllConnections();
        server.close();
    });
    echo.url = `http://127.0.0.1:${server.address().port}`;
    echo.last = () => echo.asked.at(-1);
    return echo;
}

async function startFile(t, text) {
    const file = join(await tempFolder(t), "tidemark.ini");
    await writeFile(file, text);
    return startServer(t, ["--config", file]);
}

const request = (line, headers = "", body = "") =>
    `${line} HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n${body}`;

/** One answer on a connection of its own. */
async function ask(t, server, bytes) {
    const raw = await openRaw(t, server);
    raw.send(bytes);
    const answer = await raw.answer(bytes.split(" ")[0]);
    raw.destroy();
    return answer;
}

// ---- where to ----

test("an upstream without a path keeps the request's, one with a path has its own", async (t) => {
    const echo = await startEcho(t);
    for (const [path, prefix, asked, wanted] of [
        ["", "/v1", "/v1/models?a=1&b=%20", "/v1/models?a=1&b=%20"],
        ["/", "/v1", "/v1/models", "/models"],
        ["/", "/v1", "/v1", "/"],
        ["/api/v2", "/v1", "/v1/models/x%2Fy", "/api/v2/models/x%2Fy"],
        ["?key=7", "/api", "/api/a?b=1", "/api/a?key=7&b=1"],
    ]) {
        const server = await startServer(t, ["--proxy", `${prefix}=${echo.url}${path}`]);
        const { status, text } = await server.request("GET", asked);
        assert.equal(status, 200, text);
        assert.equal(JSON.parse(text).url, wanted);
        await server.stop();
    }
});

test("every method, with and without a body", async (t) => {
    const echo = await startEcho(t);
    const server = await startServer(t, ["--proxy", `/v1=${echo.url}`]);
    const methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "QUERY", "PROPFIND", "PURGE"];
    for (const method of methods)
        for (const [headers, body, sent] of [
            ["", "", ""],
            ["Content-Length: 5\r\n", "hello", "hello"],
            ["Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n", "hello"],
        ]) {
            if (sent && ["PURGE", "PROPFIND", "QUERY"].includes(method) && !body) continue;
            const { status, text } = await ask(t, server, request(`${method} /v1/x`, headers, body));
            const got = JSON.parse(text);
            assert.deepEqual([status, got.method, got.body], [200, method, sent], method);
            if (headers.startsWith("Content-Length"))
                assert.equal(got.headers["content-length"], "5", "a length that is known is kept");
            if (headers.startsWith("Transfer") && method !== "POST")
                assert.equal(got.headers["transfer-encoding"], "chunked");
        }
    const trace = await ask(t, server, request("TRACE /v1/x"));
    assert.equal(trace.status, 501);
    assert.equal(echo.asked.filter(({ method }) => method === "TRACE").length, 0);
});

test("our own paths win over a prefix, and what is beside it is not below it", async (t) => {
    const echo = await startEcho(t);
    const flags = ["--proxy", `/v1=${echo.url}`, "--route", `/v1/exact=${echo.url}/e`];
    const server = await startServer(t, flags);
    await server.create("mine", "text/plain", { body: "ours" });
    assert.equal(await server.readAll("mine"), "ours");
    for (const path of ["/v1/stream/none", "/v1/access/none", "/v1/session/none", "/v1beta", "/v1x/y"]) {
        const { status } = await server.request("GET", path);
        assert.ok(status >= 400, path);
    }
    assert.equal((await server.request("GET", "/healthz")).status, 200);
    assert.equal(echo.asked.length, 0);
    for (const path of ["/v1/streams", "/v1/stream", "/v1/logs", "/v1/accessible", "/v1/"]) {
        assert.equal((await server.request("GET", path)).json().url, path);
    }
    const exact = await server.request("POST", "/v1/exact");
    assert.equal(exact.json().url, "/e");
    const { status } = await server.request("GET", "/v1/exact/none");
    assert.equal(status, 404, "a route has its path and what is below it");
});

test("an exact route above what the server has is refused, a wide one is not", async (t) => {
    const echo = await startEcho(t);
    const server = await startServer(t, ["--openai", echo.url]);
    assert.equal((await server.request("GET", "/v1/models")).status, 200);
    const args = ["serve", "--store", "memory", "--listen", "127.0.0.1:0"];
    const exact = await tidemark(t, [...args, "--route", `/v1=${echo.url}`]);
    assert.equal(exact.code, 2);
    assert.match(exact.stderr, /the path \/v1 is claimed twice/);
});

const TRICKS = [
    "/v1/../admin",
    "/v1/x/../../admin",
    "/v1/./x",
    "/v1/%2e%2e/admin",
    "/v1/.%2E/admin",
    "/v1/x%2f..%2fadmin",
    "/v1/%252e%252e/admin",
    "/v1/a%252fb",
    "/v1/..;/admin",
    "/v1/..%3b/admin",
    "/v1/x\\..\\admin",
    "/v1/x%5c..",
    "/v1/x%00",
    "/v1/x%0d%0aX-Injected:%201",
    "/v1/%c0%ae%c0%ae/admin",
    "/v1/%zz",
    "/v1/%",
];
test("paths that mean different things to different servers are refused", async (t) => {
    const echo = await startEcho(t);
    const server = await startServer(t, ["--proxy", `/v1=${echo.url}`]);
    for (const path of TRICKS)
        for (const method of ["GET", "POST"]) {
            const length = method === "POST" ? "Content-Length: 0\r\n" : "";
            const { status, text } = await ask(t, server, request(`${method} ${path}`, length));
            assert.equal(status, 400, `${method} ${path}: ${text}`);
        }
    assert.equal(echo.asked.length, 0);
    const h2 = new H2(t, server);
    for (const path of TRICKS.filter((path) => !path.includes("\\")))
        assert.equal((await h2.request("GET", path)).status, 400, path);
    assert.equal(echo.asked.length, 0);
});

test("what is well-formed arrives byte by byte, at the same host", async (t) => {
    const upstream = await startRawUpstream(t, OK);
    const server = await startServer(t, ["--proxy", `/v1=${upstream.url}`]);
    for (const path of [
        "/v1/a%2Fb%20c?d=%2e%2e/../&e=%0d%0a",
        "/v1//evil.test/x",
        "/v1/@evil.test:80/",
        "/v1/http://evil.test/",
        "/v1/...",
        "/v1/a;b=c,d!e'f(g)*h",
        '/v1/a"b<c>d|e^f`g{h}',
        "/v1/?",
    ]) {
        assert.equal((await ask(t, server, request(`GET ${path}`))).status, 200, path);
        const [line, ...headers] = await upstream.last().head();
        assert.equal(line, `GET ${path} HTTP/1.1`);
        assert.ok(headers.includes(`Host: ${upstream.url.slice("http://".length)}`));
    }
    const absolute = request("GET http://localhost/v1/models");
    assert.equal((await ask(t, server, absolute)).status, 200);
    assert.equal((await upstream.last().head())[0], "GET /v1/models HTTP/1.1");
});

test("paths with parameters", async (t) => {
    const echo = await startEcho(t);
    const server = await startFile(
        t,
        `[route /threads/{id}/runs/stream]
upstream = ${echo.url}/t/{id}/go?x=1
[route /m/{model}:go]
upstream = ${echo.url}/{model}/go
[route /m/fixed:go]
upstream = ${echo.url}/literal
[route /w/{tenant}]
prefix = yes
upstream = ${echo.url}/tenants/{tenant}/api
`,
    );
    const post = async (path) => (await server.request("POST", path)).json().url;
    assert.equal(await post("/threads/a%2Fb/runs/stream?y=2"), "/t/a%2Fb/go?x=1&y=2");
    assert.equal(await post("/m/gemini-2.5:go"), "/gemini-2.5/go");
    assert.equal(await post("/m/fixed:go"), "/literal", "what is written out goes first");
    assert.equal(await post("/w/7/a/b"), "/tenants/7/api/a/b");
    for (const path of ["/threads//runs/stream", "/threads/x/runs", "/m/:go", "/m/a/b:go", "/w"])
        assert.equal((await server.request("POST", path)).status, 404, path);
    for (const path of ["/threads/%2e%2e/runs/stream", "/m/a%5cb:go", "/w/%2e%2e/a"]) {
        const before = echo.asked.length;
        assert.equal((await ask(t, server, request(`POST ${path}`, "Content-Length: 0\r\n"))).status, 400);
        assert.equal(echo.asked.length, before);
    }
});

// ---- headers ----

const SENT = {
    "X-Custom": "1",
    "Anthropic-Beta": "b",
    Authorization: "Bearer k",
    "X-Api-Key": "k",
    "User-Agent": "me",
    Traceparent: "t",
    Range: "bytes=1-2",
    "If-None-Match": '"e"',
    "Accept-Encoding": "br",
    "X-Stainless-Retry-Count": "1",
};
const WITHHELD = {
    Cookie: "a=1",
    Origin: "http://localhost",
    Referer: "http://localhost/p",
    "Sec-Fetch-Mode": "cors",
    "X-Original-URL": "/admin",
    "X-Rewrite-URL": "/admin",
    "X-HTTP-Method-Override": "DELETE",
    "Tidemark-Authorization": "Basic eA==",
    "X-Resume-Token": "x",
    "X-Correlation-ID": "mine",
    Te: "trailers",
    "Keep-Alive": "timeout=5",
    "Proxy-Authorization": "Basic eA==",
    "Proxy-Connection": "keep-alive",
    Trailer: "X-T",
    "X-Named": "1",
    Content_Length: "7",
    x_api_key: "evil",
    Expect: "100-continue",
};
const asLines = (headers) =>
    Object.entries(headers)
        .map(([name, value]) => `${name}: ${value}\r\n`)
        .join("");

test("requests: headers go on but those of a connection, of browsers and of ours", async (t) => {
    const upstream = await startRawUpstream(t, OK);
    const server = await startServer(t, ["--proxy", `/v1=${upstream.url}`]);
    const headers = asLines({ ...SENT, ...WITHHELD, Connection: "close, X-Named" });
    const { status, text } = await ask(t, server, request("GET /v1/x", headers));
    assert.equal(status, 200, text);
    const lines = await upstream.last().head();
    for (const [name, value] of Object.entries(SENT))
        assert.ok(lines.includes(`${name}: ${value}`), `${name} is not in ${lines.join("\n")}`);
    const names = namesOf(lines);
    for (const name of Object.keys(WITHHELD).filter((name) => name !== "X-Correlation-ID"))
        assert.ok(!names.includes(name.toLowerCase()), `${name} was sent on`);
    const id = lines.find((line) => line.startsWith("X-Correlation-ID: "));
    assert.match(id.slice("X-Correlation-ID: ".length), UUID);
    assert.equal(names.filter((name) => name === "host").length, 1);
});

test("requests: forward and drop", async (t) => {
    const upstream = await startRawUpstream(t, OK);
    const server = await startFile(
        t,
        `[route /v1]
prefix = yes
upstream = ${upstream.url}
forward = Cookie, X-Forwarded-For, my_header
drop = User-Agent, X-Custom
`,
    );
    const headers = asLines({
        Cookie: "a=1; __Host-tidemark=secret; b=2",
        my_header: "1",
        "User-Agent": "me",
        "X-Custom": "1",
        "X-Other": "1",
    });
    assert.equal((await ask(t, server, request("GET /v1/x", headers))).status, 200);
    const lines = await upstream.last().head();
    assert.ok(lines.includes("Cookie: a=1; b=2"), "without our own");
    assert.ok(lines.includes("my_header: 1"));
    assert.ok(lines.includes("X-Other: 1"));
    assert.ok(!lines.includes("X-Custom: 1"));
    assert.ok(!lines.includes("User-Agent: me"));
});

test("requests that may be recorded are not compressed", async (t) => {
    const echo = await startEcho(t);
    const server = await startServer(t, ["--openai", echo.url]);
    const post = (path, body) =>
        server.request("POST", path, {
            headers: { "content-type": "application/json", "accept-encoding": "gzip", cookie: "a=1" },
            body: JSON.stringify(body),
        });
    await post("/v1/chat/completions", { stream: true });
    assert.equal(echo.last().headers["accept-encoding"], "identity");
    await post("/v1/chat/completions", { stream: false });
    assert.equal(echo.last().headers["accept-encoding"], "gzip");
    assert.equal(echo.last().headers.cookie, undefined);
});

const PASSED = {
    "Content-Type": "application/json",
    "X-Request-Id": "r",
    "Retry-After-Ms": "5",
    "X-Should-Retry": "false",
    "X-RateLimit-Remaining-Tokens": "9",
    "Openai-Version": "v",
    "Mcp-Session-Id": "m",
    "Content-Location": "/there",
    Location: "https://elsewhere.test/x",
    ETag: '"e"',
    "Cache-Control": "public, max-age=3",
    Link: "<a>; rel=next",
};
const KEPT = {
    "Set-Cookie": "a=1",
    "Access-Control-Allow-Origin": "https://evil.test",
    "Access-Control-Allow-Credentials": "true",
    "Clear-Site-Data": '"*"',
    "Service-Worker-Allowed": "/",
    "Strict-Transport-Security": "max-age=1",
    "Public-Key-Pins": "x",
    "Alt-Svc": 'h2="evil.test"',
    NEL: "{}",
    "Report-To": "{}",
    "X-Accel-Redirect": "/secret",
    Refresh: "0;url=https://evil.test",
    "X-Tidemark-Degraded": "store",
    "X-Resume-Token": "x",
    "X-Named": "1",
    "Keep-Alive": "timeout=5",
    "Proxy-Authenticate": "Basic",
};
test("answers: headers come back but what speaks for this origin", async (t) => {
    const head = asLines({ ...PASSED, ...KEPT, Connection: "X-Named, close" });
    const upstream = await startRawUpstream(
        t,
        `HTTP/1.1 299 Odd\r\n${head}X-Split: a\rSet-Cookie: b\r\nContent-Length: 2\r\n\r\n{}`,
    );
    const server = await startServer(t, ["--proxy", `/v1=${upstream.url}`]);
    const { status, headers, text } = await ask(t, server, request("GET /v1/x"));
    assert.deepEqual([status, text], [299, "{}"]);
    for (const [name, value] of Object.entries(PASSED))
        assert.equal(headers[name.toLowerCase()], value, name);
    for (const name of Object.keys(KEPT)) assert.equal(headers[name.toLowerCase()], undefined, name);
    assert.ok([undefined, "a"].includes(headers["x-split"]), "a CR ends no line");
    assert.match(headers["x-correlation-id"], UUID);
    const { headers: over2 } = await new H2(t, server).request("GET", "/v1/x");
    assert.equal(over2["x-request-id"], "r");
    assert.equal(over2["set-cookie"], undefined);
});

test("answers of exact routes carry the upstream's headers, too", async (t) => {
    const events = 'data: {"a":1}\n\n';
    const echo = await startEcho(t, (request, response) => {
        response.setHeader("x-request-id", "r");
        response.setHeader("set-cookie", "a=1");
        response.setHeader("mcp-session-id", "m");
        if (request.url === "/json") return false;
        response.setHeader("content-type", "text/event-stream");
        response.setHeader("cache-control", "public");
        response.end(events);
        return true;
    });
    const flags = ["--route", `/e=${echo.url}/events`, "--route", `/j=${echo.url}/json`];
    const server = await startServer(t, flags);
    for (const path of ["/e", "/j"]) {
        const { headers } = await server.request("POST", path, { headers: { "x-custom": "1" } });
        assert.deepEqual([headers["x-request-id"], headers["mcp-session-id"]], ["r", "m"], path);
        assert.equal(headers["set-cookie"], undefined);
        assert.equal(echo.last().headers["x-custom"], "1");
        if (path === "/e") assert.equal(headers["cache-control"], "no-cache");
    }
    const { headers } = await server.request("POST", "/e");
    const late = await server.request("GET", `/e/${headers["x-correlation-id"]}`);
    assert.equal(late.headers["x-request-id"], undefined, "they are for who asked");
});

// ---- bodies ----

test("HEAD, 204, 304 and an empty body", async (t) => {
    const answers = {
        "/v1/head": "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\nX-A: 1\r\n\r\n",
        "/v1/head-chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "/v1/204": "HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n",
        "/v1/304": "HTTP/1.1 304 Not Modified\r\nETag: \"e\"\r\nContent-Length: 9\r\n\r\n",
        "/v1/empty": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-A: 1\r\n\r\n",
        "/v1/205": "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n",
    };
    const upstream = await startRawUpstream(t, ({ socket }, [line]) =>
        socket.end(answers[line.split(" ")[1]]),
    );
    const server = await startServer(t, ["--proxy", `/v1=${upstream.url}`]);
    const raw = await openRaw(t, server); // one connection: framing is as it should be
    for (const [method, path, status, length] of [
        ["HEAD", "/v1/head", 200, "12345"],
        ["HEAD", "/v1/head-chunked", 200, undefined],
        ["GET", "/v1/204", 204, undefined],
        ["GET", "/v1/304", 304, undefined],
        ["GET", "/v1/empty", 200, "0"],
        ["HEAD", "/v1/empty", 200, undefined],
        ["GET", "/v1/205", 205, "0"],
        ["DELETE", "/v1/204", 204, undefined],
    ]) {
        raw.send(request(`${method} ${path}`));
        const answer = await raw.answer(method);
        assert.deepEqual([answer.status, answer.text], [status, ""], `${method} ${path}`);
        assert.equal(answer.headers["content-length"], length, `${method} ${path}`);
    }
    const h2 = new H2(t, server);
    assert.equal((await h2.request("HEAD", "/v1/head")).headers["content-length"], "12345");
    assert.equal((await h2.request("GET", "/v1/204")).status, 204);
    const { text } = await server.request("GET", "/metrics");
    assert.match(text, /^tidemark_gateway_passing\{route="\/v1"\} 0$/m, "nothing is left");
});

test("lengths, chunks, interim answers, trailers and old upstreams", async (t) => {
    const answers = {
        "/v1/sized": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "/v1/chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
        "/v1/both":
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "/v1/twice": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "/v1/hints":
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX-Early: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "/v1/old": "HTTP/1.0 200 OK\r\n\r\nhello",
    };
    const upstream = await startRawUpstream(t, ({ socket }, [line]) =>
        socket.end(answers[line.split(" ")[1]]),
    );
    const server = await startServer(t, ["--proxy", `/v1=${upstream.url}`]);
    for (const path of Object.keys(answers)) {
        const { status, headers, text } = await ask(t, server, request(`GET ${path}`));
        assert.deepEqual([status, text], [200, "hello"], path);
        assert.equal(headers["x-early"], undefined);
        assert.equal(headers["content-length"], /sized|hints/.test(path) ? "5" : undefined, path);
    }
});

test("an answer that breaks off does not look whole", async (t) => {
    const answers = {
        "/v1/sized": "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
        "/v1/chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "/v1/nothing": "",
        "/v1/half": "HTTP/1.1 200 O",
        "/v1/garbage": "what is this\r\n\r\n",
    };
    const upstream = await startRawUpstream(t, ({ socket }, [line]) => {
        const path = line.split(" ")[1];
        socket.write(answers[path]);
        if (!/sized|chunked/.test(path)) socket.end();
    });
    const server = await startServer(t, ["--proxy", `/v1=${upstream.url}`]);
    for (const path of ["/v1/sized", "/v1/chunked"]) {
        const raw = await openRaw(t, server);
        raw.send(request(`GET ${path}`));
        const head = await raw.head();
        assert.equal(head.status, 200);
        upstream.last().socket.destroy();
        await assert.rejects(raw.body(head));
        const over2 = new H2(t, server).open("GET", path);
        await over2.reply;
        upstream.last().socket.destroy();
        assert.notEqual(await over2.done, 0, "the stream is reset");
    }
    for (const path of ["/v1/nothing", "/v1/half", "/v1/garbage"])
        assert.equal((await ask(t, server, request(`GET ${path}`))).status, 502, path);
    const { text } = await server.request("GET", "/metrics");
    assert.match(text, /^tidemark_upstream_errors_total\{route="\/v1",reason="cut"\} [1-9]/m);
});

test("compressed bodies and parts of bodies pass unchanged", async (t) => {
    const zipped = gzipSync("tide ".repeat(1000));
    const echo = await startEcho(t, (request, response) => {
        if (request.url === "/v1/part") {
            response.writeHead(206, { "content-range": "bytes 1-2/5", "accept-ranges": "bytes" });
            response.end("el");
        } else {
            response.writeHead(200, { "content-encoding": "gzip", vary: "Accept-Encoding" });
            response.end(zipped);
        }
        return true;
    });
    const server = await startServer(t, ["--proxy", `/v1=${echo.url}`]);
    const { headers, bytes } = await server.request("GET", "/v1/zip", {
        headers: { "accept-encoding": "gzip" },
    });
    assert.equal(headers["content-encoding"], "gzip");
    assert.match([headers.vary].flat().join(), /Accept-Encoding/);
    assert.deepEqual(gunzipSync(bytes), gunzipSync(zipped));
    const part = await server.request("GET", "/v1/part", { headers: { range: "bytes=1-2" } });
    assert.deepEqual([part.status, part.text], [206, "el"]);
    assert.equal(part.headers["content-range"], "bytes 1-2/5");
    assert.equal(echo.last().headers.range, "bytes=1-2");
    const upload = await server.request("PUT", "/v1/zip", {
        headers: { "content-encoding": "gzip" },
        body: zipped,
    });
    assert.equal(upload.status, 200);
    assert.equal(echo.last().headers["content-encoding"], "gzip");
});

test("Expect: the body is asked for when the upstream wants it", async (t) => {
    const upstream = await startRawUpstream(t, ({ socket }) =>
        socket.end("HTTP/1.1 413 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    );
    const server = await startServer(t, ["--proxy", `/v1=${upstream.url}`, "--proxy", "/dead=http://127.0.0.1:1"]);
    const headers = "Content-Length: 5\r\nExpect: 100-continue\r\n";
    const dead = await openRaw(t, server);
    dead.send(request("PUT /dead/x", headers));
    assert.equal((await dead.head()).status, 502, "nobody was there to ask for it");
    const raw = await openRaw(t, server);
    raw.send(request("PUT /v1/x", headers));
    const { status } = await raw.head();
    assert.ok([100, 413].includes(status));
    if (status === 100) raw.send("hello");
    if (status === 100) assert.equal((await raw.head()).status, 413);
});

test("pages and redirects of an upstream", async (t) => {
    const types = ["text/html", "image/svg+xml", "application/xml", "application/pdf", "text/html, text/plain"];
    const echo = await startEcho(t, (request, response) => {
        const { pathname, searchParams } = new URL(request.url, "http://x");
        if (pathname === "/v1/moved") {
            response.writeHead(302, { location: "http://169.254.169.254/latest" }).end();
            return true;
        }
        const headers = { "content-security-policy": "default-src *" };
        const disposition = searchParams.get("disposition");
        if (disposition) headers["content-disposition"] = disposition;
        response.writeHead(200, { "content-type": searchParams.get("type"), ...headers });
        response.end("<script>alert(1)</script>");
        return true;
    });
    const server = await startServer(t, ["--proxy", `/v1=${echo.url}`]);
    const get = (type, disposition = "") =>
        server.request("GET", `/v1/page?${new URLSearchParams({ type, disposition })}`);
    for (const type of types) {
        const { headers } = await get(type);
        assert.equal(headers["content-security-policy"], "sandbox; default-src 'none'", type);
        assert.equal(headers["content-disposition"], "attachment", type);
        assert.equal(headers["x-content-type-options"], "nosniff");
        const inline = await get(type, "inline");
        assert.equal(inline.headers["content-disposition"], "attachment", `inline ${type}`);
        const named = await get(type, 'attachment; filename="a"');
        assert.equal(named.headers["content-disposition"], 'attachment; filename="a"');
    }
    const json = await get("application/json", 'inline; filename="a.json"');
    assert.equal(json.headers["content-disposition"], 'inline; filename="a.json"');
    const moved = await server.request("GET", "/v1/moved");
    assert.equal(moved.status, 302, "it is never followed");
    assert.equal(moved.headers.location, "http://169.254.169.254/latest");
    assert.equal(echo.asked.filter(({ url }) => url === "/v1/moved").length, 1);
});

test("an upgrade is refused, but for one that may be left unanswered", async (t) => {
    const echo = await startEcho(t);
    const server = await startServer(t, ["--proxy", `/v1=${echo.url}`]);
    const upgrade = (to, more = "") =>
        ask(t, server, request("GET /v1/x", `Connection: Upgrade\r\nUpgrade: ${to}\r\n${more}`));
    const refused = await upgrade("websocket", "Sec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n");
    assert.equal(refused.status, 501);
    assert.equal(echo.asked.length, 0);
    assert.equal((await upgrade("h2c", "HTTP2-Settings: AAMAAABk\r\n")).status, 200);
    assert.equal(echo.last().headers.upgrade, undefined);
    assert.equal(echo.last().headers["http2-settings"], undefined);
});

// ---- members ----

const EVENTS = ["one", "two"].map((word) => `data: {"choices":[],"word":"${word}"}\n\n`).join("");

async function startStreams(t) {
    const echo = await startEcho(t, (request, response) => {
        if (request.method !== "POST" || !request.url.endsWith("/completions")) return false;
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.end(EVENTS);
        return true;
    });
    return { echo, server: await startServer(t, ["--openai", echo.url]) };
}
const streamed = { headers: { "content-type": "application/json" }, body: '{"stream":true}' };

test("a generation is read below the path that began it; other ids are the upstream's", async (t) => {
    const { echo, server } = await startStreams(t);
    const path = "/v1/chat/completions";
    const { headers, text } = await server.request("POST", path, streamed);
    const id = headers["x-correlation-id"];
    assert.match(text, /"word":"two"/);
    assert.equal(headers.location, `${path}/${id}`);
    const again = await server.request("GET", headers.location);
    assert.match(again.headers["content-type"], /^text\/event-stream/);
    assert.match(again.text, /"word":"one"[^]*"word":"two"/);
    const { status } = await server.request("GET", `${path}/${id}`, {
        headers: { "last-event-id": "2" },
    });
    assert.equal(status, 204, "there is nothing behind the last event");
    for (const method of ["POST", "GET"]) {
        const rest = await server.request(method, path, { headers: { "last-event-id": `${id}:1` } });
        assert.equal(rest.status, 200, rest.text);
        assert.ok(!rest.text.includes('"word":"one"') && rest.text.includes('"word":"two"'), method);
        const gone = "0b9f6a3e-51f4-4bd6-9a0c-3c8a44f2e0d1:1";
        const lost = await server.request(method, path, { headers: { "last-event-id": gone } });
        assert.equal(lost.status, 410, "never a new one");
    }
    assert.equal((await server.request("POST", `${path}/${id}/stop`)).json().status, "completed");
    assert.equal((await server.request("DELETE", `${path}/${id}`)).json().status, "completed");
    assert.equal(echo.asked.length, 1);

    const theirs = "0b9f6a3e-51f4-4bd6-9a0c-3c8a44f2e0d1";
    for (const [method, asked] of [
        ["GET", `/v1/threads/${theirs}`],
        ["DELETE", `/v1/threads/${theirs}`],
        ["POST", `/v1/threads/${theirs}`],
        ["PATCH", `/v1/threads/${theirs}`],
        ["POST", `/v1/threads/${theirs}/stop`],
        ["GET", `/v1/threads/${theirs}/stream`],
        ["POST", "/v1/threads/runs/stream"],
        ["POST", "/v1/jobs/7/stop"],
        ["POST", "/v1/chat/resume"],
    ]) {
        const body = method === "GET" || method === "DELETE" ? undefined : '{"a":1}';
        const answer = await server.request(method, asked, { body });
        assert.equal(answer.status, 200, `${method} ${asked}: ${answer.text}`);
        assert.deepEqual([answer.json().method, answer.json().url], [method, asked]);
        assert.equal(answer.json().body, body ?? "");
    }
});

test("a chat is found by its id below a prefix; what is none is the upstream's", async (t) => {
    let go;
    const gate = new Promise((resolve) => (go = resolve));
    const echo = await startEcho(t, (request, response) => {
        if (request.method !== "POST" || request.url !== "/api/chat") return false;
        response.writeHead(200, {
            "content-type": "text/event-stream",
            "x-vercel-ai-ui-message-stream": "v1",
        });
        response.write('data: {"type":"start"}\n\n');
        gate.then(() => response.end('data: {"type":"finish"}\n\ndata: [DONE]\n\n'));
        return true;
    });
    const server = await startServer(t, ["--proxy", `/api=${echo.url}`]);
    const asked = { trigger: "submit-message", id: "chat-1", messages: [] };
    const first = await fetch(`${server.base}/api/chat`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(asked),
    });
    assert.equal(first.headers.get("x-vercel-ai-ui-message-stream"), "v1");
    const resumed = await fetch(`${server.base}/api/chat/chat-1/stream`);
    assert.equal(resumed.status, 200);
    assert.match(resumed.headers.get("content-type"), /^text\/event-stream/);
    go();
    assert.match(await resumed.text(), /"type":"start"[^]*"type":"finish"/);
    await first.text();
    for (const path of ["/api/chat/chat-2/stream", "/api/chat/chat-1/stream"])
        await until(
            async () => (await server.request("GET", path)).text.includes(`"url":"${path}"`),
            `${path} to be the upstream's`,
        );
    assert.equal(echo.asked.filter(({ method }) => method === "POST").length, 1);
});

test("a resume token works below a prefix", async (t) => {
    const { echo } = await startStreams(t);
    const server = await startServer(t, ["--openai", echo.url], {
        env: { SSE_RESUME_SECRET: "a secret of some length, and more" },
    });
    const path = "/v1/chat/completions";
    const { headers } = await server.request("POST", path, streamed);
    const resumed = await server.request("POST", `${path}/resume`, {
        headers: { "x-resume-token": headers["x-resume-token"] },
    });
    assert.match(resumed.text, /"word":"one"[^]*"word":"two"/);
    assert.equal(echo.asked.length, 1);
});

test("after a restart, too", async (t) => {
    const { echo } = await startStreams(t);
    const data = join(await tempFolder(t), "data");
    const first = await startServer(t, ["--openai", echo.url], { data });
    const { headers } = await first.request("POST", "/v1/completions", streamed);
    await first.kill();
    const second = await startServer(t, ["--openai", echo.url], { data });
    const id = headers["x-correlation-id"];
    const { text } = await second.request("GET", `/v1/completions/${id}`);
    assert.match(text, /"word":"two"/);
    const missing = "0b9f6a3e-51f4-4bd6-9a0c-3c8a44f2e0d1";
    await until(
        async () => (await second.request("GET", `/v1/completions/${missing}`)).status === 200,
        "the upstream to be asked",
    );
});
