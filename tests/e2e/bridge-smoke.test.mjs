// SPDX-License-Identifier: Apache-2.0
// The Cascade bridge against a language server that answers by hand-made bytes.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import grpc from "@grpc/grpc-js";
import OpenAI from "openai";
import { defer } from "./lib/defer.mjs";
import { binary, startServer } from "./lib/server.mjs";
import { open, read } from "./lib/gateway.mjs";
import { Running, tidemark } from "./lib/run.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const TOKEN = "11111111-2222-4333-8444-555555555555";
const KEY = "sk-ws-01-smokesecretsmokesecret";

function varint(n) {
    const bytes = [];
    for (; n > 127; n = Math.floor(n / 128)) bytes.push((n % 128) | 128);
    return Buffer.from([...bytes, n]);
}
const field = (n, wire, ...rest) => Buffer.concat([varint(n * 8 + wire), ...rest]);
const bytes = (n, data) => {
    const b = Buffer.from(data);
    return field(n, 2, varint(b.length), b);
};
const number = (n, v) => field(n, 0, varint(v));

const model = (label, uid, more = []) =>
    bytes(1, Buffer.concat([bytes(1, label), bytes(22, uid), ...more]));
const STATUS = bytes(
    1,
    bytes(
        33,
        Buffer.concat([model("Model A", "model-a"), model("Off", "model-off", [number(4, 1)])]),
    ),
);

const METHODS = {
    InitializeCascadePanelState: () => Buffer.alloc(0),
    GetUserStatus: () => STATUS,
    StartCascade: (ls) => bytes(1, `cascade-${++ls.started}`),
    SendUserCascadeMessage: () => Buffer.alloc(0),
    GetCascadeTranscriptForTrajectoryId: (ls) => {
        const step = ls.script[Math.min(ls.polls++, ls.script.length - 1)];
        return Buffer.concat([bytes(1, step), number(2, Math.min(ls.polls, ls.script.length))]);
    },
    ArchiveCascadeTrajectory: () => Buffer.alloc(0),
};

async function startLanguageServer(t) {
    const ls = { calls: [], started: 0, polls: 0, script: [""], fail: {}, delay: {} };
    const server = new grpc.Server();
    const definition = {};
    const handlers = {};
    for (const [name, answer] of Object.entries(METHODS)) {
        const same = (b) => b;
        definition[name] = {
            path: `/exa.language_server_pb.LanguageServerService/${name}`,
            requestStream: false,
            responseStream: false,
            requestSerialize: same,
            requestDeserialize: same,
            responseSerialize: same,
            responseDeserialize: same,
        };
        handlers[name] = (call, done) => {
            ls.calls.push({ name, request: call.request });
            if (call.metadata.get("x-codeium-csrf-token")[0] !== TOKEN)
                return done({ code: grpc.status.PERMISSION_DENIED, details: "csrf" });
            const fail = ls.fail[name]?.shift();
            const reply = () => (fail ? done(fail) : done(null, answer(ls)));
            return ls.delay[name] ? void setTimeout(reply, ls.delay[name]) : reply();
        };
    }
    server.addService(definition, handlers);
    ls.port = await new Promise((resolve, reject) =>
        server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (e, port) =>
            e ? reject(e) : resolve(port),
        ),
    );
    ls.names = () => ls.calls.map(({ name }) => name);
    ls.count = (name) => ls.names().filter((n) => n === name).length;
    defer(t, () => server.forceShutdown());
    return ls;
}

const say = (...messages) =>
    messages.map(([i, role, text]) => `=== MESSAGE ${i} - ${role} ===\n${text}\n\n`).join("");
const USER = [0, "User", "hi"];
const DONE = [9, "Tool", "[CORTEX_STEP_TYPE_CHECKPOINT]"];

async function startBridge(t, ls, flags = []) {
    const file = join(await tempFolder(t), "tidemark.conf");
    await writeFile(
        file,
        `[cascade]\ntarget = http://localhost:${ls.port}\n` +
            `csrf-token = ${TOKEN}\napi-key = ${KEY}\ntools = refuse\n`,
    );
    return startServer(t, ["--config", file, ...flags], { env: { SSE_RESUME_SECRET: "s3" } });
}

const client = (server) =>
    new OpenAI({ baseURL: `${server.base}/v1`, apiKey: "none", maxRetries: 0 });
const ask = (content, more = {}) => ({
    model: "model-a",
    messages: [{ role: "user", content }],
    ...more,
});

const BODY = JSON.stringify(ask("hi", { stream: true }));
const JSON_TYPE = { "Content-Type": "application/json" };

