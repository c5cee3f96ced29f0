// SPDX-License-Identifier: Apache-2.0
// The Lab's page, driven by a real browser. LAB_SCREENSHOTS=FOLDER keeps pictures of it.
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { makeClip } from "./lib/clip.mjs";
import { Lab, findBrowser, launch, openPage } from "./lib/lab-page.mjs";
import { until, within } from "./lib/wait.mjs";

const UUID = /[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}/;
const skip = findBrowser() ? false : "there is no Chromium here: `scripts/deps browser` installs it";

let browser;
let clips; // two films that differ

before(async () => {
    if (skip) return;
    browser = await launch();
    const page = await browser.newPage();
    // Encoders are for safe origins; this one needs no server.
    await page.route("http://localhost/", (route) => route.fulfill({ body: "<!doctype html>" }));
    await page.goto("http://localhost/");
    clips = [await makeClip(page), await makeClip(page, { hue: 20 })];
    await page.close();
});
after(() => browser?.close());

const rating = (scope, name) => scope.getByRole("spinbutton", { name });
const statusOf = (page) => page.locator(".submit [data-status]");
const submitButton = (page) => page.locator("main button[type=submit]");

const idsIn = (text) => text.match(new RegExp(UUID, "g"));

async function waitForStatus(page, pattern) {
    await statusOf(page).filter({ hasText: pattern }).waitFor();
    return statusOf(page).textContent();
}

async function picture(page, name) {
    const folder = process.env.LAB_SCREENSHOTS;
    if (!folder) return;
    await page.evaluate(() => document.activeElement.blur());
    await page.screenshot({ path: join(folder, name), fullPage: true, scale: "css" });
}

/** A Lab with one run, and a page that reviews it. */
async function reviewing(t, options) {
    const lab = await Lab.start(t);
    const runId = await lab.importRun("first", "Tides", clips[0]);
    const page = await openPage(t, browser, lab, { at: `/lab#/run/${runId}`, ...options });
    await page.getByRole("heading", { name: "Review: Tides" }).waitFor();
    return { lab, runId, page };
}

/** A Lab with two runs, and an experiment that compares them. */
async function comparing(t, more = {}) {
    const lab = await Lab.start(t);
    const baselineRunId = await lab.importRun("a", "Tides, plain", clips[0]);
    const runId = await lab.importRun("b", "Tides, with captions", clips[1]);
    const body = { baselineRunId, variants: [{ label: "B", runId }], ...more };
    const { experimentId } = await lab.post("/api/experiments", body);
    return { lab, experimentId };
}

/** Every request to store something carried this one id. */
async function onlyRequestId(page) {
    const ids = await Promise.all(page.posts.map((post) => post.headerValue("x-cm-lab-request-id")));
    assert.equal(new Set(ids).size, 1, `request ids: ${ids.join(", ")}`);
    assert.match(ids[0], UUID);
    return ids[0];
}

const feedbackPath = (url) => url.pathname === "/api/feedback";

test("a run is imported, watched, rated and stored", { skip }, async (t) => {
    const lab = await Lab.start(t);
    const folder = await lab.addRun("first", "How tides work", clips[0]);
    const page = await openPage(t, browser, lab);
    await page.getByText("There are no runs yet").waitFor();
    await page.getByLabel("Folder of the run").fill(folder);
    await page.getByRole("button", { name: "Import" }).click();
    await page.getByRole("heading", { name: "Review: How tides work" }).waitFor();
    const [{ runId }] = await page.evaluate(async () => (await (await fetch("/api/runs")).json()).items);

    const video = page.locator("video");
    await until(() => video.evaluate((v) => v.readyState >= 2), "the video's first frame");
    assert.equal(await video.evaluate((v) => v.duration), 12);
    const ahead = page.getByRole("button", { name: "Forward 5 s" });
    await ahead.click();
    await until(() => video.evaluate((v) => !v.seeking && v.currentTime === 5), "5 s");
    await video.evaluate((v) => (v.currentTime = 11));
    await until(() => video.evaluate((v) => !v.seeking && v.currentTime === 11), "11 s");

    assert.equal(await page.getByText("Sync rating").count(), 0, "metrics before anyone asked");
    await page.getByRole("button", { name: "Show metrics" }).click();
    assert.equal(await page.locator(".metrics dd").first().textContent(), "88");

    await page.getByRole("button", { name: "Hide metrics" }).click();
    assert.equal(await page.getByText("Sync rating").count(), 0, "metrics that were put away");

    const ratings = { overall: 78, hook: 91, pacing: 64, script: 80, visuals: 72, motion: 55 };
    Object.assign(ratings, { captions: 100, sync: 0 });
    for (const [key, value] of Object.entries(ratings))
        await rating(page, new RegExp(`^${key},`, "i")).fill(String(value));
    await page.getByRole("slider", { name: "Sync" }).fill("86");
    await page.getByLabel("Notes").fill("  The hook holds.\nThe end drags.  ");
    await page.getByLabel("Tags").fill("slow-end, , good hook ");
    await picture(page, "lab-review.png");
    await page.getByRole("button", { name: "Submit review" }).click();
    const said = await waitForStatus(page, /Stored as/);

    const [entry, ...others] = await lab.entries();
    assert.deepEqual(others, []);
    assert.deepEqual(idsIn(said), [entry.id]);
    assert.equal(entry.runId, runId);
    assert.equal(entry.sessionId, (await lab.config()).sessionId);
    assert.equal(entry.notes, "The hook holds.\nThe end drags.");
    assert.deepEqual(entry.tags, ["slow-end", "good hook"]);
    assert.deepEqual(entry.ratings, { ...ratings, sync: 86 });
});

