// SPDX-License-Identifier: Apache-2.0
// npm `openai` pointed at a route: it knows nothing of the gateway, and does not have to.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { wholeText } from "./lib/backend-plan.mjs";
import { assertEvents, mint, open, read, startGateway, unpack, UUID } from "./lib/gateway.mjs";
import { startProxy } from "./lib/proxy.mjs";
import { until, within } from "./lib/wait.mjs";

const PATH = "/openai/chat/completions";

async function startOpenai(t, settings = {}, options = {}) {
    const routes = { [PATH]: { dialect: "openai", ...settings } };
    const gateway = await startGateway(t, { routes, ...options });
    gateway.client = clientAt(gateway.base);
    return gateway;
}

function clientAt(base, options = {}) {
    return new OpenAI({ apiKey: "k", baseURL: `${base}/openai`, maxRetries: 0, ...options });
}

const request = (plan) => ({
    model: "fake-1",
    messages: [{ role: "user", content: "go" }],
    stream: true,
    plan: { dialect: "openai", ...plan },
});

async function textOf(stream) {
    let text = "";
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
    return text;
}

/** The chunks that a raw reader got; `notices` are ours. */
function chunksOf(story) {
    const all = story.all
        .filter(({ data }) => data !== "[DONE]")
        .map(({ data }) => JSON.parse(data));
    assert.ok(
        story.all.every(({ event }) => event === undefined),
        "an event with a type would break clients",
    );
    return {
        chunks: all.filter((chunk) => chunk.tidemark === undefined && !chunk.error),
        notices: all.filter((chunk) => chunk.tidemark !== undefined),
        errors: all.filter((chunk) => chunk.error),
    };
}

const contentOf = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");

test("a stream is read to its end", async (t) => {
    const { client, backend } = await startOpenai(t);
    const plan = { name: "chat", tokens: 50 };
    const { data: stream, response } = await client.chat.completions
        .create(request(plan))
        .withResponse();
    assert.equal(await textOf(stream), wholeText(plan));
    assert.match(response.headers.get("x-correlation-id"), UUID);
    const token = unpack(response.headers.get("x-resume-token"));
    assert.equal(token.requestId, response.headers.get("x-correlation-id"));
    assert.equal(token.seq, 0);
    const [{ headers }] = await backend.seen();
    assert.equal(headers.authorization, "Bearer k");
});

test("the helper that builds the message sees a whole one", async (t) => {
    const { client } = await startOpenai(t, {}, { flags: ["--heartbeat", "100ms"] });
    const plan = { name: "helper", tokens: 20, every: 10 };
    const completion = await client.chat.completions.stream(request(plan)).finalChatCompletion();
    const [choice] = completion.choices;
    assert.equal(choice.message.content, wholeText(plan));
    assert.equal(choice.message.role, "assistant");
    assert.equal(choice.finish_reason, "stop");
    assert.equal(completion.id, "chatcmpl-helper");
});

test("an answer that is not streamed passes", async (t) => {
    const { client } = await startOpenai(t);
    const body = { id: "x", object: "chat.completion", choices: [{ message: { content: "hi" } }] };
    const answer = {
        status: 200,
        type: "application/json",
        base64: btoa(JSON.stringify(body)),
    };
    const whole = await client.chat.completions.create({
        ...request({ name: "json", answer }),
        stream: false,
    });
    assert.equal(whole.choices[0].message.content, "hi");
});

test("the backend's refusals are the client's errors", async (t) => {
    const { client } = await startOpenai(t);
    const answer = {
        status: 401,
        type: "application/json",
        base64: btoa('{"error":{"message":"bad key","type":"invalid_request_error"}}'),
    };
    await assert.rejects(
        client.chat.completions.create(request({ name: "no", answer })),
        (error) => {
            assert.ok(error instanceof OpenAI.AuthenticationError, String(error));
            assert.match(error.message, /bad key/);
            return true;
        },
    );
});

for (const [what, settings, plan] of [
    ["is cut off", {}, { tokens: 9, fate: "cut", at: 4 }],
    ["falls silent", { "idle-timeout": "300ms" }, { tokens: 9, fate: "hang", at: 4 }],
    ["never begins", { "first-byte-timeout": "300ms" }, { tokens: 9, mute: true }],
])
    test(`it raises when the backend ${what}`, async (t) => {
        const { client } = await startOpenai(t, settings);
        let text = "";
        await assert.rejects(async () => {
            const stream = await client.chat.completions.create(request({ name: "bad", ...plan }));
            for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
        }, OpenAI.APIError);
        if (!plan.mute) assert.equal(text, wholeText({ name: "bad", tokens: 3 }));
    });

test("it raises when the backend is killed", async (t) => {
    const { client, backend } = await startOpenai(t);
    const plan = { name: "killed", tokens: 9, gates: [4] };
    const stream = await client.chat.completions.create(request(plan));
    await assert.rejects(async () => {
        let seen = 0;
        for await (const chunk of stream) if (chunk.choices && ++seen === 4) await backend.kill();
    }, OpenAI.APIError);
});

