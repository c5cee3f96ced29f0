// SPDX-License-Identifier: Apache-2.0
/* Answers that are no streams of events, under a key: recorded as a whole, and given again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "feature/gateway/stored_answer.h"
#include "unit/feature/gateway/gateway_bench.h"

#define HEAD                                                                                       \
    "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nETag: \"e\"\r\n"                    \
    "Connection: close\r\n"
#define ANSWER HEAD "Content-Length: 12\r\n\r\n{\"text\":\"a\"}"
#define BODY   "\r\n\r\n{\"text\":\"a\"}"

static int set_up_answers(void **state)
{
    struct bench *b = bench_new(ROUTE_DIALECT_SSE);
    b->reply = ANSWER;
    *state = b;
    return 0;
}

/* All but the Date, which changes. */
static struct str without_date(struct client *c)
{
    char *at = memmem(c->in.p, c->in.n, "Date: ", 6);
    if (at != NULL) /* else it was done before */
        memset(at, '.', strlen("Date: Thu, 01 Jan 1970 00:00:00 GMT"));
    return buf_str(&c->in);
}

static void assert_same(struct client *a, struct client *other)
{
    assert_true(str_eq(without_date(a), without_date(other)));
}

static bool has_answer(struct client *c)
{
    return told(c, "HTTP/1.1 201 Created\r\n") && told(c, BODY);
}

/* With the same status, headers and bytes, at any server. */
static void test_an_answer_is_given_again(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, has_answer(a));
    assert_true(told(a, "Content-Type: application/json\r\n") && told(a, "ETag: \"e\"\r\n"));
    assert_true(told(a, "Content-Length: 12\r\n"));
    char location[80];
    struct str id = header(a, ID_HEADER);
    snprintf(location, sizeof location, "Location: /a/%.*s\r\n", (int)id.n, id.p);
    assert_true(told(a, location));
    for (size_t side = 0; side < SIDES; side++) {
        struct client *again = post(b, side, KEY, "{}");
        UNTIL(b, has_answer(again));
        assert_same(a, again);
    }
    struct client *read = member(b, 1, "GET", id, "");
    UNTIL(b, has_answer(read));
    assert_int_equal(b->n_callers, 1);
    assert_int_equal(end_of(b, id, ""), END_COMPLETED);
    UNTIL(b, count_docs(b, "running/") == 0);
    assert_int_equal(count_docs(b, GATEWAY_KEYS), 1);
}

static void test_another_request_under_its_key_is_refused(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, has_answer(a));
    struct client *other = post(b, 1, KEY, "{1}");
    UNTIL(b, told(other, "HTTP/1.1 422"));
    assert_int_equal(b->n_callers, 1);
}

/* What a reader says of positions says nothing of an answer that has none. */
static void test_positions_do_not_count(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, has_answer(a));
    struct client *again = post(b, 1, KEY "Last-Event-ID: 7\r\n", "{}");
    UNTIL(b, has_answer(again));
    struct client *snapshot = member(b, 0, "GET", header(a, ID_HEADER), "?from=snapshot");
    UNTIL(b, has_answer(snapshot));
}

static void test_an_answer_may_be_empty(void **state)
{
    struct bench *b = *state;
    b->reply = "HTTP/1.1 204 No Content\r\nX-Ignored: 1\r\nConnection: close\r\n\r\n";
    struct client *a = post(b, 0, KEY, "{}"), *again = post(b, 1, KEY, "{}");
    UNTIL(b, told(a, "HTTP/1.1 204") && told(again, "HTTP/1.1 204"));
    assert_int_equal(b->n_callers, 1);
}

/* Without a key nothing of this is kept. */
static void test_an_answer_without_a_key_passes(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, "", "{}");
    UNTIL(b, told(a, "HTTP/1.1 201") && told(a, "{\"text\":\"a\"}"));
    assert_false(told(a, "Location: "));
    UNTIL(b, count_docs(b, "running/") == 0);
    UNTIL(b, ERR_IS_GONE((end_of(b, header(a, ID_HEADER), ""), stat_result)));
}

