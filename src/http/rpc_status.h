// SPDX-License-Identifier: Apache-2.0
/* rpc_status.h -- how a call ended, as each protocol writes it.
 *
 *     Connect, stream   an envelope with bit 1 set: {} or {"error":ERROR}
 *     Connect, unary    an HTTP status that follows from the code, with the body ERROR
 *     gRPC              trailers: grpc-status, grpc-message, grpc-status-details-bin
 *
 *     ERROR {"code":"not_found","message":"...","details":[{"type":"a.B","value":"..."}]}
 *
 * Values of details are base64 without padding; message and details are left out when empty. */
#ifndef HTTP_RPC_STATUS_H
#define HTTP_RPC_STATUS_H

#include "base/buf.h"

/* Structured information beside an error: a protobuf message. */
struct rpc_detail {
    struct str type; /* full name: "aiserver.v1.ErrorDetails" */
    struct str value;
};

struct rpc_status {
    int code; /* GRPC_* of base/err.h; 0: ok */
    struct str message;
    const struct rpc_detail *details;
    size_t n_details;
};
#define RPC_OK ((struct rpc_status){0})

/* The word for a code in Connect's errors: "permission_denied". Static. */
struct str rpc_code_text(int code);

/* ERROR. */
void rpc_put_error(struct buf *out, const struct rpc_status *status);

/* The last envelope of a stream. */
void rpc_put_end_stream(struct buf *out, const struct rpc_status *status);

/* The value of grpc-message: all but printable ASCII, and %, as %XX. */
void rpc_put_percent(struct buf *out, struct str text);

/* The value of grpc-status-details-bin: a google.rpc.Status in base64, without padding. */
void rpc_put_details(struct buf *out, const struct rpc_status *status);

#endif
