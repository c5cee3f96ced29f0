// SPDX-License-Identifier: Apache-2.0
// A browser's own way to follow a stream: npm `eventsource`, which reconnects by itself and knows
// nothing of offsets but the `id:` it was sent.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { EventSource } from "eventsource";
import { defer } from "./lib/defer.mjs";
import { findBrowser, launch } from "./lib/lab-page.mjs";
import { configFile } from "./lib/pages.mjs";
import { startProxy } from "./lib/proxy.mjs";
import { randomness } from "./lib/rand.mjs";
import { openRaw } from "./lib/raw.mjs";
import { startServer } from "./lib/server.mjs";
import { openSse } from "./lib/sse.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until, within } from "./lib/wait.mjs";

const skip = findBrowser() ? false : "there is no Chromium here: `scripts/deps browser` installs it";

// EventSource waits 3 s before it reconnects unless told otherwise, and an answer that is cut off
// early does not: telling it costs the test nothing of its meaning and saves a minute.
async function fetchWithQuickRetry(url, init) {
    const answer = await fetch(url, init);
    if (!answer.ok) return answer;
    const body = ReadableStream.from(
        (async function* () {
            yield new TextEncoder().encode("retry: 10\n\n");
            yield* answer.body;
        })(),
    );
    return new Response(body, { status: answer.status, headers: answer.headers });
}

/** Follows a JSON stream and collects the elements of its data events. */
function follow(t, url, options) {
    const source = new EventSource(url, options);
    defer(t, () => source.close());
    const seen = [];
    source.addEventListener("data", (event) => seen.push(...JSON.parse(event.data)));
    return seen;
}

const numbers = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);

test("cut at random points again and again, every message arrives once and in order", async (t) => {
    const CUTS = 40;
    const COUNT = 400;
    const random = randomness(t);
    const server = await startServer(t, ["--sse-retry", "10ms"]);
    // From inside the answer's head to far into the events.
    const proxy = await startProxy(t, server, (n) =>
        n < CUTS ? { answerBytes: 100 + random.below(6000) } : null,
    );
    await server.create("story");
    const seen = follow(t, proxy.url("story", "?offset=-1&live=sse"), {
        fetch: fetchWithQuickRetry,
    });

    for (let n = 0; n < COUNT;) {
        const batch = numbers(n, Math.min(COUNT, n + 1 + random.below(5)));
        await server.append(
            "story",
            JSON.stringify(batch.map((i) => ({ i, pad: "x".repeat(60) }))),
        );
        n += batch.length;
        // Now and then let the reader catch up, so that cuts also hit the live tail.
        if (random.below(8) === 0)
            await until(() => seen.length >= n || proxy.connections > CUTS, `message ${n}`);
    }
    await until(() => seen.length >= COUNT, `all messages (${seen.length} came)`);
    await server.append("story", `{"i":"end"}`);
    await until(() => seen.at(-1).i === "end", "the last message");

    assert.deepEqual(
        seen.map((m) => m.i),
        [...numbers(0, COUNT), "end"],
    );
    assert.ok(proxy.cuts > 0, "no connection was cut");
});

test("an EventSource as it is resumes after its socket is destroyed", async (t) => {
    const server = await startServer(t);
    const proxy = await startProxy(t, server, (n) => (n === 0 ? { answerBytes: 2500 } : null));
    await server.create("plain");
    const seen = follow(t, proxy.url("plain", "?offset=-1&live=sse"));

    let n = 0;
    while (proxy.cuts === 0) {
        await server.append("plain", String(n++));
        await until(() => proxy.cuts > 0 || seen.length >= n, `message ${n}`);
    }
    await server.append("plain", JSON.stringify(numbers(n, n + 10)));
    await until(() => seen.at(-1) === n + 9, "what was appended after the cut");
    assert.deepEqual(seen, numbers(0, n + 10));
});

test("a response that the server ends is followed by the next, without a loss", async (t) => {
    const server = await startServer(t, ["--sse-lifetime", "100ms"]);
    await server.create("lives");
    let responses = 0;
    const seen = follow(t, server.url("lives", "?offset=-1&live=sse"), {
        fetch: (url, init) => {
            responses++;
            return fetchWithQuickRetry(url, init);
        },
    });
    let n = 0;
    while (responses < 6) await server.append("lives", String(n++));
    await until(() => seen.length >= n, "all messages");
    assert.deepEqual(seen, numbers(0, n));
});

