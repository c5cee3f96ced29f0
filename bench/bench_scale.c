// SPDX-License-Identifier: Apache-2.0
/* A million streams and a hundred thousand documents: what an append takes while somebody lists,
 * looks for, subscribes to, deletes, or lets expire a tenth of them, against an empty server in the
 * same run; and how long the server takes to start with them. */
#include "bench_scale.h"

#include "base/clock.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FEW           1000 /* streams, for what a page costs without a million */
#define SUBSCRIPTIONS 1000 /* beside the one with many links */
#define TRY_PART      2    /* of --seconds, that a try lasts at least */
#define MIDDLE        (SCALE_TRIES / 2)
#define IDLE_STEP_S   0.25
#define IDLE_PART     0.05 /* of a processor: the server has nothing to do any more */
#define IDLE_LIMIT_S  60
#define PATIENCE_S    300
#define ROOM          4096 /* bytes of files for each stream, more than enough */
#define KEY_MAX       40

static const struct scale_act nothing = {"scale-empty", "appends to an empty server", NULL, NULL,
                                         NULL};
static const struct scale_act acts[] = {
    {"scale-grow", "creating streams", NULL, scale_grow, NULL},
    {"scale-subscribe", "a subscription over a tenth of them", scale_unsubscribe, scale_subscribe,
     NULL},
    {"scale-list", "listings", NULL, scale_list, NULL},
    {"scale-head", "HEADs of absent names", NULL, scale_head, NULL},
    {"scale-delete", "deleting a tenth", NULL, scale_delete, NULL},
    {"scale-expire", "a tenth expires at once", scale_brief, scale_expire, scale_expired},
    {"scale-checkpoint", "a checkpoint", NULL, scale_checkpoint, NULL},
    {"scale-body", "a JSON body of 60 MB: [1,1,...]", NULL, scale_body_small, NULL},
    {"scale-items", "a JSON body of 60 MB: items of 64 bytes", NULL, scale_body_large, NULL},
};
#define ACTS (sizeof acts / sizeof *acts)

/* ---- one row ---- */

void scale_report_turns(struct bench *b, const char *key, const struct turns *sum)
{
    char name[KEY_MAX], blame[REPORT_NOTE_MAX];
    if (!sum->known)
        return;
    snprintf(name, sizeof name, "%s-turns", key);
    turns_blame(sum, blame, sizeof blame);
    if (turns_long(sum) > 0 && sum->late_ns > 0)
        snprintf(blame + strlen(blame), sizeof blame - strlen(blame), "; sent up to %.1f ms late",
                 (double)sum->late_ns / 1e6);
    row_note(report_add(&b->report, name, turns_long(sum)), "%s", blame);
}

void scale_await_idle(struct bench *b)
{
    uint64_t until = clock_mono_ns() + IDLE_LIMIT_S * 1000000000ull;
    uint64_t cpu = server_cpu_ns(&b->server);
    for (double part = 1; part > IDLE_PART && clock_mono_ns() < until && !b->swarm.failed;) {
        swarm_run_for(&b->swarm, IDLE_STEP_S);
        uint64_t now = server_cpu_ns(&b->server);
        part = (double)(now - cpu) / 1e9 / IDLE_STEP_S;
        cpu = now;
    }
}

/* What one try came to. */
struct attempt {
    struct steady_figures figures;
    struct spent spent;
    double p999_us;
};

static void attempt_run(struct scale *s, const struct scale_act *act, struct attempt *out,
                        struct turns *sum)
{
    struct bench *b = s->bench;
    struct turns before, after;
    struct steady steady;
    if (act->prepare)
        act->prepare(s);
    turns_look(b, &before);
    steady_begin(&steady, b,
                 &(struct steady_plan){.per_second = STEADY_PER_SECOND, .type = TYPE_BYTES});
    out->spent = spent_begin(b);
    uint64_t until = clock_mono_ns() + (uint64_t)(s->try_s * 1e9);
    if (act->act)
        act->act(s, until);
    uint64_t now = clock_mono_ns();
    if (now < until)
        swarm_run_for(&b->swarm, (double)(until - now) / 1e9);
    steady_end(&steady, b, &out->figures);
    spent_end(b, &out->spent);
    turns_look(b, &after);
    turns_add(sum, &before, &after);
    if (out->figures.lag_max > sum->late_ns)
        sum->late_ns = out->figures.lag_max;
    if (act->verify)
        act->verify(s);
    out->p999_us = steady_p999_us(&out->figures);
    progress("  p99.9 %.0f us, most %.1f ms, sent %.0f us late, in %.1f s", out->p999_us,
             (double)out->figures.max_ns / 1e6, (double)hist_at(&out->figures.lag, 0.999) / 1e3,
             out->spent.seconds);
}

static int by_p999(const void *a, const void *b)
{
    double x = ((const struct attempt *)a)->p999_us, y = ((const struct attempt *)b)->p999_us;
    return (x > y) - (x < y);
}

static void report_attempts(struct scale *s, const char *key, const struct attempt *sorted)
{
    const struct attempt *middle = &sorted[MIDDLE];
    double value = s->empty_us > 0 ? middle->p999_us / s->empty_us : middle->p999_us;
    struct row *row = report_add(&s->bench->report, key, value);
    uint64_t most = 0;
    for (unsigned i = 0; i < SCALE_TRIES; i++)
        most = sorted[i].figures.max_ns > most ? sorted[i].figures.max_ns : most;
    row_spent(row, s->bench, &middle->spent, (double)middle->figures.latency.n);
    row_note(row, "%.0f us (%.0f to %.0f), most %.1f ms; sent %.0f us late", middle->p999_us,
             sorted[0].p999_us, sorted[SCALE_TRIES - 1].p999_us, (double)most / 1e6,
             (double)hist_at(&middle->figures.lag, 0.999) / 1e3);
}

