// SPDX-License-Identifier: Apache-2.0
/* Segments on a disk that fails, forgets and flips bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "fault/simfs.c"
#include "model/seeds.h"
#include "store/catalog/extent.h"
#include "store/embedded/pace.h"
#include "store/embedded/segment.h"
#include "store/embedded/segment_format.h"
#include "store/embedded/vfs.h"

#include <xxhash.h>

#define ID        12
#define NAME      "segments/00000012.s"
#define ITEMS_MAX 64

/* What was put into a segment. */
struct entry_kept {
    uint64_t life;
    struct extent *extent; /* NULL: a note */
    struct block_info info;
    struct buf note;
    bool unsure; /* adding it failed: nobody knows what the disk has of it */
    bool seen;   /* by the scan that is under way */
};

struct desk {
    struct simfs *fs;
    struct vfs *vfs;
    struct entry_kept items[ITEMS_MAX];
    size_t n;
    uint64_t file_bytes;

    /* what the last scan told */
    size_t blocks, notes, damages;
    uint64_t damage_at;
    bool notes_began;
    int stop; /* what block() is to return */
};

static void desk_init(struct desk *d, uint64_t seed)
{
    memset(d, 0, sizeof *d);
    d->fs = simfs_new(seed);
    d->vfs = simfs_vfs(d->fs);
}

static void desk_deinit(struct desk *d)
{
    for (size_t i = 0; i < d->n; i++) {
        extent_unref(d->items[i].extent);
        buf_deinit(&d->items[i].note);
    }
    simfs_free(d->fs);
}

/* ---- chunks ---- */

/* One append of n bytes that look like nothing else, cut into events of about `event` bytes. */
static void grow(struct extent *c, uint32_t n, uint32_t event, uint64_t salt)
{
    struct rng r = {salt};
    char *bytes = mem_alloc(n);
    uint32_t *ends = mem_alloc((n / event + 1) * sizeof *ends), count = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes[i] = (char)rng_next(&r);
    for (uint32_t at = event; at < n; at += event)
        ends[count++] = at;
    ends[count++] = n;
    extent_append(c, str_of(bytes, n), ends, count, (int64_t)(1700000000000 + c->first + salt));
    free(ends);
    free(bytes);
}

static struct extent *make_chunk(uint64_t first, uint32_t n, uint32_t event)
{
    struct extent *c = extent_new(first, first / 3 + 1, n);
    uint32_t half = n / 2;
    if (half > 0)
        grow(c, half, event, first + 1);
    grow(c, n - half, event, first + 2);
    return c;
}

static void assert_chunks_equal(const struct extent *a, const struct extent *b)
{
    assert_int_equal(a->first, b->first);
    assert_int_equal(a->ordinal, b->ordinal);
    assert_int_equal(a->oldest_ms, b->oldest_ms);
    assert_int_equal(a->newest_ms, b->newest_ms);
    assert_int_equal(a->n_marks, b->n_marks);
    assert_memory_equal(a->marks, b->marks, a->n_marks * sizeof *a->marks);
    assert_int_equal(a->bytes->n, b->bytes->n);
    assert_memory_equal(a->bytes->bytes, b->bytes->bytes, a->bytes->n);
}

static void assert_infos_equal(const struct block_info *a, const struct block_info *b)
{
    assert_int_equal(a->life, b->life);
    assert_int_equal(a->first, b->first);
    assert_int_equal(a->end, b->end);
    assert_int_equal(a->ordinal, b->ordinal);
    assert_int_equal(a->events, b->events);
    assert_int_equal(a->oldest_ms, b->oldest_ms);
    assert_int_equal(a->newest_ms, b->newest_ms);
    assert_int_equal(a->place.segment, b->place.segment);
    assert_int_equal(a->place.offset, b->place.offset);
    assert_int_equal(a->place.bytes, b->place.bytes);
}

/* ---- writing ---- */

static int add_block(struct desk *d, struct segment_writer *w, uint64_t life, uint64_t first,
                     uint32_t n, uint32_t event)
{
    struct entry_kept *e = &d->items[d->n];
    assert_true(d->n < ITEMS_MAX);
    struct extent *c = make_chunk(first, n, event);
    int err = segment_add(w, life, c, &e->info);
    e->life = life;
    e->extent = c;
    e->unsure = err != 0;
    d->n++;
    return err;
}

static int add_note(struct desk *d, struct segment_writer *w, uint64_t salt, uint32_t n)
{
    struct entry_kept *e = &d->items[d->n];
    assert_true(d->n < ITEMS_MAX);
    struct buf note = {0};
    for (uint32_t i = 0; i < n; i++)
        buf_putc(&note, (char)(salt + i * 7));
    int err = segment_add_note(w, buf_str(&note));
    e->note = note;
    e->unsure = err != 0;
    d->n++;
    return err;
}

