// SPDX-License-Identifier: Apache-2.0
/* index_read.c -- reading the index: each call is one transaction, and sees one commit. */
#include "store/embedded/index_core.h"
#include "base/err.h"

#include <assert.h>

struct reader {
    struct index *index;
    MDB_txn *txn;
    MDB_cursor *cursor;
    struct str key, value; /* where the cursor is */
};

static int reader_begin(struct reader *r, struct index *i)
{
    *r = (struct reader){.index = i};
    pthread_rwlock_rdlock(&i->map);
    if (i->unmapped)
        return ERR_IO;
    return index_err(mdb_txn_begin(i->env, NULL, MDB_RDONLY, &r->txn));
}

/* Accepts one that could not begin. */
static void reader_end(struct reader *r)
{
    if (r->cursor != NULL)
        mdb_cursor_close(r->cursor);
    if (r->txn != NULL)
        mdb_txn_abort(r->txn);
    pthread_rwlock_unlock(&r->index->map);
}

static int reader_table(struct reader *r, enum table t)
{
    if (r->cursor != NULL)
        mdb_cursor_close(r->cursor);
    r->cursor = NULL;
    return index_err(mdb_cursor_open(r->txn, r->index->tables[t], &r->cursor));
}

static int reader_move(struct reader *r, MDB_cursor_op how)
{
    MDB_val k = {r->key.n, (void *)r->key.p}, v;
    int err = index_err(mdb_cursor_get(r->cursor, &k, &v, how));
    if (err != 0)
        return err;
    r->key = str_of(k.mv_data, k.mv_size);
    r->value = str_of(v.mv_data, v.mv_size);
    return 0;
}

/* To that key, or to the next one. */
static int reader_seek(struct reader *r, const struct key *key)
{
    r->key = key_str(key);
    return reader_move(r, MDB_SET_RANGE);
}

static int none_is_fine(int err)
{
    return err == ERR_NOT_FOUND ? 0 : err;
}

/* ---- loading ---- */

static int index_read_load_stream(struct reader *r, struct index_load *load)
{
    struct str row;
    int err = r->key.n == 8 ? row_open(TABLE_STREAM, r->key, r->value, &row) : ERR_CORRUPT;
    return err != 0 ? err : load->stream(load->ctx, key_u64(r->key, 0), row);
}

static int index_read_load_block(struct reader *r, struct index_load *load)
{
    struct block_info b;
    int err = row_read_block(r->key, r->value, &b);
    return err != 0 ? err : load->block(load->ctx, key_u64(r->key, 0), &b);
}

static int index_read_load_producer(struct reader *r, struct index_load *load)
{
    struct producer_claim p;
    int err = row_read_producer(r->key, r->value, &p);
    return err != 0 ? err : load->producer(load->ctx, key_u64(r->key, 0), &p);
}

static int index_read_load_doc(struct reader *r, struct index_load *load)
{
    struct doc_read d;
    int err = row_read_doc(r->key, r->value, &d);
    return err != 0 ? err : load->doc(load->ctx, d.key, d.version, d.value);
}

static int index_read_load_segment(struct reader *r, struct index_load *load)
{
    struct index_segment s;
    int err = row_read_segment(r->key, r->value, &s);
    return err != 0 ? err : load->segment(load->ctx, &s);
}

static int load_table(struct reader *r, enum table t, struct index_load *load,
                      int (*row)(struct reader *r, struct index_load *load))
{
    int err = reader_table(r, t);
    if (err == 0)
        err = reader_move(r, MDB_FIRST);
    while (err == 0) {
        err = row(r, load);
        if (err != 0)
            return err; /* of a row, so NOT_FOUND too is no end of the table */
        err = reader_move(r, MDB_NEXT);
    }
    return none_is_fine(err);
}

static int load_meta(struct reader *r, struct index_meta *meta)
{
    struct str key = str_of_cstr(index_meta_key);
    int err = reader_table(r, TABLE_META);
    r->key = key;
    if (err == 0)
        err = reader_move(r, MDB_SET_KEY);
    if (err != 0)
        return err == ERR_NOT_FOUND ? ERR_CORRUPT : err;
    return row_read_meta(key, r->value, meta);
}

static int load_tables(struct reader *r, struct index_load *load)
{
    int err = 0;
    if (load->stream != NULL)
        err = load_table(r, TABLE_STREAM, load, index_read_load_stream);
    if (err == 0 && load->block != NULL)
        err = load_table(r, TABLE_BLOCK, load, index_read_load_block);
    if (err == 0 && load->producer != NULL)
        err = load_table(r, TABLE_PRODUCER, load, index_read_load_producer);
    if (err == 0 && load->doc != NULL)
        err = load_table(r, TABLE_DOC, load, index_read_load_doc);
    if (err == 0 && load->segment != NULL)
        err = load_table(r, TABLE_SEGMENT, load, index_read_load_segment);
    return err;
}

