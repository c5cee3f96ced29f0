// SPDX-License-Identifier: Apache-2.0
// A backend of sessions: an HTTP server that answers each chunk as the chunk itself asks for.
//
// A chunk's text is a plan in JSON:
//   name      is in the text of every event: "NAME-1", "NAME-2", ..
//   events    how many there are (default 1)
//   ids       whether they carry ids (default true): "e1", "e2", ..
//   refuse    statuses of the first attempts, e.g. [503, 503]
//   cuts      the first attempts are cut after so many events, e.g. [2]
//   hang      after so many events nothing more comes
//   error     after all events one of the type `error`, with this text
//   answer    { status, type, body }: this instead of events (body: text, or base64 if `binary`)
//   pause     milliseconds before each event (default 0)
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { fromBinary } from "@bufbuild/protobuf";
import { defer } from "./defer.mjs";
import { AISERVER } from "./session-schema.mjs";
import { until } from "./wait.mjs";

/** The text of what was posted: a message of the editor's, or the text itself. */
function textOf(type, body) {
    if (type !== "application/proto") return body.toString();
    const { request } = fromBinary(AISERVER.ClientChunk, body);
    return request.value.conversation.at(-1).text;
}

async function bodyOf(request) {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    return Buffer.concat(pieces);
}

class Upstream {
    requests = []; // { key, text, plan, lastEventId, headers, attempt, sent, complete, closed }
    #attempts = new Map(); // by key
    #listener;
    #decide;

    /** decide(plan, seen, attempt): a plan for this request instead of the chunk's own. */
    constructor(decide) {
        this.#decide = decide;
        this.#listener = createServer((request, response) => {
            this.#serve(request, response).catch(() => response.destroy());
        });
    }

    async start(t) {
        this.#listener.listen(0, "127.0.0.1");
        await once(this.#listener, "listening");
        this.url = `http://127.0.0.1:${this.#listener.address().port}/answer`;
        defer(t, () => {
            this.#listener.close();
            this.#listener.closeAllConnections();
        });
    }

    /** The requests about one session, oldest first. */
    of(session) {
        return this.requests.filter(({ key }) => key?.startsWith(`${session.key}/`));
    }

    /** Waits for the n-th request (from 0) about a session. */
    seen(session, n) {
        return until(() => this.of(session)[n], `request ${n} at the backend`);
    }

    async #serve(request, response) {
        const { headers, method } = request;
        const seen = { key: headers["idempotency-key"], method, headers, sent: 0 };
        seen.lastEventId = headers["last-event-id"];
        seen.complete = false;
        seen.closed = false; // by the peer, before the end
        response.on("close", () => (seen.closed = !response.writableFinished));
        seen.body = await bodyOf(request);
        seen.text = textOf(headers["content-type"], seen.body);
        this.requests.push(seen);
        const attempt = this.#attempts.get(seen.key) ?? 0;
        this.#attempts.set(seen.key, attempt + 1);
        seen.attempt = attempt;
        seen.plan = this.#decide(JSON.parse(seen.text), seen, attempt);
        await this.#answer(seen, attempt, response);
    }

    async #answer(seen, attempt, response) {
        const { plan } = seen;
        const status = plan.refuse?.[attempt];
        if (status) {
            response.writeHead(status, { "content-type": "text/plain" }).end("not now");
        } else if (plan.answer) {
            const { status: code = 200, type, body, binary } = plan.answer;
            response.writeHead(code, { "content-type": type });
            response.end(Buffer.from(body, binary ? "base64" : "utf8"));
        } else {
            await this.#stream(seen, attempt, response);
        }
        seen.complete = response.writableEnded;
    }

    async #stream(seen, attempt, response) {
        const { plan } = seen;
        const { events = 1, ids = true, cuts = [], hang = Infinity, pause = 0 } = plan;
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.flushHeaders();
        const last = seen.lastEventId ? Number(seen.lastEventId.slice(1)) : 0;
        for (let n = last + 1; n <= events; n++) {
            if (n > hang) return;
            if (n > (cuts[attempt] ?? Infinity)) {
                await new Promise((resolve) => response.write(": cut\n\n", resolve));
                response.destroy();
                return;
            }
            if (pause > 0) await delay(pause);
            response.write(`${ids ? `id: e${n}\n` : ""}data: ${plan.name}-${n}\n\n`);
            seen.sent = n;
        }
        if (plan.error) response.write(`event: error\ndata: ${plan.error}\n\n`);
        response.end();
    }
}

/** The texts of the events that a plan leads to. */
export function eventsOf({ name, events = 1 }) {
    return Array.from({ length: events }, (_, i) => `${name}-${i + 1}`);
}

export async function startUpstream(t, decide = (plan) => plan) {
    const upstream = new Upstream(decide);
    await upstream.start(t);
    return upstream;
}
