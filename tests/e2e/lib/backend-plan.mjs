// SPDX-License-Identifier: Apache-2.0
// What the backend of the gateway tests answers, as a function of what it was asked, so that a test
// knows every event that has to arrive.
//
// The body of a request holds a `plan`, where its protocol has room for one:
//   name       of this answer; it is in every token
//   dialect    sse (default), openai, ui-message, or one of backend-dialects.mjs
//   tokens     how many there are; a few more events surround them
//   every      milliseconds between two events (default 0: as fast as they are taken)
//   pad        bytes of filler in each token
//   gates      after so many events it waits to be told to go on, e.g. [5, 10]
//   fate, at   after `at` events: "cut" the connection, "hang" for ever, or "exit" the process
//   mute       never begins to answer
//   answer     { status, type, base64, headers }: this instead of events; the gate 0 is before it
//   raw        this text as the body of an event stream, and its end
//   type       the media type of the answer, if it is another one than usual
import * as more from "./backend-dialects.mjs";

/** The plan in the body of a request; undefined: there is none. */
export function planOf(body) {
    return (
        body.plan ??
        body.params?.arguments?.plan ??
        body.input?.plan ??
        body.forwardedProps?.plan ??
        body.data?.plan
    );
}

const filler = (plan) => (plan.pad ? { pad: "x".repeat(plan.pad) } : {});

export const textOf = (plan, n) => `${plan.name}-${n} `;

/** All tokens as one text. */
export function wholeText(plan) {
    return Array.from({ length: plan.tokens }, (_, i) => textOf(plan, i + 1)).join("");
}

/** The payload that ends an answer of the dialect sse. */
export function finalPayload(plan) {
    return { name: plan.name, tokens: plan.tokens };
}

function tokenEvent(plan, n) {
    const data = JSON.stringify({ n, text: textOf(plan, n), ...filler(plan) });
    // Data of two lines, and events without a type, are nothing special.
    if (n % 7 === 3) return { event: "token", data: data.replace(",", ",\n") };
    return n % 7 === 5 ? { data } : { event: "token", data };
}

function* sseEvents(plan) {
    for (let n = 1; n <= plan.tokens; n++) yield tokenEvent(plan, n);
    const data = JSON.stringify({ stage: "COMPLETE", payload: finalPayload(plan) });
    yield { event: "stage", data };
}

function* openaiEvents(plan) {
    const chunk = (delta, finish_reason = null) => ({
        data: JSON.stringify({
            id: `chatcmpl-${plan.name}`,
            object: "chat.completion.chunk",
            created: 1700000000,
            model: "fake-1",
            choices: [{ index: 0, delta, finish_reason }],
        }),
    });
    yield chunk({ role: "assistant", content: "" });
    for (let n = 1; n <= plan.tokens; n++)
        yield chunk({ content: textOf(plan, n), ...filler(plan) });
    yield chunk({}, "stop");
    yield { data: "[DONE]" };
}

function* uiEvents(plan) {
    const part = (value) => ({ data: JSON.stringify(value) });
    yield part({ type: "start", messageId: `msg-${plan.name}` });
    yield part({ type: "text-start", id: "t" });
    for (let n = 1; n <= plan.tokens; n++)
        yield part({ type: "text-delta", id: "t", delta: textOf(plan, n) });
    yield part({ type: "text-end", id: "t" });
    yield part({ type: "finish" });
    yield { data: "[DONE]" };
}

const makers = {
    sse: sseEvents,
    openai: openaiEvents,
    "ui-message": uiEvents,
    responses: more.responsesEvents,
    anthropic: more.anthropicEvents,
    gemini: more.geminiEvents,
    "ag-ui": more.agUiEvents,
    mcp: more.mcpEvents,
    langgraph: more.langGraphEvents,
    ndjson: more.ollamaLines,
};

/** The events of an answer one by one: { event, data }, event only where there is a type. */
export function eventsOf(plan, body = {}) {
    return makers[plan.dialect ?? "sse"](plan, (n) => textOf(plan, n), body);
}

export const isLines = (plan) => plan.dialect === "ndjson";

/** The bytes of event n (from 1), in one of the many ways in which they can be written. */
export function wireOf({ event, data }, n) {
    const lines = data.split("\n").map((line) => `data: ${line}`);
    if (event !== undefined) lines.unshift(`event: ${event}`);
    if (n % 5 === 0) lines.unshift(": of no interest", `id: theirs-${n}`, "retry: 12345");
    const eol = n % 11 === 0 ? "\r\n" : "\n";
    return [...lines, "", ""].join(eol);
}
