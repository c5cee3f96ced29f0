// SPDX-License-Identifier: Apache-2.0
// What every request meets first: the attacks on an exposed server that come by its listeners, by
// Host, by proxies and by browsers. Numbers are those of the list of attacks in docs/security.md.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { createServer as createNetServer } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Agent, interceptors, request } from "undici";
import { startBackend } from "./lib/backend.mjs";
import { defer } from "./lib/defer.mjs";
import { H2 } from "./lib/h2.mjs";
import { findBrowser, launch } from "./lib/lab-page.mjs";
import { openRaw } from "./lib/raw.mjs";
import { curl, tidemark } from "./lib/run.mjs";
import { freePort, startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const skip = findBrowser() ? false : "there is no Chromium here: `scripts/deps browser` installs it";
const EVIL = "evil.example";
const TOKEN = "a-token-of-a-caller";
const bearer = { authorization: `Bearer ${TOKEN}` };
const ACCESS = `[caller c]
token-sha256 = ${createHash("sha256").update(TOKEN).digest("hex")}
grant = read, append, create, close, delete, list **
grant = subscribe, webhook **
grant = generate, stop route:/**
grant = read, append log:**
grant = tool tool:**
grant = lab lab
grant = admin, metrics server

[anonymous]
grant = read public/*
`;

let browser;
before(async () => {
    if (!skip) browser = await launch([`--host-resolver-rules=MAP ${EVIL} 127.0.0.1`]);
});
after(() => browser?.close());

const json = (value) => ({
    headers: { "content-type": "application/json" },
    body: JSON.stringify(value),
});

/** One request of each surface, and whether foreign pages may ask it at all. */
const SURFACES = [
    ["GET", "/v1/stream/", false],
    ["GET", "/v1/stream/s", false],
    ["GET", "/v1/stream/s?offset=now&live=long-poll", false],
    ["PUT", "/v1/stream/new", false],
    ["POST", "/v1/stream/s", false, json([1])],
    ["DELETE", "/v1/stream/none", false],
    ["PUT", "/v1/stream/__ds/subscriptions/a", false, json({ type: "pull-wake", pattern: "x/*" })],
    ["GET", "/v1/stream/__ds/jwks.json", false],
    ["POST", "/chat", false, json({ plan: { name: "a", tokens: 1 } })],
    ["GET", "/chat/none", false],
    ["GET", "/v1/session/", false],
    ["GET", "/metrics", true],
    ["GET", "/v1/log/f", true],
    ["POST", "/v1/log/f", true, json({ by: "nobody" })],
    ["GET", "/atd/v1/tools", true],
    ["POST", "/atd/v1/run_tool", true, json({ tool_id: "rows" })],
    ["POST", "/mcp", true, json({ jsonrpc: "2.0", id: 1, method: "ping", params: {} })],
    ["GET", "/lab", true],
    ["GET", "/api/config", true],
    ["GET", "/nowhere", false],
];

/** A server with all surfaces. `text`: what else stands in its file. */
async function startAll(t, { text = "", flags = [], ...options } = {}) {
    const folder = await tempFolder(t);
    const backend = await startBackend(t);
    const config = join(folder, "tidemark.ini");
    await writeFile(join(folder, "log.jsonl"), '{"secret":"of a log"}\n');
    const sections = [
        text,
        `[log f]\npath = ${join(folder, "log.jsonl")}`,
        `[tool rows]\ncommand = seq -f '{"row":%.0f}' 0 3`,
        `[lab]\nroot = ${join(folder, "lab")}\nfeedback = ${join(folder, "feedback.jsonl")}`,
        `[route /chat]\nupstream = ${backend.url()}`,
    ];
    await writeFile(config, sections.join("\n\n"));
    const all = ["--config", config, "--long-poll-timeout", "100ms", ...flags];
    const server = await startServer(t, all, options);
    server.folder = folder;
    return server;
}

/** Every surface over both versions: judge(answer, what it was, whether it is strict). */
async function askAll(t, server, more, judge, surfaces = SURFACES) {
    const h2 = new H2(t, server);
    for (const [method, path, strict, options = {}] of surfaces) {
        const headers = { ...options.headers, ...more };
        const { host, ...rest } = headers;
        const second = host === undefined ? headers : { ...rest, ":authority": host };
        judge(
            await server.request(method, path, { ...options, headers }),
            `${method} ${path}`,
            strict,
        );
        judge(
            await h2.request(method, path, { ...options, headers: second }),
            `${method} ${path} over HTTP/2`,
            strict,
        );
    }
    h2.session.close();
}

const code = (text) => /"(WRONG_HOST|PROTECTED|FORBIDDEN)"/.exec(text)?.[1];

// ---- protected mode ----

test("attack 1: a server that others can reach does not start without access", async (t) => {
    const folder = await tempFolder(t);
    const file = join(folder, "c.ini");
    for (const listen of ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"]) {
        for (const flag of ["--listen", "--admin-listen"]) {
            const always = ["serve", "--store", "memory", "--listen", "127.0.0.1:0"];
            const said = await tidemark(t, [...always, flag, listen]);
            assert.equal(said.code, 2, `${flag} ${listen}`);
            for (const line of ["[caller NAME]", "token-sha256 =", "grant =", "access = open"])
                assert.ok(said.stderr.includes(line), `${line} in ${said.stderr}`);
        }
    }
    // Callers that are granted nothing are no access control.
    await writeFile(file, ACCESS.replace(/^grant.*$|^\[anonymous\]$/gm, ""));
    const wide = ["--listen", "0.0.0.0:0", "--config", file];
    assert.equal((await tidemark(t, ["serve", "--store", "memory", ...wide])).code, 2);
    await writeFile(file, ACCESS);
    const guarded = await startServer(t, wide);
    assert.equal((await guarded.stream("GET", "s")).status, 401);
    const open = await startServer(t, ["--listen", "0.0.0.0:0", "--access", "open"]);
    await until(() => /access is open/.test(open.stderr), "the warning");
    const metrics = await open.request("GET", "/metrics");
    assert.match(metrics.text, /tidemark_config_warnings\{setting="access"\} 1/);
    const unheard = await tidemark(t, ["serve", "--store", "memory", "--access", "shut"]);
    assert.equal(unheard.code, 2);
});

test("attack 1: a reload does not open what others can reach", async (t) => {
    const file = join(await tempFolder(t), "c.ini");
    await writeFile(file, ACCESS);
    const server = await startServer(t, ["--listen", "0.0.0.0:0", "--config", file]);
    for (const text of ["", "listen = 127.0.0.1:0\n", "access = open\n"]) {
        const before = server.stderr.length;
        await writeFile(file, text);
        process.kill(server.pid, "SIGHUP");
        await until(() => /SIGHUP/.test(server.stderr.slice(before)), "the answer to SIGHUP");
        assert.match(server.stderr.slice(before), /other machines can reach/);
        assert.equal((await server.stream("GET", "s")).status, 401);
    }
});

test("attack 2: an open server takes nothing that came through a proxy", async (t) => {
    const server = await startAll(t);
    await server.create("s");
    for (const header of ["x-forwarded-for", "forwarded", "via"]) {
        const value = { forwarded: "for=192.0.2.1", via: "1.1 proxy" }[header] ?? "192.0.2.1";
        await askAll(t, server, { [header]: value }, ({ status, text }, what) => {
            assert.equal(status, 403, `${what} with ${header}`);
            assert.doesNotMatch(text, /secret|rows|tidemark_/, what);
        });
        const refused = await server.stream("GET", "s", { headers: { [header]: value } });
        assert.equal(refused.json().error.code, "PROTECTED");
        assert.match(refused.json().error.message, /proxy.*access = open/s);
    }
    assert.equal(await server.readAll("s"), "[]");
    assert.equal((await server.request("GET", "/healthz", { headers: { via: "1.1 p" } })).status, 200);
    const folder = await tempFolder(t);
    const unix = join(folder, "s");
    await startServer(t, [], { unix });
    const headers = { "x-forwarded-for": "192.0.2.1" };
    const through = ["-s", "--unix-socket", unix, "-H", "X-Forwarded-For: 192.0.2.1"];
    assert.match(await curl(t, [...through, "http://localhost/v1/stream/s"]), /PROTECTED/);
    // With access, or if that is meant, a proxy may.
    for (const [flags, text] of [
        [["--access", "open"], ""],
        [[], ACCESS],
    ]) {
        const other = await startAll(t, { flags, text });
        const answer = await other.stream("GET", "public/s", { headers });
        assert.equal(answer.status, 404);
    }
});

test("attack 2: a foreign Host reaches no surface, with or without access", async (t) => {
    for (const text of ["", ACCESS]) {
        const server = await startAll(t, { text, flags: ["--allow-host", "us.example"] });
        await server.create("s", undefined, { headers: bearer });
        for (const host of [EVIL, `${EVIL}:${server.where.port}`, "localhost.evil.example"]) {
            await askAll(t, server, { ...bearer, host }, ({ status, text: body }, what) => {
                assert.equal(status, 421, `${what} at ${host}: ${body}`);
                assert.doesNotMatch(body, /secret|rows|tidemark_/, what);
            });
            for (const path of ["/healthz", "/readyz"])
                assert.equal((await server.request("GET", path, { headers: { host } })).status, 200);
        }
        const wrong = await server.stream("GET", "s", { headers: { host: EVIL } });
        assert.equal(code(wrong.text), "WRONG_HOST");
        for (const host of ["us.example", "192.168.7.7", "[::1]:80", "localhost"])
            assert.equal((await server.stream("GET", "s", { headers: { ...bearer, host } })).status, 200);
        const raw = await openRaw(t, server); // none at all
        raw.send(`GET /v1/stream/s HTTP/1.0\r\nAuthorization: Bearer ${TOKEN}\r\n\r\n`);
        assert.equal((await raw.head()).status, 200);
    }
});

test("attack 2: a page that rebinds its name reads no stream", { skip }, async (t) => {
    const server = await startServer(t);
    await server.create("s", "application/json", { body: '["secret"]' });
    const page = await browser.newPage();
    t.after(() => page.close());
    const site = `http://${EVIL}:${server.where.port}`;
    await page.route(`${site}/page`, (route) =>
        route.fulfill({ contentType: "text/html", body: "<!doctype html>" }),
    );
    await page.goto(`${site}/page`);
    const read = async (path) => {
        const answer = await fetch(path);
        return [answer.status, await answer.text()];
    };
    const [status, text] = await page.evaluate(read, "/v1/stream/s");
    assert.equal(status, 421);
    assert.doesNotMatch(text, /secret/);
});

// ---- caches ----

test("attack 36: what not everybody may read rests in no shared cache", async (t) => {
    const server = await startAll(t, { text: ACCESS });
    for (const name of ["private", "public/s"])
        await server.create(name, "application/json", { headers: bearer, body: "[1]" });
    for (const query of ["", "?offset=-1", "?offset=now"]) {
        const { status, headers } = await server.stream("GET", `private${query}`, { headers: bearer });
        assert.equal(status, 200);
        assert.match(headers["cache-control"], /no-store/);
        assert.doesNotMatch(headers["cache-control"], /public|max-age/);
        assert.equal(headers.vary, "Authorization, Cookie, Origin, Tidemark-Authorization");
        assert.equal(headers["cross-origin-resource-policy"], "same-origin");
        assert.equal(headers["referrer-policy"], "no-referrer");
        assert.equal(headers["access-control-allow-origin"], undefined);
    }
    const { headers } = await server.stream("GET", "private", { headers: bearer });
    assert.equal(headers["cache-control"], "private, no-store");
    const again = { ...bearer, "if-none-match": headers.etag };
    const same = await server.stream("GET", "private", { headers: again });
    assert.equal(same.status, 304);
    assert.equal(same.headers["cache-control"], "private, no-store");
    const everybody = await server.stream("GET", "public/s");
    assert.equal(everybody.status, 200);
    assert.match(everybody.headers["cache-control"], /^public, max-age=60/);
    assert.equal(everybody.headers.vary, "Authorization, Cookie, Origin, Tidemark-Authorization");
    const h2 = new H2(t, server);
    const second = await h2.stream("GET", "private", { headers: bearer });
    assert.equal(second.headers["cache-control"], "private, no-store");
    assert.equal(second.headers["cross-origin-resource-policy"], "same-origin");
    const without = await startServer(t);
    await without.create("s", "application/json", { body: "[1]" });
    const open = await without.stream("GET", "s");
    assert.match(open.headers["cache-control"], /^public, max-age=60/);
    assert.equal(open.headers["cross-origin-resource-policy"], "cross-origin");
});

/** undici's cache for many users (RFC 9111), which keeps whatever it may, and guesses where nothing is said. */
function sharedCache(agent, server) {
    const cached = agent.compose(interceptors.cache({ type: "shared", cacheByDefault: 3600 }));
    const ask = async (dispatcher, path, headers) => {
        const answer = await request(server.base + path, { dispatcher, headers });
        return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() };
    };
    return {
        through: (path, headers) => ask(cached, path, headers),
        directly: (path, headers) => ask(agent, path, headers),
    };
}

