// SPDX-License-Identifier: Apache-2.0
// A reader that stops reading costs the server an offset, not a buffer.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { openRaw, wire } from "./lib/raw.mjs";
import { startServer } from "./lib/server.mjs";
import { openSse } from "./lib/sse.mjs";
import { within } from "./lib/wait.mjs";

const MIB = 1024 * 1024;
const TOTAL = 64 * MIB;

/** An SSE reader that does not read on once its answer has begun. */
async function stalled(t, server, name) {
    const reader = await openSse(t, server, `${name}?offset=-1&live=sse`);
    await reader.control();
    reader.raw.pause();
    return reader;
}

const part = (i) => `${String(i).padStart(8, "0")}${"abcdefgh".repeat(MIB / 8 - 1)}`;

async function appendAll(server, name) {
    for (let i = 0; i < TOTAL / MIB; i++) await server.append(name, part(i), "text/plain");
}

async function readOn(reader, total) {
    const hash = createHash("sha256");
    reader.raw.resume();
    for (let seen = 0; seen < total;) {
        const { data } = await reader.event("data");
        hash.update(data);
        seen += data.length;
    }
    return hash.digest("hex");
}

test("64 MiB past one stalled reader, and past fifty", async (t) => {
    const server = await startServer(t);
    await server.create("one", "text/plain");
    await server.create("fifty", "text/plain");
    const warm = server.rss();

    const reader = await stalled(t, server, "one");
    await appendAll(server, "one");
    const withOne = server.rss();

    for (let i = 0; i < 50; i++) await stalled(t, server, "fifty");
    await appendAll(server, "fifty");
    const withFifty = server.rss();

    const one = withOne - warm;
    const fifty = withFifty - withOne;
    const inMib = (bytes) => (bytes / MIB).toFixed(1);
    t.diagnostic(`MiB more: ${inMib(one)} with one stalled reader, ${inMib(fifty)} with fifty`);
    // Stored data and the allocator's slack, but no second copy for the reader ...
    assert.ok(one < 2 * TOTAL, `${one} bytes with one`);
    // ... and fifty of them together do not even cost a quarter of one.
    assert.ok(fifty - one < TOTAL / 4, `${one} bytes with one, ${fifty} with fifty`);

    const whole = createHash("sha256");
    for (let i = 0; i < TOTAL / MIB; i++) whole.update(part(i));
    const caughtUp = readOn(reader, TOTAL);
    const digest = await within(caughtUp, "the stalled reader to catch up", 60_000);
    assert.equal(digest, whole.digest("hex"), "every byte, in order");
});

test("a catch-up reader that stops half-way holds nobody up", async (t) => {
    const server = await startServer(t, ["--read-chunk", "8m"]);
    const text = "b".repeat(8 * MIB);
    await server.create("x", "text/plain", { body: text });
    const raw = await openRaw(t, server);
    raw.send(wire("GET", "x"));
    const head = await raw.head();
    raw.pause();

    await server.append("x", "after", "text/plain");
    assert.equal(await server.readAll("x"), `${text}after`, "another reader");
    raw.resume();
    assert.equal((await raw.body(head)).toString(), text);
});

test("answers that nobody takes are not made in advance", async (t) => {
    const server = await startServer(t);
    await server.create("x", "text/plain", { body: "z".repeat(64 * 1024) });
    await server.stream("GET", "x");
    const before = server.rss();
    const raw = await openRaw(t, server);
    raw.pause();
    for (let i = 0; i < 4000; i++) raw.send(wire("GET", "x")); // 250 MiB of answers
    let most = 0;
    for (let turns = 0; turns < 200; turns++) {
        await server.stream("HEAD", "x");
        most = Math.max(most, server.rss() - before);
    }
    assert.ok(most < 16 * MIB, `${most} bytes more`);
});
