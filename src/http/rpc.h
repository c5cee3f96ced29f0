// SPDX-License-Identifier: Apache-2.0
/* rpc.h -- one remote procedure call over one exchange: the Connect protocol and gRPC.
 *
 *     request's Content-Type                  protocol, and what it is for
 *     application/connect+proto               Connect: streams, each message in an envelope
 *     application/proto                       Connect: unary calls, the body is the message
 *     application/grpc, application/grpc+proto   gRPC: both, over HTTP/2 only
 *
 * Messages are bytes here. The client's are handed over one at a time, whole, and only when asked
 * for; the server's are pulled, as any response is. Compressed messages (gzip) are understood; what
 * is sent is not compressed. The deadline that a client sets is kept here.
 *
 * Loop thread only. A call is made by rpc_new and frees itself: the pointer is good until gone() is
 * called, or rpc_end or rpc_reply has been. Nothing is called after that, and within that gone()
 * all calls below are allowed and do nothing. The exchange belongs to the call: its ops and its
 * state are not the caller's. The request's headers can be read until the caller of rpc_new returns
 * to the loop, and not later: its memory is given back when the response has begun and the body
 * been read. */
#ifndef HTTP_RPC_H
#define HTTP_RPC_H

#include "base/str.h"
#include "http/exchange.h"
#include "http/rpc_head.h"
#include "http/rpc_status.h"

struct arena;
struct rpc;
struct sched;

/* `ops` of a call. */
struct rpc_ops {
    /* A message of the client; lent for the call. Comes once for each rpc_next, maybe before that
     * returns, never from within another message(). That of a unary or server stream call comes
     * when the request is complete: nothing can be wrong with it afterwards. */
    void (*message)(struct rpc *r, struct str bytes);
    /* Instead of a message: the client sends no more. Of RPC_BIDI only; else it may be NULL, since
     * a client that sends no message, or two, has made a mistake. */
    void (*half_closed)(struct rpc *r);
    /* As exchange_ops: rpc_put what there is and say whether there is more, or rpc_end and return
     * PULL_WAIT. Never returns PULL_END. See rpc_new for when it begins. */
    enum pull (*pull)(struct rpc *r);
    /* The peer is gone, or has sent what is no message of this protocol (it has been told so), or
     * the call's deadline has passed (the same). */
    void (*gone)(struct rpc *r);
    void (*drain)(struct rpc *r); /* the server is shutting down: end soon; may be NULL */
    /* A call is about to be ended with an error that the peer has made, and will make again if it
     * comes back with the same. May give it details, in memory of the arena. May be NULL; comes
     * before rpc_new has returned, too. */
    void (*fault)(struct rpc_status *status, struct arena *a);
};

struct rpc_setup {
    struct sched *sched;
    enum rpc_kind kind;
    size_t max_message; /* bytes of one of the client's messages, decompressed too; up to 1 GiB */
    const struct rpc_ops *ops;
    void *ctx;
};

/* Begins a call. NULL: the request is no call of this kind and has been answered (405, 415, 505, or
 * an error of the protocol). Nothing is called before this returns, and nothing is read before
 * rpc_next. When the response's head goes out, and pull comes for the first time:
 *
 *     RPC_BIDI            in this turn of the loop; some clients send nothing before they see it
 *     RPC_SERVER_STREAM   when the message has been handed over
 *     RPC_UNARY           with rpc_reply; there is no pull */
struct rpc *rpc_new(struct exchange *x, const struct rpc_setup *setup);

void *rpc_ctx(const struct rpc *r);
struct exchange *rpc_exchange(const struct rpc *r);

/* Asks for the next message. One at a time; not after half_closed. May call back before it returns,
 * and the call may be over then: it is the last thing a caller does. */
void rpc_next(struct rpc *r);

/* One message to the client, copied; within pull. */
void rpc_put(struct rpc *r, struct str bytes);
/* Pull is called soon, never from within this; before the response has begun it does nothing. */
void rpc_wake(struct rpc *r);

/* The answer of a unary call; copied. From anywhere, also within message(). */
void rpc_reply(struct rpc *r, struct str bytes);

/* The end of a stream behind all that was put, or the refusal of any call (of a unary one not with
 * code 0: that is rpc_reply). All that status points to is copied. From anywhere, also within
 * message() and pull(). The rest of the request is not read. */
void rpc_end(struct rpc *r, const struct rpc_status *status);

#endif
