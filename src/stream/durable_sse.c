// SPDX-License-Identifier: Apache-2.0
/* durable_sse.c -- GET with live=sse.
 *
 *     retry: 100                                 of the first block only
 *     id: 0000000000000001_0000000000000042      the position behind these events
 *     event: data
 *     data:[{"n":1},{"n":2}]
 *
 *     event: control
 *     data:{"streamNextOffset":"0000000000000001_0000000000000042","streamCursor":"7","upToDate":true}
 *
 * The id stands on the data event, so that a reader cut off between the two resumes behind it; a
 * control event that comes alone carries its own. Data and control leave in one write. */
#include "base/b64.h"
#include "base/err.h"
#include "base/num.h"
#include "base/utf8.h"
#include "stream/subscriber.h"
#include "http/heartbeat.h"
#include "http/limits.h"
#include "http/sse_retry.h"
#include "store/content.h"
#include "stream/durable_core.h"

#include <stdlib.h>

#define PIECE_BYTES (16 * 1024) /* of a large event: a pull is some of them */

/* The data of one event, written piece by piece: what the end of one piece means for the next. */
struct sse_writer {
    uint8_t kind;              /* enum content_kind */
    bool line_start, after_cr; /* of text */
    uint8_t n_carry;           /* of base64: bytes that wait for a third */
    char carry[3];
};

/* An event larger than a pull, while it is written piece by piece. */
struct sse_large {
    struct event_batch *batch;
    size_t at; /* how many of its bytes are */
    struct sse_writer writer;
};

struct sse_reader {
    struct durable *durable;
    struct exchange *x;
    struct subscriber subscriber;
    struct timer timer; /* heartbeat or lifetime, whichever is next */
    struct heartbeat heartbeat;
    uint64_t ends_at_ms;     /* the client reconnects then */
    uint64_t cursor_from;    /* a cursor handed out must not be lower: the client was ahead */
    struct sse_large *large; /* NULL: none */
    uint8_t kind;            /* enum content_kind */
    bool over;
    bool greeted;      /* the control event that comes at once has been put */
    bool hold_expired; /* what was held back was not completed */
};

/* ---- frames ---- */

/* One frame's content. */
struct frame {
    const struct slice *slices;
    size_t n;
    struct offset next;
    uint64_t cursor;
    bool up_to_date;
    enum end_reason end; /* with up_to_date */
};

static void put_id(struct buf *out, struct offset next)
{
    char text[OFFSET_TEXT];
    offset_format(next, text);
    buf_put(out, STR("id: "));
    buf_put(out, str_of(text, OFFSET_TEXT));
    buf_putc(out, '\n');
}

static void put_control(struct buf *out, const struct frame *f)
{
    char text[OFFSET_TEXT];
    offset_format(f->next, text);
    buf_put(out, STR("event: control\ndata:{\"streamNextOffset\":\""));
    buf_put(out, str_of(text, OFFSET_TEXT));
    buf_putc(out, '"');
    if (f->end != END_NONE) {
        buf_put(out, STR(",\"streamClosed\":true,\"endReason\":\""));
        buf_put(out, end_reason_text(f->end));
        buf_putc(out, '"');
    } else {
        buf_put(out, STR(",\"streamCursor\":\""));
        buf_put_u64(out, f->cursor);
        buf_putc(out, '"');
    }
    buf_put(out, f->up_to_date ? STR(",\"upToDate\":true}\n\n") : STR("}\n\n"));
}

static void begin_data(struct sse_writer *w, struct buf *out, uint8_t kind, struct offset next)
{
    *w = (struct sse_writer){.kind = kind, .line_start = true};
    put_id(out, next);
    buf_put(out, STR("event: data\ndata:"));
    if (kind == CONTENT_JSON)
        buf_putc(out, '[');
}

static void put_base64(struct sse_writer *w, struct buf *out, struct str s)
{
    while (w->n_carry > 0 && w->n_carry < 3 && s.n > 0) {
        w->carry[w->n_carry++] = s.p[0];
        s = str_skip(s, 1);
    }
    if (w->n_carry == 3) {
        b64_put(out, str_of(w->carry, 3));
        w->n_carry = 0;
    }
    size_t whole = s.n - s.n % 3;
    b64_put(out, str_of(s.p, whole));
    for (size_t i = whole; i < s.n; i++)
        w->carry[w->n_carry++] = s.p[i];
}

/* A line break of any kind begins a new data line, so that no payload can forge an event. A
 * leading space is doubled, since a reader drops one. */
