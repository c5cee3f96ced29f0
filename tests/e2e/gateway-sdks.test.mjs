// SPDX-License-Identifier: Apache-2.0
// SDKs that nobody here wrote, pointed at a route by its address and nothing else: each reads a whole
// answer in its own protocol, and raises an error when the backend breaks off.
import assert from "node:assert/strict";
import { test } from "node:test";
import { HttpAgent } from "@ag-ui/client";
import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI } from "@google/genai";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { startBackend } from "./lib/backend.mjs";
import { wholeText } from "./lib/backend-plan.mjs";
import { startGateway } from "./lib/gateway.mjs";
import { until } from "./lib/wait.mjs";

const MODEL = "fake-1";
const user = [{ role: "user", content: "go" }];
const openai = (base) => new OpenAI({ apiKey: "k", baseURL: `${base}/v1`, maxRetries: 0 });
const anthropic = (base) => new Anthropic({ apiKey: "k", baseURL: base, maxRetries: 0 });

async function joined(stream, textOf) {
    let text = "";
    for await (const item of stream) text += textOf(item) ?? "";
    return text;
}

const deltaOf = (event) => (event.type === "response.output_text.delta" ? event.delta : "");

async function runAgUi(base, plan) {
    const agent = new HttpAgent({ url: `${base}/agent`, threadId: "t" });
    agent.addMessage({ id: "1", role: "user", content: "go" });
    let error; // which is how it is told
    const { newMessages } = await agent.runAgent(
        { forwardedProps: { plan } },
        { onRunErrorEvent: ({ event }) => void (error = event) },
    );
    if (error) throw new Error(error.message);
    return newMessages.map(({ content }) => content).join("");
}

/** What is called: the dialect, the route's path, and how the text of an answer is got. */
const calls = {
    "openai chat create": {
        dialect: "openai",
        path: "/v1/chat/completions",
        ask: async (base, plan) => {
            const body = { model: MODEL, messages: user, stream: true, plan };
            const stream = await openai(base).chat.completions.create(body);
            return joined(stream, (chunk) => chunk.choices[0]?.delta.content);
        },
        raises: OpenAI.APIError,
    },
    "openai chat stream": {
        dialect: "openai",
        path: "/v1/chat/completions",
        ask: async (base, plan) => {
            const stream = openai(base).chat.completions.stream({ model: MODEL, messages: user, plan });
            return (await stream.finalChatCompletion()).choices[0].message.content;
        },
        raises: OpenAI.APIError,
    },
    "openai responses create": {
        dialect: "responses",
        path: "/v1/responses",
        ask: async (base, plan) => {
            const body = { model: MODEL, input: "go", stream: true, plan };
            return joined(await openai(base).responses.create(body), deltaOf);
        },
        raises: OpenAI.APIError,
    },
    "openai responses stream": {
        dialect: "responses",
        path: "/v1/responses",
        ask: async (base, plan) => {
            const stream = openai(base).responses.stream({ model: MODEL, input: "go", plan });
            return (await stream.finalResponse()).output_text;
        },
        raises: OpenAI.APIError,
    },
    "anthropic create": {
        dialect: "anthropic",
        path: "/v1/messages",
        ask: async (base, plan) => {
            const body = { model: MODEL, max_tokens: 9, messages: user, stream: true, plan };
            const stream = await anthropic(base).messages.create(body);
            return joined(stream, ({ delta }) => delta?.text);
        },
        raises: Anthropic.APIError,
    },
    "anthropic stream": {
        dialect: "anthropic",
        path: "/v1/messages",
        ask: async (base, plan) => {
            const body = { model: MODEL, max_tokens: 9, messages: user, plan };
            const message = await anthropic(base).messages.stream(body).finalMessage();
            return message.content[0].text;
        },
        raises: Anthropic.APIError,
    },
    "genai generateContentStream": {
        dialect: "gemini",
        path: `/v1beta/models/${MODEL}:streamGenerateContent`,
        ask: async (base, plan) => {
            const ai = new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl: base } });
            const config = { httpOptions: { extraBody: { plan } } };
            const body = { model: MODEL, contents: "go", config };
            let chunks = 0;
            const stream = await ai.models.generateContentStream(body);
            const text = await joined(stream, (chunk) => (chunks++, chunk.text));
            assert.equal(chunks, plan.tokens);
            return text;
        },
        raises: /UNAVAILABLE/,
    },
    "ag-ui runAgent": { dialect: "ag-ui", path: "/agent", ask: runAgUi, raises: /broke off/ },
    "ollama chat": {
        dialect: "ndjson",
        path: "/api/chat",
        ask: async (base, plan) => {
            const ollama = new Ollama({ host: base });
            const stream = await ollama.chat({ model: MODEL, messages: user, stream: true, plan });
            return joined(stream, ({ message }) => message.content);
        },
        raises: /./,
    },
};

