// SPDX-License-Identifier: Apache-2.0
// What the Cascade bridge asks of a language server, and what it makes of refusals.
import grpc from "@grpc/grpc-js";
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
    ask,
    asking,
    before,
    chunksOf,
    collect,
    endless,
    MODEL,
    PATH,
    quick,
    says,
    SESSION_ERROR,
    startBridge,
} from "./lib/cascade.mjs";
import { open } from "./lib/gateway.mjs";
import { CSRF, failure, fieldsOf, KEY, step } from "./lib/language-server.mjs";
import { freePort } from "./lib/server.mjs";

const LOAD_BEARING = [1, 2, 3, 4, 5, 7, 9, 10, 12, 16, 17, 24, 25, 26, 28];

describe("the flow", { concurrency: 6 }, () => {
    test("the requests are what the language server wants", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("ping", quick);
        assert.equal((await ask(bridge, "ping")).text, "pong");
        await bridge.editor.archived(1);
        const { editor } = bridge;
        assert.ok(editor.calls.every(({ token }) => token === CSRF));

        const [start] = editor.of("StartCascade");
        assert.deepEqual(
            fieldsOf(start.raw).map(([number]) => number),
            [1, 4, 5],
            "a fresh trajectory has no base",
        );
        assert.equal(start.request.source, 1);
        assert.equal(start.request.trajectoryType, 4);

        const [send] = editor.of("SendUserCascadeMessage");
        assert.equal(send.request.cascadeId, "cascade-1");
        assert.deepEqual(send.request.items, [{ text: "ping" }]);
        const planner = send.request.cascadeConfig.plannerConfig;
        assert.ok(planner.conversational, "without it no planner is attached");
        assert.equal(planner.requestedModelUid, MODEL);
        assert.equal(send.request.blocking, false);

        const withMetadata = editor.calls.filter(({ request }) => request.metadata);
        assert.ok(withMetadata.length >= 3);
        for (const { raw, request, rpc } of withMetadata) {
            const at = rpc === "SendUserCascadeMessage" ? 3 : 1;
            const fields = fieldsOf(fieldsOf(raw).find(([number]) => number === at)[1]);
            assert.deepEqual(fields.map(([number]) => number), LOAD_BEARING, `Metadata of ${rpc}`);
            assert.equal(request.metadata.apiKey, KEY);
            assert.equal(request.metadata.extensionPath, "");
            assert.equal(request.metadata.deviceFingerprint, "");
        }
        const ids = withMetadata.map(({ request }) => BigInt(request.metadata.requestId));
        assert.ok(ids.every((id, i) => i === 0 || id > ids[i - 1]), `they grow: ${ids}`);
        assert.ok(ids[0] > 1_700_000_000_000n, "from the clock in milliseconds");
        for (const field of ["sessionId", "triggerId"]) {
            const texts = withMetadata.map(({ request }) => request.metadata[field]);
            assert.equal(new Set(texts).size, texts.length, `a ${field} of its own for each`);
        }
        const polls = editor.of("GetCascadeTranscriptForTrajectoryId");
        assert.ok(polls.every(({ raw }) => fieldsOf(raw).length === 1), "no step_offset");
        assert.deepEqual(
            fieldsOf(editor.of("ArchiveCascadeTrajectory")[0].raw).map(([number]) => number),
            [1],
        );
    });

    test("the panel is initialised once for callers that come together", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("ping", quick);
        const all = await Promise.all([1, 2, 3, 4].map(() => ask(bridge, "ping")));
        assert.deepEqual(all.map(({ text }) => text), ["pong", "pong", "pong", "pong"]);
        assert.equal(bridge.editor.count("InitializeCascadePanelState"), 1);
        assert.equal(bridge.editor.count("GetUserStatus"), 1, "and the models are asked for once");
        await bridge.editor.archived(4);
    });

    test("a session error initialises the panel once more", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("ping", quick);
        bridge.editor.fail("StartCascade", failure(grpc.status.FAILED_PRECONDITION, SESSION_ERROR));
        assert.equal((await ask(bridge, "ping")).text, "pong");
        assert.equal(bridge.editor.count("InitializeCascadePanelState"), 2);
        assert.equal(bridge.editor.count("StartCascade"), 2);
    });

    test("earlier messages are told in the prompt", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("last word", quick);
        const messages = [
            { role: "system", content: "Be brief." },
            { role: "user", content: "first" },
            { role: "assistant", content: "reply" },
            { role: "user", content: [{ type: "text", text: "last word" }] },
        ];
        const answer = await bridge.client.chat.completions.create({ model: MODEL, messages });
        assert.equal(answer.choices[0].message.content, "pong");
        const { prompt } = bridge.editor.trajectories.get("cascade-1");
        assert.equal(
            prompt,
            "Instructions:\nBe brief.\n\nPrevious user message:\nfirst\n\n" +
                "Previous assistant reply:\nreply\n\nlast word",
        );
    });
});

async function refused(bridge, prompt, pattern) {
    const chat = bridge.client.chat.completions;
    await assert.rejects(
        async () => collect(await chat.create(asking(prompt, { stream: true }))),
        (error) => {
            assert.match(String(error.message), pattern);
            assert.doesNotMatch(String(error.message), new RegExp(`${CSRF}|${KEY}`));
            return true;
        },
    );
}

