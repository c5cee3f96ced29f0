// SPDX-License-Identifier: Apache-2.0
#include "http/account.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/rand.h"

#include <stdlib.h>

#define LOOKS 4 /* at old accounts for each new one: more than one, so that they get fewer */

void accounts_init(struct accounts *as, size_t max)
{
    *as = (struct accounts){
        .max = max, .crowd = mem_zalloc(sizeof *as->crowd), .era = rand_u64() | 1};
    map_init(&as->by_key);
    list_init(&as->all);
}

static bool has_nothing(const struct account *a)
{
    for (int i = 0; i < ACCOUNT_COUNTS; i++)
        if (a->counts[i] > 0)
            return false;
    return true;
}

static void account_forget(struct accounts *as, struct account *a)
{
    map_remove(&as->by_key, str_of(a->key, a->n));
    list_remove(&a->link);
    free(a);
    as->era += 2; /* never 0 */
}

void accounts_deinit(struct accounts *as)
{
    list_each_safe (l, &as->all) {
        struct account *a = list_item(l, struct account, link);
        must(has_nothing(a));
        account_forget(as, a);
    }
    must(has_nothing(as->crowd));
    free(as->crowd);
    map_deinit(&as->by_key);
}

/* ---- clients ---- */

static bool is_idle(const struct account *a, uint64_t now_ms)
{
    return now_ms >= a->full_at_ms && now_ms >= a->blocked_until_ms && has_nothing(a);
}

/* A few in turn: idle ones go, the others come last again. Where there is no room for others, they
 * go as soon as they say no more than a new one would. */
static void forget_some(struct accounts *as, uint64_t now_ms)
{
    uint64_t for_ms = as->by_key.n < as->max ? ACCOUNT_IDLE_MS : 0;
    for (int i = 0; i < LOOKS && !list_empty(&as->all); i++) {
        struct account *a = list_item(as->all.next, struct account, link);
        if (is_idle(a, now_ms < for_ms ? 0 : now_ms - for_ms)) {
            account_forget(as, a);
            continue;
        }
        list_remove(&a->link);
        list_push(&as->all, &a->link);
    }
}

struct account *accounts_get(struct accounts *as, struct str key, uint64_t now_ms)
{
    if (key.n > ACCOUNT_KEY_MAX)
        key.n = ACCOUNT_KEY_MAX;
    struct account *a = map_get(&as->by_key, key);
    if (a != NULL)
        return a;
    forget_some(as, now_ms);
    if (as->by_key.n >= as->max)
        return as->crowd;
    a = mem_zalloc(sizeof *a + key.n);
    a->full_at_ms = now_ms;
    a->n = key.n;
    if (key.n > 0)
        memcpy(a->key, key.p, key.n);
    map_put(&as->by_key, str_of(a->key, a->n), a);
    list_push(&as->all, &a->link);
    return a;
}

/* ---- rates ---- */

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* What is still missing. */
static uint64_t debt_at(const struct level *l, const struct rate *rate, uint64_t now_ms)
{
    uint64_t passed_ms = now_ms > l->at_ms ? now_ms - l->at_ms : 0, paid;
    if (__builtin_mul_overflow(passed_ms, rate->n, &paid) || paid >= l->debt)
        return 0;
    return l->debt - paid;
}

static uint64_t wait_for(uint64_t debt, const struct rate *rate, uint64_t cost)
{
    uint64_t spare = rate->burst - (cost < rate->burst ? cost : rate->burst);
    uint64_t may_owe = spare * rate->period_ms;
    return debt > may_owe ? divide_up(debt - may_owe, rate->n) : 0;
}

uint64_t account_wait_ms(const struct account *a, enum account_rate what, const struct rate *rate,
                         uint64_t cost, uint64_t now_ms)
{
    return rate->n == 0 ? 0 : wait_for(debt_at(&a->levels[what], rate, now_ms), rate, cost);
}

bool account_take(struct account *a, enum account_rate what, const struct rate *rate, uint64_t cost,
                  uint64_t now_ms, uint64_t *wait_ms)
{
    if (rate->n == 0)
        return true;
    struct level *l = &a->levels[what];
    uint64_t debt = debt_at(l, rate, now_ms);
    *wait_ms = wait_for(debt, rate, cost);
    if (*wait_ms > 0)
        return false;
    *l = (struct level){debt + cost * rate->period_ms, now_ms};
    uint64_t full_at_ms = now_ms + divide_up(l->debt, rate->n);
    if (full_at_ms > a->full_at_ms)
        a->full_at_ms = full_at_ms;
    return true;
}

void account_give_back(struct account *a, enum account_rate what, const struct rate *rate,
                       uint64_t cost)
{
    struct level *l = &a->levels[what];
    uint64_t gain = cost * rate->period_ms;
    l->debt -= gain < l->debt ? gain : l->debt;
}

/* ---- counts ---- */

void account_disconnect(struct account *a, bool beyond)
{
    if (a != NULL)
        account_leave(a, beyond ? ACCOUNT_SURPLUS : ACCOUNT_CONNECTIONS);
}
