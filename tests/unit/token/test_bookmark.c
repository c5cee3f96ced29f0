// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/err.h"
#include "token/bookmark.h"

#include <string.h>

static const uint8_t root[32] = {1, 2, 3}, other_root[32] = {1, 2, 4};

struct world {
    struct bookmark_key *key, *other;
    struct arena arena;
    struct buf text;
};

static void world_init(struct world *w)
{
    *w = (struct world){.key = bookmark_key_new(root), .other = bookmark_key_new(other_root)};
}

static void world_deinit(struct world *w)
{
    bookmark_key_free(w->key);
    bookmark_key_free(w->other);
    arena_deinit(&w->arena);
    buf_deinit(&w->text);
}

static void test_there_and_back(void **state)
{
    struct world w;
    char longest[BOOKMARK_PLACE_MAX];
    memset(longest, 'x', sizeof longest);
    const struct str places[] = {STR("a"), STR("t/acme/x"), STR("\xc3\xa4/\x7f"),
                                 str_of(longest, sizeof longest)};
    world_init(&w);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct str back = STR_NONE;
        w.text.n = 0;
        bookmark_put(w.key, places[i], &w.text);
        assert_true(bookmark_is(buf_str(&w.text)));
        assert_int_equal(bookmark_take(w.key, &w.arena, buf_str(&w.text), &back), 0);
        assert_true(str_eq(back, places[i]));
    }
    world_deinit(&w);
}

/* Neither the name nor its length, nor that it is the same as before. */
static void test_it_tells_nothing(void **state)
{
    struct world w;
    struct buf again = {0}, longer = {0};
    world_init(&w);
    bookmark_put(w.key, STR("t/acme/x"), &w.text);
    bookmark_put(w.key, STR("t/acme/x"), &again);
    bookmark_put(w.key, STR("t/acme/x/and/so/on"), &longer);
    assert_int_equal(w.text.n, longer.n);
    assert_int_equal(w.text.n, again.n);
    assert_false(str_eq(buf_str(&w.text), buf_str(&again)));
    assert_null(memmem(w.text.p, w.text.n, "acme", 4));
    buf_deinit(&again);
    buf_deinit(&longer);
    world_deinit(&w);
}

static void assert_refused(struct world *w, struct str text)
{
    struct str place = STR("as it was");
    assert_int_equal(bookmark_take(w->key, &w->arena, text, &place), ERR_SYNTAX);
    assert_true(str_eq(place, STR("as it was")));
}

static void test_what_is_none_of_ours(void **state)
{
    struct world w;
    world_init(&w);
    bookmark_put(w.other, STR("t/acme/x"), &w.text);
    assert_refused(&w, buf_str(&w.text));
    w.text.n = 0;
    bookmark_put(w.key, STR("t/acme/x"), &w.text);
    for (size_t n = 0; n < w.text.n; n++)
        assert_refused(&w, str_of(w.text.p, n));
    for (size_t i = 0; i < w.text.n; i++) {
        char was = w.text.p[i];
        w.text.p[i] = was == 'A' ? 'B' : 'A';
        assert_refused(&w, buf_str(&w.text));
        w.text.p[i] = was;
    }
    buf_putc(&w.text, 'A');
    assert_refused(&w, buf_str(&w.text));
    assert_refused(&w, STR(""));
    assert_refused(&w, STR("t/acme/x"));
    world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_it_tells_nothing),
        cmocka_unit_test(test_what_is_none_of_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
