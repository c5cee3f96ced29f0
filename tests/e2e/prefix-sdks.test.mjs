// SPDX-License-Identifier: Apache-2.0
// SDKs of model providers, unmodified: their base URL is all that is changed.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI } from "@google/genai";
import OpenAI, { toFile } from "openai";
import { answer, startModels, TEXT } from "./lib/models-backend.mjs";
import { startResponsesBackend, textOf } from "./lib/responses-backend.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const question = { model: "m-1", messages: [{ role: "user", content: "go" }] };
const claude = { ...question, max_tokens: 10 };

const openaiAt = (base, options = {}) =>
    new OpenAI({ apiKey: "k", baseURL: `${base}/v1`, maxRetries: 2, ...options });
const anthropicAt = (base) => new Anthropic({ apiKey: "a", baseURL: base });
const geminiAt = (baseUrl) => new GoogleGenAI({ apiKey: "g", httpOptions: { baseUrl } });

async function streamed(stream) {
    let text = "";
    for await (const part of stream) text += part.choices[0].delta.content ?? "";
    return text;
}

async function startFile(t, lines) {
    const file = join(await tempFolder(t), "tidemark.ini");
    await writeFile(file, lines);
    return startServer(t, ["--config", file]);
}

/** Does the journal speak of it? Streams of routes are named by their ids. */
async function isStored(folder, id) {
    const names = await readdir(folder, { recursive: true });
    const files = names.filter((name) => name.includes("journal")).map((name) => join(folder, name));
    const texts = await Promise.all(files.map((file) => readFile(file).catch(() => "")));
    return texts.some((text) => text.includes(id));
}

test("openai: models, embeddings, files, chat", async (t) => {
    const backend = await startModels(t);
    const server = await startServer(t, ["--openai", backend.url]);
    const client = openaiAt(server.base);

    const { data: models, request_id } = await client.models.list().withResponse();
    assert.deepEqual(models.data.map(({ id }) => id), ["m-1"]);
    assert.equal(request_id, "req-m");
    assert.equal(backend.last().headers.authorization, "Bearer k");
    assert.match(backend.last().headers["user-agent"], /^OpenAI\/JS/);
    assert.equal(backend.last().headers["x-stainless-lang"], "js");

    const made = await client.embeddings.create({ model: "e", input: ["a", "b"], encoding_format: "float" });
    assert.deepEqual(made.data.map(({ index }) => index), [0, 1]);

    const content = Buffer.alloc(100_000, "tide ");
    const file = await toFile(content, "tides.jsonl");
    assert.equal((await client.files.create({ file, purpose: "batch" })).id, "file-1");
    const { headers, body } = backend.last();
    assert.match(headers["content-type"], /^multipart\/form-data; boundary=/);
    assert.ok(body.includes(content), "the file as it is");

    const whole = await client.chat.completions.create(question);
    assert.equal(whole.choices[0].message.content, TEXT);
    assert.equal(whole._request_id, "req-1");
    const { data, response } = await client.chat.completions
        .create({ ...question, stream: true })
        .withResponse();
    assert.equal(await streamed(data), TEXT);
    assert.equal(response.headers.get("x-request-id"), "req-stream");
    assert.equal(backend.asked.length, 5, "each asked once");
});

test("what wants no stream costs no write", async (t) => {
    const backend = await startModels(t);
    const data = join(await tempFolder(t), "data");
    const server = await startServer(t, ["--openai", backend.url], { data });
    const client = openaiAt(server.base);
    const post = async (body) => {
        const headers = { "content-type": "application/json" };
        const answer = await server.request("POST", "/v1/chat/completions", {
            headers,
            body: JSON.stringify(body),
        });
        return answer.headers["x-correlation-id"];
    };
    const idOf = async (asked) => (await asked.withResponse()).response.headers.get("x-correlation-id");
    const embedding = { model: "e", input: "a", encoding_format: "float" };
    for (const id of [
        await post(question),
        await post({ ...question, stream: false }),
        await idOf(client.embeddings.create(embedding)),
        await idOf(client.models.list()),
    ])
        assert.equal(await isStored(data, id), false);
    assert.equal(await isStored(data, await post({ ...question, stream: true })), true);
});

