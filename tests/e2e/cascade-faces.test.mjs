// SPDX-License-Identifier: Apache-2.0
// What clients of the Cascade bridge get: models, answers in one piece or resumed, and their end.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import {
    ask,
    asking,
    before,
    chunksOf,
    done,
    endless,
    PATH,
    quick,
    says,
    startBridge,
} from "./lib/cascade.mjs";
import { open } from "./lib/gateway.mjs";
import { step } from "./lib/language-server.mjs";
import { tidemark } from "./lib/run.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until, within } from "./lib/wait.mjs";

const slow = [
    step(before),
    ...[1, 2, 3, 4, 5, 6].map((n) => step([...before, says(3, "abcdef".slice(0, n))])),
    step([...before, says(3, "abcdef"), done(4)]),
];

describe("faces", { concurrency: 6 }, () => {
    test("the models are those of the account", async (t) => {
        const bridge = await startBridge(t);
        const list = await bridge.client.models.list();
        const usable = list.data.filter(({ disabled }) => !disabled);
        assert.deepEqual(usable.map(({ id }) => id).sort(), [
            "MODEL_CLAUDE_4_5_OPUS",
            "MODEL_PRIVATE_2",
            "claude-opus-4-7-medium",
            "kimi-k2-6",
        ]);
        assert.deepEqual(
            list.data.filter(({ disabled }) => disabled).map(({ id }) => id),
            ["out-of-order"],
        );
        assert.ok(list.data.every(({ object }) => object === "model"));
        assert.ok(bridge.editor.count("GetUserStatus") > 0, "they are asked for, not known");
    });

    test("every refusal has OpenAI's form", async (t) => {
        const { editor, server } = await startBridge(t, { settings: { parallel: "1" } });
        editor.script("ping", quick);
        editor.script("endless", endless);
        const send = (body, headers = {}, method = "POST", rest = "") =>
            fetch(`${server.base}${PATH}${rest}`, {
                method,
                headers: { connection: "close", ...headers },
                body: method === "POST" ? JSON.stringify(body) : undefined,
            });
        const assertRefused = async (answer, status, type, code) => {
            assert.equal(answer.status, status);
            const { error, ...rest } = await answer.json();
            assert.deepEqual(rest, {});
            assert.deepEqual([error.type, error.param, error.code], [type, null, code]);
            assert.equal(typeof error.message, "string");
        };
        const invalid = "invalid_request_error";
        const key = { "Idempotency-Key": "k" };
        assert.equal((await send(asking("ping"), key)).status, 200);
        await assertRefused(await send(asking("pong"), key), 422, invalid, "KEY_REUSED");
        await assertRefused(await send(null, {}, "GET"), 405, invalid, "METHOD");
        await assertRefused(await send(null, {}, "GET", "/nothing"), 404, invalid, "NO_ROUTE");
        await assertRefused(
            await send({ pad: "x".repeat(17 << 20) }),
            413,
            invalid,
            "TOO_LARGE",
        );
        const endlessly = await open(
            t,
            server,
            "POST",
            PATH,
            {},
            JSON.stringify(asking("endless", { stream: true })),
        );
        await chunksOf(endlessly, 2);
        await assertRefused(await send(asking("ping")), 429, "rate_limit_error", "RATE_LIMITED");
        server.signal("SIGTERM");
        const draining = await until(async () => {
            const answer = await send(asking("ping")).catch(() => null);
            return answer?.status === 503 && answer;
        }, "the drain");
        assert.ok(draining.headers.get("retry-after"));
        await assertRefused(draining, 503, "server_error", "DRAINING");
    });

    test("an answer under way finishes when the server is stopped", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("slow", slow);
        const stream = await bridge.client.chat.completions.create(
            asking("slow", { stream: true }),
        );
        let text = "";
        let finish;
        for await (const { choices } of stream) {
            if (text === "" && choices[0]?.delta.content) bridge.server.signal("SIGTERM");
            text += choices[0]?.delta.content ?? "";
            finish = choices[0]?.finish_reason ?? finish;
        }
        assert.deepEqual({ text, finish }, { text: "abcdef", finish: "stop" });
        await bridge.editor.archived(1);
        assert.equal((await within(bridge.server.ended, "the server to end")).code, 0);
    });

    test("an answer in one piece", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("ping", quick);
        const answer = await bridge.client.chat.completions.create(asking("ping"));
        assert.equal(answer.object, "chat.completion");
        assert.equal(answer.choices[0].message.role, "assistant");
        assert.equal(answer.choices[0].message.content, "pong");
        assert.equal(answer.choices[0].finish_reason, "stop");
        await bridge.editor.archived(1);
    });

    test("what was used, estimated, for those who ask", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("ping", quick);
        const chat = bridge.client.chat.completions;
        const options = { stream: true, stream_options: { include_usage: true } };
        const chunks = [];
        for await (const chunk of await chat.create(asking("ping", options)))
            if (chunk.object === "chat.completion.chunk") chunks.push(chunk);
        const last = chunks.pop();
        assert.deepEqual(last.choices, []);
        const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
        assert.deepEqual(last.usage, { ...usage, tidemark: { estimated: true } });
        const answered = chunks.filter(({ choices }) => choices.length > 0);
        assert.ok(answered.every((chunk) => chunk.usage === null), "and null before it");
        assert.equal(answered.at(-1).choices[0].finish_reason, "stop");
        const whole = await chat.create(asking("ping"));
        assert.deepEqual(whole.usage, last.usage);
        for await (const chunk of await chat.create(asking("ping", { stream: true })))
            assert.equal(chunk.usage, undefined);
    });

    test("tools that a request offers are ignored, and a trace says so once", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("ping", quick);
        const tools = [{ type: "function", function: { name: "f", parameters: {} } }];
        const chat = bridge.client.chat.completions;
        const answers = await Promise.all(
            [1, 2].map(() => chat.create(asking("ping", { tools, tool_choice: "auto" }))),
        );
        for (const { choices } of answers) assert.equal(choices[0].message.content, "pong");
        assert.equal(bridge.server.stderr.match(/offers tools/g)?.length, 1, bridge.server.stderr);
        await assert.rejects(chat.create(asking("ping", { tools, tool_choice: "required" })), {
            status: 400,
        });
    });

    test("tools = refuse", async (t) => {
        const bridge = await startBridge(t, { settings: { tools: "refuse" } });
        const tools = [{ type: "function", function: { name: "f", parameters: {} } }];
        await assert.rejects(bridge.client.chat.completions.create(asking("ping", { tools })), {
            status: 400,
            code: "invalid_request",
        });
        assert.equal(bridge.editor.trajectories.size, 0);
    });

    test("an answer in one piece, of which few events are kept", async (t) => {
        const bridge = await startBridge(t, { env: { SSE_BUFFER_MAX_EVENTS: "1" } });
        const text = "0123456789abcdef".repeat(24 * 1024); // several events
        bridge.editor.script("ping", [step([...before, says(3, text), done(4)])]);
        const answer = await bridge.client.chat.completions.create(asking("ping"));
        assert.equal(answer.choices[0].message.content, text);
    });

    for (const disk of [false, true])
        test(`a cut in the middle of an answer, ${disk ? "embedded" : "memory"}`, async (t) => {
            const bridge = await startBridge(t, { disk });
            bridge.editor.script("go", slow);
            const { server, editor } = bridge;
            const headers = { "Content-Type": "application/json" };
            const body = JSON.stringify(asking("go", { stream: true }));
            const first = await open(t, server, "POST", PATH, headers, body);
            assert.equal(first.status, 200, first.text);
            const id = first.headers["x-correlation-id"];
            const one = await chunksOf(first, 2);
            first.raw.destroy();
            const second = await open(t, server, "GET", `${PATH}/${id}`, {
                "Last-Event-ID": one.lastId,
            });
            assert.equal(second.status, 200, second.text);
            const two = await chunksOf(second);
            assert.equal(one.text + two.text, "abcdef");
            await editor.archived(1);
            assert.equal(editor.count("StartCascade"), 1);
        });

    test("one Idempotency-Key, one trajectory", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("go", slow);
        const headers = { "Content-Type": "application/json", "Idempotency-Key": "once" };
        const body = JSON.stringify(asking("go", { stream: true }));
        const readers = await Promise.all(
            [1, 2, 3].map(() => open(t, bridge.server, "POST", PATH, headers, body)),
        );
        const texts = await Promise.all(readers.map((reader) => chunksOf(reader)));
        assert.deepEqual(texts.map(({ text }) => text), ["abcdef", "abcdef", "abcdef"]);
        assert.equal(bridge.editor.count("StartCascade"), 1);
    });

    test("a stop archives the trajectory", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("go", endless);
        const { server, editor } = bridge;
        const headers = { "Content-Type": "application/json" };
        const body = JSON.stringify(asking("go", { stream: true }));
        const reader = await open(t, server, "POST", PATH, headers, body);
        await chunksOf(reader, 2);
        const id = reader.headers["x-correlation-id"];
        const stopped = await server.request("POST", `${PATH}/${id}/stop`);
        assert.ok(stopped.status < 300, stopped.text);
        assert.equal(stopped.json().status, "cancelled");
        await editor.archived(1);
        const { polls } = editor.trajectories.get("cascade-1");
        editor.script("ping", quick); // an answer's time passes
        assert.equal((await ask(bridge, "ping")).text, "pong");
        assert.equal(editor.trajectories.get("cascade-1").polls, polls, "and it is polled no more");
    });

    test("SIGTERM archives what is under way", async (t) => {
        const bridge = await startBridge(t);
        bridge.editor.script("go", endless);
        const { server, editor } = bridge;
        const headers = { "Content-Type": "application/json" };
        const body = JSON.stringify(asking("go", { stream: true }));
        const reader = await open(t, server, "POST", PATH, headers, body);
        await chunksOf(reader, 1);
        await server.stop();
        await editor.archived(1);
    });

    test("what a killed server left is archived by the next", async (t) => {
        const bridge = await startBridge(t, { disk: true });
        bridge.editor.script("go", endless);
        const { server, editor } = bridge;
        const headers = { "Content-Type": "application/json" };
        const body = JSON.stringify(asking("go", { stream: true }));
        const reader = await open(t, server, "POST", PATH, headers, body);
        await chunksOf(reader, 2);
        await server.kill();
        assert.equal(editor.trajectories.get("cascade-1").archived, 0);
        const next = await bridge.start();
        await editor.archived(1);
        const id = reader.headers["x-correlation-id"];
        const late = await open(t, next, "GET", `${PATH}/${id}`, { "Last-Event-ID": "0" });
        assert.equal(late.status, 200, "what was said can still be read");
    });

    test("a target beyond this machine is refused", async (t) => {
        const file = join(await tempFolder(t), "tidemark.ini");
        await writeFile(file, "[cascade]\ntarget = http://192.0.2.1:42100\n");
        const { code, stderr } = await tidemark(t, ["serve", "--config", file]);
        assert.equal(code, 2, stderr);
        assert.match(stderr, /on this machine only/);
    });
});
