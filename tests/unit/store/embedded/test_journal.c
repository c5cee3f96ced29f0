// SPDX-License-Identifier: Apache-2.0
/* The journal on a simulated disk, with lanes and a clock that the test drives. */
#include "base/block.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/sched.h"
#include "fault/simfs.h"
#include "fault/simlane.h"
#include "store/embedded/journal.h"
#include "store/embedded/journal_format.h"
#include "store/embedded/vfs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <xxhash.h>

#define FILE_BYTES  JOURNAL_FILE_MIN
#define INTERVAL_MS 1000

struct world {
    struct simfs *fs;
    struct sched sched;
    struct lane *writer, *preparer;
    struct journal *journal;
    struct journal_config config;
    int start_err;
    bool started, stopped;
    struct buf told;     /* what waiters were told: `1`, or `1!` with an error */
    struct buf replayed; /* `batch:record ` each */
    struct journal_scan scan;
};

static void turn(struct world *w)
{
    sched_turn(&w->sched, w->sched.now_ms + SCHED_TICK_MS, 0);
}

static void sleep_ms(struct world *w, uint64_t ms)
{
    for (uint64_t end = w->sched.now_ms + ms; w->sched.now_ms < end;)
        turn(w);
}

static void started(void *ctx, int err)
{
    struct world *w = ctx;
    assert_false(w->started);
    w->started = true;
    w->start_err = err;
}

static void stopped(void *ctx)
{
    struct world *w = ctx;
    assert_false(w->stopped);
    w->stopped = true;
}

static int note_record(void *ctx, uint64_t batch, struct str bytes)
{
    struct world *w = ctx;
    size_t n = bytes.n < 8 ? bytes.n : 8;
    buf_printf(&w->replayed, "%llu:%.*s ", (unsigned long long)batch, (int)n, bytes.p);
    return 0;
}

static int scan(struct world *w, uint64_t from)
{
    w->replayed.n = 0;
    w->scan = (struct journal_scan){.from = from, .ctx = w, .record = note_record};
    int err = journal_scan(simfs_vfs(w->fs), &w->scan);
    buf_putc(&w->replayed, '\0');
    return err;
}

static void open_journal(struct world *w, uint64_t next, uint64_t next_file)
{
    w->started = w->stopped = false;
    w->journal = journal_new(simfs_vfs(w->fs), &w->sched, w->writer, w->preparer, &w->config, next,
                             next_file);
    journal_start(w->journal, started, w);
}

static void start(struct world *w)
{
    open_journal(w, 1, 1);
    turn(w);
    assert_true(w->started);
    assert_int_equal(w->start_err, 0);
}

