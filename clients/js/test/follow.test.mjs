// SPDX-License-Identifier: Apache-2.0
// follow: every event once, whatever happens to the connections.
import assert from "node:assert/strict";
import { test } from "node:test";
import { follow, StreamError } from "tidemark";
import { Durable, KINDS } from "./lib/durable.mjs";

const URL_ = "http://streams.test/v1/stream/s";

async function all(stream, fault, options = {}) {
    const batches = [];
    const fetch = stream.fetch(fault);
    for await (const batch of follow(URL_, { fetch, longestWaitMs: 1, ...options }))
        batches.push(batch);
    return batches;
}

const dataOf = ({ join }, batches) => join(batches.map(({ data }) => data));

for (const [name, kind] of Object.entries(KINDS))
    for (const live of ["sse", "long-poll"])
        test(`${name} by ${live}: whole`, async () => {
            const stream = new Durable(kind);
            const batches = await all(stream, undefined, { live });
            assert.deepEqual(dataOf(kind, batches), kind.join(kind.items));
            const { closed, upToDate, offset } = batches.at(-1);
            assert.deepEqual([closed, upToDate, offset], [true, true, "4"]);
            assert.equal(stream.requests[0].live, undefined, "what is there comes first");
            assert.equal(stream.requests[1].live, live);
        });

for (const [name, kind] of Object.entries(KINDS))
    test(`${name}: cut at every byte`, async () => {
        const { bytes } = new Durable(kind).answer(`${URL_}?offset=1`, "sse");
        const checks = [];
        for (let at = 0; at <= Buffer.byteLength(bytes); at++)
            for (const how of ["cut", "clean"])
                checks.push(async () => {
                    const fault = (n) => (n === 1 ? { at, how } : undefined);
                    const batches = await all(new Durable(kind), fault);
                    assert.deepEqual(dataOf(kind, batches), kind.join(kind.items), `${how} ${at}`);
                });
        await Promise.all(checks.map((check) => check()));
    });

test("plain answers that are torn are asked for again", async () => {
    const faults = [{ at: 1, how: "cut" }, { refuse: true }, { status: 503 }, { at: 1 }];
    const batches = await all(new Durable(KINDS.json), (n) => faults[n]);
    assert.deepEqual(dataOf(KINDS.json, batches), KINDS.json.join(KINDS.json.items));
});

test("it begins where it is told, and shows its token", async () => {
    const stream = new Durable(KINDS.json);
    let asked = 0;
    const token = async () => `t${++asked}`;
    const batches = await all(stream, undefined, { offset: "2", token, headers: { "X-A": "b" } });
    assert.deepEqual(dataOf(KINDS.json, batches), [[], "last"]);
    const credentials = stream.requests.map(({ headers }) => headers.get("Authorization"));
    assert.deepEqual(credentials, ["Bearer t1", "Bearer t2"]);
    assert.equal(stream.requests[0].headers.get("X-A"), "b");
});

const gap = { requested: "1", earliest: "3", reason: "trimmed", snapshot: null };

test("a gap is an error with its detail", async () => {
    const refused = { status: 410, body: JSON.stringify({ gap }) };
    await assert.rejects(
        all(new Durable(KINDS.json), (n) => (n === 1 ? refused : undefined)),
        (error) => {
            assert.ok(error instanceof StreamError);
            assert.match(error.message, /trimmed/);
            assert.deepEqual([error.status, error.gap], [410, gap]);
            return true;
        },
    );
});

test("a gap that comes as an event, too", async () => {
    const body = `event: gap\ndata: ${JSON.stringify({ gap })}\n\n`;
    const said = { status: 200, headers: { "Content-Type": "text/event-stream" }, body };
    const following = all(new Durable(KINDS.json), (n) => (n === 1 ? said : undefined));
    await assert.rejects(following, { name: "StreamError", gap });
});

test("what a server refuses is not asked for again", async () => {
    for (const status of [400, 401, 403, 404]) {
        const stream = new Durable(KINDS.json);
        const body = '{"error":{"code":"NO","message":"not so"}}';
        const following = all(stream, () => ({ status, body }));
        await assert.rejects(following, { status, code: "NO", message: "not so" });
        assert.equal(stream.requests.length, 1);
    }
    const page = all(new Durable(KINDS.json), () => ({ status: 404, body: "<p>no" }));
    await assert.rejects(page, { status: 404, message: "status 404" });
});

test("a signal ends it, also while it waits", async () => {
    const abort = new AbortController();
    const following = all(new Durable(KINDS.json), () => ({ refuse: true }), {
        signal: abort.signal,
        longestWaitMs: 1e6,
    });
    setImmediate(() => abort.abort(new Error("enough")));
    await assert.rejects(following, /enough/);
});

test("who breaks off closes the connection", async () => {
    const stream = new Durable(KINDS.json);
    let cancelled = false;
    const fetch = async (...request) => {
        const answer = await stream.fetch()(...request);
        if (stream.requests.length < 2) return answer;
        const { bytes } = stream.answer(request[0], "sse");
        const body = new ReadableStream({
            start: (controller) => controller.enqueue(new TextEncoder().encode(bytes.slice(0, -9))),
            cancel: () => (cancelled = true),
        });
        return new Response(body);
    };
    for await (const { offset } of follow(URL_, { fetch })) if (offset === "3") break;
    assert.equal(cancelled, true);
});

test("a server that says nothing is not asked in a tight loop", async () => {
    const abort = new AbortController();
    const fetch = async () => Response.json([], { headers: { "Stream-Next-Offset": "-1" } });
    const following = follow(URL_, { fetch, signal: abort.signal }).next();
    setImmediate(() => abort.abort(new Error("enough"))); // which a tight loop would not let run
    await assert.rejects(following, /enough/);
});

test("there are two ways to follow", async () => {
    await assert.rejects(all(new Durable(KINDS.json), undefined, { live: "pigeon" }), TypeError);
});
