// SPDX-License-Identifier: Apache-2.0
/* A generation and those that it tells, without an exchange or an upstream. */
#include "base/err.h"
#include "base/mem.h"
#include "feature/gateway/gateway_core.h"
#include "http/http.h"
#include "http/message.h"
#include "store/mem/mem_store.h"
#include "stream/subscriber.h"
#include "telemetry/metrics.h"
#include "telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- a source that says what it is made to ---- */

struct script {
    struct generation_source source;
    const struct source_events *on;
    void *ctx;
    bool started;
};
static struct script *scripts[4];
static size_t n_scripts, n_freed;

static void script_start(struct generation_source *s)
{
    container_of(s, struct script, source)->started = true;
}

static void script_resume(struct generation_source *s)
{
}

static void script_free(struct generation_source *s)
{
    struct script *script = container_of(s, struct script, source);
    for (size_t i = 0; i < n_scripts; i++)
        if (scripts[i] == script)
            scripts[i] = NULL;
    free(script);
    n_freed++;
}

static struct generation_source *script_open(void *ctx, const struct source_order *o)
{
    static const struct source_ops ops = {
        .start = script_start, .resume = script_resume, .free = script_free};
    struct script *s = mem_zalloc(sizeof *s);
    *s = (struct script){.source.ops = &ops, .on = o->on, .ctx = o->ctx};
    scripts[n_scripts++] = s;
    return &s->source;
}

static void answer_events(size_t i)
{
    scripts[i]->on->head(scripts[i]->ctx, &(struct source_head){.events = true});
}

static void say(size_t i, const char *data)
{
    assert_int_equal(scripts[i]->on->event(scripts[i]->ctx, STR_NONE, str_of_cstr(data)), 1);
}

/* ---- a store that writes when it is told to ---- */

static struct {
    struct store_ops ops;
    const struct store_ops *real;
    bool holds;
    struct store_write *held;
} slow;

static void slow_write(struct store *s, struct store_write *w)
{
    if (!slow.holds) {
        slow.real->write(s, w);
        return;
    }
    assert_null(slow.held);
    slow.held = w;
}

/* err == 0: it is written. */
static void let_write(struct store *s, int err)
{
    struct store_write *w = slow.held;
    assert_non_null(w);
    slow.holds = false;
    slow.held = NULL;
    if (err == 0)
        slow.real->write(s, w);
    else
        w->done(w, err);
}

/* ---- the bench ---- */

struct bench {
    struct sched sched;
    struct store *store;
    struct feeds feeds;
    struct metrics metrics;
    struct trace trace;
    struct http http;
    struct gateway *gateway;
    struct gateway_route *routes[2];
    bool stopped;
};

static int set_up(void **state)
{
    struct bench *b = mem_zalloc(sizeof *b);
    char why[256];
    *b = (struct bench){.trace = {.to = stderr, .level = TRACE_ERROR}};
    sched_init(&b->sched, 1, 1);
    b->store = mem_store_new(&b->sched);
    slow.real = b->store->ops;
    slow.ops = *slow.real;
    slow.ops.write = slow_write;
    slow.holds = false;
    b->store->ops = &slow.ops;
    feeds_init(&b->feeds, b->store);
    metrics_init(&b->metrics);
    http_init(&b->http, NULL, &b->trace, &(struct http_limits){0});
    b->gateway = gateway_new(&(struct gateway_setup){.sched = &b->sched,
                                                     .store = b->store,
                                                     .feeds = &b->feeds,
                                                     .http = &b->http,
                                                     .metrics = &b->metrics,
                                                     .trace = &b->trace,
                                                     .store_is_memory = true,
                                                     .telemetry_prefix = STR("t")},
                             why, sizeof why);
    assert_non_null(b->gateway);
    static const char *const paths[] = {"/a", "/b"};
    for (size_t i = 0; i < 2; i++)
        b->routes[i] = gateway_add_local(
            b->gateway, &(struct gateway_local){.path = paths[i], .source.open = script_open});
    n_scripts = n_freed = 0;
    *state = b;
    return 0;
}