static void stop(struct world *w)
{
    journal_stop(w->journal, stopped, w);
    for (int i = 0; i < 100 && !w->stopped; i++)
        turn(w);
    assert_true(w->stopped);
    journal_free(w->journal);
    w->journal = NULL;
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->fs = simfs_new(1);
    w->config = (struct journal_config){.file_bytes = FILE_BYTES, .sync_interval_ms = INTERVAL_MS};
    sched_init(&w->sched, 0, 0);
    w->writer = simlane_new(&w->sched, 1, 0);
    w->preparer = simlane_new(&w->sched, 1, 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    if (w->journal != NULL)
        stop(w);
    lane_free(w->writer);
    lane_free(w->preparer);
    simfs_free(w->fs);
    buf_deinit(&w->told);
    buf_deinit(&w->replayed);
    free(w);
    return 0;
}

/* -- waiters ---------------------------------------------------------------------------------- */

struct client {
    struct journal_waiter waiter;
    struct world *world;
    char name;
};

static void told(struct journal_waiter *waiter, int err)
{
    struct client *c = container_of(waiter, struct client, waiter);
    buf_putc(&c->world->told, c->name);
    if (err != 0) {
        assert_int_equal(err, ERR_IO);
        buf_putc(&c->world->told, '!');
    }
    free(c);
}

static struct journal_waiter *client(struct world *w, char name)
{
    struct client *c = calloc(1, sizeof *c);
    *c = (struct client){{.done = told}, w, name};
    return &c->waiter;
}

static void assert_told(struct world *w, const char *expected)
{
    buf_putc(&w->told, '\0');
    assert_string_equal(w->told.p, expected);
    w->told.n = 0;
}

/* One byte, told under the same name. */
static uint64_t put(struct world *w, char name)
{
    assert_int_equal(journal_room(w->journal, 1), 0);
    return journal_put(w->journal, str_of(&name, 1), client(w, name));
}

/* n bytes, of which the first tell the number. */
static void put_sized(struct world *w, unsigned number, size_t n)
{
    char *bytes = calloc(1, n + 16);
    snprintf(bytes, n + 16, "%08u", number);
    assert_int_equal(journal_room(w->journal, n), 0);
    journal_put(w->journal, str_of(bytes, n), NULL);
    free(bytes);
}

static uint64_t calls(struct world *w, enum simfs_op op)
{
    return simfs_calls(w->fs, op);
}

static struct str file_content(struct world *w, unsigned n)
{
    char name[JOURNAL_NAME_MAX];
    journal_name(n, name);
    return simfs_content(w->fs, name);
}

static unsigned count_files(struct world *w)
{
    unsigned n = 0;
    for (unsigned i = 1; i < 200; i++)
        n += file_content(w, i).p != NULL;
    return n;
}

/* -- group commit ------------------------------------------------------------------------------ */

static void test_first_file_is_safe_before_it_is_used(void **state)
{
    struct world *w = *state;
    start(w);
    assert_false(simfs_has_unsynced(w->fs));
    assert_int_equal(simfs_content(w->fs, "journal/00000001.j").n, FILE_BYTES);
    assert_int_equal(journal_file_bytes(w->journal), FILE_BYTES);
}

static void test_one_sync_for_many(void **state)
{
    struct world *w = *state;
    start(w);
    put(w, '0');
    turn(w); /* the first of a file has the next file prepared */
    assert_told(w, "0");
    uint64_t writes = calls(w, SIMFS_WRITE), syncs = calls(w, SIMFS_SYNC);
    for (char c = 'a'; c <= 'z'; c++)
        assert_int_equal(put(w, c), 2);
    assert_int_equal(journal_durable(w->journal), 1);
    assert_int_equal(w->told.n, 0);
    turn(w);
    assert_told(w, "abcdefghijklmnopqrstuvwxyz");
    assert_int_equal(calls(w, SIMFS_WRITE) - writes, 1);
    assert_int_equal(calls(w, SIMFS_SYNC) - syncs, 1);
    assert_int_equal(journal_durable(w->journal), 2);
    assert_false(simfs_has_unsynced(w->fs));
}

static void test_next_batch_fills_meanwhile(void **state)
{
    struct world *w = *state;
    start(w);
    simlane_hold(w->writer, true);
    assert_int_equal(put(w, 'a'), 1);
    turn(w);
    turn(w);
    assert_int_equal(put(w, 'b'), 2);
    turn(w);
    assert_int_equal(put(w, 'c'), 2);
    journal_wait(w->journal, 1, client(w, 'x'));
    journal_wait(w->journal, 2, client(w, 'y'));
    turn(w);
    assert_int_equal(w->told.n, 0);
    assert_int_equal(journal_durable(w->journal), 0);
    uint64_t syncs = calls(w, SIMFS_SYNC);
    simlane_hold(w->writer, false);
    turn(w);
    assert_told(w, "axbcy");
    assert_int_equal(calls(w, SIMFS_SYNC) - syncs, 2);
    journal_wait(w->journal, 1, client(w, 'z'));
    assert_int_equal(w->told.n, 0); /* never from within the call */
    turn(w);
    assert_told(w, "z");
    assert_int_equal(scan(w, 1), 0);
    assert_string_equal(w->replayed.p, "1:a 2:b 2:c ");
    assert_int_equal(w->scan.next, 3);
    assert_false(w->scan.torn);
}

/* Bytes that are not copied but lie in a block: the same record, alone or behind others. */
static void test_a_block_within_a_record(void **state)
{
    struct world *w = *state;
    start(w);
    for (unsigned before = 0; before < 2; before++) {
        struct block *b = block_of(STR("BLOCK"));
        if (before > 0)
            put(w, 'x');
        assert_int_equal(journal_room(w->journal, 8), 0);
        uint64_t batch = journal_put_around(w->journal, STR("abc"), 1, b);
        assert_int_equal(b->refs, 2);
        uint64_t next = put(w, 'y'); /* not behind it */
        assert_int_equal(next, batch + 1);
        turn(w);
        assert_int_equal(journal_durable(w->journal), next);
        assert_int_equal(b->refs, 1);
        block_unref(b);
    }
    assert_int_equal(scan(w, 1), 0);
    assert_string_equal(w->replayed.p, "1:aBLOCKbc 2:y 3:x 3:aBLOCKbc 4:y ");
    /* one that is lost lets go of it, too */
    struct block *b = block_of(STR("lost"));
    simlane_hold(w->writer, true);
    put(w, 'a');
    journal_put_around(w->journal, STR("z"), 1, b);
    simfs_fail(w->fs, SIMFS_WRITE, 1, ERR_IO);
    simlane_hold(w->writer, false);
    turn(w);
    assert_int_equal(journal_error(w->journal), ERR_IO);
    assert_int_equal(b->refs, 1);
    block_unref(b);
    w->told.n = 0;
}

struct chain {
    struct journal_waiter waiter;
    struct world *world;
    int left;
};

static void put_again(struct journal_waiter *waiter, int err)
{
    struct chain *c = container_of(waiter, struct chain, waiter);
    assert_int_equal(err, 0);
    if (--c->left > 0)
        journal_put(c->world->journal, STR("again"), waiter);
}

static void test_putting_from_done(void **state)
{
    struct world *w = *state;
    struct chain c = {{.done = put_again}, w, 5};
    start(w);
    journal_put(w->journal, STR("first"), &c.waiter);
    turn(w);
    assert_int_equal(c.left, 0);
    assert_int_equal(journal_durable(w->journal), 5);
}

static void test_cut(void **state)
{
    struct world *w = *state;
    start(w);
    assert_int_equal(journal_cut(w->journal), 1);
    put(w, 'a');
    assert_int_equal(journal_cut(w->journal), 2);
    assert_int_equal(journal_cut(w->journal), 2); /* nothing came between */
    assert_int_equal(put(w, 'b'), 2);
    turn(w);
    assert_told(w, "ab");
    uint64_t all = journal_bytes(w->journal);
    journal_release(w->journal, 2);
    assert_int_equal(journal_bytes(w->journal), all / 2);
    journal_release(w->journal, journal_cut(w->journal));
    assert_int_equal(journal_bytes(w->journal), 0);
    assert_int_equal(scan(w, 2), 0);
    assert_string_equal(w->replayed.p, "2:b ");
}

/* -- files ------------------------------------------------------------------------------------- */

static void assert_replays(struct world *w, uint64_t from, unsigned first, unsigned end)
{
    assert_int_equal(scan(w, from), 0);
    assert_int_equal(w->scan.records, end - first);
    const char *at = w->replayed.p;
    for (unsigned i = first; i < end; i++) {
        char text[16];
        snprintf(text, sizeof text, ":%08u ", i);
        at = strstr(at, text); /* in this order */
        assert_non_null(at);
    }
}

static void test_batches_move_on_to_the_next_file(void **state)
{
    struct world *w = *state;
    start(w);
    for (unsigned i = 0; i < 100; i++) {
        put_sized(w, i, 1000);
        turn(w);
    }
    assert_int_equal(journal_durable(w->journal), 100);
    assert_true(count_files(w) > 5);
    assert_int_equal(journal_file_bytes(w->journal), count_files(w) * (uint64_t)FILE_BYTES);
    assert_replays(w, 1, 0, 100);
    assert_int_equal(w->scan.next, 101);
    assert_int_equal(w->scan.next_file, count_files(w) + 1);
    assert_replays(w, 51, 50, 100);
}

/* Checkpoints after every few records: the same files go round, and what an earlier life left
 * behind the tail is never taken for more. */
static void test_files_are_used_again(void **state)
{
    struct world *w = *state;
    uint64_t from = 1;
    unsigned first = 0;
    start(w);
    for (unsigned i = 0; i < 300; i++) {
        put_sized(w, i, 8 + (i * 37) % 1500);
        turn(w);
        if (i % 11 == 10) {
            from = journal_cut(w->journal);
            first = i + 1;
            journal_release(w->journal, from);
            turn(w);
        }
        assert_replays(w, from, first, i + 1);
        assert_true(count_files(w) <= 4);
    }
    assert_true(calls(w, SIMFS_CREATE) <= 5);
    assert_true(w->scan.next_file > 10); /* ids, unlike names, are new each time */
}

static void test_stale_batches_are_there_and_left_alone(void **state)
{
    struct world *w = *state;
    start(w);
    for (unsigned i = 0; i < 60; i++) {
        put_sized(w, i, 1000);
        turn(w);
    }
    uint64_t from = journal_cut(w->journal);
    journal_release(w->journal, from);
    turn(w);
    for (unsigned i = 60; i < 80; i++) {
        put_sized(w, i, 1000);
        turn(w);
    }
    assert_replays(w, from, 60, 80);
    assert_replays(w, 0, 60 - (unsigned)(w->scan.records - 20), 80);
    /* The last record's sector boundary, then the head of a batch with other sums. */
    unsigned stale = 0;
    for (unsigned n = 1; n < 10; n++) {
        char name[JOURNAL_NAME_MAX];
        struct journal_identity who;
        struct journal_batch_head head;
        journal_name(n, name);
        struct str bytes = simfs_content(w->fs, name);
        if (bytes.p == NULL || journal_head_read(bytes.p, &who) != 0)
            continue;
        for (size_t at = JOURNAL_FILE_HEAD; at < bytes.n; at += JOURNAL_SECTOR)
            stale += memcmp(bytes.p + at, "tmb\n", 4) == 0 &&
                     !journal_batch_head_read(bytes.p + at, &who, &head);
    }
    assert_true(stale > 0);
}

static void test_large_record(void **state)
{
    struct world *w = *state;
    size_t large = 10 * FILE_BYTES;
    start(w);
    put_sized(w, 0, 100);
    assert_int_equal(journal_room(w->journal, large), ERR_BUSY);
    turn(w);
    put_sized(w, 1, large);
    turn(w);
    put_sized(w, 2, 100);
    turn(w);
    for (unsigned i = 3; i < 40; i++) {
        put_sized(w, i, 1000);
        turn(w);
    }
    assert_replays(w, 1, 0, 40);
    assert_true(journal_file_bytes(w->journal) > large);
    journal_release(w->journal, journal_cut(w->journal));
    turn(w);
    assert_true(journal_file_bytes(w->journal) < large); /* that one is not kept */
    assert_int_equal(journal_room(w->journal, JOURNAL_RECORD_MAX + 1), ERR_TOO_LARGE);
}

static void test_largest_that_fits_an_ordinary_file(void **state)
{
    struct world *w = *state;
    size_t most = FILE_BYTES - JOURNAL_FILE_HEAD - JOURNAL_BATCH_HEAD - JOURNAL_RECORD_HEAD;
    start(w);
    put_sized(w, 0, most);
    turn(w);
    put_sized(w, 1, most);
    turn(w);
    assert_int_equal(journal_room(w->journal, most + 1), ERR_BUSY);
    put_sized(w, 2, most);
    turn(w);
    assert_replays(w, 1, 0, 3);
    assert_int_equal(simfs_content(w->fs, "journal/00000001.j").n, FILE_BYTES);
}

static void test_old_files_are_removed_when_released(void **state)
{
    struct world *w = *state;
    start(w);
    for (unsigned i = 0; i < 40; i++) {
        put_sized(w, i, 1000);
        turn(w);
    }
    stop(w);
    unsigned old = count_files(w);
    assert_replays(w, 1, 0, 40);
    struct str before = simfs_content(w->fs, "journal/00000001.j");
    char *copy = malloc(before.n);
    memcpy(copy, before.p, before.n);

    open_journal(w, w->scan.next, w->scan.next_file);
    turn(w);
    assert_int_equal(count_files(w), old + 1);
    assert_int_equal(journal_file_bytes(w->journal), (old + 1) * (uint64_t)FILE_BYTES);
    put_sized(w, 40, 1000);
    turn(w);
    assert_replays(w, 1, 0, 41);
    journal_release(w->journal, 20); /* part of the old ones is still needed */
    turn(w);
    assert_true(str_eq(simfs_content(w->fs, "journal/00000001.j"), str_of(copy, before.n)));
    free(copy);
    journal_release(w->journal, 41);
    turn(w);
    assert_true(count_files(w) <= 2);
    assert_int_equal(journal_file_bytes(w->journal), count_files(w) * (uint64_t)FILE_BYTES);
    assert_replays(w, 41, 40, 41);
}

/* -- small files first ------------------------------------------------------------------------- */

#define FIRST_BYTES 2048

static void start_small(struct world *w)
{
    w->config.first_bytes = FIRST_BYTES;
    start(w);
}

static void test_first_files_are_small(void **state)
{
    struct world *w = *state;
    const size_t sizes[] = {FIRST_BYTES, 4 * FIRST_BYTES, FILE_BYTES, FILE_BYTES};
    uint64_t sum = 0;
    unsigned n = 0;
    start_small(w);
    assert_int_equal(journal_file_bytes(w->journal), FIRST_BYTES);
    while (count_files(w) < 4) {
        put_sized(w, n++, 1000);
        turn(w);
    }
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(file_content(w, 1 + i).n, sizes[i]);
        sum += sizes[i];
    }
    assert_int_equal(journal_file_bytes(w->journal), sum);
    assert_int_equal(simfs_bytes(w->fs), sum);
    assert_replays(w, 1, 0, n);
}

