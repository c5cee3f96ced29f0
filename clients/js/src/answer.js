// SPDX-License-Identifier: Apache-2.0
// A recorded answer that survives its connection.
//
// It is read event by event. When its connection is lost, the same answer is asked for again behind
// the last whole event, so that whoever reads the body sees one answer, byte for byte.
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
import { join, splitEvents, splitJson } from "./blocks.js";
import { ask, backoff, isPassing, readWithin, retryAfter, sleep } from "./retry.js";

const EVENTS = /^text\/event-stream\b/i;
const LINES = /^application\/(x-)?(ndjson|jsonl)\b/i;

const kindOf = ({ headers }) =>
    [EVENTS, LINES].find((kind) => kind.test(headers.get("Content-Type") ?? ""));

export function isRecorded(response) {
    const has = (name) => response.headers.has(name);
    const isNamed = has("Location") || has("X-Correlation-ID");
    return response.status === 200 && kindOf(response) && isNamed && !has("X-Tidemark-Degraded");
}

/** The same response, with a body that survives. */
export function survive(response, call, settings) {
    const wrapped = new Response(bodyOf(response, call, settings), response);
    wrapped.headers.delete("Content-Length"); // of what is passed on it would be another
    return Object.defineProperty(wrapped, "url", { value: response.url });
}

function bodyOf(response, call, settings) {
    const kind = kindOf(response);
    const split = kind === EVENTS ? splitEvents : splitJson;
    const answer = {
        kind,
        pieces: split(call.init.headers.get("Last-Event-ID") ?? "0"),
        reader: response.body.getReader(),
        member: memberOf(response, call),
        signal: call.init.signal,
    };
    const release = stopOnAbort(answer, call, settings);
    const events = eventsOf(answer, settings);
    const pull = async (controller) => {
        const { done, value } = await events.next().catch((error) => {
            cancel().catch(() => {});
            throw error instanceof RangeError ? networkError(error) : error; // not what it should be
        });
        if (!done) return controller.enqueue(value);
        release();
        controller.close();
    };
    const cancel = (reason) => {
        release();
        return answer.reader.cancel(reason);
    };
    return new ReadableStream({ pull, cancel }, { highWaterMark: 0 });
}

// ---- where it is ----

/** Where the answer can be read again. Credentials go nowhere but where they were sent before. */
function memberUrl({ headers, url: from }, url) {
    const asked = new URL(url, globalThis.location?.href);
    const id = headers.get("X-Correlation-ID");
    const path = asked.pathname.replace(/\/$/, "");
    const own = path.endsWith(`/${id}`) ? path : `${path}/${id}`;
    let member = new URL(headers.get("Location") ?? own, from || asked);
    if (member.origin !== asked.origin) member = new URL(own, asked);
    member.search ||= asked.search;
    member.searchParams.delete("from"); // ?from=snapshot is how an answer begins, not how it goes on
    return member.href;
}

/** The request for the rest of an answer, but for its position. */
function memberOf(response, call) {
    const { body, duplex, method, ...init } = call.init;
    const isOfBody = ([name]) => /^(content-|idempotency-|last-event-)/.test(name);
    const headers = new Headers([...init.headers].filter((header) => !isOfBody(header)));
    return { url: memberUrl(response, call.url), init: { ...init, headers, cache: "no-store" } };
}

// ---- stopping ----

/**
 * An abort by whoever asked for the answer stops it; who only reads it leaves. The stop outlives
 * the page, and a network that is away for a moment. Gives back what ends this.
 */
function stopOnAbort({ member, signal }, { init: { method } }, settings) {
    if (!signal || method !== "POST" || !settings.stopOnAbort) return () => {};
    const release = () => signal.removeEventListener("abort", stop);
    const stop = () => {
        release();
        const init = { ...member.init, method: "DELETE", keepalive: true, signal: undefined };
        ask({ url: member.url, init, repeats: true }, settings).catch(() => {});
    };
    signal.addEventListener("abort", stop);
    if (signal.aborted) stop();
    return release;
}

// ---- reading and resuming ----

/** What the error of a request or a body means: the user's abort, or the network. */
function judge(error, signal) {
    if (signal?.aborted) throw signal.reason;
    return error;
}

/** The bytes of whole events. */
async function* eventsOf(answer, settings) {
    const { pieces, signal } = answer;
    let failures = 0; // without progress
    for (;;) {
        const { position } = pieces;
        const read = await readWithin(answer.reader, settings.quietMs).catch((error) => ({
            error: judge(error, signal),
        }));
        if (read.value) {
            const whole = join(pieces.push(read.value));
            if (whole.length > 0) yield whole;
        } else if (pieces.ended) {
            return;
        } else {
            failures = await resume(answer, settings, read.error, failures);
            if (failures < 0) return;
        }
        if (pieces.position !== position || read.error?.isQuiet) failures = 0;
    }
}

/** Goes on with another connection: the failures so far, or -1 if there is no more. */
async function resume(answer, { fetch, resumes, longestWaitMs }, cut, failures) {
    const { pieces, member, signal, kind } = answer;
    let why = cut ?? new Error("it ended too early");
    let wait = cut || failures > 0 ? backoff(failures, longestWaitMs) : 0; // an end: asked at once
    pieces.tear();
    for (; failures < resumes && !why.isFinal; failures++) {
        await sleep(wait, signal);
        const headers = new Headers(member.init.headers);
        if (pieces.position !== "0") headers.set("Last-Event-ID", pieces.position);
        const next = await fetch(member.url, { ...member.init, headers }).catch((error) =>
            judge(error, signal),
        );
        if (next.status === 204) return -1;
        if (next.status === 200 && kindOf(next) === kind) {
            answer.reader = next.body.getReader();
            return failures + 1;
        }
        why = next.status ? await refusal(next) : next;
        wait = retryAfter(next) || backoff(failures, longestWaitMs);
    }
    throw networkError(why);
}

/** What an answer other than events says, as an error. */
async function refusal(answer) {
    const { status } = answer;
    const text = await answer.text().catch(() => "");
    const isFinal = status !== 200 && !isPassing(status); // 200: a page of somebody in between
    return Object.assign(new Error(`${status} ${text.slice(0, 300)}`), { status, isFinal });
}

/** What a browser calls a network error, so that SDKs raise it. */
const networkError = (cause) =>
    new TypeError(`network error: the answer cannot be resumed: ${cause.message}`, {
        cause,
    });
