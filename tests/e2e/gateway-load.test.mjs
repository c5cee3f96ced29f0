// SPDX-License-Identifier: Apache-2.0
// Many clients, long answers, and clients that do not read: nothing is lost or doubled, and memory
// stays within bounds.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assertEvents, expected, mint, read, startGateway, Story } from "./lib/gateway.mjs";
import { until, within } from "./lib/wait.mjs";

const MIB = 1024 * 1024;
const inMib = (bytes) => `${(bytes / MIB).toFixed(1)} MiB`;

test("an answer of 5,000 tokens is resumed from its first", async (t) => {
    const gateway = await startGateway(t, { disk: true });
    const plan = { name: "long", tokens: 5000 };
    const reader = await gateway.post(plan);
    const begun = await read(reader, 1);
    reader.raw.destroy();
    const resumed = await gateway.resume(begun.token, { "Last-Event-ID": "1" });
    const rest = await within(read(resumed), "5,000 tokens", 60_000);
    assertEvents([begun.events[0], ...rest.events], plan);
    assert.ok(!rest.types.includes("gap"));
    await gateway.restart("SIGKILL");
    assertEvents((await read(await gateway.resume(begun.token))).events, plan);
});

test("1,000 clients are dropped and resume together", async (t) => {
    const COUNT = 1000;
    const HALF = 6;
    const gateway = await startGateway(t);
    const plans = Array.from({ length: COUNT }, (_, i) => ({
        name: `c${i}`,
        tokens: 12,
        gates: [HALF],
    }));
    const clients = [];
    const start = async (plan) => {
        const reader = await gateway.post(plan);
        // Some leave with all that there is so far, some before.
        const story = await read(reader, 1 + (clients.length % HALF));
        clients.push({ plan, reader, story, token: story.token });
    };
    // A server has a backlog of connections; clients come in waves as large as that.
    for (let i = 0; i < COUNT; i += 100)
        await within(Promise.all(plans.slice(i, i + 100).map(start)), "the first half", 60_000);
    assert.equal(clients.length, COUNT);
    const before = gateway.server.rss();

    for (const { reader } of clients) reader.raw.destroy();
    const resume = async (client) => {
        const headers = { "Last-Event-ID": client.story.lastId };
        client.reader = await gateway.resume(client.token, headers);
        const reading = read(client.reader);
        await gateway.backend.go(client.plan.name);
        client.rest = await reading;
    };
    await within(Promise.all(clients.map(resume)), "everyone's second half", 60_000);
    t.diagnostic(`RSS ${inMib(before)}, after all resumed ${inMib(gateway.server.rss())}`);
    for (const { plan, story, rest } of clients)
        assertEvents([...story.events, ...rest.events], plan);
    const seen = await gateway.backend.seen();
    assert.equal(seen.length, COUNT, "each was asked for once");
    assert.equal(await gateway.metric("assist_sse_resume_success_total"), COUNT);
});

test("100 resume a long answer at once", async (t) => {
    const READERS = 100;
    const gateway = await startGateway(t, { disk: true });
    const plan = { name: "shared", tokens: 1500, pad: 200, gates: [1000] };
    const first = await gateway.post(plan);
    const { token } = await read(first, 1000);
    const before = gateway.server.rss();
    const readers = await Promise.all(
        Array.from({ length: READERS }, () => gateway.resume(token, { "Last-Event-ID": "500" })),
    );
    let most = gateway.server.rss();
    const watch = setInterval(() => (most = Math.max(most, gateway.server.rss())), 50);
    const reading = readers.map((reader) => read(reader));
    await gateway.backend.go("shared");
    const stories = await within(Promise.all(reading), "all readers", 60_000);
    clearInterval(watch);
    const wanted = JSON.stringify(expected(plan, 501).map(({ id, data }) => [id, data]));
    for (const { events } of stories)
        assert.equal(JSON.stringify(events.map(({ id, data }) => [id, data])), wanted);
    t.diagnostic(`RSS ${inMib(before)}, with ${READERS} readers at most ${inMib(most)}`);
    assert.ok(most - before < 150 * MIB, `${most - before} bytes more`);
});

/**
 * An answer of `mib` MiB whose client stops reading once it has begun; how RSS grew, and how much
 * the server said it had for readers.
 */
