// SPDX-License-Identifier: Apache-2.0
/* doctor_index.c -- looks at the index: its pages (lmdb_file.h), each of its rows, and whether the
 * rows agree with one another. Whether they agree with the segments is doctor_segment.c's. */
#include "base/err.h"
#include "base/mem.h"
#include "store/doctor/doctor_core.h"
#include "store/embedded/lmdb_file.h"
#include "store/embedded/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

struct rows {
    struct doctor_pass *look;
    struct doctor_stream *current; /* of the block rows */
    uint64_t current_life, strays; /* blocks of a life that has no stream */
    /* Rows of blocks and of `resident` have to name the same places: how many there are, and a sum
     * of digests, in which their order does not count. */
    uint64_t n_blocks, blocks_sum, n_residents, residents_sum;
    int version; /* ERR_VERSION: of the rows */
};

static void note_bad(struct doctor_pass *l, enum table t, struct str key)
{
    l->bad = mem_grow(l->bad, l->n_bad, &l->cap_bad, sizeof *l->bad);
    struct doctor_bad *b = &l->bad[l->n_bad++];
    *b = (struct doctor_bad){.table = t, .key = {.n = key.n < KEY_MAX ? key.n : KEY_MAX}};
    memcpy(b->key.bytes, key.p, b->key.n);
}

/* ---- meta ---- */

static int doctor_index_see_meta(void *ctx, struct str key, struct str value)
{
    struct rows *r = ctx;
    struct doctor_pass *l = r->look;
    int err = str_eq(key, str_of_cstr(index_meta_key)) ? row_read_meta(key, value, &l->meta)
                                                       : ERR_CORRUPT;
    if (err == ERR_VERSION)
        return r->version = err;
    if (err == 0)
        l->has_meta = true;
    else
        note_bad(l, TABLE_META, key);
    return 0;
}

/* False: it has to be made again. The same of what follows. */
static bool check_meta(struct doctor_pass *l)
{
    const struct index_meta *m = &l->meta;
    uint64_t before = l->wrong;
    if (!l->has_meta) {
        doctor_say(l, DOCTOR_WRONG,
                   "the index does not tell which checkpoint it is of (that row is %s)",
                   l->n_bad > 0 ? "damaged" : "missing");
        return false;
    }
    uint64_t last_life = l->n_streams > 0 ? l->streams[l->n_streams - 1].life : 0;
    uint64_t last_segment = l->n_rows > 0 ? l->rows[l->n_rows - 1].id : 0;
    if (last_life > m->lives)
        doctor_say(l, DOCTOR_WRONG,
                   "the index tells of a life %" PRIu64 ", but says that %" PRIu64 " was the last",
                   last_life, m->lives);
    if (last_segment >= m->next_segment || m->base >= m->next_segment)
        doctor_say(l, DOCTOR_WRONG,
                   "the index tells of segment %" PRIu64 ", but says that %" PRIu64 " is the next",
                   last_segment > m->base ? last_segment : m->base, m->next_segment);
    return l->wrong == before;
}

/* ---- streams ---- */

static struct doctor_stream *doctor_index_add_stream(struct doctor_pass *l)
{
    l->streams = mem_grow(l->streams, l->n_streams, &l->cap_streams, sizeof *l->streams);
    return &l->streams[l->n_streams++];
}

static int doctor_index_see_stream(void *ctx, struct str key, struct str value)
{
    struct rows *r = ctx;
    struct doctor_pass *l = r->look;
    struct str bytes;
    struct row row;
    int err = key.n == 8 ? row_open(TABLE_STREAM, key, value, &bytes) : ERR_CORRUPT;
    if (err == 0)
        err = row_take(bytes, &row);
    if (err == 0 && !row.deleted && (row.first > row.tail || row.first_event > row.events))
        err = ERR_CORRUPT; /* of one that is deleted only the name counts */
    if (err == 0)
        *doctor_index_add_stream(l) = (struct doctor_stream){.life = key_u64(key, 0),
                                                             .first = row.first,
                                                             .first_event = row.first_event,
                                                             .tail = row.tail,
                                                             .events = row.events,
                                                             .source = row.source_life,
                                                             .fork_at = row.fork_at,
                                                             .fork_events = row.fork_events,
                                                             .whole = row.whole,
                                                             .need = UINT64_MAX,
                                                             .name = arena_dup(&l->arena, row.name),
                                                             .deleted = row.deleted};
    if (err == 0)
        return 0;
    note_bad(l, TABLE_STREAM, key);
    doctor_say(l, DOCTOR_WRONG, "the index's row of a stream (life %" PRIu64 ") does not verify",
               key.n == 8 ? key_u64(key, 0) : 0);
    return 0;
}

