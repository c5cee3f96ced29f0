// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/gateway_dialect.h"
#include "base/json.h"
#include "base/json_view.h"
#include "feature/gateway/gateway_dialect_core.h"
#include "http/heartbeat.h"

static const struct dialect *row_of(const struct dialect_voice *v)
{
    return &dialects[v->dialect];
}

/* ---- what a dialect is like ---- */

enum dialect_form dialect_form(enum route_dialect d)
{
    return dialects[d].form;
}

enum fold_kind dialect_fold(enum route_dialect d)
{
    return dialects[d].fold;
}

struct str dialect_media_type(const struct dialect_voice *v)
{
    if (row_of(v)->form != DIALECT_LINES)
        return STR("text/event-stream");
    return v->media_type.n > 0 ? v->media_type : STR("application/x-ndjson");
}

bool dialect_has_events(enum route_dialect d)
{
    return dialects[d].events;
}

bool dialect_counts_error(enum route_dialect d)
{
    return dialects[d].counts_error;
}

struct dialect_header dialect_header(enum route_dialect d)
{
    return dialects[d].header;
}

/* ---- comments ---- */

struct str dialect_heartbeat(enum route_dialect d)
{
    static const struct str by_form[] = {[DIALECT_NUMBERED] = STR_INIT(HEARTBEAT_TEXT),
                                         [DIALECT_BARE] = STR_INIT(HEARTBEAT_TEXT "\n"),
                                         [DIALECT_LINES] = STR_INIT("")};
    return by_form[dialects[d].form];
}

struct str dialect_end_mark(enum route_dialect d)
{
    static const struct str by_form[] = {[DIALECT_NUMBERED] = STR_INIT(": end\n"),
                                         [DIALECT_BARE] = STR_INIT(": end\n\n"),
                                         [DIALECT_LINES] = STR_INIT("")};
    return by_form[dialects[d].form];
}

static void put_resume_event(struct buf *out, struct str token)
{
    buf_put(out, STR("event: resume\ndata: {"));
    dialect_put_member(out, "token", token);
    buf_put(out, STR("}\n\n"));
}

void dialect_put_resume(struct buf *out, const struct dialect_voice *v, struct str token)
{
    const struct dialect *d = row_of(v);
    if (d->events)
        put_resume_event(out, token);
    else if (d->form != DIALECT_LINES)
        buf_printf(out, ": resume %.*s\n%s", (int)token.n, token.p,
                   d->form == DIALECT_BARE ? "\n" : "");
}

/* Versions of MCP are dates. Clients of earlier ones take it for a message that is no JSON. */
void dialect_put_prime(struct buf *out, const struct dialect_voice *v, struct str version)
{
    if (row_of(v)->counts_error && str_cmp(version, STR("2025-11-25")) >= 0)
        buf_printf(out, "id: %.*s:%llu\ndata: \n\n", (int)v->generation.n, v->generation.p,
                   (unsigned long long)v->seq);
}

/* ---- notices ---- */

static void put_gap_members(struct buf *out, const struct dialect_gap *gap)
{
    buf_printf(out, "{\"requested\":\"%llu\",\"earliest\":\"%llu\",",
               (unsigned long long)gap->requested, (unsigned long long)gap->earliest);
    dialect_put_member(out, "reason", gap_reason_text(gap->reason));
    buf_put(out, STR(",\"snapshot\":"));
    if (gap->snapshot.n > 0)
        json_put_string(out, gap->snapshot);
    else
        buf_put(out, STR("null"));
    buf_putc(out, '}');
}

void dialect_put_gap_json(struct buf *out, const struct dialect_gap *gap)
{
    buf_put(out, STR("{\"gap\":"));
    put_gap_members(out, gap);
    buf_putc(out, '}');
}

static void put_missing(struct buf *out, const struct dialect_voice *v,
                        const struct dialect_gap *gap)
{
    struct dialect_voice unnumbered = *v; /* events follow */
    struct buf message = {0};
    unnumbered.generation = STR_NONE;
    buf_printf(
        &message,
        "events of this answer are missing: %llu was the last one received, %llu is the next "
        "one that is kept",
        (unsigned long long)gap->requested, (unsigned long long)gap->earliest);
    dialect_put_error(out, &unnumbered, STR("GAP"), buf_str(&message));
    buf_deinit(&message);
}

/* Clients of the other dialects would take what follows for the whole answer. */
void dialect_put_gap(struct buf *out, const struct dialect_voice *v, const struct dialect_gap *gap)
{
    const struct dialect *d = row_of(v);
    struct buf payload = {0};
    if (d->events)
        dialect_put_gap_json(&payload, gap);
    else
        put_gap_members(&payload, gap);
    d->put_notice(
        out, v,
        &(struct dialect_notice){.name = "gap", .member = "gap", .payload = buf_str(&payload)});
    buf_deinit(&payload);
    if (!d->events)
        put_missing(out, v, gap);
}

