// SPDX-License-Identifier: Apache-2.0
// Two servers over one Redis: what one of them runs is read, resumed and stopped through the other,
// what one leaves behind the other ends, and a client may go from one to the other at any time.
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
import { randomness } from "./lib/rand.mjs";
import { startSites } from "./lib/redis-site.mjs";
import { startCluster, startRedis } from "./lib/redis.mjs";
import { startServer } from "./lib/server.mjs";
import { ReliableClient } from "./lib/session-reliable.mjs";
import { TIDEMARK } from "./lib/session-schema.mjs";
import { startSessions } from "./lib/session-server.mjs";
import { eventsOf, startUpstream } from "./lib/session-upstream.mjs";
import { Peer, Session, WanderingPeer } from "./lib/session.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until, within } from "./lib/wait.mjs";

const LEASE_MS = 30_000; // how long a server is not taken for dead that says nothing
const MOVES = Number(process.env.TIDEMARK_MOVES ?? 30);
const KILLS = Math.ceil(MOVES / 3);

/** A Redis, a backend, and two gateways. */
async function startPair(t, options = {}, redis = undefined) {
    redis ??= await startRedis(t);
    const backend = await startBackend(t);
    const all = { backend, flags: ["--store", redis.url], ...options };
    return { redis, backend, one: await startGateway(t, all), two: await startGateway(t, all) };
}

const idOf = (reader) => reader.headers["x-correlation-id"];
const running = async (redis) =>
    (await redis.cli("--scan", "--pattern", "*:doc:*running/*")).split("\n").filter(Boolean).length;

test("what one server runs the other one reads and resumes, live", async (t) => {
    const { redis, backend, one, two } = await startPair(t);
    const plan = { name: "read", tokens: 20, gates: [5, 10] };
    const first = await one.post(plan);
    const begun = await read(first, 5);
    const elsewhere = await two.get(idOf(first));
    const resumed = await two.resume(begun.token, { "Last-Event-ID": "3" });
    const story = await read(elsewhere, 5);
    const rest = await read(resumed, 2);
    await backend.go("read");
    await read(elsewhere, 10, story);
    await backend.go("read");
    assertEvents((await read(elsewhere, Infinity, story)).events, plan);
    assertEvents((await read(resumed, Infinity, rest)).events, plan, 4);
    assertEvents((await read(first, Infinity, begun)).events, plan);
    assert.equal((await backend.seen()).length, 1);
    assertEvents((await read(await two.get(idOf(first)))).events, plan);
    await until(async () => (await running(redis)) === 0, "its document to go");
});

test("readers that change servers at every cut see each event once", async (t) => {
    const random = randomness(t);
    const { backend, one, two } = await startPair(t);
    const gateways = [one, two];
    let cuts = 0;
    const follow = async (n) => {
        const plan = { name: `follow-${n}`, tokens: 60, every: 10 };
        const reader = await gateways[n % 2].post(plan);
        const story = await read(reader, 1);
        const { token } = story;
        reader.raw.destroy();
        for (let at = n + 1; story.events.length < plan.tokens + 1; at++) {
            const last = { "Last-Event-ID": String(story.lastId) };
            const next = await gateways[at % 2].resume(token, last);
            const goal = story.events.length + 1 + random.below(25);
            // Its own notices come anew with each connection.
            const part = await read(next, Math.min(goal, plan.tokens + 1) - story.events.length);
            story.events.push(...part.events);
            next.raw.destroy();
            cuts++;
        }
        assertEvents(story.events, plan);
    };
    await Promise.all(Array.from({ length: 10 }, (_, n) => follow(n)));
    assert.equal((await backend.seen()).length, 10);
    t.diagnostic(`${cuts} cuts`);
});

test("a stop reaches the server that runs it", async (t) => {
    const { redis, backend, one, two } = await startPair(t);
    const plan = { name: "stop", tokens: 20, gates: [6] };
    const reader = await one.post(plan);
    const story = await read(reader, 6);
    const stopped = await two.stop(idOf(reader));
    assert.equal(stopped.status, 200, stopped.text);
    assert.equal(stopped.json().status, "cancelled");
    await within(read(reader, Infinity, story), "the answer to end");
    assertEvents(story.events, plan, 1, 6);
    assert.equal(story.named("end").reason, "cancelled");
    await until(async () => (await backend.seen())[0].closed, "the backend to be let go of");
    await until(async () => (await running(redis)) === 0, "its document to go");
    assert.equal((await one.stop(idOf(reader))).json().status, "cancelled");
});

