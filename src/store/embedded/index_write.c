// SPDX-License-Identifier: Apache-2.0
/* index_write.c -- one checkpoint: rows are put and removed in one transaction of LMDB.
 *
 * What that does to the segments' counts is added up beside it, in a tally for each segment, and
 * written to their rows when somebody looks at them and at the end: a checkpoint makes many rows of
 * blocks in few segments. */
#include "store/embedded/index_core.h"
#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/must.h"

#include <assert.h>
#include <stdlib.h>

/* A change of one segment's row. Differences wrap around, as unsigned numbers do. */
struct tally {
    uint64_t id; /* the key in the map */
    uint64_t live_rows, live_bytes;
    bool has_bytes;
    uint64_t bytes;
};

struct index_write {
    struct index *index;
    MDB_txn *txn;
    struct buf value;   /* of the row that is being put */
    struct map tallies; /* of struct tally */
    int err;            /* the first */
};

/* Keeps the first error. */
static int index_write_note(struct index_write *w, int err)
{
    if (w->err == 0)
        w->err = err;
    return err;
}

/* ---- beginning and end ---- */

int index_begin(struct index *i, struct index_write **out)
{
    MDB_txn *txn;
    if (i->failed || i->unmapped)
        return ERR_IO;
    int err = index_make_room(i);
    if (err == 0)
        err = index_err(mdb_txn_begin(i->env, NULL, 0, &txn));
    if (err != 0)
        return err;
    struct index_write *w = mem_zalloc(sizeof *w);
    w->index = i;
    w->txn = txn;
    map_init(&w->tallies);
    *out = w;
    return 0;
}

static void drop_tallies(struct index_write *w)
{
    size_t at = 0;
    struct tally *t;
    while ((t = map_next(&w->tallies, &at)) != NULL)
        free(t);
    map_deinit(&w->tallies);
}

/* The transaction has ended. */
static void free_write(struct index_write *w)
{
    drop_tallies(w);
    buf_deinit(&w->value);
    free(w);
}

void index_abort(struct index_write *w)
{
    if (w == NULL)
        return;
    mdb_txn_abort(w->txn);
    free_write(w);
}

/* ---- rows ---- */

static int lmdb_result(struct index_write *w, int rc)
{
    return rc == 0 || rc == MDB_NOTFOUND ? index_err(rc) : index_note_failure(w->index, rc, false);
}

/* Puts what was packed into w->value. */
static int index_write_put_row(struct index_write *w, enum table t, struct str key)
{
    row_seal(&w->value, t, key);
    MDB_val k = {key.n, (void *)key.p}, v = {w->value.n, w->value.p};
    return lmdb_result(w, mdb_put(w->txn, w->index->tables[t], &k, &v, 0));
}

static int get_row(struct index_write *w, enum table t, struct str key, struct str *value)
{
    MDB_val k = {key.n, (void *)key.p}, v;
    int err = lmdb_result(w, mdb_get(w->txn, w->index->tables[t], &k, &v));
    if (err == 0)
        *value = str_of(v.mv_data, v.mv_size);
    return err;
}

static int remove_row(struct index_write *w, enum table t, struct str key)
{
    MDB_val k = {key.n, (void *)key.p};
    return lmdb_result(w, mdb_del(w->txn, w->index->tables[t], &k, NULL));
}

static int remove_if_there(struct index_write *w, enum table t, struct str key)
{
    int err = remove_row(w, t, key);
    return err == ERR_NOT_FOUND ? 0 : err;
}

/* The first row of a table at or behind a key; valid until the next change. */
static int next_row(struct index_write *w, enum table t, struct str from, struct str *key,
                    struct str *value)
{
    MDB_cursor *c;
    MDB_val k = {from.n, (void *)from.p}, v;
    int rc = mdb_cursor_open(w->txn, w->index->tables[t], &c);
    if (rc != 0)
        return lmdb_result(w, rc);
    rc = mdb_cursor_get(c, &k, &v, MDB_SET_RANGE);
    mdb_cursor_close(c);
    if (rc != 0)
        return lmdb_result(w, rc);
    *key = str_of(k.mv_data, k.mv_size);
    *value = str_of(v.mv_data, v.mv_size);
    return 0;
}

static struct key index_write_key_of(uint64_t number)
{
    struct key k = {0};
    key_put_u64(&k, number);
    return k;
}

/* ---- segments ---- */

static struct tally *tally_of(struct index_write *w, uint64_t segment)
{
    struct tally *t = map_get(&w->tallies, str_of((const char *)&segment, sizeof segment));
    if (t != NULL)
        return t;
    t = mem_zalloc(sizeof *t);
    t->id = segment;
    map_put(&w->tallies, str_of((const char *)&t->id, sizeof t->id), t);
    return t;
}

