// SPDX-License-Identifier: Apache-2.0
// What operators are told: whether the server is ready, and what it does that clients alone would see.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startBackend } from "./lib/backend.mjs";
import { startRedis } from "./lib/redis.mjs";
import { startServer } from "./lib/server.mjs";
import { until } from "./lib/wait.mjs";

async function readiness(server) {
    const answer = await server.request("GET", "/readyz");
    return { status: answer.status, why: answer.status === 503 ? JSON.parse(answer.text).why : undefined };
}

async function metric(server, line) {
    return (await server.request("GET", "/metrics")).text.split("\n").find((l) => l.startsWith(line));
}

const TEXT = { "content-type": "text/plain" };
const count = (text, what) => text.split(what).length - 1;

test("a server whose Redis is away is not ready, and says of writes what is true", async (t) => {
    const redis = await startRedis(t, { appendfsync: "always" });
    const server = await startServer(t, ["--store", redis.url]);
    await until(async () => (await readiness(server)).status === 200, "the store to be there");
    await server.create("x", "text/plain");
    await redis.kill();
    await until(async () => (await readiness(server)).status === 503, "it to be noticed");
    assert.deepEqual(await readiness(server), {
        status: 503,
        why: "the store does not answer at present; retry later",
    });
    const refused = await server.request("POST", "/v1/stream/x", { headers: TEXT, body: "y" });
    assert.equal(refused.status, 503);
    assert.equal(refused.headers["retry-after"], "1");
    assert.equal(JSON.parse(refused.text).error.code, "AWAY");
    assert.match(await metric(server, `tidemark_store_refusals_total{error="away"}`), / [1-9]/);
    assert.equal(await metric(server, "tidemark_ready "), "tidemark_ready 0");
    await until(() => server.stderr.includes("the store has refused"), "a trace");
    assert.match(server.stderr, /warn +not ready: the store does not answer/);
    assert.match(server.stderr, /warn +the store has refused \d+ operations: away/);

    await redis.start();
    await until(async () => (await readiness(server)).status === 200, "it to be back");
    await until(() => server.stderr.includes("ready: writes are taken again"), "that to be told");
    const taken = await server.request("POST", "/v1/stream/x", { headers: TEXT, body: "y" });
    assert.equal(taken.status, 204);
});

test("a Redis that takes no writes makes the server unready until it does", async (t) => {
    const redis = await startRedis(t);
    const server = await startServer(t, ["--store", redis.url]);
    await server.create("x", "text/plain");
    await redis.cli("CONFIG", "SET", "maxmemory", "1");
    const full = await server.request("POST", "/v1/stream/x", { headers: TEXT, body: "y" });
    assert.equal(full.status, 507);
    assert.deepEqual(await readiness(server), { status: 503, why: "storage is full" });
    await redis.cli("CONFIG", "SET", "maxmemory", "0");
    await until(async () => (await readiness(server)).status === 200, "it to be seen that there is room");
});

test("answers that go on without the store are told once a minute, and counted each", async (t) => {
    const redis = await startRedis(t);
    const backend = await startBackend(t);
    const server = await startServer(t, ["--store", redis.url, "--route", `/r=${backend.url()}`]);
    await until(async () => (await readiness(server)).status === 200, "the store to be there");
    await redis.kill();
    for (let n = 0; n < 3; n++) {
        const answer = await server.request("POST", "/r", {
            headers: { "content-type": "application/json" },
            body: JSON.stringify({ plan: { name: `p${n}`, events: 2 } }),
        });
        assert.ok(answer.headers["x-tidemark-degraded"], `${answer.status} ${answer.text}`);
    }
    assert.equal(await metric(server, "assist_sse_degraded_total "), "assist_sse_degraded_total 3");
    await until(() => server.stderr.includes("passed on unrecorded"), "a trace");
    assert.equal(count(server.stderr, "passed on unrecorded"), 1);
});

test("settings that do not do what they seem to are warned of, once, and have a metric", async (t) => {
    const route = ["--route", "/r=http://127.0.0.1:9/"];
    const env = { SSE_RESUME_SECRET: "short" };
    const server = await startServer(t, [...route, "--store", "memory", "--disk-cap", "64m"], { env });
    await until(() => server.stderr.includes("disk-cap"), "the warnings");
    assert.match(server.stderr, /warn +SSE_RESUME_SECRET has less than 32 bytes/);
    assert.match(server.stderr, /warn +disk-cap does not apply/);
    assert.equal(count(server.stderr, "warn "), 2);
    for (const setting of ["SSE_RESUME_SECRET", "disk-cap"])
        assert.ok(await metric(server, `tidemark_config_warnings{setting="${setting}"} 1`), setting);

    const none = await startServer(t, route, { env: { SSE_RESUME_SECRET: "" } });
    await until(() => none.stderr.includes("SSE_RESUME_SECRET is not set"), "the warning");
    const good = await startServer(t, route, { env: { SSE_RESUME_SECRET: "s".repeat(32) } });
    await good.request("GET", "/readyz");
    assert.equal(count(good.stderr, "warn "), 0, good.stderr);
});
