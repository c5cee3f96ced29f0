// SPDX-License-Identifier: Apache-2.0
// The tools that look at what the server has: streams, logs, sessions, feedback.
import assert from "node:assert/strict";
import { appendFile, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import {
    assertError,
    assertFailed,
    assertResult,
    caller,
    forge,
    open,
    openWire,
    rowsUpTo,
    startPages,
} from "./lib/pages.mjs";
import { tidemark } from "./lib/run.mjs";
import { TIDEMARK } from "./lib/session-schema.mjs";
import { Peer, Session } from "./lib/session.mjs";
import { tempFolder } from "./lib/temp.mjs";

const rowsOf = (pages) => pages.flatMap(({ result }) => result);
const refused = (answer) => answer.type === "error" || answer.success === false;

// ---- streams ----

test("stream:list and stream:read page through streams", async (t) => {
    const server = await startPages(t);
    const names = Array.from({ length: 230 }, (_, i) => `many/${String(i).padStart(3, "0")}`);
    for (const name of names) await server.create(name);
    await server.create("notes");
    await server.append("notes", JSON.stringify(rowsUpTo(1050)));
    const wire = await openWire(t, server);
    const listed = await wire.pages("stream:list", { prefix: "many/" });
    assert.equal(listed.length, 3);
    assert.deepEqual(
        rowsOf(listed).map(({ name }) => name),
        names,
    );
    const small = await wire.pages("stream:list", { prefix: "many/", limit: 7 });
    assert.equal(small.length, 33);
    assert.deepEqual(
        rowsOf(small).map(({ name }) => name),
        names,
    );

    const pages = await wire.pages("stream:read", { name: "notes" });
    assert.equal(pages.length, 11);
    assert.deepEqual(rowsOf(pages), rowsUpTo(1050));
    assert.deepEqual(
        rowsOf(await wire.pages("stream:read", { name: "notes", limit: 999 })),
        rowsUpTo(1050),
    );
    assertFailed(await wire.run("stream:read", { name: "nowhere" }), /nowhere/);
    for (const name of ["sessions/x/in", ".route/x", ".tool/x", "", "../x"])
        assert.ok(refused(await wire.run("stream:read", { name })), `${name} is the server's own`);
    for (const args of [
        { name: "notes", limit: 0 },
        { name: "notes", limit: 1001 },
        { name: "notes", x: 1 },
    ])
        assertError(await wire.run("stream:read", args), undefined);
    assertError(await wire.run("stream:read", { name: "notes", offset: "soon" }), undefined);
});

test("stream:read: a page shows what was there, whatever is appended or deleted meanwhile", async (t) => {
    const server = await startPages(t);
    await server.create("live");
    await server.append("live", JSON.stringify(rowsUpTo(250)));
    const wire = await openWire(t, server);
    const first = assertResult(await wire.run("stream:read", { name: "live" }), "stream:read");
    await server.append("live", JSON.stringify([{ row: 250 }]));
    const rows = [...first.result];
    for (let cursor = first.next_cursor; cursor;) {
        const page = assertResult(await wire.next("stream:read", cursor), "stream:read");
        rows.push(...page.result);
        cursor = page.next_cursor;
    }
    assert.deepEqual(rows.slice(0, 250), rowsUpTo(250));
    assert.equal((await server.stream("DELETE", "live")).status, 204);
    assert.ok(refused(await wire.next("stream:read", first.next_cursor)));
    await server.create("live");
    await server.append("live", JSON.stringify(rowsUpTo(250).map(({ row }) => ({ other: row }))));
    const again = await wire.next("stream:read", first.next_cursor);
    assert.ok(refused(again), "another stream of that name is not gone on with");
});

test("stream:read gives texts and bytes, too", async (t) => {
    const server = await startPages(t);
    await server.create("text", "text/plain");
    await server.append("text", "Grüße ".repeat(40_000), "text/plain");
    await server.create("bytes", "application/octet-stream");
    const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, i) => (i * 7) & 255));
    await server.append("bytes", bytes, "application/octet-stream");
    const wire = await openWire(t, server);
    const binary = rowsOf(await wire.pages("stream:read", { name: "bytes" }));
    const decoded = binary.map((row) =>
        row.text === undefined ? Buffer.from(row.base64, "base64") : Buffer.from(row.text),
    );
    assert.deepEqual(Buffer.concat(decoded), bytes);
    const text = rowsOf(await wire.pages("stream:read", { name: "text" }));
    const parts = text.map((row) =>
        row.text === undefined ? Buffer.from(row.base64, "base64") : Buffer.from(row.text),
    );
    assert.equal(Buffer.concat(parts).toString(), "Grüße ".repeat(40_000));
});

test("names that leave no room in a cursor are kept for it", async (t) => {
    const server = await startPages(t);
    const name = `${"long/".repeat(40)}name`;
    await server.create(name);
    await server.append(name, JSON.stringify(rowsUpTo(250)));
    const wire = await openWire(t, server);
    await wire.hello("c".repeat(128));
    const pages = await wire.pages("stream:read", { name });
    assert.deepEqual(rowsOf(pages), rowsUpTo(250));
    for (const { next_cursor } of pages.slice(0, -1)) {
        assert.ok(next_cursor.length <= 512);
        const args = { name };
        assertResult(await wire.next("stream:read", next_cursor, { args }), "stream:read");
        assertError(await wire.next("stream:read", next_cursor, { args: { name: "other" } }), 1021);
    }
});

