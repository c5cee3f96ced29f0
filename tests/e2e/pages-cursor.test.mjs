// SPDX-License-Identifier: Apache-2.0
// Cursors in the wrong hands: changed, replayed, of another server, or too old.
import assert from "node:assert/strict";
import { createHmac, randomBytes } from "node:crypto";
import { join } from "node:path";
import { test } from "node:test";
import {
    KEY,
    SESSION,
    assertError,
    assertFailed,
    assertResult,
    bitFlips,
    configFile,
    fingerprint,
    forge,
    longTime,
    open,
    openWire,
    rowsTool,
    rowsUpTo,
    startPages,
} from "./lib/pages.mjs";
import { tidemark } from "./lib/run.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const PAGE_GEN = "conformance:page_gen";
const shared = { "cursor-session": SESSION.toString("base64") };
const STATE = Buffer.from([0, 0, 0, 2]);

async function firstCursor(wire, tool = PAGE_GEN, args = {}) {
    const { next_cursor } = assertResult(await wire.run(tool, args), tool);
    assert.ok(next_cursor, "there is more than one page");
    return next_cursor;
}

test("no bit of a cursor can be changed", async (t) => {
    const server = await startPages(t, { "tool rows": rowsTool(300) });
    const wire = await openWire(t, server);
    await wire.hello("ada");
    for (const tool of [PAGE_GEN, "rows"]) {
        const cursor = await firstCursor(wire, tool);
        const { session } = open(cursor);
        let refused = 0;
        for (const changed of bitFlips(cursor)) {
            const answer = await wire.next(tool, changed);
            // A changed session looks like that of a server which has been started anew.
            const body = Buffer.from(changed, "base64url");
            assertError(answer, body.includes(session) ? 1021 : 1020, undefined);
            refused++;
        }
        assert.equal(refused, Buffer.from(cursor, "base64url").length * 8);
        assertResult(await wire.next(tool, cursor), tool);
    }
});

test("nor one of its characters, nor its length", async (t) => {
    const wire = await openWire(t, await startPages(t));
    const cursor = await firstCursor(wire);
    const { session } = open(cursor);
    for (let i = 0; i < cursor.length; i++) {
        const other = cursor[i] === "A" ? "B" : "A";
        const changed = cursor.slice(0, i) + other + cursor.slice(i + 1);
        const answer = await wire.next(PAGE_GEN, changed);
        // What seems to be of another session may be told so.
        const ours = Buffer.from(changed, "base64url").includes(session);
        assertError(answer, ours || answer.code !== 1020 ? 1021 : 1020);
        const cut = await wire.next(PAGE_GEN, cursor.slice(0, i));
        assertError(cut, cut.code === 1020 ? 1020 : 1021);
    }
    // One spelling: not padded, not in the other alphabet, without white space.
    const spellings = [`${cursor}==`, ` ${cursor}`, `${cursor}\n`, `${cursor}\0`, `${cursor}AAAA`];
    if (/[-_]/.test(cursor)) spellings.push(cursor.replaceAll("-", "+").replaceAll("_", "/"));
    for (const other of spellings) assertError(await wire.next(PAGE_GEN, other), 1021);
    assertResult(await wire.next(PAGE_GEN, cursor), PAGE_GEN);
});

