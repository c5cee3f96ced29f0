// SPDX-License-Identifier: Apache-2.0
// Clients of sessions, over the transports of @connectrpc/connect-node.
import assert from "node:assert/strict";
import { createHmac, hkdfSync, randomBytes, randomUUID } from "node:crypto";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import {
    createConnectTransport,
    createGrpcTransport,
    Http2SessionManager,
} from "@connectrpc/connect-node";
import { defer } from "./defer.mjs";
import { ErrorDetails, Gap } from "./session-schema.mjs";
import { until, within } from "./wait.mjs";

export { Code };

/** What a client knows of a session: its names, and the chain of its events' MACs. */
export class Session {
    #macKey;
    #macs = new Map([["0", Buffer.alloc(32)]]); // by event id

    constructor(service, { key = randomUUID(), secret = randomBytes(32) } = {}) {
        this.service = service;
        this.key = key;
        this.secret = secret;
        const info = "tidemark session mac";
        this.#macKey = Buffer.from(hkdfSync("sha256", secret, key, info, 32));
    }

    /** The headers of a connection. position: undefined sends none. */
    headers(position = "0") {
        const headers = {
            "x-idempotency-key": this.key,
            "x-idempotent-encryption-key": this.secret.toString("base64url"),
        };
        return position === undefined || position === null
            ? headers
            : { ...headers, "x-idempotency-event-id": String(position) };
    }

    request(message) {
        return create(this.service.Request, message);
    }

    chunk(seqno, text, more = {}) {
        const value = this.service.chunk(text);
        return this.request({ request: { case: "clientChunk", value }, seqno, ...more });
    }

    sign(before, covered) {
        return createHmac("sha256", this.#macKey).update(before).update(covered).digest();
    }

    /** Checks an event's MAC against that of the one before, which has to be known. */
    check(id, { covered, mac }) {
        const before = this.#macs.get(String(Number(id) - 1));
        assert.ok(before, `event ${id} comes without the one before`);
        assert.equal(mac.toString("hex"), this.sign(before, covered).toString("hex"), `MAC ${id}`);
        this.#macs.set(id, mac);
    }

    /** An event in a form for comparing, its MAC checked. */
    event(chunk) {
        this.check(chunk.eventId, this.service.signed(chunk));
        return { id: chunk.eventId, text: this.service.text(chunk) };
    }
}

/** A queue that is an async iterable: what a call sends. */
class Outbox {
    #items = [];
    #wake = () => {};
    #ended = false;

    push(item) {
        this.#items.push(item);
        this.#wake();
    }

    end() {
        this.#ended = true;
        this.#wake();
    }

    async *[Symbol.asyncIterator]() {
        for (;;) {
            while (this.#items.length > 0) yield this.#items.shift();
            if (this.#ended) return;
            await new Promise((resolve) => (this.#wake = resolve));
        }
    }
}

/** One call of a session: what has come so far, and how it ended. */
export class Call {
    order = []; // kinds of messages, as they came
    welcome = null;
    acks = [];
    events = []; // { id, text }
    over = false;
    error = null; // with over: null is a proper end
    #outbox = new Outbox();
    #abort = new AbortController();

    /** begin(outbox, signal) starts it; listener.ack(seqno) and .event(event) hear what comes. */
    constructor(session, begin, listener = {}) {
        this.session = session;
        this.listener = listener;
        this.done = this.#read(begin(this.#outbox, this.#abort.signal));
    }

    async #read(stream) {
        try {
            for await (const message of stream) this.take(message);
        } catch (error) {
            this.error = ConnectError.from(error);
        }
        this.over = true;
        this.#outbox.end();
        return this.error;
    }

    take({ response }) {
        this.order.push(response.case);
        if (response.case === "welcomeMessage") this.welcome = response.value;
        else if (response.case === "seqnoAck") this.#ack(response.value);
        else if (response.case === "serverChunk") this.#event(this.session.event(response.value));
        else assert.fail(`a message with ${response.case}`);
    }

    #ack(seqno) {
        this.acks.push(seqno);
        this.listener.ack?.(seqno);
    }

    #event(event) {
        this.events.push(event);
        this.listener.event?.(event);
    }

    get ids() {
        return this.events.map(({ id }) => id);
    }

    get texts() {
        return this.events.map(({ text }) => text);
    }

    chunk(seqno, text, more) {
        this.#outbox.push(this.session.chunk(seqno, text, more));
        return this;
    }

    abort(more = {}) {
        this.#outbox.push(this.session.request({ request: { case: "abort", value: {} }, ...more }));
        return this;
    }

    close() {
        this.#outbox.push(this.session.request({ request: { case: "close", value: {} } }));
        return this;
    }

    /** Sends no more. */
    halfClose() {
        this.#outbox.end();
        return this;
    }

    /** Gives the call up: RST_STREAM. */
    cancel() {
        this.#abort.abort();
        return this;
    }

    /** Waits until probe() holds; the call's end before that is an error. */
    async wait(probe, what) {
        await until(() => probe() || this.over, what);
        const got = JSON.stringify({ order: this.order, acks: this.acks, events: this.events });
        assert.ok(
            probe(),
            `no ${what}, but ${this.error ?? "a proper end"}; ${got.slice(0, 2000)}`,
        );
        return this;
    }

    welcomed() {
        return this.wait(() => this.welcome, "welcome");
    }

    acked(count) {
        return this.wait(() => this.acks.length >= count, `${count} acks`);
    }

    seen(count) {
        return this.wait(() => this.events.length >= count, `${count} events`);
    }

    /** Waits for the end: null, or the error. */
    ended() {
        return within(this.done, "the call to end");
    }

    async endedWell() {
        const error = await this.ended();
        assert.equal(error, null, `ended with ${error}`);
        return this;
    }

    /** Waits for an end with this code, which has to tell its client to stop. */
    async refused(code) {
        const error = await this.ended();
        assertRefused(error, code);
        return error;
    }
}

export const codeName = (code) => Code[code];

/** An error that ends a client's attempts, since it has details. */
export function assertRefused(error, code) {
    assert.ok(error instanceof ConnectError, `an error ${codeName(code)}, not ${error}`);
    assert.equal(codeName(error.code), codeName(code), error.message);
    assert.equal(error.findDetails(ErrorDetails).length, 1, `${error} without details`);
    assert.notEqual(error.rawMessage, "", "a message says why");
}

/** The number that an error's details give; see ErrorDetails.error. */
export const detailOf = (error) => error.findDetails(ErrorDetails)[0].error;
export const gapOf = (error) => error.findDetails(Gap)[0];

/** One client: one connection at a time, opened when it is needed. */
export class Peer {
    #manager;
    transport;

