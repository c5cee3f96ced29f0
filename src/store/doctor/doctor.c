// SPDX-License-Identifier: Apache-2.0
/* doctor.c -- one look after another: what is wrong, what is repaired, what is left. */
#include "store/doctor/doctor.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/doctor/doctor_core.h"
#include "store/embedded/journal.h"
#include "store/embedded/journal_format.h"
#include "store/embedded/segment.h"
#include "store/embedded/segment_format.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- saying ---- */

/* Names are anybody's bytes, and a terminal takes some of them for orders. */
static void make_harmless(struct buf *b)
{
    for (size_t i = 0; i < b->n; i++)
        if ((unsigned char)b->p[i] < 0x20 || b->p[i] == 0x7f)
            b->p[i] = '?';
    buf_putc(b, '\0');
}

void doctor_say(struct doctor_pass *l, enum doctor_tone tone, const char *fmt, ...)
{
    struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    va_start(ap, fmt);
    vsnprintf(buf_reserve(&text, (size_t)n + 1), (size_t)n + 1, fmt, ap);
    va_end(ap);
    text.n = (size_t)n;
    make_harmless(&text);
    l->wrong += tone == DOCTOR_WRONG;
    if (tone == DOCTOR_DONE)
        l->doctor->repaired = true;
    if (l->held == NULL || tone == DOCTOR_DONE)
        l->doctor->say(l->doctor->ctx, tone, text.p);
    else if (tone == DOCTOR_WRONG)
        buf_put(l->held, buf_str(&text));
    buf_deinit(&text);
}

static void tell_held(struct doctor *d, const struct buf *held)
{
    for (size_t at = 0; at < held->n; at += strlen(held->p + at) + 1)
        d->say(d->ctx, DOCTOR_WRONG, held->p + at);
}

void doctor_progress(struct doctor_pass *l, uint64_t bytes)
{
    const struct doctor *d = l->doctor;
    l->done_bytes += bytes;
    if (d->progress != NULL)
        d->progress(d->ctx, l->done_bytes < l->all_bytes ? l->done_bytes : l->all_bytes,
                    l->all_bytes);
}

/* ---- streams ---- */

static int doctor_by_life(const void *a, const void *b)
{
    const struct doctor_stream *x = a, *y = b;
    return (x->life > y->life) - (x->life < y->life);
}

struct doctor_stream *doctor_find_stream(const struct doctor_pass *l, uint64_t life)
{
    struct doctor_stream wanted = {.life = life};
    if (l->n_streams == 0)
        return NULL;
    return bsearch(&wanted, l->streams, l->n_streams, sizeof wanted, doctor_by_life);
}

struct str doctor_stream_name(struct doctor_pass *l, uint64_t life)
{
    const struct doctor_stream *s = doctor_find_stream(l, life);
    if (s != NULL)
        return arena_printf(&l->arena, "stream %.*s", STR_ARG(s->name));
    return arena_printf(&l->arena, "a stream of unknown name (life %" PRIu64 ")", life);
}

void doctor_note_loss(struct doctor_pass *l, uint64_t life, uint64_t from, uint64_t upto)
{
    struct doctor_stream *s = doctor_find_stream(l, life);
    if (s == NULL)
        return;
    struct doctor_loss *loss = arena_alloc(&l->arena, sizeof *loss);
    *loss = (struct doctor_loss){s->lost, from, upto};
    s->lost = loss;
}

static const struct doctor_loss *loss_between(const struct doctor_stream *s, uint64_t from,
                                              uint64_t upto)
{
    const struct doctor_loss *loss = s->lost;
    while (loss != NULL && (loss->from >= upto || loss->upto <= from))
        loss = loss->next;
    return loss;
}

/* Once for each, whatever it is that was lost. */
static void say_fork(struct doctor_pass *l, const struct doctor_stream *s)
{
    uint64_t upto = UINT64_MAX;
    const struct doctor_loss *loss = NULL;
    const struct doctor_stream *at = s;
    while (loss == NULL && at != NULL && at->source != 0 && !at->whole && at->source < at->life) {
        upto = at->fork_at < upto ? at->fork_at : upto;
        at = doctor_find_stream(l, at->source);
        loss = at == NULL ? NULL : loss_between(at, s->first, upto);
    }
    if (loss != NULL)
        doctor_say(l, DOCTOR_WRONG,
                   "stream %.*s: of the events that it shares with stream %.*s some, from offset "
                   "%016" PRIu64 "_%016" PRIu64 " on, cannot be read",
                   STR_ARG(s->name), STR_ARG(at->name), at->life, loss->from);
}

static void say_forks(struct doctor_pass *l)
{
    for (size_t i = 0; i < l->n_streams; i++)
        if (!l->streams[i].deleted)
            say_fork(l, &l->streams[i]);
}

