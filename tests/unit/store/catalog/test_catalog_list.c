// SPDX-License-Identifier: Apache-2.0
/* Listings cost what is on their page: slices are counted, and a slice looks at 1,024 entries at
 * most. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "model/seeds.h"
#include "store/catalog/catalog.h"
#include "store/mem/mem_store.h"
#include "store/names.h"

#define WALL_MS 1700000000000
#define MANY    5000 /* slices of them */
#define TTL_S   10

struct world {
    struct sched sched;
    struct store store;
    struct catalog catalog;
    struct rng rng;
};

static void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){.rng.state = seed};
    sched_init(&w->sched, 0, WALL_MS);
    w->store = (struct store){.sched = &w->sched, .fork_depth = STORE_FORK_DEPTH};
    catalog_init(&w->catalog, &w->store);
    w->catalog.keep_removed_docs = true;
    catalog_start_clock(&w->catalog);
}

static void world_deinit(struct world *w)
{
    catalog_deinit(&w->catalog);
    sched_drain(&w->sched);
}

static struct stream *add(struct world *w, const char *name, int64_t ttl_s)
{
    struct stream_config config = {.ttl_s = ttl_s, .expires_ms = STORE_TTL_NONE};
    struct stream *s = catalog_add(&w->catalog, str_of_cstr(name), w->catalog.lives + 1, &config,
                                   STR("text/plain"));
    stream_show(&w->catalog, s);
    return s;
}

static struct stream *add_numbered(struct world *w, const char *prefix, unsigned i, int64_t ttl_s)
{
    char name[64];
    snprintf(name, sizeof name, "%s%05u", prefix, i);
    return add(w, name, ttl_s);
}

static void put_doc(struct world *w, unsigned i, struct str value, uint64_t version)
{
    char key[64];
    snprintf(key, sizeof key, "doc/%05u", i);
    struct doc_put put = {str_of_cstr(key), value, version};
    catalog_put_docs(&w->catalog, &put, 1);
}

/* How many slices it took. */
static int slices(struct world *w, struct store_list *l)
{
    int n = 1;
    while (!catalog_find_list(&w->catalog, l))
        n++;
    return n;
}

static int doc_slices(struct world *w, struct store_docs *d)
{
    int n = 1;
    while (!catalog_find_docs(&w->catalog, d))
        n++;
    return n;
}

static void done_list(struct store_list *l, int err)
{
}

static void done_docs(struct store_docs *d, int err)
{
}

/* ---- against a model ---- */

#define NAMES 400

struct known {
    char name[32];
    struct stream *stream;
    uint64_t life;
    bool is_there; /* settled, and neither removed nor about to expire */
};

static const char *const starts[] = {"", "a", "a/", "b/c/", ".route/", ".tool/", "sessions/", "z"};
#define STARTS (sizeof starts / sizeof *starts)

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct known *)a)->name, ((const struct known *)b)->name);
}

static bool is_listed(const struct known *k, const struct store_list *l)
{
    struct str name = str_of_cstr(k->name);
    return k->is_there && str_starts(name, l->prefix) &&
           (l->after.n == 0 || str_cmp(name, l->after) > 0) &&
           (l->reserved || !store_reserved(name));
}

/* Streams of all kinds, some of which are no longer there. */
static void make_streams(struct world *w, struct known *all)
{
    for (unsigned i = 0; i < NAMES; i++) {
        struct known *k = &all[i];
        snprintf(k->name, sizeof k->name, "%s%u", starts[i % STARTS], i);
        struct stream_config config = {.ttl_s = rng_one_in(&w->rng, 5) ? TTL_S : STORE_TTL_NONE,
                                       .expires_ms = STORE_TTL_NONE};
        k->stream = catalog_add(&w->catalog, str_of_cstr(k->name), i + 1, &config, STR("x/y"));
        k->life = i + 1;
        bool settled = !rng_one_in(&w->rng, 6);
        if (settled)
            stream_show(&w->catalog, k->stream);
        k->is_there = settled && config.ttl_s < 0;
    }
    for (unsigned i = 0; i + 1 < NAMES; i++) {
        struct stream_config fork = {.fork_of = all[i].stream->name};
        bool forked = rng_one_in(&w->rng, 8);
        if (forked) /* by the next, which keeps it */
            stream_fork_from(all[i + 1].stream, &fork, all[i].stream, 0, 0);
        if (forked || rng_one_in(&w->rng, 8)) {
            catalog_remove(&w->catalog, all[i].stream);
            all[i].is_there = false;
        }
        i += forked;
    }
    qsort(all, NAMES, sizeof *all, by_name);
}

