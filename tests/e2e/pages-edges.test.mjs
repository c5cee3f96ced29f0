// SPDX-License-Identifier: Apache-2.0
// Tools at their limits: many at once, large and deep arguments, clients that leave, long names,
// URLs that never end.
import assert from "node:assert/strict";
import { once } from "node:events";
import { chmod, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { request } from "undici";
import { defer } from "./lib/defer.mjs";
import { call, post } from "./lib/mcp.mjs";
import {
    Wire,
    assertError,
    assertFailed,
    assertResult,
    frame,
    longTime,
    open,
    openWire,
    processesWith,
    rowsTool,
    rowsUpTo,
    startPages,
} from "./lib/pages.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const PAGE_GEN = "conformance:page_gen";

test("who has said all gets every answer before the end", async (t) => {
    const server = await startPages(t, {
        "tool slow": { command: "sh -c 'sleep 0.2 && seq 1 3'" },
    });
    const run = { type: "run_tool", tool_id: "slow", args: {}, dry_run: false };
    const socket = connect({ path: server.socket, allowHalfOpen: true });
    defer(t, () => socket.destroy());
    const wire = new Wire(socket);
    const list = Array(200).fill(frame({ type: "tool_list" }));
    socket.end(Buffer.concat([frame({ type: "ping" }), frame(run), ...list, frame(run)]));
    assert.equal((await wire.receive()).type, "pong");
    assert.deepEqual(assertResult(await wire.receive(), "slow").result, [1, 2, 3]);
    for (let i = 0; i < list.length; i++) assert.equal((await wire.receive()).type, "tool_list");
    assert.deepEqual(assertResult(await wire.receive(), "slow").result, [1, 2, 3]);
    assert.equal(await wire.receive(), null);
});

test("who reads no answers gets no more of them", async (t) => {
    const server = await startPages(t);
    const wire = await openWire(t, server);
    await wire.hello("deaf");
    for (let i = 0; i < 100; i++) await wire.ask({ type: "tool_list" });
    const before = server.rss();
    wire.socket.pause();
    const many = Buffer.concat(Array(1000).fill(frame({ type: "tool_list" })));
    for (let i = 0; i < 100; i++) wire.raw(many); // answers of 300 MB in all
    // Others are served meanwhile, for as long as it would have taken.
    const other = await openWire(t, server);
    for (let i = 0; i < 300; i++) await other.ask({ type: "tool_list" });
    const grown = server.rss() - before;
    assert.ok(grown < 30e6, `${grown} bytes more`);
    wire.socket.resume();
    for (let i = 0; i < 1000; i++) assert.equal((await wire.receive()).type, "tool_list");
});

test("many clients at once: each is answered, or turned away at once", async (t) => {
    const server = await startPages(t, { "tool rows": rowsTool(300) });
    const wires = [];
    for (let i = 0; i < 60; i++) wires.push(await openWire(t, server));
    const all = await Promise.all(
        wires.map(async (wire, i) => {
            await wire.hello(`client ${i}`);
            return (await wire.pages(PAGE_GEN)).flatMap(({ result }) => result);
        }),
    );
    for (const rows of all) assert.deepEqual(rows, rowsUpTo(100));
    for (let i = 0; i < 40; i++) wires.push(await openWire(t, server));
    // Those beyond what is served at a time see an end and no silence.
    const extra = await Promise.all(
        wires.slice(60).map(async (wire) => {
            wire.send({ type: "ping" });
            return wire.receive();
        }),
    );
    for (const answer of extra) assert.ok(answer === null || answer.type === "pong");
    assert.ok(extra.some((answer) => answer === null));
    for (const wire of wires) wire.socket.destroy();
    await until(async () => {
        const wire = await openWire(t, server);
        return (await wire.send({ type: "ping" }).receive()) !== null;
    }, "room for a client");
});

test("as many commands at once as may run, and each has its own result", async (t) => {
    const folder = await tempFolder(t);
    const path = join(folder, "echo.sh");
    await writeFile(
        path,
        '#!/bin/sh\nread -r args\nfor i in $(seq 1 250); do echo "$args"; done\n',
    );
    await chmod(path, 0o755);
    const server = await startPages(t, { "tool echo": { command: path, parallel: "20" } });
    const results = await Promise.all(
        Array.from({ length: 20 }, async (_, who) => {
            const wire = await openWire(t, server);
            await wire.hello(`client ${who}`);
            return (await wire.pages("echo", { who })).flatMap(({ result }) => result);
        }),
    );
    results.forEach((rows, who) => assert.deepEqual(rows, Array(250).fill({ who })));
});

test("arguments: as large as may be, too large, too deep, and twice the same name", async (t) => {
    const server = await startPages(t, { "tool cat": { command: "cat", "page-bytes": "4m" } });
    const wire = await openWire(t, server);
    const large = { text: "ü".repeat(400_000), list: Array(10_000).fill(null) };
    assert.deepEqual(assertResult(await wire.run("cat", large), "cat").result, [large]);
    assertError(await wire.run("cat", { text: "x".repeat(2 * 1024 * 1024) }), undefined, /./);
    const deep = `${'{"a":'.repeat(5000)}1${"}".repeat(5000)}`;
    const message = (args) => `{"type":"run_tool","tool_id":"cat","args":${args},"dry_run":false}`;
    const answer = await (await openWire(t, server)).ask(message(deep));
    assert.equal(answer.type, "error");
    const twice = await (await openWire(t, server)).ask(message('{"a":1,"a":2}'));
    if (twice.type === "tool_result") assert.deepEqual(twice.result, [{ a: 2 }]);
    else assertError(twice, twice.code, /./);
    const empty = await (await openWire(t, server)).ask(message('{"\\u0000":"\\ud800"}'));
    assert.ok(empty.type === "error" || empty.success !== undefined);
    assert.deepEqual(await wire.ask({ type: "ping" }), { type: "pong" });
});

test("names as long as may be still have room for cursors; longer ones are refused", async (t) => {
    const id = "t".repeat(128);
    const server = await startPages(t, { [`tool ${id}`]: rowsTool(250) });
    const wire = await openWire(t, server);
    await wire.hello("c".repeat(128));
    const pages = await wire.pages(id);
    assert.deepEqual(
        pages.flatMap(({ result }) => result),
        rowsUpTo(250),
    );
    assert.equal(open(pages[0].next_cursor).caller_id, "c".repeat(128));
    const other = await openWire(t, server);
    const answer = await other.ask({ type: "hello", client_id: "c".repeat(129) });
    assert.equal(answer.type, "error", "a name that was cut would be another's");
    const many = await openWire(t, server);
    const requested = Array.from({ length: 1000 }, (_, i) => `x:${i}`);
    const reply = await many.send({ type: "hello", requested_capabilities: requested }).receive();
    assert.ok(reply.type === "error" || reply.granted_capabilities.length === 0);
});

test("a command ends with the client that waits for it, on each wire", async (t) => {
    const marker = longTime();
    const server = await startPages(t, {
        "tool slow": { command: `sleep ${marker}`, timeout: "600s" },
    });
    const running = (some) =>
        until(
            () => processesWith(marker).length > 0 === some,
            some ? "the command to begin" : "the command to be ended",
        );
    const bodies = {
        "/atd/v1/run_tool": { tool_id: "slow", args: {} },
        "/mcp": { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "slow" } },
    };
    for (const [path, body] of Object.entries(bodies)) {
        const gone = new AbortController();
        const asked = request(server.base + path, {
            method: "POST",
            headers: { "content-type": "application/json" },
            body: JSON.stringify(body),
            signal: gone.signal,
        });
        await running(true);
        gone.abort();
        await assert.rejects(asked);
        await running(false);
    }
});

