// SPDX-License-Identifier: Apache-2.0
/* Instructions per operation: the server runs under callgrind twice with different counts; the
 * difference is free of start, connecting and end. */
#include "bench.h"
#include "bench_access.h"

#define APPENDS_FEW  1000
#define APPENDS_MANY 6000
#define READERS      500
#define EVENTS_FEW   10
#define EVENTS_MANY  60
#define CHUNKS_FEW   500
#define CHUNKS_MANY  2500

/* What the server does, and the header that each request of it carries. */
struct work {
    void (*run)(struct bench *b, const char *token, uint64_t count);
    const char *token; /* NULL: none */
    uint64_t few, many;
    double per_count;
};

static void deliveries(struct bench *b, const char *token, uint64_t count)
{
    run_deliveries(b, READERS, count);
}

static void chunks(struct bench *b, const char *token, uint64_t count)
{
    run_chunks(b, count);
}

static int total(struct bench *b, const struct work *w, uint64_t count, uint64_t *out)
{
    *out = 0;
    if (bench_begin(b) != 0)
        return -1;
    w->run(b, w->token, count);
    if (bench_end(b, out) != 0)
        return -1;
    if (*out == 0)
        swarm_fail(&b->swarm, "valgrind did not say how many instructions it counted");
    return b->swarm.failed ? -1 : 0;
}

static int compare(struct bench *b, const char *key, const struct work *w, double *each)
{
    uint64_t low, high;
    progress("%s: under callgrind, %llu and %llu times", key, (unsigned long long)w->few,
             (unsigned long long)w->many);
    if (total(b, w, w->few, &low) != 0 || total(b, w, w->many, &high) != 0)
        return -1;
    *each = ((double)high - (double)low) / (double)(w->many - w->few) / w->per_count;
    report_add(&b->report, key, *each);
    return 0;
}

/* Appends that carry a token: to a server that is open and ignores it, and to one that has to know
 * whose it is. */
static int compare_access(struct bench *b, const struct access_plan *plan, const char *token,
                          const char *const keys[3])
{
    const struct work w = {run_appends, token, APPENDS_FEW, APPENDS_MANY, 1};
    const char *args = b->plan.args;
    double open, access;
    if (compare(b, keys[0], &w, &open) != 0)
        return -1;
    b->plan.args = plan->args;
    int failed = compare(b, keys[1], &w, &access);
    b->plan.args = args;
    if (failed == 0)
        report_add(&b->report, keys[2], access / open);
    return failed;
}

static int count_access(struct bench *b)
{
    static const char *const caller[] = {"instructions-caller-open", "instructions-caller",
                                         "instructions-caller-times"};
    static const char *const jwt[] = {"instructions-jwt-open", "instructions-jwt",
                                      "instructions-jwt-times"};
    struct access_plan plan;
    if (access_plan_init(&plan, b->memory_under, b->plan.args) != 0)
        return -1;
    int failed = compare_access(b, &plan, ACCESS_CALLER, caller) != 0 ||
                 compare_access(b, &plan, plan.jwt.p, jwt) != 0;
    access_plan_deinit(&plan);
    return failed ? -1 : 0;
}

/* A delivery bears its part, one 500th, of the append that caused it. */
int count_instructions(struct bench *b)
{
    static const struct work append = {run_appends, NULL, APPENDS_FEW, APPENDS_MANY, 1},
                             delivery = {deliveries, NULL, EVENTS_FEW, EVENTS_MANY, READERS},
                             chunk = {chunks, NULL, CHUNKS_FEW, CHUNKS_MANY, 1};
    double ignored;
    return compare(b, "instructions-append", &append, &ignored) != 0 || count_access(b) != 0 ||
                   compare(b, "instructions-delivery", &delivery, &ignored) != 0 ||
                   compare(b, "instructions-chunk", &chunk, &ignored) != 0
               ? -1
               : 0;
}