static int doctor_index_by_name(const void *a, const void *b)
{
    const struct doctor_stream *const *x = a, *const *y = b;
    return str_cmp((*x)->name, (*y)->name);
}

static void check_names(struct doctor_pass *l)
{
    const struct doctor_stream **sorted = mem_alloc((l->n_streams + 1) * sizeof *sorted);
    for (size_t i = 0; i < l->n_streams; i++)
        sorted[i] = &l->streams[i];
    qsort(sorted, l->n_streams, sizeof *sorted, doctor_index_by_name);
    for (size_t i = 1; i < l->n_streams; i++) {
        if (!str_eq(sorted[i]->name, sorted[i - 1]->name))
            continue;
        l->twins = true;
        doctor_say(l, DOCTOR_WRONG, "the index has two streams with the name %.*s",
                   STR_ARG(sorted[i]->name));
    }
    free(sorted);
}

static void check_sources(struct doctor_pass *l)
{
    for (size_t i = 0; i < l->n_streams; i++) {
        const struct doctor_stream *s = &l->streams[i];
        if (s->source != 0 && (s->source >= s->life || doctor_find_stream(l, s->source) == NULL))
            doctor_say(l, DOCTOR_WRONG,
                       "the index has no row of the stream that stream %.*s was forked from",
                       STR_ARG(s->name));
    }
}

/* ---- blocks ---- */

static void plan_range(struct doctor_pass *l, struct doctor_stream *s)
{
    bool shares = s->source != 0 && !s->whole;
    uint64_t own = shares ? s->fork_at : 0;
    uint64_t low = s->deleted || s->need < s->first ? s->need : s->first;
    s->begin = low > own ? low : own;
    s->end = !s->deleted || s->tail < s->need_upto ? s->tail : s->need_upto;
    struct doctor_stream *source = s->source == 0 ? NULL : doctor_find_stream(l, s->source);
    if (source == NULL || source->life >= s->life)
        return;
    source->forked = true;
    if (!shares || low >= s->fork_at)
        return;
    if (low < source->need)
        source->need = low;
    if (s->fork_at > source->need_upto)
        source->need_upto = s->fork_at;
}

/* Forks come behind what they were forked from: the last ones first. */
static void plan_ranges(struct doctor_pass *l)
{
    for (size_t i = l->n_streams; i > 0; i--)
        plan_range(l, &l->streams[i - 1]);
}

static void end_strays(struct rows *r)
{
    if (r->strays > 0)
        doctor_say(r->look, DOCTOR_WRONG,
                   "the index tells of %" PRIu64 " blocks of a stream that it has no row of (life "
                   "%" PRIu64 ")",
                   r->strays, r->current_life);
    r->strays = 0;
}

static void say_hole(struct doctor_pass *l, const struct doctor_stream *s, uint64_t from,
                     uint64_t to)
{
    doctor_note_loss(l, s->life, from, to);
    if (s->unclear)
        return;
    doctor_say(l, DOCTOR_WRONG,
               "stream %.*s: the index does not tell where its events from offset %016" PRIu64
               "_%016" PRIu64 " up to %016" PRIu64 "_%016" PRIu64 " are",
               STR_ARG(s->name), s->life, from, s->life, to);
}

static void say_disorder(struct doctor_pass *l, struct doctor_stream *s, const struct block_info *b)
{
    doctor_say(l, DOCTOR_WRONG,
               "stream %.*s: the index's rows of its events overlap or are miscounted at offset "
               "%016" PRIu64 "_%016" PRIu64,
               STR_ARG(s->name), s->life, b->first);
}

/* The first row of a stream may begin before what it has to have, but not with a later event. */
static bool begins_well(const struct doctor_stream *s, const struct block_info *b)
{
    if (b->end <= s->begin)
        return s->forked;
    if (s->begin == s->first)
        return b->ordinal <= s->first_event;
    return s->whole || s->begin != s->fork_at || b->ordinal <= s->fork_events;
}

static void follow_block(struct doctor_pass *l, struct doctor_stream *s, const struct block_info *b)
{
    bool begins = s->blocks++ == 0;
    uint64_t next = begins ? s->begin : s->next;
    if (b->first > next && next < s->end)
        say_hole(l, s, next, b->first);
    else if (begins ? !begins_well(s, b)
                    : b->first < next || b->ordinal > s->ordinal || b->ordinal < s->least)
        say_disorder(l, s, b);
    s->next = b->end;
    s->least = b->ordinal + 1;
    s->ordinal = b->ordinal + b->events;
}

