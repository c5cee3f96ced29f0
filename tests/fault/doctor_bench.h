// SPDX-License-Identifier: Apache-2.0
/* doctor_bench.h -- a store for the doctor's tests: work that fills it, what it shows, its disk to
 * be had again, and what the doctor says of it. */
#ifndef FAULT_DOCTOR_BENCH_H
#define FAULT_DOCTOR_BENCH_H

#include "base/err.h"
#include "base/mem.h"
#include "fault/simfs.h"
#include "fault/simlane.h"
#include "model/index_dump.h"
#include "model/seeds.h"
#include "store/doctor/doctor.h"
#include "store/embedded/embedded.h"
#include "store/embedded/index_core.h"
#include "store/embedded/journal_format.h"
#include "store/embedded/segment_format.h"
#include "store/embedded/vfs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#define TURNS_MAX 2000
#define STEPS     90
#define NAMES     8

/* ---- a store on a simulated disk ---- */

struct bench {
    struct simfs *fs;
    struct sched sched;
    struct embedded_config config;
    struct embedded_lanes lanes;
    struct store *store;
    char dir[64], index[80], why[512];
    bool stopped;
    struct rng rng;
    uint64_t seqs[NAMES];
    unsigned serial;
    bool keeps_all; /* no retention, whose trims would be batches of their own */

