// SPDX-License-Identifier: Apache-2.0
/* A stream that got one event in each of 20,000 checkpoints, as one a minute does, read whole from
 * where it rests; against the same events that came to rest at once.
 *
 * A server would take two weeks to write it. So the store is opened here, in this process and in
 * the server's folder, under a schedule driven by hand: one append, one checkpoint, and so on. It
 * syncs nothing. Then the server reads it. */
#include "bench_scale.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/sched.h"
#include "store/embedded/embedded.h"
#include "store/embedded/vfs.h"

#include <stdlib.h>

#define PER_EVENT  50 /* streams of --streams: 20,000 events where there are a million */
#define EVENT_SIZE 64
#define AT_ONCE    100 /* events in an append */
#define TRIES      5
#define TURNS_MAX  100000
#define STEP       5000 /* checkpoints between two lines of progress */

/* ---- a lane without a thread: jobs run as they are given ---- */

struct here {
    struct lane lane;
    struct sched *sched;
    struct task task;
    struct link ran;
};

static void here_done(struct task *t)
{
    struct here *h = container_of(t, struct here, task);
    while (!list_empty(&h->ran)) {
        struct job *j = list_item(h->ran.next, struct job, link);
        list_remove(&j->link);
        j->done(j);
    }
}

static void here_submit(struct lane *l, struct job *j)
{
    struct here *h = container_of(l, struct here, lane);
    j->run(j);
    list_init(&j->link);
    list_push(&h->ran, &j->link);
    sched_post(h->sched, &h->task);
}

static void here_free(struct lane *l)
{
    struct here *h = container_of(l, struct here, lane);
    task_cancel(&h->task);
    free(h);
}

static struct lane *here_new(struct sched *sched)
{
    struct here *h = mem_zalloc(sizeof *h);
    h->lane = (struct lane){here_submit, here_free};
    h->sched = sched;
    list_init(&h->ran);
    task_init(&h->task, here_done);
    return &h->lane;
}

/* ---- the store, by hand ---- */

struct maker {
    struct bench *bench;
    unsigned events;
    struct sched sched;
    struct vfs *vfs;
    struct vfs_ops ops; /* the disk's, without syncs */
    struct embedded_lanes lanes;
    struct store *store;
    int err;
    bool done;
};

static int no_sync(struct file *f)
{
    return 0;
}

static int no_sync_dir(struct vfs *v, const char *name)
{
    return 0;
}

static bool is_done(struct maker *m)
{
    return m->done;
}

static bool is_rested(struct maker *m)
{
    return embedded_unrested(m->store) == 0;
}

static void take_turns(struct maker *m, bool (*until)(struct maker *m))
{
    for (unsigned i = 0; i < TURNS_MAX && !until(m); i++)
        sched_turn(&m->sched, m->sched.now_ms + 1, m->sched.wall_ms + 1);
    if (!until(m))
        swarm_fail(&m->bench->swarm, "the store does not go on, in this process");
}

static void maker_open(struct maker *m)
{
    char why[256], index[DATA_PATH_MAX + 16];
    struct embedded_config config = EMBEDDED_DEFAULTS;
    config.journal.sync = JOURNAL_SYNC_NEVER;
    config.index_sync = false;
    sched_init(&m->sched, 1, clock_wall_ms());
    m->vfs = vfs_posix_new(m->bench->data, why, sizeof why);
    if (m->vfs == NULL) {
        swarm_fail(&m->bench->swarm, "%s", why);
        return;
    }
    m->ops = *m->vfs->ops;
    m->ops.sync = no_sync;
    m->ops.sync_dir = no_sync_dir;
    m->ops.write_back = NULL;
    m->vfs->ops = &m->ops;
    m->lanes = (struct embedded_lanes){here_new(&m->sched), here_new(&m->sched),
                                       here_new(&m->sched), here_new(&m->sched)};
    snprintf(index, sizeof index, "%s/index.mdb", m->bench->data);
    m->store = embedded_open(&m->sched, m->vfs, index, &m->lanes, &config, why, sizeof why);
    if (m->store == NULL)
        swarm_fail(&m->bench->swarm, "%s", why);
}

static void on_stopped(void *ctx)
{
    ((struct maker *)ctx)->done = true;
}

