// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/responses_source.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_view.h"
#include "base/mem.h"
#include "feature/gateway/gateway_core.h"

#include <stdlib.h>

struct responses_source {
    struct generation_source source;
    struct generation_source *inner;
    const struct source_events *on;
    void *ctx;
    struct gateway_route *route;
    struct responses_mend *mend;
    char request_id[REQUEST_ID_TEXT];
    bool background;
    bool events;     /* these come */
    bool collecting; /* an answer that is none of events, which is made one of */
    int status;      /* its own */
    struct buf body;
};

static int responses_source_emit(void *ctx, struct str type, struct str data)
{
    struct responses_source *s = ctx;
    return s->on->event(s->ctx, type, data);
}

static void tell_events(struct responses_source *s)
{
    s->on->head(s->ctx, &(struct source_head){.events = true, .dialect = ROUTE_DIALECT_RESPONSES});
}

/* ---- an answer that is no stream of events, in the background ---- */

static bool is_response(struct str body)
{
    struct view_want object = {.name = STR("object")};
    size_t at;
    if (body.n == 0 || body.p[0] != '{' || json_check(body, &at) != 0)
        return false;
    view_pick(body, &object, 1);
    return view_text_is(object.value, STR("response"));
}

/* What an error says of itself, as a JSON string; empty: nothing. */
static struct str error_text(struct str body)
{
    struct view_want error = {.name = STR("error")}, message = {.name = STR("message")};
    size_t at;
    if (body.n == 0 || body.p[0] != '{' || json_check(body, &at) != 0)
        return STR_NONE;
    view_pick(body, &error, 1);
    if (view_type(error.value) == VIEW_OBJECT)
        view_pick(error.value, &message, 1);
    return view_type(message.value) == VIEW_STRING ? message.value : STR_NONE;
}

static void put_failed(struct buf *out, const struct responses_source *s, struct str body)
{
    struct str text = error_text(body);
    buf_put(out, STR("{\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":"
                     "{\"code\":\"server_error\",\"message\":"));
    if (text.n > 0)
        buf_put(out, text);
    else
        buf_printf(out, "\"the upstream answered with status %d\"", s->status);
    buf_put(out, STR("}}}"));
}

/* How a final event is called is what the response says of itself. */
static struct str final_type(struct str body)
{
    struct view_want status = {.name = STR("status")};
    view_pick(body, &status, 1);
    if (view_text_is(status.value, STR("failed")))
        return STR("response.failed");
    return view_text_is(status.value, STR("incomplete")) ? STR("response.incomplete")
                                                         : STR("response.completed");
}

static void emit_collected(struct responses_source *s)
{
    struct str body = view_trim(buf_str(&s->body)), type = STR("response.failed");
    struct buf data = {0};
    bool whole = s->status >= 200 && s->status < 300 && is_response(body);
    if (whole) {
        type = final_type(body);
        buf_printf(&data, "{\"type\":\"%.*s\",\"response\":", (int)type.n, type.p);
        buf_put(&data, body);
        buf_putc(&data, '}');
    } else {
        put_failed(&data, s, body);
        gateway_tell_upstream_error(s->route, str_of(s->request_id, REQUEST_ID_TEXT),
                                    STR("no_events"),
                                    STR("it answered a background response with something else"));
    }
    tell_events(s);
    responses_mend_event(s->mend, type, buf_str(&data), responses_source_emit, s);
    buf_deinit(&data);
}

/* ---- from the source of the route ---- */

static void responses_source_on_head(void *ctx, const struct source_head *head)
{
    struct responses_source *s = ctx;
    s->events = head->events;
    s->collecting = !head->events && s->background;
    s->status = head->status;
    if (s->events)
        tell_events(s);
    else if (!s->collecting)
        s->on->head(s->ctx, head);
}

static int responses_source_on_event(void *ctx, struct str type, struct str data)
{
    struct responses_source *s = ctx;
    return responses_mend_event(s->mend, type, data, responses_source_emit, s);
}

static bool responses_source_on_data(void *ctx, struct str data)
{
    struct responses_source *s = ctx;
    if (!s->collecting)
        return s->on->data(s->ctx, data);
    if (data.n <= RESPONSES_EVENT_MAX / 2 - s->body.n) /* of more it is no JSON, then */
        buf_put(&s->body, data);
    return true;
}

static void responses_source_on_end(void *ctx, int err, struct str message)
{
    struct responses_source *s = ctx;
    struct str early = STR("the upstream's answer ended before it was complete");
    if (s->collecting && err == 0)
        emit_collected(s);
    bool cut = s->events && err == 0 && !responses_mend_has_ended(s->mend);
    if (cut)
        gateway_tell_upstream_error(s->route, str_of(s->request_id, REQUEST_ID_TEXT),
                                    STR("incomplete"), early);
    s->on->end(s->ctx, cut ? ERR_UPSTREAM : err, cut ? early : message); /* may free it */
}

static const struct source_events inner_events = {.head = responses_source_on_head,
                                                  .event = responses_source_on_event,
                                                  .data = responses_source_on_data,
                                                  .end = responses_source_on_end};

/* ---- as a source ---- */

static struct responses_source *responses_source_of(struct generation_source *s)
{
    return container_of(s, struct responses_source, source);
}

static void responses_source_start(struct generation_source *source)
{
    struct generation_source *inner = responses_source_of(source)->inner;
    inner->ops->start(inner);
}

static void responses_source_resume(struct generation_source *source)
{
    struct generation_source *inner = responses_source_of(source)->inner;
    inner->ops->resume(inner);
}

static void responses_source_free(struct generation_source *source)
{
    struct responses_source *s = responses_source_of(source);
    s->inner->ops->free(s->inner);
    responses_mend_free(s->mend);
    buf_deinit(&s->body);
    free(s);
}

static const struct source_ops ops = {.start = responses_source_start,
                                      .resume = responses_source_resume,
                                      .free = responses_source_free};

struct generation_source *responses_source_open(void *ctx, const struct source_order *o)
{
    const struct responses_source_order *order = ctx;
    struct responses_source *s = mem_zalloc(sizeof *s);
    struct source_order inner = *o;
    s->source.ops = &ops;
    s->on = o->on;
    s->ctx = o->ctx;
    s->route = o->route;
    s->background = order->mend.background;
    s->mend = responses_mend_new(&order->mend);
    memcpy(s->request_id, o->request_id.p, REQUEST_ID_TEXT);
    inner.body = order->body;
    inner.event_max = RESPONSES_EVENT_MAX;
    inner.on = &inner_events;
    inner.ctx = s;
    s->inner = o->route->source.open(o->route->source.ctx, &inner);
    return &s->source;
}
