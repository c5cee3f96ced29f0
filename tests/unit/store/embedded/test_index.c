// SPDX-License-Identifier: Apache-2.0
/* The index against a naive model of it, against damage, and under readers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "model/seeds.h"
#include "store/embedded/index.h"
#include "store/embedded/index_core.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- a file of its own for each test ---- */

struct site {
    char dir[64], path[80];
    struct index *index;
};

static void site_open(struct site *s, bool sync)
{
    char why[256] = "";
    s->index = index_open(s->path, sync, why, sizeof why);
    if (s->index == NULL)
        fail_msg("%s", why);
}

static void site_init(struct site *s, bool sync)
{
    strcpy(s->dir, "/tmp/tidemark-index-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->path, sizeof s->path, "%s/index.mdb", s->dir);
    site_open(s, sync);
}

static void site_deinit(struct site *s)
{
    char lock[96];
    snprintf(lock, sizeof lock, "%s-lock", s->path);
    index_close(s->index);
    assert_int_equal(unlink(s->path), 0);
    unlink(lock);
    assert_int_equal(rmdir(s->dir), 0); /* and nothing else was left there */
}

static struct index_write *begin(struct site *s)
{
    struct index_write *w;
    assert_int_equal(index_begin(s->index, &w), 0);
    return w;
}

static struct block_info block(uint64_t life, uint64_t first, uint64_t end, uint64_t segment)
{
    return (struct block_info){
        .life = life,
        .first = first,
        .end = end,
        .ordinal = first / 2,
        .events = 1 + (end - first) / 3,
        .oldest_ms = (int64_t)(1700000000000 + first),
        .newest_ms = (int64_t)(1700000000000 + end),
        .place = {segment, life * 1000000 + first * 2, (uint32_t)(64 + (end - first))},
    };
}

static void assert_blocks_equal(const struct block_info *a, const struct block_info *b)
{
    assert_int_equal(a->life, b->life);
    assert_int_equal(a->first, b->first);
    assert_int_equal(a->end, b->end);
    assert_int_equal(a->ordinal, b->ordinal);
    assert_int_equal(a->events, b->events);
    assert_int_equal(a->oldest_ms, b->oldest_ms);
    assert_int_equal(a->newest_ms, b->newest_ms);
    assert_int_equal(a->place.segment, b->place.segment);
    assert_int_equal(a->place.offset, b->place.offset);
    assert_int_equal(a->place.bytes, b->place.bytes);
}

/* ---- the naive one ---- */

#define LIVES     10
#define BLOCKS    48
#define PRODUCERS 6
#define DOCS      8
#define SEGMENTS  24

struct naive_stream {
    uint64_t version; /* 0: no row. The row is made from it. */
    struct block_info blocks[BLOCKS];
    size_t n_blocks;
    struct producer_state producers[PRODUCERS]; /* epoch 0: none */
    uint64_t tail;
};

struct naive_segment {
    bool there;
    uint64_t bytes;
};

/* No pointers in it: a copy is a snapshot. */
struct naive {
    struct naive_stream streams[LIVES];
    uint64_t docs[DOCS]; /* versions; 0: none */
    struct naive_segment segments[SEGMENTS];
    struct index_meta meta;
};

struct world {
    struct rng rng;
    struct site site;
    struct naive now, committed;
    struct index_write *write;
    uint64_t version; /* of rows and docs: each put differs */
    uint64_t next_segment;

    /* what a comparison has seen */
    size_t seen_streams, seen_producers, seen_docs, seen_segments, seen_blocks;
    uint64_t life, segment, from, below;
};

static uint64_t draw_life(struct world *w)
{
    return rng_below(&w->rng, LIVES);
}

/* Life 0 to 9 here is far apart in the index, so that byte order is put to the test. */
static uint64_t life_of(uint64_t i)
{
    return i < 5 ? i + 1 : i * 1000003 + ((uint64_t)1 << (i * 7));
}

static uint64_t index_of(uint64_t life)
{
    for (uint64_t i = 0; i < LIVES; i++)
        if (life_of(i) == life)
            return i;
    fail_msg("a life that nobody made");
    return 0;
}

static struct str producer_id(uint64_t i, char *out)
{
    size_t n = i == 0 ? 1 : 40 * i; /* ids longer than a key may be */
    memset(out, (int)('a' + i), n);
    return str_of(out, n);
}

static struct str doc_key(uint64_t i, char *out)
{
    size_t n = i == 0 ? 1 : i == 1 ? 1024 : 100 * i;
    memset(out, 'k', n);
    out[n - 1] = (char)('0' + i);
    return str_of(out, n);
}

/* A text that follows from its version, up to 64 KiB. */
static struct str text_of(uint64_t version, struct buf *out)
{
    size_t n = version % 17 == 0 ? 65536 : (size_t)(version * 37 % 700);
    out->n = 0;
    memset(buf_reserve(out, n + 1), (int)('a' + version % 26), n);
    out->n = n;
    return buf_str(out);
}

/* ---- both change ---- */

static uint64_t draw_segment(struct world *w)
{
    return w->next_segment == 0 || rng_one_in(&w->rng, 6)
               ? w->next_segment++ % SEGMENTS
               : (w->next_segment - 1 - rng_below(&w->rng, w->next_segment < 3 ? 1 : 3)) % SEGMENTS;
}

static void do_put_stream(struct world *w)
{
    uint64_t i = draw_life(w);
    struct buf text = {0};
    w->now.streams[i].version = ++w->version;
    assert_int_equal(index_put_stream(w->write, life_of(i), text_of(w->version, &text)), 0);
    buf_deinit(&text);
}

static void naive_put_block(struct world *w, uint64_t i, const struct block_info *b)
{
    struct naive_stream *s = &w->now.streams[i];
    size_t at = 0;
    w->now.segments[b->place.segment].there = true;
    while (at < s->n_blocks && s->blocks[at].first < b->first)
        at++;
    if (at == s->n_blocks || s->blocks[at].first != b->first) {
        memmove(&s->blocks[at + 1], &s->blocks[at], (s->n_blocks - at) * sizeof *b);
        s->n_blocks++;
    }
    s->blocks[at] = *b;
}

static void do_put_block(struct world *w)
{
    uint64_t i = draw_life(w);
    struct naive_stream *s = &w->now.streams[i];
    if (s->n_blocks == BLOCKS)
        return;
    uint64_t n = rng_between(&w->rng, 1, 500);
    struct block_info b = block(life_of(i), s->tail, s->tail + n, draw_segment(w));
    b.place.offset = ++w->version << 40;              /* where no other is */
    s->tail += n + (rng_one_in(&w->rng, 10) ? 5 : 0); /* sometimes a hole */
    assert_int_equal(index_put_block(w->write, life_of(i), &b), 0);
    naive_put_block(w, i, &b);
}

/* Rewriting: the same row with another place. */
static void do_move_block(struct world *w)
{
    uint64_t i = draw_life(w);
    struct naive_stream *s = &w->now.streams[i];
    if (s->n_blocks == 0)
        return;
    struct block_info b = s->blocks[rng_below(&w->rng, s->n_blocks)];
    b.place.segment = draw_segment(w);
    b.place.offset = ++w->version << 40;
    assert_int_equal(index_put_block(w->write, life_of(i), &b), 0);
    naive_put_block(w, i, &b);
}

static void do_put_producer(struct world *w)
{
    char id[40 * PRODUCERS];
    uint64_t i = draw_life(w), p = rng_below(&w->rng, PRODUCERS);
    struct producer_claim claim = {producer_id(p, id), rng_between(&w->rng, 1, 9),
                                   rng_next(&w->rng)};
    w->now.streams[i].producers[p] = (struct producer_state){claim.epoch, claim.seq};
    assert_int_equal(index_put_producer(w->write, life_of(i), &claim), 0);
}

static void do_doc(struct world *w)
{
    char key[1024];
    struct buf text = {0};
    uint64_t i = rng_below(&w->rng, DOCS);
    struct str k = doc_key(i, key);
    if (rng_one_in(&w->rng, 3)) {
        w->now.docs[i] = 0;
        assert_int_equal(index_remove_doc(w->write, k), 0);
        return;
    }
    w->now.docs[i] = ++w->version;
    assert_int_equal(index_put_doc(w->write, k, w->version, text_of(w->version, &text)), 0);
    buf_deinit(&text);
}

static void do_fork(struct world *w)
{
    uint64_t from = draw_life(w), to = draw_life(w);
    struct naive_stream *s = &w->now.streams[from], *t = &w->now.streams[to];
    if (from == to || t->n_blocks > 0 || s->tail == 0)
        return;
    uint64_t upto = rng_between(&w->rng, 0, s->tail + 3);
    assert_int_equal(index_copy_blocks(w->write, life_of(from), life_of(to), upto), 0);
    for (size_t b = 0; b < s->n_blocks && s->blocks[b].first < upto; b++) {
        struct block_info copy = s->blocks[b];
        if (copy.end > upto)
            copy.end = upto;
        naive_put_block(w, to, &copy);
    }
    if (t->tail < upto)
        t->tail = upto;
}

static void drop_front(struct naive_stream *s, uint64_t pos)
{
    size_t gone = 0;
    while (gone < s->n_blocks && s->blocks[gone].end <= pos)
        gone++;
    s->n_blocks -= gone;
    memmove(s->blocks, s->blocks + gone, s->n_blocks * sizeof *s->blocks);
}

static void do_trim(struct world *w)
{
    uint64_t i = draw_life(w), pos = rng_below(&w->rng, w->now.streams[i].tail + 2);
    assert_int_equal(index_trim(w->write, life_of(i), pos), 0);
    drop_front(&w->now.streams[i], pos);
}

static void do_remove(struct world *w)
{
    uint64_t i = draw_life(w);
    assert_int_equal(index_remove_stream(w->write, life_of(i)), 0);
    w->now.streams[i] = (struct naive_stream){0};
}

static void do_add_segment(struct world *w)
{
    uint64_t id = draw_segment(w);
    w->now.segments[id].there = true;
    w->now.segments[id].bytes = ++w->version;
    assert_int_equal(index_add_segment(w->write, id, w->version), 0);
}

static void do_meta(struct world *w)
{
    w->now.meta = (struct index_meta){.batch = rng_next(&w->rng),
                                      .lives = rng_next(&w->rng),
                                      .next_segment = rng_next(&w->rng),
                                      .wall_ms = (int64_t)rng_next(&w->rng),
                                      .base = rng_next(&w->rng),
                                      .base_bytes = rng_next(&w->rng),
                                      .note_bytes = rng_next(&w->rng)};
    assert_int_equal(index_put_meta(w->write, &w->now.meta), 0);
}

static bool same_place(const struct block_info *a, const struct block_info *b)
{
    return a->place.segment == b->place.segment && a->place.offset == b->place.offset;
}

/* Whether a row that comes before this one tells of the same block. */
static bool seen_before(const struct naive *n, size_t stream, size_t row)
{
    const struct block_info *b = &n->streams[stream].blocks[row];
    for (size_t i = 0; i <= stream; i++)
        for (size_t k = 0; k < n->streams[i].n_blocks && (i < stream || k < row); k++)
            if (same_place(&n->streams[i].blocks[k], b))
                return true;
    return false;
}

static struct index_segment count_segment(const struct naive *n, uint64_t id)
{
    struct index_segment g = {.id = id, .bytes = n->segments[id].bytes};
    for (size_t i = 0; i < LIVES; i++)
        for (size_t b = 0; b < n->streams[i].n_blocks; b++)
            if (n->streams[i].blocks[b].place.segment == id) {
                g.live_rows++;
                g.live_bytes += seen_before(n, i, b) ? 0 : n->streams[i].blocks[b].place.bytes;
            }
    return g;
}

static int on_dead(void *ctx, uint64_t id)
{
    struct world *w = ctx;
    assert_true(id < w->below && w->now.segments[id].there);
    assert_int_equal(count_segment(&w->now, id).live_rows, 0);
    w->now.segments[id] = (struct naive_segment){0};
    return 0;
}

static void do_bury(struct world *w)
{
    w->below = rng_one_in(&w->rng, 2) ? SEGMENTS : rng_below(&w->rng, SEGMENTS);
    assert_int_equal(index_dead_segments(w->write, w->below, on_dead, w), 0);
    for (uint64_t id = 0; id < w->below; id++)
        if (w->now.segments[id].there)
            assert_true(count_segment(&w->now, id).live_rows > 0);
}

static void do_clear(struct world *w)
{
    struct index_meta meta = w->now.meta;
    assert_int_equal(index_clear(w->write), 0);
    w->now = (struct naive){.meta = meta};
}

/* ---- both are compared ---- */

static int see_stream(void *ctx, uint64_t life, struct str row)
{
    struct world *w = ctx;
    struct buf text = {0};
    uint64_t version = w->committed.streams[index_of(life)].version;
    assert_true(version > 0);
    assert_true(str_eq(row, text_of(version, &text)));
    buf_deinit(&text);
    w->seen_streams++;
    return 0;
}

static int see_producer(void *ctx, uint64_t life, const struct producer_claim *p)
{
    struct world *w = ctx;
    char id[40 * PRODUCERS];
    for (uint64_t i = 0; i < PRODUCERS; i++)
        if (str_eq(p->id, producer_id(i, id))) {
            struct producer_state *s = &w->committed.streams[index_of(life)].producers[i];
            assert_int_equal(s->epoch, p->epoch);
            assert_int_equal(s->seq, p->seq);
            w->seen_producers++;
            return 0;
        }
    fail_msg("a producer that nobody put");
    return 0;
}

static int see_doc(void *ctx, struct str key, uint64_t version, struct str value)
{
    struct world *w = ctx;
    char text[1024];
    for (uint64_t i = 0; i < DOCS; i++)
        if (str_eq(key, doc_key(i, text))) {
            struct buf expected = {0};
            assert_true(version > 0);
            assert_int_equal(version, w->committed.docs[i]);
            assert_true(str_eq(value, text_of(version, &expected)));
            buf_deinit(&expected);
            w->seen_docs++;
            return 0;
        }
    fail_msg("a document that nobody put");
    return 0;
}

static int see_segment(void *ctx, const struct index_segment *s)
{
    struct world *w = ctx;
    assert_true(s->id < SEGMENTS && w->committed.segments[s->id].there);
    struct index_segment expected = count_segment(&w->committed, s->id);
    assert_int_equal(s->live_rows, expected.live_rows);
    assert_int_equal(s->bytes, expected.bytes);
    assert_int_equal(s->live_bytes, expected.live_bytes);
    w->seen_segments++;
    return 0;
}

static void compare_tables(struct world *w)
{
    struct index_load load = {.ctx = w,
                              .stream = see_stream,
                              .producer = see_producer,
                              .doc = see_doc,
                              .segment = see_segment};
    struct index_meta meta;
    size_t streams = 0, producers = 0, docs = 0, segments = 0;
    w->seen_streams = w->seen_producers = w->seen_docs = w->seen_segments = 0;
    assert_int_equal(index_load(w->site.index, &load, &meta), 0);
    for (size_t i = 0; i < LIVES; i++) {
        streams += w->committed.streams[i].version > 0;
        for (size_t p = 0; p < PRODUCERS; p++)
            producers += w->committed.streams[i].producers[p].epoch > 0;
    }
    for (size_t i = 0; i < DOCS; i++)
        docs += w->committed.docs[i] > 0;
    for (size_t i = 0; i < SEGMENTS; i++)
        segments += w->committed.segments[i].there;
    assert_int_equal(w->seen_streams, streams);
    assert_int_equal(w->seen_producers, producers);
    assert_int_equal(w->seen_docs, docs);
    assert_int_equal(w->seen_segments, segments);
    assert_int_equal(meta.batch, w->committed.meta.batch);
    assert_int_equal(meta.lives, w->committed.meta.lives);
    assert_int_equal(meta.next_segment, w->committed.meta.next_segment);
    assert_int_equal(meta.wall_ms, w->committed.meta.wall_ms);
    assert_int_equal(meta.base, w->committed.meta.base);
    assert_int_equal(meta.base_bytes, w->committed.meta.base_bytes);
    assert_int_equal(meta.note_bytes, w->committed.meta.note_bytes);
}

static int see_block(void *ctx, const struct block_info *b)
{
    struct world *w = ctx;
    const struct naive_stream *s = &w->committed.streams[w->life];
    size_t i = 0;
    while (i < s->n_blocks && s->blocks[i].end <= w->from)
        i++;
    i += w->seen_blocks++;
    assert_true(i < s->n_blocks);
    assert_blocks_equal(&s->blocks[i], b);
    return 0;
}

static void compare_blocks(struct world *w, uint64_t i)
{
    const struct naive_stream *s = &w->committed.streams[i];
    size_t expected = 0;
    w->life = i;
    w->from = rng_one_in(&w->rng, 2) ? 0 : rng_below(&w->rng, s->tail + 2);
    w->seen_blocks = 0;
    assert_int_equal(index_blocks(w->site.index, life_of(i), w->from, see_block, w), 0);
    for (size_t b = 0; b < s->n_blocks; b++)
        expected += s->blocks[b].end > w->from;
    assert_int_equal(w->seen_blocks, expected);
}

static void compare_find(struct world *w, uint64_t i, uint64_t pos)
{
    const struct naive_stream *s = &w->committed.streams[i];
    const struct block_info *expected = NULL;
    struct block_info found;
    for (size_t b = 0; b < s->n_blocks; b++)
        if (s->blocks[b].first <= pos && pos < s->blocks[b].end)
            expected = &s->blocks[b];
    int err = index_find(w->site.index, life_of(i), pos, &found);
    assert_int_equal(err, expected != NULL ? 0 : ERR_NOT_FOUND);
    if (expected != NULL)
        assert_blocks_equal(expected, &found);
}

static int see_resident(void *ctx, uint64_t life, const struct block_info *b)
{
    struct world *w = ctx;
    const struct naive_stream *s = &w->committed.streams[index_of(life)];
    assert_int_equal(b->place.segment, w->segment);
    w->seen_blocks++;
    for (size_t i = 0; i < s->n_blocks; i++)
        if (s->blocks[i].first == b->first) {
            assert_blocks_equal(&s->blocks[i], b);
            return 0;
        }
    fail_msg("a block that nobody put");
    return 0;
}

static void compare(struct world *w)
{
    compare_tables(w);
    for (uint64_t i = 0; i < LIVES; i++) {
        const struct naive_stream *s = &w->committed.streams[i];
        compare_blocks(w, i);
        compare_find(w, i, 0);
        compare_find(w, i, s->tail);
        compare_find(w, i, UINT64_MAX);
        compare_find(w, i, rng_below(&w->rng, s->tail + 1));
        if (s->n_blocks > 0) {
            const struct block_info *b = &s->blocks[rng_below(&w->rng, s->n_blocks)];
            compare_find(w, i, b->first);
            compare_find(w, i, b->end - 1);
            compare_find(w, i, b->end);
        }
    }
    for (w->segment = 0; w->segment < SEGMENTS; w->segment++) {
        w->seen_blocks = 0;
        assert_int_equal(index_segment_blocks(w->site.index, w->segment, see_resident, w), 0);
        assert_int_equal(w->seen_blocks, count_segment(&w->committed, w->segment).live_rows);
    }
}

static int count_row(struct world *w, uint64_t life)
{
    assert_true(index_of(life) < LIVES);
    w->seen_streams++;
    return 0;
}

static int count_written_stream(void *ctx, uint64_t life, struct str row)
{
    return count_row(ctx, life);
}

static int count_written_block(void *ctx, uint64_t life, const struct block_info *b)
{
    return count_row(ctx, life);
}

static int count_written_producer(void *ctx, uint64_t life, const struct producer_claim *p)
{
    return count_row(ctx, life);
}

static int count_written_doc(void *ctx, struct str key, uint64_t version, struct str value)
{
    return count_row(ctx, life_of(0));
}

/* What is not committed yet can be read by who has written it. */
static void look_at_written(struct world *w)
{
    struct index_load load = {.ctx = w,
                              .stream = count_written_stream,
                              .block = count_written_block,
                              .producer = count_written_producer,
                              .doc = count_written_doc};
    size_t expected = 0;
    for (size_t i = 0; i < LIVES; i++) {
        expected += (w->now.streams[i].version > 0) + w->now.streams[i].n_blocks;
        for (size_t p = 0; p < PRODUCERS; p++)
            expected += w->now.streams[i].producers[p].epoch > 0;
    }
    for (size_t i = 0; i < DOCS; i++)
        expected += w->now.docs[i] > 0;
    w->seen_streams = 0;
    assert_int_equal(index_load_written(w->write, &load), 0);
    assert_int_equal(w->seen_streams, expected);
}

static void random_checkpoint(struct world *w)
{
    static void (*const steps[])(struct world * w) = {
        do_put_stream, do_put_block,    do_put_block, do_put_block,
        do_move_block, do_put_producer, do_doc,       do_add_segment,
        do_fork,       do_put_producer, do_put_block,
    };
    w->write = begin(&w->site);
    for (uint64_t n = rng_below(&w->rng, 60); n > 0; n--) {
        if (rng_one_in(&w->rng, 20))
            do_remove(w);
        else if (rng_one_in(&w->rng, 20))
            do_trim(w);
        else if (rng_one_in(&w->rng, 30))
            do_bury(w);
        else if (rng_one_in(&w->rng, 200))
            do_clear(w);
        else
            steps[rng_below(&w->rng, COUNT(steps))](w);
    }
    do_meta(w);
    if (rng_one_in(&w->rng, 2))
        do_bury(w);
    if (rng_one_in(&w->rng, 3))
        look_at_written(w);
    if (rng_one_in(&w->rng, 5)) {
        index_abort(w->write);
        w->now = w->committed;
        return;
    }
    assert_int_equal(index_commit(w->write), 0);
    w->committed = w->now;
}

static void random_world(struct rng *r)
{
    struct world *w = mem_zalloc(sizeof *w);
    w->rng = *r;
    w->now.meta.next_segment = w->committed.meta.next_segment = 1;
    site_init(&w->site, false);
    for (int n = 0; n < 25; n++) {
        compare(w);
        random_checkpoint(w);
        if (rng_one_in(&w->rng, 5)) {
            index_close(w->site.index);
            site_open(&w->site, false);
        }
    }
    compare(w);
    site_deinit(&w->site);
    free(w);
}

static void test_against_model(void **state)
{
    seeds_run(30, random_world);
}

/* ---- by hand ---- */

static void test_new(void **state)
{
    struct site s;
    struct index_meta meta;
    struct index_load nothing = {0};
    struct stat st;
    struct block_info b;
    site_init(&s, true);
    assert_int_equal(index_load(s.index, &nothing, &meta), 0);
    assert_int_equal(meta.batch, 0);
    assert_int_equal(meta.lives, 0);
    assert_int_equal(meta.next_segment, 1);
    assert_int_equal(meta.wall_ms, 0);
    assert_int_equal(index_find(s.index, 1, 0, &b), ERR_NOT_FOUND);
    assert_int_equal(stat(s.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_nlink, 1);
    struct index_write *w = begin(&s);
    meta = (struct index_meta){.batch = 5, .lives = 6, .next_segment = 7, .wall_ms = -8};
    assert_int_equal(index_put_meta(w, &meta), 0);
    assert_int_equal(index_commit(w), 0);
    index_close(s.index);
    site_open(&s, true);
    meta = (struct index_meta){0};
    assert_int_equal(index_load(s.index, &nothing, &meta), 0);
    assert_int_equal(meta.batch, 5);
    assert_int_equal(meta.wall_ms, -8);
    index_abort(NULL);
    index_close(NULL);
    site_deinit(&s);
}

/* What a crash leaves of making it: a file under the other name, which is made anew. */
static void test_made_anew(void **state)
{
    struct site s;
    char leftover[96];
    site_init(&s, false);
    index_close(s.index);
    assert_int_equal(unlink(s.path), 0);
    snprintf(leftover, sizeof leftover, "%s.new", s.path);
    FILE *f = fopen(leftover, "w");
    assert_non_null(f);
    assert_int_equal(fputs("half of an index", f) < 0, 0);
    assert_int_equal(fclose(f), 0);
    site_open(&s, false);
    site_deinit(&s); /* the folder has nothing else in it */
}

static void assert_refused(const char *path, const char *reason)
{
    char why[256] = "";
    assert_null(index_open(path, false, why, sizeof why));
    assert_non_null(strstr(why, path));
    if (strstr(why, reason) == NULL)
        fail_msg("%s", why);
}

static void test_no_index(void **state)
{
    struct site s;
    site_init(&s, false);
    index_close(s.index);
    s.index = NULL;
    FILE *f = fopen(s.path, "w");
    assert_non_null(f);
    for (int i = 0; i < 3000; i++)
        assert_true(fputs("not an index", f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_refused(s.path, "damaged");
    assert_int_equal(truncate(s.path, 0), 0);
    assert_refused(s.path, "damaged");
    assert_refused("/tmp/no such folder/index.mdb", "No such file");
    char deep[6000];
    memset(deep, 'x', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    char why[64];
    assert_null(index_open(deep, false, why, sizeof why));
    site_deinit(&s);
}

static int stop_at_block(void *ctx, const struct block_info *b)
{
    ++*(int *)ctx;
    return b->first == 10 ? ERR_CANCELLED : 0;
}

static int stop_at_resident(void *ctx, uint64_t life, const struct block_info *b)
{
    return stop_at_block(ctx, b);
}

static int stop_at_stream(void *ctx, uint64_t life, struct str row)
{
    ++*(int *)ctx;
    return ERR_NOT_FOUND; /* ours, not LMDB's */
}

static int stop_at_dead(void *ctx, uint64_t id)
{
    return ERR_CANCELLED;
}

static void test_callbacks_stop(void **state)
{
    struct site s;
    int n = 0;
    site_init(&s, false);
    struct index_write *w = begin(&s);
    for (uint64_t first = 0; first < 50; first += 10) {
        struct block_info b = block(1, first, first + 10, 3);
        assert_int_equal(index_put_block(w, 1, &b), 0);
        assert_int_equal(index_put_stream(w, first, STR("row")), 0);
    }
    assert_int_equal(index_commit(w), 0);
    assert_int_equal(index_blocks(s.index, 1, 0, stop_at_block, &n), ERR_CANCELLED);
    assert_int_equal(n, 2);
    assert_int_equal(index_segment_blocks(s.index, 3, stop_at_resident, &n), ERR_CANCELLED);
    assert_int_equal(n, 4);
    struct index_load load = {.ctx = &n, .stream = stop_at_stream};
    struct index_meta meta;
    assert_int_equal(index_load(s.index, &load, &meta), ERR_NOT_FOUND);
    assert_int_equal(n, 5);

    w = begin(&s);
    assert_int_equal(index_add_segment(w, 9, 100), 0);
    assert_int_equal(index_dead_segments(w, UINT64_MAX, stop_at_dead, NULL), ERR_CANCELLED);
    assert_int_equal(index_put_stream(w, 77, STR("row")), ERR_CANCELLED);
    assert_int_equal(index_commit(w), ERR_CANCELLED); /* and nothing of it has happened */
    n = 0;
    load.stream = NULL;
    w = begin(&s);
    assert_int_equal(index_dead_segments(w, UINT64_MAX, stop_at_dead, NULL),
                     0); /* there is no segment 9 */
    index_abort(w);
    site_deinit(&s);
}

/* A fork sees nothing of its source beyond its point, however the source goes on. */
static void test_fork_ends_at_its_point(void **state)
{
    struct site s;
    struct block_info b = block(1, 0, 100, 3), next = block(1, 100, 200, 3), found;
    site_init(&s, false);
    struct index_write *w = begin(&s);
    assert_int_equal(index_put_block(w, 1, &b), 0);
    assert_int_equal(index_put_block(w, 1, &next), 0);
    assert_int_equal(index_copy_blocks(w, 1, 2, 130), 0);
    assert_int_equal(index_copy_blocks(w, 1, 4, 100), 0);
    assert_int_equal(index_copy_blocks(w, 1, 5, 0), 0);
    assert_int_equal(index_copy_blocks(w, 2, 6, 120), 0); /* a fork of a fork */
    assert_int_equal(index_remove_stream(w, 1), 0);       /* reaches none of them */
    assert_int_equal(index_commit(w), 0);
    assert_int_equal(index_find(s.index, 2, 129, &found), 0);
    assert_int_equal(found.life, 1); /* what segment_read must be asked for */
    assert_int_equal(found.first, 100);
    assert_int_equal(found.end, 130);
    assert_int_equal(found.events, next.events);
    assert_int_equal(index_find(s.index, 2, 130, &found), ERR_NOT_FOUND);
    assert_int_equal(index_find(s.index, 4, 99, &found), 0);
    assert_int_equal(index_find(s.index, 4, 100, &found), ERR_NOT_FOUND);
    assert_int_equal(index_find(s.index, 5, 0, &found), ERR_NOT_FOUND);
    assert_int_equal(index_find(s.index, 6, 119, &found), 0);
    assert_int_equal(index_find(s.index, 6, 120, &found), ERR_NOT_FOUND);
    assert_int_equal(index_find(s.index, 1, 0, &found), ERR_NOT_FOUND);
    site_deinit(&s);
}

/* ---- damage ---- */

static const char *const names[TABLES] = {"meta", "stream",  "block",   "producer",
                                          "doc",  "segment", "resident"};

/* Changes the file behind the index's back. */
static void with_lmdb(struct site *s, enum table t,
                      void (*change)(MDB_txn *txn, MDB_dbi dbi, long n), long n)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, TABLES), 0);
    assert_int_equal(mdb_env_open(env, s->path, MDB_NOSUBDIR | MDB_NOSYNC | MDB_NOLOCK, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, names[t], 0, &dbi), 0);
    change(txn, dbi, n);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

static void first_row(MDB_txn *txn, MDB_dbi dbi, struct buf *key, struct buf *value)
{
    MDB_cursor *c;
    MDB_val k, v;
    assert_int_equal(mdb_cursor_open(txn, dbi, &c), 0);
    assert_int_equal(mdb_cursor_get(c, &k, &v, MDB_FIRST), 0);
    buf_put(key, str_of(k.mv_data, k.mv_size));
    buf_put(value, str_of(v.mv_data, v.mv_size));
    mdb_cursor_close(c);
}

static void put_raw(MDB_txn *txn, MDB_dbi dbi, struct str key, struct str value)
{
    MDB_val k = {key.n, (void *)key.p}, v = {value.n, (void *)value.p};
    assert_int_equal(mdb_put(txn, dbi, &k, &v, 0), 0);
}

static void flip_value(MDB_txn *txn, MDB_dbi dbi, long bit)
{
    struct buf key = {0}, value = {0};
    first_row(txn, dbi, &key, &value);
    size_t at = (size_t)bit / 8 % value.n;
    value.p[at] ^= (char)(1 << (bit & 7));
    put_raw(txn, dbi, buf_str(&key), buf_str(&value));
    buf_deinit(&key);
    buf_deinit(&value);
}

/* The first row's value under a key next to its own. */
static void move_value(MDB_txn *txn, MDB_dbi dbi, long n)
{
    struct buf key = {0}, value = {0};
    MDB_val k;
    first_row(txn, dbi, &key, &value);
    k = (MDB_val){key.n, key.p};
    assert_int_equal(mdb_del(txn, dbi, &k, NULL), 0);
    key.p[7] ^= 1;
    put_raw(txn, dbi, buf_str(&key), buf_str(&value));
    buf_deinit(&key);
    buf_deinit(&value);
}

static void shorten_value(MDB_txn *txn, MDB_dbi dbi, long n)
{
    struct buf key = {0}, value = {0};
    first_row(txn, dbi, &key, &value);
    put_raw(txn, dbi, buf_str(&key), str_of(value.p, (size_t)n));
    buf_deinit(&key);
    buf_deinit(&value);
}

static void remove_first(MDB_txn *txn, MDB_dbi dbi, long n)
{
    struct buf key = {0}, value = {0};
    first_row(txn, dbi, &key, &value);
    MDB_val k = {key.n, key.p};
    assert_int_equal(mdb_del(txn, dbi, &k, NULL), 0);
    buf_deinit(&key);
    buf_deinit(&value);
}

static int accept_stream(void *ctx, uint64_t life, struct str row)
{
    return 0;
}
static int accept_producer(void *ctx, uint64_t life, const struct producer_claim *p)
{
    return 0;
}
static int accept_doc(void *ctx, struct str key, uint64_t version, struct str value)
{
    return 0;
}
static int accept_segment(void *ctx, const struct index_segment *s)
{
    return 0;
}
static int accept_block(void *ctx, const struct block_info *b)
{
    return 0;
}
static int accept_resident(void *ctx, uint64_t life, const struct block_info *b)
{
    return 0;
}

static void copy_file(const char *from, const char *to)
{
    struct buf all = {0};
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t n;
    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, buf_reserve(&all, 65536), 65536)) > 0)
        all.n += (size_t)n;
    assert_int_equal(n, 0);
    assert_int_equal(write(out, all.p, all.n), all.n);
    close(in);
    close(out);
    buf_deinit(&all);
}

