// SPDX-License-Identifier: Apache-2.0
/* gateway_continue_http.c -- a client that lost its connection sends its request again, with the id
 * of the last event that it has. The id names the generation, so it gets the rest of that one. */
#include "base/err.h"
#include "base/num.h"
#include "feature/gateway/gateway_http_core.h"

/* GENERATION:N */
static bool parse_full(struct str text, struct event_id *id)
{
    if (text.n <= REQUEST_ID_TEXT + 1 || text.p[REQUEST_ID_TEXT] != ':')
        return false;
    struct str generation = str_of(text.p, REQUEST_ID_TEXT);
    struct str number = str_skip(text, REQUEST_ID_TEXT + 1);
    if (!gateway_is_request_id(generation) || num_parse_canonical(number, INT64_MAX, &id->seq) != 0)
        return false;
    id->generation = generation;
    return true;
}

struct event_id gateway_last_event_id(const struct exchange *x)
{
    struct str text = request_header(x->request, STR("Last-Event-ID"));
    struct event_id id = {0};
    if (text.p != NULL && !parse_full(text, &id) &&
        num_parse_canonical(text, INT64_MAX, &id.seq) != 0)
        id.seq = 0;
    return id;
}

uint64_t gateway_seq_of(const struct exchange *x, struct str request_id)
{
    struct event_id id = gateway_last_event_id(x);
    return id.generation.n == 0 || str_eq(id.generation, request_id) ? id.seq : 0;
}

void gateway_refuse_position(const struct gateway_route *r, struct exchange *x, uint64_t seq)
{
    struct str gap = arena_printf(&x->arena,
                                  "{\"gap\":{\"requested\":\"%llu\",\"earliest\":null,"
                                  "\"reason\":\"expired\",\"snapshot\":null}}",
                                  (unsigned long long)seq);
    gateway_error(r, x, 410, STR("EXPIRED"),
                  STR("The answer that Last-Event-ID names is not known, or no longer kept"), gap);
}

static void gateway_continue_on_missing(struct read_order *o)
{
    gateway_refuse_position(o->route, o->x, o->seq);
    exchange_release(o->x);
}

static void gateway_continue_on_body(struct exchange *x, struct str body, int err)
{
    struct gateway_route *r = x->state;
    struct event_id last = gateway_last_event_id(x);
    if (err != 0) {
        gateway_refuse(r, x, err);
        return;
    }
    if (!gateway_may_read(r, x, last.generation)) {
        gateway_refuse_position(r, x, last.seq);
        return;
    }
    struct read_order *o = arena_alloc(&x->arena, sizeof *o);
    *o = (struct read_order){.route = r,
                             .x = x,
                             .request_id = last.generation,
                             .voice = gateway_voice(r, x),
                             .seq = last.seq,
                             .missing = gateway_continue_on_missing,
                             .polite = x->request->method == METHOD_GET};
    exchange_hold(x);
    gateway_read(o);
}

void gateway_continue(struct gateway_route *r, struct exchange *x)
{
    if (x->request->method == METHOD_POST && !gateway_within_quota(r, x))
        return;
    x->state = r;
    exchange_collect(x, r->config->max_body_bytes, gateway_continue_on_body);
}
