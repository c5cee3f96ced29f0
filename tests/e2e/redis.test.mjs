// SPDX-License-Identifier: Apache-2.0
// Two servers over one Redis, and what may happen to it: nothing acknowledged is lost or doubled, and
// what is lost for good is told. TIDEMARK_REDIS_KILLS=n kills more often.
import assert from "node:assert/strict";
import { cp, readFile, rm } from "node:fs/promises";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { readFrom } from "./lib/load.mjs";
import { startBackend } from "./lib/backend.mjs";
import { assertEvents, PATH, read, startGateway, Story } from "./lib/gateway.mjs";
import { hire, hireProducers, some, startSites, writeThrough } from "./lib/redis-site.mjs";
import { startCluster, startRedis, startSentinels } from "./lib/redis.mjs";
import { startServer } from "./lib/server.mjs";
import { TIDEMARK } from "./lib/session-schema.mjs";
import { startSessions } from "./lib/session-server.mjs";
import { assertRefused, Code, Peer, Session } from "./lib/session.mjs";
import { openSse } from "./lib/sse.mjs";
import { until, within } from "./lib/wait.mjs";

const KILLS = Number(process.env.TIDEMARK_REDIS_KILLS ?? 4);
const STALL_MS = Number(process.env.TIDEMARK_REDIS_STALL_MS ?? 3_000);

test(`Redis is killed ${KILLS} times under load`, async (t) => {
    const redis = await startRedis(t, { appendfsync: "always" });
    const sites = await startSites(t, redis.url);
    const writers = await hire(t, sites);
    await writeThrough(t, sites, writers, async () => {
        for (let n = 0; n < KILLS; n++) {
            await some(sites, 100);
            await redis.kill();
            await delay(100 * (n % 3));
            await redis.start();
        }
        await some(sites, 100);
    });
    const repeats = writers.reduce((sum, { repeats = 0 }) => sum + repeats, 0);
    t.diagnostic(`${repeats} repeats`);
});

test("Redis stands still and goes on", async (t) => {
    const redis = await startRedis(t);
    const sites = await startSites(t, redis.url);
    const writers = await hireProducers(t, sites);
    await writeThrough(t, sites, writers, async () => {
        await some(sites, 50);
        redis.signal("SIGSTOP");
        await delay(STALL_MS);
        redis.signal("SIGCONT");
        await some(sites, 50);
    });
});

test("without a prefix the keys begin with sse:", async (t) => {
    const redis = await startRedis(t);
    const store = ["--store", `${redis.url}?prefix=`];
    const gateway = await startGateway(t, { flags: store });
    const plan = { name: "bare", tokens: 3 };
    const { events } = await read(await gateway.post(plan));
    assertEvents(events, plan);
    await gateway.idle();
    const other = await startServer(t, store);
    await other.create("seen");
    const reader = await openSse(t, gateway.server, "seen?offset=-1&live=sse");
    assert.equal((await reader.next()).event, "control", "it waits at the tail");
    await other.append("seen", '"by another process"');
    assert.equal((await reader.next()).event, "data", "wake-ups come as well");

    const keys = (await redis.cli("KEYS", "*")).split("\n");
    for (const kind of ["state", "buffer", "snapshot"]) {
        const own = new RegExp(`^sse:${kind}:\\{\\.route${PATH}/.*\\}`);
        assert.ok(keys.some((key) => own.test(key)), `${kind} of the generation in ${keys}`);
    }
    assert.deepEqual(
        keys.filter((key) => key.startsWith(":") || key.startsWith("tidemark")),
        [],
    );
});

test("connections are cut under load", async (t) => {
    const redis = await startRedis(t);
    const sites = await startSites(t, redis.url);
    const writers = await hire(t, sites);
    await writeThrough(t, sites, writers, async () => {
        for (let n = 0; n < 10; n++) {
            await some(sites, 20);
            await redis.cli("CLIENT", "KILL", "TYPE", n % 2 ? "pubsub" : "normal", "SKIPME", "yes");
        }
    });
});

test("a tidemark is killed under load, and the other one goes on", async (t) => {
    const redis = await startRedis(t);
    const sites = await startSites(t, redis.url);
    const writers = await hire(t, sites);
    await writeThrough(t, sites, writers, async () => {
        for (let n = 0; n < 4; n++) {
            await some(sites, 50);
            await sites[n % 2].restart("SIGKILL");
        }
    });
});

