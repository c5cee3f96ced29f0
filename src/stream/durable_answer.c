// SPDX-License-Identifier: Apache-2.0
/* durable_answer.c -- the events of a read as one body, sent as the peer takes it.
 *
 *   READING --loaded--> AT_HAND --all put--> NOTHING --pulled, and there is room--> READING
 *
 * It begins with what the read has brought, as far as the peer takes that now; the rest is read
 * again when it is its turn. So a peer that takes nothing costs a position. Should the rest be gone
 * by then, the answer is cut off. */
#include "base/err.h"
#include "base/mem.h"
#include "stream/durable_core.h"

#include <stdlib.h>

#define SMALL     4096        /* is copied and sent at once */
#define PIECE_MIN (16 * 1024) /* is read and put at a time, however small the window */

enum answer_state { NOTHING, READING, AT_HAND };

struct answer {
    struct store_read read; /* its slices from `slice` on, and there from `at` on, are at hand */
    struct durable *durable;
    struct exchange *x;
    uint32_t slice;
    size_t at;
    uint64_t end;  /* position */
    uint64_t left; /* bytes of events that have not been put */
    enum answer_state state;
    bool json, opened;
    size_t name_n;
    char name[];
};

static uint64_t size_of(const struct slice *slices, size_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += slices[i].bytes.n;
    return bytes;
}

static void answer_drop_slices(struct answer *a)
{
    store_read_release(&a->read);
    a->read.n_slices = 0;
    a->slice = 0;
    a->at = 0;
    a->state = NOTHING;
}

static void answer_free(struct answer *a)
{
    answer_drop_slices(a);
    free(a);
}

/* ---- reading ---- */

static size_t piece_size(const struct answer *a)
{
    size_t room = exchange_room(a->x);
    if (room < PIECE_MIN)
        room = PIECE_MIN;
    return a->left < room ? (size_t)a->left : room;
}

static void durable_answer_cut(struct answer *a)
{
    struct exchange *x = a->x;
    x->ops = NULL;
    answer_free(a);
    exchange_abort(x);
}

static void durable_answer_on_read(struct store_read *read, int err)
{
    struct answer *a = container_of(read, struct answer, read);
    struct exchange *x = a->x;
    if (err != 0)
        read->n_slices = 0;
    uint64_t bytes = size_of(read->slices, read->n_slices);
    a->state = AT_HAND;
    if (exchange_over(x)) {
        answer_free(a);
    } else if (bytes == 0 || bytes > a->left || read->next > a->end) {
        durable_answer_cut(a);
    } else if (exchange_reserve(x, (size_t)bytes)) {
        read->at.pos = read->next;
        exchange_wake(x);
    } else {
        answer_drop_slices(a); /* a large event: its turn comes */
    }
    exchange_release(x);
}

static enum pull durable_answer_ask(struct answer *a)
{
    size_t n = piece_size(a);
    if (!exchange_reserve(a->x, n))
        return PULL_WAIT;
    a->state = READING;
    a->read.max_bytes = n;
    exchange_hold(a->x);
    store_read(durable_home(a->durable, a->read.name).store, &a->read);
    return PULL_WAIT;
}

/* ---- putting ---- */

/* A small part of a block must not keep all of it from being freed. */
static void put_slice(struct exchange *x, struct slice s)
{
    if (s.owner == NULL || s.bytes.n >= s.owner->cap / 2) {
        exchange_put(x, s);
        return;
    }
    struct block *b = block_of(s.bytes);
    exchange_put(x, slice_of(b, 0, b->n));
    block_unref(b);
}

/* JSON events rest as `a,b,c,`: the last comma is not sent. */
static void put_events(struct answer *a)
{
    size_t room = exchange_room(a->x);
    for (room = room > PIECE_MIN ? room : PIECE_MIN; a->slice < a->read.n_slices && room > 0;) {
        struct slice s = a->read.slices[a->slice];
        s.bytes = str_skip(s.bytes, a->at);
        if (s.bytes.n > room) {
            s.bytes.n = room;
            a->at += room;
        } else {
            a->slice++;
            a->at = 0;
        }
        room -= s.bytes.n;
        a->left -= s.bytes.n;
        s.bytes.n -= a->left == 0 && a->json ? 1 : 0;
        put_slice(a->x, s);
    }
}

