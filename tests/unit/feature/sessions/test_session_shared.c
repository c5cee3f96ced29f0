// SPDX-License-Identifier: Apache-2.0
/* Sessions of two processes over one store that is never in a hurry, is busy at times or loses
 * answers, with
 * clients that drop, overtake themselves and come back, to whichever of the two, and processes that
 * are stopped and started: see model/session_model.h for what must hold, at most one backend at
 * work on a session among it, and model/seeds.h for how to repeat a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/units.h"
#include "stream/instances.h"
#include "model/delay.c"
#include "model/lossy.c"
#include "model/session_model.h"
#include "store/mem/mem_store.h"

#define SEEDS      60
#define STEPS_MAX  1500
#define TURNS_MAX  20000
#define START_WALL 1700000000000

#define PROCESSES  2

enum mood { CALM, BUSY, LOSSY };

/* One of them, with all it has of its own. */
struct process {
    struct store *store; /* its own way to the store that all share */
    struct feeds feeds;
    struct instances *instances;
    struct sessions *sessions;
};

struct world {
    struct session_model model;
    struct sched sched;
    struct store *store; /* delays; under it the front, under that the store in memory */
    struct process processes[PROCESSES];
    enum mood mood;
    bool stopped, quiet;
    uint64_t lost; /* answers */
};

static void pass_turn(struct world *w, uint64_t ms)
{
    sched_turn(&w->sched, w->sched.now_ms + ms, w->sched.wall_ms + (int64_t)ms);
}

static bool never_off(const struct session_model *m)
{
    return false;
}

/* What is created is not refused but for good: it would be degraded, and the talk over. */
static int judge(void *ctx, const char *verb, struct str name)
{
    struct world *w = container_of((struct session_model *)ctx, struct world, model);
    struct rng *rng = &w->model.rng;
    if (strcmp(verb, "write") != 0 || w->mood != BUSY || w->quiet)
        return 0;
    if (w->model.creates || !rng_one_in(rng, 8))
        return 0;
    return rng_one_in(rng, 2) ? ERR_BUSY : ERR_FULL;
}

static void note_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static void wait_stopped(struct world *w)
{
    for (int i = 0; i < TURNS_MAX && !w->stopped; i++)
        pass_turn(w, SCHED_TICK_MS);
    assert_true(w->stopped);
    w->stopped = false;
}

static void start_process(struct world *w, struct process *p)
{
    p->store = lossy_store_new(w->store, rng_next(&w->model.rng));
    lossy_spare_creates(p->store);
    lossy_late(p->store, 60); /* fast enough, as above */
    lossy_often(p->store, w->mood == LOSSY && !w->quiet ? 12 : 0);
    struct sessions_setup setup = {.sched = &w->sched,
                                   .store = p->store,
                                   .feeds = &p->feeds,
                                   .backend = &w->model.backend,
                                   .lifetime_ms = DAY_MS,
                                   .max_open = 100,
                                   .max_bytes = 64 * 1024 * 1024};
    feeds_init(&p->feeds, p->store);
    setup.instances = p->instances = instances_new(&w->sched, p->store, INSTANCE_BEAT_MS);
    p->sessions = sessions_new(&setup);
}

static void stop_process(struct world *w, struct process *p)
{
    sessions_stop(p->sessions, note_stopped, &w->stopped);
    wait_stopped(w);
    sessions_free(p->sessions);
    instances_stop(p->instances, note_stopped, &w->stopped);
    wait_stopped(w);
    instances_free(p->instances);
    for (int i = 0; i < TURNS_MAX && p->feeds.by_name.n > 0; i++)
        pass_turn(w, SCHED_TICK_MS); /* reads that nobody waits for any more */
    feeds_deinit(&p->feeds);
    for (int i = 0; i < TURNS_MAX && lossy_pending(p->store) > 0; i++)
        pass_turn(w, SCHED_TICK_MS);
    w->lost += lossy_lost(p->store);
    lossy_store_drop(p->store);
}

static struct world *world_new(const struct rng *rng)
{
    struct world *w = mem_zalloc(sizeof *w);
    struct session_model *m = &w->model;
    sched_init(&w->sched, 0, START_WALL);
    model_init(m, rng->state, &w->sched);
    w->mood = (enum mood)rng_below(&m->rng, 3);
    m->harsh = m->shared = true;
    m->is_off = never_off;
    model_listen(m, facade_new(mem_store_new(&w->sched)));
    m->front->judge = judge;
    /* Fast enough for a process to let go of a session within the time that it has for that: no
     * write of its own comes later. */
    w->store =
        delay_store_new(&m->front->store, rng_next(&m->rng), (unsigned)rng_between(&m->rng, 1, 3));
    w->store->shared = true;
    for (size_t i = 0; i < PROCESSES; i++)
        start_process(w, &w->processes[i]);
    m->all = w->processes[0].sessions;
    return w;
}

