// SPDX-License-Identifier: Apache-2.0
// Every rule of `tidemark access rules`, and so every request of every surface, as it is answered to
// nobody, to a wrong credential, to another tenant's, to one that has everything but the rule's verb,
// and to one that has just that. The rows come from the tables that the server uses: a new one
// without a sample fails.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { METHODS, MINE, OTHERS, SAMPLES, SECRET, startAny, startReceiver } from "./lib/access-samples.mjs";
import { quick } from "./lib/cascade.mjs";
import { CSRF, KEY as EDITOR_KEY, startLanguageServer } from "./lib/language-server.mjs";
import { H2 } from "./lib/h2.mjs";
import { Running, tidemark } from "./lib/run.mjs";
import { binary, startServer } from "./lib/server.mjs";
import { envelopes } from "./lib/session-wire.mjs";
import { tempFolder } from "./lib/temp.mjs";
import { within } from "./lib/wait.mjs";

// Rules of what is not asked by HTTP, and where they are tested.
const ELSEWHERE = {
    "tools.socket": "pages-socket.test.mjs: a Unix socket, whose file says who may open it",
};

const VERBS = {
    stream: "read append create close delete list fork subscribe webhook erase",
    route: "generate stop call",
    session: "session work",
    tool: "tool",
    log: "read append",
    lab: "lab",
    server: "admin mint revoke metrics",
};
const PATIENT = ["--address-rate", "0", "--address-failures", "0"]; // all come from one address
const OPEN_MS = 400; // an answer that goes on is looked at as far as it has come
const BEGUN_MS = 50; // ... once there is something of it

// ---- credentials ----

const tokenOf = (name) => `token-of-${name}`;

function grantsOn(names, ...leftOut) {
    return Object.entries(names).flatMap(([of, patterns]) => {
        const isLeft = (word) => leftOut.some(({ kind, verb }) => of === kind && word === verb);
        const verbs = VERBS[of].split(" ").filter((word) => !isLeft(word));
        return verbs.length > 0 ? [`${verbs.join(", ")} ${patterns}`] : [];
    });
}

function callerSection(name, grants) {
    const digest = createHash("sha256").update(tokenOf(name)).digest("hex");
    const lines = grants.map((grant) => `grant = ${grant}\n`);
    return `[caller ${name}]\ntoken-sha256 = ${digest}\n${lines.join("")}\n`;
}

const EVERYTHING = grantsOn({ ...MINE, stream: "**", session: "session:**", tool: "tool:**" });

// `instead`: another verb on the same name will do as well; who is refused has neither.
function callersOf({ verb, kind, number }, { also = [], instead = {} }) {
    const own = verb ? [`${verb} ${MINE[kind]}`] : ["read mine/**"];
    return [
        callerSection(`r${number}.enough`, [...own, ...also]),
        callerSection(`r${number}.without`, grantsOn(MINE, { kind, verb }, instead)),
    ].join("");
}

// ---- the site ----

async function rules(t) {
    const { stdout, code } = await tidemark(t, ["access", "rules", "--json"]);
    assert.equal(code, 0);
    const rows = stdout.trim().split("\n").map((line) => JSON.parse(line));
    assert.ok(rows.length > 50, "the tables are there");
    const methods = (row) => row.methods.flatMap((word) => (word === "*" ? METHODS : [word]));
    return rows.map((row, number) => ({ ...row, number, methods: methods(row) }));
}

async function backend(t, dialect) {
    const args = ["demo-backend", "--listen", "127.0.0.1:0", "--delay", "20ms", "--tokens", "500"];
    const running = new Running(t, binary(), [...args, "--dialect", dialect]);
    const [, url] = await running.output(/^demo backend on (http:\S+):/m);
    return url;
}

/** All features, each with something of the tenant's. */
async function sectionsOf(t, folder) {
    const editor = await startLanguageServer(t);
    editor.script("ping", quick);
    return `
[route /mine]
upstream = ${await backend(t, "sse")}/
[route /mine-chat]
upstream = ${await backend(t, "ui-message")}/
dialect = ui-message
[route /mine-responses]
upstream = ${await backend(t, "sse")}/
dialect = responses
[route /mine-any]
prefix = yes
upstream = ${await startAny(t)}
[log mine]
path = ${join(folder, "log.jsonl")}
[lab]
root = ${join(folder, "lab")}
feedback = ${join(folder, "feedback.jsonl")}
[session]
handler = echo
[tool mine]
command = echo '{"row":"${SECRET}"}'
[cascade]
target = ${editor.url}
csrf-token = ${CSRF}
api-key = ${EDITOR_KEY}
`;
}

