// SPDX-License-Identifier: Apache-2.0
// What goes wrong behind the gateway, or with it: readers are told, and what was there stays.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:https";
import { join } from "node:path";
import { test } from "node:test";
import { startBackend } from "./lib/backend.mjs";
import { defer } from "./lib/defer.mjs";
import { assertEvents, expected, mint, read, startGateway } from "./lib/gateway.mjs";
import { run } from "./lib/run.mjs";
import { freePort } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until, within } from "./lib/wait.mjs";

const QUICK = {
    "connect-timeout": "500ms",
    "first-byte-timeout": "300ms",
    "idle-timeout": "300ms",
};

/** The story of a stream that failed: its last words are `error` and `end`. */
function assertFailed(story, message = /./) {
    assert.deepEqual(story.types.slice(-2), ["error", "end"], JSON.stringify(story.own));
    assert.equal(story.all.at(-1).event, "end");
    assert.match(JSON.stringify(story.named("error")), message);
    const end = story.named("end");
    assert.equal(end.reason, "failed");
    assert.match(end.message, message);
}

/** The first `count` events of a plan, then the failure; for those who come later as well. */
async function assertFailsAfter(gateway, plan, count, message) {
    const reader = await gateway.post(plan);
    const story = await within(read(reader), "the failure");
    assertEvents(story.events, plan, 1, count);
    assertFailed(story, message);
    const requestId = reader.headers["x-correlation-id"];
    for (const later of [await gateway.resume(story.token), await gateway.get(requestId)]) {
        const again = await read(later);
        assertEvents(again.events, plan, 1, count);
        assertFailed(again, message);
    }
}

/** Nothing has come of it: that is a status, and who has the id is told as well. */
async function assertRefused(gateway, plan, status, message = /./) {
    const answer = await within(gateway.post(plan), "the failure");
    assert.equal(answer.status, status, answer.text);
    const { schema, code, message: text } = answer.json();
    const expected = status === 504 ? "UPSTREAM_TIMEOUT" : "UPSTREAM_ERROR";
    assert.deepEqual({ schema, code }, { schema: "error.v1", code: expected });
    assert.match(text, message);
    const story = await read(await gateway.get(answer.headers["x-correlation-id"]));
    assertEvents(story.events, plan, 1, 0);
    assertFailed(story, message);
}

test("a backend that refuses", async (t) => {
    const port = await freePort(); // nobody listens there
    const upstream = `http://127.0.0.1:${port}/answer`;
    const gateway = await startGateway(t, { route: { ...QUICK, upstream } });
    await assertRefused(gateway, { name: "refused", tokens: 3 }, 502);
});

test("a backend that nobody vouches for", async (t) => {
    const folder = await tempFolder(t);
    const [key, cert] = ["key.pem", "cert.pem"].map((name) => join(folder, name));
    const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"];
    const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    const args = ["req", "-x509", ...curve, ...subject, "-keyout", key, "-out", cert];
    assert.equal((await run(t, "openssl", args)).code, 0);
    let requests = 0;
    const options = { key: await readFile(key), cert: await readFile(cert) };
    const imposter = createServer(options, () => requests++);
    imposter.listen(0, "127.0.0.1");
    await once(imposter, "listening");
    defer(t, () => imposter.close());
    const upstream = `https://127.0.0.1:${imposter.address().port}/answer`;
    const gateway = await startGateway(t, { route: { upstream } });
    await assertRefused(gateway, { name: "untrusted", tokens: 3 }, 502);
    assert.equal(requests, 0, "not a byte of the request is for it");
});

test("a backend that never begins", async (t) => {
    const gateway = await startGateway(t, { route: QUICK });
    await assertRefused(gateway, { name: "mute", tokens: 3, mute: true }, 504);
    await until(async () => (await gateway.backend.seen())[0].closed, "the request to be dropped");
});

test("a backend that begins and falls silent", async (t) => {
    const gateway = await startGateway(t, { route: QUICK });
    await assertFailsAfter(gateway, { name: "hang", tokens: 9, fate: "hang", at: 4 }, 4);
    await assertRefused(gateway, { name: "hang0", tokens: 9, fate: "hang", at: 0 }, 504);
    await until(async () => (await gateway.backend.seen())[0].closed, "the request to be dropped");
});

test("a backend that takes longer than it may in all", async (t) => {
    const gateway = await startGateway(t, { route: { "total-timeout": "600ms" } });
    const plan = { name: "slow", tokens: 1000, every: 20 };
    const story = await within(read(await gateway.post(plan)), "the failure");
    assertFailed(story);
    assert.ok(story.events.length > 0);
    assertEvents(story.events, plan, 1, story.lastId);
});

test("a backend whose event is too large", async (t) => {
    const gateway = await startGateway(t);
    await assertRefused(gateway, { name: "huge", tokens: 3, pad: 1_100_000 }, 502);
});

