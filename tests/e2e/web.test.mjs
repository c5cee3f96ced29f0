// SPDX-License-Identifier: Apache-2.0
// What a browser can be made to do to a server: run what somebody stored there, or take the server
// for a part of another site.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { H2 } from "./lib/h2.mjs";
import { findBrowser, launch } from "./lib/lab-page.mjs";
import { openRaw } from "./lib/raw.mjs";
import { startServer } from "./lib/server.mjs";
import { startBackend } from "./lib/backend.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { until } from "./lib/wait.mjs";

const skip = findBrowser() ? false : "there is no Chromium here: `scripts/deps browser` installs it";
const EVIL = "evil.example";
const POLICY = "sandbox; default-src 'none'";

let browser;
before(async () => {
    if (!skip) browser = await launch([`--host-resolver-rules=MAP ${EVIL} 127.0.0.1`]);
});
after(() => browser?.close());

/** A server with a log, a tool, a Lab and a route. */
async function startAll(t, flags = []) {
    const folder = await tempFolder(t);
    const backend = await startBackend(t);
    const config = join(folder, "tidemark.ini");
    await writeFile(join(folder, "log.jsonl"), '{"secret":"of a log"}\n');
    const sections = [
        `[log f]\npath = ${join(folder, "log.jsonl")}`,
        `[tool rows]\ncommand = seq -f '{"row":%.0f}' 0 3`,
        `[lab]\nroot = ${join(folder, "lab")}\nfeedback = ${join(folder, "feedback.jsonl")}`,
        `[route /chat]\nupstream = ${backend.url()}`,
    ];
    await writeFile(config, sections.join("\n\n"));
    return startServer(t, ["--config", config, ...flags]);
}

const mcp = (method, params = {}) => ({
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
});
const RUN = {
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ tool_id: "rows" }),
};

// ---- what is stored ----

const PAGES = {
    "text/html": "<script>PROOF</script>",
    "application/xhtml+xml":
        '<html xmlns="http://www.w3.org/1999/xhtml"><script>PROOF</script></html>',
    "image/svg+xml": '<svg xmlns="http://www.w3.org/2000/svg"><script>PROOF</script></svg>',
    "application/xml": '<x:script xmlns:x="http://www.w3.org/1999/xhtml">PROOF</x:script>',
};

test("a page that somebody stored is saved, and does not run where it is shown", { skip }, async (t) => {
    const server = await startServer(t, ["--long-poll-timeout", "200ms"]);
    const context = await browser.newContext();
    t.after(() => context.close());
    // The headers that are taken off on the way; without any the page runs, or this tests nothing.
    let without = [];
    await context.route("**/v1/stream/page*", async (route) => {
        const answer = await route.fetch();
        const headers = answer.headers();
        for (const name of without) delete headers[name];
        await route.fulfill({ response: answer, headers });
    });
    const ran = async (name) => (await server.stream("HEAD", name)).status === 200;
    let n = 0;
    for (const [type, text] of Object.entries(PAGES)) {
        for (const [removed, runs] of [
            [[], false],
            [["content-disposition"], false],
            [["content-disposition", "content-security-policy"], true],
        ]) {
            const proof = `proof-${++n}`;
            const script = `var x = new XMLHttpRequest(); x.open("PUT", "/v1/stream/${proof}", false); x.send()`;
            await server.create(`page-${n}`, type, { body: text.replace("PROOF", script) });
            without = removed;
            const page = await context.newPage();
            const saved = page.waitForEvent("download", { timeout: 5000 }).catch(() => null);
            const shown = await page.goto(server.url(`page-${n}`, "?live=long-poll&offset=-1")).then(
                () => true,
                () => false,
            );
            assert.equal(shown, removed.length > 0, `${type} is shown without ${removed}`);
            if (removed.length === 0) assert.ok(await saved, `${type} is not saved`);
            else await page.evaluate(() => document.readyState); // it has been parsed
            if (runs) await until(() => ran(proof), `${type} to run`);
            else assert.equal(await ran(proof), false, `${type} ran without ${removed}`);
            await page.close();
        }
    }
});

