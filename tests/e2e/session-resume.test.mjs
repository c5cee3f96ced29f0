// SPDX-License-Identifier: Apache-2.0
// `tidemark session resume`: sessions whose clients were killed are taken up again, all at once.
import assert from "node:assert/strict";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { Running, tidemark } from "./lib/run.mjs";
import { TIDEMARK } from "./lib/session-schema.mjs";
import { binary } from "./lib/server.mjs";
import { Peer, Session } from "./lib/session.mjs";
import { startSessions, startSessionSite } from "./lib/session-server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const saved = async (folder) => (await readdir(folder)).filter((name) => name.endsWith(".json"));
const resume = (server, state, ...flags) =>
    ["session", "resume", "--server", server.base, "--state", state, ...flags];
const sorted = (text) => text.split("\n").slice(0, -1).sort();

/** The saved sessions, by key: { file, ...what is in it }. */
async function states(folder) {
    const all = {};
    for (const name of await saved(folder)) {
        const file = join(folder, name);
        const state = JSON.parse(await readFile(file, "utf8"));
        all[state.idempotencyKey] = { file, ...state };
    }
    return all;
}

/** Clients that have said `one`, and `two` to a server that is gone, and are killed. */
async function interrupt(t, site, state, keys) {
    const clients = keys.map((key) => {
        const args = ["session", "chat", "--server", site.base, "--state", state, "--key", key];
        return new Running(t, binary(), args);
    });
    for (const client of clients) client.child.stdin.write("one\n");
    for (const client of clients) await client.output(/^one$/m);
    await site.kill();
    for (const client of clients) client.child.stdin.write("two\n");
    const isSaved = async () =>
        Object.values(await states(state)).filter(
            (s) => s.nextSeqno === 2 && s.idempotencyEventId === "1",
        ).length === keys.length;
    await until(isSaved, "the second lines to be saved");
    for (const client of clients) {
        client.child.kill("SIGKILL");
        await client.ended;
    }
}

test("all sessions that were interrupted come to their ends", async (t) => {
    const site = await startSessionSite(t);
    const folder = await tempFolder(t);
    const [state, transcript] = [join(folder, "state"), join(folder, "transcript")];
    const keys = ["a", "b", "c", "d", "e"];
    await interrupt(t, site, state, keys);
    // The server is still away: it is waited for.
    const args = resume(site, state, "--transcript", transcript, "--verbose");
    const running = new Running(t, binary(), args);
    await until(() => /connecting again|refused|connection/i.test(running.stderr), "an attempt");
    await site.start();
    const { code, stdout, stderr } = await running.end();
    assert.equal(code, 0, stderr);
    assert.deepEqual(
        sorted(stdout),
        keys.map((key) => `${key}\ttwo`),
    );
    for (const key of keys) {
        assert.match(stderr, new RegExp(`: ${key}: resumed behind event 1, 1 chunk to send$`, "m"));
        assert.match(stderr, new RegExp(`: ${key}: completed$`, "m"));
    }
    assert.match(stderr, /: 5 completed, 0 failed$/m);
    const kept = sorted(await readFile(transcript, "utf8")).map((line) => JSON.parse(line));
    assert.deepEqual(
        kept,
        keys.map((session) => ({ session, id: "2", text: "two" })),
    );
    assert.deepEqual(await saved(state), []);
    const again = await tidemark(t, resume(site, state));
    assert.equal(again.code, 0, "nothing to do is no failure");
    assert.equal(again.stdout, "");
    assert.match(again.stderr, /nothing is saved/);
});

