// SPDX-License-Identifier: Apache-2.0
/* The doctor on stores that real work has made and that then were damaged: every flipped bit that
 * matters is found, and a repair keeps all that verifies, event by event. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault/doctor_bench.h"

#define SEEDS 12
#define LATE  8 /* operations after the last checkpoint, a batch each */
#define FLIPS 12

/* ---- sound ones ---- */

static uint64_t merged;

static void sound_store(struct rng *rng)
{
    struct bench *b = bench_new(rng_next(rng));
    work(b);
    bench_close(b);
    assert_sound(b);
    assert_true(b->doctor.batches == 0);
    assert_true(bench_open(b));
    for (int i = 0; i < 30; i++)
        change_at_random(b);
    bench_close(b);
    assert_sound(b);
    assert_true(b->doctor.batches > 0);
    CHECK(b, consult(b, true) == 0);
    CHECK(b, b->doctor.left == 0 && !b->doctor.repaired);
    simfs_crash(b->fs, 3);
    assert_sound(b);
    merged += b->merged;
    bench_free(b);
}

static void test_sound_stores(void **state)
{
    seeds_run(3 * SEEDS, sound_store);
    assert_true(merged > 0 || seeds_env("TIDEMARK_SEED") != 0);
}

/* A crash between a segment and the index's commit, or an old copy that somebody has put back: the
 * index is behind, and nothing is wrong. */
static void test_index_that_is_behind(void **state)
{
    for (uint64_t files = 0; files < 12; files++) {
        struct bench *b = bench_new(files + 1);
        struct buf old = {0};
        struct shown before;
        b->config.rest.base_files = files / 2;
        work(b);
        bench_close(b);
        read_index(b, &old);
        assert_true(bench_open(b));
        for (uint64_t i = 0; i <= files; i++) {
            for (size_t k = 0; k < NAMES; k++)
                append(b, name_of(k), STR("<late>"));
            checkpoint(b);
        }
        show(b, &before);
        bench_close(b);
        write_index(b, buf_str(&old));
        assert_sound(b);
        assert_true(says(&b->notes, "has not heard of the last checkpoint"));
        if (files % 3 == 0) {
            CHECK(b, consult(b, true) == 0);
            CHECK(b, b->doctor.found == 0 && b->doctor.left == 0);
            assert_sound(b);
        }
        CHECK(b, bench_open(b));
        struct shown after;
        show(b, &after);
        CHECK(b, is_same(&before, &after, true));
        shown_free(&before);
        shown_free(&after);
        buf_deinit(&old);
        bench_free(b);
    }
}

/* ---- the index ---- */

static uint64_t flips, flips_found;

/* Most of the file is free, and most of what is not is zeros. */
static uint64_t pick_index_byte(struct rng *rng, const struct buf *bytes)
{
    uint64_t at = 0;
    for (int tries = 0; tries < 200; tries++) {
        at = rng_below(rng, bytes->n);
        if (bytes->p[at] != 0)
            break;
    }
    return at;
}

/* Something worse than a bit. */
static void ruin(struct rng *rng, struct buf *bytes)
{
    const size_t page = 4096, pages = bytes->n / page;
    char *one = bytes->p + page * rng_below(rng, pages),
         *two = bytes->p + page * rng_below(rng, pages);
    char kept[4096];
    switch (rng_below(rng, 5)) {
    case 0: bytes->n = rng_below(rng, bytes->n); break;
    case 1: memset(one, 0, page); break;
    case 2: memset(one, 0xff, page); break;
    case 3:
        memcpy(kept, one, page);
        memmove(one, two, page);
        memcpy(two, kept, page);
        break;
    default:
        for (int i = 0; i < 100; i++)
            bytes->p[pick_index_byte(rng, bytes)] = (char)rng_next(rng);
        break;
    }
}