static void on_stopped(void *ctx)
{
    ((struct bench *)ctx)->stopped = true;
}

static int tear_down(void **state)
{
    struct bench *b = *state;
    gateway_stop(b->gateway, on_stopped, b);
    sched_drain(&b->sched);
    assert_true(b->stopped);
    assert_int_equal(n_freed, n_scripts);
    gateway_free(b->gateway);
    feeds_deinit(&b->feeds);
    store_free(b->store);
    http_deinit(&b->http);
    metrics_deinit(&b->metrics);
    free(b);
    return 0;
}

/* ---- who asks, who waits ---- */

struct asker {
    struct generation_order order;
    bool asked;
    int ready, failed, missing, surplus, direct;
    struct generation_failure why;
    char message[64];
    bool degraded;
    int status;
};

static void note_failure(struct asker *a, const struct generation_failure *f)
{
    a->failed++;
    a->why = *f;
    snprintf(a->message, sizeof a->message, "%.*s", (int)f->message.n, f->message.p);
}

static struct asker *asker_of(struct generation_waiter *w)
{
    return container_of(w, struct asker, order.waiter);
}

static struct generation *generation_of(const struct asker *a)
{
    return generation_find(a->order.route, str_of(a->order.request_id, REQUEST_ID_TEXT));
}

static void on_ready(struct generation_waiter *w)
{
    struct asker *a = asker_of(w);
    a->ready++;
    if (generation_of(a) != NULL)
        generation_unpin(generation_of(a));
}

static void on_failed(struct generation_waiter *w, const struct generation_failure *f)
{
    note_failure(asker_of(w), f);
}

static void on_missing(struct generation_waiter *w, bool surplus)
{
    asker_of(w)->missing++;
    asker_of(w)->surplus += surplus;
}

static void on_asked(struct generation_order *o)
{
    container_of(o, struct asker, order)->asked = true;
}

static void on_refused(struct generation_order *o, int err)
{
    container_of(o, struct asker, order)->failed++;
}

/* Nobody is there any more to take it. */
static struct forward *on_direct(struct generation_order *o, struct generation *gen,
                                 const struct source_head *head, bool degraded)
{
    struct asker *a = container_of(o, struct asker, order);
    a->direct++;
    a->degraded = degraded;
    a->status = head->status;
    return NULL;
}

static const struct generation_waiter_ops waiter_ops = {on_ready, on_failed, on_missing};
static const struct generation_asker_ops asker_ops = {
    .asked = on_asked, .refused = on_refused, .direct = on_direct};

static void begin_asking(struct bench *b, size_t route, struct asker *a)
{
    static const struct request request = {.method = METHOD_POST};
    char id[RAND_UUID + 1];
    rand_uuid(id);
    *a = (struct asker){.order = {.route = b->routes[route],
                                  .request = &request,
                                  .body = STR("{}"),
                                  .waiter.ops = &waiter_ops,
                                  .ops = &asker_ops}};
    memcpy(a->order.request_id, id, REQUEST_ID_TEXT);
    generation_start(&a->order);
    sched_drain(&b->sched);
}

static void ask(struct bench *b, size_t route, struct asker *a)
{
    begin_asking(b, route, a);
    assert_true(a->asked);
}

/* One whose stream the store has not taken yet. */
static void ask_slowly(struct bench *b, struct asker *a)
{
    slow.holds = true;
    begin_asking(b, 0, a);
    assert_false(a->asked);
}

/* One that the store does not take. */
static void ask_in_vain(struct bench *b, struct asker *a)
{
    ask_slowly(b, a);
    let_write(b->store, ERR_BUSY);
    sched_drain(&b->sched);
    assert_true(a->asked);
}

/* One more who wants to read what the other has asked for. */
static void join(struct asker *a, struct asker *other)
{
    struct str id = str_of(other->order.request_id, REQUEST_ID_TEXT);
    *a = (struct asker){.order = {.route = other->order.route, .waiter.ops = &waiter_ops}};
    memcpy(a->order.request_id, id.p, id.n);
    assert_true(generation_wait(other->order.route, id, &a->order.waiter));
}