/* It gets a file that it fits in, and the small one is left as it is. */
static void test_record_larger_than_the_first_file(void **state)
{
    struct world *w = *state;
    const size_t sizes[] = {FIRST_BYTES, 5000, 4 * FIRST_BYTES, FILE_BYTES - 1000, 3 * FILE_BYTES};
    start_small(w);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        put_sized(w, 2 * i, 100); /* so that something is before it in the batch */
        if (journal_room(w->journal, sizes[i]) != 0)
            turn(w);
        if (journal_room(w->journal, sizes[i]) != 0)
            turn(w); /* one for which an ordinary file had to come first */
        put_sized(w, 2 * i + 1, sizes[i]);
    }
    turn(w);
    assert_replays(w, 1, 0, 10);
    assert_int_equal(simfs_bytes(w->fs), journal_file_bytes(w->journal));
}

static void test_small_files_are_not_kept(void **state)
{
    struct world *w = *state;
    unsigned n = 0;
    start_small(w);
    while (count_files(w) < 5) {
        put_sized(w, n++, 1000);
        turn(w);
    }
    uint64_t from = journal_cut(w->journal);
    journal_release(w->journal, from);
    turn(w);
    assert_null(file_content(w, 1).p);
    assert_null(file_content(w, 2).p);
    assert_int_equal(journal_file_bytes(w->journal), count_files(w) * (uint64_t)FILE_BYTES);
    put_sized(w, n, 1000);
    turn(w);
    assert_replays(w, from, n, n + 1);
}

