// SPDX-License-Identifier: Apache-2.0
/* catalog_family.c -- forks, and the streams that they were forked from.
 *
 * A stream owns what was written for it. What a fork has before its fork point is its source's, or
 * that one's source's: nothing is copied, in memory or on disk, so that a fork costs the same
 * whatever it was made of, and however many there are.
 *
 * So a stream keeps what it owns for as long as itself or a fork can read it, also when it has
 * been trimmed or deleted. Each fork says from where on it still needs its source (`low`); two
 * heaps know the lowest of these, and the highest fork point of those that need anything at all. A
 * fork needs less as time goes by, never more. */
#include "store/catalog/catalog_core.h"
#include "base/err.h"

#include <assert.h>

#define NOTHING UINT64_MAX

enum { LOWEST, HIGHEST };

/* ---- who needs what ---- */

static bool is_needy(const struct stream_fork *f)
{
    return f->needs[LOWEST].place > 0;
}

/* What its source has to keep may change with it. */
static bool is_decisive(const struct stream_fork *f)
{
    return f->needs[LOWEST].place == 1 || f->needs[HIGHEST].place == 1;
}

static void need_nothing(struct stream_fork *f)
{
    struct heap *heaps = f->source->family->heaps;
    heap_remove(&heaps[LOWEST], &f->needs[LOWEST]);
    heap_remove(&heaps[HIGHEST], &f->needs[HIGHEST]);
}

/* ---- what has to be kept ---- */

static const struct heap_item *first_of(const struct stream *s, int which)
{
    return s->family == NULL ? NULL : heap_first(&s->family->heaps[which]);
}

static uint64_t needed_from(const struct stream *s, uint64_t own)
{
    const struct heap_item *first = first_of(s, LOWEST);
    uint64_t forks = first == NULL ? NOTHING : (uint64_t)first->key;
    if (s->deleted)
        return forks;
    return forks < own ? forks : own;
}

uint64_t stream_needed_from(const struct stream *s)
{
    return needed_from(s, s->first);
}

uint64_t stream_needed_upto(const struct stream *s)
{
    const struct heap_item *first = first_of(s, HIGHEST);
    if (!s->deleted)
        return UINT64_MAX;
    return first == NULL ? 0 : (uint64_t)-first->key;
}

void stream_shed(struct catalog *c, struct stream *s)
{
    for (bool decisive = true; decisive;) {
        uint64_t need = needed_from(s, s->settled_first);
        if (need > s->tape.first)
            tape_drop(&s->tape, need < s->tape.tail ? need : s->tape.tail);
        if (s->deleted)
            tape_cut(&s->tape, stream_needed_upto(s));
        struct stream_fork *f = s->fork;
        if (f == NULL || !is_needy(f) || need == f->low)
            return;
        decisive = is_decisive(f);
        if (decisive && c->shrinking != NULL)
            c->shrinking(c, f->source);
        assert(need > f->low);
        f->low = need;
        if (need < f->at)
            heap_put(&f->source->family->heaps[LOWEST], &f->needs[LOWEST], (int64_t)need);
        else
            need_nothing(f);
        s = f->source;
    }
}

/* ---- joining and leaving ---- */

static void need_from(struct stream_fork *f, uint64_t low)
{
    struct heap *heaps = f->source->family->heaps;
    f->low = low;
    heap_put(&heaps[LOWEST], &f->needs[LOWEST], (int64_t)low);
    heap_put(&heaps[HIGHEST], &f->needs[HIGHEST], -(int64_t)f->at);
}

/* Where families are loaded, a fork may be older than what its source has been trimmed to, and then
 * that one's source has to keep more than it knew of. */
void stream_join(struct stream *s, struct stream *source)
{
    struct stream_fork *f = s->fork;
    if (source->family == NULL) {
        source->family = mem_zalloc(sizeof *source->family);
        list_init(&source->family->forks);
    }
    f->source = source;
    f->depth = stream_depth(source) + 1;
    list_push(&source->family->forks, &f->link);
    f->low = UINT64_MAX;
    for (uint64_t low = s->first; f != NULL && f->source != NULL; f = f->source->fork) {
        if (f->whole || low >= f->at || low >= f->low)
            break;
        need_from(f, low);
    }
}

static void free_family(struct stream *s)
{
    if (s->family == NULL)
        return;
    while (!list_empty(&s->family->forks))
        list_remove(s->family->forks.next);
    heap_deinit(&s->family->heaps[LOWEST]);
    heap_deinit(&s->family->heaps[HIGHEST]);
    free(s->family);
    s->family = NULL;
}

