// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <time.h>

static uint64_t clock_ns_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_mono_ns(void)
{
    return clock_ns_of(CLOCK_MONOTONIC);
}

uint64_t clock_thread_ns(void)
{
    return clock_ns_of(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t clock_mono_ms(void)
{
    return clock_mono_ns() / 1000000;
}

int64_t clock_wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
