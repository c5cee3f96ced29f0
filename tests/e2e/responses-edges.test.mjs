// SPDX-License-Identifier: Apache-2.0
// Responses that nobody should ask for: odd ids, bodies and backends, and those of others.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { startGateway } from "./lib/gateway.mjs";
import { startResponsesBackend, textOf } from "./lib/responses-backend.mjs";
import { until } from "./lib/wait.mjs";

const PATH = "/openai/responses";
const JSON_TYPE = { "content-type": "application/json" };

async function start(t, { settings = {}, ...options } = {}) {
    const backend = await startResponsesBackend(t);
    const routes = { [PATH]: { dialect: "responses", ...settings } };
    const gateway = await startGateway(t, { routes, backend, ...options });
    gateway.client = clientAt(gateway);
    return gateway;
}

const clientAt = (gateway, apiKey = "k") =>
    new OpenAI({ apiKey, baseURL: `${gateway.base}/openai`, maxRetries: 0 });
const ask = (plan = {}, more = {}) => ({ model: "fake-1", input: "go", plan, ...more });
const wholeText = (plan = {}) => textOf({ plan }).join("");

const finished = (client, id) =>
    until(async () => {
        const response = await client.responses.retrieve(id);
        return ["queued", "in_progress"].includes(response.status) ? undefined : response;
    }, `the response ${id} to end`);

// ---- ids ----

test("ids that are none of ours are not found", async (t) => {
    const gateway = await start(t);
    const { id } = await gateway.client.responses.create(ask({ words: 1 }));
    const hex = id.slice(5);
    const odd = [
        "resp_",
        "resp_%00",
        "resp_%ff%fe",
        `resp_${hex.toUpperCase()}`,
        `resp_${hex}0`,
        `resp_${hex.slice(1)}`,
        `Resp_${hex}`,
        `resp_${hex}%20`,
        `%72esp_${hex}`,
        `resp_${"0".repeat(32)}`,
        "a".repeat(3000),
        "msg_1",
        "%22%3Cscript%3E",
    ];
    for (const name of odd)
        for (const [method, tail] of [
            ["GET", ""],
            ["GET", "?stream=true"],
            ["DELETE", ""],
            ["POST", "/cancel"],
            ["GET", "/input_items"],
        ]) {
            const answer = await gateway.request(method, `${PATH}/${name}${tail}`);
            assert.equal(answer.status, 404, `${method} ${name}${tail}: ${answer.text}`);
            const { error } = answer.json();
            assert.equal(error.type, "invalid_request_error");
            assert.ok(error.message.length < 300);
        }
    assert.equal((await gateway.client.responses.retrieve(id)).id, id);
    assert.equal(gateway.backend.seen.length, 1);
});

test("questions that make no sense are refused", async (t) => {
    const gateway = await start(t);
    const { id } = await gateway.client.responses.create(ask({ words: 1 }));
    for (const [query, status] of [
        ["?stream=true&starting_after=-1", 400],
        ["?stream=true&starting_after=x", 400],
        ["?stream=true&starting_after=", 400],
        ["?stream=true&starting_after=99999999999999999999", 400],
        ["?stream=true&include_obfuscation=false&include=usage", 200],
        ["?stream=false&starting_after=1", 200],
    ]) {
        const answer = await gateway.request("GET", `${PATH}/${id}${query}`);
        assert.equal(answer.status, status, `${query}: ${answer.text}`);
    }
    const behind = await gateway.request("GET", `${PATH}/${id}?stream=true&starting_after=8`);
    assert.equal(behind.status, 200);
    assert.doesNotMatch(behind.text, /^data/m);
    const beyond = await gateway.request("GET", `${PATH}/${id}?stream=true&starting_after=50`);
    assert.match(beyond.text, /^event: error$/m);
    for (const [method, tail] of [
        ["PUT", ""],
        ["GET", "/cancel"],
        ["POST", "/input_items"],
        ["GET", "/other"],
    ]) {
        const { status } = await gateway.request(method, `${PATH}/${id}${tail}`);
        assert.ok([404, 405].includes(status), `${method} ${tail}: ${status}`);
    }
});