/* A finished segment of three blocks and two notes, about 600 bytes. */
static void write_small(struct desk *d)
{
    struct segment_writer *w;
    assert_int_equal(segment_create(d->vfs, ID, &w), 0);
    assert_int_equal(add_block(d, w, 3, 100, 40, 7), 0);
    assert_int_equal(add_block(d, w, 3, 140, 1, 1), 0);
    assert_int_equal(add_note(d, w, 3, 33), 0);
    assert_int_equal(add_block(d, w, 70000, 0, 90, 90), 0);
    assert_int_equal(add_note(d, w, 70000, 0), 0);
    assert_int_equal(segment_finish(w, &d->file_bytes), 0);
    segment_close(w);
}

/* ---- reading ---- */

static struct entry_kept *find_block(struct desk *d, uint64_t life, uint64_t first)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->items[i].extent != NULL && d->items[i].life == life &&
            d->items[i].extent->first == first)
            return &d->items[i];
    fail_msg("a block that nobody wrote");
    return NULL;
}

static int on_block(void *ctx, const struct block_info *b)
{
    struct desk *d = ctx;
    struct entry_kept *e = find_block(d, b->life, b->first);
    if (!e->unsure)
        assert_infos_equal(&e->info, b);
    assert_false(e->seen || d->notes_began);
    e->seen = true;
    d->blocks++;
    return d->stop;
}

static int on_note(void *ctx, struct str note)
{
    struct desk *d = ctx;
    d->notes_began = true;
    d->notes++;
    for (size_t i = 0; i < d->n; i++)
        if (d->items[i].extent == NULL && !d->items[i].seen &&
            str_eq(note, buf_str(&d->items[i].note))) {
            d->items[i].seen = true;
            return 0;
        }
    fail_msg("a note that nobody wrote");
    return 0;
}

static int on_note_anywhere(void *ctx, struct str note)
{
    int err = on_note(ctx, note);
    ((struct desk *)ctx)->notes_began = false; /* salvage tells them as it finds them */
    return err;
}

static void on_damage(void *ctx, uint64_t segment, uint64_t offset, const char *what)
{
    struct desk *d = ctx;
    assert_int_equal(segment, ID);
    assert_non_null(what);
    d->damage_at = offset;
    d->damages++;
}

static int scan(struct desk *d, bool verify, bool salvage, bool *salvaged)
{
    struct segment_scan s = {.verify = verify,
                             .salvage = salvage,
                             .ctx = d,
                             .block = on_block,
                             .note = salvage ? on_note_anywhere : on_note,
                             .damaged = on_damage};
    d->blocks = d->notes = d->damages = 0;
    d->notes_began = false;
    for (size_t i = 0; i < d->n; i++)
        d->items[i].seen = false;
    int err = segment_scan(d->vfs, ID, &s);
    if (salvaged != NULL)
        *salvaged = s.salvaged;
    return err;
}

static int read_kept(struct desk *d, const struct entry_kept *e)
{
    struct extent *c;
    int err = segment_read(d->vfs, e->life, e->extent->first, e->info.place, &c);
    if (err != 0)
        return err;
    assert_chunks_equal(e->extent, c);
    extent_unref(c);
    return 0;
}

static void assert_all_there(struct desk *d)
{
    bool salvaged;
    size_t blocks = 0;
    for (size_t i = 0; i < d->n; i++)
        if (d->items[i].extent != NULL) {
            assert_int_equal(read_kept(d, &d->items[i]), 0);
            blocks++;
        }
    assert_int_equal(scan(d, true, true, &salvaged), 0);
    assert_false(salvaged);
    assert_int_equal(d->blocks, blocks);
    assert_int_equal(d->notes, d->n - blocks);
    assert_int_equal(d->damages, 0);
}

/* ---- what is there comes back ---- */

static void test_small(void **state)
{
    struct desk d;
    desk_init(&d, 1);
    write_small(&d);
    assert_int_equal(simfs_content(d.fs, NAME).n, d.file_bytes);
    assert_false(simfs_has_unsynced(d.fs));
    assert_all_there(&d);
    assert_int_equal(scan(&d, false, false, NULL), 0);
    assert_int_equal(d.blocks, 3);
    assert_int_equal(d.notes, 2);
    desk_deinit(&d);
}

static void test_empty(void **state)
{
    struct desk d;
    struct segment_writer *w;
    desk_init(&d, 1);
    assert_int_equal(segment_create(d.vfs, ID, &w), 0);
    assert_int_equal(segment_finish(w, &d.file_bytes), 0);
    segment_close(w);
    assert_all_there(&d);
    desk_deinit(&d);
}

