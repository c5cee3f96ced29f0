// SPDX-License-Identifier: Apache-2.0
/* Polls of a log near its end: what does the length of the file cost?
 *
 * One file is a megabyte, the other a gigabyte (most of it a hole); both end with the same entries,
 * and the polls go to one and the other in turn, so that whatever else happens meanwhile happens to
 * both. */
#include "bench.h"
#include "bench_hist.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/units.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define ENTRIES 100 /* behind the cursor */
#define FILES   2

static const struct {
    const char *name, *key;
    uint64_t size;
} files[FILES] = {
    {"small", "log-1m", MIB},
    {"large", "log-1g", GIB},
};

struct polls {
    struct peer peer;
    struct bench *bench;
    struct buf requests[FILES];
    struct hist took[FILES];
    unsigned at; /* whose turn it is */
    uint64_t start_ns, until_ns, bytes, want;
    bool answered, done;
};

/* ---- the files ---- */

/* A line, a hole, and what is polled for. Returns the cursor before that; 0 on failure. */
static uint64_t make_file(const char *folder, unsigned i, uint64_t *answer)
{
    char path[DATA_PATH_MAX + 16];
    struct buf end = {0};
    uint64_t since = 0;
    snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    buf_putc(&end, '\n');
    for (unsigned k = 0; k < ENTRIES; k++)
        buf_printf(&end, "{\"id\":%u,\"sessionId\":\"bench\",\"notes\":\"%0100u\"}\n", k, k);
    off_t at = (off_t)(files[i].size - end.n);
    if (fd >= 0 && pwrite(fd, "{}\n", 3, 0) == 3 && pwrite(fd, end.p, end.n, at) == (ssize_t)end.n)
        since = (uint64_t)at + 1;
    if (fd >= 0)
        close(fd);
    /* The lines, with commas for newlines between them. */
    *answer = end.n - 2 + sizeof "{\"items\":[],\"nextCursor\":\"\"}\n" - 1;
    buf_deinit(&end);
    return since;
}

static int make_config(const char *folder, char path[DATA_PATH_MAX + 16])
{
    snprintf(path, DATA_PATH_MAX + 16, "%s/config", folder);
    FILE *f = fopen(path, "we");
    if (f == NULL)
        return -1;
    for (unsigned i = 0; i < FILES; i++)
        fprintf(f, "[log %s]\npath = %s/%s\n", files[i].name, folder, files[i].name);
    return fclose(f);
}

/* ---- polling ---- */

static void poll_next(struct polls *p)
{
    p->start_ns = clock_mono_ns();
    p->bytes = 0;
    p->answered = false;
    peer_send(&p->peer, buf_str(&p->requests[p->at]));
}

static void poll_body(struct peer *peer, struct str piece)
{
    container_of(peer, struct polls, peer)->bytes += piece.n;
}

static void poll_end(struct peer *peer)
{
    struct polls *p = container_of(peer, struct polls, peer);
    uint64_t now_ns = clock_mono_ns();
    char size[32];
    uint64_t want = p->want + (uint64_t)snprintf(size, sizeof size, "%llu",
                                                 (unsigned long long)files[p->at].size);
    if (!peer_expect(peer, 200, "polling a log"))
        return;
    if (p->bytes != want) {
        swarm_fail(peer->swarm, "a poll brought %llu bytes in place of %llu",
                   (unsigned long long)p->bytes, (unsigned long long)want);
        return;
    }
    hist_add(&p->took[p->at], now_ns - p->start_ns);
    p->answered = true;
    p->done = now_ns >= p->until_ns;
}

/* Not from within poll_end: there the answer is still being read. */
static void poll_after(struct peer *peer)
{
    struct polls *p = container_of(peer, struct polls, peer);
    if (!p->answered || p->done)
        return;
    p->at = (p->at + 1) % FILES;
    poll_next(p);
}

static const struct peer_ops poll_ops = {.body = poll_body, .end = poll_end, .after = poll_after};

static bool polls_done(void *arg)
{
    return ((struct polls *)arg)->done;
}

static void measure(struct bench *b, struct polls *p)
{
    progress("logs: polls with %d entries to come, of 1 MB and of 1 GB", ENTRIES);
    p->until_ns = clock_mono_ns() + (uint64_t)(b->seconds * 1e9);
    struct spent spent = spent_begin(b);
    peer_open(&p->peer, &b->swarm, &poll_ops);
    poll_next(p);
    swarm_run(&b->swarm, "polls of logs", polls_done, p);
    spent_end(b, &spent);
    peer_close(&p->peer);
    if (b->swarm.failed)
        return;
    double p50[FILES];
    for (unsigned i = 0; i < FILES; i++) {
        p50[i] = (double)hist_at(&p->took[i], 0.5) / 1e3;
        struct row *row = report_add(&b->report, files[i].key, p50[i]);
        row_spent(row, b, &spent, (double)(p->took[0].n + p->took[1].n));
    }
    report_add(&b->report, "log-times", p50[1] / p50[0]);
}

static void run_polls(struct bench *b, const char *folder)
{
    struct polls *p = mem_zalloc(sizeof *p);
    p->bench = b;
    p->peer.fd = -1;
    for (unsigned i = 0; i < FILES; i++) {
        uint64_t since = make_file(folder, i, &p->want);
        if (since == 0)
            swarm_fail(&b->swarm, "cannot make a log of %llu bytes in %s",
                       (unsigned long long)files[i].size, folder);
        buf_printf(&p->requests[i], "GET /v1/log/%s?since=%llu HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
                   files[i].name, (unsigned long long)since);
    }
    bench_renew(b);
    if (!b->swarm.failed)
        measure(b, p);
    for (unsigned i = 0; i < FILES; i++)
        buf_deinit(&p->requests[i]);
    free(p);
}

void phase_logs(struct bench *b)
{
    char folder[DATA_PATH_MAX], config[DATA_PATH_MAX + 16];
    struct buf args = {0};
    const char *given = b->plan.args;
    if (!b->server.ours || b->report.store != STORE_MEMORY) {
        progress("logs: left out, %s",
                 b->server.ours ? "no store has a part in it" : "only a server of ours has them");
        return;
    }
    if (data_make(b->data_under, folder) != 0) {
        swarm_fail(&b->swarm, "cannot make a folder for logs");
        return;
    }
    if (make_config(folder, config) != 0)
        swarm_fail(&b->swarm, "cannot write %s", config);
    buf_printf(&args, "%s --config %s%c", given ? given : "", config, '\0');
    b->plan.args = args.p;
    run_polls(b, folder);
    b->plan.args = given;
    buf_deinit(&args);
    data_remove(folder);
}
