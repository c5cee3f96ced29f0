// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "net/loop.h"

#include <sys/timerfd.h>
#include <unistd.h>

#define SLEEP_MS 60
#define DELAY_MS 30

struct nap {
    struct loop loop;
    struct timer timer;
    uv_poll_t event; /* stands for whatever wakes the loop */
    uint64_t started_ms, fired_ms;
};

static void on_fire(struct timer *t)
{
    struct nap *n = container_of(t, struct nap, timer);
    n->fired_ms = clock_mono_ms();
    uv_close((uv_handle_t *)&n->event, NULL);
}

static void on_event(uv_poll_t *e, int status, int events)
{
    struct nap *n = e->data;
    n->started_ms = clock_mono_ms();
    sched_start(&n->loop.sched, &n->timer, DELAY_MS);
    uv_poll_start(e, UV_PRIORITIZED, on_event); /* no more of it, but the loop stays alive */
}

static int readable_after(long ms)
{
    struct itimerspec when = {.it_value = {.tv_nsec = ms * 1000000}};
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    assert_int_equal(timerfd_settime(fd, 0, &when, NULL), 0);
    return fd;
}

/* The schedule's time is that of the last turn, before the sleep. A timer that is started by what
 * ends the sleep has all of its time before it. */
static void test_a_sleep_is_not_counted_into_a_delay(void **state)
{
    struct nap n = {0};
    assert_int_equal(loop_init(&n.loop), 0);
    timer_init(&n.timer, on_fire);
    int fd = readable_after(SLEEP_MS);
    uv_poll_init(&n.loop.uv, &n.event, fd);
    n.event.data = &n;
    uv_poll_start(&n.event, UV_READABLE, on_event);
    loop_run(&n.loop);
    loop_deinit(&n.loop);
    close(fd);
    assert_true(n.fired_ms > 0);
    /* libuv's clock may be a millisecond behind ours. */
    assert_true(n.fired_ms - n.started_ms + 1 >= DELAY_MS);
}

/* A chain of tasks, each of which takes half of a turn, and a descriptor that is always readable:
 * they take turns. What is left keeps the loop alive to its end. */
#define LINKS 20

struct chain {
    struct loop loop;
    struct task task;
    uv_poll_t event;
    unsigned tasks, events, events_between; /* between: before the last task */
};

static void on_task(struct task *t)
{
    struct chain *c = container_of(t, struct chain, task);
    uint64_t start_ns = clock_mono_ns();
    sched_work(&c->loop.sched, "link");
    while (clock_mono_ns() - start_ns < SCHED_TASKS_US * 500ull)
        ;
    c->events_between = c->events;
    if (++c->tasks < LINKS)
        sched_post(&c->loop.sched, &c->task);
}

static void on_always(uv_poll_t *e, int status, int events)
{
    struct chain *c = e->data;
    if (++c->events == 2)
        uv_close((uv_handle_t *)e, NULL); /* the chain is all that is left */
}

static void test_io_between_the_tasks_of_a_chain(void **state)
{
    struct chain c = {0};
    int fds[2];
    assert_int_equal(loop_init(&c.loop), 0);
    task_init(&c.task, on_task);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    uv_poll_init(&c.loop.uv, &c.event, fds[0]);
    c.event.data = &c;
    uv_poll_start(&c.event, UV_READABLE, on_always);
    sched_post(&c.loop.sched, &c.task);
    loop_run(&c.loop);
    assert_int_equal(c.tasks, LINKS);
    assert_int_equal(c.events_between, 2);
    loop_deinit(&c.loop);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sleep_is_not_counted_into_a_delay),
        cmocka_unit_test(test_io_between_the_tasks_of_a_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
