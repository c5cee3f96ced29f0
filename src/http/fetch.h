// SPDX-License-Identifier: Apache-2.0
/* fetch.h -- outgoing HTTP requests: libcurl's multi interface on our loop.
 *
 * Loop thread only. A fetch completes exactly once, through done(), and never before fetch_start
 * has returned. Every function here may be called from every callback, done() included.
 *
 * TLS certificates are verified. The address of every connection is checked when it is made, after
 * name resolution and after each redirect, and again when a kept connection is used: private,
 * loopback, link-local and other special ranges, and our own listeners, are refused with
 * ERR_FORBIDDEN_ADDR unless the policy allows them. Nothing is taken from the environment (no
 * proxy, no .netrc), no cookies are kept, and compressed bodies are left as they came.
 *
 * A connection carries one request at a time, over HTTP/2 too, and one whose answer was not read to
 * its end is not used again, nor is one on which something has arrived before the next request
 * (over TLS nobody looks). A request sent on a kept connection that turns out to be dead is sent
 * once more on a new one, whatever its method, provided that nothing was heard of it. */
#ifndef HTTP_FETCH_H
#define HTTP_FETCH_H

#include "base/buf.h"
#include "base/str.h"
#include "http/message.h"
#include "net/addr.h"

#include <stdbool.h>
#include <sys/types.h>

struct fetch;
struct fetcher;
struct loop;

struct fetcher *fetcher_new(struct loop *loop);

/* None may be in flight: cancel them first. The uv handles close with the loop's next round, which
 * must run before loop_deinit. */
void fetcher_free(struct fetcher *f);

/* At most so many connections are open, or others wait for them to be free. */
void fetcher_bound(struct fetcher *f, uint64_t connections);

/* What this process listens on; kept. Only a configured target may be one of them. */
void fetcher_own(struct fetcher *f, const struct addr_own *own);

/* Told of every fetch whose target was refused (FETCH_FORBIDDEN), before its done(): its error says
 * why. */
void fetcher_on_refused(struct fetcher *f, void (*refused)(void *ctx, const struct fetch *fetch),
                        void *ctx);

/* A PEM file of certificates to trust instead of the system's, for fetches started from now on;
 * NULL: the system's. */
void fetcher_trust(struct fetcher *f, const char *ca_file);

#define FETCH_HEAD_MAX           (64 * 1024) /* of an answer's status line and headers */
#define FETCH_CONNECT_TIMEOUT_MS 30000       /* where none is given */

enum fetch_version {
    FETCH_HTTP1,     /* HTTP/1.1, with TLS or without */
    FETCH_HTTP_AUTO, /* https: HTTP/2 if the server chooses it (ALPN); else HTTP/1.1 */
    FETCH_HTTP2,     /* http: HTTP/2 from the first byte on, by prior knowledge; https: as AUTO */
};

/* Why a fetch failed: name, what done() is given, and a sentence that end users may read. */
#define FETCH_CAUSES(X)                                                                            \
    X(NONE, none, 0, "the upstream answered")                                                      \
    X(MALFORMED, malformed, ERR_SYNTAX, "the request to the upstream cannot be sent as it is")     \
    X(FORBIDDEN, forbidden, ERR_FORBIDDEN_ADDR, "the upstream's address is not allowed")           \
    X(STRANGER, stranger, ERR_UPSTREAM, "the upstream's port is held by another user's process")   \
    X(BUSY, busy, ERR_BUSY, "this server can make no more connections at present; retry later")    \
    X(UNRESOLVED, unresolved, ERR_UPSTREAM, "the upstream's name is unknown")                      \
    X(REFUSED, refused, ERR_UPSTREAM, "the upstream refused the connection")                       \
    X(UNREACHABLE, unreachable, ERR_UPSTREAM, "the upstream cannot be reached")                    \
    X(TLS, tls, ERR_UPSTREAM, "no secure connection to the upstream could be made")                \
    X(CERTIFICATE, certificate, ERR_UPSTREAM, "the upstream's certificate is not to be trusted")   \
    X(CONNECT_TIMEOUT, connect_timeout, ERR_UPSTREAM_TIMEOUT,                                      \
      "the upstream did not take the connection in time")                                          \
    X(FIRST_BYTE_TIMEOUT, first_byte_timeout, ERR_UPSTREAM_TIMEOUT,                                \
      "the upstream did not begin to answer in time")                                              \
    X(IDLE_TIMEOUT, idle_timeout, ERR_UPSTREAM_TIMEOUT,                                            \
      "the upstream fell silent in the middle of its answer")                                      \
    X(TOTAL_TIMEOUT, total_timeout, ERR_UPSTREAM_TIMEOUT,                                          \
      "the upstream did not finish its answer in time")                                            \
    X(NO_ANSWER, no_answer, ERR_UPSTREAM, "the upstream hung up without an answer")                \
    X(CUT, cut, ERR_UPSTREAM, "the upstream broke off in the middle of its answer")                \
    X(NOT_HTTP, not_http, ERR_UPSTREAM, "the upstream's answer is not valid HTTP")                 \
    X(REDIRECTS, redirects, ERR_UPSTREAM, "the upstream redirects in a circle or to nowhere")      \
    X(TOO_LARGE, too_large, ERR_TOO_LARGE, "the upstream's answer is too large")

