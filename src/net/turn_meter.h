// SPDX-License-Identifier: Apache-2.0
/* turn_meter.h -- what a turn of the loop took of its thread's time.
 *
 * By the clock a turn takes at least what the thread had of it, and more when the thread had to
 * leave the processor to others. The thread's own time is a system call away, so it is asked for
 * only when turns have taken a millisecond together, and after some turns in any case. A turn then
 * counts with what the thread had since the last look: its own, and less than a millisecond of
 * those before it. */
#ifndef NET_TURN_METER_H
#define NET_TURN_METER_H

#include <stdint.h>

#define TURN_METER_NS    1000000
#define TURN_METER_TURNS 16

struct turn_meter {
    uint64_t (*thread_ns)(void);
    uint64_t looked_ns;   /* the thread's time at the last look */
    uint64_t unlooked_ns; /* that turns since then took by the clock */
    uint32_t turns;       /* so many */
};

/* Before the first turn: what the thread did until now belongs to none. */
void turn_meter_start(struct turn_meter *m, uint64_t (*thread_ns)(void));

/* A turn has ended that took so much by the clock. Returns what the thread had of it. */
uint64_t turn_meter_take(struct turn_meter *m, uint64_t took_ns);

#endif
