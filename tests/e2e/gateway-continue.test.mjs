// SPDX-License-Identifier: Apache-2.0
// A request that comes again with the id of an event goes on behind it, and asks nobody.
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventsOf } from "./lib/backend-plan.mjs";
import { open, PATH, read, startGateway, UUID } from "./lib/gateway.mjs";

const CHAT = "/v1/chat/completions";

/** A generation that has come to its end. */
async function generate(gateway, plan, path = PATH) {
    const reader = await gateway.post(plan, {}, { path });
    const story = await read(reader);
    return { id: reader.headers["x-correlation-id"], reader, story };
}

const go = (t, gateway, method, path, last, body = "") =>
    open(t, gateway.server, method, path, { "Last-Event-ID": last }, body);

for (const method of ["POST", "GET"])
    test(`${method} with the id of an event goes on behind it, whatever the body`, async (t) => {
        const gateway = await startGateway(t, { routes: { [CHAT]: { dialect: "openai" } } });
        const plan = { name: "first", dialect: "openai", tokens: 8, gates: [5] };
        const first = await gateway.post(plan, {}, { path: CHAT });
        const seen = await read(first, 3);
        const id = first.headers["x-correlation-id"];
        assert.match(id, UUID);
        assert.equal(first.headers.location, `${CHAT}/${id}`);
        assert.deepEqual(
            seen.events.map(({ generation }) => generation),
            [id, id, id],
        );
        first.raw.destroy();
        const again = await go(t, gateway, method, CHAT, `${id}:3`, "no JSON");
        assert.equal(again.headers["x-correlation-id"], id);
        assert.equal(again.headers.location, `${CHAT}/${id}`);
        await gateway.backend.go("first");
        const rest = await read(again);
        assert.deepEqual(
            [...seen.events, ...rest.events].map(({ data }) => data),
            [...eventsOf(plan)].map(({ data }) => data),
        );
        assert.equal(rest.comments.at(-1), "end");
        assert.equal((await gateway.backend.seen()).length, 1);
    });

test("who has all of it is told that nothing comes: 204, or the end alone", async (t) => {
    const gateway = await startGateway(t, { route: { ids: "full" } });
    const { id, story } = await generate(gateway, { name: "all", tokens: 3 });
    assert.equal(story.events.at(-1).generation, id);
    assert.equal((await go(t, gateway, "GET", PATH, `${id}:4`)).status, 204);
    assert.equal((await go(t, gateway, "GET", `${PATH}/${id}`, `${id}:4`)).status, 204);
    const posted = await read(await go(t, gateway, "POST", PATH, `${id}:4`));
    assert.deepEqual([posted.events, posted.comments], [[], ["end"]]);
});

test("plain ids stay good where the path names the generation", async (t) => {
    const gateway = await startGateway(t, { routes: { [CHAT]: { dialect: "openai" } } });
    const plan = { name: "plain", dialect: "openai", tokens: 3 };
    const { id } = await generate(gateway, plan, CHAT);
    for (const [last, from] of [["2", 2], [`${id}:2`, 2], ["-1", 0], ["theirs-7", 0]]) {
        const story = await read(await go(t, gateway, "GET", `${CHAT}/${id}`, last));
        assert.equal(story.events.length, 6 - from, `behind ${last}`);
    }
    // On a POST they say nothing: it is a new one.
    const anew = await go(t, gateway, "POST", CHAT, "2", JSON.stringify({ plan }));
    assert.equal((await read(anew)).events.length, 6);
    assert.notEqual(anew.headers["x-correlation-id"], id);
    assert.equal((await go(t, gateway, "GET", CHAT, "2")).status, 405);
});

