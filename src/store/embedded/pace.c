// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/pace.h"
#include "base/clock.h"

#include <stddef.h>

#define PAUSE_MAX_NS 10000000u /* 64 MiB in steps: less than three seconds of pauses */

uint64_t pace_begin(const struct pace *p)
{
    return p == NULL || p->pause == NULL ? 0 : clock_mono_ns();
}

void pace_rest(struct pace *p, uint64_t began_ns)
{
    if (p == NULL || p->pause == NULL || atomic_load(&p->hurry))
        return;
    uint64_t took = clock_mono_ns() - began_ns;
    p->pause(took < PAUSE_MAX_NS ? took : PAUSE_MAX_NS);
}
