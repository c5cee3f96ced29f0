// SPDX-License-Identifier: Apache-2.0
#include "store/catalog.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/content.h"
#include "store/verdict.h"

#include <assert.h>
#include <stdlib.h>

#define SWEEP_MS      1000
#define SWEEP_AT_ONCE 1024

static struct str own(struct str s)
{
    if (s.p == NULL)
        return s;
    return str_of(memcpy(mem_alloc(s.n + 1), s.p, s.n), s.n);
}

static void disown(struct str *s)
{
    free((char *)(uintptr_t)s->p);
    *s = STR_NONE;
}

int64_t catalog_wall_ms(struct catalog *c)
{
    if (c->sched->wall_ms > c->wall_ms)
        c->wall_ms = c->sched->wall_ms;
    return c->wall_ms;
}

/* ---- streams ---- */

struct stream_info stream_info_of(const struct stream *s)
{
    return (struct stream_info){.life = s->life,
                                .first = s->first,
                                .tail = s->settled_tail,
                                .content_type = s->content_type,
                                .ttl_s = s->ttl_s,
                                .expires_ms = s->expires_ms,
                                .end = s->settled_end};
}

static void free_producers(struct stream *s)
{
    if (s->producers == NULL)
        return;
    size_t at = 0;
    for (struct producer *p; (p = map_next(s->producers, &at)) != NULL;)
        free(p);
    map_deinit(s->producers);
    free(s->producers);
}

static void free_stream(struct stream *s)
{
    tape_deinit(&s->tape);
    free_producers(s);
    list_remove(&s->expiring);
    list_remove(&s->dirty);
    disown(&s->config.content_type);
    disown(&s->config.fork_of);
    disown(&s->closed_by.id);
    disown(&s->last_seq);
    disown(&s->content_type);
    disown(&s->name);
    free(s->origins);
    free(s);
}

void stream_unpin(struct stream *s)
{
    assert(s->pins > 0);
    if (--s->pins == 0 && s->removed)
        free_stream(s);
}

static void take_out(struct catalog *c, struct stream *s)
{
    map_remove(&c->streams, s->name);
    list_remove(&s->expiring);
    s->removed = true;
    s->pins++;
    stream_unpin(s);
}

void catalog_remove(struct catalog *c, struct stream *s)
{
    watchers_changed(&c->watchers, s->name);
    if (c->removing != NULL)
        c->removing(c, s);
    if (s->forks > 0) {
        s->deleted = true;
        tape_deinit(&s->tape); /* forks hold what is theirs */
        list_remove(&s->expiring);
        return;
    }
    struct stream *source = s->source;
    take_out(c, s);
    if (source != NULL && --source->forks == 0 && source->deleted)
        catalog_remove(c, source);
}

static bool expired(struct catalog *c, const struct stream *s)
{
    int64_t now = catalog_wall_ms(c);
    return (s->ttl_s >= 0 && now >= s->touched_ms + s->ttl_s * 1000) ||
           (s->expires_ms >= 0 && now >= s->expires_ms);
}

int catalog_find(struct catalog *c, struct str name, struct stream **out)
{
    struct stream *s = map_get(&c->streams, name);
    if (s != NULL && !s->deleted && expired(c, s)) {
        catalog_remove(c, s);
        s = map_get(&c->streams, name);
    }
    if (s == NULL)
        return ERR_NOT_FOUND;
    if (s->deleted)
        return ERR_DELETED;
    *out = s;
    return 0;
}

void stream_touch(struct catalog *c, struct stream *s)
{
    s->touched_ms = catalog_wall_ms(c);
}

static void sweep(struct timer *t)
{
    struct catalog *c = container_of(t, struct catalog, sweep);
    for (int i = 0; i < SWEEP_AT_ONCE && !list_empty(&c->expiring); i++) {
        struct stream *s = list_item(c->expiring.next, struct stream, expiring);
        list_remove(&s->expiring);
        list_push(&c->expiring, &s->expiring);
        if (expired(c, s))
            catalog_remove(c, s);
    }
    sched_start(c->sched, &c->sweep, SWEEP_MS);
}

void catalog_start_sweep(struct catalog *c)
{
    sched_start(c->sched, &c->sweep, SWEEP_MS);
}

