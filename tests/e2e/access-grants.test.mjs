// SPDX-License-Identifier: Apache-2.0
// Grants that a backend mints, links, revocation, the audit. The numbers are those of the attacks in
// docs/security.md.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { H2 } from "./lib/h2.mjs";
import { AUD, ISS, Jwks, makeKey, mint as mintOf } from "./lib/issuer.mjs";
import { startRedis } from "./lib/redis.mjs";
import { TIDEMARK } from "./lib/session-schema.mjs";
import { Code, Peer, Session } from "./lib/session.mjs";
import { freePort, startServer } from "./lib/server.mjs";
import { SseParser } from "./lib/sse.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until, within } from "./lib/wait.mjs";

const HERE_MS = 1000; // by when answers end on the server that was told ...
const THERE_MS = 5000; // ... and on others
const SLACK_MS = 1000; // for a busy machine

const EVERYTHING = "read, append, create, close, delete, list, erase, subscribe";
const CALLERS = {
    backend: ["read, append, create, close, delete chats/**", "session session:**", "mint, revoke server"],
    operator: [`${EVERYTHING} **`, "mint, revoke server"],
    tenant: { root: "t/acme/", grants: [`${EVERYTHING} **`, "mint, revoke server"], live: 50 },
    reader: ["read chats/**"],
};
const bearer = (token) => ({ authorization: `Bearer ${token}` });
const as = (caller) => bearer(`token-of-${caller}`);
const payload = (token) => JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
const now = () => Math.floor(Date.now() / 1000);

async function configure(folder, { audit, session } = {}) {
    let text = audit ? `audit = ${audit}\n` : "";
    if (session) text += "[session]\nhandler = echo\n";
    for (const [name, given] of Object.entries(CALLERS)) {
        const { grants = given, ...settings } = Array.isArray(given) ? {} : given;
        const digest = createHash("sha256").update(`token-of-${name}`).digest("hex");
        text += `[caller ${name}]\ntoken-sha256 = ${digest}\n`;
        for (const [key, value] of Object.entries(settings)) text += `${key} = ${value}\n`;
        for (const grant of grants) text += `grant = ${grant}\n`;
    }
    const file = join(folder, "tidemark.ini");
    await writeFile(file, text);
    return file;
}

/** A server with these callers, and its audit. */
async function start(t, { flags = [], session, ...options } = {}) {
    const folder = await tempFolder(t);
    const audit = join(folder, "audit.jsonl");
    await writeFile(audit, "");
    const config = await configure(folder, { audit, session });
    const server = await startServer(t, ["--config", config, ...flags], options);
    server.auditText = () => readFileSync(audit, "utf8");
    server.audit = () => server.auditText().split("\n").filter(Boolean).map((l) => JSON.parse(l));
    return server;
}

/** Asks over HTTP/1.1, or over HTTP/2. */
const wires = [
    ["HTTP/1.1", (t, server) => server],
    ["HTTP/2", (t, server) => new H2(t, server)],
];

async function post(wire, path, headers, body) {
    return wire.request("POST", path, {
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify(body),
    });
}

const ask = (wire, caller, order) => post(wire, "/v1/access/grants", as(caller), order);

async function mint(wire, caller, order) {
    const answer = await ask(wire, caller, { actions: ["read"], on: ["chats/**"], ...order });
    assert.equal(answer.status, 201, answer.text);
    return JSON.parse(answer.text).token;
}

async function revoke(wire, what, caller = "operator") {
    const answer = await post(wire, "/v1/access/revocations", as(caller), what);
    assert.equal(answer.status, 204, answer.text);
}

async function create(wire, name, body = "one") {
    const headers = { "content-type": "text/plain", ...as("operator") };
    const answer = await wire.stream("PUT", name, { headers, body });
    assert.equal(answer.status, 201, answer.text);
}

/** A live reader: `data` so far, `ended` at its end. */
async function follow(t, server, name, headers, query = "") {
    const abort = new AbortController();
    t.after(() => abort.abort());
    const answer = await fetch(server.url(name, `?offset=-1&live=sse${query}`), {
        headers,
        signal: abort.signal,
    });
    assert.equal(answer.status, 200);
    const parser = new SseParser();
    const decoder = new TextDecoder();
    const reader = { data: [], last: "-1" };
    reader.ended = (async () => {
        for await (const bytes of answer.body)
            for (const event of parser.feed(decoder.decode(bytes, { stream: true }))) {
                if (event.event === "data") reader.data.push(event.data);
                if (event.event === "control") reader.last = JSON.parse(event.data).streamNextOffset;
            }
        reader.over = Date.now();
    })();
    reader.ended.catch(() => {});
    return reader;
}

