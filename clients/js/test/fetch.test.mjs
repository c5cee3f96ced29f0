// SPDX-License-Identifier: Apache-2.0
// What resumableFetch sends, what it leaves alone, and how it gives up.
import assert from "node:assert/strict";
import { test } from "node:test";
import { resumableFetch } from "tidemark";
import { Gateway, ORIGIN, TEXTS } from "./lib/gateway.mjs";

const URL_ = `${ORIGIN}/v1/messages`;
const HEADERS = { "Content-Type": "application/json", Authorization: "Bearer k", "X-Other": "1" };
const ASK = { method: "POST", body: "{}", headers: HEADERS };

const wrapped = (fetch, options) => resumableFetch({ fetch, longestWaitMs: 1, ...options });
const headerOf = ({ headers }, name) => new Headers(headers).get(name);
const first = (fault) => (n) => (n === 0 ? fault : undefined);

/** The error that a body ends with. */
async function failureOf(response) {
    const reader = response.body.getReader();
    try {
        while (!(await reader.read()).done);
    } catch (error) {
        return error;
    }
    assert.fail("the body ended well");
}

function assertNetworkError(error, pattern) {
    assert.ok(error instanceof TypeError, String(error));
    assert.equal(error.name, "TypeError", "what the AI SDK takes for a lost connection");
    assert.match(error.message, /^network error: /);
    assert.match(error.message, pattern);
}

// ---- what is left alone ----

for (const [what, status, headers] of [
    ["JSON", 200, { "Content-Type": "application/json", "X-Correlation-ID": "1" }],
    ["an error", 400, { "Content-Type": "text/event-stream", "X-Correlation-ID": "1" }],
    ["events of somebody else", 200, { "Content-Type": "text/event-stream" }],
    [
        "an answer that is not recorded",
        200,
        {
            "Content-Type": "text/event-stream",
            "X-Correlation-ID": "1",
            "X-Tidemark-Degraded": "store",
        },
    ],
])
    test(`passed as it is: ${what}`, async () => {
        const answer = new Response(": a\n\nid: 1\ndata: torn", { status, headers });
        assert.equal(await wrapped(async () => answer)(URL_, ASK), answer);
    });

test("a recorded answer keeps its head", async () => {
    const headers = {
        "Content-Type": "text/event-stream",
        Location: "/x/1",
        "Content-Length": "12",
    };
    const answer = new Response("data: 1\n\n: end\n", { headers, statusText: "Fine" });
    Object.defineProperty(answer, "url", { value: URL_ });
    const response = await wrapped(async () => answer)(URL_, ASK);
    assert.deepEqual([response.status, response.statusText, response.url], [200, "Fine", URL_]);
    assert.equal(response.headers.get("location"), "/x/1");
    assert.equal(response.headers.get("content-length"), null, "it is another now");
    assert.equal(await response.text(), "data: 1\n\n");
});

// ---- requests ----

test("a POST has a key of its own, which a retry keeps", async () => {
    const gateway = new Gateway("full", TEXTS, (n) => [{ lose: true }, { refuse: true }][n]);
    const ask = wrapped(gateway.fetch);
    assert.equal(await (await ask(URL_, ASK)).text(), gateway.whole);
    const keys = gateway.requests.map((request) => headerOf(request, "Idempotency-Key"));
    assert.match(keys[0], /^[0-9a-f]{32}$/);
    assert.deepEqual(keys, [keys[0], keys[0], keys[0]]);
    assert.equal(gateway.asked, 1);
    await ask(URL_, ASK);
    assert.equal(gateway.asked, 2, "the next call is another one");
});

test("the caller's key wins", async () => {
    const gateway = new Gateway("full", TEXTS, first({ lose: true }));
    const headers = { ...HEADERS, "idempotency-key": "mine" };
    await wrapped(gateway.fetch)(URL_, { ...ASK, headers });
    for (const request of gateway.requests)
        assert.equal(headerOf(request, "Idempotency-Key"), "mine");
});

test("uploads and other methods are sent once, without a key", async () => {
    const form = new FormData();
    form.set("a", "b");
    for (const init of [
        { method: "POST", body: form },
        { method: "POST", body: new ReadableStream(), duplex: "half" },
        { method: "PUT", body: "x" },
        { method: "DELETE" },
    ]) {
        const gateway = new Gateway("full", TEXTS, () => ({ refuse: true }));
        await assert.rejects(wrapped(gateway.fetch)(URL_, init), /fetch failed/);
        assert.equal(gateway.requests.length, 1, init.method);
        assert.equal(headerOf(gateway.requests[0], "Idempotency-Key"), null);
    }
});

