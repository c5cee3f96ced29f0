// SPDX-License-Identifier: Apache-2.0
// Data that earlier releases have written opens, and everything is in it. kept-data-make.mjs made
// it; never make it anew for a release that has been published.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { look, settings, tryGeneration, trySession, tryWrites } from "./lib/kept-data.mjs";
import { startRedis } from "./lib/redis.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";

const FIXTURES = fileURLToPath(new URL("fixtures", import.meta.url));
const NOBODY = "http://127.0.0.1:1/"; // an upstream that must not be asked
const A_YEAR_MS = 360 * 24 * 3600 * 1000; // routes keep their answers for no longer

function hasRedis() {
    try {
        execFileSync("redis-server", ["--version"], { stdio: "ignore" });
        return true;
    } catch {
        return false;
    }
}

async function findAll(t, server, expected, places) {
    assert.deepEqual(await look(server, places), expected.shown);
    for (const at of places) {
        await tryWrites(server, at);
        await trySession(t, server, expected[at].session, at);
    }
}

for (const version of await readdir(FIXTURES)) {
    const file = (name) => join(FIXTURES, version, name);
    const expected = JSON.parse(readFileSync(file("expected.json")));

    const isFresh = Date.now() - Date.parse(expected.made) < A_YEAR_MS;

    test(`a data directory of ${version} opens, killed as it was, and again`, async (t) => {
        const folder = await tempFolder(t);
        execFileSync("tar", ["-xzf", file("embedded.tar.gz"), "-C", folder]);
        const options = { ...(await settings(t, NOBODY)), data: join(folder, "data") };
        const { embedded } = expected;
        const first = await startServer(t, options.flags, options);
        await findAll(t, first, embedded, ["rest", "journal"]);
        if (isFresh) await tryGeneration(t, first, embedded.generation);
        else t.diagnostic("its generation is a year old and has expired");
        const now = await look(first, ["rest", "journal"]);
        await first.stop();
        const second = await startServer(t, options.flags, options);
        assert.deepEqual(await look(second, ["rest", "journal"]), now);
    });

    const skip = !hasRedis() && "redis-server is not installed";
    test(`what ${version} left in Redis is found`, { skip }, async (t) => {
        const folder = await tempFolder(t);
        const dump = gunzipSync(readFileSync(file("redis.rdb.gz")));
        await writeFile(join(folder, "dump.rdb"), dump);
        const redis = await startRedis(t, { flags: ["--dir", folder] });
        const options = await settings(t, NOBODY);
        const server = await startServer(t, [...options.flags, "--store", redis.url], options);
        const { redis: left } = expected;
        await findAll(t, server, left, ["rest"]);
        if (isFresh) await tryGeneration(t, server, left.generation);
    });
}
