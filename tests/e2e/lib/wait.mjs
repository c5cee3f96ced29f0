// SPDX-License-Identifier: Apache-2.0
// Waiting for something to happen. The limits only end a hung test; no test asserts how long
// anything took.
import { setTimeout as delay } from "node:timers/promises";

export const PATIENCE_MS = 20_000;

/** The promise's outcome; rejects with `what` in its message when there is none in time. */
export async function within(promise, what, ms = PATIENCE_MS) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`waited ${ms} ms in vain for ${what}`)), ms);
    });
    try {
        return await Promise.race([promise, late]);
    } finally {
        clearTimeout(timer);
    }
}

/** Calls probe() until it yields something truthy, which is returned. */
export async function until(probe, what, ms = PATIENCE_MS) {
    const deadline = Date.now() + ms;
    for (;;) {
        const result = await probe();
        if (result) return result;
        if (Date.now() > deadline) throw new Error(`waited ${ms} ms in vain for ${what}`);
        await delay(20);
    }
}
