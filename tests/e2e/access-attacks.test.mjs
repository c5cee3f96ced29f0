// SPDX-License-Identifier: Apache-2.0
// What an attack of the finished server has found, each a test.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until, within } from "./lib/wait.mjs";

const bearer = (token) => ({ authorization: `Bearer ${token}` });
const as = (caller) => bearer(`token-of-${caller}`);

/** A caller's section; `token` is what he shows. */
function section(name, grants, token = `token-of-${name}`) {
    const digest = createHash("sha256").update(token).digest("hex");
    return `[caller ${name}]\ntoken-sha256 = ${digest}\n${grants.map((line) => `grant = ${line}\n`).join("")}`;
}

/** A server with these sections; `reload` gives it others. */
async function start(t, sections) {
    const file = join(await tempFolder(t), "tidemark.ini");
    await writeFile(file, sections.join(""));
    const server = await startServer(t, ["--config", file]);
    let reloads = 0;
    server.reload = async (...others) => {
        await writeFile(file, others.join(""));
        process.kill(server.pid, "SIGHUP");
        reloads++;
        await until(() => server.stderr.split("SIGHUP:").length > reloads);
    };
    return server;
}

/** A live reader; `ended` is kept when its answer is over. */
async function follow(t, server, name, headers) {
    const abort = new AbortController();
    t.after(() => abort.abort());
    const answer = await fetch(server.url(name, "?offset=-1&live=sse"), { headers, signal: abort.signal });
    assert.equal(answer.status, 200);
    const reader = { over: false };
    reader.ended = (async () => {
        try {
            for await (const bytes of answer.body) void bytes;
        } catch {
            // cut off, or by the end of the test
        }
        reader.over = true;
    })();
    return reader;
}

async function mint(server, caller, order) {
    const answer = await server.request("POST", "/v1/access/grants", {
        headers: { "content-type": "application/json", ...as(caller) },
        body: JSON.stringify(order),
    });
    assert.equal(answer.status, 201, answer.text);
    return JSON.parse(answer.text).token;
}

const claimsOf = (token) => JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
const read = async (server, name, headers) => (await server.request("GET", `/v1/stream/${name}`, { headers })).status;

test("a reload that takes something away ends the answers that it allowed, and no others", async (t) => {
    const op = section("op", ["read, create a/**", "mint server"]);
    const removed = section("removed", ["read a/**"]);
    const server = await start(t, [op, removed, section("renewed", ["read a/**"]), section("narrowed", ["read **"])]);
    const created = await server.request("PUT", "/v1/stream/a/1", { headers: as("op") });
    assert.equal(created.status, 201, created.text);
    const readers = {};
    for (const name of ["op", "removed", "renewed", "narrowed"])
        readers[name] = await follow(t, server, "a/1", as(name));

    await server.reload(op, section("renewed", ["read a/**"], "another"), section("narrowed", ["read b/**"]));
    for (const name of ["removed", "renewed", "narrowed"]) await within(readers[name].ended, `the end of ${name}`);
    assert.equal(readers.op.over, false);
});

test("answers to nobody in particular end when he may do less, and all do that began before access", async (t) => {
    const op = section("op", ["read, create, append **"]);
    const anonymous = (what) => `[anonymous]\ngrant = ${what}\n`;
    const server = await start(t, [op, anonymous("read a/**")]);
    const named = (name) => `/v1/stream/${name}`;
    for (const name of ["a/1", "b/1"])
        assert.equal((await server.request("PUT", named(name), { headers: as("op") })).status, 201);
    const [nobody, known] = [await follow(t, server, "a/1", {}), await follow(t, server, "a/1", as("op"))];
    await server.reload(op, anonymous("read a/** b/**"));
    await new Promise((resolve) => setTimeout(resolve, 1500)); // answers would have ended by then
    assert.deepEqual([nobody.over, known.over], [false, false]);
    await server.reload(op, anonymous("read b/**"));
    await within(nobody.ended, "the end of what nobody may read");
    assert.equal(known.over, false);
    const other = await follow(t, server, "b/1", {});
    await server.reload(op);
    await within(other.ended, "the end of all that is not granted");
    assert.equal(known.over, false);

    const open = await start(t, []);
    assert.equal((await open.request("PUT", named("a/1"))).status, 201);
    const early = await follow(t, open, "a/1", {});
    await open.reload(op);
    await within(early.ended, "the end of what began without access");
    assert.equal(await read(open, "a/1", {}), 401);
    assert.equal(await read(open, "a/1", as("op")), 200);
});

