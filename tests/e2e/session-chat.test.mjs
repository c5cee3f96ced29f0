// SPDX-License-Identifier: Apache-2.0
// `tidemark session chat` and examples/llm_proxy.c: conversations that outlive the server's end and
// their own. TIDEMARK_KILLS: how often the example is killed (20).
import assert from "node:assert/strict";
import { once } from "node:events";
import { readdir, readFile, stat, writeFile } from "node:fs/promises";
import { createServer, request as httpRequest } from "node:http";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { defer } from "./lib/defer.mjs";
import { randomness } from "./lib/rand.mjs";
import { Running, run, tidemark } from "./lib/run.mjs";
import { binary } from "./lib/server.mjs";
import { startSessions, startSessionSite } from "./lib/session-server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const KILLS = Number(process.env.TIDEMARK_KILLS ?? 20);
const WORKER = { token: "worker-token-1", capabilities: "worker" };
const example = (name) => join(dirname(binary()), "examples", name);

const lines = (text) => text.split("\n").slice(0, -1);
const chat = (server, ...flags) => ["session", "chat", "--server", server.base, ...flags];
const transcript = async (file) =>
    lines(await readFile(file, "utf8")).map((line) => JSON.parse(line));
const saved = async (folder) => (await readdir(folder)).filter((name) => name.endsWith(".json"));

async function kill(running) {
    running.child.kill("SIGKILL");
    await running.ended;
}

test("lines are sent, answers are printed, and nothing is left behind", async (t) => {
    const server = await startSessions(t);
    const folder = await tempFolder(t);
    const [state, file] = [join(folder, "state"), join(folder, "transcript")];
    const args = chat(server, "--state", state, "--transcript", file, "--key", "chat-1");
    const input = Buffer.concat([Buffer.from("eins\n\nzwei – drei\r\n"), Buffer.from([255, 10, 52])]);
    const { code, stdout, stderr } = await tidemark(t, args, { input });
    assert.equal(code, 0, stderr);
    assert.equal(stdout, "eins\nzwei – drei\n\ufffd\n4\n");
    assert.deepEqual(await transcript(file), [
        { session: "chat-1", id: "1", text: "eins" },
        { session: "chat-1", id: "2", text: "zwei – drei" },
        { session: "chat-1", id: "3", data: "/w==" },
        { session: "chat-1", id: "4", text: "4" },
    ]);
    assert.equal((await stat(file)).mode & 0o777, 0o600);
    assert.deepEqual(await saved(state), []);
});

test("a server that is killed is waited for", async (t) => {
    const site = await startSessionSite(t);
    const running = new Running(t, binary(), chat(site, "--verbose"));
    running.child.stdin.write("before\n");
    await running.output(/^before$/m);
    await site.kill();
    running.child.stdin.write("meanwhile\n");
    await site.start();
    await running.output(/^meanwhile$/m);
    running.child.stdin.end("behind");
    const { code, stdout, stderr } = await running.end();
    assert.equal(code, 0, stderr);
    assert.equal(stdout, "before\nmeanwhile\nbehind\n");
    assert.match(stderr, /^tidemark session chat: session [0-9a-f-]{36}$/m);
});

test("started again with the same state it goes on", async (t) => {
    const site = await startSessionSite(t);
    const folder = await tempFolder(t);
    const [state, file] = [join(folder, "state"), join(folder, "transcript")];
    const args = chat(site, "--state", state, "--transcript", file);
    const first = new Running(t, binary(), args);
    first.child.stdin.write("one\ntwo\n");
    await first.output(/^two$/m);
    const busy = await tidemark(t, args, { input: "not now\n" });
    assert.equal(busy.code, 1);
    assert.match(busy.stderr, /in use/);
    await site.kill();
    first.child.stdin.write("three\n"); // is saved, and cannot be sent
    await until(async () => {
        const [name] = await saved(state);
        return JSON.parse(await readFile(join(state, name), "utf8")).nextSeqno === 3;
    }, "the third line to be saved");
    await kill(first);
    await site.start();
    const { code, stdout, stderr } = await tidemark(t, args, { input: "four\n" });
    assert.equal(code, 0, stderr);
    assert.equal(stdout, "three\nfour\n");
    const all = await transcript(file);
    assert.deepEqual(
        all.map(({ id, text }) => [id, text]),
        [
            ["1", "one"],
            ["2", "two"],
            ["3", "three"],
            ["4", "four"],
        ],
    );
    assert.equal(new Set(all.map(({ session }) => session)).size, 1);
});

test("what was finished before a kill ends first, and the rest is a new session", async (t) => {
    const site = await startSessionSite(t);
    const state = join(await tempFolder(t), "state");
    const args = chat(site, "--state", state);
    const first = new Running(t, binary(), args);
    first.child.stdin.write("old\n");
    await first.output(/^old$/m);
    await site.kill();
    first.child.stdin.end("last\n");
    await until(async () => {
        const [name] = await saved(state);
        return JSON.parse(await readFile(join(state, name), "utf8")).finished;
    }, "the end of input to be saved");
    await kill(first);
    await site.start();
    const { code, stdout, stderr } = await tidemark(t, [...args, "--verbose"], { input: "new\n" });
    assert.equal(code, 0, stderr);
    assert.equal(stdout, "last\nnew\n");
    assert.equal(stderr.match(/: session [0-9a-f-]{36}$/gm).length, 2);
    assert.deepEqual(await saved(state), []);
});

