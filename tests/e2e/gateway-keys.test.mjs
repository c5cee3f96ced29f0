// SPDX-License-Identifier: Apache-2.0
// Idempotency-Key: who asks again gets the same stream, and the backend is asked once.
import assert from "node:assert/strict";
import { test } from "node:test";
import { finalPayload } from "./lib/backend-plan.mjs";
import { assertEvents, PATH, read, startGateway } from "./lib/gateway.mjs";
import { until } from "./lib/wait.mjs";

const key = (value, more = {}) => ({ "Idempotency-Key": value, ...more });
const idOf = (reader) => reader.headers["x-correlation-id"];

test("the same request again attaches to the stream that runs", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "running", tokens: 15, gates: [6] };
    const first = await gateway.post(plan, key("k-1"));
    const story = await read(first, 6);
    const second = await gateway.post(plan, key("k-1"));
    const third = await gateway.post(plan, key("k-1", { "Last-Event-ID": "4" }));
    for (const reader of [second, third]) {
        assert.equal(reader.status, 200, reader.text);
        assert.equal(idOf(reader), idOf(first));
    }
    const others = [read(second), read(third)];
    await gateway.backend.go("running");
    assertEvents((await read(first, Infinity, story)).events, plan);
    const [fromStart, fromFour] = await Promise.all(others);
    assertEvents(fromStart.events, plan);
    assert.ok(fromStart.token, "who attaches can resume as well");
    assertEvents(fromFour.events, plan, 5);
    assert.equal((await gateway.backend.seen()).length, 1);
});

test("the same request again, when all is over", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "over", tokens: 8 };
    const first = await gateway.post(plan, key("k-2"));
    assertEvents((await read(first)).events, plan);
    for (let i = 0; i < 3; i++) {
        const again = await gateway.post(plan, key("k-2"));
        assert.equal(idOf(again), idOf(first));
        assertEvents((await read(again)).events, plan);
    }
    assert.equal((await gateway.backend.seen()).length, 1);
});

test("many at once with one key are one request to the backend", async (t) => {
    const gateway = await startGateway(t, { disk: true });
    const plan = { name: "stampede", tokens: 20, every: 1 };
    const starts = Array.from({ length: 40 }, () => gateway.post(plan, key("k-3")));
    const readers = await Promise.all(starts);
    const stories = await Promise.all(readers.map((reader) => read(reader)));
    for (const story of stories) assertEvents(story.events, plan);
    assert.equal(new Set(readers.map(idOf)).size, 1);
    assert.equal((await gateway.backend.seen()).length, 1);
});

test("without a key nothing is the same", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "plain", tokens: 3 };
    const ids = new Set();
    for (let i = 0; i < 3; i++) {
        const reader = await gateway.post(plan);
        assertEvents((await read(reader)).events, plan);
        ids.add(idOf(reader));
    }
    assert.equal(ids.size, 3);
    assert.equal((await gateway.backend.seen()).length, 3);
});

test("large bodies: the same is the same, and another is not", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "large", tokens: 3, ignored: "x".repeat(2_000_000) };
    const first = await gateway.post(plan, key("k-large"));
    assertEvents((await read(first)).events, plan);
    const again = await gateway.post(plan, key("k-large"));
    assert.equal(idOf(again), idOf(first));
    assertEvents((await read(again)).events, plan);
    const other = await gateway.post({ ...plan, ignored: "y".repeat(2_000_000) }, key("k-large"));
    assert.equal(other.status, 422, other.text);
    assert.equal((await gateway.backend.seen()).length, 1);
});

test("another body under the same key is refused", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "mine", tokens: 3 };
    await read(await gateway.post(plan, key("k-4")));
    const other = await gateway.post({ ...plan, tokens: 4 }, key("k-4"));
    assert.equal(other.status, 422, other.text);
    assert.match(other.headers["content-type"], /^application\/json/);
    assert.equal(other.json().schema, "error.v1");
    assert.equal((await gateway.backend.seen()).length, 1);
});

test("a key belongs to its route and to its caller", async (t) => {
    const gateway = await startGateway(t, {
        routes: { "/other": {} },
        callers: { ann: { token: "ann's" }, bob: { token: "bob's" } },
    });
    const ids = new Set();
    for (const [path, token] of [
        [PATH, "ann's"],
        [PATH, "bob's"],
        ["/other", "ann's"],
        [PATH, undefined],
    ]) {
        const plan = { name: `${path} ${token}`, tokens: 2 };
        const headers = token ? { Authorization: `Bearer ${token}` } : {};
        const reader = await gateway.post(plan, key("k-5", headers), { path });
        assertEvents((await read(reader)).events, plan);
        ids.add(idOf(reader));
    }
    assert.equal(ids.size, 4);
});

