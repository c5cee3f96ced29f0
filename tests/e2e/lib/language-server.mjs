// SPDX-License-Identifier: Apache-2.0
// A stand-in for an editor's language server, by grpc-js: it plays transcripts from a script, one
// step a poll, and remembers what it was asked.
import grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { fileURLToPath } from "node:url";
import { defer } from "./defer.mjs";
import { until } from "./wait.mjs";

const FILE = fileURLToPath(new URL("language-server.proto", import.meta.url));
const SERVICE = "exa.language_server_pb.LanguageServerService";

export const CSRF = "11111111-2222-4333-8444-555555555555";
export const KEY = "sk-ws-01-c2VjcmV0LW9mLXRoZS10ZXN0cw";

/** The fields of a protobuf message, as [number, value] in their order; no schema needed. */
export function fieldsOf(bytes) {
    let at = 0;
    const varint = () => {
        for (let value = 0n, shift = 0n; ; shift += 7n) {
            const byte = bytes[at++];
            value |= BigInt(byte & 0x7f) << shift;
            if (byte < 0x80) return value;
        }
    };
    const all = [];
    while (at < bytes.length) {
        const tag = Number(varint());
        if ((tag & 7) === 0) all.push([tag >> 3, varint()]);
        else if ((tag & 7) === 2) {
            const length = Number(varint());
            all.push([tag >> 3, bytes.subarray(at, (at += length))]);
        } else throw new Error(`wire type ${tag & 7} in a request`);
    }
    return all;
}

/** One poll's answer: message(index, role, text) each, and the number of steps. */
export function step(messages, steps = messages.length) {
    const transcript = messages
        .map(([index, role, text]) => `=== MESSAGE ${index} - ${role} ===\n${text}\n\n`)
        .join("");
    return { transcript, steps };
}

export const CHECKPOINT = "[CORTEX_STEP_TYPE_CHECKPOINT]";

/** A poll or call that fails. */
export function failure(code, details) {
    return { code, details };
}

export const MODELS = [
    { label: "Claude Opus 4.5", modelOrAlias: { model: 391 }, modelUid: "MODEL_CLAUDE_4_5_OPUS" },
    { label: "Claude Opus 4.7 Medium", modelUid: "claude-opus-4-7-medium", isNew: true },
    { label: "Claude Sonnet 4.5", modelOrAlias: { model: 220 }, modelUid: "MODEL_PRIVATE_2" },
    { label: "Kimi K2.6", modelUid: "kimi-k2-6" },
    { label: "Out Of Order", modelUid: "out-of-order", disabled: true },
];

class LanguageServer {
    calls = []; // { rpc, request, raw, token }
    trajectories = new Map(); // id -> { polls, archived, prompt }
    scripts = new Map(); // a word of the prompt -> steps
    failures = new Map(); // rpc -> errors that its next calls get
    models = MODELS;
    csrf = CSRF;
    #n = 0;

    /** Prompts with this word get these steps, one a poll; the last one stays. */
    script(word, steps) {
        this.scripts.set(word, steps);
    }

    /** The next calls of this rpc fail so, one after another. */
    fail(rpc, ...errors) {
        this.failures.set(rpc, errors);
    }

    of(rpc) {
        return this.calls.filter((call) => call.rpc === rpc);
    }

    count(rpc) {
        return this.of(rpc).length;
    }

    /** Waits until every trajectory is archived, and there are so many. */
    archived(n) {
        return until(
            () =>
                this.trajectories.size === n &&
                [...this.trajectories.values()].every(({ archived }) => archived > 0),
            `${n} archived trajectories of ${this.trajectories.size}`,
        );
    }

    InitializeCascadePanelState() {
        return {};
    }

    StartCascade() {
        const cascadeId = `cascade-${++this.#n}`;
        this.trajectories.set(cascadeId, { polls: 0, archived: 0, steps: [] });
        return { cascadeId };
    }

    SendUserCascadeMessage({ cascadeId, items }) {
        const trajectory = this.trajectories.get(cascadeId);
        if (!trajectory) return failure(grpc.status.NOT_FOUND, `no trajectory ${cascadeId}`);
        trajectory.prompt = items.map(({ text }) => text).join("");
        const word = [...this.scripts.keys()].find((word) => trajectory.prompt.includes(word));
        if (!word) return failure(grpc.status.INVALID_ARGUMENT, "no script for this prompt");
        trajectory.script = this.scripts.get(word);
        return {};
    }

    GetCascadeTranscriptForTrajectoryId({ cascadeId }) {
        const trajectory = this.trajectories.get(cascadeId);
        if (!trajectory?.script) return { transcript: "", numTotalSteps: 0 };
        const { script } = trajectory;
        const now = script[Math.min(trajectory.polls++, script.length - 1)];
        if (now.code !== undefined) return now;
        return { transcript: now.transcript, numTotalSteps: now.steps };
    }

    ArchiveCascadeTrajectory({ cascadeId }) {
        const trajectory = this.trajectories.get(cascadeId);
        if (trajectory) trajectory.archived++;
        return {};
    }

    GetUserStatus() {
        const data = { clientModelConfigs: this.models };
        return { userStatus: { cascadeModelConfigData: data } };
    }
}

/** Starts one, on a free port unless one is named; the test `t` ends it. */
export async function startLanguageServer(t, { port = 0 } = {}) {
    const server = new LanguageServer();
    const host = new grpc.Server();
    const methods = loadSync(FILE, { longs: String })[SERVICE];
    const service = {};
    const handlers = {};
    for (const [rpc, method] of Object.entries(methods)) {
        const requestDeserialize = (raw) => ({ raw, request: method.requestDeserialize(raw) });
        service[rpc] = { ...method, requestDeserialize };
        handlers[rpc] = (call, done) => {
            const { raw, request } = call.request;
            const [token] = call.metadata.get("x-codeium-csrf-token");
            server.calls.push({ rpc, raw, request, token });
            if (token !== server.csrf)
                return done({ code: grpc.status.UNAUTHENTICATED, details: "wrong CSRF token" });
            const failed = server.failures.get(rpc)?.shift();
            const answer = failed ?? server[rpc](request);
            return answer.code === undefined ? done(null, answer) : done(answer);
        };
    }
    host.addService(service, handlers);
    const credentials = grpc.ServerCredentials.createInsecure();
    server.port = await new Promise((resolve, reject) =>
        host.bindAsync(`127.0.0.1:${port}`, credentials, (error, port) =>
            error ? reject(error) : resolve(port),
        ),
    );
    server.url = `http://127.0.0.1:${server.port}`;
    defer(t, () => host.forceShutdown());
    return server;
}
