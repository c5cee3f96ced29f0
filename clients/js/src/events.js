// SPDX-License-Identifier: Apache-2.0
// Server-sent events, for readers that want to know what they say.
import { field, isBlank, splitLines } from "./blocks.js";
import { readWithin } from "./retry.js";

/** push(bytes) gives { id, event, data } of each whole event. */
function parseEvents() {
    let event = { data: [] };
    return splitLines((line, out) => {
        if (!isBlank(line)) {
            const [name, value] = field(line);
            if (name === "data") event.data.push(value);
            else event[name] = value;
            return false;
        }
        if (event.data.length > 0) out.push({ ...event, data: event.data.join("\n") });
        event = { data: [] };
        return true;
    });
}

/**
 * Reads the events of a response: next() gives one, or undefined at the end. Half an event at the
 * end is none.
 */
export function eventReader(response, quietMs) {
    const reader = response.body.getReader();
    const events = parseEvents();
    let ready = [];
    return {
        async next() {
            while (ready.length === 0) {
                const { done, value } = await readWithin(reader, quietMs);
                if (done) return undefined;
                ready = events.push(value);
            }
            return ready.shift();
        },
        cancel: (reason) => reader.cancel(reason),
    };
}
