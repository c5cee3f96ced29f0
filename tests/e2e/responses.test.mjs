// SPDX-License-Identifier: Apache-2.0
// npm `openai` asks for responses through the gateway: it knows nothing of it, and gets by id what
// the backend has never kept.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import OpenAI from "openai";
import { startGateway } from "./lib/gateway.mjs";
import { startResponsesBackend, textOf } from "./lib/responses-backend.mjs";
import { until, within } from "./lib/wait.mjs";

const PATH = "/openai/responses";

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

async function collect(stream, events = []) {
    for await (const event of stream) events.push(event);
    return events;
}

/** The first n events; the connection is given up then. */
async function take(stream, n) {
    const events = [];
    for await (const event of stream) {
        events.push(event);
        if (events.length === n) break;
    }
    return events;
}

const numbers = (events) => events.map(({ sequence_number }) => sequence_number);
const range = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i);
const idOf = (events) => events[0].response.id;

/** Polls until it is over. */
async function finished(client, id) {
    return until(async () => {
        const response = await client.responses.retrieve(id);
        return ["queued", "in_progress"].includes(response.status) ? undefined : response;
    }, `the response ${id} to end`);
}

const isMissing = (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError, String(error));
    assert.match(error.message, /Response with id '.*' not found\./);
    return true;
};

// ---- the stream ----

test("broken off at event 10, the rest comes by its id, exactly", async (t) => {
    const { client, backend } = await start(t);
    const plan = { gate: 20 };
    const stream = await client.responses.create(ask(plan, { background: true, stream: true }));
    const first = await take(stream, 11);
    assert.deepEqual(numbers(first), range(0, 10));
    const id = idOf(first);
    assert.match(id, /^resp_[0-9a-f]{32}$/);
    const rest = client.responses.retrieve(id, { stream: true, starting_after: 10 });
    const events = collect(await rest);
    backend.go();
    assert.deepEqual(numbers(await events), range(11, 57));
    const all = [...first, ...(await events)];
    assert.ok(all.every((event) => !event.response || event.response.id === id));
    assert.equal(all.at(-1).response.status, "completed");
    assert.equal(all.at(-1).response.background, true);
    const text = all.filter((event) => event.type === "response.output_text.delta");
    assert.equal(text.map(({ delta }) => delta).join(""), wholeText(plan));
    const again = await collect(await client.responses.retrieve(id, { stream: true }));
    assert.deepEqual(again, all);
    assert.equal(backend.seen.length, 1);
    assert.equal(backend.seen[0].body.background, undefined);
    assert.equal(backend.seen[0].body.stream, true);
});

test("responses.stream() takes one up by its id", async (t) => {
    const { client, backend } = await start(t);
    const stream = await client.responses.create(ask({ gate: 9 }, { stream: true }));
    const id = idOf(await take(stream, 8));
    const events = [];
    const runner = client.responses.stream({ response_id: id, starting_after: 7 });
    runner.on("event", (event) => events.push(event));
    backend.go();
    const response = await runner.finalResponse();
    assert.equal(response.output_text, wholeText());
    assert.equal(response.status, "completed");
    assert.deepEqual(numbers(events), range(8, 57));
    assert.equal(backend.seen.length, 1);
});

test("what the backend sent right arrives byte for byte", async (t) => {
    const gateway = await start(t);
    const body = JSON.stringify(ask({ words: 3 }, { stream: true }));
    const headers = { "content-type": "application/json" };
    const { text } = await gateway.request("POST", PATH, { headers, body });
    const deltas = text.split("\n").filter((line) => line.includes("output_text.delta\","));
    assert.equal(
        deltas[1],
        'data: {"type":"response.output_text.delta","item_id":"msg_1","output_index":0,' +
            '"content_index":0,"delta":"word-1 ","logprobs":[],"sequence_number":5}',
    );
});

// ---- without a stream ----

test("a whole response, and the same by its id", async (t) => {
    const { client, backend } = await start(t);
    const response = await client.responses.create(ask({ words: 7 }));
    assert.equal(response.output_text, wholeText({ words: 7 }));
    assert.equal(response.status, "completed");
    assert.deepEqual(response.usage, { input_tokens: 1, output_tokens: 2, total_tokens: 3 });
    const again = await client.responses.retrieve(response.id);
    assert.deepEqual(again, response);
    assert.equal(backend.seen[0].body.stream, true);
});

