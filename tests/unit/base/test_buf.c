// SPDX-License-Identifier: Apache-2.0
/* What holds bytes: buf, arena, block. */
#include "base/arena.h"
#include "base/block.h"
#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* -- buf -------------------------------------------------------------------------------------- */

static void test_buf_puts(void **state)
{
    struct buf b = {0};
    buf_put(&b, STR_NONE);
    assert_int_equal(b.n, 0);
    buf_put(&b, STR("a\0b"));
    buf_putc(&b, ',');
    buf_put_u64(&b, 0);
    buf_putc(&b, ',');
    buf_put_u64(&b, UINT64_MAX);
    buf_printf(&b, ",%s:%03d", "x", 7);
    assert_true(str_eq(buf_str(&b), STR("a\0b,0,18446744073709551615,x:007")));
    buf_deinit(&b);
    assert_true(b.p == NULL && b.n == 0 && b.cap == 0);
    buf_putc(&b, 'z'); /* may be used again */
    assert_true(str_eq(buf_str(&b), STR("z")));
    buf_deinit(&b);
    buf_deinit(&b);
}

/* Pieces of all sizes around the growth steps: nothing is lost when the bytes move. */
static void test_buf_grows(void **state)
{
    struct buf b = {0};
    char piece[301];
    size_t total = 0;
    for (size_t n = 0; n <= 300; n++) {
        memset(piece, (int)('A' + n % 26), n);
        buf_put(&b, str_of(piece, n));
        total += n;
        assert_int_equal(b.n, total);
        assert_true(b.cap >= b.n);
    }
    const char *p = b.p;
    for (size_t n = 0; n <= 300; n++)
        for (size_t i = 0; i < n; i++)
            assert_int_equal(*p++, 'A' + n % 26);
    buf_deinit(&b);
}

static void test_buf_reserve(void **state)
{
    struct buf b = {0};
    assert_non_null(buf_reserve(&b, 0));
    char *at = buf_reserve(&b, 1000);
    memset(at, 'x', 1000);
    assert_int_equal(b.n, 0);
    b.n = 1000;
    buf_reserve(&b, 5000);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(b.p[i], 'x');
    assert_true(b.cap - b.n >= 5000);
    buf_deinit(&b);
}

/* The text that just fits and the one that just does not: vsnprintf wants room for a NUL too. */
static void test_buf_printf_at_the_edge(void **state)
{
    for (int width = 120; width < 140; width++) {
        struct buf b = {0};
        buf_printf(&b, "%*d", width, 7);
        assert_int_equal(b.n, width);
        assert_int_equal(b.p[width - 1], '7');
        buf_printf(&b, "%s", "");
        assert_int_equal(b.n, width);
        buf_deinit(&b);
    }
}

/* -- arena ------------------------------------------------------------------------------------ */

static void test_arena_keeps_all(void **state)
{
    struct arena a = {0};
    unsigned char *p[400];
    for (size_t i = 0; i < 400; i++) {
        size_t n = i * i % 5000;
        p[i] = arena_alloc(&a, n);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % _Alignof(max_align_t), 0);
        memset(p[i], (int)i & 0xff, n);
    }
    for (size_t i = 0; i < 400; i++)
        for (size_t k = 0; k < i * i % 5000; k++)
            assert_int_equal(p[i][k], i & 0xff);
    arena_deinit(&a);
    assert_null(a.chunks);
    arena_deinit(&a);
}

static void test_arena_texts(void **state)
{
    struct arena a = {0};
    char text[] = "a\0b";
    assert_int_equal(arena_dup(&a, STR_NONE).n, 0);
    assert_non_null(arena_alloc(&a, 0));
    struct str copy = arena_dup(&a, str_of(text, 3));
    text[0] = 'x';
    assert_true(str_eq(copy, STR("a\0b")));
    struct str printed = arena_printf(&a, "%s/%d", "stream", 42);
    assert_true(str_eq(printed, STR("stream/42")));
    assert_int_equal(arena_printf(&a, "%*d", 9000, 1).n, 9000); /* more than a chunk */
    assert_true(str_eq(printed, STR("stream/42")));
    assert_true(str_eq(copy, STR("a\0b")));
    arena_deinit(&a);
}

