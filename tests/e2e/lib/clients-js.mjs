// SPDX-License-Identifier: Apache-2.0
// clients/js as its users get it: packed, and installed from the package.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";

export const SOURCE = fileURLToPath(new URL("../../../clients/js", import.meta.url));
const run = promisify(execFile);
const QUIET = ["--no-audit", "--no-fund", "--offline", "--ignore-scripts"];

/**
 * { folder, files, tidemark }: where it is installed, what the package holds, and what it exports.
 * To be called once by a file of tests, outside of them.
 */
export async function installClient() {
    const folder = await mkdtemp(join(tmpdir(), "tidemark-e2e-"));
    after(() => rm(folder, { recursive: true, force: true }));
    const pack = ["pack", "--json", "--pack-destination", folder];
    const [packed] = JSON.parse((await run("npm", pack, { cwd: SOURCE })).stdout);
    assert.ok(packed.filename, "npm pack has packed something");
    await writeFile(join(folder, "package.json"), '{"type":"module"}');
    await run("npm", ["install", ...QUIET, `./${packed.filename}`], { cwd: folder });
    const installed = join(folder, "node_modules", "tidemark");
    const tidemark = await import(pathToFileURL(join(installed, "src", "index.js")));
    return { folder, installed, tidemark, files: packed.files.map(({ path }) => path).sort() };
}