test("the key of a failed stream gives that stream, unless a new try is asked for", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "failed", tokens: 9, fate: "cut", at: 3 };
    const first = await gateway.post(plan, key("k-6"));
    assert.equal((await read(first)).named("end").reason, "failed");

    for (const more of [{}, { "Idempotency-Retry": "?0" }]) {
        const again = await gateway.post(plan, key("k-6", more));
        assert.equal(idOf(again), idOf(first));
        const story = await read(again);
        assertEvents(story.events, plan, 1, 3);
        assert.equal(story.named("end").reason, "failed");
    }
    assert.equal((await gateway.backend.seen()).length, 1);

    const retry = await gateway.post(plan, key("k-6", { "Idempotency-Retry": "?1" }));
    assert.notEqual(idOf(retry), idOf(first));
    await read(retry);
    assert.equal((await gateway.backend.seen()).length, 2);
    const after = await gateway.post(plan, key("k-6"));
    assert.equal(idOf(after), idOf(retry), "the key leads to the last try");
    await read(after);
    assert.equal((await gateway.backend.seen()).length, 2);
});

test("a new try of what runs, or went well, is no new try", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "well", tokens: 6, gates: [2] };
    const retry = key("k-7", { "Idempotency-Retry": "?1" });
    const first = await gateway.post(plan, key("k-7"));
    const story = await read(first, 2);
    const beside = await gateway.post(plan, retry);
    assert.equal(idOf(beside), idOf(first));
    await gateway.backend.go("well");
    assertEvents((await read(first, Infinity, story)).events, plan);
    assertEvents((await read(beside)).events, plan);
    const after = await gateway.post(plan, retry);
    assert.equal(idOf(after), idOf(first));
    assert.equal((await gateway.backend.seen()).length, 1);
});

for (const signal of ["SIGTERM", "SIGKILL"])
    test(`keys survive a restart by ${signal}`, async (t) => {
        const gateway = await startGateway(t, { disk: true });
        const done = { name: "done", tokens: 5 };
        const plan = { name: "cut-short", tokens: 300, every: 2 };
        const first = await gateway.post(done, key("done"));
        await read(first);
        const running = await gateway.post(plan, key("running"));
        await read(running, 10);
        await gateway.restart(signal);

        const again = await gateway.post(done, key("done"));
        assert.equal(idOf(again), idOf(first));
        assertEvents((await read(again)).events, done);
        assert.equal((await gateway.post({ ...done, tokens: 6 }, key("done"))).status, 422);

        const orphan = await gateway.post(plan, key("running"));
        assert.equal(idOf(orphan), idOf(running));
        const story = await read(orphan);
        assert.equal(story.named("end").reason, "orphaned");
        assertEvents(story.events, plan, 1, story.lastId);
        assert.equal((await gateway.backend.seen()).length, 2);

        const retry = await gateway.post(plan, key("running", { "Idempotency-Retry": "?1" }));
        assert.notEqual(idOf(retry), idOf(running));
        assertEvents((await read(retry)).events, plan);
        assert.equal((await gateway.backend.seen()).length, 3);
    });

test("a key outlives its stream: the snapshot, then 410", async (t) => {
    const route = { "state-ttl": "300ms", "snapshot-ttl": "1500ms" };
    const gateway = await startGateway(t, { route });
    const plan = { name: "outlived", tokens: 4 };
    await read(await gateway.post(plan, key("k-8")));
    const late = await until(async () => {
        const reader = await gateway.post(plan, key("k-8"));
        const story = await read(reader);
        return story.events.length === 0 && story;
    }, "the events to expire");
    const { diagnostics, ...payload } = late.named("complete");
    assert.deepEqual(payload, finalPayload(plan));
    const gone = await until(async () => {
        const reader = await gateway.post(plan, key("k-8"));
        return reader.status !== 200 && reader;
    }, "the snapshot to expire");
    assert.equal(gone.status, 410, gone.text);
    assert.match(gone.text, /expired/i);
    assert.equal((await gateway.backend.seen()).length, 1);
});

test("a key has its time", async (t) => {
    const gateway = await startGateway(t, { route: { "key-lifetime": "1s" } });
    const plan = { name: "forgotten", tokens: 2 };
    const first = await gateway.post(plan, key("k-9"));
    await read(first);
    await until(async () => {
        const reader = await gateway.post(plan, key("k-9"));
        await read(reader);
        return idOf(reader) !== idOf(first);
    }, "the key to be forgotten");
    assert.equal((await gateway.backend.seen()).length, 2);
});

test("a trimmed stream is attached to with its gap", async (t) => {
    const route = { trim: "strict", "buffer-max-events": "10" };
    const gateway = await startGateway(t, { route });
    const plan = { name: "trimmed", tokens: 60 };
    await read(await gateway.post(plan, key("k-10")));
    const story = await read(await gateway.post(plan, key("k-10")));
    const gap = story.named("gap");
    assert.equal((gap.gap ?? gap).reason, "trimmed");
    const first = Number(story.events[0].id);
    assert.ok(first > 1);
    assertEvents(story.events, plan, first);
    assert.equal((await gateway.backend.seen()).length, 1);
});