for (const [name, over] of wires) {
    test(`19: two credentials at once are refused, ${name}`, async (t) => {
        const server = await start(t);
        const wire = over(t, server);
        await create(server, "chats/1");
        const token = await mint(wire, "backend");
        const link = await mint(wire, "backend", { link: true });
        const cookie = { cookie: `__Host-tidemark=${token}` };
        const tries = [
            ["", { ...bearer(token), ...cookie }],
            [`&grant=${link}`, bearer(token)],
            [`&grant=${link}`, cookie],
            [`&grant=${link}&grant=${link}`, {}],
            ["", { ...bearer(token), "tidemark-authorization": `Bearer ${token}` }],
            ["", { cookie: `__Host-tidemark=${token}; __Secure-tidemark=${token}` }],
        ];
        for (const [query, headers] of tries) {
            const answer = await wire.stream("GET", `chats/1?offset=-1${query}`, { headers });
            assert.equal(answer.status, 400, `${query} ${JSON.stringify(headers)}`);
            assert.ok(!answer.text.includes(link));
        }
        for (const headers of [bearer(token), cookie]) {
            const answer = await wire.stream("GET", "chats/1?offset=-1", { headers });
            assert.equal(answer.status, 200);
        }
    });

    test(`31: nobody mints more than he has, ${name}`, async (t) => {
        const server = await start(t);
        const wire = over(t, server);
        const wider = [
            ["backend", { actions: ["list"], on: ["chats/**"] }],
            ["backend", { actions: ["read", "erase"], on: ["chats/1"] }],
            ["backend", { actions: ["read"], on: ["**"] }],
            ["backend", { actions: ["read"], on: ["chats/**", "other/1"] }],
            ["backend", { actions: ["read"], on: ["chat"] }],
            ["backend", { actions: ["admin"], on: ["server"] }],
            ["backend", { actions: ["append"], on: ["chats/1"], link: true }],
            ["tenant", { actions: ["read"], on: ["x"], limits: { live: 51 } }],
            ["reader", { actions: ["read"], on: ["chats/1"] }],
        ];
        for (const [caller, order] of wider) {
            const answer = await ask(wire, caller, order);
            assert.equal(answer.status, 403, `${caller} ${JSON.stringify(order)}: ${answer.text}`);
            assert.equal(JSON.parse(answer.text).error.code, "FORBIDDEN");
        }
        const malformed = [
            {},
            { actions: [], on: ["chats/1"] },
            { actions: ["fly"], on: ["chats/1"] },
            { actions: ["read"], on: ["chats/**/x"] },
            { actions: ["read"], on: ["chats/1"], expires_in: 0 },
            { actions: ["read"], on: ["chats/1"], expires_in: 3601 },
            { actions: ["read"], on: ["chats/1"], expires_in: 1801, link: true },
            { actions: ["read"], on: ["chats/1"], root: "t/other/" },
        ];
        for (const order of malformed) {
            const answer = await ask(wire, "backend", order);
            assert.equal(answer.status, 400, `${JSON.stringify(order)}: ${answer.text}`);
        }
        // A child of a child: never longer, never wider, and not by a link.
        const order = { actions: ["read"], on: ["chats/1"] };
        const reads = await mint(wire, "backend", { expires_in: 100 });
        const without = await post(wire, "/v1/access/grants", bearer(reads), order);
        assert.equal(without.status, 403);
        const mints = { actions: ["mint"], on: ["server"] };
        const minter = await mint(wire, "backend", { ...mints, expires_in: 100 });
        for (const [more, status] of [
            [{ ...mints, expires_in: 200 }, 403],
            [order, 403],
            [mints, 201],
        ]) {
            const answer = await post(wire, "/v1/access/grants", bearer(minter), more);
            assert.equal(answer.status, status, `${JSON.stringify(more)}: ${answer.text}`);
        }
        const link = await mint(wire, "backend", { link: true });
        const byLink = await wire.request("POST", `/v1/access/grants?grant=${link}`, {
            headers: { "content-type": "application/json" },
            body: JSON.stringify(order),
        });
        assert.equal(byLink.status, 403);
        // The tenant's child stays below his root, with his limits.
        const tenants = payload(await mint(wire, "tenant", { on: ["x"] }));
        assert.equal(tenants.root, "t/acme/");
        assert.equal(tenants.authorization_details[0].limits.live, 50);
        const less = await mint(wire, "tenant", { on: ["x"], limits: { live: 2 } });
        assert.equal(payload(less).authorization_details[0].limits.live, 2);
    });

    test(`35: a link is for reading what it names, and stands nowhere, ${name}`, async (t) => {
        const server = await start(t, { flags: ["--trace-level", "debug"] });
        const wire = over(t, server);
        await create(server, "chats/1");
        await create(server, "chats/2");
        const link = await mint(wire, "backend", { on: ["chats/1"], link: true, expires_in: 3 });
        const secret = link.split(".")[2];
        const answers = [];
        const go = async (method, path, options) => {
            const answer = await wire.request(method, path, options);
            answers.push(JSON.stringify(answer.headers) + answer.text);
            return answer.status;
        };
        assert.equal(await go("GET", `/v1/stream/chats/1?offset=-1&grant=${link}`), 200);
        assert.equal(await go("HEAD", `/v1/stream/chats/1?grant=${link}`), 200);
        const text = { headers: { "content-type": "text/plain" }, body: "x" };
        for (const method of ["POST", "PUT", "DELETE"])
            assert.equal(await go(method, `/v1/stream/chats/1?grant=${link}`, text), 403, method);
        assert.equal(await go("GET", `/v1/stream/chats/2?grant=${link}`), 403);
        assert.equal(await go("GET", `/v1/stream/?grant=${link}`), 403);
        assert.equal(await go("POST", `/mcp?grant=${link}`, { ...text, body: "{}" }), 403);
        assert.equal(await go("GET", `/nowhere?grant=${link}`), 404);
        // As a bearer, and an access token as a link, either is none (15).
        const token = await mint(wire, "backend");
        assert.equal(await go("GET", "/v1/stream/chats/1", { headers: bearer(link) }), 401);
        assert.equal(await go("GET", `/v1/stream/chats/1?grant=${token}`), 401);
        assert.equal(await go("GET", `/v1/stream/chats/1?grant=${link}x`), 401);
        await delay(Math.max(0, payload(link).exp * 1000 - Date.now() + 50));
        assert.equal(await go("GET", `/v1/stream/chats/1?offset=-1&grant=${link}`), 401);
        const metrics = await server.request("GET", "/metrics");
        await until(() => server.audit().some(({ cause }) => /expired/.test(cause)), "the audit");
        for (const shown of [...answers, server.stderr, server.auditText(), metrics.text])
            assert.ok(!shown.includes(secret), shown.slice(0, 300));
        assert.ok(!server.auditText().includes("grant="));
    });
}

