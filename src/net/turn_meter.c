// SPDX-License-Identifier: Apache-2.0
#include "net/turn_meter.h"

static uint64_t turn_meter_look(struct turn_meter *m)
{
    uint64_t before_ns = m->looked_ns;
    m->looked_ns = m->thread_ns();
    m->unlooked_ns = 0;
    m->turns = 0;
    return m->looked_ns - before_ns;
}

void turn_meter_start(struct turn_meter *m, uint64_t (*thread_ns)(void))
{
    *m = (struct turn_meter){.thread_ns = thread_ns};
    turn_meter_look(m);
}

uint64_t turn_meter_take(struct turn_meter *m, uint64_t took_ns)
{
    m->unlooked_ns += took_ns;
    if (m->unlooked_ns < TURN_METER_NS && ++m->turns < TURN_METER_TURNS)
        return took_ns;
    uint64_t thread_ns = turn_meter_look(m);
    return thread_ns < took_ns ? thread_ns : took_ns;
}