/* The disk takes the small file and no other: it is used over and over. */
static void test_full_disk_with_a_small_file(void **state)
{
    struct world *w = *state;
    simfs_set_capacity(w->fs, 2 * FILE_BYTES);
    start_small(w);
    unsigned n = 0;
    for (int i = 0; i < 5; i++) {
        unsigned end = n;
        for (; journal_room(w->journal, 400) == 0; end++) {
            put_sized(w, end, 400);
            turn(w);
        }
        assert_int_equal(journal_room(w->journal, 400), ERR_FULL);
        assert_int_equal(end - n, (FIRST_BYTES - JOURNAL_FILE_HEAD) / JOURNAL_SECTOR);
        assert_replays(w, n + 1, n, end);
        journal_release(w->journal, journal_cut(w->journal));
        turn(w);
        n = end;
    }
    assert_int_equal(journal_file_bytes(w->journal), FIRST_BYTES);
    simfs_set_capacity(w->fs, 10 * FILE_BYTES);
    sleep_ms(w, 1000);
    assert_int_equal(journal_room(w->journal, FILE_BYTES / 2), ERR_BUSY);
    turn(w);
    put_sized(w, n, FILE_BYTES / 2);
    turn(w);
    assert_replays(w, n + 1, n, n + 1);
}

/* -- preparing in steps ------------------------------------------------------------------------ */

#define MIB (1024u * 1024)

/* Files of so many steps that each can be seen. */
static void start_large(struct world *w)
{
    w->config.file_bytes = w->config.first_bytes = 8 * MIB;
    start(w);
}

static void test_next_file_grows_with_use(void **state)
{
    struct world *w = *state;
    size_t before = 0;
    start_large(w);
    turn(w);
    assert_int_equal(count_files(w), 1);
    uint64_t syncs = calls(w, SIMFS_SYNC);
    for (unsigned i = 0; i < 24; i++) {
        put_sized(w, i, MIB / 4);
        turn(w);
        size_t made = file_content(w, 2).n, used = (i + 1) * MIB / 4;
        assert_true(made >= used && made <= 2 * used + MIB);
        assert_true(made - before <= MIB + JOURNAL_FILE_HEAD);
        before = made;
    }
    assert_int_equal(calls(w, SIMFS_SYNC) - syncs, 24 + 8); /* no burst was left for the end */
    assert_int_equal(file_content(w, 2).n, 8 * MIB);
    assert_int_equal(count_files(w), 2);
    simlane_hold(w->preparer, true);
    for (unsigned i = 24; i < 60; i++) { /* it was ready */
        put_sized(w, i, MIB / 4);
        turn(w);
    }
    assert_replays(w, 1, 0, 60);
    simlane_hold(w->preparer, false);
}

static void test_who_waits_hurries_the_next_file(void **state)
{
    struct world *w = *state;
    start_large(w);
    put_sized(w, 0, 1000);
    turn(w);
    assert_int_equal(file_content(w, 2).n, MIB + JOURNAL_FILE_HEAD);
    put_sized(w, 1, 2 * MIB);
    assert_int_equal(journal_room(w->journal, 7 * MIB), ERR_BUSY);
    turn(w);
    assert_int_equal(file_content(w, 2).n, 8 * MIB);
    put_sized(w, 2, 7 * MIB);
    turn(w);
    assert_replays(w, 1, 0, 3);
}

/* What is half made when the journal stops is no file, and goes with the old ones. */
static void test_stop_between_two_steps(void **state)
{
    struct world *w = *state;
    start_large(w);
    put_sized(w, 0, 1000);
    turn(w);
    stop(w);
    assert_int_equal(file_content(w, 2).n, MIB + JOURNAL_FILE_HEAD);
    assert_replays(w, 1, 0, 1);
    assert_int_equal(w->scan.next_file, 3);
    open_journal(w, w->scan.next, w->scan.next_file);
    turn(w);
    assert_int_equal(journal_file_bytes(w->journal), 17 * MIB + JOURNAL_FILE_HEAD);
    journal_release(w->journal, w->scan.next);
    turn(w);
    assert_null(file_content(w, 1).p);
    assert_null(file_content(w, 2).p);
    assert_int_equal(journal_file_bytes(w->journal), 8 * MIB);
}

/* A file is half made when another becomes free and ready before it: both are used in the order of
 * their ids. */
static void test_renewed_file_overtakes_a_new_one(void **state)
{
    struct world *w = *state;
    unsigned n = 0;
    start_large(w);
    for (; file_content(w, 3).p == NULL; n++) {
        put_sized(w, n, MIB);
        turn(w);
    }
    assert_true(file_content(w, 3).n < 8 * MIB);
    uint64_t from = journal_cut(w->journal);
    unsigned first = n;
    journal_release(w->journal, from); /* of the first file */
    turn(w);
    for (; n < first + 30; n++) {
        put_sized(w, n, MIB);
        turn(w);
        assert_replays(w, from, first, n + 1);
    }
    struct journal_identity one, three;
    assert_int_equal(journal_head_read(file_content(w, 1).p, &one), 0);
    assert_int_equal(journal_head_read(file_content(w, 3).p, &three), 0);
    assert_true(three.id > one.id && one.id > 3);
}

