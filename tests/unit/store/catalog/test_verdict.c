// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "store/catalog/verdict.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* An open JSON stream at 40 in life 9, last written by producer p at 5.7 with Stream-Seq "m". */
static const struct producer_state known = {5, 7};

static struct verdict_state open_stream(void)
{
    return (struct verdict_state){.content_type = STR("application/json"),
                                  .life = 9,
                                  .tail = 40,
                                  .producer = &known,
                                  .last_seq = STR("m")};
}

/* A write that it takes, with every precondition there is. */
static struct store_write good_write(void)
{
    return (struct store_write){.content_type = STR("application/json"),
                                .data = STR("1,"),
                                .claim = {STR("p"), 5, 8},
                                .seq = STR("n"),
                                .if_match = true,
                                .match = {9, 40}};
}

static void test_takes_what_fulfils_all(void **state)
{
    struct verdict_state s = open_stream();
    struct store_write w = good_write();
    assert_int_equal(verdict_write(&s, &w), VERDICT_APPLY);
    assert_int_equal(w.producer.epoch, 5);
    assert_int_equal(w.producer.seq, 8);
}

/* ---- precedence ---- */

/* Each spoils one thing; they stand in the order in which they have to be looked at. */
static void spoil_open(struct verdict_state *s, struct store_write *w)
{
    s->closed = true;
}

static void spoil_type(struct verdict_state *s, struct store_write *w)
{
    w->content_type = STR("text/plain");
}

static void spoil_epoch(struct verdict_state *s, struct store_write *w)
{
    w->claim.epoch = 4;
}

static void spoil_epoch_start(struct verdict_state *s, struct store_write *w)
{
    w->claim.epoch = 6;
}

static void spoil_claim(struct verdict_state *s, struct store_write *w)
{
    w->claim.seq = 9;
}

static void spoil_new_claim(struct verdict_state *s, struct store_write *w)
{
    s->producer = NULL;
}

static void spoil_seq(struct verdict_state *s, struct store_write *w)
{
    w->seq = STR("m");
}

static void spoil_match(struct verdict_state *s, struct store_write *w)
{
    w->match.pos = 41;
}

static void spoil_data(struct verdict_state *s, struct store_write *w)
{
    w->data_err = ERR_JSON;
}

struct spoiler {
    void (*spoil)(struct verdict_state *s, struct store_write *w);
    int err;
};

#define N_KINDS 6

static const struct spoiler claims[] = {
    {spoil_epoch, ERR_FENCED},
    {spoil_epoch_start, ERR_EPOCH_START},
    {spoil_claim, ERR_SEQ_GAP},
    {spoil_new_claim, ERR_SEQ_GAP},
};

/* Every set of failing preconditions: the first is the answer. */
static void check_all_sets(const struct spoiler *claim)
{
    const struct spoiler order[N_KINDS] = {
        {spoil_open, ERR_CLOSED},   {spoil_type, ERR_TYPE_MISMATCH}, *claim,
        {spoil_seq, ERR_SEQ_ORDER}, {spoil_match, ERR_TAIL_MOVED},   {spoil_data, ERR_JSON},
    };
    for (unsigned set = 1; set < 1u << N_KINDS; set++) {
        struct verdict_state s = open_stream();
        struct store_write w = good_write();
        int first = 0;
        for (int i = N_KINDS - 1; i >= 0; i--)
            if (set & 1u << i) {
                order[i].spoil(&s, &w);
                first = order[i].err;
            }
        int v = verdict_write(&s, &w);
        if (v != first)
            fail_msg("set %#x: %s, expected %s", set, err_name(v), err_name(first));
    }
}

static void test_first_failure_is_the_answer(void **state)
{
    for (size_t i = 0; i < COUNT(claims); i++)
        check_all_sets(&claims[i]);
}

/* A request that comes again is a success although all that stands behind the claim would fail:
 * its own first coming is the reason. */
static void test_duplicate_goes_before_what_is_behind(void **state)
{
    struct verdict_state s = open_stream();
    struct store_write w = good_write();
    w.claim.seq = 3;
    spoil_seq(&s, &w);
    spoil_match(&s, &w);
    spoil_data(&s, &w);
    assert_int_equal(verdict_write(&s, &w), VERDICT_DUPLICATE);
    assert_int_equal(w.producer.epoch, 5);
    assert_int_equal(w.producer.seq, 7); /* the highest, not the request's */
    spoil_type(&s, &w);
    assert_int_equal(verdict_write(&s, &w), ERR_TYPE_MISMATCH);
}

