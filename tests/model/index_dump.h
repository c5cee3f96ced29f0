// SPDX-License-Identifier: Apache-2.0
/* index_dump.h -- everything in an index as text, to tell whether two are the same. */
#ifndef MODEL_INDEX_DUMP_H
#define MODEL_INDEX_DUMP_H

#include "base/buf.h"
#include "store/embedded/index.h"
#include "store/embedded/rebuild.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static inline void dump_bytes(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        buf_printf(out, "%02x", (unsigned char)s.p[i]);
}

static inline int dump_stream(void *ctx, uint64_t life, struct str row)
{
    buf_printf(ctx, "stream %" PRIu64 " ", life);
    dump_bytes(ctx, row);
    buf_putc(ctx, '\n');
    return 0;
}

static inline int dump_block(void *ctx, uint64_t life, const struct block_info *b)
{
    buf_printf(ctx,
               "block %" PRIu64 ": %" PRIu64 " %" PRIu64 "-%" PRIu64 " %" PRIu64 "+%" PRIu64
               " %" PRId64 "-%" PRId64 " at %" PRIu64 " %" PRIu64 " %" PRIu32 "\n",
               life, b->life, b->first, b->end, b->ordinal, b->events, b->oldest_ms, b->newest_ms,
               b->place.segment, b->place.offset, b->place.bytes);
    return 0;
}

static inline int dump_producer(void *ctx, uint64_t life, const struct producer_claim *p)
{
    buf_printf(ctx, "producer %" PRIu64 " ", life);
    dump_bytes(ctx, p->id);
    buf_printf(ctx, " %" PRIu64 " %" PRIu64 "\n", p->epoch, p->seq);
    return 0;
}

static inline int dump_doc(void *ctx, struct str key, uint64_t version, struct str value)
{
    buf_printf(ctx, "doc ");
    dump_bytes(ctx, key);
    buf_printf(ctx, " %" PRIu64 " ", version);
    dump_bytes(ctx, value);
    buf_putc(ctx, '\n');
    return 0;
}

static inline int dump_segment(void *ctx, const struct index_segment *s)
{
    buf_printf(ctx, "segment %" PRIu64 ": %" PRIu64 " rows, %" PRIu64 " bytes, %" PRIu64 " live\n",
               s->id, s->live_rows, s->bytes, s->live_bytes);
    return 0;
}

static inline void index_dump(struct index *i, struct buf *out)
{
    struct index_load all = {.ctx = out,
                             .stream = dump_stream,
                             .block = dump_block,
                             .producer = dump_producer,
                             .doc = dump_doc,
                             .segment = dump_segment};
    struct index_meta m;
    int err = index_load(i, &all, &m);
    assert(err == 0);
    buf_printf(out,
               "batch %" PRIu64 ", lives %" PRIu64 ", next %" PRIu64 ", wall %" PRId64
               ", base %" PRIu64 " with %" PRIu64 ", notes %" PRIu64 "\n",
               m.batch, m.lives, m.next_segment, m.wall_ms, m.base, m.base_bytes, m.note_bytes);
}

static inline void index_dump_file(const char *path, struct buf *out)
{
    char why[256];
    struct index *i = index_open(path, false, why, sizeof why);
    if (i == NULL)
        fprintf(stderr, "%s\n", why);
    assert(i != NULL);
    index_dump(i, out);
    index_close(i);
}

static inline void index_forget(const char *path)
{
    char lock[300];
    snprintf(lock, sizeof lock, "%s-lock", path);
    unlink(path);
    unlink(lock);
}

/* The line at which two dumps differ. */
static inline void dump_tell_difference(struct str a, struct str b)
{
    size_t at = 0, line = 0;
    for (; at < a.n && at < b.n && a.p[at] == b.p[at]; at++)
        if (a.p[at] == '\n')
            line = at + 1;
    fprintf(stderr, "the index had  %.*s\nand then has   %.*s\n",
            (int)(a.n - line < 200 ? a.n - line : 200), a.p + line,
            (int)(b.n - line < 200 ? b.n - line : 200), b.p + line);
}

/* Whether the index at path can be made again from the segments as it is. Leaves it alone. */
static inline bool index_is_rebuilt(struct vfs *v, const char *path, struct rebuild *r)
{
    char again[256], why[256];
    struct buf had = {0}, has = {0};
    snprintf(again, sizeof again, "%s.again", path);
    index_dump_file(path, &had);
    int err = index_rebuild(v, again, false, r, why, sizeof why);
    if (err != 0)
        fprintf(stderr, "%s\n", why);
    else
        index_dump_file(again, &has);
    bool same = err == 0 && str_eq(buf_str(&had), buf_str(&has));
    if (err == 0 && !same)
        dump_tell_difference(buf_str(&had), buf_str(&has));
    index_forget(again);
    buf_deinit(&had);
    buf_deinit(&has);
    return same;
}

#endif
