// SPDX-License-Identifier: Apache-2.0
// examples/llm_proxy.c with a backend behind its server, killed -9 at random moments and started
// again until all its lines are through; the server is killed now and then, too. The transcript is
// complete and holds nothing twice, and the backend was asked about every line once.
// TIDEMARK_KILLS: how often the example is killed (20); lib-kill-hunt.mjs is the long version.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile, readdir, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { randomness } from "./lib/rand.mjs";
import { Running } from "./lib/run.mjs";
import { binary } from "./lib/server.mjs";
import { startSessionSite } from "./lib/session-server.mjs";
import { eventsOf, startUpstream } from "./lib/session-upstream.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { within } from "./lib/wait.mjs";

const KILLS = Number(process.env.TIDEMARK_KILLS ?? 20);
const SERVER_KILLS = Math.ceil(KILLS / 6);
const LINES = 60;
const PATIENCE_MS = 60_000 + KILLS * 4000;

const example = join(dirname(binary()), "examples", "llm_proxy");
const sizeOf = (file) => stat(file).then(({ size }) => size, () => 0);

/** A conversation: its lines are plans for the backend. */
async function startConversation(t, random, site, number) {
    const folder = await tempFolder(t);
    const [file, input] = [join(folder, "transcript"), join(folder, "lines")];
    const plans = Array.from({ length: LINES }, (_, n) => ({
        name: `${number}/${n}`,
        events: random.below(4),
        pause: random.below(12),
    }));
    await writeFile(input, plans.map((plan) => `${JSON.stringify(plan)}\n`).join(""));
    const state = join(folder, "state");
    return { plans, file, state, args: [site.base, state, file, input], lives: 0 };
}

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
    const running = new Running(t, example, talk.args);
    const over = once(running.child, "exit");
    talk.lives++;
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

/** Every line of the transcript: all events in order under the numbers 1, 2, .., and the end. */
async function assertTranscript({ plans, file, state }) {
    const text = await readFile(file, "utf8");
    assert.ok(text.endsWith("\n"));
    const rows = text.slice(0, -1).split("\n").map((line) => line.split("\t"));
    const [key] = rows[0];
    const events = plans.flatMap(eventsOf);
    const expected = events.map((event, i) => [key, String(i + 1), event]);
    assert.deepEqual(rows, [...expected, [key, "end", ""]]);
    const left = (await readdir(state)).filter((name) => name.endsWith(".json"));
    assert.deepEqual(left, [], "state of a session that is over");
    return key;
}

/**
 * What the backend was asked since: each line once, in order, all in one session. A key may come
 * again only if nobody has got its answer: it was broken off, or the server that got it was killed.
 */
function assertBackend(requests, key, { plans }) {
    const asked = [];
    for (const request of requests) {
        const last = asked.at(-1);
        if (last?.key !== request.key) {
            asked.push(request);
            continue;
        }
        assert.ok(
            !last.complete || last.life !== request.life,
            `${request.key} was asked again though it was answered`,
        );
        asked[asked.length - 1] = request;
    }
    assert.deepEqual(
        asked.map((request) => [request.key, request.text]),
        plans.map((plan, seqno) => [`${key}/${seqno}`, JSON.stringify(plan)]),
        "what the backend was asked",
    );
}

test(`${KILLS} kills of the example, ${SERVER_KILLS} of the server`, async (t) => {
    const random = randomness(t);
    let site;
    const upstream = await startUpstream(t, (plan, seen) => {
        seen.life = site.starts;
        return plan;
    });
    site = await startSessionSite(t, { session: { upstream: upstream.url } });
    const count = { kills: 0, servers: 0, resumed: 0 };
    for (let number = 0; count.kills < KILLS; number++) {
        const talk = await startConversation(t, random, site, number);
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
        count.resumed += talk.lives - 2;
        assert.ok(number < KILLS, "the example ends before it can be killed");
    }
    t.diagnostic(JSON.stringify({ ...count, requests: upstream.requests.length }));
    assert.ok(count.kills >= KILLS && count.servers > 0);
});