int stream_resolve(const struct stream *s, struct offset at, uint64_t *pos, enum gap_reason *reason)
{
    if (offset_is_zero(at)) {
        *pos = s->first;
        return 0;
    }
    uint64_t upto = s->settled_tail;
    bool known = at.life == s->life;
    for (uint32_t i = 0; i < s->n_origins && !known; i++) {
        known = at.life == s->origins[i].life;
        upto = s->origins[i].upto;
    }
    if (!known || at.pos > upto) {
        *reason = !known && at.life < s->life ? GAP_REBORN : GAP_UNKNOWN;
        return ERR_GAP;
    }
    if (at.pos < s->first) {
        *reason = GAP_TRIMMED;
        return ERR_GAP;
    }
    *pos = at.pos;
    return 0;
}

struct origin stream_writer(const struct stream *s, uint64_t pos)
{
    for (uint32_t i = 0; i < s->n_origins; i++)
        if (pos < s->origins[i].upto)
            return s->origins[i];
    return (struct origin){s->life, UINT64_MAX};
}

/* ---- documents ---- */

static void free_doc(struct doc *d)
{
    list_remove(&d->dirty);
    disown(&d->key);
    disown(&d->value);
    free(d);
}

void catalog_forget_doc(struct catalog *c, struct doc *d)
{
    map_remove(&c->docs, d->key);
    free_doc(d);
}

static uint64_t doc_version(struct catalog *c, struct str key)
{
    const struct doc *d = map_get(&c->docs, key);
    return d == NULL || d->value.p == NULL ? 0 : d->version;
}

int catalog_check_docs(struct catalog *c, const struct doc_put *puts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (doc_version(c, puts[i].key) != puts[i].expect_version)
            return ERR_VERSION;
    return 0;
}

static void put_doc(struct catalog *c, const struct doc_put *put)
{
    struct doc *d = map_get(&c->docs, put->key);
    if (put->value.p == NULL && !c->keep_removed_docs) {
        if (d != NULL)
            catalog_forget_doc(c, d);
        return;
    }
    if (d == NULL) {
        d = mem_zalloc(sizeof *d);
        d->key = own(put->key);
        list_init(&d->dirty);
        map_put(&c->docs, d->key, d);
    }
    disown(&d->value);
    d->value = own(put->value);
    d->version = DOC_NEXT(put->expect_version);
}

void catalog_put_docs(struct catalog *c, const struct doc_put *puts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_doc(c, &puts[i]);
}

/* ---- judging a write ---- */

static struct str type_of(const struct stream_config *config, const struct stream *source)
{
    return config->content_type.n > 0 ? config->content_type : source->content_type;
}

/* Where the tape holds the fork point, it can say where that is. */
static int place_in_tape(struct judgement *j, uint64_t sub)
{
    const struct tape *t = &j->source->tape;
    bool events = content_kind(j->source->content_type) == CONTENT_JSON;
    if (!tape_is_boundary(t, j->fork_anchor))
        return ERR_FORK_OFFSET;
    int err = tape_advance(t, j->fork_anchor, sub, events, &j->fork_at);
    if (err == 0) /* a part of an event counts as one */
        j->fork_events = tape_ordinal(t, j->fork_at) +
                         (tape_is_boundary(t, j->fork_at) || j->fork_at == t->tail ? 0 : 1);
    return err;
}

static int judge_fork(struct catalog *c, struct store_write *w, struct judgement *j,
                      int (*place_fork)(void *ctx, struct judgement *j), void *ctx)
{
    const struct stream_config *config = w->create;
    int err = catalog_find(c, config->fork_of, &j->source);
    if (err != 0)
        return err == ERR_DELETED ? ERR_FORK_DELETED : ERR_FORK_SOURCE;
    enum gap_reason reason;
    j->fork_anchor = j->source->tape.tail;
    if (!config->fork_at_tail &&
        stream_resolve(j->source, config->fork_at, &j->fork_anchor, &reason) != 0)
        return ERR_FORK_OFFSET;
    if (config->content_type.n > 0 && !content_same(config->content_type, j->source->content_type))
        return ERR_TYPE_MISMATCH;
    if (j->fork_anchor < j->source->tape.first)
        return place_fork(ctx, j);
    return place_in_tape(j, config->fork_sub);
}

