// SPDX-License-Identifier: Apache-2.0
// The inside of access-rebinding.test.mjs: a network of its own, in which a name server of ours answers what it is
// told to, and a public address is this machine's.
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { defer } from "./defer.mjs";
import { startServer } from "./server.mjs";
import { tempFolder } from "./temp.mjs";
import { until } from "./wait.mjs";

const PUBLIC = process.env.PUBLIC_ADDRESS;
const INNER = "127.0.0.1";
const [A, IN] = [1, 1];

/** An answer to a question of DNS: these addresses, to be forgotten at once. */
function answer(question, addresses) {
    const head = Buffer.from(question.subarray(0, 12));
    head.writeUInt16BE(0x8180, 2); // an answer, without an error
    head.writeUInt16BE(addresses.length, 6);
    head.fill(0, 8);
    const end = question.indexOf(0, 12) + 5;
    const records = addresses.map((address) => {
        const record = Buffer.alloc(16);
        record.writeUInt16BE(0xc00c, 0); // the name in the question
        record.writeUInt16BE(A, 2);
        record.writeUInt16BE(IN, 4);
        record.writeUInt16BE(4, 10);
        record.set(address.split(".").map(Number), 12);
        return record;
    });
    return Buffer.concat([head, question.subarray(12, end), ...records]);
}

/** Names that change: `says[name]` is a list of answers, each a list of addresses; the last stays. */
async function startNames(t) {
    const names = { says: {}, asked: {} };
    const socket = createSocket("udp4");
    socket.on("message", (question, from) => {
        const labels = [];
        let at = 12;
        for (; question[at] !== 0; at += question[at] + 1)
            labels.push(question.toString("latin1", at + 1, at + 1 + question[at]));
        const name = labels.join(".");
        const all = names.says[name] ?? [[]];
        const isA = question.readUInt16BE(at + 1) === A;
        if (isA) names.asked[name] = (names.asked[name] ?? 0) + 1;
        const which = Math.min(names.asked[name] ?? 1, all.length) - 1;
        socket.send(answer(question, isA ? all[which] : []), from.port, from.address);
    });
    socket.bind(53, INNER);
    await once(socket, "listening");
    defer(t, () => socket.close());
    return names;
}

/** Counts who connects, and hangs up. */
async function startPort(t, address, port = 0) {
    const counted = { n: 0 };
    const server = createServer((socket) => (counted.n++, socket.on("error", () => {}).destroy()));
    server.listen(port, address);
    await once(server, "listening");
    defer(t, () => server.close());
    counted.port = server.address().port;
    return counted;
}

test("names that change", async (t) => {
    const names = await startNames(t);
    const audit = join(await tempFolder(t), "audit.jsonl");
    const server = await startServer(t, ["--audit", audit]);
    const refusals = () =>
        (existsSync(audit) ? readFileSync(audit, "utf8").split("\n").filter(Boolean) : [])
            .map((line) => JSON.parse(line))
            .filter(({ event }) => event === "target-refused");

    /** What a webhook to this name comes to: who was connected to, and whether it was refused. */
    let n = 0;
    const deliver = async (host, says) => {
        names.says[host] = says;
        const id = `hook-${n++}`;
        const outer = await startPort(t, PUBLIC);
        const inner = await startPort(t, INNER, outer.port);
        const put = await server.request("PUT", `/v1/stream/__ds/subscriptions/${id}`, {
            headers: { "content-type": "application/json" },
            body: JSON.stringify({
                type: "webhook",
                pattern: `${id}/*`,
                webhook: { url: `https://${host}:${outer.port}/` },
            }),
        });
        assert.equal(put.status, 201, put.text);
        await server.create(`${id}/a`);
        await server.append(`${id}/a`, "1");
        const failed = () => server.stderr.split("\n").some((line) => line.includes("webhook") && line.includes(id));
        await until(failed, `${host} to be tried`);
        const isRefused = () => refusals().some(({ name }) => name === id);
        if (outer.n === 0) await until(isRefused, "the audit");
        return { outer: outer.n > 0, inner: inner.n, refused: isRefused() };
    };

    const [good, bad] = [[PUBLIC], [INNER]];
    assert.deepEqual(await deliver("good.test", [good]), { outer: true, inner: 0, refused: false });
    assert.deepEqual(await deliver("bad.test", [bad]), { outer: false, inner: 0, refused: true });
    for (const special of ["10.0.0.1", "169.254.169.254", "168.63.129.16", "0.0.0.0"])
        assert.deepEqual(await deliver(`s${n}.test`, [[special]]), { outer: false, inner: 0, refused: true });
    // Good when it is looked at, and bad from then on: what is looked at is what is connected to.
    const flipped = await deliver("flip.test", [good, bad]);
    assert.equal(flipped.inner, 0);
    assert.ok(flipped.outer);
    assert.equal(names.asked["flip.test"], 1, "one question for one connection");
    // The same name at another port is asked for again.
    assert.deepEqual(await deliver("flip.test", [good, bad]), { outer: false, inner: 0, refused: true });
    // Both at once: the bad one is passed over.
    const both = await deliver("both.test", [[INNER, PUBLIC]]);
    assert.equal(both.inner, 0);
    assert.ok(both.outer);
});
