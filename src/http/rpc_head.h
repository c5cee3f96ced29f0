// SPDX-License-Identifier: Apache-2.0
/* rpc_head.h -- what the head of a request says of the call that it begins. */
#ifndef HTTP_RPC_HEAD_H
#define HTTP_RPC_HEAD_H

#include "base/arena.h"
#include "http/message.h"

enum rpc_kind {
    RPC_UNARY,         /* one message each way */
    RPC_SERVER_STREAM, /* one message, many back */
    RPC_BIDI,          /* many each way, at the same time; HTTP/2 only (else 505) */
};

enum rpc_protocol { RPC_CONNECT_UNARY, RPC_CONNECT_STREAM, RPC_GRPC };

struct rpc_head {
    enum rpc_protocol protocol;
    struct str content_type; /* of the response too; static */
    bool gzip;               /* messages may be compressed */
    bool has_timeout;
    uint64_t timeout_ms;
};

/* Which protocol it is: 0, or the HTTP status (405, 415, 505) of a request that is no call of this
 * kind. */
int rpc_head_protocol(struct rpc_head *h, const struct request *req, enum rpc_kind kind);

/* The types that rpc_head_protocol takes, as Accept-Post lists them. */
struct str rpc_head_types(enum rpc_kind kind);

/* The rest of it. 0, or the code of an error, and *why is what to say; from the arena or static. */
int rpc_head_read(struct rpc_head *h, const struct request *req, struct arena *a, struct str *why);

/* The header that says how messages are (to be) compressed, as the protocol calls it. */
struct str rpc_head_accept_encoding(enum rpc_protocol protocol);

#endif
