// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_store.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rand.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_schema.h"
#include "feature/lab/lab_request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define LOCK_WAIT_MS 5000
#define SESSION_MAX  4096 /* bytes of session.json */

/* ---- ids and times ---- */

json_t *lab_new_id(const char *prefix)
{
    char uuid[RAND_UUID + 1];
    rand_uuid(uuid);
    return json_sprintf("%s%s", prefix, uuid);
}

json_t *lab_now(void)
{
    char text[DATE_RFC3339_TEXT];
    date_format_rfc3339(clock_wall_ms(), text);
    return lab_json_text(str_of(text, sizeof text));
}

/* ---- what lines mean ---- */

static json_t *lab_store_accept_run(struct str line, struct lab_line *out)
{
    json_t *run = lab_schema_line(&lab_run_schema, line);
    struct str folder = lab_json_get(run, "artifactsDirRealpath");
    out->id = lab_json_get(run, "runId");
    out->group = XXH3_64bits(folder.p, folder.n);
    return run;
}

static json_t *lab_store_accept_experiment(struct str line, struct lab_line *out)
{
    json_t *experiment = lab_schema_line(&lab_experiment_schema, line);
    out->id = lab_json_get(experiment, "experimentId");
    return experiment;
}

static json_t *lab_store_accept_review(struct str line, struct lab_line *out)
{
    json_t *entry = lab_schema_line(&lab_feedback_schema, line);
    out->id = lab_json_get(entry, "runId");
    return entry;
}

/* ---- the lock ---- */

static char *below(const char *root, const char *name)
{
    return lab_path_resolve(root, str_of_cstr(name));
}

int lab_store_lock(struct lab_store *s, int *lock)
{
    char *path = below(s->root, "lock");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    free(path);
    if (fd < 0)
        return ERR_IO;
    for (int ms = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; ms++) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || ms == LOCK_WAIT_MS) {
            int err = errno == EWOULDBLOCK ? ERR_BUSY : ERR_IO;
            close(fd);
            return err;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    *lock = fd;
    return 0;
}

void lab_store_unlock(int lock)
{
    close(lock);
}

/* ---- the session ---- */

static bool read_session(struct lab_store *s, const char *path)
{
    char text[SESSION_MAX];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text);
    if (fd >= 0)
        close(fd);
    json_t *v = n > 0 ? lab_json_load(str_of(text, (size_t)n)) : NULL;
    struct str id = lab_json_get(v, "sessionId");
    bool good = str_starts(id, STR("lab_")) && id.n < sizeof s->session &&
                strspn(id.p, "abcdefghijklmnopqrstuvwxyz0123456789_-") == id.n;
    if (good)
        snprintf(s->session, sizeof s->session, "%.*s", (int)id.n, id.p);
    json_decref(v);
    return good;
}

/* Whole or not at all. */
static int write_session(const struct lab_store *s, const char *path)
{
    char text[128], *draft = below(s->root, "session.json.new");
    int n = snprintf(text, sizeof text, "{\"sessionId\":\"%s\"}\n", s->session);
    int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool good = fd >= 0 && write(fd, text, (size_t)n) == n && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    good = good && rename(draft, path) == 0;
    free(draft);
    return good ? 0 : ERR_IO;
}

static int lab_store_open_session(struct lab_store *s, bool new_session)
{
    char *path = below(s->root, "session.json"), uuid[RAND_UUID + 1];
    int err = 0;
    if (new_session || !read_session(s, path)) {
        rand_uuid(uuid);
        snprintf(s->session, sizeof s->session, "lab_%s", uuid);
        err = write_session(s, path);
    }
    free(path);
    return err;
}

/* ---- opening ---- */

static int make_folder(const char *path)
{
    char *part = lab_path_resolve("/", str_of_cstr(path));
    for (char *at = part; (at = strchr(at + 1, '/')) != NULL; *at = '/') {
        *at = '\0';
        mkdir(part, 0700);
    }
    int err = mkdir(part, 0700) == 0 || errno == EEXIST ? 0 : ERR_IO;
    free(part);
    return err;
}

static void init_indexes(struct lab_store *s)
{
    char *runs = below(s->root, "runs.jsonl"), *experiments = below(s->root, "experiments.jsonl");
    char name[128];
    snprintf(name, sizeof name, "sessions/%s/idempotency.jsonl", s->session);
    char *requests = below(s->root, name);
    lab_index_init(&s->runs, runs, lab_store_accept_run);
    lab_index_init(&s->experiments, experiments, lab_store_accept_experiment);
    lab_index_init(&s->requests, requests, lab_request_accept);
    lab_index_init(&s->reviews, s->feedback, lab_store_accept_review);
    free(runs);
    free(experiments);
    free(requests);
}

struct lab_store *lab_store_open(const struct lab_store_setup *setup, char *why, size_t size)
{
    struct lab_store *s = mem_zalloc(sizeof *s);
    int lock = -1, err;
    s->root = below("/", setup->root);
    s->feedback = below("/", setup->feedback);
    s->folder = below("/", setup->folder);
    s->roots = setup->roots;
    err = make_folder(s->root);
    if (err == 0)
        err = lab_store_lock(s, &lock);
    if (err == 0)
        err = lab_store_open_session(s, setup->new_session);
    if (lock >= 0)
        lab_store_unlock(lock);
    if (err != 0) {
        snprintf(why, size, "cannot use %s: %s", s->root, strerror(errno));
        lab_store_close(s);
        return NULL;
    }
    init_indexes(s);
    return s;
}

void lab_store_close(struct lab_store *s)
{
    if (s == NULL)
        return;
    lab_index_deinit(&s->runs);
    lab_index_deinit(&s->experiments);
    lab_index_deinit(&s->requests);
    lab_index_deinit(&s->reviews);
    lab_roots_deinit(&s->roots);
    free(s->root);
    free(s->feedback);
    free(s->folder);
    free(s);
}

/* ---- looking up ---- */

static enum lab_code look_up(struct lab_index *x, const char *what, struct str id, json_t **out,
                             struct lab_problem *p)
{
    int err = lab_index_refresh(x);
    if (err != 0)
        return lab_problem_of(p, err, x->log.path);
    const struct lab_record *r = lab_index_find(x, id);
    json_t *record = r != NULL ? lab_index_read(x, r) : NULL;
    if (record == NULL)
        return lab_problem_set(p, LAB_NOT_FOUND, "%s not found: %.*s", what,
                               (int)(id.n < 200 ? id.n : 200), id.n > 0 ? id.p : "");
    *out = record;
    return LAB_FINE;
}

enum lab_code lab_store_run(struct lab_store *s, struct str id, json_t **out, struct lab_problem *p)
{
    return look_up(&s->runs, "Run", id, out, p);
}

enum lab_code lab_store_experiment(struct lab_store *s, struct str id, json_t **out,
                                   struct lab_problem *p)
{
    return look_up(&s->experiments, "Experiment", id, out, p);
}