static void maker_close(struct maker *m)
{
    m->done = false;
    if (m->store != NULL) {
        store_stop(m->store, on_stopped, m);
        take_turns(m, is_done);
        store_free(m->store);
    }
    lane_free(m->lanes.journal);
    lane_free(m->lanes.prepare);
    lane_free(m->lanes.rest);
    lane_free(m->lanes.read);
    if (m->vfs != NULL)
        vfs_free(m->vfs);
}

struct writing {
    struct store_write op;
    struct maker *maker;
};

static void on_written(struct store_write *w, int err)
{
    struct maker *m = container_of(w, struct writing, op)->maker;
    m->err = err;
    m->done = true;
}

static void maker_write(struct maker *m, struct store_write op)
{
    struct writing w = {.op = op, .maker = m};
    w.op.done = on_written;
    m->done = false;
    store_write(m->store, &w.op);
    take_turns(m, is_done);
    if (m->err != 0)
        swarm_fail(&m->bench->swarm, "the store refuses a write: %d", m->err);
}

static void create(struct maker *m, struct name name)
{
    struct stream_config config = {
        .content_type = STR(TYPE_TEXT), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    maker_write(m, (struct store_write){.name = str_of_cstr(name.text), .create = &config});
}

static void append(struct maker *m, struct name name, unsigned first, unsigned count)
{
    struct buf data = {0};
    uint32_t ends[AT_ONCE];
    for (unsigned i = 0; i < count; i++) {
        event_put_text(&data, first + i, EVENT_SIZE);
        ends[i] = (uint32_t)data.n;
    }
    maker_write(m, (struct store_write){.name = str_of_cstr(name.text),
                                        .data = buf_str(&data),
                                        .ends = ends,
                                        .n_events = count});
    buf_deinit(&data);
}

static void make_streams(struct bench *b, unsigned events)
{
    struct maker m = {.bench = b, .events = events};
    struct name slow = stream_name("slow", 0), once = stream_name("once", 0);
    maker_open(&m);
    if (!b->swarm.failed) {
        create(&m, slow);
        create(&m, once);
    }
    for (unsigned i = 0; i < m.events && !b->swarm.failed; i++) {
        append(&m, slow, i, 1);
        embedded_checkpoint(m.store);
        take_turns(&m, is_rested);
        if ((i + 1) % STEP == 0)
            progress("  %u checkpoints", i + 1);
    }
    for (unsigned i = 0; i < m.events && !b->swarm.failed; i += AT_ONCE)
        append(&m, once, i, AT_ONCE);
    maker_close(&m);
}

/* ---- reading them ---- */

struct reading {
    double requests, ms;
};

static struct reading read_whole(struct bench *b, const char *phase, unsigned events)
{
    struct tally tally = {0};
    uint64_t start = clock_mono_ns();
    unsigned requests = ask_all(b, stream_name(phase, 0), &tally);
    double ms = (double)(clock_mono_ns() - start) / 1e6;
    if (!b->swarm.failed && !tally_whole(&tally, events))
        swarm_fail(&b->swarm, "of %u events %llu are read", events, (unsigned long long)tally.seen);
    return (struct reading){requests, ms};
}

/* A few milliseconds tell little of one try: each server has nothing of it in its memory. */
static void keep_quicker(struct reading *best, struct reading r)
{
    if (r.ms < best->ms)
        *best = r;
}

void phase_slow(struct bench *b)
{
    if (!b->server.ours || !*b->data)
        return;
    unsigned events = b->streams / PER_EVENT / AT_ONCE * AT_ONCE;
    progress("scale-slow: %u events, one in each checkpoint", events);
    bench_stop(b, false);
    make_streams(b, events);
    struct reading once = {.ms = 1e9}, slow = {.ms = 1e9};
    for (int i = 0; i < TRIES && !b->swarm.failed; i++) {
        bench_start(b);
        ask_read(b, stream_name("absent", 0), 404); /* the first request takes longer */
        keep_quicker(&once, read_whole(b, "once", events));
        keep_quicker(&slow, read_whole(b, "slow", events));
        bench_stop(b, false);
    }
    if (b->swarm.failed)
        return;
    row_note(report_add(&b->report, "scale-slow", slow.requests / once.requests),
             "%.0f requests : %.0f", slow.requests, once.requests);
    row_note(report_add(&b->report, "scale-slow-time", slow.ms / once.ms), "%.1f ms : %.1f ms",
             slow.ms, once.ms);
}
