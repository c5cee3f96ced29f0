// SPDX-License-Identifier: Apache-2.0
// Cuts the power of a machine on which a server works, again and again, while clients write. What
// the server acknowledged is there: once, in order, and for good. Started by `run`, in namespaces
// of its own: what it starts and mounts goes when this process does, however that comes about.
//
//   powercut.mjs FOLDER hunt       CUTS times; ends with 1 if anything was lost
//   powercut.mjs FOLDER unsynced   the same with a server that does not sync
//   powercut.mjs FOLDER unflushed  ... and with a file system that does not flush its disk: these
//                                  must lose something, or else nothing is proven by the first
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Ballast, Deleter, Plain, Producer, Teller } from "../e2e/lib/load.mjs";
import { randomness } from "../e2e/lib/rand.mjs";
import { assertNoReport, freePort } from "../e2e/lib/server.mjs";
import { Site } from "../e2e/lib/site.mjs";
import { until, within } from "../e2e/lib/wait.mjs";
import { Machine } from "./machine.mjs";

const CUTS = Number(process.env.CUTS ?? 100);
const CONVICT_CUTS = 5; // one should be enough
const LIGHT_CUTS = 10; // then a new disk
const HEAVY_CUTS = 2; // the same where much is written, as disks are small
const PATIENCE_MS = 60_000;
const LINGER_MS = 100; // how long a server may live to see that its disk is gone

// The parts of tests/e2e/lib clean up when a test ends; here that is left to the kernel.
const t = { after() {}, diagnostic: (text) => console.log(text) };

/** What was acknowledged before a cut is not there behind it, or not as it was. */
class Loss extends Error {}

/** A generator of its own for each party, so that none disturbs the choices of the others. */
function split(random) {
    const numbers = Array.from({ length: 4096 }, () => random.below(2 ** 32));
    let at = 0;
    return { below: (n) => numbers[at++ % numbers.length] % n };
}

const list = (counts) =>
    Object.entries(counts)
        .map(([name, count]) => `${count} ${name}`)
        .join(", ");

class Hunt {
    cuts = 0;
    starting = 0; // of those, the ones that met a server which was starting
    writes = { pending: 0, kept: 0, torn: 0, dropped: 0 };
    done = { events: 0, repeats: 0, duplicates: 0, closes: 0, deletes: 0, mebibytes: 0 };

    constructor(machine, random, flags) {
        Object.assign(this, { machine, random, flags });
    }

    /** A new disk, and clients that write to the server on it for so many cuts at least. */
    async run(cuts, heavy) {
        const { machine, random, flags } = this;
        await machine.format();
        await machine.powerOn();
        const site = new Site(t, machine.root, await freePort(), flags);
        await site.start();
        const writers = await hire(site, random, heavy);
        for (const end = this.cuts + cuts; this.cuts < end;)
            await this.#life(site, writers, heavy ? restingMoment : anyMoment);
        await site.stop();
        await machine.powerOff();
        for (const writer of writers) this.#count(writer);
    }

    /** Work, the cut, and everything looked at behind it. */
    async #life(site, writers, moment) {
        let going = true;
        const work = Promise.all(writers.map((writer) => writer.run(() => going)));
        const early = work.then(() => assert.fail("the writers ended early"));
        await Promise.race([moment(site, this.random), early]);
        this.machine.cutPower(this.random, this.random.below(12)); // 0: most likely between batches
        await Promise.race([this.#darkness("at work"), early]);
        going = false;
        early.catch(() => {}); // from here on they may
        await delay(this.random.below(LINGER_MS));
        await endServer(site, this.random.below(3) > 0 ? "SIGKILL" : "SIGTERM");
        await this.machine.powerOff();
        await this.#turnOn(site);
        await within(audit(site, writers, work), "the last answers and the audit", PATIENCE_MS);
    }

    /** Waits for the cut that was ordered. */
    async #darkness(when) {
        const { policy, writes } = await within(this.machine.report, "the cut");
        for (const key of Object.keys(writes)) this.writes[key] += writes[key];
        console.log(`cut ${++this.cuts}, ${when}, ${policy}: ${list(writes)}`);
    }

