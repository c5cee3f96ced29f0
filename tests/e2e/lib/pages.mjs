// SPDX-License-Identifier: Apache-2.0
// Tools and the pages of their results: servers that have some, the Unix socket's frames, and
// cursors taken apart and put together by what src/token/cursor.h says of them.
import assert from "node:assert/strict";
import { createHash, createHmac, hkdfSync } from "node:crypto";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import canonicalize from "canonicalize";
import { defer } from "./defer.mjs";
import { spawnServer, startServer } from "./server.mjs";
import { tempFolder } from "./temp.mjs";
import { until, within } from "./wait.mjs";

// ---- servers ----

export const KEY = Buffer.alloc(32, 7);
export const SESSION = Buffer.from([1, 2, 3, 4, 5, 6, 7, 8]);

function lines(settings) {
    return Object.entries(settings).flatMap(([name, value]) =>
        [value].flat().map((one) => `${name} = ${one}`),
    );
}

/** A file with these sections: { "pages": { "cursor-ttl": "1s" }, "tool rows": { command: .. } }. */
export async function configFile(folder, sections, name = "tidemark.ini") {
    const text = Object.entries(sections).flatMap(([head, settings]) => [
        `[${head}]`,
        ...lines(settings),
        "",
    ]);
    const path = join(folder, name);
    await writeFile(path, text.join("\n"));
    return path;
}

/** The section of a caller who has this token. */
export function caller(token, capabilities) {
    const digest = createHash("sha256").update(token).digest("hex");
    return { "token-sha256": digest, ...(capabilities ? { capabilities } : {}) };
}

/** Rows {"row":0} to {"row":count-1}, made by a command. */
export function rowsTool(count, more = {}) {
    const last = count - 1;
    return { command: `seq -f '{"row":%.0f}' 0 ${last}`, description: `${count} rows`, ...more };
}

export const rowsUpTo = (count) => Array.from({ length: count }, (_, row) => ({ row }));

/**
 * A server with these sections, which listens for tools on `server.socket` and tells of calls in
 * `server.audit()`. Its cursors are signed with KEY unless `key` says otherwise (null: its own).
 * `flags`: more of them.
 */
export async function startPages(t, sections = {}, given = {}) {
    const { key = KEY, wait = true, flags = [], ...options } = given;
    const folder = await tempFolder(t);
    const socket = join(folder, "tools.sock");
    const audit = join(folder, "audit.jsonl");
    const config = await configFile(folder, sections);
    const signing = key === null ? {} : { ATD_CURSOR_SIGNING_KEY: key.toString("base64url") };
    const start = wait ? startServer : spawnServer;
    const server = await start(t, ["--config", config, "--tools-socket", socket, "--audit", audit, ...flags], {
        ...options,
        env: { ...signing, ...options.env },
    });
    server.folder = folder;
    server.socket = socket;
    server.audit = () =>
        readFileSync(audit, "utf8")
            .split("\n")
            .filter(Boolean)
            .map((line) => JSON.parse(line))
            .filter(({ event }) => event === "tool");
    return server;
}

// ---- the socket ----

export const FRAME_MAX = 10 * 1024 * 1024;

export function frame(message) {
    const text = typeof message === "string" ? message : JSON.stringify(message);
    const body = Buffer.from(text);
    const head = Buffer.alloc(4);
    head.writeUInt32BE(body.length);
    return Buffer.concat([head, body]);
}

/** One connection to a tools socket. */
export class Wire {
    #bytes = Buffer.alloc(0);
    #wake = () => {};
    closed = false;

    constructor(socket) {
        this.socket = socket;
        socket.on("data", (data) => {
            this.#bytes = Buffer.concat([this.#bytes, data]);
            this.#wake();
        });
        socket.on("close", () => {
            this.closed = true;
            this.#wake();
        });
        socket.on("error", () => {}); // it is closed, then
    }

    raw(bytes) {
        this.socket.write(bytes);
        return this;
    }

    send(message) {
        return this.raw(frame(message));
    }

