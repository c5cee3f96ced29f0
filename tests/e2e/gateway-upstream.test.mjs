// SPDX-License-Identifier: Apache-2.0
// Upstreams that fail before their first event: clients get a status that their own retries know,
// in the form of their protocol, and whoever runs the server is told.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { AbstractChat, DefaultChatTransport } from "ai";
import OpenAI from "openai";
import { defer } from "./lib/defer.mjs";
import { read, startGateway, UUID } from "./lib/gateway.mjs";
import { freePort } from "./lib/server.mjs";
import { until, within } from "./lib/wait.mjs";

const OPENAI = "/openai/chat/completions";
const CHAT = "/api/chat";
const QUICK = { "first-byte-timeout": "300ms", "idle-timeout": "300ms" };
const question = { model: "m", messages: [{ role: "user", content: "go" }] };

// ---- upstreams ----

const chunk = (delta, finish_reason = null) =>
    `data: ${JSON.stringify({
        id: "c",
        object: "chat.completion.chunk",
        created: 1,
        model: "m",
        choices: [{ index: 0, delta, finish_reason }],
    })}\n\n`;

// What an upstream may do with a request.
const begin = (res) => {
    res.writeHead(200, { "content-type": "text/event-stream" });
    res.flushHeaders();
};
const answer = (req, res, body) => {
    if (JSON.parse(body).stream === false) {
        const message = { role: "assistant", content: "well" };
        res.setHeader("content-type", "application/json");
        res.end(JSON.stringify({ id: "c", object: "chat.completion", choices: [{ message }] }));
        return;
    }
    begin(res);
    res.end(`${chunk({ content: "well" })}${chunk({}, "stop")}data: [DONE]\n\n`);
};
const hangUp = (req) => req.socket.destroy();
const silent = () => {};
const cut = (req, res) => {
    begin(res);
    setTimeout(() => req.socket.destroy(), 20);
};
const mute = (req, res) => begin(res);

