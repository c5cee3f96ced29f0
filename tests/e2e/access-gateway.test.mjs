// SPDX-License-Identifier: Apache-2.0
// Routes of a server with access: whose Authorization is, whose a generation is, and who is counted.
// Numbers are those of the attacks that access has to withstand.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { chmod, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import OpenAI from "openai";
import { wholeText } from "./lib/backend-plan.mjs";
import { claims, forge, hmac, mint } from "./lib/issuer.mjs";
import { assertEvents, PATH, read, startGateway, UUID } from "./lib/gateway.mjs";
import { H2 } from "./lib/h2.mjs";
import { run } from "./lib/run.mjs";
import { binary } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const KEYED = "/openai/chat/completions"; // holds the provider's key
const CHATS = "/api/chat";
const PROVIDER = "sk-the-provider's";
const ALL = "generate, stop route:**";
const callers = {
    ann: { token: "ann's", grant: ALL },
    bob: { token: "bob's", grant: ALL },
    eve: { token: "eve's", grant: "read news/**" },
    wes: { token: "wes's", grant: "generate, stop route:**", capabilities: "worker" },
};
const bearer = (token) => ({ Authorization: `Bearer ${token}` });
const ours = (token) => ({ "Tidemark-Authorization": `Bearer ${token}` });

function start(t, { route, keyed, env, ...more } = {}) {
    const forward = "Authorization, Cookie, Tidemark-Authorization, X-Api-Key, X-Goog-Api-Key";
    const routes = {
        [KEYED]: {
            dialect: "openai",
            forward,
            "upstream-header": ["Authorization: Bearer @ENV:PROVIDER_KEY", "X-Region: north"],
            ...keyed,
        },
        [CHATS]: { dialect: "ui-message" },
    };
    return startGateway(t, {
        route: { forward, ...route },
        routes,
        callers,
        env: { PROVIDER_KEY: PROVIDER, ...env },
        ...more,
    });
}

/** Whole answers by either version of HTTP: (method, path, headers, body) -> { status, text, .. }. */
function clientsOf(t, gateway) {
    const h2 = new H2(t, gateway.server);
    const via = (ask) => (method, path, headers = {}, body) => ask(method, path, { headers, body });
    return {
        "HTTP/1.1": via((...all) => gateway.request(...all)),
        "HTTP/2": via((...all) => h2.request(...all)),
    };
}

const bodyOf = (plan, more = {}) => JSON.stringify({ ...more, plan });
const JSON_TYPE = { "Content-Type": "application/json" };

function assertUnauthenticated(answer) {
    assert.equal(answer.status, 401, answer.text);
    assert.equal(answer.headers["www-authenticate"], 'Bearer error="invalid_token"');
}

// ---- attack 30 ----

test("30: where a route holds the provider's key, the upstream sees nothing of ours", async (t) => {
    const gateway = await start(t);
    for (const [version, ask] of Object.entries(clientsOf(t, gateway)))
        for (const [name, value] of [
            ["Authorization", "Bearer ann's"],
            ["X-Api-Key", "ann's"],
            ["X-Goog-Api-Key", "ann's"],
            ["Tidemark-Authorization", "Bearer ann's"],
        ]) {
            const plan = { name: `${version} ${name}`, tokens: 3, dialect: "openai" };
            const headers = { ...JSON_TYPE, [name]: value, Cookie: "theme=dark; lang=en", "X-Region": "south" };
            const answer = await ask("POST", KEYED, headers, bodyOf(plan));
            assert.equal(answer.status, 200, answer.text);
            const [seen] = await gateway.backend.seen(plan.name);
            assert.equal(seen.headers.authorization, `Bearer ${PROVIDER}`);
            assert.equal(seen.headers["x-region"], "north");
            assert.equal(seen.headers.cookie, "theme=dark; lang=en");
            for (const gone of ["x-api-key", "x-goog-api-key", "tidemark-authorization"])
                assert.equal(seen.headers[gone], undefined, gone);
            assert.ok(!JSON.stringify(seen).includes("ann's"));
        }
});

