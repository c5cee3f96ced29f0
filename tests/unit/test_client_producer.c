// SPDX-License-Identifier: Apache-2.0
#include "unit/scripted.h"

static struct client_producer *producer_of(struct client *c, const char *type, bool claim)
{
    /* It lingers so long that a slow machine does not cut batches. */
    struct client_producer_options options = {
        .content_type = type, .id = "p", .epoch = 3, .claim = claim, .linger_ms = 1000000};
    return client_producer_new(c, "a", &options);
}

static int put(struct client_producer *p, const char *text)
{
    return client_producer_append(p, text, strlen(text));
}

static void producer_joins_what_it_gathers(void **state)
{
    static const struct turn turns[] = {
        {200, NEXT("1_5"), NULL, WHOLE},
        {204, NULL, NULL, WHOLE}, /* a duplicate is as good */
        {200, NEXT("1_12"), NULL, WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    struct client_producer *p = producer_of(c, "text/plain", false);
    assert_true(client_producer_due_ms(p) == UINT64_MAX);
    assert_int_equal(client_producer_flush(p), 0); /* nothing: nothing is sent */
    assert_int_equal(put(p, "one\n"), 0);
    assert_int_equal(put(p, "two\n"), 0);
    assert_int_equal(put(p, ""), ERR_EMPTY);
    assert_true(client_producer_due_ms(p) <= 1000000);
    assert_int_equal(client_producer_flush(p), 0);
    assert_string_equal(client_producer_offset(p), "1_5");
    assert_int_equal(put(p, "three\n"), 0);
    assert_int_equal(client_producer_flush(p), 0);
    assert_string_equal(client_producer_offset(p), "1_5");
    client_producer_free(p);
    p = producer_of(c, "application/json", false);
    assert_int_equal(put(p, "[1]"), 0);
    assert_int_equal(put(p, "{bad"), ERR_JSON);
    assert_int_equal(put(p, "\"x\"\n"), 0);
    assert_int_equal(client_producer_flush(p), 0);
    assert_string_equal(client_producer_offset(p), "1_12");
    client_producer_free(p);
    client_free(c);
    script_end(s);
    assert_begins(s, 0, "POST /v1/stream/a");
    assert_header(s, 0, "Producer-Id: p", true);
    assert_header(s, 0, "Producer-Epoch: 3", true);
    assert_header(s, 0, "Producer-Seq: 0", true);
    assert_header(s, 0, "Content-Type: text/plain", true);
    assert_string_equal(body_of(s, 0), "one\ntwo\n");
    assert_header(s, 1, "Producer-Seq: 1", true);
    assert_string_equal(body_of(s, 1), "three\n");
    assert_string_equal(body_of(s, 2), "[[1],\"x\"\n]");
    script_free(s);
}

static void producer_sends_a_full_batch_before_taking_more(void **state)
{
    static const struct turn turns[] = {
        {200, NEXT("1_1"), NULL, WHOLE},
        {200, NEXT("1_2"), NULL, WHOLE},
        {200, NEXT("1_3"), NULL, WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    struct client_producer_options options = {
        .content_type = "text/plain", .linger_ms = 1000000, .batch_bytes = 6};
    struct client_producer *p = client_producer_new(c, "a", &options);
    assert_int_equal(put(p, "abc"), 0);
    assert_int_equal(put(p, "def"), 0); /* full, and due */
    assert_int_equal(client_producer_due_ms(p), 0);
    assert_int_equal(put(p, "larger than a batch"), 0);
    assert_int_equal(put(p, "x"), 0);
    assert_int_equal(client_producer_flush(p), 0);
    client_producer_free(p);
    client_free(c);
    script_end(s);
    assert_string_equal(body_of(s, 0), "abcdef");
    assert_string_equal(body_of(s, 1), "larger than a batch");
    assert_string_equal(body_of(s, 2), "x");
    assert_null(strstr(s->got[0].p, "Producer-Id: \r\n")); /* a random one was made up */
    script_free(s);
}

static void assert_same_batch(const struct script *s, size_t i, size_t j)
{
    assert_int_equal(s->got[i].n, s->got[j].n);
    assert_memory_equal(s->got[i].p, s->got[j].p, s->got[i].n);
}

static void producer_repeats_until_it_is_stored(void **state)
{
    static const struct turn turns[] = {
        {0, NULL, NULL, NO_ANSWER},      {503, "Retry-After: 0\r\n", NULL, WHOLE},
        {429, NULL, NULL, WHOLE},        {200, NEXT("1_1"), NULL, HALF_HEAD},
        {200, NEXT("1_1"), "half", CUT}, /* stored, but the answer did not arrive */
        {500, NULL, "oops", TO_CLOSE},   {204, NEXT("1_1"), NULL, WHOLE},
        {200, NEXT("1_2"), NULL, WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    struct client_producer *p = producer_of(c, "application/json", false);
    assert_int_equal(put(p, "1"), 0);
    assert_int_equal(client_producer_flush(p), 0);
    assert_int_equal(put(p, "2"), 0);
    assert_int_equal(client_producer_flush(p), 0);
    client_producer_free(p);
    client_free(c);
    script_end(s);
    assert_header(s, 0, "Producer-Seq: 0", true);
    assert_string_equal(body_of(s, 0), "[1]");
    for (size_t i = 1; i < 7; i++)
        assert_same_batch(s, 0, i);
    assert_header(s, 7, "Producer-Seq: 1", true);
    assert_string_equal(body_of(s, 7), "[2]");
    script_free(s);
}

/* A batch that may be stored keeps its number and its bytes, whatever comes behind it. */
static void producer_gives_up_and_goes_on(void **state)
{
    static const struct turn turns[] = {
        {503, "Retry-After: 3600\r\n", NULL, WHOLE},
        {503, "Retry-After: 3600\r\n", NULL, WHOLE},
        {200, NEXT("1_1"), NULL, WHOLE},
        {200, NEXT("1_2"), NULL, WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    struct client_producer_options options = {
        .content_type = "text/plain", .linger_ms = 1000000, .retry_for_ms = 60000};
    struct client_producer *p = client_producer_new(c, "a", &options);
    assert_int_equal(put(p, "one"), 0);
    assert_int_equal(client_producer_flush(p), ERR_BUSY);
    assert_non_null(strstr(client_error(c), "gave up"));
    assert_int_equal(put(p, "two"), ERR_BUSY); /* not taken: the first goes before it */
    assert_int_equal(put(p, "two"), 0);
    assert_int_equal(client_producer_flush(p), 0);
    client_producer_free(p);
    client_free(c);
    script_end(s);
    assert_same_batch(s, 0, 1);
    assert_same_batch(s, 0, 2);
    assert_header(s, 3, "Producer-Seq: 1", true);
    assert_string_equal(body_of(s, 3), "two");
    script_free(s);
}

static void producer_claims_when_asked_to(void **state)
{
    static const struct turn turns[] = {
        {200, NEXT("1_1"), NULL, WHOLE},
        {403, "Producer-Epoch: 7\r\n", NULL, WHOLE},
        {200, NEXT("1_2"), NULL, WHOLE},
        {200, NEXT("1_3"), NULL, WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    struct client_producer *p = producer_of(c, "text/plain", true);
    static const char *const pieces[] = {"one", "two", "three"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(put(p, pieces[i]), 0);
        assert_int_equal(client_producer_flush(p), 0);
    }
    client_producer_free(p);
    client_free(c);
    script_end(s);
    assert_header(s, 1, "Producer-Epoch: 3", true);
    assert_header(s, 1, "Producer-Seq: 1", true);
    assert_header(s, 2, "Producer-Epoch: 8", true);
    assert_header(s, 2, "Producer-Seq: 0", true);
    assert_string_equal(body_of(s, 2), "two");
    assert_header(s, 3, "Producer-Epoch: 8", true);
    assert_header(s, 3, "Producer-Seq: 1", true);
    script_free(s);
}

static void producer_reports_what_no_retry_mends(void **state)
{
    static const struct {
        struct turn turn;
        int err;
    } cases[] = {
        {{403, "Producer-Epoch: 7\r\n", NULL, WHOLE}, ERR_FENCED},
        {{409, "Producer-Expected-Seq: 0\r\nProducer-Received-Seq: 4\r\n", NULL, WHOLE},
         ERR_SEQ_GAP},
        {{409, CLOSED, NULL, WHOLE}, ERR_CLOSED},
        {{409, NULL, NULL, WHOLE}, ERR_TYPE_MISMATCH},
        {{404, NULL, NULL, WHOLE}, ERR_NOT_FOUND},
        {{413, NULL, NULL, WHOLE}, ERR_TOO_LARGE},
        {{400, NULL, NULL, WHOLE}, ERR_SYNTAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct script *s = script_start(&cases[i].turn, 1);
        struct client *c = client_of(s);
        struct client_producer *p = producer_of(c, "text/plain", false);
        assert_int_equal(put(p, "x"), 0);
        assert_int_equal(client_producer_flush(p), cases[i].err);
        client_producer_free(p);
        client_free(c);
        script_end(s);
        script_free(s);
    }
}

static void producer_closes_with_its_last_batch(void **state)
{
    static const struct turn turns[] = {
        {0, NULL, NULL, NO_ANSWER},
        {204, CLOSED NEXT("1_1"), NULL, WHOLE},
        {204, CLOSED NEXT("1_0"), NULL, WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    struct client_producer *p = producer_of(c, "text/plain", false);
    assert_int_equal(put(p, "last"), 0);
    assert_int_equal(client_producer_close(p), 0);
    assert_int_equal(client_producer_close(p), 0); /* asks nothing any more */
    assert_int_equal(put(p, "more"), ERR_CLOSED);
    client_producer_free(p);
    p = producer_of(c, "text/plain", false);
    assert_int_equal(client_producer_close(p), 0); /* with nothing to send it is just closed */
    assert_string_equal(client_producer_offset(p), "1_0");
    client_producer_free(p);
    client_free(c);
    script_end(s);
    assert_header(s, 0, "Stream-Closed: true", true);
    assert_string_equal(body_of(s, 0), "last");
    assert_same_batch(s, 0, 1);
    assert_header(s, 2, "Stream-Closed: true", true);
    assert_header(s, 2, "Producer-Seq: 0", true);
    assert_header(s, 2, "Content-Length: 0", true);
    script_free(s);
}

/* What was sent without closing must go out again without closing. */
static void producer_closes_after_a_batch_in_doubt(void **state)
{
    static const struct turn turns[] = {
        {503, "Retry-After: 3600\r\n", NULL, WHOLE},
        {204, NEXT("1_1"), NULL, WHOLE},
        {204, CLOSED NEXT("1_1"), NULL, WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    struct client_producer_options options = {
        .content_type = "text/plain", .linger_ms = 1000000, .retry_for_ms = 60000};
    struct client_producer *p = client_producer_new(c, "a", &options);
    assert_int_equal(put(p, "one"), 0);
    assert_int_equal(client_producer_flush(p), ERR_BUSY);
    assert_int_equal(client_producer_close(p), 0);
    client_producer_free(p);
    client_free(c);
    script_end(s);
    assert_same_batch(s, 0, 1);
    assert_header(s, 2, "Stream-Closed: true", true);
    assert_header(s, 2, "Producer-Seq: 1", true);
    script_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(producer_joins_what_it_gathers),
        cmocka_unit_test(producer_sends_a_full_batch_before_taking_more),
        cmocka_unit_test(producer_repeats_until_it_is_stored),
        cmocka_unit_test(producer_gives_up_and_goes_on),
        cmocka_unit_test(producer_claims_when_asked_to),
        cmocka_unit_test(producer_reports_what_no_retry_mends),
        cmocka_unit_test(producer_closes_with_its_last_batch),
        cmocka_unit_test(producer_closes_after_a_batch_in_doubt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
