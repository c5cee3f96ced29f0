// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/gateway_dialect.h"
#include "base/json.h"
#include "base/json_view.h"
#include "feature/gateway/gateway.h"

#define DONE STR("data: [DONE]\n\n")

/* ---- JSON ---- */

static void gateway_dialect_put_member(struct buf *out, const char *name, struct str value)
{
    buf_printf(out, "\"%s\":", name);
    json_put_string(out, value);
}

static void gateway_dialect_put_number(struct buf *out, const char *name, uint64_t value)
{
    buf_printf(out, "\"%s\":%llu", name, (unsigned long long)value);
}

void dialect_put_gap_json(struct buf *out, const struct dialect_gap *gap)
{
    buf_printf(out, "{\"gap\":{\"requested\":\"%llu\",\"earliest\":\"%llu\",",
               (unsigned long long)gap->requested, (unsigned long long)gap->earliest);
    gateway_dialect_put_member(out, "reason", gap_reason_text(gap->reason));
    buf_put(out, STR(",\"snapshot\":"));
    if (gap->snapshot.n > 0)
        json_put_string(out, gap->snapshot);
    else
        buf_put(out, STR("null"));
    buf_put(out, STR("}}"));
}

static void put_end_json(struct buf *out, enum end_reason reason, struct str message)
{
    buf_putc(out, '{');
    gateway_dialect_put_member(out, "reason", end_reason_text(reason));
    buf_putc(out, ',');
    gateway_dialect_put_member(out, "message", message);
    buf_putc(out, '}');
}

static void put_diagnostics(struct buf *out, const struct dialect_diagnostics *d)
{
    buf_put(out, STR("\"diagnostics\":{"));
    gateway_dialect_put_number(out, "resumes", d->resumes);
    buf_putc(out, ',');
    gateway_dialect_put_number(out, "trims", d->trims);
    buf_putc(out, ',');
    gateway_dialect_put_number(out, "recovered_events", d->recovered_events);
    buf_putc(out, ',');
    gateway_dialect_put_member(out, "correlation_id", d->correlation_id);
    buf_putc(out, '}');
}

/* Line breaks in JSON stand between tokens, and would end the SSE field. A name spelt with escapes
 * is not found here, but ours comes last, and that is the one that counts. */
void dialect_put_payload(struct buf *out, struct str payload,
                         const struct dialect_diagnostics *diagnostics)
{
    struct str name, value, text = view_trim(payload);
    size_t at;
    if (text.n == 0 || text.p[0] != '{' || json_check(text, &at) != 0) {
        view_put_unbroken(out, text);
        return;
    }
    buf_putc(out, '{');
    for (struct str rest = view_inside(text); view_member(&rest, &name, &value);) {
        if (str_eq(name, STR("diagnostics")))
            continue;
        buf_putc(out, '"');
        buf_put(out, name);
        buf_put(out, STR("\":"));
        view_put_unbroken(out, value);
        buf_putc(out, ',');
    }
    put_diagnostics(out, diagnostics);
    buf_putc(out, '}');
}

static void put_details(struct buf *out, struct str details)
{
    if (details.n == 0)
        return;
    buf_put(out, STR(",\"details\":"));
    buf_put(out, details);
}

void dialect_put_error_body(struct buf *out, struct str code, struct str message,
                            struct str details)
{
    buf_put(out, STR("{\"schema\":\"error.v1\","));
    gateway_dialect_put_member(out, "code", code);
    buf_putc(out, ',');
    gateway_dialect_put_member(out, "message", message);
    put_details(out, details);
    buf_putc(out, '}');
}

static struct str openai_type(int status)
{
    switch (status) {
    case 401: return STR("authentication_error");
    case 403: return STR("permission_error");
    case 429: return STR("rate_limit_error");
    case 502:
    case 504: return STR("upstream_error");
    default: return status < 500 ? STR("invalid_request_error") : STR("server_error");
    }
}

