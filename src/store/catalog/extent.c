// SPDX-License-Identifier: Apache-2.0
#include "store/catalog/extent.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"

#include <stdlib.h>

struct extent *extent_new(uint64_t first, uint64_t ordinal, uint32_t cap)
{
    struct extent *c = mem_zalloc(sizeof *c);
    c->refs = 1;
    c->first = first;
    c->ordinal = ordinal;
    c->bytes = block_new(cap);
    return c;
}

struct extent *extent_ref(struct extent *c)
{
    c->refs++;
    return c;
}

void extent_unref(struct extent *c)
{
    if (c == NULL || --c->refs > 0)
        return;
    block_unref(c->bytes);
    free(c->marks);
    free(c);
}

size_t extent_size(const struct extent *c)
{
    return sizeof *c + sizeof *c->bytes + c->bytes->cap + c->cap_marks * sizeof *c->marks;
}

static void reserve_marks(struct extent *c, uint32_t n)
{
    if (c->cap_marks - c->n_marks >= n)
        return;
    uint32_t cap = c->cap_marks ? c->cap_marks * 2 : 4;
    if (cap - c->n_marks < n)
        cap = c->n_marks + n;
    c->marks = mem_realloc(c->marks, cap * sizeof *c->marks);
    c->cap_marks = cap;
}

/* Of an append of data_n bytes behind those that are there. */
static void put_marks(struct extent *c, uint32_t behind, size_t data_n, const uint32_t *ends,
                      uint32_t n)
{
    uint32_t count = ends == NULL ? 1 : n;
    must(data_n > 0 && data_n < MARK_APPEND_END);
    must(ends == NULL || (n > 0 && ends[n - 1] == data_n));
    reserve_marks(c, count);
    for (uint32_t i = 0; i < count; i++)
        c->marks[c->n_marks++] = behind + (ends == NULL ? (uint32_t)data_n : ends[i]);
    c->marks[c->n_marks - 1] |= MARK_APPEND_END;
}

/* The same, in the memory that they came in. */
static void take_marks(struct extent *c, size_t data_n, struct buf *ends, uint32_t n)
{
    must(data_n > 0 && data_n < MARK_APPEND_END && n > 0 && ends->n == n * sizeof *c->marks);
    c->marks = (uint32_t *)(void *)ends->p;
    c->n_marks = n;
    c->cap_marks = (uint32_t)(ends->cap / sizeof *c->marks);
    must(c->marks[n - 1] == data_n);
    c->marks[n - 1] |= MARK_APPEND_END;
    *ends = (struct buf){0};
}

struct extent *extent_of(uint64_t first, uint64_t ordinal, struct block *data, const uint32_t *ends,
                         uint32_t n, struct buf *ends_in, int64_t now_ms)
{
    struct extent *c = mem_zalloc(sizeof *c);
    c->refs = 1;
    c->first = first;
    c->ordinal = ordinal;
    c->bytes = block_ref(data);
    c->oldest_ms = c->newest_ms = now_ms;
    if (ends_in != NULL)
        take_marks(c, data->n, ends_in, n);
    else
        put_marks(c, 0, data->n, ends, n);
    return c;
}

void extent_append(struct extent *c, struct str data, const uint32_t *ends, uint32_t n,
                   int64_t now_ms)
{
    struct block *b = c->bytes;
    must(data.n <= b->cap - b->n);
    put_marks(c, b->n, data.n, ends, n);
    memcpy(b->bytes + b->n, data.p, data.n);
    if (b->n == 0)
        c->oldest_ms = now_ms;
    c->newest_ms = now_ms;
    b->n += (uint32_t)data.n;
}

static void join_one(struct extent *c, const struct extent *part)
{
    struct block *b = c->bytes;
    must(part->first == extent_end(c) && part->ordinal == c->ordinal + c->n_marks);
    for (uint32_t i = 0; i < part->n_marks; i++)
        c->marks[c->n_marks++] = part->marks[i] + b->n; /* the top bit stays as it is */
    memcpy(b->bytes + b->n, part->bytes->bytes, part->bytes->n);
    b->n += part->bytes->n;
    c->newest_ms = part->newest_ms;
}

struct extent *extent_join(struct extent *const *parts, size_t n)
{
    size_t bytes = 0, marks = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += parts[i]->bytes->n;
        marks += parts[i]->n_marks;
    }
    must(n > 0 && bytes < MARK_APPEND_END);
    struct extent *c = extent_new(parts[0]->first, parts[0]->ordinal, (uint32_t)bytes);
    reserve_marks(c, (uint32_t)marks);
    c->oldest_ms = parts[0]->oldest_ms;
    for (size_t i = 0; i < n; i++)
        join_one(c, parts[i]);
    return c;
}

uint32_t extent_mark_after(const struct extent *c, uint64_t pos)
{
    uint64_t at = pos - c->first;
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

bool extent_is_boundary(const struct extent *c, uint64_t pos)
{
    if (pos == c->first)
        return true;
    uint32_t i = extent_mark_after(c, pos);
    return i > 0 && MARK_END(c->marks[i - 1]) == pos - c->first;
}

int extent_advance(const struct extent *c, uint64_t end, uint64_t pos, uint64_t sub, bool events,
                   uint64_t *out)
{
    uint32_t i = extent_mark_after(c, pos), last = i;
    while (!(c->marks[last] & MARK_APPEND_END))
        last++;
    uint64_t append_end = c->first + MARK_END(c->marks[last]);
    if (append_end > end)
        append_end = end; /* a fork may have taken only part of it */
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

static uint64_t event_start(const struct extent *c, uint32_t i)
{
    return c->first + (i == 0 ? 0 : MARK_END(c->marks[i - 1]));
}

/* Index of the first event that begins at pos or behind it. */
static uint32_t event_from(const struct extent *c, uint64_t pos)
{
    if (pos <= c->first)
        return 0;
    uint32_t i = extent_mark_after(c, pos);
    return i < c->n_marks && event_start(c, i) < pos ? i + 1 : i;
}

uint64_t extent_keep_from(const struct extent *c, uint64_t end, const struct keep *k,
                          uint64_t *event)
{
    uint32_t all = extent_mark_after(c, end - 1) + 1; /* a part of an event counts as one */
    uint32_t from = event_from(c, k->pos);
    if (from >= all && end == k->tail)
        from = all - 1;
    if (k->event > c->ordinal && k->event - c->ordinal > from)
        from = k->event - c->ordinal < all ? (uint32_t)(k->event - c->ordinal) : all;
    if (keep_is_over(k, c->newest_ms))
        from = all;
    if (from > all)
        from = all;
    *event = c->ordinal + from;
    return from == all ? end : event_start(c, from);
}
