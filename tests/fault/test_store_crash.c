// SPDX-License-Identifier: Apache-2.0
/* The embedded store against a disk that dies, life after life.
 *
 * One seed is one disk with several lives of a server on it. In each life random operations run,
 * many at once, beside checkpoints; then the power goes in the middle of some call, at a commit of
 * the index or during recovery, or the process dies, or it stops in good order. The store tells the
 * test in which order it made its changes (crash_store.h), and the oracle works out what each
 * prefix of them comes to: after the crash the store must hold exactly what one of them says, and
 * that one must have everything that was acknowledged. So nothing is lost, stored twice or half
 * there, and what was removed stays so. Before the crash, nobody may be answered by or read what is
 * not acknowledged yet. After it, clients try again what they were not told about: the oracle knows
 * which of that has to be recognised.
 *
 * Faults that can be switched on show that all of that can be found. See model/seeds.h for how to
 * repeat a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault/crash_make.h"
#include "fault/crash_run.h"
#include "fault/crash_store.h"
#include "fault/simlane.h"

#include <assert.h>
#include <unistd.h>

#define SEEDS        200
#define SEEDS_BROKEN 200
#define LIVES_MAX    5
#define STEPS_MAX    150
#define CHANGES_MAX  600 /* the power goes after at most so many calls that change something */
#define COMMITS_MAX  6   /* ... or at one of the first commits of the index */

/* ---- after a crash ---- */

static struct op *perform(struct op *op)
{
    op->kept = !is_change(op);
    start(op);
    wait_for_all(op->run);
    return op;
}

/* Does the oracle say what the store shows? */
static const char *compare(struct run *r, const struct op *list, const struct op *docs)
{
    const char *why = oracle_list(&r->oracle, &list->u.list, list->err);
    return why != NULL ? why : oracle_docs(&r->oracle, &docs->u.docs, docs->err);
}

static size_t last_acknowledged(const struct run *r)
{
    size_t n = 0, at = 0;
    list_each (l, (struct link *)&r->changes) {
        at++;
        const struct op *op = list_item(l, struct op, change);
        if (op->acked || op->told)
            n = at;
    }
    return n;
}

/* Finds how many of the changes that were not all acknowledged are there; the oracle takes them in,
 * and all of them are tried again. */
static void find_end(struct run *r)
{
    struct op *list = op_new(r, OP_LIST), *docs = op_new(r, OP_DOCS);
    list->u.list.limit = docs->u.docs.limit = SIZE_MAX;
    perform(list);
    perform(docs);
    size_t must = last_acknowledged(r), n = 0;
    char first[300] = "";
    const char *why;
    while ((why = compare(r, list, docs)) != NULL || n < must) {
        if (first[0] == '\0' && n >= must)
            snprintf(first, sizeof first, "%s", why);
        if (list_empty(&r->changes)) {
            blame(r, "what is there is what no prefix of the changes comes to: %s", first);
            break;
        }
        struct op *op = list_item(r->changes.next, struct op, change);
        take_in_or_blame(r, op, 0);
        list_remove(&op->change);
        if (op->acked)
            op_free(op);
        else
            list_push(&r->retries, &op->link);
        r->n_kept++;
        n++;
    }
    while (!list_empty(&r->changes)) {
        struct op *op = list_item(r->changes.next, struct op, change);
        list_remove(&op->change);
        list_push(&r->retries, &op->link);
        r->n_lost++;
    }
    op_free(list);
    op_free(docs);
}

static void read_whole(struct run *r, struct str name)
{
    struct offset at = {0};
    bool more = true;
    while (more && !r->failed) {
        struct op *op = op_new(r, OP_READ);
        op->u.read = (struct store_read){.name = name,
                                         .from = READ_AT,
                                         .at = at,
                                         .max_bytes = rng_between(&r->rng, 1000, 100000)};
        perform(op);
        more = op->err == 0 && op->u.read.next < op->u.read.info.tail;
        at = (struct offset){op->u.read.info.life, op->u.read.next};
        op_free(op);
    }
}

/* Streams in full, those that are not there too. */
static void check_streams(struct run *r)
{
    for (size_t i = 0; i < COUNT(names); i++) {
        struct op *op = op_new(r, OP_STAT);
        op->u.stat.name = names[i];
        op_free(perform(op));
        read_whole(r, names[i]);
    }
}

