// SPDX-License-Identifier: Apache-2.0
/* sse_retry.h -- how soon a browser's EventSource asks again when an answer has ended.
 *
 * Left to itself it waits for some seconds, in which a follower is blind, though every answer ends
 * after a while (sse-lifetime). It is a line of the first event's block and no block of its own,
 * which some parsers take for an event without data. */
#ifndef HTTP_SSE_RETRY_H
#define HTTP_SSE_RETRY_H

#include "base/buf.h"

#include <stdint.h>

/* ms: 0 leaves it to the client. */
static inline void sse_retry_put(struct buf *out, uint64_t ms)
{
    if (ms == 0)
        return;
    buf_put(out, STR("retry: "));
    buf_put_u64(out, ms);
    buf_putc(out, '\n');
}

#endif
