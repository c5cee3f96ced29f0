// SPDX-License-Identifier: Apache-2.0
/* client_http.h -- one HTTP request of a client and its answer, over HTTP/1.1 or HTTP/2.
 *
 *     http.c     requests, and which connection takes them
 *     client_wire.c     a connection: connecting, TLS, bytes in and out
 *     http1.c    HTTP/1.1 on a connection: one request at a time, kept for the next
 *     http2.c    HTTP/2 on a connection (nghttp2): many at a time
 *
 * Callbacks come from tm_turn alone, never from within the function that leads to them, and may
 * call every function here, http_cancel of their own request included. The answer's size is
 * bounded by whoever takes it: what data() refuses ends the request. */
#ifndef CLIENT_CLIENT_HTTP_H
#define CLIENT_CLIENT_HTTP_H

#include "client/client_core.h"

struct http_header {
    struct str name, value; /* names in lower case */
};

#define HTTP_HEADERS_MAX 24
#define HTTP_ADDED_MAX   16 /* headers by tm_options.prepare */
#define HTTP_NAME_MAX    128
#define HTTP_HEAD_MAX    (64 * 1024) /* bytes of an answer's head */

enum http_version { HTTP_ANY, HTTP_1, HTTP_2 };

/* The caller embeds this and keeps it, and all it points to, until over() or http_cancel. */
struct http_request {
    /* in */
    struct tm_client *client;
    struct str method, path; /* path with its query, behind the server's prefix. NUL-terminated */
    struct http_header headers[HTTP_HEADERS_MAX];
    size_t n_headers; /* Host, Authorization, User-Agent and lengths are added, and what the program
                       * wants (tm_options.prepare) */
    struct str body;
    bool duplex; /* HTTP/2: more of the body comes by http_send, until http_end */
    bool live;   /* the answer may be silent for live_timeout_ms instead of request_timeout_ms */
    /* Nothing happens twice by it, so that a request that failed on a kept connection before
     * anything was heard of it is sent once more on a new one. false: only if nothing of it can
     * have been dealt with (it had not begun, or HTTP/2 says so). Never when a piece of http_send
     * has gone out. */
    bool resend;
    enum http_version version;
    int timeout_ms; /* for all of it; 0: none beyond those of the client */
    int silence_ms; /* the answer may be silent for so long; 0: as the client says */

    /* The head is there: status and http_answer_header. May be NULL. */
    void (*head)(struct http_request *r);
    /* A piece of the body. 0: go on. An error ends the request with it. */
    int (*data)(struct http_request *r, struct str bytes);
    /* Exactly once, the last thing: 0: the answer was complete, with whatever status. Trailers are
     * found by http_answer_header then. TM_E_NETWORK, TM_E_TIMEOUT, TM_E_TLS, TM_E_PROTOCOL,
     * TM_E_NOMEM, or what data() gave; `message` says more. */
    void (*over)(struct http_request *r, int err);

    /* out */
    int status;         /* 0: no head has come */
    bool framed;        /* the answer said where it ends, so that over(0) means all of it */
    bool http2_refused; /* with an error: the server does not speak HTTP/2 (here) */
    char message[160];

    struct http_exchange *exchange;   /* private; NULL: not under way */
    const struct http_answer *answer; /* private */
};

/* 0, or TM_E_NOMEM, TM_E_INVALID (a header or path that cannot be sent), or what the program has
 * refused it with: over() does not come, and `message` says why. */
int http_start(struct http_request *r);

/* More of a duplex request's body; copied. 0, TM_E_NOMEM, or TM_E_INVALID: it is over, or has been
 * ended. */
int http_send(struct http_request *r, struct str bytes);
size_t http_unsent(const struct http_request *r); /* bytes of it that the peer has not taken yet */
int http_end(struct http_request *r);             /* that was all of it */

/* over() is not called. Not under way: does nothing. */
void http_cancel(struct http_request *r);

/* Of the final answer, from head() on, and its trailers in over(); p == NULL: none. name in lower
 * case. Lent until over() returns. */
struct str http_answer_header(const struct http_request *r, struct str name);

/* For client.c. */
void http_turn(struct tm_client *c);  /* reads and writes what can be */
void http_flush(struct tm_client *c); /* writes what the turn has produced */
size_t http_descriptors(const struct tm_client *c, struct tm_descriptor *out, size_t max);
void http_close_all(struct tm_client *c);

#endif
