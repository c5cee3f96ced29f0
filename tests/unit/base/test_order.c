// SPDX-License-Identifier: Apache-2.0
#include "base/order.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

/* The model: all keys that can be, in order, and whether each is in. */
struct entry {
    struct str key;
    bool in;
};

struct model {
    struct order order;
    struct entry *entries;
    size_t n_keys, n;
    uint64_t random;
};

static struct str model_key(const void *item)
{
    return ((const struct entry *)item)->key;
}

static uint64_t draw(struct model *m, uint64_t below)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return m->random % below;
}

static int by_key(const void *a, const void *b)
{
    return str_cmp(((const struct entry *)a)->key, ((const struct entry *)b)->key);
}

/* Keys of all kinds: empty, runs of one byte, each a beginning of the next, bytes 0 and 255, long
 * ones that differ at the end, and such as names are. */
static size_t make_key(char *to, size_t room, size_t i)
{
    static const char *const shapes[] = {"chat/%zu", "chat/user-%05zu/messages/%zu", "%zu",
                                         ".route/0000000000000000000000000000/%06zu"};
    size_t kind = i % 7, k = i / 7;
    if (kind < 4)
        return (size_t)snprintf(to, room, shapes[kind], k, k % 3);
    if (kind == 6) { /* 0, 1 and 255 as digits of a base */
        size_t n = 0;
        for (; k > 0; k /= 3)
            to[n++] = (char)(k % 3 == 2 ? 255 : k % 3);
        to[n++] = 2;
        return n;
    }
    size_t n = k % 300;
    memset(to, kind == 4 ? 'a' : 0, n);
    n += (size_t)snprintf(to + n, room - n, "%.*zu", k >= 300 ? 1 : 0, k / 300);
    return n;
}

static void model_init(struct model *m, size_t n_keys, uint64_t seed)
{
    *m = (struct model){.n_keys = n_keys, .random = seed};
    m->entries = mem_zalloc(n_keys * sizeof *m->entries);
    order_init(&m->order, model_key);
    for (size_t i = 0; i < n_keys; i++) {
        char text[512];
        size_t n = make_key(text, sizeof text, i);
        m->entries[i].key = str_of(memcpy(mem_alloc(n + 1), text, n), n);
    }
    qsort(m->entries, n_keys, sizeof *m->entries, by_key);
    m->n_keys = 1;
    for (size_t i = 1; i < n_keys; i++)
        if (by_key(&m->entries[m->n_keys - 1], &m->entries[i]) != 0)
            m->entries[m->n_keys++] = m->entries[i];
        else
            free((char *)(uintptr_t)m->entries[i].key.p);
    assert_true(m->n_keys > n_keys / 2);
}

static void model_deinit(struct model *m)
{
    order_deinit(&m->order);
    for (size_t i = 0; i < m->n_keys; i++)
        free((char *)(uintptr_t)m->entries[i].key.p);
    free(m->entries);
}

/* A copy that is as long as the key: a look behind its end is seen. */
static void *seek_copy(const struct order *o, struct str key, struct order_place *place)
{
    char *text = mem_alloc(key.n > 0 ? key.n : 1);
    memcpy(text, key.p, key.n);
    void *found = order_seek(o, str_of(text, key.n), place);
    free(text);
    return found;
}

static void set(struct model *m, size_t i, bool in)
{
    struct entry *e = &m->entries[i];
    struct order_place place;
    if (e->in == in)
        return;
    if (in)
        order_put(&m->order, e);
    else
        order_remove(&m->order, e);
    e->in = in;
    m->n += in ? 1 : (size_t)-1;
    assert_int_equal(m->order.n, m->n);
    assert_true((order_seek(&m->order, e->key, &place) == e) == in);
}

static size_t next_in(const struct model *m, size_t i)
{
    while (i < m->n_keys && !m->entries[i].in)
        i++;
    return i;
}

static void *expected(struct model *m, size_t i)
{
    return i < m->n_keys ? &m->entries[i] : NULL;
}

/* From any key on, there or not: what the model has next, for some steps or up to the end. */
static void assert_walk(struct model *m, size_t i, size_t steps)
{
    struct order_place place;
    size_t want = next_in(m, i);
    void *found = seek_copy(&m->order, m->entries[i].key, &place);
    assert_ptr_equal(found, expected(m, want));
    for (; found != NULL && steps > 0; steps--) {
        want = next_in(m, want + 1);
        found = order_next(&place);
        assert_ptr_equal(found, expected(m, want));
    }
}