test("every answer with a body has the policy, and types that render are saved", async (t) => {
    const server = await startAll(t, ["--long-poll-timeout", "100ms"]);
    const types = {
        "text/html": true,
        "TEXT/HTML; charset=utf-8": true,
        "application/xhtml+xml": true,
        "image/svg+xml": true,
        "text/xml": true,
        "application/pdf": true,
        "text/javascript": true,
        "multipart/related; boundary=x": true,
        "text/plain;,text/html": true,
        "text/x-unheard-of": true,
        "text/plain": false,
        "application/json": false,
        "image/png": false,
        "video/mp4": false,
    };
    let n = 0;
    for (const [type, saved] of Object.entries(types)) {
        const name = `t${++n}`;
        const put = await server.create(name, type, { body: type.includes("json") ? "[1]" : "x" });
        const answers = [put];
        for (const query of ["", "?offset=-1", "?offset=now", "?offset=-1&live=long-poll"])
            answers.push(await server.stream("GET", name + query));
        answers.push(await server.stream("HEAD", name));
        for (const { headers } of answers) {
            assert.equal(headers["content-security-policy"], POLICY, type);
            assert.equal(headers["content-disposition"], saved ? "attachment" : undefined, type);
            assert.equal(headers["x-content-type-options"], "nosniff");
        }
    }
    const h2 = new H2(t, server);
    const overH2 = await h2.request("GET", "/v1/stream/t1");
    assert.equal(overH2.headers["content-security-policy"], POLICY);
    assert.equal(overH2.headers["content-disposition"], "attachment");

    // Answers that end by themselves ...
    await server.close("t1");
    const plan = JSON.stringify({ plan: { name: "a", tokens: 3 } });
    const generation = await server.request("POST", "/chat", { body: plan });
    const id = generation.headers["x-correlation-id"];
    assert.ok(id, generation.text);
    for (const [method, path, options] of [
        ["GET", "/v1/stream/t1?offset=-1&live=sse"],
        ["GET", "/v1/stream/"],
        ["GET", "/v1/stream/none"],
        ["GET", "/v1/stream/__ds/jwks.json"],
        ["GET", `/chat/${id}`],
        ["GET", `/chat/${id}?from=snapshot`],
        ["POST", `/chat/${id}/stop`],
        ["GET", "/chat/none"],
        ["GET", "/v1/log/f"],
        ["GET", "/v1/log/none"],
        ["GET", "/v1/log/f?live=sse&limit=1"],
        ["GET", "/metrics"],
        ["GET", "/healthz"],
        ["GET", "/atd/v1/tools"],
        ["POST", "/atd/v1/run_tool", RUN],
        ["POST", "/mcp", mcp("tools/call", { name: "rows" })],
        ["GET", "/api/config"],
        ["GET", "/api/runs/none/video"],
        ["GET", "/api/feedback"],
        ["GET", "/nothing"],
    ]) {
        const { headers, status } = await server.request(method, path, options);
        assert.equal(headers["content-security-policy"], POLICY, `${method} ${path} (${status})`);
        assert.equal(headers["content-disposition"], undefined, path);
    }
    assert.equal(generation.headers["content-security-policy"], POLICY);
    // ... and the one page that is ours.
    const lab = await server.request("GET", "/lab");
    assert.match(lab.headers["content-security-policy"], /script-src 'self'/);
    assert.equal(lab.headers["content-disposition"], undefined);
});

// ---- whose server this is ----

const GUARDED = [
    ["GET", "/metrics"],
    ["GET", "/v1/log/f"],
    ["POST", "/v1/log/f", { body: '{"by":"nobody"}' }],
    ["GET", "/atd/v1/tools"],
    ["POST", "/atd/v1/run_tool", RUN],
    ["POST", "/mcp", mcp("tools/list")],
    ["GET", "/lab"],
    ["GET", "/api/config"],
];

/** The status that a page at http://EVIL gets for each of GUARDED, its name pointing at us. */
const askAll = (asked) =>
    Promise.all(
        asked.map(async ([method, path, options]) => {
            const answer = await fetch(path, { method, ...options });
            return [path, answer.status, await answer.text()];
        }),
    );

