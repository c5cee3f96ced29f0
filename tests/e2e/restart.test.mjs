// SPDX-License-Identifier: Apache-2.0
// A server on disk that ends, by SIGTERM or by SIGKILL, and comes back: readers go on where they
// were, and nothing that was handed out before has lost its meaning.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { DurableStream, IdempotentProducer } from "@durable-streams/client";
import { EventSource } from "eventsource";
import { defer } from "./lib/defer.mjs";
import { readFrom } from "./lib/load.mjs";
import { randomness } from "./lib/rand.mjs";
import { tidemark } from "./lib/run.mjs";
import { startSite } from "./lib/site.mjs";
import { until, within } from "./lib/wait.mjs";

const SIGNALS = ["SIGTERM", "SIGKILL"];
const JSON_TYPE = "application/json";
const TEXT_TYPE = "text/plain";
const FAR = "2099-01-02T03:04:05Z";

const nextOffset = ({ headers }) => headers["stream-next-offset"];
const jsonBody = (value) => ({
    headers: { "content-type": JSON_TYPE },
    body: JSON.stringify(value),
});

// What an EventSource does by itself, only sooner: it would wait 3 s before it reconnects.
async function fetchWithQuickRetry(url, init) {
    const answer = await fetch(url, init);
    if (!answer.ok) return answer;
    const body = ReadableStream.from(
        (async function* () {
            yield new TextEncoder().encode("retry: 20\n\n");
            yield* answer.body;
        })(),
    );
    return new Response(body, { status: answer.status, headers: answer.headers });
}

/** Follows a stream from its start: the texts of its data events, and how often it connected. */
function follow(t, url) {
    const reader = { data: [], connections: 0, refusals: [] };
    const source = new EventSource(url, { fetch: fetchWithQuickRetry });
    defer(t, () => source.close());
    source.addEventListener("open", () => reader.connections++);
    source.addEventListener("data", ({ data }) => reader.data.push(data));
    source.addEventListener("error", (error) => {
        // An answer other than 200 ends an EventSource for good.
        if (source.readyState === EventSource.CLOSED) reader.refusals.push(error.message);
    });
    return reader;
}

/** Appends numbered values until it is told to end; resolves to how many there are. */
async function write(site, name, json, going) {
    const errors = [];
    const handle = new DurableStream({
        url: site.url(name),
        contentType: json ? JSON_TYPE : TEXT_TYPE,
    });
    const producer = new IdempotentProducer(handle, "writer", {
        fetch: site.fetch(),
        lingerMs: 1,
        maxInFlight: 1,
        onError: (error) => errors.push(error),
    });
    let count = 0;
    while (going()) {
        if (producer.inFlightCount < 4) producer.append(`${count++}${json ? "" : " "}`);
        await delay(2);
    }
    await producer.flush();
    assert.deepEqual(errors, []);
    return count;
}

test("readers go on through restarts without a gap or a repetition", async (t) => {
    const RESTARTS = 6;
    const random = randomness(t);
    const site = await startSite(t);
    await site.server.create("numbers");
    await site.server.create("words", TEXT_TYPE);
    const readers = ["numbers", "numbers", "words"].map((name) =>
        follow(t, site.url(name, "?offset=-1&live=sse")),
    );
    let going = true;
    const writers = Promise.all([
        write(site, "numbers", true, () => going),
        write(site, "words", false, () => going),
    ]);
    const pieces = () => Math.min(...readers.map(({ data }) => data.length));
    try {
        for (let n = 0; n < RESTARTS; n++) {
            const enough = pieces() + 1 + random.below(20);
            await until(
                () => readers.some((r) => r.refusals.length > 0) || pieces() >= enough,
                `news after restart ${n}`,
            );
            await site.restart(SIGNALS[n % 2]);
        }
    } finally {
        going = false;
    }
    const [numbers, words] = await within(writers, "the last answers");
    const expected = {
        numbers: Array.from({ length: numbers }, (_, i) => i),
        words: Array.from({ length: words }, (_, i) => `${i} `).join(""),
    };
    const seen = [
        () => readers[0].data.flatMap((data) => JSON.parse(data)),
        () => readers[1].data.flatMap((data) => JSON.parse(data)),
        () => readers[2].data.join(""),
    ];
    for (const [i, wanted] of [expected.numbers, expected.numbers, expected.words].entries()) {
        assert.deepEqual(readers[i].refusals, [], "a reader gave up");
        await until(() => seen[i]().length >= wanted.length, `all of reader ${i}`);
        assert.deepEqual(seen[i](), wanted);
        assert.ok(readers[i].connections > 1, "the reader was never cut off");
    }
});