/* ---- tests ---- */

static void test_whoever_asked_reads_from_the_first_recorded_event_on(void **state)
{
    struct bench *b = *state;
    struct asker a, late;
    ask(b, 0, &a);
    join(&late, &a);
    answer_events(0);
    sched_drain(&b->sched);
    assert_int_equal(a.ready + late.ready, 0);
    say(0, "one");
    assert_int_equal(a.ready + late.ready, 0); /* it is not durable yet */
    sched_drain(&b->sched);
    assert_int_equal(a.ready, 1);
    assert_int_equal(late.ready, 1);
    struct asker third;
    struct str id = str_of(a.order.request_id, REQUEST_ID_TEXT);
    assert_false(generation_wait(b->routes[0], id, &third.order.waiter));
    scripts[0]->on->end(scripts[0]->ctx, 0, STR_NONE);
    sched_drain(&b->sched);
    assert_null(generation_of(&a));
    assert_int_equal(a.ready + a.failed, 1);
}

static void test_what_comes_to_nothing_fails_for_all(void **state)
{
    struct bench *b = *state;
    struct asker a, late;
    ask(b, 0, &a);
    join(&late, &a);
    scripts[0]->on->end(scripts[0]->ctx, ERR_UPSTREAM_TIMEOUT, STR("too late"));
    sched_drain(&b->sched);
    assert_int_equal(a.failed, 1);
    assert_int_equal(late.failed, 1);
    assert_int_equal(late.why.end, END_FAILED);
    assert_int_equal(late.why.err, ERR_UPSTREAM_TIMEOUT);
    assert_string_equal(late.message, "too late");
    assert_int_equal(a.ready + late.ready, 0);
}

static void test_what_is_no_stream_goes_to_whoever_asked_alone(void **state)
{
    struct bench *b = *state;
    struct asker a, late[6];
    ask(b, 0, &a);
    for (size_t i = 0; i < 6; i++)
        join(&late[i], &a);
    scripts[0]->on->head(scripts[0]->ctx, &(struct source_head){.status = 404});
    sched_drain(&b->sched);
    assert_int_equal(a.direct, 1);
    assert_int_equal(a.status, 404);
    assert_false(a.degraded);
    int surplus = 0;
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(late[i].missing, 1);
        surplus += late[i].surplus;
    }
    assert_int_equal(surplus, 2); /* four are enough to ask again */
}

/* A feature whose sources go stops before the gateway. */
static void test_a_route_is_orphaned_by_itself(void **state)
{
    struct bench *b = *state;
    struct asker a, other;
    ask(b, 0, &a);
    ask(b, 1, &other);
    gateway_orphan_route(b->routes[0]);
    assert_int_equal(n_freed, 1);
    assert_null(scripts[0]);
    sched_drain(&b->sched);
    assert_int_equal(a.failed, 1);
    assert_int_equal(a.why.end, END_ORPHANED);
    assert_null(generation_of(&a));
    assert_int_equal(other.failed, 0);
    assert_non_null(generation_of(&other));
    assert_true(scripts[1]->started);
    scripts[1]->on->end(scripts[1]->ctx, 0, STR_NONE);
    sched_drain(&b->sched);
    assert_int_equal(other.ready, 1);
}

/* They came before it was known that it would not be recorded. */
static void test_nobody_waits_for_what_is_neither_a_stream_nor_kept(void **state)
{
    struct bench *b = *state;
    struct asker a, late;
    ask_slowly(b, &a);
    join(&late, &a);
    let_write(b->store, ERR_BUSY);
    sched_drain(&b->sched);
    scripts[0]->on->head(scripts[0]->ctx, &(struct source_head){.status = 500});
    sched_drain(&b->sched);
    assert_int_equal(a.direct, 1);
    assert_true(a.degraded);
    assert_int_equal(late.missing, 1);
    assert_null(generation_of(&a));
}

