// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "feature/gateway/response_id.h"
#include "feature/gateway/responses_mend.h"

#include <stdlib.h>

#define ID "resp_0123"

/* What has come out: TYPE SPACE DATA LF for each event. */
struct taker {
    struct buf text;
    int answer;
    size_t n;
};

static int take(void *ctx, struct str type, struct str data)
{
    struct taker *t = ctx;
    buf_put(&t->text, type);
    buf_putc(&t->text, ' ');
    buf_put(&t->text, data);
    buf_putc(&t->text, '\n');
    t->n++;
    return t->answer;
}

static struct responses_mend *plain_mend(void)
{
    return responses_mend_new(&(struct responses_mend_config){.response_id = STR(ID)});
}

static void feed(struct responses_mend *m, struct taker *t, const char *type, const char *data)
{
    t->text.n = 0;
    assert_int_equal(responses_mend_event(m, str_of_cstr(type), str_of_cstr(data), take, t), 1);
    buf_putc(&t->text, '\0');
}

struct step {
    const char *type, *data, *expected;
};

static void check_steps(const struct step *steps, size_t n)
{
    struct responses_mend *m = plain_mend();
    struct taker t = {.answer = 1};
    for (size_t i = 0; i < n; i++) {
        feed(m, &t, steps[i].type, steps[i].data);
        assert_string_equal(t.text.p, steps[i].expected);
    }
    buf_deinit(&t.text);
    responses_mend_free(m);
}
#define CHECK(steps) check_steps(steps, sizeof(steps) / sizeof *(steps))

#define CREATED                                                                                    \
    "response.created {\"type\":\"response.created\",\"response\":{\"id\":\"" ID                   \
    "\",\"object\":\"response\",\"created_at\":0,\"status\":\"in_progress\",\"output\":[]},"       \
    "\"sequence_number\":0}\n"

/* What llama.cpp leaves out: numbers, places, the first part of a reasoning item, `output`. */
static void test_weak_backend(void **state)
{
    static const struct step steps[] = {
        {"response.created",
         "{\"type\":\"response.created\",\"response\":{\"id\":\"resp_their\",\"object\":"
         "\"response\",\"status\":\"in_progress\"}}",
         "response.created {\"type\":\"response.created\",\"response\":{\"id\":\"" ID
         "\",\"object\":\"response\",\"status\":\"in_progress\",\"created_at\":0,\"output\":[]},"
         "\"sequence_number\":0}\n"},
        {"response.output_item.added",
         "{\"type\":\"response.output_item.added\",\"item\":{\"id\":\"rs_1\",\"summary\":[],"
         "\"type\":\"reasoning\",\"content\":[]}}",
         "response.output_item.added {\"type\":\"response.output_item.added\",\"item\":{\"id\":"
         "\"rs_1\",\"summary\":[],\"type\":\"reasoning\",\"content\":[]},\"output_index\":0,"
         "\"sequence_number\":1}\n"},
        {"response.reasoning_text.delta",
         "{\"type\":\"response.reasoning_text.delta\",\"delta\":\"hm\",\"item_id\":\"rs_1\"}",
         "response.content_part.added {\"type\":\"response.content_part.added\",\"item_id\":"
         "\"rs_1\",\"output_index\":0,\"content_index\":0,\"part\":{\"type\":\"reasoning_text\","
         "\"text\":\"\"},\"sequence_number\":2}\n"
         "response.reasoning_text.delta {\"type\":\"response.reasoning_text.delta\",\"delta\":"
         "\"hm\",\"item_id\":\"rs_1\",\"output_index\":0,\"content_index\":0,\"sequence_number\":"
         "3}\n"},
        {"response.output_item.added",
         "{\"type\":\"response.output_item.added\",\"item\":{\"content\":[],\"id\":\"msg_1\","
         "\"type\":\"message\"}}",
         "response.output_item.added {\"type\":\"response.output_item.added\",\"item\":{"
         "\"content\":[],\"id\":\"msg_1\",\"type\":\"message\"},\"output_index\":1,"
         "\"sequence_number\":4}\n"},
        {"response.content_part.added",
         "{\"type\":\"response.content_part.added\",\"item_id\":\"msg_1\",\"part\":{\"type\":"
         "\"output_text\",\"text\":\"\"}}",
         "response.content_part.added {\"type\":\"response.content_part.added\",\"item_id\":"
         "\"msg_1\",\"part\":{\"type\":\"output_text\",\"text\":\"\"},\"output_index\":1,"
         "\"content_index\":0,\"sequence_number\":5}\n"},
        {"response.output_text.delta",
         "{\"type\":\"response.output_text.delta\",\"item_id\":\"msg_1\",\"delta\":\"a\"}",
         "response.output_text.delta {\"type\":\"response.output_text.delta\",\"item_id\":"
         "\"msg_1\",\"delta\":\"a\",\"output_index\":1,\"content_index\":0,\"sequence_number\":6}"
         "\n"},
        {"response.output_item.done",
         "{\"type\":\"response.output_item.done\",\"item\":{\"id\":\"rs_1\",\"type\":"
         "\"reasoning\",\"summary\":[]}}",
         "response.output_item.done {\"type\":\"response.output_item.done\",\"item\":{\"id\":"
         "\"rs_1\",\"type\":\"reasoning\",\"summary\":[]},\"output_index\":0,"
         "\"sequence_number\":7}\n"},
        {"response.output_item.done",
         "{\"type\":\"response.output_item.done\",\"item\":{\"id\":\"fc_9\",\"type\":"
         "\"function_call\"}}",
         "response.output_item.added {\"type\":\"response.output_item.added\",\"output_index\":2,"
         "\"item\":{\"id\":\"fc_9\",\"type\":\"function_call\"},\"sequence_number\":8}\n"
         "response.output_item.done {\"type\":\"response.output_item.done\",\"item\":{\"id\":"
         "\"fc_9\",\"type\":\"function_call\"},\"output_index\":2,\"sequence_number\":9}\n"},
    };
    CHECK(steps);
}