/** How an answer is meant, whatever its protocol puts into its status. */
function meaning(status, headers, bytes) {
    const codes = { unauthenticated: 401, permission_denied: 403, not_found: 404 };
    if (status !== 200) return status;
    if (headers["grpc-status"] === "16") return 401;
    if (headers["grpc-status"] === "7") return 403;
    if (!headers["content-type"]?.startsWith("application/connect+")) return status;
    for (const { flags, message } of wholeEnvelopes(bytes))
        if (flags & 2) return codes[JSON.parse(message).error?.code] ?? status;
    return status;
}

function wholeEnvelopes(bytes) {
    try {
        return envelopes(bytes);
    } catch {
        return []; // it goes on
    }
}

class Site {
    constructor(t, server, receiver) {
        this.t = t;
        this.server = server;
        this.receiver = receiver;
        this.h2 = new H2(t, server);
    }

    /** An answer as far as it has come: { status, headers, text }. */
    async ask(method, path, { headers = {}, body, keep = false } = {}) {
        const request = { ":method": method, ":path": path, ...headers };
        const stream = this.h2.session.request(request, { endStream: body === undefined });
        const parts = [];
        stream.on("data", (part) => parts.push(part));
        stream.on("error", () => {});
        const head = new Promise((resolve, reject) => {
            stream.once("response", resolve);
            stream.once("error", reject);
            stream.once("close", () => reject(new Error(`no answer to ${method} ${path}`)));
        });
        const end = new Promise((resolve) => stream.once("close", resolve));
        const begun = new Promise((resolve) => stream.once("data", resolve));
        if (body !== undefined) stream.end(body);
        const got = await within(head, `the answer to ${method} ${path}`);
        await Promise.race([end, delay(OPEN_MS), begun.then(() => delay(BEGUN_MS))]);
        if (!keep) stream.destroy();
        const bytes = Buffer.concat(parts);
        const status = meaning(got[":status"], got, bytes);
        return { status, headers: got, text: bytes.toString() };
    }

