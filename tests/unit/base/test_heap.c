// SPDX-License-Identifier: Apache-2.0
#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/seeds.h"

#define ITEMS 200

/* The first one has the lowest key of all that are in, and items know where they are. */
static void assert_heap(const struct heap *h, const struct heap_item *items)
{
    uint32_t n = 0;
    int64_t lowest = INT64_MAX;
    for (int i = 0; i < ITEMS; i++) {
        if (items[i].place == 0)
            continue;
        n++;
        assert_ptr_equal(h->items[items[i].place - 1], &items[i]);
        if (items[i].key < lowest)
            lowest = items[i].key;
    }
    assert_int_equal(h->n, n);
    if (n == 0)
        assert_null(heap_first(h));
    else
        assert_int_equal(heap_first(h)->key, lowest);
}

static void test_model(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct rng rng = {seed};
        struct heap h = {0};
        struct heap_item items[ITEMS] = {{0}};
        for (int i = 0; i < 3000; i++) {
            struct heap_item *item = &items[rng_below(&rng, ITEMS)];
            if (rng_percent(&rng, i / 700 % 2 == 0 ? 70 : 30))
                heap_put(&h, item, (int64_t)rng_below(&rng, 100) - 50);
            else if (rng_one_in(&rng, 2))
                heap_remove(&h, item);
            else if (h.n > 0)
                heap_remove(&h, heap_first(&h));
            assert_heap(&h, items);
        }
        heap_deinit(&h);
    }
}

static void test_in_order(void **state)
{
    struct rng rng = {1};
    struct heap h = {0};
    struct heap_item items[ITEMS] = {{0}};
    for (int i = 0; i < ITEMS; i++)
        heap_put(&h, &items[i], (int64_t)rng_next(&rng));
    int64_t last = INT64_MIN;
    for (struct heap_item *i; (i = heap_first(&h)) != NULL; heap_remove(&h, i)) {
        assert_true(i->key >= last);
        last = i->key;
    }
    heap_deinit(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