test("attack 36: a shared cache in front gives nobody what is another's", async (t) => {
    const tokens = { ann: "ann's", bob: "bob's", cy: "cy's" };
    const section = (name, more) =>
        `[caller ${name}]\ntoken-sha256 = ${createHash("sha256").update(tokens[name]).digest("hex")}\n${more}\n`;
    const text =
        section("ann", "grant = read, create, append, list **\ngrant = mint, metrics server\ngrant = read log:**\ngrant = tool tool:**") +
        section("bob", "root = t/b/\ngrant = read, create, append, list **") +
        section("cy", "grant = read public/*") +
        "[anonymous]\ngrant = read public/*\n";
    const server = await startAll(t, { text, flags: ["--address-rate", "0", "--address-failures", "0"] });
    const agent = new Agent();
    defer(t, () => agent.destroy());
    const as = (name) => ({ authorization: `Bearer ${tokens[name]}` });
    const json = { "content-type": "application/json" };
    for (const [who, name] of [["ann", "s"], ["ann", "public/s"], ["ann", "t/b/mine"], ["bob", "s"], ["bob", "public/s"]])
        await server.create(name, "application/json", { headers: { ...as(who), ...json }, body: `["${name} of ${who}"]` });
    const mint = async (order) => {
        const body = JSON.stringify({ actions: ["read"], link: true, ...order });
        const made = await server.request("POST", "/v1/access/grants", { headers: { ...as("ann"), ...json }, body });
        assert.equal(made.status, 201, made.text);
        return made.json().token;
    };
    const link = await mint({ on: ["s"] });
    const carriers = Object.values(tokens).flatMap((token) => [
        { authorization: `Bearer ${token}` },
        { "tidemark-authorization": `Bearer ${token}` },
        { cookie: `__Host-tidemark=${token}` },
    ]);
    const paths = [
        "/v1/stream/s",
        "/v1/stream/s?offset=-1",
        "/v1/stream/s?offset=now",
        "/v1/stream/public/s",
        "/v1/stream/public/s?offset=-1",
        "/v1/stream/public/none",
        "/v1/stream/mine",
        "/v1/stream/t/b/mine",
        "/v1/stream/",
        "/v1/log/f",
        "/atd/v1/tools",
        "/v1/access/revocations",
    ];
    const users = [{}, { authorization: "Bearer nobody's" }, ...carriers];
    const same = ({ status, text }, other, what) => assert.deepEqual([status, text], [other.status, other.text], what);
    for (const path of paths)
        for (const first of users) {
            const { through, directly } = sharedCache(agent, server);
            for (const next of users) {
                await through(path, first);
                same(await through(path, next), await directly(path, next), `${path} of ${JSON.stringify([first, next])}`);
            }
        }
    // It is a cache: what everybody may read it keeps, and a link is its bearer's until its time is over.
    const { through, directly } = sharedCache(agent, server);
    await through("/v1/stream/public/s", {});
    assert.notEqual((await through("/v1/stream/public/s", {})).headers.age, undefined);
    const url = `/v1/stream/s?grant=${link}`;
    assert.equal((await through(url, {})).text, '["s of ann"]');
    assert.equal((await through("/v1/stream/s", {})).status, 401);
    const order = { on: ["s"], expires_in: 5 };
    const last = `/v1/stream/s?grant=${await mint(order)}`;
    const { headers } = await through(last, {});
    const age = Number(/max-age=(\d+)/.exec(headers["cache-control"])?.[1] ?? 0);
    assert.ok(age <= 5 && !/stale/.test(headers["cache-control"]), headers["cache-control"]);
    await until(async () => (await directly(last, {})).status === 401, "the end of the link");
    assert.equal((await through(last, {})).status, 401);
    // What everybody may read no more is forgotten within a minute.
    const { headers: said } = await directly("/v1/stream/public/s", {});
    assert.equal(said["cache-control"], "public, max-age=60");
});

