// SPDX-License-Identifier: Apache-2.0
// What the documents name is there: files and headings behind links, settings, metrics, and traces.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { binary, startServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const FOLDERS = ["docs", "examples", "bench"];

async function documents() {
    const found = (await readdir(ROOT)).filter((name) => name.endsWith(".md"));
    for (const folder of FOLDERS)
        for (const name of await readdir(join(ROOT, folder), { recursive: true }))
            if (name.endsWith(".md") && !name.includes("node_modules"))
                found.push(join(folder, name));
    return found.map((name) => join(ROOT, name));
}

const withoutExamples = (text) => text.replace(/^ *(```|~~~)[^]*?^ *\1 *$/gm, "");

/** What the heading `text` is called in a link, as GitHub and others make it. */
function anchorOf(text) {
    const words = text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").trim().toLowerCase();
    return words.replace(/[^\p{L}\p{N}\p{M}_ -]/gu, "").replace(/ /g, "-");
}

function anchorsOf(text) {
    const seen = new Map();
    const anchors = new Set();
    for (const [, heading] of withoutExamples(text).matchAll(/^#{1,6} +(.*?)(?: +#+)?$/gm)) {
        const anchor = anchorOf(heading);
        const before = seen.get(anchor) ?? 0;
        seen.set(anchor, before + 1);
        anchors.add(before ? `${anchor}-${before}` : anchor);
    }
    return anchors;
}

function linksOf(text) {
    const plain = withoutExamples(text).replace(/(`+)[^]*?[^`]\1(?!`)/g, "");
    const links = [...plain.matchAll(/\]\(<?([^)\s>]+)>?(?: +"[^"]*")?\)/g)].map(([, link]) => link);
    return links.filter((link) => !/^[a-z][a-z0-9+.-]*:/i.test(link));
}

test("headings become anchors", () => {
    const text = "# `[route PATH]`\n## Read: GET\n```\n# no heading\n```\n## Read: GET\n## Cursor's é";
    assert.deepEqual([...anchorsOf(text)], ["route-path", "read-get", "read-get-1", "cursors-é"]);
    assert.deepEqual(linksOf("[`a](b)`](c.md#d) `[e](f)` [g](https://h) ![i](j.png)"), [
        "c.md#d",
        "j.png",
    ]);
});

test("links lead somewhere", async () => {
    const texts = new Map();
    const read = async (file) => {
        if (!texts.has(file)) texts.set(file, await readFile(file, "utf8"));
        return texts.get(file);
    };
    const broken = [];
    let links = 0;
    for (const file of await documents())
        for (const link of linksOf(await read(file))) {
            const [path, anchor] = link.split("#").map(decodeURIComponent);
            const target = path ? resolve(dirname(file), path) : file;
            links++;
            if (!existsSync(target)) broken.push(`${relative(ROOT, file)}: ${link}: no such file`);
            else if (anchor && target.endsWith(".md") && !anchorsOf(await read(target)).has(anchor))
                broken.push(`${relative(ROOT, file)}: ${link}: no such heading`);
        }
    assert.ok(links > 100, "there are links");
    assert.deepEqual(broken, []);
});

test("the manual page has every flag of serve, in the words of --help", async () => {
    const help = execFileSync(binary(), ["serve", "--help"], { encoding: "utf8" });
    const flags = [...help.matchAll(/^ {2}(--\S+).*\n((?: {6}.*\n)+)/gm)];
    assert.ok(flags.length > 30, "there are flags");
    const page = await readFile(join(ROOT, "man/tidemark.1"), "utf8");
    const plain = page.replaceAll("\\-", "-");
    const headings = new Set([...plain.matchAll(/^\.BI? (--\S+)/gm)].map(([, flag]) => flag));
    const words = plain.replace(/\s+/g, " ");
    for (const [, flag, said] of flags) {
        assert.ok(headings.has(flag), `${flag} is not in man/tidemark.1`);
        const text = said.trim().replace(/\s+/g, " ");
        const sentence = text.replace(/ ?\(default: (.*)\)$/, (_, value) => ` The default is ${value}.`);
        assert.ok(words.includes(sentence.trim()), `${flag}: ${sentence}`);
    }
});

test("the documents name every metric, and no others", async (t) => {
    const folder = await tempFolder(t);
    const settings = join(folder, "tidemark.ini");
    await writeFile(settings, `[log a]\npath = ${join(folder, "a.jsonl")}\n`);
    const flags = ["--config", settings, "--route", "/draft=http://127.0.0.1:9/", "--address-rate", "1000"];
    const server = await startServer(t, flags, { data: join(folder, "data") });
    await server.request("POST", "/draft"); // fails, and is the first of its kind to be counted
    const { text } = await server.request("GET", "/metrics");
    const there = new Set([...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name));
    const named = new Set();
    for (const file of await documents()) {
        const document = await readFile(file, "utf8");
        for (const [name] of document.matchAll(/\b(?:tidemark|assist_sse)_[a-z_]+[a-z]\b/g))
            named.add(name);
        for (const [, event] of document.matchAll(/`assist\.sse\.(\w+)`/g))
            named.add(`assist_sse_${event}_total`);
    }
    assert.deepEqual([...there].filter((name) => !named.has(name)), [], "not in the documents");
    assert.deepEqual([...named].filter((name) => !there.has(name)), [], "not in /metrics");
});

/** The rows of all tables of traces: kind, level, sentence. */
function tracesIn(source) {
    const rows = source.replaceAll("\\\n", "").matchAll(/\bX\((\w+), TRACE_(\w+),\s*((?:"[^"]*"\s*)+)\)/g);
    return [...rows].map(([, name, level, texts]) => {
        const sentence = texts.replace(/"\s*"/g, "").trim().slice(1, -1).replaceAll("{}", "…");
        return { name, row: `| \`${name.toLowerCase()}\` | ${level.toLowerCase()} | ${sentence} |` };
    });
}

test("the documents name every trace in its words, and no others; each is written somewhere", async () => {
    const names = await readdir(join(ROOT, "src"), { recursive: true });
    const read = (name) => readFile(join(ROOT, "src", name), "utf8");
    const tables = await Promise.all(names.filter((name) => /(^|_|\/)trace\.h$/.test(name)).map(read));
    const code = await Promise.all(names.filter((name) => name.endsWith(".c")).map(read));
    const traces = tables.flatMap(tracesIn);
    assert.ok(tables.length > 5 && traces.length > 40, "there are tables");
    const text = code.join("\n");
    const written = (name) => new RegExp(`\\btrace\\([^;]*?,\\s*${name}\\b|&TRACE_KIND_${name}\\b`);
    const unused = traces.filter(({ name }) => !written(name).test(text));
    assert.deepEqual(unused, [], "never written");
    const page = await readFile(join(ROOT, "docs/operations.md"), "utf8");
    const documented = page.match(/^\| `\w+` \| (error|warn|info|debug) \| .* \|$/gm);
    const rows = traces.map(({ row }) => row);
    assert.deepEqual(rows.filter((row) => !documented.includes(row)), [], "not in docs/operations.md");
    assert.deepEqual(documented.filter((row) => !rows.includes(row)), [], "not in a table");
});
