// SPDX-License-Identifier: Apache-2.0
// npm `ai`: its chat and its transport on a route, with its own way of reconnecting.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:http2";
import { test } from "node:test";
import { AbstractChat, DefaultChatTransport, readUIMessageStream } from "ai";
import { wholeText } from "./lib/backend-plan.mjs";
import { defer } from "./lib/defer.mjs";
import { assertEvents, read, startGateway, unpack } from "./lib/gateway.mjs";
import { startProxy } from "./lib/proxy.mjs";
import { until, within } from "./lib/wait.mjs";

const PATH = "/api/chat";

const startAi = (t, settings = {}, options = {}) =>
    startGateway(t, { routes: { [PATH]: { dialect: "ui-message", ...settings } }, ...options });

const planned = (plan) => ({ dialect: "ui-message", ...plan });

function transportAt(base, plan) {
    return new DefaultChatTransport({ api: `${base}${PATH}`, body: { plan: planned(plan) } });
}

const question = { id: "u1", role: "user", parts: [{ type: "text", text: "go" }] };
const submit = (transport, chatId, abortSignal) =>
    transport.sendMessages({
        trigger: "submit-message",
        chatId,
        messageId: undefined,
        messages: [question],
        abortSignal,
    });

/** The text of the last message that a chunk stream builds. */
async function messageText(stream) {
    let last;
    for await (const message of readUIMessageStream({ stream, terminateOnError: true }))
        last = message;
    return textIn(last);
}

const textIn = (message) =>
    message.parts
        .filter(({ type }) => type === "text")
        .map(({ text }) => text)
        .join("");

/** A page with a chat: the state that the SDK's frameworks bring along. */
class Chat extends AbstractChat {
    constructor(id, transport, messages = []) {
        const state = {
            status: "ready",
            error: undefined,
            messages,
            pushMessage: (message) => state.messages.push(message),
            popMessage: () => state.messages.pop(),
            replaceMessage: (index, message) => (state.messages[index] = message),
            snapshot: (thing) => structuredClone(thing),
        };
        super({ id, transport, state });
    }
}

test("a message arrives whole", async (t) => {
    const { base, backend } = await startAi(t);
    const plan = { name: "whole", tokens: 30 };
    const chat = new Chat("c-1", transportAt(base, plan));
    await chat.sendMessage({ text: "go" });
    assert.equal(chat.error, undefined);
    assert.equal(chat.status, "ready");
    assert.equal(textIn(chat.lastMessage), wholeText(plan));
    assert.equal(chat.lastMessage.id, "msg-whole");
    assert.equal(JSON.parse((await backend.seen())[0].body).id, "c-1");
});

/** Two ways to stop a chat by the id that its page has. */
for (const [method, suffix] of [
    ["POST", "/stop"],
    ["DELETE", "/stream"],
])
    test(`a page stops its chat: ${method} PATH/CHAT${suffix}`, async (t) => {
        const gateway = await startAi(t);
        for (const [n, id] of ["c-stop", crypto.randomUUID(), "a b/c"].entries()) {
            const plan = { name: `stop-${n}`, tokens: 30, gates: [12] };
            const chat = new Chat(id, transportAt(gateway.base, plan));
            const sending = chat.sendMessage({ text: "go" });
            await until(() => chat.lastMessage?.parts.length > 0, "the answer to begin");
            const url = `${gateway.base}${PATH}/${encodeURIComponent(id)}`;
            const stop = (headers = {}) => fetch(`${url}${suffix}`, { method, headers });
            assert.equal((await stop({ authorization: "Bearer other" })).status, 204, "not theirs");
            await chat.stop();
            assert.equal((await gateway.backend.seen(plan.name))[0].closed, false, "only the page left");
            const stopped = await stop();
            assert.equal(stopped.status, 200);
            assert.equal((await stopped.json()).status, "cancelled");
            await within(sending, "the page to be done");
            const closed = async () => (await gateway.backend.seen(plan.name))[0].closed;
            await until(closed, "the backend's connection to be closed");
            assert.equal((await fetch(`${url}/stream`)).status, 204, "nothing to come back to");
            assert.equal((await stop()).status, 204, "nothing to stop");
        }
    });

