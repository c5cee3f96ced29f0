// SPDX-License-Identifier: Apache-2.0
// A Lab of its own for a test: its files in a folder that goes with the test.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Agent, request } from "undici";
import { defer } from "./defer.mjs";
import { assertNoReport, binary, sanitizerEnv } from "./server.mjs";
import { tempFolder } from "./temp.mjs";
import { until, within } from "./wait.mjs";

export const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** Where a Lab keeps its things; several Labs, one after the other or at once, may share it. */
export async function labFolder(t) {
    const top = await tempFolder(t);
    const work = join(top, "work");
    await mkdir(work);
    return {
        top,
        work, // what the Lab is started in
        root: join(top, "lab"),
        feedback: join(top, "feedback", "feedback.jsonl"),
        env() {
            return {
                ...sanitizerEnv(),
                CM_LAB_ROOT: this.root,
                CM_FEEDBACK_STORE_PATH: this.feedback,
            };
        },
        /** The feedback file as text; a missing one is empty. */
        text() {
            return readFile(this.feedback, "utf8").catch(() => "");
        },
        /** Its entries. */
        async entries() {
            const lines = (await this.text()).split("\n").slice(0, -1);
            return lines.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
        },
        /** A folder of artifacts below the work folder. */
        async artifacts(name, files = { "video.mp4": "not really a video" }) {
            const folder = join(work, name);
            await mkdir(folder, { recursive: true });
            for (const [file, content] of Object.entries(files))
                await writeFile(
                    join(folder, file),
                    typeof content === "string" ? content : JSON.stringify(content),
                );
            return folder;
        },
    };
}

class Lab {
    stdout = "";
    stderr = "";
    #agent = new Agent({ connections: 64 });

    constructor(folder, child) {
        this.folder = folder;
        this.child = child;
        this.ended = once(child, "close").then(([code, signal]) => ({ code, signal }));
        child.stdout.setEncoding("utf8").on("data", (text) => (this.stdout += text));
        child.stderr.setEncoding("utf8").on("data", (text) => (this.stderr += text));
    }

    get running() {
        return this.child.exitCode === null && this.child.signalCode === null;
    }

    async ready() {
        const found = await until(() => {
            assert.ok(this.running, `the Lab ended: ${this.stdout}${this.stderr}`);
            return /http:\/\/([^/]+):(\d+)\/lab/.exec(this.stdout);
        }, "the Lab's address");
        this.where = { host: found[1], port: Number(found[2]) };
        this.base = `http://${found[1]}:${found[2]}`;
        this.config = (await this.get("/api/config")).json();
    }

    /** { status, headers, text, bytes, json() } */
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

    get(path, headers) {
        return this.request("GET", path, { headers });
    }

    /** With the token; an object is sent as JSON. */
    post(path, body = {}, headers = {}) {
        return this.request("POST", path, {
            headers: { "x-cm-lab-token": this.config.token, ...headers },
            body: typeof body === "string" ? body : JSON.stringify(body),
        });
    }

    async submit(body, requestId) {
        const answer = await this.post(
            "/api/feedback",
            body,
            requestId ? { "x-cm-lab-request-id": requestId } : {},
        );
        assert.equal(answer.status, 200, answer.text);
        return answer.json().feedbackId;
    }

    async import(path) {
        const answer = await this.post("/api/runs/import", { path });
        assert.equal(answer.status, 200, answer.text);
        return answer.json().runId;
    }

    async poll(query = "") {
        const answer = await this.get(`/api/feedback${query}`);
        assert.equal(answer.status, 200, answer.text);
        return answer.json();
    }

    async kill() {
        await this.#agent.destroy();
        if (this.running) this.child.kill("SIGKILL");
        await this.ended;
    }

    async stop() {
        await this.#agent.destroy();
        if (this.running) this.child.kill("SIGTERM");
        const { code, signal } = await within(this.ended, "the Lab to end");
        assertNoReport(this.stderr);
        if (signal !== "SIGKILL") assert.deepEqual({ code, signal }, { code: 0, signal: null });
    }
}

export async function startLab(t, { folder, args = ["--port", "0"] } = {}) {
    folder ??= await labFolder(t);
    const child = spawn(binary(), ["lab", ...args], { cwd: folder.work, env: folder.env() });
    const lab = new Lab(folder, child);
    defer(t, () => lab.stop());
    await lab.ready();
    return lab;
}

export function assertProblem(answer, status, code, message) {
    assert.equal(answer.status, status, answer.text);
    const { error } = answer.json();
    assert.equal(error.code, code);
    if (message) assert.match(error.message, message);
    return error;
}
