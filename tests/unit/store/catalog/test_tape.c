// SPDX-License-Identifier: Apache-2.0
/* Tapes, and such as begin where another is cut off, against flat byte arrays with a list of where
 * events end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "model/seeds.h"
#include "store/catalog/extent.h"
#include "store/catalog/tape.h"

#define SEEDS      150
#define STEPS      250
#define N_TAPES    8
#define EVENTS_MAX 9
#define KEPT_MAX   64
#define ROOM_MAX   16
#define COUNT(a)   (sizeof(a) / sizeof *(a))

struct naive_event {
    uint64_t end;
    bool ends_append;
};

struct naive {
    struct buf bytes;
    struct naive_event *events;
    size_t n, cap;
    uint64_t first; /* dropped up to here */
};

/* What a read gave, and what it must go on being. */
struct kept {
    struct slice slice;
    struct buf bytes;
};

struct pair {
    struct tape tape;
    struct naive naive;
    bool used;
    bool by_event; /* as JSON: forks never cut an event in two, and sub-offsets count events */
};

struct desk {
    struct rng rng;
    struct pair pairs[N_TAPES];
    struct kept kept[KEPT_MAX];
    size_t n_kept;
    size_t n_partial; /* forks inside an event */
};

/* ---- the naive one ---- */

static void naive_deinit(struct naive *n)
{
    buf_deinit(&n->bytes);
    free(n->events);
    *n = (struct naive){0};
}

static void naive_add(struct naive *n, uint64_t end, bool ends_append)
{
    if (n->n == n->cap) {
        n->cap = n->cap * 2 + 16;
        n->events = mem_realloc(n->events, n->cap * sizeof *n->events);
    }
    n->events[n->n++] = (struct naive_event){end, ends_append};
}

static uint64_t naive_start(const struct naive *n, size_t i)
{
    return i == 0 ? 0 : n->events[i - 1].end;
}

/* How many events end at pos or before. */
static size_t naive_ordinal(const struct naive *n, uint64_t pos)
{
    size_t i = 0;
    while (i < n->n && n->events[i].end <= pos)
        i++;
    return i;
}

static bool naive_is_boundary(const struct naive *n, uint64_t pos)
{
    return naive_start(n, naive_ordinal(n, pos)) == pos && pos <= n->bytes.n;
}

static void naive_fork(const struct naive *n, uint64_t at, struct naive *to)
{
    buf_put(&to->bytes, str_of(n->bytes.p, at));
    for (size_t i = 0; i < n->n && naive_start(n, i) < at; i++) {
        bool whole = n->events[i].end <= at;
        naive_add(to, whole ? n->events[i].end : at, whole && n->events[i].ends_append);
    }
    if (to->n > 0)
        to->events[to->n - 1].ends_append = true;
    to->first = at;
}

static int naive_advance(const struct naive *n, uint64_t pos, uint64_t sub, bool events,
                         uint64_t *out)
{
    size_t first = naive_ordinal(n, pos), last = first;
    *out = pos;
    if (sub == 0)
        return 0;
    if (first == n->n)
        return ERR_FORK_OFFSET;
    while (!n->events[last].ends_append)
        last++;
    if (sub > (events ? last - first + 1 : n->events[last].end - pos))
        return ERR_FORK_OFFSET;
    *out = events ? n->events[first + sub - 1].end : pos + sub;
    return 0;
}

/* Index behind the last event of a read with room for everything. */
static size_t naive_read(const struct naive *n, uint64_t from, uint64_t limit, size_t max)
{
    size_t i = naive_ordinal(n, from);
    if (from >= limit)
        return i;
    for (i++; i < n->n && n->events[i].end <= limit && n->events[i].end - from <= max;)
        i++;
    return i;
}

/* ---- steps ---- */

static struct pair *any_pair(struct desk *d)
{
    for (;;) {
        struct pair *p = &d->pairs[rng_below(&d->rng, N_TAPES)];
        if (p->used)
            return p;
    }
}

/* Of those that are still held. */
static uint64_t any_boundary(struct desk *d, const struct naive *n)
{
    size_t from = naive_ordinal(n, n->first);
    return naive_start(n, rng_between(&d->rng, from, n->n));
}

static size_t any_size(struct rng *r)
{
    if (!rng_one_in(r, 40))
        return rng_between(r, 1, 30);
    return rng_one_in(r, 4) ? rng_between(r, 50000, 140000) : rng_between(r, 100, 1000);
}

