// SPDX-License-Identifier: Apache-2.0
/* The journal against a disk that dies, lies and fills up, life after life.
 *
 * One seed is one disk with several lives of a server on it. In each life random records are put,
 * checkpoints are taken, calls fail; then the power goes in the middle of some call, or the process
 * is killed, or it stops in good order. After each the scan must yield, from the checkpoint on,
 * exactly what was put, in order, up to some end between two batches; and what was acknowledged
 * must lie before that end. What was lost once must never come back.
 *
 * On a disk that does not do as it is asked (journal_disk.h) the journal behaves like a broken one:
 * each such fault has to be found, or the test itself is worth nothing. See model/seeds.h for how
 * to repeat a run. */
#include "base/err.h"
#include "base/mem.h"
#include "base/sched.h"
#include "fault/journal_disk.h"
#include "fault/simfs.h"
#include "fault/simlane.h"
#include "model/seeds.h"
#include "store/embedded/journal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define SEEDS        300
#define LIVES_MAX    6
#define STEPS_MAX    250
#define INTERVAL_MS  100
#define LANE_TURNS   3
#define WRITE_OPS    150 /* the power goes after at most so many calls that change something */
#define SEEDS_BROKEN 300
#define STEP_BYTES   4096 /* so that a file is made in several */

/* A record that was put and is not in a checkpoint. */
struct item {
    uint64_t serial, batch;
    size_t n;
    bool acked;
    bool safe; /* was there after a power cut, or synced for certain */
};

struct checkpoint {
    uint64_t at; /* 0: none is under way */
    bool committed;
};

struct run {
    struct rng rng;
    struct simfs *fs;
    struct sched sched;
    struct lane *writer, *preparer;
    struct journal *journal;
    struct journal_config config;
    bool stopped;

    /* What must be true. */
    uint64_t from, next, next_file, serial;
    struct item *items;
    size_t n_items, cap_items;
    struct checkpoint checkpoint;

    /* Of the scan under way. */
    size_t n_replayed;

    const char *verdict; /* what was found to be wrong */
    uint64_t n_lost, n_acks, n_torn, n_refused;
};

struct waiting {
    struct journal_waiter waiter;
    struct run *run;
    uint64_t serial;
};

static void check(struct run *r, bool ok, const char *what)
{
    if (!ok && r->verdict == NULL)
        r->verdict = what;
}

static void pass_turn(struct run *r)
{
    sched_turn(&r->sched, r->sched.now_ms + SCHED_TICK_MS, 0);
}

/* ---- records ---- */

static void write_content(char *out, uint64_t serial, size_t n)
{
    struct rng fill = {serial};
    memcpy(out, &serial, sizeof serial);
    for (size_t i = sizeof serial; i < n; i++)
        out[i] = (char)rng_next(&fill);
}

static bool has_content(struct str bytes, const struct item *item)
{
    char *expected = mem_alloc(item->n);
    write_content(expected, item->serial, item->n);
    bool same = str_eq(bytes, str_of(expected, item->n));
    free(expected);
    return same;
}

static struct item *find_item(struct run *r, uint64_t serial)
{
    for (size_t i = r->n_items; i-- > 0;)
        if (r->items[i].serial == serial)
            return &r->items[i];
    return NULL;
}

static void acknowledge(struct journal_waiter *w, int err)
{
    struct waiting *p = container_of(w, struct waiting, waiter);
    struct item *item = find_item(p->run, p->serial);
    if (err == 0 && item != NULL) {
        item->acked = true;
        p->run->n_acks++;
    }
    free(p);
}

static size_t draw_size(struct run *r)
{
    size_t least = sizeof(uint64_t);
    if (rng_one_in(&r->rng, 60))
        return JOURNAL_FILE_MIN + (size_t)rng_below(&r->rng, JOURNAL_FILE_MIN);
    return least + (size_t)rng_below(&r->rng, rng_one_in(&r->rng, 3) ? 3000 : 100);
}