// ---- origins ----

const FOREIGN = [
    "https://evil.example",
    "null",
    "https://good.example.evil.example",
    "http://good.example",
    "https://good.example:444",
];

test("attack 37: pages of sites that are not listed read and write nothing", async (t) => {
    for (const text of ["", ACCESS]) {
        const server = await startAll(t, { text, flags: ["--allow-origin", "https://good.example"] });
        await server.create("s", "application/json", { headers: bearer });
        // What is granted is another test's: with access nobody is known here.
        const known = text ? {} : bearer;
        const asked = SURFACES.filter(([, path]) => !text || path !== "/v1/stream/");
        const judge = (origin) => (answer, what, strict) => {
            assert.equal(answer.headers["access-control-allow-origin"], undefined, what);
            assert.equal(answer.headers["access-control-allow-credentials"], undefined, what);
            const refused = strict || !/^GET/.test(what);
            const said = `${what} of ${origin}: ${answer.text}`;
            if (refused) assert.equal(answer.status, 403, said);
            else assert.notEqual(answer.status, 403, said);
        };
        for (const origin of FOREIGN)
            await askAll(t, server, { ...known, origin }, judge(origin), asked);
        const site = { ...bearer, "sec-fetch-site": "cross-site" };
        for (const [method, path, , options = {}] of SURFACES) {
            const headers = { ...options.headers, ...site };
            if (method === "GET") continue;
            const refused = await server.request(method, path, { ...options, headers });
            assert.equal(refused.status, 403, `${method} ${path} across sites`);
        }
        const still = await server.stream("GET", "s", { headers: bearer });
        assert.equal(still.text, "[]");
        const log = await server.request("GET", "/v1/log/f", { headers: bearer });
        assert.deepEqual(log.json().items, [{ secret: "of a log" }]);
    }
});

