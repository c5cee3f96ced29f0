// SPDX-License-Identifier: Apache-2.0
/* SDKs that count their tries, and clients that go: who gets an answer that was lost, and what
 * becomes of one that nobody reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "unit/feature/gateway/gateway_bench.h"

#define TRY(n)    "X-Stainless-Retry-Count: " #n "\r\n"
#define ANN       "Authorization: Bearer ann\r\n"
#define BOB       "Authorization: Bearer bob\r\n"
#define JSON_HEAD "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
#define JSON      JSON_HEAD "Content-Length: 12\r\n\r\n{\"text\":\"a\"}"

static int set_up_retries(void **state)
{
    static char authorization[] = "Authorization";
    static char *identity[] = {authorization};
    struct bench *b = bench_new(ROUTE_DIALECT_SSE);
    b->route.identity = (struct option_list){.items = identity, .n = 1};
    b->reply = NULL;
    *state = b;
    return 0;
}

/* A client that goes before it has an answer; the server knows. */
static void ask_and_go(struct bench *b, const char *headers)
{
    struct gateway *g = b->sides[0].gateway;
    size_t n = b->n_callers, noted = g->repeats.n;
    struct client *c = post(b, 0, headers, "{}");
    UNTIL(b, is_heard(b, n));
    hang_up(c);
    UNTIL(b, g->repeats.n == noted + 1);
}

/* ---- retries ---- */

static void test_a_retry_waits_for_the_answer_that_was_lost(void **state)
{
    struct bench *b = *state;
    ask_and_go(b, ANN TRY(0));
    struct client *c = post(b, 0, ANN TRY(1), "{}");
    turns(b, 30);
    caller_send(b->callers[0], SSE_HEAD ONE);
    UNTIL(b, told(c, "data: one"));
    assert_int_equal(b->n_callers, 1);
}

static void test_a_retry_comes_behind_the_answer(void **state)
{
    struct bench *b = *state;
    ask_and_go(b, ANN TRY(0));
    caller_send(b->callers[0], SSE_HEAD ONE);
    caller_close(b->callers[0]);
    UNTIL(b, b->sides[0].gateway->running.n == 0);
    struct client *c = post(b, 0, ANN TRY(1), "{}");
    UNTIL(b, told(c, "data: one"));
    UNTIL(b, told(c, "0\r\n\r\n"));
    assert_int_equal(b->n_callers, 1);
}

/* It is no stream, and has no key: kept only since it was lost. */
static void test_a_whole_answer_that_was_lost(void **state)
{
    struct bench *b = *state;
    ask_and_go(b, ANN TRY(0));
    caller_send(b->callers[0], JSON);
    UNTIL(b, b->sides[0].gateway->running.n == 0);
    struct client *c = post(b, 0, ANN TRY(1), "{}");
    UNTIL(b, told(c, "HTTP/1.1 200 OK\r\n") && told(c, "{\"text\":\"a\"}"));
    assert_int_equal(b->n_callers, 1);
}

/* Each of them loses its answer, and then comes the last. */
static void test_tries_one_after_the_other(void **state)
{
    struct bench *b = *state;
    struct gateway *g = b->sides[0].gateway;
    ask_and_go(b, ANN TRY(0));
    struct client *second = post(b, 0, ANN TRY(1), "{}");
    UNTIL(b, g->repeats.n == 0);
    turns(b, 30);
    hang_up(second);
    UNTIL(b, g->repeats.n == 1);
    struct client *third = post(b, 0, ANN TRY(2), "{}");
    UNTIL(b, g->repeats.n == 0);
    caller_send(b->callers[0], SSE_HEAD ONE);
    UNTIL(b, told(third, "data: one"));
    assert_int_equal(b->n_callers, 1);
}

/* Cut off right behind its head, which may not have arrived. */
static void test_an_answer_that_was_cut_off_at_its_beginning(void **state)
{
    struct bench *b = *state;
    b->reply = SSE_HEAD ONE;
    struct client *a = post(b, 0, ANN TRY(0), "{}");
    UNTIL(b, told(a, "data: one"));
    hang_up(a);
    UNTIL(b, b->sides[0].gateway->repeats.n == 1);
    struct client *c = post(b, 0, ANN TRY(1), "{}");
    UNTIL(b, told(c, "data: one"));
    assert_int_equal(b->n_callers, 1);
}

