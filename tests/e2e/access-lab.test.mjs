// SPDX-License-Identifier: Apache-2.0
// The Lab and the Cascade bridge of a server with access.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import OpenAI from "openai";
import { ask, asking, quick, startBridge } from "./lib/cascade.mjs";
import { defer } from "./lib/defer.mjs";
import { findBrowser, launch, openPage } from "./lib/lab-page.mjs";
import { labFolder } from "./lib/lab.mjs";
import { startServer } from "./lib/server.mjs";

const skip = findBrowser() ? false : "there is no Chromium here: `scripts/deps browser` installs it";
const digest = (token) => createHash("sha256").update(token).digest("hex");
const caller = (name, grant) =>
    `[caller ${name}]\ntoken-sha256 = ${digest(`${name}'s`)}\ngrant = ${grant}\n`;
const bearer = (token) => ({ Authorization: `Bearer ${token}` });
const page = { Cookie: "__Host-tidemark=ann's" };

async function startLab(t) {
    const folder = await labFolder(t);
    const config = join(folder.top, "conf");
    const files = `root = ${folder.root}\nfeedback = ${folder.feedback}\nallow-root = ${folder.work}\n`;
    await writeFile(config, `[lab]\n${files}` + caller("ann", "lab lab") + caller("eve", "read news/**"));
    return { folder, server: await startServer(t, ["--config", config]) };
}

const post = (server, headers) =>
    server.request("POST", "/api/feedback", { headers, body: '{"notes":"x"}' });

function assertRefused(answer, status, code) {
    assert.equal(answer.status, status, answer.text);
    assert.equal(answer.json().error.code, code);
}

test("a page reads by its cookie, and posts by the token that it was given", async (t) => {
    const { server, folder } = await startLab(t);
    for (const path of ["/lab", "/lab/lab.js", "/api/config", "/api/runs"])
        assert.equal((await server.request("GET", path, { headers: page })).status, 200, path);
    const { token } = (await server.request("GET", "/api/config", { headers: page })).json();
    assert.match(token, /^tok_[0-9a-f]{16}_[0-9a-f]{64}$/);
    assert.equal((await post(server, { "x-cm-lab-token": token })).status, 200);
    const both = { ...bearer("ann's"), "x-cm-lab-token": token };
    assert.equal((await post(server, both)).status, 200);
    assert.equal((await folder.entries()).length, 2);
});

test("the page itself, in a browser that has the cookie", { skip }, async (t) => {
    const { server, folder } = await startLab(t);
    const browser = await launch();
    defer(t, () => browser.close());
    const cookie = { name: "__Host-tidemark", value: "ann's", domain: "127.0.0.1", path: "/" };
    const flags = { secure: true, httpOnly: true, sameSite: "Lax", expires: -1 };
    const storageState = { cookies: [{ ...cookie, ...flags }], origins: [] };
    const opened = await openPage(t, browser, server, { storageState });
    await opened.getByLabel("Folder of the run").fill(await folder.artifacts("first"));
    await opened.getByRole("button", { name: "Import" }).click();
    await opened.getByRole("heading", { name: /^Review/ }).waitFor();
    await opened.getByLabel("Notes").fill("by cookie");
    await opened.getByRole("button", { name: "Submit review" }).click();
    await opened.locator(".submit [data-status]").filter({ hasText: /Stored as/ }).waitFor();
    assert.equal((await folder.entries())[0].notes, "by cookie");
    assert.equal(opened.posts.length, 2);
    for (const post of opened.posts) assert.equal(await post.headerValue("cookie"), null);
});

test("without the right there is neither the Lab nor a token", async (t) => {
    const { server, folder } = await startLab(t);
    for (const path of ["/lab", "/api/config", "/api/runs"]) {
        assertRefused(await server.request("GET", path), 401, "UNAUTHORIZED");
        const eve = await server.request("GET", path, { headers: bearer("eve's") });
        assertRefused(eve, 403, "FORBIDDEN");
        const nobody = await server.request("GET", path, { headers: bearer("nobody's") });
        assertRefused(nobody, 401, "UNAUTHORIZED");
    }
    const { token } = (await server.request("GET", "/api/config", { headers: page })).json();
    const stolen = { ...bearer("eve's"), "x-cm-lab-token": token };
    assertRefused(await post(server, stolen), 403, "FORBIDDEN");
    const later = `tok_${"f".repeat(15)}0${token.slice(20)}`;
    const other = token.slice(0, -1) + (token.endsWith("0") ? "1" : "0");
    for (const wrong of ["", "tok_", later, other, `${token}0`]) {
        assertRefused(await post(server, { "x-cm-lab-token": wrong }), 401, "UNAUTHORIZED");
        const ann = { ...bearer("ann's"), "x-cm-lab-token": wrong };
        assertRefused(await post(server, ann), 401, "UNAUTHORIZED");
    }
    assertRefused(await post(server, {}), 401, "UNAUTHORIZED");
    assert.equal((await folder.entries()).length, 0);
});

test("the bridge takes our token as the API key, and refuses in OpenAI's form", async (t) => {
    const grants = "generate route:/v1/chat/completions\ngrant = call route:/v1/models";
    const more = caller("ann", grants) + caller("eve", "read news/**");
    const bridge = await startBridge(t, { more });
    bridge.editor.script("ping", quick);
    const client = (apiKey) =>
        new OpenAI({ apiKey, baseURL: `${bridge.server.base}/v1`, maxRetries: 0 });
    assert.ok((await client("ann's").models.list()).data.length > 0);
    assert.equal((await ask({ client: client("ann's") }, "ping")).text, "pong");
    for (const refused of [(c) => c.models.list(), (c) => c.chat.completions.create(asking("no"))]) {
        await assert.rejects(
            refused(client("nobody's")),
            (e) => e instanceof OpenAI.AuthenticationError && e.code === "UNAUTHENTICATED",
        );
        await assert.rejects(
            refused(client("eve's")),
            (e) => e instanceof OpenAI.PermissionDeniedError && e.code === "FORBIDDEN",
        );
    }
});
