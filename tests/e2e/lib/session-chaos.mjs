// SPDX-License-Identifier: Apache-2.0
// Clients whose connections are cut again and again, servers that are killed in between, and a
// backend that fails now and then. The backend sees every chunk once and in order, each client every
// event exactly once.
import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import { startProxy } from "./proxy.mjs";
import { randomness } from "./rand.mjs";
import { ReliableClient } from "./session-reliable.mjs";
import { AISERVER, TIDEMARK } from "./session-schema.mjs";
import { PairPeer, Peer, Session, WanderingPeer } from "./session.mjs";
import { eventsOf, startUpstream } from "./session-upstream.mjs";
import { until, within } from "./wait.mjs";

const INTERVAL_MS = 20;
const AHEAD = 8; // chunks that a client says before it waits for answers
const CUTS_OF_A_KILL = 15;

const CLIENTS = {
    editor: { service: AISERVER, protocol: "connect" },
    own: { service: TIDEMARK, protocol: "connect" },
    grpc: { service: TIDEMARK, protocol: "grpc" },
    old: { service: AISERVER, protocol: null }, // a downlink and appends over HTTP/1.1
};

/** What the backend does to a request: it fails now and then, and never twice in a row. */
function mischief(random, starts) {
    return (plan, seen, attempt) => {
        seen.life = starts();
        if (attempt % 2 === 1) return plan;
        const fate = random.below(24);
        const at = Array(attempt).fill(undefined);
        if (fate === 0) return { ...plan, refuse: [...at, 503] };
        if (fate === 1) return { ...plan, cuts: [...at, random.below(plan.events + 1)] };
        return plan;
    };
}

/**
 * A client with its plans, which comes to one site after the other. Half of its connections break
 * off at some byte by themselves.
 */
async function startClient(t, sites, random, { name, service, protocol }) {
    const breakOff = () => {
        if (random.below(2) === 0) return null;
        const bytes = 200 + random.below(6000);
        return random.below(2) === 0 ? { answerBytes: bytes } : { requestBytes: bytes };
    };
    const proxies = [];
    for (const site of sites) proxies.push(await startProxy(t, site, breakOff));
    const peers = proxies.map((proxy) =>
        protocol ? new Peer(t, proxy, { protocol }) : new PairPeer(t, proxy),
    );
    const client = new ReliableClient(new WanderingPeer(peers), new Session(service));
    return Object.assign(client, { name, proxies, plans: [], thrown: 0 });
}

/** Says things until it was cut often enough, and then the rest. */
async function talk(client, random, going, patience) {
    while (going()) {
        const due = client.plans.slice(0, -AHEAD).flatMap(eventsOf).length;
        await until(() => client.events.length >= due || !going(), "answers", patience);
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
async function cut(client, sites, random, going) {
    while (going()) {
        await delay(INTERVAL_MS);
        if (!sites.every(({ up }) => up) || !client.connected || random.below(3) > 0) continue;
        client.cut(random.below(4) === 0);
        client.thrown++;
    }
}

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const cutsOf = (client) => client.thrown + sum(client.proxies.map(({ cuts }) => cuts));

async function kill(sites, random, clients, { cuts, kills }) {
    for (let n = 1; n <= kills; n++) {
        const due = (n * cuts) / (kills + 1);
        while (!clients.some((client) => cutsOf(client) >= due)) await delay(INTERVAL_MS);
        await delay(random.below(30));
        await sites[n % sites.length].restart("SIGKILL");
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

/** How often servers are killed while each client's connection is cut so often. */
export const killsOf = (cuts) => Math.ceil(cuts / CUTS_OF_A_KILL);

/**
 * Cuts each connection so often. start(backend's url) starts what is cut and killed: Sites that
 * share what they store. rare: what part of the connections may be overtaken.
 */
export async function sessionChaos(t, cuts, start, { rare = 1 / 10 } = {}) {
    const random = randomness(t);
    const kills = killsOf(cuts);
    const patience = 60_000 + cuts * 1000;
    let sites = [];
    const starts = () => sum(sites.map((site) => site.starts));
    const upstream = await startUpstream(t, mischief(random, starts));
    sites = await start(upstream.url);
    const clients = [];
    for (const [name, kind] of Object.entries(CLIENTS))
        clients.push(await startClient(t, sites, random, { name, ...kind }));
    let killing = true;
    let failed = false;
    const going = (client) => () => !failed && (killing || cutsOf(client) < cuts);
    const parts = clients.flatMap((client) => [
        client.run(),
        talk(client, random, going(client), patience),
        cut(client, sites, random, () => !failed && !client.finished),
    ]);
    parts.push(kill(sites, random, clients, { cuts, kills }).finally(() => (killing = false)));
    try {
        await within(Promise.all(parts), "all to be said and answered", patience);
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
        assert.ok(cutsOf(client) >= cuts);
        assert.ok(client.restated > 0, "no cut met a chunk on its way");
        assert.ok(client.overtaken <= client.connections * rare, "that is rare");
    }
    assert.equal(starts(), sites.length + kills);
}
