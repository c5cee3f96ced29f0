// SPDX-License-Identifier: Apache-2.0
// POST /mcp request by request: versions, cursors, and each error.
import assert from "node:assert/strict";
import { test } from "node:test";
import { call, modernRpc, post, rowsIn, rpc } from "./lib/mcp.mjs";
import { bitFlips, caller, open, openWire, rowsTool, rowsUpTo, startPages } from "./lib/pages.mjs";

const PAGE_GEN = "conformance:page_gen";
const sections = {
    "caller ada": caller("token-of-ada", "ops:read"),
    "caller bob": caller("token-of-bob"),
    "tool rows": rowsTool(300),
    "tool gated": rowsTool(250, { capability: "ops:read" }),
    "tool fails": { command: "false" },
    "tool zoo": {
        command: "seq 1 150",
        "input-schema":
            '{"type":"object","properties":{"kind":{"type":"string"}},"required":["kind"]}',
        description: "Animals, by number",
    },
};
const ADA = { authorization: "Bearer token-of-ada" };
const BOB = { authorization: "Bearer token-of-bob" };

const hello = (protocolVersion) => ({
    protocolVersion,
    capabilities: {},
    clientInfo: { name: "tests", version: "1" },
});

function assertRpcError(answer, status, code, message) {
    assert.equal(answer.status, status, JSON.stringify(answer.error ?? answer.result));
    assert.equal(answer.error?.code, code, JSON.stringify(answer.error ?? answer.result));
    if (message instanceof RegExp) assert.match(answer.error.message, message);
    else if (message !== undefined) assert.equal(answer.error.message, message);
    return answer.error;
}

// ---- the beginning ----

test("initialize agrees on a version, and says who this is", async (t) => {
    const server = await startPages(t, sections);
    for (const version of ["2025-06-18", "2025-11-25"]) {
        const { status, result } = await rpc(server, "initialize", hello(version));
        assert.equal(status, 200);
        assert.equal(result.protocolVersion, version);
        assert.equal(result.serverInfo.name, "tidemark");
        assert.match(result.serverInfo.version, /^\d+\.\d+/);
        assert.deepEqual(Object.keys(result.capabilities), ["tools"]);
    }
    for (const version of ["2024-11-05", "1999-01-01", "2027-01-01"]) {
        const { result } = await rpc(server, "initialize", hello(version));
        assert.ok(["2025-06-18", "2025-11-25"].includes(result.protocolVersion));
    }
    for (const method of ["notifications/initialized", "notifications/cancelled"]) {
        const answer = await post(server, { jsonrpc: "2.0", method });
        assert.equal(answer.status, 202);
        assert.equal(answer.text, "");
    }
    assert.deepEqual((await rpc(server, "ping")).result, {});
});

test("tools/list names each tool with a schema that mentions __cursor", async (t) => {
    const server = await startPages(t, sections);
    const { tools } = (await rpc(server, "tools/list", {})).result;
    const names = tools.map(({ name }) => name);
    for (const name of [PAGE_GEN, "stream:read", "rows", "zoo"])
        assert.ok(names.includes(name), name);
    for (const { name, description, inputSchema } of tools) {
        assert.equal(inputSchema.type, "object", name);
        assert.equal(typeof description, "string");
        const cursor = inputSchema.properties?.__cursor;
        assert.equal(cursor?.type, "string", `${name}: ${JSON.stringify(inputSchema)}`);
        assert.ok(cursor.description.length > 20, "it says what it is for");
        assert.ok(!inputSchema.required?.includes("__cursor"));
    }
    const zoo = tools.find(({ name }) => name === "zoo");
    assert.equal(zoo.description, "Animals, by number");
    assert.deepEqual(zoo.inputSchema.required, ["kind"]);
    assert.equal(zoo.inputSchema.properties.kind.type, "string");
});

// ---- pages ----

test("__cursor goes in, nextCursor comes out, and a note tells it to the model", async (t) => {
    const server = await startPages(t, sections);
    const rows = [];
    let args = {};
    for (let page = 1; page <= 3; page++) {
        const { status, result } = await call(server, "rows", args);
        assert.equal(status, 200);
        assert.notEqual(result.isError, true);
        assert.equal(result.content[0].text, JSON.stringify(rowsIn(result)), "compact JSON");
        rows.push(...rowsIn(result));
        const note = result.content.slice(1);
        if (page === 3) {
            assert.ok(!("nextCursor" in result));
            assert.deepEqual(note, []);
        } else {
            assert.equal(note.length, 1);
            assert.ok(note[0].text.includes(result.nextCursor), "the note has the cursor");
            assert.match(note[0].text, /__cursor/);
            args = { __cursor: result.nextCursor };
        }
    }
    assert.deepEqual(rows, rowsUpTo(300));
});

