// SPDX-License-Identifier: Apache-2.0
// The Lab's page: a list of runs, the review of one, the comparison of two.
//
// What is shown comes from files that other programs write, so it enters the page as text only.
//
// A submission must end up stored once, whatever happens on the way. It gets an id when its form
// is first submitted, and keeps it, along with what was written, in the tab's storage until there
// is an answer: every further try says the same under the same id, and so does the page after a
// reload. The Lab stores one entry per id and answers all tries alike.

const RATINGS = {
    overall: "Overall",
    hook: "Hook",
    pacing: "Pacing",
    script: "Script",
    visuals: "Visuals",
    motion: "Motion",
    captions: "Captions",
    sync: "Sync",
};
const METRICS = {
    syncRating: "Sync rating",
    syncLabel: "Sync label",
    meanDriftMs: "Mean drift, ms",
    maxDriftMs: "Largest drift, ms",
    captionOverall: "Captions",
    captionCoverageRatio: "Caption coverage",
    ocrConfidenceMean: "OCR confidence",
    proxyScoreOverall: "Proxy score",
};
const PENDING = "lab:pending:"; // before a form's key: what it has under way
const ATTEMPT_MS = 15_000;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8_000;
const PAGE = 100; // items of a list at a time
const SKIP_S = 5;

let config; // what /api/config said last
const deliveries = new Map(); // by the key of their form

// ---- talking to the Lab ----

/** An answer that says no. */
class Refusal extends Error {
    constructor(status, error) {
        const fix = error?.context?.fix;
        const what = error?.message ?? `The Lab answered with status ${status}.`;
        super(fix ? `${what}. ${fix}` : what);
        this.status = status;
    }

    /** Whether the same request would get the same answer. */
    get final() {
        return this.status < 500 && ![401, 408, 429].includes(this.status);
    }
}

/** No answer, or half of one: nobody here knows what became of the request. */
class Lost extends Error {
    constructor(cause) {
        const late = cause.name === "TimeoutError";
        super(late ? "The Lab takes too long." : "The Lab does not answer.", { cause });
    }
}

/** One attempt: throws a Refusal, or Lost. */
async function ask(path, options) {
    let answer, body;
    try {
        const signal = AbortSignal.timeout(ATTEMPT_MS);
        answer = await fetch(path, { cache: "no-store", signal, ...options });
        if (answer.ok) return await answer.json();
        body = await answer.text();
    } catch (error) {
        throw new Lost(error);
    }
    throw new Refusal(answer.status, errorIn(body));
}

function errorIn(body) {
    try {
        return JSON.parse(body).error;
    } catch {
        return null; // not everything that says no says it in JSON
    }
}

async function askConfig() {
    config = await ask("/api/config");
}

/**
 * One attempt to post, with the token of the day: a Lab that was started again has another.
 * before() is called ahead of whatever is sent, and stops it by throwing.
 */
async function post(path, body, headers = {}, before = () => {}) {
    const send = () => {
        before();
        const json = { "content-type": "application/json", "x-cm-lab-token": config.token };
        const all = { ...json, ...headers };
        // A cookie is for reading alone: here the token says who may.
        const how = { method: "POST", credentials: "omit", headers: all };
        return ask(path, { ...how, body: JSON.stringify(body) });
    };
    try {
        return await send();
    } catch (error) {
        if (error.status !== 401) throw error;
    }
    await askConfig();
    return await send();
}

function pause(ms, signal) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, ms);
        window.addEventListener("online", resolve, { once: true, signal });
        signal?.addEventListener("abort", () => {
            clearTimeout(timer);
            reject(signal.reason);
        });
    });
}

const passing = (error) => error instanceof Lost || (error instanceof Refusal && !error.final);

/** Calls attempt() until it has an answer, whatever that is; tell() hears what goes on. */
async function answered(attempt, tell, signal) {
    for (let n = 2; ; n++) {
        try {
            return await attempt();
        } catch (error) {
            signal?.throwIfAborted();
            if (!passing(error)) throw error;
            const wait = Math.min(FIRST_WAIT_MS * 2 ** (n - 2), LONGEST_WAIT_MS);
            tell(`${error.message} Trying again in ${wait / 1000} s (attempt ${n}) …`);
            await pause(wait, signal);
            tell(`Trying again (attempt ${n}) …`);
        }
    }
}

