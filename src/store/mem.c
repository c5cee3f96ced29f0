// SPDX-License-Identifier: Apache-2.0
/* mem.c -- the store in memory: the reference model for the others, and for who needs no disk.
 *
 * An operation is looked at and done in one task of the schedule, right before its done(): all of
 * it happens at one moment, in the order of the calls. */
#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "store/content.h"
#include "store/store.h"
#include "store/tape.h"
#include "store/verdict.h"
#include "store/watchers.h"

#include <assert.h>
#include <stdlib.h>

#define SWEEP_MS      1000
#define SWEEP_AT_ONCE 1024

/* A life whose positions below `upto` are this stream's too: the streams it was forked from. */
struct origin {
    uint64_t life, upto;
};

struct producer {
    struct producer_state state;
    size_t n;
    char id[];
};

struct stream {
    char *name;
    size_t name_n;
    uint64_t life;
    struct tape tape;
    struct stream_config config; /* as asked for; texts owned */
    char *content_type;
    int64_t ttl_s, expires_ms; /* in force */
    int64_t touched_ms;
    struct link expiring; /* in mem->expiring, if it can expire */
    enum end_reason end;
    struct producer_claim closed_by; /* id owned */
    struct map producers;
    struct str last_seq; /* owned */
    struct origin *origins;
    uint32_t n_origins;
    struct stream *source; /* of a fork: counted in its forks */
    uint32_t forks;
    bool deleted; /* only forks keep it */
};

struct doc {
    struct str key, value; /* owned */
    uint64_t version;
};

struct mem {
    struct store store;
    struct map streams; /* by name */
    struct map docs;    /* by key */
    struct watchers watchers;
    struct link expiring;
    struct timer sweep;
    uint64_t lives;  /* handed out so far */
    int64_t wall_ms; /* never goes back, whatever the clock does */
};

static struct mem *mem_of(struct store *s)
{
    return container_of(s, struct mem, store);
}

static struct str own(struct str s)
{
    if (s.p == NULL)
        return s;
    return str_of(memcpy(mem_alloc(s.n + 1), s.p, s.n), s.n);
}

static void disown(struct str s)
{
    free((char *)(uintptr_t)s.p);
}

static int64_t wall_ms(struct mem *m)
{
    if (m->store.sched->wall_ms > m->wall_ms)
        m->wall_ms = m->store.sched->wall_ms;
    return m->wall_ms;
}

/* ---- streams ---- */

static struct str name_of(const struct stream *s)
{
    return str_of(s->name, s->name_n);
}

static struct stream_info info_of(const struct stream *s)
{
    return (struct stream_info){.life = s->life,
                                .first = 0,
                                .tail = s->tape.tail,
                                .content_type = str_of_cstr(s->content_type),
                                .ttl_s = s->ttl_s,
                                .expires_ms = s->expires_ms,
                                .end = s->end};
}

static void free_producers(struct stream *s)
{
    size_t at = 0;
    for (struct producer *p; (p = map_next(&s->producers, &at)) != NULL;)
        free(p);
    map_deinit(&s->producers);
}

static void free_stream(struct stream *s)
{
    tape_deinit(&s->tape);
    free_producers(s);
    list_remove(&s->expiring);
    disown(s->config.content_type);
    disown(s->config.fork_of);
    disown(s->closed_by.id);
    disown(s->last_seq);
    free(s->content_type);
    free(s->origins);
    free(s->name);
    free(s);
}

/* Takes the stream away. While forks of it live, its name is not free. */
static void remove_stream(struct mem *m, struct stream *s)
{
    watchers_changed(&m->watchers, name_of(s));
    if (s->forks > 0) {
        s->deleted = true;
        tape_deinit(&s->tape); /* forks hold what is theirs */
        list_remove(&s->expiring);
        return;
    }
    struct stream *source = s->source;
    map_remove(&m->streams, name_of(s));
    free_stream(s);
    if (source != NULL && --source->forks == 0 && source->deleted)
        remove_stream(m, source);
}

