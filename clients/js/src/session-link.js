// SPDX-License-Identifier: Apache-2.0
// One connection of a session: a downlink, and the appends that belong to it.
import { randomName } from "./platform.js";
import { readWithin } from "./retry.js";
import * as wire from "./session-wire.js";

const SERVICE = "tidemark.v1.SessionService";
const DETAILS = "aiserver.v1.ErrorDetails"; // with them coming back is pointless
const END = 2; // a frame's flag

/** Why a session, or a connection of it, has ended. code: Connect's word, if the server said one. */
export class SessionError extends Error {
    constructor(message, { code, isFinal = false } = {}) {
        super(message);
        Object.assign(this, { name: "SessionError", code, isFinal });
    }

    static of({ code, message, details = [] }) {
        const isFinal = details.some(({ type }) => type === DETAILS);
        return new SessionError(message || code, { code, isFinal });
    }
}

export class Link {
    sent = -1; // the number of the last chunk that went out
    last; // "close" or "abort", if that did
    underWay = 0; // appends without an answer
    isOpen = false; // the server has welcomed us
    began = Date.now();
    #settings;
    #secret;
    #id;
    #appends = 0;
    #abort = new AbortController();
    #error;

    constructor(settings, secret) {
        this.#settings = settings;
        this.#secret = secret;
    }

    /** Gives up, for this reason. */
    cut(error) {
        this.#error ??= error;
        this.#abort.abort();
    }

    async #post(method, type, body, headers) {
        const { url, token, fetch, headers: more } = this.#settings;
        const all = new Headers(more);
        const credential = typeof token === "function" ? await token() : token;
        if (credential) all.set("Authorization", `Bearer ${credential}`);
        all.set("Content-Type", type);
        all.set("Connect-Protocol-Version", "1");
        all.set("x-idempotent-encryption-key", this.#secret);
        for (const [name, value] of Object.entries(headers)) all.set(name, value);
        const { signal } = this.#abort;
        const target = `${String(url).replace(/\/$/, "")}/${SERVICE}/${method}`;
        const answer = await fetch(target, { method: "POST", headers: all, body, signal });
        if (answer.status !== 200) throw await refusal(answer);
        return answer;
    }

    /** Reads to the session's end. take(message) is waited for. Rejects if the end is another. */
    async run(key, position, take) {
        try {
            this.#id = await randomName();
            const answer = await this.#post(
                "StreamSSE",
                "application/connect+proto",
                wire.envelope(wire.requestId(this.#id)),
                { "x-idempotency-key": key, "x-idempotency-event-id": position },
            );
            await this.#read(answer.body.getReader(), take);
        } catch (error) {
            throw this.#error ?? error;
        } finally {
            this.cut(new Error("the connection is over"));
        }
    }

    async #read(reader, take) {
        const frames = new wire.Frames();
        for (;;) {
            const { done, value } = await readWithin(reader, this.#settings.quietMs);
            if (done) throw new Error("the connection was lost");
            for (const { flags, message } of frames.push(value)) {
                if (flags & END) return endOf(message);
                await take(wire.readResponse(message));
            }
        }
    }

    /** Done when the message is durable. */
    async append(message) {
        const body = wire.appendRequest(this.#id, this.#appends++, message);
        this.underWay++;
        try {
            const answer = await this.#post("Append", "application/proto", body, {});
            await answer.arrayBuffer();
        } catch (error) {
            this.cut(error);
            throw error;
        } finally {
            this.underWay--;
        }
    }
}

function endOf(message) {
    const { error } = JSON.parse(wire.toText(message));
    if (error) throw SessionError.of(error);
}

/** What another status than 200 says: Connect's errors, or somebody's in between. */
async function refusal(answer) {
    const { status } = answer;
    const text = await answer.text().catch(() => "");
    try {
        return SessionError.of(JSON.parse(text).error ?? JSON.parse(text));
    } catch {
        const isFinal = status >= 400 && status < 500 && ![408, 425, 429].includes(status);
        return new SessionError(`status ${status}`, { isFinal });
    }
}