static void damaged_index(struct rng *rng)
{
    struct bench *b = bench_new(rng_next(rng));
    struct shown before, after;
    struct image im;
    work(b);
    for (int i = 0; i < LATE; i++)
        append(b, name_of(rng_below(rng, NAMES)), STR("<late>"));
    show(b, &before);
    bench_close(b);
    image_take(b, &im);
    for (int i = 0; i < 3 * FLIPS; i++) {
        image_put(b, &im);
        struct buf bytes = {0};
        buf_put(&bytes, buf_str(&im.index));
        uint64_t at = rng_one_in(rng, 6) ? rng_below(rng, 160) : pick_index_byte(rng, &bytes);
        if (rng_one_in(rng, 4))
            ruin(rng, &bytes);
        else
            bytes.p[at] ^= (char)(1 << rng_below(rng, 8));
        write_index(b, buf_str(&bytes));
        buf_deinit(&bytes);
        flips++;
        CHECK(b, consult(b, false) == 0);
        if (b->doctor.found == 0) {
            CHECK(b, bench_open(b));
            show(b, &after);
            CHECK(b, is_same(&before, &after, true));
            shown_free(&after);
            for (int k = 0; k < 10; k++) /* nor does it when pages are used again */
                change_at_random(b);
            checkpoint(b);
            bench_close(b);
            assert_sound(b);
            continue;
        }
        flips_found++;
        CHECK(b, consult(b, true) == 0);
        CHECK(b, b->doctor.found > 0 && b->doctor.left == 0 && b->doctor.repaired);
        assert_sound(b);
        CHECK(b, bench_open(b));
        show(b, &after);
        CHECK(b, is_same(&before, &after, true));
        shown_free(&after);
        bench_close(b);
        assert_sound(b);
    }
    shown_free(&before);
    image_free(&im);
    bench_free(b);
}

static void test_flips_in_the_index(void **state)
{
    flips = flips_found = 0;
    seeds_run(SEEDS, damaged_index);
    print_message("index: %" PRIu64 " of %" PRIu64 " flips found, the others did no harm\n",
                  flips_found, flips);
    if (seeds_env("TIDEMARK_SEED") == 0)
        assert_true(flips_found > flips / 8);
}

/* ---- segments ---- */

/* After a repair: what can be read is as before, and what cannot was told by name. */
static void check_repaired(struct bench *b, const struct shown *before, bool rows_lost)
{
    struct shown after;
    struct buf told = {0};
    CHECK(b, consult(b, true) == 0);
    CHECK(b, b->doctor.found > 0);
    uint64_t left = b->doctor.left;
    buf_put(&told, buf_str(&b->wrong));
    CHECK(b, consult(b, false) == 0); /* nothing that another repair would */
    CHECK(b, b->doctor.found == left);
    CHECK(b, consult(b, true) == 0);
    CHECK(b, b->doctor.left == left && !b->doctor.repaired);
    CHECK(b, bench_open(b));
    show(b, &after);
    for (size_t i = 0; i < NAMES && !rows_lost; i++) {
        char text[40];
        snprintf(text, sizeof text, "stream %s:", name_of(i));
        if (str_eq(buf_str(&before->streams[i]), buf_str(&after.streams[i])))
            continue;
        if (!says(&told, text))
            is_same(before, &after, true);
        CHECK(b, after.errs[i] == ERR_CORRUPT && says(&told, text));
    }
    if (!rows_lost)
        assert_true(str_eq(buf_str(&before->docs), buf_str(&after.docs)));
    shown_free(&after);
    bench_close(b);
    buf_deinit(&told);
}

static void damage_file(struct bench *b, struct rng *rng, const char *name)
{
    struct str content = simfs_content(b->fs, name);
    if (rng_one_in(rng, 5)) {
        struct buf cut = {0};
        buf_put(&cut, str_of(content.p, rng_below(rng, content.n)));
        simfs_put(b->fs, name, buf_str(&cut));
        buf_deinit(&cut);
    } else if (rng_one_in(rng, 8)) {
        assert_int_equal(vfs_remove(simfs_vfs(b->fs), name), 0);
    } else {
        simfs_flip(b->fs, name, rng_below(rng, content.n), (unsigned char)(1 << rng_below(rng, 8)));
    }
}