static void test_arena_cache(void **state)
{
    struct arena_cache cache = {0};
    struct arena a = {.cache = &cache};
    void *first = arena_alloc(&a, 100);
    arena_alloc(&a, 1000000); /* too large to be worth keeping */
    arena_deinit(&a);
    assert_int_equal(cache.n, 1);
    assert_ptr_equal(a.cache, &cache); /* it is for the next round too */
    assert_ptr_equal(arena_alloc(&a, 100), first);
    assert_int_equal(cache.n, 0);
    memset(arena_alloc(&a, 100000), 'x', 100000); /* must not come from a cached chunk */
    for (int i = 0; i < 3 * ARENA_CACHE_MAX; i++)
        memset(arena_alloc(&a, 3000), 'y', 3000);
    arena_deinit(&a);
    assert_int_equal(cache.n, ARENA_CACHE_MAX);
    memset(arena_alloc(&a, 100000), 'z', 100000);
    assert_int_equal(cache.n, ARENA_CACHE_MAX);
    arena_deinit(&a);
    arena_cache_deinit(&cache);
    assert_true(cache.n == 0 && cache.chunks == NULL);
}

/* Chunks that are wanted now and then stay; the others go. */
static void test_arena_cache_trim(void **state)
{
    struct arena_cache cache = {.slab = {.paged = true}};
    struct arena a = {.cache = &cache};
    for (int i = 0; i < 40; i++)
        arena_alloc(&a, 3000);
    arena_deinit(&a);
    assert_int_equal(cache.n, 40);
    arena_cache_trim(&cache); /* all were wanted */
    assert_int_equal(cache.n, 40);
    for (int i = 0; i < 3; i++)
        arena_alloc(&a, 3000);
    arena_deinit(&a);
    arena_cache_trim(&cache);
    assert_int_equal(cache.n, 3);
    assert_true(cache.slab.pages <= 2); /* one of them is spare */
    arena_cache_trim(&cache);
    assert_true(cache.n == 0 && cache.chunks == NULL);
    arena_alloc(&a, 3000);
    arena_cache_trim(&cache);
    arena_deinit(&a);
    arena_cache_deinit(&cache);
}

/* -- block ------------------------------------------------------------------------------------ */

static void test_block(void **state)
{
    struct block *b = block_new(16);
    assert_true(b->refs == 1 && b->cap == 16 && b->n == 0);
    memcpy(b->bytes, "0123456789abcdef", 16);
    b->n = 16;
    struct slice s = slice_of(b, 4, 8);
    assert_true(str_eq(s.bytes, STR("4567")));
    assert_ptr_equal(s.owner, b);
    assert_ptr_equal(block_ref(b), b);
    block_unref(b);
    assert_true(str_eq(s.bytes, STR("4567"))); /* one reference is left */
    block_unref(b);

    assert_null(block_ref(NULL));
    block_unref(NULL);
    assert_null(slice_static(STR("x")).owner);
}

static void test_block_of(void **state)
{
    char text[] = "abc";
    struct block *b = block_of(str_of(text, 3));
    text[0] = 'x';
    assert_true(b->refs == 1 && b->n == 3 && b->cap == 3);
    assert_memory_equal(b->bytes, "abc", 3);
    block_unref(b);
    b = block_of(STR_NONE);
    assert_int_equal(b->n, 0);
    block_unref(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buf_puts),        cmocka_unit_test(test_buf_grows),
        cmocka_unit_test(test_buf_reserve),     cmocka_unit_test(test_buf_printf_at_the_edge),
        cmocka_unit_test(test_arena_keeps_all), cmocka_unit_test(test_arena_texts),
        cmocka_unit_test(test_arena_cache),     cmocka_unit_test(test_arena_cache_trim),
        cmocka_unit_test(test_block),           cmocka_unit_test(test_block_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
