// SPDX-License-Identifier: Apache-2.0
/* The deny list, on a clock of our own and over a store in memory: what it denies, how many it
 * takes, and what is left of it after a restart and when the clock is set. */
#include "access/principal.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/mem/mem_store.h"
#include "store/store.h"
#include "stream/revocations.h"
#include "telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define NOW_S 1800000000
#define HOUR  3600
#define DAY   (24 * HOUR)

struct world {
    struct sched sched;
    struct store *store;
    struct trace trace;
    struct revocations *deny, *other;
    unsigned n_changes, n_other_changes;
};

static void on_changed(void *ctx)
{
    ++*(unsigned *)ctx;
}

static struct revocations *start(struct world *w, size_t max, unsigned *changes)
{
    struct revocations *r = revocations_new(&(struct revocations_setup){.sched = &w->sched,
                                                                        .store = w->store,
                                                                        .trace = &w->trace,
                                                                        .max = max,
                                                                        .longest_s = HOUR,
                                                                        .changed = on_changed,
                                                                        .ctx = changes});
    sched_drain(&w->sched);
    assert_true(revocations_ready(r));
    return r;
}

static void on_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static void end(struct world *w, struct revocations *r)
{
    bool stopped = false;
    revocations_stop(r, on_stopped, &stopped);
    sched_drain(&w->sched);
    assert_true(stopped);
    revocations_free(r);
}

/* The wall clock may go anywhere; the other one goes on. */
static void pass(struct world *w, uint64_t ms, int64_t wall_s)
{
    for (uint64_t left = ms; left > 0; left -= left < 1000 ? left : 1000) {
        sched_turn(&w->sched, w->sched.now_ms + (left < 1000 ? left : 1000), wall_s * 1000);
        sched_drain(&w->sched);
    }
}

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    sched_init(&w->sched, 1000, (int64_t)NOW_S * 1000);
    w->trace = (struct trace){.to = stderr, .level = TRACE_ERROR};
    w->store = mem_store_new(&w->sched);
    w->deny = start(w, 1000, &w->n_changes);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    end(w, w->deny);
    if (w->other != NULL)
        end(w, w->other);
    store_free(w->store);
    free(w);
    return 0;
}

static int added;

static void on_added(struct revocation *v, int err)
{
    added = err;
}

static int add(struct world *w, struct revocation v)
{
    v.done = on_added;
    added = 1;
    revocations_add(w->deny, &v);
    assert_int_equal(added, 1); /* not before it has returned */
    sched_drain(&w->sched);
    return added;
}

static struct principal token(const char *issuer, const char *sub, const char *jti, int64_t iat_s)
{
    return (struct principal){.known = true,
                              .issuer = str_of_cstr(issuer),
                              .sub = str_of_cstr(sub),
                              .jti = str_of_cstr(jti),
                              .issued_s = iat_s};
}

static bool denied(struct world *w, struct principal p)
{
    return revocations_deny(w->deny, &p);
}

static void a_token_and_its_children_are_denied(void **state)
{
    struct world *w = *state;
    struct principal child = token("idp", "ada", "c", NOW_S);
    child.parent_jti = str_of("x\0a", 3);
    assert_false(denied(w, token("idp", "ada", "a", NOW_S)));
    assert_int_equal(add(w, (struct revocation){.jti = STR("a")}), 0);
    assert_int_equal(w->n_changes, 1);
    assert_true(denied(w, token("idp", "ada", "a", NOW_S)));
    assert_true(denied(w, child));
    child.parent_jti = str_of("x\0aa", 4);
    assert_false(denied(w, child));
    assert_false(denied(w, token("idp", "ada", "b", NOW_S)));
    assert_int_equal(add(w, (struct revocation){.jti = STR("a")}), 0); /* again: not written */
    assert_int_equal(revocations_count(w->deny), 1);
}

