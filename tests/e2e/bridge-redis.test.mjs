// SPDX-License-Identifier: Apache-2.0
// The bridges over a Redis: with several servers, and while it does not answer.
import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { describe, test } from "node:test";
import { ask, asking, quick, startBridge } from "./lib/cascade.mjs";
import { defer } from "./lib/defer.mjs";
import { startRedis } from "./lib/redis.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

/** A feed of numbered items, three more with each look, that shows the newest 300. */
async function startFeed(t) {
    const feed = { n: 0, window: [] };
    const server = createServer((request, response) => {
        for (let i = 0; i < 3; i++) feed.window.push({ n: ++feed.n });
        feed.window = feed.window.slice(-300);
        response.end(JSON.stringify(feed.window));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    defer(t, () => {
        server.closeAllConnections();
        server.close();
    });
    feed.url = `http://127.0.0.1:${server.address().port}/`;
    return feed;
}

describe("bridges over Redis", { concurrency: 2 }, () => {
    test("no Cascade is asked while its document cannot be stored", async (t) => {
        const redis = await startRedis(t);
        const bridge = await startBridge(t, { flags: ["--store", redis.url] });
        const { editor, client } = bridge;
        editor.script("ping", quick);
        assert.equal((await ask(bridge, "ping")).text, "pong");
        await editor.archived(1);
        redis.signal("SIGSTOP");
        for (const stream of [true, false])
            await assert.rejects(client.chat.completions.create(asking("ping", { stream })), {
                status: 503,
            });
        assert.equal(editor.count("SendUserCascadeMessage"), 1, "nothing was asked");
        await editor.archived(2);
        redis.signal("SIGCONT");
        await until(async () => {
            const answer = await ask(bridge, "ping").catch(() => null);
            return answer?.text === "pong";
        }, "an answer with the store back");
        await editor.archived(editor.trajectories.size);
    });

    test("servers that poll the same store each change once", async (t) => {
        const redis = await startRedis(t);
        const feed = await startFeed(t);
        const file = join(await tempFolder(t), "tidemark.ini");
        const settings = `url = ${feed.url}\nmode = jsonlines\nkey = /n\n`;
        await writeFile(file, `[poll feed]\n${settings}every = 100ms\nalways = yes\n`);
        const start = () => startServer(t, ["--config", file, "--store", redis.url]);
        const servers = [await start(), await start()];
        const items = async () => JSON.parse(await servers[0].readAll("poll/feed"));
        const grown = (by) => {
            const goal = feed.n + by;
            return until(async () => (await items()).at(-1)?.n >= goal, `item ${goal}`);
        };
        await grown(30);
        redis.signal("SIGSTOP");
        redis.signal("SIGCONT");
        await grown(30);
        await servers[1].kill();
        await grown(9);
        servers.push(await start());
        await grown(30);
        const all = await items();
        assert.deepEqual(all, all.map((_, i) => ({ n: i + 1 })));
    });
});
