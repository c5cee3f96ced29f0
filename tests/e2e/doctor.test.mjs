// SPDX-License-Identifier: Apache-2.0
// `tidemark doctor` on the data of a real server: after a kill, and after accidents with its files.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { tidemark } from "./lib/run.mjs";
import { startSite } from "./lib/site.mjs";
import { tempFolder } from "./lib/temp.mjs";

const TEXT_TYPE = "text/plain";
const NAMES = ["chats/1", "chats/2", "tools/büro", "empty"];

const doctor = (t, site, ...flags) => tidemark(t, ["doctor", site.data, ...flags]);

async function consult(t, site, code, ...flags) {
    const result = await doctor(t, site, ...flags);
    assert.equal(result.code, code, `doctor ${flags}: ${result.stdout}${result.stderr}`);
    return result.stdout;
}

async function append(site, round) {
    for (const name of NAMES.filter((name) => name !== "empty"))
        for (let n = 0; n < 5; n++)
            await site.server.append(name, `<${name} ${round}.${n}>`, TEXT_TYPE);
}

async function readAll(site) {
    const contents = {};
    for (const name of NAMES) contents[name] = await site.server.readAll(name);
    return contents;
}

/** A site whose events are partly at rest and partly in the journal; killed. What it had. */
async function killedSite(t) {
    const site = await startSite(t);
    for (const name of NAMES) await site.server.create(name, TEXT_TYPE);
    await append(site, "rested");
    await site.restart("SIGKILL"); // what the journal has comes to rest
    await append(site, "late");
    const contents = await readAll(site);
    await site.kill();
    return { site, contents };
}

async function assertThere(site, contents) {
    await site.start();
    assert.deepEqual(await readAll(site), contents);
}

/** Changes one bit of this text in the files of a folder that have it; how many have. */
async function damageText(folder, text) {
    let found = 0;
    for (const name of await readdir(folder)) {
        const path = join(folder, name);
        const bytes = await readFile(path);
        const at = bytes.indexOf(text);
        if (at < 0) continue;
        bytes[at + 1] ^= 4;
        await writeFile(path, bytes);
        found++;
    }
    return found;
}

test("it finds nothing in what a killed server left, and changes nothing", async (t) => {
    const { site, contents } = await killedSite(t);
    const stdout = await consult(t, site, 0);
    assert.match(stdout, /^4 streams with 15 events at rest, \d+ batches in the journal; /m);
    assert.match(stdout, /^All is well\.$/m);
    assert.doesNotMatch(stdout, /WRONG|repaired/);
    assert.match(await consult(t, site, 0, "--repair"), /^All is well\.$/m);
    await assertThere(site, contents);
});

test("it keeps out of a directory that is in use, or no data directory", async (t) => {
    const site = await startSite(t);
    const refused = await doctor(t, site, "--repair");
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /used by another server/);
    assert.ok(refused.stderr.includes(String(site.server.pid)), "which one");

    const folder = await tempFolder(t);
    for (const [args, reason] of [
        [[join(folder, "typo")], /No such file/],
        [[folder], /no data directory/],
        [[], /an argument is missing/],
        [[folder, folder], /too many arguments/],
        [[folder, "--repiar"], /did you mean --repair/],
    ]) {
        const wrong = await tidemark(t, ["doctor", ...args]);
        assert.equal(wrong.code, 2, wrong.stderr);
        assert.match(wrong.stderr, reason);
    }
    assert.deepEqual(await readdir(folder), [], "nothing is made there");
    const help = await tidemark(t, ["help", "doctor"]);
    assert.equal(help.code, 0);
    assert.match(help.stdout, /--\[no-\]repair/);
});

test("an index that is deleted comes back with the next start", async (t) => {
    const { site, contents } = await killedSite(t);
    await rm(join(site.data, "index.mdb"));
    await rm(join(site.data, "index.mdb-lock"), { force: true });
    assert.match(await consult(t, site, 1), /WRONG: the index \(index\.mdb\) is missing/);
    assert.equal(existsSync(join(site.data, "index.mdb")), false, "only a repair writes");
    await assertThere(site, contents);
    await site.stop();
    await consult(t, site, 0);
});

