// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_artifacts.h"
#include "base/err.h"
#include "base/mem.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_path.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DOCUMENT_MAX (8 * 1024 * 1024) /* bytes of a file that is looked into */

/* ---- what is there ---- */

static char *joined(const char *folder, const char *name)
{
    size_t n = strlen(folder) + strlen(name) + 2;
    char *path = mem_alloc(n);
    snprintf(path, n, "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, name);
    return path;
}

/* NULL: it is not there, or no file. */
static char *lab_artifacts_file_of(const char *folder, const char *name)
{
    struct stat st;
    char *path = joined(folder, name);
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
        return path;
    free(path);
    return NULL;
}

static char *first_of(const char *folder, const char *const *names)
{
    char *path = NULL;
    while (path == NULL && *names != NULL)
        path = lab_artifacts_file_of(folder, *names++);
    return path;
}

static bool is_video_name(const char *name)
{
    size_t n = strlen(name);
    return n >= 4 && str_eq_nocase(str_of(name + n - 4, 4), STR(".mp4"));
}

/* Folders have no order of their own: the first by name is the same each time. */
static char *any_video(const char *folder)
{
    DIR *d = opendir(folder);
    char first[NAME_MAX + 1] = "";
    struct dirent *e;
    while (d != NULL && (e = readdir(d)) != NULL)
        if (is_video_name(e->d_name) && (*first == '\0' || strcmp(e->d_name, first) < 0))
            snprintf(first, sizeof first, "%s", e->d_name);
    if (d != NULL)
        closedir(d);
    return *first != '\0' ? lab_artifacts_file_of(folder, first) : NULL;
}

void lab_artifacts_find(struct lab_artifacts *a, const char *folder)
{
    static const char *const sync[] = {"sync-report.json", "sync-report-attempt1.json", NULL};
    static const char *const caption[] = {"caption-report.json", "caption-report-attempt1.json",
                                          "caption-quality.json", NULL};
    *a = (struct lab_artifacts){
        .video = lab_artifacts_file_of(folder, "video.mp4"),
        .script = lab_artifacts_file_of(folder, "script.json"),
        .timestamps = lab_artifacts_file_of(folder, "timestamps.json"),
        .visuals = lab_artifacts_file_of(folder, "visuals.json"),
        .score = lab_artifacts_file_of(folder, "score.json"),
        .sync_report = first_of(folder, sync),
        .caption_report = first_of(folder, caption),
    };
    if (a->video == NULL)
        a->video = any_video(folder);
}

void lab_artifacts_deinit(struct lab_artifacts *a)
{
    free(a->video);
    free(a->script);
    free(a->timestamps);
    free(a->visuals);
    free(a->score);
    free(a->sync_report);
    free(a->caption_report);
    *a = (struct lab_artifacts){0};
}

bool lab_artifacts_any(const struct lab_artifacts *a)
{
    return a->video || a->script || a->timestamps || a->visuals || a->score || a->sync_report ||
           a->caption_report;
}

/* NAME.json, and NAME-attemptN.json of what is made more than once. */
bool lab_artifact_allowed(struct str name)
{
    static const char *const bases[] = {"script",          "timestamps",      "visuals",
                                        "score",           "sync-report",     "caption-report",
                                        "caption-quality", "caption-settings"};
    static const struct str end = STR_INIT(".json"), attempt = STR_INIT("-attempt");
    if (name.n <= end.n || !str_eq(str_skip(name, name.n - end.n), end))
        return false;
    name.n -= end.n;
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        struct str base = str_of_cstr(bases[i]);
        if (!str_starts(name, base))
            continue;
        struct str rest = str_skip(name, base.n);
        if (rest.n == 0)
            return true;
        if (!str_starts(rest, attempt) || rest.n == attempt.n || rest.n > attempt.n + 9)
            continue;
        size_t at = attempt.n;
        while (at < rest.n && rest.p[at] >= '0' && rest.p[at] <= '9')
            at++;
        if (at == rest.n)
            return true;
    }
    return false;
}

/* ---- what it says ---- */

static json_t *document_of(const char *path, const struct lab_roots *roots)
{
    struct lab_problem ignored = {0};
    json_t *v = NULL;
    uint64_t size;
    int fd;
    if (path == NULL || lab_roots_open(roots, path, &fd, &size, &ignored) != LAB_FINE) {
        lab_problem_deinit(&ignored);
        return NULL;
    }
    if (size > 0 && size <= DOCUMENT_MAX) {
        char *text = mem_alloc(size);
        size_t have = 0;
        ssize_t n;
        while (have < size && (n = read(fd, text + have, size - have)) > 0)
            have += (size_t)n;
        v = lab_json_load(str_of(text, have));
        free(text);
    }
    close(fd);
    return v;
}

static json_t *score_of(const json_t *number, double scale)
{
    double v = json_is_number(number) ? json_number_value(number) * scale : NAN;
    if (isnan(v))
        return json_null();
    v = v < 0 ? 0 : v > 100 ? 100 : v;
    return json_integer((json_int_t)floor(v + 0.5));
}