/* All of it was sent, and then the connection closed at once. */
static void test_an_answer_that_was_sent_to_nobody(void **state)
{
    struct bench *b = *state;
    b->reply = SSE_HEAD ONE;
    struct client *a = post(b, 0, ANN TRY(0), "{}"), *kept;
    UNTIL(b, is_heard(b, 0));
    caller_close(b->callers[0]);
    UNTIL(b, told(a, "0\r\n\r\n"));
    hang_up(a);
    UNTIL(b, b->sides[0].http.n_connections == 0);
    kept = post(b, 0, ANN TRY(1), "{}");
    UNTIL(b, told(kept, "0\r\n\r\n"));
    assert_int_equal(b->n_callers, 1);

    struct client *other = post(b, 0, ANN TRY(2), "{}"); /* that one has it, and its connection */
    UNTIL(b, told(other, "data: one"));
    assert_int_equal(b->n_callers, 2);
}

static void test_equal_requests_side_by_side_stay_two(void **state)
{
    struct bench *b = *state;
    b->reply = SSE_HEAD ONE;
    struct client *first = post(b, 0, ANN TRY(0), "{}"), *second = post(b, 0, ANN TRY(0), "{}");
    UNTIL(b, told(first, "data: one") && told(second, "data: one"));
    assert_false(str_eq(header(first, ID_HEADER), header(second, ID_HEADER)));
    struct client *third = post(b, 0, ANN TRY(1), "{}"); /* of what did not come here */
    UNTIL(b, told(third, "data: one"));
    assert_int_equal(b->n_callers, 3);
}

static void test_two_that_lost_their_answers_stay_two(void **state)
{
    struct bench *b = *state;
    ask_and_go(b, ANN TRY(0));
    ask_and_go(b, ANN TRY(0));
    struct client *first = post(b, 0, ANN TRY(1), "{}"), *second = post(b, 0, ANN TRY(1), "{}");
    turns(b, 30);
    for (size_t i = 0; i < 2; i++)
        caller_send(b->callers[i], SSE_HEAD ONE);
    UNTIL(b, told(first, "data: one") && told(second, "data: one"));
    assert_false(str_eq(header(first, ID_HEADER), header(second, ID_HEADER)));
    assert_int_equal(b->n_callers, 2);
}

/* Of strangers, of others, of other requests, and by those who do not say that it is a retry. */
static void test_nobody_else_gets_it(void **state)
{
    static const struct {
        const char *headers, *body;
    } others[] = {{BOB TRY(1), "{}"},
                  {TRY(1), "{}"},
                  {ANN TRY(1), "{1}"},
                  {ANN TRY(0), "{}"},
                  {ANN TRY(01), "{}"},
                  {ANN TRY(-1), "{}"},
                  {ANN TRY(1001), "{}"},
                  {ANN TRY(one), "{}"},
                  {ANN, "{}"},
                  {ANN TRY(1) KEY, "{}"},
                  {ANN TRY(1) "Content-Type: a/b\r\n", "{}"}};
    struct bench *b = *state;
    ask_and_go(b, ANN TRY(0));
    b->reply = SSE_HEAD ONE;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct client *c = post(b, 0, others[i].headers, others[i].body);
        UNTIL(b, told(c, "data: one"));
        assert_int_equal(b->n_callers, i + 2);
    }
}

/* Whoever shows nothing by which he is known could be anybody. */
static void test_strangers_get_nothing_of_each_other(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, TRY(0), "{}");
    UNTIL(b, is_heard(b, 0));
    hang_up(a);
    turns(b, 30);
    b->reply = SSE_HEAD ONE;
    struct client *c = post(b, 0, TRY(1), "{}");
    UNTIL(b, told(c, "data: one"));
    assert_int_equal(b->n_callers, 2);
    assert_int_equal(b->sides[0].gateway->repeats.n, 0);
}

