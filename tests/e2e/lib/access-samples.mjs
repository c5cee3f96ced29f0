// SPDX-License-Identifier: Apache-2.0
// For every rule of `tidemark access rules` a request that comes under it. A new rule needs a line
// in SAMPLES: (site, row) => { path, headers, body, also, expect, ... }, made anew for each request.
// A rule for every method is tried with METHODS.
//
//   also      lines of grants that the request needs beside the rule's own verb
//   expect    statuses of a success, if others than 200 to 204 are fine, too
//   secret    a text that only those may see who are granted it. A rule that is decided `later` may
//             answer others with a success that does not have it
//   hidden    statuses that others are answered with as if it was not there
//   stays     ... and then this is still there
//   proof     headers that only those have who are let in
//   ticket    the request's Authorization, where the surface has tickets of its own
//   foreign   such a ticket of somebody else
//   known     an open server does not show it either, to nobody in particular
import { once } from "node:events";
import { createServer } from "node:http";
import { toBinary } from "@bufbuild/protobuf";
import { defer } from "./defer.mjs";
import { Session } from "./session.mjs";
import { AISERVER, TIDEMARK } from "./session-schema.mjs";
import { envelope, hex } from "./session-wire.mjs";
import { until } from "./wait.mjs";

export const METHODS = ["PUT", "PROPFIND"];
export const SECRET = "only-mine-has-this";
// Of sessions, one for each service.
const KEYS = ["6f1c2a52-9c0e-4b5e-8a54-1f0d3c2b4a59", "b7d0f6b1-5a0c-4d55-9d3e-0a8c7d1e2f30"];
const JSON_TYPE = { "content-type": "application/json" };
const CONNECT = { "content-type": "application/connect+proto", "connect-protocol-version": "1" };
const PROTO = { "content-type": "application/proto" };

let last = 0;
const fresh = (word) => `${word}-${++last}`;

/** Names of each kind, as patterns of grants: those of the tenant, and those of another one. */
export const MINE = {
    stream: "mine/**",
    route: "route:/mine route:/mine-chat route:/mine-responses route:/mine-any/** route:/v1/chat/completions route:/v1/models",
    session: KEYS.map((key) => `session:${key}`).join(" "),
    tool: "tool:mine",
    log: "log:mine",
    lab: "lab",
    server: "server",
};
export const OTHERS = {
    stream: "other/**",
    route: "route:/other",
    session: "session:other",
    tool: "tool:other",
    log: "log:other",
};

// ---- streams ----

async function streamOf(site, more = {}) {
    const name = `mine/${fresh("s")}`;
    await site.set("PUT", `/v1/stream/${name}`, { headers: JSON_TYPE, body: `["${SECRET}"]`, ...more });
    return `/v1/stream/${name}`;
}

const put = (headers, body) => () => ({
    path: `/v1/stream/mine/${fresh("s")}`,
    headers: { ...JSON_TYPE, ...headers },
    body,
    also: ["create mine/**"],
});

const streams = {
    "stream.list": async (site) => {
        await streamOf(site);
        return { path: "/v1/stream/?prefix=mine/", secret: "mine/s-" };
    },
    "stream.read": async (site) => ({ path: await streamOf(site) }),
    "stream.create": put({}),
    "stream.create.append": put({}, '["x"]'),
    "stream.create.close": put({ "stream-closed": "true" }),
    "stream.fork": async (site) => {
        const source = await streamOf(site);
        return put({ "stream-forked-from": source })();
    },
    "stream.append": async (site) => ({
        path: await streamOf(site),
        headers: JSON_TYPE,
        body: '["x"]',
    }),
    "stream.close": async (site) => ({
        path: await streamOf(site),
        headers: { "stream-closed": "true" },
    }),
    "stream.delete": async (site) => ({ path: await streamOf(site) }),
};

// ---- subscriptions ----

const SUBSCRIPTIONS = "/v1/stream/__ds/subscriptions/";
const pull = (pattern) =>
    JSON.stringify({ type: "pull-wake", pattern, wake_stream: "mine/wakes" });
const body = (value) => ({ headers: JSON_TYPE, body: JSON.stringify(value) });

/** One with something pending: { path, stream }. */
async function subscription(site) {
    const path = SUBSCRIPTIONS + fresh("sub");
    const stream = `mine/${fresh("topic")}`;
    await site.set("PUT", path, { headers: JSON_TYPE, body: pull(stream) });
    await site.set("PUT", `/v1/stream/${stream}`, { headers: JSON_TYPE, body: '["x"]' });
    return { path, stream };
}