test("an index that is damaged is repaired without a loss", async (t) => {
    const { site, contents } = await killedSite(t);
    const path = join(site.data, "index.mdb");
    const bytes = await readFile(path);
    for (let at = 8192; at < bytes.length; at += 97) bytes[at] ^= 0x20;
    await writeFile(path, bytes);
    assert.match(await consult(t, site, 1), /WRONG: the index/);
    const stdout = await consult(t, site, 0, "--repair");
    assert.match(stdout, /^repaired: the index has been made again .* with 4 streams\.$/m);
    assert.match(stdout, /all is well now\.$/m);
    assert.deepEqual(await readFile(`${path}.damaged`), bytes, "as it was");
    assert.match(await consult(t, site, 0), /^note: index\.mdb\.damaged was set aside/m);
    await assertThere(site, contents);
});

test("a damaged block is named, and everything else can be read", async (t) => {
    const { site, contents } = await killedSite(t);
    const victim = "tools/büro";
    assert.equal(await damageText(join(site.data, "segments"), `<${victim} rested.2>`), 1);
    const named = new RegExp(`^WRONG: stream ${victim}: its events from offset \\d+_0+ up to `, "m");
    assert.match(await consult(t, site, 1), named);
    assert.match(await consult(t, site, 1, "--repair"), named);
    await site.start();
    for (const name of NAMES.filter((other) => other !== victim))
        assert.equal(await site.server.readAll(name), contents[name]);
    const broken = await site.server.stream("GET", `${victim}?offset=-1`);
    assert.equal(broken.status, 500);
    assert.ok(broken.json().error.message.includes(victim), broken.text);
    const { headers } = await site.server.append(victim, "<more>", TEXT_TYPE);
    assert.match(headers["stream-next-offset"], /^\d{16}_\d{16}$/);
    await site.stop();
    assert.match(await consult(t, site, 1), named);
});

test("of a journal that is damaged in the middle all before that is kept", async (t) => {
    const { site, contents } = await killedSite(t);
    const folder = join(site.data, "journal");
    assert.equal(await damageText(folder, "<chats/2 late.3>"), 1);
    const start = await tidemark(t, ["serve", "--listen", "127.0.0.1:0", "--store", "embedded", "--data", site.data]);
    assert.notEqual(start.code, 0, "a server does not go on as if nothing were");
    assert.match(await consult(t, site, 1), /WRONG: the journal is damaged: journal\/\d+\.j: batch/);
    const stdout = await consult(t, site, 0, "--repair");
    assert.match(stdout, /^repaired: \d+ batches of the journal are kept, in .* acknowledged/m);
    assert.ok((await readdir(folder)).some((name) => name.endsWith(".j.damaged")));
    await consult(t, site, 0);
    await site.start();
    const cut = (name, at) => contents[name].slice(0, contents[name].indexOf(at));
    assert.deepEqual(await readAll(site), {
        "chats/1": contents["chats/1"],
        "chats/2": cut("chats/2", "<chats/2 late.3>"),
        "tools/büro": cut("tools/büro", "<tools/büro late.0>"),
        empty: "",
    });
    await site.server.append("chats/2", "<again>", TEXT_TYPE);
    await site.stop();
    await consult(t, site, 0);
});

test("a directory without anything in it but names is sound enough to say so", async (t) => {
    const data = await tempFolder(t);
    await mkdir(join(data, "journal"));
    const result = await tidemark(t, ["doctor", data]);
    assert.equal(result.code, 1);
    assert.match(result.stdout, /index\.mdb\) is missing/);
    assert.equal((await tidemark(t, ["doctor", data, "--repair"])).code, 0);
    assert.equal((await tidemark(t, ["doctor", data])).code, 0);
});