test("older and reviewed runs are marked; files and reviews can be opened", { skip }, async (t) => {
    const lab = await Lab.start(t);
    const first = await lab.importRun("a", "Tides", clips[0]);
    await writeFile(join(lab.folder, "a", "video.mp4"), clips[1]);
    const second = (await lab.post("/api/runs/import", { path: join(lab.folder, "a") })).runId;
    await lab.importRun("b", "Alone", clips[0]);
    const notes = "<b>slow</b>\nend";
    const review = { runId: first, ratings: { overall: 70 }, notes, tags: ["x"] };
    await lab.post("/api/feedback", review);
    const page = await openPage(t, browser, lab);
    const marks = (id) =>
        page.locator(`li:has(a[href="#/run/${id}"]) .mark`).allTextContents();
    await page.getByRole("link", { name: "Alone" }).waitFor();
    assert.deepEqual(await marks(first), ["superseded", "reviewed"]);
    assert.deepEqual(await marks(second), ["newest"]);
    assert.equal(await page.locator('li:has-text("Alone") .mark').count(), 0);
    await picture(page, "lab-runs.png");

    await page.locator(`a[href="#/run/${second}"]`).click();
    await page.getByRole("link", { name: "an older run" }).click();
    await page.getByRole("link", { name: "the newer run" }).waitFor();
    assert.equal(new URL(page.url()).hash, `#/run/${first}`);
    assert.equal(await page.getByText("slow").count(), 0, "reviews before anyone asked");
    await page.getByText(/^Reviews given, the last on/).click();
    await page.getByText("Overall 70").waitFor();
    assert.equal(await page.locator(".notes").textContent(), notes);
    assert.equal(await page.locator(".notes b").count(), 0, "notes are text");
    await picture(page, "lab-reviewed.png");
    for (const name of ["script.json", "sync-report.json"]) {
        const opened = page.context().waitForEvent("page");
        await page.getByRole("link", { name }).click();
        const tab = await opened;
        await tab.waitForLoadState();
        const text = await readFile(join(lab.folder, "a", name), "utf8");
        assert.ok((await tab.locator("body").innerText()).includes(text), "the file as it is");
        await tab.close();
    }
    // One's own is there as soon as it is stored.
    await page.getByText(/^Reviews given/).click();
    await rating(page, /^overall,/i).fill("10");
    await page.getByRole("button", { name: "Submit review" }).click();
    await waitForStatus(page, /Stored as/);
    await page.getByText(/^Reviews given/).click();
    await page.getByText("Overall 10").waitFor();
});

test("the video is asked for in parts", { skip }, async (t) => {
    const { lab, runId, page } = await reviewing(t);
    const part = page.waitForResponse((answer) => answer.url().endsWith("/video"));
    await page.reload();
    const answer = await part;
    assert.equal(answer.url(), `${lab.base}/api/runs/${runId}/video`);
    assert.match(await answer.request().headerValue("range"), /^bytes=0-/);
    assert.equal(answer.status(), 206);
});