static void durable_sse_put_text(struct sse_writer *w, struct buf *out, struct str s)
{
    for (size_t from = 0, at = 0; from < s.n; from = at) {
        if (w->after_cr && s.p[at] == '\n') {
            w->after_cr = false;
            at++;
            continue;
        }
        if (w->line_start && s.p[at] == ' ')
            buf_putc(out, ' ');
        while (at < s.n && s.p[at] != '\r' && s.p[at] != '\n')
            at++;
        buf_put(out, str_of(s.p + from, at - from));
        w->line_start = at < s.n;
        w->after_cr = at < s.n && s.p[at] == '\r';
        if (at < s.n) {
            buf_put(out, STR("\ndata:"));
            at++;
        }
    }
}

static void durable_sse_put_data(struct sse_writer *w, struct buf *out, struct str piece)
{
    if (w->kind == CONTENT_BINARY)
        put_base64(w, out, piece);
    else if (w->kind == CONTENT_TEXT)
        durable_sse_put_text(w, out, piece);
    else
        buf_put(out, piece);
}

/* Right behind the last piece, in the same buffer. */
static void end_data(struct sse_writer *w, struct buf *out)
{
    if (w->kind == CONTENT_BINARY)
        b64_put(out, str_of(w->carry, w->n_carry));
    if (w->kind == CONTENT_JSON)
        out->p[out->n - 1] = ']'; /* in place of the last event's comma */
    buf_put(out, STR("\n\n"));
}

static struct block *frame_block(const struct frame *f, uint8_t kind)
{
    struct buf out = {0};
    struct sse_writer w;
    if (f->n == 0) {
        put_id(&out, f->next);
    } else {
        begin_data(&w, &out, kind, f->next);
        for (size_t i = 0; i < f->n; i++)
            durable_sse_put_data(&w, &out, f->slices[i].bytes);
        end_data(&w, &out);
    }
    put_control(&out, f);
    struct block *b = block_of(buf_str(&out));
    buf_deinit(&out);
    return b;
}

/* ---- the reader ---- */

static uint64_t cursor_of(const struct sse_reader *s)
{
    uint64_t now = durable_cursor(s->durable->sched, 0);
    return now > s->cursor_from ? now : s->cursor_from;
}

/* Ahead of the first frame, which is everybody's: this line is not. */
static void put_retry(struct sse_reader *s)
{
    struct buf line = {0};
    sse_retry_put(&line, s->durable->sse_retry_ms);
    if (line.n > 0) {
        struct block *b = block_of(buf_str(&line));
        exchange_put(s->x, slice_of(b, 0, b->n));
        block_unref(b);
    }
    buf_deinit(&line);
}

static void durable_sse_put_block(struct sse_reader *s, struct block *b)
{
    if (!s->greeted)
        put_retry(s);
    exchange_put(s->x, slice_of(b, 0, b->n));
    heartbeat_sent(&s->heartbeat, s->durable->sched->now_ms);
    s->greeted = true;
}

/* As durable_sse_put_block, of bytes made for this; *out is empty afterwards. */
static void put_buf(struct sse_reader *s, struct buf *out)
{
    struct block *b = block_of(buf_str(out));
    durable_sse_put_block(s, b);
    block_unref(b);
    buf_deinit(out);
}

static struct frame frame_of(const struct event_batch *b, uint64_t cursor)
{
    bool up_to_date = b->next == b->info.tail;
    return (struct frame){.slices = b->slices,
                          .n = b->n_slices,
                          .next = {b->info.life, b->next},
                          .cursor = cursor,
                          .up_to_date = up_to_date,
                          .end = up_to_date ? b->info.end : END_NONE};
}

/* All readers that have got this far share one encoding. */
static void put_batch(struct sse_reader *s, struct event_batch *b)
{
    uint64_t cursor = cursor_of(s);
    if (b->frame == NULL || b->frame_key != cursor) {
        struct frame f = frame_of(b, cursor);
        block_unref(b->frame);
        b->frame = frame_block(&f, s->kind);
        b->frame_key = cursor;
    }
    durable_sse_put_block(s, b->frame);
}

/* The bytes of a batch are not always those between its positions: a store that opens what is
 * sealed gives others. */
static size_t durable_sse_size_of(const struct event_batch *b)
{
    size_t n = 0;
    for (uint32_t i = 0; i < b->n_slices; i++)
        n += b->slices[i].bytes.n;
    return n;
}

/* What lies together of a batch, behind its first `at` bytes. */
static struct str run_at(const struct event_batch *b, size_t at)
{
    const struct slice *s = b->slices;
    for (; at >= s->bytes.n; s++)
        at -= s->bytes.n;
    return str_skip(s->bytes, at);
}

/* An event larger than a pull is written as the peer takes it: whole, it would lie in memory once
 * for every slow reader. True: that was the rest of it. */
