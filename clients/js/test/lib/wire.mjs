// SPDX-License-Identifier: Apache-2.0
// A Gateway over TCP, with faults that only connections have.
import { once } from "node:events";
import { createServer } from "node:http";

/**
 * What becomes of a body after `at` bytes:
 *   reset   RST            fin     FIN, where HTTP says that more comes
 *   clean   the end of a whole answer
 */
const ENDS = {
    reset: (response) => response.socket.resetAndDestroy(),
    fin: (response) => response.socket.end(),
    clean: (response) => response.end(),
};

async function send(response, { status, headers, bytes }, { at = bytes?.length, how = "clean" }) {
    response.writeHead(status, headers);
    if (!bytes) return response.end();
    response.flushHeaders();
    if (at > 0) await new Promise((resolve) => response.write(bytes.subarray(0, at), resolve));
    if (how !== "clean") await new Promise((resolve) => setTimeout(resolve, 5)); // a reset overtakes
    ENDS[how](response);
}

/** Listens on this port, or any: { base, close }. */
export async function listen(gateway, port = 0) {
    const server = createServer(async (request, response) => {
        const { method, headers, url } = request;
        const fault = gateway.fault(gateway.requests.length, request) ?? {};
        gateway.requests.push(request);
        request.resume();
        await once(request, "end");
        const answer = gateway.answer(method, new URL(url, "http://x").href, new Headers(headers));
        if (fault.lose) return request.socket.resetAndDestroy();
        await send(response, answer, fault);
    });
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
    return {
        base: `http://127.0.0.1:${server.address().port}`,
        port: server.address().port,
        async close() {
            server.closeAllConnections();
            server.close();
            await once(server, "close");
        },
    };
}
