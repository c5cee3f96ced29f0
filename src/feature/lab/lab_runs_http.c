// SPDX-License-Identifier: Apache-2.0
/* lab_runs_http.c -- runs: import, list, one of them; and lists of anything that has an index. */
#include "base/mem.h"
#include "feature/lab/lab_artifacts.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_store.h"
#include "feature/lab/lab_http_core.h"

#include <stdlib.h>
#include <xxhash.h>

/* ---- lists ---- */

struct list_source {
    struct lab_source source;
    struct lab_index *index;
    json_t *(*view)(struct lab_store *s, json_t *record);
    struct lab_location *locations;
    size_t n, at, given;
};

static void lab_runs_free_list(struct lab_source *source)
{
    struct list_source *l = container_of(source, struct list_source, source);
    free(l->locations);
    free(l);
}

static int lab_runs_next_of_list(struct lab_source *source, struct lab_store *store,
                                 struct buf *out)
{
    struct list_source *l = container_of(source, struct list_source, source);
    if (l->at == 0)
        buf_put(out, STR("{\"items\":["));
    while (l->at < l->n && out->n < LAB_PIECE) {
        json_t *record = lab_index_read_at(l->index, l->locations[l->at++]);
        if (record == NULL)
            continue; /* its file was replaced meanwhile */
        json_t *item = l->view(store, record);
        if (l->given++ > 0)
            buf_putc(out, ',');
        lab_json_put(out, item);
        json_decref(item);
    }
    if (l->at < l->n)
        return 1;
    buf_put(out, STR("],\"nextCursor\":null}"));
    return 0;
}

struct lab_source *lab_list_new(struct lab_index *index,
                                json_t *(*view)(struct lab_store *s, json_t *record))
{
    struct list_source *l = mem_zalloc(sizeof *l);
    l->source = (struct lab_source){lab_runs_next_of_list, lab_runs_free_list};
    l->index = index;
    l->view = view;
    l->locations = lab_index_list(index, NULL, &l->n);
    return &l->source;
}

/* ---- runs ---- */

/* A member as it is, or null. */
static void lab_runs_copy(json_t *to, const json_t *from, const char *key)
{
    json_t *v = json_object_get(from, key);
    json_object_set_new(to, key, v != NULL ? json_incref(v) : json_null());
}

static json_t *no_summary(void)
{
    return json_pack("{s:n,s:n,s:n}", "syncRating", "captionOverall", "proxyScoreOverall");
}

/* When somebody has last said something about it, or null. */
static json_t *reviewed_at(const struct lab_store *s, const json_t *run)
{
    char text[DATE_RFC3339_TEXT];
    const struct lab_record *r = lab_index_find(&s->reviews, lab_json_get(run, "runId"));
    if (r == NULL)
        return json_null();
    date_format_rfc3339(r->created_ms, text);
    return lab_json_text(str_of(text, sizeof text));
}

static json_t *brief(const struct lab_store *s, const json_t *run)
{
    static const char *const keys[] = {"runId",        "sessionId", "createdAt",      "topic",
                                       "artifactsDir", "videoPath", "supersedesRunId"};
    json_t *out = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        lab_runs_copy(out, run, keys[i]);
    json_object_set_new(out, "reviewedAt", reviewed_at(s, run));
    return out;
}

/* The run that came of the same folder when its video or script had changed, or null. */
static json_t *superseded_by(struct lab_store *s, const json_t *run)
{
    struct str id = lab_json_get(run, "runId"), folder = lab_json_get(run, "artifactsDirRealpath");
    uint64_t group = XXH3_64bits(folder.p, folder.n); /* as the store's runs have it */
    size_t n;
    struct lab_location *all = lab_index_list(&s->runs, &group, &n);
    json_t *newer = NULL;
    for (size_t i = 0; i < n && newer == NULL; i++) {
        json_t *other = lab_index_read_at(&s->runs, all[i]);
        if (str_eq(lab_json_get(other, "supersedesRunId"), id))
            newer = json_incref(json_object_get(other, "runId"));
        json_decref(other);
    }
    free(all);
    return newer != NULL ? newer : json_null();
}

static json_t *lab_view_run(struct lab_store *s, json_t *run)
{
    json_t *out = brief(s, run), *summary = json_object_get(run, "autoMetricsSummary");
    json_object_set_new(out, "autoMetricsSummary",
                        summary != NULL ? json_incref(summary) : no_summary());
    json_decref(run);
    return out;
}

void lab_get_runs(struct lab_call *c, struct lab_store *s)
{
    int err = lab_index_refresh(&s->runs), unread = lab_index_refresh(&s->reviews);
    if (err != 0)
        lab_problem_of(&c->problem, err, s->runs.log.path);
    else if (unread != 0)
        lab_problem_of(&c->problem, unread, s->feedback);
    else
        c->source = lab_list_new(&s->runs, lab_view_run);
}

static json_t *artifacts_of(const struct lab_artifacts *a)
{
    return json_pack("{s:b,s:b,s:b,s:b,s:{s:b,s:b}}", "script", a->script != NULL, "timestamps",
                     a->timestamps != NULL, "visuals", a->visuals != NULL, "score",
                     a->score != NULL, "reports", "sync", a->sync_report != NULL, "caption",
                     a->caption_report != NULL);
}

/* The names of those that can be asked for. */
static json_t *files_of(const struct lab_artifacts *a)
{
    const char *const paths[] = {a->script, a->timestamps,  a->visuals,
                                 a->score,  a->sync_report, a->caption_report};
    json_t *out = json_array();
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const char *name = paths[i] != NULL ? strrchr(paths[i], '/') + 1 : NULL;
        if (name != NULL && lab_artifact_allowed(str_of_cstr(name)))
            json_array_append_new(out, json_string(name));
    }
    return out;
}

/* As its folder is now, but for the video that it was imported with. */
void lab_get_run(struct lab_call *c, struct lab_store *s)
{
    struct lab_artifacts a;
    json_t *run;
    int err = lab_index_refresh(&s->reviews);
    if (err != 0) {
        lab_problem_of(&c->problem, err, s->feedback);
        return;
    }
    if (lab_store_run(s, c->ids[0], &run, &c->problem) != LAB_FINE)
        return;
    struct lab_roots reach = s->roots;
    reach.own = lab_json_get(run, "artifactsDirRealpath").p;
    lab_artifacts_find(&a, lab_json_get(run, "artifactsDir").p);
    c->answer = brief(s, run);
    json_object_set_new(c->answer, "supersededByRunId", superseded_by(s, run));
    if (a.video != NULL && json_object_get(run, "videoPath") == NULL)
        json_object_set_new(c->answer, "videoPath", json_string_nocheck(a.video));
    json_object_set_new(c->answer, "artifacts", artifacts_of(&a));
    json_object_set_new(c->answer, "files", files_of(&a));
    json_object_set_new(c->answer, "autoMetricsSummary", lab_artifacts_summary(&a, &reach));
    lab_artifacts_deinit(&a);
    json_decref(run);
}

void lab_import_run(struct lab_call *c, struct lab_store *s)
{
    json_t *body = lab_call_body(c), *id = NULL;
    if (body == NULL)
        return;
    struct str path = lab_json_trimmed(body, "path");
    if (path.n == 0) {
        lab_problem_set(&c->problem, LAB_INVALID_ARGUMENT, "Missing path");
        lab_problem_fix(&c->problem, "Send {\"path\": \"/path/to/artifacts-or-video\"}.");
    } else if (lab_store_import(s, path, &id, &c->problem) == LAB_FINE) {
        lab_call_answer_one(c, "runId", id);
    }
    json_decref(body);
}
