// SPDX-License-Identifier: Apache-2.0
// Answers that are no streams, under a key: recorded as a whole, and given again. SDKs as they are.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { startBackend } from "./lib/backend.mjs";
import { PATH, startGateway } from "./lib/gateway.mjs";
import { startProxy } from "./lib/proxy.mjs";
import { startRedis } from "./lib/redis.mjs";
import { freePort } from "./lib/server.mjs";
import { until } from "./lib/wait.mjs";

const CHAT = "/openai/chat/completions";
const MESSAGES = "/anthropic/v1/messages";
const routes = { [CHAT]: { dialect: "openai" }, [MESSAGES]: { dialect: "openai" } };
const key = (value) => ({ "Idempotency-Key": value });
const idOf = (answer) => answer.headers["x-correlation-id"];

const completion = { id: "x", object: "chat.completion", choices: [{ message: { content: "hi" } }] };
const message = {
    id: "m",
    type: "message",
    role: "assistant",
    model: "m",
    content: [{ type: "text", text: "hi" }],
    stop_reason: "end_turn",
    usage: { input_tokens: 1, output_tokens: 1 },
};

/** A plan whose answer is this JSON. */
const answering = (name, body, more = {}) => ({
    name,
    answer: { status: 200, type: "application/json", base64: btoa(JSON.stringify(body)) },
    ...more,
});

const chat = (client, plan, headers) =>
    client.chat.completions.create(
        { model: "m", messages: [{ role: "user", content: "go" }], plan },
        { headers },
    );

const messages = (client, plan, headers) =>
    client.messages.create(
        { model: "m", max_tokens: 9, messages: [{ role: "user", content: "go" }], plan },
        { headers },
    );

/** Everything of an answer but the time. */
function whole({ status, headers, bytes }) {
    const { date, ...rest } = headers;
    return { status, headers: rest, digest: createHash("sha256").update(bytes).digest("hex") };
}

test("openai, not streamed, the answer is lost: asked once", async (t) => {
    const gateway = await startGateway(t, { routes, disk: true });
    const proxy = await startProxy(t, gateway.server, (n) => (n < 2 ? { answerBytes: 0 } : null));
    const client = new OpenAI({ apiKey: "k", baseURL: `${proxy.base}/openai` });
    const answer = await chat(client, answering("lost", completion), key("o"));
    assert.equal(answer.choices[0].message.content, "hi");
    assert.equal(proxy.cuts, 2);
    const [{ headers }, ...others] = await gateway.backend.seen();
    assert.equal(others.length, 0, "asked once");
    assert.equal(headers["accept-encoding"], "identity");
});

test("anthropic, not streamed, the answer is lost: asked once", async (t) => {
    const gateway = await startGateway(t, { routes, disk: true });
    const proxy = await startProxy(t, gateway.server, (n) => (n < 2 ? { answerBytes: 0 } : null));
    const client = new Anthropic({ apiKey: "k", baseURL: `${proxy.base}/anthropic` });
    const answer = await messages(client, answering("lost", message), key("a"));
    assert.equal(answer.content[0].text, "hi");
    assert.equal(proxy.cuts, 2);
    assert.equal((await gateway.backend.seen()).length, 1);
});

test("it is given again as it came, also by its location", async (t) => {
    const gateway = await startGateway(t);
    const plan = answering("again", { text: "ä" });
    plan.answer = { ...plan.answer, status: 201, headers: { etag: '"e"', "x-unknown": "1" } };
    const first = await gateway.post(plan, key("k"));
    assert.equal(first.status, 201);
    assert.equal(first.headers["content-type"], "application/json");
    assert.equal(first.headers.etag, '"e"');
    assert.equal(first.headers.location, `${PATH}/${idOf(first)}`);
    assert.equal(first.headers["x-resume-token"], undefined);
    const again = await gateway.post(plan, key("k"));
    assert.deepEqual(whole(again), whole(first));
    const read = await gateway.get(idOf(first));
    assert.equal(read.status, 201);
    assert.deepEqual(read.bytes, first.bytes);
    assert.equal((await gateway.post({ ...plan, name: "other" }, key("k"))).status, 422);
    assert.equal((await gateway.backend.seen()).length, 1);
    assert.equal(await gateway.metric("assist_sse_answer_recorded_total"), 1);
});

test("many at once are one request, and one answer", async (t) => {
    const gateway = await startGateway(t, { disk: true });
    const plan = answering("many", { text: "x" }, { gates: [0] });
    const asking = Array.from({ length: 20 }, () => gateway.post(plan, key("k")));
    await until(async () => (await gateway.backend.seen()).length > 0, "the backend to be asked");
    await gateway.backend.go("many");
    const answers = await Promise.all(asking);
    for (const answer of answers) assert.deepEqual(whole(answer), whole(answers[0]));
    assert.equal((await gateway.backend.seen()).length, 1);
});