test("who has all events, but not their end, is told it", async (t) => {
    const gateway = await startGateway(t);
    const reader = await gateway.post({ name: "told", tokens: 9, fate: "cut", at: 5 });
    const { token } = await read(reader);
    const last = { "Last-Event-ID": "5" };
    for (const later of [
        await gateway.resume(token, last),
        await gateway.get(reader.headers["x-correlation-id"], last),
    ]) {
        const story = await read(later);
        assert.deepEqual(story.events, []);
        assertFailed(story);
    }
});

for (const [store, disk] of [
    ["memory", false],
    ["embedded", true],
])
    test(`a backend that cuts the connection (${store})`, async (t) => {
        const gateway = await startGateway(t, { disk });
        await assertFailsAfter(gateway, { name: "cut", tokens: 9, fate: "cut", at: 5 }, 5);
        await assertRefused(gateway, { name: "cut0", tokens: 9, fate: "cut", at: 0 }, 502);
    });

test("a backend that is killed", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "killed", tokens: 20, gates: [7] };
    const reader = await gateway.post(plan);
    const story = await read(reader, 7);
    await gateway.backend.kill();
    await within(read(reader, Infinity, story), "the failure");
    assertEvents(story.events, plan, 1, 7);
    assertFailed(story);
    assertFailed(await read(await gateway.resume(story.token)));
    await assertRefused(gateway, plan, 502); // nobody is there any more
});

test("a backend that crashes takes all its answers with it, and others begin anew", async (t) => {
    const gateway = await startGateway(t);
    const { port } = gateway.backend;
    const bystander = { name: "bystander", tokens: 20, gates: [3] };
    const beside = await gateway.post(bystander);
    const besides = await read(beside, 3);
    const crash = { name: "crash", tokens: 9, every: 10, fate: "exit", at: 4 };
    assertFailed(await read(await gateway.post(crash)));
    assertFailed(await read(beside, Infinity, besides));
    assertEvents(besides.events, bystander, 1, 3);

    await startBackend(t, { port });
    const plan = { name: "anew", tokens: 4 };
    assertEvents((await read(await gateway.post(plan))).events, plan);
});

for (const signal of ["SIGKILL", "SIGTERM"])
    test(`the gateway itself ends in the middle, by ${signal}`, async (t) => {
        const flags = ["--drain-timeout", "0"]; // or it would come to its end
        const gateway = await startGateway(t, { disk: true, flags });
        const plan = { name: "orphan", tokens: 500, every: 2 };
        const done = { name: "done", tokens: 5 };
        const finished = await read(await gateway.post(done));
        const reader = await gateway.post(plan);
        const seen = await read(reader, 30);
        const requestId = reader.headers["x-correlation-id"];
        await gateway.restart(signal);

        for (const later of [
            await gateway.get(requestId),
            await gateway.resume(seen.token),
            await gateway.resume(mint({ requestId, seq: 10 })),
        ]) {
            const story = await within(read(later), "the end of the orphan");
            const first = Number(story.events[0].id);
            assert.ok(story.lastId >= 30, `${story.lastId} events, and 30 had been seen`);
            assertEvents(story.events, plan, first, story.lastId);
            assert.ok(story.lastId < expected(plan).length);
            assert.equal(story.all.at(-1).event, "end");
            assert.equal(story.named("end").reason, "orphaned");
            assert.ok(!story.types.includes("complete"));
            assert.ok(!story.types.includes("error"), "the backend did nothing wrong");
        }
        const again = await read(await gateway.resume(finished.token));
        assertEvents(again.events, done);
        assert.equal(again.all.at(-1).event, "complete", "what was complete stays so");
        const next = { name: "next", tokens: 4 };
        assertEvents((await read(await gateway.post(next))).events, next);
    });

test("on SIGTERM readers are told, and the server does not wait for ever", async (t) => {
    const gateway = await startGateway(t, { flags: ["--drain-timeout", "300ms"] });
    const plan = { name: "drained", tokens: 20, gates: [5] };
    const reader = await gateway.post(plan);
    const story = await read(reader, 5);
    gateway.server.signal("SIGTERM");
    await within(read(reader, Infinity, story), "the answer to end");
    assertEvents(story.events, plan, 1, 5);
    assert.equal(story.named("end")?.reason, "orphaned");
    const { code } = await within(gateway.server.ended, "the server to end");
    assert.equal(code, 0);
});

test("killed again and again while clients insist", async (t) => {
    const gateway = await startGateway(t, { disk: true });
    for (let round = 0; round < 3; round++) {
        const plan = { name: `round-${round}`, tokens: 3000, every: 1 };
        const readers = [];
        for (let i = 0; i < 4; i++) readers.push(await gateway.post(plan));
        const stories = await Promise.all(readers.map((reader, i) => read(reader, 5 + 7 * i)));
        await gateway.restart("SIGKILL");
        for (const [i, reader] of readers.entries()) {
            const headers = { "Last-Event-ID": stories[i].lastId };
            const rest = await read(await gateway.resume(stories[i].token, headers));
            assertEvents([...stories[i].events, ...rest.events], plan, 1, rest.lastId || 5 + 7 * i);
            assert.equal(rest.named("end").reason, "orphaned", reader.headers["x-correlation-id"]);
        }
    }
});