test("a second server on the same data is refused and does no harm", async (t) => {
    const site = await startSite(t);
    await site.server.create("mine", TEXT_TYPE, { body: "one " });
    const args = ["serve", "--listen", "127.0.0.1:0", "--store", "embedded", "--data", site.data];
    const { code, signal, stderr } = await tidemark(t, args);
    assert.equal(signal, null);
    assert.notEqual(code, 0);
    assert.ok(stderr.includes(site.data), stderr);
    assert.match(stderr, /used by another server/);
    assert.ok(stderr.includes(String(site.server.pid)), "which one");

    await site.server.append("mine", "two ", TEXT_TYPE);
    await site.restart("SIGKILL"); // a dead server holds nothing
    assert.equal(await site.server.readAll("mine"), "one two ");
});

test("offsets and conditions of before hold after", async (t) => {
    const site = await startSite(t);
    const values = [];
    const marks = [["-1", 0]]; // offset, and how many values are before it
    await site.server.create("book");
    await site.server.create("note", TEXT_TYPE, { body: "never changed" });
    const { etag } = (await site.server.stream("GET", "note")).headers;
    const append = async (more, headers) => {
        const answer = await site.server.append("book", JSON.stringify(more), JSON_TYPE, headers);
        values.push(...more);
        marks.push([nextOffset(answer), values.length]);
    };
    for (const signal of [...SIGNALS, ...SIGNALS]) {
        await append([values.length, "short"]);
        await append([{ long: "x".repeat(3000 + values.length) }], {
            "stream-seq": `s${String(values.length).padStart(4, "0")}`,
        });
        const server = await site.restart(signal);

        for (const [offset, before] of marks) {
            const read = await readFrom(server, "book", true, offset);
            assert.deepEqual(read.values, values.slice(before), `${offset} after ${signal}`);
            assert.equal(nextOffset(read), marks.at(-1)[0]);
        }
        const [tail] = marks.at(-1);
        const inside = tail.replace(/\d{4}$/, (end) => String(Number(end) - 1).padStart(4, "0"));
        assert.equal((await server.stream("GET", `book?offset=${inside}`)).status, 400);
        const beyond = `${tail.slice(0, 17)}${"8".repeat(16)}`;
        const unknown = await server.stream("GET", `book?offset=${beyond}`);
        assert.equal(unknown.status, 410);
        assert.equal(unknown.json().gap.reason, "unknown");

        const cached = await server.stream("GET", "note", { headers: { "if-none-match": etag } });
        assert.equal(cached.status, 304, `the ETag after ${signal}`);
        const old = { "content-type": JSON_TYPE, "stream-seq": "s0000" };
        const late = await server.stream("POST", "book", { headers: old, body: "0" });
        assert.equal(late.status, 409, `a Stream-Seq of before after ${signal}`);
        const wrong = { "content-type": JSON_TYPE, "if-match": marks.at(-2)[0] };
        const unmatched = await server.stream("POST", "book", { headers: wrong, body: "0" });
        assert.equal(unmatched.status, 412);
        assert.equal(nextOffset(unmatched), tail);
        await append(["matched"], { "if-match": tail });
    }
});

test("a name that was deleted and created again is reborn, also over restarts", async (t) => {
    const site = await startSite(t);
    const old = [];
    const live = async (text) => {
        await site.server.create("phoenix", TEXT_TYPE);
        return nextOffset(await site.server.append("phoenix", text, TEXT_TYPE));
    };
    const remove = async (offset) => {
        old.push(offset);
        assert.equal((await site.server.stream("DELETE", "phoenix")).status, 204);
    };
    const assertReborn = async (when) => {
        for (const offset of old) {
            const answer = await site.server.stream("GET", `phoenix?offset=${offset}`);
            assert.equal(answer.status, 410, `${offset} ${when}: ${answer.text}`);
            assert.equal(answer.json().gap.reason, "reborn", when);
        }
    };
    for (const signal of SIGNALS) {
        // Deleted before the restart, created after it.
        await remove(await live("first"));
        for (let n = 0; n < 2; n++) {
            await site.restart(signal);
            assert.equal((await site.server.stream("GET", "phoenix")).status, 404);
        }
        await remove(await live("other"));
        // Both before the restart.
        const offset = await live("third");
        await assertReborn("at once");
        await site.restart(signal);
        await assertReborn(`after ${signal}`);
        assert.equal(await site.server.readAll("phoenix"), "third");
        await remove(offset);
    }
});