test("37: a cookie is for reading, from our own pages", async (t) => {
    const server = await start(t);
    await create(server, "chats/1");
    const token = await mint(server, "backend", { actions: ["read", "append", "delete"] });
    const get = (headers) =>
        server.stream("GET", "chats/1?offset=-1", {
            headers: { cookie: `__Secure-tidemark=${token}`, ...headers },
        });
    assert.equal((await get({})).status, 200);
    assert.equal((await get({ origin: server.base })).status, 200);
    assert.equal((await get({ origin: "https://evil.example" })).status, 403);
    assert.equal((await get({ origin: "null" })).status, 403);
    for (const method of ["POST", "DELETE"]) {
        const answer = await server.stream(method, "chats/1", {
            headers: { cookie: `__Host-tidemark=${token}`, "content-type": "text/plain" },
            body: method === "POST" ? "x" : undefined,
        });
        assert.equal(answer.status, 403);
        assert.equal(answer.json().error.code, "FORBIDDEN");
    }
    assert.equal((await get({})).text, "one");
});

/** Readers of all kinds with one token. */
async function attach(t, server, token, n) {
    const headers = bearer(token);
    const h2 = new H2(t, server);
    const all = [];
    for (let i = 0; i < n; i++) {
        all.push((await follow(t, server, "chats/1", headers)).ended);
        const stream = h2.open("GET", "/v1/stream/chats/1?offset=now&live=sse", { headers });
        assert.equal((await within(stream.reply, "a head"))[":status"], 200);
        all.push(stream.done);
        all.push(server.stream("GET", "chats/1?offset=now&live=long-poll", { headers }));
    }
    return all;
}

