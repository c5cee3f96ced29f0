// SPDX-License-Identifier: Apache-2.0
// Tokens of issuers and certificates of clients, good ones and such as should not be taken. Attacks are numbered as in
// the list that docs/security.md has.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, sign } from "node:crypto";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { connect as connectH2 } from "node:http2";
import { join } from "node:path";
import { test } from "node:test";
import { connect } from "node:tls";
import { Agent, request } from "undici";
import { defer } from "./lib/defer.mjs";
import { AUD, ISS, Jwks, bearer, claims, encode, forge, hmac, makeKey, mint, now, startWith, told } from "./lib/issuer.mjs";
import { H2 } from "./lib/h2.mjs";
import { openRaw } from "./lib/raw.mjs";
import { spawnServer } from "./lib/server.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { Authority } from "./lib/tls.mjs";
import { within } from "./lib/wait.mjs";

const CI = "the-token-of-ci";
const SECRET = "0123456789abcdef0123456789abcdef";
const STREAM = "/v1/stream/shared/a";
const digest = (text) => createHash("sha256").update(text).digest("hex");

const CALLER = `
[caller ci]
token-sha256 = ${digest(CI)}
grant = read, create, append, close, delete, list **
`;

const issuer = (jwks, more = "") => `
[issuer idp]
iss = ${ISS}
jwks = ${jwks}
grant = read, create shared/** mine/{sub}/**
${more}
`;

const PATIENT = ["--address-failures", "0"]; // all bad tokens come from one address

/** A provider with one key of each kind, and a server with a stream that its tokens may read. */
async function site(t, { more = "", sections = "", flags = [], env } = {}) {
    const keys = Object.fromEntries(["RS256", "PS256", "ES256", "EdDSA"].map((alg) => [alg, makeKey(alg, `k-${alg}`)]));
    const jwks = await Jwks.start(t, Object.values(keys));
    const text = `public-url = ${AUD}\n${CALLER}${issuer(jwks.url, more)}${sections}`;
    const found = await startWith(t, text, [...PATIENT, ...flags], { env });
    const { server } = found;
    await server.create("shared/a", "text/plain", { headers: bearer(CI) });
    await told(server, "4 keys are in use");
    return { ...found, keys, jwks, text };
}

/** Every face refuses it, with the same words. */
async function refused(faces, tokens, path = STREAM) {
    for (const [name, token] of Object.entries(tokens))
        for (const [version, face] of Object.entries(faces)) {
            const { status, headers, text } = await face.request("GET", path, { headers: bearer(token) });
            assert.equal(status, 401, `${name} over ${version}: ${text}`);
            assert.equal(headers["www-authenticate"], 'Bearer error="invalid_token"', name);
            assert.deepEqual(JSON.parse(text).error, {
                code: "UNAUTHENTICATED",
                message: "the credential is not good; get a new one",
            });
        }
}

async function accepted(faces, tokens, path = STREAM) {
    for (const [name, token] of Object.entries(tokens))
        for (const [version, face] of Object.entries(faces)) {
            const { status, text } = await face.request("GET", path, { headers: bearer(token) });
            assert.equal(status, 200, `${name} over ${version}: ${text}`);
        }
}

// ---- good ones ----

test("tokens of each algorithm, and again from memory", async (t) => {
    const { faces, keys } = await site(t);
    const tokens = {};
    for (const [alg, key] of Object.entries(keys)) tokens[alg] = await mint(key);
    await accepted(faces, tokens);
    await accepted(faces, tokens);
    await accepted(faces, { caller: CI });
    await refused(faces, { "another caller": `${CI}x`, empty: "x" });
});

test("a token may do what both it and its issuer's section grant", async (t) => {
    const { server, keys } = await site(t);
    await server.create("shared/b", "text/plain", { headers: bearer(CI) });
    await server.create("mine/alice/x", "text/plain", { headers: bearer(CI) });
    await server.create("other", "text/plain", { headers: bearer(CI) });
    const details = (on, actions = ["read"]) => ({ authorization_details: [{ type: "tidemark", actions, on }] });
    const status = async (changes, name, method = "GET") => {
        const headers = { ...bearer(await mint(keys.ES256, changes)), "content-type": "text/plain" };
        return (await server.stream(method, name, { headers })).status;
    };
    assert.equal(await status({}, "mine/alice/x"), 200);
    assert.equal(await status({ sub: "bob" }, "mine/alice/x"), 403, "another's");
    assert.equal(await status({ sub: undefined }, "shared/a"), 200, "nobody in particular");
    assert.equal(await status({ sub: undefined }, "mine/alice/x"), 403);
    assert.equal(await status({}, "shared/new", "PUT"), 201);
    assert.equal(await status(details(["shared/b"]), "shared/b"), 200);
    assert.equal(await status(details(["shared/b"]), "shared/a"), 403, "less than the section");
    assert.equal(await status(details(["shared/b"]), "shared/newer", "PUT"), 403, "less than the section");
    assert.equal(await status(details(["**"]), "other"), 403, "more than the section");
    assert.equal(await status({ authorization_details: [{ type: "bank" }] }, "shared/a"), 200, "others' types");
    for (const bad of [
        [{ type: "tidemark", actions: ["read"], on: ["shared/a"] }, { type: "tidemark", actions: ["reed"], on: ["x"] }],
        [{ type: "tidemark", actions: ["read"], on: ["a/**/b"] }],
        [{ type: "tidemark", actions: ["read"], on: ["shared/a"], limits: { live: -1 } }],
        "tidemark",
    ])
        assert.equal(await status({ authorization_details: bad }, "shared/a"), 401, JSON.stringify(bad));
});