test("expiry survives a restart", async (t) => {
    const site = await startSite(t);
    const create = (name, headers) =>
        site.server.create(name, TEXT_TYPE, { headers, body: "something" });
    const head = async (name) => (await site.server.stream("HEAD", name)).headers;
    await create("ttl", { "stream-ttl": "7200" });
    await create("far", { "stream-expires-at": FAR });
    const before = { ttl: await head("ttl"), far: await head("far") };
    assert.equal(before.ttl["stream-ttl"], "7200");
    assert.equal(Date.parse(before.far["stream-expires-at"]), Date.parse(FAR));
    for (const signal of SIGNALS) {
        const soon = new Date(Date.now() + 1200).toISOString();
        await create(`soon/${signal}`, { "stream-expires-at": soon });
        await create(`idle/${signal}`, { "stream-ttl": "1" });
        await site.restart(signal);
        for (const name of ["ttl", "far"]) {
            const now = await head(name);
            for (const key of ["stream-ttl", "stream-expires-at", "stream-next-offset"])
                assert.equal(now[key], before[name][key], `${key} of ${name} after ${signal}`);
            const again = { "content-type": TEXT_TYPE, "stream-ttl": "7201" };
            const other = await site.server.stream("PUT", name, { headers: again });
            assert.equal(other.status, 409, "another configuration");
        }
        for (const name of [`soon/${signal}`, `idle/${signal}`])
            await until(
                async () => (await site.server.stream("HEAD", name)).status === 404,
                `the end of ${name}`,
            );
        // Nobody is answered when an expiry is written down; but whoever writes later is.
        await site.server.append("far", " more", TEXT_TYPE);
        before.far = await head("far");
        await site.restart(signal);
        for (const name of [`soon/${signal}`, `idle/${signal}`])
            assert.equal((await site.server.stream("GET", name)).status, 404, `${name} is back`);
    }
    assert.equal(await site.server.readAll("far"), "something more more");
});

test("what expires while the server is down is gone when it is back", async (t) => {
    const site = await startSite(t);
    const expires = Date.now() + 1500;
    await site.server.create("brief", TEXT_TYPE, {
        headers: { "stream-expires-at": new Date(expires).toISOString() },
        body: "something",
    });
    await site.kill();
    while (Date.now() <= expires) await delay(20);
    await site.start();
    assert.equal((await site.server.stream("GET", "brief")).status, 404);
    await site.server.create("brief", TEXT_TYPE);
    assert.equal(await site.server.readAll("brief"), "");
});

test("forks survive a restart, and their source's deletion", async (t) => {
    for (const signal of SIGNALS) {
        const site = await startSite(t);
        const fork = (name, from, more = {}) =>
            site.server.create(name, JSON_TYPE, {
                headers: { "stream-forked-from": `/v1/stream/${from}`, ...more },
            });
        const values = async (name) => (await readFrom(site.server, name, true)).values;
        await site.server.create("trunk");
        const early = nextOffset(await site.server.append("trunk", "[1,2]"));
        await site.server.append("trunk", "[3,4,5]");
        await fork("branch", "trunk", {
            "stream-fork-offset": early,
            "stream-fork-sub-offset": "1",
        });
        await site.restart(signal);
        await site.server.append("trunk", "6");
        await site.server.append("branch", `"b"`);
        await fork("twig", "branch");
        await site.restart(signal);
        assert.deepEqual(await values("trunk"), [1, 2, 3, 4, 5, 6]);
        assert.deepEqual(await values("branch"), [1, 2, 3, "b"]);
        assert.deepEqual(await values("twig"), [1, 2, 3, "b"]);
        const shared = await readFrom(site.server, "twig", true, early);
        assert.deepEqual(shared.values, [3, "b"], "an offset of the source");

        assert.equal((await site.server.stream("DELETE", "trunk")).status, 204);
        assert.equal((await site.server.stream("DELETE", "branch")).status, 204);
        await site.restart(signal);
        for (const name of ["trunk", "branch"])
            assert.equal((await site.server.stream("GET", name)).status, 410, `${name} is held`);
        await site.server.append("twig", `"t"`);
        await site.restart(signal);
        assert.deepEqual(await values("twig"), [1, 2, 3, "b", "t"]);

        assert.equal((await site.server.stream("DELETE", "twig")).status, 204);
        await site.restart(signal);
        for (const name of ["trunk", "branch", "twig"]) {
            assert.equal((await site.server.stream("GET", name)).status, 404, `${name} is free`);
            await site.server.create(name);
            assert.deepEqual(await values(name), []);
        }
        await site.stop();
    }
});

/** Takes webhooks; answers as `receiver.status` says. */
async function startReceiver(t) {
    const receiver = { status: 200, taken: [], tries: 0 };
    const listener = createServer(async (request, response) => {
        const pieces = [];
        for await (const piece of request) pieces.push(piece);
        receiver.tries++;
        if (receiver.status === 200) receiver.taken.push(JSON.parse(Buffer.concat(pieces)));
        response.writeHead(receiver.status, { "content-type": JSON_TYPE });
        response.end(JSON.stringify({ done: true }));
    });
    listener.listen(0, "127.0.0.1");
    await once(listener, "listening");
    defer(t, () => {
        listener.close();
        listener.closeAllConnections();
    });
    receiver.url = `http://127.0.0.1:${listener.address().port}/hook`;
    return receiver;
}

