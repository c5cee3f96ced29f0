// SPDX-License-Identifier: Apache-2.0
/* Sessions of an earlier life of the program, out of the directory that they were saved in. */
#include "client/client_session_core.h"
#include "base/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#define LOOKBACK_MS 7200000

struct resuming {
    struct tm_client *c;
    const char *path;
    struct tm_resume_options o;
    struct tm_session_options session;
    struct tm_resume_report report;
    bool stopped;
};

/* The names first: whoever resumes writes into the directory. */
static int list_names(struct tm_client *c, int fd, struct bytes *names)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (dir == NULL && copy >= 0)
        close(copy);
    if (dir == NULL)
        return client_fail(c, TM_E_IO, "the directory of saved state could not be read");
    int err = 0;
    struct dirent *e;
    while (err == 0 && (e = readdir(dir)) != NULL)
        if (state_is_name(e->d_name))
            err = bytes_put(c, names, str_of(e->d_name, STATE_NAME_SIZE));
    closedir(dir);
    return err == 0 ? 0 : client_fail(c, err, "%s", tm_error_text(err));
}

/* Whether it goes on. *clear: it will not, ever. */
static bool is_due(struct resuming *r, const struct saved_state *s, bool *clear)
{
    int64_t last = s->updated_ms > 0 ? s->updated_ms : s->created_ms;
    *clear = false;
    if (clock_wall_ms() - last > r->o.retry_lookback_window_ms) {
        r->report.too_old++;
        return false;
    }
    *clear = s->generation[0] == '\0' ||
             (r->o.wanted != NULL && r->o.wanted(r->o.ctx, s->generation) == 0);
    if (*clear)
        r->report.cleared++;
    return !*clear;
}

static int client_resume_one(struct resuming *r, struct saved_state *state, struct state_dir *dir)
{
    struct tm_session *s;
    int err = sess_new(r->c, &r->session, state, dir, &s);
    if (err != 0)
        return err;
    r->report.resumed++;
    r->stopped = r->o.resumed(r->o.ctx, s, s->state.generation) != 0;
    return 0;
}

/* dir is taken. */
static int resume_locked(struct resuming *r, struct state_dir *dir, const char *name)
{
    struct saved_state state;
    unsigned dropped = 0;
    bool clear = false;
    int err = state_load(r->c, dir, name, &state, &dropped);
    r->report.chunks_dropped += dropped;
    if (err == 0 && is_due(r, &state, &clear))
        return client_resume_one(r, &state, dir);
    if (err == TM_E_TAMPERED) {
        client_notice(r->c, "%s", r->c->error);
        r->report.refused++;
        err = 0;
    } else if (err == TM_E_NOT_FOUND) {
        err = 0; /* it has ended meanwhile */
    } else if (err == 0 && clear) {
        err = state_remove(r->c, dir, name);
    }
    state_deinit(r->c, &state);
    state_dir_close(dir);
    return err;
}

/* Each session has the directory open for itself, and its lock with it. */
static int resume_one(struct resuming *r, const char *name)
{
    struct state_dir dir = STATE_DIR_NONE;
    int err = state_dir_open(r->c, r->path, false, &dir);
    if (err == 0)
        err = state_lock(r->c, &dir, name);
    if (err == 0)
        return resume_locked(r, &dir, name);
    state_dir_close(&dir);
    if (err != TM_E_BUSY)
        return err;
    r->report.in_use++;
    return 0;
}

/* A file that cannot be read is not the others' fault. */
static int resume_names(struct resuming *r, const struct bytes *names)
{
    int first = 0;
    for (size_t at = 0; at < names->n && !r->stopped; at += STATE_NAME_SIZE) {
        int err = resume_one(r, names->p + at);
        if (err == TM_E_IO)
            client_notice(r->c, "%s", r->c->error);
        else if (err != 0)
            return err;
        first = first != 0 ? first : err;
    }
    return first;
}

static int client_resume_fill_in(struct resuming *r, const struct tm_resume_options *o)
{
    if (o == NULL || o->size < sizeof o->size)
        return client_fail(r->c, TM_E_INVALID, "resume options without their size");
    memcpy(&r->o, o, o->size < sizeof r->o ? o->size : sizeof r->o);
    if (r->o.resumed == NULL)
        return client_fail(r->c, TM_E_INVALID, "there must be somebody whom a session is given to");
    if (r->o.retry_lookback_window_ms == 0)
        r->o.retry_lookback_window_ms = LOOKBACK_MS;
    int err = sess_options(r->c, r->o.session, &r->session);
    if (err == 0 && (r->session.persist_idempotent_stream_state < 0 ||
                     r->session.idempotent_agentic_composer < 0))
        err = client_fail(r->c, TM_E_INVALID, "the gates do not allow to resume");
    return err;
}

int tm_resume_all(struct tm_client *c, const char *state_dir, const struct tm_resume_options *o,
                  struct tm_resume_report *report)
{
    struct resuming r = {.c = c, .path = state_dir};
    struct state_dir dir = STATE_DIR_NONE;
    struct bytes names = {0};
    int err = client_resume_fill_in(&r, o);
    if (err == 0)
        err = state_dir_open(c, state_dir, false, &dir);
    if (err == 0)
        err = list_names(c, dir.fd, &names);
    if (err == 0)
        err = resume_names(&r, &names);
    if (err == TM_E_NOT_FOUND)
        err = 0; /* nothing was ever saved there */
    bytes_free(c, &names);
    state_dir_close(&dir);
    if (report != NULL)
        *report = r.report;
    return err;
}
