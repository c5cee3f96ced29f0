// SPDX-License-Identifier: Apache-2.0
/* Random operations on each store, every answer compared with the oracle's: one after the other,
 * and many at once through the delaying front end. See seeds.h for how to repeat a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "model/delay.c"
#include "model/engines.h"
#include "model/oracle.c"
#include "model/seeds.h"

#include <stdio.h>

#define SEEDS        300
#define STEPS        200
#define ROUND_MAX    24 /* operations at once */
#define EVENTS_MAX   10 /* of one append */
#define DOCS_MAX     3  /* of one operation */
#define KNOWN_MAX    64
#define SWEEP_MS     5000 /* after so long expired streams are cleared away */
#define LOOK_MS      1000 /* by the clock on the wall, from a write to a look at what rests */
#define TURNS_MAX    100000
#define BIG_EVENT    70000
#define COUNT(a)     (sizeof(a) / sizeof *(a))
#define START_WALL   1700000000000
#define START_MONO   5000
#define READ_MAX     300
#define LIST_MAX     9
#define FORK_DEPTH   3
#define ONLY_SOME(p) rng_percent(rng, (p))

static const struct str names[] = {
    STR_INIT("a"),     STR_INIT("a/1"),        STR_INIT("a/2"), STR_INIT("ab"),
    STR_INIT("b/1/x"), STR_INIT("\xc3\xa4/z"), STR_INIT("b"),
};
#define N_NAMES COUNT(names)

static const struct str types[] = {
    STR_INIT("text/plain"),
    STR_INIT("application/json"),
    STR_INIT("application/octet-stream"),
    STR_INIT("Application/JSON; charset=utf-8"),
    STR_INIT("TEXT/plain;x=1"),
};

static const struct str producers[] = {STR_INIT("p"), STR_INIT("q"), STR_INIT("a longer name")};

static const struct str keys[] = {
    STR_INIT("d"), STR_INIT("d/1"), STR_INIT("d/2"), STR_INIT("e"), STR_INIT("e\x01"),
};

/* An offset that some answer held. */
struct known {
    size_t name;
    struct offset at;
};

struct watcher {
    struct store_watch watch;
    size_t n_told;
};

struct op;

struct run {
    struct run *before; /* that failed */
    struct rng rng;
    const struct engine *engine;
    struct sched sched;
    struct store *store;
    void *ctx; /* the engine's */
    bool delayed, stopped;
    struct oracle oracle;
    uint64_t mono_ms;
    int64_t wall_ms;
    unsigned step;
    size_t n_waiting; /* operations under way */
    uint64_t n_passed_on;
    size_t overtaken; /* operations passed on before one that was started earlier */
    struct known known[KNOWN_MAX];
    size_t n_known;
    struct watcher watchers[N_NAMES];
    struct store_watch all; /* told of names[i]: n_all[i] */
    size_t n_all[N_NAMES];
    uint64_t changes[N_NAMES]; /* the oracle's, when watches were last checked */
    struct op *ops[ROUND_MAX]; /* under way */
};

enum op_kind { OP_WRITE, OP_REMOVE, OP_STAT, OP_READ, OP_LIST, OP_DOCS, OP_PUT };

/* An operation with all it points to. */
struct op {
    enum op_kind kind;
    struct run *run;
    union {
        struct store_write write;
        struct store_remove remove;
        struct store_stat stat;
        struct store_read read;
        struct store_list list;
        struct store_docs docs;
        struct store_put put;
    } u;
    struct stream_config config;
    uint32_t ends[EVENTS_MAX];
    struct doc_put puts[DOCS_MAX];
    char seq[8];
    struct arena arena;
    uint64_t order;
    unsigned n_done;
    bool returned;
    int err;
};

/* ---- making operations up ---- */

static struct str any_name(struct rng *rng)
{
    return names[rng_below(rng, N_NAMES)];
}

static size_t index_of(struct str name)
{
    for (size_t i = 0; i < N_NAMES; i++)
        if (str_eq(names[i], name))
            return i;
    fail_msg("unknown name");
    return 0;
}

static void remember(struct run *run, struct str name, struct offset at)
{
    size_t i = run->n_known < KNOWN_MAX ? run->n_known++ : rng_below(&run->rng, KNOWN_MAX);
    run->known[i] = (struct known){index_of(name), at};
}

