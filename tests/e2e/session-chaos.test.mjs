// SPDX-License-Identifier: Apache-2.0
// Clients that are cut and a server that is killed; lib/session-chaos.mjs says what has to hold.
// TIDEMARK_CUTS=n cuts each client's connection more often; session-hunt.mjs is the long version.
import { test } from "node:test";
import { killsOf, sessionChaos } from "./lib/session-chaos.mjs";
import { startSessionSite } from "./lib/session-server.mjs";

const CUTS = Number(process.env.TIDEMARK_CUTS ?? 50);

test(`${CUTS} cuts of each connection, ${killsOf(CUTS)} kills of the server`, async (t) => {
    const start = async (upstream) => [await startSessionSite(t, { session: { upstream } })];
    await sessionChaos(t, CUTS, start);
});