for (const stream of [true, false])
    test(`openai: its own retry gets the answer that was lost, stream: ${stream}`, async (t) => {
        const backend = await startModels(t);
        const server = await startServer(t, ["--openai", backend.url]);
        let tries = 0;
        let go;
        const gate = new Promise((resolve) => (go = resolve));
        backend.acts = [(...asked) => gate.then(() => answer(...asked))];
        // The first connection is lost before there is a head.
        const losing = async (url, init) => {
            if (++tries > 1) return fetch(url, init);
            const lost = new AbortController();
            const asking = fetch(url, { ...init, signal: lost.signal });
            await until(() => backend.asked.length === 1, "the backend to be asked");
            lost.abort();
            await asking.catch(() => {});
            setTimeout(go, 100);
            throw new TypeError("fetch failed");
        };
        const client = openaiAt(server.base, { fetch: losing });
        const got = await client.chat.completions.create({ ...question, stream });
        assert.equal(stream ? await streamed(got) : got.choices[0].message.content, TEXT);
        assert.deepEqual([tries, backend.asked.length], [2, 1]);
    });

test("openai: the backend's word on retries counts", async (t) => {
    const backend = await startModels(t);
    const server = await startServer(t, ["--openai", backend.url]);
    const fails = (status, headers) => (request, response) => {
        response.writeHead(status, { "content-type": "application/json", ...headers });
        response.end('{"error":{"message":"no"}}');
    };
    const asked = async (stream, act, options = {}) => {
        const before = backend.asked.length;
        backend.acts = [act, act, act];
        const client = openaiAt(server.base, options);
        await assert.rejects(client.chat.completions.create({ ...question, stream }), OpenAI.APIError);
        return backend.asked.length - before;
    };
    for (const stream of [true, false]) {
        assert.equal(await asked(stream, fails(503, { "x-should-retry": "false" })), 1);
        assert.equal(
            await asked(stream, fails(400, { "x-should-retry": "true", "retry-after-ms": "1" })),
            3,
        );
        assert.equal(await asked(stream, fails(500, { "retry-after-ms": "1" })), 3);
    }
    backend.acts = [];
});

test("openai: an answer under a key is joined, and the key goes on", async (t) => {
    const backend = await startModels(t);
    const server = await startServer(t, ["--openai", backend.url]);
    const client = openaiAt(server.base);
    const ask = (path) =>
        fetch(`${server.base}${path}`, {
            method: "POST",
            headers: { "content-type": "application/json", "idempotency-key": "one" },
            body: JSON.stringify({ ...question, stream: true }),
        });
    const first = await ask("/v1/chat/completions");
    const again = await ask("/v1/chat/completions");
    assert.equal(first.headers.get("x-correlation-id"), again.headers.get("x-correlation-id"));
    await Promise.all([first.text(), again.text()]);
    assert.equal(backend.asked.length, 1);
    assert.equal(backend.last().headers["idempotency-key"], "one");
    const elsewhere = await ask("/v1/messages"); // the same key below another path is another key
    assert.notEqual(elsewhere.headers.get("x-correlation-id"), again.headers.get("x-correlation-id"));
    await elsewhere.text();
    assert.equal(backend.asked.length, 2);
    assert.equal((await client.models.list()).data.length, 1);
});

test("openai: responses by id; what is not ours is the upstream's", async (t) => {
    const backend = await startResponsesBackend(t);
    const server = await startServer(t, ["--openai", backend.url("")]);
    const { responses } = openaiAt(server.base, { maxRetries: 0 });
    const asked = { model: "fake-1", input: "go", plan: { gate: 20 } };
    const events = [];
    for await (const event of await responses.create({ ...asked, background: true, stream: true }))
        if (events.push(event) === 11) break;
    const { id } = events[0].response;
    assert.match(id, /^resp_[0-9a-f]{32}$/);
    const rest = await responses.retrieve(id, { stream: true, starting_after: 10 });
    backend.go();
    for await (const event of rest) events.push(event);
    assert.deepEqual(
        events.map(({ sequence_number }) => sequence_number),
        events.map((_, i) => i),
    );
    const whole = await responses.retrieve(id);
    assert.equal(whole.status, "completed");
    assert.equal(whole.output_text, textOf(asked).join(""));
    const [{ content }] = (await responses.inputItems.list(id)).data;
    assert.equal(content[0].text, "go");
    assert.equal((await responses.cancel(id)).id, id);
    await responses.delete(id);
    assert.equal(backend.seen.length, 1, "all of it from the store");
    for (const [ask, method, path] of [
        [() => responses.retrieve("resp_of_theirs"), "GET", "/v1/responses/resp_of_theirs"],
        [() => responses.cancel("resp_of_theirs"), "POST", "/v1/responses/resp_of_theirs/cancel"],
        [() => responses.retrieve(id), "GET", `/v1/responses/${id}`], // which is gone
    ]) {
        await assert.rejects(ask(), OpenAI.APIError);
        const { url, ...seen } = backend.seen.at(-1);
        assert.deepEqual([seen.method, url], [method, path]);
    }
});