test("one key asks once, whichever servers it comes to", async (t) => {
    const { backend, one, two } = await startPair(t);
    for (let n = 0; n < 10; n++) {
        const plan = { name: `key-${n}`, tokens: 5 };
        const key = { "Idempotency-Key": plan.name };
        const readers = await Promise.all([one, two, two, one].map((g) => g.post(plan, key)));
        assert.equal(new Set(readers.map(idOf)).size, 1);
        for (const reader of readers) assertEvents((await read(reader)).events, plan);
    }
    assert.equal((await backend.seen()).length, 10);
});

test("the same on a cluster: started, read, stopped and asked once across servers", async (t) => {
    const { backend, one, two } = await startPair(t, {}, await startCluster(t));
    for (let n = 0; n < 5; n++) {
        const plan = { name: `read-${n}`, tokens: 20, gates: [5] };
        const key = { "Idempotency-Key": plan.name };
        const readers = await Promise.all([one, two].map((g) => g.post(plan, key)));
        const stories = await Promise.all(readers.map((reader) => read(reader, 5)));
        await backend.go(plan.name);
        for (const [i, reader] of readers.entries())
            assertEvents((await read(reader, Infinity, stories[i])).events, plan);
    }
    assert.equal((await backend.seen()).length, 5);
    const plan = { name: "stop", tokens: 20, gates: [6] };
    const reader = await one.post(plan);
    const story = await read(reader, 6);
    assert.equal((await two.stop(idOf(reader))).json().status, "cancelled");
    await within(read(reader, Infinity, story), "the answer to end");
    assert.equal(story.named("end").reason, "cancelled");
    await until(async () => (await backend.seen()).at(-1).closed, "the backend to be let go of");
});

test("a chat goes on through the other server", async (t) => {
    const path = "/chat";
    const dialect = "ui-message";
    const { backend, one, two } = await startPair(t, { routes: { [path]: { dialect } } });
    const plan = { name: "chat", tokens: 12, dialect, gates: [5] };
    const chat = "c1/stream";
    assert.equal((await two.get(chat, {}, { path })).status, 204);
    const first = await one.post(plan, {}, { path, id: "c1" });
    const begun = await read(first, 5);
    const found = await until(async () => {
        const reader = await two.get(chat, {}, { path });
        return reader.status === 200 && reader;
    }, "the chat to be known");
    assert.equal(idOf(found), idOf(first));
    const story = await read(found, 5);
    await backend.go("chat");
    assertEvents((await read(found, Infinity, story)).events, plan);
    assertEvents((await read(first, Infinity, begun)).events, plan);
    await until(async () => (await two.get(chat, {}, { path })).status === 204, "its end");
});

test("a chat is stopped through the other server", async (t) => {
    const path = "/chat";
    const dialect = "ui-message";
    const { backend, one, two } = await startPair(t, { routes: { [path]: { dialect } } });
    const first = await one.post({ name: "chat", tokens: 12, dialect, gates: [5] }, {}, { path, id: "c1" });
    const story = await read(first, 5);
    const stopped = await until(async () => {
        const answer = await two.stop("c1", path);
        return answer.status === 200 && answer;
    }, "the chat to be known");
    assert.deepEqual(stopped.json(), { request_id: idOf(first), status: "cancelled" });
    await within(read(first, Infinity, story), "its end");
    assert.match(story.all.at(-2).data, /"abort"/);
    await until(async () => (await backend.seen())[0].closed, "the backend to be let go of");
    assert.equal((await two.stop("c1", path)).status, 204);
});

test("whoever waits for the first event gets the same status through both servers", async (t) => {
    const route = { "first-byte-timeout": "2s" };
    const { backend, one, two } = await startPair(t, { route });
    const mute = { name: "mute", mute: true };
    const key = { "Idempotency-Key": "k" };
    const first = one.post(mute, key);
    await until(async () => (await backend.seen()).length === 1, "the backend to be asked");
    const answers = await Promise.all([first, two.post(mute, key), one.post(mute, key)]);
    for (const answer of answers) {
        assert.equal(answer.status, 504, answer.text);
        assert.equal(answer.json().code, "UPSTREAM_TIMEOUT");
    }
    assert.equal((await backend.seen()).length, 1);
    const again = await two.post(mute, key);
    assert.equal(again.status, 504);
    assert.equal((await backend.seen()).length, 2, "nothing had come of the first");
});

