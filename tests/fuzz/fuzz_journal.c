// SPDX-License-Identifier: Apache-2.0
/* fuzz_journal.c -- journal_scan on files that nobody should trust.
 *
 * The first byte says what the rest is:
 *  - two files as they are;
 *  - two files in which every sum is made right, so that what lies behind the sums is reached too;
 *  - changes to a sound journal of two files. Of that, no record may come out that was not put in,
 *    and none out of its place.
 * In each case: batches come in order without a gap, and no more bytes than the files have. */
#include "store/embedded/journal_format.c"

#include "base/buf.h"
#include "fault/simfs.h"
#include "store/embedded/journal.h"

#include <stdlib.h>

#define BATCHES      6 /* of the sound journal, in each file */
#define RECORDS      3 /* in each batch */
#define RECORD_BYTES 150
#define FILE_BYTES   (JOURNAL_FILE_HEAD + (BATCHES + 2) * 2 * JOURNAL_SECTOR)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_journal: %s\n", what);
    abort();
}

/* What comes out of a scan. */
struct seen {
    uint64_t from, batch, index, bytes, records;
    bool sound; /* it was a sound journal once */
};

/* ---- a sound journal ---- */

static const struct journal_identity files[] = {
    {.id = 3, .salt = 0x1234567890abcdef, .epoch = 3, .first = 1},
    {.id = 4, .salt = 0xfedcba0987654321, .epoch = 3, .first = 1},
};

/* Stamped with its place and different in length from its neighbours. */
static size_t make_record(char *out, uint64_t batch, uint64_t index)
{
    size_t n = RECORD_BYTES - (size_t)(batch + index) % 7;
    memset(out, (int)('a' + (batch * RECORDS + index) % 26), n);
    le_put_u64(out, batch);
    le_put_u64(out + 8, index);
    return n;
}

static void make_batch(char *out, const struct journal_identity *who, uint64_t number)
{
    struct journal_batch_head h = {.number = number, .synced = number, .count = RECORDS};
    char *at = out + JOURNAL_BATCH_HEAD;
    for (uint64_t i = 0; i < RECORDS; i++) {
        size_t n = make_record(at + JOURNAL_RECORD_HEAD, number, i);
        journal_record_head_write(at, n);
        at += JOURNAL_RECORD_HEAD + n;
    }
    h.length = (uint64_t)(at - out) - JOURNAL_BATCH_HEAD;
    journal_batch_write(out, who, &h);
}

static void make_file(struct buf *b, int which)
{
    char *p = buf_reserve(b, FILE_BYTES);
    b->n = FILE_BYTES;
    memset(p, 0, FILE_BYTES);
    journal_head_write(p, &files[which]);
    for (uint64_t i = 0; i < BATCHES; i++)
        make_batch(p + JOURNAL_FILE_HEAD + i * 2 * JOURNAL_SECTOR, &files[which],
                   1 + (uint64_t)which * BATCHES + i);
}

/* ---- changes ---- */

struct input {
    const uint8_t *p;
    size_t n;
};

static unsigned take(struct input *in)
{
    if (in->n == 0)
        return 0;
    in->n--;
    return *in->p++;
}

static size_t take_below(struct input *in, size_t limit)
{
    size_t v = take(in);
    v = v << 8 | take(in);
    return limit == 0 ? 0 : v % limit;
}

static char *sector_of(struct buf *b, size_t n)
{
    return b->p + n * JOURNAL_SECTOR;
}

static void change(struct buf *a, struct buf *b, struct input *in)
{
    unsigned what = take(in);
    struct buf *f = what & 1 ? a : b, *g = what & 2 ? a : b;
    size_t sectors = f->n / JOURNAL_SECTOR, others = g->n / JOURNAL_SECTOR;
    if (sectors == 0 || others == 0)
        return;
    size_t i = take_below(in, sectors), k = take_below(in, others);
    switch ((what >> 2) % 6) {
    case 0: f->p[take_below(in, f->n)] ^= (char)take(in); break;
    case 1: f->p[i * JOURNAL_SECTOR + take(in) % 64] = (char)take(in); break; /* of a head */
    case 2: memmove(sector_of(f, i), sector_of(g, k), JOURNAL_SECTOR); break;
    case 3: memset(sector_of(f, i), 0, JOURNAL_SECTOR); break;
    case 4: f->n = take_below(in, f->n); break;
    case 5: /* a batch, to another place */
        if (i + 2 <= sectors && k + 2 <= others)
            memmove(sector_of(f, i), sector_of(g, k), 2 * JOURNAL_SECTOR);
        break;
    }
}

