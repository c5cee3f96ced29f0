// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/merge.h"
#include "base/err.h"
#include "base/must.h"
#include "store/catalog/extent.h"
#include "store/embedded/segment_format.h"

#define ROWS_MAX 1024 /* of one block */
#define ROW_COST 256  /* bytes of the budget: rows of the index are changed for each block */
#define ENOUGH   1    /* stops the index: no error */

void merge_init(struct merge *m, struct vfs *vfs)
{
    shelf_init(&m->shelf, vfs);
}

void merge_deinit(struct merge *m)
{
    shelf_deinit(&m->shelf);
    buf_deinit(&m->rows);
    buf_deinit(&m->parts);
}

/* ---- which ---- */

/* What is found from the end of a stream on backwards. */
struct choice {
    struct merge *merge;
    uint64_t life, first;
    int64_t span_ms, oldest_ms, newest_ms;
    size_t n, chosen;
    uint64_t bytes, largest;
    struct block_info last; /* that was taken */
};

/* Each byte comes into a block that is several times as large as the one it was in. */
static bool is_worth_it(const struct choice *c)
{
    return c->largest * c->merge->fan <= 2 * c->bytes;
}

static uint64_t content_bytes(const struct block_info *b)
{
    return b->place.bytes - SEGMENT_BLOCK_HEAD - SEGMENT_SUM;
}

/* It is the stream's own, and ends where the one that was taken last begins. */
static bool is_next(const struct choice *c, const struct block_info *b)
{
    if (b->life != c->life || b->first < c->first)
        return false;
    return c->n == 0 || (b->end == c->last.first && b->ordinal + b->events == c->last.ordinal);
}

static bool is_in_time(struct choice *c, const struct block_info *b)
{
    if (c->n == 0 || b->oldest_ms < c->oldest_ms)
        c->oldest_ms = b->oldest_ms;
    if (c->n == 0 || b->newest_ms > c->newest_ms)
        c->newest_ms = b->newest_ms;
    return c->newest_ms - c->oldest_ms <= c->span_ms;
}

static int merge_look(void *ctx, const struct block_info *b)
{
    struct choice *c = ctx;
    uint64_t bytes = content_bytes(b);
    if (bytes >= MERGE_BYTES / 2 || !is_next(c, b) || !is_in_time(c, b))
        return ENOUGH;
    if (c->bytes + bytes > MERGE_BYTES || c->n == ROWS_MAX) {
        if (c->bytes >= MERGE_BYTES / 2 && is_worth_it(c))
            c->chosen = c->n; /* there will be no more that could be taken with these */
        return ENOUGH;
    }
    buf_put(&c->merge->rows, str_of((const char *)b, sizeof *b));
    c->last = *b;
    c->n++;
    c->bytes += bytes;
    if (bytes > c->largest)
        c->largest = bytes;
    if (c->n >= c->merge->fan && is_worth_it(c))
        c->chosen = c->n;
    return 0;
}

/* ---- reading ---- */

static struct extent **parts_of(struct merge *m)
{
    return (struct extent **)(void *)m->parts.p;
}

/* Whether the row tells of all of the block: of one that a stream was cut in it does not. */
static bool is_all_of(const struct block_info *row, const struct extent *c)
{
    return extent_end(c) == row->end && c->ordinal == row->ordinal && c->n_marks == row->events;
}

/* 1: that is one; 0: it is left alone. */
static int read_part(struct merge *m, const struct block_info *row)
{
    struct extent *c;
    bool shared;
    int err = index_is_shared(m->index, row->life, &row->place, &shared);
    if (err != 0)
        return err;
    if (shared || segment_read(&m->shelf.vfs, row->life, row->first, row->place, &c) != 0)
        return 0;
    if (!is_all_of(row, c)) {
        extent_unref(c);
        return 0;
    }
    buf_put(&m->parts, str_of((const char *)&c, sizeof(struct extent *)));
    return 1;
}

static void spend(uint64_t *budget, uint64_t bytes)
{
    *budget -= bytes < *budget ? bytes : *budget;
}

/* As many of them as there are before one that is left alone. */
static int read_parts(struct merge *m, size_t n, size_t *out)
{
    const struct block_info *rows = (const struct block_info *)(const void *)m->rows.p;
    int more = 1;
    for (*out = 0; *out < n && (more = read_part(m, &rows[*out])) > 0; ++*out)
        spend(&m->budget, rows[*out].place.bytes + ROW_COST);
    return more < 0 ? more : 0;
}

/* ---- writing ---- */

static void turn_around(struct extent **parts, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        struct extent *other = parts[n - 1 - i];
        parts[n - 1 - i] = parts[i];
        parts[i] = other;
    }
}

static int write_merged(struct merge *m, uint64_t life, size_t n)
{
    struct block_info b;
    turn_around(parts_of(m), n);
    struct extent *c = extent_join(parts_of(m), n);
    int err = segment_add(m->to, life, c, &b);
    m->blocks += n; /* were to; if that is what the disk is too full for, there is less to do */
    extent_unref(c);
    if (err == 0)
        m->merged(m->ctx, life, &b);
    return err;
}

static int merge_chosen(struct merge *m, const struct choice *c)
{
    size_t n;
    m->parts.n = 0;
    int err = read_parts(m, c->chosen, &n);
    if (err == 0 && n >= m->fan)
        err = write_merged(m, c->life, n);
    for (size_t i = 0; i < n; i++)
        extent_unref(parts_of(m)[i]);
    return err;
}

int merge_stream(struct merge *m, uint64_t life, uint64_t first, int64_t span_ms)
{
    struct choice c = {.merge = m, .life = life, .first = first, .span_ms = span_ms};
    must(m->fan >= 2);
    if (m->budget == 0)
        return 0;
    m->rows.n = 0;
    int err = index_blocks_back(m->index, life, merge_look, &c);
    if (err != 0 && err != ENOUGH)
        return err;
    return c.chosen > 0 ? merge_chosen(m, &c) : 0;
}