static void put_one(struct run *r)
{
    size_t n = draw_size(r);
    if (journal_room(r->journal, n) != 0) {
        r->n_refused++;
        return;
    }
    struct waiting *p = mem_zalloc(sizeof *p);
    *p = (struct waiting){{.done = acknowledge}, r, ++r->serial};
    char *bytes = mem_alloc(n);
    write_content(bytes, r->serial, n);
    if (r->n_items == r->cap_items) {
        r->cap_items = r->cap_items ? r->cap_items * 2 : 64;
        r->items = mem_realloc(r->items, r->cap_items * sizeof *r->items);
    }
    r->items[r->n_items++] = (struct item){.serial = r->serial, .n = n};
    r->items[r->n_items - 1].batch = journal_put(r->journal, str_of(bytes, n), &p->waiter);
    free(bytes);
}

/* ---- checkpoints ---- */

/* Everything below `at` rests elsewhere, which is none of the journal's business. */
static void commit(struct run *r, uint64_t at)
{
    size_t n = 0;
    while (n < r->n_items && r->items[n].batch < at)
        n++;
    r->n_items -= n;
    if (n > 0)
        memmove(r->items, r->items + n, r->n_items * sizeof *r->items);
    r->from = at;
}

static void checkpoint(struct run *r)
{
    struct checkpoint *c = &r->checkpoint;
    if (c->at == 0) {
        c->at = journal_cut(r->journal);
        c->committed = false;
    } else if (!c->committed && journal_durable(r->journal) + 1 >= c->at) {
        commit(r, c->at);
        c->committed = true;
    } else if (c->committed) {
        journal_release(r->journal, c->at);
        c->at = 0;
    }
}

/* ---- a life ---- */

static void note_stopped(void *ctx)
{
    ((struct run *)ctx)->stopped = true;
}

static void note_started(void *ctx, int err)
{
}

static void begin_life(struct run *r)
{
    static const enum journal_sync syncs[] = {JOURNAL_SYNC_ALWAYS,   JOURNAL_SYNC_ALWAYS,
                                              JOURNAL_SYNC_ALWAYS,   JOURNAL_SYNC_ALWAYS,
                                              JOURNAL_SYNC_INTERVAL, JOURNAL_SYNC_NEVER};
    static const uint64_t first_bytes[] = {1024, 3072, JOURNAL_FILE_MIN};
    unsigned turns = (unsigned)rng_between(&r->rng, 0, LANE_TURNS);
    r->config = (struct journal_config){
        .file_bytes = JOURNAL_FILE_MIN,
        .first_bytes = first_bytes[rng_below(&r->rng, sizeof first_bytes / sizeof *first_bytes)],
        .sync = syncs[rng_below(&r->rng, sizeof syncs / sizeof *syncs)],
        .sync_interval_ms = INTERVAL_MS,
        .step_bytes = STEP_BYTES,
    };
    r->stopped = false;
    r->checkpoint = (struct checkpoint){0};
    r->writer = simlane_new(&r->sched, rng_next(&r->rng), turns);
    r->preparer = simlane_new(&r->sched, rng_next(&r->rng), turns * 3);
    r->journal = journal_new(journal_disk(simfs_vfs(r->fs)), &r->sched, r->writer, r->preparer,
                             &r->config, r->next, r->next_file);
    journal_start(r->journal, note_started, r);
}

static void end_life(struct run *r)
{
    journal_stop(r->journal, note_stopped, r);
    for (int i = 0; i < 1000 && !r->stopped; i++)
        pass_turn(r);
    check(r, r->stopped, "the journal does not stop");
    journal_free(r->journal);
    lane_free(r->writer);
    lane_free(r->preparer);
}

