// SPDX-License-Identifier: Apache-2.0
// Comments in streams of server-sent events: clients whose decoders are stricter than the standard read
// all of them, on every surface that sends any.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { eventsOf, wholeText } from "./lib/backend-plan.mjs";
import { startGateway } from "./lib/gateway.mjs";
import { startLog } from "./lib/log.mjs";
import { findPython, runPython } from "./lib/python.mjs";
import { openRaw } from "./lib/raw.mjs";
import { startServer } from "./lib/server.mjs";
import { decodeAsGo, decodeAsPython } from "./lib/strict-sse.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until, within } from "./lib/wait.mjs";

const QUICK = ["--heartbeat", "100ms"];
const decoders = { "openai-python": decodeAsPython, "openai-go 3.42": decodeAsGo };

/** Reads an answer piece by piece until done(text) says so; the text. */
async function readUntil(raw, done, text = "") {
    while (!done(text)) {
        const piece = await within(raw.chunk(), `more than ${JSON.stringify(text.slice(-200))}`);
        if (piece.length === 0) break;
        text += piece;
    }
    return text;
}

const beats = (text) => text.split(": heartbeat\n").length - 1;

for (const dialect of ["openai", "ui-message"])
    test(`quiet answers of the dialect ${dialect} are read by strict decoders`, async (t) => {
        const path = "/chat";
        const gateway = await startGateway(t, { routes: { [path]: { dialect } }, flags: QUICK });
        const plan = { name: "quiet", dialect, tokens: 8, gates: [1, 4] };
        const body = JSON.stringify({ plan });
        const raw = await openRaw(t, gateway.server);
        raw.send(
            `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
        );
        await raw.head();
        // Behind the first id, and again behind others.
        let text = await readUntil(raw, (sofar) => beats(sofar) >= 2);
        await gateway.backend.go("quiet");
        const more = beats(text) + 2;
        text = await readUntil(raw, (sofar) => beats(sofar) >= more, text);
        await gateway.backend.go("quiet");
        text = await readUntil(raw, () => false, text);
        assert.match(text, /^: resume [\w-]+\n/);
        for (const [name, decode] of Object.entries(decoders))
            assert.deepEqual(
                decode(text).map(({ data }) => data),
                [...eventsOf(plan)].map(({ data }) => data),
                `as ${name} reads it: ${text}`,
            );
    });

test("heartbeats of a stream make no events", async (t) => {
    const server = await startServer(t, QUICK);
    await server.create("quiet");
    const raw = await openRaw(t, server);
    raw.send("GET /v1/stream/quiet?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await raw.head();
    let text = await readUntil(raw, (sofar) => beats(sofar) >= 2);
    await server.append("quiet", "1");
    text = await readUntil(raw, (sofar) => sofar.includes("data:[1]"), text);
    const more = beats(text) + 2;
    text = await readUntil(raw, (sofar) => beats(sofar) >= more, text);
    for (const [name, decode] of Object.entries(decoders))
        assert.deepEqual(
            decode(text).map(({ event }) => event),
            ["control", "data", "control"],
            `as ${name} reads it: ${text}`,
        );
});

test("heartbeats of a log make no events", async (t) => {
    const log = await startLog(t, { flags: QUICK });
    await log.put(`{"k":1}\n`);
    const raw = await openRaw(t, log.server);
    raw.send("GET /v1/log/f?live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await raw.head();
    const text = await readUntil(raw, (sofar) => beats(sofar) >= 3);
    for (const [name, decode] of Object.entries(decoders))
        assert.deepEqual(
            decode(text).map(({ data }) => JSON.parse(data)),
            [{ k: 1 }],
            `as ${name} reads it: ${text}`,
        );
});

// ---- openai-python itself ----

const PROGRAM = `
import sys, openai
client = openai.OpenAI(api_key="k", base_url=sys.argv[1], max_retries=0)
stream = client.chat.completions.create(
    model="fake-1", messages=[{"role": "user", "content": "go"}], stream=True,
    extra_body={"plan": {"name": "python", "dialect": "openai", "tokens": 30, "gates": [10]}})
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
`;

test("openai-python reads an answer that is longer than heartbeats are apart", async (t) => {
    const { python, why } = await findPython(t);
    if (why) return t.skip(why);
    const routes = { "/openai/chat/completions": { dialect: "openai" } };
    const gateway = await startGateway(t, { routes, flags: QUICK });
    const program = join(await tempFolder(t), "program.py");
    await writeFile(program, PROGRAM);
    const reading = runPython(python, [program, `${gateway.base}/openai`]);
    // It has to sit through a few heartbeats behind an id.
    await until(async () => (await gateway.backend.seen()).length === 1, "the question");
    await gateway.backend.hasSent("python", 10);
    await new Promise((done) => setTimeout(done, 500));
    await gateway.backend.go("python");
    assert.equal(await reading, wholeText({ name: "python", tokens: 30 }));
});
