// SPDX-License-Identifier: Apache-2.0
// A server of sessions that echoes, in memory, as docs/protocols/sessions.md tells it. It is a
// fetch, with faults.
import { createHmac, hkdfSync } from "node:crypto";

const varint = (n) => (n < 128 ? [n] : [(n % 128) | 128, ...varint(Math.floor(n / 128))]);
const field = (number, bytes) =>
    Buffer.concat([Buffer.from([...varint(number * 8 + 2), ...varint(bytes.length)]), bytes]);

/** The fields of a message, each a number or bytes. */
function parse(bytes) {
    const fields = {};
    let at = 0;
    const number = () => {
        let n = 0;
        for (let shift = 1; ; shift *= 128) {
            n += (bytes[at] & 127) * shift;
            if (bytes[at++] < 128) return n;
        }
    };
    while (at < bytes.length) {
        const tag = number();
        const n = number();
        fields[tag >> 3] = (tag & 7) === 0 ? n : bytes.subarray(at, (at += n));
    }
    return fields;
}

function envelope(flags, message) {
    const head = Buffer.alloc(5);
    head[0] = flags;
    head.writeUInt32BE(message.length, 1);
    return Buffer.concat([head, message]);
}

const connectError = (code, final = true) => ({
    code,
    message: `the server says ${code}`,
    details: final ? [{ type: "aiserver.v1.ErrorDetails", value: "" }] : [],
});
const endFrame = (error) => envelope(2, Buffer.from(JSON.stringify(error ? { error } : {})));

/** One session: what it was told, and what it answered. */
class Session {
    chunks = new Map(); // seqno -> text
    order = []; // texts, as the backend got them
    events = []; // server chunks as bytes
    end = undefined; // "close" or "abort"
    #mac = Buffer.alloc(32);
    #macKey;

    constructor(key, secret) {
        this.secret = secret;
        this.#macKey = hkdfSync(
            "sha256",
            Buffer.from(secret, "base64"),
            key,
            "tidemark session mac",
            32,
        );
    }

    hear(message) {
        const { 1: chunk, 2: abort, 3: close, 5: seqno } = parse(message);
        if (abort) this.end = "abort";
        if (close) this.end ??= "close";
        if (chunk === undefined || this.chunks.has(seqno)) return seqno;
        this.chunks.set(seqno, chunk.toString());
        this.order.push(chunk.toString());
        this.answer(chunk);
        return seqno;
    }

    answer(payload) {
        const id = String(this.events.length + 1);
        const covered = Buffer.concat([field(1, payload), field(7, Buffer.from(id))]);
        this.#mac = createHmac("sha256", Buffer.from(this.#macKey))
            .update(this.#mac)
            .update(covered)
            .digest();
        this.events.push(Buffer.concat([covered, field(8, this.#mac)]));
    }
}

/**
 * fault(n, { method, position }) says what happens to call n:
 *   { refuse }, { lose }     it does not arrive; its answer does not
 *   { error, final }         this error of Connect
 *   { at }                   a downlink is cut after so many bytes
 *   { status, body }         an answer of somebody in between
 * degraded: what welcomes say. mend(event, n): what is sent instead of an event.
 */
export class SessionServer {
    calls = [];
    sessions = new Map();
    degraded = false;
    mend = (event) => event;
    #links = new Map(); // request id -> { session, controller }

    constructor(fault = () => undefined) {
        this.fault = fault;
    }

    session(key) {
        return this.sessions.get(key);
    }

    fetch = async (url, { headers, body, signal }) => {
        signal?.throwIfAborted();
        const [, method] = /SessionService\/(\w+)$/.exec(url);
        const all = new Headers(headers);
        const position = all.get("x-idempotency-event-id") ?? undefined;
        const call = { method, url, position, headers: all };
        const fault = this.fault(this.calls.length, call) ?? {};
        this.calls.push(call);
        if (fault.refuse) throw new TypeError("fetch failed");
        if (fault.status) return new Response(fault.body, { status: fault.status });
        const answer =
            method === "Append"
                ? await this.#append(Buffer.from(body), fault)
                : this.#downlink(Buffer.from(body).subarray(5), all, fault, signal);
        await new Promise(setImmediate);
        if (fault.lose) throw new TypeError("fetch failed");
        return answer;
    };

    #downlink(message, headers, fault, signal) {
        const id = parse(message)[1].toString();
        const key = headers.get("x-idempotency-key");
        const secret = headers.get("x-idempotent-encryption-key");
        if (!this.sessions.has(key)) this.sessions.set(key, new Session(key, secret));
        const session = this.sessions.get(key);
        const sent = Number(headers.get("x-idempotency-event-id"));
        const link = { session, sent, bytes: 0, fault, next: 0, waiting: new Map() };
        for (const other of this.#links.values())
            if (other.session === session && other !== link) other.end(connectError("aborted"));
        const body = new ReadableStream({
            start: (controller) => {
                Object.assign(link, { controller, end: (error) => this.#end(link, error) });
                signal?.addEventListener("abort", () => {
                    this.#links.delete(id);
                    this.#put(link, () => controller.error(signal.reason));
                });
            },
        });
        this.#links.set(id, link);
        const welcome = Buffer.from(this.degraded ? [0x1a, 2, 0x10, 1] : [0x1a, 0]);
        if (fault.error) this.#end(link, connectError(fault.error, fault.final));
        else this.#send(link, envelope(0, welcome));
        this.#flush(link);
        return new Response(body, { headers: { "Content-Type": "application/connect+proto" } });
    }

    /** Whatever was sent before, a link that is over is over. */
    #put(link, act) {
        if (link.over) return;
        try {
            act();
        } catch {
            link.over = true;
        }
    }

    #send(link, bytes) {
        const left = (link.fault.at ?? Infinity) - link.bytes;
        link.bytes += bytes.length;
        this.#put(link, () => {
            if (left > 0) link.controller.enqueue(Uint8Array.from(bytes.subarray(0, left)));
            if (link.bytes <= left + link.bytes - bytes.length) return;
            link.controller.error(new TypeError("terminated"));
            link.over = true;
        });
    }

    #end(link, error) {
        this.#send(link, endFrame(error));
        this.#put(link, () => link.controller.close());
        link.over = true;
    }

    #flush(link) {
        const { session } = link;
        for (; link.sent < session.events.length && !link.over; link.sent++)
            this.#send(
                link,
                envelope(0, field(1, this.mend(session.events[link.sent], link.sent + 1))),
            );
        if (session.end === "close") link.end();
        if (session.end === "abort") link.end(connectError("canceled"));
    }

    /** Appends are put in order; one whose predecessor does not come waits for ever. */
    async #append(message, fault) {
        const { 2: id, 3: number = 0, 4: data } = parse(message);
        const link = this.#links.get(parse(id)[1].toString());
        if (fault.error || !link) {
            const error = fault.error
                ? connectError(fault.error, fault.final)
                : { code: "not_found" };
            return Response.json(error, { status: 400 });
        }
        await new Promise((resolve) => {
            link.waiting.set(number, () => resolve(this.#hear(link, data)));
            for (let turn; (turn = link.waiting.get(link.next)); link.next++) turn();
        });
        return new Response(new Uint8Array(0));
    }

    #hear(link, data) {
        const seqno = link.session.hear(data);
        if (seqno !== undefined)
            this.#send(link, envelope(0, Buffer.from([0x20, ...varint(seqno)])));
        this.#flush(link);
    }
}
