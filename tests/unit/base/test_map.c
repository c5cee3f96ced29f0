// SPDX-License-Identifier: Apache-2.0
#include "base/map.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define KEYS_MAX 9000

/* The model: what a key's place in this array says is what the map must say. */
struct entry {
    char name[64];
    struct str key;
    int *value; /* NULL: not in the map */
    bool seen;
};

struct model {
    struct entry entries[KEYS_MAX];
    size_t n_keys, n;
    uint64_t random;
    int values[KEYS_MAX][2]; /* two values per key, to tell a replacement */
};

static uint64_t draw(struct model *m, uint64_t below)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return m->random % below;
}

/* Keys of many lengths; one is empty, some differ behind a NUL only. */
static void model_init(struct model *m, size_t n_keys, uint64_t seed)
{
    *m = (struct model){.n_keys = n_keys, .random = seed};
    for (size_t i = 1; i < n_keys; i++) {
        struct entry *e = &m->entries[i];
        int n = snprintf(e->name, sizeof e->name, "k%c%zu%.*s", '\0', i, (int)(i % 40),
                         "........................................");
        e->key = str_of(e->name, (size_t)n);
    }
}

static void step(struct model *m, struct map *map, unsigned put_percent)
{
    size_t i = draw(m, m->n_keys);
    struct entry *e = &m->entries[i];
    int *before = e->value;
    if (draw(m, 100) < put_percent) {
        int *value = &m->values[i][draw(m, 2)];
        assert_ptr_equal(map_put(map, e->key, value), before);
        e->value = value;
        m->n += before == NULL;
    } else {
        assert_ptr_equal(map_remove(map, e->key), before);
        e->value = NULL;
        m->n -= before != NULL;
    }
    assert_int_equal(map->n, m->n);
    assert_ptr_equal(map_get(map, e->key), e->value);
}

static void assert_same(struct model *m, const struct map *map)
{
    size_t at = 0, walked = 0;
    for (size_t i = 0; i < m->n_keys; i++) {
        m->entries[i].seen = false;
        assert_ptr_equal(map_get(map, m->entries[i].key), m->entries[i].value);
    }
    for (int *value; (value = map_next(map, &at)) != NULL; walked++) {
        size_t i = (size_t)(value - &m->values[0][0]) / 2;
        assert_ptr_equal(m->entries[i].value, value);
        assert_false(m->entries[i].seen);
        m->entries[i].seen = true;
    }
    assert_int_equal(walked, m->n);
    assert_true(map->n * 4 <= map->cap * 3);
}

static void run(size_t n_keys, uint64_t seed, int steps)
{
    static struct model m;
    struct map map;
    size_t wave = n_keys < 500 ? 500 : n_keys * 2;
    map_init(&map);
    model_init(&m, n_keys, seed);
    assert_same(&m, &map);
    for (int i = 0; i < steps; i++) {
        /* in waves, so that it also empties */
        step(&m, &map, i / (int)wave % 2 == 0 ? 70 : 25);
        if (i % (int)(wave / 10) == 0)
            assert_same(&m, &map);
    }
    assert_same(&m, &map);
    map_deinit(&map);
}

/* In a table of 8 or 16 slots nearly every removal shifts, and many wrap around its end. */
static void test_model_small(void **state)
{
    for (uint64_t seed = 1; seed <= 25; seed++) {
        run(5, seed, 4000);
        run(7, seed, 4000);
    }
}

static void test_model_large(void **state)
{
    for (uint64_t seed = 1; seed <= 5; seed++)
        run(600, seed, 20000);
    for (uint64_t seed = 1; seed <= 3; seed++)
        run(KEYS_MAX, seed, 100000);
}

/* ---- a large one ---- */

#define LARGE 200000

static struct item {
    uint32_t number;
} items[LARGE];

static int number_items(void **state)
{
    for (uint32_t i = 0; i < LARGE; i++)
        items[i].number = i;
    return 0;
}

static struct str item_key(const struct item *i)
{
    return str_of((const char *)&i->number, sizeof i->number);
}

/* All that should be there is, whichever table it is in, and once. */
static void assert_items(const struct map *map, size_t from, size_t to)
{
    size_t at = 0, walked = 0;
    for (size_t i = 0; i < LARGE; i++)
        assert_ptr_equal(map_get(map, item_key(&items[i])), i >= from && i < to ? &items[i] : NULL);
    while (map_next(map, &at) != NULL)
        walked++;
    assert_int_equal(walked, to - from);
    assert_int_equal(map->n, to - from);
}

