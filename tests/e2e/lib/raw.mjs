// SPDX-License-Identifier: Apache-2.0
// Bytes on a socket, and HTTP/1.1 answers taken apart by hand, so that what is sent and what comes
// back is exactly what a test sees.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { defer } from "./defer.mjs";
import { within } from "./wait.mjs";

/**
 * The bytes of a request to a stream. A body given as text gets its Content-Length, one given as a
 * list goes out as chunks; without one a body may still be announced by `headers`.
 */
export function wire(method, name, headers = {}, body) {
    const framing = {};
    if (typeof body === "string") framing["Content-Length"] = body.length;
    if (Array.isArray(body)) framing["Transfer-Encoding"] = "chunked";
    const lines = Object.entries({ Host: "localhost", ...headers, ...framing });
    const head = lines.map(([key, value]) => `${key}: ${value}\r\n`).join("");
    const data = Array.isArray(body) ? [...body, ""].map(chunk).join("") : (body ?? "");
    return `${method} /v1/stream/${name} HTTP/1.1\r\n${head}\r\n${data}`;
}

/** One chunk of a chunked body; the empty one ends it. */
export function chunk(text) {
    return `${text.length.toString(16)}\r\n${text}\r\n`;
}

/** A connection. Everything received is kept; nothing throws when the peer resets it. */
export class Raw {
    #received = Buffer.alloc(0);
    #wake = [];

    constructor(server) {
        this.ended = false; // the peer will send no more
        this.socket = connect({ ...server.where, noDelay: true });
        this.opened = new Promise((resolve) => {
            this.socket.once("connect", resolve).once("close", resolve);
        });
        this.socket.on("data", (bytes) => {
            this.#received = Buffer.concat([this.#received, bytes]);
            this.#notify();
        });
        this.socket.on("end", () => this.#end());
        this.socket.on("close", () => this.#end());
        this.socket.on("error", () => this.#end());
    }

    #notify() {
        for (const wake of this.#wake.splice(0)) wake();
    }

    #end() {
        this.ended = true;
        this.#notify();
    }

    /** What was received and not yet taken. */
    get pending() {
        return this.#received;
    }

    send(bytes) {
        const data = typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes;
        if (!this.socket.destroyed) this.socket.write(data);
    }

    /** Reads no more until resume(), so that what the peer sends piles up on its side. */
    pause() {
        this.socket.pause();
    }

    resume() {
        this.socket.resume();
    }

    /** Half-closes: we send no more, but still listen. */
    finish() {
        this.socket.end();
    }

    destroy() {
        this.socket.destroy();
    }

    /** Calls look(received) at each arrival until it yields something, or the peer ends: null. */
    async #await(look, what) {
        const loop = async () => {
            for (;;) {
                const found = look(this.#received);
                if (found !== undefined) return found;
                if (this.ended) return null;
                await new Promise((resolve) => this.#wake.push(resolve));
            }
        };
        const waiting = loop();
        try {
            return await within(waiting, what);
        } catch (error) {
            const received = this.#received.toString("latin1").slice(0, 400);
            error.message += `; received so far: ${JSON.stringify(received)}`;
            throw error;
        }
    }

    /** Takes bytes up to and including the text; null if the peer ends before. */
    async takeThrough(text) {
        const end = await this.#await((b) => {
            const at = b.indexOf(text, 0, "latin1");
            return at < 0 ? undefined : at + text.length;
        }, JSON.stringify(text));
        return end === null ? null : this.#take(end);
    }

    async takeBytes(n) {
        const have = await this.#await((b) => (b.length >= n ? n : undefined), `${n} bytes`);
        assert.notEqual(have, null, `the peer ended ${n - this.#received.length} bytes early`);
        return this.#take(n);
    }

    #take(n) {
        const taken = this.#received.subarray(0, n);
        this.#received = this.#received.subarray(n);
        return taken;
    }

    /** Everything until the peer ends. */
    async takeAll() {
        await this.#await(() => undefined, "the connection to close");
        return this.#take(this.#received.length);
    }

    /** Status line and headers of the next answer; null if there is none. */
    async head() {
        const bytes = await this.takeThrough("\r\n\r\n");
        if (bytes === null) return null;
        const [line, ...rest] = bytes.toString("latin1").slice(0, -4).split("\r\n");
        const status = /^HTTP\/1\.1 (\d{3}) /.exec(line);
        assert.ok(status, `not a status line: ${JSON.stringify(line)}`);
        const headers = {};
        for (const header of rest) {
            const colon = header.indexOf(":");
            assert.ok(colon > 0, `not a header: ${JSON.stringify(header)}`);
            headers[header.slice(0, colon).toLowerCase()] = header.slice(colon + 1).trim();
        }
        return { status: Number(status[1]), headers };
    }

    /** The data of the next chunk; empty at the end of the body. */
    async chunk() {
        const line = await this.takeThrough("\r\n");
        assert.notEqual(line, null, "the connection ended inside a chunked body");
        assert.match(line.toString("latin1"), /^[0-9a-f]+(;.*)?\r\n$/i, "a chunk's size");
        const size = parseInt(line.toString("latin1"), 16);
        const data = (await this.takeBytes(size + 2)).subarray(0, size);
        return data;
    }

    /** The body that belongs to this head; `method` because answers to HEAD have none. */
    async body({ status, headers }, method = "GET") {
        if (method === "HEAD" || status === 204 || status === 304 || status < 200)
            return Buffer.alloc(0);
        if (headers["transfer-encoding"] === "chunked") {
            const pieces = [];
            for (let data = await this.chunk(); data.length > 0; data = await this.chunk())
                pieces.push(data);
            return Buffer.concat(pieces);
        }
        if (headers["content-length"] === undefined) return this.takeAll();
        return this.takeBytes(Number(headers["content-length"]));
    }

    /** The next whole answer; null if there is none. */
    async answer(method = "GET") {
        const head = await this.head();
        if (head === null) return null;
        return { ...head, text: (await this.body(head, method)).toString("utf8") };
    }

    /** Answers until the peer ends the connection. */
    async answersUntilClose() {
        const answers = [];
        for (let a = await this.answer(); a !== null; a = await this.answer()) answers.push(a);
        assert.equal(this.#received.length, 0, `left over: ${this.#received.toString("latin1")}`);
        return answers;
    }
}

/** Connects; the test `t` closes it. */
export async function openRaw(t, server) {
    const raw = new Raw(server);
    defer(t, () => raw.destroy());
    await within(raw.opened, "a connection");
    return raw;
}
