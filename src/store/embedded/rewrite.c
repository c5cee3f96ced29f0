// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/rewrite.h"
#include "base/buf.h"
#include "base/err.h"
#include "store/catalog/extent.h"

#include <stdlib.h>

#define ROWS_MAX 65536 /* kept in memory; the others have their turn the next time */
#define ROW_COST 64    /* bytes of the budget, so that many rows of few bytes are bounded too */
#define ENOUGH   1     /* stops the index: no error */

struct resident {
    uint64_t life;
    struct block_info block;
};

struct rows {
    struct buf all; /* of struct resident, those of one block one after another */
    size_t n;
    uint64_t left; /* of the budget */
    struct place last;
};

static void spend(uint64_t *budget, uint64_t bytes)
{
    *budget -= bytes < *budget ? bytes : *budget;
}

static bool rewrite_is_same(const struct place *a, const struct place *b)
{
    return a->segment == b->segment && a->offset == b->offset;
}

static int rewrite_keep_row(void *ctx, uint64_t life, const struct block_info *b)
{
    struct rows *r = ctx;
    struct resident row = {life, *b};
    if (r->n == 0 || !rewrite_is_same(&r->last, &b->place)) {
        if (r->left == 0 || r->n >= ROWS_MAX)
            return ENOUGH;
        spend(&r->left, b->place.bytes);
    }
    spend(&r->left, ROW_COST);
    r->last = b->place;
    r->n++;
    buf_put(&r->all, str_of((const char *)&row, sizeof row));
    return 0;
}

/* The block of the first of these rows, if it can be read; then all of them tell of its new place.
 */
static int move_block(struct rewrite *w, const struct resident *rows, size_t n)
{
    const struct block_info *old = &rows[0].block;
    struct block_info moved;
    struct extent *c;
    if (segment_read(w->vfs, old->life, old->first, old->place, &c) != 0)
        return 0;
    int err = segment_add(w->to, old->life, c, &moved);
    extent_unref(c);
    if (err != 0)
        return err;
    spend(&w->budget, moved.place.bytes + n * ROW_COST);
    w->blocks++;
    for (size_t i = 0; i < n; i++) {
        struct block_info b = rows[i].block; /* of a fork's row the end may be another */
        b.place = moved.place;
        w->moved(w->ctx, rows[i].life, &b);
    }
    return 0;
}

static int move_rows(struct rewrite *w, const struct resident *rows, size_t n)
{
    int err = 0;
    for (size_t i = 0, same; i < n && err == 0; i += same) {
        for (same = 1; i + same < n; same++)
            if (!rewrite_is_same(&rows[i].block.place, &rows[i + same].block.place))
                break;
        err = move_block(w, rows + i, same);
    }
    return err;
}

int rewrite_segment(struct rewrite *w, uint64_t id)
{
    struct rows rows = {.left = w->budget};
    int err = index_segment_blocks(w->index, id, rewrite_keep_row, &rows);
    if (err == 0 || err == ENOUGH)
        err = move_rows(w, (const struct resident *)(const void *)rows.all.p, rows.n);
    buf_deinit(&rows.all);
    return err;
}

bool rewrite_is_due(const struct index_segment *s)
{
    return s->live_bytes < s->bytes / 3;
}