test("attack 37: pages of sites that are listed may, and preflights need no token", async (t) => {
    const origin = "https://good.example";
    const server = await startAll(t, { text: ACCESS, flags: ["--allow-origin", origin] });
    await server.create("s", "application/json", { headers: bearer });
    const h2 = new H2(t, server);
    for (const ask of [server, h2]) {
        const preflight = (from, path = "/v1/stream/s") =>
            ask.request("OPTIONS", path, {
                headers: { origin: from, "access-control-request-method": "PUT" },
            });
        const allowed = await preflight(origin);
        assert.equal(allowed.status, 204);
        assert.equal(allowed.headers["access-control-allow-origin"], origin);
        assert.equal(allowed.headers["access-control-allow-credentials"], "true");
        assert.match(allowed.headers["access-control-allow-headers"], /Authorization/);
        assert.match(allowed.headers["access-control-allow-methods"], /PUT/);
        assert.ok(Number(allowed.headers["access-control-max-age"]) <= 7200);
        assert.match(allowed.headers.vary, /Origin/);
        const foreign = await preflight("https://evil.example");
        assert.equal(foreign.status, 204);
        assert.equal(foreign.headers["access-control-allow-origin"], undefined);
        assert.match(foreign.headers["access-control-allow-headers"], /Stream-Seq/);
        const read = await ask.request("GET", "/v1/stream/s", { headers: { ...bearer, origin } });
        assert.equal(read.headers["access-control-allow-origin"], origin);
        assert.equal(read.headers["access-control-allow-credentials"], "true");
        assert.equal(read.headers["cross-origin-resource-policy"], "cross-origin");
        const none = await ask.request("GET", "/v1/stream/s", { headers: { origin } });
        assert.equal(none.status, 401); // which its page may see, too
        assert.equal(none.headers["access-control-allow-origin"], origin);
        const write = { ...json([1]), headers: { ...json().headers, ...bearer, origin } };
        assert.equal((await ask.request("POST", "/v1/stream/s", write)).status, 204);
        const generate = await ask.request("GET", "/chat/none", { headers: { origin } });
        assert.equal(generate.headers["access-control-allow-origin"], origin);
        assert.match(generate.headers["access-control-expose-headers"], /X-Resume-Token/);
    }
});

