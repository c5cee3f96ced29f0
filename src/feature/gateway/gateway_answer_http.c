// SPDX-License-Identifier: Apache-2.0
/* gateway_answer_http.c -- an answer that is no stream of events, and was recorded: as it came, to
 * whoever may have it. */
#include "base/err.h"
#include "feature/gateway/gateway_http_core.h"
#include "feature/gateway/stored_answer.h"

bool gateway_is_answer(const struct store_read *read)
{
    return read->n_slices > 0 && read->ordinal == 0 && stored_answer_is(read->slices[0].bytes);
}

/* The event in one piece, which is the rule. */
static struct block *join_slices(const struct store_read *read)
{
    size_t n = 0;
    for (uint32_t i = 0; i < read->n_slices; i++)
        n += read->slices[i].bytes.n;
    struct block *b = block_new((uint32_t)n);
    for (uint32_t i = 0; i < read->n_slices; i++) {
        memcpy(b->bytes + b->n, read->slices[i].bytes.p, read->slices[i].bytes.n);
        b->n += (uint32_t)read->slices[i].bytes.n;
    }
    return b;
}

#define HEADERS_MAX 100 /* what is more is left out, as it was before it was stored */

/* The upstream's headers, and where the answer can be had again. */
static void put_headers(const struct read_order *o, struct str stored)
{
    struct exchange *x = o->x;
    struct header headers[HEADERS_MAX];
    size_t n = 0;
    while (n < HEADERS_MAX && stored_answer_next(&stored, &headers[n]))
        n++;
    gateway_put_headers(x, headers, n);
    if (!exchange_has_header(x, STR("Location")))
        gateway_put_location(o->route, x, o->request_id);
    exchange_header(x, STR("X-Correlation-ID"), arena_dup(&x->arena, o->request_id));
}

static void note_delivered(const struct read_order *o)
{
    if (o->mark != NULL && !exchange_over(o->x))
        gateway_note_repeat(o->route,
                            &(struct repeat_note){.mark = o->mark,
                                                  .fate = REPEAT_DELIVERED,
                                                  .request_id = o->request_id,
                                                  .connection = exchange_connection(o->x)});
}

static void send_stored(const struct read_order *o, struct slice stored)
{
    struct exchange *x = o->x;
    struct stored_answer a;
    if (stored_answer_take(stored.bytes, &a) != 0) {
        gateway_refuse(o->route, x, ERR_CORRUPT);
        return;
    }
    note_delivered(o);
    exchange_status(x, a.status);
    put_headers(o, a.headers);
    stored.bytes = a.body;
    exchange_send_slices(x, &stored, a.body.n > 0 ? 1 : 0);
}

void gateway_send_answer(const struct read_order *o, struct store_read *read)
{
    if (read->n_slices == 1) {
        send_stored(o, read->slices[0]);
    } else {
        struct block *b = join_slices(read);
        send_stored(o, slice_of(b, 0, b->n));
        block_unref(b);
    }
    store_read_release(read);
}
