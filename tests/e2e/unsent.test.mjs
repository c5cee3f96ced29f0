// SPDX-License-Identifier: Apache-2.0
// What answers hold that their readers do not take is bounded, for all of them together, and costs
// nothing while an HTTP/2 window is shut. TIDEMARK_UNSENT=full: the size that the documents speak
// of, with private memory instead of the server's own account; that needs a release build.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { H2 } from "./lib/h2.mjs";
import { openRaw, wire } from "./lib/raw.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until, within } from "./lib/wait.mjs";

const MIB = 1024 * 1024;
const FULL = process.env.TIDEMARK_UNSENT === "full";
const SIZES = FULL
    ? { connections: 10, streams: 100, names: 200, cache: 64, patience: 120_000 }
    : { connections: 3, streams: 40, names: 8, cache: 1, patience: 40_000 };
const TEXT = "text/plain";

async function metric(server, name) {
    const { text } = await server.request("GET", "/metrics");
    return Number(new RegExp(`^tidemark_${name} (\\d+)`, "m").exec(text)[1]);
}

function privateBytes(server) {
    const rollup = readFileSync(`/proc/${server.pid}/smaps_rollup`, "utf8");
    const parts = [...rollup.matchAll(/^Private_(?:Clean|Dirty):\s+(\d+) kB/gm)];
    return parts.reduce((sum, [, kb]) => sum + Number(kb) * 1024, 0);
}

/** An answer has as many events as it says, the first ones, and they are right. */
function assertAnswer(headers, text, whole) {
    assert.equal(text.length, Number(headers["stream-next-offset"].slice(17)));
    assert.ok(text.length > 0 && whole.startsWith(text), `${text.length} wrong bytes`);
}

/** Streams of one catch-up answer each, about 1 MiB, that rest on disk. */
async function startWithData(t, flags = []) {
    const data = await tempFolder(t);
    const all = ["--cache-bytes", `${SIZES.cache}m`, "--max-streams", "128", ...flags];
    const server = await startServer(t, all, { data });
    const wholes = [];
    for (let i = 0; i < SIZES.names; i++) {
        const name = `s${i}`;
        let whole = "";
        await server.create(name, TEXT);
        for (let k = 0; k < 15; k++) {
            const piece = `${i}/${k} `.padEnd(16, ".").repeat(4096);
            await server.append(name, piece, TEXT);
            whole += piece;
        }
        wholes.push(whole);
    }
    await server.stop();
    return { server: await startServer(t, all, { data }), wholes };
}

/** Readers whose windows are shut: some connections of some streams each. */
async function openShut(t, server, query) {
    const connections = [];
    for (let c = 0; c < SIZES.connections; c++) {
        const h2 = new H2(t, server, { settings: { initialWindowSize: 0 } });
        const readers = [];
        for (let s = 0; s < SIZES.streams; s++) {
            const of = (c * SIZES.streams + s) % SIZES.names;
            const reader = h2.open("GET", `/v1/stream/s${of}?${query}`);
            reader.stream.pause(); // what it takes would open its window again
            readers.push(Object.assign(reader, { of }));
        }
        connections.push({ h2, readers });
    }
    for (const { readers } of connections)
        for (const { reply } of readers)
            assert.equal((await within(reply, "a head", SIZES.patience))[":status"], 200);
    return connections;
}

/** The account is within its bound. */
async function unsent(server) {
    const bytes = await metric(server, "unsent_bytes");
    assert.ok(bytes <= SIZES.cache * MIB, `${bytes} bytes are unsent`);
    return bytes;
}

function checkPrivate(t, server) {
    if (!FULL) return;
    const bytes = privateBytes(server);
    t.diagnostic(`private memory: ${(bytes / MIB).toFixed(1)} MiB`);
    assert.ok(bytes <= (SIZES.cache + 64) * MIB, `${bytes} bytes of private memory`);
}

function openAll(connections) {
    for (const { h2, readers } of connections) {
        h2.session.settings({ initialWindowSize: 65535 });
        for (const { stream } of readers) stream.resume();
    }
}

/** Opens all windows a little, and looks at the account until it moves no more. */
async function openALittle(t, server, connections) {
    for (const { h2 } of connections) h2.session.settings({ initialWindowSize: 100 });
    let last = -1;
    const settled = async () => {
        const bytes = await unsent(server);
        const same = bytes > 0 && bytes === last;
        last = bytes;
        return same;
    };
    await until(settled, "something to be held", SIZES.patience);
    checkPrivate(t, server);
    return metric(server, "unsent_waiting");
}

test("catch-up: windows that are shut pin nothing, and then every byte comes", async (t) => {
    const { server, wholes } = await startWithData(t);
    const connections = await openShut(t, server, "offset=-1");
    assert.equal(await unsent(server), 0);
    checkPrivate(t, server);
    const waiting = await openALittle(t, server, connections);
    if (!FULL) assert.ok(waiting > 0, "so many do not fit at a time");
    const other = await server.stream("HEAD", "s0");
    assert.equal(other.status, 200);
    openAll(connections);
    for (const { readers } of connections)
        for (const reader of readers) {
            const what = `the end of s${reader.of}`;
            assert.equal(await within(reader.done, what, SIZES.patience), 0);
            assertAnswer(await reader.reply, reader.text, wholes[reader.of]);
            reader.text = "";
        }
    await until(async () => (await unsent(server)) === 0, "nothing to be held");
    assert.equal(await metric(server, "unsent_waiting"), 0);
});

test("SSE: windows that are shut pin nothing, and then every byte comes", async (t) => {
    const { server, wholes } = await startWithData(t, ["--sse-lifetime", "10m"]);
    const connections = await openShut(t, server, "offset=-1&live=sse");
    assert.equal(await unsent(server), 0);
    checkPrivate(t, server);
    const waiting = await openALittle(t, server, connections);
    if (!FULL) assert.ok(waiting > 0, "so many do not fit at a time");
    openAll(connections);
    for (const { h2, readers } of connections) {
        for (const reader of readers) {
            await until(() => reader.text.includes("upToDate"), `s${reader.of}`, SIZES.patience);
            const data = reader.text.matchAll(/^event: data\ndata:(.*)$/gm);
            assert.ok([...data].map(([, d]) => d).join("") === wholes[reader.of]);
            reader.text = "";
        }
        h2.session.destroy();
    }
    await until(async () => (await unsent(server)) === 0, "nothing to be held");
});

test("a connection that goes away gives back what it held and waited for", async (t) => {
    const { server } = await startWithData(t);
    const connections = await openShut(t, server, "offset=-1");
    await openALittle(t, server, connections);
    for (const { h2 } of connections) h2.session.destroy();
    await until(async () => (await unsent(server)) === 0, "nothing to be held");
    assert.equal(await metric(server, "unsent_waiting"), 0);
});

test("HTTP/1.1: readers that take nothing hold no more than the bound", async (t) => {
    const { server, wholes } = await startWithData(t);
    const readers = [];
    for (let i = 0; i < (FULL ? 1000 : 30); i++) {
        const reader = await openRaw(t, server);
        reader.pause();
        reader.send(wire("GET", `s${i % SIZES.names}?offset=-1`).repeat(3));
        readers.push(reader);
    }
    await until(async () => (await unsent(server)) > 0, "something to be held");
    checkPrivate(t, server);
    for (const [i, reader] of readers.entries()) {
        reader.resume();
        const { status, headers, text } = await reader.answer();
        assert.equal(status, 200);
        assertAnswer(headers, text, wholes[i % SIZES.names]);
        reader.destroy();
    }
    await until(async () => (await unsent(server)) === 0, "nothing to be held");
});
