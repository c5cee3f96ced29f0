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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sleep_is_not_counted_into_a_delay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