static void test_full_between_two_steps(void **state)
{
    struct world *w = *state;
    start_large(w);
    put_sized(w, 0, 1000);
    turn(w);
    simfs_set_capacity(w->fs, simfs_bytes(w->fs) + MIB);
    unsigned n = 1;
    for (; journal_room(w->journal, MIB / 2) == 0; n++) {
        put_sized(w, n, MIB / 2);
        turn(w);
    }
    assert_int_equal(journal_room(w->journal, MIB / 2), ERR_FULL);
    assert_null(file_content(w, 2).p);
    assert_int_equal(journal_file_bytes(w->journal), 8 * MIB);
    simfs_set_capacity(w->fs, UINT64_MAX);
    sleep_ms(w, 1000);
    put_sized(w, n, MIB / 2);
    turn(w);
    assert_replays(w, 1, 0, n + 1);
}

/* -- room -------------------------------------------------------------------------------------- */

static void test_busy_while_the_disk_is_slow(void **state)
{
    struct world *w = *state;
    size_t put_bytes = 0;
    w->config.file_bytes = w->config.first_bytes = JOURNAL_FILE_BYTES;
    start(w);
    turn(w);
    simlane_hold(w->writer, true);
    unsigned n = 0;
    while (journal_room(w->journal, 50000) == 0) {
        put_sized(w, n++, 50000);
        put_bytes += 50000;
        if (n % 10 == 0)
            turn(w);
        assert_true(put_bytes <= 3 * JOURNAL_BATCH_BYTES);
    }
    assert_int_equal(journal_room(w->journal, 50000), ERR_BUSY);
    assert_true(put_bytes > 2 * (JOURNAL_BATCH_BYTES - 50100));
    simlane_hold(w->writer, false);
    turn(w);
    assert_int_equal(journal_room(w->journal, 50000), 0);
    assert_replays(w, 1, 0, n);
}

static unsigned put_until_refused(struct world *w, unsigned n, int reason)
{
    for (; journal_room(w->journal, 1000) == 0; n++) {
        put_sized(w, n, 1000);
        turn(w);
    }
    assert_int_equal(journal_room(w->journal, 1000), reason);
    assert_int_equal(journal_durable(w->journal), n);
    return n;
}

static void test_busy_while_a_file_is_prepared(void **state)
{
    struct world *w = *state;
    start(w);
    simlane_hold(w->preparer, true);
    unsigned n = put_until_refused(w, 0, ERR_BUSY);
    simlane_hold(w->preparer, false);
    turn(w);
    put_sized(w, n, 1000);
    turn(w);
    assert_replays(w, 1, 0, n + 1);
}

/* Nothing that was accepted fails, and there is room again when the disk has some. */
static void test_full_disk(void **state)
{
    struct world *w = *state;
    start(w);
    simfs_set_capacity(w->fs, 4 * FILE_BYTES);
    unsigned n = put_until_refused(w, 0, ERR_FULL);
    assert_int_equal(journal_error(w->journal), 0);
    sleep_ms(w, 3000);
    assert_int_equal(journal_room(w->journal, 1000), ERR_FULL);
    assert_true(simfs_bytes(w->fs) <= 3 * FILE_BYTES); /* some is left for segments */
    simfs_set_capacity(w->fs, 5 * FILE_BYTES);
    sleep_ms(w, 1000);
    n = put_until_refused(w, n, ERR_FULL);
    assert_replays(w, 1, 0, n);

    /* A checkpoint helps too. */
    journal_release(w->journal, journal_cut(w->journal));
    turn(w);
    put_sized(w, n, 1000);
    turn(w);
    assert_int_equal(journal_durable(w->journal), n + 1);
}

/* One file is all there is room for, and it is full: a checkpoint makes it usable again. */
static void test_full_disk_with_one_file(void **state)
{
    struct world *w = *state;
    simfs_set_capacity(w->fs, 2 * FILE_BYTES);
    start(w);
    unsigned n = put_until_refused(w, 0, ERR_FULL);
    assert_int_equal(count_files(w), 1);
    journal_release(w->journal, journal_cut(w->journal));
    turn(w);
    unsigned end = put_until_refused(w, n, ERR_FULL);
    assert_int_equal(end, 2 * n);
    assert_replays(w, n + 1, n, end);
}

static void test_full_from_the_beginning(void **state)
{
    struct world *w = *state;
    simfs_set_capacity(w->fs, FILE_BYTES);
    open_journal(w, 1, 1);
    turn(w);
    assert_true(w->started);
    assert_int_equal(w->start_err, ERR_FULL);
    assert_int_equal(journal_room(w->journal, 1), ERR_FULL);
    simfs_set_capacity(w->fs, 10 * FILE_BYTES);
    sleep_ms(w, 1000);
    put(w, 'a');
    turn(w);
    assert_told(w, "a");
}

/* The disk fills up while a file is being made, which vfs_free_bytes could not know. */
static void test_full_while_a_file_is_made(void **state)
{
    struct world *w = *state;
    start(w);
    put_sized(w, 0, 1000);
    turn(w);
    simfs_fail(w->fs, SIMFS_WRITE, 1, ERR_FULL); /* of zeros, by the preparer */
    put_sized(w, 1, FILE_BYTES - 1000);          /* into the file that was ready */
    turn(w);
    assert_int_equal(journal_durable(w->journal), 2);
    assert_int_equal(journal_error(w->journal), 0);
    assert_int_equal(journal_room(w->journal, 1000), ERR_FULL);
    assert_int_equal(count_files(w), 2); /* the half one is gone */
    sleep_ms(w, 1000);
    put_sized(w, 2, 1000);
    turn(w);
    assert_replays(w, 1, 0, 3);
}

static void test_file_that_cannot_be_made_is_tried_again(void **state)
{
    const enum simfs_op ops[] = {SIMFS_CREATE, SIMFS_WRITE, SIMFS_SYNC, SIMFS_SYNC_DIR};
    struct world *w = *state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        simfs_fail(w->fs, ops[i], ops[i] == SIMFS_SYNC_DIR ? 2 : 1, ERR_IO);
        open_journal(w, 1, 1 + 10 * i);
        turn(w);
        assert_int_equal(w->start_err, ERR_IO);
        assert_int_equal(journal_room(w->journal, 1), ERR_IO);
        sleep_ms(w, 1000);
        assert_int_equal(journal_room(w->journal, 1), 0);
        assert_int_equal(journal_error(w->journal), 0);
        stop(w);
    }
}

