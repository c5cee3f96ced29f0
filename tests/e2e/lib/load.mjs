// SPDX-License-Identifier: Apache-2.0
// Writers that go on while their server dies and comes back, each with a ledger of what it was
// told. run(going) works while going() is true and ends with every answer known; check(server)
// compares the ledger with what is there.
import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import { DurableStream, IdempotentProducer } from "@durable-streams/client";

const JSON_TYPE = "application/json";
const TEXT_TYPE = "text/plain";
const AHEAD = 60; // values that a producer may be ahead of its acknowledgements
const LOOKED_AT = 12; // of many like things, so many are checked

const numbers = (count) => Array.from({ length: count }, (_, i) => i);
const jsonHeaders = { "content-type": JSON_TYPE };

const isBefore = (a, b) => a < b; // offsets sort as texts

/** A value's text on the wire; `pad` makes sizes differ. */
function encode(json, value) {
    return json ? JSON.stringify(value) : `${value.p} ${value.n} ${value.pad}\n`;
}

function decode(json, text) {
    if (json) return JSON.parse(text);
    assert.ok(text === "" || text.endsWith("\n"), "a torn line");
    return text
        .split("\n")
        .slice(0, -1)
        .map((line) => {
            const [p, n, pad] = line.split(" ");
            return { p, n: Number(n), pad };
        });
}

/** All from an offset on, as many answers as it takes: { values, headers of the last }. */
export async function readFrom(server, name, json, offset = "-1") {
    const values = [];
    let text = "";
    for (;;) {
        const answer = await server.stream("GET", `${name}?offset=${offset}`);
        assert.equal(answer.status, 200, `GET ${name} at ${offset}: ${answer.text}`);
        if (json) values.push(...answer.json());
        else text += answer.text;
        const { headers } = answer;
        if (headers["stream-up-to-date"] === "true")
            return { values: json ? values : decode(json, text), headers };
        assert.notEqual(headers["stream-next-offset"], offset, "a read that does not advance");
        offset = headers["stream-next-offset"];
    }
}

function sample(random, list) {
    if (list.length <= LOOKED_AT) return list;
    return numbers(LOOKED_AT).map(() => list[random.below(list.length)]);
}

/** Asserts where a stream ends, by HEAD. */
async function assertTail(server, name, atLeast) {
    const { status, headers } = await server.stream("HEAD", name);
    assert.equal(status, 200, `HEAD ${name}`);
    const tail = headers["stream-next-offset"];
    assert.ok(!isBefore(tail, atLeast), `${name} ends at ${tail}, before acknowledged ${atLeast}`);
}

function claimOf({ headers }) {
    const sent = new Headers(headers);
    return { epoch: Number(sent.get("producer-epoch")), seq: Number(sent.get("producer-seq")) };
}

/** An IdempotentProducer of the public client that numbers its values. Streams may be shared. */
export class Producer {
    sent = 0;
    acked = 0;
    known = { epoch: 0, seq: -1 }; // the last claim that was acknowledged
    restarts = 0;
    repeats = 0; // batches that had to be sent again
    duplicates = 0; // of those, the ones that had been stored the first time
    errors = [];

    constructor(site, random, { name, id, json, restarting = false }) {
        Object.assign(this, { site, random, name, id, json, restarting });
        const handle = new DurableStream({
            url: site.url(name),
            contentType: json ? JSON_TYPE : TEXT_TYPE,
        });
        this.producer = new IdempotentProducer(handle, id, {
            fetch: (url, init) => this.#send(url, init),
            lingerMs: 1,
            maxBatchBytes: 600,
            maxInFlight: 4,
            onError: (error) => this.errors.push(error),
        });
    }

    static async create(site, name, json) {
        await site.server.create(name, json ? JSON_TYPE : TEXT_TYPE);
    }

    /** Sends until it is answered. The client would wait for ever on a server that forgot. */
    async #send(url, init) {
        const { epoch, seq } = this.known;
        const fetch = this.site.fetch((...answer) => this.#answered(...answer));
        const answer = await fetch(url, init);
        const expected = Number(answer.headers.get("producer-expected-seq") ?? Infinity);
        if (claimOf(init).epoch === epoch)
            assert.ok(expected > seq, `${this.id}: ${seq} was acknowledged, not ${expected}?`);
        return answer;
    }