test("anthropic: messages, whole and streamed, and models", async (t) => {
    const backend = await startModels(t);
    const server = await startServer(t, ["--anthropic", backend.url]);
    const client = anthropicAt(server.base);
    const whole = await client.messages.create(claude);
    assert.equal(whole.content[0].text, TEXT);
    assert.equal(whole._request_id, "req-a");
    assert.ok(backend.last().headers["anthropic-version"]);
    assert.equal((await client.messages.stream(claude).finalMessage()).content[0].text, TEXT);
    const models = await client.models.list();
    assert.deepEqual(models.data.map(({ id }) => id), ["claude-1"]);
});

test("both providers on one server", async (t) => {
    const [openai, anthropic] = [await startModels(t), await startModels(t)];
    const flags = ["--openai", openai.url, "--anthropic", `${anthropic.url}/v1`];
    const { base } = await startServer(t, flags);
    assert.equal((await anthropicAt(base).messages.stream(claude).finalMessage()).content[0].text, TEXT);
    assert.equal((await anthropicAt(base).models.list()).data[0].id, "claude-1");
    assert.deepEqual([openai.asked.length, anthropic.asked.length], [0, 2]);
    const stream = await openaiAt(base).chat.completions.create({ ...question, stream: true });
    assert.equal(await streamed(stream), TEXT);
    assert.equal((await openaiAt(base).models.list()).data[0].id, "m-1");
    assert.deepEqual([openai.asked.length, anthropic.asked.length], [2, 2]);
});

for (const [how, config, path] of [
    ["a prefix", (url) => `[route /v1beta]\nprefix = yes\nupstream = ${url}\n`, ""],
    [
        "parameters",
        (url) =>
            ["streamGenerateContent", "generateContent"]
                .map((method) => `[route /gemini/v1beta/models/{model}:${method}]
dialect = auto
upstream = ${url}/v1beta/models/{model}:${method}\n`)
                .join(""),
        "/gemini",
    ],
])
    test(`genai: two models through ${how}`, async (t) => {
        const backend = await startModels(t);
        const server = await startFile(t, config(backend.url));
        const client = geminiAt(`${server.base}${path}`);
        for (const model of ["gemini-2.5-pro", "gemini-flash"]) {
            const whole = await client.models.generateContent({ model, contents: "go" });
            assert.equal(whole.text, `${model}: ${TEXT}`);
            assert.equal(backend.last().url, `/v1beta/models/${model}:generateContent`);
            assert.equal(backend.last().headers["x-goog-api-key"], "g");
            let text = "";
            for await (const part of await client.models.generateContentStream({ model, contents: "go" }))
                text += part.text ?? "";
            assert.equal(text, `${model}: ${TEXT}`);
            assert.equal(backend.last().url, `/v1beta/models/${model}:streamGenerateContent?alt=sse`);
        }
    });

test("the provider's key stays with the server", async (t) => {
    const backend = await startModels(t);
    const digest = createHash("sha256").update("tok").digest("hex");
    const server = await startFile(
        t,
        `[route /v1]
prefix = yes
upstream = ${backend.url}
upstream-header = Authorization: Bearer sk-ours
[caller ann]
token-sha256 = ${digest}
grant = generate route:/v1/chat/completions
grant = call route:/v1/models
`,
    );
    const client = openaiAt(server.base, { apiKey: "tok" });
    assert.equal((await client.models.list()).data[0].id, "m-1");
    assert.equal(backend.last().headers.authorization, "Bearer sk-ours");
    assert.equal((await client.chat.completions.create(question)).choices[0].message.content, TEXT);
    for (const ask of [
        () => client.embeddings.create({ model: "e", input: "a" }),
        () => client.files.list(),
        () => openaiAt(server.base, { apiKey: "other" }).models.list(),
    ])
        await assert.rejects(ask(), OpenAI.APIError);
    assert.equal(backend.asked.length, 2, "what is not granted is not sent on");
});
