// SPDX-License-Identifier: Apache-2.0
/* A record: its type, then
 *
 *   WRITE   flags, life, time
 *           CREATE    name, content type, term,
 *                     life of the source (0: none); with one: config, fork point, ordinal there
 *           DATA      number of events; the length of each but the last; all bytes
 *           PRODUCER  id, epoch, seq
 *           SEQ       text
 *           CLOSE     end reason
 *           TRIM      first position, ordinal there
 *           DOCS      documents
 *   REMOVE  life
 *   DOCS    documents
 *   TRIM    life, first position, ordinal there
 *   PART    where in the data it begins, all bytes
 *   WRITE of data in parts: as WRITE, but DATA has the number of bytes instead of them. They are in
 *           the parts before it; the first of these begins at 0, and each where the one before ends
 *
 * documents: how many; each its key, the version before, whether there is a value, the value
 * term: ttl, expiry, events, bytes and age to retain
 * config: term as asked for, name of the source, at its tail?, offset (life, position), sub-offset
 *
 * A row: version, name, content type, term, first, ordinal there, tail, events, end reason, closing
 * claim (id, epoch, seq), is there a Stream-Seq?, Stream-Seq, life of the source (0: none); with
 * one: config, fork point, ordinal there, whole?; deleted?
 *
 * That is version 2; streams that are no forks are written as version 1, in which they are the
 * same. In a row of version 1 a fork has, behind its config: how many lives it was forked from,
 * each with its fork point, the source's last. Such a fork is whole. */
#include "store/embedded/record.h"
#include "base/err.h"
#include "base/must.h"
#include "base/pack.h"

enum {
    FLAG_CREATE = 1,
    FLAG_DATA = 2,
    FLAG_PRODUCER = 4,
    FLAG_SEQ = 8,
    FLAG_CLOSE = 16,
    FLAG_DOCS = 32,
    FLAG_TRIM = 64,
    FLAGS_ALL = 127,
};
#define ROW_VERSION    2
#define WRITE_IN_PARTS 6 /* a record's type on disk; RECORD_WRITE when it has been taken */

/* ---- parts ---- */

static void put_term(struct buf *out, const struct stream_config *c)
{
    pack_i64(out, c->ttl_s);
    pack_i64(out, c->expires_ms);
    pack_u64(out, c->retain.events);
    pack_u64(out, c->retain.bytes);
    pack_u64(out, c->retain.age_ms);
}

static void take_term(struct unpack *u, struct stream_config *c)
{
    c->ttl_s = unpack_i64(u);
    c->expires_ms = unpack_i64(u);
    c->retain.events = unpack_u64(u);
    c->retain.bytes = unpack_u64(u);
    c->retain.age_ms = unpack_u64_max(u, INT64_MAX);
}

static struct stream_config term_of(const struct stream *s)
{
    struct stream_info info = stream_info_of(s);
    return (struct stream_config){
        .ttl_s = info.ttl_s, .expires_ms = info.expires_ms, .retain = info.retain};
}

static void put_config(struct buf *out, const struct stream_config *c)
{
    put_term(out, c);
    pack_str(out, c->fork_of);
    pack_u64(out, c->fork_at_tail);
    pack_u64(out, c->fork_at.life);
    pack_u64(out, c->fork_at.pos);
    pack_u64(out, c->fork_sub);
}

static void take_config(struct unpack *u, struct stream_config *c)
{
    take_term(u, c);
    c->fork_of = unpack_str(u);
    c->fork_at_tail = unpack_bool(u);
    c->fork_at.life = unpack_u64(u);
    c->fork_at.pos = unpack_u64(u);
    c->fork_sub = unpack_u64(u);
}

static void put_docs(struct buf *out, const struct doc_put *docs, size_t n)
{
    pack_u64(out, n);
    for (size_t i = 0; i < n; i++) {
        pack_str(out, docs[i].key);
        pack_u64(out, docs[i].expect_version);
        pack_u64(out, docs[i].value.p != NULL);
        pack_str(out, docs[i].value);
    }
}

