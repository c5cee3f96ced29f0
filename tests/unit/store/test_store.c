// SPDX-License-Identifier: Apache-2.0
/* The store in memory: what the model tests do not reach, or would not point at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "store/mem/mem_store.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>

#define COUNT(a)   (sizeof(a) / sizeof *(a))
#define START_MONO 5000
#define START_WALL 1700000000000
#define SWEEP_MS   3000 /* by then what has expired is gone */
#define CHAIN      500

struct watcher {
    struct store_watch watch;
    bool on;
    int n_told;
    struct watcher *also_unwatch; /* when told */
    struct watcher *also_watch;
    struct str last;
    char text[16];
};

struct bench {
    struct sched sched;
    struct store *store;
    int64_t wall_ms;
    uint64_t mono_ms;
    struct watcher watchers[4];
};

static int bench_setup(void **state)
{
    struct bench *b = mem_zalloc(sizeof *b);
    b->mono_ms = START_MONO;
    b->wall_ms = START_WALL;
    sched_init(&b->sched, b->mono_ms, b->wall_ms);
    b->store = mem_store_new(&b->sched);
    *state = b;
    return 0;
}

static int bench_teardown(void **state)
{
    struct bench *b = *state;
    for (size_t i = 0; i < COUNT(b->watchers); i++)
        if (b->watchers[i].on) /* the test failed on its way */
            store_unwatch(b->store, &b->watchers[i].watch);
    store_free(b->store);
    free(b);
    return 0;
}

/* The wall clock moves; nobody sweeps. */
static void set_wall(struct bench *b, int64_t wall_ms)
{
    b->wall_ms = wall_ms;
    sched_turn(&b->sched, b->mono_ms, b->wall_ms);
}

static void pass_s(struct bench *b, int64_t s)
{
    set_wall(b, b->wall_ms + s * 1000);
}

static void let_sweep(struct bench *b)
{
    for (int ms = 0; ms < SWEEP_MS; ms += 500) {
        b->mono_ms += 500;
        sched_turn(&b->sched, b->mono_ms, b->wall_ms);
    }
}

/* ---- operations, run to their end ---- */

struct write_call {
    struct store_write w;
    int n, err;
};

static void on_write(struct store_write *w, int err)
{
    struct write_call *c = container_of(w, struct write_call, w);
    c->n++;
    c->err = err;
}

static int do_write(struct bench *b, struct store_write *w)
{
    struct write_call c = {.w = *w};
    c.w.done = on_write;
    store_write(b->store, &c.w);
    assert_int_equal(c.n, 0); /* never before the call has returned */
    sched_drain(&b->sched);
    assert_int_equal(c.n, 1);
    *w = c.w;
    w->info.content_type = STR_NONE; /* was lent */
    return c.err;
}

struct remove_call {
    struct store_remove r;
    int n, err;
};

static void on_remove(struct store_remove *r, int err)
{
    struct remove_call *c = container_of(r, struct remove_call, r);
    c->n++;
    c->err = err;
}

static int do_remove(struct bench *b, const char *name)
{
    struct remove_call c = {.r = {.name = str_of_cstr(name), .done = on_remove}};
    store_remove(b->store, &c.r);
    assert_int_equal(c.n, 0);
    sched_drain(&b->sched);
    assert_int_equal(c.n, 1);
    return c.err;
}

struct stat_call {
    struct store_stat st;
    int n, err;
};

static void on_stat(struct store_stat *st, int err)
{
    struct stat_call *c = container_of(st, struct stat_call, st);
    c->n++;
    c->err = err;
}

static int do_stat(struct bench *b, const char *name, struct stream_info *info)
{
    struct stat_call c = {.st = {.name = str_of_cstr(name), .done = on_stat}};
    store_stat(b->store, &c.st);
    assert_int_equal(c.n, 0);
    sched_drain(&b->sched);
    assert_int_equal(c.n, 1);
    *info = c.st.info;
    return c.err;
}