test("a root by a claim confines a token, and one without the claim is not good", async (t) => {
    const { server, faces, keys } = await site(t, { more: "root = t/{tenant}/" });
    const token = await mint(keys.EdDSA, { tenant: "acme" });
    const headers = { ...bearer(token), "content-type": "text/plain" };
    assert.equal((await server.stream("PUT", "shared/mine", { headers })).status, 201);
    const there = await server.stream("GET", "t/acme/shared/mine", { headers: bearer(CI) });
    assert.equal(there.status, 200, "as the store has it");
    assert.equal((await server.stream("GET", "shared/a", { headers })).status, 404, "another's name");
    await refused(faces, {
        none: await mint(keys.EdDSA),
        number: await mint(keys.EdDSA, { tenant: 7 }),
        wide: await mint(keys.EdDSA, { tenant: "a/b" }),
        up: await mint(keys.EdDSA, { tenant: ".." }),
        reserved: await mint(keys.EdDSA, { tenant: "" }),
    });
});

test("default tokens of providers, taken on purpose", async (t) => {
    const sections = `
[issuer supabase]
iss = https://project.supabase.example/auth/v1
aud = authenticated
secret-env = SUPABASE_JWT_SECRET
typ = JWT, none
max-lifetime = 2h
not-before = 2026-01-01T00:00:00Z
grant = read shared/**
`;
    const env = { SUPABASE_JWT_SECRET: SECRET, SUPABASE_JWT_SECRET_PREVIOUS: SECRET.toUpperCase() };
    const { server, faces } = await site(t, { sections, env });
    const key = (secret) => ({ alg: "HS256", secret: Buffer.from(secret) });
    const about = { iss: "https://project.supabase.example/auth/v1", aud: "authenticated", exp: now() + 7000 };
    const old = Date.parse("2025-12-31T23:59:59Z") / 1000;
    await accepted(faces, {
        current: await mint(key(SECRET), about, { typ: "JWT" }),
        previous: await mint(key(SECRET.toUpperCase()), about, { typ: "JWT", kid: "any" }),
        untyped: await mint(key(SECRET), about, { typ: undefined }),
    });
    await refused(faces, {
        secret: await mint(key(`${SECRET}x`), about, { typ: "JWT" }),
        "at+jwt": await mint(key(SECRET), about),
        "too long": await mint(key(SECRET), { ...about, exp: now() + 7300 }, { typ: "JWT" }),
        "before the cut": await mint(key(SECRET), { ...about, iat: old, exp: old + 60 }, { typ: "JWT" }),
    });
    const environ = readFileSync(`/proc/${server.pid}/environ`, "latin1");
    assert.ok(!environ.includes(SECRET), "the secret is not left in the environment");
});

test("kids in base64, as Cognito's are, are found, and only as they are spelt", async (t) => {
    const kid = "n+KGl/Tawq0VTqrFYjqXvXvqpVBlxNRmXLdMDjXWQmA=";
    const key = makeKey("RS256", kid);
    const jwks = await Jwks.start(t, [key]);
    const { server, faces } = await startWith(t, `public-url = ${AUD}\n${CALLER}${issuer(jwks.url)}`, PATIENT);
    await server.create("shared/a", "text/plain", { headers: bearer(CI) });
    await told(server, "1 keys? (is|are) in use");
    await accepted(faces, { good: await mint(key) });
    const other = (name) => mint(key, {}, { kid: name });
    await refused(faces, {
        unpadded: await other(kid.slice(0, -1)),
        "the other alphabet": await other(kid.replace("+", "-").replace("/", "_")),
        longer: await other(`${kid}=`),
        "no base64": await other("a/../b"),
    });
});

test("a cookie is for reading", async (t) => {
    const { server, keys } = await site(t);
    const headers = { cookie: `a=b; __Host-tidemark=${await mint(keys.ES256)}`, "content-type": "text/plain" };
    assert.equal((await server.request("GET", STREAM, { headers })).status, 200);
    assert.equal((await server.request("HEAD", STREAM, { headers })).status, 200);
    assert.equal((await server.stream("PUT", "shared/by-cookie", { headers })).status, 403);
    assert.equal((await server.stream("GET", "shared/by-cookie", { headers: bearer(CI) })).status, 404);
});

test("requests wait for keys that are being fetched; without any they are told to come back", async (t) => {
    const key = makeKey("ES256", "late");
    const jwks = await Jwks.start(t, [key]);
    const open = [];
    jwks.answer = (response) => open.push(response);
    const { server, faces } = await startWith(t, `public-url = ${AUD}\n${CALLER}${issuer(jwks.url)}`);
    await server.create("shared/a", "text/plain", { headers: bearer(CI) });
    const token = await mint(key);
    const waiting = Object.values(faces).map((face) => face.request("GET", STREAM, { headers: bearer(token) }));
    const gone = new AbortController();
    const left = fetch(server.base + STREAM, { headers: bearer(token), signal: gone.signal });
    left.catch(() => {});
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert.equal(open.length, 1, "one fetch for all");
    gone.abort();
    open[0].writeHead(200).end(JSON.stringify({ keys: [key.jwk] }));
    for (const answer of await Promise.all(waiting)) assert.equal(answer.status, 200);

    const dead = await Jwks.start(t, [key]);
    dead.say(500, "no");
    const second = await startWith(t, `public-url = ${AUD}\n${issuer(dead.url)}`);
    await told(second.server, "its keys cannot be had");
    for (const face of Object.values(second.faces)) {
        const answer = await face.request("GET", STREAM, { headers: bearer(token) });
        assert.equal(answer.status, 503);
        assert.equal(answer.headers["retry-after"], "5");
    }
});

