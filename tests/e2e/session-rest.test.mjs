// SPDX-License-Identifier: Apache-2.0
// What a session leaves on disk is of no use to anybody without its key.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { SERVICES } from "./lib/session-schema.mjs";
import { Code, gapOf, Peer, Session } from "./lib/session.mjs";
import { startSessionSite } from "./lib/session-server.mjs";
import { startUpstream } from "./lib/session-upstream.mjs";
import { until } from "./lib/wait.mjs";

const QUESTION = "a-question-that-nobody-else-may-read";
const ANSWER = "an-answer-that-nobody-else-may-read";
const CONTROL = "a-text-that-anybody-may-read";

/** Every file below a folder, in one piece. A server that runs may take one away meanwhile. */
async function everything(folder) {
    for (;;) {
        const entries = await readdir(folder, { recursive: true, withFileTypes: true });
        const files = entries.filter((entry) => entry.isFile());
        assert.ok(files.length > 0, `no files in ${folder}`);
        const all = files.map(({ parentPath, name }) => readFile(join(parentPath, name)));
        try {
            return Buffer.concat(await Promise.all(all));
        } catch (error) {
            if (error.code !== "ENOENT") throw error;
        }
    }
}

/** The ways in which bytes may have been written down. */
const spellings = (bytes) => [
    bytes,
    ...["hex", "base64", "base64url"].map((form) => Buffer.from(bytes.toString(form))),
    Buffer.from(bytes.toString("hex").toUpperCase()),
];

/**
 * The same for a text that may stand within something else. In base64 it then looks like one of
 * three texts, of which the first and last letters depend on the neighbours.
 */
const spellingsWithin = (text) => [
    Buffer.from(text),
    Buffer.from(Buffer.from(text).toString("hex")),
    ...[0, 1, 2].map((skip) => {
        const aligned = Buffer.from(text).subarray(skip);
        const whole = aligned.subarray(0, aligned.length - (aligned.length % 3));
        return Buffer.from(whole.toString("base64"));
    }),
];

async function assertSealed(site, sessions, when) {
    const bytes = await everything(site.data);
    assert.ok(bytes.includes(CONTROL), `${when}: what is not sealed would be found`);
    for (const word of [QUESTION, ANSWER])
        for (const needle of spellingsWithin(word))
            assert.ok(!bytes.includes(needle), `${when}: ${word} is on disk as ${needle}`);
    for (const { secret, key } of sessions) {
        for (const needle of spellings(secret))
            assert.ok(!bytes.includes(needle), `${when}: the key of ${key} is on disk`);
        const said = site.server.stdout + site.server.stderr;
        assert.ok(!said.includes(secret.toString("base64url")), `${when}: the key was printed`);
        assert.ok(!said.includes(QUESTION) && !said.includes(ANSWER), `${when}: it was printed`);
    }
}

test("a restart finds encrypted bytes only", async (t) => {
    const upstream = await startUpstream(t);
    const site = await startSessionSite(t, { session: { upstream: upstream.url } });
    await site.server.create("control", "text/plain", { body: CONTROL });
    const sessions = SERVICES.map((service) => new Session(service));
    const heard = new Map(sessions.map((session) => [session, []]));
    let chunks = 0;

    /** Both sessions say something long and something short, and get answers. */
    async function talk() {
        for (const session of sessions) {
            const before = heard.get(session);
            const call = new Peer(t, site).open(session, { position: String(before.length) });
            for (const pad of [0, 200_000]) {
                const plan = { name: ANSWER, events: 3, note: QUESTION, pad: "x".repeat(pad) };
                call.chunk(chunks++, JSON.stringify(plan));
            }
            await call.seen(6);
            await call.acked(2);
            before.push(...call.texts);
            call.halfClose();
            await call.endedWell();
        }
    }

    await talk();
    await assertSealed(site, sessions, "while it runs");
    for (const signal of ["SIGTERM", "SIGKILL"]) {
        await (signal === "SIGKILL" ? site.kill() : site.stop());
        await assertSealed(site, sessions, `after ${signal}`);
        await site.start();
        await assertSealed(site, sessions, `started after ${signal}`);
        for (const session of sessions) {
            // A client that knows nothing but the two keys gets all of it, MACs checked.
            const { service, key, secret } = session;
            const fresh = new Session(service, { key, secret });
            const call = new Peer(t, site).open(fresh).halfClose();
            await call.endedWell();
            assert.deepEqual(call.texts, heard.get(session));
            assert.ok(call.texts.every((text) => text.startsWith(ANSWER)));
        }
        await talk();
        await assertSealed(site, sessions, `used after ${signal}`);
    }
});