test("attack 37: every site has to be written, and comes without its users' cookies", async (t) => {
    const server = await startAll(t, { flags: ["--allow-origin", "*"] });
    await server.create("s", "application/json");
    await askAll(t, server, { origin: "https://any.example" }, ({ status, headers, text }, what, strict) => {
        assert.equal(headers["access-control-allow-credentials"], undefined, what);
        if (strict) assert.equal(status, 403, what);
        else assert.notEqual(status, 403, `${what}: ${text}`);
        if (/GET \/v1\/stream\/s/.test(what))
            assert.equal(headers["access-control-allow-origin"], "*", what);
    });
});

/** A page of its own server, at http://HOST:PORT/. */
async function startPage(t) {
    const site = createServer((_, response) => {
        response.setHeader("content-type", "text/html");
        response.end("<!doctype html><body></body>");
    });
    site.listen(0, "127.0.0.1");
    await once(site, "listening");
    defer(t, () => site.close());
    return site.address().port;
}

/** What a page's fetch tells it: a status, or "refused" by its browser. */
const fetchIn = (page, url, options) =>
    page.evaluate(
        ([target, given]) =>
            fetch(target, given).then(
                (answer) => answer.status,
                () => "refused",
            ),
        [url, options],
    );

test("attack 37: in a browser, and a developer's own server", { skip }, async (t) => {
    const port = await startPage(t);
    const server = await startServer(t);
    await server.create("s", "application/json");
    const page = await browser.newPage();
    t.after(() => page.close());
    const append = { method: "POST", body: "[1]", headers: { "content-type": "application/json" } };
    // Pages of this machine may use a server of this machine that is open.
    await page.goto(`http://localhost:${port}/`);
    assert.equal(await fetchIn(page, server.url("s")), 200);
    assert.equal(await fetchIn(page, server.url("s"), append), 204);
    assert.equal(await page.evaluate(
        (url) =>
            new Promise((resolve) => {
                const source = new EventSource(url);
                source.addEventListener("data", (event) => {
                    source.close();
                    resolve(event.data);
                });
            }),
        server.url("s", "?offset=-1&live=sse"),
    ), "[1]");
    // Pages of elsewhere may not: neither with a preflight, nor with what needs none.
    await page.goto(`http://${EVIL}:${port}/`);
    const plain = { method: "POST", body: "[2]", headers: { "content-type": "text/plain" } };
    const blind = { ...plain, mode: "no-cors" };
    for (const options of [undefined, append, plain, { method: "DELETE" }])
        assert.equal(await fetchIn(page, server.url("s"), options), "refused");
    await fetchIn(page, server.url("s"), blind);
    await fetchIn(page, `${server.base}/v1/stream/made`, { method: "POST", mode: "no-cors" });
    assert.equal(await server.readAll("s"), "[1]");
    assert.equal((await server.stream("HEAD", "made")).status, 404);
    const listed = await startServer(t, ["--allow-origin", `http://${EVIL}:${port}`]);
    await listed.create("s", "application/json");
    assert.equal(await fetchIn(page, listed.url("s"), append), 204);
    assert.equal(await fetchIn(page, listed.url("s"), { credentials: "include" }), 200);
});

