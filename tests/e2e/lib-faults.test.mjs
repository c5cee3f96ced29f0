// SPDX-License-Identifier: Apache-2.0
// Programs of the library with a network in between that cuts, resets, truncates, delays and
// duplicates. Everything arrives, exactly once. Bytes that come twice are noticed by TLS, and of
// sessions by their MACs; streams without TLS have nothing that would.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { ENDS, mischief, PLAIN_ENDS, startFaults, total } from "./lib/faults.mjs";
import { assertBackend, assertTranscript, example, plan, rows } from "./lib/llm-proxy.mjs";
import { randomness } from "./lib/rand.mjs";
import { Running } from "./lib/run.mjs";
import { binary, startServer } from "./lib/server.mjs";
import { startSessions } from "./lib/session-server.mjs";
import { startUpstream } from "./lib/session-upstream.mjs";
import { Authority } from "./lib/tls.mjs";
import { within } from "./lib/wait.mjs";

const PATIENCE_MS = 60_000;
const BYTES = 2000; // of a connection, within which something happens
// Bytes of TLS before anything is said. Only who has understood a server once can tell a broken
// network from a server that is not the right one, so that the first of these pass.
const HELLOS = 2500;

const PIECES = Array.from({ length: 20 }, (_, n) => `piece ${n}\n`);
const ALL = PIECES.join("");

async function sendPieces(socket) {
    for (const piece of PIECES) {
        socket.write(piece);
        await delay(3); // each comes by itself, and many of them while the network waits
    }
    socket.end();
}

/** What arrives when the PIECES are sent from this side and these faults are met. */
async function arriving(t, side, faults) {
    const listener = createServer();
    listener.listen(0, "127.0.0.1");
    await once(listener, "listening");
    const accepted = once(listener, "connection");
    const sided = faults.map((fault) => ({ ...fault, side }));
    const proxy = await startFaults(t, listener.address(), () => sided);
    const client = connect(new URL(proxy.base).port, "127.0.0.1");
    const [server] = await accepted;
    listener.close();
    for (const socket of [client, server]) socket.on("error", () => {}); // as is to be expected
    const [from, to] = side === "request" ? [client, server] : [server, client];
    let got = "";
    to.on("data", (bytes) => (got += bytes));
    const closed = new Promise((resolve) => to.on("close", resolve));
    await Promise.all([sendPieces(from), within(closed, "the end")]);
    assert.equal(total(proxy), faults.length, "a fault did not come about");
    return got;
}

for (const side of ["request", "answer"])
    test(`the network loses no bytes but the last of the ${side}`, async (t) => {
        const wait = { kind: "delay", at: 20, ms: 100 };
        const at = 45; // in the middle of a piece, and others wait behind it
        assert.equal(await arriving(t, side, [wait, { kind: "cut", at }]), ALL.slice(0, at));
        assert.equal(await arriving(t, side, [wait, { kind: "truncate", at }]), ALL.slice(0, at));
        const reset = await arriving(t, side, [wait, { kind: "reset", at }]);
        assert.equal(reset, ALL.slice(0, Math.min(reset.length, at)));
        assert.equal(await arriving(t, side, [wait, { ...wait, at: 60 }]), ALL);
        assert.equal(await arriving(t, side, [{ ...wait, at: ALL.length - 1 }]), ALL);
    });

async function secure(t) {
    const authority = await Authority.create(t);
    return { tls: authority.issue("server"), env: { SSL_CERT_FILE: authority.cert } };
}

const PROGRAMS = {
    text: {
        produce: (base) => [example("producer"), [base, "s"]],
        follow: (base) => [example("follow"), [base, "s"]],
        type: "text/plain",
        line: (n, pad) => `line ${n} ${pad}`,
    },
    json: {
        produce: (base) => [binary(), ["append", "--json", "--server", base, "s"]],
        follow: (base) => [binary(), ["tail", "--server", base, "s"]],
        type: "application/json",
        line: (n, pad) => JSON.stringify({ n, pad }),
    },
};

