// SPDX-License-Identifier: Apache-2.0
// Tokens that a backend mints for its users: nobody is another one, whatever he shows.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { assertEvents, PATH, read, startGateway } from "./lib/gateway.mjs";
import { H2 } from "./lib/h2.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const CHATS = "/api/chat";
const ALL = "generate, stop route:**";
const callers = {
    app: { token: "app's", grant: [ALL, "read, append, create **", "mint, revoke, metrics server"] },
    rival: { token: "rival's", grant: [ALL, "mint server"] },
    small: { token: "small's", grant: ["read, create **", "mint server"], rate: 5 },
};
const ours = (token) => ({ "Tidemark-Authorization": `Bearer ${token}` });

function start(t, more = {}) {
    const routes = { [CHATS]: { dialect: "ui-message" } };
    return startGateway(t, { routes, callers, ...more });
}

const json = (text) => (text ? JSON.parse(text) : undefined);

/** What comes of an order: [status, token or code]. */
async function order(gateway, by, body) {
    const answer = await gateway.request("POST", "/v1/access/grants", {
        headers: ours(by),
        body: JSON.stringify({ actions: ["generate", "stop"], on: ["route:**"], ...body }),
    });
    const { token, error } = json(answer.text);
    return [answer.status, token ?? error.code];
}

/** A token; the server's key may still be on its way. */
async function mint(gateway, by, body) {
    let made;
    await until(async () => (made = await order(gateway, by, body))[0] !== 503, "a key to sign with");
    assert.equal(made[0], 201, made[1]);
    return made[1];
}

test("sub is a name, and of a user's token nobody else's is made", async (t) => {
    const gateway = await start(t);
    await mint(gateway, "app's", {});
    for (const sub of ["", "a/b", "*", "**", "..", ".", "a b", "a>b", "a|b", "é", "x".repeat(129), 7, null, ["a"], {}])
        assert.deepEqual(await order(gateway, "app's", { sub }), [400, "SYNTAX"], JSON.stringify(sub));
    for (const sub of ["7", "a-b._~@:+", "x".repeat(128)]) await mint(gateway, "app's", { sub });
    const ann = await mint(gateway, "app's", { sub: "ann", actions: ["mint"], on: ["server"] });
    const more = { actions: ["mint"], on: ["server"] };
    assert.deepEqual(await order(gateway, ann, { ...more, sub: "bob" }), [403, "FORBIDDEN"]);
    await mint(gateway, ann, more);
    await mint(gateway, ann, { ...more, sub: "ann" });
});

for (const disk of [false, true])
    test(`a user's generations, chats and keys are his own, ${disk ? "embedded" : "memory"}`, async (t) => {
        const gateway = await start(t, { disk });
        const h2 = new H2(t, gateway.server);
        const ann = ours(await mint(gateway, "app's", { sub: "ann" }));
        const others = [
            ours(await mint(gateway, "app's", { sub: "bob" })),
            ours(await mint(gateway, "rival's", { sub: "ann" })),
            ours(await mint(gateway, "app's", {})),
            ours("rival's"),
        ];
        const plan = { name: "ann's own", tokens: 8, gates: [4] };
        const reader = await gateway.post(plan, ann);
        const story = await read(reader, 4);
        const id = reader.headers["x-correlation-id"];
        const chat = { name: "ann's chat", tokens: 8, gates: [3], dialect: "ui-message" };
        const chatting = await gateway.post(chat, ann, { path: CHATS, id: "c-1" });
        const told = await read(chatting, 3);
        for (const who of others)
            for (const ask of [gateway, h2]) {
                const status = async (method, path, headers = {}) =>
                    (await ask.request(method, path, { headers: { ...who, ...headers } })).status;
                assert.equal(await status("GET", `${PATH}/${id}`), 404);
                assert.equal(await status("POST", `${PATH}/resume`, { "X-Resume-Token": story.token }), 404);
                assert.equal(await status("POST", `${PATH}/${id}/stop`), 404);
                assert.equal(await status("DELETE", `${PATH}/${id}`), 404);
                assert.equal(await status("GET", `${CHATS}/c-1/stream`), 204, "no chat of theirs");
                await status("POST", `${CHATS}/c-1/stop`);
            }
        const newer = ours(await mint(gateway, "app's", { sub: "ann" })); // another token of hers
        const again = await gateway.get(id, newer);
        for (const { name } of [plan, chat]) await gateway.backend.go(name);
        await read(reader, Infinity, story);
        assertEvents(story.events, plan);
        assertEvents((await read(again)).events, plan);
        await read(chatting, Infinity, told);
        assertEvents(told.events, chat);

        const ids = new Set();
        const keyed = { name: "keyed", tokens: 2 };
        for (const who of [ann, newer, ...others]) {
            const answer = await gateway.post(keyed, { "Idempotency-Key": "k", ...who });
            await read(answer);
            ids.add(answer.headers["x-correlation-id"]);
        }
        assert.equal(ids.size, 1 + others.length, "both of ann's are one");
    });

