// SPDX-License-Identifier: Apache-2.0
// An HTTP server that answers as it is asked to: see backend-plan.mjs. `node backend-process.mjs
// PORT` prints its port once it listens (0: any), and runs until its input ends. Tests also ask it:
//   GET /_seen          the requests so far
//   POST /_go?name=N    lets the answers of this name pass their next gate, now or later
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { eventsOf, isLines, planOf, wireOf } from "./backend-plan.mjs";

const seen = [];
const gates = new Map(); // name -> { open: how many times, waiting: [resolve] }

function gateOf(name) {
    if (!gates.has(name)) gates.set(name, { open: 0, waiting: [] });
    return gates.get(name);
}

/** Each answer of a name passes its k-th gate with the k-th go. */
async function passGate(name, k) {
    const gate = gateOf(name);
    while (gate.open < k) await new Promise((resolve) => gate.waiting.push(resolve));
}

function go(name) {
    const gate = gateOf(name);
    gate.open++;
    for (const resolve of gate.waiting.splice(0)) resolve();
}

async function bodyOf(request) {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    return Buffer.concat(pieces).toString("utf8");
}

/** True if the answer is over before its end. */
function meetsFate(plan, sent, response) {
    if (plan.fate === undefined || sent !== plan.at) return false;
    if (plan.fate === "cut") response.socket.destroySoon(); // what was written still leaves
    if (plan.fate === "exit") process.exit(1);
    return true;
}

const typeOf = (plan) =>
    plan.type ?? (isLines(plan) ? "application/x-ndjson" : "text/event-stream; charset=utf-8");

async function sendEvents(response, plan, entry, closed) {
    response.writeHead(200, { "content-type": typeOf(plan) });
    response.flushHeaders();
    let passed = 0;
    if (meetsFate(plan, 0, response)) return;
    for (const event of eventsOf(plan, JSON.parse(entry.body))) {
        if (plan.gates?.includes(entry.sent)) await passGate(plan.name, ++passed);
        if (plan.every && entry.sent > 0) await delay(plan.every);
        if (response.destroyed) return;
        const bytes = isLines(plan) ? `${event.data}\n` : wireOf(event, entry.sent + 1);
        const room = response.write(bytes);
        if (!room) await Promise.race([once(response, "drain"), closed]);
        entry.sent++;
        if (meetsFate(plan, entry.sent, response)) return;
    }
    response.end();
    entry.finished = true;
}

async function sendAnswer(response, plan) {
    const { status, type, base64, headers = {} } = plan.answer;
    if (plan.gates?.includes(0)) await passGate(plan.name, 1);
    response.writeHead(status, type ? { "content-type": type, ...headers } : headers);
    response.end(Buffer.from(base64, "base64"));
}

/** What a server of MCP says to messages that are no call of a tool. */
function answerRpc(response, { id, method, params }) {
    if (id === undefined) {
        response.writeHead(202).end();
        return;
    }
    const result = {
        initialize: () => ({
            protocolVersion: params.protocolVersion,
            capabilities: { tools: {} },
            serverInfo: { name: "fake", version: "1" },
        }),
        "tools/list": () => ({ tools: [{ name: "work", inputSchema: { type: "object" } }] }),
    }[method]?.();
    const error = { code: -32601, message: `no method ${method}` };
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ jsonrpc: "2.0", id, ...(result ? { result } : { error }) }));
}

async function answer(request, response) {
    const body = await bodyOf(request);
    const { method, url, headers } = request;
    const entry = { method, url, headers, body, sent: 0, finished: false, closed: false };
    seen.push(entry);
    const closed = once(response, "close").then(() => (entry.closed = true));
    const asked = JSON.parse(body);
    const plan = planOf(asked);
    if (plan === undefined && asked.jsonrpc) {
        answerRpc(response, asked);
        return;
    }
    if (plan.mute) return;
    if (plan.answer) {
        await sendAnswer(response, plan);
    } else if (plan.raw !== undefined) {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.end(plan.raw);
    } else {
        await sendEvents(response, plan, entry, closed);
    }
}

async function handle(request, response) {
    const url = new URL(request.url, "http://backend");
    if (url.pathname === "/_seen") {
        response.end(JSON.stringify(seen));
    } else if (url.pathname === "/_go") {
        go(url.searchParams.get("name"));
        response.end();
    } else {
        await answer(request, response);
    }
}

const server = createServer((request, response) => {
    response.on("error", () => {}); // a peer that went away
    handle(request, response).catch((error) => {
        if (error.code !== "ECONNRESET") console.error(error);
        response.destroy();
    });
});
server.keepAliveTimeout = 60_000;
process.stdin.on("end", () => process.exit()).resume(); // whoever started it is gone
server.listen({ port: Number(process.argv[2]), host: "127.0.0.1", backlog: 2048 }, () =>
    console.log(server.address().port),
);
