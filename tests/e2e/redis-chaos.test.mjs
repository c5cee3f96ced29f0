// SPDX-License-Identifier: Apache-2.0
// Clients that are cut again and again and come back to the other one of two servers, while servers
// or their Redis are killed. TIDEMARK_REDIS_CUTS=n cuts more often.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { startBackend } from "./lib/backend.mjs";
import { assertEvents, expected, read, startGateway, Story } from "./lib/gateway.mjs";
import { randomness } from "./lib/rand.mjs";
import { startSites } from "./lib/redis-site.mjs";
import { startRedis } from "./lib/redis.mjs";
import { killsOf, sessionChaos } from "./lib/session-chaos.mjs";
import { configure } from "./lib/session-server.mjs";
import { within } from "./lib/wait.mjs";

const CUTS = Number(process.env.TIDEMARK_REDIS_CUTS ?? 15);
const GENERATIONS = 20;
const ANSWER_MS = 10_000; // Redis may be away for a moment

test(`${CUTS} cuts of each session, ${killsOf(CUTS)} kills of one of two servers`, async (t) => {
    const redis = await startRedis(t);
    const start = async (upstream) => {
        const flags = await configure(t, { session: { upstream } });
        return startSites(t, redis.url, 2, flags);
    };
    // What one server still hears of the past takes the session away from the other.
    await sessionChaos(t, CUTS, start, { rare: 1 / 3 });
});

/** Follows an answer in pieces, each through the other server; counts how often it went over. */
async function wander(gateways, random, plan) {
    const end = expected(plan).length;
    const first = random.below(2);
    let reader = await gateways[first].post(plan, { "Idempotency-Key": plan.name });
    const id = reader.headers["x-correlation-id"];
    const events = [];
    let token;
    let moves = 0;
    for (;;) {
        const story = new Story();
        const count = Math.min(1 + random.below(end / 4), end - events.length);
        await within(read(reader, count, story), `more of ${plan.name}`, ANSWER_MS);
        events.push(...story.events);
        token ??= story.token;
        reader.raw.destroy();
        if (events.length === end) break;
        const gateway = gateways[(first + ++moves) % gateways.length];
        const last = { "Last-Event-ID": String(events.length) };
        reader = await (random.below(2) ? gateway.get(id, last) : gateway.resume(token, last));
        for (let n = 0; reader.status === 503 && n < 100; n++) {
            await delay(100);
            reader = await gateway.get(id, last);
        }
    }
    assertEvents(events, plan);
    return moves;
}

test("answers are followed through both servers while Redis is killed and cut off", async (t) => {
    const random = randomness(t);
    const redis = await startRedis(t, { appendfsync: "always" });
    const backend = await startBackend(t);
    const gateways = [];
    for (let i = 0; i < 2; i++)
        gateways.push(await startGateway(t, { backend, flags: ["--store", redis.url] }));
    const plans = Array.from({ length: GENERATIONS }, (_, i) => ({
        name: `g${i}`,
        tokens: 60,
        every: 40 + random.below(40),
    }));
    const work = plans.map((plan) => wander(gateways, random, plan));
    const all = Promise.all(work);
    const trouble = (async () => {
        for (let n = 0; n < 4; n++) {
            await delay(300 + random.below(300));
            if (n % 2 === 0) {
                await redis.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
            } else {
                await redis.kill();
                await redis.start();
            }
        }
    })();
    const moves = await within(all, "all answers", 60_000);
    await trouble;
    const seen = await backend.seen();
    assert.deepEqual(
        seen.map(({ body }) => JSON.parse(body).plan.name).sort(),
        plans.map(({ name }) => name).sort(),
        "each was asked for once",
    );
    t.diagnostic(`${moves.reduce((sum, n) => sum + n, 0)} moves of ${GENERATIONS} readers`);
});
