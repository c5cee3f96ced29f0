// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_export.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rand.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_schema.h"
#include "feature/lab/lab_store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORDS_A_STEP 100
#define BYTES_A_STEP   (1024 * 1024) /* after which no further record is put */

/* Feedback is read twice: first for the runs that it is about, which stand before it. */
enum phase { MENTIONS, EXPERIMENTS_MENTION, HEAD, RUNS, EXPERIMENTS, FEEDBACK, DONE };

struct lab_export {
    struct lab_store *store;
    struct str session; /* owned */
    char *path;
    int folder, fd;
    char draft[64]; /* name in the folder, until it is finished */
    enum phase phase;
    struct map mentioned; /* run ids; the key is the value */
    struct lab_location *locations;
    size_t n, at;
    uint64_t cursor;
    size_t given, count; /* in this list; entries */
};

/* ---- where ---- */

static enum lab_code lab_export_refuse(struct lab_problem *p, enum lab_code code,
                                       const char *message, const char *root)
{
    lab_problem_set(p, code, "%s", message);
    lab_problem_add(p, "exportRoot", str_of_cstr(root));
    return code;
}

/* Opens the folder of a path below root, one part after the other and no link among them, making
 * what is missing. */
static int open_folder(const char *root, const char *path)
{
    const char *part = path + strlen(root) + 1, *slash;
    mkdir(root, 0700);
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && (slash = strchr(part, '/')) != NULL) {
        char name[NAME_MAX + 1];
        int inner = -1;
        if ((size_t)(slash - part) < sizeof name) {
            snprintf(name, sizeof name, "%.*s", (int)(slash - part), part);
            mkdirat(fd, name, 0700);
            inner = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        }
        close(fd);
        fd = inner;
        part = slash + 1;
    }
    return fd;
}

/* A session's name may be anything, a file's may not. */
static char *default_path(const char *root, struct str session)
{
    char name[160];
    int n =
        snprintf(name, sizeof name, "export-%.*s-%lld.json",
                 (int)(session.n < 100 ? session.n : 100), session.p, (long long)clock_wall_ms());
    for (int i = 0; i < n; i++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", name[i]) ==
            NULL)
            name[i] = '_';
    return lab_path_resolve(root, str_of_cstr(name));
}

