// SPDX-License-Identifier: Apache-2.0
/* embedded_recover.c -- from what is on disk to a catalog: the index first, then the journal's
 * records since the last checkpoint, which then come to rest before anything new is taken. */
#include "base/err.h"
#include "base/mem.h"
#include "store/embedded/embedded_core.h"
#include "store/embedded/rebuild.h"
#include "store/embedded/record.h"
#include "store/embedded/vfs.h"

#include <stdio.h>
#include <stdlib.h>

#define PATH_SIZE 4096

struct known {
    uint64_t life;
    struct stream *stream; /* NULL: removed */
};

struct recovery {
    struct embedded *embedded;
    struct known *known; /* streams by life: rows come in that order, and later ones have higher */
    size_t n, cap;
    struct arena arena;    /* of one record */
    struct buf parts;      /* of a large write, as far as they have come */
    struct lives segments; /* that the index knows, in order */
};

static struct known *embedded_recover_find(const struct recovery *r, uint64_t life)
{
    size_t low = 0, high = r->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (r->known[mid].life < life)
            low = mid + 1;
        else
            high = mid;
    }
    return low < r->n && r->known[low].life == life ? &r->known[low] : NULL;
}

static struct stream *embedded_recover_by_life(const struct recovery *r, uint64_t life)
{
    const struct known *k = embedded_recover_find(r, life);
    return k == NULL ? NULL : k->stream;
}

void embedded_recover_forget(struct recovery *r, uint64_t life)
{
    struct known *k = embedded_recover_find(r, life);
    if (k != NULL)
        k->stream = NULL;
}

static bool is_next_life(const struct recovery *r, uint64_t life)
{
    return r->n == 0 || life > r->known[r->n - 1].life;
}

static void note_stream(struct recovery *r, struct stream *s)
{
    r->known = mem_grow(r->known, r->n, &r->cap, sizeof *r->known);
    r->known[r->n++] = (struct known){s->life, s};
}

static void set_settled(struct embedded *e, struct stream *s)
{
    stream_show(&e->catalog, s);
    stream_settle_trim(&e->catalog, s, s->first);
    s->settled_tail = s->tape.tail;
    s->settled_end = s->end;
}

/* ---- the index ---- */

/* Sources have lower lives, and rows come in their order. */
static void load_fork(struct recovery *r, struct stream *s, const struct row *row)
{
    struct stream *source = embedded_recover_by_life(r, row->source_life);
    stream_set_fork(s, &row->config, row->fork_at, row->fork_events);
    s->fork->whole = row->whole;
    s->fork->lost = row->source_life;
    if (source != NULL)
        stream_join(s, source);
}

static int embedded_recover_load_stream(void *ctx, uint64_t life, struct str bytes)
{
    struct recovery *r = ctx;
    struct embedded *e = r->embedded;
    struct row row;
    int err = row_take(bytes, &row);
    if (err == 0 && !is_next_life(r, life))
        err = ERR_CORRUPT;
    if (err != 0)
        return err;
    struct stream *s = catalog_add(&e->catalog, row.name, life, &row.term, row.content_type);
    stream_trim(s, row.first, row.first_event);
    s->tape.first = s->tape.tail = row.tail;
    s->tape.events = row.events;
    s->deleted = row.deleted;
    if (s->deleted)
        catalog_end_term(&e->catalog, s);
    stream_set_end(s, row.end, &row.closed_by);
    if (row.last_seq.p != NULL)
        stream_set_seq(s, row.last_seq);
    if (row.source_life != 0)
        load_fork(r, s, &row);
    set_settled(e, s);
    note_stream(r, s);
    return 0;
}

static int embedded_recover_load_producer(void *ctx, uint64_t life, const struct producer_claim *p)
{
    struct stream *s = embedded_recover_by_life(ctx, life);
    if (s == NULL)
        return 0;
    stream_set_producer(s, p);
    ((struct producer *)map_get(s->producers, p->id))->dirty = false;
    return 0;
}

static int embedded_recover_load_doc(void *ctx, struct str key, uint64_t version, struct str value)
{
    struct recovery *r = ctx;
    struct doc_put put = {.key = key, .value = value, .expect_version = version - 1};
    catalog_put_docs(&r->embedded->catalog, &put, 1);
    return 0;
}

static int embedded_recover_load_segment(void *ctx, const struct index_segment *s)
{
    struct recovery *r = ctx;
    r->embedded->segment_bytes += s->bytes;
    lives_add(&r->segments, s->id);
    return 0;
}

/* ---- the journal ---- */

/* A name that is taken again was free: its stream had expired, and so had the forks that kept the
 * name, and that was not written down. */
