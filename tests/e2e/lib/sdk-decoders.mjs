// SPDX-License-Identifier: Apache-2.0
// How SDKs take streams of server-sent events apart: their own code where it can be reached, or else
// copies. Each gives the events of a body that came in these pieces, as [{ event, data }]; where an SDK
// hands on JSON only, `data` is that JSON written anew.
import { parseSSEStream, runHttpRequest } from "@ag-ui/client";
import { _iterSSEMessages as iterateAnthropic } from "@anthropic-ai/sdk/core/streaming";
import { GoogleGenAI } from "@google/genai";
import { createParser } from "eventsource-parser";
import { _iterSSEMessages as iterateOpenai } from "openai/core/streaming";
import { BytesLineDecoder, SSEDecoder } from "../node_modules/@langchain/langgraph-sdk/dist/utils/sse.js";
import { decodeAsGo, decodeAsPython } from "./strict-sse.mjs";

const bodyOf = (pieces) =>
    new ReadableStream({
        start(controller) {
            for (const piece of pieces) controller.enqueue(piece);
            controller.close();
        },
    });

const textOf = (pieces) => Buffer.concat(pieces).toString();

/** As the standard has it. */
export function decodeAsStandard(text) {
    const events = [];
    let event, data = [];
    for (const line of text.split(/\r\n|\n|\r/)) {
        if (line === "") {
            if (data.length > 0) events.push({ event, data: data.join("\n") });
            [event, data] = [undefined, []];
            continue;
        }
        const [, name, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
        if (name === "event") event = value;
        if (name === "data") data.push(value ?? "");
    }
    return events;
}

/** The TypeScript SDKs of OpenAI and Anthropic have a common ancestor. */
const iterated = (iterate) => async (pieces) => {
    const events = [];
    for await (const { event, data } of iterate(new Response(bodyOf(pieces)), new AbortController()))
        events.push({ event, data });
    return events;
};

/** The AI SDK, MCP. */
async function decodeAsEventSourceParser(pieces) {
    const events = [];
    const parser = createParser({
        onEvent: ({ event, data }) => events.push({ event, data }),
        onError: (error) => {
            throw error;
        },
    });
    const decoder = new TextDecoder();
    for (const piece of pieces) parser.feed(decoder.decode(piece, { stream: true }));
    return events;
}

async function decodeAsLangGraph(pieces) {
    const stream = bodyOf(pieces).pipeThrough(BytesLineDecoder()).pipeThrough(SSEDecoder());
    const events = [];
    for await (const { event, data } of stream) events.push({ event, data: JSON.stringify(data) });
    return events;
}

/** It looks at data alone. */
async function decodeAsAgUi(pieces) {
    const events = [];
    const source = runHttpRequest(async () => new Response(bodyOf(pieces)));
    await new Promise((complete, error) =>
        parseSSEStream(source).subscribe({
            next: (value) => events.push({ data: JSON.stringify(value) }),
            error,
            complete,
        }),
    );
    return events;
}

/** A copy: each line with data is an event, other lines that are not known are none of JSON. */
async function decodeAsTanStack(pieces) {
    return textOf(pieces)
        .split("\n")
        .filter((line) => line.trim() !== "" && !/^(id(:|$)|:|event:|retry:)/.test(line))
        .map((line) => ({ data: line.startsWith("data: ") ? line.slice(6) : line }));
}

/** All of the SDK, since nothing less of it can be reached. It looks at data alone. */
async function decodeAsGenai(pieces) {
    const fetch = async () =>
        new Response(bodyOf(pieces), { headers: { "content-type": "text/event-stream" } });
    const ai = new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl: "http://localhost", fetch } });
    const stream = await ai.models.generateContentStream({ model: "m", contents: "x" });
    const events = [];
    for await (const { sdkHttpResponse, ...chunk } of stream)
        events.push({ data: JSON.stringify(chunk) });
    return events;
}

/** By SDK: decode, and which answers it must bear: with [DONE] or not, of which form. */
export const decoders = {
    "openai-js": { decode: iterated(iterateOpenai), numbered: true, bare: true },
    "openai-python": {
        decode: async (pieces) => decodeAsPython(textOf(pieces)),
        numbered: true,
        bare: true,
    },
    "openai-go 3.42": { decode: async (pieces) => decodeAsGo(textOf(pieces)), numbered: true },
    "anthropic-js": { decode: iterated(iterateAnthropic), numbered: true, bare: true },
    "eventsource-parser": { decode: decodeAsEventSourceParser, numbered: true, bare: true },
    TanStack: { decode: decodeAsTanStack, numbered: true, bare: true, dataOnly: true },
    LangGraph: { decode: decodeAsLangGraph, numbered: true, jsonOnly: true },
    "AG-UI": { decode: decodeAsAgUi, numbered: true, bare: true, jsonOnly: true, dataOnly: true },
    genai: { decode: decodeAsGenai, bare: true, jsonOnly: true, dataOnly: true, ofGemini: true },
};