static void assert_lists(struct world *w, const struct known *all, struct store_list *l)
{
    size_t n = 0;
    slices(w, l);
    for (size_t i = 0; i < NAMES; i++) {
        if (!is_listed(&all[i], l))
            continue;
        if (n < l->limit) {
            assert_true(n < l->n_rows);
            assert_true(str_eq(l->rows[n].name, str_of_cstr(all[i].name)));
            assert_int_equal(l->rows[n].info.life, all[i].life);
        }
        n++;
    }
    assert_int_equal(l->n_rows, n < l->limit ? n : l->limit);
    assert_int_equal(l->more, n > l->limit);
    catalog_end_list(l, 0);
}

static void test_model(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        static struct known all[NAMES];
        struct world w;
        world_init(&w, seed);
        make_streams(&w, all);
        w.sched.wall_ms += TTL_S * 1000;
        w.sched.now_ms += TTL_S * 1000;
        for (int i = 0; i < 50; i++) {
            struct str after = str_of_cstr(all[rng_below(&w.rng, NAMES)].name);
            if (rng_one_in(&w.rng, 4))
                after.n = rng_below(&w.rng, after.n + 1);
            assert_lists(&w, all,
                         &(struct store_list){
                             .prefix = str_of_cstr(starts[rng_below(&w.rng, STARTS)]),
                             .after = rng_one_in(&w.rng, 2) ? after : STR_NONE,
                             .limit = rng_one_in(&w.rng, 3) ? SIZE_MAX : rng_below(&w.rng, 30),
                             .reserved = rng_one_in(&w.rng, 2),
                             .done = done_list});
        }
        world_deinit(&w);
    }
}

/* ---- what a page costs ---- */

static void assert_first(struct world *w, struct store_list l, const char *name)
{
    l.done = done_list;
    assert_int_equal(slices(w, &l), 1);
    assert_int_equal(l.n_rows, name != NULL);
    if (name != NULL)
        assert_true(str_eq(l.rows[0].name, str_of_cstr(name)));
    catalog_end_list(&l, 0);
}

/* Neither how many there are counts, nor how many of them nobody is to see. */
static void test_page(void **state)
{
    struct world w;
    world_init(&w, 1);
    for (unsigned i = 0; i < MANY; i++) {
        add_numbered(&w, ".route/", i, STORE_TTL_NONE);
        add_numbered(&w, "sessions/", i, STORE_TTL_NONE);
        add_numbered(&w, "m/", i, STORE_TTL_NONE);
    }
    add(&w, "z", STORE_TTL_NONE);
    assert_first(&w, (struct store_list){.limit = 1}, "m/00000");
    assert_first(&w, (struct store_list){.limit = 1, .after = STR("m/04998")}, "m/04999");
    assert_first(&w, (struct store_list){.limit = 1, .after = STR("m/04999")}, "z");
    assert_first(&w, (struct store_list){.limit = 1, .prefix = STR("m/0123")}, "m/01230");
    assert_first(&w, (struct store_list){.limit = 1, .prefix = STR("sessions/")}, NULL);
    assert_first(&w, (struct store_list){.limit = 1, .prefix = STR("sess"), .reserved = true},
                 "sessions/00000");
    assert_first(&w, (struct store_list){.limit = 1, .prefix = STR("n")}, NULL);
    world_deinit(&w);
}