struct stream *stream_leave(struct catalog *c, struct stream *s)
{
    struct stream_fork *f = s->fork;
    struct stream *source = f == NULL ? NULL : f->source;
    if (source == NULL)
        return NULL;
    bool decisive = is_decisive(f);
    if (decisive && c->shrinking != NULL)
        c->shrinking(c, source);
    if (is_needy(f))
        need_nothing(f);
    list_remove(&f->link);
    f->source = NULL;
    if (list_empty(&source->family->forks))
        free_family(source);
    if (decisive)
        stream_shed(c, source);
    return source;
}

void stream_free_family(struct stream *s)
{
    if (s->fork != NULL) {
        list_remove(&s->fork->link);
        text_free(&s->fork->config.fork_of);
        free(s->fork);
    }
    free_family(s);
}

struct stream *stream_any_fork(const struct stream *s)
{
    if (s->family == NULL)
        return NULL;
    return list_item(s->family->forks.next, struct stream_fork, link)->stream;
}

/* ---- whose is what ---- */

struct span stream_span(const struct stream *s, uint64_t pos)
{
    struct span span = {.upto = UINT64_MAX, .events = UINT64_MAX};
    for (const struct stream_fork *f; (f = s->fork) != NULL && pos < f->at; s = f->source) {
        if (f->whole || f->source == NULL)
            break;
        if (f->at < span.upto) {
            span.upto = f->at;
            span.events = f->events;
        }
    }
    span.owner = s;
    return span;
}

struct span stream_span_of_event(const struct stream *s, uint64_t event)
{
    struct span span = {.upto = UINT64_MAX, .events = UINT64_MAX};
    for (const struct stream_fork *f; (f = s->fork) != NULL && !f->whole; s = f->source) {
        if (event >= f->events || f->source == NULL)
            break;
        if (f->at < span.upto) {
            span.upto = f->at;
            span.events = f->events;
        }
    }
    span.owner = s;
    return span;
}

bool stream_origin(const struct stream *s, uint64_t life, uint64_t *upto)
{
    *upto = UINT64_MAX;
    while (s->life > life && s->fork != NULL && s->fork->source != NULL) {
        if (s->fork->at < *upto)
            *upto = s->fork->at;
        s = s->fork->source;
    }
    return s->life == life;
}

struct origin stream_writer(const struct stream *s, uint64_t pos)
{
    struct origin o = {.upto = UINT64_MAX};
    while (s->fork != NULL && pos < s->fork->at && s->fork->source != NULL) {
        if (s->fork->at < o.upto)
            o.upto = s->fork->at;
        s = s->fork->source;
    }
    o.life = s->life;
    return o;
}

/* ---- events in memory ---- */

bool stream_holds(const struct stream *s, uint64_t pos)
{
    return pos >= stream_span(s, pos).owner->tape.first;
}

uint32_t stream_read_held(const struct stream *s, uint64_t from, uint64_t limit, size_t max,
                          struct slice *slices, uint32_t room, uint64_t *next, uint64_t *last)
{
    uint32_t n = 0;
    *next = *last = from;
    while (*next < limit && n < room && (n == 0 || *next - from < max)) {
        struct span span = stream_span(s, *next);
        uint64_t at = *next;
        if (at < span.owner->tape.first)
            break;
        n += tape_read(&span.owner->tape, at, span.upto < limit ? span.upto : limit,
                       max - (size_t)(at - from), slices + n, room - n, next, last);
        if (*next < span.upto)
            break;
    }
    return n;
}

uint64_t stream_ordinal(const struct stream *s, uint64_t pos)
{
    return tape_ordinal(&stream_span(s, pos).owner->tape, pos);
}

int stream_fill_read(const struct stream *s, struct store_read *r)
{
    const struct tape *tape = &stream_span(s, r->start).owner->tape;
    if (!tape_is_boundary(tape, r->start))
        return ERR_OFFSET;
    r->ordinal = tape_ordinal(tape, r->start);
    r->n_slices = stream_read_held(s, r->start, s->settled_tail, r->max_bytes, r->slices,
                                   READ_SLICES, &r->next, &r->last);
    r->last_ordinal = r->last == r->start ? r->ordinal : stream_ordinal(s, r->last);
    return 0;
}