static void take_docs(struct unpack *u, struct arena *a, struct record *r)
{
    r->n_docs = unpack_u64_max(u, u->rest.n); /* each takes more than a byte */
    r->docs = arena_alloc(a, r->n_docs * sizeof *r->docs);
    for (size_t i = 0; i < r->n_docs; i++) {
        struct doc_put *d = &r->docs[i];
        d->key = unpack_str(u);
        d->expect_version = unpack_u64(u);
        bool there = unpack_bool(u);
        d->value = unpack_str(u);
        if (!there)
            d->value = STR_NONE;
    }
}

/* left_out: not NULL, and then the bytes are, and belong there. */
static void record_put_data(struct buf *out, const struct store_write *w, size_t *left_out)
{
    uint32_t n = w->ends == NULL ? 1 : w->n_events;
    pack_u64(out, n);
    if (w->steps.n > 0)
        buf_put(out, w->steps);
    else if (n > 1)
        pack_steps(out, w->ends, n - 1);
    pack_u64(out, w->data.n);
    if (left_out != NULL)
        *left_out = out->n;
    else
        buf_put(out, w->data);
}

static void record_take_data(struct unpack *u, struct arena *a, struct record *r)
{
    r->n_events = (uint32_t)unpack_u64_max(u, u->rest.n);
    if (r->n_events > 1)
        r->ends = arena_alloc(a, r->n_events * sizeof *r->ends);
    uint64_t at = 0;
    for (uint32_t i = 0; i + 1 < r->n_events; i++) {
        at += unpack_u64_max(u, UINT32_MAX / 2);
        r->ends[i] = (uint32_t)at;
    }
    r->data = r->in_parts ? str_of(NULL, unpack_u64_max(u, UINT32_MAX / 2)) : unpack_str(u);
    if (r->n_events > 1)
        r->ends[r->n_events - 1] = (uint32_t)r->data.n;
    if (r->n_events == 0 || r->data.n == 0 || r->data.n > UINT32_MAX / 2 || at > r->data.n)
        u->err = ERR_CORRUPT;
}

static void put_claim(struct buf *out, const struct producer_claim *c)
{
    pack_str(out, c->id);
    pack_u64(out, c->epoch);
    pack_u64(out, c->seq);
}

static void take_claim(struct unpack *u, struct producer_claim *c)
{
    c->id = unpack_str(u);
    c->epoch = unpack_u64(u);
    c->seq = unpack_u64(u);
}

static void put_first(struct buf *out, const struct stream *s)
{
    pack_u64(out, s->first);
    pack_u64(out, s->first_event);
}

static void take_first(struct unpack *u, struct record *r)
{
    r->trim = true;
    r->first = unpack_u64(u);
    r->first_event = unpack_u64(u);
}

/* ---- records ---- */

static void put_create(struct buf *out, const struct stream *s, const struct store_write *w,
                       const struct judgement *j)
{
    pack_str(out, s->name);
    struct stream_config term = term_of(s);
    pack_str(out, s->content_type);
    put_term(out, &term);
    pack_u64(out, j->source == NULL ? 0 : j->source->life);
    if (j->source == NULL)
        return;
    put_config(out, w->create);
    pack_u64(out, j->fork_at);
    pack_u64(out, j->fork_events);
}

static void put_write(struct buf *out, int type, const struct stream *s,
                      const struct store_write *w, const struct judgement *j, int64_t now_ms,
                      size_t *left_out)
{
    unsigned flags = (w->created ? FLAG_CREATE : 0) | (w->data.n > 0 ? FLAG_DATA : 0) |
                     (w->claim.id.n > 0 ? FLAG_PRODUCER : 0) | (w->seq.p != NULL ? FLAG_SEQ : 0) |
                     (w->close ? FLAG_CLOSE : 0) | (w->call.trimmed ? FLAG_TRIM : 0) |
                     (w->n_docs > 0 ? FLAG_DOCS : 0);
    buf_putc(out, (char)type);
    buf_putc(out, (char)flags);
    pack_u64(out, s->life);
    pack_i64(out, now_ms);
    if (flags & FLAG_CREATE)
        put_create(out, s, w, j);
    if (flags & FLAG_DATA)
        record_put_data(out, w, left_out);
    if (flags & FLAG_PRODUCER)
        put_claim(out, &w->claim);
    if (flags & FLAG_SEQ)
        pack_str(out, w->seq);
    if (flags & FLAG_CLOSE)
        pack_u64(out, w->end);
    if (flags & FLAG_TRIM)
        put_first(out, s);
    if (flags & FLAG_DOCS)
        put_docs(out, w->docs, w->n_docs);
}

