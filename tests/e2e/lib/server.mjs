// SPDX-License-Identifier: Apache-2.0
// One server per test: started on a free port, stopped when the test ends, and then held to a
// clean exit and a silent sanitizer.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { Agent, request } from "undici";
import { defer } from "./defer.mjs";
import { within } from "./wait.mjs";

const START_MS = 15_000;
const STOP_MS = 20_000;
const PATIENT_MS = 300; // for answers under way; then it is asked again, and waits no more
const SANITIZER = /(Address|Leak|Thread|Memory|UndefinedBehavior)Sanitizer|runtime error:/;

export function binary() {
    const path = process.env.TIDEMARK_BIN;
    assert.ok(path, "set TIDEMARK_BIN to the binary to test");
    return path;
}

/** The environment, in which sanitizers report everything and keep little freed memory. */
export function sanitizerEnv() {
    const { ASAN_OPTIONS = "detect_leaks=1", UBSAN_OPTIONS = "print_stacktrace=1" } = process.env;
    return {
        ...process.env,
        ASAN_OPTIONS: `${ASAN_OPTIONS}:quarantine_size_mb=16`,
        UBSAN_OPTIONS: `${UBSAN_OPTIONS}:halt_on_error=1`,
    };
}

export function assertNoReport(stderr) {
    assert.doesNotMatch(stderr, SANITIZER, "a sanitizer reported something");
}

// Ports below the range the kernel hands out to outgoing connections, so that none of those can
// take the port between our looking and the server's binding.
export async function freePort() {
    for (;;) {
        const port = 10_000 + Math.floor(Math.random() * 22_000);
        const probe = createServer();
        const free = await new Promise((resolve) => {
            probe.once("error", () => resolve(false));
            probe.listen(port, "127.0.0.1", () => resolve(true));
        });
        if (!free) continue;
        probe.close();
        await once(probe, "close");
        return port;
    }
}

function accepts(where) {
    return new Promise((resolve) => {
        const socket = connect(where);
        socket.once("error", () => resolve(false));
        socket.once("connect", () => {
            socket.destroy();
            resolve(true);
        });
    });
}

class Server {
    stderr = "";
    stdout = "";
    #sent = new Set();
    #killed = false;
    #agent;

    constructor(where, child, args, tls) {
        this.where = where; // what net.connect takes: { host, port } or { path }
        this.child = child;
        this.args = args;
        const scheme = tls ? "https" : "http";
        this.base = where.path ? "http://localhost" : `${scheme}://${where.host}:${where.port}`;
        this.#agent = new Agent({ pipelining: 1, connections: 64, connect: { ca: tls?.ca } });
        this.ended = once(child, "close").then(([code, signal]) => ({ code, signal }));
        child.stderr.setEncoding("utf8").on("data", (text) => (this.stderr += text));
        child.stdout.setEncoding("utf8").on("data", (text) => (this.stdout += text));
    }

    get pid() {
        return this.child.pid;
    }

    get running() {
        return this.child.exitCode === null && this.child.signalCode === null;
    }

    /** Waits until it accepts connections. */
    async ready() {
        const deadline = Date.now() + START_MS;
        while (!(await accepts(this.where))) {
            const said = `${this.args.join(" ")}\n${this.stdout}${this.stderr}`;
            assert.ok(this.running, `the server ended at once: ${said}`);
            assert.ok(Date.now() < deadline, `the server does not accept connections: ${said}`);
            await delay(20);
        }
    }

    url(name, query = "") {
        return `${this.base}/v1/stream/${name}${query}`;
    }

    /** A plain request; the whole answer as { status, headers, text, bytes, json() }. */
    async request(method, path, { headers = {}, body } = {}) {
        const answer = await request(this.base + path, {
            method,
            headers,
            body,
            dispatcher: this.#agent,
        });
        const bytes = Buffer.from(await answer.body.arrayBuffer());
        const text = bytes.toString("utf8");
        return {
            status: answer.statusCode,
            headers: answer.headers,
            bytes,
            text,
            json: () => JSON.parse(text),
        };
    }

    /** The same for a stream: stream("GET", "a/b?offset=now"). */
    stream(method, name, options) {
        return this.request(method, `/v1/stream/${name}`, options);
    }

