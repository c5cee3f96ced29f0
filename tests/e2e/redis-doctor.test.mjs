// SPDX-License-Identifier: Apache-2.0
// `tidemark doctor redis://...`: what this Redis promises, said before it matters.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startRedis } from "./lib/redis.mjs";
import { tidemark } from "./lib/run.mjs";
import { freePort } from "./lib/server.mjs";

async function consult(t, url, code) {
    const result = await tidemark(t, ["doctor", url]);
    assert.equal(result.code, code, result.stdout + result.stderr);
    return result.stdout + result.stderr;
}

test("each way of syncing has its promise", async (t) => {
    const redis = await startRedis(t, { appendfsync: "always" });
    assert.match(await consult(t, redis.url, 0), /survives kill -9 of Redis and a power cut/);
    await redis.cli("CONFIG", "SET", "appendfsync", "everysec");
    assert.match(await consult(t, redis.url, 0), /power cut takes .* tens of thousands/);
    await redis.cli("CONFIG", "SET", "appendfsync", "no");
    assert.match(await consult(t, redis.url, 0), /had not written yet/);
    await redis.cli("CONFIG", "SET", "appendonly", "no");
    assert.match(await consult(t, redis.url, 0), /keeps no log/);
});

test("what would lose streams is wrong", async (t) => {
    const redis = await startRedis(t);
    const all = await consult(t, `${redis.url}?wait=1`, 1);
    assert.match(all, /WRONG: wait=1, but there are 0 replicas/);
    await redis.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru");
    assert.match(await consult(t, redis.url, 1), /WRONG: maxmemory-policy allkeys-lru/);
    await redis.cli("CONFIG", "SET", "maxmemory-policy", "noeviction");
    const replica = await startRedis(t, { flags: ["--replicaof", "127.0.0.1", `${redis.port}`] });
    assert.match(await consult(t, replica.url, 1), /is a replica, which takes no writes/);
});

test("a Redis that is not there, and an address that is none", async (t) => {
    const nowhere = await consult(t, `redis://:secret@127.0.0.1:${await freePort()}`, 1);
    assert.match(nowhere, /refused/i);
    assert.doesNotMatch(nowhere, /secret/);
    const wrong = await consult(t, "redis://:secret@host:port", 2);
    assert.doesNotMatch(wrong, /secret/);
});