test("settings that cannot be: the server does not start, and says why", async (t) => {
    const key = makeKey("ES256", "k");
    const folder = await tempFolder(t);
    const file = (name, text) => {
        writeFileSync(join(folder, name), text);
        return join(folder, name);
    };
    const good = file("good.json", JSON.stringify({ keys: [key.jwk] }));
    const cases = [
        ["jwks = http://id.example/jwks", /https/],
        [`jwks = ${file("bad.json", "{}")}`, /idp/],
        [`jwks = ${file("oct.json", JSON.stringify({ keys: [{ kty: "oct", k: encode(SECRET) }] }))}`, /idp/],
        [`jwks = ${join(folder, "missing.json")}`, /cannot read/],
        [`jwks = ${folder}`, /no regular file/],
        ["secret-env = NOT_SET_ANYWHERE", /not set/],
        ["secret-env = PIPED_SECRET", /no regular file/],
        ["secret-env = SHORT_SECRET", /32 bytes/],
        [`jwks = ${good}\nsecret-env = GOOD_SECRET`, /not both/],
        [`jwks = ${good}\nalg = HS256`, /alg/],
        [`jwks = ${good}\ntyp = tm-link+jwt`, /links/],
        [`jwks = ${good}\nnot-before = yesterday`, /not-before/],
        [`jwks = ${good}\n[issuer other]\niss = ${ISS}\njwks = ${good}`, /same iss/],
    ];
    for (const [lines, why] of cases) {
        const conf = file("case.conf", `public-url = ${AUD}\n[issuer idp]\niss = ${ISS}\n${lines}\n`);
        const env = { SHORT_SECRET: "short", GOOD_SECRET: SECRET, PIPED_SECRET_FILE: "/dev/zero" };
        const server = await spawnServer({ after() {} }, ["--config", conf], { env });
        const { code } = await server.ended;
        assert.notEqual(code, 0, lines);
        assert.match(server.stderr, why, lines);
    }
});

// ---- attacks ----

test("attack 4: no algorithm, or one that is none", async (t) => {
    const { faces } = await site(t);
    const head = (alg) => ({ alg, typ: "at+jwt", kid: "k-RS256" });
    const tokens = {};
    for (const alg of ["none", "nOnE", "NONE", "", 5, null, undefined, ["RS256"], "rs256"])
        tokens[`alg ${alg}`] = forge(head(alg), claims());
    tokens["none, unsigned"] = `${encode(head("none"))}.${encode(claims())}.`;
    tokens["empty secret"] = forge(head("HS256"), claims(), hmac(""));
    await refused(faces, tokens);
});

test("attack 5: a public key as the secret of an HMAC", async (t) => {
    const bare = makeKey("RS256", "bare", {});
    const { faces, keys, jwks, server } = await site(t);
    jwks.publish([...Object.values(keys), bare]);
    process.kill(server.pid, "SIGHUP");
    await told(server, "5 keys are in use");
    await accepted(faces, { "its own use": await mint(bare) });
    const tokens = {};
    for (const key of [keys.RS256, keys.ES256, bare])
        for (const [name, secret] of Object.entries({
            pem: key.publicKey.export({ type: "spki", format: "pem" }),
            der: key.publicKey.export({ type: "spki", format: "der" }),
            jwk: JSON.stringify(key.jwk),
            n: key.jwk.n ?? key.jwk.x,
        }))
            tokens[`${key.kid} as ${name}`] = forge({ alg: "HS256", kid: key.kid, typ: "at+jwt" }, claims(), hmac(secret));
    await refused(faces, tokens);
});

test("attack 6: another algorithm than the key's, and bent signatures", async (t) => {
    const { faces, keys } = await site(t);
    const { RS256, ES256 } = keys;
    const head = (alg, key) => ({ alg, kid: key.kid, typ: "at+jwt" });
    const pss = { key: RS256.privateKey, padding: 6, saltLength: 32 };
    const raw = (text) => sign("sha256", text, { key: ES256.privateKey, dsaEncoding: "ieee-p1363" });
    const es = (make) => forge(head("ES256", ES256), claims(), make);
    await accepted(faces, { "the way it should be": es(raw) });
    await refused(faces, {
        RS512: forge(head("RS512", RS256), claims(), (text) => sign("sha512", text, RS256.privateKey)),
        PS256: forge(head("PS256", RS256), claims(), (text) => sign("sha256", text, pss)),
        "PS256 said to be RS256": forge(head("RS256", RS256), claims(), (text) => sign("sha256", text, pss)),
        DER: es((text) => sign("sha256", text, ES256.privateKey)),
        zero: es(() => Buffer.alloc(64)),
        "63 bytes": es((text) => raw(text).subarray(0, 63)),
        "65 bytes": es((text) => Buffer.concat([raw(text), Buffer.alloc(1)])),
        "none at all": `${encode(head("ES256", ES256))}.${encode(claims())}.`,
    });
});

