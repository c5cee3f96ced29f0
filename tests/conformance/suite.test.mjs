// SPDX-License-Identifier: Apache-2.0
// The public suite as its authors publish it; all it needs from us is an address, and a token where the server
// asks for one: the suite knows none.
import { runConformanceTests } from "@durable-streams/server-conformance-tests";

const token = process.env.CONFORMANCE_TOKEN;
if (token) {
    const plain = globalThis.fetch;
    globalThis.fetch = (target, options = {}) => {
        const headers = new Headers(options.headers);
        if (!headers.has("authorization")) headers.set("authorization", `Bearer ${token}`);
        return plain(target, { ...options, headers });
    };
}

runConformanceTests({ baseUrl: process.env.CONFORMANCE_TEST_URL, subscriptions: !process.env.TIDEMARK_KERNEL });
