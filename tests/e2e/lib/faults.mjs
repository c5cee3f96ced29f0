// SPDX-License-Identifier: Apache-2.0
// A TCP proxy that does to bytes what networks, and boxes on the way, do. Unless some are to come
// twice, what arrives is a prefix of what was sent: TCP loses an end, but nothing in the middle.
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { defer } from "./defer.mjs";

const DUPLICATE_ENDS_MS = 1000;
const FAULTS = ["cut", "reset", "truncate", "delay", "duplicate"];
/** Those that end a connection, and those of them that no TLS is needed to notice. */
export const ENDS = ["cut", "reset", "truncate", "duplicate"];
export const PLAIN_ENDS = ["cut", "reset", "truncate"];

class Connection {
    #proxy;
    #sockets;
    #faults;

    constructor(proxy, client, server, faults) {
        this.#proxy = proxy;
        this.#sockets = [client, server];
        this.#faults = faults;
        for (const socket of this.#sockets) {
            socket.setNoDelay(true);
            socket.on("error", () => this.destroy());
            socket.on("close", () => this.destroy());
        }
        this.#pass(client, server, "request");
        this.#pass(server, client, "answer");
    }

    destroy() {
        for (const socket of this.#sockets) socket.destroy();
    }

    #pass(from, to, side) {
        const faults = this.#faults.filter((fault) => fault.side === side);
        faults.sort((a, b) => a.at - b.at);
        let passed = 0;
        const pass = (bytes) => {
            if (from.silenced || to.destroyed) return;
            const fault = faults[0];
            if (!fault || passed + bytes.length <= fault.at) {
                passed += bytes.length;
                to.write(bytes);
                return;
            }
            faults.shift();
            this.#proxy.counts[fault.kind]++;
            const at = fault.at - passed;
            passed += at;
            this.#meet(fault, { from, to, pass }, bytes, at);
        };
        from.on("data", pass);
        from.on("end", () => to.end());
    }

    #meet({ kind, ms, length }, { from, to, pass }, bytes, at) {
        const [head, rest] = [bytes.subarray(0, at), bytes.subarray(at)];
        if (kind === "cut") {
            from.silenced = true; // or what comes before the head is written would follow it
            to.write(head, () => this.destroy());
        } else if (kind === "reset") {
            for (const socket of this.#sockets) socket.resetAndDestroy();
        } else if (kind === "truncate") {
            from.silenced = true; // what comes goes nowhere; the other side is not told
            to.end(head);
        } else if (kind === "delay") {
            to.write(head);
            from.pause();
            from.unshift(rest); // before all that comes meanwhile, an end included
            setTimeout(() => from.resume(), ms);
        } else {
            to.write(head);
            to.write(bytes.subarray(Math.max(0, at - length), Math.max(at, length)));
            pass(rest);
            // Lengths that were read from the wrong place may be waited for until nothing is heard
            // for long, which is not what is tested here.
            setTimeout(() => this.destroy(), DUPLICATE_ENDS_MS).unref();
        }
    }
}

/**
 * Starts a proxy before what listens at `where`; the test `t` stops it. faults(n) says what
 * happens to the n-th connection (from 0), a list of
 *   { kind, side, at, ms, length }   behind `at` bytes of the side "request" or "answer":
 *     cut         both ends are closed
 *     reset       both ends are reset, and what is under way is lost
 *     truncate    the rest of this side never comes; its end does
 *     delay       the rest of this side comes `ms` later
 *     duplicate   up to `length` bytes come twice, and soon both ends are closed
 * `counts` says how often each came about.
 */
export async function startFaults(t, where, faults, scheme = "http") {
    const proxy = { counts: Object.fromEntries(FAULTS.map((kind) => [kind, 0])), connections: 0 };
    const open = new Set();
    const listener = createServer({ allowHalfOpen: true }, (client) => {
        const server = connect({ ...where, allowHalfOpen: true });
        const connection = new Connection(proxy, client, server, faults(proxy.connections++));
        open.add(connection);
        client.on("close", () => open.delete(connection));
    });
    listener.listen(0, "127.0.0.1");
    await once(listener, "listening");
    proxy.base = `${scheme}://127.0.0.1:${listener.address().port}`;
    defer(t, () => {
        listener.close();
        for (const connection of open) connection.destroy();
    });
    return proxy;
}

/**
 * For each connection one fault of these kinds within so many bytes, and maybe delays; on the first
 * connection not before `hellos` bytes.
 */
export function mischief(random, { kinds, bytes, sides = ["request", "answer"], hellos = 0 }) {
    const fault = (kind, from, to = bytes + hellos) => ({
        kind,
        side: sides[random.below(sides.length)],
        at: from + random.below(to - from),
        ms: 10 + random.below(150),
        length: 1 + random.below(60),
    });
    return (n) => {
        const kind = kinds[random.below(kinds.length)];
        const delays = Array.from({ length: random.below(3) }, () => fault("delay", 0));
        // Now and then more passes, or an answer that is longer would never come.
        if (n % 3 === 2) return [fault(kind, 10 * bytes, 20 * bytes), ...delays];
        return [fault(kind, n === 0 ? hellos : 0), ...delays];
    };
}

export const total = ({ counts }) => Object.values(counts).reduce((sum, n) => sum + n, 0);
