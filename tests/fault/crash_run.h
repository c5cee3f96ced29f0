// SPDX-License-Identifier: Apache-2.0
/* crash_run.h -- operations on a store that may die at any time, and what may be answered to them.
 *
 * Changes go to the oracle in the order in which the store made them, as soon as they are
 * acknowledged. Meanwhile nobody may be answered by one that is not, and no reader may see it. */
#ifndef FAULT_CRASH_RUN_H
#define FAULT_CRASH_RUN_H

#include "fault/crash_store.h"
#include "fault/simfs.h"
#include "model/oracle.c"
#include "model/seeds.h"

#define EVENTS_MAX 8 /* of one append */
#define DOCS_MAX   2 /* of one operation */
#define READERS    4
#define COUNT(a)   (sizeof(a) / sizeof *(a))

static const struct str names[] = {STR_INIT("a"),   STR_INIT("a/1"), STR_INIT("b"),
                                   STR_INIT("b/2"), STR_INIT("c"),   STR_INIT("d")};
static const struct str types[] = {STR_INIT("text/plain"), STR_INIT("application/json")};
static const struct str producers[] = {STR_INIT("p"), STR_INIT("q")};
static const struct str keys[] = {STR_INIT("k"), STR_INIT("k/1"), STR_INIT("k/2"), STR_INIT("m")};

/* One who reads on from where he was, also after a crash. */
struct reader {
    size_t name;
    struct offset at; /* life 0: from the start */
    bool busy;
};

/* What a life that was removed had held, for those who still read it. */
struct grave {
    struct grave *next;
    uint64_t life;
    struct buf bytes;
};

struct run {
    struct rng rng;
    struct simfs *fs;
    struct sched sched;
    struct embedded_lanes lanes;
    struct store *store;
    char index[64];
    struct oracle oracle;  /* all that is acknowledged, but for what waits in changes */
    struct link changes;   /* of ops: made by the store, in order; not in the oracle yet */
    struct link under_way; /* of ops */
    struct link retries;   /* of ops that came to nothing when the power went */
    struct op *looked_up;  /* the remove that is being decided */
    struct grave *graves;
    struct reader readers[READERS];
    size_t n_under_way;
    uint64_t serial;       /* of operations */
    uint64_t n_changes;    /* made by the store so far */
    uint64_t commits_left; /* until the power goes at one; 0: it does not */
    bool cut_after_commit;
    bool alone;          /* one operation at a time: the oracle knows the answer to each */
    bool restless;       /* streams come and go, mostly as forks */
    bool bulky;          /* many appends are large */
    struct rng lateness; /* of the loop */
    bool faulty;         /* a call has been made to fail */
    bool stopped;
    bool failed;
    char verdict[512]; /* what was found to be wrong */
    uint64_t n_acks, n_kept, n_lost, n_duplicates, n_reads, n_refused, n_rebuilt, n_rewritten,
        n_merged, n_in_parts;
};

static struct run *the_run; /* crash_store.h's points have no context */

enum op_kind { OP_WRITE, OP_REMOVE, OP_PUT, OP_READ, OP_STAT, OP_LIST, OP_DOCS };

/* An operation with all it points to. */
struct op {
    struct link link;   /* in run->under_way or run->retries */
    struct link change; /* in run->changes */
    enum op_kind kind;
    struct run *run;
    union {
        struct store_write write;
        struct store_remove remove;
        struct store_put put;
        struct store_read read;
        struct store_stat stat;
        struct store_list list;
        struct store_docs docs;
    } u;
    struct stream_config config;
    uint32_t ends[EVENTS_MAX];
    struct doc_put puts[DOCS_MAX];
    struct block *block; /* of large data */
    struct arena arena;
    struct reader *reader;
    uint64_t judged_at; /* the store had made so many changes */
    uint64_t changed_at;
    bool applied, acked, done;
    bool told; /* somebody else was answered by it */
    bool kept; /* freed by who started it */
    int err;
};