test("a user's limits are his own, unless his backend has some", async (t) => {
    const gateway = await start(t, { flags: ["--address-rate", "0"] });
    await gateway.request("PUT", "/v1/stream/a", { headers: ours("app's") });
    const statuses = async (token, n) => {
        const all = await Promise.all(
            Array.from({ length: n }, () => gateway.request("GET", "/v1/stream/a", { headers: ours(token) })),
        );
        return new Set(all.map(({ status }) => status));
    };
    const grant = { actions: ["read"], on: ["a"] };
    const [ann, bob] = [
        await mint(gateway, "app's", { ...grant, sub: "ann", limits: { rate: 5 } }),
        await mint(gateway, "app's", { ...grant, sub: "bob", limits: { rate: 5 } }),
    ];
    assert.ok((await statuses(ann, 50)).has(429), "her rate");
    assert.deepEqual([...(await statuses(bob, 5))], [200], "not his");
    assert.deepEqual([...(await statuses("app's", 100))], [200], "nor the backend's");
    const second = await mint(gateway, "app's", { ...grant, sub: "ann", limits: { rate: 5 } });
    assert.ok((await statuses(second, 20)).has(429), "all of her tokens share it");

    // Made-up users do not multiply what their backend may ask for.
    const users = [];
    for (let i = 0; i < 4; i++) users.push(await mint(gateway, "small's", { ...grant, sub: `u${i}` }));
    const seen = await Promise.all(users.map((token) => statuses(token, 20)));
    assert.ok(seen.every((all) => all.has(429)), "a rate of 5 for all of them");
});

test("users are revoked by name, counted by name, and named in the audit", async (t) => {
    const audit = join(await tempFolder(t), "audit.jsonl");
    const gateway = await start(t, { flags: ["--audit", audit] });
    await gateway.request("PUT", "/v1/stream/a", { headers: ours("app's") });
    const grant = { actions: ["read"], on: ["a"] };
    const tokens = {};
    for (const sub of ["ann", "bob", "cat"]) tokens[sub] = await mint(gateway, "app's", { ...grant, sub });
    const status = async (sub) =>
        (await gateway.request("GET", "/v1/stream/a", { headers: ours(tokens[sub]) })).status;
    const all = async () => [await status("ann"), await status("bob"), await status("cat")];
    const revoke = (body) =>
        gateway.request("POST", "/v1/access/revocations", { headers: ours("app's"), body: JSON.stringify(body) });
    assert.deepEqual(await all(), [200, 200, 200]);
    assert.equal((await revoke({ sub: "ann" })).status, 204);
    assert.deepEqual(await all(), [401, 200, 200]);
    assert.equal((await revoke({ sub: "bob", issuer: "rival" })).status, 204);
    assert.deepEqual(await all(), [401, 200, 200], "another backend's bob");
    assert.equal((await revoke({ sub: "bob", issuer: "app" })).status, 204);
    assert.deepEqual(await all(), [401, 401, 200]);
    assert.equal((await revoke({ sub: "app" })).status, 204);
    assert.deepEqual(await all(), [401, 401, 401], "all that the backend has minted");

    const { text } = await gateway.request("GET", "/metrics", { headers: ours("app's") });
    assert.match(text, /tidemark_usage_requests_total\{issuer="app",subject="cat",root=""\} 4\n/);
    const lines = () => (existsSync(audit) ? readFileSync(audit, "utf8").split("\n").filter(Boolean).map(json) : []);
    const minted = await until(() => {
        const found = lines().filter(({ event }) => event === "minted");
        return found.length === 3 && found;
    }, "the audit");
    assert.deepEqual(
        minted.map(({ sub, user }) => [sub, user]),
        [["app", "ann"], ["app", "bob"], ["app", "cat"]],
    );
});