test("a result that somebody goes on with is made to its end, whoever has left", async (t) => {
    const folder = await tempFolder(t);
    const gate = join(folder, "gate");
    const path = join(folder, "gated.sh");
    await writeFile(
        path,
        `#!/bin/sh\nseq 1 150\nwhile [ ! -e ${gate} ]; do sleep 0.05; done\nseq 151 300\n`,
    );
    await chmod(path, 0o755);
    const server = await startPages(t, { "tool gated": { command: path } });
    const first = await openWire(t, server);
    const { next_cursor } = assertResult(await first.run("gated"), "gated");
    // One waits for the second page and leaves; another waits and stays.
    const leaves = await openWire(t, server);
    leaves.send({ type: "run_tool_continue", tool_id: "gated", cursor: next_cursor });
    first.socket.destroy();
    leaves.socket.destroy();
    const stays = await openWire(t, server);
    stays.send({ type: "run_tool_continue", tool_id: "gated", cursor: next_cursor });
    await writeFile(gate, "");
    const second = assertResult(await stays.receive(), "gated");
    assert.deepEqual(
        second.result,
        rowsUpTo(201)
            .slice(101)
            .map(({ row }) => row),
    );
});

test("URLs that never end, never answer, break off or send elsewhere", async (t) => {
    const origin = createServer((incoming, response) => {
        incoming.resume();
        const { url } = incoming;
        if (url === "/endless") {
            const more = () => {
                while (!response.destroyed && response.write("1234567\n".repeat(1000)));
            };
            response.on("drain", more);
            more();
        } else if (url === "/cut") {
            response.writeHead(200, { "content-length": "1000" });
            response.write("1\n2\n");
            setTimeout(() => response.destroy(), 50);
        } else if (url === "/elsewhere") {
            response.writeHead(302, { location: "/rows" }).end();
        } else if (url === "/rows") {
            response.end("[1]");
        } // and /mute says nothing
    });
    origin.listen(0, "127.0.0.1");
    await once(origin, "listening");
    defer(t, () => {
        origin.closeAllConnections();
        origin.close();
    });
    const at = (path, more = {}) => ({
        url: `http://127.0.0.1:${origin.address().port}/${path}`,
        ...more,
    });
    const server = await startPages(t, {
        "tool endless": at("endless", { "max-output": "1m", "page-rows": "10000" }),
        "tool mute": at("mute", { timeout: "300ms" }),
        "tool cut": at("cut"),
        "tool elsewhere": at("elsewhere"),
    });
    const wire = await openWire(t, server);
    const pages = [await wire.run("endless")];
    while (pages.at(-1).next_cursor)
        pages.push(await wire.next("endless", pages.at(-1).next_cursor));
    assertFailed(pages.at(-1), /more than 1048576 bytes/);
    assertFailed(await wire.run("mute"), /longer than 300 ms/);
    assertFailed(await wire.run("cut"), /./);
    assertFailed(await wire.run("elsewhere"), /302/);
    assert.ok(server.rss() < 500e6);
});

test("an answer over /mcp that is as large as may be", async (t) => {
    const server = await startPages(t, {
        "tool wide": {
            command: `seq -f '"%09999.0f"' 1 400`,
            "page-rows": "400",
            "page-bytes": "4m",
        },
    });
    const { result } = await call(server, "wide", {});
    assert.equal(JSON.parse(result.content[0].text).length, 400);
    const batch = Array(50).fill({ jsonrpc: "2.0", id: 1, method: "ping" });
    assert.equal((await post(server, batch)).status, 400);
});
