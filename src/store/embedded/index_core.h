// SPDX-License-Identifier: Apache-2.0
/* index_core.h -- what the parts of the index share: the open file, and the bytes of its rows.
 *
 * index.c opens and grows the file, index_row.c encodes, index_read.c and index_write.c are the
 * rest of index.h. */
#ifndef STORE_EMBEDDED_INDEX_CORE_H
#define STORE_EMBEDDED_INDEX_CORE_H

#include "base/pack.h"
#include "store/embedded/index.h"

#include <lmdb.h>
#include <pthread.h>

#define INDEX_FORMAT 2

enum table {
    TABLE_META,
    TABLE_STREAM,
    TABLE_BLOCK,
    TABLE_PRODUCER,
    TABLE_DOC,
    TABLE_SEGMENT,
    TABLE_RESIDENT,
    TABLES, /* how many there are */
};

struct index {
    MDB_env *env;
    MDB_dbi tables[TABLES];
    bool sync;
    uint64_t reserved;    /* the file has its blocks on the disk up to here */
    pthread_rwlock_t map; /* held for reading by every read: the map does not move then */
    bool cramped;         /* the last transaction did not fit into the map */
    bool unmapped;        /* the map was lost on the way to a larger one: nothing works any more */
    bool failed;          /* a write did: none is tried any more */
};

/* As index_open, with another size for the map to begin with. */
struct index *index_open_sized(const char *path, bool sync, size_t map_bytes, char *why,
                               size_t size);

int index_err(int lmdb_error);

/* As index_err, of an error (not 0) in a transaction that writes. ended: it is over, and another
 * may be begun. Remembers what the next transaction has to know. */
int index_note_failure(struct index *i, int lmdb_error, bool ended);

/* Makes room for the next transaction; no other is being written. */
int index_make_room(struct index *i);

/* One that is being written, for reading what it has made so far. */
struct index *index_of_write(struct index_write *w);
MDB_txn *index_txn_of_write(struct index_write *w);

/* ---- rows ---- */

/* Big-endian numbers of a key, one behind the other. */
#define KEY_MAX 40
struct key {
    size_t n;
    char bytes[KEY_MAX];
};

void key_put_u64(struct key *k, uint64_t v);
void key_put_digest(struct key *k, struct str text);
uint64_t key_u64(struct str key, size_t at);

static inline struct str key_str(const struct key *k)
{
    return str_of(k->bytes, k->n);
}

/* An empty *value, with the place for its checksum; then the caller packs into it, and seals it. */
void row_begin(struct buf *value);
void row_seal(struct buf *value, enum table t, struct str key);

/* What was packed, if it belongs to that key. ERR_CORRUPT. */
int row_open(enum table t, struct str key, struct str value, struct str *payload);

/* A block without its first position. ERR_CORRUPT. */
void row_pack_block(struct buf *value, const struct block_info *b);
int row_unpack_block(struct unpack *u, uint64_t first, struct block_info *out);

void row_pack_segment(struct buf *value, const struct index_segment *s);
void row_pack_meta(struct buf *value, const struct index_meta *m);

/* From a key and a value that is checked. ERR_CORRUPT. */
int row_read_block(struct str key, struct str value, struct block_info *out);
int row_read_segment(struct str key, struct str value, struct index_segment *out);
int row_read_meta(struct str key, struct str value, struct index_meta *out);
int row_read_producer(struct str key, struct str value, struct producer_claim *out);

struct doc_read {
    struct str key, value;
    uint64_t version;
};
int row_read_doc(struct str key, struct str value, struct doc_read *out);

extern const char index_meta_key[]; /* of the only row in TABLE_META */

#endif
