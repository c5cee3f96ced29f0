// SPDX-License-Identifier: Apache-2.0
// No answer in any dialect breaks a decoder of the SDKs that may read it: heartbeats, tokens, gaps,
// snapshots, errors and ends of all kinds. Each decoder finds what the standard's finds, however the
// bytes are cut.
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventsOf } from "./lib/backend-plan.mjs";
import { startGateway } from "./lib/gateway.mjs";
import { randomness } from "./lib/rand.mjs";
import { decodeAsStandard, decoders } from "./lib/sdk-decoders.mjs";
import { until } from "./lib/wait.mjs";

/** The dialect of the backend, and what the route is called. */
const dialects = {
    auto: "langgraph",
    openai: "openai",
    responses: "responses",
    anthropic: "anthropic",
    gemini: "gemini",
    "ag-ui": "ag-ui",
    mcp: "mcp",
    "ui-message": "ui-message",
    ndjson: "ndjson",
};
const formOf = (dialect) =>
    dialect === "gemini" ? "bare" : dialect === "ndjson" ? "lines" : "numbered";

/** One route for each dialect. */
const start = (t, settings = {}, flags = []) =>
    startGateway(t, {
        routes: Object.fromEntries(
            Object.keys(dialects).map((dialect) => [pathOf(dialect), { dialect, ...settings }]),
        ),
        flags,
    });

/** `/mcp` is the server's own. */
const pathOf = (dialect) => `/as/${dialect}-route`;

const planOf = (dialect, more) => ({ name: dialect, dialect: dialects[dialect], tokens: 12, ...more });

