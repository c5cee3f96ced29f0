// SPDX-License-Identifier: Apache-2.0
// SDKs with resumableFetch in front of broken connections: the same text, usage and status as
// without faults, and the backend is asked once. TIDEMARK_MATRIX=full runs every call under every
// fault; otherwise each call and each fault come once or twice.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startCleanEnds } from "./lib/clean-end.mjs";
import { installClient } from "./lib/clients-js.mjs";
import { startFaults } from "./lib/faults.mjs";
import { startGateway } from "./lib/gateway.mjs";
import { startSdkBackend, WORDS } from "./lib/sdk-backend.mjs";
import { CALLS } from "./lib/sdk-calls.mjs";
import { freePort } from "./lib/server.mjs";
import { until, within } from "./lib/wait.mjs";

const { tidemark } = await installClient();
const isFull = process.env.TIDEMARK_MATRIX === "full";

const answerFault = (kind, at) => [{ kind, side: "answer", at }];

/**
 * Each makes the way to a gateway: { base, fetch }, and check(), which says whether what was to
 * happen has happened. fetch sends the requests of resumableFetch.
 */
const FAULTS = {
    async "no cut"(t, { base }) {
        return { base, fetch, check() {} };
    },

    async "4 resets"(t, { server }) {
        const faults = (n) => (n < 4 ? answerFault("reset", 800 + 100 * n) : []);
        const proxy = await startFaults(t, server.where, faults);
        return { base: proxy.base, fetch, check: () => assert.equal(proxy.counts.reset, 4) };
    },

    async "3 FINs"(t, { server }) {
        const faults = (n) => (n < 3 ? answerFault("truncate", 800 + 150 * n) : []);
        const proxy = await startFaults(t, server.where, faults);
        return { base: proxy.base, fetch, check: () => assert.equal(proxy.counts.truncate, 3) };
    },

    async "refused + lost + cut"(t, { server }) {
        const port = await freePort();
        const base = `http://127.0.0.1:${port}`;
        const faults = (n) => [answerFault("cut", 0), answerFault("reset", 1200)][n] ?? [];
        let proxy;
        const refused = async (url, init) => {
            const listens = proxy !== undefined; // nobody does before the first attempt
            proxy ??= await startFaults(t, server.where, faults);
            return fetch(listens ? url.replace(base, proxy.base) : url, init);
        };
        const check = () => assert.deepEqual([proxy.counts.cut, proxy.counts.reset], [1, 1]);
        return { base, fetch: refused, check };
    },

    async "clean EOF"(t, { server }) {
        const proxy = await startCleanEnds(t, server.where, (n) => [12, 20][n] ?? Infinity);
        return { base: proxy.base, fetch, check: () => assert.equal(proxy.ends, 2) };
    },

    // When the answer is whole in the store, and its reader in the middle.
    async "kill -9"(t, gateway, backend) {
        const faults = (n) => (n === 0 ? answerFault("reset", 1200) : []);
        const proxy = await startFaults(t, gateway.server.where, faults);
        let requests = 0;
        const killing = async (...request) => {
            if (++requests === 2) {
                await until(() => backend.answered > 0, "the backend to be done");
                await gateway.idle();
                await gateway.restart("SIGKILL");
            }
            return fetch(...request);
        };
        const check = () => assert.ok(requests >= 2, "it was killed");
        return { base: proxy.base, fetch: killing, check };
    },
};

/** One cell. wrap() makes the fetch that the SDK is given out of the one that sends. */
async function run(t, { path, dialect = "openai", run: call }, makeFault, wrap) {
    const backend = await startSdkBackend(t);
    const routes = { [path]: { dialect, upstream: `${backend.base}${path}` } };
    const gateway = await startGateway(t, { routes, disk: makeFault === FAULTS["kill -9"] });
    const expected = await call(backend.base, fetch);
    assert.equal(expected.text, WORDS.join(""));
    Object.assign(backend, { asked: 0, answered: 0 });
    const { base, fetch: way, check } = await makeFault(t, gateway, backend);
    const got = await within(call(base, wrap(way)), "the answer");
    check();
    assert.deepEqual(got, expected);
    assert.equal(backend.asked, 1, "requests that the backend saw");
}

const resumable = (way) => tidemark.resumableFetch({ fetch: way });

const calls = Object.keys(CALLS);
const faults = Object.keys(FAULTS);
const isWanted = (call, fault) => isFull || (calls.indexOf(call) - faults.indexOf(fault)) % 5 === 0;

function print(outcomes) {
    const width = Math.max(...calls.map((name) => name.length));
    const row = (name, cells) => `${name.padEnd(width)} | ${cells.join(" | ")} |`;
    console.log(row("", faults));
    for (const call of calls) {
        const cells = faults.map((fault) =>
            (outcomes.get(`${call}: ${fault}`) ?? "").padEnd(fault.length),
        );
        console.log(row(call, cells));
    }
}

test("SDKs and faults", async (t) => {
    const outcomes = new Map();
    for (const fault of faults)
        for (const call of calls.filter((name) => isWanted(name, fault)))
            await t.test(`${call}: ${fault}`, async (sub) => {
                outcomes.set(`${call}: ${fault}`, "FAILED");
                await run(sub, CALLS[call], FAULTS[fault], resumable);
                outcomes.set(`${call}: ${fault}`, "same");
            });
    print(outcomes);
});

// Otherwise the table would prove nothing.
for (const fault of faults.filter((name) => name !== "no cut"))
    test(`without resumableFetch, ${fault} is felt`, async (t) => {
        const call = CALLS["openai chat create"];
        await assert.rejects(run(t, call, FAULTS[fault], (way) => way));
    });
