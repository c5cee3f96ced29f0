// SPDX-License-Identifier: Apache-2.0
// The Lab: feedback by cursor, submissions that are sent again, and what is refused.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { appendFile, mkdir, open, truncate, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { dirname } from "node:path";
import { test } from "node:test";
import { request } from "undici";
import { assertProblem, labFolder, startLab, UUID } from "./lib/lab.mjs";
import { openRaw } from "./lib/raw.mjs";
import { tidemark } from "./lib/run.mjs";

const entry = (id, more = {}) => ({
    schemaVersion: 1,
    id,
    createdAt: "2026-02-06T00:00:00.000Z",
    ...more,
});
const line = (...args) => `${JSON.stringify(entry(...args))}\n`;

async function write(folder, text) {
    await mkdir(dirname(folder.feedback), { recursive: true });
    await writeFile(folder.feedback, text);
}

// ---- the testing plan: cursors ----

test("cursors that are none are refused, and none of them moves anything", async (t) => {
    const lab = await startLab(t);
    await write(lab.folder, line("a") + line("b"));
    const bad = ["-1", "1.5", "abc", "0x1", "1e3", "+1", "1 2", "٣"];
    for (const since of bad) {
        const answer = await lab.get(`/api/feedback?since=${encodeURIComponent(since)}`);
        assertProblem(answer, 400, "INVALID_CURSOR", /^Invalid cursor: /);
    }
    for (const since of ["0", "", " ", "000", " 0 "]) {
        const { items } = await lab.poll(`?since=${encodeURIComponent(since)}`);
        assert.deepEqual(
            items.map((i) => i.id),
            ["a", "b"],
            `since=${since}`,
        );
    }
});

test("a cursor within a line, or ahead of the file, is refused; so is any when there is no file", async (t) => {
    const lab = await startLab(t);
    assert.deepEqual(await lab.poll(), { items: [], nextCursor: "0" });
    const none = assertProblem(await lab.get("/api/feedback?since=1"), 400, "INVALID_CURSOR");
    assert.equal(none.message, "Cursor beyond end of file: 1");
    assert.equal(none.context.sizeBytes, 0);
    const text = line("a");
    await write(lab.folder, text);
    const within = assertProblem(await lab.get("/api/feedback?since=1"), 400, "INVALID_CURSOR");
    assert.equal(within.message, "Cursor is not aligned to a newline boundary: 1");
    for (const since of [text.length + 1, "99999999999999999999999"]) {
        const ahead = assertProblem(
            await lab.get(`/api/feedback?since=${since}`),
            400,
            "INVALID_CURSOR",
        );
        assert.match(ahead.message, /^Cursor beyond end of file: /);
        assert.equal(ahead.context.fix, "Reset since=0 (cursor must be <= current file size).");
        assert.equal(ahead.context.sizeBytes, text.length);
    }
    const end = String(text.length);
    assert.deepEqual(await lab.poll(`?since=${end}`), { items: [], nextCursor: end });
    assert.deepEqual(await lab.poll(`?since=00${end}`), { items: [], nextCursor: end });
});

test("a line that is not finished is not consumed, and comes when it is", async (t) => {
    const lab = await startLab(t);
    const whole = line("a") + line("b");
    await write(lab.folder, `${whole}{"schemaVersion":1`);
    const first = await lab.poll();
    assert.deepEqual(
        first.items.map((i) => i.id),
        ["a", "b"],
    );
    assert.equal(first.nextCursor, String(whole.length));
    assert.deepEqual(await lab.poll(`?since=${first.nextCursor}`), {
        items: [],
        nextCursor: first.nextCursor,
    });
    await appendFile(lab.folder.feedback, `,"id":"c","createdAt":"2026-02-06T00:00:00Z"}\n`);
    const second = await lab.poll(`?since=${first.nextCursor}`);
    assert.deepEqual(
        second.items.map((i) => i.id),
        ["c"],
    );
});