static void remove_expired(struct embedded *e, struct str name)
{
    for (struct stream *s; (s = map_get(&e->catalog.streams, name)) != NULL;) {
        while (s->family != NULL)
            s = stream_any_fork(s);
        catalog_remove(&e->catalog, s); /* with all that only it kept */
    }
}

static struct stream *replay_create(struct recovery *r, const struct record *rec)
{
    struct embedded *e = r->embedded;
    struct stream *source =
        rec->source_life == 0 ? NULL : embedded_recover_by_life(r, rec->source_life);
    if (rec->source_life != 0 && (source == NULL || rec->fork_at > source->tape.tail))
        return NULL; /* what it was forked from is not there */
    if (!is_next_life(r, rec->life))
        return NULL;
    remove_expired(e, rec->name);
    struct stream *s =
        catalog_add(&e->catalog, rec->name, rec->life, &rec->term, rec->content_type);
    if (source != NULL)
        stream_fork_from(s, &rec->config, source, rec->fork_at, rec->fork_events);
    note_stream(r, s);
    return s;
}

static int replay_write(struct recovery *r, const struct record *rec)
{
    struct embedded *e = r->embedded;
    struct stream *s = rec->create ? replay_create(r, rec) : embedded_recover_by_life(r, rec->life);
    if (s == NULL)
        return ERR_CORRUPT;
    if (rec->data.n > 0)
        tape_append(&s->tape, rec->data, rec->ends, rec->n_events, rec->now_ms);
    e->unrested += rec->data.n;
    if (rec->claim.id.n > 0)
        stream_set_producer(s, &rec->claim);
    if (rec->seq.p != NULL)
        stream_set_seq(s, rec->seq);
    if (rec->end != END_NONE)
        stream_set_end(s, rec->end, &rec->claim);
    if (rec->trim)
        stream_trim(s, rec->first, rec->first_event);
    catalog_put_docs(&e->catalog, rec->docs, rec->n_docs);
    embedded_mark_docs(e, rec->docs, rec->n_docs);
    embedded_mark_dirty(e, s);
    set_settled(e, s);
    if (rec->now_ms > e->catalog.wall_ms)
        e->catalog.wall_ms = rec->now_ms;
    return 0;
}

/* Parts without their write are those of one that was not finished. */
static void replay_part(struct recovery *r, const struct record *rec)
{
    if (rec->at == 0)
        r->parts.n = 0;
    if (rec->at == r->parts.n)
        buf_put(&r->parts, rec->data);
}

static int join_parts(struct recovery *r, struct record *rec)
{
    if (r->parts.n != rec->data.n)
        return ERR_CORRUPT;
    rec->data = buf_str(&r->parts);
    return 0;
}

static void replay_trim(struct recovery *r, const struct record *rec)
{
    struct stream *s = embedded_recover_by_life(r, rec->life);
    if (s == NULL || s->deleted)
        return; /* removed before the trim was written down */
    stream_trim(s, rec->first, rec->first_event);
    stream_settle_trim(&r->embedded->catalog, s, rec->first);
    embedded_mark_dirty(r->embedded, s);
}

static int embedded_recover_replay(void *ctx, uint64_t batch, struct str bytes)
{
    struct recovery *r = ctx;
    struct embedded *e = r->embedded;
    struct record rec;
    int err = record_take(bytes, &r->arena, &rec);
    if (err == 0 && rec.in_parts)
        err = join_parts(r, &rec);
    if (err == 0 && rec.type == RECORD_WRITE) {
        err = replay_write(r, &rec);
        if (rec.in_parts)
            buf_deinit(&r->parts);
    } else if (err == 0 && rec.type == RECORD_PART) {
        replay_part(r, &rec);
    } else if (err == 0 && rec.type == RECORD_REMOVE) {
        struct stream *s = embedded_recover_by_life(r, rec.life);
        if (s != NULL && !s->deleted)
            catalog_remove(&e->catalog, s);
    } else if (err == 0 && rec.type == RECORD_TRIM) {
        replay_trim(r, &rec);
    } else if (err == 0) {
        catalog_put_docs(&e->catalog, rec.docs, rec.n_docs);
        embedded_mark_docs(e, rec.docs, rec.n_docs);
    }
    arena_deinit(&r->arena);
    return err;
}

/* A deleted stream is kept by its forks. Where damage has taken those, it goes with them: or its
 * name would never be free, nor what is kept of it. */
static void remove_unkept(struct recovery *r)
{
    struct catalog *c = &r->embedded->catalog;
    struct lives unkept = {0};
    size_t at = 0;
    for (struct stream *s; (s = map_next(&c->streams, &at)) != NULL;)
        if (s->deleted && s->family == NULL)
            lives_add(&unkept, s->life);
    for (size_t i = 0; i < unkept.n; i++)
        catalog_remove(c, embedded_recover_by_life(r, unkept.items[i]));
    free(unkept.items);
}