enum fetch_cause {
#define X(name, word, err, text) FETCH_##name,
    FETCH_CAUSES(X)
#undef X
};

/* Static. */
const char *fetch_cause_text(enum fetch_cause cause);
const char *fetch_cause_name(enum fetch_cause cause); /* as above, in lower case */
/* What done() was given with the cause of this text; 0: it is the text of none. */
int fetch_text_err(struct str text);

#define FETCH_BODY_WAIT SIZE_MAX

/* The caller embeds this and keeps it, and all it points to, alive until done() or fetch_cancel. In
 * done() it may free it, or start it again. */
struct fetch {
    /* in */
    struct str url;    /* http or https, as url_parse takes it */
    struct str method; /* "POST" */
    const struct header *headers;
    size_t n_headers;
    struct str body; /* n > 0: sent with any method but GET and HEAD */
    /* If given, the request's body comes from here piece by piece, with any method but HEAD. Called
     * whenever more of it can be sent: puts up to `room` bytes into `out` and says how many; 0 is
     * its end. FETCH_BODY_WAIT: there is nothing yet, and it is called again after
     * fetch_resume_body. Such a body cannot be sent twice, so it has a connection of its own and no
     * redirects. */
    size_t (*on_body)(struct fetch *f, char *out, size_t room);
    int64_t body_length; /* with on_body: exactly so much comes; -1: nobody knows, it is chunked */
    struct str about;    /* for whoever is told of refusals: whose it is; may be empty */
    struct addr_policy policy;
    /* The process at the other end must run on this machine, as peer_uid. Looked at on each
     * connection, new or kept, before anything of the request is sent; else FETCH_STRANGER. */
    bool check_peer;
    uid_t peer_uid;
    enum fetch_version version;
    uint32_t connect_timeout_ms; /* name, TCP and TLS together; 0: as above */
    /* From the request's last byte, or the last that the peer took, to the answer's head; 0: no
     * limit. The time that on_body makes it wait does not count. */
    uint32_t first_byte_timeout_ms;
    /* Without a byte of the answer's body; 0: no limit. The time that on_data holds the answer up
     * does not count. */
    uint32_t idle_timeout_ms;
    uint32_t total_timeout_ms; /* 0: no limit */
    /* 0, or any method but GET, HEAD and POST: a redirect is the answer. More redirects than these:
     * FETCH_REDIRECTS. On the way to another host Authorization and Cookie are left out, no
     * others. */
    uint32_t max_redirects;
    size_t max_answer; /* a larger body: FETCH_TOO_LARGE; 0 with on_data: no limit */
    /* If given, the answer's body goes here as it arrives and is not collected; false pauses until
     * fetch_resume (the same bytes come again, perhaps with more behind them). While paused the
     * peer is held back: what it goes on sending stays in the sockets' buffers. */
    bool (*on_data)(struct fetch *f, struct str data);
    /* If given, called once, when the final answer's status and headers are there and before any of
     * its body. */
    void (*on_head)(struct fetch *f);
    /* If given, called for each field behind the body of the final answer; lent for the call. */
    void (*on_trailer)(struct fetch *f, struct header trailer);
    /* 0: an HTTP answer came, whatever its status, and all of it. Otherwise cause says what went
     * wrong and err is its code. An answer that ended before its length, its last chunk or the end
     * of its stream is FETCH_CUT; see end_marked for what has no such end. */
    void (*done)(struct fetch *f, int err);
    /* out, from on_head on; all but numbers, cause and error are lent until done() returns */
    int status;
    int http_version; /* 10, 11, 20 */
    /* The answer says where it ends, so that err == 0 means that all of it came. False for an
     * HTTP/1 answer without length and chunks, which ends with its connection, and for an HTTP/2
     * answer without length where libcurl (before 8.0) takes a reset of the stream without an error
     * code, as some proxies send it for a broken answer, for its end. */
    bool end_marked;
    struct str content_type; /* p == NULL: none */
    struct buf answer;       /* in done() only */
    enum fetch_cause cause;  /* in done() only */
    char error[128];         /* for operators, when err != 0: with names, addresses and numbers */
    struct fetch_transfer *transfer; /* private; NULL: not in flight, so it starts as NULL */
};

/* Sets the out fields. */
void fetch_start(struct fetcher *f, struct fetch *fetch);

/* From on_data too: what it is about to refuse then comes again soon. Not paused: does nothing. */
void fetch_resume(struct fetch *fetch);

/* There is more of the body. From on_body too, as above. */
void fetch_resume_body(struct fetch *fetch);

/* done() is not called, nor anything else of this fetch. Not in flight (transfer == NULL): does
 * nothing.
 */
void fetch_cancel(struct fetch *fetch);

/* The first header of that name (any case) of the final answer; p == NULL: none. From on_head on
 * while in flight, so no longer in done(); lent until the next callback of this fetch. */
struct str fetch_header(const struct fetch *fetch, const char *name);

/* Each header of the final answer, in no promised order: *at is NULL for the first and is left
 * alone in between. False: there are no more. When and for how long: as fetch_header. */
bool fetch_next_header(const struct fetch *fetch, void **at, struct header *out);

#endif
