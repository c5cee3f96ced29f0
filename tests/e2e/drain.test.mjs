// SPDX-License-Identifier: Apache-2.0
// SIGTERM: no new work is taken, what is under way is brought to its end, and readers are told.
import assert from "node:assert/strict";
import { test } from "node:test";
import { read, startGateway } from "./lib/gateway.mjs";
import { chunk, openRaw, Raw, wire } from "./lib/raw.mjs";
import { startServer } from "./lib/server.mjs";
import { openSse } from "./lib/sse.mjs";
import { until, within } from "./lib/wait.mjs";

const TEXT = "text/plain";
const SLOW = { "Content-Type": TEXT, Expect: "100-continue" };

test("live readers end cleanly, an append under way is finished, exit code 0", async (t) => {
    const server = await startServer(t);
    await server.create("x", TEXT, { body: "begin " });
    const readers = [];
    for (let i = 0; i < 5; i++) {
        const reader = await openSse(t, server, "x?offset=-1&live=sse");
        assert.equal((await reader.event("data")).data, "begin ");
        readers.push(reader);
    }
    const poller = await openRaw(t, server);
    poller.send(wire("GET", "x?offset=now&live=long-poll"));
    const idle = await openRaw(t, server);
    idle.send(wire("HEAD", "x"));
    assert.equal((await idle.answer("HEAD")).status, 200);

    const writer = await openRaw(t, server);
    writer.send(wire("POST", "x", { ...SLOW, "Transfer-Encoding": "chunked" }));
    assert.equal((await writer.head()).status, 100, "the server reads the body");
    writer.send(chunk("almost"));

    server.signal("SIGTERM");
    for (const reader of readers) {
        while ((await reader.next()) !== null);
        assert.equal(reader.finished, true, "the chunked body has its end");
        assert.equal((await reader.raw.takeAll()).length, 0);
    }
    const polled = await poller.answer();
    assert.ok([200, 204].includes(polled?.status), `long-poll: ${polled?.status}`);
    assert.match(polled.headers["stream-next-offset"], /^\d{16}_\d{16}$/);
    assert.equal((await idle.takeAll()).length, 0, "an idle connection is closed");
    await until(async () => {
        const late = new Raw(server);
        late.send(wire("GET", "x"));
        const answer = await late.answer();
        late.destroy();
        return answer === null || answer.status === 503;
    }, "new connections to be turned away");

    assert.ok(server.running, "the server did not wait for the append");
    writer.send(chunk(" done") + chunk(""));
    const answer = await writer.answer("POST");
    assert.equal(answer?.status, 204);
    assert.match(answer.headers["stream-next-offset"], /^\d{16}_\d{16}$/);
    assert.equal((await writer.takeAll()).length, 0);
    const { code, signal } = await within(server.ended, "the server to end");
    assert.deepEqual({ code, signal }, { code: 0, signal: null });
});

test("while an answer finishes, who comes back follows on instead of asking in a circle", async (t) => {
    const gateway = await startGateway(t);
    const { server, backend } = gateway;
    const { headers } = await server.create("x");
    const asked = await gateway.post({ name: "slow", tokens: 9, gates: [3] });
    await read(asked, 3);
    const before = await openSse(t, server, "x?offset=-1&live=sse");
    await before.control();
    server.signal("SIGTERM");
    while ((await before.next()) !== null); // it ends, and is told nothing that keeps it away

    const again = await openSse(t, server, "x?offset=now&live=sse");
    await again.control();
    const poller = await openRaw(t, server);
    poller.send(wire("GET", `x?offset=${headers["stream-next-offset"]}&live=long-poll`));
    await server.append("x", "1");
    assert.equal((await again.event("data")).data, "[1]");
    assert.equal((await poller.answer()).status, 200, "the long-poll waited for something");
    assert.equal(again.finished, false);

    await backend.go("slow");
    await within(read(asked), "the answer to end");
    while ((await again.next()) !== null);
    assert.equal(again.finished, true, "the chunked body has its end");
    const { code } = await within(server.ended, "the server to end");
    assert.equal(code, 0);
});

test("a reader that is behind gets a complete last event and can go on by its id", async (t) => {
    const server = await startServer(t);
    await server.create("x");
    for (let i = 0; i < 50; i++)
        await server.append("x", JSON.stringify({ i, pad: "p".repeat(2000) }));
    const reader = await openSse(t, server, "x?offset=-1&live=sse");
    server.signal("SIGTERM");
    let next = 0;
    for (let event = await reader.next(); event !== null; event = await reader.next())
        if (event.event === "data")
            for (const { i } of JSON.parse(event.data)) assert.equal(i, next++);
    assert.equal(reader.finished, true);
});

test("a peer that never finishes does not keep the server alive for ever", async (t) => {
    const server = await startServer(t, ["--drain-timeout", "300ms"]);
    await server.create("x", TEXT);
    const writer = await openRaw(t, server);
    writer.send(wire("POST", "x", { ...SLOW, "Content-Length": 100 }));
    assert.equal((await writer.head()).status, 100);
    server.signal("SIGTERM");
    const { code } = await within(server.ended, "the server to end");
    assert.equal(code, 0);
});

test("SIGINT is as good as SIGTERM", async (t) => {
    const server = await startServer(t);
    await server.create("x", TEXT);
    const reader = await openSse(t, server, "x?offset=-1&live=sse");
    server.signal("SIGINT");
    while ((await reader.next()) !== null);
    const { code } = await within(server.ended, "the server to end");
    assert.equal(code, 0);
});
