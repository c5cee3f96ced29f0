// SPDX-License-Identifier: Apache-2.0
// Redis stands still for longer than an operation waits, or is killed and comes back, while answers,
// sessions, results of tools and polled resources are being written: all of it is there once, and
// nobody is told of a stranger. TIDEMARK_REDIS_STALLS=full tries more and longer ones.
import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { startBackend } from "./lib/backend.mjs";
import { defer } from "./lib/defer.mjs";
import { assertEvents, read, startGateway } from "./lib/gateway.mjs";
import { assertFailed, assertResult, openWire, rowsUpTo, startPages } from "./lib/pages.mjs";
import { startRedis } from "./lib/redis.mjs";
import { startServer } from "./lib/server.mjs";
import { ReliableClient } from "./lib/session-reliable.mjs";
import { TIDEMARK } from "./lib/session-schema.mjs";
import { startSessions } from "./lib/session-server.mjs";
import { eventsOf, startUpstream } from "./lib/session-upstream.mjs";
import { Peer, Session } from "./lib/session.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until, within } from "./lib/wait.mjs";

const FULL = process.env.TIDEMARK_REDIS_STALLS === "full";
const LIMIT_MS = 5_000; // an operation on Redis is given up then
const BEFORE_MS = 1_000;
const ANSWER_MS = 60_000;

/** An answer whose client stays. */
async function startAnswer(t, store) {
    const backend = await startBackend(t);
    const gateway = await startGateway(t, { backend, flags: store });
    const plan = { name: "whole", tokens: 60, every: 50 };
    const reader = await gateway.post(plan);
    const all = read(reader);
    return async () => {
        const story = await within(all, "the answer", ANSWER_MS);
        assertEvents(story.events, plan);
        const id = reader.headers["x-correlation-id"];
        assertEvents((await read(await gateway.get(id))).events, plan);
    };
}

/** A session that talks before, during and after it. */
async function startTalk(t, store) {
    const upstream = await startUpstream(t);
    const server = await startSessions(t, { session: { upstream: upstream.url }, flags: store });
    const client = new ReliableClient(new Peer(t, server), new Session(TIDEMARK));
    const plans = [];
    const say = () => {
        const plan = { name: `p${plans.length}`, events: 10, pause: 20 };
        plans.push(plan);
        client.say(JSON.stringify(plan));
    };
    const ended = client.run();
    ended.catch(() => {}); // it is awaited below
    defer(t, () => client.stop());
    say();
    const timer = setInterval(say, 400);
    defer(t, () => clearInterval(timer));
    return async () => {
        clearInterval(timer);
        client.close();
        await within(ended, "the session to end", ANSWER_MS);
        assert.deepEqual(client.events, plans.flatMap(eventsOf));
        assert.equal(client.overtaken, 0, "nobody else has it");
        return client.connections;
    };
}

/** A result that is being made, whose pages are asked for one after the other. */
async function startResult(t, store) {
    const rows = `i=0; while [ $i -lt 300 ]; do echo "{\\"row\\":$i}"; i=$((i+1)); sleep 0.01; done`;
    const folder = await tempFolder(t);
    const script = join(folder, "slow");
    await writeFile(script, `#!/bin/sh\n${rows}\n`, { mode: 0o755 });
    const tools = { "tool slow": { command: script, "page-rows": 20 } };
    const wire = await openWire(t, await startPages(t, tools, { flags: store }));
    const all = (async () => {
        /** A page that Redis kept waiting for too long says so, and may be asked for again. */
        const ask = async (message) => {
            for (;;) {
                const answer = await wire.ask({ tool_id: "slow", ...message }, ANSWER_MS);
                if (answer.success) return assertResult(answer, "slow");
                assert.ok(assertFailed(answer, /cannot be read: the store/).retryable);
            }
        };
        const pages = [await ask({ type: "run_tool", args: {}, dry_run: false })];
        while (pages.at(-1).next_cursor !== undefined)
            pages.push(await ask({ type: "run_tool_continue", cursor: pages.at(-1).next_cursor }));
        return pages.flatMap(({ result }) => result);
    })();
    all.catch(() => {});
    return async () => assert.deepEqual(await all, rowsUpTo(300));
}

/** A text that grows, and is polled. */
async function startPolling(t, store) {
    let text = "";
    const resource = createServer((request, response) => response.end(text));
    resource.listen(0, "127.0.0.1");
    await once(resource, "listening");
    defer(t, () => {
        resource.closeAllConnections();
        resource.close();
    });
    const timer = setInterval(() => (text += `line ${text.length}\n`), 50);
    defer(t, () => clearInterval(timer));
    const file = join(await tempFolder(t), "tidemark.ini");
    const url = `http://127.0.0.1:${resource.address().port}/`;
    const settings = `url = ${url}\nmode = append\nalways = yes\nevery = 100ms\nslowest = 200ms\n`;
    await writeFile(file, `[poll text]\n${settings}`);
    const server = await startServer(t, ["--config", file, ...store]);
    return async () => {
        clearInterval(timer);
        let got;
        await until(
            async () => {
                // A read ends where Redis began anew, so that there may be several arrays.
                const body = (await server.readAll("poll/text")).replaceAll("][", ",");
                const events = JSON.parse(body);
                got = events.map((event) => event.text ?? JSON.stringify(event)).join("");
                return got.length >= text.length;
            },
            "all of the text",
            ANSWER_MS,
        );
        assert.equal(got, text);
    };
}

async function troubled(t, redis, trouble) {
    const store = ["--store", redis.url];
    const starts = [startAnswer, startTalk, startResult, startPolling];
    const finishes = await Promise.all(starts.map((start) => start(t, store)));
    await delay(BEFORE_MS);
    await trouble();
    await delay(BEFORE_MS);
    const [, connections] = await Promise.all(finishes.map((finish) => finish()));
    t.diagnostic(`${connections} connections of the session`);
}

for (const ms of FULL ? [3_000, 8_000, 20_000] : [LIMIT_MS + 1_500])
    test(`Redis stands still for ${ms} ms`, async (t) => {
        const redis = await startRedis(t);
        await troubled(t, redis, async () => {
            redis.signal("SIGSTOP");
            await delay(ms);
            redis.signal("SIGCONT");
        });
    });

for (const ms of FULL ? [0, 3_000, 8_000, 20_000] : [])
    test(`Redis is killed and away for ${ms} ms`, async (t) => {
        const redis = await startRedis(t, { appendfsync: "always" });
        await troubled(t, redis, async () => {
            await redis.kill();
            await delay(ms);
            await redis.start();
        });
    });
