// SPDX-License-Identifier: Apache-2.0
/* logs_read_http.c -- GET: what there is, and with live=... what comes.
 *
 *     {"items":[{"id":"a"},{"id":"b"}],"nextCursor":"184"}
 *
 * and with live=sse, whose ids are cursors as well:
 *
 *     retry: 100
 *     id: 92
 *     data: {"id":"a"}
 *
 * An answer is made as the peer takes it, from one read of the file at a time. */
#include "base/err.h"
#include "feature/logs/log_query.h"
#include "http/heartbeat.h"
#include "http/limits.h"
#include "http/sse_retry.h"
#include "http/url.h"
#include "net/file_watch.h"
#include "net/loop.h"
#include "feature/logs/logs_http_core.h"

#include <stdlib.h>

#define POLL_MS 1000 /* where nobody tells of changes */
#define STEP_BYTES                                                                                 \
    EXCHANGE_PULL    /* of a read, unless a line is longer: a slow peer costs so much              \
                      */
#define LARGE_MAX 16 /* readers that may cost up to LOG_LINE_MAX */

enum live { LIVE_NO, LIVE_LONG_POLL, LIVE_SSE };

struct reader {
    struct log_entry *entry;
    struct exchange *x;
    struct link link; /* in entry->readers, while live */
    struct log_query query;
    struct log_scan scan;
    struct log_read read;
    struct log_id asked; /* of the last read, if that had one */
    struct str since;    /* as it was given; until the first read is done */
    struct block *bytes; /* of the last read */
    struct str rest;     /* of them, what has not been looked at */
    struct str item;     /* the rest of the one being written; empty: none is */
    uint64_t until;      /* an answer that ends does so before a line that begins here */
    uint64_t told;       /* the last id that was sent */
    struct timer timer;  /* long-poll, heartbeat or lifetime */
    struct heartbeat heartbeat;
    uint64_t ends_at_ms;
    enum live live;
    int failed;      /* what a later read ended with */
    bool resumed;    /* since is one of our ids */
    bool reading;    /* and with that the exchange is held */
    bool began;      /* the answer's head is out */
    bool opened;     /* what stands before the items, too */
    bool item_begun; /* what stands before it has been put */
    bool at_end;     /* of the file, once rest is used up */
    bool changed;    /* maybe, since the last read began */
    bool large;      /* bytes is more than STEP_BYTES */
    bool over, gone;
};

/* ---- lifetime ---- */

static void drop_bytes(struct reader *r)
{
    if (r->large)
        r->entry->logs->n_large--;
    r->large = false;
    block_unref(r->bytes);
    r->bytes = NULL;
    r->rest = STR_NONE;
}

static void reader_free(struct reader *r)
{
    struct log_entry *e = r->entry;
    timer_stop(&r->timer);
    list_remove(&r->link);
    if (list_empty(&e->readers)) {
        file_watch_free(e->watch);
        e->watch = NULL;
    }
    log_query_deinit(&r->query);
    drop_bytes(r);
    free(r);
}

/* A read under way ends first. */
static void reader_end(struct reader *r)
{
    r->gone = true;
    if (!r->reading)
        reader_free(r);
}

static enum pull logs_read_end(struct reader *r)
{
    reader_end(r);
    return PULL_END;
}

static void logs_read_reader_gone(struct exchange *x)
{
    reader_end(x->state);
}

/* ---- failures ---- */

static void put_gap(struct buf *out, const struct reader *r)
{
    bool same = log_id_same(&r->asked, &r->read.id);
    buf_printf(out,
               "{\"gap\":{\"requested\":\"%llu\",\"earliest\":\"0\",\"reason\":\"%s\","
               "\"snapshot\":null}}",
               (unsigned long long)r->read.since, same ? "truncated" : "replaced");
}

static void logs_read_refuse_cursor(struct exchange *x, enum log_cursor_fault fault,
                                    struct str since, uint64_t size)
{
    struct buf body = {0};
    log_cursor_refusal(&body, fault, since, size);
    exchange_send_json(x, 400, buf_str(&body));
    buf_deinit(&body);
}

static void answer_gap(struct reader *r)
{
    struct buf body = {0};
    put_gap(&body, r);
    logs_put_identity(r->x, &r->read.id);
    exchange_send_json(r->x, 410, buf_str(&body));
    buf_deinit(&body);
}

