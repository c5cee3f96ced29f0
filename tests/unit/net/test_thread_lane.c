// SPDX-License-Identifier: Apache-2.0
#include "net/thread_lane.h"
#include "base/buf.h"
#include "net/loop.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

struct world {
    struct loop loop;
    struct lane *lane;
    uv_thread_t loop_thread;
    struct buf ran, told; /* names, in order */
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_int_equal(loop_init(&w->loop), 0);
    w->lane = thread_lane_new(&w->loop, "a name that is longer than a thread may have");
    assert_non_null(w->lane);
    w->loop_thread = uv_thread_self();
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    lane_free(w->lane);
    loop_run(&w->loop);
    loop_deinit(&w->loop);
    buf_deinit(&w->ran);
    buf_deinit(&w->told);
    free(w);
    return 0;
}

struct chore {
    struct job job;
    struct world *world;
    char name;
    bool elsewhere;  /* out: run() was not on the loop's thread */
    bool blocked;    /* out: signals do not go to that thread */
    uv_sem_t *gate;  /* run() waits for it */
    uv_sem_t *begun; /* run() says that it runs */
    struct chore *next;
    struct task *then; /* done() posts it */
    bool frees_lane;
};

static void chore_run(struct job *j)
{
    struct chore *c = container_of(j, struct chore, job);
    uv_thread_t self = uv_thread_self();
    sigset_t mask;
    sigemptyset(&mask);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    c->blocked = sigismember(&mask, SIGTERM) == 1;
    c->elsewhere = !uv_thread_equal(&self, &c->world->loop_thread);
    if (c->begun != NULL)
        uv_sem_post(c->begun);
    if (c->gate != NULL)
        uv_sem_wait(c->gate);
    buf_putc(&c->world->ran, c->name); /* safe: one job at a time, and the test looks when idle */
}

static void chore_done(struct job *j)
{
    struct chore *c = container_of(j, struct chore, job);
    struct world *w = c->world;
    uv_thread_t self = uv_thread_self();
    assert_true(uv_thread_equal(&self, &w->loop_thread));
    buf_putc(&w->told, c->name);
    if (c->next != NULL)
        lane_submit(w->lane, &c->next->job);
    if (c->then != NULL)
        sched_post(&w->loop.sched, c->then);
    if (c->frees_lane) {
        lane_free(w->lane);
        w->lane = NULL;
    }
    memset(c, 0xee, sizeof *c); /* it is the owner's again */
}

static struct chore chore(struct world *w, char name)
{
    return (struct chore){.job = {.run = chore_run, .done = chore_done}, .world = w, .name = name};
}

static void assert_text(struct buf *b, const char *expected)
{
    buf_putc(b, '\0');
    assert_string_equal(b->p, expected);
    b->n = 0;
}

static void keep_and_tell(struct job *j)
{
    struct chore *c = container_of(j, struct chore, job);
    buf_putc(&c->world->told, c->name);
}

static void test_runs_elsewhere_and_tells_here(void **state)
{
    struct world *w = *state;
    struct chore c = chore(w, 'a');
    c.job.done = keep_and_tell;
    lane_submit(w->lane, &c.job);
    assert_int_equal(w->told.n, 0);
    loop_run(&w->loop); /* as long as the job is under way */
    assert_text(&w->ran, "a");
    assert_text(&w->told, "a");
    assert_true(c.elsewhere);
    assert_true(c.blocked);
}

static void test_keeps_nothing_alive_when_idle(void **state)
{
    struct world *w = *state;
    assert_int_equal(uv_loop_alive(&w->loop.uv), 0);
    struct chore c = chore(w, 'a');
    lane_submit(w->lane, &c.job);
    assert_int_not_equal(uv_loop_alive(&w->loop.uv), 0);
    loop_run(&w->loop);
    assert_int_equal(uv_loop_alive(&w->loop.uv), 0);
    assert_text(&w->told, "a");
}

static void test_order_is_kept(void **state)
{
    struct world *w = *state;
    struct chore c[26];
    uv_sem_t gate;
    uv_sem_init(&gate, 0);
    for (int i = 0; i < 26; i++) {
        c[i] = chore(w, (char)('a' + i));
        c[i].gate = i % 3 == 0 ? &gate : NULL;
        lane_submit(w->lane, &c[i].job);
    }
    for (int i = 0; i < 26; i += 3) { /* some rounds of the loop in between */
        uv_sem_post(&gate);
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
    }
    loop_run(&w->loop);
    uv_sem_destroy(&gate);
    assert_text(&w->ran, "abcdefghijklmnopqrstuvwxyz");
    assert_text(&w->told, "abcdefghijklmnopqrstuvwxyz");
}