/** Answers the nth request as the nth of these says, and all later ones as the last. */
async function startUpstream(t, ...acts) {
    const upstream = { asked: 0, acts };
    const server = createServer((req, res) => {
        const act = upstream.acts[Math.min(upstream.asked, upstream.acts.length - 1)];
        let body = "";
        upstream.asked++;
        req.on("data", (data) => (body += data)).on("end", () => act(req, res, body));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    defer(t, () => {
        server.closeAllConnections();
        server.close();
    });
    upstream.url = (path = "/") => `http://127.0.0.1:${server.address().port}${path}`;
    return upstream;
}

const startRoutes = (t, backend, settings = {}, options = {}) =>
    startGateway(t, {
        backend,
        route: settings,
        routes: {
            [OPENAI]: { dialect: "openai", ...settings },
            [CHAT]: { dialect: "ui-message", ...settings },
        },
        ...options,
    });

const clientAt = (base, options = {}) =>
    new OpenAI({ apiKey: "k", baseURL: `${base}/openai`, ...options });

const post = (base, path, body, headers = {}) =>
    fetch(`${base}${path}`, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify(body),
    });

/** The body of an error as OpenAI's clients know it. */
async function assertOpenaiError(response, status, code, type) {
    const text = await response.text();
    assert.equal(response.status, status, text);
    assert.match(response.headers.get("content-type"), /^application\/json/);
    const { error, ...rest } = JSON.parse(text);
    assert.deepEqual(rest, {});
    const { details, ...members } = error;
    assert.deepEqual(Object.keys(members), ["message", "type", "param", "code"]);
    assert.equal(typeof error.message, "string");
    assert.deepEqual([error.type, error.param, error.code], [type, null, code]);
    return error;
}

// ---- what clients see ----

const FAILURES = {
    "hangs up": [502, true, hangUp],
    "never begins": [504, false, silent],
    "breaks off behind its head": [502, false, cut],
    "falls silent behind its head": [504, true, mute],
};
for (const [what, [status, stream, act]] of Object.entries(FAILURES))
    test(`npm openai retries an upstream that ${what}, and then says so`, async (t) => {
        const upstream = await startUpstream(t, act);
        const { base } = await startRoutes(t, upstream, QUICK);
        const code = status === 504 ? "UPSTREAM_TIMEOUT" : "UPSTREAM_ERROR";
        const asking = clientAt(base).chat.completions.create({ ...question, stream });
        const error = await within(assertRejected(asking), "the client to give up");
        assert.ok(error instanceof OpenAI.APIError, String(error));
        assert.deepEqual([error.status, error.code], [status, code]);
        assert.equal(error.type, "upstream_error");
        assert.equal(upstream.asked, 3, "the client's own two retries");
        for (const stream of [true, false])
            await assertOpenaiError(
                await post(base, OPENAI, { ...question, stream }),
                status,
                code,
                "upstream_error",
            );
    });

const assertRejected = (promise) =>
    promise.then(
        (value) => assert.fail(`it resolved with ${JSON.stringify(value)}`),
        (error) => error,
    );

test("an upstream that is not there, or speaks no TLS", async (t) => {
    const upstream = await startUpstream(t, answer);
    for (const [reason, url] of [
        ["refused", `http://127.0.0.1:${await freePort()}/`],
        ["tls", upstream.url().replace("http:", "https:")],
    ]) {
        const backend = { url: () => url };
        const gateway = await startRoutes(t, backend, QUICK, { flags: ["--trace", "json"] });
        const { base, server } = gateway;
        const asking = clientAt(base, { maxRetries: 0 }).chat.completions.create(question);
        const error = await assertRejected(asking);
        assert.equal(error.status, 502);
        const plain = await post(base, CHAT, { id: "c", messages: [] });
        assert.equal(plain.status, 502);
        const { schema, code } = await plain.json();
        assert.deepEqual({ schema, code }, { schema: "error.v1", code: "UPSTREAM_ERROR" });

        const { text } = await gateway.request("GET", "/metrics");
        const series = `tidemark_upstream_errors_total{route="${OPENAI}",reason="${reason}"} 1`;
        assert.ok(text.includes(`\n${series}\n`), text);
        assert.equal(await gateway.metric("tidemark_gateway_generations"), 0);
        assert.match(text, /^tidemark_responses_total\{class="5xx"\} 2$/m);
        const lines = server.stderr.trim().split("\n").map((line) => JSON.parse(line));
        const told = lines.filter(({ kind }) => kind === "upstream_failed");
        assert.deepEqual(told.map(({ level, route }) => [level, route]), [
            ["warn", OPENAI],
            ["warn", CHAT],
        ]);
        assert.equal(told[0].reason, reason);
        assert.match(told[0].request_id, UUID);
    }
});

test("an upstream that is back at the second try", async (t) => {
    const upstream = await startUpstream(t, hangUp, answer);
    const { base } = await startRoutes(t, upstream, QUICK);
    for (const stream of [true, false]) {
        upstream.asked = 0;
        const client = clientAt(base);
        const got = await client.chat.completions.create({ ...question, stream });
        let text = "";
        if (stream) for await (const { choices } of got) text += choices[0].delta.content ?? "";
        else text = got.choices[0].message.content;
        assert.equal(text, "well");
        assert.equal(upstream.asked, 2);
    }
});

test("an upstream's own error passes, whatever it says", async (t) => {
    const busy = (req, res) => {
        res.writeHead(429, { "content-type": "application/json", "retry-after": "0" });
        res.end('{"error":{"message":"slow down","type":"x","param":null,"code":"y"}}');
    };
    const upstream = await startUpstream(t, busy, busy, answer);
    const { base } = await startRoutes(t, upstream, QUICK);
    const got = await clientAt(base).chat.completions.create({ ...question, stream: false });
    assert.equal(got.choices[0].message.content, "well");
    upstream.asked = 0;
    const error = await assertRejected(
        clientAt(base, { maxRetries: 0 }).chat.completions.create(question),
    );
    assert.deepEqual([error.status, error.code], [429, "y"]);
});

test("after a heartbeat without an event the answer begins, and fails in the stream", async (t) => {
    const upstream = await startUpstream(t, mute);
    const settings = { "idle-timeout": "1s" };
    const flags = ["--heartbeat", "100ms"];
    const { base } = await startRoutes(t, upstream, settings, { flags });
    const client = clientAt(base);
    const { data, response } = await client.chat.completions
        .create({ ...question, stream: true })
        .withResponse();
    assert.equal(response.status, 200);
    assert.match(response.headers.get("x-correlation-id"), UUID);
    assert.ok(response.headers.get("x-resume-token"));
    const error = await assertRejected(
        (async () => {
            for await (const { choices } of data) assert.equal(choices.length, 0);
        })(),
    );
    assert.ok(error instanceof OpenAI.APIError, String(error));
    assert.equal(error.code, "UPSTREAM_ERROR");
    assert.equal(upstream.asked, 1, "a body that has begun is not retried");
});

// ---- keys ----

for (const disk of [false, true])
    test(`one key asks once with success (${disk ? "embedded" : "memory"})`, async (t) => {
        const upstream = await startUpstream(t, hangUp, hangUp, answer);
        const { base } = await startRoutes(t, upstream, QUICK, { disk });
        const headers = { "Idempotency-Key": "k-1" };
        const ask = (options) =>
            clientAt(base, options).chat.completions.create({ ...question, stream: true }, { headers });
        for (let i = 0; i < 2; i++) {
            let text = "";
            for await (const { choices } of await ask()) text += choices[0].delta.content ?? "";
            assert.equal(text, "well");
            assert.equal(upstream.asked, 3, "two failures, and one answer for all");
        }
    });

test("whoever waits with the same key gets the same status, and the next one asks anew", async (t) => {
    let hang;
    const held = new Promise((resolve) => (hang = resolve));
    const upstream = await startUpstream(t, (req) => held.then(() => hangUp(req)), answer);
    const gateway = await startRoutes(t, upstream);
    const headers = { "Idempotency-Key": "k-2" };
    const ask = () => post(gateway.base, OPENAI, { ...question, stream: true }, headers);
    const first = ask();
    await until(() => upstream.asked === 1, "the upstream to be asked");
    const others = [ask(), ask()];
    await until(async () => (await openRequests(gateway)) >= 3, "the others to wait");
    hang();
    for (const response of await Promise.all([first, ...others]))
        await assertOpenaiError(response, 502, "UPSTREAM_ERROR", "upstream_error");
    assert.equal(upstream.asked, 1);
    const again = await ask();
    assert.equal(again.status, 200);
    assert.match(await again.text(), /well/);
    assert.equal(upstream.asked, 2);
});

const openRequests = (gateway) => gateway.metric("tidemark_connections");

test("an answer that passes is for who asked: those who waited with its key ask themselves", async (t) => {
    let go;
    const held = new Promise((resolve) => (go = resolve));
    const upstream = await startUpstream(t, (req, res, body) => held.then(() => answer(req, res, body)));
    const gateway = await startRoutes(t, upstream);
    const headers = { "Idempotency-Key": "k-3" };
    const ask = () => post(gateway.base, OPENAI, { ...question, stream: false }, headers);
    const first = ask();
    await until(() => upstream.asked === 1, "the upstream to be asked");
    const others = [ask(), ask()];
    await until(async () => (await openRequests(gateway)) >= 3, "the others to wait");
    go();
    for (const response of await Promise.all([first, ...others])) {
        assert.equal(response.status, 200);
        assert.equal((await response.json()).choices[0].message.content, "well");
    }
    assert.ok(upstream.asked >= 1 && upstream.asked <= 3, `asked ${upstream.asked}`);
});

// ---- npm ai ----

class Chat extends AbstractChat {
    constructor(id, api) {
        const state = {
            status: "ready",
            error: undefined,
            messages: [],
            pushMessage: (message) => state.messages.push(message),
            popMessage: () => state.messages.pop(),
            replaceMessage: (index, message) => (state.messages[index] = message),
            snapshot: (thing) => structuredClone(thing),
        };
        super({ id, transport: new DefaultChatTransport({ api }), state });
    }
}

test("npm ai: the chat fails, and so does a page that came back to it meanwhile", async (t) => {
    let hang;
    const held = new Promise((resolve) => (hang = resolve));
    const upstream = await startUpstream(t, (req) => held.then(() => hangUp(req)));
    const gateway = await startRoutes(t, upstream);
    const api = `${gateway.base}${CHAT}`;
    const chat = new Chat("c-1", api);
    const sending = chat.sendMessage({ text: "go" });
    await until(() => upstream.asked === 1, "the upstream to be asked");
    const other = new Chat("c-1", api);
    const coming = other.resumeStream();
    await until(async () => (await openRequests(gateway)) >= 2, "the other page to wait");
    hang();
    await Promise.all([sending, coming]);
    for (const { status, error } of [chat, other]) {
        assert.equal(status, "error");
        assert.match(error.message, /UPSTREAM_ERROR/);
    }
    assert.equal((await fetch(`${api}/c-1/stream`)).status, 204, "nothing is under way any more");
});

// ---- all errors of a route have its form ----

test("every refusal of an openai route has OpenAI's form", async (t) => {
    const upstream = await startUpstream(t, answer);
    const settings = { "requests-per-minute": "100", "max-body": "1k", parallel: "1" };
    const { base } = await startRoutes(t, upstream, settings);
    const invalid = "invalid_request_error";
    const key = (value) => ({ "Idempotency-Key": value });
    const send = (body, headers, path = OPENAI) => post(base, path, body, headers);
    await assertOpenaiError(await send({ pad: "x".repeat(2000) }), 413, "TOO_LARGE", invalid);
    await assertOpenaiError(await send(question, key("k".repeat(300))), 400, "BAD_INPUT", invalid);
    assert.equal((await send(question, key("a"))).status, 200);
    await assertOpenaiError(await send({ other: 1 }, key("a")), 422, "KEY_REUSED", invalid);
    const at = (path, method = "GET") => fetch(`${base}${OPENAI}${path}`, { method });
    await assertOpenaiError(await at(""), 405, "METHOD", invalid);
    await assertOpenaiError(await at("/nothing"), 404, "NO_ROUTE", invalid);
    await assertOpenaiError(await at(`/${crypto.randomUUID()}`), 404, "NOT_FOUND", invalid);
    await assertOpenaiError(await at("/resume", "POST"), 400, "BAD_INPUT", invalid);
    const bad = await send({}, { "X-Resume-Token": "no" }, `${OPENAI}/resume`);
    await assertOpenaiError(bad, 401, "UNAUTHENTICATED", "authentication_error");

    upstream.acts = [mute];
    const leaving = new AbortController();
    const held = fetch(`${base}${OPENAI}`, { method: "POST", body: "{}", signal: leaving.signal });
    held.catch(() => {});
    const asked = upstream.asked;
    await until(() => upstream.asked > asked, "one to be under way");
    const many = await assertOpenaiError(await send({}), 429, "RATE_LIMITED", "rate_limit_error");
    assert.equal(many.details.retry_after_seconds, 1);
    leaving.abort();
});

test("plain SSE: the error has the form that the route's errors have", async (t) => {
    const upstream = await startUpstream(t, hangUp, answer);
    const gateway = await startRoutes(t, upstream);
    const refused = await gateway.post({});
    assert.equal(refused.status, 502, refused.text);
    assert.match(refused.headers["x-correlation-id"], UUID);
    assert.deepEqual(Object.keys(refused.json()), ["schema", "code", "message"]);
    assert.equal((await read(await gateway.post({}))).events.length, 3);
});