static void do_append(struct desk *d)
{
    struct pair *p = any_pair(d);
    uint32_t ends[EVENTS_MAX], n = (uint32_t)rng_between(&d->rng, 1, EVENTS_MAX), total = 0;
    for (uint32_t i = 0; i < n; i++)
        ends[i] = total += (uint32_t)any_size(&d->rng);
    char *bytes = mem_alloc(total);
    for (uint32_t i = 0; i < total; i++)
        bytes[i] = (char)rng_next(&d->rng);
    uint64_t base = p->naive.bytes.n;
    bool single = n == 1 && rng_one_in(&d->rng, 2);
    if (total > EXTENT_BYTES_MAX && rng_one_in(&d->rng, 2)) {
        struct block *b = block_of(str_of(bytes, total));
        struct buf given = {0};
        buf_put(&given, str_of((const char *)ends, n * sizeof *ends));
        bool give = !single && rng_one_in(&d->rng, 2);
        tape_append_block(&p->tape, b, single ? NULL : ends, single ? 0 : n, give ? &given : NULL,
                          1);
        assert_int_equal(given.p == NULL, give);
        buf_deinit(&given);
        block_unref(b);
    } else {
        tape_append(&p->tape, str_of(bytes, total), single ? NULL : ends, single ? 0 : n, 1);
    }
    buf_put(&p->naive.bytes, str_of(bytes, total));
    for (uint32_t i = 0; i < n; i++)
        naive_add(&p->naive, base + ends[i], i + 1 == n);
    free(bytes);
}

static void do_fork(struct desk *d)
{
    struct pair *from = any_pair(d), *to = &d->pairs[rng_below(&d->rng, N_TAPES)];
    if (to == from)
        return;
    if (to->used) {
        tape_deinit(&to->tape);
        naive_deinit(&to->naive);
    }
    uint64_t at = any_boundary(d, &from->naive);
    if (!from->by_event && rng_one_in(&d->rng, 2))
        at = rng_below(&d->rng, from->naive.bytes.n + 1);
    naive_fork(&from->naive, at, &to->naive);
    d->n_partial += !naive_is_boundary(&from->naive, at);
    tape_begin(&to->tape, at, to->naive.n);
    to->used = true;
    to->by_event = from->by_event;
}

static void keep(struct desk *d, struct slice s)
{
    if (d->n_kept == KEPT_MAX) {
        block_unref(s.owner);
        return;
    }
    struct kept *k = &d->kept[d->n_kept++];
    *k = (struct kept){.slice = s};
    buf_put(&k->bytes, s.bytes);
}

static void check_read(struct desk *d, struct pair *p, uint64_t from, uint64_t limit, size_t max,
                       uint32_t room)
{
    const struct naive *n = &p->naive;
    struct slice slices[ROOM_MAX];
    uint64_t next, last, at = from;
    uint32_t count = tape_read(&p->tape, from, limit, max, slices, room, &next, &last);
    assert_true(count <= room);
    for (uint32_t i = 0; i < count; i++) {
        struct str s = slices[i].bytes;
        assert_true(s.n > 0 && s.n <= n->bytes.n - at);
        assert_memory_equal(s.p, n->bytes.p + at, s.n);
        at += s.n;
        keep(d, slices[i]);
    }
    assert_int_equal(next, at);
    size_t behind = naive_ordinal(n, next), most = naive_read(n, from, limit, max);
    assert_int_equal(naive_start(n, behind), next); /* whole events */
    if (count < room)
        assert_int_equal(behind, most);
    else
        assert_true(behind <= most && (behind > naive_ordinal(n, from) || from >= limit));
    assert_int_equal(last, count == 0 ? from : naive_start(n, behind - 1));
}

static void do_read(struct desk *d)
{
    struct pair *p = any_pair(d);
    uint64_t from = any_boundary(d, &p->naive), limit = p->naive.bytes.n;
    if (rng_one_in(&d->rng, 4))
        limit = any_boundary(d, &p->naive);
    if (limit < from) {
        uint64_t swap = limit;
        limit = from;
        from = swap;
    }
    size_t max = rng_one_in(&d->rng, 5) ? SIZE_MAX : rng_below(&d->rng, 200);
    check_read(d, p, from, limit, max, (uint32_t)rng_between(&d->rng, 1, ROOM_MAX));
}