static uint64_t world_free(struct world *w)
{
    for (size_t i = 0; i < TALKS; i++) {
        talk_free(w->model.talks[i]);
        w->model.talks[i] = NULL;
    }
    for (size_t i = 0; i < PROCESSES; i++)
        stop_process(w, &w->processes[i]);
    for (int i = 0; i < TURNS_MAX && delay_pending(w->store) > 0; i++)
        pass_turn(w, SCHED_TICK_MS);
    store_free(w->store);
    model_deinit(&w->model);
    uint64_t lost = w->lost;
    free(w);
    return lost;
}

/* Whoever comes next comes to this one. */
static void choose_process(struct world *w)
{
    w->model.all = w->processes[rng_below(&w->model.rng, PROCESSES)].sessions;
}

static void restart_process(struct world *w)
{
    struct process *p = &w->processes[rng_below(&w->model.rng, PROCESSES)];
    stop_process(w, p);
    start_process(w, p);
    choose_process(w);
}

static void live(struct world *w)
{
    struct session_model *m = &w->model;
    struct rng *rng = &m->rng;
    for (uint64_t n = rng_between(rng, 100, STEPS_MAX); n > 0 && !m->failed; n--) {
        if (rng_one_in(rng, 4))
            choose_process(w);
        model_step(m, true);
        for (uint64_t turns = rng_below(rng, 4); turns > 0; turns--)
            pass_turn(w, SCHED_TICK_MS);
        if (rng_one_in(rng, 300))
            restart_process(w);
    }
}

/* Whatever has happened, everybody gets to the end. */
static void finish(struct world *w)
{
    struct session_model *m = &w->model;
    bool busy = true;
    w->quiet = true;
    for (size_t i = 0; i < PROCESSES; i++)
        lossy_often(w->processes[i].store, 0);
    for (int i = 0; i < TURNS_MAX && busy && !m->failed; i++) {
        if (rng_one_in(&m->rng, 50))
            choose_process(w);
        busy = model_step(m, false);
        pass_turn(w, SCHED_TICK_MS);
    }
    if (busy)
        blame(m, "some are never done");
}

static uint64_t total_acks, total_events, total_again, total_finished, total_replaced,
    total_dropped, total_failed, total_moved, total_lost;

static void body(struct rng *rng)
{
    struct world *w = world_new(rng);
    struct session_model *m = &w->model;
    char verdict[sizeof m->verdict];
    live(w);
    finish(w);
    bool failed = m->failed;
    memcpy(verdict, m->verdict, sizeof verdict);
    total_acks += m->n_acks;
    total_events += m->n_events;
    total_again += m->n_again;
    total_finished += m->n_finished;
    total_replaced += m->n_replaced;
    total_dropped += m->n_dropped;
    total_moved += m->n_moved;
    total_failed += m->n_failed;
    total_lost += world_free(w);
    if (failed)
        fail_msg("%s", verdict);
}

static void test_sessions_move(void **state)
{
    seeds_run(SEEDS, body);
    print_message("%llu sessions, %llu acks, %llu events; %llu chunks answered again; %llu "
                  "connections dropped, %llu overtaken, %llu failed; %llu times moved; %llu "
                  "answers lost\n",
                  (unsigned long long)total_finished, (unsigned long long)total_acks,
                  (unsigned long long)total_events, (unsigned long long)total_again,
                  (unsigned long long)total_dropped, (unsigned long long)total_replaced,
                  (unsigned long long)total_failed, (unsigned long long)total_moved,
                  (unsigned long long)total_lost);
    if (seeds_env("TIDEMARK_SEED") == 0) /* or life was too easy */
        assert_true(total_again > 0 && total_replaced > 0 && total_moved > 100 && total_lost > 100);
}

/* ---- step by step ---- */

struct pair {
    struct sched sched;
    struct facade *front;
    struct store *ways[PROCESSES]; /* to it */
    struct feeds feeds[PROCESSES];
    struct instances *instances[PROCESSES];
    struct sessions *all[PROCESSES];
    struct session_backend backend[PROCESSES];
    struct session_reply *reply[PROCESSES];
    unsigned n_starts[PROCESSES], n_stops[PROCESSES];
    bool stopped;
};

static void pair_pass(struct pair *p, uint64_t ms)
{
    for (uint64_t t = 0; t < ms; t += SCHED_TICK_MS)
        sched_turn(&p->sched, p->sched.now_ms + SCHED_TICK_MS, START_WALL);
}

static void pair_start(void *ctx, struct session_reply *reply)
{
    struct pair *p = *(struct pair **)ctx;
    size_t i = reply->session->all == p->all[0] ? 0 : 1;
    p->reply[i] = reply;
    p->n_starts[i]++;
}

