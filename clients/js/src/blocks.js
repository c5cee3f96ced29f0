// SPDX-License-Identifier: Apache-2.0
// Cuts the bytes of an answer into whole pieces: lines, and events made of lines.
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
export const field = (line) => /^([^:\r\n]*):? ?([^\r\n]*)/.exec(decoder.decode(line)).slice(1);

/**
 * Whole lines out of bytes that come in any pieces. push(bytes) gives what take(line, out) has put
 * into out; take() is true at the end of a piece. tear() forgets what is not whole.
 */
export function splitLines(take) {
    let rest = []; // of a line that is not whole yet
    let held = 0; // bytes of what is not whole yet
    return {
        push(bytes) {
            const out = [];
            let from = 0;
            let settled = -held; // where the last whole piece ends
            for (let at; (at = bytes.indexOf(LF, from)) >= 0; from = at + 1) {
                const line = bytes.subarray(from, at + 1);
                if (take(rest.length > 0 ? join([...rest, line]) : line, out)) settled = at + 1;
                rest = [];
            }
            held = bytes.length - settled;
            if (from < bytes.length) rest.push(bytes.subarray(from));
            if (held > HELD_MAX) throw new RangeError("an event is too large");
            return out;
        },
        tear() {
            rest = [];
            held = 0;
        },
    };
}

/** NDJSON: each line is an event, and nothing is the server's own. See splitEvents. */
export function splitJson(position) {
    const place = { position, ended: false };
    const lines = splitLines((line, out) => {
        out.push(line);
        if (!isBlank(line)) place.position = String(1 + Number(place.position));
        return true;
    });
    return Object.assign(place, lines);
}

const begin = () => ({ lines: [], id: undefined, type: undefined });

/**
 * Server-sent events behind a position. push() gives the bytes of whole ones, and moves `position`
 * behind them; `ended`: the server has said that nothing follows. tear() is for each connection
 * that is lost.
 */
export function splitEvents(position) {
    const place = { position, ended: false };
    let counts = /^\d+$/.test(position); // no ids so far: the position is the number of events
    let isResumed = false;
    let hasToken = false;
    let block = begin();

    // Long lines are data. They are not looked into.
    function keep(line) {
        const [name, value] = line[0] === ID || line[0] === EVENT ? field(line) : [];
        if (name === "event") block.type = value;
        if (name === "id") block.id = value;
        else block.lines.push(line);
    }

    /** Moves behind a whole block. False: there is nothing for the client in it. */
    function settle({ id, type, lines }) {
        if (id !== undefined) {
            place.position = id;
            counts = false;
        } else if (isResumed && type === "gap") {
            throw new RangeError(`events are gone: ${decoder.decode(join(lines)).trim()}`);
        } else if (counts && type === undefined && lines.length > 0) {
            place.position = String(1 + Number(place.position));
        } else if (type === "resume") {
            // On routes with the dialect `sse` each connection begins with a token: one is enough.
            if (hasToken) return false;
            hasToken = true;
        }
        return lines.length > 0;
    }

    const { push, tear } = splitLines((line, out) => {
        if (isBlank(line)) {
            if (settle(block)) out.push(join([...block.lines, line]));
            block = begin();
            return true;
        }
        place.ended = line[0] === COLON && block.lines.length === 0 && field(line)[1] === "end";
        if (line[0] !== COLON) keep(line);
        return false;
    });

    return Object.assign(place, {
        push,
        tear() {
            tear();
            block = begin();
            isResumed = true;
            place.ended = false;
        },
    });
}