test("it raises when the gateway is stopped", async (t) => {
    const { client, server } = await startOpenai(t, {}, { flags: ["--drain-timeout", "100ms"] });
    const plan = { name: "drained", tokens: 9, gates: [4] };
    const stream = await client.chat.completions.create(request(plan));
    await assert.rejects(async () => {
        let seen = 0;
        for await (const chunk of stream)
            if (chunk.choices && ++seen === 4) server.signal("SIGTERM");
    }, OpenAI.APIError);
});

test("a stop ends the stream without an error", async (t) => {
    const { client, stop } = await startOpenai(t).then((g) => ({
        client: g.client,
        stop: (id) => g.stop(id, PATH),
    }));
    const plan = { name: "stopped", tokens: 20, gates: [5] };
    const { data: stream, response } = await client.chat.completions
        .create(request(plan))
        .withResponse();
    let text = "";
    let seen = 0;
    for await (const chunk of stream) {
        text += chunk.choices[0]?.delta.content ?? "";
        if (++seen === 5) await stop(response.headers.get("x-correlation-id"));
    }
    assert.equal(text, wholeText({ ...plan, tokens: 4 }));
});

test("cut off, and resumed with the token of the response's head", async (t) => {
    const gateway = await startOpenai(t);
    const proxy = await startProxy(t, gateway.server, () => ({ answerBytes: 2500 }));
    const plan = { name: "resumed", tokens: 30, gates: [20] };
    const { data: stream, response } = await clientAt(proxy.base)
        .chat.completions.create(request(plan))
        .withResponse();
    let text = "";
    let seen = 0;
    await assert.rejects(async () => {
        for await (const chunk of stream) {
            text += chunk.choices[0]?.delta.content ?? "";
            seen++;
        }
    });
    assert.equal(proxy.cuts, 1);
    assert.ok(seen > 0 && seen < 20, `${seen} chunks before the cut`);
    await gateway.backend.go("resumed");
    const token = response.headers.get("x-resume-token");
    const headers = { "Last-Event-ID": String(seen) };
    const rest = await read(await gateway.resume(token, headers, { path: PATH }));
    const { chunks, notices, errors } = chunksOf(rest);
    assert.equal(text + contentOf(chunks), wholeText(plan));
    assert.deepEqual([notices, errors], [[], []]);
    assert.equal(rest.all.at(-1).data, "[DONE]");
    assert.equal((await gateway.backend.seen()).length, 1);
});

test("the token is a comment as well, and every event has its number", async (t) => {
    const gateway = await startOpenai(t);
    const plan = { name: "comment", dialect: "openai", tokens: 6 };
    const reader = await gateway.post(plan, {}, { path: PATH });
    const story = await read(reader);
    assert.deepEqual(story.own, []);
    assertEvents(story.events, plan);
    const token = reader.headers["x-resume-token"];
    assert.ok(story.comments.includes(`resume ${token}`), String(story.comments));
});

test("our notices are chunks that clients skip", async (t) => {
    const gateway = await startOpenai(t, { trim: "strict", "buffer-max-events": "5" });
    const plan = { name: "notices", dialect: "openai", tokens: 30, gates: [20] };
    const reader = await gateway.post(plan, {}, { path: PATH });
    const requestId = reader.headers["x-correlation-id"];
    await gateway.backend.hasSent("notices", 20);
    reader.raw.destroy();
    const late = await until(async () => {
        const token = mint({ requestId });
        const story = await read(
            await gateway.resume(token, {}, { path: PATH, query: "?mode=replay" }),
        );
        return story.lastId === 20 && story;
    }, "event 20");
    const { notices, chunks } = chunksOf(late);
    assert.equal(notices.length, 1, "the gap");
    assert.deepEqual(notices[0].choices, []);
    assert.match(JSON.stringify(notices[0].tidemark), /trimmed/);
    assert.ok(chunks.length >= 5 && chunks.length <= 6);

    const following = await gateway.get(requestId, {}, { path: PATH });
    const rest = read(following);
    await gateway.stop(requestId, PATH);
    const last = chunksOf(await within(rest, "the end")).notices.at(-1);
    assert.deepEqual(last.choices, []);
    assert.match(JSON.stringify(last.tidemark), /cancelled/);
});

test("who comes late gets the whole completion", async (t) => {
    const gateway = await startOpenai(t, { "state-ttl": "400ms", "snapshot-ttl": "1h" });
    const plan = { name: "late", tokens: 10 };
    const { data: stream, response } = await gateway.client.chat.completions
        .create(request(plan))
        .withResponse();
    await textOf(stream);
    const token = response.headers.get("x-resume-token");
    const late = await until(async () => {
        const headers = { "X-Resume-Token": token };
        const reader = await open(t, gateway.server, "POST", `${PATH}/resume`, headers);
        const story = await read(reader);
        return story.events.length === 0 && story;
    }, "the events to expire");
    const text = late.all.map(({ data }) => data).join("\n");
    assert.ok(text.includes(wholeText(plan)), text);
    assert.ok(late.all.every(({ event }) => event === undefined));
});
