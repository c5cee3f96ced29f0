// SPDX-License-Identifier: Apache-2.0
/* That something is not there is told when a crash cannot bring it back: after a delete, after an
 * expiry, to whoever asks and however. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/embedded_core.h"
#include "unit/store_bench.h"

#define TTL_S 5

static int create_ttl(struct bench *b, const char *name, const char *fork_of, int64_t ttl_s)
{
    struct stream_config config = {
        .content_type = STR("text/plain"), .ttl_s = ttl_s, .expires_ms = STORE_TTL_NONE};
    if (fork_of != NULL) {
        config.fork_of = str_of_cstr(fork_of);
        config.fork_at_tail = true;
    }
    return write_op(
        b, (struct store_write){.name = str_of_cstr(name), .create = &config, .data = STR("x")});
}

/* a; b; f, a fork of b. */
static struct bench *begin(int64_t ttl_s)
{
    struct bench *b = bench_new(1);
    assert_true(bench_open(b));
    assert_int_equal(create_ttl(b, "a", NULL, ttl_s), 0);
    assert_int_equal(create_ttl(b, "b", NULL, ttl_s), 0);
    assert_int_equal(create_ttl(b, "f", "b", 10000 * TTL_S), 0);
    return b;
}

/* ---- those who ask, all at once ---- */

struct questions {
    struct store_stat stat, deleted;
    struct store_read read;
    struct store_list list;
    int stat_err, deleted_err, read_err, list_err;
    size_t n_rows;
    char first[8];
};

static void on_stat(struct store_stat *s, int err)
{
    container_of(s, struct questions, stat)->stat_err = err;
}

static void on_deleted(struct store_stat *s, int err)
{
    container_of(s, struct questions, deleted)->deleted_err = err;
}

static void on_asked(struct store_read *r, int err)
{
    container_of(r, struct questions, read)->read_err = err;
    store_read_release(r);
}

static void on_list(struct store_list *l, int err)
{
    struct questions *q = container_of(l, struct questions, list);
    q->list_err = err;
    q->n_rows = l->n_rows;
    for (size_t i = 0; i < l->n_rows; i++) {
        strncat(q->first, l->rows[i].name.p, l->rows[i].name.n);
        assert_true(str_eq(l->rows[i].info.content_type, STR("text/plain")));
    }
}

static void ask(struct bench *b, struct questions *q)
{
    *q = (struct questions){
        .stat = {.name = STR("a"), .done = on_stat},
        .deleted = {.name = STR("b"), .done = on_deleted},
        .read = {.name = STR("a"), .from = READ_START, .max_bytes = 10, .done = on_asked},
        .list = {.limit = SIZE_MAX, .done = on_list},
        .stat_err = PENDING,
        .deleted_err = PENDING,
        .read_err = PENDING,
        .list_err = PENDING};
    store_stat(b->store, &q->stat);
    store_stat(b->store, &q->deleted);
    store_read(b->store, &q->read);
    store_list(b->store, &q->list);
    pass_turns(b, 50);
}

static void assert_pending(const struct questions *q)
{
    assert_int_equal(q->stat_err, PENDING);
    assert_int_equal(q->deleted_err, PENDING);
    assert_int_equal(q->read_err, PENDING);
    assert_int_equal(q->list_err, PENDING);
}

static void assert_absent(const struct questions *q)
{
    assert_int_equal(q->stat_err, ERR_NOT_FOUND);
    assert_int_equal(q->deleted_err, ERR_DELETED);
    assert_int_equal(q->read_err, ERR_NOT_FOUND);
    assert_int_equal(q->list_err, 0);
    assert_string_equal(q->first, "f");
}

/* Nobody is told before the journal has it; after a crash then it is as they were told. */
static void check_waits(struct bench *b, struct questions *q)
{
    ask(b, q);
    assert_pending(q);
    simlane_hold(b->lanes.journal, false);
    pass_turns(b, 100);
    assert_absent(q);
    simfs_cut_power_at(b->fs, 1);
    bench_close(b);
    simfs_kill(b->fs);
    assert_true(bench_open(b));
    ask(b, q);
    assert_absent(q);
    bench_free(b);
}

static void test_deleted(void **state)
{
    struct bench *b = begin(STORE_TTL_NONE);
    struct questions q;
    struct removing first = {.op = {.name = STR("a"), .done = on_removed}, .err = PENDING};
    struct removing second = {.op = {.name = STR("b"), .done = on_removed}, .err = PENDING};
    simlane_hold(b->lanes.journal, true);
    store_remove(b->store, &first.op);
    store_remove(b->store, &second.op);
    pass_turns(b, 20);
    assert_int_equal(first.err, PENDING);
    check_waits(b, &q);
    assert_int_equal(first.err, 0);
    assert_int_equal(second.err, 0);
}

/* An expired stream would be there again after a crash, for as long as its TTL says. */
static void test_expired(void **state)
{
    struct bench *b = begin(TTL_S);
    struct questions q;
    simlane_hold(b->lanes.journal, true);
    b->sched.wall_ms += TTL_S * 1000;
    check_waits(b, &q);
}

/* Seen by a listing and by nobody else. */
static void test_expired_in_a_listing(void **state)
{
    struct bench *b = begin(TTL_S);
    struct questions q = {.list = {.limit = SIZE_MAX, .done = on_list}, .list_err = PENDING};
    b->sched.wall_ms += TTL_S * 1000;
    store_list(b->store, &q.list);
    assert_int_equal(await(b, &q.list_err), 0);
    assert_string_equal(q.first, "f");
    simfs_cut_power_at(b->fs, 1);
    bench_close(b);
    simfs_kill(b->fs);
    assert_true(bench_open(b));
    ask(b, &q);
    assert_absent(&q);
    bench_free(b);
}

/* Gone and made again, neither of which is durable: the name is that of nobody until both are. */
static void test_made_again(void **state)
{
    struct bench *b = begin(STORE_TTL_NONE);
    struct questions q;
    struct stream_config config = {
        .content_type = STR("text/plain"), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    struct removing removing = {.op = {.name = STR("a"), .done = on_removed}, .err = PENDING};
    struct writing writing = {.op = {.name = STR("a"), .create = &config, .done = on_written},
                              .err = PENDING};
    simlane_hold(b->lanes.journal, true);
    store_remove(b->store, &removing.op);
    store_write(b->store, &writing.op);
    ask(b, &q);
    assert_int_equal(q.stat_err, PENDING);
    assert_int_equal(q.read_err, PENDING);
    simlane_hold(b->lanes.journal, false);
    pass_turns(b, 100);
    assert_int_equal(q.stat_err, ERR_NOT_FOUND);
    assert_int_equal(writing.err, 0);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deleted),
        cmocka_unit_test(test_expired),
        cmocka_unit_test(test_expired_in_a_listing),
        cmocka_unit_test(test_made_again),
    };
    return cmocka_run_group_tests_name("unit/absence", tests, NULL, NULL);
}