/* A read failed before there was an answer. */
static void answer_failure(struct reader *r, int err)
{
    bool ours = r->read.has_id || r->resumed;
    if ((err == ERR_GAP || err == ERR_OFFSET) && ours)
        answer_gap(r);
    else if (err == ERR_GAP)
        logs_read_refuse_cursor(r->x, LOG_CURSOR_AHEAD, r->since, r->read.size);
    else if (err == ERR_OFFSET)
        logs_read_refuse_cursor(r->x, LOG_CURSOR_WITHIN, r->since, r->read.size);
    else if (err == ERR_BUSY)
        exchange_error(r->x, err);
    else
        exchange_problem(r->x, 503, STR("IO"), STR("the log's file cannot be read at present"));
}

/* ---- reading ---- */

static void logs_on_read(struct log_read *read, int err);

static void start_read(struct reader *r)
{
    drop_bytes(r);
    r->reading = true;
    r->changed = false;
    r->asked = r->read.has_id ? r->read.id : (struct log_id){0, 0, 0};
    r->read.log = &r->entry->log;
    r->read.since = r->scan.next;
    r->read.max = STEP_BYTES;
    r->read.done = logs_on_read;
    exchange_hold(r->x);
    logs_begin(r->entry->logs);
    log_read(&r->read);
}

/* The next item is under way, or none is to be had of what was read. */
static bool take_item(struct reader *r)
{
    if (r->item.n > 0)
        return true;
    if (r->live != LIVE_SSE && r->scan.next >= r->until)
        return false;
    r->item_begun = false;
    if (log_scan_item(&r->scan, &r->rest, &r->item))
        return true;
    if (r->rest.n == 0)
        drop_bytes(r); /* who waits now may wait for long */
    return false;
}

/* No item to be had: is that all there is? */
static bool is_all(const struct reader *r)
{
    if (log_scan_full(&r->scan))
        return true;
    return r->live != LIVE_SSE && (r->at_end || r->scan.next >= r->until);
}

/* ---- {"items":[..]} ---- */

static void logs_read_put_piece(struct reader *r, struct buf *out)
{
    size_t room = EXCHANGE_PULL - out->n;
    struct str piece = str_of(r->item.p, r->item.n < room ? r->item.n : room);
    size_t from = out->n;
    buf_put(out, piece);
    r->item = str_skip(r->item, piece.n);
    /* Between two tokens a lone CR is white space; in an event it would end the line. */
    for (size_t i = from; r->live == LIVE_SSE && i < out->n; i++)
        if (out->p[i] == '\r')
            out->p[i] = ' ';
}

static void begin_item(struct reader *r, struct buf *out)
{
    if (r->live == LIVE_SSE) {
        buf_put(out, STR("id: "));
        buf_put_u64(out, r->scan.next);
        buf_put(out, STR("\ndata: "));
        r->told = r->scan.next;
    } else if (r->scan.items > 1) {
        buf_putc(out, ',');
    }
    r->item_begun = true;
}

static void put_items(struct reader *r, struct buf *out)
{
    while (out->n < EXCHANGE_PULL && take_item(r)) {
        if (!r->item_begun)
            begin_item(r, out);
        if (out->n < EXCHANGE_PULL)
            logs_read_put_piece(r, out);
        if (r->item.n == 0 && r->live == LIVE_SSE)
            buf_put(out, STR("\n\n"));
    }
}

static void logs_read_flush(struct reader *r, struct buf *out)
{
    if (out->n > 0) {
        struct block *b = block_of(buf_str(out));
        exchange_put(r->x, slice_of(b, 0, b->n));
        block_unref(b);
        heartbeat_sent(&r->heartbeat, r->entry->logs->sched->now_ms);
    }
    buf_deinit(out);
}

static enum pull logs_read_pull_items(struct exchange *x)
{
    struct reader *r = x->state;
    struct buf out = {0};
    if (r->reading)
        return PULL_WAIT;
    if (!r->opened)
        buf_put(&out, STR("{\"items\":["));
    r->opened = true;
    put_items(r, &out);
    bool more = out.n >= EXCHANGE_PULL || r->item.n > 0, all = !more && is_all(r);
    if (all)
        buf_printf(&out, "],\"nextCursor\":\"%llu\"}\n", (unsigned long long)r->scan.next);
    logs_read_flush(r, &out);
    if (all)
        return logs_read_end(r);
    if (!more)
        start_read(r);
    return more ? PULL_MORE : PULL_WAIT;
}

static const struct exchange_ops items_ops = {.pull = logs_read_pull_items,
                                              .gone = logs_read_reader_gone};

