// SPDX-License-Identifier: Apache-2.0
// A browser's own way to follow a stream: npm `eventsource`, which reconnects by itself and knows
// nothing of offsets but the `id:` it was sent.
import assert from "node:assert/strict";
import { test } from "node:test";
import { EventSource } from "eventsource";
import { defer } from "./lib/defer.mjs";
import { startProxy } from "./lib/proxy.mjs";
import { randomness } from "./lib/rand.mjs";
import { startServer } from "./lib/server.mjs";
import { openSse } from "./lib/sse.mjs";
import { until, within } from "./lib/wait.mjs";

// EventSource waits 3 s before it reconnects unless told otherwise; telling it costs the test
// nothing of its meaning and saves a minute.
async function fetchWithQuickRetry(url, init) {
    const answer = await fetch(url, init);
    if (!answer.ok) return answer;
    const body = ReadableStream.from(
        (async function* () {
            yield new TextEncoder().encode("retry: 10\n\n");
            yield* answer.body;
        })(),
    );
    return new Response(body, { status: answer.status, headers: answer.headers });
}

/** Follows a JSON stream and collects the elements of its data events. */
function follow(t, url, options) {
    const source = new EventSource(url, options);
    defer(t, () => source.close());
    const seen = [];
    source.addEventListener("data", (event) => seen.push(...JSON.parse(event.data)));
    return seen;
}

const numbers = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);

test("cut at random points again and again, every message arrives once and in order", async (t) => {
    const CUTS = 40;
    const COUNT = 400;
    const random = randomness(t);
    const server = await startServer(t);
    // From inside the answer's head to far into the events.
    const proxy = await startProxy(t, server, (n) =>
        n < CUTS ? { answerBytes: 100 + random.below(6000) } : null,
    );
    await server.create("story");
    const seen = follow(t, proxy.url("story", "?offset=-1&live=sse"), {
        fetch: fetchWithQuickRetry,
    });

    for (let n = 0; n < COUNT;) {
        const batch = numbers(n, Math.min(COUNT, n + 1 + random.below(5)));
        await server.append(
            "story",
            JSON.stringify(batch.map((i) => ({ i, pad: "x".repeat(60) }))),
        );
        n += batch.length;
        // Now and then let the reader catch up, so that cuts also hit the live tail.
        if (random.below(8) === 0)
            await until(() => seen.length >= n || proxy.connections > CUTS, `message ${n}`);
    }
    await until(() => seen.length >= COUNT, `all messages (${seen.length} came)`);
    await server.append("story", `{"i":"end"}`);
    await until(() => seen.at(-1).i === "end", "the last message");

    assert.deepEqual(
        seen.map((m) => m.i),
        [...numbers(0, COUNT), "end"],
    );
    assert.ok(proxy.cuts > 0, "no connection was cut");
});

test("an EventSource as it is resumes after its socket is destroyed", async (t) => {
    const server = await startServer(t);
    const proxy = await startProxy(t, server, (n) => (n === 0 ? { answerBytes: 2500 } : null));
    await server.create("plain");
    const seen = follow(t, proxy.url("plain", "?offset=-1&live=sse"));

    let n = 0;
    while (proxy.cuts === 0) {
        await server.append("plain", String(n++));
        await until(() => proxy.cuts > 0 || seen.length >= n, `message ${n}`);
    }
    await server.append("plain", JSON.stringify(numbers(n, n + 10)));
    await until(() => seen.at(-1) === n + 9, "what was appended after the cut");
    assert.deepEqual(seen, numbers(0, n + 10));
});

test("a response that the server ends is followed by the next, without a loss", async (t) => {
    const server = await startServer(t, ["--sse-lifetime", "100ms"]);
    await server.create("lives");
    let responses = 0;
    const seen = follow(t, server.url("lives", "?offset=-1&live=sse"), {
        fetch: (url, init) => {
            responses++;
            return fetchWithQuickRetry(url, init);
        },
    });
    let n = 0;
    while (responses < 6) await server.append("lives", String(n++));
    await until(() => seen.length >= n, "all messages");
    assert.deepEqual(seen, numbers(0, n));
});

test("Last-Event-ID wins over ?offset=", async (t) => {
    const server = await startServer(t);
    await server.create("resume");
    for (const value of ["1", "2", "3"]) await server.append("resume", value);

    const first = await openSse(t, server, "resume?offset=-1&live=sse");
    const all = [];
    const ids = new Map(); // last element of an event -> the event's id
    while (all.length < 3) {
        const event = await first.event("data");
        all.push(...JSON.parse(event.data));
        assert.ok(event.id, "a data event without id");
        ids.set(all.at(-1), event.id);
    }
    assert.deepEqual(all, [1, 2, 3]);

    const last = ids.get(3);
    await server.append("resume", "4");
    for (const offset of ["-1", "now", "0000000000000000_0000000000000000"]) {
        const again = await openSse(t, server, `resume?offset=${offset}&live=sse`, {
            "Last-Event-ID": last,
        });
        assert.equal((await again.event("data")).data, "[4]", `with offset=${offset}`);
    }
});

test("the id of an event is the offset behind it", async (t) => {
    const server = await startServer(t);
    await server.create("ids");
    const reader = await openSse(t, server, "ids?offset=-1&live=sse");
    for (const value of ["1", "[2,3]", "4"]) {
        const { headers } = await server.append("ids", value);
        const event = await reader.event("data");
        const control = await reader.control();
        assert.equal(event.id, headers["stream-next-offset"]);
        assert.equal(event.id, control.streamNextOffset);
    }
});

test("a broken Last-Event-ID is refused", async (t) => {
    const server = await startServer(t);
    await server.create("odd");
    for (const id of ["garbage", "1", "../..", "0000000000000001_", "9".repeat(300)]) {
        const reader = await openSse(t, server, "odd?offset=-1&live=sse", { "Last-Event-ID": id });
        assert.equal(reader.status, 400, `Last-Event-ID: ${id}`);
    }
});

test("heartbeats come before the first event and after it", async (t) => {
    const server = await startServer(t, ["--heartbeat", "100ms"]);
    await server.create("quiet");
    const reader = await openSse(t, server, "quiet?offset=-1&live=sse");

    const heartbeat = async () => {
        for (;;) {
            const next = await reader.next();
            assert.notEqual(next, null, "the stream ended");
            if (next.comment !== undefined) return;
            assert.notEqual(next.event, "data", "data where none was appended");
        }
    };
    await within(heartbeat(), "a heartbeat before the first event");
    await within(heartbeat(), "another one");
    await server.append("quiet", "1");
    assert.equal((await reader.event("data")).data, "[1]");
    await within(heartbeat(), "a heartbeat after an event");
});
