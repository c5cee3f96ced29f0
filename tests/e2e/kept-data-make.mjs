// SPDX-License-Identifier: Apache-2.0
// Makes the data of a release for kept-data.test.mjs, once, with the binary of that release:
//
//   TIDEMARK_BIN=path/of/old/tidemark node kept-data-make.mjs fixtures/VERSION
//
// embedded.tar.gz: a data directory that was stopped, written to again, and killed, so that half of
// it is at rest and half in the journal. redis.rdb.gz: what Redis had. expected.json: what the old
// server showed of each, and what only a client knows.
import { execFileSync } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { fill, fillGeneration, look, settings, startWords } from "./lib/kept-data.mjs";
import { startRedis } from "./lib/redis.mjs";
import { freePort, startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";

const out = resolve(process.argv[2]);
const undo = [];
const t = { after: (step) => undo.push(step) };

async function makeEmbedded(options) {
    const data = join(await tempFolder(t), "data");
    const start = () => startServer(t, options.flags, { ...options, data });
    let server = await start();
    const rest = await fill(t, server, "rest");
    await server.stop();
    server = await start();
    const generation = await fillGeneration(t, server);
    const journal = await fill(t, server, "journal");
    const shown = await look(server, ["rest", "journal"]);
    await server.kill();
    const from = ["-C", dirname(data), basename(data)];
    execFileSync("tar", ["-czSf", join(out, "embedded.tar.gz"), ...from]);
    return { shown, generation, rest, journal };
}

/** Redis counts lifetimes by the calendar: these would be over before the next release. */
async function prolong(redis) {
    const far = String(Date.UTC(2200, 0));
    for (const key of (await redis.cli("KEYS", "*")).split("\n")) {
        await redis.cli("PERSIST", key);
        const dies = key.includes(":sse:state:") && (await redis.cli("HEXISTS", key, "dies"));
        if (dies === "1") await redis.cli("HSET", key, "dies", far);
    }
}

async function makeRedis(options) {
    const redis = await startRedis(t);
    const server = await startServer(t, [...options.flags, "--store", redis.url], options);
    const generation = await fillGeneration(t, server);
    const rest = await fill(t, server, "rest");
    const shown = await look(server, ["rest"]);
    await server.stop();
    await prolong(redis);
    await redis.cli("SAVE");
    const dump = await readFile(join(redis.folder, "dump.rdb"));
    await writeFile(join(out, "redis.rdb.gz"), gzipSync(dump, { level: 9 }));
    return { shown, generation, rest };
}

try {
    await mkdir(out, { recursive: true });
    // Links of subscriptions name the port.
    const options = { ...(await settings(t, await startWords(t))), port: await freePort() };
    const made = new Date().toISOString();
    const embedded = await makeEmbedded(options);
    const redis = await makeRedis(options);
    await writeFile(
        join(out, "expected.json"),
        `${JSON.stringify({ made, embedded, redis }, null, 1)}\n`,
    );
    console.log(`made ${out}`);
} finally {
    for (const step of undo.reverse()) await step();
}