test("32: what is revoked ends, here and on another server", async (t) => {
    const redis = await startRedis(t);
    const flags = ["--store", redis.url, "--long-poll-timeout", "60s", "--max-streams", "200"];
    const one = await start(t, { flags });
    const two = await start(t, { flags });
    await until(async () => (await ask(one, "backend", {})).status === 400, "the key");
    await create(one, "chats/1");
    await create(one, "t/acme/chats/1");
    const ways = [
        ["jti", (p) => ({ jti: p.jti }), "backend"],
        ["subject", (p) => ({ sub: p.sub, before: now() }), "backend"],
        ["root", () => ({ root: "t/acme" }), "tenant"],
    ];
    for (const [what, entry, caller] of ways) {
        const token = await mint(one, caller);
        const both = [await attach(t, one, token, 12), await attach(t, two, token, 12)];
        const begun = Date.now();
        await revoke(one, entry(payload(token)));
        await within(Promise.all(both[0]), `${what}: the end here`, HERE_MS + SLACK_MS);
        await within(Promise.all(both[1]), `${what}: the end there`, THERE_MS + SLACK_MS);
        t.diagnostic(`${what}: all over after ${Date.now() - begun} ms`);
        for (const server of [one, two]) {
            const again = await server.stream("GET", "chats/1", { headers: bearer(token) });
            assert.equal(again.status, 401);
        }
        await until(() => now() > payload(token).iat, "another second");
        await delay(1000); // tokens of the second in which a subject was revoked are revoked
        const fresh = await mint(one, caller);
        const good = await two.stream("GET", "chats/1", { headers: bearer(fresh) });
        assert.equal(good.status, 200, what);
    }
});

test("32: duplex sessions end with permission_denied", async (t) => {
    const redis = await startRedis(t);
    const flags = ["--store", redis.url];
    const one = await start(t, { flags, session: true });
    const two = await start(t, { flags, session: true });
    await until(async () => (await ask(one, "backend", {})).status === 400, "the key");
    const token = await mint(one, "backend", { actions: ["session"], on: ["session:**"] });
    const open = async (server, protocol) => {
        const session = new Session(TIDEMARK);
        const headers = { ...session.headers(), ...bearer(token) };
        const call = new Peer(t, server, { protocol }).open(session, { headers });
        await call.chunk(1, "hello").welcomed();
        return { call, session };
    };
    const all = [];
    for (const server of [one, two])
        for (const protocol of ["connect", "grpc"])
            for (let i = 0; i < 5; i++) all.push(await open(server, protocol));
    await revoke(one, { jti: payload(token).jti });
    for (const { call } of all) {
        const error = await call.ended();
        assert.equal(error.code, Code.PermissionDenied, String(error));
    }
    const { session } = all[0];
    const headers = { ...session.headers(), ...bearer(token) };
    const again = new Peer(t, one).open(session, { headers }).chunk(1, "hello");
    assert.equal((await again.ended()).code, Code.Unauthenticated);
});

test("32: a child dies with its parent, and theirs with both", async (t) => {
    const server = await start(t);
    await create(server, "chats/1");
    const order = { actions: ["mint"], on: ["server"] };
    const mixed = async (headers) => {
        const answer = await post(server, "/v1/access/grants", headers, order);
        assert.equal(answer.status, 201, answer.text);
        return JSON.parse(answer.text).token;
    };
    const parent = await mixed(as("backend"));
    const child = await mixed(bearer(parent));
    const grandchild = await mixed(bearer(child));
    assert.deepEqual(payload(grandchild).par, [payload(parent).jti, payload(child).jti]);
    assert.ok(payload(grandchild).exp <= payload(parent).exp);
    await revoke(server, { jti: payload(parent).jti });
    for (const token of [parent, child, grandchild]) {
        const answer = await post(server, "/v1/access/grants", bearer(token), order);
        assert.equal(answer.status, 401);
    }
});