/* Nobody could say whether all of it came. */
static void test_an_answer_without_an_end_passes(void **state)
{
    struct bench *b = *state;
    b->reply = NULL;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, is_heard(b, 0));
    caller_send(b->callers[0], HEAD "\r\n{\"text\":");
    UNTIL(b, told(a, "{\"text\":"));
    assert_false(told(a, "Location: "));
    caller_close(b->callers[0]);
    UNTIL(b, count_docs(b, GATEWAY_KEYS) == 0);
}

/* The first one of them is in the store before anybody has any of it. */
static void test_an_answer_is_durable_before_it_is_sent(void **state)
{
    struct bench *b = *state;
    b->front->hold = true;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, !list_empty(&b->front->held));
    struct client *beside = post(b, 0, KEY, "{}"), *elsewhere = post(b, 1, KEY, "{}");
    UNTIL(b, !list_empty(&b->sides[1].gateway->awaits));
    turns(b, 20);
    assert_false(told(a, "HTTP") || told(beside, "HTTP") || told(elsewhere, "HTTP"));
    facade_let_go(b->front);
    UNTIL(b, has_answer(a) && has_answer(beside));
    UNTIL(b, has_answer(elsewhere));
    assert_same(a, beside);
    assert_same(a, elsewhere);
    assert_int_equal(b->n_callers, 1);
}

/* The store has it, and does not say so: whoever comes meanwhile may have it all the same. */
static void test_an_answer_that_the_store_is_late_with(void **state)
{
    struct bench *b = *state;
    b->reply = NULL;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, is_heard(b, 0));
    b->front->late = true;
    caller_send(b->callers[0], ANSWER);
    UNTIL(b, !list_empty(&b->front->untold));
    struct client *elsewhere = post(b, 1, KEY, "{}");
    UNTIL(b, has_answer(elsewhere));
    assert_false(told(a, "HTTP"));
    facade_tell_all(b->front);
    UNTIL(b, has_answer(a));
    assert_same(a, elsewhere);
    assert_int_equal(b->n_callers, 1);
}

/* The upstream has answered, and nobody knows what: that is not asked for again by itself. */
static void test_an_answer_that_cannot_be_stored(void **state)
{
    struct bench *b = *state;
    b->reply = NULL;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, is_heard(b, 0));
    b->refuse = ERR_IO;
    caller_send(b->callers[0], ANSWER);
    UNTIL(b, told(a, "HTTP/1.1 50"));
    assert_false(told(a, "{\"text\":\"a\"}"));
    b->refuse = 0;
    struct client *again = post(b, 0, KEY, "{}");
    UNTIL(b, told(again, "HTTP/1.1 503") && told(again, "\"code\":\"ORPHANED\""));
    assert_int_equal(b->n_callers, 1);
    b->reply = ANSWER;
    struct client *anew = post(b, 1, KEY "Idempotency-Retry: ?1\r\n", "{}");
    UNTIL(b, has_answer(anew));
    assert_int_equal(b->n_callers, 2);
}

/* Half an answer is none: the key is free before the client is told. */
static void test_an_answer_that_breaks_off(void **state)
{
    struct bench *b = *state;
    b->reply = NULL;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, is_heard(b, 0));
    struct client *beside = post(b, 0, KEY, "{}");
    turns(b, 20);
    caller_send(b->callers[0], HEAD "Content-Length: 100\r\n\r\n{\"text\":");
    turns(b, 20);
    caller_close(b->callers[0]);
    UNTIL(b, told(a, "HTTP/1.1 502") && told(beside, "HTTP/1.1 502"));
    assert_false(told(a, "{\"text\":"));
    assert_int_equal(b->n_callers, 1);
    b->reply = ANSWER;
    struct client *again = post(b, 1, KEY, "{}");
    UNTIL(b, has_answer(again));
    assert_int_equal(b->n_callers, 2);
}