/* The last request of each producer, again. */
static void check_producers(struct run *r, struct str name)
{
    const struct oracle_stream *s = oracle_find(&r->oracle, name);
    for (size_t i = 0; s != NULL && s->end == END_NONE && i < s->n_producers && !r->failed; i++) {
        struct op *op = op_new(r, OP_WRITE);
        struct store_write *w = &op->u.write;
        w->name = arena_dup(&op->arena, name);
        w->data = STR("again");
        w->claim = (struct producer_claim){s->producers[i].id, s->producers[i].state.epoch,
                                           s->producers[i].state.seq};
        perform(op);
    }
}

static void check_seq(struct run *r, struct str name)
{
    const struct oracle_stream *s = oracle_find(&r->oracle, name);
    if (s == NULL || s->last_seq.p == NULL || s->end != END_NONE)
        return;
    struct op *op = op_new(r, OP_WRITE);
    op->u.write.name = arena_dup(&op->arena, name);
    op->u.write.data = STR("again");
    op->u.write.seq = arena_dup(&op->arena, s->last_seq);
    perform(op);
}

/* A client that got no answer asks again, if that can do no harm; and some whom it harms. */
static bool is_retried(struct run *r, const struct op *op)
{
    return op->kind != OP_WRITE || op->u.write.claim.id.n > 0 || op->u.write.create != NULL ||
           rng_one_in(&r->rng, 4);
}

static void retry_all(struct run *r)
{
    while (!list_empty(&r->retries)) {
        struct op *op = list_item(r->retries.next, struct op, link);
        if (r->failed || !is_retried(r, op))
            op_free(op);
        else
            perform(op);
    }
}

struct known {
    struct run *run;
    size_t segments;
    uint64_t life, end, ordinal; /* of the last row of a block */
};

static int count_one(void *ctx, const struct index_segment *s)
{
    ((struct known *)ctx)->segments++;
    return 0;
}

static int follow_row(void *ctx, uint64_t life, const struct block_info *b)
{
    struct known *k = ctx;
    if (life == k->life && (b->first < k->end || b->ordinal < k->ordinal))
        blame(k->run, "rows of blocks overlap at %llu", (unsigned long long)b->first);
    k->life = life;
    k->end = b->end;
    k->ordinal = b->ordinal + b->events;
    return 0;
}

/* Whatever the crash left behind has been cleared away, and what was merged. */
static void check_files(struct run *r)
{
    uint64_t *ids;
    size_t there;
    struct known known = {.run = r};
    struct index_load load = {.ctx = &known, .segment = count_one, .block = follow_row};
    struct index_meta meta;
    assert(segment_list(simfs_vfs(r->fs), &ids, &there) == 0);
    free(ids);
    assert(index_load(embedded_of(r->store)->index, &load, &meta) == 0);
    if (there != known.segments)
        blame(r, "%zu segments, but the index knows %zu", there, known.segments);
}

static void check_all(struct run *r)
{
    r->alone = true;
    check_files(r);
    find_end(r);
    if (!r->failed)
        check_streams(r);
    for (size_t i = 0; i < COUNT(names) && !r->failed; i++) {
        check_producers(r, names[i]);
        check_seq(r, names[i]);
    }
    retry_all(r);
    r->alone = false;
}

/* ---- a life ---- */

