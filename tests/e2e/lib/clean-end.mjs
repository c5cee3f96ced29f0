// SPDX-License-Identifier: Apache-2.0
// A proxy that ends answers too early, and properly: to HTTP they are whole.
import { once } from "node:events";
import { createServer, request as send } from "node:http";
import { defer } from "./defer.mjs";

/** Passes on so many events of an event stream, or all of it. True: it was ended. */
async function pass(answer, response, events) {
    let seen = "";
    for await (const bytes of answer.setEncoding("latin1")) {
        const whole = (seen + bytes).split("\n\n");
        if (whole.length > events) {
            const end = whole.slice(0, events).join("\n\n").length + 2 - seen.length;
            response.end(bytes.slice(0, Math.max(0, end)), "latin1");
            answer.destroy();
            return true;
        }
        seen += bytes;
        response.write(bytes, "latin1");
    }
    response.end();
    return false;
}

/** events(n): how many of them the n-th answer has (from 0). `ends` counts those cut short. */
export async function startCleanEnds(t, where, events) {
    const proxy = { ends: 0, answers: 0 };
    const server = createServer((asked, response) => {
        const { method, url: path, headers } = asked;
        const onward = send({ ...where, method, path, headers }, async (answer) => {
            response.writeHead(answer.statusCode, answer.headers);
            const ended = await pass(answer, response, events(proxy.answers++)).catch(() => {});
            if (ended) proxy.ends++;
        });
        onward.on("error", () => response.destroy());
        asked.pipe(onward);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    proxy.base = `http://127.0.0.1:${server.address().port}`;
    defer(t, () => {
        server.close();
        server.closeAllConnections();
    });
    return proxy;
}
