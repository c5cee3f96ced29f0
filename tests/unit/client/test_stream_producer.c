// SPDX-License-Identifier: Apache-2.0
#include "unit/client/fake_http.h"

static struct tm_producer *producer(struct tm_client *c, struct tm_producer_options *o)
{
    struct tm_producer *p = NULL;
    o->id = "p";
    o->retry_for_ms = 0;
    if (o->linger_ms == 0)
        o->linger_ms = TM_FOREVER;
    assert_int_equal(tm_producer_new(c, "a", o, &p), 0);
    return p;
}

/* One batch for each of the letters. */
static struct tm_producer *batches(struct tm_client *c, struct tm_producer_options *o,
                                   const char *letters)
{
    o->batch_bytes = 1;
    struct tm_producer *p = producer(c, o);
    for (; *letters; letters++)
        assert_int_equal(tm_producer_append(p, letters, 1), 0);
    return p;
}

static void expect(size_t i, const char *epoch, const char *seq, const char *body)
{
    struct http_request *r = fake.requests[i];
    assert_string_equal(fake_header(r, "producer-id"), "p");
    assert_string_equal(fake_header(r, "producer-epoch"), epoch);
    assert_string_equal(fake_header(r, "producer-seq"), seq);
    assert_str(r->body, body);
}

static void store(size_t i, const char *headers)
{
    fake_answer(fake.requests[i], 200, headers, "");
}

static void gathers_a_batch(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    (void)state;
    o.linger_ms = 20;
    struct tm_producer *p = producer(c, &o);
    assert_int_equal(tm_producer_append(p, "ab", 2), 0);
    assert_int_equal(tm_producer_append(p, "cd", 2), 0);
    tm_turn(c);
    assert_int_equal(fake.n, 0); /* it lingers */
    fake_wait(c, 1);
    expect(0, "0", "0", "abcd");
    assert_string_equal(fake_header(fake.requests[0], "content-type"), "application/octet-stream");
    assert_int_equal(tm_producer_pending(p), 4);
    store(0, "stream-next-offset: 0_4\n");
    assert_int_equal(tm_producer_flush(p, 0), 0);
    assert_int_equal(tm_producer_pending(p), 0);
    assert_string_equal(tm_producer_offset(p), "0_4");
    tm_producer_free(p);
    fake_close(c);
}

static void sends_json_as_one_array(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    (void)state;
    o.content_type = "application/json; charset=utf-8";
    struct tm_producer *p = producer(c, &o);
    assert_int_equal(tm_producer_append(p, "{\"a\":1}", 7), 0);
    assert_int_equal(tm_producer_append(p, "{\"a\":", 5), TM_E_INVALID);
    assert_int_equal(tm_producer_append(p, "[2]", 3), 0);
    assert_int_equal(tm_producer_flush(p, 0), TM_E_TIMEOUT);
    assert_int_equal(fake.n, 1);
    expect(0, "0", "0", "[{\"a\":1},[2]]");
    store(0, "");
    assert_int_equal(tm_producer_flush(p, 0), 0);
    tm_producer_free(p);
    fake_close(c);
}

static void sends_the_first_alone_and_then_several(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    (void)state;
    o.in_flight = 3;
    struct tm_producer *p = batches(c, &o, "abcdef");
    fake_wait(c, 1);
    fake_quiet(c);
    expect(0, "0", "0", "a");
    store(0, "stream-next-offset: 0_1\n");
    fake_wait(c, 3);
    fake_quiet(c);
    expect(0, "0", "1", "b");
    expect(1, "0", "2", "c");
    expect(2, "0", "3", "d");
    /* Answers overtake each other; the offset is that of the latest. */
    store(2, "stream-next-offset: 0_4\n");
    store(0, "stream-next-offset: 0_2\n");
    assert_string_equal(tm_producer_offset(p), "0_4");
    fake_wait(c, 3);
    expect(1, "0", "4", "e");
    expect(2, "0", "5", "f");
    tm_producer_free(p);
    fake_close(c);
}

static void repeats_with_the_same_number(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    (void)state;
    struct tm_producer *p = batches(c, &o, "a");
    fake_lose(fake_wait(c, 1));
    assert_int_equal(tm_producer_append(p, "b", 1), 0);
    fake_wait(c, 1);
    expect(0, "0", "0", "a");
    fake_answer(fake.requests[0], 503, "", "");
    fake_wait(c, 1);
    expect(0, "0", "0", "a");
    fake_answer(fake.requests[0], 204, "", ""); /* it was stored the first time */
    fake_wait(c, 1);
    expect(0, "0", "1", "b");
    store(0, "");
    assert_int_equal(tm_producer_flush(p, 0), 0);
    tm_producer_free(p);
    fake_close(c);
}

