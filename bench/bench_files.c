// SPDX-License-Identifier: Apache-2.0
/* Ten thousand idle connections to a server that was started with a limit of 1,024 descriptors: do
 * appends, with the files that they need, and reads of what rests on disk go on? */
#include "bench_scale.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>
#include <unistd.h>

#define IDLE        10000
#define LIMIT       1024
#define STREAMS     200
#define EVENT       4096
#define APPEND      2048 /* journals and checkpoints want files; and a disk bears as much */
#define CONNECTIONS 4
#define WARM_UP_S   0.1
#define SETTLE_S    2.0

struct traffic {
    struct pump appends, reads;
    struct buf body;
};

static void fill_body(struct buf *out, size_t n)
{
    while (out->n < n)
        buf_putc(out, (char)(out->n * 37 + 128));
}

static struct str next_append(struct spout *s, uint64_t first, unsigned count)
{
    const struct traffic *t = s->pump->ctx;
    s->requests.n = 0;
    request_append(&s->requests, stream_name("files", s->number), TYPE_BYTES, buf_str(&t->body));
    return buf_str(&s->requests);
}

static struct str next_read(struct spout *s, uint64_t first, unsigned count)
{
    s->requests.n = 0;
    request_read(&s->requests, stream_name("files", CONNECTIONS + first % (STREAMS - CONNECTIONS)),
                 "-1", false);
    return buf_str(&s->requests);
}

static void put_create(struct buf *out, struct name stream, void *arg)
{
    request_create(out, stream, TYPE_BYTES, buf_str(arg));
}

/* Connections that say nothing. Those that the server refuses stay closed. */
static unsigned open_idle(struct bench *b, int *fds, unsigned n)
{
    unsigned opened = 0;
    for (unsigned i = 0; i < n && !b->swarm.failed; i++) {
        fds[opened] = swarm_connect(&b->swarm);
        opened += fds[opened] >= 0;
        if (i % 100 == 99)
            swarm_run_for(&b->swarm, 0.005); /* no more than the server's queue holds */
    }
    return opened;
}

static void report_part(struct bench *b, const char *key, const struct pump *p, unsigned files)
{
    row_note(
        report_add(&b->report, key, 100.0 * (double)(p->answered - p->refused) / (double)p->sent),
        "%llu of %llu, %u descriptors open", (unsigned long long)(p->answered - p->refused),
        (unsigned long long)p->sent, files);
}

/* It has its connections before the idle ones come, and goes on meanwhile. */
static void run_traffic(struct bench *b, struct traffic *t, const char *appends, const char *reads)
{
    int *fds = mem_alloc(IDLE * sizeof *fds);
    t->appends = (struct pump){.bench = b,
                               .n = CONNECTIONS,
                               .depth = 1,
                               .status = 204,
                               .what = "appending",
                               .limit = UINT64_MAX,
                               .lenient = true,
                               .next = next_append,
                               .ctx = t};
    t->reads = (struct pump){.bench = b,
                             .n = CONNECTIONS,
                             .depth = 1,
                             .status = 200,
                             .what = "reading",
                             .limit = UINT64_MAX,
                             .lenient = true,
                             .next = next_read,
                             .ctx = t};
    pump_open(&t->appends);
    pump_open(&t->reads);
    pump_start(&t->appends);
    pump_start(&t->reads);
    swarm_run_for(&b->swarm, WARM_UP_S);
    unsigned n = open_idle(b, fds, IDLE);
    swarm_run_for(&b->swarm, SETTLE_S + b->seconds);
    unsigned files = server_files(&b->server);
    t->appends.limit = t->reads.limit = 0;
    swarm_run_for(&b->swarm, 1);
    if (!b->swarm.failed) {
        report_part(b, appends, &t->appends, files);
        report_part(b, reads, &t->reads, files);
    }
    pump_close(&t->appends);
    pump_close(&t->reads);
    while (n > 0)
        close(fds[--n]);
    free(fds);
}

static void measure(struct bench *b, const char *appends, const char *reads)
{
    struct traffic t = {0};
    struct buf event = {0};
    fill_body(&t.body, APPEND);
    fill_body(&event, EVENT);
    bench_renew(b);
    pump_each(b, "files", STREAMS, put_create, &event, 201, "creating a stream");
    bench_stop(b, false);
    bench_start(b);
    run_traffic(b, &t, appends, reads);
    buf_deinit(&t.body);
    buf_deinit(&event);
}

void phase_files(struct bench *b)
{
    struct buf args = {0};
    struct server_plan given = b->plan;
    if (!b->server.ours || b->sockets < IDLE + 100) {
        progress("scale-files: left out, it needs a server of ours and %d descriptors", IDLE + 100);
        return;
    }
    buf_printf(&args, "%s --sync never --max-connections 12000%c", given.args ? given.args : "",
               '\0');
    b->plan.args = args.p;
    b->plan.files = LIMIT;
    progress("scale-files: %d idle connections, a soft limit of %d descriptors", IDLE, LIMIT);
    measure(b, "scale-files-appends", "scale-files-reads");
    b->plan.files_hard = true;
    progress("scale-files: the same with a hard limit");
    measure(b, "scale-files-hard-appends", "scale-files-hard-reads");
    b->plan = given;
    buf_deinit(&args);
}