static int stat_err(struct bench *b, const char *name)
{
    struct stream_info info;
    return do_stat(b, name, &info);
}

struct read_call {
    struct store_read r;
    int n, err;
};

static void on_read(struct store_read *r, int err)
{
    struct read_call *c = container_of(r, struct read_call, r);
    c->n++;
    c->err = err;
}

static int do_read(struct bench *b, struct store_read *r)
{
    struct read_call c = {.r = *r};
    c.r.done = on_read;
    store_read(b->store, &c.r);
    assert_int_equal(c.n, 0);
    sched_drain(&b->sched);
    assert_int_equal(c.n, 1);
    *r = c.r;
    return c.err;
}

static int touch_err(struct bench *b, const char *name)
{
    struct store_read r = {.name = str_of_cstr(name), .from = READ_TAIL, .touch = true};
    return do_read(b, &r);
}

struct put_call {
    struct store_put p;
    int n, err;
};

static void on_put(struct store_put *p, int err)
{
    struct put_call *c = container_of(p, struct put_call, p);
    c->n++;
    c->err = err;
}

static int do_put(struct bench *b, struct doc_put *docs, size_t n)
{
    struct put_call c = {.p = {.docs = docs, .n_docs = n, .done = on_put}};
    store_put(b->store, &c.p);
    assert_int_equal(c.n, 0);
    sched_drain(&b->sched);
    assert_int_equal(c.n, 1);
    return c.err;
}

/* The version of a document, by a listing of one; 0: not there. */
struct doc_call {
    struct store_docs d;
    uint64_t version;
    int n;
};

static void on_docs(struct store_docs *d, int err)
{
    struct doc_call *c = container_of(d, struct doc_call, d);
    assert_int_equal(err, 0);
    c->n++;
    if (d->n_rows == 1 && str_eq(d->rows[0].key, d->prefix))
        c->version = d->rows[0].version;
}

static uint64_t doc_version(struct bench *b, const char *key)
{
    struct doc_call c = {.d = {.prefix = str_of_cstr(key), .limit = 1, .done = on_docs}};
    store_docs(b->store, &c.d);
    sched_drain(&b->sched);
    assert_int_equal(c.n, 1);
    return c.version;
}

static const struct stream_config text_config = {
    .content_type = STR_INIT("text/plain"), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};

static void create_as(struct bench *b, const char *name, const struct stream_config *config)
{
    struct store_write w = {.name = str_of_cstr(name), .create = config};
    assert_int_equal(do_write(b, &w), 0);
    assert_true(w.created);
}

static void create(struct bench *b, const char *name)
{
    create_as(b, name, &text_config);
}

static void create_ttl(struct bench *b, const char *name, int64_t ttl_s)
{
    struct stream_config c = text_config;
    c.ttl_s = ttl_s;
    create_as(b, name, &c);
}

static void fork_stream(struct bench *b, const char *name, const char *of)
{
    struct stream_config c = text_config;
    c.fork_of = str_of_cstr(of);
    c.fork_at_tail = true;
    create_as(b, name, &c);
}

static int append(struct bench *b, const char *name, const char *text)
{
    struct store_write w = {.name = str_of_cstr(name), .data = str_of_cstr(text)};
    return do_write(b, &w);
}

/* ---- preconditions ---- */

/* Stream "s": life 1, tail 4, producer p at 0.0, Stream-Seq "m"; document "d" at version 1. */
static struct doc_put good_doc, bad_doc;

static void prepare(struct bench *b)
{
    struct doc_put doc = {.key = STR("d"), .value = STR("1")};
    create(b, "s");
    struct store_write w = {.name = STR("s"),
                            .data = STR("data"),
                            .claim = {STR("p"), 0, 0},
                            .seq = STR("m"),
                            .docs = &doc,
                            .n_docs = 1};
    assert_int_equal(do_write(b, &w), 0);
    assert_int_equal(w.info.tail, 4);
    good_doc = (struct doc_put){.key = STR("d"), .value = STR("2"), .expect_version = 1};
    bad_doc = (struct doc_put){.key = STR("d"), .value = STR("2"), .expect_version = 7};
}

