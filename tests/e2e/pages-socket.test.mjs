// SPDX-License-Identifier: Apache-2.0
// The Unix socket of tools: frames, hello, results page by page, and each error.
import assert from "node:assert/strict";
import { stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import {
    FRAME_MAX,
    assertError,
    assertFailed,
    assertResult,
    caller,
    forge,
    frame,
    longTime,
    open,
    openWire,
    processesWith,
    rowsTool,
    rowsUpTo,
    startPages,
} from "./lib/pages.mjs";
import { tidemark } from "./lib/run.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const PAGE_GEN = "conformance:page_gen";
const SLEEP = { cut: longTime(), busy: longTime(), maybe: longTime() };
const EVERY_TOOL = ["conformance:page_gen", "stream:list", "stream:read"];

// ---- frames ----

test("a ping, byte by byte as it is specified, is answered with a pong", async (t) => {
    const wire = await openWire(t, await startPages(t));
    wire.raw(Buffer.from("0000000f7b2274797065223a2270696e67227d", "hex"));
    assert.deepEqual(await wire.receive(), { type: "pong" });
    assert.deepEqual(await wire.ask({ type: "ping", of: "no interest" }), { type: "pong" });
});

test("frames may come in pieces, and two at once are answered one after the other", async (t) => {
    const wire = await openWire(t, await startPages(t));
    for (const byte of frame({ type: "ping" })) {
        wire.raw(Buffer.from([byte]));
        await delay(2);
    }
    assert.deepEqual(await wire.receive(), { type: "pong" });
    const run = { type: "run_tool", tool_id: PAGE_GEN, args: {}, dry_run: false };
    wire.raw(Buffer.concat([frame(run), frame({ type: "ping" }), frame({ type: "tool_list" })]));
    assertResult(await wire.receive(), PAGE_GEN);
    assert.equal((await wire.receive()).type, "pong");
    assert.equal((await wire.receive()).type, "tool_list");
});

test("a frame of more than 10 MiB is refused by its length alone", async (t) => {
    const server = await startPages(t);
    for (const length of [FRAME_MAX + 1, 0x7fffffff, 0xffffffff]) {
        const wire = await openWire(t, server);
        const head = Buffer.alloc(4);
        head.writeUInt32BE(length);
        wire.raw(head);
        const answer = await wire.receive();
        if (answer !== null) assertError(answer, 400);
        await wire.ended();
    }
    // The largest that may come is read: what is wrong with it is its size as arguments, or nothing.
    const wire = await openWire(t, server);
    const rest = FRAME_MAX - frame({ type: "ping", pad: "" }).length + 4;
    const answer = await wire.ask({ type: "ping", pad: "x".repeat(rest) });
    assert.deepEqual(answer, { type: "pong" });
    assert.ok(server.rss() < 600e6, `${server.rss()} bytes`);
});

test("what is no message is answered with 400, and ends the connection", async (t) => {
    const server = await startPages(t);
    const bad = [
        "not json",
        "{",
        "[]",
        "1",
        "null",
        '"ping"',
        "{}",
        '{"type":1}',
        '{"type":"unheard_of"}',
        '{"type":"PING"}',
        '{"type":"ping"} x',
        '{"type":"run_tool"}',
        '{"type":"run_tool","tool_id":"conformance:page_gen","args":{}}', // dry_run is required
        '{"type":"run_tool","tool_id":7,"args":{},"dry_run":false}',
        '{"type":"run_tool","tool_id":"conformance:page_gen","args":{},"dry_run":"no"}',
        '{"type":"run_tool_continue","tool_id":"conformance:page_gen"}',
        '{"type":"run_tool_continue","tool_id":"conformance:page_gen","cursor":null}',
        '{"type":"tool_schema"}',
        '{"type":"hello","client_id":7}',
        '{"type":"hello","requested_capabilities":"all"}',
        Buffer.from([0x22, 0xff, 0x22]),
    ];
    for (const body of bad) {
        const wire = await openWire(t, server);
        const bytes = Buffer.from(body);
        const head = Buffer.alloc(4);
        head.writeUInt32BE(bytes.length);
        wire.raw(Buffer.concat([head, bytes]));
        const answer = await wire.receive();
        assert.ok(answer, `no answer to ${body}`);
        assertError(answer, 400);
        assert.equal(await wire.receive(), null, `${body} is followed by more`);
    }
    const empty = await openWire(t, server);
    empty.raw(Buffer.alloc(4));
    const answer = await empty.receive();
    if (answer !== null) assertError(answer, 400);
    await empty.ended();
});

test("clients that go away within a frame, or before their answer, do no harm", async (t) => {
    const server = await startPages(t, { "tool slow": { command: `sleep ${SLEEP.cut}` } });
    for (const cut of [1, 3, 4, 5, 15]) {
        const wire = await openWire(t, server);
        wire.raw(frame({ type: "ping" }).subarray(0, cut));
        wire.socket.end();
        await wire.ended();
    }
    const wire = await openWire(t, server);
    wire.send({ type: "run_tool", tool_id: "slow", args: {}, dry_run: false });
    await until(() => processesWith(SLEEP.cut).length > 0, "the command to begin");
    wire.socket.destroy();
    await until(() => processesWith(SLEEP.cut).length === 0, "the command to be ended");
    assert.deepEqual(await (await openWire(t, server)).ask({ type: "ping" }), { type: "pong" });
});

test("who says nothing, or only a part of something, is disconnected", async (t) => {
    const server = await startPages(t);
    const silent = await openWire(t, server);
    const slow = await openWire(t, server);
    slow.raw(frame({ type: "ping" }).subarray(0, 6));
    const known = await openWire(t, server);
    await known.hello("patient");
    await Promise.all([silent.ended(), slow.ended()]); // 5 s
    assert.equal(known.closed, false, "who has said hello may take 30 s");
    assert.deepEqual(await known.ask({ type: "ping" }), { type: "pong" });
});

// ---- hello, and what there is ----

test("hello says who it is and asks for capabilities; the last one counts", async (t) => {
    const server = await startPages(t, {
        pages: { capabilities: "ops:read" },
        "tool open": rowsTool(3),
        "tool gated": rowsTool(250, { capability: "ops:read", "page-rows": "100" }),
    });
    const wire = await openWire(t, server);
    wire.send({ type: "hello", client_id: "conformance", requested_capabilities: [] });
    const { server_version, ...rest } = await wire.receive();
    assert.deepEqual(rest, {
        type: "hello_ack",
        granted_capabilities: [],
        supported_tiers: ["hot", "warm", "cold"],
    });
    assert.match(server_version, /\d+\.\d+/);

    const denied = assertError(await wire.run("gated"), 1001, undefined, false);
    assert.deepEqual(denied.details, {
        required: ["ops:read"],
        granted: [],
        missing: ["ops:read"],
    });
    assertResult(await wire.run("open"), "open");

    const ack = await wire.hello("conformance", ["ops:read", "ops:write", "admin"]);
    assert.deepEqual(ack.granted_capabilities, ["ops:read"]);
    const first = assertResult(await wire.run("gated"), "gated");
    const second = assertResult(await wire.next("gated", first.next_cursor), "gated");
    assert.deepEqual(second.result, rowsUpTo(200).slice(100));

    // A capability that is gone is asked for again on each page.
    assert.deepEqual((await wire.hello("conformance", [])).granted_capabilities, []);
    assertError(await wire.next("gated", second.next_cursor), 1001);
    // Somebody else has the capability, but not the cursor.
    await wire.hello("another", ["ops:read"]);
    assertError(await wire.next("gated", second.next_cursor), 1021);
    await wire.hello("conformance", ["ops:read"]);
    const third = assertResult(await wire.next("gated", second.next_cursor), "gated");
    assert.deepEqual(third.result, rowsUpTo(250).slice(200));
    assert.ok(!("next_cursor" in third));

    const bare = await wire.ask({ type: "hello" });
    assert.deepEqual(bare.granted_capabilities, [], "all members of hello are optional");
});

test("tool_list and tool_schema tell what there is and how it is called", async (t) => {
    const server = await startPages(t, {
        "tool zoo:animals": {
            command: "seq 1 5",
            description: "Animals, by number",
            "input-schema": '{"type":"object","properties":{"kind":{"type":"string"}}}',
        },
    });
    const wire = await openWire(t, server);
    const { type, tools } = await wire.ask({ type: "tool_list" });
    assert.equal(type, "tool_list");
    const ids = tools.map(({ id }) => id);
    assert.deepEqual(ids, [...ids].sort());
    for (const id of [...EVERY_TOOL, "zoo:animals"]) assert.ok(ids.includes(id), `${id}: ${ids}`);
    const zoo = tools.find(({ id }) => id === "zoo:animals");
    assert.equal(zoo.description, "Animals, by number");
    assert.equal(zoo.input_schema.properties.kind.type, "string");

    const { schema } = await wire.ask({ type: "tool_schema", tool_id: "zoo:animals" });
    assert.deepEqual(schema, zoo);
    assertError(
        await wire.ask({ type: "tool_schema", tool_id: "zoo:plants" }),
        undefined,
        "tool not found: zoo:plants",
    );
});

// ---- results ----

test("conformance: ten pages of ten rows, and ten lines in the audit", async (t) => {
    const server = await startPages(t);
    const wire = await openWire(t, server);
    assert.deepEqual((await wire.hello("conformance")).granted_capabilities, []);
    const pages = await wire.pages(PAGE_GEN);
    assert.equal(pages.length, 10);
    pages.forEach((page, i) => {
        assertResult(page, PAGE_GEN);
        assert.equal(page.dry_run, false);
        assert.equal(page.result.length, 10);
        assert.equal("next_cursor" in page, i < 9);
    });
    assert.deepEqual(
        pages.flatMap(({ result }) => result),
        rowsUpTo(100),
    );

    pages.slice(0, 9).forEach(({ next_cursor }, i) => {
        const said = open(next_cursor);
        assert.ok(next_cursor.length <= 512);
        assert.equal(said.tool_id, PAGE_GEN);
        assert.equal(said.caller_id, "conformance");
        assert.equal(said.page, i + 2, "a cursor names the page that it leads to");
        assert.ok(Math.abs(said.issued_at - Date.now() / 1000) < 60);
        const state = Buffer.alloc(4);
        state.writeUInt32BE(i + 2);
        assert.deepEqual(said.state, state);
    });

    const lines = server.audit();
    assert.equal(lines.length, 10);
    assert.deepEqual(
        lines.map(({ cursor_page }) => cursor_page),
        [undefined, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    );
    for (const line of lines) {
        assert.ok(Math.abs(Date.parse(line.ts) - Date.now()) < 60_000, line.ts);
        assert.match(line.call_id, /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/);
        assert.equal(line.tool_id, PAGE_GEN);
        assert.equal(line.caller_id, "conformance");
        assert.deepEqual(line.granted_capabilities, []);
        assert.equal(typeof line.duration_ms, "number");
        assert.deepEqual(line.outcome, { kind: "success" });
        assert.equal(line.dry_run, false);
        assert.ok("tier" in line && "secrets_resolved" in line);
        assert.ok([2, 3].includes(line.schema_version));
    }
    assert.equal(new Set(lines.map(({ call_id }) => call_id)).size, 10);
});

test("nobody in particular has pages of their own, too", async (t) => {
    const server = await startPages(t);
    const wire = await openWire(t, server);
    const first = assertResult(await wire.run(PAGE_GEN), PAGE_GEN);
    assert.ok(!("caller_id" in open(first.next_cursor)));
    assertResult(await wire.next(PAGE_GEN, first.next_cursor), PAGE_GEN);
    // On another connection, too: nobody is nobody.
    const other = await openWire(t, server);
    assertResult(await other.next(PAGE_GEN, first.next_cursor), PAGE_GEN);
    assert.ok(server.audit().every((line) => !("caller_id" in line)));
});

test("dry_run checks and runs nothing", async (t) => {
    const folder = await tempFolder(t);
    const trace = join(folder, "was-here");
    const server = await startPages(t, { "tool touch": { command: `touch ${trace}` } });
    const wire = await openWire(t, server);
    const answer = assertResult(await wire.run("touch", { a: 1 }, { dry_run: true }), "touch");
    assert.equal(answer.dry_run, true);
    assert.deepEqual(answer.result, { dry_run: true, tool_id: "touch", args_preview: { a: 1 } });
    assert.ok(!("next_cursor" in answer));
    await assert.rejects(stat(trace));
    assertError(
        await wire.run("nothing", {}, { dry_run: true }),
        undefined,
        "tool not found: nothing",
    );
    assertResult(await wire.run("touch", { a: 1 }), "touch");
    assert.ok(await stat(trace));
    assert.deepEqual(
        server.audit().map(({ dry_run, outcome }) => [dry_run, outcome.kind]),
        [
            [true, "success"],
            [true, "tool_not_found"],
            [false, "success"],
        ],
    );
});

// ---- errors ----

test("a first page: each way in which it is refused, and what the audit says", async (t) => {
    const server = await startPages(t, {
        "tool fails": { command: "false" },
        "tool gated": rowsTool(3, { capability: "ops:read" }),
        "tool busy": { command: `sleep ${SLEEP.busy}`, parallel: "1" },
    });
    const wire = await openWire(t, server);
    assertError(await wire.run("nowhere"), undefined, "tool not found: nowhere");
    for (const args of [7, "x", [1]]) assertError(await wire.run(PAGE_GEN, args), undefined);
    assertError(await wire.run("stream:read", {}), undefined); // it needs a name
    assertError(await wire.run("stream:read", { name: 7 }), undefined);
    const denied = assertError(await wire.run("gated"), 1001);
    assert.deepEqual(denied.details.missing, ["ops:read"]);
    assertFailed(await wire.run("fails"), /./);

    const first = await openWire(t, server);
    first.send({ type: "run_tool", tool_id: "busy", args: {}, dry_run: false });
    await until(() => processesWith(SLEEP.busy).length > 0, "the command to begin");
    assertError(await wire.run("busy"), 1002, /busy/, true);

    const kinds = server.audit().map(({ outcome }) => outcome.kind);
    assert.deepEqual(kinds, [
        "tool_not_found",
        ...Array(5).fill("invalid_args"),
        "capability_denied",
        "execution_failed",
        "rate_limited",
    ]);
    const failed = server.audit().find(({ outcome }) => outcome.kind === "execution_failed");
    assert.ok("code" in failed.outcome, JSON.stringify(failed.outcome));
    assert.equal(typeof failed.outcome.retryable, "boolean");
});

test("a next page: each way in which it is refused, in the order of the checks", async (t) => {
    const pages = { "cursor-session": Buffer.from([1, 2, 3, 4, 5, 6, 7, 8]).toString("base64") };
    const server = await startPages(t, {
        pages: { ...pages, "cursor-ttl": "60s" },
        "tool gated": rowsTool(300, { capability: "ops:read" }),
        "tool plain": rowsTool(300),
    });
    const wire = await openWire(t, server);
    const { next_cursor } = assertResult(await wire.run(PAGE_GEN), PAGE_GEN);
    const now = Math.floor(Date.now() / 1000);

    // 1. The cursor itself.
    const expired = forge({
        tool_id: PAGE_GEN,
        issued_at: now - 90,
        state: Buffer.from([0, 0, 0, 2]),
    });
    assertError(
        await wire.next(PAGE_GEN, expired),
        1020,
        "cursor expired; re-issue the original RunTool",
    );
    const other = forge({ tool_id: PAGE_GEN }, { session: Buffer.alloc(8, 9) });
    assertError(await wire.next(PAGE_GEN, other), 1020);
    const restarted = forge(
        { tool_id: PAGE_GEN },
        { session: Buffer.alloc(8, 9), key: Buffer.alloc(32, 9) },
    );
    assertError(await wire.next(PAGE_GEN, restarted), 1020);
    const forged = forge({ tool_id: PAGE_GEN }, { key: Buffer.alloc(32, 9) });
    const never = [
        forged,
        "",
        "0",
        "start",
        "not!base64!",
        Buffer.from("abcdef").toString("base64url"),
        Buffer.alloc(64, 0xff).toString("base64url"),
        `${next_cursor}=`,
        `${next_cursor}A`,
        next_cursor.slice(0, -1),
        next_cursor.slice(4),
        `${next_cursor.slice(0, -1)}${next_cursor.endsWith("A") ? "B" : "A"}`,
        "A".repeat(513),
        "A".repeat(100_000),
    ];
    for (const cursor of never)
        assertError(await wire.next(PAGE_GEN, cursor), 1021, "cursor invalid");

    // 2. Whose it is comes before whether there is such a tool.
    assertError(
        await wire.next("other:not_page_gen", forge({ tool_id: PAGE_GEN })),
        1021,
        `cursor tool_id mismatch: cursor=${PAGE_GEN} request=other:not_page_gen`,
    );
    assertError(await wire.next(PAGE_GEN, forge({ tool_id: PAGE_GEN, caller_id: "ada" })), 1021);
    assertError(await wire.next(PAGE_GEN, forge({ tool_id: PAGE_GEN, caller_id: "" })), 1021);
    const args = { args: { b: [1, 2], a: "x" } };
    const bound = forge({ tool_id: PAGE_GEN, ...args, state: Buffer.from([0, 0, 0, 2]) });
    assertResult(await wire.next(PAGE_GEN, bound), PAGE_GEN);
    assertResult(await wire.next(PAGE_GEN, bound, { args: { a: "x", b: [1, 2] } }), PAGE_GEN);
    for (const changed of [{}, { a: "x" }, { b: [2, 1], a: "x" }, { b: [1, 2], a: "x", c: 1 }])
        assertError(await wire.next(PAGE_GEN, bound, { args: changed }), 1021);

    // 3. and 4. The tool.
    assertError(
        await wire.next("gone", forge({ tool_id: "gone" })),
        undefined,
        "tool not found: gone",
    );
    const { tools } = await wire.ask({ type: "tool_list" });
    for (const { id } of tools.filter((tool) => tool.paginated === false))
        assertError(
            await wire.next(id, forge({ tool_id: id })),
            1021,
            `tool ${id} does not support pagination but received a cursor`,
        );

    // 5. What may be done.
    assertError(await wire.next("gated", forge({ tool_id: "gated" })), 1001);

    // A state that the tool has not given out, rightly signed: an answer, and no page.
    for (const state of [[], [1], [0, 0, 0, 0], [255, 255, 255, 255], Array(256).fill(255)])
        for (const tool_id of ["plain", "stream:list", "stream:read"]) {
            const answer = await wire.next(tool_id, forge({ tool_id, state: Buffer.from(state) }));
            assert.ok(answer.type === "error" || answer.success === false, `${tool_id} ${state}`);
        }

    const audited = server.audit().filter(({ outcome }) => outcome.kind !== "success");
    for (const { outcome } of audited)
        assert.ok(
            ["execution_failed", "invalid_args"].includes(outcome.kind),
            "refused continuations are in no audit",
        );
});

test("pages that are kept are given while as many commands run as may", async (t) => {
    const folder = await tempFolder(t);
    const script = join(folder, "maybe.sh");
    await writeFile(
        script,
        `read -r args\ncase $args in *wait*) exec sleep ${SLEEP.maybe};; esac\nseq 1 300\n`,
    );
    const server = await startPages(t, {
        "tool maybe": { command: `sh ${script}`, parallel: "1" },
    });
    const wire = await openWire(t, server);
    const pages = await wire.pages("maybe");
    const busy = await openWire(t, server);
    busy.send({ type: "run_tool", tool_id: "maybe", args: { wait: true }, dry_run: false });
    await until(() => processesWith(SLEEP.maybe).length > 0, "the command to begin");
    assertError(await wire.run("maybe"), 1002, /maybe/, true);
    for (const [i, { next_cursor }] of pages.slice(0, -1).entries()) {
        const again = assertResult(await wire.next("maybe", next_cursor), "maybe");
        assert.deepEqual(again.result, pages[i + 1].result);
    }
});

// ---- the socket's file ----

test("the socket is its owner's; a stale one is replaced, a live one is not", async (t) => {
    const server = await startPages(t);
    assert.equal((await stat(server.socket)).mode & 0o777, 0o600);
    const second = await tidemark(t, [
        "serve",
        ...["--store", "memory", "--listen", "127.0.0.1:0", "--tools-socket", server.socket],
    ]);
    assert.notEqual(second.code, 0);
    assert.match(second.stderr, /tools\.sock/);
    assert.deepEqual(await (await openWire(t, server)).ask({ type: "ping" }), { type: "pong" });

    await server.kill();
    assert.ok(await stat(server.socket), "a killed server leaves it behind");
    const again = await startServer(t, [], { env: { ATD_SOCK: server.socket } });
    again.socket = server.socket;
    assert.deepEqual(await (await openWire(t, again)).ask({ type: "ping" }), { type: "pong" });
    await again.stop();
    await assert.rejects(stat(server.socket), "a server that was stopped takes it away");
});

test("a socket's name that another file has is left alone", async (t) => {
    const folder = await tempFolder(t);
    const path = join(folder, "notes.txt");
    await writeFile(path, "mine");
    const refused = await tidemark(t, [
        "serve",
        ...["--store", "memory", "--listen", "127.0.0.1:0", "--tools-socket", path],
    ]);
    assert.notEqual(refused.code, 0);
    assert.match(refused.stderr, /notes\.txt/);
    assert.equal((await stat(path)).size, 4);

    // Nor is the socket of somebody else who listens there.
    const taken = join(folder, "taken.sock");
    const theirs = createServer().listen(taken);
    t.after(() => theirs.close());
    const second = await tidemark(t, [
        "serve",
        ...["--store", "memory", "--listen", "127.0.0.1:0", "--tools-socket", taken],
    ]);
    assert.notEqual(second.code, 0);
    assert.ok((await stat(taken)).isSocket());
});

test("callers of the config file are none on the socket, whatever they call themselves", async (t) => {
    const server = await startPages(t, {
        "caller ada": caller("token-of-ada", "ops:read"),
        "tool gated": rowsTool(3, { capability: "ops:read" }),
    });
    const wire = await openWire(t, server);
    assert.deepEqual((await wire.hello("ada", ["ops:read"])).granted_capabilities, []);
    assertError(await wire.run("gated"), 1001);
});