/* Streams that only forks keep, and those whose creation is not safe yet, are not on the way. */
static void test_unlisted_streams(void **state)
{
    struct world w;
    world_init(&w, 1);
    for (unsigned i = 0; i < MANY; i++) {
        struct stream *s = add_numbered(&w, "m/", i, STORE_TTL_NONE);
        struct stream *f = add_numbered(&w, "sessions/", i, STORE_TTL_NONE);
        stream_fork_from(f, &(struct stream_config){.fork_of = s->name}, s, 0, 0);
        catalog_remove(&w.catalog, s);
        assert_true(s->deleted);
        char name[64];
        snprintf(name, sizeof name, "n/%05u", i);
        struct stream_config config = {.ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
        catalog_add(&w.catalog, str_of_cstr(name), w.catalog.lives + 1, &config, STR("x/y"));
    }
    add(&w, "z", STORE_TTL_NONE);
    assert_first(&w, (struct store_list){.limit = 1}, "z");
    world_deinit(&w);
}

/* Those that have expired are removed, some at a time. */
static void test_expired(void **state)
{
    struct world w;
    world_init(&w, 1);
    for (unsigned i = 0; i < MANY; i++)
        add_numbered(&w, "m/", i, TTL_S);
    add(&w, "z", STORE_TTL_NONE);
    w.sched.wall_ms += TTL_S * 1000;
    w.sched.now_ms += TTL_S * 1000;
    struct store_list l = {.limit = 1, .done = done_list};
    assert_false(catalog_find_list(&w.catalog, &l));
    assert_true(w.catalog.streams.n > MANY - 1024); /* it has not removed more than that */
    assert_in_range(slices(&w, &l), 2, MANY * 8 / 1024 + 1);
    assert_int_equal(l.n_rows, 1);
    assert_true(str_eq(l.rows[0].name, STR("z")));
    assert_false(l.more);
    assert_int_equal(w.catalog.streams.n, 1);
    catalog_end_list(&l, 0);
    world_deinit(&w);
}

/* ---- changes between slices ---- */

/* Of the streams, the even ones stay; others come and go. */
static void test_changes(void **state)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct world w;
        struct stream *odd[MANY] = {0};
        world_init(&w, seed);
        for (unsigned i = 0; i < MANY; i += 2)
            add_numbered(&w, "m/", i, STORE_TTL_NONE);
        struct store_list l = {.limit = SIZE_MAX, .done = done_list};
        int n = 0;
        for (; !catalog_find_list(&w.catalog, &l); n++)
            for (unsigned i = 1; i < MANY; i += 2) {
                if (rng_one_in(&w.rng, 2) && odd[i] == NULL) {
                    odd[i] = add_numbered(&w, "m/", i, STORE_TTL_NONE);
                } else if (odd[i] != NULL && rng_one_in(&w.rng, 2)) {
                    catalog_remove(&w.catalog, odd[i]);
                    odd[i] = NULL;
                }
            }
        assert_true(n > 1);
        size_t even = 0;
        for (size_t i = 0; i < l.n_rows; i++) {
            even += (l.rows[i].name.p[6] - '0') % 2 == 0;
            assert_true(i == 0 || str_cmp(l.rows[i - 1].name, l.rows[i].name) < 0);
            assert_true(str_eq(l.rows[i].info.content_type, STR("text/plain")));
        }
        assert_int_equal(even, MANY / 2);
        catalog_end_list(&l, 0);
        world_deinit(&w);
    }
}

/* ---- documents ---- */