const onSubscription = (make) => async (site) => {
    const { path, stream } = await subscription(site);
    return { expect: [200, 201, 204], also: ["append mine/wakes"], ...make(path, stream) };
};

/** What a worker does with the wake that it has claimed. */
const withWake = (what, more = {}) => async (site) => {
    const claims = [];
    for (let i = 0; i < 2; i++) {
        const { path } = await subscription(site);
        const worker = { headers: JSON_TYPE, body: JSON.stringify({ worker: "w" }) };
        claims.push({ path, ...(await site.set("POST", `${path}/claim`, worker)) });
    }
    const [{ path, wake_id, generation, token }, another] = claims;
    const sent = body({ wake_id, generation, ...more });
    return { path: `${path}/${what}`, ...sent, ticket: token, foreign: another.token };
};

/** What a webhook's receiver does. */
async function callback(site) {
    const hooks = [];
    for (let i = 0; i < 2; i++) {
        const path = SUBSCRIPTIONS + fresh("hook");
        const stream = `mine/${fresh("topic")}`;
        const url = `${site.receiver.url}${path}`;
        const made = body({ type: "webhook", pattern: stream, webhook: { url } });
        await site.set("PUT", path, made);
        await site.set("PUT", `/v1/stream/${stream}`, { headers: JSON_TYPE, body: '["x"]' });
        hooks.push({ path, ...(await site.receiver.got(path)) });
    }
    const [{ path, wake_id, generation, callback_token }, another] = hooks;
    const sent = body({ wake_id, generation, done: true });
    return {
        path: `${path}/callback`,
        ...sent,
        ticket: callback_token,
        foreign: another.callback_token,
    };
}

const subscriptions = {
    "subscription.create": () => ({
        path: SUBSCRIPTIONS + fresh("sub"),
        headers: JSON_TYPE,
        body: pull("mine/x"),
        also: ["append mine/wakes"],
    }),
    "subscription.show": onSubscription((path) => ({ path, secret: "mine/topic" })),
    // To others there is none of that id, and none is what they have afterwards, too.
    "subscription.delete": onSubscription((path) => ({ path, hidden: [204], stays: path })),
    "subscription.link": onSubscription((path) => ({
        path: `${path}/streams`,
        ...body({ streams: ["mine/another"] }),
    })),
    "subscription.unlink": onSubscription((path, stream) => ({ path: `${path}/streams/${stream}` })),
    "subscription.claim": onSubscription((path) => ({
        path: `${path}/claim`,
        ...body({ worker: "w" }),
    })),
    "subscription.callback": callback,
    "subscription.ack": withWake("ack", { done: true }),
    "subscription.release": withWake("release"),
    "subscription.keys": () => ({ path: "/v1/stream/__ds/jwks.json" }),
};

