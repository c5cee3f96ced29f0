// SPDX-License-Identifier: Apache-2.0
/* Families of forks on disk: what they cost, what a source keeps for its forks, how deep they may
 * go, and those that version 0.1 has made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/pack.h"
#include "store/doctor/doctor.h"
#include "store/embedded/embedded_core.h"
#include "store/embedded/record.h"
#include "unit/store/store_bench.h"

#define CHAIN 1500
#define WIDE  400
#define BIG   70000 /* bytes: a chunk, and so a block, of its own */

static struct bench *begin(void)
{
    struct bench *b = bench_new(1);
    assert_true(bench_open(b));
    return b;
}

static void die(struct bench *b)
{
    simfs_cut_power_at(b->fs, 1);
    create(b, "lost", NULL);
    bench_close(b);
    simfs_kill(b->fs);
}

static const char *numbered(int i)
{
    static char names[2][16];
    snprintf(names[i % 2], sizeof names[0], "%d", i);
    return names[i % 2];
}

static int fork_at(struct bench *b, const char *name, const char *of, uint64_t pos,
                   struct retain retain)
{
    struct stream *source = map_get(&embedded_of(b->store)->catalog.streams, str_of_cstr(of));
    struct stream_config config = {.ttl_s = STORE_TTL_NONE,
                                   .expires_ms = STORE_TTL_NONE,
                                   .retain = retain,
                                   .fork_of = str_of_cstr(of),
                                   .fork_at = {source->life, pos}};
    return write_op(b, (struct store_write){.name = str_of_cstr(name), .create = &config});
}

static void append_big(struct bench *b, const char *name, char c)
{
    static char bytes[BIG];
    memset(bytes, c, sizeof bytes);
    assert_int_equal(append(b, name, str_of(bytes, sizeof bytes)), 0);
}

/* As so many letters for so many blocks. */
static void assert_blocks(struct bench *b, const char *name, const char *letters)
{
    struct buf shown = {0};
    show_stream(b, name, &shown);
    size_t n = strlen(letters);
    assert_true(shown.n > n * BIG && shown.p[n * BIG] == '\n');
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < BIG; k++)
            if (shown.p[i * BIG + k] != letters[i])
                fail_msg("%s: byte %zu of block %zu", name, k, i);
    buf_deinit(&shown);
}

/* ---- what is in the index ---- */

struct counts {
    uint64_t streams, row_bytes, blocks;
};

static int count_stream(void *ctx, uint64_t life, struct str row)
{
    struct counts *c = ctx;
    c->streams++;
    c->row_bytes += row.n;
    return 0;
}

static int count_block(void *ctx, uint64_t life, const struct block_info *b)
{
    ((struct counts *)ctx)->blocks++;
    return 0;
}

static struct counts counts_of(struct bench *b)
{
    struct counts c = {0};
    struct index_load load = {.ctx = &c, .stream = count_stream, .block = count_block};
    struct index_meta meta;
    assert_int_equal(index_load(embedded_of(b->store)->index, &load, &meta), 0);
    return c;
}

/* ---- what it costs ---- */

static void make_chain(struct bench *b)
{
    b->store->fork_depth = UINT32_MAX;
    assert_int_equal(create(b, "0", NULL), 0);
    for (int i = 0; i < CHAIN; i++) {
        if (i > 0)
            assert_int_equal(create(b, numbered(i), numbered(i - 1)), 0);
        assert_int_equal(append(b, numbered(i), STR("x")), 0);
    }
}

static void assert_chain(struct bench *b)
{
    struct buf shown = {0};
    struct counts c = counts_of(b);
    assert_int_equal(c.streams, CHAIN);
    assert_int_equal(c.blocks, CHAIN);
    assert_true(c.row_bytes < CHAIN * 200);
    show_stream(b, numbered(CHAIN - 1), &shown);
    assert_int_equal(strspn(shown.p, "x"), CHAIN);
    buf_deinit(&shown);
}

