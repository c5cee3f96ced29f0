// SPDX-License-Identifier: Apache-2.0
// The long version of lib-kill.test.mjs: `node lib-kill-hunt.mjs`, with TIDEMARK_BIN, and
// TIDEMARK_KILLS for another number of kills than 200.
process.env.TIDEMARK_KILLS ??= "200";
await import("./lib-kill.test.mjs");