test("attack 7: a bit changed, parts swapped, too few and too many", async (t) => {
    const { faces, keys } = await site(t);
    const token = await mint(keys.EdDSA);
    const [header, payload, signature] = token.split(".");
    const tokens = {
        swapped: [payload, header, signature].join("."),
        "2 parts": `${header}.${payload}`,
        "4 parts": `${token}.${signature}`,
        "5 parts": `${token}.${payload}.${signature}`,
        "nothing but dots": "..",
    };
    const parts = [header, payload, signature].map((part) => Buffer.from(part, "base64url"));
    for (const [i, part] of parts.entries())
        for (const at of [0, part.length >> 1, part.length - 1]) {
            const bent = parts.map((bytes) => Buffer.from(bytes));
            bent[i][at] ^= 1;
            tokens[`part ${i}, byte ${at}`] = bent.map((bytes) => bytes.toString("base64url")).join(".");
        }
    await refused(faces, tokens);
    await accepted(faces, { untouched: token });
});

test("attack 8: a token has one spelling", async (t) => {
    const { faces, keys } = await site(t);
    const token = await mint(keys.EdDSA);
    const [header, payload, signature] = token.split(".");
    const last = signature.at(-1);
    const tail = String.fromCharCode(last.charCodeAt(0) + 1); // 64 bytes leave four bits that mean nothing
    assert.deepEqual(Buffer.from(signature.slice(0, -1) + tail, "base64url"), Buffer.from(signature, "base64url"));
    await accepted(faces, { "as it was": token });
    await refused(faces, {
        padding: `${token}==`,
        "padding inside": `${header}=.${payload}.${signature}`,
        "tail bits": token.slice(0, -1) + tail,
        plus: `${header}.${payload}.+${signature.slice(1)}`,
        slash: `${header}.${payload}./${signature.slice(1)}`,
        "white space": `${header} .${payload}.${signature}`,
        trailing: `${token}!`,
        "trailing dot": `${token}.`,
        "NUL in a claim": await mint(keys.EdDSA, { sub: "a\u0000b" }),
    });
});

test("attack 9: names twice, depth, length", async (t) => {
    const { server, faces, keys } = await site(t);
    const { kid, privateKey } = keys.EdDSA;
    const signed = (header, payload) => forge(header, payload, (text) => sign(null, text, privateKey));
    const head = `{"alg":"EdDSA","kid":"${kid}","typ":"at+jwt"}`;
    const body = JSON.stringify(claims());
    const twice = (name, value) => `${body.slice(0, -1)},"${name}":${value}}`;
    await accepted(faces, { "made by hand": signed(head, body) });
    await refused(faces, {
        alg: signed(`{"alg":"none",${head.slice(1)}`, body),
        sub: signed(head, twice("sub", '"root"')),
        exp: signed(head, twice("exp", now() + 60)),
        "escaped sub": signed(head, twice("s\\u0075b", '"root"')),
        depth: signed(head, twice("deep", `${"[".repeat(9)}${"]".repeat(9)}`)),
        "5 KiB": signed(head, twice("long", `"${"x".repeat(5000)}"`)),
        digits: signed(head, JSON.stringify(claims({ exp: undefined })).slice(0, -1) + `,"exp":${"9".repeat(2000)}}`),
        exponent: signed(head, JSON.stringify(claims({ exp: undefined })).slice(0, -1) + ',"exp":1e12}'),
    });
    for (const [where, parts] of Object.entries({
        header: (name, value) => [`{"${name}":${value},${head.slice(1)}`, body],
        payload: (name, value) => [head, `{"${name}":${value},${body.slice(1)}`],
    }))
        for (const name of where === "header" ? ["alg", "kid", "typ"] : ["iss", "aud", "sub", "exp", "iat", "jti"]) {
            // The same value twice, with a name in between, and spelt otherwise.
            const value = JSON.stringify(JSON.parse(where === "header" ? head : body)[name]);
            const escaped = `\\u00${name.charCodeAt(0).toString(16)}${name.slice(1)}`;
            await refused(faces, {
                [`${name} twice`]: signed(...parts(name, value)),
                [`${name} twice, escaped`]: signed(...parts(escaped, value)),
            });
        }
    // 10^6 digits never reach the verifier: heads have a limit, over either version.
    const digits = signed(head, `${JSON.stringify(claims({ exp: undefined })).slice(0, -1)},"exp":${"9".repeat(1_000_000)}}`);
    const raw = await openRaw(t, server);
    raw.send(`GET ${STREAM} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${digits}\r\n\r\n`);
    assert.equal((await raw.head()).status, 431);
    const h2 = new H2(t, server, { maxSendHeaderBlockLength: 4 * 1024 * 1024 });
    const ended = h2.open("GET", STREAM, { headers: bearer(digits) });
    const status = await within(
        Promise.race([ended.reply.then((reply) => reply[":status"]).catch(() => "reset"), h2.closed.then(() => "closed")]),
        "an answer to 10^6 digits",
    );
    assert.ok([431, "reset", "closed"].includes(status), `${status}`);
    await accepted(faces, { "afterwards": signed(head, body) });
});