static void open_store(struct run *r)
{
    static const uint64_t file_bytes[] = {JOURNAL_FILE_MIN, 96 * 1024, 160 * 1024};
    unsigned turns = (unsigned)rng_between(&r->rng, 0, 3);
    struct embedded_config config = EMBEDDED_DEFAULTS;
    char why[400];
    config.journal.file_bytes = file_bytes[rng_below(&r->rng, COUNT(file_bytes))];
    config.checkpoint_bytes = rng_between(&r->rng, 1, 40) * 1024;
    config.checkpoint_age_ms = 1000;
    config.unrested_max = config.checkpoint_bytes * rng_between(&r->rng, 2, 100) + 100000;
    config.journal_max = rng_between(&r->rng, 20, 2000) * 1024;
    config.cache_bytes = 16 * 1024;
    config.rest.base_bytes = rng_between(&r->rng, 1, 8) * 1024;
    config.rest.base_files = rng_below(&r->rng, 6);
    config.rest.rewrite_bytes = rng_below(&r->rng, 4) * 3000;
    config.rest.merge_bytes = rng_below(&r->rng, 4) * 20000;
    config.rest.merge_fan = (uint32_t)rng_between(&r->rng, 2, 5);
    config.rest.reserve_bytes = rng_below(&r->rng, 3) * 4096;
    config.rest_slice = (uint32_t)rng_between(&r->rng, 1, 5);
    config.call_slice = (uint32_t)rng_between(&r->rng, 1, 3);
    config.large_bytes = rng_one_in(&r->rng, 4) ? UINT32_MAX : EXTENT_BYTES_MAX;
    config.part_bytes = (uint32_t)rng_between(&r->rng, 3, 50) * 1024;
    config.rest_at_stop = rng_one_in(&r->rng, 2);
    config.index_sync = false;
    r->lanes = (struct embedded_lanes){simlane_new(&r->sched, rng_next(&r->rng), turns),
                                       simlane_new(&r->sched, rng_next(&r->rng), turns * 2),
                                       simlane_new(&r->sched, rng_next(&r->rng), turns * 5),
                                       simlane_new(&r->sched, rng_next(&r->rng), turns)};
    r->store = embedded_open(&r->sched, crash_disk(simfs_vfs(r->fs)), r->index, &r->lanes, &config,
                             why, sizeof why);
    if (r->store == NULL && !simfs_is_off(r->fs))
        blame(r, "cannot open: %s", why);
}

static void note_stopped(void *ctx)
{
    ((struct run *)ctx)->stopped = true;
}

static void close_store(struct run *r)
{
    r->stopped = false;
    if (r->store != NULL) {
        store_stop(r->store, note_stopped, r);
        for (int i = 0; i < TURNS_MAX && !r->stopped; i++)
            pass_turn(r);
        if (!r->stopped || r->n_under_way > 0) {
            fprintf(stderr, "stopped: %d, with %zu operations under way\n", r->stopped,
                    r->n_under_way);
            abort();
        }
        r->n_rewritten += embedded_rewritten(r->store);
        r->n_merged += embedded_merged(r->store);
        store_free(r->store);
        r->store = NULL;
    }
    lane_free(r->lanes.journal);
    lane_free(r->lanes.prepare);
    lane_free(r->lanes.rest);
    lane_free(r->lanes.read);
    r->lanes = (struct embedded_lanes){0};
}

/* With the power the index may go, which is then made again from the segments. */
static void lose_index(struct run *r)
{
    char lock[80];
    snprintf(lock, sizeof lock, "%s-lock", r->index);
    if (!rng_one_in(&r->rng, 4))
        return;
    unlink(r->index);
    unlink(lock);
    r->n_rebuilt++;
}

/* The power may go while the store is being opened, any number of times. */
static void recover(struct run *r)
{
    lose_index(r);
    while (rng_one_in(&r->rng, 3) && !r->failed) {
        simfs_cut_power_at(r->fs, rng_between(&r->rng, 1, 30));
        open_store(r);
        if (r->store != NULL && !simfs_is_off(r->fs))
            cut_power(r);
        close_store(r);
        if (rng_one_in(&r->rng, 4))
            simfs_kill(r->fs);
        else
            simfs_crash(r->fs, rng_next(&r->rng));
        lose_index(r);
    }
    open_store(r);
    if (r->store != NULL)
        check_all(r);
}

static void draw_end(struct run *r)
{
    switch (rng_below(&r->rng, 8)) {
    case 0: /* a sync that fails, and soon after it the power does */
        simfs_fail(r->fs, SIMFS_SYNC, rng_between(&r->rng, 1, 20), ERR_IO);
        r->faulty = true;
        break;
    case 1: break;
    case 2:
        r->commits_left = rng_between(&r->rng, 1, COMMITS_MAX);
        r->cut_after_commit = rng_one_in(&r->rng, 2);
        break;
    default: simfs_cut_power_at(r->fs, rng_between(&r->rng, 1, CHANGES_MAX)); break;
    }
}

/* The disk is full for a while, or soon will be. */
static void draw_capacity(struct run *r)
{
    bool full = rng_one_in(&r->rng, 3);
    simfs_set_capacity(r->fs, full ? simfs_bytes(r->fs) + rng_below(&r->rng, 300000) : UINT64_MAX);
}