static void test_errors_are_not_kept(void **state)
{
    struct bench *b = *state;
    b->reply = OTHER_HEAD "Content-Length: 2\r\n\r\n{}";
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, told(a, "HTTP/1.1 400"));
    UNTIL(b, count_docs(b, GATEWAY_KEYS) == 0);
    b->reply = ANSWER;
    struct client *again = post(b, 1, KEY, "{}");
    UNTIL(b, has_answer(again));
    assert_int_equal(b->n_callers, 2);
}

/* ---- what is too large ---- */

/* A body of so many bytes behind the head, with a mark at its end. */
static void put_large(struct buf *out, size_t n)
{
    buf_printf(out, HEAD "Content-Length: %zu\r\n\r\n", n);
    char *body = buf_reserve(out, n + 1);
    memset(body, 'x', n);
    memcpy(body + n - 4, "LAST", 5);
    out->n += n + 1;
}

static void test_the_largest_that_is_kept(void **state)
{
    struct bench *b = *state;
    struct buf large = {0};
    put_large(&large, STORED_ANSWER_BODY_MAX);
    b->reply = large.p;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, told(a, "LAST"));
    struct client *again = post(b, 1, KEY, "{}");
    UNTIL(b, told(again, "LAST"));
    assert_same(a, again);
    assert_true(a->in.n > STORED_ANSWER_BODY_MAX);
    assert_int_equal(b->n_callers, 1);
    buf_deinit(&large);
}

/* A byte more, and it is the client's alone; the key is free, and who waited for it asks. */
static void test_what_is_too_large_passes(void **state)
{
    struct bench *b = *state;
    struct buf large = {0};
    put_large(&large, STORED_ANSWER_BODY_MAX + 1);
    b->reply = NULL;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, is_heard(b, 0));
    struct client *beside = post(b, 0, KEY, "{}");
    turns(b, 20);
    b->reply = large.p;
    caller_send(b->callers[0], large.p);
    UNTIL(b, told(a, "LAST") && told(beside, "LAST"));
    assert_true(told(a, "HTTP/1.1 201 Created\r\n") && told(a, "ETag: \"e\"\r\n"));
    assert_true(a->in.n > STORED_ANSWER_BODY_MAX);
    assert_false(told(a, "Location: "));
    assert_int_equal(b->n_callers, 2);
    UNTIL(b, count_docs(b, GATEWAY_KEYS) == 0);
    UNTIL(b, b->sides[0].gateway->kept_bytes == 0);
    buf_deinit(&large);
}

/* Nobody is there for it: it is not read to its end. It is known before it comes, or when it is
 * sent. */
static void test_what_is_too_large_for_nobody(void **state)
{
    struct bench *b = *state;
    struct gateway *g = b->sides[0].gateway;
    struct buf large = {0};
    put_large(&large, STORED_ANSWER_BODY_MAX + 100000);
    b->reply = NULL;
    b->route.disconnect_ms = 3600 * 1000;
    for (size_t i = 0; i < 2; i++) {
        b->route.disconnect = i == 0 ? ROUTE_DISCONNECT_CONTINUE : ROUTE_DISCONNECT_STOP;
        struct client *a = post(b, 0, KEY, "{}");
        UNTIL(b, is_heard(b, i));
        hang_up(a);
        turns(b, 20);
        caller_send(b->callers[i], large.p);
        UNTIL(b, b->callers[i]->gone);
        UNTIL(b, count_docs(b, GATEWAY_KEYS) == 0);
        assert_int_equal(g->kept_bytes, 0);
        assert_int_equal(g->running.n, 0);
    }
    buf_deinit(&large);
}

/* ---- stopped ---- */

