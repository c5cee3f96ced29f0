// SPDX-License-Identifier: Apache-2.0
// What our verifier accepts, others accept as well: jose (npm), PyJWT and golang-jwt judge the same tokens, good
// ones of theirs and such as are wrong in one way or a few. The last two are left out where they cannot be had.
//
// We accept and one of them refuses:
//   `alg` is Ed25519        the name that RFC 9864 gives to EdDSA with this curve; PyJWT and golang-jwt do not know it
//
// TIDEMARK_TOKENS=100000 judges so many; TIDEMARK_SEED repeats a run but for its keys.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { createPublicKey } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { copyFile, mkdir, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { SignJWT, decodeProtectedHeader, jwtVerify } from "jose";
import { randomness } from "./lib/rand.mjs";
import { assertNoReport, binary, sanitizerEnv } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { AUD, ISSUER, NOW, SECRET_ISSUER, makeKeys, makeTokens } from "./lib/tokens.mjs";
import { within } from "./lib/wait.mjs";

const TOKENS = Number(process.env.TIDEMARK_TOKENS ?? 5_000);
const PYJWT = "2.15.1";
const CRYPTOGRAPHY = "50.0.2";
const GOLANG_JWT = "v5.3.1";

const run = promisify(execFile);
const lib = join(import.meta.dirname, "lib");
const build = join(import.meta.dirname, "../../build");

/** The lines that a program answers, one for each token. */
async function ask(command, args, tokens, env) {
    const child = spawn(command, args, { stdio: "pipe", env });
    const chunks = [];
    let stderr = "";
    child.stdout.on("data", (chunk) => chunks.push(chunk));
    child.stderr.setEncoding("utf8").on("data", (text) => (stderr += text));
    child.stdin.on("error", () => {}); // it may end early; its exit code tells
    child.stdin.end(tokens.map((token) => `${token.toString("base64")}\n`).join(""));
    const [code] = await within(once(child, "close"), `${command} to end`, 300_000);
    assertNoReport(stderr);
    assert.equal(code, 0, stderr);
    const answers = Buffer.concat(chunks).toString().trimEnd().split("\n");
    assert.equal(answers.length, tokens.length, stderr);
    return answers;
}

// ---- the judges: each has judge(tokens), whose answers are "ok" or a reason, and make(n) ----

async function tidemark(t, keys) {
    const program = join(dirname(binary()), "tests/e2e/jwt_judge");
    assert.ok(existsSync(program), `there is no ${program}; make unit-bins builds it`);
    const file = join(await tempFolder(t), "jwks.json");
    const jwks = Object.values(keys).flatMap(({ jwk }) => jwk ?? []);
    await writeFile(file, JSON.stringify({ keys: jwks }));
    const args = [`${NOW}`, AUD, ISSUER, file, SECRET_ISSUER, keys.hs.secret];
    const judge = async (tokens) =>
        (await ask(program, args, tokens, sanitizerEnv())).map((name) => (name === "OK" ? "ok" : name));
    return { name: "tidemark", judge };
}

function jose(keys) {
    const verifiers = {};
    for (const [kid, { pem, secret }] of Object.entries(keys))
        verifiers[kid] = pem ? createPublicKey(pem) : Buffer.from(secret);
    const one = async (token) => {
        const text = token.toString("latin1");
        const { kid } = decodeProtectedHeader(text);
        const { alg, iss } = keys[kid];
        await jwtVerify(text, verifiers[kid], {
            algorithms: alg === "EdDSA" ? [alg, "Ed25519"] : [alg],
            audience: AUD,
            issuer: iss,
            typ: "at+jwt",
            clockTolerance: 30,
            maxTokenAge: 3600,
            requiredClaims: ["exp", "iat"],
            currentDate: new Date(NOW * 1000),
        });
        return "ok";
    };
    const judge = async (tokens) => {
        const answers = [];
        for (const token of tokens) answers.push(await one(token).catch((error) => error.message));
        return answers;
    };
    const make = async (n) => {
        const made = [];
        for (let i = 0; i < n; i++) {
            const kid = Object.keys(keys)[i % 5];
            const { alg, iss, privateKey, secret } = keys[kid];
            const token = new SignJWT({ sub: `jose${i}` })
                .setProtectedHeader({ alg, kid, typ: "at+jwt" })
                .setIssuer(iss)
                .setAudience(AUD)
                .setIssuedAt(NOW)
                .setExpirationTime(NOW + 600);
            made.push(await token.sign(privateKey ?? Buffer.from(secret)));
        }
        return made;
    };
    return { name: "jose", judge, make };
}

/** A judge that is a program: `command ...args judge FILE`. */
async function program(t, name, keys, command, args = [], env = process.env) {
    const file = join(await tempFolder(t), "site.json");
    await writeFile(file, JSON.stringify({ now: NOW, aud: AUD, keys }));
    return {
        name,
        judge: (tokens) => ask(command, [...args, "judge", file], tokens, env),
        make: async (n) =>
            (await run(command, [...args, "make", file, `${n}`], { env })).stdout.trim().split("\n"),
    };
}

