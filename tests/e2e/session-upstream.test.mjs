// SPDX-License-Identifier: Apache-2.0
// Sessions that are answered by a server of somebody else's.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { credentials, loadPackageDefinition, Metadata } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { defer } from "./lib/defer.mjs";
import { AISERVER, PROTO, PROTO_FILES, SERVICES } from "./lib/session-schema.mjs";
import { Code, detailOf, Peer, Session } from "./lib/session.mjs";
import { startSessions, startSessionSite } from "./lib/session-server.mjs";
import { eventsOf, startUpstream } from "./lib/session-upstream.mjs";
import { until } from "./lib/wait.mjs";

const PROVIDER_ERROR = 57;

const keys = (requests) => requests.map(({ key }) => key);
const keyOf = (session, seqno) => `${session.key}/${seqno}`;
const say = (call, seqno, plan) => call.chunk(seqno, JSON.stringify(plan));

/** Each gets make(): a client; the upstream, and a session. */
const CASES = {
    async "each chunk once, in order, and its events"({ peer, upstream, session }) {
        const plans = [
            { name: "a", events: 3 },
            { name: "b", events: 1, ids: false },
            { name: "c", events: 0 },
            { name: "d", events: 20 },
        ];
        const seqnos = [0, 5, 2, 9];
        const call = peer.open(session);
        plans.forEach((plan, i) => say(call, seqnos[i], plan));
        say(call, 5, plans[1]).close(); // once more
        await call.endedWell();
        assert.deepEqual(call.texts, plans.flatMap(eventsOf));
        assert.deepEqual(
            call.ids,
            call.texts.map((_, i) => String(i + 1)),
        );
        const requests = upstream.of(session);
        assert.deepEqual(
            keys(requests),
            seqnos.map((seqno) => keyOf(session, seqno)),
        );
        requests.forEach(({ text, method, headers, lastEventId }, i) => {
            assert.equal(text, JSON.stringify(plans[i]));
            assert.equal(method, "POST");
            assert.match(headers.accept, /text\/event-stream/);
            assert.equal(lastEventId, undefined);
            const said = JSON.stringify(headers);
            assert.ok(!said.includes(session.secret.toString("base64url")), "the key stays here");
        });
        if (session.service === AISERVER)
            assert.equal(requests[0].headers["content-type"], "application/proto");
    },

    async "503 is tried again with the same key"({ peer, upstream, session }) {
        const plan = { name: "retry", events: 2, refuse: [503, 503] };
        const call = say(say(peer.open(session), 0, plan), 1, { name: "next" }).close();
        await call.endedWell();
        assert.deepEqual(call.texts, ["retry-1", "retry-2", "next-1"]);
        const expected = [0, 0, 0, 1].map((seqno) => keyOf(session, seqno));
        assert.deepEqual(keys(upstream.of(session)), expected);
        const bodies = upstream.of(session).map(({ text }) => text);
        assert.equal(new Set(bodies.slice(0, 3)).size, 1);
    },

    async "an answer that is cut goes on behind its last event"({ peer, upstream, session }) {
        const plan = { name: "cut", events: 6, cuts: [2, 5] };
        const call = say(say(peer.open(session), 0, plan), 1, { name: "next" }).close();
        await call.endedWell();
        assert.deepEqual(call.texts, [...eventsOf(plan), "next-1"]);
        const requests = upstream.of(session);
        const expected = [0, 0, 0, 1].map((seqno) => keyOf(session, seqno));
        assert.deepEqual(keys(requests), expected);
        assert.deepEqual(
            requests.map(({ lastEventId }) => lastEventId),
            [undefined, "e2", "e5", undefined],
        );
    },

    async "cut before the first event it begins again"({ peer, upstream, session }) {
        const plan = { name: "early", events: 2, ids: false, cuts: [0] };
        const call = say(peer.open(session), 0, plan).close();
        await call.endedWell();
        assert.deepEqual(call.texts, ["early-1", "early-2"]);
        assert.deepEqual(keys(upstream.of(session)), [keyOf(session, 0), keyOf(session, 0)]);
    },

    async "cut without ids the session fails"({ make, peer, upstream, session }) {
        const plan = { name: "lost", events: 4, ids: false, cuts: [2] };
        const call = say(say(peer.open(session), 0, plan), 1, { name: "never" });
        const error = await call.refused(Code.Internal);
        assert.equal(detailOf(error), PROVIDER_ERROR);
        assert.deepEqual(call.texts, ["lost-1", "lost-2"], "what came is not taken back");
        assert.equal(upstream.of(session).length, 1, "and nobody asks again");
        // Whoever comes back hears the same.
        const again = make().open(session, { position: "1" });
        await again.refused(Code.Internal);
        assert.deepEqual(again.texts, ["lost-2"]);
    },

    async "refusals and errors of the backend end it as failed"({ make, upstream, service }) {
        const plans = [
            { name: "no", answer: { status: 422, type: "text/plain", body: "no" } },
            { name: "err", events: 1, error: "the model is out" },
        ];
        for (const plan of plans) {
            const session = new Session(service);
            const call = say(make().open(session), 0, plan);
            const error = await call.refused(Code.Internal);
            assert.equal(detailOf(error), PROVIDER_ERROR);
            if (plan.error) assert.match(error.rawMessage, /the model is out/);
            assert.equal(upstream.of(session).length, 1);
        }
    },

    async "an answer that is no stream is one event"({ peer, session, service }) {
        const json = {
            name: "j",
            answer: { type: "application/json", body: `{"whole":"answer"}` },
        };
        const call = say(peer.open(session), 0, json);
        const expected = [`{"whole":"answer"}`];
        if (service === AISERVER) {
            const value = { toolCallId: "call-7", name: "grep" };
            const response = { case: "clientSideToolV2Call", value };
            const bytes = toBinary(
                AISERVER.ServerChunk,
                create(AISERVER.ServerChunk, { response }),
            );
            const body = Buffer.from(bytes).toString("base64");
            say(call, 1, { name: "t", answer: { type: "application/proto", body, binary: true } });
            expected.push("clientSideToolV2Call call-7");
        }
        call.close();
        await call.endedWell();
        assert.deepEqual(call.texts, expected);
    },

    async "abort stops the backend"({ peer, upstream, session }) {
        const plan = { name: "stop", events: 9, hang: 2 };
        const call = say(say(peer.open(session), 0, plan), 1, { name: "never" });
        await call.seen(2);
        const request = await upstream.seen(session, 0);
        assert.equal(request.closed, false);
        call.abort();
        await call.endedWell();
        await until(() => request.closed, "the backend's connection to be closed");
        const late = peer.open(session, { position: "2" });
        say(late, 2, { name: "late" });
        await late.ended();
        assert.deepEqual(late.events, []);
        assert.deepEqual(keys(upstream.of(session)), [keyOf(session, 0)], "nothing follows");
    },

    async "abort by another call stops it too"({ make, peer, upstream, session }) {
        const call = say(peer.open(session), 0, { name: "stop", events: 9, hang: 1 });
        await call.seen(1);
        const request = await upstream.seen(session, 0);
        await make().open(session, { position: "1" }).abort().endedWell();
        await until(() => request.closed, "the backend's connection to be closed");
        assert.notEqual(await call.ended(), null);
    },

    async "an answer goes on while its client is away"({ peer, upstream, session }) {
        const call = say(peer.open(session), 0, { name: "away", events: 10, pause: 5 });
        await call.seen(1);
        peer.cut();
        await call.ended();
        const [request] = upstream.of(session);
        await until(() => request.complete, "the whole answer");
        const position = call.ids.at(-1);
        const back = peer.open(session, { position }).close();
        await back.endedWell();
        assert.deepEqual([...call.texts, ...back.texts], eventsOf({ name: "away", events: 10 }));
        assert.deepEqual(keys(upstream.of(session)), [keyOf(session, 0)]);
    },
};