/* Returns the p99.9 of the try in the middle; 0 if it failed. */
static double measure(struct scale *s, const struct scale_act *act, struct turns *sum)
{
    struct attempt tries[SCALE_TRIES] = {0};
    if (s->bench->swarm.failed)
        return 0;
    progress("%s: %s", act->key, act->what);
    for (s->try = 0; s->try < SCALE_TRIES; s->try++) {
        attempt_run(s, act, &tries[s->try], sum);
        if (s->bench->swarm.failed || tries[s->try].figures.latency.n == 0)
            return 0;
    }
    qsort(tries, SCALE_TRIES, sizeof *tries, by_p999);
    report_attempts(s, act->key, tries);
    return tries[MIDDLE].p999_us;
}

void scale_measure(struct scale *s, const struct scale_act *act)
{
    struct turns sum = {0};
    if (measure(s, act, &sum) > 0)
        scale_report_turns(s->bench, act->key, &sum);
}

/* ---- pages ---- */

static void put_create(struct buf *out, struct name stream, void *arg)
{
    request_create(out, stream, TYPE_BYTES, STR_NONE);
}

static void report_pages(struct scale *s)
{
    static const char *const keys[SCALE_PAGES] = {"scale-page-1", "scale-page-100",
                                                  "scale-page-1000"};
    double us[SCALE_PAGES];
    scale_time_pages(s, us);
    for (unsigned i = 0; i < SCALE_PAGES && !s->bench->swarm.failed; i++)
        row_note(report_add(&s->bench->report, keys[i], us[i] / s->page_us[i]),
                 "%.0f us, with 1,000 streams %.0f us", us[i], s->page_us[i]);
}

/* Streams are made under load: that is a row of its own. */
static void grow(struct scale *s)
{
    struct bench *b = s->bench;
    pump_each(b, SCALE_BULK, FEW, put_create, NULL, 201, "creating a stream");
    scale_time_pages(s, s->page_us);
    scale_measure(s, &acts[0]);
    report_pages(s);
}

/* ---- the server starts again ---- */

static void scale_restart(struct scale *s)
{
    struct bench *b = s->bench;
    struct scale_start *start = &s->starts[s->try];
    bench_stop(b, false);
    start->spent = spent_begin(b);
    bench_start(b);
    ask_append(b, stream_name("steady", 0), TYPE_BYTES, STR("first"), NULL);
    start->ms = (double)(clock_mono_ns() - b->server.started_ns) / 1e6;
    spent_end(b, &start->spent);
    progress("  first append answered after %.0f ms", start->ms);
}

static const struct scale_act restarted = {"scale-restarted", "subscriptions start again",
                                           scale_restart, NULL, NULL};

static int by_ms(const void *a, const void *b)
{
    double x = ((const struct scale_start *)a)->ms, y = ((const struct scale_start *)b)->ms;
    return (x > y) - (x < y);
}

static void restart(struct scale *s)
{
    struct bench *b = s->bench;
    if (b->swarm.failed)
        return;
    progress("scale-restart: %u sessions, %u subscriptions more", s->some, SUBSCRIPTIONS);
    scale_add_sessions(b, s->some);
    scale_add_subscriptions(b, SUBSCRIPTIONS);
    scale_measure(s, &restarted);
    if (b->swarm.failed)
        return;
    qsort(s->starts, SCALE_TRIES, sizeof *s->starts, by_ms);
    struct row *row = report_add(&b->report, "scale-restart", s->starts[MIDDLE].ms);
    row_spent(row, b, &s->starts[MIDDLE].spent, s->streams);
    row_note(row, "%.0f to %.0f ms", s->starts[0].ms, s->starts[SCALE_TRIES - 1].ms);
}

/* Sessions can be allowed in a file alone. */
static int config_fd(void)
{
    static const char text[] = "[session]\nhandler = echo\nmax-open = 1000000\n";
    int fd = memfd_create("scale.conf", 0);
    if (fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)(sizeof text - 1))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void run_acts(struct scale *s)
{
    struct bench *b = s->bench;
    struct turns unused = {0};
    bench_renew(b);
    s->empty_us = measure(s, &nothing, &unused);
    if (b->swarm.failed)
        return;
    grow(s);
    for (unsigned i = 1; i < ACTS; i++)
        if (*b->data || acts[i].act != scale_checkpoint)
            scale_measure(s, &acts[i]);
    if (*b->data)
        restart(s);
}

void phase_scale(struct bench *b)
{
    struct scale s = {
        .bench = b, .streams = b->streams, .some = b->streams / 10, .try_s = b->seconds / TRY_PART};
    struct buf args = {0};
    const char *under = b->data_under;
    struct server_plan given = b->plan;
    int fd = b->server.ours ? config_fd() : -1;
    if (fd < 0) {
        progress("scale: left out, it needs a server of ours");
        return;
    }
    buf_printf(&args, "%s --sync never --config /proc/self/fd/%d%c", given.args ? given.args : "",
               fd, '\0');
    b->plan.args = args.p;
    b->plan.cpu = SERVER_CPU_ALL; /* its other threads must not take the loop's */
    b->swarm.patience_s = PATIENCE_S;
    if (data_has_room(b->memory_under, (uint64_t)b->streams * ROOM))
        b->data_under = b->memory_under;
    else
        progress("scale-streams: too little room in %s, so the disk counts too", b->memory_under);
    run_acts(&s);
    b->data_under = under;
    b->swarm.patience_s = SWARM_PATIENCE_S;
    b->plan = given;
    close(fd);
    buf_deinit(&args);
}