struct stop {
    struct generation_stopper stopper;
    int n, err;
    enum end_reason end;
};

static void on_cancelled(struct generation_stopper *s, enum end_reason end, int err)
{
    struct stop *stop = container_of(s, struct stop, stopper);
    stop->n++;
    stop->end = end;
    stop->err = err;
}

/* ---- orphaned in each of its states ---- */

static void orphan(struct bench *b)
{
    gateway_orphan_route(b->routes[0]);
    assert_int_equal(n_freed, 1);
    if (slow.held != NULL)
        let_write(b->store, 0);
    sched_drain(&b->sched);
}

static void assert_orphaned(struct bench *b, const struct asker *a)
{
    assert_int_equal(a->failed, 1);
    assert_int_equal(a->why.end, END_ORPHANED);
    assert_int_equal(a->ready + a->direct, 0);
    assert_null(generation_of(a));
}

static void test_orphaned_while_its_stream_is_made(void **state)
{
    struct bench *b = *state;
    struct asker a;
    ask_slowly(b, &a);
    orphan(b);
    assert_orphaned(b, &a);
}

static void test_orphaned_while_its_stream_cannot_be_made(void **state)
{
    struct bench *b = *state;
    struct asker a;
    ask_slowly(b, &a);
    gateway_orphan_route(b->routes[0]);
    assert_int_equal(n_freed, 1);
    let_write(b->store, ERR_BUSY);
    sched_drain(&b->sched);
    assert_int_equal(a.failed, 1); /* it is refused */
    assert_false(a.asked);
    assert_null(generation_of(&a));
}

static void test_orphaned_before_its_first_event(void **state)
{
    struct bench *b = *state;
    struct asker a;
    ask(b, 0, &a);
    answer_events(0);
    orphan(b);
    assert_orphaned(b, &a);
}

static void test_orphaned_with_an_event_that_is_not_written_yet(void **state)
{
    struct bench *b = *state;
    struct asker a;
    ask(b, 0, &a);
    answer_events(0);
    slow.holds = true;
    say(0, "one");
    sched_drain(&b->sched);
    orphan(b);
    assert_int_equal(a.ready, 1);
    assert_int_equal(a.failed, 0);
    assert_null(generation_of(&a));
}

static void test_orphaned_while_it_is_cancelled(void **state)
{
    struct bench *b = *state;
    struct asker a;
    struct stop stop = {.stopper.done = on_cancelled};
    ask(b, 0, &a);
    slow.holds = true;
    generation_cancel(generation_of(&a), &stop.stopper);
    sched_drain(&b->sched);
    orphan(b);
    assert_int_equal(stop.n, 1);
    assert_int_equal(a.ready, 1);
    assert_null(generation_of(&a));
}

static void test_orphaned_and_not_recorded(void **state)
{
    struct bench *b = *state;
    struct asker a;
    ask_in_vain(b, &a);
    orphan(b);
    assert_orphaned(b, &a);
    assert_true(a.why.degraded);
}

/* The source is in the middle of an event when it turns out that its client has gone. */
static void test_orphaned_when_nobody_takes_what_is_not_recorded(void **state)
{
    struct bench *b = *state;
    struct asker a;
    ask_in_vain(b, &a);
    answer_events(0);
    assert_int_equal(scripts[0]->on->event(scripts[0]->ctx, STR_NONE, STR("one")), 0);
    assert_int_equal(n_freed, 0);
    orphan(b);
    assert_int_equal(a.direct, 1);
    assert_int_equal(a.failed + a.ready, 0);
    assert_null(generation_of(&a));
}

static void test_all_who_want_it_stopped_are_told_when_it_is(void **state)
{
    struct bench *b = *state;
    struct asker a;
    struct stop stops[2] = {{.stopper.done = on_cancelled}, {.stopper.done = on_cancelled}};
    ask(b, 0, &a);
    for (size_t i = 0; i < 2; i++)
        generation_cancel(generation_of(&a), &stops[i].stopper);
    assert_int_equal(stops[0].n + stops[1].n, 0); /* it is not durable yet */
    sched_drain(&b->sched);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(stops[i].n, 1);
        assert_int_equal(stops[i].err, 0);
        assert_int_equal(stops[i].end, END_CANCELLED);
    }
    assert_int_equal(a.ready, 1); /* an empty stream is read as any other */
}

