// SPDX-License-Identifier: Apache-2.0
/* redis_store.h -- the store that any number of processes share: streams and documents in Redis.
 *
 * Each operation is one script (redis/ *.lua; stream.lua says how streams rest there), so that it
 * happens whole or not at all; nothing is cached here. Wake-ups come by pub/sub; what has changed
 * is always asked for.
 *
 * A write whose connection broke is sent again under the same number until its time is over, and
 * Redis knows the numbers it has seen: so a success was done once. ERR_AWAY: it was not done, or
 * nobody can say in time whether it was. What a success is worth when Redis itself fails is up to
 * its settings (appendfsync, replicas, and `wait=`); docs/redis.md says what. Events that such a
 * failure took are never silently replaced by others: their offsets become gaps. */
#ifndef STORE_REDIS_REDIS_STORE_H
#define STORE_REDIS_REDIS_STORE_H

#include "store/redis/client/redis.h"
#include "store/store.h"

struct loop;

#define REDIS_TIMEOUT_MS 5000

struct redis_store_setup {
    struct loop *loop;
    const struct redis_url *url; /* kept. `prefix=`: of all keys; `wait=`: replicas that must have
                                    a write before it is answered */
    size_t pending_max;          /* bytes of operations that wait for Redis; beyond: ERR_BUSY */
    struct retain retain;        /* for streams that have no bounds of their own */
    /* Whether Redis answers; why: for operators. May be NULL. */
    void (*changed)(void *ctx, bool up, struct str why);
    void *ctx;
    /* For tests, NULL otherwise: a schedule that is not the loop's. Its wall clock is then the time
     * of everything, instead of Redis's, and nothing is left to Redis to expire. */
    struct sched *sched;
};

/* `prefix=` is at most 64 letters, digits and `._-:`, `wait=` 0 to 16: 0, or ERR_SYNTAX with a
 * sentence. */
int redis_store_check(const struct redis_url *url, char *why, size_t size);

/* Connects by itself; until then operations wait, or are answered ERR_AWAY. */
struct store *redis_store_new(const struct redis_store_setup *setup);

#endif