/* One row in each table. */
static void fill_tables(struct site *s)
{
    struct index_write *w = begin(s);
    struct block_info b = block(2, 0, 100, 3);
    struct producer_claim p = {STR("somebody"), 4, 5};
    assert_int_equal(index_put_stream(w, 2, STR("the row")), 0);
    assert_int_equal(index_put_block(w, 2, &b), 0);
    assert_int_equal(index_put_producer(w, 2, &p), 0);
    assert_int_equal(index_put_doc(w, STR("key"), 6, STR("value")), 0);
    assert_int_equal(index_commit(w), 0);
}

/* The first error that reading everything meets. */
static int read_all(struct site *s)
{
    struct index_load load = {.stream = accept_stream,
                              .producer = accept_producer,
                              .doc = accept_doc,
                              .segment = accept_segment};
    struct index_meta meta;
    int err = index_load(s->index, &load, &meta);
    if (err == 0)
        err = index_blocks(s->index, 2, 0, accept_block, NULL);
    if (err == 0)
        err = index_segment_blocks(s->index, 3, accept_resident, NULL);
    return err;
}

/* What reading says after that change, which is then undone. */
static int after_change(struct site *s, enum table t,
                        void (*change)(MDB_txn *txn, MDB_dbi dbi, long n), long n)
{
    char kept[96], why[256];
    int err = ERR_CORRUPT;
    index_close(s->index);
    snprintf(kept, sizeof kept, "%s.kept", s->path);
    copy_file(s->path, kept);
    with_lmdb(s, t, change, n);
    s->index = index_open(s->path, false, why, sizeof why);
    if (s->index != NULL)
        err = read_all(s);
    index_close(s->index);
    assert_int_equal(rename(kept, s->path), 0);
    site_open(s, false);
    return err;
}