    #take() {
        if (this.#bytes.length < 4) return undefined;
        const length = this.#bytes.readUInt32BE();
        assert.ok(length > 0 && length <= FRAME_MAX, `an answer of ${length} bytes`);
        if (this.#bytes.length < 4 + length) return undefined;
        const text = this.#bytes.subarray(4, 4 + length).toString("utf8");
        this.#bytes = this.#bytes.subarray(4 + length);
        return JSON.parse(text);
    }

    /** The next message; null if the connection ends instead. */
    async receive(ms) {
        for (;;) {
            const message = this.#take();
            if (message !== undefined) return message;
            if (this.closed) {
                assert.equal(this.#bytes.length, 0, "it ends within a message");
                return null;
            }
            await within(new Promise((resolve) => (this.#wake = resolve)), "a message", ms);
        }
    }

    async ask(message, ms) {
        const answer = await this.send(message).receive(ms);
        assert.ok(answer, `the connection ended instead of answering ${JSON.stringify(message)}`);
        return answer;
    }

    hello(client_id, requested_capabilities = []) {
        return this.ask({ type: "hello", client_id, requested_capabilities });
    }

    run(tool_id, args = {}, more = {}) {
        return this.ask({ type: "run_tool", tool_id, args, dry_run: false, ...more });
    }

    next(tool_id, cursor, more = {}) {
        return this.ask({ type: "run_tool_continue", tool_id, cursor, ...more });
    }

    /** All pages of a result, from the first answer to the last. */
    async pages(tool_id, args) {
        const pages = [await this.run(tool_id, args)];
        while (pages.at(-1).next_cursor !== undefined)
            pages.push(await this.next(tool_id, pages.at(-1).next_cursor));
        return pages;
    }

    /** Waits for the other side to end it. */
    ended(ms) {
        return until(() => this.closed, "the connection to end", ms);
    }
}

export async function openWire(t, server) {
    const socket = connect(server.socket);
    defer(t, () => socket.destroy());
    await once(socket, "connect");
    return new Wire(socket);
}

/** A tool_result that succeeded; returned. */
export function assertResult(answer, tool_id) {
    assert.equal(answer.type, "tool_result", JSON.stringify(answer).slice(0, 500));
    assert.equal(answer.success, true, JSON.stringify(answer).slice(0, 500));
    assert.equal(answer.tool_id, tool_id);
    if ("next_cursor" in answer) assert.equal(typeof answer.next_cursor, "string");
    return answer;
}

/** A tool_result of a tool that ran and failed; what it says of that is returned. */
export function assertFailed(answer, message) {
    assert.equal(answer.type, "tool_result", JSON.stringify(answer).slice(0, 500));
    assert.equal(answer.success, false, JSON.stringify(answer).slice(0, 500));
    assert.ok(!("next_cursor" in answer), "a failure goes on");
    assert.ok("code" in answer.result, JSON.stringify(answer.result));
    assert.equal(typeof answer.result.retryable, "boolean");
    assert.match(answer.result.message, message);
    return answer.result;
}

/** An error; code undefined: it has none. */
export function assertError(answer, code, message, retryable = false) {
    assert.equal(answer.type, "error", JSON.stringify(answer).slice(0, 500));
    assert.equal(answer.code, code, answer.message);
    if (code === undefined) assert.ok(!("code" in answer), "no code is left out, not null");
    if (message instanceof RegExp) assert.match(answer.message, message);
    else if (message !== undefined) assert.equal(answer.message, message);
    assert.equal(answer.retryable, retryable);
    return answer;
}

// ---- cursors ----

function head(type, n) {
    const bits = type << 5;
    if (n < 24) return Buffer.from([bits | n]);
    if (n < 0x100) return Buffer.from([bits | 24, n]);
    if (n < 0x10000) return Buffer.from([bits | 25, n >> 8, n & 255]);
    const four = Buffer.alloc(5);
    four[0] = bits | 26;
    four.writeUInt32BE(n, 1);
    return four;
}

const number = (n) => head(0, n);
const bytes = (b) => Buffer.concat([head(2, b.length), b]);
const text = (s) => Buffer.concat([head(3, Buffer.byteLength(s)), Buffer.from(s)]);

export function fingerprint(args) {
    return createHash("sha256").update(canonicalize(args)).digest();
}

function tagOf(key, body) {
    const subkey = hkdfSync("sha256", key, Buffer.alloc(0), "tidemark/cursor", 32);
    return createHmac("sha256", Buffer.from(subkey)).update(body).digest();
}

/** A cursor as a server with this key and session would issue it. */
export function forge(payload, { key = KEY, session = SESSION } = {}) {
    const { tool_id, caller_id, args = {}, page = 2, issued_at, state = Buffer.alloc(0) } = payload;
    const members = [
        [1, text(tool_id)],
        ...(caller_id === undefined ? [] : [[2, text(caller_id)]]),
        [3, bytes(fingerprint(args))],
        [4, number(page)],
        [5, number(issued_at ?? Math.floor(Date.now() / 1000))],
        [6, bytes(session)],
        [7, bytes(state)],
    ];
    const pairs = members.map(([name, value]) => Buffer.concat([number(name), value]));
    const body = Buffer.concat([head(5, members.length), ...pairs]);
    return Buffer.concat([body, tagOf(key, body)]).toString("base64url");
}

/** What a cursor says: { tool_id, caller_id?, args, page, issued_at, session, state }. */
export function open(cursor, key = KEY) {
    const all = Buffer.from(cursor, "base64url");
    const body = all.subarray(0, -32);
    assert.deepEqual(all.subarray(-32), tagOf(key, body), "the cursor's tag");
    let at = 0;
    const size = (low) => {
        if (low < 24) return low;
        const n = 1 << (low - 24);
        at += n;
        return body.readUIntBE(at - n, n);
    };
    const take = () => {
        const [type, low] = [body[at] >> 5, body[at] & 31];
        at++;
        const n = size(low);
        if (type === 0) return n;
        at += n;
        const slice = body.subarray(at - n, at);
        return type === 3 ? slice.toString("utf8") : Buffer.from(slice);
    };
    const names = [, "tool_id", "caller_id", "args", "page", "issued_at", "session", "state"];
    const count = body[at++] & 31;
    const said = {};
    for (let i = 0; i < count; i++) said[names[take()]] = take();
    assert.equal(at, body.length, "nothing stands behind the map");
    return said;
}

/** Each of its variants with one bit of what it encodes turned over. */
export function* bitFlips(cursor) {
    const original = Buffer.from(cursor, "base64url");
    for (let bit = 0; bit < original.length * 8; bit++) {
        const changed = Buffer.from(original);
        changed[bit >> 3] ^= 1 << (bit & 7);
        yield changed.toString("base64url");
    }
}

// ---- processes ----

/** A time for `sleep` that no test waits for, and that no other process is told. */
export const longTime = () => (5000 + 1000 * Math.random()).toFixed(6);

/** The ids of processes in whose command line this stands. */
export function processesWith(marker) {
    return readdirSync("/proc")
        .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
        .filter((pid) => {
            try {
                return readFileSync(`/proc/${pid}/cmdline`, "latin1").includes(marker);
            } catch {
                return false; // it has ended
            }
        })
        .map(Number);
}
