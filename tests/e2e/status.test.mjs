// SPDX-License-Identifier: Apache-2.0
// What a probe and a scraper see of a real server.
import assert from "node:assert/strict";
import { test } from "node:test";
import { openRaw } from "./lib/raw.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

/** The metrics without labels, by name. */
async function scrape(server) {
    const { status, headers, text } = await server.request("GET", "/metrics");
    assert.equal(status, 200);
    assert.equal(headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    const plain = text.matchAll(/^([a-z_]+(?:\{[^}]*\})?) (\S+)$/gm);
    return Object.fromEntries([...plain].map(([, name, value]) => [name, Number(value)]));
}

test("a store on disk: bytes that are written show up in the metrics", async (t) => {
    const server = await startServer(t, [], { data: await tempFolder(t) });
    await server.create("x", "text/plain");
    const before = await scrape(server);
    assert.equal(before.tidemark_ready, 1);
    assert.equal(before.tidemark_draining, 0);
    assert.equal(before.tidemark_store_unrested_bytes, 0);
    assert.ok(before.tidemark_store_journal_bytes > 0);

    await server.append("x", "y".repeat(10_000), "text/plain");
    const after = await scrape(server);
    assert.equal(after.tidemark_store_unrested_bytes, 10_000);
    assert.ok(after[`tidemark_responses_total{class="2xx"}`] >= 3);
    assert.ok(after.tidemark_connections >= 1);
    assert.ok(after.tidemark_loop_turn_seconds_count > before.tidemark_loop_turn_seconds_count);
    const away = Math.abs(after.tidemark_resident_memory_bytes / server.rss() - 1);
    assert.ok(away < 0.5, `not the memory of this process: ${away}`);
});

test("/readyz says why not while the server is being stopped; /healthz does not mind", async (t) => {
    const server = await startServer(t);
    assert.equal((await server.request("GET", "/readyz")).text, "ready\n");
    assert.equal((await server.request("GET", "/healthz")).text, "ok\n");
    const probes = { readyz: [503, /^{"ready":false,"why":"draining/], healthz: [200, /^ok$/m] };
    const raws = {};
    for (const name of Object.keys(probes)) {
        raws[name] = await openRaw(t, server);
        raws[name].send(`GET /${name} HTTP/1.1\r\nHost: h\r\n`);
    }
    await server.request("GET", "/healthz"); // the heads before it have arrived
    server.signal("SIGTERM");
    await until(() => server.stderr.includes("draining"), "the drain to begin");
    for (const [name, [status, text]] of Object.entries(probes)) {
        raws[name].send("\r\n");
        const answer = await raws[name].answer();
        assert.equal(answer?.status, status, name);
        assert.match(answer.text, text);
    }
});
