// SPDX-License-Identifier: Apache-2.0
// A session's messages as bytes: Connect's envelopes, and the few fields that tests look at.
import assert from "node:assert/strict";

export const hex = (text) => Buffer.from(text.replaceAll(" ", ""), "hex");

/** flags, length, message */
export function envelope(message, flags = 0) {
    const head = Buffer.alloc(5);
    head[0] = flags;
    head.writeUInt32BE(message.length, 1);
    return Buffer.concat([head, message]);
}

/** All that the bytes hold; nothing may be left over. */
export function envelopes(bytes) {
    const found = [];
    for (let at = 0; at < bytes.length;) {
        assert.ok(bytes.length - at >= 5, "half a head at the end");
        const end = at + 5 + bytes.readUInt32BE(at + 1);
        assert.ok(end <= bytes.length, "half a message at the end");
        found.push({ flags: bytes[at], message: bytes.subarray(at + 5, end) });
        at = end;
    }
    return found;
}

/** The server chunks among messages, still as bytes: field 1 alone. */
export function serverChunks(list) {
    const chunks = [];
    for (const { flags, message } of list) {
        if (flags !== 0 || message[0] !== 0x0a) continue;
        let [length, at, shift] = [0, 1, 0];
        for (;;) {
            length += (message[at] & 127) << shift;
            shift += 7;
            if (message[at++] < 128) break;
        }
        assert.equal(at + length, message.length, "a server chunk is all of its message");
        chunks.push(message.subarray(at));
    }
    return chunks;
}
