// SPDX-License-Identifier: Apache-2.0
/* http.h -- the HTTP side of a server: its connections, their limits, and the routes. */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include "base/arena.h"
#include "base/block.h"
#include "base/list.h"
#include "base/options.h"
#include "base/sched.h"
#include "base/slab.h"
#include "base/str.h"
#include "http/front_state.h"
#include "http/hangups.h"
#include "http/message.h"
#include "http/surface.h"
#include "http/unsent.h"

#include <stdint.h>

struct exchange;
struct loop;
struct guard;
struct limits;
struct tls;
struct trace;

struct http_limits {
    uint64_t connections;    /* more: 503 */
    uint64_t streams;        /* at once on one HTTP/2 connection; 0: 100 */
    uint64_t inflight_bytes; /* request bodies in memory, all together; more: 503 */
    uint64_t head_timeout_ms, idle_timeout_ms, body_timeout_ms, write_timeout_ms;
    uint64_t body_min_bytes; /* a wanted body brings at least this much per body_timeout_ms */
};

/* What can be said of a surface's rules before any request comes. Bit i: its i-th rule. */
#define HTTP_RULES_MAX 64
struct http_rules {
    uint64_t
        of[METHOD_N]; /* those for a method; METHOD_OTHER: for some that have no word of ours */
    uint64_t tails;   /* those whose path is a `{name...}` and nothing else */
    uint64_t special; /* those that are not granted by that name, or not decided here */
};

/* The longest prefix of the path that is in the table decides. It ends with a slash, or where a
 * segment of the path does. */
struct http_route {
    struct str prefix;    /* may have parameters: path_pattern.h */
    size_t literal;       /* bytes of it that are none */
    uint64_t start, mask; /* its first bytes as a number, and which of them count */
    const struct surface *surface;
    const char *claimant; /* http->claimant, when it was added */
    void (*handle)(void *ctx, struct exchange *x);
    void *ctx;
    bool configured;                     /* the path is a setting, and no part of the program */
    bool plain;                          /* Authorization is ours, whatever the request is */
    enum credential_owner authorization; /* whose the header of that name is */
    struct http_rules rules;             /* see rules_prepare */
};

/* A path that two claim. */
struct http_clash {
    struct str path; /* n == 0: there is none */
    const char *first, *second;
};

/* What one pull of a response body gave, before it is framed. One is made at a time. */
struct http_gather {
    struct exchange *from; /* NULL: no pull is under way */
    struct slice *items;
    size_t n, cap, bytes;
};

/* What a server is called (see origin.h). Zero-initialised: addresses and `localhost` alone. */
struct http_names {
    struct str public_host;          /* of public-url; n == 0: none */
    const struct option_list *hosts; /* further names; NULL: none */
    bool any;                        /* all names will do, and the pages of all sites */
};

#define HTTP_CLASSES 5 /* of statuses: 1xx to 5xx */

struct http {
    struct loop *loop;
    const struct trace *trace;
    struct http_limits limits;
    struct http_route *routes;
    size_t n_routes;
    const char *claimant;      /* who adds routes from now on, for people: "the Lab" */
    struct http_clash clash;   /* the first that was found */
    struct guard *guard;       /* NULL: everybody may do everything */
    struct audit *audit;       /* NULL: none */
    struct limits *per_client; /* NULL: everybody may have all there is */
    bool rights_end;           /* somebody looks after `active`: answers.h */
    struct link active;        /* principals with exchanges under way: principal->active */
    struct http_names names;   /* set before the first request */
    struct front front;
    struct link connections; /* of struct peer */
    struct link undrained;   /* of those that are to be asked to finish, or closed */
    struct task drain;       /* the next of these */
    uint64_t n_connections;
    uint64_t n_surplus; /* of these, those that are one too many */
    struct hangups hangups;
    uint64_t inflight_bytes;
    uint64_t responses[HTTP_CLASSES]; /* begun so far */
    struct http_gather gather;
    struct unsent unsent;      /* its budget is set before the first request */
    struct arena_cache arenas; /* of exchanges */
    struct timer trim;         /* of those; runs while there are connections */
    struct slab peers, h1s, exchanges;
    bool ending; /* `undrained` are closed */
    bool draining;
    bool closing;                    /* and nobody is waited for any more */
    void (*idle)(struct http *http); /* draining, and the last connection is gone */
    int64_t date_s;                  /* of the cached Date header */
    char date[32];
};

void http_init(struct http *http, struct loop *loop, const struct trace *trace,
               const struct http_limits *limits);

void http_deinit(struct http *http);

/* Serves a surface at its path, and what is below that. Two claims of one path are a clash, and so
 * is a path of the settings below somebody else's, or above it unless the surface is wide; whoever
 * starts the server looks at http->clash. The program's own paths may lie below one another. */
void http_mount(struct http *http, const struct surface *surface,
                void (*handle)(void *ctx, struct exchange *x), void *ctx);
/* The same elsewhere. */
struct http_place {
    struct str path;
    bool configured; /* by the settings */
    enum credential_owner authorization;
};
void http_mount_at(struct http *http, const struct surface *surface, struct http_place place,
                   void (*handle)(void *ctx, struct exchange *x), void *ctx);

/* For whoever begins a response. */
static inline void http_count_response(struct http *http, int status)
{
    if (status >= 100 && status < 100 * (HTTP_CLASSES + 1))
        http->responses[status / 100 - 1]++;
}

/* Who serves a path: the longest one that it begins with; NULL: nobody. */
const struct http_route *http_route_of(const struct http *http, struct str path);

/* How many bytes of a path are the route's own; 0: it is not below it. */
size_t http_route_covers(const struct http_route *r, struct str path);

/* For transports: gives a request with its head complete to its handler (or answers 404), if the
 * front and the guard let it in. */
void http_dispatch(struct http *http, struct exchange *x);

/* For the guard: to its handler at last. */
void http_hand_over(struct exchange *x);

/* What http_accept speaks, as TLS offers it: best first, each with its length before it. */
#define HTTP_ALPN "\x02h2\x08http/1.1"

/* Takes over a connected socket; speaks HTTP on it, in the version that the peer begins with. tls:
 * NULL, or what to secure it with. */
void http_accept(struct http *http, int fd, struct tls *tls);
/* The same at the listener of admin-listen. */
void http_accept_admin(struct http *http, int fd, struct tls *tls);

/* No new requests; those under way are asked to finish (exchange_ops.drain). http->idle is called,
 * never from within this call, when no connection is left. */
void http_drain(struct http *http);

/* Some of them, and then others have their turn. */
void http_drain_some(struct task *t);

/* The same as long as peers may come back: then what they ask for is served, live reads included,
 * or they would ask again and again. */
void http_drain_begin(struct http *http);

/* Closes every connection that there is, some at a time, too. */
void http_close_all(struct http *http);

/* The Date header's value of this second. */
struct str http_date(struct http *http);

#endif