test("a backend by HTTP", { concurrency: 4 }, async (t) => {
    const upstream = await startUpstream(t);
    const server = await startSessions(t, { session: { upstream: upstream.url } });
    const all = SERVICES.flatMap((service) =>
        Object.entries(CASES).map(([what, check]) =>
            t.test(`${service.name}: ${what}`, (sub) => {
                const make = () => new Peer(sub, server);
                const session = new Session(service);
                return check({ make, peer: make(), upstream, session, service });
            }),
        ),
    );
    await Promise.all(all);
});

/** A session that keeps its server chunks as the client read them. */
class Keeping extends Session {
    chunks = [];

    event(chunk) {
        this.chunks.push(chunk.response);
        return super.event(chunk);
    }
}

const TOOL_CALL = { toolCallId: "call-7", name: "grep", rawArgs: '{"for":"x"}', toolIndex: 0 };
const TYPED = {
    name: "typed",
    answer: {
        type: "text/event-stream",
        body: [
            "event: thinking\nid: 1\ndata: let me\ndata: see\n\n",
            `event: tool_call\nid: 2\ndata: ${JSON.stringify(TOOL_CALL)}\n\n`,
            "id: 3\ndata: so\n\n",
            "event: data\nid: 4\ndata: GgA=\n\n", // an empty conversation_summary
        ].join(""),
    },
};