/* Sizes around those at which the writer or the reader does something else. */
static void test_sizes(void **state)
{
    static const uint32_t sizes[] = {1,      2,       3933,    3934,    3935,    4032,    4096,
                                     65535,  65536,   65537,   262143,  262144,  262145,  700000,
                                     983000, 1048512, 1048576, 1048577, 1300000, 3000000, 5};
    struct desk d;
    struct segment_writer *w;
    uint64_t first = 0;
    desk_init(&d, 1);
    assert_int_equal(segment_create(d.vfs, ID, &w), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(add_block(&d, w, 9, first, sizes[i], i % 3 == 0 ? 1 : 1000), 0);
        first += sizes[i];
        if (i % 4 == 0)
            assert_int_equal(add_note(&d, w, i, i == 8 ? SEGMENT_NOTE_MAX : (uint32_t)i), 0);
    }
    assert_int_equal(segment_finish(w, &d.file_bytes), 0);
    segment_close(w);
    assert_all_there(&d);
    desk_deinit(&d);
}

static void random_segment(struct rng *r)
{
    struct desk d;
    struct segment_writer *w;
    uint64_t first = 0;
    desk_init(&d, rng_next(r));
    assert_int_equal(segment_create(d.vfs, ID, &w), 0);
    for (uint64_t i = rng_below(r, 40); i > 0; i--) {
        uint32_t n = (uint32_t)rng_between(r, 1, rng_one_in(r, 8) ? 600000 : 3000);
        if (rng_one_in(r, 3)) {
            assert_int_equal(add_note(&d, w, i, (uint32_t)rng_below(r, 200)), 0);
            continue;
        }
        assert_int_equal(add_block(&d, w, 1 + i / 10, first, n, (uint32_t)rng_between(r, 1, n)), 0);
        first += n;
    }
    assert_int_equal(segment_finish(w, &d.file_bytes), 0);
    segment_close(w);
    simfs_crash(d.fs, rng_next(r)); /* finished is durable */
    assert_all_there(&d);
    desk_deinit(&d);
}

static void test_random(void **state)
{
    seeds_run(40, random_segment);
}

static void test_small_blocks_become_large_writes(void **state)
{
    struct desk d;
    struct segment_writer *w;
    struct block_info info;
    desk_init(&d, 1);
    assert_int_equal(segment_create(d.vfs, ID, &w), 0);
    struct extent *c = make_chunk(0, 500, 50);
    for (unsigned i = 0; i < 8000; i++)
        assert_int_equal(segment_add(w, i, c, &info), 0);
    assert_int_equal(segment_finish(w, &d.file_bytes), 0);
    segment_close(w);
    extent_unref(c);
    assert_in_range(d.file_bytes, 4600000, 5500000);
    assert_in_range(simfs_calls(d.fs, SIMFS_WRITE), 18, 21);
    assert_int_equal(simfs_calls(d.fs, SIMFS_WRITE_BACK), 0); /* not in steps: as fast as it goes */
    assert_int_equal(simfs_calls(d.fs, SIMFS_SYNC), 1);
    desk_deinit(&d);
}

/* ---- in steps ---- */

static struct {
    unsigned n;
    uint64_t longest_ns;
    struct pace *hurries; /* after the third */
} pauses;

static void note_pause(uint64_t ns)
{
    pauses.n++;
    pauses.longest_ns = ns > pauses.longest_ns ? ns : pauses.longest_ns;
    if (pauses.hurries != NULL && pauses.n == 3)
        atomic_store(&pauses.hurries->hurry, true);
}

static void write_paced(struct pace *pace, struct desk *d)
{
    struct segment_writer *w;
    memset(&pauses, 0, sizeof pauses);
    pauses.hurries = pace;
    desk_init(d, 1);
    assert_int_equal(segment_create(d->vfs, ID, &w), 0);
    segment_set_pace(w, pace);
    for (unsigned i = 0; i < 12; i++) /* small ones, and one of many steps */
        assert_int_equal(add_block(d, w, 1 + i, i * 1000, i == 5 ? 3000000 : 100000, 777), 0);
    assert_int_equal(segment_finish(w, &d->file_bytes), 0);
    segment_close(w);
}

static void test_steps(void **state)
{
    struct pace pace = {.pause = note_pause};
    struct desk d;
    write_paced(&pace, &d);
    assert_int_equal(pauses.n, 3); /* somebody began to wait then */
    assert_in_range(pauses.longest_ns, 1, 10000000);
    assert_in_range(simfs_calls(d.fs, SIMFS_WRITE_BACK), d.file_bytes / PACE_STEP_BYTES / 2,
                    d.file_bytes / PACE_STEP_BYTES);
    assert_int_equal(simfs_calls(d.fs, SIMFS_SYNC), 1); /* that is what makes it durable */
    assert_all_there(&d);
    desk_deinit(&d);
}

