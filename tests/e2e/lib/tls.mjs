// SPDX-License-Identifier: Apache-2.0
// Certificates of an authority that exists for one test, made with the openssl command.
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { connect } from "node:tls";
import { defer } from "./defer.mjs";
import { tempFolder } from "./temp.mjs";

const KIND = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
const NAMES = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];

function openssl(...args) {
    execFileSync("openssl", args, { stdio: "pipe" });
}

export class Authority {
    /** An authority in a folder that the test `t` removes. */
    static async create(t) {
        return new Authority(await tempFolder(t));
    }

    constructor(folder) {
        this.folder = folder;
        this.cert = join(folder, "ca.pem");
        this.key = join(folder, "ca-key.pem");
        const files = ["-keyout", this.key, "-out", this.cert];
        openssl("req", "-x509", ...KIND, "-nodes", "-subj", "/CN=an authority", ...files);
    }

    /** Files of a certificate for this machine: { cert, key, ca }, the last as text. */
    issue(name, { password } = {}) {
        const cert = join(this.folder, `${name}.pem`);
        const key = join(this.folder, `${name}-key.pem`);
        const signer = ["-CA", this.cert, "-CAkey", this.key, "-days", "2"];
        const secret = password ? ["-passout", `pass:${password}`] : ["-nodes"];
        const files = ["-keyout", key, "-out", cert];
        const who = ["-subj", `/CN=${name}`, ...NAMES];
        openssl("req", "-x509", ...signer, ...KIND, ...secret, ...who, ...files);
        return { cert, key, ca: readFileSync(this.cert, "utf8") };
    }
}

/** Makes it end now. It is then its own authority's: others cannot date a certificate back. */
export function expire(tls) {
    openssl("x509", "-in", tls.cert, "-signkey", tls.key, "-days", "0", "-out", tls.cert);
}

/** Puts another certificate where a server looks for its own. */
export function replace(tls, other) {
    copyFileSync(other.cert, tls.cert);
    copyFileSync(other.key, tls.key);
}

/** A TLS connection of the test `t` to a server, with its handshake done. */
export async function connectTls(t, server, options) {
    const socket = connect({ ...server.where, servername: "localhost", ...options });
    defer(t, () => socket.destroy());
    await once(socket, "secureConnect");
    return socket;
}
