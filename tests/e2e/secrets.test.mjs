// SPDX-License-Identifier: Apache-2.0
// What the server keeps to itself: its secrets, from programs of the same user, those that it runs
// for tools among them.
import assert from "node:assert/strict";
import { once } from "node:events";
import { chmod, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { run, Running } from "./lib/run.mjs";
import { binary, freePort, startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const SECRETS = {
    SSE_RESUME_SECRET: "resume-secret-of-this-test-0123456789",
    SSE_RESUME_SECRET_PREVIOUS: "previous-secret-of-this-test-012345",
    HMAC_SECRET: "hmac-secret-of-this-test-0123456789",
    ATD_CURSOR_SIGNING_KEY: Buffer.alloc(32, 9).toString("base64url"),
    TIDEMARK_TOKEN: "token-of-this-test",
    WINDSURF_API_KEY: "windsurf-key-of-this-test",
};

/** Somebody who is not root, if we are; root may look into everything. */
const NOBODY = process.getuid() === 0 ? { uid: 65534, gid: 65534 } : {};

test("secrets are not to be seen in the environment of a server", async (t) => {
    const server = await startServer(t, [], { env: { ...SECRETS, NO_SECRET: "stays" } });
    const environ = await readFile(`/proc/${server.pid}/environ`, "utf8").catch(() => "closed");
    for (const [name, secret] of Object.entries(SECRETS)) assert.ok(!environ.includes(secret), name);
    assert.match(environ, /NO_SECRET=stays|^closed$/);
});

test("a password on the command line is not to be seen there", async (t) => {
    const url = `redis://user:password-of-this-test@127.0.0.1:${await freePort()}/0`;
    for (const flags of [["--store", url], [`--store=${url}`]]) {
        const server = await startServer(t, flags);
        const line = await readFile(`/proc/${server.pid}/cmdline`, "utf8");
        assert.match(line, /--store.redis:\/\/\*+@127/);
        assert.ok(!line.includes("password-of-this-test"));
    }
});

test("nor is one that the doctor is given", async (t) => {
    const silent = createServer();
    const asked = once(silent, "connection");
    await once(silent.listen(0, "127.0.0.1"), "listening");
    const url = `redis://user:password-of-this-test@127.0.0.1:${silent.address().port}/0`;
    const doctor = new Running(t, binary(), ["doctor", url]);
    const [socket] = await asked;
    const line = await readFile(`/proc/${doctor.child.pid}/cmdline`, "utf8");
    assert.match(line, /doctor.redis:\/\/\*+@127/);
    doctor.child.kill("SIGKILL");
    socket.destroy();
    silent.close();
});

test("a tool's command cannot look into the server", async (t) => {
    const folder = await tempFolder(t);
    const look = join(folder, "look");
    const lines = [
        "#!/bin/sh",
        "for f in environ mem maps; do",
        '  if head -c 1 /proc/$PPID/$f >/dev/null 2>&1; then echo "{\\"open\\":\\"$f\\"}"; fi',
        "done",
        `env | sed 's/.*/{"env":"&"}/'`,
    ];
    await writeFile(look, `${lines.join("\n")}\n`);
    const config = join(folder, "tidemark.ini");
    await writeFile(config, `[tool look]\ncommand = ${look}\n`);
    await chmod(folder, 0o777);
    await chmod(look, 0o755);
    const args = ["serve", "--store", "memory", "--listen", `unix:${folder}/s`, "--config", config];
    const server = new Running(t, binary(), args, { env: SECRETS, ...NOBODY });
    await until(() => /listening on/.test(server.stderr), "the server to listen");
    const call = new Running(t, binary(), ["tool", "run", "--server", `unix:${folder}/s`, "look"]);
    call.child.stdin.end();
    const { stdout, code, stderr } = await call.end();
    assert.equal(code, 0, stderr);
    assert.match(stdout, /PATH=/, "it has run");
    assert.doesNotMatch(stdout, /open/);
    for (const [name, secret] of Object.entries(SECRETS)) assert.ok(!stdout.includes(secret), name);
    server.child.kill("SIGTERM");
    assert.equal((await server.end()).code, 0);
});

test("every secret may be in a file, and one that others can read is warned of", async (t) => {
    const folder = await tempFolder(t);
    const file = async (name, text, mode) => {
        await writeFile(join(folder, name), text);
        await chmod(join(folder, name), mode);
        return join(folder, name);
    };
    const env = {
        SSE_RESUME_SECRET_FILE: await file("resume", `${SECRETS.SSE_RESUME_SECRET}\n`, 0o600),
        ATD_CURSOR_SIGNING_KEY_FILE: await file("key", SECRETS.ATD_CURSOR_SIGNING_KEY, 0o644),
        TIDEMARK_STORE_FILE: await file("store", "memory\n", 0o600),
    };
    const server = await startServer(t, ["--route", "/r=http://127.0.0.1:9/"], { env });
    await server.request("GET", "/healthz");
    assert.match(server.stderr, /warn +ATD_CURSOR_SIGNING_KEY is in a file that other users can read/);
    assert.equal(server.stderr.split("warn ").length - 1, 1, server.stderr);

    const refused = async (more) => (await run(t, binary(), ["serve"], { env: { ...env, ...more } })).stderr;
    const both = /SSE_RESUME_SECRET and SSE_RESUME_SECRET_FILE are both set/;
    assert.match(await refused({ SSE_RESUME_SECRET: "x" }), both);
    const none = { SSE_RESUME_SECRET_FILE: join(folder, "none") };
    assert.match(await refused(none), /SSE_RESUME_SECRET_FILE: .*none No such file/);
});

/** The core files that a server leaves which dies where it may leave one. */
async function coresOf(t, env) {
    const folder = await tempFolder(t);
    const line = `ulimit -c unlimited; cd ${folder}; exec "$0" "$@"`;
    const args = [binary(), "serve", "--store", "memory", "--listen", `unix:${folder}/s`];
    const server = new Running(t, "bash", ["-c", line, ...args], {
        env: { ASAN_OPTIONS: "disable_coredump=0:handle_abort=0", ...env },
    });
    await until(() => /listening on/.test(server.stderr), "the server to listen");
    server.child.kill("SIGABRT");
    await server.ended;
    return (await readdir(folder)).filter((name) => name.startsWith("core"));
}

test("a server that holds a secret leaves no core", async (t) => {
    const pattern = (await readFile("/proc/sys/kernel/core_pattern", "utf8")).trim();
    if (!/^core/.test(pattern)) return t.skip(`cores go to ${pattern} here`);
    const none = Object.fromEntries(Object.keys(SECRETS).map((name) => [name, ""]));
    if ((await coresOf(t, none)).length === 0) return t.skip("no server leaves a core here");
    assert.deepEqual(await coresOf(t, { ...none, HMAC_SECRET: SECRETS.HMAC_SECRET }), []);
});

test("a server that holds a secret belongs to root, as others see it", async (t) => {
    const owner = async (env) => {
        const folder = await tempFolder(t);
        await chmod(folder, 0o777);
        const args = ["serve", "--store", "memory", "--listen", `unix:${folder}/s`];
        const server = new Running(t, binary(), args, { env, ...NOBODY });
        await until(() => /listening on/.test(server.stderr), "the server to listen");
        const { uid } = await stat(`/proc/${server.child.pid}/environ`);
        server.child.kill("SIGTERM");
        assert.equal((await server.end()).code, 0);
        return uid;
    };
    const none = Object.fromEntries(Object.keys(SECRETS).map((name) => [name, ""]));
    assert.equal(await owner(none), NOBODY.uid ?? process.getuid());
    assert.equal(await owner({ ...none, SSE_RESUME_SECRET: SECRETS.SSE_RESUME_SECRET }), 0);
});
