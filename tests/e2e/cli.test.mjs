// SPDX-License-Identifier: Apache-2.0
// The command line, as a person or a script uses it.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { startProxy } from "./lib/proxy.mjs";
import { randomness } from "./lib/rand.mjs";
import { Running, tidemark } from "./lib/run.mjs";
import { binary, startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const at = (server) => ["--server", server.base];

async function succeeds(t, args, options) {
    const result = await tidemark(t, args, options);
    assert.equal(result.code, 0, `tidemark ${args.join(" ")}: ${result.stderr}`);
    return result.stdout;
}

test("append lines, tail them, list and remove the stream", async (t) => {
    const server = await startServer(t);
    await succeeds(t, ["append", "notes/1", ...at(server)], {
        input: "one\ntwo\n\nlast without end",
    });
    assert.equal((await server.stream("GET", "notes/1")).headers["content-type"], "text/plain");
    const text = await succeeds(t, ["tail", "notes/1", "--no-follow", ...at(server)]);
    assert.match(text, /^one\ntwo\n\nlast without end\n?$/);

    await succeeds(t, ["append", ...at(server), "other"], { input: "x\n" });
    const all = await succeeds(t, ["ls", ...at(server)]);
    assert.match(all, /^notes\/1\s+text\/plain\s+\d{16}_\d{16}\s/m);
    assert.match(all, /^other\s/m);
    const some = await succeeds(t, ["ls", "notes/", ...at(server)]);
    assert.match(some, /^notes\/1\s/m);
    assert.doesNotMatch(some, /other/);

    await succeeds(t, ["rm", "notes/1", ...at(server)]);
    assert.equal((await server.stream("HEAD", "notes/1")).status, 404);
    const gone = await tidemark(t, ["rm", "notes/1", ...at(server)]);
    assert.equal(gone.code, 1);
    assert.match(gone.stderr, /notes\/1/);
    const missing = await tidemark(t, ["tail", "notes/1", ...at(server)]);
    assert.equal(missing.code, 1);
    assert.match(missing.stderr, /no (such )?stream|not found|does not exist/i);
});

test("JSON lines stay as they are; --close ends the tail", async (t) => {
    const server = await startServer(t);
    const lines = [`{"n":1.0}`, "12345678901234567890", `{"a":1,"a":2}`, `"ü"`];
    await succeeds(t, ["append", "j", "--json", "--close", ...at(server)], {
        input: `${lines.join("\n")}\n\n`,
    });
    assert.equal((await server.stream("GET", "j")).text, `[${lines.join(",")}]`);
    assert.equal((await server.stream("HEAD", "j")).headers["stream-closed"], "true");
    assert.equal(await succeeds(t, ["tail", "j", ...at(server)]), `${lines.join("\n")}\n`);
    const listed = await succeeds(t, ["ls", "--json", ...at(server)]);
    assert.deepEqual(
        listed
            .trim()
            .split("\n")
            .map((line) => JSON.parse(line))
            .map(({ name, contentType, closed }) => ({ name, contentType, closed })),
        [{ name: "j", contentType: "application/json", closed: true }],
    );
    const more = await tidemark(t, ["append", "j", "--json", ...at(server)], { input: "1\n" });
    assert.equal(more.code, 1);
    assert.match(more.stderr, /closed/);
    const bad = await tidemark(t, ["append", "k", "--json", ...at(server)], {
        input: `1\n{"broken\n`,
    });
    assert.equal(bad.code, 1);
    assert.match(bad.stderr, /JSON/);
});

test("--whole takes any bytes as one event", async (t) => {
    const server = await startServer(t);
    const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, i) => (i * 31) & 255));
    await succeeds(t, ["append", "b", "--whole", "--content-type", "image/png", ...at(server)], {
        input: bytes,
    });
    const { headers, bytes: stored } = await server.stream("GET", "b");
    assert.equal(headers["content-type"], "image/png");
    assert.deepEqual(stored, bytes);
});

test("tail follows, and ends with 0 when the stream is closed", async (t) => {
    const server = await startServer(t);
    await server.create("live");
    const tail = new Running(t, binary(), ["tail", "live", ...at(server)]);
    for (const n of [1, 2, 3]) {
        await server.append("live", String(n));
        await tail.output(new RegExp(`^${n}$`, "m"));
    }
    await server.close("live");
    const { code, stdout } = await tail.end();
    assert.equal(code, 0);
    assert.equal(stdout, "1\n2\n3\n");
});