static void change_nothing(MDB_txn *txn, MDB_dbi dbi, long n)
{
}

static void test_checksums(void **state)
{
    struct site s;
    site_init(&s, false);
    fill_tables(&s);
    assert_int_equal(read_all(&s), 0);
    assert_int_equal(after_change(&s, TABLE_META, change_nothing, 0), 0);
    for (int t = 0; t < TABLE_RESIDENT; t++) {
        for (long bit = 0; bit < 24 * 8; bit += 5)
            assert_int_equal(after_change(&s, t, flip_value, bit), ERR_CORRUPT);
        assert_int_equal(after_change(&s, t, move_value, 0), ERR_CORRUPT);
        assert_int_equal(after_change(&s, t, shorten_value, 0), ERR_CORRUPT);
        assert_int_equal(after_change(&s, t, shorten_value, 7), ERR_CORRUPT);
        assert_int_equal(after_change(&s, t, shorten_value, 9), ERR_CORRUPT);
    }
    /* a block that is known by its place only */
    assert_int_equal(after_change(&s, TABLE_BLOCK, remove_first, 0), ERR_CORRUPT);
    assert_int_equal(read_all(&s), 0);
    site_deinit(&s);
}

/* A block that is listed for a segment in which it does not rest. */
static void test_resident_elsewhere(void **state)
{
    struct site s;
    site_init(&s, false);
    fill_tables(&s);
    index_close(s.index);
    with_lmdb(&s, TABLE_RESIDENT, move_value, 0); /* from segment 3 to 2 */
    site_open(&s, false);
    assert_int_equal(index_segment_blocks(s.index, 2, accept_resident, NULL), ERR_CORRUPT);
    struct index_write *w = begin(&s);
    assert_int_equal(index_remove_stream(w, 2), ERR_CORRUPT);
    index_abort(w);
    site_deinit(&s);
}

