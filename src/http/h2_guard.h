// SPDX-License-Identifier: Apache-2.0
/* h2_guard.h -- how much nonsense an HTTP/2 peer may talk.
 *
 * Frames that cost us work and bring nobody forward are paid for from a bucket: resets in either
 * direction, pings, settings, priorities, empty DATA, window updates, frames of unknown kinds, data
 * for streams that are closed. It refills with time, and with DATA that we send, since a reader
 * answers that with window updates and pings of its own. Who empties it is sent away.
 *
 * nghttp2 has limits of its own for some of these, ten times as patient or none, and does not tell
 * of frames that it skips. So frames are counted here, by their heads, before nghttp2 sees them. */
#ifndef HTTP_H2_GUARD_H
#define HTTP_H2_GUARD_H

#include "base/str.h"

#include <stdint.h>

#define H2_GUARD_BURST      500
#define H2_GUARD_PER_SECOND 100

/* What things cost. */
#define H2_COST_FRAME       1
#define H2_COST_RESET       2                           /* the work for a request, in vain */
#define H2_COST_SETTINGS    5                           /* they touch every stream */
#define H2_COST_BOMB        100                         /* a header list that had to be cut off */
#define H2_COST_STRAY(n)    (1 + (int32_t)((n) / 1024)) /* bytes for a stream that is closed */

/* A window update each for stream and connection, and a ping. */
#define H2_GAIN_DATA        3

struct h2_guard {
    int32_t left;
    uint64_t at_ms; /* refilled up to here */
};

void h2_guard_init(struct h2_guard *g, uint64_t now_ms);

/* False: it is empty. */
bool h2_guard_pay(struct h2_guard *g, uint64_t now_ms, int32_t cost);

void h2_guard_gain(struct h2_guard *g, int32_t gain);

/* A frame's head:  length 24 bits | type 8 | flags 8 | reserved 1, stream 31 */
#define H2_FRAME_HEAD 9u
struct h2_frame {
    uint32_t length;
    uint8_t type, flags;
    int32_t stream; /* 0: the connection */
};

/* Finds the frames in a connection's bytes, however they are cut up. */
struct h2_scan {
    uint32_t skip; /* bytes that belong to the last frame; the preface, to begin with */
    uint8_t have;
    uint8_t head[H2_FRAME_HEAD];
};

/* Moves *bytes behind the next frame's head; false: no more of them. */
bool h2_scan_next(struct h2_scan *scan, struct str *bytes, struct h2_frame *frame);

/* What a frame costs by its head alone. closed: its stream was open once. */
int32_t h2_frame_cost(const struct h2_frame *frame, bool closed);

#endif
