// SPDX-License-Identifier: Apache-2.0
// Coming back late: the answer is complete, its events have been trimmed, or they are gone and the
// snapshot is what is left.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { finalPayload, wholeText } from "./lib/backend-plan.mjs";
import { assertEvents, expected, mint, PATH, read, startGateway } from "./lib/gateway.mjs";
import { until } from "./lib/wait.mjs";

const STORES = [
    ["memory", false],
    ["embedded", true],
];

/** Runs a generation to its end: its token and id. */
async function finish(gateway, plan, options) {
    const reader = await gateway.post(plan, {}, options);
    const story = await read(reader);
    return { story, token: story.token, requestId: reader.headers["x-correlation-id"] };
}

/** The payload of `complete`; what the server adds to it stands in `diagnostics`. */
function payloadOf(story) {
    const { diagnostics, ...payload } = story.named("complete") ?? assert.fail("no `complete`");
    return payload;
}

for (const [store, disk] of STORES) {
    test(`after the end: the events, and then what they came to (${store})`, async (t) => {
        const gateway = await startGateway(t, { disk });
        const plan = { name: "done", tokens: 20 };
        const { token, requestId } = await finish(gateway, plan);
        for (const seq of [0, 13, 21]) {
            const reader = await gateway.resume(seq === 0 ? token : mint({ requestId, seq }));
            const story = await read(reader);
            assertEvents(story.events, plan, seq + 1);
            assert.equal(story.all.at(-1).event, "complete");
            assert.deepEqual(payloadOf(story), finalPayload(plan));
            assert.ok(!story.types.includes("gap"));
        }
    });

    test(`after the events are gone: the snapshot alone, then nothing (${store})`, async (t) => {
        const route = { "state-ttl": "300ms", "snapshot-ttl": "1500ms" };
        const gateway = await startGateway(t, { disk, route });
        const plan = { name: "gone", tokens: 5 };
        const { token, requestId } = await finish(gateway, plan);
        const late = await until(async () => {
            const reader = await gateway.resume(token);
            const story = await read(reader);
            return story.events.length === 0 && { reader, story };
        }, "the events to expire");
        assert.equal(late.reader.headers["x-correlation-id"], requestId);
        assert.deepEqual(payloadOf(late.story), finalPayload(plan));

        const refused = await until(async () => {
            const reader = await gateway.resume(token);
            return reader.status !== 200 && reader;
        }, "the snapshot to expire");
        assert.equal(refused.status, 426, refused.text);
        assert.equal(refused.json().code, "INTERNAL");
        assert.match(refused.json().message, /expired/);
        assert.equal(refused.json().details.upgrade, "resume=unsupported");
        assert.ok([404, 410].includes((await gateway.get(requestId)).status));
    });
}

test("resuming does not prolong a stream's life", async (t) => {
    const route = { "state-ttl": "600ms", "snapshot-ttl": "1m" };
    const gateway = await startGateway(t, { route });
    const { token } = await finish(gateway, { name: "watched", tokens: 3 });
    await until(async () => {
        const { events } = await read(await gateway.resume(token));
        await delay(50);
        return events.length === 0;
    }, "the events to expire although they are read");
});

test("a route without snapshots has nothing to say after the events", async (t) => {
    const route = { snapshot: "none", "state-ttl": "300ms" };
    const gateway = await startGateway(t, { route });
    const plan = { name: "none", tokens: 3 };
    const { token } = await finish(gateway, plan);
    const refused = await until(async () => {
        const reader = await gateway.resume(token);
        if (reader.status !== 200) return reader;
        assert.ok(!(await read(reader)).types.includes("complete"));
        return null;
    }, "the events to expire");
    assert.equal(refused.status, 426);
});

/** Asserts that a gap comes before the events, and that those are the plan's up to its end. */
function assertTrimmed(story, plan, { most }) {
    const last = expected(plan).length;
    const first = Number(story.events[0].id);
    const gap = story.named("gap");
    assert.equal((gap.gap ?? gap).reason, "trimmed", JSON.stringify(gap));
    const at = (event) => story.all.indexOf(event);
    assert.ok(at(story.own.find(({ event }) => event === "gap")) < at(story.events[0]));
    assert.ok(first > 1, "nothing was trimmed");
    assert.ok(last - first + 1 <= most, `${last - first + 1} events are kept`);
    assertEvents(story.events, plan, first);
}

for (const [store, disk] of STORES)
    test(`trimmed by number of events: a gap, then the earliest (${store})`, async (t) => {
        const route = { trim: "strict", "buffer-max-events": "20" };
        const gateway = await startGateway(t, { disk, route });
        const plan = { name: "trim", tokens: 100, gates: [10] };
        const reader = await gateway.post(plan);
        await read(reader, 10);
        reader.raw.destroy();
        const requestId = reader.headers["x-correlation-id"];
        await gateway.backend.go("trim");
        await gateway.idle();

        const story = await read(await gateway.resume(mint({ requestId })));
        assertTrimmed(story, plan, { most: 24 });
        const rest = await read(await gateway.resume(mint({ requestId, seq: 95 })));
        assertEvents(rest.events, plan, 96);
        assert.ok(!rest.types.includes("gap"), "what it needs is there");
        const standard = await read(await gateway.get(requestId, { "Last-Event-ID": "3" }));
        assertTrimmed(standard, plan, { most: 24 });
        assert.ok((await gateway.metric("assist_sse_buffer_trimmed_total")) > 0);
    });

