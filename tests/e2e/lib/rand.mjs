// SPDX-License-Identifier: Apache-2.0
// Random numbers that can be had again: a failing test prints its seed, TIDEMARK_SEED repeats it.

/** A generator (mulberry32) with its seed; below(n) gives integers in [0, n). */
export function randomness(t) {
    const seed = Number(process.env.TIDEMARK_SEED ?? Math.floor(Math.random() * 2 ** 32)) >>> 0;
    t.diagnostic(`TIDEMARK_SEED=${seed}`);
    let state = seed;
    const next = () => {
        state = (state + 0x6d2b79f5) >>> 0;
        let x = Math.imul(state ^ (state >>> 15), state | 1);
        x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
        return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
    };
    return { seed, below: (n) => Math.floor(next() * n) };
}
