// SPDX-License-Identifier: Apache-2.0
/* durable_read.c -- GET: catch-up and long-poll, and the first step of SSE. */
#include "base/err.h"
#include "base/num.h"
#include "stream/subscriber.h"
#include "http/limits.h"
#include "http/guard.h"
#include "http/http.h"
#include "http/url.h"
#include "store/content.h"
#include "store/names.h"
#include "stream/durable_core.h"

#include <stdlib.h>

enum live { LIVE_NO, LIVE_LONG_POLL, LIVE_SSE };

/* Lives in the exchange's arena until it is answered or begins to wait. */
struct read_request {
    struct store_read read;
    struct durable *durable;
    struct exchange *x;
    enum live live;
    uint64_t cursor; /* the client's */
    bool resumed;    /* an EventSource that was here before */
};

/* ---- parameters ---- */

static int take_offset(struct store_read *read, struct str text)
{
    if (str_eq(text, STR("-1")))
        read->from = READ_START;
    else if (str_eq(text, STR("now")))
        read->from = READ_TAIL;
    else {
        read->from = READ_AT;
        return offset_parse(text, &read->at);
    }
    return 0;
}

static int take_live(struct read_request *r, struct str text)
{
    if (str_eq(text, STR("long-poll")))
        r->live = LIVE_LONG_POLL;
    else if (str_eq(text, STR("sse")))
        r->live = LIVE_SSE;
    else
        return ERR_SYNTAX;
    return 0;
}

static bool durable_read_refuse(struct exchange *x, struct str message)
{
    exchange_problem(x, 400, STR("BAD_QUERY"), message);
    return false;
}

/* False: it has been answered. */
static bool take_query(struct read_request *r)
{
    struct exchange *x = r->x;
    struct str offset, live, cursor, query = x->request->query;
    int has_offset = url_query(&x->arena, query, STR("offset"), &offset);
    int has_live = url_query(&x->arena, query, STR("live"), &live);
    int has_cursor = url_query(&x->arena, query, STR("cursor"), &cursor);
    if (has_offset < 0 || has_live < 0)
        return durable_read_refuse(x, STR("offset and live may be given once each"));
    if (has_live && take_live(r, live) != 0)
        return durable_read_refuse(x, STR("live must be long-poll or sse"));
    /* What a browser sends when it reconnects is newer than its URL. Elsewhere it must not count: a
     * cache would keep the answer under that URL. */
    struct str last = request_header(x->request, STR("Last-Event-ID"));
    if (r->live == LIVE_SSE && last.n > 0) {
        offset = last;
        has_offset = 1;
        r->resumed = true;
    }
    if (r->live != LIVE_NO && !has_offset)
        return durable_read_refuse(
            x, STR("a live read needs an offset: -1, now, or one from a response"));
    r->read.from = READ_START;
    if (has_offset && take_offset(&r->read, offset) != 0)
        return durable_read_refuse(x, STR("offset must be -1, now, or one from a response"));
    if (has_cursor == 1)
        (void)num_parse(cursor, UINT32_MAX, &r->cursor); /* any other text is no cursor */
    return true;
}

/* ---- answers ---- */

static bool ended_here(const struct stream_info *info, uint64_t next)
{
    return info->end != END_NONE && next == info->tail;
}

/* Identifies these very bytes: a life, a range, and whether the end was in sight. */
static struct str etag(struct exchange *x, const struct stream_info *info, uint64_t start,
                       uint64_t next)
{
    return arena_printf(&x->arena, "\"%llu:%llu:%llu%s\"", (unsigned long long)info->life,
                        (unsigned long long)start, (unsigned long long)next,
                        ended_here(info, next) ? ":c" : "");
}

static bool durable_read_matches(struct str if_none_match, struct str tag)
{
    if (str_eq(str_trim(if_none_match), STR("*")))
        return true;
    while (if_none_match.p != NULL) {
        struct str one = str_trim(str_cut(&if_none_match, ','));
        if (str_starts(one, STR("W/")))
            one = str_skip(one, 2);
        if (str_eq(one, tag))
            return true;
    }
    return false;
}

/* What every read answers: where it ended, and whether that is the tail or the end. */
static void put_position(struct exchange *x, const struct stream_info *info, uint64_t next)
{
    durable_put_offset(x, STR("Stream-Next-Offset"), (struct offset){info->life, next});
    if (next == info->tail) {
        exchange_header(x, STR("Stream-Up-To-Date"), STR("true"));
        durable_put_end(x, info->end);
    }
}

