// SPDX-License-Identifier: Apache-2.0
// Programs run to their end, or for as long as a test needs them.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { defer } from "./defer.mjs";
import { assertNoReport, binary, sanitizerEnv } from "./server.mjs";
import { until, within } from "./wait.mjs";

/** A running program with its output so far. */
export class Running {
    stdout = "";
    stderr = "";

    constructor(t, file, args, { env, ...more } = {}) {
        this.name = `${file} ${args.join(" ")}`;
        const all = { ...sanitizerEnv(), ...env };
        this.child = spawn(file, args, { stdio: "pipe", env: all, ...more });
        this.child.stdout.setEncoding("utf8").on("data", (text) => (this.stdout += text));
        this.child.stderr.setEncoding("utf8").on("data", (text) => (this.stderr += text));
        this.child.stdin.on("error", () => {}); // it may end without reading
        this.ended = once(this.child, "close");
        defer(t, () => {
            if (this.child.exitCode === null && this.child.signalCode === null)
                this.child.kill("SIGKILL");
        });
    }

    /** Waits until the output matches. */
    output(pattern) {
        const what = `${pattern} in the output of ${this.name}`;
        return until(() => {
            const found = pattern.exec(this.stdout);
            const over = this.child.exitCode !== null || this.child.signalCode !== null;
            assert.ok(found || !over, `no ${what}: ${this.stdout}\n${this.stderr}`);
            return found;
        }, what);
    }

    /** Waits for its end: { code, signal, stdout, stderr }. */
    async end() {
        const [code, signal] = await within(this.ended, `${this.name} to end`);
        assertNoReport(this.stderr);
        return { code, signal, stdout: this.stdout, stderr: this.stderr };
    }
}

/** Runs a program with this input to its end. */
export async function run(t, file, args, { input = "", env } = {}) {
    const running = new Running(t, file, args, { env });
    running.child.stdin.end(input);
    return running.end();
}

/** Runs curl quietly; its output must be success unless fails is set. */
export async function curl(t, args, options = {}) {
    const result = await run(t, "curl", ["-sS", "--max-time", "20", ...args], options);
    assert.equal(result.code, 0, `curl ${args.join(" ")}: ${result.stderr}`);
    return result.stdout;
}

export function tidemark(t, args, options) {
    return run(t, binary(), args, options);
}
