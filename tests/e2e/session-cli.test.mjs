// SPDX-License-Identifier: Apache-2.0
// `tidemark session`, and the token that commands present to a server.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { defer } from "./lib/defer.mjs";
import { H2 } from "./lib/h2.mjs";
import { tidemark } from "./lib/run.mjs";
import { startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const WORKER = "worker-token-1";
const TOOL = "tool-token-1";
const SENTENCE = "nobody who looks from outside reads this";

const callerSection = (name, token, capabilities) =>
    `[caller ${name}]\ntoken-sha256 = ${createHash("sha256").update(token).digest("hex")}\n` +
    `capabilities = ${capabilities}\n`;

/** A server, its sessions answered with an echo unless said, and files with tokens for it. */
async function start(t, settings = "handler = echo") {
    const folder = await tempFolder(t);
    const config = join(folder, "tidemark.ini");
    const files = { worker: join(folder, "worker"), tool: join(folder, "tool") };
    const callers = callerSection("w", WORKER, "worker") + callerSection("t", TOOL, "tool");
    await writeFile(config, `[session]\n${settings}\n${callers}`);
    await writeFile(files.worker, `${WORKER}\n`);
    await writeFile(files.tool, TOOL);
    const server = await startServer(t, ["--config", config]);
    return { server, files, folder };
}

function envelope(...message) {
    const bytes = Buffer.from(message);
    const head = Buffer.alloc(5);
    head.writeUInt32BE(bytes.length, 1);
    return Buffer.concat([head, bytes]);
}
const chunk = (text, seqno) => envelope(0x0a, text.length, ...Buffer.from(text), 0x28, seqno);
const CLOSE = envelope(0x1a, 0x00);

/** Opens a session as a client of tidemark.v1, and says these texts; all of them are answered. */
async function talk(t, server, key, texts) {
    const connection = new H2(t, server);
    const secret = randomBytes(32).toString("base64url");
    const call = connection.open("POST", "/tidemark.v1.SessionService/Stream", {
        headers: {
            "content-type": "application/connect+proto",
            "connect-protocol-version": "1",
            "x-idempotency-key": key,
            "x-idempotent-encryption-key": secret,
        },
        end: false,
    });
    texts.forEach((text, i) => call.stream.write(chunk(text, i)));
    await call.reply;
    for (const text of texts) await until(() => call.text.includes(text), `the echo of ${text}`);
    return { connection, call, secret };
}

const lines = (text) => text.split("\n").slice(0, -1);

test("ls and show tell how far sessions have got, and nothing of what was said", async (t) => {
    const { server, files } = await start(t);
    const flags = ["--server", server.base, "--token-file", files.worker];
    const first = await talk(t, server, "chat-1", [SENTENCE, "two"]);
    const other = await talk(t, server, "other-with-a-longer-key", []);
    first.call.stream.write(CLOSE);
    await first.call.done;
    first.connection.session.close();

    const shown = async (key) => {
        const args = ["session", "show", key, "--json", ...flags];
        const { code, stdout, stderr } = await tidemark(t, args);
        assert.equal(code, 0, stderr);
        assert.doesNotMatch(stdout, new RegExp(`${SENTENCE}|${first.secret}|${other.secret}`));
        return JSON.parse(stdout);
    };
    // What a backend is done with is written down a moment after its answer.
    const ended = await until(async () => {
        const session = await shown("chat-1");
        return session.out.end && session.answered >= 2 && !session.connected && session;
    }, "the end of chat-1");
    const { created, ...rest } = ended;
    assert.ok(Math.abs(Date.parse(created) - Date.now()) < 600_000, created);
    assert.equal(new Date(created).toISOString(), created);
    assert.equal(rest.in.events, 3); // two chunks and the close
    assert.ok(rest.in.bytes > SENTENCE.length);
    assert.deepEqual([rest.key, rest.service, rest.expired], ["chat-1", "tidemark.v1", false]);
    assert.deepEqual([rest.out.events, rest.out.end], [2, "completed"]);
    const open = await shown("other-with-a-longer-key");
    assert.deepEqual([open.connected, open.keyHeld, open.out.end], [true, true, null]);

    const table = await tidemark(t, ["session", "ls", ...flags]);
    assert.equal(table.code, 0, table.stderr);
    const rows = lines(table.stdout);
    assert.match(rows[0], /^chat-1 {19}tidemark\.v1 {2}\S+Z {2}away {7}\S.*\d answered$/);
    assert.match(rows[1], /^other-with-a-longer-key {2}tidemark\.v1 {2}\S+Z {2}connected {2}key/);
    assert.match(rows[1], / {2}0 answered$/);
    assert.equal(rows.length, 2);

    const some = await tidemark(t, ["session", "ls", "chat-", "--json", ...flags]);
    const { in: _in, out: _out, keyHeld: _held, ...listed } = ended;
    const [{ keyHeld: _held2, ...row }] = lines(some.stdout).map((line) => JSON.parse(line));
    assert.deepEqual(row, listed);

    const one = await tidemark(t, ["session", "show", "chat-1", ...flags]);
    assert.match(one.stdout, /^key {7}chat-1$/m);
    assert.match(one.stdout, /^state {5}away$/m);
    assert.match(one.stdout, /^in {8}3 events, \d+ bytes, (open|closed)$/m);
    assert.match(one.stdout, /^out {7}2 events, \d+ bytes, completed$/m);
});

test("more sessions than one page holds", async (t) => {
    const { server, files } = await start(t);
    const connection = new H2(t, server);
    const keys = Array.from({ length: 1001 }, (_, i) => `k${String(i).padStart(4, "0")}`);
    const begin = async (key) => {
        const answer = await connection.request("POST", "/tidemark.v1.SessionService/Stream", {
            headers: {
                "content-type": "application/connect+proto",
                "connect-protocol-version": "1",
                "x-idempotency-key": key,
                "x-idempotent-encryption-key": "A".repeat(43),
            },
            body: "",
        });
        assert.equal(answer.status, 200, answer.text);
    };
    for (let i = 0; i < keys.length; i += 50) await Promise.all(keys.slice(i, i + 50).map(begin));
    const flags = ["--server", server.base, "--token-file", files.worker];
    const all = await tidemark(t, ["session", "ls", "--json", ...flags]);
    assert.deepEqual(
        lines(all.stdout).map((line) => JSON.parse(line).key),
        keys,
    );
    const table = await tidemark(t, ["session", "ls", ...flags]);
    assert.equal(lines(table.stdout).length, keys.length);
});

test("what is not there, and who may not see it", async (t) => {
    const { server, files, folder } = await start(t);
    const at = ["--server", server.base];
    const session = (args, options) => tidemark(t, ["session", ...args, ...at], options);

    const none = await session(["ls", "--token-file", files.worker]);
    assert.deepEqual([none.code, none.stdout], [0, ""]);
    assert.match(none.stderr, /^tidemark session ls: http\S+ has no sessions\n$/);
    const prefixed = await session(["ls", "x", "--token-file", files.worker]);
    assert.deepEqual([prefixed.code, prefixed.stdout], [0, ""]);
    assert.match(prefixed.stderr, /no session's key begins with x/);
    const unknown = await session(["show", "nobody", "--token-file", files.worker]);
    assert.deepEqual([unknown.code, unknown.stdout], [1, ""]);
    assert.match(unknown.stderr, /no session with the key nobody/);

    await talk(t, server, "somebody", ["hello"]);
    for (const args of [["ls"], ["show", "somebody"], ["show", "nobody"]]) {
        const bare = await session(args);
        assert.deepEqual([bare.code, bare.stdout], [1, ""]);
        assert.match(bare.stderr, /only to callers .*`worker`.*--token-file.*TIDEMARK_TOKEN/);
        const wrong = await session([...args, "--token-file", files.tool]);
        assert.deepEqual([wrong.code, wrong.stdout], [1, ""]);
        assert.match(wrong.stderr, /shows no sessions to this token/);
    }

    // The variable serves as well; the file goes before it.
    const right = { env: { TIDEMARK_TOKEN: WORKER } };
    assert.match((await session(["ls"], right)).stdout, /^somebody /);
    assert.equal((await session(["ls", "--token-file", files.tool], right)).code, 1);

    const bad = join(folder, "bad");
    for (const [content, why] of [
        ["", /holds no token/],
        ["two words\n", /holds no token/],
        ["one\r\nX-Other: 1\n", /holds no token/],
        ["x".repeat(10_000), /holds no token/],
    ]) {
        await writeFile(bad, content);
        const refused = await session(["ls", "--token-file", bad]);
        assert.equal(refused.code, 1);
        assert.match(refused.stderr, why);
        assert.doesNotMatch(refused.stderr, /words|Other|xxx/);
    }
    const missing = await session(["ls", "--token-file", join(folder, "missing")]);
    assert.equal(missing.code, 1);
    assert.match(missing.stderr, /cannot read the token in .*missing: No such file/);
});

test("a worker reads and answers a session from the command line", async (t) => {
    const { server, files } = await start(t, "key-hold = 1s");
    const at = ["--server", server.base];
    const worker = [...at, "--token-file", files.worker];
    const client = await talk(t, server, "chat-1", []);
    client.call.stream.write(chunk(SENTENCE, 0));
    const asked = { type: "chunk", seqno: 0, data: Buffer.from(SENTENCE).toString("base64") };
    const read = await until(async () => {
        const tail = await tidemark(t, ["tail", "sessions/chat-1/in", "--no-follow", ...worker]);
        return tail.stdout && JSON.parse(tail.stdout);
    }, "what the client said");
    assert.deepEqual(read, asked);
    const answer = ["append", "sessions/chat-1/out", "--json", ...worker];
    const said = await tidemark(t, answer, { input: `{"text":"the answer"}\n` });
    assert.equal(said.code, 0, said.stderr);
    await until(() => client.call.text.includes("the answer"), "the answer");

    const listed = await tidemark(t, ["ls", "sessions/", ...worker]);
    assert.match(listed.stdout, /^sessions\/chat-1\/in .*\nsessions\/chat-1\/out /);
    assert.equal((await tidemark(t, ["ls", ...at])).stdout, "");
    const hidden = await tidemark(t, ["tail", "sessions/chat-1/in", ...at]);
    assert.equal(hidden.code, 1);
    assert.match(hidden.stderr, /shown to workers.*--token-file/);

    // When the client has gone for good there is no key, and no sense in waiting for one.
    client.connection.session.destroy();
    await until(async () => {
        const { stdout } = await tidemark(t, ["session", "ls", "--json", ...worker]);
        return !JSON.parse(stdout).keyHeld;
    }, "the key to be forgotten");
    const sealed = await tidemark(t, ["tail", "sessions/chat-1/in", "--no-follow", ...worker]);
    assert.deepEqual([sealed.code, sealed.stdout], [1, ""]);
    assert.match(sealed.stderr, /its client must come back/);
});

test("the command line of session", async (t) => {
    for (const [args, code, pattern] of [
        [["session"], 2, /Usage: tidemark session ls/],
        [["session", "lst"], 2, /expected ls, show, chat or resume, not lst/],
        [["session", "show"], 2, /tidemark session show KEY/],
        [["session", "ls", "a", "b"], 2, /too many arguments/],
        [["session", "ls", "--token", "x"], 2, /unknown .*--token/],
        [["session", "ls", "--server", "nowhere"], 2, /no address of a server/],
    ]) {
        const result = await tidemark(t, args);
        assert.equal(result.code, code, args.join(" "));
        assert.equal(result.stdout, "");
        assert.match(result.stderr, pattern);
    }
    const helps = [
        ["session", "--help"],
        ["help", "session"],
        ["session", "show", "--help"],
    ];
    for (const args of helps) {
        const result = await tidemark(t, args);
        assert.equal(result.code, 0);
        assert.match(result.stdout, /^Usage: tidemark session/);
    }
    assert.match((await tidemark(t, ["help"])).stdout, /^ {2}session /m);
});

test("every command that asks a server presents the token", async (t) => {
    const seen = [];
    const site = createServer((request, response) => {
        seen.push(request.headers.authorization);
        request.resume();
        response.writeHead(400).end();
    });
    site.listen(0, "127.0.0.1");
    await once(site, "listening");
    defer(t, () => site.close());
    const flags = ["--server", `http://127.0.0.1:${site.address().port}`];
    for (const command of ["append a", "tail a --no-follow", "ls", "rm a", "session ls"]) {
        const args = [...command.split(" "), ...flags];
        for (const [token, header] of [
            ["t0k/en=", "Bearer t0k/en="],
            ["", undefined],
        ]) {
            const said = await tidemark(t, args, { env: { TIDEMARK_TOKEN: token } });
            assert.equal(said.code, 1, command);
            assert.deepEqual(seen.splice(0), [header], command);
        }
    }
});
