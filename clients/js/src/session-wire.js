// SPDX-License-Identifier: Apache-2.0
// The messages of tidemark.v1.SessionService (proto/tidemark/v1/session.proto) as bytes, Connect's
// envelopes around them, and the MACs of events.
import { join } from "./blocks.js";
import { webCrypto } from "./platform.js";

const FRAME_MAX = 80 << 20; // the server's bound for messages is 64 MiB
const MAC_TAIL = [0x42, 0x20]; // field 8, 32 bytes: a server chunk ends with it
const encoder = new TextEncoder();
const decoder = new TextDecoder();

// ---- requests ----

function varint(n) {
    const bytes = [];
    for (; n > 127; n = Math.floor(n / 128)) bytes.push((n % 128) | 128);
    return Uint8Array.from([...bytes, n]);
}

const bytesField = (number, bytes) =>
    join([varint((number << 3) | 2), varint(bytes.length), bytes]);
const numberField = (number, n) => join([varint(number << 3), varint(n)]);

export const toBytes = (data) => (typeof data === "string" ? encoder.encode(data) : data.slice());
export const toText = (bytes) => decoder.decode(bytes);

export const clientChunk = (seqno, bytes) => join([bytesField(1, bytes), numberField(5, seqno)]);
export const LAST = { abort: Uint8Array.of(0x12, 0), close: Uint8Array.of(0x1a, 0) };
export const requestId = (id) => bytesField(1, toBytes(id));
export const appendRequest = (id, seqno, message) =>
    join([bytesField(2, requestId(id)), numberField(3, seqno), bytesField(4, message)]);

export function envelope(message) {
    const head = new Uint8Array(5);
    new DataView(head.buffer).setUint32(1, message.length);
    return join([head, message]);
}

// ---- answers ----

/** The envelopes of a body: push() gives those that are whole, { flags, message }. */
export class Frames {
    #rest = new Uint8Array(0);

    push(bytes) {
        const found = [];
        let rest = join([this.#rest, bytes]);
        for (let end; rest.length >= 5; rest = rest.subarray(end)) {
            const { buffer, byteOffset } = rest;
            const length = new DataView(buffer, byteOffset).getUint32(1);
            if (length > FRAME_MAX) throw new RangeError("a message is too large");
            end = 5 + length;
            if (rest.length < end) break;
            found.push({ flags: rest[0], message: rest.subarray(5, end) });
        }
        this.#rest = rest;
        return found;
    }
}

/** The fields of a message by their number. All that the server sends are numbers and bytes. */
function fieldsOf(bytes) {
    const fields = {};
    let at = 0;
    const number = () => {
        let n = 0;
        for (let factor = 1; ; factor *= 128) {
            if (at >= bytes.length) throw new RangeError("a message is cut short");
            n += (bytes[at] & 127) * factor;
            if (bytes[at++] < 128) return n;
        }
    };
    while (at < bytes.length) {
        const tag = number();
        const n = number();
        const length = { 0: 0, 2: n }[tag % 8]; // of what stands behind
        if (!(length <= bytes.length - at)) throw new RangeError("a message is malformed");
        fields[Math.floor(tag / 8)] = tag % 8 === 2 ? bytes.subarray(at, at + n) : n;
        at += length;
    }
    return fields;
}

/** What the server says: one of { chunk }, { welcome }, { ack }. */
export function readResponse(message) {
    const { 1: chunk, 3: welcome, 4: ack } = fieldsOf(message);
    return { chunk, ack, welcome: welcome && { degraded: fieldsOf(welcome)[2] === 1 } };
}

/** An event: { id, data, mac, covered }; mac is of what is covered. Without one both are absent. */
export function readChunk(bytes) {
    const { 1: data = new Uint8Array(0), 7: id, 8: mac } = fieldsOf(bytes);
    const at = bytes.length - 34;
    const signed = mac && MAC_TAIL.every((byte, i) => bytes[at + i] === byte);
    const rest = signed && { mac: bytes.subarray(-32), covered: bytes.subarray(0, at) };
    return { id: id && toText(id), data, ...rest };
}

// ---- MACs ----

/** mac(before, covered) as docs/protocols/sessions.md has it; undefined on pages without TLS. */
export async function macOf(secret, key) {
    const { subtle } = await webCrypto();
    if (!subtle) return undefined;
    const hmac = { name: "HMAC", hash: "SHA-256", length: 256 };
    const salt = toBytes(key);
    const info = toBytes("tidemark session mac");
    const base = await subtle.importKey("raw", secret, "HKDF", false, ["deriveKey"]);
    const how = { name: "HKDF", hash: "SHA-256", salt, info };
    const macKey = await subtle.deriveKey(how, base, hmac, false, ["sign"]);
    return async (before, covered) =>
        new Uint8Array(await subtle.sign("HMAC", macKey, join([before, covered])));
}

export const isSame = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);

// ---- base64 ----

export function toBase64(bytes) {
    let text = "";
    for (const byte of bytes) text += String.fromCharCode(byte);
    return btoa(text);
}

export const fromBase64 = (text) =>
    Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