    async create(name, type = "application/json", options = {}) {
        const headers = { "content-type": type, ...options.headers };
        const answer = await this.stream("PUT", name, { ...options, headers });
        assert.equal(answer.status, 201, `PUT ${name}: ${answer.text}`);
        return answer;
    }

    async append(name, body, type = "application/json", headers = {}) {
        const all = { "content-type": type, ...headers };
        const answer = await this.stream("POST", name, { headers: all, body });
        assert.ok(
            [200, 204].includes(answer.status),
            `POST ${name}: ${answer.status} ${answer.text}`,
        );
        return answer;
    }

    async close(name) {
        const answer = await this.stream("POST", name, { headers: { "stream-closed": "true" } });
        assert.equal(answer.status, 204, `closing ${name}: ${answer.text}`);
        return answer;
    }

    /** All of a stream's content, read piece by piece as the server hands it out. */
    async readAll(name) {
        const pieces = [];
        for (let offset = "-1"; ;) {
            const { status, headers, bytes } = await this.stream("GET", `${name}?offset=${offset}`);
            assert.equal(status, 200);
            pieces.push(bytes);
            if (headers["stream-up-to-date"] === "true")
                return Buffer.concat(pieces).toString("utf8");
            assert.notEqual(headers["stream-next-offset"], offset, "a read that does not advance");
            offset = headers["stream-next-offset"];
        }
    }

    /** Resident memory in bytes. */
    rss() {
        const status = readFileSync(`/proc/${this.pid}/status`, "utf8");
        return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)[1]) * 1024;
    }

    /** Sends a signal, each at most once. */
    signal(name) {
        if (this.running && !this.#sent.has(name)) this.child.kill(name);
        this.#sent.add(name);
    }

    /** Ends it without a warning, as a crash would. */
    async kill() {
        this.#killed = this.running;
        this.signal("SIGKILL");
        await this.stop();
    }

    /** Asks the server to end and checks how it does; may be called more than once. */
    async stop() {
        await this.#agent.destroy();
        this.signal("SIGTERM");
        const again = setTimeout(() => this.signal("SIGINT"), PATIENT_MS);
        try {
            const { code, signal } = await within(this.ended, "the server to end", STOP_MS);
            assertNoReport(this.stderr);
            if (this.#killed && signal === "SIGKILL") return;
            assert.equal(signal, null, `the server died of ${signal}\n${this.stderr}`);
            assert.equal(code, 0, `exit code\n${this.stderr}`);
        } finally {
            clearTimeout(again);
            this.signal("SIGKILL");
        }
    }
}

/**
 * Starts `tidemark serve` with these flags; the test `t` stops it. `unix`: a socket's path; `port`:
 * this one instead of any; `data`: on disk, in this folder; `tls`: a certificate of tls.mjs.
 */
export async function startServer(t, flags = [], options = {}) {
    const server = await spawnServer(t, flags, options);
    await server.ready();
    return server;
}

/** The same without waiting until it accepts connections; ready() does. */
export async function spawnServer(t, flags = [], { unix, port, data, env, tls, ulimit } = {}) {
    const where = unix ? { path: unix } : { host: "127.0.0.1", port: port ?? (await freePort()) };
    const listen = unix ? `unix:${unix}` : `${where.host}:${where.port}`;
    const more = (process.env.TIDEMARK_ARGS ?? "").split(/\s+/).filter(Boolean);
    // A test that names its data is about what the disk keeps: no other store will do.
    const store = data ? ["--store", "embedded", "--data", data] : [];
    const secure = tls ? ["--tls-cert", tls.cert, "--tls-key", tls.key] : [];
    const always = ["serve", "--store", "memory", "--listen", listen, ...secure];
    const args = [...always, ...flags, ...more, ...store];
    const limited = ["bash", "-c", `ulimit ${ulimit}; exec "$0" "$@"`, binary(), ...args];
    const [command, ...rest] = ulimit ? limited : [binary(), ...args];
    const child = spawn(command, rest, {
        stdio: ["ignore", "pipe", "pipe"],
        env: { ...sanitizerEnv(), ...env },
    });
    const server = new Server(where, child, args, tls);
    defer(t, () => server.stop());
    return server;
}
