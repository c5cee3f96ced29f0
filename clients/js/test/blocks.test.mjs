// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { join, splitEvents, splitJson } from "../src/blocks.js";

const bytes = (text) => new TextEncoder().encode(text);
const text = (parts) => new TextDecoder().decode(join(parts));

function run(pieces, ...texts) {
    return texts.map((part) => text(pieces.push(bytes(part)))).join("");
}

test("ids and comments go, every other byte stays", () => {
    const blocks = splitEvents("0");
    const said = run(blocks, ": c\nid: g:1\nevent: x\ndata:a\ndata:  b\nretry: 1\nfoo\n\n");
    assert.equal(said, "event: x\ndata:a\ndata:  b\nretry: 1\nfoo\n\n");
    assert.equal(blocks.position, "g:1");
});

test("names that only begin like id are kept", () => {
    const blocks = splitEvents("0");
    assert.equal(run(blocks, "idle: 1\nidx\nid\n\n"), "idle: 1\nidx\n\n");
    assert.equal(blocks.position, "");
});

test("an event is passed on when its blank line is there", () => {
    const blocks = splitEvents("0");
    assert.equal(run(blocks, "id: 1\nda", "ta: a", "\n"), "");
    assert.equal(blocks.position, "0");
    assert.equal(run(blocks, "\n"), "data: a\n\n");
    assert.equal(blocks.position, "1");
});

test("a torn event is forgotten", () => {
    const blocks = splitEvents("0");
    run(blocks, "id: 1\ndata: a\n\nid: 2\ndata: b\nda");
    blocks.tear();
    assert.equal(run(blocks, "id: 2\ndata: b\n\n"), "data: b\n\n");
    assert.equal(blocks.position, "2");
});

test("a block of comments alone is nothing", () => {
    const blocks = splitEvents("0");
    assert.equal(run(blocks, ": a\n\n: b\n\n\n\n"), "");
    assert.equal(blocks.position, "0");
});

test("without ids the events are counted, and notices with names are not", () => {
    const blocks = splitEvents("0");
    run(blocks, 'event: resume\ndata: {"token":"x"}\n\n');
    assert.equal(blocks.position, "0");
    run(blocks, "data: a\n\n: c\n\ndata: b\n\n");
    assert.equal(blocks.position, "2");
    run(blocks, "id: g:7\ndata: c\n\ndata: a notice\n\n");
    assert.equal(blocks.position, "g:7");
});

for (const [what, said, ended] of [
    ["the end mark", "id: 1\ndata: a\n\n: end\n", true],
    ["with a blank line", "data: a\n\n: end\n\n", true],
    ["with CRLF", "data: a\r\n\r\n: end\r\n", true],
    ["half of it", "data: a\n\n: end", false],
    ["another comment", "data: a\n\n: ended\n", false],
    ["something behind it", ": end\n: heartbeat\n", false],
    ["an event behind it", ": end\ndata: a\n\n", false],
    ["within an event", "data: a\n: end\n", false],
    ["as data", "data: : end\n\n", false],
])
    test(`the end: ${what}`, () => {
        const blocks = splitEvents("0");
        run(blocks, said);
        assert.equal(blocks.ended, ended);
    });

test("a gap on a resumed connection is an error, a second token is dropped", () => {
    const blocks = splitEvents("0");
    const token = 'event: resume\ndata: {"token":"x"}\n\n';
    assert.equal(run(blocks, token), token);
    run(blocks, "id: 1\ndata: a\n\n");
    blocks.tear();
    assert.equal(run(blocks, token), "");
    assert.throws(() => run(blocks, 'event: gap\ndata: {"gap":1}\n\n'), /gone.*"gap":1/s);
});

test("events of the backend may have those names", () => {
    const blocks = splitEvents("0");
    blocks.tear();
    const said = "event: gap\ndata: a\n\nevent: resume\ndata: b\n\n";
    const sent = said.replaceAll("event:", "id: 1\nevent:");
    assert.equal(run(blocks, sent), said);
});

test("lines", () => {
    const lines = splitJson("0");
    assert.equal(run(lines, '{"a":', "1}\n\n{}\n{"), '{"a":1}\n\n{}\n');
    assert.equal(lines.position, "2");
    lines.tear();
    assert.equal(run(lines, "{}\n"), "{}\n");
    assert.equal(lines.position, "3");
});

test("what never ends is not kept", () => {
    const piece = new Uint8Array(1 << 20).fill(65);
    const whole = new Uint8Array(1 << 20).fill(65).fill(10, -2);
    const blocks = splitEvents("0");
    for (let n = 0; n < 300; n++) blocks.push(whole);
    assert.throws(() => {
        for (let n = 0; n < 300; n++) blocks.push(piece);
    }, RangeError);
});