test("in the background: answered at once, polled to its end", async (t) => {
    const { client, backend } = await start(t);
    const metadata = { topic: "tides" };
    const queued = await client.responses.create(
        ask({ gate: 5 }, { background: true, metadata }),
    );
    assert.equal(queued.status, "queued");
    assert.equal(queued.background, true);
    assert.deepEqual(queued.output, []);
    assert.deepEqual(queued.metadata, metadata);
    const running = await until(async () => {
        const response = await client.responses.retrieve(queued.id);
        return response.output[0]?.content?.[0]?.text.includes("word-4") && response;
    }, "a part of the text");
    assert.equal(running.status, "in_progress");
    assert.equal(running.id, queued.id);
    backend.go();
    const response = await finished(client, queued.id);
    assert.equal(response.status, "completed");
    assert.equal(response.output_text, wholeText());
    assert.equal(response.background, true);
    assert.equal(backend.seen.length, 1);
});

test("in the background, a backend that refuses", async (t) => {
    const { client } = await start(t);
    const queued = await client.responses.create(ask({ status: 429 }, { background: true }));
    const response = await finished(client, queued.id);
    assert.equal(response.status, "failed");
    assert.deepEqual(response.error, { code: "server_error", message: "refused" });
});

test("in the background, a backend that does not stream", async (t) => {
    const { client } = await start(t);
    const item = { type: "message", id: "m", role: "assistant", content: [] };
    const json = { object: "response", id: "x", status: "completed", output: [item] };
    const queued = await client.responses.create(ask({ json }, { background: true }));
    const response = await finished(client, queued.id);
    assert.equal(response.status, "completed");
    assert.equal(response.id, queued.id);
    assert.deepEqual(response.output, [item]);
});

test("in the background, a backend that is not there", async (t) => {
    const settings = { upstream: "http://127.0.0.1:1/v1/responses" };
    const { client } = await start(t, { settings });
    const queued = await client.responses.create(ask({}, { background: true }));
    const response = await finished(client, queued.id);
    assert.equal(response.status, "failed");
    assert.equal(response.model, "fake-1");
    assert.match(response.error.message, /./);
});

test("what cannot be in the background is refused", async (t) => {
    const { client, backend } = await start(t);
    await assert.rejects(
        client.responses.create(ask({}, { background: true, store: false })),
        (error) => {
            assert.ok(error instanceof OpenAI.BadRequestError);
            assert.equal(error.param, "background");
            return true;
        },
    );
    assert.equal(backend.seen.length, 0);
});

// ---- cancel, delete ----

test("cancelled, and again", async (t) => {
    const { client, backend } = await start(t);
    const queued = await client.responses.create(ask({ gate: 5 }, { background: true }));
    await until(async () => {
        const { output } = await client.responses.retrieve(queued.id);
        return output[0]?.content?.[0]?.text.includes("word-4");
    }, "a part of the text");
    const cancelled = await client.responses.cancel(queued.id);
    assert.equal(cancelled.status, "cancelled");
    assert.equal(cancelled.id, queued.id);
    assert.equal(cancelled.output[0].content[0].text, wholeText({ words: 5 }));
    await until(() => backend.seen[0].closed, "the backend's connection to be closed");
    assert.deepEqual(await client.responses.cancel(queued.id), cancelled);
    assert.equal((await client.responses.retrieve(queued.id)).status, "cancelled");
});

test("a response that has completed is not cancelled any more", async (t) => {
    const { client } = await start(t);
    const response = await client.responses.create(ask({ words: 2 }));
    assert.equal((await client.responses.cancel(response.id)).status, "completed");
});

test("deleted is gone, for every question", async (t) => {
    const gateway = await start(t, { disk: true });
    const { client } = gateway;
    const { id } = await client.responses.create(ask({ words: 2 }));
    await client.responses.delete(id);
    await assert.rejects(client.responses.retrieve(id), isMissing);
    await assert.rejects(client.responses.retrieve(id, { stream: true }), isMissing);
    await assert.rejects(client.responses.cancel(id), isMissing);
    await assert.rejects(client.responses.delete(id), isMissing);
    await assert.rejects(client.responses.inputItems.list(id), isMissing);
    const { text } = await gateway.request("GET", "/v1/stream?prefix=.route/&reserved=true");
    assert.ok(!text.includes(id.slice(5, 13)), text);
});