static bool put_large(struct sse_reader *s)
{
    struct sse_large *l = s->large;
    struct frame f = frame_of(l->batch, cursor_of(s));
    struct buf out = {0};
    if (l->at == 0)
        begin_data(&l->writer, &out, s->kind, f.next);
    struct str piece = run_at(l->batch, l->at);
    if (piece.n > PIECE_BYTES)
        piece.n = PIECE_BYTES;
    durable_sse_put_data(&l->writer, &out, piece);
    l->at += piece.n;
    bool done = l->at == durable_sse_size_of(l->batch);
    if (done) {
        end_data(&l->writer, &out);
        put_control(&out, &f);
    }
    put_buf(s, &out);
    return done;
}

/* Of a batch, only what comes before position `durable_sse_end`. */
static void durable_sse_put_part(struct sse_reader *s, const struct event_batch *b, uint64_t end)
{
    struct slice slices[READ_SLICES];
    size_t n = 0;
    uint64_t at = b->start;
    for (uint32_t i = 0; i < b->n_slices && at < end; i++) {
        slices[n] = b->slices[i];
        if (slices[n].bytes.n > end - at)
            slices[n].bytes.n = (size_t)(end - at);
        at += slices[n++].bytes.n;
    }
    struct frame f = {
        .slices = slices, .n = n, .next = {b->info.life, end}, .cursor = cursor_of(s)};
    struct block *frame = frame_block(&f, s->kind);
    durable_sse_put_block(s, frame);
    block_unref(frame);
}

/* Does a character begin before position `durable_sse_end` and go on behind it? */
static bool cut_in_two(const struct event_batch *b, uint64_t end)
{
    char last[4];
    size_t n = 0;
    uint64_t at = b->start;
    for (uint32_t i = 0; i < b->n_slices && at < end; i++) {
        struct str s = b->slices[i].bytes;
        size_t upto = s.n < end - at ? s.n : (size_t)(end - at);
        for (size_t k = upto > 4 ? upto - 4 : 0; k < upto; k++) {
            if (n == 4)
                memmove(last, last + 1, --n);
            last[n++] = s.p[k];
        }
        at += s.n;
    }
    return utf8_incomplete_tail(str_of(last, n)) > 0;
}

/* Text that stops inside a character, where more of it is to come: a reader would see two broken
 * ones. What belongs to it comes with the next batch, or as it is when nothing completes it for a
 * while. True: dealt with. */
static bool held_back(struct sse_reader *s, struct event_batch *b)
{
    bool at_tail = b->next == b->info.tail;
    if (s->kind != CONTENT_TEXT || s->hold_expired || (at_tail && b->info.end != END_NONE) ||
        !cut_in_two(b, b->next))
        return false;
    uint64_t keep = cut_in_two(b, b->last) ? b->start : b->last;
    if (keep == b->start && !at_tail)
        return false; /* longer than a batch */
    if (keep > b->start || !s->greeted)
        durable_sse_put_part(s, b, keep);
    subscriber_hold(&s->subscriber, keep, b->next);
    return true;
}

/* Says what is gone for good. After any other failure the client asks again, at the same place. */
static void put_failure(struct sse_reader *s)
{
    const struct subscriber *sub = &s->subscriber;
    struct gap gap = {.requested = {sub->life, sub->pos}, .reason = GAP_EXPIRED};
    if (sub->err == ERR_GAP)
        gap = *sub->gap;
    else if (sub->err != ERR_NOT_FOUND && sub->err != ERR_DELETED)
        return;
    struct buf out = {0};
    buf_put(&out, STR("event: gap\ndata:"));
    durable_gap_json(&out, &gap);
    buf_put(&out, STR("\n\n"));
    put_buf(s, &out);
}

static void sse_free(struct sse_reader *s)
{
    timer_stop(&s->timer);
    subscriber_deinit(&s->subscriber);
    if (s->large != NULL)
        event_batch_unref(s->large->batch);
    free(s->large);
    slab_free(&s->durable->readers, s);
}

static enum pull durable_sse_end(struct sse_reader *s)
{
    sse_free(s);
    return PULL_END;
}

static enum pull after_batch(struct sse_reader *s, struct event_batch *b)
{
    bool last = b->info.end != END_NONE && b->next == b->info.tail;
    event_batch_unref(b);
    subscriber_used(&s->subscriber);
    return last ? durable_sse_end(s) : PULL_MORE;
}

static enum pull pull_large(struct sse_reader *s)
{
    if (!put_large(s))
        return PULL_MORE;
    struct event_batch *b = s->large->batch;
    free(s->large);
    s->large = NULL;
    return after_batch(s, b);
}

