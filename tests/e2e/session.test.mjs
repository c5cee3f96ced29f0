// SPDX-License-Identifier: Apache-2.0
// Sessions as @connectrpc/connect-node sees them: bidirectional calls over h2c and over TLS, in
// Connect's own protocol and in gRPC, under both names. The server echoes.
import assert from "node:assert/strict";
import { randomBytes, randomUUID } from "node:crypto";
import { test } from "node:test";
import { compressionGzip } from "@connectrpc/connect-node";
import { SERVICES, TIDEMARK } from "./lib/session-schema.mjs";
import { Code, detailOf, gapOf, Peer, Session } from "./lib/session.mjs";
import { startSessions } from "./lib/session-server.mjs";
import { Authority } from "./lib/tls.mjs";

const USER_ABORTED_REQUEST = 21;
const NOT_HIGH_ENOUGH_PERMISSIONS = 4;

const numbers = (count, first = 0) => Array.from({ length: count }, (_, i) => i + first);
const ids = (count, first = 1) => numbers(count, first).map(String);
const ascending = (list) => [...list].sort((a, b) => a - b);

/** A session with so many events ("text 0", "text 1", ..), and the call that made them. */
async function talk(peer, session, count) {
    const call = peer.open(session);
    for (const n of numbers(count)) call.chunk(n, `text ${n}`);
    await call.seen(count);
    await call.acked(count);
    return call;
}

