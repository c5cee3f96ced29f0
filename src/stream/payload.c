// SPDX-License-Identifier: Apache-2.0
#include "stream/payload.h"
#include "base/err.h"
#include "base/json.h"
#include "base/pack.h"
#include "store/content.h"

void payload_deinit(struct payload *p)
{
    buf_deinit(&p->bytes);
    buf_deinit(&p->ends);
    buf_deinit(&p->steps);
    block_unref(p->block);
    p->block = NULL;
}

static void prepare_json(struct payload *p, struct store_write *w, struct str body)
{
    size_t at;
    w->data_err = json_split(body, &p->bytes, &p->ends, &at);
    w->data = buf_str(&p->bytes);
    w->ends = (const uint32_t *)(const void *)p->ends.p;
    w->n_events = (uint32_t)(p->ends.n / sizeof(uint32_t));
}

void payload_prepare(struct payload *p, struct store_write *w, struct str content_type,
                     struct str body, bool empty_allowed)
{
    w->data_err = 0;
    w->block = NULL;
    w->ends = NULL;
    w->ends_in = NULL;
    w->steps = STR_NONE;
    w->n_events = 0;
    if (body.n > 0 && content_kind(content_type) == CONTENT_JSON)
        prepare_json(p, w, body);
    else
        w->data = body;
    if (w->data.n == 0 && w->data_err == 0 && !empty_allowed)
        w->data_err = ERR_EMPTY;
}

/* What would take the loop as long as there are events. */
static void prepare_ends(struct payload *p, struct store_write *w)
{
    if (w->ends == NULL)
        return;
    pack_steps(&p->steps, w->ends, w->n_events - 1);
    w->steps = buf_str(&p->steps);
    w->ends_in = &p->ends;
}

void payload_prepare_large(struct payload *p, struct store_write *w, struct str content_type,
                           struct buf *body, bool empty_allowed)
{
    payload_prepare(p, w, content_type, buf_str(body), empty_allowed);
    if (w->data.p == body->p) { /* one event: it lies in the body */
        p->bytes = *body;
        *body = (struct buf){0};
    }
    buf_deinit(body);
    if (w->data.n <= PAYLOAD_LARGE)
        return;
    p->block = w->block = block_of(w->data);
    w->data = str_of(p->block->bytes, p->block->n);
    buf_deinit(&p->bytes);
    prepare_ends(p, w);
}