test("32: a tenant revokes his own, and nobody else's", async (t) => {
    const server = await start(t);
    await create(server, "chats/1");
    const token = await mint(server, "backend");
    await revoke(server, { jti: payload(token).jti }, "tenant");
    await revoke(server, { sub: "backend" }, "tenant");
    const answer = await server.stream("GET", "chats/1", { headers: bearer(token) });
    assert.equal(answer.status, 200);
    const own = await mint(server, "tenant");
    await revoke(server, { sub: "tenant" }, "tenant");
    assert.equal((await server.stream("GET", "chats/1", { headers: bearer(own) })).status, 401);
});

test("33: a stream that is read through its expiry, and on with a new link", async (t) => {
    const server = await start(t);
    await create(server, "chats/1", "0 ");
    const order = { on: ["chats/1"], link: true };
    const first = await mint(server, "backend", { ...order, expires_in: 2 });
    const expires_ms = payload(first).exp * 1000;
    const one = await follow(t, server, "chats/1", {}, `&grant=${first}`);
    let n = 1;
    const writing = (async () => {
        while (Date.now() < expires_ms + 1500) {
            const headers = as("operator");
            await server.append("chats/1", `${n++} `, "text/plain", headers);
            await delay(20);
        }
    })();
    await within(one.ended, "the end", 10_000);
    assert.ok(one.over >= expires_ms - 50, "not before it has expired");
    assert.ok(one.over <= expires_ms + HERE_MS + SLACK_MS, `${one.over - expires_ms} ms late`);
    const path = `chats/1?offset=${one.last}&live=sse`;
    assert.equal((await server.stream("GET", `${path}&grant=${first}`)).status, 401);
    await writing;
    const second = await mint(server, "backend", order);
    const rest = await server.stream("GET", `chats/1?offset=${one.last}&grant=${second}`);
    assert.equal(rest.status, 200);
    const all = Array.from({ length: n }, (_, i) => `${i} `).join("");
    assert.equal(one.data.join("") + rest.text, all);
});

test("34: revocations are kept over a restart, whatever the clock says", async (t) => {
    const data = join(await tempFolder(t), "data");
    const port = await freePort();
    const first = await start(t, { data, port });
    await create(first, "chats/1");
    const token = await mint(first, "backend", { expires_in: 3600 });
    const kept = await mint(first, "backend", { expires_in: 3600 });
    await revoke(first, { jti: payload(token).jti });
    await first.stop();
    const second = await start(t, { data, port });
    const read = async (with_) =>
        (await second.stream("GET", "chats/1", { headers: bearer(with_) })).status;
    await until(async () => (await read(kept)) !== 503, "the deny list");
    assert.equal(await read(kept), 200, "the key is the same");
    assert.equal(await read(token), 401);
    const count = await second.request("GET", "/v1/access/revocations", { headers: as("operator") });
    assert.deepEqual(count.json(), { entries: 1, limit: 100000 });
});

// The bound itself, with the clock set back, is tried in tests/unit/stream/test_revocations.c; with 100,000 of them
// here by `make attacks`.
const REVOCATIONS = Number(process.env.TIDEMARK_REVOCATIONS ?? 2_000);

test(`34: ${REVOCATIONS} revocations, killed and started again`, { timeout: 600_000 }, async (t) => {
    const data = join(await tempFolder(t), "data");
    const port = await freePort();
    const first = await start(t, { data, port });
    await create(first, "chats/1");
    const tokens = [];
    for (let i = 0; i < 3; i++) tokens.push(await mint(first, "backend", { expires_in: 3600 }));
    const h2 = new H2(t, first);
    const jtis = Array.from({ length: REVOCATIONS - 2 }, (_, i) => `made-up-${i}`);
    jtis.splice(0, 0, payload(tokens[0]).jti);
    jtis.push(payload(tokens[1]).jti);
    const tally = {};
    const work = jtis.values();
    const run = async () => {
        for (const jti of work) {
            const { status } = await post(h2, "/v1/access/revocations", as("operator"), { jti });
            tally[status] = (tally[status] ?? 0) + 1;
        }
    };
    await Promise.all(Array.from({ length: 50 }, run));
    const over = Math.max(0, REVOCATIONS - 100_000);
    assert.deepEqual(tally, over > 0 ? { 204: 100_000, 507: over } : { 204: REVOCATIONS });
    if (over > 0) assert.equal((await post(h2, "/v1/access/revocations", as("operator"), { sub: "x" })).status, 507);
    await first.kill();
    const second = await start(t, { data, port });
    const read = async (token) => (await second.stream("GET", "chats/1", { headers: bearer(token) })).status;
    await until(async () => (await read(tokens[2])) !== 503, "the deny list", 60_000);
    // The last of them may be the one for whom there was no room.
    assert.deepEqual([await read(tokens[0]), await read(tokens[2])], [401, 200]);
    if (over === 0) assert.equal(await read(tokens[1]), 401);
    const count = await second.request("GET", "/v1/access/revocations", { headers: as("operator") });
    assert.deepEqual(count.json(), { entries: REVOCATIONS - over, limit: 100_000 });
});

