// SPDX-License-Identifier: Apache-2.0
/* test_responses.c -- requests to the Responses API, and the bodies that answer them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/json.h"
#include "feature/gateway/responses_body.h"

#include <stdlib.h>

static void check_text(struct buf *out, const char *expected)
{
    buf_putc(out, '\0');
    assert_string_equal(out->p, expected);
    buf_deinit(out);
    *out = (struct buf){0};
}

static void check_json(struct buf *out, const char *expected)
{
    size_t at;
    assert_int_equal(json_check(buf_str(out), &at), 0);
    check_text(out, expected);
}

/* ---- requests ---- */

static void test_parse(void **state)
{
    struct responses_request r;
    assert_int_equal(
        responses_request_parse(&r, STR(" {\"model\":\"m\",\"input\":\"hi\",\"stream\":true} ")),
        0);
    assert_true(r.stream && r.stored && !r.background);
    assert_true(str_eq(r.model, STR("\"m\"")) && str_eq(r.input, STR("\"hi\"")));
    assert_int_equal(r.previous.n, 0);
    assert_int_equal(
        responses_request_parse(
            &r, STR("{\"background\":true,\"store\":null,\"previous_response_id\":\"resp_1\"}")),
        0);
    assert_true(r.background && r.stored && !r.stream);
    assert_true(str_eq(r.previous, STR("\"resp_1\"")));
    /* null and the empty text are no previous response */
    assert_int_equal(responses_request_parse(&r, STR("{\"previous_response_id\":null}")), 0);
    assert_int_equal(r.previous.n, 0);
    assert_int_equal(responses_request_parse(&r, STR("{\"previous_response_id\":\"\"}")), 0);
    assert_int_equal(r.previous.n, 0);
    assert_int_equal(responses_request_parse(&r, STR("{\"background\":true,\"store\":false}")),
                     ERR_SYNTAX);
    static const char *const wrong[] = {"", " ", "[]", "\"x\"", "{", "{}x", "{\"a\":}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(responses_request_parse(&r, str_of_cstr(wrong[i])), ERR_JSON);
}

static void test_deep_bodies(void **state)
{
    struct responses_request r;
    struct buf body = {0};
    buf_put(&body, STR("{\"input\":"));
    for (int i = 0; i < 100000; i++)
        buf_putc(&body, '[');
    for (int i = 0; i < 100000; i++)
        buf_putc(&body, ']');
    buf_putc(&body, '}');
    assert_int_equal(responses_request_parse(&r, buf_str(&body)), ERR_JSON);
    buf_deinit(&body);
}

static void test_upstream_body(void **state)
{
    struct responses_request r;
    struct buf out = {0};
    responses_request_parse(&r, STR("{\"stream\":true,\"input\":\"hi\", \"x\": 1}"));
    assert_int_equal(responses_request_put(&out, &r, false, STR_NONE, 1000), 0);
    check_json(&out, "{\"stream\":true,\"input\":\"hi\", \"x\": 1}");
    responses_request_parse(&r, STR("{\"stream\":false,\"background\":true,\"store\":true,"
                                    "\"previous_response_id\":\"other\",\"input\":[]}"));
    assert_int_equal(responses_request_put(&out, &r, false, STR_NONE, 1000), 0);
    check_json(&out, "{\"stream\":true,\"store\":true,\"previous_response_id\":\"other\",\"input\":"
                     "[]}");
    assert_int_equal(responses_request_put(&out, &r, true, STR("{\"a\":1},{\"b\":2}"), 1000), 0);
    check_json(&out, "{\"stream\":true,\"store\":true,\"input\":[{\"a\":1},{\"b\":2}]}");
    assert_int_equal(responses_request_put(&out, &r, true, STR_NONE, 1000), 0);
    check_json(&out, "{\"stream\":true,\"store\":true,\"input\":[]}");
    assert_int_equal(responses_request_put(&out, &r, true, STR("{\"a\":1}"), 20), ERR_TOO_LARGE);
    assert_int_equal(out.n, 0);
    buf_deinit(&out);
}

static void test_items(void **state)
{
    struct buf out = {0};
    responses_put_input(&out, STR("\"h\\ni\""));
    check_text(&out, "{\"role\":\"user\",\"content\":\"h\\ni\"}");
    responses_put_input(&out, STR("[ {\"a\":1}, {\"b\":2} ]"));
    check_text(&out, "{\"a\":1}, {\"b\":2}");
    responses_put_input(&out, STR_NONE);
    check_text(&out, "");
    responses_put_input(&out, STR("{\"no\":\"list\"}"));
    check_text(&out, "");
}

/* What was cut off in the middle of a call cannot be gone on from; half a message can. */
static void test_context(void **state)
{
    struct buf out = {0};
    responses_put_context(&out, STR("[{\"a\":1}]"),
                          STR("{\"output\":[{\"type\":\"reasoning\",\"status\":\"in_progress\"},"
                              "{\"type\":\"message\",\"status\":\"in_progress\",\"content\":[]},"
                              "{\"type\":\"function_call\",\"status\":\"completed\"},5,"
                              "{\"type\":\"function_call\",\"status\":\"in_progress\"},"
                              "{\"type\":\"reasoning\"}]}"));
    check_text(&out, "{\"a\":1},{\"type\":\"message\",\"status\":\"incomplete\",\"content\":[]},"
                     "{\"type\":\"function_call\",\"status\":\"completed\"},"
                     "{\"type\":\"reasoning\"}");
    responses_put_context(&out, STR("[]"), STR("{\"output\":[{\"x\":1}]}"));
    check_text(&out, "{\"x\":1}");
    responses_put_context(&out, STR("[{\"x\":1}]"), STR("{}"));
    check_text(&out, "{\"x\":1}");
}

/* ---- responses ---- */

static void test_queued(void **state)
{
    struct responses_request r;
    struct buf out = {0};
    responses_request_parse(&r, STR("{\"background\":true,\"model\":\"m\",\"input\":\"secret\","
                                    "\"metadata\":{\"k\":\n\"v\"}}"));
    responses_put_queued(&out, &r, STR("resp_1"), 5);
    check_json(&out, "{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":5,\"status\":"
                     "\"queued\",\"background\":true,\"store\":true,\"error\":null,"
                     "\"incomplete_details\":null,\"output\":[],\"usage\":null,\"model\":\"m\","
                     "\"metadata\":{\"k\":\"v\"}}");
}

static void test_ended(void **state)
{
    static const struct {
        const char *response;
        enum end_reason end;
        const char *expected;
    } rows[] = {
        {"{\"status\":\"in_progress\"}", END_NONE, "{\"status\":\"in_progress\"}"},
        {"{\"status\":\"in_progress\"}", END_CANCELLED, "{\"status\":\"cancelled\"}"},
        {"{\"status\":\"completed\"}", END_CANCELLED, "{\"status\":\"completed\"}"},
        {"{ \"status\":\"incomplete\"}", END_COMPLETED, "{ \"status\":\"incomplete\"}"},
        {"{\"status\":\"queued\",\"error\":null}", END_FAILED,
         "{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"why\"}}"},
        {"{}", END_ORPHANED,
         "{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"why\"}}"},
        {"{\"status\":\"in_progress\"}", END_COMPLETED,
         "{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"the upstream's "
         "answer ended before it was complete\"}}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf out = {0};
        responses_put_ended(&out, str_of_cstr(rows[i].response), rows[i].end, STR("why"));
        check_json(&out, rows[i].expected);
    }
}

static void test_small_bodies(void **state)
{
    struct buf out = {0};
    responses_put_deleted(&out, STR("resp_1"));
    check_json(&out, "{\"id\":\"resp_1\",\"object\":\"response\",\"deleted\":true}");
    responses_put_missing(&out, STR("re\"\x80\nsp"));
    check_json(&out, "{\"error\":{\"message\":\"Response with id 're\\\"\xef\xbf\xbd\\nsp' not "
                     "found.\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}");
    responses_put_error(&out, STR("m"), STR("p"), STR("c"));
    check_json(&out, "{\"error\":{\"message\":\"m\",\"type\":\"invalid_request_error\",\"param\":"
                     "\"p\",\"code\":\"c\"}}");
    struct buf id = {0};
    for (int i = 0; i < 5000; i++)
        buf_put(&id, STR("\xc3\xa9"));
    responses_put_missing(&out, buf_str(&id));
    assert_true(out.n < 300);
    buf_deinit(&id);
    buf_deinit(&out);
}

/* ---- lists ---- */

#define ITEMS                                                                                      \
    "[{\"id\":\"a\",\"n\":0},{\"role\":\"user\",\"content\":\"hi\"},7,"                            \
    "{\"role\":\"assistant\",\"type\":\"message\",\"content\":\"yo\",\"status\":\"incomplete\"},"  \
    "{\"type\":\"function_call_output\",\"output\":\"x\"},{\"id\":\"\\u0065\",\"n\":4}]"

static void list(struct buf *out, const char *after, uint32_t limit, bool descending)
{
    struct responses_page page = {
        .id = STR("R"), .after = str_of_cstr(after), .limit = limit, .descending = descending};
    assert_int_equal(responses_put_list(out, STR(ITEMS), &page), 0);
}

#define LIST(data, first, last, more)                                                              \
    "{\"object\":\"list\",\"data\":[" data "],\"first_id\":" first ",\"last_id\":" last            \
    ",\"has_more\":" more "}"
#define ITEM_A "{\"id\":\"a\",\"n\":0}"
#define ITEM_B                                                                                     \
    "{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"hi\"}],\"id\":"           \
    "\"msg_R_in1\",\"type\":\"message\",\"status\":\"completed\"}"
#define ITEM_C                                                                                     \
    "{\"role\":\"assistant\",\"type\":\"message\",\"content\":[{\"type\":\"output_text\","         \
    "\"annotations\":[],\"text\":\"yo\"}],\"status\":\"incomplete\",\"id\":\"msg_R_in2\"}"
#define ITEM_D "{\"type\":\"function_call_output\",\"output\":\"x\",\"id\":\"msg_R_in3\"}"
#define ITEM_E "{\"id\":\"\\u0065\",\"n\":4}"

static void test_lists(void **state)
{
    struct buf out = {0};
    list(&out, "", 20, false);
    check_json(&out, LIST(ITEM_A "," ITEM_B "," ITEM_C "," ITEM_D "," ITEM_E, "\"a\"",
                          "\"\\u0065\"", "false"));
    list(&out, "", 2, false);
    check_json(&out, LIST(ITEM_A "," ITEM_B, "\"a\"", "\"msg_R_in1\"", "true"));
    list(&out, "msg_R_in1", 2, false);
    check_json(&out, LIST(ITEM_C "," ITEM_D, "\"msg_R_in2\"", "\"msg_R_in3\"", "true"));
    list(&out, "msg_R_in3", 2, false);
    check_json(&out, LIST(ITEM_E, "\"\\u0065\"", "\"\\u0065\"", "false"));
    list(&out, "e", 2, false);
    check_json(&out, LIST("", "null", "null", "false"));
    list(&out, "", 2, true);
    check_json(&out, LIST(ITEM_E "," ITEM_D, "\"\\u0065\"", "\"msg_R_in3\"", "true"));
    list(&out, "msg_R_in3", 3, true);
    check_json(&out, LIST(ITEM_C "," ITEM_B "," ITEM_A, "\"msg_R_in2\"", "\"a\"", "false"));
    list(&out, "a", 3, true);
    check_json(&out, LIST("", "null", "null", "false"));
    struct responses_page page = {.id = STR("R"), .after = STR("no"), .limit = 1};
    assert_int_equal(responses_put_list(&out, STR(ITEMS), &page), ERR_NOT_FOUND);
    page.after = STR("msg_R_in0"); /* that one has an id of its own */
    assert_int_equal(responses_put_list(&out, STR(ITEMS), &page), ERR_NOT_FOUND);
    page.after = STR_NONE;
    assert_int_equal(responses_put_list(&out, STR("[]"), &page), 0);
    check_json(&out, LIST("", "null", "null", "false"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),   cmocka_unit_test(test_deep_bodies),
        cmocka_unit_test(test_items),   cmocka_unit_test(test_upstream_body),
        cmocka_unit_test(test_context), cmocka_unit_test(test_queued),
        cmocka_unit_test(test_ended),   cmocka_unit_test(test_small_bodies),
        cmocka_unit_test(test_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
