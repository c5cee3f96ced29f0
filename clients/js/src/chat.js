// SPDX-License-Identifier: Apache-2.0
// A transport for the AI SDK's useChat: answers survive cuts and reloads, and stop() stops them.
import { eventReader } from "./events.js";
import { resumableFetch } from "./fetch.js";

const resolve = (value) => (typeof value === "function" ? value() : value);

/** One plain object, which is what the preparing functions get. */
const merge = (...all) => Object.fromEntries(all.flatMap((some) => [...new Headers(some)]));

/** See README.md. Options are those of DefaultChatTransport. */
export class TidemarkChatTransport {
    resumeStreamIsReplay = true; // a chat that is come back to is told from its start
    #options;
    #fetch;

    constructor({ api = "/api/chat", fetch, ...options } = {}) {
        this.#options = { api, ...options };
        this.#fetch = resumableFetch(fetch && { fetch });
    }

    async sendMessages({ chatId, messages, trigger, messageId, abortSignal, ...call }) {
        const base = await this.#base(chatId, call);
        const { prepareSendMessagesRequest: prepare } = this.#options;
        const prepared = await prepare?.({ ...base, messages, trigger, messageId });
        const body = prepared?.body ?? { ...base.body, id: chatId, messages, trigger, messageId };
        const response = await this.#fetch(prepared?.api ?? base.api, {
            method: "POST",
            headers: merge(
                { "content-type": "application/json" },
                prepared?.headers ?? base.headers,
            ),
            body: JSON.stringify(body),
            credentials: prepared?.credentials ?? base.credentials,
            signal: abortSignal,
        }).catch((error) => {
            // It may be under way, and nobody has its id. The chat's will do.
            if (abortSignal?.aborted) this.stop(chatId, call).catch(() => {});
            throw error;
        });
        return chunksOf(response);
    }

    async reconnectToStream({ chatId, abortSignal, ...call }) {
        const base = await this.#base(chatId, call);
        const prepared = await this.#options.prepareReconnectToStreamRequest?.(base);
        const response = await this.#fetch(prepared?.api ?? member(base.api, chatId, "stream"), {
            headers: prepared?.headers ?? base.headers,
            credentials: prepared?.credentials ?? base.credentials,
            signal: abortSignal,
        });
        return response.status === 204 ? null : chunksOf(response);
    }

    /** Stops a chat's answer wherever it was asked for. True: one was under way. */
    async stop(chatId, call = {}) {
        const { api, headers, credentials } = await this.#base(chatId, call);
        const init = { method: "POST", headers, credentials, keepalive: true };
        const response = await this.#fetch(member(api, chatId, "stop"), init);
        if (!response.ok) throw await errorOf(response);
        return response.status !== 204 && (await response.json()).status === "cancelled";
    }

    async #base(id, call) {
        const { api, body, headers, credentials } = this.#options;
        return {
            id,
            api,
            body: { ...(await resolve(body)), ...call.body },
            headers: merge(await resolve(headers), call.headers),
            credentials: await resolve(credentials),
            requestMetadata: call.metadata,
        };
    }
}

/** API/CHAT/WHAT, in front of a query string. */
function member(api, chatId, what) {
    if (chatId === "." || chatId === "..") throw new TypeError(`"${chatId}" cannot be a chat's id`);
    return api.replace(/\/?([?#]|$)/, (_, rest) => `/${encodeURIComponent(chatId)}/${what}${rest}`);
}

const errorOf = async (response) =>
    new Error((await response.text()) || `status ${response.status}`);

async function chunksOf(response) {
    if (!response.ok) throw await errorOf(response);
    const events = eventReader(response); // the fetch below it knows when a connection is lost
    const pull = async (controller) => {
        let event = await events.next();
        if (event?.data === "[DONE]") event = await events.next();
        if (event) controller.enqueue(JSON.parse(event.data));
        else controller.close();
    };
    const cancel = (reason) => events.cancel(reason);
    return new ReadableStream({ pull, cancel }, { highWaterMark: 0 });
}
