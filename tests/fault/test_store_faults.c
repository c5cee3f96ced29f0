// SPDX-License-Identifier: Apache-2.0
/* The embedded store when the disk refuses, fills up or rots: what it answers, what can still be
 * read, and whether it finds its way back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "fault/simfs.h"
#include "fault/simlane.h"
#include "store/embedded/embedded_core.h"
#include "store/embedded/vfs.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TURNS_MAX  2000
#define FILE_BYTES (160 * 1024)
#define EVENT_MAX  5000
#define PUTS       40000

struct bench {
    struct simfs *fs;
    struct sched sched;
    struct embedded_config config;
    struct embedded_lanes lanes;
    struct store *store;
    char index[64], why[400];
    bool stopped;
};

static void pass_turns(struct bench *b, int n)
{
    while (n-- > 0)
        sched_turn(&b->sched, b->sched.now_ms + SCHED_TICK_MS, b->sched.wall_ms + SCHED_TICK_MS);
}

/* ---- opening and closing ---- */

static bool bench_open(struct bench *b)
{
    b->lanes = (struct embedded_lanes){simlane_new(&b->sched, 1, 1), simlane_new(&b->sched, 2, 1),
                                       simlane_new(&b->sched, 3, 1), simlane_new(&b->sched, 4, 1)};
    b->store = embedded_open(&b->sched, simfs_vfs(b->fs), b->index, &b->lanes, &b->config, b->why,
                             sizeof b->why);
    pass_turns(b, 50);
    return b->store != NULL;
}

static void note_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static void bench_close(struct bench *b)
{
    b->stopped = false;
    if (b->store != NULL) {
        store_stop(b->store, note_stopped, &b->stopped);
        pass_turns(b, TURNS_MAX);
        assert_true(b->stopped);
        store_free(b->store);
        b->store = NULL;
    }
    lane_free(b->lanes.journal);
    lane_free(b->lanes.prepare);
    lane_free(b->lanes.rest);
    lane_free(b->lanes.read);
}

static int set_up(void **state)
{
    struct bench *b = mem_zalloc(sizeof *b);
    b->fs = simfs_new(1);
    sched_init(&b->sched, 0, 1700000000000);
    b->config = EMBEDDED_DEFAULTS;
    b->config.journal.file_bytes = FILE_BYTES;
    b->config.checkpoint_age_ms = 1000000;
    b->config.cache_bytes = 0;
    b->config.rest.base_bytes = 16 * 1024;
    b->config.rest.reserve_bytes = 4096;
    b->config.index_sync = false;
    snprintf(b->index, sizeof b->index, "/tmp/tidemark-faults-XXXXXX");
    int fd = mkstemp(b->index);
    assert_true(fd >= 0);
    close(fd);
    unlink(b->index);
    assert_true(bench_open(b));
    *state = b;
    return 0;
}

static void forget_index(const struct bench *b)
{
    char lock[80];
    snprintf(lock, sizeof lock, "%s-lock", b->index);
    unlink(b->index);
    unlink(lock);
}

static int tear_down(void **state)
{
    struct bench *b = *state;
    simfs_set_capacity(b->fs, UINT64_MAX);
    bench_close(b);
    simfs_free(b->fs);
    forget_index(b);
    free(b);
    return 0;
}

/* The machine dies, and all that was lost is lost. */
static void restart(struct bench *b)
{
    bench_close(b);
    simfs_crash(b->fs, 7);
    assert_true(bench_open(b));
}

/* ---- operations, one at a time ---- */

#define PENDING 1

struct writing {
    struct store_write op;
    int err;
};

static void on_written(struct store_write *w, int err)
{
    container_of(w, struct writing, op)->err = err;
}

/* Turns until something else than PENDING has been answered. */
static int await(struct bench *b, const int *err)
{
    for (int i = 0; i < TURNS_MAX && *err == PENDING; i++)
        pass_turns(b, 1);
    assert_int_not_equal(*err, PENDING);
    return *err;
}

static int create_with(struct bench *b, const char *name, const struct stream_config *config)
{
    struct writing w = {.op = {.name = str_of_cstr(name), .create = config, .done = on_written},
                        .err = PENDING};
    store_write(b->store, &w.op);
    return await(b, &w.err);
}

