// SPDX-License-Identifier: Apache-2.0
// A Lab that is killed at any moment: whoever sends again is answered, and what was sent is there
// once.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { labFolder, startLab } from "./lib/lab.mjs";
import { randomness } from "./lib/rand.mjs";

const ROUNDS = Number(process.env.TIDEMARK_LAB_KILLS ?? 12);

/** Sends to whatever Lab is there until it is answered; each but the last is killed on the way. */
async function sendThroughKills(t, folder, random, path, body, requestId) {
    const headers = { "x-cm-lab-request-id": requestId };
    for (let kills = 1 + random.below(2); ; kills--) {
        const lab = await startLab(t, { folder });
        const sent = lab.post(path, body, headers).catch(() => null);
        if (kills > 0) {
            await delay(random.below(12));
            await lab.kill();
            await sent;
            continue;
        }
        const answer = await sent;
        await lab.stop();
        assert.equal(answer.status, 200, answer.text);
        return answer.json();
    }
}

/** How often a Lab was killed between what it meant to do and its answer. */
async function interrupted(t, folder, sessionId) {
    const file = `${folder.root}/sessions/${sessionId}/idempotency.jsonl`;
    const began = new Map();
    let n = 0;
    for (const line of (await readFile(file, "utf8")).split("\n")) {
        if (!line.endsWith("}")) continue;
        const { requestId, intent, createdAt } = JSON.parse(line);
        if (intent) began.set(requestId, Date.parse(createdAt));
        else if (Date.parse(createdAt) - began.get(requestId) > 40) n++;
    }
    t.diagnostic(`${n} of ${began.size} were finished by a later Lab`);
}

test("feedback that is sent until it is answered is stored once", async (t) => {
    const random = randomness(t);
    const folder = await labFolder(t);
    const answers = new Map();
    for (let i = 0; i < ROUNDS; i++) {
        const body = { notes: `note ${i}`, answers: { text: "x".repeat(random.below(200_000)) } };
        answers.set(
            body.notes,
            await sendThroughKills(t, folder, random, "/api/feedback", body, `r${i}`),
        );
    }
    const entries = await folder.entries();
    assert.deepEqual(
        entries.map((entry) => [entry.notes, entry.id]),
        [...answers].map(([notes, answer]) => [notes, answer.feedbackId]),
    );
    const lab = await startLab(t, { folder });
    await interrupted(t, folder, lab.config.sessionId);
    const { items } = await lab.poll();
    assert.deepEqual(
        items.map((item) => item.id),
        entries.map((entry) => entry.id),
    );
});

test("a decision that is sent until it is answered is stored once", async (t) => {
    const random = randomness(t);
    const folder = await labFolder(t);
    const first = await startLab(t, { folder });
    const runs = [];
    for (let i = 0; i < 5; i++)
        runs.push(await first.import(await folder.artifacts(`r${i}`, { "video.mp4": `${i}` })));
    const experiments = [];
    for (let i = 0; i < ROUNDS / 2; i++) {
        const variants = runs.slice(1).map((runId) => ({ runId }));
        const answer = await first.post("/api/experiments", { baselineRunId: runs[0], variants });
        experiments.push(answer.json().experimentId);
    }
    await first.stop();
    const expected = [];
    for (const [i, id] of experiments.entries()) {
        const perRun = runs.map((runId) => ({ runId, notes: "x".repeat(random.below(50_000)) }));
        const path = `/api/experiments/${id}/submit`;
        const answer = await sendThroughKills(t, folder, random, path, { perRun }, `e${i}`);
        assert.equal(answer.feedbackIds.length, runs.length);
        expected.push(...answer.feedbackIds.map((feedbackId, k) => [id, runs[k], feedbackId]));
    }
    const text = await folder.text();
    const stored = text.split("\n").flatMap((line) => {
        try {
            const { experimentId, runId, id } = JSON.parse(line);
            return [[experimentId, runId, id]];
        } catch {
            return []; // what a killed writer left, closed off
        }
    });
    assert.deepEqual(new Set(stored.map(String)), new Set(expected.map(String)));
    assert.equal(stored.length, expected.length);
    const records = (await readFile(`${folder.root}/experiments.jsonl`, "utf8")).trim().split("\n");
    const done = records.filter((record) => record.includes('"status":"done"'));
    assert.equal(done.length, experiments.length);
    await interrupted(t, folder, first.config.sessionId);
});