/* -- errors ------------------------------------------------------------------------------------ */

static void test_error_ends_it(void **state)
{
    const enum simfs_op ops[] = {SIMFS_WRITE, SIMFS_SYNC};
    struct world *w = *state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        open_journal(w, 1, 1 + 10 * i);
        turn(w);
        put(w, 'a');
        turn(w);
        assert_told(w, "a");
        simlane_hold(w->writer, true);
        put(w, 'b');
        turn(w);
        put(w, 'c');
        journal_cut(w->journal);
        put(w, 'd');
        simfs_fail(w->fs, ops[i], 1, ops[i] == SIMFS_WRITE ? ERR_FULL : ERR_IO);
        uint64_t writes = calls(w, SIMFS_WRITE), syncs = calls(w, SIMFS_SYNC);
        simlane_hold(w->writer, false);
        sleep_ms(w, 5000);
        assert_told(w, "b!c!d!");
        assert_int_equal(calls(w, SIMFS_WRITE) - writes, 1);
        assert_int_equal(calls(w, SIMFS_SYNC) - syncs, ops[i] == SIMFS_SYNC); /* never again */
        assert_int_equal(journal_error(w->journal), ERR_IO);
        assert_int_equal(journal_room(w->journal, 1), ERR_IO);
        assert_int_equal(journal_durable(w->journal), 1);
        journal_wait(w->journal, 1, client(w, 'x'));
        journal_wait(w->journal, 2, client(w, 'y'));
        turn(w);
        assert_told(w, "xy!");
        stop(w);
    }
}

static void test_stop_writes_what_is_open(void **state)
{
    struct world *w = *state;
    start(w);
    put(w, 'a');
    journal_cut(w->journal);
    put(w, 'b');
    journal_stop(w->journal, stopped, w);
    assert_false(w->stopped);
    assert_int_equal(journal_room(w->journal, 1), ERR_BUSY);
    turn(w);
    assert_told(w, "ab");
    assert_true(w->stopped);
    journal_free(w->journal);
    w->journal = NULL;
    assert_int_equal(scan(w, 1), 0);
    assert_string_equal(w->replayed.p, "1:a 2:b ");
}

static void test_stop_waits_for_files_under_way(void **state)
{
    struct world *w = *state;
    simlane_hold(w->preparer, true);
    open_journal(w, 1, 1);
    journal_stop(w->journal, stopped, w);
    turn(w);
    assert_false(w->stopped);
    simlane_hold(w->preparer, false);
    turn(w);
    assert_true(w->stopped);
    journal_free(w->journal);
    w->journal = NULL;
}

static void free_in_stopped(void *ctx)
{
    struct world *w = ctx;
    stopped(w);
    journal_free(w->journal);
    w->journal = NULL;
}

static void test_free_in_stopped(void **state)
{
    struct world *w = *state;
    start(w);
    put(w, 'a');
    simfs_fail(w->fs, SIMFS_SYNC, 1, ERR_IO);
    journal_stop(w->journal, free_in_stopped, w);
    turn(w);
    assert_true(w->stopped);
    assert_told(w, "a!");
}

/* -- the other ways to sync -------------------------------------------------------------------- */

static void test_sync_interval(void **state)
{
    struct world *w = *state;
    w->config.sync = JOURNAL_SYNC_INTERVAL;
    start(w);
    put(w, '0');
    sleep_ms(w, 2 * INTERVAL_MS);
    assert_told(w, "0");
    uint64_t syncs = calls(w, SIMFS_SYNC);
    for (char c = 'a'; c <= 'c'; c++) {
        put(w, c);
        turn(w);
    }
    assert_told(w, "abc");
    assert_int_equal(calls(w, SIMFS_SYNC), syncs);
    assert_true(simfs_has_unsynced(w->fs));
    sleep_ms(w, INTERVAL_MS);
    assert_int_equal(calls(w, SIMFS_SYNC), syncs + 1);
    assert_false(simfs_has_unsynced(w->fs));
    sleep_ms(w, 3 * INTERVAL_MS); /* nothing to sync, no sync */
    assert_int_equal(calls(w, SIMFS_SYNC), syncs + 1);
    put(w, 'd');
    stop(w);
    assert_told(w, "d");
    assert_false(simfs_has_unsynced(w->fs));
}

/* A file that is left behind is synced first: of two files only the later one is in danger. */
static void test_sync_interval_when_files_change(void **state)
{
    struct world *w = *state;
    w->config.sync = JOURNAL_SYNC_INTERVAL;
    start(w);
    unsigned n = 0;
    while (count_files(w) < 4)
        for (int i = 0; i < 3; i++) {
            put_sized(w, n++, 1000);
            turn(w);
        }
    simfs_crash(w->fs, 3);
    assert_int_equal(scan(w, 1), 0);
    assert_true(w->scan.records >= 2 * (FILE_BYTES / 1536 - 1));
    assert_true(w->scan.records <= n);
}

static void test_sync_error_in_an_interval(void **state)
{
    struct world *w = *state;
    w->config.sync = JOURNAL_SYNC_INTERVAL;
    start(w);
    put(w, 'a');
    turn(w);
    simfs_fail(w->fs, SIMFS_SYNC, 1, ERR_IO);
    sleep_ms(w, INTERVAL_MS);
    assert_told(w, "a");
    assert_int_equal(journal_error(w->journal), ERR_IO);
}

static void test_sync_never(void **state)
{
    struct world *w = *state;
    w->config.sync = JOURNAL_SYNC_NEVER;
    start(w);
    put(w, 'a');
    turn(w);
    uint64_t syncs = calls(w, SIMFS_SYNC);
    put(w, 'b');
    sleep_ms(w, 3 * INTERVAL_MS);
    assert_told(w, "ab");
    stop(w);
    assert_int_equal(calls(w, SIMFS_SYNC), syncs);
    assert_int_equal(scan(w, 1), 0);
    assert_string_equal(w->replayed.p, "1:a 2:b ");
}

