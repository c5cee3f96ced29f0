// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "access/principal.h"
#include "base/sched.h"
#include "http/tokens.h"

#define WALL_MS 1700000000000

struct fixture {
    struct sched sched;
    struct tokens *tokens;
    struct principal *alice;
};

static int setup(void **state)
{
    static struct fixture f;
    sched_init(&f.sched, 1000, WALL_MS);
    f.tokens = tokens_new(&f.sched);
    f.alice = principal_new();
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    tokens_free(f->tokens);
    assert_int_equal(f->alice->refs, 1); /* none is held any more */
    principal_unref(f->alice);
    return 0;
}

static void put(struct fixture *f, struct str token)
{
    struct tokens_key key = tokens_key(f->tokens, token);
    tokens_put(f->tokens, &key, token, f->alice);
}

static const struct principal *find(struct fixture *f, struct str token)
{
    struct tokens_key key = tokens_key(f->tokens, token);
    return tokens_find(f->tokens, &key, token);
}

/* As a guard does that lets in whoever shows it. */
static void let_in(struct fixture *f, struct str token)
{
    struct tokens_key key = tokens_key(f->tokens, token);
    assert_non_null(tokens_find(f->tokens, &key, token));
    tokens_let_in(f->tokens, &key, token);
}

static void test_what_was_put_is_found(void **state)
{
    struct fixture *f = *state;
    assert_null(find(f, STR("one")));
    put(f, STR("one"));
    put(f, STR("two"));
    put(f, STR("one"));
    assert_ptr_equal(find(f, STR("one")), f->alice);
    assert_ptr_equal(find(f, STR("two")), f->alice);
    assert_null(find(f, STR("on")));
    assert_null(find(f, STR("onf")));
    assert_null(find(f, STR("")));
    assert_int_equal(f->alice->refs, 3);
}

static void test_one_that_was_let_in_is_found_at_once(void **state)
{
    struct fixture *f = *state;
    struct str token = STR("header.payload.signature");
    put(f, token);
    find(f, token);
    assert_null(tokens_find_recent(f->tokens, token)); /* nobody has asked whether it was revoked */
    let_in(f, token);
    assert_ptr_equal(tokens_find_recent(f->tokens, token), f->alice);
    put(f, token); /* another in its place */
    assert_null(tokens_find_recent(f->tokens, token));
    let_in(f, token);
    tokens_forget(f->tokens);
    assert_null(tokens_find_recent(f->tokens, token));
    put(f, token);
    let_in(f, token);
    f->sched.now_ms += TOKENS_FRESH_MS;
    assert_null(tokens_find_recent(f->tokens, token));
    put(f, token);
    let_in(f, token);
    f->alice->expires_ms = WALL_MS;
    assert_null(tokens_find_recent(f->tokens, token));
}

/* What is not known, or not any more, cannot be let in. */
static void test_a_stranger_is_not_let_in(void **state)
{
    struct fixture *f = *state;
    struct str token = STR("header.payload.signature");
    struct tokens_key key = tokens_key(f->tokens, token);
    tokens_let_in(f->tokens, &key, token);
    assert_null(tokens_find_recent(f->tokens, token));
    put(f, token);
    tokens_let_in(f->tokens, &key, STR("header.payload.signaturE"));
    assert_null(tokens_find_recent(f->tokens, token));
}

/* Of tokens of any length, those that end alike included. Short ones are found by their hash
 * alone. */
static void test_every_byte_counts(void **state)
{
    struct fixture *f = *state;
    char text[200];
    for (size_t n = 1; n < sizeof text; n++) {
        memset(text, 'a', sizeof text);
        struct str token = str_of(text, n);
        struct tokens_key key = tokens_key(f->tokens, token);
        put(f, token);
        let_in(f, token);
        assert_ptr_equal(tokens_find_recent(f->tokens, token), n < 16 ? NULL : f->alice);
        for (size_t i = 0; i < n; i++) {
            text[i] ^= 1;
            assert_null(tokens_find_recent(f->tokens, token));
            assert_null(tokens_find(f->tokens, &key, token));
            text[i] ^= 1;
        }
        assert_null(tokens_find_recent(f->tokens, str_of(text, n + 1)));
        assert_null(tokens_find(f->tokens, &key, str_of(text, n - 1)));
    }
}

/* Two that have the same hash, if there were any, are two. */
static void test_the_bytes_decide(void **state)
{
    struct fixture *f = *state;
    struct tokens_key key = tokens_key(f->tokens, STR("one"));
    put(f, STR("one"));
    assert_null(tokens_find(f->tokens, &key, STR("two")));
    tokens_put(f->tokens, &key, STR("two"), f->alice);
    assert_null(tokens_find(f->tokens, &key, STR("one")));
    assert_non_null(tokens_find(f->tokens, &key, STR("two")));
}