    #answered(answer, init, attempts) {
        if (answer.status !== 200 && answer.status !== 204) return;
        const { body } = init;
        const text = typeof body === "string" ? body : new TextDecoder().decode(body);
        const last = decode(this.json, text).at(-1);
        this.acked = Math.max(this.acked, last.n + 1);
        const { epoch, seq } = claimOf(init);
        if (epoch > this.known.epoch || seq > this.known.seq) this.known = { epoch, seq };
        if (attempts > 1) this.repeats++;
        if (answer.status === 204) this.duplicates++;
    }

    async run(going) {
        while (going()) {
            const room = Math.min(AHEAD - (this.sent - this.acked), this.random.below(12));
            for (let i = 0; i < room; i++) this.#append();
            if (this.restarting && this.random.below(40) === 0) await this.#restart();
            assert.deepEqual(this.errors, [], `${this.id} on ${this.name}`);
            await delay(1 + this.random.below(4));
        }
        await this.producer.flush();
    }

    /** A new epoch. Its first batch goes alone: the next one must not overtake it. */
    async #restart() {
        await this.producer.restart();
        this.#append();
        await this.producer.flush();
        this.restarts++;
    }

    #append() {
        const pad = "x".repeat(1 + this.random.below(120));
        this.producer.append(encode(this.json, { p: this.id, n: this.sent++, pad }));
    }

    audit(server) {
        const tail = this.producer.lastSuccessfulOffset;
        return tail && assertTail(server, this.name, tail);
    }

    async check(server) {
        assert.deepEqual(this.errors, []);
        assert.equal(this.acked, this.sent);
        const { values: there } = await readFrom(server, this.name, this.json);
        assert.deepEqual(
            there.filter(({ p }) => p === this.id).map(({ n }) => n),
            numbers(this.sent),
            `the values of ${this.id} in ${this.name}`,
        );
        await this.#checkClaims(server);
    }

    /** The server still knows what this producer did last. */
    async #checkClaims(server) {
        const { epoch, nextSeq } = this.producer;
        const send = (producerEpoch, seq) =>
            server.stream("POST", this.name, {
                headers: {
                    "content-type": this.json ? JSON_TYPE : TEXT_TYPE,
                    "producer-id": this.id,
                    "producer-epoch": String(producerEpoch),
                    "producer-seq": String(seq),
                },
                body: encode(this.json, { p: "intruder", n: 0, pad: "x" }),
            });
        const tail = async () =>
            (await server.stream("HEAD", this.name)).headers["stream-next-offset"];
        const before = await tail();
        if (nextSeq > 0) {
            const again = await send(epoch, nextSeq - 1);
            assert.equal(again.status, 204, `the last batch of ${this.id} again: ${again.text}`);
            assert.equal(again.headers["producer-seq"], String(nextSeq - 1));
            const gap = await send(epoch, nextSeq + 1);
            assert.equal(gap.status, 409, `a gap of ${this.id}: ${gap.text}`);
            assert.equal(gap.headers["producer-expected-seq"], String(nextSeq));
        }
        if (nextSeq > 0 && epoch > 0) {
            const stale = await send(epoch - 1, 0);
            assert.equal(stale.status, 403, `an old epoch of ${this.id}: ${stale.text}`);
            assert.equal(stale.headers["producer-epoch"], String(epoch));
        }
        assert.equal(await tail(), before, "a refused or repeated append changed the stream");
    }

    summary() {
        const { id, sent, repeats, duplicates, restarts } = this;
        const again = `${repeats} repeats, ${duplicates} duplicates`;
        return `${id}: ${sent} values, ${again}, epoch ${restarts}`;
    }
}

/** Appends batches without a producer, each once; the fate of some stays unknown. */
export class Plain {
    batches = []; // { values, next }; next: the offset behind, if acknowledged
    #count = 0;

    constructor(site, random, name) {
        Object.assign(this, { site, random, name });
    }