static void do_look(struct desk *d)
{
    const struct pair *p = any_pair(d);
    const struct naive *n = &p->naive;
    uint64_t pos = rng_between(&d->rng, n->first, n->bytes.n + 2);
    assert_int_equal(tape_is_boundary(&p->tape, pos), naive_is_boundary(n, pos));
    pos = any_boundary(d, n);
    assert_true(tape_is_boundary(&p->tape, pos));
    assert_int_equal(tape_ordinal(&p->tape, pos), naive_ordinal(n, pos));
    assert_int_equal(p->tape.tail, n->bytes.n);
    assert_int_equal(p->tape.events, n->n);
    assert_int_equal(p->tape.first, n->first);
}

static void do_advance(struct desk *d)
{
    const struct pair *p = any_pair(d);
    uint64_t pos = any_boundary(d, &p->naive), expected = 0, got = 0;
    uint64_t sub = rng_one_in(&d->rng, 10) ? UINT64_MAX - rng_below(&d->rng, 3)
                                           : rng_below(&d->rng, EVENTS_MAX + 3);
    int err = naive_advance(&p->naive, pos, sub, p->by_event, &expected);
    assert_int_equal(tape_advance(&p->tape, UINT64_MAX, pos, sub, p->by_event, &got), err);
    if (err == 0)
        assert_int_equal(got, expected);
}

static void do_drop(struct desk *d)
{
    struct pair *p = any_pair(d);
    uint64_t upto = any_boundary(d, &p->naive);
    tape_drop(&p->tape, upto);
    p->naive.first = upto;
}

static void do_seal(struct desk *d)
{
    struct pair *p = any_pair(d);
    uint32_t before = p->tape.n;
    tape_seal(&p->tape);
    assert_int_equal(p->tape.n, before);
}

/* A tape is one row without holes, each piece from where the one before ended. */
static void check_pieces(const struct tape *t)
{
    uint64_t at = 0, end = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct extent *c = tape_extent(t, i, &end);
        assert_true(i == 0 ? c->first <= t->first : c->first == at);
        assert_true(end > c->first && end <= extent_end(c));
        at = end;
    }
    if (t->n > 0)
        assert_int_equal(at, t->tail);
    else
        assert_int_equal(t->first, t->tail);
}

static void step(struct desk *d)
{
    static const struct {
        void (*run)(struct desk *d);
        unsigned percent;
    } shares[] = {{do_append, 40},  {do_read, 20}, {do_fork, 12}, {do_look, 12},
                  {do_advance, 12}, {do_drop, 2},  {do_seal, 2}};
    unsigned at = (unsigned)rng_below(&d->rng, 100);
    for (size_t i = 0; i < COUNT(shares); i++) {
        if (at < shares[i].percent) {
            shares[i].run(d);
            return;
        }
        at -= shares[i].percent;
    }
}

static void check_all(struct desk *d)
{
    for (size_t i = 0; i < N_TAPES; i++) {
        struct pair *p = &d->pairs[i];
        if (!p->used)
            continue;
        check_pieces(&p->tape);
        check_read(d, p, p->naive.first, p->naive.bytes.n, SIZE_MAX, ROOM_MAX);
        tape_deinit(&p->tape);
        naive_deinit(&p->naive);
    }
    /* the slices outlive their tapes, and what was appended behind them has not touched them */
    for (size_t i = 0; i < d->n_kept; i++) {
        struct kept *k = &d->kept[i];
        assert_memory_equal(k->slice.bytes.p, k->bytes.p, k->bytes.n);
        block_unref(k->slice.owner);
        buf_deinit(&k->bytes);
    }
}

static struct desk desk; /* static: a run that failed leaks nothing */
static size_t partial_forks;

static void body(struct rng *r)
{
    desk = (struct desk){.rng = *r};
    desk.pairs[0].used = desk.pairs[1].used = true;
    desk.pairs[1].by_event = true;
    for (int i = 0; i < STEPS; i++)
        step(&desk);
    partial_forks += desk.n_partial;
    check_all(&desk);
}

static void test_random(void **state)
{
    partial_forks = 0;
    seeds_run(SEEDS, body);
    if (seeds_env("TIDEMARK_SEED") == 0)
        assert_true(partial_forks > 0);
}

/* ---- what a comparison of contents does not show ---- */