/* Where a fork of this name, or an earlier life of it, or anything else has been. */
static struct offset any_offset(struct run *run, struct str name)
{
    struct rng *rng = &run->rng;
    struct offset at = {0};
    const struct oracle_stream *s = oracle_find(&run->oracle, name);
    for (int tries = 0; tries < 8 && run->n_known > 0; tries++) {
        const struct known *k = &run->known[rng_below(rng, run->n_known)];
        at = k->at;
        if (str_eq(names[k->name], name) || (s != NULL && s->source != NULL && ONLY_SOME(30)))
            break;
    }
    if (s != NULL && s->n_events > 0 && ONLY_SOME(40))
        at = (struct offset){s->life, event_start(s, rng_below(rng, s->n_events + 1))};
    if (s != NULL && s->n_origins > 0 && ONLY_SOME(15))
        at.life = s->origins[rng_below(rng, s->n_origins)].life;
    if (ONLY_SOME(5))
        at.pos += rng_between(rng, 1, 3);
    if (ONLY_SOME(3))
        at.life += rng_between(rng, 1, 1000);
    return ONLY_SOME(5) ? (struct offset){0, 0} : at;
}

static size_t event_size(struct rng *rng)
{
    if (ONLY_SOME(97))
        return rng_between(rng, 1, 24);
    return ONLY_SOME(95) ? rng_between(rng, 1, 3000) : BIG_EVENT;
}

static void add_data(struct op *op)
{
    struct rng *rng = &op->run->rng;
    struct store_write *w = &op->u.write;
    uint32_t n = ONLY_SOME(60) ? 1 : (uint32_t)rng_between(rng, 1, EVENTS_MAX);
    uint32_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        op->ends[i] = total += (uint32_t)event_size(rng);
    char *bytes = arena_alloc(&op->arena, total);
    unsigned char at = (unsigned char)rng_next(rng);
    for (uint32_t i = 0; i < total; i++)
        bytes[i] = (char)(at += 7);
    w->data = str_of(bytes, total);
    w->n_events = n;
    w->ends = n == 1 && ONLY_SOME(50) ? NULL : op->ends;
}

static size_t add_puts(struct op *op)
{
    struct rng *rng = &op->run->rng;
    size_t n = rng_between(rng, 1, DOCS_MAX), first = rng_below(rng, COUNT(keys));
    for (size_t i = 0; i < n; i++) {
        struct doc_put *p = &op->puts[i];
        p->key = keys[(first + i) % COUNT(keys)];
        p->expect_version = oracle_doc_version(&op->run->oracle, p->key);
        if (ONLY_SOME(15))
            p->expect_version = rng_below(rng, 4);
        p->value = ONLY_SOME(20) ? STR_NONE
                                 : arena_printf(&op->arena, "v%u", (unsigned)rng_below(rng, 1000));
        if (ONLY_SOME(5))
            p->value = STR("");
    }
    return n;
}

static void add_claim(struct op *op, const struct oracle_stream *s)
{
    struct rng *rng = &op->run->rng;
    struct producer_claim *c = &op->u.write.claim;
    c->id = producers[rng_below(rng, COUNT(producers))];
    const struct producer_state *p = s == NULL ? NULL : oracle_producer(s, c->id);
    if (s != NULL && s->end != END_NONE && s->closed_by.id.n > 0 && ONLY_SOME(70)) {
        *c = s->closed_by;
        c->id = arena_dup(&op->arena, c->id);
        c->seq += ONLY_SOME(20);
        return;
    }
    c->epoch = p == NULL ? rng_below(rng, 3) : p->epoch;
    c->seq = p == NULL ? 0 : p->seq + 1;
    switch (rng_below(rng, 10)) {
    case 0: c->seq += rng_between(rng, 1, 2); break;
    case 1: c->seq -= c->seq > 0 ? rng_between(rng, 1, c->seq) : 0; break;
    case 2: c->epoch -= c->epoch > 0; break;
    case 3:
        c->epoch++;
        c->seq = ONLY_SOME(70) ? 0 : 1;
        break;
    default: break;
    }
}