// ---- logs ----

const itemsOf = (pages) => pages.flatMap(({ result }) => result.items);

test("log:read pages through a log, and tells where to go on later", async (t) => {
    const folder = await tempFolder(t);
    const path = join(folder, "log.jsonl");
    const line = (n) => `${JSON.stringify({ n, even: n % 2 === 0 })}\n`;
    const numbers = Array.from({ length: 1050 }, (_, n) => n);
    await writeFile(path, numbers.map(line).join(""));
    const server = await startPages(t, { "log things": { path } });
    const wire = await openWire(t, server);
    const pages = await wire.pages("log:read", { name: "things" });
    assert.deepEqual(
        itemsOf(pages).map(({ n }) => n),
        numbers,
    );
    assert.ok(pages.length > 10);
    const even = await wire.pages("log:read", { name: "things", where: { even: true }, limit: 50 });
    assert.deepEqual(
        itemsOf(even).map(({ n }) => n),
        numbers.filter((n) => n % 2 === 0),
    );
    const cursor = pages.at(-1).result.nextCursor;
    await appendFile(path, line(1050));
    const later = await wire.pages("log:read", { name: "things", cursor });
    assert.deepEqual(
        itemsOf(later).map(({ n }) => n),
        [1050],
    );
    assert.ok(refused(await wire.run("log:read", { name: "nothing" })));
    assert.ok(refused(await wire.run("log:read", { name: "things", cursor: "x" })));

    // From the command line as one.
    const { stdout } = await tidemark(t, [
        ...["tool", "all", "log:read", '{"name":"things"}'],
        ...["--merge", "field:items", "--server", server.base],
    ]);
    assert.equal(JSON.parse(stdout).items.length, 1051);

    // A file that is another one by now is not gone on with.
    const first = await wire.run("log:read", { name: "things" });
    await truncate(path, 0);
    await appendFile(path, numbers.map(line).join("").slice(7));
    const next = await wire.next("log:read", first.next_cursor);
    assert.ok(
        refused(next) || next.result.items.every(({ n }) => n >= 100),
        JSON.stringify(next).slice(0, 300),
    );
});

// ---- feedback ----

test("feedback:wait gives what is there, waits for what is not, and has no pages", async (t) => {
    const folder = await tempFolder(t);
    const feedback = join(folder, "feedback.jsonl");
    const server = await startPages(t, {
        pages: { "cursor-session": Buffer.from([1, 2, 3, 4, 5, 6, 7, 8]).toString("base64") },
        lab: { root: join(folder, "lab"), feedback },
    });
    const wire = await openWire(t, server);
    const say = (notes) =>
        tidemark(t, ["feedback"], {
            input: JSON.stringify({ notes }),
            env: { CM_FEEDBACK_STORE_PATH: feedback, CM_LAB_ROOT: join(folder, "lab") },
        });
    const none = assertResult(await wire.run("feedback:wait", { timeout: 0 }), "feedback:wait");
    assert.deepEqual(none.result.items, []);
    wire.send({
        type: "run_tool",
        tool_id: "feedback:wait",
        args: { timeout: 60 },
        dry_run: false,
    });
    assert.equal((await say("good")).code, 0);
    const told = assertResult(await wire.receive(), "feedback:wait");
    assert.deepEqual(
        told.result.items.map(({ notes }) => notes),
        ["good"],
    );
    assert.ok(!("next_cursor" in told));
    const cursor = told.result.nextCursor;
    const later = await wire.run("feedback:wait", { timeout: 0, cursor });
    assert.deepEqual(later.result.items, []);
    await say("better");
    const more = await wire.run("feedback:wait", { timeout: 60, cursor });
    assert.deepEqual(
        more.result.items.map(({ notes }) => notes),
        ["better"],
    );
    assertError(
        await wire.next("feedback:wait", forge({ tool_id: "feedback:wait" })),
        1021,
        "tool feedback:wait does not support pagination but received a cursor",
    );
});

// ---- sessions ----

test("session:read is for workers, and shows what was sent and answered", async (t) => {
    const server = await startPages(t, {
        session: { handler: "echo" },
        pages: { capabilities: "worker" },
        "caller ada": caller("token-of-ada", "worker"),
    });
    const session = new Session(TIDEMARK);
    const call = new Peer(t, server).open(session);
    for (let i = 0; i < 120; i++) call.chunk(i, `message ${i}`);
    await call.seen(120);
    const wire = await openWire(t, server);
    assertError(await wire.run("session:read", { session: session.key }), 1001);
    await wire.hello("ada", ["worker"]);
    const sent = await wire.pages("session:read", { session: session.key, stream: "in" });
    assert.equal(sent.length, 2);
    assert.deepEqual(
        rowsOf(sent).map(({ seqno }) => seqno),
        Array.from({ length: 120 }, (_, i) => i),
    );
    assert.equal(open(sent[0].next_cursor).caller_id, "ada");
    const answered = await wire.pages("session:read", { session: session.key });
    assert.equal(rowsOf(answered).length, 120);
    assert.ok(refused(await wire.run("session:read", { session: "nobody" })));
    assertError(
        await wire.run("session:read", { session: session.key, stream: "sideways" }),
        undefined,
    );
    // Without the capability not even the next page.
    await wire.hello("ada", []);
    assertError(await wire.next("session:read", sent[0].next_cursor), 1001);
});
