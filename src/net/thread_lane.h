// SPDX-License-Identifier: Apache-2.0
/* thread_lane.h -- a lane (base/lane.h) with a thread of its own.
 *
 * It keeps the loop alive while a job is under way, and not otherwise. Free it on the loop thread
 * when no job is under way, from a done() if one likes; the loop has to run once more after that.
 */
#ifndef NET_THREAD_LANE_H
#define NET_THREAD_LANE_H

#include "base/lane.h"

struct loop;

/* name: of the thread, for people; 15 bytes of it count. NULL: no thread could be had. */
struct lane *thread_lane_new(struct loop *loop, const char *name);

/* With so many threads (at most THREAD_LANE_MAX; fewer, if there are no more to be had), for jobs
 * that do not depend on one another: those under way at a time end in any order. */
#define THREAD_LANE_MAX 8
struct lane *thread_lane_new_pool(struct loop *loop, const char *name, int threads);

/* For work that nobody waits for: where processors are short, its thread leaves them to others. */
struct lane *thread_lane_new_background(struct loop *loop, const char *name);

#endif
