// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/segment_format.h"
#include "base/err.h"
#include "base/num.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

/* Where things stand; segment.c explains them. */
enum {
    HEAD_VERSION = 8,
    HEAD_ID = 16,
    HEAD_SALT = 24,
    HEAD_SUM = 32,

    BLOCK_MARKS = 4,
    BLOCK_N = 8,
    BLOCK_ZERO = 12,
    BLOCK_LIFE = 16,
    BLOCK_FIRST = 24,
    BLOCK_ORDINAL = 32,
    BLOCK_OLDEST = 40,
    BLOCK_NEWEST = 48,

    NOTE_N = 4,

    TRAILER_FOOTER_SUM = 8,
    TRAILER_SUM = 16,
    TRAILER_MAGIC = 24,
};

static const char head_magic[8] = {'t', 'm', 's', 'e', 'g', 'm', 't', '\n'};
static const char block_magic[4] = {'t', 'm', 'k', '\n'};
static const char note_magic[4] = {'t', 'm', 'n', '\n'};
static const char trailer_magic[8] = {'t', 'm', 's', 'e', 'g', 'e', 'n', 'd'};

/* ---- names ---- */

void segment_name(uint64_t id, char *out)
{
    snprintf(out, SEGMENT_NAME_MAX, SEGMENT_DIR "/%08" PRIu64 ".s", id);
}

void segment_new_name(uint64_t id, char *out)
{
    snprintf(out, SEGMENT_NAME_MAX, SEGMENT_DIR "/%08" PRIu64 ".s.new", id);
}

bool segment_name_parse(const char *name, uint64_t *id)
{
    struct str s = str_of_cstr(name);
    uint64_t value = 0;
    if (s.n < 10 || memcmp(s.p + s.n - 2, ".s", 2) != 0 ||
        num_parse(str_of(s.p, s.n - 2), UINT64_MAX, &value) != 0)
        return false;
    char canonical[SEGMENT_NAME_MAX]; /* an id has one name */
    segment_name(value, canonical);
    if (strcmp(canonical + sizeof SEGMENT_DIR, name) != 0)
        return false;
    *id = value;
    return true;
}

/* ---- the head of the file ---- */

void segment_head_write(char *out, uint64_t id, uint64_t salt)
{
    memset(out, 0, SEGMENT_FILE_HEAD);
    memcpy(out, head_magic, sizeof head_magic);
    le_put_u32(out + HEAD_VERSION, SEGMENT_VERSION);
    le_put_u64(out + HEAD_ID, id);
    le_put_u64(out + HEAD_SALT, salt);
    le_put_u64(out + HEAD_SUM, XXH3_64bits(out, HEAD_SUM));
}

int segment_head_read(const char *head, uint64_t id, uint64_t *salt)
{
    if (memcmp(head, head_magic, sizeof head_magic) != 0 ||
        le_get_u64(head + HEAD_SUM) != XXH3_64bits(head, HEAD_SUM) ||
        le_get_u64(head + HEAD_ID) != id)
        return ERR_CORRUPT;
    if (le_get_u32(head + HEAD_VERSION) != SEGMENT_VERSION)
        return ERR_VERSION;
    *salt = le_get_u64(head + HEAD_SALT);
    return 0;
}

/* ---- blocks and notes ---- */

uint64_t segment_item_bytes(const struct segment_item *item)
{
    return segment_item_head(item) + (uint64_t)SEGMENT_MARK * item->marks + item->n + SEGMENT_SUM;
}

size_t segment_item_head(const struct segment_item *item)
{
    return item->marks == 0 ? SEGMENT_NOTE_HEAD : SEGMENT_BLOCK_HEAD;
}

/* Whether the numbers make sense together; all that follows relies on it. */
static bool segment_format_is_possible(const struct segment_item *item)
{
    if (item->marks == 0)
        return item->n <= SEGMENT_NOTE_MAX;
    return item->n > 0 && segment_item_bytes(item) <= SEGMENT_BLOCK_MAX &&
           item->first <= UINT64_MAX - item->n && item->ordinal <= UINT64_MAX - item->marks;
}

void segment_item_write(char *out, const struct segment_item *item)
{
    if (item->marks == 0) {
        memcpy(out, note_magic, sizeof note_magic);
        le_put_u32(out + NOTE_N, item->n);
        return;
    }
    memcpy(out, block_magic, sizeof block_magic);
    le_put_u32(out + BLOCK_MARKS, item->marks);
    le_put_u32(out + BLOCK_N, item->n);
    le_put_u32(out + BLOCK_ZERO, 0);
    le_put_u64(out + BLOCK_LIFE, item->life);
    le_put_u64(out + BLOCK_FIRST, item->first);
    le_put_u64(out + BLOCK_ORDINAL, item->ordinal);
    le_put_u64(out + BLOCK_OLDEST, (uint64_t)item->oldest_ms);
    le_put_u64(out + BLOCK_NEWEST, (uint64_t)item->newest_ms);
}

