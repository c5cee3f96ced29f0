// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/sched.h"
#include "http/fetch.h"
#include "http/jwks.h"
#include "telemetry/trace.h"
#include "../token/token_kit.h"

#define MINUTE 60000

/* A provider whose answers the test gives, and a clock that it sets. */
struct fixture {
    struct sched sched;
    struct trace trace;
    struct jwks *jwks;
    struct buf one, two; /* sets with another key each */
    struct fetch *asked; /* NULL: no fetch is under way */
    int fetches, changes;
};

static struct fixture *the; /* of the test that runs, for a callback without a context */

static void start(struct fetcher *fetcher, struct fetch *fetch)
{
    assert_null(the->asked); /* one at a time */
    the->asked = fetch;
    the->fetches++;
}

static void on_changed(void *ctx)
{
    ((struct fixture *)ctx)->changes++;
}

static void put_set(struct buf *out, const char *kid)
{
    EVP_PKEY *key = kit_key(JWK_EDDSA);
    char more[40];
    snprintf(more, sizeof more, ",\"kid\":\"%s\"", kid);
    buf_printf(out, "{\"keys\":[");
    kit_put_jwk(out, key, more);
    buf_printf(out, "]}");
    EVP_PKEY_free(key);
}

static int setup(void **state)
{
    struct fixture *f = the = mem_zalloc(sizeof *f);
    sched_init(&f->sched, 1000000, 0);
    f->trace.level = TRACE_ERROR;
    put_set(&f->one, "one");
    put_set(&f->two, "two");
    f->jwks = jwks_new(&(struct jwks_setup){.sched = &f->sched,
                                            .trace = &f->trace,
                                            .name = STR("idp"),
                                            .url = STR("https://id.example/jwks"),
                                            .start = start,
                                            .changed = on_changed,
                                            .ctx = f});
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    jwks_free(f->jwks);
    buf_deinit(&f->one);
    buf_deinit(&f->two);
    free(f);
    return 0;
}

static void answer(struct fixture *f, int status, struct str text)
{
    struct fetch *fetch = f->asked;
    assert_non_null(fetch);
    f->asked = NULL;
    fetch->status = status;
    buf_put(&fetch->answer, text);
    fetch->done(fetch, 0);
    buf_deinit(&fetch->answer);
}

static void refuse(struct fixture *f)
{
    struct fetch *fetch = f->asked;
    assert_non_null(fetch);
    f->asked = NULL;
    fetch->cause = FETCH_REFUSED;
    fetch->done(fetch, ERR_UPSTREAM);
}

/* Time passes, a second at a time, in which every fetch fails. */
static void pass_in_vain(struct fixture *f, uint64_t ms)
{
    for (uint64_t end = f->sched.now_ms + ms; f->sched.now_ms < end;) {
        sched_turn(&f->sched, f->sched.now_ms + 1000, 0);
        if (f->asked != NULL)
            refuse(f);
    }
}

static void pass(struct fixture *f, uint64_t ms)
{
    for (uint64_t end = f->sched.now_ms + ms; f->sched.now_ms < end;)
        sched_turn(&f->sched, f->sched.now_ms + 1000, 0);
}

static bool has(const struct fixture *f, const char *kid)
{
    const struct jwk_set *keys = jwks_keys(f->jwks);
    return keys != NULL && str_eq(jwk_set_kid(keys, 0), str_of_cstr(kid));
}

static void test_keys_are_fetched_at_once(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(f->fetches, 1);
    assert_null(jwks_keys(f->jwks));
    struct fetch *asked = f->asked;
    assert_true(str_eq(asked->url, STR("https://id.example/jwks")));
    assert_int_equal(asked->max_redirects, 0);
    assert_int_equal(asked->max_answer, 64 * 1024);
    assert_int_equal(asked->total_timeout_ms, 5000);
    assert_true(asked->policy.allow_private && asked->policy.allow_loopback);
    assert_false(asked->policy.configured); /* no link-local address */
    answer(f, 200, buf_str(&f->one));
    assert_true(has(f, "one"));
    assert_int_equal(f->changes, 1);
}

static void test_again_after_ten_minutes(void **state)
{
    struct fixture *f = *state;
    answer(f, 200, buf_str(&f->one));
    pass(f, 10 * MINUTE - 1000);
    assert_int_equal(f->fetches, 1);
    pass(f, 2000);
    assert_int_equal(f->fetches, 2);
    assert_true(has(f, "one")); /* meanwhile, too */
    answer(f, 200, buf_str(&f->one));
    assert_int_equal(f->changes, 1); /* they are the same */
    pass(f, 10 * MINUTE + 1000);
    answer(f, 200, buf_str(&f->two));
    assert_true(has(f, "two"));
    assert_int_equal(f->changes, 2);
}