test("two runs are compared and both reviews stored with the winner", { skip }, async (t) => {
    const lab = await Lab.start(t);
    const a = await lab.importRun("a", "Tides, plain", clips[0]);
    const b = await lab.importRun("b", "Tides, with captions", clips[1]);
    const page = await openPage(t, browser, lab);
    await page.getByText("Compare two runs").click();
    await page.getByLabel("Baseline (A)").selectOption(a);
    await page.getByLabel("Variant (B)").selectOption(b);
    await page.getByLabel("Name").fill("Captions");
    await page.getByLabel("What should be different?").fill("Captions help.");
    await page.getByRole("button", { name: "Start comparing" }).click();
    await page.getByRole("heading", { name: "Compare: Captions" }).waitFor();

    const videos = page.locator("video");
    assert.equal(await videos.count(), 2);
    for (const video of await videos.all())
        await until(() => video.evaluate((v) => v.readyState >= 2), "both videos' first frames");
    const [left, right] = await Promise.all([videos.nth(0).boundingBox(), videos.nth(1).boundingBox()]);
    assert.equal(left.y, right.y);
    assert.ok(left.x + left.width < right.x, "side by side");
    await page.getByRole("button", { name: "Forward 5 s" }).click();
    for (const video of await videos.all())
        await until(() => video.evaluate((v) => !v.seeking && v.currentTime === 5), "5 s in both");

    const [one, other] = [0, 1].map((i) => page.locator("section.contender").nth(i));
    await rating(one, "Overall").fill("60");
    await one.getByLabel("Notes").fill("plain");
    await rating(other, "Overall").fill("85");
    await other.getByLabel("Tags").fill("captions-better");
    await submitButton(page).click();
    assert.equal(await statusOf(page).textContent(), "", "without a winner, nothing is sent");
    await page.getByRole("radio", { name: "B", exact: true }).check();
    await page.getByLabel("Why?").fill("Easier to follow.");
    await picture(page, "lab-compare.png");
    await submitButton(page).click();
    const said = await waitForStatus(page, /Stored as/);

    const entries = await lab.entries();
    assert.deepEqual(idsIn(said), entries.map((entry) => entry.id));
    assert.deepEqual(
        entries.map(({ runId, ratings, notes, tags }) => ({ runId, ratings, notes, tags })),
        [
            { runId: a, ratings: { overall: 60 }, notes: "plain", tags: undefined },
            { runId: b, ratings: { overall: 85 }, notes: undefined, tags: ["captions-better"] },
        ],
    );
    await page.reload();
    await page.getByText("B was found better. Easier to follow.").waitFor();
    assert.equal(await submitButton(page).count(), 0, "a comparison is submitted once");
});

test("a comparison's questions are asked and answered", { skip }, async (t) => {
    const questions = [
        { id: "q1", prompt: "Were captions easier to read?", type: "yes_no_unsure" },
        { id: "q2", prompt: "What would you change?", type: "text" },
    ];
    const { lab, experimentId } = await comparing(t, { questions });
    const page = await openPage(t, browser, lab, { at: `/lab#/compare/${experimentId}` });
    await page.getByRole("group", { name: "Were captions easier" }).getByLabel("Unsure").check();
    await page.getByLabel("What would you change?").fill("The end");
    await page.getByRole("radio", { name: "Neither" }).check();
    await submitButton(page).click();
    await waitForStatus(page, /Stored as/);
    const url = `${lab.base}/api/experiments/${experimentId}`;
    const { answers, status, winner } = await (await fetch(url)).json();
    assert.deepEqual(answers, { q1: "unsure", q2: "The end" });
    assert.equal(status, "done");
    assert.equal(winner, undefined);
});

test("a double click stores one entry, and another only when asked for", { skip }, async (t) => {
    const { lab, page } = await reviewing(t);
    await rating(page, "Overall").fill("70");
    const button = submitButton(page);
    await button.dblclick();
    await waitForStatus(page, /Stored as/);
    await button.click({ force: true }); // the slow half of a double click
    await button.focus();
    await page.keyboard.press("Enter");
    await page.keyboard.press("Space");
    assert.equal((await lab.lines()).length, 1);
    assert.equal(page.posts.length, 1);

    await page.getByRole("button", { name: "Write another" }).click();
    assert.equal(await rating(page, "Overall").inputValue(), "");
    await rating(page, "Hook").fill("30");
    await button.click();
    await waitForStatus(page, /Stored as/);
    assert.deepEqual((await lab.entries()).map((entry) => entry.ratings), [{ overall: 70 }, { hook: 30 }]);
    const ids = await Promise.all(page.posts.map((post) => post.headerValue("x-cm-lab-request-id")));
    assert.notEqual(ids[0], ids[1]);
});