    constructor(t, server, { protocol = "connect", ca, ...options } = {}) {
        this.#manager = new Http2SessionManager(server.base, {}, ca ? { ca } : undefined);
        const make = protocol === "grpc" ? createGrpcTransport : createConnectTransport;
        this.transport = make({
            baseUrl: server.base,
            httpVersion: "2",
            sessionManager: this.#manager,
            ...options,
        });
        defer(t, () => this.cut());
    }

    /** Destroys the connection; the next call opens another. */
    cut() {
        this.#manager.abort();
    }

    open(session, { position, headers = session.headers(position), timeoutMs, listener } = {}) {
        const { service } = session;
        const client = createClient(service.calls, this.transport);
        const begin = (input, signal) =>
            client[service.local("bidi")](input, { headers, signal, timeoutMs });
        return new Call(session, begin, listener);
    }
}

/** A client of the fallbacks, over HTTP/1.1: a downlink, and appends beside it. */
export class OldPeer {
    constructor(server, session, { requestId = randomUUID(), ca } = {}) {
        const nodeOptions = ca ? { ca } : {};
        const options = { baseUrl: server.base, httpVersion: "1.1", nodeOptions };
        this.session = session;
        this.transport = createConnectTransport(options);
        this.requestId = requestId;
        this.seqno = 0;
        this.calls = createClient(session.service.calls, this.transport);
        this.appends = createClient(session.service.appends, this.transport);
    }

    headers(position) {
        return { ...this.session.headers(position), "x-request-id": this.requestId };
    }

    downlink(position, { Kind = Call, listener } = {}) {
        const { session, requestId } = this;
        const headers = this.headers(position);
        const begin = (_, signal) =>
            this.calls[session.service.local("sse")]({ requestId }, { headers, signal });
        return new Kind(session, begin, listener);
    }

    /** Appends a request message: hex, or as it is. */
    append(message, { seqno = this.seqno++, binary = false } = {}) {
        const { service } = this.session;
        const bytes = toBinary(service.Request, message);
        const data = binary ? { dataBinary: bytes } : { data: Buffer.from(bytes).toString("hex") };
        const request = {
            ...data,
            requestId: { requestId: this.requestId },
            appendSeqno: BigInt(seqno),
        };
        return this.appends[service.local("append")](request, { headers: this.headers() });
    }

    chunk(seqno, text, options) {
        return this.append(this.session.chunk(seqno, text), options);
    }

    close(options) {
        return this.append(
            this.session.request({ request: { case: "close", value: {} } }),
            options,
        );
    }

    /** One poll: { items: [{ seqno, message }], eof }. */
    async poll(start, position) {
        const { service } = this.session;
        const request = {
            requestId: { requestId: this.requestId },
            ...(start && { startRequest: true }),
        };
        const items = [];
        let eof = false;
        const headers = this.headers(position);
        const answers = this.calls[service.local("poll")](request, { headers });
        for await (const answer of answers) {
            assert.ok(!eof, "nothing follows eof");
            eof = answer.eof === true;
            if (answer.data === "") continue;
            assert.match(answer.data, /^([0-9a-f]{2})+$/);
            const bytes = Buffer.from(answer.data, "hex");
            items.push({
                seqno: Number(answer.seqno),
                message: fromBinary(service.Response, bytes),
            });
        }
        return { items, eof };
    }
}

/** A downlink that says what it has to say by appends. The first that fails ends it. */
class PairCall extends Call {
    old; // an OldPeer

    #said(append) {
        append.catch(() => this.cancel());
        return this;
    }

    chunk(seqno, text) {
        return this.#said(this.old.chunk(seqno, text));
    }

    close() {
        return this.#said(this.old.close());
    }
}

/** Like a Peer, over HTTP/1.1: each call is a downlink with appends beside it. */
export class PairPeer {
    #server;
    #call = null;

    constructor(t, server) {
        this.#server = server;
        defer(t, () => this.cut());
    }

    cut() {
        this.#call?.cancel();
    }

    open(session, { position, listener } = {}) {
        const old = new OldPeer(this.#server, session);
        this.#call = Object.assign(old.downlink(position, { Kind: PairCall, listener }), { old });
        return this.#call;
    }
}

/** Opens each call through another peer than the one before. */
export class WanderingPeer {
    #peers;
    #n = 0;

    constructor(peers) {
        this.#peers = peers;
    }

    open(...args) {
        return this.#peers[this.#n++ % this.#peers.length].open(...args);
    }

    cut() {
        for (const peer of this.#peers) peer.cut();
    }
}
