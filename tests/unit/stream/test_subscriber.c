// SPDX-License-Identifier: Apache-2.0
/* Subscribers over the store in memory, at first hand and through the front end that delays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "stream/subscriber.h"
#include "model/delay.c"
#include "model/seeds.h"
#include "store/mem/mem_store.h"

#define COUNT(a)   (sizeof(a) / sizeof *(a))
#define TURNS_MAX  20000
#define START_MONO 5000
#define START_WALL 1700000000000

/* ---- a store, a schedule and feeds ---- */

struct rig {
    struct sched sched;
    struct store *store;
    struct feeds feeds;
    bool delayed;
    uint64_t mono_ms;
    size_t n_writes; /* under way */
    int in_call;     /* of a function of the subscriber: ready() must not be called */
};

static void rig_init(struct rig *g, uint64_t seed, unsigned max_turns)
{
    alarm(SEED_PATIENCE_S); /* asking in vain without end is one way to fail */
    *g = (struct rig){.mono_ms = START_MONO, .delayed = max_turns > 0};
    sched_init(&g->sched, g->mono_ms, START_WALL);
    g->store = mem_store_new(&g->sched);
    if (g->delayed)
        g->store = delay_store_new(g->store, seed, max_turns);
    feeds_init(&g->feeds, g->store);
}

static void turn(struct rig *g)
{
    g->mono_ms += SCHED_TICK_MS;
    sched_turn(&g->sched, g->mono_ms, START_WALL);
}

static void settle(struct rig *g)
{
    unsigned turns = 0;
    do {
        turn(g);
        assert_true(turns++ < TURNS_MAX); /* somebody asks again and again for nothing */
    } while (g->n_writes > 0 || (g->delayed && delay_pending(g->store) > 0));
}

static void rig_deinit(struct rig *g)
{
    settle(g);
    feeds_deinit(&g->feeds);
    store_free(g->store);
    alarm(0);
}

/* A write or a removal that must succeed. */
struct change {
    struct store_write write;
    struct store_remove remove;
    struct stream_config config;
    struct rig *rig;
    void (*then)(struct change *c);
    void *ctx;
};

static void change_over(struct change *c, int err)
{
    assert_int_equal(err, 0);
    c->rig->n_writes--;
    if (c->then != NULL)
        c->then(c);
    free((char *)(uintptr_t)c->write.data.p);
    free((void *)(uintptr_t)c->write.ends);
    free(c);
}

static void on_written(struct store_write *w, int err)
{
    change_over(container_of(w, struct change, write), err);
}

static void on_removed(struct store_remove *r, int err)
{
    change_over(container_of(r, struct change, remove), err);
}

static struct change *change_new(struct rig *g, struct str name)
{
    struct change *c = mem_zalloc(sizeof *c);
    c->rig = g;
    c->write.name = c->remove.name = name;
    c->write.done = on_written;
    c->remove.done = on_removed;
    g->n_writes++;
    return c;
}

static void start_append(struct rig *g, struct str name, const char *text, bool close)
{
    struct change *c = change_new(g, name);
    size_t n = strlen(text);
    c->write.data = str_of(memcpy(mem_alloc(n + 1), text, n), n);
    c->write.close = close;
    c->write.end = close ? END_COMPLETED : END_NONE;
    store_write(g->store, &c->write);
}