static struct str life_key(const uint64_t *life)
{
    return str_of((const char *)life, sizeof *life);
}

struct doctor_life *doctor_find_life(struct doctor_pass *l, uint64_t life)
{
    struct doctor_life *d = map_get(&l->lives, life_key(&life));
    return d == NULL || d->gone || d->hearsay ? NULL : d;
}

static struct doctor_life *any_life(struct doctor_pass *l, uint64_t life)
{
    struct doctor_life *d = map_get(&l->lives, life_key(&life));
    if (d != NULL)
        return d;
    d = arena_alloc(&l->arena, sizeof *d);
    *d = (struct doctor_life){.life = life, .hearsay = true};
    map_put(&l->lives, life_key(&d->life), d);
    return d;
}

void doctor_add_life(struct doctor_pass *l, uint64_t life, uint64_t tail, bool replayed)
{
    struct doctor_life *d = any_life(l, life);
    if (d->hearsay)
        d->replayed = replayed;
    d->tail = tail;
    d->gone = d->hearsay = false;
    if (!replayed) {
        d->rested = tail;
        d->replayed = false;
    }
}

void doctor_state_life(struct doctor_pass *l, uint64_t life, uint64_t segment)
{
    any_life(l, life)->stated = segment;
}

void doctor_drop_journal(struct doctor_pass *l)
{
    size_t at = 0;
    for (struct doctor_life *d; (d = map_next(&l->lives, &at)) != NULL;) {
        d->tail = d->rested;
        d->gone = d->replayed;
    }
}

static bool has_bad_row(const struct doctor_pass *l, uint64_t life)
{
    for (size_t i = 0; i < l->n_bad; i++)
        if (l->bad[i].table == TABLE_STREAM && key_u64(key_str(&l->bad[i].key), 0) == life)
            return true;
    return false;
}

/* Its row came from the notes of one checkpoint, and where the journal goes on from those of
 * another or from the index: those between them have to be there. */
bool doctor_is_uncertain(const struct doctor_pass *l, uint64_t life)
{
    const struct doctor_pass *b = l->before;
    if (b == NULL || !b->salvaged)
        return false;
    bool merged = b->state == DOCTOR_INDEX_ROWS;
    if (merged && !has_bad_row(b, life))
        return false;
    const struct doctor_life *known = map_get(&b->lives, life_key(&life));
    if (known == NULL)
        return true;
    return merged ? known->stated < b->lossy || known->stated >= b->meta.next_segment
                  : known->stated < b->meta_lossy || known->stated > b->meta_id;
}

/* ---- names ---- */

struct folder {
    struct doctor_pass *look;
    const char *name; /* "" is the data directory */
};

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static bool is_ours(const char *folder, const char *name)
{
    static const char *const top[] = {"lock",          "index.mdb",          "index.mdb-lock",
                                      "index.mdb.new", "index.mdb.new-lock", JOURNAL_DIR,
                                      SEGMENT_DIR};
    uint64_t n;
    if (strcmp(folder, JOURNAL_DIR) == 0)
        return journal_name_parse(name, &n) || strcmp(name, "repair.new") == 0;
    if (strcmp(folder, SEGMENT_DIR) == 0)
        return segment_name_parse(name, &n) || strcmp(name, "reserve") == 0 ||
               ends_with(name, ".s.new");
    for (size_t i = 0; i < sizeof top / sizeof *top; i++)
        if (strcmp(name, top[i]) == 0)
            return true;
    return false;
}

static int doctor_see_name(void *ctx, const char *name)
{
    const struct folder *f = ctx;
    const char *slash = f->name[0] == '\0' ? "" : "/";
    if (strstr(name, ".damaged") != NULL)
        doctor_say(f->look, DOCTOR_NOTE, "%s%s%s was set aside by a repair; nothing needs it",
                   f->name, slash, name);
    else if (!is_ours(f->name, name))
        doctor_say(f->look, DOCTOR_NOTE, "%s%s%s is none of the store's files", f->name, slash,
                   name);
    return 0;
}

static void doctor_check_names(struct doctor_pass *l)
{
    static const char *const names[] = {"", JOURNAL_DIR, SEGMENT_DIR};
    for (size_t i = 0; i < 3; i++) {
        struct folder f = {l, names[i]};
        int err = vfs_list(l->doctor->vfs, names[i], doctor_see_name, &f);
        if (err != 0 && err != ERR_NOT_FOUND)
            doctor_say(l, DOCTOR_WRONG, "the files in %s/ cannot be listed", names[i]);
    }
}

