// SPDX-License-Identifier: Apache-2.0
/* durable_list.c -- GET /v1/stream/: the streams that the caller may list. */
#include "base/buf.h"
#include "base/json.h"
#include "base/num.h"
#include "http/url.h"
#include "stream/durable_core.h"
#include "stream/listing.h"

#define LIST_DEFAULT 100
#define LIST_MAX     1000

struct list_request {
    struct listing listing;
    struct exchange *x; /* held */
    struct buf body;
};

static void durable_list_row(struct listing *l, const struct store_row *row)
{
    struct list_request *r = container_of(l, struct list_request, listing);
    struct buf *out = &r->body;
    char next[OFFSET_TEXT];
    offset_format((struct offset){row->info.life, row->info.tail}, next);
    buf_put(out, l->n > 1 ? STR(",{\"name\":") : STR("{\"name\":"));
    json_put_string(out, row->name);
    buf_put(out, STR(",\"contentType\":"));
    json_put_string(out, row->info.content_type);
    buf_printf(out, ",\"nextOffset\":\"%.*s\",\"closed\":%s}", OFFSET_TEXT, next,
               row->info.end == END_NONE ? "false" : "true");
}

static bool durable_list_wanted(const struct listing *l)
{
    return !exchange_over(container_of(l, struct list_request, listing)->x);
}

static void durable_list_done(struct listing *l, int err)
{
    struct list_request *r = container_of(l, struct list_request, listing);
    struct exchange *x = r->x;
    buf_put(&r->body, STR("],\"next\":"));
    if (l->next.n > 0)
        json_put_string(&r->body, l->next);
    else
        buf_put(&r->body, STR("null"));
    buf_put(&r->body, STR("}\n"));
    if (err != 0)
        durable_error(x, err, NULL);
    else
        exchange_send_json(x, 200, buf_str(&r->body));
    buf_deinit(&r->body);
    exchange_release(x);
}

/* False: the query is not one. */
static bool durable_list_query(struct exchange *x, struct listing *l)
{
    struct str query = x->request->query, limit = STR_NONE;
    uint64_t n = LIST_DEFAULT;
    if (url_query(&x->arena, query, STR("prefix"), &l->prefix) < 0 ||
        url_query(&x->arena, query, STR("after"), &l->after) < 0 ||
        url_query(&x->arena, query, STR("limit"), &limit) < 0 ||
        (limit.p != NULL && num_parse(limit, LIST_MAX, &n) != 0) || n == 0)
        return false;
    l->limit = n;
    return true;
}

static void durable_list_refuse(struct list_request *r)
{
    struct exchange *x = r->x;
    exchange_problem(
        x, 400, STR("BAD_QUERY"),
        STR("use prefix=TEXT, limit=1..1000 and after=NAME, or the next of an answer"));
    buf_deinit(&r->body);
    exchange_release(x);
}

void durable_list(struct durable *d, struct exchange *x)
{
    struct list_request *r = arena_alloc(&x->arena, sizeof *r);
    *r = (struct list_request){.listing = {.store = d->spaces != NULL ? d->spaces->store : d->store,
                                           .principal = x->principal,
                                           .arena = &x->arena,
                                           .reserved = principal_works(x->principal),
                                           .bookmarks = d->bookmarks != NULL ? *d->bookmarks : NULL,
                                           .row = durable_list_row,
                                           .wanted = durable_list_wanted,
                                           .done = durable_list_done},
                               .x = x};
    exchange_decided(x);
    if (!listing_allowed(x->principal)) {
        exchange_deny(x);
        return;
    }
    enum listing_start start = LISTING_BAD_AFTER;
    buf_put(&r->body, STR("{\"streams\":["));
    exchange_hold(x);
    if (durable_list_query(x, &r->listing))
        start = listing_start(&r->listing);
    if (start == LISTING_NOTHING)
        durable_list_done(&r->listing, 0);
    else if (start == LISTING_BAD_AFTER)
        durable_list_refuse(r);
}
