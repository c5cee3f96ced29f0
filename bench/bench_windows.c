// SPDX-License-Identifier: Apache-2.0
/* A thousand HTTP/2 answers whose clients open no window, over 200 MB that rest on disk: what the
 * server holds of them in memory, against what it may hold (cache-bytes and 64 MiB). */
#include "bench_h2.h"
#include "bench_scale.h"

#include "base/mem.h"

#include <stdlib.h>

#define CONNECTIONS 16
#define ANSWERS     1000
#define PIECE       (200u * 1024) /* of one append; each answer begins at another one */
#define STREAMS     20
#define CACHE       (64u << 20) /* the default */
#define SPARE       (64u << 20)
#define SETTLE_S    2.0
#define PATH_MAX_   (NAME_MAX_BYTES + ANSWER_OFFSET_MAX + 32)

struct start {
    char offset[ANSWER_OFFSET_MAX];
};

/* Where each answer begins; the last piece of a stream is nobody's first. */
static struct start *fill_streams(struct bench *b)
{
    struct start *starts = mem_zalloc(ANSWERS * sizeof *starts);
    struct start next[STREAMS];
    struct buf body = {0};
    while (body.n < PIECE)
        buf_putc(&body, (char)(body.n * 37 + body.n / 251));
    for (unsigned i = 0; i < STREAMS; i++) {
        ask_create(b, stream_name("windows", i), TYPE_BYTES);
        strcpy(next[i].offset, "-1");
    }
    for (unsigned i = 0; i < ANSWERS && !b->swarm.failed; i++) {
        unsigned k = i % STREAMS;
        starts[i] = next[k];
        ask_append(b, stream_name("windows", k), TYPE_BYTES, buf_str(&body), next[k].offset);
    }
    buf_deinit(&body);
    return starts;
}

static uint64_t begun_of(const struct h2 *conns)
{
    uint64_t begun = 0;
    for (unsigned i = 0; i < CONNECTIONS; i++)
        begun += conns[i].begun;
    return begun;
}

/* Until no more answers begin. */
static void settle(struct bench *b, const struct h2 *conns)
{
    uint64_t begun = 0;
    do {
        begun = begun_of(conns);
        swarm_run_for(&b->swarm, SETTLE_S);
    } while (begun_of(conns) > begun && !b->swarm.failed);
}

static void ask_all_answers(struct bench *b, struct h2 *conns, const struct start *starts)
{
    for (unsigned i = 0; i < CONNECTIONS; i++)
        h2_open(&conns[i], &b->swarm, 0, NULL);
    for (unsigned i = 0; i < ANSWERS; i++) {
        char path[PATH_MAX_];
        snprintf(path, sizeof path, "/v1/stream/%s?offset=%s",
                 stream_name("windows", i % STREAMS).text, starts[i].offset);
        h2_call(&conns[i % CONNECTIONS], "GET", path, NULL, 0);
    }
    for (unsigned i = 0; i < CONNECTIONS; i++)
        h2_flush(&conns[i]);
    settle(b, conns);
}

static void report_windows(struct bench *b, const struct h2 *conns)
{
    double memory = (double)server_memory(&b->server);
    if (b->swarm.failed || memory <= 0)
        return;
    row_note(report_add(&b->report, "scale-windows", memory / (CACHE + SPARE)),
             "%.0f MB of memory, %llu answers begun", memory / 1e6,
             (unsigned long long)begun_of(conns));
}

/* Nobody else may suffer: a reader with a window still gets what rests. */
static void read_beside(struct bench *b)
{
    struct tally tally = {0};
    ask_all(b, stream_name("windows", 1), &tally);
    if (!b->swarm.failed && tally.bytes != (uint64_t)ANSWERS / STREAMS * PIECE)
        swarm_fail(&b->swarm, "a stream was not read whole beside closed windows");
}

void phase_windows(struct bench *b)
{
    struct h2 *conns = mem_zalloc(CONNECTIONS * sizeof *conns);
    progress("scale-windows: %d answers with closed windows over 200 MB", ANSWERS);
    struct start *starts = fill_streams(b);
    bench_stop(b, false);
    bench_start(b);
    ask_all_answers(b, conns, starts);
    report_windows(b, conns);
    read_beside(b);
    for (unsigned i = 0; i < CONNECTIONS; i++)
        h2_close(&conns[i]);
    free(conns);
    free(starts);
}