static void damaged_segments(struct rng *rng)
{
    struct bench *b = bench_new(rng_next(rng));
    struct shown before;
    struct image im;
    work(b);
    for (int i = 0; i < LATE; i++)
        append(b, name_of(rng_below(rng, NAMES)), STR("<late>"));
    show(b, &before);
    bench_close(b);
    image_take(b, &im);
    for (int i = 0; i < 2 * FLIPS; i++) {
        image_put(b, &im);
        size_t file = pick_file(b, &im, "segments/");
        damage_file(b, rng, im.names[file].p);
        CHECK(b, consult(b, false) == 0);
        CHECK(b, b->doctor.found > 0);
        check_repaired(b, &before, false);
    }
    shown_free(&before);
    image_free(&im);
    bench_free(b);
}

static void test_damaged_segments(void **state)
{
    seeds_run(SEEDS, damaged_segments);
}

/* ---- both ---- */

static uint64_t streams_lost, streams_kept;

static struct str events_of(const struct buf *shown)
{
    const char *end = memmem(shown->p, shown->n, " | ", 3);
    return str_of(shown->p, (size_t)(end - shown->p));
}

/* With rows lost as well as notes, something may be lost. But what is shown of a stream was so at
 * some time, or an error says where it ends. */
static void check_salvaged(struct bench *b, const struct shown *before)
{
    struct shown after;
    show(b, &after);
    for (size_t i = 0; i < NAMES; i++) {
        bool same = str_eq(buf_str(&before->streams[i]), buf_str(&after.streams[i]));
        streams_kept += same;
        streams_lost += !same;
        if (same || before->lives[i] != after.lives[i]) /* gone, or an earlier one is back */
            continue;
        if (!str_starts(events_of(&before->streams[i]), events_of(&after.streams[i])))
            is_same(before, &after, true);
        CHECK(b, str_starts(events_of(&before->streams[i]), events_of(&after.streams[i])));
    }
    shown_free(&after);
}

static void damage_index(struct bench *b, struct rng *rng, const struct image *im)
{
    struct buf bytes = {0};
    if (rng_one_in(rng, 2)) {
        index_forget(b->index);
        return;
    }
    buf_put(&bytes, buf_str(&im->index));
    for (int k = 0; k < 20; k++)
        bytes.p[pick_index_byte(rng, &bytes)] ^= 1;
    write_index(b, buf_str(&bytes));
    buf_deinit(&bytes);
}

static void damaged_both(struct rng *rng)
{
    struct bench *b = bench_new(rng_next(rng));
    struct shown before;
    struct image im;
    b->keeps_all = true;
    work(b);
    for (int i = 0; i < LATE; i++)
        append(b, name_of(rng_below(rng, NAMES)), STR("<late>"));
    show(b, &before);
    bench_close(b);
    image_take(b, &im);
    for (int i = 0; i < FLIPS; i++) {
        image_put(b, &im);
        damage_file(b, rng, im.names[pick_file(b, &im, "segments/")].p);
        damage_index(b, rng, &im);
        CHECK(b, consult(b, true) == 0);
        CHECK(b, b->doctor.found > 0);
        uint64_t left = b->doctor.left;
        CHECK(b, consult(b, true) == 0);
        CHECK(b, b->doctor.left == left && !b->doctor.repaired);
        CHECK(b, bench_open(b));
        check_salvaged(b, &before);
        bench_close(b);
    }
    shown_free(&before);
    image_free(&im);
    bench_free(b);
}

static void test_damaged_index_and_segments(void **state)
{
    streams_lost = streams_kept = 0;
    seeds_run(SEEDS, damaged_both);
    print_message("both: %" PRIu64 " streams as before, %" PRIu64 " not\n", streams_kept,
                  streams_lost);
    if (seeds_env("TIDEMARK_SEED") == 0)
        assert_true(streams_kept > 2 * streams_lost);
}

/* ---- the journal ---- */

struct history {
    struct shown at[LATE + 1]; /* before each batch, and after the last */
    uint64_t first;            /* batch */
};

static void late_work(struct bench *b, struct history *h)
{
    char text[3000];
    show(b, &h->at[0]);
    for (int i = 0; i < LATE; i++) {
        size_t k;
        do {
            k = rng_below(&b->rng, NAMES);
        } while (append(b, name_of(k), make_event(b, text, sizeof text)) != 0);
        show(b, &h->at[i + 1]);
    }
}

