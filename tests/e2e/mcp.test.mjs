// SPDX-License-Identifier: Apache-2.0
// Agents' own clients page through a large result, over HTTP and over stdio.
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { test } from "node:test";
import {
    callAll,
    modernOverHttp,
    modernOverStdio,
    rowsIn,
    sdkOverHttp,
    sdkOverStdio,
} from "./lib/mcp.mjs";
import {
    bitFlips,
    caller,
    configFile,
    processesWith,
    longTime,
    rowsTool,
    rowsUpTo,
    startPages,
} from "./lib/pages.mjs";
import { Running } from "./lib/run.mjs";
import { binary } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const ROWS = 100_000;
const sections = {
    "tool rows": rowsTool(ROWS, { "page-rows": "500" }),
    "tool wide:rows": rowsTool(ROWS, { "page-rows": "5000", "page-bytes": "1m" }),
    "tool few": rowsTool(250, { parallel: "32" }), // its commands may take a while to end
    "tool fails": { command: "false" },
    "tool gated": rowsTool(3, { capability: "ops:read" }),
    "caller ada": caller("token-of-ada", "ops:read"),
};

/** Every row once and in order. Comparing texts is quicker than a deep comparison. */
function assertAll(rows, count = ROWS) {
    assert.equal(rows.length, count);
    assert.equal(JSON.stringify(rows), JSON.stringify(rowsUpTo(count)));
}

test("@modelcontextprotocol/sdk over HTTP gets 100,000 rows, each once", async (t) => {
    const client = await sdkOverHttp(t, await startPages(t, sections));
    const { tools } = await client.listTools();
    assert.ok(tools.some(({ name }) => name === "rows"));
    const { rows, pages } = await callAll(client, "rows");
    assertAll(rows);
    assert.equal(pages, ROWS / 500);
});

test("@modelcontextprotocol/sdk over stdio does, by way of a server", async (t) => {
    const server = await startPages(t, sections);
    const client = await sdkOverStdio(t, ["--server", server.base]);
    const { tools } = await client.listTools();
    // Names that every model's API takes.
    for (const { name } of tools) assert.match(name, /^[A-Za-z0-9_-]{1,128}$/);
    const { rows, pages } = await callAll(client, "wide_rows");
    assertAll(rows);
    assert.ok(pages > 10);
});

test("@modelcontextprotocol/sdk over stdio does, with the tools of a file", async (t) => {
    const config = await configFile(await tempFolder(t), sections);
    const client = await sdkOverStdio(t, ["--config", config]);
    assertAll((await callAll(client, "wide_rows")).rows);
});

test("@modelcontextprotocol/client speaks 2026-07-28 with us, over HTTP and stdio", async (t) => {
    const server = await startPages(t, sections);
    const config = await configFile(await tempFolder(t), sections);
    const ways = [
        [modernOverHttp(t, server), "wide:rows"],
        [modernOverStdio(t, ["--server", server.base]), "wide_rows"],
        [modernOverStdio(t, ["--config", config]), "wide_rows"],
    ];
    for (const [connecting, name] of ways) {
        const client = await connecting;
        assert.equal(client.getNegotiatedProtocolVersion(), "2026-07-28");
        assert.equal(client.getServerVersion().name, "tidemark");
        const { tools } = await client.listTools();
        assert.ok(tools.some((tool) => tool.name === name));
        assertAll((await callAll(client, name)).rows);
    }
});

test("a client sees failures, refused cursors and missing tools as errors", async (t) => {
    const server = await startPages(t, sections);
    const http = await sdkOverHttp(t, server);
    const stdio = await sdkOverStdio(t, ["--server", server.base]);
    for (const client of [http, stdio]) {
        const failed = await client.callTool({ name: "fails", arguments: {} });
        assert.equal(failed.isError, true);
        assert.ok(failed.content[0].text.length > 0);
    }
    await assert.rejects(http.callTool({ name: "nowhere" }), { code: -32603 });
    await assert.rejects(stdio.callTool({ name: "nowhere" }), { code: -32602 });
    await assert.rejects(http.callTool({ name: "gated" }), /./);
    const denied = await stdio.callTool({ name: "gated" });
    assert.equal(denied.isError, true, "models see why");

    for (const client of [http, stdio]) {
        const first = await client.callTool({ name: "few", arguments: {} });
        assert.equal(rowsIn(first).length, 100);
        for (const __cursor of ["", "0", "start"]) {
            const again = await client.callTool({ name: "few", arguments: { __cursor } });
            assert.deepEqual(rowsIn(again), rowsIn(first));
        }
        const [tampered] = bitFlips(first.nextCursor);
        const outcome = await client
            .callTool({ name: "few", arguments: { __cursor: tampered } })
            .then(
                (result) => result.isError,
                (error) => error.code === -32603,
            );
        assert.equal(outcome, true);
    }
    const ada = await sdkOverHttp(t, server, { authorization: "Bearer token-of-ada" });
    assert.equal(rowsIn(await ada.callTool({ name: "gated" })).length, 3);
});

test("the note about the next page can be switched off over stdio", async (t) => {
    const server = await startPages(t, sections);
    const told = await sdkOverStdio(t, ["--server", server.base]);
    const quiet = await sdkOverStdio(t, ["--server", server.base], {
        ATD_MCP_PASSTHROUGH_CURSOR: "1",
    });
    const withNote = await told.callTool({ name: "few", arguments: {} });
    assert.ok(
        withNote.content.length === 2 && withNote.content[1].text.includes(withNote.nextCursor),
    );
    const without = await quiet.callTool({ name: "few", arguments: {} });
    assert.equal(without.content.length, 1);
    assert.equal(typeof without.nextCursor, "string");
});

