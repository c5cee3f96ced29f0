// SPDX-License-Identifier: Apache-2.0
// An identity provider for one test: keys, tokens by jose or by hand, and a JWKS on loopback that can be made to
// misbehave; and a server that takes its tokens.
import { createHmac, generateKeyPairSync, randomUUID } from "node:crypto";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { SignJWT } from "jose";
import { defer } from "./defer.mjs";
import { H2 } from "./h2.mjs";
import { startServer } from "./server.mjs";
import { tempFolder } from "./temp.mjs";
import { within } from "./wait.mjs";

export const AUD = "https://tidemark.example";
export const ISS = "https://id.example/";

const KINDS = {
    RS256: ["rsa", { modulusLength: 2048 }],
    PS256: ["rsa", { modulusLength: 2048 }],
    ES256: ["ec", { namedCurve: "P-256" }],
    EdDSA: ["ed25519", {}],
};

export const now = () => Math.floor(Date.now() / 1000);
export const encode = (value) =>
    Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

/** A key pair with its JWK; more: further members of that. */
export function makeKey(alg, kid, more = { alg }) {
    const [type, options] = KINDS[alg];
    const { privateKey, publicKey } = generateKeyPairSync(type, options);
    return { alg, kid, privateKey, publicKey, jwk: { ...publicKey.export({ format: "jwk" }), kid, ...more } };
}

/** Claims of a good token of `iss`; undefined takes one out. */
export function claims(changes = {}) {
    const at = now();
    return { iss: ISS, aud: AUD, sub: "alice", jti: randomUUID(), iat: at, exp: at + 600, ...changes };
}

/** A token by jose, which refuses to make some. */
export function mint(key, changes = {}, header = {}) {
    return new SignJWT(claims(changes))
        .setProtectedHeader({ alg: key.alg, kid: key.kid, typ: "at+jwt", ...header })
        .sign(key.privateKey ?? key.secret);
}

/** A token by hand: header and payload as texts or objects, and what makes bytes of "header.payload". */
export function forge(header, payload, signature = () => Buffer.alloc(64, 1)) {
    const text = `${encode(header)}.${encode(payload)}`;
    return `${text}.${Buffer.from(signature(text)).toString("base64url")}`;
}

export const hmac = (secret) => (text) => createHmac("sha256", secret).update(text).digest();

/** A JWKS on loopback: `answer` is what it does with a request, `asked` how many there were. */
export class Jwks {
    asked = 0;
    paths = [];

    static async start(t, keys) {
        const jwks = new Jwks();
        jwks.publish(keys);
        jwks.server = createServer((request, response) => {
            jwks.asked++;
            jwks.paths.push(request.url);
            jwks.answer(response, request);
        });
        jwks.server.listen(0, "127.0.0.1");
        await once(jwks.server, "listening");
        defer(t, () => {
            jwks.server.closeAllConnections();
            jwks.server.close();
        });
        jwks.url = `http://127.0.0.1:${jwks.server.address().port}/jwks.json`;
        return jwks;
    }

    publish(keys) {
        this.say(200, JSON.stringify({ keys: keys.map(({ jwk }) => jwk) }));
    }

    say(status, body, headers = {}) {
        this.answer = (response) => response.writeHead(status, headers).end(body);
    }
}

/** Waits until the server has said this so often. */
export async function told(server, pattern, times = 1) {
    const said = () => server.stderr.match(new RegExp(pattern, "g"))?.length ?? 0;
    const wait = async () => {
        while (said() < times) await new Promise((resolve) => setTimeout(resolve, 10));
    };
    await within(wait(), `${pattern}, ${times} times`, 15_000);
}

/** A server with these sections in its config file, and both of its faces. */
export async function startWith(t, sections, flags = [], options = {}) {
    const file = join(await tempFolder(t), "tidemark.conf");
    await writeFile(file, sections);
    const server = await startServer(t, ["--config", file, "--trace-level", "debug", ...flags], options);
    const h2 = new H2(t, server, options.h2);
    return { server, file, faces: { "HTTP/1.1": server, "HTTP/2": h2 } };
}

export const bearer = (token) => ({ authorization: `Bearer ${token}` });
