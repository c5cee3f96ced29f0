// SPDX-License-Identifier: Apache-2.0
// Connections that do nothing, more of them than the system gives descriptors: the store has its
// own, so that whoever is inside can append and read.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { openRaw, wire } from "./lib/raw.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const TEXT = { "Content-Type": "text/plain" };

/** Opens n connections that say nothing, and counts those that the server has not closed. */
async function crowd(t, server, n) {
    const open = new Set();
    t.after(() => open.forEach((socket) => socket.destroy()));
    for (let i = 0; i < n; i += 100) {
        await Promise.all(
            Array.from({ length: Math.min(100, n - i) }, () => {
                const socket = connect(server.where);
                open.add(socket);
                socket.on("error", () => {}).on("close", () => open.delete(socket));
                socket.resume();
                return new Promise((resolve) => socket.once("connect", resolve).once("error", resolve));
            }),
        );
    }
    return open;
}

async function connections(server) {
    const { text } = await server.request("GET", "/metrics");
    return Number(/^tidemark_connections (\d+)$/m.exec(text)[1]);
}

/** What needs files: a large append, one to a new journal file's worth, and reads of what rests. */
async function work(inside, body) {
    const ask = async (text) => {
        inside.send(text);
        return await inside.answer();
    };
    for (let i = 0; i < 20; i++) {
        const append = wire("POST", "a", TEXT, body);
        assert.equal((await ask(append)).status, 204);
    }
    let offset = "-1";
    let bytes = 0;
    for (let more = true; more; ) {
        const answer = await ask(wire("GET", `a?offset=${offset}`));
        assert.equal(answer.status, 200);
        bytes += answer.text.length;
        offset = answer.headers["stream-next-offset"];
        more = answer.headers["stream-up-to-date"] !== "true";
    }
    return bytes;
}

test("a hard limit of 512 descriptors, and 1500 connections", async (t) => {
    const data = await tempFolder(t);
    const body = "x".repeat(1024 * 1024);
    const first = await startServer(t, [], { data });
    await first.create("a", "text/plain", { body });
    await first.stop(); // at rest in a segment

    const server = await startServer(t, [], { data, ulimit: "-n 512" });
    assert.match(server.stderr, /warn +at most 320 connections, not 10000: the system allows 512 descriptors/);
    const inside = await openRaw(t, server);
    const open = await crowd(t, server, 1500);
    await until(() => open.size <= 320, "the rest to be closed");
    assert.equal(await work(inside, body), 21 * body.length);
    assert.doesNotMatch(server.stderr, /accept failed/);
    assert.ok(server.running);
    open.forEach((socket) => socket.destroy());
});

test("a soft limit is raised to the hard one", async (t) => {
    const data = await tempFolder(t);
    const server = await startServer(t, [], { data, ulimit: "-Sn 256" });
    await server.create("a", "text/plain");
    const inside = await openRaw(t, server);
    const open = await crowd(t, server, 1000);
    await until(async () => (await connections(server)) > 1000, "all to be accepted");
    assert.equal(open.size, 1000);
    assert.equal(await work(inside, "x".repeat(100_000)), 2_000_000);
    assert.doesNotMatch(server.stderr, /warn/);
    open.forEach((socket) => socket.destroy());
});