/** Lines go in one by one, so that there are many requests; what comes out is the same. */
async function stream(t, { produce, follow, type, line }, kinds, tls) {
    const COUNT = 150;
    const random = randomness(t);
    const { tls: certificate, env } = tls ? await secure(t) : {};
    const flags = ["--long-poll-timeout", "500ms"];
    const server = await startServer(t, flags, { tls: certificate });
    const scheme = tls ? "https" : "http";
    const start = (sides) => {
        const faults = { kinds, bytes: BYTES, hellos: tls ? HELLOS : 0, sides };
        return startFaults(t, server.where, mischief(random, faults), scheme);
    };
    // Who follows says little: that is not where faults are met.
    const proxies = [await start(["answer"]), await start(["request", "answer"])];
    await server.create("s", type);
    const follower = new Running(t, ...follow(proxies[0].base), { env });
    const producer = new Running(t, ...produce(proxies[1].base), { env });
    let all = "";
    for (let n = 0; n < COUNT; n++) {
        const text = `${line(n, "x".repeat(random.below(200)))}\n`;
        producer.child.stdin.write(text);
        all += text;
        await delay(random.below(20));
    }
    producer.child.stdin.end();
    await within(producer.ended, "the producer", PATIENCE_MS);
    const produced = await producer.end();
    assert.equal(produced.code, 0, produced.stderr);
    await server.close("s");
    await within(follower.ended, "the follower", PATIENCE_MS);
    const followed = await follower.end();
    assert.equal(followed.code, 0, followed.stderr);
    assert.equal(followed.stdout, all);
    for (const proxy of proxies) {
        t.diagnostic(JSON.stringify(proxy.counts));
        assert.ok(total(proxy) > 0, "no fault came about");
    }
}

for (const [name, programs] of Object.entries(PROGRAMS)) {
    test(`a ${name} stream`, (t) => stream(t, programs, PLAIN_ENDS, false));
    test(`a ${name} stream over TLS, with bytes that come twice`, (t) =>
        stream(t, programs, ENDS, true));
}

/** A conversation through faults; how its programs ended. */
async function converse(t, random, { tls, faults, lives }) {
    const upstream = await startUpstream(t);
    const { tls: certificate, env } = tls ? await secure(t) : {};
    const session = { upstream: upstream.url };
    const server = await startSessions(t, { session, tls: certificate });
    const scheme = tls ? "https" : "http";
    const proxy = await startFaults(t, server.where, faults(random), scheme);
    const talk = await plan(t, random, proxy.base, "talk", 60);
    let end;
    for (let life = 0; life < lives; life++) {
        const running = new Running(t, example("llm_proxy"), talk.args, { env });
        await within(running.ended, "the example", PATIENCE_MS);
        end = await running.end();
        assert.equal(end.signal, null, end.stderr);
        if (end.code === 0) break;
        t.diagnostic(end.stderr);
    }
    t.diagnostic(JSON.stringify(proxy.counts));
    return { talk, upstream, end, proxy };
}

async function assertComplete({ talk, upstream, end }) {
    assert.equal(end.code, 0, end.stderr);
    assertBackend(upstream.requests, await assertTranscript(talk), talk);
}

/** Conversations until a fault has met one: its place may be behind all that was said. */
async function untilFault(t, options, look) {
    const random = randomness(t);
    for (let tries = 0; tries < 8; tries++) {
        const result = await converse(t, random, options);
        await look(result);
        if (total(result.proxy) > 0) return;
    }
    assert.fail("no fault came about");
}

test("a session", async (t) => {
    const faults = (random) => mischief(random, { kinds: PLAIN_ENDS, bytes: BYTES });
    await untilFault(t, { faults, lives: 1 }, assertComplete);
});

test("a session over TLS, with bytes that come twice", async (t) => {
    const faults = (random) => mischief(random, { kinds: ENDS, bytes: BYTES, hellos: HELLOS });
    await untilFault(t, { tls: true, faults, lives: 1 }, assertComplete);
});

test("a session without TLS that hears bytes twice hands out nothing that is wrong", async (t) => {
    for (let round = 0; round < 4; round++) {
        const twice = { kinds: ["duplicate"], bytes: 2 * BYTES, sides: ["answer"] };
        const faults = (random) => mischief(random, twice);
        await untilFault(t, { faults, lives: 1 }, async ({ talk, end }) => {
            const { got, expected } = await rows(talk, end.code === 0);
            if (end.code === 0) assert.deepEqual(got, expected);
            else assert.deepEqual(got, expected.slice(0, got.length), end.stderr);
        });
    }
});