static struct store_write good_write(void)
{
    return (struct store_write){.name = STR("s"),
                                .content_type = STR("text/plain"),
                                .data = STR("more"),
                                .claim = {STR("p"), 0, 1},
                                .seq = STR("n"),
                                .if_match = true,
                                .match = {1, 4},
                                .docs = &good_doc,
                                .n_docs = 1};
}

enum { BAD_TYPE, BAD_CLAIM, BAD_SEQ, BAD_MATCH, BAD_DATA, BAD_DOC, N_BAD };

static const int bad_errs[N_BAD] = {
    [BAD_TYPE] = ERR_TYPE_MISMATCH, [BAD_CLAIM] = ERR_SEQ_GAP, [BAD_SEQ] = ERR_SEQ_ORDER,
    [BAD_MATCH] = ERR_TAIL_MOVED,   [BAD_DATA] = ERR_EMPTY,    [BAD_DOC] = ERR_VERSION,
};

static void spoil(struct store_write *w, int what)
{
    switch (what) {
    case BAD_TYPE: w->content_type = STR("text/html"); break;
    case BAD_CLAIM: w->claim.seq = 2; break;
    case BAD_SEQ: w->seq = STR("a"); break;
    case BAD_MATCH: w->match.pos = 3; break;
    case BAD_DATA: w->data_err = ERR_EMPTY; break;
    default: w->docs = &bad_doc; break;
    }
}

static void check_unchanged(struct bench *b)
{
    struct stream_info info;
    assert_int_equal(do_stat(b, "s", &info), 0);
    assert_int_equal(info.tail, 4);
    assert_int_equal(info.end, END_NONE);
    assert_int_equal(doc_version(b, "d"), 1);
}

/* Every set of failing preconditions: the first in order is the answer, and nothing has changed,
 * neither what can be read nor what the producer and Stream-Seq have got to. */
static void test_rejected_writes_change_nothing(void **state)
{
    struct bench *b = *state;
    prepare(b);
    for (unsigned set = 1; set < 1u << N_BAD; set++) {
        struct store_write w = good_write();
        w.close = set % 2;
        w.end = w.close ? END_FAILED : END_NONE;
        int first = 0;
        for (int i = N_BAD - 1; i >= 0; i--)
            if (set & 1u << i) {
                spoil(&w, i);
                first = bad_errs[i];
            }
        int err = do_write(b, &w);
        if (err != first)
            fail_msg("set %#x: %s, expected %s", set, err_name(err), err_name(first));
        check_unchanged(b);
    }
    struct store_write w = good_write();
    assert_int_equal(do_write(b, &w), 0);
    assert_int_equal(w.info.tail, 8);
    assert_false(w.duplicate);
    assert_int_equal(doc_version(b, "d"), 2);
}

static void test_existence_goes_before_all(void **state)
{
    struct bench *b = *state;
    prepare(b);
    struct store_write w = good_write();
    for (int i = 0; i < N_BAD; i++)
        spoil(&w, i);
    struct store_write missing = w;
    missing.name = STR("t");
    assert_int_equal(do_write(b, &missing), ERR_NOT_FOUND);
    fork_stream(b, "f", "s");
    assert_int_equal(do_remove(b, "s"), 0);
    assert_int_equal(do_write(b, &w), ERR_DELETED);
    w.create = &text_config;
    assert_int_equal(do_write(b, &w), ERR_EXISTS);
}

