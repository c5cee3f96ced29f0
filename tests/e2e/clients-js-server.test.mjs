// SPDX-License-Identifier: Apache-2.0
// clients/js and the real server: chats of the AI SDK, streams and sessions, over connections that
// break and servers and programs that are killed. (sdk-matrix.test.mjs has the other SDKs.)
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";
import { wholeText } from "./lib/backend-plan.mjs";
import { installClient } from "./lib/clients-js.mjs";
import { defer } from "./lib/defer.mjs";
import { startFaults } from "./lib/faults.mjs";
import { startGateway } from "./lib/gateway.mjs";
import { Chat } from "./lib/sdk-calls.mjs";
import { startSessions, startSessionSite } from "./lib/session-server.mjs";
import { startServer } from "./lib/server.mjs";
import { startUpstream } from "./lib/session-upstream.mjs";
import { startSite } from "./lib/site.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until, within } from "./lib/wait.mjs";

const { installed, tidemark } = await installClient();
const { follow, resumableFetch, startReliableStream, TidemarkChatTransport } = tidemark;

/** Resets, FINs and cuts in turn, behind more and more bytes; every fourth connection lives. */
const trouble = (first, step) => (n) => {
    const kind = ["reset", "truncate", "cut"][n % 4];
    return kind ? [{ kind, side: "answer", at: first + step * n }] : [];
};

// ---- chats ----

const PATH = "/api/chat";
const startChats = (t) => startGateway(t, { routes: { [PATH]: { dialect: "ui-message" } } });

function chatAt(base, id, plan) {
    const body = { plan: { dialect: "ui-message", ...plan } };
    const transport = new TidemarkChatTransport({ api: `${base}${PATH}`, body });
    return { transport, chat: new Chat(id, transport) };
}

test("a chat over a connection that breaks is whole, and asked for once", async (t) => {
    const gateway = await startChats(t);
    const proxy = await startFaults(t, gateway.server.where, trouble(900, 100));
    const plan = { name: "cut", tokens: 60, every: 2 };
    const { chat } = chatAt(proxy.base, "c-1", plan);
    await within(chat.sendMessage({ text: "go" }), "the answer");
    assert.equal(chat.error, undefined);
    assert.equal(chat.status, "ready");
    assert.equal(chat.text, wholeText(plan));
    assert.ok(proxy.connections > 3, "it was cut");
    assert.equal((await gateway.backend.seen()).length, 1);
});

/** Starts an answer that waits in the middle. */
async function waiting(t, id) {
    const gateway = await startChats(t);
    const plan = { name: id, tokens: 30, gates: [12] };
    const page = chatAt(gateway.base, id, plan);
    const sending = page.chat.sendMessage({ text: "go" });
    await until(() => page.chat.text.length > 0, "the answer to begin");
    const closed = async () => (await gateway.backend.seen(id))[0].closed;
    return { gateway, plan, sending, closed, ...page };
}

test("stop() of the SDK stops the backend", async (t) => {
    const { chat, sending, closed } = await waiting(t, "stop");
    await chat.stop();
    await within(sending, "the page to be done");
    assert.equal(chat.status, "ready");
    await until(closed, "the backend's connection to be closed");
});

test("so it does before the answer has begun", async (t) => {
    const gateway = await startChats(t);
    const { chat } = chatAt(gateway.base, "early", { name: "early", tokens: 9, mute: true });
    const sending = chat.sendMessage({ text: "go" });
    await until(async () => (await gateway.backend.seen("early")).length === 1, "the question");
    await chat.stop();
    await within(sending, "the page to be done");
    const closed = async () => (await gateway.backend.seen("early"))[0].closed;
    await until(closed, "the backend's connection to be closed");
});

test("a page that is loaded again finds the answer, and can stop it", async (t) => {
    const { gateway, plan, closed } = await waiting(t, "reload");
    const later = chatAt(gateway.base, "reload", plan);
    const resumed = later.chat.resumeStream();
    await until(() => later.chat.text.length > 0, "the stream to be there");
    // An abort by a page that only reads is no stop: React mounts twice, and resumes twice.
    later.chat.resumeStream().catch(() => {});
    await delay(50);
    assert.equal(await closed(), false, "it goes on");
    assert.equal(await later.transport.stop("reload"), true);
    await within(resumed, "the stream to end");
    await until(closed, "the backend's connection to be closed");
    assert.equal(await later.transport.stop("reload"), false, "nothing is left to stop");
    assert.equal(await later.transport.reconnectToStream({ chatId: "reload" }), null);
});

