// SPDX-License-Identifier: Apache-2.0
// `tidemark demo-backend`, as the README has people start it.
import assert from "node:assert/strict";
import { once } from "node:events";
import { request } from "node:http";
import { test } from "node:test";
import { curl, Running, tidemark } from "./lib/run.mjs";
import { binary } from "./lib/server.mjs";

async function start(t, flags = []) {
    const backend = new Running(t, binary(), ["demo-backend", "--listen", "127.0.0.1:0", ...flags]);
    const [, url] = await backend.output(/^demo backend on (http:\S+):/m);
    return { backend, url: `${url}/any/path` };
}

/** Ends it as Ctrl-C does, and holds it to a clean end. */
async function stop(backend) {
    backend.child.kill("SIGINT");
    const { code, signal, stderr } = await backend.end();
    assert.deepEqual({ code, signal, stderr }, { code: 0, signal: null, stderr: "" });
}

const dataOf = (text) =>
    text
        .split("\n")
        .filter((line) => line.startsWith("data: "))
        .map((line) => line.slice(6));

test("an answer, word by word, with its whole text at the end", async (t) => {
    const { backend, url } = await start(t, ["--tokens", "30", "--delay", "1ms"]);
    const events = dataOf(await curl(t, ["-d", `{"brief":"x"}`, url])).map((line) => JSON.parse(line));
    assert.deepEqual(events[0], { stage: "DRAFTING" });
    const { stage, payload } = events.at(-1);
    assert.equal(stage, "COMPLETE");
    const tokens = events.slice(1, -1).map((event) => event.text);
    assert.equal(tokens.length, 30);
    assert.deepEqual(payload, { text: tokens.join(""), tokens: 30 });
    await backend.output(/^answer 1: complete$/m);
    await stop(backend);
});

test("the other dialects, and a large body that nobody reads", async (t) => {
    for (const [dialect, pick] of [
        ["openai", (chunk) => chunk.choices[0].delta.content],
        ["ui-message", (chunk) => chunk.delta],
    ]) {
        const flags = ["--dialect", dialect, "--tokens", "500", "--delay", "0"];
        const { backend, url } = await start(t, flags);
        const args = ["--data-binary", "@-", "-i", url];
        const answer = await curl(t, args, { input: "y".repeat(3_000_000) });
        assert.match(answer, /^HTTP\/1\.1 200/m);
        assert.match(answer, /^content-type: text\/event-stream\r$/im);
        if (dialect === "ui-message") assert.match(answer, /^x-vercel-ai-ui-message-stream: v1\r$/im);
        const lines = dataOf(answer);
        assert.equal(lines.pop(), "[DONE]");
        const words = lines.map((line) => pick(JSON.parse(line)) ?? "").join("").split(" ");
        assert.equal(words.length, 500);
        await stop(backend);
    }
});

test("a client that goes away has lost the rest; one that stays has it", async (t) => {
    const { backend, url } = await start(t, ["--tokens", "40", "--delay", "20ms"]);
    const client = request(url, { method: "POST" }).end();
    const [answer] = await once(client, "response");
    await once(answer, "data");
    const patient = curl(t, ["-X", "POST", url]);
    await backend.output(/^answer 2: POST \/any\/path$/m);
    answer.destroy();
    const [, words] = await backend.output(/^answer 1: broken off after (\d+) words$/m);
    assert.ok(Number(words) < 40, words);
    assert.match(await patient, /"stage":"COMPLETE"/);
    await stop(backend);
});

test("--cut-after breaks the connection off behind that word", async (t) => {
    for (const delay of ["0", "5ms"]) {
        const flags = ["--tokens", "50", "--delay", delay, "--cut-after", "12"];
        const { backend, url } = await start(t, flags);
        const { status, body } = await fetch(url, { method: "POST" });
        assert.equal(status, 200);
        let text = "";
        const decoder = new TextDecoder();
        await assert.rejects(async () => {
            for await (const bytes of body) text += decoder.decode(bytes, { stream: true });
        });
        assert.equal(text.match(/^event: token$/gm).length, 12);
        await backend.output(/^answer 1: broken off after 12 words$/m);
        await stop(backend);
    }
});

test("Ctrl-C in the middle of an answer ends it, and the client sees that", async (t) => {
    const { backend, url } = await start(t, ["--delay", "1s"]);
    const { body } = await fetch(url, { method: "POST" });
    const reader = body.getReader();
    await reader.read();
    await stop(backend);
    await assert.rejects(async () => {
        while (!(await reader.read()).done);
    });
});

test("what it cannot do is said", async (t) => {
    const { backend, url } = await start(t);
    const get = await curl(t, ["-i", url]);
    assert.match(get, /^HTTP\/1\.1 405[\s\S]*^Allow: POST\r$/m);
    const { host } = new URL(url);
    for (const [args, code, said] of [
        [["--listen", host], 1, new RegExp(`cannot listen on ${host}`)],
        [["--dialect", "mcp"], 2, /expected sse, openai or ui-message/],
        [["--tokens", "0"], 2, /--tokens/],
        [["extra"], 2, /extra/],
    ]) {
        const result = await tidemark(t, ["demo-backend", ...args]);
        assert.equal(result.code, code, result.stderr);
        assert.match(result.stderr, said);
    }
    const help = await tidemark(t, ["demo-backend", "--help"], {
        env: { TIDEMARK_LISTEN: "nonsense" }, // means the server's address
    });
    assert.equal(help.code, 0, help.stderr);
    assert.match(help.stdout, /--cut-after/);
    await stop(backend);
});