test("a cursor is for one caller, one tool and one set of arguments", async (t) => {
    const server = await startPages(t, {
        "tool rows": rowsTool(300),
        "tool same": rowsTool(300),
    });
    const [ada, bob, nobody] = [
        await openWire(t, server),
        await openWire(t, server),
        await openWire(t, server),
    ];
    await ada.hello("ada");
    await bob.hello("bob");
    const args = { n: 1.0, list: [true, null], é: "x" };
    const hers = await firstCursor(ada, "rows", args);
    assert.deepEqual(open(hers).args, fingerprint(args));
    assert.equal(open(hers).caller_id, "ada");
    for (const wire of [bob, nobody]) assertError(await wire.next("rows", hers), 1021);
    assertError(
        await ada.next("same", hers),
        1021,
        /^cursor tool_id mismatch: cursor=rows request=same$/,
    );
    assertError(await ada.next("rows", hers, { args: { ...args, n: 2 } }), 1021);
    assertError(await ada.next("rows", hers, { args: {} }), 1021);
    const anybodys = await firstCursor(nobody, "rows", args);
    assertError(await ada.next("rows", anybodys), 1021);

    // In other words the same arguments: the order of members and the spelling of numbers.
    const same = { type: "run_tool_continue", tool_id: "rows", cursor: hers, args: 0 };
    const text = JSON.stringify(same).replace(
        '"args":0',
        '"args": {"\\u00e9":"x", "list":[true,null], "n":1e0}',
    );
    assertResult(await ada.ask(text), "rows");
    // A name that is taken anew by hello counts at once.
    await bob.hello("ada");
    assertResult(await bob.next("rows", hers), "rows");
    await ada.hello("eve");
    assertError(await ada.next("rows", hers), 1021);
});

test("a page can be asked for again, and is the same", async (t) => {
    const server = await startPages(t, {
        "tool random": { command: "shuf -i 1-100000 -n 500" },
    });
    const wire = await openWire(t, server);
    const pages = await wire.pages("random");
    assert.equal(pages.length, 5);
    for (let i = pages.length - 2; i >= 0; i--) {
        const again = await wire.next("random", pages[i].next_cursor);
        assert.deepEqual(again.result, pages[i + 1].result, `page ${i + 2}`);
        if (again.next_cursor)
            assert.deepEqual(open(again.next_cursor).state, open(pages[i + 1].next_cursor).state);
    }
    const twice = (await wire.pages("random")).flatMap(({ result }) => result);
    assert.notDeepEqual(
        twice,
        pages.flatMap(({ result }) => result),
        "a new call is a new result",
    );
});

test("an old cursor has expired, and is told from a forged one", async (t) => {
    const server = await startPages(t, { pages: { "cursor-ttl": "1s", ...shared } });
    const wire = await openWire(t, server);
    await wire.hello("ada");
    const cursor = await firstCursor(wire);
    const sent = open(cursor).issued_at;
    await until(() => Date.now() / 1000 > sent + 2.1, "the cursor to grow old");
    const message = "cursor expired; re-issue the original RunTool";
    assertError(await wire.next(PAGE_GEN, cursor), 1020, message);
    // Expired is said of whatever its other faults are, and of no forgery.
    assertError(await wire.next("nowhere", cursor), 1020, message);
    const now = Math.floor(Date.now() / 1000);
    const of = (issued_at) =>
        forge({ tool_id: PAGE_GEN, caller_id: "ada", issued_at, state: STATE });
    assertResult(await wire.next(PAGE_GEN, of(now + 5)), PAGE_GEN);
    assertResult(await wire.next(PAGE_GEN, of(now + 3600)), PAGE_GEN);
    for (const old of [now - 5, now - 86_400, 0])
        assertError(await wire.next(PAGE_GEN, of(old)), 1020, message);
    const theirs = forge({ tool_id: PAGE_GEN, issued_at: now - 5 }, { key: Buffer.alloc(32, 8) });
    assertError(await wire.next(PAGE_GEN, theirs), 1021, "cursor invalid");
});

test("cursors live for 300 s unless told otherwise", async (t) => {
    const server = await startPages(t, { pages: shared });
    const wire = await openWire(t, server);
    const now = Math.floor(Date.now() / 1000);
    const of = (issued_at) => forge({ tool_id: PAGE_GEN, issued_at, state: STATE });
    assertResult(await wire.next(PAGE_GEN, of(now - 240)), PAGE_GEN);
    assertError(await wire.next(PAGE_GEN, of(now - 400)), 1020);
});