static void goes_behind_its_predecessors(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    (void)state;
    struct tm_producer *p = batches(c, &o, "abc");
    fake_wait(c, 1);
    store(0, "");
    fake_wait(c, 2);
    fake_answer(fake.requests[1], 409, "producer-expected-seq: 1\nproducer-received-seq: 2\n", "");
    fake_quiet(c); /* c waits for b */
    expect(0, "0", "1", "b");
    store(0, "");
    fake_wait(c, 1);
    expect(0, "0", "2", "c");
    store(0, "");
    assert_int_equal(tm_producer_flush(p, 0), 0);
    tm_producer_free(p);
    fake_close(c);
}

/* A server that has forgotten the producer will not remember by being asked again. */
static void fails_when_there_is_no_predecessor(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    (void)state;
    struct tm_producer *p = batches(c, &o, "ab");
    fake_wait(c, 1);
    store(0, "");
    fake_wait(c, 1);
    fake_answer(fake.requests[0], 409, "producer-expected-seq: 0\n", "");
    assert_int_equal(tm_producer_flush(p, 0), TM_E_CONFLICT);
    tm_producer_free(p);
    fake_close(c);
}

static void takes_the_next_epoch(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    (void)state;
    o.claim = 1;
    struct tm_producer *p = batches(c, &o, "abcd");
    fake_wait(c, 1);
    store(0, "");
    fake_wait(c, 3);
    /* b was stored, its answer is late; c and d came behind the other producer. */
    fake_answer(fake.requests[1], 403, "producer-epoch: 7\n", "");
    fake_quiet(c);
    fake_answer(fake.requests[1], 403, "producer-epoch: 7\n", "");
    store(0, "");
    fake_wait(c, 1);
    fake_quiet(c);
    expect(0, "8", "0", "c");
    assert_int_equal(tm_producer_epoch(p), 8);
    store(0, "");
    fake_wait(c, 1);
    expect(0, "8", "1", "d");
    store(0, "");
    assert_int_equal(tm_producer_flush(p, 0), 0);
    tm_producer_free(p);
    fake_close(c);
}

static void stays_fenced_without_a_claim(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    (void)state;
    struct tm_producer *p = batches(c, &o, "ab");
    fake_wait(c, 1);
    fake_answer(fake.requests[0], 403, "producer-epoch: 7\n", "");
    assert_int_equal(tm_producer_error(p), TM_E_FENCED);
    assert_int_equal(tm_producer_append(p, "c", 1), TM_E_FENCED);
    assert_int_equal(tm_producer_flush(p, 0), TM_E_FENCED);
    fake_quiet(c);
    tm_producer_free(p);
    fake_close(c);
}

static void fails_for_good_and_cancels_the_rest(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    (void)state;
    struct tm_producer *p = batches(c, &o, "abcd");
    fake_wait(c, 1);
    store(0, "");
    fake_wait(c, 3);
    fake_answer(fake.requests[1], 404, "", "gone");
    assert_int_equal(fake.n, 0);
    assert_int_equal(tm_producer_close(p, NULL, 0, 0), TM_E_NOT_FOUND);
    assert_string_equal(tm_error(c), "/v1/stream/a: gone");
    tm_producer_free(p);
    fake_close(c);
}

static void bounds_the_items_of_a_batch(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    (void)state;
    o.content_type = "application/json";
    o.linger_ms = TM_FOREVER;
    o.batch_items = 2;
    struct tm_producer *p = producer(c, &o);
    for (const char *digit = "12345"; *digit; digit++)
        assert_int_equal(tm_producer_append(p, digit, 1), 0);
    assert_str(fake_wait(c, 1)->body, "[1,2]");
    store(0, "");
    assert_str(fake_wait(c, 1)->body, "[3,4]");
    store(0, "");
    fake_quiet(c); /* the fifth is alone, and nothing sends it */
    assert_int_equal(tm_producer_flush(p, 0), TM_E_TIMEOUT);
    assert_str(fake_wait(c, 1)->body, "[5]");
    tm_producer_free(p);
    fake_close(c);
}

