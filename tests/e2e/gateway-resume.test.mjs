// SPDX-License-Identifier: Apache-2.0
// Coming back: with a token, or with the number of the last event.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assertEvents, mint, read, SECRET, startGateway, Story } from "./lib/gateway.mjs";
import { within } from "./lib/wait.mjs";

const UNKNOWN = "11111111-2222-4333-8444-555555555555";

/** Starts a generation and leaves when so many events are there. */
async function startAndLeave(gateway, plan, count) {
    const reader = await gateway.post(plan);
    const story = await read(reader, count);
    reader.raw.destroy();
    return { story, token: story.token, requestId: reader.headers["x-correlation-id"] };
}

/** A refusal of the resume endpoint, with the members that every one of them has. */
function assertRefusal(reader, status, code, message) {
    assert.equal(reader.status, status, reader.text);
    assert.match(reader.headers["content-type"], /^application\/json/);
    const body = reader.json();
    assert.equal(body.schema, "error.v1");
    assert.equal(body.code, code);
    assert.match(body.message, message);
    if (status === 426) assert.equal(body.details?.upgrade, "resume=unsupported");
}

test("cut off in the middle and resumed, it goes on until the end", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "story", tokens: 30, gates: [8, 20] };
    const { story, token, requestId } = await startAndLeave(gateway, plan, 8);
    await gateway.backend.go("story");
    await gateway.backend.hasSent("story", 20);

    const second = await gateway.resume(token, { "Last-Event-ID": story.lastId });
    assert.equal(second.status, 200, second.text);
    assert.match(second.headers["content-type"], /^text\/event-stream/);
    assert.equal(second.headers["x-correlation-id"], requestId);
    const rest = await read(second, 12); // what was missed, and more comes live
    await gateway.backend.go("story");
    await read(second, Infinity, rest);
    assertEvents([...story.events, ...rest.events], plan);
    assert.equal((await gateway.backend.seen()).length, 1, "one request to the backend");
});

test("a token of number k goes on with event k + 1", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "numbers", tokens: 12, gates: [10] };
    const { token, requestId } = await startAndLeave(gateway, plan, 10);
    const resumeAt = async (seq, headers) => {
        const reader = await gateway.resume(mint({ requestId, seq }), headers);
        const story = await read(reader, 1);
        reader.raw.destroy();
        return Number(story.events[0].id);
    };
    assert.equal(await resumeAt(0), 1);
    assert.equal(await resumeAt(4), 5);
    assert.equal(await resumeAt(9), 10);
    // The client may know better than its token, but not less.
    assert.equal(await resumeAt(4, { "Last-Event-ID": "7" }), 8);
    assert.equal(await resumeAt(7, { "Last-Event-ID": "4" }), 8);
    const atTail = await gateway.resume(mint({ requestId, seq: 10 }));
    await gateway.backend.go("numbers");
    assertEvents((await read(atTail)).events, plan, 11);
    assertEvents((await read(await gateway.resume(token))).events, plan);
});

test("two resume at once, and both get everything", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "twice", tokens: 25, gates: [6] };
    const { story, token } = await startAndLeave(gateway, plan, 6);
    const headers = { "Last-Event-ID": story.lastId };
    const readers = [];
    for (let i = 0; i < 2; i++) readers.push(await gateway.resume(token, headers));
    const reading = readers.map((reader) => read(reader));
    await gateway.backend.go("twice");
    for (const rest of await Promise.all(reading)) assertEvents(rest.events, plan, 7);
});

test("mode=replay gives what there is and ends", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "replay", tokens: 9, gates: [5] };
    const { token } = await startAndLeave(gateway, plan, 5);
    const replay = read(await gateway.resume(token, {}, { query: "?mode=replay" }));
    const story = await within(replay, "the replay to end");
    assertEvents(story.events, plan, 1, 5);
    assert.ok(!story.types.includes("end") && !story.types.includes("complete"));
    const live = await gateway.resume(token, {}, { query: "?mode=live" });
    const all = await read(live, 5);
    await gateway.backend.go("replay");
    assertEvents((await read(live, Infinity, all)).events, plan);
});

test("a missing token", async (t) => {
    const gateway = await startGateway(t);
    for (const token of [undefined, ""])
        assertRefusal(await gateway.resume(token), 400, "BAD_INPUT", /X-Resume-Token/);
});

test("tokens that nobody here signed", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "forged", tokens: 2 };
    const { token, requestId } = await startAndLeave(gateway, plan, 3);
    const flip = (at) => token.slice(0, at) + (token[at] === "A" ? "B" : "A") + token.slice(at + 1);
    const forgeries = [
        "fake-token-value",
        "not-a-valid-token",
        flip(0),
        flip(token.length >> 1),
        flip(token.length - 1),
        `${token}=`,
        token.slice(0, -1),
        mint({ requestId }, "another secret"),
        Buffer.from(`${requestId}:DRAFTING:0:${Date.now() + 60_000}`).toString("base64url"),
        "A".repeat(4000),
    ];
    for (const forgery of forgeries)
        assertRefusal(await gateway.resume(forgery), 401, "UNAUTHENTICATED", /resume token/);
    assertEvents((await read(await gateway.resume(token))).events, plan);
});

test("an expired token, and one of a stream that nobody knows", async (t) => {
    const gateway = await startGateway(t);
    const { requestId } = await startAndLeave(gateway, { name: "old", tokens: 2 }, 3);
    const expired = mint({ requestId, expiresAt: Date.now() - 1 });
    assertRefusal(await gateway.resume(expired), 426, "INTERNAL", /expired/i);
    const unknown = mint({ requestId: UNKNOWN });
    assertRefusal(await gateway.resume(unknown), 426, "INTERNAL", /expired/i);
});