void dialect_put_snapshot(struct buf *out, const struct dialect_voice *v, struct str payload,
                          uint64_t seq)
{
    const struct dialect *d = row_of(v);
    struct buf line = {0};
    if (d->put_payload != NULL) {
        d->put_payload(out, payload);
        return;
    }
    view_put_unbroken(&line, payload);
    d->put_notice(out, v,
                  &(struct dialect_notice){.name = "snapshot",
                                           .member = "snapshot",
                                           .payload = buf_str(&line),
                                           .seq = seq,
                                           .has_seq = true});
    buf_deinit(&line);
}

static void put_diagnostics(struct buf *out, const struct dialect_diagnostics *d)
{
    buf_put(out, STR("\"diagnostics\":{"));
    dialect_put_number(out, "resumes", d->resumes);
    buf_putc(out, ',');
    dialect_put_number(out, "trims", d->trims);
    buf_putc(out, ',');
    dialect_put_number(out, "recovered_events", d->recovered_events);
    buf_putc(out, ',');
    dialect_put_member(out, "correlation_id", d->correlation_id);
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

/* A client that does not know our notices has got nothing of the answer. */
static void put_too_late(struct buf *out, const struct dialect_voice *v)
{
    const struct dialect *d = row_of(v);
    if (d->has_done)
        buf_put(out, DIALECT_DONE);
    else if (!d->events)
        dialect_put_error(out, v, STR("EXPIRED"),
                          STR("the events of this answer are no longer kept"));
}

void dialect_put_complete(struct buf *out, const struct dialect_voice *v, struct str payload,
                          const struct dialect_diagnostics *diagnostics)
{
    const struct dialect *d = row_of(v);
    struct buf line = {0};
    if (d->put_payload != NULL) {
        d->put_payload(out, payload);
        return;
    }
    dialect_put_payload(&line, payload, diagnostics);
    d->put_notice(out, v,
                  &(struct dialect_notice){
                      .name = "complete", .member = "complete", .payload = buf_str(&line)});
    buf_deinit(&line);
    put_too_late(out, v);
}

/* ---- errors ---- */

void dialect_put_error(struct buf *out, const struct dialect_voice *v, struct str code,
                       struct str message)
{
    row_of(v)->put_error(out, v, &(struct dialect_problem){502, code, message, STR_NONE});
}

void dialect_put_problem(struct buf *out, const struct dialect_voice *v,
                         const struct dialect_problem *p)
{
    row_of(v)->put_body(out, v, p);
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

/* message: where nothing was said; a client may show this to people. */
struct end_words {
    int status;
    struct str code, message;
};

static const struct end_words *words_of(enum end_reason reason)
{
    static const struct end_words failed = {502, STR_INIT("UPSTREAM_ERROR"),
                                            STR_INIT("the answer could not be completed")};
    static const struct end_words cancelled = {499, STR_INIT("CANCELLED"),
                                               STR_INIT("stopped on request")};
    static const struct end_words orphaned = {
        502, STR_INIT("ORPHANED"), STR_INIT("the server went away before the answer was complete")};
    static const struct end_words expired = {502, STR_INIT("EXPIRED"),
                                             STR_INIT("the answer has expired")};
    static const struct end_words *const by_reason[] = {
        [END_NONE] = &failed,   [END_COMPLETED] = &failed,  [END_CANCELLED] = &cancelled,
        [END_FAILED] = &failed, [END_ORPHANED] = &orphaned, [END_EXPIRED] = &expired};
    return by_reason[reason];
}

static void put_reason(struct buf *out, const struct dialect_voice *v, enum end_reason reason,
                       struct str message)
{
    const struct dialect *d = row_of(v);
    struct buf payload = {0};
    buf_putc(&payload, '{');
    dialect_put_member(&payload, "reason", end_reason_text(reason));
    buf_putc(&payload, ',');
    dialect_put_member(&payload, "message", message);
    buf_putc(&payload, '}');
    d->put_notice(out, v,
                  &(struct dialect_notice){.name = d->events ? "end" : "reason",
                                           .member = "end",
                                           .payload = buf_str(&payload)});
    buf_deinit(&payload);
}

void dialect_put_end(struct buf *out, const struct dialect_voice *v, enum end_reason reason,
                     struct str message)
{
    const struct dialect *d = row_of(v);
    const struct end_words *w = words_of(reason);
    if (reason == END_NONE || reason == END_COMPLETED)
        return;
    message = message.n > 0 ? message : w->message;
    struct dialect_problem problem = {w->status, w->code, message, STR_NONE};
    if (d->events && reason == END_FAILED)
        d->put_error(out, v, &problem);
    put_reason(out, v, reason, message);
    if (d->events)
        return;
    if (reason == END_CANCELLED && d->put_cancelled != NULL)
        d->put_cancelled(out);
    else
        d->put_error(out, v, &problem);
}
