// SPDX-License-Identifier: Apache-2.0
// Sessions as @grpc/grpc-js sees them: application/grpc, metadata, trailers, deadlines.
import assert from "node:assert/strict";
import { randomBytes, randomUUID } from "node:crypto";
import { test } from "node:test";
import { fromBinary } from "@bufbuild/protobuf";
import { AnySchema, anyUnpack } from "@bufbuild/protobuf/wkt";
import { credentials, loadPackageDefinition, Metadata, status } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { defer } from "./lib/defer.mjs";
import { H2 } from "./lib/h2.mjs";
import { AISERVER, ErrorDetails, PROTO, PROTO_FILES, TIDEMARK } from "./lib/session-schema.mjs";
import { Session } from "./lib/session.mjs";
import { startSessions } from "./lib/session-server.mjs";
import { until, within } from "./lib/wait.mjs";

const definition = loadSync(PROTO_FILES, { includeDirs: [PROTO], longs: Number, oneofs: true });
const services = loadPackageDefinition(definition);

/** What differs between the two services. */
const KINDS = [
    {
        service: TIDEMARK,
        Client: services.tidemark.v1.SessionService,
        chunk: (text) => Buffer.from(text),
        text: (chunk) => chunk.payload.toString(),
    },
    {
        service: AISERVER,
        Client: services.aiserver.v1.ChatService,
        chunk: (text) => ({ streamUnifiedChatRequest: { conversation: [{ text }] } }),
        text: (chunk) => chunk.streamUnifiedChatResponse.text,
    },
];

function metadataOf(headers) {
    const metadata = new Metadata();
    for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
    return metadata;
}

/** A call with what came of it; status comes last, of a good end too. */
class GrpcCall {
    order = [];
    acks = [];
    events = [];
    status = null;

    constructor(t, kind, client, headers, options = {}) {
        this.kind = kind;
        this.call = client[kind.service.bidi](metadataOf(headers), options);
        this.call.on("data", (message) => this.#take(message));
        this.call.on("status", (end) => (this.status = end));
        this.call.on("error", () => {}); // is told by the status, too
        defer(t, () => this.call.cancel());
    }

    #take(message) {
        this.order.push(message.response);
        if (message.response === "seqnoAck") this.acks.push(message.seqnoAck);
        const chunk = message.serverChunk;
        if (chunk) this.events.push({ id: chunk.eventId, text: this.kind.text(chunk) });
    }

    chunk(seqno, text, more = {}) {
        this.call.write({ clientChunk: this.kind.chunk(text), seqno, ...more });
        return this;
    }

    close() {
        this.call.write({ close: {} });
        return this;
    }

    abort() {
        this.call.write({ abort: {} });
        return this;
    }

    async seen(count) {
        await until(() => this.events.length >= count || this.status, `${count} events`);
        assert.ok(this.events.length >= count, `${this.status?.code} ${this.status?.details}`);
        return this;
    }

    async ended(code = status.OK) {
        await until(() => this.status, "the call's status");
        assert.equal(status[this.status.code], status[code], this.status.details);
        return this.status;
    }
}

/** The messages in grpc-status-details-bin. */
function detailsOf({ metadata }) {
    const [bytes] = metadata.get("grpc-status-details-bin");
    assert.ok(bytes, "no grpc-status-details-bin");
    return statusDetails(bytes);
}

/** google.rpc.Status {1 code, 2 message, 3 repeated Any}, taken apart by hand. */
function statusDetails(bytes) {
    const found = { code: 0, message: "", details: [] };
    const number = (at) => {
        for (let value = 0, shift = 1; ; at++, shift *= 128) {
            value += (bytes[at] & 127) * shift;
            if (bytes[at] < 128) return [value, at + 1];
        }
    };
    for (let at = 0; at < bytes.length;) {
        let tag, n;
        [tag, at] = number(at);
        [n, at] = number(at);
        if (tag === 8) {
            found.code = n;
            continue;
        }
        const value = bytes.subarray(at, at + n);
        at += n;
        if (tag === 18) found.message = value.toString();
        else if (tag === 26) found.details.push(fromBinary(AnySchema, value));
        else assert.fail(`a field ${tag >> 3} in google.rpc.Status`);
    }
    return found;
}

function assertDetails(end) {
    const { code, message, details } = detailsOf(end);
    assert.equal(code, end.code);
    assert.equal(message, end.details);
    const found = details.map((any) => anyUnpack(any, ErrorDetails)).filter(Boolean);
    assert.equal(found.length, 1, "one ErrorDetails");
    return found[0];
}

