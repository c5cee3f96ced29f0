// SPDX-License-Identifier: Apache-2.0
// The page /lab in a browser: a Lab of its own for each test, and pages that must not complain.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { delimiter, join } from "node:path";
import { chromium } from "playwright-core";
import { defer } from "./defer.mjs";
import { assertNoReport, binary, freePort, sanitizerEnv } from "./server.mjs";
import { tempFolder } from "./temp.mjs";
import { until, within } from "./wait.mjs";

const BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/** The path of a browser, or undefined if there is none. */
export function findBrowser() {
    const folders = (process.env.PATH ?? "").split(delimiter);
    const paths = BROWSERS.flatMap((name) => folders.map((folder) => join(folder, name)));
    return paths.find((path) => {
        try {
            accessSync(path, constants.X_OK);
            return true;
        } catch {
            return false;
        }
    });
}

// Newer browsers ask their user before a public page may reach this machine; others do not.
const ASKS = "LocalNetworkAccessChecks,PrivateNetworkAccessSendPreflights";

export function launch(more = []) {
    // The pages are ours, and root, which many containers run as, gets no sandbox.
    const args = ["--no-sandbox", "--disable-dev-shm-usage", `--disable-features=${ASKS}`, ...more];
    return chromium.launch({ executablePath: findBrowser(), args });
}

/** `tidemark lab` in a folder of its own, which can be killed and started again. */
export class Lab {
    stderr = "";

    static async start(t) {
        const lab = new Lab();
        lab.folder = await tempFolder(t);
        lab.port = await freePort();
        lab.base = `http://127.0.0.1:${lab.port}`;
        lab.store = join(lab.folder, "feedback", "feedback.jsonl");
        defer(t, () => lab.end("SIGTERM"));
        await lab.spawn();
        return lab;
    }

    async spawn(flags = []) {
        const env = {
            ...sanitizerEnv(),
            CM_LAB_ROOT: join(this.folder, "lab"),
            CM_FEEDBACK_STORE_PATH: this.store,
        };
        const args = ["lab", "--port", String(this.port), ...flags];
        const stdio = ["ignore", "ignore", "pipe"];
        this.child = spawn(binary(), args, { stdio, env, cwd: this.folder });
        this.child.stderr.setEncoding("utf8").on("data", (text) => (this.stderr += text));
        this.ended = once(this.child, "close");
        await until(() => this.#accepts(), "the Lab to accept connections");
    }

    #accepts() {
        assert.equal(this.child.exitCode, null, `the Lab ended at once: ${this.stderr}`);
        return new Promise((resolve) => {
            const socket = connect(this.port, "127.0.0.1");
            socket.once("error", () => resolve(false));
            socket.once("connect", () => {
                socket.destroy();
                resolve(true);
            });
        });
    }

    async end(signal) {
        if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill(signal);
        const [code] = await within(this.ended, `the Lab to end by ${signal}`);
        assertNoReport(this.stderr);
        if (signal === "SIGTERM") assert.equal(code, 0, `exit code\n${this.stderr}`);
    }

    kill() {
        return this.end("SIGKILL");
    }

    /** A folder as a program that makes films leaves it; returns its path. */
    async addRun(name, topic, clip) {
        const folder = join(this.folder, name);
        await mkdir(folder);
        await writeFile(join(folder, "video.mp4"), clip);
        await writeFile(join(folder, "script.json"), JSON.stringify({ meta: { topic } }));
        await writeFile(join(folder, "sync-report.json"), JSON.stringify({ rating: 88 }));
        return folder;
    }

    async #call(path, options) {
        const answer = await fetch(this.base + path, options);
        assert.equal(answer.status, 200, `${path}: ${await answer.clone().text()}`);
        return answer.json();
    }

    config() {
        return this.#call("/api/config");
    }

    /** As an agent would do it, without the page. */
    async post(path, body) {
        const { token } = await this.config();
        const headers = { "x-cm-lab-token": token, "content-type": "application/json" };
        return this.#call(path, { method: "POST", headers, body: JSON.stringify(body) });
    }

    async importRun(name, topic, clip) {
        const path = await this.addRun(name, topic, clip);
        return (await this.post("/api/runs/import", { path })).runId;
    }

    /** What agents are told. */
    async entries() {
        return (await this.#call("/api/feedback")).items;
    }

    /** The lines of the file itself. */
    async lines() {
        const text = await readFile(this.store, "utf8").catch(() => "");
        return text.split("\n").filter(Boolean).map(JSON.parse);
    }
}

// What a browser says of its own accord about requests that failed.
const FAILED_REQUEST = /^Failed to load resource:/;

/**
 * A page that must not complain, nor ask anyone but the Lab. `posts` are its requests to store
 * something. `failing`: requests will fail in this test, which the browser may say.
 */
export async function openPage(t, browser, lab, { at = "/lab", failing, ...options } = {}) {
    const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
    const page = await context.newPage();
    const complaints = [];
    const urls = [];
    page.posts = [];
    page.setDefaultTimeout(30_000);
    page.on("request", (request) => {
        urls.push(request.url());
        if (request.method() === "POST") page.posts.push(request);
    });
    page.on("pageerror", (error) => complaints.push(error.stack));
    page.on("console", (message) => {
        const expected = failing && FAILED_REQUEST.test(message.text());
        if (["error", "warning"].includes(message.type()) && !expected)
            complaints.push(`${message.text()} (${message.location().url})`);
    });
    page.on("dialog", (dialog) => dialog.accept()); // it asks before it is left with work undone
    defer(t, async () => {
        await context.close();
        assert.deepEqual(complaints, [], "the page complained");
        const foreign = urls.filter((url) => !url.startsWith(`${lab.base}/`));
        assert.deepEqual(foreign, [], "the page asked someone else");
        assert.ok(urls.length > 2, "the page asked nobody");
    });
    await page.goto(lab.base + at);
    return page;
}