/* An error was the answer: nothing was lost, and the retry asks. */
static void test_a_retry_behind_an_error_asks(void **state)
{
    struct bench *b = *state;
    ask_and_go(b, ANN TRY(0));
    b->reply = OTHER_HEAD "Content-Length: 2\r\n\r\n{}";
    struct client *a = post(b, 0, ANN TRY(0), "{}");
    UNTIL(b, told(a, "HTTP/1.1 400"));
    b->reply = SSE_HEAD ONE;
    struct client *c = post(b, 0, ANN TRY(1), "{}");
    UNTIL(b, told(c, "data: one"));
    assert_int_equal(b->n_callers, 3);
}

/* It came to nothing after it was lost: to wait for it would be in vain. */
static void test_a_retry_of_what_failed_asks(void **state)
{
    struct bench *b = *state;
    ask_and_go(b, ANN TRY(0));
    caller_close(b->callers[0]);
    UNTIL(b, b->sides[0].gateway->running.n == 0);
    b->reply = SSE_HEAD ONE;
    struct client *c = post(b, 0, ANN TRY(1), "{}"), *d;
    UNTIL(b, told(c, "data: one"));
    d = post(b, 0, ANN TRY(2), "{}"); /* what is still noted is the failed one */
    UNTIL(b, told(d, "data: one"));
    assert_int_equal(b->n_callers, 3);
}

static void test_a_retry_of_what_is_gone_asks(void **state)
{
    struct bench *b = *state;
    b->route.state_ttl_ms = 1;
    b->route.connect_timeout_ms = 0; /* the default; the others are bound by the time to live */
    ask_and_go(b, ANN TRY(0));
    caller_send(b->callers[0], SSE_HEAD ONE);
    caller_close(b->callers[0]);
    UNTIL(b, b->sides[0].gateway->running.n == 0);
    struct buf *in = &b->callers[0]->in;
    const char *at = memmem(in->p, in->n, ID_HEADER ": ", sizeof ID_HEADER + 1);
    struct str id = str_of(at + sizeof ID_HEADER + 1, REQUEST_ID_TEXT);
    UNTIL(b, ERR_IS_GONE((end_of(b, id, ""), stat_result)));
    b->reply = SSE_HEAD ONE;
    struct client *c = post(b, 0, ANN TRY(1), "{}");
    UNTIL(b, told(c, "data: one"));
    assert_int_equal(b->n_callers, 2);
}

/* ---- nobody reads it ---- */

static void stop_when_left(struct bench *b)
{
    b->route.disconnect = ROUTE_DISCONNECT_STOP;
    b->reply = SSE_HEAD ONE;
}

static void test_it_goes_on_without_readers(void **state)
{
    struct bench *b = *state;
    b->reply = SSE_HEAD ONE;
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    hang_up(a);
    UNTIL(b, b->sides[0].http.n_connections == 0);
    turns(b, 50);
    assert_false(b->callers[0]->gone);
}

static void test_it_stops_with_its_last_reader(void **state)
{
    struct bench *b = *state;
    stop_when_left(b);
    struct client *a = post(b, 0, KEY, "{}"), *joined, *reads;
    UNTIL(b, told(a, "data: one"));
    struct str id = header(a, ID_HEADER);
    joined = post(b, 0, KEY, "{}");
    reads = member(b, 0, "GET", id, "");
    UNTIL(b, told(joined, "data: one") && told(reads, "data: one"));
    struct client *leaving[] = {a, joined, reads};
    for (size_t i = 0; i < 3; i++) {
        assert_false(b->callers[0]->gone);
        hang_up(leaving[i]);
        UNTIL(b, b->sides[0].http.n_connections == 2 - i);
        turns(b, 50);
    }
    UNTIL(b, b->callers[0]->gone);
    UNTIL(b, end_of(b, id, "") == END_CANCELLED);
    UNTIL(b, count_docs(b, "running/") == 0);
}

/* Those that another server has do not count. */
static void test_readers_elsewhere_do_not_keep_it(void **state)
{
    struct bench *b = *state;
    stop_when_left(b);
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    struct client *elsewhere = member(b, 1, "GET", header(a, ID_HEADER), "");
    UNTIL(b, told(elsewhere, "data: one"));
    hang_up(a);
    UNTIL(b, b->callers[0]->gone);
    UNTIL(b, told(elsewhere, "event: end\ndata: {\"reason\":\"cancelled\""));
}

