// SPDX-License-Identifier: Apache-2.0
// SIGHUP: what can change while a server runs does, what cannot is told, and nothing is killed.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { open, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { TIDEMARK } from "./lib/session-schema.mjs";
import { Peer, Session } from "./lib/session.mjs";
import { Running } from "./lib/run.mjs";
import { binary, startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until, within } from "./lib/wait.mjs";

const caller = (name, token) =>
    `[caller ${name}]\ntoken-sha256 = ${createHash("sha256").update(token).digest("hex")}\ncapabilities = worker\n`;

class Site {
    static async start(t, text, flags = [], env = {}) {
        const site = new Site();
        site.file = join(await tempFolder(t), "tidemark.ini");
        await writeFile(site.file, text);
        site.server = await startServer(t, ["--config", site.file, ...flags], { env });
        return site;
    }

    /** Changes the file and has it read again: what the server then says, when it says this. */
    async reload(text, answer) {
        const before = this.server.stderr.length;
        if (text !== undefined) await writeFile(this.file, text);
        process.kill(this.server.pid, "SIGHUP");
        const said = () => this.server.stderr.slice(before);
        await until(() => answer.test(said()), `${answer} behind ${said()}`);
        return said();
    }

    async metric(name) {
        const { text } = await this.server.request("GET", "/metrics");
        return Number(new RegExp(`^tidemark_${name} (\\d+)$`, "m").exec(text)?.[1]);
    }

    async isWorker(token) {
        const headers = { authorization: `Bearer ${token}` };
        return (await this.server.request("GET", "/v1/session/", { headers })).status === 200;
    }
}

test("a server without TLS and without a file goes on", async (t) => {
    const server = await startServer(t);
    for (let n = 1; n <= 3; n++) {
        process.kill(server.pid, "SIGHUP");
        await until(() => server.stderr.split("no config file").length === n + 1, "it to be told");
    }
    assert.equal((await server.request("GET", "/readyz")).status, 200);
});

test("settings that can change do; others need a restart, and it is said which", async (t) => {
    const site = await Site.start(t, `max-connections = 100\n${caller("one", "token-1")}`);
    assert.equal(await site.metric("connections_max"), 100);
    assert.deepEqual([await site.isWorker("token-1"), await site.isWorker("token-2")], [true, false]);

    const other = `max-connections = 200\nheartbeat = 5s\ntrace-level = debug\nretain-events = 5\n`;
    const more = `retain-age = 1h\ndisk-cap = 64m\n${caller("one", "token-2")}[route /r]\nupstream = http://127.0.0.1:9/\n`;
    const said = await site.reload(other + more, /needs a restart/);
    assert.match(said, /info +SIGHUP: in use now: retain-events, max-connections, heartbeat, trace-level, \[caller\]\n/);
    assert.match(said, /warn +SIGHUP: changed, but needs a restart: disk-cap, retain-age, \[route\]\n/);
    assert.equal(await site.metric("connections_max"), 200);
    assert.deepEqual([await site.isWorker("token-1"), await site.isWorker("token-2")], [false, true]);
    assert.equal((await site.server.request("POST", "/r")).status, 404);

    await site.server.create("s", "text/plain");
    for (let n = 0; n < 20; n++) await site.server.append("s", String(n % 10), "text/plain");
    assert.equal((await site.server.readAll("s").catch(() => "trimmed")).length < 20, true);

    assert.match(await site.reload(other, /SIGHUP: in use now/), /in use now: \[caller\]\n/);
    assert.equal(await site.isWorker("token-2"), false);
    assert.match(await site.reload(undefined, /SIGHUP: no/), /no setting has changed/);
});