static bool expired(struct mem *m, const struct stream *s)
{
    int64_t now = wall_ms(m);
    return (s->ttl_s >= 0 && now >= s->touched_ms + s->ttl_s * 1000) ||
           (s->expires_ms >= 0 && now >= s->expires_ms);
}

/* ERR_NOT_FOUND, ERR_DELETED, or 0 and a live stream. */
static int find(struct mem *m, struct str name, struct stream **out)
{
    struct stream *s = map_get(&m->streams, name);
    if (s != NULL && !s->deleted && expired(m, s)) {
        remove_stream(m, s);
        s = map_get(&m->streams, name);
    }
    if (s == NULL)
        return ERR_NOT_FOUND;
    if (s->deleted)
        return ERR_DELETED;
    *out = s;
    return 0;
}

static void touch(struct mem *m, struct stream *s)
{
    s->touched_ms = wall_ms(m);
}

static void sweep(struct timer *t)
{
    struct mem *m = container_of(t, struct mem, sweep);
    for (int i = 0; i < SWEEP_AT_ONCE && !list_empty(&m->expiring); i++) {
        struct stream *s = list_item(m->expiring.next, struct stream, expiring);
        list_remove(&s->expiring);
        if (expired(m, s))
            remove_stream(m, s);
        else
            list_push(&m->expiring, &s->expiring);
    }
    sched_start(m->store.sched, &m->sweep, SWEEP_MS);
}

/* The position that an offset means in this stream; ERR_OFFSET, or ERR_GAP with *reason. */
static int resolve(const struct stream *s, struct offset at, uint64_t *pos, enum gap_reason *reason)
{
    if (offset_is_zero(at)) {
        *pos = 0;
        return 0;
    }
    uint64_t upto = s->tape.tail;
    bool known = at.life == s->life;
    for (uint32_t i = 0; i < s->n_origins && !known; i++) {
        known = at.life == s->origins[i].life;
        upto = s->origins[i].upto;
    }
    if (!known || at.pos > upto) {
        *reason = !known && at.life < s->life ? GAP_REBORN : GAP_UNKNOWN;
        return ERR_GAP;
    }
    if (!tape_is_boundary(&s->tape, at.pos))
        return ERR_OFFSET;
    *pos = at.pos;
    return 0;
}

/* ---- documents ---- */

static void free_doc(struct doc *d)
{
    disown(d->key);
    disown(d->value);
    free(d);
}

static int check_docs(struct mem *m, const struct doc_put *puts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct doc *d = map_get(&m->docs, puts[i].key);
        if ((d == NULL ? 0 : d->version) != puts[i].expect_version)
            return ERR_VERSION;
    }
    return 0;
}

static void put_doc(struct mem *m, const struct doc_put *put)
{
    struct doc *old = map_remove(&m->docs, put->key);
    if (old != NULL)
        free_doc(old);
    if (put->value.p == NULL)
        return;
    struct doc *d = mem_alloc(sizeof *d);
    *d = (struct doc){own(put->key), own(put->value), DOC_NEXT(put->expect_version)};
    map_put(&m->docs, d->key, d);
}

static void put_docs(struct mem *m, const struct doc_put *puts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_doc(m, &puts[i]);
}

/* ---- write ---- */

/* Everything about the source of a fork that can fail; *at is the fork point. */
static int check_fork(struct mem *m, const struct stream_config *c, struct str content_type,
                      struct stream **source, uint64_t *at)
{
    int err = find(m, c->fork_of, source);
    if (err != 0)
        return err == ERR_DELETED ? ERR_FORK_DELETED : ERR_FORK_SOURCE;
    const struct stream *s = *source;
    struct str type = str_of_cstr(s->content_type);
    enum gap_reason reason;
    uint64_t anchor = s->tape.tail;
    if (!c->fork_at_tail && resolve(s, c->fork_at, &anchor, &reason) != 0)
        return ERR_FORK_OFFSET;
    if (content_type.n > 0 && !content_same(content_type, type))
        return ERR_TYPE_MISMATCH;
    return tape_advance(&s->tape, anchor, c->fork_sub, content_kind(type) == CONTENT_JSON, at);
}

