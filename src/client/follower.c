// SPDX-License-Identifier: Apache-2.0
/* A follower makes one request after another, each from the last position it knows: catch-up reads
 * until the tail, then live ones. What an answer brings is held back until the position behind it
 * is known as well: the end of a plain answer, the control event of a live one. So nothing is
 * handed out that a later request would bring again, wherever a connection breaks.
 *
 * What was brought waits in a queue of pieces, and nothing more is asked for until it was taken.
 * Only a live answer under way goes on; when more than answer_max has gathered it is left, and
 * asked for again from there. */
#include "client/follower_core.h"

#include <stdio.h>

/* An answer that came sooner, with nothing new, is not asked for again at once. */
#define SOON_MS 200

/* For good, with the message that is set. */
static void follower_fail(struct tm_follower *f, int err)
{
    f->err = err;
    client_happened(f->client);
}

/* -- asking ----------------------------------------------------------------------------------- */

/* The next request is due when the last is over and all it brought was taken. */
static void follower_schedule(struct tm_follower *f)
{
    if (!f->err && !f->ended && !f->nomem && !f->under_way && !timer_running(&f->retry) &&
        list_empty(&f->queue))
        sched_post(&f->client->sched, &f->go);
}

static enum follower_mode next_mode(const struct tm_follower *f)
{
    if (!f->live)
        return CATCH_UP;
    return f->polls ? LONG_POLL : LIVE_SSE;
}

static int make_path(struct tm_follower *f)
{
    struct tm_client *c = f->client;
    f->path.n = 0;
    int err = stream_path(c, &f->path, f->name);
    if (err == 0)
        err = stream_param(c, &f->path, true, "offset", f->offset);
    if (err == 0 && f->mode != CATCH_UP)
        err = stream_param(c, &f->path, false, "live", f->mode == LIVE_SSE ? "sse" : "long-poll");
    if (err == 0 && f->mode != CATCH_UP && f->cursor[0])
        err = stream_param(c, &f->path, false, "cursor", f->cursor);
    return err;
}

static void out_of_memory(struct tm_follower *f)
{
    f->nomem = true;
    client_happened(f->client);
}

static void follower_on_go(struct task *t)
{
    struct tm_follower *f = container_of(t, struct tm_follower, go);
    struct http_request *r = &f->request;
    f->mode = next_mode(f);
    f->moved = f->leave = false;
    f->body.n = 0;
    f->head_err = 0;
    f->message[0] = '\0';
    follower_drop_held(f);
    sse_parser_reset(&f->sse);
    stream_answer_init(&f->answer);
    f->began_ms = stream_now_ms(f->client);
    int err = make_path(f);
    r->path = bytes_str(&f->path);
    r->live = f->mode != CATCH_UP;
    r->n_headers = 0;
    if (f->mode == LIVE_SSE)
        stream_header(r, STR("accept"), STR("text/event-stream"));
    if (err == 0)
        err = http_start(r);
    if (err == 0)
        f->under_way = true;
    else if (err == TM_E_NOMEM)
        out_of_memory(f);
    else
        follower_fail(f, follower_complain(f, err, "%s", r->message));
}

static void follower_on_retry(struct timer *t)
{
    follower_schedule(container_of(t, struct tm_follower, retry));
}

static void wait_then_go(struct tm_follower *f, uint64_t ms)
{
    sched_start(&f->client->sched, &f->retry, ms);
}

static void note_good(struct tm_follower *f)
{
    f->failures = 0;
    follower_note_life(f);
}

/* What failed may pass. */
static void wait_to_retry(struct tm_follower *f, int err)
{
    struct tm_client *c = f->client;
    if (f->moved)
        note_good(f);
    uint64_t ms = stream_retry_ms(c, ++f->failures, &f->answer);
    if (f->retry_for_ms && stream_now_ms(c) - f->good_ms + ms > f->retry_for_ms) {
        size_t n = strlen(f->message);
        snprintf(f->message + n, sizeof f->message - n, "; gave up after %llu s",
                 (unsigned long long)f->retry_for_ms / 1000);
        follower_fail(f, err);
        return;
    }
    stream_notice_retry(c, bytes_str(&f->path), f->message, ms);
    wait_then_go(f, ms);
}

/* -- answered --------------------------------------------------------------------------------- */

/* The answer is dealt with. An answer that brought nothing, and that soon, must not be asked for in
 * a tight loop. */
static void succeeded(struct tm_follower *f)
{
    bool is_soon = stream_now_ms(f->client) - f->began_ms < SOON_MS;
    bool is_idle = !f->moved && f->mode != CATCH_UP && f->mode == next_mode(f) && is_soon;
    is_idle = is_idle || f->gaps > 1; /* sent from one gap to the next */
    note_good(f);
    f->idle = is_idle ? f->idle + 1 : 0;
    if (is_idle && !f->ended)
        wait_then_go(f, client_backoff_ms(f->client, f->idle));
    else
        follower_schedule(f);
}

static void follower_failed(struct tm_follower *f, int err, bool may_pass)
{
    if (f->message[0] == '\0')
        follower_complain(f, err, "%s",
                          f->request.message[0] ? f->request.message : tm_error_text(err));
    if (err == TM_E_NOMEM)
        out_of_memory(f);
    else if (may_pass)
        wait_to_retry(f, err);
    else
        follower_fail(f, err);
}

static void follower_on_over(struct http_request *r, int err)
{
    struct tm_follower *f = container_of(r, struct tm_follower, request);
    bool may_pass = false;
    f->under_way = false;
    err = follower_end(f, err, &may_pass);
    if (err == 0)
        succeeded(f);
    else
        follower_failed(f, err, may_pass);
}

