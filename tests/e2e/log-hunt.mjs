// SPDX-License-Identifier: Apache-2.0
// The long version of log-writers.test.mjs: `node log-hunt.mjs`, with TIDEMARK_BIN.
process.env.TIDEMARK_ENTRIES ??= "20000";
process.env.TIDEMARK_KILLS ??= "100";
await import("./log-writers.test.mjs");