test("30: a token that is not good is refused in the route's form, and not sent on", async (t) => {
    const gateway = await start(t, { anonymous: { grant: ALL } });
    const plan = { name: "bad", tokens: 3 };
    for (const ask of Object.values(clientsOf(t, gateway))) {
        for (const [path, headers] of [
            [KEYED, bearer("nobody's")],
            [KEYED, { "x-api-key": "nobody's" }],
            [KEYED, { "x-goog-api-key": PROVIDER }],
            [KEYED, ours("nobody's")],
            [PATH, ours("nobody's")],
        ]) {
            const answer = await ask("POST", path, { ...JSON_TYPE, ...headers }, bodyOf(plan));
            assertUnauthenticated(answer);
            const body = JSON.parse(answer.text);
            if (path === KEYED)
                assert.deepEqual(
                    [body.error.type, body.error.code],
                    ["authentication_error", "UNAUTHENTICATED"],
                );
            else assert.deepEqual([body.schema, body.code], ["error.v1", "UNAUTHENTICATED"]);
        }
        const two = { ...JSON_TYPE, ...bearer("ann's"), "x-api-key": "ann's" };
        assert.equal((await ask("POST", KEYED, two, bodyOf(plan))).status, 400);
    }
    assert.equal((await gateway.backend.seen()).length, 0);
});

test("30: without a key of the route Authorization is the upstream's, and passes unjudged", async (t) => {
    const gateway = await start(t);
    for (const [version, ask] of Object.entries(clientsOf(t, gateway))) {
        const plan = { name: `theirs ${version}`, tokens: 3 };
        const cookie = { Cookie: "a=1; __Host-tidemark=x; b=2" };
        const headers = { ...JSON_TYPE, ...bearer("the user's own"), ...ours("ann's") };
        const answer = await ask("POST", PATH, headers, bodyOf(plan));
        assert.equal(answer.status, 200, answer.text);
        const [seen] = await gateway.backend.seen(plan.name);
        assert.equal(seen.headers.authorization, "Bearer the user's own");
        assert.equal(seen.headers["tidemark-authorization"], undefined);

        // Our token in the wrong place is nobody's, and two credentials are one too many.
        const misplaced = { ...JSON_TYPE, ...bearer("ann's") };
        assert.equal((await ask("POST", PATH, misplaced, bodyOf(plan))).status, 401);
        const both = { ...headers, ...cookie };
        assert.equal((await ask("POST", PATH, both, bodyOf(plan))).status, 400);
        assert.equal((await gateway.backend.seen(plan.name)).length, 1);
    }
});

