// SPDX-License-Identifier: Apache-2.0
// The long version of session-chaos.test.mjs: `node session-hunt.mjs`, with TIDEMARK_BIN, and
// TIDEMARK_CUTS for another number of cuts than 500.
process.env.TIDEMARK_CUTS ??= "500";
await import("./session-chaos.test.mjs");
