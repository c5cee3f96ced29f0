// SPDX-License-Identifier: Apache-2.0
/* loop.h -- the libuv loop of one thread and the schedule it drives.
 *
 * Everything that belongs to a loop is touched by its thread only. */
#ifndef NET_LOOP_H
#define NET_LOOP_H

#include "base/sched.h"
#include "net/socket_set.h"
#include "net/turn_meter.h"

#include <uv.h>

#define LOOP_SCRATCH (64 * 1024)

/* Memory that was allocated and is to be used again: its first bytes, meanwhile. */
struct loop_spare {
    struct loop_spare *next;
};

struct loop {
    uv_loop_t uv;
    struct socket_set sockets; /* of connections */
    struct sched sched;        /* runs after each round of I/O and timers */
    uv_timer_t alarm;          /* set to the schedule's next timer */
    uv_prepare_t before_poll;
    uv_check_t after_poll;
    uv_idle_t
        busy; /* runs while the schedule has more to do: the loop lives on and does not sleep */
    uint64_t alarm_at_ms;
    /* Told after each turn, from waking up to the next poll: how long it took of the thread's time,
     * and what took the longest of it. May be NULL. */
    void (*turned)(void *ctx, uint64_t us, const char *work);
    void *turned_ctx;
    struct turn_meter meter;
    char *scratch; /* LOOP_SCRATCH bytes for reading; valid within one callback */
    struct loop_spare
        *spares; /* of conn.c: write queues of the usual size, for the next to write */
    uint32_t n_spares;
    uint64_t files_before; /* see loop_raise_files; 0: the limit is as it was */
};

/* 0 or a negative libuv code. */
int loop_init(struct loop *l);

/* Raises the limit of descriptors as far as the system allows, and returns it. Programs that the
 * process starts get back what it was: those that use select() cannot have more than 1,024. */
uint64_t loop_raise_files(struct loop *l);

/* Runs until nothing is left that keeps the loop alive. */
void loop_run(struct loop *l);

/* Every handle on it must have been closed. */
void loop_deinit(struct loop *l);

#endif