// Such a proxy knows nothing of HTTP/2: a downlink, and an append for each line.
test("behind a proxy of HTTP/1.1", async (t) => {
    const server = await startSessions(t);
    const { port } = new URL(server.base);
    const paths = [];
    const proxy = createServer((request, response) => {
        const { method, url: path, headers } = request;
        paths.push(path);
        const onward = httpRequest({ port, method, path, headers }, (answer) => {
            response.writeHead(answer.statusCode, answer.headers);
            answer.pipe(response);
        });
        onward.on("error", () => response.destroy());
        response.on("close", () => onward.destroy());
        request.pipe(onward);
    });
    proxy.listen(0, "127.0.0.1");
    await once(proxy, "listening");
    defer(t, () => {
        proxy.close();
        proxy.closeAllConnections();
    });
    const base = `http://127.0.0.1:${proxy.address().port}`;
    const { code, stdout, stderr } = await tidemark(t, chat({ base }), { input: "one\ntwo\n" });
    assert.equal(code, 0, stderr);
    assert.equal(stdout, "one\ntwo\n");
    const appends = paths.filter((path) => path === "/tidemark.v1.SessionService/Append");
    assert.ok(appends.length >= 3, "two lines and the end");
});

test("what stands in the way of a chat", async (t) => {
    const server = await startSessions(t);
    const folder = await tempFolder(t);
    const odd = join(folder, "odd");
    await writeFile(odd, "no transcript\n");
    for (const [flags, code, pattern] of [
        [["--transcript", odd], 1, /none of a transcript/],
        [["--transcript", folder], 1, /cannot use the transcript .*directory/],
        [["--state", odd], 1, /odd/],
        [["--server", "http://127.0.0.1:1", "--retry-for", "1s"], 1, /cannot reach|no connection/],
        [["word"], 2, /takes no arguments/],
    ]) {
        const result = await tidemark(t, chat(server, ...flags), { input: "x\n" });
        assert.equal(result.code, code, `${flags}: ${result.stderr}`);
        assert.match(result.stderr, pattern);
        assert.equal(result.stdout, "");
    }
    assert.equal(await readFile(odd, "utf8"), "no transcript\n");
});

test(`the example, killed ${KILLS} times: nothing is missing, nothing is there twice`, async (t) => {
    const COUNT = 150;
    const random = randomness(t);
    const site = await startSessionSite(t, {
        session: { handler: "echo" },
        callers: { w: WORKER },
    });
    let kills = 0;
    for (let round = 0; kills < KILLS; round++) {
        const folder = await tempFolder(t);
        const [file, input] = [join(folder, "transcript"), join(folder, "lines")];
        const texts = Array.from({ length: COUNT }, (_, n) => `line ${n}\twith a \\ in it`);
        await writeFile(input, texts.map((text) => `${text}\n`).join(""));
        const args = [site.base, join(folder, "state"), file, input];
        for (;;) {
            const running = new Running(t, example("llm_proxy"), args);
            const over = once(running.child, "exit");
            if (kills < KILLS) await Promise.race([over, delay(30 + random.below(250))]);
            else await over;
            if (running.child.exitCode === null && running.child.signalCode === null) {
                await kill(running);
                kills++;
                if (random.below(8) === 0) await site.restart("SIGKILL");
                continue;
            }
            const { code, stderr } = await running.end();
            assert.equal(code, 0, stderr);
            break;
        }
        const rows = lines(await readFile(file, "utf8")).map((line) => line.split("\t"));
        const [key] = rows[0];
        assert.deepEqual(rows, [
            ...texts.map((text, n) => [
                key,
                String(n + 1),
                text.replaceAll("\\", "\\\\").replaceAll("\t", "\\t"),
            ]),
            [key, "end", ""],
        ]);
        const shown = await tidemark(
            t,
            ["session", "show", key, "--json", "--server", site.base],
            { env: { TIDEMARK_TOKEN: WORKER.token } },
        );
        const session = JSON.parse(shown.stdout);
        assert.deepEqual([session.in.events, session.out.events], [COUNT + 1, COUNT]);
        // Once more when all is done: it knows.
        const again = await run(t, example("llm_proxy"), args);
        assert.deepEqual([again.code, again.stderr], [0, ""]);
    }
});

test("the other examples do what they say", async (t) => {
    const server = await startSessions(t);
    const said = await run(t, example("producer"), [server.base, "examples/lines"], {
        input: "one\ntwo\n",
    });
    assert.equal(said.code, 0, said.stderr);
    const { headers } = await server.stream("HEAD", "examples/lines");
    assert.equal(said.stdout, `stored up to ${headers["stream-next-offset"]}\n`);
    const looked = await run(t, example("open"), [server.base, "examples/lines"]);
    assert.equal(looked.stdout, `text/plain ${headers["stream-next-offset"]} open\n`);
    await server.close("examples/lines");
    for (const more of [[], ["--poll"]]) {
        const args = [server.base, "examples/lines", ...more];
        const read = await run(t, example("follow"), args);
        assert.deepEqual([read.code, read.stdout], [0, "one\ntwo\n"], read.stderr);
    }
    const asked = await run(t, example("session"), [server.base, "How are you?"]);
    assert.deepEqual([asked.code, asked.stdout], [0, "1: How are you?\n"], asked.stderr);
    assert.match(asked.stderr, /^\[connected\]\n/);
    const nowhere = "http://127.0.0.1:1";
    for (const [name, ...args] of [
        ["producer", nowhere, "x"],
        ["open", nowhere, "x"],
        ["follow", server.base, "missing"], // it would wait for a server
        ["session"],
        ["llm_proxy", "nonsense", "state", "transcript"],
    ]) {
        const lost = await run(t, example(name), args);
        assert.notEqual(lost.code, 0, name);
        assert.notEqual(lost.stderr, "", name);
    }
});
