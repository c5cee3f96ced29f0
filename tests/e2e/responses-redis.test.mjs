// SPDX-License-Identifier: Apache-2.0
// Two servers over one Redis: a response is asked for, followed, continued and cancelled through
// the one that does not run it.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { startGateway } from "./lib/gateway.mjs";
import { startRedis } from "./lib/redis.mjs";
import { startResponsesBackend, textOf } from "./lib/responses-backend.mjs";
import { until } from "./lib/wait.mjs";

const PATH = "/openai/responses";
const ask = (plan = {}, more = {}) => ({ model: "fake-1", input: "go", plan, ...more });
const wholeText = (plan = {}) => textOf({ plan }).join("");

async function startPair(t) {
    const redis = await startRedis(t);
    const backend = await startResponsesBackend(t);
    const routes = { [PATH]: { dialect: "responses" } };
    const options = { backend, routes, flags: ["--store", redis.url] };
    const clients = [];
    for (let i = 0; i < 2; i++) {
        const { base } = await startGateway(t, options);
        clients.push(new OpenAI({ apiKey: "k", baseURL: `${base}/openai`, maxRetries: 0 }));
    }
    return { backend, one: clients[0].responses, two: clients[1].responses };
}

const saidSoFar = (responses, id, word) =>
    until(async () => {
        const response = await responses.retrieve(id);
        return response.output[0]?.content?.[0]?.text.includes(word) && response;
    }, `${word} of ${id}`);

test("what one server runs, the other one tells, follows and goes on from", async (t) => {
    const { backend, one, two } = await startPair(t);
    const { id } = await one.create(ask({ gate: 5 }, { background: true }));
    assert.equal((await two.retrieve(id)).id, id);
    const running = await saidSoFar(two, id, "word-4");
    assert.equal(running.status, "in_progress");
    await assert.rejects(two.create(ask({}, { previous_response_id: id })), OpenAI.BadRequestError);
    const stream = await two.retrieve(id, { stream: true, starting_after: 3 });
    backend.go();
    const numbers = [];
    for await (const { sequence_number } of stream) numbers.push(sequence_number);
    assert.deepEqual(
        numbers,
        Array.from({ length: 54 }, (_, i) => i + 4),
    );
    const response = await two.retrieve(id);
    assert.equal(response.status, "completed");
    assert.equal(response.output_text, wholeText());
    assert.deepEqual(await one.retrieve(id), response);
    assert.equal((await two.inputItems.list(id)).data.length, 1);
    await two.create(ask({ words: 1 }, { previous_response_id: id }));
    assert.equal(backend.seen[1].body.input.length, 3);
    await two.delete(id);
    await assert.rejects(one.retrieve(id), OpenAI.NotFoundError);
});

test("cancelled, and deleted, through the other server", async (t) => {
    const { backend, one, two } = await startPair(t);
    for (const [i, stop] of ["cancel", "delete"].entries()) {
        const { id } = await one.create(ask({ gate: 5 }, { background: true }));
        await saidSoFar(two, id, "word-4");
        const answer = await two[stop](id);
        await until(() => backend.seen[i].closed, "the backend's connection to be closed");
        if (stop === "delete") {
            await until(
                () => one.retrieve(id).then(() => false, (error) => error.status === 404),
                "it to be gone",
            );
            continue;
        }
        assert.equal(answer.status, "cancelled");
        assert.equal(answer.output[0].content[0].text, wholeText({ words: 5 }));
        assert.equal((await one.retrieve(id)).status, "cancelled");
        assert.equal((await one.cancel(id)).status, "cancelled");
    }
});
