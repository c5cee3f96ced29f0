// SPDX-License-Identifier: Apache-2.0
/* A note: its type, then
 *
 *   BASE      nothing
 *   STREAM    life; the row is the rest of the note
 *   BLOCK     life, first position, the block as in a row of the index
 *   PRODUCER  life, id, epoch, seq
 *   DOC       key, version; the value is the rest of the note
 *   DOC_GONE  key
 *   COPY      life, life of the fork, fork point
 *   TRIM      life, position
 *   GONE      life
 *   META      batch, lives, next segment, wall clock
 *   CUT       life, position
 *   MERGE     as BLOCK */
#include "store/embedded/note.h"
#include "base/err.h"
#include "base/must.h"
#include "base/pack.h"
#include "store/embedded/index_core.h"

#include <assert.h>

static void put_fields(struct buf *out, const struct note *n)
{
    switch (n->type) {
    case NOTE_STREAM: buf_put(out, n->row); break;
    case NOTE_BLOCK:
    case NOTE_MERGE:
        pack_u64(out, n->block.first);
        row_pack_block(out, &n->block);
        break;
    case NOTE_PRODUCER:
        pack_str(out, n->producer.id);
        pack_u64(out, n->producer.epoch);
        pack_u64(out, n->producer.seq);
        break;
    case NOTE_DOC:
        pack_str(out, n->key);
        pack_u64(out, n->version);
        buf_put(out, n->value);
        break;
    case NOTE_DOC_GONE: pack_str(out, n->key); break;
    case NOTE_COPY:
        pack_u64(out, n->to);
        pack_u64(out, n->pos);
        break;
    case NOTE_TRIM:
    case NOTE_CUT: pack_u64(out, n->pos); break;
    case NOTE_META:
        pack_u64(out, n->meta.batch);
        pack_u64(out, n->meta.lives);
        pack_u64(out, n->meta.next_segment);
        pack_i64(out, n->meta.wall_ms);
        break;
    default: break;
    }
}

static bool has_life(enum note_type type)
{
    return type == NOTE_STREAM || type == NOTE_BLOCK || type == NOTE_PRODUCER ||
           type == NOTE_COPY || type == NOTE_TRIM || type == NOTE_CUT || type == NOTE_GONE ||
           type == NOTE_MERGE;
}

void note_pack(struct buf *out, const struct note *n)
{
    size_t before = out->n;
    pack_u64(out, n->type);
    if (has_life(n->type))
        pack_u64(out, n->life);
    put_fields(out, n);
    must(out->n - before <= SEGMENT_NOTE_MAX);
}

static struct str take_rest(struct unpack *u)
{
    struct str rest = u->rest;
    u->rest = str_skip(rest, rest.n);
    return rest;
}

static void take_fields(struct unpack *u, struct note *n)
{
    switch (n->type) {
    case NOTE_STREAM:
        n->row = take_rest(u);
        if (n->row.n > INDEX_ROW_MAX)
            u->err = ERR_CORRUPT;
        break;
    case NOTE_BLOCK:
    case NOTE_MERGE: {
        uint64_t first = unpack_u64(u);
        if (row_unpack_block(u, first, &n->block) != 0)
            u->err = ERR_CORRUPT;
        break;
    }
    case NOTE_PRODUCER:
        n->producer.id = unpack_str(u);
        n->producer.epoch = unpack_u64(u);
        n->producer.seq = unpack_u64(u);
        break;
    case NOTE_DOC:
        n->key = unpack_str(u);
        n->version = unpack_u64(u);
        n->value = take_rest(u);
        break;
    case NOTE_DOC_GONE: n->key = unpack_str(u); break;
    case NOTE_COPY:
        n->to = unpack_u64(u);
        n->pos = unpack_u64(u);
        if (n->to == n->life)
            u->err = ERR_CORRUPT;
        break;
    case NOTE_TRIM:
    case NOTE_CUT: n->pos = unpack_u64(u); break;
    case NOTE_META:
        n->meta.batch = unpack_u64(u);
        n->meta.lives = unpack_u64(u);
        n->meta.next_segment = unpack_u64(u);
        n->meta.wall_ms = unpack_i64(u);
        break;
    default: break;
    }
}

int note_unpack(struct str bytes, struct note *out)
{
    struct unpack u = {.rest = bytes};
    struct note n = {.type = (enum note_type)unpack_u64_max(&u, NOTE_TYPES - 1)};
    if (n.type < NOTE_BASE || bytes.n > SEGMENT_NOTE_MAX)
        return ERR_CORRUPT;
    if (has_life(n.type))
        n.life = unpack_u64(&u);
    take_fields(&u, &n);
    if (unpack_end(&u) != 0)
        return ERR_CORRUPT;
    *out = n;
    return 0;
}

int note_apply(struct index_write *w, const struct note *n)
{
    switch (n->type) {
    case NOTE_BASE: return index_clear(w);
    case NOTE_STREAM: return index_put_stream(w, n->life, n->row);
    case NOTE_BLOCK: return index_put_block(w, n->life, &n->block);
    case NOTE_MERGE: return index_merge_blocks(w, n->life, &n->block);
    case NOTE_PRODUCER: return index_put_producer(w, n->life, &n->producer);
    case NOTE_DOC: return index_put_doc(w, n->key, n->version, n->value);
    case NOTE_DOC_GONE: return index_remove_doc(w, n->key);
    case NOTE_COPY: return index_copy_blocks(w, n->life, n->to, n->pos);
    case NOTE_TRIM: return index_trim(w, n->life, n->pos);
    case NOTE_CUT: return index_cut(w, n->life, n->pos);
    case NOTE_GONE: return index_remove_stream(w, n->life);
    case NOTE_META: return index_put_meta(w, &n->meta);
    default: assert(false); return ERR_CORRUPT;
    }
}
