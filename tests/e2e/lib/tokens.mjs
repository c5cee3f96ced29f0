// SPDX-License-Identifier: Apache-2.0
// Tokens for jwt-oracles.test.mjs: good ones, and such as are wrong in one way or a few. Headers and payloads
// are lists of [name, value] in JSON text, so that names can come twice and numbers in any spelling.
import { createHmac, createPublicKey, generateKeyPairSync, sign } from "node:crypto";

export const NOW = 1_700_000_000;
export const AUD = "https://tidemark.example";
export const ISSUER = "https://id.example/";
export const SECRET_ISSUER = "https://backend.example/";
const SECRET = "0123456789abcdef0123456789abcdef";

const RSA = { modulusLength: 2048 };
const kinds = {
    rs: ["RS256", "rsa", RSA],
    ps: ["PS256", "rsa", RSA],
    es: ["ES256", "ec", { namedCurve: "P-256" }],
    ed: ["EdDSA", "ed25519", {}],
};

/** Keys by kid: alg, iss, and the key as PEM and JWK, or as a secret. */
export function makeKeys() {
    const keys = {};
    for (const [kid, [alg, type, options]] of Object.entries(kinds)) {
        const { privateKey, publicKey } = generateKeyPairSync(type, options);
        keys[kid] = {
            alg,
            iss: ISSUER,
            privateKey,
            private: privateKey.export({ type: "pkcs8", format: "pem" }),
            pem: publicKey.export({ type: "spki", format: "pem" }),
            jwk: { ...publicKey.export({ format: "jwk" }), kid, alg },
        };
    }
    keys.hs = { alg: "HS256", iss: SECRET_ISSUER, secret: SECRET };
    return keys;
}

const encode = (bytes) => Buffer.from(bytes).toString("base64url");
const pick = (random, list) => list[random.below(list.length)];
const json = (members) => `{${members.map(([name, value]) => `${name}:${value}`).join(",")}}`;
const quote = JSON.stringify;

// ---- signatures ----

const hmac = (secret, text) => createHmac("sha256", secret).update(text).digest();
const pss = (key, saltLength) => ({ key, padding: 6, saltLength });

const signers = {
    RS256: (key, text) => sign("sha256", text, key.privateKey),
    PS256: (key, text) => sign("sha256", text, pss(key.privateKey, 32)),
    ES256: (key, text) => sign("sha256", text, { key: key.privateKey, dsaEncoding: "ieee-p1363" }),
    EdDSA: (key, text) => sign(null, text, key.privateKey),
    HS256: (key, text) => hmac(key.secret ?? SECRET, text),
};

/** Wrong ways to sign, of which some keys know more than others. */
const forgers = [
    (key, text) => hmac(key.pem ?? "", text),
    (key, text) =>
        key.pem
            ? hmac(createPublicKey(key.pem).export({ type: "spki", format: "der" }), text)
            : hmac("", text),
    (key, text) => hmac(JSON.stringify(key.jwk ?? key.secret.toUpperCase()), text),
    (key, text) => (key.alg === "ES256" ? sign("sha256", text, key.privateKey) : hmac(SECRET, text)),
    (key, text) =>
        key.alg.endsWith("S256") && key.privateKey && key.alg !== "ES256"
            ? sign("sha256", text, pss(key.privateKey, 20))
            : Buffer.alloc(64),
    (key, text) =>
        key.alg === "PS256" ? sign("sha256", text, key.privateKey) : Buffer.alloc(256, 1),
    (key, text) => (key.alg === "RS256" ? sign("sha512", text, key.privateKey) : Buffer.alloc(32)),
    () => Buffer.alloc(0),
];

// ---- drafts ----

function draft(kid, keys, random) {
    const key = keys[kid];
    const at = NOW - random.below(500);
    return {
        key,
        header: [
            ['"alg"', quote(key.alg)],
            ['"typ"', '"at+jwt"'],
            ['"kid"', quote(kid)],
        ],
        payload: [
            ['"iss"', quote(key.iss)],
            ['"aud"', quote(AUD)],
            ['"sub"', `"u${random.below(1000)}"`],
            ['"iat"', `${at}`],
            ['"exp"', `${at + 600}`],
        ],
        space: "",
        signer: signers[key.alg],
    };
}

