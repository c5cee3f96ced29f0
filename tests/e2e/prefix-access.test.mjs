// SPDX-License-Identifier: Apache-2.0
// Who may ask for what below a prefix: grants name paths of requests, in whatever spelling these
// come, and what is ours never goes to the upstream.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { defer } from "./lib/defer.mjs";
import { openRaw } from "./lib/raw.mjs";
import { tidemark } from "./lib/run.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";

const EVENTS = 'data: {"choices":[],"word":"mine"}\n\n';

async function startUpstream(t) {
    const upstream = { asked: [] };
    const server = createServer((request, response) => {
        request.resume().on("end", () => {
            const { method, url, headers } = request;
            upstream.asked.push({ method, url, headers });
            const streams = method === "POST" && url.startsWith("/v1/chat");
            response.writeHead(200, {
                "content-type": streams ? "text/event-stream" : "application/json",
                "cache-control": "public, max-age=60",
            });
            response.end(streams ? EVENTS : JSON.stringify({ url }));
        });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    defer(t, () => {
        server.closeAllConnections();
        server.close();
    });
    upstream.url = `http://127.0.0.1:${server.address().port}`;
    return upstream;
}

const caller = (name, ...grants) => {
    const digest = createHash("sha256").update(`token-of-${name}`).digest("hex");
    const lines = grants.map((grant) => `grant = ${grant}\n`).join("");
    return `[caller ${name}]\ntoken-sha256 = ${digest}\n${lines}`;
};

async function startGuarded(t, ...callers) {
    const upstream = await startUpstream(t);
    const file = join(await tempFolder(t), "tidemark.ini");
    const route = `[route /v1]\nprefix = yes\nupstream = ${upstream.url}\n`;
    await writeFile(file, `address-rate = 0\n${route}${callers.join("")}`);
    return { upstream, file, server: await startServer(t, ["--config", file]) };
}

const as = (name) => ({ "tidemark-authorization": `Bearer token-of-${name}` });

/** The status of a request whose path goes out as it is written. */
async function status(t, server, method, path, headers) {
    const raw = await openRaw(t, server);
    const lines = Object.entries(headers).map(([key, value]) => `${key}: ${value}\r\n`);
    const length = method === "POST" ? "Content-Length: 0\r\n" : "";
    raw.send(`${method} ${path} HTTP/1.1\r\nHost: localhost\r\n${lines.join("")}${length}\r\n`);
    const answer = await raw.answer(method);
    raw.destroy();
    return answer.status;
}

test("grants name paths of requests, in any spelling", async (t) => {
    const { upstream, server } = await startGuarded(
        t,
        caller("models", "call route:/v1/models"),
        caller("one", "call route:/v1/files/*"),
        caller("below", "call route:/v1/files/**"),
        caller("all", "call, generate route:/v1/**"),
    );
    const cases = [
        ["models", "GET", "/v1/models", 200],
        ["models", "GET", "/v1/models/", 200],
        ["models", "GET", "/v1/%6dodels", 200],
        ["models", "HEAD", "/v1/models", 200],
        ["models", "DELETE", "/v1/models", 200],
        ["models", "POST", "/v1/models", 403],
        ["models", "GET", "/v1/models/x", 403],
        ["models", "GET", "/v1/models%2Fx", 403],
        ["models", "GET", "/v1/files", 403],
        ["models", "GET", "/v1//models", 403],
        ["models", "GET", "/v1/x/../models", 403],
        ["models", "GET", "/v1/x/%2e%2e/models", 403],
        ["one", "GET", "/v1/files/a", 200],
        ["one", "GET", "/v1/files/a/content", 403],
        ["one", "GET", "/v1/files/a%2Fcontent", 403],
        ["one", "GET", "/v1/files/a%252Fcontent", 403],
        ["one", "GET", "/v1/files/..%2fmodels", 403],
        ["one", "GET", "/v1/files/..%2f..%2fmodels", 403],
        ["one", "GET", "/v1/files/%2e%2e", 403],
        ["one", "GET", "/v1/files/..;", 403],
        ["one", "GET", "/v1/files/a%5c..%5cb", 403],
        ["below", "GET", "/v1/files/a%2Fcontent", 200],
        ["below", "GET", "/v1/files%2Fa", 403], // as one segment it is not below /v1/files
        ["below", "PROPFIND", "/v1/files/a", 200],
        ["below", "GET", "/v1/filesystem", 403],
        ["all", "POST", "/v1/anything/at/all", 200],
        ["all", "GET", "/v1", 200],
        ["all", "GET", "/v1/", 200],
        ["all", "GET", "/v1/../metrics", 403],
        ["all", "GET", "/v1/a%2F..%2Fb", 403],
    ];
    for (const [who, method, path, wanted] of cases) {
        const before = upstream.asked.length;
        const got = await status(t, server, method, path, as(who));
        assert.equal(got, wanted, `${who}: ${method} ${path}`);
        const sent = upstream.asked.slice(before);
        assert.equal(sent.length, wanted === 200 ? 1 : 0, `${who}: ${method} ${path}`);
        if (wanted === 200) assert.equal(sent[0].url, path, "what was judged is what is sent");
        assert.equal(sent[0]?.headers["tidemark-authorization"], undefined);
    }
    assert.equal(await status(t, server, "GET", "/v1/models", {}), 401);
    assert.equal(await status(t, server, "GET", "/v1/models", as("nobody")), 401);
});

test("a generation is its subject's alone; to others it is the upstream's path", async (t) => {
    const rights = "generate, stop, call route:/v1/**";
    const { upstream, server } = await startGuarded(
        t,
        caller("ann", rights),
        caller("bob", rights),
        caller("eve", "generate, stop route:/v1/chat/completions"),
    );
    const path = "/v1/chat/completions";
    const ask = (name, method, at, body) =>
        server.request(method, at, { headers: { ...as(name), "content-type": "application/json" }, body });
    const { headers } = await ask("ann", "POST", path, '{"stream":true}');
    const id = headers["x-correlation-id"];
    assert.match((await ask("ann", "GET", `${path}/${id}`)).text, /"word":"mine"/);
    for (const [method, at] of [
        ["GET", `${path}/${id}`],
        ["DELETE", `${path}/${id}`],
        ["POST", `${path}/${id}/stop`],
    ]) {
        const before = upstream.asked.length;
        const other = await ask("bob", method, at);
        assert.equal(other.status, 200);
        assert.ok(!other.text.includes('"request_id"'));
        assert.equal(upstream.asked.length, before + 1, `${method} ${at} of another went on`);
        assert.equal((await ask("eve", method, at)).status, 403, "which has to be granted");
    }
    const mine = await ask("eve", "POST", path, '{"stream":true}');
    const own = mine.headers["x-correlation-id"];
    assert.match((await ask("eve", "GET", `${path}/${own}`)).text, /"word":"mine"/);
    assert.equal((await ask("eve", "POST", `${path}/${own}/stop`)).json().status, "completed");
});

test("what one was granted no cache gives to another", async (t) => {
    const { server } = await startGuarded(t, caller("ann", "call route:/v1/**"));
    const { headers } = await server.request("GET", "/v1/x", { headers: as("ann") });
    assert.equal(headers["cache-control"], "no-store");
    const open = await startServer(t, ["--proxy", `/v1=${(await startUpstream(t)).url}`]);
    assert.equal((await open.request("GET", "/v1/x")).headers["cache-control"], "public, max-age=60");
});

test("a grant in the URL is for what is ours, and never goes on", async (t) => {
    const { upstream, server } = await startGuarded(
        t,
        caller("ann", "generate, call route:/v1/**", "mint server"),
    );
    const grant = await server.request("POST", "/v1/access/grants", {
        headers: { ...as("ann"), "content-type": "application/json" },
        body: JSON.stringify({ actions: ["generate"], on: ["route:/v1/**"], expires_in: 60, link: true }),
    });
    assert.equal(grant.status, 201, grant.text);
    const { token } = grant.json();
    const { headers } = await server.request("POST", "/v1/chat/completions", {
        headers: { ...as("ann"), "content-type": "application/json" },
        body: '{"stream":true}',
    });
    const own = `/v1/chat/completions/${headers["x-correlation-id"]}`;
    assert.match((await server.request("GET", `${own}?grant=${token}`)).text, /"word":"mine"/);
    upstream.asked = [];
    const uuid = "0b9f6a3e-51f4-4bd6-9a0c-3c8a44f2e0d1";
    for (const path of ["/v1/models", `/v1/threads/${uuid}`]) {
        const { status } = await server.request("GET", `${path}?grant=${token}`);
        assert.equal(status, 403, path);
    }
    assert.equal(upstream.asked.length, 0);
});

test("pages of other sites spend nothing", async (t) => {
    const upstream = await startUpstream(t);
    const flags = ["--proxy", `/v1=${upstream.url}`, "--allow-origin", "https://good.test"];
    const server = await startServer(t, flags);
    const origin = `http://localhost:${new URL(server.base).port}`;
    for (const [headers, wanted] of [
        [{ Origin: "https://evil.test" }, 403],
        [{ "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors" }, 403],
        [{ Origin: "null" }, 403],
        [{ Origin: "https://good.test", "Sec-Fetch-Site": "cross-site" }, 200],
        [{ Origin: origin, Host: origin.slice("http://".length) }, 200],
        [{ "Sec-Fetch-Site": "same-origin" }, 200],
        [{}, 200],
    ])
        for (const method of ["GET", "POST", "DELETE"]) {
            const got = await server.request(method, "/v1/x", { headers });
            assert.equal(got.status, wanted, `${method} ${JSON.stringify(headers)}`);
        }
    assert.equal(upstream.asked.length, 12);
    assert.ok(upstream.asked.every(({ headers }) => headers.origin === undefined));
    const preflight = await server.request("OPTIONS", "/v1/files/1", {
        headers: {
            origin: "https://good.test",
            "access-control-request-method": "DELETE",
            "access-control-request-headers": "x-stainless-lang",
        },
    });
    assert.equal(preflight.status, 204);
    assert.match(preflight.headers["access-control-allow-methods"], /DELETE/);
    assert.equal(preflight.headers["access-control-allow-headers"], "x-stainless-lang");
    assert.equal(upstream.asked.length, 12, "a preflight is answered here");
});

test("access explain knows prefixes and parameters", async (t) => {
    const file = join(await tempFolder(t), "tidemark.ini");
    await writeFile(
        file,
        `[route /v1]
prefix = yes
upstream = http://u
[route /m/{model}:go]
upstream = http://u/{model}
${caller("ann", "call route:/v1/batches", "generate route:/m/*")}`,
    );
    const explain = async (method, path) => {
        const args = ["access", "explain", "--config", file, "--caller", "ann", method, path];
        const { code, stdout } = await tidemark(t, args);
        return [code, stdout];
    };
    for (const [method, path, code, said] of [
        ["GET", "/v1/batches", 0, /prefix\.call: needs `call route:\/v1\/batches`/],
        ["GET", "/v1/%62atches", 0, /allowed/],
        ["GET", "/v1/files", 1, /this would allow it: `grant = call route:\/v1\/files`/],
        ["GET", "/v1/../x", 1, /not well encoded/],
        ["POST", "/v1/batches", 1, /needs `generate route:\/v1\/batches`/],
        ["POST", "/m/gemini:go", 0, /needs `generate route:\/m\/gemini:go`/],
        ["POST", "/v1/stream/x", 1, /stream\.append/],
    ]) {
        const [got, stdout] = await explain(method, path);
        assert.equal(got, code, `${method} ${path}: ${stdout}`);
        assert.match(stdout, said, `${method} ${path}`);
    }
});
