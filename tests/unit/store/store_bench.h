// SPDX-License-Identifier: Apache-2.0
/* store_bench.h -- the embedded store on a simulated disk, operated one step at a time; for tests
 * that look at its files. To be included after cmocka.h. */
#ifndef UNIT_STORE_BENCH_H
#define UNIT_STORE_BENCH_H

#include "base/err.h"
#include "base/mem.h"
#include "fault/simfs.h"
#include "fault/simlane.h"
#include "model/index_dump.h"
#include "model/seeds.h"
#include "store/embedded/embedded.h"
#include "store/embedded/segment.h"
#include "store/embedded/segment_format.h"
#include "store/embedded/vfs.h"

#include <stdlib.h>

#define TURNS_MAX 2000
#define NAMES     8

struct bench {
    struct simfs *fs;
    struct sched sched;
    struct embedded_config config;
    struct embedded_lanes lanes;
    struct store *store;
    char dir[64], index[80], why[400];
    bool stopped;
    struct rng rng;
    uint64_t seqs[NAMES];
    unsigned serial;
};

static inline void pass_turns(struct bench *b, int n)
{
    while (n-- > 0)
        sched_turn(&b->sched, b->sched.now_ms + SCHED_TICK_MS, b->sched.wall_ms + SCHED_TICK_MS);
}

static inline bool bench_open(struct bench *b)
{
    b->lanes = (struct embedded_lanes){simlane_new(&b->sched, 1, 1), simlane_new(&b->sched, 2, 1),
                                       simlane_new(&b->sched, 3, 1), simlane_new(&b->sched, 4, 1)};
    b->store = embedded_open(&b->sched, simfs_vfs(b->fs), b->index, &b->lanes, &b->config, b->why,
                             sizeof b->why);
    pass_turns(b, 20);
    return b->store != NULL;
}

static inline void note_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static inline void bench_close(struct bench *b)
{
    b->stopped = false;
    if (b->store != NULL) {
        store_stop(b->store, note_stopped, &b->stopped);
        for (int i = 0; i < TURNS_MAX && !b->stopped; i++)
            pass_turns(b, 1);
        assert_true(b->stopped);
        store_free(b->store);
        b->store = NULL;
    }
    lane_free(b->lanes.journal);
    lane_free(b->lanes.prepare);
    lane_free(b->lanes.rest);
    lane_free(b->lanes.read);
    b->lanes = (struct embedded_lanes){0};
}

