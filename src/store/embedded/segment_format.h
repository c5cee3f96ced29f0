// SPDX-License-Identifier: Apache-2.0
/* segment_format.h -- the bytes of a segment, for those who write, read and break them.
 *
 * segment.c draws them. Everything here is pure; numbers are little-endian. */
#ifndef STORE_EMBEDDED_SEGMENT_FORMAT_H
#define STORE_EMBEDDED_SEGMENT_FORMAT_H

#include "base/le.h"
#include "base/pack.h"

#define SEGMENT_DIR        "segments"
#define SEGMENT_NAME_MAX   40 /* of `segments/N.s.new`, NUL included */
#define SEGMENT_VERSION    1
#define SEGMENT_FILE_HEAD  40
#define SEGMENT_BLOCK_HEAD 56
#define SEGMENT_NOTE_HEAD  8
#define SEGMENT_SUM        8 /* behind every block and note */
#define SEGMENT_TRAILER    32
#define SEGMENT_MARK       4
#define SEGMENT_NOTE_MAX   (1024 * 1024)

/* A block, header and marks included. An append of the journal's greatest record stays below,
 * whatever its events are. */
#define SEGMENT_BLOCK_MAX  (512u * 1024 * 1024)

/* A block or a note, as its own head and the footer tell of it. */
struct segment_item {
    uint64_t offset;
    uint32_t marks; /* 0: a note, and of the rest only n counts */
    uint32_t n;     /* bytes of events, or of the note */
    uint64_t life;
    uint64_t first, ordinal;
    int64_t oldest_ms, newest_ms;
};

/* Where the items end, and what the footer behind them must come to. */
struct segment_trailer {
    uint64_t footer;
    uint64_t sum;
};

/* `segments/00000012.s`; out holds SEGMENT_NAME_MAX. */
void segment_name(uint64_t id, char *out);

/* The name of one that is being written: `segments/00000012.s.new`. */
void segment_new_name(uint64_t id, char *out);

/* The id of a name without its folder; false if it is not the name of a segment. */
bool segment_name_parse(const char *name, uint64_t *id);

/* Fills SEGMENT_FILE_HEAD bytes. */
void segment_head_write(char *out, uint64_t id, uint64_t salt);

/* 0, ERR_CORRUPT, or ERR_VERSION (sound, but written by a later version of this code). */
int segment_head_read(const char *head, uint64_t id, uint64_t *salt);

/* Bytes of the whole item, from its head to its sum. */
uint64_t segment_item_bytes(const struct segment_item *item);

/* Bytes of its head. */
size_t segment_item_head(const struct segment_item *item);

/* Fills SEGMENT_BLOCK_HEAD bytes, or SEGMENT_NOTE_HEAD of a note. */
void segment_item_write(char *out, const struct segment_item *item);

/* What head stands there; n: bytes that can be looked at, the more than a head is ignored. The
 * lengths are within the limits, but nothing is verified. ERR_CORRUPT: none does. item->offset is
 * left alone. */
int segment_item_read(const char *at, size_t n, struct segment_item *item);

bool segment_item_equal(const struct segment_item *a, const struct segment_item *b);

void segment_footer_put(struct buf *footer, const struct segment_item *item);

/* Takes the next item off a footer; *offset is where it begins and moves behind it. 1: there it is;
 * 0: there are no more; ERR_CORRUPT. */
int segment_footer_next(struct unpack *footer, uint64_t *offset, struct segment_item *item);

/* Fills SEGMENT_TRAILER bytes. */
void segment_trailer_write(char *out, uint64_t salt, uint64_t footer, struct str footer_bytes);
int segment_trailer_read(const char *at, uint64_t salt, struct segment_trailer *out);
bool segment_footer_verify(struct str footer_bytes, uint64_t salt, const struct segment_trailer *t);

#endif
