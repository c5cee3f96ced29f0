// SPDX-License-Identifier: Apache-2.0
// A fetch whose answers survive: for every SDK that takes one. See README.md.
//
// Only recorded answers are wrapped (answer.js). Every other one passes as it is.
import { isRecorded, survive } from "./answer.js";
import { randomName } from "./platform.js";
import { ask } from "./retry.js";

const DEFAULTS = {
    retries: 5, // before an answer has begun
    resumes: 10, // in a row without a new event
    longestWaitMs: 5000, // between two attempts
    quietMs: 60_000, // a connection without a byte for so long is dead; heartbeats come every 10 s
    stopOnAbort: true,
    fetch: (...request) => globalThis.fetch(...request),
};

export function resumableFetch(options) {
    const settings = { ...DEFAULTS, ...options };
    return async (input, init) => {
        const call = await describe(input, init);
        const response = await ask(call, settings);
        return isRecorded(response) ? survive(response, call, settings) : response;
    };
}

/** A request in a form that can be sent again: { url, init, repeats }. */
async function describe(input, init) {
    const options = input instanceof Request ? await optionsOf(new Request(input, init)) : init;
    const method = (options?.method ?? "GET").toUpperCase();
    const headers = new Headers(options?.headers);
    const isPost = method === "POST" && isReplayable(options.body);
    if (isPost && !headers.has("Idempotency-Key"))
        headers.set("Idempotency-Key", await randomName());
    const url = input.url ?? String(input);
    return { url, init: { ...options, method, headers }, repeats: isPost || method === "GET" };
}

async function optionsOf(request) {
    const { method, headers, signal, credentials, redirect } = request;
    const body = request.body && (await request.arrayBuffer());
    return { method, headers, signal, credentials, redirect, body };
}

/** Uploads (forms, streams) are no generations: they are sent once and get no key. */
const isReplayable = (body) =>
    body == null ||
    typeof body === "string" ||
    body instanceof ArrayBuffer ||
    ArrayBuffer.isView(body);