static void test_docs(void **state)
{
    struct world w;
    world_init(&w, 1);
    for (unsigned i = 0; i < MANY; i++)
        put_doc(&w, i, STR("value"), 0);
    struct store_docs page = {
        .prefix = STR("doc/"), .after = STR("doc/02000"), .limit = 2, .done = done_docs};
    assert_int_equal(doc_slices(&w, &page), 1);
    assert_int_equal(page.n_rows, 2);
    assert_true(page.more);
    assert_true(str_eq(page.rows[1].key, STR("doc/02002")));
    catalog_end_docs(&page, 0);

    struct store_docs one = {.prefix = STR("doc/00007"), .exact = true, .done = done_docs};
    assert_int_equal(doc_slices(&w, &one), 1);
    assert_int_equal(one.n_rows, 1);
    assert_false(one.more);
    catalog_end_docs(&one, 0);

    /* Removed ones are kept for the engine, and are not on the way. */
    for (unsigned i = 0; i + 1 < MANY; i++)
        put_doc(&w, i, STR_NONE, 1);
    assert_int_equal(w.catalog.docs.n, MANY);
    struct store_docs last = {.limit = 5, .done = done_docs};
    assert_int_equal(doc_slices(&w, &last), 1);
    assert_int_equal(last.n_rows, 1);
    assert_true(str_eq(last.rows[0].key, STR("doc/04999")));
    catalog_end_docs(&last, 0);
    put_doc(&w, 3, STR("again"), 0);
    struct store_docs all = {.prefix = STR("d"), .limit = SIZE_MAX, .done = done_docs};
    assert_int_equal(doc_slices(&w, &all), 1);
    assert_int_equal(all.n_rows, 2);
    catalog_end_docs(&all, 0);
    world_deinit(&w);
}

/* Large values are copied where there is another slice: they count for more. */
static void test_docs_change(void **state)
{
    static char large[DOC_VALUE_MAX];
    struct world w;
    world_init(&w, 1);
    for (unsigned i = 0; i < 200; i++)
        put_doc(&w, i, str_of(large, sizeof large), 0);
    struct store_docs all = {.limit = SIZE_MAX, .done = done_docs};
    int n = 0;
    for (; !catalog_find_docs(&w.catalog, &all); n++)
        for (unsigned i = 0; i < 200; i++)
            put_doc(&w, i, i % 2 == 0 ? STR("new") : STR_NONE, 1);
    assert_in_range(n, 1, 4);
    for (size_t i = 0; i < all.n_rows; i++)
        assert_true(all.rows[i].value.n == sizeof large || str_eq(all.rows[i].value, STR("new")));
    assert_in_range(all.n_rows, 100, 199);
    catalog_end_docs(&all, 0);
    world_deinit(&w);
}

/* ---- in a store ---- */

struct stopping {
    struct store_list list;
    size_t listed;
    bool stopped;
};

static void on_listed(struct store_list *l, int err)
{
    struct stopping *s = container_of(l, struct stopping, list);
    assert_int_equal(err, 0);
    assert_false(s->stopped);
    s->listed = l->n_rows;
}

static void on_stopped(void *ctx)
{
    ((struct stopping *)ctx)->stopped = true;
}

struct making {
    struct store_write op;
    char name[16];
};

static void on_made(struct store_write *w, int err)
{
    assert_int_equal(err, 0);
    free(container_of(w, struct making, op));
}

/* A store that stops finishes what it has begun. */
static void test_stop(void **state)
{
    struct sched sched;
    struct stopping s = {.list = {.limit = SIZE_MAX, .done = on_listed}};
    sched_init(&sched, 0, WALL_MS);
    struct store *store = mem_store_new(&sched);
    struct stream_config config = {
        .content_type = STR("text/plain"), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    for (unsigned i = 0; i < MANY; i++) {
        struct making *m = mem_zalloc(sizeof *m);
        snprintf(m->name, sizeof m->name, "%05u", i);
        m->op =
            (struct store_write){.name = str_of_cstr(m->name), .create = &config, .done = on_made};
        store_write(store, &m->op);
        sched_drain(&sched);
    }
    store_list(store, &s.list);
    store_stop(store, on_stopped, &s);
    sched_drain(&sched);
    assert_true(s.stopped);
    assert_int_equal(s.listed, MANY);
    store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_unlisted_streams),
        cmocka_unit_test(test_expired),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_docs),
        cmocka_unit_test(test_docs_change),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