/* ---- kept as a whole ---- */

static void pass_time(struct bench *b, uint64_t ms)
{
    sched_turn(&b->sched, b->sched.now_ms + ms, b->sched.wall_ms + (int64_t)ms);
    sched_drain(&b->sched);
}

static int stat_err;
static struct stream_info stat_info;

static void on_stat(struct store_stat *st, int err)
{
    stat_err = err;
    stat_info = st->info;
}

static int look_at_stream(struct bench *b, const struct asker *a)
{
    struct arena arena = {0};
    struct store_stat st = {.name =
                                gateway_stream(&arena, a->order.route,
                                               str_of(a->order.request_id, REQUEST_ID_TEXT), ""),
                            .done = on_stat};
    store_stat(b->store, &st);
    sched_drain(&b->sched);
    arena_deinit(&arena);
    return stat_err;
}

/* Its asker has lost it, and may come again: it is kept although it is no stream. */
static void begin_kept(struct bench *b, struct asker *a)
{
    ask(b, 0, a);
    generation_want_kept(generation_of(a));
    scripts[0]->on->head(scripts[0]->ctx, &(struct source_head){.status = 200, .marked = true});
    sched_drain(&b->sched);
}

/* Nothing is written for as long as it comes, and that may be longer than streams are kept. */
static void test_what_is_kept_may_come_slowly(void **state)
{
    struct bench *b = *state;
    struct asker a, late;
    uint64_t ttl_ms = b->routes[0]->config->state_ttl_ms;
    begin_kept(b, &a);
    join(&late, &a);
    for (int i = 0; i < 40; i++) {
        pass_time(b, i % 2 == 0 ? ttl_ms / 100 : ttl_ms * 9 / 10); /* the longest silence */
        assert_true(scripts[0]->on->data(scripts[0]->ctx, STR(" ")));
        sched_drain(&b->sched);
        assert_int_equal(look_at_stream(b, &a), 0);
    }
    assert_int_equal(stat_info.events, 0);
    assert_int_equal(a.ready + late.ready, 0);
    scripts[0]->on->end(scripts[0]->ctx, 0, STR_NONE);
    sched_drain(&b->sched);
    assert_int_equal(look_at_stream(b, &a), 0);
    assert_int_equal(stat_info.events, 1);
    assert_int_equal(stat_info.end, END_COMPLETED);
    assert_int_equal(a.ready, 1);
    assert_int_equal(late.ready, 1);
    assert_int_equal(b->gateway->kept_bytes, 0);
}

static void test_orphaned_while_it_is_kept(void **state)
{
    struct bench *b = *state;
    struct asker a;
    begin_kept(b, &a);
    assert_true(scripts[0]->on->data(scripts[0]->ctx, STR("half")));
    orphan(b);
    assert_orphaned(b, &a);
    assert_int_equal(b->gateway->kept_bytes, 0);
}

/* ---- nobody reads it ---- */

struct seated {
    struct asker asker;
    struct generation_seat seat;
};

static void ask_and_sit(struct bench *b, struct seated *s, uint64_t after_ms)
{
    struct route_config *c = b->routes[0]->local;
    c->disconnect = ROUTE_DISCONNECT_STOP;
    c->disconnect_ms = after_ms;
    *s = (struct seated){0};
    ask(b, 0, &s->asker);
    generation_sit(b->routes[0], str_of(s->asker.order.request_id, REQUEST_ID_TEXT), &s->seat);
    answer_events(0);
    say(0, "one");
    sched_drain(&b->sched);
    assert_int_equal(s->asker.ready, 1);
}

static void sit(struct bench *b, struct generation_seat *seat, const struct seated *s)
{
    *seat = (struct generation_seat){0};
    generation_sit(b->routes[0], str_of(s->asker.order.request_id, REQUEST_ID_TEXT), seat);
}