    /** As somebody who may do everything: the JSON of the answer, if it is some. */
    async set(method, path, options = {}) {
        const answer = await this.as("all", method, path, options);
        assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.text}`);
        return answer.text.startsWith("{") ? JSON.parse(answer.text) : {};
    }

    /** As a caller; on an open server there are none. */
    as(name, method, path, { headers, ...rest } = {}) {
        const credential = { "tidemark-authorization": `Bearer ${tokenOf(name)}` };
        const all = this.open ? headers : { ...headers, ...credential };
        return this.ask(method, path, { headers: all, ...rest });
    }

    /** What a row's request needs to be there: as the one who may then ask for it. */
    async begin(row, method, path, options) {
        const owned = ["generate", "stop", "session"].includes(row.verb);
        const name = owned ? `r${row.number}.enough` : "all";
        const answer = await this.as(name, method, path, options);
        assert.equal(answer.status, 200, `${method} ${path}: ${answer.text}`);
        return answer;
    }
}

async function startSite(t, callers) {
    const folder = await tempFolder(t);
    const file = join(folder, "tidemark.conf");
    await writeFile(file, `${await sectionsOf(t, folder)}\n${callers}`);
    const flags = ["--config", file, "--allow-loopback-targets", ...PATIENT];
    const server = await startServer(t, flags, { env: { SSE_RESUME_SECRET: "x".repeat(32) } });
    const site = new Site(t, server, await startReceiver(t));
    site.open = callers === "";
    return site;
}

// ---- cells ----

const fine = ({ expect = [200, 201, 202, 204] }, status) => expect.includes(status);

/** A refusal, or a success that shows nothing of what is not granted. */
function isHidden(row, { secret }, answer, refusals) {
    if (refusals.includes(answer.status)) return true;
    const later = row.how.includes("later");
    return later && secret !== undefined && answer.status < 300 && !answer.text.includes(secret);
}

const ticket = (text) => ({ authorization: `Bearer ${text}` });
const ours = (text) => ({ "tidemark-authorization": `Bearer ${text}` });

/** What each kind of caller sends, and whether the answer is as it should be. */
function cellsOf(row, sample) {
    const is = (status) => (answer) => answer.status === status;
    const fits = (answer) => fine(sample, answer.status);
    const refused = (answer) =>
        isHidden(row, sample, answer, [403, 404, ...(sample.hidden ?? [])]);
    if (row.how.includes("ticket"))
        return [
            ["no credential", {}, is(401)],
            ["a wrong credential", ticket("wrong"), is(401)],
            ["somebody else's ticket", ticket(sample.foreign), (answer) => answer.status >= 400],
            ["a sufficient credential", ticket(sample.ticket), fits],
        ];
    if (row.how.includes("public"))
        return [
            ["no credential", {}, fits],
            ["a wrong credential", ours("wrong"), is(401)],
            ["another tenant's credential", ours(tokenOf("other")), fits],
            ["a sufficient credential", ours(tokenOf(`r${row.number}.enough`)), fits],
        ];
    return [
        ["no credential", {}, is(401)],
        ["a wrong credential", ours("wrong"), is(401)],
        ["another tenant's credential", ours(tokenOf("other")), refused],
        ["all but the verb", ours(tokenOf(`r${row.number}.without`)), refused],
        ["a sufficient credential", ours(tokenOf(`r${row.number}.enough`)), fits],
    ];
}

const label = (row) => `${row.id} at ${row.path}`;

async function checkRow(site, row) {
    const cells = cellsOf(row, {}).length;
    for (const method of row.methods)
        for (let i = 0; i < cells; i++) {
            const sample = await SAMPLES[row.id](site, row);
            const [who, credential, isRight] = cellsOf(row, sample)[i];
            const proof = isRight.name === "fits" ? sample.proof : {};
            const headers = { ...sample.headers, ...credential, ...proof };
            const answer = await site.ask(method, sample.path, { ...sample, headers });
            const said = `${answer.status} ${answer.text.slice(0, 300)}`;
            assert.ok(isRight(answer), `${method} ${sample.path} with ${who}: ${said}`);
            if (isRight.name === "refused" && sample.stays) await site.set("GET", sample.stays);
            assert.ok(site.server.running, `${method} ${sample.path} with ${who} ends the server`);
        }
}

test("every rule has a sample", async (t) => {
    const rows = await rules(t);
    for (const row of rows)
        assert.ok(
            SAMPLES[row.id] ?? ELSEWHERE[row.id],
            `${label(row)} has no sample: add one to tests/e2e/lib/access-samples.mjs`,
        );
});

const SOME = { concurrency: 4 };

test("the samples are answered well by an open server", SOME, async (t) => {
    const site = await startSite(t, "");
    const rows = (await rules(t)).filter(({ id }) => SAMPLES[id]);
    const checks = rows.map((row) =>
        t.test(label(row), async () => {
            const sample = await SAMPLES[row.id](site, row);
            const shown = sample.ticket ? ticket(sample.ticket) : sample.proof;
            const headers = { ...sample.headers, ...shown };
            const answer = await site.ask(row.methods[0], sample.path, { ...sample, headers });
            const said = `${answer.status} ${answer.text.slice(0, 300)}`;
            if (sample.known) return;
            assert.ok(fine(sample, answer.status), `${row.methods[0]} ${sample.path}: ${said}`);
            if (sample.secret) assert.ok(answer.text.includes(sample.secret), said);
        }),
    );
    await Promise.all(checks);
});

test("every rule: who is let in, and who is not", SOME, async (t) => {
    const rows = await rules(t);
    const known = rows.filter(({ id }) => SAMPLES[id]);
    const blank = { set: async () => ({}), begin: async () => ({ headers: {} }) };
    blank.receiver = { got: async () => ({}) };
    const callers = [callerSection("all", EVERYTHING), callerSection("other", grantsOn(OTHERS))];
    for (const row of known) callers.push(callersOf(row, await SAMPLES[row.id](blank, row)));
    const site = await startSite(t, callers.join(""));
    const checks = known.map((row) => t.test(label(row), () => checkRow(site, row)));
    await Promise.all(checks);
});