test("names and the pause of an EventSource change without a restart", async (t) => {
    const site = await Site.start(t, "allow-host = one\n");
    const { server } = site;
    const status = async (host) =>
        (await server.request("GET", "/metrics", { headers: { host } })).status;
    await server.create("s");
    await server.close("s");
    const first = async () => (await server.stream("GET", "s?offset=-1&live=sse")).text;
    assert.deepEqual([await status("one"), await status("two")], [200, 421]);
    assert.match(await first(), /^retry: 100\n/);
    const said = await site.reload("allow-host = two\nsse-retry = 7ms\n", /SIGHUP: in use now/);
    assert.match(said, /in use now: allow-host, sse-retry\n/);
    assert.deepEqual([await status("one"), await status("two")], [421, 200]);
    assert.match(await first(), /^retry: 7\n/);
});

test("what workers read of sessions changes with the rest", async (t) => {
    const site = await Site.start(t, `sse-lifetime = 1h\n${caller("one", "token-1")}`);
    const session = new Session(TIDEMARK);
    const call = new Peer(t, site.server).open(session).chunk(0, "question");
    await call.acked(1);
    await site.reload(`sse-lifetime = 100ms\n${caller("one", "token-1")}`, /in use now: sse-lifetime/);
    const headers = { authorization: "Bearer token-1" };
    const path = `sessions/${session.key}/in?offset=-1&live=sse`;
    const read = site.server.stream("GET", path, { headers });
    assert.equal((await within(read, "the end of the answer")).status, 200);
    call.close();
});

test("a file with an error changes nothing, and is told", async (t) => {
    const good = `max-connections = 100\n${caller("one", "token-1")}`;
    const site = await Site.start(t, good);
    const said = await site.reload(`max-connections = 200\nheartbeet = 1s\n`, /stay/);
    assert.match(said, /error +SIGHUP: the settings in use stay: .*tidemark\.ini:2: .*heartbeat/);
    assert.equal(await site.metric("connections_max"), 100);
    assert.equal(await site.metric("reload_failed"), 1);
    assert.equal(await site.isWorker("token-1"), true);
    await site.reload(good, /no setting has changed/);
    assert.equal(await site.metric("reload_failed"), 0);
});

test("a secret in a pipe cannot be read again, which is told and holds nothing up", async (t) => {
    const pipe = join(await tempFolder(t), "secret");
    execFileSync("mkfifo", [pipe]);
    const written = writeFile(pipe, "0123456789abcdef0123456789abcdef");
    const site = await Site.start(t, "max-connections = 100\n", [], { SSE_RESUME_SECRET_FILE: pipe });
    await written;
    await site.reload("max-connections = 200\n", /stay: SSE_RESUME_SECRET_FILE names no regular file/);
    assert.equal(await site.metric("connections_max"), 100);
});

test("a flag still goes before the file", async (t) => {
    const site = await Site.start(t, "max-connections = 100\n", ["--max-connections", "300"]);
    await site.reload("max-connections = 200\n", /no setting has changed/);
    assert.equal(await site.metric("connections_max"), 300);
});

test("a hangup while the server starts waits until it has", async (t) => {
    const file = join(await tempFolder(t), "tidemark.ini");
    execFileSync("mkfifo", [file]);
    const args = ["serve", "--store", "memory", "--listen", "127.0.0.1:0", "--config", file];
    const server = new Running(t, binary(), args);
    const config = await within(open(file, "w"), "the server to read its file");
    server.child.kill("SIGHUP");
    await config.writeFile("max-connections = 100\n");
    await config.close();
    await until(() => /SIGHUP: the settings in use stay: .* is no regular file/.test(server.stderr), "it to be heard");
    assert.match(server.stderr, /listening on/);
    server.child.kill("SIGTERM");
    assert.equal((await server.end()).code, 0);
});

test("the Lab ends in order when its terminal is closed", async (t) => {
    const folder = await tempFolder(t);
    const lab = new Running(t, binary(), ["lab", "--port", "0"], { cwd: folder, env: { HOME: folder } });
    await lab.output(/lab on/);
    lab.child.kill("SIGHUP");
    const { code, signal } = await lab.end();
    assert.deepEqual({ code, signal }, { code: 0, signal: null });
});
