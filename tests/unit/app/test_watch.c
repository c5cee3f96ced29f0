// SPDX-License-Identifier: Apache-2.0
/* What is told of a store and of features, and how often. */
#include "app/watch.h"
#include "base/err.h"
#include "feature/feature.h"
#include "telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEST_TRACES(X)                                                                             \
    X(TEST_LATE, TRACE_WARN, "{} came late")                                                       \
    X(TEST_LOST, TRACE_WARN, "{} were lost")
TRACE_TABLE_DEFINE(test_traces, TEST_TRACES);

static uint64_t count_late(const void *state)
{
    return ((const uint64_t *)state)[0];
}

static uint64_t count_lost(const void *state)
{
    return ((const uint64_t *)state)[1];
}

static const struct feature_trouble troubles[] = {
    {.count = count_late, .told = &TRACE_KIND_TEST_LATE},
    {.count = count_lost, .told = &TRACE_KIND_TEST_LOST},
    {0},
};
static const struct feature quiet = {.name = "quiet"}, troubled = {.troubles = troubles};

struct tower {
    struct sched sched;
    struct store store;
    struct watch watch;
    uint64_t counts[2];
    struct feature_state states[4];
    struct trace trace;
    uint64_t now_ms;
    int health;
    char *text;
    size_t n;
};

static int tower_health(struct store *s, struct str *why)
{
    *why = STR("no disk");
    return container_of(s, struct tower, store)->health;
}

static int set_up(void **state)
{
    static const struct store_ops ops = {.health = tower_health};
    struct tower *t = calloc(1, sizeof *t);
    t->store.ops = &ops;
    t->states[0] = (struct feature_state){&quiet, t};
    t->states[1] = (struct feature_state){&troubled, NULL}; /* it is not there */
    t->states[2] = (struct feature_state){&troubled, t->counts};
    t->trace = (struct trace){.to = open_memstream(&t->text, &t->n), .level = TRACE_INFO};
    sched_init(&t->sched, 0, 0);
    t->watch = (struct watch){
        .sched = &t->sched, .store = &t->store, .states = t->states, .trace = &t->trace};
    watch_start(&t->watch);
    *state = t;
    return 0;
}

static int tear_down(void **state)
{
    struct tower *t = *state;
    watch_stop(&t->watch);
    fclose(t->trace.to);
    free(t->text);
    free(t);
    return 0;
}

#define STEP_MS 1020 /* and a little more, since timers may be late by a tick */

/* Lets so many seconds pass, in which exactly these lines are told; their times are left out. */
static void expect(struct tower *t, int seconds, const char *lines)
{
    char got[1000] = "";
    size_t before = t->n;
    for (int i = 0; i < seconds; i++) {
        t->now_ms += STEP_MS;
        sched_turn(&t->sched, t->now_ms, (int64_t)t->now_ms);
    }
    for (const char *line = t->text == NULL ? "" : t->text + before; *line != '\0';
         line = strchr(line, '\n') + 1)
        strncat(got, line + strlen("00:00:00 "), strcspn(line, "\n") + 1 - strlen("00:00:00 "));
    assert_string_equal(got, lines);
}

static void test_troubles_of_features_are_told(void **state)
{
    struct tower *t = *state;
    expect(t, 3, "");
    t->counts[1] = 2;
    expect(t, 1, "warn  2 were lost\n");
    t->counts[0] = 1;
    expect(t, 1, "warn  1 came late\n");
}

static void test_the_rest_is_told_once_a_minute(void **state)
{
    struct tower *t = *state;
    t->counts[0] = 1;
    expect(t, 1, "warn  1 came late\n");
    t->counts[0] = 6;
    expect(t, 58, "");
    expect(t, 1, "warn  5 came late\n");
    expect(t, 120, "");
}

static void test_refusals_are_told_by_their_error(void **state)
{
    struct tower *t = *state;
    t->store.refused[STORE_FULL] = 3;
    t->store.refused[STORE_AWAY] = 1;
    expect(t, 1,
           "warn  the store has refused 3 operations: full\n"
           "warn  the store has refused 1 operations: away\n");
    t->store.refused[STORE_FULL] = 4;
    expect(t, 60, "warn  the store has refused 1 operations: full\n");
}

static void test_a_change_of_health_is_told_at_once(void **state)
{
    struct tower *t = *state;
    char sentence[200];
    t->health = ERR_IO;
    snprintf(sentence, sizeof sentence, "warn  not ready: %s why=no disk\n", err_text(ERR_IO));
    expect(t, 5, sentence);
    t->health = 0;
    expect(t, 5, "info  ready: writes are taken again\n");
}

static void test_a_feature_that_is_not_there_has_no_troubles(void **state)
{
    struct tower *t = *state;
    uint64_t n = 7;
    t->counts[1] = 9;
    assert_ptr_equal(watch_trouble(t->states, 0, &n), &troubles[0]);
    assert_int_equal(n, 0);
    assert_ptr_equal(watch_trouble(t->states, 3, &n), &troubles[1]);
    assert_int_equal(n, 9);
    assert_null(watch_trouble(t->states, 4, &n));
    assert_null(watch_trouble(NULL, 0, &n));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_troubles_of_features_are_told),
        TEST(test_the_rest_is_told_once_a_minute),
        TEST(test_refusals_are_told_by_their_error),
        TEST(test_a_change_of_health_is_told_at_once),
        TEST(test_a_feature_that_is_not_there_has_no_troubles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