// ---- what is stored ----

test("attack 38: a page that somebody stored does not run, with access", { skip }, async (t) => {
    const server = await startAll(t, { text: ACCESS });
    const script = 'fetch("/v1/stream/public/proof")';
    const pages = {
        "text/html": `<script>${script}</script>`,
        "image/svg+xml": `<svg xmlns="http://www.w3.org/2000/svg"><script>${script}</script></svg>`,
    };
    let n = 0;
    for (const [type, body] of Object.entries(pages)) {
        const name = `public/${n++}`;
        await server.create(name, type, { headers: bearer, body });
        const page = await browser.newPage();
        let asked = false;
        page.on("request", (request) => (asked ||= request.url().includes("proof")));
        const saved = page.waitForEvent("download", { timeout: 5000 }).catch(() => null);
        await page.goto(server.url(name)).catch(() => {});
        assert.ok(await saved, `${type} is not saved`);
        assert.equal(asked, false, type);
        await page.close();
        const { headers } = await server.stream("GET", name);
        assert.match(headers["content-security-policy"], /sandbox/);
        assert.equal(headers["content-disposition"], "attachment");
    }
});

// ---- outgoing ----

test("attack 39: webhooks reach no address that a client must not name", async (t) => {
    const put = (server, url) =>
        server.request("PUT", "/v1/stream/__ds/subscriptions/a", {
            headers: { "content-type": "application/json" },
            body: JSON.stringify({ type: "webhook", pattern: "jobs/*", webhook: { url } }),
        });
    const never = [
        "https://169.254.169.254/",
        "https://[::ffff:169.254.169.254]/",
        "https://[64:ff9b::a9fe:a9fe]/",
        "https://[2002:a9fe:a9fe::1]/",
        "https://168.63.129.16/",
        "https://[::ffff:168.63.129.16]/",
        "https://[64:ff9b::a83f:8110]/",
        "https://[2002:a83f:8110::]/",
        "https://100.100.100.200/",
        "https://[::ffff:100.100.100.200]/",
        "https://[fd00:ec2::254]/",
        "https://0.0.0.0/",
        "https://[::]/",
    ];
    const unless = [
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://localhost/",
        "https://10.0.0.1/",
        "https://[::ffff:10.0.0.1]/",
        "https://[64:ff9b::a00:1]/",
        "https://[2002:a00:1::]/",
        "https://100.64.0.1/",
        "https://[fd00::1]/",
        "https://[fe80::1]/",
    ];
    const closed = await startServer(t);
    const open = await startServer(t, ["--allow-loopback-targets", "--allow-private-targets"]);
    for (const url of [...never, ...unless]) {
        const refused = await put(closed, url);
        assert.equal(refused.status, 400, url);
        assert.equal(refused.json().error.code, "WEBHOOK_URL_REJECTED", url);
    }
    for (const url of never) assert.equal((await put(open, url)).status, 400, url);
    // A name is looked up when it is asked, each time: what it points to then is refused.
    let connections = 0;
    const inner = createNetServer((socket) => (connections++, socket.destroy()));
    inner.listen(0, "127.0.0.1");
    await once(inner, "listening");
    defer(t, () => inner.close());
    for (const [i, host] of ["127.1", "0x7f.1", "2130706433", "0177.0.0.1"].entries()) {
        const server = await startServer(t, i === 0 ? ["--allow-private-targets"] : []);
        const taken = await put(server, `https://${host}:${inner.address().port}/`);
        if (taken.status === 400) continue;
        await server.create("jobs/1");
        await server.append("jobs/1", "1");
        await until(() => /webhook of subscription .* failed/.test(server.stderr), `${host} to be tried`);
        assert.match(server.stderr, /not allowed/);
    }
    assert.equal(connections, 0);
    // A redirect is the answer, and not followed.
    let followed = 0;
    const target = createServer((_, response) => (followed++, response.end("{}")));
    target.listen(0, "127.0.0.1");
    await once(target, "listening");
    let asked = 0;
    const receiver = createServer((_, response) => {
        asked++;
        response.writeHead(302, { location: `http://127.0.0.1:${target.address().port}/` });
        response.end();
    });
    receiver.listen(0, "127.0.0.1");
    await once(receiver, "listening");
    defer(t, () => (target.close(), receiver.close()));
    const url = `http://127.0.0.1:${receiver.address().port}/`;
    assert.equal((await put(open, url)).status, 201);
    await open.create("jobs/1");
    await open.append("jobs/1", "1");
    await until(() => asked > 1, "the webhook to be tried again");
    assert.equal(followed, 0);
});

