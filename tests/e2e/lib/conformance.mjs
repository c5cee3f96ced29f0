// SPDX-License-Identifier: Apache-2.0
// For `node --import`: @modelcontextprotocol/conformance imports a function of Node.js 22 that
// none of its server scenarios calls. With this it runs on Node.js 20 as well.
import * as fs from "node:fs";
import { register } from "node:module";

const url = (code) => `data:text/javascript,${encodeURIComponent(code)}`;

if (!("globSync" in fs)) {
    const stub = `export * from "node:fs"; export { default } from "node:fs";
        export const globSync = () => [];`;
    register(
        url(`export const resolve = (name, context, next) =>
            name === "fs" ? { url: ${JSON.stringify(url(stub))}, shortCircuit: true } : next(name, context);`),
    );
}
