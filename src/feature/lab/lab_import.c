// SPDX-License-Identifier: Apache-2.0
/* lab_import.c -- runs from folders: see lab_store_import. */
#include "base/err.h"
#include "base/mem.h"
#include "feature/lab/lab_artifacts.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_schema.h"
#include "feature/lab/lab_store.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <xxhash.h>

/* What is being imported. */
struct import {
    char *folder; /* absolute, as it was named */
    char real[PATH_MAX];
    struct lab_artifacts artifacts;
};

static void import_deinit(struct import *i)
{
    free(i->folder);
    lab_artifacts_deinit(&i->artifacts);
}

static bool has_video_name(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && str_eq_nocase(str_of(path + n - 4, 4), STR(".mp4"));
}

/* A file stands for its folder. */
static void split_file(struct import *i, char **video)
{
    char *slash = strrchr(i->folder, '/');
    if (has_video_name(i->folder))
        *video = strdup(i->folder);
    slash[slash == i->folder ? 1 : 0] = '\0';
}

/* A link in an allowed folder may lead out of it. */
static bool holds_video(const struct lab_store *s, const char *video)
{
    char real[PATH_MAX];
    return video == NULL || (realpath(video, real) != NULL && lab_roots_hold(&s->roots, real));
}

static enum lab_code find_folder(struct lab_store *s, struct import *i, struct str path,
                                 struct lab_problem *p)
{
    struct stat st;
    char *video = NULL;
    if (memchr(path.p, '\0', path.n) != NULL)
        return lab_problem_set(p, LAB_INVALID_ARGUMENT, "Path contains a NUL");
    i->folder = lab_path_resolve(s->folder, path);
    if (stat(i->folder, &st) != 0)
        return lab_path_problem(p, errno, LAB_FILE_NOT_FOUND, i->folder);
    if (!S_ISDIR(st.st_mode))
        split_file(i, &video);
    if (realpath(i->folder, i->real) == NULL) {
        free(video);
        return lab_path_problem(p, errno, LAB_FILE_NOT_FOUND, i->folder);
    }
    if (!lab_roots_hold(&s->roots, i->real) || !holds_video(s, video)) {
        lab_problem_set(p, LAB_FORBIDDEN, "Import path is outside of the allowed roots: %.300s",
                        i->folder);
        lab_problem_fix(p, "Start the Lab with --allow-root DIR for a folder above it.");
        free(video);
        return p->code;
    }
    lab_artifacts_find(&i->artifacts, i->folder);
    if (video != NULL) {
        free(i->artifacts.video);
        i->artifacts.video = video;
    }
    return LAB_FINE;
}

/* ---- runs of the same folder ---- */

/* The run that is the same; *newest is the last of the folder. Both may be NULL. */
static json_t *find_same(struct lab_store *s, const char *real, const json_t *print,
                         json_t **newest)
{
    size_t n;
    uint64_t group = XXH3_64bits(real, strlen(real)); /* as the store's runs have it */
    struct lab_location *all = lab_index_list(&s->runs, &group, &n);
    json_t *same = NULL;
    for (size_t i = 0; i < n && same == NULL; i++) {
        json_t *run = lab_index_read_at(&s->runs, all[i]);
        if (!str_eq(lab_json_get(run, "artifactsDirRealpath"), str_of_cstr(real))) {
            json_decref(run);
            continue;
        }
        if (*newest == NULL)
            *newest = json_incref(json_object_get(run, "runId"));
        if (lab_fingerprint_same(json_object_get(run, "fingerprint"), print))
            same = json_incref(json_object_get(run, "runId"));
        json_decref(run);
    }
    free(all);
    return same;
}

/* ---- a new one ---- */

/* v may be NULL. */
static void lab_import_put(json_t *object, const char *key, json_t *v)
{
    if (v != NULL)
        json_object_set_new_nocheck(object, key, v);
}

static json_t *make_run(struct lab_store *s, const struct import *i, json_t *print, json_t *newest)
{
    const struct lab_artifacts *a = &i->artifacts;
    json_t *run = json_object(), *valid;
    lab_import_put(run, "runId", lab_new_id("run_"));
    lab_import_put(run, "sessionId", json_string(s->session));
    lab_import_put(run, "createdAt", lab_now());
    lab_import_put(run, "topic", lab_artifacts_topic(a, &s->roots));
    lab_import_put(run, "artifactsDir", json_string(i->folder));
    lab_import_put(run, "artifactsDirRealpath", json_string(i->real));
    lab_import_put(run, "fingerprint", json_incref(print));
    lab_import_put(run, "supersedesRunId", json_incref(newest));
    lab_import_put(run, "videoPath", a->video != NULL ? json_string(a->video) : NULL);
    lab_import_put(run, "reports", lab_artifacts_reports(a));
    lab_import_put(run, "autoMetricsSummary", lab_artifacts_summary(a, &s->roots));
    valid = lab_schema_apply(&lab_run_schema, run);
    json_decref(run);
    return valid;
}

static enum lab_code add_run(struct lab_store *s, const struct import *i, json_t *print,
                             json_t *newest, json_t **id, struct lab_problem *p)
{
    json_t *run = make_run(s, i, print, newest);
    if (run == NULL) /* a path that is no UTF-8 */
        return lab_problem_set(p, LAB_INVALID_ARGUMENT, "Path cannot be written down");
    int err = lab_index_append(&s->runs, run);
    if (err == 0)
        *id = json_incref(json_object_get(run, "runId"));
    else
        lab_problem_of(p, err, s->runs.log.path);
    json_decref(run);
    return p->code;
}

static enum lab_code import_locked(struct lab_store *s, const struct import *i, json_t **id,
                                   struct lab_problem *p)
{
    int err = lab_index_refresh(&s->runs);
    if (err != 0)
        return lab_problem_of(p, err, s->runs.log.path);
    json_t *newest = NULL, *print = lab_artifacts_fingerprint(&i->artifacts);
    json_t *same = find_same(s, i->real, print, &newest);
    if (same != NULL)
        *id = same;
    else
        add_run(s, i, print, newest, id, p);
    json_decref(newest);
    json_decref(print);
    return p->code;
}

enum lab_code lab_store_import(struct lab_store *s, struct str path, json_t **id,
                               struct lab_problem *p)
{
    struct import i = {0};
    int lock;
    if (find_folder(s, &i, path, p) == LAB_FINE && !lab_artifacts_any(&i.artifacts)) {
        lab_problem_set(p, LAB_INVALID_ARGUMENT, "No recognised artifacts in %.300s", i.folder);
        lab_problem_fix(p, "Import a folder with a video, script.json or a report in it.");
    }
    if (p->code == LAB_FINE) {
        int err = lab_store_lock(s, &lock);
        if (err != 0) {
            lab_problem_of(p, err, "The Lab's files are in use");
        } else {
            import_locked(s, &i, id, p);
            lab_store_unlock(lock);
        }
    }
    import_deinit(&i);
    return p->code;
}