static void start_create(struct rig *g, struct str name)
{
    struct change *c = change_new(g, name);
    c->config = (struct stream_config){
        .content_type = STR("text/plain"), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    c->write.create = &c->config;
    store_write(g->store, &c->write);
}

static void start_remove(struct rig *g, struct str name)
{
    store_remove(g->store, &change_new(g, name)->remove);
}

static void append(struct rig *g, const char *text)
{
    start_append(g, STR("s"), text, false);
    settle(g);
}

static void end_stream(struct rig *g)
{
    start_append(g, STR("s"), "", true);
    settle(g);
}

static void create(struct rig *g)
{
    start_create(g, STR("s"));
    settle(g);
}

/* ---- a plain reader: writes down what it gets ---- */

struct reader {
    struct subscriber sub;
    struct rig *rig;
    struct buf got;
    unsigned n_ready, n_batches, n_ends;
    bool idle;  /* does not ask when it is told to */
    bool holds; /* gives the last event of every batch back */
    struct event_batch *seen[16];
};

static void reader_pull(struct reader *r)
{
    struct event_batch *b;
    for (;;) {
        r->rig->in_call++;
        enum next next = subscriber_next(&r->sub, &b);
        r->rig->in_call--;
        if (next != NEXT_BATCH)
            return;
        assert_true(r->n_batches < COUNT(r->seen)); /* the same over and over */
        r->seen[r->n_batches++] = b;
        bool ended = b->info.end != END_NONE && b->next == b->info.tail;
        bool hold = r->holds && !ended && b->next == b->info.tail && b->last < b->next;
        uint64_t upto = hold ? b->last : b->next, at = b->start;
        for (uint32_t i = 0; i < b->n_slices; i++) {
            struct str s = b->slices[i].bytes;
            buf_put(&r->got, str_of(s.p, at + s.n <= upto ? s.n : at < upto ? upto - at : 0));
            at += s.n;
        }
        if (hold)
            subscriber_hold(&r->sub, b->last, b->info.tail);
        r->n_ends += ended;
        event_batch_unref(b);
        if (ended)
            return;
    }
}

static void reader_ready(struct subscriber *s)
{
    struct reader *r = container_of(s, struct reader, sub);
    assert_int_equal(r->rig->in_call, 0);
    r->n_ready++;
    if (!r->idle)
        reader_pull(r);
}

/* At `pos` of the stream's first life, which is the store's first. */
static void reader_init(struct reader *r, struct rig *g, uint64_t pos)
{
    *r = (struct reader){.rig = g};
    subscriber_init(&r->sub, &g->feeds, STR("s"), (struct offset){1, pos}, reader_ready);
}

static void reader_deinit(struct reader *r)
{
    subscriber_deinit(&r->sub);
    buf_deinit(&r->got);
}

#define assert_got(r, text)                                                                        \
    do {                                                                                           \
        assert_int_equal((r)->got.n, strlen(text));                                                \
        if ((r)->got.n > 0)                                                                        \
            assert_memory_equal((r)->got.p, (text), (r)->got.n);                                   \
    } while (0)

/* ---- one thing at a time ---- */

static void test_replays_then_follows(void **state)
{
    struct rig g;
    struct reader r;
    rig_init(&g, 1, 3);
    create(&g);
    append(&g, "one ");
    append(&g, "two ");
    reader_init(&r, &g, 4);
    reader_pull(&r);
    assert_got(&r, ""); /* never from within the call */
    settle(&g);
    assert_got(&r, "two ");
    append(&g, "three ");
    assert_got(&r, "two three ");
    end_stream(&g);
    assert_got(&r, "two three ");
    assert_int_equal(r.n_ends, 1);
    reader_deinit(&r);
    rig_deinit(&g);
}

static void test_shares_one_read_and_one_watch(void **state)
{
    struct rig g;
    static struct reader readers[50];
    rig_init(&g, 1, 1);
    create(&g);
    append(&g, "x");
    for (size_t i = 0; i < COUNT(readers); i++) {
        reader_init(&readers[i], &g, 1);
        reader_pull(&readers[i]);
        settle(&g);
    }
    uint64_t before = delay_reads(g.store);
    start_append(&g, STR("s"), "news", false);
    while (readers[0].n_batches == 0)
        turn(&g);
    assert_int_equal(delay_reads(g.store), before + 1);
    assert_int_equal(delay_watches_max(g.store), 1);
    for (size_t i = 0; i < COUNT(readers); i++) {
        assert_got(&readers[i], "news");
        assert_ptr_equal(readers[i].seen[0], readers[0].seen[0]);
    }
    for (size_t i = 0; i < COUNT(readers); i++)
        reader_deinit(&readers[i]);
    rig_deinit(&g);
}

static void test_nothing_is_queued_for_one_that_does_not_ask(void **state)
{
    struct rig g;
    struct reader r;
    rig_init(&g, 1, 2);
    create(&g);
    reader_init(&r, &g, 0);
    settle(&g);
    append(&g, "a");
    append(&g, "b");
    assert_int_equal(delay_reads(g.store), 0);
    assert_int_equal(r.n_ready, 0);
    reader_pull(&r);
    settle(&g);
    assert_got(&r, "ab");
    r.idle = true;
    append(&g, "c");
    unsigned told = r.n_ready;
    append(&g, "d");
    assert_int_equal(r.n_ready, told); /* once is enough for one that does not come */
    r.idle = false;
    reader_pull(&r);
    settle(&g);
    assert_got(&r, "abcd");
    reader_deinit(&r);
    rig_deinit(&g);
}

/* The append and the second reader's read happen before anybody is told of the change: what that
 * read finds out must not make the first one miss it. */
static void test_wakes_though_another_read_it_first(void **state)
{
    struct rig g;
    struct reader first, second;
    rig_init(&g, 0, 0);
    create(&g);
    append(&g, "old ");
    reader_init(&first, &g, 4);
    reader_pull(&first);
    settle(&g);
    reader_init(&second, &g, 0);
    start_append(&g, STR("s"), "new", false);
    reader_pull(&second);
    settle(&g);
    assert_got(&second, "old new");
    assert_got(&first, "new");
    reader_deinit(&first);
    reader_deinit(&second);
    rig_deinit(&g);
}

static void test_end_is_told_to_who_asks_late(void **state)
{
    struct rig g;
    struct reader late, other;
    rig_init(&g, 0, 0);
    create(&g);
    append(&g, "text");
    reader_init(&late, &g, 0);
    reader_pull(&late);
    settle(&g);
    assert_got(&late, "text");
    late.idle = true;
    end_stream(&g);
    reader_init(&other, &g, 0); /* brings the feed up to date */
    reader_pull(&other);
    settle(&g);
    assert_int_equal(other.n_ends, 1);
    late.idle = false;
    reader_pull(&late);
    settle(&g);
    assert_got(&late, "text");
    assert_int_equal(late.n_ends, 1);
    reader_deinit(&late);
    reader_deinit(&other);
    rig_deinit(&g);
}

static void test_primed_batch_comes_first(void **state)
{
    struct rig g;
    struct reader r;
    rig_init(&g, 0, 0);
    create(&g);
    append(&g, "abc");
    struct store_read read = {.info = {.life = 1, .tail = 2}, .start = 0, .next = 2, .n_slices = 1};
    struct block *b = block_of(STR("ab"));
    read.slices[0] = slice_of(b, 0, 2);
    reader_init(&r, &g, 0);
    subscriber_prime(&r.sub, &read);
    assert_int_equal(read.n_slices, 0); /* taken over */
    reader_pull(&r);
    assert_got(&r, "ab");
    settle(&g);
    assert_int_equal(r.sub.err, ERR_OFFSET); /* 2 is in the middle of an event */
    reader_deinit(&r);
    rig_deinit(&g);
}

/* Zero is an alias of the start of any life. */
static void test_start_by_its_alias(void **state)
{
    struct rig g;
    struct reader r;
    rig_init(&g, 1, 1);
    create(&g);
    reader_init(&r, &g, 0);
    subscriber_deinit(&r.sub);
    subscriber_init(&r.sub, &g.feeds, STR("s"), (struct offset){0, 0}, reader_ready);
    reader_pull(&r);
    settle(&g); /* and not for ever */
    append(&g, "x");
    assert_got(&r, "x");
    reader_deinit(&r);
    rig_deinit(&g);
}

static void test_fails_when_stream_is_removed(void **state)
{
    struct rig g;
    struct reader r;
    rig_init(&g, 1, 2);
    create(&g);
    reader_init(&r, &g, 0);
    reader_pull(&r);
    settle(&g);
    start_remove(&g, STR("s"));
    settle(&g);
    struct event_batch *b;
    assert_int_equal(subscriber_next(&r.sub, &b), NEXT_FAILED);
    assert_int_equal(r.sub.err, ERR_NOT_FOUND);
    reader_deinit(&r);
    rig_deinit(&g);
}

static void test_fails_when_stream_is_reborn(void **state)
{
    struct rig g;
    struct reader r, fresh;
    rig_init(&g, 0, 0);
    create(&g);
    append(&g, "abc");
    reader_init(&r, &g, 3);
    reader_pull(&r);
    settle(&g);
    start_remove(&g, STR("s"));
    start_create(&g, STR("s"));
    start_append(&g, STR("s"), "xyz", false);
    reader_init(&fresh, &g, 0); /* as far as it goes in the new life, before anybody is told */
    fresh.sub.life = 2;
    reader_pull(&fresh);
    settle(&g);
    assert_got(&fresh, "xyz");
    assert_got(&r, "");
    assert_int_equal(r.sub.err, ERR_GAP);
    assert_int_equal(r.sub.gap->reason, GAP_REBORN);
    assert_int_equal(r.sub.gap->requested.pos, 3);
    assert_int_equal(r.sub.gap->earliest.life, 2);
    reader_deinit(&r);
    reader_deinit(&fresh);
    rig_deinit(&g);
}

/* ---- holding back ---- */

static void test_held_batch_comes_again_with_more(void **state)
{
    struct rig g;
    struct reader r, other;
    rig_init(&g, 0, 0);
    create(&g);
    append(&g, "whole ");
    append(&g, "ha");
    reader_init(&r, &g, 0);
    r.holds = true;
    reader_pull(&r);
    settle(&g);
    assert_got(&r, "whole ");
    assert_int_equal(r.n_batches, 1);
    reader_init(&other, &g, 0);
    reader_pull(&other);
    settle(&g);
    assert_int_equal(r.n_batches, 1);
    append(&g, "lf"); /* r gives this event back, too */
    assert_got(&r, "whole ha");
    end_stream(&g);
    assert_got(&r, "whole half");
    assert_int_equal(r.n_ends, 1);
    reader_deinit(&r);
    reader_deinit(&other);
    rig_deinit(&g);
}

/* The shared batch is all that there is when it is given back. */
static void test_held_shared_batch_is_not_given_again_at_once(void **state)
{
    struct rig g;
    struct reader r;
    rig_init(&g, 0, 0);
    create(&g);
    reader_init(&r, &g, 0);
    r.holds = true;
    reader_pull(&r);
    settle(&g);
    append(&g, "ha");
    assert_got(&r, "");
    assert_int_equal(r.n_batches, 1);
    append(&g, "lf");
    assert_got(&r, "ha");
    assert_int_equal(r.n_batches, 2);
    reader_deinit(&r);
    rig_deinit(&g);
}

/* A notice that brings nothing new: "comes only when there is more than there was". */
static void test_held_batch_stays_away_without_news(void **state)
{
    struct rig g;
    struct reader r;
    rig_init(&g, 0, 0);
    create(&g);
    append(&g, "ha");
    reader_init(&r, &g, 0);
    r.holds = true;
    reader_pull(&r);
    settle(&g);
    assert_int_equal(r.n_batches, 1);
    append(&g, ""); /* changes nothing, but is told of */
    assert_int_equal(r.n_batches, 1);
    start_append(&g, STR("s"), "", false);
    sched_drain(&g.sched);
    reader_pull(&r); /* asks although it has not been told to */
    settle(&g);
    assert_int_equal(r.n_batches, 1);
    append(&g, "lf");
    assert_got(&r, "ha");
    reader_deinit(&r);
    rig_deinit(&g);
}

/* ---- many of them, at random ---- */

#define SEEDS      200
#define STEPS      160
#define N_STREAMS  3
#define N_FANS     14
#define LIVES_MAX  64
#define EVENTS_MAX 6
#define LARGE      (EVENT_BATCH_BYTES + 5000)

static const struct str stream_names[N_STREAMS] = {STR_INIT("a"), STR_INIT("b"), STR_INIT("c")};

/* One life of a stream as it was asked for: the writes of a stream come one after the other and
 * succeed, so that this is what readers have to see, or will. */
struct life {
    uint64_t number; /* 0: not known yet */
    struct buf bytes;
    struct buf boundaries; /* of uint64_t */
    bool ended, gone;
};

struct model_stream {
    struct life lives[LIVES_MAX];
    size_t n_lives;
    bool busy; /* a change is under way */
};

enum fan_state { FAN_FREE, FAN_STARTING, FAN_READING, FAN_ENDED, FAN_FAILED };

struct world;

struct fan {
    struct subscriber sub;
    struct store_read first;
    struct world *world;
    enum fan_state state;
    bool waits;  /* was told so */
    bool paused; /* does not ask */
    bool primed;
    size_t stream;
    struct life *life;
    uint64_t pos, held_tail; /* held_tail > 0: gave events back */
};

struct world {
    struct rig rig;
    struct rng rng;
    struct model_stream streams[N_STREAMS];
    struct fan fans[N_FANS];
    size_t n_batches, n_ended, n_failed, n_holds;
};

static struct life *life_now(struct model_stream *s)
{
    struct life *l = s->n_lives == 0 ? NULL : &s->lives[s->n_lives - 1];
    return l == NULL || l->gone ? NULL : l;
}

static void add_boundary(struct life *l)
{
    uint64_t at = l->bytes.n;
    buf_put(&l->boundaries, str_of((const char *)&at, sizeof at));
}

static size_t n_boundaries(const struct life *l)
{
    return l->boundaries.n / sizeof(uint64_t);
}

static uint64_t boundary(const struct life *l, size_t i)
{
    uint64_t at;
    memcpy(&at, l->boundaries.p + i * sizeof at, sizeof at);
    return at;
}

static bool is_boundary(const struct life *l, uint64_t pos)
{
    for (size_t i = 0; i < n_boundaries(l); i++)
        if (boundary(l, i) == pos)
            return true;
    return false;
}

/* ---- the world's writer ---- */

static void change_done(struct change *c)
{
    struct model_stream *s = c->ctx;
    s->busy = false;
    if (c->write.create != NULL)
        s->lives[s->n_lives - 1].number = c->write.info.life;
}

static struct change *world_change(struct world *w, size_t i)
{
    struct change *c = change_new(&w->rig, stream_names[i]);
    w->streams[i].busy = true;
    c->ctx = &w->streams[i];
    c->then = change_done;
    return c;
}

static void world_create(struct world *w, size_t i)
{
    struct model_stream *s = &w->streams[i];
    if (s->n_lives == LIVES_MAX)
        return;
    struct change *c = world_change(w, i);
    c->config = (struct stream_config){
        .content_type = STR("text/plain"), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    c->write.create = &c->config;
    add_boundary(&s->lives[s->n_lives++]);
    store_write(w->rig.store, &c->write);
}

static void world_append(struct world *w, size_t i)
{
    struct rng *rng = &w->rng;
    struct life *l = life_now(&w->streams[i]);
    struct change *c = world_change(w, i);
    uint32_t n = (uint32_t)rng_between(rng, 1, EVENTS_MAX), total = 0;
    uint32_t *ends = mem_alloc(n * sizeof *ends);
    for (uint32_t k = 0; k < n; k++)
        ends[k] = total += (uint32_t)(rng_one_in(rng, 150) ? LARGE : rng_between(rng, 1, 12));
    char *bytes = mem_alloc(total);
    for (uint32_t k = 0; k < total; k++)
        bytes[k] = (char)rng_next(rng);
    c->write.data = str_of(bytes, total);
    c->write.ends = ends;
    c->write.n_events = n;
    if (rng_one_in(rng, 12)) {
        c->write.close = l->ended = true;
        c->write.end = END_FAILED;
    }
    uint64_t base = l->bytes.n;
    for (uint32_t k = 0; k < n; k++) {
        buf_put(&l->bytes, str_of(bytes + (l->bytes.n - base), base + ends[k] - l->bytes.n));
        add_boundary(l);
    }
    store_write(w->rig.store, &c->write);
}

/* Closes, or does something that only looks like a change. */
static void world_touch(struct world *w, size_t i)
{
    struct life *l = life_now(&w->streams[i]);
    struct change *c = world_change(w, i);
    if (rng_one_in(&w->rng, 3)) {
        c->write.close = l->ended = true;
        c->write.end = END_COMPLETED;
    }
    store_write(w->rig.store, &c->write);
}

static void world_remove(struct world *w, size_t i)
{
    life_now(&w->streams[i])->gone = true;
    store_remove(w->rig.store, &world_change(w, i)->remove);
}

static void world_write(struct world *w)
{
    size_t i = rng_below(&w->rng, N_STREAMS);
    struct model_stream *s = &w->streams[i];
    struct life *l = life_now(s);
    if (s->busy)
        return;
    if (l == NULL)
        world_create(w, i);
    else if (rng_one_in(&w->rng, l->ended ? 3 : 25))
        world_remove(w, i);
    else if (!l->ended && rng_one_in(&w->rng, 10))
        world_touch(w, i);
    else if (!l->ended)
        world_append(w, i);
}

/* ---- the world's readers ---- */

static void fan_stop(struct fan *f)
{
    if (f->state == FAN_FREE || f->state == FAN_STARTING)
        return;
    f->world->rig.in_call++;
    subscriber_deinit(&f->sub);
    f->world->rig.in_call--;
    f->state = FAN_FREE;
}

static void check_batch(struct fan *f, const struct event_batch *b)
{
    const struct life *l = f->life;
    assert_int_equal(b->info.life, l->number);
    assert_int_equal(b->start, f->pos); /* in order, nothing twice, nothing left out */
    assert_true(b->next >= b->start && b->next <= l->bytes.n && b->next <= b->info.tail);
    assert_true(is_boundary(l, b->next) && is_boundary(l, b->last));
    uint64_t at = b->start;
    for (uint32_t i = 0; i < b->n_slices; i++) {
        struct str s = b->slices[i].bytes;
        assert_true(s.n <= b->next - at);
        assert_memory_equal(s.p, l->bytes.p + at, s.n);
        at += s.n;
    }
    assert_int_equal(at, b->next);
    /* an empty batch is the end, or what a read gave before */
    assert_true(b->next > b->start || b->info.end != END_NONE || f->primed);
    if (f->held_tail > 0)
        assert_true(b->info.tail > f->held_tail || b->info.end != END_NONE);
    f->held_tail = 0;
    f->primed = false;
}

static void fan_failed(struct fan *f)
{
    assert_true(f->life->gone);
    assert_true(f->sub.err == ERR_NOT_FOUND || f->sub.err == ERR_GAP);
    if (f->sub.err == ERR_GAP)
        assert_int_equal(f->sub.gap->reason, GAP_REBORN);
    f->state = FAN_FAILED;
    f->world->n_failed++;
}

/* Takes a batch; false: no more for now. */
static bool fan_take(struct fan *f, struct event_batch *b)
{
    struct world *w = f->world;
    check_batch(f, b);
    w->n_batches++;
    f->pos = b->next;
    bool at_tail = b->next == b->info.tail;
    if (at_tail && b->info.end != END_NONE) {
        assert_true(f->life->ended && b->next == f->life->bytes.n);
        f->state = FAN_ENDED;
        w->n_ended++;
    } else if (at_tail && b->last < b->next && rng_one_in(&w->rng, 4)) {
        subscriber_hold(&f->sub, b->last, b->info.tail);
        f->pos = b->last;
        f->held_tail = b->info.tail;
        w->n_holds++;
    }
    event_batch_unref(b);
    f->paused = f->state == FAN_READING && rng_one_in(&w->rng, 6);
    return f->state == FAN_READING && !f->paused;
}

static void fan_pull(struct fan *f)
{
    struct event_batch *b;
    enum next next;
    do {
        f->world->rig.in_call++;
        next = subscriber_next(&f->sub, &b);
        f->world->rig.in_call--;
    } while (next == NEXT_BATCH && fan_take(f, b));
    f->waits = next == NEXT_WAIT;
    if (next == NEXT_FAILED)
        fan_failed(f);
}

static struct fan *any_fan(struct world *w)
{
    return &w->fans[rng_below(&w->rng, N_FANS)];
}

static void fan_ready(struct subscriber *s)
{
    struct fan *f = container_of(s, struct fan, sub);
    struct world *w = f->world;
    assert_int_equal(w->rig.in_call, 0);
    assert_int_equal(f->state, FAN_READING);
    assert_true(f->waits); /* told once for each time that it asked in vain */
    f->waits = false;
    if (rng_one_in(&w->rng, 30))
        fan_stop(any_fan(w));
    if (f->state == FAN_FREE) /* that was this one */
        return;
    if (rng_one_in(&w->rng, 8))
        f->paused = true;
    if (!f->paused)
        fan_pull(f);
}

static struct life *life_numbered(struct world *w, size_t stream, uint64_t number)
{
    struct model_stream *s = &w->streams[stream];
    for (size_t i = 0; i < s->n_lives; i++)
        if (s->lives[i].number == number)
            return &s->lives[i];
    return NULL;
}

/* Like SSE, which makes its first read the first batch, or like a long-poll, which goes on behind
 * it. */
static void on_first_read(struct store_read *r, int err)
{
    struct fan *f = container_of(r, struct fan, first);
    struct world *w = f->world;
    f->state = FAN_FREE;
    f->life = err == 0 ? life_numbered(w, f->stream, r->info.life) : NULL;
    if (f->life != NULL) {
        f->primed = rng_one_in(&w->rng, 2);
        f->pos = f->primed ? r->start : r->next;
        f->state = FAN_READING;
        w->rig.in_call++;
        subscriber_init(&f->sub, &w->rig.feeds, stream_names[f->stream],
                        (struct offset){r->info.life, f->pos}, fan_ready);
        if (f->primed)
            subscriber_prime(&f->sub, r);
        w->rig.in_call--;
        fan_pull(f);
    }
    store_read_release(r);
}

static void fan_start(struct fan *f, struct world *w)
{
    f->world = w;
    f->stream = rng_below(&w->rng, N_STREAMS);
    f->waits = f->paused = false;
    f->held_tail = 0;
    f->state = FAN_STARTING;
    struct life *l = life_now(&w->streams[f->stream]);
    f->first = (struct store_read){.name = stream_names[f->stream],
                                   .from = (enum read_from)rng_below(&w->rng, 3),
                                   .max_bytes = rng_below(&w->rng, 100),
                                   .done = on_first_read};
    if (l != NULL && l->number != 0)
        f->first.at = (struct offset){l->number, boundary(l, rng_below(&w->rng, n_boundaries(l)))};
    store_read(w->rig.store, &f->first);
}

static void fan_poke(struct fan *f)
{
    if (f->state == FAN_READING)
        f->paused = false;
    if (f->state == FAN_READING) /* also one that waits: it may ask as often as it likes */
        fan_pull(f);
}

/* Who asks has all that there is, the end included. */
static void check_nobody_sleeps(struct world *w)
{
    for (size_t i = 0; i < N_FANS; i++) {
        const struct fan *f = &w->fans[i];
        if (f->state != FAN_READING || f->paused)
            continue;
        assert_true(f->waits);
        assert_false(f->life->gone);
        assert_false(f->life->ended);
        assert_int_equal(f->held_tail > 0 ? f->held_tail : f->pos, f->life->bytes.n);
    }
}

static void world_step(struct world *w)
{
    struct fan *f = any_fan(w);
    switch (rng_below(&w->rng, 10)) {
    case 0:
    case 1:
    case 2:
    case 3: world_write(w); break;
    case 4:
    case 5:
        if (f->state == FAN_FREE)
            fan_start(f, w);
        break;
    case 6: fan_poke(f); break;
    case 7: turn(&w->rig); break;
    case 8:
        settle(&w->rig);
        check_nobody_sleeps(w);
        break;
    default:
        if (f->state == FAN_ENDED || f->state == FAN_FAILED || rng_one_in(&w->rng, 6))
            fan_stop(f);
        break;
    }
}

/* A world that failed stays reachable, so that no report of leaks buries the reason. */
static struct world *volatile world_now;

static void finish(struct world *w)
{
    settle(&w->rig);
    for (int rounds = 0; rounds < 3; rounds++) {
        for (size_t i = 0; i < N_FANS; i++)
            fan_poke(&w->fans[i]);
        settle(&w->rig);
        check_nobody_sleeps(w);
    }
    for (size_t i = 0; i < N_FANS; i++)
        fan_stop(&w->fans[i]);
    rig_deinit(&w->rig);
    for (size_t i = 0; i < N_STREAMS; i++)
        for (size_t k = 0; k < w->streams[i].n_lives; k++) {
            buf_deinit(&w->streams[i].lives[k].bytes);
            buf_deinit(&w->streams[i].lives[k].boundaries);
        }
    free(w);
    world_now = NULL;
}

/* What all runs of a test have come across: one that never sees an end tests none. */
static struct {
    size_t batches, ended, failed, holds;
} seen;

static void run_world(const struct rng *rng, bool delayed)
{
    struct world *w = world_now = mem_zalloc(sizeof *w);
    w->rng = *rng;
    uint64_t seed = rng_next(&w->rng);
    rig_init(&w->rig, seed, delayed ? (unsigned)rng_between(&w->rng, 1, 5) : 0);
    for (int i = 0; i < STEPS; i++)
        world_step(w);
    seen.batches += w->n_batches;
    seen.ended += w->n_ended;
    seen.failed += w->n_failed;
    seen.holds += w->n_holds;
    finish(w);
}

static void direct_body(struct rng *r)
{
    run_world(r, false);
}

static void delayed_body(struct rng *r)
{
    run_world(r, true);
}

static void run_all(void (*body)(struct rng *r))
{
    memset(&seen, 0, sizeof seen);
    seeds_run(SEEDS, body);
    if (seeds_env("TIDEMARK_SEED") == 0)
        assert_true(seen.batches > 0 && seen.ended > 0 && seen.failed > 0 && seen.holds > 0);
}

static void test_random_directly(void **state)
{
    run_all(direct_body);
}

static void test_random_delayed(void **state)
{
    run_all(delayed_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replays_then_follows),
        cmocka_unit_test(test_shares_one_read_and_one_watch),
        cmocka_unit_test(test_nothing_is_queued_for_one_that_does_not_ask),
        cmocka_unit_test(test_wakes_though_another_read_it_first),
        cmocka_unit_test(test_end_is_told_to_who_asks_late),
        cmocka_unit_test(test_primed_batch_comes_first),
        cmocka_unit_test(test_start_by_its_alias),
        cmocka_unit_test(test_fails_when_stream_is_removed),
        cmocka_unit_test(test_fails_when_stream_is_reborn),
        cmocka_unit_test(test_held_batch_comes_again_with_more),
        cmocka_unit_test(test_held_shared_batch_is_not_given_again_at_once),
        cmocka_unit_test(test_held_batch_stays_away_without_news),
        cmocka_unit_test_teardown(test_random_directly, seeds_teardown),
        cmocka_unit_test_teardown(test_random_delayed, seeds_teardown),
    };
    return cmocka_run_group_tests_name("unit/subscriber", tests, NULL, NULL);
}
