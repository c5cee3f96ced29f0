// SPDX-License-Identifier: Apache-2.0
/* pace.h -- lets who writes much, and is not waited for, leave the disk to those who are.
 *
 * A disk has its writers wait for one another: a sync of the journal takes many times as long while
 * a segment is written as fast as it goes, and longer still while all of it is synced at once. So a
 * segment is written in steps; each is brought to the disk before the next, and after it the disk
 * is left alone for about as long as the step took. */
#ifndef STORE_EMBEDDED_PACE_H
#define STORE_EMBEDDED_PACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define PACE_STEP_BYTES (256u * 1024)

/* Shared by the loop thread, which sets hurry, and the lane that writes. */
struct pace {
    void (*pause)(uint64_t ns); /* blocking; NULL: there are no pauses, and no clock is looked at */
    atomic_bool hurry;          /* somebody waits for the end: no pauses */
};

/* NULL is allowed in both: as without pauses. */
uint64_t pace_begin(const struct pace *p);

/* A step that began then has been done. Not for long, however slow it was. */
void pace_rest(struct pace *p, uint64_t began_ns);

#endif
