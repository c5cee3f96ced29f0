// SPDX-License-Identifier: Apache-2.0
/* simlane.h -- a lane (base/lane.h) without a thread, for tests under a schedule of their own.
 *
 * A job runs at once, within submit, or some turns later; done() comes some turns after that; both
 * in the order of submission. How many is drawn from the seed. A turn is one that advances the
 * schedule's time by SCHED_TICK_MS. */
#ifndef FAULT_SIMLANE_H
#define FAULT_SIMLANE_H

#include "base/lane.h"

#include <stddef.h>
#include <stdint.h>

struct sched;

/* Nothing waits longer than max_turns for the job before it; 0: a job runs at once, and done()
 * comes with the next tasks. */
struct lane *simlane_new(struct sched *s, uint64_t seed, unsigned max_turns);

/* While held, no job begins to run, and those that have run are not done. */
void simlane_hold(struct lane *l, bool held);

/* Jobs that have not been done. */
size_t simlane_pending(const struct lane *l);

#endif