static void test_too_large(void **state)
{
    struct desk d;
    struct segment_writer *w;
    struct block_info info;
    desk_init(&d, 1);
    assert_int_equal(segment_create(d.vfs, ID, &w), 0);
    struct block bytes = {.n = SEGMENT_BLOCK_MAX}; /* nobody looks at them */
    struct extent c = {.n_marks = 1, .bytes = &bytes};
    assert_int_equal(segment_add(w, 1, &c, &info), ERR_TOO_LARGE);
    bytes.n = 1;
    c.n_marks = UINT32_MAX;
    assert_int_equal(segment_add(w, 1, &c, &info), ERR_TOO_LARGE);
    assert_int_equal(add_block(&d, w, 3, 100, 40, 7), 0); /* the segment goes on */
    assert_int_equal(segment_finish(w, &d.file_bytes), 0);
    segment_close(w);
    assert_all_there(&d);
    desk_deinit(&d);
}

/* ---- what is not, does not ---- */

static void test_wrong_questions(void **state)
{
    struct desk d;
    struct extent *c;
    desk_init(&d, 1);
    write_small(&d);
    struct place p = d.items[0].info.place, other = d.items[1].info.place;
    assert_int_equal(segment_read(d.vfs, 4, 100, p, &c), ERR_CORRUPT);
    assert_int_equal(segment_read(d.vfs, 3, 101, p, &c), ERR_CORRUPT);
    assert_int_equal(segment_read(d.vfs, 3, 100, other, &c), ERR_CORRUPT);
    struct place note = {ID, other.offset + other.bytes, 8 + 33 + 8};
    assert_int_equal(segment_read(d.vfs, 3, 0, note, &c), ERR_CORRUPT);
    for (int by = -9; by <= 9; by++) {
        struct place shifted = {p.segment, p.offset + (uint64_t)by, p.bytes};
        struct place cut = {p.segment, p.offset, p.bytes + (uint32_t)by};
        assert_int_equal(segment_read(d.vfs, 3, 100, shifted, &c), by == 0 ? 0 : ERR_CORRUPT);
        if (by == 0)
            extent_unref(c);
        else
            assert_int_equal(segment_read(d.vfs, 3, 100, cut, &c), ERR_CORRUPT);
    }
    struct place far[] = {{ID, UINT64_MAX, 64},        {ID, 0, UINT32_MAX},
                          {ID, d.file_bytes, 64},      {ID, d.file_bytes, 0},
                          {ID, p.offset, 0},           {ID, p.offset, UINT32_MAX},
                          {ID, UINT64_MAX - 10, 1000}, {ID, p.offset, 10}};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++)
        assert_int_equal(segment_read(d.vfs, 3, 100, far[i], &c), ERR_CORRUPT);
    assert_int_equal(segment_read(d.vfs, 3, 100, (struct place){99, 40, 64}, &c), ERR_NOT_FOUND);
    assert_int_equal(scan(&d, true, true, NULL), 0);
    desk_deinit(&d);
}

/* The same blocks at the same places, but of another segment: what a disk leaves behind that did
 * not write where it was told to. */
static void test_block_of_another_segment(void **state)
{
    struct desk d, stale;
    desk_init(&d, 1);
    desk_init(&stale, 1);
    write_small(&d);
    struct segment_writer *w;
    assert_int_equal(segment_create(stale.vfs, ID - 1, &w), 0);
    assert_int_equal(add_block(&stale, w, 3, 100, 40, 7), 0);
    assert_int_equal(segment_finish(w, &stale.file_bytes), 0);
    segment_close(w);
    struct place p = d.items[0].info.place;
    assert_int_equal(stale.items[0].info.place.offset, p.offset);
    struct buf mixed = {0};
    buf_put(&mixed, simfs_content(d.fs, NAME));
    memcpy(mixed.p + p.offset, simfs_content(stale.fs, "segments/00000011.s").p + p.offset,
           p.bytes);
    simfs_put(d.fs, NAME, buf_str(&mixed));
    assert_int_equal(read_kept(&d, &d.items[0]), ERR_CORRUPT);
    assert_int_equal(read_kept(&d, &d.items[1]), 0);
    assert_int_equal(scan(&d, true, false, NULL), 0);
    assert_int_equal(d.damages, 1);
    assert_int_equal(d.damage_at, p.offset);
    buf_deinit(&mixed);
    desk_deinit(&stale);
    desk_deinit(&d);
}

/* A file that ends in the footer and trailer of another one with the same id and the same items. */
static void test_footer_of_another_file(void **state)
{
    struct desk d, twin;
    desk_init(&d, 1);
    desk_init(&twin, 1);
    write_small(&d);
    write_small(&twin);
    assert_int_equal(d.file_bytes, twin.file_bytes);
    const struct entry_kept *last = &d.items[d.n - 1]; /* a note without bytes */
    assert_int_equal(last->note.n, 0);
    uint64_t items_end = d.items[3].info.place.offset + d.items[3].info.place.bytes + 16;
    struct buf mixed = {0};
    buf_put(&mixed, str_of(simfs_content(d.fs, NAME).p, items_end));
    buf_put(&mixed, str_skip(simfs_content(twin.fs, NAME), items_end));
    simfs_put(d.fs, NAME, buf_str(&mixed));
    assert_int_equal(scan(&d, true, false, NULL), ERR_CORRUPT);
    bool salvaged;
    assert_int_equal(scan(&d, true, true, &salvaged), 0);
    assert_true(salvaged);
    assert_int_equal(d.blocks + d.notes, d.n);
    buf_deinit(&mixed);
    desk_deinit(&twin);
    desk_deinit(&d);
}