// ---- submissions ----

/** The Lab cannot know an id of another session, so to try again could store a second entry. */
class Forgotten extends Error {
    constructor() {
        super("the Lab began a new session, which cannot tell whether this is stored already.");
    }
}

class Stopped extends Error {
    constructor() {
        super("you stopped it. It may be stored already, or not.");
    }
}

/** Like crypto.randomUUID(), which is not there on a page that came over plain HTTP from afar. */
function uuid() {
    const b = crypto.getRandomValues(new Uint8Array(16));
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    const hex = [...b].map((x) => x.toString(16).padStart(2, "0")).join("");
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

// A tab without storage still tries until there is an answer; only a reload loses the id.
function remember(record) {
    try {
        sessionStorage.setItem(PENDING + record.key, JSON.stringify(record));
    } catch {}
}

function forget(record) {
    try {
        sessionStorage.removeItem(PENDING + record.key);
    } catch {}
}

/** Submits `body` for the form `key`, unless that has a submission under way. */
function submit(key, path, body) {
    if (deliveries.get(key)?.state === "sending") return;
    const record = { key, path, body, requestId: uuid(), sessionId: config.sessionId };
    remember(record);
    deliver(record, false);
}

/** Takes up what an earlier life of this page has left without an answer. */
function resume() {
    try {
        for (const name of Object.keys(sessionStorage))
            if (name.startsWith(PENDING)) deliver(JSON.parse(sessionStorage.getItem(name)), true);
    } catch {}
}

/** `unsure`: whether an earlier try may have been stored. */
async function deliver(record, unsure) {
    const abort = new AbortController();
    const delivery = {
        record,
        state: "sending",
        text: "",
        ids: [],
        late: unsure,
        abort,
        changed() {},
    };
    const tell = (text) => {
        delivery.text = text;
        delivery.changed();
    };
    const settle = (state, text, ids = []) => {
        forget(record);
        Object.assign(delivery, { state, ids });
        tell(text);
    };
    const sameSession = () => {
        if (record.sessionId !== config.sessionId && unsure) throw new Forgotten();
        record.sessionId = config.sessionId;
        remember(record);
    };
    const attempt = async () => {
        try {
            const id = { "x-cm-lab-request-id": record.requestId };
            return await post(record.path, record.body, id, sameSession);
        } catch (error) {
            delivery.late = passing(error);
            unsure ||= delivery.late && error.status !== 401;
            throw error;
        }
    };
    deliveries.set(record.key, delivery);
    tell(unsure ? "Sending what had no answer when this page was left …" : "Sending …");
    try {
        const answer = await answered(attempt, tell, abort.signal);
        settle("stored", "Stored as ", answer.feedbackIds ?? [answer.feedbackId]);
    } catch (error) {
        const known = error instanceof Refusal && !unsure;
        settle(
            known ? "refused" : "stopped",
            `Not ${known ? "stored" : "confirmed"}: ${error.message}`,
        );
    }
}

window.addEventListener("beforeunload", (event) => {
    if ([...deliveries.values()].some((d) => d.state === "sending")) event.preventDefault();
});

// ---- making elements ----

const $ = (root, selector) => root.querySelector(selector);
const slot = (root, name) => $(root, `[data-slot="${name}"]`);

/** A copy of a template with these texts in it. */
function make(id, texts = {}) {
    const copy = document.getElementById(id).content.cloneNode(true);
    for (const [name, text] of Object.entries(texts))
        for (const place of copy.querySelectorAll(`[data-text="${name}"]`))
            place.textContent = text;
    return copy;
}

function element(name, text, properties = {}) {
    return Object.assign(document.createElement(name), { textContent: text }, properties);
}

const path = (...parts) => parts.map(encodeURIComponent).join("/");
const titleOf = (run) => run.topic || "Run without a topic";
const when = (date) => new Date(date).toLocaleString();
const folderOf = (run) => run.artifactsDir?.split("/").pop();
const aboutRun = (run) =>
    [folderOf(run), when(run.createdAt), run.runId].filter(Boolean).join(" · ");

// ---- film and metrics ----

function film(run) {
    const part = make("film");
    const video = $(part, "video");
    const status = $(part, "[data-status]");
    if (!run.videoPath) {
        status.textContent = "This run has no video.";
        video.remove();
        return part;
    }
    video.setAttribute("aria-label", `Video of ${titleOf(run)}`);
    video.addEventListener("error", () => {
        const link = element("a", "Open the file", { href: video.src });
        status.replaceChildren("The video cannot be played here. ", link);
    });
    video.src = `/api/runs/${path(run.runId)}/video`;
    return part;
}

/** Buttons that move a view's video, or all of them together. */
function fillTransport(view) {
    const videos = [...view.querySelectorAll("video")];
    if (videos.length === 0) return;
    const part = make("transport");
    const play = $(part, '[data-do="play"]');
    const first = videos[0];
    const all = videos.length > 1 ? " all" : "";
    const seek = (to) => videos.forEach((v) => (v.currentTime = Math.max(0, to(v))));
    const name = () => (play.textContent = (first.paused ? "Play" : "Pause") + all);
    first.addEventListener("play", name);
    first.addEventListener("pause", name);
    name();
    play.addEventListener("click", () => {
        const paused = first.paused;
        for (const v of videos) paused ? v.play().catch(() => {}) : v.pause();
    });
    const on = (what, to) =>
        $(part, `[data-do="${what}"]`).addEventListener("click", () => seek(to));
    on("start", () => 0);
    on("back", (v) => v.currentTime - SKIP_S);
    on("forward", (v) => v.currentTime + SKIP_S);
    slot(view, "transport").append(part);
}

function metricsTable(run) {
    const list = element("dl");
    for (const [key, label] of Object.entries(METRICS)) {
        const value = run.autoMetricsSummary?.[key];
        if (value !== undefined && value !== null)
            list.append(element("dt", label), element("dd", String(value)));
    }
    return list.children.length > 0 ? list : element("p", "There are none.", { className: "hint" });
}

/** The metrics stay out of the page until someone asks for them: they would colour a rating. */
function metrics(run) {
    const { blindMetricsDefault: blind = true, revealMetricsEnabled: may = true } = config.ui ?? {};
    const part = make("metrics");
    const button = $(part, "button");
    const place = slot(part, "metrics");
    const show = (shown) => {
        button.setAttribute("aria-expanded", String(shown));
        button.textContent = shown ? "Hide metrics" : "Show metrics";
        place.replaceChildren(...(shown ? [metricsTable(run)] : []));
    };
    show(!blind);
    button.hidden = blind && !may;
    button.addEventListener("click", () => show(place.childElementCount === 0));
    return part;
}

// ---- versions, files and reviews of a run ----

/** What a list says of a run beside its name. */
function marksOf(run, superseded) {
    const marks = [];
    if (superseded.has(run.runId)) marks.push("superseded");
    else if (run.supersedesRunId) marks.push("newest");
    if (run.reviewedAt) marks.push("reviewed");
    return marks;
}

function marks(place, names) {
    for (const name of names)
        place.append(element("span", name, { className: "mark" }));
}

const runLink = (text, runId) => element("a", text, { href: `#/run/${path(runId)}` });

function versions(place, run) {
    if (run.supersededByRunId) {
        marks(place, ["superseded"]);
        place.append(" Its folder has changed since: ", runLink("the newer run", run.supersededByRunId), ".");
    } else if (run.supersedesRunId) {
        marks(place, ["newest"]);
    }
    if (run.supersedesRunId)
        place.append(" It came in place of ", runLink("an older run", run.supersedesRunId), ".");
    place.hidden = place.childNodes.length === 0;
}

/** Files open in a tab of their own; the Lab sends them so that nothing in them runs. */
function files(place, run) {
    for (const name of run.files ?? [])
        place.append(
            " ",
            element("a", name, {
                href: `/api/runs/${path(run.runId)}/artifact/${path(name)}`,
                target: "_blank",
                rel: "noopener noreferrer",
            }),
        );
    place.hidden = !run.files?.length;
}

function given(entry) {
    const rated = Object.entries(RATINGS).filter(([key]) => entry.ratings?.[key] !== undefined);
    const about = [when(entry.createdAt), entry.experimentId && "comparison", ...(entry.tags ?? [])];
    const row = make("given", {
        about: about.filter(Boolean).join(" · "),
        ratings: rated.map(([key, label]) => `${label} ${entry.ratings[key]}`).join(", "),
        notes: entry.notes ?? "",
    });
    if (!entry.notes) $(row, ".notes").remove();
    return row;
}

/** What others have said stays closed at first, as metrics do; it is read when it is opened. */
function more(run) {
    const last = run.reviewedAt ? `, the last on ${when(run.reviewedAt)}` : "";
    const part = make("more", { reviews: `Reviews given${last}` });
    const details = $(part, "details");
    const status = $(part, "[data-status]");
    const list = slot(part, "reviews");
    versions(slot(part, "versions"), run);
    files(slot(part, "files"), run);
    details.addEventListener("toggle", async () => {
        if (!details.open) return;
        status.textContent = "Loading …";
        try {
            const { items } = await ask(`/api/feedback?runId=${encodeURIComponent(run.runId)}`);
            list.replaceChildren(...items.reverse().slice(0, PAGE).map(given));
            const hidden = items.length - PAGE;
            status.textContent =
                items.length === 0 ? "There are none yet." : hidden > 0 ? `${hidden} older ones are not shown.` : "";
        } catch (error) {
            status.textContent = error.message;
        }
    });
    return part;
}

// ---- ratings, notes and tags ----

/** Fills `place` with fields; returns { read, write } for them. */
function scores(place, whose = "") {
    const part = make("scores");
    const numbers = new Map();
    for (const [key, label] of Object.entries(RATINGS)) {
        const row = make("rating", { label });
        const rating = $(row, ".rating");
        const number = $(row, "[type=number]");
        const slider = $(row, "[type=range]");
        number.dataset.name = key;
        number.setAttribute("aria-label", `${label}${whose}, 0 to 100`);
        slider.setAttribute("aria-label", `${label}${whose}, slider`);
        number.addEventListener("input", () => {
            slider.value = number.value || 0;
            rating.toggleAttribute("data-rated", number.value !== "");
        });
        slider.addEventListener("input", () => {
            number.value = slider.value;
            rating.toggleAttribute("data-rated", true);
        });
        numbers.set(key, number);
        slot(part, "ratings").append(row);
    }
    const notes = $(part, '[data-name="notes"]');
    const tags = $(part, '[data-name="tags"]');
    place.append(part);

    const read = () => {
        const rated = [...numbers].filter(([, n]) => n.value !== "");
        const list = tags.value.split(",").map((tag) => tag.trim());
        const entry = {
            ratings: Object.fromEntries(rated.map(([key, n]) => [key, Number(n.value)])),
            notes: notes.value.trim(),
            tags: list.filter(Boolean),
        };
        if (rated.length === 0) delete entry.ratings;
        if (entry.notes === "") delete entry.notes;
        if (entry.tags.length === 0) delete entry.tags;
        return entry;
    };
    const write = (entry) => {
        for (const [key, number] of numbers) {
            number.value = entry.ratings?.[key] ?? "";
            number.dispatchEvent(new Event("input"));
        }
        notes.value = entry.notes ?? "";
        tags.value = entry.tags?.join(", ") ?? "";
    };
    return { read, write };
}

function choices(place, name, options, required) {
    for (const [value, label] of options) {
        const part = make("choice", { label });
        Object.assign($(part, "input"), { name, value, required });
        place.append(part);
    }
}

// ---- a form that is stored once ----

/**
 * Ties a form to its submission. A form that was stored stays closed until someone asks for
 * another, so the second half of a double click finds nothing to submit.
 */
function tie(form, { key, to, label, read, write, again, after }) {
    const fields = $(form, ".fields");
    const part = make("submit", { label });
    const [button, stop, another] = part.querySelectorAll("button");
    const status = $(part, "[data-status]");
    slot(form, "submit").append(part);

    const render = () => {
        const delivery = deliveries.get(key);
        const { state, text = "", ids = [] } = delivery ?? {};
        const closed = state === "sending" || state === "stored";
        fields.disabled = closed;
        button.setAttribute("aria-disabled", String(closed));
        stop.hidden = state !== "sending" || !delivery.late;
        another.hidden = state !== "stored" || !again;
        status.dataset.state = state ?? "";
        status.replaceChildren(text);
        ids.forEach((id, i) => status.append(i > 0 ? ", " : "", element("code", id)));
        if (state === "stored") status.append(".", after ? ` ${after}` : "");
    };
    const follow = () => {
        const delivery = deliveries.get(key);
        if (delivery) delivery.changed = render;
        render();
    };

    form.addEventListener("submit", (event) => {
        event.preventDefault();
        if (fields.disabled) return;
        const body = read();
        if (!body) {
            status.dataset.state = "refused";
            status.textContent = "Rate something, or write a note, before you submit.";
            return;
        }
        button.focus(); // the field that had it is about to be disabled
        submit(key, to, body);
        follow();
    });
    stop.addEventListener("click", () => {
        button.focus();
        deliveries.get(key)?.abort.abort(new Stopped());
    });
    another.addEventListener("click", () => {
        deliveries.delete(key);
        write({});
        render();
        $(fields, "input").focus();
    });

    const underWay = deliveries.get(key);
    if (underWay?.state === "sending") write(underWay.record.body);
    else deliveries.delete(key);
    follow();
}

/** What to add to "stored" when that is all the Lab was started for. */
function farewell(type, id) {
    const { task, exitAfterSubmit } = config;
    const asked = task?.type === type && (task.runId ?? task.experimentId) === id;
    return asked && exitAfterSubmit === 1
        ? "The Lab has what it waited for. You can close this page."
        : "";
}

// ---- views ----

function fillList(view, name, items, describe) {
    const list = $(view, `[data-list="${name}"]`);
    const more = $(view, `[data-more="${name}"]`);
    let shown = 0;
    const extend = () => {
        for (const item of items.slice(shown, shown + PAGE)) {
            const { title, about, href, says = [] } = describe(item);
            const row = make("list-item", { about });
            Object.assign($(row, "a"), { textContent: title, href });
            marks(slot(row, "marks"), says);
            list.append(row);
        }
        shown += PAGE;
        more.hidden = shown >= items.length;
    };
    more.addEventListener("click", extend);
    extend();
    $(view, `[data-empty="${name}"]`).hidden = items.length > 0;
}

/** A form whose answer opens another view; one submission at a time. */
function opener(form, send) {
    const status = $(form, "[data-status]");
    let busy = false;
    form.addEventListener("submit", async (event) => {
        event.preventDefault();
        if (busy) return;
        busy = true;
        status.dataset.state = "";
        const tell = (text) => (status.textContent = text);
        tell("Sending …");
        try {
            location.hash = await send(new FormData(form), tell);
        } catch (error) {
            status.dataset.state = "refused";
            tell(error.message);
        }
        busy = false;
    });
}

async function runsView() {
    const [{ items: runs }, { items: experiments }] = await Promise.all([
        ask("/api/runs"),
        ask("/api/experiments"),
    ]);
    const view = make("runs-view", { roots: (config.allowedRoots ?? []).join(", ") });
    const superseded = new Set(runs.map((run) => run.supersedesRunId));
    fillList(view, "runs", runs, (run) => ({
        title: titleOf(run),
        about: aboutRun(run),
        says: marksOf(run, superseded),
        href: `#/run/${path(run.runId)}`,
    }));
    fillList(view, "experiments", experiments, (x) => ({
        title: x.name,
        about: [x.status, x.topic, when(x.createdAt)].filter(Boolean).join(" · "),
        href: `#/compare/${path(x.experimentId)}`,
    }));
    opener($(view, '[data-form="import"]'), async (form, tell) => {
        // Importing the same folder again yields the same run, so this may be tried again.
        const body = { path: form.get("path").trim() };
        const { runId } = await answered(() => post("/api/runs/import", body), tell);
        return `#/run/${path(runId)}`;
    });
    const compare = $(view, '[data-form="compare"]');
    for (const select of compare.querySelectorAll("select"))
        for (const run of runs)
            select.append(
                element("option", `${titleOf(run)} (${run.runId})`, { value: run.runId }),
            );
    compare.hidden = runs.length < 2;
    $(view, '[data-empty="compare"]').hidden = runs.length >= 2;
    $(view, "details").open = runs.length === 0; // there is nothing else to do then
    if (runs.length > 1) compare.elements.variant.selectedIndex = 1;
    opener(compare, async (form) => {
        const [baselineRunId, runId] = [form.get("baseline"), form.get("variant")];
        if (baselineRunId === runId) throw new Refusal(400, { message: "These are the same run." });
        const body = { baselineRunId, variants: [{ label: "B", runId }] };
        for (const key of ["name", "hypothesis"])
            if (form.get(key).trim()) body[key] = form.get(key).trim();
        const { experimentId } = await post("/api/experiments", body);
        return `#/compare/${path(experimentId)}`;
    });
    return { view, title: "Runs" };
}

async function reviewView(runId) {
    const run = await ask(`/api/runs/${path(runId)}`);
    const title = titleOf(run);
    const view = make("review-view", { title: `Review: ${title}`, about: aboutRun(run) });
    slot(view, "film").append(film(run));
    fillTransport(view);
    slot(view, "metrics").append(metrics(run));
    slot(view, "more").append(more(run));
    const { read, write } = scores(slot(view, "scores"));
    tie($(view, "form"), {
        key: `review:${runId}`,
        to: "/api/feedback",
        label: "Submit review",
        read: () => {
            const entry = read();
            return Object.keys(entry).length > 0 ? { runId, ...entry } : null;
        },
        write,
        again: true,
        after: farewell("review", runId),
    });
    return { view, title: `Review: ${title}` };
}

function askQuestions(place, questions) {
    for (const { id, prompt, type } of questions) {
        const name = `question ${id}`;
        if (type === "text") {
            const field = element("label", "", { className: "field" });
            field.append(
                element("span", prompt),
                element("textarea", "", { name, rows: 2, maxLength: 20_000 }),
            );
            place.append(field);
        } else {
            const field = element("fieldset", "", { className: "choice" });
            field.append(element("legend", prompt));
            choices(
                field,
                name,
                [
                    ["yes", "Yes"],
                    ["no", "No"],
                    ["unsure", "Unsure"],
                ],
                false,
            );
            place.append(field);
        }
    }
}

function verdict(experiment, contenders) {
    const winner = contenders.find((c) => c.variantId === experiment.winner?.variantId);
    const why = experiment.winner?.reason;
    return (
        (winner ? `${winner.label} was found better.` : "No run was found better.") +
        (why ? ` ${why}` : "")
    );
}

async function compareView(experimentId) {
    const experiment = await ask(`/api/experiments/${path(experimentId)}`);
    const contenders = [
        { variantId: "baseline", label: "A (baseline)", runId: experiment.baselineRunId },
        ...experiment.variants,
    ];
    const runs = await Promise.all(contenders.map((c) => ask(`/api/runs/${path(c.runId)}`)));
    const questions = experiment.questions ?? [];
    const key = `compare:${experimentId}`;
    const closed = experiment.status === "done" && deliveries.get(key)?.state !== "sending";
    const view = make("compare-view", {
        title: `Compare: ${experiment.name}`,
        about: [experimentId, experiment.topic, when(experiment.createdAt)]
            .filter(Boolean)
            .join(" · "),
        hypothesis: experiment.hypothesis ?? "",
        verdict: verdict(experiment, contenders),
    });
    const fields = contenders.map(({ label }, i) => {
        const about = `${titleOf(runs[i])} · ${runs[i].runId}`;
        const part = make("contender", { label, about, legend: `Your review of ${label}` });
        slot(part, "film").append(film(runs[i]), metrics(runs[i]));
        slot(part, "more").append(more(runs[i]));
        const field = scores(slot(part, "scores"), ` of ${label}`);
        slot(part, "scores").hidden = closed;
        slot(view, "contenders").append(part);
        return field;
    });
    fillTransport(view);
    const form = $(view, "form");
    const title = `Compare: ${experiment.name}`;
    if (closed) {
        slot(view, "verdict").hidden = false;
        form.replaceChildren(slot(form, "contenders"));
        return { view, title };
    }
    const options = contenders.map((c) => [c.variantId, c.label]);
    choices(slot(view, "winner"), "winner", [...options, ["", "Neither"]], true);
    askQuestions(slot(view, "questions"), questions);

    const read = () => {
        const data = new FormData(form);
        const given = questions.map(({ id }) => [id, data.get(`question ${id}`)?.trim()]);
        const answers = Object.fromEntries(given.filter(([, answer]) => answer));
        const body = {
            perRun: contenders.map(({ runId, variantId }, i) => ({
                runId,
                variantId,
                ...fields[i].read(),
            })),
        };
        if (data.get("winner")) body.winnerVariantId = data.get("winner");
        if (data.get("reason").trim()) body.reason = data.get("reason").trim();
        if (Object.keys(answers).length > 0) body.answers = answers;
        return body;
    };
    const write = (body) => {
        contenders.forEach(({ runId }, i) =>
            fields[i].write(body.perRun.find((p) => p.runId === runId) ?? {}),
        );
        form.elements.winner.value = body.winnerVariantId ?? "";
        form.elements.reason.value = body.reason ?? "";
        for (const { id } of questions) {
            const control = form.elements[`question ${id}`];
            if (control) control.value = body.answers?.[id] ?? "";
        }
    };
    tie(form, {
        key,
        to: `/api/experiments/${path(experimentId)}/submit`,
        label: "Submit comparison",
        read,
        write,
        again: false,
        after: farewell("compare", experimentId),
    });
    return { view, title };
}

// ---- which view ----

const main = document.getElementById("view");
const news = (text) => (document.getElementById("news").textContent = text);
let turns = 0;

async function viewAt(hash) {
    const [kind, id] = hash.replace(/^#\/?/, "").split("/");
    if (kind === "run" && id) return reviewView(decodeURIComponent(id));
    if (kind === "compare" && id) return compareView(decodeURIComponent(id));
    return runsView();
}

/** Shows the view of the address, all of it at once, unless that has changed in the meantime. */
async function show() {
    const turn = ++turns;
    const first = main.childElementCount === 0;
    const tell = (text) => turn === turns && news(text);
    let shown;
    tell("Loading …");
    try {
        shown = await answered(() => {
            return turn === turns && viewAt(location.hash);
        }, tell);
    } catch (error) {
        if (!(error instanceof Refusal || error instanceof URIError)) throw error;
        shown = { view: make("trouble", { why: error.message }), title: "Not found" };
    }
    if (turn !== turns) return;
    news("");
    document.title = `${shown.title} – Lab`;
    main.replaceChildren(shown.view);
    window.scrollTo(0, 0);
    if (!first) $(main, "h1").focus();
}

function taskHash() {
    if (config.task?.type === "review") return `#/run/${path(config.task.runId)}`;
    if (config.task?.type === "compare") return `#/compare/${path(config.task.experimentId)}`;
    return "";
}

await answered(askConfig, news);
resume();
if (location.hash === "" && taskHash()) history.replaceState(null, "", taskHash());
window.addEventListener("hashchange", show);
await show();
