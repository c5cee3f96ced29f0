// SPDX-License-Identifier: Apache-2.0
#include "base/slab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define OBJECT 100
#define MANY   5000

static void test_objects_are_apart_and_zeroed(void **state)
{
    static char *objects[MANY];
    struct slab s = {.paged = true};
    for (int i = 0; i < MANY; i++) {
        objects[i] = slab_zalloc(&s, OBJECT);
        assert_int_equal((uintptr_t)objects[i] % 8, 0);
        for (int k = 0; k < OBJECT; k++)
            assert_int_equal(objects[i][k], 0);
        memset(objects[i], 1 + i % 100, OBJECT);
    }
    for (int i = 0; i < MANY; i += 2)
        slab_free(&s, objects[i]);
    for (int i = 0; i < MANY; i += 2) {
        objects[i] = slab_zalloc(&s, OBJECT);
        for (int k = 0; k < OBJECT; k++)
            assert_int_equal(objects[i][k], 0);
        memset(objects[i], 1 + i % 100, OBJECT);
    }
    for (int i = 0; i < MANY; i++)
        for (int k = 0; k < OBJECT; k++)
            assert_int_equal(objects[i][k], 1 + i % 100);
    for (int i = 0; i < MANY; i++)
        slab_free(&s, objects[i]);
    slab_deinit(&s);
}

/* What was freed is used again before there is another page, and pages go back. */
static void test_pages_are_as_many_as_are_needed(void **state)
{
    static void *objects[MANY];
    struct slab s = {.paged = true};
    size_t each = (SLAB_PAGE - 48) / 104, need = (MANY + each - 1) / each;
    for (int i = 0; i < MANY; i++)
        objects[i] = slab_zalloc(&s, OBJECT);
    assert_int_equal(s.pages, need);
    for (int round = 0; round < 3; round++) {
        for (int i = round; i < MANY; i += 3)
            slab_free(&s, objects[i]);
        for (int i = round; i < MANY; i += 3)
            objects[i] = slab_zalloc(&s, OBJECT);
        assert_int_equal(s.pages, need);
    }
    for (int i = 0; i < MANY; i++)
        slab_free(&s, objects[i]);
    assert_int_equal(s.pages, 1); /* the spare one */
    slab_deinit(&s);
    assert_int_equal(s.pages, 0);
}

static void test_one_that_comes_and_goes_asks_the_system_once(void **state)
{
    struct slab s = {.paged = true};
    void *first = slab_zalloc(&s, OBJECT);
    slab_free(&s, first);
    for (int i = 0; i < 100; i++) {
        void *object = slab_zalloc(&s, OBJECT);
        assert_ptr_equal(object, first);
        slab_free(&s, object);
    }
    assert_int_equal(s.pages, 1);
    slab_deinit(&s);
}

#define T(f) cmocka_unit_test(f)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_objects_are_apart_and_zeroed),
        T(test_pages_are_as_many_as_are_needed),
        T(test_one_that_comes_and_goes_asks_the_system_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