static void add_preconditions(struct op *op, const struct oracle_stream *s)
{
    struct run *run = op->run;
    struct rng *rng = &run->rng;
    struct store_write *w = &op->u.write;
    if (ONLY_SOME(35))
        add_claim(op, s);
    if (ONLY_SOME(20)) {
        /* mostly greater than before, also by a shorter or an empty text */
        int n = snprintf(op->seq, sizeof op->seq, "%04u", run->step % 10000);
        w->seq = str_of(op->seq, ONLY_SOME(85) ? (size_t)n : rng_below(rng, 4));
    }
    if (ONLY_SOME(15)) {
        w->if_match = true;
        w->match = any_offset(run, w->name);
        if (s != NULL && ONLY_SOME(60))
            w->match = (struct offset){s->life, tail_of(s)};
    }
    if (ONLY_SOME(5))
        w->data_err = ONLY_SOME(50) ? ERR_JSON : ERR_EMPTY;
    if (ONLY_SOME(15)) {
        w->docs = op->puts;
        w->n_docs = add_puts(op);
    }
}

static void set_close(struct op *op)
{
    op->u.write.close = true;
    op->u.write.end = (enum end_reason)rng_between(&op->run->rng, END_COMPLETED, END_EXPIRED);
}

static void make_append(struct op *op)
{
    struct rng *rng = &op->run->rng;
    struct store_write *w = &op->u.write;
    const struct oracle_stream *s = oracle_find(&op->run->oracle, w->name);
    if (ONLY_SOME(90))
        add_data(op);
    if (ONLY_SOME(s != NULL && s->end != END_NONE ? 60 : 3))
        set_close(op);
    if (ONLY_SOME(70))
        w->content_type = types[rng_below(rng, COUNT(types))];
    if (s != NULL && w->content_type.p != NULL && ONLY_SOME(80))
        w->content_type = arena_dup(&op->arena, s->type);
    add_preconditions(op, s);
}

static void set_lifetime(struct run *run, struct stream_config *c)
{
    struct rng *rng = &run->rng;
    c->ttl_s = c->expires_ms = STORE_TTL_NONE;
    if (ONLY_SOME(25))
        c->ttl_s = (int64_t)rng_between(rng, 1, 20);
    else if (ONLY_SOME(15))
        c->expires_ms = run->wall_ms - 1001 + (int64_t)rng_below(rng, 20) * 1000;
    if (ONLY_SOME(25))
        c->retain.events = rng_between(rng, 1, 30);
    if (ONLY_SOME(15))
        c->retain.bytes = rng_between(rng, 1, ONLY_SOME(80) ? 400 : 2 * BIG_EVENT);
    if (ONLY_SOME(15))
        c->retain.age_ms = rng_between(rng, 1, 20) * 1000;
}

/* Mostly within the append behind the anchor, and a little beyond it. */
static uint64_t any_sub(struct rng *rng, const struct oracle_stream *source, struct offset at)
{
    uint64_t pos = 0;
    if (source == NULL || locate(source, at, &pos) != 0 || pos == tail_of(source) || ONLY_SOME(20))
        return rng_between(rng, 1, 60);
    size_t first = event_at(source, pos), last = first;
    while (last + 1 < source->n_events && !source->events[last].ends_append)
        last++;
    bool by_event = same_type(source->type, STR("application/json"));
    uint64_t most = by_event ? last - first + 1 : source->events[last].end - pos;
    return ONLY_SOME(25) ? most + 1 : rng_between(rng, 1, most);
}

static void set_fork(struct run *run, struct stream_config *c)
{
    struct rng *rng = &run->rng;
    const struct oracle_stream *source = NULL;
    for (int tries = 0; tries < 4 && source == NULL; tries++) {
        c->fork_of = any_name(rng);
        source = oracle_find(&run->oracle, c->fork_of);
    }
    c->fork_at_tail = ONLY_SOME(20);
    if (!c->fork_at_tail)
        c->fork_at = any_offset(run, c->fork_of);
    if (ONLY_SOME(50))
        c->fork_sub = any_sub(rng, source, c->fork_at);
    if (source != NULL && ONLY_SOME(85))
        c->content_type = ONLY_SOME(50) ? STR_NONE : source->type;
}