/** What fill(folder) puts into a new folder, which is kept below build/. */
async function kept(name, fill) {
    const folder = join(build, name);
    if (existsSync(folder)) return folder;
    await mkdir(build, { recursive: true });
    const fresh = `${folder}-${process.pid}`;
    try {
        await mkdir(fresh);
        await fill(fresh);
        await rename(fresh, folder);
    } finally {
        await rm(fresh, { recursive: true, force: true });
    }
    return folder;
}

/** The judge; or undefined, and a line that says why. */
async function ifThere(t, what, start) {
    try {
        const judge = await start();
        await judge.make(1);
        return judge;
    } catch (error) {
        t.diagnostic(`${what} cannot be had, and does not judge: ${error.message.split("\n")[0]}`);
        return undefined;
    }
}

const pyjwt = (t, keys) =>
    ifThere(t, `PyJWT ${PYJWT}`, async () => {
        const folder = await kept(`python-pyjwt-${PYJWT}`, async (fresh) => {
            const options = ["-q", "--retries", "0", "--timeout", "5", "--target", fresh];
            const wanted = [`PyJWT==${PYJWT}`, `cryptography==${CRYPTOGRAPHY}`];
            await run("python3", ["-m", "pip", "install", ...options, ...wanted], { timeout: 90_000 });
        });
        const env = { ...process.env, PYTHONPATH: folder };
        return program(t, "PyJWT", keys, "python3", [join(lib, "jwt_judge.py")], env);
    });

const golang = (t, keys) =>
    ifThere(t, `golang-jwt ${GOLANG_JWT}`, async () => {
        const folder = await kept(`golang-jwt-${GOLANG_JWT}`, async (fresh) => {
            const go = (...args) =>
                run("go", args, {
                    cwd: fresh,
                    timeout: 120_000,
                    env: {
                        ...process.env,
                        GOFLAGS: "-modcacherw -buildvcs=false",
                        GOMODCACHE: join(fresh, "modules"),
                        GOCACHE: join(fresh, "cache"),
                        GOTOOLCHAIN: "local",
                    },
                });
            await copyFile(join(lib, "jwt_judge.go"), join(fresh, "main.go"));
            await go("mod", "init", "judge");
            await go("get", `github.com/golang-jwt/jwt/v5@${GOLANG_JWT}`);
            await go("build", "-o", "judge", ".");
            for (const name of ["modules", "cache"]) await rm(join(fresh, name), { recursive: true });
        });
        return program(t, "golang-jwt", keys, join(folder, "judge"));
    });

// ---- the comparison ----

/** Whether this judge may refuse what we accept. */
function isListed(judge, token) {
    const { alg } = decodeProtectedHeader(token.toString("latin1"));
    return alg === "Ed25519" && judge !== "jose";
}

function compare(t, tokens, ours, name, theirs) {
    const counts = { both: 0, neither: 0, onlyThey: 0, listed: 0 };
    const whys = {}; // our verdicts on what only they accept
    tokens.forEach((token, i) => {
        const we = ours[i] === "ok";
        const they = theirs[i] === "ok";
        if (we && !they) {
            if (isListed(name, token)) counts.listed++;
            else assert.fail(`we accept and ${name} refuses (${theirs[i]}): ${token.toString("latin1")}`);
        } else counts[we ? "both" : they ? "onlyThey" : "neither"]++;
        if (they && !we) whys[ours[i]] = (whys[ours[i]] ?? 0) + 1;
    });
    t.diagnostic(`${name}: ${JSON.stringify(counts)} ${JSON.stringify(whys)}`);
    return counts;
}

test("nothing is accepted that jose, PyJWT or golang-jwt refuses", { timeout: 900_000 }, async (t) => {
    const random = randomness(t);
    const keys = makeKeys();
    const us = await tidemark(t, keys);
    const others = [jose(keys), await pyjwt(t, keys), await golang(t, keys)].filter((j) => j);
    const good = (await Promise.all(others.map((judge) => judge.make(25)))).flat();
    const goodBytes = good.map((token) => Buffer.from(token));
    for (const judge of [us, ...others])
        assert.deepEqual(await judge.judge(goodBytes), good.map(() => "ok"), `good ones: ${judge.name}`);

    const tokens = makeTokens(TOKENS, keys, good, random);
    const [ours, ...theirs] = await Promise.all([us, ...others].map((judge) => judge.judge(tokens)));
    const verdicts = {};
    for (const verdict of ours) verdicts[verdict] = (verdicts[verdict] ?? 0) + 1;
    t.diagnostic(`${tokens.length} tokens: ${JSON.stringify(verdicts)}`);
    others.forEach(({ name }, i) => {
        const counts = compare(t, tokens, ours, name, theirs[i]);
        assert.ok(counts.both > TOKENS / 10, "enough are accepted for this to mean something");
        assert.ok(counts.onlyThey > 0, "they are not us");
    });
    // Each way to be wrong came about.
    for (const verdict of ["BAD_SIGNATURE", "WRONG_ALG", "EXPIRED", "TOO_LONG_LIVED", "BAD_CLAIM", "BAD_SHAPE"])
        assert.ok(verdicts[verdict] > 0, verdict);
});