static void assert_all(struct model *m)
{
    struct order_place place;
    assert_ptr_equal(order_seek(&m->order, STR(""), &place), expected(m, next_in(m, 0)));
    assert_walk(m, 0, SIZE_MAX);
}

static void empty(struct model *m)
{
    for (size_t i = 0; i < m->n_keys; i++)
        set(m, i, false);
    assert_int_equal(m->order.n, 0);
    assert_null(m->order.root);
}

/* In waves, so that it also shrinks to nearly nothing, all over or in one place. */
static void run(size_t n_keys, uint64_t seed, int steps)
{
    struct model m;
    model_init(&m, n_keys, seed);
    n_keys = m.n_keys;
    for (int i = 0; i < steps; i++) {
        unsigned put_percent = i / (int)(2 * n_keys) % 2 == 0 ? 80 : 12;
        size_t at = draw(&m, n_keys);
        set(&m, at, draw(&m, 100) < put_percent);
        if (draw(&m, 300) == 0) { /* a range at once, from either end */
            size_t n = draw(&m, n_keys - at), k = 0;
            bool in = draw(&m, 2) == 0, down = draw(&m, 2) == 0;
            for (; k < n; k++)
                set(&m, down ? at + n - 1 - k : at + k, in);
        }
        if (i % 16 == 0)
            assert_walk(&m, draw(&m, n_keys), 100);
        if (i % 1024 == 0)
            assert_all(&m);
    }
    assert_all(&m);
    empty(&m);
    model_deinit(&m);
}

static void test_model_small(void **state)
{
    for (uint64_t seed = 1; seed <= 10; seed++)
        run(60, seed, 3000);
}

static void test_model_large(void **state)
{
    for (uint64_t seed = 1; seed <= 3; seed++)
        run(6000, seed, 50000);
}

static void fill(struct model *m, bool down)
{
    for (size_t i = 0; i < m->n_keys; i++)
        set(m, down ? m->n_keys - 1 - i : i, true);
    assert_all(m);
}

static void test_in_order(void **state)
{
    struct model m;
    model_init(&m, 20000, 1);
    fill(&m, false);
    empty(&m);
    fill(&m, true);
    for (size_t i = m.n_keys; i > 0; i--)
        set(&m, i - 1, false);
    assert_null(m.order.root);
    model_deinit(&m);
}

static void test_empty(void **state)
{
    struct model m;
    struct order_place place;
    model_init(&m, 2, 1);
    assert_null(order_seek(&m.order, STR("x"), &place));
    assert_null(order_next(&place));
    order_put(&m.order, &m.entries[1]);
    assert_ptr_equal(order_seek(&m.order, STR(""), &place), &m.entries[1]);
    assert_null(order_next(&place));
    assert_null(order_next(&place));
    model_deinit(&m);
}

/* ---- what it costs ---- */

static size_t looks; /* at keys */

static struct str counted_key(const void *item)
{
    looks++;
    return ((const struct entry *)item)->key;
}

static void model_count(struct model *m, size_t n_keys)
{
    model_init(m, n_keys, 1);
    m->order.key = counted_key;
    for (size_t i = 0; i < n_keys; i++)
        set(m, draw(m, n_keys), true);
    looks = 0;
}

/* Few keys are looked at, be there many or not. */
static void test_looks(void **state)
{
    struct model m;
    struct order_place place;
    model_count(&m, 50000);
    for (size_t i = 0; i < 1000; i++)
        order_seek(&m.order, m.entries[draw(&m, m.n_keys)].key, &place);
    assert_in_range(looks, 1, 10 * 1000);
    looks = 0;
    order_seek(&m.order, STR("chat/"), &place);
    for (size_t i = 0; i < 1000; i++)
        assert_non_null(order_next(&place));
    assert_in_range(looks, 0, 100);
    model_deinit(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_small), cmocka_unit_test(test_model_large),
        cmocka_unit_test(test_in_order),    cmocka_unit_test(test_empty),
        cmocka_unit_test(test_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
