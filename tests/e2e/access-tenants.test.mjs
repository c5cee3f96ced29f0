// SPDX-License-Identifier: Apache-2.0
// Grants and roots on every surface: what one caller may not have, and what another's names never
// show. The numbers are those of the attacks that docs/security.md lists.
import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { defer } from "./lib/defer.mjs";
import { H2 } from "./lib/h2.mjs";
import { caller, configFile } from "./lib/pages.mjs";
import { startServer } from "./lib/server.mjs";
import { Code, OldPeer, Peer, Session } from "./lib/session.mjs";
import { TIDEMARK } from "./lib/session-schema.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const STREAM_VERBS = "read, append, create, close, delete, list, fork, subscribe, webhook **";
const TENANT = [STREAM_VERBS, "session session:**", "tool tool:**", "read, append log:app"];

const as = (name) => ({ authorization: `Bearer token-of-${name}` });
const JSON_TYPE = { "content-type": "application/json" };

/** A server with two tenants, some callers with less, and an operator. */
async function startTenants(t) {
    const folder = await tempFolder(t);
    const log = join(folder, "app.jsonl");
    await writeFile(log, '{"secret":"of the log"}\n');
    const who = (name, grant, more = {}) => ({ ...caller(`token-of-${name}`), grant, ...more });
    const config = await configFile(folder, {
        "caller ada": who("ada", TENANT, { root: "t/a/" }),
        "caller bob": who("bob", TENANT, { root: "t/b/" }),
        "caller reader": who("reader", ["read chats/42/**"]),
        "caller member": who("member", [
            "read, create, list, subscribe, append chats/42/**",
            "create, append wakes",
            "tool tool:**",
            "session session:mine",
        ]),
        "caller auditor": who("auditor", ["list */log"]),
        "caller op": who("op", [STREAM_VERBS], { capabilities: "worker, tool, admin" }),
        session: { handler: "echo" },
        "log app": { path: log },
        pages: { disable: "conformance:page_gen" },
    });
    const patient = ["connections", "connection-rate", "rate"].flatMap((what) => [`--address-${what}`, "0"]);
    return startServer(t, ["--config", config, "--allow-loopback-targets", ...patient]);
}

/** A test over HTTP/1.1 and over HTTP/2. */
function attack(name, run) {
    for (const version of ["HTTP/1.1", "HTTP/2"])
        test(`${name} (${version})`, async (t) => {
            const server = await startTenants(t);
            const h2 = version === "HTTP/2" ? new H2(t, server) : null;
            const ask = async (method, path, { who, body, headers = {} } = {}) => {
                const all = { ...(who ? as(who) : {}), ...headers };
                const options = { headers: all, body };
                const answer = await (h2 ?? server).request(method, path, options);
                return { ...answer, json: () => JSON.parse(answer.text) };
            };
            const make = async (who, name, events = "[]") => {
                const headers = JSON_TYPE;
                const path = `/v1/stream/${name}`;
                const answer = await ask("PUT", path, { who, headers, body: events });
                assert.equal(answer.status, 201, answer.text);
                return answer;
            };
            await run({ t, server, ask, make });
        });
}

const ofJson = (who, value) => ({ who, headers: JSON_TYPE, body: JSON.stringify(value) });
const SUBSCRIPTIONS = "/v1/stream/__ds/subscriptions/";

function assertForbidden(answer, what) {
    assert.equal(answer.status, 403, `${what}: ${answer.text}`);
    assert.match(answer.headers["www-authenticate"], /error="insufficient_scope"/);
    assert.equal(answer.json().error.code, "FORBIDDEN");
}

