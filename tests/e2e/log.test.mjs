// SPDX-License-Identifier: Apache-2.0
// Logs: files of JSON lines as resumable streams, by the rules of their cursors.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { open, readFile, rename, rm, truncate, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { test } from "node:test";
import { EventSource } from "eventsource";
import { defer } from "./lib/defer.mjs";
import { startLog } from "./lib/log.mjs";
import { openRaw } from "./lib/raw.mjs";
import { until, within } from "./lib/wait.mjs";

const line = (value) => `${JSON.stringify(value)}\n`;
const bytes = (...texts) => String(Buffer.byteLength(texts.join("")));

/** A refusal of a cursor, with its message. */
async function refused(log, since) {
    const answer = await log.get({ since });
    assert.equal(answer.status, 400, answer.text);
    const { error } = answer.json();
    assert.equal(error.code, "INVALID_CURSOR");
    return error;
}

// ---- the seven rules, and the alignment ----

test("rule 1: what lies before the cursor is not given again", async (t) => {
    const log = await startLog(t);
    const a = line({ id: "a" });
    const b = line({ id: "b", text: "größer" });
    await log.put(a + b);
    assert.deepEqual(await log.read(), {
        items: [{ id: "a" }, { id: "b", text: "größer" }],
        nextCursor: bytes(a, b),
    });
    assert.deepEqual(await log.read({ since: bytes(a) }), {
        items: [{ id: "b", text: "größer" }],
        nextCursor: bytes(a, b),
    });
    assert.deepEqual(await log.read({ since: bytes(a, b) }), {
        items: [],
        nextCursor: bytes(a, b),
    });
});

test("rule 2: an unfinished line is not there yet", async (t) => {
    const log = await startLog(t);
    const whole = line({ id: "a" }) + line({ id: "b" });
    await log.put(`${whole}{"schemaVersion":1`);
    const first = await log.read();
    assert.deepEqual(first, { items: [{ id: "a" }, { id: "b" }], nextCursor: bytes(whole) });
    assert.deepEqual(await log.read({ since: first.nextCursor }), {
        items: [],
        nextCursor: first.nextCursor,
    });
    await log.put(`,"id":"c"}\n`);
    const { items } = await log.read({ since: first.nextCursor });
    assert.deepEqual(items, [{ schemaVersion: 1, id: "c" }]);
});

test("rule 3: filters do not hold up the cursor", async (t) => {
    const log = await startLog(t);
    const all = [
        { id: "a1", sessionId: "s1", n: 1, ok: true },
        { id: "a2", sessionId: "s2", n: 2, ok: false },
        { id: "a3" },
        { id: "a4", sessionId: "s1", n: 2 },
    ];
    const text = all.map(line).join("");
    await log.put(text);
    const ids = async (query) => {
        const { items, nextCursor } = await log.read(query);
        assert.equal(nextCursor, bytes(text));
        return items.map((item) => item.id);
    };
    assert.deepEqual(await ids({ "where.sessionId": "s1" }), ["a1", "a4"]);
    assert.deepEqual(await ids({ "where.sessionId": "s9" }), []);
    assert.deepEqual(await ids({ "where.n": "2" }), ["a2", "a4"]);
    assert.deepEqual(await ids({ "where.n": "2", "where.sessionId": "s1" }), ["a4"]);
    assert.deepEqual(await ids({ "where.ok": "false" }), ["a2"]);
    assert.deepEqual(await ids({ "where.none": "" }), []);
});

test("rule 4: a limit drops nothing", async (t) => {
    const log = await startLog(t);
    const [a, b, c] = ["s1", "s2", "s1"].map((s, i) => line({ id: `a${i + 1}`, sessionId: s }));
    await log.put(a + b + c);
    const query = { "where.sessionId": "s1", limit: "1" };
    const first = await log.read(query);
    assert.deepEqual(first, { items: [JSON.parse(a)], nextCursor: bytes(a) });
    const second = await log.read({ ...query, since: first.nextCursor });
    assert.deepEqual(second, { items: [JSON.parse(c)], nextCursor: bytes(a, b, c) });
    assert.deepEqual((await log.read({ limit: "0" })).items.length, 3);
    assert.deepEqual((await log.read({ limit: "many" })).items.length, 3);
    assert.deepEqual((await log.read({ limit: "2" })).items.length, 2);
    const many = Array.from({ length: 600 }, (_, i) => line({ i })).join("");
    await log.put(many);
    assert.equal((await log.read({ limit: "9999" })).items.length, 500);
    assert.equal((await log.read()).items.length, 603);
});

