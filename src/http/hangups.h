// SPDX-License-Identifier: Apache-2.0
/* hangups.h -- connections that have closed lately, for whoever wants to know whether an answer
 * that was sent has been read: a client that has it keeps its connection for the next request.
 *
 * A connection is named by its address, which another one may have later. What is asked for is the
 * first that closed there behind a time at which it was open, and that is the one that was meant.
 * Loop thread only. */
#ifndef HTTP_HANGUPS_H
#define HTTP_HANGUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HANGUPS_MAX 512 /* older ones are forgotten */
/* So soon behind an answer it says something of it. Clients keep idle connections for longer. */
#define HANGUP_MS   3000

struct hangup {
    const void *connection;
    uint64_t at_ms;
};

/* Zero-initialised: none. */
struct hangups {
    struct hangup last[HANGUPS_MAX];
    size_t next;
};

void hangups_note(struct hangups *h, const void *connection, uint64_t now_ms);

/* Did it close right behind this time, at which it was open? */
bool hangups_has(const struct hangups *h, const void *connection, uint64_t since_ms);

#endif
