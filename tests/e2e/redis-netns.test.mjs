// SPDX-License-Identifier: Apache-2.0
// Redis in a network of its own that is cut off under load: packets go nowhere, and nobody is told.
// Needs root, and is skipped where there are no network namespaces. TIDEMARK_REDIS_STALL_MS=n makes
// it longer.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { defer } from "./lib/defer.mjs";
import { hireProducers, some, startSites, writeThrough } from "./lib/redis-site.mjs";
import { startRedis } from "./lib/redis.mjs";

const STALL_MS = Number(process.env.TIDEMARK_REDIS_STALL_MS ?? 3_000);
const run = promisify(execFile);
const ip = (line) => run("ip", line.split(" "));

/** A namespace at the other end of a cable; null: there are none here. */
async function startNetwork(t) {
    const name = `tidemark-${process.pid}`;
    const cable = `tm${process.pid}`;
    const [third, fourth] = [(process.pid >> 6) & 255, (process.pid & 63) * 4]; // nets of four
    const [near, host] = [1, 2].map((n) => `10.213.${third}.${fourth + n}`);
    try {
        await ip(`netns add ${name}`);
        defer(t, () => ip(`netns del ${name}`)); // and the cable with it
        await ip(`link add ${cable}a type veth peer name ${cable}b netns ${name}`);
        await ip(`addr add ${near}/30 dev ${cable}a`);
        await ip(`link set ${cable}a up`);
        await ip(`-n ${name} addr add ${host}/30 dev ${cable}b`);
        await ip(`-n ${name} link set ${cable}b up`);
    } catch (error) {
        t.skip(`network namespaces are not to be had: ${error.message.trim()}`);
        return null;
    }
    // Pulled out at the far end: what is sent from here is still sent, and lost.
    const plug = (state) => ip(`-n ${name} link set ${cable}b ${state}`);
    return { place: { host, inside: ["ip", "netns", "exec", name] }, plug };
}

test(`the network between is cut for ${STALL_MS} ms`, async (t) => {
    const network = await startNetwork(t);
    if (network === null) return;
    const redis = await startRedis(t, {
        appendfsync: "always",
        place: network.place,
        flags: ["--protected-mode", "no"],
    });
    const sites = await startSites(t, redis.url);
    const writers = await hireProducers(t, sites);
    await writeThrough(t, sites, writers, async () => {
        await some(sites, 50);
        await network.plug("down");
        await delay(STALL_MS / 2);
        const before = sites.map(({ answers }) => answers);
        await delay(STALL_MS / 2);
        assert.deepEqual(
            sites.map(({ answers }) => answers),
            before,
            "nothing is acknowledged without Redis",
        );
        await network.plug("up");
        const mended = Date.now();
        await some(sites, 1);
        t.diagnostic(`answers again after ${Date.now() - mended} ms`);
        await some(sites, 50);
    });
});