test("instances that share key and session take each other's cursors; others do not", async (t) => {
    const sections = { pages: shared };
    const [one, two, session, key, own] = await Promise.all([
        startPages(t, sections),
        startPages(t, sections),
        startPages(t, { pages: { "cursor-session": randomBytes(8).toString("base64") } }),
        startPages(t, sections, { key: randomBytes(32) }),
        startPages(t, {}, { key: null }),
    ]);
    const first = await openWire(t, one);
    const pages = [assertResult(await first.run(PAGE_GEN), PAGE_GEN)];
    const wires = [await openWire(t, two), first];
    for (let i = 0; pages.at(-1).next_cursor; i++)
        pages.push(
            assertResult(await wires[i % 2].next(PAGE_GEN, pages.at(-1).next_cursor), PAGE_GEN),
        );
    assert.deepEqual(
        pages.flatMap(({ result }) => result),
        rowsUpTo(100),
    );

    const [{ next_cursor }] = pages;
    assertError(await (await openWire(t, session)).next(PAGE_GEN, next_cursor), 1020);
    assertError(await (await openWire(t, key)).next(PAGE_GEN, next_cursor), 1021, "cursor invalid");
    // With a key of its own and a session of its own it looks like a server started anew.
    assertError(await (await openWire(t, own)).next(PAGE_GEN, next_cursor), 1020);
});

test("a restart ends the cursors of a server that has drawn its session", async (t) => {
    const site = await startPages(t, {});
    const wire = await openWire(t, site);
    const cursor = await firstCursor(wire);
    const again = await startPages(t, {});
    assert.notDeepEqual(
        open(cursor).session,
        open(await firstCursor(await openWire(t, again))).session,
    );
    assertError(await (await openWire(t, again)).next(PAGE_GEN, cursor), 1020);
});

test("results on disk outlive any number of crashes, with key and session given", async (t) => {
    const sections = { pages: shared, "tool rows": rowsTool(3000) };
    const data = join(await tempFolder(t), "data");
    let server = await startPages(t, sections, { data });
    let wire = await openWire(t, server);
    const first = assertResult(await wire.run("rows"), "rows");
    // The whole result has to be there before the server goes.
    let last = first;
    while (last.next_cursor) last = assertResult(await wire.next("rows", last.next_cursor), "rows");
    const rows = [...first.result];
    for (let cursor = first.next_cursor, pages = 0; cursor; pages++) {
        if (pages % 8 === 0) {
            await server.kill();
            server = await startPages(t, sections, { data });
            wire = await openWire(t, server);
        }
        const page = assertResult(await wire.next("rows", cursor), "rows");
        rows.push(...page.result);
        cursor = page.next_cursor;
    }
    assert.deepEqual(rows, rowsUpTo(3000));
});

test("a result whose making was cut off by a crash is never taken for whole", async (t) => {
    const sections = {
        pages: shared,
        // Its time is how long a next page waits for a command that may still be at work.
        "tool slow": {
            command: `sh -c 'seq 1 150; sleep ${longTime()}; seq 151 300'`,
            timeout: "1s",
        },
    };
    const data = join(await tempFolder(t), "data");
    const before = await startPages(t, sections, { data });
    const wire = await openWire(t, before);
    const first = assertResult(await wire.run("slow"), "slow");
    assert.equal(first.result.length, 100);
    await before.kill();
    const after = await startPages(t, sections, { data });
    const other = await openWire(t, after);
    const rows = [...first.result];
    let page = await other.next("slow", first.next_cursor);
    while (page.success) {
        rows.push(...page.result);
        assert.ok(page.next_cursor, "it looks whole");
        page = await other.next("slow", page.next_cursor);
    }
    assertFailed(page, /broke off/);
    assert.deepEqual(
        rows,
        rowsUpTo(rows.length + 1)
            .slice(1)
            .map(({ row }) => row),
    );
});

