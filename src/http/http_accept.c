// SPDX-License-Identifier: Apache-2.0
/* http_accept.c -- how connections begin, which version of HTTP they speak, and how all of them
 * end. */
#include "base/must.h"
#include "http/front.h"
#include "http/h1.h"
#include "http/h2.h"
#include "http/http.h"
#include "http/account.h"
#include "http/front.h"
#include "http/limits.h"
#include "http/peer.h"
#include "net/addr.h"
#include "net/loop.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_READ    (16 * 1024)
#define DRAIN_SLICE   64   /* connections that are asked to finish at once */
#define REFUSED_SPARE 64   /* connections over the limit that are told so; more are just closed */
#define SURPLUS_MS    1000 /* what these have to say what they want */
#define TRIM_MS       1000

/* Of a connection, while they do not say which protocol it is. */
struct first_bytes {
    uint8_t n;
    char bytes[PEER_PREFACE];
};

/* What many requests at once have used goes back to the system when there are fewer. */
static void http_on_trim(struct timer *t)
{
    struct http *http = container_of(t, struct http, trim);
    arena_cache_trim(&http->arenas);
    if (http->n_connections > 0 || http->arenas.n > 0)
        sched_start(&http->loop->sched, t, TRIM_MS);
}

void http_init(struct http *http, struct loop *loop, const struct trace *trace,
               const struct http_limits *limits)
{
    *http = (struct http){.loop = loop, .trace = trace, .limits = *limits};
    list_init(&http->connections);
    list_init(&http->undrained);
    list_init(&http->active);
    task_init(&http->drain, http_drain_some);
    timer_init(&http->trim, http_on_trim);
    unsent_init(&http->unsent, loop != NULL ? &loop->sched : NULL);
    http->unsent.cut = peer_cut;
}

void http_deinit(struct http *http)
{
    must(http->n_connections == 0);
    task_cancel(&http->unsent.grant);
    timer_stop(&http->unsent.look);
    timer_stop(&http->trim);
    task_cancel(&http->drain);
    front_deinit(&http->front);
    free(http->gather.items);
    free(http->routes);
    arena_cache_deinit(&http->arenas);
    slab_deinit(&http->exchanges);
    slab_deinit(&http->h1s);
    slab_deinit(&http->peers);
}

/* For a peer that has not begun. During a handshake there is no way to say anything, and one that
 * was promised HTTP/2 would not understand. */
static void accept_refuse(struct peer *p, int status, const char *why)
{
    if (conn_is_ready(&p->conn) && !str_eq(conn_protocol(&p->conn), STR("h2")))
        h1_refuse(p, status, why);
    else
        peer_close(p);
}

static void refuse_surplus(struct peer *p)
{
    accept_refuse(p, 503, "too many connections; try again in a moment");
}

/* Whether somebody who is one too many asks no more than whether we live. A probe must not fail for
 * others' sake: it is answered once, in one of the few connections beyond the limit. */
static bool is_probe(struct peer *p, struct str bytes, bool *maybe)
{
    static const struct str probes[] = {STR_INIT("GET /healthz "), STR_INIT("HEAD /healthz ")};
    *maybe = false;
    if (str_eq(conn_protocol(&p->conn), STR("h2")))
        return false;
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
        if (str_starts(bytes, probes[i]))
            return true;
        *maybe = *maybe || str_starts(probes[i], bytes);
    }
    return false;
}

/* The protocol that the handshake agreed on, or else the one that the first bytes belong to. False:
 * they might yet become the preface, or a probe. */
static bool accept_start(struct peer *p, struct str bytes)
{
    struct str preface = STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    struct str agreed = conn_protocol(&p->conn);
    bool maybe;
    if (p->surplus && !is_probe(p, bytes, &maybe)) {
        if (!maybe)
            refuse_surplus(p);
        return !maybe;
    }
    if (str_eq(agreed, STR("h2")) || (agreed.n == 0 && str_starts(bytes, preface)))
        h2_start(p, bytes);
    else if (agreed.n == 0 && str_starts(preface, bytes))
        return false;
    else
        h1_start(p, bytes);
    return true;
}

/* 0: nothing can be done with the peer for now, or any more. */
static size_t accept_read(struct peer *p, char *into, size_t n)
{
    ssize_t got = conn_read(&p->conn, into, n);
    if (got > 0)
        return (size_t)got;
    if (got != CONN_AGAIN)
        peer_close(p);
    return 0;
}