    struct doctor doctor;
    struct buf wrong, notes, done; /* what it said, a line each */
    uint64_t merged;               /* blocks, by all stores that were open */
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
        b->merged += embedded_merged(b->store);
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
    b->config.rest.reserve_bytes = 1024;
    b->config.rest.base_bytes = rng_between(&b->rng, 1, 8) * 1000;
    b->config.rest.base_files = rng_between(&b->rng, 1, 12);
    b->config.rest.merge_fan = 2 + seed % 3;
    b->config.rest_at_stop = false; /* there is to be something in the journal */
    b->config.index_sync = false;
    strcpy(b->dir, "/tmp/tidemark-doctor-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    snprintf(b->index, sizeof b->index, "%s/index.mdb", b->dir);
    return b;
}

static inline void forget_damaged(struct bench *b)
{
    for (int i = 1; i < 9; i++) {
        char path[100];
        snprintf(path, sizeof path, i == 1 ? "%s.damaged" : "%s.damaged.%d", b->index, i);
        unlink(path);
    }
}

static inline void bench_free(struct bench *b)
{
    bench_close(b);
    simfs_free(b->fs);
    index_forget(b->index);
    forget_damaged(b);
    assert_int_equal(rmdir(b->dir), 0); /* and nothing else was left there */
    buf_deinit(&b->wrong);
    buf_deinit(&b->notes);
    buf_deinit(&b->done);
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

static inline int create(struct bench *b, const char *name, const char *fork_of, uint64_t retain)
{
    struct stream_config config = {.content_type = STR("text/plain"),
                                   .ttl_s = STORE_TTL_NONE,
                                   .expires_ms = STORE_TTL_NONE,
                                   .retain = {.events = retain}};
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

static inline const char *name_of(size_t i)
{
    static const char *const names[NAMES] = {"s/a", "s/b", "s/c", "s/d",
                                             "s/e", "s/f", "s/g", "s/h"};
    return names[i];
}

/* What is shown of a stream, in a line; events carry their own ends. The error of a read that
 * fails, or 0. */
static inline int show_stream(struct bench *b, const char *name, struct buf *out)
{
    struct reading r;
    enum read_from from = READ_START;
    struct offset at = {0};
    out->n = 0;
    for (bool more = true; more; from = READ_AT) {
        r = (struct reading){.op = {.name = str_of_cstr(name),
                                    .from = from,
                                    .at = at,
                                    .max_bytes = 4000,
                                    .done = on_read},
                             .out = out,
                             .err = PENDING};
        store_read(b->store, &r.op);
        int err = await(b, &r.err);
        at = (struct offset){r.op.info.life, r.op.next};
        more = err == 0 && r.op.next < r.op.info.tail;
    }
    if (r.err == 0)
        buf_printf(out,
                   " | life %" PRIu64 ", %" PRIu64 " to %" PRIu64 ", events %" PRIu64 " to %" PRIu64
                   ", end %d",
                   r.op.info.life, r.op.info.first, r.op.info.tail, r.op.info.first_event,
                   r.op.info.events, r.op.info.end);
    else
        buf_printf(out, " | error %d", r.err);
    return r.err;
}

struct asking {
    struct store_stat op;
    int err;
};

static inline void on_stat(struct store_stat *s, int err)
{
    container_of(s, struct asking, op)->err = err;
}

static inline uint64_t life_of(struct bench *b, const char *name)
{
    struct asking a = {.op = {.name = str_of_cstr(name), .done = on_stat}, .err = PENDING};
    store_stat(b->store, &a.op);
    return await(b, &a.err) == 0 ? a.op.info.life : 0;
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
    }
    l->err = err;
}

/* Streams, what their producers are told, and documents. */
struct shown {
    struct buf streams[NAMES];
    int errs[NAMES];
    uint64_t lives[NAMES];
    struct buf docs;
};

static inline void shown_free(struct shown *s)
{
    for (size_t i = 0; i < NAMES; i++)
        buf_deinit(&s->streams[i]);
    buf_deinit(&s->docs);
}

static inline void show(struct bench *b, struct shown *out)
{
    *out = (struct shown){0};
    for (size_t i = 0; i < NAMES; i++) {
        struct buf *s = &out->streams[i];
        out->errs[i] = show_stream(b, name_of(i), s);
        out->lives[i] = life_of(b, name_of(i));
        if (b->seqs[i] == 0)
            continue;
        struct writing w = {.op = {.name = str_of_cstr(name_of(i)),
                                   .data = STR("again"),
                                   .n_events = 1,
                                   .claim = {STR("p"), 0, b->seqs[i] - 1},
                                   .data_err = ERR_JSON,
                                   .done = on_written},
                            .err = PENDING};
        store_write(b->store, &w.op); /* a duplicate, or refused: nothing changes */
        await(b, &w.err);
        buf_printf(s, ", producer %d %d", w.err, w.op.duplicate);
    }
    struct listing l = {
        .op = {.limit = SIZE_MAX, .done = on_docs}, .out = &out->docs, .err = PENDING};
    store_docs(b->store, &l.op);
    assert_int_equal(await(b, &l.err), 0);
}

/* Without the repetitions that events are made of. */
static inline void print_short(const char *what, const struct buf *shown)
{
    fprintf(stderr, "%s", what);
    for (size_t i = 0; i < shown->n; i++)
        if (i < 3 || shown->p[i] != shown->p[i - 1] || shown->p[i] != shown->p[i - 2])
            fputc(shown->p[i], stderr);
    fputc('\n', stderr);
}

static inline bool is_same(const struct shown *a, const struct shown *b, bool tell)
{
    bool same = str_eq(buf_str(&a->docs), buf_str(&b->docs));
    for (size_t i = 0; i < NAMES; i++) {
        bool one = str_eq(buf_str(&a->streams[i]), buf_str(&b->streams[i]));
        if (!one && tell) {
            print_short(name_of(i), &(struct buf){0});
            print_short("  was ", &a->streams[i]);
            print_short("  is  ", &b->streams[i]);
        }
        same &= one;
    }
    return same;
}

/* ---- work ---- */

/* An event with its own end: "<12aaaa>". */
static inline struct str make_event(struct bench *b, char *text, size_t size)
{
    size_t n = rng_between(&b->rng, 1, rng_one_in(&b->rng, 6) ? size - 20 : 40);
    int head = snprintf(text, size, "<%u", b->serial++);
    memset(text + head, 'a' + (int)(b->serial % 26), n);
    text[(size_t)head + n] = '>';
    return str_of(text, (size_t)head + n + 1);
}

static inline void change_at_random(struct bench *b)
{
    char text[3000];
    struct rng *rng = &b->rng;
    size_t i = rng_below(rng, NAMES);
    const char *name = name_of(i);
    struct str data = make_event(b, text, sizeof text);
    switch (rng_below(rng, 10)) {
    case 0:
        if (create(b, name, NULL, !b->keeps_all && rng_one_in(rng, 3) ? 4 : 0) == 0)
            b->seqs[i] = 0;
        break;
    case 1:
        if (create(b, name, name_of(rng_below(rng, NAMES)), 0) == 0)
            b->seqs[i] = 0;
        break;
    case 2:
        if (rng_one_in(rng, 2) && remove_stream(b, name) == 0)
            b->seqs[i] = 0;
        break;
    case 3: put_doc(b, str_of(&"klm"[rng_below(rng, 3)], 1), data, rng_below(rng, 3)); break;
    case 4:
    case 5:
        b->seqs[i] += write_op(b, (struct store_write){.name = str_of_cstr(name),
                                                       .data = data,
                                                       .n_events = 1,
                                                       .claim = {STR("p"), 0, b->seqs[i]}}) == 0;
        break;
    default: append(b, name, data); break;
    }
}

/* Checkpoints of all kinds of changes. */
static inline void work(struct bench *b)
{
    assert_true(bench_open(b));
    for (size_t i = 0; i < NAMES; i++)
        assert_int_equal(create(b, name_of(i), NULL, 0), 0);
    for (unsigned step = 0; step < STEPS; step++) {
        change_at_random(b);
        if (rng_one_in(&b->rng, 8))
            checkpoint(b);
    }
    checkpoint(b);
}

/* ---- the doctor ---- */

static inline void hear(void *ctx, enum doctor_tone tone, const char *sentence)
{
    struct bench *b = ctx;
    struct buf *out = tone == DOCTOR_NOTE ? &b->notes : tone == DOCTOR_WRONG ? &b->wrong : &b->done;
    buf_printf(out, "%s\n", sentence);
}

static inline int consult(struct bench *b, bool repair)
{
    b->wrong.n = b->notes.n = b->done.n = 0;
    b->doctor = (struct doctor){
        .vfs = simfs_vfs(b->fs), .index_path = b->index, .repair = repair, .ctx = b, .say = hear};
    return doctor_run(&b->doctor, b->why, sizeof b->why);
}

static inline bool says(const struct buf *lines, const char *text)
{
    return lines->n > 0 && memmem(lines->p, lines->n, text, strlen(text)) != NULL;
}

static inline void tell(const struct bench *b, const char *what)
{
    print_error("%s: %s\nwrong:\n%.*snotes:\n%.*sdone:\n%.*s", what, b->why, (int)b->wrong.n,
                b->wrong.p, (int)b->notes.n, b->notes.p, (int)b->done.n, b->done.p);
}

#define CHECK(b, what)                                                                             \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            tell(b, #what);                                                                        \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

static inline void assert_sound(struct bench *b)
{
    CHECK(b, consult(b, false) == 0);
    CHECK(b, b->doctor.found == 0 && b->doctor.left == 0 && b->wrong.n == 0);
    CHECK(b, !b->doctor.repaired && b->done.n == 0);
}

/* ---- the disk, to be had again ---- */

struct image {
    struct buf names[64]; /* with a NUL */
    struct buf contents[64];
    size_t n;
    struct buf index;
    uint64_t seqs[NAMES]; /* of the producers */
};

struct taking {
    struct bench *bench;
    struct image *image;
    const char *folder;
};

static inline int take_file(void *ctx, const char *name)
{
    struct taking *t = ctx;
    struct image *im = t->image;
    assert_true(im->n < 64);
    buf_printf(&im->names[im->n], "%s/%s", t->folder, name);
    buf_putc(&im->names[im->n], '\0');
    buf_put(&im->contents[im->n], simfs_content(t->bench->fs, im->names[im->n].p));
    im->n++;
    return 0;
}

static inline void read_index(struct bench *b, struct buf *out)
{
    int fd = open(b->index, O_RDONLY);
    ssize_t n;
    assert_true(fd >= 0);
    while ((n = read(fd, buf_reserve(out, 65536), 65536)) > 0)
        out->n += (size_t)n;
    close(fd);
}

static inline void write_index(struct bench *b, struct str bytes)
{
    index_forget(b->index);
    forget_damaged(b);
    int fd = open(b->index, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes.p, bytes.n), bytes.n);
    close(fd);
}

static inline void image_take(struct bench *b, struct image *im)
{
    static const char *const folders[] = {"journal", "segments"};
    *im = (struct image){0};
    for (size_t i = 0; i < 2; i++) {
        struct taking t = {b, im, folders[i]};
        assert_int_equal(vfs_list(simfs_vfs(b->fs), folders[i], take_file, &t), 0);
    }
    read_index(b, &im->index);
    memcpy(im->seqs, b->seqs, sizeof im->seqs);
}

static inline void image_put(struct bench *b, const struct image *im)
{
    simfs_free(b->fs);
    b->fs = simfs_new(1);
    for (size_t i = 0; i < im->n; i++)
        simfs_put(b->fs, im->names[i].p, buf_str(&im->contents[i]));
    write_index(b, buf_str(&im->index));
    memcpy(b->seqs, im->seqs, sizeof im->seqs);
}

static inline void image_free(struct image *im)
{
    for (size_t i = 0; i < im->n; i++) {
        buf_deinit(&im->names[i]);
        buf_deinit(&im->contents[i]);
    }
    buf_deinit(&im->index);
}

/* One of the files of a folder that has something in it. */
static inline size_t pick_file(struct bench *b, const struct image *im, const char *folder)
{
    size_t i;
    do {
        i = rng_below(&b->rng, im->n);
    } while (strncmp(im->names[i].p, folder, strlen(folder)) != 0 ||
             strstr(im->names[i].p, "reserve") != NULL);
    return i;
}

#endif