static void logs_read_begin_answer(struct reader *r, const struct exchange_ops *ops,
                                   struct str type, struct str caching)
{
    struct exchange *x = r->x;
    r->began = true;
    x->ops = ops;
    logs_put_identity(x, &r->read.id);
    exchange_header(x, STR("Content-Type"), type);
    exchange_header(x, STR("Cache-Control"), caching);
}

/* r may be gone afterwards. */
static void answer_items(struct reader *r)
{
    timer_stop(&r->timer);
    logs_read_begin_answer(r, &items_ops, STR("application/json"), STR("no-store"));
    exchange_stream(r->x);
}

/* ---- live=sse ---- */

static void logs_read_start_timer(struct reader *r)
{
    const struct logs *l = r->entry->logs;
    uint64_t now_ms = l->sched->now_ms;
    uint64_t left_ms = r->ends_at_ms > now_ms ? r->ends_at_ms - now_ms : 0;
    uint64_t quiet_ms = heartbeat_wait_ms(&r->heartbeat, now_ms);
    bool beats = r->heartbeat.every_ms > 0 && quiet_ms < left_ms;
    sched_start(l->sched, &r->timer, beats ? quiet_ms : left_ms);
}

static void logs_read_on_sse_timer(struct timer *t)
{
    struct reader *r = container_of(t, struct reader, timer);
    uint64_t now_ms = r->entry->logs->sched->now_ms;
    r->over = now_ms >= r->ends_at_ms;
    heartbeat_look(&r->heartbeat, now_ms);
    if (!r->over)
        logs_read_start_timer(r);
    exchange_wake(r->x);
}

/* Tells the cursor as well, when lines that the filters passed over have moved it: in a block of
 * its own, since only the end of a block makes clients remember an id. */
static void put_heartbeat(struct reader *r, struct buf *out)
{
    buf_put(out, HEARTBEAT);
    if (r->scan.next == r->told)
        return;
    buf_put(out, STR("id: "));
    buf_put_u64(out, r->scan.next);
    buf_put(out, STR("\n\n"));
    r->told = r->scan.next;
}

static void put_failure(struct reader *r, struct buf *out)
{
    if (r->failed != ERR_GAP)
        return; /* the client asks again, at the same place */
    buf_put(out, STR("event: gap\ndata: "));
    put_gap(out, r);
    buf_put(out, STR("\n\n"));
}

/* What there is to do at the end of what was read. */
static enum pull pull_at_end(struct reader *r, struct buf *out)
{
    if (log_scan_full(&r->scan) || r->over || r->failed != 0)
        return PULL_END;
    if (!r->at_end || r->changed)
        return PULL_MORE;
    if (r->heartbeat.due)
        put_heartbeat(r, out);
    return PULL_WAIT;
}

static enum pull logs_read_pull_sse(struct exchange *x)
{
    struct reader *r = x->state;
    struct buf out = {0};
    if (r->reading)
        return r->over ? logs_read_end(r) : PULL_WAIT;
    if (!r->opened)
        sse_retry_put(&out, r->entry->logs->setup.sse_retry_ms);
    r->opened = true;
    if (r->failed != 0)
        put_failure(r, &out);
    else if (!r->over || r->item.n > 0)
        put_items(r, &out);
    if (out.n >= EXCHANGE_PULL || r->item.n > 0) {
        logs_read_flush(r, &out);
        return PULL_MORE;
    }
    enum pull next = pull_at_end(r, &out);
    logs_read_flush(r, &out);
    if (next == PULL_END)
        return logs_read_end(r);
    if (next == PULL_MORE)
        start_read(r);
    return PULL_WAIT;
}

static void logs_read_drain_sse(struct exchange *x)
{
    struct reader *r = x->state;
    r->over = true;
    exchange_wake(x);
}

static const struct exchange_ops sse_ops = {
    .pull = logs_read_pull_sse, .gone = logs_read_reader_gone, .drain = logs_read_drain_sse};

static void answer_sse(struct reader *r)
{
    struct logs *l = r->entry->logs;
    r->told = r->query.since;
    r->ends_at_ms = l->sched->now_ms + sched_spread(l->sched, l->setup.sse_lifetime_ms);
    r->over = exchange_closing(r->x);
    r->heartbeat = (struct heartbeat){.every_ms = sched_spread(l->sched, l->setup.heartbeat_ms),
                                      .since_ms = l->sched->now_ms};
    timer_init(&r->timer, logs_read_on_sse_timer);
    logs_read_start_timer(r);
    logs_read_begin_answer(r, &sse_ops, STR("text/event-stream"), STR("no-cache, no-transform"));
    exchange_header(r->x, STR("X-Accel-Buffering"), STR("no"));
    exchange_stream(r->x);
}

