// SPDX-License-Identifier: Apache-2.0
// Stopping a generation, and bounds on how many there may be.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assertEvents, PATH, read, startGateway } from "./lib/gateway.mjs";
import { until, within } from "./lib/wait.mjs";

const isSuccess = ({ status }) => status >= 200 && status < 300;

function assertCancelled(story, plan, count) {
    assertEvents(story.events, plan, 1, count);
    assert.equal(story.all.at(-1).event, "end");
    assert.equal(story.named("end").reason, "cancelled");
    assert.ok(!story.types.includes("error") && !story.types.includes("complete"));
}

for (const [how, method, suffix] of [
    ["POST .../stop", "POST", "/stop"],
    ["DELETE", "DELETE", ""],
])
    for (const disk of [false, true])
        test(`stopped from elsewhere: ${how}, ${disk ? "embedded" : "memory"}`, async (t) => {
            const gateway = await startGateway(t, { disk });
            const plan = { name: "stopped", tokens: 20, gates: [6] };
            const reader = await gateway.post(plan);
            const story = await read(reader, 6);
            const requestId = reader.headers["x-correlation-id"];
            const target = `${PATH}/${requestId}${suffix}`;
            const stopped = await gateway.request(method, target);
            assert.ok(isSuccess(stopped), `${stopped.status} ${stopped.text}`);

            await within(read(reader, Infinity, story), "the answer to end");
            assertCancelled(story, plan, 6);
            const dropped = async () => (await gateway.backend.seen())[0].closed;
            await until(dropped, "the backend's connection to be closed");
            for (let i = 0; i < 2; i++) {
                const again = await gateway.request(method, target);
                assert.equal(again.status, stopped.status, again.text);
            }
            await gateway.backend.go("stopped"); // too late
            assertCancelled(await read(await gateway.resume(story.token)), plan, 6);
            assertCancelled(await read(await gateway.get(requestId)), plan, 6);
            assert.equal((await gateway.backend.seen()).length, 1);
        });

test("stopped by who resumed it", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "resumed", tokens: 20, gates: [4] };
    const first = await gateway.post(plan);
    const { token } = await read(first, 4);
    first.raw.destroy();
    const second = await gateway.resume(token);
    const story = await read(second, 4);
    assert.ok(isSuccess(await gateway.stop(second.headers["x-correlation-id"])));
    assertCancelled(await within(read(second, Infinity, story), "the end"), plan, 4);
});

test("stopped before the first event", async (t) => {
    const gateway = await startGateway(t, { flags: ["--heartbeat", "100ms"] });
    const plan = { name: "early", tokens: 3, fate: "hang", at: 0 };
    const reader = await gateway.post(plan);
    assert.ok(isSuccess(await gateway.stop(reader.headers["x-correlation-id"])));
    assertCancelled(await within(read(reader), "the end"), plan, 0);
});

test("what is complete stays complete", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "late-stop", tokens: 4 };
    const reader = await gateway.post(plan);
    const { token } = await read(reader);
    await gateway.stop(reader.headers["x-correlation-id"]);
    const story = await read(await gateway.resume(token));
    assertEvents(story.events, plan);
    assert.equal(story.all.at(-1).event, "complete");
});

/** A refusal for asking too much. */
function assertTooMany(answer) {
    assert.equal(answer.status, 429, answer.text);
    const { schema, code, message, details } = answer.json();
    assert.deepEqual({ schema, code }, { schema: "error.v1", code: "RATE_LIMITED" });
    assert.equal(typeof message, "string");
    const seconds = Number(answer.headers["retry-after"]);
    assert.ok(Number.isInteger(seconds) && seconds >= 1 && seconds <= 60, `${seconds} s`);
    if (details !== undefined) assert.equal(details.retry_after_seconds, seconds);
}