static void make_create(struct op *op)
{
    struct run *run = op->run;
    struct rng *rng = &run->rng;
    struct store_write *w = &op->u.write;
    struct stream_config *c = &op->config;
    const struct oracle_stream *s = oracle_find(&run->oracle, w->name);
    w->create = c;
    c->content_type = types[rng_below(rng, COUNT(types))];
    set_lifetime(run, c);
    if (ONLY_SOME(50))
        set_fork(run, c);
    if (ONLY_SOME(5))
        set_close(op);
    if (s != NULL && ONLY_SOME(60)) { /* the same again, or nearly so */
        *c = s->config;
        if (s->end != END_NONE)
            set_close(op);
        c->fork_sub += c->fork_of.n > 0 && ONLY_SOME(10);
        c->retain.events += ONLY_SOME(5);
        c->ttl_s += ONLY_SOME(10);
    }
    c->content_type = c->content_type.n > 0 ? arena_dup(&op->arena, c->content_type) : STR_NONE;
    c->fork_of = c->fork_of.n > 0 ? arena_dup(&op->arena, c->fork_of) : STR_NONE;
    if (ONLY_SOME(40))
        add_data(op);
    if (ONLY_SOME(20))
        w->content_type = ONLY_SOME(70) && c->content_type.n > 0 ? c->content_type : types[0];
    if (ONLY_SOME(20))
        add_preconditions(op, ONLY_SOME(50) ? s : NULL);
    w->if_match = w->if_match && ONLY_SOME(30);
    w->match = (struct offset){0, 0};
}

static void make_write(struct op *op)
{
    struct run *run = op->run;
    struct rng *rng = &run->rng;
    bool there = oracle_find(&run->oracle, op->u.write.name) != NULL;
    if (ONLY_SOME(there ? 12 : 80))
        make_create(op);
    else
        make_append(op);
}

static void make_read(struct op *op)
{
    struct run *run = op->run;
    struct rng *rng = &run->rng;
    struct store_read *r = &op->u.read;
    r->from = ONLY_SOME(70) ? READ_AT : ONLY_SOME(60) ? READ_START : READ_TAIL;
    r->at = any_offset(run, r->name);
    if (ONLY_SOME(15)) {
        const struct oracle_stream *s = oracle_find(&run->oracle, r->name);
        r->from = READ_EVENT;
        r->event = rng_below(rng, (s == NULL ? 0 : s->n_events) + 3);
    }
    r->max_bytes = ONLY_SOME(20) ? SIZE_MAX : rng_below(rng, READ_MAX);
    r->touch = ONLY_SOME(40);
}

static void make_listing(struct rng *rng, struct str *prefix, struct str *after, size_t *limit,
                         const struct str *pool, size_t n)
{
    if (ONLY_SOME(50))
        *prefix = pool[rng_below(rng, n)];
    if (ONLY_SOME(20) && prefix->n > 1)
        prefix->n--;
    if (ONLY_SOME(50))
        *after = pool[rng_below(rng, n)];
    *limit = ONLY_SOME(30) ? SIZE_MAX : rng_below(rng, LIST_MAX);
}

static enum op_kind any_kind(struct rng *rng)
{
    static const struct {
        enum op_kind kind;
        unsigned percent;
    } shares[] = {{OP_WRITE, 56}, {OP_READ, 22}, {OP_REMOVE, 6}, {OP_STAT, 6},
                  {OP_LIST, 4},   {OP_DOCS, 3},  {OP_PUT, 3}};
    unsigned at = (unsigned)rng_below(rng, 100);
    for (size_t i = 0; i < COUNT(shares); i++) {
        if (at < shares[i].percent)
            return shares[i].kind;
        at -= shares[i].percent;
    }
    return OP_WRITE;
}

/* ---- running them ---- */

static struct op *op_of(struct op *op)
{
    assert_true(op->returned); /* never before the call has returned */
    return op;
}

/* Results are lent: what the check needs later is copied. */
static void keep_type(struct op *op, struct stream_info *info)
{
    if (info->content_type.n > 0)
        info->content_type = arena_dup(&op->arena, info->content_type);
}

static void finished(struct op *op, int err)
{
    op->err = err;
    op->n_done++;
    op->run->n_waiting--;
}

static void on_write(struct store_write *w, int err)
{
    struct op *op = op_of(container_of(w, struct op, u.write));
    if (err == 0 || err == ERR_CLOSED || err == ERR_TAIL_MOVED)
        keep_type(op, &w->info);
    finished(op, err);
}

