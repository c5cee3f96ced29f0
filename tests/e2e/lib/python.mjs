// SPDX-License-Identifier: Apache-2.0
// A Python with packages from PyPI, made once and kept in build/.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { tempFolder } from "./temp.mjs";

const run = promisify(execFile);
const digest = (text) => createHash("sha256").update(text).digest("hex").slice(0, 12);
const BUILD = join(import.meta.dirname, "../../../build");

const PACKAGES = ["openai==3.49.0", "anthropic==2.10.0", "httpx==0.28.1", "httpx2==2.16.0", "setuptools==80.9.0"];

/** { python }: its path, with PACKAGES; or { why } there is none. */
export async function findPython(t) {
    const folder = join(BUILD, `python-${digest(PACKAGES.join())}`);
    const python = join(folder, "bin/python");
    if (existsSync(python)) return { python };
    const fresh = join(await tempFolder(t), "venv");
    try {
        await run("python3", ["-m", "venv", fresh], { timeout: 60_000 });
        const args = ["-q", "install", "--retries", "0", "--timeout", "5", ...PACKAGES];
        await run(join(fresh, "bin/python"), ["-m", "pip", ...args], { timeout: 120_000 });
        await mkdir(BUILD, { recursive: true });
        await rm(folder, { recursive: true, force: true });
        await rename(fresh, folder);
    } catch (error) {
        return { why: `${PACKAGES.join(", ")} cannot be had from PyPI: ${error.message.split("\n")[0]}` };
    }
    return { python };
}

/** What a program prints. */
export async function runPython(python, args, { env = {}, timeout = 120_000 } = {}) {
    const all = { ...process.env, NO_PROXY: "127.0.0.1,localhost", ...env };
    return (await run(python, args, { timeout, env: all })).stdout;
}