static void fork_from(struct stream *s, struct stream *source, uint64_t at)
{
    tape_fork(&source->tape, at, &s->tape);
    s->source = source;
    source->forks++;
    s->n_origins = source->n_origins + 1;
    s->origins = mem_alloc(s->n_origins * sizeof *s->origins);
    for (uint32_t i = 0; i < source->n_origins; i++) {
        s->origins[i] = source->origins[i];
        if (s->origins[i].upto > at)
            s->origins[i].upto = at;
    }
    s->origins[s->n_origins - 1] = (struct origin){source->life, at};
}

static struct str type_of(const struct stream_config *c, const struct stream *source)
{
    return c->content_type.n > 0 ? c->content_type : str_of_cstr(source->content_type);
}

static struct stream *add_stream(struct mem *m, struct str name, const struct stream_config *c,
                                 struct stream *source, uint64_t fork_at)
{
    struct stream *s = mem_zalloc(sizeof *s);
    struct str type = type_of(c, source);
    s->name = (char *)(uintptr_t)own(name).p;
    s->name_n = name.n;
    s->life = ++m->lives;
    s->config = *c;
    s->config.content_type = own(c->content_type);
    s->config.fork_of = own(c->fork_of);
    s->content_type = (char *)(uintptr_t)own(type).p;
    s->content_type[type.n] = '\0';
    map_init(&s->producers);
    list_init(&s->expiring);
    bool asked = c->ttl_s >= 0 || c->expires_ms >= 0;
    s->ttl_s = asked || source == NULL ? c->ttl_s : source->ttl_s;
    s->expires_ms = asked || source == NULL ? c->expires_ms : source->expires_ms;
    if (s->ttl_s >= 0 || s->expires_ms >= 0)
        list_push(&m->expiring, &s->expiring);
    if (source != NULL)
        fork_from(s, source, fork_at);
    map_put(&m->streams, name_of(s), s);
    return s;
}

static void note_producer(struct stream *s, const struct producer_claim *claim)
{
    struct producer *p = map_get(&s->producers, claim->id);
    if (p == NULL) {
        p = mem_alloc(sizeof *p + claim->id.n);
        p->n = claim->id.n;
        memcpy(p->id, claim->id.p, claim->id.n);
        map_put(&s->producers, str_of(p->id, p->n), p);
    }
    p->state = (struct producer_state){claim->epoch, claim->seq};
}

static void apply(struct mem *m, struct stream *s, struct store_write *w)
{
    if (w->data.n > 0)
        tape_append(&s->tape, w->data, w->ends, w->n_events);
    if (w->claim.id.n > 0)
        note_producer(s, &w->claim);
    if (w->seq.p != NULL) {
        disown(s->last_seq);
        s->last_seq = own(w->seq);
    }
    if (w->close) {
        s->end = w->end;
        s->closed_by = w->claim;
        s->closed_by.id = own(w->claim.id);
    }
    put_docs(m, w->docs, w->n_docs);
    touch(m, s);
    watchers_changed(&m->watchers, name_of(s));
}

static int create(struct mem *m, struct store_write *w)
{
    struct stream *source = NULL;
    uint64_t fork_at = 0;
    if (w->create->fork_of.n > 0) {
        int err = check_fork(m, w->create, w->create->content_type, &source, &fork_at);
        if (err != 0)
            return err;
    }
    /* A stream that is to be made has no producers and no Stream-Seq yet. */
    struct verdict_state state = {.content_type = type_of(w->create, source), .tail = fork_at};
    int err = verdict_write(&state, w);
    if (err == VERDICT_APPLY)
        err = check_docs(m, w->docs, w->n_docs);
    if (err != VERDICT_APPLY)
        return err;
    struct stream *s = add_stream(m, w->name, w->create, source, fork_at);
    apply(m, s, w);
    w->created = true;
    w->info = info_of(s);
    return 0;
}

/* The same PUT again: a success that changes nothing. */
static int confirm(struct store_write *w, const struct stream *s)
{
    w->info = info_of(s);
    if (!verdict_same_config(&s->config, w->create, str_of_cstr(s->content_type)) ||
        w->close != (s->end != END_NONE))
        return ERR_EXISTS;
    return 0;
}