const subscription = (id, rest = "") => `/v1/stream/__ds/subscriptions/${id}${rest}`;

/** The acknowledged offset of a stream in a subscription. */
async function ackedOffset(server, id, path) {
    const answer = await server.request("GET", subscription(id));
    assert.equal(answer.status, 200, answer.text);
    return answer.json().streams.find((stream) => stream.path === path)?.acked_offset;
}

for (const signal of SIGNALS) {
    test(`a webhook subscription works on after ${signal}`, async (t) => {
        const site = await startSite(t, ["--allow-loopback-targets"]);
        const receiver = await startReceiver(t);
        const webhook = { url: receiver.url };
        const configuration = { type: "webhook", pattern: "jobs/*", webhook };
        const put = () => site.server.request("PUT", subscription("s"), jsonBody(configuration));
        assert.equal((await put()).status, 201);
        const keys = (await site.server.request("GET", "/v1/stream/__ds/jwks.json")).text;
        await site.server.create("jobs/1");
        await site.restart(signal);

        assert.equal((await put()).status, 200, "the same subscription as before");
        const acked = async (path, tail) =>
            until(
                async () => (await ackedOffset(site.server, "s", path)) === tail,
                `${path} to be acknowledged`,
            );
        const first = nextOffset(await site.server.append("jobs/1", `"after"`));
        await acked("jobs/1", first);
        assert.ok(receiver.taken.some(({ streams }) => streams.some((s) => s.path === "jobs/1")));
        const now = (await site.server.request("GET", "/v1/stream/__ds/jwks.json")).text;
        assert.equal(now, keys, "the signing key");

        // What could not be delivered before is delivered after, and what was is not repeated.
        receiver.status = 500;
        const { taken, tries } = receiver;
        await site.server.create("jobs/2");
        const second = nextOffset(await site.server.append("jobs/2", `"before"`));
        await until(() => receiver.tries > tries, "a delivery in vain");
        const count = taken.length;
        await site.restart(signal);
        receiver.status = 200;
        await acked("jobs/2", second);
        const pending = taken
            .slice(count)
            .flatMap(({ streams }) => streams.filter((s) => s.has_pending).map((s) => s.path));
        assert.deepEqual([...new Set(pending)], ["jobs/2"]);
        const generations = taken.map(({ generation }) => generation);
        assert.deepEqual(
            generations,
            [...generations].sort((a, b) => a - b),
        );
        await site.restart(signal);
        assert.equal(await ackedOffset(site.server, "s", "jobs/1"), first);
        assert.equal(await ackedOffset(site.server, "s", "jobs/2"), second);
        assert.equal((await site.server.request("DELETE", subscription("s"))).status, 204);
        await site.restart(signal);
        assert.equal((await site.server.request("GET", subscription("s"))).status, 404);
    });
}

test("a worker's claim is good over restarts", async (t) => {
    for (const signal of SIGNALS) {
        const site = await startSite(t);
        await site.server.create("wakes");
        const configuration = { type: "pull-wake", pattern: "chats/*", wake_stream: "wakes" };
        const put = await site.server.request("PUT", subscription("p"), jsonBody(configuration));
        assert.equal(put.status, 201, put.text);
        await site.server.create("chats/1");
        const offset = nextOffset(await site.server.append("chats/1", "1"));
        const post = (action, body, headers = {}) =>
            site.server.request("POST", subscription("p", `/${action}`), {
                headers: { "content-type": JSON_TYPE, ...headers },
                body: JSON.stringify(body),
            });
        const claim = await post("claim", { worker: "w1" });
        assert.equal(claim.status, 200, claim.text);
        const { wake_id, generation, token } = claim.json();
        await site.restart(signal);

        const other = await post("claim", { worker: "w2" });
        assert.equal(other.status, 409, other.text);
        assert.equal(other.json().error.code, "ALREADY_CLAIMED");
        const acks = [{ stream: "chats/1", offset }];
        const ack = await post(
            "ack",
            { wake_id, generation, acks, done: true },
            { authorization: `Bearer ${token}` },
        );
        assert.equal(ack.status, 200, ack.text);
        await site.restart(signal);
        assert.equal(await ackedOffset(site.server, "p", "chats/1"), offset);
        const none = await post("claim", { worker: "w2" });
        assert.equal(none.json().error.code, "NO_PENDING_WORK");
        await site.stop();
    }
});
