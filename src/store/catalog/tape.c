// SPDX-License-Identifier: Apache-2.0
#include "store/catalog/tape.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "store/catalog/extent.h"

#include <stdlib.h>

#define EXTENT_MIN 512

struct tape_piece {
    struct extent *extent;
    uint64_t end; /* position; at most that of the extent's end */
};

void tape_deinit(struct tape *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        extent_unref(t->pieces[i].extent);
    free(t->pieces);
    *t = (struct tape){0};
}

static struct tape_piece *add_piece(struct tape *t, struct extent *c, uint64_t end)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 1;
        t->pieces = mem_realloc(t->pieces, t->cap * sizeof *t->pieces);
    }
    t->pieces[t->n] = (struct tape_piece){c, end};
    return &t->pieces[t->n++];
}

/* The last piece if n bytes fit behind it and nobody else holds it, else a new one. */
static struct tape_piece *piece_for(struct tape *t, size_t n)
{
    size_t cap = EXTENT_MIN;
    if (t->n > 0) {
        struct tape_piece *last = &t->pieces[t->n - 1];
        struct block *b = last->extent->bytes;
        if (last->extent->refs == 1 && last->end == extent_end(last->extent) && b->cap - b->n >= n)
            return last;
        cap = b->cap * 2u;
    }
    if (cap > EXTENT_BYTES_MAX)
        cap = EXTENT_BYTES_MAX;
    if (cap < n)
        cap = n;
    return add_piece(t, extent_new(t->tail, t->events, (uint32_t)cap), t->tail);
}

static void tape_grow(struct tape *t, struct tape_piece *last, size_t bytes, uint64_t events)
{
    t->tail += bytes;
    t->events += events;
    last->end = t->tail;
}

void tape_append(struct tape *t, struct str data, const uint32_t *ends, uint32_t n, int64_t now_ms)
{
    struct tape_piece *p = piece_for(t, data.n);
    extent_append(p->extent, data, ends, n, now_ms);
    tape_grow(t, p, data.n, ends == NULL ? 1 : n);
}

void tape_append_block(struct tape *t, struct block *data, const uint32_t *ends, uint32_t n,
                       struct buf *ends_in, int64_t now_ms)
{
    must(data->n > EXTENT_BYTES_MAX && data->n == data->cap); /* nobody adds to it */
    struct extent *c = extent_of(t->tail, t->events, data, ends, n, ends_in, now_ms);
    tape_grow(t, add_piece(t, c, t->tail), data->n, ends == NULL ? 1 : n);
}

/* The piece that holds the byte at pos; first <= pos < tail. */
static const struct tape_piece *piece_at(const struct tape *t, uint64_t pos)
{
    uint32_t low = 0, high = t->n - 1;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (t->pieces[mid].end > pos)
            high = mid;
        else
            low = mid + 1;
    }
    return &t->pieces[low];
}

bool tape_is_boundary(const struct tape *t, uint64_t pos)
{
    if (pos >= t->tail)
        return pos == t->tail;
    return extent_is_boundary(piece_at(t, pos)->extent, pos);
}

uint64_t tape_ordinal(const struct tape *t, uint64_t pos)
{
    if (pos >= t->tail)
        return t->events;
    const struct extent *c = piece_at(t, pos)->extent;
    return c->ordinal + extent_mark_after(c, pos);
}

int tape_advance(const struct tape *t, uint64_t upto, uint64_t pos, uint64_t sub, bool events,
                 uint64_t *out)
{
    if (sub > 0 && pos >= t->tail)
        return ERR_FORK_OFFSET;
    if (sub == 0) {
        *out = pos;
        return 0;
    }
    const struct tape_piece *p = piece_at(t, pos);
    return extent_advance(p->extent, p->end < upto ? p->end : upto, pos, sub, events, out);
}

void tape_begin(struct tape *t, uint64_t at, uint64_t events)
{
    must(t->n == 0);
    *t = (struct tape){.first = at, .tail = at, .events = events};
}

