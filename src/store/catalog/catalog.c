// SPDX-License-Identifier: Apache-2.0
#include "store/catalog/catalog_core.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "store/content.h"
#include "store/catalog/verdict.h"

#include <stdlib.h>

#define YEAR_2020_MS 1577836800000

/* ---- time ---- */

static void catalog_step(struct catalog *c, int64_t by_ms)
{
    c->wall_ms += by_ms;
    c->stepped_ms += by_ms;
    if (by_ms < 0)
        c->trusted_ms = c->wall_ms;
    if (c->store->stepped != NULL)
        c->store->stepped(c->store->stepped_ctx, by_ms);
}

/* A machine without a clock of its own begins in 1970, or when it was made. */
static bool catalog_is_possible(int64_t wall_ms)
{
    return wall_ms >= YEAR_2020_MS;
}

int64_t catalog_wall_ms(struct catalog *c)
{
    int64_t clock = c->sched->wall_ms, passed = (int64_t)(c->sched->now_ms - c->mono_ms);
    int64_t jump = clock - c->wall_ms - passed;
    c->mono_ms = c->sched->now_ms;
    if (c->ticking && catalog_is_possible(clock) &&
        (jump > CATALOG_LEAD_MS || jump < -CATALOG_LEAD_MS)) {
        c->wall_ms += passed;
        catalog_step(c, jump);
    }
    if (c->ticking && !catalog_is_possible(clock))
        c->wall_ms += passed;
    if (clock > c->wall_ms)
        c->wall_ms = clock;
    return c->wall_ms;
}

void catalog_start_clock(struct catalog *c)
{
    int64_t clock = c->sched->wall_ms, lead = c->wall_ms - clock;
    if (lead > CATALOG_LEAD_MS && catalog_is_possible(clock))
        catalog_step(c, -lead);
    else if (lead < 0)
        c->wall_ms = clock;
    c->mono_ms = c->sched->now_ms;
    c->stepped_ms = 0;
    c->started_ms = c->trusted_ms = c->wall_ms;
    c->ticking = true;
}

/* ---- streams ---- */

/* The tape holds all that is not settled. A trim that is not makes no difference worth a field. */
static uint64_t settled_events(const struct stream *s)
{
    if (!s->settled)
        return 0;
    return s->deleted || s->settled_tail >= s->tape.tail ? s->tape.events
                                                         : tape_ordinal(&s->tape, s->settled_tail);
}

struct stream_info stream_info_of(const struct stream *s)
{
    const struct stream_term *t = s->term;
    return (struct stream_info){.life = s->life,
                                .first = s->settled_first,
                                .tail = s->settled_tail,
                                .first_event = s->first_event,
                                .events = settled_events(s),
                                .bytes = s->settled_tail - s->settled_first,
                                .content_type = s->content_type,
                                .ttl_s = t == NULL ? STORE_TTL_NONE : t->ttl_s,
                                .expires_ms = t == NULL ? STORE_TTL_NONE : t->expires_ms,
                                .retain = t == NULL ? (struct retain){0} : t->retain,
                                .end = s->settled_end};
}

struct stream_config stream_config_of(const struct stream *s)
{
    if (s->fork != NULL)
        return s->fork->config;
    struct stream_info info = stream_info_of(s);
    return (struct stream_config){
        .ttl_s = info.ttl_s, .expires_ms = info.expires_ms, .retain = info.retain};
}

/* Most streams have one of a few content types. */
struct type_text {
    struct catalog *catalog;
    size_t refs, n;
    char bytes[];
};

static struct str type_ref(struct catalog *c, struct str text)
{
    struct type_text *t = map_get(&c->types, text);
    if (t == NULL) {
        t = mem_alloc(sizeof *t + text.n);
        *t = (struct type_text){.catalog = c, .n = text.n};
        memcpy(t->bytes, text.p, text.n);
        map_put(&c->types, str_of(t->bytes, t->n), t);
    }
    t->refs++;
    return str_of(t->bytes, t->n);
}

