// SPDX-License-Identifier: Apache-2.0
#include "store/rest.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/chunk.h"
#include "store/note.h"
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

/* What one checkpoint is made with. */
struct making {
    struct rest *rest;
    struct index_write *index;
    struct segment_writer *segment;
    struct places places;
    struct buf note;     /* that is being written */
    uint64_t note_bytes; /* of those so far */
    bool modest;         /* the disk is full: only what has to be */
    bool base;           /* the notes are to tell of everything, at the end */
};

/* ---- notes ---- */

static int write_note(struct making *m, const struct note *n)
{
    m->note.n = 0;
    note_pack(&m->note, n);
    if (n->type != NOTE_META)
        m->note_bytes += NOTE_SPACE(m->note.n);
    return segment_add_note(m->segment, buf_str(&m->note));
}

/* Every change goes through here: into the index, and into the notes. */
static int change(struct making *m, const struct note *n)
{
    int err = note_apply(m->index, n);
    return err != 0 || m->base ? err : write_note(m, n);
}

/* ---- a base ---- */

static int tell_stream(void *ctx, uint64_t life, struct str row)
{
    return write_note(ctx, &(struct note){.type = NOTE_STREAM, .life = life, .row = row});
}

static int tell_block(void *ctx, uint64_t life, const struct block_info *b)
{
    return write_note(ctx, &(struct note){.type = NOTE_BLOCK, .life = life, .block = *b});
}

static int tell_producer(void *ctx, uint64_t life, const struct producer_claim *p)
{
    return write_note(ctx, &(struct note){.type = NOTE_PRODUCER, .life = life, .producer = *p});
}

static int tell_doc(void *ctx, struct str key, uint64_t version, struct str value)
{
    return write_note(
        ctx, &(struct note){.type = NOTE_DOC, .key = key, .version = version, .value = value});
}

/* All that is in the index, with what this checkpoint has changed. */
static int tell_everything(struct making *m)
{
    struct index_load all = {.ctx = m,
                             .stream = tell_stream,
                             .block = tell_block,
                             .producer = tell_producer,
                             .doc = tell_doc};
    int err = write_note(m, &(struct note){.type = NOTE_BASE});
    return err == 0 ? index_load_written(m->index, &all) : err;
}

struct survey {
    const struct index_meta *meta;
    uint64_t kept, kept_bytes; /* segments that are there for their notes alone */
};

static int survey_segment(void *ctx, const struct index_segment *s)
{
    struct survey *v = ctx;
    if (s->live_rows > 0 || s->id < v->meta->base)
        return 0;
    v->kept += s->id > v->meta->base;
    v->kept_bytes += s->bytes;
    return 0;
}

static int is_base_due(const struct rest *r, bool *due)
{
    struct survey v = {.meta = &r->meta};
    struct index_load load = {.ctx = &v, .segment = survey_segment};
    struct index_meta meta;
    uint64_t enough = 2 * r->meta.base_bytes + r->limits.base_bytes;
    int err = index_load(r->index, &load, &meta);
    *due = r->meta.base == 0 || r->meta.note_bytes > enough || v.kept_bytes > enough ||
           v.kept > r->limits.base_files;
    return err;
}

/* ---- events ---- */

static int write_pieces(struct making *m, const struct rest_stream *s)
{
    for (size_t i = 0; i < s->n_pieces; i++) {
        const struct chunk *c = s->pieces[i].chunk;
        struct placed *slot = &m->places.slots[slot_of(&m->places, c)];
        if (slot->chunk != NULL)
            continue;
        int err = segment_add(m->segment, s->life, c, &slot->info);
        if (err != 0)
            return err;
        slot->chunk = c;
    }
    return 0;
}

static int write_events(struct making *m)
{
    const struct rest *r = m->rest;
    int err = 0;
    for (size_t i = 0; i < r->n_streams && err == 0; i++)
        err = write_pieces(m, &r->streams[i]);
    return err;
}

/* ---- changes ---- */