static void on_remove(struct store_remove *r, int err)
{
    finished(op_of(container_of(r, struct op, u.remove)), err);
}

static void on_stat(struct store_stat *st, int err)
{
    struct op *op = op_of(container_of(st, struct op, u.stat));
    if (err == 0)
        keep_type(op, &st->info);
    finished(op, err);
}

static void on_read(struct store_read *r, int err)
{
    struct op *op = op_of(container_of(r, struct op, u.read));
    if (err == 0)
        keep_type(op, &r->info);
    finished(op, err);
}

static void on_list(struct store_list *l, int err)
{
    struct op *op = op_of(container_of(l, struct op, u.list));
    struct store_row *rows = arena_alloc(&op->arena, (l->n_rows + 1) * sizeof *rows);
    for (size_t i = 0; i < l->n_rows; i++) {
        rows[i] = l->rows[i];
        rows[i].name = arena_dup(&op->arena, rows[i].name);
        keep_type(op, &rows[i].info);
    }
    l->rows = rows;
    finished(op, err);
}

static void on_docs(struct store_docs *d, int err)
{
    struct op *op = op_of(container_of(d, struct op, u.docs));
    struct doc_row *rows = arena_alloc(&op->arena, (d->n_rows + 1) * sizeof *rows);
    for (size_t i = 0; i < d->n_rows; i++) {
        rows[i] = d->rows[i];
        rows[i].key = arena_dup(&op->arena, rows[i].key);
        rows[i].value = rows[i].value.n == 0 ? STR("") : arena_dup(&op->arena, rows[i].value);
    }
    d->rows = rows;
    finished(op, err);
}

static void on_put(struct store_put *p, int err)
{
    finished(op_of(container_of(p, struct op, u.put)), err);
}

static void call_store(struct op *op)
{
    struct store *s = op->run->store;
    switch (op->kind) {
    case OP_WRITE: store_write(s, &op->u.write); break;
    case OP_REMOVE: store_remove(s, &op->u.remove); break;
    case OP_STAT: store_stat(s, &op->u.stat); break;
    case OP_READ: store_read(s, &op->u.read); break;
    case OP_LIST: store_list(s, &op->u.list); break;
    case OP_DOCS: store_docs(s, &op->u.docs); break;
    case OP_PUT: store_put(s, &op->u.put); break;
    }
}

static struct op *start_op(struct run *run)
{
    struct rng *rng = &run->rng;
    struct op *op = mem_zalloc(sizeof *op);
    struct str name = any_name(rng);
    op->run = run;
    op->kind = any_kind(rng);
    switch (op->kind) {
    case OP_WRITE:
        op->u.write = (struct store_write){.name = name, .done = on_write};
        make_write(op);
        break;
    case OP_REMOVE: op->u.remove = (struct store_remove){.name = name, .done = on_remove}; break;
    case OP_STAT: op->u.stat = (struct store_stat){.name = name, .done = on_stat}; break;
    case OP_READ:
        op->u.read = (struct store_read){.name = name, .done = on_read};
        make_read(op);
        break;
    case OP_LIST:
        op->u.list.done = on_list;
        make_listing(rng, &op->u.list.prefix, &op->u.list.after, &op->u.list.limit, names, N_NAMES);
        break;
    case OP_DOCS:
        op->u.docs.done = on_docs;
        make_listing(rng, &op->u.docs.prefix, &op->u.docs.after, &op->u.docs.limit, keys,
                     COUNT(keys));
        break;
    case OP_PUT:
        op->u.put = (struct store_put){.docs = op->puts, .n_docs = add_puts(op), .done = on_put};
        break;
    }
    run->n_waiting++;
    run->step++;
    call_store(op);
    op->returned = true;
    return op;
}

static void free_op(struct op *op)
{
    if (op->kind == OP_READ)
        store_read_release(&op->u.read);
    arena_deinit(&op->arena);
    free(op);
}

static void turn(struct run *run, uint64_t ms)
{
    run->mono_ms += ms;
    sched_turn(&run->sched, run->mono_ms, run->wall_ms);
}

/* Until everything has come back and nothing more is to be told. */
static void settle(struct run *run)
{
    unsigned turns = 0;
    do {
        turn(run, SCHED_TICK_MS);
        assert_true(turns++ < TURNS_MAX);
    } while (run->n_waiting > 0 || (run->delayed && delay_pending(run->store) > 0));
}