test("trimmed by bytes", async (t) => {
    const route = { trim: "strict", "buffer-max-bytes": "16k" };
    const gateway = await startGateway(t, { disk: true, route });
    const plan = { name: "bytes", tokens: 100, pad: 1000 };
    const { token } = await finish(gateway, plan);
    assertTrimmed(await read(await gateway.resume(token)), plan, { most: 20 });
});

test("by default memory keeps 256 events, and the disk all of them", async (t) => {
    const plan = { name: "default", tokens: 400 };
    const inMemory = await startGateway(t);
    const { token } = await finish(inMemory, plan);
    assertTrimmed(await read(await inMemory.resume(token)), plan, { most: 256 + 32 });

    const onDisk = await startGateway(t, { disk: true, backend: inMemory.backend });
    const { token: second } = await finish(onDisk, plan);
    const story = await read(await onDisk.resume(second));
    assertEvents(story.events, plan);
    assert.ok(!story.types.includes("gap"));
});

test("the limits can come from the variables of the seed", async (t) => {
    const env = { SSE_BUFFER_MAX_EVENTS: "10", SSE_STATE_TTL_SEC: "1", SSE_RESUME_TTL_MS: "5000" };
    const gateway = await startGateway(t, { env });
    const plan = { name: "variables", tokens: 50 };
    const { token } = await finish(gateway, plan);
    assertTrimmed(await read(await gateway.resume(token)), plan, { most: 12 });
    const left = Number(Buffer.from(token, "base64url").toString().split(":")[3]) - Date.now();
    assert.ok(left <= 5000, `${left} ms`);
    await until(
        async () => (await read(await gateway.resume(token))).events.length === 0,
        "the state to expire",
    );
});

test("?from=snapshot: one event for all that was, then what comes", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "joined", tokens: 12, gates: [8] };
    const first = await gateway.post(plan);
    await read(first, 8);
    const requestId = first.headers["x-correlation-id"];
    const reader = await gateway.get(requestId, {}, { query: "?from=snapshot" });
    let event = await reader.event();
    if (event.event === "resume") event = await reader.event();
    assert.equal(event.event, "snapshot");
    assert.deepEqual(JSON.parse(event.data), JSON.parse(expected(plan)[7].data));
    await gateway.backend.go("joined");
    const tail = await read(reader);
    assertEvents(tail.events, plan, 9);
});

test("?from=snapshot with chunks of a chat completion", async (t) => {
    const path = "/chat/completions";
    const routes = { [path]: { snapshot: "openai" } };
    const gateway = await startGateway(t, { routes });
    const plan = { name: "chat", dialect: "openai", tokens: 12, gates: [8] };
    const first = await gateway.post(plan, {}, { path });
    await read(first, 8);
    const requestId = first.headers["x-correlation-id"];
    const snapshotOf = async (reader) => {
        let event = await reader.event();
        if (event.event === "resume") event = await reader.event();
        assert.equal(event.event, "snapshot");
        return JSON.parse(event.data);
    };
    const running = await gateway.get(requestId, {}, { path, query: "?from=snapshot" });
    const soFar = await snapshotOf(running);
    assert.equal(soFar.object, "chat.completion");
    const { content } = soFar.choices[0].message;
    assert.equal(content, wholeText({ ...plan, tokens: 7 }));
    await gateway.backend.go("chat");
    const deltas = (await read(running)).events
        .filter(({ data }) => data !== "[DONE]")
        .map(({ data }) => JSON.parse(data).choices[0].delta.content ?? "");
    assert.equal(content + deltas.join(""), wholeText(plan));

    const ended = await gateway.get(requestId, {}, { path, query: "?from=snapshot" });
    const whole = await snapshotOf(ended);
    assert.equal(whole.choices[0].message.content, wholeText(plan));
    assert.equal(whole.choices[0].finish_reason, "stop");
    assert.deepEqual((await read(ended)).events, []);
});

test("snapshots survive a restart", async (t) => {
    const route = { "state-ttl": "300ms", "snapshot-ttl": "1h" };
    const gateway = await startGateway(t, { disk: true, route });
    const plan = { name: "kept", tokens: 5 };
    const { token } = await finish(gateway, plan);
    await gateway.restart("SIGKILL");
    await until(
        async () => (await read(await gateway.resume(token))).events.length === 0,
        "the events to expire",
    );
    await gateway.restart("SIGTERM");
    const story = await read(await gateway.resume(token));
    assert.deepEqual(payloadOf(story), finalPayload(plan));
    assert.equal((await gateway.request("GET", `${PATH}/nothing`)).status, 404);
});