static bool index_write_add(uint64_t *count, uint64_t change)
{
    uint64_t before = *count;
    *count += change;
    return change <= INT64_MAX ? *count >= before : *count < before;
}

static int settle_tally(struct index_write *w, const struct tally *t)
{
    struct key key = index_write_key_of(t->id);
    struct index_segment s = {.id = t->id};
    struct str value;
    int err = get_row(w, TABLE_SEGMENT, key_str(&key), &value);
    if (err == 0)
        err = row_read_segment(key_str(&key), value, &s);
    else if (err == ERR_NOT_FOUND)
        err = 0;
    if (err != 0)
        return err;
    if (!index_write_add(&s.live_rows, t->live_rows) ||
        !index_write_add(&s.live_bytes, t->live_bytes))
        return ERR_CORRUPT; /* more were removed than it had */
    if (t->has_bytes)
        s.bytes = t->bytes;
    row_begin(&w->value);
    row_pack_segment(&w->value, &s);
    return index_write_put_row(w, TABLE_SEGMENT, key_str(&key));
}

static int settle_tallies(struct index_write *w)
{
    size_t at = 0;
    struct tally *t;
    int err = 0;
    while (err == 0 && (t = map_next(&w->tallies, &at)) != NULL)
        err = settle_tally(w, t);
    drop_tallies(w);
    map_init(&w->tallies);
    return err;
}

int index_add_segment(struct index_write *w, uint64_t id, uint64_t bytes)
{
    if (w->err != 0)
        return w->err;
    struct tally *t = tally_of(w, id);
    t->has_bytes = true;
    t->bytes = bytes;
    return 0;
}

/* Removes the row if no block of it lives; *dead tells. */
static int remove_if_dead(struct index_write *w, struct str key, struct str value, uint64_t *id,
                          bool *dead)
{
    struct index_segment s;
    int err = row_read_segment(key, value, &s);
    if (err != 0)
        return err;
    *id = s.id;
    *dead = s.live_rows == 0;
    struct key k = index_write_key_of(s.id);
    return *dead ? remove_row(w, TABLE_SEGMENT, key_str(&k)) : 0;
}

static int remove_dead(struct index_write *w, uint64_t below, int (*each)(void *ctx, uint64_t id),
                       void *ctx)
{
    struct key at = index_write_key_of(0);
    struct str key, value;
    int err = settle_tallies(w);
    while (err == 0 && (err = next_row(w, TABLE_SEGMENT, key_str(&at), &key, &value)) == 0) {
        uint64_t id = 0;
        bool dead;
        if (key.n == 8 && key_u64(key, 0) >= below)
            return 0;
        err = remove_if_dead(w, key, value, &id, &dead);
        if (err == 0 && dead && (err = each(ctx, id)) != 0)
            return err;
        at = index_write_key_of(id + 1);
    }
    return err == ERR_NOT_FOUND ? 0 : err;
}

int index_dead_segments(struct index_write *w, uint64_t below, int (*each)(void *ctx, uint64_t id),
                        void *ctx)
{
    return w->err != 0 ? w->err : index_write_note(w, remove_dead(w, below, each, ctx));
}

/* ---- blocks ---- */

static struct key block_key(uint64_t life, uint64_t first)
{
    struct key k = index_write_key_of(life);
    key_put_u64(&k, first);
    return k;
}

static struct key place_key(const struct place *p)
{
    struct key k = index_write_key_of(p->segment);
    key_put_u64(&k, p->offset);
    return k;
}

static struct key resident_key(uint64_t life, const struct block_info *b)
{
    struct key k = place_key(&b->place);
    key_put_u64(&k, life);
    key_put_u64(&k, b->first);
    return k;
}

/* Whether any row tells of the block that is there. */
static int is_referenced(struct index_write *w, const struct place *p, bool *out)
{
    struct key k = place_key(p);
    struct str key, value;
    int err = next_row(w, TABLE_RESIDENT, key_str(&k), &key, &value);
    *out = err == 0 && str_starts(key, key_str(&k));
    return err == ERR_NOT_FOUND ? 0 : err;
}

static int acquire_residence(struct index_write *w, uint64_t life, const struct block_info *b)
{
    struct key key = resident_key(life, b);
    struct tally *t = tally_of(w, b->place.segment);
    bool shared;
    int err = is_referenced(w, &b->place, &shared);
    if (err != 0)
        return err;
    t->live_rows++;
    t->live_bytes += shared ? 0 : b->place.bytes;
    MDB_val k = {key.n, key.bytes}, nothing = {0, (void *)""};
    return lmdb_result(w, mdb_put(w->txn, w->index->tables[TABLE_RESIDENT], &k, &nothing, 0));
}

