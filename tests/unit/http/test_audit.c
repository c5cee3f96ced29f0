// SPDX-License-Identifier: Apache-2.0
/* The audit's lines, on a lane that writes when it is told to. */
#include "base/buf.h"
#include "base/err.h"
#include "base/lane.h"
#include "base/mem.h"
#include "base/sched.h"
#include "http/audit.h"
#include "http/exchange.h"
#include "telemetry/trace.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    struct sched sched;
    struct trace trace;
    struct lane lane;
    struct job *job; /* that waits */
    struct audit *audit;
    char path[64];
    int n_done, err;
};
static struct world *world;

static void submit(struct lane *l, struct job *j)
{
    struct world *w = container_of(l, struct world, lane);
    assert_null(w->job); /* one after the other */
    w->job = j;
}

/* What waits is written, and what that brings about. */
static void let(struct world *w)
{
    sched_drain(&w->sched);
    while (w->job != NULL) {
        struct job *j = w->job;
        w->job = NULL;
        j->run(j);
        j->done(j);
        sched_drain(&w->sched);
    }
}

static int set_up(void **state)
{
    struct world *w = world = mem_zalloc(sizeof *w);
    sched_init(&w->sched, 1000, 1769860801250);
    w->trace = (struct trace){.to = fopen("/dev/null", "w"), .level = TRACE_ERROR};
    w->lane.submit = submit;
    snprintf(w->path, sizeof w->path, "/tmp/test_audit_XXXXXX");
    close(mkstemp(w->path));
    w->audit = audit_new(&(struct audit_setup){
        .sched = &w->sched, .lane = &w->lane, .path = w->path, .trace = &w->trace});
    *state = w;
    return 0;
}

static void on_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    bool stopped = false;
    audit_stop(w->audit, on_stopped, &stopped);
    let(w);
    assert_true(stopped);
    audit_free(w->audit);
    unlink(w->path);
    fclose(w->trace.to);
    free(w);
    return 0;
}

/* The lines of the file; the caller frees. */
static json_t *lines(struct world *w)
{
    json_t *all = json_array();
    char line[4096];
    FILE *f = fopen(w->path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        json_t *one = json_loads(line, 0, NULL);
        assert_non_null(one);
        json_array_append_new(all, one);
    }
    fclose(f);
    return all;
}

static const char *text(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name));
}

static void a_line_says_who_and_what(void **state)
{
    struct world *w = *state;
    struct header headers[] = {{STR("X-Request-Id"), STR("r-1")},
                               {STR("Authorization"), STR("Bearer SECRET")}};
    struct request req = {.method_text = STR("GET"),
                          .path = STR("/v1/stream/a\"b"),
                          .query = STR("grant=SECRET"),
                          .headers = headers,
                          .n_headers = 2};
    struct principal p = {.issuer = STR("idp"), .sub = STR("ada"), .jti = STR("j")};
    struct exchange x = {.principal = &p, .request = &req};
    audit_tell(w->audit, &x,
               &(struct audit_fact){.event = AUDIT_DENIED,
                                    .verb = STR("read"),
                                    .kind = STR("stream"),
                                    .name = STR("a\"b"),
                                    .ip = STR("127.0.0.1")});
    let(w);
    json_t *all = lines(w), *line = json_array_get(all, 0);
    assert_int_equal(json_array_size(all), 1);
    static const char *const want[][2] = {{"time", "2026-01-31T12:00:01.250Z"},
                                          {"event", "denied"},
                                          {"issuer", "idp"},
                                          {"sub", "ada"},
                                          {"jti", "j"},
                                          {"ip", "127.0.0.1"},
                                          {"method", "GET"},
                                          {"path", "/v1/stream/a\"b"},
                                          {"verb", "read"},
                                          {"kind", "stream"},
                                          {"name", "a\"b"},
                                          {"decision", "deny"},
                                          {"request", "r-1"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_string_equal(text(line, want[i][0]), want[i][1]);
    assert_int_equal(json_object_size(line), sizeof want / sizeof *want);
    char *whole = json_dumps(line, 0);
    assert_null(strstr(whole, "SECRET"));
    free(whole);
    json_decref(all);
}

static void on_done(struct audit_wait *wait, int err)
{
    world->n_done++;
    world->err = err;
}

static void who_waits_hears_when_it_is_written(void **state)
{
    struct world *w = *state;
    struct audit_wait one = {.done = on_done}, two = {.done = on_done};
    audit_note(w->audit, AUDIT_MINTED, NULL, STR_NONE);
    audit_sync(w->audit, &one);
    sched_drain(&w->sched);
    assert_non_null(w->job);
    audit_note(w->audit, AUDIT_REVOKED, NULL, STR_NONE); /* behind the batch under way */
    audit_sync(w->audit, &two);
    assert_int_equal(w->n_done, 0);
    struct job *j = w->job;
    w->job = NULL;
    j->run(j);
    j->done(j);
    assert_int_equal(w->n_done, 1);
    let(w);
    assert_int_equal(w->n_done, 2);
    assert_int_equal(w->err, 0);
    json_t *all = lines(w);
    assert_int_equal(json_array_size(all), 2);
    json_decref(all);
}

static void a_file_that_was_moved_away_is_made_anew(void **state)
{
    struct world *w = *state;
    audit_note(w->audit, AUDIT_RELOAD, NULL, STR_NONE);
    let(w);
    unlink(w->path);
    audit_note(w->audit, AUDIT_RELOAD, NULL, STR("again"));
    let(w);
    json_t *all = lines(w);
    assert_int_equal(json_array_size(all), 1);
    json_decref(all);
}

static void what_cannot_be_written_is_an_error(void **state)
{
    struct world *w = *state;
    struct audit_wait one = {.done = on_done};
    struct audit *bad = audit_new(&(struct audit_setup){
        .sched = &w->sched, .lane = &w->lane, .path = "/dev/null/audit", .trace = &w->trace});
    audit_note(bad, AUDIT_MINTED, NULL, STR_NONE);
    audit_sync(bad, &one);
    let(w);
    assert_int_equal(w->n_done, 1);
    assert_int_equal(w->err, ERR_IO);
    audit_free(bad);
}

static void strangers_are_bounded(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < AUDIT_RATE + 500; i++)
        audit_note(w->audit, AUDIT_AUTH_FAILED, NULL, STR("EXPIRED"));
    audit_note(w->audit, AUDIT_MINTED, NULL, STR_NONE); /* this is not left out */
    let(w);
    json_t *all = lines(w);
    size_t n = json_array_size(all);
    assert_int_equal(n, AUDIT_RATE + 2);
    assert_string_equal(text(json_array_get(all, n - 2), "event"), "minted");
    assert_string_equal(text(json_array_get(all, n - 1), "event"), "left-out");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(all, n - 1), "count")), 500);
    json_decref(all);
    sched_turn(&w->sched, w->sched.now_ms + 1000, w->sched.wall_ms + 1000);
    audit_note(w->audit, AUDIT_AUTH_FAILED, NULL, STR("EXPIRED")); /* in the next second */
    let(w);
    all = lines(w);
    assert_int_equal(json_array_size(all), n + 1);
    json_decref(all);
}

static void without_an_audit_nothing_happens(void **state)
{
    audit_note(NULL, AUDIT_DENIED, NULL, STR_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_says_who_and_what, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_waits_hears_when_it_is_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_was_moved_away_is_made_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_written_is_an_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(strangers_are_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_an_audit_nothing_happens, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