/* A checkpoint that meets damage fails as a whole. */
static void test_damage_stops_a_checkpoint(void **state)
{
    struct site s;
    struct block_info b = block(2, 0, 100, 4);
    site_init(&s, false);
    fill_tables(&s);
    index_close(s.index);
    with_lmdb(&s, TABLE_BLOCK, flip_value, 100);
    site_open(&s, false);
    struct index_write *w = begin(&s);
    assert_int_equal(index_put_stream(w, 9, STR("lost")), 0);
    assert_int_equal(index_put_block(w, 2, &b), ERR_CORRUPT);
    assert_int_equal(index_put_stream(w, 9, STR("lost")), ERR_CORRUPT);
    assert_int_equal(index_trim(w, 2, 100), ERR_CORRUPT);
    assert_int_equal(index_commit(w), ERR_CORRUPT);
    w = begin(&s);
    assert_int_equal(index_remove_stream(w, 2), ERR_CORRUPT);
    index_abort(w);
    int n = 0;
    struct index_load load = {.ctx = &n, .stream = stop_at_stream};
    struct index_meta meta;
    assert_int_equal(index_load(s.index, &load, &meta), ERR_NOT_FOUND);
    assert_int_equal(n, 1); /* stream 2, not 9 */
    site_deinit(&s);
}