for (const disk of [false, true])
    test(`a stop right behind the start finds it, ${disk ? "on disk" : "in memory"}`, async (t) => {
        const gateway = await startAi(t, {}, { disk });
        const session = connect(gateway.base);
        defer(t, () => session.close());
        const ask = (path, body) => {
            const head = { ":method": "POST", ":path": path, "content-type": "application/json" };
            const stream = session.request(head);
            stream.end(body);
            return stream;
        };
        for (let n = 0; n < 5; n++) {
            const id = `at-once-${n}`;
            const plan = planned({ name: id, tokens: 30, gates: [12] });
            const answer = ask(PATH, JSON.stringify({ id, plan }));
            const stop = ask(`${PATH}/${id}/stop`, "");
            const [head] = await within(once(stop, "response"), "the answer to the stop");
            assert.equal(head[":status"], 200);
            stop.resume();
            answer.on("error", () => {}).resume();
            await within(once(answer, "close"), "the answer to end");
        }
        await gateway.idle();
    });

test("an id that is a generation's as well stops that one", async (t) => {
    const gateway = await startAi(t);
    const plan = (name) => planned({ name, tokens: 9, gates: [3] });
    const older = await gateway.post(plan("older"), {}, { path: PATH });
    const story = await read(older, 3);
    const id = older.headers["x-correlation-id"];
    const chat = await gateway.post(plan("chat"), {}, { path: PATH, id });
    const other = await read(chat, 3);
    assert.equal((await gateway.stop(id, PATH)).json().request_id, id);
    await within(read(older, Infinity, story), "its end");
    assert.match(story.all.at(-2).data, /"abort"/);
    await gateway.backend.go("chat");
    await within(read(chat, Infinity, other), "the other's end");
    assertEvents(other.events, plan("chat"));
});

test("a page that is loaded again finds its answer, from the start to the end", async (t) => {
    const gateway = await startAi(t);
    const plan = { name: "reload", tokens: 30, gates: [12] };
    const transport = transportAt(gateway.base, plan);
    const leaving = new AbortController();
    const stream = await submit(transport, "c-2", leaving.signal);
    const reader = stream.getReader();
    for (let i = 0; i < 12; i++) await reader.read();
    leaving.abort();

    const chat = new Chat("c-2", transport, [question]);
    const resumed = chat.resumeStream();
    await until(() => chat.status === "streaming", "the stream to be there");
    await gateway.backend.go("reload");
    await within(resumed, "the end");
    assert.equal(chat.error, undefined);
    assert.equal(textIn(chat.lastMessage), wholeText(plan));
    assert.equal(chat.messages.length, 2);
    assert.equal((await gateway.backend.seen()).length, 1);
});

test("reconnecting when nothing runs", async (t) => {
    const gateway = await startAi(t);
    const plan = { name: "idle", tokens: 5 };
    const transport = transportAt(gateway.base, plan);
    assert.equal(await transport.reconnectToStream({ chatId: "never" }), null);
    assert.equal(await messageText(await submit(transport, "c-3")), wholeText(plan));
    await until(
        async () => (await transport.reconnectToStream({ chatId: "c-3" })) === null,
        "the chat to be over",
    );
    const answer = await gateway.request("GET", `${PATH}/never/stream`);
    assert.equal(answer.status, 204);
    assert.equal(answer.text, "");
});

test("two pages follow one chat, and chats do not mix", async (t) => {
    const gateway = await startAi(t);
    const plans = ["x", "y"].map((name) => ({ name, tokens: 20, gates: [8] }));
    const transports = plans.map((plan) => transportAt(gateway.base, plan));
    const chats = ["chat/one ü%", "c.two"];
    const streams = [];
    for (const [i, chat] of chats.entries()) streams.push(await submit(transports[i], chat));
    for (const { name } of plans) await gateway.backend.hasSent(name, 8);
    const others = [];
    for (const [i, chat] of chats.entries())
        for (let n = 0; n < 2; n++)
            others.push([i, await transports[i].reconnectToStream({ chatId: chat })]);
    const reading = [...streams.entries(), ...others].map(async ([i, stream]) => {
        assert.notEqual(stream, null);
        assert.equal(await messageText(stream), wholeText(plans[i]));
    });
    for (const { name } of plans) await gateway.backend.go(name);
    await within(Promise.all(reading), "all of them");
    assert.equal((await gateway.backend.seen()).length, 2);
});

