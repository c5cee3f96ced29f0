// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/gateway_repeats.h"
#include "base/mem.h"
#include "http/hangups.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

struct bench {
    struct repeats repeats;
    struct hangups hangups;
    uint64_t now_ms;
};

static int set_up(void **state)
{
    struct bench *b = mem_zalloc(sizeof *b);
    repeats_init(&b->repeats);
    b->now_ms = 1000;
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;
    repeats_deinit(&b->repeats);
    assert_int_equal(b->repeats.n, 0);
    free(b);
    return 0;
}

static struct repeat_mark mark_of(unsigned request, uint64_t tries)
{
    struct repeat_mark m = {.counts = true, .tries = tries};
    char hex[SHA256_HEX + 1];
    snprintf(hex, sizeof hex, "%08x%056d", request * 2654435761u, 0);
    memcpy(m.digest, hex, sizeof m.digest);
    return m;
}

static char id_text[RAND_UUID + 1];

static struct str id_of(unsigned n)
{
    snprintf(id_text, sizeof id_text, "%08x-0000-4000-8000-000000000000", n);
    return str_of(id_text, RAND_UUID);
}

/* Generation `id` of this request and try has met this fate. */
static void note(struct bench *b, unsigned request, uint64_t tries, enum repeat_fate fate,
                 unsigned id, const void *connection)
{
    struct repeat_mark m = mark_of(request, tries);
    repeats_note(&b->repeats, &(struct repeat_note){&m, fate, id_of(id), connection}, b->now_ms);
}

/* What it gets; 0: it has to ask. */
static unsigned take(struct bench *b, unsigned request, uint64_t tries)
{
    struct repeat_mark m = mark_of(request, tries);
    char id[RAND_UUID + 1] = "";
    if (!repeats_take(&b->repeats, &m, &b->hangups, b->now_ms, id))
        return 0;
    return (unsigned)strtoul(id, NULL, 16);
}

static void test_what_was_lost_goes_to_one_retry(void **state)
{
    struct bench *b = *state;
    note(b, 1, 0, REPEAT_LOST, 7, NULL);
    assert_int_equal(take(b, 1, 1), 7);
    assert_int_equal(take(b, 1, 1), 0);
    assert_int_equal(b->repeats.n, 0);
}

static void test_of_the_same_request_only(void **state)
{
    struct bench *b = *state;
    note(b, 1, 0, REPEAT_LOST, 7, NULL);
    assert_int_equal(take(b, 2, 1), 0);
    assert_int_equal(take(b, 1, 1), 7);
}

/* A try follows those that have smaller numbers; not all of them have to have come here. */
static void test_of_an_earlier_try_only(void **state)
{
    struct bench *b = *state;
    note(b, 1, 1, REPEAT_LOST, 7, NULL);
    assert_int_equal(take(b, 1, 1), 0);
    assert_int_equal(take(b, 1, 2), 7);
    note(b, 1, 0, REPEAT_LOST, 8, NULL);
    assert_int_equal(take(b, 1, 2), 8);
}

static void test_the_newest_first(void **state)
{
    struct bench *b = *state;
    note(b, 1, 0, REPEAT_LOST, 7, NULL);
    note(b, 1, 0, REPEAT_LOST, 8, NULL);
    assert_int_equal(take(b, 1, 1), 8);
    assert_int_equal(take(b, 1, 1), 7);
}

/* Whoever was refused asks again, and what somebody else has lost stays for him. */
static void test_who_was_refused_asks_again(void **state)
{
    struct bench *b = *state;
    note(b, 1, 0, REPEAT_LOST, 7, NULL);
    note(b, 1, 0, REPEAT_REFUSED, 8, NULL);
    assert_int_equal(take(b, 1, 1), 0);
    assert_int_equal(take(b, 1, 1), 7);
}

static void test_what_was_delivered_is_lost_with_its_connection(void **state)
{
    struct bench *b = *state;
    char first = 0, second = 0;
    note(b, 1, 0, REPEAT_DELIVERED, 7, &first);
    note(b, 1, 0, REPEAT_DELIVERED, 8, &second);
    assert_int_equal(take(b, 1, 1), 0); /* both may have been read */
    b->now_ms += 10;
    hangups_note(&b->hangups, &first, b->now_ms);
    assert_int_equal(take(b, 1, 1), 7);
    b->now_ms += HANGUP_MS + 1; /* it was idle, and then it was closed */
    hangups_note(&b->hangups, &second, b->now_ms);
    assert_int_equal(take(b, 1, 1), 0);
}

static void test_only_those_count_who_do(void **state)
{
    struct bench *b = *state;
    struct repeat_mark m = mark_of(1, 0);
    m.counts = false;
    repeats_note(&b->repeats, &(struct repeat_note){&m, REPEAT_LOST, id_of(7), NULL}, b->now_ms);
    assert_int_equal(b->repeats.n, 0);
}

static void test_it_is_forgotten_in_time(void **state)
{
    struct bench *b = *state;
    note(b, 1, 0, REPEAT_LOST, 7, NULL);
    b->now_ms += REPEATS_KEEP_MS;
    note(b, 2, 0, REPEAT_LOST, 8, NULL);
    assert_int_equal(b->repeats.n, 2);
    b->now_ms++;
    assert_int_equal(take(b, 1, 1), 0);
    assert_int_equal(b->repeats.n, 1);
    assert_int_equal(take(b, 2, 1), 8);
}

static void test_there_is_room_for_so_many(void **state)
{
    struct bench *b = *state;
    for (unsigned i = 1; i <= 2 * REPEATS_MAX; i++)
        note(b, i, 0, REPEAT_LOST, i, NULL);
    assert_int_equal(b->repeats.n, REPEATS_MAX);
    assert_int_equal(take(b, REPEATS_MAX, 1), 0);
    assert_int_equal(take(b, REPEATS_MAX + 1, 1), REPEATS_MAX + 1);
    assert_int_equal(take(b, 2 * REPEATS_MAX, 1), 2 * REPEATS_MAX);
}

/* Equal requests without number do not make a retry take long. */
static void test_it_looks_at_few(void **state)
{
    struct bench *b = *state;
    char connection;
    note(b, 1, 0, REPEAT_LOST, 7, NULL);
    for (unsigned i = 0; i < 100; i++)
        note(b, 1, 0, REPEAT_DELIVERED, 100 + i, &connection);
    assert_int_equal(take(b, 1, 1), 0);
    assert_int_equal(b->repeats.n, 101);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_what_was_lost_goes_to_one_retry),
        T(test_of_the_same_request_only),
        T(test_of_an_earlier_try_only),
        T(test_the_newest_first),
        T(test_who_was_refused_asks_again),
        T(test_what_was_delivered_is_lost_with_its_connection),
        T(test_only_those_count_who_do),
        T(test_it_is_forgotten_in_time),
        T(test_there_is_room_for_so_many),
        T(test_it_looks_at_few),
    };
    return cmocka_run_group_tests_name("unit/gateway_repeats", tests, NULL, NULL);
}