/* -- the format -------------------------------------------------------------------------------- */

static void test_numbers_are_little_endian(void **state)
{
    char head[JOURNAL_FILE_HEAD], record[JOURNAL_RECORD_HEAD];
    journal_head_write(head, &(struct journal_identity){.id = 0x0102030405060708, .first = 1});
    assert_memory_equal(head + 8, "\1\0\0\0", 4);
    assert_memory_equal(head + 16, "\10\7\6\5\4\3\2\1", 8);
    journal_record_head_write(record, 0x010203);
    assert_memory_equal(record, "\3\2\1\0", 4);
}

/* -- scanning ---------------------------------------------------------------------------------- */

/* Ten batches of one record in two files, all durable. */
static void ten(struct world *w)
{
    start(w);
    for (unsigned i = 1; i <= 10; i++) {
        put_sized(w, i, 2600);
        turn(w);
    }
    stop(w);
    assert_replays(w, 1, 1, 11);
}

static void test_nothing_there(void **state)
{
    struct world *w = *state;
    assert_int_equal(scan(w, 0), 0);
    assert_int_equal(w->scan.next, 1);
    assert_int_equal(w->scan.next_file, 1);
    assert_int_equal(scan(w, 7), 0);
    assert_int_equal(w->scan.next, 7);
}

/* Batch n is at sector 1 + 6 * ((n - 1) % 5), five in a file. */
#define PLACE(n) (JOURNAL_SECTOR * (1 + 6 * (((n)-1) % 5)))

static void test_last_batch_damaged_is_torn(void **state)
{
    struct world *w = *state;
    ten(w);
    simfs_flip(w->fs, "journal/00000002.j", PLACE(10) + 1000, 1);
    assert_replays(w, 1, 1, 10);
    assert_true(w->scan.torn);
    assert_int_equal(w->scan.next, 10);
    assert_int_equal(w->scan.next_file, 4); /* one was prepared */
}

static void test_other_batch_damaged_is_corruption(void **state)
{
    struct world *w = *state;
    ten(w);
    for (unsigned n = 1; n < 10; n++) {
        const char *name = n <= 5 ? "journal/00000001.j" : "journal/00000002.j";
        for (uint64_t at = 0; at <= 2000; at += 20) {
            simfs_flip(w->fs, name, PLACE(n) + at, 0x10);
            assert_int_equal(scan(w, 1), ERR_CORRUPT);
            assert_int_equal(w->scan.records, n - 1);
            assert_non_null(strstr(w->scan.damage, ".j: batch "));
            assert_int_equal(scan(w, n + 1), 0); /* unless a checkpoint has it */
            assert_int_equal(w->scan.records, 10 - n);
            simfs_flip(w->fs, name, PLACE(n) + at, 0x10);
        }
    }
    assert_replays(w, 1, 1, 11);
}

static void test_damaged_head_is_corruption(void **state)
{
    struct world *w = *state;
    ten(w);
    for (uint64_t at = 0; at < 56; at++) {
        simfs_flip(w->fs, "journal/00000002.j", at, 0x80);
        assert_int_equal(scan(w, 1), ERR_CORRUPT);
        assert_non_null(strstr(w->scan.damage, "journal/00000002.j: its head"));
        simfs_flip(w->fs, "journal/00000002.j", at, 0x80);
    }
}

static void test_missing_file_is_corruption(void **state)
{
    struct world *w = *state;
    ten(w);
    assert_int_equal(vfs_remove(simfs_vfs(w->fs), "journal/00000001.j"), 0);
    assert_int_equal(scan(w, 1), ERR_CORRUPT);
    assert_replays(w, 6, 6, 11);
    assert_replays(w, 0, 6, 11);
}

static void test_copied_file_is_corruption(void **state)
{
    struct world *w = *state;
    ten(w);
    simfs_put(w->fs, "journal/00000009.j", simfs_content(w->fs, "journal/00000002.j"));
    assert_int_equal(scan(w, 1), ERR_CORRUPT);
    assert_non_null(strstr(w->scan.damage, "copy"));
}

static void test_later_version_is_refused(void **state)
{
    struct world *w = *state;
    char head[JOURNAL_FILE_HEAD];
    journal_head_write(head, &(struct journal_identity){.id = 7, .epoch = 7, .first = 1});
    head[8] = 2;
    XXH64_hash_t sum = XXH3_64bits(head, 48);
    memcpy(head + 48, &sum, sizeof sum);
    simfs_put(w->fs, "journal/00000007.j", str_of(head, sizeof head));
    assert_int_equal(scan(w, 1), ERR_CORRUPT);
    assert_non_null(strstr(w->scan.damage, "later version"));
}

static void test_unfinished_and_foreign_files_are_passed_over(void **state)
{
    struct world *w = *state;
    static const char zeros[4096];
    ten(w);
    simfs_put(w->fs, "journal/00000020.j", STR(""));
    simfs_put(w->fs, "journal/00000021.j", str_of(zeros, 100));
    simfs_put(w->fs, "journal/00000022.j", str_of(zeros, sizeof zeros));
    simfs_put(w->fs, "journal/notes.txt", STR("hello"));
    simfs_put(w->fs, "journal/00000002.j.bak", STR("hello"));
    assert_replays(w, 1, 1, 11);
    assert_int_equal(w->scan.next_file, 23);
}

/* A batch of the same number from another file, in the place where it is due. */
static void test_batch_of_another_file_does_not_count(void **state)
{
    struct world *w = *state;
    ten(w);
    struct str one = simfs_content(w->fs, "journal/00000001.j");
    char *bytes = malloc(one.n);
    memcpy(bytes, one.p, one.n);
    journal_head_write(bytes,
                       &(struct journal_identity){.id = 1, .salt = 12345, .epoch = 1, .first = 1});
    simfs_put(w->fs, "journal/00000001.j", str_of(bytes, one.n));
    assert_int_equal(scan(w, 1), ERR_CORRUPT);
    assert_int_equal(w->scan.records, 0);
    free(bytes);
}

