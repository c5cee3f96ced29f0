// SPDX-License-Identifier: Apache-2.0
// `tidemark tool`: calls from the command line, and pages put together.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { defer } from "./lib/defer.mjs";
import { caller, open, rowsTool, rowsUpTo, startPages } from "./lib/pages.mjs";
import { tidemark } from "./lib/run.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";

const sections = {
    "caller ada": caller("token-of-ada", "ops:read"),
    "tool rows": rowsTool(1050),
    "tool cat": { command: "cat", description: "What it was given" },
    "tool gated": rowsTool(150, { capability: "ops:read" }),
    "tool fails": { command: "false" },
};

async function tool(t, server, ...args) {
    return tidemark(t, ["tool", ...args, "--server", server.base]);
}

async function prints(t, server, ...args) {
    const { code, stdout, stderr } = await tool(t, server, ...args);
    assert.equal(code, 0, `${args.join(" ")}: ${stderr}`);
    return stdout;
}

async function fails(t, server, words, ...args) {
    const { code, stdout, stderr } = await tool(t, server, ...args);
    assert.notEqual(code, 0, args.join(" "));
    assert.equal(stdout, "", "what failed prints no result");
    assert.match(stderr, words);
}

test("ls lists tools, for people and for programs", async (t) => {
    const server = await startPages(t, sections);
    assert.match(await prints(t, server, "ls"), /^cat\s.*What it was given$/m);
    const lines = (await prints(t, server, "ls", "--json")).trim().split("\n");
    const ids = lines.map((line) => JSON.parse(line).id);
    assert.ok(ids.includes("rows") && ids.includes("conformance:page_gen"));
});

test("run and continue give a page each", async (t) => {
    const server = await startPages(t, sections);
    assert.deepEqual(JSON.parse(await prints(t, server, "run", "cat", '{"a":[1]}')), [{ a: [1] }]);
    const given = await tidemark(t, ["tool", "run", "cat", "-", "--server", server.base], {
        input: '{"from":"input"}',
    });
    assert.deepEqual(JSON.parse(given.stdout), [{ from: "input" }]);

    const first = await tool(t, server, "run", "rows");
    assert.deepEqual(JSON.parse(first.stdout), rowsUpTo(100));
    const [cursor] = first.stderr.match(/[A-Za-z0-9_-]{100,}/);
    assert.equal(open(cursor).page, 2);
    const second = await tool(t, server, "continue", "rows", cursor);
    assert.deepEqual(JSON.parse(second.stdout), rowsUpTo(200).slice(100));
    const whole = JSON.parse(await prints(t, server, "run", "rows", "--json"));
    assert.equal(whole.type, "tool_result");
    assert.equal(typeof whole.next_cursor, "string");
    const dry = JSON.parse(await prints(t, server, "run", "rows", '{"x":1}', "--dry-run"));
    assert.deepEqual(dry, { dry_run: true, tool_id: "rows", args_preview: { x: 1 } });

    await fails(t, server, /tool not found: nowhere/, "run", "nowhere");
    await fails(t, server, /cursor invalid/, "continue", "rows", "x");
    await fails(t, server, /mismatch/, "continue", "cat", cursor);
    await fails(t, server, /the tool failed: .*status 1/, "run", "fails");
    await fails(t, server, /the tool failed at page 1: .*status 1/, "all", "fails");
    const failed = await tool(t, server, "run", "fails", "--json");
    assert.equal(failed.code, 1);
    assert.equal(JSON.parse(failed.stdout).success, false);
    await fails(t, server, /JSON/i, "run", "cat", "{");
    await fails(t, server, /ops:read|capab/i, "run", "gated");
    const token = join(server.folder, "token");
    await writeFile(token, "token-of-ada\n");
    const hers = await prints(t, server, "run", "gated", "--token-file", token);
    assert.deepEqual(JSON.parse(hers), rowsUpTo(100));
});