test("a key that is none is told and not used", async (t) => {
    for (const [key, words] of [
        ["c2hvcnQ", /decoded to 5 bytes; expected 32/],
        ["not base64!", /base64 decode failed/],
    ]) {
        const server = await startPages(t, {}, { key: null, env: { ATD_CURSOR_SIGNING_KEY: key } });
        const wire = await openWire(t, server);
        const cursor = await firstCursor(wire);
        assert.throws(() => open(cursor), "it is signed with another key");
        assertResult(await wire.next(PAGE_GEN, cursor), PAGE_GEN);
        await until(() => words.test(server.stderr), `${words} in ${server.stderr}`);
    }
    for (const key of [
        KEY.toString("base64"),
        KEY.toString("base64url"),
        ` ${KEY.toString("base64")}\n`,
    ]) {
        const server = await startPages(t, {}, { key: null, env: { ATD_CURSOR_SIGNING_KEY: key } });
        assert.ok(open(await firstCursor(await openWire(t, server))));
    }
});

test("a session that is none stops the server", async (t) => {
    const folder = await tempFolder(t);
    for (const session of ["AQIDBAUGBw==", "short", "AQIDBAUGBwgJ"]) {
        const config = await configFile(folder, { pages: { "cursor-session": session } });
        const listen = ["--store", "memory", "--listen", "127.0.0.1:0"];
        const { code, stderr } = await tidemark(t, ["serve", ...listen, "--config", config]);
        assert.notEqual(code, 0);
        assert.match(stderr, /cursor-session/);
    }
});

test("cursor-format = atd: cursors are those of the ATD reference server", async (t) => {
    const text = (s) => Buffer.concat([Buffer.from([0x60 + s.length]), Buffer.from(s)]);
    const be32 = (n) => [n >>> 24, (n >>> 16) & 255, (n >>> 8) & 255, n & 255];
    const uint = (n) => (n < 24 ? [n] : n < 256 ? [24, n] : [26, ...be32(n)]);
    const numbers = (bytes) => Buffer.from([...bytes].flatMap((b) => uint(b)));
    const forgeAtd = (tool, args, page, issued, state, key = KEY) => {
        const body = Buffer.concat([
            Buffer.from([0xa6]),
            text("tool_id"),
            text(tool),
            text("args_fingerprint"),
            Buffer.from([0x98, 32]),
            numbers(fingerprint(args)),
            text("page_index"),
            Buffer.from(uint(page)),
            text("issued_at_unix"),
            Buffer.from(uint(issued)),
            text("server_session"),
            Buffer.from([0x88]),
            numbers(SESSION),
            text("opaque_state"),
            Buffer.from([0x40 + state.length]),
            state,
        ]);
        const tag = createHmac("sha256", key).update(body).digest();
        return Buffer.concat([body, tag]).toString("base64url");
    };
    const [atd, ours] = await Promise.all([
        startPages(t, { pages: { ...shared, "cursor-format": "atd" } }),
        startPages(t, { pages: shared }),
    ]);
    const wire = await openWire(t, atd);
    const other = await openWire(t, ours);
    const cursor = await firstCursor(wire);
    const now = Math.floor(Date.now() / 1000);
    const made = [now - 1, now, now - 2, now - 3].map((issued) =>
        forgeAtd(PAGE_GEN, {}, 2, issued, STATE),
    );
    assert.ok(made.includes(cursor), "the same bytes");
    const { result } = assertResult(await wire.next(PAGE_GEN, made[0]), PAGE_GEN);
    assert.deepEqual(result, rowsUpTo(20).slice(10));
    assert.equal((await wire.pages(PAGE_GEN)).length, 10);
    // What is of the other format is nobody's.
    assertError(await other.next(PAGE_GEN, cursor), 1021, "cursor invalid");
    const theirs = await firstCursor(other);
    assertError(await wire.next(PAGE_GEN, theirs), 1021, "cursor invalid");
    const stranger = forgeAtd(PAGE_GEN, {}, 2, now, STATE, randomBytes(32));
    assertError(await wire.next(PAGE_GEN, stranger), 1021, "cursor invalid");
    assertError(await wire.next(PAGE_GEN, forgeAtd(PAGE_GEN, {}, 2, now - 400, STATE)), 1020);
});
