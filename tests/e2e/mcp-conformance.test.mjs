// SPDX-License-Identifier: Apache-2.0
// The public suite @modelcontextprotocol/conformance against /mcp: the server scenarios that are
// about tools and HTTP. Those about prompts, resources, sampling, elicitation, logging, progress,
// images and sound are about what this server does not offer. docs/testing.md has the list.
import assert from "node:assert/strict";
import { readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { rowsTool, startPages } from "./lib/pages.mjs";
import { run } from "./lib/run.mjs";
import { tempFolder } from "./lib/temp.mjs";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const SUITE = at("node_modules/@modelcontextprotocol/conformance/dist/index.js");

const SCENARIOS = {
    "2025-06-18": [
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "tools-list",
        "tools-call-simple-text",
        "tools-call-error",
    ],
    "2025-11-25": [
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "tools-list",
        "tools-call-simple-text",
        "tools-call-error",
        "json-schema-2020-12",
        "dns-rebinding-protection",
    ],
    "2026-07-28": [
        "server-stateless",
        "tools-list",
        "tools-call-simple-text",
        "tools-call-error",
        "json-schema-2020-12",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
        "caching",
        "http-header-validation",
        "http-custom-header-server-validation",
        "input-required-result-unsupported-methods",
    ],
};

// Single checks of these scenarios that ask for what is not offered, and so cannot succeed.
const NOT_OFFERED = {
    "server-stateless": [
        "sep-2575-server-rejects-undeclared-capability", // no tool asks the client for anything
        "sep-2575-missing-capability-http-400",
    ],
    caching: [
        "sep-2549-prompts-list-caching-hints",
        "sep-2549-resources-list-caching-hints",
        "sep-2549-resources-templates-list-caching-hints",
        "sep-2549-resources-read-caching-hints",
    ],
};

const SCHEMA = {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    $defs: {
        address: {
            $anchor: "addressDef",
            type: "object",
            properties: { street: { type: "string" }, city: { type: "string" } },
        },
    },
    properties: {
        name: { type: "string" },
        address: { $ref: "#/$defs/address" },
        contactMethod: { type: "string", enum: ["phone", "email"] },
        phone: { type: "string" },
        email: { type: "string" },
    },
    allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
    if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
    then: { required: ["phone"] },
    else: { required: ["email"] },
    additionalProperties: false,
};

/** A server with the tools that scenarios look for. */
async function startSubject(t) {
    const schema = join(await tempFolder(t), "schema.json");
    await writeFile(schema, JSON.stringify(SCHEMA));
    const says = {
        command: `printf '"This is a simple text response for testing."'`,
        description: "Says a sentence",
    };
    return startPages(t, {
        "tool test_simple_text": says,
        "tool test_streaming_elicitation": says,
        "tool test_logging_tool": says,
        "tool test_error_handling": { command: "false", description: "Fails" },
        "tool json_schema_2020_12_tool": { ...says, "input-schema": `@${schema}` },
        "tool by_region": {
            ...says,
            "input-schema":
                '{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}',
        },
        "tool rows": rowsTool(250),
    });
}

/** Runs all scenarios of a version: { NAME: checks }. */
async function results(t, server, version) {
    const folder = await tempFolder(t);
    const url = `http://localhost:${server.where.port}/mcp`;
    const options = ["--url", url, "--suite", "all", "--spec-version", version, "-o", folder];
    const program = ["--import", at("lib/conformance.mjs"), SUITE];
    await run(t, process.execPath, [...program, "server", ...options]);
    const found = {};
    for (const name of await readdir(folder)) {
        const scenario = /^server-(.*)-\d{4}-\d\d-\d\dT/.exec(name)[1];
        found[scenario] = JSON.parse(await readFile(join(folder, name, "checks.json"), "utf8"));
    }
    return found;
}

for (const [version, scenarios] of Object.entries(SCENARIOS))
    test(`the public suite's scenarios for ${version}`, async (t) => {
        const found = await results(t, await startSubject(t), version);
        for (const scenario of scenarios) {
            const checks = found[scenario];
            assert.ok(checks?.length > 0, `${scenario} was not run: ${Object.keys(found)}`);
            const excused = NOT_OFFERED[scenario] ?? [];
            const failed = checks.filter(
                ({ id, status }) => status === "FAILURE" && !excused.includes(id),
            );
            const said = failed.map(({ id, errorMessage }) => `${id}: ${errorMessage}`);
            assert.deepEqual(said, [], scenario);
            assert.ok(
                checks.some(({ status }) => status === "SUCCESS" || status === "INFO"),
                `${scenario} has checked nothing`,
            );
            t.diagnostic(`${scenario}: ${checks.map(({ status }) => status).join(" ")}`);
        }
    });