static void test_closed_goes_before_the_rest(void **state)
{
    struct bench *b = *state;
    prepare(b);
    struct store_write w = {.name = STR("s"), .close = true, .end = END_CANCELLED};
    assert_int_equal(do_write(b, &w), 0);
    w = good_write();
    for (int i = 0; i < N_BAD; i++)
        spoil(&w, i);
    assert_int_equal(do_write(b, &w), ERR_CLOSED);
    assert_int_equal(w.info.tail, 4); /* told with the refusal */
    assert_int_equal(w.info.end, END_CANCELLED);
}

static void test_failed_create_leaves_nothing(void **state)
{
    struct bench *b = *state;
    struct store_write w = {.name = STR("s"), .create = &text_config, .data_err = ERR_JSON};
    assert_int_equal(do_write(b, &w), ERR_JSON);
    assert_int_equal(stat_err(b, "s"), ERR_NOT_FOUND);
    create(b, "source");
    struct stream_config c = text_config;
    c.fork_of = STR("source");
    c.fork_at_tail = true;
    w.create = &c;
    assert_int_equal(do_write(b, &w), ERR_JSON);
    assert_int_equal(do_remove(b, "source"), 0);
    assert_int_equal(stat_err(b, "source"), ERR_NOT_FOUND); /* no reference was taken */
}

static void test_producers_are_limited(void **state)
{
    struct bench *b = *state;
    create(b, "s");
    char id[16];
    for (int i = 0; i <= STORE_PRODUCERS_MAX; i++) {
        int n = snprintf(id, sizeof id, "p%d", i);
        struct store_write w = {
            .name = STR("s"), .data = STR("x"), .claim = {str_of(id, (size_t)n), 0, 0}};
        assert_int_equal(do_write(b, &w), i < STORE_PRODUCERS_MAX ? 0 : ERR_LIMIT);
    }
    struct stream_info info;
    assert_int_equal(do_stat(b, "s", &info), 0);
    assert_int_equal(info.tail, STORE_PRODUCERS_MAX);
    struct store_write known = {.name = STR("s"), .data = STR("x"), .claim = {STR("p5"), 0, 1}};
    assert_int_equal(do_write(b, &known), 0);
    assert_int_equal(append(b, "s", "x"), 0);
}

/* ---- lifetimes ---- */

static void test_ttl_slides(void **state)
{
    struct bench *b = *state;
    create_ttl(b, "s", 10);
    pass_s(b, 9);
    assert_int_equal(touch_err(b, "s"), 0);
    pass_s(b, 9);
    assert_int_equal(append(b, "s", "x"), 0);
    pass_s(b, 9);
    struct store_write w = {.name = STR("s"), .claim = {STR("p"), 0, 0}};
    assert_int_equal(do_write(b, &w), 0);
    pass_s(b, 9);
    assert_int_equal(do_write(b, &w), 0);
    assert_true(w.duplicate); /* also a repeated request is an access */
    pass_s(b, 9);
    struct store_write close = {.name = STR("s"), .close = true, .end = END_COMPLETED};
    assert_int_equal(do_write(b, &close), 0);
    pass_s(b, 9);
    assert_int_equal(stat_err(b, "s"), 0); /* does not count */
    struct store_read quiet = {.name = STR("s"), .from = READ_START};
    assert_int_equal(do_read(b, &quiet), 0);
    store_read_release(&quiet);
    pass_s(b, 1);
    assert_int_equal(stat_err(b, "s"), ERR_NOT_FOUND);
}

static void test_rejected_write_is_no_access(void **state)
{
    struct bench *b = *state;
    create_ttl(b, "s", 10);
    pass_s(b, 9);
    struct store_write w = {.name = STR("s"), .data = STR("x"), .content_type = STR("a/b")};
    assert_int_equal(do_write(b, &w), ERR_TYPE_MISMATCH);
    pass_s(b, 1);
    assert_int_equal(stat_err(b, "s"), ERR_NOT_FOUND);
}