test("30: a token of ours where the upstream's belongs is not sent on, good or not", async (t) => {
    const secret = "0123456789abcdef0123456789abcdef";
    const about = { iss: "https://id.example/", aud: "us" };
    const sections = `\n[issuer idp]\niss = ${about.iss}\naud = ${about.aud}\nsecret-env = IDP_SECRET\ngrant = ${ALL}\n`;
    const gateway = await start(t, {
        sections,
        callers: { ...callers, app: { token: "app's", grant: [ALL, "mint server"] } },
        anonymous: { grant: ALL },
        env: { IDP_SECRET: secret },
        flags: ["--address-failures", "0"],
    });
    const order = JSON.stringify({ actions: ["generate"], on: [`route:${PATH}`] });
    const made = await gateway.request("POST", "/v1/access/grants", { headers: bearer("app's"), body: order });
    assert.equal(made.status, 201, made.text);
    const minted = JSON.parse(made.text).token;
    const key = { alg: "HS256", secret: Buffer.from(secret) };
    const issued = await mint(key, about);
    const kid = (token) => JSON.parse(Buffer.from(token.split(".")[0], "base64url")).kid;
    const header = { alg: "HS256", typ: "at+jwt" };
    const tokens = {
        "a caller's": "ann's",
        minted,
        "minted, and broken": forge({ ...header, kid: kid(minted) }, { iss: "tidemark", aud: "tidemark" }),
        issued,
        "of an issuer, and forged": forge({ ...header, alg: "none" }, claims(about)),
        "of an issuer, and expired": await mint(key, { ...about, iat: 1000, exp: 1600 }),
        "for several": await mint(key, { ...about, aud: ["them", "us"] }),
    };
    for (const ask of Object.values(clientsOf(t, gateway))) {
        const send = (headers, name) => ask("POST", PATH, { ...JSON_TYPE, ...headers }, bodyOf({ name, tokens: 1 }));
        for (const [name, token] of Object.entries(tokens))
            for (const shown of [
                { Authorization: `Bearer ${token}` },
                { Authorization: `bearer\t ${token}` },
                { Authorization: token },
                { Authorization: `Token ${token}` },
                { "X-Api-Key": token },
                { "X-Goog-Api-Key": token },
            ]) {
                const answer = await send(shown, "misplaced");
                assertUnauthenticated(answer);
                assert.match(answer.text, /Tidemark-Authorization/, `${name}: ${answer.text}`);
            }
        for (const token of ["ann's", minted])
            assert.equal((await send({ ...bearer(token), ...ours(token) }, "misplaced")).status, 401);
    }
    assert.equal((await gateway.backend.seen("misplaced")).length, 0);

    // What is for somebody else passes, of whatever form; and one that is shown to us, too, is for both.
    const elsewhere = {
        "another audience": await mint(key, { ...about, aud: "them" }),
        "another issuer": await mint(key, { ...about, iss: "https://else.example/" }),
        "another tidemark": forge({ ...header, kid: "tm-00000000" }, { iss: "tidemark", aud: "tidemark" }, hmac(secret)),
        plain: "sk-123",
    };
    for (const [name, token] of Object.entries(elsewhere)) {
        const answer = await gateway.post({ name, tokens: 1 }, bearer(token));
        assert.equal(answer.status, 200, `${name}: ${answer.text}`);
        await read(answer);
        assert.equal((await gateway.backend.seen(name))[0].headers.authorization, `Bearer ${token}`);
    }
    await read(await gateway.post({ name: "both", tokens: 1 }, { ...bearer(issued), ...ours(issued) }));
    assert.equal((await gateway.backend.seen("both"))[0].headers.authorization, `Bearer ${issued}`);
});

test("without access a caller is known by Authorization, which is not sent on", async (t) => {
    const known = { ann: { token: "ann's" } };
    const gateway = await start(t, { callers: known });
    const send = async (name, headers, path = PATH) => {
        await read(await gateway.post({ name, tokens: 2 }, headers, { path }));
        return (await gateway.backend.seen(name))[0].headers;
    };
    assert.equal((await send("known", bearer("ann's"))).authorization, undefined);
    assert.equal((await send("other", bearer("any"))).authorization, "Bearer any");
    assert.equal((await send("keyed", bearer("any"), KEYED)).authorization, `Bearer ${PROVIDER}`);
    const cookie = { Cookie: "a=1; __Secure-tidemark=x; b=2" };
    assert.equal((await send("cookie", cookie)).cookie, "a=1; b=2");
});

test("grants decide, and refusals have the route's form", async (t) => {
    const gateway = await start(t);
    for (const ask of Object.values(clientsOf(t, gateway))) {
        const none = await ask("POST", KEYED, JSON_TYPE, bodyOf({ name: "none", tokens: 1 }));
        assert.equal(none.status, 401);
        assert.equal(none.headers["www-authenticate"], "Bearer");
        const eve = { ...JSON_TYPE, ...bearer("eve's") };
        const denied = await ask("POST", KEYED, eve, bodyOf({ name: "denied", tokens: 1 }));
        assert.equal(denied.status, 403);
        const { error } = JSON.parse(denied.text);
        assert.deepEqual([error.type, error.code], ["permission_error", "FORBIDDEN"]);
        const plain = await ask("POST", PATH, { ...JSON_TYPE, ...ours("eve's") }, bodyOf({}));
        assert.deepEqual([plain.status, JSON.parse(plain.text).code], [403, "FORBIDDEN"]);
    }
    assert.equal((await gateway.backend.seen()).length, 0);
});