    async run(going) {
        while (going()) {
            const values = numbers(1 + this.random.below(4)).map(() => this.#count++);
            const batch = { values };
            this.batches.push(batch);
            const answer = await this.site.once("POST", this.name, {
                headers: jsonHeaders,
                body: JSON.stringify(values),
            });
            if (answer !== null) {
                assert.equal(answer.status, 204, answer.text);
                batch.next = answer.headers["stream-next-offset"];
            }
            while (!this.site.up) await delay(1);
        }
    }

    get acked() {
        return this.batches.filter(({ next }) => next);
    }

    audit(server) {
        const last = this.acked.at(-1);
        return last && assertTail(server, this.name, last.next);
    }

    async check(server) {
        const { values: there } = await readFrom(server, this.name, true);
        const behind = new Map(); // an acknowledged batch -> how many values are up to its end
        let at = 0;
        for (const batch of this.batches) {
            const { values, next } = batch;
            if (there[at] === values[0]) {
                assert.deepEqual(there.slice(at, at + values.length), values, "half a batch");
                at += values.length;
            } else {
                assert.equal(next, undefined, `acknowledged ${values} is missing in ${this.name}`);
            }
            behind.set(batch, at);
        }
        assert.equal(at, there.length, `more in ${this.name} than was sent, or in another order`);
        for (const batch of sample(this.random, this.acked)) {
            const { values } = await readFrom(server, this.name, true, batch.next);
            assert.deepEqual(values, there.slice(behind.get(batch)), batch.next);
        }
    }

    summary() {
        const { batches, acked } = this;
        return `${this.name}: ${acked.length} of ${batches.length} appends acknowledged`;
    }
}

/** Creates streams with content, deletes them, and creates some of the names again. */
export class Deleter {
    names = new Map(); // name -> { content, life, old }; content null: deleted

    constructor(site, random, prefix) {
        Object.assign(this, { site, random, prefix });
    }

    async run(going) {
        while (going()) {
            const name = `${this.prefix}/${this.random.below(40)}`;
            if (!this.names.has(name)) this.names.set(name, { content: null, life: 0, old: [] });
            const state = this.names.get(name);
            if (state.content === null) await this.#create(name, state);
            else await this.#remove(name, state);
        }
    }

    async #create(name, state) {
        const content = JSON.stringify([`${name} ${++state.life}`]);
        const answer = await this.site.insist("PUT", name, { headers: jsonHeaders, body: content });
        const expected = answer.repeated ? [200, 201] : [201];
        assert.ok(expected.includes(answer.status), `PUT ${name}: ${answer.status} ${answer.text}`);
        state.content = content;
        state.next = answer.headers["stream-next-offset"];
    }

    async #remove(name, state) {
        const answer = await this.site.insist("DELETE", name);
        const expected = answer.repeated ? [204, 404] : [204];
        assert.ok(expected.includes(answer.status), `DELETE ${name}: ${answer.status}`);
        state.content = null;
        state.old.push(state.next);
    }

    audit() {} // a name that is settled now may be taken up again while it is looked at

    async check(server) {
        for (const [name, { content, old, next }] of this.names) {
            const answer = await server.stream("GET", name);
            assert.equal(answer.status, content === null ? 404 : 200, `GET ${name}`);
            if (content === null) continue;
            assert.equal(answer.text, content);
            assert.equal(answer.headers["stream-next-offset"], next);
            for (const offset of old) {
                const gone = await server.stream("GET", `${name}?offset=${offset}`);
                assert.equal(gone.status, 410, `${name} at ${offset}: ${gone.text}`);
                assert.equal(gone.json().gap.reason, "reborn");
            }
        }
        const { streams } = (
            await server.request("GET", `/v1/stream/?limit=1000&prefix=${this.prefix}/`)
        ).json();
        const alive = [...this.names].filter(([, { content }]) => content !== null);
        assert.deepEqual(
            streams.map((s) => s.name),
            alive.map(([name]) => name).sort(),
        );
    }

    summary() {
        const deletes = [...this.names.values()].reduce((sum, { old }) => sum + old.length, 0);
        return `${this.prefix}: ${deletes} deletes`;
    }
}

/** Tells short stories from beginning to end, one stream each. */
export class Teller {
    told = []; // { name, json, values, offset }

    constructor(site, random, prefix) {
        Object.assign(this, { site, random, prefix });
    }

    async run(going) {
        while (going()) {
            const json = this.random.below(2) === 0;
            const name = `${this.prefix}/${this.told.length}`;
            const values = numbers(1 + this.random.below(30)).map((n) => ({
                p: this.prefix,
                n,
                pad: "y".repeat(1 + this.random.below(40)),
            }));
            const offset = await this.#tell(name, json, values);
            this.told.push({ name, json, values, offset });
        }
    }

