// SPDX-License-Identifier: Apache-2.0
// The server behind the gateway: a process of its own, so that it can be killed.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { Agent, request } from "undici";
import { planOf } from "./backend-plan.mjs";
import { defer } from "./defer.mjs";
import { until, within } from "./wait.mjs";

const PROGRAM = fileURLToPath(new URL("backend-process.mjs", import.meta.url));

class Backend {
    stderr = "";
    #agent = new Agent();

    constructor(child) {
        this.child = child;
        this.ended = once(child, "close");
        child.stderr.setEncoding("utf8").on("data", (text) => (this.stderr += text));
    }

    async ready() {
        const [line] = await within(once(this.child.stdout, "data"), "the backend's port");
        this.port = Number(line.toString());
        assert.ok(this.port > 0, `the backend said ${line}\n${this.stderr}`);
    }

    url(path = "/answer") {
        return `http://127.0.0.1:${this.port}${path}`;
    }

    async #ask(method, path) {
        const answer = await request(this.url(path), { method, dispatcher: this.#agent });
        return answer.body.text();
    }

    /** The requests that it got, oldest first; of one plan, if its name is given. */
    async seen(name) {
        const all = JSON.parse(await this.#ask("GET", "/_seen"));
        if (name === undefined) return all;
        return all.filter(({ body }) => planOf(JSON.parse(body))?.name === name);
    }

    /** Lets the answers of this name pass their next gate. */
    go(name) {
        return this.#ask("POST", `/_go?name=${encodeURIComponent(name)}`);
    }

    /** Waits until the only answer of this name has sent so many events. */
    async hasSent(name, events) {
        await until(
            async () => (await this.seen(name))[0]?.sent >= events,
            `event ${events} of ${name} to leave the backend`,
        );
    }

    async kill() {
        await this.#agent.destroy();
        if (this.child.exitCode === null && this.child.signalCode === null)
            this.child.kill("SIGKILL");
        await within(this.ended, "the backend to end");
    }
}

/** Starts one on this port, or any; the test `t` ends it. */
export async function startBackend(t, { port = 0 } = {}) {
    const child = spawn(process.execPath, [PROGRAM, String(port)], {
        stdio: ["pipe", "pipe", "pipe"], // it ends with its input
    });
    const backend = new Backend(child);
    defer(t, async () => {
        await backend.kill();
        assert.equal(backend.stderr, "", "the backend complained");
    });
    await backend.ready();
    return backend;
}