#define expect_strict(name, value, sentence)                                                       \
    do {                                                                                           \
        struct tm_producer_options o_ = TM_PRODUCER_STRICT_INIT;                                   \
        struct tm_producer *p_ = NULL;                                                             \
        o_.name = value;                                                                           \
        assert_int_equal(tm_producer_new(c, "a", &o_, &p_), *(sentence) ? TM_E_INVALID : 0);       \
        assert_string_equal(*(sentence) ? tm_error(c) : "", sentence);                             \
        tm_producer_free(p_);                                                                      \
    } while (0)

static void checks_what_it_is_told(void **state)
{
    struct tm_client *c = fake_client();
    (void)state;
    expect_strict(claim, 0, "");
    expect_strict(linger_ms, 0, ""); /* at once */
    expect_strict(linger_ms, -2, "linger_ms cannot be negative");
    expect_strict(epoch, (uint64_t)-1, "epoch is above 2^53 - 1");
    expect_strict(id, "", "id cannot be sent");
    expect_strict(batch_bytes, 0, "batch_bytes must be positive, and fit into memory");
    expect_strict(batch_bytes, (size_t)-1, "batch_bytes must be positive, and fit into memory");
    expect_strict(batch_items, 0, "batch_items must be positive, and fit into memory");
    expect_strict(batch_items, (size_t)-1, "batch_items must be positive, and fit into memory");
    expect_strict(pending_max, 0, "pending_max must be positive, and fit into memory");
    expect_strict(in_flight, 0, "in_flight must be positive");
    expect_strict(retry_for_ms, -1, "retry_for_ms cannot be negative");
    fake_close(c);
}

/* A program built with a header that did not know them: what stands behind its end is not looked
 * at. */
static void older_options_work(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    (void)state;
    o.size = offsetof(struct tm_producer_options, batch_items);
    o.batch_items = 1;
    o.strict = 1;
    o.linger_ms = TM_FOREVER;
    struct tm_producer *p = producer(c, &o);
    assert_int_equal(tm_producer_append(p, "a", 1), 0);
    fake_quiet(c);
    tm_producer_free(p);
    fake_close(c);
}

static void bounds_what_is_pending(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    (void)state;
    o.pending_max = 4;
    struct tm_producer *p = producer(c, &o);
    assert_int_equal(tm_producer_append(p, "abc", 3), 0);
    assert_int_equal(tm_producer_append(p, "abcde", 5), TM_E_TOO_LARGE);
    assert_int_equal(tm_producer_append(p, "", 0), TM_E_INVALID);
    assert_int_equal(tm_producer_append(p, "d", 1), 0);
    assert_int_equal(tm_producer_append(p, "e", 1), TM_E_BUSY);
    assert_int_equal(tm_producer_flush(p, 0), TM_E_TIMEOUT);
    expect(0, "0", "0", "abcd");
    store(0, "");
    assert_int_equal(tm_producer_append(p, "de", 2), 0);
    tm_producer_free(p);
    fake_close(c);
}

/* A batch that nothing more fits behind goes, though it is smaller than others may be. */
static void sends_what_fills_all_there_is(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    (void)state;
    o.pending_max = 4;
    o.linger_ms = TM_FOREVER;
    struct tm_producer *p = producer(c, &o);
    assert_int_equal(tm_producer_append(p, "abc", 3), 0);
    assert_int_equal(tm_producer_append(p, "de", 2), TM_E_BUSY);
    fake_wait(c, 1);
    expect(0, "0", "0", "abc");
    store(0, "");
    assert_int_equal(tm_producer_append(p, "de", 2), 0);
    tm_producer_free(p);
    fake_close(c);
}

static void closes_behind_all(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    (void)state;
    struct tm_producer *p = producer(c, &o);
    assert_int_equal(tm_producer_append(p, "ab", 2), 0);
    assert_int_equal(tm_producer_close(p, "c", 1, 0), TM_E_TIMEOUT);
    expect(0, "0", "0", "abc");
    assert_string_equal(fake_header(fake.requests[0], "stream-closed"), "true");
    assert_int_equal(tm_producer_append(p, "d", 1), TM_E_CLOSED);
    store(0, "stream-next-offset: 0_3\nstream-closed: true\n");
    assert_int_equal(tm_producer_close(p, "c", 1, 0), 0); /* not once more */
    assert_int_equal(fake.started, 1);
    tm_producer_free(p);

    p = producer(c, &o); /* nothing to say but the end */
    assert_int_equal(tm_producer_close(p, NULL, 0, 0), TM_E_TIMEOUT);
    expect(0, "0", "0", "");
    assert_string_equal(fake_header(fake.requests[0], "stream-closed"), "true");
    assert_string_equal(fake_header(fake.requests[0], "content-type"), "");
    fake_answer(fake.requests[0], 204, "", "");
    assert_int_equal(tm_producer_close(p, NULL, 0, 0), 0);
    tm_producer_free(p);
    fake_close(c);
}