/* What is right stays byte for byte, however it is written. */
static void test_right_ones(void **state)
{
    static const struct step steps[] = {
        {"response.created",
         "{ \"sequence_number\": 0, \"type\":\"response.created\", \"response\": {\"id\":\"" ID
         "\", \"object\":\"response\",\"created_at\":1.50,\"status\":\"in_progress\",\"output\":[ "
         "]}}",
         "response.created { \"sequence_number\": 0, \"type\":\"response.created\", \"response\": "
         "{\"id\":\"" ID
         "\", \"object\":\"response\",\"created_at\":1.50,\"status\":\"in_progress\",\"output\":[ "
         "]}}\n"},
        {"response.output_item.added",
         "{ \"sequence_number\":1,\"type\":\"response.output_item.added\",\"output_index\":0, "
         "\"item\":{\"id\":\"m\", \"type\":\"message\",\"content\":[]}}",
         "response.output_item.added { \"sequence_number\":1,\"type\":\"response.output_item."
         "added\",\"output_index\":0, \"item\":{\"id\":\"m\", \"type\":\"message\",\"content\":[]}}"
         "\n"},
        {"response.content_part.added",
         "{ \"sequence_number\":2,\"type\":\"response.content_part.added\",\"item_id\":\"m\","
         "\"output_index\":0,\"content_index\":0,\"part\":{}}",
         "response.content_part.added { \"sequence_number\":2,\"type\":\"response.content_part."
         "added\",\"item_id\":\"m\",\"output_index\":0,\"content_index\":0,\"part\":{}}\n"},
        {"response.output_text.delta",
         "{ \"type\":\"response.output_text.delta\",\"sequence_number\":3,\"item_id\":\"m\","
         "\"output_index\":0,\"content_index\":0,\"delta\":\"\\u00e9\",\"logprobs\":[]}",
         "response.output_text.delta { \"type\":\"response.output_text.delta\","
         "\"sequence_number\":3,\"item_id\":\"m\",\"output_index\":0,\"content_index\":0,"
         "\"delta\":\"\\u00e9\",\"logprobs\":[]}\n"},
        {"message", "[DONE]", "message [DONE]\n"},
        {"message", "{\"a\":", "message {\"a\":\n"},
        {"keepalive", "{\"type\":\"keepalive\",\"sequence_number\":6}",
         "keepalive {\"type\":\"keepalive\",\"sequence_number\":6}\n"},
    };
    CHECK(steps);
}