static int judge_create(struct catalog *c, struct store_write *w, struct judgement *j,
                        int (*place_fork)(void *ctx, struct judgement *j), void *ctx)
{
    if (w->create->fork_of.n > 0) {
        int err = judge_fork(c, w, j, place_fork, ctx);
        if (err != 0)
            return err;
    }
    /* A stream that is to be made has no producers and no Stream-Seq yet. */
    struct verdict_state state = {.content_type = type_of(w->create, j->source),
                                  .tail = j->fork_at};
    return verdict_write(&state, w);
}

static struct stream_info applied_info(const struct stream *s)
{
    struct stream_info info = stream_info_of(s);
    info.tail = s->tape.tail;
    info.end = s->end;
    return info;
}

/* The same PUT again: a success that changes nothing. */
static int judge_confirm(struct store_write *w, const struct stream *s)
{
    bool same = verdict_same_config(&s->config, w->create, s->content_type) &&
                w->close == (s->end != END_NONE);
    return same ? VERDICT_DUPLICATE : ERR_EXISTS;
}

static int judge_append(struct store_write *w, struct stream *s)
{
    struct producer *p = NULL;
    if (w->claim.id.n > 0 && s->producers != NULL)
        p = map_get(s->producers, w->claim.id);
    struct verdict_state state = {.content_type = s->content_type,
                                  .life = s->life,
                                  .tail = s->tape.tail,
                                  .closed = s->end != END_NONE,
                                  .closed_by = s->closed_by,
                                  .producer = p == NULL ? NULL : &p->state,
                                  .last_seq = s->last_seq};
    int v = verdict_write(&state, w);
    bool new_producer = w->claim.id.n > 0 && p == NULL && s->producers != NULL;
    if (v == VERDICT_APPLY && new_producer && s->producers->n >= STORE_PRODUCERS_MAX)
        return ERR_LIMIT;
    return v;
}

int catalog_judge(struct catalog *c, struct store_write *w, struct judgement *j,
                  int (*place_fork)(void *ctx, struct judgement *j), void *ctx)
{
    *j = (struct judgement){0};
    int v = catalog_find(c, w->name, &j->stream);
    if (w->create != NULL && v == ERR_DELETED)
        return ERR_EXISTS;
    if (w->create != NULL && v == ERR_NOT_FOUND)
        v = judge_create(c, w, j, place_fork, ctx);
    else if (w->create != NULL && v == 0)
        v = judge_confirm(w, j->stream);
    else if (v == 0)
        v = judge_append(w, j->stream);
    if (v == VERDICT_APPLY)
        v = catalog_check_docs(c, w->docs, w->n_docs);
    if (j->stream != NULL)
        w->info = applied_info(j->stream);
    w->duplicate = v == VERDICT_DUPLICATE && w->create == NULL;
    return v;
}

/* ---- applying it ---- */

