// SPDX-License-Identifier: Apache-2.0
// A server with routes, its backend, and clients that read what comes through.
import assert from "node:assert/strict";
import { createHash, createHmac } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { eventsOf } from "./backend-plan.mjs";
import { startBackend } from "./backend.mjs";
import { openRaw } from "./raw.mjs";
import { freePort, startServer } from "./server.mjs";
import { SseReader } from "./sse.mjs";
import { tempFolder } from "./temp.mjs";
import { until } from "./wait.mjs";

export const SECRET = "a secret of the gateway tests";
export const PATH = "/assist/draft-graph";
export const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

// ---- tokens ----

/** A resume token as anybody makes it who has the secret. */
export function mint({ requestId, step = "DRAFTING", seq = 0, expiresAt }, secret = SECRET) {
    const claim = [requestId, step, seq, expiresAt ?? Date.now() + 60_000].join(":");
    const signature = createHmac("sha256", secret).update(claim).digest("hex");
    return Buffer.from(`${claim}:${signature}`).toString("base64url");
}

/** What a token says. */
export function unpack(token) {
    const [requestId, step, seq, expiresAt] = Buffer.from(token, "base64url").toString().split(":");
    return { requestId, step, seq: Number(seq), expiresAt: Number(expiresAt) };
}

// ---- reading ----

/** A request on a connection of its own: an SseReader, or for other answers one with .text. */
export async function open(t, server, method, path, headers = {}, body = "") {
    const raw = await openRaw(t, server);
    const all = { Host: "localhost", ...headers };
    if (method !== "GET") all["Content-Length"] = Buffer.byteLength(body);
    const lines = Object.entries(all).map(([key, value]) => `${key}: ${value}\r\n`);
    raw.send(Buffer.from(`${method} ${path} HTTP/1.1\r\n${lines.join("")}\r\n${body}`));
    const head = await raw.head();
    assert.ok(head, `no answer to ${method} ${path}`);
    const isStream = head.headers["content-type"]?.startsWith("text/event-stream");
    if (isStream && head.headers["content-length"] !== undefined)
        return new SseReader(wholeBody(raw, await raw.body(head)), head);
    const reader = new SseReader(raw, head);
    if (!isStream) {
        reader.bytes = await raw.body(head, method);
        reader.text = reader.bytes.toString();
        reader.json = () => JSON.parse(reader.text);
    }
    return reader;
}

/** A body that is there at once, in the form of a chunked one. */
function wholeBody(raw, bytes) {
    const chunks = [bytes, Buffer.alloc(0)];
    return { chunk: async () => chunks.shift(), destroy: () => raw.destroy() };
}

/** What a reader got: upstream's events have an id, ours have none. GENERATION:N is taken apart. */
export class Story {
    all = [];
    events = []; // of all, those with an id
    own = []; // of all, the others
    comments = [];

    add(next) {
        if (next.comment !== undefined) {
            this.comments.push(next.comment.trim());
            return;
        }
        const [, generation, id] = /^(?:(.*):)?(\d+)$/.exec(next.id ?? "") ?? [];
        const event = id === undefined ? next : { ...next, id, generation };
        this.all.push(event);
        (next.id === undefined ? this.own : this.events).push(event);
    }

    /** The types of our own events, in order. */
    get types() {
        return this.own.map(({ event }) => event);
    }

    /** The data of the only event of ours of this type; undefined if there is none. */
    named(type) {
        const found = this.own.filter(({ event }) => event === type);
        assert.ok(found.length <= 1, `${found.length} events of the type ${type}`);
        return found.length === 0 ? undefined : JSON.parse(found[0].data);
    }

    get token() {
        return this.named("resume")?.token;
    }

    get lastId() {
        return Number(this.events.at(-1)?.id ?? 0);
    }
}

/** Reads on until there are so many upstream events (default: to the end), into this story. */
export async function read(reader, count = Infinity, story = new Story()) {
    assert.equal(reader.status, 200, reader.text);
    while (story.events.length < count) {
        const next = await reader.next();
        if (next === null) {
            assert.ok(count === Infinity, `it ended after ${JSON.stringify(story.all.at(-1))}`);
            return story;
        }
        story.add(next);
    }
    return story;
}

/** The events first..last of a plan's answer as they have to arrive. */
export function expected(plan, first = 1, last = Infinity) {
    return [...eventsOf(plan)]
        .map((event, i) => ({ id: String(i + 1), ...event }))
        .slice(first - 1, last);
}