/** The text of an SSE answer so far, at least until it matches. */
async function textOf(t, server, path, pattern, headers = {}) {
    const raw = await openRaw(t, server);
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    raw.send(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n${lines.join("")}\r\n`);
    assert.equal((await raw.head()).status, 200);
    const reader = { text: "" };
    reader.until = async (wanted) => {
        while (!wanted.test(reader.text)) {
            const piece = await within(raw.chunk(), `${wanted} in ${reader.text}`);
            assert.ok(piece.length > 0, `${reader.text} has no ${wanted}`);
            reader.text += piece.toString();
        }
    };
    await reader.until(pattern);
    return reader;
}

test("the first block of an answer, and no other, says when to come back", async (t) => {
    const folder = await tempFolder(t);
    await writeFile(join(folder, "log"), `{"n":1}\n{"n":2}\n`);
    const file = await configFile(folder, { "log f": { path: join(folder, "log") } });
    for (const [flags, first] of [
        [[], "retry: 100\n"],
        [["--sse-retry", "250"], "retry: 250\n"],
        [["--sse-retry", "2s"], "retry: 2000\n"],
        [["--sse-retry", "0"], ""],
    ]) {
        const server = await startServer(t, ["--config", file, "--heartbeat", "100ms", ...flags]);
        const path = "/v1/stream/both?offset=-1&live=sse";
        await server.create("both");
        // The first to come has nothing but a control event; they share what comes then.
        const early = await textOf(t, server, path, /upToDate/);
        assert.ok(early.text.startsWith(`${first}id: `), early.text);
        await server.append("both", "1");
        const late = await textOf(t, server, path, /upToDate/);
        assert.ok(late.text.startsWith(`${first}id: `), late.text);
        await server.append("both", "2");
        for (const reader of [early, late]) {
            await reader.until(/\[2\]\n\nevent: control\n.*\n\n/);
            assert.equal(reader.text.split("retry:").length, first ? 2 : 1, reader.text);
        }
        const log = await textOf(t, server, "/v1/log/f?live=sse", /"n":2}\n\n/);
        assert.equal(log.text, `${first}id: 8\ndata: {"n":1}\n\nid: 16\ndata: {"n":2}\n\n`);
        // Where nothing comes but comments, it is a line before them.
        const quiet = await textOf(t, server, "/v1/log/f?live=sse&since=16", /heartbeat\n/);
        assert.equal(quiet.text, `${first}: heartbeat\n`);
    }
});

test("at the end of a closed stream an EventSource that comes back is told to stop", async (t) => {
    const server = await startServer(t);
    await server.create("ends");
    await server.append("ends", "[1,2]");
    const answers = [];
    const source = new EventSource(server.url("ends", "?offset=-1&live=sse"), {
        fetch: async (url, init) => {
            const answer = await fetch(url, init);
            answers.push(answer.status);
            return answer;
        },
    });
    defer(t, () => source.close());
    const seen = [];
    source.addEventListener("data", (event) => seen.push(...JSON.parse(event.data)));
    await until(() => seen.length === 2, "what there is");
    await server.append("ends", "3", "application/json", { "stream-closed": "true" });
    await until(() => source.readyState === EventSource.CLOSED, "it to stop");
    assert.deepEqual(seen, [1, 2, 3]);
    assert.deepEqual(answers, [200, 204]);

    // Only one that was there before, has all of it, and of a stream that is closed.
    const next = (await server.stream("HEAD", "ends")).headers["stream-next-offset"];
    const ask = async (name, query, id) => {
        const headers = id ? { "last-event-id": id } : {};
        return server.stream("GET", `${name}?live=sse&${query}`, { headers });
    };
    assert.match((await ask("ends", `offset=${next}`)).text, /"streamClosed":true/);
    assert.match((await ask("ends", "offset=now")).text, /"streamClosed":true/);
    const zero = next.replace(/_.*/, `_${"0".repeat(16)}`);
    assert.match((await ask("ends", "offset=now", zero)).text, /\[1,2,3\]/);
    const stop = await ask("ends", "offset=-1", next);
    assert.equal(stop.status, 204);
    assert.equal(stop.headers["stream-closed"], "true");
    assert.equal(stop.headers["stream-next-offset"], next);
    await server.create("open");
    const tail = (await server.stream("HEAD", "open")).headers["stream-next-offset"];
    const waiting = await openSse(t, server, "open?live=sse&offset=-1", { "Last-Event-ID": tail });
    assert.equal((await waiting.control()).upToDate, true);
    // An empty stream that is closed while it is followed ends likewise.
    await server.close("open");
    assert.equal((await ask("open", "offset=-1", tail)).status, 204);
});

test("a browser follows through many answers, and stops at the end", { skip }, async (t) => {
    const server = await startServer(t, ["--sse-lifetime", "100ms"]);
    await server.create("page");
    const browser = await launch();
    t.after(() => browser.close());
    const page = await browser.newPage();
    await page.route("http://localhost/", (route) =>
        route.fulfill({ contentType: "text/html", body: "<!doctype html>" }),
    );
    await page.goto("http://localhost/");
    const statuses = [];
    page.on("response", (answer) => statuses.push(answer.status()));
    await page.evaluate((url) => {
        window.seen = [];
        window.opened = 0;
        window.unnamed = 0;
        window.source = new EventSource(url);
        source.addEventListener("open", () => opened++);
        source.addEventListener("message", () => unnamed++);
        source.addEventListener("data", (event) => seen.push(...JSON.parse(event.data)));
    }, server.url("page", "?offset=-1&live=sse"));
    // At three seconds a turn, as browsers have it by themselves, this would take longer than the test waits.
    let n = 0;
    await until(async () => {
        await server.append("page", String(n++));
        return (await page.evaluate(() => opened)) > 8;
    }, "nine answers");
    await server.close("page");
    await until(() => page.evaluate(() => source.readyState === EventSource.CLOSED), "it to stop");
    assert.deepEqual(await page.evaluate(() => seen), numbers(0, n));
    assert.equal(await page.evaluate(() => unnamed), 0);
    assert.equal(statuses.at(-1), 204);
    assert.equal(statuses.filter((status) => status !== 200).length, 1);
});

test("Last-Event-ID wins over ?offset=", async (t) => {
    const server = await startServer(t);
    await server.create("resume");
    for (const value of ["1", "2", "3"]) await server.append("resume", value);

    const first = await openSse(t, server, "resume?offset=-1&live=sse");
    const all = [];
    const ids = new Map(); // last element of an event -> the event's id
    while (all.length < 3) {
        const event = await first.event("data");
        all.push(...JSON.parse(event.data));
        assert.ok(event.id, "a data event without id");
        ids.set(all.at(-1), event.id);
    }
    assert.deepEqual(all, [1, 2, 3]);

    const last = ids.get(3);
    await server.append("resume", "4");
    for (const offset of ["-1", "now", "0000000000000000_0000000000000000"]) {
        const again = await openSse(t, server, `resume?offset=${offset}&live=sse`, {
            "Last-Event-ID": last,
        });
        assert.equal((await again.event("data")).data, "[4]", `with offset=${offset}`);
    }
});

test("the id of an event is the offset behind it", async (t) => {
    const server = await startServer(t);
    await server.create("ids");
    const reader = await openSse(t, server, "ids?offset=-1&live=sse");
    for (const value of ["1", "[2,3]", "4"]) {
        const { headers } = await server.append("ids", value);
        const event = await reader.event("data");
        const control = await reader.control();
        assert.equal(event.id, headers["stream-next-offset"]);
        assert.equal(event.id, control.streamNextOffset);
    }
});

test("a broken Last-Event-ID is refused", async (t) => {
    const server = await startServer(t);
    await server.create("odd");
    for (const id of ["garbage", "1", "../..", "0000000000000001_", "9".repeat(300)]) {
        const reader = await openSse(t, server, "odd?offset=-1&live=sse", { "Last-Event-ID": id });
        assert.equal(reader.status, 400, `Last-Event-ID: ${id}`);
    }
});

test("heartbeats come before the first event and after it", async (t) => {
    const server = await startServer(t, ["--heartbeat", "100ms"]);
    await server.create("quiet");
    const reader = await openSse(t, server, "quiet?offset=-1&live=sse");

    const heartbeat = async () => {
        for (;;) {
            const next = await reader.next();
            assert.notEqual(next, null, "the stream ended");
            if (next.comment !== undefined) return;
            assert.notEqual(next.event, "data", "data where none was appended");
        }
    };
    await within(heartbeat(), "a heartbeat before the first event");
    await within(heartbeat(), "another one");
    await server.append("quiet", "1");
    assert.equal((await reader.event("data")).data, "[1]");
    await within(heartbeat(), "a heartbeat after an event");
});