static int change_pieces(struct making *m, const struct rest_stream *s)
{
    int err = 0;
    for (size_t i = 0; i < s->n_pieces && err == 0; i++) {
        const struct placed *p = &m->places.slots[slot_of(&m->places, s->pieces[i].chunk)];
        struct note n = {.type = NOTE_BLOCK, .life = s->life, .block = p->info};
        n.block.end = s->pieces[i].end; /* a fork may own only a part of it */
        err = change(m, &n);
    }
    return err;
}

static int change_stream(struct making *m, const struct rest_stream *s)
{
    int err = s->drop_blocks ? change(m, &(struct note){.type = NOTE_GONE, .life = s->life}) : 0;
    if (err == 0)
        err = change(m, &(struct note){.type = NOTE_STREAM, .life = s->life, .row = s->row});
    if (err == 0)
        err = change_pieces(m, s);
    if (err == 0 && s->first > 0)
        err = change(m, &(struct note){.type = NOTE_TRIM, .life = s->life, .pos = s->first});
    for (size_t i = 0; i < s->n_producers && err == 0; i++)
        err = change(
            m, &(struct note){.type = NOTE_PRODUCER, .life = s->life, .producer = s->producers[i]});
    return err;
}

/* Forks come first: what they take over may belong to a stream that is removed further down. */
static int change_streams(struct making *m)
{
    const struct rest *r = m->rest;
    int err = 0;
    for (size_t i = 0; i < r->n_streams && err == 0; i++)
        if (r->streams[i].copy_from != 0)
            err = change(m, &(struct note){.type = NOTE_COPY,
                                           .life = r->streams[i].copy_from,
                                           .to = r->streams[i].life,
                                           .pos = r->streams[i].copy_upto});
    for (size_t i = 0; i < r->n_streams && err == 0; i++)
        err = change_stream(m, &r->streams[i]);
    for (size_t i = 0; i < r->n_removed && err == 0; i++)
        err = change(m, &(struct note){.type = NOTE_GONE, .life = r->removed[i]});
    return err;
}

static int change_docs(struct making *m)
{
    const struct rest *r = m->rest;
    int err = 0;
    for (size_t i = 0; i < r->n_docs && err == 0; i++) {
        const struct rest_doc *d = &r->docs[i];
        struct note n = {.type = d->value.p == NULL ? NOTE_DOC_GONE : NOTE_DOC,
                         .key = d->key,
                         .version = d->version,
                         .value = d->value};
        err = change(m, &n);
    }
    return err;
}

static int change_meta(struct making *m)
{
    struct note n = {.type = NOTE_META, .meta = m->rest->meta};
    uint64_t id = n.meta.next_segment++;
    if (m->base) {
        n.meta.base = id;
        n.meta.base_bytes = m->note_bytes;
        n.meta.note_bytes = 0;
    } else {
        n.meta.note_bytes += m->note_bytes;
    }
    int err = note_apply(m->index, &n);
    if (err == 0)
        err = write_note(m, &n);
    if (err == 0)
        m->rest->meta = n.meta;
    return err;
}

static int change_all(struct making *m)
{
    int err = change_streams(m);
    if (err == 0)
        err = change_docs(m);
    if (err == 0 && m->base)
        err = tell_everything(m);
    return err == 0 ? change_meta(m) : err;
}

/* ---- the checkpoint ---- */

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

/* A file with that name is of an attempt that came to nothing: the index knows of no such segment,
 * and it has not failed, or it would not let itself be written. */
static int create_segment(struct making *m)
{
    const struct rest *r = m->rest;
    int err = segment_create(r->vfs, r->meta.next_segment, &m->segment);
    if (err != ERR_EXISTS)
        return err;
    err = segment_remove(r->vfs, r->meta.next_segment);
    return err == 0 ? segment_create(r->vfs, r->meta.next_segment, &m->segment) : err;
}