test("requests per minute, of which resuming takes its share", async (t) => {
    const gateway = await startGateway(t, {
        route: { "requests-per-minute": "4" },
        routes: { "/free": {} },
        callers: { ann: { token: "ann's" } },
    });
    const plan = { name: "quota", tokens: 2 };
    const { token } = await read(await gateway.post(plan));
    await read(await gateway.post(plan));
    for (let i = 0; i < 2; i++) await read(await gateway.resume(token));
    assertTooMany(await gateway.resume(token));
    assertTooMany(await gateway.post(plan));
    assert.equal((await gateway.backend.seen()).length, 2);

    const ann = { Authorization: "Bearer ann's" };
    assertEvents((await read(await gateway.post(plan, ann))).events, plan);
    assertEvents((await read(await gateway.post(plan, {}, { path: "/free" }))).events, plan);
});

test("refusals for asking too much are counted", async (t) => {
    const gateway = await startGateway(t, { route: { "requests-per-minute": "1" } });
    const plan = { name: "counted", tokens: 2 };
    await read(await gateway.post(plan));
    assertTooMany(await gateway.post(plan));
    const { text } = await gateway.request("GET", "/metrics");
    assert.match(text, /^tidemark_gateway_refused_total\{route="\/assist\/draft-graph".*\} 1$/m);
});

test("generations at the same time", async (t) => {
    const gateway = await startGateway(t, { route: { parallel: "2" } });
    const plan = (name) => ({ name, tokens: 4, gates: [2] });
    const readers = [await gateway.post(plan("a")), await gateway.post(plan("b"))];
    const stories = [await read(readers[0], 2), await read(readers[1], 2)];
    const refused = await gateway.post(plan("c"));
    assert.equal(refused.status, 429, refused.text);
    assert.equal(refused.json().schema, "error.v1");
    assert.ok(Number(refused.headers["retry-after"]) >= 1);
    // Who only reads is not one of them.
    assert.equal((await gateway.get(readers[0].headers["x-correlation-id"])).status, 200);

    await gateway.backend.go("a");
    await read(readers[0], Infinity, stories[0]);
    const third = await until(async () => {
        const reader = await gateway.post(plan("d"));
        return reader.status === 200 && reader;
    }, "room for another");
    assert.ok(isSuccess(await gateway.stop(readers[1].headers["x-correlation-id"])));
    await read(readers[1], Infinity, stories[1]);
    const fourth = await until(async () => {
        const reader = await gateway.post(plan("e"));
        return reader.status === 200 && reader;
    }, "room for one more");
    for (const name of ["d", "e"]) await gateway.backend.go(name);
    assertEvents((await read(third)).events, plan("d"));
    assertEvents((await read(fourth)).events, plan("e"));
});

test("who comes all at once is counted as well", async (t) => {
    const gateway = await startGateway(t, { disk: true, route: { parallel: "3" } });
    const plan = { name: "crowd", tokens: 4, gates: [2] };
    const readers = await Promise.all(Array.from({ length: 20 }, () => gateway.post(plan)));
    const taken = readers.filter(({ status }) => status === 200);
    assert.equal(taken.length, 3);
    for (const reader of readers) if (!taken.includes(reader)) assert.equal(reader.status, 429);
    await gateway.backend.go("crowd");
    for (const reader of taken) assertEvents((await read(reader)).events, plan);
    assert.equal((await gateway.backend.seen()).length, 3);
});

test("a failed generation makes room as well", async (t) => {
    const gateway = await startGateway(t, { route: { parallel: "1" } });
    for (let i = 0; i < 3; i++) {
        const plan = { name: `f-${i}`, tokens: 4, fate: "cut", at: i };
        const reader = await gateway.post(plan);
        if (i === 0) assert.equal(reader.status, 502, "nothing had come");
        else assert.equal((await read(reader)).named("end").reason, "failed");
    }
    const answer = { status: 200, type: "application/json", base64: btoa("{}") };
    for (let i = 0; i < 3; i++)
        assert.equal((await gateway.post({ name: `j-${i}`, answer })).text, "{}");
});