/** The token in bytes. */
function seal({ key, header, payload, space, signer }) {
    const text = `${encode(json(header))}.${encode(space + json(payload) + space)}`;
    return Buffer.from(`${text}.${encode(signer(key, Buffer.from(text)))}`);
}

/** Another value for a member, which is put in if it is not there; or the member away. */
function change(members, name, value) {
    const at = members.findIndex(([other]) => other === quote(name));
    if (value === undefined) members.splice(at < 0 ? 0 : at, at < 0 ? 0 : 1);
    else if (at < 0) members.push([quote(name), value]);
    else members[at] = [members[at][0], value];
}

// ---- what the holder of a key may do wrong ----

const ALGS = ["none", "None", "", "HS256", "RS256", "PS256", "ES256", "EdDSA", "Ed25519"];
const MORE_ALGS = ["RS512", "HS512", "ES384", "es256", "HS256 "];
const TYPES = ["application/at+jwt", "JWT", "AT+JWT", "", "tm-link+jwt", "at+jwt "];
const KIDS = ["rs", "ps", "es", "ed", "hs", "", "../../key", "https://id.example/k", "x' OR 1=1", "hS"];
const HEADERS = [
    ["crit", '["exp"]'],
    ["crit", "[]"],
    ["b64", "true"],
    ["b64", "false"],
    ["zip", '"DEF"'],
    ["jku", '"https://id.example/jwks"'],
    ["x5u", '"https://id.example/x"'],
    ["jwk", "{}"],
    ["x5c", "[]"],
    ["cty", '"JWT"'],
    ["x5t", '"AAAA"'],
    ["extra", "[1,{}]"],
];
const ISSUERS = [ISSUER, SECRET_ISSUER, ISSUER.slice(0, -1), `${ISSUER}/`, ISSUER.toUpperCase(), ""];
const AUDIENCES = [
    quote([AUD]),
    quote(["x", AUD]),
    quote(Array(16).fill(AUD)),
    quote(Array(17).fill(AUD)),
    quote(`${AUD}/`),
    '"x"',
    '""',
    "[]",
    '["x"]',
    `[7,${quote(AUD)}]`,
    `[${quote(AUD)},null]`,
    "null",
    "7",
    `{"a":${quote(AUD)}}`,
    `[[${quote(AUD)}]]`,
];
const NAMES = ['""', '"x"', "7", "null", "[]", '"\\u0075"', '"\\ud83d\\ude00"', '"é"', '"a\\u0000b"'];
const SIZES = [127, 128, 129, 600];
const OTHERS = [
    '{"a":{"a":{"a":1}}}',
    "[[[[[[[1]]]]]]]",
    "[[[[[[[[1]]]]]]]]",
    "12345678901234567890123",
    "1e400",
    "1e-400",
    "-0",
    '"\\ud800"',
    '{"b":1,"b":2}',
    "1.5",
    "true",
    "NaN",
    "01",
    "'x'",
];
const SPACES = [" ", "\n", "\t \r\n", "\ufeff", "\v", "\0"];

/** A time at one of the limits, or in a spelling of its own. */
function date(random) {
    const near = pick(random, [0, 0, 30, -30, 3600, -3600, 600, 31_536_000]);
    const v = NOW + near + random.below(5) - 2;
    const spellings = [`${v}.0`, `${v}e0`, `"${v}"`, "null", "-1", "0", "9007199254740993", "1e999"];
    return random.below(4) ? `${v}` : pick(random, [...spellings, "true", "[]", `0${v}`, `${v}.5`]);
}

const text = (random, list) => (random.below(8) ? quote(pick(random, list)) : pick(random, ["7", "null", undefined]));