test("the next message of a chat is what it reconnects to", async (t) => {
    const gateway = await startAi(t);
    const first = { name: "first", tokens: 3 };
    const second = { name: "second", tokens: 9, gates: [4] };
    await messageText(await submit(transportAt(gateway.base, first), "c-4"));
    const transport = transportAt(gateway.base, second);
    const stream = await submit(transport, "c-4");
    const again = await transport.reconnectToStream({ chatId: "c-4" });
    await gateway.backend.go("second");
    assert.equal(await messageText(again), wholeText(second));
    assert.equal(await messageText(stream), wholeText(second));
});

test("a cut connection, then the SDK's own resume", async (t) => {
    const gateway = await startAi(t);
    const proxy = await startProxy(t, gateway.server, (n) =>
        n === 0 ? { answerBytes: 1200 } : null,
    );
    const plan = { name: "cut", tokens: 40, every: 5 };
    const chat = new Chat("c-5", transportAt(proxy.base, plan));
    await chat.sendMessage({ text: "go" });
    assert.equal(chat.status, "error", "the SDK noticed the cut");
    assert.equal(proxy.cuts, 1);
    chat.clearError();
    const page = new Chat("c-5", transportAt(proxy.base, plan), chat.messages.slice(0, 1));
    await within(page.resumeStream(), "the resumed stream");
    assert.equal(page.error, undefined);
    assert.equal(textIn(page.lastMessage), wholeText(plan));
    assert.equal((await gateway.backend.seen()).length, 1);
});

test("a failure is an error of the SDK's own", async (t) => {
    const gateway = await startAi(t);
    const plan = { name: "failed", tokens: 9, fate: "cut", at: 5 };
    const chat = new Chat("c-6", transportAt(gateway.base, plan));
    await chat.sendMessage({ text: "go" });
    assert.equal(chat.status, "error");
    assert.ok(chat.error.message.length > 0);
    assert.equal(textIn(chat.lastMessage), wholeText({ ...plan, tokens: 3 }));
});

test("a stop ends the message where it is", async (t) => {
    const gateway = await startAi(t);
    const plan = { name: "stopped", tokens: 20, gates: [6] };
    const reader = await gateway.post(planned(plan), {}, { path: PATH, id: "c-7" });
    await read(reader, 6);
    const chat = new Chat("c-7", transportAt(gateway.base, plan), [question]);
    const resumed = chat.resumeStream();
    await until(() => chat.lastMessage.role === "assistant", "the message");
    await until(() => textIn(chat.lastMessage) === wholeText({ ...plan, tokens: 4 }), "its text");
    await gateway.stop(reader.headers["x-correlation-id"], PATH);
    await within(resumed, "the end");
    assert.equal(textIn(chat.lastMessage), wholeText({ ...plan, tokens: 4 }));
    assert.equal(chat.status, "ready", String(chat.error));
});

test("the token is in the head and in a comment; there are no events of ours", async (t) => {
    const gateway = await startAi(t);
    const plan = planned({ name: "wire", tokens: 6 });
    const reader = await gateway.post(plan, {}, { path: PATH, id: "c-8" });
    const token = reader.headers["x-resume-token"];
    assert.equal(unpack(token).requestId, reader.headers["x-correlation-id"]);
    const story = await read(reader);
    assert.deepEqual(story.own, []);
    assert.ok(story.comments.includes(`resume ${token}`), String(story.comments));
    assertEvents(story.events, plan);
    const rest = await read(await gateway.resume(token, { "Last-Event-ID": "4" }, { path: PATH }));
    assertEvents(rest.events, plan, 5);
});