/* The id that the upstream was told. */
static struct str told_id(struct bench *b, size_t i)
{
    struct buf *in = &b->callers[i]->in;
    const char *at = memmem(in->p, in->n, ID_HEADER ": ", sizeof ID_HEADER + 1);
    assert_non_null(at);
    return str_of(at + sizeof ID_HEADER + 1, REQUEST_ID_TEXT);
}

/* Who waits for a whole answer is told by a status, and SDKs do not try again. */
static void test_stopped_before_it_is_whole(void **state)
{
    struct bench *b = *state;
    b->reply = HEAD "Content-Length: 100\r\n\r\n{\"text\":";
    for (size_t side = 0; side < SIDES; side++) {
        char key[40];
        snprintf(key, sizeof key, "Idempotency-Key: %zu\r\n", side);
        struct client *a = post(b, 0, key, "{}");
        UNTIL(b, is_heard(b, side));
        turns(b, 50);
        struct client *c = member(b, side, "DELETE", told_id(b, side), "");
        UNTIL(b, told(c, "\"status\":\"cancelled\""));
        UNTIL(b, told(a, "HTTP/1.1 409") && told(a, "\"code\":\"CANCELLED\""));
        assert_true(told(a, "X-Should-Retry: false\r\n"));
        UNTIL(b, b->callers[side]->gone);
    }
}

/* The stop came first, and the answer finds its stream closed. */
static void test_stopped_elsewhere_when_it_is_whole(void **state)
{
    struct bench *b = *state;
    b->front->hold = true;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, !list_empty(&b->front->held));
    struct client *c = member(b, 1, "DELETE", told_id(b, 0), "");
    UNTIL(b, told(c, "\"status\":\"cancelled\""));
    facade_let_go(b->front);
    UNTIL(b, told(a, "HTTP/1.1 409"));
    assert_false(told(a, "{\"text\":\"a\"}"));
}

/* A reader that came too early has a head of events: it is cut off, and gets it when it comes
 * again. */
static void test_who_reads_before_it_is_known_what_it_is(void **state)
{
    struct bench *b = *state;
    b->reply = NULL;
    struct client *a = post(b, 0, KEY, "{}");
    UNTIL(b, is_heard(b, 0));
    struct str id = told_id(b, 0);
    struct client *early = member(b, 0, "GET", id, "");
    UNTIL(b, told(early, "text/event-stream"));
    caller_send(b->callers[0], ANSWER);
    UNTIL(b, has_answer(a));
    char byte;
    UNTIL(b, !told(early, "0\r\n\r\n") && recv(early->fd, &byte, 1, MSG_PEEK) == 0);
    assert_false(told(early, "{\"text\":\"a\"}"));
    struct client *again = member(b, 0, "GET", id, "");
    UNTIL(b, has_answer(again));
}

/* It must not come in a form that others cannot read. */
static void test_what_is_kept_is_asked_for_as_it_is(void **state)
{
    struct bench *b = *state;
    static char accepted[] = "Accept-Encoding";
    static char *forward[] = {accepted};
    b->route.forward = (struct option_list){.items = forward, .n = 1};
    struct client *a = post(b, 0, KEY "Accept-Encoding: gzip\r\n", "{}");
    UNTIL(b, has_answer(a));
    struct buf *in = &b->callers[0]->in;
    assert_non_null(memmem(in->p, in->n, "Accept-Encoding: identity\r\n", 27));
    assert_null(memmem(in->p, in->n, "gzip", 4));
    a = post(b, 0, "Accept-Encoding: gzip\r\n", "{}");
    UNTIL(b, told(a, "{\"text\":\"a\"}"));
    in = &b->callers[1]->in; /* it may turn out to be a stream of events, too */
    assert_non_null(memmem(in->p, in->n, "Accept-Encoding: identity\r\n", 27));
}

/* ---- keys that were not meant as such ---- */

