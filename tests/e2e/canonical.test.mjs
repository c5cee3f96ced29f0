// SPDX-License-Identifier: Apache-2.0
// RFC 8785: what the server makes of a JSON text, beside what npm's canonicalize makes of it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import canonicalize from "canonicalize";
import { randomness } from "./lib/rand.mjs";
import { assertNoReport, binary, sanitizerEnv } from "./lib/server.mjs";
import { within } from "./lib/wait.mjs";

const NUMBERS = 40_000;
const DOCUMENTS = 4_000;

/** Our canonical form of each text; `!` and a name for one that has none. */
async function ours(texts) {
    const program = join(dirname(binary()), "tests/e2e/canonical");
    assert.ok(existsSync(program), `there is no ${program}; make unit-bins builds it`);
    const child = spawn(program, { stdio: "pipe", env: sanitizerEnv() });
    const chunks = [];
    let stderr = "";
    child.stdout.on("data", (chunk) => chunks.push(chunk));
    child.stderr.setEncoding("utf8").on("data", (text) => (stderr += text));
    child.stdin.on("error", () => {}); // it may end early; its exit code tells
    child.stdin.end(texts.map((text) => `${text}\0`).join(""));
    const [code] = await within(once(child, "close"), "canonical to end", 60_000);
    assertNoReport(stderr);
    assert.equal(code, 0, stderr);
    const answers = Buffer.concat(chunks).toString().split("\0");
    assert.equal(answers.pop(), "");
    assert.equal(answers.length, texts.length);
    return answers;
}

async function agree(texts) {
    const answers = await ours(texts);
    texts.forEach((text, i) => assert.equal(answers[i], canonicalize(JSON.parse(text)), text));
}

// ---- numbers ----

const doubles = new Float64Array(1);
const words = new Uint32Array(doubles.buffer);

function anyDouble(random) {
    do {
        words[0] = random.below(2 ** 32);
        words[1] = random.below(2 ** 32);
    } while (!Number.isFinite(doubles[0]));
    return doubles[0];
}

/** The same number, or one near it, in one of the ways JSON has for it. */
function spell(v, random) {
    const digits = 1 + random.below(25);
    switch (random.below(6)) {
        case 0:
            return v.toPrecision(digits);
        case 1:
            return v.toExponential(digits).replace("e+", random.below(2) ? "E" : "e+");
        case 2:
            return Math.abs(v) < 1e21 ? v.toFixed(digits) : String(v);
        case 3:
            return Math.abs(v) < 1e300 && Math.abs(v) > 1 ? String(BigInt(Math.trunc(v))) : `${v}`;
        case 4:
            return /[.e]/.test(`${v}`) ? `${v}` : `${v}.${"0".repeat(digits)}`;
        default:
            return String(v);
    }
}

const finite = (text) => Number.isFinite(Number(text));

test("numbers of all magnitudes, in many spellings", async (t) => {
    const random = randomness(t);
    const texts = Array.from({ length: NUMBERS }, () => spell(anyDouble(random), random));
    await agree(texts.filter(finite));
});

test("numbers such as people write", async (t) => {
    const random = randomness(t);
    const human = () =>
        (random.below(2) ? 1 : -1) * (random.below(2 ** 32) / 10 ** random.below(14));
    await agree(Array.from({ length: NUMBERS }, () => spell(human(), random)));
});

test("powers of two and of ten, and their neighbours", async () => {
    const bits = new BigUint64Array(doubles.buffer);
    const texts = [];
    const put = (v) => {
        doubles[0] = v;
        const at = bits[0];
        for (const near of [at - 2n, at - 1n, at, at + 1n, at + 2n]) {
            bits[0] = near;
            if (doubles[0] > 0 && Number.isFinite(doubles[0]))
                texts.push(String(doubles[0]), doubles[0].toPrecision(17), `-${doubles[0]}`);
        }
    };
    for (let i = -1074; i <= 1023; i++) put(2 ** i);
    for (let i = -323; i <= 308; i++) put(Number(`1e${i}`));
    assert.ok(texts.length > 30_000);
    await agree(texts);
});