static void pair_stop(void *ctx, struct session_reply *reply)
{
    struct pair *p = *(struct pair **)ctx;
    size_t i = p->reply[0] == reply ? 0 : 1;
    assert_ptr_equal(p->reply[i], reply);
    p->reply[i] = NULL;
    p->n_stops[i]++;
}

static void pair_room(void *ctx, struct session_reply *reply)
{
}

static struct pair *the_pair;

static struct pair *pair_new(bool workers)
{
    struct pair *p = the_pair = mem_zalloc(sizeof *p);
    sched_init(&p->sched, 0, START_WALL);
    p->front = facade_new(mem_store_new(&p->sched));
    p->front->store.shared = true;
    for (size_t i = 0; i < PROCESSES; i++) {
        p->backend[i] = (struct session_backend){pair_start, pair_stop, pair_room, &the_pair};
        p->ways[i] = lossy_store_new(&p->front->store, i + 1);
        feeds_init(&p->feeds[i], p->ways[i]);
        p->instances[i] = instances_new(&p->sched, p->ways[i], INSTANCE_BEAT_MS);
        p->all[i] =
            sessions_new(&(struct sessions_setup){.sched = &p->sched,
                                                  .store = p->ways[i],
                                                  .feeds = &p->feeds[i],
                                                  .instances = p->instances[i],
                                                  .backend = workers ? NULL : &p->backend[i],
                                                  .lifetime_ms = DAY_MS,
                                                  .max_open = 100,
                                                  .max_bytes = 1024 * 1024});
    }
    pair_pass(p, 100);
    return p;
}

static void pair_free(struct pair *p)
{
    for (size_t i = 0; i < PROCESSES; i++) {
        p->stopped = false;
        sessions_stop(p->all[i], note_stopped, &p->stopped);
        pair_pass(p, SECOND_MS);
        assert_true(p->stopped);
        sessions_free(p->all[i]);
        instances_free(p->instances[i]);
        feeds_deinit(&p->feeds[i]);
        lossy_store_drop(p->ways[i]);
    }
    store_free(&p->front->store);
    free(p);
}

static void answer(struct pair *p, size_t i, const char *text)
{
    struct session_reply *reply = p->reply[i];
    assert_non_null(reply);
    assert_int_equal(session_reply_event(reply, str_of_cstr(text), true, str_of_cstr(text)), 1);
}

static void assert_text(struct buf *b, const char *expected)
{
    buf_putc(b, '\0');
    assert_string_equal(b->p, expected);
    b->n--;
}

static void end(struct pair *p, size_t i)
{
    struct session_reply *reply = p->reply[i];
    p->reply[i] = NULL;
    session_reply_end(reply, END_COMPLETED, STR_NONE);
}

/* The client leaves in the middle of an answer: the other process asks for the rest of it, when
 * the first has been stopped, and the connection that was left is told. */
static void test_a_client_moves(void **state)
{
    struct pair *p = pair_new(false);
    struct visitor here, there;
    visitor_init(&here, &p->all[0], "k", SESSION_TIDEMARK, 7);
    visitor_init(&there, &p->all[1], "k", SESSION_TIDEMARK, 7);
    visitor_connect(&here);
    visitor_say(&here, 0, STR("ask"));
    pair_pass(p, 200);
    answer(p, 0, "a");
    pair_pass(p, 200);
    assert_text(&here.acks, "0 ");
    assert_text(&here.events, "1=a ");

    there.seen = 1;
    memcpy(there.mac, here.mac, sizeof there.mac);
    visitor_connect_at(&there, 1);
    visitor_say(&there, 0, STR("ask")); /* did it get there? */
    visitor_say(&there, 1, STR("more"));
    pair_pass(p, SECOND_MS);
    assert_int_equal(p->n_stops[0], 1);
    assert_null(p->reply[0]);
    assert_true(here.over);
    assert_int_equal(here.client.over, SESSION_REPLACED);
    assert_int_equal(p->n_starts[1], 1);
    assert_true(p->reply[1]->begun);
    assert_true(str_eq(p->reply[1]->last_id, STR("a")));
    assert_text(&there.acks, "0 1 ");

    answer(p, 1, "b");
    end(p, 1);
    pair_pass(p, 200);
    assert_true(str_eq(p->reply[1]->chunk, STR("more")));
    answer(p, 1, "c");
    end(p, 1);
    visitor_close(&there);
    pair_pass(p, 200);
    assert_text(&there.events, "2=b 3=c ");
    assert_true(there.over);
    assert_int_equal(there.client.over, SESSION_ENDED);
    assert_int_equal(p->n_starts[0], 1);
    visitor_deinit(&here);
    visitor_deinit(&there);
    pair_free(p);
}

