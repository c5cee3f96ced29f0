// SPDX-License-Identifier: Apache-2.0
// Cuts the bytes of a recorded answer into whole pieces, and counts them.
//
// An event stream is made of blocks, each ended by a blank line. A block that is not whole when the
// connection is lost will come again, so it is held back. Comments and `id:` lines are the server's
// and not the backend's; they are left out, and every other byte stays as it came.

const LF = 10;
const CR = 13;
const COLON = 58;
const EVENT = 101; // e
const ID = 105; // i
const HELD_MAX = 128 << 20; // bytes of one event; a stream's may have 64 MiB, in base64 a third more
const decoder = new TextDecoder();

export function join(parts) {
    if (parts.length === 1) return parts[0];
    const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
        all.set(part, at);
        at += part.length;
    }
    return all;
}

export const isBlank = (line) => line[0] === LF || line[0] === CR;

/** [name, value] of a line; the name of a comment is empty. */
export function field(line) {
    return /^([^:\r\n]*):? ?([^\r\n]*)/.exec(decoder.decode(line)).slice(1);
}

/** Whole lines out of bytes that come in any pieces, and what subclasses make of them. */
export class Pieces {
    ended = false; // the server has said that nothing follows
    #rest = []; // of a line that is not whole yet
    #held = 0; // bytes of what is not whole yet

    /** What is whole now. A subclass has take(line, out), which is true at the end of a piece. */
    push(bytes) {
        const out = [];
        let from = 0;
        let settled = -this.#held; // where the last whole piece ends
        for (let at; (at = bytes.indexOf(LF, from)) >= 0; from = at + 1) {
            const line = join([...this.#rest, bytes.subarray(from, at + 1)]);
            this.#rest = [];
            if (this.take(line, out)) settled = at + 1;
        }
        this.#held = bytes.length - settled;
        if (from < bytes.length) this.#rest.push(bytes.subarray(from));
        if (this.#held > HELD_MAX) throw new RangeError("an event is too large");
        return out;
    }

    /** The connection is lost: what is not whole comes again on the next one. */
    tear() {
        this.#rest = [];
        this.#held = 0;
        this.ended = false;
    }
}

/** NDJSON: each line is an event, and nothing is the server's own. */
export class Lines extends Pieces {
    #count;

    constructor(position) {
        super();
        this.#count = Number(position) || 0;
    }

    get position() {
        return String(this.#count);
    }

    take(line, out) {
        out.push(line);
        if (!isBlank(line)) this.#count++;
        return true;
    }
}

const begin = () => ({ lines: [], id: undefined, type: undefined });

/** Server-sent events. */
export class Blocks extends Pieces {
    #position;
    #counts; // no ids so far: the position is the number of events, as Gemini's clients need it
    #resumed = false;
    #hasToken = false;
    #block = begin();

    /** position: behind which event this begins, if the client knows it. */
    constructor(position) {
        super();
        this.#position = position ?? "0";
        this.#counts = /^\d+$/.test(this.#position);
    }

    get position() {
        return this.#position;
    }

    tear() {
        super.tear();
        this.#block = begin();
        this.#resumed = true;
    }

    take(line, out) {
        if (isBlank(line)) {
            if (this.#passes()) for (const kept of [...this.#block.lines, line]) out.push(kept);
            this.#block = begin();
            return true;
        }
        const isFirst = this.#block.lines.length === 0;
        this.ended = line[0] === COLON && isFirst && field(line)[1] === "end";
        if (line[0] !== COLON) this.#keep(line);
        return false;
    }

    // Long lines are data. They are not looked into.
    #keep(line) {
        const [name, value] = line[0] === ID || line[0] === EVENT ? field(line) : [];
        if (name === "id") {
            this.#block.id = value;
            return;
        }
        if (name === "event") this.#block.type = value;
        this.#block.lines.push(line);
    }

    /** Is the block, which is whole now, the backend's? Moves the position behind it. */
    #passes() {
        const { id, type, lines } = this.#block;
        if (id !== undefined) {
            this.#position = id;
            this.#counts = false;
        } else if (this.#resumed && type === "gap") {
            throw new RangeError(`events are gone: ${decoder.decode(join(lines)).trim()}`);
        } else if (type === undefined && lines.length > 0 && this.#counts) {
            this.#position = String(Number(this.#position) + 1);
        }
        return lines.length > 0 && !this.#isOldNews(id, type);
    }

    /** On routes with the dialect `sse` each connection begins with a token: one is enough. */
    #isOldNews(id, type) {
        if (id !== undefined || type !== "resume") return false;
        const before = this.#hasToken;
        this.#hasToken = true;
        return before;
    }
}