/* The row of a block goes, or is about to tell of another place. */
static int release_residence(struct index_write *w, uint64_t life, const struct block_info *b)
{
    struct key key = resident_key(life, b);
    struct tally *t = tally_of(w, b->place.segment);
    bool shared = false;
    int err = remove_row(w, TABLE_RESIDENT, key_str(&key));
    if (err == 0)
        err = is_referenced(w, &b->place, &shared);
    t->live_rows--;
    t->live_bytes -= shared ? 0 : b->place.bytes;
    return err == ERR_NOT_FOUND ? ERR_CORRUPT : err;
}

static int index_write_put_block(struct index_write *w, uint64_t life, const struct block_info *b)
{
    struct key key = block_key(life, b->first);
    row_begin(&w->value);
    row_pack_block(&w->value, b);
    row_seal(&w->value, TABLE_BLOCK, key_str(&key));
    MDB_val k = {key.n, key.bytes}, v = {w->value.n, w->value.p};
    MDB_dbi table = w->index->tables[TABLE_BLOCK];
    int rc = mdb_put(w->txn, table, &k, &v, MDB_NOOVERWRITE);
    if (rc == MDB_KEYEXIST) {
        struct block_info old; /* v is what is there */
        int err = row_read_block(key_str(&key), str_of(v.mv_data, v.mv_size), &old);
        if (err == 0)
            err = release_residence(w, life, &old);
        if (err != 0)
            return err;
        v = (MDB_val){w->value.n, w->value.p};
        rc = mdb_put(w->txn, table, &k, &v, 0);
    }
    return rc != 0 ? lmdb_result(w, rc) : acquire_residence(w, life, b);
}

int index_put_block(struct index_write *w, uint64_t life, const struct block_info *b)
{
    assert(b->first < b->end);
    return w->err != 0 ? w->err : index_write_note(w, index_write_put_block(w, life, b));
}

/* The first row of a block of this life at or behind `from`. ERR_NOT_FOUND: there is none. */
static int next_block(struct index_write *w, uint64_t life, uint64_t from, struct block_info *out)
{
    struct key k = block_key(life, from);
    struct str key, value;
    int err = next_row(w, TABLE_BLOCK, key_str(&k), &key, &value);
    if (err != 0)
        return err;
    if (key.n != 16)
        return ERR_CORRUPT;
    return key_u64(key, 0) == life ? row_read_block(key, value, out) : ERR_NOT_FOUND;
}

static int copy_blocks(struct index_write *w, uint64_t from, uint64_t to, uint64_t upto)
{
    struct block_info b = {0};
    uint64_t at = 0;
    int err;
    while ((err = next_block(w, from, at, &b)) == 0 && b.first < upto) {
        at = b.first + 1;
        if (b.end > upto)
            b.end = upto;
        err = index_write_put_block(w, to, &b);
        if (err != 0)
            break;
    }
    return err == ERR_NOT_FOUND ? 0 : err;
}

int index_copy_blocks(struct index_write *w, uint64_t from, uint64_t to, uint64_t upto)
{
    assert(from != to);
    return w->err != 0 ? w->err : index_write_note(w, copy_blocks(w, from, to, upto));
}

static int remove_block(struct index_write *w, uint64_t life, const struct block_info *b)
{
    struct key k = block_key(life, b->first);
    int err = release_residence(w, life, b);
    return err == 0 ? remove_row(w, TABLE_BLOCK, key_str(&k)) : err;
}

static int merge_blocks(struct index_write *w, uint64_t life, const struct block_info *b)
{
    struct block_info old;
    int err = index_write_put_block(w, life, b);
    while (err == 0 && (err = next_block(w, life, b->first + 1, &old)) == 0 && old.end <= b->end)
        err = remove_block(w, life, &old);
    return err == ERR_NOT_FOUND ? 0 : err;
}

int index_merge_blocks(struct index_write *w, uint64_t life, const struct block_info *b)
{
    assert(b->first < b->end);
    return w->err != 0 ? w->err : index_write_note(w, merge_blocks(w, life, b));
}

static int index_write_trim(struct index_write *w, uint64_t life, uint64_t pos)
{
    struct block_info b;
    int err;
    while ((err = next_block(w, life, 0, &b)) == 0 && b.end <= pos)
        if ((err = remove_block(w, life, &b)) != 0)
            return err;
    return err == ERR_NOT_FOUND ? 0 : err;
}

