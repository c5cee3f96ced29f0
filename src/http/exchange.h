// SPDX-License-Identifier: Apache-2.0
/* exchange.h -- one request and its response, whatever the HTTP version.
 *
 * The handler pulls the request body, and the transport pulls the response: neither is queued
 * without bound. A handler may answer before the body has ended, and may read and write at the same
 * time.
 *
 * Lifetime: the transport makes an exchange and ends it when the response is complete or the peer
 * is gone; gone() tells the handler when it has not ended the response itself. Whoever waits for
 * something else with an exchange in hand holds it (exchange_hold) until that is over. On an
 * exchange whose peer is gone every call below is allowed and does nothing, so that a completion
 * needs no special case: answer, release. */
#ifndef HTTP_EXCHANGE_H
#define HTTP_EXCHANGE_H

#include "base/arena.h"
#include "base/block.h"
#include "base/buf.h"
#include "access/principal.h"
#include "http/message.h"

struct account;
struct exchange;
struct http;
struct http_route;
struct peer;
struct reservation;
struct tls_names;
struct unsent_share;

enum pull {
    PULL_MORE, /* call again as soon as the peer can take more */
    PULL_WAIT, /* nothing now; exchange_wake tells when */
    PULL_END,  /* the body is complete */
};

/* All members may be NULL where nothing is streamed or waited for. */
struct exchange_ops {
    /* The peer can take more: exchange_put what there is, up to about EXCHANGE_PULL bytes. */
    enum pull (*pull)(struct exchange *x);
    /* The peer went away before the response was complete, or a streamed one has no more than its
     * head (HEAD, 204, 304). Nothing more is called. */
    void (*gone)(struct exchange *x);
    /* The server is shutting down: finish soon. */
    void (*drain)(struct exchange *x);
    /* Whoever asks has lost his right to it: end now. NULL: drain() is called instead, and where
     * that is NULL, too, an answer without a length is cut off; others come to their end. */
    void (*revoke)(struct exchange *x);
};
#define EXCHANGE_PULL (64 * 1024)
#define EXCHANGE_ROOM (256 * 1024) /* the most that exchange_room says */

/* Called once for each exchange_want, maybe before that returns. An empty data comes only with end.
 * Lent for the call. */
typedef void exchange_body_fn(struct exchange *x, struct str data, bool end);

/* The whole body: lent as long as the request is. err: 0, ERR_TOO_LARGE, ERR_BUSY (too many bodies
 * are in memory). Not called when the peer goes away first. */
typedef void exchange_collected_fn(struct exchange *x, struct str body, int err);

/* A transport's side of it. */
struct transport_ops {
    void (*want)(struct exchange *x);
    void (*begin)(struct exchange *x, int64_t length); /* head; length -1: pulled until PULL_END */
    void (*put)(struct exchange *x, struct slice s);
    void (*wake)(struct exchange *x);
    void (*end)(struct exchange *x);   /* a body of known length is complete */
    void (*abort)(struct exchange *x); /* cut off: the peer must see that the body is incomplete */
    size_t (*room)(const struct exchange *x);                 /* see exchange_room */
    const struct peer *(*peer)(const struct exchange *x);     /* NULL: nobody knows */
    struct unsent_share **(*share)(const struct exchange *x); /* where what is unsent counts */
};

struct exchange_header {
    struct header header;
    struct exchange_header *next;
};

struct exchange {
    struct http *http;
    const struct principal *principal; /* held */
    struct link answer;                /* in principal->answers */
    const struct http_route *route;    /* who serves it; NULL: nobody */
    /* Whom the certificate names that the peer has shown; NULL: it has shown none. For whoever
     * begins with the request. */
    const struct tls_names *certificate;
    struct account *account; /* of limits.c: whom it counts for; NULL: nobody */
    const struct exchange_ops *ops;
    void *state;  /* the handler's */
    char *origin; /* of front.c, owned: whose page may read the answer; NULL: see there */

    const struct request *request; /* NULL after exchange_forget_request */
    struct arena arena;            /* the request's memory, until then */
    struct block *request_bytes;   /* what the request's slices point into */

    /* private to exchange.c and the transport */
    const struct transport_ops *via;
    void *transport;
    struct reservation *reserved; /* of unsent.c; NULL: nothing */
    exchange_body_fn *on_body;
    struct exchange_header *headers; /* of the response, then its trailers */
    struct collect *collect;
    uint64_t body_length; /* as the request says; 0 also when it does not */
    uint32_t holds;
    uint16_t status;
    bool over : 1;      /* response complete or peer gone: calls do nothing */
    bool begun : 1;     /* the response head is out */
    bool streaming : 1; /* begun with a body that is pulled */
    bool sized : 1;     /* ... and that has an end */
    bool body_done : 1; /* the request's body has been delivered to its end */
    bool head_only : 1; /* no body is sent: to a HEAD request, or with such a status */
    bool secure : 1;    /* the request came over TLS */
    bool admin : 1;     /* ... by the listener of admin-listen */
    bool reads : 1;     /* it is a GET or a HEAD */
    uint8_t page : 3;   /* enum front_page: who made it */
    uint8_t kind : 2;   /* enum response_kind, once the response begins */
    /* Set by a handler whose work is for this peer alone: one that has finished sending is gone, as
     * with a streamed response, though it might still take an answer. */
    bool peer_bound : 1;
    bool stable : 1;    /* what is being delivered lives as long as the request */
    bool has_body : 1;  /* the request has one, maybe an empty one */
    bool undecided : 1; /* the handler is to ask exchange_may before it answers with a success */
    bool unescaped : 1; /* nothing in the path is encoded: it was looked at */
    bool is_live : 1;   /* of limits.c: it counts as a live reader */
    bool revoked : 1;   /* whoever asks has lost his right to it */
};

