// SPDX-License-Identifier: Apache-2.0
/* pins.h -- where the readers of a bounded stream are, for the writer that must not outrun them.
 *
 * A stream that keeps a bounded part of itself is trimmed when it is appended to. A writer that has
 * something to hold back, its source, keeps the pins of the stream: one for each subscriber in this
 * process. Before it appends it asks where the last of them is, and if that would be trimmed it
 * waits for moved(). A reader that makes it wait for too long is cut off, and comes back as one
 * that resumes.
 *
 * Loop thread only. */
#ifndef STREAM_PINS_H
#define STREAM_PINS_H

#include "base/list.h"
#include "base/map.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* A place in a stream: a position, and the ordinal of the event there or of an earlier one. */
struct pin_position {
    uint64_t pos, event;
};

struct pins;

struct pin {
    struct link link;
    struct pins *pins; /* NULL: nobody waits for it */
    struct pin_position at;
    uint64_t since_ms;          /* when it was added */
    void (*cut)(struct pin *p); /* ends the reader, and with it the pin. NULL: it never lags */
};

struct pins {
    struct link all;
    struct map *by_name; /* in which they are found; NULL: not yet */
    struct str name;
    bool waiting; /* moved() is wanted */
    void (*moved)(struct pins *p);
};

void pins_init(struct pins *p, void (*moved)(struct pins *p));

/* From now on subscribers of the stream are pinned. The name is kept by reference. */
void pins_publish(struct pins *p, struct map *by_name, struct str name);

/* Those that are left are nobody's. */
void pins_deinit(struct pins *p);

/* The least position and the least ordinal of all; of none, the largest there are. Who is at the
 * tail, as the writer knows it, has all events up to there. */
struct pin_position pins_least(const struct pins *p, struct pin_position tail);

/* Cuts off who is before this place and was added at `since_ms` or earlier. The number of them. */
uint64_t pins_cut(struct pins *p, struct pin_position need, struct pin_position tail,
                  uint64_t since_ms);

/* p may be NULL, and then does nothing until it is removed. */
void pin_add(struct pin *pin, struct pins *p, struct pin_position at, uint64_t now_ms);
void pin_move(struct pin *pin, struct pin_position at);
void pin_remove(struct pin *pin); /* harmless when done twice */

#endif
