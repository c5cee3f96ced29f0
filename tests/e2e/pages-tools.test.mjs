// SPDX-License-Identifier: Apache-2.0
// Tools of one's own: commands and URLs, how their results become pages, and how commands that
// mean no good are held.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync, readdirSync } from "node:fs";
import { chmod, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { defer } from "./lib/defer.mjs";
import {
    assertError,
    assertFailed,
    assertResult,
    longTime,
    openWire,
    processesWith,
    rowsTool,
    rowsUpTo,
    startPages,
} from "./lib/pages.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const SLEEP = Object.fromEntries(
    ["silent", "stubborn", "closed", "family", "daemon", "holds", "bomb", "stopped", "killed"].map(
        (name) => [name, longTime()],
    ),
);

const rowsOf = (pages) => pages.flatMap(({ result }) => result);

/** A file that a shell reads: commands themselves are run without one. */
async function script(folder, name, text) {
    const path = join(folder, name);
    await writeFile(path, `#!/bin/sh\n${text}\n`);
    await chmod(path, 0o755);
    return path;
}

// ---- results and pages ----

test("a command gets its arguments as JSON, and its output is rows", async (t) => {
    const folder = await tempFolder(t);
    const cat = await script(folder, "cat", "cat");
    const array = await script(folder, "array", 'echo " [1, {\\"a\\" : [2]},\n\\"three\\",null] "');
    const values = await script(folder, "lines", 'printf \'1\\n{"a":[2]}\\n\\n"three"\\nnull\'');
    const server = await startPages(t, {
        "tool cat": { command: cat },
        "tool array": { command: array },
        "tool lines": { command: values },
        "tool empty": { command: "true" },
        "tool nothing": { command: "echo []" },
    });
    const wire = await openWire(t, server);
    const args = { text: 'quotes " and \\ and ü', deep: { list: [1, 2.5, -3e10, true, null] } };
    assert.deepEqual(assertResult(await wire.run("cat", args), "cat").result, [args]);
    assert.deepEqual(assertResult(await wire.run("cat", {}), "cat").result, [{}]);
    const rows = [1, { a: [2] }, "three", null];
    assert.deepEqual(assertResult(await wire.run("array"), "array").result, rows);
    assert.deepEqual(assertResult(await wire.run("lines"), "lines").result, rows);
    assert.deepEqual(assertResult(await wire.run("nothing"), "nothing").result, []);
    const empty = await wire.run("empty");
    if (empty.success) assert.deepEqual(empty.result, []);
    else assertFailed(empty, /./);
});

test("no shell: what stands in command is a program and its arguments", async (t) => {
    const folder = await tempFolder(t);
    const trace = join(folder, "trace");
    const show = await script(folder, "show", 'printf \'"%s"\\n\' "$@"');
    const server = await startPages(t, {
        "tool show": { command: `${show} $HOME 'two words' "and more" * && touch ${trace}` },
        "tool missing": { command: join(folder, "is-not-there") },
        "tool plain": { command: 'printf \'{"a":"%s"}\' x' },
    });
    const wire = await openWire(t, server);
    assert.deepEqual(assertResult(await wire.run("show"), "show").result, [
        "$HOME",
        "two words",
        "and more",
        "*",
        "&&",
        "touch",
        trace,
    ]);
    await assert.rejects(stat(trace));
    assert.deepEqual(assertResult(await wire.run("plain"), "plain").result, [{ a: "x" }]);
    assertFailed(await wire.run("missing"), /is-not-there|start|such file/i);
});

