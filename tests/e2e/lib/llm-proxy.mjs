// SPDX-License-Identifier: Apache-2.0
// Conversations of examples/llm_proxy.c, whose lines are plans for the backend of
// session-upstream.mjs, and what must be true of them afterwards.
import assert from "node:assert/strict";
import { readFile, readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { binary } from "./server.mjs";
import { eventsOf } from "./session-upstream.mjs";
import { tempFolder } from "./temp.mjs";

export const example = (name) => join(dirname(binary()), "examples", name);

/** A conversation that is yet to be held: { plans, file, state, args }. */
export async function plan(t, random, base, name, count) {
    const folder = await tempFolder(t);
    const [file, input] = [join(folder, "transcript"), join(folder, "lines")];
    const plans = Array.from({ length: count }, (_, n) => ({
        name: `${name}/${n}`,
        events: random.below(4),
        pause: random.below(12),
    }));
    await writeFile(input, plans.map((each) => `${JSON.stringify(each)}\n`).join(""));
    const state = join(folder, "state");
    return { plans, file, state, args: [base, state, file, input] };
}

/** The rows of the transcript, and those it must have; `end`: with that of the session. */
export async function rows({ plans, file }, end = true) {
    const text = await readFile(file, "utf8");
    assert.ok(text === "" || text.endsWith("\n"));
    const found = text.split("\n").slice(0, -1);
    const got = found.map((line) => line.split("\t"));
    const key = got[0]?.[0];
    const events = plans.flatMap(eventsOf);
    const expected = events.map((event, i) => [key, String(i + 1), event]);
    if (end) expected.push([key, "end", ""]);
    return { key, got, expected };
}

/** Each event once and in order, under the numbers 1, 2, .., and the end. Returns the key. */
export async function assertTranscript(talk) {
    const { key, got, expected } = await rows(talk);
    assert.deepEqual(got, expected);
    const left = (await readdir(talk.state)).filter((name) => name.endsWith(".json"));
    assert.deepEqual(left, [], "state of a session that is over");
    return key;
}

/**
 * What the backend was asked: each line once, in order, all in one session. A key may come again
 * only if nobody has got its answer: it was broken off, or the server that got it was killed (each
 * life of a server has a number).
 */
export function assertBackend(requests, key, { plans }) {
    const asked = [];
    for (const request of requests) {
        const last = asked.at(-1);
        const again = last?.key === request.key;
        assert.ok(
            !again || !last.complete || last.life !== request.life,
            `${request.key} was asked again though it was answered`,
        );
        if (again) asked.pop();
        asked.push(request);
    }
    assert.deepEqual(
        asked.map((request) => [request.key, request.text]),
        plans.map((each, seqno) => [`${key}/${seqno}`, JSON.stringify(each)]),
        "what the backend was asked",
    );
}