/* ---- live=long-poll ---- */

/* There is an item to answer with, or it has waited long enough. */
static void step_long_poll(struct reader *r)
{
    if (take_item(r)) {
        answer_items(r);
    } else if (!r->at_end || r->changed) {
        start_read(r);
    } else if (r->over) {
        r->until = r->scan.next;
        answer_items(r);
    }
}

static void poll_over(struct reader *r)
{
    r->over = true;
    if (!r->reading)
        step_long_poll(r);
}

static void logs_read_on_poll_timeout(struct timer *t)
{
    poll_over(container_of(t, struct reader, timer));
}

static void logs_read_drain_long_poll(struct exchange *x)
{
    poll_over(x->state);
}

static const struct exchange_ops poll_ops = {.gone = logs_read_reader_gone,
                                             .drain = logs_read_drain_long_poll};

static void begin_long_poll(struct reader *r)
{
    struct logs *l = r->entry->logs;
    r->x->ops = &poll_ops;
    r->over = exchange_closing(r->x);
    timer_init(&r->timer, logs_read_on_poll_timeout);
    sched_start(l->sched, &r->timer, l->setup.long_poll_ms);
    step_long_poll(r);
}

/* ---- what reads bring ---- */

/* ERR_BUSY: too many readers have such long lines in memory. */
static int logs_read_take_bytes(struct reader *r)
{
    const struct log_read *read = &r->read;
    struct logs *l = r->entry->logs;
    r->bytes = read->bytes;
    r->large = r->bytes != NULL && r->bytes->n > STEP_BYTES;
    if (r->large && ++l->n_large > LARGE_MAX) {
        drop_bytes(r);
        return ERR_BUSY;
    }
    if (r->bytes != NULL)
        r->rest = str_of(r->bytes->bytes, r->bytes->n);
    else
        r->scan.next = read->next; /* of a line that was passed over */
    r->at_end = read->next == read->since || read->next == read->size;
    if (!r->began)
        r->until = read->size;
    return 0;
}

/* A later read failed. What was given up to there stands; the next request meets the reason. */
static void fail_later(struct reader *r, int err)
{
    r->failed = err;
    r->at_end = true;
    if (r->began) {
        exchange_wake(r->x);
        return;
    }
    answer_failure(r, err);
    reader_free(r);
}

static void on_first_read(struct reader *r, int err)
{
    if (err == 0)
        err = logs_read_take_bytes(r);
    if (err != 0) {
        answer_failure(r, err);
        reader_free(r);
        return;
    }
    if (r->live != LIVE_NO && !limits_take_live(r->x)) {
        reader_free(r);
        return;
    }
    r->read.has_id = true; /* whatever it was asked with: now it is this file */
    if (r->live == LIVE_SSE)
        answer_sse(r);
    else if (r->live == LIVE_LONG_POLL)
        begin_long_poll(r);
    else
        answer_items(r);
}

static void logs_on_read(struct log_read *read, int err)
{
    struct reader *r = container_of(read, struct reader, read);
    struct exchange *x = r->x;
    struct logs *l = r->entry->logs;
    bool first = r->since.p != NULL;
    r->reading = false;
    r->since = first && err == 0 ? STR_NONE : r->since;
    if (r->gone) {
        block_unref(read->bytes);
        reader_free(r);
    } else if (first) {
        on_first_read(r, err);
        exchange_forget_request(x); /* what waits needs nothing of it */
    } else if (err != 0 || (err = logs_read_take_bytes(r)) != 0) {
        fail_later(r, err);
    } else if (r->began) {
        exchange_wake(x);
    } else {
        step_long_poll(r);
    }
    exchange_release(x);
    logs_end(l);
}

static void reader_changed(struct reader *r)
{
    r->changed = true;
    if (r->reading)
        return;
    if (r->began)
        exchange_wake(r->x);
    else if (r->since.p == NULL)
        step_long_poll(r);
}

/* One of them may go while it is told, and takes itself off the list. */
void logs_wake_readers(struct log_entry *e)
{
    list_each_safe (l, &e->readers)
        reader_changed(list_item(l, struct reader, link));
}

