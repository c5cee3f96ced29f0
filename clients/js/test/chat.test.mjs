// SPDX-License-Identifier: Apache-2.0
// The transport without the SDK: what it sends, and what becomes of answers. tests/e2e has the SDK.
import assert from "node:assert/strict";
import { test } from "node:test";
import { TidemarkChatTransport } from "tidemark";

const PARTS = [
    { type: "start", messageId: "m" },
    { type: "text-delta", id: "t", delta: "a\n ü" },
    { type: "finish" },
];
const SAID = `${PARTS.map((part, n) => `id: g:${n}\ndata: ${JSON.stringify(part)}\n\n`).join("")}data: [DONE]\n\n: end\n`;
const EVENTS = { "Content-Type": "text/event-stream", Location: "/api/chat/g" };

/** A transport whose requests get these answers, one after the other. */
function transportTo(answers, options) {
    const requests = [];
    const fetch = async (url, init) => {
        requests.push({ url, ...init });
        return answers[requests.length - 1]();
    };
    return { requests, transport: new TidemarkChatTransport({ fetch, ...options }) };
}

const whole = () => new Response(SAID, { headers: EVENTS });
const api = "http://chat.test/api/chat";
const message = {
    chatId: "c",
    messages: [{ id: "u" }],
    trigger: "submit-message",
    messageId: "m1",
};

async function all(stream) {
    const parts = [];
    for await (const part of stream) parts.push(part);
    return parts;
}

test("a message is sent as the SDK's own transport sends it", async () => {
    const { requests, transport } = transportTo([whole], {
        api,
        headers: async () => ({ "X-A": "1", "X-B": "1" }),
        body: { model: "fast" },
        credentials: "include",
    });
    const call = { headers: { "x-b": "2" }, body: { more: true } };
    assert.deepEqual(await all(await transport.sendMessages({ ...message, ...call })), PARTS);
    const [{ url, method, headers, body, credentials }] = requests;
    assert.deepEqual([url, method, credentials], [api, "POST", "include"]);
    const sent = ["content-type", "x-a", "x-b"].map((name) => headers.get(name));
    assert.deepEqual(sent, ["application/json", "1", "2"]);
    assert.deepEqual(JSON.parse(body), {
        model: "fast",
        more: true,
        id: "c",
        messages: [{ id: "u" }],
        trigger: "submit-message",
        messageId: "m1",
    });
});

test("requests can be prepared", async () => {
    const { requests, transport } = transportTo([whole, whole], {
        api,
        prepareSendMessagesRequest: ({ id, messages, trigger }) => ({
            api: `${api}2`,
            headers: { "X-C": "3" },
            body: { id, trigger, last: messages.at(-1) },
        }),
        prepareReconnectToStreamRequest: async ({ id }) => ({ api: `${api}/again?id=${id}` }),
    });
    await transport.sendMessages(message);
    await transport.reconnectToStream({ chatId: "c" });
    assert.equal(requests[0].url, `${api}2`);
    assert.equal(requests[0].headers.get("x-c"), "3");
    assert.deepEqual(JSON.parse(requests[0].body).last, { id: "u" });
    assert.equal(requests[1].url, `${api}/again?id=c`);
});

test("a reload finds the chat's answer, or none", async () => {
    const none = () => new Response(null, { status: 204 });
    const { requests, transport } = transportTo([whole, none], { api: `${api}/?v=1` });
    assert.deepEqual(await all(await transport.reconnectToStream({ chatId: "a b/ü" })), PARTS);
    assert.equal(await transport.reconnectToStream({ chatId: "x" }), null);
    assert.equal(requests[0].url, `${api}/a%20b%2F%C3%BC/stream?v=1`);
    assert.equal(requests[0].method, "GET");
    await assert.rejects(transport.reconnectToStream({ chatId: ".." }), TypeError);
});

test("a stop names the chat", async () => {
    const { requests, transport } = transportTo(
        [
            () => Response.json({ status: "cancelled" }),
            () => Response.json({ status: "completed" }),
            () => new Response(null, { status: 204 }),
            () => new Response("no", { status: 403 }),
        ],
        { api, headers: { Authorization: "Bearer k" } },
    );
    assert.equal(await transport.stop("c"), true);
    assert.equal(await transport.stop("c"), false, "it had ended");
    assert.equal(await transport.stop("c"), false, "there was none");
    await assert.rejects(transport.stop("c"), /no/);
    const [{ url, method, headers, keepalive }] = requests;
    assert.deepEqual([url, method, keepalive], [`${api}/c/stop`, "POST", true]);
    assert.equal(headers.get("authorization"), "Bearer k");
});

test("an abort before the answer stops the chat", async () => {
    const abort = new AbortController();
    const pending = () =>
        new Promise((_, reject) =>
            abort.signal.addEventListener("abort", () => reject(abort.signal.reason)),
        );
    const stopped = () => Response.json({ status: "cancelled" });
    const { requests, transport } = transportTo([pending, stopped], { api });
    const sending = transport.sendMessages({ ...message, abortSignal: abort.signal });
    while (requests.length < 1) await new Promise(setImmediate);
    abort.abort();
    await assert.rejects(sending, { name: "AbortError" });
    while (requests.length < 2) await new Promise(setImmediate);
    assert.deepEqual([requests[1].method, requests[1].url], ["POST", `${api}/c/stop`]);
});

test("a refusal is an error with the server's words", async () => {
    const { transport } = transportTo([() => new Response("too many", { status: 429 })], { api });
    await assert.rejects(transport.sendMessages(message), /too many/);
});

/** An answer that is cut after so many bytes. */
function cutAfter(bytes) {
    let isSent = false;
    const pull = (controller) => {
        if (isSent) controller.error(new TypeError("terminated"));
        else controller.enqueue(new TextEncoder().encode(SAID.slice(0, bytes)));
        isSent = true;
    };
    return new Response(new ReadableStream({ pull }), { headers: EVENTS });
}

test("a cut in the middle is not seen, a broken part is", async () => {
    const second = SAID.indexOf("id: g:1");
    const rest = () => new Response(SAID.slice(second), { headers: EVENTS });
    const cut = transportTo([() => cutAfter(second + 9), rest], { api });
    assert.deepEqual(await all(await cut.transport.sendMessages(message)), PARTS);
    assert.equal(cut.requests[1].url, "http://chat.test/api/chat/g");
    const odd = () => new Response("data: {oops\n\n: end\n", { headers: EVENTS });
    const broken = transportTo([odd], { api });
    await assert.rejects(all(await broken.transport.sendMessages(message)), SyntaxError);
});

test("who reads no further closes the connection", async () => {
    let cancelled = false;
    const body = () =>
        new ReadableStream({
            start: (controller) => controller.enqueue(new TextEncoder().encode(SAID.slice(0, 60))),
            cancel: () => (cancelled = true),
        });
    const { transport } = transportTo([() => new Response(body(), { headers: EVENTS })], { api });
    const reader = (await transport.sendMessages(message)).getReader();
    await reader.read();
    await reader.cancel();
    assert.equal(cancelled, true);
});