static void history_free(struct history *h)
{
    for (int i = 0; i <= LATE; i++)
        shown_free(&h->at[i]);
}

struct batch_at {
    uint64_t number; /* 0: none */
    size_t start, end;
};

/* The batch that a byte of a file belongs to, whose padding counts for nothing. */
static struct batch_at batch_of(struct str file, size_t offset)
{
    struct journal_identity who;
    if (file.n < JOURNAL_FILE_HEAD || journal_head_read(file.p, &who) != 0)
        return (struct batch_at){0};
    for (size_t at = JOURNAL_FILE_HEAD; at + JOURNAL_BATCH_HEAD <= file.n;) {
        struct journal_batch_head h;
        if (!journal_batch_head_read(file.p + at, &who, &h)) {
            at += JOURNAL_SECTOR;
            continue;
        }
        size_t end = at + JOURNAL_BATCH_HEAD + (size_t)h.length;
        if (offset >= at && offset < end)
            return (struct batch_at){h.number, at, end};
        at += (size_t)journal_span(JOURNAL_BATCH_HEAD + h.length);
    }
    return (struct batch_at){0};
}

static uint64_t first_batch(struct bench *b)
{
    struct index_load nothing = {0};
    struct index_meta meta;
    struct index *i = index_open(b->index, false, b->why, sizeof b->why);
    assert_non_null(i);
    assert_int_equal(index_load(i, &nothing, &meta), 0);
    index_close(i);
    return meta.batch;
}

/* Everything before the damaged batch is there afterwards, and nothing behind it. */
static void check_journal(struct bench *b, const struct history *h, size_t kept)
{
    struct shown after;
    CHECK(b, consult(b, true) == 0);
    CHECK(b, b->doctor.left == 0);
    if (kept < LATE - 1) {
        CHECK(b, b->doctor.found > 0 && b->doctor.repaired);
        CHECK(b, says(&b->done, "acknowledged"));
        CHECK(b, says(&b->done, ".j.damaged"));
    } else if (kept == LATE - 1) { /* the last one cannot be told from one that was torn */
        CHECK(b, b->notes.n > 0 || b->doctor.found > 0);
    }
    assert_sound(b);
    CHECK(b, bench_open(b));
    show(b, &after);
    CHECK(b, is_same(&h->at[kept], &after, true));
    shown_free(&after);
    bench_close(b);
    assert_sound(b);
}

static void damaged_journal(struct rng *rng)
{
    struct bench *b = bench_new(rng_next(rng));
    struct history h;
    struct image im;
    b->keeps_all = true;
    work(b);
    late_work(b, &h);
    bench_close(b);
    h.first = first_batch(b);
    image_take(b, &im);
    for (int i = 0; i < 2 * FLIPS; i++) {
        image_put(b, &im);
        size_t file = pick_file(b, &im, "journal/"), at = 0;
        struct str content = buf_str(&im.contents[file]);
        struct batch_at hit = {0};
        for (int tries = 0; tries < 60 && hit.number < h.first; tries++) { /* zeros, mostly */
            at = rng_between(rng, JOURNAL_FILE_HEAD, content.n - 1);
            hit = batch_of(content, at);
        }
        simfs_flip(b->fs, im.names[file].p, at, (unsigned char)(1 << rng_below(rng, 8)));
        check_journal(b, &h, hit.number < h.first ? LATE : (size_t)(hit.number - h.first));
    }
    history_free(&h);
    image_free(&im);
    bench_free(b);
}

static void test_flips_in_the_journal(void **state)
{
    seeds_run(SEEDS, damaged_journal);
}

/* How many of the late batches are before those of this file that end behind `from`. */
static size_t batches_before(const struct history *h, struct str file, size_t from)
{
    size_t kept = LATE;
    for (size_t at = JOURNAL_FILE_HEAD; at < file.n; at += JOURNAL_SECTOR) {
        struct batch_at hit = batch_of(file, at);
        if (hit.number >= h->first && hit.end > from && hit.number - h->first < kept)
            kept = (size_t)(hit.number - h->first);
    }
    return kept;
}

