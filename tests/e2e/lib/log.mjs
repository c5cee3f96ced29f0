// SPDX-License-Identifier: Apache-2.0
// A server with one log, `[log f]`, in a folder of its own.
import assert from "node:assert/strict";
import { appendFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { openRaw } from "./raw.mjs";
import { startServer } from "./server.mjs";
import { SseReader } from "./sse.mjs";
import { tempFolder } from "./temp.mjs";

export class Log {
    constructor(t, server, file) {
        this.t = t;
        this.server = server;
        this.file = file;
    }

    /** What others do with the file. */
    put(text) {
        return appendFile(this.file, text);
    }

    /** GET; `query` as an object. */
    get(query = {}, headers = {}) {
        return this.server.request("GET", `/v1/log/f?${new URLSearchParams(query)}`, { headers });
    }

    /** The same; what it answers with 200. */
    async read(query = {}) {
        const answer = await this.get(query);
        assert.equal(answer.status, 200, answer.text);
        return answer.json();
    }

    post(body, headers = {}) {
        return this.server.request("POST", "/v1/log/f", { body, headers });
    }

    /** GET with live=sse on a socket of its own. */
    async sse(query = {}, headers = {}) {
        const raw = await openRaw(this.t, this.server);
        const more = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
        const search = new URLSearchParams({ live: "sse", ...query });
        raw.send(`GET /v1/log/f?${search} HTTP/1.1\r\nHost: localhost\r\n${more.join("")}\r\n`);
        const head = await raw.head();
        assert.ok(head, "no answer to an SSE request");
        const reader = new SseReader(raw, head);
        if (head.status !== 200) reader.text = (await raw.body(head)).toString();
        return reader;
    }
}

/** settings: further lines of the log's section. */
export async function startLog(t, { flags = [], settings = "" } = {}) {
    const folder = await tempFolder(t);
    const file = join(folder, "feedback.jsonl");
    const config = join(folder, "tidemark.conf");
    await writeFile(config, `[log f]\npath = ${file}\n${settings}\n`);
    return new Log(t, await startServer(t, ["--config", config, ...flags]), file);
}
