// SPDX-License-Identifier: Apache-2.0
// Follows a Durable Stream (docs/protocols/streams.md) over any number of connections.
//
// What is there is read by plain requests, which also tell the stream's type; then it is followed
// live. A batch counts when all of it has come: what was torn is asked for again.
import { eventReader } from "./events.js";
import { backoff, isPassing, retryAfter, sleep } from "./retry.js";

const DEFAULTS = {
    offset: "-1",
    live: "sse",
    longestWaitMs: 5000,
    quietMs: 60_000, // heartbeats come every 10 s
    fetch: (...request) => globalThis.fetch(...request),
};

/** The server refuses. Of a gap, `gap` is { requested, earliest, reason, snapshot }. */
export class StreamError extends Error {
    constructor(message, { status, code, gap } = {}) {
        super(message);
        Object.assign(this, { name: "StreamError", status, code, gap });
    }
}

/** See README.md. */
export async function* follow(url, options = {}) {
    const settings = { ...DEFAULTS, ...options };
    const { signal, longestWaitMs } = settings;
    if (!READERS[settings.live]) throw new TypeError(`live is "sse" or "long-poll"`);
    const place = { url, offset: settings.offset, cursor: undefined, type: "", live: undefined };
    for (let failures = 0; ;) {
        try {
            const { offset } = place;
            const read = READERS[place.live] ?? wholeBatch;
            for await (const batch of read(await ask(place, settings), place, settings)) {
                failures = 0;
                if (moveBehind(batch, place, settings)) yield batch;
                if (batch.closed) return;
            }
            if (read === wholeBatch && place.offset !== offset) continue; // there may be more
            await sleep(backoff(failures++, longestWaitMs), signal);
        } catch (error) {
            if (signal?.aborted) throw signal.reason;
            if (error instanceof StreamError) throw error;
            await sleep(error.after || backoff(failures++, longestWaitMs), signal);
        }
    }
}

/** False: the batch says nothing new. */
function moveBehind(batch, place, { live }) {
    const isCurrent = place.live !== undefined;
    place.offset = batch.offset;
    if (batch.upToDate) place.live = live;
    return batch.data.length > 0 || batch.closed || (batch.upToDate && !isCurrent);
}

// ---- requests ----

async function ask({ url, offset, cursor, live }, { fetch, token, headers, signal }) {
    const target = new URL(url, globalThis.location?.href);
    const query = { offset, live, cursor: live && cursor };
    for (const [name, value] of Object.entries(query))
        if (value) target.searchParams.set(name, value);
    const all = new Headers(headers);
    const credential = typeof token === "function" ? await token() : token;
    if (credential) all.set("Authorization", `Bearer ${credential}`);
    const answer = await fetch(target.href, { headers: all, signal });
    if (!answer.ok) throw await refusal(answer);
    return answer;
}

async function refusal(answer) {
    const { status } = answer;
    const text = await answer.text().catch(() => "");
    if (isPassing(status)) return Object.assign(new Error(text), { after: retryAfter(answer) });
    return refusalOf(text, status);
}

function refusalOf(text, status) {
    let said = {};
    try {
        said = JSON.parse(text);
    } catch {} // somebody else's words
    const { gap, error } = said;
    const message = gap ? `events are gone: ${gap.reason}` : (error?.message ?? `status ${status}`);
    return new StreamError(message, { status, code: error?.code, gap });
}

// ---- answers ----

/** How bytes of the stream are given: JSON streams as arrays, texts as texts. */
const FORMS = {
    json: { empty: [], read: (answer) => answer.json(), parse: (text) => JSON.parse(text) },
    text: { empty: "", read: (answer) => answer.text(), parse: (text) => text },
    bytes: {
        empty: new Uint8Array(0),
        read: async (answer) => new Uint8Array(await answer.arrayBuffer()),
        parse: (text) => Uint8Array.from(atob(text.replace(/\s/g, "")), (c) => c.charCodeAt(0)),
    },
};

function formOf(type) {
    const [name] = type.toLowerCase().split(";");
    if (name === "application/json") return FORMS.json;
    return name.startsWith("text/") ? FORMS.text : FORMS.bytes;
}

/** The batch of a plain answer, or of a long poll. */
async function* wholeBatch(answer, place) {
    const header = (name) => answer.headers.get(name) ?? undefined;
    place.type = header("Content-Type") ?? place.type;
    place.cursor = header("Stream-Cursor");
    const { read, empty } = formOf(place.type);
    const closed = header("Stream-Closed") === "true";
    yield {
        data: answer.status === 204 ? empty : await read(answer),
        offset: header("Stream-Next-Offset") ?? place.offset,
        upToDate: closed || answer.status === 204 || header("Stream-Up-To-Date") === "true",
        closed,
        endReason: header("Stream-End-Reason"),
    };
}

/** The batches of `live=sse`: each is data and the control event behind it. */
async function* eventBatches(answer, place, { quietMs }) {
    const { parse, empty } = formOf(place.type);
    const events = eventReader(answer, quietMs);
    let data = empty;
    try {
        for (let next; (next = await events.next());) {
            if (next.event === "data") data = parse(next.data);
            if (next.event === "gap") throw refusalOf(next.data, 410);
            if (next.event !== "control") continue;
            const said = JSON.parse(next.data);
            const { streamNextOffset: offset, streamClosed: closed = false, endReason } = said;
            place.cursor = said.streamCursor;
            yield { data, offset, upToDate: said.upToDate ?? false, closed, endReason };
            data = empty;
        }
    } finally {
        events.cancel().catch(() => {});
    }
}

const READERS = { sse: eventBatches, "long-poll": wholeBatch };
