// SPDX-License-Identifier: Apache-2.0
// Two servers over one Redis, with one key and one session: a result that one of them has made, or
// is making, is continued on the other; and what a store that fails does to a result.
import assert from "node:assert/strict";
import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import {
    SESSION,
    assertFailed,
    assertResult,
    openWire,
    rowsTool,
    rowsUpTo,
    startPages,
} from "./lib/pages.mjs";
import { startRedis } from "./lib/redis.mjs";
import { tempFolder } from "./lib/temp.mjs";

async function script(folder, name, text) {
    const path = join(folder, name);
    await writeFile(path, `#!/bin/sh\n${text}\n`);
    await chmod(path, 0o755);
    return path;
}

/** Two servers with these tools, and a connection to each. */
async function startPair(t, tools) {
    const redis = await startRedis(t);
    const sections = { pages: { "cursor-session": SESSION.toString("base64") }, ...tools };
    const options = { flags: ["--store", redis.url] };
    const [one, two] = [
        await startPages(t, sections, options),
        await startPages(t, sections, options),
    ];
    return { redis, one, two, wires: [await openWire(t, one), await openWire(t, two)] };
}

/** All pages of a result, asked for in turn. */
async function pagesInTurn(wires, tool) {
    const pages = [assertResult(await wires[0].run(tool), tool)];
    while (pages.at(-1).next_cursor !== undefined) {
        const wire = wires[pages.length % wires.length];
        pages.push(assertResult(await wire.next(tool, pages.at(-1).next_cursor), tool));
    }
    return pages.flatMap(({ result }) => result);
}

test("a result is continued on whichever server", async (t) => {
    const folder = await tempFolder(t);
    const slow = await script(folder, "slow", "for i in 0 1 2 3 4 5 6 7; do echo $i; sleep 0.1; done");
    const large = await script(
        folder,
        "large",
        `for i in 1 2 3; do printf '"'; head -c 4194300 /dev/zero | tr '\\0' x; echo '"'; done`,
    );
    const { wires } = await startPair(t, {
        "tool rows": rowsTool(5000),
        "tool slow": { command: slow, "page-rows": 2 },
        "tool large": { command: large },
    });
    assert.deepEqual(await pagesInTurn(wires, "rows"), rowsUpTo(5000));
    assert.deepEqual(await pagesInTurn(wires, "slow"), [0, 1, 2, 3, 4, 5, 6, 7]);
    const rows = await pagesInTurn(wires, "large");
    assert.deepEqual(
        rows.map((row) => row.length),
        [4194300, 4194300, 4194300],
    );
});

test("a result whose maker has died is never taken for whole", async (t) => {
    const folder = await tempFolder(t);
    const hangs = await script(folder, "hangs", "seq 1 5; exec sleep 1000");
    const { one, wires } = await startPair(t, {
        "tool hangs": { command: hangs, "page-rows": 2, timeout: "1s" },
    });
    const first = assertResult(await wires[0].run("hangs"), "hangs");
    await one.kill("SIGKILL");
    const second = assertResult(await wires[1].next("hangs", first.next_cursor), "hangs");
    assert.deepEqual(second.result, [3, 4]);
    const third = assertResult(await wires[1].next("hangs", second.next_cursor), "hangs");
    assert.deepEqual(third.result, [5]);
    assertFailed(await wires[1].next("hangs", third.next_cursor), /broke off/);
});

test("a store that has gone is said to be, and nothing is taken for whole", async (t) => {
    const { redis, wires } = await startPair(t, { "tool rows": rowsTool(500) });
    const first = assertResult(await wires[0].run("rows"), "rows");
    await redis.kill();
    const failed = assertFailed(await wires[0].next("rows", first.next_cursor), /cannot be read/);
    assert.equal(failed.retryable, true);
    assertFailed(await wires[0].run("rows"), /cannot be kept/);
});