static void gives_up_when_it_is_told_to(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer_options o = TM_PRODUCER_INIT;
    struct tm_producer *p = NULL;
    (void)state;
    o.retry_for_ms = 50;
    o.linger_ms = TM_FOREVER;
    assert_int_equal(tm_producer_new(c, "a", &o, &p), 0);
    assert_int_equal(tm_producer_append(p, "a", 1), 0);
    assert_int_equal(tm_producer_flush(p, 0), TM_E_TIMEOUT);
    while (tm_producer_error(p) == 0)
        fake_lose(fake_wait(c, 1));
    assert_int_equal(tm_producer_flush(p, 0), TM_E_NETWORK);
    tm_producer_free(p);
    fake_close(c);
}

static void refuses_settings_that_make_no_sense(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_producer *p = NULL;
    (void)state;
    struct tm_producer_options bad[] = {TM_PRODUCER_INIT, TM_PRODUCER_INIT, TM_PRODUCER_INIT,
                                        TM_PRODUCER_INIT};
    bad[0].epoch = UINT64_MAX;
    bad[1].batch_bytes = SIZE_MAX;
    bad[2].id = "";
    bad[3].in_flight = -1;
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(tm_producer_new(c, "a", &bad[i], &p), TM_E_INVALID);
    assert_int_equal(tm_producer_new(c, "", NULL, &p), TM_E_INVALID);
    assert_null(p);
    fake_close(c);
}

/* What was appended with success is stored, once and in order, whichever allocation fails. */
static bool try_without(struct tm_client *c, unsigned nth)
{
    struct tm_producer_options o = TM_PRODUCER_INIT;
    struct tm_producer *p = NULL;
    char wanted[16] = "", got[16] = "";
    unsigned before = fake.allocations;
    bool failed = false;
    o.batch_bytes = 1;
    o.in_flight = 1;
    fake.fail_at = before + nth;
    if (tm_producer_new(c, "a", &o, &p) == TM_E_NOMEM)
        return true;
    for (const char *letter = "abc"; *letter; letter++) {
        int err = tm_producer_append(p, letter, 1);
        assert_true(err == 0 || err == TM_E_NOMEM);
        if (err == 0)
            wanted[strlen(wanted)] = *letter;
        failed = failed || err;
    }
    while (tm_producer_pending(p) > 0) {
        struct http_request *r = fake_wait(c, 1);
        strncat(got, r->body.p, r->body.n);
        fake_answer(r, 200, "", "");
    }
    assert_string_equal(got, wanted);
    failed = failed || fake.allocations >= fake.fail_at;
    fake.fail_at = 0;
    tm_producer_free(p);
    return failed;
}

static void survives_the_lack_of_memory(void **state)
{
    struct tm_client *c = fake_client();
    unsigned nth = 1;
    (void)state;
    while (try_without(c, nth))
        nth++;
    assert_true(nth > 10);
    fake_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathers_a_batch),
        cmocka_unit_test(sends_json_as_one_array),
        cmocka_unit_test(sends_the_first_alone_and_then_several),
        cmocka_unit_test(repeats_with_the_same_number),
        cmocka_unit_test(goes_behind_its_predecessors),
        cmocka_unit_test(fails_when_there_is_no_predecessor),
        cmocka_unit_test(takes_the_next_epoch),
        cmocka_unit_test(stays_fenced_without_a_claim),
        cmocka_unit_test(fails_for_good_and_cancels_the_rest),
        cmocka_unit_test(bounds_the_items_of_a_batch),
        cmocka_unit_test(checks_what_it_is_told),
        cmocka_unit_test(older_options_work),
        cmocka_unit_test(bounds_what_is_pending),
        cmocka_unit_test(sends_what_fills_all_there_is),
        cmocka_unit_test(closes_behind_all),
        cmocka_unit_test(gives_up_when_it_is_told_to),
        cmocka_unit_test(refuses_settings_that_make_no_sense),
        cmocka_unit_test(survives_the_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