static void blame(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void blame(struct run *r, const char *fmt, ...)
{
    va_list args;
    if (r->failed)
        return;
    r->failed = true;
    va_start(args, fmt);
    vsnprintf(r->verdict, sizeof r->verdict, fmt, args);
    va_end(args);
}

/* Whoever looks at it is late, often for what a turn has left: the rest waits for the next. */
static uint64_t crash_clock_ns(void)
{
    static uint64_t now_ns = 1;
    return now_ns += rng_below(&the_run->lateness, 2 * SCHED_TASKS_US) * 1000;
}

static void pass_turn(struct run *r)
{
    sched_look(&r->sched);
    sched_turn(&r->sched, r->sched.now_ms + SCHED_TICK_MS, r->sched.wall_ms + SCHED_TICK_MS);
    sched_end_turn(&r->sched);
    oracle_clock(&r->oracle, r->sched.wall_ms);
}

static void cut_power(struct run *r)
{
    simfs_cut_power_at(r->fs, 1);
    vfs_sync_dir(simfs_vfs(r->fs), "");
}

/* ---- what operations touch ---- */

static bool is_change(const struct op *op)
{
    return op->kind == OP_WRITE || op->kind == OP_REMOVE || op->kind == OP_PUT;
}

static struct str name_touched(const struct op *op)
{
    return op->kind == OP_WRITE    ? op->u.write.name
           : op->kind == OP_REMOVE ? op->u.remove.name
                                   : STR_NONE;
}

static const struct doc_put *puts_of(const struct op *op, size_t *n)
{
    *n = op->kind == OP_WRITE ? op->u.write.n_docs : op->kind == OP_PUT ? op->u.put.n_docs : 0;
    return op->puts;
}

static bool puts_key(const struct op *op, struct str key)
{
    size_t n;
    const struct doc_put *puts = puts_of(op, &n);
    for (size_t i = 0; i < n; i++)
        if (str_eq(puts[i].key, key))
            return true;
    return false;
}

static const char *describe(const struct op *op)
{
    static char text[128];
    struct str name = name_touched(op);
    const struct store_write *w = &op->u.write;
    const char *what = op->kind == OP_REMOVE  ? "remove"
                       : op->kind == OP_PUT   ? "put"
                       : op->kind != OP_WRITE ? "read"
                       : w->create == NULL    ? "append"
                       : w->create->fork_of.n ? "fork"
                                              : "create";
    snprintf(text, sizeof text, "%s '%.*s' (change %llu)", what, (int)name.n, name.p,
             (unsigned long long)op->changed_at);
    return text;
}

/* ---- what the store tells ---- */

static void note_judged(const struct store_write *w)
{
    struct op *op = container_of(w, struct op, u.write);
    op->judged_at = the_run->n_changes;
}

static void note_change(struct op *op)
{
    struct run *r = op->run;
    op->applied = true;
    op->changed_at = ++r->n_changes;
    list_push(&r->changes, &op->change);
}

static void note_written(struct store_write *w)
{
    struct op *op = container_of(w, struct op, u.write);
    w->info.content_type = arena_dup(&op->arena, w->info.content_type);
    the_run->n_in_parts += embedded_of(w->call.store)->large.in_parts;
    note_change(op);
}

/* Each operation has its own copy of its texts. */
static void note_looked_up(struct str name)
{
    struct run *r = the_run;
    list_each (l, &r->under_way) {
        struct op *op = list_item(l, struct op, link);
        if (op->kind == OP_REMOVE && op->u.remove.name.p == name.p) {
            r->looked_up = op;
            op->judged_at = r->n_changes;
        }
    }
}

static void note_removed(void)
{
    note_change(the_run->looked_up);
}

static struct op *put_with(const struct doc_put *docs)
{
    list_each (l, &the_run->under_way) {
        struct op *op = list_item(l, struct op, link);
        if (op->kind == OP_PUT && op->puts == docs)
            return op;
    }
    return NULL;
}

static void note_checked(const struct doc_put *docs)
{
    put_with(docs)->judged_at = the_run->n_changes;
}

static void note_put(const struct doc_put *docs)
{
    note_change(put_with(docs));
}

static int may_commit(void)
{
    struct run *r = the_run;
    if (r->commits_left == 1 && !r->cut_after_commit)
        cut_power(r);
    return simfs_is_off(r->fs)                           ? ERR_IO
           : r->store != NULL && rng_one_in(&r->rng, 10) ? ERR_FULL
                                                         : 0;
}

static void note_committed(void)
{
    struct run *r = the_run;
    if (r->commits_left > 0 && --r->commits_left == 0)
        cut_power(r);
}

/* ---- the oracle learns ---- */

static void op_free(struct op *op)
{
    list_remove(&op->link);
    list_remove(&op->change);
    block_unref(op->block);
    arena_deinit(&op->arena);
    free(op);
}

static struct oracle_stream *stream_by_life(const struct oracle *o, uint64_t life)
{
    for (struct oracle_stream *s = o->streams; s != NULL; s = s->next)
        if (s->life == life)
            return s;
    return NULL;
}

static void bury(struct run *r, struct str name)
{
    const struct oracle_stream *s = oracle_find(&r->oracle, name);
    if (s == NULL)
        return;
    struct grave *g = mem_zalloc(sizeof *g);
    g->life = s->life;
    buf_put(&g->bytes, buf_str(&s->bytes));
    g->next = r->graves;
    r->graves = g;
}

/* The operation took effect next. */
static const char *take_in(struct run *r, struct op *op, int err)
{
    switch (op->kind) {
    case OP_WRITE: return oracle_write(&r->oracle, &op->u.write, err);
    case OP_REMOVE:
        if (err == 0)
            bury(r, op->u.remove.name);
        return oracle_remove(&r->oracle, &op->u.remove, err);
    case OP_PUT: return oracle_put(&r->oracle, &op->u.put, err);
    case OP_READ: return oracle_read(&r->oracle, &op->u.read, err);
    case OP_STAT: return oracle_stat(&r->oracle, &op->u.stat, err);
    case OP_LIST: return oracle_list(&r->oracle, &op->u.list, err);
    case OP_DOCS: return oracle_docs(&r->oracle, &op->u.docs, err);
    }
    return NULL;
}

static void take_in_or_blame(struct run *r, struct op *op, int err)
{
    const char *why = take_in(r, op, err);
    if (why != NULL)
        blame(r, "%s: %s", describe(op), why);
}

static void take_in_acknowledged(struct run *r)
{
    while (!list_empty(&r->changes)) {
        struct op *op = list_item(r->changes.next, struct op, change);
        if (!op->acked || !op->done)
            break;
        take_in_or_blame(r, op, 0);
        op_free(op);
    }
}

/* ---- answers ---- */

/* Does an answer rest on a change that is not acknowledged itself? */
static void check_answer(struct op *op)
{
    struct run *r = op->run;
    struct str name = name_touched(op);
    list_each (l, &r->changes) {
        struct op *change = list_item(l, struct op, change);
        if (change->acked || change->changed_at > op->judged_at)
            continue;
        if (name.n > 0 && str_eq(name_touched(change), name))
            blame(r, "'%.*s' is answered %s because of a change that is not durable: %s",
                  (int)name.n, name.p, op->err == 0 ? "0" : err_name(op->err), describe(change));
        for (size_t i = 0; op->err == ERR_VERSION && i < DOCS_MAX; i++)
            if (op->puts[i].key.n > 0 && puts_key(change, op->puts[i].key))
                blame(r, "a version is refused because of a change that is not durable: %s",
                      describe(change));
    }
}

static void finish(struct op *op, int err)
{
    struct run *r = op->run;
    op->err = err;
    op->done = true;
    r->n_under_way--;
    list_remove(&op->link);
    if (op->applied && err == 0) {
        op->acked = true;
        r->n_acks++;
        take_in_acknowledged(r);
        return;
    }
    if (op->applied)
        return; /* the crash decides */
    bool refused = err == ERR_IO || err == ERR_BUSY || err == ERR_FULL;
    r->n_refused += err == ERR_BUSY || err == ERR_FULL;
    if (r->alone && !refused)
        take_in_or_blame(r, op, err);
    else if (!refused)
        check_answer(op);
    if (err == 0 && op->kind == OP_WRITE && op->u.write.duplicate)
        r->n_duplicates++;
    if (err == ERR_IO && !simfs_is_off(r->fs) && !r->faulty)
        blame(r, "%s fails on a disk that works", describe(op));
    if (err == ERR_IO)
        list_push(&r->retries, &op->link);
    else
        op_free(op);
}

static void on_written(struct store_write *w, int err)
{
    struct op *op = container_of(w, struct op, u.write);
    if (w->info.content_type.n > 0)
        w->info.content_type = arena_dup(&op->arena, w->info.content_type);
    finish(op, err);
}

static void on_removed(struct store_remove *x, int err)
{
    finish(container_of(x, struct op, u.remove), err);
}

static void on_put(struct store_put *p, int err)
{
    finish(container_of(p, struct op, u.put), err);
}

/* ---- readers ---- */

static struct str content_of(const struct run *r, uint64_t life)
{
    const struct oracle_stream *s = stream_by_life(&r->oracle, life);
    if (s != NULL)
        return str_of(s->bytes.n > 0 ? s->bytes.p : "", s->bytes.n);
    for (const struct grave *g = r->graves; g != NULL; g = g->next)
        if (g->life == life)
            return str_of(g->bytes.n > 0 ? g->bytes.p : "", g->bytes.n);
    return STR_NONE;
}

/* Nobody sees what is not acknowledged. */
static void check_seen(struct run *r, const struct store_read *read)
{
    struct str content = content_of(r, read->info.life);
    uint64_t at = read->start;
    if (content.p == NULL || read->info.tail > content.n || read->next > content.n) {
        blame(r, "'%.*s' is shown up to %llu, and only %llu is acknowledged", (int)read->name.n,
              read->name.p, (unsigned long long)read->info.tail, (unsigned long long)content.n);
        return;
    }
    for (uint32_t i = 0; i < read->n_slices; i++) {
        struct str got = read->slices[i].bytes;
        if (got.n > content.n - at || memcmp(got.p, content.p + at, got.n) != 0) {
            blame(r, "a reader is shown other bytes");
            return;
        }
        at += got.n;
    }
    if (at != read->next)
        blame(r, "a reader is shown less than he is told");
}

/* Who was told that a stream is gone must not find it again: the remove has to stay. One that came
 * after the question may be unknown to the answer. */
static void note_told(struct run *r, const struct op *query)
{
    list_each (l, &r->changes) {
        struct op *op = list_item(l, struct op, change);
        if (op->kind == OP_REMOVE && op->changed_at <= query->judged_at &&
            str_eq(op->u.remove.name, query->u.read.name)) {
            op->told = true;
            return;
        }
    }
}

/* It found nothing, by a remove that will not become durable. */
static bool is_hidden(struct run *r, const struct store_read *read)
{
    return embedded_error(r->store) != 0 && read->info.life == 0;
}

static void check_read_error(struct run *r, const struct op *op, int err)
{
    const struct store_read *read = &op->u.read;
    const struct oracle_stream *s = oracle_find(&r->oracle, read->name);
    if (s != NULL && (err == ERR_NOT_FOUND || err == ERR_DELETED))
        note_told(r, op);
    if (err == ERR_NOT_FOUND || err == ERR_DELETED ||
        (err == ERR_IO && (simfs_is_off(r->fs) || is_hidden(r, read))))
        return;
    if (err == ERR_GAP &&
        (s == NULL || s->life != read->at.life || read->gap.reason != GAP_UNKNOWN))
        return; /* another life of the name */
    blame(r, "a reader who goes on is answered %s", err_name(err));
}

static void finish_query(struct op *op, int err)
{
    op->err = err;
    op->done = true;
    op->run->n_under_way--;
    list_remove(&op->link);
    if (!op->kept)
        op_free(op);
}

static void on_read(struct store_read *read, int err)
{
    struct op *op = container_of(read, struct op, u.read);
    struct run *r = op->run;
    struct reader *reader = op->reader;
    if (reader == NULL) {
        take_in_or_blame(r, op, err);
    } else {
        if (err == 0)
            check_seen(r, read);
        else
            check_read_error(r, op, err);
        reader->at = err == 0 ? (struct offset){read->info.life, read->next} : (struct offset){0};
        reader->busy = false;
    }
    if (err == 0)
        store_read_release(read);
    r->n_reads++;
    finish_query(op, err);
}

static void check_info_shown(struct run *r, const struct stream_info *info)
{
    struct str content = content_of(r, info->life);
    const struct oracle_stream *s = stream_by_life(&r->oracle, info->life);
    if (content.p == NULL || info->tail > content.n)
        blame(r, "life %llu is shown up to %llu, and only %llu is acknowledged",
              (unsigned long long)info->life, (unsigned long long)info->tail,
              (unsigned long long)content.n);
    if (s != NULL && info->end != s->end && info->end != END_NONE)
        blame(r, "a stream is shown as closed, and that is not acknowledged");
}

static void on_stat(struct store_stat *st, int err)
{
    struct op *op = container_of(st, struct op, u.stat);
    if (op->kept)
        take_in_or_blame(op->run, op, err);
    else if (err == 0)
        check_info_shown(op->run, &st->info);
    finish_query(op, err);
}

/* Of one that is kept the rows stay. */
static void on_list(struct store_list *l, int err)
{
    struct op *op = container_of(l, struct op, u.list);
    struct store_row *rows = arena_alloc(&op->arena, l->n_rows * sizeof *rows);
    for (size_t i = 0; i < l->n_rows; i++) {
        rows[i] = l->rows[i];
        rows[i].name = arena_dup(&op->arena, rows[i].name);
        rows[i].info.content_type = arena_dup(&op->arena, rows[i].info.content_type);
        if (!op->kept)
            check_info_shown(op->run, &rows[i].info);
    }
    l->rows = rows;
    finish_query(op, err);
}

static void check_doc_shown(struct op *op, const struct doc_row *row)
{
    const struct oracle_doc *d = *doc_at(&op->run->oracle, row->key);
    if (d != NULL && d->version == row->version && str_eq(d->value, row->value))
        return;
    list_each (l, &op->run->changes) {
        struct op *change = list_item(l, struct op, change);
        size_t n;
        const struct doc_put *puts = puts_of(change, &n);
        for (size_t i = 0; i < n; i++)
            if (str_eq(puts[i].key, row->key) && str_eq(puts[i].value, row->value))
                blame(op->run, "a document is shown that is not durable: %s", describe(change));
    }
}

static void on_docs(struct store_docs *d, int err)
{
    struct op *op = container_of(d, struct op, u.docs);
    struct doc_row *rows = arena_alloc(&op->arena, d->n_rows * sizeof *rows);
    for (size_t i = 0; err == 0 && i < d->n_rows; i++) {
        rows[i] = (struct doc_row){arena_dup(&op->arena, d->rows[i].key),
                                   arena_dup(&op->arena, d->rows[i].value), d->rows[i].version};
        if (!op->kept)
            check_doc_shown(op, &rows[i]);
    }
    d->rows = rows;
    finish_query(op, err);
}

#endif