static int create(struct bench *b, const char *name)
{
    struct stream_config config = {
        .content_type = STR("text/plain"), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    return create_with(b, name, &config);
}

static int append(struct bench *b, const char *name, struct str data)
{
    struct writing w = {
        .op = {.name = str_of_cstr(name), .data = data, .n_events = 1, .done = on_written},
        .err = PENDING};
    store_write(b->store, &w.op);
    return await(b, &w.err);
}

struct removing {
    struct store_remove op;
    int err;
};

static void on_removed(struct store_remove *r, int err)
{
    container_of(r, struct removing, op)->err = err;
}

static int remove_stream(struct bench *b, const char *name)
{
    struct removing r = {.op = {.name = str_of_cstr(name), .done = on_removed}, .err = PENDING};
    store_remove(b->store, &r.op);
    return await(b, &r.err);
}

struct reading {
    struct store_read op;
    struct buf bytes;
    int err;
};

static void on_read(struct store_read *r, int err)
{
    struct reading *reading = container_of(r, struct reading, op);
    reading->err = err;
    for (uint32_t i = 0; err == 0 && i < r->n_slices; i++)
        buf_put(&reading->bytes, r->slices[i].bytes);
    if (err == 0)
        store_read_release(r);
}

/* All that can be read from a position on; an error is that of the first read that fails. */
static int read_from(struct bench *b, const char *name, struct offset at, struct buf *out)
{
    int err = 0;
    for (bool more = true; more && err == 0;) {
        struct reading r = {.op = {.name = str_of_cstr(name),
                                   .from = READ_AT,
                                   .at = at,
                                   .max_bytes = SIZE_MAX,
                                   .done = on_read},
                            .err = PENDING};
        store_read(b->store, &r.op);
        err = await(b, &r.err);
        buf_put(out, buf_str(&r.bytes));
        buf_deinit(&r.bytes);
        at = (struct offset){r.op.info.life, r.op.next};
        more = err == 0 && r.op.next < r.op.info.tail;
    }
    return err;
}

static void expect_content(struct bench *b, const char *name, const char *expected)
{
    struct buf got = {0};
    assert_int_equal(read_from(b, name, (struct offset){0}, &got), 0);
    if (!str_eq(buf_str(&got), str_of_cstr(expected)))
        fail_msg("'%.*s' instead of '%s'", (int)got.n, got.p, expected);
    buf_deinit(&got);
}

/* A checkpoint from its beginning to its end. */
static void checkpoint(struct bench *b)
{
    embedded_checkpoint(b->store);
    pass_turns(b, 100);
}

/* ---- errors of the journal ---- */

static int health(struct bench *b)
{
    struct str ignored;
    return store_health(b->store, &ignored);
}

/* From the failure on nothing is acknowledged; what was, can be read, and is there afterwards. */
static void check_ended(struct bench *b)
{
    assert_int_equal(embedded_error(b->store), ERR_IO);
    assert_int_equal(health(b), ERR_IO);
    assert_int_equal(append(b, "a", STR("four")), ERR_IO);
    assert_true(b->store->refused[STORE_IO] > 0);
    assert_int_equal(create(b, "b"), ERR_IO);
    assert_int_equal(remove_stream(b, "a"), ERR_IO);
    expect_content(b, "a", "onetwo");
    restart(b);
    assert_int_equal(embedded_error(b->store), 0);
    assert_int_equal(health(b), 0);
    expect_content(b, "a", "onetwo");
    assert_int_equal(append(b, "a", STR("five")), 0);
    expect_content(b, "a", "onetwofive");
}

static void begin(struct bench *b)
{
    assert_int_equal(create(b, "a"), 0);
    assert_int_equal(append(b, "a", STR("one")), 0);
    checkpoint(b);
    assert_int_equal(append(b, "a", STR("two")), 0);
}

static void test_failed_write_ends_acknowledgement(void **state)
{
    struct bench *b = *state;
    begin(b);
    simfs_fail(b->fs, SIMFS_WRITE, 1, ERR_IO);
    assert_int_equal(append(b, "a", STR("three")), ERR_IO);
    check_ended(b);
}

static void test_failed_sync_ends_acknowledgement(void **state)
{
    struct bench *b = *state;
    begin(b);
    simfs_fail(b->fs, SIMFS_SYNC, 1, ERR_IO);
    assert_int_equal(append(b, "a", STR("three")), ERR_IO);
    uint64_t syncs = simfs_calls(b->fs, SIMFS_SYNC), writes = simfs_calls(b->fs, SIMFS_WRITE);
    assert_int_equal(embedded_error(b->store), ERR_IO);
    assert_int_equal(append(b, "a", STR("four")), ERR_IO);
    embedded_checkpoint(b->store);
    pass_turns(b, 200);
    assert_int_equal(simfs_calls(b->fs, SIMFS_SYNC), syncs); /* nothing is tried again */
    assert_int_equal(simfs_calls(b->fs, SIMFS_WRITE), writes);
    expect_content(b, "a", "onetwo");
    bench_close(b);
    simfs_kill(b->fs); /* the page cache still has it, so it may be there */
    assert_true(bench_open(b));
    struct buf got = {0};
    assert_int_equal(read_from(b, "a", (struct offset){0}, &got), 0);
    assert_true(str_eq(buf_str(&got), STR("onetwo")) || str_eq(buf_str(&got), STR("onetwothree")));
    buf_deinit(&got);
}

/* Every sync of a run of appends fails once: what was acknowledged before it is there. */
static void test_each_sync_in_turn(void **state)
{
    struct bench *b = *state;
    assert_int_equal(create(b, "a"), 0);
    uint64_t acked = 0;
    for (uint64_t nth = 1; nth <= 40; nth++) {
        simfs_fail(b->fs, SIMFS_SYNC, nth, ERR_IO);
        for (int i = 0; i < 60 && embedded_error(b->store) == 0; i++) {
            acked += append(b, "a", STR("12345678")) == 0 ? 8 : 0;
            if (i % 7 == 3)
                embedded_checkpoint(b->store);
        }
        simfs_fail(b->fs, SIMFS_SYNC, 0, 0);
        restart(b);
        struct buf got = {0};
        assert_int_equal(read_from(b, "a", (struct offset){0}, &got), 0);
        assert_true(got.n >= acked && got.n % 8 == 0);
        acked = got.n;
        buf_deinit(&got);
    }
}

/* ---- a full disk ---- */

static void test_full_disk(void **state)
{
    struct bench *b = *state;
    static char big[EVENT_MAX];
    int err = 0;
    uint64_t acked = 0;
    memset(big, 'x', sizeof big);
    assert_int_equal(create(b, "a"), 0);
    assert_int_equal(create(b, "small"), 0);
    assert_int_equal(append(b, "a", STR("one")), 0);
    assert_int_equal(create(b, "victim"), 0);
    simfs_set_capacity(b->fs, simfs_bytes(b->fs) + 2 * FILE_BYTES);
    for (int i = 0; i < 1000 && err == 0; i++) {
        err = append(b, "a", str_of(big, sizeof big));
        acked += err == 0;
    }
    assert_int_equal(err, ERR_FULL);
    assert_int_equal(embedded_error(b->store), 0);
    assert_int_equal(append(b, "a", str_of(big, sizeof big)), ERR_FULL);

    struct buf got = {0};
    assert_int_equal(read_from(b, "a", (struct offset){0}, &got), 0);
    assert_int_equal(got.n, 3 + acked * EVENT_MAX);
    buf_deinit(&got);
    assert_int_equal(remove_stream(b, "victim"), 0);
    for (int i = 0; i < 1000 && append(b, "small", STR("x")) == 0; i++)
        continue;
    assert_int_equal(health(b), ERR_FULL);

    simfs_set_capacity(b->fs, UINT64_MAX);
    for (int i = 0; i < 200 && (err = append(b, "a", STR("two"))) == ERR_FULL; i++)
        pass_turns(b, 10);
    assert_int_equal(err, 0);
    restart(b);
    got = (struct buf){0};
    assert_int_equal(read_from(b, "a", (struct offset){0}, &got), 0);
    assert_int_equal(got.n, 3 + acked * EVENT_MAX + 3);
    buf_deinit(&got);
    assert_int_equal(append(b, "victim", STR("x")), ERR_NOT_FOUND);
    assert_int_equal(health(b), 0);
}

/* What is removed makes room, without anybody doing anything else. */
static void test_removing_makes_room(void **state)
{
    struct bench *b = *state;
    static char big[EVENT_MAX];
    int err = 0;
    b->config.checkpoint_bytes = 64 * 1024;
    b->config.checkpoint_age_ms = 500;
    restart(b);
    memset(big, 'x', sizeof big);
    assert_int_equal(create(b, "a"), 0);
    assert_int_equal(create(b, "b"), 0);
    simfs_set_capacity(b->fs, simfs_bytes(b->fs) + 8 * FILE_BYTES);
    for (int i = 0; i < 2000 && err == 0; i++)
        err = append(b, "a", str_of(big, sizeof big));
    assert_int_equal(err, ERR_FULL);
    assert_int_equal(remove_stream(b, "a"), 0);
    for (int i = 0; i < 500 && (err = append(b, "b", STR("two"))) == ERR_FULL; i++)
        pass_turns(b, 10);
    assert_int_equal(err, 0);
    expect_content(b, "b", "two");
}

static void test_disk_cap(void **state)
{
    struct bench *b = *state;
    static char big[EVENT_MAX];
    int err = 0;
    b->config.disk_cap = 6 * FILE_BYTES;
    b->config.checkpoint_bytes = 64 * 1024;
    restart(b);
    memset(big, 'x', sizeof big);
    assert_int_equal(create(b, "a"), 0);
    for (int i = 0; i < 2000 && err == 0; i++)
        err = append(b, "a", str_of(big, sizeof big));
    assert_int_equal(err, ERR_FULL);
    assert_true(simfs_bytes(b->fs) <= b->config.disk_cap + 2 * FILE_BYTES);
    assert_int_equal(remove_stream(b, "a"), 0);
    checkpoint(b);
    assert_int_equal(create(b, "b"), 0);
    assert_int_equal(append(b, "b", STR("two")), 0);
}

/* ---- documents, and streams without events ---- */

struct putting {
    struct store_put op;
    struct doc_put doc;
    char key[12];
    int err;
};

static void on_put(struct store_put *p, int err)
{
    container_of(p, struct putting, op)->err = err;
}

static int put_doc(struct bench *b, const char *key, struct str value, uint64_t version)
{
    struct putting p = {.doc = {str_of_cstr(key), value, version}, .err = PENDING};
    p.op = (struct store_put){.docs = &p.doc, .n_docs = 1, .done = on_put};
    store_put(b->store, &p.op);
    return await(b, &p.err);
}

/* Streams that are only made, documents: what they take counts, and those that take no more than
 * before are not refused. */
static void test_disk_cap_without_events(void **state)
{
    struct bench *b = *state;
    static char big[EVENT_MAX];
    char name[32];
    int err = 0, n = 0;
    b->config.disk_cap = 8 * FILE_BYTES;
    b->config.journal_max = 256 * 1024;
    restart(b);
    memset(big, 'x', sizeof big);
    struct str value = str_of(big, sizeof big);
    assert_int_equal(create(b, "a"), 0);
    for (; n < 2000 && err == 0; n++) {
        snprintf(name, sizeof name, "doc/%d", n);
        err = put_doc(b, name, value, 0);
    }
    assert_int_equal(err, ERR_FULL);
    assert_int_equal(create(b, "b"), ERR_FULL);
    assert_int_equal(put_doc(b, "doc/0", value, 1), 0);
    assert_int_equal(remove_stream(b, "a"), 0);
    for (int i = 0; i < n - 1; i++) {
        snprintf(name, sizeof name, "doc/%d", i);
        assert_int_equal(put_doc(b, name, STR_NONE, i == 0 ? 2 : 1), 0);
    }
    for (int i = 0; i < 10; i++)
        checkpoint(b);
    assert_int_equal(put_doc(b, "doc/0", value, 0), 0);
    for (n = 0, err = 0; n < 20000 && err == 0; n++) {
        snprintf(name, sizeof name, "stream/%d", n);
        err = create(b, name);
    }
    assert_int_equal(err, ERR_FULL);
}

/* Whoever writes no events makes checkpoints as well, and the journal does not grow; but it takes
 * much to make one. */
static void test_checkpoints_without_events(void **state)
{
    struct bench *b = *state;
    static char big[EVENT_MAX];
    struct embedded *e;
    b->config.journal_max = 256 * 1024;
    restart(b);
    e = embedded_of(b->store);
    memset(big, 'x', sizeof big);
    uint64_t before = e->meta.next_segment;
    for (uint64_t i = 0; i < 500; i++) {
        assert_int_equal(put_doc(b, "one", str_of(big, sizeof big), i), 0);
        assert_true(journal_file_bytes(e->journal) <= 6 * FILE_BYTES);
    }
    assert_in_range(e->meta.next_segment - before, 10, 500 * EVENT_MAX / (128 * 1024) + 1);
    before = e->meta.next_segment;
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(create(b, "s"), 0);
        assert_int_equal(remove_stream(b, "s"), 0);
        assert_true(journal_file_bytes(e->journal) <= 6 * FILE_BYTES);
        assert_true(e->removed.n <= 1); /* what comes and goes is nothing to a checkpoint */
    }
    /* A batch takes a sector. */
    assert_in_range(e->meta.next_segment - before, 10, 5000 * 2 * 512 / (128 * 1024) + 1);
}

