// SPDX-License-Identifier: Apache-2.0
// Clients whose connections are cut again and again, a server that is killed in between, and a
// backend that fails now and then. The backend sees every chunk once and in order, each client every
// event exactly once. TIDEMARK_CUTS=n cuts each client's connection more often; session-hunt.mjs is
// the long version.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { startProxy } from "./lib/proxy.mjs";
import { randomness } from "./lib/rand.mjs";
import { ReliableClient } from "./lib/session-reliable.mjs";
import { AISERVER, TIDEMARK } from "./lib/session-schema.mjs";
import { PairPeer, Peer, Session } from "./lib/session.mjs";
import { startSessionSite } from "./lib/session-server.mjs";
import { eventsOf, startUpstream } from "./lib/session-upstream.mjs";
import { until, within } from "./lib/wait.mjs";

const CUTS = Number(process.env.TIDEMARK_CUTS ?? 50);
const KILLS = Math.ceil(CUTS / 15);
const INTERVAL_MS = 20;
const AHEAD = 8; // chunks that a client says before it waits for answers
const PATIENCE_MS = 60_000 + CUTS * 1000;

const CLIENTS = {
    editor: { service: AISERVER, protocol: "connect" },
    own: { service: TIDEMARK, protocol: "connect" },
    grpc: { service: TIDEMARK, protocol: "grpc" },
    old: { service: AISERVER, protocol: null }, // a downlink and appends over HTTP/1.1
};

/** What the backend does to a request: it fails now and then, and never twice in a row. */
function mischief(random, site) {
    return (plan, seen, attempt) => {
        seen.life = site()?.starts;
        if (attempt % 2 === 1) return plan;
        const fate = random.below(24);
        const at = Array(attempt).fill(undefined);
        if (fate === 0) return { ...plan, refuse: [...at, 503] };
        if (fate === 1) return { ...plan, cuts: [...at, random.below(plan.events + 1)] };
        return plan;
    };
}

/** A client with its plans. Half of its connections break off at some byte by themselves. */
async function startClient(t, site, random, { name, service, protocol }) {
    const proxy = await startProxy(t, { where: { host: "127.0.0.1", port: site.port } }, () => {
        if (random.below(2) === 0) return null;
        const bytes = 200 + random.below(6000);
        return random.below(2) === 0 ? { answerBytes: bytes } : { requestBytes: bytes };
    });
    const peer = protocol ? new Peer(t, proxy, { protocol }) : new PairPeer(t, proxy);
    const client = new ReliableClient(peer, new Session(service));
    return Object.assign(client, { name, proxy, plans: [], thrown: 0 });
}

/** Says things until it was cut often enough, and then the rest. */
async function talk(client, random, going) {
    while (going()) {
        const due = client.plans.slice(0, -AHEAD).flatMap(eventsOf).length;
        await until(() => client.events.length >= due || !going(), "answers", PATIENCE_MS);
        const plan = {
            name: `${client.name}/${client.plans.length}`,
            events: random.below(5),
            pause: random.below(4),
            pad: "x".repeat(random.below(400)),
        };
        client.plans.push(plan);
        client.say(JSON.stringify(plan));
        await delay(random.below(12));
    }
    client.close();
}

/** Every interval, with some probability, there is a cut. */
async function cut(client, site, random, going) {
    while (going()) {
        await delay(INTERVAL_MS);
        if (!site.up || !client.connected || random.below(3) > 0) continue;
        client.cut(random.below(4) === 0);
        client.thrown++;
    }
}

const cutsOf = (client) => client.thrown + client.proxy.cuts;

async function kill(site, random, clients) {
    for (let n = 1; n <= KILLS; n++) {
        const due = (n * CUTS) / (KILLS + 1);
        while (!clients.some((client) => cutsOf(client) >= due)) await delay(INTERVAL_MS);
        await delay(random.below(30));
        await site.restart("SIGKILL");
    }
}

/** A request at the backend, for people. */
function tell({ key, plan, attempt, lastEventId, sent, complete, life }) {
    const { events, refuse = [], cuts = [] } = plan;
    const fate =
        refuse[attempt] ?? (cuts[attempt] === undefined ? "ok" : `cut at ${cuts[attempt]}`);
    return (
        `${key.split("/")[1]}: attempt ${attempt}, ${fate}, behind ${lastEventId}, ` +
        `${sent} of ${events} sent, ${complete ? "complete" : "broken off"}, life ${life}`
    );
}

/** The backend saw each chunk's key, in order; one that comes again comes before any later one. */
function assertBackend(upstream, client) {
    const requests = upstream.of(client.session);
    const seqnos = requests.map(({ key }) => Number(key.split("/")[1]));
    const late = seqnos.findIndex((seqno, i) => i > 0 && seqno < seqnos[i - 1]);
    const story = requests
        .slice(Math.max(0, late - 6), late + 4)
        .map(tell)
        .join("\n");
    assert.equal(late, -1, `${client.name}: a chunk came behind a later one:\n${story}`);
    assert.deepEqual(
        [...new Set(seqnos)],
        client.plans.map((_, i) => i),
        `${client.name}: the chunks at the backend`,
    );
    const texts = new Map(upstream.of(client.session).map(({ key, text }) => [key, text]));
    client.plans.forEach((plan, i) => {
        assert.equal(texts.get(`${client.session.key}/${i}`), JSON.stringify(plan));
    });
}

test(`${CUTS} cuts of each connection, ${KILLS} kills of the server`, async (t) => {
    const random = randomness(t);
    let site;
    const upstream = await startUpstream(
        t,
        mischief(random, () => site),
    );
    site = await startSessionSite(t, { session: { upstream: upstream.url } });
    const clients = [];
    for (const [name, kind] of Object.entries(CLIENTS))
        clients.push(await startClient(t, site, random, { name, ...kind }));
    let killing = true;
    let failed = false;
    const going = (client) => () => !failed && (killing || cutsOf(client) < CUTS);
    const parts = clients.flatMap((client) => [
        client.run(),
        talk(client, random, going(client)),
        cut(client, site, random, () => !failed && !client.finished),
    ]);
    parts.push(kill(site, random, clients).finally(() => (killing = false)));
    try {
        await within(Promise.all(parts), "all to be said and answered", PATIENCE_MS);
    } finally {
        failed = true;
        for (const client of clients) client.stop();
    }

    for (const client of clients) {
        assertBackend(upstream, client);
        assert.deepEqual(client.events, client.plans.flatMap(eventsOf), `events of ${client.name}`);
        const asked = upstream.of(client.session).length;
        t.diagnostic(
            `${client.name}: ${cutsOf(client)} cuts, ${client.connections} connections, ` +
                `${client.said} chunks, ${client.restated} said again, ${asked} requests, ` +
                `${client.events.length} events, overtaken ${client.overtaken} times`,
        );
        assert.ok(cutsOf(client) >= CUTS);
        assert.ok(client.restated > 0, "no cut met a chunk on its way");
        assert.ok(client.overtaken <= client.connections / 10, "that is rare");
    }
    assert.equal(site.starts, KILLS + 1);
});