static void damaged_journal_files(struct rng *rng)
{
    struct bench *b = bench_new(rng_next(rng));
    struct history h;
    struct image im;
    struct shown after;
    b->keeps_all = true;
    work(b);
    late_work(b, &h);
    bench_close(b);
    h.first = first_batch(b);
    image_take(b, &im);
    for (int i = 0; i < FLIPS; i++) {
        image_put(b, &im);
        size_t file = pick_file(b, &im, "journal/"), from = 0;
        struct str content = buf_str(&im.contents[file]);
        if (i % 2 == 0) {
            simfs_flip(b->fs, im.names[file].p, rng_below(rng, 56), 2);
        } else {
            from = rng_between(rng, 1, content.n - 1);
            simfs_put(b->fs, im.names[file].p, str_of(content.p, from));
        }
        size_t kept = batches_before(&h, content, from);
        CHECK(b, consult(b, true) == 0);
        CHECK(b, b->doctor.left == 0);
        CHECK(b, from > 0 || kept == LATE || says(&b->wrong, "its head is damaged"));
        assert_sound(b);
        CHECK(b, bench_open(b));
        show(b, &after);
        CHECK(b, is_same(&h.at[kept], &after, true));
        shown_free(&after);
        bench_close(b);
    }
    history_free(&h);
    image_free(&im);
    bench_free(b);
}

static void test_damaged_journal_files(void **state)
{
    seeds_run(SEEDS, damaged_journal_files);
}

/* ---- one thing at a time ---- */

/* Three checkpoints: 1 is the base and has "one" of a and of b; 2 has "two" of both; 3 has a
 * document alone. "three" of a is in the journal. */
static struct bench *three_checkpoints(struct shown *before)
{
    struct bench *b = bench_new(1);
    b->config.rest = (struct rest_limits)REST_LIMITS;
    b->config.rest.reserve_bytes = 1024;
    assert_true(bench_open(b));
    assert_int_equal(create(b, "s/a", NULL, 0), 0);
    assert_int_equal(create(b, "s/b", NULL, 0), 0);
    assert_int_equal(append(b, "s/a", STR("<one>")), 0);
    assert_int_equal(append(b, "s/b", STR("<eno>")), 0);
    checkpoint(b);
    assert_int_equal(append(b, "s/a", STR("<two>")), 0);
    assert_int_equal(append(b, "s/b", STR("<owt>")), 0);
    checkpoint(b);
    assert_int_equal(put_doc(b, STR("k"), STR("value"), 0), 0);
    checkpoint(b);
    assert_int_equal(append(b, "s/a", STR("<three>")), 0);
    show(b, before);
    bench_close(b);
    return b;
}

static void assert_shows(struct bench *b, const struct shown *expected)
{
    struct shown now;
    CHECK(b, bench_open(b));
    show(b, &now);
    CHECK(b, is_same(expected, &now, true));
    shown_free(&now);
}

static uint64_t find_text(struct bench *b, const char *file, const char *text)
{
    struct str content = simfs_content(b->fs, file);
    const char *at = memmem(content.p, content.n, text, strlen(text));
    assert_non_null(at);
    return (uint64_t)(at - content.p);
}

static void test_totals(void **state)
{
    struct shown before;
    struct bench *b = three_checkpoints(&before);
    assert_sound(b);
    assert_int_equal(b->doctor.streams, 2);
    assert_int_equal(b->doctor.events, 4);
    assert_int_equal(b->doctor.batches, 1);
    shown_free(&before);
    bench_free(b);
}

static void test_missing_index(void **state)
{
    struct shown before;
    struct bench *b = three_checkpoints(&before);
    index_forget(b->index);
    CHECK(b, consult(b, false) == 0);
    CHECK(b, b->doctor.found == 1 && says(&b->wrong, "index.mdb) is missing"));
    CHECK(b, access(b->index, F_OK) != 0); /* without a repair nothing is changed */
    CHECK(b, consult(b, true) == 0);
    CHECK(b, b->doctor.left == 0 && says(&b->done, "with 2 streams"));
    assert_sound(b);
    assert_shows(b, &before);
    shown_free(&before);
    bench_free(b);
}

