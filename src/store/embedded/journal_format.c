// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/journal_format.h"
#include "base/err.h"
#include "base/le.h"
#include "base/must.h"
#include "base/num.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

/* Where things stand; journal.c explains them. */
enum {
    HEAD_VERSION = 8,
    HEAD_ID = 16,
    HEAD_EPOCH = 24,
    HEAD_FIRST = 32,
    HEAD_SALT = 40,
    HEAD_SUM = 48,

    BATCH_COUNT = 4,
    BATCH_FILE = 8,
    BATCH_NUMBER = 16,
    BATCH_SYNCED = 24,
    BATCH_LENGTH = 32,
    BATCH_RECORDS_SUM = 40,
    BATCH_SUM = 48,
};

static const char head_magic[8] = {'t', 'm', 'j', 'o', 'u', 'r', 'n', '\n'};
static const char batch_magic[4] = {'t', 'm', 'b', '\n'};

/* ---- names ---- */

void journal_name(uint64_t n, char *out)
{
    snprintf(out, JOURNAL_NAME_MAX, JOURNAL_DIR "/%08" PRIu64 ".j", n);
}

bool journal_name_parse(const char *name, uint64_t *n)
{
    struct str s = str_of_cstr(name);
    if (s.n < 10 || memcmp(s.p + s.n - 2, ".j", 2) != 0)
        return false;
    return num_parse(str_of(s.p, s.n - 2), JOURNAL_NUMBER_MAX, n) == 0;
}

/* ---- the head of a file ---- */

void journal_head_write(char *out, const struct journal_identity *who)
{
    memset(out, 0, JOURNAL_FILE_HEAD);
    memcpy(out, head_magic, sizeof head_magic);
    le_put_u32(out + HEAD_VERSION, JOURNAL_VERSION);
    le_put_u64(out + HEAD_ID, who->id);
    le_put_u64(out + HEAD_EPOCH, who->epoch);
    le_put_u64(out + HEAD_FIRST, who->first);
    le_put_u64(out + HEAD_SALT, who->salt);
    le_put_u64(out + HEAD_SUM, XXH3_64bits(out, HEAD_SUM));
}

int journal_head_read(const char *head, struct journal_identity *out)
{
    if (memcmp(head, head_magic, sizeof head_magic) != 0 ||
        le_get_u64(head + HEAD_SUM) != XXH3_64bits(head, HEAD_SUM))
        return ERR_CORRUPT;
    if (le_get_u32(head + HEAD_VERSION) != JOURNAL_VERSION)
        return ERR_VERSION;
    struct journal_identity who = {
        .id = le_get_u64(head + HEAD_ID),
        .salt = le_get_u64(head + HEAD_SALT),
        .epoch = le_get_u64(head + HEAD_EPOCH),
        .first = le_get_u64(head + HEAD_FIRST),
    };
    if (who.id == 0 || who.id > JOURNAL_NUMBER_MAX || who.epoch > who.id || who.first == 0)
        return ERR_CORRUPT;
    *out = who;
    return 0;
}

/* ---- batches ---- */

static uint64_t sum_of(const void *p, size_t n, const struct journal_identity *who)
{
    return XXH3_64bits_withSeed(p, n, who->salt);
}

void journal_record_head_write(char *out, size_t n)
{
    must(n > 0 && n <= JOURNAL_RECORD_MAX);
    le_put_u32(out, (uint32_t)n);
}

static void write_batch_head(char *batch, const struct journal_identity *who,
                             const struct journal_batch_head *h, uint64_t records_sum)
{
    memcpy(batch, batch_magic, sizeof batch_magic);
    le_put_u32(batch + BATCH_COUNT, h->count);
    le_put_u64(batch + BATCH_FILE, who->id);
    le_put_u64(batch + BATCH_NUMBER, h->number);
    le_put_u64(batch + BATCH_SYNCED, h->synced);
    le_put_u64(batch + BATCH_LENGTH, h->length);
    le_put_u64(batch + BATCH_RECORDS_SUM, records_sum);
    le_put_u64(batch + BATCH_SUM, sum_of(batch, BATCH_SUM, who));
}

void journal_batch_write(char *batch, const struct journal_identity *who,
                         const struct journal_batch_head *h)
{
    write_batch_head(batch, who, h, sum_of(batch + JOURNAL_BATCH_HEAD, h->length, who));
}

void journal_batch_write_pieces(const struct iovec *pieces, int n,
                                const struct journal_identity *who,
                                const struct journal_batch_head *h)
{
    char *batch = pieces[0].iov_base;
    XXH3_state_t *sum = XXH3_createState();
    must(sum != NULL && pieces[0].iov_len >= JOURNAL_BATCH_HEAD);
    XXH3_64bits_reset_withSeed(sum, who->salt);
    XXH3_64bits_update(sum, batch + JOURNAL_BATCH_HEAD, pieces[0].iov_len - JOURNAL_BATCH_HEAD);
    for (int i = 1; i < n; i++)
        XXH3_64bits_update(sum, pieces[i].iov_base, pieces[i].iov_len);
    write_batch_head(batch, who, h, XXH3_64bits_digest(sum));
    XXH3_freeState(sum);
}

bool journal_batch_head_read(const char *at, const struct journal_identity *who,
                             struct journal_batch_head *out)
{
    if (memcmp(at, batch_magic, sizeof batch_magic) != 0 ||
        le_get_u64(at + BATCH_SUM) != sum_of(at, BATCH_SUM, who))
        return false;
    if (le_get_u64(at + BATCH_FILE) != who->id)
        return false;
    struct journal_batch_head h = {
        .count = le_get_u32(at + BATCH_COUNT),
        .number = le_get_u64(at + BATCH_NUMBER),
        .synced = le_get_u64(at + BATCH_SYNCED),
        .length = le_get_u64(at + BATCH_LENGTH),
        .sum = le_get_u64(at + BATCH_RECORDS_SUM),
    };
    if (h.number == 0 || h.number > JOURNAL_NUMBER_MAX || h.synced > h.number || h.count == 0 ||
        h.length > journal_length_max() || h.length / (JOURNAL_RECORD_HEAD + 1) < h.count)
        return false;
    *out = h;
    return true;
}

bool journal_record_next(struct str *records, struct str *out)
{
    if (records->n < JOURNAL_RECORD_HEAD)
        return false;
    size_t n = le_get_u32(records->p);
    if (n == 0 || n > JOURNAL_RECORD_MAX || n > records->n - JOURNAL_RECORD_HEAD)
        return false;
    *out = str_of(records->p + JOURNAL_RECORD_HEAD, n);
    *records = str_skip(*records, JOURNAL_RECORD_HEAD + n);
    return true;
}

bool journal_records_verify(struct str records, const struct journal_identity *who,
                            const struct journal_batch_head *h)
{
    if (records.n != h->length || sum_of(records.p, records.n, who) != h->sum)
        return false;
    uint32_t count = 0;
    struct str record;
    while (journal_record_next(&records, &record))
        count++;
    return records.n == 0 && count == h->count;
}
