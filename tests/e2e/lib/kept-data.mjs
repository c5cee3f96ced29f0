// SPDX-License-Identifier: Apache-2.0
// Data that a release has written: how it is made, and what a later server must find in it.
// kept-data-make.mjs calls the fill functions with the binary of that release, kept-data.test.mjs
// looks at the result with the current one.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { defer } from "./defer.mjs";
import { mint, open, PATH, read, SECRET, unpack } from "./gateway.mjs";
import { SERVICES } from "./session-schema.mjs";
import { Peer, Session } from "./session.mjs";
import { tempFolder } from "./temp.mjs";

const JSON_TYPE = "application/json";
const SUBSCRIPTIONS = "__ds/subscriptions";
const WORDS = ["The", " tide", " turns."];
// What a generation needs to outlive its making by as much as a route allows.
const LONG = "365d";

/** A backend that answers with WORDS. */
export async function startWords(t) {
    const server = createServer((request, response) => {
        request.resume();
        response.writeHead(200, { "Content-Type": "text/event-stream" });
        for (const text of WORDS) response.write(`data: ${JSON.stringify({ text })}\n\n`);
        response.end();
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    defer(t, () => server.close());
    return `http://127.0.0.1:${server.address().port}/`;
}

/** The flags and variables of a server with everything that the data has to do with. */
export async function settings(t, upstream) {
    const file = join(await tempFolder(t), "tidemark.ini");
    const kept = `state-ttl = ${LONG}\nkey-lifetime = ${LONG}\n`;
    const route = `[route ${PATH}]\nupstream = ${upstream}\n${kept}`;
    await writeFile(file, `[session]\nhandler = echo\nlifetime = 30d\n\n${route}`);
    return { flags: ["--config", file], env: { SSE_RESUME_SECRET: SECRET } };
}

const producer = (epoch, seq) => ({
    "producer-id": "writer",
    "producer-epoch": String(epoch),
    "producer-seq": String(seq),
});

async function expect(status, promise) {
    const answer = await promise;
    assert.equal(answer.status, status, answer.text);
    return answer;
}

const fork = (server, name, from, at) =>
    expect(
        201,
        server.stream("PUT", name, {
            headers: {
                "stream-forked-from": `/v1/stream/${from}`,
                ...(at && { "stream-fork-offset": at }),
            },
        }),
    );

const subscribe = (server, id, body) =>
    expect(
        201,
        server.stream("PUT", `${SUBSCRIPTIONS}/${id}`, {
            headers: { "content-type": JSON_TYPE },
            body: JSON.stringify(body),
        }),
    );

function work(server, id, verb, body, token) {
    const headers = { "content-type": JSON_TYPE };
    if (token) headers.authorization = `Bearer ${token}`;
    const path = `${SUBSCRIPTIONS}/${id}/${verb}`;
    return expect(200, server.stream("POST", path, { headers, body: JSON.stringify(body) }));
}

const post = (t, server) =>
    open(t, server, "POST", PATH, { "Idempotency-Key": "kept" }, JSON.stringify({ ask: 1 }));

async function fillStreams(server, at) {
    await server.create(`${at}/open`);
    for (let i = 0; i < 5; i++) await server.append(`${at}/open`, JSON.stringify([{ i }, i]));
    await server.create(`${at}/closed`, "text/plain", { body: "all there is, ü\n" });
    await server.close(`${at}/closed`);
    await server.create(`${at}/binary`, "application/octet-stream");
    // More than a block, in pieces of all sizes.
    for (let i = 0; i < 12; i++)
        await server.append(
            `${at}/binary`,
            Buffer.alloc(i * 4001 + 1, i),
            "application/octet-stream",
        );
    await server.create(`${at}/short`, JSON_TYPE, { headers: { "stream-retain-events": "3" } });
    for (let i = 0; i < 9; i++) await server.append(`${at}/short`, String(i));
    await server.create(`${at}/ttl`, JSON_TYPE, { headers: { "stream-ttl": "31536000" } });
    await server.append(`${at}/ttl`, '"soon gone"');

    await server.create(`${at}/produced`);
    for (let seq = 0; seq < 3; seq++)
        await server.append(`${at}/produced`, String(seq), JSON_TYPE, producer(4, seq));
    await server.append(`${at}/produced`, '"in order"', JSON_TYPE, { "stream-seq": "b" });

    await server.create(`${at}/reborn`, "text/plain", { body: "first life" });
    await expect(204, server.stream("DELETE", `${at}/reborn`));
    await server.create(`${at}/reborn`, JSON_TYPE, { body: "[2]" });
    await server.create(`${at}/deleted`, JSON_TYPE, { body: "[1]" });
    await expect(204, server.stream("DELETE", `${at}/deleted`));
}

async function fillForks(server, at) {
    await server.create(`${at}/trunk`);
    const { headers } = await server.append(`${at}/trunk`, '["a","b"]');
    await server.append(`${at}/trunk`, '"c"');
    await fork(server, `${at}/branch`, `${at}/trunk`, headers["stream-next-offset"]);
    await server.append(`${at}/branch`, '"d"');
    await fork(server, `${at}/twig`, `${at}/branch`);
    await server.append(`${at}/twig`, '"e"');
    await server.create(`${at}/felled`, JSON_TYPE, { body: '["x"]' });
    await fork(server, `${at}/orphan`, `${at}/felled`);
    await expect(204, server.stream("DELETE", `${at}/felled`));
}

async function fillSubscription(server, at) {
    await server.create(`wakes/${at}`);
    await server.create(`jobs/${at}/one`);
    const body = { type: "pull-wake", pattern: `jobs/${at}/**`, wake_stream: `wakes/${at}` };
    await subscribe(server, `workers-${at}`, body);
    await subscribe(server, `hook-${at}`, {
        type: "webhook",
        pattern: `never/${at}/*`,
        webhook: { url: "https://hooks.example/tidemark" },
    });
    await server.append(`jobs/${at}/one`, '"done"');
    const claim = (await work(server, `workers-${at}`, "claim", { worker: "w" })).json();
    const [{ path, tail_offset: offset }] = claim.streams;
    const { wake_id, generation, token } = claim;
    const acks = [{ stream: path, offset }];
    await work(server, `workers-${at}`, "ack", { wake_id, generation, acks, done: true }, token);
    await server.append(`jobs/${at}/one`, '"pending"');
}

async function fillSession(t, server, at) {
    const session = new Session(SERVICES[0]);
    const call = new Peer(t, server).open(session, { position: 0 });
    await call.welcomed();
    call.chunk(0, `${at}: hello`).chunk(1, `${at}: again`);
    await call.acked(2);
    await call.seen(2);
    call.cancel();
    return { key: session.key, secret: session.secret.toString("base64url") };
}

/** Writes one of everything below `at`. What only the writer knows of it is returned. */
export async function fill(t, server, at) {
    await fillStreams(server, at);
    await fillForks(server, at);
    await fillSubscription(server, at);
    return { session: await fillSession(t, server, at) };
}

/** A generation under an idempotency key; once for all. */
export async function fillGeneration(t, server) {
    const { events, token } = await read(await post(t, server));
    assert.equal(events.length, WORDS.length);
    return { token };
}

const STREAM_HEADERS = [
    "content-type",
    "stream-next-offset",
    "stream-closed",
    "stream-end-reason",
    "stream-ttl",
    "stream-retain-events",
];

/** All of a stream; a JSON stream as one array, in however many answers it came. */
const readWhole = async (server, name) => (await server.readAll(name)).replaceAll("][", ",");

const digest = (text) => `sha256 ${createHash("sha256").update(text).digest("hex")}`;

async function lookStream(server, name) {
    const { status, headers } = await server.stream("HEAD", name);
    if (status !== 200) return { status };
    const kept = STREAM_HEADERS.filter((key) => headers[key] !== undefined);
    const content = await readWhole(server, name);
    return {
        headers: Object.fromEntries(kept.map((key) => [key, headers[key]])),
        content: content.length > 256 ? digest(content) : content,
    };
}

/** All that can be seen of the data without changing it; leases and webhooks aside. */
export async function look(server, places) {
    const names = [];
    for (let after = ""; ;) {
        const query = `?limit=7&after=${encodeURIComponent(after)}`;
        const { streams, next } = (await server.request("GET", `/v1/stream/${query}`)).json();
        names.push(...streams.map(({ name }) => name));
        if (!next) break;
        after = next;
    }
    const streams = {};
    const gone = places.flatMap((at) => [`${at}/deleted`, `${at}/felled`]);
    for (const name of [...names, ...gone]) streams[name] = await lookStream(server, name);
    const subscriptions = {};
    for (const id of places.flatMap((at) => [`workers-${at}`, `hook-${at}`])) {
        const shown = (await expect(200, server.stream("GET", `${SUBSCRIPTIONS}/${id}`))).json();
        subscriptions[id] = shown;
    }
    const { keys } = (await expect(200, server.stream("GET", "__ds/jwks.json"))).json();
    return { streams, subscriptions, keys };
}

/** What depends on state that reads do not show: writes that are recognised, work that is due. */
export async function tryWrites(server, at) {
    const again = await server.stream("POST", `${at}/produced`, {
        headers: { "content-type": JSON_TYPE, ...producer(4, 2) },
        body: "2",
    });
    assert.equal(again.status, 204, "a retry from before is recognised");
    assert.equal(again.headers["producer-seq"], "2");
    const old = await server.stream("POST", `${at}/produced`, {
        headers: { "content-type": JSON_TYPE, ...producer(3, 9) },
        body: "2",
    });
    assert.equal(old.status, 403, "an older epoch is fenced");
    const order = { headers: { "content-type": JSON_TYPE, "stream-seq": "a" }, body: "1" };
    await expect(409, server.stream("POST", `${at}/produced`, order));
    await server.append(`${at}/produced`, "3", JSON_TYPE, producer(4, 3));
    assert.equal(await readWhole(server, `${at}/produced`), '[0,1,2,"in order",3]');

    await server.append(`${at}/twig`, '"f"');
    assert.equal(await readWhole(server, `${at}/twig`), '["a","b","d","e","f"]');
    const late = { headers: { "content-type": "text/plain" }, body: "x" };
    await expect(409, server.stream("POST", `${at}/closed`, late));

    const claim = (await work(server, `workers-${at}`, "claim", { worker: "w" })).json();
    assert.deepEqual(
        claim.streams.filter((s) => s.has_pending).map((s) => s.path),
        [`jobs/${at}/one`],
        "what was not acknowledged is pending",
    );
}

/** The session goes on: its events are there, and another chunk is answered. */
export async function trySession(t, server, { key, secret }, at) {
    const session = new Session(SERVICES[0], { key, secret: Buffer.from(secret, "base64url") });
    const call = new Peer(t, server).open(session, { position: 0 });
    await call.welcomed();
    await call.seen(2);
    assert.deepEqual(call.texts, [`${at}: hello`, `${at}: again`]);
    call.chunk(2, `${at}: still here`);
    await call.seen(3);
    assert.equal(call.texts[2], `${at}: still here`);
    call.cancel();
}

/** The key leads to the first answer, and its token, with a new time, resumes it; nobody is asked. */
export async function tryGeneration(t, server, { token }) {
    const texts = ({ events }) => events.map(({ data }) => JSON.parse(data).text);
    assert.deepEqual(texts(await read(await post(t, server))), WORDS);
    const fresh = mint({ ...unpack(token), expiresAt: Date.now() + 60_000 });
    const seen = { "X-Resume-Token": fresh, "Last-Event-ID": "1" };
    const resumed = await open(t, server, "POST", `${PATH}/resume`, seen);
    assert.deepEqual(texts(await read(resumed)), WORDS.slice(1));
}
