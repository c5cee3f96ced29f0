// SPDX-License-Identifier: Apache-2.0
// The protocol's own TypeScript client.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client";
import { startProxy } from "./lib/proxy.mjs";
import { randomness } from "./lib/rand.mjs";
import { startServer } from "./lib/server.mjs";
import { until, within } from "./lib/wait.mjs";

const JSON_TYPE = "application/json";
const numbers = (count) => Array.from({ length: count }, (_, i) => i);

test("create, append, read json, head, delete", async (t) => {
    const server = await startServer(t);
    const url = server.url("client/basic");
    const handle = await DurableStream.create({ url, contentType: JSON_TYPE });
    await handle.append(JSON.stringify({ n: 1 }));
    await handle.append(JSON.stringify({ n: 2 }));

    const read = await handle.stream({ live: false });
    assert.deepEqual(await read.json(), [{ n: 1 }, { n: 2 }]);
    await handle.append(JSON.stringify({ n: 3 }));
    const rest = await stream({ url, offset: read.offset, live: false });
    assert.deepEqual(await rest.json(), [{ n: 3 }]);

    const head = await handle.head();
    assert.equal(head.exists, true);
    assert.equal(head.contentType, JSON_TYPE);
    assert.equal(head.offset, rest.offset);
    await assert.rejects(DurableStream.create({ url, contentType: "text/plain" }));
    await handle.delete();
    assert.equal((await DurableStream.head({ url })).exists, false);
});

test("text and bytes come back as they were given", async (t) => {
    const server = await startServer(t);
    const bytes = Uint8Array.from({ length: 3000 }, (_, i) => (i * 7919) & 255);
    const binary = await DurableStream.create({
        url: server.url("client/bytes"),
        contentType: "application/octet-stream",
    });
    await binary.append(bytes.slice(0, 1000));
    await binary.appendStream(
        (async function* () {
            yield bytes.slice(1000, 1500);
            yield bytes.slice(1500);
        })(),
    );
    const read = await binary.stream({ live: false });
    assert.deepEqual(Buffer.from(await read.body()), Buffer.from(bytes));

    const live = await binary.stream({ live: "sse" });
    const got = [];
    live.subscribeBytes(({ data }) => void got.push(...data));
    await binary.close();
    await within(live.closed, "the SSE reader to see the end");
    await until(() => got.length >= bytes.length, "the last bytes"); // handed over after `closed`
    assert.deepEqual(Buffer.from(got), Buffer.from(bytes));
});

for (const mode of ["sse", "long-poll"]) {
    test(`a live subscription by ${mode} sees what comes, until the end`, async (t) => {
        const server = await startServer(t);
        const handle = await DurableStream.create({
            url: server.url("client/live"),
            contentType: JSON_TYPE,
        });
        await handle.append("0");
        const response = await handle.stream({ live: mode });
        const items = [];
        response.subscribeJson((batch) => void items.push(...batch.items));
        await until(() => items.length === 1, "the first item");
        for (const n of [1, 2, 3]) {
            await handle.append(String(n));
            await until(() => items.length === n + 1, `item ${n}`);
        }
        await handle.close({ body: "4" });
        await within(response.closed, "the reader to end by itself");
        await until(() => items.length >= 5, "the last item"); // handed over after `closed`
        assert.deepEqual(items, numbers(5));
        assert.equal(response.streamClosed, true);
    });
}

/** The client leaves retries after network errors to its fetch. */
function persistentFetch(counter) {
    return async (url, init) => {
        for (;;) {
            try {
                return await fetch(url, init);
            } catch (error) {
                if (init.signal?.aborted) throw error;
                counter.retries++;
                await delay(5);
            }
        }
    };
}

test("an idempotent producer loses and repeats nothing when answers get lost", async (t) => {
    const COUNT = 600;
    const FAULTS = 60;
    const random = randomness(t);
    const server = await startServer(t);
    // Most cuts lose the answer to a request that was carried out; some break the request itself;
    // connections that live on carry several requests, so that later ones on them are hit as well.
    const proxy = await startProxy(t, server, (n) => {
        if (n >= FAULTS) return null;
        if (n % 4 === 3) return { requestBytes: 50 + random.below(1500) };
        return { answerBytes: random.below(2) * random.below(1200) };
    });
    await server.create("client/exactly");
    const counter = { retries: 0 };
    const errors = [];
    const handle = new DurableStream({ url: proxy.url("client/exactly"), contentType: JSON_TYPE });
    const producer = new IdempotentProducer(handle, "writer-1", {
        fetch: persistentFetch(counter),
        lingerMs: 1,
        maxBatchBytes: 256,
        maxInFlight: 5,
        onError: (error) => errors.push(error),
    });
    for (const n of numbers(COUNT)) {
        producer.append(JSON.stringify({ n, pad: "y".repeat(random.below(80)) }));
        if (n % 20 === 0) await delay(1);
    }
    await within(producer.flush(), "all batches to be acknowledged");
    const { finalOffset } = await within(producer.close(JSON.stringify({ n: COUNT })), "the close");

    assert.deepEqual(errors, []);
    assert.ok(counter.retries > 0, "nothing had to be retried");
    const read = await stream({ url: server.url("client/exactly"), live: false });
    const items = await read.json();
    assert.deepEqual(
        items.map((item) => item.n),
        numbers(COUNT + 1),
    );
    assert.equal(read.streamClosed, true);
    assert.equal(read.offset, finalOffset);
});

test("a newer epoch fences the older producer", async (t) => {
    const server = await startServer(t);
    const handle = await DurableStream.create({
        url: server.url("client/fence"),
        contentType: JSON_TYPE,
    });
    const errors = [];
    const old = new IdempotentProducer(handle, "w", { epoch: 0, onError: (e) => errors.push(e) });
    old.append("1");
    await old.flush();
    const young = new IdempotentProducer(handle, "w", { epoch: 1 });
    young.append("2");
    await young.flush();
    old.append("3");
    await assert.rejects(
        old.flush().then(() => Promise.reject(errors[0])),
        { name: "StaleEpochError", currentEpoch: 1 },
    );
    const claiming = new IdempotentProducer(handle, "w", { epoch: 0, autoClaim: true });
    claiming.append("4");
    await claiming.flush();
    assert.equal(claiming.epoch, 2);
    assert.deepEqual(await (await handle.stream({ live: false })).json(), [1, 2, 4]);
});
