// SPDX-License-Identifier: Apache-2.0
/* heartbeat.h -- the comment that shows a reader of server-sent events that the answer is alive,
 * sent only when nothing else was for a while.
 *
 * It is one line without a blank line behind it. Once an `id:` was seen, openai-python takes a
 * blank line behind a comment for the end of an event without data, and fails; openai-go before
 * 3.43 always does. As a line it belongs to the block of the next event, where all parsers skip it.
 */
#ifndef HTTP_HEARTBEAT_H
#define HTTP_HEARTBEAT_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define HEARTBEAT_TEXT ": heartbeat\n"
#define HEARTBEAT      STR(HEARTBEAT_TEXT)

struct heartbeat {
    uint32_t since_ms;      /* when something was sent, or should have been; wraps around */
    uint32_t every_ms : 31; /* 0: none */
    bool due : 1;
};

/* Something was sent. */
static inline void heartbeat_sent(struct heartbeat *h, uint64_t now_ms)
{
    h->since_ms = (uint32_t)now_ms;
    h->due = false;
}

/* How long until heartbeat_look is of use; with every_ms > 0. */
static inline uint64_t heartbeat_wait_ms(const struct heartbeat *h, uint64_t now_ms)
{
    uint32_t quiet_ms = (uint32_t)now_ms - h->since_ms;
    return quiet_ms < h->every_ms ? h->every_ms - quiet_ms : 0;
}

/* Sets `due` if nothing was sent for every_ms. A peer that takes nothing is not counted twice. */
static inline void heartbeat_look(struct heartbeat *h, uint64_t now_ms)
{
    if (h->every_ms == 0 || (uint32_t)now_ms - h->since_ms < h->every_ms)
        return;
    h->since_ms = (uint32_t)now_ms;
    h->due = true;
}

#endif
