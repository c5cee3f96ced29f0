// SPDX-License-Identifier: Apache-2.0
// A server that ends and comes back at the same address with the same data, and clients that live
// through it.
import assert from "node:assert/strict";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { defer } from "./defer.mjs";
import { freePort, spawnServer } from "./server.mjs";
import { tempFolder } from "./temp.mjs";

const RETRY_MS = 5;

export class Site {
    #t;
    #flags;

    constructor(t, folder, port, flags) {
        this.#t = t;
        this.#flags = flags;
        this.data = join(folder, "data");
        this.port = port;
        this.base = `http://127.0.0.1:${port}`;
        this.server = null; // the one that runs, or ran last
        this.up = false;
        this.starts = 0;
        this.answers = 0; // to once(), insist() and fetch()
        this.over = false; // the test has ended: nobody need insist any longer
        defer(t, () => (this.over = true));
    }

    /** What net.connect takes. */
    get where() {
        return { host: "127.0.0.1", port: this.port };
    }

    url(name, query = "") {
        return `${this.base}/v1/stream/${name}${query}`;
    }

    /** Without waiting for it to accept connections: it may be busy recovering. */
    async spawn() {
        const { data, port } = this;
        this.server = await spawnServer(this.#t, this.#flags, { data, port });
        this.starts++;
    }

    async start() {
        await this.spawn();
        await this.server.ready();
        this.up = true;
        return this.server;
    }

    async kill() {
        this.up = false;
        await this.server.kill();
    }

    async stop() {
        this.up = false;
        await this.server.stop();
    }

    /** Ends it by SIGTERM or SIGKILL and starts it again. */
    async restart(signal) {
        await (signal === "SIGKILL" ? this.kill() : this.stop());
        return this.start();
    }

    /** Sends a request once: the answer, or null if its fate is not known. */
    async once(method, name, options) {
        try {
            const answer = await this.server.stream(method, name, options);
            if (answer.status === 503) return null;
            this.answers++;
            return answer;
        } catch {
            return null;
        }
    }

    /** Sends a request until it is answered. `repeated`: an earlier attempt may have had effect. */
    async insist(method, name, options) {
        for (let repeated = false; ; repeated = true) {
            const answer = await this.once(method, name, options);
            if (answer !== null) return { ...answer, repeated };
            assert.ok(!this.over, `${method} ${name} was never answered`);
            await delay(RETRY_MS);
        }
    }

    /**
     * A fetch that asks again until it is answered; the clients here leave that to it.
     * answered(response, init, attempts) sees every answer.
     */
    fetch(answered = () => {}) {
        return async (url, init) => {
            for (let attempts = 1; ; attempts++) {
                const answer = await fetch(url, init).catch(() => null);
                if (answer !== null && answer.status !== 503) {
                    this.answers++;
                    answered(answer, init, attempts);
                    return answer;
                }
                assert.ok(!this.over, `${url} was never answered`);
                await answer?.arrayBuffer();
                await delay(RETRY_MS);
            }
        };
    }
}

/** A server on disk, started. */
export async function startSite(t, flags = []) {
    const site = new Site(t, await tempFolder(t), await freePort(), flags);
    await site.start();
    return site;
}