test("deleted while it runs", async (t) => {
    const { client, backend } = await start(t);
    const stream = await client.responses.create(ask({ gate: 5 }, { stream: true }));
    const id = idOf(await take(stream, 4));
    const answer = await client.responses.delete(id);
    assert.deepEqual(answer, { id, object: "response", deleted: true });
    await until(() => backend.seen[0].closed, "the backend's connection to be closed");
    await assert.rejects(client.responses.retrieve(id), isMissing);
});

// ---- what it was made from ----

test("input items, page by page and both ways", async (t) => {
    const { client } = await start(t);
    const input = range(0, 44).map((i) => ({ role: "user", content: `item ${i}` }));
    const { id } = await client.responses.create(ask({ words: 1 }, { input }));
    const texts = (items) => items.map((item) => item.content[0].text);
    for (const order of ["asc", "desc"]) {
        const all = [];
        for await (const item of client.responses.inputItems.list(id, { order })) all.push(item);
        const wanted = input.map(({ content }) => content);
        assert.deepEqual(texts(all), order === "asc" ? wanted : wanted.reverse());
        assert.equal(new Set(all.map((item) => item.id)).size, 45);
        assert.ok(all.every((item) => item.type === "message" && item.id.startsWith("msg_")));
    }
    const page = await client.responses.inputItems.list(id, { limit: 3 });
    assert.deepEqual(texts(page.data), ["item 44", "item 43", "item 42"]);
    assert.equal(page.has_more, true);
    for (const limit of [0, 101, "x"])
        await assert.rejects(client.responses.inputItems.list(id, { limit }), OpenAI.BadRequestError);
    await assert.rejects(
        client.responses.inputItems.list(id, { after: "msg_none" }),
        OpenAI.NotFoundError,
    );
});

test("a text is one message", async (t) => {
    const { client } = await start(t);
    const { id } = await client.responses.create(ask({ words: 1 }, { input: "hello" }));
    const { data } = await client.responses.inputItems.list(id);
    assert.deepEqual(data, [
        {
            role: "user",
            content: [{ type: "input_text", text: "hello" }],
            id: data[0].id,
            type: "message",
            status: "completed",
        },
    ]);
});

// ---- a weak backend, and turns ----

test("a backend without numbers, places and state: the helper, and a second turn", async (t) => {
    const { client, backend } = await start(t);
    const plan = { style: "weak", words: 4 };
    const tools = [{ type: "function", name: "look", parameters: {}, strict: false }];
    const events = [];
    const runner = client.responses.stream(ask(plan, { tools }));
    runner.on("event", (event) => events.push(event));
    const first = await runner.finalResponse();
    assert.deepEqual(numbers(events), range(0, events.length - 1));
    assert.equal(first.output_text, wholeText(plan));
    assert.deepEqual(
        first.output.map(({ type }) => type),
        ["reasoning", "message", "function_call"],
    );
    assert.equal(first.output[2].arguments, '{"at":1}');
    const input = [{ type: "function_call_output", call_id: "call_1", output: "sunny" }];
    const second = await client.responses.create(
        ask(plan, { input, previous_response_id: first.id }),
    );
    assert.equal(second.output_text, wholeText(plan));
    assert.equal(second.previous_response_id, first.id);
    const [, { body }] = backend.seen;
    assert.equal(body.previous_response_id, undefined);
    assert.deepEqual(
        body.input.map((item) => item.type ?? item.role),
        ["user", "reasoning", "message", "function_call", "function_call_output"],
    );
    assert.deepEqual(body.input[0], { role: "user", content: "go" });
    assert.equal(body.input[4].output, "sunny");
});

test("a third turn has the items of both before it, also when the first is deleted", async (t) => {
    const { client, backend } = await start(t);
    const turn = (input, previous_response_id) =>
        client.responses.create(ask({ style: "weak", words: 1, name: input }, { input, previous_response_id }));
    const first = await turn("one");
    const second = await turn("two", first.id);
    await client.responses.delete(first.id);
    const third = await turn("three", second.id);
    const said = backend.seen[2].body.input
        .filter((item) => item.content && item.type !== "reasoning")
        .map(({ content }) => (typeof content === "string" ? content : content[0].text));
    assert.deepEqual(said, ["one", "one-0 ", "two", "two-0 ", "three"]);
    const { data } = await client.responses.inputItems.list(third.id, { order: "asc" });
    assert.equal(data.length, 7);
});