static void live(struct run *r)
{
    bool orderly = rng_one_in(&r->rng, 6), killed = rng_one_in(&r->rng, 4);
    draw_end(r);
    for (uint64_t n = rng_between(&r->rng, 5, STEPS_MAX); n > 0 && !simfs_is_off(r->fs); n--) {
        for (uint64_t more = rng_below(&r->rng, 8); more > 0; more--)
            start_something(r);
        if (rng_one_in(&r->rng, 15))
            embedded_checkpoint(r->store);
        if (rng_one_in(&r->rng, 20))
            draw_capacity(r);
        for (uint64_t turns = rng_below(&r->rng, 3); turns > 0; turns--)
            pass_turn(r);
    }
    r->commits_left = 0;
    simfs_set_capacity(r->fs, UINT64_MAX);
    if (!orderly && !simfs_is_off(r->fs))
        cut_power(r);
    if (rng_one_in(&r->rng, 2)) /* or it is stopped while they are under way */
        wait_for_all(r);
    close_store(r);
    r->faulty = false;
    if (killed)
        simfs_kill(r->fs);
    else
        simfs_crash(r->fs, rng_next(&r->rng));
}

static struct run *run_new(const struct rng *rng)
{
    struct run *r = mem_zalloc(sizeof *r);
    r->rng = *rng;
    r->fs = simfs_new(rng_next(&r->rng));
    r->restless = rng_one_in(&r->rng, 3);
    r->bulky = rng_one_in(&r->rng, 3);
    r->lateness.state = rng_next(&r->rng);
    list_init(&r->changes);
    list_init(&r->under_way);
    list_init(&r->retries);
    sched_init(&r->sched, 0, START_WALL);
    r->sched.clock_ns = rng_one_in(&r->rng, 2) ? crash_clock_ns : NULL;
    oracle_init(&r->oracle);
    oracle_clock(&r->oracle, START_WALL);
    snprintf(r->index, sizeof r->index, "/tmp/tidemark-crash-XXXXXX");
    int fd = mkstemp(r->index);
    assert(fd >= 0);
    close(fd);
    unlink(r->index);
    the_run = r;
    return r;
}

static void free_ops(struct link *changes)
{
    while (!list_empty(changes))
        op_free(list_item(changes->next, struct op, change));
}

static void run_free(struct run *r)
{
    char lock[80];
    free_ops(&r->changes);
    while (!list_empty(&r->retries))
        op_free(list_item(r->retries.next, struct op, link));
    for (struct grave *g; (g = r->graves) != NULL;) {
        r->graves = g->next;
        buf_deinit(&g->bytes);
        free(g);
    }
    oracle_deinit(&r->oracle);
    simfs_free(r->fs);
    unlink(r->index);
    snprintf(lock, sizeof lock, "%s-lock", r->index);
    unlink(lock);
    buf_deinit(&crash_second);
    free(r);
    the_run = NULL;
}

static struct run *run_seed(const struct rng *rng)
{
    struct run *r = run_new(rng);
    open_store(r);
    for (uint64_t lives = rng_between(&r->rng, 2, LIVES_MAX); lives > 0 && !r->failed; lives--) {
        live(r);
        recover(r);
    }
    close_store(r);
    return r;
}

/* ---- the tests ---- */

static uint64_t total_acks, total_kept, total_lost, total_duplicates, total_reads, total_refused,
    total_rebuilt, total_rewritten, total_merged, total_in_parts;

static void sound_body(struct rng *rng)
{
    struct run *r = run_seed(rng);
    char verdict[sizeof r->verdict];
    bool failed = r->failed;
    memcpy(verdict, r->verdict, sizeof verdict);
    total_acks += r->n_acks;
    total_kept += r->n_kept;
    total_lost += r->n_lost;
    total_duplicates += r->n_duplicates;
    total_reads += r->n_reads;
    total_refused += r->n_refused;
    total_rebuilt += r->n_rebuilt;
    total_rewritten += r->n_rewritten;
    total_merged += r->n_merged;
    total_in_parts += r->n_in_parts;
    run_free(r);
    if (failed)
        fail_msg("%s", verdict);
}