static json_t *number_or_null(const json_t *v)
{
    return json_is_number(v) ? json_incref((json_t *)(uintptr_t)v) : json_null();
}

static json_t *member(const json_t *object, const char *first, const char *second)
{
    return json_object_get(json_object_get(object, first), second);
}

/* Members that a report would give stand there only if there is the report. */
static void put_sync(json_t *out, const json_t *report)
{
    struct str label = lab_json_get(report, "ratingLabel");
    json_object_set_new(out, "syncRating", score_of(json_object_get(report, "rating"), 1));
    if (!json_is_object(report))
        return;
    json_object_set_new(out, "syncLabel", label.n > 0 ? lab_json_text(label) : json_null());
    json_object_set_new(out, "meanDriftMs",
                        number_or_null(member(report, "metrics", "meanDriftMs")));
    json_object_set_new(out, "maxDriftMs", number_or_null(member(report, "metrics", "maxDriftMs")));
}

static void put_caption(json_t *out, const json_t *report)
{
    const json_t *quality = json_object_get(report, "captionQuality");
    json_object_set_new(out, "captionOverall", score_of(member(quality, "overall", "score"), 100));
    if (!json_is_object(report))
        return;
    json_object_set_new(out, "captionCoverageRatio",
                        number_or_null(member(quality, "coverage", "coverageRatio")));
    json_object_set_new(out, "ocrConfidenceMean",
                        number_or_null(member(quality, "ocrConfidence", "mean")));
}

json_t *lab_artifacts_summary(const struct lab_artifacts *a, const struct lab_roots *roots)
{
    json_t *out = json_object();
    json_t *sync = document_of(a->sync_report, roots);
    json_t *caption = document_of(a->caption_report, roots);
    json_t *score = document_of(a->score, roots);
    put_sync(out, sync);
    put_caption(out, caption);
    json_object_set_new(out, "proxyScoreOverall", score_of(json_object_get(score, "overall"), 100));
    json_decref(sync);
    json_decref(caption);
    json_decref(score);
    return out;
}

json_t *lab_summary_snapshot(const json_t *summary)
{
    static const char *const kept[] = {"syncRating",       "captionOverall", "proxyScoreOverall",
                                       "meanDriftMs",      "maxDriftMs",     "captionCoverageRatio",
                                       "ocrConfidenceMean"};
    json_t *out = json_object();
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        json_t *v = json_object_get(summary, kept[i]);
        if (v != NULL)
            json_object_set(out, kept[i], v);
    }
    return out;
}

json_t *lab_artifacts_topic(const struct lab_artifacts *a, const struct lab_roots *roots)
{
    json_t *script = document_of(a->script, roots);
    struct str topic = lab_json_trimmed(json_object_get(script, "meta"), "topic");
    if (topic.n == 0)
        topic = lab_json_trimmed(json_object_get(script, "metadata"), "topic");
    if (topic.n == 0)
        topic = lab_json_trimmed(script, "title");
    json_t *out = topic.n > 0 ? lab_json_text(topic) : NULL;
    json_decref(script);
    return out;
}

static void put_path(json_t *out, const char *key, const char *path)
{
    if (path != NULL)
        json_object_set_new_nocheck(out, key, json_string_nocheck(path));
}

json_t *lab_artifacts_reports(const struct lab_artifacts *a)
{
    json_t *out = json_object();
    put_path(out, "syncReportPath", a->sync_report);
    put_path(out, "captionReportPath", a->caption_report);
    put_path(out, "scorePath", a->score);
    if (json_object_size(out) > 0)
        return out;
    json_decref(out);
    return NULL;
}

/* ---- fingerprints ---- */

static void put_file(json_t *out, const char *key, const char *path)
{
    struct stat st;
    if (path == NULL || stat(path, &st) != 0)
        return;
    double ms = (double)st.st_mtim.tv_sec * 1000 + (double)st.st_mtim.tv_nsec / 1e6;
    json_t *file = json_object();
    put_path(file, "path", path);
    json_object_set_new(file, "sizeBytes", json_integer(st.st_size));
    json_object_set_new(file, "mtimeMs", json_real(ms > 0 ? ms : 0));
    json_object_set_new(out, key, file);
}

json_t *lab_artifacts_fingerprint(const struct lab_artifacts *a)
{
    json_t *out = json_object();
    put_file(out, "video", a->video);
    put_file(out, "script", a->script);
    if (json_object_size(out) > 0)
        return out;
    json_decref(out);
    return NULL;
}

static bool same_file(const json_t *a, const json_t *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    return json_number_value(json_object_get(a, "sizeBytes")) ==
               json_number_value(json_object_get(b, "sizeBytes")) &&
           json_number_value(json_object_get(a, "mtimeMs")) ==
               json_number_value(json_object_get(b, "mtimeMs"));
}

bool lab_fingerprint_same(const json_t *a, const json_t *b)
{
    return same_file(json_object_get(a, "video"), json_object_get(b, "video")) &&
           same_file(json_object_get(a, "script"), json_object_get(b, "script"));
}
