// SPDX-License-Identifier: Apache-2.0
// An upstream that is bytes on a socket: what it is sent is kept as it came, and what it answers is
// exactly what a test says.
import { once } from "node:events";
import { createServer } from "node:net";
import { defer } from "./defer.mjs";
import { until } from "./wait.mjs";

const HEAD_END = "\r\n\r\n";

/** One connection: { socket, bytes, closed }. */
class Connection {
    bytes = Buffer.alloc(0);
    closed = false;

    constructor(socket) {
        this.socket = socket;
        socket.on("data", (data) => (this.bytes = Buffer.concat([this.bytes, data])));
        socket.on("close", () => (this.closed = true));
        socket.on("error", () => {});
    }

    /** The first request's lines, without the empty one. */
    async head() {
        await until(() => this.bytes.includes(HEAD_END), "a request's head");
        return this.text.slice(0, this.text.indexOf(HEAD_END)).split("\r\n");
    }

    get text() {
        return this.bytes.toString("latin1");
    }

    /** What came behind the head. */
    get body() {
        return this.text.slice(this.text.indexOf(HEAD_END) + HEAD_END.length);
    }
}

/**
 * Answers each connection's first head with `answer`: bytes, behind which it closes, or a function
 * of the connection and its head's lines.
 */
export async function startRawUpstream(t, answer) {
    const upstream = { connections: [], answer };
    const server = createServer((socket) => {
        const connection = new Connection(socket);
        upstream.connections.push(connection);
        connection.head().then(
            (lines) => {
                const { answer } = upstream;
                if (typeof answer === "function") answer(connection, lines);
                else if (answer !== undefined) socket.end(Buffer.from(answer, "latin1"));
            },
            () => {}, // the test is over
        );
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    defer(t, () => {
        for (const { socket } of upstream.connections) socket.destroy();
        server.close();
    });
    upstream.url = `http://127.0.0.1:${server.address().port}`;
    upstream.last = () => upstream.connections.at(-1);
    return upstream;
}

export const OK = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/** The names of header lines, in small letters. */
export const namesOf = (lines) => lines.slice(1).map((line) => line.split(":")[0].toLowerCase());