static void test_what_was_acknowledged_is_there_once(void **state)
{
    seeds_run(SEEDS, sound_body);
    print_message(
        "%llu acknowledged; %llu not, of which %llu were kept; %llu duplicates, %llu "
        "refused, %llu reads; %llu times the index was lost, %llu blocks were moved, %llu "
        "merged; %llu appends came in parts\n",
        (unsigned long long)total_acks, (unsigned long long)(total_kept + total_lost),
        (unsigned long long)total_kept, (unsigned long long)total_duplicates,
        (unsigned long long)total_refused, (unsigned long long)total_reads,
        (unsigned long long)total_rebuilt, (unsigned long long)total_rewritten,
        (unsigned long long)total_merged, (unsigned long long)total_in_parts);
    if (seeds_env("TIDEMARK_SEED") == 0) { /* or the disk was too kind */
        assert_true(total_kept > 0 && total_lost > 0 && total_duplicates > 0);
        assert_true(total_rebuilt > 0 && total_rewritten > 0 && total_merged > 0);
        assert_true(total_in_parts > 0);
    }
}

static void convict(enum crash_fault fault, const char *name)
{
    unsigned convicted = 0;
    crash_fault = fault;
    for (uint64_t seed = 1; seed <= SEEDS_BROKEN && convicted == 0; seed++) {
        struct rng rng = {seed};
        struct run *r = run_seed(&rng);
        if (r->failed) {
            convicted++;
            print_message("%s: seed %llu: %s\n", name, (unsigned long long)seed, r->verdict);
        }
        run_free(r);
    }
    crash_fault = CRASH_SOUND;
    assert_int_equal(convicted, 1);
}

static void test_early_answers_are_found(void **state)
{
    convict(CRASH_ANSWERS_EARLY, "answers before the journal is durable");
}

static void test_early_sights_are_found(void **state)
{
    convict(CRASH_SHOWS_EARLY, "shows what is not durable");
}

static void test_claims_apart_are_found(void **state)
{
    convict(CRASH_CLAIM_APART, "keeps the producer's state in another record");
}

static void test_half_appends_are_found(void **state)
{
    convict(CRASH_EVENTS_APART, "makes one append two records");
}

static void test_forgotten_removes_are_found(void **state)
{
    convict(CRASH_FORGETS_REMOVES, "does not write removes down");
}

static void test_no_sync_is_found(void **state)
{
    convict(CRASH_NEVER_SYNCS, "does not sync");
}

static void test_unsynced_segments_are_found(void **state)
{
    convict(CRASH_FORGETS_SEGMENTS, "does not sync segments");
}

static void test_second_sync_is_found(void **state)
{
    convict(CRASH_SYNCS_AGAIN, "syncs again after an error");
}

static void test_unsynced_merges_are_found(void **state)
{
    convict(CRASH_MERGES_UNSYNCED, "does not sync segments with merged blocks");
}

static void test_merges_away_are_found(void **state)
{
    convict(CRASH_MERGES_AWAY, "has no row of a merged block");
}

static void test_rows_of_merged_blocks_are_found(void **state)
{
    convict(CRASH_MERGES_ROWS, "keeps the rows of merged blocks");
}

static void test_notes_of_merged_blocks_are_found(void **state)
{
    convict(CRASH_MERGES_UNNOTED, "keeps the rows of merged blocks in its notes");
}

static void test_ordinals_of_merged_blocks_are_found(void **state)
{
    convict(CRASH_MERGES_ORDINAL, "miscounts merged blocks");
}

static void test_times_of_merged_blocks_are_found(void **state)
{
    convict(CRASH_MERGES_TIMES, "loses the times of merged blocks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_what_was_acknowledged_is_there_once, seeds_teardown),
        cmocka_unit_test(test_early_answers_are_found),
        cmocka_unit_test(test_early_sights_are_found),
        cmocka_unit_test(test_claims_apart_are_found),
        cmocka_unit_test(test_half_appends_are_found),
        cmocka_unit_test(test_forgotten_removes_are_found),
        cmocka_unit_test(test_no_sync_is_found),
        cmocka_unit_test(test_unsynced_segments_are_found),
        cmocka_unit_test(test_second_sync_is_found),
        cmocka_unit_test(test_unsynced_merges_are_found),
        cmocka_unit_test(test_merges_away_are_found),
        cmocka_unit_test(test_rows_of_merged_blocks_are_found),
        cmocka_unit_test(test_notes_of_merged_blocks_are_found),
        cmocka_unit_test(test_ordinals_of_merged_blocks_are_found),
        cmocka_unit_test(test_times_of_merged_blocks_are_found),
    };
    return cmocka_run_group_tests_name("fault/store_crash", tests, NULL, NULL);
}