static void test_submitting_from_done(void **state)
{
    struct world *w = *state;
    struct chore a = chore(w, 'a'), b = chore(w, 'b'), c = chore(w, 'c');
    a.next = &b;
    b.next = &c;
    lane_submit(w->lane, &a.job);
    loop_run(&w->loop);
    assert_text(&w->told, "abc");
}

static void test_freed_in_done(void **state)
{
    struct world *w = *state;
    struct chore a = chore(w, 'a'), b = chore(w, 'b');
    b.frees_lane = true;
    lane_submit(w->lane, &a.job);
    lane_submit(w->lane, &b.job);
    loop_run(&w->loop);
    assert_text(&w->told, "ab");
    assert_null(w->lane);
}

/* done() comes from the schedule: after tasks that were posted before the job had run. */
struct late {
    struct task task;
    struct world *world;
};

static void note_task(struct task *t)
{
    buf_putc(&container_of(t, struct late, task)->world->told, '.');
}

static void test_done_is_a_task_of_the_schedule(void **state)
{
    struct world *w = *state;
    struct chore c = chore(w, 'a');
    struct late late = {.world = w};
    task_init(&late.task, note_task);
    lane_submit(w->lane, &c.job);
    sched_post(&w->loop.sched, &late.task);
    loop_run(&w->loop);
    assert_text(&w->told, ".a");
}

/* However many have run meanwhile, others have their turn between them. */
static void test_done_is_told_one_by_one(void **state)
{
    struct world *w = *state;
    struct chore c[4];
    struct late late = {.world = w};
    uv_sem_t begun, gate;
    uv_sem_init(&begun, 0);
    uv_sem_init(&gate, 0);
    task_init(&late.task, note_task);
    for (int i = 0; i < 4; i++)
        c[i] = chore(w, (char)('a' + i));
    c[0].then = &late.task;
    c[3].begun = &begun;
    c[3].gate = &gate;
    for (int i = 0; i < 4; i++)
        lane_submit(w->lane, &c[i].job);
    uv_sem_wait(&begun); /* the others have run */
    uv_sem_post(&gate);
    loop_run(&w->loop);
    uv_sem_destroy(&begun);
    uv_sem_destroy(&gate);
    assert_text(&w->told, "ab.cd");
}

static void test_many_lanes_at_once(void **state)
{
    struct world *w = *state;
    struct world others[4];
    struct chore c[4];
    for (int i = 0; i < 4; i++) {
        others[i] =
            (struct world){.lane = thread_lane_new(&w->loop, "t"), .loop_thread = w->loop_thread};
        c[i] = chore(&others[i], 'x');
        lane_submit(others[i].lane, &c[i].job);
    }
    loop_run(&w->loop);
    for (int i = 0; i < 4; i++) {
        assert_text(&others[i].told, "x");
        lane_free(others[i].lane);
        buf_deinit(&others[i].told);
        buf_deinit(&others[i].ran);
    }
}

/* ---- several threads ---- */

struct meeting {
    struct job job;
    uv_barrier_t *barrier;
    int *done;
};

/* Returns when all of them are here: with one thread that is never. */
static void meet(struct job *j)
{
    uv_barrier_wait(container_of(j, struct meeting, job)->barrier);
}

static void count_meeting(struct job *j)
{
    ++*container_of(j, struct meeting, job)->done;
}

static void test_pool_runs_jobs_at_once(void **state)
{
    struct world *w = *state;
    struct lane *pool = thread_lane_new_pool(&w->loop, "pool", 3);
    struct meeting m[9];
    uv_barrier_t barrier;
    int done = 0;
    assert_non_null(pool);
    uv_barrier_init(&barrier, 3);
    for (int i = 0; i < 9; i++) {
        m[i] = (struct meeting){{.run = meet, .done = count_meeting}, &barrier, &done};
        lane_submit(pool, &m[i].job);
    }
    loop_run(&w->loop);
    assert_int_equal(done, 9);
    lane_free(pool);
    uv_barrier_destroy(&barrier);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_runs_elsewhere_and_tells_here),
        TEST(test_keeps_nothing_alive_when_idle),
        TEST(test_order_is_kept),
        TEST(test_submitting_from_done),
        TEST(test_freed_in_done),
        TEST(test_done_is_a_task_of_the_schedule),
        TEST(test_done_is_told_one_by_one),
        TEST(test_many_lanes_at_once),
        cmocka_unit_test_setup_teardown(test_pool_runs_jobs_at_once, setup, teardown),
    };
    return cmocka_run_group_tests_name("thread_lane", tests, NULL, NULL);
}