/* ---- sums made right ---- */

static void repair_batch(char *at, size_t rest, const struct journal_identity *who)
{
    memcpy(at, batch_magic, sizeof batch_magic);
    le_put_u64(at + BATCH_FILE, who->id);
    le_put_u64(at + BATCH_NUMBER, le_get_u64(at + BATCH_NUMBER) % 16);
    le_put_u64(at + BATCH_LENGTH, le_get_u64(at + BATCH_LENGTH) % 2048);
    uint64_t length = le_get_u64(at + BATCH_LENGTH);
    if (length <= rest - JOURNAL_BATCH_HEAD)
        le_put_u64(at + BATCH_RECORDS_SUM, sum_of(at + JOURNAL_BATCH_HEAD, length, who));
    le_put_u64(at + BATCH_SUM, sum_of(at, BATCH_SUM, who));
}

/* From the end: a batch's sum covers what is behind it. */
static void repair(struct buf *b, uint64_t id)
{
    if (b->n < JOURNAL_FILE_HEAD)
        return;
    struct journal_identity who = {.id = id, .salt = id, .epoch = 1 + le_get_u64(b->p) % id};
    who.first = 1 + le_get_u64(b->p + 8) % 4;
    journal_head_write(b->p, &who);
    for (size_t at = b->n / JOURNAL_SECTOR * JOURNAL_SECTOR; at > JOURNAL_SECTOR;) {
        at -= JOURNAL_SECTOR;
        if (b->p[at] != 0)
            repair_batch(b->p + at, b->n - at, &who);
    }
}

/* ---- the target ---- */

static int note(void *ctx, uint64_t batch, struct str bytes)
{
    struct seen *s = ctx;
    bool same = batch == s->batch && s->records > 0;
    check(batch >= s->from, "a batch that was not asked for");
    check(s->records == 0 || same || batch == s->batch + 1, "batches out of order");
    check(bytes.n > 0, "an empty record");
    s->index = same ? s->index + 1 : 0;
    s->batch = batch;
    s->bytes += bytes.n;
    s->records++;
    if (s->sound) {
        char expected[RECORD_BYTES];
        check(s->index < RECORDS, "too many records");
        size_t n = make_record(expected, batch, s->index);
        check(str_eq(bytes, str_of(expected, n)), "a record that was never written");
    }
    return 0;
}

static void scan(const struct buf *a, const struct buf *b, struct seen *s)
{
    struct simfs *fs = simfs_new(1);
    simfs_put(fs, "journal/00000003.j", buf_str(a));
    simfs_put(fs, "journal/00000004.j", buf_str(b));
    struct journal_scan js = {.from = s->from, .ctx = s, .record = note};
    int err = journal_scan(simfs_vfs(fs), &js);
    check(err == 0 || err == ERR_CORRUPT, "another error");
    check((err == 0) == (js.damage[0] == '\0'), "damage without a word, or the reverse");
    check(js.records == s->records && s->bytes <= a->n + b->n, "more than there is");
    if (err == 0)
        check(js.next_file > 4, "a file id that is taken");
    if (err == 0)
        check(js.next == (s->records > 0 ? s->batch + 1
                          : s->from > 0  ? s->from
                                         : 1),
              "another batch is due");
    if (s->sound && err == 0 && s->records > 0)
        check(s->index == RECORDS - 1, "half a batch");
    simfs_free(fs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct input in = {data, n};
    struct buf a = {0}, b = {0};
    unsigned mode = take(&in) % 3;
    struct seen seen = {.from = take(&in) % 16, .sound = mode == 2};
    if (mode == 2) {
        make_file(&a, 0);
        make_file(&b, 1);
        while (in.n > 0)
            change(&a, &b, &in);
    } else {
        size_t first = take_below(&in, n);
        first = first < in.n ? first : in.n;
        buf_put(&a, str_of((const char *)in.p, first));
        buf_put(&b, str_of((const char *)in.p + first, in.n - first));
    }
    if (mode == 1) {
        repair(&a, 3);
        repair(&b, 4);
    }
    scan(&a, &b, &seen);
    buf_deinit(&a);
    buf_deinit(&b);
    return 0;
}