test("tail --from: start, now, an offset, and what is none", async (t) => {
    const server = await startServer(t);
    await server.create("from");
    const middle = (await server.append("from", "[1,2]")).headers["stream-next-offset"];
    await server.append("from", "[3,4]");
    const tail = (from) =>
        succeeds(t, ["tail", "from", "--no-follow", "--from", from, ...at(server)]);
    assert.equal(await tail("start"), "1\n2\n3\n4\n");
    assert.equal(await tail(middle), "3\n4\n");
    assert.equal(await tail("now"), "");
    const now = new Running(t, binary(), ["tail", "from", "--from", "now", ...at(server)]);
    // When it has begun cannot be seen from outside: append until something shows.
    let n = 5;
    await until(async () => {
        await server.append("from", String(n++));
        return now.stdout !== "";
    }, "a first line");
    await server.close("from");
    const { code, stdout } = await now.end();
    assert.equal(code, 0);
    const first = Number(stdout.split("\n")[0]);
    assert.ok(first >= 5);
    assert.equal(stdout, Array.from({ length: n - first }, (_, i) => `${first + i}\n`).join(""));

    const odd = await tidemark(t, ["tail", "from", "--from", "yesterday", ...at(server)]);
    assert.notEqual(odd.code, 0);
    assert.match(odd.stderr, /yesterday|--from|offset/);
    await server.stream("DELETE", "from");
    await server.create("from");
    const reborn = await tidemark(t, ["tail", "from", "--from", middle, ...at(server)]);
    assert.equal(reborn.code, 1);
    assert.notEqual(reborn.stderr, "");
});

test("tail prints every line once though its connections are cut", async (t) => {
    const COUNT = 200;
    const random = randomness(t);
    const server = await startServer(t);
    const proxy = await startProxy(t, server, (n) =>
        n < 5 ? { answerBytes: 200 + random.below(4000) } : null,
    );
    await server.create("cut");
    const tail = new Running(t, binary(), ["tail", "cut", "--server", proxy.base]);
    for (let n = 0; n < COUNT; n++) {
        await server.append("cut", `"line ${n}"`);
        if (n % 20 === 0)
            await until(
                () => tail.stdout.includes(`"line ${n}"\n`) || tail.child.exitCode !== null,
                `line ${n}`,
            );
    }
    await server.close("cut");
    const { code, stdout, stderr } = await tail.end();
    assert.equal(code, 0, stderr);
    assert.equal(stdout, Array.from({ length: COUNT }, (_, n) => `"line ${n}"\n`).join(""));
    assert.ok(proxy.cuts > 0, "no connection was cut");
});

test("append stores every line once though answers get lost", async (t) => {
    const COUNT = 300;
    const random = randomness(t);
    const server = await startServer(t);
    // The first connection lives long enough to show that the server is there.
    const proxy = await startProxy(t, server, (n) => {
        if (n === 0) return { answerBytes: 1500 };
        if (n > 8) return null;
        if (n % 3 === 2) return { requestBytes: 100 + random.below(600) };
        return { answerBytes: random.below(2) * random.below(700) };
    });
    await server.create("lossy");
    const append = new Running(t, binary(), [
        "append",
        "lossy",
        "--json",
        "--close",
        "--server",
        proxy.base,
    ]);
    for (let n = 0; n < COUNT; n++) {
        append.child.stdin.write(`${n}\n`);
        if (n % 25 === 0)
            await until(
                async () =>
                    (await server.stream("GET", "lossy")).json().at(-1) === n ||
                    append.child.exitCode !== null,
                `line ${n} to be stored`,
            );
    }
    append.child.stdin.end();
    const { code, stderr } = await append.end();
    assert.equal(code, 0, stderr);
    const stored = await server.stream("GET", "lossy");
    assert.deepEqual(
        stored.json(),
        Array.from({ length: COUNT }, (_, n) => n),
    );
    assert.equal(stored.headers["stream-closed"], "true");
    assert.ok(proxy.cuts > 0, "no connection was cut");
});

test("lines are sent as they come, not at the end of input", async (t) => {
    const server = await startServer(t);
    const append = new Running(t, binary(), ["append", "typing", ...at(server)]);
    append.child.stdin.write("first\n");
    await until(
        async () => (await server.stream("GET", "typing")).text === "first\n",
        "the first line",
    );
    append.child.stdin.write("second\n");
    await until(
        async () => (await server.stream("GET", "typing")).text === "first\nsecond\n",
        "the second line",
    );
    append.child.stdin.end();
    assert.equal((await append.end()).code, 0);
});

test("an unreachable server: exit code 1 and a sentence that helps", async (t) => {
    // Port 1 of loopback: nobody listens there.
    const server = ["--server", "http://127.0.0.1:1"];
    for (const args of [["append", "x"], ["tail", "x"], ["ls"], ["rm", "x"]]) {
        const { code, stdout, stderr } = await tidemark(t, [...args, ...server], {
            input: "line\n",
        });
        assert.equal(code, 1, args[0]);
        assert.equal(stdout, "");
        assert.match(stderr, /127\.0\.0\.1:1\b/, args[0]);
        assert.match(stderr, /connect|reach|refused|running/i, args[0]);
        assert.equal(stderr.trim().split("\n").length <= 3, true, stderr);
    }
    const odd = await tidemark(t, ["ls", "--server", "nonsense"]);
    assert.notEqual(odd.code, 0);
    assert.match(odd.stderr, /nonsense/);
});

