// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { backoff, retryAfter, sleep } from "../src/retry.js";

const answer = (value) => new Response(null, { headers: value ? { "Retry-After": value } : {} });

test("Retry-After in seconds, as a date, too far away, or nonsense", () => {
    assert.equal(retryAfter(answer("3")), 3000);
    const date = retryAfter(answer(new Date(Date.now() + 30_000).toUTCString()));
    assert.ok(date > 20_000 && date <= 30_000, String(date));
    assert.equal(retryAfter(answer("86400")), 60_000);
    for (const value of ["soon", "-1", "", "Mon, 01 Jan 2001 00:00:00 GMT"])
        assert.equal(retryAfter(answer(value)), 0, value);
    assert.equal(retryAfter(new TypeError("fetch failed")), 0);
    assert.equal(retryAfter(undefined), 0);
});

test("pauses grow to a bound, and are never the same for all", () => {
    for (let n = 0; n < 50; n++) {
        const wait = backoff(n, 5000);
        const most = Math.min(100 * 2 ** n, 5000);
        assert.ok(wait >= most / 2 && wait <= most, `${wait} after ${n}`);
    }
});

test("a sleep ends with its signal", async () => {
    const abort = new AbortController();
    const asleep = sleep(1e6, abort.signal);
    abort.abort(new Error("enough"));
    await assert.rejects(asleep, /enough/);
    await assert.rejects(sleep(1e6, abort.signal), /enough/);
});

test("offline, time does not pass; online again, it is over at once", async (t) => {
    const events = new EventTarget();
    const navigator = { onLine: false };
    for (const [name, value] of Object.entries({
        addEventListener: events.addEventListener.bind(events),
        removeEventListener: events.removeEventListener.bind(events),
        navigator,
    })) {
        const before = Object.getOwnPropertyDescriptor(globalThis, name);
        Object.defineProperty(globalThis, name, { value, configurable: true });
        t.after(() =>
            before ? Object.defineProperty(globalThis, name, before) : delete globalThis[name],
        );
    }
    let over = false;
    const asleep = sleep(1).then(() => (over = true));
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(over, false);
    navigator.onLine = true;
    events.dispatchEvent(new Event("online"));
    await asleep;
});