/* Each fork of a chain costs the same: as many rows as there are blocks, however deep it is. */
static void test_chain(void **state)
{
    struct bench *b = begin();
    make_chain(b);
    checkpoint(b);
    pass_turns(b, 200);
    assert_chain(b);
    die(b);
    assert_true(bench_open(b));
    assert_chain(b);
    bench_free(b);
}

/* ... also if the server dies before it has come to rest, as one did that could not hold it. */
static void test_chain_in_the_journal(void **state)
{
    struct bench *b = begin();
    make_chain(b);
    die(b);
    assert_true(bench_open(b));
    assert_chain(b);
    assert_int_equal(remove_stream(b, numbered(CHAIN - 1)), 0);
    bench_free(b);
}

/* Forks of one stream have no rows for what they share, in memory or at rest, and each its own. */
static void test_wide(void **state)
{
    struct bench *b = begin();
    assert_int_equal(create(b, "s", NULL), 0);
    for (char c = 'a'; c <= 'e'; c++)
        append_big(b, "s", c);
    for (int i = 0; i < WIDE; i++)
        assert_int_equal(create(b, numbered(i), i % 2 == 0 ? "s" : numbered(i - 1)), 0);
    checkpoint(b);
    assert_int_equal(counts_of(b).blocks, 5);
    append_big(b, numbered(7), 'x');
    append_big(b, "s", 'y');
    assert_int_equal(remove_stream(b, "s"), 0);
    checkpoint(b);
    assert_int_equal(counts_of(b).blocks, 6);
    assert_blocks(b, numbered(7), "abcdex");
    assert_blocks(b, numbered(8), "abcde");
    for (int i = 0; i < WIDE; i++)
        assert_int_equal(remove_stream(b, numbered(i)), 0);
    checkpoint(b);
    assert_int_equal(counts_of(b).blocks, 0);
    assert_int_equal(counts_of(b).streams, 0);
    assert_int_equal(create(b, "s", NULL), 0);
    bench_free(b);
}

/* ---- what a source keeps ---- */

static void test_deleted_source(void **state)
{
    static const struct retain none;
    struct bench *b = begin();
    assert_int_equal(create(b, "s", NULL), 0);
    for (char c = 'a'; c <= 'j'; c++)
        append_big(b, "s", c);
    checkpoint(b);
    assert_int_equal(fork_at(b, "three", "s", 3 * BIG, none), 0);
    assert_int_equal(fork_at(b, "seven", "s", 7 * BIG, none), 0);
    assert_int_equal(remove_stream(b, "s"), 0);
    checkpoint(b);
    assert_int_equal(counts_of(b).blocks, 7);
    assert_blocks(b, "seven", "abcdefg");
    assert_int_equal(remove_stream(b, "seven"), 0);
    checkpoint(b);
    assert_int_equal(counts_of(b).blocks, 3);
    die(b);
    assert_true(bench_open(b));
    assert_blocks(b, "three", "abc");
    assert_int_equal(append(b, "s", STR("x")), ERR_DELETED);
    assert_int_equal(remove_stream(b, "three"), 0);
    checkpoint(b);
    assert_int_equal(counts_of(b).streams, 0);
    assert_int_equal(counts_of(b).blocks, 0);
    bench_free(b);
}

