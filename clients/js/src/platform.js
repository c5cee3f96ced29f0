// SPDX-License-Identifier: Apache-2.0
// What browsers and versions of Node.js have in different places.

/** Modules of Node.js, for old versions and files. Bundlers must not look for them. */
export const builtin = (name) =>
    import(/* webpackIgnore: true */ /* @vite-ignore */ `node:${name}`);

/** The Web Crypto of this platform; Node.js 18 has no global one. */
export const webCrypto = async () => globalThis.crypto ?? (await builtin("crypto")).webcrypto;

/** Also where a browser hides randomUUID: on pages without TLS. */
export async function uuid() {
    const bytes = (await webCrypto()).getRandomValues(new Uint8Array(16));
    bytes[6] = (bytes[6] & 15) | 64;
    bytes[8] = (bytes[8] & 63) | 128;
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return hex.replace(/^(.{8})(....)(....)(....)/, "$1-$2-$3-$4-");
}