/** Where webhooks go: it takes each wake and remembers the last one by its path. */
export async function startReceiver(t) {
    const wakes = new Map();
    const server = createServer((request, response) => {
        let text = "";
        request.setEncoding("utf8").on("data", (more) => (text += more));
        request.on("end", () => {
            wakes.set(request.url, JSON.parse(text));
            response.end("{}");
        });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    defer(t, () => server.close());
    return {
        url: `http://127.0.0.1:${server.address().port}`,
        got: (path) => until(() => wakes.get(path), `a webhook for ${path}`),
    };
}

// ---- routes ----

/** Where the row's route is: one of the settings, or that of Cascade. */
const routeOf = (row, path = "/mine") => row.surface ?? path;
const asked = (row, text = "ping") => ({
    headers: JSON_TYPE,
    body: JSON.stringify({
        id: fresh("chat"),
        model: "claude-opus-4-7-medium",
        stream: true,
        messages: [{ role: "user", content: text }],
    }),
});

/** A generation of whoever is to ask for it: { id, token, chat }. */
async function generation(site, row, path) {
    const request = asked(row);
    const { headers } = await site.begin(row, "POST", path, request);
    const id = headers["x-correlation-id"];
    return { id, token: headers["x-resume-token"], chat: JSON.parse(request.body).id };
}

const GENERATES = [
    "generate route:/mine route:/mine-chat route:/mine-responses route:/mine-any/** " +
        "route:/v1/chat/completions",
];

const READS = [200, 405]; // there is no HEAD of these

const ofGeneration = (make, dialectPath) => async (site, row) => {
    const path = routeOf(row, dialectPath);
    const made = await generation(site, row, path);
    return { also: GENERATES, ...make(path, made) };
};

// One that is not there, where the backend has no responses: the rule is asked first.
const responseOf = (id = "0".repeat(32)) => `resp_${id.replaceAll("-", "")}`;

const routes = {
    "route.generate": (site, row) => ({ path: routeOf(row), ...asked(row) }),
    "route.resume": ofGeneration((path, { token }) => ({
        path: `${path}/resume`,
        headers: { "x-resume-token": token },
    })),
    "route.continue": ofGeneration((path, { id }) => ({
        path,
        headers: { "last-event-id": `${id}:0` },
        expect: READS,
    })),
    "route.read": ofGeneration((path, { id }) => ({ path: `${path}/${id}`, expect: READS })),
    // Only those of the AI SDK have chats: elsewhere there is none of that name.
    "route.chat": ofGeneration(
        (path, { chat }) => ({ path: `${path}/${chat}/stream`, expect: [...READS, 204, 404] }),
        "/mine-chat",
    ),
    "route.stop": ofGeneration((path, { id }) => ({ path: `${path}/${id}/stop` })),
    "route.delete": ofGeneration((path, { id }) => ({ path: `${path}/${id}` })),
    "route.chat.stop": ofGeneration(
        (path, { chat }) => ({ path: `${path}/${chat}/stream`, expect: [200, 202, 204, 404] }),
        "/mine-chat",
    ),
    // Only routes of the Responses API have responses.
    "route.response.cancel": ofGeneration(
        (path, { id }) => ({ path: `${path}/${responseOf(id)}/cancel`, expect: [200, 404] }),
        "/mine-responses",
    ),
    "route.response.input": ofGeneration(
        (path, { id }) => ({ path: `${path}/${responseOf(id)}/input_items`, expect: [...READS, 404] }),
        "/mine-responses",
    ),
    "prefix.generate": (site, row) => ({ path: "/mine-any/x", ...asked(row), secret: SECRET }),
    "prefix.root.generate": (site, row) => ({ path: "/mine-any", ...asked(row), secret: SECRET }),
    "prefix.call": () => ({ path: "/mine-any/x" }),
    "prefix.root.call": () => ({ path: "/mine-any" }),
    "prefix.continue": ofGeneration(
        (path, { id }) => ({ path, headers: { "last-event-id": `${id}:0` }, secret: SECRET }),
        "/mine-any/go",
    ),
    "prefix.root.continue": ofGeneration(
        (path, { id }) => ({ path, headers: { "last-event-id": `${id}:0` }, secret: SECRET }),
        "/mine-any",
    ),
    // To who may not have it, it is the upstream's, which has something else there.
    "prefix.read": ofGeneration(
        (path, { id }) => ({ path: `${path}/${id}`, expect: READS, secret: SECRET }),
        "/mine-any/go",
    ),
    "prefix.stop": ofGeneration(
        (path, { id }) => ({ path: `${path}/${id}/stop`, secret: '"request_id"' }),
        "/mine-any/go",
    ),
    "prefix.delete": ofGeneration(
        (path, { id }) => ({ path: `${path}/${id}`, secret: '"request_id"' }),
        "/mine-any/go",
    ),
    "prefix.other": () => ({ path: "/mine-any/0b9f6a3e-51f4-4bd6-9a0c-3c8a44f2e0d1" }),
    "cascade.models": () => ({ path: "/v1/models", expect: READS }),
    "cascade.model": () => ({ path: "/v1/models/claude-opus-4-7-medium", expect: READS }),
};

/** An upstream that streams the secret to whoever POSTs, and has something at every path. */
export async function startAny(t) {
    const server = createServer((request, response) => {
        const posted = request.method === "POST";
        const type = posted ? "text/event-stream" : "application/json";
        request.resume().on("end", () => {
            response.writeHead(200, { "content-type": type });
            response.end(posted ? `data: {"choices":[],"text":"${SECRET}"}\n\n` : '{"here":true}');
        });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    defer(t, () => {
        server.closeAllConnections();
        server.close();
    });
    return `http://127.0.0.1:${server.address().port}`;
}

// ---- sessions ----

const secretKey = Buffer.alloc(32, 9);
const sessionOf = (service) =>
    new Session(service, { key: KEYS[service === AISERVER ? 0 : 1], secret: secretKey });
const requestId = (id) => Buffer.concat([Buffer.from([0x0a, id.length]), Buffer.from(id)]);

const pollOf = (id) =>
    Buffer.concat([Buffer.from([0x0a, id.length + 2]), requestId(id), hex("1001")]);

const bidi = (service) => () => {
    const session = sessionOf(service);
    const chunk = toBinary(service.Request, session.chunk(0, "hello"));
    return {
        path: service.path("bidi"),
        headers: { ...CONNECT, ...session.headers() },
        body: Buffer.concat([envelope(chunk), envelope(hex("1a 00"))]),
    };
};
const sse =
    (service, id = fresh("rid")) =>
    () => ({
        path: service.path("sse"),
        headers: { ...CONNECT, ...sessionOf(service).headers() },
        body: envelope(requestId(id)),
    });
const poll = (service) => () => ({
    path: service.path("poll"),
    headers: { ...CONNECT, ...sessionOf(service).headers() },
    body: envelope(pollOf(fresh("rid"))),
});
/** Somebody has to listen for its answers. */
const append = (service) => async (site, row) => {
    const id = fresh("rid");
    const { path, ...request } = sse(service, id)();
    await site.begin(row, "POST", path, { ...request, keep: true });
    return {
        path: service.path("append"),
        headers: { ...PROTO, ...sessionOf(service).headers() },
        body: Buffer.concat([
            hex("0a083061303032383030 12"),
            Buffer.from([id.length + 2]),
            requestId(id),
        ]),
    };
};

const sessions = {
    "chat.stream": bidi(AISERVER),
    "chat.sse": sse(AISERVER),
    "chat.poll": poll(AISERVER),
    "bidi.append": append(AISERVER),
    "session.stream": bidi(TIDEMARK),
    "session.sse": sse(TIDEMARK),
    "session.poll": poll(TIDEMARK),
    "session.append": append(TIDEMARK),
    "session.list": () => ({ path: "/v1/session/", known: true }),
    // Who works for it may look at it, too.
    "session.show": () => ({
        path: `/v1/session/${KEYS[0]}`,
        expect: [200, 404],
        instead: { kind: "session", verb: "work" },
    }),
};

// ---- tools, logs, the Lab, the server ----

const METADATA = "/.well-known/oauth-protected-resource";
const runsMine = { tool_id: "mine", args: {} };

const others = {
    "tool.run": () => ({ path: "/atd/v1/run_tool", ...body(runsMine), secret: SECRET }),
    // There is no such cursor; whoever may call the tool is told that.
    "tool.continue": () => ({
        path: "/atd/v1/run_tool_continue",
        ...body({ tool_id: "mine", cursor: "none" }),
        expect: [200, 400, 404, 410],
    }),
    "tool.list": () => ({ path: "/atd/v1/tools", secret: '"mine"' }),
    "mcp.message": () => ({
        path: "/mcp",
        headers: { ...JSON_TYPE, accept: "application/json, text/event-stream" },
        body: JSON.stringify({
            jsonrpc: "2.0",
            id: 1,
            method: "tools/call",
            params: { name: "mine", arguments: {} },
        }),
        secret: SECRET,
    }),
    "mcp.metadata": () => ({ path: METADATA, known: true }),
    "mcp.metadata.path": () => ({ path: `${METADATA}/mcp`, known: true }),
    "log.read": () => ({ path: "/v1/log/mine" }),
    "log.append": () => ({ path: "/v1/log/mine", ...body({ a: 1 }) }),
    "lab.page": () => ({ path: "/lab" }),
    "lab.page.file": () => ({ path: "/lab/none", expect: [200, 404] }),
    // It has its own tokens against forged writes, which stand behind what is granted.
    "lab.api": async (site) => ({
        path: "/api/runs/none",
        headers: { "x-cm-lab-token": (await site.set("GET", "/api/config")).token },
        expect: [200, 404, 405],
    }),
    // The page's token, which whoever may use the Lab has from /api/config, is what it is decided by.
    "lab.post": async (site) => ({
        path: "/api/feedback",
        ...body({}),
        proof: { "x-cm-lab-token": (await site.set("GET", "/api/config")).token },
        expect: [200, 400],
    }),
    "access.mint": () => ({
        path: "/v1/access/grants",
        ...body({ actions: ["read"], on: ["mine/a"], expires_in: 60 }),
        also: ["read mine/**"],
        known: true,
    }),
    "access.revoke": () => ({
        path: "/v1/access/revocations",
        ...body({ jti: fresh("jti") }),
        known: true,
    }),
    "access.revoked": () => ({ path: "/v1/access/revocations", known: true }),
    "access.erase": () => ({ path: `/v1/access/roots/mine/${fresh("gone")}/`, known: true }),
    "server.metrics": () => ({ path: "/metrics" }),
    "server.live": () => ({ path: "/healthz" }),
    "server.ready": () => ({ path: "/readyz" }),
};

export const SAMPLES = { ...streams, ...subscriptions, ...routes, ...sessions, ...others };
