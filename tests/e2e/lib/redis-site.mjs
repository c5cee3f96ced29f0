// SPDX-License-Identifier: Apache-2.0
// Servers that share one Redis, and writers that live through what happens to it.
import assert from "node:assert/strict";
import { Deleter, Plain, Producer, Teller } from "./load.mjs";
import { randomness } from "./rand.mjs";
import { freePort, spawnServer } from "./server.mjs";
import { Site } from "./site.mjs";
import { tempFolder } from "./temp.mjs";
import { until, within } from "./wait.mjs";

class RedisSite extends Site {
    #spawn;

    constructor(t, folder, port, flags) {
        super(t, folder, port, flags);
        this.#spawn = () => spawnServer(t, flags, { port });
    }

    async spawn() {
        this.server = await this.#spawn();
        this.starts++;
    }
}

/** So many servers over the Redis at this URL, started. */
export async function startSites(t, url, n = 2, flags = []) {
    const sites = [];
    for (let i = 0; i < n; i++) {
        const all = ["--store", url, ...flags];
        const site = new RedisSite(t, await tempFolder(t), await freePort(), all);
        await site.start();
        sites.push(site);
    }
    return sites;
}

/** A generator of its own for each party, so that none disturbs the choices of the others. */
function split(random) {
    const numbers = Array.from({ length: 4096 }, () => random.below(2 ** 30));
    let at = random.below(numbers.length);
    return { below: (n) => numbers[at++ % numbers.length] % n };
}

/** Writers of every kind, on these two sites; some share a stream across them. */
export async function hire(t, [one, two]) {
    const random = randomness(t);
    for (const name of ["shared", "json"]) await Producer.create(one, name, true);
    await Producer.create(two, "lines", false);
    await one.server.create("plain/0");
    await two.server.create("plain/1");
    const json = true;
    return [
        new Producer(one, split(random), { name: "shared", id: "a", json }),
        new Producer(two, split(random), { name: "shared", id: "b", json }),
        new Producer(two, split(random), { name: "json", id: "c", json, restarting: true }),
        new Producer(one, split(random), { name: "lines", id: "d", json: false }),
        new Producer(two, split(random), { name: "lines", id: "e", json: false }),
        new Plain(one, split(random), "plain/0"),
        new Plain(two, split(random), "plain/1"),
        new Deleter(one, split(random), "churn"),
        new Teller(two, split(random), "tale"),
    ];
}

/** Those who number what they send, so that a write whose fate is unknown may come late. */
export async function hireProducers(t, [one, two]) {
    const random = randomness(t);
    await Producer.create(one, "shared", true);
    await Producer.create(two, "lines", false);
    return [
        new Producer(one, split(random), { name: "shared", id: "a", json: true }),
        new Producer(two, split(random), { name: "shared", id: "b", json: true }),
        new Producer(two, split(random), { name: "lines", id: "c", json: false }),
    ];
}

/** Lets them write while trouble() lasts, and then looks at everything from both sides. */
export async function writeThrough(t, sites, writers, trouble) {
    let going = true;
    const work = Promise.all(writers.map((writer) => writer.run(() => going)));
    try {
        await Promise.race([trouble(), work.then(() => assert.fail("the writers ended early"))]);
    } finally {
        going = false;
    }
    await within(work, "the writers to get their last answers", 40_000);
    for (const writer of writers) t.diagnostic(writer.summary());
    for (const { server } of sites) for (const writer of writers) await writer.check(server);
}

/** Waits until each site has answered so many times more. */
export async function some(sites, n) {
    const goal = sites.map(({ answers }) => answers + n);
    await until(() => sites.every(({ answers }, i) => answers >= goal[i]), "some answers", 60_000);
}