static enum pull durable_sse_pull(struct exchange *x)
{
    struct sse_reader *s = x->state;
    if (s->large != NULL)
        return pull_large(s); /* even when over: a slow reader would never get to its end */
    if (s->over)
        return durable_sse_end(s);
    struct event_batch *b;
    enum next next = subscriber_next(&s->subscriber, &b);
    if (next == NEXT_WAIT) {
        if (s->heartbeat.due)
            exchange_put(x, slice_static(HEARTBEAT));
        s->heartbeat.due = false;
        return PULL_WAIT;
    }
    if (next == NEXT_FAILED) {
        put_failure(s);
        return durable_sse_end(s);
    }
    if (!held_back(s, b)) {
        s->hold_expired = false;
        limits_count_events(x, b->events);
        if (durable_sse_size_of(b) > EVENT_BATCH_BYTES) {
            s->large = mem_zalloc(sizeof *s->large);
            s->large->batch = b;
            return pull_large(s);
        }
        put_batch(s, b);
    }
    return after_batch(s, b);
}

static void durable_sse_ready(struct subscriber *subscriber)
{
    exchange_wake(container_of(subscriber, struct sse_reader, subscriber)->x);
}

static bool durable_sse_reserve(struct subscriber *subscriber, size_t bytes)
{
    return exchange_reserve(container_of(subscriber, struct sse_reader, subscriber)->x, bytes);
}

static void durable_sse_on_cut(struct subscriber *subscriber)
{
    struct sse_reader *s = container_of(subscriber, struct sse_reader, subscriber);
    struct exchange *x = s->x;
    x->ops = NULL;
    sse_free(s);
    exchange_abort(x);
}

static void durable_sse_start_timer(struct sse_reader *s)
{
    const struct durable *d = s->durable;
    uint64_t now_ms = d->sched->now_ms, left_ms = s->ends_at_ms - now_ms;
    uint64_t quiet_ms = heartbeat_wait_ms(&s->heartbeat, now_ms);
    bool beats = s->heartbeat.every_ms > 0 && quiet_ms < left_ms;
    sched_start(d->sched, &s->timer, beats ? quiet_ms : left_ms);
}

static void durable_sse_on_timer(struct timer *t)
{
    struct sse_reader *s = container_of(t, struct sse_reader, timer);
    uint64_t now_ms = s->durable->sched->now_ms;
    s->over = now_ms >= s->ends_at_ms;
    heartbeat_look(&s->heartbeat, now_ms);
    if (s->subscriber.held) {
        s->hold_expired = true;
        subscriber_hold(&s->subscriber, s->subscriber.pos, 0);
    }
    if (!s->over)
        durable_sse_start_timer(s);
    exchange_wake(s->x);
}

static void durable_sse_drain(struct exchange *x)
{
    struct sse_reader *s = x->state;
    s->over = true;
    exchange_wake(x);
}

static void durable_sse_gone(struct exchange *x)
{
    sse_free(x->state);
}

static const struct exchange_ops sse_ops = {
    .pull = durable_sse_pull, .gone = durable_sse_gone, .drain = durable_sse_drain};

void durable_sse(struct durable *d, struct exchange *x, struct store_read *r, uint64_t cursor)
{
    if (!limits_take_live(x))
        return;
    struct sse_reader *s = slab_zalloc(&d->readers, sizeof *s);
    s->durable = d;
    s->x = x;
    s->kind = (uint8_t)content_kind(r->info.content_type);
    s->ends_at_ms = d->sched->now_ms + sched_spread(d->sched, d->sse_lifetime_ms);
    s->over = exchange_closing(x);
    s->heartbeat = (struct heartbeat){.every_ms = (uint32_t)sched_spread(d->sched, d->heartbeat_ms),
                                      .since_ms = d->sched->now_ms};
    if (cursor > 0 && cursor >= durable_cursor(d->sched, 0))
        s->cursor_from = durable_cursor(d->sched, cursor);
    subscriber_init(&s->subscriber, durable_home(d, r->name).feeds, r->name,
                    (struct offset){r->info.life, r->start}, durable_sse_ready);
    subscriber_may_lag(&s->subscriber, durable_sse_on_cut);
    subscriber_asks(&s->subscriber, durable_sse_reserve);
    if (r->n_slices == 0 || exchange_room(x) > 0)
        subscriber_prime(&s->subscriber, r); /* else it would lie here until the peer takes it */
    timer_init(&s->timer, durable_sse_on_timer);
    durable_sse_start_timer(s);
    x->state = s;
    x->ops = &sse_ops;
    exchange_header(x, STR("Content-Type"), STR("text/event-stream"));
    exchange_header(x, STR("Cache-Control"), STR("no-cache, no-transform"));
    exchange_header(x, STR("X-Accel-Buffering"), STR("no"));
    if (s->kind == CONTENT_BINARY)
        exchange_header(x, STR("Stream-SSE-Data-Encoding"), STR("base64"));
    exchange_stream(x);
}
