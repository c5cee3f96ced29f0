// SPDX-License-Identifier: Apache-2.0
// examples/agent, run as a newcomer would, and with a model behind an API.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { scriptedModel } from "../../examples/agent/model.mjs";
import { defer } from "./lib/defer.mjs";
import { run } from "./lib/run.mjs";
import { binary } from "./lib/server.mjs";

const at = (name) => fileURLToPath(new URL(`../../examples/agent/${name}`, import.meta.url));

/** What the agent has to find out, from the tool itself. */
function expected() {
    const input = '{"status":"paid"}';
    const text = execFileSync(process.execPath, [at("orders.mjs")], { input, encoding: "utf8" });
    const orders = text
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line));
    const sums = {};
    for (const { city, cents } of orders) sums[city] = (sums[city] ?? 0) + cents;
    const [city, cents] = Object.entries(sums).sort((a, b) => b[1] - a[1])[0];
    return `${city}: ${(cents / 100).toFixed(2)} of ${orders.length} paid orders in all.`;
}

const example = (t, env = {}) =>
    run(t, process.execPath, [at("agent.mjs")], {
        env: { TIDEMARK: binary(), OPENAI_API_KEY: "", ...env },
    });

test("the agent reads its large result to the end and answers from all of it", async (t) => {
    const { code, stdout, stderr } = await example(t);
    assert.equal(code, 0, stderr);
    assert.equal(stderr, "");
    const lines = stdout.trim().split("\n");
    assert.equal(lines.at(-1), expected());
    const readme = await readFile(at("README.md"), "utf8");
    for (const line of [...lines.slice(0, 3), ...lines.slice(-2)])
        assert.ok(readme.includes(`\n${line}\n`), `the README does not say: ${line}`);
    assert.ok(lines.filter((line) => line.endsWith("more to come")).length > 10, stdout);
});

test("a model behind chat completions does the same", async (t) => {
    const asked = [];
    const api = createServer(async (request, response) => {
        let body = "";
        for await (const piece of request.setEncoding("utf8")) body += piece;
        const { messages, tools, model } = JSON.parse(body);
        asked.push({ url: request.url, key: request.headers.authorization, tools, model });
        const message = await scriptedModel(messages);
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify({ choices: [{ index: 0, message }] }));
    });
    api.listen(0, "127.0.0.1");
    await once(api, "listening");
    defer(t, () => {
        api.closeAllConnections();
        api.close();
    });
    const { code, stdout, stderr } = await example(t, {
        OPENAI_API_KEY: "a key",
        OPENAI_BASE_URL: `http://127.0.0.1:${api.address().port}/v1`,
        OPENAI_MODEL: "some-model",
    });
    assert.equal(code, 0, stderr);
    assert.equal(stdout.trim().split("\n").at(-1), expected());
    assert.ok(asked.length > 10);
    const [{ url, key, model, tools }] = asked;
    assert.deepEqual([url, key, model], ["/v1/chat/completions", "Bearer a key", "some-model"]);
    const orders = tools.find((tool) => tool.function.name === "orders");
    assert.equal(orders.function.parameters.properties.__cursor.type, "string");
    assert.deepEqual(orders.function.parameters.properties.status.enum, ["paid", "open"]);
});

test("without tidemark it says so", async (t) => {
    const { code, stderr } = await example(t, { TIDEMARK: "/nonexistent/tidemark" });
    assert.notEqual(code, 0);
    assert.match(stderr, /nonexistent/);
});