test("clicks while the answer is on its way submit nothing more", { skip }, async (t) => {
    const { lab, page } = await reviewing(t);
    let answer;
    const held = new Promise((resolve) => (answer = resolve));
    await page.route(feedbackPath, async (route) => {
        const response = await route.fetch();
        await held;
        await route.fulfill({ response });
    });
    await rating(page, "Overall").fill("70");
    await rating(page, "Overall").press("Enter");
    await waitForStatus(page, "Sending …");
    for (let i = 0; i < 3; i++) await submitButton(page).click({ force: true });
    answer();
    await waitForStatus(page, /Stored as/);
    assert.equal(page.posts.length, 1);
    assert.equal((await lab.lines()).length, 1);
});

test("an answer that is lost is asked for again under the same id", { skip }, async (t) => {
    const { lab, page } = await reviewing(t, { failing: true });
    let lost = 0;
    await page.route(feedbackPath, async (route) => {
        if (lost === 2) return route.continue();
        await route.fetch();
        lost++;
        await route.abort("connectionreset");
    });
    await page.getByLabel("Notes").fill("once");
    await submitButton(page).click();
    await waitForStatus(page, /The Lab does not answer. Trying again/);
    const said = await waitForStatus(page, /Stored as/);
    assert.equal(page.posts.length, 3);
    await onlyRequestId(page);
    const lines = await lab.lines();
    assert.deepEqual(idsIn(said), lines.map((line) => line.id));
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
});

test("a Lab killed after it stored, before it answered, is asked again", { skip }, async (t) => {
    const { lab, page } = await reviewing(t, { failing: true });
    await page.route(
        feedbackPath,
        async (route) => {
            await route.fetch();
            await lab.kill();
            await route.abort("connectionreset");
        },
        { times: 1 },
    );
    await rating(page, "Overall").fill("55");
    await submitButton(page).click();
    await waitForStatus(page, /The Lab does not answer. Trying again/);
    assert.equal((await lab.lines()).length, 1);
    await lab.spawn();
    const said = await waitForStatus(page, /Stored as/);
    const lines = await lab.lines();
    assert.deepEqual(idsIn(said), lines.map((line) => line.id));
    await onlyRequestId(page);
    const tokens = await Promise.all(page.posts.map((post) => post.headerValue("x-cm-lab-token")));
    assert.equal(new Set(tokens).size, 2, "the new Lab has a new token, and the page asked for it");
});

test("a Lab killed before it read the request gets it again", { skip }, async (t) => {
    const { lab, page } = await reviewing(t, { failing: true });
    await rating(page, "Overall").fill("55");
    lab.child.kill("SIGSTOP");
    const sent = page.waitForRequest((request) => request.method() === "POST");
    await submitButton(page).click();
    await sent;
    await lab.kill();
    await waitForStatus(page, /Trying again/);
    assert.equal((await lab.lines()).length, 0);
    await lab.spawn();
    const said = await waitForStatus(page, /Stored as/);
    assert.deepEqual(idsIn(said), (await lab.lines()).map((line) => line.id));
    await onlyRequestId(page);
});

test("a Lab killed at any moment after the click stores one entry", { skip }, async (t) => {
    const { lab, page } = await reviewing(t, { failing: true });
    const ids = [];
    for (const [round, ms] of [0, 3, 10, 30, 100].entries()) {
        await rating(page, "Overall").fill(String(round));
        const sent = page.waitForRequest((request) => request.method() === "POST");
        await submitButton(page).click();
        await sent;
        await delay(ms);
        await lab.kill();
        await lab.spawn();
        ids.push(...idsIn(await waitForStatus(page, /Stored as/)));
        await page.getByRole("button", { name: "Write another" }).click();
    }
    const lines = await lab.lines();
    assert.deepEqual(lines.map((line) => line.id), ids);
    assert.deepEqual(lines.map((line) => line.ratings.overall), [0, 1, 2, 3, 4]);
});