test("access that a reload switches on has its routes at once, and none where it is off", async (t) => {
    const op = section("op", ["read, create **", "mint, revoke server", "erase **"]);
    const server = await start(t, []);
    const ask = async (method, path, body, headers = {}) =>
        (await server.request(method, `/v1/access/${path}`, { headers, body: body && JSON.stringify(body) })).status;
    const order = { actions: ["read"], on: ["a/**"] };
    const all = async (headers) => [
        await ask("POST", "grants", order, headers),
        await ask("POST", "revocations", { jti: "none" }, headers),
        await ask("DELETE", "roots/nothing", undefined, headers),
    ];
    assert.deepEqual(await all({}), [404, 404, 404]);
    assert.equal((await server.request("PUT", "/v1/stream/a/1")).status, 201);
    await server.reload(op);
    assert.deepEqual(await all({}), [401, 401, 401]);
    await until(async () => (await ask("POST", "grants", order, as("op"))) === 201, "a key to sign with");
    const token = await mint(server, "op", order);
    assert.equal(await read(server, "a/1", bearer(token)), 200);
    assert.equal(await ask("POST", "revocations", { jti: claimsOf(token).jti }, as("op")), 204);
    assert.equal(await read(server, "a/1", bearer(token)), 401);
    assert.equal(await ask("DELETE", "roots/a", undefined, as("op")), 200);
    assert.equal(await read(server, "a/1", as("op")), 404);
    await server.reload("");
    assert.deepEqual(await all({}), [404, 404, 404]);
    await server.reload(op);
    assert.equal(await read(server, "a/1", bearer(token)), 401, "it stays revoked");
});

test("what a caller has minted is no more than he may now", async (t) => {
    const server = await start(t, [section("op", ["read, create **", "mint server"])]);
    assert.equal((await server.request("PUT", "/v1/stream/a/1", { headers: as("op") })).status, 201);
    assert.equal((await server.request("PUT", "/v1/stream/b/1", { headers: as("op") })).status, 201);
    const [a, b] = [
        await mint(server, "op", { actions: ["read"], on: ["a/**"] }),
        await mint(server, "op", { actions: ["read"], on: ["b/**"] }),
    ];
    assert.deepEqual([await read(server, "a/1", bearer(a)), await read(server, "b/1", bearer(b))], [200, 200]);
    const reader = await follow(t, server, "a/1", bearer(a));

    await server.reload(section("op", ["read b/**", "mint server"]));
    assert.deepEqual([await read(server, "a/1", bearer(a)), await read(server, "b/1", bearer(b))], [401, 200]);
    await within(reader.ended, "the end of the answer");
});

test("whoever works on one session is told of no other", async (t) => {
    const sections = ["[session]\nhandler = echo\n", section("all", ["work session:**"])];
    const server = await start(t, [...sections, section("one", ["work session:mine"])]);
    const ask = async (caller, path) => (await server.request("GET", path, { headers: as(caller) })).status;
    assert.equal(await ask("all", "/v1/session/"), 200);
    assert.equal(await ask("all", "/v1/session/other"), 404);
    assert.equal(await ask("one", "/v1/session/mine"), 404);
    assert.equal(await ask("one", "/v1/session/"), 403);
    assert.equal(await ask("one", "/v1/session/other"), 403);
});

test("a tenant's subscription is nobody else's, also while it has no streams", async (t) => {
    const tenant = section("tenant", ["subscribe, webhook **"]) + "root = t/1/\n";
    const server = await start(t, [tenant, section("other", ["subscribe */pub"])]);
    const at = "/v1/stream/__ds/subscriptions/";
    const ask = (caller, method, path, body) =>
        server.request(method, at + path, {
            headers: { "content-type": "application/json", ...as(caller) },
            body: body && JSON.stringify(body),
        });
    const webhook = { url: "https://hooks.example/secret" };
    const made = await ask("tenant", "PUT", "w", { type: "webhook", streams: ["a"], webhook });
    assert.equal(made.status, 201, made.text);
    assert.equal((await ask("tenant", "DELETE", "w/streams/a")).status, 204);

    const seen = await ask("other", "GET", "t%2F1%2Fw");
    assert.equal(seen.status, 404, seen.text);
    await ask("other", "DELETE", "t%2F1%2Fw");
    assert.equal((await ask("tenant", "GET", "w")).status, 200);
});

test("a credential is one whatever blanks stand in it, and nobody's if it is not good", async (t) => {
    const open = "[anonymous]\ngrant = read public/**\n";
    const server = await start(t, [section("op", ["read, create **"]), open]);
    assert.equal((await server.request("PUT", "/v1/stream/public/a", { headers: as("op") })).status, 201);
    assert.equal(await read(server, "public/a", {}), 200);
    for (const blanks of [" ", "  ", "\t", " \t"]) {
        const shown = (token) => ({ authorization: `Bearer${blanks}${token}` });
        assert.equal(await read(server, "public/a", shown("nobodys")), 401, JSON.stringify(blanks));
        assert.equal(await read(server, "public/a", shown("token-of-op")), 200, JSON.stringify(blanks));
    }
});

test("the audit tells where a bad credential came from", async (t) => {
    const audit = join(await tempFolder(t), "audit.jsonl");
    const server = await start(t, [`audit = ${audit}\n`, section("op", ["read **"])]);
    assert.equal(await read(server, "a", bearer("nobodys")), 401);
    const lines = () => (existsSync(audit) ? readFileSync(audit, "utf8").split("\n").filter(Boolean) : []);
    const [line] = await until(() => lines().length > 0 && lines(), "the audit");
    const { event, ip } = JSON.parse(line);
    assert.deepEqual({ event, ip }, { event: "auth-failed", ip: "127.0.0.1" });
});