test("the command has no descriptors but its three, and no secrets in its environment", async (t) => {
    const folder = await tempFolder(t);
    const fds = await script(folder, "fds", "ls /proc/self/fd | sed 's/.*/\"&\"/'");
    const env = await script(
        folder,
        "env",
        "cut -d= -f1 < /dev/null; env | grep -c CURSOR_SIGNING; true",
    );
    const server = await startPages(t, {
        "tool fds": { command: fds },
        "tool env": { command: env },
    });
    const wire = await openWire(t, server);
    await openWire(t, server); // one more descriptor that is not for it
    const { result } = assertResult(await wire.run("fds"), "fds");
    // 3 is the folder that ls looks at.
    assert.deepEqual(result, ["0", "1", "2", "3"]);
    assert.deepEqual(
        assertResult(await wire.run("env"), "env").result,
        [0],
        "the signing key is not for it",
    );
});

test("pages are cut by rows and by bytes, and never within a row", async (t) => {
    const server = await startPages(t, {
        "tool tens": rowsTool(95, { "page-rows": "10" }),
        "tool default": rowsTool(1050),
        "tool bytes": { command: `seq -f '"%0999.0f"' 1 100`, "page-bytes": "10000" },
        "tool huge": { command: `seq -f '"%030000.0f"' 1 10`, "page-bytes": "10000" },
        "tool exact": rowsTool(200, { "page-rows": "100" }),
    });
    const wire = await openWire(t, server);
    const tens = await wire.pages("tens");
    assert.deepEqual(
        tens.map(({ result }) => result.length),
        [10, 10, 10, 10, 10, 10, 10, 10, 10, 5],
    );
    assert.deepEqual(rowsOf(tens), rowsUpTo(95));
    const hundreds = await wire.pages("default");
    assert.deepEqual(
        hundreds.map(({ result }) => result.length),
        [...Array(10).fill(100), 50],
    );
    assert.deepEqual(rowsOf(hundreds), rowsUpTo(1050));
    const bytes = await wire.pages("bytes");
    assert.deepEqual(
        rowsOf(bytes).map(Number),
        rowsUpTo(101)
            .slice(1)
            .map(({ row }) => row),
    );
    for (const { result } of bytes) assert.ok(JSON.stringify(result).length <= 10_000 + 2);
    assert.ok(bytes.length <= 13, `${bytes.length} pages of up to 10,000 bytes for 100,000`);
    // A row that is larger than a page is one.
    const huge = await wire.pages("huge");
    assert.deepEqual(
        huge.filter(({ result }) => result.length > 0).map(({ result }) => result.length),
        Array(10).fill(1),
    );
    assert.deepEqual(
        rowsOf(huge).map(Number),
        rowsUpTo(11)
            .slice(1)
            .map(({ row }) => row),
    );
    assert.deepEqual(rowsOf(await wire.pages("exact")), rowsUpTo(200));
});

test("a row of JSON comes as it was written", async (t) => {
    const folder = await tempFolder(t);
    const rows = [
        "1.0",
        "12345678901234567890",
        "1e400",
        '{"a":1,"a":2}',
        '"\\u00fc\\ud83d\\ude00"',
    ];
    await writeFile(join(folder, "rows"), rows.map((row) => `${row}\n`).join(""));
    const server = await startPages(t, { "tool raw": { command: `cat ${join(folder, "rows")}` } });
    const answer = await server.request("POST", "/atd/v1/run_tool", {
        headers: { "content-type": "application/json" },
        body: '{"tool_id":"raw","args":{},"dry_run":false}',
    });
    assert.ok(answer.text.includes(`[${rows.join(",")}]`), answer.text);
});

test("the first page comes while the command goes on", async (t) => {
    const folder = await tempFolder(t);
    const gate = join(folder, "gate");
    const slow = await script(
        folder,
        "slow",
        `seq 1 150\nwhile [ ! -e ${gate} ]; do sleep 0.05; done\nseq 151 250`,
    );
    const server = await startPages(t, { "tool slow": { command: slow } });
    const wire = await openWire(t, server);
    const first = assertResult(await wire.run("slow"), "slow");
    assert.equal(first.result.length, 100);
    assert.ok(processesWith(slow).length > 0, "it still runs");
    wire.send({ type: "run_tool_continue", tool_id: "slow", cursor: first.next_cursor });
    await writeFile(gate, "");
    const second = assertResult(await wire.receive(), "slow");
    const rows = [...first.result, ...second.result];
    for (let cursor = second.next_cursor; cursor;) {
        const page = assertResult(await wire.next("slow", cursor), "slow");
        rows.push(...page.result);
        cursor = page.next_cursor;
    }
    assert.deepEqual(
        rows,
        rowsUpTo(251)
            .slice(1)
            .map(({ row }) => row),
    );
});

