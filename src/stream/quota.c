// SPDX-License-Identifier: Apache-2.0
#include "stream/quota.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/units.h"

#include <stdlib.h>

#define COST  MINUTE_MS
#define LOOKS 4 /* at old buckets for each new one: more than one, so that they get fewer */

struct quota_bucket {
    struct link link;
    struct quota_level level;
    size_t n;
    char key[];
};

static uint64_t capacity(const struct quota *q)
{
    return q->per_minute * COST;
}

void quota_init(struct quota *q, uint64_t per_minute, size_t callers_max)
{
    must(per_minute <= QUOTA_PER_MINUTE_MAX);
    *q = (struct quota){.per_minute = per_minute,
                        .callers_max = callers_max > 0 ? callers_max : QUOTA_CALLERS_MAX};
    q->crowd.units = capacity(q);
    map_init(&q->by_key);
    list_init(&q->buckets);
}

static void quota_forget(struct quota *q, struct quota_bucket *b)
{
    map_remove(&q->by_key, str_of(b->key, b->n));
    list_remove(&b->link);
    free(b);
}

void quota_deinit(struct quota *q)
{
    list_each_safe (l, &q->buckets)
        quota_forget(q, list_item(l, struct quota_bucket, link));
    map_deinit(&q->by_key);
}

/* ---- levels ---- */

/* A minute fills any bucket, and is not too long to multiply. */
static void refill(const struct quota *q, struct quota_level *l, uint64_t now_ms)
{
    uint64_t passed_ms = now_ms > l->at_ms ? now_ms - l->at_ms : 0;
    uint64_t room = capacity(q) - l->units;
    uint64_t gain = (passed_ms < MINUTE_MS ? passed_ms : MINUTE_MS) * q->per_minute;
    l->units += gain < room ? gain : room;
    l->at_ms += passed_ms;
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static bool quota_take_from(const struct quota *q, struct quota_level *l, uint64_t now_ms,
                            struct quota_answer *answer)
{
    refill(q, l, now_ms);
    bool granted = l->units >= COST;
    if (granted)
        l->units -= COST;
    else
        answer->retry_after_s = divide_up(divide_up(COST - l->units, q->per_minute), SECOND_MS);
    answer->remaining = l->units / COST;
    return granted;
}

/* ---- callers ---- */

/* A few buckets in turn: those that are full go, the others come last again. */
static void forget_some(struct quota *q, uint64_t now_ms)
{
    for (int i = 0; i < LOOKS && !list_empty(&q->buckets); i++) {
        struct quota_bucket *b = list_item(q->buckets.next, struct quota_bucket, link);
        refill(q, &b->level, now_ms);
        if (b->level.units == capacity(q)) {
            quota_forget(q, b);
            continue;
        }
        list_remove(&b->link);
        list_push(&q->buckets, &b->link);
    }
}

static struct quota_level *level_of(struct quota *q, struct str key, uint64_t now_ms)
{
    struct quota_bucket *b = map_get(&q->by_key, key);
    if (b != NULL)
        return &b->level;
    forget_some(q, now_ms);
    if (q->by_key.n >= q->callers_max)
        return &q->crowd;
    b = mem_zalloc(sizeof *b + key.n);
    b->level = (struct quota_level){capacity(q), now_ms};
    b->n = key.n;
    if (key.n > 0)
        memcpy(b->key, key.p, key.n);
    map_put(&q->by_key, str_of(b->key, b->n), b);
    list_push(&q->buckets, &b->link);
    return &b->level;
}

bool quota_take(struct quota *q, struct str caller, uint64_t now_ms, struct quota_answer *answer)
{
    *answer = (struct quota_answer){0};
    if (q->per_minute == 0)
        return true;
    if (caller.n > QUOTA_KEY_MAX)
        caller.n = QUOTA_KEY_MAX;
    return quota_take_from(q, level_of(q, caller, now_ms), now_ms, answer);
}