test("arguments beside __cursor have to be those of the first call", async (t) => {
    const server = await startPages(t, sections);
    const first = (await call(server, "zoo", { kind: "owl", n: 1.5 })).result;
    const __cursor = first.nextCursor;
    for (const args of [
        { __cursor },
        { __cursor, kind: "owl", n: 1.5 },
        { n: 1.5, __cursor, kind: "owl" },
    ])
        assert.equal(rowsIn((await call(server, "zoo", args)).result)[0], 101);
    for (const args of [
        { __cursor, kind: "cat", n: 1.5 },
        { __cursor, kind: "owl" },
        { __cursor, kind: "owl", n: 1.5, m: null },
    ]) {
        const { data } = assertRpcError(await call(server, "zoo", args), 200, -32603);
        assert.equal(data.atd_code, 1021);
    }
});

test("a cursor that could never have been one counts as absent", async (t) => {
    const server = await startPages(t, sections);
    const never = [
        "",
        "0",
        "1",
        "start",
        "null",
        "next page, please",
        "A".repeat(79),
        "!".repeat(200),
    ];
    for (const __cursor of never)
        assert.deepEqual(
            rowsIn((await call(server, "rows", { __cursor })).result),
            rowsUpTo(100),
            __cursor,
        );
    for (const __cursor of [null, 0, {}]) {
        const { result } = await call(server, "rows", { __cursor });
        assert.deepEqual(rowsIn(result), rowsUpTo(100), "what is no string is dropped");
    }
    // It is gone before the tool sees its arguments.
    const once = (await call(server, "zoo", { kind: "owl", __cursor: "0" })).result;
    const plain = (await call(server, "zoo", { kind: "owl" })).result;
    assert.deepEqual(open(once.nextCursor).args, open(plain.nextCursor).args);
});

test("one that may have been ours is an error unless it is", async (t) => {
    const server = await startPages(t, sections);
    const { nextCursor } = (await call(server, "rows", {})).result;
    const flips = [...bitFlips(nextCursor)];
    for (let i = 0; i < flips.length; i += 37) {
        const answer = await call(server, "rows", { __cursor: flips[i] });
        const { data } = assertRpcError(answer, 200, -32603);
        assert.ok([1020, 1021].includes(data.atd_code), `bit ${i}`);
        assert.equal(data.retryable, false);
    }
    const long = await call(server, "rows", { __cursor: "A".repeat(600) });
    assert.equal(assertRpcError(long, 200, -32603).data.atd_code, 1021);
    assertRpcError(
        await call(server, "zoo", { __cursor: nextCursor }),
        200,
        -32603,
        /tool_id mismatch/,
    );
    const wire = await openWire(t, server);
    assert.equal((await wire.next("rows", nextCursor)).success, true, "it is good on every wire");
});

// ---- who asks ----

test("the bearer's identity is that of the pages, request by request", async (t) => {
    const server = await startPages(t, sections);
    const denied = assertRpcError(await call(server, "gated", {}, BOB), 200, -32603).data;
    assert.equal(denied.atd_code, 1001);
    assert.deepEqual(denied.details, {
        required: ["ops:read"],
        granted: [],
        missing: ["ops:read"],
    });
    const hers = (await call(server, "gated", {}, ADA)).result;
    const __cursor = hers.nextCursor;
    assert.equal(open(__cursor).caller_id, "ada");
    assert.deepEqual(
        rowsIn((await call(server, "gated", { __cursor }, ADA)).result),
        rowsUpTo(200).slice(100),
    );
    for (const who of [BOB, {}])
        assert.equal(
            assertRpcError(await call(server, "gated", { __cursor }, who), 200, -32603).data
                .atd_code,
            1021,
        );
    assert.deepEqual(
        server.audit().map(({ caller_id }) => caller_id),
        ["bob", "ada", "ada"],
    );
});

