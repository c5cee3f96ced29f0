// SPDX-License-Identifier: Apache-2.0
// Where the gateway's answers meet: two routes, two requests of one key, an answer without a body,
// a snapshot of what has ended; and where its paths meet those of other features.
import assert from "node:assert/strict";
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

const EVENTS = 3;

/** Answers by the query: ?status=N with an empty body, ?stay after the events never. */
async function startBackend(t) {
    const backend = createServer((request, response) => {
        const { searchParams } = new URL(request.url, "http://backend");
        request.resume();
        if (searchParams.has("status")) {
            response.writeHead(Number(searchParams.get("status"))).end();
            return;
        }
        response.writeHead(200, { "content-type": "text/event-stream" });
        for (let i = 1; i <= EVENTS; i++) response.write(`data: {"i":${i}}\n\n`);
        if (!searchParams.has("stay")) response.end();
    });
    backend.listen(0, "127.0.0.1");
    await once(backend, "listening");
    defer(t, () => {
        backend.closeAllConnections();
        backend.close();
    });
    return `http://127.0.0.1:${backend.address().port}/`;
}

async function start(t) {
    const upstream = await startBackend(t);
    const routes = ["/a", "/b"].flatMap((path) => ["--route", `${path}=${upstream}`]);
    return startServer(t, routes, { data: await tempFolder(t) });
}

/** Starts a generation; its id, and its events when it has ended. */
async function generate(server, query = "") {
    const response = await fetch(`${server.base}/a${query}`, { method: "POST" });
    assert.equal(response.status, 200);
    return { id: response.headers.get("x-correlation-id"), response };
}

test("a snapshot of what has ended has the number of the last event", async (t) => {
    const server = await start(t);
    const { id, response } = await generate(server);
    await response.text();
    const url = `${server.base}/a/${id}?from=snapshot`;
    const text = await (await fetch(url)).text();
    assert.match(text, new RegExp(`^id: ${EVENTS}\nevent: snapshot\ndata: {"i":${EVENTS}}\n\n: end\n$`, "m"));
    // Who has that is told to ask no more; who has less gets it.
    const again = (last) => fetch(url, { headers: { "last-event-id": `${last}` } });
    assert.equal((await again(EVENTS)).status, 204);
    assert.match(await (await again(1)).text(), /^event: snapshot$/m);
});

test("a generation is stopped on its own route only", async (t) => {
    const server = await start(t);
    const { id, response } = await generate(server, "?stay");
    const stop = (path) => fetch(`${server.base}${path}/${id}`, { method: "DELETE" });
    assert.equal((await stop("/b")).status, 404);
    assert.deepEqual(await (await stop("/a")).json(), { request_id: id, status: "cancelled" });
    assert.match(await response.text(), /^event: end$/m);
});

for (const status of [204, 304])
    test(`an answer ${status} passes through, and the connection goes on`, async (t) => {
        const server = await start(t);
        const raw = await openRaw(t, server);
        raw.send(`POST /a?status=${status} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n`);
        const head = `${await raw.takeThrough("\r\n\r\n")}`;
        assert.match(head, new RegExp(`^HTTP/1.1 ${status} `));
        assert.doesNotMatch(head, /^transfer-encoding/im);
        raw.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert.match(`${await raw.takeThrough("\r\n\r\n")}`, /^HTTP\/1\.1 200 /);
    });

test("a key whose answer passed through is free at once", async (t) => {
    const server = await start(t);
    const ask = () =>
        fetch(`${server.base}/a?status=429`, { method: "POST", headers: { "idempotency-key": "k" } });
    for (let i = 0; i < 50; i++) assert.equal((await ask()).status, 429);
});

/** A config file with these sections; the flags that name it. */
async function config(t, text) {
    const folder = await tempFolder(t);
    const file = join(folder, "tidemark.conf");
    await writeFile(file, text);
    return ["--config", file];
}

test("a path that two claim: exit code 2, and both are named", async (t) => {
    const lab = "[lab]\nroot = /nowhere\n";
    const cascade = "[cascade]\ntarget = http://127.0.0.1:1\ncsrf-token = x\napi-key = sk-ws-01-x\n";
    for (const [path, text, claimed, by] of [
        ["/mcp", "", "/mcp", "the tools"],
        ["/mcp/below", "", "/mcp", "the tools"],
        ["/api", lab, "/api/", "the Lab"],
        ["/lab/x", lab, "/lab", "the Lab"],
        ["/v1/chat/completions", cascade, "/v1/chat/completions", "the Cascade bridge"],
        ["/v1/models", cascade, "/v1/models", "the Cascade bridge"],
    ]) {
        const { code, stderr } = await tidemark(t, [
            ...["serve", "--listen", "127.0.0.1:0", "--store", "memory", ...(await config(t, text))],
            ...["--route", `${path}=http://127.0.0.1:1/`],
        ]);
        assert.equal(code, 2, `${path}: ${stderr}`);
        const sentence = `the path ${claimed} is claimed twice: by the gateway and by ${by}\n`;
        assert.ok(stderr.includes(sentence), `${path}: ${stderr}`);
    }
});

test("a path that two claim, in the settings of an agent's own server: exit code 2", async (t) => {
    const flags = await config(t, "[route /mcp]\nupstream = http://127.0.0.1:1/\n");
    const { code, stderr } = await tidemark(t, ["mcp", ...flags]);
    assert.equal(code, 2, stderr);
    assert.match(stderr, /the path \/mcp is claimed twice: by the gateway and by the tools\n/);
});

test("a route lives where OpenAI's API does, if no bridge does", async (t) => {
    const upstream = await startBackend(t);
    const path = "/v1/chat/completions";
    const server = await startServer(t, ["--route", `${path}=${upstream}`]);
    const response = await fetch(server.base + path, { method: "POST" });
    assert.equal(response.status, 200);
    const id = response.headers.get("x-correlation-id");
    assert.match(await response.text(), new RegExp(`^data: {"i":${EVENTS}}$`, "m"));
    const again = await (await fetch(`${server.base}${path}/${id}`)).text();
    assert.match(again, new RegExp(`^data: {"i":${EVENTS}}$`, "m"));
});
