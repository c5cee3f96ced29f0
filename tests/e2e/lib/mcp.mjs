// SPDX-License-Identifier: Apache-2.0
// Clients of the Model Context Protocol: those of npm, and plain requests.
import assert from "node:assert/strict";
import { Client as ModernClient } from "@modelcontextprotocol/client";
import { StreamableHTTPClientTransport as ModernHttp } from "@modelcontextprotocol/client";
import { StdioClientTransport as ModernStdio } from "@modelcontextprotocol/client/stdio";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { defer } from "./defer.mjs";
import { assertNoReport, binary, sanitizerEnv } from "./server.mjs";

const INFO = { name: "tests", version: "1.0.0" };

async function connected(t, client, transport) {
    defer(t, () => client.close());
    await client.connect(transport);
    return client;
}

/** The client of @modelcontextprotocol/sdk, which speaks 2025-11-25. */
export function sdkOverHttp(t, server, headers = {}) {
    const transport = new StreamableHTTPClientTransport(new URL(`${server.base}/mcp`), {
        requestInit: { headers },
    });
    return connected(t, new Client(INFO), transport);
}

function stdioOf(t, Transport, args, env) {
    const transport = new Transport({
        command: binary(),
        args: ["mcp", ...args],
        env: { ...sanitizerEnv(), ...env },
        stderr: "pipe",
    });
    let stderr = "";
    transport.stderr.setEncoding("utf8").on("data", (text) => (stderr += text));
    defer(t, () => assertNoReport(stderr));
    return transport;
}

/** The same with `tidemark mcp` and these arguments. */
export function sdkOverStdio(t, args, env = {}) {
    return connected(t, new Client(INFO), stdioOf(t, StdioClientTransport, args, env));
}

const PINNED = { pin: "2026-07-28" };
const modern = (mode) => new ModernClient(INFO, { versionNegotiation: { mode } });

/** The client of @modelcontextprotocol/client, held to 2026-07-28 unless `mode` says otherwise. */
export function modernOverHttp(t, server, headers = {}, mode = PINNED) {
    const transport = new ModernHttp(new URL(`${server.base}/mcp`), { requestInit: { headers } });
    return connected(t, modern(mode), transport);
}

export function modernOverStdio(t, args, env = {}) {
    return connected(t, modern(PINNED), stdioOf(t, ModernStdio, args, env));
}

/** The rows of a result: its first block of content is their JSON. */
export function rowsIn(result) {
    assert.notEqual(result.isError, true, JSON.stringify(result).slice(0, 500));
    assert.equal(result.content[0].type, "text");
    return JSON.parse(result.content[0].text);
}

/** Calls a tool and goes on until there is no next cursor: { rows, pages }. */
export async function callAll(client, name, args = {}) {
    const rows = [];
    let pages = 0;
    for (let cursor; ;) {
        const __cursor = cursor === undefined ? {} : { __cursor: cursor };
        const result = await client.callTool({ name, arguments: { ...args, ...__cursor } });
        for (const row of rowsIn(result)) rows.push(row);
        pages++;
        if (result.nextCursor === undefined) return { rows, pages };
        cursor = result.nextCursor;
    }
}

/** A request as it stands; `body` a text or an object. */
export function post(server, body, headers = {}, path = "/mcp") {
    return server.request("POST", path, {
        headers: {
            "content-type": "application/json",
            accept: "application/json, text/event-stream",
            ...headers,
        },
        body: typeof body === "string" || Buffer.isBuffer(body) ? body : JSON.stringify(body),
    });
}

let lastId = 0;

/** A request of the versions with `initialize`; its whole answer is checked to be for it. */
export async function rpc(server, method, params, headers = {}) {
    const id = ++lastId;
    const answer = await post(server, { jsonrpc: "2.0", id, method, params }, headers);
    assert.match(answer.headers["content-type"], /^application\/json/);
    const message = answer.json();
    assert.equal(message.jsonrpc, "2.0");
    assert.equal(message.id, id);
    return { status: answer.status, headers: answer.headers, ...message };
}

export const call = (server, name, args, headers) =>
    rpc(server, "tools/call", { name, arguments: args }, headers);

const META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
};

/** A request of 2026-07-28. */
export function modernRpc(server, method, params = {}, headers = {}) {
    const named = params.name ? { "mcp-name": params.name } : {};
    const all = {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
        ...named,
        ...headers,
    };
    return rpc(server, method, { ...params, _meta: META }, all);
}