test("an erased root: all of it, and nothing else; the audit tells", async (t) => {
    const server = await start(t);
    for (let i = 0; i < 250; i++) await create(server, `t/acme/chats/${i}`);
    await create(server, "t/acme2/x");
    const config = JSON.stringify({ type: "pull-wake", pattern: "chats/**", wake_stream: "w" });
    const subscription = (method, id, caller) => {
        const headers = { ...as(caller), "content-type": "application/json" };
        const body = method === "PUT" ? config : undefined;
        return server.request(method, `/v1/stream/__ds/subscriptions/${id}`, { headers, body });
    };
    for (let i = 0; i < 120; i++) {
        const { status, text } = await subscription("PUT", `s${i}`, "tenant");
        assert.equal(status, 201, text);
    }
    assert.equal((await subscription("PUT", "s0", "operator")).status, 201);
    const erase = (root, headers) =>
        server.request("DELETE", `/v1/access/roots/${root}`, { headers });
    assert.equal((await erase("t/acme", {})).status, 401);
    assert.equal((await erase("t/acme", as("backend"))).status, 403);
    assert.equal((await erase("t/*", as("operator"))).status, 400);
    let answer;
    await until(async () => {
        answer = await erase("t/acme", as("operator"));
        assert.ok([200, 202].includes(answer.status), answer.text);
        return answer.status === 200;
    }, "the end");
    assert.equal(answer.json().done, true);
    const headers = as("operator");
    assert.equal((await server.stream("GET", "t/acme/chats/7", { headers })).status, 404);
    assert.equal((await server.stream("GET", "t/acme2/x", { headers })).status, 200);
    for (const id of ["s0", "s119"]) assert.equal((await subscription("GET", id, "tenant")).status, 404);
    assert.equal((await subscription("GET", "s0", "operator")).status, 200);
    assert.equal((await erase("chats", as("tenant"))).status, 200);
    await until(() => server.audit().some((l) => l.event === "erased" && l.cause === "done"), "it");
    const minted = await mint(server, "backend");
    await revoke(server, { jti: payload(minted).jti });
    const lines = server.audit();
    const made = lines.find(({ event }) => event === "minted");
    assert.deepEqual([made.sub, made.jti, made.decision], ["backend", payload(minted).jti, "allow"]);
    assert.ok(lines.some(({ event, jti }) => event === "revoked" && jti === payload(minted).jti));
    const denied = lines.find(({ event, sub }) => event === "denied" && sub === "backend");
    assert.equal(denied.decision, "deny");
});

test("an erasure goes on after a crash", async (t) => {
    const data = join(await tempFolder(t), "data");
    const port = await freePort();
    const first = await start(t, { data, port });
    for (let i = 0; i < 2000; i += 50)
        await Promise.all(Array.from({ length: 50 }, (_, j) => create(first, `t/acme/${i + j}`)));
    const headers = as("operator");
    const asked = first.request("DELETE", "/v1/access/roots/t/acme", { headers }).catch(() => {});
    const gone = async (server) =>
        (await server.stream("GET", "t/acme/0", { headers })).status === 404;
    await until(() => gone(first), "the first to go");
    await first.kill();
    await asked;
    const second = await start(t, { data, port });
    const last = async () => (await second.stream("GET", "t/acme/999", { headers })).status;
    t.diagnostic(`the last of them at the restart: ${await last()}`);
    await until(async () => (await last()) === 404, "the others to go");
    const again = await second.request("DELETE", "/v1/access/roots/t/acme", { headers });
    assert.deepEqual(again.json(), { removed: again.json().removed, done: true });
});