test("subnormal numbers", async (t) => {
    const random = randomness(t);
    const texts = [];
    for (let i = 0; i < NUMBERS / 4; i++) {
        words[0] = random.below(2 ** 32) >>> random.below(32);
        words[1] = random.below(2) ? 0 : random.below(2 ** 20) >>> random.below(20);
        texts.push(String(doubles[0]), doubles[0].toExponential(random.below(21)));
    }
    await agree(texts);
});

// ---- documents ----

const CHARACTERS = [
    ..."abcxyz019 _-./\"\\\b\f\n\r\t\0\x01\x1f\x7f",
    ..."\x80\xe9\xff\u07ff\u0800\u20ac\u2028\ud7ff\ue000\ufb33\ufeff\uffff",
    ..."\u{10000}\u{1f600}\u{10ffff}",
];

const anyText = (random) =>
    Array.from({ length: random.below(6) }, () => CHARACTERS[random.below(CHARACTERS.length)]).join(
        "",
    );

const space = (random) => (random.below(4) ? "" : " \t\n\r"[random.below(4)]);

function spellText(text, random) {
    const hex = (unit) => {
        const digits = unit.charCodeAt(0).toString(16).padStart(4, "0");
        return `\\u${random.below(2) ? digits : digits.toUpperCase()}`;
    };
    const one = (c) => {
        if (random.below(3)) return JSON.stringify(c).slice(1, -1);
        return c === "/" ? "\\/" : c.split("").map(hex).join("");
    };
    return `"${Array.from(text, one).join("")}"`;
}

function anyValue(random, depth) {
    switch (random.below(depth > 0 ? 8 : 4)) {
        case 0:
            return ["true", "false", "null", "{}", "[ ]", "0", "-0", "-0.0e5"][random.below(8)];
        case 1:
            return spell(Number(anyDouble(random).toPrecision(1 + random.below(17))), random);
        case 2:
            return spellText(anyText(random), random);
        case 3:
            return String(random.below(1000));
        case 4:
        case 5: {
            const one = () => space(random) + anyValue(random, depth - 1) + space(random);
            return `[${Array.from({ length: random.below(5) }, one).join(",")}]`;
        }
        default: {
            const names = new Set(Array.from({ length: random.below(8) }, () => anyText(random)));
            const members = Array.from(names, (name) => {
                const value = anyValue(random, depth - 1);
                const parts = [spellText(name, random), ":", value].map((p) => space(random) + p);
                return parts.join("") + space(random);
            });
            return `{${space(random)}${members.join(",")}}`;
        }
    }
}

/** A spelling of a number may round up beyond the largest. */
function isFiniteText(text) {
    try {
        return canonicalize(JSON.parse(text)) !== undefined;
    } catch {
        return false;
    }
}

test("documents of any shape", async (t) => {
    const random = randomness(t);
    const texts = Array.from({ length: DOCUMENTS }, () => anyValue(random, 6)).filter(isFiniteText);
    assert.ok(texts.length > DOCUMENTS * 0.9);
    assert.ok(texts.some((text) => text.length > 2_000));
    await agree(texts);
});

test("what has no canonical form, theirs does not give one either", async () => {
    const texts = ['"\\ud800"', '"\\udc00\\ud800"', '{"a\\udfff":1}', "1e309", "[-1e400]"];
    for (const text of texts) assert.throws(() => canonicalize(JSON.parse(text)), text);
    assert.deepEqual(await ours(texts), Array(texts.length).fill("!JSON"));
});

test("a name that comes twice is refused, where JSON.parse keeps the last", async () => {
    const texts = ['{"a":1,"a":1}', '{"a":1,"\\u0061":2}', '[{"x":{"":0,"b":1,"":2}}]'];
    assert.deepEqual(await ours(texts), Array(texts.length).fill("!JSON"));
});
