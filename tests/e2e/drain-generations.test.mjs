// SPDX-License-Identifier: Apache-2.0
// SIGTERM while answers are under way: they finish, nothing new begins, and nobody is cut.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { wholeText } from "./lib/backend-plan.mjs";
import { startBackend } from "./lib/backend.mjs";
import { assertEvents, expected, open, PATH, read, startGateway } from "./lib/gateway.mjs";
import { TIDEMARK } from "./lib/session-schema.mjs";
import { startSessions } from "./lib/session-server.mjs";
import { Code, Peer, Session } from "./lib/session.mjs";
import { until, within } from "./lib/wait.mjs";

const OPENAI = "/openai/chat/completions";

const startRoutes = (t, options = {}) =>
    startGateway(t, { routes: { [OPENAI]: { dialect: "openai" } }, ...options });

async function ended(server) {
    const { code, signal } = await within(server.ended, "the server to end");
    assert.deepEqual({ code, signal }, { code: 0, signal: null });
}

/** Waits until it says that it is being stopped; a connection may break while that begins. */
const draining = (base) =>
    until(async () => {
        const answer = await ask(`${base}/readyz`).catch(() => null);
        return answer?.status === 503 && answer;
    }, "the drain");

/** Asks on a connection of its own, which is not kept. */
const ask = (url, options = {}) =>
    fetch(url, { ...options, headers: { connection: "close", ...options.headers } });

for (const disk of [false, true])
    test(`answers finish, and readers come back to them (${disk ? "embedded" : "memory"})`, async (t) => {
        const gateway = await startRoutes(t, { disk });
        const { base, server, backend } = gateway;
        const plan = { name: "drained", tokens: 20, gates: [5] };
        const key = { "Idempotency-Key": "k" };
        const reader = await gateway.post(plan, key);
        const story = await read(reader, 5);
        const id = reader.headers["x-correlation-id"];
        const client = new OpenAI({ apiKey: "k", baseURL: `${base}/openai`, maxRetries: 0 });
        const chatPlan = { dialect: "openai", name: "sdk", tokens: 20, gates: [5] };
        const chat = await client.chat.completions.create({
            model: "m",
            messages: [],
            stream: true,
            plan: chatPlan,
        });
        let text = "";
        const sdk = (async () => {
            for await (const { choices } of chat) text += choices[0]?.delta.content ?? "";
        })();
        await until(() => text.length > 0, "the SDK's first words");

        server.signal("SIGTERM");
        assert.equal((await (await draining(base)).json()).ready, false);
        for (const path of [PATH, OPENAI]) {
            const late = await ask(`${base}${path}`, { method: "POST", body: "{}" });
            assert.equal(late.status, 503);
            assert.equal(late.headers.get("retry-after"), "1");
            const body = await late.json();
            assert.equal(body.code ?? body.error.code, "DRAINING");
        }
        const retried = await client.chat.completions
            .create({ model: "m", messages: [] })
            .catch((error) => error);
        assert.deepEqual([retried.status, retried.code], [503, "DRAINING"]);
        const others = [
            await gateway.get(id, { "Last-Event-ID": "3" }),
            await gateway.resume(story.token),
            await gateway.post(plan, key),
        ];
        assert.ok(server.running);

        for (const name of ["drained", "sdk"]) await backend.go(name);
        await within(read(reader, Infinity, story), "the answer's end");
        assertEvents(story.events, plan);
        assert.deepEqual(story.types, ["resume"]);
        await within(sdk, "the SDK's answer");
        assert.equal(text, wholeText(chatPlan));
        const [behind, resumed, joined] = await Promise.all(others.map((other) => read(other)));
        assertEvents(behind.events, plan, 4);
        assertEvents(resumed.events, plan);
        assertEvents(joined.events, plan);
        assert.equal((await backend.seen()).length, 2, "nothing new was asked");
        await ended(server);
        if (!disk) return;
        await gateway.start();
        assertEvents((await read(await gateway.get(id))).events, plan);
    });

test("sessions go on while an answer finishes, and are then sent away", async (t) => {
    const backend = await startBackend(t);
    const server = await startSessions(t, { flags: ["--route", `/r=${backend.url()}`] });
    const plan = { name: "beside", tokens: 9, gates: [3] };
    const headers = { "Content-Type": "application/json" };
    const reader = await open(t, server, "POST", "/r", headers, JSON.stringify({ plan }));
    const story = await read(reader, 3);
    server.signal("SIGTERM");
    await draining(server.base);
    const session = new Session(TIDEMARK);
    const call = new Peer(t, server).open(session);
    await call.welcomed();
    call.chunk(0, "hello");
    await call.seen(1);
    await backend.go("beside");
    await within(read(reader, Infinity, story), "the answer's end");
    assertEvents(story.events, plan);
    const error = await call.ended();
    assert.equal(error?.code, Code.Unavailable, `${error}`);
    await ended(server);
});

test("an answer that nobody reads finishes as well", async (t) => {
    const gateway = await startRoutes(t, { disk: true });
    const plan = { name: "alone", tokens: 20, gates: [5] };
    const reader = await gateway.post(plan);
    await read(reader, 5);
    reader.raw.destroy();
    gateway.server.signal("SIGTERM");
    await draining(gateway.base);
    await gateway.backend.go("alone");
    await ended(gateway.server);
    await gateway.start();
    const story = await read(await gateway.get(reader.headers["x-correlation-id"]));
    assertEvents(story.events, plan);
    assert.deepEqual(story.types, ["resume"]);
});

test("what takes longer is orphaned, and told: the first event had come, or not", async (t) => {
    const gateway = await startRoutes(t, { disk: true, flags: ["--drain-timeout", "500ms"] });
    const plan = { name: "long", tokens: 20, gates: [5] };
    const reader = await gateway.post(plan);
    const story = await read(reader, 5);
    const mute = gateway.post({ name: "mute", mute: true }, { "Idempotency-Key": "m" });
    await until(async () => (await gateway.backend.seen("mute")).length === 1, "both to be under way");
    gateway.server.signal("SIGTERM");
    await within(read(reader, Infinity, story), "the end");
    assert.equal(story.named("end").reason, "orphaned");
    const refused = await within(mute, "the refusal");
    assert.equal(refused.status, 503, refused.text);
    assert.equal(refused.json().code, "ORPHANED");
    assert.ok(Number(refused.headers["retry-after"]) >= 1);
    await ended(gateway.server);
    assert.match(gateway.server.stderr, /2 answers under way end as orphaned/);

    await gateway.start();
    const again = await read(await gateway.get(reader.headers["x-correlation-id"]));
    assertEvents(again.events, plan, 1, 5);
    assert.equal(again.named("end").reason, "orphaned");
    const next = { name: "mute", mute: true };
    gateway.post(next, { "Idempotency-Key": "m" }).catch(() => {});
    const asked = async () => (await gateway.backend.seen("mute")).length === 2;
    await until(asked, "the key to ask again: nothing had come of it");
});

test("asked twice, it waits for nobody", async (t) => {
    const gateway = await startRoutes(t, { disk: true });
    const plan = { name: "twice", tokens: 20, gates: [5] };
    const reader = await gateway.post(plan);
    const story = await read(reader, 5);
    gateway.server.signal("SIGTERM");
    await draining(gateway.base);
    gateway.server.signal("SIGINT");
    await within(read(reader, Infinity, story), "the end");
    assert.equal(story.named("end").reason, "orphaned");
    assert.ok(story.lastId < expected(plan).length);
    await ended(gateway.server);
});