static int append(struct mem *m, struct stream *s, struct store_write *w)
{
    struct producer *p = w->claim.id.n > 0 ? map_get(&s->producers, w->claim.id) : NULL;
    struct verdict_state state = {.content_type = str_of_cstr(s->content_type),
                                  .life = s->life,
                                  .tail = s->tape.tail,
                                  .closed = s->end != END_NONE,
                                  .closed_by = s->closed_by,
                                  .producer = p == NULL ? NULL : &p->state,
                                  .last_seq = s->last_seq};
    int v = verdict_write(&state, w);
    if (v == VERDICT_APPLY && p == NULL && w->claim.id.n > 0 &&
        s->producers.n >= STORE_PRODUCERS_MAX)
        v = ERR_LIMIT;
    if (v == VERDICT_APPLY)
        v = check_docs(m, w->docs, w->n_docs);
    if (v == VERDICT_APPLY)
        apply(m, s, w);
    if (v == VERDICT_DUPLICATE)
        touch(m, s);
    w->duplicate = v == VERDICT_DUPLICATE;
    w->info = info_of(s);
    return v == VERDICT_DUPLICATE ? 0 : v;
}

static void run_write(struct task *t)
{
    struct store_write *w = container_of(t, struct store_write, call.task);
    struct mem *m = mem_of(w->call.store);
    struct stream *s;
    int err = find(m, w->name, &s);
    if (w->create != NULL && err == ERR_DELETED)
        err = ERR_EXISTS;
    else if (w->create != NULL && err == ERR_NOT_FOUND)
        err = create(m, w);
    else if (w->create != NULL && err == 0)
        err = confirm(w, s);
    else if (err == 0)
        err = append(m, s, w);
    w->done(w, err);
}

/* ---- the others ---- */

static void run_remove(struct task *t)
{
    struct store_remove *r = container_of(t, struct store_remove, call.task);
    struct mem *m = mem_of(r->call.store);
    struct stream *s;
    int err = find(m, r->name, &s);
    if (err == 0)
        remove_stream(m, s);
    r->done(r, err);
}

static void run_stat(struct task *t)
{
    struct store_stat *st = container_of(t, struct store_stat, call.task);
    struct stream *s;
    int err = find(mem_of(st->call.store), st->name, &s);
    if (err == 0)
        st->info = info_of(s);
    st->done(st, err);
}

static int read_stream(struct mem *m, struct store_read *r)
{
    struct stream *s;
    int err = find(m, r->name, &s);
    if (err != 0)
        return err;
    r->info = info_of(s);
    if (r->touch)
        touch(m, s);
    r->start = r->from == READ_TAIL ? s->tape.tail : 0;
    if (r->from == READ_AT)
        err = resolve(s, r->at, &r->start, &r->gap.reason);
    if (err == ERR_GAP) {
        r->gap.requested = r->at;
        r->gap.earliest = (struct offset){s->life, r->info.first};
    }
    if (err != 0)
        return err;
    r->n_slices = tape_read(&s->tape, r->start, r->max_bytes, r->slices, READ_SLICES, &r->next);
    r->last = r->n_slices > 0 ? tape_event_before(&s->tape, r->next) : r->next;
    return 0;
}

static void run_read(struct task *t)
{
    struct store_read *r = container_of(t, struct store_read, call.task);
    r->n_slices = 0;
    r->done(r, read_stream(mem_of(r->call.store), r));
}

/* Both listings gather what matches, sort it, and cut: simple, and O(streams) a call. */

static bool listed(struct str key, struct str prefix, struct str after)
{
    return str_starts(key, prefix) && (after.n == 0 || str_cmp(key, after) > 0);
}

static int by_name(const void *a, const void *b)
{
    return str_cmp(((const struct store_row *)a)->name, ((const struct store_row *)b)->name);
}