static enum pull durable_answer_pull(struct exchange *x)
{
    struct answer *a = x->state;
    if (a->state == READING)
        return PULL_WAIT;
    if (a->state == NOTHING)
        return durable_answer_ask(a);
    if (a->json && !a->opened)
        exchange_put(x, slice_static(STR("[")));
    a->opened = true;
    put_events(a);
    if (a->slice == a->read.n_slices) {
        answer_drop_slices(a);
        exchange_reserve(x, 0);
    }
    if (a->left > 0)
        return PULL_MORE;
    if (a->json)
        exchange_put(x, slice_static(STR("]")));
    answer_free(a);
    return PULL_END;
}

static void durable_answer_gone(struct exchange *x)
{
    struct answer *a = x->state;
    if (a->state != READING)
        answer_free(a);
}

static const struct exchange_ops ops = {.pull = durable_answer_pull, .gone = durable_answer_gone};

/* ---- beginning ---- */

/* Keeps what the peer takes now of what was read. Not where bytes are not positions: then only the
 * end of all is known. */
static void keep_first(struct answer *a, const struct durable_events *e)
{
    size_t room = exchange_room(a->x), n = 0;
    bool exact = a->left == e->next - e->start;
    uint64_t bytes = 0;
    while (n < e->n_slices && (n == 0 || bytes + e->slices[n].bytes.n <= room))
        bytes += e->slices[n++].bytes.n;
    if (room == 0 || (!exact && n < e->n_slices) || !exchange_reserve(a->x, (size_t)bytes))
        return;
    for (size_t i = 0; i < n; i++) {
        a->read.slices[i] = e->slices[i];
        block_ref(e->slices[i].owner);
    }
    a->read.n_slices = (uint32_t)n;
    a->read.at.pos = n == e->n_slices ? e->next : e->start + bytes;
    a->state = AT_HAND;
}

static struct answer *answer_new(struct durable *d, struct exchange *x,
                                 const struct durable_events *e, uint64_t bytes, bool json)
{
    struct answer *a = mem_zalloc(sizeof *a + e->name.n);
    a->durable = d;
    a->x = x;
    a->end = e->next;
    a->left = bytes;
    a->json = json;
    a->name_n = e->name.n;
    memcpy(a->name, e->name.p, e->name.n);
    a->read.name = str_of(a->name, a->name_n);
    a->read.from = READ_AT;
    a->read.at = (struct offset){e->life, e->start};
    a->read.done = durable_answer_on_read;
    return a;
}

static void answer_at_once(struct exchange *x, const struct durable_events *e, uint64_t bytes,
                           bool json)
{
    struct block *b = block_new((uint32_t)bytes + 2);
    if (json)
        b->bytes[b->n++] = '[';
    for (size_t i = 0; i < e->n_slices; i++) {
        memcpy(b->bytes + b->n, e->slices[i].bytes.p, e->slices[i].bytes.n);
        b->n += (uint32_t)e->slices[i].bytes.n;
    }
    if (json && bytes > 0)
        b->n--;
    if (json)
        b->bytes[b->n++] = ']';
    struct slice all = slice_of(b, 0, b->n);
    exchange_send_slices(x, &all, 1);
    block_unref(b);
}

void durable_answer(struct durable *d, struct exchange *x, const struct durable_events *e,
                    bool json)
{
    uint64_t bytes = size_of(e->slices, e->n_slices);
    if (bytes <= SMALL) {
        answer_at_once(x, e, bytes, json);
        return;
    }
    if (exchange_over(x))
        return;
    struct answer *a = answer_new(d, x, e, bytes, json);
    x->state = a;
    x->ops = &ops;
    keep_first(a, e);
    exchange_stream_sized(x, bytes + (json ? 1 : 0)); /* two brackets, and a comma less */
}
