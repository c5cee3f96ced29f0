// SPDX-License-Identifier: Apache-2.0
// Sessions for clients without HTTP/2: a downlink and appends, and polls, over HTTP/1.1.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { ConnectError } from "@connectrpc/connect";
import { SERVICES } from "./lib/session-schema.mjs";
import { assertRefused, Code, OldPeer, Peer, Session } from "./lib/session.mjs";
import { startSessions } from "./lib/session-server.mjs";
import { within } from "./lib/wait.mjs";

/** Polls until eof, or until enough() of the messages: [{ seqno, message }] */
async function pollAll(peer, { start = true, position, enough = () => false } = {}) {
    const all = [];
    for (let first = start; ; first = false) {
        const { items, eof } = await within(peer.poll(first, position), "a poll");
        all.push(...items);
        if (eof || enough(all)) return { all, eof };
    }
}

const eventsIn = (session, items) =>
    items
        .filter(({ message }) => message.response.case === "serverChunk")
        .map(({ message }) => session.event(message.response.value));

const CASES = {
    async "a downlink, and appends in hex and as they are"({ server, session }) {
        const peer = new OldPeer(server, session);
        const down = peer.downlink();
        await down.welcomed();
        await peer.chunk(0, "hex");
        await down.acked(1);
        await peer.chunk(1, "binary", { binary: true });
        await peer.chunk(0, "again"); // another append, but no new chunk
        await down.seen(2);
        await peer.close();
        await down.endedWell();
        assert.equal(down.order[0], "welcomeMessage");
        assert.deepEqual(down.events, [
            { id: "1", text: "hex" },
            { id: "2", text: "binary" },
        ]);
        assert.deepEqual([...down.acks].sort(), [0, 0, 1]);
    },

    async "appends are put in order, stale ones are answered"({ server, session }) {
        const peer = new OldPeer(server, session);
        const down = peer.downlink();
        await down.welcomed();
        const order = [3, 1, 2, 0, 7, 6, 5, 4];
        const under = order.map((n) => peer.chunk(n, `text ${n}`, { seqno: n }));
        await within(Promise.all(under), "all appends");
        // Once more, and with another content: they have had their effect.
        for (const n of [0, 3]) await peer.chunk(n + 100, "stale", { seqno: n });
        await peer.close({ seqno: 8 });
        await down.endedWell();
        assert.deepEqual(
            down.texts,
            [0, 1, 2, 3, 4, 5, 6, 7].map((n) => `text ${n}`),
        );
        assert.deepEqual(
            [...down.acks].sort((a, b) => a - b),
            [0, 1, 2, 3, 4, 5, 6, 7],
        );
    },

    async "a downlink that drops goes on behind the client's last event"({ server, session }) {
        const first = new OldPeer(server, session);
        const down = first.downlink();
        await down.welcomed();
        for (const n of [0, 1, 2]) await first.chunk(n, `text ${n}`);
        await down.seen(3);
        down.cancel();
        await down.ended();
        const second = new OldPeer(server, session);
        const rest = second.downlink("1");
        await rest.welcomed();
        await second.chunk(2, "text 2"); // was not acknowledged, for all it knows
        await second.chunk(3, "text 3");
        await second.close();
        await rest.endedWell();
        assert.deepEqual(rest.ids, ["2", "3", "4"]);
        assert.equal(rest.texts[2], "text 3");
        assert.deepEqual([...rest.acks].sort(), [2, 3]);
    },

    async "from HTTP/1.1 to HTTP/2 and back"({ t, server, session }) {
        const old = new OldPeer(server, session);
        const down = old.downlink();
        await down.welcomed();
        await old.chunk(0, "by append");
        await down.seen(1);
        const call = new Peer(t, server).open(session, { position: "1" }).chunk(1, "by stream");
        await call.seen(1);
        const reason = await down.ended();
        assertRefused(reason, Code.Aborted);
        const last = new OldPeer(server, session);
        const end = last.downlink("0");
        await end.seen(2);
        await last.close();
        await end.endedWell();
        assert.deepEqual(end.texts, ["by append", "by stream"]);
        assertRefused(await call.ended(), Code.Aborted);
    },

    async polls({ server, session }) {
        const peer = new OldPeer(server, session);
        const first = await pollAll(peer, { enough: (all) => all.length > 0 });
        assert.equal(first.all[0].message.response.case, "welcomeMessage");
        await peer.chunk(0, "one");
        await peer.chunk(1, "two");
        const enough = (all) => eventsIn(new Session(session.service, session), all).length === 2;
        const second = await pollAll(peer, { start: false, enough });
        await peer.close();
        const third = await pollAll(peer, { start: false });
        assert.equal(third.eof, true);
        const all = [...first.all, ...second.all, ...third.all];
        assert.deepEqual(eventsIn(session, all), [
            { id: "1", text: "one" },
            { id: "2", text: "two" },
        ]);
        const acks = all.filter(({ message }) => message.response.case === "seqnoAck");
        assert.deepEqual(acks.map(({ message }) => message.response.value).sort(), [0, 1]);
        const seqnos = all.map(({ seqno }) => seqno);
        assert.ok(
            seqnos.every((seqno, i) => i === 0 || seqno > seqnos[i - 1]),
            `growing: ${seqnos}`,
        );
    },

    async "a poll begun anew goes on behind a position"({ server, session }) {
        const first = new OldPeer(server, session);
        await pollAll(first, { enough: (all) => all.length > 0 });
        for (const n of [0, 1, 2]) await first.chunk(n, `text ${n}`);
        const enough = (all) => eventsIn(new Session(session.service, session), all).length === 3;
        const { all } = await pollAll(first, { start: false, enough });
        eventsIn(session, all); // their MACs are where the next ones begin
        const second = new OldPeer(server, session);
        const begun = await pollAll(second, { position: "1", enough: (list) => list.length > 2 });
        await second.close();
        const rest = await pollAll(second, { start: false, position: "1" });
        const events = eventsIn(session, [...begun.all, ...rest.all]);
        assert.deepEqual(
            events.map(({ id }) => id),
            ["2", "3"],
        );
    },

    async "errors: a wrong key, an unknown position, appends that make no sense"({
        server,
        session,
        service,
    }) {
        const peer = new OldPeer(server, session);
        const down = peer.downlink();
        await down.welcomed();
        await peer.chunk(0, "mine");
        const stranger = new OldPeer(server, new Session(service, { key: session.key }));
        assertRefused(await stranger.downlink().ended(), Code.PermissionDenied);
        const nobody = new OldPeer(server, new Session(service));
        assertRefused(await nobody.downlink("5").ended(), Code.NotFound);
        const request = { requestId: { requestId: peer.requestId }, appendSeqno: 1n };
        const append = (more) =>
            peer.appends[service.local("append")](
                { ...request, ...more },
                { headers: peer.headers() },
            );
        for (const more of [
            { data: "xyz" },
            { data: "0a0" },
            { data: "0a002801", dataBinary: Buffer.from("0a002801", "hex") },
            { data: "0a002801", requestId: undefined },
            { data: "0a002801", appendSeqno: -1n },
        ]) {
            const error = await append(more).then(() => null, ConnectError.from);
            assertRefused(error, Code.InvalidArgument);
        }
        await peer.close();
        await down.endedWell();
        assert.deepEqual(down.texts, ["mine"]);
    },

    async "a request id belongs to one downlink"({ server, session, service }) {
        const requestId = randomUUID();
        const older = new OldPeer(server, session, { requestId });
        const first = older.downlink();
        await first.welcomed();
        const { secret } = session;
        const newer = new OldPeer(server, new Session(service, { secret }), { requestId });
        const second = newer.downlink();
        await second.welcomed();
        assert.notEqual(await first.ended(), null);
        await newer.chunk(0, "to the newer one");
        await newer.close();
        await second.endedWell();
        assert.deepEqual(second.texts, ["to the newer one"]);
        assert.deepEqual(first.events, []);
    },

    // Whoever has seen a request id go by, in a log say.
    async "a request id without the key opens nothing"({ server, session, service }) {
        const requestId = randomUUID();
        const peer = new OldPeer(server, session, { requestId });
        const down = peer.downlink();
        await down.welcomed();
        const stranger = new OldPeer(server, new Session(service), { requestId });
        const message = session.chunk(0, "injected");
        const abort = session.request({ request: { case: "abort", value: {} } });
        for (const headers of [{}, { "x-idempotency-key": session.key }]) {
            stranger.headers = () => headers;
            for (const what of [message, abort])
                assertRefused(
                    await stranger.append(what, { seqno: 0 }).then(() => null, ConnectError.from),
                    Code.InvalidArgument,
                );
            const poll = await stranger.poll(false).then(() => null, ConnectError.from);
            assertRefused(poll, Code.InvalidArgument);
        }
        delete stranger.headers;
        const wrong = [message, abort].map((what, seqno) =>
            stranger.append(what, { seqno }).then(() => null, ConnectError.from),
        );
        const poll = await stranger.poll(false).then(() => null, ConnectError.from);
        assert.equal(poll?.code, Code.NotFound);
        const theirs = stranger.downlink(); // another channel, and their own session
        await theirs.welcomed();
        await within(Promise.all(wrong), "what was said under another key");
        await theirs.endedWell();
        await peer.chunk(0, "mine");
        await peer.close();
        await down.endedWell();
        assert.deepEqual(down.texts, ["mine"]);
    },

    async "a chunk for a session that has ended is refused"({ server, session }) {
        const peer = new OldPeer(server, session);
        const down = peer.downlink();
        await down.welcomed();
        await peer.chunk(0, "all");
        await peer.close();
        await down.endedWell();
        const later = new OldPeer(server, session);
        const more = later.chunk(1, "more").then(() => null, ConnectError.from);
        const again = later.downlink("1");
        assertRefused(await more, Code.InvalidArgument);
        assertRefused(await again.ended(), Code.InvalidArgument);
        assert.deepEqual(again.acks, []);
    },
};

test("beside HTTP/2", { concurrency: 4 }, async (t) => {
    const server = await startSessions(t);
    const all = SERVICES.flatMap((service) =>
        Object.entries(CASES).map(([what, check]) =>
            t.test(`${service.name}: ${what}`, (sub) =>
                check({ t: sub, server, service, session: new Session(service) }),
            ),
        ),
    );
    await Promise.all(all);
});