attack("attack 3: no credential", async ({ ask }) => {
    const none = await ask("GET", "/v1/stream/chats/42/a");
    assert.equal(none.status, 401);
    assert.equal(none.headers["www-authenticate"], "Bearer");
    assert.equal(none.json().error.code, "UNAUTHENTICATED");
    const message = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" });
    for (const headers of [{}, { authorization: "Bearer" }]) {
        const answer = await ask("POST", "/mcp", {
            headers: { ...JSON_TYPE, ...headers },
            body: message,
        });
        assert.equal(answer.status, 401, answer.text);
        const challenge = answer.headers["www-authenticate"];
        assert.match(challenge, /^Bearer .*scope="tool"/);
        const [, url] = challenge.match(/resource_metadata="([^"]+)"/);
        assert.match(url, /\/\.well-known\/oauth-protected-resource\/mcp$/);
        assert.equal(answer.json().error.code, -32002);
    }
    for (const path of ["", "/mcp"]) {
        const answer = await ask("GET", `/.well-known/oauth-protected-resource${path}`);
        assert.equal(answer.status, 200, answer.text);
        const metadata = answer.json();
        assert.match(metadata.resource, /^http:\/\/127\.0\.0\.1:\d+\/mcp$/);
        assert.deepEqual(metadata.scopes_supported, ["tool"]);
        assert.ok(Array.isArray(metadata.authorization_servers));
    }
    for (const path of [`${SUBSCRIPTIONS}x`, "/v1/stream/", "/atd/v1/tools"])
        assert.equal((await ask("GET", path)).status, 401, path);
    const bad = await ask("GET", "/v1/stream/", { who: "nobody" });
    assert.equal(bad.headers["www-authenticate"], 'Bearer error="invalid_token"');
});

attack("attack 20: a read grant does nothing else", async ({ ask, make }) => {
    await make("op", "chats/42/a", '[{"n":1}]');
    const read = () => ask("GET", "/v1/stream/chats/42/a", { who: "reader" });
    const before = await read();
    assert.equal(before.status, 200);
    const subscription = { type: "pull-wake", pattern: "chats/42/**", wake_stream: "chats/42/w" };
    const tries = [
        ["PUT", "/v1/stream/chats/42/b", { headers: JSON_TYPE }],
        ["POST", "/v1/stream/chats/42/a", { headers: JSON_TYPE, body: "[1]" }],
        ["POST", "/v1/stream/chats/42/a", { headers: { "stream-closed": "true" } }],
        ["DELETE", "/v1/stream/chats/42/a", {}],
        ["PUT", "/v1/stream/chats/42/f", { headers: { "stream-forked-from": "chats/42/a" } }],
        ["GET", "/v1/stream/", {}],
        ["PUT", `${SUBSCRIPTIONS}s`, ofJson("reader", subscription)],
        ["GET", `${SUBSCRIPTIONS}s`, {}],
    ];
    for (const [method, path, options] of tries)
        assertForbidden(
            await ask(method, path, { ...options, who: "reader" }),
            `${method} ${path}`,
        );
    const after = await read();
    assert.equal(after.text, before.text);
    const { streams } = (await ask("GET", "/v1/stream/", { who: "op" })).json();
    assert.deepEqual(
        streams.map(({ name }) => name),
        ["chats/42/a"],
    );
});