test("an answer that the backend breaks off is an error, never half an answer", async (t) => {
    const gateway = await startChats(t);
    const { chat } = chatAt(gateway.base, "c-2", { name: "broken", tokens: 9, fate: "cut", at: 5 });
    await chat.sendMessage({ text: "go" });
    assert.equal(chat.status, "error");
});

test("an answer that is no longer there is an error", async (t) => {
    const routes = { [PATH]: { dialect: "ui-message", "state-ttl": "1ms", "snapshot-ttl": "1ms" } };
    const gateway = await startGateway(t, { routes });
    const faults = (n) => (n === 0 ? [{ kind: "cut", side: "answer", at: 900 }] : []);
    const proxy = await startFaults(t, gateway.server.where, faults);
    const late = async (url, init) => {
        if (init.method !== "POST")
            await until(async () => (await fetch(url)).status === 404, "the events to expire");
        return fetch(url, init);
    };
    const plan = { name: "late", dialect: "ui-message", tokens: 30 };
    const ask = resumableFetch({ fetch: late });
    const init = { method: "POST", body: JSON.stringify({ id: "c", plan }) };
    const response = await ask(`${proxy.base}${PATH}`, init);
    await assert.rejects(within(response.text(), "the end"), (error) => {
        assert.ok(error instanceof TypeError);
        assert.match(error.message, /^network error: .* 404 /);
        return true;
    });
});

// ---- streams ----

const JSON_TYPE = { "Content-Type": "application/json" };
const post = (url, body, headers = {}) =>
    fetch(url, { method: "POST", headers: { ...JSON_TYPE, ...headers }, body });

async function collect(url, options) {
    const items = [];
    let last;
    for await (last of follow(url, options)) items.push(...last.data);
    return { items, last };
}

for (const live of ["sse", "long-poll"])
    test(`a stream is followed by ${live} over connections that break`, async (t) => {
        const server = await startServer(t, ["--store", "memory"]);
        const proxy = await startFaults(t, server.where, trouble(700, 60));
        const url = server.url(`followed-${live}`);
        await fetch(url, { method: "PUT", headers: JSON_TYPE });
        for (let n = 0; n < 50; n++) await post(url, String(n));
        const followed = collect(url.replace(server.base, proxy.base), { live, longestWaitMs: 50 });
        for (let n = 50; n < 150; n++) await post(url, String(n));
        await post(url, "150", { "Stream-Closed": "true" });
        const { items, last } = await within(followed, "the end");
        assert.deepEqual(
            items,
            Array.from({ length: 151 }, (_, n) => n),
        );
        assert.deepEqual([last.closed, last.endReason], [true, "completed"]);
        assert.ok(proxy.connections > 2, "it was cut");
    });

test("a stream is followed through a server that is killed", async (t) => {
    const site = await startSite(t);
    const url = site.url("killed");
    await fetch(url, { method: "PUT", headers: JSON_TYPE });
    const followed = collect(url, { longestWaitMs: 100 });
    for (let n = 0; n < 4; n++) {
        for (let i = 0; i < 10; i++) await post(url, String(n * 10 + i));
        await site.restart("SIGKILL");
    }
    await post(url, "40", { "Stream-Closed": "true" });
    const { items } = await within(followed, "the end");
    assert.deepEqual(
        items,
        Array.from({ length: 41 }, (_, n) => n),
    );
});

test("a stream that has lost events says which", async (t) => {
    const server = await startServer(t, ["--store", "memory"]);
    const url = server.url("trimmed");
    const headers = { ...JSON_TYPE, "Stream-Retain-Events": "2" };
    await fetch(url, { method: "PUT", headers });
    await post(url, "1");
    const { value } = await follow(url).next();
    for (let n = 2; n < 9; n++) await post(url, String(n));
    const gap = await until(async () => {
        const error = await follow(url, { offset: value.offset })
            .next()
            .catch((reason) => reason);
        return error.gap && error;
    }, "events to be trimmed");
    assert.equal(gap.name, "StreamError");
    assert.deepEqual([gap.status, gap.gap.reason], [410, "trimmed"]);
    const { value: rest } = await follow(url, { offset: gap.gap.earliest }).next();
    assert.ok(rest.data.includes(8));
});

