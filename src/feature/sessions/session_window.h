// SPDX-License-Identifier: Apache-2.0
/* session_window.h -- puts what is numbered in order: holds what came too early.
 *
 * Zero-initialised is empty, and expects number 0. Items are the caller's. */
#ifndef FEATURE_SESSIONS_SESSION_WINDOW_H
#define FEATURE_SESSIONS_SESSION_WINDOW_H

#include <stdint.h>

#define SESSION_WINDOW_AHEAD 16 /* numbers beyond the one that is next */

struct session_window {
    uint64_t next;
    void *held[SESSION_WINDOW_AHEAD + 1]; /* number i at i modulo their count; NULL: not there */
};

enum session_window_place {
    WINDOW_STALE, /* was taken before */
    WINDOW_AHEAD, /* too far ahead */
    WINDOW_TAKEN,
};

/* Where a number would go. */
enum session_window_place session_window_place(const struct session_window *w, uint64_t number);

/* Of a number that has a place. item: NULL takes out what is there. Returns the item that was held
 * under that number, or NULL. */
void *session_window_put(struct session_window *w, uint64_t number, void *item);

/* The item that is next, or NULL while it has not come. */
void *session_window_peek(const struct session_window *w);
void session_window_advance(struct session_window *w); /* the item that is next is taken out */

/* Any item, taken out. NULL: there is none. */
void *session_window_take(struct session_window *w);

#endif