test("thinking and tool calls arrive as fields of their own", async (t) => {
    const upstream = await startUpstream(t);
    const server = await startSessions(t, { session: { upstream: upstream.url } });
    for (const protocol of ["connect", "grpc"]) {
        const session = new Keeping(AISERVER);
        const call = say(new Peer(t, server, { protocol }).open(session), 0, TYPED).close();
        await call.endedWell();
        assert.deepEqual(call.ids, ["1", "2", "3", "4"]);
        const [thought, tool, text, summary] = session.chunks;
        assert.equal(thought.case, "streamUnifiedChatResponse");
        assert.equal(thought.value.thinking.text, "let me\nsee");
        assert.equal(thought.value.text, "");
        assert.equal(tool.case, "clientSideToolV2Call");
        for (const [name, value] of Object.entries(TOOL_CALL)) assert.equal(tool.value[name], value);
        assert.equal(tool.value.timeoutMs, undefined);
        assert.equal(text.case, "streamUnifiedChatResponse");
        assert.equal(text.value.text, "so");
        assert.equal(text.value.thinking, undefined);
        assert.equal(summary.case, "conversationSummary");
    }
    const definition = loadSync(PROTO_FILES, { includeDirs: [PROTO], oneofs: true });
    const { ChatService } = loadPackageDefinition(definition).aiserver.v1;
    const client = new ChatService(new URL(server.base).host, credentials.createInsecure());
    defer(t, () => client.close());
    const metadata = new Metadata();
    for (const [name, value] of Object.entries(new Session(AISERVER).headers()))
        metadata.set(name, value);
    const call = client[AISERVER.bidi](metadata);
    call.write({
        clientChunk: {
            streamUnifiedChatRequest: { conversation: [{ text: JSON.stringify(TYPED) }] },
        },
        seqno: 0,
    });
    call.end({ close: {} });
    const chunks = [];
    for await (const { serverChunk } of call) if (serverChunk) chunks.push(serverChunk);
    assert.equal(chunks[0].streamUnifiedChatResponse.thinking.text, "let me\nsee");
    assert.equal(chunks[1].clientSideToolV2Call.toolCallId, "call-7");
    assert.equal(chunks[1].clientSideToolV2Call.rawArgs, TOOL_CALL.rawArgs);
    assert.equal(chunks[2].streamUnifiedChatResponse.text, "so");
});

/** Gives the disk so much to do, until the test ends, that nothing gets there in no time. */
async function keepBusy(site, name) {
    const headers = { "content-type": "application/octet-stream" };
    const body = Buffer.alloc(1 << 20, "ballast ");
    while (!site.over) {
        const answer = site.up ? await site.once("POST", name, { headers, body }) : null;
        if (answer === null) await delay(5);
        else if (answer.status === 404) await site.once("PUT", name, { headers });
    }
}

// When the backend is asked the next thing, the answer before is known for good.
test("killed in the moment when the next chunk is asked for", async (t) => {
    let site;
    let fatal = null; // the key at which the server dies
    let death;
    const upstream = await startUpstream(t, (plan, { key }) => {
        if (key !== fatal) return plan;
        fatal = null;
        death = site.kill();
        return plan;
    });
    site = await startSessionSite(t, { session: { upstream: upstream.url } });
    for (const name of ["ballast/0", "ballast/1"]) keepBusy(site, name);
    const before = [
        { name: "events", events: 3 },
        { name: "none", events: 0 },
        { name: "nameless", events: 2, ids: false },
        { name: "whole", answer: { type: "text/plain", body: "whole-1" } },
    ];
    for (const [i, plan] of before.entries()) {
        const session = new Session(SERVICES[i % 2]);
        const peer = new Peer(t, site);
        fatal = keyOf(session, 1);
        const next = { name: "next", events: 2 };
        const first = say(say(peer.open(session), 0, plan), 1, next);
        assert.notEqual(await first.ended(), null, "the server was killed");
        await death;
        await site.start();
        const position = String(first.events.length);
        const second = say(say(peer.open(session, { position }), 0, plan), 1, next).close();
        await second.endedWell();
        assert.deepEqual([...first.texts, ...second.texts], [...eventsOf(plan), ...eventsOf(next)]);
        assert.deepEqual(
            keys(upstream.of(session)),
            [0, 1, 1].map((seqno) => keyOf(session, seqno)),
            `the chunks at the backend, first ${plan.name}`,
        );
    }
});
