// SPDX-License-Identifier: Apache-2.0
#include "client/backoff.h"

uint64_t backoff_next(struct backoff *b, uint64_t least_ms, uint64_t random)
{
    if (b->bound_ms == 0)
        b->bound_ms = b->first_ms;
    uint64_t wait = random % ((uint64_t)b->bound_ms + 1);
    b->bound_ms = b->bound_ms > b->max_ms / 2 ? b->max_ms : b->bound_ms * 2;
    /* All who were told the same moment would come at the same moment: the draw is added. */
    return least_ms + wait;
}

void backoff_reset(struct backoff *b)
{
    b->bound_ms = 0;
}
