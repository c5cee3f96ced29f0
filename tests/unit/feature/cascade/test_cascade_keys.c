// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "feature/cascade/cascade_keys.h"

#include <stdlib.h>

static void four_kinds_are_told_apart(void **state)
{
    static const struct {
        const char *key;
        enum cascade_key_kind kind;
    } cases[] = {
        {"sk-ws-01-Zm9v_-", CASCADE_KEY_WINDSURF},
        {"devin-session-token$eyJh.eyJz.c2ln", CASCADE_KEY_DEVIN},
        {"cog_abc", CASCADE_KEY_TEAM},
        {"6f9619ff-8b86-d011-b42d-00c04fc964ff", CASCADE_KEY_LEGACY},
        {"sk-ws-02-x", CASCADE_KEY_LEGACY},
        {"devin-session-token", CASCADE_KEY_LEGACY},
        {"SK-WS-01-x", CASCADE_KEY_LEGACY},
        {"", CASCADE_KEY_MALFORMED},
        {"sk-ws-01-", CASCADE_KEY_MALFORMED},
        {"devin-session-token$", CASCADE_KEY_MALFORMED},
        {"cog_", CASCADE_KEY_MALFORMED},
        {"cog_a b", CASCADE_KEY_MALFORMED},
        {"cog_a\n", CASCADE_KEY_MALFORMED},
        {"cog_\xc3\xa4", CASCADE_KEY_MALFORMED},
        {" cog_a", CASCADE_KEY_MALFORMED},
        {"cog_a\x7f", CASCADE_KEY_MALFORMED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(cascade_key_kind(str_of_cstr(cases[i].key)), cases[i].kind);
}

static void keys_have_an_end(void **state)
{
    char key[CASCADE_KEY_MAX + 1];
    memset(key, 'k', sizeof key);
    memcpy(key, "cog_", 4);
    assert_int_equal(cascade_key_kind(str_of(key, CASCADE_KEY_MAX)), CASCADE_KEY_TEAM);
    assert_int_equal(cascade_key_kind(str_of(key, CASCADE_KEY_MAX + 1)), CASCADE_KEY_MALFORMED);
}

static void refusals_say_what_to_do(void **state)
{
    assert_null(cascade_key_refusal(CASCADE_KEY_WINDSURF));
    assert_null(cascade_key_refusal(CASCADE_KEY_DEVIN));
    assert_null(cascade_key_refusal(CASCADE_KEY_TEAM));
    assert_non_null(strstr(cascade_key_refusal(CASCADE_KEY_LEGACY), "start Windsurf once"));
    assert_non_null(strstr(cascade_key_refusal(CASCADE_KEY_MALFORMED), "sk-ws-01-"));
}

static void tokens_are_uuids_as_far_as_it_matters(void **state)
{
    assert_true(cascade_csrf_valid(STR("6f9619ff-8b86-4011-b42d-00c04fc964ff")));
    assert_false(cascade_csrf_valid(STR("6f9619ff-8b86-4011-b42d-00c04fc964f")));
    assert_false(cascade_csrf_valid(STR("6f9619ff-8b86-4011-b42d-00c04fc964fff")));
    assert_false(cascade_csrf_valid(STR("6F9619FF-8B86-4011-B42D-00C04FC964FF")));
    assert_false(cascade_csrf_valid(STR("6f9619ff-8b86-4011-b42d-00c04fc964f\n")));
    assert_false(cascade_csrf_valid(STR("6f9619ff-8b86-4011-b42d-00c04fc964fg")));
    assert_false(cascade_csrf_valid(STR_NONE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_kinds_are_told_apart),
        cmocka_unit_test(keys_have_an_end),
        cmocka_unit_test(refusals_say_what_to_do),
        cmocka_unit_test(tokens_are_uuids_as_far_as_it_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
