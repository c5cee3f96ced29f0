// SPDX-License-Identifier: Apache-2.0
/* responses_http.h -- OpenAI's Responses API over any backend: see docs/protocols/responses.md. */
#ifndef FEATURE_GATEWAY_RESPONSES_HTTP_H
#define FEATURE_GATEWAY_RESPONSES_HTTP_H

#include "base/lane.h"
#include "feature/gateway/gateway_http_core.h"
#include "feature/gateway/response_id.h"
#include "feature/gateway/responses_request.h"
#include "feature/gateway/responses_source.h"
#include "feature/gateway/responses_store.h"

/* ---- responses_start_http.c: POST ---- */

/* What a POST asks for, in the arena of its exchange. */
struct responses_ask {
    struct gateway_route *route;
    struct exchange *x;
    void *ctx;                        /* the caller's */
    struct responses_request request; /* of the body, until the upstream was asked */
    int err;                          /* of responses_request_parse */
    bool prepared;                    /* what follows is there, for this request id */
    char request_id[REQUEST_ID_TEXT], response_id[RESPONSE_ID_TEXT];
    char previous_id[REQUEST_ID_TEXT]; /* of the generation that it goes on from */
    bool follows;                      /* ... if it may be one of ours */
    bool continues;                    /* ... and is */
    bool kept;                         /* its input is stored */
    struct buf upstream;               /* the body for the upstream */
    struct buf stored;                 /* the two events of its input */
    uint32_t ends[2];
    struct responses_source_order order;
    struct source_kind source;

    /* private */
    struct buf before, before_input; /* the response that it goes on from, and its items */
    struct job job;
    struct store_write write;
    struct stream_config stream;
    void (*ready)(struct responses_ask *a);
};

/* NULL: it is for no response, or not for us to read. On the loop. */
struct responses_ask *responses_ask_new(struct gateway_route *r, struct exchange *x, void *ctx);

/* On any thread. False: nothing is wanted of us, and the request may go on as it is. */
bool responses_ask_look(struct responses_ask *a, struct str body);

/* It is to be answered at once, and runs on. */
bool responses_ask_is_background(const struct responses_ask *a);
/* It wants the response as one body. */
bool responses_ask_is_whole(const struct responses_ask *a);

/* Finds what it goes on from and stores its input: ready() comes then, maybe before this returns.
 * If it cannot be, it is answered and the exchange released. */
void responses_prepare(struct responses_ask *a, void (*ready)(struct responses_ask *a));

/* The generation that is to be started for it. */
void responses_order(struct responses_ask *a, struct generation_order *o);

/* The upstream is being asked: who wants it in the background is answered. */
void responses_on_asked(struct responses_ask *a);

/* It is over with it. dropped: its generation came to nothing that anybody could ask for. NULL is
 * fine. */
void responses_ask_end(struct responses_ask *a, bool dropped);

/* ---- responses_http.c: by id ---- */

/* Is there something behind an id for this method? what.p == NULL: the response itself. */
bool responses_has_member(enum method m, struct str what);

/* PATH/ID, PATH/ID/what, of a route that speaks this dialect. False: it is none of its paths. The
 * body has been read. */
bool responses_member(struct gateway_route *r, struct exchange *x, struct str id, struct str what);

/* Answers with the response as it is. */
void responses_retrieve(struct gateway_route *r, struct exchange *x, struct str request_id);

#endif