attack("attack 21: outside the grant, there or not: one answer", async ({ ask, make }) => {
    // open, with events; closed; gone; never there
    await make("op", "chats/7/a", '[{"secret":1}]');
    await make("op", "chats/7/b");
    await ask("POST", "/v1/stream/chats/7/b", { who: "op", headers: { "stream-closed": "true" } });
    await make("op", "chats/7/c");
    assert.equal((await ask("DELETE", "/v1/stream/chats/7/c", { who: "op" })).status, 204);
    const hooks = "/v1/stream/__ds/subscriptions";
    const pull = (stream) => JSON.stringify({ type: "pull-wake", streams: [stream], wake_stream: "wakes" });
    const made = await ask("PUT", `${hooks}/a`, { who: "op", headers: JSON_TYPE, body: pull("chats/7/a") });
    assert.equal(made.status, 201, made.text);
    const kinds = {
        read: (n) => ["GET", `/v1/stream/chats/7/${n}`],
        head: (n) => ["HEAD", `/v1/stream/chats/7/${n}`],
        "at an offset": (n) => ["GET", `/v1/stream/chats/7/${n}?offset=now`],
        "long-poll": (n) => ["GET", `/v1/stream/chats/7/${n}?offset=now&live=long-poll`],
        sse: (n) => ["GET", `/v1/stream/chats/7/${n}?offset=-1&live=sse`],
        conditional: (n) => ["GET", `/v1/stream/chats/7/${n}`, { headers: { "if-none-match": "*" } }],
        append: (n) => ["POST", `/v1/stream/chats/7/${n}`, { headers: JSON_TYPE, body: "[1]" }],
        "another type": (n) => ["POST", `/v1/stream/chats/7/${n}`, { headers: { "content-type": "text/plain" }, body: "1" }],
        close: (n) => ["POST", `/v1/stream/chats/7/${n}`, { headers: { "stream-closed": "true" } }],
        create: (n) => ["PUT", `/v1/stream/chats/7/${n}`, { headers: JSON_TYPE }],
        delete: (n) => ["DELETE", `/v1/stream/chats/7/${n}`],
        fork: (n) => ["PUT", "/v1/stream/chats/42/fork", { headers: { ...JSON_TYPE, "stream-forked-from": `/v1/stream/chats/7/${n}` } }],
        subscribe: (n) => ["PUT", `${hooks}/s`, { headers: JSON_TYPE, body: pull(`chats/7/${n}`) }],
    };
    for (const who of ["reader", "member", undefined])
        for (const [kind, request] of Object.entries(kinds)) {
            const answers = [];
            for (const n of ["a", "b", "c", "d"]) {
                const [method, path, options] = request(n);
                const { status, headers, text } = await ask(method, path, { who, ...options });
                delete headers.date;
                answers.push({ status, headers: { ...headers }, text });
            }
            const what = `${kind} of ${who}`;
            assert.equal(answers[0].status, who ? 403 : 401, `${what}: ${answers[0].text}`);
            for (const answer of answers.slice(1)) assert.deepEqual(answer, answers[0], what);
        }
    // A tenant cannot even ask: what is not below its root is not there, whatever it is.
    for (const n of ["a", "d"]) assert.equal((await ask("GET", `/v1/stream/chats/7/${n}`, { who: "ada" })).status, 404);
    // Subscriptions of others, by id.
    for (const method of ["GET", "DELETE"]) {
        const [there, none] = [
            await ask(method, `${hooks}/a`, { who: "member" }),
            await ask(method, `${hooks}/b`, { who: "member" }),
        ];
        assert.deepEqual([there.status, there.text], [none.status, none.text], method);
    }
    const { text } = await ask("GET", "/v1/stream/chats/7/a", { who: "op" });
    assert.deepEqual(JSON.parse(text), [{ secret: 1 }]);
});