static void check_trimmed(struct run *run);

static void pass_time(struct run *run)
{
    struct rng *rng = &run->rng;
    int64_t before_ms = run->wall_ms;
    run->wall_ms += (int64_t)rng_between(rng, 1, 9000);
    while (oracle_at_deadline(&run->oracle, run->wall_ms))
        run->wall_ms++;
    turn(run, 0);
    oracle_clock(&run->oracle, run->wall_ms);
    if (ONLY_SOME(60))
        return; /* what has expired is found out by those who come along */
    for (int ms = 0; ms < SWEEP_MS; ms += 500)
        turn(run, 500);
    settle(run);
    oracle_swept(&run->oracle);
    if (run->wall_ms - before_ms > LOOK_MS)
        check_trimmed(run);
}

/* ---- checking ---- */

static void print_write(const struct store_write *w)
{
    const struct stream_config *c = w->create;
    fprintf(stderr, "  data %zu (%u events, err %s) type '%.*s'%s", w->data.n, w->n_events,
            err_name(w->data_err), (int)w->content_type.n, w->content_type.p,
            w->close ? " close" : "");
    if (w->claim.id.n > 0)
        fprintf(stderr, " producer %.*s %llu.%llu", (int)w->claim.id.n, w->claim.id.p,
                (unsigned long long)w->claim.epoch, (unsigned long long)w->claim.seq);
    if (w->seq.p != NULL)
        fprintf(stderr, " seq '%.*s'", (int)w->seq.n, w->seq.p);
    if (w->if_match)
        fprintf(stderr, " match %llu_%llu", (unsigned long long)w->match.life,
                (unsigned long long)w->match.pos);
    fprintf(stderr, " docs %zu\n", w->n_docs);
    if (c != NULL)
        fprintf(stderr,
                "  create type '%.*s' ttl %lld expires %lld fork of '%.*s' at %s%llu_%llu+%llu\n",
                (int)c->content_type.n, c->content_type.p, (long long)c->ttl_s,
                (long long)c->expires_ms, (int)c->fork_of.n, c->fork_of.p,
                c->fork_at_tail ? "tail " : "", (unsigned long long)c->fork_at.life,
                (unsigned long long)c->fork_at.pos, (unsigned long long)c->fork_sub);
}

static struct str name_of_op(const struct op *op)
{
    switch (op->kind) {
    case OP_WRITE: return op->u.write.name;
    case OP_REMOVE: return op->u.remove.name;
    case OP_STAT: return op->u.stat.name;
    case OP_READ: return op->u.read.name;
    default: return STR("");
    }
}

static const char *const kind_texts[] = {"write", "remove", "stat", "read", "list", "docs", "put"};

static void print_op(const struct op *op)
{
    struct str name = name_of_op(op);
    fprintf(stderr, "%s '%.*s': %s\n", kind_texts[op->kind], (int)name.n, name.p,
            err_name(op->err));
    if (op->kind == OP_WRITE)
        print_write(&op->u.write);
    if (op->kind == OP_READ)
        fprintf(stderr, "  from %d at %llu_%llu max %zu: %llu to %llu\n", op->u.read.from,
                (unsigned long long)op->u.read.at.life, (unsigned long long)op->u.read.at.pos,
                op->u.read.max_bytes, (unsigned long long)op->u.read.start,
                (unsigned long long)op->u.read.next);
}

static const char *judge(struct op *op)
{
    struct oracle *o = &op->run->oracle;
    switch (op->kind) {
    case OP_WRITE: return oracle_write(o, &op->u.write, op->err);
    case OP_REMOVE: return oracle_remove(o, &op->u.remove, op->err);
    case OP_STAT: return oracle_stat(o, &op->u.stat, op->err);
    case OP_READ: return oracle_read(o, &op->u.read, op->err);
    case OP_LIST: return oracle_list(o, &op->u.list, op->err);
    case OP_DOCS: return oracle_docs(o, &op->u.docs, op->err);
    case OP_PUT: return oracle_put(o, &op->u.put, op->err);
    }
    return "no such operation";
}

