// SPDX-License-Identifier: Apache-2.0
/* clock.h -- the machine's clocks. Code under a schedule uses its now_ms and wall_ms instead. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_mono_ms(void);
uint64_t clock_mono_ns(void);
int64_t clock_wall_ms(void);
uint64_t clock_thread_ns(void); /* what this thread had of a processor */

#endif
