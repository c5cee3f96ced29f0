// SPDX-License-Identifier: Apache-2.0
// The Cascade bridge finds its language server by itself, and again when the editor was started
// anew: the first question gets its answer, and nobody else gets the token or the key.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createServer } from "node:net";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { ask, asking, startBridge } from "./lib/cascade.mjs";
import { KEY } from "./lib/language-server.mjs";
import { Running } from "./lib/run.mjs";
import { until } from "./lib/wait.mjs";

const EDITOR = fileURLToPath(new URL("lib/language-server-process.mjs", import.meta.url));
const NOBODY = 65534;

// Whoever discovers takes the newest language server of the machine, so that one run of this file
// at a time can work. A name of Linux's that goes with its process is the lock.
const LOCK = "\0tidemark-tests-cascade-discovery";
let lock;

const tryLock = () =>
    new Promise((resolve) => {
        lock = createServer();
        lock.once("error", (error) => resolve(error.code !== "EADDRINUSE"));
        lock.listen(LOCK, () => resolve(true));
    });

before(() => until(tryLock, "another run of these tests to end", 120_000));
after(() => lock.close());

/** A language server as an editor starts it: { port, token, stop() }. */
async function startEditor(t, port) {
    const token = randomUUID();
    const running = new Running(t, process.execPath, [EDITOR, "--ide_name", "windsurf"], {
        argv0: "language_server_linux_x64",
        env: { WINDSURF_CSRF_TOKEN: token, ...(port && { PORT: String(port) }) },
    });
    const [, number] = await running.output(/listening on (\d+)/);
    const stop = async () => {
        running.child.kill("SIGKILL");
        await running.ended;
    };
    return { port: Number(number), token, stop };
}

const discover = { settings: { target: "discover", "csrf-token": undefined } };

test("the first question after the editor is back elsewhere", async (t) => {
    let editor = await startEditor(t);
    const bridge = await startBridge(t, discover);
    assert.equal((await ask(bridge, "ping")).text, "pong");
    await editor.stop();
    editor = await startEditor(t);
    assert.equal((await ask(bridge, "ping")).text, "pong");
    await editor.stop();
    editor = await startEditor(t);
    assert.ok((await bridge.client.models.list()).data.length > 0, "and the first look at models");
    await editor.stop();
    await assert.rejects(bridge.client.chat.completions.create(asking("ping")), {
        status: 503,
        code: "NOT_RUNNING",
    });
});

test("the first question after the editor is back with another token", async (t) => {
    const first = await startEditor(t);
    const bridge = await startBridge(t, discover);
    assert.ok((await bridge.client.models.list()).data.length > 0);
    await first.stop();
    const second = await startEditor(t, first.port);
    assert.equal(second.port, first.port);
    assert.equal((await ask(bridge, "ping")).text, "pong");
});

const LISTENER = `
    require("node:net").createServer((socket) => socket.on("error", () => {}).pipe(process.stdout))
        .listen(Number(process.argv[1]), "127.0.0.1", () => console.log("listening"));
`;

test("a port that another user has taken over", async (t) => {
    if (process.getuid() !== 0) return t.skip("only root can be two users");
    const first = await startEditor(t);
    const bridge = await startBridge(t, discover);
    assert.ok((await bridge.client.models.list()).data.length > 0);
    await first.stop();
    const other = new Running(t, process.execPath, ["-e", LISTENER, String(first.port)], {
        uid: NOBODY,
        gid: NOBODY,
        cwd: "/",
    });
    await other.output(/listening/);
    await assert.rejects(bridge.client.chat.completions.create(asking("ping")), { status: 503 });
    const second = await startEditor(t);
    assert.equal((await ask(bridge, "ping")).text, "pong", "the new one is found");
    for (const secret of [KEY, first.token, second.token])
        assert.ok(!other.stdout.includes(secret), other.stdout);
    assert.match(bridge.server.stderr, /another user's process listens at/);
});