/* The answers to its writes get lost: nobody is told that somebody else has the session. */
static void test_answers_get_lost(void **state)
{
    for (int fate = FATE_NOT_DONE; fate <= FATE_LATE; fate++) {
        struct pair *p = pair_new(false);
        struct visitor v;
        visitor_init(&v, &p->all[0], "k", SESSION_TIDEMARK, 7);
        visitor_connect(&v);
        pair_pass(p, 200);
        lossy_next(p->ways[0], (enum fate)fate, 3); /* the chunk */
        visitor_say(&v, 0, STR("ask"));
        pair_pass(p, 2 * SECOND_MS);
        assert_text(&v.acks, "0 ");
        lossy_next(p->ways[0], (enum fate)fate, 3); /* an event */
        answer(p, 0, "a");
        pair_pass(p, 2 * SECOND_MS);
        assert_text(&v.events, "1=a ");
        lossy_next(p->ways[0], (enum fate)fate, 3); /* the rest, with the document */
        answer(p, 0, "b");
        end(p, 0);
        pair_pass(p, 2 * SECOND_MS);
        assert_text(&v.events, "1=a 2=b ");
        assert_false(v.over);
        lossy_next(p->ways[0], (enum fate)fate, 3); /* the end */
        visitor_close(&v);
        pair_pass(p, 2 * SECOND_MS);
        assert_true(v.over);
        assert_int_equal(v.client.over, SESSION_ENDED);
        assert_int_equal(p->n_starts[0], 1);
        assert_int_equal(p->n_stops[0], 0);
        visitor_deinit(&v);
        pair_free(p);
    }
}

/* It comes back before the first process has let go of its copy. */
static void test_a_client_comes_back(void **state)
{
    struct pair *p = pair_new(false);
    struct visitor v;
    struct sessions *at = p->all[0];
    visitor_init(&v, &at, "k", SESSION_TIDEMARK, 7);
    for (uint32_t i = 0; i < 10; i++) {
        at = p->all[i % 2];
        visitor_connect(&v);
        visitor_say(&v, i, STR("ask"));
        pair_pass(p, SECOND_MS);
        answer(p, i % 2, "x");
        end(p, i % 2);
        pair_pass(p, 200);
        assert_false(v.over);
        visitor_disconnect(&v);
    }
    assert_text(&v.acks, "0 1 2 3 4 5 6 7 8 9 ");
    assert_text(&v.events, "1=x 2=x 3=x 4=x 5=x 6=x 7=x 8=x 9=x 10=x ");
    visitor_deinit(&v);
    pair_free(p);
}

static uint64_t n_in;

static void on_in_stat(struct store_stat *st, int err)
{
    assert_int_equal(err, 0);
    n_in = st->info.events;
}

/* They read `in` themselves: nothing is put there but what the client says. */
static void test_workers_find_nothing_new(void **state)
{
    struct pair *p = pair_new(true);
    struct visitor v;
    struct sessions *at = p->all[0];
    visitor_init(&v, &at, "k", SESSION_TIDEMARK, 7);
    for (uint32_t i = 0; i < 4; i++) {
        at = p->all[i % 2];
        visitor_connect(&v);
        visitor_say(&v, i, STR("ask"));
        pair_pass(p, SECOND_MS);
        visitor_disconnect(&v);
    }
    assert_text(&v.acks, "0 1 2 3 ");
    struct store_stat stat = {.name = STR("sessions/k/in"), .done = on_in_stat};
    store_stat(&p->front->store, &stat);
    pair_pass(p, 100);
    assert_int_equal(n_in, 4);
    visitor_deinit(&v);
    pair_free(p);
}

static void test_documents(void **state)
{
    struct session_doc d = {.service = SESSION_TIDEMARK, .answered = 3}, read;
    struct buf text = {0};
    session_doc_put(&text, &d);
    assert_int_equal(text.p[0], 1); /* as ever */
    assert_int_equal(session_doc_read(buf_str(&text), &read), 0);
    assert_int_equal(read.owner, 0);
    d.owner = UINT64_MAX;
    text.n = 0;
    session_doc_put(&text, &d);
    assert_int_equal(text.p[0], 2);
    assert_int_equal(session_doc_read(buf_str(&text), &read), 0);
    assert_true(read.owner == UINT64_MAX && read.answered == 3);
    text.p[0] = 1;
    assert_int_equal(session_doc_read(buf_str(&text), &read), ERR_CORRUPT);
    text.p[0] = 3;
    assert_int_equal(session_doc_read(buf_str(&text), &read), ERR_CORRUPT);
    buf_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_client_moves),
        cmocka_unit_test(test_answers_get_lost),
        cmocka_unit_test(test_a_client_comes_back),
        cmocka_unit_test(test_workers_find_nothing_new),
        cmocka_unit_test(test_documents),
        cmocka_unit_test_teardown(test_sessions_move, seeds_teardown),
    };
    return cmocka_run_group_tests_name("unit/session_shared", tests, NULL, NULL);
}