/* The file is cut off at each page: an error, and no signal. */
static void test_truncated(void **state)
{
    struct site s;
    struct stat st;
    char whole[96], why[256];
    site_init(&s, false);
    fill_tables(&s);
    struct index_write *w = begin(&s);
    for (uint64_t i = 0; i < 300; i++) {
        struct block_info b = block(2, i * 100, i * 100 + 100, 3);
        assert_int_equal(index_put_block(w, 2, &b), 0);
        assert_int_equal(index_put_stream(w, i, STR("a row of some length, for more pages")), 0);
    }
    assert_int_equal(index_commit(w), 0);
    index_close(s.index);
    s.index = NULL;
    assert_int_equal(stat(s.path, &st), 0);
    snprintf(whole, sizeof whole, "%s.whole", s.path);
    assert_int_equal(rename(s.path, whole), 0);
    size_t damaged = 0;
    for (off_t n = 0; n < st.st_size; n += 1024) {
        copy_file(whole, s.path);
        assert_int_equal(truncate(s.path, n), 0);
        struct index *i = index_open(s.path, false, why, sizeof why);
        struct site cut = {.index = i};
        int err = i == NULL ? ERR_CORRUPT : read_all(&cut);
        assert_int_equal(err, i == NULL ? ERR_CORRUPT : 0); /* 0: only free pages are missing */
        damaged += err != 0;
        index_close(i);
    }
    assert_true(damaged >= 5);
    assert_int_equal(unlink(whole), 0);
    site_deinit(&s);
}

