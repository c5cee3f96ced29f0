// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "feature/cascade/cascade_transcript.h"

#include <stdlib.h>

/* The messages of a text, one a line: INDEX ROLE BODY, where a \n of the body is a |. */
static void list(struct str text, struct buf *out)
{
    struct buf scratch = {0};
    struct cascade_message m;
    struct str rest = cascade_transcript_lines(text, &scratch);
    while (cascade_transcript_next(&rest, &m)) {
        buf_printf(out, "%llu %c ", (unsigned long long)m.index, "?UATS"[m.role]);
        for (size_t i = 0; i < m.body.n; i++)
            buf_putc(out, m.body.p[i] == '\n' ? '|' : m.body.p[i]);
        buf_putc(out, '\n');
    }
    buf_deinit(&scratch);
}

static void assert_messages(const char *text, const char *want)
{
    struct buf got = {0};
    list(str_of_cstr(text), &got);
    buf_putc(&got, '\0');
    assert_string_equal(got.p, want);
    buf_deinit(&got);
}

static void a_transcript_is_taken_apart(void **state)
{
    assert_messages("=== MESSAGE 0 - Tool ===\n[CORTEX_STEP_TYPE_RETRIEVE_MEMORY]\n\n"
                    "=== MESSAGE 1 - Tool ===\n[CORTEX_STEP_TYPE_MEMORY]\n\n"
                    "=== MESSAGE 2 - User ===\nReply with exactly one word: ping\n\n"
                    "=== MESSAGE 3 - Assistant ===\npong\n\n"
                    "=== MESSAGE 4 - System ===\nbe kind\n\n"
                    "=== MESSAGE 5 - Tool ===\n[CORTEX_STEP_TYPE_CHECKPOINT]\n",
                    "0 T [CORTEX_STEP_TYPE_RETRIEVE_MEMORY]\n"
                    "1 T [CORTEX_STEP_TYPE_MEMORY]\n"
                    "2 U Reply with exactly one word: ping\n"
                    "3 A pong\n"
                    "4 S be kind\n"
                    "5 T [CORTEX_STEP_TYPE_CHECKPOINT]\n");
}

static void what_stands_before_is_no_message(void **state)
{
    assert_messages("", "");
    assert_messages("hello\nthere", "");
    assert_messages("hello\n\n=== MESSAGE 0 - User ===\nhi", "0 U hi\n");
}

static void bodies_are_trimmed(void **state)
{
    assert_messages("=== MESSAGE 0 - User ===\n\n \t a \n\n b\v\f \n \n", "0 U a || b\n");
    assert_messages("=== MESSAGE 0 - User ===\n", "0 U \n");
    assert_messages("=== MESSAGE 0 - User ===", "0 U \n");
    assert_messages("=== MESSAGE 0 - User ===\n\n\n=== MESSAGE 1 - User ===\nx", "0 U \n1 U x\n");
    /* White space of ASCII alone: this is a no-break space. */
    assert_messages("=== MESSAGE 0 - User ===\na\xc2\xa0\n", "0 U a\xc2\xa0\n");
}

static void lines_end_in_two_ways(void **state)
{
    assert_messages("=== MESSAGE 0 - User ===\r\na\r\nb\nc\r\n\r\n=== MESSAGE 1 - Tool ===\nx\r\n",
                    "0 U a|b|c\n1 T x\n");
    /* A \r alone ends none. */
    assert_messages("=== MESSAGE 0 - User ===\na\rb", "0 U a\rb\n");
    assert_messages("=== MESSAGE 0 - User ===\ra", "");
    assert_messages("=== MESSAGE 0 - User ===\na\r\r\nb", "0 U a\r|b\n");
}

static void headers_are_whole_lines_to_the_letter(void **state)
{
    static const char *const none[] = {
        " === MESSAGE 0 - User ===",
        "=== MESSAGE 0 - User === ",
        "=== MESSAGE 0 - User ====",
        "==== MESSAGE 0 - User ===",
        "=== MESSAGE  0 - User ===",
        "=== MESSAGE - User ===",
        "=== MESSAGE 0 - ===",
        "=== MESSAGE 0 -  ===",
        "=== MESSAGE 0 - User===",
        "=== MESSAGE 0- User ===",
        "=== MESSAGE x - User ===",
        "=== MESSAGE -1 - User ===",
        "=== message 0 - User ===",
        "=== MESSAGE 0 - Us er ===",
        "=== MESSAGE 0 - Us-er ===",
        "=== MESSAGE 0 – User ===",
        "=== MESSAGE 9007199254740992 - User ===",
        "=== MESSAGE 0 - User ==",
        "=== MESSAGE 0",
        "===",
    };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_messages(none[i], "");
    assert_messages("=== MESSAGE 007 - User ===", "7 U \n");
    assert_messages("=== MESSAGE 9007199254740991 - User ===", "9007199254740991 U \n");
}

static void any_word_is_a_role(void **state)
{
    assert_messages("=== MESSAGE 0 - Planner_2 ===\nx\n=== MESSAGE 1 - assistant ===\ny",
                    "0 ? x\n1 ? y\n");
}

static void messages_come_as_they_stand(void **state)
{
    assert_messages("=== MESSAGE 5 - Tool ===\na\n=== MESSAGE 2 - Assistant ===\nb\n"
                    "=== MESSAGE 5 - Assistant ===\nc",
                    "5 T a\n2 A b\n5 A c\n");
}

static void nothing_is_escaped(void **state)
{
    assert_messages("=== MESSAGE 0 - Assistant ===\nyou wrote:\n=== MESSAGE 0 - User ===\nhi",
                    "0 A you wrote:\n0 U hi\n");
}

static void a_nul_is_a_character(void **state)
{
    struct buf got = {0};
    list(STR("=== MESSAGE 0 - User ===\na\0b\n"), &got);
    assert_true(str_eq(buf_str(&got), STR("0 U a\0b\n")));
    buf_deinit(&got);
}

static void lines_are_copied_only_if_they_must(void **state)
{
    struct buf scratch = {0};
    struct str text = STR("a\nb\rc\n");
    assert_ptr_equal(cascade_transcript_lines(text, &scratch).p, text.p);
    struct str copy = cascade_transcript_lines(STR("a\r\nb\r"), &scratch);
    assert_true(str_eq(copy, STR("a\nb\r")));
    copy = cascade_transcript_lines(STR("\r\n"), &scratch); /* nothing is left of the other */
    assert_true(str_eq(copy, STR("\n")));
    buf_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transcript_is_taken_apart),
        cmocka_unit_test(what_stands_before_is_no_message),
        cmocka_unit_test(bodies_are_trimmed),
        cmocka_unit_test(lines_end_in_two_ways),
        cmocka_unit_test(headers_are_whole_lines_to_the_letter),
        cmocka_unit_test(any_word_is_a_role),
        cmocka_unit_test(messages_come_as_they_stand),
        cmocka_unit_test(nothing_is_escaped),
        cmocka_unit_test(a_nul_is_a_character),
        cmocka_unit_test(lines_are_copied_only_if_they_must),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
