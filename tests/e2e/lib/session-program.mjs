// SPDX-License-Identifier: Apache-2.0
// A program that talks in a session and may be killed: `node session-program.mjs MODULE URL STATE
// LINES TRANSCRIPT`. It says what it has not said yet, and writes down each answer before it asks
// for the next. It ends with the session.
import { appendFileSync, existsSync, readFileSync } from "node:fs";

const [module, url, state, count, transcript] = process.argv.slice(2);
const { startReliableStream } = await import(module);

const stream = await startReliableStream({ url, state, key: "talk", reconnectMs: 50 });
const said = `${transcript}.said`;
const before = existsSync(said) ? readFileSync(said, "utf8").split("\n").length - 1 : 0;

async function speak() {
    for (let n = before; n < Number(count); n++) {
        await stream.send(`line ${n}`);
        appendFileSync(said, `${n}\n`);
    }
    await stream.close();
}

async function listen() {
    for await (const { id, text } of stream) appendFileSync(transcript, `${id} ${text}\n`);
}

await Promise.all([speak(), listen()]);