/* With an interval, what was acknowledged before a long enough pause is synced after it. */
static void rest_awhile(struct run *r)
{
    size_t n = r->n_items;
    while (n > 0 && !r->items[n - 1].acked)
        n--;
    uint64_t last = n > 0 ? r->items[n - 1].serial : 0;
    for (int i = 0; i < INTERVAL_MS / SCHED_TICK_MS + 10 * LANE_TURNS; i++)
        pass_turn(r);
    if (journal_error(r->journal) != 0 || simfs_is_off(r->fs) ||
        r->config.sync == JOURNAL_SYNC_NEVER)
        return;
    for (size_t i = 0; i < r->n_items && r->items[i].serial <= last; i++)
        r->items[i].safe = true;
}

static void inject(struct run *r)
{
    static const enum simfs_op ops[] = {SIMFS_WRITE,  SIMFS_SYNC,     SIMFS_SYNC, SIMFS_CREATE,
                                        SIMFS_REMOVE, SIMFS_SYNC_DIR, SIMFS_OPS};
    enum simfs_op op = ops[rng_below(&r->rng, sizeof ops / sizeof *ops)];
    simfs_fail(r->fs, op, rng_between(&r->rng, 1, 15), rng_one_in(&r->rng, 3) ? ERR_FULL : ERR_IO);
}

static void do_something(struct run *r)
{
    switch (rng_below(&r->rng, 20)) {
    case 0: rest_awhile(r); break;
    case 1:
        if (rng_one_in(&r->rng, 4))
            inject(r);
        break;
    case 2:
        simfs_set_capacity(r->fs, rng_one_in(&r->rng, 3)
                                      ? simfs_bytes(r->fs) + rng_below(&r->rng, 100000)
                                      : UINT64_MAX);
        break;
    case 3:
    case 4:
    case 5: checkpoint(r); break;
    case 6:
    case 7:
    case 8:
    case 9:
    case 10: pass_turn(r); break;
    default: put_one(r);
    }
}

/* ---- afterwards ---- */

static int compare(void *ctx, uint64_t batch, struct str bytes)
{
    struct run *r = ctx;
    if (r->n_replayed == r->n_items) {
        check(r, false, "a record is replayed that was never put, or had been lost");
        return ERR_CORRUPT;
    }
    const struct item *item = &r->items[r->n_replayed++];
    check(r, has_content(bytes, item), "a record is replayed with other content, or out of order");
    check(r, batch == item->batch, "a record is replayed as part of another batch");
    return r->verdict == NULL ? 0 : ERR_CORRUPT;
}

static uint64_t writing_calls(const struct run *r)
{
    return simfs_calls(r->fs, SIMFS_WRITE) + simfs_calls(r->fs, SIMFS_TRUNCATE) +
           simfs_calls(r->fs, SIMFS_CREATE) + simfs_calls(r->fs, SIMFS_REMOVE) +
           simfs_calls(r->fs, SIMFS_RENAME);
}

static bool must_be_there(const struct run *r, const struct item *item, bool power_cut)
{
    if (!power_cut)
        return item->acked || item->safe;
    return item->safe || (item->acked && r->config.sync == JOURNAL_SYNC_ALWAYS);
}

static void check_end(struct run *r, bool power_cut)
{
    size_t n = r->n_replayed;
    for (size_t i = n; i < r->n_items; i++)
        check(r, !must_be_there(r, &r->items[i], power_cut), "an acknowledged record is lost");
    if (n > 0 && n < r->n_items)
        check(r, r->items[n - 1].batch != r->items[n].batch, "half a batch is replayed");
    r->n_lost += r->n_items - n;
}