test("a command that fails after its first page is not taken for done", async (t) => {
    const folder = await tempFolder(t);
    const late = await script(folder, "late", "seq 1 250\necho 'the disk is full' >&2\nexit 3");
    const broken = await script(folder, "broken", "seq 1 250\necho '{broken'");
    const server = await startPages(t, {
        "tool late": { command: late },
        "tool broken": { command: broken },
    });
    const wire = await openWire(t, server);
    for (const [tool, message] of [
        ["late", /3|disk is full/],
        ["broken", /JSON/i],
    ]) {
        const pages = [await wire.run(tool)];
        while (pages.at(-1).next_cursor)
            pages.push(await wire.next(tool, pages.at(-1).next_cursor));
        assertFailed(pages.at(-1), message);
        const rows = rowsOf(pages.slice(0, -1));
        assert.deepEqual(
            rows,
            rowsUpTo(rows.length + 1)
                .slice(1)
                .map(({ row }) => row),
        );
    }
});

// ---- URLs ----

async function startOrigin(t, handle) {
    const origin = createServer(async (request, response) => {
        let body = "";
        for await (const piece of request.setEncoding("utf8")) body += piece;
        handle(request, body, response);
    });
    origin.listen(0, "127.0.0.1");
    await once(origin, "listening");
    defer(t, () => {
        origin.closeAllConnections();
        origin.close();
    });
    return `http://127.0.0.1:${origin.address().port}`;
}

test("a URL is asked once per result, and its answer is rows", async (t) => {
    const seen = [];
    const url = await startOrigin(t, (request, body, response) => {
        seen.push({
            method: request.method,
            url: request.url,
            type: request.headers["content-type"],
            body,
        });
        if (request.url === "/bad") return response.writeHead(500).end("no");
        if (request.url === "/html") return response.end("<html>");
        response.writeHead(200, { "content-type": "application/json" });
        if (request.url === "/lines") return response.end("1\n2\n3\n");
        response.end(JSON.stringify(rowsUpTo(350)));
    });
    const server = await startPages(t, {
        "tool array": { url: `${url}/array?x=1` },
        "tool lines": { url: `${url}/lines` },
        "tool bad": { url: `${url}/bad` },
        "tool html": { url: `${url}/html` },
        "tool nobody": { url: "http://127.0.0.1:1/" },
    });
    const wire = await openWire(t, server);
    const pages = await wire.pages("array", { city: "Köln" });
    assert.equal(pages.length, 4);
    assert.deepEqual(rowsOf(pages), rowsUpTo(350));
    assert.equal(seen.length, 1, "a page is never computed twice");
    assert.equal(seen[0].method, "POST");
    assert.equal(seen[0].url, "/array?x=1");
    assert.match(seen[0].type, /^application\/json/);
    assert.deepEqual(JSON.parse(seen[0].body), { city: "Köln" });
    assert.deepEqual(assertResult(await wire.run("lines"), "lines").result, [1, 2, 3]);
    assertFailed(await wire.run("bad"), /500/);
    assertFailed(await wire.run("html"), /JSON/i);
    assertFailed(await wire.run("nobody"), /./);
});

// ---- commands that mean no good ----

/** Memory of the server, once it has been used a little. */
async function settled(wire, server) {
    for (let i = 0; i < 3; i++) await wire.pages("conformance:page_gen");
    return server.rss();
}

