// SPDX-License-Identifier: Apache-2.0
/* index_row.c -- the bytes of the index's keys and values.
 *
 * A value is 8 bytes of checksum and then, packed (base/pack.h):
 *
 *     meta      format, batch, lives, next segment, wall clock, base, bytes of its notes, bytes
 *               of the notes since
 *     stream    the row, as it came
 *     block     life it was written for, length in positions, ordinal, events, first time,
 *               last time, segment, offset, bytes
 *     producer  id, epoch, seq
 *     doc       key, version, value
 *     segment   live rows, bytes, live bytes
 *
 * Rows of `resident` have no value: what they name is checked when it is looked up. The checksum
 * is XXH3-64 of the packed bytes, little-endian; its seed is XXH3-64 of the key, seed of that: the
 * number of the table. So a value that is found under another key does not pass. */
#include "store/embedded/index_core.h"
#include "base/err.h"
#include "base/must.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <xxhash.h>

#define SUM_BYTES 8

const char index_meta_key[] = "checkpoint";

/* ---- keys ---- */

void key_put_u64(struct key *k, uint64_t v)
{
    must(k->n + 8 <= KEY_MAX);
    for (int shift = 56; shift >= 0; shift -= 8)
        k->bytes[k->n++] = (char)(v >> shift);
}

void key_put_digest(struct key *k, struct str text)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (!EVP_Digest(text.p, text.n, digest, &n, EVP_sha256(), NULL))
        abort(); /* out of memory, or an OpenSSL without SHA-256 */
    must(k->n + n <= KEY_MAX);
    memcpy(k->bytes + k->n, digest, n);
    k->n += n;
}

uint64_t key_u64(struct str key, size_t at)
{
    uint64_t v = 0;
    for (size_t i = at; i < at + 8; i++)
        v = v << 8 | (unsigned char)key.p[i];
    return v;
}

/* ---- checksums ---- */

static void sum_bytes(enum table t, struct str key, struct str payload, char out[SUM_BYTES])
{
    uint64_t seed = XXH3_64bits_withSeed(key.p, key.n, t);
    uint64_t sum = XXH3_64bits_withSeed(payload.p, payload.n, seed);
    for (int i = 0; i < SUM_BYTES; i++)
        out[i] = (char)(sum >> (8 * i));
}

void row_begin(struct buf *value)
{
    value->n = 0;
    buf_reserve(value, SUM_BYTES);
    value->n = SUM_BYTES;
}

void row_seal(struct buf *value, enum table t, struct str key)
{
    sum_bytes(t, key, str_skip(buf_str(value), SUM_BYTES), value->p);
}

int row_open(enum table t, struct str key, struct str value, struct str *payload)
{
    char sum[SUM_BYTES];
    if (value.n < SUM_BYTES)
        return ERR_CORRUPT;
    struct str rest = str_skip(value, SUM_BYTES);
    sum_bytes(t, key, rest, sum);
    if (memcmp(sum, value.p, SUM_BYTES) != 0)
        return ERR_CORRUPT;
    *payload = rest;
    return 0;
}

/* As row_open, of a table whose keys have n bytes. */
static int unpack_row(enum table t, struct str key, size_t n, struct str value, struct unpack *u)
{
    *u = (struct unpack){0};
    return key.n == n ? row_open(t, key, value, &u->rest) : ERR_CORRUPT;
}

/* ---- values ---- */

void row_pack_block(struct buf *value, const struct block_info *b)
{
    pack_u64(value, b->life);
    pack_u64(value, b->end - b->first);
    pack_u64(value, b->ordinal);
    pack_u64(value, b->events);
    pack_i64(value, b->oldest_ms);
    pack_i64(value, b->newest_ms);
    pack_u64(value, b->place.segment);
    pack_u64(value, b->place.offset);
    pack_u64(value, b->place.bytes);
}