static void logs_read_on_changed(void *ctx)
{
    logs_wake_readers(ctx);
}

/* Before the first read: what changes behind that one is told. */
static void logs_read_follow(struct reader *r)
{
    struct log_entry *e = r->entry;
    list_push(&e->readers, &r->link);
    if (e->watch == NULL)
        e->watch =
            file_watch_new(e->logs->setup.loop, e->log.path, POLL_MS, logs_read_on_changed, e);
}

/* ---- the request ---- */

static bool logs_read_refuse(struct exchange *x, struct str message)
{
    exchange_problem(x, 400, STR("INVALID_ARGUMENT"), message);
    return false;
}

static bool take_live(struct reader *r, struct str text)
{
    if (str_eq(text, STR("sse")))
        r->live = LIVE_SSE;
    else if (str_eq(text, STR("long-poll")))
        r->live = LIVE_LONG_POLL;
    else
        return logs_read_refuse(r->x, STR("live must be sse or long-poll"));
    return true;
}

/* where.KEY=VALUE, any number of them. */
static bool take_filters(struct reader *r, struct str query)
{
    static const struct str prefix = STR_INIT("where.");
    struct arena *a = &r->x->arena;
    while (query.p != NULL) {
        struct str value = str_cut(&query, '&'), raw = str_cut(&value, '='), key;
        if (url_decode(a, raw, true, &key) != 0 || !str_starts(key, prefix))
            continue;
        if (url_decode(a, value, true, &value) != 0)
            return logs_read_refuse(r->x, STR("the value of a where.KEY is not percent-encoded"));
        int err = log_query_where(&r->query, str_skip(key, prefix.n), value);
        if (err == ERR_LIMIT)
            return logs_read_refuse(r->x, STR("too many filters; 16 at most"));
        if (err != 0)
            return logs_read_refuse(r->x, STR("each where.KEY may be given once"));
    }
    return true;
}

static bool take_identity(struct reader *r, struct str text)
{
    if (text.n == 0)
        return true;
    if (log_id_parse(text, &r->read.id) != 0)
        return logs_read_refuse(r->x, STR("identity must be one from a Log-Identity header"));
    r->read.has_id = true;
    return true;
}

/* False: it has been answered. */
static bool take_query(struct reader *r)
{
    struct exchange *x = r->x;
    struct arena *a = &x->arena;
    struct str query = x->request->query, since = STR("0"), limit = STR_NONE, live = STR_NONE,
               identity = STR_NONE;
    if (url_query(a, query, STR("since"), &since) < 0 ||
        url_query(a, query, STR("limit"), &limit) < 0 ||
        url_query(a, query, STR("identity"), &identity) < 0 ||
        url_query(a, query, STR("live"), &live) < 0)
        return logs_read_refuse(x, STR("since, limit, identity and live may be given once each"));
    if ((live.n > 0 && !take_live(r, live)) || !take_identity(r, identity) ||
        !take_filters(r, query))
        return false;
    log_query_limit(&r->query, limit);
    /* What a browser sends when it reconnects is newer than its URL. */
    struct str last = request_header(x->request, STR("Last-Event-ID"));
    r->resumed = r->live == LIVE_SSE && last.n > 0;
    r->since = r->resumed ? last : since.p != NULL ? since : STR("");
    if (log_query_since(&r->query, r->since) == 0)
        return true;
    logs_read_refuse_cursor(x, LOG_CURSOR_MALFORMED, r->since, 0);
    return false;
}

static void logs_read_on_no_body(struct exchange *x, struct str body, int err)
{
    struct reader *r = x->state;
    if (err != 0) {
        exchange_error(x, err);
        reader_free(r);
        return;
    }
    log_scan_init(&r->scan, &r->query);
    if (r->live != LIVE_NO)
        logs_read_follow(r);
    start_read(r);
}

static const struct exchange_ops first_ops = {.gone = logs_read_reader_gone};

void logs_get(struct log_entry *e, struct exchange *x)
{
    struct reader *r = mem_zalloc(sizeof *r);
    r->entry = e;
    r->x = x;
    list_init(&r->link);
    timer_init(&r->timer, logs_read_on_poll_timeout);
    if (!take_query(r)) {
        reader_free(r);
        return;
    }
    if (x->request->method == METHOD_HEAD)
        r->live = LIVE_NO; /* there is nothing to wait for */
    x->state = r;
    x->ops = &first_ops;
    exchange_collect(x, 0, logs_read_on_no_body); /* a GET with a body is no GET */
}
