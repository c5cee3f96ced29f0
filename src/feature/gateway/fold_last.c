// SPDX-License-Identifier: Apache-2.0
/* fold_last.c -- the payload that ended the stream. */
#include "base/json.h"
#include "base/mem.h"
#include "feature/gateway/fold_core.h"
#include "base/json_view.h"

#include <stdlib.h>

struct last {
    struct str data; /* owned */
    bool complete;   /* it is the payload of a COMPLETE: only another one takes its place */
};

static void *fold_last_open(void)
{
    return mem_zalloc(sizeof(struct last));
}

static void fold_last_close(void *state)
{
    struct last *l = state;
    free((char *)l->data.p);
    free(l);
}

static bool fold_last_is_object(struct str data)
{
    size_t at;
    return view_type(data) == VIEW_OBJECT && json_check(data, &at) == 0;
}

/* The payload of {"stage":"COMPLETE","payload":P}; empty for anything else. Most events do not even
 * contain the word, which is faster to see than the rest. */
static struct str final_payload(struct str data)
{
    enum { STAGE, PAYLOAD, N };
    struct view_want wants[N] = {
        [STAGE] = {.name = STR_INIT("stage")}, [PAYLOAD] = {.name = STR_INIT("payload")}};
    if (memmem(data.p, data.n, "COMPLETE", 8) == NULL || !fold_last_is_object(data))
        return STR_NONE;
    view_pick(data, wants, N);
    return view_text_is(wants[STAGE].value, STR("COMPLETE")) ? wants[PAYLOAD].value : STR_NONE;
}

/* Errors are delivered as payloads too. */
static bool is_error(struct str payload)
{
    struct view_want schema = {.name = STR_INIT("schema")};
    if (view_type(payload) != VIEW_OBJECT)
        return false;
    view_pick(payload, &schema, 1);
    return view_text_is(schema.value, STR("error.v1"));
}

static void fold_last_feed(struct fold *f, struct str type, struct str data)
{
    struct last *l = f->state;
    data = view_trim(data);
    if (str_eq(type, STR("heartbeat")))
        return;
    if (str_eq(type, STR("error")))
        fold_ended(f, FOLD_FAILED);
    struct str payload = final_payload(data);
    if (payload.n > 0) {
        l->complete = true;
        fold_ended(f, is_error(payload) ? FOLD_FAILED : FOLD_COMPLETE);
    } else if (l->complete) {
        return;
    }
    fold_set(f, &l->data, payload.n > 0 ? payload : data);
    f->folded = true;
}

static void fold_last_put(const struct fold *f, struct buf *out)
{
    const struct last *l = f->state;
    size_t at;
    if (json_check(l->data, &at) == 0)
        view_put_unbroken(out, l->data);
    else
        json_put_string(out, l->data);
}

const struct fold_ops fold_last_ops = {
    .name = "last",
    .open = fold_last_open,
    .close = fold_last_close,
    .feed = fold_last_feed,
    .put = fold_last_put,
};