test("attack 10: headers that would have us look elsewhere", async (t) => {
    const { faces, keys, jwks } = await site(t);
    const { EdDSA } = keys;
    const trap = await Jwks.start(t, [EdDSA]);
    const asked = jwks.asked;
    const tokens = {};
    for (const [name, value] of Object.entries({
        crit: ["exp"],
        b64: false,
        zip: "DEF",
        jku: trap.url,
        x5u: trap.url,
        jwk: EdDSA.jwk,
        x5c: ["MIIB"],
    })) {
        const header = { alg: "EdDSA", kid: EdDSA.kid, typ: "at+jwt", [name]: value };
        tokens[name] = forge(header, claims(), (text) => sign(null, text, EdDSA.privateKey));
    }
    await refused(faces, tokens);
    assert.equal(trap.asked, 0, "nobody was asked for keys");
    assert.equal(jwks.asked, asked);
});

test("attack 11: kids that are none, and 10,000 that are not known", async (t) => {
    const { server, faces, keys, jwks } = await site(t);
    const { privateKey } = keys.EdDSA;
    const tokens = {};
    for (const kid of ["../../key", "http://127.0.0.1/key", "' OR 1=1 --", "k".repeat(65), "", 7, "unknown"]) {
        const header = { alg: "EdDSA", kid, typ: "at+jwt" };
        tokens[`kid ${kid}`] = forge(header, claims(), (text) => sign(null, text, privateKey));
    }
    await refused(faces, tokens);
    const payload = claims();
    let at = 0;
    const run = async () => {
        while (at < 10_000) {
            const headers = bearer(forge({ alg: "EdDSA", kid: `u${at++}`, typ: "at+jwt" }, payload));
            assert.equal((await server.request("GET", STREAM, { headers })).status, 401);
        }
    };
    await Promise.all(Array.from({ length: 16 }, run));
    assert.ok(jwks.asked <= 2, `${jwks.asked} fetches, the first one at the start`);
});

test("attack 12: one issuer's key under another's name", async (t) => {
    const stranger = makeKey("EdDSA", "k-EdDSA"); // the same kid
    const file = join(await tempFolder(t), "other.json");
    await writeFile(file, JSON.stringify({ keys: [stranger.jwk] }));
    const sections = `\n[issuer other]\niss = https://other.example/\njwks = ${file}\ngrant = read shared/**\n`;
    const { faces, keys } = await site(t, { sections });
    const iss = "https://other.example/";
    await accepted(faces, { first: await mint(keys.EdDSA), second: await mint(stranger, { iss }) });
    await refused(faces, { "A's key as B": await mint(keys.EdDSA, { iss }), "B's key as A": await mint(stranger) });
});

test("attack 13: other issuers and audiences", async (t) => {
    const { faces, keys } = await site(t);
    const tokens = {};
    for (const iss of [`${ISS}/`, ISS.slice(0, -1), ISS.toUpperCase(), "", undefined, [ISS], "tidemark"])
        tokens[`iss ${iss}`] = await mint(keys.ES256, { iss });
    for (const aud of ["https://other.example", undefined, [], "", `${AUD}/`, [AUD, 5], {}])
        tokens[`aud ${JSON.stringify(aud)}`] = await mint(keys.ES256, { aud });
    await refused(faces, tokens);
    await accepted(faces, { "one of two": await mint(keys.ES256, { aud: ["https://other.example", AUD] }) });
});

test("attack 14: too late, too early, too long", async (t) => {
    const { faces, keys } = await site(t);
    const at = now();
    await accepted(faces, { "within the skew": await mint(keys.ES256, { iat: at + 10, nbf: at + 10 }) });
    await refused(faces, {
        expired: await mint(keys.ES256, { iat: at - 600, exp: at - 31 }),
        "nbf ahead": await mint(keys.ES256, { nbf: at + 120 }),
        "iat ahead": await mint(keys.ES256, { iat: at + 120 }),
        "no exp": await mint(keys.ES256, { exp: undefined }),
        "no iat": await mint(keys.ES256, { iat: undefined }),
        "10 years": await mint(keys.ES256, { exp: at + 10 * 365 * 86_400 }),
        "exp before iat": await mint(keys.ES256, { iat: at, exp: at - 1 }),
    });
});

test("attack 15: another kind of token than the place is for", async (t) => {
    const { faces, keys } = await site(t);
    const token = await mint(keys.ES256);
    await refused(faces, {
        "id token": await mint(keys.ES256, {}, { typ: "JWT" }),
        untyped: await mint(keys.ES256, {}, { typ: undefined }),
        link: await mint(keys.ES256, {}, { typ: "tm-link+jwt" }),
    });
    for (const grant of [token, CI, await mint(keys.ES256, {}, { typ: "tm-link+jwt" })])
        for (const face of Object.values(faces)) {
            const answer = await face.request("GET", `${STREAM}?grant=${grant}`);
            assert.equal(answer.status, 401, "an access token as a link");
        }
    await accepted(faces, { "which is good all the same": token, "as is a caller's": CI });
    await accepted(faces, { "typ in full": await mint(keys.ES256, {}, { typ: "application/at+jwt" }) });
});