/* What a fork has of its source ends in the middle of that one's tape, and of an event. */
static void test_ends_where_it_is_told(void **state)
{
    struct tape t = {0};
    uint64_t at = 0, event = 0;
    tape_append(&t, STR("abcdef"), NULL, 0, 1);
    tape_append(&t, STR("ghijkl"), NULL, 0, 1);
    assert_int_equal(t.n, 1);
    assert_int_equal(tape_advance(&t, 4, 0, 4, false, &at), 0);
    assert_int_equal(at, 4);
    assert_int_equal(tape_advance(&t, 4, 0, 5, false, &at), ERR_FORK_OFFSET);
    struct keep all = {.pos = 99, .ms = INT64_MIN, .tail = 12};
    assert_int_equal(tape_keep_from(&t, 8, &all, &event), 8);
    struct keep last = {.pos = 99, .ms = INT64_MIN, .tail = 8};
    assert_int_equal(tape_keep_from(&t, 8, &last, &event), 6);
    assert_int_equal(event, 1);
    tape_deinit(&t);
}

/* Nothing that somebody needs goes with what begins behind it. */
static void test_cut(void **state)
{
    struct tape t = {0};
    for (int i = 0; i < 5; i++) {
        tape_append(&t, STR("abcd"), NULL, 0, 1);
        tape_seal(&t);
    }
    tape_cut(&t, 9);
    assert_int_equal(t.n, 3);
    struct slice slice;
    uint64_t next, last;
    assert_int_equal(tape_read(&t, 8, 9, 99, &slice, 1, &next, &last), 1);
    assert_int_equal(next, 9);
    block_unref(slice.owner);
    tape_drop(&t, 4);
    assert_int_equal(t.first, 4);
    tape_drop(&t, 12); /* and nothing is left: what came behind was cut off */
    assert_int_equal(t.n, 0);
    assert_int_equal(t.first, t.tail);
    assert_int_equal(tape_ordinal(&t, t.first), 5);
    tape_append(&t, STR("abcd"), NULL, 0, 1);
    tape_cut(&t, 0);
    assert_int_equal(t.n, 0);
    assert_int_equal(t.first, t.tail);
    tape_deinit(&t);
}

static void test_small_appends_share_a_chunk(void **state)
{
    struct tape t = {0};
    for (int i = 0; i < 1000; i++)
        tape_append(&t, STR("0123456789"), NULL, 0, 1);
    assert_true(t.n <= 6); /* 512 bytes, then twice as many each time */
    uint32_t before = t.n;
    tape_seal(&t);
    tape_append(&t, STR("x"), NULL, 0, 1);
    assert_int_equal(t.n, before + 1);
    tape_deinit(&t);
}

/* Who holds a chunk may read it on another thread. */
static void test_held_chunk_is_left_alone(void **state)
{
    struct tape t = {0};
    uint64_t end;
    tape_append(&t, STR("held"), NULL, 0, 1);
    struct extent *c = extent_ref(tape_extent(&t, 0, &end));
    tape_append(&t, STR("more"), NULL, 0, 1);
    assert_int_equal(extent_end(c), 4);
    assert_int_equal(c->n_marks, 1);
    assert_int_equal(t.n, 2);
    extent_unref(c);
    tape_deinit(&t);
}

/* Every event is where it was put, in a tape of many pieces. */
static void test_finds_any_event(void **state)
{
    struct tape t = {0};
    char bytes[1000] = {0};
    uint64_t starts[3000], event;
    for (size_t i = 0; i < COUNT(starts); i++) {
        starts[i] = t.tail;
        tape_append(&t, str_of(bytes, 1 + i % sizeof bytes), NULL, 0, 1);
    }
    assert_true(t.n > 10);
    for (size_t i = 0; i < COUNT(starts); i++) {
        struct keep k = {.event = i, .ms = INT64_MIN, .tail = t.tail};
        assert_int_equal(tape_keep_from(&t, UINT64_MAX, &k, &event), starts[i]);
        assert_int_equal(event, i);
    }
    tape_deinit(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_random, seeds_teardown),
        cmocka_unit_test(test_ends_where_it_is_told),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_small_appends_share_a_chunk),
        cmocka_unit_test(test_held_chunk_is_left_alone),
        cmocka_unit_test(test_finds_any_event),
    };
    return cmocka_run_group_tests_name("unit/tape", tests, NULL, NULL);
}