static void test_a_minute_and_not_beyond_its_end(void **state)
{
    struct fixture *f = *state;
    put(f, STR("one"));
    f->sched.now_ms += TOKENS_FRESH_MS - 1;
    assert_non_null(find(f, STR("one")));
    f->sched.now_ms++;
    assert_null(find(f, STR("one")));
    f->alice->expires_ms = WALL_MS + 5000;
    put(f, STR("two"));
    f->sched.wall_ms += 4999;
    assert_non_null(find(f, STR("two")));
    f->sched.wall_ms++;
    assert_null(find(f, STR("two")));
}

static void test_there_is_room_for_so_many(void **state)
{
    struct fixture *f = *state;
    char token[32];
    for (int i = 0; i < TOKENS_MAX + 10; i++) {
        int n = snprintf(token, sizeof token, "token-%d", i);
        put(f, str_of(token, (size_t)n));
    }
    assert_int_equal(f->alice->refs, 1 + TOKENS_MAX);
    assert_null(find(f, STR("token-9"))); /* the oldest went */
    assert_non_null(find(f, STR("token-10")));
}

static void test_there_is_room_for_so_many_bytes(void **state)
{
    struct fixture *f = *state;
    static char token[4096];
    for (int i = 0; i < TOKENS_BYTES / 4096 + 5; i++) {
        memcpy(token, &i, sizeof i);
        put(f, str_of(token, sizeof token));
    }
    assert_int_equal(f->alice->refs, 1 + TOKENS_BYTES / 4096);
}

static void test_what_is_over_goes_when_others_come(void **state)
{
    struct fixture *f = *state;
    put(f, STR("one"));
    put(f, STR("two"));
    f->sched.now_ms += TOKENS_FRESH_MS + TOKENS_KEPT_MS;
    put(f, STR("three"));
    assert_int_equal(f->alice->refs, 2);
}

static void test_bad_ones(void **state)
{
    struct fixture *f = *state;
    bool ended;
    struct tokens_key one = tokens_key(f->tokens, STR("one")),
                      two = tokens_key(f->tokens, STR("two"));
    assert_false(tokens_is_bad(f->tokens, &one, &ended));
    tokens_put_bad(f->tokens, &one, true);
    assert_true(tokens_is_bad(f->tokens, &one, &ended) && ended);
    tokens_put_bad(f->tokens, &one, false);
    assert_true(tokens_is_bad(f->tokens, &one, &ended) && !ended);
    assert_false(tokens_is_bad(f->tokens, &two, &ended));
    f->sched.now_ms += TOKENS_BAD_MS;
    assert_false(tokens_is_bad(f->tokens, &one, &ended));
}

static void test_all_is_forgotten(void **state)
{
    struct fixture *f = *state;
    bool ended;
    struct tokens_key bad = tokens_key(f->tokens, STR("bad"));
    put(f, STR("one"));
    tokens_put_bad(f->tokens, &bad, false);
    tokens_forget(f->tokens);
    assert_null(find(f, STR("one")));
    assert_false(tokens_is_bad(f->tokens, &bad, &ended));
    put(f, STR("one"));
    assert_non_null(find(f, STR("one")));
}

static void test_so_many_bad_signatures_a_second(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < TOKENS_CHECKS; i++) {
        assert_true(tokens_may_check(f->tokens, STR("new")));
        tokens_checked_bad(f->tokens);
    }
    assert_false(tokens_may_check(f->tokens, STR("new")));
    f->sched.now_ms += 1000;
    assert_true(tokens_may_check(f->tokens, STR("new")));
}

/* Strangers cannot keep out whoever was in. */
static void test_what_was_good_is_verified_again(void **state)
{
    struct fixture *f = *state;
    put(f, STR("one"));
    f->sched.now_ms += TOKENS_FRESH_MS;
    put(f, STR("two"));
    assert_null(find(f, STR("one")));
    assert_true(tokens_may_check(f->tokens, STR("new")));
    for (int i = 0; i < TOKENS_CHECKS; i++)
        tokens_checked_bad(f->tokens);
    assert_false(tokens_may_check(f->tokens, STR("new")));
    assert_true(tokens_may_check(f->tokens, STR("one")));
    tokens_forget(f->tokens);
    assert_true(tokens_may_check(f->tokens, STR("one")));
}

/* Nobody can tell beforehand which tokens share a place. */
static void test_hashes_have_a_secret(void **state)
{
    struct fixture *f = *state;
    struct tokens *other = tokens_new(&f->sched);
    struct tokens_key a = tokens_key(f->tokens, STR("one")), b = tokens_key(other, STR("one"));
    assert_true(a.low != b.low && a.high != b.high);
    tokens_free(other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_was_put_is_found),
        TEST(test_one_that_was_let_in_is_found_at_once),
        TEST(test_a_stranger_is_not_let_in),
        TEST(test_every_byte_counts),
        TEST(test_the_bytes_decide),
        TEST(test_a_minute_and_not_beyond_its_end),
        TEST(test_there_is_room_for_so_many),
        TEST(test_there_is_room_for_so_many_bytes),
        TEST(test_what_is_over_goes_when_others_come),
        TEST(test_bad_ones),
        TEST(test_all_is_forgotten),
        TEST(test_so_many_bad_signatures_a_second),
        TEST(test_what_was_good_is_verified_again),
        TEST(test_hashes_have_a_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