/* Scans, compares, and goes on with what was found. */
static void recover(struct run *r, bool power_cut)
{
    struct journal_scan scan = {.from = r->from, .ctx = r, .record = compare};
    uint64_t calls = writing_calls(r);
    r->n_replayed = 0;
    int err = journal_scan(simfs_vfs(r->fs), &scan);
    check(r, err == 0, scan.damage[0] != '\0' ? "a crash is taken for damage" : "the scan fails");
    check(r, writing_calls(r) == calls, "the scan writes");
    check_end(r, power_cut);
    r->n_items = r->n_replayed;
    uint64_t next = r->n_items > 0 ? r->items[r->n_items - 1].batch + 1 : r->from;
    check(r, scan.next == next, "another batch is due than the one after the last");
    r->n_torn += scan.torn;
    r->next = next;
    r->next_file = scan.next_file;
    for (size_t i = 0; i < r->n_items; i++)
        r->items[i].safe = true;
    /* Without a power cut what was replayed may be in memory only, and has to rest first. */
    if (!power_cut || rng_one_in(&r->rng, 2))
        commit(r, next);
}

static void live(struct run *r)
{
    bool killed = rng_one_in(&r->rng, 4), orderly = !killed && rng_one_in(&r->rng, 4);
    begin_life(r);
    if (!killed && !orderly)
        simfs_cut_power_at(r->fs, rng_between(&r->rng, 1, WRITE_OPS));
    for (uint64_t n = rng_between(&r->rng, 10, STEPS_MAX); n > 0 && !simfs_is_off(r->fs); n--)
        do_something(r);
    simfs_set_capacity(r->fs, UINT64_MAX);
    if (!orderly && !simfs_is_off(r->fs))
        simfs_cut_power_at(r->fs, 1); /* what follows is no part of this life */
    end_life(r);
    bool power_cut = !killed && (!orderly || rng_one_in(&r->rng, 2));
    if (power_cut)
        simfs_crash(r->fs, rng_next(&r->rng));
    else
        simfs_kill(r->fs);
    recover(r, power_cut);
}

static struct run *run_new(const struct rng *rng)
{
    struct run *r = mem_zalloc(sizeof *r);
    r->rng = *rng;
    r->fs = simfs_new(rng_next(&r->rng));
    r->from = r->next = r->next_file = 1;
    sched_init(&r->sched, 0, 0);
    return r;
}

static struct run *run_seed(const struct rng *rng)
{
    struct run *r = run_new(rng);
    for (uint64_t lives = rng_between(&r->rng, 2, LIVES_MAX); lives > 0 && r->verdict == NULL;
         lives--)
        live(r);
    return r;
}

static void run_free(struct run *r)
{
    simfs_free(r->fs);
    free(r->items);
    free(r);
}

/* ---- bits that rot ---- */

static void fill_files(struct run *r)
{
    struct journal_config config = {.file_bytes = JOURNAL_FILE_MIN, .step_bytes = STEP_BYTES};
    r->writer = simlane_new(&r->sched, 1, 0);
    r->preparer = simlane_new(&r->sched, 1, 0);
    r->journal =
        journal_new(simfs_vfs(r->fs), &r->sched, r->writer, r->preparer, &config, r->next, 1);
    journal_start(r->journal, note_started, r);
    for (int i = 0; i < 30; i++) {
        pass_turn(r);
        put_one(r);
    }
    end_life(r);
}

/* What a scan may say of a disk on which one bit is wrong: nothing new, and nothing less without a
 * word, but for the last batch, which nothing that comes after it vouches for. */
static bool is_bearable(const struct run *r, int err)
{
    if (r->verdict != NULL)
        return false;
    if (err == ERR_CORRUPT || r->n_replayed == r->n_items)
        return true;
    return r->items[r->n_replayed].batch == r->items[r->n_items - 1].batch;
}

static uint64_t flip_all(struct run *r, const char *name, uint64_t *found)
{
    struct str file = simfs_content(r->fs, name);
    uint64_t flips = 0;
    for (uint64_t at = 0; at < file.n; at += rng_between(&r->rng, 1, 4)) {
        unsigned char mask = (unsigned char)(1u << rng_below(&r->rng, 8));
        struct journal_scan scan = {.from = 1, .ctx = r, .record = compare};
        simfs_flip(r->fs, name, at, mask);
        r->n_replayed = 0;
        int err = journal_scan(simfs_vfs(r->fs), &scan);
        if (!is_bearable(r, err))
            fail_msg("byte %llu of %s: %s", (unsigned long long)at, name,
                     r->verdict != NULL ? r->verdict : "lost without a word");
        flips++;
        *found += err == ERR_CORRUPT;
        simfs_flip(r->fs, name, at, mask);
    }
    return flips;
}