async function ask(gateway, dialect, plan) {
    const response = await fetch(`${gateway.base}${pathOf(dialect)}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ id: 7, stream: true, plan }),
    });
    assert.equal(response.status, 200, dialect);
    const id = response.headers.get("x-correlation-id");
    assert.equal(response.headers.get("location"), `${pathOf(dialect)}/${id}`);
    return { id, response, url: `${gateway.base}${pathOf(dialect)}/${id}` };
}

/** Events of a response are mended on their way: ids and numbers are ours. */
function assertData(dialect, events, wanted, text) {
    const data = ({ data }) => (dialect === "responses" ? parsed(data).type : parsed(data));
    assert.deepEqual(events.map(data), wanted.map(data), text);
}

/** The same bytes in pieces of any size. */
function cut(rand, bytes) {
    const pieces = [];
    for (let at = 0; at < bytes.length; ) {
        const n = 1 + rand.below(rand.below(2) ? 7 : 400);
        pieces.push(bytes.subarray(at, (at += n)));
    }
    return pieces;
}

const named = (event) => event || "message";
const parsed = (data) => (data === "[DONE]" ? data : JSON.parse(data));

function checkLines(text) {
    assert.ok(text.endsWith("\n"), text);
    return text.trimEnd().split("\n").map((line) => ({ data: JSON.stringify(JSON.parse(line)) }));
}

/** Every decoder agrees with the standard on what an answer says; that. */
async function check(dialect, text, rand) {
    const form = formOf(dialect);
    if (form === "lines") return checkLines(text);
    const wanted = decodeAsStandard(text);
    const isJson = wanted.every(({ data }) => data !== "[DONE]");
    for (const { data } of wanted) parsed(data);
    for (const [name, decoder] of Object.entries(decoders)) {
        if (!decoder[form] || (decoder.jsonOnly && !isJson)) continue;
        if (decoder.ofGemini && wanted.some(({ data }) => JSON.parse(data).error)) continue;
        const found = await decoder.decode(cut(rand, Buffer.from(text)));
        const told = `${name} reads the dialect ${dialect} as ${JSON.stringify(found)}: ${text}`;
        assert.deepEqual(
            found.map(({ data }) => parsed(data)),
            wanted.map(({ data }) => parsed(data)),
            told,
        );
        if (decoder.dataOnly) continue;
        assert.deepEqual(
            found.map(({ event }) => named(event)),
            wanted.map(({ event }) => named(event)),
            told,
        );
    }
    return wanted;
}

/** The end mark is the last line, and stands nowhere else. */
function checkEnd(dialect, text, told = true) {
    const mark = { numbered: "\n: end\n", bare: "\n\n: end\n\n", lines: "" }[formOf(dialect)];
    if (mark === "") return;
    assert.equal(text.endsWith(mark), told, `${dialect}: ${text.slice(-100)}`);
    assert.equal(text.split(": end").length - 1, told ? 1 : 0, text);
}

const errorsIn = (events) =>
    events.filter(
        ({ event, data }) => event === "error" || /"error":|"RUN_ERROR"|"errorText"|"abort"/.test(data),
    );


test("quiet answers, whole", async (t) => {
    const gateway = await start(t, {}, ["--heartbeat", "100ms"]);
    const rand = randomness(t);
    const whole = async (dialect) => {
        const plan = planOf(dialect, { gates: [0, 1, 5] });
        const asked = ask(gateway, dialect, plan);
        for (const sent of [0, 1, 5]) {
            await until(
                async () => (await gateway.backend.seen(dialect))[0]?.sent >= sent,
                `event ${sent}`,
            );
            await new Promise((done) => setTimeout(done, 250));
            await gateway.backend.go(dialect);
        }
        const text = await (await asked).response.text();
        const events = await check(dialect, text, rand);
        assertData(dialect, events, [...eventsOf(plan, { id: 7 })], text);
        checkEnd(dialect, text);
        if (formOf(dialect) === "lines") return;
        assert.match(text, /^: resume [\w-]+\n/);
        assert.ok(text.split(": heartbeat\n").length > 2, text);
    };
    await Promise.all(Object.keys(dialects).map(whole));
});

test("answers that break off, and those that are stopped", async (t) => {
    const gateway = await start(t);
    const rand = randomness(t);
    for (const dialect of Object.keys(dialects)) {
        const broken = await ask(gateway, dialect, planOf(dialect, { fate: "cut", at: 6 }));
        const text = await broken.response.text();
        const events = await check(dialect, text, rand);
        assert.equal(errorsIn(events.slice(6)).length, 1, text);
        checkEnd(dialect, text);

        const name = `${dialect}-stopped`;
        const stopped = await ask(gateway, dialect, planOf(dialect, { name, gates: [6] }));
        await fetch(`${stopped.url}/stop`, { method: "POST" });
        const rest = await stopped.response.text();
        const seen = await check(dialect, rest, rand);
        const last = seen.at(-1);
        assert.ok(errorsIn(seen).length === 1 || last.data === "[DONE]", rest);
        checkEnd(dialect, rest);
    }
});

test("what is read again: behind an id, by a token, as a snapshot", async (t) => {
    const gateway = await start(t);
    const rand = randomness(t);
    for (const dialect of Object.keys(dialects)) {
        const plan = planOf(dialect);
        const { id, url, response } = await ask(gateway, dialect, plan);
        await response.text();
        const wanted = [...eventsOf(plan, { id: 7 })];
        for (const last of ["4", `${id}:4`]) {
            const text = await (await fetch(url, { headers: { "last-event-id": last } })).text();
            const events = await check(dialect, text, rand);
            assertData(dialect, events, wanted.slice(4), text);
            checkEnd(dialect, text);
        }
        const token = response.headers.get("x-resume-token");
        const resume = await fetch(`${gateway.base}${pathOf(dialect)}/resume`, {
            method: "POST",
            headers: { "x-resume-token": token, "last-event-id": `${id}:4` },
        });
        const resumed = await resume.text();
        const events = await check(dialect, resumed, rand);
        assertData(dialect, events, wanted.slice(4), resumed);
        checkEnd(dialect, resumed);

        const snapshot = await (await fetch(`${url}?from=snapshot`)).text();
        await check(dialect, snapshot, rand);
        checkEnd(dialect, snapshot);
        if (dialect === "mcp") continue; // it has all but the response
        assert.match(snapshot, /snapshot|mcp-|gemini-|ndjson-/, `${dialect}: ${snapshot}`);
    }
});

test("what is missing: trimmed, never there, no longer kept", async (t) => {
    const settings = { trim: "strict", "buffer-max-events": "4" };
    const gateway = await start(t, settings);
    const rand = randomness(t);
    for (const dialect of Object.keys(dialects)) {
        const { url, response } = await ask(gateway, dialect, planOf(dialect));
        await response.text();
        for (const last of ["1", "999"]) {
            const text = await (await fetch(url, { headers: { "last-event-id": last } })).text();
            const events = await check(dialect, text, rand);
            assert.equal(errorsIn(events).length, 1, `${dialect}, behind ${last}: ${text}`);
            checkEnd(dialect, text);
        }
    }
});

test("what is no longer kept, but for its snapshot", async (t) => {
    const gateway = await start(t, { "state-ttl": "400ms", "snapshot-ttl": "1h" });
    const rand = randomness(t);
    const late = async (dialect) => {
        const { url, response } = await ask(gateway, dialect, planOf(dialect));
        await response.text();
        const seen = (text) => text.split("data: ").length - 1;
        const text = await until(async () => {
            const answer = await (await fetch(url)).text();
            return seen(answer) <= 2 && answer.split("\n").length < 12 && answer;
        }, `the events of ${dialect} to go`);
        await check(dialect, text, rand);
        checkEnd(dialect, text);
    };
    // Responses are kept for as long as response-ttl says.
    await Promise.all(Object.keys(dialects).filter((dialect) => dialect !== "responses").map(late));
});