test("attack 16: a JWKS that misbehaves changes nothing", async (t) => {
    const { server, faces, keys, jwks } = await site(t);
    const token = await mint(keys.ES256);
    const intruder = makeKey("ES256", "intruder");
    const trap = await Jwks.start(t, [intruder]);
    const small = { kty: "RSA", kid: "small", alg: "RS256", e: "AQAB", n: encode("\x80" + "n".repeat(62) + "\x01") };
    const many = Array.from({ length: 10_000 }, (_, i) => ({ ...intruder.jwk, kid: `k${i}` }));
    const cases = {
        "302": () => jwks.say(302, "", { location: trap.url }),
        "404": () => jwks.say(404, JSON.stringify({ keys: [intruder.jwk] })),
        "1 MiB": () => jwks.say(200, JSON.stringify({ keys: [intruder.jwk], more: "x".repeat(1024 * 1024) })),
        "10,000 keys": () => jwks.say(200, JSON.stringify({ keys: many })),
        "bad JSON": () => jwks.say(200, '{"keys":['),
        oct: () => jwks.say(200, JSON.stringify({ keys: [{ kty: "oct", kid: "o", k: encode(SECRET) }] })),
        "RSA 512": () => jwks.say(200, JSON.stringify({ keys: [small] })),
        drip: () => {
            jwks.answer = (response) => {
                response.writeHead(200).flushHeaders();
                const timer = setInterval(() => response.write(" "), 100);
                response.on("close", () => clearInterval(timer));
            };
        },
    };
    let failures = 0;
    for (const [name, misbehave] of Object.entries(cases)) {
        misbehave();
        process.kill(server.pid, "SIGHUP");
        await told(server, "its keys cannot be had", ++failures);
        await accepted(faces, { [name]: token });
        await refused(faces, { [name]: await mint(intruder) });
    }
    assert.equal(trap.asked, 0, "redirects are not followed");
});

test("attack 17: a key that is gone takes its tokens along, those in memory too", async (t) => {
    const { server, faces, keys, jwks } = await site(t);
    const [gone, stays] = [await mint(keys.ES256), await mint(keys.EdDSA)];
    await accepted(faces, { gone, stays });
    const fresh = makeKey("ES256", "fresh");
    jwks.publish([keys.EdDSA, fresh]);
    process.kill(server.pid, "SIGHUP");
    await told(server, "2 keys are in use");
    await refused(faces, { gone });
    await accepted(faces, { stays, fresh: await mint(fresh) });
});

test("attack 23: a claim that is no segment makes its grant void, and no other", async (t) => {
    const { server, faces, keys } = await site(t, { more: "grant = read teams/{team}/**" });
    const names = ["mine/alice/x", "mine/x", "mine/a/b", "teams/red/x", "teams/x"];
    for (const name of names) await server.create(name, "text/plain", { headers: bearer(CI) });
    /** What a token with these claims gets of each name, over both versions: one status for all. */
    const statuses = async (changes, paths) => {
        const token = await mint(keys.ES256, changes);
        const seen = new Set();
        for (const face of Object.values(faces))
            for (const path of paths)
                seen.add((await face.request("GET", `/v1/stream/${path}`, { headers: bearer(token) })).status);
        return [...seen];
    };
    const mine = ["mine/alice/x", "mine/x", "mine/a/b", "mine/*/x", "mine/%2e%2e/x", "mine//x", "mine/"];
    const teams = ["teams/red/x", "teams/x", "teams/*/x", "teams/%2e%2e/x"];
    assert.deepEqual(await statuses({ sub: "alice" }, ["mine/alice/x"]), [200]);
    assert.deepEqual(await statuses({ team: "red" }, ["teams/red/x"]), [200]);
    for (const value of ["*", "**", "a/b", "..", ".", "alice/", "/alice", "al ice", "alic\u00e9", "alice%2fx", "{sub}"]) {
        assert.deepEqual(await statuses({ sub: value }, mine), [403], `sub ${value}`);
        assert.deepEqual(await statuses({ team: value }, teams), [403], `team ${value}`);
        assert.deepEqual(await statuses({ sub: value, team: value }, ["shared/a"]), [200], "what has no claim in it");
    }
    for (const value of ["", "x".repeat(129), 7, null, true, ["red"], { red: 1 }, undefined])
        assert.deepEqual(await statuses({ team: value }, teams), [403], `team ${JSON.stringify(value)}`);
    assert.deepEqual(await statuses({ sub: undefined }, mine), [403]);
    // A sub that is none at all is not a good token (RFC 7519: a string), so nothing is granted.
    for (const value of ["", "x".repeat(129), 7, null, ["alice"]])
        assert.deepEqual(await statuses({ sub: value }, [...mine, "shared/a"]), [401], `sub ${JSON.stringify(value)}`);
});

/** A live reader with this token: { ended }, once its answer has begun. */
async function follow(t, server, token) {
    const abort = new AbortController();
    defer(t, () => abort.abort());
    const headers = bearer(token);
    const answer = await fetch(server.url("shared/a", "?offset=now&live=sse"), { headers, signal: abort.signal });
    assert.equal(answer.status, 200);
    const reader = { over: false };
    reader.ended = answer.text().then(() => (reader.over = true));
    reader.ended.catch(() => {});
    return reader;
}