test("a GET is retried without a key", async () => {
    const gateway = new Gateway("full", TEXTS, first({ refuse: true }));
    assert.equal((await wrapped(gateway.fetch)(`${ORIGIN}/v1/models`)).status, 404);
    assert.equal(gateway.requests.length, 2);
    assert.equal(headerOf(gateway.requests[1], "Idempotency-Key"), null);
});

test("a Request is as good as an address", async () => {
    const gateway = new Gateway("full", TEXTS, (n) => [{ lose: true }, { at: 100, how: "cut" }][n]);
    const response = await wrapped(gateway.fetch)(new Request(URL_, ASK));
    assert.equal(await response.text(), gateway.whole);
    const { method, init } = gateway.requests[1];
    assert.equal(method, "POST");
    assert.equal(new TextDecoder().decode(init.body), "{}");
    assert.equal(headerOf(gateway.requests[1], "X-Other"), "1");
});

test("attempts are counted", async () => {
    const gateway = new Gateway("full", TEXTS, () => ({ refuse: true }));
    await assert.rejects(wrapped(gateway.fetch, { retries: 3 })(URL_, ASK), /fetch failed/);
    assert.equal(gateway.requests.length, 4);
});

test("a status is the caller's to judge", async () => {
    for (const status of [429, 500, 503]) {
        const gateway = new Gateway("full", TEXTS, () => ({ status }));
        assert.equal((await wrapped(gateway.fetch)(URL_, ASK)).status, status);
        assert.equal(gateway.requests.length, 1);
    }
});

test("but not while a lost request may be under way: its key has to be kept", async () => {
    const faults = [{ lose: true }, { status: 503, headers: { "Retry-After": "0" } }];
    const gateway = new Gateway("full", TEXTS, (n) => faults[n]);
    assert.equal(await (await wrapped(gateway.fetch)(URL_, ASK)).text(), gateway.whole);
    assert.equal(gateway.asked, 1);
});

// ---- resuming ----

test("the rest is asked for where Location says, with the same credentials", async () => {
    const gateway = new Gateway("full", TEXTS, first({ at: 150, how: "cut" }));
    const init = { ...ASK, credentials: "include" };
    await (await wrapped(gateway.fetch)(`${URL_}?api-version=3`, init)).text();
    const [asked, rest] = gateway.requests;
    assert.equal(rest.method, "GET");
    assert.match(rest.url, /^http:\/\/gateway\.test\/v1\/messages\/[0-9a-f-]{36}\?api-version=3$/);
    assert.match(headerOf(rest, "Last-Event-ID"), /^[0-9a-f-]{36}:\d$/);
    assert.equal(rest.init.credentials, "include");
    for (const name of ["Authorization", "X-Other"])
        assert.equal(headerOf(rest, name), headerOf(asked, name));
    for (const name of ["Content-Type", "Idempotency-Key"])
        assert.equal(headerOf(rest, name), null);
    assert.equal(rest.init.body, undefined);
});

test("credentials never go to another host", async () => {
    const asked = [];
    const events = { "Content-Type": "text/event-stream", "X-Correlation-ID": "the-id" };
    const fetch = async (url) => {
        asked.push(url);
        if (asked.length > 1) return new Response(null, { status: 204 });
        return new Response("id: 1\ndata: a\n\n", {
            headers: { ...events, Location: "https://evil.test/v1/messages/the-id" },
        });
    };
    await (await wrapped(fetch)(URL_, ASK)).text();
    assert.deepEqual(asked, [URL_, `${URL_}/the-id`]);
});

test("whoever reads an answer by its id goes on there, behind what it had", async () => {
    const gateway = new Gateway("old", TEXTS, (n) =>
        n === 1 ? { at: 40, how: "cut" } : undefined,
    );
    const ask = wrapped(gateway.fetch);
    const id = (await ask(URL_, ASK)).headers.get("x-correlation-id");
    const headers = { "Last-Event-ID": "3" };
    const text = await (await ask(`${URL_}/${id}?from=snapshot`, { headers })).text();
    assert.ok(gateway.whole.endsWith(text) && text.startsWith('data: {"n":4'));
    const rest = gateway.requests.slice(2);
    assert.deepEqual([...new Set(rest.map(({ url }) => url))], [`${URL_}/${id}`]);
});