static void test_max_age_within_bounds(void **state)
{
    assert_int_equal(jwks_fresh_ms(STR_NONE), 10 * MINUTE);
    assert_int_equal(jwks_fresh_ms(STR("no-store")), 10 * MINUTE);
    assert_int_equal(jwks_fresh_ms(STR("public, max-age=900")), 15 * MINUTE);
    assert_int_equal(jwks_fresh_ms(STR("Max-Age=0")), 5 * MINUTE);
    assert_int_equal(jwks_fresh_ms(STR("max-age=31536000, immutable")), 60 * MINUTE);
    assert_int_equal(jwks_fresh_ms(STR("max-age=18446744073709551615")), 60 * MINUTE);
    assert_int_equal(jwks_fresh_ms(STR("max-age=-1, s-maxage=5")), 10 * MINUTE);
}

static void test_failures_keep_the_keys_for_a_day(void **state)
{
    struct fixture *f = *state;
    answer(f, 200, buf_str(&f->one));
    pass(f, 10 * MINUTE + 1000);
    answer(f, 200, STR("{\"keys\":["));
    assert_true(has(f, "one"));
    pass(f, 6000);
    answer(f, 302, buf_str(&f->two)); /* soon again, and this is no answer either */
    assert_true(has(f, "one"));
    pass_in_vain(f, JWKS_STALE_MS - 20 * MINUTE);
    assert_true(has(f, "one"));
    assert_int_equal(f->changes, 1);
    pass_in_vain(f, 20 * MINUTE);
    assert_null(jwks_keys(f->jwks));
    assert_int_equal(f->changes, 2);
    pass(f, 2 * MINUTE);
    answer(f, 200, buf_str(&f->one)); /* the same as then */
    assert_true(has(f, "one"));
}

static void test_failures_are_tried_again_ever_later(void **state)
{
    struct fixture *f = *state;
    refuse(f);
    pass_in_vain(f, 60 * MINUTE);
    assert_in_range(f->fetches, 55, 70);
}

/* ---- who waits ---- */

struct waiter {
    struct jwks_waiter waiter;
    struct fixture *f;
    int told;
    bool had_keys;
};

static void on_done(struct jwks_waiter *w)
{
    struct waiter *one = container_of(w, struct waiter, waiter);
    one->told++;
    one->had_keys = one->f != NULL && jwks_keys(one->f->jwks) != NULL;
}

static void test_whoever_needs_keys_waits_for_the_fetch(void **state)
{
    struct fixture *f = *state;
    struct waiter a = {.waiter.done = on_done, .f = f}, b = a;
    assert_true(jwks_wait(f->jwks, &a.waiter));
    assert_true(jwks_wait(f->jwks, &b.waiter));
    assert_int_equal(f->fetches, 1);
    assert_int_equal(a.told, 0);
    answer(f, 200, buf_str(&f->one));
    assert_true(a.told == 1 && a.had_keys && b.told == 1 && b.had_keys);
}

static void test_unknown_keys_are_asked_for_half_a_minute_apart(void **state)
{
    struct fixture *f = *state;
    struct waiter a = {.waiter.done = on_done, .f = f};
    answer(f, 200, buf_str(&f->one));
    for (int i = 0; i < 10000; i++)
        assert_false(jwks_wait(f->jwks, &a.waiter));
    pass(f, JWKS_APART_MS - 1000);
    assert_false(jwks_wait(f->jwks, &a.waiter));
    pass(f, 1000);
    assert_true(jwks_wait(f->jwks, &a.waiter));
    assert_int_equal(f->fetches, 2);
    refuse(f);
    assert_true(a.told == 1 && a.had_keys); /* those that there were */
    assert_false(jwks_wait(f->jwks, &a.waiter));
}

static void test_a_reload_asks_anew(void **state)
{
    struct fixture *f = *state;
    jwks_refresh(f->jwks);
    assert_int_equal(f->fetches, 1); /* it is being fetched */
    answer(f, 200, buf_str(&f->one));
    jwks_refresh(f->jwks);
    assert_int_equal(f->fetches, 2);
    answer(f, 200, buf_str(&f->two));
    assert_true(has(f, "two"));
    pass(f, 10 * MINUTE + 1000);
    assert_int_equal(f->fetches, 3); /* one clock */
}

static void test_the_end_tells_who_waits(void **state)
{
    struct fixture *f = *state;
    struct waiter a = {.waiter.done = on_done};
    assert_true(jwks_wait(f->jwks, &a.waiter));
    jwks_free(f->jwks);
    f->jwks = NULL;
    assert_int_equal(a.told, 1);
}

static void test_which_keys_they_are(void **state)
{
    struct fixture *f = *state;
    struct jwk_policy all = {0}, some = {.allowed = 1u << JWK_ES256};
    assert_true(jwks_is(f->jwks, STR("https://id.example/jwks"), &all));
    assert_false(jwks_is(f->jwks, STR("https://id.example/jwk"), &all));
    assert_false(jwks_is(f->jwks, STR("https://id.example/jwks"), &some));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_keys_are_fetched_at_once),
        TEST(test_again_after_ten_minutes),
        cmocka_unit_test(test_max_age_within_bounds),
        TEST(test_failures_keep_the_keys_for_a_day),
        TEST(test_failures_are_tried_again_ever_later),
        TEST(test_whoever_needs_keys_waits_for_the_fetch),
        TEST(test_unknown_keys_are_asked_for_half_a_minute_apart),
        TEST(test_a_reload_asks_anew),
        TEST(test_the_end_tells_who_waits),
        TEST(test_which_keys_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