test("attack 39: whatever is refused at the connection is in the audit, whoever asked", async (t) => {
    const audit = join(await tempFolder(t), "audit.jsonl");
    // Nobody may have these, though the settings name them.
    const text = "[tool nowhere]\nurl = http://0.0.0.0:9/\n[route /nowhere]\nupstream = http://224.0.0.1:9/\n";
    const server = await startAll(t, { text, flags: ["--audit", audit] });
    await server.request("POST", "/atd/v1/run_tool", json({ tool_id: "nowhere", args: {} }));
    await server.request("POST", "/nowhere", json({}));
    const lines = () =>
        (existsSync(audit) ? readFileSync(audit, "utf8").split("\n").filter(Boolean) : [])
            .map((line) => JSON.parse(line))
            .filter(({ event }) => event === "target-refused");
    await until(() => lines().length >= 2, "both refusals");
    assert.deepEqual(
        lines().map(({ name, cause, decision }) => [name, cause, decision]),
        [
            ["nowhere", "the host has a unspecified address, which is not allowed", "deny"],
            ["224.0.0.1", "the host has a multicast address, which is not allowed", "deny"],
        ],
    );
});

// ---- proxies ----

test("attack 40: a client's address comes from trusted proxies only, and from one header", async (t) => {
    const both = { "x-forwarded-for": "127.0.0.1", forwarded: "for=192.0.2.1" };
    const outside = await startAll(t, { text: ACCESS });
    const behind = await startAll(t, { text: ACCESS, flags: ["--proxy-from", "127.0.0.0/8"] });
    for (const headers of [both, { "x-forwarded-for": "127.0.0.1" }, { forwarded: "for=_x" }])
        assert.equal((await outside.stream("GET", "public/s", { headers })).status, 404);
    assert.equal((await behind.stream("GET", "public/s", { headers: both })).status, 400);
    for (const value of ["192.0.2.1", "not an address", ", ,", "[::1]:1, 2001:db8::1"])
        assert.equal(
            (await behind.stream("GET", "public/s", { headers: { "x-forwarded-for": value } })).status,
            404,
        );
    const wrong = await tidemark(t, ["serve", "--store", "memory", "--proxy-from", "10.0.0.0/33"]);
    assert.equal(wrong.code, 2);
    assert.match(wrong.stderr, /proxy-from/);
});