test("grpc-js", { concurrency: 4 }, async (t) => {
    const server = await startSessions(t);
    const address = `127.0.0.1:${server.where.port}`;
    const all = [];
    const add = (what, check) =>
        KINDS.forEach((kind) =>
            all.push(
                t.test(`${kind.service.name}: ${what}`, async (sub) => {
                    // A channel of its own: grpc-js shares connections between clients otherwise.
                    const make = () => {
                        const options = { "grpc.use_local_subchannel_pool": 1 };
                        const client = new kind.Client(
                            address,
                            credentials.createInsecure(),
                            options,
                        );
                        defer(sub, () => client.close());
                        return client;
                    };
                    const open = (session, { position, client = make(), options, headers } = {}) =>
                        new GrpcCall(
                            sub,
                            kind,
                            client,
                            headers ?? session.headers(position),
                            options,
                        );
                    await check({ kind, open, make });
                }),
            ),
        );

    add("a conversation, a cancelled call, the rest", async ({ kind, open }) => {
        const session = new Session(kind.service);
        const first = open(session).chunk(0, "one").chunk(1, "two").chunk(0, "one");
        await first.seen(2);
        await until(() => first.acks.length === 3, "three acks");
        assert.equal(first.order[0], "welcomeMessage");
        assert.deepEqual([...first.acks].sort(), [0, 0, 1]);
        first.call.cancel();
        await first.ended(status.CANCELLED);
        const second = open(session, { position: "1" }).chunk(7, "three").close();
        await second.ended();
        assert.deepEqual(second.events, [
            { id: "2", text: "two" },
            { id: "3", text: "three" },
        ]);
        assert.deepEqual(second.acks, [7]);
    });

    add("half-close", async ({ kind, open }) => {
        const call = open(new Session(kind.service)).chunk(0, "one").chunk(1, "two");
        call.call.end();
        await call.ended();
        assert.deepEqual(
            call.events.map(({ id }) => id),
            ["1", "2"],
        );
    });

    add("abort, and the newest connection", async ({ kind, open }) => {
        const session = new Session(kind.service);
        const older = await open(session).chunk(0, "one").seen(1);
        const newer = open(session, { position: "1" }).chunk(1, "two");
        await newer.seen(1);
        assertDetails(await older.ended(status.ABORTED));
        await newer.abort().ended();
    });

    add("errors with details, and an encoded message", async ({ kind, open }) => {
        const session = new Session(kind.service);
        await open(session).chunk(0, "one").close().ended();
        const stranger = new Session(kind.service, { key: session.key, secret: randomBytes(32) });
        const wrong = await open(stranger).ended(status.PERMISSION_DENIED);
        assert.equal(assertDetails(wrong).error, 4);
        const none = await open(new Session(kind.service), { position: "7" }).ended(
            status.NOT_FOUND,
        );
        assertDetails(none);
        assertDetails(await open(session, { position: "8" }).ended(status.OUT_OF_RANGE));
        const headers = { "x-idempotency-key": randomUUID() };
        assertDetails(await open(session, { headers }).ended(status.INVALID_ARGUMENT));
    });

    add("a deadline", async ({ kind, open }) => {
        const session = new Session(kind.service);
        const options = { deadline: Date.now() + 700 };
        const call = open(session, { options }).chunk(0, "in time");
        await call.ended(status.DEADLINE_EXCEEDED);
        // The call is over, the session is not.
        const next = open(session).chunk(1, "later").close();
        await next.ended();
        assert.deepEqual(
            next.events.map(({ text }) => text),
            ["in time", "later"],
        );
    });

    all.push(
        t.test("the server keeps a deadline by itself, and encodes its message", async (sub) => {
            const session = new Session(TIDEMARK);
            const h2 = new H2(sub, server);
            const headers = { "content-type": "application/grpc", te: "trailers" };
            const late = h2.open("POST", TIDEMARK.path("bidi"), {
                headers: { ...headers, ...session.headers(), "grpc-timeout": "200m" },
                end: false,
            });
            assert.equal((await within(late.reply, "a head"))[":status"], 200);
            await within(late.done, "the end of a late call");
            assert.equal(late.trailers["grpc-status"], String(status.DEADLINE_EXCEEDED));
            const refused = h2.open("POST", TIDEMARK.path("bidi"), { headers });
            const head = await within(refused.reply, "a head");
            await within(refused.done, "the end of a refused call");
            const end = refused.trailers ?? head;
            assert.equal(head["content-type"].split("+")[0], "application/grpc");
            assert.equal(end["grpc-status"], String(status.INVALID_ARGUMENT));
            assert.match(end["grpc-message"], /^([\x20-\x24\x26-\x7e]|%[0-9A-F]{2})+$/);
            const unknown = h2.open("POST", "/tidemark.v1.SessionService/Nothing", { headers });
            const nowhere = await within(unknown.reply, "a head");
            await within(unknown.done, "the end of a call of nothing");
            const said = (unknown.trailers ?? nowhere)["grpc-status"];
            // Without gRPC's own word for it, clients make UNIMPLEMENTED of a 404.
            assert.ok(said === String(status.UNIMPLEMENTED) || nowhere[":status"] === 404);
        }),
    );

    all.push(
        t.test("appends beside a downlink", async (sub) => {
            const session = new Session(TIDEMARK);
            const Client = services.tidemark.v1.SessionService;
            const client = new Client(address, credentials.createInsecure());
            defer(sub, () => client.close());
            const requestId = { requestId: randomUUID() };
            const metadata = metadataOf(session.headers());
            const down = client.StreamSSE(requestId, metadata);
            const got = [];
            let end = null;
            down.on("data", (message) => got.push(message));
            down.on("status", (value) => (end = value));
            down.on("error", () => {});
            await until(() => got.length > 0 || end, "a welcome");
            const append = (message, appendSeqno) =>
                new Promise((resolve, reject) => {
                    const { requestSerialize } = definition["tidemark.v1.SessionService"].Stream;
                    const dataBinary = requestSerialize(message);
                    const request = { requestId, appendSeqno, dataBinary };
                    client.Append(request, metadata, (error, answer) =>
                        error ? reject(error) : resolve(answer),
                    );
                });
            await append({ clientChunk: Buffer.from("up"), seqno: 0 }, 0);
            await append({ close: {} }, 1);
            await until(() => end, "the end of the downlink");
            assert.equal(end.code, status.OK, end.details);
            const events = got.map(({ serverChunk }) => serverChunk).filter(Boolean);
            assert.deepEqual(
                events.map(({ payload }) => payload.toString()),
                ["up"],
            );
        }),
    );
    await Promise.all(all);
});
