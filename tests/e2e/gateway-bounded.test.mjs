// SPDX-License-Identifier: Apache-2.0
// Generations of which only a part is kept (in memory, in Redis, with `trim = strict`): who is connected
// gets every event all the same, since the backend is held back; only who comes later may meet a gap.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { test } from "node:test";
import { DefaultChatTransport, readUIMessageStream } from "ai";
import OpenAI from "openai";
import { eventsOf, wholeText, wireOf } from "./lib/backend-plan.mjs";
import { defer } from "./lib/defer.mjs";
import { H2 } from "./lib/h2.mjs";
import { assertEvents, expected, mint, PATH, read, startGateway } from "./lib/gateway.mjs";
import { startRedis } from "./lib/redis.mjs";
import { openSse } from "./lib/sse.mjs";
import { until, within } from "./lib/wait.mjs";

const MIB = 1024 * 1024;
const inMib = (bytes) => `${(bytes / MIB).toFixed(1)} MiB`;
const OPENAI = "/openai/chat/completions";
const CHAT = "/api/chat";
const routes = { [OPENAI]: { dialect: "openai" }, [CHAT]: { dialect: "ui-message" } };

/** Options of startGateway for each way of keeping only a part. */
const stores = {
    "in memory": async () => ({ routes }),
    "in Redis": async (t) => ({ routes, flags: ["--store", (await startRedis(t)).url] }),
    "with trim = strict": async () => ({
        disk: true,
        route: { trim: "strict" },
        routes: Object.fromEntries(
            Object.entries(routes).map(([path, route]) => [path, { ...route, trim: "strict" }]),
        ),
    }),
};

/** What a backend is asked that sends all of this plan's events in one write. */
const inOneWrite = (plan) => ({
    ...plan,
    raw: [...eventsOf(plan)].map((event, i) => wireOf(event, i + 1)).join(""),
});

// ---- bursts ----

for (const [where, options] of Object.entries(stores))
    test(`a burst of 2,000 events ${where} reaches plain readers and SDKs`, async (t) => {
        const gateway = await startGateway(t, await options(t));
        const plain = { name: "plain", tokens: 2000 };
        const story = await read(await gateway.post(inOneWrite(plain)));
        assertEvents(story.events, plain);
        assert.deepEqual(story.types, ["resume"]);

        const chat = { name: "chat", dialect: "openai", tokens: 2000 };
        const client = new OpenAI({ apiKey: "k", baseURL: `${gateway.base}/openai`, maxRetries: 0 });
        const answer = await client.chat.completions.create({
            model: "fake-1",
            messages: [{ role: "user", content: "go" }],
            stream: true,
            plan: inOneWrite(chat),
        });
        let text = "";
        for await (const chunk of answer) text += chunk.choices[0]?.delta.content ?? "";
        assert.equal(text, wholeText(chat));

        const ui = { name: "ui", dialect: "ui-message", tokens: 2000 };
        const api = `${gateway.base}${CHAT}`;
        const stream = await new DefaultChatTransport({ api, body: { plan: inOneWrite(ui) } }).sendMessages({
            trigger: "submit-message",
            chatId: "c",
            messages: [{ id: "u", role: "user", parts: [{ type: "text", text: "go" }] }],
        });
        let last;
        for await (const message of readUIMessageStream({ stream, terminateOnError: true }))
            last = message;
        assert.equal(last.parts.map((part) => part.text ?? "").join(""), wholeText(ui));

        assert.ok((await gateway.metric("assist_sse_buffer_trimmed_total")) > 3000);
        assert.equal(await gateway.metric("assist_sse_reader_cut_total"), 0);
    });

test("events that are larger than all that is kept arrive as well", async (t) => {
    const route = { trim: "strict", "buffer-max-bytes": "4k", "buffer-max-events": "3" };
    const gateway = await startGateway(t, { route });
    const plan = { name: "large", tokens: 40, pad: 10_000 };
    assertEvents((await read(await gateway.post(inOneWrite(plan)))).events, plan);
});

