// SPDX-License-Identifier: Apache-2.0
/* gateway_source.h -- where the answer of a generation comes from: an upstream that is fetched
 * (gateway_upstream.c), or something that this server asks in another way.
 *
 * A source belongs to its generation. It is opened with the request in hand, started once the
 * stream is durable, and freed when the generation wants no more of it. It answers with head() and
 * then either events or data, never both, and end(); nothing is called before start() or after
 * free(), and nothing from within these two and resume(). In end(), and in a head() without events,
 * the source may be freed: its callers do nothing with it then any more. Loop thread only. */
#ifndef FEATURE_GATEWAY_GATEWAY_SOURCE_H
#define FEATURE_GATEWAY_GATEWAY_SOURCE_H

#include "base/str.h"
#include "feature/gateway/route_config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct exchange;
struct gateway_route;
struct generation_source;
struct header;
struct request;

/* How an answer begins; lent for the call. */
struct source_head {
    bool events; /* events come, which are recorded; otherwise all is passed on as it is */
    enum route_dialect dialect;   /* of events, if the head tells */
    struct str media_type;        /* of events that are lines */
    int status;                   /* for !events */
    int64_t length;               /* of the body, for !events; -1: nobody knows */
    const struct header *headers; /* for who asked; those of events say nothing of the body */
    size_t n_headers;
};

/* What the generation takes; the first argument is source_order.ctx. */
struct source_events {
    void (*head)(void *ctx, const struct source_head *head); /* once */
    /* As recorder_event answers: 1, 0 for no more before resume(), or an error. */
    int (*event)(void *ctx, struct str type, struct str data);
    bool (*data)(void *ctx, struct str data); /* false: not taken; again after resume() */
    /* Once. err != 0: it failed, also without a head; the message may be shown to users. */
    void (*end)(void *ctx, int err, struct str message);
};

/* A body that comes piece by piece; see on_body of http/fetch.h. */
struct source_upload {
    int64_t length;                                    /* -1: nobody knows */
    size_t (*read)(void *ctx, char *out, size_t room); /* 0: its end; SIZE_MAX: wait for feed() */
};

/* What is asked for; lent for the call, but for ctx. */
struct source_order {
    struct gateway_route *route;
    const struct request *request;
    bool known; /* the caller is one of ours, by its Authorization: that was meant for us */
    bool plain; /* the answer is to come uncompressed, for it is kept */
    struct str body, request_id;
    enum route_dialect dialect;         /* as far as it is known */
    const struct source_upload *upload; /* instead of body; NULL: that is all */
    bool passes; /* whatever comes is passed on, events too, as the client has asked for it */
    const struct source_events *on;
    void *ctx;
};

struct source_ops {
    void (*start)(struct generation_source *s);
    void (*resume)(struct generation_source *s); /* there is room again */
    void (*free)(struct generation_source *s);   /* cut off, if it has not ended */
    void (*feed)(struct generation_source *s);   /* there is more; NULL: it takes no upload */
};

/* The first member of each kind of source. */
struct generation_source {
    const struct source_ops *ops;
};

/* How the sources of a route are made. */
struct source_kind {
    struct generation_source *(*open)(void *ctx, const struct source_order *o);
    void *ctx;
    /* Whether who sends this body wants the snapshot of the whole answer when it is complete,
     * instead of its events. NULL: nobody does. */
    bool (*whole)(struct str body);
};

/* ---- gateway_upstream.c: the route's upstream. ctx: struct fetcher ---- */

struct generation_source *gateway_upstream_open(void *ctx, const struct source_order *o);

#endif
