// SPDX-License-Identifier: Apache-2.0
// The fetch of Node.js below it, over connections that break.
import assert from "node:assert/strict";
import { test } from "node:test";
import { resumableFetch } from "tidemark";
import { FORMS, Gateway, TEXTS } from "./lib/gateway.mjs";
import { listen } from "./lib/wire.mjs";

const ASK = { method: "POST", body: "{}", headers: { "Content-Type": "application/json" } };
const ask = resumableFetch({ longestWaitMs: 20 });

async function start(t, gateway, port) {
    const server = await listen(gateway, port);
    t.after(() => server.close());
    return server;
}

async function assertWhole(gateway, base, what) {
    const response = await ask(`${base}/v1/responses`, ASK);
    assert.equal(await response.text(), gateway.whole, what);
    assert.equal(gateway.asked, 1, what);
}

for (const form of Object.keys(FORMS))
    for (const how of ["reset", "fin", "clean"])
        test(`${form}: ${how}, again and again`, async (t) => {
            for (const size of [1, 57, 111, 200, 301]) {
                const fault = (n) => (n < 6 ? { at: size * (n + 1), how } : undefined);
                const gateway = new Gateway(form, TEXTS, fault);
                const { base } = await start(t, gateway);
                await assertWhole(gateway, base, `${size} bytes`);
            }
        });

test("answers that are lost before they begin", async (t) => {
    const gateway = new Gateway("full", TEXTS, (n) =>
        n < 2 ? { lose: true } : n < 4 ? { at: 99, how: "reset" } : undefined,
    );
    const { base } = await start(t, gateway);
    await assertWhole(gateway, base);
});

test("a server that is not there yet", async (t) => {
    const gateway = new Gateway("full", TEXTS);
    const { port, base, close } = await listen(gateway);
    await close();
    let attempts = 0;
    const fetch = async (...request) => {
        if (++attempts === 3) await start(t, gateway, port);
        return globalThis.fetch(...request);
    };
    const response = await resumableFetch({ fetch, longestWaitMs: 20 })(`${base}/a`, ASK);
    assert.equal(await response.text(), gateway.whole);
    assert.equal(attempts, 3);
});

test("a server that goes away in the middle and comes back", async (t) => {
    const many = Array.from({ length: 200 }, (_, n) => `word-${n}`);
    const gateway = new Gateway("full", many, (n) =>
        n === 0 ? { at: 3000, how: "fin" } : undefined,
    );
    const first = await listen(gateway);
    let attempts = 0;
    const fetch = async (...request) => {
        attempts++;
        if (attempts === 2) await first.close();
        if (attempts === 4) await start(t, gateway, first.port);
        return globalThis.fetch(...request);
    };
    const response = await resumableFetch({ fetch, longestWaitMs: 20 })(`${first.base}/a`, ASK);
    assert.equal(await response.text(), gateway.whole);
    assert.equal(gateway.asked, 1);
});
