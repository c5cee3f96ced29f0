// SPDX-License-Identifier: Apache-2.0
// on-disconnect: what becomes of an answer whose last reader has gone.
import assert from "node:assert/strict";
import { test } from "node:test";
import { AbstractChat, DefaultChatTransport } from "ai";
import OpenAI from "openai";
import { assertEvents, PATH, read, startGateway } from "./lib/gateway.mjs";
import { until } from "./lib/wait.mjs";

const idOf = (reader) => reader.headers["x-correlation-id"];

const isClosed = (gateway, name) =>
    until(async () => (await gateway.backend.seen(name))[0].closed, "the backend to be let go of");

test("stop: the backend is let go of when the last reader has gone", async (t) => {
    const gateway = await startGateway(t, { route: { "on-disconnect": "stop" } });
    const plan = { name: "left", tokens: 30, gates: [5] };
    const first = await gateway.post(plan);
    await read(first, 5);
    const second = await gateway.get(idOf(first));
    const story = await read(second, 5);
    first.raw.destroy();
    await gateway.backend.go("left");
    assertEvents((await read(second, Infinity, story)).events, plan); // the other is there

    const again = { ...plan, name: "again" };
    const alone = await gateway.post(again);
    await read(alone, 5);
    alone.raw.destroy();
    await isClosed(gateway, "again");
    const end = await until(async () => {
        const late = await read(await gateway.get(idOf(alone)));
        return late.named("end");
    }, "its end");
    assert.equal(end.reason, "cancelled");
    assert.equal(await gateway.metric("assist_sse_abandoned_total"), 1);
});

test("stop: before the first event nothing is left, and the key is free", async (t) => {
    const gateway = await startGateway(t, { route: { "on-disconnect": "stop" } });
    const mute = { name: "mute", mute: true };
    const headers = { "Idempotency-Key": "k", "Content-Type": "application/json" };
    const url = `${gateway.base}${PATH}`;
    for (let asked = 1; asked <= 2; asked++) {
        const gone = new AbortController();
        const body = JSON.stringify({ plan: mute });
        const asking = fetch(url, { method: "POST", headers, body, signal: gone.signal });
        await until(async () => (await gateway.backend.seen()).length === asked, "it to be asked");
        gone.abort();
        await assert.rejects(asking);
        await until(async () => (await gateway.backend.seen())[asked - 1].closed, "it to be left");
        await gateway.idle();
    }
});

test("stop-after: whoever comes back in time finds it", async (t) => {
    const gateway = await startGateway(t, { route: { "on-disconnect": "stop-after 1h" } });
    const plan = { name: "grace", tokens: 30, gates: [5] };
    const first = await gateway.post(plan);
    const { token } = await read(first, 5);
    first.raw.destroy();
    const back = await gateway.resume(token);
    const story = await read(back, 5);
    await gateway.backend.go("grace");
    assertEvents((await read(back, Infinity, story)).events, plan);
});

test("stop-after: it stops when nobody does", async (t) => {
    const gateway = await startGateway(t, { route: { "on-disconnect": "stop-after 300ms" } });
    const first = await gateway.post({ name: "alone", tokens: 30, gates: [5] });
    await read(first, 5);
    first.raw.destroy();
    await isClosed(gateway, "alone");
    assert.equal(await gateway.metric("assist_sse_abandoned_total"), 1);
});

test("continue is the default", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "on", tokens: 30, gates: [5] };
    const first = await gateway.post(plan);
    await read(first, 5);
    first.raw.destroy();
    await gateway.backend.go("on");
    await gateway.backend.hasSent("on", 31);
    await gateway.idle();
    assertEvents((await read(await gateway.get(idOf(first)))).events, plan);
});

class Chat extends AbstractChat {
    constructor(id, transport) {
        const state = {
            status: "ready",
            error: undefined,
            messages: [],
            pushMessage: (message) => state.messages.push(message),
            popMessage: () => state.messages.pop(),
            replaceMessage: (index, message) => (state.messages[index] = message),
            snapshot: (thing) => structuredClone(thing),
        };
        super({ id, transport, state });
    }
}

test("useChat: stop() alone stops the backend, and a reload finds nothing", async (t) => {
    const path = "/api/chat";
    const settings = { dialect: "ui-message", "on-disconnect": "stop" };
    const gateway = await startGateway(t, { routes: { [path]: settings } });
    const plan = { name: "chat", dialect: "ui-message", tokens: 30, gates: [12] };
    const api = `${gateway.base}${path}`;
    const chat = new Chat("c-1", new DefaultChatTransport({ api, body: { plan } }));
    const sending = chat.sendMessage({ text: "go" });
    await until(() => chat.lastMessage?.parts.length > 0, "the answer to begin");
    await chat.stop();
    await sending;
    await isClosed(gateway, "chat");
    await until(async () => (await fetch(`${api}/c-1/stream`)).status === 204, "nothing to resume");
});

test("openai: leaving the loop stops the backend", async (t) => {
    const routes = { "/openai/chat/completions": { dialect: "openai", "on-disconnect": "stop" } };
    const gateway = await startGateway(t, { routes });
    const client = new OpenAI({ apiKey: "k", baseURL: `${gateway.base}/openai` });
    const plan = { name: "break", dialect: "openai", tokens: 30, gates: [5] };
    const messages = [{ role: "user", content: "go" }];
    const stream = await client.chat.completions.create({ model: "m", messages, stream: true, plan });
    for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
    await isClosed(gateway, "break");
    assert.equal((await gateway.backend.seen()).length, 1);
});
