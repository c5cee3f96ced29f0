// SPDX-License-Identifier: Apache-2.0
// clients/js in Chromium: the package's own files, without a bundler, and SDKs bundled with it. The
// page is of another origin than the server.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { wholeText } from "./lib/backend-plan.mjs";
import { installClient } from "./lib/clients-js.mjs";
import { startFaults } from "./lib/faults.mjs";
import { startGateway } from "./lib/gateway.mjs";
import { findBrowser, launch } from "./lib/lab-page.mjs";
import { startSdkBackend, WORDS } from "./lib/sdk-backend.mjs";
import { CALLS } from "./lib/sdk-calls.mjs";
import { startServer } from "./lib/server.mjs";
import { startSessions } from "./lib/session-server.mjs";
import { until, within } from "./lib/wait.mjs";

const skip = findBrowser()
    ? false
    : "there is no Chromium here: `scripts/deps browser` installs it";
const { installed } = await installClient();
const HERE = fileURLToPath(new URL(".", import.meta.url));

// ---- pages ----

let browser, site;

async function bundleOf() {
    const contents = `export { CALLS } from "./lib/sdk-calls.mjs";`;
    const { outputFiles } = await build({
        stdin: { contents, resolveDir: HERE },
        bundle: true,
        format: "esm",
        platform: "browser",
        write: false,
        logLevel: "error",
    });
    return outputFiles[0].contents;
}

