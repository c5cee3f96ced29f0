// SPDX-License-Identifier: Apache-2.0
// A fetch whose answers survive: for every SDK that takes one.
//
// A recorded answer is read event by event. When its connection is lost, the same answer is asked
// for again behind the last whole event, so that whoever reads the body sees one answer, byte for
// byte. Every other answer passes as it is.
//
//            whole event            end mark, 204
//     read <-------------> pass on     -> close
//       |  cut, EOF without end mark
//       v
//     resume -- 200 --> read
//       |  refused, 5xx: wait and again; no progress for too long, 404, 410: the body fails
//
// A body never fails with an AbortError unless the caller's signal was aborted: SDKs take one for
// the end that their user wanted.
import { Blocks, join, Lines } from "./blocks.js";
import { uuid } from "./platform.js";
import { backoff, isPassing, readWithin, retryAfter, sleep } from "./retry.js";

const DEFAULTS = {
    retries: 5, // before an answer has begun
    resumes: 10, // in a row without a new event
    longestWaitMs: 5000, // between two attempts
    quietMs: 60_000, // a connection without a byte for so long is dead; heartbeats come every 10 s
    stopOnAbort: true,
    fetch: (...request) => globalThis.fetch(...request),
};

const EVENTS = /^text\/event-stream\b/i;
const LINES = /^application\/(x-)?(ndjson|jsonl|jsonlines)\b/i;

/** See README.md. */
export function resumableFetch(options = {}) {
    const settings = { ...DEFAULTS, ...options };
    return async (input, init) => {
        const call = await describe(input, init);
        const response = await ask(call, settings);
        return isRecorded(response) ? wrap(response, call, settings) : response;
    };
}

// ---- the request ----

/** A request in a form that can be sent again: { url, init, repeats }. */
async function describe(input, init) {
    const given = input instanceof Request ? new Request(input, init) : undefined;
    const options = given ? await optionsOf(given) : { ...init };
    const method = (options.method ?? "GET").toUpperCase();
    const headers = new Headers(options.headers);
    const repeats = method === "GET" || (method === "POST" && isReplayable(options.body));
    if (method === "POST" && repeats && !headers.has("Idempotency-Key"))
        headers.set("Idempotency-Key", await uuid());
    return { url: given?.url ?? String(input), init: { ...options, method, headers }, repeats };
}

async function optionsOf(request) {
    const { method, headers, signal, credentials, cache, redirect, referrerPolicy } = request;
    const body = request.body ? await request.arrayBuffer() : undefined;
    return { method, headers, signal, credentials, cache, redirect, referrerPolicy, body };
}

/** Uploads (forms, streams) are no generations: they are sent once and get no key. */
const isReplayable = (body) =>
    body == null ||
    typeof body === "string" ||
    body instanceof ArrayBuffer ||
    ArrayBuffer.isView(body);

/** The first answer. One that was lost may have begun: it is asked for under the same key. */
async function ask({ url, init, repeats }, { fetch, retries, longestWaitMs }) {
    for (let failures = 0, lost = false; ; failures++) {
        let response;
        try {
            response = await fetch(url, init);
            // Otherwise the caller judges. Its own retry would be under another key.
            if (!lost || failures >= retries || ![429, 503].includes(response.status))
                return response;
            await response.body?.cancel();
        } catch (error) {
            if (!repeats || failures >= retries || init.signal?.aborted) throw error;
            lost = true;
        }
        await sleep(retryAfter(response) || backoff(failures, longestWaitMs), init.signal);
    }
}

// ---- the answer ----

const typeOf = (response) => response.headers.get("Content-Type") ?? "";

function isRecorded(response) {
    const { status, body, headers } = response;
    return (
        status === 200 &&
        body !== null &&
        (EVENTS.test(typeOf(response)) || LINES.test(typeOf(response))) &&
        (headers.has("Location") || headers.has("X-Correlation-ID")) &&
        !headers.has("X-Tidemark-Degraded")
    );
}

/** Where the answer can be read again. Credentials go nowhere but where they were sent before. */
function memberUrl(response, url) {
    const asked = new URL(url, globalThis.location?.href);
    const location = response.headers.get("Location");
    const id = response.headers.get("X-Correlation-ID");
    const path = asked.pathname.replace(/\/$/, "");
    const own = path.endsWith(`/${id}`) ? path : `${path}/${id}`;
    let member = new URL(location ?? own, response.url || asked);
    if (member.origin !== asked.origin) member = new URL(own, asked);
    if (!member.search) member.search = asked.search;
    member.searchParams.delete("from"); // ?from=snapshot is how an answer begins, not how it goes on
    return member.href;
}

/** The request for the rest of an answer, but for its position. */
function memberInit({ init }) {
    const { body, duplex, method, ...rest } = init;
    const headers = new Headers(init.headers);
    for (const name of ["Content-Type", "Content-Length", "Idempotency-Key", "Last-Event-ID"])
        headers.delete(name);
    return { ...rest, headers, cache: "no-store" };
}

