// SPDX-License-Identifier: Apache-2.0
/* lane.h -- work that must not run on the loop thread, done one job after another.
 *
 * run() is called on the lane's own thread and touches only what the job owns; done() is called
 * later on the loop thread, from the schedule, in the order of submission (of a lane with several
 * threads, in that in which they ended). The caller embeds the
 * job and keeps it alive until done(). Implementations: net/thread_lane.c; tests have one that
 * decides itself when a job runs and when it is done. */
#ifndef BASE_LANE_H
#define BASE_LANE_H

#include "base/list.h"

struct job {
    struct link link; /* private */
    void (*run)(struct job *j);
    void (*done)(struct job *j);
};

struct lane {
    void (*submit)(struct lane *l, struct job *j);
    /* No job is under way. */
    void (*free)(struct lane *l);
};

static inline void lane_submit(struct lane *l, struct job *j)
{
    l->submit(l, j);
}

static inline void lane_free(struct lane *l)
{
    if (l != NULL)
        l->free(l);
}

#endif