/* For transports. The transport's reference goes with exchange_finish. */
struct exchange *exchange_new(struct http *http, const struct transport_ops *via, void *transport);
/* Answers one want. stable: data lives as long as the request. */
void exchange_deliver(struct exchange *x, struct str data, bool end, bool stable);
void exchange_finish(struct exchange *x, bool peer_gone); /* then it is over */

void exchange_hold(struct exchange *x);
void exchange_release(struct exchange *x);

/* The server is shutting down; drain() was called for those that were there then. */
bool exchange_draining(const struct exchange *x);

/* The same, and nobody can come back, or whoever asks has lost his right to it: what would begin to
 * wait answers at once. */
bool exchange_closing(const struct exchange *x);

/* Who asks, from now on. Takes a reference. The answer ends with his right to it (answers.h). */
void exchange_set_principal(struct exchange *x, const struct principal *p);

/* For answers.c: that is over. */
void exchange_revoke(struct exchange *x);

/* May whoever asks do this? Names are as he sees them. exchange_may answers 401 or 403 if not. */
bool exchange_can(struct exchange *x, enum access_verb verb, enum access_kind kind,
                  struct str name);
bool exchange_may(struct exchange *x, enum access_verb verb, enum access_kind kind,
                  struct str name);

/* The handler has decided by other means, and answers 401 or 403 if he may not: false. */
static inline void exchange_decided(struct exchange *x)
{
    x->undecided = false;
}
bool exchange_deny(struct exchange *x);

/* The same for all names that the pattern matches. */
bool exchange_covers(struct exchange *x, enum access_verb verb, enum access_kind kind,
                     struct str pattern);

/* A name that whoever asks has given, as the store has it. */
static inline struct str exchange_rooted(struct exchange *x, struct str name)
{
    return x->principal->root.n == 0 ? name : principal_rooted(x->principal, &x->arena, name);
}

/* The connection that it came by, as hangups.h names it; NULL: nobody knows. Not of one that is
 * over. */
const void *exchange_connection(const struct exchange *x);

/* How a URL by which this peer can reach the server begins. */
static inline struct str exchange_scheme(const struct exchange *x)
{
    return x->secure ? STR("https://") : STR("http://");
}

static inline bool exchange_over(const struct exchange *x)
{
    return x->over;
}

/* How long the request's body is; -1: nobody knows yet. */
static inline int64_t exchange_body_length(const struct exchange *x)
{
    return x->has_body && x->body_length == 0 ? -1 : (int64_t)x->body_length;
}

/* The request body, piece by piece or whole (at most max bytes). One at a time. The callback may
 * come before these return, and may end the exchange: they are the last thing a handler does. */
void exchange_want(struct exchange *x, exchange_body_fn *on_body);
void exchange_collect(struct exchange *x, size_t max, exchange_collected_fn *collected);

/* The response. Names and values are kept by reference until the head is out: static or in the
 * arena. After a complete response the exchange is gone unless held. A body goes out with the
 * policy of http/inert.h, unless the handler sets a Content-Security-Policy: only for pages that
 * are ours, byte by byte. */
void exchange_status(struct exchange *x, int status);
void exchange_header(struct exchange *x, struct str name, struct str value);
void exchange_header_u64(struct exchange *x, struct str name, uint64_t value);
bool exchange_has_header(const struct exchange *x, struct str name); /* set before */

/* Whole responses. body is copied; slices are referenced. */
void exchange_send(struct exchange *x, struct str body);
void exchange_send_slices(struct exchange *x, const struct slice *slices, size_t n);

/* `{"error":{"code":"...","message":"..."}}` with the status of the table (or the given one). */
void exchange_error(struct exchange *x, int err);
void exchange_problem(struct exchange *x, int status, struct str code, struct str message);

/* A whole answer of JSON, which nobody may store on the way. */
void exchange_send_json(struct exchange *x, int status, struct str body);

/* A body that ops->pull gives. */
void exchange_stream(struct exchange *x);
/* The same, of so many bytes, at least one: exactly these are put before PULL_END. */
void exchange_stream_sized(struct exchange *x, uint64_t length);
void exchange_put(struct exchange *x, struct slice s); /* within pull */
void exchange_wake(struct exchange *x);                /* from anywhere, any pull included */
/* How much the peer takes now, about; 0: nothing for the time being. */
size_t exchange_room(const struct exchange *x);
/* Before so many bytes are read in order to be put: what the handler is about to hold for this
 * exchange is that much from now on, until it says otherwise (0 when it has put them). False: there
 * is no room for more; then it holds nothing, and pull() is called when there is. */
bool exchange_reserve(struct exchange *x, size_t bytes);
/* Ends a streamed response so that the peer notices that it is not complete. */
void exchange_abort(struct exchange *x);
/* Before the PULL_END that ends a streamed response. */
void exchange_trailer(struct exchange *x, struct str name, struct str value);

/* Whoever waits for long needs the request no more: gives back its memory, unless response headers
 * are waiting in it. The body has been read. */
void exchange_forget_request(struct exchange *x);
/* The same of a collected body alone. */
void exchange_forget_body(struct exchange *x);
/* Gives a collected body away. It counts as held in memory for as long as the exchange is there.
 * False: it is not large, and a part of the request. */
bool exchange_take_body(struct exchange *x, struct buf *out);

#endif