/** All that the server has started and not waited for. */
function childrenOf(pid) {
    return readdirSync("/proc")
        .filter((name) => /^\d+$/.test(name))
        .filter((name) => {
            try {
                const after = readFileSync(`/proc/${name}/stat`, "latin1").split(") ").pop();
                return Number(after.split(" ")[1]) === pid;
            } catch {
                return false;
            }
        });
}

test("endless output ends at max-output, with an error and bounded memory", async (t) => {
    const folder = await tempFolder(t);
    const flood = await script(folder, "flood", "exec yes 1234567");
    const line = await script(folder, "line", "exec tr '\\\\0' 1 < /dev/zero");
    const server = await startPages(t, {
        "tool rows": { command: flood, "max-output": "1m", "page-rows": "10000" },
        "tool line": { command: line, "max-output": "1m" },
        "tool stderr": { command: await script(folder, "err", "exec yes no >&2"), timeout: "1s" },
    });
    const wire = await openWire(t, server);
    const before = await settled(wire, server);
    const pages = [await wire.run("rows")];
    while (pages.at(-1).next_cursor) pages.push(await wire.next("rows", pages.at(-1).next_cursor));
    assertFailed(pages.at(-1), /max-output|1048576|too (large|much|long)|more than/i);
    const rows = rowsOf(pages.slice(0, -1));
    assert.ok(rows.every((row) => row === 1234567));
    assert.ok(rows.length * 8 <= 1024 * 1024, `${rows.length} rows`);
    assertFailed(await wire.run("line"), /./);
    assertFailed(await wire.run("stderr"), /./);
    await until(() => childrenOf(server.pid).length === 0, "its children to be gone");
    const grown = server.rss() - before;
    assert.ok(grown < 200e6, `${grown} bytes more`);
});

test("a command that hangs, with or without output, ends in time", async (t) => {
    const folder = await tempFolder(t);
    const stubborn = await script(
        folder,
        "stubborn",
        `trap '' TERM INT HUP\nwhile :; do sleep ${SLEEP.stubborn}; done`,
    );
    const trickle = await script(folder, "trickle", "while :; do printf '1\\n'; sleep 0.05; done");
    const server = await startPages(t, {
        "tool silent": { command: `sleep ${SLEEP.silent}`, timeout: "300ms" },
        "tool stubborn": { command: stubborn, timeout: "300ms" },
        "tool trickle": { command: trickle, timeout: "300ms" },
        "tool closed": {
            command: await script(folder, "closed", `exec >&- 2>&-; sleep ${SLEEP.closed}`),
            timeout: "300ms",
        },
    });
    const wire = await openWire(t, server);
    for (const tool of ["silent", "stubborn", "trickle", "closed"]) {
        const failed = assertFailed(await wire.run(tool), /longer than 300 ms/);
        assert.equal(failed.retryable, true, `${tool}: it may be quicker next time`);
    }
    for (const marker of [SLEEP.silent, SLEEP.stubborn, SLEEP.closed, trickle])
        await until(() => processesWith(marker).length === 0, `${marker} to be ended`);
    await until(() => childrenOf(server.pid).length === 0, "its children to be gone");
});

test("what a command leaves running goes with it", async (t) => {
    const folder = await tempFolder(t);
    const family = await script(
        folder,
        "family",
        `sleep ${SLEEP.family} &\nsleep ${SLEEP.family} &\n(sleep ${SLEEP.family} &)\necho 1`,
    );
    const daemon = await script(
        folder,
        "daemon",
        `setsid sh -c 'setsid sleep ${SLEEP.daemon} >/dev/null 2>&1 </dev/null &' &\nwait\necho 1`,
    );
    const holds = await script(folder, "holds", `setsid sleep ${SLEEP.holds} &\necho 1`);
    const server = await startPages(t, {
        "tool family": { command: family, timeout: "5s" },
        "tool daemon": { command: daemon, timeout: "5s" },
        "tool holds": { command: holds, timeout: "5s" },
    });
    const wire = await openWire(t, server);
    for (const tool of ["family", "daemon", "holds"])
        assert.deepEqual(assertResult(await wire.run(tool), tool).result, [1]);
    for (const marker of [SLEEP.family, SLEEP.daemon, SLEEP.holds])
        await until(() => processesWith(marker).length === 0, `${marker} to be ended`);
    await until(() => childrenOf(server.pid).length === 0, "its children to be gone");
});