    async #tell(name, json, values) {
        const contentType = json ? JSON_TYPE : TEXT_TYPE;
        const put = await this.site.insist("PUT", name, {
            headers: { "content-type": contentType },
        });
        assert.ok([200, 201].includes(put.status), put.text);
        const texts = values.map((value) => encode(json, value));
        if (this.random.below(3) === 0) return this.#tellByHand(name, contentType, json, texts);
        const errors = [];
        const handle = new DurableStream({ url: this.site.url(name), contentType });
        const producer = new IdempotentProducer(handle, "teller", {
            fetch: this.site.fetch(),
            lingerMs: 1,
            maxBatchBytes: 200,
            onError: (error) => errors.push(error),
        });
        for (const text of texts.slice(0, -1)) producer.append(text);
        const { finalOffset } = await producer.close(texts.at(-1));
        assert.deepEqual(errors, []);
        return finalOffset;
    }

    /** All in one append that closes; by a claim it may be repeated. */
    async #tellByHand(name, contentType, json, texts) {
        const answer = await this.site.insist("POST", name, {
            headers: {
                "content-type": contentType,
                "stream-closed": "true",
                "producer-id": "hand",
                "producer-epoch": "0",
                "producer-seq": "0",
            },
            body: json ? `[${texts.join(",")}]` : texts.join(""),
        });
        assert.ok([200, 204].includes(answer.status), `${answer.status} ${answer.text}`);
        return answer.headers["stream-next-offset"];
    }

    async audit(server) {
        for (const tale of this.told.slice(-3)) await this.#checkTale(server, tale);
    }

    async check(server) {
        for (const tale of this.told) await this.#checkTale(server, tale);
        for (const { name, json } of sample(this.random, this.told)) {
            const more = await server.stream("POST", name, {
                headers: { "content-type": json ? JSON_TYPE : TEXT_TYPE },
                body: "1",
            });
            assert.equal(more.status, 409, `an append to the closed ${name}`);
            assert.equal(more.headers["stream-closed"], "true");
        }
    }

    async #checkTale(server, { name, json, values, offset }) {
        const there = await readFrom(server, name, json);
        const { headers } = there;
        assert.deepEqual(there.values, values, name);
        assert.equal(headers["stream-closed"], "true", `${name} is open again`);
        assert.equal(headers["stream-end-reason"], "completed");
        assert.equal(headers["stream-next-offset"], offset);
    }

    summary() {
        return `${this.prefix}: ${this.told.length} streams closed`;
    }
}

/** Appends a mebibyte at a time, so that the store soon has to bring events to rest. */
export class Ballast {
    sent = 0;

    constructor(site, random, name) {
        Object.assign(this, { site, random, name });
    }

    async run(going) {
        for (; going(); this.sent++) {
            const answer = await this.site.insist("POST", this.name, {
                headers: {
                    "content-type": "application/octet-stream",
                    "producer-id": "ballast",
                    "producer-epoch": "0",
                    "producer-seq": String(this.sent),
                },
                body: Ballast.block(this.sent),
            });
            const expected = answer.repeated ? [200, 204] : [200];
            assert.ok(expected.includes(answer.status), `${answer.status} ${answer.text}`);
        }
    }

    static block(n) {
        return Buffer.alloc(1 << 20, `block ${n}, `);
    }

    audit() {}

    async check(server) {
        let offset = "-1";
        let n = 0;
        for (let upToDate = false; !upToDate;) {
            const { status, headers, bytes } = await server.stream(
                "GET",
                `${this.name}?offset=${offset}`,
            );
            assert.equal(status, 200);
            for (let at = 0; at < bytes.length; at += 1 << 20) {
                const block = bytes.subarray(at, at + (1 << 20));
                assert.ok(block.equals(Ballast.block(n)), `block ${n} is another`);
                n++;
            }
            offset = headers["stream-next-offset"];
            upToDate = headers["stream-up-to-date"] === "true";
        }
        assert.equal(n, this.sent);
    }

    summary() {
        return `${this.name}: ${this.sent} MiB`;
    }
}