test("after a stop the next turn goes on from what was said", async (t) => {
    const { client, backend } = await start(t);
    const stream = await client.responses.create(ask({ style: "weak", gate: 2 }, { stream: true }));
    const id = idOf(await take(stream, 10));
    assert.equal((await client.responses.cancel(id)).status, "cancelled");
    await client.responses.create(ask({ words: 1 }, { input: "on", previous_response_id: id }));
    const [user, message, next] = backend.seen[1].body.input;
    assert.equal(user.content, "go");
    assert.equal(message.status, "incomplete");
    assert.equal(message.content[0].text, wholeText({ words: 2 }));
    assert.equal(next.content, "on");
});

test("a turn behind one that is not there, or still running", async (t) => {
    const { client, backend } = await start(t);
    const unknown = `resp_${"0".repeat(32)}`;
    await assert.rejects(
        client.responses.create(ask({}, { previous_response_id: unknown })),
        (error) => {
            assert.ok(error instanceof OpenAI.BadRequestError, String(error));
            assert.equal(error.code, "previous_response_not_found");
            assert.equal(error.param, "previous_response_id");
            return true;
        },
    );
    const { id } = await client.responses.create(ask({ gate: 1 }, { background: true }));
    await assert.rejects(
        client.responses.create(ask({}, { previous_response_id: id })),
        OpenAI.BadRequestError,
    );
    // an id that is not of our form is the backend's to know
    await client.responses.create(ask({ words: 1 }, { previous_response_id: "resp_their" }));
    assert.equal(backend.seen.at(-1).body.previous_response_id, "resp_their");
});

test("one that is not to be stored", async (t) => {
    const gateway = await start(t, { disk: true });
    const { client, backend } = gateway;
    const stream = await client.responses.create(ask({ words: 1 }, { store: false, stream: true }));
    const id = idOf(await collect(stream));
    assert.equal(backend.seen[0].body.store, false);
    await assert.rejects(client.responses.inputItems.list(id), isMissing);
    await assert.rejects(
        client.responses.create(ask({}, { previous_response_id: id })),
        OpenAI.BadRequestError,
    );
    // without a stream nothing is wanted of the gateway: it is as if it were not there
    const json = { object: "response", id: "resp_their", output: [] };
    const whole = await client.responses.create(ask({ json }, { store: false }));
    assert.equal(whole.id, "resp_their");
    assert.equal(backend.seen[1].body.stream, undefined);
    const { text } = await gateway.request("GET", "/v1/stream?prefix=.route/&reserved=true");
    assert.doesNotMatch(text, /\.input/);
});

// ---- failures ----

for (const [fate, what] of [
    ["cut", "is cut off"],
    ["end", "ends too early"],
    ["error", "says so"],
])
    test(`a backend that ${what} is an error in every form`, async (t) => {
        const { client } = await start(t);
        const plan = { fate, at: 3 };
        const stream = await client.responses.create(ask(plan, { stream: true }));
        const events = [];
        await assert.rejects(collect(stream, events), OpenAI.APIError);
        const id = idOf(events);
        await assert.rejects(client.responses.stream(ask(plan)).finalResponse(), OpenAI.OpenAIError);
        const response = await finished(client, id);
        assert.equal(response.status, "failed");
        assert.ok(response.error.message.length > 0);
        assert.equal(response.output[0].content[0].text, wholeText({ words: 3 }));
        await assert.rejects(
            collect(await client.responses.retrieve(id, { stream: true })),
            OpenAI.APIError,
        );
        const queued = await client.responses.create(ask(plan, { background: true }));
        assert.equal((await finished(client, queued.id)).status, "failed");
    });

test("the backend's refusals are the client's errors, and leave nothing behind", async (t) => {
    const gateway = await start(t, { disk: true });
    const { client } = gateway;
    for (const stream of [true, false])
        await assert.rejects(
            client.responses.create(ask({ status: 429 }, { stream })),
            OpenAI.RateLimitError,
        );
    await until(async () => {
        const { text } = await gateway.request("GET", "/v1/stream?prefix=.route/&reserved=true");
        return !text.includes(".input");
    }, "the input to be removed");
});

// ---- a server that is killed ----