test("the provider's key is in a file, and nowhere else", async (t) => {
    const file = join(await tempFolder(t), "key");
    await writeFile(file, `${PROVIDER}\n`);
    await chmod(file, 0o644);
    const keyed = { "upstream-header": `x-api-key: @FILE:${file}` };
    const gateway = await start(t, { keyed, flags: ["--trace-level", "debug"] });
    await read(await gateway.post({ name: "file", tokens: 2 }, bearer("ann's"), { path: KEYED }));
    const [{ headers }] = await gateway.backend.seen("file");
    assert.equal(headers["x-api-key"], PROVIDER);
    assert.equal(headers.authorization, undefined);
    assert.match(gateway.server.stderr, /upstream-header.*other users can read/);
    assert.ok(!gateway.server.stderr.includes(PROVIDER));
});

test("a variable that holds the provider's key is hidden", async (t) => {
    const gateway = await start(t);
    const environ = await readFile(`/proc/${gateway.server.pid}/environ`, "utf8").catch(() => "");
    assert.ok(!environ.includes(PROVIDER));
});

test("a key that is not there, or cannot be one, stops the start and is not shown", async (t) => {
    const file = join(await tempFolder(t), "conf");
    const refused = async (value, env = {}) => {
        await writeFile(file, `[route /a]\nupstream = http://127.0.0.1:1/\nupstream-header = ${value}\n`);
        const ended = await run(t, binary(), ["serve", "--store", "memory", "--config", file], { env });
        assert.notEqual(ended.code, 0);
        assert.ok(!ended.stderr.includes(PROVIDER), ended.stderr);
        return ended.stderr;
    };
    assert.match(await refused("x-api-key: @ENV:PROVIDER_KEY"), /PROVIDER_KEY is not set/);
    assert.match(await refused("x-api-key: @FILE:/no/such/file"), /upstream-header.*no.such.file/);
    const broken = { PROVIDER_KEY: `${PROVIDER}\r\nX-Evil: 1` };
    assert.match(await refused("x-api-key: @ENV:PROVIDER_KEY", broken), /PROVIDER_KEY.*no header/);
    assert.match(await refused(`Host: ${PROVIDER}`), /upstream-header.*sets it itself/);
    assert.match(await refused(PROVIDER), /upstream-header.*NAME: VALUE/);
});

// ---- SDKs ----

test("npm openai, with our token as its API key", async (t) => {
    const gateway = await start(t);
    const client = (apiKey) =>
        new OpenAI({ apiKey, baseURL: `${gateway.base}/openai`, maxRetries: 0 });
    const plan = { name: "sdk", tokens: 20, dialect: "openai" };
    const request = { model: "m", messages: [{ role: "user", content: "go" }], stream: true, plan };
    let text = "";
    for await (const chunk of await client("ann's").chat.completions.create(request))
        text += chunk.choices[0]?.delta.content ?? "";
    assert.equal(text, wholeText(plan));
    assert.equal((await gateway.backend.seen("sdk"))[0].headers.authorization, `Bearer ${PROVIDER}`);
    await assert.rejects(
        client("nobody's").chat.completions.create(request),
        (error) => error instanceof OpenAI.AuthenticationError && error.code === "UNAUTHENTICATED",
    );
    await assert.rejects(
        client("eve's").chat.completions.create(request),
        (error) => error instanceof OpenAI.PermissionDeniedError && error.code === "FORBIDDEN",
    );
    assert.equal((await gateway.backend.seen()).length, 1);
});

// ---- attack 29 ----