int row_unpack_block(struct unpack *u, uint64_t first, struct block_info *out)
{
    struct block_info b = {.life = unpack_u64(u), .first = first};
    uint64_t length = unpack_u64(u);
    b.end = b.first + length;
    b.ordinal = unpack_u64(u);
    b.events = unpack_u64(u);
    b.oldest_ms = unpack_i64(u);
    b.newest_ms = unpack_i64(u);
    b.place.segment = unpack_u64(u);
    b.place.offset = unpack_u64(u);
    b.place.bytes = (uint32_t)unpack_u64_max(u, UINT32_MAX);
    if (u->err != 0 || b.end <= b.first)
        return ERR_CORRUPT;
    *out = b;
    return 0;
}

int row_read_block(struct str key, struct str value, struct block_info *out)
{
    struct unpack u;
    struct block_info b;
    int err = unpack_row(TABLE_BLOCK, key, 16, value, &u);
    if (err == 0)
        err = row_unpack_block(&u, key_u64(key, 8), &b);
    if (err == 0)
        err = unpack_end(&u);
    if (err == 0)
        *out = b;
    return err;
}

void row_pack_segment(struct buf *value, const struct index_segment *s)
{
    pack_u64(value, s->live_rows);
    pack_u64(value, s->bytes);
    pack_u64(value, s->live_bytes);
}

int row_read_segment(struct str key, struct str value, struct index_segment *out)
{
    struct unpack u;
    int err = unpack_row(TABLE_SEGMENT, key, 8, value, &u);
    if (err != 0)
        return err;
    struct index_segment s = {.id = key_u64(key, 0)};
    s.live_rows = unpack_u64(&u);
    s.bytes = unpack_u64(&u);
    s.live_bytes = unpack_u64(&u);
    if (unpack_end(&u) != 0)
        return ERR_CORRUPT;
    *out = s;
    return 0;
}

void row_pack_meta(struct buf *value, const struct index_meta *m)
{
    pack_u64(value, INDEX_FORMAT);
    pack_u64(value, m->batch);
    pack_u64(value, m->lives);
    pack_u64(value, m->next_segment);
    pack_i64(value, m->wall_ms);
    pack_u64(value, m->base);
    pack_u64(value, m->base_bytes);
    pack_u64(value, m->note_bytes);
}

int row_read_meta(struct str key, struct str value, struct index_meta *out)
{
    struct unpack u;
    int err = unpack_row(TABLE_META, key, key.n, value, &u);
    if (err != 0)
        return err;
    if (unpack_u64(&u) != INDEX_FORMAT)
        return ERR_VERSION;
    struct index_meta m = {.batch = unpack_u64(&u)};
    m.lives = unpack_u64(&u);
    m.next_segment = unpack_u64(&u);
    m.wall_ms = unpack_i64(&u);
    m.base = unpack_u64(&u);
    m.base_bytes = unpack_u64(&u);
    m.note_bytes = unpack_u64(&u);
    if (unpack_end(&u) != 0)
        return ERR_CORRUPT;
    *out = m;
    return 0;
}

int row_read_producer(struct str key, struct str value, struct producer_claim *out)
{
    struct unpack u;
    int err = unpack_row(TABLE_PRODUCER, key, 40, value, &u);
    if (err != 0)
        return err;
    struct producer_claim p = {.id = unpack_str(&u)};
    p.epoch = unpack_u64(&u);
    p.seq = unpack_u64(&u);
    if (unpack_end(&u) != 0)
        return ERR_CORRUPT;
    *out = p;
    return 0;
}

int row_read_doc(struct str key, struct str value, struct doc_read *out)
{
    struct unpack u;
    int err = unpack_row(TABLE_DOC, key, 32, value, &u);
    if (err != 0)
        return err;
    struct doc_read d = {.key = unpack_str(&u)};
    d.version = unpack_u64(&u);
    d.value = unpack_str(&u);
    if (unpack_end(&u) != 0)
        return ERR_CORRUPT;
    *out = d;
    return 0;
}