void dialect_put_openai_body(struct buf *out, const struct dialect_problem *p)
{
    buf_put(out, STR("{\"error\":{"));
    gateway_dialect_put_member(out, "message", p->message);
    buf_putc(out, ',');
    gateway_dialect_put_member(out, "type", openai_type(p->status));
    buf_put(out, STR(",\"param\":null,"));
    gateway_dialect_put_member(out, "code", p->code);
    put_details(out, p->details);
    buf_put(out, STR("}}"));
}

void gateway_put_openai_error(struct buf *out, int status, struct str code, struct str message)
{
    dialect_put_openai_body(out, &(struct dialect_problem){status, code, message, STR_NONE});
}

void dialect_put_problem(struct buf *out, enum route_dialect d, const struct dialect_problem *p)
{
    if (d == ROUTE_DIALECT_OPENAI)
        dialect_put_openai_body(out, p);
    else
        dialect_put_error_body(out, p->code, p->message, p->details);
}

/* ---- frames ---- */

/* What goes around a notice. On `sse` routes it has a name, on the others it is a member of what
 * their clients expect to see. */
static void open_notice(struct buf *out, enum route_dialect d, const char *name)
{
    switch (d) {
    case ROUTE_DIALECT_SSE: buf_printf(out, "event: %s\ndata: ", name); break;
    case ROUTE_DIALECT_OPENAI:
        buf_put(out, STR("data: {\"id\":\"\",\"object\":\"chat.completion.chunk\",\"created\":0,"
                         "\"model\":\"\",\"choices\":[],\"tidemark\":"));
        break;
    case ROUTE_DIALECT_UI_MESSAGE:
        buf_put(out, STR("data: {\"type\":\"data-tidemark\",\"data\":"));
        break;
    }
}

static void close_notice(struct buf *out, enum route_dialect d)
{
    if (d == ROUTE_DIALECT_OPENAI)
        buf_putc(out, '}');
    if (d == ROUTE_DIALECT_UI_MESSAGE)
        buf_put(out, STR(",\"transient\":true}"));
    buf_put(out, STR("\n\n"));
}

void dialect_put_resume(struct buf *out, enum route_dialect d, struct str token)
{
    if (d != ROUTE_DIALECT_SSE) {
        buf_put(out, STR(": resume "));
        buf_put(out, token);
        buf_putc(out, '\n');
        return;
    }
    open_notice(out, d, "resume");
    buf_putc(out, '{');
    gateway_dialect_put_member(out, "token", token);
    buf_putc(out, '}');
    close_notice(out, d);
}

void dialect_put_snapshot(struct buf *out, enum route_dialect d, struct str payload, uint64_t seq)
{
    if (d == ROUTE_DIALECT_SSE) {
        buf_printf(out, "id: %llu\n", (unsigned long long)seq);
        open_notice(out, d, "snapshot");
        view_put_unbroken(out, payload);
    } else {
        open_notice(out, d, "snapshot");
        buf_put(out, STR("{\"snapshot\":"));
        view_put_unbroken(out, payload);
        buf_putc(out, ',');
        gateway_dialect_put_number(out, "seq", seq);
        buf_putc(out, '}');
    }
    close_notice(out, d);
}

void dialect_put_complete(struct buf *out, enum route_dialect d, struct str payload,
                          const struct dialect_diagnostics *diagnostics)
{
    open_notice(out, d, "complete");
    if (d != ROUTE_DIALECT_SSE)
        buf_put(out, STR("{\"complete\":"));
    dialect_put_payload(out, payload, diagnostics);
    if (d != ROUTE_DIALECT_SSE)
        buf_putc(out, '}');
    close_notice(out, d);
    if (d != ROUTE_DIALECT_SSE)
        buf_put(out, DONE);
}