test("killed when all is stored: everything is there, by its id", async (t) => {
    const gateway = await start(t, { disk: true });
    const plan = { gate: 20 };
    const stream = await gateway.client.responses.create(
        ask(plan, { background: true, stream: true }),
    );
    const first = await take(stream, 11);
    const id = idOf(first);
    gateway.backend.go();
    await finished(gateway.client, id);
    await gateway.restart("SIGKILL");
    const client = clientAt(gateway);
    const rest = await collect(
        await client.responses.retrieve(id, { stream: true, starting_after: 10 }),
    );
    assert.deepEqual(numbers(rest), range(11, 57));
    const response = await client.responses.retrieve(id);
    assert.equal(response.status, "completed");
    assert.equal(response.output_text, wholeText());
    const { data } = await client.responses.inputItems.list(id);
    assert.equal(data.length, 1);
    await client.responses.create(ask({ words: 1 }, { previous_response_id: id }));
    assert.equal(gateway.backend.seen[1].body.input.length, 3);
    assert.equal((await client.responses.cancel(id)).status, "completed");
    await client.responses.delete(id);
    await assert.rejects(client.responses.retrieve(id), isMissing);
});

test("killed in the middle: what came is there, and that it failed", async (t) => {
    const gateway = await start(t, { disk: true });
    const queued = await gateway.client.responses.create(
        ask({ gate: 5 }, { background: true }),
    );
    await until(async () => {
        const { output } = await gateway.client.responses.retrieve(queued.id);
        return output[0]?.content?.[0]?.text.includes("word-4");
    }, "a part of the text");
    await gateway.restart("SIGKILL");
    const client = clientAt(gateway);
    const response = await finished(client, queued.id);
    assert.equal(response.status, "failed");
    assert.match(response.error.message, /restarted/);
    assert.equal(response.output[0].content[0].text, wholeText({ words: 5 }));
    await assert.rejects(
        collect(await client.responses.retrieve(queued.id, { stream: true })),
        OpenAI.APIError,
    );
    await assert.rejects(
        client.responses.stream({ response_id: queued.id }).finalResponse(),
        OpenAI.OpenAIError,
    );
});

// ---- keys, and who may ask ----

test("the same background request again under its key is one response", async (t) => {
    const { client, backend } = await start(t);
    const body = ask({ gate: 2 }, { background: true });
    const options = { headers: { "Idempotency-Key": "once" } };
    const first = await client.responses.create(body, options);
    const second = await client.responses.create(body, options);
    assert.equal(second.id, first.id);
    backend.go();
    assert.equal((await finished(client, first.id)).output_text, wholeText());
    assert.equal(backend.seen.length, 1);
});

test("in the background nobody has to stay, whatever a disconnect means", async (t) => {
    const { client, backend } = await start(t, { settings: { "on-disconnect": "stop" } });
    const attended = await client.responses.create(ask({ gate: 3 }, { stream: true }));
    await take(attended, 5);
    await until(() => backend.seen[0].closed, "the backend's connection to be closed");
    const stream = await client.responses.create(ask({ gate: 3 }, { background: true, stream: true }));
    const streamed = idOf(await take(stream, 5));
    const { id } = await client.responses.create(ask({ gate: 3 }, { background: true }));
    await take(await client.responses.retrieve(id, { stream: true }), 5);
    backend.go();
    for (const one of [streamed, id])
        assert.equal((await finished(client, one)).output_text, wholeText());
    assert.equal(backend.seen.length, 3);
});

test("the example of the document works", async (t) => {
    const { base, backend } = await start(t);
    const url = new URL("../../docs/protocols/responses.md", import.meta.url);
    const [, code] = /^```js\nimport OpenAI from "openai";\n(.*?)^```$/ms.exec(await readFile(url, "utf8"));
    const said = [];
    const logged = [];
    const AsyncFunction = (async () => {}).constructor;
    const run = new AsyncFunction("OpenAI", "process", "console", code.replace("http://127.0.0.1:4437", base));
    const write = (text) => said.push(text);
    await run(OpenAI, { stdout: { write } }, { log: (text) => logged.push(text) });
    assert.ok(wholeText().endsWith(said.join("")) && said.length > 40);
    assert.deepEqual(logged, [wholeText()]);
    assert.equal(backend.seen[1].body.input.length, 3);
});

test("a response is kept for its time", async (t) => {
    const settings = { "response-ttl": "1s", "state-ttl": "1s", "snapshot-ttl": "1ms" };
    const { client } = await start(t, { settings });
    const { id } = await client.responses.create(ask({ words: 1 }));
    assert.equal((await client.responses.retrieve(id)).id, id);
    await within(
        until(async () => {
            try {
                await client.responses.inputItems.list(id);
                await client.responses.retrieve(id);
                return false;
            } catch (error) {
                return isMissing(error);
            }
        }, "it to expire"),
        "it to expire",
    );
});