test("401: a token that is not known, and none where one is required", async (t) => {
    const server = await startPages(t, sections);
    const request = { jsonrpc: "2.0", id: 1, method: "tools/list" };
    const unknown = await post(server, request, { authorization: "Bearer token-of-nobody" });
    assert.equal(unknown.status, 401);
    assert.equal(unknown.headers["www-authenticate"], 'Bearer error="invalid_token"');
    assert.equal(unknown.json().error.code, -32002);
    for (const authorization of ["Basic YTpi", "bearer token-of-nobody"])
        assert.equal((await post(server, request, { authorization })).status, 200);

    const strict = await startPages(t, { ...sections, pages: { "require-bearer": "yes" } });
    for (const headers of [{}, { authorization: "Basic YTpi" }]) {
        const none = await post(strict, request, headers);
        assert.equal(none.status, 401);
        assert.match(none.headers["www-authenticate"], /^Bearer/);
        assert.equal(none.json().error.code, -32002);
    }
    assert.equal((await post(strict, request, BOB)).status, 200);
});

// ---- errors ----

test("each error of the table", async (t) => {
    const server = await startPages(t, sections);
    // Of tools.
    const missing = assertRpcError(
        await call(server, "nowhere", {}),
        200,
        -32603,
        "tool not found: nowhere",
    );
    assert.equal(missing.data.retryable, false);
    assert.ok(!("atd_code" in missing.data) || missing.data.atd_code === null);
    const failed = (await call(server, "fails", {})).result;
    assert.equal(failed.isError, true);
    const { code, message, retryable } = JSON.parse(failed.content[0].text);
    assert.ok(code !== undefined && message.length > 0 && typeof retryable === "boolean");
    assertRpcError(
        await rpc(server, "tools/call", { arguments: {} }),
        200,
        -32602,
        "missing `name` parameter",
    );
    assertRpcError(await rpc(server, "tools/call"), 200, -32602, "missing `name` parameter");
    assertRpcError(await rpc(server, "tools/call", { name: "rows", arguments: [] }), 200, -32602);

    // Of methods.
    for (const method of ["resources/list", "prompts/list", "tools/burn", "", "rpc.x"])
        assertRpcError(await rpc(server, method, {}), 200, -32601);

    // Of messages.
    for (const text of [
        "",
        "not json",
        "{",
        '{"jsonrpc":"2.0"',
        '{"a":1}}',
        Buffer.from([0x22, 0xff, 0x22]),
    ]) {
        const answer = await post(server, text);
        assert.equal(answer.status, 400, String(text));
        const { error, id } = answer.json();
        assert.equal(error.code, -32700, String(text));
        assert.equal(id ?? null, null);
    }
    for (const text of [
        "[]",
        '[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        "1",
        '"x"',
        "null",
        "{}",
        '{"jsonrpc":"1.0","id":1,"method":"ping"}',
        '{"id":1,"method":"ping"}',
        '{"jsonrpc":"2.0","id":1}',
        '{"jsonrpc":"2.0","id":1,"method":7}',
        '{"jsonrpc":"2.0","id":{},"method":"ping"}',
    ]) {
        const answer = await post(server, text);
        assert.equal(answer.status, 400, text);
        assert.equal(answer.json().error.code, -32600, text);
    }

    // Of HTTP.
    const ping = { jsonrpc: "2.0", id: 1, method: "ping" };
    for (const type of ["text/plain", "application/x-www-form-urlencoded"])
        assert.equal((await post(server, ping, { "content-type": type })).status, 415);
    assert.equal(
        (await post(server, ping, { "content-type": "application/json; charset=utf-8" })).status,
        200,
    );
    const large = await post(server, { ...ping, params: { pad: "x".repeat(12 * 1024 * 1024) } });
    assert.equal(large.status, 413);
    assert.equal(large.json().error.code, -32600);
    for (const origin of ["https://evil.example", "http://evil.example:4437", "null"]) {
        const foreign = await post(server, ping, { origin });
        assert.equal(foreign.status, 403);
        assert.equal(foreign.json().error.code, -32001);
    }
    for (const origin of [server.base, "http://localhost:3000", "http://127.0.0.1"])
        assert.equal((await post(server, ping, { origin })).status, 200, origin);
    for (const method of ["GET", "DELETE", "PUT"])
        assert.equal((await server.request(method, "/mcp")).status, 405, method);
});