test("the exit status tells of those that failed, and the others complete", async (t) => {
    const site = await startSessionSite(t);
    const state = join(await tempFolder(t), "state");
    await interrupt(t, site, state, ["good", "aborted", "changed"]);
    await site.start();
    const all = await states(state);
    const secret = Buffer.from(all.aborted.idempotentEncryptionKey, "base64url");
    const session = new Session(TIDEMARK, { key: "aborted", secret });
    await new Peer(t, site).open(session).abort().endedWell();
    await writeFile(all.changed.file, `${await readFile(all.changed.file, "utf8")} `);
    const { code, stdout, stderr } = await tidemark(t, resume(site, state, "--json"));
    assert.equal(code, 1, stderr);
    assert.deepEqual(JSON.parse(stdout), { session: "good", id: "2", text: "two" });
    assert.match(stderr, /: good: completed$/m);
    assert.match(stderr, /: aborted: failed: .*aborted/m);
    assert.match(stderr, /: 1 changed by somebody/m);
    assert.match(stderr, /: 1 completed, 2 failed$/m);
    assert.deepEqual(await saved(state), []);
});

// Without a worker nobody answers.
test("interrupted it leaves what is saved, and can be started again", async (t) => {
    const worker = { token: "worker-token-1", capabilities: "worker" };
    const server = await startSessions(t, { session: {}, callers: { worker } });
    const state = join(await tempFolder(t), "state");
    const chat = ["session", "chat", "--server", server.base, "--state", state, "--key", "k"];
    const client = new Running(t, binary(), chat);
    client.child.stdin.write("one\n");
    await until(async () => (await states(state).catch(() => ({}))).k?.nextSeqno === 1, "its state");
    const busy = await tidemark(t, resume(server, state));
    assert.equal(busy.code, 0, "somebody else takes care of it");
    assert.match(busy.stderr, /: 1 in use by another process$/m);
    client.child.kill("SIGKILL");
    await client.ended;
    for (const [signal, number] of [
        ["SIGINT", 2],
        ["SIGTERM", 15],
    ]) {
        const running = new Running(t, binary(), resume(server, state));
        await until(() => /: k: resumed/.test(running.stderr), "it to begin");
        running.child.kill(signal);
        const { code, stderr } = await running.end();
        assert.equal(code, 128 + number, stderr);
        assert.match(stderr, /interrupted; 1 session can be resumed again$/m);
        assert.deepEqual(Object.keys(await states(state)), ["k"]);
    }
    const last = new Running(t, binary(), resume(server, state));
    await until(() => /: k: resumed/.test(last.stderr), "it to begin");
    const out = `${server.base}/v1/stream/sessions/k/out`;
    await until(async () => {
        const { status } = await fetch(out, {
            method: "POST",
            headers: {
                authorization: `Bearer ${worker.token}`,
                "content-type": "application/json",
                "stream-closed": "true",
            },
            body: JSON.stringify({ text: "done" }),
        });
        return status < 300;
    }, "the worker's answer");
    const { code, stdout, stderr } = await last.end();
    assert.equal(code, 0, stderr);
    assert.equal(stdout, "k\tdone\n");
    const { file } = (await states(state)).k ?? {};
    assert.equal(file, undefined, "nothing is left");
});

test("what stands in the way, and what is too old", async (t) => {
    const site = await startSessionSite(t);
    const state = join(await tempFolder(t), "state");
    const missing = await tidemark(t, ["session", "resume", "--server", site.base]);
    assert.equal(missing.code, 2);
    assert.match(missing.stderr, /--state DIR is missing/);
    const word = await tidemark(t, resume(site, state, "word"));
    assert.equal(word.code, 2);
    const never = await tidemark(t, resume(site, join(state, "never")));
    assert.equal(never.code, 0, never.stderr);
    const help = await tidemark(t, ["session", "resume", "--help"]);
    assert.equal(help.code, 0);
    assert.match(help.stdout, /--lookback TIME/);
    await interrupt(t, site, state, ["old"]);
    await site.start();
    const old = await tidemark(t, resume(site, state, "--lookback", "1ms"));
    assert.equal(old.code, 0);
    assert.match(old.stderr, /1 not touched for longer than --lookback/);
    assert.equal((await saved(state)).length, 1);
    const all = await tidemark(t, resume(site, state, "--lookback", "0"));
    assert.equal(all.code, 0, all.stderr);
    assert.equal(all.stdout, "old\ttwo\n");
});
