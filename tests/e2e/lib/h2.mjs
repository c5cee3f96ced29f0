// SPDX-License-Identifier: Apache-2.0
// HTTP/2: Node.js's own client over one connection, and frames made by hand.
import { connect } from "node:http2";
import { defer } from "./defer.mjs";
import { SseParser } from "./sse.mjs";
import { until, within } from "./wait.mjs";

/** One connection; requests on it share it. */
export class H2 {
    goaways = [];

    constructor(t, server, options) {
        this.session = connect(server.base, options);
        this.session.on("error", () => {}); // the requests under way tell of it
        this.session.on("goaway", (code, last) => this.goaways.push({ code, last }));
        this.closed = new Promise((resolve) => this.session.once("close", resolve));
        defer(t, () => this.session.destroy());
    }

    /** A stream whose `reply` are its headers, `text` what has come, `done` how it ended. */
    open(method, path, { headers = {}, body, end = true } = {}) {
        const request = { ":method": method, ":path": path, ...headers };
        const stream = this.session.request(request, { endStream: end && body === undefined });
        const result = { stream, text: "", trailers: undefined };
        stream.setEncoding("utf8").on("data", (text) => (result.text += text));
        stream.on("trailers", (trailers) => (result.trailers = trailers));
        result.reply = new Promise((resolve, reject) => {
            stream.once("response", resolve);
            stream.once("error", reject);
        });
        result.reply.catch(() => {});
        result.done = new Promise((resolve) => {
            stream.once("close", () => resolve(stream.rstCode));
        });
        stream.on("error", () => {});
        if (body !== undefined) stream.end(body);
        return result;
    }

    /** The whole answer as { status, headers, text }. */
    async request(method, path, options) {
        const result = this.open(method, path, options);
        const headers = await within(result.reply, `the answer to ${method} ${path}`);
        await within(result.done, `the end of the answer to ${method} ${path}`);
        return { status: headers[":status"], headers, text: result.text };
    }

    stream(method, name, options) {
        return this.request(method, `/v1/stream/${name}`, options);
    }

    /** A live reader: `events` so far. */
    sse(name) {
        const result = this.open("GET", `/v1/stream/${name}`);
        const parser = new SseParser();
        result.events = [];
        result.stream.on("data", (text) => result.events.push(...parser.feed(text)));
        result.data = () => result.events.filter((e) => e.event === "data").map((e) => e.data);
        result.seen = (text) =>
            until(() => result.data().join("").includes(text), `${text} from ${name}`);
        return result;
    }
}

export const TYPES = {
    DATA: 0,
    HEADERS: 1,
    PRIORITY: 2,
    RST_STREAM: 3,
    SETTINGS: 4,
    PING: 6,
    GOAWAY: 7,
    WINDOW_UPDATE: 8,
    CONTINUATION: 9,
};
export const END_STREAM = 1;
export const END_HEADERS = 4;
export const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

export function frame(type, flags, id, payload = "") {
    const bytes = Buffer.from(payload, "latin1");
    const head = Buffer.alloc(9);
    head.writeUIntBE(bytes.length, 0, 3);
    head[3] = type;
    head[4] = flags;
    head.writeUInt32BE(id, 5);
    return Buffer.concat([head, bytes]);
}

/** A header list in literals that are not indexed. */
export function fields(list) {
    const text = (s) => Buffer.concat([Buffer.from([s.length]), Buffer.from(s, "latin1")]);
    return Buffer.concat(
        Object.entries(list).flatMap(([k, v]) => [Buffer.from([0]), text(k), text(v)]),
    );
}

/** The frames in bytes that a server has sent. */
export function frames(bytes) {
    const found = [];
    for (let at = 0; bytes.length - at >= 9; ) {
        const length = bytes.readUIntBE(at, 3);
        if (bytes.length - at < 9 + length) break;
        found.push({
            type: bytes[at + 3],
            flags: bytes[at + 4],
            id: bytes.readUInt32BE(at + 5),
            payload: bytes.subarray(at + 9, at + 9 + length),
        });
        at += 9 + length;
    }
    return found;
}
