// SPDX-License-Identifier: Apache-2.0
// A provider of models, as far as SDKs ask for it: OpenAI's, Anthropic's and Gemini's paths. It
// remembers every request, and answers with `acts` first: functions of (request, response, body).
import { once } from "node:events";
import { createServer } from "node:http";
import { defer } from "./defer.mjs";

export const WORDS = ["The", " tide", " does", " not", " hurry."];
export const TEXT = WORDS.join("");
const USAGE = { prompt_tokens: 3, completion_tokens: 5, total_tokens: 8 };

const send = (response, status, value, headers = {}) => {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(JSON.stringify(value));
};

function events(response, lines) {
    response.writeHead(200, { "content-type": "text/event-stream", "x-request-id": "req-stream" });
    for (const line of lines) response.write(line);
    response.end();
}

const data = (value) => `data: ${JSON.stringify(value)}\n\n`;
const named = (value) => `event: ${value.type}\n${data(value)}`;

// ---- OpenAI ----

const chunk = (model, delta, finish_reason = null) =>
    data({
        id: "chatcmpl-1",
        object: "chat.completion.chunk",
        created: 1,
        model,
        choices: [{ index: 0, delta, finish_reason }],
    });

function chat(response, { model, stream }) {
    const lines = WORDS.map((content) => chunk(model, { content }));
    if (stream)
        return events(response, [...lines, chunk(model, {}, "stop"), "data: [DONE]\n\n"]);
    const message = { role: "assistant", content: TEXT, refusal: null };
    const choices = [{ index: 0, message, finish_reason: "stop" }];
    const completion = { id: "chatcmpl-1", object: "chat.completion", created: 1, model };
    return send(response, 200, { ...completion, choices, usage: USAGE }, { "x-request-id": "req-1" });
}

const MODELS = {
    object: "list",
    data: [{ id: "m-1", object: "model", created: 1, owned_by: "us" }],
};

const embedding = (_, index) => ({ object: "embedding", index, embedding: [0.5, -0.5] });

// ---- Anthropic ----

function messages(response, { model, stream }) {
    const usage = { input_tokens: 3, output_tokens: 5 };
    const message = { id: "msg_1", type: "message", role: "assistant", model, stop_sequence: null };
    if (!stream) {
        const content = [{ type: "text", text: TEXT }];
        const whole = { ...message, content, stop_reason: "end_turn", usage };
        return send(response, 200, whole, { "request-id": "req-a" });
    }
    const start = { ...message, content: [], stop_reason: null, usage };
    return events(response, [
        named({ type: "message_start", message: start }),
        named({
            type: "content_block_start",
            index: 0,
            content_block: { type: "text", text: "" },
        }),
        ...WORDS.map((text) =>
            named({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text } }),
        ),
        named({ type: "content_block_stop", index: 0 }),
        named({ type: "message_delta", delta: { stop_reason: "end_turn" }, usage }),
        named({ type: "message_stop" }),
    ]);
}

const anthropicModels = {
    data: [{ type: "model", id: "claude-1", display_name: "C", created_at: "2026-01-01T00:00:00Z" }],
    has_more: false,
    first_id: "claude-1",
    last_id: "claude-1",
};

// ---- Gemini ----

const candidate = (text, finishReason) => ({
    candidates: [{ index: 0, content: { role: "model", parts: [{ text }] }, finishReason }],
    modelVersion: "g",
});

function gemini(response, stream, model) {
    if (!stream) return send(response, 200, candidate(`${model}: ${TEXT}`, "STOP"));
    const lines = WORDS.map((word, i) =>
        data(candidate(i === 0 ? `${model}: ${word}` : word, i < WORDS.length - 1 ? undefined : "STOP")),
    );
    return events(response, lines);
}

// ---- all of them ----

export function answer(request, response, body) {
    const { pathname } = new URL(request.url, "http://x");
    const json = () => JSON.parse(body.toString());
    const anthropic = request.headers["anthropic-version"] !== undefined;
    const model = /\/models\/(.+):(\w+)$/.exec(pathname);
    if (model) return gemini(response, model[2] === "streamGenerateContent", model[1]);
    switch (pathname) {
        case "/v1/models":
            return send(response, 200, anthropic ? anthropicModels : MODELS, { "x-request-id": "req-m" });
        case "/v1/chat/completions":
            return chat(response, json());
        case "/v1/embeddings":
            return send(response, 200, {
                object: "list",
                model: "e",
                data: [json().input].flat().map(embedding),
                usage: { prompt_tokens: 1, total_tokens: 1 },
            });
        case "/v1/files":
            return send(response, 200, { id: "file-1", object: "file", bytes: body.length });
        case "/v1/messages":
            return messages(response, json());
        default:
            return send(response, 404, { error: { message: `nothing at ${pathname}` } });
    }
}

/** { url, asked: [{ method, url, headers, body }], acts: [] } */
export async function startModels(t) {
    const backend = { asked: [], acts: [] };
    const server = createServer((request, response) => {
        const parts = [];
        request.on("data", (part) => parts.push(part));
        request.on("end", () => {
            const body = Buffer.concat(parts);
            const { method, url, headers, rawHeaders } = request;
            backend.asked.push({ method, url, headers, rawHeaders, body });
            const act = backend.acts.shift() ?? answer;
            act(request, response, body);
        });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    defer(t, () => {
        server.closeAllConnections();
        server.close();
    });
    backend.url = `http://127.0.0.1:${server.address().port}`;
    backend.last = () => backend.asked.at(-1);
    return backend;
}
