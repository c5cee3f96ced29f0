// SPDX-License-Identifier: Apache-2.0
/* seeds.h -- random tests that can be repeated.
 *
 * A body draws all it does from the generator it is given, so that one number tells the whole run.
 * A run that fails, dies or hangs prints that number:
 *
 *     TIDEMARK_SEED=17 build/asan/tests/model/test_store        that run alone
 *     TIDEMARK_SEEDS=100000 build/asan/tests/model/test_store   a long hunt: 1 to 100000
 *
 * A test that calls seeds_run has seeds_teardown as its teardown. */
#ifndef MODEL_SEEDS_H
#define MODEL_SEEDS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEED_PATIENCE_S 60 /* a run that takes longer hangs */

struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *r)
{
    uint64_t x = r->state += 0x9e3779b97f4a7c15u; /* splitmix64: every seed is a good one */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* 0 to n - 1 */
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
    return rng_next(r) % n;
}

static inline uint64_t rng_between(struct rng *r, uint64_t low, uint64_t high)
{
    return low + rng_below(r, high - low + 1);
}

static inline bool rng_one_in(struct rng *r, uint64_t n)
{
    return rng_below(r, n) == 0;
}

static inline bool rng_percent(struct rng *r, uint64_t percent)
{
    return rng_below(r, 100) < percent;
}

/* The seed that runs; 0: none does. */
static volatile uint64_t seeds_now;

static inline void seeds_print(void)
{
    char text[64];
    int n = snprintf(text, sizeof text, "\nrepeat with TIDEMARK_SEED=%llu\n",
                     (unsigned long long)seeds_now);
    if (seeds_now != 0 && write(STDERR_FILENO, text, (size_t)n) < 0)
        _exit(1);
}

static inline void seeds_died(int signal_number)
{
    seeds_print();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static inline uint64_t seeds_env(const char *name)
{
    const char *text = getenv(name);
    return text == NULL ? 0 : strtoull(text, NULL, 10);
}

static inline void seeds_run_one(uint64_t seed, void (*body)(struct rng *r))
{
    struct rng r = {seed};
    seeds_now = seed;
    alarm(SEED_PATIENCE_S);
    body(&r);
    alarm(0);
    seeds_now = 0;
}

static inline void seeds_run(uint64_t count, void (*body)(struct rng *r))
{
    uint64_t one = seeds_env("TIDEMARK_SEED"), many = seeds_env("TIDEMARK_SEEDS");
    signal(SIGABRT, seeds_died);
    signal(SIGALRM, seeds_died);
    if (one != 0) {
        seeds_run_one(one, body);
        return;
    }
    for (uint64_t seed = 1; seed <= (many != 0 ? many : count); seed++)
        seeds_run_one(seed, body);
}

static inline int seeds_teardown(void **state)
{
    (void)state;
    alarm(0);
    seeds_print();
    seeds_now = 0;
    return 0;
}

#endif