static enum lab_code open_path(struct lab_export *e, const char *root, struct str path,
                               struct lab_problem *p)
{
    size_t n = strlen(root);
    if (path.n > 0 && memchr(path.p, '\0', path.n) != NULL)
        return lab_export_refuse(p, LAB_INVALID_ARGUMENT, "Path contains a NUL", root);
    e->path = path.n > 0 ? lab_path_resolve(root, path) : default_path(root, e->session);
    if (strncmp(e->path, root, n) != 0 || e->path[n] != '/')
        return lab_export_refuse(p, LAB_FORBIDDEN,
                                 "Export path must be under the Lab exports directory", root);
    const char *name = strrchr(e->path, '/') + 1;
    if (strlen(e->path) >= PATH_MAX || strlen(name) > NAME_MAX)
        return lab_export_refuse(p, LAB_INVALID_ARGUMENT, "Export path is too long", root);
    e->folder = open_folder(root, e->path);
    if (e->folder < 0)
        return lab_export_refuse(p, LAB_FORBIDDEN, "Export path leads elsewhere", root);
    char uuid[RAND_UUID + 1];
    rand_uuid(uuid);
    snprintf(e->draft, sizeof e->draft, ".%s.new", uuid);
    e->fd = openat(e->folder, e->draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (e->fd < 0)
        return lab_problem_set(p, LAB_INTERNAL, "Cannot write: %s", strerror(errno));
    return LAB_FINE;
}

/* ---- making ---- */

static void mention(struct lab_export *e, struct str run)
{
    if (lab_index_find(&e->store->runs, run) == NULL || map_get(&e->mentioned, run) != NULL)
        return;
    char *own = memcpy(mem_alloc(run.n), run.p, run.n);
    map_put(&e->mentioned, str_of(own, run.n), own);
}

static int lab_export_write_all(int fd, struct str bytes)
{
    while (bytes.n > 0) {
        ssize_t n = write(fd, bytes.p, bytes.n);
        if (n < 0 && errno != EINTR)
            return errno == ENOSPC ? ERR_FULL : ERR_IO;
        bytes = str_skip(bytes, n > 0 ? (size_t)n : 0);
    }
    return 0;
}

static void lab_export_put_item(struct lab_export *e, struct buf *out, const json_t *item)
{
    buf_put(out, e->given++ > 0 ? STR(",\n    ") : STR("\n    "));
    lab_json_put_pretty(out, item, 2);
}

static void end_list(struct lab_export *e, struct buf *out, const char *next)
{
    buf_put(out, e->given > 0 ? STR("\n  ]") : STR("]"));
    buf_put(out, str_of_cstr(next));
    e->given = 0;
}

static bool is_of_session(const struct lab_export *e, const json_t *record)
{
    return str_eq(lab_json_get(record, "sessionId"), e->session);
}

/* ---- records ---- */

static void open_list(struct lab_export *e, const struct lab_index *x)
{
    free(e->locations);
    e->locations = lab_index_list(x, NULL, &e->n);
    e->at = 0;
}

static void take_experiment(struct lab_export *e, const json_t *x)
{
    const json_t *variants = json_object_get(x, "variants");
    mention(e, lab_json_get(x, "baselineRunId"));
    for (size_t i = 0; i < json_array_size(variants); i++)
        mention(e, lab_json_get(json_array_get(variants, i), "runId"));
}

static bool is_wanted(const struct lab_export *e, const json_t *record)
{
    if (is_of_session(e, record))
        return true;
    struct str run = lab_json_get(record, "runId");
    return e->phase == RUNS && run.n > 0 && map_get(&e->mentioned, run) != NULL;
}

/* False: the list has ended. */
static bool step_list(struct lab_export *e, struct lab_index *x, struct buf *out)
{
    for (int i = 0; i < RECORDS_A_STEP && out->n < BYTES_A_STEP && e->at < e->n; i++) {
        json_t *record = lab_index_read_at(x, e->locations[e->at++]);
        if (record != NULL && is_wanted(e, record)) {
            if (e->phase == EXPERIMENTS_MENTION)
                take_experiment(e, record);
            else
                lab_export_put_item(e, out, record);
        }
        json_decref(record);
    }
    return e->at < e->n;
}

/* ---- feedback ---- */

static void take_entry(struct lab_export *e, struct str line, struct buf *out)
{
    json_t *entry = lab_schema_line(&lab_feedback_schema, line);
    if (entry != NULL && is_of_session(e, entry)) {
        if (e->phase == MENTIONS)
            mention(e, lab_json_get(entry, "runId"));
        else
            lab_export_put_item(e, out, entry);
        e->count += e->phase == FEEDBACK;
    }
    json_decref(entry);
}

/* 1: more, 0: all was read, or an error. */
static int step_feedback(struct lab_export *e, struct buf *out)
{
    struct log log = {.path = e->store->feedback};
    struct log_read r = {.log = &log, .since = e->cursor};
    int err = lab_log_read(&r);
    if (err != 0)
        return err;
    struct str rest = r.bytes != NULL ? str_of(r.bytes->bytes, r.bytes->n) : STR_NONE, line;
    while (log_line(&rest, &line))
        take_entry(e, line, out);
    block_unref(r.bytes);
    bool more = r.next > e->cursor;
    e->cursor = r.next;
    return more;
}

/* ---- steps ---- */

static int step_mentions(struct lab_export *e)
{
    int more = step_feedback(e, NULL);
    if (more == 0) {
        e->phase = EXPERIMENTS_MENTION;
        open_list(e, &e->store->experiments);
    }
    return more < 0 ? more : 0;
}

static void lab_export_put_head(struct lab_export *e, struct buf *out)
{
    json_t *now = lab_now(), *session = lab_json_text(e->session);
    buf_put(out, STR("{\n  \"schemaVersion\": 1,\n  \"exportedAt\": "));
    lab_json_put(out, now);
    buf_put(out, STR(",\n  \"sessionId\": "));
    lab_json_put(out, session);
    buf_put(out, STR(",\n  \"runs\": ["));
    json_decref(now);
    json_decref(session);
    e->phase = RUNS;
    open_list(e, &e->store->runs);
}

static void step_records(struct lab_export *e, struct buf *out)
{
    if (e->phase == RUNS && !step_list(e, &e->store->runs, out)) {
        end_list(e, out, ",\n  \"experiments\": [");
        e->phase = EXPERIMENTS;
        open_list(e, &e->store->experiments);
    } else if (e->phase == EXPERIMENTS && !step_list(e, &e->store->experiments, out)) {
        end_list(e, out, ",\n  \"feedback\": [");
        e->phase = FEEDBACK;
        e->cursor = 0;
    }
}

static int lab_export_finish(struct lab_export *e)
{
    const char *name = strrchr(e->path, '/') + 1;
    if (fsync(e->fd) != 0 || renameat(e->folder, e->draft, e->folder, name) != 0)
        return ERR_IO;
    e->draft[0] = '\0';
    e->phase = DONE;
    return fsync(e->folder) == 0 ? 0 : ERR_IO;
}

static int lab_export_run_phase(struct lab_export *e, struct buf *out)
{
    int more;
    switch (e->phase) {
    case MENTIONS: return step_mentions(e);
    case EXPERIMENTS_MENTION:
        if (!step_list(e, &e->store->experiments, out))
            e->phase = HEAD;
        return 0;
    case HEAD: lab_export_put_head(e, out); return 0;
    case RUNS:
    case EXPERIMENTS: step_records(e, out); return 0;
    case FEEDBACK:
        more = step_feedback(e, out);
        if (more == 0) {
            end_list(e, out, "\n}\n");
            e->phase = DONE;
        }
        return more < 0 ? more : 0;
    case DONE: break;
    }
    return 0;
}

int lab_export_step(struct lab_export *e)
{
    struct buf out = {0};
    int err = lab_export_run_phase(e, &out);
    if (err == 0)
        err = lab_export_write_all(e->fd, buf_str(&out));
    buf_deinit(&out);
    if (err == 0 && e->phase == DONE)
        err = lab_export_finish(e);
    return err != 0 ? err : e->phase != DONE;
}

json_t *lab_export_answer(const struct lab_export *e)
{
    json_t *out = json_object();
    json_object_set_new(out, "path", json_string_nocheck(e->path));
    json_object_set_new(out, "count", json_integer((json_int_t)e->count));
    return out;
}

enum lab_code lab_export_new(struct lab_store *s, struct str session, struct str path,
                             struct lab_export **out, struct lab_problem *p)
{
    struct lab_export *e = mem_zalloc(sizeof *e);
    char *root = lab_path_resolve(s->root, STR("exports"));
    *e = (struct lab_export){.store = s, .folder = -1, .fd = -1};
    e->session = str_of(memcpy(mem_alloc(session.n), session.p, session.n), session.n);
    map_init(&e->mentioned);
    int err = lab_index_refresh(&s->runs);
    if (err == 0)
        err = lab_index_refresh(&s->experiments);
    if (err != 0)
        lab_problem_of(p, err, s->root);
    else
        open_path(e, root, path, p);
    free(root);
    if (p->code == LAB_FINE)
        *out = e;
    else
        lab_export_free(e);
    return p->code;
}

void lab_export_free(struct lab_export *e)
{
    char *run;
    size_t at = 0;
    if (e->draft[0] != '\0' && e->folder >= 0)
        unlinkat(e->folder, e->draft, 0);
    if (e->fd >= 0)
        close(e->fd);
    if (e->folder >= 0)
        close(e->folder);
    while ((run = map_next(&e->mentioned, &at)) != NULL)
        free(run);
    map_deinit(&e->mentioned);
    free(e->locations);
    free(e->path);
    free((char *)(uintptr_t)e->session.p);
    free(e);
}
