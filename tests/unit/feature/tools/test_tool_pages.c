// SPDX-License-Identifier: Apache-2.0
/* Pages of a tool put together, as `tidemark tool all` does it. */
#include "base/err.h"
#include "feature/tools/cmd_tool_pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct tool_pages of(enum tool_merge merge, const char *field)
{
    return (struct tool_pages){.merge = merge,
                               .field = field != NULL ? str_of_cstr(field) : STR_NONE,
                               .max_pages = 3,
                               .max_bytes = 100};
}

static void assert_whole(struct tool_pages *p, const char *json)
{
    struct buf out = {0};
    tool_pages_put(p, &out);
    buf_putc(&out, '\0');
    assert_string_equal(out.p, json);
    buf_deinit(&out);
    tool_pages_deinit(p);
}

static void arrays_become_one(void **state)
{
    struct tool_pages p = of(TOOL_MERGE_CONCAT, NULL);
    assert_int_equal(tool_pages_add(&p, STR("[1, {\"a\":[2]}]"), true), 0);
    assert_int_equal(tool_pages_add(&p, STR("[]"), true), 0);
    assert_int_equal(tool_pages_add(&p, STR(" [ \"x,]\" ] "), false), 0);
    assert_int_equal(p.pages, 3);
    assert_whole(&p, "[1,{\"a\":[2]},\"x,]\"]");
    p = of(TOOL_MERGE_CONCAT, NULL);
    assert_int_equal(tool_pages_add(&p, STR("[]"), false), 0);
    assert_whole(&p, "[]");
    p = of(TOOL_MERGE_CONCAT, NULL);
    assert_int_equal(tool_pages_add(&p, STR("[1]"), true), 0);
    assert_int_equal(tool_pages_add(&p, STR("{}"), false), ERR_TYPE_MISMATCH);
    tool_pages_deinit(&p);
}

static void members_become_one(void **state)
{
    struct tool_pages p = of(TOOL_MERGE_FIELD, "rows");
    assert_int_equal(tool_pages_add(&p, STR("{\"n\":1,\"rows\":[1]}"), true), 0);
    assert_int_equal(tool_pages_add(&p, STR("{\"m\":3,\"rows\":[2,3],\"n\":2}"), false), 0);
    assert_whole(&p, "{\"m\":3,\"rows\":[1,2,3],\"n\":2}");
    static const char *const wrong[] = {"[]", "{}", "{\"rows\":1}", "1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        p = of(TOOL_MERGE_FIELD, "rows");
        assert_int_equal(tool_pages_add(&p, str_of_cstr(wrong[i]), false), ERR_TYPE_MISMATCH);
        tool_pages_deinit(&p);
    }
}

static void the_first_is_kept(void **state)
{
    struct tool_pages p = of(TOOL_MERGE_FIRST, NULL);
    assert_int_equal(tool_pages_add(&p, STR("{\"a\":1}"), true), 0);
    assert_int_equal(tool_pages_add(&p, STR("2"), false), 0);
    assert_int_equal(p.pages, 2);
    assert_whole(&p, "{\"a\":1}");
}

static void there_are_limits(void **state)
{
    struct tool_pages p = of(TOOL_MERGE_CONCAT, NULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tool_pages_add(&p, STR("[1]"), true), 0);
    assert_int_equal(tool_pages_add(&p, STR("[1]"), true), ERR_LIMIT);
    assert_int_equal(p.pages, 3);
    assert_int_equal(p.bytes, 9);
    tool_pages_deinit(&p);
    p = of(TOOL_MERGE_CONCAT, NULL);
    p.max_bytes = 9; /* white space between tokens does not count, that in strings does */
    assert_int_equal(tool_pages_add(&p, STR(" [ 1 , \"\\\" x\" ] "), false), ERR_LIMIT);
    assert_int_equal(p.bytes, 10);
    tool_pages_deinit(&p);
    p = of(TOOL_MERGE_CONCAT, NULL);
    p.max_bytes = 10;
    assert_int_equal(tool_pages_add(&p, STR(" [ 1 , \"\\\" x\" ] "), false), 0);
    tool_pages_deinit(&p);
}

static void ways_to_merge(void **state)
{
    enum tool_merge merge;
    struct str field;
    assert_int_equal(tool_merge_parse(STR("concat"), &merge, &field), 0);
    assert_int_equal(merge, TOOL_MERGE_CONCAT);
    assert_int_equal(tool_merge_parse(STR("first"), &merge, &field), 0);
    assert_int_equal(merge, TOOL_MERGE_FIRST);
    assert_int_equal(tool_merge_parse(STR("field:a b"), &merge, &field), 0);
    assert_int_equal(merge, TOOL_MERGE_FIELD);
    assert_true(str_eq(field, STR("a b")));
    assert_int_equal(tool_merge_parse(STR("field:"), &merge, &field), ERR_SYNTAX);
    assert_int_equal(tool_merge_parse(STR("last"), &merge, &field), ERR_SYNTAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_become_one), cmocka_unit_test(members_become_one),
        cmocka_unit_test(the_first_is_kept), cmocka_unit_test(there_are_limits),
        cmocka_unit_test(ways_to_merge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