/* Nobody has anything of it: its key is free, and whoever comes again asks. */
static void test_left_before_there_was_anything(void **state)
{
    struct bench *b = *state;
    stop_when_left(b);
    b->reply = NULL;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, is_heard(b, 0));
    struct client *beside = post(b, 0, KEY, "{}");
    turns(b, 30);
    hang_up(a);
    UNTIL(b, b->sides[0].http.n_connections == 1);
    turns(b, 50);
    assert_false(b->callers[0]->gone);
    hang_up(beside);
    UNTIL(b, b->callers[0]->gone);
    UNTIL(b, count_docs(b, GATEWAY_KEYS) == 0);
    b->reply = SSE_HEAD ONE;
    struct client *again = post(b, 1, KEY, "{}");
    UNTIL(b, told(again, "HTTP/1.1 200") && told(again, "data: one"));
    assert_int_equal(b->n_callers, 2);
}

/* Gone even before it was begun: the store was slow to say whether its key is known. */
static void test_left_before_it_began(void **state)
{
    struct bench *b = *state;
    struct gateway *g = b->sides[0].gateway;
    stop_when_left(b);
    b->reply = NULL;
    struct client *a = post(b, 0, KEY, "{}");
    turns(b, 2);
    hang_up(a);
    UNTIL(b, b->sides[0].http.n_connections == 0);
    UNTIL(b, g->running.n == 0);
    UNTIL(b, b->n_callers == 0 || b->callers[0]->gone);
    UNTIL(b, count_docs(b, GATEWAY_KEYS) == 0);
}

/* Nor is a whole answer waited for that nobody would get; nor what goes to one client alone. */
static void test_left_in_every_other_state(void **state)
{
    struct bench *b = *state;
    struct gateway *g = b->sides[0].gateway;
    stop_when_left(b);
    b->reply = JSON_HEAD "Content-Length: 100\r\n\r\n{";
    for (size_t i = 0; i < 4; i++) {
        b->refuse = i < 2 ? 0 : ERR_BUSY;
        if (i == 3)
            b->reply = NULL;
        struct client *a = post(b, 0, i == 0 ? KEY : "", "{}");
        UNTIL(b, is_heard(b, i));
        if (i == 1 || i == 2)
            UNTIL(b, told(a, "\r\n\r\n"));
        turns(b, 30);
        hang_up(a);
        UNTIL(b, b->callers[i]->gone);
        UNTIL(b, g->running.n == 0);
        g->failed_ms = 0;
    }
}

/* What goes to its client unrecorded has nobody else, and stays for as long as he does. */
static void test_what_is_not_recorded_has_a_reader(void **state)
{
    struct bench *b = *state;
    stop_when_left(b);
    b->refuse = ERR_BUSY;
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "data: one"));
    turns(b, 50);
    caller_send(b->callers[0], TWO);
    UNTIL(b, told(a, "data: two"));
    assert_false(b->callers[0]->gone);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up_retries, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_a_retry_waits_for_the_answer_that_was_lost),
        T(test_a_retry_comes_behind_the_answer),
        T(test_a_whole_answer_that_was_lost),
        T(test_tries_one_after_the_other),
        T(test_an_answer_that_was_cut_off_at_its_beginning),
        T(test_an_answer_that_was_sent_to_nobody),
        T(test_equal_requests_side_by_side_stay_two),
        T(test_two_that_lost_their_answers_stay_two),
        T(test_nobody_else_gets_it),
        T(test_strangers_get_nothing_of_each_other),
        T(test_a_retry_behind_an_error_asks),
        T(test_a_retry_of_what_failed_asks),
        T(test_a_retry_of_what_is_gone_asks),
        T(test_it_goes_on_without_readers),
        T(test_it_stops_with_its_last_reader),
        T(test_readers_elsewhere_do_not_keep_it),
        T(test_left_before_there_was_anything),
        T(test_left_before_it_began),
        T(test_left_in_every_other_state),
        T(test_what_is_not_recorded_has_a_reader),
    };
    return cmocka_run_group_tests_name("unit/gateway_retries", tests, NULL, NULL);
}