describe("the bridge", { concurrency: 4 }, () => {
    test("answers in one piece as the texts are in the end, and again under a key", async (t) => {
        const ls = await startLanguageServer(t);
        const server = await startBridge(t, ls);
        ls.script = [
            say(USER, [1, "Assistant", "one"]),
            say(USER, [1, "Assistant", "One."], [2, "Assistant", "Two."], DONE),
        ];
        const openai = client(server);
        const options = { headers: { "Idempotency-Key": "k1" } };
        const first = await openai.chat.completions.create(ask("hi"), options);
        assert.equal(first.object, "chat.completion");
        assert.equal(first.choices[0].message.content, "One.\n\nTwo.");
        const again = await openai.chat.completions.create(ask("hi"), options);
        assert.deepEqual(again, first);
        assert.equal(ls.started, 1);
    });

    test("says what is wrong as OpenAI does", async (t) => {
        const ls = await startLanguageServer(t);
        const server = await startBridge(t, ls);
        const openai = client(server);
        const create = (body) => openai.chat.completions.create(body);
        const off = { status: 404, code: "model_not_found" };
        await assert.rejects(create(ask("hi", { model: "model-off" })), off);
        await assert.rejects(create({ model: "model-a", messages: [] }), { status: 400 });
        const tools = [{ type: "function", function: { name: "f" } }];
        await assert.rejects(create(ask("hi", { tools })), { status: 400 });
        ls.script = [say(USER, [1, "System", "failed_precondition: update your editor"])];
        await assert.rejects(create(ask("hi", { stream: true })), (e) => {
            assert.equal(e.status, 400);
            assert.match(e.message, /failed_precondition: update your editor/);
            return true;
        });
        ls.fail.SendUserCascadeMessage = [{ code: 12, details: `no: ${TOKEN}` }];
        await assert.rejects(create(ask("hi")), (e) => {
            assert.equal(e.status, 501);
            assert.match(e.message, /SendUserCascadeMessage gRPC error 12: no: \*{36}/);
            return true;
        });
        await until(() => ls.count("ArchiveCascadeTrajectory") === ls.started, "the archives");
        const foreign = await server.request("POST", "/v1/chat/completions", {
            headers: { origin: "http://evil.example", "content-type": "application/json" },
            body: JSON.stringify(ask("hi")),
        });
        assert.equal(foreign.status, 403);
    });

    test("asks from the command line", async (t) => {
        const ls = await startLanguageServer(t);
        const server = await startBridge(t, ls);
        const env = { TIDEMARK_SERVER: server.base };
        ls.script = [
            say(USER, [1, "Assistant", "It is"]),
            say(USER, [1, "Assistant", "It is 4."], DONE),
        ];
        const answer = await tidemark(t, ["cascade", "ask", "--model", "model-a", "2+2?"], { env });
        assert.deepEqual([answer.code, answer.stdout], [0, "It is 4.\n"]);
        const sent = ls.calls.find(({ name }) => name === "SendUserCascadeMessage");
        assert.ok(sent.request.includes("2+2?"));
        const models = await tidemark(t, ["cascade", "models"], { env });
        assert.match(models.stdout, /^model-a +Model A *\nmodel-off +Off +disabled\n$/);
        const wrong = await tidemark(t, ["cascade", "ask", "--model", "x", "2+2?"], { env });
        assert.equal(wrong.code, 1);
        assert.match(wrong.stderr, /model `x` does not exist/);
        ls.script = [say(USER, [1, "System", "failed_precondition: update"])];
        const args = ["cascade", "ask", "--model", "model-a"];
        const failed = await tidemark(t, args, { env, input: "2+2?" });
        assert.match(failed.stderr, /failed_precondition: update/);
    });

    test("leaves nothing behind, whenever it is left", async (t) => {
        const ls = await startLanguageServer(t);
        for (const slow of [
            "GetUserStatus",
            "InitializeCascadePanelState",
            "StartCascade",
            "SendUserCascadeMessage",
            "GetCascadeTranscriptForTrajectoryId",
            "ArchiveCascadeTrajectory",
        ]) {
            const server = await startBridge(t, ls);
            ls.calls.length = 0;
            ls.started = ls.polls = 0;
            ls.delay = { [slow]: 700 };
            ls.script = [say(USER, [1, "Assistant", "text"], DONE)];
            const answer = server
                .request("POST", "/v1/chat/completions", { headers: JSON_TYPE, body: BODY })
                .catch(() => {});
            await until(() => ls.count(slow) > 0, slow);
            await server.stop();
            await answer;
            assert.equal(ls.count("ArchiveCascadeTrajectory"), ls.started, slow);
        }
    });

    test("is read on where the connection was cut", async (t) => {
        const ls = await startLanguageServer(t);
        const server = await startBridge(t, ls);
        ls.script = ["a", "ab", "abc", "abcd"].map((text) => say(USER, [1, "Assistant", text]));
        ls.script.push(say(USER, [1, "Assistant", "abcde"], DONE));
        const reader = await open(t, server, "POST", "/v1/chat/completions", JSON_TYPE, BODY);
        const first = await read(reader, 3);
        reader.raw.destroy();
        const again = await open(
            t,
            server,
            "POST",
            "/v1/chat/completions/resume",
            { "X-Resume-Token": reader.headers["x-resume-token"], "Last-Event-ID": first.lastId },
        );
        const rest = await read(again);
        const text = [...first.events, ...rest.events]
            .filter(({ data }) => data !== "[DONE]")
            .map(({ data }) => JSON.parse(data).choices[0]?.delta.content ?? "")
            .join("");
        assert.equal(text, "abcde");
        assert.equal(rest.events.at(-1).data, "[DONE]");
        assert.equal(ls.started, 1);
    });

    test("waits for a slow answer, and stops one that is interrupted", async (t) => {
        const ls = await startLanguageServer(t);
        const hasty = ["--idle-timeout", "200ms", "--write-timeout", "200ms"];
        const server = await startBridge(t, ls, hasty);
        ls.delay = { GetCascadeTranscriptForTrajectoryId: 600 };
        ls.script = [say(USER, [1, "Assistant", "slow"], DONE)];
        const answer = await client(server).chat.completions.create(ask("hi"));
        assert.equal(answer.choices[0].message.content, "slow");
        ls.script = [say(USER, [1, "Assistant", "endless"])];
        const env = { TIDEMARK_SERVER: server.base };
        const args = ["cascade", "ask", "--model", "model-a", "hi"];
        const running = new Running(t, binary(), args, { env });
        await running.output(/endless/);
        running.child.kill("SIGINT");
        assert.equal((await running.end()).code, 130);
        await until(() => ls.count("ArchiveCascadeTrajectory") === 2, "the archive");
    });
});
