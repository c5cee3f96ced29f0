// SPDX-License-Identifier: Apache-2.0
// The Responses API behind `--openai`: what the gateway has kept is its own to answer, the rest is
// the backend's.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { startGateway } from "./lib/gateway.mjs";
import { startResponsesBackend, textOf } from "./lib/responses-backend.mjs";
import { until } from "./lib/wait.mjs";

async function start(t, options = {}) {
    const backend = await startResponsesBackend(t);
    const flags = ["--openai", backend.url("")];
    const gateway = await startGateway(t, { backend, flags, ...options });
    gateway.client = clientAt(gateway);
    return gateway;
}

const clientAt = (gateway, apiKey = "k") =>
    new OpenAI({ apiKey, baseURL: `${gateway.base}/v1`, maxRetries: 0 });
const ask = (plan = {}, more = {}) => ({ model: "fake-1", input: "go", plan, ...more });
const wholeText = (plan = {}) => textOf({ plan }).join("");

async function collect(stream) {
    const events = [];
    for await (const event of stream) events.push(event);
    return events;
}

test("everything by id works below a prefix", async (t) => {
    const { client, backend } = await start(t);
    const plan = { style: "weak", gate: 5 };
    const stream = await client.responses.create(ask(plan, { background: true, stream: true }));
    let id;
    let last;
    for await (const event of stream) {
        id ??= event.response.id;
        last = event.sequence_number;
        if (last === 10) break;
    }
    const running = await client.responses.retrieve(id);
    assert.equal(running.status, "in_progress");
    backend.go();
    const rest = await collect(
        await client.responses.retrieve(id, { stream: true, starting_after: last }),
    );
    assert.equal(rest[0].sequence_number, 11);
    const response = await client.responses.stream({ response_id: id }).finalResponse();
    assert.equal(response.output_text, wholeText(plan));
    assert.equal((await client.responses.inputItems.list(id)).data.length, 1);
    const second = await client.responses.create(
        ask({ style: "weak", words: 1 }, { input: "on", previous_response_id: id }),
    );
    assert.equal(second.previous_response_id, id);
    assert.equal(backend.seen[1].body.input.length, 4);
    assert.equal((await client.responses.cancel(id)).status, "completed");
    await client.responses.delete(id);
    assert.equal(backend.seen.length, 2);
    await assert.rejects(client.responses.retrieve(id), /the backend does not know it/);
});

test("what is not ours is the backend's", async (t) => {
    const { client, backend } = await start(t);
    const known = /the backend does not know it/;
    for (const id of ["resp_their", `resp_${"0".repeat(32)}`]) {
        await assert.rejects(client.responses.retrieve(id), known);
        await assert.rejects(client.responses.retrieve(id, { stream: true }), known);
        await assert.rejects(client.responses.cancel(id), known);
        await assert.rejects(client.responses.delete(id), known);
        await assert.rejects(client.responses.inputItems.list(id, { limit: 3 }), known);
        assert.deepEqual(
            backend.seen.splice(0).map(({ method, url }) => `${method} ${url}`),
            [
                `GET /v1/responses/${id}`,
                `GET /v1/responses/${id}?stream=true`,
                `POST /v1/responses/${id}/cancel`,
                `DELETE /v1/responses/${id}`,
                `GET /v1/responses/${id}/input_items?limit=3`,
            ],
        );
        await client.responses.create(ask({ words: 1 }, { previous_response_id: id }));
        assert.equal(backend.seen.splice(0)[0].body.previous_response_id, id);
    }
    await assert.rejects(client.responses.compact({ model: "m" }), known);
    await assert.rejects(client.responses.inputTokens.count({ model: "m", input: "x" }), known);
    const answer = await client
        .post("/responses", { body: "[1", headers: { "content-type": "application/json" } })
        .catch((error) => error);
    assert.match(answer.message, /no JSON/);
});

test("whole, in the background, and not to be stored", async (t) => {
    const { client, backend } = await start(t);
    const whole = await client.responses.create(ask({ words: 3 }));
    assert.equal(whole.output_text, wholeText({ words: 3 }));
    assert.deepEqual(await client.responses.retrieve(whole.id), whole);
    const queued = await client.responses.create(ask({ words: 3 }, { background: true }));
    assert.equal(queued.status, "queued");
    const ended = await until(async () => {
        const response = await client.responses.retrieve(queued.id);
        return response.status === "completed" && response;
    }, "it to end");
    assert.equal(ended.output_text, wholeText({ words: 3 }));
    const json = { object: "response", id: "resp_their", output: [] };
    const passed = await client.responses.create(ask({ json }, { store: false }));
    assert.equal(passed.id, "resp_their");
    assert.equal(backend.seen.at(-1).body.stream, undefined);
});

test("whose a response is, below a prefix", async (t) => {
    const grant = "generate, stop, call route:/v1/**";
    const callers = {
        ann: { token: "ann's", grant },
        bob: { token: "bob's", grant },
        cal: { token: "cal's", grant: "generate route:/v1/responses" },
    };
    const gateway = await start(t, { callers });
    const as = (name) =>
        new OpenAI({
            apiKey: "k",
            baseURL: `${gateway.base}/v1`,
            maxRetries: 0,
            defaultHeaders: { "Tidemark-Authorization": `Bearer ${name}'s` },
        }).responses;
    const { id } = await as("ann").create(ask({ words: 2 }));
    assert.equal((await as("ann").retrieve(id)).id, id);
    // to bob it is not there, and the backend is asked
    await assert.rejects(as("bob").retrieve(id), /the backend does not know it/);
    await assert.rejects(as("bob").delete(id), /the backend does not know it/);
    const cals = await as("cal").create(ask({ words: 2 }));
    assert.equal((await as("cal").retrieve(cals.id)).id, cals.id);
    await assert.rejects(as("cal").delete(cals.id), OpenAI.PermissionDeniedError);
    await assert.rejects(as("cal").cancel(cals.id), OpenAI.PermissionDeniedError);
    await assert.rejects(as("cal").retrieve(id), OpenAI.PermissionDeniedError);
    assert.equal((await as("ann").cancel(id)).status, "completed");
    await as("ann").delete(id);
});
