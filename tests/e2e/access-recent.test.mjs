// SPDX-License-Identifier: Apache-2.0
// Tokens that a server has let in again and again: it looks at them at a glance, and must see all
// that changes meanwhile.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { H2 } from "./lib/h2.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const TIMES = 5; // the first are verified, and looked up
const NAME = "chats/1";
const tokenOf = (caller) => `the-long-token-of-${caller}`;
const bearer = (token) => ({ authorization: `Bearer ${token}` });
const payload = (token) => JSON.parse(Buffer.from(token.split(".")[1], "base64url"));

/** A caller's section; `token` is what he shows. */
function section(name, grants, token = tokenOf(name)) {
    const digest = createHash("sha256").update(token).digest("hex");
    return `[caller ${name}]\ntoken-sha256 = ${digest}\n${grants.map((line) => `grant = ${line}\n`).join("")}`;
}

const OPERATOR = section("operator", ["read, create, append, close **", "mint, revoke server"]);

/** A server with a stream and these sections; `reload` gives it others. */
async function start(t, sections = [], flags = []) {
    const file = join(await tempFolder(t), "tidemark.ini");
    await writeFile(file, [OPERATOR, ...sections].join(""));
    const server = await startServer(t, ["--config", file, ...flags]);
    let reloads = 0;
    server.reload = async (...others) => {
        await writeFile(file, [OPERATOR, ...others].join(""));
        process.kill(server.pid, "SIGHUP");
        reloads++;
        await until(() => server.stderr.split("SIGHUP:").length > reloads);
    };
    await server.create(NAME, "text/plain", { headers: bearer(tokenOf("operator")) });
    return server;
}

async function order(server, path, body) {
    const headers = { "content-type": "application/json", ...bearer(tokenOf("operator")) };
    const answer = await server.request("POST", path, { headers, body: JSON.stringify(body) });
    assert.ok([201, 204].includes(answer.status), answer.text);
    return answer.text;
}

async function mint(server, more = {}) {
    const wanted = { actions: ["read", "append"], on: ["chats/**"], ...more };
    return JSON.parse(await order(server, "/v1/access/grants", wanted)).token;
}

async function append(wire, headers, name = NAME) {
    const all = { "content-type": "text/plain", ...headers };
    return (await wire.stream("POST", name, { headers: all, body: "x" })).status;
}

/** It is known as well as it can be. */
async function letIn(wire, token, status = 204) {
    for (let i = 0; i < TIMES; i++) assert.equal(await append(wire, bearer(token)), status);
}

const wires = [
    ["HTTP/1.1", (t, server) => server],
    ["HTTP/2", (t, server) => new H2(t, server)],
];

