// SPDX-License-Identifier: Apache-2.0
// The Lab's runs and experiments: import by fingerprint, videos by ranges, artifacts, and decisions.
import assert from "node:assert/strict";
import { mkdir, readFile, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { assertProblem, labFolder, startLab } from "./lib/lab.mjs";
import { curl } from "./lib/run.mjs";
import { startServer } from "./lib/server.mjs";

const reports = {
    "sync-report.json": {
        rating: 88,
        ratingLabel: "good",
        metrics: { meanDriftMs: 10, maxDriftMs: 40 },
    },
    "caption-report.json": {
        captionQuality: {
            overall: { score: 0.9 },
            coverage: { coverageRatio: 0.8 },
            ocrConfidence: { mean: 0.95 },
        },
    },
    "score.json": { overall: 0.734 },
};

// ---- runs ----

test("the same folder is the same run until video or script change", async (t) => {
    const lab = await startLab(t);
    const folder = await lab.folder.artifacts("r", {
        "video.mp4": "one",
        "script.json": { title: "cats" },
    });
    const first = await lab.import(folder);
    assert.match(first, /^run_[0-9a-f-]{36}$/);
    assert.equal(await lab.import("r"), first, "relative to where the Lab was started");
    assert.equal(await lab.import(join(folder, "..", "r", "video.mp4")), first, "by its video");
    await symlink(folder, join(lab.folder.work, "link"));
    assert.equal(await lab.import("link"), first, "by a link");
    await lab.folder.artifacts("r", { "score.json": "{}" });
    assert.equal(await lab.import(folder), first, "another file is no change");

    const before = new Date(2026, 1, 1, 0, 0, 0);
    await writeFile(join(folder, "video.mp4"), "another");
    const second = await lab.import(folder);
    assert.notEqual(second, first);
    await utimes(join(folder, "script.json"), before, before);
    const third = await lab.import(folder);
    assert.notEqual(third, second);
    await rm(join(folder, "script.json"));
    const fourth = await lab.import(folder);
    const lines = (await readFile(join(lab.folder.root, "runs.jsonl"), "utf8"))
        .trim()
        .split("\n")
        .map((l) => JSON.parse(l));
    assert.deepEqual(
        lines.map((run) => [run.runId, run.supersedesRunId]),
        [
            [first, undefined],
            [second, first],
            [third, second],
            [fourth, third],
        ],
    );
    await lab.folder.artifacts("r", { "script.json": { title: "cats" } });
    await utimes(join(folder, "script.json"), before, before);
    assert.equal(await lab.import(folder), third, "what was there before is recognised");
    const { items, nextCursor } = (await lab.get("/api/runs")).json();
    assert.deepEqual(
        items.map((run) => run.runId),
        [fourth, third, second, first],
    );
    assert.equal(nextCursor, null);
});

test("runs say what they came in place of, whether they were reviewed, and which files they have", async (t) => {
    const lab = await startLab(t);
    const folder = await lab.folder.artifacts("r", { "video.mp4": "one", "script.json": {} });
    const first = await lab.import(folder);
    await lab.folder.artifacts("r", {
        "video.mp4": "another",
        "sync-report-attempt1.json": { rating: 1 },
    });
    const second = await lab.import(folder);
    const other = await lab.import(await lab.folder.artifacts("other", { "video.mp4": "x" }));
    const one = async (id) => (await lab.get(`/api/runs/${id}`)).json();
    const list = async () =>
        (await lab.get("/api/runs")).json().items.map((r) => [r.runId, r.supersedesRunId, r.reviewedAt]);
    assert.deepEqual(await list(), [
        [other, null, null],
        [second, first, null],
        [first, null, null],
    ]);
    const { supersedesRunId, supersededByRunId, reviewedAt, files } = await one(second);
    assert.deepEqual([supersedesRunId, supersededByRunId, reviewedAt], [first, null, null]);
    assert.deepEqual(files, ["script.json", "sync-report-attempt1.json"]);
    assert.equal((await one(first)).supersededByRunId, second);
    assert.equal((await one(other)).supersededByRunId, null);

    await lab.submit({ runId: first, notes: "early" });
    await lab.submit({ runId: second, notes: "late" });
    await lab.submit({ notes: "of no run" });
    const all = (await lab.poll()).items;
    assert.deepEqual(await list(), [
        [other, null, null],
        [second, first, all[1].createdAt],
        [first, null, all[0].createdAt],
    ]);
    assert.equal((await one(first)).reviewedAt, all[0].createdAt);
    const answer = (await lab.get(`/api/feedback?runId=${second}`)).json();
    assert.deepEqual(answer.items, [all[1]]);
    assert.equal(answer.nextCursor, (await lab.poll()).nextCursor, "the cursor moves past the others");
    assert.deepEqual((await lab.get("/api/feedback?runId=run_none")).json().items, []);
    for (const name of files) {
        const file = await lab.get(`/api/runs/${second}/artifact/${name}`);
        assert.equal(file.status, 200);
        assert.match(file.headers["content-security-policy"], /^sandbox; default-src 'none'/);
        assert.equal(file.headers["x-content-type-options"], "nosniff");
    }
});

test("a run is about the video that was imported, whatever others there are", async (t) => {
    const lab = await startLab(t);
    const folder = await lab.folder.artifacts("r", { "video.mp4": "other", "clip.mp4": "meant" });
    const clip = join(folder, "clip.mp4");
    const runId = await lab.import(clip);
    assert.equal((await lab.get(`/api/runs/${runId}/video`)).text, "meant");
    assert.equal((await lab.get(`/api/runs/${runId}`)).json().videoPath, clip);
    await lab.submit({ runId, notes: "n" });
    assert.equal((await lab.folder.entries())[0].videoPath, clip);
});

test("a run has its topic, its metrics as they are now, and what it is made of", async (t) => {
    const lab = await startLab(t);
    const folder = await lab.folder.artifacts("r", {
        "clip.MP4": "x",
        "script.json": { meta: { topic: " cats " }, title: "no" },
    });
    const runId = await lab.import(folder);
    const nothing = { syncRating: null, captionOverall: null, proxyScoreOverall: null };
    const [item] = (await lab.get("/api/runs")).json().items;
    assert.deepEqual(item, {
        runId,
        sessionId: lab.config.sessionId,
        createdAt: item.createdAt,
        topic: "cats",
        artifactsDir: folder,
        videoPath: join(folder, "clip.MP4"),
        supersedesRunId: null,
        reviewedAt: null,
        autoMetricsSummary: nothing,
    });
    await lab.folder.artifacts("r", reports);
    const run = (await lab.get(`/api/runs/${runId}`)).json();
    assert.deepEqual(run.artifacts, {
        script: true,
        timestamps: false,
        visuals: false,
        score: true,
        reports: { sync: true, caption: true },
    });
    const { syncLabel, ...metrics } = run.autoMetricsSummary;
    assert.equal(syncLabel, "good");
    const expected = {
        syncRating: 88,
        captionOverall: 90,
        proxyScoreOverall: 73,
        meanDriftMs: 10,
        maxDriftMs: 40,
        captionCoverageRatio: 0.8,
        ocrConfidenceMean: 0.95,
    };
    assert.deepEqual(metrics, expected);
    await lab.submit({ runId, topic: "dogs", notes: "n" });
    const [{ id, createdAt, ...rest }] = (await lab.poll()).items;
    assert.deepEqual(rest, {
        schemaVersion: 1,
        sessionId: lab.config.sessionId,
        runId,
        topic: "cats",
        videoPath: join(folder, "clip.MP4"),
        artifactsDir: folder,
        notes: "n",
        autoMetricsSnapshot: expected,
        reports: {
            syncReportPath: join(folder, "sync-report.json"),
            captionReportPath: join(folder, "caption-report.json"),
            scorePath: join(folder, "score.json"),
        },
    });
    const keys = Object.keys((await lab.folder.entries())[0]);
    assert.deepEqual(keys.slice(0, 8), [
        "schemaVersion",
        "id",
        "createdAt",
        "sessionId",
        "runId",
        "topic",
        "videoPath",
        "artifactsDir",
    ]);
    const gone = await lab.post("/api/feedback", { runId: "run_none" });
    assert.equal(assertProblem(gone, 404, "NOT_FOUND").message, "Run not found: run_none");
    assertProblem(await lab.get("/api/runs/run_none"), 404, "NOT_FOUND");
});

test("records of others count, the last valid one of an id; what is no record does not", async (t) => {
    const lab = await startLab(t);
    const runId = await lab.import(await lab.folder.artifacts("r"));
    const file = join(lab.folder.root, "runs.jsonl");
    const [record] = (await readFile(file, "utf8")).trim().split("\n");
    const other = { ...JSON.parse(record), topic: "renamed" };
    const newer = { ...other, runId: "run_theirs", createdAt: "2999-01-01T00:00:00Z" };
    const bad = { ...other, topic: "bad", surprise: 1 };
    const text = [
        record,
        JSON.stringify(other),
        JSON.stringify(bad),
        "{torn",
        "",
        JSON.stringify(newer),
        '{"half":',
    ];
    await writeFile(file, text.join("\n")); // another file under the same name
    const { items } = (await lab.get("/api/runs")).json();
    assert.deepEqual(
        items.map((run) => [run.runId, run.topic]),
        [
            ["run_theirs", "renamed"],
            [runId, "renamed"],
        ],
    );
    const added = await lab.import(await lab.folder.artifacts("second"));
    assert.equal(
        (await lab.get(`/api/runs/${added}`)).status,
        200,
        "a torn tail does not swallow it",
    );
});

test("imports stay within the roots, whatever the path looks like", async (t) => {
    const folder = await labFolder(t);
    const extra = join(folder.top, "extra");
    const outside = join(folder.top, "outside");
    for (const dir of [extra, outside, `${folder.work}-not`]) {
        await mkdir(dir);
        await writeFile(join(dir, "video.mp4"), "x");
    }
    const lab = await startLab(t, { folder, args: ["--port", "0", "--allow-root", extra] });
    assert.deepEqual(lab.config.allowedRoots, [folder.work, join(folder.work, "output"), extra]);
    await lab.import(extra);
    const inside = await folder.artifacts("r");
    await symlink(outside, join(folder.work, "out"));
    await symlink(join(outside, "video.mp4"), join(inside, "leak.mp4"));
    await mkdir(join(folder.work, "empty"));
    await symlink("loop", join(folder.work, "loop"));
    const cases = [
        [outside, 403, "FORBIDDEN"],
        [`${folder.work}-not`, 403, "FORBIDDEN"],
        ["..", 403, "FORBIDDEN"],
        ["../outside", 403, "FORBIDDEN"],
        ["r/../../outside", 403, "FORBIDDEN"],
        ["out", 403, "FORBIDDEN"],
        ["out/video.mp4", 403, "FORBIDDEN"],
        ["r/leak.mp4", 403, "FORBIDDEN"],
        ["/", 403, "FORBIDDEN"],
        ["/etc/passwd", 403, "FORBIDDEN"],
        ["missing", 404, "FILE_NOT_FOUND"],
        ["r/video.mp4/deeper", 404, "FILE_NOT_FOUND"],
        ["empty", 400, "INVALID_ARGUMENT"],
        ["r\0/../../outside", 400, "INVALID_ARGUMENT"],
        ["\0", 400, "INVALID_ARGUMENT"],
        ["x".repeat(5000), 400, "INVALID_ARGUMENT"],
        [`${"a/".repeat(4000)}b`, 400, "INVALID_ARGUMENT"],
        ["loop", 400, "INVALID_ARGUMENT"],
        ["", 400, "INVALID_ARGUMENT"],
        ["  ", 400, "INVALID_ARGUMENT"],
        [7, 400, "INVALID_ARGUMENT"],
    ];
    for (const [path, status, code] of cases) {
        const answer = await lab.post("/api/runs/import", { path });
        assert.equal(answer.status, status, `${JSON.stringify(path).slice(0, 60)}: ${answer.text}`);
        assert.equal(answer.json().error.code, code);
    }
    assert.equal((await lab.get("/api/runs")).json().items.length, 1);
});

// ---- files ----

test("videos come whole or by ranges", async (t) => {
    const lab = await startLab(t);
    const bytes = Buffer.alloc(300_000, 0).map((_, i) => (i * 7) % 251);
    const folder = await lab.folder.artifacts("r", {});
    await writeFile(join(folder, "video.mp4"), bytes);
    const path = `/api/runs/${await lab.import(folder)}/video`;
    const whole = await lab.get(path);
    assert.equal(whole.status, 200);
    assert.equal(whole.headers["content-type"], "video/mp4");
    assert.equal(whole.headers["accept-ranges"], "bytes");
    assert.equal(whole.headers["content-length"], "300000");
    assert.ok(whole.bytes.equals(bytes));
    const good = [
        ["bytes=0-0", 0, 1],
        ["bytes=5-99999", 5, 100_000],
        ["bytes=299999-", 299_999, 300_000],
        ["bytes=100-", 100, 300_000],
        ["bytes=-1", 299_999, 300_000],
        ["bytes=-999999", 0, 300_000],
        ["bytes=10-999999999999999999999999", 10, 300_000],
        ["bytes=2-3,7-8", 2, 4],
    ];
    for (const [range, from, to] of good) {
        for (const method of ["GET", "HEAD"]) {
            const part = await lab.request(method, path, { headers: { range } });
            assert.equal(part.status, 206, range);
            assert.equal(part.headers["content-range"], `bytes ${from}-${to - 1}/300000`);
            assert.equal(part.headers["content-length"], String(to - from));
            assert.ok(
                part.bytes.equals(method === "HEAD" ? Buffer.alloc(0) : bytes.subarray(from, to)),
                range,
            );
        }
    }
    for (const range of ["bytes=300000-", "bytes=99999999999999999999-", "bytes=-0"]) {
        const beyond = await lab.get(path, { range });
        assert.deepEqual(
            [beyond.status, beyond.headers["content-range"]],
            [416, "bytes */300000"],
            range,
        );
    }
    for (const range of [
        "bytes=9-3",
        "bytes=a-b",
        "bytes=-",
        "bytes=",
        "lines=1-2",
        "bytes=1",
        "bytes=-1-2",
    ])
        assert.equal((await lab.get(path, { range })).bytes.length, 300_000, range);
    await writeFile(join(folder, "video.mp4"), "");
    assert.equal((await lab.get(path)).headers["content-length"], "0");
    await rm(join(folder, "video.mp4"));
    assertProblem(await lab.get(path), 404, "NOT_FOUND");
});

test("videos come over HTTP/2 as well", async (t) => {
    const lab = await startLab(t);
    const folder = await lab.folder.artifacts("r", { "video.mp4": "0123456789".repeat(50_000) });
    const url = `${lab.base}/api/runs/${await lab.import(folder)}/video`;
    const flags = ["--http2-prior-knowledge", "-D", "-"];
    const part = await curl(t, [...flags, "-r", "5-99998", url]);
    assert.match(part, /^HTTP\/2 206/);
    assert.match(part, /content-length: 99994\r\n/i);
    assert.equal(
        part.slice(part.indexOf("\r\n\r\n") + 4),
        `56789${"0123456789".repeat(9998)}012345678`,
    );
    assert.match(await curl(t, [...flags, "-I", url]), /content-length: 500000\r\n/i);
});

test("artifacts by their names, and by nothing else", async (t) => {
    const lab = await startLab(t);
    await writeFile(join(lab.folder.top, "secret.json"), '{"secret":1}');
    const folder = await lab.folder.artifacts("r", {
        ...reports,
        "script.json": { a: 1 },
        "sync-report-attempt2.json": { b: 2 },
        "other.json": {},
        "script.txt": "x",
    });
    await symlink(join(lab.folder.top, "secret.json"), join(folder, "timestamps.json"));
    await symlink(join(lab.folder.top, "secret.json"), join(folder, "clip.mp4"));
    await mkdir(join(folder, "visuals.json"));
    const run = await lab.import(folder);
    const get = (name) => lab.get(`/api/runs/${run}/artifact/${name}`);
    const script = await get("script.json");
    assert.deepEqual([script.status, script.json()], [200, { a: 1 }]);
    assert.equal(script.headers["content-type"], "application/json; charset=utf-8");
    assert.deepEqual((await get("sync-report-attempt2.json")).json(), { b: 2 });
    const forbidden = [
        "other.json",
        "script.txt",
        "script",
        ".json",
        "script.json.bak",
        "video.mp4",
        "..%2Fscript.json",
        "%2Fetc%2Fpasswd",
        "..%2F..%2Fsecret.json",
        "script.json%00",
        "script%00.json",
        "script-attempt.json",
        "script-attemptx.json",
        `script-attempt${"9".repeat(300)}.json`,
        "x".repeat(3000),
    ];
    for (const name of forbidden) assertProblem(await get(name), 403, "FORBIDDEN");
    assertProblem(await get("timestamps.json"), 403, "FORBIDDEN");
    assertProblem(await lab.get(`/api/runs/${run}/video`), 403, "FORBIDDEN");
    assertProblem(await get("visuals.json"), 404, "NOT_FOUND");
    assertProblem(await get("caption-settings.json"), 404, "NOT_FOUND");
    assertProblem(await lab.get("/api/runs/run_x/artifact/script.json"), 404, "NOT_FOUND");
    assertProblem(await get("%zz"), 400, "INVALID_ARGUMENT");
    // The folder itself becomes a link to elsewhere.
    const outside = join(lab.folder.top, "outside");
    await mkdir(outside);
    await writeFile(join(outside, "script.json"), '{"secret":1}');
    await rm(folder, { recursive: true });
    await symlink(outside, folder);
    assertProblem(await get("script.json"), 403, "FORBIDDEN");
});

// ---- experiments ----

async function twoRuns(lab) {
    const a = await lab.import(
        await lab.folder.artifacts("a", { "video.mp4": "a", "script.json": { title: "ta" } }),
    );
    const b = await lab.import(await lab.folder.artifacts("b", { "video.mp4": "b" }));
    return [a, b];
}

async function experiment(lab, baselineRunId, runId, more = {}) {
    const answer = await lab.post("/api/experiments", {
        baselineRunId,
        variants: [{ runId }],
        ...more,
    });
    assert.equal(answer.status, 200, answer.text);
    return answer.json().experimentId;
}

test("experiments are made, listed and shown", async (t) => {
    const lab = await startLab(t);
    const [a, b] = await twoRuns(lab);
    const plain = await experiment(lab, a, b);
    const id = await experiment(lab, a, b, {
        name: " N ",
        hypothesis: "h",
        topic: "t",
        variants: [{ label: " C ", runId: b }, { label: "skipped" }],
        questions: [{ id: "q", prompt: "which?" }],
    });
    assert.match(id, /^exp_[0-9a-f-]{36}$/);
    const shown = (await lab.get(`/api/experiments/${id}`)).json();
    assert.match(shown.variants[0].variantId, /^var_[0-9a-f-]{36}$/);
    assert.deepEqual(shown, {
        schemaVersion: 1,
        experimentId: id,
        sessionId: lab.config.sessionId,
        createdAt: shown.createdAt,
        name: "N",
        hypothesis: "h",
        topic: "t",
        baselineRunId: a,
        variants: [{ variantId: shown.variants[0].variantId, label: "C", runId: b }],
        status: "queued",
        questions: [{ id: "q", prompt: "which?", type: "yes_no_unsure" }],
    });
    const { items, nextCursor } = (await lab.get("/api/experiments")).json();
    assert.equal(nextCursor, null);
    assert.deepEqual(
        items.map((e) => [e.experimentId, e.name, e.topic, e.status]),
        [
            [id, "N", "t", "queued"],
            [plain, "A/B Compare", null, "queued"],
        ],
    );
    assert.deepEqual(Object.keys(items[0]), [
        "experimentId",
        "sessionId",
        "createdAt",
        "name",
        "topic",
        "status",
    ]);
    const wrong = [
        [{}, 400, "INVALID_ARGUMENT"],
        [{ baselineRunId: a }, 400, "INVALID_ARGUMENT"],
        [{ baselineRunId: a, variants: [{}] }, 400, "INVALID_ARGUMENT"],
        [{ baselineRunId: a, variants: [{ runId: "none" }] }, 404, "NOT_FOUND"],
        [{ baselineRunId: "none", variants: [{ runId: b }] }, 404, "NOT_FOUND"],
        [{ baselineRunId: a, variants: [{ runId: b }], questions: [{}] }, 400, "INVALID_ARGUMENT"],
    ];
    for (const [body, status, code] of wrong)
        assertProblem(await lab.post("/api/experiments", body), status, code);
    assertProblem(await lab.get("/api/experiments/none"), 404, "NOT_FOUND");
});

test("a decision is made once: one entry a run, and the experiment is done", async (t) => {
    const lab = await startLab(t);
    const [a, b] = await twoRuns(lab);
    const id = await experiment(lab, a, b);
    const { variants } = (await lab.get(`/api/experiments/${id}`)).json();
    const variant = variants[0].variantId;
    const path = `/api/experiments/${id}/submit`;
    const perRun = [
        { runId: a, ratings: { overall: 10 } },
        { runId: b, variantId: variant, notes: " n ", tags: [1] },
    ];
    const wrong = [
        [{}, "Missing perRun ratings"],
        [{ perRun: [{}] }, "No valid perRun entries provided"],
        [{ perRun: [{ runId: "x" }] }, "RunId is not part of this experiment: x"],
        [{ perRun: [{ runId: a }, { runId: a }] }, `Duplicate perRun entry for runId: ${a}`],
        [
            { perRun: [{ runId: a }, { runId: b, variantId: "v" }] },
            "VariantId does not match experiment variant",
        ],
        [
            { perRun: [{ runId: a, variantId: variant }, { runId: b }] },
            'Baseline perRun entry must use variantId "baseline" (or omit it)',
        ],
        [{ perRun: [{ runId: b }] }, "Missing baseline perRun entry"],
        [{ perRun: [{ runId: a }] }, "Missing variant perRun entry"],
        [{ perRun, winnerVariantId: "v" }, "Invalid winnerVariantId: v"],
    ];
    for (const [body, message] of wrong)
        assert.equal(
            assertProblem(await lab.post(path, body), 400, "INVALID_ARGUMENT").message,
            message,
        );
    assert.equal(await lab.folder.text(), "");
    const body = { perRun, winnerVariantId: variant, reason: "r", answers: { q: 1 } };
    const headers = { "x-cm-lab-request-id": "once" };
    const answers = await Promise.all(
        Array.from({ length: 8 }, () => lab.post(path, body, headers)),
    );
    assert.equal(new Set(answers.map((answer) => `${answer.status} ${answer.text}`)).size, 1);
    const { experimentId, feedbackIds } = answers[0].json();
    assert.equal(experimentId, id);
    const entries = await lab.folder.entries();
    assert.deepEqual(
        entries.map((e) => e.id),
        feedbackIds,
    );
    assert.deepEqual(
        entries.map((e) => [
            e.runId,
            e.variantId,
            e.experimentId,
            e.topic,
            e.ratings?.overall,
            e.notes,
            e.tags,
            e.answers,
        ]),
        [
            [a, "baseline", id, "ta", 10, undefined, undefined, { q: 1 }],
            [b, variant, id, undefined, undefined, "n", undefined, { q: 1 }],
        ],
    );
    const done = (await lab.get(`/api/experiments/${id}`)).json();
    assert.deepEqual(
        [done.status, done.winner, done.answers],
        ["done", { variantId: variant, reason: "r" }, { q: 1 }],
    );
    assert.ok(done.updatedAt >= done.createdAt);
    const again = assertProblem(
        await lab.post(path, body, { "x-cm-lab-request-id": "twice" }),
        400,
        "INVALID_ARGUMENT",
    );
    assert.equal(again.message, "Experiment already submitted");
    assertProblem(
        await lab.post("/api/experiments/none/submit", "not even JSON"),
        404,
        "NOT_FOUND",
    );
    // The same id may be used once for each kind of submission.
    assert.equal(feedbackIds.includes(await lab.submit({ notes: "x" }, "once")), false);
    assert.equal((await lab.folder.entries()).length, 3);
});

// ---- export, tasks, serve ----

test("an export has all of a session, and lies where exports lie", async (t) => {
    const folder = await labFolder(t);
    const lab = await startLab(t, { folder });
    const [a, b] = await twoRuns(lab);
    const id = await experiment(lab, a, b);
    await lab.submit({ runId: a, notes: "n" });
    await lab.submit({ notes: "m" });
    await lab.stop();
    const next = await startLab(t, { folder, args: ["--port", "0", "--new-session"] });
    await next.submit({ notes: "of another session" });
    const { sessionId } = lab.config;
    const answer = await next.post("/api/export", { sessionId });
    const { path, count } = answer.json();
    assert.equal(count, 2);
    assert.match(
        path,
        new RegExp(`^${join(folder.root, "exports")}/export-${sessionId}-\\d+\\.json$`),
    );
    const text = await readFile(path, "utf8");
    const all = JSON.parse(text);
    assert.equal(text, `${JSON.stringify(all, null, 2)}\n`);
    assert.deepEqual(Object.keys(all), [
        "schemaVersion",
        "exportedAt",
        "sessionId",
        "runs",
        "experiments",
        "feedback",
    ]);
    assert.deepEqual(
        all.runs.map((run) => run.runId),
        [b, a],
    );
    assert.deepEqual(
        all.experiments.map((e) => e.experimentId),
        [id],
    );
    assert.deepEqual(
        all.feedback.map((f) => f.notes),
        ["n", "m"],
    );
    const other = (
        await next.post("/api/export", { sessionId: "lab_none", path: "sub/empty.json" })
    ).json();
    assert.deepEqual(other, { path: join(folder.root, "exports", "sub", "empty.json"), count: 0 });
    assert.deepEqual(JSON.parse(await readFile(other.path)).runs, []);
    await symlink(folder.top, join(folder.root, "exports", "link"));
    for (const bad of [
        "../x.json",
        "/tmp/x.json",
        join(folder.root, "exports"),
        "link/x.json",
        `${folder.root}/exports-not/x.json`,
    ])
        assertProblem(await next.post("/api/export", { sessionId, path: bad }), 403, "FORBIDDEN");
    for (const bad of ["a\0b", "x".repeat(5000)])
        assertProblem(
            await next.post("/api/export", { sessionId, path: bad }),
            400,
            "INVALID_ARGUMENT",
        );
    assertProblem(await next.post("/api/export", {}), 400, "INVALID_ARGUMENT");
});

test("a Lab that is about one run ends when it was reviewed", async (t) => {
    const folder = await labFolder(t);
    await folder.artifacts("r");
    const lab = await startLab(t, { folder, args: ["--port", "0", "--review", "r"] });
    const { task, exitAfterSubmit } = lab.config;
    assert.deepEqual([task.type, exitAfterSubmit], ["review", 1]);
    await lab.submit({ notes: "of nothing" });
    const other = await lab.import(await folder.artifacts("other"));
    await lab.submit({ runId: other });
    assert.ok(lab.running);
    await lab.submit({ runId: task.runId });
    assert.deepEqual(await lab.ended, { code: 0, signal: null });

    const twice = await startLab(t, {
        folder,
        args: ["--port", "0", "--review", task.runId, "--exit-after-submit", "2"],
    });
    await twice.submit({ runId: task.runId }, "q");
    assert.ok(twice.running);
    await twice.submit({ runId: task.runId }, "q"); // what was sent again counts as well
    assert.deepEqual(await twice.ended, { code: 0, signal: null });
});

test("a Lab that is about one experiment ends when it was decided", async (t) => {
    const folder = await labFolder(t);
    const first = await startLab(t, { folder });
    const [a, b] = await twoRuns(first);
    const id = await experiment(first, a, b);
    await first.stop();
    const lab = await startLab(t, { folder, args: ["--port", "0", "--compare", id] });
    assert.deepEqual(lab.config.task, { type: "compare", experimentId: id });
    const answer = await lab.post(`/api/experiments/${id}/submit`, {
        perRun: [{ runId: a }, { runId: b }],
    });
    assert.equal(answer.status, 200);
    assert.deepEqual(await lab.ended, { code: 0, signal: null });
});

test("a server with [lab] has the Lab, too", async (t) => {
    const folder = await labFolder(t);
    const config = join(folder.top, "conf");
    await writeFile(
        config,
        `[lab]\nroot = ${folder.root}\nfeedback = ${folder.feedback}\nallow-root = ${folder.work}\n`,
    );
    const server = await startServer(t, ["--config", config]);
    const { token, allowedRoots } = (await server.request("GET", "/api/config")).json();
    assert.ok(allowedRoots.includes(folder.work));
    const headers = { "x-cm-lab-token": token };
    const answer = await server.request("POST", "/api/feedback", {
        headers,
        body: '{"notes":"x"}',
    });
    assert.equal(answer.status, 200);
    assert.equal((await folder.entries())[0].notes, "x");
    assert.equal((await server.request("GET", "/lab")).status, 200);
    const without = await startServer(t);
    assert.equal((await without.request("GET", "/api/config")).status, 404);
});

test("within a server the Lab answers to local names and to that of public-url", async (t) => {
    const folder = await labFolder(t);
    const config = join(folder.top, "conf");
    await writeFile(config, `[lab]\nroot = ${folder.root}\nfeedback = ${folder.feedback}\n`);
    const flags = ["--config", config, "--public-url", "https://lab.example"];
    const server = await startServer(t, flags);
    const status = async (host) =>
        (await server.request("GET", "/api/config", { headers: { host } })).status;
    assert.equal(await status("lab.example"), 200);
    assert.equal(await status("localhost"), 200);
    assert.equal(await status("evil.example"), 421);
});