test("what is written through one is followed through the other", async (t) => {
    const redis = await startRedis(t);
    const [one, two] = (await startSites(t, redis.url)).map(({ server }) => server);
    await one.create("talk");
    const reader = await openSse(t, two, "talk?offset=-1&live=sse");
    const seen = [];
    const reading = (async () => {
        while (seen.length < 200) seen.push(...JSON.parse((await reader.event("data")).data));
    })();
    for (let n = 0; n < 200; n++) {
        await one.append("talk", String(n));
        if (n % 50 === 25) await redis.cli("CLIENT", "KILL", "TYPE", "pubsub");
    }
    await until(() => seen.length >= 200, "all of them");
    await reading;
    assert.deepEqual(seen, Array.from({ length: 200 }, (_, n) => n));
    const offset = (await two.stream("HEAD", "talk")).headers["stream-next-offset"];
    await two.append("talk", "200");
    const rest = await one.stream("GET", `talk?offset=${offset}`);
    assert.deepEqual(rest.json(), [200], "and an offset of one is good at the other");
    reader.raw.destroy();
});

test("a Redis that comes back with older data: the loss is told", async (t) => {
    const redis = await startRedis(t, { appendfsync: "always" });
    const server = await startServer(t, ["--store", redis.url]);
    await server.create("story");
    await server.append("story", "1");
    const kept = (await server.stream("HEAD", "story")).headers["stream-next-offset"];
    await redis.kill();
    await cp(redis.folder, `${redis.folder}.old`, { recursive: true });
    await redis.start();
    await until(async () => (await server.stream("HEAD", "story")).status === 200, "it to be back");
    const claim = { "producer-id": "p", "producer-epoch": "0" };
    await server.append("story", "2", undefined, { ...claim, "producer-seq": "0" });
    await server.append("story", "3", undefined, { ...claim, "producer-seq": "1" });
    const lost = (await server.stream("HEAD", "story")).headers["stream-next-offset"];
    await redis.kill();
    await rm(redis.folder, { recursive: true });
    await cp(`${redis.folder}.old`, redis.folder, { recursive: true });
    await rm(`${redis.folder}.old`, { recursive: true });
    await redis.start();
    const gone = await until(async () => {
        const answer = await server.stream("GET", `story?offset=${lost}`);
        return answer.status !== 503 && answer;
    }, "it to be back");
    assert.equal(gone.status, 410, gone.text);
    assert.equal(gone.json().gap.requested, lost);
    const headers = { "content-type": "application/json", ...claim, "producer-seq": "2" };
    const next = await server.stream("POST", "story", { headers, body: "4" });
    assert.equal(next.status, 409, "the producer is told, too");
    assert.equal(next.headers["producer-expected-seq"] ?? "0", "0");
    // New events, more than were lost, do not make the old offset good again.
    for (let n = 0; n < 50; n++) await server.append("story", `"new ${n}"`);
    const still = await server.stream("GET", `story?offset=${lost}`);
    assert.equal(still.status, 410, still.text);
    const good = await server.stream("GET", `story?offset=${kept}`);
    assert.equal(good.status, 200, good.text);
    assert.equal(good.json().length, 50);
    assert.equal(good.json()[0], "new 0");
    assert.equal((await readFrom(server, "story", true)).values.length, 51);
});

test("a Redis that comes back with older data: answers and sessions do not go on as if it had not", async (t) => {
    const redis = await startRedis(t, { appendfsync: "always" });
    const old = `${redis.folder}.old`;
    const backend = await startBackend(t);
    const gateway = await startGateway(t, { backend, flags: ["--store", redis.url] });
    const sessions = await startSessions(t, { flags: ["--store", redis.url] });
    const session = new Session(TIDEMARK);
    const peer = new Peer(t, sessions);
    const plan = { name: "lost", tokens: 30, gates: [5, 10, 15] };
    const reader = await gateway.post(plan);
    const story = await read(reader, 5);
    const call = peer.open(session);
    await call.chunk(0, "kept").seen(1);

    await redis.kill();
    await cp(redis.folder, old, { recursive: true });
    await redis.start();
    await backend.go("lost");
    await within(read(reader, 10, story), "more of the answer");
    await call.chunk(1, "lost").seen(2);
    peer.cut();

    await redis.kill();
    await rm(redis.folder, { recursive: true });
    await cp(old, redis.folder, { recursive: true });
    await rm(old, { recursive: true });
    await redis.start();
    reader.raw.destroy();
    const again = await until(async () => {
        const answer = await gateway.resume(story.token, { "Last-Event-ID": "10" });
        return answer.status !== 503 && answer;
    }, "it to be back");
    const rest = new Story();
    const reading = read(again, Infinity, rest);
    await backend.go("lost");
    await within(reading, "its end");
    assert.equal(rest.all.find(({ event }) => event !== "resume").event, "gap");
    assertEvents(rest.events, plan, 1, 5); // what there is, and nothing new under a lost number
    assert.equal(rest.named("end").reason, "failed");
    const refused = await until(async () => {
        const error = await peer.open(session, { position: "2" }).ended();
        return error.code !== Code.Unavailable && error;
    }, "the session to be refused");
    assertRefused(refused, Code.OutOfRange);
});

