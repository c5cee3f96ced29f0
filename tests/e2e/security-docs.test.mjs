// SPDX-License-Identifier: Apache-2.0
// The recipes of docs/security.md, taken from there and run: its configurations, commands and code.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { EventSource } from "eventsource";
import { request } from "undici";
import { defer } from "./lib/defer.mjs";
import { makeKey, mint } from "./lib/issuer.mjs";
import { sdkOverHttp } from "./lib/mcp.mjs";
import { run, Running, tidemark } from "./lib/run.mjs";
import { binary, freePort, startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { Authority } from "./lib/tls.mjs";
import { until } from "./lib/wait.mjs";

const DOCUMENT = new URL("../../docs/security.md", import.meta.url);
const ADDRESS = "http://127.0.0.1:4437";
const PATIENT = ["--address-rate", "0", "--address-failures", "0"];

const digest = (text) => createHash("sha256").update(text).digest("hex");
const bearer = (token) => ({ authorization: `Bearer ${token}` });

/** The blocks of code below a heading, by their languages: { sh: [..], ini: [..] }. */
async function recipe(heading) {
    const document = await readFile(DOCUMENT, "utf8");
    const section = document.split(/^## /m).find((text) => text.startsWith(heading));
    assert.ok(section, `the document has no section ${heading}`);
    const blocks = {};
    for (const [, kind, code] of section.matchAll(/^```(\w+)\n(.*?)^```$/gms))
        (blocks[kind] ??= []).push(code);
    return blocks;
}

/** Runs commands of the document against a server: what they print. */
async function shell(t, commands, { server, env = {}, cwd }) {
    const tools = await tempFolder(t);
    await symlink(binary(), join(tools, "tidemark"));
    const text = commands.replaceAll(ADDRESS, server?.base ?? ADDRESS).replaceAll("curl ", "curl -sS ");
    const all = { ...process.env, PATH: `${tools}:${process.env.PATH}`, ...env };
    if (server) all.TIDEMARK_SERVER = server.base;
    const running = new Running(t, "sh", ["-ec", text], { env: all, cwd });
    running.child.stdin.end();
    const { code, stdout, stderr } = await running.end();
    assert.equal(code, 0, `${text}\n${stderr}`);
    return stdout;
}

/** A server with a configuration of the document; `changes` are put in first. */
async function serverOf(t, ini, changes = {}, more = "", flags = []) {
    let text = ini;
    for (const [from, to] of Object.entries(changes)) {
        assert.ok(text.includes(from), `${from} in the configuration`);
        text = text.replaceAll(from, to);
    }
    const file = join(await tempFolder(t), "tidemark.conf");
    await writeFile(file, `${text}\n${more}`);
    const { code, stderr } = await tidemark(t, ["access", "check", file]);
    assert.equal(code, 0, stderr);
    return startServer(t, ["--config", file, ...PATIENT, ...flags]);
}

/** As the document begins: `access init`, with the tokens it prints. */
async function initialised(t) {
    const folder = await tempFolder(t);
    const document = await readFile(DOCUMENT, "utf8");
    assert.match(document, /^tidemark access init .*\ntidemark serve --config tidemark\.conf$/m);
    const said = await shell(t, "tidemark access init", { cwd: folder });
    const file = join(folder, "tidemark.conf");
    const server = await startServer(t, ["--config", file, ...PATIENT]);
    return { folder, server, app: /^ {2}app +(\S+)$/m.exec(said)[1] };
}

async function put(server, token, name, body = "x", type = "text/plain") {
    const headers = { ...bearer(token), "content-type": type };
    const answer = await server.stream("PUT", name, { headers, body });
    assert.equal(answer.status, 201, answer.text);
}

test("why was this refused: the commands, and what they print", async (t) => {
    const { folder } = await initialised(t);
    const document = await readFile(DOCUMENT, "utf8");
    const { sh } = await recipe("Why was this refused?");
    const [check, explain] = sh[0].trim().split("\n");
    assert.match(await shell(t, check, { cwd: folder }), /^caller app /m);
    const shown = /^```\n(app asks\n.*?)^```$/ms.exec(document)[1];
    assert.equal(await shell(t, `${explain} || true`, { cwd: folder }), shown);
});

test("handing out: the request, and what it answers", async (t) => {
    const { server, app } = await initialised(t);
    const { sh } = await recipe("Handing out and taking back");
    await put(server, app, "chats/42", "hello");
    const { token, expires_at } = JSON.parse(await shell(t, sh[0], { server, env: { APP_TOKEN: app } }));
    assert.ok(expires_at);
    assert.equal((await server.stream("GET", `chats/42?grant=${token}`)).text, "hello");
    assert.equal((await server.stream("GET", `chats/43?grant=${token}`)).status, 403);
});

test("a browser that reads one stream for ten minutes", async (t) => {
    const { server, app } = await initialised(t);
    const { sh, js } = await recipe("Recipe: a browser");
    await put(server, app, "chats/42", "[0]", "application/json");
    const printed = await shell(t, sh[0], { server, env: { APP_TOKEN: app } });
    const link = printed.trim();
    assert.ok(link.startsWith(`${server.base}/v1/stream/chats/42?grant=`), link);
    const read = await request(link);
    assert.equal(read.statusCode, 200);
    assert.equal(await read.body.text(), "[0]");
    assert.equal((await server.request("POST", new URL(link).pathname + new URL(link).search)).status, 403);

    // The page, with links that do not last: all comes once, in order.
    const file = join(await tempFolder(t), "follow.mjs");
    await writeFile(file, `${js[0]}\nexport { follow };\n`);
    const sources = [];
    globalThis.EventSource = class extends EventSource {
        constructor(url) {
            super(url);
            sources.push(this);
        }
    };
    defer(t, () => sources.forEach((source) => source.close()));
    const { follow } = await import(file);
    const seen = [];
    let links = 0;
    const getLink = async () => {
        links++;
        const asked = { actions: ["read"], on: ["chats/42"], expires_in: 2, link: true };
        const headers = { ...bearer(app), "content-type": "application/json" };
        const body = JSON.stringify(asked);
        const answer = await server.request("POST", "/v1/access/grants", { headers, body });
        assert.equal(answer.status, 201, answer.text);
        return `${server.url("chats/42")}?grant=${answer.json().token}`;
    };
    follow(getLink, (data) => seen.push(...JSON.parse(data)));
    let sent = 0;
    await until(async () => {
        await server.append("chats/42", `[${++sent}]`, "application/json", bearer(app));
        return links >= 3;
    }, "a third link");
    await until(() => seen.length > sent, "all of it");
    assert.deepEqual(seen, Array.from({ length: sent + 1 }, (_, i) => i));
});

test("three tenants on one server", async (t) => {
    const { ini, sh } = await recipe("Recipe: three tenants");
    const names = ["ACME", "GLOBEX", "INITECH"];
    const digests = names.map((name) => [`${name}-DIGEST`, digest(`token of ${name}`.replaceAll(" ", "-"))]);
    const server = await serverOf(t, ini[0], Object.fromEntries(digests));
    const env = Object.fromEntries(names.map((name) => [`${name}_TOKEN`, `token-of-${name}`]));
    const printed = await shell(t, sh[0], { server, env });
    assert.match(printed, /^of acme\{"error":\{"code":"NOT_FOUND"/);
    for (const [name, own] of [
        ["ACME", ["orders"]],
        ["INITECH", []],
    ]) {
        const headers = bearer(env[`${name}_TOKEN`]);
        const listed = (await server.request("GET", "/v1/stream/", { headers })).json();
        assert.deepEqual(listed.streams.map((stream) => stream.name), own);
    }
});

test("an identity provider's tokens", async (t) => {
    const { ini } = await recipe("Recipe: an identity provider");
    const key = makeKey("ES256", "k1");
    const file = join(await tempFolder(t), "keys.json");
    await writeFile(file, JSON.stringify({ keys: [key.jwk] }));
    const server = await serverOf(t, ini[0], { "/etc/tidemark/login-keys.json": file });
    const who = { iss: "https://login.example.com", aud: "https://streams.example.com" };
    const alice = await mint(key, { ...who, sub: "alice" });
    await put(server, alice, "users/alice/notes", "mine");
    const status = async (token, name) =>
        (await server.stream("GET", name, { headers: bearer(token) })).status;
    const bob = await mint(key, { ...who, sub: "bob" });
    assert.equal(await status(alice, "users/alice/notes"), 200);
    assert.equal(await status(bob, "users/alice/notes"), 403);
    assert.equal(await status(bob, "announcements"), 404);
    assert.equal(await status(await mint(key, { ...who, aud: "https://other.example" }), "a"), 401);
    assert.equal(await status(await mint(key, who, { typ: "JWT" }), "announcements"), 401);
});

test("behind nginx", async (t) => {
    if (spawnSync("nginx", ["-v"]).status !== 0) {
        t.skip("nginx is not installed (Debian: nginx-light)");
        return;
    }
    const { ini, nginx } = await recipe("Recipe: behind nginx");
    const folder = await tempFolder(t);
    const socket = join(folder, "http.sock");
    const file = join(folder, "tidemark.conf");
    const caller = `[caller app]\ntoken-sha256 = ${digest("app")}\ngrant = read, append, create **\n`;
    const audit = join(folder, "audit");
    const settings = ini[0].replace("/run/tidemark/http.sock", socket);
    await writeFile(file, `${settings}audit = ${audit}\n${caller}`);
    const said = new Running(t, binary(), ["serve", "--store", "memory", "--config", file]);
    defer(t, () => said.child.kill("SIGTERM"));
    const { cert, key } = new Authority(folder).issue("streams.example.com");
    const port = await freePort();
    const site = nginx[0]
        .replace("listen 443 ssl", `listen 127.0.0.1:${port} ssl`)
        .replace("/etc/ssl/streams.pem", cert)
        .replace("/etc/ssl/streams.key", key)
        .replace("/run/tidemark/http.sock", socket);
    await mkdir(join(folder, "tmp"));
    const conf = join(folder, "nginx.conf");
    const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
        (what) => `${what}_temp_path ${join(folder, "tmp", what)};`,
    );
    await writeFile(
        conf,
        `${process.getuid() === 0 ? "user root; " : ""}daemon off; master_process off; pid ${folder}/pid; error_log stderr;\nevents {}\nhttp { access_log off;\n${paths.join("\n")}\n${site}}\n`,
    );
    const proxy = new Running(t, "nginx", ["-c", conf, "-p", folder]);
    const base = `https://streams.example.com:${port}/v1/stream/a`;
    const to = ["--resolve", `streams.example.com:${port}:127.0.0.1`, "--insecure"];
    const curl = (...args) =>
        run(t, "curl", ["-sS", "--max-time", "10", ...to, ...args, base]).then(({ stdout }) => stdout);
    const auth = ["-H", "Authorization: Bearer app"];
    const type = ["-H", "Content-Type: text/plain"];
    let answer;
    await until(async () => {
        answer = await curl();
        return answer.includes("UNAUTHENTICATED");
    }, "nginx and the server").catch(() => assert.fail(`${answer}${proxy.stderr}${said.stderr}`));
    await curl("-X", "PUT", ...auth, ...type, "-d", "through nginx");
    assert.equal(await curl(...auth), "through nginx");
    await curl("-H", "X-Forwarded-For: 192.0.2.7", "-H", "Authorization: Bearer wrong");
    const text = await readFile(audit, "utf8");
    assert.match(text, /"event":"auth-failed"/);
    assert.ok(!text.includes("192.0.2.7"), "what a client says of itself does not count");
});

test("MCP clients", async (t) => {
    const { ini, json } = await recipe("Recipe: MCP clients");
    const admin = `[caller admin]\ntoken-sha256 = ${digest("admin")}\ngrant = create, append, read **\n`;
    const changes = { "AGENT-DIGEST": digest("AGENT-TOKEN") };
    const server = await serverOf(t, ini[0], changes, admin);
    await put(server, "admin", "notes/a", '["of the agent"]', "application/json");
    await put(server, "admin", "secrets", '["of somebody else"]', "application/json");
    const { url, headers } = JSON.parse(json[0]).mcpServers.tidemark;
    assert.equal(url, `${ADDRESS}/mcp`);
    const client = await sdkOverHttp(t, server, headers);
    const names = (await client.listTools()).tools.map(({ name }) => name);
    assert.equal(names.length, 2, names.join(" "));
    const today = names.find((name) => name.includes("today"));
    const reads = names.find((name) => name !== today);
    const call = async (name, args) => {
        const result = await client.callTool({ name, arguments: args }).catch((error) => error);
        return JSON.stringify(result.content ?? result.message);
    };
    assert.match(await call(today, {}), /\d{4}-\d{2}-\d{2}/);
    assert.match(await call(reads, { name: "notes/a" }), /of the agent/);
    assert.doesNotMatch(await call(reads, { name: "secrets" }), /of somebody else/);
    const bare = await server.request("POST", "/mcp", { body: "{}" });
    assert.equal(bare.status, 401);
    assert.match(bare.headers["www-authenticate"], /resource_metadata=/);
});