static void test_no_flipped_bit_goes_unnoticed(void **state)
{
    struct run *r = run_new(&(struct rng){1});
    uint64_t flips = 0, found = 0;
    fill_files(r);
    for (uint64_t n = 1; n <= 4; n++) {
        char name[JOURNAL_NAME_MAX];
        journal_name(n, name);
        if (simfs_content(r->fs, name).p != NULL)
            flips += flip_all(r, name, &found);
    }
    print_message("%llu bits flipped, %llu found to matter\n", (unsigned long long)flips,
                  (unsigned long long)found);
    assert_true(flips > JOURNAL_FILE_MIN && found > JOURNAL_FILE_MIN / 4);
    run_free(r);
}

/* ---- the tests ---- */

static uint64_t total_acks, total_lost, total_torn, total_refused;

static void sound_body(struct rng *rng)
{
    struct run *r = run_seed(rng);
    const char *verdict = r->verdict;
    total_acks += r->n_acks;
    total_lost += r->n_lost;
    total_torn += r->n_torn;
    total_refused += r->n_refused;
    run_free(r);
    if (verdict != NULL)
        fail_msg("%s", verdict);
}

static void test_nothing_acknowledged_is_lost(void **state)
{
    seeds_run(SEEDS, sound_body);
    print_message("%llu acknowledged, %llu rightly lost, %llu torn tails, %llu refused\n",
                  (unsigned long long)total_acks, (unsigned long long)total_lost,
                  (unsigned long long)total_torn, (unsigned long long)total_refused);
    if (seeds_env("TIDEMARK_SEED") == 0) /* or the disk was too kind */
        assert_true(total_lost > 0 && total_torn > 0 && total_refused > 0);
}

static void convict(enum journal_fault fault, const char *name)
{
    unsigned convicted = 0;
    const char *verdict = NULL;
    disk.fault = fault;
    for (uint64_t seed = 1; seed <= SEEDS_BROKEN && convicted < 3; seed++) {
        struct rng rng = {seed};
        struct run *r = run_seed(&rng);
        if (r->verdict != NULL) {
            convicted++;
            verdict = r->verdict;
            print_message("%s: seed %llu: %s\n", name, (unsigned long long)seed, verdict);
        }
        run_free(r);
    }
    disk.fault = JOURNAL_SOUND;
    assert_int_equal(convicted, 3);
}

static void test_ack_before_sync_is_found(void **state)
{
    convict(JOURNAL_ACKS_BEFORE_SYNC, "acknowledges before the sync");
}

static void test_no_sync_is_found(void **state)
{
    convict(JOURNAL_NEVER_SYNCS, "does not sync");
}

static void test_second_sync_is_found(void **state)
{
    convict(JOURNAL_RETRIES_SYNC, "syncs again after an error");
}

static void test_stale_tail_is_found(void **state)
{
    convict(JOURNAL_FORGETS_IDENTITY, "takes stale batches for new ones");
}

static void test_unsynced_name_is_found(void **state)
{
    convict(JOURNAL_FORGETS_NAMES, "does not sync the folder");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_nothing_acknowledged_is_lost, seeds_teardown),
        cmocka_unit_test(test_no_flipped_bit_goes_unnoticed),
        cmocka_unit_test(test_ack_before_sync_is_found),
        cmocka_unit_test(test_no_sync_is_found),
        cmocka_unit_test(test_second_sync_is_found),
        cmocka_unit_test(test_stale_tail_is_found),
        cmocka_unit_test(test_unsynced_name_is_found),
    };
    return cmocka_run_group_tests_name("fault/journal_crash", tests, NULL, NULL);
}
