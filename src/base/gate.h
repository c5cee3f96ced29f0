// SPDX-License-Identifier: Apache-2.0
/* gate.h -- counts what is under way and, once it is shut, tells when nothing is left.
 *
 * The call comes from the schedule, never from within gate_shut or gate_leave, so that whoever
 * leaves last may still look at what the call is going to free. */
#ifndef BASE_GATE_H
#define BASE_GATE_H

#include "base/sched.h"

#include <stddef.h>

struct gate {
    struct sched *sched;
    struct task notify;
    size_t inside;
    void (*empty)(void *ctx); /* NULL: not shut */
    void *ctx;
    bool told; /* empty() was called */
};

void gate_init(struct gate *g, struct sched *sched);

/* Allowed when it is shut, too: what is being finished may begin something. */
void gate_enter(struct gate *g);
void gate_leave(struct gate *g);

/* empty(ctx) comes once, even if somebody enters and leaves later, and the gate may be freed in it.
 * Shut again: the last caller is told. */
void gate_shut(struct gate *g, void (*empty)(void *ctx), void *ctx);

static inline bool gate_is_shut(const struct gate *g)
{
    return g->empty != NULL;
}

#endif
