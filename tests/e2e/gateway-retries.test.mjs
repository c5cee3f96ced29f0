// SPDX-License-Identifier: Apache-2.0
// SDKs that try again by themselves, without a key: whoever lost an answer gets that one.
import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { wholeText } from "./lib/backend-plan.mjs";
import { startGateway } from "./lib/gateway.mjs";
import { startProxy } from "./lib/proxy.mjs";
import { until } from "./lib/wait.mjs";

const CHAT = "/openai/chat/completions";
const MESSAGES = "/anthropic/v1/messages";
const routes = { [CHAT]: { dialect: "openai" }, [MESSAGES]: { dialect: "openai" } };

const openaiAt = (base, options = {}) =>
    new OpenAI({ apiKey: "k", baseURL: `${base}/openai`, ...options });

const request = (plan, more = {}) => ({
    model: "fake-1",
    messages: [{ role: "user", content: "go" }],
    stream: true,
    plan: { dialect: "openai", ...plan },
    ...more,
});

async function textOf(stream) {
    let text = "";
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
    return text;
}

/** Loses the answers of the first `n` connections before a byte of them has passed. */
const losing = (t, gateway, n) =>
    startProxy(t, gateway.server, (i) => (i < n ? { answerBytes: 0 } : null));

for (const [what, plan, losses] of [
    ["a slow answer", { tokens: 30, every: 20 }, 1],
    ["a slow answer, twice", { tokens: 60, every: 20 }, 2],
    ["a quick answer", { tokens: 30 }, 1],
    ["a quick answer, twice", { tokens: 3 }, 2],
])
    test(`openai loses ${what} before its head: asked once`, async (t) => {
        const gateway = await startGateway(t, { routes, disk: true });
        const proxy = await losing(t, gateway, losses);
        const stream = await openaiAt(proxy.base).chat.completions.create(
            request({ name: "lost", ...plan }),
        );
        assert.equal(await textOf(stream), wholeText({ name: "lost", ...plan }));
        assert.equal(proxy.cuts, losses);
        assert.equal((await gateway.backend.seen()).length, 1);
        assert.equal(await gateway.metric("assist_sse_retry_joined_total"), losses);
    });

test("anthropic loses a stream before its head: asked once", async (t) => {
    const gateway = await startGateway(t, { routes });
    const proxy = await losing(t, gateway, 1);
    const client = new Anthropic({ apiKey: "k", baseURL: `${proxy.base}/anthropic` });
    const events = [
        {
            type: "message_start",
            message: { id: "m", type: "message", role: "assistant", content: [], model: "m", usage: {} },
        },
        { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
        { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "hi" } },
        { type: "content_block_stop", index: 0 },
        { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 1 } },
        { type: "message_stop" },
    ];
    const raw = events.map((e) => `event: ${e.type}\ndata: ${JSON.stringify(e)}\n\n`).join("");
    const body = { model: "m", max_tokens: 9, messages: [{ role: "user", content: "go" }] };
    const final = await client.messages.stream({ ...body, plan: { name: "raw", raw } }).finalMessage();
    assert.equal(final.content[0].text, "hi");
    assert.equal(proxy.cuts, 1);
    assert.equal((await gateway.backend.seen()).length, 1);
});

test("openai gives up waiting for an answer that is not streamed, and gets it: asked once", async (t) => {
    const gateway = await startGateway(t, { routes, disk: true });
    const body = { id: "x", object: "chat.completion", choices: [{ message: { content: "hi" } }] };
    const answer = { status: 200, type: "application/json", base64: btoa(JSON.stringify(body)) };
    const client = openaiAt(gateway.base, { timeout: 1000, maxRetries: 20 });
    const asking = client.chat.completions.create(
        request({ name: "slow", answer, gates: [0] }, { stream: false }),
    );
    const joined = async () => (await gateway.metric("assist_sse_retry_joined_total")) > 0;
    await until(joined, "a retry to wait for the answer");
    await gateway.backend.go("slow");
    assert.equal((await asking).choices[0].message.content, "hi");
    assert.equal((await gateway.backend.seen()).length, 1);
});

test("equal requests side by side stay two, also when both lose their answers", async (t) => {
    const gateway = await startGateway(t, { routes });
    for (const [losses, joined] of [
        [0, 0],
        [2, 2],
    ]) {
        const proxy = await losing(t, gateway, losses);
        const client = openaiAt(proxy.base);
        const plan = { name: `twins-${losses}`, tokens: 20, every: 10 };
        const ids = await Promise.all(
            [1, 2].map(async () => {
                const { data, response } = await client.chat.completions
                    .create(request(plan))
                    .withResponse();
                assert.equal(await textOf(data), wholeText(plan));
                return response.headers.get("x-correlation-id");
            }),
        );
        assert.notEqual(ids[0], ids[1]);
        assert.equal((await gateway.backend.seen(plan.name)).length, 2);
        assert.equal(await gateway.metric("assist_sse_retry_joined_total"), joined);
    }
});

test("a retry behind an error asks again", async (t) => {
    const gateway = await startGateway(t, { routes });
    const answer = { status: 500, type: "application/json", base64: btoa('{"error":{"message":"x"}}') };
    await assert.rejects(
        openaiAt(gateway.base).chat.completions.create(request({ name: "error", answer })),
        OpenAI.InternalServerError,
    );
    assert.equal((await gateway.backend.seen()).length, 3);
});

test("whoever shows another key gets nothing of it", async (t) => {
    const gateway = await startGateway(t, { routes });
    const proxy = await losing(t, gateway, 1);
    const plan = { name: "mine", tokens: 10, every: 10 };
    const first = openaiAt(proxy.base, { maxRetries: 0 });
    await assert.rejects(first.chat.completions.create(request(plan)));
    const retry = (apiKey) =>
        openaiAt(gateway.base, { apiKey, defaultHeaders: { "X-Stainless-Retry-Count": "1" } });
    for (const [apiKey, asked] of [
        ["other", 2],
        ["k", 2],
        ["k", 3],
    ]) {
        const stream = await retry(apiKey).chat.completions.create(request(plan));
        assert.equal(await textOf(stream), wholeText(plan));
        assert.equal((await gateway.backend.seen()).length, asked);
    }
});

for (const header of ["X-Run-Id", "amz-sdk-invocation-id"])
    test(`${header} is a key for one request`, async (t) => {
        const gateway = await startGateway(t, { disk: true });
        const plan = { name: "run", tokens: 5 };
        const headers = { [header]: "run-1" };
        const id = (answer) => answer.headers["x-correlation-id"];
        const first = await gateway.post(plan, headers);
        assert.equal(id(await gateway.post(plan, headers)), id(first));
        await gateway.restart("SIGKILL");
        assert.equal(id(await gateway.post(plan, headers)), id(first));
        const other = await gateway.post({ ...plan, name: "other" }, headers);
        assert.equal(other.status, 200, "another request of the run");
        assert.notEqual(id(other), id(first));
        assert.equal((await gateway.backend.seen()).length, 2);
    });
