// SPDX-License-Identifier: Apache-2.0
#include "store/tape.h"
#include "base/err.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

#define CHUNK_MIN       512
#define CHUNK_MAX       (64 * 1024) /* a larger append has a chunk of its own */

/* Where an event ends, relative to the chunk; the top bit says that its append ends there too. */
#define MARK_APPEND_END 0x80000000u
#define MARK_END(m)     ((m) & ~MARK_APPEND_END)

struct chunk {
    uint32_t refs;
    uint32_t n_marks, cap_marks;
    uint64_t first; /* position of its first byte */
    struct block *bytes;
    uint32_t *marks;
};

struct tape_piece {
    struct chunk *chunk;
    uint64_t end; /* position; at most that of the chunk's end */
};

static void chunk_unref(struct chunk *c)
{
    if (--c->refs > 0)
        return;
    block_unref(c->bytes);
    free(c->marks);
    free(c);
}

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

/* The last piece if n bytes fit behind it and no fork shares it, else a new one. */
static struct tape_piece *piece_for(struct tape *t, size_t n)
{
    size_t cap = CHUNK_MIN;
    if (t->n > 0) {
        struct tape_piece *last = &t->pieces[t->n - 1];
        struct block *b = last->chunk->bytes;
        if (last->chunk->refs == 1 && last->end == last->chunk->first + b->n && b->cap - b->n >= n)
            return last;
        cap = b->cap * 2u;
    }
    if (cap > CHUNK_MAX)
        cap = CHUNK_MAX;
    if (cap < n)
        cap = n;
    struct chunk *c = mem_zalloc(sizeof *c);
    c->refs = 1;
    c->first = t->tail;
    c->bytes = block_new((uint32_t)cap);
    return add_piece(t, c, t->tail);
}

static void add_marks(struct chunk *c, uint32_t base, uint32_t size, const uint32_t *ends,
                      uint32_t n)
{
    uint32_t count = ends == NULL ? 1 : n;
    if (c->cap_marks - c->n_marks < count) {
        while (c->cap_marks - c->n_marks < count)
            c->cap_marks = c->cap_marks ? c->cap_marks * 2 : 4;
        c->marks = mem_realloc(c->marks, c->cap_marks * sizeof *c->marks);
    }
    for (uint32_t i = 0; i < count; i++)
        c->marks[c->n_marks++] = base + (ends == NULL ? size : ends[i]);
    c->marks[c->n_marks - 1] |= MARK_APPEND_END;
}

void tape_append(struct tape *t, struct str data, const uint32_t *ends, uint32_t n)
{
    assert(data.n > 0 && data.n < MARK_APPEND_END);
    assert(ends == NULL || (n > 0 && ends[n - 1] == data.n));
    struct tape_piece *p = piece_for(t, data.n);
    struct block *b = p->chunk->bytes;
    memcpy(b->bytes + b->n, data.p, data.n);
    add_marks(p->chunk, b->n, (uint32_t)data.n, ends, n);
    b->n += (uint32_t)data.n;
    t->tail += data.n;
    p->end = t->tail;
}

/* The piece that holds the byte at pos; pos < tail. */
static uint32_t find_piece(const struct tape *t, uint64_t pos)
{
    uint32_t low = 0, high = t->n - 1;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (t->pieces[mid].end > pos)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

/* Index of the first mark that ends behind `at` (relative); n_marks if there is none. */
static uint32_t find_mark(const struct chunk *c, uint64_t at)
{
    uint32_t low = 0, high = c->n_marks;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (MARK_END(c->marks[mid]) > at)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

bool tape_is_boundary(const struct tape *t, uint64_t pos)
{
    if (pos == t->tail)
        return true;
    if (pos > t->tail)
        return false;
    const struct chunk *c = t->pieces[find_piece(t, pos)].chunk;
    if (pos == c->first)
        return true;
    uint32_t i = find_mark(c, pos - c->first);
    return i > 0 && MARK_END(c->marks[i - 1]) == pos - c->first;
}

int tape_advance(const struct tape *t, uint64_t pos, uint64_t sub, bool events, uint64_t *out)
{
    if (sub > 0 && pos >= t->tail)
        return ERR_FORK_OFFSET;
    if (sub == 0) {
        *out = pos;
        return 0;
    }
    const struct tape_piece *p = &t->pieces[find_piece(t, pos)];
    const struct chunk *c = p->chunk;
    uint32_t i = find_mark(c, pos - c->first), last = i;
    while (!(c->marks[last] & MARK_APPEND_END))
        last++;
    uint64_t append_end = c->first + MARK_END(c->marks[last]);
    if (append_end > p->end)
        append_end = p->end; /* a fork may have taken only part of it */
    uint64_t target = pos + sub;
    if (events) {
        if (sub > last - i + 1)
            return ERR_FORK_OFFSET;
        target = c->first + MARK_END(c->marks[i + sub - 1]);
    }
    if (target > append_end || target < pos)
        return ERR_FORK_OFFSET;
    *out = target;
    return 0;
}

void tape_fork(const struct tape *t, uint64_t at, struct tape *to)
{
    assert(at <= t->tail && to->n == 0);
    for (uint32_t i = 0; i < t->n && t->pieces[i].chunk->first < at; i++) {
        struct tape_piece *p = &t->pieces[i];
        p->chunk->refs++;
        add_piece(to, p->chunk, p->end < at ? p->end : at);
    }
    to->tail = at;
}

/* Where a read of about max bytes from `from` on ends within this piece. */
static uint64_t cut(const struct tape_piece *p, uint64_t from, size_t max)
{
    if (p->end - from <= max)
        return p->end;
    const struct chunk *c = p->chunk;
    uint32_t first = find_mark(c, from - c->first);
    uint32_t behind = find_mark(c, from - c->first + max);
    uint64_t end = c->first + MARK_END(c->marks[behind > first ? behind - 1 : first]);
    return end < p->end ? end : p->end;
}

uint32_t tape_read(const struct tape *t, uint64_t from, size_t max, struct slice *slices,
                   uint32_t room, uint64_t *next)
{
    uint32_t n = 0;
    uint64_t pos = from;
    uint32_t i = pos < t->tail ? find_piece(t, pos) : t->n;
    for (; i < t->n && n < room; i++) {
        size_t left = max - (size_t)(pos - from);
        const struct tape_piece *p = &t->pieces[i];
        uint64_t end = cut(p, pos, left);
        if (n > 0 && end - pos > left)
            break; /* one event more than asked for is only taken when it is the first */
        slices[n] = slice_of(p->chunk->bytes, pos - p->chunk->first, end - p->chunk->first);
        block_ref(slices[n++].owner);
        pos = end;
        if (end < p->end || (size_t)(pos - from) >= max)
            break;
    }
    *next = pos;
    return n;
}

uint64_t tape_event_before(const struct tape *t, uint64_t end)
{
    const struct chunk *c = t->pieces[find_piece(t, end - 1)].chunk;
    uint32_t i = find_mark(c, end - 1 - c->first);
    return c->first + (i == 0 ? 0 : MARK_END(c->marks[i - 1]));
}