    /** Brings the machine back; one time in four, the power does not last. */
    async #turnOn(site) {
        const { machine, random } = this;
        await machine.powerOn();
        while (random.below(4) === 0) {
            machine.cutPower(random, 2 ** random.below(10));
            await site.spawn();
            const cut = () => machine.cutPower(random, 0); // that order was too patient
            const started = site.server.ready().then(cut, cut);
            await this.#darkness("starting");
            this.starting++;
            await endServer(site, "SIGKILL");
            await started;
            await machine.powerOff();
            await machine.powerOn();
        }
        await site.start();
    }

    #count(writer) {
        const { done } = this;
        if (writer instanceof Producer) {
            done.events += writer.acked;
            done.repeats += writer.repeats;
            done.duplicates += writer.duplicates;
        }
        if (writer instanceof Plain)
            done.events += writer.acked.reduce((sum, { values }) => sum + values.length, 0);
        if (writer instanceof Teller) {
            done.events += writer.told.reduce((sum, { values }) => sum + values.length, 0);
            done.closes += writer.told.length;
        }
        if (writer instanceof Deleter)
            for (const { old } of writer.names.values()) done.deletes += old.length;
        if (writer instanceof Ballast) done.mebibytes += writer.sent;
    }

    summary() {
        return [
            `${this.cuts} cuts, ${this.starting} of them at a start`,
            `writes that had not been flushed: ${list(this.writes)}`,
            `acknowledged: ${list(this.done)}; all there, once and in order`,
        ].join("\n");
    }
}

/**
 * Ends it before its machine, by SIGTERM or SIGKILL. That its disk is gone it has to tell by its
 * exit code, unless it ends at once: also since a page of a mapped file cannot be read any more.
 */
async function endServer(site, signal) {
    const { server } = site;
    site.up = false;
    server.signal(signal);
    const end = await within(server.ended, "the server to end without its disk");
    await server.stop().catch(() => {}); // its connections
    assertNoReport(server.stderr);
    const graceful = end.code === 1 || ["SIGKILL", "SIGBUS"].includes(end.signal);
    assert.ok(graceful, `the server ended with ${end.code ?? end.signal}:\n${server.stderr}`);
}

/** When every writer has its last answer, what is there is compared with what they were told. */
async function audit(site, writers, work) {
    const { server } = site;
    try {
        await work;
        for (const writer of writers) await writer.check(server);
    } catch (error) {
        assert.ok(server.running, `the server ended: ${server.stderr}`);
        throw new Loss(`${error.message}\n${server.stderr}`, { cause: error });
    }
}

async function hire(site, random, heavy) {
    for (const name of ["shared", "json"]) await Producer.create(site, name, true);
    await Producer.create(site, "lines", false);
    await site.server.create("plain");
    const writers = [
        new Producer(site, split(random), { name: "shared", id: "a", json: true }),
        new Producer(site, split(random), { name: "shared", id: "b", json: true }),
        new Producer(site, split(random), { name: "json", id: "c", json: true, restarting: true }),
        new Producer(site, split(random), { name: "lines", id: "d", json: false }),
        new Plain(site, split(random), "plain"),
        new Deleter(site, split(random), "churn"),
        new Teller(site, split(random), "tale"),
    ];
    if (heavy) {
        await site.server.create("ballast", "application/octet-stream");
        writers.push(new Ballast(site, split(random), "ballast"));
    }
    return writers;
}

/** A random point of the server's work. */
async function anyMoment(site, random) {
    const enough = site.answers + random.below(200);
    await until(() => site.answers >= enough, "some answers");
    await delay(random.below(20));
}

/** While it brings events from the journal to rest, or right after. */
async function restingMoment(site, random) {
    const segments = async () => (await readdir(join(site.data, "segments"))).join();
    const before = await segments();
    await until(async () => (await segments()) !== before, "a new segment", PATIENCE_MS);
    await delay(random.below(200));
}

async function hunt(machine, random, flags) {
    const hunting = new Hunt(machine, random, flags);
    const begin = Date.now();
    for (let disks = 1; hunting.cuts < CUTS; disks++) {
        const heavy = disks % 3 === 0;
        await hunting.run(Math.min(heavy ? HEAVY_CUTS : LIGHT_CUTS, CUTS - hunting.cuts), heavy);
    }
    console.log(hunting.summary());
    console.log(`${((Date.now() - begin) / 1000).toFixed(1)} s`);
}

async function convict(machine, random, flags) {
    try {
        await new Hunt(machine, random, flags).run(CONVICT_CUTS, false);
    } catch (error) {
        if (!(error instanceof Loss)) throw error;
        const why = error.cause.message.replace(/\s+/g, " ").slice(0, 160);
        console.log(`lost, as it should be: ${why}`);
        return;
    }
    assert.fail("nothing seems to have been lost");
}

const modes = {
    hunt: { run: hunt },
    unsynced: { run: convict, flags: ["--sync", "never"] },
    // Without flushes, what was there before is all that ext4 can be expected to come back from.
    unflushed: { run: convict, machine: { mount: ["barrier=0"], policies: ["drop"] } },
};

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(130));
const [folder, mode] = process.argv.slice(2);
const { run, flags = [], machine: options } = modes[mode];
const machine = new Machine(folder, options);
try {
    await run(machine, randomness(t), flags);
    process.exit(0);
} catch (error) {
    console.error(error);
    const evidence = `${folder}.img`;
    await machine.keepEvidence(evidence);
    console.error(`the disk as the last server found it: ${evidence}`);
    process.exit(1);
}