static void a_subject_is_denied_up_to_a_time(void **state)
{
    struct world *w = *state;
    assert_int_equal(
        add(w, (struct revocation){.sub = STR("ada"), .issuer = STR("idp"), .before_s = NOW_S}), 0);
    assert_true(denied(w, token("idp", "ada", "", NOW_S)));
    assert_true(denied(w, token("idp", "ada", "", 0))); /* nobody knows when it was issued */
    assert_false(denied(w, token("idp", "ada", "", NOW_S + 1)));
    assert_false(denied(w, token("other", "ada", "", NOW_S)));
    assert_false(denied(w, token("idp", "bob", "", NOW_S)));
    assert_int_equal(add(w, (struct revocation){.sub = STR("ada"), .before_s = NOW_S - 5}), 0);
    assert_true(denied(w, token("other", "ada", "", NOW_S - 5)));
    assert_false(denied(w, token("other", "ada", "", NOW_S - 4)));
    assert_false(denied(w, token("", "ada", "", NOW_S - 5))); /* a caller of the settings */
    /* The later one counts, whichever comes last. */
    assert_int_equal(add(w, (struct revocation){.sub = STR("ada"), .before_s = NOW_S + 5}), 0);
    assert_int_equal(add(w, (struct revocation){.sub = STR("ada"), .before_s = NOW_S}), 0);
    assert_true(denied(w, token("other", "ada", "", NOW_S + 5)));
    assert_int_equal(revocations_count(w->deny), 2);
}

static void a_root_is_denied_with_all_below(void **state)
{
    struct world *w = *state;
    struct principal p = token("idp", "ada", "a", NOW_S);
    assert_int_equal(add(w, (struct revocation){.root = STR("t/acme/"), .before_s = NOW_S}), 0);
    p.root = STR("t/acme/");
    assert_true(denied(w, p));
    p.root = STR("t/acme/team/");
    assert_true(denied(w, p));
    p.root = STR("t/acme2/");
    assert_false(denied(w, p));
    p.root = STR("t/");
    assert_false(denied(w, p));
}

static void whoever_is_confined_revokes_his_own(void **state)
{
    struct world *w = *state;
    struct principal p = token("idp", "ada", "a", NOW_S);
    assert_int_equal(add(w, (struct revocation){.jti = STR("a"), .scope = STR("t/acme/")}), 0);
    assert_int_equal(
        add(w, (struct revocation){.sub = STR("bob"), .scope = STR("t/acme/"), .before_s = NOW_S}),
        0);
    assert_false(denied(w, p));
    p.root = STR("t/other/");
    assert_false(denied(w, p));
    p.root = STR("t/acme/x/");
    assert_true(denied(w, p));
    p = token("idp", "bob", "b", NOW_S);
    assert_false(denied(w, p));
    p.root = STR("t/acme/");
    assert_true(denied(w, p));
}

static unsigned n_added, n_full;

static void on_one_of_many(struct revocation *v, int err)
{
    n_added += err == 0;
    n_full += err == ERR_FULL;
}

/* So many at once, called PREFIX and a number. */
static void add_many(struct world *w, const char *prefix, size_t n)
{
    struct revocation *all = mem_zalloc(n * sizeof *all);
    char(*texts)[64] = mem_zalloc(n * sizeof *texts);
    n_added = n_full = 0;
    for (size_t i = 0; i < n; i++) {
        snprintf(texts[i], sizeof texts[i], "%s%zu", prefix, i);
        all[i] = (struct revocation){.jti = str_of_cstr(texts[i]), .done = on_one_of_many};
        revocations_add(w->deny, &all[i]);
    }
    sched_drain(&w->sched);
    free(texts);
    free(all);
}

/* Attack 34: one more than there may be, also of many at once; a restart; the clock an hour back.
 */
