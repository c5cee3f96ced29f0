// SPDX-License-Identifier: Apache-2.0
// Servers that serve sessions.
import { createHash } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { freePort, startServer } from "./server.mjs";
import { Site } from "./site.mjs";
import { tempFolder } from "./temp.mjs";

function section(head, settings) {
    const lines = Object.entries(settings).map(([key, value]) => `${key} = ${value}\n`);
    return `[${head}]\n${lines.join("")}\n`;
}

/**
 * The flags of a server with such a configuration.
 *   session   settings of the section [session]; null: no such section
 *   callers   name -> { token, capabilities }
 */
export async function configure(t, { session = { handler: "echo" }, callers = {} }) {
    const file = join(await tempFolder(t), "tidemark.ini");
    let text = session ? section("session", session) : "";
    for (const [name, { token, ...settings }] of Object.entries(callers)) {
        const digest = createHash("sha256").update(token).digest("hex");
        text += section(`caller ${name}`, { "token-sha256": digest, ...settings });
    }
    await writeFile(file, text);
    return ["--config", file];
}

/** A server with its store in memory. tls: a certificate of tls.mjs. */
export async function startSessions(t, { tls, flags = [], ...options } = {}) {
    return startServer(t, [...(await configure(t, options)), ...flags], { tls });
}

/** One on disk that can be ended and comes back at the same address: a Site. */
export async function startSessionSite(t, { flags = [], ...options } = {}) {
    const all = [...(await configure(t, options)), ...flags];
    const site = new Site(t, await tempFolder(t), await freePort(), all);
    await site.start();
    return site;
}