test("a server that was killed leaves orphans, and no others", async (t) => {
    const { redis, one, two } = await startPair(t);
    const lost = { name: "lost", tokens: 20, gates: [4] };
    const kept = { name: "kept", tokens: 20, gates: [4] };
    const dying = await one.post(lost);
    const living = await two.post(kept);
    const keeper = await read(living, 4);
    await read(dying, 4);
    const reader = await two.get(idOf(dying));
    const story = await read(reader, 4);
    const killed = Date.now();
    await one.server.kill();
    await within(read(reader, Infinity, story), "its end", 3 * LEASE_MS);
    const took = Date.now() - killed;
    assertEvents(story.events, lost, 1, 4);
    assert.equal(story.named("end").reason, "orphaned");
    // It may have been seen for the last time a beat before it died.
    assert.ok(took > LEASE_MS - 7_000, `after ${took} ms, which is too early`);
    assert.equal((await two.get(idOf(dying))).status, 200);
    await two.backend.go("kept");
    assertEvents((await read(living, Infinity, keeper)).events, kept);
    assert.equal(keeper.named("end"), undefined);
    await until(async () => (await running(redis)) === 0, "all documents to go");
});

/** A client that opens each connection to another server than the one before. */
const wandering = (t, servers) =>
    new ReliableClient(
        new WanderingPeer(servers.map((server) => new Peer(t, server))),
        new Session(TIDEMARK),
    );

/** Says things for so many rounds; each is followed by trouble(). All of it is answered once. */
async function wander(t, { client, upstream, rounds, trouble }) {
    const random = randomness(t);
    const plans = [];
    const ended = client.run();
    for (let round = 0; round < rounds; round++) {
        for (let n = random.below(3); n >= 0; n--) {
            const plan = { name: `p${plans.length}`, events: 1 + random.below(4), pause: 5 };
            plans.push(plan);
            client.say(JSON.stringify(plan));
        }
        await delay(random.below(600));
        await trouble(random, round);
    }
    client.close();
    await within(ended, "all to be said and answered", 120_000);
    assert.deepEqual(client.events, plans.flatMap(eventsOf));
    const seqnos = upstream.of(client.session).map(({ key }) => Number(key.split("/")[1]));
    assert.deepEqual(
        seqnos,
        seqnos.toSorted((a, b) => a - b),
        "no chunk behind a later one",
    );
    assert.deepEqual([...new Set(seqnos)], [...plans.keys()]);
    t.diagnostic(
        `${client.connections} connections, ${plans.length} chunks, ${seqnos.length} requests, ` +
            `overtaken ${client.overtaken} times`,
    );
    assert.ok(client.connections >= rounds / 2);
}

for (const [where, start, rounds] of [
    ["one Redis", startRedis, MOVES],
    ["a cluster", startCluster, Math.ceil(MOVES / 3)],
])
    test(`a client changes servers ${rounds} times on ${where}: nothing is lost or told twice`, async (t) => {
        const { url } = await start(t);
        const upstream = await startUpstream(t);
        const options = { session: { upstream: upstream.url }, flags: ["--store", url] };
        const servers = [await startSessions(t, options), await startSessions(t, options)];
        const client = wandering(t, servers);
        const trouble = (random) => client.connected && client.cut(random.below(3) === 0);
        await wander(t, { client, upstream, rounds, trouble });
    });

test(`servers are killed in turn under a client that goes to the other, ${KILLS} times`, async (t) => {
    const redis = await startRedis(t);
    const upstream = await startUpstream(t);
    const file = join(await tempFolder(t), "tidemark.ini");
    await writeFile(file, `[session]\nupstream = ${upstream.url}\n`);
    const sites = await startSites(t, redis.url, 2, ["--config", file]);
    const client = wandering(t, sites);
    const trouble = (_, round) => sites[round % 2].restart("SIGKILL");
    await wander(t, { client, upstream, rounds: KILLS, trouble });
});

const subscription = (id, what = "") => `/v1/stream/__ds/subscriptions/${id}${what}`;
const json = (body, headers = {}) => ({
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
});

async function startTwo(t) {
    const redis = await startRedis(t);
    const flags = ["--store", redis.url, "--allow-loopback-targets"];
    return [await startServer(t, flags), await startServer(t, flags)];
}