test("a site that points its name at the server can do nothing with it", { skip }, async (t) => {
    const server = await startAll(t);
    const page = await browser.newPage();
    t.after(() => page.close());
    const site = `http://${EVIL}:${server.where.port}`;
    // Its page came while the name still pointed to its own server.
    await page.route(`${site}/page`, (route) =>
        route.fulfill({ contentType: "text/html", body: "<!doctype html>" }),
    );
    await page.goto(`${site}/page`);
    for (const [path, status, text] of await page.evaluate(askAll, GUARDED)) {
        assert.equal(status, 421, `${path}: ${text}`);
        assert.doesNotMatch(text, /secret|rows|tok_|tidemark_/);
    }
    await server.create("open");
    const read = (path) => fetch(path).then((answer) => answer.status);
    assert.equal(await page.evaluate(read, "/v1/stream/open"), 421);

    const log = await server.request("GET", "/v1/log/f");
    assert.deepEqual(log.json().items, [{ secret: "of a log" }]);
    // The same page at an address does reach them: it is the name that is refused.
    await page.route(`${server.base}/page`, (route) =>
        route.fulfill({ contentType: "text/html", body: "<!doctype html>" }),
    );
    await page.goto(`${server.base}/page`);
    for (const [path, status] of await page.evaluate(askAll, GUARDED))
        assert.equal(status, 200, path);
});

test("Host and :authority have to name the server, Origin its pages", async (t) => {
    const server = await startAll(t, [
        ["--public-url", "https://us.example:8443"],
        ["--allow-host", "tidemark"],
        ["--allow-host", "metrics.internal"],
    ].flat());
    const { port } = server.where;
    const h2 = new H2(t, server);
    const hosts = {
        localhost: true,
        [`LOCALHOST:${port}`]: true,
        "localhost.": true,
        "127.0.0.1": true,
        [`[::1]:${port}`]: true,
        "192.168.7.7": true,
        "us.example": true,
        "US.EXAMPLE.:8443": true,
        [`tidemark:${port}`]: true,
        "metrics.internal": true,
        [EVIL]: false,
        [`${EVIL}:${port}`]: false,
        "localhost.evil.example": false,
        "us.example.evil": false,
        "internal": false,
        "127.0.0.1.nip.io": false,
        "2130706433": false,
    };
    for (const [host, ours] of Object.entries(hosts)) {
        for (const [method, path, options = {}] of GUARDED) {
            const headers = { ...options.headers, host };
            const first = await server.request(method, path, { ...options, headers });
            const second = await h2.request(method, path, {
                ...options,
                headers: { ...options.headers, ":authority": host },
            });
            assert.equal(first.status, ours ? 200 : 421, `${method} ${path} at ${host}`);
            assert.equal(second.status, first.status, `${method} ${path} at ${host} over HTTP/2`);
        }
        for (const path of ["/healthz", "/v1/stream/", "/v1/stream/none"]) {
            const { status } = await server.request("GET", path, { headers: { host } });
            const wrong = !ours && path !== "/healthz";
            assert.equal(status, wrong ? 421 : path.endsWith("none") ? 404 : 200, `${path} at ${host}`);
        }
    }
    for (const [method, path, options = {}] of GUARDED) {
        for (const [origin, status] of [
            [`http://${EVIL}`, 403],
            ["null", 403],
            [`http://127.0.0.1.${EVIL}:${port}`, 403],
            ["https://us.example:8443", 200],
            [server.base, 200],
        ]) {
            const headers = { ...options.headers, origin };
            const answer = await server.request(method, path, { ...options, headers });
            assert.equal(answer.status, status, `${method} ${path} of a page of ${origin}`);
        }
    }
    // Two that differ, or a target that says something else than Host.
    for (const [line, headers, status] of [
        ["GET /metrics", `Host: localhost\r\nHost: ${EVIL}\r\n`, 400],
        [`GET http://${EVIL}/metrics`, "Host: localhost\r\n", 421],
        ["GET http://localhost/metrics", "Host: localhost\r\n", 200],
    ]) {
        const raw = await openRaw(t, server);
        raw.send(`${line} HTTP/1.1\r\n${headers}\r\n`);
        assert.equal((await raw.head()).status, status, line);
        raw.destroy();
    }
});