static struct doctor_stream *stream_of_row(struct rows *r, uint64_t life)
{
    if (life == r->current_life)
        return r->current;
    end_strays(r);
    r->current_life = life;
    return r->current = doctor_find_stream(r->look, life);
}

static int doctor_index_see_block(void *ctx, struct str key, struct str value)
{
    struct rows *r = ctx;
    struct block_info b;
    int err = row_read_block(key, value, &b);
    struct doctor_stream *s = key.n == 16 ? stream_of_row(r, key_u64(key, 0)) : NULL;
    if (err != 0) {
        note_bad(r->look, TABLE_BLOCK, key);
        struct str name = doctor_stream_name(r->look, key.n == 16 ? key_u64(key, 0) : 0);
        doctor_say(r->look, DOCTOR_WRONG,
                   "%.*s: the index's row of some of its events does not "
                   "verify",
                   STR_ARG(name));
        if (s != NULL)
            s->unclear = true;
        return 0;
    }
    struct key place = {0};
    key_put_u64(&place, b.place.segment);
    key_put_u64(&place, b.place.offset);
    key_put_u64(&place, key_u64(key, 0));
    key_put_u64(&place, b.first);
    r->n_blocks++;
    r->blocks_sum += XXH3_64bits(place.bytes, place.n);
    if (s == NULL)
        r->strays++;
    else
        follow_block(r->look, s, &b);
    r->look->copies += s != NULL && s->whole && b.first < s->fork_at;
    return 0;
}

static void check_ends(struct doctor_pass *l)
{
    for (size_t i = 0; i < l->n_streams; i++) {
        struct doctor_stream *s = &l->streams[i];
        uint64_t next = s->blocks == 0 ? s->begin : s->next;
        if (s->deleted && s->blocks > 0 && !s->forked)
            doctor_say(l, DOCTOR_WRONG,
                       "stream %.*s was deleted, and the index still has events of "
                       "it",
                       STR_ARG(s->name));
        if (next < s->end)
            say_hole(l, s, next, s->end);
        else if (s->deleted)
            continue;
        else if (next > s->tail ||
                 (s->blocks > 0 && (s->events > s->ordinal || s->events < s->least)))
            doctor_say(l, DOCTOR_WRONG,
                       "stream %.*s: the index's rows of its events do not end "
                       "where it does",
                       STR_ARG(s->name));
    }
}

static int doctor_index_see_resident(void *ctx, struct str key, struct str value)
{
    struct rows *r = ctx;
    r->n_residents++;
    r->residents_sum += XXH3_64bits(key.p, key.n);
    return 0;
}

/* ---- the other tables ---- */

static int doctor_index_see_producer(void *ctx, struct str key, struct str value)
{
    struct rows *r = ctx;
    struct doctor_pass *l = r->look;
    struct producer_claim p;
    uint64_t life = key.n >= 8 ? key_u64(key, 0) : 0;
    struct key right = {0};
    int err = row_read_producer(key, value, &p);
    key_put_u64(&right, life);
    if (err == 0)
        key_put_digest(&right, p.id);
    bool sound = err == 0 && str_eq(key, key_str(&right));
    if (sound && doctor_find_stream(l, life) != NULL)
        return 0;
    if (!sound)
        note_bad(l, TABLE_PRODUCER, key);
    struct str name = doctor_stream_name(l, life);
    doctor_say(l, DOCTOR_WRONG, "%.*s: the index's row of one of its producers %s", STR_ARG(name),
               sound ? "has no stream" : "does not verify");
    return 0;
}

static int doctor_index_see_doc(void *ctx, struct str key, struct str value)
{
    struct rows *r = ctx;
    struct doc_read doc;
    struct key right = {0};
    int err = row_read_doc(key, value, &doc);
    if (err == 0)
        key_put_digest(&right, doc.key);
    if (err == 0 && str_eq(key, key_str(&right)))
        return 0;
    note_bad(r->look, TABLE_DOC, key);
    doctor_say(r->look, DOCTOR_WRONG,
               "the index's row of a document (subscriptions are kept in those) does not verify");
    return 0;
}

static int doctor_index_see_segment(void *ctx, struct str key, struct str value)
{
    struct rows *r = ctx;
    struct doctor_pass *l = r->look;
    struct index_segment s;
    if (row_read_segment(key, value, &s) != 0) {
        note_bad(l, TABLE_SEGMENT, key);
        doctor_say(l, DOCTOR_WRONG, "the index's row of a segment (%" PRIu64 ") does not verify",
                   key.n == 8 ? key_u64(key, 0) : 0);
        return 0;
    }
    l->rows = mem_grow(l->rows, l->n_rows, &l->cap_rows, sizeof *l->rows);
    l->rows[l->n_rows++] = s;
    return 0;
}

