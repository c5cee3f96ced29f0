// SPDX-License-Identifier: Apache-2.0
// Server-sent events, read as they arrive.
import assert from "node:assert/strict";
import { openRaw, wire } from "./raw.mjs";

/** Takes text piece by piece; yields events { event, id, data } and comments { comment }. */
export class SseParser {
    #rest = "";
    #event = {};

    *feed(text) {
        const lines = text.split("\n");
        lines[0] = this.#rest + lines[0];
        this.#rest = lines.pop();
        for (const line of lines) {
            if (line === "") {
                if (this.#event.data !== undefined) yield this.#event;
                this.#event = {};
            } else if (line.startsWith(":")) {
                yield { comment: line.slice(1) };
            } else {
                this.#field(line);
            }
        }
    }

    #field(line) {
        const [, name, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
        if (name === "data" && this.#event.data !== undefined)
            this.#event.data += `\n${value ?? ""}`;
        else this.#event[name] = value ?? "";
    }
}

/** A live reader on a socket of its own. next() gives events and comments one by one. */
export class SseReader {
    #parser = new SseParser();
    #decoder = new TextDecoder();
    #queue = [];
    finished = false; // the response came to its proper end

    constructor(raw, head) {
        this.raw = raw;
        this.status = head.status;
        this.headers = head.headers;
    }

    /** The next event or comment; null at the end of the response. */
    async next() {
        while (this.#queue.length === 0) {
            if (this.finished) return null;
            const data = await this.raw.chunk();
            if (data.length === 0) this.finished = true;
            this.#queue.push(...this.#parser.feed(this.#decoder.decode(data, { stream: true })));
        }
        return this.#queue.shift();
    }

    /** The next that is an event of this type (any, if not given); null at the end. */
    async event(type) {
        for (;;) {
            const next = await this.next();
            if (next === null) return null;
            if (next.comment === undefined && (!type || next.event === type)) return next;
        }
    }

    async control() {
        const event = await this.event("control");
        return event === null ? null : JSON.parse(event.data);
    }
}

/** GET with live=sse; `target` is behind /v1/stream/. A refused request has .text instead. */
export async function openSse(t, server, target, headers = {}) {
    const raw = await openRaw(t, server);
    raw.send(wire("GET", target, headers));
    const head = await raw.head();
    assert.ok(head, "no answer to an SSE request");
    const reader = new SseReader(raw, head);
    if (head.status !== 200) reader.text = (await raw.body(head)).toString();
    else assert.equal(head.headers["transfer-encoding"], "chunked");
    return reader;
}
