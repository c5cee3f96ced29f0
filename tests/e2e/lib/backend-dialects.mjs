// SPDX-License-Identifier: Apache-2.0
// Answers of the backend in the protocols of SDKs, as their servers give them: lists of { event, data }.
// `text(n)` is token n of the plan.

const json = (data, event) => ({ ...(event && { event }), data: JSON.stringify(data) });

/** OpenAI's Responses: one message of text. */
export function* responsesEvents(plan, text) {
    const response = (status, output) => ({
        id: `resp_${plan.name}`,
        object: "response",
        created_at: 1700000000,
        status,
        model: "fake-1",
        output,
        parallel_tool_calls: true,
        tools: [],
        ...(status === "completed" && {
            usage: { input_tokens: 1, output_tokens: plan.tokens, total_tokens: plan.tokens + 1 },
        }),
    });
    const part = (value) => ({ type: "output_text", text: value, annotations: [] });
    const item = (status, content) => ({
        id: `msg_${plan.name}`,
        type: "message",
        role: "assistant",
        status,
        content,
    });
    const at = { item_id: `msg_${plan.name}`, output_index: 0, content_index: 0 };
    let sequence_number = 0;
    const event = (type, members) =>
        json({ type, sequence_number: sequence_number++, ...members }, type);
    yield event("response.created", { response: response("in_progress", []) });
    yield event("response.in_progress", { response: response("in_progress", []) });
    yield event("response.output_item.added", { output_index: 0, item: item("in_progress", []) });
    yield event("response.content_part.added", { ...at, part: part("") });
    let all = "";
    for (let n = 1; n <= plan.tokens; n++) {
        all += text(n);
        yield event("response.output_text.delta", { ...at, delta: text(n), logprobs: [] });
    }
    const done = item("completed", [part(all)]);
    yield event("response.output_text.done", { ...at, text: all, logprobs: [] });
    yield event("response.content_part.done", { ...at, part: part(all) });
    yield event("response.output_item.done", { output_index: 0, item: done });
    yield event("response.completed", { response: response("completed", [done]) });
}

/** Anthropic's Messages: one block of text, pings between. */
export function* anthropicEvents(plan, text) {
    const event = (type, members) => json({ type, ...members }, type);
    yield event("message_start", {
        message: {
            id: `msg_${plan.name}`,
            type: "message",
            role: "assistant",
            model: "fake-1",
            content: [],
            stop_reason: null,
            stop_sequence: null,
            usage: { input_tokens: 3, output_tokens: 1 },
        },
    });
    yield event("content_block_start", { index: 0, content_block: { type: "text", text: "" } });
    yield event("ping");
    for (let n = 1; n <= plan.tokens; n++)
        yield event("content_block_delta", {
            index: 0,
            delta: { type: "text_delta", text: text(n) },
        });
    yield event("content_block_stop", { index: 0 });
    yield event("message_delta", {
        delta: { stop_reason: "end_turn", stop_sequence: null },
        usage: { output_tokens: plan.tokens },
    });
    yield event("message_stop");
}

/** Gemini's streamGenerateContent?alt=sse: as many chunks as there are tokens. */
export function* geminiEvents(plan, text) {
    for (let n = 1; n <= plan.tokens; n++)
        yield json({
            candidates: [
                {
                    content: { role: "model", parts: [{ text: text(n) }] },
                    index: 0,
                    ...(n === plan.tokens && { finishReason: "STOP" }),
                },
            ],
            usageMetadata: { promptTokenCount: 1, candidatesTokenCount: n, totalTokenCount: n + 1 },
            modelVersion: "fake-1",
            responseId: `r-${plan.name}`,
        });
}

/** AG-UI: one message of text. */
export function* agUiEvents(plan, text, { threadId = "thread", runId = "run" }) {
    const messageId = `m-${plan.name}`;
    yield json({ type: "RUN_STARTED", threadId, runId });
    yield json({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
    for (let n = 1; n <= plan.tokens; n++)
        yield json({ type: "TEXT_MESSAGE_CONTENT", messageId, delta: text(n) });
    yield json({ type: "TEXT_MESSAGE_END", messageId });
    yield json({ type: "RUN_FINISHED", threadId, runId });
}

/** A tool call over MCP: progress, and the result. */
export function* mcpEvents(plan, text, { id, params }) {
    const progressToken = params?._meta?.progressToken;
    const rpc = (message) => ({ event: "message", ...json({ jsonrpc: "2.0", ...message }) });
    for (let n = 1; n <= plan.tokens; n++)
        yield rpc({
            method: "notifications/progress",
            params: { progressToken, progress: n, total: plan.tokens, message: text(n) },
        });
    const all = Array.from({ length: plan.tokens }, (_, i) => text(i + 1)).join("");
    yield rpc({ id, result: { content: [{ type: "text", text: all }] } });
}

/** A run of LangGraph: its metadata, and values. */
export function* langGraphEvents(plan, text) {
    yield json({ run_id: `run-${plan.name}`, attempt: 1 }, "metadata");
    for (let n = 1; n <= plan.tokens; n++) yield json({ n, text: text(n) }, "values");
}

/** Ollama's /api/chat: lines of JSON. */
export function* ollamaLines(plan, text) {
    const line = (content, more) =>
        json({
            model: "fake-1",
            created_at: "2026-01-01T00:00:00Z",
            message: { role: "assistant", content },
            done: false,
            ...more,
        });
    for (let n = 1; n <= plan.tokens; n++) yield line(text(n));
    yield line("", { done: true, done_reason: "stop", eval_count: plan.tokens });
}
