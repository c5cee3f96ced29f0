// SPDX-License-Identifier: Apache-2.0
// `tidemark access`: the file that init writes, what check and explain say of it, and what mint and
// revoke ask a server for.
import assert from "node:assert/strict";
import { once } from "node:events";
import { chmod, readFile, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { defer } from "./lib/defer.mjs";
import { tidemark } from "./lib/run.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";

const access = (t, args, options) => tidemark(t, ["access", ...args], options);
const bearer = (token) => ({ authorization: `Bearer ${token}` });

/** The file of `access init`, with its two tokens. */
async function init(t, ...flags) {
    const file = join(await tempFolder(t), "tidemark.conf");
    const { code, stdout, stderr } = await access(t, ["init", "--config", file, ...flags]);
    assert.equal(code, 0, stderr);
    const [, admin] = /^ {2}admin {2}(\S+)$/m.exec(stdout);
    const [, app] = /^ {2}app {4}(\S+)$/m.exec(stdout);
    return { file, stdout, admin, app };
}

test("init: a file that works, and tokens that stand nowhere else", async (t) => {
    const { file, stdout, admin, app } = await init(t, "--public-url", "https://s.example.com");
    const text = await readFile(file, "utf8");
    assert.equal((await stat(file)).mode & 0o777, 0o600);
    assert.ok(!text.includes(admin) && !text.includes(app), "only digests are in the file");
    assert.match(text, /^public-url = https:\/\/s\.example\.com$/m);
    assert.ok(stdout.includes(`tidemark serve --config ${file}`));

    const server = await startServer(t, ["--config", file]);
    const put = { headers: { ...bearer(app), "content-type": "text/plain" }, body: "hello" };
    assert.equal((await server.stream("PUT", "chats/1", put)).status, 201);
    const read = (headers) => server.stream("GET", "chats/1", { headers });
    assert.equal((await read(bearer(app))).text, "hello");
    assert.equal((await read({})).status, 401);
    assert.equal((await read(bearer(`${app}x`))).status, 401);
    const remove = (headers) => server.stream("DELETE", "chats/1", { headers });
    assert.equal((await remove(bearer(app))).status, 403);
    assert.equal((await server.request("GET", "/metrics", { headers: bearer(app) })).status, 403);
    assert.equal((await server.request("GET", "/metrics", { headers: bearer(admin) })).status, 200);
    assert.equal((await remove(bearer(admin))).status, 204);
});

test("init: two runs have different tokens, and none overwrites a file", async (t) => {
    const [one, two] = [await init(t), await init(t)];
    assert.equal(new Set([one.admin, one.app, two.admin, two.app]).size, 4);
    const before = await readFile(one.file, "utf8");
    const again = await access(t, ["init", "--config", one.file]);
    assert.equal(again.code, 1);
    assert.match(again.stderr, /exists/);
    assert.equal(again.stdout, "");
    assert.equal(await readFile(one.file, "utf8"), before);
});

test("check: who may do what, and what is doubtful", async (t) => {
    const { file } = await init(t);
    const good = await access(t, ["check", file]);
    assert.equal(good.code, 0, good.stderr);
    assert.match(good.stdout, /^caller app +read, append, create, close, list +\*\* +-$/m);
    assert.match(good.stdout, /^caller admin +admin, mint, revoke, metrics +server +-$/m);
    assert.match(good.stdout, /^A request without a credential is refused\.$/m);

    const text = `${await readFile(file, "utf8")}\n[anonymous]\ngrant = append chats/**\n`;
    await writeFile(file, text);
    const doubtful = await access(t, ["check", file]);
    assert.match(doubtful.stdout, /^Warning: \[anonymous\] may do more than read\./m);

    await writeFile(file, text.replace("append chats/**", "apend chats/**"));
    const wrong = await access(t, ["check", file]);
    assert.equal(wrong.code, 2);
    assert.match(wrong.stderr, /:\d+: .*there is no verb apend; did you mean append\?/);

    await writeFile(file, "listen = 127.0.0.1:0\n");
    assert.match((await access(t, ["check", file])).stdout, /access is off/);
});

test("explain: the rules of a request, and the grant of each or what is missing", async (t) => {
    const { file, app } = await init(t);
    const token = join(await tempFolder(t), "token");
    await writeFile(token, `${app}\n`);
    await chmod(token, 0o600);
    const explain = (...args) => access(t, ["explain", "--config", file, ...args]);

    const may = await explain("--token", token, "GET", "/v1/stream/chats/1?offset=-1");
    assert.equal(may.code, 0, may.stderr);
    assert.match(may.stdout, /stream\.read: needs `read chats\/1`\n +allowed by `grant = read, /);
    assert.match(may.stdout, /^allowed$/m);

    const not = await explain("--caller", "app", "DELETE", "/v1/stream/chats/1");
    assert.equal(not.code, 1);
    assert.match(not.stdout, /stream\.delete: .*\n.*this would allow it: `grant = delete chats\/1`/);
    assert.match(not.stdout, /^refused: 403 FORBIDDEN$/m);

    // Of what a request says beside its path, the rules depend, too.
    const closing = ["-H", "Stream-Closed: true", "--body", "POST", "/v1/stream/chats/1"];
    const nobody = await explain("--anonymous", ...closing);
    assert.equal(nobody.code, 1);
    assert.match(nobody.stdout, /stream\.append: /);
    assert.match(nobody.stdout, /stream\.close: /);
    assert.match(nobody.stdout, /^refused: 401 UNAUTHENTICATED$/m);

    const later = await explain("--caller", "admin", "POST", "/mcp");
    assert.match(later.stdout, /depends on names in the request; `tool` is granted on: tool:\*\*/);
    assert.match((await explain("--caller", "app", "GET", "/none")).stdout, /404/);

    await writeFile(token, "no-token-of-anybody\n");
    const stranger = await explain("--token", token, "GET", "/v1/stream/a");
    assert.equal(stranger.code, 1);
    assert.match(stranger.stderr, /401/);
    assert.ok(!stranger.stderr.includes("no-token-of-anybody"), "tokens are not repeated");
    assert.equal((await explain("GET", "/")).code, 2, "somebody has to ask");
    assert.equal((await explain("--caller", "eve", "GET", "/")).code, 2);
});

test("explain and the server agree, request by request", async (t) => {
    const { file, admin, app } = await init(t);
    const server = await startServer(t, ["--config", file]);
    const paths = ["/v1/stream/a", "/v1/stream/.route/x", "/v1/stream/a%2", "/metrics", "/healthz"];
    const who = { admin: bearer(admin), app: bearer(app), "": {} };
    for (const [name, headers] of Object.entries(who))
        for (const method of ["GET", "PUT", "DELETE", "PATCH"])
            for (const path of paths) {
                const flags = name ? ["--caller", name] : ["--anonymous"];
                const args = ["explain", "--config", file, ...flags, method, path];
                const { code, stdout } = await access(t, args);
                const { status } = await server.request(method, path, { headers });
                const refused = [401, 403].includes(status) ? 1 : 0;
                assert.equal(code, refused, `${name} ${method} ${path}: ${status}\n${stdout}`);
            }
});

test("rules: for people and for programs", async (t) => {
    const people = await access(t, ["rules"]);
    assert.equal(people.code, 0);
    assert.match(people.stdout, /^stream\.append +POST +\/v1\/stream\/\{name\.\.\.\} +append +stream/m);
    const { stdout } = await access(t, ["rules", "--json"]);
    const rows = stdout.trim().split("\n").map((line) => JSON.parse(line));
    assert.equal(rows.length, people.stdout.trim().split("\n").length);
    const append = rows.find(({ id }) => id === "stream.append");
    assert.deepEqual(append, {
        id: "stream.append",
        owner: "server",
        surface: "/v1/stream/",
        methods: ["POST"],
        path: "/v1/stream/{name...}",
        verb: "append",
        kind: "stream",
        how: [],
        sometimes: true,
    });
});

/** A server that remembers what it was asked, and answers so. */
async function standIn(t, status, answer) {
    const asked = [];
    const server = createServer((request, response) => {
        let text = "";
        request.setEncoding("utf8").on("data", (more) => (text += more));
        request.on("end", () => {
            const { method, url, headers } = request;
            asked.push({ method, url, headers, body: JSON.parse(text) });
            response.writeHead(status, { "content-type": "application/json" });
            response.end(JSON.stringify(answer));
        });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    defer(t, () => server.close());
    return { asked, url: `http://127.0.0.1:${server.address().port}` };
}

test("mint: what is asked, and what is printed", async (t) => {
    const { asked, url } = await standIn(t, 201, { token: "t.o.k", expires_at: "2026-01-01T00:00:00Z" });
    const env = { TIDEMARK_SERVER: url, TIDEMARK_TOKEN: "of-the-app" };
    const mint = (...args) => access(t, ["mint", ...args], { env });
    const plain = await mint("--on", "chats/1/**", "--on", "a", "--actions", "read,append");
    assert.equal(plain.stdout, "t.o.k\n");
    assert.equal(asked[0].url, "/v1/access/grants");
    assert.equal(asked[0].headers.authorization, "Bearer of-the-app");
    assert.deepEqual(asked[0].body, {
        actions: ["read", "append"],
        on: ["chats/1/**", "a"],
        expires_in: 600,
        link: false,
    });
    const link = await mint("--on", "chats/ä", "--actions", "read", "--expires", "90s", "--link");
    assert.equal(link.stdout, `${url}/v1/stream/chats/%C3%A4?grant=t.o.k\n`);
    assert.deepEqual([asked[1].body.expires_in, asked[1].body.link], [90, true]);
    const many = await mint("--on", "chats/**", "--actions", "read", "--link");
    assert.equal(many.stdout, "t.o.k\n");
    assert.equal((await mint("--on", "a", "--actions", "raed")).code, 2);
    assert.equal((await mint("--on", "a")).code, 2);
});

test("revoke: what is asked, and a refusal in words", async (t) => {
    const { asked, url } = await standIn(t, 201, {});
    const env = { TIDEMARK_SERVER: url };
    const revoke = (...args) => access(t, ["revoke", ...args], { env });
    assert.equal((await revoke("--jti", "j1")).code, 0);
    await revoke("--sub", "alice", "--before", "2026-01-31T12:00:00Z");
    await revoke("--root", "t/acme/");
    assert.deepEqual(
        asked.map(({ url: path, body }) => [path, body]),
        [
            ["/v1/access/revocations", { jti: "j1" }],
            ["/v1/access/revocations", { sub: "alice", before: 1769860800 }],
            ["/v1/access/revocations", { root: "t/acme/" }],
        ],
    );
    assert.equal((await revoke()).code, 2);
    assert.equal((await revoke("--jti", "j", "--sub", "s")).code, 2);
    assert.equal((await revoke("--jti", "j", "--before", "2026-01-31T12:00:00Z")).code, 2);
    assert.equal((await revoke("--sub", "s", "--before", "yesterday")).code, 2);

    const deaf = await standIn(t, 403, { error: { code: "FORBIDDEN", message: "not you" } });
    const refused = await access(t, ["revoke", "--jti", "j", "--server", deaf.url]);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /not you \(403 FORBIDDEN\)/);
});