static void test_implied_keys(void **state)
{
    struct bench *b = *state;
    static const char *const headers[] = {"X-Run-Id: r\r\n", "amz-sdk-invocation-id: r\r\n"};
    for (size_t i = 0; i < 2; i++) {
        struct client *a = post(b, 0, headers[i], "{}"), *again = post(b, 1, headers[i], "{}");
        UNTIL(b, has_answer(a) && has_answer(again));
        assert_same(a, again);
        assert_int_equal(b->n_callers, 2 * i + 1);
        struct client *other = post(b, 1, headers[i], "{1}"); /* a run may have many requests */
        UNTIL(b, has_answer(other));
        assert_false(str_eq(header(a, ID_HEADER), header(other, ID_HEADER)));
        assert_int_equal(b->n_callers, 2 * i + 2);
    }
}

/* Nobody who sends one knows that an answer was kept, or for how long. */
static void test_an_implied_key_outlives_its_answer(void **state)
{
    struct bench *b = *state;
    b->route.state_ttl_ms = 1;
    struct client *a = post(b, 0, "X-Run-Id: r\r\n", "{}");
    UNTIL(b, has_answer(a));
    struct str id = header(a, ID_HEADER);
    UNTIL(b, ERR_IS_GONE((end_of(b, id, ""), stat_result)));
    struct client *again = post(b, 1, "X-Run-Id: r\r\n", "{}");
    UNTIL(b, has_answer(again));
    assert_int_equal(b->n_callers, 2);
}

static void test_the_key_that_was_meant_counts(void **state)
{
    struct bench *b = *state;
    struct client *a = post(b, 0, KEY "X-Run-Id: 1\r\n", "{}");
    UNTIL(b, has_answer(a));
    struct client *again = post(b, 1, KEY "X-Run-Id: 2\r\n", "{}");
    UNTIL(b, has_answer(again));
    struct client *other = post(b, 1, KEY "X-Run-Id: 1\r\n", "{1}");
    UNTIL(b, told(other, "HTTP/1.1 422"));
    assert_int_equal(b->n_callers, 1);
}

/* One that cannot be a key is none: it is not ours to refuse. */
static void test_an_implied_key_of_any_size(void **state)
{
    struct bench *b = *state;
    char long_one[400] = "X-Run-Id: ";
    memset(long_one + strlen(long_one), 'x', 300);
    strcat(long_one, "\r\n");
    static const char *const empty = "X-Run-Id: \r\n";
    const char *headers[] = {long_one, empty};
    for (size_t i = 0; i < 2; i++) {
        struct client *a = post(b, 0, headers[i], "{}");
        UNTIL(b, told(a, "HTTP/1.1 201"));
        assert_false(told(a, "Location: "));
    }
    assert_int_equal(count_docs(b, GATEWAY_KEYS), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up_answers, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_an_answer_is_given_again),
        T(test_another_request_under_its_key_is_refused),
        T(test_positions_do_not_count),
        T(test_an_answer_may_be_empty),
        T(test_an_answer_without_a_key_passes),
        T(test_an_answer_without_an_end_passes),
        T(test_an_answer_is_durable_before_it_is_sent),
        T(test_an_answer_that_the_store_is_late_with),
        T(test_an_answer_that_cannot_be_stored),
        T(test_an_answer_that_breaks_off),
        T(test_errors_are_not_kept),
        T(test_the_largest_that_is_kept),
        T(test_what_is_too_large_passes),
        T(test_what_is_too_large_for_nobody),
        T(test_stopped_before_it_is_whole),
        T(test_stopped_elsewhere_when_it_is_whole),
        T(test_who_reads_before_it_is_known_what_it_is),
        T(test_what_is_kept_is_asked_for_as_it_is),
        T(test_implied_keys),
        T(test_an_implied_key_outlives_its_answer),
        T(test_the_key_that_was_meant_counts),
        T(test_an_implied_key_of_any_size),
    };
    return cmocka_run_group_tests_name("unit/gateway_answers", tests, NULL, NULL);
}
