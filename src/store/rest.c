// SPDX-License-Identifier: Apache-2.0
#include "store/rest.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/chunk.h"
#include "store/segment_format.h"
#include "store/vfs.h"

#include <stdlib.h>

/* Where each chunk of this checkpoint went: a fork's chunks are its source's too, and rest once. */
struct placed {
    const struct chunk *chunk;
    struct block_info info;
};

struct places {
    struct placed *slots;
    size_t cap, n;
};

static size_t slot_of(const struct places *p, const struct chunk *c)
{
    size_t i = ((uintptr_t)c >> 4) * 0x9e3779b97f4a7c15u >> 32 & (p->cap - 1);
    while (p->slots[i].chunk != NULL && p->slots[i].chunk != c)
        i = (i + 1) & (p->cap - 1);
    return i;
}

static void places_init(struct places *p, const struct rest *r)
{
    size_t chunks = 0;
    for (size_t i = 0; i < r->n_streams; i++)
        chunks += r->streams[i].n_pieces;
    p->cap = 16;
    while (p->cap < chunks * 2)
        p->cap *= 2;
    p->slots = mem_zalloc(p->cap * sizeof *p->slots);
}

static int write_stream(struct rest *r, struct segment_writer *w, struct places *p,
                        const struct rest_stream *s)
{
    for (size_t i = 0; i < s->n_pieces; i++) {
        const struct chunk *c = s->pieces[i].chunk;
        struct placed *slot = &p->slots[slot_of(p, c)];
        if (slot->chunk != NULL)
            continue;
        int err = segment_add(w, s->life, c, &slot->info);
        if (err != 0)
            return err;
        slot->chunk = c;
    }
    return segment_add_row(w, s->life, s->row);
}

/* All new events into one segment; it is durable when this returns 0. */
static int write_segment(struct rest *r, struct places *p)
{
    bool any = false;
    for (size_t i = 0; i < r->n_streams && !any; i++)
        any = r->streams[i].n_pieces > 0;
    if (!any)
        return 0;
    struct segment_writer *w;
    int err;
    /* One that an earlier attempt left behind stays: whether a commit that failed reached the disk
     * is not known before the next start. */
    while ((err = segment_create(r->vfs, r->meta.next_segment, &w)) == ERR_EXISTS)
        r->meta.next_segment++;
    if (err != 0)
        return err;
    for (size_t i = 0; i < r->n_streams && err == 0; i++)
        if (r->streams[i].n_pieces > 0)
            err = write_stream(r, w, p, &r->streams[i]);
    if (err == 0)
        err = segment_finish(w, &r->segment_bytes);
    segment_close(w);
    return err;
}

static int index_pieces(struct index_write *w, const struct places *p, const struct rest_stream *s)
{
    for (size_t i = 0; i < s->n_pieces; i++) {
        struct block_info b = p->slots[slot_of(p, s->pieces[i].chunk)].info;
        b.end = s->pieces[i].end; /* a fork may own only a part of it */
        int err = index_put_block(w, s->life, &b);
        if (err != 0)
            return err;
    }
    return 0;
}

static int index_stream(struct index_write *w, const struct places *p, const struct rest_stream *s)
{
    int err = s->drop_blocks ? index_remove_stream(w, s->life) : 0;
    if (err == 0)
        err = index_put_stream(w, s->life, s->row);
    if (err == 0)
        err = index_pieces(w, p, s);
    if (err == 0 && s->first > 0)
        err = index_trim(w, s->life, s->first);
    for (size_t i = 0; i < s->n_producers && err == 0; i++)
        err = index_put_producer(w, s->life, &s->producers[i]);
    return err;
}

static int index_docs(struct index_write *w, const struct rest *r)
{
    int err = 0;
    for (size_t i = 0; i < r->n_docs && err == 0; i++) {
        const struct rest_doc *d = &r->docs[i];
        err = d->value.p == NULL ? index_remove_doc(w, d->key)
                                 : index_put_doc(w, d->key, d->version, d->value);
    }
    return err;
}

static int note_dead(void *ctx, uint64_t id)
{
    struct rest *r = ctx;
    if (r->n_dead == r->cap_dead) {
        r->cap_dead = r->cap_dead ? r->cap_dead * 2 : 8;
        r->dead = mem_realloc(r->dead, r->cap_dead * sizeof *r->dead);
    }
    r->dead[r->n_dead++] = id;
    return 0;
}

/* Forks come first: what they take over may belong to a stream that is removed further down. */
static int fill_index(struct rest *r, struct index_write *w, const struct places *p)
{
    int err =
        r->segment_bytes > 0 ? index_add_segment(w, r->meta.next_segment, r->segment_bytes) : 0;
    for (size_t i = 0; i < r->n_streams && err == 0; i++)
        if (r->streams[i].copy_from != 0)
            err = index_copy_blocks(w, r->streams[i].copy_from, r->streams[i].life,
                                    r->streams[i].copy_upto);
    for (size_t i = 0; i < r->n_streams && err == 0; i++)
        err = index_stream(w, p, &r->streams[i]);
    for (size_t i = 0; i < r->n_removed && err == 0; i++)
        err = index_remove_stream(w, r->removed[i]);
    if (err == 0)
        err = index_docs(w, r);
    if (err == 0)
        err = index_dead_segments(w, note_dead, r);
    if (r->segment_bytes > 0)
        r->meta.next_segment++;
    return err == 0 ? index_put_meta(w, &r->meta) : err;
}

void rest_run(struct rest *r)
{
    struct places p = {0};
    places_init(&p, r);
    struct index_write *w = NULL;
    r->err = write_segment(r, &p);
    if (r->err == 0)
        r->err = index_begin(r->index, &w);
    if (r->err == 0)
        r->err = fill_index(r, w, &p);
    if (r->err == 0)
        r->err = index_commit(w);
    else
        index_abort(w);
    free(p.slots);
}

static uint64_t file_bytes(struct vfs *v, uint64_t id)
{
    char name[SEGMENT_NAME_MAX];
    struct file *f;
    uint64_t size = 0;
    segment_name(id, name);
    if (vfs_open(v, name, VFS_READ, &f) != 0)
        return 0;
    if (vfs_size(f, &size) != 0)
        size = 0;
    vfs_close(f);
    return size;
}

void rest_remove_dead(struct rest *r)
{
    for (size_t i = 0; r->err == 0 && i < r->n_dead; i++) {
        uint64_t bytes = file_bytes(r->vfs, r->dead[i]);
        if (segment_remove(r->vfs, r->dead[i]) == 0) /* or it is found at the next start */
            r->dead_bytes += bytes;
    }
    free(r->dead);
    r->dead = NULL;
    r->n_dead = r->cap_dead = 0;
}