function wrap(response, call, settings) {
    const headers = new Headers(response.headers);
    headers.delete("Content-Length"); // of what is passed on it would be another
    const source = new Answer(response, call, settings);
    const body = new ReadableStream(source, { highWaterMark: 0 });
    const { status, statusText, url } = response;
    const wrapped = new Response(body, { status, statusText, headers });
    return Object.defineProperty(wrapped, "url", { value: url });
}

/** What a browser calls a network error, so that SDKs raise it. */
const networkError = (why, cause) =>
    new TypeError(`network error: the answer was cut and cannot be resumed: ${why}`, { cause });

class Answer {
    #settings;
    #url;
    #init;
    #signal;
    #type;
    #pieces;
    #reader;
    #failures = 0; // without progress
    #release = () => {};

    constructor(response, call, settings) {
        const { headers, method, signal } = call.init;
        this.#settings = settings;
        this.#url = memberUrl(response, call.url);
        this.#init = memberInit(call);
        this.#signal = signal;
        this.#type = EVENTS.test(typeOf(response)) ? EVENTS : LINES;
        const Pieces = this.#type === EVENTS ? Blocks : Lines;
        this.#pieces = new Pieces(headers.get("Last-Event-ID") ?? undefined);
        this.#reader = response.body.getReader();
        // Who only reads an answer leaves it by an abort; who asked for it wants it no more.
        if (signal && method === "POST" && settings.stopOnAbort) this.#stopOnAbort();
    }

    async pull(controller) {
        try {
            const piece = await this.#next();
            if (piece) return controller.enqueue(piece);
            this.#release();
            controller.close();
        } catch (error) {
            this.#release();
            throw error;
        }
    }

    cancel(reason) {
        this.#release();
        return this.#reader.cancel(reason);
    }

    #stopOnAbort() {
        const stop = () => this.#stop().catch(() => {});
        this.#signal.addEventListener("abort", stop);
        this.#release = () => this.#signal.removeEventListener("abort", stop);
        if (this.#signal.aborted) stop();
    }

    /** Outlives the page, and a network that is away for a moment. */
    async #stop() {
        this.#release();
        const init = { ...this.#init, method: "DELETE", keepalive: true, signal: undefined };
        await ask({ url: this.#url, init, repeats: true }, this.#settings);
    }

    /** Whole events; undefined at the end. */
    async #next() {
        for (;;) {
            const { value, error } = await this.#read();
            const piece = value && this.#take(value);
            if (piece?.length > 0) return piece;
            if (!piece && (this.#pieces.ended || !(await this.#resume(error)))) return undefined;
        }
    }

    #take(bytes) {
        const { position } = this.#pieces;
        try {
            const piece = join(this.#pieces.push(bytes));
            if (this.#pieces.position !== position) this.#failures = 0;
            return piece;
        } catch (error) {
            this.#reader.cancel().catch(() => {});
            throw networkError(error.message, error);
        }
    }

    async #read() {
        try {
            return await readWithin(this.#reader, this.#settings.quietMs);
        } catch (error) {
            if (this.#signal?.aborted) throw this.#signal.reason;
            if (error.quiet) this.#failures = 0; // it was good until now
            return { error };
        }
    }

    /** Goes on with another connection. False: there is no more. */
    async #resume(cut) {
        let why = cut ?? new Error("it ended too early");
        const { resumes, longestWaitMs } = this.#settings;
        // A clean end is asked about at once.
        let wait = cut || this.#failures > 0 ? backoff(this.#failures, longestWaitMs) : 0;
        this.#pieces.tear();
        while (this.#failures++ < resumes) {
            await sleep(wait, this.#signal);
            const answer = await this.#ask();
            if (answer.status === 204) return false;
            if (answer.status === 200 && this.#type.test(typeOf(answer))) {
                this.#reader = answer.body.getReader();
                return true;
            }
            why = answer.status === undefined ? answer : await refusal(answer);
            if (why.final) break;
            wait = retryAfter(answer) || backoff(this.#failures, longestWaitMs);
        }
        throw networkError(why.message, why);
    }

    /** A response, or the error instead of one. */
    async #ask() {
        const headers = new Headers(this.#init.headers);
        if (this.#pieces.position !== "0") headers.set("Last-Event-ID", this.#pieces.position);
        try {
            return await this.#settings.fetch(this.#url, { ...this.#init, headers });
        } catch (error) {
            if (this.#signal?.aborted) throw this.#signal.reason;
            return error;
        }
    }
}

/** What an answer other than events says, as an error. final: it will not change. */
async function refusal(answer) {
    const { status } = answer;
    const text = await answer.text().catch(() => "");
    const final = status !== 200 && !isPassing(status);
    return Object.assign(new Error(`${status} ${text.slice(0, 300)}`), { status, final });
}