test("attacks 17 and 32: answers under way end with the key or the section of whoever reads", async (t) => {
    const sections = `\n[caller guest]\ntoken-sha256 = ${digest("guest")}\ngrant = read shared/**\n`;
    const { server, keys, jwks, file, text } = await site(t, { sections });
    const open = (token) => follow(t, server, token);
    const readers = {
        key: await open(await mint(keys.ES256)),
        guest: await open("guest"),
        other: await open(await mint(keys.EdDSA)),
        ci: await open(CI),
    };
    const ends = (name) => within(readers[name].ended, `${name} to end`, 5_000);
    const goOn = (...names) => {
        for (const name of names) assert.equal(readers[name].over, false, name);
    };
    jwks.publish([keys.EdDSA, keys.RS256]);
    process.kill(server.pid, "SIGHUP");
    await ends("key");
    goOn("guest", "other", "ci");
    await writeFile(file, text.replace("grant = read shared/**\n", "grant = read elsewhere/**\n"));
    process.kill(server.pid, "SIGHUP");
    await ends("guest");
    goOn("other", "ci");
    await writeFile(file, text.replace(sections, "").replace(ISS, "https://id2.example/"));
    process.kill(server.pid, "SIGHUP");
    await ends("other");
    goOn("ci");
    await writeFile(file, text.replace(digest(CI), digest("another")));
    process.kill(server.pid, "SIGHUP");
    await ends("ci");
});

test("an address that shows ten bad tokens is heard no more, but for tokens that are remembered", async (t) => {
    const { server, keys } = await site(t, { flags: ["--address-failures", "10"] });
    const status = async (token) => (await server.request("GET", STREAM, { headers: bearer(token) })).status;
    const [known, unknown] = [await mint(keys.ES256), await mint(keys.EdDSA)];
    assert.equal(await status(known), 200);
    for (let i = 0; i < 10; i++) assert.equal(await status(`bad-${i}`), 401);
    assert.equal(await status("bad-10"), 429);
    assert.equal(await status(unknown), 429, "nobody looks at it");
    assert.equal(await status(known), 200, "nobody locks others out who share the address");
});

test("attack 18: what is not good is never taken for nobody", async (t) => {
    const sections = "\n[anonymous]\ngrant = read shared/**\n";
    const { server, faces, keys } = await site(t, { sections });
    for (const face of Object.values(faces)) assert.equal((await face.request("GET", STREAM)).status, 200);
    const at = now();
    await refused(faces, {
        wrong: "no-such-token",
        expired: await mint(keys.ES256, { iat: at - 600, exp: at - 60 }),
        foreign: await mint(makeKey("ES256", "k-ES256")),
    });
    const cookie = await server.request("GET", STREAM, { headers: { cookie: "__Host-tidemark=no-such-token" } });
    assert.equal(cookie.status, 401);
    const bare = await server.request("GET", STREAM, { headers: { authorization: "Bearer" } });
    assert.equal(bare.status, 401, "an empty one");
});

test("a broken issuer in a reload leaves all as it was", async (t) => {
    const { server, faces, keys, file, text } = await site(t);
    const token = await mint(keys.ES256);
    await accepted(faces, { token });
    await writeFile(file, `${text}\n[issuer broken]\niss = x\njwks = /nowhere/at/all.json\n`);
    process.kill(server.pid, "SIGHUP");
    await told(server, "the settings in use stay");
    await accepted(faces, { token });
    await refused(faces, { none: "no-such-token" });
    await writeFile(file, text.replace(ISS, "https://id2.example/"));
    process.kill(server.pid, "SIGHUP");
    await told(server, "4 keys are in use", 1);
    await told(server, "in use now: \\[issuer\\]");
    await refused(faces, { token });
});

// ---- certificates ----

/** A client's certificate with these alternative names, and its key. */
function clientCertificate(authority, name, san) {
    const cert = join(authority.folder, `${name}.pem`);
    const key = join(authority.folder, `${name}-key.pem`);
    const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    const names = san ? ["-addext", `subjectAltName=${san}`] : [];
    const signer = ["-CA", authority.cert, "-CAkey", authority.key, "-days", "2"];
    const args = ["req", "-x509", ...signer, ...kind, "-subj", `/CN=${name}`, ...names, "-keyout", key, "-out", cert];
    execFileSync("openssl", args, { stdio: "pipe" });
    return { cert: readFileSync(cert, "utf8"), key: readFileSync(key, "utf8") };
}

/** One that the authority has dated back: only `openssl ca` does that. */
function expiredCertificate(authority, san) {
    const at = (name) => join(authority.folder, name);
    const openssl = (...args) => execFileSync("openssl", args, { stdio: "pipe" });
    writeFileSync(at("index.txt"), "");
    writeFileSync(
        at("ca.conf"),
        `[x]\ndatabase = ${at("index.txt")}\nnew_certs_dir = ${authority.folder}\nrand_serial = yes\n` +
            "default_md = sha256\npolicy = any\ncopy_extensions = copy\n[any]\ncommonName = optional\n",
    );
    const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    const files = ["-keyout", at("old-key.pem"), "-out", at("old.csr")];
    openssl("req", "-new", ...kind, "-subj", "/CN=old", "-addext", `subjectAltName=${san}`, ...files);
    const signer = ["-config", at("ca.conf"), "-name", "x", "-cert", authority.cert, "-keyfile", authority.key];
    const dates = ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"];
    openssl("ca", "-batch", "-notext", ...signer, ...dates, "-in", at("old.csr"), "-out", at("old.pem"));
    return { cert: readFileSync(at("old.pem"), "utf8"), key: readFileSync(at("old-key.pem"), "utf8") };
}

