// SPDX-License-Identifier: Apache-2.0
#include "store/catalog/tape.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "store/catalog/chunk.h"

#include <stdlib.h>

#define CHUNK_MIN 512

struct tape_piece {
    struct chunk *chunk;
    uint64_t end; /* position; at most that of the chunk's end */
};

void tape_deinit(struct tape *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        chunk_unref(t->pieces[i].chunk);
    free(t->pieces);
    *t = (struct tape){0};
}

static struct tape_piece *add_piece(struct tape *t, struct chunk *c, uint64_t end)
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
    size_t cap = CHUNK_MIN;
    if (t->n > 0) {
        struct tape_piece *last = &t->pieces[t->n - 1];
        struct block *b = last->chunk->bytes;
        if (last->chunk->refs == 1 && last->end == chunk_end(last->chunk) && b->cap - b->n >= n)
            return last;
        cap = b->cap * 2u;
    }
    if (cap > CHUNK_BYTES_MAX)
        cap = CHUNK_BYTES_MAX;
    if (cap < n)
        cap = n;
    return add_piece(t, chunk_new(t->tail, t->events, (uint32_t)cap), t->tail);
}

void tape_append(struct tape *t, struct str data, const uint32_t *ends, uint32_t n, int64_t now_ms)
{
    struct tape_piece *p = piece_for(t, data.n);
    chunk_append(p->chunk, data, ends, n, now_ms);
    t->tail += data.n;
    t->events += ends == NULL ? 1 : n;
    p->end = t->tail;
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
    return chunk_is_boundary(piece_at(t, pos)->chunk, pos);
}

uint64_t tape_ordinal(const struct tape *t, uint64_t pos)
{
    if (pos >= t->tail)
        return t->events;
    const struct chunk *c = piece_at(t, pos)->chunk;
    return c->ordinal + chunk_mark_after(c, pos);
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
    return chunk_advance(p->chunk, p->end < upto ? p->end : upto, pos, sub, events, out);
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
    const struct chunk *c = p->chunk;
    uint32_t first = chunk_mark_after(c, from);
    uint32_t behind = chunk_mark_after(c, from + max);
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
        slices[n] = slice_of(p->chunk->bytes, pos - p->chunk->first, end - p->chunk->first);
        block_ref(slices[n++].owner);
        uint32_t mark = chunk_mark_after(p->chunk, end - 1);
        *last = p->chunk->first + (mark == 0 ? 0 : MARK_END(p->chunk->marks[mark - 1]));
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
    struct block *b = t->pieces[t->n - 1].chunk->bytes;
    b->cap = b->n;
}

int64_t tape_open_since(const struct tape *t)
{
    return t->n == 0 ? INT64_MAX : t->pieces[t->n - 1].chunk->oldest_ms;
}

/* The last piece that begins with this event or one before it; else the first. */
static uint32_t piece_of_event(const struct tape *t, uint64_t event)
{
    uint32_t low = 0, high = t->n > 0 ? t->n - 1 : 0;
    while (low < high) {
        uint32_t mid = high - (high - low) / 2;
        if (t->pieces[mid].chunk->ordinal <= event)
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
        if (p->chunk->first >= upto)
            break;
        uint64_t end = p->end < upto ? p->end : upto;
        uint64_t pos = chunk_keep_from(p->chunk, end, k, event);
        if (pos < end)
            return pos;
    }
    return upto;
}

void tape_drop(struct tape *t, uint64_t upto)
{
    uint32_t gone = 0;
    while (gone < t->n && t->pieces[gone].end <= upto)
        chunk_unref(t->pieces[gone++].chunk);
    t->n -= gone;
    if (t->n == 0) {
        free(t->pieces);
        t->pieces = NULL;
        t->cap = 0;
    } else if (gone > 0) {
        memmove(t->pieces, t->pieces + gone, t->n * sizeof *t->pieces);
    }
    if (upto > t->first)
        t->first = upto;
}

void tape_cut(struct tape *t, uint64_t from)
{
    while (t->n > 0 && t->pieces[t->n - 1].chunk->first >= from)
        chunk_unref(t->pieces[--t->n].chunk);
    if (t->n == 0)
        tape_drop(t, t->tail);
}

struct chunk *tape_chunk(const struct tape *t, uint32_t i, uint64_t *end)
{
    *end = t->pieces[i].end;
    return t->pieces[i].chunk;
}