test("each wake is delivered once, by one of the two", async (t) => {
    const [one, two] = await startTwo(t);
    const deliveries = [];
    const receiver = createServer(async (request, response) => {
        let body = "";
        for await (const piece of request) body += piece;
        deliveries.push(JSON.parse(body));
        response.writeHead(200, { "content-type": "application/json" });
        response.end(`{"done":true}`);
    });
    receiver.listen(0, "127.0.0.1");
    await once(receiver, "listening");
    defer(t, () => {
        receiver.close();
        receiver.closeAllConnections();
    });
    const url = `http://127.0.0.1:${receiver.address().port}/hook`;
    const made = await one.request(
        "PUT",
        subscription("hook"),
        json({ type: "webhook", pattern: "jobs/*", webhook: { url } }),
    );
    assert.equal(made.status, 201, made.text);
    await until(
        async () => (await two.request("GET", subscription("hook"))).status === 200,
        "the other one to know of it",
    );
    await delay(6_000); // until the other one looks for streams of it, too
    await one.create("jobs/1");
    let tail;
    for (let n = 0; n < 40; n++) {
        const answer = await (n % 2 ? one : two).append("jobs/1", JSON.stringify({ n }));
        tail = answer.headers["stream-next-offset"];
        await delay(n % 4 === 0 ? 60 : 0);
    }
    await until(async () => {
        const { streams } = (await two.request("GET", subscription("hook"))).json();
        return streams.find(({ path }) => path === "jobs/1")?.acked_offset === tail;
    }, "all to be acknowledged");
    const wakes = deliveries.map(({ wake_id }) => wake_id);
    assert.equal(new Set(wakes).size, wakes.length, "a wake was delivered twice");
    const generations = deliveries.map(({ generation }) => generation);
    assert.deepEqual(
        generations,
        generations.toSorted((a, b) => a - b),
    );
    t.diagnostic(`${wakes.length} wakes for 40 events`);
});

test("a lease holds through both servers, and outlives the one that gave it", async (t) => {
    const [one, two] = await startTwo(t);
    await one.create("wakes");
    const made = await one.request(
        "PUT",
        subscription("pull"),
        json({
            type: "pull-wake",
            pattern: "jobs/*",
            wake_stream: "wakes",
            lease_ttl_ms: 3000,
        }),
    );
    assert.equal(made.status, 201, made.text);
    await two.create("jobs/1");
    const tail = (await two.append("jobs/1", `{"n":1}`)).headers["stream-next-offset"];
    const claim = (server, worker) =>
        server.request("POST", subscription("pull", "/claim"), json({ worker }));
    const mine = await until(async () => {
        const answer = await claim(one, "a");
        return answer.status === 200 && answer.json();
    }, "a claim");
    const refused = await claim(two, "b");
    assert.equal(refused.status, 409, refused.text);
    assert.equal(refused.json().error.code, "ALREADY_CLAIMED");
    const bearer = { authorization: `Bearer ${mine.token}` };
    const body = { wake_id: mine.wake_id, generation: mine.generation };
    const renewed = await two.request(
        "POST",
        subscription("pull", "/ack"),
        json({ ...body, acks: [] }, bearer),
    );
    assert.equal(renewed.status, 200, renewed.text);
    await one.kill();
    assert.equal((await claim(two, "b")).status, 409);
    const next = await until(async () => {
        const answer = await claim(two, "b");
        return answer.status === 200 && answer.json();
    }, "the lease to be over");
    assert.ok(next.generation > mine.generation);
    const late = await two.request(
        "POST",
        subscription("pull", "/ack"),
        json({ ...body, acks: [{ stream: "jobs/1", offset: tail }] }, bearer),
    );
    assert.equal(late.status, 409, late.text);
    assert.equal(late.json().error.code, "FENCED");
});

test("answers go on without a store, and are recorded again when it is back", async (t) => {
    const { redis, backend, one } = await startPair(t);
    const before = { name: "before", tokens: 5 };
    assertEvents((await read(await one.post(before))).events, before);
    redis.signal("SIGSTOP");
    const plan = { name: "during", tokens: 5 };
    const reader = await one.post(plan);
    assert.equal(reader.headers["x-tidemark-degraded"], "store");
    assert.equal(reader.headers["x-resume-token"], undefined);
    const story = await read(reader);
    assert.deepEqual(story.events, []); // nothing has a number
    assert.equal(story.own.length, 6);
    const keyed = await one.post(plan, { "Idempotency-Key": "k" });
    assert.equal(keyed.status, 503);
    redis.signal("SIGCONT");
    const again = { name: "after", tokens: 5 };
    const recorded = await until(async () => {
        const answer = await one.post(again);
        if (answer.headers["x-tidemark-degraded"] === undefined) return answer;
        await read(answer);
        return null;
    }, "the store to be used again");
    assertEvents((await read(recorded)).events, again);
    const seen = (await backend.seen()).length;
    assert.ok((await one.metric("assist_sse_degraded_total")) >= 1);
    const keyedAgain = await one.post(plan, { "Idempotency-Key": "k" });
    assertEvents((await read(keyedAgain)).events, plan);
    assert.equal((await backend.seen()).length, seen + 1);
    // What Redis did after all of what was given up is found and ended.
    await until(async () => (await running(redis)) === 0, "nothing to be left over", 40_000);
});