static int doctor_add_size(void *ctx, const char *name)
{
    const struct folder *f = ctx;
    char path[ASIDE_MAX];
    struct file *file;
    uint64_t size = 0;
    if (!is_ours(f->name, name) || strcmp(name, "reserve") == 0 ||
        snprintf(path, sizeof path, "%s/%s", f->name, name) >= ASIDE_MAX ||
        vfs_open(f->look->doctor->vfs, path, VFS_READ, &file) != 0)
        return 0;
    if (vfs_size(file, &size) == 0)
        f->look->all_bytes += size;
    vfs_close(file);
    return 0;
}

/* What there is to be read. */
static void measure(struct doctor_pass *l)
{
    static const char *const names[] = {JOURNAL_DIR, SEGMENT_DIR};
    for (size_t i = 0; i < 2; i++) {
        struct folder f = {l, names[i]};
        vfs_list(l->doctor->vfs, names[i], doctor_add_size, &f);
    }
}

/* ---- a look ---- */

static void doctor_pass_deinit(struct doctor_pass *l)
{
    index_close(l->index);
    map_deinit(&l->lives);
    arena_deinit(&l->arena);
    buf_deinit(&l->footers);
    free(l->streams);
    free(l->rows);
    free(l->bad);
    free(l->ids);
}

static void doctor_count(const struct doctor_pass *l, struct doctor *d)
{
    d->streams = d->events = 0;
    for (size_t i = 0; i < l->n_streams; i++) {
        d->streams += !l->streams[i].deleted;
        d->events += l->streams[i].deleted ? 0 : l->streams[i].events - l->streams[i].first_event;
    }
    d->batches = l->batches;
    d->files = l->files;
    d->bytes = l->bytes;
    d->left = l->wrong;
}

/* doctor_pass_deinit is due, whatever the result. */
static int doctor_run_pass(struct doctor *d, const struct doctor_pass *before, struct buf *held,
                           struct doctor_pass *l, char *why, size_t size)
{
    *l = (struct doctor_pass){.doctor = d, .before = before, .held = held};
    map_init(&l->lives);
    measure(l);
    int err = segment_list(d->vfs, &l->ids, &l->n_ids);
    if (err != 0) {
        snprintf(why, size, "the segments cannot be listed: %s", err_text(err));
        return err;
    }
    err = doctor_check_index(l, why, size);
    if (err == 0)
        err = doctor_check_segments(l, why, size);
    if (err == 0) {
        say_forks(l);
        err = doctor_check_journal(l, why, size);
    }
    if (err == 0)
        doctor_check_names(l);
    doctor_count(l, d);
    return err;
}

/* ---- a repair ---- */

static bool needs_index(const struct doctor_pass *l)
{
    return l->footers.n > 0 || l->state != DOCTOR_INDEX_SOUND || l->stuck_at != 0 || l->twins ||
           (l->notes_lost && l->meta.base != 0) || (l->behind && (l->wrong > 0 || l->outdated));
}

static int repair_index(struct doctor_pass *l, char *why, size_t size)
{
    const uint64_t *ids = (const uint64_t *)(const void *)l->footers.p;
    int err = 0;
    for (size_t i = 0; i < l->footers.n / sizeof *ids && err == 0; i++)
        err = doctor_repair_footer(l, ids[i], why, size);
    return err == 0 ? doctor_repair_index(l, why, size) : err;
}

/* The journal comes after the index, which decides what of it counts. */
static int repair(struct doctor_pass *first, struct buf *held, char *why, size_t size)
{
    struct doctor *d = first->doctor;
    struct doctor_pass l = {0};
    int err = needs_index(first) ? repair_index(first, why, size) : 0;
    if (err == 0)
        err = doctor_run_pass(d, first, held, &l, why, size);
    bool again = err == 0 && l.journal_wrong;
    if (again)
        err = doctor_repair_journal(&l, why, size);
    if (again && err == 0) {
        doctor_pass_deinit(&l);
        held->n = 0;
        err = doctor_run_pass(d, first, held, &l, why, size);
    }
    doctor_pass_deinit(&l);
    return err;
}

int doctor_run(struct doctor *d, char *why, size_t size)
{
    struct doctor_pass l;
    struct buf held = {0};
    d->repaired = false;
    why[0] = '\0';
    int err = doctor_run_pass(d, NULL, NULL, &l, why, size);
    d->found = l.wrong;
    if (err == 0 && d->repair && (needs_index(&l) || l.journal_wrong)) {
        err = repair(&l, &held, why, size);
        if (err == 0)
            tell_held(d, &held);
    } else if (err == 0 && d->repair && l.copies > 0) {
        err = doctor_repair_forks(&l, why, size);
    }
    doctor_pass_deinit(&l);
    buf_deinit(&held);
    return err;
}