test("rule 5: malformed lines are passed over; CRLF and blank lines do no harm", async (t) => {
    const log = await startLog(t);
    const text = `{"id":1}\r\n\r\n\n{"torn\n[1]\n"text"\n  {"id":2}  \nnull\n{"id":3}x\n`;
    await log.put(text);
    assert.deepEqual(await log.read(), {
        items: [{ id: 1 }, { id: 2 }],
        nextCursor: bytes(text),
    });
});

test("rule 6: a file that is not there is empty", async (t) => {
    const log = await startLog(t);
    assert.equal((await log.get()).text, `{"items":[],"nextCursor":"0"}\n`);
    assert.deepEqual(await log.read({ since: "" }), { items: [], nextCursor: "0" });
    const error = await refused(log, "1");
    assert.equal(error.message, "Cursor beyond end of file: 1");
});

test("rule 7 and the others that are no cursors", async (t) => {
    const log = await startLog(t);
    await log.put(line({ id: "a" }) + line({ id: "b" }));
    for (const since of ["-1", "1.5", "abc", "0x1", "1e1", "+1", "11 22", "١"]) {
        const error = await refused(log, since);
        assert.equal(error.message, `Invalid cursor: ${since}`);
    }
    assert.deepEqual(await refused(log, "99"), {
        code: "INVALID_CURSOR",
        message: "Cursor beyond end of file: 99",
        context: {
            fix: "Reset since=0 (cursor must be <= current file size).",
            sizeBytes: 22,
        },
    });
    const huge = "9".repeat(40);
    assert.equal((await refused(log, huge)).message, `Cursor beyond end of file: ${huge}`);
    const within = await refused(log, "1");
    assert.equal(within.message, "Cursor is not aligned to a newline boundary: 1");
    assert.equal((await log.read({ since: "0011" })).items.length, 1);
    assert.equal((await log.read({ since: " 11 " })).items.length, 1);
});

test("a file of more than 4 GiB", async (t) => {
    const log = await startLog(t);
    const far = 5 * 2 ** 30;
    await writeFile(log.file, line({ id: "first" }));
    await truncate(log.file, far);
    await log.put(`\n${line({ id: "far" })}`);
    const since = String(far + 1);
    assert.deepEqual((await log.read({ since })).items, [{ id: "far" }]);
    assert.equal((await log.read({ limit: "1" })).nextCursor, "15");
    const appended = (await log.post(line({ id: "further" }))).json();
    assert.equal(BigInt(appended.cursor), BigInt(far) + 14n);
    assert.deepEqual((await log.read({ since: appended.cursor })).items, [{ id: "further" }]);
    assert.match((await refused(log, String(far - 2 ** 32))).message, /not aligned/);
});

test("what is asked for wrongly", async (t) => {
    const log = await startLog(t);
    await log.put(line({ id: "a" }));
    const status = async (query) =>
        (await log.server.request("GET", `/v1/log/f?${query}`)).status;
    assert.equal(await status("since=0&since=0"), 400);
    assert.equal(await status("live=never"), 400);
    assert.equal(await status("identity=x"), 400);
    assert.equal(await status("where.a=1&where.a=2"), 400);
    assert.equal(await status("where.a=%"), 400);
    const many = Array.from({ length: 17 }, (_, i) => `where.k${i}=x`).join("&");
    assert.equal(await status(many), 400);
    assert.equal(await status("unknown=1&&where"), 200);
    assert.equal((await log.server.request("GET", "/v1/log/other")).status, 404);
    assert.equal((await log.server.request("GET", "/v1/log/")).status, 404);
    assert.equal((await log.server.request("GET", "/v1/log/f/..")).status, 404);
    const put = await log.server.request("PUT", "/v1/log/f", { body: "{}" });
    assert.deepEqual([put.status, put.headers.allow], [405, "GET, HEAD, POST"]);
    assert.equal((await log.server.request("HEAD", "/v1/log/f?live=sse")).status, 200);
});

// ---- POST ----

test("POST appends objects, each in a line of its own", async (t) => {
    const log = await startLog(t);
    const answer = await log.post(`{\n  "id": "a"\r\n}\n`);
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(answer.json(), { cursor: "0", nextCursor: "14" });
    assert.equal((await log.post(`[{"id":"b"}, {"id":"c"}]`)).status, 200);
    assert.equal(await readFile(log.file, "utf8"), `{  "id": "a"}\n{"id":"b"}\n{"id":"c"}\n`);
    assert.deepEqual(
        (await log.read()).items.map((item) => item.id),
        ["a", "b", "c"],
    );
});

