// SPDX-License-Identifier: Apache-2.0
/* What the cache lets go of: the oldest, never much at once, and in the end enough. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/budget.h"
#include "store/catalog/extent.h"
#include "store/embedded/cache.h"

#define SMALL   1000
#define AT_ONCE 64

struct world {
    struct sched sched;
    struct budget budget;
    struct cache cache;
};

static void put(struct world *w, uint64_t life, uint64_t first, size_t n)
{
    static char bytes[1 << 20];
    struct extent *c = extent_new(first, first / 100, (uint32_t)n);
    extent_append(c, str_of(bytes, n), NULL, 1, 1);
    cache_put(&w->cache, life, c);
    extent_unref(c);
}

/* Small extents of one stream, and room for them and not much more. */
static void begin(struct world *w)
{
    sched_init(&w->sched, 0, 0);
    w->budget = (struct budget){.max = 1 << 20};
    cache_init(&w->cache, &w->sched, 1 << 20, &w->budget);
    for (uint64_t i = 0; i < SMALL; i++)
        put(w, 1, i * 100, 100);
    assert_int_equal(w->cache.extents.n, SMALL);
}

static void test_a_large_extent_takes_their_place_by_and_by(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    put(&w, 2, 0, 1000 * 1000);
    assert_int_equal(w.cache.extents.n, SMALL + 1 - AT_ONCE);
    sched_drain(&w.sched);
    assert_true(w.cache.bytes <= w.cache.max);
    assert_non_null(cache_get(&w.cache, 2, 0, 1));
    assert_null(cache_get(&w.cache, 1, 0, 1));
    cache_deinit(&w.cache);
}

/* What is to go is still there for who asks, and is not made larger. */
static void test_it_gives_way_by_and_by(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    budget_pin(&w.budget, w.budget.max);
    assert_int_equal(w.cache.extents.n, SMALL - AT_ONCE);
    assert_non_null(cache_get(&w.cache, 1, AT_ONCE * 100, EXTENT_BYTES_MAX));
    assert_int_equal(w.cache.extents.n, SMALL - AT_ONCE);
    sched_drain(&w.sched);
    assert_int_equal(w.cache.extents.n, 0);
    assert_int_equal(w.cache.bytes, 0);
    budget_unpin(&w.budget, w.budget.max);
    cache_deinit(&w.cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_large_extent_takes_their_place_by_and_by),
        cmocka_unit_test(test_it_gives_way_by_and_by),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