/* ---- a journal that has no room ---- */

/* More than there is room for; no file is made meanwhile. */
static void fill_journal(struct bench *b, struct putting *puts)
{
    simlane_hold(b->lanes.prepare, true);
    for (unsigned i = 0; i < PUTS; i++) {
        struct putting *p = &puts[i];
        snprintf(p->key, sizeof p->key, "%u", i);
        p->doc = (struct doc_put){str_of_cstr(p->key), STR("value"), 0};
        p->op = (struct store_put){.docs = &p->doc, .n_docs = 1, .done = on_put};
        p->err = PENDING;
        store_put(b->store, &p->op);
    }
}

/* Those who wait for room are answered when the store stops. */
static void test_stop_while_there_is_no_room(void **state)
{
    struct bench *b = *state;
    struct putting *puts = mem_zalloc(PUTS * sizeof *puts);
    fill_journal(b, puts);
    pass_turns(b, 100);
    assert_int_equal(puts[PUTS - 1].err, PENDING);
    store_stop(b->store, note_stopped, &b->stopped);
    pass_turns(b, 10);
    simlane_hold(b->lanes.prepare, false);
    pass_turns(b, TURNS_MAX);
    assert_true(b->stopped);
    for (unsigned i = 0; i < PUTS; i++)
        assert_int_not_equal(puts[i].err, PENDING);
    free(puts);
    store_free(b->store);
    b->store = NULL;
}