static void learn(struct op *op)
{
    struct run *run = op->run;
    if (op->err != 0)
        return;
    if (op->kind == OP_WRITE)
        remember(run, op->u.write.name,
                 (struct offset){op->u.write.info.life, op->u.write.info.tail});
    if (op->kind == OP_READ)
        remember(run, op->u.read.name, (struct offset){op->u.read.info.life, op->u.read.next});
}

static void check_op(struct op *op)
{
    assert_int_equal(op->n_done, 1);
    const char *why = judge(op);
    if (why != NULL) {
        fprintf(stderr, "%s, near step %u: %s\n", op->run->engine->name, op->run->step, why);
        print_op(op);
        fail();
    }
    learn(op);
}

/* What need not be retained has been trimmed. */
static void check_trimmed(struct run *run)
{
    struct op *op = mem_zalloc(sizeof *op);
    *op = (struct op){.kind = OP_LIST,
                      .run = run,
                      .u.list = {.limit = SIZE_MAX, .done = on_list},
                      .returned = true};
    for (int i = 0; i < 100; i++) /* what the last sweep has begun */
        turn(run, SCHED_TICK_MS);
    run->n_waiting++;
    call_store(op);
    settle(run);
    check_op(op);
    const char *why = oracle_trimmed(&run->oracle);
    if (why != NULL)
        fail_msg("%s, near step %u: %s", run->engine->name, run->step, why);
    free_op(op);
}

/* Whatever changed has been told to who watches it. */
static void check_watches(struct run *run)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        uint64_t changes = oracle_changes(&run->oracle, names[i]);
        if (changes != run->changes[i]) {
            assert_true(run->watchers[i].n_told > 0);
            assert_true(run->n_all[i] > 0);
        }
        run->changes[i] = changes;
        run->watchers[i].n_told = run->n_all[i] = 0;
    }
}

/* ---- a run ---- */

static void on_changed(struct store_watch *w, struct str name)
{
    assert_true(str_eq(w->name, name));
    container_of(w, struct watcher, watch)->n_told++;
}

static void on_any_changed(struct store_watch *w, struct str name)
{
    container_of(w, struct run, all)->n_all[index_of(name)]++;
}

/* A run that failed stays reachable, so that no report of leaks buries the reason. */
static struct run *volatile running;

static void watch_all(struct run *run)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        run->watchers[i].watch = (struct store_watch){.name = names[i], .changed = on_changed};
        store_watch(run->store, &run->watchers[i].watch);
    }
    run->all.changed = on_any_changed;
    store_watch(run->store, &run->all);
}

static void on_stopped(void *ctx)
{
    ((struct run *)ctx)->stopped = true;
}

static void stop(struct run *run)
{
    for (size_t i = 0; i < N_NAMES; i++)
        store_unwatch(run->store, &run->watchers[i].watch);
    store_unwatch(run->store, &run->all);
    run->stopped = false;
    store_stop(run->store, on_stopped, run);
    for (int i = 0; !run->stopped; i++) {
        assert_true(i < TURNS_MAX);
        turn(run, SCHED_TICK_MS);
    }
    store_free(run->store);
}

/* A store that keeps what it holds is left and entered again; nobody may notice. */
static void restart(struct run *run)
{
    for (int ms = 0; ms < SWEEP_MS; ms += 500) /* what has expired must not be there again */
        turn(run, 500);
    settle(run);
    oracle_swept(&run->oracle);
    stop(run);
    run->store = run->engine->reopen(run->ctx);
    run->store->fork_depth = FORK_DEPTH;
    watch_all(run);
    if (run->engine->touches)
        oracle_touch_all(&run->oracle);
    for (size_t i = 0; i < N_NAMES; i++)
        run->watchers[i].n_told = run->n_all[i] = 0;
}

static struct run *begin(const struct engine *engine, const struct rng *rng, bool delayed)
{
    struct run *run = mem_zalloc(sizeof *run);
    run->before = running;
    running = run;
    run->rng = *rng;
    run->engine = engine;
    run->mono_ms = START_MONO;
    run->wall_ms = START_WALL;
    sched_init(&run->sched, run->mono_ms, run->wall_ms);
    run->store = engine->make(&run->sched, rng_next(&run->rng), &run->ctx);
    run->store->fork_depth = FORK_DEPTH;
    run->delayed = delayed;
    if (delayed)
        run->store = delay_store_new(run->store, rng_next(&run->rng),
                                     (unsigned)rng_between(&run->rng, 1, 6));
    oracle_init(&run->oracle);
    run->oracle.fork_depth = FORK_DEPTH;
    oracle_clock(&run->oracle, run->wall_ms);
    watch_all(run);
    return run;
}

