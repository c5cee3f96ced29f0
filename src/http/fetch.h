// SPDX-License-Identifier: Apache-2.0
/* fetch.h -- outgoing HTTP requests: libcurl's multi interface on our loop.
 *
 * Loop thread only. A fetch completes exactly once, through done(), and never before fetch_start
 * has returned. Every function here may be called from every callback, done() included.
 *
 * TLS certificates are verified. The address of every connection is checked when it is made, after
 * name resolution and after each redirect, and again when a kept connection is used: private,
 * loopback, link-local and other special ranges are refused with ERR_FORBIDDEN_ADDR unless the
 * policy allows them. HTTP/1.1 and nothing else is spoken, with TLS or without. Nothing is taken
 * from the environment (no proxy, no .netrc), no cookies are kept, and compressed bodies are left
 * as they came. */
#ifndef HTTP_FETCH_H
#define HTTP_FETCH_H

#include "base/buf.h"
#include "base/str.h"
#include "http/message.h"
#include "net/addr.h"

#include <stdbool.h>

struct fetcher;
struct loop;

struct fetcher *fetcher_new(struct loop *loop);

/* None may be in flight: cancel them first. The uv handles close with the loop's next round, which
 * must run before loop_deinit. */
void fetcher_free(struct fetcher *f);

/* A PEM file of certificates to trust instead of the system's, for fetches started from now on;
 * NULL: the system's. */
void fetcher_trust(struct fetcher *f, const char *ca_file);

#define FETCH_HEAD_MAX           (64 * 1024) /* of an answer's status line and headers */
#define FETCH_CONNECT_TIMEOUT_MS 30000       /* where none is given */

/* The caller embeds this and keeps it, and all it points to, alive until done() or fetch_cancel. In
 * done() it may free it, or start it again. */
struct fetch {
    /* in */
    struct str url;    /* http or https, as url_parse takes it */
    struct str method; /* "POST" */
    const struct header *headers;
    size_t n_headers;
    struct str body; /* n > 0: sent with any method but GET and HEAD */
    struct addr_policy policy;
    uint32_t connect_timeout_ms; /* name, TCP and TLS together; 0: as above */
    uint32_t total_timeout_ms;   /* 0: no limit */
    /* 0, or any method but GET, HEAD and POST: a redirect is the answer. More redirects than these:
     * ERR_IO. On the way to another host Authorization and Cookie are left out, no others. */
    uint32_t max_redirects;
    size_t max_answer; /* a larger body: ERR_TOO_LARGE; 0 with on_data: no limit */
    /* If given, the answer's body goes here as it arrives and is not collected; false pauses until
     * fetch_resume (the same bytes come again, perhaps with more behind them). */
    bool (*on_data)(struct fetch *f, struct str data);
    /* If given, called once, when the final answer's status and headers are there. */
    void (*on_head)(struct fetch *f);
    /* 0: an HTTP answer came, whatever its status. Otherwise
     *   ERR_SYNTAX          the URL, method or a header cannot be sent
     *   ERR_FORBIDDEN_ADDR  the policy does not allow the host's address
     *   ERR_REFUSED         no connection: unknown name, nobody there, TLS not to be trusted
     *   ERR_TIMEOUT         not connected, or not finished, in time
     *   ERR_TOO_LARGE       the answer's head or body exceeds its limit
     *   ERR_IO              the connection failed on the way, what came is not HTTP, or a redirect
     *                       leads nowhere */
    void (*done)(struct fetch *f, int err);
    /* out, from on_head on; all but status and error are lent until done() returns */
    int status;
    struct str content_type; /* p == NULL: none */
    struct buf answer;       /* in done() only */
    char error[128];         /* for people, when err != 0 */
    struct fetch_job *job;   /* private; NULL: not in flight, so it starts as NULL */
};

/* Sets the out fields. */
void fetch_start(struct fetcher *f, struct fetch *fetch);

/* From on_data too: what it is about to refuse then comes again soon. Not paused: does nothing. */
void fetch_resume(struct fetch *fetch);

/* done() is not called, nor anything else of this fetch. Not in flight (job == NULL): does nothing.
 */
void fetch_cancel(struct fetch *fetch);

/* The first header of that name (any case) of the final answer; p == NULL: none. From on_head on
 * while in flight, so no longer in done(); lent until the next callback of this fetch. */
struct str fetch_header(const struct fetch *fetch, const char *name);

#endif
