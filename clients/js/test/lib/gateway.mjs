// SPDX-License-Identifier: Apache-2.0
// A server that records answers, as docs/protocols/gateway.md tells it, with faults. It answers a
// fetch in memory (`fetch`), or over TCP (see wire.mjs).
import { randomUUID } from "node:crypto";

export const ORIGIN = "http://gateway.test";
const encode = (text) => new TextEncoder().encode(text);

const named = (n, text) => `event: delta\ndata: {"n":${n}}\ndata: ${text}\n\n`;
const plain = (n, text) => `data: {"n":${n},"text":"${text}"}\n\n`;
const line = (n, text) => `{"n":${n},"text":"${text}"}\n`;

/**
 * How answers look. event: what the client is to see. record: the same as it is sent. Before every
 * third event comes what a quiet server says.
 */
export const FORMS = {
    full: {
        type: "text/event-stream",
        head: ": resume dG9rZW4\n",
        event: named,
        record: (n, text, id) => `id: ${id}:${n}\n${named(n, text)}`,
        quiet: ": heartbeat\n",
        end: ": end\n",
    },
    plain: {
        type: "text/event-stream; charset=utf-8",
        head: ": resume dG9rZW4\n",
        event: plain,
        record: (n, text) => `id: ${n}\n${plain(n, text)}`,
        quiet: ": heartbeat\n",
        end: ": end\n",
    },
    // Before there was an end mark, and Location.
    old: {
        type: "text/event-stream",
        head: "",
        event: plain,
        record: (n, text) => `id: ${n}\n${plain(n, text)}`,
        quiet: ": heartbeat\n",
        end: "",
        isOld: true,
    },
    sse: {
        type: "text/event-stream",
        head: 'event: resume\ndata: {"token":"dG9rZW4"}\n\n',
        seen: 'event: resume\ndata: {"token":"dG9rZW4"}\n\n', // once, however often it is sent
        event: named,
        record: (n, text) => `id: ${n}\n${named(n, text)}`,
        quiet: ": heartbeat\n",
        end: ": end\n",
    },
    crlf: {
        type: "text/event-stream",
        head: "",
        event: (n, text) => plain(n, text).replaceAll("\n", "\r\n"),
        record: (n, text, id) => `id: ${id}:${n}\r\n${plain(n, text).replaceAll("\n", "\r\n")}`,
        quiet: ": heartbeat\r\n",
        end: ": end\r\n",
    },
    gemini: {
        type: "text/event-stream",
        head: ": resume dG9rZW4\n\n",
        event: plain,
        record: plain,
        quiet: ": heartbeat\n\n",
        end: ": end\n\n",
    },
    ndjson: {
        type: "application/x-ndjson",
        head: "",
        event: line,
        record: line,
        quiet: "",
        end: "",
    },
};

/**
 * events: texts. fault(n, request) says what happens to request n (from 0):
 *   undefined              nothing
 *   { at: k, how }         the body ends after k bytes: "cut", "clean", or "silent" for ever
 *   { refuse: true }       it does not arrive
 *   { lose: true }         it arrives, and its answer does not
 *   { status, headers, body }   this answer instead, and nothing is done
 */
export class Gateway {
    asked = 0; // how often the backend was
    requests = []; // { method, url, headers, body, init }
    stopped = []; // ids
    #generations = new Map(); // key -> id
    #ids = new Set();

    constructor(form, events, fault = () => undefined) {
        this.form = FORMS[form];
        this.events = events;
        this.fault = fault;
    }

    /** What a client has to see. */
    get whole() {
        const { seen = "", event } = this.form;
        return seen + this.events.map((text, i) => event(i + 1, text)).join("");
    }

    /** The bytes of an answer behind event n. */
    bytes(id, behind = 0) {
        const { head, record, quiet, end } = this.form;
        const records = this.events.map((text, i) => {
            const before = i % 3 === 2 ? quiet : "";
            return before + record(i + 1, text, id);
        });
        return encode(head + records.slice(behind).join("") + end);
    }

    answer(method, url, headers) {
        const { pathname } = new URL(url);
        const [, id] = /\/([0-9a-f-]{36})$/.exec(pathname) ?? [];
        if (method === "DELETE") return this.#stop(id);
        if (method === "GET") return this.#read(pathname, id, headers.get("Last-Event-ID"));
        const key = headers.get("Idempotency-Key") ?? randomUUID();
        if (!this.#generations.has(key)) {
            this.asked++;
            this.#generations.set(key, randomUUID());
            this.#ids.add(this.#generations.get(key));
        }
        return this.#stream(pathname, this.#generations.get(key), 0);
    }

    #stop(id) {
        this.stopped.push(id);
        return { status: 200, headers: {}, bytes: encode("{}") };
    }

    #read(pathname, id, position = "0") {
        const behind = Number((position ?? "0").split(":").at(-1));
        if (!this.#ids.has(id)) return { status: 404, headers: {}, bytes: encode("unknown") };
        if (behind >= this.events.length) return { status: 204, headers: {}, bytes: null };
        return this.#stream(pathname.slice(0, -37), id, behind);
    }

    #stream(path, id, behind) {
        const headers = { "Content-Type": this.form.type, "X-Correlation-ID": id };
        if (!this.form.isOld) headers.Location = `${path}/${id}`;
        return { status: 200, headers, bytes: this.bytes(id, behind) };
    }

    // ---- in memory ----

    fetch = async (url, init = {}) => {
        const request = { method: init.method ?? "GET", url, headers: init.headers, init };
        const fault = this.fault(this.requests.length, request) ?? {};
        this.requests.push(request);
        if (fault.refuse) throw new TypeError("fetch failed");
        if (fault.status) return new Response(fault.body ?? null, fault);
        const answer = this.answer(request.method, url, new Headers(request.headers));
        if (fault.lose) throw new TypeError("fetch failed");
        const body = answer.bytes && bodyOf(answer.bytes, fault, init.signal);
        return new Response(body, { status: answer.status, headers: answer.headers });
    };
}

/** These bytes in pieces of all sizes, and what becomes of them. */
function bodyOf(bytes, { at = bytes.length, how = "clean", error }, signal) {
    let from = 0;
    return new ReadableStream({
        start: (controller) =>
            signal?.addEventListener("abort", () => controller.error(signal.reason)),
        pull: (controller) => {
            const end = Math.min(at, from + 1 + ((from * 7) % 200));
            if (end > from) controller.enqueue(bytes.slice(from, end));
            else if (how === "clean") controller.close();
            else if (how === "cut") controller.error(error ?? new TypeError("terminated"));
            else return new Promise(() => {});
            from = end;
        },
    });
}

/** Texts that are hard on whoever splits bytes. */
export const TEXTS = ["The", " ü€🌊", "", " id: 7", " : end"];
