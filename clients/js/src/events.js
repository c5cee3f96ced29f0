// SPDX-License-Identifier: Apache-2.0
// Server-sent events, for readers that want to know what they say.
import { field, isBlank, Pieces } from "./blocks.js";
import { readWithin } from "./retry.js";

class Events extends Pieces {
    #event = { data: [] };

    take(line, out) {
        if (!isBlank(line)) {
            const [name, value] = field(line);
            if (name === "data") this.#event.data.push(value);
            else this.#event[name] = value;
            return false;
        }
        const { id, event, data } = this.#event;
        if (data.length > 0) out.push({ id, event, data: data.join("\n") });
        this.#event = { data: [] };
        return true;
    }
}

/** The events of a response one by one. Half an event at its end is none. */
export class EventReader {
    #reader;
    #quietMs;
    #events = new Events();
    #ready = [];

    constructor(response, quietMs) {
        this.#reader = response.body.getReader();
        this.#quietMs = quietMs;
    }

    /** { id, event, data }, or undefined at the end. */
    async next() {
        while (this.#ready.length === 0) {
            const { done, value } = await readWithin(this.#reader, this.#quietMs);
            if (done) return undefined;
            this.#ready = this.#events.push(value);
        }
        return this.#ready.shift();
    }

    cancel(reason) {
        return this.#reader.cancel(reason);
    }
}