void stream_fork_from(struct stream *s, struct stream *source, uint64_t at, uint64_t events)
{
    tape_fork(&source->tape, at, events, &s->tape);
    s->first = source->first < at ? source->first : at;
    s->rest_life = source->rest_life;
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

struct stream *catalog_add(struct catalog *c, struct str name, uint64_t life,
                           const struct stream_config *config, struct str content_type)
{
    struct stream *s = mem_zalloc(sizeof *s);
    s->name = own(name);
    s->life = s->rest_life = life;
    s->config = *config;
    s->config.content_type = own(config->content_type);
    s->config.fork_of = own(config->fork_of);
    s->content_type = own(content_type);
    s->ttl_s = config->ttl_s;
    s->expires_ms = config->expires_ms;
    list_init(&s->expiring);
    list_init(&s->dirty);
    map_put(&c->streams, s->name, s);
    if (life > c->lives)
        c->lives = life;
    return s;
}

static struct stream *create(struct catalog *c, const struct store_write *w,
                             const struct judgement *j)
{
    const struct stream_config *config = w->create;
    struct stream *s = catalog_add(c, w->name, c->lives + 1, config, type_of(config, j->source));
    if (config->ttl_s < 0 && config->expires_ms < 0 && j->source != NULL) {
        s->ttl_s = j->source->ttl_s;
        s->expires_ms = j->source->expires_ms;
    }
    if (s->ttl_s >= 0 || s->expires_ms >= 0)
        list_push(&c->expiring, &s->expiring);
    if (j->source != NULL)
        stream_fork_from(s, j->source, j->fork_at, j->fork_events);
    return s;
}

void stream_set_producer(struct stream *s, const struct producer_claim *claim)
{
    if (s->producers == NULL) {
        s->producers = mem_alloc(sizeof *s->producers);
        map_init(s->producers);
    }
    struct producer *p = map_get(s->producers, claim->id);
    if (p == NULL) {
        p = mem_alloc(sizeof *p + claim->id.n);
        p->n = claim->id.n;
        memcpy(p->id, claim->id.p, claim->id.n);
        map_put(s->producers, str_of(p->id, p->n), p);
    }
    p->state = (struct producer_state){claim->epoch, claim->seq};
    p->dirty = true;
}

struct stream *catalog_apply(struct catalog *c, struct store_write *w, const struct judgement *j)
{
    struct stream *s = j->stream != NULL ? j->stream : create(c, w, j);
    w->created = j->stream == NULL;
    if (w->data.n > 0)
        tape_append(&s->tape, w->data, w->ends, w->n_events, catalog_wall_ms(c));
    if (w->claim.id.n > 0)
        stream_set_producer(s, &w->claim);
    if (w->seq.p != NULL) {
        disown(&s->last_seq);
        s->last_seq = own(w->seq);
    }
    if (w->close) {
        s->end = w->end;
        s->closed_by = w->claim;
        s->closed_by.id = own(w->claim.id);
    }
    catalog_put_docs(c, w->docs, w->n_docs);
    stream_touch(c, s);
    w->info = applied_info(s);
    return s;
}

void catalog_settle(struct catalog *c, struct stream *s, uint64_t tail, enum end_reason end)
{
    s->settled = true;
    s->settled_tail = tail;
    s->settled_end = end;
    if (!s->removed)
        watchers_changed(&c->watchers, s->name);
}

/* ---- listings ---- */

/* Both gather what matches, sort it, and cut: simple, and O(streams) a call. */

static bool listed(struct str key, struct str prefix, struct str after)
{
    return str_starts(key, prefix) && (after.n == 0 || str_cmp(key, after) > 0);
}

static int by_name(const void *a, const void *b)
{
    return str_cmp(((const struct store_row *)a)->name, ((const struct store_row *)b)->name);
}

void catalog_list(struct catalog *c, struct store_list *l)
{
    struct store_row *rows = mem_alloc((c->streams.n + 1) * sizeof *rows);
    size_t n = 0, at = 0;
    for (struct stream *s; (s = map_next(&c->streams, &at)) != NULL;)
        if (!s->deleted && s->settled && !expired(c, s) && listed(s->name, l->prefix, l->after))
            rows[n++] = (struct store_row){s->name, stream_info_of(s)};
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

void catalog_find_docs(struct catalog *c, struct store_docs *q)
{
    struct doc_row *rows = mem_alloc((c->docs.n + 1) * sizeof *rows);
    size_t n = 0, at = 0;
    for (struct doc *d; (d = map_next(&c->docs, &at)) != NULL;)
        if (d->value.p != NULL && listed(d->key, q->prefix, q->after))
            rows[n++] = (struct doc_row){d->key, d->value, d->version};
    qsort(rows, n, sizeof *rows, by_key);
    q->rows = rows;
    q->n_rows = n < q->limit ? n : q->limit;
    q->more = n > q->limit;
}

void catalog_docs(struct catalog *c, struct store_docs *q)
{
    catalog_find_docs(c, q);
    struct doc_row *rows = q->rows;
    q->done(q, 0);
    free(rows);
}

/* ---- the whole ---- */

void catalog_init(struct catalog *c, struct sched *sched)
{
    *c = (struct catalog){.sched = sched};
    map_init(&c->streams);
    map_init(&c->docs);
    watchers_init(&c->watchers, sched);
    list_init(&c->expiring);
    timer_init(&c->sweep, sweep);
}

void catalog_deinit(struct catalog *c)
{
    timer_stop(&c->sweep);
    size_t at = 0;
    for (struct stream *s; (s = map_next(&c->streams, &at)) != NULL;)
        free_stream(s);
    at = 0;
    for (struct doc *d; (d = map_next(&c->docs, &at)) != NULL;)
        free_doc(d);
    map_deinit(&c->streams);
    map_deinit(&c->docs);
    watchers_deinit(&c->watchers);
}