test("@modelcontextprotocol/client finds out by itself which version to speak", async (t) => {
    const server = await startPages(t, sections);
    for (const [mode, version] of [
        ["auto", "2026-07-28"],
        ["legacy", "2025-11-25"],
    ]) {
        const client = await modernOverHttp(t, server, {}, mode);
        assert.equal(client.getNegotiatedProtocolVersion(), version);
        assertAll((await callAll(client, "few")).rows, 250);
    }
});

test("over stdio every tool has a name of its own", async (t) => {
    const config = await configFile(await tempFolder(t), {
        "tool a.b": { command: "echo 1" },
        "tool a:b": { command: "echo 2" },
        "tool a_b": { command: "echo 3" },
    });
    const client = await sdkOverStdio(t, ["--config", config]);
    const names = (await client.listTools()).tools.map(({ name }) => name);
    assert.equal(new Set(names).size, names.length, names.join(" "));
    // The first of those that are alike.
    assert.deepEqual((await callAll(client, "a_b")).rows, [1]);
});

// ---- the bridge by itself ----

const INITIALIZE = {
    jsonrpc: "2.0",
    id: 1,
    method: "initialize",
    params: {
        protocolVersion: "2025-11-25",
        capabilities: {},
        clientInfo: { name: "t", version: "1" },
    },
};

/** `tidemark mcp` with a line a message. */
class Bridge extends Running {
    constructor(t, args) {
        super(t, binary(), ["mcp", ...args]);
    }

    write(message) {
        const text = typeof message === "string" ? message : JSON.stringify(message);
        this.child.stdin.write(`${text}\n`);
    }

    lines() {
        return this.stdout
            .split("\n")
            .slice(0, -1)
            .map((line) => JSON.parse(line));
    }

    answer(id) {
        return until(() => this.lines().find((line) => line.id === id), `the answer to ${id}`);
    }
}

test("over stdio: a line a message, nothing without an id is answered, and the end is clean", async (t) => {
    const server = await startPages(t, sections);
    const config = await configFile(server.folder, sections, "stdio.ini");
    for (const args of [
        ["--server", server.base],
        ["--config", config],
    ]) {
        const bridge = new Bridge(t, args);
        bridge.write(INITIALIZE);
        assert.equal((await bridge.answer(1)).result.protocolVersion, "2025-11-25");
        bridge.write({ jsonrpc: "2.0", method: "notifications/initialized" });
        bridge.write({ jsonrpc: "2.0", method: "tools/list" });
        bridge.write("not json");
        bridge.write("");
        bridge.write({ jsonrpc: "2.0", id: "two", method: "tools/list" });
        assert.ok((await bridge.answer("two")).result.tools.length > 0);
        assert.equal((await bridge.answer(null)).error.code, -32700);
        bridge.write([{ jsonrpc: "2.0", id: 4, method: "ping" }]); // nobody should wait for 4
        await until(() => bridge.lines().length === 4, "an array to be refused");
        assert.equal(bridge.lines()[3].error.code, -32600);
        bridge.write({ jsonrpc: "2.0", id: 3, method: "tools/call", params: { name: "few" } });
        bridge.child.stdin.end();
        const { code } = await bridge.end();
        assert.equal(code, 0, bridge.stderr);
        assert.ok(
            bridge.lines().some(({ id }) => id === 3),
            "what was asked before the end is answered",
        );
        assert.equal(bridge.lines().length, 5);
    }
});

test("over stdio: a bridge that is gone takes its commands with it", async (t) => {
    const marker = longTime();
    const folder = await tempFolder(t);
    const config = await configFile(folder, {
        "tool slow": { command: `sleep ${marker}`, timeout: "600s" },
    });
    for (const end of ["SIGTERM", "SIGKILL", "input"]) {
        const bridge = new Bridge(t, ["--config", config]);
        bridge.write(INITIALIZE);
        await bridge.answer(1);
        bridge.write({ jsonrpc: "2.0", id: 2, method: "tools/call", params: { name: "slow" } });
        await until(() => processesWith(marker).length > 0, "the command to begin");
        if (end === "input") {
            // A client that closes its end has gone: it is not waited for longer than it takes.
            bridge.write({
                jsonrpc: "2.0",
                method: "notifications/cancelled",
                params: { requestId: 2 },
            });
            bridge.child.stdin.end();
        } else {
            bridge.child.kill(end);
        }
        await bridge.ended;
        await until(() => processesWith(marker).length === 0, `the command to end with ${end}`);
    }
});

test("over stdio: many may run in one place, and none leaves anything there", async (t) => {
    const folder = await tempFolder(t);
    const config = await configFile(folder, { "tool few": rowsTool(250) });
    const before = process.cwd();
    process.chdir(folder); // where they are started
    const bridges = [1, 2, 3].map(() => new Bridge(t, ["--config", config]));
    process.chdir(before);
    for (const bridge of bridges) {
        bridge.write(INITIALIZE);
        bridge.write({ jsonrpc: "2.0", id: 2, method: "tools/call", params: { name: "few" } });
    }
    for (const bridge of bridges) assert.equal(rowsIn((await bridge.answer(2)).result).length, 100);
    for (const bridge of bridges) bridge.child.stdin.end();
    for (const bridge of bridges) assert.equal((await bridge.end()).code, 0);
    assert.deepEqual(await readdir(folder), ["tidemark.ini"]);
});

test("over stdio: without its server, a bridge says so and goes on", async (t) => {
    const bridge = new Bridge(t, ["--server", "http://127.0.0.1:1"]);
    bridge.write(INITIALIZE);
    bridge.write({ jsonrpc: "2.0", id: 2, method: "tools/list" });
    const { error } = await bridge.answer(2);
    assert.equal(typeof error.message, "string");
    bridge.child.stdin.end();
    await bridge.end();
});