for (const [version, over] of wires) {
    test(`one that is revoked is refused from then on, ${version}`, async (t) => {
        const server = await start(t);
        const wire = over(t, server);
        const tokens = [await mint(server), await mint(server), await mint(server)];
        for (const token of tokens) await letIn(wire, token);
        await order(server, "/v1/access/revocations", { jti: payload(tokens[0]).jti });
        await letIn(wire, tokens[0], 401);
        await letIn(wire, tokens[1]);
        await order(server, "/v1/access/revocations", { jti: payload(tokens[1]).jti });
        await letIn(wire, tokens[1], 401);
        await letIn(wire, tokens[2]);
        await order(server, "/v1/access/revocations", { sub: payload(tokens[2]).sub });
        await letIn(wire, tokens[2], 401);
    });

    test(`a reload counts for the next request, ${version}`, async (t) => {
        const token = tokenOf("writer");
        const server = await start(t, [section("writer", ["append chats/**"])]);
        const wire = over(t, server);
        await letIn(wire, token);
        await server.reload(section("writer", ["append notes/**"]));
        await letIn(wire, token, 403);
        await server.reload(section("writer", ["append chats/*"]));
        await letIn(wire, token);
        await server.reload(section("writer", ["append chats/**"], "another token, just as long"));
        await letIn(wire, token, 401);
        await server.reload(section("writer", ["append chats/**"]));
        await letIn(wire, token);
        await server.reload();
        await letIn(wire, token, 401);
    });

    test(`one that expires is good until then, and not a moment longer, ${version}`, async (t) => {
        const server = await start(t);
        const wire = over(t, server);
        const token = await mint(server, { expires_in: 2 });
        const expires_ms = payload(token).exp * 1000;
        let times = 0;
        for (;;) {
            const before = Date.now();
            const status = await append(wire, bearer(token));
            if (before >= expires_ms + 50) {
                assert.equal(status, 401);
                break;
            }
            if (Date.now() < expires_ms - 50) {
                assert.equal(status, 204);
                times++;
            }
            await delay(10);
        }
        assert.ok(times > 2, `it was let in ${times} times`);
    });

    test(`what else a request has is looked at each time, ${version}`, async (t) => {
        const server = await start(t, [section("writer", ["append chats/**"])]);
        const wire = over(t, server);
        const token = tokenOf("writer");
        const own = `__Host-tidemark=${token}`;
        await letIn(wire, token);
        const tries = [
            [400, { ...bearer(token), cookie: own }],
            [400, { ...bearer(token), "tidemark-authorization": `Bearer ${token}` }],
            [204, { ...bearer(token), cookie: "theme=dark" }],
            [204, { ...bearer(token), "x-api-key": token }],
            [403, { cookie: own }],
            [204, { "tidemark-authorization": `Bearer ${token}` }],
            [204, { authorization: `bearer \t ${token}` }],
            [401, { authorization: `Basic ${token}` }],
            [401, { authorization: `Bearer${token}` }],
            [401, { authorization: token }],
            [401, bearer(`${token}x`)],
            [401, bearer(token.slice(1))],
            [401, bearer(token.toUpperCase())],
            [401, {}],
            [403, { ...bearer(token), "stream-closed": "true" }],
            [204, { ...bearer(token), "stream-closed": "false" }],
        ];
        for (const [status, headers] of tries) assert.equal(await append(wire, headers), status, JSON.stringify(headers));
        const linked = await wire.stream("GET", `${NAME}?offset=-1&grant=${token}`);
        assert.equal(linked.status, 401);
        await letIn(wire, token);
    });

    test(`where Authorization is the upstream's, it is not ours, ${version}`, async (t) => {
        const grants = ["append chats/**", "generate route:/ask"];
        const server = await start(t, [section("writer", grants)], ["--route", "/ask=http://127.0.0.1:9/"]);
        const wire = over(t, server);
        const token = tokenOf("writer");
        await letIn(wire, token);
        const ask = async (headers) => (await wire.request("POST", "/ask", { headers, body: "{}" })).status;
        assert.equal(await ask(bearer(token)), 401);
        assert.equal(await ask({ "tidemark-authorization": `Bearer ${token}` }), 502);
    });

    test(`names are what they are, whoever asks, ${version}`, async (t) => {
        const server = await start(t, [section("writer", ["append chats/**"]), section("other", ["append **"])]);
        const wire = over(t, server);
        const rows = [
            ["chats/1", 204, 204],
            ["chats%2F1", 204, 204],
            ["%63hats/1", 204, 204],
            ["chats/2", 404, 404],
            ["notes", 403, 404],
            ["chats%2F%2E%2E%2Fnotes", 403, 403],
            ["chats//1", 403, 403],
            ["sessions/x", 403, 403],
            ["%73essions/x", 403, 403],
            ["chats/%00", 400, 400],
            ["chats/%ff", 400, 400],
            ["chats/%zz", 403, 403],
            [`chats/${"x".repeat(474)}`, 404, 404],
            [`chats/${"x".repeat(475)}`, 400, 400],
            [`chats/%78${"x".repeat(474)}`, 400, 400],
        ];
        for (const [name, ...statuses] of rows)
            for (const [i, caller] of ["writer", "other"].entries())
                assert.equal(await append(wire, bearer(tokenOf(caller)), name), statuses[i], `${caller} ${name}`);
    });
}

test("two Authorization headers are two credentials, however well one is known", async (t) => {
    const server = await start(t, [section("writer", ["append chats/**"])]);
    const token = tokenOf("writer");
    await letIn(server, token);
    for (const others of [[`Bearer ${token}`], ["Bearer x"], ["Basic x", `Bearer ${token}`]]) {
        const headers = ["content-type", "text/plain", "authorization", `Bearer ${token}`];
        for (const other of others) headers.push("Authorization", other);
        const answer = await server.stream("POST", NAME, { headers, body: "x" });
        assert.equal(answer.status, 400, others.join());
    }
    await letIn(server, token);
});