/* A source that is trimmed keeps what its forks have, and lets it go when they do. */
static void trim_source(bool rested)
{
    static const struct retain most = {.bytes = 100 * BIG};
    struct stream_config config = {.content_type = STR("text/plain"),
                                   .ttl_s = STORE_TTL_NONE,
                                   .expires_ms = STORE_TTL_NONE,
                                   .retain = {.bytes = 2 * BIG}};
    struct bench *b = begin();
    assert_int_equal(write_op(b, (struct store_write){.name = STR("s"), .create = &config}), 0);
    append_big(b, "s", 'a');
    append_big(b, "s", 'b');
    assert_int_equal(fork_at(b, "f", "s", 2 * BIG, most), 0);
    assert_int_equal(fork_at(b, "g", "f", BIG, most), 0);
    if (rested)
        checkpoint(b);
    for (char c = 'c'; c <= 'f'; c++)
        append_big(b, "s", c);
    pass_turns(b, 100);
    assert_blocks(b, "s", "ef");
    assert_blocks(b, "f", "ab");
    checkpoint(b);
    assert_blocks(b, "s", "ef");
    assert_blocks(b, "f", "ab");
    assert_blocks(b, "g", "a");
    assert_int_equal(remove_stream(b, "f"), 0);
    checkpoint(b);
    assert_blocks(b, "g", "a");
    die(b);
    assert_true(bench_open(b));
    assert_blocks(b, "g", "a");
    assert_int_equal(remove_stream(b, "g"), 0);
    checkpoint(b);
    assert_int_equal(counts_of(b).blocks, 2);
    assert_blocks(b, "s", "ef");
    bench_free(b);
}

static void test_trimmed_source(void **state)
{
    trim_source(false);
    trim_source(true);
}

/* Damage has taken the row of the only fork of a fork, both of whose sources are deleted. */
static void test_deleted_and_kept_by_nobody(void **state)
{
    static const struct retain none;
    struct bench *b = begin();
    struct index_write *w;
    assert_int_equal(create(b, "s", NULL), 0);
    append_big(b, "s", 'a');
    assert_int_equal(create(b, "f", "s"), 0);
    append_big(b, "f", 'b');
    assert_int_equal(fork_at(b, "g", "f", 2 * BIG, none), 0);
    assert_int_equal(remove_stream(b, "s"), 0);
    assert_int_equal(remove_stream(b, "f"), 0);
    checkpoint(b);
    assert_int_equal(counts_of(b).blocks, 2);
    struct stream *g = map_get(&embedded_of(b->store)->catalog.streams, STR("g"));
    uint64_t life = g->life;
    bench_close(b);
    struct index *i = index_open(b->index, false, b->why, sizeof b->why);
    assert_non_null(i);
    assert_int_equal(index_begin(i, &w), 0);
    assert_int_equal(index_remove_stream(w, life), 0);
    assert_int_equal(index_commit(w), 0);
    index_close(i);
    assert_true(bench_open(b));
    checkpoint(b);
    assert_int_equal(counts_of(b).streams, 0);
    assert_int_equal(counts_of(b).blocks, 0);
    assert_int_equal(create(b, "f", NULL), 0);
    assert_int_equal(create(b, "s", NULL), 0);
    bench_free(b);
}

/* ---- how deep ---- */

static void test_depth_is_bounded(void **state)
{
    struct bench *b = begin();
    b->store->fork_depth = 2;
    assert_int_equal(create(b, "0", NULL), 0);
    assert_int_equal(create(b, "1", "0"), 0);
    assert_int_equal(create(b, "2", "1"), 0);
    assert_int_equal(create(b, "3", "2"), ERR_FORK_DEPTH);
    assert_int_equal(create(b, "3", "1"), 0);
    assert_int_equal(create(b, "2", "1"), 0); /* the same again */
    checkpoint(b);
    bench_close(b);
    assert_true(bench_open(b));
    b->store->fork_depth = 2;
    assert_int_equal(create(b, "4", "2"), ERR_FORK_DEPTH);
    assert_int_equal(remove_stream(b, "0"), 0); /* it is still what the others were forked from */
    assert_int_equal(create(b, "4", "2"), ERR_FORK_DEPTH);
    b->store->fork_depth = 0;
    assert_int_equal(create(b, "4", "3"), ERR_FORK_DEPTH);
    bench_free(b);
}

/* ---- as version 0.1 left them ---- */

struct old_fork {
    uint64_t life, source, at;
};

struct old_index {
    struct buf forks; /* of struct old_fork */
    struct buf rows;  /* of those, one behind the other: life, length, bytes */
};