/** One gateway whose routes are those of all calls. */
const start = (t, dialect, flags = []) =>
    startGateway(t, {
        routes: Object.fromEntries(
            Object.values(calls).map((call) => [
                call.path,
                { dialect: dialect === "auto" ? "auto" : call.dialect },
            ]),
        ),
        flags,
    });

for (const [name, { dialect, ask }] of Object.entries(calls))
    for (const how of ["by name", "auto"])
        test(`${name}: a quiet answer is read to its end, dialect ${how}`, async (t) => {
            const gateway = await start(t, how, ["--heartbeat", "100ms"]);
            const plan = { name: "whole", dialect, tokens: 50, gates: [1, 20] };
            const answer = ask(gateway.base, plan);
            for (const events of [1, 20]) {
                await gateway.backend.hasSent("whole", events);
                await new Promise((done) => setTimeout(done, 350)); // a few heartbeats
                await gateway.backend.go("whole");
            }
            assert.equal(await answer, wholeText(plan));
            assert.equal((await gateway.backend.seen("whole")).length, 1);
        });

for (const [name, { dialect, ask, raises }] of Object.entries(calls)) {
    if (!raises) continue;
    for (const how of ["by name", "auto"])
        test(`${name}: it raises when the backend is killed, dialect ${how}`, async (t) => {
            const gateway = await start(t, how);
            const plan = { name: "killed", dialect, tokens: 50, gates: [9] };
            const raised = assert.rejects(ask(gateway.base, plan), raises);
            await gateway.backend.hasSent("killed", 9);
            await gateway.backend.kill();
            await raised;
        });
}

// ---- before the first event ----

/** What each SDK raises when nobody is behind the gateway. */
const refusals = {
    "openai chat create": (error) => error instanceof OpenAI.InternalServerError && error.code,
    "openai chat stream": (error) => error instanceof OpenAI.InternalServerError && error.code,
    "openai responses create": (error) => error instanceof OpenAI.InternalServerError && error.code,
    "openai responses stream": (error) => error instanceof OpenAI.InternalServerError && error.code,
    "anthropic create": (error) => error instanceof Anthropic.APIError && error.type,
    "anthropic stream": (error) => error instanceof Anthropic.APIError && error.type,
    "genai generateContentStream": (error) => /UNAVAILABLE/.exec(error.message)?.[0],
    "ag-ui runAgent": (error) => /UPSTREAM_ERROR/.exec(error.message)?.[0],
    "ollama chat": (error) => /refused/.exec(error.message)?.[0],
};

for (const how of ["by name", "auto"])
    test(`a backend that is down is a 502 in the form of each SDK, dialect ${how}`, async (t) => {
        const gateway = await start(t, how);
        await gateway.backend.kill();
        for (const [name, { dialect, ask }] of Object.entries(calls)) {
            const plan = { name: "down", dialect, tokens: 5 };
            await assert.rejects(ask(gateway.base, plan), (error) => {
                assert.equal(error.status ?? error.status_code ?? 502, 502, `${name}: ${error}`);
                assert.ok(refusals[name](error), `${name}: ${error}`);
                return true;
            });
        }
    });

const whole = {
    status: 200,
    type: "application/json",
    base64: btoa('{"id":"x","object":"chat.completion","choices":[{"message":{"content":"hi"}}]}'),
};
const askWhole = (base, maxRetries = 2) =>
    new OpenAI({ apiKey: "k", baseURL: `${base}/v1`, maxRetries }).chat.completions.create({
        model: MODEL,
        messages: user,
        plan: { name: "whole", answer: whole },
    });

test("openai, not streamed: it tries three times, and then raises", async (t) => {
    const gateway = await start(t, "auto");
    await gateway.backend.kill();
    await assert.rejects(askWhole(gateway.base), OpenAI.InternalServerError);
    assert.equal(await gateway.metric("tidemark_upstream_errors_total"), 3);
});

test("openai, not streamed: a backend that comes back answers", async (t) => {
    const gateway = await start(t, "auto");
    const { port } = gateway.backend;
    await gateway.backend.kill();
    const answer = askWhole(gateway.base, 8);
    const failed = () => gateway.metric("tidemark_upstream_errors_total");
    await until(async () => (await failed()) > 0, "the first try");
    await startBackend(t, { port });
    assert.equal((await answer).choices[0].message.content, "hi");
});