/** Those upstream events are the first..last of this plan, each once and in order. */
export function assertEvents(events, plan, first = 1, last = Infinity) {
    const wanted = expected(plan, first, last);
    assert.deepEqual(
        events.map(({ id }) => Number(id)),
        wanted.map(({ id }) => Number(id)),
        `the numbers of the events of ${plan.name}`,
    );
    assert.deepEqual(events.map(plain), wanted.map(plain));
}

// A type that is not given is the same as none.
const plain = ({ id, event, data }) => ({ id, event: event ?? "message", data });

// ---- the server ----

/** An array repeats its setting. */
function section(header, settings) {
    const all = Object.entries(settings).flatMap(([key, value]) => [value].flat().map((v) => [key, v]));
    return `\n[${header}]\n${all.map(([key, value]) => `${key} = ${value}\n`).join("")}`;
}

const bearerDigest = (token) => createHash("sha256").update(token).digest("hex");

class Gateway {
    #t;
    #flags;
    #options;

    constructor(t, backend, flags, options) {
        this.#t = t;
        this.#flags = flags;
        this.#options = options;
        this.backend = backend;
    }

    get base() {
        return this.server.base;
    }

    async start(env = {}) {
        const options = { ...this.#options, env: { ...this.#options.env, ...env } };
        this.server = await startServer(this.#t, this.#flags, options);
    }

    /** Ends the server by SIGTERM or SIGKILL and starts it again, with these variables besides. */
    async restart(signal, env) {
        await (signal === "SIGKILL" ? this.server.kill() : this.server.stop());
        await this.start(env);
    }

    /** A plain request: the whole answer. */
    request(method, path, options) {
        return this.server.request(method, path, options);
    }

    /** Starts a generation. */
    post(plan, headers = {}, { path = PATH, ...more } = {}) {
        const all = { "Content-Type": "application/json", ...headers };
        return open(this.#t, this.server, "POST", path, all, JSON.stringify({ ...more, plan }));
    }

    resume(token, headers = {}, { path = PATH, query = "" } = {}) {
        const all = token === undefined ? headers : { "X-Resume-Token": token, ...headers };
        return open(this.#t, this.server, "POST", `${path}/resume${query}`, all);
    }

    get(requestId, headers = {}, { path = PATH, query = "" } = {}) {
        return open(this.#t, this.server, "GET", `${path}/${requestId}${query}`, headers);
    }

    stop(requestId, path = PATH) {
        return this.request("POST", `${path}/${requestId}/stop`);
    }

    /** Waits until no generation is under way. */
    idle() {
        const under = "tidemark_gateway_generations";
        return until(async () => (await this.metric(under)) === 0, "the generations to end");
    }

    /** The sum of a metric's samples; undefined if there is no such metric. */
    async metric(name) {
        const { text } = await this.request("GET", "/metrics");
        const samples = text
            .split("\n")
            .filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))
            .map((line) => Number(line.slice(line.lastIndexOf(" ") + 1)));
        return samples.length === 0 ? undefined : samples.reduce((sum, value) => sum + value, 0);
    }
}

/**
 * Starts a backend, and a server whose routes lead to it.
 *   route     settings of the route PATH
 *   routes    of others: path -> settings
 *   callers   name -> { token, and settings }
 *   anonymous settings of [anonymous]
 *   sections  others, as text
 *   disk      on the embedded store
 *   flags, env of the server
 *   backend   this one instead of its own
 */
export async function startGateway(t, options = {}) {
    const { route = {}, routes = {}, callers = {}, disk = false, flags = [], env = {} } = options;
    const backend = options.backend ?? (await startBackend(t));
    const folder = await tempFolder(t);
    const file = join(folder, "tidemark.ini");
    let text = "";
    for (const [path, settings] of Object.entries({ [PATH]: route, ...routes }))
        text += section(`route ${path}`, { upstream: backend.url(), ...settings });
    for (const [name, { token, ...settings }] of Object.entries(callers))
        text += section(`caller ${name}`, { "token-sha256": bearerDigest(token), ...settings });
    if (options.anonymous) text += section("anonymous", options.anonymous);
    text += options.sections ?? "";
    await writeFile(file, text);
    const gateway = new Gateway(t, backend, ["--config", file, ...flags], {
        port: await freePort(),
        data: disk ? join(folder, "data") : undefined,
        env: { SSE_RESUME_SECRET: SECRET, ...env },
    });
    await gateway.start();
    return gateway;
}
