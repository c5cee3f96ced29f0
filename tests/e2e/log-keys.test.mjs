// SPDX-License-Identifier: Apache-2.0
// Appends to a log under an Idempotency-Key: stored once, across kills and restarts.
import assert from "node:assert/strict";
import { readFile, stat } from "node:fs/promises";
import { test } from "node:test";
import { startLog } from "./lib/log.mjs";
import { startServer } from "./lib/server.mjs";

const keyed = (key) => ({ "Idempotency-Key": key });

test("the same append again is answered as the first, and stored once", async (t) => {
    const log = await startLog(t);
    const first = await log.post('{"id":"a"}', keyed("k1"));
    assert.equal(first.status, 200, first.text);
    assert.equal(first.headers["idempotency-repeated"], undefined);
    await log.post('{"id":"b"}', keyed("k2"));
    const again = await log.post('{"id":"a"}', keyed("k1"));
    assert.equal(again.status, 200, again.text);
    assert.equal(again.headers["idempotency-repeated"], "?1");
    assert.equal(again.headers["log-identity"], first.headers["log-identity"]);
    assert.deepEqual(again.json(), first.json());
    assert.equal(await readFile(log.file, "utf8"), '{"id":"a"}\n{"id":"b"}\n');
    assert.equal((await stat(`${log.file}.keys`)).mode & 0o777, 0o600);
});

test("a key of another append is refused", async (t) => {
    const log = await startLog(t);
    await log.post('{"id":"a"}', keyed("k"));
    const other = await log.post('{"id":"b"}', keyed("k"));
    assert.equal(other.status, 422);
    assert.equal(other.json().error.code, "KEY_REUSED");
    assert.equal(await readFile(log.file, "utf8"), '{"id":"a"}\n');
});

test("a key has 1 to 255 bytes; without one nothing is recognised", async (t) => {
    const log = await startLog(t);
    assert.equal((await log.post("{}", keyed(""))).status, 400);
    assert.equal((await log.post("{}", keyed("x".repeat(256)))).status, 400);
    assert.equal((await log.post("{}", keyed("x".repeat(255)))).status, 200);
    assert.equal((await log.post("{}")).status, 200);
    assert.equal((await log.post("{}")).status, 200);
    assert.equal(await readFile(log.file, "utf8"), "{}\n{}\n{}\n");
});

test("requests at the same time store one", async (t) => {
    const log = await startLog(t);
    const answers = await Promise.all(
        Array.from({ length: 20 }, () => log.post('{"id":"a"}', keyed("k"))),
    );
    assert.ok(answers.every((answer) => answer.status === 200));
    assert.equal(answers.filter((a) => a.headers["idempotency-repeated"] === "?1").length, 19);
    assert.equal(await readFile(log.file, "utf8"), '{"id":"a"}\n');
});

test("kill -9 at any moment: everything that is sent until it is answered is there once", async (t) => {
    const log = await startLog(t);
    const kills = Number(process.env.TIDEMARK_KILLS ?? 6);
    const each = 40;
    const { port } = log.server.where;
    let sent = 0;
    const post = async (id) => {
        for (;;) {
            try {
                const answer = await log.post(`{"id":${id}}`, keyed(`k${id}`));
                if (answer.status === 200) return answer.json();
            } catch {
                await new Promise((resolve) => setTimeout(resolve, 20));
            }
        }
    };
    for (let i = 0; i < kills; i++) {
        const ids = Array.from({ length: each }, () => sent++);
        const work = Promise.all(ids.map(post));
        await new Promise((resolve) => setTimeout(resolve, 5 + 7 * i));
        await log.server.kill();
        log.server = await startServer(t, log.server.args.slice(5), { port });
        await work;
    }
    const { items } = await log.read();
    const ids = items.map((item) => item.id).sort((a, b) => a - b);
    assert.deepEqual(ids, Array.from({ length: sent }, (_, i) => i));
});

test("a key that is older than key-lifetime is new again", async (t) => {
    const log = await startLog(t, { settings: "key-lifetime = 1s" });
    await log.post('{"id":"a"}', keyed("k"));
    for (;;) {
        const answer = await log.post('{"id":"a"}', keyed("k"));
        assert.equal(answer.status, 200);
        if (answer.headers["idempotency-repeated"] === undefined) break;
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
    assert.equal(await readFile(log.file, "utf8"), '{"id":"a"}\n{"id":"a"}\n');
});