static void durable_read_answer(struct durable *d, struct exchange *x,
                                const struct stream_info *info, const struct durable_events *e)
{
    exchange_header(x, STR("Content-Type"), info->content_type);
    durable_answer(d, x, e, content_kind(info->content_type) == CONTENT_JSON);
}

static void durable_read_answer_read(struct durable *d, struct exchange *x,
                                     const struct store_read *r)
{
    limits_count_events(x, store_read_events(r));
    durable_read_answer(d, x, &r->info,
                        &(struct durable_events){.name = r->name,
                                                 .life = r->info.life,
                                                 .start = r->start,
                                                 .next = r->next,
                                                 .slices = r->slices,
                                                 .n_slices = r->n_slices});
}

/* One URL has one answer: none that a caller has below a root of its own. What not everybody may
 * read must not rest in a cache that answers everybody, and what everybody may, may be over within
 * a minute. */
static struct str caching_of(const struct exchange *x, struct str name)
{
    bool public = x->principal->root.n == 0 &&
                  guard_is_public(x->http->guard, ACCESS_VERB_READ, ACCESS_STREAM, name);
    if (!public)
        return STR("private, no-store");
    return x->http->front.guarded ? STR("public, max-age=60")
                                  : STR("public, max-age=60, stale-while-revalidate=300");
}

static void answer_catch_up(struct read_request *r)
{
    struct exchange *x = r->x;
    struct store_read *read = &r->read;
    put_position(x, &read->info, read->next);
    if (read->from == READ_TAIL || store_reserved(read->name)) {
        exchange_header(x, STR("Cache-Control"), STR("no-store"));
    } else {
        struct str tag = etag(x, &read->info, read->start, read->next);
        exchange_header(x, STR("ETag"), tag);
        exchange_header(x, STR("Cache-Control"), caching_of(x, read->name));
        if (durable_read_matches(request_header(x->request, STR("If-None-Match")), tag)) {
            exchange_status(x, 304);
            exchange_send(x, STR_NONE);
            return;
        }
    }
    durable_read_answer_read(r->durable, x, read);
}

/* ---- long-poll ---- */

/* A long-poll that waits: all that is left of its request. */
struct poll {
    struct durable *durable;
    struct exchange *x;
    struct subscriber subscriber;
    struct timer timer;
    uint64_t cursor;
    struct stream_info info; /* content_type owned */
    uint64_t pos;
};

static void answer_poll(struct exchange *x, struct durable *d, const struct stream_info *info,
                        uint64_t next, uint64_t cursor)
{
    put_position(x, info, next);
    exchange_header_u64(x, STR("Stream-Cursor"), durable_cursor(d->sched, cursor));
    exchange_header(x, STR("Cache-Control"), STR("no-store"));
}

static void poll_free(struct poll *p)
{
    timer_stop(&p->timer);
    subscriber_deinit(&p->subscriber);
    free((char *)(uintptr_t)p->info.content_type.p);
    free(p);
}

static void answer_nothing(struct exchange *x, struct durable *d, const struct stream_info *info,
                           uint64_t next, uint64_t cursor)
{
    exchange_status(x, 204);
    answer_poll(x, d, info, next, cursor);
    exchange_send(x, STR_NONE);
}

static void poll_over(struct poll *p)
{
    answer_nothing(p->x, p->durable, &p->info, p->pos, p->cursor);
    poll_free(p);
}

static void durable_read_on_poll_timeout(struct timer *t)
{
    poll_over(container_of(t, struct poll, timer));
}

static void durable_read_poll_ready(struct subscriber *s)
{
    struct poll *p = container_of(s, struct poll, subscriber);
    struct event_batch *b;
    enum next next = subscriber_next(s, &b);
    if (next == NEXT_WAIT)
        return;
    if (next == NEXT_FAILED) {
        durable_error(p->x, s->err, s->gap);
        poll_free(p);
        return;
    }
    struct str type = p->info.content_type;
    p->info = b->info;
    p->info.content_type = type;
    p->pos = b->next;
    if (b->next > b->start) {
        limits_count_events(p->x, b->events);
        answer_poll(p->x, p->durable, &p->info, b->next, p->cursor);
        durable_read_answer(p->durable, p->x, &p->info,
                            &(struct durable_events){.name = subscriber_name(s),
                                                     .life = b->info.life,
                                                     .start = b->start,
                                                     .next = b->next,
                                                     .slices = b->slices,
                                                     .n_slices = b->n_slices});
        poll_free(p);
    } else if (ended_here(&p->info, b->next)) {
        poll_over(p);
    } else {
        durable_read_poll_ready(s);
    }
    event_batch_unref(b);
}