static void test_results_of_a_bad_claim(void **state)
{
    struct verdict_state s = open_stream();
    struct store_write w = good_write();
    spoil_epoch(&s, &w);
    assert_int_equal(verdict_write(&s, &w), ERR_FENCED);
    assert_int_equal(w.producer.epoch, 5); /* tells the fenced one which epoch to beat */
    w = good_write();
    spoil_claim(&s, &w);
    assert_int_equal(verdict_write(&s, &w), ERR_SEQ_GAP);
    assert_int_equal(w.expected_seq, 8);
    spoil_new_claim(&s, &w);
    w.expected_seq = 99;
    assert_int_equal(verdict_write(&s, &w), ERR_SEQ_GAP);
    assert_int_equal(w.expected_seq, 0);
}

/* ---- each for itself ---- */

static void test_type_is_compared_without_case_and_parameters(void **state)
{
    struct verdict_state s = open_stream();
    struct store_write w = good_write();
    w.content_type = STR("Application/JSON ; charset=utf-8");
    assert_int_equal(verdict_write(&s, &w), VERDICT_APPLY);
    w.content_type = STR_NONE;
    assert_int_equal(verdict_write(&s, &w), VERDICT_APPLY);
    w.content_type = STR("");
    assert_int_equal(verdict_write(&s, &w), ERR_TYPE_MISMATCH);
}

static void test_stream_seq_grows_bytewise(void **state)
{
    static const struct {
        struct str last, next;
        int verdict;
    } rows[] = {
        {STR_INIT("2"), STR_INIT("10"), ERR_SEQ_ORDER},
        {STR_INIT("a"), STR_INIT("B"), ERR_SEQ_ORDER},
        {STR_INIT("a"), STR_INIT("a"), ERR_SEQ_ORDER},
        {STR_INIT("ab"), STR_INIT("a"), ERR_SEQ_ORDER},
        {STR_INIT(""), STR_INIT(""), ERR_SEQ_ORDER},
        {STR_INIT("a"), STR_INIT("ab"), VERDICT_APPLY},
        {STR_INIT("B"), STR_INIT("a"), VERDICT_APPLY},
        {STR_INIT(""), STR_INIT("0"), VERDICT_APPLY},
        {STR_INIT("\x7f"), STR_INIT("\x80"), VERDICT_APPLY}, /* bytes have no sign */
        {{NULL, 0}, STR_INIT(""), VERDICT_APPLY},            /* the first may be anything */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct verdict_state s = open_stream();
        struct store_write w = good_write();
        s.last_seq = rows[i].last;
        w.seq = rows[i].next;
        if (verdict_write(&s, &w) != rows[i].verdict)
            fail_msg("row %zu", i);
        w.seq = STR_NONE;
        assert_int_equal(verdict_write(&s, &w), VERDICT_APPLY);
    }
}

static void test_if_match_names_the_tail(void **state)
{
    static const struct {
        uint64_t tail;
        struct offset match;
        int verdict;
    } rows[] = {
        {40, {9, 40}, VERDICT_APPLY},  {40, {9, 39}, ERR_TAIL_MOVED},
        {40, {8, 40}, ERR_TAIL_MOVED}, {40, {10, 40}, ERR_TAIL_MOVED},
        {40, {0, 0}, ERR_TAIL_MOVED},  {0, {9, 0}, VERDICT_APPLY},
        {0, {0, 0}, VERDICT_APPLY},    {0, {8, 0}, ERR_TAIL_MOVED},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct verdict_state s = open_stream();
        struct store_write w = good_write();
        s.tail = rows[i].tail;
        w.match = rows[i].match;
        if (verdict_write(&s, &w) != rows[i].verdict)
            fail_msg("row %zu", i);
        w.if_match = false;
        assert_int_equal(verdict_write(&s, &w), VERDICT_APPLY);
    }
}

/* ---- closed ---- */

struct closed_row {
    struct producer_claim by, claim; /* id.n == 0: none */
    bool close;
    struct str data;
    int data_err;
    int verdict;
};

#define NOBODY                                                                                     \
    {                                                                                              \
        {NULL, 0}, 0, 0                                                                            \
    }
#define CLAIM(id, epoch, seq)                                                                      \
    {                                                                                              \
        STR_INIT(id), epoch, seq                                                                   \
    }

