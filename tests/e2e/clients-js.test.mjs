// SPDX-License-Identifier: Apache-2.0
// The npm package `tidemark` (clients/js): what is in it, its own tests, its size and its types, all
// from the package as it is published.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { installClient, SOURCE } from "./lib/clients-js.mjs";

const { folder, installed, files, tidemark } = await installClient();
const HERE = fileURLToPath(new URL(".", import.meta.url));

/** What a program says: { code, output }. */
function outputOf(program, args, options) {
    return new Promise((resolve) =>
        execFile(program, args, options, (error, stdout, stderr) =>
            resolve({ code: error?.code ?? 0, output: stdout + stderr }),
        ),
    );
}

test("the package holds its sources, and nothing else", async () => {
    const sources = (await readdir(join(SOURCE, "src"))).map((name) => `src/${name}`);
    assert.deepEqual(files, ["LICENSE", "README.md", "package.json", ...sources].sort());
    const packed = JSON.parse(await readFile(join(installed, "package.json"), "utf8"));
    const version = await readFile(join(HERE, "../../VERSION"), "utf8");
    assert.equal(packed.version, version.trim());
    assert.equal(packed.dependencies, undefined);
});

test("it exports what it says", async () => {
    assert.deepEqual(Object.keys(tidemark).sort(), [
        "SessionError",
        "StreamError",
        "TidemarkChatTransport",
        "follow",
        "resumableFetch",
        "resumeReliableStreams",
        "startReliableStream",
    ]);
    const types = await readFile(join(installed, "src", "index.d.ts"), "utf8");
    for (const name of Object.keys(tidemark))
        assert.match(types, new RegExp(`export (function|class) ${name}\\b`));
});

test("its own tests pass", { timeout: 170_000 }, async () => {
    await cp(join(SOURCE, "test"), join(folder, "test"), { recursive: true });
    await symlink(join(installed, "src"), join(folder, "src")); // for tests that look inside
    const names = (await readdir(join(folder, "test"))).filter((name) => /test\.mjs$/.test(name));
    const args = ["--test", "--test-reporter=spec", ...names.map((name) => `test/${name}`)];
    const { NODE_TEST_CONTEXT, ...env } = process.env; // they are not part of this one
    const { code, output } = await outputOf(process.execPath, args, { cwd: folder, env });
    assert.equal(code, 0, output.slice(-20_000));
    assert.match(output, /pass [1-9]\d\d/);
});

/** Bytes of each entry point, alone in a bundle: minified, and as it travels. */
const LIMITS = {
    resumableFetch: { minified: 6500, gzip: 3200 },
    follow: { minified: 5000, gzip: 2500 },
    TidemarkChatTransport: { minified: 9000, gzip: 4200 },
    "startReliableStream, resumeReliableStreams": { minified: 12_000, gzip: 5500 },
};

test("each entry point stays small", async (t) => {
    for (const [names, limit] of Object.entries(LIMITS)) {
        const contents = `export { ${names} } from "tidemark";`;
        const { outputFiles } = await build({
            stdin: { contents, resolveDir: folder },
            bundle: true,
            minify: true,
            format: "esm",
            platform: "browser",
            write: false,
            logLevel: "error",
        });
        const minified = outputFiles[0].contents.length;
        const gzip = gzipSync(outputFiles[0].contents, { level: 9 }).length;
        t.diagnostic(`${names}: ${minified} bytes minified, ${gzip} compressed`);
        assert.ok(minified <= limit.minified, `${names} has ${minified} bytes`);
        assert.ok(gzip <= limit.gzip, `${names} has ${gzip} bytes compressed`);
    }
});

test("its types fit those of SDKs", async () => {
    const place = join(folder, "types");
    const config = {
        compilerOptions: {
            strict: true,
            noEmit: true,
            skipLibCheck: true,
            target: "es2022",
            module: "nodenext",
            lib: ["es2023", "dom", "dom.iterable", "dom.asynciterable"],
            types: [],
        },
    };
    await mkdir(join(place, "node_modules"), { recursive: true });
    await writeFile(join(place, "package.json"), '{"type":"module"}');
    await writeFile(join(place, "tsconfig.json"), JSON.stringify(config));
    await cp(join(SOURCE, "test", "types.ts"), join(place, "types.ts"));
    for (const module of [
        installed,
        join(HERE, "node_modules/ai"),
        join(HERE, "node_modules/openai"),
    ])
        await symlink(module, join(place, "node_modules", basename(module)));
    const tsc = join(HERE, "node_modules/typescript/bin/tsc");
    const { code, output } = await outputOf(process.execPath, [tsc], { cwd: place });
    assert.equal(code, 0, output);
});