/* The row in its older form: all lives that it was forked from stand in it. */
static int note_fork(void *ctx, uint64_t life, struct str bytes)
{
    struct old_index *old = ctx;
    struct row row;
    struct buf made = {0};
    assert_int_equal(row_take(bytes, &row), 0);
    if (row.source_life == 0)
        return 0;
    struct old_fork fork = {life, row.source_life, row.fork_at};
    size_t ours = 0, theirs = 0; /* where the rows part: config, fork point, ordinal, whole */
    struct buf end = {0};
    pack_u64(&end, row.fork_at);
    pack_u64(&end, row.fork_events);
    pack_u64(&end, row.whole);
    pack_u64(&end, row.deleted);
    theirs = bytes.n - end.n;
    pack_u64(&made, 1);
    ours = made.n;
    buf_put(&made, str_of(bytes.p + ours, theirs - ours));
    size_t n = old->forks.n / sizeof fork, depth = 0;
    const struct old_fork *all = (const struct old_fork *)(const void *)old->forks.p;
    uint64_t lives[64], upto[64];
    for (struct old_fork at = fork; depth < 64;) {
        lives[depth] = at.source;
        upto[depth] = depth > 0 && upto[depth - 1] < at.at ? upto[depth - 1] : at.at;
        depth++;
        size_t i = 0;
        while (i < n && all[i].life != at.source)
            i++;
        if (i == n)
            break;
        at = all[i];
    }
    pack_u64(&made, depth);
    while (depth-- > 0) {
        pack_u64(&made, lives[depth]);
        pack_u64(&made, upto[depth]);
    }
    pack_u64(&made, row.deleted);
    buf_put(&old->forks, str_of((const char *)&fork, sizeof fork));
    uint64_t head[2] = {life, made.n};
    buf_put(&old->rows, str_of((const char *)head, sizeof head));
    buf_put(&old->rows, buf_str(&made));
    buf_deinit(&made);
    buf_deinit(&end);
    return 0;
}

/* Rows and copies as they were; those of deleted streams are gone with them. */
static void make_old(struct bench *b)
{
    struct old_index old = {0};
    struct index_load load = {.ctx = &old, .stream = note_fork};
    struct index_meta meta;
    struct index_write *w;
    struct index *i = index_open(b->index, false, b->why, sizeof b->why);
    assert_non_null(i);
    assert_int_equal(index_load(i, &load, &meta), 0);
    assert_int_equal(index_begin(i, &w), 0);
    const struct old_fork *forks = (const struct old_fork *)(const void *)old.forks.p;
    for (size_t k = 0; k < old.forks.n / sizeof *forks; k++)
        assert_int_equal(index_copy_blocks(w, forks[k].source, forks[k].life, forks[k].at), 0);
    for (size_t at = 0; at < old.rows.n;) {
        uint64_t head[2];
        memcpy(head, old.rows.p + at, sizeof head);
        at += sizeof head;
        assert_int_equal(index_put_stream(w, head[0], str_of(old.rows.p + at, head[1])), 0);
        at += head[1];
    }
    meta.base = meta.base_bytes = meta.note_bytes = 0; /* the notes know nothing of it */
    assert_int_equal(index_put_meta(w, &meta), 0);
    assert_int_equal(index_commit(w), 0);
    index_close(i);
    buf_deinit(&old.forks);
    buf_deinit(&old.rows);
}

static void hear(void *ctx, enum doctor_tone tone, const char *sentence)
{
    buf_printf(ctx, "%d %s\n", tone, sentence);
}

static void consult(struct bench *b, bool repair, const char *says)
{
    struct buf said = {0};
    struct doctor d = {.vfs = simfs_vfs(b->fs),
                       .index_path = b->index,
                       .repair = repair,
                       .ctx = &said,
                       .say = hear};
    assert_int_equal(doctor_run(&d, b->why, sizeof b->why), 0);
    assert_int_equal(d.found, 0);
    buf_putc(&said, '\0');
    if (says == NULL ? said.n > 1 : strstr(said.p, says) == NULL)
        fail_msg("it said: %s", said.p);
    buf_deinit(&said);
}

