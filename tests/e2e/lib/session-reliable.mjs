// SPDX-License-Identifier: Apache-2.0
// A client that goes on whatever happens to its connection, as the editor's does: what is not
// acknowledged is said again, in order; what was heard is asked for no more.
import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import { ErrorDetails } from "./session-schema.mjs";

const RECONNECT_MS = 5; // the editor waits for a second

export class ReliableClient {
    events = []; // texts; the n-th has the id n
    connections = 0;
    restated = 0; // chunks that were said more than once
    finished = false;
    #playback = new Map(); // seqno -> text, not acknowledged, in order
    #next = 0;
    #exhausted = false; // no more chunks will come
    #call = null;
    #over = false;

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
            this.#call = this.#open();
            const error = await this.#call.done;
            if (error === null) {
                assert.ok(this.#exhausted, "the server ended a session that was going on");
                assert.equal(this.#playback.size, 0, "it has ended, and chunks are unacknowledged");
                this.finished = true;
                return;
            }
            if (error.cause instanceof assert.AssertionError) throw error.cause;
            assert.equal(error.findDetails(ErrorDetails).length, 0, `told to stop: ${error}`);
            if (this.#call.welcome) assert.equal(this.#call.welcome.isDegradedMode, false);
            await delay(RECONNECT_MS);
        }
    }
}