// ---- whose it is ----

test("one tenant cannot ask for another's response, nor go on from it", async (t) => {
    const grant = "generate, stop route:**";
    const callers = { ann: { token: "ann's", grant }, bob: { token: "bob's", grant } };
    const gateway = await start(t, { callers });
    const ann = clientAt(gateway, "of the backend");
    const bob = clientAt(gateway, "of the backend");
    const options = (token) => ({ headers: { "Tidemark-Authorization": `Bearer ${token}` } });
    const [anns, bobs] = [options("ann's"), options("bob's")];
    const { id } = await ann.responses.create(ask({ words: 2 }), anns);
    const missing = (promise) => assert.rejects(promise, OpenAI.NotFoundError);
    await missing(bob.responses.retrieve(id, {}, bobs));
    await missing(bob.responses.retrieve(id, { stream: true }, bobs));
    await missing(bob.responses.cancel(id, bobs));
    await missing(bob.responses.delete(id, bobs));
    await missing(bob.responses.inputItems.list(id, {}, bobs));
    await assert.rejects(
        bob.responses.create(ask({}, { previous_response_id: id }), bobs),
        OpenAI.BadRequestError,
    );
    const response = await ann.responses.retrieve(id, {}, anns);
    assert.equal(response.output_text, wholeText({ words: 2 }));
    await assert.rejects(
        clientAt(gateway, "eve's").responses.retrieve(id, {}, options("eve's")),
        OpenAI.AuthenticationError,
    );
    await ann.responses.delete(id, anns);
    await missing(ann.responses.retrieve(id, {}, anns));
});

// ---- bodies ----

test("bodies that cannot be read are refused before the backend is asked", async (t) => {
    const gateway = await start(t);
    const deep = (n) => `{"input":${"[".repeat(n)}${"]".repeat(n)}}`;
    for (const body of ["", "[]", "{", '"x"', deep(1000), deep(200_000), '{"input":"\xff"}']) {
        const bytes = Buffer.from(body, "latin1");
        const answer = await gateway.request("POST", PATH, { headers: JSON_TYPE, body: bytes });
        assert.equal(answer.status, 400, answer.text);
        assert.equal(answer.json().error.type, "invalid_request_error");
    }
    assert.equal(gateway.backend.seen.length, 0);
    const odd = [{ input: 5 }, { input: [1, "x", null, {}] }, { input: null }, { model: {} }, {}];
    for (const body of odd) {
        const answer = await gateway.request("POST", PATH, {
            headers: JSON_TYPE,
            body: JSON.stringify({ plan: { words: 1 }, ...body }),
        });
        assert.equal(answer.status, 200, answer.text);
        const list = await gateway.request("GET", `${PATH}/${answer.json().id}/input_items`);
        assert.equal(list.status, 200, list.text);
    }
});

test("an input of many megabytes and a hundred thousand items", async (t) => {
    const gateway = await start(t, { disk: true });
    const { client, backend } = gateway;
    const content = "x".repeat(7_000_000);
    const large = await client.responses.create(
        ask({ words: 1 }, { input: [{ role: "user", content }] }),
    );
    const { data } = await client.responses.inputItems.list(large.id);
    assert.equal(data[0].content[0].text.length, content.length);
    const more = await client.responses.create(
        ask({ words: 1 }, { input: [{ role: "user", content }], previous_response_id: large.id }),
    );
    assert.equal(backend.seen[1].body.input.length, 3);
    await assert.rejects(
        client.responses.create(
            ask({ words: 1 }, { input: content, previous_response_id: more.id }),
        ),
        (error) => {
            assert.equal(error.status, 413);
            assert.equal(error.param, "input");
            return true;
        },
    );
    assert.equal(backend.seen.length, 2);
    await client.responses.create(ask({ words: 1 }, { input: "x".repeat(16_000_000) }));
    assert.equal(backend.seen[2].body.input.length, 16_000_000);
    await assert.rejects(
        client.responses.create(ask({}, { input: "x".repeat(17_000_000) })),
        (error) => error.status === 413,
    );
    const input = Array.from({ length: 100_000 }, (_, i) => ({ role: "user", content: `${i}` }));
    const many = await client.responses.create(ask({ words: 1 }, { input }));
    const page = await client.responses.inputItems.list(many.id, { limit: 100 });
    assert.equal(page.data.length, 100);
    assert.equal(page.data[0].content[0].text, "99999");
    const next = await page.getNextPage();
    assert.equal(next.data[0].content[0].text, "99899");
});

