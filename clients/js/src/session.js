// SPDX-License-Identifier: Apache-2.0
// A session (docs/protocols/sessions.md): a two-way stream that no connection owns, over HTTP/1.1
// as every browser speaks it. Answers come on a downlink, and each chunk goes in a request of its
// own.
//
//     connect -- welcome --> open -- end --> over
//        ^                    |
//        |  a pause           |  lost
//        +--------------------+
//
// A chunk keeps its number and is said again on each connection until it is acknowledged. It is
// saved before it is said for the first time: a number must never mean two things. An event counts
// as seen when its reader asks for the next one.
import { randomName, webCrypto } from "./platform.js";
import { sleep } from "./retry.js";
import { Link, SessionError } from "./session-link.js";
import { openState } from "./session-state.js";
import * as wire from "./session-wire.js";

const WINDOW = 8; // appends under way; the server puts up to 16 in order
const QUEUE = 64; // events that wait for their reader
const LOOKBACK_MS = 7_200_000; // as long as a server keeps sessions
const PAST_MS = 2000; // for so long a lost connection of ours can overtake the next one
const FINAL = { code: "data_loss", isFinal: true };
const OVER = ["canceled", "internal", "not_found", "failed_precondition", "data_loss"];

const DEFAULTS = {
    reconnectMs: 1000, // as the editor waits in which the protocol first appeared
    quietMs: 60_000, // a downlink has no heartbeats: without an event it is opened anew
    fetch: (...request) => globalThis.fetch(...request),
};

/** Starts a session, or goes on with the one that is saved under this key. See README.md. */
export async function startReliableStream(options) {
    const settings = { ...DEFAULTS, ...options };
    const store = openState(settings.state);
    const key = settings.key ?? (await randomName());
    const release = (await store.hold?.(key)) ?? (() => {});
    try {
        const state = (await store.load(key)) ?? (await newState(key, settings.secret));
        const mac = await wire.macOf(wire.fromBase64(state.idempotentEncryptionKey), key);
        await store.save(state);
        return new ReliableStream(settings, state, { store, release, mac });
    } catch (error) {
        release();
        throw error;
    }
}

/** Goes on with all sessions that are saved and not too old. Another page may have some of them. */
export async function resumeReliableStreams({ lookbackMs = LOOKBACK_MS, ...options }) {
    const states = await openState(options.state).list();
    const young = states.filter(({ lastUpdatedAt }) => Date.now() - lastUpdatedAt <= lookbackMs);
    const starts = young.map(({ idempotencyKey: key }) => startReliableStream({ ...options, key }));
    const started = await Promise.allSettled(starts);
    return started.flatMap(({ value }) => value ?? []);
}

async function newState(key, secret) {
    const bytes = secret ?? (await webCrypto()).getRandomValues(new Uint8Array(32));
    const now = Date.now();
    return {
        idempotencyKey: key,
        idempotencyEventId: "0",
        idempotentEncryptionKey: wire.toBase64(bytes),
        nextSeqno: 0,
        playbackChunks: [],
        eventMac: wire.toBase64(new Uint8Array(32)),
        last: undefined, // "close" or "abort": nothing follows
        createdAt: now,
        lastUpdatedAt: now,
    };
}

class ReliableStream {
    #settings;
    #state;
    #store;
    #release;
    #mac;
    #playback = new Map(); // seqno -> { bytes, isSaved, resolve, reject }, not acknowledged
    #heard; // { id, mac } of the last event that came
    #ready = []; // events that wait for their reader
    #link;
    #isDegraded = false;
    #isOver = false;
    #canForget = false;
    #isForgotten = false;
    #error;
    #saving = Promise.resolve();
    #nextSave;
    #bell = [];
    #leave = new AbortController();

    constructor(settings, state, { store, release, mac }) {
        Object.assign(this, { key: state.idempotencyKey });
        this.#settings = settings;
        this.#state = state;
        this.#store = store;
        this.#release = release;
        this.#mac = mac;
        this.#heard = { id: state.idempotencyEventId, mac: wire.fromBase64(state.eventMac) };
        for (const [seqno, json] of state.playbackChunks) {
            const bytes = wire.fromBase64(JSON.parse(json).clientChunk);
            this.#playback.set(seqno, { bytes, isSaved: true });
        }
        settings.signal?.addEventListener("abort", () => this.detach());
        if (settings.signal?.aborted) this.detach();
        /** Settles with the session. */
        this.done = this.#run();
        this.done.catch(() => {}); // whoever reads is told, too
    }

    // ---- what a program does ----

