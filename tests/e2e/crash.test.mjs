// SPDX-License-Identifier: Apache-2.0
// The server is killed again and again while clients write. What it acknowledged is there: once,
// in order, and for good. TIDEMARK_KILLS=n kills more often; kill-hunt.mjs is the long version.
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { Ballast, Deleter, Plain, Producer, Teller } from "./lib/load.mjs";
import { randomness } from "./lib/rand.mjs";
import { startSite } from "./lib/site.mjs";
import { until, within } from "./lib/wait.mjs";

const KILLS = Number(process.env.TIDEMARK_KILLS ?? 10);

/** A generator of its own for each party, so that none disturbs the choices of the others. */
function split(random) {
    const numbers = Array.from({ length: 4096 }, () => random.below(2 ** 30));
    let at = random.below(numbers.length);
    return { below: (n) => numbers[at++ % numbers.length] % n };
}

async function hireWriters(site, random) {
    for (const name of ["shared", "json"]) await Producer.create(site, name, true);
    for (const name of ["lines", "text"]) await Producer.create(site, name, false);
    await site.server.create("plain/0");
    await site.server.create("plain/1");
    return [
        new Producer(site, split(random), { name: "shared", id: "a", json: true }),
        new Producer(site, split(random), { name: "shared", id: "b", json: true }),
        new Producer(site, split(random), { name: "json", id: "c", json: true, restarting: true }),
        new Producer(site, split(random), { name: "lines", id: "d", json: false }),
        new Producer(site, split(random), { name: "lines", id: "e", json: false }),
        new Producer(site, split(random), { name: "text", id: "f", json: false, restarting: true }),
        new Plain(site, split(random), "plain/0"),
        new Plain(site, split(random), "plain/1"),
        new Deleter(site, split(random), "churn"),
        new Teller(site, split(random), "tale"),
    ];
}

async function hirePorters(site, random) {
    await site.server.create("ballast", "application/octet-stream");
    return [new Ballast(site, split(random), "ballast"), ...(await hireWriters(site, random))];
}

/** A random point of its work, or (one in five) of its time. */
async function anyMoment(site, random) {
    const enough = site.answers + random.below(120);
    if (random.below(5) > 0) await until(() => site.answers >= enough, "some answers");
    await delay(random.below(40));
}

/** While it brings events from the journal to rest, or right after. */
async function restingMoment(site, random) {
    const segments = async () => (await readdir(join(site.data, "segments"))).join();
    const before = await segments();
    await until(async () => (await segments()) !== before, "a new segment");
    await delay(random.below(200));
}

async function killAndStart(site, random) {
    await site.kill();
    // Now and then the next one does not live to see its first connection.
    while (random.below(4) === 0) {
        await site.spawn();
        await delay(random.below(60));
        await site.kill();
    }
    await site.start();
}

/** Kills the server at such moments of its work for the writers; then everything is looked at. */
async function crashes(t, kills, { flags = [], hire = hireWriters, moment = anyMoment } = {}) {
    const random = randomness(t);
    const site = await startSite(t, flags);
    const writers = await hire(site, random);
    let going = true;
    const work = Promise.all(writers.map((writer) => writer.run(() => going)));
    const killing = async () => {
        for (let n = 0; n < kills; n++) {
            await moment(site, random);
            await killAndStart(site, random);
            for (const writer of writers) await writer.audit(site.server);
        }
    };
    try {
        await Promise.race([killing(), work.then(() => assert.fail("the writers ended early"))]);
    } finally {
        going = false;
    }
    await within(work, "the writers to get their last answers");
    for (const writer of writers) t.diagnostic(writer.summary());
    t.diagnostic(`${site.starts} starts`);

    for (const signal of ["SIGKILL", "SIGTERM"]) {
        await site.restart(signal);
        for (const writer of writers) await writer.check(site.server);
    }
    const repeats = writers.reduce((sum, { repeats = 0 }) => sum + repeats, 0);
    assert.ok(repeats > 0, "no kill met a producer's request");
}

test(`killed ${KILLS} times under load, it keeps what it acknowledged`, (t) => crashes(t, KILLS));

// A killed process takes nothing along that it had handed to the system.
const FEW = Math.ceil(KILLS / 4);
test(`the same without syncs, killed ${FEW} times`, (t) =>
    crashes(t, FEW, { flags: ["--sync", "never"] }));

const FEWER = Math.ceil(KILLS / 10);
test(`the same while much comes to rest, killed ${FEWER} times`, (t) =>
    crashes(t, FEWER, { hire: hirePorters, moment: restingMoment }));