test("the audit: who is refused, from where, and what no request has asked for", async (t) => {
    const folder = await tempFolder(t);
    const audit = join(folder, "audit.jsonl");
    await writeFile(audit, "");
    const digest = createHash("sha256").update("token-of-a").digest("hex");
    const key = makeKey("ES256", "k-1");
    const jwks = await Jwks.start(t, [key]);
    const file = join(folder, "tidemark.ini");
    await writeFile(
        file,
        `audit = ${audit}\npublic-url = ${AUD}\n[caller a]\ntoken-sha256 = ${digest}\nroot = t/a/\nstreams = 1\n` +
            "grant = create, read, subscribe, webhook **\ngrant = metrics server\n" +
            `[caller b]\ntoken-sha256 = ${createHash("sha256").update("token-of-b").digest("hex")}\nrate = 1\ngrant = read **\n` +
            `[issuer idp]\niss = ${ISS}\njwks = ${jwks.url}\ngrant = read x\n`,
    );
    const server = await startServer(t, ["--config", file]);
    const lines = () => readFileSync(audit, "utf8").split("\n").filter(Boolean).map((l) => JSON.parse(l));
    const told = (event, more = {}) =>
        until(
            () => lines().some((l) => l.event === event && Object.entries(more).every(([k, v]) => l[k] === v)),
            `a line of ${event}`,
        );
    const headers = { ...bearer("token-of-a"), "content-type": "application/json" };
    const put = (name) => server.stream("PUT", name, { headers });
    await told("keys-changed", { name: "idp", decision: "allow" });
    assert.equal((await put("one")).status, 201);
    assert.equal((await put("two")).status, 507);
    await told("quota", { cause: "quota", sub: "a", ip: "127.0.0.1", decision: "deny" });
    const body = JSON.stringify({ type: "webhook", pattern: "x/**", webhook: { url: "https://10.0.0.1/" } });
    const hook = await server.request("PUT", "/v1/stream/__ds/subscriptions/s", { headers, body });
    assert.equal(hook.status, 400, hook.text);
    await told("target-refused", { sub: "a" });
    const token = await mintOf(key);
    assert.equal((await server.stream("PUT", "x", { headers: { ...headers, ...bearer(token) } })).status, 403);
    await told("denied", { issuer: "idp", kid: "k-1", ip: "127.0.0.1", verb: "create" });
    const foreign = await server.request("GET", "/v1/stream/x", { headers: { ...headers, host: "evil.example" } });
    assert.equal(foreign.status, 421);
    await told("protected", { cause: "WRONG_HOST" });
    assert.equal((await server.stream("GET", "one", { headers: bearer("bad") })).status, 401);
    const hurried = () => server.stream("GET", "one", { headers: bearer("token-of-b") });
    const answers = await Promise.all(Array.from({ length: 20 }, hurried));
    assert.ok(answers.some(({ status }) => status === 429));
    await told("limited", { cause: "requests", sub: "b" });
    jwks.say(500, "");
    process.kill(server.pid, "SIGHUP");
    await told("keys-failed", { name: "idp", decision: "deny" });
    const { text } = await server.request("GET", "/metrics", { headers });
    for (const decision of ["allowed", "denied", "unauthenticated", "limited"])
        assert.match(text, new RegExp(`^tidemark_access_decisions_total\\{decision="${decision}"\\} [1-9]`, "m"));
    assert.ok(!readFileSync(audit, "utf8").includes("token-of-a"));
});

test("an erasure that a server has left is taken over by another one", async (t) => {
    const redis = await startRedis(t);
    const flags = ["--store", redis.url];
    const one = await start(t, { flags });
    const two = await start(t, { flags });
    for (let i = 0; i < 2000; i += 50)
        await Promise.all(Array.from({ length: 50 }, (_, j) => create(one, `t/acme/${i + j}`)));
    const headers = as("operator");
    const asked = one.request("DELETE", "/v1/access/roots/t/acme", { headers }).catch(() => {});
    const status = async (name) => (await two.stream("GET", name, { headers })).status;
    await until(async () => (await status("t/acme/0")) === 404, "the first to go");
    await one.kill();
    await asked;
    t.diagnostic(`the last of them then: ${await status("t/acme/999")}`);
    await until(async () => (await status("t/acme/999")) === 404, "the others to go", 60_000);
    await until(() => two.audit().some((l) => l.event === "erased" && l.cause === "done"), "the end", 60_000);
});
