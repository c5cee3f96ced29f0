// SPDX-License-Identifier: Apache-2.0
/* gateway_forward_http.c -- an answer that is not recorded, since the store takes nothing: its
 * events go to the client that asked and nowhere else, without numbers, for nobody can resume it.
 */
#include "base/mem.h"
#include "feature/gateway/recorder.h"
#include "feature/gateway/gateway_core.h"
#include "feature/gateway/gateway_dialect.h"

#include <stdlib.h>

#define PENDING_MAX (256 * 1024)

struct forward {
    struct gateway_route *route;
    struct exchange *x; /* held */
    struct forward_ops ops;
    void *ctx; /* NULL: nobody is there any more to be told */
    struct buf pending;
    bool full; /* room() is due */
    bool over; /* when `pending` is out */
};

void gateway_put_degraded(struct exchange *x)
{
    exchange_header(x, STR("X-Tidemark-Degraded"), STR("store"));
}

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
    if (f->over) {
        forward_free(f);
        return PULL_END;
    }
    if (f->full) {
        f->full = false;
        f->ops.room(f->ctx);
    }
    return PULL_WAIT;
}

static void forward_gone(struct exchange *x)
{
    struct forward *f = x->state;
    if (!f->over)
        f->ops.gone(f->ctx);
    forward_free(f);
}

static const struct exchange_ops exchange_ops = {.pull = forward_pull, .gone = forward_gone};

struct forward *forward_new(struct gateway_route *r, struct exchange *x, struct str request_id,
                            const struct forward_ops *ops, void *ctx)
{
    if (exchange_over(x)) {
        exchange_release(x);
        return NULL;
    }
    struct forward *f = mem_zalloc(sizeof *f);
    *f = (struct forward){.route = r, .x = x, .ops = *ops, .ctx = ctx};
    gateway_put_degraded(x);
    gateway_event_stream(r, x, request_id);
    x->ops = &exchange_ops;
    x->state = f;
    exchange_stream(x);
    return f;
}

int forward_event(struct forward *f, struct str type, struct str data)
{
    recorder_put_event(&f->pending, 0, type, data);
    f->full = f->full || f->pending.n >= PENDING_MAX;
    exchange_wake(f->x);
    return f->full ? 0 : 1;
}

void forward_end(struct forward *f, enum end_reason end, struct str message)
{
    dialect_put_end(&f->pending, (enum route_dialect)f->route->config->dialect, end,
                    gateway_end_message(end, message));
    f->over = true;
    exchange_wake(f->x);
}
