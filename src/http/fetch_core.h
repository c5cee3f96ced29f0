// SPDX-License-Identifier: Apache-2.0
/* fetch_core.h -- one request on its way, as the parts of fetch know it. For http/fetch*.c only. */
#ifndef HTTP_FETCH_CORE_H
#define HTTP_FETCH_CORE_H

#include "base/list.h"
#include "base/must.h"
#include "base/sched.h"
#include "http/curl_loop.h"
#include "http/fetch.h"
#include "http/fetch_sockets.h"

#include <curl/curl.h>

struct fetcher {
    struct curl_loop curl;
    struct fetch_sockets sockets;
    struct loop *loop;
    struct link todo; /* of struct fetch_transfer */
    size_t in_flight;
    char *ca_file;
    const struct addr_own *own;                            /* NULL: nothing */
    void (*refused)(void *ctx, const struct fetch *fetch); /* NULL: nobody is told */
    void *refused_ctx;
    bool busy;    /* in fetch_drive() */
    bool closing; /* freed while busy */
};

#define FETCH_OPENED 4 /* libcurl tries two addresses at a time */

/* Outlives its struct fetch when that is cancelled, until the fetcher attends to it. */
struct fetch_transfer {
    struct link link; /* in the fetcher's list of things to do, or in no list */
    struct fetcher *owner;
    struct fetch *fetch; /* NULL: cancelled, every callback gives up */
    struct addr_policy policy;
    CURL *easy; /* NULL: not begun */
    struct curl_slist *headers;
    struct buf answer;
    size_t sent;              /* of the request's body */
    size_t received;          /* of the answer's body */
    size_t head;              /* bytes of status lines and headers so far */
    struct timer silence;     /* with a silent peer */
    uint64_t last_active_ms;  /* when the peer last took or gave something */
    uint64_t doubted_ms;      /* the last last_active_ms that seemed too long ago */
    bool follow;              /* redirects are libcurl's to follow */
    int opened[FETCH_OPENED]; /* sockets of its own, the newest of them; 0: none */
    unsigned n_opened;        /* all there were */
    bool plain;               /* without TLS */
    bool stale;               /* the kept connection is no good: once more, on a new one */
    bool asked;               /* connected, and the request is on its way */
    bool headed;              /* the final answer's head is complete */
    bool paused;              /* on_data holds the answer up */
    bool starved;             /* on_body has nothing to send */
    bool go_data, go_body;    /* ... and that has changed */
    bool over;                /* libcurl is through with it */
    bool ended;               /* by us: libcurl is not */
    enum fetch_cause cause;   /* why we ended it, or will */
    char why[128];            /* in words */
    char curl_why[CURL_ERROR_SIZE];
};

/* Fails for lack of memory or a libcurl older than the one we were built for. Going on without,
 * say, the check of addresses would be worse than not going on. */
#define FETCH_SET(transfer, option, value)                                                         \
    must(curl_easy_setopt((transfer)->easy, option, value) == CURLE_OK)

/* Why it ends, or will. */
void fetch_blame(struct fetch_transfer *transfer, enum fetch_cause cause, const char *why);

/* ---- fetch_peer.c ---- */

/* May the request go to this peer, on this connection? False: the cause says why, or the connection
 * is stale. */
bool fetch_peer_will_do(struct fetch_transfer *transfer, const struct fetch_ends *ends);

/* What libcurl calls for each socket. */
curl_socket_t fetch_peer_on_open(void *transfer, curlsocktype purpose, struct curl_sockaddr *a);
int fetch_peer_on_close(void *fetcher, curl_socket_t fd);

/* ---- fetch_request.c ---- */

/* Tells transfer->easy what to ask and of whom, all but the callbacks. NULL: done, otherwise what
 * is wrong with the request. ca_file as in fetcher_trust. */
const char *fetch_set_request(struct fetch_transfer *transfer, const char *ca_file);

/* ---- fetch_cause.c ---- */

/* What libcurl's verdict (not CURLE_OK) on this transfer comes from. */
enum fetch_cause fetch_cause_of(const struct fetch_transfer *transfer, CURLcode code);

int fetch_cause_err(enum fetch_cause cause);

#endif