static bool covers(const struct entry_kept *e, uint64_t offset)
{
    return offset >= e->info.place.offset && offset < e->info.place.offset + e->info.place.bytes;
}

/* Every bit of a finished segment. What is hit is noticed, what is not stays readable. */
static void test_every_bit_flip(void **state)
{
    struct desk d;
    desk_init(&d, 1);
    write_small(&d);
    for (uint64_t bit = 0; bit < d.file_bytes * 8; bit++) {
        unsigned char mask = (unsigned char)(1u << (bit & 7));
        simfs_flip(d.fs, NAME, bit >> 3, mask);
        int err = scan(&d, true, false, NULL);
        assert_true(err == ERR_CORRUPT || err == ERR_VERSION || d.damages > 0);
        for (size_t i = 0; i < d.n; i++) {
            const struct entry_kept *e = &d.items[i];
            if (e->extent != NULL)
                assert_int_equal(read_kept(&d, e), covers(e, bit >> 3) ? ERR_CORRUPT : 0);
        }
        if (err == 0) { /* one item was hit, and the others were told as they are */
            assert_int_equal(d.damages, 1);
            assert_int_equal(d.blocks + d.notes, d.n - 1);
        }
        int listed = scan(&d, false, false, NULL); /* checks what it is told */
        assert_true(listed == err && (listed != 0 || d.blocks == 3));
        simfs_flip(d.fs, NAME, bit >> 3, mask);
    }
    assert_all_there(&d);
    desk_deinit(&d);
}

/* How many items end at or before that offset. */
static size_t whole_before(const struct desk *d, uint64_t offset)
{
    uint64_t at = SEGMENT_FILE_HEAD;
    size_t n = 0;
    for (; n < d->n; n++) {
        const struct entry_kept *e = &d->items[n];
        at += e->extent != NULL ? e->info.place.bytes : SEGMENT_NOTE_HEAD + e->note.n + SEGMENT_SUM;
        if (at > offset)
            break;
    }
    return n;
}

static void test_every_truncation(void **state)
{
    struct desk d;
    desk_init(&d, 1);
    write_small(&d);
    struct buf all = {0};
    buf_put(&all, simfs_content(d.fs, NAME));
    for (size_t n = 0; n < all.n; n++) {
        bool salvaged;
        simfs_put(d.fs, NAME, str_of(all.p, n));
        assert_int_equal(scan(&d, false, false, &salvaged), ERR_CORRUPT);
        assert_int_equal(d.blocks + d.notes, 0);
        assert_false(salvaged);
        assert_int_equal(scan(&d, false, true, &salvaged), 0);
        assert_true(salvaged);
        assert_int_equal(d.blocks + d.notes, whole_before(&d, n));
        assert_true(d.damages > 0);
    }
    buf_putc(&all, 0); /* and what is too long */
    simfs_put(d.fs, NAME, buf_str(&all));
    assert_int_equal(scan(&d, true, false, NULL), ERR_CORRUPT);
    buf_deinit(&all);
    desk_deinit(&d);
}

/* A damaged block ends the salvage: what lies behind it cannot be found by its lengths. */
static void test_salvage_stops_at_damage(void **state)
{
    struct desk d;
    bool salvaged;
    desk_init(&d, 1);
    write_small(&d);
    simfs_flip(d.fs, NAME, d.file_bytes - 1, 1); /* no footer */
    simfs_flip(d.fs, NAME, d.items[1].info.place.offset + 5, 1);
    assert_int_equal(scan(&d, false, true, &salvaged), 0);
    assert_true(salvaged);
    assert_int_equal(d.blocks, 1);
    assert_int_equal(d.notes, 0);
    assert_int_equal(d.damage_at, d.items[1].info.place.offset);
    desk_deinit(&d);
}

static void test_later_version(void **state)
{
    struct desk d;
    bool salvaged;
    desk_init(&d, 1);
    write_small(&d);
    struct buf all = {0};
    buf_put(&all, simfs_content(d.fs, NAME));
    le_put_u32(all.p + 8, SEGMENT_VERSION + 1);
    le_put_u64(all.p + 32, XXH3_64bits(all.p, 32));
    simfs_put(d.fs, NAME, buf_str(&all));
    assert_int_equal(scan(&d, true, true, &salvaged), ERR_VERSION);
    assert_false(salvaged);
    assert_int_equal(d.blocks + d.notes, 0);
    buf_deinit(&all);
    desk_deinit(&d);
}