test("a filter chooses items and does not hold up the cursor; a limit stops behind the last", async (t) => {
    const lab = await startLab(t);
    const lines = [
        line("a1", { sessionId: "s1" }),
        line("a2", { sessionId: "s2" }),
        line("a3", { sessionId: "s1" }),
    ];
    await write(lab.folder, lines.join("") + line("none"));
    const all = lines.join("").length + line("none").length;
    const one = await lab.poll("?sessionId=s1&limit=1");
    assert.deepEqual(
        [one.items.map((i) => i.id), one.nextCursor],
        [["a1"], String(lines[0].length)],
    );
    const two = await lab.poll(`?sessionId=s1&limit=1&since=${one.nextCursor}`);
    assert.deepEqual(
        [two.items.map((i) => i.id), two.nextCursor],
        [["a3"], String(lines.join("").length)],
    );
    for (const id of ["s1", "s2", "nobody"])
        assert.equal((await lab.poll(`?sessionId=${id}`)).nextCursor, String(all));
    assert.equal((await lab.poll("?sessionId=")).items.length, 4);
    for (const limit of ["0", "-3", "x", ""])
        assert.equal((await lab.poll(`?limit=${limit}`)).items.length, 4);
    assert.equal((await lab.poll("?limit=2.9")).items.length, 2);
});

test("at most 500 come with a limit; without one all do", async (t) => {
    const lab = await startLab(t);
    let text = "";
    for (let i = 0; i < 5000; i++) text += line(`e${i}`, { notes: "n".repeat(1 + (i % 700)) });
    await write(lab.folder, text);
    assert.equal((await lab.poll("?limit=100000")).items.length, 500);
    const { items, nextCursor } = await lab.poll();
    assert.deepEqual(
        items.map((i) => i.id),
        Array.from({ length: 5000 }, (_, i) => `e${i}`),
    );
    assert.equal(nextCursor, String(text.length));
    const seen = [];
    for (let since = "0"; since !== nextCursor;) {
        const page = await lab.poll(`?limit=333&since=${since}`);
        seen.push(...page.items.map((i) => i.id));
        since = page.nextCursor;
    }
    assert.deepEqual(
        seen,
        items.map((i) => i.id),
    );
});

test("lines that are no entries are passed over; entries come validated, in the schema's order", async (t) => {
    const lab = await startLab(t);
    const bad = [
        "",
        "   ",
        "null",
        "[1]",
        "{broken",
        JSON.stringify({ ...entry("x"), surprise: 1 }),
        JSON.stringify({ ...entry("x"), ratings: { overall: 101 } }),
        JSON.stringify({ ...entry("x"), ratings: { overall: 5.5 } }),
        JSON.stringify({ ...entry("x"), ratings: { fun: 5 } }),
        JSON.stringify({ ...entry("x"), createdAt: "2026-02-06T00:00:00+01:00" }),
        JSON.stringify({ ...entry("x"), createdAt: "2026-02-30T00:00:00Z" }),
        JSON.stringify({ ...entry("x"), notes: "" }),
        JSON.stringify({ ...entry("") }),
        JSON.stringify({ ...entry("x"), schemaVersion: 0 }),
        JSON.stringify({ ...entry("x"), tags: [""] }),
        JSON.stringify({ ...entry("x"), answers: [] }),
    ];
    const good = `{"notes":"ü \\u00fc","id":"a","ratings":{"sync":1,"overall":2.0},"createdAt":"2026-02-06T00:00:00Z"}`;
    const text = `${bad.join("\n")}\n${good}\r\n`;
    await write(lab.folder, text);
    const answer = await lab.get("/api/feedback");
    assert.equal(answer.headers["content-type"], "application/json; charset=utf-8");
    assert.equal(answer.headers["cache-control"], "no-store");
    const item = `{"schemaVersion":1,"id":"a","createdAt":"2026-02-06T00:00:00Z","ratings":{"overall":2,"sync":1},"notes":"ü ü"}`;
    assert.equal(answer.text, `{"items":[${item}],"nextCursor":"${Buffer.byteLength(text)}"}`);
});

test("a file over 4 GiB has cursors as any other", async (t) => {
    const lab = await startLab(t);
    const far = 5 * 2 ** 30;
    await write(lab.folder, "");
    await truncate(lab.folder.feedback, far);
    const file = await open(lab.folder.feedback, "r+");
    await file.write(`\n${line("far")}`, far);
    await file.close();
    const { items, nextCursor } = await lab.poll(`?since=${far + 1}`);
    assert.deepEqual(
        items.map((i) => i.id),
        ["far"],
    );
    assert.equal(nextCursor, String(far + 1 + line("far").length));
});

