// SPDX-License-Identifier: Apache-2.0
/* That something is not there is told when a crash cannot bring it back: after a delete, after an
 * expiry, to whoever asks and however. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/embedded/embedded_core.h"
#include "unit/store/store_bench.h"

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

/* ---- while the journal has no room for expiries ---- */

#define PUTS_MAX    256
#define REMOVES_MAX 64

struct fill {
    struct putting puts[PUTS_MAX];
    struct doc_put docs[PUTS_MAX];
    char keys[PUTS_MAX][8], names[REMOVES_MAX][8];
    struct removing removes[REMOVES_MAX];
    size_t n_puts, n_removes;
};

static struct journal *journal_of(const struct bench *b)
{
    return container_of(b->store, struct embedded, store)->journal;
}

static void start_put(struct bench *b, struct fill *f, struct str value)
{
    size_t i = f->n_puts++;
    assert_true(i < PUTS_MAX);
    snprintf(f->keys[i], sizeof f->keys[i], "%zu", i);
    f->docs[i] = (struct doc_put){.key = str_of_cstr(f->keys[i]), .value = value};
    f->puts[i] =
        (struct putting){.op = {.docs = &f->docs[i], .n_docs = 1, .done = on_put}, .err = PENDING};
    store_put(b->store, &f->puts[i].op);
    pass_turns(b, 1);
}

static void start_remove(struct bench *b, struct fill *f)
{
    size_t i = f->n_removes++;
    assert_true(i < REMOVES_MAX);
    f->removes[i] = (struct removing){.op = {.name = str_of_cstr(f->names[i]), .done = on_removed},
                                      .err = PENDING};
    store_remove(b->store, &f->removes[i].op);
    pass_turns(b, 1);
}

/* Until there is no room for anything, and nobody waits for some. */
static void fill_journal(struct bench *b, struct fill *f)
{
    static const size_t sizes[] = {8000, 500, 0};
    static char bytes[8000];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        while (journal_room(journal_of(b), sizes[i] + 128) == 0)
            start_put(b, f, str_of(bytes, sizes[i]));
    while (journal_room(journal_of(b), 64) == 0)
        start_remove(b, f);
    const struct embedded *e = container_of(b->store, struct embedded, store);
    assert_true(list_empty(&e->stalled));
}

enum asked { ASK_APPEND, ASK_FORK, ASK_REMOVE, ASK_STAT, ASKED };

struct asking {
    struct bench *bench;
    struct stream_config config;
    union {
        struct store_write write;
        struct store_remove remove;
        struct store_stat stat;
    } u;
    int err;
};

/* The machine dies as soon as somebody has been told. */
static void told(struct asking *a, int err)
{
    a->err = err;
    simfs_cut_power_at(a->bench->fs, 1);
}

static void told_write(struct store_write *w, int err)
{
    told(container_of(w, struct asking, u.write), err);
}

static void told_remove(struct store_remove *r, int err)
{
    told(container_of(r, struct asking, u.remove), err);
}

static void told_stat(struct store_stat *s, int err)
{
    told(container_of(s, struct asking, u.stat), err);
}

static void ask_for_a(struct bench *b, struct asking *a, enum asked what)
{
    *a = (struct asking){.bench = b, .err = PENDING};
    a->config = (struct stream_config){.fork_of = STR("a"),
                                       .fork_at_tail = true,
                                       .ttl_s = STORE_TTL_NONE,
                                       .expires_ms = STORE_TTL_NONE};
    if (what == ASK_REMOVE) {
        a->u.remove = (struct store_remove){.name = STR("a"), .done = told_remove};
        store_remove(b->store, &a->u.remove);
    } else if (what == ASK_STAT) {
        a->u.stat = (struct store_stat){.name = STR("a"), .done = told_stat};
        store_stat(b->store, &a->u.stat);
    } else {
        a->u.write = (struct store_write){.name = what == ASK_FORK ? STR("g") : STR("a"),
                                          .create = what == ASK_FORK ? &a->config : NULL,
                                          .data = STR("y"),
                                          .done = told_write};
        store_write(b->store, &a->u.write);
    }
}

/* unrested_max: beyond it writes do not wait for room, but are refused. */
static void check_no_room(enum asked what, uint64_t unrested_max)
{
    struct bench *b = bench_new(1);
    struct fill *f = mem_zalloc(sizeof *f);
    struct asking a;
    b->config.unrested_max = 1u << 20;
    assert_true(bench_open(b));
    assert_int_equal(create_ttl(b, "a", NULL, TTL_S), 0);
    for (size_t i = 0; i < REMOVES_MAX; i++) {
        snprintf(f->names[i], sizeof f->names[i], "s%zu", i);
        assert_int_equal(create_ttl(b, f->names[i], NULL, STORE_TTL_NONE), 0);
    }
    container_of(b->store, struct embedded, store)->config.unrested_max = unrested_max;
    simlane_hold(b->lanes.journal, true);
    simlane_hold(b->lanes.prepare, true);
    fill_journal(b, f);
    b->sched.wall_ms += TTL_S * 1000;
    ask_for_a(b, &a, what);
    pass_turns(b, 50);
    assert_int_equal(a.err, PENDING);
    simlane_hold(b->lanes.journal, false);
    simlane_hold(b->lanes.prepare, false);
    int err = await(b, &a.err);
    assert_int_equal(err, what == ASK_FORK ? ERR_FORK_SOURCE : ERR_NOT_FOUND);
    bench_close(b);
    simfs_kill(b->fs);
    assert_true(bench_open(b));
    ask_for_a(b, &a, ASK_STAT);
    assert_int_equal(await(b, &a.err), ERR_NOT_FOUND);
    bench_free(b);
    free(f);
}

/* Whoever is told of an expiry, by a refusal or otherwise, is told when it has been written down.
 */
static void test_no_room(void **state)
{
    for (int what = 0; what < ASKED; what++)
        check_no_room((enum asked)what, 1u << 20);
}

static void test_no_room_and_much_to_rest(void **state)
{
    for (int what = 0; what < ASKED; what++)
        check_no_room((enum asked)what, 0);
}

/* ---- a listing of several slices ---- */

#define MANY 3000

struct long_list {
    struct store_list op;
    struct store *store;
    size_t n_rows;
};

static void on_long_list(struct store_list *l, int err)
{
    struct long_list *list = container_of(l, struct long_list, op);
    assert_int_equal(err, 0);
    assert_int_equal(embedded_of(list->store)->stage, EMBEDDED_DRAINING);
    list->n_rows = l->n_rows;
}

/* A store that is told to stop finishes it before. */
static void test_stop_waits_for_a_listing(void **state)
{
    struct bench *b = bench_new(1);
    assert_true(bench_open(b));
    struct catalog *c = &embedded_of(b->store)->catalog;
    for (unsigned i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "%05u", i);
        struct stream_config config = {.ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
        stream_show(c, catalog_add(c, str_of_cstr(name), c->lives + 1, &config, STR("a/b")));
    }
    struct long_list list = {.op = {.limit = SIZE_MAX, .done = on_long_list}, .store = b->store};
    store_list(b->store, &list.op);
    bench_close(b);
    assert_int_equal(list.n_rows, MANY);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deleted),
        cmocka_unit_test(test_expired),
        cmocka_unit_test(test_expired_in_a_listing),
        cmocka_unit_test(test_made_again),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_no_room_and_much_to_rest),
        cmocka_unit_test(test_stop_waits_for_a_listing),
    };
    return cmocka_run_group_tests_name("unit/absence", tests, NULL, NULL);
}