test("all gives every page as one, up to its caps", async (t) => {
    const server = await startPages(t, sections);
    assert.deepEqual(JSON.parse(await prints(t, server, "all", "rows")), rowsUpTo(1050));
    const first = await prints(t, server, "all", "rows", "--merge", "first");
    assert.deepEqual(JSON.parse(first), rowsUpTo(100));
    assert.deepEqual(
        JSON.parse(await prints(t, server, "all", "conformance:page_gen")),
        rowsUpTo(100),
    );
    assert.deepEqual(
        JSON.parse(await prints(t, server, "all", "rows", "--max-pages", "11")),
        rowsUpTo(1050),
    );
    await fails(t, server, /10/, "all", "rows", "--max-pages", "10");
    await fails(t, server, /bytes|large|more/i, "all", "rows", "--max-bytes", "2k");
    await fails(t, server, /max-pages/, "all", "rows", "--max-pages", "0");
    await fails(t, server, /merge/, "all", "rows", "--merge", "mix");
    await fails(t, server, /./, "all", "rows", "--merge", "field:items");
    const lines = server.audit().filter(({ tool_id }) => tool_id === "conformance:page_gen");
    assert.equal(lines.length, 10);
});

/** A server of tools that answers with these pages, whatever is asked. */
async function startStub(t, pages) {
    const seen = [];
    const stub = createServer(async (request, response) => {
        let body = "";
        for await (const piece of request.setEncoding("utf8")) body += piece;
        const { cursor, args } = JSON.parse(body);
        seen.push({ url: request.url, args, cursor });
        const n = cursor === undefined ? 0 : Number(cursor);
        const next = n + 1 < pages.length ? { next_cursor: String(n + 1) } : {};
        const page = { type: "tool_result", tool_id: "x", success: true, dry_run: false, ...next };
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify({ ...page, result: pages[n] }));
    });
    stub.listen(0, "127.0.0.1");
    await once(stub, "listening");
    defer(t, () => {
        stub.closeAllConnections();
        stub.close();
    });
    return { base: `http://127.0.0.1:${stub.address().port}`, seen };
}

test("field:NAME puts that member together, and takes the others from the last page", async (t) => {
    const stub = await startStub(t, [
        { items: [1, 2], total: 5, page: 1 },
        { items: [], total: 5, page: 2 },
        { items: [3, { deep: [4] }], total: 6, page: 3, done: true },
    ]);
    const merged = JSON.parse(
        await prints(t, stub, "all", "x", '{"q":1}', "--merge", "field:items"),
    );
    assert.deepEqual(merged, { items: [1, 2, 3, { deep: [4] }], total: 6, page: 3, done: true });
    assert.deepEqual(stub.seen, [
        { url: "/atd/v1/run_tool", args: { q: 1 }, cursor: undefined },
        { url: "/atd/v1/run_tool_continue", args: undefined, cursor: "1" },
        { url: "/atd/v1/run_tool_continue", args: undefined, cursor: "2" },
    ]);
    await fails(t, stub, /./, "all", "x", "--merge", "concat");
    await fails(t, stub, /./, "all", "x", "--merge", "field:total");
    await fails(t, stub, /./, "all", "x", "--merge", "field:missing");
    const first = JSON.parse(await prints(t, stub, "all", "x", "--merge", "first"));
    assert.deepEqual(first, { items: [1, 2], total: 5, page: 1 });
});

test("pages of different kinds cannot be put together", async (t) => {
    const stub = await startStub(t, [[1], { items: [2] }]);
    await fails(t, stub, /./, "all", "x");
    await fails(t, stub, /./, "all", "x", "--merge", "field:items");
});

test("the byte cap counts the pages' JSON without white space", async (t) => {
    const stub = await startStub(t, [["a".repeat(96)], ["b".repeat(96)]]); // 100 bytes each
    assert.equal(JSON.parse(await prints(t, stub, "all", "x", "--max-bytes", "200")).length, 2);
    await fails(t, stub, /./, "all", "x", "--max-bytes", "199");
});

test("what docs/protocols/pages.md shows first can be done", async (t) => {
    const path = fileURLToPath(new URL("../../docs/protocols/pages.md", import.meta.url));
    const [block] = /```sh\n[^`]*```/.exec(await readFile(path, "utf8"));
    const [, ini] = /<<'END'\n([^]*?)END\n/.exec(block);
    const folder = await tempFolder(t);
    const config = join(folder, "tools.ini");
    await writeFile(config, ini);
    const server = await startServer(t, ["--config", config]);
    const shown = {};
    for (const [, words] of block.matchAll(/^tidemark tool ([^#\n]*)/gm))
        shown[words.trim()] = await prints(t, server, ...words.trim().split(/\s+/));
    assert.match(shown.ls, /^orders\s.*Numbers of orders$/m);
    const numbers = Array.from({ length: 250 }, (_, i) => i + 1);
    assert.deepEqual(JSON.parse(shown["run orders"]), numbers.slice(0, 100));
    assert.deepEqual(JSON.parse(shown["all orders"]), numbers);
});