static struct buf shown(struct bench *b)
{
    struct buf out = {0};
    show_all(b, &out);
    return out;
}

static void assert_shown(struct bench *b, const struct buf *before)
{
    struct buf now = shown(b);
    if (!str_eq(buf_str(&now), buf_str(before)))
        fail_msg("was\n%.*s\nand is\n%.*s", (int)before->n, before->p, (int)now.n, now.p);
    buf_deinit(&now);
}

/* a, its fork b, that one's c and d, each with events of its own; e branches off in the middle. */
static struct bench *begin_old(void)
{
    static const struct retain none;
    struct bench *b = begin();
    assert_int_equal(create(b, "a", NULL), 0);
    assert_int_equal(append(b, "a", STR("aa")), 0);
    for (size_t i = 1; i < 4; i++) {
        assert_int_equal(create(b, name_of(i), name_of(i - 1)), 0);
        assert_int_equal(append(b, name_of(i), str_of_cstr(name_of(i))), 0);
        assert_int_equal(append(b, name_of(i), str_of_cstr(name_of(i))), 0);
        checkpoint(b);
    }
    assert_int_equal(fork_at(b, "e", "d", 3, none), 0);
    checkpoint(b);
    bench_close(b);
    make_old(b);
    return b;
}

/* They are read, forked, trimmed and removed as any; what they have copies of nobody keeps for
 * them. */
static void test_old_forks(void **state)
{
    struct bench *b = begin_old();
    assert_true(bench_open(b));
    struct counts c = counts_of(b);
    assert_int_equal(c.blocks, 1 + 2 + 3 + 4 + 2);
    assert_shows(b, "d", "aabbccdd\n");
    assert_shows(b, "e", "aab\n");
    assert_int_equal(create(b, "f", "d"), 0);
    assert_int_equal(append(b, "f", STR("f")), 0);
    assert_int_equal(remove_stream(b, "c"), 0);
    assert_int_equal(remove_stream(b, "a"), 0);
    checkpoint(b);
    assert_shows(b, "d", "aabbccdd\n");
    assert_shows(b, "f", "aabbccddf\n");
    assert_int_equal(remove_stream(b, "d"), 0);
    checkpoint(b);
    die(b);
    assert_true(bench_open(b));
    assert_shows(b, "b", "aabb\n");
    assert_shows(b, "e", "aab\n");
    assert_shows(b, "f", "aabbccddf\n");
    struct buf before = shown(b);
    bench_close(b);
    consult(b, false, "are copies of their sources'");
    index_forget(b->index); /* made again from the notes of both versions */
    assert_true(bench_open(b));
    assert_shown(b, &before);
    buf_deinit(&before);
    bench_free(b);
}

static void test_doctor_lets_them_share(void **state)
{
    struct bench *b = begin_old();
    assert_true(bench_open(b));
    struct buf before = shown(b);
    bench_close(b);
    consult(b, false, "8 rows of the index that are copies of their sources'");
    consult(b, true, "4 forks share their past");
    consult(b, true, NULL);
    assert_true(bench_open(b));
    assert_int_equal(counts_of(b).blocks, 4);
    assert_shown(b, &before);
    assert_int_equal(remove_stream(b, "b"), 0);
    checkpoint(b);
    assert_shows(b, "d", "aabbccdd\n");
    assert_shows(b, "e", "aab\n");
    bench_close(b);
    index_forget(b->index); /* what it told is in the notes since */
    assert_true(bench_open(b));
    assert_int_equal(counts_of(b).blocks, 4);
    assert_shows(b, "d", "aabbccdd\n");
    assert_shows(b, "e", "aab\n");
    buf_deinit(&before);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_chain_in_the_journal),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_deleted_source),
        cmocka_unit_test(test_trimmed_source),
        cmocka_unit_test(test_deleted_and_kept_by_nobody),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_old_forks),
        cmocka_unit_test(test_doctor_lets_them_share),
    };
    return cmocka_run_group_tests_name("unit/family", tests, NULL, NULL);
}