test("a comparison whose answer died with the Lab is stored once", { skip }, async (t) => {
    const { lab, experimentId } = await comparing(t);
    const at = `/lab#/compare/${experimentId}`;
    const page = await openPage(t, browser, lab, { at, failing: true });
    await page.route(
        (url) => url.pathname.endsWith("/submit"),
        async (route) => {
            await route.fetch();
            await lab.kill();
            await route.abort("connectionreset");
        },
        { times: 1 },
    );
    await page.getByRole("radio", { name: "A (baseline)" }).check();
    await submitButton(page).dblclick();
    await waitForStatus(page, /Trying again/);
    await lab.spawn();
    const said = await waitForStatus(page, /Stored as/);
    const lines = await lab.lines();
    assert.equal(lines.length, 2);
    assert.deepEqual(idsIn(said), lines.map((line) => line.id));
    await onlyRequestId(page);
});

test("a page that is loaded again goes on with what had no answer", { skip }, async (t) => {
    const { lab, page } = await reviewing(t, { failing: true });
    let lose = true;
    await page.route(feedbackPath, async (route) => {
        if (!lose) return route.continue();
        await route.fetch();
        await route.abort("connectionreset");
    });
    await rating(page, "Overall").fill("81");
    await page.getByLabel("Notes").fill("kept");
    await submitButton(page).click();
    await waitForStatus(page, /Trying again/);
    await page.reload();
    await waitForStatus(page, /Trying again/);
    assert.equal(await rating(page, "Overall").inputValue(), "81");
    assert.equal(await page.getByLabel("Notes").inputValue(), "kept");
    lose = false;
    await waitForStatus(page, /Stored as/);
    assert.equal((await lab.lines()).length, 1);
    await onlyRequestId(page);
});

test("a new session is not asked about what the old one may have stored", { skip }, async (t) => {
    const { lab, page } = await reviewing(t, { failing: true });
    await page.route(
        feedbackPath,
        async (route) => {
            await route.fetch();
            await lab.kill();
            await route.abort("connectionreset");
        },
        { times: 1 },
    );
    await rating(page, "Overall").fill("40");
    await submitButton(page).click();
    await waitForStatus(page, /Trying again/);
    await lab.spawn(["--new-session"]);
    await waitForStatus(page, /Not confirmed: the Lab began a new session/);
    assert.equal((await lab.lines()).length, 1);
    assert.equal(await rating(page, "Overall").inputValue(), "40", "what was written stays");
    assert.ok(await rating(page, "Overall").isEnabled());
});

test("a server that is gone can be given up", { skip }, async (t) => {
    const { lab, page } = await reviewing(t, { failing: true });
    await lab.kill();
    await rating(page, "Overall").fill("40");
    await submitButton(page).click();
    await page.getByRole("button", { name: "Stop trying" }).click();
    await waitForStatus(page, /Not confirmed: you stopped it/);
    assert.ok(await rating(page, "Overall").isEnabled());
    await lab.spawn();
    await submitButton(page).click();
    await waitForStatus(page, /Stored as/);
    assert.equal((await lab.lines()).length, 1);
});

test("what is refused is said, and can be mended", { skip }, async (t) => {
    const { lab, page } = await reviewing(t, { failing: true });
    await submitButton(page).click();
    await waitForStatus(page, /Rate something/);
    assert.equal(page.posts.length, 0, "an empty review is not sent");
    await rating(page, "Overall").fill("101");
    await submitButton(page).click();
    assert.equal(page.posts.length, 0, "nor is a rating out of range");

    const error = { code: "INVALID_ARGUMENT", message: "No such luck", context: { fix: "Try B." } };
    const refuse = (route) => route.fulfill({ status: 400, json: { error } });
    await page.route(feedbackPath, refuse, { times: 1 });
    await rating(page, "Overall").fill("100");
    await submitButton(page).click();
    await waitForStatus(page, "Not stored: No such luck. Try B.");
    await submitButton(page).click();
    await waitForStatus(page, /Stored as/);
    assert.equal((await lab.lines()).length, 1);

    await page.getByRole("link", { name: "Lab", exact: true }).click();
    await page.getByText("Import a run").click();
    await page.getByLabel("Folder of the run").fill(join(lab.folder, "nowhere"));
    await page.getByRole("button", { name: "Import" }).click();
    await page.locator('[data-form="import"] [data-state="refused"]').waitFor();
    await page.goto(`${lab.base}/lab#/run/run_nobody`);
    await page.getByRole("heading", { name: "This cannot be shown" }).waitFor();
});

