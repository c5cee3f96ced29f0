// SPDX-License-Identifier: Apache-2.0
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defer } from "./defer.mjs";

/** An empty folder that the test `t` removes. Its path is short enough for a socket in it. */
export async function tempFolder(t) {
    const folder = await mkdtemp(join(tmpdir(), "tidemark-e2e-"));
    defer(t, () => rm(folder, { recursive: true, force: true }));
    return folder;
}