test("a generation that is not known is gone: nothing is asked", async (t) => {
    const routes = { [CHAT]: { dialect: "auto" }, "/v1/messages": { dialect: "auto" } };
    const gateway = await startGateway(t, { route: { ids: "full" }, routes });
    const { id } = await generate(gateway, { name: "known", tokens: 3 });
    const unknown = "00000000-0000-4000-8000-000000000000";
    const gap = { requested: "7", earliest: null, reason: "expired", snapshot: null };
    for (const method of ["POST", "GET"]) {
        const plain = await go(t, gateway, method, PATH, `${unknown}:7`, "{}");
        assert.equal(plain.status, 410);
        assert.deepEqual([plain.json().code, plain.json().details], ["EXPIRED", { gap }]);
        // Of another route.
        const chat = await go(t, gateway, method, CHAT, `${id}:7`, "{}");
        assert.equal(chat.status, 410);
        assert.deepEqual(
            [chat.json().error.type, chat.json().error.details],
            ["invalid_request_error", { gap }],
        );
        const message = await go(t, gateway, method, "/v1/messages", `${id}:7`, "{}");
        assert.equal(message.status, 410);
        assert.equal(message.json().type, "error");
    }
    const other = await go(t, gateway, "GET", `${PATH}/${id}`, `${unknown}:2`);
    assert.equal(other.status, 410);
    assert.equal((await gateway.backend.seen()).length, 1);
});

test("somebody else's generation is not known", async (t) => {
    const callers = { a: { token: "a".repeat(32) }, b: { token: "b".repeat(32) } };
    for (const caller of Object.values(callers)) caller.grant = "generate route:/**";
    const gateway = await startGateway(t, { route: { ids: "full" }, callers });
    const as = (caller) => ({ "Tidemark-Authorization": `Bearer ${callers[caller].token}` });
    const reader = await gateway.post({ name: "mine", tokens: 3 }, as("a"));
    const id = reader.headers["x-correlation-id"];
    await read(reader);
    const ask = (caller) =>
        open(t, gateway.server, "POST", PATH, { ...as(caller), "Last-Event-ID": `${id}:2` });
    assert.equal((await read(await ask("a"))).events.length, 2);
    assert.equal((await ask("b")).status, 410);
});

test("after kill -9 the stored events tell what is spoken", async (t) => {
    const plans = {
        langgraph: /event: error\ndata: {"schema":"error.v1","code":"ORPHANED"/,
        anthropic: /event: error\ndata: {"type":"error","error":{"type":"api_error"/,
        responses: /event: error\ndata: {"type":"error","code":"ORPHANED"/,
        gemini: /\n\ndata: {"error":{"code":502,.*"status":"UNAVAILABLE"}}\n\n: end\n\n$/,
        "ag-ui": /data: {"type":"RUN_ERROR",.*"code":"ORPHANED"}/,
        openai: /data: {"error":{"message":.*"code":"ORPHANED"}}/,
        "ui-message": /data: {"type":"error","errorText":/,
        mcp: /data: {"jsonrpc":"2.0","id":null,"error":/,
        ndjson: /\n{"error":".*","code":"ORPHANED"}\n$/,
    };
    const names = Object.keys(plans);
    const routes = { "/any": { dialect: "auto" } };
    const gateway = await startGateway(t, { routes, disk: true });
    const ids = {};
    for (const dialect of names) {
        const plan = { name: dialect, dialect, tokens: 9, gates: [4] };
        const response = await fetch(`${gateway.base}/any`, {
            method: "POST",
            body: JSON.stringify({ plan }),
        });
        ids[dialect] = response.headers.get("x-correlation-id");
        for await (const piece of response.body)
            if (Buffer.from(piece).includes("{")) break; // an event is stored
    }
    await gateway.restart("SIGKILL");
    for (const dialect of names) {
        const response = await fetch(`${gateway.base}/any/${ids[dialect]}`);
        assert.equal(
            response.headers.get("content-type"),
            dialect === "ndjson" ? "application/x-ndjson" : "text/event-stream",
        );
        assert.match(await response.text(), plans[dialect], dialect);
    }
});

test("a body that is too large is refused, also where it would not count", async (t) => {
    const gateway = await startGateway(t, { route: { ids: "full", "max-body": "1k" } });
    const { id } = await generate(gateway, { name: "large", tokens: 3 });
    const answer = await go(t, gateway, "POST", PATH, `${id}:2`, "x".repeat(2000));
    assert.equal(answer.status, 413);
});