int index_load_written(struct index_write *w, struct index_load *load)
{
    struct reader r = {.index = index_of_write(w), .txn = index_txn_of_write(w)};
    assert(load->segment == NULL); /* their counts are not in the table yet */
    int err = load_tables(&r, load);
    if (r.cursor != NULL)
        mdb_cursor_close(r.cursor);
    return err;
}

int index_load(struct index *i, struct index_load *load, struct index_meta *meta)
{
    struct index_meta m;
    struct reader r;
    int err = reader_begin(&r, i);
    if (err == 0)
        err = load_meta(&r, &m);
    if (err == 0)
        err = load_tables(&r, load);
    reader_end(&r);
    if (err == 0)
        *meta = m;
    return err;
}

/* ---- blocks ---- */

static struct key block_key(uint64_t life, uint64_t first)
{
    struct key k = {0};
    key_put_u64(&k, life);
    key_put_u64(&k, first);
    return k;
}

/* The row that the cursor is at, if it is one of this life. */
static int block_here(struct reader *r, uint64_t life, struct block_info *out)
{
    if (r->key.n != 16)
        return ERR_CORRUPT;
    return key_u64(r->key, 0) == life ? row_read_block(r->key, r->value, out) : ERR_NOT_FOUND;
}

/* Puts the cursor on the last row of this life that begins at or before pos. */
static int seek_block(struct reader *r, uint64_t life, uint64_t pos, struct block_info *out)
{
    struct key k = block_key(life, pos);
    int err = reader_seek(r, &k);
    if (err == 0 && str_eq(r->key, key_str(&k)))
        return block_here(r, life, out);
    if (err == 0)
        err = reader_move(r, MDB_PREV);
    else if (err == ERR_NOT_FOUND)
        err = reader_move(r, MDB_LAST);
    return err == 0 ? block_here(r, life, out) : err;
}

int index_find(struct index *i, uint64_t life, uint64_t pos, struct block_info *out)
{
    struct block_info b;
    struct reader r;
    int err = reader_begin(&r, i);
    if (err == 0)
        err = reader_table(&r, TABLE_BLOCK);
    if (err == 0)
        err = seek_block(&r, life, pos, &b);
    if (err == 0 && b.end <= pos)
        err = ERR_NOT_FOUND;
    reader_end(&r);
    if (err == 0)
        *out = b;
    return err;
}

/* Puts the cursor on the first row of this life that ends behind pos. */
static int seek_from(struct reader *r, uint64_t life, uint64_t pos, struct block_info *out)
{
    int err = seek_block(r, life, pos, out);
    if (err == 0 && out->end > pos)
        return 0;
    if (err != 0 && err != ERR_NOT_FOUND)
        return err;
    struct key k = block_key(life, pos);
    err = reader_seek(r, &k);
    return err == 0 ? block_here(r, life, out) : err;
}

int index_blocks(struct index *i, uint64_t life, uint64_t from,
                 int (*each)(void *ctx, const struct block_info *b), void *ctx)
{
    struct block_info b;
    struct reader r;
    int stopped = 0;
    int err = reader_begin(&r, i);
    if (err == 0)
        err = reader_table(&r, TABLE_BLOCK);
    if (err == 0)
        err = seek_from(&r, life, from, &b);
    while (err == 0 && (stopped = each(ctx, &b)) == 0) {
        err = reader_move(&r, MDB_NEXT);
        if (err == 0)
            err = block_here(&r, life, &b);
    }
    reader_end(&r);
    return stopped != 0 ? stopped : none_is_fine(err);
}

int index_blocks_back(struct index *i, uint64_t life,
                      int (*each)(void *ctx, const struct block_info *b), void *ctx)
{
    struct block_info b;
    struct reader r;
    int stopped = 0;
    int err = reader_begin(&r, i);
    if (err == 0)
        err = reader_table(&r, TABLE_BLOCK);
    if (err == 0)
        err = seek_block(&r, life, UINT64_MAX, &b);
    while (err == 0 && (stopped = each(ctx, &b)) == 0) {
        err = reader_move(&r, MDB_PREV);
        if (err == 0)
            err = block_here(&r, life, &b);
    }
    reader_end(&r);
    return stopped != 0 ? stopped : none_is_fine(err);
}

/* Whether the row behind the one at the cursor begins with a later event, or is of another life. */
static bool is_last_before(struct reader *r, uint64_t life, uint64_t event)
{
    struct block_info next;
    int err = reader_move(r, MDB_NEXT);
    if (err == 0)
        err = block_here(r, life, &next);
    return err == ERR_NOT_FOUND || (err == 0 && next.ordinal > event);
}