/* A fork that held a removed name expires while that cannot be written down; the name is used
 * again; a crash. The new stream must not go with what the fork had held. */
static void test_expiry_that_is_not_written_down(void **state)
{
    struct bench *b = *state;
    struct putting *puts = mem_zalloc(PUTS * sizeof *puts), *last = &puts[PUTS - 1];
    struct stream_config fork = {.fork_of = STR("a"),
                                 .fork_at_tail = true,
                                 .ttl_s = STORE_TTL_NONE,
                                 .expires_ms = b->sched.wall_ms + 6000};
    assert_int_equal(create(b, "a"), 0);
    assert_int_equal(create_with(b, "fork", &fork), 0);
    assert_int_equal(remove_stream(b, "a"), 0);
    assert_int_equal(create(b, "a"), ERR_EXISTS);
    checkpoint(b);

    fill_journal(b, puts);
    while (b->sched.wall_ms < fork.expires_ms + 3000)
        pass_turns(b, 1);
    assert_int_equal(last->err, PENDING); /* there was no room */
    simlane_hold(b->lanes.prepare, false);
    assert_int_equal(await(b, &last->err), 0);
    assert_int_equal(create(b, "a"), 0);
    free(puts);

    restart(b);
    assert_int_equal(append(b, "a", STR("one")), 0);
    pass_turns(b, 300);
    assert_int_equal(append(b, "a", STR("two")), 0);
    expect_content(b, "a", "onetwo");
    restart(b);
    expect_content(b, "a", "onetwo");
}

