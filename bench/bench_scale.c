// SPDX-License-Identifier: Apache-2.0
/* A million streams and a hundred thousand documents: what an append takes while somebody lists,
 * looks for, subscribes to, deletes, or lets expire a tenth of them, against an empty server in the
 * same run; and how long the server takes to start with them. */
#include "bench_scale.h"

#include "base/clock.h"

#include <sys/mman.h>
#include <unistd.h>

#define FEW           1000 /* streams, for what a page costs without a million */
#define SUBSCRIPTIONS 1000 /* beside the one with many links */
#define EMPTY_TRIES   3
#define PATIENCE_S    300
#define ROOM          4096 /* bytes of files for each stream, more than enough */
#define KEY_MAX       40

static const struct scale_act acts[] = {
    {"scale-grow", "creating streams", NULL, scale_grow, NULL},
    {"scale-subscribe", "a subscription over a tenth of them", NULL, scale_subscribe, NULL},
    {"scale-list", "listings", NULL, scale_list, NULL},
    {"scale-head", "HEADs of absent names", NULL, scale_head, NULL},
    {"scale-delete", "deleting a tenth", NULL, scale_delete, NULL},
    {"scale-expire", "a tenth expires at once", scale_brief, scale_expire, scale_expired},
    {"scale-checkpoint", "a checkpoint", NULL, scale_checkpoint, NULL},
    {"scale-body", "a JSON body of 60 MB: [1,1,...]", NULL, scale_body_small, NULL},
    {"scale-items", "a JSON body of 60 MB: items of 64 bytes", NULL, scale_body_large, NULL},
};
#define ACTS (sizeof acts / sizeof *acts)

static const struct scale_act restarted = {"scale-restarted", "subscriptions start again", NULL,
                                           NULL, NULL};

/* ---- one row ---- */

void scale_report_turns(struct bench *b, const char *key, const struct turns *before,
                        const struct turns *after)
{
    char name[KEY_MAX], blame[REPORT_NOTE_MAX];
    if (!before->known || !after->known)
        return;
    snprintf(name, sizeof name, "%s-turns", key);
    turns_blame(before, after, blame, sizeof blame);
    row_note(report_add(&b->report, name, turns_long(before, after)), "%s", blame);
}

static void add_latency(struct scale *s, const char *key, const struct steady_figures *f,
                        const struct spent *spent)
{
    double p999 = steady_p999_us(f);
    struct row *row = report_add(&s->bench->report, key, p999 / s->empty_us);
    row_spent(row, s->bench, spent, (double)f->latency.n);
    row_note(row, "%.0f us, most %.1f ms; sent %.0f us late", p999, (double)f->max_ns / 1e6,
             (double)hist_at(&f->lag, 0.999) / 1e3);
    progress("  p99.9 %.0f us (%.1f x), most %.1f ms, in %.1f s", p999, row->value,
             (double)f->max_ns / 1e6, spent->seconds);
}

void scale_measure(struct scale *s, const struct scale_act *act)
{
    struct bench *b = s->bench;
    struct turns before, after;
    struct steady steady;
    struct steady_figures *figures = &s->figures;
    if (b->swarm.failed)
        return;
    progress("%s: %s", act->key, act->what);
    if (act->prepare)
        act->prepare(s);
    turns_look(b, &before);
    steady_begin(&steady, b, STEADY_PER_SECOND);
    struct spent spent = spent_begin(b);
    uint64_t until = clock_mono_ns() + (uint64_t)(b->seconds * 1e9);
    if (act->act)
        act->act(s, until);
    uint64_t now = clock_mono_ns();
    if (now < until)
        swarm_run_for(&b->swarm, (double)(until - now) / 1e9);
    steady_end(&steady, b, figures);
    spent_end(b, &spent);
    turns_look(b, &after);
    if (act->verify)
        act->verify(s);
    if (b->swarm.failed || figures->latency.n == 0)
        return;
    add_latency(s, act->key, figures, &spent);
    scale_report_turns(b, act->key, &before, &after);
}

/* The least of some tries: what disturbs the machine must not make the limit of all rows larger. */
void scale_measure_empty(struct scale *s)
{
    struct bench *b = s->bench;
    progress("scale-empty: appends to an empty server, %d a second", STEADY_PER_SECOND);
    for (unsigned i = 0; i < EMPTY_TRIES; i++) {
        struct steady steady;
        steady_begin(&steady, b, STEADY_PER_SECOND);
        swarm_run_for(&b->swarm, b->seconds);
        steady_end(&steady, b, &s->figures);
        double p999 = steady_p999_us(&s->figures);
        if (s->empty_us == 0 || p999 < s->empty_us)
            s->empty_us = p999;
    }
    if (b->swarm.failed)
        return;
    row_note(report_add(&b->report, "scale-empty", s->empty_us), "the least of %d tries",
             EMPTY_TRIES);
    progress("  p99.9 %.0f us", s->empty_us);
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

static void restart(struct scale *s)
{
    struct bench *b = s->bench;
    if (b->swarm.failed)
        return;
    progress("scale-restart: %u sessions, %u subscriptions more", s->some, SUBSCRIPTIONS);
    scale_add_sessions(b, s->some);
    scale_add_subscriptions(b, SUBSCRIPTIONS);
    bench_stop(b, false);
    struct spent spent = spent_begin(b);
    bench_start(b);
    ask_append(b, stream_name("steady", 0), TYPE_BYTES, STR("first"), NULL);
    double ms = (double)(clock_mono_ns() - b->server.started_ns) / 1e6;
    spent_end(b, &spent);
    if (b->swarm.failed)
        return;
    row_spent(report_add(&b->report, "scale-restart", ms), b, &spent, s->streams);
    progress("  first append answered after %.0f ms", ms);
    scale_measure(s, &restarted);
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
    bench_renew(b);
    scale_measure_empty(s);
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
    struct scale s = {.bench = b, .streams = b->streams, .some = b->streams / 10};
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
