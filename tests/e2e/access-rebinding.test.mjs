// SPDX-License-Identifier: Apache-2.0
// Attack 39: a name that changes between the check and the connection (DNS rebinding). In a network of its own, with
// a name server and a public address on this machine; skipped where there are no such networks. What libcurl is told
// is tested everywhere: tests/unit/http/test_fetch_guard.c.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { Running } from "./lib/run.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { within } from "./lib/wait.mjs";

const PUBLIC = "93.184.215.14";
const NETWORK = ["--user", "--map-root-user", "--net", "--mount"];
const SETUP = `ip link set lo up && ip addr add ${PUBLIC}/32 dev lo && mount --bind "$NAMES" /etc/resolv.conf`;

function missing() {
    try {
        execFileSync("unshare", [...NETWORK, "sh", "-c", SETUP], {
            stdio: "pipe",
            env: { ...process.env, NAMES: "/etc/resolv.conf" },
        });
        return false;
    } catch (error) {
        return `networks are not to be had: ${String(error.stderr ?? error).trim()}`;
    }
}

test("attack 39: a name that changes after it was checked", { skip: missing() }, async (t) => {
    const names = join(await tempFolder(t), "resolv.conf");
    await writeFile(names, "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n");
    const inside = `${SETUP} && exec "${process.execPath}" "${join(import.meta.dirname, "lib/rebinding.mjs")}"`;
    // Without the last it would report to this test's own runner.
    const env = { NAMES: names, PUBLIC_ADDRESS: PUBLIC, NODE_TEST_CONTEXT: undefined };
    const running = new Running(t, "unshare", [...NETWORK, "sh", "-c", inside], { env });
    const [code] = await within(running.ended, "the end of it", 150_000);
    assert.equal(code, 0, running.stdout + running.stderr);
    assert.match(running.stdout, /^# pass 1$/m);
});