test("a Sentinel failover under load, waiting for the replica", async (t) => {
    const pair = await startSentinels(t);
    const sites = await startSites(t, `${pair.url}?wait=1`);
    const writers = await hireProducers(t, sites);
    await writeThrough(t, sites, writers, async () => {
        await some(sites, 50);
        await pair.primary.kill();
        await until(
            async () => (await pair.replica.info("role")) === "master",
            "the replica to be promoted",
        );
        // Nobody is left to wait for until there is another replica.
        await pair.primary.start();
        await pair.primary.cli("REPLICAOF", "127.0.0.1", String(pair.replica.port));
        await some(sites, 50);
    });
});

test("a replica that is away: nothing is acknowledged, and reads go on", async (t) => {
    const redis = await startRedis(t, { flags: ["--repl-diskless-sync-delay", "0"] });
    const flags = ["--replicaof", "127.0.0.1", String(redis.port)];
    const replica = await startRedis(t, { flags });
    await until(async () => (await redis.info("slave0"))?.includes("state=online"), "the replica");
    const server = await startServer(t, ["--store", `${redis.url}?wait=1`]);
    await server.create("a");
    await server.append("a", "0");
    replica.signal("SIGSTOP");
    const headers = { "content-type": "application/json" };
    const posts = Array.from({ length: 16 }, () =>
        server.stream("POST", "a", { headers, body: "1" }),
    );
    for (let n = 0; n < 5; n++) {
        const read = await server.stream("GET", "a?offset=-1");
        assert.equal(read.status, 200, read.text);
    }
    for (const post of posts) assert.equal((await post).status, 503);
    replica.signal("SIGCONT");
    await until(
        async () => (await server.stream("POST", "a", { headers, body: "2" })).status === 204,
        "it to recover",
    );
});

test("a cluster of three", async (t) => {
    const cluster = await startCluster(t);
    const sites = await startSites(t, cluster.url);
    const writers = await hire(t, sites);
    await writeThrough(t, sites, writers, () => some(sites, 150));
    const [one, two] = sites.map(({ server }) => server);
    const used = await Promise.all(cluster.nodes.map((node) => node.cli("DBSIZE")));
    assert.ok(used.every((size) => Number(size.replace(/\D/g, "")) > 0), `keys: ${used}`);
    // A fork lives with its source, wherever its own name would be.
    await one.create("source");
    for (let n = 0; n < 5; n++) await one.append("source", String(n));
    for (let n = 0; n < 8; n++) {
        const headers = { "stream-forked-from": "source" };
        const fork = await two.stream("PUT", `fork-${n}`, { headers });
        assert.equal(fork.status, 201, fork.text);
        await one.append(`fork-${n}`, String(100 + n));
    }
    for (let n = 0; n < 8; n++)
        assert.deepEqual(JSON.parse(await one.readAll(`fork-${n}`)), [0, 1, 2, 3, 4, 100 + n]);
    const { streams } = (await one.request("GET", "/v1/stream/?prefix=fork-&limit=100")).json();
    assert.equal(streams.length, 8);
    const reader = await openSse(t, two, "source?offset=now&live=sse");
    await reader.control();
    await one.append("source", "5");
    assert.deepEqual(JSON.parse((await reader.event("data")).data), [5]);
    reader.raw.destroy();
});

// ---- troubles that answer with an error ----

test("no memory: 507, reads go on, and it recovers", async (t) => {
    const redis = await startRedis(t);
    const server = await startServer(t, ["--store", redis.url]);
    await server.create("a");
    await server.append("a", "1");
    await redis.cli("CONFIG", "SET", "maxmemory", "1");
    const post = () =>
        server.stream("POST", "a", { headers: { "content-type": "application/json" }, body: "2" });
    const full = await post();
    assert.equal(full.status, 507, full.text);
    assert.equal(await server.readAll("a"), "[1]");
    await redis.cli("CONFIG", "SET", "maxmemory", "0");
    await until(async () => (await post()).status === 204, "it to recover");
    assert.deepEqual(JSON.parse(await server.readAll("a")), [1, 2]);
});

test("a primary that became a replica: 503, and it recovers", async (t) => {
    const redis = await startRedis(t);
    const server = await startServer(t, ["--store", redis.url]);
    await server.create("a");
    await redis.cli("REPLICAOF", "127.0.0.1", "1");
    const headers = { "content-type": "application/json" };
    const post = (body) => server.stream("POST", "a", { headers, body });
    const refused = await post("1");
    assert.equal(refused.status, 503, refused.text);
    assert.ok(refused.headers["retry-after"]);
    await redis.cli("REPLICAOF", "NO", "ONE");
    await until(async () => (await post("2")).status === 204, "it to recover");
    assert.deepEqual(JSON.parse(await server.readAll("a")), [2]);
});

