// SPDX-License-Identifier: Apache-2.0
/* Cursors issued and verified, by one thread of ours: no server has a part in it. */
#include "bench.h"

#include "base/arena.h"
#include "base/clock.h"
#include "token/cursor.h"

#include <time.h>

#define BATCH   1024 /* so many cursors that no branch is learnt by heart */
#define TOOL    STR("celia:fhir.list_observations")
#define CALLER  STR("test-caller")
#define STATE_N 64

struct mint {
    struct cursor_issuer *issuer;
    struct arena arena;
    struct arena_cache cache;
    struct cursor_payload payload;
    struct cursor_asked asked;
    struct buf cursors[BATCH];
    uint64_t failures;
};

static void issue(struct mint *m, struct buf *cursor)
{
    cursor->n = 0;
    m->payload.page++;
    m->failures += cursor_issue(m->issuer, &m->payload, cursor) != CURSOR_OK;
}

/* With an arena of its own, as a request has. */
static void verify(struct mint *m, struct buf *cursor)
{
    struct cursor_payload p;
    m->failures += cursor_verify(m->issuer, &m->arena, buf_str(cursor), &m->asked,
                                 m->payload.issued_at_s, CURSOR_TTL_S, &p) != CURSOR_OK;
    arena_deinit(&m->arena);
    m->arena.cache = &m->cache;
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Per second of this thread's CPU time, so that a busy machine does not count. */
static void measure(struct bench *b, struct mint *m, const char *key,
                    void (*once)(struct mint *m, struct buf *cursor))
{
    uint64_t n = 0, end_ns = clock_mono_ns() + (uint64_t)(b->seconds / 2 * 1e9);
    double start = cpu_seconds();
    do {
        for (int i = 0; i < BATCH; i++)
            once(m, &m->cursors[i]);
        n += BATCH;
    } while (clock_mono_ns() < end_ns);
    struct row *row = report_add(&b->report, key, (double)n / (cpu_seconds() - start));
    row_note(row, "%zu characters", m->cursors[0].n);
}

void phase_cursors(struct bench *b)
{
    static const uint8_t key[CURSOR_KEY_SIZE] = {7}, session[CURSOR_SESSION_SIZE] = {1};
    static const char state[STATE_N] = {0};
    if (b->report.store != STORE_MEMORY) /* it is the same with any */
        return;
    progress("cursors: issued and verified");
    struct mint m = {.issuer = cursor_issuer_new(key, session),
                     .payload = {.tool_id = TOOL,
                                 .caller_id = CALLER,
                                 .page = 1,
                                 .issued_at_s = clock_wall_ms() / 1000,
                                 .state = str_of(state, sizeof state)}};
    m.asked = (struct cursor_asked){.tool_id = TOOL, .caller_id = CALLER, .args = m.payload.args};
    m.arena.cache = &m.cache;
    measure(b, &m, "cursors-issue", issue);
    measure(b, &m, "cursors-verify", verify);
    if (m.failures > 0)
        swarm_fail(&b->swarm, "a cursor was not issued or not verified");
    for (int i = 0; i < BATCH; i++)
        buf_deinit(&m.cursors[i]);
    arena_deinit(&m.arena);
    arena_cache_deinit(&m.cache);
    cursor_issuer_free(m.issuer);
}
