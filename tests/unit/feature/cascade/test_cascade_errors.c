// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "feature/cascade/cascade_errors.h"
#include "feature/cascade/cascade_messages.h"

#include <stdlib.h>

#define GATED "There was an error with your Cascade session, please update your editor"

static void assert_str(struct str got, const char *want)
{
    assert_int_equal(got.n, strlen(want));
    assert_memory_equal(got.p, want, got.n);
}

static void texts_begin_with_codes(void **state)
{
    static const struct {
        const char *text;
        int code; /* 0: it is no error */
        const char *behind;
    } cases[] = {
        {"failed_precondition: " GATED, GRPC_FAILED_PRECONDITION, GATED},
        {"failed_precondition:" GATED, GRPC_FAILED_PRECONDITION, GATED},
        {"FAILED_PRECONDITION: x", GRPC_FAILED_PRECONDITION, "x"},
        {"unimplemented: GetChatMessage is deprecated :)", GRPC_UNIMPLEMENTED,
         "GetChatMessage is deprecated :)"},
        {"internal", GRPC_INTERNAL, ""},
        {"internal:", GRPC_INTERNAL, ""},
        {"canceled: a", GRPC_CANCELLED, "a"},
        {"cancelled: a", GRPC_CANCELLED, "a"},
        {"unauthenticated: no", GRPC_UNAUTHENTICATED, "no"},
        {"unknown: no", GRPC_UNKNOWN, "no"},
        {"unavailable: a: b", GRPC_UNAVAILABLE, "a: b"},
        {"internal memo: read this", 0, NULL},
        {"internally: read this", 0, NULL},
        {"The code is internal: x", 0, NULL},
        {" internal: x", 0, NULL},
        {"ok: x", 0, NULL},
        {"failed_precondition", GRPC_FAILED_PRECONDITION, ""},
        {"failed_precondition" /* and a */ "_", 0, NULL},
        {"", 0, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cascade_error e = {77, STR("untouched")};
        bool found = cascade_error_in_text(str_of_cstr(cases[i].text), &e);
        assert_int_equal(found, cases[i].code != 0);
        assert_int_equal(e.code, found ? cases[i].code : 77);
        assert_str(e.text, found ? cases[i].behind : "untouched");
    }
}

static void every_code_is_known_by_its_name(void **state)
{
    for (int code = GRPC_CANCELLED; code <= GRPC_UNAUTHENTICATED; code++) {
        struct cascade_error e = {0};
        assert_true(cascade_error_in_text(str_of_cstr(err_grpc_name(code)), &e));
        assert_int_equal(e.code, code);
    }
}

static void trailers_are_looked_at(void **state)
{
    static const struct {
        int status;
        const char *message;
        int code;
        const char *text;
    } cases[] = {
        {GRPC_FAILED_PRECONDITION, "failed_precondition: " GATED, GRPC_FAILED_PRECONDITION, GATED},
        {GRPC_FAILED_PRECONDITION, GATED, GRPC_FAILED_PRECONDITION, GATED},
        {GRPC_UNKNOWN, "unimplemented: not here", GRPC_UNIMPLEMENTED, "not here"},
        {GRPC_UNKNOWN, "what?", GRPC_UNKNOWN, "what?"},
        {GRPC_UNAVAILABLE, "internal: x", GRPC_UNAVAILABLE, "x"}, /* the status knows better */
        {17, "x", GRPC_UNKNOWN, "x"},
        {-1, "", GRPC_UNKNOWN, ""},
    };
    struct cascade_error e = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(cascade_error_in_trailers(cases[i].status, str_of_cstr(cases[i].message), &e));
        assert_int_equal(e.code, cases[i].code);
        assert_str(e.text, cases[i].text);
    }
    assert_false(cascade_error_in_trailers(0, STR("internal: x"), &e));
}

/* {1 {5 text, 7 is_error}}, of a call that went well. */
static void raw_errors_look_like_answers(void **state)
{
    struct arena a = {0};
    struct cascade_raw_message m;
    struct cascade_error e;
    assert_int_equal(cascade_raw_message_read(&a,
                                              STR("\x0a\x1b\x2a\x17"
                                                  "failed_precondition: no"
                                                  "\x38\x01"),
                                              &m),
                     0);
    assert_true(cascade_error_in_raw(&m, &e));
    assert_int_equal(e.code, GRPC_FAILED_PRECONDITION);
    assert_str(e.text, "no");
    /* An answer may begin with such a word. */
    assert_int_equal(cascade_raw_message_read(&a,
                                              STR("\x0a\x19\x2a\x17"
                                                  "failed_precondition: no"),
                                              &m),
                     0);
    assert_false(cascade_error_in_raw(&m, &e));
    assert_int_equal(cascade_raw_message_read(&a,
                                              STR("\x0a\x08\x2a\x04"
                                                  "oops"
                                                  "\x38\x01"),
                                              &m),
                     0);
    assert_true(cascade_error_in_raw(&m, &e));
    assert_int_equal(e.code, GRPC_UNKNOWN);
    assert_str(e.text, "oops");
    arena_deinit(&a);
}

static void errors_of_sessions_are_known(void **state)
{
    static const struct {
        const char *text;
        bool is_session;
    } cases[] = {
        {GATED, true},
        {"the Session EXPIRED", true},
        {"bad panel state", true},
        {"Panel was not yet initialized", true},
        {"panelnotinitialized", true},
        {"panel: it is initialized", false},
        {"not initialized: panel", false},
        {"the panel\nis not initialized", false}, /* not in one line */
        {"x\nthe panel is not initialized", true},
        {"session", false},
        {"cascade", false},
        {"", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(cascade_error_is_session(str_of_cstr(cases[i].text)), cases[i].is_session);
    assert_false(cascade_error_is_session(STR_NONE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_begin_with_codes),
        cmocka_unit_test(every_code_is_known_by_its_name),
        cmocka_unit_test(trailers_are_looked_at),
        cmocka_unit_test(raw_errors_look_like_answers),
        cmocka_unit_test(errors_of_sessions_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