/* ---- room ---- */

static int fill_docs(struct site *s, int from, int n)
{
    static const char zeros[60000];
    struct index_write *w;
    int err = index_begin(s->index, &w);
    if (err != 0)
        return err;
    for (int i = from; i < from + n; i++)
        index_put_doc(w, str_of((const char *)&i, sizeof i), 1, str_of(zeros, sizeof zeros));
    return index_commit(w);
}

static int count_doc(void *ctx, struct str key, uint64_t version, struct str value)
{
    ++*(int *)ctx;
    return 0;
}

static int count_docs(struct site *s)
{
    int n = 0;
    struct index_load load = {.ctx = &n, .doc = count_doc};
    struct index_meta meta;
    assert_int_equal(index_load(s->index, &load, &meta), 0);
    return n;
}

/* The map begins far too small and grows with what is put. */
static void test_map_grows(void **state)
{
    struct site s;
    char why[256];
    site_init(&s, false);
    index_close(s.index);
    s.index = index_open_sized(s.path, false, 256 * 1024, why, sizeof why);
    assert_non_null(s.index);
    assert_int_equal(fill_docs(&s, 0, 20), ERR_FULL); /* more than the map holds */
    assert_int_equal(count_docs(&s), 0);
    int tries = 0;
    while (fill_docs(&s, 0, 20) == ERR_FULL)
        assert_true(++tries < 6);
    for (int i = 1; i < 10; i++) /* and from here on there is always room in time */
        assert_int_equal(fill_docs(&s, 20 * i, 20), 0);
    assert_int_equal(count_docs(&s), 200);
    index_close(s.index); /* opened with a map smaller than the file */
    s.index = index_open_sized(s.path, false, 256 * 1024, why, sizeof why);
    assert_non_null(s.index);
    assert_int_equal(count_docs(&s), 200);
    assert_int_equal(fill_docs(&s, 200, 20), 0);
    site_deinit(&s);
}