test("an answer without a limit is not kept in memory, however slow its reader is", async (t) => {
    const lab = await startLab(t);
    const some = Array.from({ length: 1000 }, (_, i) => line(`e${i}`, { notes: "n".repeat(1000) }));
    const chunk = some.join("");
    await write(lab.folder, "");
    for (let i = 0; i < 64; i++) await appendFile(lab.folder.feedback, chunk);
    const peak = () => {
        const status = readFileSync(`/proc/${lab.child.pid}/status`, "utf8");
        return Number(/^VmHWM:\s+(\d+) kB/m.exec(status)[1]) * 1024;
    };
    const before = peak();
    const raw = await openRaw(t, lab);
    raw.socket.pause();
    raw.send("GET /api/feedback HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const answer = await request(`${lab.base}/api/feedback`);
    let bytes = 0;
    for await (const piece of answer.body) bytes += piece.length;
    assert.ok(bytes > 64 * chunk.length);
    const grown = peak() - before;
    assert.ok(grown < 48 * 2 ** 20, `${grown} bytes for an answer of ${bytes}`);
});

// ---- the testing plan: submissions ----

test("submit, poll, poll again: it comes once", async (t) => {
    const lab = await startLab(t);
    const id = await lab.submit({
        ratings: {
            overall: "84.5",
            hook: 100,
            pacing: 101,
            script: null,
            visuals: "",
            motion: "x",
            sync: -0.4,
        },
        notes: "  good  ",
        tags: ["a", "", 3, " "],
        answers: { q: "yes", n: 0.1 },
        topic: "t",
    });
    assert.match(id, UUID);
    const { items, nextCursor } = await lab.poll();
    assert.equal(items.length, 1);
    const { createdAt, ...rest } = items[0];
    assert.match(createdAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    assert.deepEqual(rest, {
        schemaVersion: 1,
        id,
        sessionId: lab.config.sessionId,
        topic: "t",
        ratings: { overall: 85, hook: 100, sync: 0 },
        notes: "good",
        tags: ["a"],
        answers: { q: "yes", n: 0.1 },
    });
    assert.equal(nextCursor, String(Buffer.byteLength(await lab.folder.text())));
    assert.deepEqual(await lab.poll(`?since=${nextCursor}`), { items: [], nextCursor });
});

test("the same request id is answered the same, and appends once, whatever is sent with it", async (t) => {
    const lab = await startLab(t);
    const id = await lab.submit({ notes: "first" }, "req_test_1");
    assert.equal(await lab.submit({ notes: "second" }, "req_test_1"), id);
    assert.equal(await lab.submit({ notes: "third", requestId: " req_test_1 " }), id);
    assert.equal(await lab.submit({ notes: "fourth", requestId: "other" }, "req_test_1"), id);
    assert.notEqual(await lab.submit({ notes: "fifth", requestId: "other" }), id);
    assert.notEqual(await lab.submit({ notes: "sixth" }, "REQ_TEST_1"), id);
    assert.notEqual(await lab.submit({ notes: "seventh" }), await lab.submit({ notes: "seventh" }));
    assert.deepEqual(
        (await lab.folder.entries()).map((e) => e.notes),
        ["first", "fifth", "sixth", "seventh", "seventh"],
    );
});

test("a request id may be long and of any letters, but it must be text", async (t) => {
    const lab = await startLab(t);
    for (const requestId of ["x".repeat(500_000), "ü\u0000\n☃", "{}"]) {
        const id = await lab.submit({ requestId, notes: "x" });
        assert.equal(await lab.submit({ requestId, notes: "y" }), id);
    }
    const raw = await openRaw(t, lab);
    const head = `POST /api/feedback HTTP/1.1\r\nHost: localhost\r\nX-CM-LAB-TOKEN: ${lab.config.token}\r\n`;
    raw.send(
        Buffer.from(`${head}X-CM-LAB-REQUEST-ID: \xff\r\nContent-Length: 2\r\n\r\n{}`, "latin1"),
    );
    assert.equal((await raw.answer()).status, 400);
    assert.equal((await lab.folder.entries()).length, 3);
});

test("of many requests at once with one id one appends", async (t) => {
    const lab = await startLab(t);
    const ids = await Promise.all(
        Array.from({ length: 40 }, (_, i) => lab.submit({ notes: `n${i}` }, "at-once")),
    );
    assert.equal(new Set(ids).size, 1);
    assert.equal((await lab.folder.entries()).length, 1);
});

test("two Labs on the same files count as one", async (t) => {
    const folder = await labFolder(t);
    const labs = [await startLab(t, { folder }), await startLab(t, { folder })];
    assert.equal(labs[0].config.sessionId, labs[1].config.sessionId);
    assert.notEqual(labs[0].config.token, labs[1].config.token);
    const ids = await Promise.all(
        Array.from({ length: 20 }, (_, i) => labs[i % 2].submit({ notes: "x" }, `both-${i >> 1}`)),
    );
    for (let i = 0; i < 20; i += 2) assert.equal(ids[i], ids[i + 1]);
    assert.equal((await folder.entries()).length, 10);
    const artifacts = await folder.artifacts("r");
    const runs = await Promise.all(
        Array.from({ length: 10 }, (_, i) => labs[i % 2].import(artifacts)),
    );
    assert.equal(new Set(runs).size, 1);
});

test("the mapping survives a restart, unless a new session is asked for", async (t) => {
    const folder = await labFolder(t);
    const first = await startLab(t, { folder });
    const id = await first.submit({ notes: "x" }, "kept");
    await first.stop();
    const second = await startLab(t, { folder });
    assert.equal(second.config.sessionId, first.config.sessionId);
    assert.notEqual(second.config.token, first.config.token);
    const stale = { "x-cm-lab-token": first.config.token };
    assertProblem(await second.post("/api/feedback", {}, stale), 401, "UNAUTHORIZED");
    assert.equal(await second.submit({ notes: "y" }, "kept"), id);
    await second.stop();
    const third = await startLab(t, { folder, args: ["--port", "0", "--new-session"] });
    assert.notEqual(third.config.sessionId, first.config.sessionId);
    assert.notEqual(await third.submit({ notes: "z" }, "kept"), id);
    assert.deepEqual(
        (await folder.entries()).map((e) => e.notes),
        ["x", "z"],
    );
});

test("the command line appends to the same file", async (t) => {
    const lab = await startLab(t);
    const env = lab.folder.env();
    const flags = [
        "--session",
        "s",
        "--run",
        "r",
        "--rating",
        "overall=80",
        "--rating",
        "hook=0",
        "--tag",
        "a",
        "--tag",
        "b c",
        "--notes",
        "fine",
    ];
    const one = await tidemark(t, ["feedback", ...flags], { env });
    assert.equal(one.code, 0, one.stderr);
    const two = await tidemark(t, ["feedback"], {
        env,
        input: ' {"notes":"from a file","ratings":{"sync":7}}\n',
    });
    assert.equal(two.code, 0, two.stderr);
    const { items } = await lab.poll();
    assert.deepEqual(
        items.map(({ createdAt, ...rest }) => rest),
        [
            {
                schemaVersion: 1,
                id: one.stdout.trim(),
                sessionId: "s",
                runId: "r",
                ratings: { overall: 80, hook: 0 },
                notes: "fine",
                tags: ["a", "b c"],
            },
            { schemaVersion: 1, id: two.stdout.trim(), ratings: { sync: 7 }, notes: "from a file" },
        ],
    );
    for (const item of items) assert.match(item.id, UUID);
    const wrong = [
        ["--rating", "overall=101"],
        ["--rating", "fun=1"],
        ["--rating", "hook"],
        ["extra"],
    ];
    for (const args of wrong)
        assert.equal((await tidemark(t, ["feedback", ...args], { env })).code, 2, args.join(" "));
    const rated = await tidemark(t, ["feedback", "--rating", "overall=900"], { env });
    assert.match(rated.stderr, /overall, hook, .* or sync, .*from 0 to 100/);
    const deep = `{"extra":{"a":${"[".repeat(600)}${"]".repeat(600)}}}`; // readers take 512 levels
    assert.equal((await tidemark(t, ["feedback"], { env, input: deep })).code, 1);
    for (const input of ["", "[]", "{", '{"unknown":1}', '{"ratings":{"sync":101}}'])
        assert.equal((await tidemark(t, ["feedback"], { env, input })).code, 1, input);
    assert.equal((await lab.folder.entries()).length, 2);
});

// ---- refusals ----

test("every POST wants the token, and says so before the body is there", async (t) => {
    const lab = await startLab(t);
    const paths = ["feedback", "runs/import", "experiments", "experiments/x/submit", "export"];
    for (const path of paths) {
        const answer = await lab.request("POST", `/api/${path}`, { body: "{}" });
        const error = assertProblem(answer, 401, "UNAUTHORIZED");
        assert.equal(error.message, "Missing or invalid X-CM-LAB-TOKEN");
        for (const token of [`${lab.config.token}x`, lab.config.token.slice(1), ""]) {
            const headers = { "x-cm-lab-token": token };
            assertProblem(await lab.post(`/api/${path}`, {}, headers), 401, "UNAUTHORIZED");
        }
        const raw = await openRaw(t, lab);
        raw.send(
            `POST /api/${path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{`,
        );
        assert.equal((await raw.answer()).status, 401);
    }
    assert.equal(await lab.folder.text(), "");
});

test("bodies are bounded and must be objects; blank is an empty one", async (t) => {
    const lab = await startLab(t);
    const big = JSON.stringify({ notes: "x".repeat(1024 * 1024) });
    const error = assertProblem(await lab.post("/api/feedback", big), 400, "INVALID_ARGUMENT");
    assert.equal(error.message, "Request body too large (max 1MB)");
    const raw = await openRaw(t, lab);
    raw.send(
        `POST /api/feedback HTTP/1.1\r\nHost: localhost\r\nX-CM-LAB-TOKEN: ${lab.config.token}\r\nTransfer-Encoding: chunked\r\n\r\n`,
    );
    for (let i = 0; i < 17; i++) raw.send(`10000\r\n${" ".repeat(0x10000)}\r\n`);
    assert.equal((await raw.answer()).status, 400);
    for (const body of ["{", "nope", "[]", "3", '"x"', "{} {}"])
        assertProblem(await lab.post("/api/feedback", body), 400, "INVALID_JSON");
    assert.match(await lab.submit(""), UUID);
    assert.match(await lab.submit("  \n"), UUID);
    const fits = { notes: "x".repeat(1024 * 1024 - 12) };
    assert.equal(JSON.stringify(fits).length, 1024 * 1024);
    await lab.submit(fits);
    assert.equal((await lab.poll()).items.at(-1).notes.length, fits.notes.length);
});

test("what is not there is told as text, and names of other machines are not answered", async (t) => {
    const lab = await startLab(t);
    for (const path of [
        "/api/",
        "/api/nothing",
        "/api/runs/a/b",
        "/api/runs/a/video/",
        "/api/feedback/",
        "/lab/none",
        "/labs",
        "/x",
    ]) {
        const { status, text } = await lab.get(path);
        assert.deepEqual([status, text], [404, "Not found"], path);
    }
    assert.equal((await lab.request("DELETE", "/api/feedback")).text, "Not found");
    const wrong = await lab.get("/api/config", { host: "evil.example" });
    assert.equal(wrong.status, 421);
    assert.equal(
        (await lab.get("/api/config", { host: `localhost:${lab.where.port}` })).status,
        200,
    );
    const page = await lab.get("/lab");
    assert.equal(page.headers["content-type"], "text/html; charset=utf-8");
    assert.equal(page.headers["cache-control"], "no-store");
    assert.equal(page.headers["x-frame-options"], "DENY");
    assert.doesNotMatch(page.headers["content-security-policy"], /unsafe|\*|https?:/);
    assert.equal((await lab.get("/")).status, 302);
});

test("the port that is taken is passed over; other machines are not let in by accident", async (t) => {
    const lab = await startLab(t);
    const next = await startLab(t, { args: ["--port", String(lab.where.port)] });
    assert.ok(next.where.port > lab.where.port && next.where.port <= lab.where.port + 20);
    const env = lab.folder.env();
    const refused = await tidemark(t, ["lab", "--host", "0.0.0.0", "--port", "0"], { env });
    assert.equal(refused.code, 2);
    assert.match(refused.stderr, /--allow-external/);
    const socket = connect(lab.where);
    socket.destroy();
});