static void run_list(struct task *t)
{
    struct store_list *l = container_of(t, struct store_list, call.task);
    struct mem *m = mem_of(l->call.store);
    struct store_row *rows = mem_alloc((m->streams.n + 1) * sizeof *rows);
    size_t n = 0, at = 0;
    for (struct stream *s; (s = map_next(&m->streams, &at)) != NULL;)
        if (!s->deleted && !expired(m, s) && listed(name_of(s), l->prefix, l->after))
            rows[n++] = (struct store_row){name_of(s), info_of(s)};
    qsort(rows, n, sizeof *rows, by_name);
    l->rows = rows;
    l->n_rows = n < l->limit ? n : l->limit;
    l->more = n > l->limit;
    l->done(l, 0);
    free(rows);
}

static int by_key(const void *a, const void *b)
{
    return str_cmp(((const struct doc_row *)a)->key, ((const struct doc_row *)b)->key);
}

static void run_docs(struct task *t)
{
    struct store_docs *q = container_of(t, struct store_docs, call.task);
    struct mem *m = mem_of(q->call.store);
    struct doc_row *rows = mem_alloc((m->docs.n + 1) * sizeof *rows);
    size_t n = 0, at = 0;
    for (struct doc *d; (d = map_next(&m->docs, &at)) != NULL;)
        if (listed(d->key, q->prefix, q->after))
            rows[n++] = (struct doc_row){d->key, d->value, d->version};
    qsort(rows, n, sizeof *rows, by_key);
    q->rows = rows;
    q->n_rows = n < q->limit ? n : q->limit;
    q->more = n > q->limit;
    q->done(q, 0);
    free(rows);
}

static void run_put(struct task *t)
{
    struct store_put *p = container_of(t, struct store_put, call.task);
    struct mem *m = mem_of(p->call.store);
    int err = check_docs(m, p->docs, p->n_docs);
    if (err == 0)
        put_docs(m, p->docs, p->n_docs);
    p->done(p, err);
}

static void post(struct store *s, struct store_call *call, void (*run)(struct task *t))
{
    call->store = s;
    task_init(&call->task, run);
    sched_post(s->sched, &call->task);
}

static void mem_write(struct store *s, struct store_write *w)
{
    w->created = w->duplicate = false;
    post(s, &w->call, run_write);
}

static void mem_remove(struct store *s, struct store_remove *r)
{
    post(s, &r->call, run_remove);
}

static void mem_stat(struct store *s, struct store_stat *st)
{
    post(s, &st->call, run_stat);
}

static void mem_read(struct store *s, struct store_read *r)
{
    post(s, &r->call, run_read);
}

static void mem_list(struct store *s, struct store_list *l)
{
    post(s, &l->call, run_list);
}

static void mem_docs(struct store *s, struct store_docs *d)
{
    post(s, &d->call, run_docs);
}

static void mem_put(struct store *s, struct store_put *p)
{
    post(s, &p->call, run_put);
}

static void mem_watch(struct store *s, struct store_watch *w)
{
    watchers_add(&mem_of(s)->watchers, w);
}

static void mem_unwatch(struct store *s, struct store_watch *w)
{
    watchers_remove(&mem_of(s)->watchers, w);
}

static void mem_free(struct store *s)
{
    struct mem *m = mem_of(s);
    timer_stop(&m->sweep);
    size_t at = 0;
    for (struct stream *st; (st = map_next(&m->streams, &at)) != NULL;)
        free_stream(st);
    at = 0;
    for (struct doc *d; (d = map_next(&m->docs, &at)) != NULL;)
        free_doc(d);
    map_deinit(&m->streams);
    map_deinit(&m->docs);
    watchers_deinit(&m->watchers);
    free(m);
}

static const struct store_ops ops = {
    .write = mem_write,
    .remove = mem_remove,
    .stat = mem_stat,
    .read = mem_read,
    .list = mem_list,
    .docs = mem_docs,
    .put = mem_put,
    .watch = mem_watch,
    .unwatch = mem_unwatch,
    .free = mem_free,
};

struct store *mem_store_new(struct sched *sched)
{
    struct mem *m = mem_zalloc(sizeof *m);
    m->store = (struct store){&ops, sched};
    map_init(&m->streams);
    map_init(&m->docs);
    watchers_init(&m->watchers, sched);
    list_init(&m->expiring);
    timer_init(&m->sweep, sweep);
    sched_start(sched, &m->sweep, SWEEP_MS);
    return &m->store;
}