test("nothing seen, nothing claimed", async () => {
    const gateway = new Gateway("full", TEXTS, first({ at: 5, how: "cut" }));
    await (await wrapped(gateway.fetch)(URL_, ASK)).text();
    assert.equal(headerOf(gateway.requests[1], "Last-Event-ID"), null);
});

test("a cut that is called an abort is a cut", async () => {
    const error = new DOMException("This operation was aborted", "AbortError");
    const gateway = new Gateway("full", TEXTS, first({ at: 99, how: "cut", error }));
    assert.equal(await (await wrapped(gateway.fetch)(URL_, ASK)).text(), gateway.whole);
});

test("a connection that falls silent is left", async () => {
    const gateway = new Gateway("full", TEXTS, (n) =>
        n < 3 ? { at: 90 * n, how: "silent" } : undefined,
    );
    const response = await wrapped(gateway.fetch, { quietMs: 100, resumes: 1 })(URL_, ASK);
    assert.equal(await response.text(), gateway.whole);
    assert.ok(gateway.requests.length >= 4, "it was silent three times");
});

test("a page of somebody else in between is no answer", async () => {
    const page = { status: 200, headers: { "Content-Type": "text/html" }, body: "<p>Log in" };
    const gateway = new Gateway("full", TEXTS, (n) => [{ at: 99, how: "cut" }, page, page][n]);
    assert.equal(await (await wrapped(gateway.fetch)(URL_, ASK)).text(), gateway.whole);
});

// ---- giving up ----

for (const status of [400, 401, 403, 404, 405, 410])
    test(`${status} ends it: the body fails, so that SDKs raise`, async () => {
        const refused = { status, body: '{"gap":{"reason":"trimmed"}}' };
        const gateway = new Gateway("full", TEXTS, (n) => [{ at: 99, how: "cut" }, refused][n]);
        const error = await failureOf(await wrapped(gateway.fetch)(URL_, ASK));
        assertNetworkError(error, new RegExp(`${status} .*"reason":"trimmed"`));
        assert.equal(error.cause.status, status);
        assert.equal(gateway.requests.length, 2);
    });

test("too many failures without an event end it", async () => {
    const gateway = new Gateway("full", TEXTS, (n) =>
        n === 0 ? { at: 99, how: "cut" } : [{ refuse: true }, { at: 7, how: "cut" }][n % 2],
    );
    const error = await failureOf(await wrapped(gateway.fetch, { resumes: 4 })(URL_, ASK));
    assertNetworkError(error, /fetch failed|terminated/);
    assert.equal(gateway.requests.length, 5);
});

test("clean ends without an event, too", async () => {
    const gateway = new Gateway("full", TEXTS, () => ({ at: 0 }));
    const error = await failureOf(await wrapped(gateway.fetch, { resumes: 4 })(URL_, ASK));
    assertNetworkError(error, /too early/);
    assert.equal(gateway.requests.length, 5);
});

test("each event gives new patience", async () => {
    const many = Array.from({ length: 30 }, (_, n) => `t${n}`);
    const oneEvent = "id: 12345678-1234-1234-1234-123456789012:10\nevent: delta\ndata: {}\n\n"
        .length;
    const gateway = new Gateway("full", many, () => ({ at: 60 + oneEvent, how: "cut" }));
    const response = await wrapped(gateway.fetch, { resumes: 1 })(URL_, ASK);
    assert.equal(await response.text(), gateway.whole);
    assert.ok(gateway.requests.length > 10, `${gateway.requests.length} requests`);
});

test("a gap that is told as an event ends it", async () => {
    const gateway = new Gateway("sse", TEXTS, first({ at: 150, how: "cut" }));
    const { fetch } = gateway;
    const gapped = async (url, init) => {
        if (init.method === "POST") return fetch(url, init);
        const headers = { "Content-Type": "text/event-stream" };
        return new Response('event: gap\ndata: {"gap":{"reason":"trimmed"}}\n\n', { headers });
    };
    const error = await failureOf(await wrapped(gapped)(URL_, ASK));
    assertNetworkError(error, /"reason":"trimmed"/);
});