static void the_list_is_bounded_and_kept(void **state)
{
    struct world *w = *state;
    const size_t many = 100;
    end(w, w->deny);
    w->deny = start(w, REVOCATIONS_MAX, &w->n_changes);
    for (size_t n = many; n < REVOCATIONS_MAX; n += many) {
        char prefix[8];
        snprintf(prefix, sizeof prefix, "%zu-", n / many);
        add_many(w, prefix, many);
        assert_int_equal(n_added, many);
    }
    add_many(w, "last-", many + 1);
    assert_int_equal(n_added, many);
    assert_int_equal(n_full, 1);
    assert_int_equal(revocations_count(w->deny), REVOCATIONS_MAX);
    assert_int_equal(add(w, (struct revocation){.jti = STR("one more")}), ERR_FULL);
    assert_false(denied(w, token("idp", "ada", "one more", NOW_S)));
    assert_int_equal(add(w, (struct revocation){.jti = STR("1-0")}), 0); /* it is there */
    end(w, w->deny);
    sched_turn(&w->sched, w->sched.now_ms + 1, (int64_t)(NOW_S - HOUR) * 1000);
    w->deny = start(w, REVOCATIONS_MAX, &w->n_changes);
    assert_int_equal(revocations_count(w->deny), REVOCATIONS_MAX);
    assert_true(denied(w, token("idp", "ada", "1-0", NOW_S)));
    assert_true(denied(w, token("idp", "ada", "999-99", NOW_S)));
    assert_true(denied(w, token("idp", "ada", "last-99", NOW_S)));
    assert_int_equal(add(w, (struct revocation){.jti = STR("one more")}), ERR_FULL);
}

static void entries_leave_a_day_after_their_tokens(void **state)
{
    struct world *w = *state;
    assert_int_equal(add(w, (struct revocation){.jti = STR("a")}), 0);
    pass(w, 60000, NOW_S + HOUR + DAY - 1);
    assert_true(denied(w, token("idp", "ada", "a", NOW_S)));
    pass(w, 60000, NOW_S + HOUR - 1); /* the clock is set back: nothing is revived */
    assert_true(denied(w, token("idp", "ada", "a", NOW_S)));
    pass(w, 60000, NOW_S + HOUR + DAY + 1);
    assert_int_equal(revocations_count(w->deny), 0);
    end(w, w->deny);
    w->deny = start(w, 1000, &w->n_changes);
    assert_int_equal(revocations_count(w->deny), 0); /* its document has gone, too */
}

static void other_processes_know_soon(void **state)
{
    struct world *w = *state;
    w->store->shared = true;
    w->other = start(w, 1000, &w->n_other_changes);
    struct principal p = token("idp", "ada", "a", NOW_S);
    assert_int_equal(add(w, (struct revocation){.jti = STR("a")}), 0);
    assert_false(revocations_deny(w->other, &p));
    pass(w, 3000, NOW_S);
    assert_true(revocations_deny(w->other, &p));
    assert_int_equal(w->n_other_changes, 1);
    pass(w, 10000, NOW_S);
    assert_int_equal(w->n_other_changes, 1); /* nothing new */
}

/* A look of several pages tells of each: whoever is denied by the first is not let in while the
 * second is read. */
static void every_page_is_told(void **state)
{
    struct world *w = *state;
    char jti[16];
    end(w, w->deny);
    w->deny = start(w, 2000, &w->n_changes);
    for (int i = 0; i < 1500; i++) {
        snprintf(jti, sizeof jti, "j%d", i);
        assert_int_equal(add(w, (struct revocation){.jti = str_of_cstr(jti)}), 0);
    }
    w->other = start(w, 2000, &w->n_other_changes);
    assert_int_equal(revocations_count(w->other), 1500);
    assert_int_equal(w->n_other_changes, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_token_and_its_children_are_denied, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_subject_is_denied_up_to_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_root_is_denied_with_all_below, set_up, tear_down),
        cmocka_unit_test_setup_teardown(whoever_is_confined_revokes_his_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_list_is_bounded_and_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(entries_leave_a_day_after_their_tokens, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_processes_know_soon, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_page_is_told, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