static void type_unref(struct str text)
{
    struct type_text *t =
        (struct type_text *)((uintptr_t)text.p - offsetof(struct type_text, bytes));
    if (--t->refs > 0)
        return;
    map_remove(&t->catalog->types, text);
    free(t);
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

static void free_guard(struct stream *s)
{
    if (s->guard == NULL)
        return;
    text_free(&s->guard->closed_by.id);
    text_free(&s->guard->last_seq);
    free(s->guard);
}

static void free_stream(struct stream *s)
{
    tape_deinit(&s->tape);
    free_producers(s);
    free(s->term);
    stream_free_family(s);
    free_guard(s);
    list_remove(&s->dirty);
    type_unref(s->content_type);
    free(s);
}

void stream_unpin(struct stream *s)
{
    must(s->pins > 0);
    if (--s->pins == 0 && s->removed)
        free_stream(s);
}

void stream_show(struct catalog *c, struct stream *s)
{
    if (!s->settled && !s->deleted && !s->removed)
        order_put(&c->names, s);
    s->settled = true;
}

static void hide(struct catalog *c, struct stream *s)
{
    if (s->settled && !s->deleted)
        order_remove(&c->names, s);
}

static void take_out(struct catalog *c, struct stream *s)
{
    hide(c, s);
    map_remove(&c->streams, s->name);
    catalog_end_term(c, s);
    s->removed = true;
    s->pins++;
    stream_unpin(s);
}

void catalog_remove(struct catalog *c, struct stream *s)
{
    do {
        watchers_changed(&c->watchers, s->name);
        if (c->removing != NULL)
            c->removing(c, s);
        if (s->family != NULL) {
            hide(c, s);
            s->deleted = true;
            catalog_end_term(c, s);
            stream_shed(c, s);
            return;
        }
        struct stream *source = stream_leave(c, s);
        take_out(c, s);
        s = source;
    } while (s != NULL && s->deleted && s->family == NULL);
}

int catalog_find(struct catalog *c, struct str name, struct stream **out)
{
    struct stream *s = map_get(&c->streams, name);
    if (s != NULL && !s->deleted && stream_expired(c, s)) {
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

int stream_resolve(const struct stream *s, struct offset at, uint64_t *pos, enum gap_reason *reason)
{
    if (offset_is_zero(at)) {
        *pos = s->settled_first;
        return 0;
    }
    uint64_t upto = s->settled_tail;
    bool known = at.life == s->life || stream_origin(s, at.life, &upto);
    if (!known || at.pos > upto) {
        *reason = !known && at.life < s->life ? GAP_REBORN : GAP_UNKNOWN;
        return ERR_GAP;
    }
    if (at.pos < s->settled_first) {
        *reason = GAP_TRIMMED;
        return ERR_GAP;
    }
    *pos = at.pos;
    return 0;
}

int stream_seek(const struct stream *s, uint64_t event, uint64_t *pos, enum gap_reason *reason)
{
    uint64_t events = settled_events(s), ignored;
    *reason = event > events ? GAP_UNKNOWN : GAP_TRIMMED;
    if (event > events || event < s->first_event)
        return ERR_GAP;
    *pos = s->settled_tail;
    if (event == events)
        return 0;
    struct span span = stream_span_of_event(s, event);
    const struct tape *t = &span.owner->tape;
    if (event < tape_ordinal(t, t->first)) {
        const struct stream_fork *f = span.owner->fork;
        *pos = f == NULL || f->whole || f->at < s->settled_first ? s->settled_first : f->at;
        return STREAM_LOOK;
    }
    struct keep keep = {.event = event, .ms = INT64_MIN, .tail = s->tape.tail};
    *pos = tape_keep_from(t, span.upto, &keep, &ignored);
    return 0;
}

/* ---- judging a write ---- */

static struct str type_of(const struct stream_config *config, const struct stream *source)
{
    return config->content_type.n > 0 ? config->content_type : source->content_type;
}

/* Where the tape holds the fork point, it can say where that is. */
static int place_in_tape(struct judgement *j, uint64_t sub)
{
    struct span span = stream_span(j->source, j->fork_anchor);
    const struct tape *t = &span.owner->tape;
    bool events = content_kind(j->source->content_type) == CONTENT_JSON;
    if (!tape_is_boundary(t, j->fork_anchor))
        return ERR_FORK_OFFSET;
    int err = tape_advance(t, span.upto, j->fork_anchor, sub, events, &j->fork_at);
    if (err == 0) /* a part of an event counts as one */
        j->fork_events = tape_ordinal(t, j->fork_at) +
                         (tape_is_boundary(t, j->fork_at) || j->fork_at == t->tail ? 0 : 1);
    return err;
}

static int judge_fork(struct catalog *c, struct store_write *w, struct judgement *j,
                      int (*find_fork_position)(void *ctx, struct judgement *j), void *ctx)
{
    const struct stream_config *config = w->create;
    int err = catalog_find(c, config->fork_of, &j->source);
    if (err != 0)
        return err == ERR_DELETED ? ERR_FORK_DELETED : ERR_FORK_SOURCE;
    if (stream_depth(j->source) >= c->store->fork_depth)
        return ERR_FORK_DEPTH;
    enum gap_reason reason;
    j->fork_anchor = j->source->tape.tail;
    if (!config->fork_at_tail &&
        stream_resolve(j->source, config->fork_at, &j->fork_anchor, &reason) != 0)
        return ERR_FORK_OFFSET;
    if (j->fork_anchor < j->source->first)
        return ERR_FORK_OFFSET; /* about to be trimmed */
    if (config->content_type.n > 0 && !content_same(config->content_type, j->source->content_type))
        return ERR_TYPE_MISMATCH;
    if (!stream_holds(j->source, j->fork_anchor))
        return find_fork_position(ctx, j);
    return place_in_tape(j, config->fork_sub);
}

static int judge_create(struct catalog *c, struct store_write *w, struct judgement *j,
                        int (*find_fork_position)(void *ctx, struct judgement *j), void *ctx)
{
    if (w->create->fork_of.n > 0) {
        int err = judge_fork(c, w, j, find_fork_position, ctx);
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
    info.first = s->first;
    info.tail = s->tape.tail;
    info.events = s->tape.events;
    info.bytes = s->tape.tail - s->first;
    info.end = s->end;
    return info;
}

static struct producer *claimant(const struct store_write *w, const struct stream *s)
{
    return w->claim.id.n > 0 && s->producers != NULL ? map_get(s->producers, w->claim.id) : NULL;
}

/* By this very write, whose answer was lost. */
static bool was_created(struct store_write *w, const struct stream *s)
{
    const struct producer *p = claimant(w, s);
    uint64_t expected;
    if (p == NULL || producer_check(&p->state, &w->claim, &expected) != PRODUCER_DUPLICATE)
        return false;
    w->producer = p->state;
    return true;
}

/* The same PUT again: a success that changes nothing. */
static int judge_confirm(struct store_write *w, const struct stream *s)
{
    struct stream_config config = stream_config_of(s);
    w->created = was_created(w, s);
    if (w->created)
        return VERDICT_DUPLICATE;
    bool same = verdict_same_config(&config, w->create, s->content_type) &&
                w->close == (s->end != END_NONE);
    return same ? VERDICT_DUPLICATE : ERR_EXISTS;
}

static int judge_append(struct store_write *w, struct stream *s)
{
    static const struct stream_guard no_guard;
    const struct stream_guard *guard = s->guard == NULL ? &no_guard : s->guard;
    struct producer *p = claimant(w, s);
    struct verdict_state state = {.content_type = s->content_type,
                                  .life = s->life,
                                  .tail = s->tape.tail,
                                  .closed = s->end != END_NONE,
                                  .closed_by = guard->closed_by,
                                  .producer = p == NULL ? NULL : &p->state,
                                  .last_seq = guard->last_seq};
    int v = verdict_write(&state, w);
    bool new_producer = w->claim.id.n > 0 && p == NULL && s->producers != NULL;
    if (v == VERDICT_APPLY && new_producer && s->producers->n >= STORE_PRODUCERS_MAX)
        return ERR_LIMIT;
    return v;
}

int catalog_judge(struct catalog *c, struct store_write *w, struct judgement *j,
                  int (*find_fork_position)(void *ctx, struct judgement *j), void *ctx)
{
    *j = (struct judgement){0};
    int v = catalog_find(c, w->name, &j->stream);
    if (j->stream == NULL)
        w->info = (struct stream_info){0}; /* it may have been judged before, with one */
    if (w->create != NULL && v == ERR_DELETED)
        return ERR_EXISTS;
    if (w->create != NULL && v == ERR_NOT_FOUND)
        v = judge_create(c, w, j, find_fork_position, ctx);
    else if (w->create != NULL && v == 0)
        v = judge_confirm(w, j->stream);
    else if (v == 0)
        v = judge_append(w, j->stream);
    if (v == VERDICT_APPLY)
        v = catalog_check_docs(c, w->docs, w->n_docs);
    if (j->stream != NULL)
        w->info = applied_info(j->stream);
    w->duplicate = v == VERDICT_DUPLICATE && (w->create == NULL || w->created);
    return v;
}

/* ---- applying it ---- */

void stream_set_fork(struct stream *s, const struct stream_config *config, uint64_t at,
                     uint64_t events)
{
    struct stream_fork *f = s->fork = mem_zalloc(sizeof *f);
    f->stream = s;
    f->config = *config;
    f->config.content_type = STR_NONE;
    f->config.fork_of = text_dup(config->fork_of);
    f->at = at;
    f->events = events;
    list_init(&f->link);
}

void stream_fork_from(struct stream *s, const struct stream_config *config, struct stream *source,
                      uint64_t at, uint64_t events)
{
    stream_set_fork(s, config, at, events);
    tape_begin(&s->tape, at, events);
    bool empty = source->first >= at;
    stream_trim(s, empty ? at : source->first, empty ? events : source->first_event);
    s->settled_first = s->first;
    stream_join(s, source);
}

struct stream *catalog_add(struct catalog *c, struct str name, uint64_t life,
                           const struct stream_config *term, struct str content_type)
{
    struct stream *s = mem_zalloc(sizeof *s + name.n);
    memcpy(s->name_bytes, name.p, name.n);
    s->name = str_of(s->name_bytes, name.n);
    s->life = life;
    s->content_type = type_ref(c, content_type);
    list_init(&s->dirty);
    catalog_add_term(c, s, term);
    map_put(&c->streams, s->name, s);
    if (life > c->lives)
        c->lives = life;
    return s;
}

/* A fork takes over from its source what it does not ask for. */
static struct stream_config term_of(const struct stream_config *config, const struct stream *source)
{
    struct stream_config term = *config;
    if (source == NULL)
        return term;
    struct stream_info info = stream_info_of(source);
    if (config->ttl_s < 0 && config->expires_ms < 0) {
        term.ttl_s = info.ttl_s;
        term.expires_ms = info.expires_ms;
    }
    if (!retain_any(&config->retain))
        term.retain = info.retain;
    return term;
}

static struct stream *catalog_create(struct catalog *c, const struct store_write *w,
                                     const struct judgement *j)
{
    const struct stream_config *config = w->create;
    struct stream_config term = term_of(config, j->source);
    struct stream *s = catalog_add(c, w->name, c->lives + 1, &term, type_of(config, j->source));
    if (j->source != NULL)
        stream_fork_from(s, config, j->source, j->fork_at, j->fork_events);
    return s;
}

static struct stream_guard *guard_of(struct stream *s)
{
    if (s->guard == NULL)
        s->guard = mem_zalloc(sizeof *s->guard);
    return s->guard;
}

void stream_set_seq(struct stream *s, struct str seq)
{
    struct stream_guard *g = guard_of(s);
    text_free(&g->last_seq);
    g->last_seq = text_dup(seq);
}

void stream_set_end(struct stream *s, enum end_reason end, const struct producer_claim *by)
{
    s->end = end;
    if (by->id.n == 0)
        return;
    struct stream_guard *g = guard_of(s);
    text_free(&g->closed_by.id);
    g->closed_by = *by;
    g->closed_by.id = text_dup(by->id);
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
    struct stream *s = j->stream != NULL ? j->stream : catalog_create(c, w, j);
    int64_t now_ms = catalog_wall_ms(c);
    w->created = j->stream == NULL;
    if (w->data.n > 0) {
        catalog_split_by_age(c, s, now_ms);
        if (w->block != NULL)
            tape_append_block(&s->tape, w->block, w->ends, w->n_events, w->ends_in, now_ms);
        else
            tape_append(&s->tape, w->data, w->ends, w->n_events, now_ms);
        if (s->term != NULL)
            stream_look_for_age(c, s);
    }
    if (w->claim.id.n > 0)
        stream_set_producer(s, &w->claim);
    if (w->seq.p != NULL)
        stream_set_seq(s, w->seq);
    if (w->close)
        stream_set_end(s, w->end, &w->claim);
    catalog_put_docs(c, w->docs, w->n_docs);
    stream_touch(c, s);
    struct trim trim;
    enum trim_verdict v = catalog_judge_trim(c, s, &trim);
    w->call.trimmed = v == TRIM_TO;
    if (w->call.trimmed)
        stream_trim(s, trim.first, trim.event);
    if (v != TRIM_NONE)
        stream_look_soon(c, s); /* was that all? And what of that which rests? */
    w->info = applied_info(s);
    return s;
}

void catalog_settle(struct catalog *c, struct stream *s, const struct stream_info *applied)
{
    stream_show(c, s);
    s->settled_tail = applied->tail;
    s->settled_end = applied->end;
    stream_settle_trim(c, s, applied->first);
    if (!s->removed)
        watchers_changed(&c->watchers, s->name);
}

/* ---- the whole ---- */

static struct str catalog_name_of(const void *stream)
{
    return ((const struct stream *)stream)->name;
}

static struct str catalog_key_of(const void *doc)
{
    return ((const struct doc *)doc)->key;
}

void catalog_init(struct catalog *c, const struct store *store)
{
    *c = (struct catalog){.store = store, .sched = store->sched};
    map_init(&c->streams);
    map_init(&c->docs);
    map_init(&c->types);
    order_init(&c->names, catalog_name_of);
    order_init(&c->keys, catalog_key_of);
    watchers_init(&c->watchers, store->sched);
    catalog_init_sweep(c);
}

void catalog_deinit(struct catalog *c)
{
    catalog_stop_sweep(c);
    heap_deinit(&c->due);
    heap_deinit(&c->dated);
    order_deinit(&c->names);
    order_deinit(&c->keys);
    size_t at = 0;
    for (struct stream *s; (s = map_next(&c->streams, &at)) != NULL;)
        free_stream(s);
    map_deinit(&c->streams);
    catalog_free_docs(c);
    map_deinit(&c->types);
    watchers_deinit(&c->watchers);
}
