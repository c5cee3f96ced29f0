// SPDX-License-Identifier: Apache-2.0
// What browsers and versions of Node.js have in different places.

/** Modules of Node.js, for old versions and files. Bundlers must not look for them. */
export const builtin = (name) =>
    import(/* webpackIgnore: true */ /* @vite-ignore */ `node:${name}`);

/** The Web Crypto of this platform; Node.js 18 has no global one. */
export const webCrypto = async () => globalThis.crypto ?? (await builtin("crypto")).webcrypto;

/** A name that nobody guesses. (Pages without TLS have no randomUUID.) */
export async function randomName() {
    const bytes = (await webCrypto()).getRandomValues(new Uint8Array(16));
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