test("a Lab that is away when the page loads a view is waited for", { skip }, async (t) => {
    const { lab, page } = await reviewing(t, { failing: true });
    await lab.kill();
    await page.getByRole("link", { name: "Lab", exact: true }).click();
    await page.getByText("The Lab does not answer. Trying again").waitFor();
    await lab.spawn();
    await page.getByRole("heading", { name: "Runs" }).waitFor();
    assert.equal(await page.locator("#news").textContent(), "");
});

test("the keyboard is enough", { skip }, async (t) => {
    const lab = await Lab.start(t);
    await lab.importRun("first", "Tides", clips[0]);
    const page = await openPage(t, browser, lab);
    await page.getByRole("link", { name: "Tides" }).waitFor();
    const focused = (read) => page.evaluate(`(${read})(document.activeElement)`);
    const tabTo = async (name) => {
        for (let i = 0; i < 60; i++) {
            await page.keyboard.press("Tab");
            const label = "(e) => e.getAttribute('aria-label') ?? e.labels?.[0]?.textContent ?? e.textContent";
            if ((await focused(label)).trim().startsWith(name)) {
                const style = await focused("(e) => getComputedStyle(e).outlineStyle");
                assert.notEqual(style, "none", `${name} does not show that it has the focus`);
                return;
            }
        }
        assert.fail(`no ${name} among what Tab reaches`);
    };
    await tabTo("Tides");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Review: Tides" }).waitFor();
    await until(() => focused("(e) => e.tagName === 'H1'"), "the new view's heading to have focus");
    await tabTo("Overall");
    await page.keyboard.type("64");
    await tabTo("Hook");
    await page.keyboard.type("50");
    await page.keyboard.press("ArrowUp");
    await tabTo("Notes");
    await page.keyboard.type("By hand.");
    await tabTo("Submit review");
    await page.keyboard.press("Enter");
    await waitForStatus(page, /Stored as/);
    assert.equal(await statusOf(page).getAttribute("role"), "status");
    assert.equal(await focused("(e) => e.type"), "submit", "focus stays where it was");
    const [entry] = await lab.entries();
    assert.deepEqual(entry.ratings, { overall: 64, hook: 51 });
    await tabTo("Write another");
});

test("a phone shows every view without scrolling sideways", { skip }, async (t) => {
    const lab = await Lab.start(t);
    const a = await lab.importRun("a", `Tides ${"w".repeat(120)}`, clips[0]);
    const b = await lab.importRun("b", "Tides, again", clips[1]);
    const variants = [{ label: "B", runId: b }];
    const made = await lab.post("/api/experiments", { baselineRunId: a, variants });
    for (const at of ["/lab", `/lab#/run/${a}`, `/lab#/compare/${made.experimentId}`]) {
        const page = await openPage(t, browser, lab, { at, viewport: { width: 360, height: 740 } });
        await page.locator("main h1").waitFor();
        await page.evaluate(() => document.querySelectorAll("details").forEach((e) => (e.open = true)));
        const { wide, small } = await page.evaluate(() => ({
            wide: document.scrollingElement.scrollWidth - innerWidth,
            small: [...document.querySelectorAll("main button, main input:not([type=radio])")]
                .filter((e) => e.getClientRects().length > 0)
                .filter((e) => e.getBoundingClientRect().height < 40)
                .map((e) => e.outerHTML),
        }));
        assert.ok(wide <= 0, `${at} is ${wide} pixels too wide`);
        assert.deepEqual(small, [], `${at} has parts too small for a finger`);
    }
});

