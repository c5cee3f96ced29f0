// SPDX-License-Identifier: Apache-2.0
/* session_errors_http.h -- how calls of sessions end: one table of codes, sentences and details.
 *
 * A client of the editor's comes back after a second, for ever, unless the error carries
 * aiserver.v1.ErrorDetails: what another attempt cannot mend carries them, and nothing else does.
 */
#ifndef FEATURE_SESSIONS_SESSION_ERRORS_HTTP_H
#define FEATURE_SESSIONS_SESSION_ERRORS_HTTP_H

#include "base/buf.h"
#include "http/rpc.h"

struct session_client;

/* What is refused here, before or beside a session. */
enum session_refusal {
    REFUSE_KEY,
    REFUSE_FORBIDDEN,      /* it is not granted */
    REFUSE_UNKNOWN_CALLER, /* the same to nobody in particular */
    REFUSE_POSITION,
    REFUSE_SECRET,
    REFUSE_FIRST_MESSAGE, /* it is none, though the key should be in it */
    REFUSE_REQUEST_ID,
    REFUSE_APPEND,
    REFUSE_REPLACED,      /* downlink: a newer one has its request id */
    REFUSE_POLL_UNKNOWN,  /* no such downlink */
    REFUSE_SENT_AGAIN,    /* append: another one has its number */
    REFUSE_AHEAD,         /* append: too far ahead of those before it */
    REFUSE_NO_DOWNLINK,   /* append: none came */
    REFUSE_DOWNLINK_GONE, /* append: not known whether its message was taken */
    REFUSE_ENDED,         /* append: to a session that has ended */
    REFUSE_TOO_LARGE,
    REFUSE_BUSY,
    REFUSE_DRAINING,
};

/* A status and what it points to. */
struct session_status {
    struct rpc_status rpc;
    struct rpc_detail details[2];
    struct buf bytes[2];
};

/* Of a client for whom session_next has said that it is over: to be used before
 * session_disconnect. position: what it began behind. */
void session_status_over(struct session_status *out, const struct session_client *c,
                         uint64_t position);
void session_status_refusal(struct session_status *out, enum session_refusal why);
void session_status_deinit(struct session_status *s);

/* rpc_ops.fault: who comes back with the same fares the same. */
void session_fault(struct rpc_status *status, struct arena *a);

/* rpc_end with it. */
void session_refuse(struct rpc *r, enum session_refusal why);

#endif