const wrongs = [
    (d, random) => change(d.header, "alg", text(random, random.below(3) ? ALGS : MORE_ALGS)),
    (d, random) => change(d.header, "typ", text(random, TYPES)),
    (d, random) => change(d.header, "kid", text(random, KIDS)),
    (d, random) => change(d.header, ...pick(random, HEADERS)),
    (d, random) => change(d.payload, "iss", text(random, ISSUERS)),
    (d, random) => change(d.payload, "aud", random.below(10) ? pick(random, AUDIENCES) : undefined),
    (d, random) => change(d.payload, "exp", random.below(10) ? date(random) : undefined),
    (d, random) => change(d.payload, "iat", random.below(10) ? date(random) : undefined),
    (d, random) => change(d.payload, "nbf", date(random)),
    (d, random) => change(d.payload, pick(random, ["sub", "jti"]), pick(random, NAMES)),
    (d, random) => change(d.payload, pick(random, ["sub", "jti"]), `"${"x".repeat(pick(random, SIZES))}"`),
    (d, random) => change(d.payload, `x${random.below(3)}`, pick(random, OTHERS)),
    (d, random) => change(d.payload, "long", `"${"x".repeat(random.below(3200))}"`),
    (d, random) => (d.space = pick(random, SPACES)),
    (d, random) => (d.signer = pick(random, [...forgers, signers.HS256])),
    // at the end of its life, give or take two seconds
    (d, random) => {
        const at = NOW - 632 + random.below(5);
        change(d.payload, "iat", `${at}`);
        change(d.payload, "exp", `${at + 600}`);
    },
    // a name twice, or spelled in another way
    (d, random) => {
        const members = pick(random, [d.header, d.payload]);
        const [name, value] = pick(random, members);
        members.splice(random.below(members.length + 1), 0, [name, pick(random, [value, '"x"'])]);
    },
    (d, random) => {
        const members = pick(random, [d.header, d.payload]);
        const at = random.below(members.length);
        const [name, value] = members[at];
        const code = name.charCodeAt(1).toString(16).padStart(4, "0");
        members[at] = [`"\\u${code}${name.slice(2)}`, value];
    },
    (d, random) => {
        const members = pick(random, [d.header, d.payload]);
        members.push(members.shift());
    },
];

// ---- what everybody may do ----

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const TAILS = ["=", "==", "\n", " ", ".", "A", "AA", "\0", "#", "%3D", "..", ".A"];

const splice = (token, at, away, put) =>
    Buffer.concat([token.subarray(0, at), Buffer.from(put), token.subarray(at + away)]);

const damages = [
    (token, random) => splice(token, random.below(token.length), 1, pick(random, LETTERS)),
    (token, random) => splice(token, random.below(token.length), 0, pick(random, LETTERS)),
    (token, random) => splice(token, random.below(token.length), 1, ""),
    (token, random) => splice(token, random.below(token.length), 1, [random.below(256)]),
    (token, random) => splice(token, random.below(token.length), 0, pick(random, [..."+/=.~ \n\0é"])),
    (token, random) => splice(token, token.length - 1, 1, pick(random, LETTERS)), // tail bits
    (token, random) => Buffer.concat([token, Buffer.from(pick(random, TAILS))]),
    (token, random) => Buffer.concat([Buffer.from(pick(random, TAILS)), token]),
    (token) => Buffer.from(token.toString("latin1").replaceAll("-", "+").replaceAll("_", "/"), "latin1"),
    (token, random) => {
        const parts = token.toString("latin1").split(".");
        const n = pick(random, [2, 3, 3, 4, 5]);
        return Buffer.from(Array.from({ length: n }, () => pick(random, parts)).join("."), "latin1");
    },
    // the tail bits, or padding, of one part
    (token, random) => {
        const parts = token.toString("latin1").split(".");
        const at = random.below(parts.length);
        const next = LETTERS[(LETTERS.indexOf(parts[at].at(-1)) + 1) % 64];
        parts[at] = pick(random, [parts[at].slice(0, -1) + next, `${parts[at]}=`, `${parts[at]} `]);
        return Buffer.from(parts.join("."), "latin1");
    },
];

/** n tokens: most of them made here, and others (`given`) damaged. */
export function makeTokens(n, keys, given, random) {
    const kids = ["hs", "hs", "es", "es", "ed", "ed", "rs", "ps"]; // RSA takes long to sign
    return Array.from({ length: n }, () => {
        if (random.below(5) === 0) return pick(random, damages)(Buffer.from(pick(random, given)), random);
        const d = draft(pick(random, kids), keys, random);
        for (let wrong = random.below(4); wrong > 0; wrong--) pick(random, wrongs)(d, random);
        const token = seal(d);
        return random.below(6) ? token : pick(random, damages)(token, random);
    });
}