/* It takes a new size while it is used: some slots move with each change, never all of them. */
static void test_grows_and_shrinks_by_parts(void **state)
{
    struct map map;
    size_t moving = 0, sizes = 0;
    map_init(&map);
    for (uint32_t i = 0; i < LARGE; i++) {
        size_t cap = map.cap;
        assert_null(map_put(&map, item_key(&items[i]), &items[i]));
        if (map.cap != cap && cap > 1024) {
            assert_non_null(map.old);
            assert_items(&map, 0, i + 1);
            sizes++;
        }
        moving += map.old != NULL;
    }
    assert_int_equal(map.cap, 524288);
    assert_in_range(sizes, 7, 9);
    assert_in_range(moving, 10000, LARGE / 2); /* each slot once, eight of them at a time */
    assert_items(&map, 0, LARGE);
    sizes = 0;
    for (uint32_t i = 0; i < LARGE; i++) {
        size_t cap = map.cap;
        assert_ptr_equal(map_remove(&map, item_key(&items[i])), &items[i]);
        if (map.cap != cap) {
            assert_true(map.old != NULL || cap <= 1024);
            assert_items(&map, i + 1, LARGE);
            sizes++;
        }
    }
    assert_in_range(sizes, 7, 10);
    assert_true(map.cap <= 2048);
    assert_items(&map, 0, 0);
    map_deinit(&map);
}

/* It is let go of in the middle of that. */
static void test_deinit_while_it_moves(void **state)
{
    struct map map;
    map_init(&map);
    for (uint32_t i = 0; i < LARGE && (map.old == NULL || map.cap < 131072); i++) {
        map_put(&map, item_key(&items[i]), &items[i]);
    }
    assert_non_null(map.old);
    map_deinit(&map);
}

static void test_empty(void **state)
{
    struct map map;
    size_t at = 0;
    map_init(&map);
    assert_null(map_get(&map, STR("x")));
    assert_null(map_remove(&map, STR("x")));
    assert_null(map_next(&map, &at));
    map_deinit(&map);
}

static bool walk_survives(struct map *map, bool changes, bool starts_over)
{
    pid_t child = fork();
    if (child == 0) {
        size_t at = 0;
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        map_next(map, &at);
        if (changes)
            map_remove(map, item_key(&items[0]));
        if (starts_over)
            at = 0;
        map_next(map, &at);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) || WTERMSIG(status) == SIGABRT);
    return WIFEXITED(status);
}

/* Small, large, and while it takes another size. */
static void test_walk_over_a_change(void **state)
{
    static const uint32_t sizes[] = {3, 1000, 100000, 98305, 98400};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct map map;
        map_init(&map);
        for (uint32_t k = 0; k < sizes[i]; k++)
            map_put(&map, item_key(&items[k]), &items[k]);
        assert_true(walk_survives(&map, false, false));
        assert_false(walk_survives(&map, true, false));
        assert_true(walk_survives(&map, true, true));
        map_deinit(&map);
    }
}

/* The old key may die with the old value, so the new one must have taken its place. */
static void test_replace_takes_the_new_key(void **state)
{
    struct map map;
    char old_key[] = "same", new_key[] = "same";
    int a, b;
    map_init(&map);
    assert_null(map_put(&map, str_of(old_key, 4), &a));
    assert_ptr_equal(map_put(&map, str_of(new_key, 4), &b), &a);
    memset(old_key, 'x', 4);
    assert_ptr_equal(map_get(&map, STR("same")), &b);
    assert_int_equal(map.n, 1);
    map_deinit(&map);
}

/* A peer that knows the hash must not know the seed. */
static void test_seeds_differ(void **state)
{
    struct map a, b;
    map_init(&a);
    map_init(&b);
    assert_true(a.seed != b.seed);
    map_deinit(&a);
    map_deinit(&b);
}

/* One that was told how many come has their table from the start. */
static void test_reserved(void **state)
{
    struct map map;
    map_init(&map);
    map_reserve(&map, LARGE);
    const struct map_slot *slots = map.slots;
    for (size_t i = 0; i < LARGE; i++)
        assert_null(map_put(&map, item_key(&items[i]), &items[i]));
    assert_ptr_equal(map.slots, slots);
    assert_null(map.old);
    assert_int_equal(map.n, LARGE);
    assert_ptr_equal(map_get(&map, item_key(&items[LARGE - 1])), &items[LARGE - 1]);
    map_deinit(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_small),
        cmocka_unit_test(test_model_large),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_replace_takes_the_new_key),
        cmocka_unit_test(test_seeds_differ),
        cmocka_unit_test(test_grows_and_shrinks_by_parts),
        cmocka_unit_test(test_deinit_while_it_moves),
        cmocka_unit_test(test_walk_over_a_change),
        cmocka_unit_test(test_reserved),
    };
    return cmocka_run_group_tests(tests, number_items, NULL);
}
