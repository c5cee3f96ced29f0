// SPDX-License-Identifier: Apache-2.0
/* Tokens that nobody has signed, 10,000 a second, each another one, as from many addresses at once:
 * what they take of a core, and what appends of somebody else take meanwhile. */
#include "bench_access.h"
#include "bench_steady.h"

#include <stdlib.h>

#define FORGED_PER_SECOND 10000
#define TRIES             3 /* of which the one in the middle counts */
#define HEADERS_MAX       1024

static const struct kind {
    const char *what, *cpu_key, *p99_key;
    size_t token; /* of struct access_plan */
} kinds[] = {
    {"HMACs", "forged-hmac", "forged-hmac-p99", offsetof(struct access_plan, forged_hmac)},
    {"Ed25519 signatures", "forged-ed", "forged-ed-p99", offsetof(struct access_plan, forged_ed)},
};

/* What was seen for a while. */
struct sight {
    struct spent spent;
    double p99_us, refused; /* refused: a second */
};

/* One while without and one with. */
struct pair {
    struct sight without, with;
};

static double times_of(const struct pair *p)
{
    return p->with.p99_us / p->without.p99_us;
}

/* Of a core, in percent. */
static double cost_of(const struct pair *p)
{
    const struct spent *with = &p->with.spent, *without = &p->without.spent;
    return 100 * (with->cpu_seconds / with->seconds - without->cpu_seconds / without->seconds);
}

static void look(struct bench *b, const struct steady_plan *good, const struct steady_plan *bad,
                 struct sight *out)
{
    struct steady load, flood = {0};
    struct steady_figures seen = {0}, refused = {0};
    if (bad != NULL)
        steady_begin(&flood, b, bad);
    steady_begin(&load, b, good);
    out->spent = spent_begin(b);
    swarm_run_for(&b->swarm, b->seconds / 2);
    spent_end(b, &out->spent);
    steady_end(&load, b, &seen);
    double flooded_s = out->spent.seconds + STEADY_SETTLE_S; /* while the load settled, too */
    steady_end(&flood, b, &refused);
    out->p99_us = (double)hist_at(&seen.latency, 0.99) / 1e3;
    out->refused = (double)refused.latency.n / flooded_s;
}

static int by_times(const void *a, const void *b)
{
    double x = times_of(a), y = times_of(b);
    return (x > y) - (x < y);
}

static int by_cost(const void *a, const void *b)
{
    double x = cost_of(a), y = cost_of(b);
    return (x > y) - (x < y);
}

static void report(struct bench *b, const struct kind *k, struct pair pairs[TRIES])
{
    const struct pair *middle = &pairs[TRIES / 2];
    qsort(pairs, TRIES, sizeof *pairs, by_cost);
    struct row *row = report_add(&b->report, k->cpu_key, cost_of(middle));
    row_spent(row, b, &middle->with.spent, middle->with.refused * middle->with.spent.seconds);
    row_note(row, "%.0f a second", middle->with.refused);
    qsort(pairs, TRIES, sizeof *pairs, by_times);
    row = report_add(&b->report, k->p99_key, times_of(middle));
    row_note(row, "%.0f us : %.0f us (%.2f to %.2f x)", middle->with.p99_us, middle->without.p99_us,
             times_of(&pairs[0]), times_of(&pairs[TRIES - 1]));
}

static void measure(struct bench *b, const struct access_plan *access, const struct kind *k)
{
    const struct buf *token = (const struct buf *)((const char *)access + k->token);
    char own[HEADERS_MAX], forged[HEADERS_MAX];
    snprintf(own, sizeof own, TYPE_BYTES "\r\nAuthorization: Bearer %s", ACCESS_CALLER);
    snprintf(forged, sizeof forged, TYPE_BYTES "\r\nAuthorization: Bearer %s", token->p);
    struct steady_plan good = {.per_second = STEADY_PER_SECOND, .type = own};
    struct steady_plan bad = {.per_second = FORGED_PER_SECOND,
                              .type = forged,
                              .varied = ACCESS_DIGITS,
                              .refused = true,
                              .last = true};
    struct pair pairs[TRIES] = {0};
    progress("%s: appends, without and with %d forged %s a second", k->cpu_key, FORGED_PER_SECOND,
             k->what);
    for (int i = 0; i < TRIES && !b->swarm.failed; i++) {
        look(b, &good, NULL, &pairs[i].without);
        look(b, &good, &bad, &pairs[i].with);
        progress("  %.1f %% of a core, p99 %.0f us : %.0f us, %.0f a second", cost_of(&pairs[i]),
                 pairs[i].with.p99_us, pairs[i].without.p99_us, pairs[i].with.refused);
    }
    if (!b->swarm.failed)
        report(b, k, pairs);
}

void phase_forged(struct bench *b)
{
    struct access_plan access;
    const char *args = b->plan.args;
    if (!b->server.ours) {
        progress("forged: left out, it needs a server of ours");
        return;
    }
    if (access_plan_init(&access, b->memory_under, args) != 0) {
        swarm_fail(&b->swarm, "there are no settings with access");
        return;
    }
    b->plan.args = access.args;
    bench_renew(b);
    access_await(b, access.jwt.p);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        measure(b, &access, &kinds[i]);
    b->plan.args = args;
    bench_renew(b);
    access_plan_deinit(&access);
}