async function stall(gateway, name, mib) {
    const before = gateway.server.rss();
    const pad = 16 * 1024;
    const plan = { name, tokens: (mib * MIB) / pad, pad };
    const reader = await gateway.post(plan);
    await read(reader, 1);
    reader.raw.pause();
    let most = 0;
    let unsent = 0;
    const ended = async () => {
        most = Math.max(most, gateway.server.rss() - before);
        unsent = Math.max(unsent, await gateway.metric("tidemark_unsent_bytes"));
        return (await gateway.metric("tidemark_gateway_generations")) === 0;
    };
    await until(ended, "the generation to end", 60_000);
    return { plan, reader, most, unsent };
}

test("clients that never read cost no memory, and lose nothing that is on disk", async (t) => {
    const MIBS = 32;
    const CLIENTS = 12;
    // What the store may keep in memory until it rests in its files is 128 MiB; as much again is
    // room for the server itself and for a sanitizer. All that goes past is half as much more.
    const UNRESTED = 2 * 128 * MIB;
    const gateway = await startGateway(t, { disk: true, flags: ["--cache-bytes", "1m"] });
    const before = gateway.server.rss();
    const stalled = [];
    let most = 0;
    for (let i = 0; i < CLIENTS; i++) {
        const start = gateway.server.rss() - before;
        const one = await stall(gateway, `client ${i}`, MIBS);
        most = Math.max(most, start + one.most);
        stalled.push(one);
    }
    t.diagnostic(`${inMib(most)} more while ${CLIENTS} x ${MIBS} MiB went past who does not read`);
    assert.ok(most < UNRESTED, `${most} bytes more`);
    for (const one of [stalled[0], stalled[CLIENTS - 1]]) {
        one.reader.raw.resume();
        const rest = await within(read(one.reader), "the client to catch up", 60_000);
        assertEvents(rest.events, one.plan, 2);
        assert.ok(!rest.types.includes("gap"));
    }
});

test("in memory it is cut off, and told of its gap when it resumes", async (t) => {
    // A sanitizer takes about 30 MiB, however much goes past: 16 of what was freed, and what its
    // allocator needs. The server itself takes 3.
    const MIBS = 128;
    const gateway = await startGateway(t, { flags: ["--write-timeout", "500ms"] });
    const { plan, reader, most, unsent } = await stall(gateway, "behind", MIBS);
    t.diagnostic(`${inMib(most)} more while ${MIBS} MiB went past a client that does not read`);
    assert.ok(most < (MIBS / 2) * MIB, `${most} bytes more`);
    assert.ok(unsent > 0 && unsent < MIB, `${unsent} bytes unsent`);
    assert.equal(await gateway.metric("assist_sse_reader_cut_total"), 1);

    const requestId = reader.headers["x-correlation-id"];
    const story = await within(read(await gateway.get(requestId, { "Last-Event-ID": 1 })), "the rest");
    // More may be trimmed while it catches up; between two gaps there is no hole.
    let next = 2;
    let gaps = 0;
    for (const { id, event, data } of story.all) {
        if (event === "gap") {
            const gap = JSON.parse(data);
            assert.equal((gap.gap ?? gap).reason, "trimmed");
            gaps++;
            next = undefined;
        } else if (id !== undefined) {
            assert.equal(Number(id), (next ??= Number(id)));
            next++;
        }
    }
    assert.ok(gaps > 0, "nothing was trimmed");
    assert.equal(next, expected(plan).length + 1, "it ends with the last event");
});

test("many readers of many streams, each dropped at another place", async (t) => {
    const gateway = await startGateway(t, { disk: true });
    const plans = Array.from({ length: 10 }, (_, i) => ({ name: `m${i}`, tokens: 60, every: 4 }));
    const follow = async (plan) => {
        let reader = await gateway.post(plan);
        const requestId = reader.headers["x-correlation-id"];
        const events = [];
        const end = expected(plan).length;
        for (let step = 3; events.length < end; step += 4) {
            const count = Math.min(step, end - events.length);
            events.push(...(await read(reader, count, new Story())).events);
            reader.raw.destroy();
            const last = { "Last-Event-ID": events.length };
            reader =
                step % 8 === 3
                    ? await gateway.get(requestId, last)
                    : await gateway.resume(mint({ requestId }), last);
        }
        assertEvents(events, plan);
    };
    await within(Promise.all(plans.map(follow)), "all of them");
});
