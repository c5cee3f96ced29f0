// SPDX-License-Identifier: Apache-2.0
// The services of proto/ as their files describe them, and what a test wants to say in each.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createFileRegistry, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";

export const PROTO = fileURLToPath(new URL("../../../proto", import.meta.url));
export const PROTO_FILES = ["tidemark/v1/session.proto", "aiserver/v1/chat.proto"];

function describe() {
    const folder = mkdtempSync(join(tmpdir(), "tidemark-e2e-"));
    try {
        const file = join(folder, "set");
        const flags = ["-I", PROTO, "--include_imports", `--descriptor_set_out=${file}`];
        execFileSync("protoc", [...flags, ...PROTO_FILES], { stdio: "pipe" });
        return createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(file)));
    } finally {
        rmSync(folder, { recursive: true });
    }
}

const registry = describe();

export const ErrorDetails = registry.getMessage("aiserver.v1.ErrorDetails");
export const Gap = registry.getMessage("tidemark.v1.Gap");

/** One of the two names under which sessions are served. */
class Service {
    constructor({ calls, appends, bidi, sse, poll, append, macField, chunk, text }) {
        this.calls = registry.getService(calls); // the service of the streams
        this.appends = registry.getService(appends); // and of the appends
        this.name = calls;
        Object.assign(this, { bidi, sse, poll, append, macField });
        this.chunk = chunk; // (text): what stands in client_chunk
        this.text = text; // (server chunk): what it says
        this.Request = this.#method(this.calls, bidi).input;
        this.Response = this.#method(this.calls, bidi).output;
        this.ClientChunk = this.Request.fields.find((f) => f.number === 1).message; // or bytes
        this.ServerChunk = this.Response.fields.find((f) => f.number === 1).message;
    }

    #method(service, name) {
        return service.methods.find((method) => method.name === name);
    }

    #path(service, name) {
        return `/${service.typeName}/${name}`;
    }

    path(kind) {
        return this.#path(kind === "append" ? this.appends : this.calls, this[kind]);
    }

    /** The name of a method in a client made from a description. */
    local(kind) {
        const service = kind === "append" ? this.appends : this.calls;
        return this.#method(service, this[kind]).localName;
    }

    /** A server chunk's MAC, and the bytes that it is of: all in front of its field. */
    signed(chunk) {
        const bytes = Buffer.from(toBinary(this.ServerChunk, chunk));
        return this.signedBytes(bytes);
    }

    signedBytes(bytes) {
        const tag = varint((this.macField << 3) | 2);
        const at = bytes.length - tag.length - 1 - 32;
        const head = bytes.subarray(at, at + tag.length + 1);
        if (at < 0 || !head.equals(Buffer.concat([tag, Buffer.from([32])])))
            throw new Error(`no MAC at the end of ${bytes.toString("hex")}`);
        return { covered: bytes.subarray(0, at), mac: bytes.subarray(-32) };
    }
}

export function varint(n) {
    const bytes = [];
    for (; n > 127; n = Math.floor(n / 128)) bytes.push((n % 128) + 128);
    return Buffer.from([...bytes, n]);
}

export const TIDEMARK = new Service({
    calls: "tidemark.v1.SessionService",
    appends: "tidemark.v1.SessionService",
    bidi: "Stream",
    sse: "StreamSSE",
    poll: "StreamPoll",
    append: "Append",
    macField: 8,
    chunk: (text) => Buffer.from(text),
    text: (chunk) => Buffer.from(chunk.payload).toString(),
});

export const AISERVER = new Service({
    calls: "aiserver.v1.ChatService",
    appends: "aiserver.v1.BidiService",
    bidi: "StreamUnifiedChatWithToolsIdempotent",
    sse: "StreamUnifiedChatWithToolsIdempotentSSE",
    poll: "StreamUnifiedChatWithToolsIdempotentPoll",
    append: "BidiAppend",
    macField: 2048,
    // Of the messages in a conversation the last one counts.
    chunk: (text) => ({
        request: {
            case: "streamUnifiedChatRequest",
            value: { conversation: [{ text: "an earlier message" }, { text }] },
        },
    }),
    text: ({ response }) =>
        response.case === "streamUnifiedChatResponse"
            ? response.value.text
            : `${response.case} ${response.value?.toolCallId}`,
});

export const SERVICES = [TIDEMARK, AISERVER];
