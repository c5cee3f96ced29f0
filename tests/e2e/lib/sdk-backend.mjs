// SPDX-License-Identifier: Apache-2.0
// A model server that speaks what its clients expect: fifty words, in the form of each API.
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { defer } from "./defer.mjs";

export const WORDS = Array.from({ length: 50 }, (_, n) => `word-${n} `);
const USAGE = { in: 7, out: 50 };
const EVERY_MS = 4;

const data = (value) => `data: ${JSON.stringify(value)}\n\n`;
const typed = (value) => `event: ${value.type}\n${data(value)}`;

function* chatCompletion() {
    const head = { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: "fake" };
    const chunk = (delta, finish_reason = null) =>
        data({ ...head, choices: [{ index: 0, delta, finish_reason }], usage: null });
    yield chunk({ role: "assistant", content: "" });
    for (const content of WORDS) yield chunk({ content });
    yield chunk({}, "stop");
    const usage = { prompt_tokens: USAGE.in, completion_tokens: USAGE.out, total_tokens: 57 };
    yield data({ ...head, choices: [], usage });
    yield "data: [DONE]\n\n";
}

function* response() {
    const text = WORDS.join("");
    const part = { type: "output_text", text: "", annotations: [] };
    const item = { id: "msg_1", type: "message", role: "assistant", content: [] };
    const whole = { ...item, status: "completed", content: [{ ...part, text }] };
    const head = { id: "resp_1", object: "response", created_at: 1, model: "fake", output: [] };
    const usage = { input_tokens: USAGE.in, output_tokens: USAGE.out, total_tokens: 57 };
    const at = { item_id: "msg_1", output_index: 0, content_index: 0 };
    let sequence_number = 0;
    const say = (type, more) => typed({ type, sequence_number: sequence_number++, ...more });
    yield say("response.created", { response: { ...head, status: "in_progress" } });
    yield say("response.output_item.added", { output_index: 0, item });
    yield say("response.content_part.added", { ...at, part });
    for (const delta of WORDS) yield say("response.output_text.delta", { ...at, delta });
    yield say("response.output_text.done", { ...at, text });
    yield say("response.content_part.done", { ...at, part: { ...part, text } });
    yield say("response.output_item.done", { output_index: 0, item: whole });
    const done = { ...head, status: "completed", output: [whole], usage };
    yield say("response.completed", { response: done });
}

function* message() {
    const head = { id: "msg_1", type: "message", role: "assistant", model: "fake", content: [] };
    const usage = { input_tokens: USAGE.in, output_tokens: 1 };
    yield typed({ type: "message_start", message: { ...head, stop_reason: null, usage } });
    const content_block = { type: "text", text: "" };
    yield typed({ type: "content_block_start", index: 0, content_block });
    yield typed({ type: "ping" });
    for (const text of WORDS)
        yield typed({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text } });
    yield typed({ type: "content_block_stop", index: 0 });
    const delta = { stop_reason: "end_turn", stop_sequence: null };
    yield typed({ type: "message_delta", delta, usage: { output_tokens: USAGE.out } });
    yield typed({ type: "message_stop" });
}

function* gemini() {
    const chunk = (text, more) =>
        data({
            candidates: [{ index: 0, content: { role: "model", parts: [{ text }] }, ...more }],
        });
    for (const text of WORDS) yield chunk(text);
    const usageMetadata = { promptTokenCount: USAGE.in, candidatesTokenCount: USAGE.out };
    const end = { index: 0, content: { role: "model", parts: [] }, finishReason: "STOP" };
    yield data({ candidates: [end], usageMetadata });
}

function* agent({ threadId, runId }) {
    const messageId = "m-1";
    yield data({ type: "RUN_STARTED", threadId, runId });
    yield data({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
    for (const delta of WORDS) yield data({ type: "TEXT_MESSAGE_CONTENT", messageId, delta });
    yield data({ type: "TEXT_MESSAGE_END", messageId });
    yield data({ type: "RUN_FINISHED", threadId, runId });
}

function* uiMessage() {
    yield data({ type: "start", messageId: "m-1" });
    yield data({ type: "text-start", id: "t" });
    for (const delta of WORDS) yield data({ type: "text-delta", id: "t", delta });
    yield data({ type: "text-end", id: "t" });
    yield data({ type: "finish" });
    yield "data: [DONE]\n\n";
}

/** By the end of the path. */
const ANSWERS = {
    "/chat/completions": chatCompletion,
    "/responses": response,
    "/v1/messages": message,
    "/models/fake:streamGenerateContent": gemini,
    "/agent": agent,
    "/chat": uiMessage,
};

async function bodyOf(request) {
    let text = "";
    for await (const piece of request.setEncoding("utf8")) text += piece;
    return JSON.parse(text);
}

async function answer(request, response) {
    const { pathname } = new URL(request.url, "http://backend");
    const suffix = Object.keys(ANSWERS).find((path) => pathname.endsWith(path));
    const body = await bodyOf(request);
    response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
    for (const event of ANSWERS[suffix](body)) {
        await delay(EVERY_MS);
        response.write(event);
    }
    response.end();
}

/** `asked` counts requests, `answered` those that were answered to the end. */
export async function startSdkBackend(t) {
    const backend = { asked: 0, answered: 0 };
    const server = createServer((request, response) => {
        backend.asked++;
        response.on("finish", () => backend.answered++);
        answer(request, response).catch((error) => response.destroy(error));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    backend.base = `http://127.0.0.1:${server.address().port}`;
    defer(t, () => {
        server.close();
        server.closeAllConnections();
    });
    return backend;
}