int index_trim(struct index_write *w, uint64_t life, uint64_t pos)
{
    return w->err != 0 ? w->err : index_write_note(w, index_write_trim(w, life, pos));
}

/* ---- streams ---- */

int index_put_stream(struct index_write *w, uint64_t life, struct str row)
{
    must(row.n <= INDEX_ROW_MAX);
    if (w->err != 0)
        return w->err;
    struct key k = index_write_key_of(life);
    row_begin(&w->value);
    buf_put(&w->value, row);
    return index_write_note(w, index_write_put_row(w, TABLE_STREAM, key_str(&k)));
}

static int remove_producers(struct index_write *w, uint64_t life)
{
    struct key from = index_write_key_of(life);
    struct str key, value;
    int err;
    while ((err = next_row(w, TABLE_PRODUCER, key_str(&from), &key, &value)) == 0) {
        struct key k = {.n = key.n};
        if (key.n != KEY_MAX)
            return ERR_CORRUPT;
        if (key_u64(key, 0) != life)
            return 0;
        memcpy(k.bytes, key.p, key.n);
        err = remove_row(w, TABLE_PRODUCER, key_str(&k));
        if (err != 0)
            return err;
    }
    return err == ERR_NOT_FOUND ? 0 : err;
}

int index_cut(struct index_write *w, uint64_t life, uint64_t pos)
{
    struct block_info b;
    int err = w->err;
    while (err == 0 && (err = next_block(w, life, pos, &b)) == 0)
        err = remove_block(w, life, &b);
    if (err == ERR_NOT_FOUND)
        err = remove_producers(w, life);
    return index_write_note(w, err);
}

int index_remove_stream(struct index_write *w, uint64_t life)
{
    if (w->err != 0)
        return w->err;
    struct key k = index_write_key_of(life);
    int err = index_write_trim(w, life, UINT64_MAX);
    if (err == 0)
        err = remove_producers(w, life);
    if (err == 0)
        err = remove_if_there(w, TABLE_STREAM, key_str(&k));
    return index_write_note(w, err);
}

int index_put_producer(struct index_write *w, uint64_t life, const struct producer_claim *p)
{
    if (w->err != 0)
        return w->err;
    struct key k = index_write_key_of(life);
    key_put_digest(&k, p->id);
    row_begin(&w->value);
    pack_str(&w->value, p->id);
    pack_u64(&w->value, p->epoch);
    pack_u64(&w->value, p->seq);
    return index_write_note(w, index_write_put_row(w, TABLE_PRODUCER, key_str(&k)));
}

/* ---- documents and meta ---- */

int index_put_doc(struct index_write *w, struct str key, uint64_t version, struct str value)
{
    if (w->err != 0)
        return w->err;
    struct key k = {0};
    key_put_digest(&k, key);
    row_begin(&w->value);
    pack_str(&w->value, key);
    pack_u64(&w->value, version);
    pack_str(&w->value, value);
    return index_write_note(w, index_write_put_row(w, TABLE_DOC, key_str(&k)));
}

int index_remove_doc(struct index_write *w, struct str key)
{
    if (w->err != 0)
        return w->err;
    struct key k = {0};
    key_put_digest(&k, key);
    return index_write_note(w, remove_if_there(w, TABLE_DOC, key_str(&k)));
}

int index_put_meta(struct index_write *w, const struct index_meta *meta)
{
    if (w->err != 0)
        return w->err;
    row_begin(&w->value);
    row_pack_meta(&w->value, meta);
    return index_write_note(w, index_write_put_row(w, TABLE_META, str_of_cstr(index_meta_key)));
}

int index_clear(struct index_write *w)
{
    for (int t = 0; w->err == 0 && t < TABLES; t++)
        if (t != TABLE_META)
            index_write_note(w, lmdb_result(w, mdb_drop(w->txn, w->index->tables[t], 0)));
    drop_tallies(w);
    map_init(&w->tallies);
    return w->err;
}

struct index *index_of_write(struct index_write *w)
{
    return w->index;
}

MDB_txn *index_txn_of_write(struct index_write *w)
{
    return w->txn;
}

/* ---- the end ---- */

int index_commit(struct index_write *w)
{
    if (w->err == 0)
        w->err = settle_tallies(w);
    int err = w->err;
    if (err != 0) {
        index_abort(w);
        return err;
    }
    int rc = mdb_txn_commit(w->txn);
    err = rc == 0 ? 0 : index_note_failure(w->index, rc, true);
    free_write(w);
    return err;
}