for (const disk of [false, true])
    test(`29: a generation is its subject's alone, ${disk ? "embedded" : "memory"}`, async (t) => {
        const gateway = await start(t, { disk, anonymous: { grant: ALL } });
        const plan = { name: "ann's own", tokens: 8, gates: [4] };
        const reader = await gateway.post(plan, ours("ann's"));
        const story = await read(reader, 4);
        const id = reader.headers["x-correlation-id"];
        assert.match(id, UUID);
        const attack = async (what) => {
            for (const [version, ask] of Object.entries(clientsOf(t, gateway)))
                for (const who of [ours("bob's"), {}])
                    for (const [method, path, more] of [
                        ["GET", `${PATH}/${id}`],
                        ["GET", `${PATH}/${id}?from=snapshot`],
                        ["POST", `${PATH}/resume`, { "X-Resume-Token": story.token }],
                        ["POST", `${PATH}/${id}/stop`],
                        ["DELETE", `${PATH}/${id}`],
                    ]) {
                        const answer = await ask(method, path, { ...who, ...more });
                        const which = `${version} ${method} ${path} ${what}: ${answer.text}`;
                        assert.equal(answer.status, 404, which);
                        assert.equal(JSON.parse(answer.text).code, "NOT_FOUND");
                    }
        };
        await attack("under way");
        assert.equal((await gateway.get(id, ours("eve's"))).status, 403);
        await gateway.backend.go(plan.name);
        await read(reader, Infinity, story);
        assertEvents(story.events, plan); // nobody has stopped it
        await attack("ended");
        if (disk) {
            await gateway.restart("SIGKILL");
            await attack("after a crash");
        }
        for (const who of ["ann's", "wes's"]) {
            assertEvents((await read(await gateway.get(id, ours(who)))).events, plan);
            assertEvents((await read(await gateway.resume(story.token, ours(who)))).events, plan);
        }
        const stop = (who) =>
            gateway.request("POST", `${PATH}/${id}/stop`, { headers: ours(who) });
        assert.equal((await stop("wes's")).status, 404); // who may read may not stop
        assert.equal((await stop("ann's")).status, 200);
    });

test("29: what a subject has made up is not found, and says no more than what never was", async (t) => {
    const gateway = await start(t);
    const reader = await gateway.post({ name: "one", tokens: 2 }, ours("ann's"));
    await read(reader);
    const foreign = await gateway.get(reader.headers["x-correlation-id"], ours("bob's"));
    const never = await gateway.get(randomUUID(), ours("bob's"));
    assert.deepEqual([foreign.status, foreign.text], [never.status, never.text]);
});

test("29: idempotency keys of two subjects do not meet", async (t) => {
    const gateway = await start(t, { anonymous: { grant: ALL } });
    const plan = { name: "keyed", tokens: 3 };
    const key = { "Idempotency-Key": "k-1" };
    const ids = new Set();
    // The last ones try to look like ann in the headers that tell strangers apart.
    for (const who of [
        ours("ann's"),
        ours("bob's"),
        {},
        { Authorization: "principal", Cookie: "ann" },
        { "X-Api-Key": "principal" },
    ]) {
        const first = await gateway.post(plan, { ...key, ...who });
        const second = await gateway.post(plan, { ...key, ...who });
        assertEvents((await read(first)).events, plan);
        assertEvents((await read(second)).events, plan);
        const id = first.headers["x-correlation-id"];
        assert.equal(second.headers["x-correlation-id"], id);
        ids.add(id);
    }
    assert.equal(ids.size, 5);
    assert.equal((await gateway.backend.seen()).length, 5);
});

test("29: chats of two subjects do not meet", async (t) => {
    const gateway = await start(t);
    const plan = { name: "chat", tokens: 8, gates: [3], dialect: "ui-message" };
    const reader = await gateway.post(plan, ours("ann's"), { path: CHATS, id: "c-1" });
    const story = await read(reader, 3);
    for (const ask of Object.values(clientsOf(t, gateway))) {
        const bob = ours("bob's");
        assert.equal((await ask("GET", `${CHATS}/c-1/stream`, bob)).status, 204);
        assert.equal((await ask("DELETE", `${CHATS}/c-1/stream`, bob)).status, 204);
        assert.equal((await ask("POST", `${CHATS}/c-1/stop`, bob)).status, 204);
        const id = reader.headers["x-correlation-id"]; // might be a chat's, which bob has none of
        assert.equal((await ask("POST", `${CHATS}/${id}/stop`, bob)).status, 204);
    }
    const again = await gateway.get("c-1/stream", ours("ann's"), { path: CHATS });
    assert.equal(again.headers["x-correlation-id"], reader.headers["x-correlation-id"]);
    await gateway.backend.go(plan.name);
    await read(reader, Infinity, story);
    assertEvents((await read(again)).events, plan);
});

