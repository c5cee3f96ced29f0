// SPDX-License-Identifier: Apache-2.0
/* gateway_forward_http.c -- an answer that is not recorded: it goes to the client that asked and
 * nowhere else. Either it is no stream of events, and is passed on as it is; or the store takes
 * nothing, and its events come without numbers, for nobody can resume it. */
#include "base/mem.h"
#include "feature/gateway/gateway_http_core.h"
#include "feature/gateway/recorder.h"

#include <stdlib.h>

#define PENDING_MAX (256 * 1024)

struct forward {
    struct exchange *x;     /* held */
    struct generation *gen; /* NULL: that was all */
    struct buf pending;
    bool events;
    bool begun; /* the generation knows of it */
    bool full;  /* generation_resume is due */
};

static void forward_free(struct forward *f)
{
    exchange_release(f->x);
    buf_deinit(&f->pending);
    free(f);
}

static void put_pending(struct forward *f)
{
    struct block *b = block_of(buf_str(&f->pending));
    exchange_put(f->x, slice_of(b, 0, b->n));
    block_unref(b);
    buf_deinit(&f->pending);
    f->pending = (struct buf){0};
}

static enum pull forward_pull(struct exchange *x)
{
    struct forward *f = x->state;
    if (f->pending.n > 0) {
        put_pending(f);
        return PULL_MORE;
    }
    if (f->gen == NULL) {
        forward_free(f);
        return PULL_END;
    }
    if (f->full) {
        f->full = false;
        generation_resume(f->gen);
    }
    return PULL_WAIT;
}

static void forward_gone(struct exchange *x)
{
    struct forward *f = x->state;
    if (f->gen != NULL && f->begun)
        generation_detach(f->gen);
    forward_free(f);
}

static const struct exchange_ops exchange_ops = {.pull = forward_pull, .gone = forward_gone};

static void put_head(struct exchange *x, struct str request_id, const struct source_head *head)
{
    exchange_status(x, head->status);
    gateway_put_headers(x, head->headers, head->n_headers);
    exchange_header(x, STR("X-Correlation-ID"), arena_dup(&x->arena, request_id));
}

struct forward *forward_new(struct exchange *x, struct str request_id, struct generation *gen,
                            const struct source_head *head, bool degraded)
{
    if (exchange_over(x)) {
        exchange_release(x);
        return NULL;
    }
    struct forward *f = mem_zalloc(sizeof *f);
    *f = (struct forward){.x = x, .gen = gen, .events = head->events};
    if (degraded)
        gateway_put_degraded(x);
    if (head->events)
        gateway_event_stream(x, generation_voice(gen), request_id);
    else
        put_head(x, request_id, head);
    x->ops = &exchange_ops;
    x->state = f;
    exchange_hold(x);
    exchange_stream(x);
    bool over = exchange_over(x); /* a status that has no body */
    exchange_release(x);
    if (over)
        return NULL;
    f->begun = true;
    return f;
}

int forward_event(struct forward *f, struct str type, struct str data)
{
    enum route_dialect d = generation_voice(f->gen)->dialect;
    struct recorder_form form = {.lines = dialect_form(d) == DIALECT_LINES};
    recorder_put_event(&f->pending, &form, 0, type, data);
    f->full = f->full || f->pending.n >= PENDING_MAX;
    exchange_wake(f->x);
    return f->full ? 0 : 1;
}

bool forward_data(struct forward *f, struct str data)
{
    f->full = f->full || f->pending.n >= PENDING_MAX;
    if (f->full)
        return false;
    buf_put(&f->pending, data);
    exchange_wake(f->x);
    return true;
}

/* The peer sees that there should be more. */
static void forward_abort(struct forward *f)
{
    f->x->ops = NULL;
    exchange_abort(f->x);
    forward_free(f);
}

void forward_end(struct forward *f, enum end_reason end, struct str message)
{
    const struct generation *gen = f->gen;
    f->gen = NULL;
    if (!f->events && end != END_COMPLETED) {
        forward_abort(f);
        return;
    }
    if (f->events) {
        const struct dialect_voice *v = generation_voice(gen);
        dialect_put_end(&f->pending, v, end, gateway_end_message(end, message));
        buf_put(&f->pending, dialect_end_mark(v->dialect));
    }
    exchange_wake(f->x);
}
