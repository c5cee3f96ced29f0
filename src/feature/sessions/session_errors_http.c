// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/session_errors_http.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/num.h"
#include "feature/sessions/session.h"

/* A row without a title carries no details: come back. */
struct row {
    int code;
    enum session_error_code error;
    struct str title, text;
    struct str gap; /* the reason of a tidemark.v1.Gap; n == 0: none */
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

#define OK                                                                                         \
    {                                                                                              \
        .code = 0                                                                                  \
    }
#define STOP(c, e, head, sentence)                                                                 \
    {                                                                                              \
        .code = GRPC_##c, .error = SESSION_ERROR_##e, .title = STR_INIT(head),                     \
        .text = STR_INIT(sentence)                                                                 \
    }
#define STOP_GAP(c, reason, head, sentence)                                                        \
    {                                                                                              \
        .code = GRPC_##c, .title = STR_INIT(head), .text = STR_INIT(sentence),                     \
        .gap = STR_INIT(reason)                                                                    \
    }
#define AGAIN(c, sentence)                                                                         \
    {                                                                                              \
        .code = GRPC_##c, .text = STR_INIT(sentence)                                               \
    }

static const struct row over_rows[] = {
    [SESSION_IDLE] = OK,
    [SESSION_REPLACED] = STOP(ABORTED, UNSPECIFIED, "Continued elsewhere",
                              "A newer connection has this session now"),
    [SESSION_WRONG_SECRET] = STOP(
        PERMISSION_DENIED, NOT_HIGH_ENOUGH_PERMISSIONS, "Wrong key",
        "This session belongs to another x-idempotent-encryption-key; send the one that it was "
        "begun with, or begin another session"),
    [SESSION_UNKNOWN] =
        STOP_GAP(NOT_FOUND, "unknown", "No such session",
                 "There is no session with this x-idempotency-key to continue; begin without "
                 "x-idempotency-event-id"),
    [SESSION_EXPIRED] =
        STOP_GAP(FAILED_PRECONDITION, "expired", "Session expired",
                 "This session was left alone for longer than a session lasts; begin another one"),
    [SESSION_GAP] = STOP_GAP(OUT_OF_RANGE, "trimmed", "Position lost",
                             "The events behind this x-idempotency-event-id can no longer be read"),
    [SESSION_MALFORMED] = STOP(INVALID_ARGUMENT, UNSPECIFIED, "Malformed message",
                               "A message is not one that this method takes"),
    [SESSION_BUSY] = AGAIN(RESOURCE_EXHAUSTED, "Too many sessions are open; come back later"),
    [SESSION_FAILED] = AGAIN(UNAVAILABLE, "Sessions cannot be stored at present; come back later"),
    [SESSION_DRAINING] = AGAIN(UNAVAILABLE, "The server is being stopped; come back in a moment"),
};

/* SESSION_ENDED, by how. */
static const struct row end_rows[] = {
    [END_NONE] = AGAIN(UNAVAILABLE, "The session was left; come back"),
    [END_COMPLETED] = OK,
    [END_CANCELLED] = STOP(CANCELLED, USER_ABORTED_REQUEST, "Aborted", "The session was aborted"),
    [END_FAILED] = STOP(INTERNAL, PROVIDER_ERROR, "Failed",
                        "What answers this session has failed; begin another session"),
    [END_ORPHANED] = STOP(FAILED_PRECONDITION, UNSPECIFIED, "Session lost",
                          "The session was broken off and cannot be continued; begin another one"),
    [END_EXPIRED] = STOP(FAILED_PRECONDITION, UNSPECIFIED, "Session expired",
                         "The session has outlived its time; begin another one"),
};

/* SESSION_FAILED for good: it would be as damaged the next time. */
static const struct row damaged_row =
    STOP(DATA_LOSS, UNSPECIFIED, "Session damaged",
         "What is stored of this session cannot be read any more; begin another one");

/* A position that was never given out. */
static const struct row ahead_row =
    STOP_GAP(OUT_OF_RANGE, "ahead", "No such position",
             "x-idempotency-event-id is ahead of the session; send the id of an event of it");

static const struct row refusal_rows[] = {
    [REFUSE_KEY] = STOP(INVALID_ARGUMENT, UNSPECIFIED, "Idempotency key",
                        "Send x-idempotency-key: 1 to 200 visible ASCII characters without `/` and "
                        "`%`, such as a UUID. Where one call goes both ways it may be in field 4 "
                        "of the first message instead"),
    [REFUSE_FORBIDDEN] = STOP(PERMISSION_DENIED, NOT_HIGH_ENOUGH_PERMISSIONS, "Not granted",
                              "The credential does not grant this session"),
    [REFUSE_UNKNOWN_CALLER] = STOP(UNAUTHENTICATED, NOT_HIGH_ENOUGH_PERMISSIONS, "Not signed in",
                                   "This needs a credential"),
    [REFUSE_POSITION] = STOP(INVALID_ARGUMENT, UNSPECIFIED, "Event id",
                             "Send x-idempotency-event-id as the decimal id of the last event that "
                             "you have; 0, or none at all, is for the start"),
    [REFUSE_SECRET] = STOP(INVALID_ARGUMENT, UNSPECIFIED, "Encryption key",
                           "Send x-idempotent-encryption-key: 32 random bytes as base64 or "
                           "base64url, the same ones with every call of a session"),
    [REFUSE_FIRST_MESSAGE] = STOP(INVALID_ARGUMENT, UNSPECIFIED, "Malformed message",
                                  "The first message is not one that this method takes"),
    [REFUSE_REQUEST_ID] = STOP(INVALID_ARGUMENT, UNSPECIFIED, "Request id",
                               "Send a message with a request_id of 1 to 128 bytes"),
    [REFUSE_APPEND] = STOP(INVALID_ARGUMENT, UNSPECIFIED, "Malformed append",
                           "Send a request_id of 1 to 128 bytes, an append_seqno of 0 or more, and "
                           "a message either as hex in data or as it is in data_binary"),
    [REFUSE_REPLACED] = STOP(ABORTED, UNSPECIFIED, "Continued elsewhere",
                             "A newer downlink has this request_id now"),
    [REFUSE_POLL_UNKNOWN] =
        AGAIN(NOT_FOUND, "Nothing is polled under this request_id and "
                         "x-idempotent-encryption-key; begin with start_request"),
    [REFUSE_SENT_AGAIN] = AGAIN(ABORTED, "Another append with this append_seqno came behind it"),
    [REFUSE_AHEAD] = AGAIN(RESOURCE_EXHAUSTED,
                           "This append_seqno is more than 16 ahead; send those before it first"),
    [REFUSE_NO_DOWNLINK] = AGAIN(NOT_FOUND, "No downlink with this request_id and "
                                            "x-idempotent-encryption-key has come"),
    [REFUSE_DOWNLINK_GONE] =
        AGAIN(UNAVAILABLE, "The downlink with this request_id is gone; open another one"),
    [REFUSE_ENDED] =
        STOP(FAILED_PRECONDITION, UNSPECIFIED, "Session ended", "The session has ended"),
    [REFUSE_TOO_LARGE] = STOP(RESOURCE_EXHAUSTED, RESOURCE_EXHAUSTED, "Message too large",
                              "The message is larger than messages may be here"),
    [REFUSE_BUSY] = AGAIN(RESOURCE_EXHAUSTED, "Too much is waiting; come back later"),
    [REFUSE_DRAINING] = AGAIN(UNAVAILABLE, "The server is being stopped; come back in a moment"),
};

static void add_detail(struct session_status *s, struct str type, struct buf bytes)
{
    size_t i = s->rpc.n_details++;
    s->bytes[i] = bytes;
    s->details[i] = (struct rpc_detail){type, buf_str(&s->bytes[i])};
}

static void add_error_details(struct session_status *s, const struct row *row)
{
    struct buf bytes = {0};
    session_put_error_details(&bytes, &(struct session_error_details){.code = row->error,
                                                                      .title = row->title,
                                                                      .detail = s->rpc.message});
    add_detail(s, STR(SESSION_ERROR_DETAILS_TYPE), bytes);
}

static void session_errors_fill(struct session_status *s, const struct row *row, struct str message)
{
    *s = (struct session_status){0};
    if (row->code == 0)
        return;
    s->rpc.code = row->code;
    s->rpc.message = message.n > 0 ? message : row->text;
    s->rpc.details = s->details;
    if (row->title.n > 0)
        add_error_details(s, row);
}

static void add_gap(struct session_status *s, const struct row *row, const struct session_client *c,
                    uint64_t position)
{
    char requested[NUM_TEXT_MAX], earliest[NUM_TEXT_MAX];
    struct buf bytes = {0};
    size_t n = c->over == SESSION_GAP ? num_format(c->earliest, earliest) : 0;
    session_put_gap(&bytes, str_of(requested, num_format(position, requested)), str_of(earliest, n),
                    row->gap);
    add_detail(s, STR(SESSION_GAP_TYPE), bytes);
}

static const struct row *session_errors_row_of(const struct session_client *c, uint64_t position)
{
    if (c->over == SESSION_ENDED && c->end == END_CANCELLED && c->aborted)
        return &end_rows[END_COMPLETED]; /* as it wished */
    if (c->over == SESSION_ENDED)
        return &end_rows[(size_t)c->end < COUNT(end_rows) ? c->end : END_NONE];
    if (c->over == SESSION_FAILED && c->err == ERR_CORRUPT)
        return &damaged_row;
    return c->over == SESSION_GAP && position > c->latest ? &ahead_row : &over_rows[c->over];
}

void session_status_over(struct session_status *out, const struct session_client *c,
                         uint64_t position)
{
    const struct row *row = session_errors_row_of(c, position);
    session_errors_fill(out, row, c->message);
    if (row->gap.n > 0)
        add_gap(out, row, c, position);
}

void session_status_refusal(struct session_status *out, enum session_refusal why)
{
    session_errors_fill(out, &refusal_rows[why], STR_NONE);
}

void session_status_deinit(struct session_status *s)
{
    for (size_t i = 0; i < COUNT(s->bytes); i++)
        buf_deinit(&s->bytes[i]);
}

void session_fault(struct rpc_status *status, struct arena *a)
{
    bool large = status->code == GRPC_RESOURCE_EXHAUSTED;
    struct rpc_detail *detail = arena_alloc(a, sizeof *detail);
    struct buf bytes = {0};
    session_put_error_details(
        &bytes, &(struct session_error_details){
                    .code = large ? SESSION_ERROR_RESOURCE_EXHAUSTED : SESSION_ERROR_UNSPECIFIED,
                    .title = large ? STR("Message too large") : STR("Malformed call"),
                    .detail = status->message});
    *detail = (struct rpc_detail){STR(SESSION_ERROR_DETAILS_TYPE), arena_dup(a, buf_str(&bytes))};
    buf_deinit(&bytes);
    status->details = detail;
    status->n_details = 1;
}

void session_refuse(struct rpc *r, enum session_refusal why)
{
    struct session_status s;
    session_status_refusal(&s, why);
    rpc_end(r, &s.rpc);
    session_status_deinit(&s);
}
