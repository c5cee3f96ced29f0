// SPDX-License-Identifier: Apache-2.0
// A TCP proxy that breaks connections on purpose.
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { defer } from "./defer.mjs";

/**
 * Starts a proxy before `server`; the test `t` stops it. For each connection plan(n) (n counts from
 * 0) says what happens to it:
 *   null                  nothing: bytes pass both ways
 *   { answerBytes: n }    cut once n bytes of answers have passed (0: before the first)
 *   { requestBytes: n }   cut once n bytes of requests have passed
 * `cuts` counts the connections that were cut.
 */
export async function startProxy(t, server, plan) {
    const open = new Set();
    const proxy = { cuts: 0, connections: 0, base: "" };
    const listener = createServer((client) => {
        const limits = plan(proxy.connections++) ?? {};
        const upstream = connect(server.where);
        const both = [client, upstream];
        const cut = () => both.forEach((s) => s.destroy());
        const pass = (from, to, limit = Infinity) => {
            let passed = 0;
            from.on("data", (bytes) => {
                const part = bytes.subarray(0, Math.max(0, limit - passed));
                passed += bytes.length;
                if (passed <= limit) {
                    to.write(bytes);
                    return;
                }
                proxy.cuts++;
                from.removeAllListeners("data");
                if (part.length > 0) to.write(part, cut);
                else cut();
            });
            from.on("end", () => to.end());
        };
        for (const socket of both) {
            open.add(socket);
            socket.setNoDelay(true);
            socket.on("error", cut);
            socket.on("close", () => {
                open.delete(socket);
                cut();
            });
        }
        pass(client, upstream, limits.requestBytes);
        pass(upstream, client, limits.answerBytes);
    });
    listener.listen(0, "127.0.0.1");
    await once(listener, "listening");
    proxy.base = `http://127.0.0.1:${listener.address().port}`;
    proxy.url = (name, query = "") => `${proxy.base}/v1/stream/${name}${query}`;
    defer(t, () => {
        listener.close();
        for (const socket of open) socket.destroy();
    });
    return proxy;
}
