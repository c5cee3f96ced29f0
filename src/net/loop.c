// SPDX-License-Identifier: Apache-2.0
#include "net/loop.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/must.h"

#include <stdlib.h>
#include <sys/resource.h>

static void loop_arm(struct loop *l)
{
    uint64_t wait_ms = sched_wait_ms(&l->sched), now_ms = uv_now(&l->uv);
    if (wait_ms == UINT64_MAX)
        return; /* an alarm that still runs wakes the loop once for nothing */
    uint64_t at_ms = l->sched.now_ms + wait_ms;
    if (at_ms == l->alarm_at_ms && uv_is_active((uv_handle_t *)&l->alarm))
        return;
    l->alarm_at_ms = at_ms;
    uv_timer_start(&l->alarm, l->alarm.timer_cb, at_ms > now_ms ? at_ms - now_ms : 0, 0);
}

static void loop_on_busy(uv_idle_t *idle)
{
    (void)idle; /* loop_on_after_poll goes on, when I/O had its turn */
}

static void loop_turn(struct loop *l)
{
    uint64_t now_ns = sched_look(&l->sched);
    sched_turn(&l->sched, now_ns / 1000000, clock_wall_ms());
    if (sched_is_busy(&l->sched))
        uv_idle_start(&l->busy, loop_on_busy);
    else
        uv_idle_stop(&l->busy);
}

static void loop_report(struct loop *l)
{
    uint64_t took_ns = sched_end_turn(&l->sched);
    if (l->turned != NULL)
        l->turned(l->turned_ctx, turn_meter_take(&l->meter, took_ns) / 1000, l->sched.longest);
}

/* libuv looks at the clock when it wakes, before it calls anybody. Without this a connection that
 * ended a long sleep would have had its time before it could say anything. */
static uint64_t loop_awake_ms(const struct sched *s)
{
    return uv_now(&container_of(s, const struct loop, sched)->uv);
}

static void loop_on_alarm(uv_timer_t *t)
{
    (void)t; /* the turn before the poll, or after it, sees what is due */
}

/* What came after the turn behind the last poll: from close callbacks, say. What that turn left
 * waits until I/O had its own. */
static void loop_on_before_poll(uv_prepare_t *p)
{
    struct loop *l = p->data;
    bool news = sched_is_busy(&l->sched) || sched_has_worked(&l->sched);
    if (news && !uv_is_active((uv_handle_t *)&l->busy))
        loop_turn(l);
    loop_arm(l);
    loop_report(l);
}

static void loop_on_after_poll(uv_check_t *c)
{
    struct loop *l = c->data;
    loop_turn(l);
}

int loop_init(struct loop *l)
{
    int err = uv_loop_init(&l->uv);
    if (err != 0)
        return err;
    err = socket_set_init(&l->sockets, &l->uv);
    if (err != 0) {
        must(uv_loop_close(&l->uv) == 0);
        return err;
    }
    sched_init(&l->sched, clock_mono_ms(), clock_wall_ms());
    l->sched.awake_ms = loop_awake_ms;
    l->sched.clock_ns = clock_mono_ns;
    l->alarm_at_ms = 0;
    l->spares = NULL;
    l->n_spares = 0;
    l->files_before = 0;
    uv_idle_init(&l->uv, &l->busy);
    l->turned = NULL;
    l->scratch = mem_alloc(LOOP_SCRATCH);
    uv_timer_init(&l->uv, &l->alarm);
    uv_prepare_init(&l->uv, &l->before_poll);
    uv_check_init(&l->uv, &l->after_poll);
    l->alarm.data = l->before_poll.data = l->after_poll.data = l;
    l->alarm.timer_cb = loop_on_alarm;
    turn_meter_start(&l->meter, clock_thread_ns); /* some turn it themselves, without loop_run */
    uv_prepare_start(&l->before_poll, loop_on_before_poll);
    uv_check_start(&l->after_poll, loop_on_after_poll);
    /* The schedule serves others; it keeps nothing alive by itself. */
    uv_unref((uv_handle_t *)&l->alarm);
    uv_unref((uv_handle_t *)&l->before_poll);
    uv_unref((uv_handle_t *)&l->after_poll);
    return 0;
}

uint64_t loop_raise_files(struct loop *l)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return UINT64_MAX;
    struct rlimit raised = {files.rlim_max, files.rlim_max};
    if (files.rlim_cur >= files.rlim_max || setrlimit(RLIMIT_NOFILE, &raised) != 0)
        return files.rlim_cur;
    l->files_before = files.rlim_cur;
    return raised.rlim_cur;
}

void loop_run(struct loop *l)
{
    turn_meter_start(&l->meter, clock_thread_ns);
    uv_run(&l->uv, UV_RUN_DEFAULT);
}

void loop_deinit(struct loop *l)
{
    socket_set_close(&l->sockets);
    uv_close((uv_handle_t *)&l->alarm, NULL);
    uv_close((uv_handle_t *)&l->busy, NULL);
    uv_close((uv_handle_t *)&l->before_poll, NULL);
    uv_close((uv_handle_t *)&l->after_poll, NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT);
    must(uv_loop_close(&l->uv) == 0);
    while (l->spares != NULL) {
        struct loop_spare *s = l->spares;
        l->spares = s->next;
        free(s);
    }
    free(l->scratch);
}
