// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/stored_answer.h"
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_str(struct str s, const char *wanted)
{
    assert_int_equal(s.n, strlen(wanted));
    assert_memory_equal(s.p, wanted, s.n);
}

static void test_what_is_put_is_taken(void **state)
{
    static const struct header headers[] = {
        {STR_INIT("Content-Type"), STR_INIT("application/json")},
        {STR_INIT("x-request-id"), STR_INIT("a: b")},
        {STR_INIT("Empty"), STR_INIT("")}};
    struct buf out = {0};
    struct stored_answer a;
    struct header h;
    stored_answer_put_head(&out, 201, headers, 3);
    buf_put(&out, STR("{}\n\nHTTP 200\n\n"));
    assert_true(stored_answer_is(buf_str(&out)));
    assert_int_equal(stored_answer_take(buf_str(&out), &a), 0);
    assert_int_equal(a.status, 201);
    assert_str(a.body, "{}\n\nHTTP 200\n\n");
    for (size_t i = 0; i < 3; i++) {
        assert_true(stored_answer_next(&a.headers, &h));
        assert_true(str_eq(h.name, headers[i].name));
        assert_true(str_eq(h.value, headers[i].value));
    }
    assert_false(stored_answer_next(&a.headers, &h));
    buf_deinit(&out);
}

static void test_neither_headers_nor_a_body(void **state)
{
    struct buf out = {0};
    struct stored_answer a;
    struct header h;
    stored_answer_put_head(&out, 204, NULL, 0);
    assert_str(buf_str(&out), "HTTP 204\n\n");
    assert_int_equal(stored_answer_take(buf_str(&out), &a), 0);
    assert_false(stored_answer_next(&a.headers, &h));
    assert_int_equal(a.body.n, 0);
    buf_deinit(&out);
}

/* They could say something else when they are read. */
static void test_headers_without_a_place_are_left_out(void **state)
{
    static const struct header headers[] = {
        {STR_INIT("A"), STR_INIT("1\nB: 2")}, {STR_INIT("A"), STR_INIT("1\r")},
        {STR_INIT("A"), STR_INIT("1\0")},     {STR_INIT("A b"), STR_INIT("1")},
        {STR_INIT(""), STR_INIT("1")},        {STR_INIT("C"), STR_INIT("3")}};
    struct buf out = {0};
    stored_answer_put_head(&out, 200, headers, sizeof headers / sizeof *headers);
    assert_str(buf_str(&out), "HTTP 200\nC: 3\n\n");
    buf_deinit(&out);
}

static void test_nothing_else_is_one(void **state)
{
    static const char *const others[] = {"",
                                         "HTTP",
                                         "HTTP ",
                                         "HTTP 200",
                                         "HTTP 200\n",
                                         "HTTP 200 \n\n",
                                         "HTTP 0200\n\n",
                                         "HTTP 199\n\n",
                                         "HTTP 300\n\n",
                                         "HTTP 20\n\n",
                                         "HTTP/1.1 200 OK\n\n",
                                         "http 200\n\n",
                                         " HTTP 200\n\n",
                                         "HTTP 200\r\n\r\n",
                                         "HTTP 200\nA: 1",
                                         "HTTP 200\nA: 1\n",
                                         "HTTP 200\nA:1\n\n",
                                         "HTTP 200\nA 1\n\n",
                                         "HTTP 200\n: 1\n\n",
                                         "HTTP 200\nA: 1\r\n\n",
                                         "HTTP 200\n A: 1\n\n",
                                         "id: 1\ndata: HTTP 200\n\n",
                                         ": HTTP 200\n\n"};
    struct stored_answer a;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(stored_answer_take(str_of_cstr(others[i]), &a), ERR_CORRUPT);
    assert_false(stored_answer_is(STR("id: 1\ndata: x\n\n")));
    assert_false(stored_answer_is(STR(": it failed\n\n")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_put_is_taken),
        cmocka_unit_test(test_neither_headers_nor_a_body),
        cmocka_unit_test(test_headers_without_a_place_are_left_out),
        cmocka_unit_test(test_nothing_else_is_one),
    };
    return cmocka_run_group_tests_name("unit/stored_answer", tests, NULL, NULL);
}