void record_put_write(struct buf *out, const struct stream *s, const struct store_write *w,
                      const struct judgement *j, int64_t now_ms)
{
    put_write(out, RECORD_WRITE, s, w, j, now_ms, NULL);
}

void record_put_in_parts(struct buf *out, const struct stream *s, const struct store_write *w,
                         const struct judgement *j, int64_t now_ms)
{
    size_t ignored;
    put_write(out, WRITE_IN_PARTS, s, w, j, now_ms, &ignored);
}

void record_put_part(struct buf *out, uint64_t at, struct str bytes)
{
    buf_putc(out, RECORD_PART);
    pack_u64(out, at);
    pack_str(out, bytes);
}

size_t record_put_around(struct buf *out, const struct stream *s, const struct store_write *w,
                         const struct judgement *j, int64_t now_ms)
{
    size_t at;
    must(w->data.n > 0);
    put_write(out, RECORD_WRITE, s, w, j, now_ms, &at);
    return at;
}

void record_put_remove(struct buf *out, uint64_t life)
{
    buf_putc(out, RECORD_REMOVE);
    pack_u64(out, life);
}

void record_put_trim(struct buf *out, const struct stream *s)
{
    buf_putc(out, RECORD_TRIM);
    pack_u64(out, s->life);
    put_first(out, s);
}

void record_put_docs(struct buf *out, const struct doc_put *docs, size_t n)
{
    buf_putc(out, RECORD_DOCS);
    put_docs(out, docs, n);
}

static void take_create(struct unpack *u, struct record *r)
{
    r->create = true;
    r->name = unpack_str(u);
    r->content_type = unpack_str(u);
    take_term(u, &r->term);
    r->source_life = unpack_u64(u);
    if (r->source_life != 0) {
        take_config(u, &r->config);
        r->fork_at = unpack_u64(u);
        r->fork_events = unpack_u64(u);
    }
    if (r->name.n == 0 || r->name.n > STORE_NAME_MAX)
        u->err = ERR_CORRUPT;
}

static void take_write(struct unpack *u, struct arena *a, struct record *r)
{
    uint64_t flags = unpack_u64_max(u, FLAGS_ALL);
    r->life = unpack_u64(u);
    r->now_ms = unpack_i64(u);
    if (flags & FLAG_CREATE)
        take_create(u, r);
    if (flags & FLAG_DATA)
        record_take_data(u, a, r);
    if (flags & FLAG_PRODUCER)
        take_claim(u, &r->claim);
    if (flags & FLAG_SEQ)
        r->seq = unpack_str(u);
    if (flags & FLAG_CLOSE)
        r->end = (enum end_reason)unpack_u64_max(u, END_EXPIRED);
    if (flags & FLAG_TRIM)
        take_first(u, r);
    if (flags & FLAG_DOCS)
        take_docs(u, a, r);
}

int record_take(struct str bytes, struct arena *a, struct record *out)
{
    struct unpack u = {.rest = bytes};
    uint64_t type = unpack_u64(&u);
    *out = (struct record){.type = type == WRITE_IN_PARTS ? RECORD_WRITE : (enum record_type)type,
                           .in_parts = type == WRITE_IN_PARTS};
    switch (out->type) {
    case RECORD_WRITE: take_write(&u, a, out); break;
    case RECORD_REMOVE: out->life = unpack_u64(&u); break;
    case RECORD_DOCS: take_docs(&u, a, out); break;
    case RECORD_TRIM:
        out->life = unpack_u64(&u);
        take_first(&u, out);
        break;
    case RECORD_PART:
        out->at = unpack_u64_max(&u, UINT32_MAX / 2);
        out->data = unpack_str(&u);
        break;
    default: return ERR_CORRUPT;
    }
    return unpack_end(&u);
}