test("TIDEMARK_SERVER names the server", async (t) => {
    const server = await startServer(t);
    await server.create("there", "text/plain", { body: "hi\n" });
    const env = { TIDEMARK_SERVER: server.base };
    assert.match(await succeeds(t, ["ls"], { env }), /^there\s/m);
    assert.equal(await succeeds(t, ["tail", "there", "--no-follow"], { env }), "hi\n");
});

test("a Unix socket is a server's address too", async (t) => {
    const unix = join(await tempFolder(t), "sock");
    await startServer(t, [], { unix });
    const address = ["--server", `unix:${unix}`];
    await succeeds(t, ["append", "u", ...address], { input: "over the socket\n" });
    assert.equal(await succeeds(t, ["tail", "u", "--no-follow", ...address]), "over the socket\n");
});

test("--help of every command explains its flags", async (t) => {
    const flags = {
        serve: [
            "--listen",
            "--store",
            "--data",
            "--config",
            "--max-connections",
            "--max-append",
            "--head-timeout",
            "--body-timeout",
            "--heartbeat",
            "--trace",
        ],
        append: ["--server", "--json", "--whole", "--close"],
        tail: ["--server", "--from"],
        ls: ["--server", "--json"],
        rm: ["--server"],
        access: ["init", "check", "explain", "rules", "mint", "revoke"],
    };
    const overview = await succeeds(t, ["--help"]);
    for (const [command, expected] of Object.entries(flags)) {
        assert.match(overview, new RegExp(`^\\s+${command}\\s`, "m"));
        const help = await succeeds(t, [command, "--help"]);
        for (const flag of expected)
            assert.ok(
                help.includes(flag) || help.includes(flag.replace("--", "--[no-]")),
                `${flag} in the help of ${command}`,
            );
        assert.equal(await succeeds(t, ["help", command]), help);
    }
});

test("what is misspelt is named, with exit code 2", async (t) => {
    for (const [args, mention] of [
        [["tial", "x"], /tail/],
        [["tail", "x", "--form", "now"], /--from/],
        [["serve", "--lisen", "x"], /--listen/],
        [["serve", "--heartbeat", "soon"], /heartbeat/],
        [["serve", "--listen", "nowhere:x"], /nowhere:x/],
        [["serve", "--store", "nonsense"], /nonsense/],
        [["tail"], /NAME/],
        [[], /Usage/],
    ]) {
        const { code, stderr } = await tidemark(t, args);
        assert.equal(code, 2, args.join(" "));
        assert.match(stderr, mention, args.join(" "));
    }
});

test("serve says where it listens, and what stands in its way", async (t) => {
    const server = await startServer(t);
    const { host, port } = server.where;
    await until(
        () => (server.stderr + server.stdout).includes(`${host}:${port}`),
        "the address in a trace",
    );
    const second = await tidemark(t, ["serve", "--store", "memory", "--listen", `${host}:${port}`]);
    assert.equal(second.code, 1);
    assert.match(second.stderr, new RegExp(`${host}:${port}`));
    assert.match(second.stderr, /in use/);
});

test("settings: a flag wins over a variable, a variable over the file", async (t) => {
    const file = join(await tempFolder(t), "tidemark.conf");
    await writeFile(file, "# a comment\nmax-append = 1k\n");
    const largest = async (flags, env) => {
        const server = await startServer(t, flags, { env });
        await server.create("x", "text/plain");
        let taken = 0;
        for (const size of [500, 1500, 2500, 3500]) {
            const body = "b".repeat(size);
            const headers = { "content-type": "text/plain" };
            const { status } = await server.stream("POST", "x", { headers, body });
            assert.ok([204, 413].includes(status), `${status}`);
            if (status === 204) taken = size;
        }
        return taken;
    };
    const env = { TIDEMARK_MAX_APPEND: "2k" };
    assert.equal(await largest([], {}), 3500);
    assert.equal(await largest(["--config", file], {}), 500);
    assert.equal(await largest(["--config", file], env), 1500);
    assert.equal(await largest(["--config", file, "--max-append", "3k"], env), 2500);
});

test("--trace json writes one JSON object a line", async (t) => {
    const server = await startServer(t, ["--trace", "json", "--trace-level", "debug"]);
    await server.create("x", "text/plain");
    await server.stop();
    const lines = server.stderr.trim().split("\n");
    assert.ok(lines.length > 0);
    for (const line of lines) assert.equal(typeof JSON.parse(line), "object", line);
});
