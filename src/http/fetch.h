// SPDX-License-Identifier: Apache-2.0
/* fetch.h -- outgoing HTTP requests: libcurl's multi interface on our loop.
 *
 * Loop thread only. A fetch completes exactly once, through done(), and never before fetch_start
 * has returned. TLS certificates are verified. The address of every connection is checked when it
 * is made, after name resolution and after each redirect: private, loopback, link-local and other
 * special ranges are refused with ERR_FORBIDDEN_ADDR unless the policy allows them. */
#ifndef HTTP_FETCH_H
#define HTTP_FETCH_H

#include "base/buf.h"
#include "base/str.h"
#include "http/message.h"

#include <stdbool.h>

struct fetcher;
struct loop;

struct fetch_policy {
    bool allow_loopback; /* 127.0.0.0/8, ::1 */
    bool allow_private;  /* RFC 1918, fc00::/7, link-local and shared (100.64/10) ranges */
};

struct fetcher *fetcher_new(struct loop *loop);
void fetcher_free(struct fetcher *f); /* none may be in flight; cancel them first */

/* The caller embeds this and keeps it, and all it points to, alive until done() or fetch_cancel. */
struct fetch {
    /* in */
    struct str url;
    struct str method; /* "POST" */
    const struct header *headers;
    size_t n_headers;
    struct str body;
    struct fetch_policy policy;
    uint32_t connect_timeout_ms, total_timeout_ms; /* total 0: no limit */
    uint32_t max_redirects;                        /* 0: a redirect is the answer */
    size_t max_answer;                             /* a larger whole answer: ERR_TOO_LARGE */
    /* If given, the answer's body goes here as it arrives and is not collected; false pauses until
     * fetch_resume (the same bytes come again). */
    bool (*on_data)(struct fetch *f, struct str data);
    /* If given, called once, when the final answer's status and headers are there. */
    void (*on_head)(struct fetch *f);
    void (*done)(struct fetch *f, int err); /* 0: an HTTP answer came, whatever its status */
    /* out, until done() returns */
    int status;
    struct str content_type;
    struct buf answer;     /* freed after done() */
    char error[128];       /* for people, when err != 0 */
    struct fetch_job *job; /* private */
};

void fetch_start(struct fetcher *f, struct fetch *fetch);
void fetch_resume(struct fetch *fetch);
void fetch_cancel(struct fetch *fetch); /* done() is not called */

#endif
