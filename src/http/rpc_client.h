// SPDX-License-Identifier: Apache-2.0
/* rpc_client.h -- unary calls of gRPC, as a client: one message there, one back, over HTTP/2 from
 * the first byte on.
 *
 * Each call has a connection of its own (fetch.h says why). Compression is not offered. A call is
 * never repeated here: who knows what it does may do so. Loop thread only; the rules of fetch.h for
 * when done() comes and what may be called in it hold here, too. */
#ifndef HTTP_RPC_CLIENT_H
#define HTTP_RPC_CLIENT_H

#include "base/arena.h"
#include "http/fetch.h"
#include "http/rpc_frame.h"

#define RPC_CLIENT_MESSAGE_MAX 1024 /* bytes of an error's message; a longer one is cut */

/* Private: what a call owns while it is under way. */
struct rpc_owned {
    struct arena arena;
    struct buf body;
    struct rpc_frames frames;
    struct str status, status_message; /* as they came; p == NULL: not yet */
};

/* The caller embeds this and keeps it, and all it points to, alive until done() or
 * rpc_client_cancel. */
struct rpc_client_call {
    /* in */
    struct str target;  /* http://HOST:PORT */
    struct str method;  /* /package.Service/Method */
    struct str request; /* copied; wiped when the call is over, as it may hold credentials */
    const struct header *headers; /* besides those of the protocol */
    size_t n_headers;
    struct addr_policy policy;
    bool check_peer; /* as of fetch.h */
    uid_t peer_uid;
    uint32_t timeout_ms;
    size_t max_answer;
    /* 0: the peer has answered with one message and said that all went well. Otherwise code and
     * message tell why not, and err is ERR_UPSTREAM, or that of the fetch (ERR_UPSTREAM_TIMEOUT,
     * ERR_TOO_LARGE, ERR_FORBIDDEN_ADDR, ...). */
    void (*done)(struct rpc_client_call *c, int err);
    /* out, lent until done() returns */
    struct str answer;
    int code;           /* GRPC_*, of the peer or else ours; 0: it went well */
    struct str message; /* for people; of the peer it may be anything */
    bool told;          /* both are the peer's: the call has reached it */
    bool stranger;      /* the peer was another user's process, and was told nothing */

    /* private */
    struct fetch fetch;
    struct rpc_owned own;
};

/* What is not `in` starts as zero, and is so again when it is over. */
void rpc_client_start(struct fetcher *f, struct rpc_client_call *c);

/* done() is not called. Not under way: does nothing. */
void rpc_client_cancel(struct rpc_client_call *c);

static inline bool rpc_client_busy(const struct rpc_client_call *c)
{
    return c->fetch.transfer != NULL;
}

#endif
