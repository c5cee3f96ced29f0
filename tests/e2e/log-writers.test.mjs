// SPDX-License-Identifier: Apache-2.0
// Several programs write one log and are killed at random; several readers poll it. Every whole
// entry is seen once by each reader. TIDEMARK_ENTRIES is how many there are, TIDEMARK_KILLS how
// many writers die.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { defer } from "./lib/defer.mjs";
import { randomness } from "./lib/rand.mjs";
import { freePort, startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";

const ENTRIES = Number(process.env.TIDEMARK_ENTRIES ?? 2000);
const KILLS = Number(process.env.TIDEMARK_KILLS ?? 12);
const WRITER = fileURLToPath(new URL("./lib/log-writer.mjs", import.meta.url));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A writer that is started again whenever it dies, until it has written its share. */
class Writer {
    acknowledged = [];
    deaths = 0;
    #life = 0;

    constructor(t, random, who, share, target) {
        Object.assign(this, { random, who, share, target });
        this.done = this.#run();
        defer(t, () => {
            this.share = 0;
            this.kill();
        });
    }

    async #run() {
        while (this.acknowledged.length < this.share) {
            const name = `${this.who}.${this.#life++}`; // no id comes twice
            const left = this.share - this.acknowledged.length;
            const seed = this.random.below(2 ** 32);
            this.child = spawn(process.execPath, [WRITER, this.target(), name, left, seed], {
                stdio: ["ignore", "pipe", "ignore"],
            });
            const lines = createInterface({ input: this.child.stdout });
            lines.on("line", (id) => this.acknowledged.push(id));
            await Promise.all([once(lines, "close"), once(this.child, "close")]);
            if (this.child.exitCode !== 0) this.deaths++;
        }
    }

    kill() {
        this.child?.kill("SIGKILL");
    }
}

/** Polls with a filter of its own and whatever limit, from either server. */
class Reader {
    items = [];
    polls = 0;

    constructor(random, filter, urls) {
        Object.assign(this, { random, filter, urls, since: "0", identity: "" });
    }

    async poll() {
        const query = new URLSearchParams({ since: this.since, ...this.filter });
        const limit = [0, 0, 1, 7, 100][this.random.below(5)];
        if (limit > 0) query.set("limit", 1 + this.random.below(limit));
        if (this.random.below(2) === 0) query.set("identity", this.identity);
        if (this.random.below(4) === 0) query.set("live", "long-poll");
        const url = this.urls()[this.random.below(this.urls().length)];
        let answer, text;
        try {
            answer = await fetch(`${url}?${query}`);
            text = await answer.text();
        } catch {
            return; // that server was killed
        }
        assert.equal(answer.status, 200, text);
        const { items, nextCursor } = JSON.parse(text);
        if (limit > 0) assert.ok(items.length <= limit);
        assert.ok(BigInt(nextCursor) >= BigInt(this.since));
        this.items.push(...items);
        this.since = nextCursor;
        this.identity = answer.headers.get("log-identity");
        this.polls++;
    }

    async until(over) {
        while (!over(this)) {
            await this.poll();
            await pause(this.random.below(10));
        }
    }
}

/** What the file says, by other means than the server's. */
async function entriesOf(file) {
    const lines = (await readFile(file, "utf8")).split("\n");
    assert.equal(lines.pop(), "", "the last line is not whole");
    const whole = [];
    let broken = 0;
    for (const line of lines) {
        try {
            if (line !== "") whole.push(JSON.parse(line));
        } catch {
            assert.match(line, /^\{"torn":/, "a broken line that no writer has torn");
            broken++;
        }
    }
    return { whole, broken };
}

const matches = (filter) => (entry) =>
    Object.entries(filter).every(
        ([key, value]) => String(entry[key.slice("where.".length)]) === value,
    );

test(`${ENTRIES} entries of 4 writers that are killed, once for each of 3 readers`, async (t) => {
    t.diagnostic(`TIDEMARK_ENTRIES=${ENTRIES} TIDEMARK_KILLS=${KILLS}`);
    const random = randomness(t);
    const folder = await tempFolder(t);
    const file = join(folder, "log.jsonl");
    const config = join(folder, "tidemark.conf");
    await writeFile(config, `[log f]\npath = ${file}\n`);
    const flags = ["--config", config, "--long-poll-timeout", "100ms"];
    const ports = [await freePort(), await freePort()];
    const start = (i) => startServer(t, flags, { port: ports[i] });
    const servers = [await start(0), await start(1)];
    const urls = ports.map((port) => `http://127.0.0.1:${port}/v1/log/f`);

    const share = Math.ceil((ENTRIES / 4) * 1.02); // a few hit on another's torn line
    const writers = [
        new Writer(t, random, "a", share, () => file),
        new Writer(t, random, "b", share, () => file),
        new Writer(t, random, "c", share, () => urls[0]),
        new Writer(t, random, "d", share, () => urls[1]),
    ];
    const filters = [
        {},
        { "where.who": "abcd"[random.below(4)] },
        [{ "where.parity": "1" }, { "where.even": "true" }][random.below(2)],
    ];
    const readers = filters.map((filter) => new Reader(random, filter, () => urls));
    let end = null;
    const reading = Promise.all(readers.map((r) => r.until(() => r.since === end)));

    let writing = true;
    const killing = (async () => {
        for (let kills = 0; kills < KILLS && writing; kills++) {
            await pause(50 + random.below(250));
            const victim = random.below(5);
            if (victim < 4) {
                writers[victim].kill();
            } else {
                await servers[1].kill();
                servers[1] = await start(1);
            }
        }
    })();
    await Promise.race([reading, Promise.all(writers.map((w) => w.done))]);
    await Promise.all(writers.map((w) => w.done));
    writing = false;
    await killing;
    // Closes off what the last to die has left.
    assert.equal((await fetch(urls[0], { method: "POST", body: `{"id":"end"}` })).status, 200);
    end = String((await stat(file)).size);
    await reading;

    const { whole, broken } = await entriesOf(file);
    const ids = whole.map((entry) => entry.id);
    assert.ok(ids.length >= ENTRIES, `only ${ids.length} entries`);
    assert.equal(new Set(ids).size, ids.length, "an entry was written twice");
    const there = new Set(ids);
    for (const writer of writers) {
        const lost = writer.acknowledged.filter((id) => !there.has(id));
        // Who does not look may hit on the torn line of another; ours are never lost.
        if ("cd".includes(writer.who)) assert.deepEqual(lost, []);
        else assert.ok(lost.length <= broken, `${writer.who} lost ${lost}`);
    }
    for (const reader of readers)
        assert.deepEqual(reader.items, whole.filter(matches(reader.filter)), "not as in the file");
    const deaths = writers.reduce((sum, writer) => sum + writer.deaths, 0);
    t.diagnostic(
        `${whole.length} entries, ${broken} broken lines, ${deaths} deaths, polls: ` +
            readers.map((reader) => reader.polls).join(" "),
    );
    assert.ok(deaths > 0 && broken > 0, "nobody died within a line");
});