// ---- those who run it ----

test("attack 43: what is for those who run the server is served at its own listener", async (t) => {
    const port = await freePort();
    const server = await startAll(t, { flags: ["--admin-listen", `127.0.0.1:${port}`] });
    const admin = `http://127.0.0.1:${port}`;
    const status = async (path, options) => (await fetch(admin + path, options)).status;
    await server.create("s");
    const h2 = new H2(t, server);
    for (const ask of [server, h2]) {
        for (const path of ["/metrics", "/v1/session/"]) {
            const refused = await ask.request("GET", path);
            assert.equal(refused.status, 404, path);
            assert.match(refused.text, /NO_ROUTE/);
            assert.equal((await ask.request("DELETE", path)).status, 404, path);
        }
        for (const path of ["/v1/stream/s", "/healthz", "/readyz", "/lab"])
            assert.equal((await ask.request("GET", path)).status, 200, path);
    }
    for (const path of ["/metrics", "/healthz", "/readyz"]) assert.equal(await status(path), 200);
    for (const path of ["/v1/stream/s", "/v1/stream/", "/lab", "/v1/log/f", "/atd/v1/tools", "/x"])
        assert.equal(await status(path), 404, path);
    assert.equal(await status("/v1/stream/new", { method: "PUT" }), 404);
    assert.equal((await server.stream("HEAD", "new")).status, 404);
    // It meets the same checks as the others.
    assert.equal(await status("/metrics", { headers: { "x-forwarded-for": "192.0.2.1" } }), 403);
    assert.equal(await status("/metrics", { headers: { origin: "https://evil.example" } }), 403);
    const guarded = await freePort();
    const flags = ["--admin-listen", `127.0.0.1:${guarded}`];
    await startAll(t, { text: ACCESS, flags });
    const at = (headers) => fetch(`http://127.0.0.1:${guarded}/metrics`, { headers });
    assert.equal((await at({})).status, 401);
    assert.equal((await at(bearer)).status, 200);
});
