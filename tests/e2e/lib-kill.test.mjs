// SPDX-License-Identifier: Apache-2.0
// examples/llm_proxy.c with a backend behind its server, killed -9 at random moments and started
// again until all its lines are through; the server is killed now and then, too. The transcript is
// complete and holds nothing twice, and the backend was asked about every line once.
// TIDEMARK_KILLS: how often the example is killed (20); lib-kill-hunt.mjs is the long version.
import assert from "node:assert/strict";
import { once } from "node:events";
import { stat } from "node:fs/promises";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { assertBackend, assertTranscript, example, plan } from "./lib/llm-proxy.mjs";
import { randomness } from "./lib/rand.mjs";
import { Running } from "./lib/run.mjs";
import { startSessionSite } from "./lib/session-server.mjs";
import { startUpstream } from "./lib/session-upstream.mjs";
import { within } from "./lib/wait.mjs";

const KILLS = Number(process.env.TIDEMARK_KILLS ?? 20);
const SERVER_KILLS = Math.ceil(KILLS / 6);
const LINES = 60;
const PATIENCE_MS = 60_000 + KILLS * 4000;

const sizeOf = (file) => stat(file).then(({ size }) => size, () => 0);

const runs = ({ child }) => child.exitCode === null && child.signalCode === null;

/** A moment to die: some time after the start, or after the transcript has grown. */
async function moment(random, { file }, running) {
    if (random.below(3) === 0) return delay(random.below(150));
    const size = await sizeOf(file);
    const deadline = Date.now() + 3000; // maybe the server is down
    while (runs(running) && Date.now() < deadline && (await sizeOf(file)) === size) await delay(2);
    return delay(random.below(60));
}

/** One life of the example. Returns whether it was killed. */
async function live(t, random, talk, kill) {
    const running = new Running(t, example("llm_proxy"), talk.args);
    const over = once(running.child, "exit");
    if (kill) await Promise.race([over, moment(random, talk, running)]);
    else await within(over, "the example to end", PATIENCE_MS);
    if (runs(running)) {
        running.child.kill("SIGKILL");
        await running.ended;
        return true;
    }
    const { code, signal, stderr } = await running.end();
    assert.deepEqual([code, signal], [0, null], stderr);
    return false;
}

test(`${KILLS} kills of the example, ${SERVER_KILLS} of the server`, async (t) => {
    const random = randomness(t);
    let site;
    const upstream = await startUpstream(t, (wanted, seen) => {
        seen.life = site.starts;
        return wanted;
    });
    site = await startSessionSite(t, { session: { upstream: upstream.url } });
    const count = { kills: 0, servers: 0 };
    for (let number = 0; count.kills < KILLS; number++) {
        const talk = await plan(t, random, site.base, number, LINES);
        const first = upstream.requests.length;
        let restarting = Promise.resolve();
        const due = () => count.servers < (count.kills * SERVER_KILLS) / KILLS;
        while (await live(t, random, talk, count.kills < KILLS)) {
            count.kills++;
            await restarting;
            if (!due()) continue;
            count.servers++; // while the example starts, or talks
            restarting = delay(random.below(300)).then(() => site.restart("SIGKILL"));
        }
        await restarting;
        assertBackend(upstream.requests.slice(first), await assertTranscript(talk), talk);
        // Started again when all is done, it knows.
        const asked = upstream.requests.length;
        assert.equal(await live(t, random, talk, false), false);
        assert.equal(upstream.requests.length, asked);
        await assertTranscript(talk);
        assert.ok(number < KILLS, "the example ends before it can be killed");
    }
    t.diagnostic(JSON.stringify({ ...count, requests: upstream.requests.length }));
    assert.ok(count.kills >= KILLS && count.servers > 0);
});