static int finish_segment(struct making *m, uint64_t id)
{
    struct rest *r = m->rest;
    int err = segment_finish(m->segment, &r->segment_bytes);
    if (err == 0)
        err = index_add_segment(m->index, id, r->segment_bytes);
    if (err == 0)
        err = index_dead_segments(m->index, r->meta.base, note_dead, r);
    return err;
}

static int make_checkpoint(struct making *m)
{
    struct rest *r = m->rest;
    uint64_t id = r->meta.next_segment;
    int err = is_base_due(r, &m->base);
    m->base &= !m->modest || r->meta.base == 0;
    if (err == 0)
        err = index_begin(r->index, &m->index);
    if (err == 0)
        err = create_segment(m);
    if (err == 0)
        err = write_events(m);
    if (err == 0)
        err = change_all(m);
    if (err == 0)
        err = finish_segment(m, id);
    if (err != 0)
        return err;
    err = index_commit(m->index);
    m->index = NULL;
    if (err == ERR_FULL)
        segment_remove(r->vfs, id); /* after another error nobody knows whether it is needed */
    return err;
}

static int attempt(struct rest *r, bool modest, bool *was_modest)
{
    struct making m = {.rest = r, .modest = modest};
    const struct index_meta before = r->meta;
    places_init(&m.places, r);
    r->n_dead = 0;
    int err = make_checkpoint(&m);
    if (err != 0)
        r->meta = before;
    r->is_base = m.base;
    *was_modest = !m.base;
    index_abort(m.index);
    segment_close(m.segment);
    buf_deinit(&m.note);
    free(m.places.slots);
    return err;
}

/* ---- the reserve ---- */

#define RESERVE_NAME SEGMENT_DIR "/reserve"

/* A base can be written with it: until there is one, files that are dead are not removed. */
static uint64_t reserve_wanted(const struct rest *r)
{
    uint64_t want = r->limits.reserve_bytes;
    while (want > 0 && want < r->meta.base_bytes + r->meta.note_bytes)
        want *= 2;
    return want;
}

static int resize_reserve(struct file *f, uint64_t want, uint64_t *size)
{
    static const char zeros[64 * 1024];
    int err = vfs_size(f, size);
    if (err == 0 && *size > 2 * want) {
        err = vfs_truncate(f, want);
        *size = want;
    }
    if (*size >= want)
        return err;
    while (err == 0 && *size < want) {
        uint64_t n = want - *size < sizeof zeros ? want - *size : sizeof zeros;
        err = vfs_write(f, *size, str_of(zeros, (size_t)n));
        *size += n;
    }
    return err == 0 ? vfs_sync(f) : err;
}

/* Without success it is tried again with the next checkpoint. */
static void keep_reserve(struct rest *r)
{
    struct file *f;
    uint64_t want = reserve_wanted(r);
    if (want == 0)
        return;
    int err = vfs_open(r->vfs, RESERVE_NAME, VFS_WRITE, &f);
    if (err == ERR_NOT_FOUND)
        err = vfs_open(r->vfs, RESERVE_NAME, VFS_CREATE, &f);
    if (err != 0)
        return;
    err = resize_reserve(f, want, &r->reserve_bytes);
    vfs_close(f);
    if (err == 0 || vfs_remove(r->vfs, RESERVE_NAME) != 0)
        return;
    r->reserve_bytes = 0;
}

/* ---- the whole ---- */

void rest_run(struct rest *r)
{
    bool modest, tight = false;
    r->err = attempt(r, false, &modest);
    if (r->err == ERR_FULL && vfs_remove(r->vfs, RESERVE_NAME) == 0)
        r->err = attempt(r, false, &modest);
    if (r->err == ERR_FULL && !modest) {
        tight = true;
        r->err = attempt(r, true, &modest);
    }
    if (r->err == 0 && !r->is_base && !tight && is_base_due(r, &r->untidy) != 0)
        r->untidy = false;
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
    if (r->err == 0)
        keep_reserve(r);
    free(r->dead);
    r->dead = NULL;
    r->n_dead = r->cap_dead = 0;
}