int segment_item_read(const char *at, size_t n, struct segment_item *item)
{
    struct segment_item it = {.offset = item->offset};
    if (n >= SEGMENT_BLOCK_HEAD && memcmp(at, block_magic, sizeof block_magic) == 0) {
        it.marks = le_get_u32(at + BLOCK_MARKS);
        it.n = le_get_u32(at + BLOCK_N);
        it.life = le_get_u64(at + BLOCK_LIFE);
        it.first = le_get_u64(at + BLOCK_FIRST);
        it.ordinal = le_get_u64(at + BLOCK_ORDINAL);
        it.oldest_ms = (int64_t)le_get_u64(at + BLOCK_OLDEST);
        it.newest_ms = (int64_t)le_get_u64(at + BLOCK_NEWEST);
        if (it.marks == 0)
            return ERR_CORRUPT;
    } else if (n >= SEGMENT_NOTE_HEAD && memcmp(at, note_magic, sizeof note_magic) == 0) {
        it.n = le_get_u32(at + NOTE_N);
    } else {
        return ERR_CORRUPT;
    }
    if (!segment_format_is_possible(&it))
        return ERR_CORRUPT;
    *item = it;
    return 0;
}

bool segment_item_equal(const struct segment_item *a, const struct segment_item *b)
{
    return a->offset == b->offset && a->marks == b->marks && a->n == b->n && a->life == b->life &&
           a->first == b->first && a->ordinal == b->ordinal && a->oldest_ms == b->oldest_ms &&
           a->newest_ms == b->newest_ms;
}

/* ---- the footer ---- */

void segment_footer_put(struct buf *footer, const struct segment_item *item)
{
    pack_u64(footer, item->marks);
    pack_u64(footer, item->n);
    if (item->marks == 0)
        return;
    pack_u64(footer, item->life);
    pack_u64(footer, item->first);
    pack_u64(footer, item->ordinal);
    pack_i64(footer, item->oldest_ms);
    pack_i64(footer, item->newest_ms);
}

int segment_footer_next(struct unpack *footer, uint64_t *offset, struct segment_item *item)
{
    if (footer->rest.n == 0)
        return footer->err;
    struct segment_item it = {.offset = *offset};
    it.marks = (uint32_t)unpack_u64_max(footer, UINT32_MAX);
    it.n = (uint32_t)unpack_u64_max(footer, UINT32_MAX);
    if (it.marks > 0) {
        it.life = unpack_u64(footer);
        it.first = unpack_u64(footer);
        it.ordinal = unpack_u64(footer);
        it.oldest_ms = unpack_i64(footer);
        it.newest_ms = unpack_i64(footer);
    }
    if (footer->err != 0 || !segment_format_is_possible(&it))
        return ERR_CORRUPT;
    *offset += segment_item_bytes(&it);
    *item = it;
    return 1;
}

void segment_trailer_write(char *out, uint64_t salt, uint64_t footer, struct str footer_bytes)
{
    le_put_u64(out, footer);
    le_put_u64(out + TRAILER_FOOTER_SUM,
               XXH3_64bits_withSeed(footer_bytes.p, footer_bytes.n, salt));
    le_put_u64(out + TRAILER_SUM, XXH3_64bits_withSeed(out, TRAILER_SUM, salt));
    memcpy(out + TRAILER_MAGIC, trailer_magic, sizeof trailer_magic);
}

int segment_trailer_read(const char *at, uint64_t salt, struct segment_trailer *out)
{
    if (memcmp(at + TRAILER_MAGIC, trailer_magic, sizeof trailer_magic) != 0 ||
        le_get_u64(at + TRAILER_SUM) != XXH3_64bits_withSeed(at, TRAILER_SUM, salt))
        return ERR_CORRUPT;
    *out = (struct segment_trailer){le_get_u64(at), le_get_u64(at + TRAILER_FOOTER_SUM)};
    return 0;
}

bool segment_footer_verify(struct str footer_bytes, uint64_t salt, const struct segment_trailer *t)
{
    return XXH3_64bits_withSeed(footer_bytes.p, footer_bytes.n, salt) == t->sum;
}