static void test_expires_at_stays(void **state)
{
    struct bench *b = *state;
    struct stream_config c = text_config;
    c.expires_ms = START_WALL + 10000;
    create_as(b, "s", &c);
    set_wall(b, START_WALL + 9999);
    assert_int_equal(append(b, "s", "x"), 0);
    assert_int_equal(touch_err(b, "s"), 0);
    set_wall(b, START_WALL + 10000);
    assert_int_equal(touch_err(b, "s"), ERR_NOT_FOUND);
    create(b, "s"); /* with another configuration, at once */
}

/* An earlier wall clock neither revives what has expired nor lengthens what has not. */
static void test_clock_that_goes_back(void **state)
{
    struct bench *b = *state;
    create_ttl(b, "s", 10);
    pass_s(b, 20);
    create_ttl(b, "t", 10);
    pass_s(b, -15);
    assert_int_equal(stat_err(b, "s"), ERR_NOT_FOUND);
    assert_int_equal(touch_err(b, "t"), 0);
    pass_s(b, 24);
    assert_int_equal(stat_err(b, "t"), 0);
    pass_s(b, 1);
    assert_int_equal(stat_err(b, "t"), ERR_NOT_FOUND);
}

/* A chain of forks that all go with the last one. */
/* ---- retention ---- */

static uint64_t first_of(struct bench *b, const char *name)
{
    struct stat_call c = {.st = {.name = str_of_cstr(name), .done = on_stat}};
    store_stat(b->store, &c.st);
    sched_drain(&b->sched);
    assert_int_equal(c.err, 0);
    return c.st.info.first;
}

static void create_retaining(struct bench *b, const char *name, struct retain retain)
{
    struct stream_config config = text_config;
    config.retain = retain;
    create_as(b, name, &config);
}

static void test_age_is_told_apart_within_a_stream(void **state)
{
    struct bench *b = *state;
    create_retaining(b, "s", (struct retain){.age_ms = 32000});
    for (int i = 0; i < 10; i++) { /* one byte every 4 s */
        assert_int_equal(append(b, "s", "x"), 0);
        pass_s(b, 4);
    }
    let_sweep(b); /* 40 s after the first: those of 0 s and 4 s are more than 32 s old */
    assert_int_equal(first_of(b, "s"), 2);
    pass_s(b, 100);
    let_sweep(b);
    assert_int_equal(first_of(b, "s"), 10);
    struct store_read r = {.name = STR("s"), .from = READ_START, .max_bytes = 100};
    assert_int_equal(do_read(b, &r), 0);
    assert_int_equal(r.n_slices, 0);
    assert_int_equal(append(b, "s", "y"), 0);
    assert_int_equal(first_of(b, "s"), 10);
}

static void test_bounds_hold_together(void **state)
{
    struct bench *b = *state;
    create_retaining(b, "s", (struct retain){.events = 3, .bytes = 10});
    for (int i = 0; i < 5; i++)
        assert_int_equal(append(b, "s", "ab"), 0);
    assert_int_equal(first_of(b, "s"), 4); /* three events */
    assert_int_equal(append(b, "s", "abcdefgh"), 0);
    assert_int_equal(first_of(b, "s"), 8); /* ten bytes */
}

static void test_a_fork_inherits_bounds(void **state)
{
    struct bench *b = *state;
    create_retaining(b, "s", (struct retain){.events = 2});
    for (int i = 0; i < 3; i++)
        assert_int_equal(append(b, "s", "x"), 0);
    fork_stream(b, "f", "s");
    assert_int_equal(first_of(b, "f"), 1);
    assert_int_equal(append(b, "s", "x"), 0);
    assert_int_equal(first_of(b, "s"), 2);
    assert_int_equal(first_of(b, "f"), 1);
    assert_int_equal(append(b, "f", "y"), 0);
    assert_int_equal(first_of(b, "f"), 2);
}

