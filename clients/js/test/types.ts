// SPDX-License-Identifier: Apache-2.0
// Compiled, not run: the types fit those of the SDKs that take them.
import type { ChatTransport, UIMessage } from "ai";
import OpenAI from "openai";
import {
    follow,
    resumableFetch,
    resumeReliableStreams,
    startReliableStream,
    StreamError,
    TidemarkChatTransport,
} from "tidemark";

export const client = new OpenAI({ fetch: resumableFetch({ stopOnAbort: false }) });

export const transport: ChatTransport<UIMessage> = new TidemarkChatTransport({
    api: "/api/chat",
    headers: async () => ({ Authorization: "Bearer k" }),
    prepareSendMessagesRequest: ({ id, messages }) => ({ body: { id, last: messages.at(-1) } }),
});

export async function read(): Promise<string | undefined> {
    try {
        for await (const { data, offset, closed } of follow<string>("/v1/stream/a", {
            live: "sse",
        }))
            if (closed) return data + offset;
    } catch (error) {
        if (error instanceof StreamError) return error.gap?.earliest;
    }
}

export async function talk(): Promise<boolean[]> {
    const stream = await startReliableStream({ url: "https://host", state: "chats" });
    await stream.send("hello");
    const seen: boolean[] = [];
    for await (const { id, data, text, isVerified } of stream)
        seen.push(isVerified && id + text === "" && data.length > 0);
    const others = await resumeReliableStreams({ url: "https://host", state: "chats" });
    for (const { key } of others) key.toUpperCase();
    return seen;
}

// @ts-expect-error: it has to say where the server is
startReliableStream({});
// @ts-expect-error: there are two ways to follow
follow("/v1/stream/a", { live: "pigeon" });