/* The stream and its range are named; it is readable before and behind that, and all others are. */
static void test_damaged_block(void **state)
{
    struct shown before;
    struct bench *b = three_checkpoints(&before);
    simfs_flip(b->fs, "segments/00000001.s", find_text(b, "segments/00000001.s", "<one>"), 1);
    CHECK(b, consult(b, true) == 0);
    CHECK(b, b->doctor.found == 1 && b->doctor.left == 1 && !b->doctor.repaired);
    CHECK(b, says(&b->wrong, "stream s/a: its events from offset "
                             "0000000000000001_0000000000000000 up to "
                             "0000000000000001_0000000000000005 (1 of them) cannot be read"));
    CHECK(b, bench_open(b));
    struct buf got = {0};
    struct reading r = {.op = {.name = STR("s/a"),
                               .from = READ_AT,
                               .at = {1, 5},
                               .max_bytes = SIZE_MAX,
                               .done = on_read},
                        .out = &got,
                        .err = PENDING};
    store_read(b->store, &r.op);
    assert_int_equal(await(b, &r.err), 0);
    assert_true(str_eq(buf_str(&got), STR("<two><three>")));
    assert_int_equal(show_stream(b, "s/a", &got), ERR_CORRUPT);
    assert_int_equal(show_stream(b, "s/b", &got), 0);
    assert_true(str_eq(buf_str(&got), buf_str(&before.streams[1])));
    buf_deinit(&got);
    shown_free(&before);
    bench_free(b);
}

/* Each verifies where it was, and nowhere else. */
static void test_swapped_blocks(void **state)
{
    static const char file[] = "segments/00000001.s";
    struct shown before;
    struct bench *b = three_checkpoints(&before);
    enum { BLOCK = SEGMENT_BLOCK_HEAD + SEGMENT_MARK + 5 + SEGMENT_SUM };
    uint64_t one = find_text(b, file, "<one>") - SEGMENT_BLOCK_HEAD - SEGMENT_MARK;
    uint64_t two = find_text(b, file, "<eno>") - SEGMENT_BLOCK_HEAD - SEGMENT_MARK;
    struct buf bytes = {0};
    buf_put(&bytes, simfs_content(b->fs, file));
    memcpy(bytes.p + one, simfs_content(b->fs, file).p + two, BLOCK);
    memcpy(bytes.p + two, simfs_content(b->fs, file).p + one, BLOCK);
    simfs_put(b->fs, file, buf_str(&bytes));
    buf_deinit(&bytes);
    CHECK(b, consult(b, false) == 0);
    CHECK(b, says(&b->wrong, "stream s/a: its events from") &&
                 says(&b->wrong, "stream s/b: its events from"));
    shown_free(&before);
    bench_free(b);
}

/* It verifies, has the same number, and is not what the index tells of. */
static void test_segment_of_another_store(void **state)
{
    static const char file[] = "segments/00000001.s";
    struct shown before;
    struct bench *b = three_checkpoints(&before), *other = bench_new(2);
    assert_true(bench_open(other));
    assert_int_equal(create(other, "s/a", NULL, 0), 0);
    assert_int_equal(append(other, "s/a", STR("<")), 0);
    assert_int_equal(append(other, "s/a", STR("ne>")), 0);
    checkpoint(other);
    simfs_put(b->fs, file, simfs_content(other->fs, file));
    bench_free(other);
    CHECK(b, consult(b, false) == 0);
    CHECK(b, says(&b->wrong, "stream s/a: its events from") &&
                 says(&b->wrong, "there is another block than the index says"));
    shown_free(&before);
    bench_free(b);
}

static void test_missing_segment(void **state)
{
    struct shown before;
    struct bench *b = three_checkpoints(&before);
    assert_int_equal(segment_remove(simfs_vfs(b->fs), 2), 0);
    CHECK(b, consult(b, false) == 0);
    CHECK(b, says(&b->wrong, "segment 2 is missing, with 2 blocks"));
    CHECK(b, says(&b->wrong, "stream s/a: its events from offset "
                             "0000000000000001_0000000000000005 up to "
                             "0000000000000001_0000000000000010"));
    CHECK(b, says(&b->wrong, "stream s/b: its events from"));
    shown_free(&before);
    bench_free(b);
}

