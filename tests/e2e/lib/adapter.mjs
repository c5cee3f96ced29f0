// SPDX-License-Identifier: Apache-2.0
// The library, driven through tests/conformance/client-adapter: a command a line, an answer a line.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { defer } from "./defer.mjs";
import { assertNoReport, binary, sanitizerEnv } from "./server.mjs";
import { within } from "./wait.mjs";

class Adapter {
    stderr = "";
    #waiting = [];

    constructor(child) {
        this.child = child;
        this.ended = once(child, "close");
        child.stderr.setEncoding("utf8").on("data", (text) => (this.stderr += text));
        createInterface({ input: child.stdout }).on("line", (line) =>
            this.#waiting.shift()?.(JSON.parse(line)),
        );
    }

    /** The result of a command, whatever it is. Commands are answered one after the other. */
    send(type, args = {}) {
        const answer = new Promise((resolve) => this.#waiting.push(resolve));
        this.child.stdin.write(JSON.stringify({ type, ...args }) + "\n");
        return within(answer, `the answer to ${type}`, 40_000);
    }

    /** The result of a command that succeeds. */
    async ask(type, args) {
        const result = await this.send(type, args);
        assert.ok(result.success, `${type}: ${JSON.stringify(result)}`);
        return result;
    }

    async stop() {
        this.child.stdin.end();
        const [code] = await within(this.ended, "the adapter to end");
        assertNoReport(this.stderr);
        assert.equal(code, 0, this.stderr);
    }
}

/** An adapter that talks to the server whose streams lie under `url`. */
export async function startAdapter(t, url) {
    const path = join(dirname(binary()), "tests/conformance/client-adapter/adapter");
    const adapter = new Adapter(spawn(path, [], { env: sanitizerEnv() }));
    defer(t, () => adapter.stop());
    await adapter.ask("init", { serverUrl: url });
    return adapter;
}

export const textOf = (result) => result.chunks.map(({ data }) => data).join("");
