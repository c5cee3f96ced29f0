// SPDX-License-Identifier: Apache-2.0
/* lab_files_http.c -- what runs have left: videos, by ranges, and artifacts. */
#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "feature/lab/lab_artifacts.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_store.h"
#include "feature/lab/lab_http_core.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- files piece by piece ---- */

struct file_source {
    struct lab_source source;
    int fd;
    uint64_t at, end;
};

static void lab_free_file(struct lab_source *source)
{
    struct file_source *f = container_of(source, struct file_source, source);
    close(f->fd);
    free(f);
}

/* A file that has become shorter is an error: its length has been said. */
static int lab_next_of_file(struct lab_source *source, struct lab_store *store, struct buf *out)
{
    struct file_source *f = container_of(source, struct file_source, source);
    size_t n = f->end - f->at < LAB_PIECE ? (size_t)(f->end - f->at) : LAB_PIECE;
    ssize_t got;
    do {
        got = n > 0 ? pread(f->fd, buf_reserve(out, n), n, (off_t)f->at) : 0;
    } while (got < 0 && errno == EINTR);
    if (got < 0 || (got == 0 && n > 0))
        return ERR_IO;
    out->n += (size_t)got;
    f->at += (uint64_t)got;
    return f->at < f->end;
}

static void give_file(struct lab_call *c, int fd, uint64_t from, uint64_t to)
{
    struct file_source *f = mem_zalloc(sizeof *f);
    *f = (struct file_source){{lab_next_of_file, lab_free_file}, fd, from, to};
    c->source = &f->source;
    c->length = (int64_t)(to - from);
}

/* ---- ranges ---- */

enum range { RANGE_NONE, RANGE_SOME, RANGE_BEYOND };

/* More digits than a number takes are a number beyond every file. */
static bool parse_number(struct str s, uint64_t *out)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    if (s.n > 0 && num_parse(s, UINT64_MAX, out) != 0)
        *out = UINT64_MAX;
    return s.n > 0;
}

/* The first range of the header. What is malformed counts as not there, as HTTP has it. */
static enum range parse_range(struct str header, uint64_t size, uint64_t *from, uint64_t *to)
{
    uint64_t first, last = UINT64_MAX;
    if (!str_starts(header, STR("bytes=")))
        return RANGE_NONE;
    struct str rest = str_skip(header, 6), end = str_trim(str_cut(&rest, ','));
    if (end.n == 0 || memchr(end.p, '-', end.n) == NULL)
        return RANGE_NONE;
    struct str begin = str_trim(str_cut(&end, '-'));
    end = str_trim(end);
    if (begin.n == 0) { /* so many at the end */
        if (!parse_number(end, &last))
            return RANGE_NONE;
        *from = last < size ? size - last : 0;
        *to = size;
        return last == 0 || size == 0 ? RANGE_BEYOND : RANGE_SOME;
    }
    if (!parse_number(begin, &first) || (end.n > 0 && !parse_number(end, &last)) || last < first)
        return RANGE_NONE;
    *from = first;
    *to = last < size ? last + 1 : size;
    return first < size ? RANGE_SOME : RANGE_BEYOND;
}

static void give_range(struct lab_call *c, int fd, uint64_t size)
{
    uint64_t from = 0, to = size;
    enum range range = parse_range(c->range_wanted, size, &from, &to);
    c->ranges = true;
    if (range == RANGE_SOME) {
        c->status = 206;
        snprintf(c->range, sizeof c->range, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, from, to - 1,
                 size);
    } else if (range == RANGE_BEYOND) {
        c->status = 416;
        snprintf(c->range, sizeof c->range, "bytes */%" PRIu64, size);
        from = to = 0;
    } else {
        from = 0;
        to = size;
    }
    give_file(c, fd, from, to);
}

/* ---- routes ---- */

/* The folder that was imported stays allowed, wherever the Lab is started next. */
static enum lab_code open_file(struct lab_call *c, struct lab_store *s, const json_t *run,
                               const char *path, int *fd, uint64_t *size)
{
    struct lab_roots reach = s->roots;
    reach.own = lab_json_get(run, "artifactsDirRealpath").p;
    return lab_roots_open(&reach, path, fd, size, &c->problem);
}

void lab_get_video(struct lab_call *c, struct lab_store *s)
{
    struct lab_artifacts a = {0};
    uint64_t size;
    json_t *run;
    int fd;
    if (lab_store_run(s, c->ids[0], &run, &c->problem) != LAB_FINE)
        return;
    const char *path = lab_json_get(run, "videoPath").p;
    if (path == NULL) {
        lab_artifacts_find(&a, lab_json_get(run, "artifactsDir").p);
        path = a.video;
    }
    if (path == NULL) {
        lab_problem_set(&c->problem, LAB_NOT_FOUND, "Video not found for run");
        lab_problem_fix(&c->problem, "Render a video, or import a .mp4 file.");
    } else if (open_file(c, s, run, path, &fd, &size) == LAB_FINE) {
        c->type = "video/mp4";
        give_range(c, fd, size);
    }
    lab_artifacts_deinit(&a);
    json_decref(run);
}

void lab_get_artifact(struct lab_call *c, struct lab_store *s)
{
    struct str name = c->ids[1];
    uint64_t size;
    json_t *run;
    int fd;
    if (!lab_artifact_allowed(name)) {
        lab_problem_set(&c->problem, LAB_FORBIDDEN, "Artifact is not allowed");
        return;
    }
    if (lab_store_run(s, c->ids[0], &run, &c->problem) != LAB_FINE)
        return;
    char *path = lab_path_resolve(lab_json_get(run, "artifactsDir").p, name);
    if (open_file(c, s, run, path, &fd, &size) == LAB_FINE)
        give_file(c, fd, 0, size);
    else if (c->problem.code == LAB_NOT_FOUND)
        lab_problem_set(&c->problem, LAB_NOT_FOUND, "Artifact not found: %.*s", (int)name.n,
                        name.p);
    free(path);
    json_decref(run);
}