static void test_damaged_footer(void **state)
{
    static const char file[] = "segments/00000002.s";
    struct shown before;
    struct bench *b = three_checkpoints(&before);
    struct buf old = {0};
    buf_put(&old, simfs_content(b->fs, file));
    simfs_flip(b->fs, file, old.n - 1, 8);
    CHECK(b, consult(b, false) == 0);
    CHECK(b, b->doctor.found == 1 && says(&b->wrong, "nothing is lost"));
    CHECK(b, consult(b, true) == 0);
    CHECK(b, b->doctor.left == 0 && b->doctor.repaired);
    struct str kept = simfs_content(b->fs, "segments/00000002.s.damaged");
    assert_int_equal(kept.n, old.n);
    assert_sound(b);
    index_forget(b->index); /* and its notes are as good as ever */
    assert_shows(b, &before);
    buf_deinit(&old);
    shown_free(&before);
    bench_free(b);
}

/* A note that is lost is no harm while there is an index, and after the next checkpoint none at
 * all. */
static void test_damaged_note(void **state)
{
    static const char file[] = "segments/00000003.s";
    struct shown before, after;
    struct bench *b = three_checkpoints(&before);
    shown_free(&before);
    simfs_flip(b->fs, file, find_text(b, file, "value"), 1);
    CHECK(b, consult(b, true) == 0);
    CHECK(b, b->doctor.found == 1 && b->doctor.left == 1);
    CHECK(b, says(&b->wrong, "a note failed its checksum") && says(&b->done, "next checkpoint"));
    CHECK(b, bench_open(b));
    assert_int_equal(append(b, "s/b", STR("<four>")), 0);
    checkpoint(b);
    show(b, &after);
    bench_close(b);
    index_forget(b->index);
    assert_shows(b, &after);
    shown_free(&after);
    bench_free(b);
}

/* A row of the index and a note of another are damaged: each has what the other has not. */
static void test_damaged_row_and_note(void **state)
{
    static const char file[] = "segments/00000003.s";
    struct shown before;
    struct bench *b = three_checkpoints(&before);
    struct buf bytes = {0};
    read_index(b, &bytes);
    for (size_t i = 0; i + 4 < bytes.n; i++) /* in every page that has it */
        if (memcmp(bytes.p + i, "s/b\x0a", 4) == 0)
            bytes.p[i] ^= 1;
    write_index(b, buf_str(&bytes));
    buf_deinit(&bytes);
    simfs_flip(b->fs, file, find_text(b, file, "value"), 1);
    CHECK(b, consult(b, true) == 0);
    CHECK(b, says(&b->done, "sound rows"));
    CHECK(b, b->doctor.left == 1 && says(&b->wrong, "note"));
    assert_shows(b, &before);
    shown_free(&before);
    bench_free(b);
}

/* Without its index and its last checkpoint a store lives on the journal, as far as that goes. */
static void test_missing_index_and_last_segment(void **state)
{
    struct shown before;
    struct bench *b = three_checkpoints(&before);
    struct buf got = {0};
    struct image im;
    image_take(b, &im);
    for (int damaged = 0; damaged < 2; damaged++) {
        image_put(b, &im);
        index_forget(b->index);
        assert_int_equal(segment_remove(simfs_vfs(b->fs), 3), 0);
        if (damaged)
            simfs_flip(b->fs, "journal/00000001.j", find_text(b, "journal/00000001.j", "value"), 1);
        CHECK(b, consult(b, true) == 0);
        CHECK(b, b->doctor.left == 0 && says(&b->done, "acknowledged") == damaged);
        CHECK(b, bench_open(b));
        assert_int_equal(show_stream(b, "s/a", &got), 0);
        assert_true(
            str_starts(buf_str(&got), damaged ? STR("<one><two> ") : STR("<one><two><three> ")));
        assert_int_equal(show_stream(b, "s/b", &got), 0);
        assert_true(str_eq(buf_str(&got), buf_str(&before.streams[1])));
        bench_close(b);
    }
    buf_deinit(&got);
    image_free(&im);
    shown_free(&before);
    bench_free(b);
}