/* ---- rows ---- */

static void put_guard(struct buf *out, const struct stream *s)
{
    static const struct stream_guard none;
    const struct stream_guard *g = s->guard == NULL ? &none : s->guard;
    put_claim(out, &g->closed_by);
    pack_u64(out, g->last_seq.p != NULL);
    pack_str(out, g->last_seq);
}

static void put_fork(struct buf *out, const struct stream_fork *f)
{
    pack_u64(out, f->source == NULL ? f->lost : f->source->life);
    put_config(out, &f->config);
    pack_u64(out, f->at);
    pack_u64(out, f->events);
    pack_u64(out, f->whole);
}

void row_put(struct buf *out, const struct stream *s)
{
    struct stream_config term = term_of(s);
    pack_u64(out, s->fork == NULL ? 1 : ROW_VERSION);
    pack_str(out, s->name);
    pack_str(out, s->content_type);
    put_term(out, &term);
    put_first(out, s);
    pack_u64(out, s->tape.tail);
    pack_u64(out, s->tape.events);
    pack_u64(out, s->end);
    put_guard(out, s);
    if (s->fork == NULL)
        pack_u64(out, 0);
    else
        put_fork(out, s->fork);
    pack_u64(out, s->deleted);
}

static void take_lives(struct unpack *u, struct row *r)
{
    uint64_t life = 0;
    for (uint64_t n = unpack_u64_max(u, u->rest.n); n > 0 && u->err == 0; n--) {
        life = unpack_u64(u);
        r->fork_at = unpack_u64(u);
    }
    if (life != r->source_life)
        u->err = ERR_CORRUPT;
    r->whole = true;
}

static void take_fork(struct unpack *u, uint64_t version, struct row *r)
{
    r->source_life = unpack_u64(u);
    if (r->source_life == 0)
        return;
    take_config(u, &r->config);
    if (version == 1) {
        take_lives(u, r);
        return;
    }
    r->fork_at = unpack_u64(u);
    r->fork_events = unpack_u64(u);
    r->whole = unpack_bool(u);
}

/* Up to the life of the source; returns the version. */
static uint64_t record_take_head(struct unpack *u, struct row *r)
{
    uint64_t version = unpack_u64_max(u, ROW_VERSION);
    r->name = unpack_str(u);
    r->content_type = unpack_str(u);
    take_term(u, &r->term);
    r->first = unpack_u64(u);
    r->first_event = unpack_u64(u);
    r->tail = unpack_u64(u);
    r->events = unpack_u64(u);
    r->end = (enum end_reason)unpack_u64_max(u, END_EXPIRED);
    take_claim(u, &r->closed_by);
    bool has_seq = unpack_bool(u);
    r->last_seq = unpack_str(u);
    if (!has_seq)
        r->last_seq = STR_NONE;
    return version;
}

int row_take(struct str bytes, struct row *r)
{
    struct unpack u = {.rest = bytes};
    *r = (struct row){0};
    uint64_t version = record_take_head(&u, r);
    take_fork(&u, version, r);
    r->deleted = unpack_bool(&u);
    return unpack_end(&u);
}

int row_share(struct buf *out, struct str row, uint64_t fork_at, uint64_t fork_events)
{
    struct unpack u = {.rest = row};
    struct row r = {0};
    unpack_u64_max(&u, ROW_VERSION);
    struct str head = u.rest;
    u.rest = row;
    record_take_head(&u, &r);
    r.source_life = unpack_u64(&u);
    take_config(&u, &r.config);
    head.n -= u.rest.n;
    int err = u.err != 0 ? u.err : row_take(row, &r);
    if (err != 0 || r.source_life == 0)
        return ERR_CORRUPT;
    pack_u64(out, ROW_VERSION);
    buf_put(out, head);
    pack_u64(out, fork_at);
    pack_u64(out, fork_events);
    pack_u64(out, false);
    pack_u64(out, r.deleted);
    return 0;
}