/** The status of one request over a connection with this certificate, over either version. */
async function statusWith(server, trust, certificate, { version = 1, headers = {}, session, path = STREAM } = {}) {
    const options = { ...trust, ...certificate, servername: "localhost", session };
    if (version === 2) {
        const client = connectH2(server.base, options);
        try {
            return await new Promise((resolve, reject) => {
                client.on("error", reject);
                const stream = client.request({ ":path": path, ...headers });
                stream.on("error", reject).on("response", (reply) => resolve(reply[":status"])).resume();
            });
        } finally {
            client.destroy();
        }
    }
    const agent = new Agent({ connect: options });
    try {
        return (await request(server.base + path, { dispatcher: agent, headers })).statusCode;
    } finally {
        await agent.destroy();
    }
}

async function secureSite(t) {
    const authority = await Authority.create(t);
    const clients = await Authority.create(t);
    const tls = authority.issue("server");
    const sections = `public-url = ${AUD}
[caller ci]
token-sha256 = ${digest(CI)}
grant = read, create, append **
[caller robot]
certificate = spiffe://example/robot
grant = read shared/**
[caller printer]
certificate = Printer.example
grant = read shared/**
`;
    const h2 = { ca: tls.ca, servername: "localhost" };
    const found = await startWith(t, sections, ["--tls-client-ca", clients.cert], { tls, h2 });
    await found.server.create("shared/a", "text/plain", { headers: bearer(CI) });
    return { ...found, authority, clients, trust: { ca: tls.ca } };
}

test("a certificate says who calls, where nothing else does", async (t) => {
    const { server, clients, trust } = await secureSite(t);
    const robot = clientCertificate(clients, "robot-file", "URI:spiffe://example/robot");
    const printer = clientCertificate(clients, "printer-file", "DNS:other.example,DNS:PRINTER.example");
    for (const version of [1, 2]) {
        assert.equal(await statusWith(server, trust, robot, { version }), 200);
        assert.equal(await statusWith(server, trust, printer, { version }), 200);
        assert.equal(await statusWith(server, trust, {}, { version }), 401, "none is asked for by force");
        assert.equal(await statusWith(server, trust, robot, { version, path: "/v1/stream/private" }), 403);
        assert.equal(await statusWith(server, trust, robot, { version, headers: bearer("x") }), 401);
        assert.equal(await statusWith(server, trust, {}, { version, headers: bearer(CI) }), 200);
    }
});

test("a session that comes back by a ticket is who it was", async (t) => {
    const { server, authority, clients, trust } = await secureSite(t);
    const robot = clientCertificate(clients, "robot-file", "URI:spiffe://example/robot");
    const trusted = readFileSync(clients.cert);
    let reloads = 0;
    for (const maxVersion of ["TLSv1.2", "TLSv1.3"]) {
        const ask = async (certificate, session) => {
            const options = { ...server.where, ...trust, ...certificate, servername: "localhost", maxVersion, session };
            const socket = connect(options);
            defer(t, () => socket.destroy());
            const tickets = [];
            socket.on("session", (ticket) => tickets.push(ticket));
            await once(socket, "secureConnect");
            const reused = socket.isSessionReused();
            socket.write(`GET ${STREAM} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
            let text = "";
            socket.setEncoding("latin1").on("data", (data) => (text += data));
            await once(socket, "close");
            return { status: Number(text.split(" ")[1]), ticket: tickets.at(-1), reused };
        };
        const first = await ask(robot);
        assert.deepEqual([first.status, first.reused], [200, false]);
        const second = await ask({}, first.ticket); // the ticket alone
        assert.deepEqual([second.status, second.reused], [200, true], maxVersion);
        const nobody = await ask({});
        const again = await ask({}, nobody.ticket);
        assert.deepEqual([again.status, again.reused], [401, true]);
        writeFileSync(clients.cert, readFileSync(authority.cert)); // whom we trust now
        process.kill(server.pid, "SIGHUP");
        await told(server, "new connections get the certificate", ++reloads);
        const late = await ask({}, first.ticket);
        assert.deepEqual([late.status, late.reused], [401, false], "a ticket of other authorities");
        writeFileSync(clients.cert, trusted);
        process.kill(server.pid, "SIGHUP");
        await told(server, "new connections get the certificate", ++reloads);
    }
});

test("attack 41: certificates that are not good", async (t) => {
    const { server, authority, clients, trust } = await secureSite(t);
    const uri = "URI:spiffe://example/robot";
    const bad = {
        foreign: clientCertificate(authority, "foreign", uri),
        expired: expiredCertificate(clients, uri),
    };
    for (const [name, certificate] of Object.entries(bad))
        for (const version of [1, 2])
            await assert.rejects(statusWith(server, trust, certificate, { version }), `${name}: the handshake fails`);
    await told(server, "TLS with a peer failed: certificate has expired", 2);
    for (const [name, san] of Object.entries({
        "spiffe://example/robot": undefined, // as CN alone
        "printer.example": undefined,
        both: `${uri},DNS:printer.example`,
        nobody: "DNS:nobody.example",
        "a URI as a DNS name": "DNS:spiffe://example/robot",
        "a DNS name as a URI": "URI:printer.example",
        mail: "email:robot@printer.example",
    })) {
        const certificate = clientCertificate(clients, name.replace(/\W/g, "-"), san);
        for (const version of [1, 2])
            assert.equal(await statusWith(server, trust, certificate, { version }), 401, `${name} over HTTP/${version}`);
    }
});