/* Writes a block with these marks and a right sum; what reading it says. */
static int read_marks(struct desk *d, uint32_t first, uint32_t second)
{
    struct segment_item item = {
        .offset = SEGMENT_FILE_HEAD, .marks = 2, .n = 5, .life = 1, .first = 10};
    struct buf file = {0};
    segment_head_write(buf_reserve(&file, SEGMENT_FILE_HEAD), ID, 0);
    file.n = SEGMENT_FILE_HEAD;
    segment_item_write(buf_reserve(&file, SEGMENT_BLOCK_HEAD), &item);
    file.n += SEGMENT_BLOCK_HEAD;
    char tail[21] = "\0\0\0\0\0\0\0\0hello";
    le_put_u32(tail, first);
    le_put_u32(tail + 4, second);
    buf_put(&file, str_of(tail, 13));
    le_put_u64(tail, XXH3_64bits_withSeed(file.p + item.offset, file.n - item.offset, ID));
    buf_put(&file, str_of(tail, 8));
    simfs_put(d->fs, NAME, buf_str(&file));
    buf_deinit(&file);
    struct extent *c;
    struct place place = {ID, item.offset, (uint32_t)segment_item_bytes(&item)};
    int err = segment_read(d->vfs, 1, 10, place, &c);
    if (err == 0) {
        assert_int_equal(c->marks[0], first);
        assert_int_equal(c->marks[1], second);
        extent_unref(c);
    }
    return err;
}

static void test_marks_that_make_no_sense(void **state)
{
    struct desk d;
    desk_init(&d, 1);
    const uint32_t last = 5 | MARK_APPEND_END;
    assert_int_equal(read_marks(&d, 2, last), 0);
    assert_int_equal(read_marks(&d, 2 | MARK_APPEND_END, last), 0);
    assert_int_equal(read_marks(&d, 5, last), 0);
    assert_int_equal(read_marks(&d, 6, last), ERR_CORRUPT);
    assert_int_equal(read_marks(&d, 2, 5), ERR_CORRUPT);
    assert_int_equal(read_marks(&d, 2, 6 | MARK_APPEND_END), ERR_CORRUPT);
    assert_int_equal(read_marks(&d, 2, 4 | MARK_APPEND_END), ERR_CORRUPT);
    assert_int_equal(read_marks(&d, UINT32_MAX, last), ERR_CORRUPT);
    desk_deinit(&d);
}

/* Writes a file of one note, with right sums everywhere; the footer tells of this item and begins
 * `gap` bytes behind it. */
static void put_with_footer(struct desk *d, const struct segment_item *listed, size_t gap)
{
    struct segment_item item = {.n = 3};
    struct buf file = {0}, footer = {0};
    char note[SEGMENT_NOTE_HEAD + 3 + SEGMENT_SUM], trailer[SEGMENT_TRAILER];
    segment_head_write(buf_reserve(&file, SEGMENT_FILE_HEAD), ID, 99);
    file.n = SEGMENT_FILE_HEAD;
    segment_item_write(note, &item);
    memcpy(note + SEGMENT_NOTE_HEAD, "abc", 3);
    le_put_u64(note + SEGMENT_NOTE_HEAD + 3, XXH3_64bits_withSeed(note, SEGMENT_NOTE_HEAD + 3, ID));
    buf_put(&file, str_of(note, sizeof note));
    for (size_t i = 0; i < gap; i++)
        buf_putc(&file, 0);
    segment_footer_put(&footer, listed);
    segment_trailer_write(trailer, 99, file.n, buf_str(&footer));
    buf_put(&file, buf_str(&footer));
    buf_put(&file, str_of(trailer, sizeof trailer));
    simfs_put(d->fs, NAME, buf_str(&file));
    buf_deinit(&file);
    buf_deinit(&footer);
}

static int accept_note(void *ctx, struct str note)
{
    ++*(size_t *)ctx;
    return 0;
}

/* Sums alone do not make a footer right. */
static void test_footer_that_lies(void **state)
{
    struct desk d;
    size_t notes = 0;
    struct segment_scan s = {.ctx = &notes, .note = accept_note};
    struct segment_item right = {.n = 3}, longer = {.n = 4};
    struct segment_item block = {.n = 3, .life = 5, .marks = 1};
    desk_init(&d, 1);
    put_with_footer(&d, &right, 0);
    assert_int_equal(segment_scan(d.vfs, ID, &s), 0);
    assert_int_equal(notes, 1);
    put_with_footer(&d, &right, 1); /* a byte that nothing tells of */
    assert_int_equal(segment_scan(d.vfs, ID, &s), ERR_CORRUPT);
    put_with_footer(&d, &longer, 0);
    assert_int_equal(segment_scan(d.vfs, ID, &s), ERR_CORRUPT);
    put_with_footer(&d, &longer, 1); /* the footer fills the file, but the note is another */
    assert_int_equal(segment_scan(d.vfs, ID, &s), 0);
    put_with_footer(&d, &block, 0);
    assert_int_equal(segment_scan(d.vfs, ID, &s), ERR_CORRUPT);
    put_with_footer(&d, &block, SEGMENT_BLOCK_HEAD + SEGMENT_MARK - SEGMENT_NOTE_HEAD);
    s.verify = true;
    assert_int_equal(segment_scan(d.vfs, ID, &s), 0); /* a block that is a note */
    assert_int_equal(notes, 1);
    desk_deinit(&d);
}

