// SPDX-License-Identifier: Apache-2.0
// Real Redis servers for tests: one, a primary with replicas and Sentinels, or a cluster of three.
// Each has a folder and a free port of its own and is ended by its own pid.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { defer } from "./defer.mjs";
import { freePort } from "./server.mjs";
import { tempFolder } from "./temp.mjs";
import { until, within } from "./wait.mjs";

const run = promisify(execFile);

export class Redis {
    #child;
    #command;
    #inside;

    /** inside: the words of a command that runs another one, somewhere. */
    constructor(port, args, { host = "127.0.0.1", inside = [] } = {}) {
        this.port = port;
        this.host = host;
        this.#inside = inside;
        this.#command = [...inside, "redis-server", ...args];
    }

    get url() {
        return `redis://${this.host}:${this.port}`;
    }

    get pid() {
        return this.#child.pid;
    }

    get running() {
        return this.#child.exitCode === null && this.#child.signalCode === null;
    }

    /** Somebody else's may be on a port that was free: two who test at once must share no Redis. */
    async #answers() {
        if ((await this.cli("PING").catch(() => "")) !== "PONG") return false;
        return this.#inside.length > 0 || (await this.info("process_id")) === String(this.pid);
    }

    /** Starts it, again too: with the files that it left. Returns when it answers. */
    async start() {
        const [program, ...args] = this.#command;
        this.#child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
        this.said = "";
        this.#child.stdout.setEncoding("utf8").on("data", (text) => (this.said += text));
        this.#child.stderr.setEncoding("utf8").on("data", (text) => (this.said += text));
        this.ended = once(this.#child, "close");
        await until(async () => {
            assert.ok(this.running, `redis-server ended at once: ${this.said}`);
            return this.#answers();
        }, "redis-server to answer");
    }

    /** What redis-cli prints for this command, without the newline behind it. */
    async cli(...words) {
        const args = ["-h", this.host, "-p", String(this.port), ...words];
        const { stdout } = await within(run("redis-cli", args), `redis-cli ${words[0]}`);
        return stdout.replace(/\n$/, "");
    }

    /** A field of INFO. */
    async info(field) {
        const text = await this.cli("INFO", "everything");
        return new RegExp(`^${field}:(.*?)\\r?$`, "m").exec(text)?.[1];
    }

    signal(name) {
        process.kill(this.pid, name);
    }

    /** As a crash would. */
    async kill() {
        if (this.running) this.signal("SIGKILL");
        await within(this.ended, "redis-server to die");
    }

    async stop() {
        if (!this.running) return;
        this.signal("SIGCONT"); // it may have been stopped
        this.signal("SIGKILL"); // what its files keep is looked at after crashes only
        await within(this.ended, "redis-server to end");
    }
}

/**
 * A Redis that the test `t` ends. `appendfsync`: with a log on disk, synced so; without it nothing
 * is kept. `flags`: more of redis-server's. `place`: where it runs, for the constructor above.
 */
export async function startRedis(t, { appendfsync, flags = [], port, place } = {}) {
    const folder = await tempFolder(t);
    port ??= await freePort();
    const log = appendfsync
        ? ["--appendonly", "yes", "--appendfsync", appendfsync]
        : ["--appendonly", "no"];
    const here = ["--port", String(port), "--bind", place?.host ?? "127.0.0.1"];
    const args = [...here, "--dir", folder, "--save", "", ...log, ...flags];
    const redis = new Redis(port, args, place);
    redis.folder = folder;
    defer(t, () => redis.stop());
    await redis.start();
    return redis;
}

/** Three primaries that share the slots. */
export async function startCluster(t) {
    const nodes = [];
    for (let i = 0; i < 3; i++) {
        const flags = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
        // The bus is at port + 10000 unless told otherwise; any other free port will do.
        const bus = ["--cluster-port", String(await freePort())];
        nodes.push(await startRedis(t, { appendfsync: "everysec", flags: [...flags, ...bus] }));
    }
    const where = nodes.map((node) => `127.0.0.1:${node.port}`);
    await nodes[0].cli("--cluster", "create", ...where, "--cluster-yes");
    for (const node of nodes)
        await until(
            async () => (await node.cli("CLUSTER", "INFO")).includes("cluster_state:ok"),
            "the cluster to be whole",
        );
    return { nodes, url: `redis+cluster://${where.join(",")}` };
}

/** A primary, a replica of it, and three Sentinels that agree quickly. */
export async function startSentinels(t, { name = "mine", appendfsync = "always" } = {}) {
    const primary = await startRedis(t, { appendfsync });
    const flags = ["--replicaof", "127.0.0.1", String(primary.port)];
    const replica = await startRedis(t, { appendfsync, flags });
    await until(
        async () => (await replica.info("master_link_status")) === "up",
        "the replica to catch up",
    );
    const sentinels = [];
    for (let i = 0; i < 3; i++) {
        const port = await freePort();
        const folder = join(await tempFolder(t), "sentinel");
        await mkdir(folder);
        const file = join(folder, "sentinel.conf");
        await writeFile(
            file,
            [
                `port ${port}`,
                "bind 127.0.0.1",
                `dir ${folder}`,
                `sentinel monitor ${name} 127.0.0.1 ${primary.port} 2`,
                `sentinel down-after-milliseconds ${name} 1000`,
                `sentinel failover-timeout ${name} 5000`,
                `sentinel parallel-syncs ${name} 1`,
                "",
            ].join("\n"),
        );
        const sentinel = new Redis(port, [file, "--sentinel"]);
        defer(t, () => sentinel.stop());
        await sentinel.start();
        sentinels.push(sentinel);
    }
    for (const sentinel of sentinels)
        await until(
            async () =>
                (await sentinel.cli("SENTINEL", "CKQUORUM", name)).startsWith("OK 3") &&
                (await sentinel.cli("SENTINEL", "REPLICAS", name)).includes(String(replica.port)),
            "the Sentinels to know each other",
        );
    const where = sentinels.map((sentinel) => `127.0.0.1:${sentinel.port}`);
    return { primary, replica, sentinels, url: `redis+sentinel://${where.join(",")}/${name}` };
}