/** Each gets make(options): a client on a connection of its own; and the service. */
const CASES = {
    async "welcome, acks, events, close"({ make, service }) {
        const call = make().open(new Session(service));
        await call.welcomed(); // before anything was sent
        assert.equal(call.welcome.isDegradedMode, false);
        call.chunk(0, "one");
        await call.seen(1);
        call.chunk(1, "two – zwei").chunk(2, "");
        await call.seen(3);
        await call.acked(3);
        call.close();
        await call.endedWell();
        assert.equal(call.order[0], "welcomeMessage");
        assert.equal(call.order.filter((kind) => kind === "welcomeMessage").length, 1);
        assert.deepEqual(ascending(call.acks), [0, 1, 2]);
        assert.deepEqual(call.ids, ["1", "2", "3"]);
        assert.deepEqual(call.texts, ["one", "two – zwei", ""]);
    },

    async "all of it sent at once and half-closed behind the close"({ make, service }) {
        const call = make().open(new Session(service));
        for (const n of numbers(200)) call.chunk(n, `text ${n}`);
        call.close().halfClose();
        await call.endedWell();
        assert.deepEqual(ascending(call.acks), numbers(200));
        assert.deepEqual(call.ids, ids(200));
        assert.deepEqual(
            call.texts,
            numbers(200).map((n) => `text ${n}`),
        );
    },

    async "what was seen before is acknowledged again and not processed again"({ make, service }) {
        const session = new Session(service);
        const peer = make();
        const first = await peer.open(session).chunk(0, "once").acked(1);
        await first.chunk(0, "twice").acked(2);
        await first.chunk(1, "next").acked(3);
        assert.deepEqual(first.acks, [0, 0, 1]);
        await first.seen(2);
        peer.cut();
        await first.ended();
        const second = peer.open(session, { position: "1" });
        second.chunk(0, "thrice").chunk(1, "again").chunk(2, "new").chunk(2, "not new").close();
        await second.endedWell();
        // One ack behind both of two that were on their way together is enough.
        assert.deepEqual(ascending(new Set(second.acks)), [0, 1, 2]);
        assert.deepEqual(first.texts, ["once", "next"]);
        assert.deepEqual(second.events, [
            { id: "2", text: "next" },
            { id: "3", text: "new" },
        ]);
    },

    async "gaps and any order: once each, as they arrive"({ make, service }) {
        const call = make().open(new Session(service));
        const order = [5, 2, 4294967295, 0, 2, 77, 5, 1];
        for (const seqno of order) call.chunk(seqno, `number ${seqno}`);
        call.close();
        await call.endedWell();
        const once = [5, 2, 4294967295, 0, 77, 1];
        assert.deepEqual(ascending(new Set(call.acks)), ascending(once));
        assert.deepEqual(
            call.texts,
            once.map((seqno) => `number ${seqno}`),
        );
        assert.deepEqual(call.ids, ids(once.length));
    },

    async "field 4 is the key if there is no header"({ make, service }) {
        const session = new Session(service);
        const headers = session.headers();
        delete headers["x-idempotency-key"];
        const peer = make();
        const first = peer.open(session, { headers });
        first.chunk(0, "by field", { idempotencyKey: session.key }).chunk(1, "and on");
        await first.seen(2);
        await first.acked(2);
        assert.equal(first.order[0], "welcomeMessage");
        first.cancel();
        await first.ended();
        const second = peer.open(session, { position: "1" });
        second.chunk(1, "and on").close();
        await second.endedWell();
        assert.deepEqual(second.events, [{ id: "2", text: "and on" }]);
    },

    async "the header is the key, whatever field 4 says"({ make, service }) {
        const session = new Session(service);
        const other = randomUUID();
        const call = make().open(session).chunk(0, "mine", { idempotencyKey: other }).close();
        await call.endedWell();
        const same = make().open(session);
        await same.endedWell();
        assert.deepEqual(same.texts, ["mine"]);
        const unknown = new Session(service, { key: other, secret: session.secret });
        await make().open(unknown, { position: "1" }).refused(Code.NotFound);
    },

    async "resumes strictly behind the event that the client names"({ make, service }) {
        const session = new Session(service);
        const peer = make();
        const first = await talk(peer, session, 5);
        peer.cut();
        await first.ended();
        for (const position of ["3", "5", "1"]) {
            const call = peer.open(session, { position });
            const count = 5 - Number(position);
            await call.welcomed();
            await call.seen(count);
            // A chunk that was answered already brings an ack and no more events than are due.
            await call.chunk(4, "seen").acked(1);
            assert.deepEqual(call.ids, ids(count, Number(position) + 1), `behind ${position}`);
            call.cancel();
            await call.ended();
        }
        for (const position of ["0", null]) {
            const call = await peer.open(session, { position }).seen(5);
            assert.deepEqual(
                call.texts,
                numbers(5).map((n) => `text ${n}`),
            );
            call.cancel();
            await call.ended();
        }
        const last = peer.open(session, { position: "4" }).chunk(5, "live").close();
        await last.endedWell();
        assert.deepEqual(last.ids, ["5", "6"]);
        assert.equal(last.texts[1], "live");
    },

    async "the newest connection has the session"({ make, service }) {
        const session = new Session(service);
        const older = await talk(make(), session, 2);
        const newer = make().open(session, { position: "2" });
        await newer.welcomed();
        await older.refused(Code.Aborted);
        newer.chunk(2, "here").close();
        await newer.endedWell();
        assert.deepEqual(newer.events, [{ id: "3", text: "here" }]);
        assert.equal(older.events.length, 2, "nothing more went there");
    },

    async "a chunk behind the end is refused, on this connection or the next"({ make, service }) {
        const session = new Session(service);
        const first = await talk(make(), session, 2);
        first.close();
        await first.endedWell();
        const again = make().open(session, { position: "1" });
        again.chunk(1, "text 1").chunk(2, "one more");
        const error = await again.refused(Code.InvalidArgument);
        assert.match(error.rawMessage, /after close/);
        assert.deepEqual(again.acks, [1], "what was there is acknowledged, the other one not");
        assert.deepEqual(again.ids, ["2"]);
        const early = make().open(session, { position: "2" }).chunk(2, "one more").halfClose();
        await early.refused(Code.InvalidArgument);
        const read = make().open(session).chunk(0, "text 0").close();
        await read.endedWell();
        assert.deepEqual(read.texts, ["text 0", "text 1"]);
    },

    async "keys in either base64, padded or not"({ make, service }) {
        const secret = Buffer.from("fb".repeat(32), "hex"); // in which all four differ
        const session = new Session(service, { secret });
        const [url, std] = ["base64url", "base64"].map((name) => secret.toString(name));
        const texts = [url, `${url}=`, std, std.slice(0, 43)];
        assert.equal(new Set(texts).size, 4);
        for (const [n, text] of texts.entries()) {
            const headers = { ...session.headers(n), "x-idempotent-encryption-key": text };
            const call = make().open(session, { headers }).chunk(n, `text ${n}`);
            await call.seen(1);
            call.cancel();
            await call.ended();
        }
        const all = make().open(session).close();
        await all.endedWell();
        assert.deepEqual(all.texts, ["text 0", "text 1", "text 2", "text 3"]);
    },

    async "a wrong key is refused and disturbs nobody"({ make, service }) {
        const session = new Session(service);
        const call = await talk(make(), session, 1);
        const near = Buffer.from(session.secret);
        near[31] ^= 1;
        for (const secret of [near, randomBytes(32)])
            for (const position of ["0", "1"]) {
                const stranger = new Session(service, { key: session.key, secret });
                const attempt = make().open(stranger, { position }).chunk(9, "intruder").abort();
                const error = await attempt.refused(Code.PermissionDenied);
                assert.equal(detailOf(error), NOT_HIGH_ENOUGH_PERMISSIONS);
                assert.deepEqual(attempt.order, [], "not a word to a stranger");
            }
        call.chunk(1, "still mine").close();
        await call.endedWell();
        assert.deepEqual(call.texts, ["text 0", "still mine"]);
        const late = new Session(service, { key: session.key });
        await make().open(late).refused(Code.PermissionDenied); // a session that has ended, too
    },

    async "an unknown session with a position"({ make, service }) {
        const session = new Session(service);
        const error = await make().open(session, { position: "3" }).refused(Code.NotFound);
        const gap = gapOf(error);
        assert.equal(gap.requested, "3");
        assert.match(gap.reason, /unknown/i);
        // Nothing was made by asking: from the start it can still begin.
        const call = make().open(session).chunk(0, "begin").close();
        await call.endedWell();
        assert.deepEqual(call.ids, ["1"]);
    },

    async "a position behind the end"({ make, service }) {
        const session = new Session(service);
        const peer = make();
        const first = await talk(peer, session, 2);
        first.cancel();
        await first.ended();
        for (const position of ["3", "99", "1000000000000"]) {
            const error = await peer.open(session, { position }).refused(Code.OutOfRange);
            assert.equal(gapOf(error).requested, position);
        }
        const next = peer.open(session, { position: "2" }).chunk(2, "on").close();
        await next.endedWell();
        assert.deepEqual(next.ids, ["3"]);
    },

    async "headers that are missing or make no sense"({ make, service }) {
        const session = new Session(service);
        const good = session.headers();
        const text = good["x-idempotent-encryption-key"];
        const wrong = (name, value) => {
            const { [name]: _, ...rest } = good;
            return value === undefined ? rest : { ...rest, [name]: value };
        };
        const secrets = [
            undefined,
            "",
            "x",
            `${text}==`,
            text.slice(1),
            `${text.slice(1)}+`,
            `${text}A`,
        ];
        const peer = make();
        const attempts = [
            ...secrets.map((value) => wrong("x-idempotent-encryption-key", value)),
            ...["-1", "x", "1.5", "0x1", "18446744073709551616"].map((value) =>
                wrong("x-idempotency-event-id", value),
            ),
            ...["a/b", "x".repeat(5000)].map((value) => wrong("x-idempotency-key", value)),
        ];
        for (const headers of attempts) {
            const call = peer.open(session, { headers }).chunk(0, "x");
            await call.refused(Code.InvalidArgument);
        }
        // Without a key in the header the first message has to bring one.
        const { "x-idempotency-key": _, ...keyless } = good;
        const nameless = peer.open(session, { headers: keyless }).chunk(0, "x");
        await nameless.refused(Code.InvalidArgument);
        assert.deepEqual(nameless.order, []);
        await peer.open(session, { position: "1" }).refused(Code.NotFound); // none was made
    },

    async "half-close without close: all is answered, the session stays"({ make, service }) {
        const session = new Session(service);
        const peer = make();
        const first = peer.open(session);
        for (const n of numbers(20)) first.chunk(n, `text ${n}`);
        first.halfClose();
        await first.endedWell();
        assert.deepEqual(ascending(first.acks), numbers(20));
        assert.deepEqual(first.ids, ids(20));
        const second = peer.open(session, { position: "20" }).chunk(20, "and on").close();
        await second.endedWell();
        assert.deepEqual(second.events, [{ id: "21", text: "and on" }]);
    },

    async "abort ends the session, on the same connection"({ make, service }) {
        const session = new Session(service);
        const peer = make();
        const call = await talk(peer, session, 2);
        call.abort();
        await call.endedWell();
        // It is over for whoever comes back, and takes nothing more.
        const late = peer.open(session, { position: "2" }).chunk(2, "too late");
        await late.ended();
        assert.deepEqual(late.events, []);
    },

    async "abort by a call of its own"({ make, service }) {
        const session = new Session(service);
        const call = await talk(make(), session, 2);
        const abort = make().open(session, { position: "2" }).abort();
        await abort.endedWell();
        const error = await call.ended();
        assert.ok([Code.Canceled, Code.Aborted].includes(error?.code), `${error}`);
        await call.refused(error.code);
        if (error.code === Code.Canceled) assert.equal(detailOf(error), USER_ABORTED_REQUEST);
        // Twice is no error: the client may not have seen the answer.
        await make().open(session, { position: "2" }).abort().endedWell();
    },

    async "who comes back after the end gets the rest, and the end"({ make, service }) {
        const session = new Session(service);
        const first = await talk(make(), session, 3);
        first.close();
        await first.endedWell();
        const again = make().open(session, { position: "1" }).chunk(2, "text 2").close();
        await again.endedWell();
        assert.deepEqual(again.ids, ["2", "3"]);
        const nothing = make().open(session, { position: "3" });
        await nothing.endedWell();
        assert.deepEqual(nothing.ids, []);
    },

    async "large chunks, and compressed ones"({ make, service }) {
        const options = { sendCompression: compressionGzip, compressMinBytes: 1 };
        const text = randomBytes(512 << 10).toString("hex"); // 1 MiB
        for (const more of [{}, options]) {
            const call = make(more).open(new Session(service));
            call.chunk(0, text).chunk(1, "small").chunk(2, text).close().halfClose();
            await call.endedWell();
            assert.ok(call.texts[0] === text && call.texts[2] === text);
            assert.deepEqual(call.ids, ["1", "2", "3"]);
        }
    },

    async "messages beyond the bound end the call and nothing else"({ make, service }) {
        const peer = make();
        const other = await talk(peer, new Session(service), 1);
        const text = "x".repeat((4 << 20) + 100);
        for (const more of [{}, { sendCompression: compressionGzip, compressMinBytes: 1 }]) {
            const call = make(more).open(new Session(service)).chunk(0, text);
            const error = await call.ended();
            assert.equal(error?.code, Code.ResourceExhausted, `${error}`);
        }
        other.chunk(1, "fine").close();
        await other.endedWell();
    },
};

