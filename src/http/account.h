// SPDX-License-Identifier: Apache-2.0
/* account.h -- what one client has used of what it may: rates, and things that it has at the
 * moment.
 *
 * A rate is a bucket that holds `burst`, full at first, and is refilled evenly. What is refused
 * costs nothing. What costs more than a bucket holds passes when it is full, and is paid off
 * afterwards: a large append is never refused for good. The limits come with each request, since
 * several tokens of one client may have different ones; what was used is shared.
 *
 * Clients are known by a key of any bytes. One that has nothing under way, and whose buckets have
 * been full for a while, is forgotten. At most `max` are kept: with more than that at once, new
 * ones share one account, so that clients made up by the thousand get nothing more than one
 * client's share, and take nobody else's away.
 *
 * Pure: whoever calls says what time it is, by a clock that does not go back. */
#ifndef HTTP_ACCOUNT_H
#define HTTP_ACCOUNT_H

#include "base/list.h"
#include "base/map.h"
#include "base/must.h"
#include "base/str.h"

#include <stdint.h>

struct counter;

/* n in period_ms, and `burst` of them at once. n == 0: no limit. */
struct rate {
    uint64_t n, period_ms, burst;
};

enum account_rate {
    ACCOUNT_REQUESTS,
    ACCOUNT_BYTES,
    ACCOUNT_CREATES,
    ACCOUNT_CONNECTS,
    ACCOUNT_FAILURES,
    ACCOUNT_RATES,
};

enum account_count {
    ACCOUNT_UNDER_WAY,   /* requests */
    ACCOUNT_LIVE,        /* readers that wait for what comes */
    ACCOUNT_GENERATIONS, /* answers of upstreams */
    ACCOUNT_CONNECTIONS,
    ACCOUNT_SURPLUS, /* connections beyond those that it may have, until they are told */
    ACCOUNT_COUNTS,
};

enum account_usage { ACCOUNT_USED_REQUESTS, ACCOUNT_USED_BYTES, ACCOUNT_USED_EVENTS, ACCOUNT_USES };

struct level {
    uint64_t debt, at_ms; /* what was missing in the bucket then, times the rate's period */
};

struct account {
    struct link link;
    struct level levels[ACCOUNT_RATES];
    uint32_t counts[ACCOUNT_COUNTS];
    uint64_t full_at_ms;                /* when all its buckets are full again */
    uint64_t blocked_until_ms;          /* it has failed too often */
    struct counter *used[ACCOUNT_USES]; /* its owner's; NULL: nothing is counted */
    size_t n;
    char key[];
};

struct accounts {
    struct map by_key;
    struct link all; /* in the order in which they are looked at, to forget idle ones */
    size_t max;
    struct account *crowd; /* of those for whom there is no room */
    uint64_t era;          /* another one, whenever some were forgotten */
};

#define ACCOUNT_KEY_MAX 512 /* bytes; of a longer key, those at its start count */
#define ACCOUNT_IDLE_MS 60000

void accounts_init(struct accounts *as, size_t max);
void accounts_deinit(struct accounts *as); /* nobody has anything under way */

/* Never NULL. Lent until the next call, or for as long as one of its counts is not 0, or as->era is
 * the same. */
struct account *accounts_get(struct accounts *as, struct str key, uint64_t now_ms);

/* How long until so much of a rate could be taken; 0: now. */
uint64_t account_wait_ms(const struct account *a, enum account_rate what, const struct rate *rate,
                         uint64_t cost, uint64_t now_ms);

/* Takes it. False: there is not enough left, and nothing was taken; *wait_ms until there would be.
 */
bool account_take(struct account *a, enum account_rate what, const struct rate *rate, uint64_t cost,
                  uint64_t now_ms, uint64_t *wait_ms);
/* It was not used after all. */
void account_give_back(struct account *a, enum account_rate what, const struct rate *rate,
                       uint64_t cost);

/* One more of something that it has, unless these are `max` already; 0: any number. */
static inline bool account_enter(struct account *a, enum account_count what, uint64_t max)
{
    if (max > 0 && a->counts[what] >= max)
        return false;
    a->counts[what]++;
    return true;
}

static inline void account_leave(struct account *a, enum account_count what)
{
    must(a->counts[what] > 0);
    a->counts[what]--;
}

/* A connection ends: one of those that it may have, or one beyond. NULL: it did not count. */
void account_disconnect(struct account *a, bool beyond);

#endif