// ---- backends ----

test("a backend that names a response twice: it has one id", async (t) => {
    const { client } = await start(t);
    const stream = await client.responses.create(ask({ ids: "two", words: 2 }, { stream: true }));
    const ids = new Set();
    for await (const event of stream) if (event.response) ids.add(event.response.id);
    assert.equal(ids.size, 1);
    const [id] = ids;
    assert.equal((await client.responses.retrieve(id)).id, id);
});

test("an output of megabytes, and one that is too large", async (t) => {
    const { client } = await start(t, { disk: true });
    const plan = { words: 4, big: 800_000 };
    const response = await client.responses.create(ask(plan));
    assert.equal(response.output_text, wholeText(plan));
    assert.equal((await client.responses.retrieve(response.id)).output_text, wholeText(plan));
    const second = await client.responses.create(
        ask({ words: 1 }, { previous_response_id: response.id }),
    );
    assert.equal(second.status, "completed");
    const larger = { words: 7, big: 800_000 };
    const queued = await client.responses.create(ask(larger, { background: true }));
    const failed = await finished(client, queued.id);
    assert.equal(failed.status, "failed");
    assert.match(failed.error.message, /./);
    await assert.rejects(client.responses.create(ask(larger)), OpenAI.InternalServerError);
});

test("many responses at once, each its own", async (t) => {
    const { client } = await start(t);
    const plans = Array.from({ length: 60 }, (_, i) => ({ name: `n${i}`, words: 5 }));
    const all = await Promise.all(
        plans.map((plan, i) => client.responses.create(ask(plan, { background: i % 2 === 0 }))),
    );
    assert.equal(new Set(all.map(({ id }) => id)).size, plans.length);
    const ended = await Promise.all(all.map(({ id }) => finished(client, id)));
    for (const [i, response] of ended.entries())
        assert.equal(response.output_text, wholeText(plans[i]));
});

test("limits of the route hold for responses, and leave nothing behind", async (t) => {
    const gateway = await start(t, { settings: { parallel: 1 }, disk: true });
    const { client, backend } = gateway;
    const first = await client.responses.create(ask({ gate: 1 }, { background: true }));
    await assert.rejects(client.responses.create(ask()), OpenAI.RateLimitError);
    backend.go();
    assert.equal((await finished(client, first.id)).status, "completed");
    await client.responses.delete(first.id);
    const { text } = await gateway.request("GET", "/v1/stream?prefix=.route/&reserved=true");
    assert.doesNotMatch(text, /\.input/);
});

test("a server that drains: what runs in the background comes to its end", async (t) => {
    const gateway = await start(t, { disk: true });
    const { client, backend } = gateway;
    const { id } = await client.responses.create(ask({ gate: 5 }, { background: true }));
    await until(() => backend.seen.length === 1, "the backend to be asked");
    setTimeout(() => backend.go(), 50);
    await gateway.restart("SIGTERM");
    const response = await finished(clientAt(gateway), id);
    assert.ok(["completed", "failed"].includes(response.status));
    if (response.status === "completed") assert.equal(response.output_text, wholeText());
    else assert.match(response.error.message, /./);
});