test("a token's time is the route's", async (t) => {
    const gateway = await startGateway(t, { route: { "resume-ttl": "1ms" } });
    const { token } = await startAndLeave(gateway, { name: "brief", tokens: 2 }, 3);
    await new Promise((done) => setTimeout(done, 50)); // or its millisecond may not be over
    assertRefusal(await gateway.resume(token), 426, "INTERNAL", /expired/i);
});

test("the step must be the stream's, in whatever case, until it is complete", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "steps", tokens: 6, gates: [3] };
    const { requestId } = await startAndLeave(gateway, plan, 3);
    const wrong = await gateway.resume(mint({ requestId, step: "REFINING" }));
    assertRefusal(wrong, 426, "INTERNAL", /incompatible/);

    const lower = await gateway.resume(mint({ requestId, step: "drafting" }));
    const story = await read(lower, 3);
    await gateway.backend.go("steps");
    assertEvents((await read(lower, Infinity, story)).events, plan);
    const late = await gateway.resume(mint({ requestId, step: "REFINING" }));
    assertEvents((await read(late)).events, plan);
});

test("a route may call its step otherwise", async (t) => {
    const gateway = await startGateway(t, { route: { step: "WRITING" } });
    const plan = { name: "own-step", tokens: 6, gates: [3] };
    const { requestId, token } = await startAndLeave(gateway, plan, 3);
    assert.match(Buffer.from(token, "base64url").toString(), /:WRITING:0:/);
    assertRefusal(await gateway.resume(mint({ requestId })), 426, "INTERNAL", /incompatible/);
    const reader = await gateway.resume(token);
    assertEvents((await read(reader, 3)).events, plan, 1, 3);
    await gateway.backend.go("own-step");
});

test("a number beyond the tail is a gap, and then all that there is", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "beyond", tokens: 6, gates: [4] };
    const { requestId } = await startAndLeave(gateway, plan, 4);
    for (const [seq, headers] of [
        [99, {}],
        [0, { "Last-Event-ID": "99" }],
    ]) {
        const reader = await gateway.resume(mint({ requestId, seq }), headers);
        const story = await read(reader, 4);
        assertEvents(story.events, plan, 1, 4);
        const gap = story.named("gap");
        assert.equal((gap.gap ?? gap).reason, "unknown", JSON.stringify(gap));
        assert.ok(story.all.indexOf(story.events[0]) > story.types.indexOf("gap"));
        reader.raw.destroy();
    }
    await gateway.backend.go("beyond");
});

test("a change of secrets leaves tokens good as long as the old one is named", async (t) => {
    const gateway = await startGateway(t, { disk: true });
    const plan = { name: "rotated", tokens: 4 };
    const { token } = await startAndLeave(gateway, plan, 5);
    const changed = { SSE_RESUME_SECRET: "the new one", SSE_RESUME_SECRET_PREVIOUS: SECRET };
    await gateway.restart("SIGTERM", changed);
    assertEvents((await read(await gateway.resume(token))).events, plan);
    const fresh = await read(await gateway.post({ name: "fresh", tokens: 1 }));
    assertEvents((await read(await gateway.resume(fresh.token))).events, {
        name: "fresh",
        tokens: 1,
    });
    await gateway.restart("SIGTERM", { ...changed, SSE_RESUME_SECRET_PREVIOUS: "" });
    assertRefusal(await gateway.resume(token), 401, "UNAUTHENTICATED", /INVALID_SIGNATURE/);
    assertEvents((await read(await gateway.resume(fresh.token))).events, {
        name: "fresh",
        tokens: 1,
    });
});

test("HMAC_SECRET signs where there is no other", async (t) => {
    const env = { SSE_RESUME_SECRET: "", HMAC_SECRET: "a secret of many uses" };
    const gateway = await startGateway(t, { env });
    const plan = { name: "fallback", tokens: 3 };
    const { requestId } = await startAndLeave(gateway, plan, 4);
    const token = mint({ requestId, seq: 2 }, env.HMAC_SECRET);
    assertEvents((await read(await gateway.resume(token))).events, plan, 3);
});

test("GET with Last-Event-ID is as good as a token", async (t) => {
    const gateway = await startGateway(t);
    const plan = { name: "standard", tokens: 12, gates: [7] };
    const { requestId } = await startAndLeave(gateway, plan, 7);
    const fromStart = await gateway.get(requestId);
    assert.equal(fromStart.headers["x-correlation-id"], requestId);
    const all = await read(fromStart, 7);
    const behind = await gateway.get(requestId, { "Last-Event-ID": "4" });
    const rest = await read(behind, 3, new Story());
    await gateway.backend.go("standard");
    assertEvents((await read(fromStart, Infinity, all)).events, plan);
    assertEvents((await read(behind, Infinity, rest)).events, plan, 5);
    for (const id of ["garbage", "-1", "1e3"]) {
        const strange = await gateway.get(requestId, { "Last-Event-ID": id });
        assertEvents((await read(strange)).events, plan); // not a number of ours: from the start
    }
    const nothing = await gateway.get(requestId, { "Last-Event-ID": "13" });
    assert.equal(nothing.status, 204, "nothing comes any more, and an EventSource gives up");
});

test("a stream belongs to its route", async (t) => {
    const gateway = await startGateway(t, { routes: { "/other": {} } });
    const { token, requestId } = await startAndLeave(gateway, { name: "here", tokens: 2 }, 3);
    const path = "/other";
    assertRefusal(await gateway.resume(token, {}, { path }), 426, "INTERNAL", /expired/);
    assert.equal((await gateway.get(requestId, {}, { path })).status, 404);
    assert.equal((await gateway.stop(requestId, path)).status, 404);
});