/* A record that looks like a batch stays a record, even when what it is in is torn. */
static void test_batch_within_a_record(void **state)
{
    struct world *w = *state;
    start(w);
    struct str file = simfs_content(w->fs, "journal/00000001.j");
    struct journal_identity who;
    assert_int_equal(journal_head_read(file.p, &who), 0);
    char forged[2048] = "";
    size_t at = JOURNAL_SECTOR - JOURNAL_BATCH_HEAD - JOURNAL_RECORD_HEAD;
    struct journal_batch_head head = {.number = 2, .synced = 2, .length = 5, .count = 1};
    journal_record_head_write(forged + at + JOURNAL_BATCH_HEAD, 1);
    /* All but the salt can be guessed. */
    journal_batch_write(forged + at, &(struct journal_identity){.id = who.id}, &head);
    journal_put(w->journal, str_of(forged, sizeof forged), NULL);
    turn(w);
    assert_int_equal(scan(w, 1), 0);
    assert_int_equal(w->scan.records, 1);
    simfs_flip(w->fs, "journal/00000001.j", JOURNAL_FILE_HEAD, 1);
    assert_int_equal(scan(w, 1), 0);
    assert_int_equal(w->scan.records, 0);
}

static int refuse(void *ctx, uint64_t batch, struct str bytes)
{
    return batch == 3 ? ERR_NOMEM : 0;
}

static void test_receiver_can_stop_the_scan(void **state)
{
    struct world *w = *state;
    ten(w);
    struct journal_scan s = {.from = 1, .record = refuse};
    assert_int_equal(journal_scan(simfs_vfs(w->fs), &s), ERR_NOMEM);
    assert_int_equal(s.batches, 2);
}

static void test_read_error_is_told(void **state)
{
    struct world *w = *state;
    ten(w);
    for (uint64_t n = 1; n < 5; n++) {
        simfs_fail(w->fs, SIMFS_READ, n, ERR_IO);
        assert_int_equal(scan(w, 1), ERR_IO);
        assert_non_null(strstr(w->scan.damage, "cannot be read"));
    }
}

/* The number of a torn batch is given to another one, in another file; what is left of the torn one
 * is no proof against it. */
static void test_number_given_again_after_a_tear(void **state)
{
    struct world *w = *state;
    ten(w);
    simfs_flip(w->fs, "journal/00000002.j", PLACE(10) + 1000, 1);
    assert_replays(w, 1, 1, 10);
    open_journal(w, w->scan.next, w->scan.next_file);
    turn(w);
    for (unsigned i = 10; i < 15; i++) {
        put_sized(w, i, 2600);
        turn(w);
    }
    assert_replays(w, 1, 1, 15);
    assert_int_equal(w->scan.next, 15);
}

/* Unsynced batches of which a power cut took one in the middle: those behind it do not count, but
 * are no corruption either, also when their numbers are in use again. */
static void test_hole_in_unsynced_batches(void **state)
{
    struct world *w = *state;
    w->config.sync = JOURNAL_SYNC_NEVER;
    ten(w);
    simfs_flip(w->fs, "journal/00000001.j", PLACE(3), 1);
    assert_replays(w, 1, 1, 3);
    assert_true(w->scan.torn);
    assert_int_equal(w->scan.next, 3);
    open_journal(w, w->scan.next, w->scan.next_file);
    turn(w);
    put_sized(w, 103, 2600);
    turn(w);
    assert_int_equal(scan(w, 1), 0);
    assert_string_equal(w->replayed.p, "1:00000001 2:00000002 3:00000103 ");
    assert_int_equal(scan(w, 4), 0); /* there was a batch 4, which had been lost */
    assert_string_equal(w->replayed.p, "");
    put_sized(w, 104, 2600);
    turn(w);
    assert_int_equal(scan(w, 4), 0);
    assert_string_equal(w->replayed.p, "4:00000104 ");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_first_file_is_safe_before_it_is_used),
        TEST(test_one_sync_for_many),
        TEST(test_next_batch_fills_meanwhile),
        TEST(test_a_block_within_a_record),
        TEST(test_putting_from_done),
        TEST(test_cut),
        TEST(test_batches_move_on_to_the_next_file),
        TEST(test_files_are_used_again),
        TEST(test_stale_batches_are_there_and_left_alone),
        TEST(test_large_record),
        TEST(test_largest_that_fits_an_ordinary_file),
        TEST(test_old_files_are_removed_when_released),
        TEST(test_first_files_are_small),
        TEST(test_record_larger_than_the_first_file),
        TEST(test_small_files_are_not_kept),
        TEST(test_full_disk_with_a_small_file),
        TEST(test_next_file_grows_with_use),
        TEST(test_who_waits_hurries_the_next_file),
        TEST(test_stop_between_two_steps),
        TEST(test_renewed_file_overtakes_a_new_one),
        TEST(test_full_between_two_steps),
        TEST(test_busy_while_the_disk_is_slow),
        TEST(test_busy_while_a_file_is_prepared),
        TEST(test_full_disk),
        TEST(test_full_disk_with_one_file),
        TEST(test_full_from_the_beginning),
        TEST(test_full_while_a_file_is_made),
        TEST(test_file_that_cannot_be_made_is_tried_again),
        TEST(test_error_ends_it),
        TEST(test_stop_writes_what_is_open),
        TEST(test_stop_waits_for_files_under_way),
        TEST(test_free_in_stopped),
        TEST(test_sync_interval),
        TEST(test_sync_interval_when_files_change),
        TEST(test_sync_error_in_an_interval),
        TEST(test_sync_never),
        TEST(test_numbers_are_little_endian),
        TEST(test_nothing_there),
        TEST(test_last_batch_damaged_is_torn),
        TEST(test_other_batch_damaged_is_corruption),
        TEST(test_damaged_head_is_corruption),
        TEST(test_missing_file_is_corruption),
        TEST(test_copied_file_is_corruption),
        TEST(test_later_version_is_refused),
        TEST(test_unfinished_and_foreign_files_are_passed_over),
        TEST(test_batch_of_another_file_does_not_count),
        TEST(test_batch_within_a_record),
        TEST(test_receiver_can_stop_the_scan),
        TEST(test_read_error_is_told),
        TEST(test_number_given_again_after_a_tear),
        TEST(test_hole_in_unsynced_batches),
    };
    return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