/* Where a read of about max bytes from `from` on ends within this piece, and none behind limit. */
static uint64_t tape_piece_cut(const struct tape_piece *p, uint64_t from, uint64_t limit,
                               size_t max)
{
    uint64_t end = p->end < limit ? p->end : limit;
    if (end - from <= max)
        return end;
    const struct extent *c = p->extent;
    uint32_t first = extent_mark_after(c, from);
    uint32_t behind = extent_mark_after(c, from + max);
    uint64_t at = c->first + MARK_END(c->marks[behind > first ? behind - 1 : first]);
    return at < end ? at : end;
}

uint32_t tape_read(const struct tape *t, uint64_t from, uint64_t limit, size_t max,
                   struct slice *slices, uint32_t room, uint64_t *next, uint64_t *last)
{
    uint32_t n = 0;
    uint64_t pos = from;
    *next = *last = from;
    if (from >= t->tail) /* also: no pieces to point at */
        return 0;
    const struct tape_piece *p = piece_at(t, pos);
    for (; p < t->pieces + t->n && n < room && pos < limit; p++) {
        size_t left = max - (size_t)(pos - from);
        uint64_t end = tape_piece_cut(p, pos, limit, left);
        if (n > 0 && end - pos > left)
            break; /* one event more than asked for is only taken when it is the first */
        slices[n] = slice_of(p->extent->bytes, pos - p->extent->first, end - p->extent->first);
        block_ref(slices[n++].owner);
        uint32_t mark = extent_mark_after(p->extent, end - 1);
        *last = p->extent->first + (mark == 0 ? 0 : MARK_END(p->extent->marks[mark - 1]));
        pos = end;
        if (end < p->end || (size_t)(pos - from) >= max)
            break;
    }
    *next = pos;
    return n;
}

void tape_seal(struct tape *t)
{
    if (t->n == 0)
        return;
    struct block *b = t->pieces[t->n - 1].extent->bytes;
    b->cap = b->n;
}

int64_t tape_open_since(const struct tape *t)
{
    return t->n == 0 ? INT64_MAX : t->pieces[t->n - 1].extent->oldest_ms;
}

/* The last piece that begins with this event or one before it; else the first. */
static uint32_t piece_of_event(const struct tape *t, uint64_t event)
{
    uint32_t low = 0, high = t->n > 0 ? t->n - 1 : 0;
    while (low < high) {
        uint32_t mid = high - (high - low) / 2;
        if (t->pieces[mid].extent->ordinal <= event)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

uint64_t tape_keep_from(const struct tape *t, uint64_t upto, const struct keep *k, uint64_t *event)
{
    if (upto > t->tail)
        upto = t->tail;
    for (uint32_t i = piece_of_event(t, k->event); i < t->n; i++) {
        const struct tape_piece *p = &t->pieces[i];
        if (p->extent->first >= upto)
            break;
        uint64_t end = p->end < upto ? p->end : upto;
        uint64_t pos = extent_keep_from(p->extent, end, k, event);
        if (pos < end)
            return pos;
    }
    return upto;
}

void tape_drop(struct tape *t, uint64_t upto)
{
    uint32_t gone = 0;
    while (gone < t->n && t->pieces[gone].end <= upto)
        extent_unref(t->pieces[gone++].extent);
    t->n -= gone;
    if (t->n == 0) {
        free(t->pieces);
        t->pieces = NULL;
        t->cap = 0;
        if (upto < t->tail) /* it has been cut */
            upto = t->tail;
    } else if (gone > 0) {
        memmove(t->pieces, t->pieces + gone, t->n * sizeof *t->pieces);
    }
    if (upto > t->first)
        t->first = upto;
}

void tape_cut(struct tape *t, uint64_t from)
{
    while (t->n > 0 && t->pieces[t->n - 1].extent->first >= from)
        extent_unref(t->pieces[--t->n].extent);
    if (t->n == 0)
        tape_drop(t, t->tail);
}

struct extent *tape_extent(const struct tape *t, uint32_t i, uint64_t *end)
{
    *end = t->pieces[i].end;
    return t->pieces[i].extent;
}
