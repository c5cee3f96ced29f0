// SPDX-License-Identifier: Apache-2.0
// The clients that docs/protocols/gateway.md shows, taken from there and put behind a network that
// cuts them off again and again: each must see the backend's words once and in order.
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { EventSource } from "eventsource";
import { defer } from "./lib/defer.mjs";
import { startProxy } from "./lib/proxy.mjs";
import { run, Running } from "./lib/run.mjs";
import { binary, startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const PATH = "/assist/draft-graph";
const WORDS = 120;
const DOCUMENT = new URL("../../docs/protocols/gateway.md", import.meta.url);
const env = { SSE_RESUME_SECRET: "for-the-documents" };

/** The first block of code in this language that contains a text. */
async function example(language, text) {
    const document = await readFile(DOCUMENT, "utf8");
    for (const [, kind, code] of document.matchAll(/^```(\w+)\n(.*?)^```$/gms))
        if (kind === language && code.includes(text)) return code;
    assert.fail(`the document has no ${language} with ${text}`);
}

/** Backend, server, and a network that cuts so many connections after some events each. */
async function site(t, cuts) {
    const args = ["demo-backend", "--listen", "127.0.0.1:0", "--delay", "10ms"];
    const backend = new Running(t, binary(), [...args, "--tokens", `${WORDS}`]);
    const [, upstream] = await backend.output(/^demo backend on (http:\S+):/m);
    const server = await startServer(t, ["--route", `${PATH}=${upstream}/`], {
        data: await tempFolder(t),
        env,
    });
    const proxy = await startProxy(t, server, (n) => (n < cuts ? { answerBytes: 2000 } : null));
    return { backend, proxy, url: proxy.base + PATH };
}

/** What a client is to see: all of it once, and `complete` if the end came after a resume. */
function check(events) {
    const own = events.filter(([type]) => type !== "complete");
    assert.deepEqual(own[0], ["stage", { stage: "DRAFTING" }]);
    const words = own.slice(1, -1).map(([type, data]) => {
        assert.equal(type, "token");
        return data.text;
    });
    assert.equal(words.length, WORDS);
    assert.deepEqual(own.at(-1)[1], {
        stage: "COMPLETE",
        payload: { text: words.join(""), tokens: WORDS },
    });
}

async function askExample() {
    const code = await example("js", "async function ask(");
    return `${code.slice(0, code.indexOf("\nawait ask("))}\nexport { ask };\n`;
}

/** The same with the parser of npm, as the document says it is put in. */
async function askWithParser() {
    const [imported, read] = (await example("js", "EventSourceParserStream")).split("\n\n");
    const code = await askExample();
    const [from, to] = [code.indexOf("    function take("), code.indexOf("    let request")];
    assert.ok(0 < from && from < to);
    const package_ = /"([^"]+)"/.exec(imported)[1];
    const found = imported.replace(package_, import.meta.resolve(package_));
    return `${found}\n${code.slice(0, from)}${read}\n${code.slice(to)}`;
}

for (const [name, makeCode] of Object.entries({ fetch: askExample, parser: askWithParser })) {
    test(`browser and Node: ${name}, cut and resumed`, async (t) => {
        const file = join(await tempFolder(t), "ask.mjs");
        await writeFile(file, await makeCode());
        const { ask } = await import(file);
        const { backend, proxy, url } = await site(t, 4);
        const events = [];
        await ask(url, { brief: "tides" }, (type, data) => events.push([type, data]));
        assert.equal(proxy.cuts, 4);
        check(events);
        assert.equal(backend.stdout.match(/: POST /g).length, 1, "the backend was asked once");
    });
}

test("an EventSource watches what another client began, and stops behind its end", async (t) => {
    const { proxy, url } = await site(t, 2);
    const begun = await fetch(url, { method: "POST" });
    const id = begun.headers.get("x-correlation-id");
    await begun.body.cancel();
    const source = new EventSource(`${url}/${id}`);
    defer(t, () => source.close());
    const events = [];
    for (const type of ["stage", "token"])
        source.addEventListener(type, (event) => events.push([type, JSON.parse(event.data)]));
    await until(() => source.readyState === source.CLOSED, "the EventSource to stop", 30_000);
    assert.ok(proxy.connections > 3, "cut once, ended once, and then there was nothing more");
    check(events);
});

test("Python: requests, cut and resumed", async (t) => {
    const found = await run(t, "python3", ["-c", "import requests"]).catch(() => ({ code: 1 }));
    if (found.code !== 0) {
        t.skip("no python3 with requests here");
        return;
    }
    const code = await example("python", "def ask(");
    const { backend, proxy, url } = await site(t, 4);
    const file = join(await tempFolder(t), "ask.py");
    const call = `for kind, data in ask(${JSON.stringify(url)}, {}): print(json.dumps([kind, data]))`;
    await writeFile(file, `${code.slice(0, code.indexOf("\nfor kind, data in ask("))}\n${call}\n`);
    const { stdout, stderr, code: status } = await run(t, "python3", [file]);
    assert.equal(status, 0, stderr);
    assert.equal(proxy.cuts, 4);
    check(stdout.trim().split("\n").map((line) => JSON.parse(line)));
    assert.equal(backend.stdout.match(/: POST /g).length, 1, "the backend was asked once");
});