/* ---- the whole ---- */

static const struct {
    const char *name;
    int (*see)(void *ctx, struct str key, struct str value);
} tables[] = {
    /* Streams before what belongs to them. */
    {"meta", doctor_index_see_meta},         {"stream", doctor_index_see_stream},
    {"block", doctor_index_see_block},       {"producer", doctor_index_see_producer},
    {"doc", doctor_index_see_doc},           {"segment", doctor_index_see_segment},
    {"resident", doctor_index_see_resident},
};

static int see_tables(struct lmdb_file *f, struct rows *r)
{
    int err = 0;
    for (size_t i = 0; i < sizeof tables / sizeof *tables && err == 0; i++) {
        err = lmdb_file_table(f, tables[i].name, tables[i].see, r);
        if (tables[i].see == doctor_index_see_stream)
            plan_ranges(r->look);
    }
    end_strays(r);
    return err == 0 ? lmdb_file_finish(f) : err;
}

static bool check_residents(struct rows *r)
{
    if (r->n_blocks == r->n_residents && r->blocks_sum == r->residents_sum)
        return true;
    doctor_say(r->look, DOCTOR_WRONG,
               "the index's lists of blocks by stream and by place disagree");
    return false;
}

/* What is only lost, like the row of a stream that has blocks, was so when the index was made: to
 * make it again would not bring it back. */
static bool doctor_index_check_rows(struct rows *r)
{
    struct doctor_pass *l = r->look;
    check_names(l);
    check_sources(l);
    check_ends(l);
    if (l->copies > 0)
        doctor_say(l, DOCTOR_NOTE,
                   "forks have %" PRIu64 " rows of the index that are copies of their sources', as "
                   "version 0.1 made them; --repair lets them share those",
                   l->copies);
    bool meta = check_meta(l);
    return l->n_bad == 0 && check_residents(r) && meta;
}

static void say_broken(struct doctor_pass *l, const char *reason)
{
    l->state = DOCTOR_INDEX_BROKEN;
    doctor_say(l, DOCTOR_WRONG, "the index (index.mdb) is damaged: %s", reason);
}

/* What it says is checked once more by those who will read it. */
static void open_index(struct doctor_pass *l)
{
    char why[512];
    l->index = index_open(l->doctor->index_path, l->doctor->sync, why, sizeof why);
    if (l->index == NULL)
        say_broken(l, why);
}

static int see_file(struct doctor_pass *l, struct lmdb_file *f)
{
    struct rows r = {.look = l};
    int err = see_tables(f, &r);
    doctor_progress(l, lmdb_file_bytes(f));
    l->files++;
    l->bytes += lmdb_file_bytes(f);
    if (err != 0 && err != ERR_CORRUPT && err != ERR_NOT_FOUND)
        return err;
    if (err != 0) {
        say_broken(l, err == ERR_CORRUPT ? lmdb_file_damage(f) : "a table is missing");
        return 0;
    }
    l->state = doctor_index_check_rows(&r) ? DOCTOR_INDEX_SOUND : DOCTOR_INDEX_ROWS;
    if (l->has_meta)
        open_index(l);
    return 0;
}

static int could_not(int err, const char *reason, char *why, size_t size)
{
    snprintf(why, size, "the index cannot be looked at: %s",
             err == ERR_VERSION ? "it was written by another version" : reason);
    return err;
}

int doctor_check_index(struct doctor_pass *l, char *why, size_t size)
{
    struct lmdb_file *f;
    char reason[256] = "";
    int err = lmdb_file_open(l->doctor->index_path, &f, reason, sizeof reason);
    if (err == ERR_NOT_FOUND) {
        l->state = DOCTOR_INDEX_MISSING;
        doctor_say(l, DOCTOR_WRONG,
                   "the index (index.mdb) is missing; it is made again from the "
                   "segments, by a repair or when the server starts");
        return 0;
    }
    if (err == ERR_CORRUPT) {
        say_broken(l, reason);
        return 0;
    }
    if (err != 0)
        return could_not(err, reason, why, size);
    err = see_file(l, f);
    lmdb_file_close(f);
    if (err != 0)
        return could_not(err, err_text(err), why, size);
    if (l->state <= DOCTOR_INDEX_ROWS && l->has_meta)
        l->batch = l->meta.batch;
    for (size_t i = 0; i < l->n_streams; i++)
        doctor_add_life(l, l->streams[i].life, l->streams[i].tail, false);
    return 0;
}