// ---- aborts ----

/** Reads so many events and aborts. */
async function abortAfter(gateway, count, { options, ask = ASK, url = URL_ } = {}) {
    const abort = new AbortController();
    const { signal } = abort;
    const response = await wrapped(gateway.fetch, options)(url, { ...ask, signal });
    const reader = response.body.getReader();
    for (let n = 0; n < count; n++) await reader.read();
    abort.abort();
    const error = await reader.read().then(
        () => null,
        (reason) => reason,
    );
    await new Promise(setImmediate);
    return { error, id: response.headers.get("x-correlation-id") };
}

test("an abort is the user's stop: the generation is stopped, once", async () => {
    const gateway = new Gateway("full", TEXTS, first({ at: 150, how: "silent" }));
    const { error, id } = await abortAfter(gateway, 1);
    assert.equal(error.name, "AbortError");
    assert.deepEqual(gateway.stopped, [id]);
    const { method, url, init } = gateway.requests.at(-1);
    assert.deepEqual([method, url, init.keepalive], ["DELETE", `${URL_}/${id}`, true]);
    assert.equal(headerOf(gateway.requests.at(-1), "Authorization"), "Bearer k");
    assert.equal(init.signal, undefined);
});

test("a stop is tried again when the network is away", async () => {
    const gateway = new Gateway("full", TEXTS, (n) =>
        n === 0 ? { at: 150, how: "silent" } : n < 3 ? { refuse: true } : undefined,
    );
    const { id } = await abortAfter(gateway, 1);
    while (gateway.requests.length < 4) await new Promise(setImmediate);
    assert.deepEqual(gateway.stopped, [id]);
});

test("an abort while it waits to resume", async () => {
    const gateway = new Gateway("full", TEXTS, (n, { method }) =>
        n === 0 ? { at: 150, how: "cut" } : method === "GET" ? { refuse: true } : undefined,
    );
    const abort = new AbortController();
    const ask = wrapped(gateway.fetch, { longestWaitMs: 1e6, resumes: 1e6 });
    const response = await ask(URL_, { ...ASK, signal: abort.signal });
    const failed = failureOf(response);
    while (gateway.requests.length < 2) await new Promise(setImmediate);
    abort.abort();
    assert.equal((await failed).name, "AbortError");
    assert.equal(gateway.stopped.length, 1);
});

test("with stopOnAbort: false the reader leaves, and the generation goes on", async () => {
    const gateway = new Gateway("full", TEXTS, first({ at: 150, how: "silent" }));
    const { error } = await abortAfter(gateway, 1, { options: { stopOnAbort: false } });
    assert.equal(error.name, "AbortError");
    assert.deepEqual(gateway.stopped, []);
});

test("who only reads an answer does not stop it", async () => {
    const gateway = new Gateway("full", TEXTS, (n) =>
        n === 1 ? { at: 150, how: "silent" } : undefined,
    );
    const id = (await wrapped(gateway.fetch)(URL_, ASK)).headers.get("x-correlation-id");
    const { error } = await abortAfter(gateway, 1, { ask: {}, url: `${URL_}/${id}` });
    assert.equal(error.name, "AbortError");
    assert.deepEqual(gateway.stopped, []);
});

test("an abort behind the end stops nothing, nor does an SDK that reads no further", async () => {
    const gateway = new Gateway("full", TEXTS);
    const abort = new AbortController();
    const ask = () => wrapped(gateway.fetch)(URL_, { ...ASK, signal: abort.signal });
    await (await ask()).text();
    const reader = (await ask()).body.getReader();
    await reader.read();
    await reader.cancel();
    abort.abort();
    await new Promise(setImmediate);
    assert.deepEqual(gateway.stopped, []);
});

test("an abort before the answer is an AbortError, and not retried", async () => {
    const abort = new AbortController();
    let requests = 0;
    const fetch = (_, { signal }) => {
        requests++;
        return new Promise((_, reject) =>
            signal.addEventListener("abort", () => reject(signal.reason)),
        );
    };
    const asked = wrapped(fetch)(URL_, { ...ASK, signal: abort.signal });
    setImmediate(() => abort.abort());
    await assert.rejects(asked, { name: "AbortError" });
    assert.equal(requests, 1);
});