static void test_last_fork_takes_its_sources_along(void **state)
{
    struct bench *b = *state;
    char name[16], of[16];
    b->store->fork_depth = CHAIN;
    create(b, "0");
    for (int i = 1; i < CHAIN; i++) {
        snprintf(name, sizeof name, "%d", i);
        snprintf(of, sizeof of, "%d", i - 1);
        fork_stream(b, name, of);
        assert_int_equal(do_remove(b, of), 0);
        assert_int_equal(stat_err(b, of), ERR_DELETED);
    }
    assert_int_equal(stat_err(b, "0"), ERR_DELETED);
    assert_int_equal(do_remove(b, name), 0);
    for (int i = 0; i < CHAIN; i++) {
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(stat_err(b, name), ERR_NOT_FOUND);
    }
}

/* ---- reading ---- */

static void test_slices_outlive_the_stream(void **state)
{
    struct bench *b = *state;
    create(b, "s");
    assert_int_equal(append(b, "s", "first"), 0);
    struct store_read r = {.name = STR("s"), .from = READ_START, .max_bytes = 100};
    assert_int_equal(do_read(b, &r), 0);
    assert_int_equal(append(b, "s", "second"), 0);
    assert_int_equal(do_remove(b, "s"), 0);
    assert_int_equal(r.n_slices, 1);
    assert_int_equal(r.slices[0].bytes.n, 5);
    assert_memory_equal(r.slices[0].bytes.p, "first", 5);
    store_read_release(&r);
    assert_int_equal(r.n_slices, 0);
}

/* Two operations of one turn happen in the order of the calls. */
static void test_in_the_order_of_the_calls(void **state)
{
    struct bench *b = *state;
    struct write_call made = {
        .w = {.name = STR("s"), .create = &text_config, .data = STR("abc"), .done = on_write}};
    struct read_call seen = {
        .r = {.name = STR("s"), .from = READ_START, .max_bytes = 9, .done = on_read}};
    struct remove_call gone = {.r = {.name = STR("s"), .done = on_remove}};
    struct stat_call after = {.st = {.name = STR("s"), .done = on_stat}};
    store_write(b->store, &made.w);
    store_read(b->store, &seen.r);
    store_remove(b->store, &gone.r);
    store_stat(b->store, &after.st);
    sched_drain(&b->sched);
    assert_int_equal(made.err, 0);
    assert_int_equal(seen.err, 0);
    assert_int_equal(seen.r.next, 3);
    assert_int_equal(gone.err, 0);
    assert_int_equal(after.err, ERR_NOT_FOUND);
    store_read_release(&seen.r);
}

/* ---- documents ---- */

static void test_puts_are_all_or_nothing(void **state)
{
    struct bench *b = *state;
    struct doc_put two[] = {{.key = STR("a"), .value = STR("1")},
                            {.key = STR("b"), .value = STR("1"), .expect_version = 3}};
    assert_int_equal(do_put(b, two, 2), ERR_VERSION);
    assert_int_equal(doc_version(b, "a"), 0);
    two[1].expect_version = 0;
    assert_int_equal(do_put(b, two, 2), 0);
    assert_int_equal(doc_version(b, "a"), DOC_NEXT(0));
    two[0] = (struct doc_put){.key = STR("a"), .value = STR_NONE, .expect_version = DOC_NEXT(0)};
    two[1].expect_version = DOC_NEXT(0);
    assert_int_equal(do_put(b, two, 2), 0);
    assert_int_equal(doc_version(b, "a"), 0);
    assert_int_equal(doc_version(b, "b"), DOC_NEXT(DOC_NEXT(0)));
}

/* ---- watches ---- */

static struct bench *bench_now; /* of on_changed */

static void start_watch(struct bench *b, struct watcher *w, struct str name);

static void unwatch(struct bench *b, struct watcher *w)
{
    store_unwatch(b->store, &w->watch);
    w->on = false;
}

