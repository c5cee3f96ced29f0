// SPDX-License-Identifier: Apache-2.0
/* client_http_core.h -- a request under way: what http.c, http1.c and http2.c share.
 *
 * An exchange is made by http_start and belongs to a wire: to its exchanges while it is under way,
 * to its finished ones until the turn's end has swept them away. So a function that has called the
 * requester back may still look at it, and finds r == NULL when it was over or cancelled meanwhile.
 */
#ifndef CLIENT_CLIENT_HTTP_CORE_H
#define CLIENT_CLIENT_HTTP_CORE_H

#include "client/client_http.h"
#include "client/client_wire.h"

/* Headers as they came, each as two size_t (of name and value) and the bytes of both. Two runs,
 * since what was lent of the head must not move when trailers come. */
struct http_answer {
    struct bytes head, trailers;
};

struct http_exchange {
    struct link link;
    struct http_request *r; /* NULL: nobody waits for it */
    struct wire *wire;
    enum http_version version; /* 1 or 2 */
    struct http_answer answer;
    struct timer silence, total;
    /* HTTP/1.1: the request's head. HTTP/2: its path, path_n bytes, and the value of Authorization
     */
    struct bytes text;
    size_t path_n;
    /* By tm_options.prepare. Headers as in struct http_answer; parameters as they stand behind the
     * path. */
    struct bytes added, params;
    size_t n_added, added_bytes;
    size_t text_sent, body_sent;
    bool begun;    /* on its wire; nothing of it may have arrived before */
    bool received; /* something of its answer has come */
    bool kept;     /* its wire had been used before */
    bool asked;    /* half of the silence is over: whether the server is there has been asked */

    /* HTTP/2 */
    int32_t stream;    /* 0: not submitted */
    int coming_status; /* of the head that is being read */
    struct bytes more; /* of a duplex body, from more_taken on */
    size_t more_taken;
    bool all;      /* no more comes */
    bool deferred; /* nghttp2 waits to be told of more */
};

/* For the protocols; each may end the exchange, and then x->r is NULL. */
void exchange_begin(struct http_exchange *x);    /* now it goes out */
void exchange_progress(struct http_exchange *x); /* no silence */
/* 0, TM_E_NOMEM, or TM_E_PROTOCOL: the head is too large. name in lower case. */
int exchange_header(struct http_exchange *x, bool trailer, struct str name, struct str value);
void exchange_forget_answer(struct http_exchange *x);
void exchange_head(struct http_exchange *x, int status);
void exchange_data(struct http_exchange *x, struct str bytes);
/* The protocol has done with it. message NULL: what stands for err. */
void exchange_over(struct http_exchange *x, int err, const char *message);
/* As over, but the protocol is told to drop it first. */
void exchange_fail(struct http_exchange *x, int err, const char *message);
/* Once more on a new connection: nothing of it has been dealt with. */
void exchange_again(struct http_exchange *x);

/* The wire is closed: what was on it is over with err (0: TM_E_NETWORK), or goes out again. */
void http_lost(struct wire *w, int err, const char *message);

/* http1.c, http2.c */
struct wire *http1_wire_new(struct tm_client *c); /* NULL: no memory */
struct wire *http2_wire_new(struct tm_client *c);
bool http1_speaks(const struct wire *w);
bool http2_speaks(const struct wire *w);
bool http2_can_take(const struct wire *w);  /* one more */
int http1_prepare(struct http_exchange *x); /* x->text; 0 or TM_E_NOMEM */
void http1_drop(struct http_exchange *x);   /* it is under way and not wanted any more */
void http2_drop(struct http_exchange *x);
void http2_resume(struct http_exchange *x); /* there is more of its body */
void http2_ping(struct wire *w); /* each exchange that has asked progresses by its answer */

#define HTTP_USER_AGENT "libtidemark/" TIDEMARK_VERSION

/* request.c */
int exchange_prepare(
    struct http_exchange *x); /* asks the program; 0 or an error, with r->message */
/* The next header that it has added, from *at == 0 on; false: that was the last. */
bool exchange_added(const struct http_exchange *x, size_t *at, struct str *name, struct str *value);
/* Either side has set this header, so that it need not be. */
bool exchange_sets(const struct http_exchange *x, struct str name);
int exchange_put_target(const struct http_exchange *x, struct bytes *to); /* 0 or TM_E_NOMEM */

/* What a header may hold; names in lower case. */
bool http_name_ok(struct str name);
bool http_value_ok(struct str value);
/* Content-Length is sent: there is a body, or the method is one that has one. */
bool exchange_has_length(const struct http_exchange *x);

#endif