static void http_accept_on_first_bytes(struct conn *c)
{
    struct peer *p = peer_of(c);
    struct first_bytes *first = p->session;
    char *bytes = p->http->loop->scratch;
    size_t before = first != NULL ? first->n : 0;
    if (before > 0)
        memcpy(bytes, first->bytes, before);
    size_t got = accept_read(p, bytes + before, FIRST_READ - before);
    size_t n = before + got;
    if (got == 0 || accept_start(p, str_of(bytes, n)))
        return;
    if (first == NULL)
        first = p->session = mem_alloc(sizeof *first);
    memcpy(first->bytes, bytes, n);
    first->n = (uint8_t)n;
}

static void http_accept_on_nothing(struct conn *c)
{
}

static const struct conn_ops unknown = {
    .readable = http_accept_on_first_bytes,
    .drained = http_accept_on_nothing,
    .stalled = http_accept_on_nothing,
    .failed = peer_failed,
    .closed = peer_closed,
};

static void http_accept_on_first_timeout(struct timer *t)
{
    struct peer *p = container_of(t, struct peer, timer);
    if (p->surplus)
        refuse_surplus(p);
    else
        accept_refuse(p, 408, "the request head took too long");
}

/* What a new connection counts for. False: it is not even told that it is one too many. */
static bool accept_count(struct http *http, int fd, struct peer *as)
{
    enum limits_entry entry = LIMITS_IN;
    uint8_t address[LIMITS_ADDRESS];
    if (http->per_client != NULL && addr_of_peer(fd, address) &&
        !forwarded_trusts(&http->front.proxies, address))
        entry = limits_connect(http->per_client, address, &as->account);
    as->over_limit = entry == LIMITS_OVER;
    as->surplus =
        as->over_limit || http->n_connections - http->n_surplus >= http->limits.connections;
    if (entry != LIMITS_CLOSED && (!as->surplus || http->n_surplus < REFUSED_SPARE))
        return true;
    account_disconnect(as->account, entry != LIMITS_IN);
    return false;
}

static void http_accept_by(struct http *http, int fd, struct tls *tls, bool admin)
{
    struct peer as = {0};
    /* At once: a connection gives its descriptor back later, and by then there would be many. */
    if (!accept_count(http, fd, &as)) {
        close(fd);
        return;
    }
    struct peer *p = peer_new(http, fd, &unknown, http_accept_on_first_timeout);
    if (p == NULL) {
        account_disconnect(as.account, as.over_limit);
        return;
    }
    p->account = as.account;
    p->over_limit = as.over_limit;
    p->surplus = as.surplus;
    http->n_surplus += p->surplus;
    p->admin = admin;
    if (!timer_running(&http->trim))
        sched_start(&http->loop->sched, &http->trim, TRIM_MS);
    if (tls != NULL && conn_start_tls(&p->conn, tls) != 0) {
        peer_close(p);
        return;
    }
    sched_start(&http->loop->sched, &p->timer,
                p->surplus ? SURPLUS_MS : http->limits.head_timeout_ms);
    conn_want_read(&p->conn, true);
}

void http_accept(struct http *http, int fd, struct tls *tls)
{
    http_accept_by(http, fd, tls, false);
}

void http_accept_admin(struct http *http, int fd, struct tls *tls)
{
    http_accept_by(http, fd, tls, true);
}

/* ---- the end ---- */

void http_drain(struct http *http)
{
    http->closing = true;
    http_drain_begin(http);
}

void http_drain_begin(struct http *http)
{
    http->draining = true;
    list_splice(&http->undrained, &http->connections);
    http_drain_some(&http->drain);
}

void http_drain_some(struct task *t)
{
    struct http *http = container_of(t, struct http, drain);
    for (int n = 0; n < DRAIN_SLICE && !list_empty(&http->undrained); n++) {
        struct link *l = http->undrained.next;
        list_remove(l);
        list_push(&http->connections, l);
        if (http->ending)
            peer_end(l);
        else
            peer_drain(l);
    }
    if (!list_empty(&http->undrained))
        sched_post(&http->loop->sched, t);
    else
        http->ending = false;
}

void http_close_all(struct http *http)
{
    http->ending = true;
    list_splice(&http->undrained, &http->connections);
    http_drain_some(&http->drain);
}