/* ---- rot ---- */

/* Every file of a folder of segments, one bit in each kilobyte. */
static void test_unreadable_block(void **state)
{
    struct bench *b = *state;
    assert_int_equal(create(b, "a"), 0);
    assert_int_equal(append(b, "a", STR("one")), 0);
    checkpoint(b); /* segment 1 */
    assert_int_equal(create(b, "b"), 0);
    assert_int_equal(append(b, "a", STR("two")), 0);
    assert_int_equal(append(b, "b", STR("other")), 0);
    checkpoint(b); /* segment 2 */
    static const char first[] = "segments/00000001.s";
    struct str file = simfs_content(b->fs, first);
    const char *at = memmem(file.p, file.n, "one", 3);
    assert_non_null(at);
    simfs_flip(b->fs, first, (uint64_t)(at - file.p), 4);

    struct buf got = {0};
    assert_int_equal(read_from(b, "a", (struct offset){0}, &got), ERR_CORRUPT);
    assert_int_equal(got.n, 0);
    assert_int_equal(read_from(b, "a", (struct offset){1, 3}, &got), 0); /* behind it */
    assert_true(str_eq(buf_str(&got), STR("two")));
    buf_deinit(&got);
    expect_content(b, "b", "other");
    assert_int_equal(append(b, "a", STR("three")), 0);
    checkpoint(b);
    assert_int_equal(embedded_error(b->store), 0);

    restart(b); /* never deleted, and the rest is still there */
    assert_non_null(simfs_content(b->fs, first).p);
    assert_int_equal(read_from(b, "a", (struct offset){0}, &got), ERR_CORRUPT);
    expect_content(b, "b", "other");
    simfs_flip(b->fs, first, (uint64_t)(at - file.p), 4);
    expect_content(b, "a", "onetwothree");
}