    /** Says something. Done when the server has it for good. */
    async send(data) {
        if (this.#isOver || this.#state.last) throw this.#error ?? new SessionError("it is over");
        const seqno = this.#state.nextSeqno++;
        const chunk = { bytes: wire.toBytes(data), isSaved: false };
        const acknowledged = new Promise((resolve, reject) =>
            Object.assign(chunk, { resolve, reject }),
        );
        acknowledged.catch(() => {});
        this.#playback.set(seqno, chunk);
        await this.#save().catch((error) => {
            this.#playback.delete(seqno);
            throw error;
        });
        chunk.isSaved = true;
        this.#pump();
        return acknowledged;
    }

    /** Nothing follows. Done when everything is answered. */
    close() {
        return this.#sayLast("close");
    }

    /** Stops the backend and ends the session. */
    abort() {
        return this.#sayLast("abort");
    }

    /** Leaves the session as it is: it can be gone on with later. */
    detach() {
        this.#leave.abort();
        this.#link?.cut(new Error("left"));
        this.#ring();
    }

    /** { id, data, text, isVerified } of each event. */
    async *[Symbol.asyncIterator]() {
        for (;;) {
            while (this.#ready.length === 0) {
                if (this.#isOver) return this.#last();
                await this.#rung();
            }
            const { mac, ...event } = this.#ready.shift();
            this.#ring();
            yield event;
            this.#state.idempotencyEventId = event.id;
            this.#state.eventMac = wire.toBase64(mac);
            this.#save().catch(() => {}); // the event comes twice then
        }
    }

    /** Behind the last event. */
    async #last() {
        await this.#forget();
        if (this.#error) throw this.#error;
    }

    async #sayLast(what) {
        if (this.#state.last !== "abort") this.#state.last = what;
        await this.#save();
        this.#pump();
        return this.done;
    }

    // ---- waiting ----

    #rung() {
        return new Promise((resolve) => this.#bell.push(resolve));
    }

    #ring() {
        for (const resolve of this.#bell.splice(0)) resolve();
    }

    // ---- saving ----

    /** Done when what is known now is saved. Many calls meanwhile are one. */
    #save() {
        const save = () => {
            this.#nextSave = undefined;
            this.#saving = this.#isForgotten ? undefined : this.#store.save(this.#saved());
            return this.#saving;
        };
        this.#nextSave ??= Promise.resolve(this.#saving).then(save, save);
        return this.#nextSave;
    }

    #saved() {
        const playbackChunks = [...this.#playback].map(([seqno, { bytes }]) => [
            seqno,
            JSON.stringify({ clientChunk: wire.toBase64(bytes), seqno }),
        ]);
        return { ...this.#state, playbackChunks, lastUpdatedAt: Date.now() };
    }

    // ---- connections ----

    async #run() {
        const { signal } = this.#leave;
        for (let isFirst = true; !signal.aborted; isFirst = false) {
            try {
                await this.#connect();
                return await this.#end();
            } catch (error) {
                if (signal.aborted) break;
                if (this.#isEnd(error, isFirst)) return await this.#end(error);
            }
            await sleep(this.#settings.reconnectMs, signal).catch(() => {});
        }
        return this.#end(new SessionError("the session was left"), true);
    }

    #connect() {
        const { idempotencyKey: key, idempotentEncryptionKey: secret } = this.#state;
        this.#link = new Link(this.#settings, secret);
        return this.#link.run(key, this.#heard.id, (said) => this.#take(said));
    }

    /** Is there nothing to come back to? */
    #isEnd({ code, isFinal }, isFirst) {
        const isPast = code === "aborted" && !isFirst && Date.now() - this.#link.began < PAST_MS;
        return this.#isDegraded || (isFinal && !isPast);
    }

    async #end(error, isLeft = false) {
        const isWanted = isLeft || (error?.code === "canceled" && this.#state.last === "abort");
        if (!isWanted) this.#error = error;
        this.#isOver = true;
        const why = error ?? new SessionError("the session ended before it took this");
        for (const { reject } of this.#playback.values()) reject?.(why);
        this.#canForget = !isLeft && (!error || OVER.includes(error.code));
        if (this.#heard.id === this.#state.idempotencyEventId) await this.#forget();
        await this.#save().catch(() => {}); // for the next program, if there is one
        this.#release();
        this.#ring();
        if (this.#error) throw this.#error;
    }

    /** There is nothing to come back to, and nobody has to see its events any more. */
    async #forget() {
        if (!this.#canForget || this.#isForgotten) return;
        this.#isForgotten = true;
        await this.#save().catch(() => {}); // the one that is under way
        await this.#store.remove(this.key).catch(() => {});
    }

    // ---- what the server says ----

    async #take({ welcome, ack, chunk }) {
        if (welcome?.degraded) {
            this.#isDegraded = this.#canForget = true;
            await this.#forget();
        }
        if (welcome) this.#link.isOpen = true;
        if (ack !== undefined) this.#acknowledge(ack);
        if (chunk) await this.#hear(wire.readChunk(chunk));
        this.#pump();
    }

    #acknowledge(seqno) {
        this.#playback.get(seqno)?.resolve?.();
        this.#playback.delete(seqno);
        this.#pump();
    }

    async #hear({ id, data, mac, covered }) {
        const isVerified = await this.#verify(id, mac, covered);
        this.#heard = { id, mac };
        this.#ready.push({ id, data: data.slice(), text: wire.toText(data), isVerified, mac });
        this.#ring();
        while (this.#ready.length >= QUEUE && !this.#leave.signal.aborted) await this.#rung();
    }

    /** Events are a chain: none may be left out, changed, or put in. */
    async #verify(id, mac, covered) {
        const isNext = Number(id) === Number(this.#heard.id) + 1;
        if (!isNext || !mac) throw new SessionError(`event ${id} is not to be trusted`, FINAL);
        const right = await this.#mac?.(this.#heard.mac, covered);
        if (right && !wire.isSame(mac, right))
            throw new SessionError(`the MAC of event ${id} is wrong`, FINAL);
        return right !== undefined;
    }

    // ---- what it is told ----

    /** Says what has not been said on this connection, in order. */
    #pump() {
        const link = this.#link;
        const { last } = this.#state;
        if (!link?.isOpen || this.#isOver) return;
        for (const [seqno, { bytes, isSaved }] of this.#playback) {
            if (last === "abort") break; // nobody wants it any more
            if (seqno <= link.sent) continue;
            if (!isSaved || link.underWay >= WINDOW) return;
            link.sent = seqno;
            this.#append(link, wire.clientChunk(seqno, bytes), () => this.#acknowledge(seqno));
        }
        if (!last || link.last === last) return;
        link.last = last;
        this.#append(link, wire.LAST[last], () => {});
    }

    /** A failure ends the connection, and with it all others that are under way. */
    #append(link, message, done) {
        link.append(message).then(done, () => {});
    }
}