/* A disk that does not take it, here by a limit on the size of files. */
static void test_failed_commit(void **state)
{
    struct site s;
    struct rlimit old, low;
    struct stat st;
    site_init(&s, false);
    assert_int_equal(fill_docs(&s, 0, 3), 0);
    assert_int_equal(stat(s.path, &st), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = (struct rlimit){(rlim_t)st.st_size + 4096, old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    int err = fill_docs(&s, 3, 3), again = fill_docs(&s, 3, 3), n = count_docs(&s);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(err, ERR_IO);
    assert_int_equal(again, ERR_IO);
    assert_int_equal(n, 3);
    assert_int_equal(fill_docs(&s, 3, 3), ERR_IO); /* also when there is room again */
    index_close(s.index);
    site_open(&s, false);
    assert_int_equal(count_docs(&s), 3);
    assert_int_equal(fill_docs(&s, 3, 3), 0);
    assert_int_equal(count_docs(&s), 6);
    site_deinit(&s);
}

static bool can_reserve(const char *dir)
{
    char path[96];
    snprintf(path, sizeof path, "%s/probe", dir);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    bool can = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 65536) == 0;
    close(fd);
    assert_int_equal(unlink(path), 0);
    return can;
}

/* The disk's blocks are taken before they are needed, and more when they are used up. */
static void test_reserve(void **state)
{
    struct site s;
    struct stat st;
    site_init(&s, true);
    bool can = can_reserve(s.dir);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fill_docs(&s, 100 * i, 100), 0);
        index_abort(begin(&s));
        assert_int_equal(stat(s.path, &st), 0);
        uint64_t ahead = (uint64_t)st.st_blocks * 512 - (uint64_t)st.st_size;
        assert_true(!can || ahead >= 7 * 1024 * 1024);
    }
    assert_true(st.st_size >= 17 * 1024 * 1024); /* so it was not the first reserve that lasted */
    index_close(s.index);
    site_open(&s, true);
    assert_int_equal(count_docs(&s), 300);
    site_deinit(&s);
}