static void test_missing_segment(void **state)
{
    struct bench *b = *state;
    begin(b);
    assert_int_equal(create(b, "b"), 0);
    assert_int_equal(append(b, "b", STR("other")), 0);
    checkpoint(b);
    vfs_remove(simfs_vfs(b->fs), "segments/00000001.s");
    struct buf got = {0};
    int err = read_from(b, "a", (struct offset){0}, &got);
    assert_int_equal(err, ERR_CORRUPT);
    expect_content(b, "b", "other");
    buf_deinit(&got);
}

/* Without its index a store is not empty: it is made again from the segments. */
static void test_missing_index(void **state)
{
    struct bench *b = *state;
    begin(b);
    checkpoint(b);
    bench_close(b);
    assert_true(bench_open(b)); /* the journal is empty now */
    bench_close(b);
    forget_index(b);
    assert_true(bench_open(b));
    expect_content(b, "a", "onetwo");
    assert_int_equal(append(b, "a", STR("three")), 0);
    bench_close(b);
    forget_index(b);
    assert_true(bench_open(b)); /* with something in the journal */
    expect_content(b, "a", "onetwothree");
}

/* What is not complete is not made up: the store does not open, and says what to do. */
static void test_missing_index_and_notes(void **state)
{
    static const char first[] = "segments/00000001.s";
    struct bench *b = *state;
    begin(b);
    checkpoint(b);
    bench_close(b);
    forget_index(b);
    struct buf kept = {0};
    buf_put(&kept, simfs_content(b->fs, first));
    vfs_remove(simfs_vfs(b->fs), first);
    assert_false(bench_open(b));
    assert_non_null(strstr(b->why, "segment 2"));
    assert_non_null(strstr(b->why, "tidemark doctor DIR --repair"));
    bench_close(b);
    simfs_put(b->fs, first, buf_str(&kept));
    buf_deinit(&kept);
    assert_true(bench_open(b));
    expect_content(b, "a", "onetwo");
}

/* Nothing can be written any more, not even a few bytes; what is removed makes room all the same.
 */
static void test_removing_from_a_disk_without_a_byte(void **state)
{
    struct bench *b = *state;
    static char big[EVENT_MAX];
    memset(big, 'x', sizeof big);
    assert_int_equal(create(b, "a"), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(append(b, "a", str_of(big, sizeof big)), 0);
    checkpoint(b);
    assert_int_equal(create(b, "b"), 0);
    checkpoint(b);
    checkpoint(b); /* the journal has its files */
    uint64_t full = simfs_bytes(b->fs);
    simfs_set_capacity(b->fs, full);
    assert_int_equal(remove_stream(b, "a"), 0);
    checkpoint(b);
    assert_true(simfs_bytes(b->fs) < full - 20 * EVENT_MAX);
    assert_int_equal(append(b, "a", STR("x")), ERR_NOT_FOUND);
    assert_int_equal(append(b, "b", STR("x")), 0);
}

/* ---- checkpoints that fail ---- */

static void test_failing_checkpoint(void **state)
{
    static const enum simfs_op ops[] = {SIMFS_CREATE, SIMFS_WRITE, SIMFS_SYNC, SIMFS_SYNC_DIR};
    static const int errs[] = {ERR_IO, ERR_FULL};
    struct bench *b = *state;
    struct buf expected = {0};
    b->config.rest.reserve_bytes = 0; /* or a full disk is none */
    restart(b);
    assert_int_equal(create(b, "a"), 0);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(append(b, "a", STR("event ")), 0);
        buf_put(&expected, STR("event "));
        pass_turns(b, 20);
        simfs_fail(b->fs, ops[i / 2], 1, errs[i % 2]);
        embedded_checkpoint(b->store);
        pass_turns(b, 20);
        simfs_fail(b->fs, ops[i / 2], 0, 0);
        assert_int_equal(embedded_unrested(b->store), 6); /* it did fail */
        assert_int_equal(append(b, "a", STR("more ")), 0);
        buf_put(&expected, STR("more "));
        buf_putc(&expected, '\0');
        expect_content(b, "a", expected.p);
        expected.n--;
        checkpoint(b);
        assert_int_equal(embedded_unrested(b->store), 0);
        assert_int_equal(embedded_error(b->store), 0);
    }
    restart(b);
    buf_putc(&expected, '\0');
    expect_content(b, "a", expected.p);
    buf_deinit(&expected);
}

