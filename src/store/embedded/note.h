// SPDX-License-Identifier: Apache-2.0
/* note.h -- one change that a checkpoint makes to the index, also as bytes.
 *
 * A checkpoint's notes stand in its segment, in the order in which they were applied: first BASE if
 * they tell of everything there is and not only of what has changed, last META. Applied again in
 * that order they make the index again (rebuild.h). Not noted is what follows from the rest: the
 * rows of segments. note.c draws the format; numbers and texts are those of base/pack.h. */
#ifndef STORE_EMBEDDED_NOTE_H
#define STORE_EMBEDDED_NOTE_H

#include "base/buf.h"
#include "store/embedded/index.h"

enum note_type {
    NOTE_BASE = 1, /* what was before counts no more; the rest tells of everything */
    NOTE_STREAM,   /* life, row */
    NOTE_BLOCK,    /* life, block */
    NOTE_PRODUCER, /* life, producer */
    NOTE_DOC,      /* key, version, value */
    NOTE_DOC_GONE, /* key */
    NOTE_COPY,     /* life, to, pos: a fork's past; version 0.1 wrote it */
    NOTE_TRIM,     /* life, pos */
    NOTE_GONE,     /* life */
    NOTE_META,     /* meta, without what is said of the base */
    NOTE_CUT,      /* life, pos: only forks keep it, up to there */
    NOTE_MERGE,    /* life, block: in place of all that it holds */
    NOTE_TYPES,    /* one more than the last */
};

struct note {
    enum note_type type;
    uint64_t life, to, pos;
    struct str row;
    struct block_info block;
    struct producer_claim producer;
    struct str key, value;
    uint64_t version;
    struct index_meta meta;
};

/* What n bytes of a note take in a segment, as it is counted for struct index_meta. */
#define NOTE_SPACE(n) ((n) + 16)

/* Appends its bytes, at most SEGMENT_NOTE_MAX. */
void note_pack(struct buf *out, const struct note *n);

/* Texts are slices of bytes. ERR_CORRUPT: it is none, or one that cannot be applied. */
int note_unpack(struct str bytes, struct note *out);

/* Makes the change. */
int note_apply(struct index_write *w, const struct note *n);

#endif