/* Nothing is announced: text comes, and then more of it under other names. */
static void test_begins_in_the_middle(void **state)
{
    static const struct step steps[] = {
        {"message", "{\"type\":\"response.output_text.delta\",\"delta\":\"a\"}",
         CREATED
         "response.output_item.added {\"type\":\"response.output_item.added\",\"output_index\":0,"
         "\"item\":{\"type\":\"message\",\"status\":\"in_progress\",\"role\":\"assistant\","
         "\"content\":[],\"id\":\"msg_" ID "_0\"},\"sequence_number\":1}\n"
         "response.content_part.added {\"type\":\"response.content_part.added\",\"item_id\":"
         "\"msg_" ID
         "_0\",\"output_index\":0,\"content_index\":0,\"part\":{\"type\":\"output_text\",\"text\":"
         "\"\",\"annotations\":[]},\"sequence_number\":2}\n"
         "response.output_text.delta {\"type\":\"response.output_text.delta\",\"delta\":\"a\","
         "\"item_id\":\"msg_" ID
         "_0\",\"output_index\":0,\"content_index\":0,\"sequence_number\":3}\n"},
        /* its place counts, not the name that changes with each event */
        {"response.output_text.delta",
         "{\"item_id\":\"other\",\"output_index\":0,\"content_index\":0,\"delta\":\"b\"}",
         "response.output_text.delta {\"item_id\":\"msg_" ID
         "_0\",\"output_index\":0,\"content_index\":0,\"delta\":\"b\",\"type\":\"response.output_"
         "text.delta\",\"sequence_number\":4}\n"},
        /* a second part */
        {"response.refusal.delta",
         "{\"type\":\"response.refusal.delta\",\"content_index\":1,\"delta\":\"no\"}",
         "response.content_part.added {\"type\":\"response.content_part.added\",\"item_id\":"
         "\"msg_" ID
         "_0\",\"output_index\":0,\"content_index\":1,\"part\":{\"type\":\"refusal\",\"refusal\":"
         "\"\"},\"sequence_number\":5}\n"
         "response.refusal.delta {\"type\":\"response.refusal.delta\",\"content_index\":1,"
         "\"delta\":\"no\",\"item_id\":\"msg_" ID
         "_0\",\"output_index\":0,\"sequence_number\":6}\n"},
        {"response.reasoning_summary_text.delta",
         "{\"type\":\"response.reasoning_summary_text.delta\",\"item_id\":\"rs\",\"delta\":\"s\"}",
         "response.output_item.added {\"type\":\"response.output_item.added\",\"output_index\":1,"
         "\"item\":{\"type\":\"reasoning\",\"status\":\"in_progress\",\"summary\":[],\"id\":"
         "\"rs_" ID "_1\"},\"sequence_number\":7}\n"
         "response.reasoning_summary_part.added {\"type\":\"response.reasoning_summary_part.added\""
         ",\"item_id\":\"rs_" ID
         "_1\",\"output_index\":1,\"summary_index\":0,\"part\":{\"type\":\"summary_text\",\"text\":"
         "\"\"},\"sequence_number\":8}\n"
         "response.reasoning_summary_text.delta {\"type\":\"response.reasoning_summary_text."
         "delta\",\"item_id\":\"rs_" ID
         "_1\",\"delta\":\"s\",\"output_index\":1,\"summary_index\":0,\"sequence_number\":9}\n"},
        /* arguments of a call that nobody announced: there is no name to make one up for */
        {"response.function_call_arguments.delta",
         "{\"type\":\"response.function_call_arguments.delta\",\"item_id\":\"fc\",\"delta\":\"{\"}",
         "response.function_call_arguments.delta {\"type\":\"response.function_call_arguments."
         "delta\",\"item_id\":\"fc\",\"delta\":\"{\",\"sequence_number\":10}\n"},
    };
    CHECK(steps);
}

/* A backend that sends two ids, and what the gateway did in its place. */
static void test_one_response(void **state)
{
    struct responses_mend *m =
        responses_mend_new(&(struct responses_mend_config){.response_id = STR(ID),
                                                           .model = STR("\"m\""),
                                                           .previous_id = STR("\"resp_p\""),
                                                           .background = true,
                                                           .stored = true,
                                                           .created_s = 7});
    struct taker t = {.answer = 1};
    feed(m, &t, "response.queued", "{\"type\":\"response.created\",\"response\":{\"id\":\"x\"}}");
    assert_string_equal(t.text.p,
                        "response.created {\"type\":\"response.created\",\"response\":{\"id\":\"" ID
                        "\",\"object\":\"response\",\"created_at\":7,\"status\":\"in_progress\","
                        "\"model\":\"m\",\"output\":[],\"background\":true,\"store\":true,"
                        "\"previous_response_id\":\"resp_p\"},\"sequence_number\":0}\n");
    assert_false(responses_mend_has_ended(m));
    feed(m, &t, "response.completed",
         "{\"type\":\"response.completed\",\"response\":{\"id\":\"y\",\"store\":false,\"output\":"
         "[1],\"background\":false,\"previous_response_id\":null}}");
    assert_string_equal(
        t.text.p, "response.completed {\"type\":\"response.completed\",\"response\":{\"id\":\"" ID
                  "\",\"store\":true,\"output\":[1],\"background\":true,\"previous_response_id\":"
                  "\"resp_p\",\"object\":\"response\",\"created_at\":7,\"status\":\"completed\","
                  "\"model\":\"m\"},\"sequence_number\":1}\n");
    assert_true(responses_mend_has_ended(m));
    buf_deinit(&t.text);
    responses_mend_free(m);
}