/* The power fails in the middle of a repair, at each of its steps; the next one ends it. */
static void check_cut(struct bench *b, const struct image *im, const char *file, uint64_t at,
                      const struct shown *expected)
{
    bool cut = true;
    for (uint64_t n = 1; cut; n++) {
        image_put(b, im);
        simfs_flip(b->fs, file, at, 1);
        simfs_cut_power_at(b->fs, n);
        consult(b, true);
        cut = simfs_is_off(b->fs);
        simfs_crash(b->fs, n);
        CHECK(b, consult(b, true) == 0);
        CHECK(b, b->doctor.left == 0);
        assert_shows(b, expected);
        bench_close(b);
        assert_sound(b);
        assert_true(n < 100);
    }
}

static void test_power_cut_in_a_repair(void **state)
{
    static const char segment[] = "segments/00000002.s", journal[] = "journal/00000001.j";
    struct shown before, early;
    struct bench *b = three_checkpoints(&before);
    struct image im;
    image_take(b, &im);
    check_cut(b, &im, segment, simfs_content(b->fs, segment).n - 1, &before);
    image_free(&im);

    image_put(b, &(struct image){0});
    bench_close(b);
    index_forget(b->index);
    assert_true(bench_open(b));
    assert_int_equal(create(b, "s/a", NULL, 0), 0);
    assert_int_equal(append(b, "s/a", STR("<one>")), 0);
    show(b, &early);
    assert_int_equal(append(b, "s/a", STR("<needle>")), 0);
    assert_int_equal(append(b, "s/a", STR("<three>")), 0);
    bench_close(b);
    image_take(b, &im);
    check_cut(b, &im, journal, find_text(b, journal, "needle"), &early);
    image_free(&im);
    shown_free(&before);
    shown_free(&early);
    bench_free(b);
}

/* A disk that cannot be read is told, and nothing is changed or lost. */
static void test_unreadable(void **state)
{
    static const enum simfs_op ops[] = {SIMFS_OPEN, SIMFS_READ, SIMFS_LIST};
    struct shown before;
    struct bench *b = three_checkpoints(&before);
    for (uint64_t i = 0; i < 60; i++) {
        simfs_fail(b->fs, ops[i % 3], i / 3 + 1, ERR_IO);
        uint64_t calls = simfs_calls(b->fs, ops[i % 3]);
        int err = consult(b, false);
        bool failed = simfs_calls(b->fs, ops[i % 3]) - calls >= i / 3 + 1;
        simfs_fail(b->fs, SIMFS_OPS, 0, 0);
        bool measuring = (i % 3 == 0 && i / 3 < 5) || (i % 3 == 2 && i / 3 < 2);
        CHECK(b, !failed || measuring || err != 0 || b->doctor.found > 0);
    }
    assert_sound(b);
    assert_shows(b, &before);
    shown_free(&before);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_sound_stores, seeds_teardown),
        cmocka_unit_test(test_index_that_is_behind),
        cmocka_unit_test_teardown(test_flips_in_the_index, seeds_teardown),
        cmocka_unit_test_teardown(test_damaged_segments, seeds_teardown),
        cmocka_unit_test_teardown(test_damaged_index_and_segments, seeds_teardown),
        cmocka_unit_test_teardown(test_flips_in_the_journal, seeds_teardown),
        cmocka_unit_test_teardown(test_damaged_journal_files, seeds_teardown),
        cmocka_unit_test(test_totals),
        cmocka_unit_test(test_missing_index),
        cmocka_unit_test(test_damaged_block),
        cmocka_unit_test(test_swapped_blocks),
        cmocka_unit_test(test_segment_of_another_store),
        cmocka_unit_test(test_missing_segment),
        cmocka_unit_test(test_damaged_footer),
        cmocka_unit_test(test_damaged_note),
        cmocka_unit_test(test_damaged_row_and_note),
        cmocka_unit_test(test_missing_index_and_last_segment),
        cmocka_unit_test(test_power_cut_in_a_repair),
        cmocka_unit_test(test_unreadable),
    };
    return cmocka_run_group_tests_name("fault/doctor", tests, NULL, NULL);
}
