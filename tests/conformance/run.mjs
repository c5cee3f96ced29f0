// SPDX-License-Identifier: Apache-2.0
// Starts a server, runs the public Durable Streams suite against it, and fails unless every one of
// its tests passes: none failed, none skipped, none missing.
//
//   TIDEMARK_BIN    the binary to start
//   TIDEMARK_ARGS   more flags of `serve`; they come last and win, so that other stores can be run
//   TIDEMARK_REDIS  set: on a redis-server of its own, which is ended afterwards
//   TIDEMARK_KERNEL set: the binary has no subscriptions, and the suite is told so
//   TIDEMARK_TLS    set: over TLS, with a certificate made on the spot
//   CONFORMANCE_ACCESS  set: the server grants everything to one token, which the suite's requests carry
//   arguments       go to vitest, e.g. -t "name of a test" (the count is then not checked)
import { execFileSync, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const kernel = Boolean(process.env.TIDEMARK_KERNEL);
const EXPECTED = kernel ? 332 : 338; // the suite leaves out those of subscriptions
const START_MS = 10_000;
const STOP_MS = 15_000;

const here = dirname(fileURLToPath(import.meta.url));
const binary = process.env.TIDEMARK_BIN;
const moreFlags = (process.env.TIDEMARK_ARGS ?? "").split(/\s+/).filter(Boolean);
const onRedis = Boolean(process.env.TIDEMARK_REDIS);
const secure = Boolean(process.env.TIDEMARK_TLS);
const token = process.env.CONFORMANCE_ACCESS ? randomBytes(32).toString("hex") : undefined;
const vitestFlags = process.argv.slice(2);

// Ports below the range the kernel hands out to outgoing connections, so that none of those can
// take the port between our looking and the server's binding.
async function freePort() {
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

function accepts(port) {
    return new Promise((resolve) => {
        const socket = connect(port, "127.0.0.1");
        socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
        socket.once("connect", () => socket.destroy());
    });
}

/** Its own authority, which the suite's processes are told to trust. */
function makeCertificate(folder) {
    const cert = join(folder, "cert.pem");
    const key = join(folder, "key.pem");
    const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    const who = ["-subj", "/CN=conformance", "-addext", "subjectAltName=IP:127.0.0.1"];
    const files = ["-keyout", key, "-out", cert];
    execFileSync("openssl", ["req", "-x509", ...kind, ...who, ...files], { stdio: "pipe" });
    return { cert, flags: ["--tls-cert", cert, "--tls-key", key] };
}

/** One caller who may do everything with streams, and nobody else anything. */
async function configureAccess(folder) {
    const file = join(folder, "access.conf");
    const digest = createHash("sha256").update(token).digest("hex");
    const verbs = "read, append, create, close, delete, list, fork, subscribe, webhook";
    await writeFile(file, `[caller suite]\ntoken-sha256 = ${digest}\ngrant = ${verbs} **\n`);
    return ["--config", file];
}

/** On a Unix socket, with nothing kept; gone when this process is. */
async function startRedis(folder) {
    const socket = join(folder, "redis.socket");
    const kept = ["--save", "", "--appendonly", "no", "--dir", folder];
    const child = spawn("redis-server", ["--port", "0", "--unixsocket", socket, ...kept], {
        stdio: "ignore",
    });
    const ended = once(child, "exit");
    ended.catch(() => {});
    process.once("exit", () => child.kill("SIGKILL"));
    return { store: `unix:${socket}`, stop: () => (child.kill("SIGKILL"), ended) };
}

async function startServer(tls, store) {
    const port = await freePort();
    const listen = ["--listen", `127.0.0.1:${port}`, ...tls.flags];
    // The receiver of the suite's webhooks is on this machine.
    const always = ["--store", store, ...(kernel ? [] : ["--allow-loopback-targets"])];
    const args = ["serve", ...always, ...listen, ...moreFlags];
    const child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
    const server = { child, port, output: "", ended: once(child, "exit") };
    server.ended.catch(() => {}); // a binary that cannot be started is reported below
    for (const stream of [child.stdout, child.stderr])
        stream.setEncoding("utf8").on("data", (text) => (server.output += text));
    const deadline = Date.now() + START_MS;
    while (!(await accepts(port))) {
        if (child.exitCode !== null || child.pid === undefined || Date.now() > deadline)
            throw new Error(
                `${binary} ${args.join(" ")} does not accept connections\n${server.output}`,
            );
        await delay(20);
    }
    return server;
}

async function stopServer({ child, ended, output }) {
    if (child.exitCode === null) child.kill("SIGTERM");
    const late = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
    const [code, signal] = await ended;
    clearTimeout(late);
    if (code !== 0)
        throw new Error(
            `the server ended with ${signal ?? `exit code ${code}`}, expected 0\n${output}`,
        );
}

async function runSuite(port, tls, folder) {
    const report = join(folder, "report.json");
    const args = [
        join(here, "node_modules", "vitest", "vitest.mjs"),
        "run",
        "suite.test.mjs",
        "--testTimeout=40000", // two tests wait out a whole long-poll
        "--reporter=default",
        "--reporter=json",
        `--outputFile.json=${report}`,
        ...vitestFlags,
    ];
    const scheme = secure ? "https" : "http";
    const env = { ...process.env, CONFORMANCE_TEST_URL: `${scheme}://127.0.0.1:${port}` };
    if (secure) env.NODE_EXTRA_CA_CERTS = tls.cert;
    if (token) env.CONFORMANCE_TOKEN = token;
    const vitest = spawn(process.execPath, args, { cwd: here, env, stdio: "inherit" });
    await once(vitest, "exit");
    return JSON.parse(await readFile(report, "utf8"));
}

async function main() {
    if (!binary) throw new Error("set TIDEMARK_BIN to the binary to test");
    const folder = await mkdtemp(join(tmpdir(), "tidemark-conformance-"));
    try {
        const tls = secure ? makeCertificate(folder) : { flags: [] };
        if (token) tls.flags.push(...(await configureAccess(folder)));
        const redis = onRedis ? await startRedis(folder) : { store: "memory", stop: () => {} };
        let report;
        try {
            const server = await startServer(tls, redis.store);
            try {
                report = await runSuite(server.port, tls, folder);
            } finally {
                await stopServer(server);
            }
        } finally {
            await redis.stop();
        }
        const { numPassedTests: passed, numFailedTests: failed } = report;
        for (const { assertionResults } of report.testResults)
            for (const test of assertionResults.filter((t) => t.status === "failed"))
                console.log(`FAILED ${test.fullName}`);
        console.log(`${passed} passed, ${failed} failed`);
        const whole = vitestFlags.length === 0;
        if (failed > 0 || passed === 0 || (whole && passed !== EXPECTED))
            throw new Error(`expected ${whole ? EXPECTED : "some"} passed, 0 failed`);
    } finally {
        await rm(folder, { recursive: true, force: true });
    }
}

main().catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
});
