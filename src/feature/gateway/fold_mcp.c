// SPDX-License-Identifier: Apache-2.0
/* fold_mcp.c -- the response among messages of JSON-RPC: the last one with a result or an error.
 * Notifications and requests are passed over. */
#include "base/json_view.h"
#include "base/mem.h"
#include "feature/gateway/fold_core.h"

#include <stdlib.h>

struct mcp {
    struct str response; /* owned */
};

static void *fold_mcp_open(void)
{
    return mem_zalloc(sizeof(struct mcp));
}

static void fold_mcp_close(void *state)
{
    struct mcp *m = state;
    free((char *)m->response.p);
    free(m);
}

static void fold_mcp_feed(struct fold *f, struct str type, struct str data)
{
    enum { JSONRPC, METHOD, RESULT, ERROR, N };
    struct view_want w[N] = {[JSONRPC] = {.name = STR_INIT("jsonrpc")},
                             [METHOD] = {.name = STR_INIT("method")},
                             [RESULT] = {.name = STR_INIT("result")},
                             [ERROR] = {.name = STR_INIT("error")}};
    struct mcp *m = f->state;
    view_pick(data, w, N);
    bool failed = view_type(w[ERROR].value) == VIEW_OBJECT;
    if (view_type(w[JSONRPC].value) != VIEW_STRING) {
        fold_skip(f);
        return;
    }
    if (w[METHOD].value.n > 0 || (w[RESULT].value.n == 0 && !failed))
        return;
    fold_set(f, &m->response, data);
    if (failed)
        fold_set(f, &f->error, w[ERROR].value);
    fold_ended(f, failed ? FOLD_FAILED : FOLD_COMPLETE);
    f->folded = true;
}

static void fold_mcp_put(const struct fold *f, struct buf *out)
{
    const struct mcp *m = f->state;
    buf_put(out, m->response);
}

const struct fold_ops fold_mcp_ops = {
    .name = "mcp",
    .json = true,
    .open = fold_mcp_open,
    .close = fold_mcp_close,
    .feed = fold_mcp_feed,
    .put = fold_mcp_put,
};
