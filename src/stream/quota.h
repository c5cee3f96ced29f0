// SPDX-License-Identifier: Apache-2.0
/* quota.h -- so many requests per minute for each caller.
 *
 * A caller has a bucket that holds `per_minute` requests, full at first, and refilled evenly: after
 * a burst of all of them there is one more every 60 / per_minute seconds. A request that was
 * refused costs nothing.
 *
 * Callers are known by a key of any bytes. A bucket that has filled up again says no more than none
 * would, and its caller is forgotten. At most callers_max are kept: with more than that at once,
 * new ones share one bucket, so that keys made up by the thousand get nothing more than one
 * caller's quota and take nobody else's bucket away.
 *
 * Loop thread only; the caller says what time it is, by a clock that does not go back. */
#ifndef STREAM_QUOTA_H
#define STREAM_QUOTA_H

#include "base/list.h"
#include "base/map.h"
#include "base/str.h"

#include <stdint.h>

#define QUOTA_KEY_MAX        255 /* bytes; of a longer key, those at its start count */
#define QUOTA_CALLERS_MAX    10000
#define QUOTA_PER_MINUTE_MAX 1000000000

/* What was left at some time. A request costs a minute's milliseconds, and each millisecond gives
 * per_minute, so that nothing is ever rounded. */
struct quota_level {
    uint64_t units, at_ms;
};

struct quota {
    uint64_t per_minute; /* 0: no limit */
    size_t callers_max;
    struct map by_key;
    struct link buckets;      /* in the order in which they are looked at, to forget full ones */
    struct quota_level crowd; /* of those for whom there is no room */
};

/* per_minute at most QUOTA_PER_MINUTE_MAX; callers_max 0: QUOTA_CALLERS_MAX. */
void quota_init(struct quota *q, uint64_t per_minute, size_t callers_max);
void quota_deinit(struct quota *q);

struct quota_answer {
    uint64_t remaining;     /* requests that would be let through now, after this one */
    uint64_t retry_after_s; /* when refused: whole seconds until one would be, at least 1 */
};

/* May this caller's request go on? *answer is set either way; without a limit, to zeros. */
bool quota_take(struct quota *q, struct str caller, uint64_t now_ms, struct quota_answer *answer);

#endif