void dialect_put_error(struct buf *out, enum route_dialect d, struct str code, struct str message)
{
    switch (d) {
    case ROUTE_DIALECT_SSE:
        buf_put(out, STR("event: error\ndata: "));
        dialect_put_error_body(out, code, message, STR_NONE);
        break;
    case ROUTE_DIALECT_OPENAI:
        buf_put(out, STR("data: "));
        dialect_put_openai_body(out, &(struct dialect_problem){502, code, message, STR_NONE});
        break;
    case ROUTE_DIALECT_UI_MESSAGE:
        buf_put(out, STR("data: {\"type\":\"error\","));
        gateway_dialect_put_member(out, "errorText", message);
        buf_putc(out, '}');
        break;
    }
    buf_put(out, STR("\n\n"));
}

/* Clients of the other dialects would take what follows for the whole answer. */
void dialect_put_gap(struct buf *out, enum route_dialect d, const struct dialect_gap *gap)
{
    struct buf message = {0};
    open_notice(out, d, "gap");
    dialect_put_gap_json(out, gap);
    close_notice(out, d);
    if (d == ROUTE_DIALECT_SSE)
        return;
    buf_printf(
        &message,
        "events of this answer are missing: %llu was the last one received, %llu is the next "
        "one that is kept",
        (unsigned long long)gap->requested, (unsigned long long)gap->earliest);
    dialect_put_error(out, d, STR("GAP"), buf_str(&message));
    buf_deinit(&message);
}

/* ---- ends ---- */

struct str gateway_end_message(enum end_reason end, struct str notice)
{
    static const struct str texts[] = {
        [END_NONE] = STR_INIT(""),
        [END_COMPLETED] = STR_INIT(""),
        [END_CANCELLED] = STR_INIT("the answer was stopped"),
        [END_FAILED] = STR_INIT("the upstream failed"),
        [END_ORPHANED] = STR_INIT("the server was restarted while this answer was under way"),
        [END_EXPIRED] = STR_INIT("this answer is no longer kept"),
    };
    return notice.n > 0 ? notice : texts[end];
}

static struct str end_code(enum end_reason reason)
{
    switch (reason) {
    case END_CANCELLED: return STR("CANCELLED");
    case END_ORPHANED: return STR("ORPHANED");
    case END_EXPIRED: return STR("EXPIRED");
    case END_NONE:
    case END_COMPLETED:
    case END_FAILED: break;
    }
    return STR("UPSTREAM_ERROR");
}

/* Where nothing was said: a client may show this to people. */
static struct str end_message(enum end_reason reason, struct str message)
{
    if (message.n > 0)
        return message;
    switch (reason) {
    case END_CANCELLED: return STR("stopped on request");
    case END_ORPHANED: return STR("the server went away before the answer was complete");
    case END_EXPIRED: return STR("the answer has expired");
    case END_NONE:
    case END_COMPLETED:
    case END_FAILED: break;
    }
    return STR("the answer could not be completed");
}

static void put_cancelled(struct buf *out, enum route_dialect d)
{
    if (d == ROUTE_DIALECT_UI_MESSAGE)
        buf_put(out, STR("data: {\"type\":\"abort\"}\n\n"));
    buf_put(out, DONE);
}

void dialect_put_end(struct buf *out, enum route_dialect d, enum end_reason reason,
                     struct str message)
{
    if (reason == END_NONE || reason == END_COMPLETED)
        return;
    message = end_message(reason, message);
    if (d == ROUTE_DIALECT_SSE && reason == END_FAILED)
        dialect_put_error(out, d, end_code(reason), message);
    open_notice(out, d, "end");
    if (d != ROUTE_DIALECT_SSE)
        buf_put(out, STR("{\"end\":"));
    put_end_json(out, reason, message);
    if (d != ROUTE_DIALECT_SSE)
        buf_putc(out, '}');
    close_notice(out, d);
    if (d == ROUTE_DIALECT_SSE)
        return;
    if (reason == END_CANCELLED)
        put_cancelled(out, d);
    else
        dialect_put_error(out, d, end_code(reason), message);
}