/** The contrast of an element's text with what is behind it, as WCAG reckons it. */
function contrast(e) {
    const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
    const light = (colour) => {
        const [r, g, b] = numbers(colour).map((c) => {
            const s = c / 255;
            return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    let behind = e;
    while (numbers(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
    const two = [getComputedStyle(e).color, getComputedStyle(behind).backgroundColor].map(light);
    return (Math.max(...two) + 0.05) / (Math.min(...two) + 0.05);
}

test("text can be read by day and by night", { skip }, async (t) => {
    const { lab, runId } = await reviewing(t);
    const grounds = new Set();
    for (const colorScheme of ["light", "dark"]) {
        const page = await openPage(t, browser, lab, { at: `/lab#/run/${runId}`, colorScheme });
        await page.getByLabel("Notes").fill("x");
        await submitButton(page).click();
        await waitForStatus(page, /Stored as/);
        await page.getByRole("button", { name: "Write another" }).click();
        for (const part of ["h1", ".hint", "legend", ".rating span", "textarea", "main button"])
            for (const each of await page.locator(part).all())
                assert.ok((await each.evaluate(contrast)) >= 4.5, `${part}, ${colorScheme}`);
        grounds.add(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    }
    assert.equal(grounds.size, 2);
});

test("nothing moves while a view fills", { skip }, async (t) => {
    const { lab, runId } = await reviewing(t);
    const page = await openPage(t, browser, lab);
    await page.addInitScript(() => {
        window.moved = [];
        const note = (list) => window.moved.push(...list.getEntries().map((e) => e.value));
        new PerformanceObserver(note).observe({ type: "layout-shift", buffered: true });
    });
    for (const at of ["/lab", `/lab#/run/${runId}`]) {
        await page.goto("about:blank");
        await page.goto(lab.base + at);
        await page.locator("main h1").waitFor();
        for (const video of await page.locator("video").all())
            await until(() => video.evaluate((v) => v.readyState >= 2), "the video's first frame");
        await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))));
        assert.deepEqual(await page.evaluate(() => window.moved), [], at);
    }
});

test("what files say is shown as text", { skip }, async (t) => {
    const lab = await Lab.start(t);
    const topic = `<img src="/x" onerror="window.hurt=1"><b>bold</b>`;
    const a = await lab.importRun("a", topic, clips[0]);
    const b = await lab.importRun("b", topic, clips[1]);
    const questions = [{ id: "q", prompt: topic, type: "text" }];
    const variants = [{ label: topic, runId: b }];
    const body = { name: topic, hypothesis: topic, baselineRunId: a, variants, questions };
    const { experimentId } = await lab.post("/api/experiments", body);
    for (const at of ["/lab", `/lab#/run/${a}`, `/lab#/compare/${experimentId}`]) {
        const page = await openPage(t, browser, lab, { at });
        await page.getByText(topic).filter({ visible: true }).first().waitFor();
        assert.equal(await page.locator("img, b").count(), 0);
        assert.equal(await page.evaluate(() => window.hurt), undefined);
    }
});

test("a task opens its view at once, and the Lab ends when it is done", { skip }, async (t) => {
    const lab = await Lab.start(t);
    const folder = await lab.addRun("first", "Tides", clips[0]);
    await lab.end("SIGTERM");
    await lab.spawn(["--review", folder]);
    const page = await openPage(t, browser, lab);
    await page.getByRole("heading", { name: "Review: Tides" }).waitFor();
    await rating(page, "Overall").fill("90");
    await submitButton(page).dblclick();
    const said = await waitForStatus(page, /Stored as .*You can close this page\./);
    const [code] = await within(lab.ended, "the Lab to end by itself");
    assert.equal(code, 0);
    assert.deepEqual(
        idsIn(said),
        (await lab.lines()).map((line) => line.id),
    );
});

test("a comparison can be the task, too", { skip }, async (t) => {
    const { lab, experimentId } = await comparing(t);
    await lab.end("SIGTERM");
    await lab.spawn(["--compare", experimentId]);
    const page = await openPage(t, browser, lab);
    await page.getByRole("radio", { name: "Neither" }).check();
    await submitButton(page).click();
    await waitForStatus(page, /Stored as .*You can close this page\./);
    const [code] = await within(lab.ended, "the Lab to end by itself");
    assert.equal(code, 0);
    assert.equal((await lab.lines()).length, 2);
});

test("the page may do nothing but what it does", { skip }, async (t) => {
    const lab = await Lab.start(t);
    const page = await openPage(t, browser, lab);
    await page.locator("main h1").waitFor();
    const policy = (await page.reload()).headers()["content-security-policy"];
    assert.match(policy, /default-src '(self|none)'/);
    assert.doesNotMatch(policy, /unsafe|data:|blob:|\*/);
    for (const [path, type] of [
        ["/lab", "text/html"],
        ["/lab/lab.css", "text/css"],
        ["/lab/lab.js", "text/javascript"],
        ["/lab/lab.svg", "image/svg+xml"],
    ]) {
        const answer = await fetch(lab.base + path);
        assert.equal(answer.status, 200, path);
        assert.ok(answer.headers.get("content-type").startsWith(type), path);
        assert.doesNotMatch(await answer.text(), /https?:\/\/(?!www\.w3\.org\/2000\/svg)/, path);
    }
});