test("POST closes off what a writer that died has left, and readers skip that", async (t) => {
    const log = await startLog(t);
    await log.put(`${line({ id: "a" })}{"id":"torn`);
    const { cursor } = (await log.post(`{"id":"b"}`)).json();
    assert.equal(await readFile(log.file, "utf8"), `{"id":"a"}\n{"id":"torn\n{"id":"b"}\n`);
    assert.deepEqual((await log.read({ since: "11" })).items, [{ id: "b" }]);
    assert.deepEqual((await log.read({ since: cursor })).items, [{ id: "b" }]);
});

test("POST refuses what is no object, is too large or comes from elsewhere", async (t) => {
    const log = await startLog(t, { settings: "max-append = 1k" });
    for (const body of ["", "{", "5", `"text"`, "null", "[]", "[{},5]", "[[{}]]", "{}{}", "{}\n{}"])
        assert.equal((await log.post(body)).status, 400, body);
    const pad = "x".repeat(1024);
    assert.equal((await log.post(JSON.stringify({ pad }))).status, 413);
    const raw = await openRaw(t, log.server); // chunked, so that the server has to count
    raw.send("POST /v1/log/f HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    raw.send(`800\r\n{"pad":"${"x".repeat(2048 - 8)}\r\n`);
    assert.equal((await raw.head()).status, 413);
    const origin = (value) => log.post("{}", { origin: value });
    assert.equal((await origin("https://elsewhere.example")).status, 403);
    assert.equal((await origin("null")).status, 403);
    assert.deepEqual(await log.read(), { items: [], nextCursor: "0" });
    assert.equal((await origin(log.server.base)).status, 200);
    const closed = await startLog(t, { settings: "read-only = yes" });
    assert.equal((await closed.post("{}")).status, 403);
});

test("POST of a large body, which is split apart from the loop", async (t) => {
    const log = await startLog(t);
    const all = Array.from({ length: 20_000 }, (_, n) => ({ id: "large", n }));
    const text = all.map(line).join("");
    const body = JSON.stringify(all);
    const key = { "Idempotency-Key": "once" };
    const first = await log.post(body, key);
    assert.equal(first.status, 200, first.text);
    assert.equal(first.json().nextCursor, bytes(text));
    const again = await log.post(body, key);
    assert.equal(again.headers["idempotency-repeated"], "?1");
    assert.equal((await log.post(`${body.slice(0, -1)},1]`)).status, 400);
    assert.equal((await log.post(body, { "Idempotency-Key": "k".repeat(256) })).status, 400);
    assert.equal(await readFile(log.file, "utf8"), text);
});

test("a full disk is a 507, and nothing stays of the line", async (t) => {
    const log = await startLog(t);
    await log.put(line({ id: "a" }));
    // A limit on the size of files stands for the disk.
    const limit = (size) =>
        execFileSync("prlimit", ["--pid", String(log.server.pid), `--fsize=${size}:`]);
    limit("30");
    const answer = await log.post(JSON.stringify({ id: "too long for what is left" }));
    limit("unlimited");
    assert.equal(answer.status, 507, answer.text);
    assert.equal(await readFile(log.file, "utf8"), line({ id: "a" }));
    assert.equal((await log.post(`{"id":"b"}`)).status, 200);
});

// ---- identity ----

test("a cursor of a file that was truncated or replaced meets a gap", async (t) => {
    const log = await startLog(t);
    await log.put(line({ id: "a" }) + line({ id: "b" }));
    const { headers } = await log.get();
    const identity = headers["log-identity"];
    assert.match(identity, /^[0-9a-f]{48}$/);
    const ask = (since) => log.get({ since, identity });
    const gap = async (since, reason) => {
        const answer = await ask(since);
        assert.equal(answer.status, 410, answer.text);
        assert.deepEqual(answer.json(), {
            gap: { requested: since, earliest: "0", reason, snapshot: null },
        });
        return answer.headers["log-identity"];
    };
    assert.equal((await ask("22")).status, 200);
    await log.put(line({ id: "c" })); // to grow is no change
    assert.equal((await ask("22")).json().items.length, 1);
    await gap("99", "truncated");
    await truncate(log.file, 11);
    await gap("22", "truncated");
    await truncate(log.file, 0);
    await log.put(line({ id: "z" }) + line({ id: "y" }));
    await gap("22", "replaced");
    await rename(log.file, `${log.file}.1`);
    await gap("11", "replaced");
    await log.put(line({ id: "a" }) + line({ id: "b" }));
    const now = await gap("11", "replaced");
    assert.equal((await log.get({ since: "11", identity: now })).status, 200);
    // Of a file that was not there yet, every file is the continuation.
    const none = "0".repeat(48);
    assert.equal((await log.get({ since: "0", identity: none })).status, 200);
    assert.equal((await log.get({ since: "22" })).status, 200, "nobody asked which file");
});

// ---- live ----

test("live=sse gives what is there and what comes; ids are cursors", async (t) => {
    const log = await startLog(t);
    await log.put(line({ id: "a" }));
    const reader = await log.sse();
    assert.equal(reader.headers["content-type"], "text/event-stream");
    const expect = async (item, id) => {
        const event = await within(reader.event(), `the event ${id}`);
        assert.deepEqual([JSON.parse(event.data), event.id], [item, id]);
    };
    await expect({ id: "a" }, "11");
    await log.put(`{"id":`);
    await log.put(`"b"}\n`);
    await expect({ id: "b" }, "22");
    await log.put(`not json\n{"id":\r"c"}\r\n`); // a lone CR is white space, and no end of a line
    await expect({ id: "c" }, "44");
    await log.post(`[{"id":"d"},{"id":"e"}]`);
    await expect({ id: "d" }, "55");
    await expect({ id: "e" }, "66");
});

test("live=sse follows a file that is not there yet", async (t) => {
    const log = await startLog(t);
    const reader = await log.sse();
    await log.put(line({ id: "a" }));
    assert.equal((await within(reader.event(), "the first event")).id, "11");
});

test("live=sse resumes behind Last-Event-ID, which goes before since", async (t) => {
    const log = await startLog(t);
    await log.put(line({ id: "a" }) + line({ id: "b" }) + line({ id: "c" }));
    const reader = await log.sse({ since: "0" }, { "Last-Event-ID": "22" });
    assert.equal((await reader.event()).id, "33");
    const plain = await log.get({}, { "last-event-id": "22" });
    assert.equal(plain.json().items.length, 3, "elsewhere it does not count");
    assert.equal((await log.sse({}, { "Last-Event-ID": "x" })).status, 400);
    const lost = await log.sse({}, { "Last-Event-ID": "99" });
    assert.equal(lost.status, 410);
    assert.equal(JSON.parse(lost.text).gap.reason, "truncated");
    assert.equal((await log.sse({ since: "99" })).status, 400);
});

test("live=sse with a filter and a limit ends, and heartbeats tell the cursor", async (t) => {
    const log = await startLog(t, { flags: ["--heartbeat", "100ms"] });
    await log.put(line({ k: 1 }) + line({ k: 2 }));
    const reader = await log.sse({ "where.k": "2", limit: "2" });
    assert.equal((await reader.event()).id, "16");
    await log.put(line({ k: 1 }) + line({ k: 3 }));
    // An id without data is no event, but what a browser would resume from.
    const raw = await openRaw(t, log.server);
    raw.send("GET /v1/log/f?live=sse&since=16&where.k=9 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await raw.head();
    let text = "";
    while (!text.includes("id: 32\n\n")) text += await within(raw.chunk(), "a heartbeat");
    assert.match(text, /: heartbeat\nid: 32\n\n/);
    await log.put(line({ k: 2 }));
    assert.equal((await reader.event()).id, "40");
    assert.equal(await within(reader.event(), "the end"), null);
});

test("live=sse says that the file was truncated or replaced, and ends", async (t) => {
    for (const change of [
        (log) => truncate(log.file, 0),
        (log) => rm(log.file),
        async (log) => {
            await writeFile(`${log.file}.new`, line({ id: "other" }) + line({ id: "more" }));
            await rename(`${log.file}.new`, log.file);
        },
    ]) {
        const log = await startLog(t);
        await log.put(line({ id: "a" }));
        const reader = await log.sse();
        await reader.event();
        await change(log);
        const event = await within(reader.event(), "the gap");
        assert.equal(event.event, "gap");
        const { gap } = JSON.parse(event.data);
        assert.equal(gap.requested, "11");
        assert.ok(["replaced", "truncated"].includes(gap.reason));
        assert.equal(await within(reader.event(), "the end"), null);
    }
});

test("a browser's EventSource gets every entry once, across the ends of its answers", async (t) => {
    const log = await startLog(t, { flags: ["--sse-lifetime", "150ms"] });
    const quick = async (url, init) => {
        const answer = await fetch(url, init);
        const body = ReadableStream.from(
            (async function* () {
                yield new TextEncoder().encode("retry: 5\n\n");
                yield* answer.body;
            })(),
        );
        return new Response(body, { status: answer.status, headers: answer.headers });
    };
    const seen = [];
    let opened = 0;
    const source = new EventSource(`${log.server.base}/v1/log/f?live=sse`, { fetch: quick });
    defer(t, () => source.close());
    source.onopen = () => opened++;
    source.onmessage = (event) => seen.push(JSON.parse(event.data).i);
    for (let i = 0; i < 60; i++) {
        if (i % 3 === 0) await log.post(JSON.stringify({ i }));
        else await log.put(line({ i }));
        await new Promise((resolve) => setTimeout(resolve, 10));
    }
    await until(() => seen.length >= 60, "all entries");
    assert.deepEqual(
        seen,
        Array.from({ length: 60 }, (_, i) => i),
    );
    assert.ok(opened > 1, "it has never come back");
});

test("live=long-poll waits for an item, and answers without one in the end", async (t) => {
    const log = await startLog(t, { flags: ["--long-poll-timeout", "300ms"] });
    const idle = await log.read({ live: "long-poll" });
    assert.deepEqual(idle, { items: [], nextCursor: "0" });
    await log.put(line({ k: 1 }));
    const filtered = await log.read({ live: "long-poll", "where.k": "2" });
    assert.deepEqual(filtered, { items: [], nextCursor: "8" });
    const patient = await startLog(t, { flags: ["--long-poll-timeout", "1m"] });
    const waiting = patient.read({ live: "long-poll", "where.k": "2" });
    await patient.put(line({ k: 1 }));
    await patient.put(line({ k: 2 }));
    const { items, nextCursor } = await within(waiting, "the item");
    assert.deepEqual([items, nextCursor], [[{ k: 2 }], "16"]);
});

test("a server that is stopped lets its readers go", async (t) => {
    const log = await startLog(t, { flags: ["--long-poll-timeout", "1m"] });
    const reader = await log.sse();
    const waiting = log.read({ live: "long-poll" });
    await log.post(`{"id":"a"}`);
    assert.equal((await waiting).items.length, 1);
    const again = log.read({ live: "long-poll", since: "11" });
    assert.equal((await reader.event()).id, "11");
    await new Promise((resolve) => setTimeout(resolve, 200));
    log.server.signal("SIGTERM");
    assert.deepEqual(await within(again, "the answer"), { items: [], nextCursor: "11" });
    assert.equal(await within(reader.event(), "the end"), null);
});

// ---- size ----

test("slow readers of very long lines are bounded, and told so", async (t) => {
    const log = await startLog(t);
    await log.put(line({ large: "y".repeat(3_900_000) }));
    const before = log.server.rss();
    const statuses = [];
    const sockets = Array.from({ length: 60 }, () => {
        const socket = connect(log.server.where);
        defer(t, () => socket.destroy());
        socket.write("GET /v1/log/f HTTP/1.1\r\nHost: localhost\r\n\r\n");
        socket.once("data", (data) => {
            statuses.push(data.toString("latin1").slice(9, 12));
            socket.pause();
        });
        return socket;
    });
    await until(() => statuses.length === 60, "60 answers");
    assert.ok(log.server.rss() - before < 160 * 2 ** 20, "every line lay in memory");
    assert.deepEqual([...new Set(statuses)].sort(), ["200", "503"]);
    for (const socket of sockets) socket.destroy();
    await until(async () => (await log.get()).status === 200, "room for another");
});

test("an answer of many megabytes is streamed, to slow readers, too", async (t) => {
    const log = await startLog(t);
    const handle = await open(log.file, "a");
    const pad = "x".repeat(1000);
    const piece = Array.from({ length: 1000 }, (_, i) => line({ i, pad })).join("");
    for (let i = 0; i < 64; i++) await handle.write(piece);
    await handle.write(line({ large: "y".repeat(3_000_000) }));
    await handle.close();
    const before = log.server.rss();
    const slow = connect(log.server.where); // takes nothing
    defer(t, () => slow.destroy());
    slow.write("GET /v1/log/f HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const { items } = await log.read({ since: "0" });
    assert.equal(items.length, 64_001);
    assert.equal(items.at(-1).large.length, 3_000_000);
    assert.ok(log.server.rss() - before < 48 * 2 ** 20, "the answer lay in memory");
    assert.deepEqual((await log.read({ "where.i": "999" })).items.length, 64);
});