/* Positions and ordinals rise together, so that halving the positions finds the ordinal. */
static int bisect_event(struct reader *r, uint64_t life, uint64_t from, uint64_t upto,
                        uint64_t event, struct block_info *out)
{
    struct block_info b;
    int err = seek_block(r, life, from, out);
    if (err != 0 || is_last_before(r, life, event))
        return err;
    for (uint64_t low = from, high = upto; high - low > 1;) {
        uint64_t middle = low + (high - low) / 2;
        err = seek_block(r, life, middle, &b);
        if (err != 0)
            return err;
        if (b.ordinal > event) {
            high = b.first;
            continue;
        }
        low = middle;
        *out = b;
        if (event - b.ordinal < b.events && is_last_before(r, life, event))
            return 0;
    }
    return 0;
}

int index_find_event(struct index *i, uint64_t life, uint64_t from, uint64_t upto, uint64_t event,
                     struct block_info *out)
{
    struct block_info b;
    struct reader r;
    int err = reader_begin(&r, i);
    if (err == 0)
        err = reader_table(&r, TABLE_BLOCK);
    if (err == 0)
        err = bisect_event(&r, life, from, upto, event, &b);
    reader_end(&r);
    if (err == 0)
        *out = b;
    return err;
}

/* Of rows of `resident`: whether that at the cursor tells of this place, and for which life. */
static int resident_of(struct reader *r, const struct key *place, uint64_t *life)
{
    if (!str_starts(r->key, key_str(place)))
        return ERR_NOT_FOUND;
    if (r->key.n != 32)
        return ERR_CORRUPT;
    *life = key_u64(r->key, 16);
    return 0;
}

int index_is_shared(struct index *i, uint64_t life, const struct place *place, bool *out)
{
    struct reader r;
    struct key k = {0};
    uint64_t its;
    bool shared = false;
    key_put_u64(&k, place->segment);
    key_put_u64(&k, place->offset);
    int err = reader_begin(&r, i);
    if (err == 0)
        err = reader_table(&r, TABLE_RESIDENT);
    if (err == 0)
        err = reader_seek(&r, &k);
    while (err == 0 && (err = resident_of(&r, &k, &its)) == 0) {
        shared |= its != life;
        err = reader_move(&r, MDB_NEXT);
    }
    reader_end(&r);
    *out = shared;
    return none_is_fine(err);
}

/* The block row that the row of `resident` at the cursor names, if it is one of this segment. */
static int resident_here(struct reader *r, uint64_t segment, uint64_t *life, struct block_info *out)
{
    if (r->key.n != 32)
        return ERR_CORRUPT;
    if (key_u64(r->key, 0) != segment)
        return ERR_NOT_FOUND;
    struct str key = str_skip(r->key, 16);
    MDB_val k = {key.n, (void *)key.p}, v;
    int err = index_err(mdb_get(r->txn, r->index->tables[TABLE_BLOCK], &k, &v));
    if (err == 0)
        err = row_read_block(key, str_of(v.mv_data, v.mv_size), out);
    if (err != 0)
        return err == ERR_NOT_FOUND ? ERR_CORRUPT : err;
    *life = key_u64(key, 0);
    bool there = out->place.segment == segment && out->place.offset == key_u64(r->key, 8);
    return there ? 0 : ERR_CORRUPT;
}

int index_segment_blocks(struct index *i, uint64_t segment,
                         int (*each)(void *ctx, uint64_t life, const struct block_info *b),
                         void *ctx)
{
    struct block_info b;
    struct reader r;
    struct key k = {0};
    uint64_t life;
    int stopped = 0;
    key_put_u64(&k, segment);
    int err = reader_begin(&r, i);
    if (err == 0)
        err = reader_table(&r, TABLE_RESIDENT);
    if (err == 0)
        err = reader_seek(&r, &k);
    while (err == 0 && (err = resident_here(&r, segment, &life, &b)) == 0 &&
           (stopped = each(ctx, life, &b)) == 0)
        err = reader_move(&r, MDB_NEXT);
    reader_end(&r);
    return stopped != 0 ? stopped : none_is_fine(err);
}

/* ---- its size ---- */

int index_size(struct index *i, struct index_size *out)
{
    struct index_size size = {0};
    struct reader r;
    int err = reader_begin(&r, i);
    for (int t = 0; err == 0 && t < TABLES; t++) {
        MDB_stat st = {0};
        err = index_err(mdb_stat(r.txn, i->tables[t], &st));
        size.bytes += (st.ms_branch_pages + st.ms_leaf_pages + st.ms_overflow_pages) * st.ms_psize;
        size.streams += t == TABLE_STREAM ? st.ms_entries : 0;
        size.docs += t == TABLE_DOC ? st.ms_entries : 0;
    }
    reader_end(&r);
    if (err == 0)
        *out = size;
    return err;
}
