// SPDX-License-Identifier: Apache-2.0
// Calls of SDKs that nobody here wrote, each with the one option that makes its answers survive.
import Anthropic from "@anthropic-ai/sdk";
import { HttpAgent } from "@ag-ui/client";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { GoogleGenAI } from "@google/genai";
import { AbstractChat, DefaultChatTransport, streamText } from "ai";
import OpenAI from "openai";

const messages = [{ role: "user", content: "go" }];
const model = "fake";
const options = (base, fetch) => ({
    apiKey: "k",
    baseURL: `${base}/sdk`,
    maxRetries: 0,
    dangerouslyAllowBrowser: true,
    fetch,
});
const openai = (base, fetch) => new OpenAI(options(base, fetch));
const anthropic = (base, fetch) => new Anthropic(options(base, fetch));

/** A page with a chat: the state that the SDK's frameworks bring along. */
export class Chat extends AbstractChat {
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

    /** What the model has said. */
    get text() {
        const { role, parts } = this.lastMessage ?? {};
        return role === "assistant" ? parts.map(({ text }) => text ?? "").join("") : "";
    }
}

async function chatCreate(base, fetch) {
    const body = { model, messages, stream: true, stream_options: { include_usage: true } };
    let text = "";
    let usage, status;
    for await (const chunk of await openai(base, fetch).chat.completions.create(body)) {
        text += chunk.choices[0]?.delta.content ?? "";
        status = chunk.choices[0]?.finish_reason ?? status;
        usage = chunk.usage ?? usage;
    }
    return { text, usage, status };
}

async function chatStream(base, fetch) {
    const body = { model, messages, stream_options: { include_usage: true } };
    const stream = openai(base, fetch).chat.completions.stream(body);
    const { choices, usage } = await stream.finalChatCompletion();
    return { text: choices[0].message.content, usage, status: choices[0].finish_reason };
}

async function responsesCreate(base, fetch) {
    const body = { model, input: "go", stream: true };
    let text = "";
    let last;
    for await (const event of await openai(base, fetch).responses.create(body)) {
        text += event.type === "response.output_text.delta" ? event.delta : "";
        last = event;
    }
    return { text, usage: last.response?.usage, status: last.response?.status };
}

async function responsesStream(base, fetch) {
    const stream = openai(base, fetch).responses.stream({ model, input: "go" });
    const { output_text, usage, status } = await stream.finalResponse();
    return { text: output_text, usage, status };
}

async function messagesCreate(base, fetch) {
    const body = { model, messages, max_tokens: 99, stream: true };
    let text = "";
    let usage, status;
    for await (const event of await anthropic(base, fetch).messages.create(body)) {
        text += event.delta?.text ?? "";
        if (event.type === "message_delta") usage = event.usage;
        if (event.type === "message_stop") status = "stopped";
    }
    return { text, usage, status };
}

async function messagesStream(base, fetch) {
    const body = { model, messages, max_tokens: 99 };
    const stream = anthropic(base, fetch).messages.stream(body);
    const { content, usage, stop_reason } = await stream.finalMessage();
    return { text: content[0].text, usage, status: stop_reason };
}

async function generateContent(base, fetch) {
    const httpOptions = { baseUrl: `${base}/sdk`, fetch };
    const { models } = new GoogleGenAI({ apiKey: "k", httpOptions });
    let text = "";
    let usage, status;
    for await (const chunk of await models.generateContentStream({ model, contents: "go" })) {
        text += chunk.text ?? "";
        usage = chunk.usageMetadata ?? usage;
        status = chunk.candidates?.[0]?.finishReason ?? status;
    }
    return { text, usage, status };
}

async function useChat(base, fetch) {
    const transport = new DefaultChatTransport({ api: `${base}/sdk/chat`, fetch });
    const chat = new Chat(crypto.randomUUID(), transport);
    await chat.sendMessage({ text: "go" });
    if (chat.error) throw chat.error;
    return { text: chat.text, status: chat.status };
}

async function compatible(base, fetch) {
    const provider = createOpenAICompatible({
        name: "fake",
        baseURL: `${base}/sdk`,
        includeUsage: true,
        fetch,
    });
    let failure;
    const onError = ({ error }) => (failure = error);
    const result = streamText({ model: provider(model), prompt: "go", maxRetries: 0, onError });
    await result.consumeStream({ onError: (error) => (failure ??= error) });
    if (failure) throw failure;
    const { inputTokens, outputTokens } = await result.usage;
    return {
        text: await result.text,
        usage: { inputTokens, outputTokens },
        status: await result.finishReason,
    };
}

async function runAgent(base, fetch) {
    const agent = new HttpAgent({ url: `${base}/sdk/agent`, fetch });
    agent.setMessages([{ id: "u", role: "user", content: "go" }]);
    let status = "cut";
    const subscriber = { onRunFinishedEvent: () => void (status = "finished") };
    const { newMessages } = await agent.runAgent({ runId: "r" }, subscriber);
    return { text: newMessages.map(({ content }) => content).join(""), status };
}

/** path and dialect: the route that the call needs. run(base, fetch): { text, usage, status }. */
export const CALLS = {
    "openai chat create": { path: "/sdk/chat/completions", run: chatCreate },
    "openai chat stream": { path: "/sdk/chat/completions", run: chatStream },
    "openai responses create": { path: "/sdk/responses", run: responsesCreate },
    "openai responses stream": { path: "/sdk/responses", run: responsesStream },
    "anthropic create": { path: "/sdk/v1/messages", run: messagesCreate },
    "anthropic stream": { path: "/sdk/v1/messages", run: messagesStream },
    "google genai": {
        path: "/sdk/v1beta/models/fake:streamGenerateContent",
        run: generateContent,
    },
    "ai useChat": { path: "/sdk/chat", dialect: "ui-message", run: useChat },
    "ai streamText": { path: "/sdk/chat/completions", run: compatible },
    "ag-ui runAgent": { path: "/sdk/agent", run: runAgent },
};