/* A file under another one's name. */
static void test_renamed(void **state)
{
    struct desk d;
    struct segment_scan s = {0};
    desk_init(&d, 1);
    write_small(&d);
    assert_int_equal(vfs_rename(d.vfs, NAME, "segments/00000013.s"), 0);
    assert_int_equal(segment_scan(d.vfs, ID + 1, &s), ERR_CORRUPT);
    desk_deinit(&d);
}

static void test_callbacks(void **state)
{
    struct desk d;
    desk_init(&d, 1);
    write_small(&d);
    d.stop = ERR_CANCELLED;
    assert_int_equal(scan(&d, false, false, NULL), ERR_CANCELLED);
    assert_int_equal(d.blocks, 1);
    struct segment_scan silent = {.verify = true, .salvage = true};
    assert_int_equal(segment_scan(d.vfs, ID, &silent), 0);
    simfs_flip(d.fs, NAME, d.file_bytes - 1, 1);
    assert_int_equal(segment_scan(d.vfs, ID, &silent), 0);
    assert_true(silent.salvaged);
    assert_int_equal(segment_scan(d.vfs, ID + 1, &silent), ERR_NOT_FOUND);
    desk_deinit(&d);
}

/* A sector that cannot be read: the items in it are told of, the others are there. */
static void test_unreadable_block(void **state)
{
    struct desk d;
    desk_init(&d, 1);
    write_small(&d);
    simfs_fail(d.fs, SIMFS_READ, 4, ERR_IO); /* after head, trailer and footer: the first block */
    assert_int_equal(scan(&d, true, false, NULL), 0);
    assert_int_equal(d.damages, 1);
    assert_int_equal(d.damage_at, d.items[0].info.place.offset);
    assert_int_equal(d.blocks, 2);
    assert_int_equal(d.notes, 2);
    simfs_fail(d.fs, SIMFS_READ, 3,
               ERR_IO); /* the footer: it may be sound, so nothing is guessed */
    assert_int_equal(scan(&d, true, true, NULL), ERR_IO);
    simfs_fail(d.fs, SIMFS_READ, 1, ERR_IO);
    assert_int_equal(read_kept(&d, &d.items[0]), ERR_IO);
    desk_deinit(&d);
}

/* ---- a disk that does not take it ---- */

/* Until finish has said 0; the first error. */
static int write_something(struct desk *d)
{
    struct segment_writer *w;
    struct pace pace = {0};
    int err = segment_create(d->vfs, ID, &w);
    if (err != 0)
        return err;
    segment_set_pace(w, &pace);
    for (uint64_t i = 0; err == 0 && i < 6; i++) {
        err = add_block(d, w, 1 + i, i * 1000, i == 2 ? 1500000 : 300000, 777);
        if (err == 0)
            err = add_note(d, w, 1 + i, 50);
    }
    if (err == 0)
        err = segment_finish(w, &d->file_bytes);
    else
        assert_int_equal(segment_finish(w, &d->file_bytes), err);
    if (err != 0)
        assert_int_equal(segment_add_note(w, STR("x")), err);
    segment_close(w);
    return err;
}

static void fail_each(enum simfs_op op, int err)
{
    for (uint64_t n = 1;; n++) {
        struct desk d;
        desk_init(&d, n);
        simfs_fail(d.fs, op, n, err);
        int got = write_something(&d);
        if (got == 0) {
            assert_true(n > 1); /* something was called, and failed when told to */
            assert_all_there(&d);
            desk_deinit(&d);
            return;
        }
        assert_int_equal(got, err);
        assert_null(simfs_content(d.fs, NAME).p); /* not finished, so removed */
        assert_null(simfs_content(d.fs, NAME ".new").p);
        desk_deinit(&d);
    }
}

static void test_errors(void **state)
{
    fail_each(SIMFS_CREATE, ERR_IO);
    fail_each(SIMFS_WRITE, ERR_FULL);
    fail_each(SIMFS_WRITE, ERR_IO);
    fail_each(SIMFS_WRITE_BACK, ERR_IO);
    fail_each(SIMFS_SYNC, ERR_IO);
    fail_each(SIMFS_RENAME, ERR_IO);
    fail_each(SIMFS_SYNC_DIR, ERR_IO);
}

static void test_full(void **state)
{
    struct desk d;
    desk_init(&d, 1);
    simfs_set_capacity(d.fs, 2000000);
    assert_int_equal(write_something(&d), ERR_FULL);
    assert_int_equal(simfs_bytes(d.fs), 0);
    desk_deinit(&d);
}