/* Until it is tried again, nobody else's write makes another. */
static void test_failing_checkpoint_is_not_hurried(void **state)
{
    struct bench *b = *state;
    static char big[EVENT_MAX];
    unsigned n = 0;
    b->config.checkpoint_bytes = 8 * 1024;
    b->config.rest.reserve_bytes = 0;
    restart(b);
    const struct embedded *e = embedded_of(b->store);
    const struct checkpoint *last = NULL;
    assert_int_equal(create(b, "a"), 0);
    memset(big, 'x', sizeof big);
    uint64_t began_ms = b->sched.now_ms;
    while (b->sched.now_ms < began_ms + 2000) {
        simfs_fail(b->fs, SIMFS_CREATE, 1, ERR_IO);
        assert_int_equal(append(b, "a", str_of(big, 1000)), 0);
        n += e->checkpoint != NULL && last == NULL;
        last = e->checkpoint;
    }
    simfs_fail(b->fs, SIMFS_CREATE, 0, 0);
    assert_in_range(n, 1, 3);
    assert_true(e->rest_failed);
    pass_turns(b, 200);
    assert_int_equal(embedded_unrested(b->store), 0);
}

/* A fork that is made while a checkpoint is under way, which takes away what its source was forked
 * from: its past must be found under its source then. */
static void test_fork_beside_a_checkpoint(void **state)
{
    struct bench *b = *state;
    struct stream_config fork = {
        .fork_of = STR("a"), .fork_at_tail = true, .ttl_s = STORE_TTL_NONE, .expires_ms = -1};
    begin(b);
    checkpoint(b);
    assert_int_equal(create_with(b, "f", &fork), 0);
    assert_int_equal(append(b, "f", STR("three")), 0);
    assert_int_equal(remove_stream(b, "a"), 0);
    simlane_hold(b->lanes.rest, true);
    checkpoint(b);
    fork.fork_of = STR("f");
    assert_int_equal(create_with(b, "g", &fork), 0);
    simlane_hold(b->lanes.rest, false);
    pass_turns(b, 100);
    expect_content(b, "g", "onetwothree");
    checkpoint(b);
    expect_content(b, "g", "onetwothree");
    assert_int_equal(remove_stream(b, "f"), 0);
    checkpoint(b);
    restart(b);
    expect_content(b, "g", "onetwothree");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_failed_write_ends_acknowledgement),
        TEST(test_failed_sync_ends_acknowledgement),
        TEST(test_each_sync_in_turn),
        TEST(test_full_disk),
        TEST(test_removing_makes_room),
        TEST(test_disk_cap),
        TEST(test_disk_cap_without_events),
        TEST(test_checkpoints_without_events),
        TEST(test_expiry_that_is_not_written_down),
        TEST(test_stop_while_there_is_no_room),
        TEST(test_unreadable_block),
        TEST(test_missing_segment),
        TEST(test_missing_index),
        TEST(test_missing_index_and_notes),
        TEST(test_removing_from_a_disk_without_a_byte),
        TEST(test_failing_checkpoint),
        TEST(test_failing_checkpoint_is_not_hurried),
        TEST(test_fork_beside_a_checkpoint),
    };
    return cmocka_run_group_tests_name("fault/store_faults", tests, NULL, NULL);
}