// ---- limits ----

for (const access of [false, true])
    test(`a new identity for each request passes no limit, ${access ? "with" : "without"} access`, async (t) => {
        for (const version of ["HTTP/1.1", "HTTP/2"]) {
            const gateway = await start(t, {
                route: { "requests-per-minute": "5" },
                callers: access ? callers : {},
                anonymous: access ? { grant: ALL } : undefined,
            });
            const ask = clientsOf(t, gateway)[version];
            const send = (headers) =>
                ask("POST", PATH, { ...JSON_TYPE, ...headers }, bodyOf({ name: "q", tokens: 1 }));
            const statuses = [];
            for (let i = 0; i < 10; i++)
                statuses.push(
                    (await send({ "X-Api-Key": randomUUID(), Cookie: `id=${randomUUID()}` })).status,
                );
            assert.deepEqual(statuses, [200, 200, 200, 200, 200, 429, 429, 429, 429, 429]);
            const refused = await send({});
            assert.ok(Number(refused.headers["retry-after"]) >= 1);
            assert.equal(JSON.parse(refused.text).code, "RATE_LIMITED");
            if (!access) continue;
            // Who is known has a quota of its own, whatever else it shows.
            for (let i = 0; i < 6; i++) {
                const answer = await send({ ...ours("ann's"), "X-Api-Key": randomUUID() });
                assert.equal(answer.status, i < 5 ? 200 : 429, answer.text);
            }
            assert.equal((await send(ours("bob's"))).status, 200);
        }
    });

for (const own of ["5", "0"])
    test(`all who are not known have a quota together, each of them ${own}`, async (t) => {
        const gateway = await start(t, {
            route: { "requests-per-minute": own, "anonymous-per-minute": "2" },
            anonymous: { grant: ALL },
        });
        const send = (headers = {}) => gateway.post({ name: "all", tokens: 1 }, headers);
        const remaining = [];
        for (const status of [200, 200, 429]) {
            const answer = await send();
            assert.equal(answer.status, status, answer.text);
            remaining.push(answer.headers["x-ratelimit-remaining"]);
        }
        assert.deepEqual(remaining, ["1", "0", "0"]);
        assert.equal((await send(ours("ann's"))).status, 200);
    });

test("42: answers under way and live readers of a caller are bounded, and none is lost count of", async (t) => {
    const bounded = { ann: { ...callers.ann, generations: 2, live: 3 }, bob: callers.bob };
    const gateway = await start(t, { callers: bounded });
    for (let round = 0; round < 2; round++) {
        const plans = [0, 1].map((i) => ({ name: `bounded ${round} ${i}`, tokens: 9, gates: [3] }));
        const send = (plan, who = "ann's") => gateway.post(plan, ours(who));
        const readers = await Promise.all(plans.map((plan) => send(plan)));
        const refused = await send({ name: "too many", tokens: 3 });
        assert.equal(refused.status, 429, refused.text);
        assert.equal(refused.json().code, "RATE_LIMITED");
        assert.ok(Number(refused.headers["retry-after"]) >= 1);
        const id = readers[0].headers["x-correlation-id"];
        const third = await gateway.get(id, ours("ann's"));
        assert.equal(third.status, 200, third.text);
        assert.equal((await gateway.get(id, ours("ann's"))).status, 429, "a fourth reader");
        const other = { name: `bob ${round}`, tokens: 3 };
        assertEvents((await read(await send(other, "bob's"))).events, other);
        for (const { name } of plans) await gateway.backend.go(name);
        for (const [i, reader] of readers.entries()) assertEvents((await read(reader)).events, plans[i]);
        await read(third);
        await until(async () => {
            const next = await send({ name: "next", tokens: 1 });
            if (next.status === 200) await read(next);
            return next.status === 200;
        }, "room for another one");
    }
    assert.equal((await gateway.backend.seen("too many")).length, 0);
});