// ---- sessions ----

async function converse(stream, lines) {
    const texts = [];
    const listening = (async () => {
        for await (const { text, isVerified } of stream) {
            assert.ok(isVerified);
            texts.push(text);
        }
    })();
    await within(Promise.all(lines.map((line) => stream.send(line))), "acknowledgements");
    await within(stream.close(), "the end");
    await within(listening, "the last event");
    return texts;
}

const lines = (count) => Array.from({ length: count }, (_, n) => `line ${n}`);

test("a session over connections that break", async (t) => {
    const server = await startSessions(t);
    const proxy = await startFaults(t, server.where, trouble(250, 20));
    const stream = await startReliableStream({ url: proxy.base, reconnectMs: 20 });
    assert.deepEqual(await converse(stream, lines(100)), lines(100));
    const { counts } = proxy;
    assert.ok(counts.reset + counts.truncate + counts.cut > 3, JSON.stringify(counts));
});

test("a session through a server that is killed: every chunk is answered once", async (t) => {
    const upstream = await startUpstream(t);
    const site = await startSessionSite(t, { session: { upstream: upstream.url } });
    const stream = await startReliableStream({ url: site.base, reconnectMs: 20 });
    const plans = lines(60).map((name) => JSON.stringify({ name, pause: 5 }));
    const talking = converse(stream, plans);
    for (let n = 1; n <= 3; n++) {
        await until(() => upstream.requests.length >= 15 * n, "the backend to be asked");
        await site.restart("SIGKILL");
    }
    const answers = lines(60).map((name) => `${name}-1`);
    assert.deepEqual(await talking, answers);
    const asked = new Set(upstream.requests.map(({ key }) => key));
    assert.equal(asked.size, 60, "a chunk keeps its name when it is asked about again");
});

test("a key that is not the session's ends it", async (t) => {
    const server = await startSessions(t);
    const first = await startReliableStream({ url: server.base, key: "mine" });
    await first.send("a");
    const thief = await startReliableStream({ url: server.base, key: "mine" });
    await assert.rejects(within(thief.done, "the refusal"), { code: "permission_denied" });
    await first.abort();
});

test("a program that is killed again and again misses nothing", async (t) => {
    const server = await startSessions(t);
    const folder = await tempFolder(t);
    const transcript = join(folder, "transcript");
    const program = fileURLToPath(new URL("lib/session-program.mjs", import.meta.url));
    const module = pathToFileURL(join(installed, "src/index.js")).href;
    const args = [program, module, server.base, join(folder, "state"), "120", transcript];
    const texts = async () =>
        (await readFile(transcript, "utf8").catch(() => "")).split("\n").filter((line) => line);
    let kills = 0;
    for (let goal = 15; ; goal += 15) {
        const child = spawn(process.execPath, args, { stdio: ["ignore", "ignore", "inherit"] });
        defer(t, () => child.kill("SIGKILL"));
        const ended = once(child, "close");
        const isOver = () => child.exitCode !== null || child.signalCode !== null;
        await until(async () => isOver() || (await texts()).length >= goal, `${goal} answers`);
        if (child.exitCode === 0) break;
        assert.equal(child.exitCode, null, "it ended by itself");
        child.kill("SIGKILL");
        await ended;
        kills++;
    }
    assert.ok(kills > 2, `${kills} kills`);
    const heard = new Map((await texts()).map((line) => line.match(/^(\d+) (.*)$/).slice(1)));
    assert.deepEqual(
        [...heard.keys()].map(Number).sort((a, b) => a - b),
        Array.from({ length: heard.size }, (_, n) => n + 1),
        "every event",
    );
    // A line that was acknowledged but not written down is said twice, by the program itself.
    assert.deepEqual(new Set(heard.values()), new Set(lines(120)));
    assert.ok(heard.size <= 120 + kills, `${heard.size} events`);
});