/** Serves an empty page, the package's files, and the SDKs. */
async function serve() {
    const sdks = await bundleOf();
    const server = createServer(async ({ url }, response) => {
        if (url === "/") return response.setHeader("content-type", "text/html").end("<p>page");
        response.setHeader("content-type", "text/javascript");
        if (url === "/sdks.js") return response.end(sdks);
        const file = await readFile(join(installed, "src", basename(url))).catch(() => null);
        response.writeHead(file ? 200 : 404).end(file);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return { base: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

before(async () => {
    if (!skip) [browser, site] = await Promise.all([launch(), serve()]);
});
after(async () => {
    await browser?.close();
    site?.close();
});

/** A page with `tidemark` and `sdks` in it. */
async function openPage(t, context) {
    const own = context ?? (await browser.newContext());
    if (!context) t.after(() => own.close());
    const page = await own.newPage();
    await page.goto(site.base);
    await load(page);
    return page;
}

const load = (page) =>
    page.evaluate(async () => {
        globalThis.tidemark = await import("/tidemark/index.js");
    });

const evaluate = (page, act, value) => within(page.evaluate(act, value), "the page");

// Never within a head: Chromium takes half of one for all of it.
const trouble = (n) => {
    const kind = ["reset", "truncate", "cut"][n % 4];
    return kind ? [{ kind, side: "answer", at: 1700 + 50 * n }] : [];
};

// ---- answers ----

const isFull = process.env.TIDEMARK_MATRIX === "full";
const SOME = ["openai chat create", "anthropic stream", "google genai", "ai useChat"];

for (const [name, { path, dialect = "openai" }] of Object.entries(CALLS))
    if (isFull || SOME.includes(name))
        test(`${name}, over connections that break`, { skip }, async (t) => {
            const backend = await startSdkBackend(t);
            const routes = { [path]: { dialect, upstream: `${backend.base}${path}` } };
            const gateway = await startGateway(t, { routes });
            const proxy = await startFaults(t, gateway.server.where, trouble);
            const page = await openPage(t);
            const { text } = await evaluate(
                page,
                async ([call, base]) => {
                    const { CALLS } = await import("/sdks.js");
                    return CALLS[call].run(base, globalThis.tidemark.resumableFetch());
                },
                [name, proxy.base],
            );
            assert.equal(text, WORDS.join(""));
            assert.equal(backend.asked, 1);
            assert.ok(proxy.connections > 2, "it was cut");
        });

const PATH = "/api/chat";

test("an abort stops the backend; a page that is closed does not", { skip }, async (t) => {
    const gateway = await startGateway(t, { routes: { [PATH]: { dialect: "ui-message" } } });
    const ask = async (page, plan) => {
        await evaluate(
            page,
            async ([url, body]) => {
                globalThis.abort = new AbortController();
                const init = { method: "POST", body, signal: globalThis.abort.signal };
                const response = await globalThis.tidemark.resumableFetch()(url, init);
                await response.body.getReader().read();
            },
            [`${gateway.base}${PATH}`, JSON.stringify({ id: plan.name, plan })],
        );
    };
    const page = await openPage(t);
    const plan = (name) => ({ name, dialect: "ui-message", tokens: 9, gates: [4] });
    await ask(page, plan("closed"));
    await page.reload();
    await load(page);
    await ask(page, plan("aborted"));
    await evaluate(page, () => globalThis.abort.abort());
    const isClosed = async (name) => (await gateway.backend.seen(name))[0].closed;
    await until(() => isClosed("aborted"), "the backend's connection to be closed");
    assert.equal(await isClosed("closed"), false);
});

test("offline is no failure: it goes on when the network is back", { skip }, async (t) => {
    const gateway = await startGateway(t, { routes: { [PATH]: { dialect: "ui-message" } } });
    const context = await browser.newContext();
    t.after(() => context.close());
    const page = await openPage(t, context);
    const plan = { name: "offline", dialect: "ui-message", tokens: 60, gates: [20] };
    await evaluate(
        page,
        async ([url, body]) => {
            const ask = globalThis.tidemark.resumableFetch({ resumes: 1 });
            const response = await ask(url, { method: "POST", body });
            globalThis.text = response.text();
        },
        [`${gateway.base}${PATH}`, JSON.stringify({ id: "c", plan })],
    );
    await context.setOffline(true); // which also cuts what is under way
    await until(() => page.evaluate(() => navigator.onLine === false), "the page to notice");
    await gateway.backend.go("offline");
    await gateway.idle();
    await context.setOffline(false);
    const text = await evaluate(page, () => globalThis.text);
    const parts = [...text.matchAll(/"delta":"([^"]*)"/g)].map(([, delta]) => delta);
    assert.equal(parts.join(""), wholeText(plan));
});

// ---- streams ----

test("a stream is followed over connections that break", { skip }, async (t) => {
    const server = await startServer(t, ["--store", "memory"]);
    const proxy = await startFaults(t, server.where, trouble);
    const headers = { "Content-Type": "application/json" };
    await fetch(server.url("s"), { method: "PUT", headers });
    const page = await openPage(t);
    const following = evaluate(
        page,
        async (url) => {
            const all = [];
            for await (const { data } of globalThis.tidemark.follow(url)) all.push(...data);
            return all;
        },
        `${proxy.base}/v1/stream/s`,
    );
    for (let n = 0; n < 100; n++)
        await fetch(server.url("s"), { method: "POST", headers, body: String(n) });
    const end = { ...headers, "Stream-Closed": "true" };
    await fetch(server.url("s"), { method: "POST", headers: end, body: "100" });
    assert.deepEqual(
        await following,
        Array.from({ length: 101 }, (_, n) => n),
    );
});

// ---- sessions ----

test("a session survives its page, and belongs to one page at a time", { skip }, async (t) => {
    const server = await startSessions(t);
    const proxy = await startFaults(t, server.where, (n) => trouble(n + 1));
    const context = await browser.newContext();
    t.after(() => context.close());
    const page = await openPage(t, context);
    const options = { url: proxy.base, state: "chats", reconnectMs: 20 };
    await evaluate(
        page,
        async (given) => {
            const stream = await globalThis.tidemark.startReliableStream({ ...given, key: "k" });
            for (let n = 0; n < 20; n++) await stream.send(`line ${n}`);
            for await (const { id } of stream) if (id === "5") break;
            for (let n = 20; n < 30; n++) stream.send(`line ${n}`).catch(() => {});
        },
        options,
    );
    const other = await openPage(t, context);
    const resume = (given) =>
        globalThis.tidemark.resumeReliableStreams(given).then((all) => all.length);
    assert.equal(await evaluate(other, resume, options), 0, "the first page has it");
    await page.close();
    const texts = await until(
        () =>
            evaluate(
                other,
                async (given) => {
                    const [stream] = await globalThis.tidemark.resumeReliableStreams(given);
                    if (!stream) return undefined;
                    stream.close().catch(() => {});
                    const all = [];
                    for await (const event of stream) all.push(event);
                    return all.map(({ id, text, isVerified }) => [id, text, isVerified]);
                },
                options,
            ),
        "the lock to be free",
    );
    // Four events were dealt with; what was being said when the page went may be said or not.
    assert.deepEqual(texts[0], ["5", "line 4", true]);
    const expected = Array.from({ length: texts.length }, (_, n) => `line ${n + 4}`);
    assert.deepEqual(
        texts.map(([, text]) => text),
        expected,
    );
    assert.ok(texts.length >= 16 && texts.every(([, , isVerified]) => isVerified));
    assert.equal(await evaluate(other, resume, options), 0, "nothing is left");
});
