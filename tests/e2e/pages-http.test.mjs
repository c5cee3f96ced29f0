// SPDX-License-Identifier: Apache-2.0
// Tools over HTTP: /atd/v1/, and who asks there.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
    assertError,
    assertFailed,
    assertResult,
    caller,
    open,
    openWire,
    rowsTool,
    rowsUpTo,
    startPages,
} from "./lib/pages.mjs";

const PAGE_GEN = "conformance:page_gen";

const sections = {
    "caller ada": caller("token-of-ada", "ops:read"),
    "caller bob": caller("token-of-bob"),
    "tool rows": rowsTool(1000),
    "tool gated": rowsTool(250, { capability: "ops:read" }),
    "tool fails": { command: "false" },
};

const bearer = (token) => ({ authorization: `Bearer ${token}` });
const ADA = bearer("token-of-ada");
const BOB = bearer("token-of-bob");

async function ask(server, what, body, headers = {}) {
    return server.request("POST", `/atd/v1/${what}`, {
        headers: { "content-type": "application/json", ...headers },
        body: typeof body === "string" ? body : JSON.stringify(body),
    });
}

/** The message of an answer, which also is a tool_result or an error where the body says none. */
function messageOf(answer) {
    assert.match(answer.headers["content-type"], /^application\/json/);
    return answer.json();
}

const run = async (server, tool_id, args, headers) =>
    messageOf(await ask(server, "run_tool", { tool_id, args, dry_run: false }, headers));
const next = async (server, tool_id, cursor, headers, more = {}) =>
    messageOf(await ask(server, "run_tool_continue", { tool_id, cursor, ...more }, headers));

test("run_tool and run_tool_continue page through a result", async (t) => {
    const server = await startPages(t, sections);
    const rows = [];
    let page = assertResult(await run(server, "rows", {}), "rows");
    for (;;) {
        rows.push(...page.result);
        if (!page.next_cursor) break;
        page = assertResult(await next(server, "rows", page.next_cursor), "rows");
    }
    assert.deepEqual(rows, rowsUpTo(1000));

    const answer = await ask(server, "run_tool", { tool_id: PAGE_GEN, args: {} });
    assert.equal(answer.status, 200);
    const dry = await ask(server, "run_tool", { tool_id: PAGE_GEN, args: {}, dry_run: true });
    assert.equal(dry.json().result.dry_run, true);
    const { tools } = (await server.request("GET", "/atd/v1/tools")).json();
    assert.ok(tools.some(({ id }) => id === "rows"));
});

test("the token says who asks, and what they may", async (t) => {
    const server = await startPages(t, sections);
    const denied = assertError(await run(server, "gated", {}, BOB), 1001);
    assert.deepEqual(denied.details, {
        required: ["ops:read"],
        granted: [],
        missing: ["ops:read"],
    });
    assertError(await run(server, "gated", {}), 1001);
    const hers = assertResult(await run(server, "gated", {}, ADA), "gated");
    assert.equal(open(hers.next_cursor).caller_id, "ada");
    assertResult(await next(server, "gated", hers.next_cursor, ADA), "gated");
    assertError(await next(server, "gated", hers.next_cursor, BOB), 1021);
    assertError(await next(server, "gated", hers.next_cursor), 1021);

    // Other schemes are nobody in particular; of ours the case does not matter.
    assertResult(
        await next(server, "gated", hers.next_cursor, { authorization: "bearer token-of-ada" }),
        "gated",
    );
    const theirs = assertResult(await run(server, "rows", {}), "rows");
    for (const authorization of ["Basic YWRhOnRva2Vu", "Bearer"])
        assertResult(await next(server, "rows", theirs.next_cursor, { authorization }), "rows");
    // On the socket somebody may call themselves ada: it is for programs of one user.
    const wire = await openWire(t, server);
    await wire.hello("bob");
    assertError(await wire.next("gated", hers.next_cursor), 1021);
    const who = server.audit().map(({ caller_id }) => caller_id);
    assert.deepEqual(who.slice(0, 4), ["bob", undefined, "ada", "ada"]);
});