static void end(struct run *run)
{
    stop(run);
    if (run->engine->release != NULL)
        run->engine->release(run->ctx);
    oracle_deinit(&run->oracle);
    running = run->before;
    free(run);
}

static void one_after_the_other(const struct engine *engine, const struct rng *rng)
{
    struct run *run = begin(engine, rng, false);
    while (run->step < STEPS) {
        struct op *op = run->ops[0] = start_op(run);
        settle(run);
        check_op(op);
        check_watches(run);
        free_op(op);
        if (rng_one_in(&run->rng, 15))
            pass_time(run);
        if (run->engine->stir != NULL && rng_one_in(&run->rng, 20))
            run->engine->stir(run->ctx);
        if (run->engine->reopen != NULL && rng_one_in(&run->rng, 40))
            restart(run);
    }
    end(run);
}

static void note_order(void *ctx, const void *address)
{
    struct run *run = ctx;
    /* every kind begins at the same place */
    struct op *op = container_of((char *)(uintptr_t)address, struct op, u);
    op->order = ++run->n_passed_on;
}

static int by_order(const void *a, const void *b)
{
    uint64_t x = (*(struct op *const *)a)->order, y = (*(struct op *const *)b)->order;
    return (x > y) - (x < y);
}

static void all_at_once(struct run *run, size_t n)
{
    struct op **ops = run->ops;
    uint64_t before = run->n_passed_on;
    for (size_t i = 0; i < n; i++) {
        ops[i] = start_op(run);
        if (rng_one_in(&run->rng, 3))
            turn(run, SCHED_TICK_MS);
    }
    settle(run);
    for (size_t i = 0; i < n; i++)
        run->overtaken += ops[i]->order > before + i + 1;
    qsort(ops, n, sizeof *ops, by_order);
    for (size_t i = 0; i < n; i++) {
        check_op(ops[i]);
        free_op(ops[i]);
    }
    check_watches(run);
}

static void many_at_once(const struct engine *engine, const struct rng *rng)
{
    struct run *run = begin(engine, rng, true);
    delay_observe(run->store, note_order, run);
    if (!engine->in_order || rng_one_in(&run->rng, 4))
        delay_one_by_one(run->store);
    while (run->step < STEPS) {
        all_at_once(run, rng_between(&run->rng, 1, ROUND_MAX));
        if (rng_one_in(&run->rng, 3))
            pass_time(run);
    }
    assert_true(run->overtaken > 0); /* or the front end does not do what it is for */
    end(run);
}

/* ---- the tests ---- */

/* TIDEMARK_ENGINE: that one alone. */
static bool is_tested(const struct engine *e)
{
    const char *only = getenv("TIDEMARK_ENGINE");
    if (only != NULL && strcmp(only, e->name) != 0)
        return false;
    if (only == NULL && e->every > 0 && seeds_now % e->every != 0)
        return false;
    return e->available == NULL || e->available();
}

static void sequential_body(struct rng *r)
{
    for (size_t i = 0; i < N_ENGINES; i++)
        if (is_tested(&engines[i]))
            one_after_the_other(&engines[i], r);
}

static void concurrent_body(struct rng *r)
{
    for (size_t i = 0; i < N_ENGINES; i++)
        if (is_tested(&engines[i]))
            many_at_once(&engines[i], r);
}

static void test_one_after_the_other(void **state)
{
    seeds_run(SEEDS, sequential_body);
    print_message("%llu blocks were moved out of sparse segments, %llu merged\n",
                  (unsigned long long)disk_rewritten, (unsigned long long)disk_merged);
    if (seeds_env("TIDEMARK_SEED") == 0 && getenv("TIDEMARK_ENGINE") == NULL)
        assert_true(disk_rewritten > 0 && disk_merged > 0); /* or the runs say nothing of that */
}

static void test_many_at_once(void **state)
{
    seeds_run(SEEDS, concurrent_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_one_after_the_other, seeds_teardown),
        cmocka_unit_test_teardown(test_many_at_once, seeds_teardown),
    };
    return cmocka_run_group_tests_name("model/store", tests, NULL, NULL);
}