test("so does why it failed, behind them", async (t) => {
    const gateway = await startGateway(t, { route: { trim: "strict", "buffer-max-events": "2" } });
    const plan = { name: "broken", tokens: 300, fate: "cut", at: 300 };
    const story = await read(await gateway.post(plan));
    assertEvents(story.events, plan, 1, 300);
    assert.equal(story.named("end").reason, "failed");
});

test("a worker that follows the generation's stream is a reader, too", async (t) => {
    const callers = { w: { token: "wt", capabilities: "worker" } };
    const route = { trim: "strict", "buffer-max-events": "16" };
    const gateway = await startGateway(t, { route, callers });
    const plan = { name: "worker", tokens: 1000, gates: [1] };
    const reader = await gateway.post(plan);
    await read(reader, 1);
    const name = `.route${PATH}/${reader.headers["x-correlation-id"]}`;
    const headers = { Authorization: "Bearer wt" };
    const worker = await openSse(t, gateway.server, `${name}?offset=-1&live=sse`, headers);
    await worker.control();
    await gateway.backend.go("worker");
    const reading = read(reader);
    let text = "";
    for (let control = {}; !control.streamClosed; ) {
        const { event, data } = await worker.event();
        assert.notEqual(event, "gap", data);
        if (event === "control") control = JSON.parse(data);
        else text += `${data}\n`;
    }
    assertEvents([{}, ...(await reading).events].slice(1), plan, 2);
    const ids = [...text.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id));
    assert.deepEqual(ids, [...expected(plan).map(({ id }) => Number(id))].slice(1));
});

// ---- readers that are slow, or stop ----

/**
 * A client that takes as much as it wants when it wants it: pace(bytes so far) is awaited between
 * two reads of at most `size` bytes. Of what it got it knows the digest and the ids.
 */
class Taker {
    bytes = 0;
    ended = false;
    last = 0; // the number of the last event
    misses = 0; // numbers that were not the one before plus one
    #hash = createHash("sha256");
    #rest = "";

    constructor(t, server, { size, pace, method = "POST", path = PATH, headers = {}, body = "" }) {
        const length = Buffer.byteLength(body);
        const all = { Host: "localhost", "Content-Length": length, ...headers };
        const lines = Object.entries(all).map(([key, value]) => `${key}: ${value}\r\n`);
        const take = (n, buffer) => {
            this.#take(buffer.subarray(0, n));
            const pause = pace?.(this.bytes);
            if (pause === undefined) return true;
            pause.then(() => this.socket.resume());
            return false;
        };
        const onread = { buffer: Buffer.alloc(size ?? 65536), callback: take };
        this.socket = connect({ ...server.where, onread });
        this.socket.on("error", () => {});
        this.closed = new Promise((resolve) => this.socket.once("close", resolve));
        this.socket.write(`${method} ${path} HTTP/1.1\r\n${lines.join("")}\r\n${body}`);
        defer(t, () => this.socket.destroy());
    }

