// SPDX-License-Identifier: Apache-2.0
/* backoff.h -- how long to wait before trying again.
 *
 * The bound doubles with each failure up to a cap, and the wait is drawn evenly from below the
 * bound, so that many clients that lost the same server do not come back at the same moment. */
#ifndef CLIENT_BACKOFF_H
#define CLIENT_BACKOFF_H

#include <stdint.h>

struct backoff {
    uint32_t first_ms, max_ms;
    uint32_t bound_ms; /* of the next wait; 0: none has failed yet */
};

/* The next wait. least_ms: what the server asked for (Retry-After), 0 if nothing; it may exceed the
 * cap. random: any 64 random bits. */
uint64_t backoff_next(struct backoff *b, uint64_t least_ms, uint64_t random);

/* It went well: start over with the next failure. */
void backoff_reset(struct backoff *b);

#endif