test("sites that are configured may ask, and browsers are told so", async (t) => {
    const flags = ["--allow-origin", "https://chat.example"];
    const server = await startPages(t, {}, { flags });
    const ping = { jsonrpc: "2.0", id: 1, method: "ping" };
    const origin = "https://chat.example";
    const answer = await post(server, ping, { origin });
    assert.equal(answer.status, 200);
    assert.equal(answer.headers["access-control-allow-origin"], origin);
    const preflight = (from) =>
        server.request("OPTIONS", "/mcp", {
            headers: {
                origin: from,
                "access-control-request-method": "POST",
                "access-control-request-headers": "content-type, mcp-protocol-version",
            },
        });
    const allowed = await preflight(origin);
    assert.equal(allowed.status, 204);
    assert.equal(allowed.headers["access-control-allow-origin"], origin);
    assert.match(allowed.headers["access-control-allow-methods"], /POST/);
    assert.match(allowed.headers["access-control-allow-headers"], /mcp-protocol-version/);
    for (const other of [
        "http://chat.example",
        "https://chat.example.evil",
        "https://chat.example:444",
        "https://evil.example",
    ]) {
        assert.equal((await post(server, ping, { origin: other })).status, 403, other);
        const refused = await preflight(other);
        assert.equal(refused.headers["access-control-allow-origin"], undefined, other);
        assert.ok(refused.status >= 400, other);
    }
});

test("ids come back as they were sent", async (t) => {
    const server = await startPages(t);
    for (const id of ["1", '"a"', '"ü\\u0000\\ud83d\\ude00"', "-7", "9007199254740993", "0"]) {
        const answer = await post(server, `{"jsonrpc":"2.0","id":${id},"method":"ping"}`);
        assert.equal(answer.status, 200, id);
        assert.match(answer.text, /"result"/);
        assert.deepEqual(answer.json().id, JSON.parse(id));
        if (/^\d+$/.test(id)) assert.ok(answer.text.includes(`"id":${id}`), answer.text);
    }
});

// ---- 2026-07-28 ----

test("server/discover stands in for initialize, and each request says its version", async (t) => {
    const server = await startPages(t, sections);
    const { status, result } = await modernRpc(server, "server/discover");
    assert.equal(status, 200);
    assert.ok(result.supportedVersions.includes("2026-07-28"));
    assert.ok("tools" in result.capabilities);
    assert.equal(result.resultType, "complete");
    const { tools } = (await modernRpc(server, "tools/list")).result;
    assert.ok(tools.some(({ name }) => name === "rows"));
    const first = (await modernRpc(server, "tools/call", { name: "rows", arguments: {} })).result;
    assert.equal(first.resultType, "complete");
    assert.deepEqual(rowsIn(first), rowsUpTo(100));
    const args = { __cursor: first.nextCursor };
    const second = (await modernRpc(server, "tools/call", { name: "rows", arguments: args }))
        .result;
    assert.deepEqual(rowsIn(second), rowsUpTo(200).slice(100));
});

test("2026-07-28: what is refused, and how", async (t) => {
    const server = await startPages(t, sections);
    for (const method of ["initialize", "ping", "resources/list", "tools/burn"])
        assertRpcError(await modernRpc(server, method, {}), 404, -32601);
    // Headers have to say what the message says.
    const version = { "mcp-protocol-version": "2025-11-25" };
    assertRpcError(await modernRpc(server, "tools/list", {}, version), 400, -32020);
    assertRpcError(
        await modernRpc(server, "tools/list", {}, { "mcp-method": "tools/call" }),
        400,
        -32020,
    );
    const named = { name: "rows", arguments: {} };
    assertRpcError(
        await modernRpc(server, "tools/call", named, { "mcp-name": "zoo" }),
        400,
        -32020,
    );
    // A version that there is not.
    const _meta = {
        "io.modelcontextprotocol/protocolVersion": "2099-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
    };
    const headers = { "mcp-protocol-version": "2099-01-01", "mcp-method": "tools/list" };
    const answer = await rpc(server, "tools/list", { _meta }, headers);
    assert.equal(answer.status, 400);
    assert.ok(answer.error.data.supported.includes("2026-07-28"), JSON.stringify(answer.error));
    assert.equal(answer.error.data.requested, "2099-01-01");
});