test("a token that is not known is refused, and said to be", async (t) => {
    const server = await startPages(t, sections);
    for (const what of ["run_tool", "run_tool_continue"]) {
        const body = { tool_id: PAGE_GEN, args: {}, cursor: "x" };
        const answer = await ask(server, what, body, bearer("token-of-nobody"));
        assert.equal(answer.status, 401, answer.text);
        assert.equal(answer.headers["www-authenticate"], 'Bearer error="invalid_token"');
    }
});

test("where a token is required, nobody in particular is refused", async (t) => {
    const server = await startPages(t, { ...sections, pages: { "require-bearer": "yes" } });
    const answer = await ask(server, "run_tool", { tool_id: PAGE_GEN, args: {} });
    assert.equal(answer.status, 401);
    assert.match(answer.headers["www-authenticate"], /^Bearer/);
    assertResult(await run(server, PAGE_GEN, {}, BOB), PAGE_GEN);
});

test("each error has its code and a status that fits", async (t) => {
    const server = await startPages(t, sections);
    const { next_cursor } = await run(server, PAGE_GEN, {});
    const cases = [
        [
            await ask(server, "run_tool", { tool_id: "nowhere", args: {} }),
            undefined,
            "tool not found: nowhere",
        ],
        [await ask(server, "run_tool", { tool_id: PAGE_GEN, args: 7 }), undefined],
        [
            await ask(server, "run_tool_continue", { tool_id: PAGE_GEN, cursor: "x" }),
            1021,
            "cursor invalid",
        ],
        [
            await ask(server, "run_tool_continue", { tool_id: "rows", cursor: next_cursor }),
            1021,
            `cursor tool_id mismatch: cursor=${PAGE_GEN} request=rows`,
        ],
        [
            await ask(server, "run_tool_continue", {
                tool_id: PAGE_GEN,
                cursor: next_cursor,
                args: { a: 1 },
            }),
            1021,
        ],
        [await ask(server, "run_tool", { tool_id: "gated", args: {} }), 1001],
    ];
    for (const [answer, code, message] of cases) {
        assert.ok(answer.status >= 400 && answer.status < 500, `${answer.status} ${answer.text}`);
        assertError(messageOf(answer), code, message);
    }
    const bad = [
        await ask(server, "run_tool", "not json"),
        await ask(server, "run_tool", "[]"),
        await ask(server, "run_tool", {}),
        await ask(server, "run_tool_continue", { tool_id: PAGE_GEN }),
    ];
    for (const answer of bad) {
        assert.equal(answer.status, 400, answer.text);
        assert.equal(messageOf(answer).type, "error");
    }
    assertFailed(await run(server, "fails", {}), /./);

    assert.equal((await server.request("GET", "/atd/v1/run_tool")).status, 405);
    assert.equal((await ask(server, "nothing", {})).status, 404);
    const text = await ask(server, "run_tool", "{}", { "content-type": "text/plain" });
    assert.equal(text.status, 415);
    const big = JSON.stringify({ tool_id: PAGE_GEN, args: { x: "y".repeat(11 * 1024 * 1024) } });
    assert.equal((await ask(server, "run_tool", big)).status, 413);
});

test("pages of other sites may not call tools", async (t) => {
    const server = await startPages(t, sections);
    const body = { tool_id: PAGE_GEN, args: {} };
    const foreign = await ask(server, "run_tool", body, { origin: "https://evil.example" });
    assert.equal(foreign.status, 403);
    const local = await ask(server, "run_tool", body, { origin: server.base });
    assert.equal(local.status, 200);
});

test("results are kept out of the streams' sight", async (t) => {
    const server = await startPages(t, sections);
    const { next_cursor } = await run(server, "rows", {});
    const state = open(next_cursor).state.toString("latin1");
    const list = await run(server, "stream:list", {});
    assert.doesNotMatch(JSON.stringify(list.result), /\.tool/);
    const names = ["%2Etool/", ".tool/", `.tool/${encodeURIComponent(state)}`, ".tool/1"];
    for (const name of names) {
        const { status } = await server.stream("GET", name);
        assert.ok([400, 403, 404].includes(status), `${name}: ${status}`);
    }
    assert.ok(![200, 201].includes((await server.stream("PUT", ".tool/mine")).status));
    const peek = await run(server, "stream:read", { name: `.tool/${state}` });
    assert.notEqual(peek.success, true);
});