/* ---- segments that no checkpoint knows ---- */

/* Dead, and the crash came before the file was removed. */
static int remove_orphans(struct recovery *r)
{
    uint64_t *ids;
    size_t n, known = 0;
    int err = segment_list(r->embedded->vfs, &ids, &n);
    if (err != 0)
        return err;
    for (size_t i = 0; i < n && err == 0; i++) {
        while (known < r->segments.n && r->segments.items[known] < ids[i])
            known++;
        if (known == r->segments.n || r->segments.items[known] != ids[i])
            err = segment_remove(r->embedded->vfs, ids[i]);
    }
    free(ids);
    return err;
}

/* A new index says so before there is anything that it could not know. */
static int begin_index(struct embedded *e)
{
    struct index_write *w;
    int err = index_begin(e->index, &w);
    if (err != 0)
        return err;
    e->meta.batch = 1;
    index_put_meta(w, &e->meta);
    return index_commit(w);
}

static void point_to_doctor(int err, char *why, size_t size)
{
    size_t n = strlen(why);
    if (err == ERR_CORRUPT)
        snprintf(why + n, size - n, "; `tidemark doctor DIR --repair` keeps what is sound");
}

static int rebuild_index(struct embedded *e, char *why, size_t size)
{
    struct rebuild r = {0};
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s", index_path(e->index));
    index_close(e->index);
    e->index = NULL;
    int err = index_rebuild(e->vfs, path, e->config.index_sync, &r, why, size);
    if (err != 0)
        return err;
    e->index = index_open(path, e->config.index_sync, why, size);
    return e->index == NULL ? ERR_IO : 0;
}

/* Where there are segments, a new index is one that was lost, and is made again from them. One
 * that has not heard of the last of them catches up. */
static int prepare_index(struct embedded *e, char *why, size_t size)
{
    struct index_load nothing = {0};
    struct rebuild r = {0};
    uint64_t *ids = NULL;
    size_t n = 0;
    int err = index_load(e->index, &nothing, &e->meta);
    if (err == 0)
        err = segment_list(e->vfs, &ids, &n);
    free(ids);
    if (err == 0 && e->meta.batch == 0 && n > 0)
        return rebuild_index(e, why, size);
    if (err == 0 && e->meta.batch == 0)
        err = begin_index(e);
    else if (err == 0)
        err = index_catch_up(e->vfs, e->index, &r);
    if (err != 0)
        snprintf(why, size, "the index cannot be made ready: %s",
                 r.damage[0] != '\0' ? r.damage : err_text(err));
    return err;
}

static int load_index(struct embedded *e, struct index_load *load)
{
    struct index_size size;
    int err = index_size(e->index, &size);
    if (err != 0)
        return err;
    e->index_bytes = size.bytes;
    map_reserve(&e->catalog.streams, size.streams);
    map_reserve(&e->catalog.docs, size.docs);
    return index_load(e->index, load, &e->meta);
}

int embedded_recover(struct embedded *e, struct journal_scan *scan, char *why, size_t size)
{
    struct recovery r = {.embedded = e};
    struct index_load load = {.ctx = &r,
                              .stream = embedded_recover_load_stream,
                              .producer = embedded_recover_load_producer,
                              .doc = embedded_recover_load_doc,
                              .segment = embedded_recover_load_segment};
    e->recovery = &r;
    int err = prepare_index(e, why, size);
    if (err == 0) {
        err = load_index(e, &load);
        if (err != 0)
            snprintf(why, size, "the index cannot be read: %s", err_text(err));
    }
    e->catalog.lives = e->snapped = e->meta.lives;
    e->catalog.wall_ms = e->meta.wall_ms;
    *scan =
        (struct journal_scan){.from = e->meta.batch, .ctx = &r, .record = embedded_recover_replay};
    if (err == 0) {
        err = journal_scan(e->vfs, scan);
        if (err != 0)
            snprintf(why, size, "the journal cannot be replayed: %s",
                     scan->damage[0] != '\0' ? scan->damage : err_text(err));
    }
    if (err == 0) {
        catalog_start_clock(&e->catalog);
        remove_unkept(&r);
        err = remove_orphans(&r);
        if (err != 0)
            snprintf(why, size, "segments of no use cannot be removed: %s", err_text(err));
    }
    if (err == 0 && scan->batches > 0) {
        err = embedded_rest_now(e, scan->next);
        if (err != 0)
            snprintf(why, size, "what the journal holds cannot be brought to rest: %s",
                     err_text(err));
    }
    e->untidy = e->untidy || (e->meta.base == 0 && r.segments.n > 0);
    point_to_doctor(err, why, size);
    e->recovery = NULL;
    free(r.known);
    arena_deinit(&r.arena);
    buf_deinit(&r.parts);
    free(r.segments.items);
    return err;
}
