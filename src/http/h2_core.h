// SPDX-License-Identifier: Apache-2.0
/* h2_core.h -- what the files of HTTP/2 know of each other: h2.c has the connection, h2_stream.c a
 * stream and what comes in on it, h2_respond.c what goes out.
 *
 * nghttp2 calls back from two places only: nghttp2_session_mem_recv, when bytes have come, and
 * nghttp2_session_send, at the end of a turn when everything before has been sent. Handlers run
 * within both; what they do is submitted to nghttp2, and h2_flush_later sees to the next send. A
 * stream's memory goes when nghttp2 closes it (or with the connection), and never while a handler
 * runs. */
#ifndef HTTP_H2_CORE_H
#define HTTP_H2_CORE_H

#include "base/buf.h"
#include "http/exchange.h"
#include "http/h2.h"
#include "http/h2_guard.h"
#include "http/h2_head.h"
#include "http/peer.h"

#include <nghttp2/nghttp2.h>

struct h2 {
    struct peer *peer;
    nghttp2_session *session;
    struct link streams; /* of struct h2_stream */
    struct h2_guard guard;
    struct h2_scan scan;
    struct timer sweep; /* looks for streams whose peer takes nothing */
    struct timer rest;  /* ... and for answered ones of which the peer has not sent all */
    struct block *out;  /* frames; from out_from on not put yet. NULL: none */
    uint32_t out_from;
    size_t queued;               /* bytes of this round of sending */
    size_t unsent;               /* bytes in the queues of all streams */
    struct h2_stream *receiving; /* its header list is coming in; NULL: none is */
    uint8_t wait, rounds;
    bool greeted;    /* the peer's first SETTINGS are here */
    bool full;       /* the last round ended because enough was queued */
    bool pull_again; /* a stream that was pulled has more to say, and nothing was sent of it */
    bool leaving;    /* drained: the first GOAWAY is out */
    bool condemned;  /* the last GOAWAY is out: nothing the peer says matters */
    struct h2_head head;
};

/* A request body that has not been delivered to its end; in the exchange's arena. */
struct h2_body {
    struct h2_stream *stream;
    struct buf waiting; /* for the handler to want it; counts as inflight */
    bool ended;         /* behind that comes nothing more */
    bool expect_continue;
    struct timer slow;            /* runs while the handler waits */
    uint64_t seen, seen_at_timer; /* payload bytes: for the rate */
};

/* Slices to send, from `first` on. */
struct h2_queue {
    struct slice *items; /* NULL: none */
    uint32_t first, n, cap;
    size_t bytes;
};

struct h2_stream {
    struct link link;
    struct h2 *h2;
    struct exchange *x; /* NULL: answered, or cut off */
    struct h2_body *body;
    struct h2_queue out;
    struct h2_trailers *trailers;
    int32_t id;
    bool remote_done;   /* the peer has sent all of the request */
    bool answered;      /* we have sent all of the response, and it has not */
    bool small_body;    /* all of it is on its way, whatever the answer */
    uint8_t rest_looks; /* so often has `rest` looked for it */
    bool pulled;        /* once at least */
    bool pull_again;    /* woken, or there was more */
    bool deferred;      /* nghttp2 waits to be told that there is more */
    bool ended;         /* behind what is queued comes the end */
    bool cut;           /* we have reset it */
    bool late;          /* had something to send at the last sweep, and nothing was taken since */
};

static inline struct http *h2_http(const struct h2 *h)
{
    return h->peer->http;
}

/* ---- h2.c ---- */

/* Something has been submitted: send it at the end of the turn. */
void h2_flush_later(struct h2 *h);

/* Puts bytes of frames, in order with what h2_give puts. */
void h2_put(struct h2 *h, const void *bytes, size_t n);
void h2_give(struct h2 *h, struct slice s); /* takes the reference */

/* ---- h2_stream.c ---- */

/* NULL: out of memory. */
struct h2_stream *h2_stream_new(struct h2 *h, int32_t id);
void h2_stream_free(struct h2_stream *s); /* nghttp2 knows it no more */

/* The exchange is over; gone: for the peer has left. */
void h2_stream_detach(struct h2_stream *s, bool gone);

/* The header list is complete. */
void h2_stream_request(struct h2_stream *s, bool has_body);
void h2_stream_data(struct h2_stream *s, struct str data);
void h2_stream_end(struct h2_stream *s);

/* Cuts it off; the handler is told that the peer is gone. */
void h2_stream_cut(struct h2_stream *s, uint32_t code);

/* Forgets the request's body. */
void h2_stream_drop_body(struct h2_stream *s);

/* The exchange cannot go on for a reason of the peer's. If it was not answered, this answers. */
void h2_stream_fail(struct h2_stream *s, int status, const char *why);

void h2_stream_want(struct exchange *x);

/* ---- h2_respond.c ---- */

extern const struct transport_ops h2_via;

void h2_stream_drop_queue(struct h2_stream *s);

/* Is its end to be held back for the rest of a body that is on its way? */
bool h2_stream_awaits(struct h2_stream *s);
void h2_stream_resume(struct h2_stream *s); /* there is more to send */

/* There is something to send, and the peer's window may be why it has not been. */
bool h2_stream_pending(const struct h2_stream *s);

/* Answers outside of what the handler does; s->x is still there. */
void h2_respond_problem(struct h2_stream *s, int status, const char *why);

int h2_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t n,
                 nghttp2_data_source *source, void *ctx);

#define H2_ROUND (64 * 1024) /* bytes that are queued before the peer has to take some */

#endif