static void durable_read_poll_gone(struct exchange *x)
{
    poll_free(x->state);
}

static void durable_read_poll_drain(struct exchange *x)
{
    poll_over(x->state);
}

static const struct exchange_ops poll_ops = {.gone = durable_read_poll_gone,
                                             .drain = durable_read_poll_drain};

static void poll_wait(struct read_request *r)
{
    struct durable *d = r->durable;
    struct exchange *x = r->x;
    struct poll *p = mem_zalloc(sizeof *p);
    p->durable = d;
    p->x = x;
    p->cursor = r->cursor;
    p->info = r->read.info;
    p->info.content_type.p = memcpy(mem_alloc(p->info.content_type.n + 1),
                                    r->read.info.content_type.p, p->info.content_type.n);
    p->pos = r->read.next;
    timer_init(&p->timer, durable_read_on_poll_timeout);
    sched_start(d->sched, &p->timer, d->long_poll_ms);
    subscriber_init(&p->subscriber, durable_home(d, r->read.name).feeds, r->read.name,
                    (struct offset){p->info.life, p->pos}, durable_read_poll_ready);
    x->state = p;
    x->ops = &poll_ops;
    durable_read_poll_ready(&p->subscriber);
}

static void answer_long_poll(struct read_request *r)
{
    struct store_read *read = &r->read;
    if (read->n_slices > 0) {
        answer_poll(r->x, r->durable, &read->info, read->next, r->cursor);
        durable_read_answer_read(r->durable, r->x, read);
    } else if (ended_here(&read->info, read->next) || exchange_closing(r->x)) {
        answer_nothing(r->x, r->durable, &read->info, read->next, r->cursor);
    } else if (limits_take_live(r->x)) {
        poll_wait(r);
    }
}

/* ---- GET ---- */

/* An EventSource that comes back to the end of a closed stream would do so for ever: 204 stops it.
 */
static bool has_seen_all(const struct read_request *r)
{
    return r->resumed && r->read.n_slices == 0 && ended_here(&r->read.info, r->read.next);
}

static void durable_on_read(struct store_read *read, int err)
{
    struct read_request *r = container_of(read, struct read_request, read);
    struct exchange *x = r->x;
    if (err == ERR_CORRUPT)
        exchange_problem(x, 500, STR("CORRUPT"),
                         arena_printf(&x->arena,
                                      "a part of the stream %.*s failed its checksum on disk; what "
                                      "lies behind it can be read, and `tidemark doctor` names it",
                                      (int)read->name.n, read->name.p));
    else if (exchange_over(x) || err != 0)
        durable_error(x, err, &read->gap);
    else if (r->live == LIVE_SSE && has_seen_all(r))
        answer_nothing(x, r->durable, &read->info, read->next, r->cursor);
    else if (r->live == LIVE_SSE)
        durable_sse(r->durable, x, read, r->cursor);
    else if (r->live == LIVE_LONG_POLL)
        answer_long_poll(r);
    else
        answer_catch_up(r);
    store_read_release(read);
    exchange_forget_request(x); /* what still waits needs nothing of it, r included */
    exchange_release(x);
}

static void durable_read_on_no_body(struct exchange *x, struct str body, int err)
{
    struct read_request *r = x->state;
    if (err != 0) {
        exchange_error(x, err);
        return;
    }
    exchange_hold(x);
    store_read(durable_home(r->durable, r->read.name).store, &r->read);
}

void durable_get(struct durable *d, struct exchange *x, struct str name)
{
    struct read_request *r = arena_alloc(&x->arena, sizeof *r);
    *r = (struct read_request){.durable = d, .x = x};
    r->read.name = name;
    r->read.touch = true;
    r->read.done = durable_on_read;
    if (!take_query(r))
        return;
    r->read.max_bytes = r->live == LIVE_SSE ? EVENT_BATCH_BYTES : d->read_chunk;
    x->state = r;
    exchange_collect(x, 0, durable_read_on_no_body); /* a GET with a body is no GET */
}