    #take(bytes) {
        this.bytes += bytes.length;
        const lines = (this.#rest + bytes.toString("latin1")).split("\n");
        this.#rest = lines.pop();
        for (const line of lines) {
            const id = /^id: (\d+)$/.exec(line);
            if (id) {
                if (Number(id[1]) !== this.last + 1) this.misses++;
                this.last = Number(id[1]);
            } else if (line.startsWith("data: ") && this.last > 0) {
                this.#hash.update(line);
            }
        }
        if (lines.includes("0\r") || this.#rest === "0\r") this.ended = true;
    }

    /** Waits for the whole answer. */
    async end(what = "the end of an answer", ms) {
        await within(
            Promise.race([this.closed, until(() => this.ended, what, ms)]),
            what,
            ms,
        );
        assert.ok(this.ended, `cut off behind event ${this.last}`);
        return { last: this.last, misses: this.misses, digest: this.#hash.digest("hex") };
    }
}

const asking = (plan) => JSON.stringify({ plan });
const joining = (key) => ({ "Content-Type": "application/json", "Idempotency-Key": key });

test("200 clients of one answer, half of them slow, get every event", async (t) => {
    const CLIENTS = 200;
    const gateway = await startGateway(t, { flags: ["--write-timeout", "1h"] });
    const plan = { name: "crowd", tokens: 2000, pad: 400, gates: [1] };
    const order = { body: asking(plan), headers: joining("crowd") };
    const slow = { ...order, size: 16384, pace: () => delay(10) };
    const first = new Taker(t, gateway.server, order);
    await until(() => first.last === 1, "the first event");
    const others = Array.from(
        { length: CLIENTS - 1 },
        (_, i) => new Taker(t, gateway.server, i % 2 ? order : slow),
    );
    await until(() => others.every(({ last }) => last === 1), "everybody's first event");
    const before = gateway.server.rss();
    let most = before;
    const watch = setInterval(() => (most = Math.max(most, gateway.server.rss())), 20);
    defer(t, () => clearInterval(watch));
    await gateway.backend.go("crowd");
    const ends = await Promise.all([first, ...others].map((one) => one.end("everybody", 60_000)));
    t.diagnostic(`RSS ${inMib(before)}, at most ${inMib(most)}`);
    for (const end of ends)
        assert.deepEqual(end, { last: expected(plan).length, misses: 0, digest: ends[0].digest });
    assert.equal((await gateway.backend.seen()).length, 1);
    // A quarter of a pull for each, and what a sanitizer keeps of what was freed.
    assert.ok(most - before < 48 * MIB, `${most - before} bytes more`);
});

test("a client that pauses holds the backend back, and loses nothing", async (t) => {
    const gateway = await startGateway(t, { flags: ["--write-timeout", "1h"] });
    const plan = { name: "paused", tokens: 2048, pad: 16 * 1024 };
    let go;
    const gate = new Promise((resolve) => (go = resolve));
    const before = gateway.server.rss();
    const pace = (bytes) => (bytes > 100_000 ? gate : undefined);
    const taker = new Taker(t, gateway.server, { body: asking(plan), pace });
    const sent = async () => (await gateway.backend.seen())[0]?.sent;
    let seen = 0;
    await until(async () => {
        await delay(300);
        const now = await sent();
        return now > 0 && now === seen ? true : void (seen = now);
    }, "the backend to stand still");
    assert.ok(seen < plan.tokens / 2, `${seen} events were taken from the backend`);
    const more = gateway.server.rss() - before;
    t.diagnostic(`${inMib(more)} more while it waits, of an answer of 32 MiB`);
    assert.ok(more < 28 * MIB, `${more} bytes more`);
    go();
    const { last, misses } = await taker.end("all of it", 60_000);
    assert.deepEqual({ last, misses }, { last: expected(plan).length, misses: 0 });
});

// What these do not take is more than any socket holds.
for (const [what, taking] of [
    ["takes nothing", { pace: (bytes) => (bytes > 0 ? new Promise(() => {}) : undefined) }],
    ["takes a byte now and then", { size: 1, pace: (bytes) => (bytes > 2000 ? delay(20) : undefined) }],
])
    test(`a client that ${what} is cut off, and the others get every event`, async (t) => {
        const flags = ["--write-timeout", "1s", "--trace", "json"];
        const gateway = await startGateway(t, { flags });
        const plan = { name: "held", tokens: 1024, pad: 16 * 1024, gates: [1] };
        const order = { body: asking(plan), headers: joining("held") };
        const good = new Taker(t, gateway.server, order);
        await until(() => good.last === 1, "the first event");
        const bad = new Taker(t, gateway.server, { ...order, ...taking });
        await until(() => bad.bytes > 0, "the other's first bytes");
        await gateway.backend.go("held");
        const { last, misses } = await good.end("all of it", 60_000);
        assert.deepEqual({ last, misses }, { last: expected(plan).length, misses: 0 });
        assert.equal(await gateway.metric("assist_sse_reader_cut_total"), 1);
        assert.match(gateway.server.stderr, /assist\.sse\.reader_cut/);
        assert.ok(!bad.ended);

        // It comes back as one that resumes, and is told of what it missed.
        const requestId = /"request_id":"([-\w]{36})"/.exec(gateway.server.stderr)[1];
        const late = await read(await gateway.resume(mint({ requestId, seq: bad.last })));
        assert.equal(late.named("gap").gap.reason, "trimmed");
        assertEvents(late.events, plan, Number(late.events[0].id));
    });

test("on one HTTP/2 connection the stream that is not read is reset, and the other is whole", async (t) => {
    const gateway = await startGateway(t, { flags: ["--write-timeout", "1s"] });
    const plan = { name: "h2", tokens: 512, pad: 8 * 1024, gates: [1] };
    const h2 = new H2(t, gateway.server);
    await new Promise((resolve) => h2.session.once("connect", resolve));
    h2.session.setLocalWindowSize(MIB);
    const ask = () =>
        h2.open("POST", PATH, { headers: joining("h2"), body: asking(plan) });
    const good = ask();
    await until(() => good.text.includes("id: 1\n"), "the first event");
    const bad = ask();
    await until(() => bad.text.includes("id: 1\n"), "the other's first event");
    bad.stream.pause();
    await gateway.backend.go("h2");
    assert.equal(await within(good.done, "all of it", 60_000), 0);
    const ids = [...good.text.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id));
    assert.deepEqual(ids, expected(plan).map(({ id }) => Number(id)));
    assert.equal(await gateway.metric("assist_sse_reader_cut_total"), 1);
    bad.stream.resume();
    assert.notEqual(await within(bad.done, "the reset"), 0);
});

test("a stop does not wait for who does not read", async (t) => {
    const gateway = await startGateway(t, { flags: ["--write-timeout", "1h"] });
    const plan = { name: "stopped", tokens: 4096, pad: 16 * 1024, gates: [1] };
    const reader = await gateway.post(plan);
    await read(reader, 1);
    reader.raw.pause();
    await gateway.backend.go("stopped");
    const sent = async () => (await gateway.backend.seen())[0].sent;
    let seen = 0;
    await until(async () => {
        await delay(300);
        const now = await sent();
        return now > 1 && now === seen ? true : void (seen = now);
    }, "the backend to stand still");
    const stopped = await within(gateway.stop(reader.headers["x-correlation-id"]), "the stop");
    assert.equal(stopped.json().status, "cancelled");
    reader.raw.resume();
    const story = await within(read(reader), "the rest", 60_000);
    assertEvents(story.events, plan, 2, 1 + story.events.length);
    assert.equal(story.named("end").reason, "cancelled");
});

// ---- gaps ----

test("npm openai raises where events are missing", async (t) => {
    const gateway = await startGateway(t, { routes });
    const plan = { name: "gap", dialect: "openai", tokens: 600 };
    const client = new OpenAI({ apiKey: "k", baseURL: `${gateway.base}/openai`, maxRetries: 0 });
    const ask = () =>
        client.chat.completions.create(
            { model: "m", messages: [{ role: "user", content: "go" }], stream: true, plan },
            { headers: { "Idempotency-Key": "gap" } },
        );
    let text = "";
    for await (const chunk of await ask()) text += chunk.choices[0]?.delta.content ?? "";
    assert.equal(text, wholeText(plan));
    text = "";
    await assert.rejects(
        async () => {
            for await (const chunk of await ask()) text += chunk.choices[0]?.delta.content ?? "";
        },
        (error) => {
            assert.ok(error instanceof OpenAI.APIError, String(error));
            assert.equal(error.code, "GAP");
            assert.match(error.message, /events of this answer are missing/);
            return true;
        },
    );
    assert.equal(text, "", "a part is not taken for the whole");
});

test("the AI SDK raises where events are missing", async (t) => {
    const gateway = await startGateway(t, { routes });
    const plan = { name: "gap", dialect: "ui-message", tokens: 600, gates: [500] };
    const reader = await gateway.post(plan, {}, { path: CHAT, id: "c" });
    await read(reader, 500);
    const transport = new DefaultChatTransport({ api: `${gateway.base}${CHAT}` });
    const stream = await transport.reconnectToStream({ chatId: "c" });
    const reading = async () => {
        for await (const _ of readUIMessageStream({ stream, terminateOnError: true }));
    };
    await assert.rejects(within(reading(), "an error"), /events of this answer are missing/);
    await gateway.backend.go("gap");
});