static void on_changed(struct store_watch *watch, struct str name)
{
    struct watcher *w = container_of(watch, struct watcher, watch);
    w->n_told++;
    assert_true(name.n <= sizeof w->text);
    w->last = str_of(memcpy(w->text, name.p, name.n), name.n);
    if (w->also_unwatch != NULL)
        unwatch(bench_now, w->also_unwatch);
    if (w->also_watch != NULL)
        start_watch(bench_now, w->also_watch, w->watch.name);
    w->also_unwatch = w->also_watch = NULL;
}

static void start_watch(struct bench *b, struct watcher *w, struct str name)
{
    bench_now = b;
    w->watch = (struct store_watch){.name = name, .changed = on_changed};
    w->on = true;
    store_watch(b->store, &w->watch);
}

static void test_watch_tells_of_every_kind_of_change(void **state)
{
    struct bench *b = *state;
    struct watcher *one = &b->watchers[0], *other = &b->watchers[1], *all = &b->watchers[2];
    start_watch(b, one, STR("s")); /* of a stream that is yet to come */
    start_watch(b, other, STR("t"));
    start_watch(b, all, STR_NONE);
    create_ttl(b, "s", 10);
    assert_int_equal(one->n_told, 1);
    assert_int_equal(append(b, "s", "x"), 0);
    assert_int_equal(one->n_told, 2);
    struct store_write close = {.name = STR("s"), .close = true, .end = END_COMPLETED};
    assert_int_equal(do_write(b, &close), 0);
    assert_int_equal(one->n_told, 3);
    assert_int_equal(do_remove(b, "s"), 0);
    assert_int_equal(one->n_told, 4);
    assert_int_equal(all->n_told, 4);
    assert_int_equal(other->n_told, 0);
    assert_true(str_eq(all->last, STR("s")));
    unwatch(b, one);
    create(b, "s");
    assert_int_equal(one->n_told, 4);
    assert_int_equal(all->n_told, 5);
    unwatch(b, other);
    unwatch(b, all);
}

static void test_watch_tells_of_expiry(void **state)
{
    struct bench *b = *state;
    struct watcher *w = &b->watchers[0], *source = &b->watchers[1];
    create_ttl(b, "source", 1);
    fork_stream(b, "s", "source"); /* takes the TTL over */
    start_watch(b, w, STR("s"));
    start_watch(b, source, STR("source"));
    pass_s(b, 2);
    assert_int_equal(w->n_told, 0);
    let_sweep(b); /* nobody asks for it */
    assert_true(w->n_told > 0);
    assert_true(source->n_told > 0);
    unwatch(b, w);
    unwatch(b, source);
}

static void test_watch_keeps_quiet_when_nothing_changed(void **state)
{
    struct bench *b = *state;
    struct watcher *w = &b->watchers[0];
    create(b, "s");
    start_watch(b, w, STR("s"));
    struct store_write bad = {.name = STR("s"), .data = STR("x"), .content_type = STR("a/b")};
    assert_int_equal(do_write(b, &bad), ERR_TYPE_MISMATCH);
    struct store_write again = {.name = STR("s"), .create = &text_config};
    assert_int_equal(do_write(b, &again), 0);
    assert_int_equal(touch_err(b, "s"), 0);
    assert_int_equal(w->n_told, 0);
    unwatch(b, w);
}

static void test_changes_of_one_turn_are_one_call(void **state)
{
    struct bench *b = *state;
    struct watcher *w = &b->watchers[0];
    create(b, "s");
    start_watch(b, w, STR("s"));
    struct write_call calls[20] = {0};
    for (size_t i = 0; i < COUNT(calls); i++) {
        calls[i].w = (struct store_write){.name = STR("s"), .data = STR("x"), .done = on_write};
        store_write(b->store, &calls[i].w);
    }
    sched_drain(&b->sched);
    assert_int_equal(w->n_told, 1);
    unwatch(b, w);
}