for (const signal of ["SIGTERM", "SIGKILL"])
    test(`a restart by ${signal} takes nothing of it`, async (t) => {
        const gateway = await startGateway(t, { disk: true });
        const plan = answering("kept", { text: "x".repeat(100_000) });
        const first = await gateway.post(plan, key("k"));
        await gateway.restart(signal);
        assert.deepEqual(whole(await gateway.post(plan, key("k"))), whole(first));
        assert.deepEqual((await gateway.get(idOf(first))).bytes, first.bytes);
        assert.equal((await gateway.backend.seen()).length, 1);
    });

test("killed when the backend has been asked: nobody asks again by himself", async (t) => {
    const gateway = await startGateway(t, { disk: true });
    const plan = answering("orphan", { text: "x" }, { gates: [0] });
    const lost = assert.rejects(gateway.post(plan, key("k")));
    await until(async () => (await gateway.backend.seen()).length === 1, "the backend to be asked");
    await gateway.restart("SIGKILL");
    await lost;
    await gateway.backend.go("orphan");
    for (let i = 0; i < 2; i++) {
        const again = await gateway.post(plan, key("k"));
        assert.equal(again.status, 503, again.text);
        assert.equal(again.json().code, "ORPHANED");
    }
    assert.equal((await gateway.backend.seen()).length, 1);
    const retry = await gateway.post(plan, { ...key("k"), "Idempotency-Retry": "?1" });
    assert.equal(retry.status, 200, retry.text);
    assert.equal((await gateway.backend.seen()).length, 2);
    assert.deepEqual(whole(await gateway.post(plan, key("k"))), whole(retry));
    assert.equal((await gateway.backend.seen()).length, 2);
});

test("another server over Redis gives it as well", async (t) => {
    const redis = await startRedis(t);
    const backend = await startBackend(t);
    const all = { backend, flags: ["--store", redis.url] };
    const [one, two] = [await startGateway(t, all), await startGateway(t, all)];
    const plan = answering("both", { text: "x".repeat(3_000_000) }, { gates: [0] });
    const asking = [one.post(plan, key("k")), two.post(plan, key("k"))];
    await until(async () => (await backend.seen()).length === 1, "the backend to be asked");
    await backend.go("both");
    const [first, second] = await Promise.all(asking);
    assert.equal(first.status, 200, first.text);
    assert.deepEqual(whole(second), whole(first));
    await one.server.kill();
    assert.deepEqual(whole(await two.post(plan, key("k"))), whole(first));
    assert.equal((await backend.seen()).length, 1);
});

test("what is too large passes, and its key is free", async (t) => {
    const gateway = await startGateway(t, { disk: true });
    const body = "x".repeat(4 * 1024 * 1024 + 1);
    const plan = { name: "large", answer: { status: 200, type: "text/plain", base64: btoa(body) } };
    for (let asked = 1; asked <= 2; asked++) {
        const answer = await gateway.post(plan, key("k"));
        assert.equal(answer.status, 200);
        assert.equal(answer.text, body);
        assert.equal(answer.headers.location, undefined);
        assert.equal((await gateway.backend.seen()).length, asked);
    }
    assert.equal(await gateway.metric("assist_sse_answer_unrecorded_total"), 2);
});

test("errors are not kept", async (t) => {
    const gateway = await startGateway(t);
    const plan = answering("error", { error: "no" });
    plan.answer.status = 500;
    for (let asked = 1; asked <= 2; asked++) {
        assert.equal((await gateway.post(plan, key("k"))).status, 500);
        assert.equal((await gateway.backend.seen()).length, asked);
    }
});

test("openai, not streamed, the backend is down: an error after three tries", async (t) => {
    const port = await freePort();
    const upstream = `http://127.0.0.1:${port}/answer`;
    const gateway = await startGateway(t, { routes: { [CHAT]: { dialect: "openai", upstream } } });
    const client = new OpenAI({ apiKey: "k", baseURL: `${gateway.base}/openai` });
    for (const headers of [{}, key("down")])
        await assert.rejects(chat(client, answering("down", completion), headers), (error) => {
            assert.ok(error instanceof OpenAI.InternalServerError, String(error));
            assert.equal(error.status, 502);
            assert.equal(error.type, "upstream_error");
            return true;
        });
    assert.equal(await gateway.metric("tidemark_upstream_errors_total"), 6);
});

test("openai, not streamed, the backend is back at the second try: the answer", async (t) => {
    const port = await freePort();
    const upstream = `http://127.0.0.1:${port}/answer`;
    const gateway = await startGateway(t, { routes: { [CHAT]: { dialect: "openai", upstream } } });
    const client = new OpenAI({ apiKey: "k", baseURL: `${gateway.base}/openai`, maxRetries: 8 });
    for (const headers of [{}, key("back")]) {
        const failed = await gateway.metric("tidemark_upstream_errors_total") ?? 0;
        const asking = chat(client, answering("back", completion), headers);
        const errors = async () => (await gateway.metric("tidemark_upstream_errors_total")) > failed;
        await until(errors, "the first try to fail");
        const backend = await startBackend(t, { port });
        assert.equal((await asking).choices[0].message.content, "hi");
        assert.equal((await backend.seen()).length, 1);
        await backend.kill();
    }
});
