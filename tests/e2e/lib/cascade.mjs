// SPDX-License-Identifier: Apache-2.0
// The Cascade bridge before a stand-in language server, and what tests ask of it.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import OpenAI from "openai";
import { CHECKPOINT, CSRF, KEY, startLanguageServer, step } from "./language-server.mjs";
import { freePort, startServer } from "./server.mjs";
import { tempFolder } from "./temp.mjs";

export const PATH = "/v1/chat/completions";
export const MODEL = "claude-opus-4-7-medium";
export const SESSION_ERROR =
    "There was an error with your Cascade session, please update your editor";

/** A server with the bridge, and the language server behind it; more: of its config file. */
export async function startBridge(t, options = {}) {
    const { disk = false, settings = {}, flags = [], env, more = "" } = options;
    const editor = await startLanguageServer(t);
    const folder = await tempFolder(t);
    const file = join(folder, "tidemark.ini");
    const all = { target: editor.url, "csrf-token": CSRF, "api-key": KEY, ...settings };
    const given = Object.entries(all).filter(([, value]) => value !== undefined);
    const lines = given.map(([key, value]) => `${key} = ${value}\n`);
    await writeFile(file, `[cascade]\n${lines.join("")}${more}`);
    const place = { port: await freePort(), data: disk ? join(folder, "data") : undefined, env };
    const start = () => startServer(t, ["--config", file, ...flags], place);
    const server = await start();
    const client = new OpenAI({ apiKey: "k", baseURL: `${server.base}/v1`, maxRetries: 0 });
    return { editor, folder, server, client, start };
}

export const asking = (prompt, more = {}) => ({
    model: MODEL,
    messages: [{ role: "user", content: prompt }],
    ...more,
});

/** Everything of a streamed answer: { first, text, deltas, rewrites, finish }. */
export async function collect(stream) {
    const got = { text: "", deltas: [], rewrites: [], finish: null };
    for await (const chunk of stream) {
        got.first ??= chunk;
        if (chunk.tidemark?.rewrite) got.rewrites.push(chunk.tidemark.rewrite);
        const delta = chunk.choices[0]?.delta.content;
        if (delta) got.deltas.push(delta);
        got.finish = chunk.choices[0]?.finish_reason ?? got.finish;
    }
    got.text = got.deltas.join("");
    return got;
}

export async function ask({ client }, prompt) {
    return collect(await client.chat.completions.create(asking(prompt, { stream: true })));
}

export const user = [2, "User", "go"];
export const before = [
    [0, "Tool", "[CORTEX_STEP_TYPE_RETRIEVE_MEMORY]"],
    [1, "Tool", "[CORTEX_STEP_TYPE_MEMORY]"],
    user,
];
export const done = (index) => [index, "Tool", CHECKPOINT];
export const says = (index, text) => [index, "Assistant", text];

/** One poll, and all is said. */
export const quick = [step([...before, says(3, "pong"), done(4)])];

/** An answer that has no end. */
export const endless = Array.from({ length: 500 }, (_, i) =>
    step([...before, says(3, "x".repeat(i + 1))]),
);

/** The text of the chunks that a raw reader gets from now on, and the last id. */
export async function chunksOf(reader, count = Infinity) {
    const got = { text: "", lastId: undefined, ended: false };
    for (let n = 0; n < count; ) {
        const next = await reader.next();
        if (next === null) return { ...got, ended: true };
        if (next.comment !== undefined || next.data === "[DONE]") continue;
        const chunk = JSON.parse(next.data);
        assert.equal(chunk.error, undefined, next.data);
        const delta = chunk.choices[0]?.delta.content;
        if (next.id !== undefined) got.lastId = next.id;
        if (!delta) continue;
        got.text += delta;
        n++;
    }
    return got;
}
