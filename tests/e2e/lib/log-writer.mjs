// SPDX-License-Identifier: Apache-2.0
// A program that appends entries to a log until it has no more, or is killed.
//   node log-writer.mjs TARGET NAME COUNT SEED
// TARGET: a file, which it appends to as any program would, with O_APPEND and without a lock; or
// the URL of a log. Prints the id of each entry once it is written. One that writes to a file may also
// die in the middle of a line.
import { openSync, writeSync } from "node:fs";

const [target, name, count, seed] = process.argv.slice(2);
let state = Number(seed) >>> 0;
const below = (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
};

function entry(i) {
    // Some lie across pages, which is where a write could be seen in parts.
    const pad = "x".repeat(below(20) === 0 ? 4000 + below(8000) : below(60));
    return { id: `${name}.${i}`, who: name.split(".")[0], parity: i % 2, even: i % 2 === 0, pad };
}

const acknowledge = (entries) =>
    process.stdout.write(entries.map(({ id }) => `${id}\n`).join(""));

function writeFile() {
    const fd = openSync(target, "a");
    for (let i = 0; i < Number(count); i++) {
        if (below(60) === 0) {
            writeSync(fd, `{"torn":"${name}","pad":"xxx`);
            process.kill(process.pid, "SIGKILL");
        }
        const one = entry(i);
        writeSync(fd, `${JSON.stringify(one)}\n`);
        acknowledge([one]);
    }
}

async function post() {
    for (let i = 0; i < Number(count);) {
        const n = Math.min(1 + below(12), Number(count) - i);
        const entries = Array.from({ length: n }, (_, k) => entry(i + k));
        const body = JSON.stringify(n === 1 ? entries[0] : entries);
        const answer = await fetch(target, { method: "POST", body });
        if (answer.status !== 200) throw new Error(`${answer.status} ${await answer.text()}`);
        await answer.arrayBuffer();
        acknowledge(entries);
        i += n;
    }
}

if (target.startsWith("http:")) await post();
else writeFile();
