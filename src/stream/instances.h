// SPDX-License-Identifier: Apache-2.0
/* instances.h -- which processes share a store, and which of them have died.
 *
 * Each draws an id of its own and keeps the document `instances/ID`, which it writes anew every
 * beat, so that its version grows. All look at all of these documents once a beat. One whose
 * version was the same at INSTANCE_LOOKS looks more than the first is dead: looks that the store
 * did not answer do not count, nor does the time that a process itself was stopped or could not
 * write its own document. So nobody compares clocks, and a store that is away for a while, or full,
 * kills nobody.
 *
 * Dead means that nobody will answer for what it left behind. Should it only have been stopped for
 * so long, it goes on under its id when it finds its document gone; whatever was taken from it
 * meanwhile it finds out by the conditions of its own writes.
 *
 * Loop thread only. */
#ifndef STREAM_INSTANCES_H
#define STREAM_INSTANCES_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define INSTANCE_DOCUMENTS "instances/"
#define INSTANCE_BEAT_MS   5000
#define INSTANCE_LOOKS     6
#define INSTANCE_ID_TEXT   16 /* hexadecimal digits */

struct instances;
struct sched;
struct store;

/* Takes care of what the dead leave behind. Both are needed. */
struct instance_observer {
    /* Once a beat for each that is dead, until instances_remove. id is lent for the call. */
    void (*died)(struct instance_observer *h, struct str id);
    /* Once a beat, if the store has answered. */
    void (*beat)(struct instance_observer *h);
};

/* Says at once that this one is there. beat_ms: INSTANCE_BEAT_MS, but for tests. */
struct instances *instances_new(struct sched *sched, struct store *store, uint64_t beat_ms);

/* Our own id, never 0; and as text, which lives as long as the instances. */
uint64_t instances_id(const struct instances *in);
struct str instances_name(const struct instances *in);

bool instances_is_dead(const struct instances *in, uint64_t id);

void instances_set_observer(struct instances *in,
                            struct instance_observer *observer); /* NULL: none */

/* Nothing is left of a dead one: takes its document away. Should that fail, died() comes again. */
void instances_remove(struct instances *in, struct str id);

/* Takes our own document away, if the store lets us. stopped() comes from the schedule;
 * instances_free is due then. */
void instances_stop(struct instances *in, void (*stopped)(void *ctx), void *ctx);
void instances_free(struct instances *in); /* NULL is allowed */

#endif