const TRANSPORTS = {
    "Connect over h2c": { protocol: "connect", secure: false },
    "Connect over TLS": { protocol: "connect", secure: true },
    "gRPC over h2c": { protocol: "grpc", secure: false },
};

test("sessions", { concurrency: 3 }, async (t) => {
    const authority = await Authority.create(t);
    const tls = authority.issue("server");
    const plain = await startSessions(t);
    const secure = await startSessions(t, { tls });
    const all = [];
    for (const [how, { protocol, secure: isSecure }] of Object.entries(TRANSPORTS))
        for (const service of SERVICES)
            for (const [what, check] of Object.entries(CASES))
                all.push(
                    t.test(`${how}, ${service.name}: ${what}`, (sub) => {
                        const server = isSecure ? secure : plain;
                        const options = { protocol, ca: isSecure ? tls.ca : undefined };
                        const make = (more) => new Peer(sub, server, { ...options, ...more });
                        return check({ make, service });
                    }),
                );
    await Promise.all(all);
});

test("over the budget a session is degraded, and works", async (t) => {
    const server = await startSessions(t, { session: { handler: "echo", "max-open": 2 } });
    const peer = new Peer(t, server);
    const kept = [];
    for (let i = 0; i < 2; i++) kept.push(await talk(peer, new Session(TIDEMARK), 1));
    assert.ok(kept.every((call) => call.welcome.isDegradedMode === false));
    const third = peer.open(new Session(TIDEMARK)).chunk(0, "hello");
    await third.welcomed();
    assert.equal(third.welcome.isDegradedMode, true);
    await third.seen(1);
    third.close();
    await third.endedWell();
    assert.deepEqual(third.texts, ["hello"]);
    for (const call of kept) {
        call.close();
        await call.endedWell();
    }
});

test("a server that is being stopped sends its clients away to come back", async (t) => {
    const server = await startSessions(t);
    const call = await talk(new Peer(t, server), new Session(TIDEMARK), 2);
    server.signal("SIGTERM");
    const error = await call.ended();
    assert.equal(error?.code, Code.Unavailable, `${error}`);
    assert.equal(error.details.length, 0, "details would make it stop");
    await server.stop();
});
