// SPDX-License-Identifier: Apache-2.0
/* doctor_share.c -- forks that have copies of their past, as version 0.1 made them, share it with
 * their sources from then on (catalog_family.c).
 *
 * A fork that has n blocks of its source has n rows of its own for them in such an index, and a
 * fork of it as many again: a chain of forks takes the square of its length. Where the source still
 * has the very same rows, the fork's are left out. The index is written anew, since its file never
 * shrinks. */
#include "base/err.h"
#include "base/mem.h"
#include "store/doctor/doctor_core.h"
#include "store/embedded/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PATH_SIZE 4096

/* ---- which of them can ---- */

static int doctor_share_keep_block(void *ctx, const struct block_info *b)
{
    buf_put(ctx, str_of((const char *)b, sizeof *b));
    return 0;
}

struct blocks {
    struct buf all;
    const struct block_info *items;
    size_t n;
};

static int load_blocks(struct doctor_pass *l, uint64_t life, struct blocks *out)
{
    *out = (struct blocks){0};
    int err = index_blocks(l->index, life, 0, doctor_share_keep_block, &out->all);
    out->items = (const struct block_info *)(const void *)out->all.p;
    out->n = out->all.n / sizeof *out->items;
    return err;
}

static bool is_same_block(const struct block_info *a, const struct block_info *b)
{
    return a->first == b->first && a->place.segment == b->place.segment &&
           a->place.offset == b->place.offset;
}

/* Whether the source has all that the fork has of it. *events: the ordinal at the fork point. */
static bool is_contained(const struct doctor_stream *s, const struct blocks *fork,
                         const struct blocks *source, uint64_t *events)
{
    size_t i = 0, k = 0;
    for (; i < fork->n && fork->items[i].first < s->fork_at; i++) {
        while (k < source->n && source->items[k].first < fork->items[i].first)
            k++;
        if (k == source->n || !is_same_block(&fork->items[i], &source->items[k]) ||
            fork->items[i].end > source->items[k].end)
            return false;
    }
    *events = i < fork->n ? fork->items[i].ordinal : s->events;
    if (*events > s->first_event && s->first >= s->fork_at)
        *events = s->first_event;
    return i > 0;
}

static int judge_fork(struct doctor_pass *l, struct doctor_stream *s)
{
    struct blocks fork = {0}, source = {0};
    int err = load_blocks(l, s->life, &fork);
    if (err == 0)
        err = load_blocks(l, s->source, &source);
    if (err == 0)
        s->shared = is_contained(s, &fork, &source, &s->fork_events);
    buf_deinit(&fork.all);
    buf_deinit(&source.all);
    return err;
}

/* ---- the index without those rows ---- */

struct sharing {
    struct doctor_pass *look;
    struct index_write *write;
    struct buf row;
    const struct doctor_stream *current; /* of the rows of blocks */
    uint64_t forks, rows;                /* that share now; that are gone */
};

static int doctor_share_put_stream(void *ctx, uint64_t life, struct str row)
{
    struct sharing *s = ctx;
    const struct doctor_stream *d = doctor_find_stream(s->look, life);
    if (d == NULL || !d->shared)
        return index_put_stream(s->write, life, row);
    s->forks++;
    s->row.n = 0;
    int err = row_share(&s->row, row, d->fork_at, d->fork_events);
    return err == 0 ? index_put_stream(s->write, life, buf_str(&s->row)) : err;
}

static int doctor_share_put_block(void *ctx, uint64_t life, const struct block_info *b)
{
    struct sharing *s = ctx;
    if (s->current == NULL || s->current->life != life)
        s->current = doctor_find_stream(s->look, life);
    if (s->current == NULL || !s->current->shared || b->first >= s->current->fork_at)
        return index_put_block(s->write, life, b);
    s->rows++;
    return 0;
}

static int doctor_share_put_producer(void *ctx, uint64_t life, const struct producer_claim *p)
{
    return index_put_producer(((struct sharing *)ctx)->write, life, p);
}

static int doctor_share_put_doc(void *ctx, struct str key, uint64_t version, struct str value)
{
    return index_put_doc(((struct sharing *)ctx)->write, key, version, value);
}

static int doctor_share_put_segment(void *ctx, const struct index_segment *segment)
{
    return index_add_segment(((struct sharing *)ctx)->write, segment->id, segment->bytes);
}

/* The notes in the segments tell of the copies still: the next checkpoint writes a base. */
static int doctor_share_write_all(struct sharing *s, struct index *into)
{
    struct index_load load = {.ctx = s,
                              .stream = doctor_share_put_stream,
                              .block = doctor_share_put_block,
                              .producer = doctor_share_put_producer,
                              .doc = doctor_share_put_doc,
                              .segment = doctor_share_put_segment};
    struct index_meta meta;
    int err = index_begin(into, &s->write);
    if (err != 0)
        return err;
    err = index_load(s->look->index, &load, &meta);
    if (err == 0) {
        meta.base = meta.base_bytes = meta.note_bytes = 0;
        err = index_put_meta(s->write, &meta);
    }
    if (err == 0)
        return index_commit(s->write);
    index_abort(s->write);
    return err;
}

static int write_index(struct sharing *s, char *why, size_t size)
{
    const struct doctor *d = s->look->doctor;
    char made[PATH_SIZE];
    snprintf(made, sizeof made, "%s.mended", d->index_path);
    index_unlink(made);
    struct index *into = index_open(made, d->sync, why, size);
    if (into == NULL)
        return ERR_IO;
    int err = doctor_share_write_all(s, into);
    index_close(into);
    index_close(s->look->index);
    s->look->index = NULL;
    if (err == 0)
        err = index_rename(made, d->index_path, d->sync);
    index_unlink(made);
    return err == 0 ? 0 : doctor_repair_failed(err, "the index cannot be written anew", why, size);
}

int doctor_repair_forks(struct doctor_pass *l, char *why, size_t size)
{
    struct sharing s = {.look = l};
    bool any = false;
    for (size_t i = 0; i < l->n_streams; i++) {
        struct doctor_stream *fork = &l->streams[i];
        int err = fork->whole ? judge_fork(l, fork) : 0;
        if (err != 0)
            return doctor_repair_failed(err, "the index cannot be read", why, size);
        any |= fork->shared;
    }
    int err = any ? write_index(&s, why, size) : 0;
    buf_deinit(&s.row);
    if (err == 0 && any)
        doctor_say(l, DOCTOR_DONE,
                   "%" PRIu64 " forks share their past with their sources now; %" PRIu64
                   " rows of the index that were copies are gone",
                   s.forks, s.rows);
    return err;
}