attack("attack 22: other spellings", async ({ ask, make }) => {
    await make("op", "chats/42x");
    await make("op", "chats/7/a");
    const names = [
        "chats/42x",
        "chats/42/../7/a",
        "chats/42/%2e%2e/7/a",
        "chats%2F7/a",
        "chats/42%252F..",
        "Chats/42/a",
        "chats//42/a",
        "chats/42/e%CC%81/../x",
        "chats/42//",
    ];
    for (const name of names) {
        const answer = await ask("GET", `/v1/stream/${name}`, { who: "reader" });
        assert.ok([400, 403, 404].includes(answer.status), `${name}: ${answer.status}`);
        assert.doesNotMatch(answer.text, /^\[/);
    }
});

attack("attack 24: forks, closing appends, bodies of creations", async ({ ask, make }) => {
    await make("op", "chats/7/secret", '[{"n":1}]');
    const fork = await ask("PUT", "/v1/stream/chats/42/f", {
        who: "member",
        headers: { "stream-forked-from": "/v1/stream/chats/7/secret" },
    });
    assertForbidden(fork, "a fork");
    await make("ada", "mine", '[{"n":"ada"}]');
    const foreign = await ask("PUT", "/v1/stream/stolen", {
        who: "bob",
        headers: { "stream-forked-from": "t/a/mine" },
    });
    assert.equal(foreign.status, 404, foreign.text);
    assert.doesNotMatch(foreign.text, /t\/b/);
    const own = await ask("PUT", "/v1/stream/copy", {
        who: "ada",
        headers: { "stream-forked-from": "mine" },
    });
    assert.equal(own.status, 201, own.text);
    await make("member", "chats/42/a");
    const closing = { ...JSON_TYPE, "stream-closed": "true" };
    const close = { who: "member", headers: closing, body: "[2]" };
    assertForbidden(await ask("POST", "/v1/stream/chats/42/a", close), "a closing append");
    const read = await ask("GET", "/v1/stream/chats/42/a", { who: "member" });
    assert.equal(read.text.trim(), "[]");
});

attack("attack 25: listings show one's own", async ({ ask, make }) => {
    const list = async (who, query = "") => {
        const answer = await ask("GET", `/v1/stream/${query}`, { who });
        assert.equal(answer.status, 200, answer.text);
        const { streams, next } = answer.json();
        return { names: streams.map(({ name }) => name), next };
    };
    for (const name of ["x/1", "x/2", "y"]) await make("ada", name);
    for (const name of ["x/3", "z"]) await make("bob", name);
    for (const name of ["chats/42", "chats/42-", "chats/42/a", "chats/42/b", "chats/42/c/d"])
        await make("op", name);
    for (const name of ["chats/41/a", "chats/42.x", "chats/420", "chats/43/a", "zz"])
        await make("op", name);
    assert.deepEqual(await list("ada"), { names: ["x/1", "x/2", "y"], next: null });
    assert.deepEqual(await list("bob"), { names: ["x/3", "z"], next: null });
    for (const query of ["?prefix=t/b/", "?prefix=t/", "?prefix=chats", "?after=z", "?after=~"])
        assert.deepEqual(await list("ada", query), { names: [], next: null }, query);
    assert.deepEqual(await list("ada", "?after=t/a/x/1"), { names: ["x/1", "x/2", "y"], next: null });
    assert.deepEqual(await list("ada", "?limit=2"), { names: ["x/1", "x/2"], next: "x/2" });
    assert.deepEqual(await list("ada", "?limit=2&after=x/2"), { names: ["y"], next: null });
    assert.deepEqual(await list("ada", "?limit=3"), { names: ["x/1", "x/2", "y"], next: null });

    const own = ["chats/42", "chats/42/a", "chats/42/b", "chats/42/c/d"];
    assert.deepEqual(await list("member"), { names: own, next: null });
    assert.deepEqual(await list("member", "?prefix=chats/43"), { names: [], next: null });
    assert.deepEqual(await list("member", "?after=chats/43"), { names: [], next: null });
    assert.deepEqual(await list("member", "?prefix=chats/42/c"), {
        names: ["chats/42/c/d"],
        next: null,
    });
    const paged = [];
    for (let after = ""; after !== null;) {
        const page = await list("member", `?limit=1&after=${after}`);
        paged.push(...page.names);
        assert.ok(page.next === null || page.next === page.names[0]);
        after = page.next;
    }
    assert.deepEqual(paged, own);
});

// A wildcard in the middle: what lies below it is looked at, and none of it is told.
test("attack 25: long listings end among names of others", async (t) => {
    const OTHERS = 10_200; // a page looks at 10,000
    const h2 = new H2(t, await startTenants(t));
    const make = async (name) => {
        const { status } = await h2.stream("PUT", name, { headers: as("op") });
        assert.equal(status, 201);
    };
    for (let from = 0; from < OTHERS; from += 50)
        await Promise.all(Array.from({ length: 50 }, (_, i) => make(`s${from + i}/of-others`)));
    const own = ["a/log", "s5000/log", "z/log"];
    for (const name of own) await make(name);

    const list = (query) => h2.stream("GET", query, { headers: as("auditor") });
    const names = [];
    let bookmarks = 0;
    for (let after = ""; after !== null;) {
        const answer = await list(`?after=${encodeURIComponent(after)}`);
        assert.equal(answer.status, 200, answer.text);
        assert.doesNotMatch(answer.text, /of-others/);
        const { streams, next } = JSON.parse(answer.text);
        names.push(...streams.map(({ name }) => name));
        bookmarks += next?.startsWith("__ds/after/") ? 1 : 0;
        after = next;
    }
    assert.deepEqual(names, own);
    assert.equal(bookmarks, 1);
    for (const forged of ["__ds/after/", `__ds/after/${"A".repeat(680)}`]) {
        const answer = await list(`?after=${forged}`);
        assert.equal(answer.status, 400);
        assert.equal(JSON.parse(answer.text).error.code, "BAD_QUERY");
    }
});

attack("attack 26: subscriptions of others", async ({ ask }) => {
    const create = (who, id, value) => ask("PUT", SUBSCRIPTIONS + id, ofJson(who, value));
    const pull = (more) => ({ type: "pull-wake", wake_stream: "wakes", ...more });
    const refused = [
        pull({ pattern: "**" }),
        pull({ pattern: "*/x" }),
        pull({ pattern: "chats/**" }),
        pull({ pattern: "chats/**/42" }),
        pull({ pattern: "chats/4%2A/x" }),
        pull({ streams: ["chats/42/a", "chats/7/a"] }),
        pull({ pattern: "chats/42/**", wake_stream: "chats/7/w" }),
        { type: "webhook", pattern: "chats/42/**", webhook: { url: "http://127.0.0.1:1/" } },
    ];
    for (const value of refused)
        assertForbidden(await create("member", "s", value), JSON.stringify(value));
    assertForbidden(await create("member", "t%2Fa%2Fs", pull({ pattern: "chats/42/**" })), "an id");
    assert.equal((await create("member", "s", pull({ pattern: "chats/42/*" }))).status, 201);

    assert.equal((await create("ada", "s", pull({ pattern: "**" }))).status, 201);
    assert.equal((await create("bob", "s", pull({ pattern: "b/**" }))).status, 201);
    assert.equal((await create("ada", "only", pull({ streams: ["one"] }))).status, 201);
    const show = (who, id) => ask("GET", SUBSCRIPTIONS + id, { who });
    const shown = (await show("ada", "s")).json();
    assert.equal(shown.pattern, "**");
    assert.equal(shown.id, "s");
    assert.equal(shown.wake_stream, "wakes");
    assert.deepEqual(
        (await show("ada", "only")).json().streams.map(({ path }) => path),
        ["one"],
    );
    assert.equal((await show("bob", "s")).json().pattern, "b/**");
    assert.equal((await show("bob", "only")).status, 404);
    assert.equal((await show("bob", "t%2Fa%2Fs")).status, 404);
    assert.equal((await show("member", "t%2Fa%2Fs")).status, 404);
    const claim = ofJson("bob", { worker: "w" });
    assert.equal((await ask("POST", `${SUBSCRIPTIONS}only/claim`, claim)).status, 404);
    const link = ofJson("member", { streams: ["chats/7/a"] });
    assertForbidden(await ask("POST", `${SUBSCRIPTIONS}s/streams`, link), "a link");
    await ask("DELETE", `${SUBSCRIPTIONS}t%2Fa%2Fs`, { who: "member" });
    await ask("DELETE", `${SUBSCRIPTIONS}s`, { who: "bob" });
    assert.equal((await show("ada", "s")).status, 200);
    assert.equal((await show("op", "t%2Fa%2Fs")).json().pattern, "t/a/**");
});

/** A webhook's receiver, which keeps what it gets. */
async function startReceiver(t) {
    const got = [];
    const listener = createServer(async (request, response) => {
        const pieces = [];
        for await (const piece of request) pieces.push(piece);
        got.push(Buffer.concat(pieces).toString());
        response.writeHead(200, JSON_TYPE).end("{}");
    });
    listener.listen(0, "127.0.0.1");
    await once(listener, "listening");
    defer(t, () => {
        listener.close();
        listener.closeAllConnections();
    });
    return { got, url: `http://127.0.0.1:${listener.address().port}/` };
}

attack("attack 27: names without the root, everywhere", async ({ t, server, ask, make }) => {
    const unrooted = (text) => assert.doesNotMatch(text, /t\/a|t%2Fa/i);
    const receiver = await startReceiver(t);
    const created = await make("ada", "jobs/1");
    assert.match(created.headers.location, /\/v1\/stream\/jobs\/1$/);
    await make("ada", "wakes");
    const hook = { type: "webhook", pattern: "jobs/*", webhook: { url: receiver.url } };
    const pull = { type: "pull-wake", pattern: "jobs/*", wake_stream: "wakes" };
    for (const [id, value] of [
        ["hook", hook],
        ["pull", pull],
    ]) {
        const answer = await ask("PUT", SUBSCRIPTIONS + id, ofJson("ada", value));
        assert.equal(answer.status, 201, answer.text);
        unrooted(answer.text);
    }
    const append = { who: "ada", headers: JSON_TYPE, body: '[{"n":1}]' };
    const appended = await ask("POST", "/v1/stream/jobs/1", append);
    assert.equal(appended.status, 204);
    await until(() => receiver.got.length > 0, "a webhook");
    unrooted(receiver.got[0]);
    const delivery = JSON.parse(receiver.got[0]);
    assert.equal(delivery.subscription_id, "hook");
    assert.equal(delivery.streams[0].path, "jobs/1");
    const callback = await ask("POST", new URL(delivery.callback_url).pathname, {
        headers: { ...JSON_TYPE, authorization: `Bearer ${delivery.callback_token}` },
        body: JSON.stringify({
            wake_id: delivery.wake_id,
            generation: delivery.generation,
            acks: [{ stream: "jobs/1", offset: delivery.streams[0].tail_offset }],
            done: true,
        }),
    });
    assert.equal(callback.status, 200, callback.text);

    const wakes = async () => (await ask("GET", "/v1/stream/wakes", { who: "ada" })).text;
    await until(async () => (await wakes()).includes("pull"), "a wake");
    unrooted(await wakes());
    const claim = ofJson("ada", { worker: "w" });
    const claimed = await ask("POST", `${SUBSCRIPTIONS}pull/claim`, claim);
    assert.equal(claimed.status, 200, claimed.text);
    unrooted(claimed.text);
    const { token, wake_id, generation, streams } = claimed.json();
    const ack = (path, bearer, stream) =>
        ask("POST", `${SUBSCRIPTIONS}${path}`, {
            headers: { ...JSON_TYPE, authorization: `Bearer ${bearer}` },
            body: JSON.stringify({
                wake_id,
                generation,
                acks: [{ stream, offset: streams[0].tail_offset }],
                done: true,
            }),
        });
    assert.equal((await ack("pull/ack", `${token}x`, "jobs/1")).status, 404);
    assert.equal((await ack("pull/ack", token.split(".").slice(0, 3).join("."), "jobs/1")).status, 404);
    assert.equal((await ack("pull/ack", token, "t/a/jobs/1")).status, 409);
    const acked = await ack("pull/ack", token, "jobs/1");
    assert.equal(acked.status, 200, acked.text);

    const missing = await ask("GET", "/v1/stream/none", { who: "ada" });
    assert.equal(missing.status, 404);
    unrooted(missing.text);
    const gap = await ask("GET", "/v1/stream/jobs/1?offset=0000000000000099_0000000000000000", {
        who: "ada",
    });
    unrooted(gap.text);
    const foreign = await ask("GET", "/v1/stream/t/a/jobs/1", { who: "bob" });
    assert.equal(foreign.status, 404);
    const whole = await ask("GET", "/v1/stream/t/a/jobs/1", { who: "op" });
    assert.equal(whole.status, 200, "the operator has no root");
    assert.equal(server.running, true);
});

attack("attack 28: tools look at what their caller may", async ({ ask, make }) => {
    const run = (who, tool_id, args) =>
        ask("POST", "/atd/v1/run_tool", ofJson(who, { tool_id, args, dry_run: false }));
    const rpc = (who, method, params = {}) =>
        ask("POST", "/mcp", ofJson(who, { jsonrpc: "2.0", id: 1, method, params }));
    await make("op", "chats/7/secret", '[{"n":"secret"}]');
    await make("op", "chats/42/a", '[{"n":"mine"}]');
    await make("ada", "x", '[{"n":"of ada"}]');
    await make("bob", "y");
    const refused = [
        ["stream:read", { name: "chats/7/secret" }],
        ["stream:read", { name: ".route/x" }],
        ["log:read", { name: "app" }],
        ["session:read", { session: "mine" }],
    ];
    for (const [tool, args] of refused) {
        const answer = await run("member", tool, args);
        assert.equal(answer.status, 403, `${tool}: ${answer.text}`);
        assert.doesNotMatch(answer.text, /"secret"|of the log/);
        const over = await rpc("member", "tools/call", { name: tool, arguments: args });
        assert.ok(over.status === 403 || over.json().error, over.text);
        assert.doesNotMatch(over.text, /"n":|of the log/);
    }
    assert.match((await run("member", "stream:read", { name: "chats/42/a" })).text, /mine/);
    assert.match((await run("ada", "stream:read", { name: "x" })).text, /of ada/);
    assert.match((await run("ada", "log:read", { name: "app" })).text, /of the log/);
    const missing = (await run("bob", "stream:read", { name: "x" })).json();
    assert.equal(missing.success, false);
    assert.doesNotMatch(JSON.stringify(missing), /t\/b/);
    const listed = async (who) =>
        (await run(who, "stream:list", {})).json().result.map(({ name }) => name);
    assert.deepEqual(await listed("ada"), ["x"]);
    assert.deepEqual(await listed("bob"), ["y"]);
    assert.deepEqual(await listed("member"), ["chats/42/a"]);

    const none = await rpc("reader", "tools/call", { name: "stream:list", arguments: {} });
    assert.equal(none.status, 403, none.text);
    assert.match(none.headers["www-authenticate"], /insufficient_scope.*resource_metadata/);
    assert.equal((await ask("GET", "/atd/v1/tools", { who: "reader" })).status, 403);
    const tools = (await ask("GET", "/atd/v1/tools", { who: "ada" })).json().tools;
    assert.ok(tools.some(({ id }) => id === "stream:list"));
    assert.ok(!tools.some(({ id }) => id === "conformance:page_gen"), "it is switched off");
});

for (const protocol of ["connect", "grpc"])
    test(`attack 28: sessions of others (${protocol})`, async (t) => {
        const server = await startTenants(t);
        const peer = new Peer(t, server, { protocol });
        const open = (session, who) =>
            peer.open(session, { headers: { ...session.headers(), ...(who ? as(who) : {}) } });
        const key = "mine";
        const talk = async (who, session, text) => {
            const call = open(session, who);
            call.chunk(0, text);
            await call.seen(1);
            assert.ok(call.texts[0].includes(text));
            call.close();
            await call.endedWell();
        };
        const [ada, bob] = [new Session(TIDEMARK, { key }), new Session(TIDEMARK, { key })];
        await talk("ada", ada, "of ada");
        await talk("bob", bob, "of bob"); // the same key: another session
        await talk("member", new Session(TIDEMARK, { key }), "of nobody else");
        const other = new Session(TIDEMARK, { key: "other" });
        await open(other, "member").refused(Code.PermissionDenied);
        await open(other, "reader").refused(Code.PermissionDenied);
        await open(other, null).refused(Code.Unauthenticated);
        await open(other, "nobody").refused(Code.Unauthenticated);

        const list = async (who) => server.request("GET", "/v1/session/", { headers: as(who) });
        assert.equal((await list("ada")).status, 403);
        const keys = (await list("op")).json().sessions.map((s) => s.key);
        assert.deepEqual(keys, ["mine", "t%a%mine", "t%b%mine"]);
    });

for (const way of ["connect", "grpc", "HTTP/1.1"])
    test(`what is said and heard in sessions is counted as usage (${way})`, async (t) => {
        const server = await startTenants(t);
        const session = new Session(TIDEMARK, { key: "mine" });
        const texts = ["x".repeat(1000), "y".repeat(2000)];
        if (way === "HTTP/1.1") {
            const peer = new OldPeer(server, session);
            peer.headers = (position) => ({
                ...OldPeer.prototype.headers.call(peer, position),
                ...as("ada"),
            });
            const down = peer.downlink();
            await down.welcomed();
            for (const [n, text] of texts.entries()) await peer.chunk(n, text);
            await down.seen(2);
            await peer.close();
            await down.endedWell();
        } else {
            const peer = new Peer(t, server, { protocol: way });
            const call = peer.open(session, { headers: { ...session.headers(), ...as("ada") } });
            for (const [n, text] of texts.entries()) call.chunk(n, text);
            await call.seen(2);
            call.close();
            await call.endedWell();
        }
        const { text } = await server.request("GET", "/metrics", { headers: as("op") });
        const used = (what) => {
            const line = `tidemark_usage_${what}_total{issuer="",subject="ada",root="t/a/"} `;
            return Number(text.split("\n").find((l) => l.startsWith(line))?.slice(line.length));
        };
        const bytes = used("appended_bytes");
        assert.ok(bytes >= 3000 && bytes < 3500, `${bytes} bytes`);
        assert.equal(used("delivered_events"), 2);
    });
