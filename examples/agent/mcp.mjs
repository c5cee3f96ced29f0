// SPDX-License-Identifier: Apache-2.0
// As much of an MCP client as the example needs: a program that is started, and a line of JSON a
// message. Any MCP library will do instead; none is needed to see how pages work.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

export class Mcp {
    #child;
    #last = 0;
    #waiting = new Map();

    constructor(command, args, options) {
        this.#child = spawn(command, args, { ...options, stdio: ["pipe", "pipe", "inherit"] });
        this.#child.on("error", (error) => this.#fail(error));
        this.#child.on("close", (code) => this.#fail(new Error(`${command} ended with ${code}`)));
        this.#child.stdin.on("error", () => {}); // `close` tells
        createInterface({ input: this.#child.stdout }).on("line", (line) => this.#take(line));
    }

    #take(line) {
        const { id, result, error } = JSON.parse(line);
        const [resolve, reject] = this.#waiting.get(id) ?? [];
        this.#waiting.delete(id);
        if (error) reject?.(new Error(error.message));
        else resolve?.(result);
    }

    #fail(error) {
        for (const [, reject] of this.#waiting.values()) reject(error);
        this.#waiting.clear();
    }

    #send(message) {
        this.#child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
    }

    request(method, params) {
        const id = ++this.#last;
        return new Promise((resolve, reject) => {
            this.#waiting.set(id, [resolve, reject]);
            this.#send({ id, method, params });
        });
    }

    async initialize() {
        const clientInfo = { name: "tidemark-example-agent", version: "1.0.0" };
        const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo };
        await this.request("initialize", params);
        this.#send({ method: "notifications/initialized" });
    }

    async tools() {
        return (await this.request("tools/list", {})).tools;
    }

    call(name, args) {
        return this.request("tools/call", { name, arguments: args });
    }

    close() {
        this.#child.stdin.end();
    }
}