/* -- handing out ------------------------------------------------------------------------------ */

static struct piece *first_piece(struct tm_follower *f)
{
    return list_empty(&f->queue) ? NULL : list_item(f->queue.next, struct piece, link);
}

static void hand_out(struct tm_follower *f, struct piece *p, struct tm_batch *out)
{
    struct str data = bytes_str(&p->data);
    p->done = true;
    if (p->is_split) {
        json_array_next(&p->values, &data);
        p->done = json_array_ended(&p->values);
    }
    if (p->done)
        memcpy(f->told, p->next_offset, sizeof f->told);
    *out = (struct tm_batch){
        .data = data.n ? data.p : "",
        .n = data.n,
        .next_offset = f->told,
        .up_to_date = p->done && p->up_to_date,
        .closed = p->done && p->closed,
        .gap = p->gap,
        .content_type = f->content_type,
        .end_reason = p->done && p->closed ? f->end_reason : "",
    };
    p->gap = false;
}

static void drop_done(struct tm_follower *f)
{
    struct piece *p = first_piece(f);
    if (p == NULL || !p->done)
        return;
    f->queued -= sizeof *p + p->data.n;
    follower_free_piece(f, p);
}

int tm_follower_next(struct tm_follower *f, struct tm_batch *out)
{
    drop_done(f);
    struct piece *p = first_piece(f);
    if (p) {
        hand_out(f, p, out);
        return 1;
    }
    if (f->nomem) {
        f->nomem = false;
        follower_schedule(f);
        return client_fail(f->client, TM_E_NOMEM, "%s", tm_error_text(TM_E_NOMEM));
    }
    if (f->err)
        return stream_fail(f->client, f->err, bytes_str(&f->path), f->message);
    if (f->ended)
        return client_fail(f->client, TM_E_CLOSED, "all of the stream was handed out");
    follower_schedule(f);
    return 0;
}

static bool follower_has_news(void *ctx)
{
    struct tm_follower *f = ctx;
    return !list_empty(&f->queue) || f->nomem || f->err || f->ended;
}

int tm_follower_wait(struct tm_follower *f, struct tm_batch *out, int timeout_ms)
{
    int got = tm_follower_next(f, out);
    if (got != 0)
        return got;
    int err = client_wait_for(f->client, follower_has_news, f, timeout_ms);
    if (err)
        return err == TM_E_TIMEOUT ? 0 : err;
    return tm_follower_next(f, out);
}

int tm_follower_status(const struct tm_follower *f)
{
    return f->last_status;
}

/* -- making one ------------------------------------------------------------------------------- */

static int check_options(struct tm_client *c, const char *name, const struct tm_follow_options *o)
{
    if (name == NULL || *name == '\0')
        return client_fail(c, TM_E_INVALID, "a stream's name cannot be empty");
    if (o->offset && (*o->offset == '\0' || strlen(o->offset) >= STREAM_OFFSET_SIZE))
        return client_fail(c, TM_E_INVALID, "this cannot be an offset");
    if ((unsigned)o->live > TM_LIVE_LONG_POLL || o->retry_for_ms < 0)
        return client_fail(c, TM_E_INVALID, "an option is not valid");
    return 0;
}

static void init_follower(struct tm_follower *f, struct tm_client *c,
                          const struct tm_follow_options *o)
{
    const char *offset = o->offset ? o->offset : "-1";
    f->client = c;
    f->live_option = o->live;
    f->skip_gap = o->skip_gap;
    f->json_values = o->json_values;
    f->retry_for_ms = (uint64_t)o->retry_for_ms;
    f->polls = o->live == TM_LIVE_LONG_POLL;
    f->live = follower_starts_live(f);
    f->good_ms = stream_now_ms(c);
    memcpy(f->offset, offset, strlen(offset) + 1);
    memcpy(f->told, f->offset, sizeof f->told);
    list_init(&f->queue);
    task_init(&f->go, follower_on_go);
    timer_init(&f->retry, follower_on_retry);
    sse_parser_init(&f->sse, &client_sse_host, c, c->options.answer_max, f, follower_event);
    f->request.client = c;
    f->request.method = STR("GET");
    f->request.head = follower_head;
    f->request.data = follower_data;
    f->request.over = follower_on_over;
}

int tm_follower_new(struct tm_client *c, const char *name, const struct tm_follow_options *options,
                    struct tm_follower **out)
{
    struct tm_follow_options o = TM_FOLLOW_INIT;
    STREAM_OPTIONS(o, options);
    int err = check_options(c, name, &o);
    if (err)
        return err;
    struct tm_follower *f = client_zalloc(c, sizeof *f);
    if (f)
        init_follower(f, c, &o);
    if (f == NULL || (f->name = client_copy(c, str_of_cstr(name))) == NULL) {
        client_free(c, f);
        return client_fail(c, TM_E_NOMEM, "%s", tm_error_text(TM_E_NOMEM));
    }
    follower_schedule(f);
    *out = f;
    return 0;
}

void tm_follower_free(struct tm_follower *f)
{
    if (f == NULL)
        return;
    struct tm_client *c = f->client;
    http_cancel(&f->request);
    task_cancel(&f->go);
    timer_stop(&f->retry);
    list_each_safe (l, &f->queue)
        follower_free_piece(f, list_item(l, struct piece, link));
    follower_drop_held(f);
    sse_parser_deinit(&f->sse);
    bytes_free(c, &f->path);
    bytes_free(c, &f->body);
    client_free(c, f->name);
    client_free(c, f);
}
