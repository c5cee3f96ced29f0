// SPDX-License-Identifier: Apache-2.0
// The stand-in language server as a process of its own, to be found among others: on PORT, if that
// is given, with the token WINDSURF_CSRF_TOKEN. It says its port, and "pong" to whoever says "ping".
import { quick } from "./cascade.mjs";
import { startLanguageServer } from "./language-server.mjs";

const server = await startLanguageServer({ after() {} }, { port: process.env.PORT ?? 0 });
server.csrf = process.env.WINDSURF_CSRF_TOKEN;
server.script("ping", quick);
console.log(`listening on ${server.port}`);