static inline struct bench *bench_new(uint64_t seed)
{
    struct bench *b = mem_zalloc(sizeof *b);
    b->rng.state = seed;
    b->fs = simfs_new(seed);
    sched_init(&b->sched, 0, 1700000000000);
    b->config = EMBEDDED_DEFAULTS;
    b->config.journal.file_bytes = JOURNAL_FILE_MIN;
    b->config.checkpoint_age_ms = 1000000;
    b->config.cache_bytes = 0;
    b->config.rest.rewrite_bytes = 0;
    b->config.rest.reserve_bytes = 1024;
    b->config.rest_at_stop = false; /* what a store holds when it is closed is in both places */
    b->config.index_sync = false;
    strcpy(b->dir, "/tmp/tidemark-rebuild-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    snprintf(b->index, sizeof b->index, "%s/index.mdb", b->dir);
    return b;
}

static inline void bench_free(struct bench *b)
{
    bench_close(b);
    simfs_free(b->fs);
    index_forget(b->index);
    assert_int_equal(rmdir(b->dir), 0); /* and nothing else was left there */
    free(b);
}

/* ---- operations, one at a time ---- */

#define PENDING 1

static inline int await(struct bench *b, const int *err)
{
    for (int i = 0; i < TURNS_MAX && *err == PENDING; i++)
        pass_turns(b, 1);
    assert_int_not_equal(*err, PENDING);
    return *err;
}

struct writing {
    struct store_write op;
    int err;
};

static inline void on_written(struct store_write *w, int err)
{
    container_of(w, struct writing, op)->err = err;
}

static inline int write_op(struct bench *b, struct store_write op)
{
    struct writing w = {.op = op, .err = PENDING};
    w.op.done = on_written;
    store_write(b->store, &w.op);
    return await(b, &w.err);
}

static inline int create(struct bench *b, const char *name, const char *fork_of)
{
    struct stream_config config = {
        .content_type = STR("text/plain"), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    if (fork_of != NULL) {
        config.fork_of = str_of_cstr(fork_of);
        config.content_type = STR_NONE;
        config.fork_at_tail = true;
    }
    return write_op(b, (struct store_write){.name = str_of_cstr(name), .create = &config});
}

static inline int append(struct bench *b, const char *name, struct str data)
{
    return write_op(b,
                    (struct store_write){.name = str_of_cstr(name), .data = data, .n_events = 1});
}

struct removing {
    struct store_remove op;
    int err;
};

static inline void on_removed(struct store_remove *r, int err)
{
    container_of(r, struct removing, op)->err = err;
}

static inline int remove_stream(struct bench *b, const char *name)
{
    struct removing r = {.op = {.name = str_of_cstr(name), .done = on_removed}, .err = PENDING};
    store_remove(b->store, &r.op);
    return await(b, &r.err);
}

struct putting {
    struct store_put op;
    int err;
};

static inline void on_put(struct store_put *p, int err)
{
    container_of(p, struct putting, op)->err = err;
}

static inline int put_doc(struct bench *b, struct str key, struct str value, uint64_t version)
{
    struct doc_put doc = {key, value, version};
    struct putting p = {.op = {.docs = &doc, .n_docs = 1, .done = on_put}, .err = PENDING};
    store_put(b->store, &p.op);
    return await(b, &p.err);
}

static inline void checkpoint(struct bench *b)
{
    embedded_checkpoint(b->store);
    pass_turns(b, 100);
}

/* ---- what a store shows ---- */

struct reading {
    struct store_read op;
    struct buf *out;
    int err;
};

static inline void on_read(struct store_read *r, int err)
{
    struct reading *reading = container_of(r, struct reading, op);
    reading->err = err;
    for (uint32_t i = 0; err == 0 && i < r->n_slices; i++)
        buf_put(reading->out, r->slices[i].bytes);
    if (err == 0)
        store_read_release(r);
}

static inline void show_stream(struct bench *b, const char *name, struct buf *out)
{
    struct offset at = {0};
    for (bool more = true; more;) {
        struct reading r = {.op = {.name = str_of_cstr(name),
                                   .from = READ_AT,
                                   .at = at,
                                   .max_bytes = SIZE_MAX,
                                   .done = on_read},
                            .out = out,
                            .err = PENDING};
        store_read(b->store, &r.op);
        int err = await(b, &r.err);
        at = (struct offset){r.op.info.life, r.op.next};
        more = err == 0 && r.op.next < r.op.info.tail;
        if (!more)
            buf_printf(out, "\n%s: %d, life %" PRIu64 ", tail %" PRIu64 "\n", name, err,
                       err == 0 ? at.life : 0, err == 0 ? at.pos : 0);
    }
}

struct listing {
    struct store_docs op;
    struct buf *out;
    int err;
};

static inline void on_docs(struct store_docs *d, int err)
{
    struct listing *l = container_of(d, struct listing, op);
    for (size_t i = 0; err == 0 && i < d->n_rows; i++) {
        buf_put(l->out, d->rows[i].key);
        buf_printf(l->out, " %" PRIu64 " ", d->rows[i].version);
        buf_put(l->out, d->rows[i].value);
        buf_putc(l->out, '\n');
    }
    l->err = err;
}

static inline const char *name_of(size_t i)
{
    static const char *const names[NAMES] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    return names[i];
}

/* Streams, those that are deleted too; what their producers are told; documents. */
static inline void show_all(struct bench *b, struct buf *out)
{
    for (size_t i = 0; i < NAMES; i++) {
        show_stream(b, name_of(i), out);
        for (uint64_t epoch = 0; b->seqs[i] > 0 && epoch < 2; epoch++) {
            struct writing w = {.op = {.name = str_of_cstr(name_of(i)),
                                       .data = STR("again"),
                                       .n_events = 1,
                                       .claim = {STR("p"), epoch, b->seqs[i] - 1},
                                       .data_err = ERR_JSON,
                                       .done = on_written},
                                .err = PENDING};
            store_write(b->store, &w.op); /* a duplicate, or refused: nothing changes */
            buf_printf(out, "%d %d\n", await(b, &w.err), w.op.duplicate);
        }
    }
    struct listing l = {.op = {.limit = SIZE_MAX, .done = on_docs}, .out = out, .err = PENDING};
    store_docs(b->store, &l.op);
    assert_int_equal(await(b, &l.err), 0);
}

static inline uint64_t segments_there(struct bench *b)
{
    uint64_t *ids;
    size_t n;
    assert_int_equal(segment_list(simfs_vfs(b->fs), &ids, &n), 0);
    free(ids);
    return n;
}

static inline struct index_meta meta_of(struct bench *b)
{
    struct index_load nothing = {0};
    struct index_meta meta;
    char why[256];
    struct index *i = index_open(b->index, false, why, sizeof why);
    assert_non_null(i);
    assert_int_equal(index_load(i, &nothing, &meta), 0);
    index_close(i);
    return meta;
}

static inline void assert_shows(struct bench *b, const char *name, const char *begins)
{
    struct buf shown = {0};
    show_stream(b, name, &shown);
    if (!str_starts(buf_str(&shown), str_of_cstr(begins)))
        fail_msg("%s: %.*s", name, (int)shown.n, shown.p);
    buf_deinit(&shown);
}

/* Flips a bit of the last occurrence of a text. */
static inline void damage_text(struct bench *b, uint64_t id, struct str text)
{
    char name[SEGMENT_NAME_MAX];
    segment_name(id, name);
    struct str file = simfs_content(b->fs, name);
    const char *found = NULL, *at = file.p;
    while ((at = memmem(at, file.n - (size_t)(at - file.p), text.p, text.n)) != NULL)
        found = at++;
    assert_non_null(found);
    simfs_flip(b->fs, name, (uint64_t)(found - file.p), 1);
}

#endif
