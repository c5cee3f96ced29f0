// SPDX-License-Identifier: Apache-2.0
/* The embedded store against a disk that dies, life after life.
 *
 * One seed is one disk with several lives of a server on it. In each life random operations run,
 * many at once, beside checkpoints; then the power goes in the middle of some call, at a commit of
 * the index or during recovery, or the process dies, or it stops in good order. The store tells the
 * test in which order it made its changes (crash_store.h), and the oracle works out what each
 * prefix of them comes to: after the crash the store must hold exactly what one of them says, and
 * that one must have everything that was acknowledged. So nothing is lost, stored twice or half
 * there, and what was removed stays so. Before the crash, nobody may be answered by or read what is
 * not acknowledged yet. After it, clients try again what they were not told about: the oracle knows
 * which of that has to be recognised.
 *
 * Faults that can be switched on show that all of that can be found. See model/seeds.h for how to
 * repeat a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault/crash_store.h"
#include "fault/simfs.h"
#include "fault/simlane.h"
#include "model/oracle.c"
#include "model/seeds.h"

#include <unistd.h>

#define SEEDS        200
#define SEEDS_BROKEN 200
#define LIVES_MAX    5
#define STEPS_MAX    150
#define UNDER_WAY    40  /* operations at once */
#define CHANGES_MAX  600 /* the power goes after at most so many calls that change something */
#define COMMITS_MAX  6   /* ... or at one of the first commits of the index */
#define EVENTS_MAX   8   /* of one append */
#define DOCS_MAX     2   /* of one operation */
#define READERS      4
#define TURNS_MAX    5000
#define START_WALL   1700000000000
#define LONG_TTL_S   1000000
#define COUNT(a)     (sizeof(a) / sizeof *(a))

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
    bool alone;  /* one operation at a time: the oracle knows the answer to each */
    bool faulty; /* a call has been made to fail */
    bool stopped;
    bool failed;
    char verdict[512]; /* what was found to be wrong */
    uint64_t n_acks, n_kept, n_lost, n_duplicates, n_reads;
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
    struct arena arena;
    struct reader *reader;
    uint64_t judged_at; /* the store had made so many changes */
    uint64_t changed_at;
    bool applied, acked, done;
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