/* An error is an end, and nothing is announced before it. */
static void test_errors(void **state)
{
    static const char *const events[][2] = {
        {"message", "{\"error\":{\"code\":500,\"message\":\"m\"},\"sequence_number\":0}"},
        {"error", "{\"message\":\"m\",\"sequence_number\":0}"},
        {"message", "{\"type\":\"error\",\"sequence_number\":0}"},
    };
    for (size_t i = 0; i < 3; i++) {
        struct responses_mend *m = plain_mend();
        struct taker t = {.answer = 1};
        feed(m, &t, events[i][0], events[i][1]);
        assert_int_equal(t.n, 1);
        assert_true(responses_mend_has_ended(m));
        buf_deinit(&t.text);
        responses_mend_free(m);
    }
}

static void test_answers(void **state)
{
    struct responses_mend *m = plain_mend();
    struct taker t = {.answer = 0};
    struct str type = STR("response.output_text.delta"), data = STR("{\"delta\":\"\"}");
    assert_int_equal(responses_mend_event(m, type, data, take, &t), 0);
    assert_int_equal(t.n, 4);
    t.answer = ERR_TOO_LARGE;
    assert_int_equal(responses_mend_event(m, type, data, take, &t), ERR_TOO_LARGE);
    buf_deinit(&t.text);
    responses_mend_free(m);
    /* behind an error nothing comes any more */
    m = plain_mend();
    t = (struct taker){.answer = ERR_CLOSED};
    assert_int_equal(responses_mend_event(m, type, data, take, &t), ERR_CLOSED);
    assert_int_equal(t.n, 1);
    buf_deinit(&t.text);
    responses_mend_free(m);
}

/* More items than are known: each event is numbered all the same. */
static void test_many_items(void **state)
{
    struct responses_mend *m = plain_mend();
    struct taker t = {.answer = 1};
    for (size_t i = 0; i < RESPONSES_ITEMS_MAX + 10; i++) {
        struct buf data = {0};
        buf_printf(&data, "{\"type\":\"response.output_item.added\",\"item\":{\"id\":\"i%zu\"}}",
                   i);
        buf_putc(&data, '\0');
        feed(m, &t, "response.output_item.added", data.p);
        buf_deinit(&data);
    }
    assert_string_equal(t.text.p,
                        "response.output_item.added {\"type\":\"response.output_item.added\","
                        "\"item\":{\"id\":\"i1033\"},\"sequence_number\":1034}\n");
    buf_deinit(&t.text);
    responses_mend_free(m);
}

static void test_ids(void **state)
{
    char id[RESPONSE_ID_TEXT], back[RAND_UUID];
    struct str request = STR("01234567-89ab-4cde-8f01-23456789abcd");
    response_id_make(request, id);
    assert_memory_equal(id, "resp_0123456789ab4cde8f0123456789abcd", RESPONSE_ID_TEXT);
    assert_true(response_id_parse(str_of(id, RESPONSE_ID_TEXT), back));
    assert_memory_equal(back, request.p, request.n);
    static const char *const wrong[] = {"",
                                        "resp_",
                                        "resp_0123456789ab4cde8f0123456789abc",
                                        "resp_0123456789ab4cde8f0123456789abcde",
                                        "resp_0123456789AB4cde8f0123456789abcd",
                                        "resp_0123456789ab4cde8f0123456789abc/",
                                        "rasp_0123456789ab4cde8f0123456789abcd"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(response_id_parse(str_of_cstr(wrong[i]), back));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weak_backend),
        cmocka_unit_test(test_right_ones),
        cmocka_unit_test(test_begins_in_the_middle),
        cmocka_unit_test(test_one_response),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_many_items),
        cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
