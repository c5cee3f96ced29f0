// SPDX-License-Identifier: Apache-2.0
// The public suite as its authors publish it; all it needs from us is an address.
import { runConformanceTests } from "@durable-streams/server-conformance-tests";

runConformanceTests({ baseUrl: process.env.CONFORMANCE_TEST_URL, subscriptions: !process.env.TIDEMARK_KERNEL });
