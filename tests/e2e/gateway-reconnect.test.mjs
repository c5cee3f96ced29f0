// SPDX-License-Identifier: Apache-2.0
// SDKs that reconnect by themselves, as they are: their connections are cut in the middle of an answer,
// and they get all of it from one generation. The backend is asked once.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client as LangGraph } from "@langchain/langgraph-sdk";
import * as mcp2 from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { fetchServerSentEvents } from "@tanstack/ai-client";
import { textOf, wholeText } from "./lib/backend-plan.mjs";
import { startGateway } from "./lib/gateway.mjs";
import { startProxy } from "./lib/proxy.mjs";

/** A gateway with this route, and a proxy before it that cuts connections as the plan says. */
async function start(t, path, settings, cuts) {
    const gateway = await startGateway(t, { routes: { [path]: settings } });
    const proxy = await startProxy(t, gateway.server, cuts);
    return { gateway, proxy };
}

/** Cuts so many connections, each once it has carried that much of an answer. */
const firstCut = (n, answerBytes) => (i) => (i < n ? { answerBytes } : null);

// ---- TanStack AI ----

for (const dialect of ["auto", "ag-ui"])
    test(`TanStack AI: two cuts are one generation, dialect ${dialect}`, async (t) => {
        const { gateway, proxy } = await start(t, "/chat", { dialect }, firstCut(2, 3000));
        const plan = { name: "tanstack", dialect: "ag-ui", tokens: 50, every: 2 };
        const connection = fetchServerSentEvents(`${proxy.base}/chat`, { body: { plan } });
        const events = [];
        const run = { threadId: "thread", runId: "run" };
        for await (const event of connection.connect([], undefined, undefined, run)) events.push(event);
        assert.equal(proxy.cuts, 2);
        assert.equal(events.map(({ delta }) => delta ?? "").join(""), wholeText(plan));
        assert.equal(events[0].type, "RUN_STARTED");
        assert.equal(events.at(-1).type, "RUN_FINISHED");
        assert.equal(events.length, plan.tokens + 4);
        assert.equal((await gateway.backend.seen("tanstack")).length, 1);
    });

test("TanStack AI: an answer that is no longer kept is an error, and nothing is asked again", async (t) => {
    const settings = { dialect: "auto", "state-ttl": "300ms", "snapshot-ttl": "1ms" };
    const { gateway, proxy } = await start(t, "/chat", settings, firstCut(1, 3000));
    const plan = { name: "gone", dialect: "ag-ui", tokens: 50 };
    const options = { body: { plan }, reconnect: { delayMs: 2500 } };
    const connection = fetchServerSentEvents(`${proxy.base}/chat`, options);
    const run = { threadId: "thread", runId: "run" };
    await assert.rejects(async () => {
        for await (const _ of connection.connect([], undefined, undefined, run));
    }, /410/);
    assert.equal((await gateway.backend.seen("gone")).length, 1);
});

// ---- MCP ----

const reconnectionOptions = {
    initialReconnectionDelay: 20,
    maxReconnectionDelay: 20,
    reconnectionDelayGrowFactor: 1,
    maxRetries: 2,
};

function mcpClient(url, kind) {
    const [Kind, Transport] =
        kind === "2.4"
            ? [mcp2.Client, mcp2.StreamableHTTPClientTransport]
            : [Client, StreamableHTTPClientTransport];
    const client = new Kind({ name: "test", version: "1" });
    const transport = new Transport(new URL(url), { reconnectionOptions });
    return { client, connect: () => client.connect(transport) };
}

const callWork = (client, kind, plan, options) => {
    const call = { name: "work", arguments: { plan } };
    return kind === "2.4"
        ? client.callTool(call, options)
        : client.callTool(call, undefined, options);
};

for (const kind of ["1.32", "2.4"])
    for (const dialect of ["auto", "mcp"]) {
        test(`MCP ${kind}: a call is cut in the middle, dialect ${dialect}`, async (t) => {
            // Its handshake is small.
            const { gateway, proxy } = await start(t, "/rpc", { dialect }, () => ({ answerBytes: 3000 }));
            const { client, connect } = mcpClient(`${proxy.base}/rpc`, kind);
            t.after(() => client.close());
            await connect();
            const plan = { name: "work", dialect: "mcp", tokens: 20, every: 5 };
            const progress = [];
            const result = await callWork(client, kind, plan, {
                onprogress: ({ message }) => progress.push(message),
            });
            assert.ok(proxy.cuts >= 1, `${proxy.cuts} cuts`);
            assert.deepEqual(result.content, [{ type: "text", text: wholeText(plan) }]);
            assert.deepEqual(
                progress,
                Array.from({ length: 20 }, (_, i) => textOf(plan, i + 1)),
            );
            assert.equal((await gateway.backend.seen("work")).length, 1);
        });

        test(`MCP ${kind}: a call fails when the backend does, dialect ${dialect}`, async (t) => {
            const { gateway, proxy } = await start(t, "/rpc", { dialect }, () => null);
            const { client, connect } = mcpClient(`${proxy.base}/rpc`, kind);
            t.after(() => client.close());
            await connect();
            const plan = { name: "fails", dialect: "mcp", tokens: 20, fate: "cut", at: 7 };
            await assert.rejects(callWork(client, kind, plan, {}), /broke off/);
            // It comes back once for what it has been told, and no more.
            await new Promise((done) => setTimeout(done, 500));
            assert.ok(proxy.connections < 8, `${proxy.connections} connections`);
        });
    }

// ---- LangGraph ----

test("LangGraph: two cuts, every event once", async (t) => {
    const { gateway, proxy } = await start(
        t,
        "/runs/stream",
        { dialect: "auto" },
        firstCut(2, 3000),
    );
    const client = new LangGraph({ apiUrl: proxy.base });
    const plan = { name: "graph", dialect: "langgraph", tokens: 50, every: 2 };
    const events = [];
    for await (const event of client.runs.stream(null, "agent", { input: { plan } }))
        events.push(event);
    assert.equal(proxy.cuts, 2);
    assert.equal(events[0].event, "metadata");
    assert.equal(
        events.slice(1).map(({ data }) => data.text).join(""),
        wholeText(plan),
    );
    assert.equal((await gateway.backend.seen("graph")).length, 1);
});