/* Power goes at each call in turn. What finish has said is durable is there; otherwise there is no
 * such segment, or, if it had got its name, all of it is there. */
static void test_power_cuts(void **state)
{
    size_t absent = 0, whole = 0;
    for (uint64_t n = 1; n < 90; n++) {
        struct desk d;
        desk_init(&d, n);
        simfs_cut_power_at(d.fs, n % 30 + 1);
        int err = write_something(&d);
        simfs_crash(d.fs, n * 31);
        struct segment_scan silent = {0};
        bool there = segment_scan(d.vfs, ID, &silent) != ERR_NOT_FOUND;
        assert_true(there || err != 0);
        if (there)
            assert_all_there(&d);
        absent += !there;
        whole += there && err != 0;
        desk_deinit(&d);
    }
    assert_true(absent > 0 && whole > 0);
}

static void test_unfinished_is_removed(void **state)
{
    struct desk d;
    struct segment_writer *w;
    desk_init(&d, 1);
    assert_int_equal(segment_create(d.vfs, ID, &w), 0);
    assert_int_equal(add_block(&d, w, 1, 0, 2000000, 100), 0);
    assert_null(simfs_content(d.fs, NAME).p);
    assert_non_null(simfs_content(d.fs, NAME ".new").p);
    segment_close(w);
    assert_null(simfs_content(d.fs, NAME ".new").p);
    segment_close(NULL);
    desk_deinit(&d);
}

/* The process dies in the middle: nobody takes what it has left for a segment. */
static void test_unfinished_is_not_found(void **state)
{
    struct desk d;
    struct segment_writer *w;
    uint64_t *ids;
    size_t n;
    desk_init(&d, 1);
    assert_int_equal(segment_create(d.vfs, ID, &w), 0);
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(add_block(&d, w, 1, i * 150000, 150000, 999), 0);
    simfs_cut_power_at(d.fs, 1);
    segment_close(w); /* does not get to remove it */
    simfs_kill(d.fs);
    assert_int_equal(scan(&d, false, true, NULL), ERR_NOT_FOUND);
    assert_int_equal(segment_list(d.vfs, &ids, &n), 0);
    assert_int_equal(n, 0);
    free(ids);
    assert_non_null(simfs_content(d.fs, NAME ".new").p);
    desk_deinit(&d);
    desk_init(&d, 1);
    simfs_put(d.fs, NAME ".new", STR("something"));
    write_small(&d); /* takes its place */
    assert_null(simfs_content(d.fs, NAME ".new").p);
    assert_all_there(&d);
    assert_int_equal(segment_create(d.vfs, ID, &w), ERR_EXISTS);
    desk_deinit(&d);
}

/* ---- all of them ---- */

static void test_list(void **state)
{
    struct desk d;
    uint64_t *ids;
    size_t n;
    desk_init(&d, 1);
    assert_int_equal(segment_list(d.vfs, &ids, &n), 0); /* not even the folder */
    assert_int_equal(n, 0);
    free(ids);
    static const char *const names[] = {"00000030.s", "123456789012.s", "00000004.s", "notes",
                                        "0000005.s",  "000000006.s",    "0000000x.s", "00000007.j",
                                        ".s",         "00000009.s.new", "00000000.s"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        snprintf(path, sizeof path, "segments/%s", names[i]);
        simfs_put(d.fs, path, STR("x"));
    }
    assert_int_equal(segment_list(d.vfs, &ids, &n), 0);
    assert_int_equal(n, 4);
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], 4);
    assert_int_equal(ids[2], 30);
    assert_int_equal(ids[3], 123456789012);
    free(ids);
    assert_int_equal(segment_remove(d.vfs, 30), 0);
    assert_int_equal(segment_remove(d.vfs, 30), ERR_NOT_FOUND);
    simfs_fail(d.fs, SIMFS_LIST, 1, ERR_IO);
    assert_int_equal(segment_list(d.vfs, &ids, &n), ERR_IO);
    desk_deinit(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test_teardown(test_random, seeds_teardown),
        cmocka_unit_test(test_small_blocks_become_large_writes),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_wrong_questions),
        cmocka_unit_test(test_block_of_another_segment),
        cmocka_unit_test(test_footer_of_another_file),
        cmocka_unit_test(test_every_bit_flip),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_salvage_stops_at_damage),
        cmocka_unit_test(test_later_version),
        cmocka_unit_test(test_marks_that_make_no_sense),
        cmocka_unit_test(test_footer_that_lies),
        cmocka_unit_test(test_renamed),
        cmocka_unit_test(test_callbacks),
        cmocka_unit_test(test_unreadable_block),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_power_cuts),
        cmocka_unit_test(test_unfinished_is_removed),
        cmocka_unit_test(test_unfinished_is_not_found),
        cmocka_unit_test(test_list),
    };
    return cmocka_run_group_tests_name("store/segment", tests, NULL, NULL);
}
