// SPDX-License-Identifier: Apache-2.0
// A client that goes on whatever happens to its connection, as the editor's does: what is not
// acknowledged is said again, in order; what was heard is asked for no more.
import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import { ErrorDetails } from "./session-schema.mjs";
import { Code } from "./session.mjs";

// The editor waits for a second. Who comes back faster may be overtaken by its own past: a request
// of a connection that was cut can reach the server behind one of the next connection.
const RECONNECT_MS = 5;
const PAST_MS = 1000;

export class ReliableClient {
    events = []; // texts; the n-th has the id n
    connections = 0;
    restated = 0; // chunks that were said more than once
    overtaken = 0; // connections that one before them has put an end to
    finished = false;
    #playback = new Map(); // seqno -> text, not acknowledged, in order
    #next = 0;
    #exhausted = false; // no more chunks will come
    #call = null;
    #over = false;
    #opened = 0; // when the last connection was

    constructor(peer, session) {
        this.peer = peer;
        this.session = session;
    }

    get said() {
        return this.#next;
    }

    /** Is there a connection that something could happen to? */
    get connected() {
        return this.#call !== null && !this.#call.over;
    }

    say(text) {
        const seqno = this.#next++;
        this.#playback.set(seqno, text);
        this.#call?.chunk(seqno, text);
    }

    /** No more follows: finished when all is answered. */
    close() {
        this.#exhausted = true;
        this.#call?.close();
    }

    /** Cuts the connection, or only the call on it. */
    cut(gently) {
        if (gently) this.#call.cancel();
        else this.peer.cut();
    }

    /** Gives up; for tests that have failed. */
    stop() {
        this.#over = true;
        this.peer.cut();
    }

    #listener = {
        ack: (seqno) => this.#playback.delete(seqno),
        event: ({ id, text }) => {
            assert.equal(id, String(this.events.length + 1), "each event once, in order");
            this.events.push(text);
        },
    };

    #open() {
        const position = String(this.events.length);
        const call = this.peer.open(this.session, { position, listener: this.#listener });
        for (const [seqno, text] of this.#playback) call.chunk(seqno, text);
        if (this.connections++ > 0) this.restated += this.#playback.size;
        if (this.#exhausted) call.close();
        return call;
    }

    /** Until all is said and answered. */
    async run() {
        while (!this.#over) {
            this.#opened = Date.now();
            this.#call = this.#open();
            const error = await this.#call.done;
            if (error === null) {
                assert.ok(this.#exhausted, "the server ended a session that was going on");
                // Acknowledgements may have been lost: the close that it had came behind all chunks.
                this.finished = true;
                return;
            }
            if (error.cause instanceof assert.AssertionError) throw error.cause;
            if (error.findDetails(ErrorDetails).length > 0) {
                const past = error.code === Code.Aborted && Date.now() - this.#opened < PAST_MS;
                assert.ok(past, `told to stop: ${error}`);
                this.overtaken++;
            }
            if (this.#call.welcome) assert.equal(this.#call.welcome.isDegradedMode, false);
            await delay(RECONNECT_MS);
        }
    }
}
