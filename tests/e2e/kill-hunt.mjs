// SPDX-License-Identifier: Apache-2.0
// The long version of crash.test.mjs: `node kill-hunt.mjs`, with TIDEMARK_BIN, and TIDEMARK_KILLS
// for another number of kills than 100.
process.env.TIDEMARK_KILLS ??= "100";
await import("./crash.test.mjs");
