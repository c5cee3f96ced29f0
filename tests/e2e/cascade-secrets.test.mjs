// SPDX-License-Identifier: Apache-2.0
// The editor's token and key: nowhere but on the loopback port that they belong to.
import assert from "node:assert/strict";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import OpenAI from "openai";
import {
    CHECKPOINT,
    CSRF,
    KEY,
    startLanguageServer,
    step,
} from "./lib/language-server.mjs";
import { Running } from "./lib/run.mjs";
import { binary, freePort, startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const SPELLINGS = [CSRF, KEY].flatMap((secret) => [
    secret,
    Buffer.from(secret).toString("base64").replace(/=+$/, "").slice(0, -1),
    Buffer.from(secret).toString("hex"),
    encodeURIComponent(secret),
]);
const CONTROL = "a word that must be found";

async function filesIn(folder) {
    const entries = await readdir(folder, { recursive: true, withFileTypes: true });
    return entries.filter((e) => e.isFile()).map((e) => join(e.parentPath ?? e.path, e.name));
}

test("no secret in streams, traces, metrics or answers", async (t) => {
    const editor = await startLanguageServer(t);
    const folder = await tempFolder(t);
    const data = join(folder, "data");
    const file = join(folder, "tidemark.ini");
    await writeFile(file, `[cascade]\ntarget = ${editor.url}\ncsrf-token = ${CSRF}\napi-key = ${KEY}\n`);
    const told = [[0, "User", "go"], [1, "Assistant", CONTROL], [2, "Tool", CHECKPOINT]];
    editor.script("go", [step(told)]);
    const flags = ["--config", file, "--trace-level", "debug"];
    const server = await startServer(t, flags, { data, port: await freePort() });
    const client = new OpenAI({ apiKey: "k", baseURL: `${server.base}/v1`, maxRetries: 0 });
    const seen = [];
    for (const stream of [false, true]) {
        const messages = [{ role: "user", content: "go" }];
        const answer = await client.chat.completions.create({ model: "kimi-k2-6", messages, stream });
        if (!stream) seen.push(JSON.stringify(answer));
        else for await (const chunk of answer) seen.push(JSON.stringify(chunk));
    }
    seen.push(JSON.stringify(await client.models.list()));
    editor.csrf = "changed"; // so that errors are told too
    await client.chat.completions
        .create({ model: "kimi-k2-6", messages: [{ role: "user", content: "go" }] })
        .catch((error) => seen.push(String(error.message)));
    for (const path of ["/metrics", "/v1/stream/", "/health"])
        seen.push((await server.request("GET", path)).text);
    await server.stop();
    assert.ok(seen.join("").includes(CONTROL), "the answers were looked at");
    let found = false;
    const texts = [["the answers", seen.join("\n")], ["traces", server.stderr + server.stdout]];
    for (const path of await filesIn(data)) {
        const bytes = await readFile(path, "latin1");
        found ||= bytes.includes(CONTROL);
        texts.push([path, bytes]);
    }
    assert.ok(found, "the stream's events are in the data that was searched");
    for (const [where, text] of texts)
        for (const spelling of SPELLINGS)
            assert.ok(!text.includes(spelling), `${where} has ${spelling.slice(0, 8)}...`);
});

/** Starts `tidemark serve` where it may leave a core file, lets it die, and looks for one. */
async function coreOf(t, settings) {
    const folder = await tempFolder(t);
    const file = join(folder, "tidemark.ini");
    await writeFile(file, settings);
    const path = join(folder, "s");
    const line = `ulimit -c unlimited; cd ${folder}; exec "$0" "$@"`;
    const args = [binary(), "serve", "--store", "memory", "--listen", `unix:${path}`];
    const server = new Running(t, "bash", ["-c", line, ...args, "--config", file], {
        env: { ASAN_OPTIONS: "disable_coredump=0:handle_abort=0" },
    });
    await until(() => /listening on/.test(server.stderr), "the server to listen");
    server.child.kill("SIGABRT");
    await server.ended;
    return (await readdir(folder)).filter((name) => name.startsWith("core"));
}

test("a crash leaves no memory on disk", async (t) => {
    const pattern = (await readFile("/proc/sys/kernel/core_pattern", "utf8")).trim();
    if (!/^core/.test(pattern)) return t.skip(`cores go to ${pattern} here`);
    const control = await coreOf(t, "");
    if (control.length === 0) return t.skip("no server leaves a core here");
    const settings = `[cascade]\ntarget = http://127.0.0.1:9\ncsrf-token = ${CSRF}\napi-key = ${KEY}\n`;
    assert.deepEqual(await coreOf(t, settings), []);
});