test("a crash in the middle of a message costs nothing that was acknowledged", async (t) => {
    const site = await startSessionSite(t);
    const session = new Session(SERVICES[0]);
    const filler = randomBytes(2000).toString("hex");
    const acked = new Set();
    const events = [];
    const listener = {
        ack: (seqno) => acked.add(seqno),
        event: (event) => events.push(event),
    };
    let next = 0;
    for (let life = 0; life < 4; life++) {
        const call = new Peer(t, site).open(session, {
            position: String(events.length),
            listener,
        });
        const before = acked.size;
        for (const end = next + 40; next < end; next++) call.chunk(next, `${next}: ${filler}`);
        await until(() => acked.size > before + 5 + 5 * life, "some acks");
        await site.kill();
        await call.ended();
        await site.start();
    }
    // What was acknowledged is not said again, and yet answered; the rest was perhaps stored.
    const call = new Peer(t, site).open(session, { position: String(events.length), listener });
    call.halfClose();
    await call.endedWell();
    const answered = new Set(events.map(({ text }) => Number(text.split(":")[0])));
    assert.equal(answered.size, events.length, "each once");
    for (const seqno of acked) assert.ok(answered.has(seqno), `${seqno} was acknowledged and lost`);
    assert.deepEqual(
        events.map(({ id }) => Number(id)),
        events.map((_, i) => i + 1),
    );
});

const LIFETIME_MS = 4000;

/** Two sessions of two events: `kept` is asked for all the time, which is activity, `left` is not. */
async function outlive(t, site, meanwhile) {
    const peer = new Peer(t, site);
    const [kept, left] = [new Session(SERVICES[0]), new Session(SERVICES[1])];
    for (const session of [kept, left]) {
        const call = peer.open(session).chunk(0, "one").chunk(1, "two").halfClose();
        await call.endedWell();
        assert.deepEqual(call.ids, ["1", "2"]);
    }
    const look = async () => {
        const call = peer.open(kept, { position: "1" }).halfClose();
        await call.endedWell();
        assert.deepEqual(call.texts, ["two"]);
        await delay(100);
    };
    const start = Date.now();
    while (Date.now() < start + LIFETIME_MS / 2) await look();
    // A start of the server counts as activity: nobody can come back to one that is not there.
    const since = (await meanwhile()) === undefined ? start : Date.now();
    while (Date.now() < since + LIFETIME_MS + 1000) await look();
    const error = await peer
        .open(left, { position: "1" })
        .halfClose()
        .refused(Code.FailedPrecondition);
    assert.equal(gapOf(error).requested, "1");
    assert.match(gapOf(error).reason, /expired/i);
    const call = peer.open(kept, { position: "2" }).chunk(2, "three").close();
    await call.endedWell();
    assert.deepEqual(call.texts, ["three"]);
}

test("left alone for longer than a session lasts", { concurrency: true }, async (t) => {
    const options = { session: { handler: "echo", lifetime: `${LIFETIME_MS}ms` } };
    const ends = {
        "by one server": () => {},
        "over a stop": (site) => site.restart("SIGTERM").then(() => true),
        "over a crash": (site) => site.restart("SIGKILL").then(() => true),
    };
    await Promise.all(
        Object.entries(ends).map(([what, meanwhile]) =>
            t.test(what, async (sub) => {
                const site = await startSessionSite(sub, options);
                await outlive(sub, site, () => meanwhile(site));
            }),
        ),
    );
});