static void test_it_stops_some_time_after_its_last_reader(void **state)
{
    struct bench *b = *state;
    struct seated s;
    struct generation_seat other;
    ask_and_sit(b, &s, 30000);
    sit(b, &other, &s);
    generation_stand(&s.seat);
    generation_stand(&s.seat); /* which is nothing new */
    pass_time(b, 60000);
    assert_int_equal(n_freed, 0);
    generation_stand(&other);
    pass_time(b, 29000);
    assert_int_equal(n_freed, 0);
    sit(b, &other, &s); /* it comes back */
    pass_time(b, 60000);
    assert_int_equal(n_freed, 0);
    generation_stand(&other);
    pass_time(b, 29000);
    assert_int_equal(n_freed, 0);
    pass_time(b, 2000);
    assert_int_equal(n_freed, 1);
    assert_null(generation_of(&s.asker));
    assert_int_equal(look_at_stream(b, &s.asker), 0);
    assert_int_equal(stat_info.end, END_CANCELLED);
}

/* Whoever goes in the same turn as somebody comes leaves it as it is. */
static void test_one_comes_as_another_goes(void **state)
{
    struct bench *b = *state;
    struct seated s;
    struct generation_seat other;
    ask_and_sit(b, &s, 0);
    generation_stand(&s.seat);
    sit(b, &other, &s);
    pass_time(b, 1000);
    assert_int_equal(n_freed, 0);
    generation_stand(&other);
    pass_time(b, 1000);
    assert_int_equal(n_freed, 1);
}

/* It is over, and whoever still reads what is stored has nothing to do with it any more. */
static void test_a_seat_may_outlive_it(void **state)
{
    struct bench *b = *state;
    struct seated s;
    ask_and_sit(b, &s, 0);
    scripts[0]->on->end(scripts[0]->ctx, 0, STR_NONE);
    sched_drain(&b->sched);
    assert_null(generation_of(&s.asker));
    assert_null(s.seat.gen);
    generation_stand(&s.seat);
    pass_time(b, 1000);
    assert_int_equal(look_at_stream(b, &s.asker), 0);
    assert_int_equal(stat_info.end, END_COMPLETED);
}

static void on_drained(void *ctx)
{
    *(bool *)ctx = true;
}

static void test_a_drain_waits_for_the_last(void **state)
{
    struct bench *b = *state;
    struct asker a;
    bool drained = false;
    ask(b, 0, &a);
    gateway_drain(b->gateway, on_drained, &drained);
    sched_drain(&b->sched);
    assert_false(drained);
    scripts[0]->on->end(scripts[0]->ctx, 0, STR_NONE);
    sched_drain(&b->sched);
    assert_true(drained);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_whoever_asked_reads_from_the_first_recorded_event_on),
        T(test_what_comes_to_nothing_fails_for_all),
        T(test_what_is_no_stream_goes_to_whoever_asked_alone),
        T(test_a_route_is_orphaned_by_itself),
        T(test_all_who_want_it_stopped_are_told_when_it_is),
        T(test_a_drain_waits_for_the_last),
        T(test_nobody_waits_for_what_is_neither_a_stream_nor_kept),
        T(test_orphaned_while_its_stream_is_made),
        T(test_orphaned_while_its_stream_cannot_be_made),
        T(test_orphaned_before_its_first_event),
        T(test_orphaned_with_an_event_that_is_not_written_yet),
        T(test_orphaned_while_it_is_cancelled),
        T(test_orphaned_and_not_recorded),
        T(test_orphaned_when_nobody_takes_what_is_not_recorded),
        T(test_what_is_kept_may_come_slowly),
        T(test_orphaned_while_it_is_kept),
        T(test_it_stops_some_time_after_its_last_reader),
        T(test_one_comes_as_another_goes),
        T(test_a_seat_may_outlive_it),
    };
    return cmocka_run_group_tests_name("unit/generation", tests, NULL, NULL);
}