describe("failures", { concurrency: 6 }, () => {
    test("failed_precondition in the trailers, again and again", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("ping", quick);
        const error = failure(grpc.status.FAILED_PRECONDITION, SESSION_ERROR);
        bridge.editor.fail("StartCascade", error, error, error);
        await refused(bridge, "ping", /Cascade session/);
        assert.equal(bridge.editor.count("StartCascade"), 2, "tried once more and no further");
    });

    test("failed_precondition in a System message", async (t) => {
        const bridge = await startBridge(t);
        const words = `failed_precondition: ${SESSION_ERROR} (error ID: 1)`;
        bridge.editor.script("ping", [step([...before, [3, "System", words]])]);
        await refused(bridge, "ping", /Cascade session/);
        await bridge.editor.archived(1);
    });

    test("unimplemented", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("ping", quick);
        bridge.editor.fail(
            "SendUserCascadeMessage",
            failure(grpc.status.UNIMPLEMENTED, "SendUserCascadeMessage is deprecated :)"),
        );
        await refused(bridge, "ping", /deprecated :\)/);
        await bridge.editor.archived(1);
    });

    test("polls that keep failing are given up, and the trajectory is archived", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("ping", [
            step([...before, says(3, "half")]),
            failure(grpc.status.UNAVAILABLE, "the planner is gone"),
        ]);
        await refused(bridge, "ping", /the planner is gone/);
        await bridge.editor.archived(1);
    });

    test("an answer without a checkpoint ends with an error, and not with stop", async (t) => {
        const bridge = await startBridge(t, { settings: { timeout: "2s" } });
        bridge.editor.script("ping", [step([...before, says(3, "half")])]);
        const chat = bridge.client.chat.completions;
        const seen = [];
        await assert.rejects(
            async () => {
                const stream = await chat.create(asking("ping", { stream: true }));
                for await (const chunk of stream) seen.push(...chunk.choices);
            },
            /was not complete in time/,
        );
        assert.equal(seen.map(({ delta }) => delta.content ?? "").join(""), "half");
        assert.ok(seen.every(({ finish_reason }) => finish_reason === null));
        await assert.rejects(chat.create(asking("ping")), (error) => error.status === 504);
        await bridge.editor.archived(2);
    });

    test("a wrong CSRF token is said so, and not shown", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.csrf = "another";
        await refused(bridge, "ping", /CSRF|token/i);
        assert.equal(bridge.editor.trajectories.size, 0);
    });

    test("no language server at that port", async (t) => {
        const bridge = await startBridge(t, {
            settings: { target: `http://127.0.0.1:${await freePort()}` },
        });
        await refused(bridge, "ping", /./);
    });

    test("an unknown model", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("ping", quick);
        const chat = bridge.client.chat.completions;
        await assert.rejects(
            chat.create({ ...asking("ping"), model: "no-such-model" }),
            (error) => error.status === 404 && /no-such-model/.test(error.message),
        );
        assert.equal(bridge.editor.trajectories.size, 0);
    });

    test("a lost session that shows late: a new panel for the next question", async (t) => {
        const bridge = await startBridge(t);
        const words = `failed_precondition: ${SESSION_ERROR}`;
        bridge.editor.script("lost", [step([...before, [3, "System", words]])]);
        bridge.editor.script("ping", quick);
        await refused(bridge, "lost", /Cascade session/);
        assert.equal((await ask(bridge, "ping")).text, "pong");
        assert.equal(bridge.editor.count("InitializeCascadePanelState"), 2);
    });

    test("a key that is refused in a System message is said so, and not shown", async (t) => {
        const bridge = await startBridge(t);
        const words = `unauthenticated: ${KEY} is not known, nor is ${CSRF}`;
        bridge.editor.script("ping", [step([...before, [3, "System", words]])]);
        await assert.rejects(bridge.client.chat.completions.create(asking("ping")), (error) => {
            assert.deepEqual([error.status, error.code], [401, "AUTH_FAILED"]);
            assert.match(error.message, /unauthenticated: \*+ is not known, nor is \*+/);
            return true;
        });
        assert.ok(!bridge.server.stderr.includes(KEY) && !bridge.server.stderr.includes(CSRF));
    });

    test("a long error does not end with the beginning of a secret", async (t) => {
        const bridge = await startBridge(t);
        const details = `${"x".repeat(1000)}${KEY}`;
        bridge.editor.script("ping", quick);
        bridge.editor.fail("SendUserCascadeMessage", failure(grpc.status.INTERNAL, details));
        await assert.rejects(bridge.client.chat.completions.create(asking("ping")), (error) => {
            assert.match(error.message, /x\*+$/);
            return true;
        });
    });

    test("what could not be archived for want of a token is archived with it", async (t) => {
        const bridge = await startBridge(t, { disk: true });
        const { editor, server } = bridge;
        editor.script("go", endless);
        const headers = { "Content-Type": "application/json" };
        const body = JSON.stringify(asking("go", { stream: true }));
        const reader = await open(t, server, "POST", PATH, headers, body);
        await chunksOf(reader, 1);
        editor.csrf = "of another run";
        await server.stop();
        assert.ok(editor.count("ArchiveCascadeTrajectory") > 0, "it was tried");
        assert.equal(editor.trajectories.get("cascade-1").archived, 0);
        editor.csrf = CSRF;
        await bridge.start();
        await editor.archived(1);
    });
});