/* ---- readers beside a writer ---- */

#define ROWS    200
#define COMMITS 150

struct watch {
    struct site site;
    atomic_bool stop;
    atomic_uint rounds;
    atomic_uint torn; /* cmocka's asserts are for its own thread */
};

struct glance {
    uint64_t number; /* of the commit, by the first row seen */
    size_t rows;
    bool torn;
};

static int glance_at(struct glance *g, uint64_t number)
{
    if (g->rows++ == 0)
        g->number = number;
    g->torn |= g->number != number;
    return 0;
}

static int glance_at_stream(void *ctx, uint64_t life, struct str row)
{
    uint64_t number;
    memcpy(&number, row.p, sizeof number);
    return glance_at(ctx, number);
}

static int glance_at_block(void *ctx, const struct block_info *b)
{
    return glance_at(ctx, b->ordinal);
}

static int glance_at_resident(void *ctx, uint64_t life, const struct block_info *b)
{
    return glance_at(ctx, b->ordinal);
}

static void *watch_commits(void *arg)
{
    struct watch *w = arg;
    uint64_t last = 0;
    while (!atomic_load(&w->stop)) {
        struct glance all = {0}, blocks = {0}, residents = {0};
        struct index_load load = {.ctx = &all, .stream = glance_at_stream};
        struct index_meta meta;
        struct block_info b;
        bool fine = index_load(w->site.index, &load, &meta) == 0 &&
                    index_blocks(w->site.index, 1, 0, glance_at_block, &blocks) == 0 &&
                    index_segment_blocks(w->site.index, 3, glance_at_resident, &residents) == 0 &&
                    index_find(w->site.index, 1, 10 * (ROWS - 1), &b) == 0;
        fine = fine && !all.torn && !blocks.torn && !residents.torn && all.rows == ROWS &&
               blocks.rows == ROWS && residents.rows == ROWS && meta.batch == all.number &&
               last <= all.number && all.number <= blocks.number &&
               blocks.number <= residents.number && residents.number <= b.ordinal;
        last = b.ordinal;
        if (!fine)
            atomic_fetch_add(&w->torn, 1);
        atomic_fetch_add(&w->rounds, 1);
    }
    return NULL;
}

static int commit_number(struct site *s, uint64_t number)
{
    struct index_write *w;
    int err = index_begin(s->index, &w);
    if (err != 0)
        return err;
    for (uint64_t i = 0; i < ROWS; i++) {
        struct block_info b = block(1, 10 * i, 10 * i + 10, 3);
        b.ordinal = number;
        index_put_stream(w, i, str_of((const char *)&number, sizeof number));
        index_put_block(w, 1, &b);
    }
    char filler[20000] = "";
    index_put_doc(w, str_of((const char *)&number, sizeof number), 1,
                  str_of(filler, sizeof filler));
    index_put_meta(w, &(struct index_meta){.batch = number});
    return index_commit(w);
}

/* Each commit changes every row; a reader sees rows of one commit, and never an older one after a
 * newer. The map grows meanwhile. */
static void test_readers_see_one_commit(void **state)
{
    struct watch w = {0};
    pthread_t threads[2];
    char why[256];
    site_init(&w.site, false);
    index_close(w.site.index);
    w.site.index = index_open_sized(w.site.path, false, 1024 * 1024, why, sizeof why);
    assert_non_null(w.site.index);
    assert_int_equal(commit_number(&w.site, 1), 0);
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, watch_commits, &w), 0);
    int err = 0;
    uint64_t number = 1;
    while (err == 0 && (number < COMMITS || atomic_load(&w.rounds) < 20))
        err = commit_number(&w.site, ++number);
    atomic_store(&w.stop, true);
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(err, 0);
    assert_int_equal(atomic_load(&w.torn), 0);
    MDB_envinfo info;
    assert_int_equal(mdb_env_info(w.site.index->env, &info), 0);
    assert_true(info.me_mapsize > 1024 * 1024);
    site_deinit(&w.site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new),
        cmocka_unit_test(test_made_anew),
        cmocka_unit_test(test_no_index),
        cmocka_unit_test(test_callbacks_stop),
        cmocka_unit_test(test_fork_ends_at_its_point),
        cmocka_unit_test_teardown(test_against_model, seeds_teardown),
        cmocka_unit_test(test_checksums),
        cmocka_unit_test(test_resident_elsewhere),
        cmocka_unit_test(test_damage_stops_a_checkpoint),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_map_grows),
        cmocka_unit_test(test_failed_commit),
        cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_readers_see_one_commit),
    };
    return cmocka_run_group_tests_name("store/index", tests, NULL, NULL);
}