static const struct closed_row closed_rows[] = {
    /* nothing is added to a closed stream */
    {NOBODY, NOBODY, false, STR_INIT("x"), 0, ERR_CLOSED},
    {NOBODY, NOBODY, false, STR_INIT(""), 0, ERR_CLOSED},
    {NOBODY, NOBODY, true, STR_INIT("x"), 0, ERR_CLOSED},
    {NOBODY, NOBODY, true, STR_INIT(""), ERR_JSON, ERR_CLOSED}, /* it came with data */
    /* closing is repeatable, whoever did it */
    {NOBODY, NOBODY, true, STR_INIT(""), 0, VERDICT_DUPLICATE},
    {CLAIM("p", 5, 8), NOBODY, true, STR_INIT(""), 0, VERDICT_DUPLICATE},
    /* the request that closed it comes again, with or without its body */
    {CLAIM("p", 5, 8), CLAIM("p", 5, 8), true, STR_INIT(""), 0, VERDICT_DUPLICATE},
    {CLAIM("p", 5, 8), CLAIM("p", 5, 8), true, STR_INIT("x"), 0, VERDICT_DUPLICATE},
    {CLAIM("p", 5, 8), CLAIM("p", 5, 8), true, STR_INIT(""), ERR_JSON, VERDICT_DUPLICATE},
    /* any other does not */
    {CLAIM("p", 5, 8), CLAIM("p", 5, 8), false, STR_INIT("x"), 0, ERR_CLOSED},
    {CLAIM("p", 5, 8), CLAIM("p", 5, 7), true, STR_INIT(""), 0, ERR_CLOSED},
    {CLAIM("p", 5, 8), CLAIM("p", 5, 9), true, STR_INIT(""), 0, ERR_CLOSED},
    {CLAIM("p", 5, 8), CLAIM("p", 4, 8), true, STR_INIT(""), 0, ERR_CLOSED},
    {CLAIM("p", 5, 8), CLAIM("p", 6, 0), true, STR_INIT(""), 0, ERR_CLOSED},
    {CLAIM("p", 5, 8), CLAIM("q", 5, 8), true, STR_INIT(""), 0, ERR_CLOSED},
    {CLAIM("p", 5, 8), CLAIM("pp", 5, 8), true, STR_INIT(""), 0, ERR_CLOSED},
    {NOBODY, CLAIM("p", 0, 0), true, STR_INIT(""), 0, ERR_CLOSED},
};

static void test_closed(void **state)
{
    for (size_t i = 0; i < COUNT(closed_rows); i++) {
        const struct closed_row *r = &closed_rows[i];
        struct verdict_state s = open_stream();
        s.closed = true;
        s.closed_by = r->by;
        struct store_write w = {
            .data = r->data, .data_err = r->data_err, .close = r->close, .claim = r->claim};
        int v = verdict_write(&s, &w);
        if (v != r->verdict)
            fail_msg("row %zu: %d, expected %d", i, v, r->verdict);
        if (v == VERDICT_DUPLICATE && r->claim.id.n > 0)
            assert_int_equal(w.producer.seq, r->claim.seq);
    }
}

/* ---- configurations ---- */

#define TYPE STR_INIT("text/plain")

static const struct stream_config plain = {.content_type = TYPE, .ttl_s = -1, .expires_ms = -1};
static const struct stream_config fork_there = {
    .ttl_s = -1, .expires_ms = -1, .fork_of = STR_INIT("src"), .fork_at = {3, 20}, .fork_sub = 2};

static void check_config(const struct stream_config *kept, struct stream_config asked, bool same)
{
    assert_int_equal(verdict_same_config(kept, &asked, STR("text/plain")), same);
}

static void test_same_configuration(void **state)
{
    struct stream_config c = plain;
    check_config(&plain, c, true);
    c.content_type = STR("TEXT/Plain; charset=utf-8");
    check_config(&plain, c, true);
    c.content_type = STR("text/html");
    check_config(&plain, c, false);
    c = plain;
    c.ttl_s = 0;
    check_config(&plain, c, false);
    c = plain;
    c.expires_ms = 5;
    check_config(&plain, c, false);
    c = plain;
    c.fork_of = STR("src");
    check_config(&plain, c, false);
}

static void test_same_fork(void **state)
{
    struct stream_config c = fork_there;
    check_config(&fork_there, c, true);
    c.content_type = STR("text/plain"); /* said or inherited: it is the same */
    check_config(&fork_there, c, true);
    c.content_type = STR("text/html");
    check_config(&fork_there, c, false);
    c = fork_there;
    c.fork_of = STR("other");
    check_config(&fork_there, c, false);
    c = fork_there;
    c.fork_at.pos = 21;
    check_config(&fork_there, c, false);
    c = fork_there;
    c.fork_sub = 3;
    check_config(&fork_there, c, false);
    c = fork_there;
    c.fork_at_tail = true;
    check_config(&fork_there, c, false);
    c = fork_there;
    c.ttl_s = 60;
    check_config(&fork_there, c, false);
    check_config(&fork_there, plain, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_what_fulfils_all),
        cmocka_unit_test(test_first_failure_is_the_answer),
        cmocka_unit_test(test_duplicate_goes_before_what_is_behind),
        cmocka_unit_test(test_results_of_a_bad_claim),
        cmocka_unit_test(test_type_is_compared_without_case_and_parameters),
        cmocka_unit_test(test_stream_seq_grows_bytewise),
        cmocka_unit_test(test_if_match_names_the_tail),
        cmocka_unit_test(test_closed),
        cmocka_unit_test(test_same_configuration),
        cmocka_unit_test(test_same_fork),
    };
    return cmocka_run_group_tests_name("unit/verdict", tests, NULL, NULL);
}
