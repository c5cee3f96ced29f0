// SPDX-License-Identifier: Apache-2.0
// A browser's EventSource on a generation: it reconnects by itself, with the number it saw last.
import assert from "node:assert/strict";
import { test } from "node:test";
import { EventSource } from "eventsource";
import { defer } from "./lib/defer.mjs";
import { assertEvents, expected, PATH, read, startGateway } from "./lib/gateway.mjs";
import { startProxy } from "./lib/proxy.mjs";
import { randomness } from "./lib/rand.mjs";
import { until } from "./lib/wait.mjs";

// EventSource waits 3 s before it reconnects unless told otherwise.
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

/** Follows a generation until it is complete and collects its events. */
function follow(t, url) {
    const source = new EventSource(url, { fetch: fetchWithQuickRetry });
    defer(t, () => source.close());
    const seen = [];
    for (const type of ["message", "token", "stage"])
        source.addEventListener(type, ({ lastEventId, data }) => {
            seen.push({ id: lastEventId, event: type, data });
            if (type === "stage") source.close();
        });
    return seen;
}

for (const disk of [false, true])
    test(`cut again and again, nothing is lost or doubled (${disk ? "disk" : "memory"})`, async (t) => {
        const CUTS = 15;
        const random = randomness(t);
        const gateway = await startGateway(t, { disk });
        const proxy = await startProxy(t, gateway.server, (n) =>
            n < CUTS ? { answerBytes: 200 + random.below(1200) } : null,
        );
        const plan = { name: "followed", tokens: 200, every: 2 };
        const first = await gateway.post(plan);
        await read(first, 1);
        const url = `${proxy.base}${PATH}/${first.headers["x-correlation-id"]}`;
        const readers = [follow(t, url), follow(t, url)];
        first.raw.destroy();
        const count = expected(plan).length;
        for (const seen of readers) {
            await until(() => seen.length >= count, "all events");
            assertEvents(seen, plan);
        }
        assert.ok(proxy.cuts > 0, "no connection was cut");
        assert.equal((await gateway.backend.seen()).length, 1);
    });

test("a generation that was killed with its server ends for an EventSource too", async (t) => {
    const gateway = await startGateway(t, { disk: true });
    const plan = { name: "orphan", tokens: 500, every: 3 };
    const first = await gateway.post(plan);
    await read(first, 1);
    const url = `${gateway.base}${PATH}/${first.headers["x-correlation-id"]}`;
    const seen = follow(t, url);
    const ends = [];
    const source = new EventSource(url, { fetch: fetchWithQuickRetry });
    defer(t, () => source.close());
    source.addEventListener("end", ({ data }) => {
        ends.push(JSON.parse(data));
        source.close();
    });
    await until(() => seen.length >= 20, "the first events");
    await gateway.restart("SIGKILL");
    await until(() => ends.length > 0, "the end");
    assert.equal(ends[0].reason, "orphaned");
    assert.ok(seen.length >= 20);
    assertEvents(seen, plan, 1, seen.length);
});