test("a fork bomb is over when its time is, or when it is too large", async (t) => {
    const folder = await tempFolder(t);
    // Bounded in depth, so that a failing test leaves the machine usable.
    const bomb = await script(
        folder,
        "bomb",
        `n=\${1:-6}\n[ "$n" -gt 0 ] && { "$0" \$((n - 1)) & "$0" \$((n - 1)) & }\nsleep ${SLEEP.bomb}`,
    );
    const server = await startPages(t, {
        "tool bomb": { command: bomb, timeout: "1s", "max-processes": 10_000 },
        "tool bounded": { command: bomb },
    });
    const wire = await openWire(t, server);
    assertFailed(await wire.run("bomb"), /longer than 1000 ms/);
    assertFailed(await wire.run("bounded"), /more processes than max-processes/);
    await until(() => processesWith(SLEEP.bomb).length === 0, "its sleepers to be ended");
    await until(() => processesWith(bomb).length === 0, "the bomb to be ended");
    assert.deepEqual(await wire.ask({ type: "ping" }), { type: "pong" });
});

test("memory is bounded, and what is no JSON is said to be none", async (t) => {
    const folder = await tempFolder(t);
    const deep = await script(folder, "deep", "head -c 100000 /dev/zero | tr '\\\\0' '['");
    const server = await startPages(t, {
        "tool hog": { command: "tail /dev/zero", "max-memory": "64m", timeout: "20s" },
        "tool text": { command: "echo hello" },
        "tool half": { command: `printf '[1,2'` },
        "tool deep": { command: deep },
        "tool utf8": { command: `printf '"\\377"'` },
        "tool status": { command: await script(folder, "status", "echo 1\necho why >&2\nexit 9") },
        "tool signal": { command: await script(folder, "signal", "echo 1\nkill -9 $$") },
    });
    const wire = await openWire(t, server);
    assertFailed(await wire.run("hog"), /./);
    for (const tool of ["text", "deep", "utf8"]) assertFailed(await wire.run(tool), /JSON/);
    assertFailed(await wire.run("half"), /ended in the middle/);
    assertFailed(await wire.run("status"), /9/);
    assertFailed(await wire.run("signal"), /9|KILL/i);
    await until(() => childrenOf(server.pid).length === 0, "its children to be gone");
    assertError(await wire.next("text", "x"), 1021);
});

test("a server that is stopped, or killed, leaves no command running", async (t) => {
    const server = await startPages(
        t,
        {
            "tool slow": { command: `sleep ${SLEEP.stopped}`, timeout: "600s" },
        },
        { env: { TIDEMARK_DRAIN_TIMEOUT: "200ms" } },
    );
    const wire = await openWire(t, server);
    wire.send({ type: "run_tool", tool_id: "slow", args: {}, dry_run: false });
    await until(() => processesWith(SLEEP.stopped).length > 0, "the command to begin");
    server.signal("SIGTERM");
    await server.ended;
    await until(() => processesWith(SLEEP.stopped).length === 0, "the command to be ended");

    const second = await startPages(t, {
        "tool slow": { command: `sleep ${SLEEP.killed}`, timeout: "600s" },
    });
    (await openWire(t, second)).send({
        type: "run_tool",
        tool_id: "slow",
        args: {},
        dry_run: false,
    });
    await until(() => processesWith(SLEEP.killed).length > 0, "the command to begin");
    await second.kill();
    await until(() => processesWith(SLEEP.killed).length === 0, "the command to be ended");
});
