// SPDX-License-Identifier: Apache-2.0
// An answer that is cut at every byte, in every way, is the same answer.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { resumableFetch } from "tidemark";
import { FORMS, Gateway, ORIGIN, TEXTS } from "./lib/gateway.mjs";

const URL = `${ORIGIN}/v1/chat/completions`;
const ASK = {
    method: "POST",
    body: '{"stream":true}',
    headers: { "Content-Type": "application/json" },
};

/** Asks once: the body as text. */
async function ask({ fetch }) {
    const response = await resumableFetch({ fetch, longestWaitMs: 1 })(URL, ASK);
    return response.text();
}

async function assertWhole(gateway, what) {
    assert.equal(await ask(gateway), gateway.whole, what);
    assert.equal(gateway.asked, 1, what);
}

for (const form of Object.keys(FORMS))
    test(`${form}: cut at every byte`, async () => {
        const { length } = new Gateway(form, TEXTS).bytes(randomUUID());
        const positions = Array.from({ length: length + 1 }, (_, at) => at);
        const checks = ["cut", "clean"].flatMap((how) =>
            positions.map((at) => {
                const gateway = new Gateway(form, TEXTS, (n) =>
                    n === 0 ? { at, how } : undefined,
                );
                return assertWhole(gateway, `${how} at ${at}`);
            }),
        );
        await Promise.all(checks);
    });

/** A number for each step of a test that a seed repeats. */
function* random(seed) {
    for (let x = seed; ;) yield (x = (x * 1103515245 + 12345) % 2147483648) / 2147483648;
}

for (const form of Object.keys(FORMS))
    test(`${form}: cut again and again, lost, refused and busy in between`, async () => {
        const checks = Array.from({ length: 40 }, (_, seed) => {
            const numbers = random(seed + 1);
            const next = (n) => Math.floor(numbers.next().value * n);
            const faults = [
                () => ({ at: next(400), how: "cut" }),
                () => ({ at: next(400), how: "clean" }),
                () => ({ lose: true }),
                () => ({ refuse: true }),
                (n) => (n > 0 ? { status: 503 } : undefined),
            ];
            // The first answer has five attempts, which other tests count.
            const fault = (n, { method }) =>
                n < 12 && !(method === "POST" && n > 3)
                    ? faults[next(faults.length)](n)
                    : undefined;
            return assertWhole(new Gateway(form, TEXTS, fault), `seed ${seed}`);
        });
        await Promise.all(checks);
    });

test("no request more than cuts, where the end is marked", async () => {
    for (const form of ["full", "plain", "sse", "gemini"]) {
        const gateway = new Gateway(form, TEXTS);
        await ask(gateway);
        assert.equal(gateway.requests.length, 1, form);
    }
});

test("one request more without an end mark", async () => {
    for (const form of ["old", "ndjson"]) {
        const gateway = new Gateway(form, TEXTS);
        await ask(gateway);
        assert.deepEqual(
            gateway.requests.map(({ method }) => method),
            ["POST", "GET"],
        );
    }
});

test("the end mark counts even if the connection fails behind it", async () => {
    const gateway = new Gateway("full", TEXTS, () => ({ how: "cut" }));
    await assertWhole(gateway);
    assert.equal(gateway.requests.length, 1);
});