static void test_unwatch_from_changed(void **state)
{
    struct bench *b = *state;
    struct watcher *w = b->watchers;
    create(b, "s");
    for (size_t i = 0; i < 3; i++)
        start_watch(b, &w[i], STR("s"));
    w[0].also_unwatch = &w[0]; /* itself */
    w[1].also_unwatch = &w[2]; /* one that is yet to be told */
    w[1].also_watch = &w[3];
    assert_int_equal(append(b, "s", "x"), 0);
    assert_int_equal(w[0].n_told, 1);
    assert_int_equal(w[1].n_told, 1);
    assert_int_equal(w[2].n_told, 0);
    int late = w[3].n_told;
    assert_int_equal(append(b, "s", "x"), 0);
    assert_int_equal(w[0].n_told, 1);
    assert_int_equal(w[1].n_told, 2);
    assert_int_equal(w[3].n_told, late + 1);
    w[1].also_unwatch = &w[1]; /* the last ones leave within the call */
    w[3].also_unwatch = &w[3];
    assert_int_equal(append(b, "s", "x"), 0);
    assert_int_equal(w[1].n_told, 3);
}

static void test_free_with_a_notice_pending(void **state)
{
    struct bench *b = *state;
    struct watcher *w = &b->watchers[0];
    create(b, "s");
    start_watch(b, w, STR("s"));
    struct write_call c = {.w = {.name = STR("s"), .data = STR("x"), .done = on_write}};
    store_write(b->store, &c.w);
    while (c.n == 0) { /* up to the write, not up to the notice behind it */
        struct task *t = list_item(b->sched.tasks.next, struct task, link);
        task_cancel(t);
        t->run(t);
    }
    unwatch(b, w);
    assert_int_equal(w->n_told, 0);
}

/* ---- texts ---- */

static void test_reasons_have_names(void **state)
{
    static const char *const ends[] = {"",       "completed", "cancelled",
                                       "failed", "orphaned",  "expired"};
    static const char *const gaps[] = {"trimmed", "expired", "reborn", "unknown"};
    for (size_t i = 0; i < COUNT(ends); i++)
        assert_true(str_eq(end_reason_text((enum end_reason)i), str_of_cstr(ends[i])));
    for (size_t i = 0; i < COUNT(gaps); i++)
        assert_true(str_eq(gap_reason_text((enum gap_reason)i), str_of_cstr(gaps[i])));
}

#define BENCH_TEST(f) cmocka_unit_test_setup_teardown(f, bench_setup, bench_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BENCH_TEST(test_rejected_writes_change_nothing),
        BENCH_TEST(test_existence_goes_before_all),
        BENCH_TEST(test_closed_goes_before_the_rest),
        BENCH_TEST(test_failed_create_leaves_nothing),
        BENCH_TEST(test_producers_are_limited),
        BENCH_TEST(test_ttl_slides),
        BENCH_TEST(test_rejected_write_is_no_access),
        BENCH_TEST(test_expires_at_stays),
        BENCH_TEST(test_clock_that_goes_back),
        BENCH_TEST(test_age_is_told_apart_within_a_stream),
        BENCH_TEST(test_bounds_hold_together),
        BENCH_TEST(test_a_fork_inherits_bounds),
        BENCH_TEST(test_last_fork_takes_its_sources_along),
        BENCH_TEST(test_slices_outlive_the_stream),
        BENCH_TEST(test_in_the_order_of_the_calls),
        BENCH_TEST(test_puts_are_all_or_nothing),
        BENCH_TEST(test_watch_tells_of_every_kind_of_change),
        BENCH_TEST(test_watch_tells_of_expiry),
        BENCH_TEST(test_watch_keeps_quiet_when_nothing_changed),
        BENCH_TEST(test_changes_of_one_turn_are_one_call),
        BENCH_TEST(test_unwatch_from_changed),
        BENCH_TEST(test_free_with_a_notice_pending),
        cmocka_unit_test(test_reasons_have_names),
    };
    return cmocka_run_group_tests_name("unit/store", tests, NULL, NULL);
}