test("no Redis at the start: it is waited for", async (t) => {
    const redis = await startRedis(t);
    await redis.kill();
    const server = await startServer(t, ["--store", redis.url]);
    const answer = await server.stream("PUT", "a", {
        headers: { "content-type": "application/json" },
    });
    assert.equal(answer.status, 503, answer.text);
    await redis.start();
    await until(
        async () =>
            (await server.stream("PUT", "a", { headers: { "content-type": "application/json" } }))
                .status === 201,
        "it to recover",
    );
});

test("a wrong password is said clearly, and not shown", async (t) => {
    const redis = await startRedis(t);
    await redis.cli("CONFIG", "SET", "requirepass", "right");
    const url = redis.url.replace("redis://", "redis://:wr0ng-secret@");
    const server = await startServer(t, ["--store", url]);
    await until(() => /WRONGPASS|password|AUTH/i.test(server.stderr), "a word about it");
    assert.doesNotMatch(server.stderr, /wr0ng-secret/);
});

// ---- cost and rights ----

test("an append is one call, and a short one", async (t) => {
    const redis = await startRedis(t);
    const server = await startServer(t, ["--store", redis.url]);
    await server.create("a");
    await server.append("a", "0");
    await redis.cli("CONFIG", "RESETSTAT");
    for (let n = 0; n < 100; n++) await server.append("a", String(n));
    const stats = await redis.cli("INFO", "commandstats");
    const calls = Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)[1]);
    assert.equal(calls, 100, stats);
    // Not the slowest one: Redis's time goes on while others have the processor.
    const times = await redis.info("latency_percentiles_usec_evalsha");
    assert.ok(Number(/p50=([\d.]+)/.exec(times)[1]) < 10_000, times);
});

/** The words of the command that docs/redis.md shows, with this password. */
async function documentedRights(password) {
    const text = await readFile(new URL("../../docs/redis.md", import.meta.url), "utf8");
    const line = /^ACL SETUSER (?:.*\\\n)*.*$/m.exec(text)?.[0];
    assert.ok(line, "docs/redis.md has an ACL SETUSER line");
    const words = line.replace(/\\\n/g, " ").split(/\s+/);
    return words.map((word) => (word.startsWith(">") ? `>${password}` : word));
}

/** Some of everything through a user with those rights; no node of this Redis may deny any. */
async function workWithRights(t, nodes, url) {
    const words = await documentedRights("pw");
    for (const node of nodes) assert.equal(await node.cli(...words), "OK");
    const known = url.replace("://", `://${words[2]}:pw@`);
    const sites = await startSites(t, known, 2, ["--allow-loopback-targets"]);
    const writers = await hire(t, sites);
    await writeThrough(t, sites, writers, () => some(sites, 50));
    const [one, two] = sites.map(({ server }) => server);
    await one.create("source", "application/json", { headers: { "stream-ttl": "60" } });
    for (let n = 0; n < 20; n++) await one.append("source", String(n));
    const headers = { "stream-forked-from": "source", "stream-retain-events": "2" };
    assert.equal((await two.stream("PUT", "fork", { headers })).status, 201);
    for (let n = 0; n < 20; n++) await two.append("fork", String(n));
    const hook = { type: "webhook", pattern: "jobs/*", webhook: { url: "http://127.0.0.1:1/" } };
    const made = await one.request("PUT", "/v1/stream/__ds/subscriptions/hook", {
        headers: { "content-type": "application/json" },
        body: JSON.stringify(hook),
    });
    assert.equal(made.status, 201, made.text);
    assert.equal((await two.stream("DELETE", "source")).status, 204);
    assert.equal((await one.request("GET", "/v1/stream/?limit=100")).status, 200);
    for (const node of nodes) assert.equal(await node.cli("ACL", "LOG"), "", "what was denied");
}

test("the rights that the document asks for are enough, and no more than needed", async (t) => {
    const redis = await startRedis(t);
    await workWithRights(t, [redis], redis.url);
    const user = (await documentedRights(""))[2];
    for (const denied of [["GET", "foreign"], ["PUBLISH", "foreign", ""], ["KEYS", "*"]])
        assert.match(await redis.cli("ACL", "DRYRUN", user, ...denied), /permission/);
});

test("they are enough for a cluster", async (t) => {
    const cluster = await startCluster(t);
    await workWithRights(t, cluster.nodes, cluster.url);
});