static void pass_turn(struct run *r)
{
    sched_turn(&r->sched, r->sched.now_ms + SCHED_TICK_MS, r->sched.wall_ms + SCHED_TICK_MS);
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

static bool may_commit(void)
{
    struct run *r = the_run;
    if (r->commits_left == 1 && !r->cut_after_commit)
        cut_power(r);
    return !simfs_is_off(r->fs);
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

static void check_read_error(struct run *r, const struct store_read *read, int err)
{
    const struct oracle_stream *s = oracle_find(&r->oracle, read->name);
    if (err == ERR_NOT_FOUND || err == ERR_DELETED || (err == ERR_IO && simfs_is_off(r->fs)))
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
            check_read_error(r, read, err);
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

/* ---- starting them ---- */

static struct op *op_new(struct run *r, enum op_kind kind)
{
    struct op *op = mem_zalloc(sizeof *op);
    op->kind = kind;
    op->run = r;
    list_init(&op->link);
    list_init(&op->change);
    return op;
}

static void start(struct op *op)
{
    struct run *r = op->run;
    list_remove(&op->link);
    list_remove(&op->change);
    op->applied = op->acked = op->done = false;
    list_push(&r->under_way, &op->link);
    r->n_under_way++;
    switch (op->kind) {
    case OP_WRITE:
        op->u.write.done = on_written;
        store_write(r->store, &op->u.write);
        break;
    case OP_REMOVE:
        op->u.remove.done = on_removed;
        store_remove(r->store, &op->u.remove);
        break;
    case OP_PUT:
        op->u.put.done = on_put;
        store_put(r->store, &op->u.put);
        break;
    case OP_READ:
        op->u.read.done = on_read;
        store_read(r->store, &op->u.read);
        break;
    case OP_STAT:
        op->u.stat.done = on_stat;
        store_stat(r->store, &op->u.stat);
        break;
    case OP_LIST:
        op->u.list.done = on_list;
        store_list(r->store, &op->u.list);
        break;
    case OP_DOCS:
        op->u.docs.done = on_docs;
        store_docs(r->store, &op->u.docs);
        break;
    }
}

static void wait_for_all(struct run *r)
{
    for (int i = 0; i < TURNS_MAX && r->n_under_way > 0; i++)
        pass_turn(r);
    if (r->n_under_way == 0)
        return;
    fprintf(stderr, "%zu operations are never answered\n", r->n_under_way);
    abort(); /* there is no way to free them */
}

/* ---- making operations up ---- */

static struct str own_name(struct op *op)
{
    return arena_dup(&op->arena, names[rng_below(&op->run->rng, COUNT(names))]);
}

static size_t draw_size(struct rng *rng)
{
    if (rng_one_in(rng, 150))
        return rng_between(rng, 20000, 70000);
    return rng_one_in(rng, 8) ? rng_between(rng, 500, 4000) : rng_between(rng, 1, 40);
}

static void add_events_to(struct op *op)
{
    struct run *r = op->run;
    struct store_write *w = &op->u.write;
    uint32_t n = rng_one_in(&r->rng, 3) ? (uint32_t)rng_between(&r->rng, 2, EVENTS_MAX) : 1;
    uint32_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        op->ends[i] = total += (uint32_t)draw_size(&r->rng);
    char *bytes = arena_alloc(&op->arena, total);
    struct rng fill = {++r->serial};
    for (uint32_t i = 0; i < total; i++)
        bytes[i] = (char)rng_next(&fill);
    w->data = str_of(bytes, total);
    w->n_events = n;
    w->ends = n == 1 ? NULL : op->ends;
}

static void close_with(struct op *op)
{
    op->u.write.close = true;
    op->u.write.end = (enum end_reason)rng_between(&op->run->rng, END_COMPLETED, END_ORPHANED);
}

/* As a client does that has several requests under way. */
static void add_claim_to(struct op *op)
{
    struct run *r = op->run;
    struct producer_claim *c = &op->u.write.claim;
    const struct oracle_stream *s = oracle_find(&r->oracle, op->u.write.name);
    c->id = producers[rng_below(&r->rng, COUNT(producers))];
    const struct producer_state *p = s == NULL ? NULL : oracle_producer(s, c->id);
    c->epoch = p == NULL ? 0 : p->epoch;
    c->seq = p == NULL ? 0 : p->seq + 1;
    list_each (l, &r->under_way) {
        const struct op *other = list_item(l, struct op, link);
        const struct producer_claim *its = &other->u.write.claim;
        if (other->kind != OP_WRITE || !str_eq(its->id, c->id) ||
            !str_eq(other->u.write.name, op->u.write.name) || its->epoch < c->epoch)
            continue;
        c->epoch = its->epoch;
        c->seq = its->seq + 1;
    }
    if (rng_one_in(&r->rng, 15)) {
        c->epoch++;
        c->seq = 0;
    } else if (c->seq > 0 && rng_one_in(&r->rng, 10)) {
        c->seq--;
    }
}

static uint64_t version_soon(const struct run *r, struct str key)
{
    uint64_t version = oracle_doc_version(&r->oracle, key);
    list_each (l, &r->under_way) {
        const struct op *op = list_item(l, struct op, link);
        size_t n;
        const struct doc_put *puts = puts_of(op, &n);
        for (size_t i = 0; i < n; i++)
            if (str_eq(puts[i].key, key))
                version = puts[i].value.p == NULL ? 0 : DOC_NEXT(puts[i].expect_version);
    }
    return version;
}

static size_t add_puts_to(struct op *op)
{
    struct run *r = op->run;
    size_t n = rng_between(&r->rng, 1, DOCS_MAX), first = rng_below(&r->rng, COUNT(keys));
    for (size_t i = 0; i < n; i++) {
        struct doc_put *p = &op->puts[i];
        p->key = keys[(first + i) % COUNT(keys)];
        p->expect_version = version_soon(r, p->key);
        if (rng_one_in(&r->rng, 10))
            p->expect_version ^= 1;
        p->value = arena_printf(&op->arena, "v%llu", (unsigned long long)++r->serial);
        if (rng_one_in(&r->rng, 5))
            p->value = STR_NONE;
    }
    return n;
}

static void make_append(struct op *op)
{
    struct rng *rng = &op->run->rng;
    struct store_write *w = &op->u.write;
    if (rng_percent(rng, 97))
        add_events_to(op);
    if (w->data.n == 0 || rng_one_in(rng, 40))
        close_with(op);
    if (rng_percent(rng, 50))
        add_claim_to(op);
    if (rng_one_in(rng, 8))
        w->seq = arena_printf(&op->arena, "%010llu", (unsigned long long)++op->run->serial);
    if (rng_one_in(rng, 10)) {
        w->docs = op->puts;
        w->n_docs = add_puts_to(op);
    }
}

static void make_fork(struct op *op)
{
    struct run *r = op->run;
    struct stream_config *c = &op->config;
    const struct oracle_stream *s = NULL;
    for (int tries = 0; tries < 6 && s == NULL; tries++)
        s = oracle_find(&r->oracle, names[rng_below(&r->rng, COUNT(names))]);
    if (s == NULL || str_eq(s->name->text, op->u.write.name))
        return;
    c->fork_of = arena_dup(&op->arena, s->name->text);
    c->content_type = STR_NONE;
    c->fork_at_tail = rng_one_in(&r->rng, 3);
    if (c->fork_at_tail)
        return;
    c->fork_at = (struct offset){s->life, event_start(s, rng_below(&r->rng, s->n_events + 1))};
    if (rng_one_in(&r->rng, 4))
        c->fork_sub = rng_between(&r->rng, 1, 3);
}

static void make_create(struct op *op)
{
    struct rng *rng = &op->run->rng;
    struct store_write *w = &op->u.write;
    w->create = &op->config;
    op->config = (struct stream_config){.content_type = types[rng_below(rng, COUNT(types))],
                                        .ttl_s = STORE_TTL_NONE,
                                        .expires_ms = STORE_TTL_NONE};
    if (rng_one_in(rng, 4))
        op->config.ttl_s = LONG_TTL_S;
    else if (rng_one_in(rng, 4))
        op->config.expires_ms = START_WALL + LONG_TTL_S * 1000ll;
    if (rng_one_in(rng, 3))
        make_fork(op);
    if (rng_percent(rng, 40))
        add_events_to(op);
    if (rng_one_in(rng, 5))
        w->claim = (struct producer_claim){producers[0], rng_below(rng, 2), 0};
    if (rng_one_in(rng, 20))
        close_with(op);
    if (rng_one_in(rng, 8)) {
        w->docs = op->puts;
        w->n_docs = add_puts_to(op);
    }
}

static void start_write(struct run *r)
{
    struct op *op = op_new(r, OP_WRITE);
    op->u.write.name = own_name(op);
    bool there = oracle_find(&r->oracle, op->u.write.name) != NULL;
    if (rng_percent(&r->rng, there ? 6 : 70))
        make_create(op);
    else
        make_append(op);
    start(op);
}

static void start_remove(struct run *r)
{
    struct op *op = op_new(r, OP_REMOVE);
    op->u.remove.name = own_name(op);
    start(op);
    if (rng_one_in(&r->rng, 2)) { /* he whose answer is late asks again */
        struct op *again = op_new(r, OP_REMOVE);
        again->u.remove.name = arena_dup(&again->arena, op->u.remove.name);
        start(again);
    }
}

static void start_put(struct run *r)
{
    struct op *op = op_new(r, OP_PUT);
    op->u.put.docs = op->puts;
    op->u.put.n_docs = add_puts_to(op);
    start(op);
}

static void start_read(struct run *r)
{
    struct reader *reader = &r->readers[rng_below(&r->rng, READERS)];
    if (reader->busy)
        return;
    struct op *op = op_new(r, OP_READ);
    struct store_read *read = &op->u.read;
    if (reader->at.life == 0)
        reader->name = rng_below(&r->rng, COUNT(names));
    read->name = names[reader->name];
    read->from = reader->at.life == 0 ? READ_START : READ_AT;
    read->at = reader->at;
    read->max_bytes = rng_between(&r->rng, 1, 20000);
    read->touch = rng_one_in(&r->rng, 2);
    op->reader = reader;
    reader->busy = true;
    start(op);
}

static void start_look(struct run *r)
{
    static const enum op_kind kinds[] = {OP_STAT, OP_LIST, OP_DOCS};
    struct op *op = op_new(r, kinds[rng_below(&r->rng, COUNT(kinds))]);
    if (op->kind == OP_STAT)
        op->u.stat.name = own_name(op);
    else if (op->kind == OP_LIST)
        op->u.list.limit = SIZE_MAX;
    else
        op->u.docs.limit = SIZE_MAX;
    start(op);
}

static void start_something(struct run *r)
{
    uint64_t at = rng_below(&r->rng, 100);
    if (r->n_under_way >= UNDER_WAY)
        return;
    if (at < 62)
        start_write(r);
    else if (at < 65)
        start_remove(r);
    else if (at < 71)
        start_put(r);
    else if (at < 93)
        start_read(r);
    else
        start_look(r);
}

/* ---- after a crash ---- */

static struct op *perform(struct op *op)
{
    op->kept = !is_change(op);
    start(op);
    wait_for_all(op->run);
    return op;
}

/* Does the oracle say what the store shows? */
static const char *compare(struct run *r, const struct op *list, const struct op *docs)
{
    const char *why = oracle_list(&r->oracle, &list->u.list, list->err);
    return why != NULL ? why : oracle_docs(&r->oracle, &docs->u.docs, docs->err);
}

static size_t last_acknowledged(const struct run *r)
{
    size_t n = 0, at = 0;
    list_each (l, (struct link *)&r->changes) {
        at++;
        if (list_item(l, struct op, change)->acked)
            n = at;
    }
    return n;
}

/* Finds how many of the changes that were not all acknowledged are there; the oracle takes them in,
 * and all of them are tried again. */
static void find_end(struct run *r)
{
    struct op *list = op_new(r, OP_LIST), *docs = op_new(r, OP_DOCS);
    list->u.list.limit = docs->u.docs.limit = SIZE_MAX;
    perform(list);
    perform(docs);
    size_t must = last_acknowledged(r), n = 0;
    char first[300] = "";
    const char *why;
    while ((why = compare(r, list, docs)) != NULL || n < must) {
        if (first[0] == '\0' && n >= must)
            snprintf(first, sizeof first, "%s", why);
        if (list_empty(&r->changes)) {
            blame(r, "what is there is what no prefix of the changes comes to: %s", first);
            break;
        }
        struct op *op = list_item(r->changes.next, struct op, change);
        take_in_or_blame(r, op, 0);
        list_remove(&op->change);
        if (op->acked)
            op_free(op);
        else
            list_push(&r->retries, &op->link);
        r->n_kept++;
        n++;
    }
    while (!list_empty(&r->changes)) {
        struct op *op = list_item(r->changes.next, struct op, change);
        list_remove(&op->change);
        list_push(&r->retries, &op->link);
        r->n_lost++;
    }
    op_free(list);
    op_free(docs);
}

static void read_whole(struct run *r, struct str name)
{
    struct offset at = {0};
    bool more = true;
    while (more && !r->failed) {
        struct op *op = op_new(r, OP_READ);
        op->u.read = (struct store_read){.name = name,
                                         .from = READ_AT,
                                         .at = at,
                                         .max_bytes = rng_between(&r->rng, 1000, 100000)};
        perform(op);
        more = op->err == 0 && op->u.read.next < op->u.read.info.tail;
        at = (struct offset){op->u.read.info.life, op->u.read.next};
        op_free(op);
    }
}

/* Streams in full, those that are not there too. */
static void check_streams(struct run *r)
{
    for (size_t i = 0; i < COUNT(names); i++) {
        struct op *op = op_new(r, OP_STAT);
        op->u.stat.name = names[i];
        op_free(perform(op));
        read_whole(r, names[i]);
    }
}

/* The last request of each producer, again. */
static void check_producers(struct run *r, struct str name)
{
    const struct oracle_stream *s = oracle_find(&r->oracle, name);
    for (size_t i = 0; s != NULL && s->end == END_NONE && i < s->n_producers && !r->failed; i++) {
        struct op *op = op_new(r, OP_WRITE);
        struct store_write *w = &op->u.write;
        w->name = arena_dup(&op->arena, name);
        w->data = STR("again");
        w->claim = (struct producer_claim){s->producers[i].id, s->producers[i].state.epoch,
                                           s->producers[i].state.seq};
        perform(op);
    }
}

static void check_seq(struct run *r, struct str name)
{
    const struct oracle_stream *s = oracle_find(&r->oracle, name);
    if (s == NULL || s->last_seq.p == NULL || s->end != END_NONE)
        return;
    struct op *op = op_new(r, OP_WRITE);
    op->u.write.name = arena_dup(&op->arena, name);
    op->u.write.data = STR("again");
    op->u.write.seq = arena_dup(&op->arena, s->last_seq);
    perform(op);
}

/* A client that got no answer asks again, if that can do no harm; and some whom it harms. */
static bool is_retried(struct run *r, const struct op *op)
{
    return op->kind != OP_WRITE || op->u.write.claim.id.n > 0 || op->u.write.create != NULL ||
           rng_one_in(&r->rng, 4);
}

static void retry_all(struct run *r)
{
    while (!list_empty(&r->retries)) {
        struct op *op = list_item(r->retries.next, struct op, link);
        if (r->failed || !is_retried(r, op))
            op_free(op);
        else
            perform(op);
    }
}

static void check_all(struct run *r)
{
    r->alone = true;
    find_end(r);
    if (!r->failed)
        check_streams(r);
    for (size_t i = 0; i < COUNT(names) && !r->failed; i++) {
        check_producers(r, names[i]);
        check_seq(r, names[i]);
    }
    retry_all(r);
    r->alone = false;
}

/* ---- a life ---- */

static void open_store(struct run *r)
{
    static const uint64_t file_bytes[] = {JOURNAL_FILE_MIN, 96 * 1024, 160 * 1024};
    unsigned turns = (unsigned)rng_between(&r->rng, 0, 3);
    struct embedded_config config = EMBEDDED_DEFAULTS;
    char why[400];
    config.journal.file_bytes = file_bytes[rng_below(&r->rng, COUNT(file_bytes))];
    config.checkpoint_bytes = rng_between(&r->rng, 1, 40) * 1024;
    config.checkpoint_age_ms = 1000;
    config.unrested_max = config.checkpoint_bytes * rng_between(&r->rng, 2, 100) + 100000;
    config.cache_bytes = 16 * 1024;
    config.index_sync = false;
    r->lanes = (struct embedded_lanes){simlane_new(&r->sched, rng_next(&r->rng), turns),
                                       simlane_new(&r->sched, rng_next(&r->rng), turns * 2),
                                       simlane_new(&r->sched, rng_next(&r->rng), turns * 5),
                                       simlane_new(&r->sched, rng_next(&r->rng), turns)};
    r->store = embedded_open(&r->sched, crash_disk(simfs_vfs(r->fs)), r->index, &r->lanes, &config,
                             why, sizeof why);
    if (r->store == NULL && !simfs_is_off(r->fs))
        blame(r, "cannot open: %s", why);
}

static void note_stopped(void *ctx)
{
    ((struct run *)ctx)->stopped = true;
}

static void close_store(struct run *r)
{
    r->stopped = false;
    if (r->store != NULL) {
        store_stop(r->store, note_stopped, r);
        for (int i = 0; i < TURNS_MAX && !r->stopped; i++)
            pass_turn(r);
        assert(r->stopped);
        store_free(r->store);
        r->store = NULL;
    }
    lane_free(r->lanes.journal);
    lane_free(r->lanes.prepare);
    lane_free(r->lanes.rest);
    lane_free(r->lanes.read);
}

/* The power may go while the store is being opened, any number of times. */
static void recover(struct run *r)
{
    while (rng_one_in(&r->rng, 3) && !r->failed) {
        simfs_cut_power_at(r->fs, rng_between(&r->rng, 1, 30));
        open_store(r);
        if (r->store != NULL && !simfs_is_off(r->fs))
            cut_power(r);
        close_store(r);
        if (rng_one_in(&r->rng, 4))
            simfs_kill(r->fs);
        else
            simfs_crash(r->fs, rng_next(&r->rng));
    }
    open_store(r);
    if (r->store != NULL)
        check_all(r);
}

static void draw_end(struct run *r)
{
    switch (rng_below(&r->rng, 8)) {
    case 0: /* a sync that fails, and soon after it the power does */
        simfs_fail(r->fs, SIMFS_SYNC, rng_between(&r->rng, 1, 20), ERR_IO);
        r->faulty = true;
        break;
    case 1: break;
    case 2:
        r->commits_left = rng_between(&r->rng, 1, COMMITS_MAX);
        r->cut_after_commit = rng_one_in(&r->rng, 2);
        break;
    default: simfs_cut_power_at(r->fs, rng_between(&r->rng, 1, CHANGES_MAX)); break;
    }
}

static void live(struct run *r)
{
    bool orderly = rng_one_in(&r->rng, 6), killed = rng_one_in(&r->rng, 4);
    draw_end(r);
    for (uint64_t n = rng_between(&r->rng, 5, STEPS_MAX); n > 0 && !simfs_is_off(r->fs); n--) {
        for (uint64_t more = rng_below(&r->rng, 8); more > 0; more--)
            start_something(r);
        if (rng_one_in(&r->rng, 15))
            embedded_checkpoint(r->store);
        for (uint64_t turns = rng_below(&r->rng, 3); turns > 0; turns--)
            pass_turn(r);
    }
    r->commits_left = 0;
    if (!orderly && !simfs_is_off(r->fs))
        cut_power(r);
    wait_for_all(r);
    close_store(r);
    r->faulty = false;
    if (killed)
        simfs_kill(r->fs);
    else
        simfs_crash(r->fs, rng_next(&r->rng));
}

static struct run *run_new(const struct rng *rng)
{
    struct run *r = mem_zalloc(sizeof *r);
    r->rng = *rng;
    r->fs = simfs_new(rng_next(&r->rng));
    list_init(&r->changes);
    list_init(&r->under_way);
    list_init(&r->retries);
    sched_init(&r->sched, 0, START_WALL);
    oracle_init(&r->oracle);
    oracle_clock(&r->oracle, START_WALL);
    snprintf(r->index, sizeof r->index, "/tmp/tidemark-crash-XXXXXX");
    int fd = mkstemp(r->index);
    assert(fd >= 0);
    close(fd);
    unlink(r->index);
    the_run = r;
    return r;
}

static void free_ops(struct link *changes)
{
    while (!list_empty(changes))
        op_free(list_item(changes->next, struct op, change));
}

static void run_free(struct run *r)
{
    char lock[80];
    free_ops(&r->changes);
    while (!list_empty(&r->retries))
        op_free(list_item(r->retries.next, struct op, link));
    for (struct grave *g; (g = r->graves) != NULL;) {
        r->graves = g->next;
        buf_deinit(&g->bytes);
        free(g);
    }
    oracle_deinit(&r->oracle);
    simfs_free(r->fs);
    unlink(r->index);
    snprintf(lock, sizeof lock, "%s-lock", r->index);
    unlink(lock);
    buf_deinit(&crash_second);
    free(r);
    the_run = NULL;
}

static struct run *run_seed(const struct rng *rng)
{
    struct run *r = run_new(rng);
    open_store(r);
    for (uint64_t lives = rng_between(&r->rng, 2, LIVES_MAX); lives > 0 && !r->failed; lives--) {
        live(r);
        recover(r);
    }
    if (r->store != NULL) {
        wait_for_all(r);
        close_store(r);
    }
    return r;
}

/* ---- the tests ---- */

static uint64_t total_acks, total_kept, total_lost, total_duplicates, total_reads;

static void sound_body(struct rng *rng)
{
    struct run *r = run_seed(rng);
    char verdict[sizeof r->verdict];
    bool failed = r->failed;
    memcpy(verdict, r->verdict, sizeof verdict);
    total_acks += r->n_acks;
    total_kept += r->n_kept;
    total_lost += r->n_lost;
    total_duplicates += r->n_duplicates;
    total_reads += r->n_reads;
    run_free(r);
    if (failed)
        fail_msg("%s", verdict);
}

static void test_what_was_acknowledged_is_there_once(void **state)
{
    seeds_run(SEEDS, sound_body);
    print_message("%llu acknowledged; %llu not, of which %llu were kept; %llu duplicates, %llu "
                  "reads\n",
                  (unsigned long long)total_acks, (unsigned long long)(total_kept + total_lost),
                  (unsigned long long)total_kept, (unsigned long long)total_duplicates,
                  (unsigned long long)total_reads);
    if (seeds_env("TIDEMARK_SEED") == 0) /* or the disk was too kind */
        assert_true(total_kept > 0 && total_lost > 0 && total_duplicates > 0);
}

static void convict(enum crash_fault fault, const char *name)
{
    unsigned convicted = 0;
    crash_fault = fault;
    for (uint64_t seed = 1; seed <= SEEDS_BROKEN && convicted == 0; seed++) {
        struct rng rng = {seed};
        struct run *r = run_seed(&rng);
        if (r->failed) {
            convicted++;
            print_message("%s: seed %llu: %s\n", name, (unsigned long long)seed, r->verdict);
        }
        run_free(r);
    }
    crash_fault = CRASH_SOUND;
    assert_int_equal(convicted, 1);
}

static void test_early_answers_are_found(void **state)
{
    convict(CRASH_ANSWERS_EARLY, "answers before the journal is durable");
}

static void test_early_sights_are_found(void **state)
{
    convict(CRASH_SHOWS_EARLY, "shows what is not durable");
}

static void test_claims_apart_are_found(void **state)
{
    convict(CRASH_CLAIM_APART, "keeps the producer's state in another record");
}

static void test_half_appends_are_found(void **state)
{
    convict(CRASH_EVENTS_APART, "makes one append two records");
}

static void test_forgotten_removes_are_found(void **state)
{
    convict(CRASH_FORGETS_REMOVES, "does not write removes down");
}

static void test_no_sync_is_found(void **state)
{
    convict(CRASH_NEVER_SYNCS, "does not sync");
}

static void test_unsynced_segments_are_found(void **state)
{
    convict(CRASH_FORGETS_SEGMENTS, "does not sync segments");
}

static void test_second_sync_is_found(void **state)
{
    convict(CRASH_SYNCS_AGAIN, "syncs again after an error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_what_was_acknowledged_is_there_once, seeds_teardown),
        cmocka_unit_test(test_early_answers_are_found),
        cmocka_unit_test(test_early_sights_are_found),
        cmocka_unit_test(test_claims_apart_are_found),
        cmocka_unit_test(test_half_appends_are_found),
        cmocka_unit_test(test_forgotten_removes_are_found),
        cmocka_unit_test(test_no_sync_is_found),
        cmocka_unit_test(test_unsynced_segments_are_found),
        cmocka_unit_test(test_second_sync_is_found),
    };
    return cmocka_run_group_tests_name("fault/store_crash", tests, NULL, NULL);
}
