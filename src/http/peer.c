// SPDX-License-Identifier: Apache-2.0
#include "http/peer.h"
#include "base/mem.h"
#include "http/h1.h"
#include "http/h2.h"
#include "http/http.h"
#include "net/loop.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_READ    (16 * 1024)
#define LINGER_MS     1000
#define REFUSED_SPARE 64 /* connections over the limit that are told so; more are just closed */

static void close_now(struct peer *p)
{
    if (p->speaks != NULL)
        p->speaks->close(p);
    else
        peer_close(p);
}

void peer_close(struct peer *p)
{
    timer_stop(&p->timer);
    timer_stop(&p->stall);
    conn_close(&p->conn);
}

void peer_closed(struct conn *c)
{
    struct peer *p = peer_of(c);
    struct http *http = p->http;
    if (p->speaks != NULL)
        p->speaks->free(p->session);
    list_remove(&p->link);
    free(p);
    http->n_connections--;
    if (http->draining && http->n_connections == 0 && http->idle != NULL)
        http->idle(http);
}

void peer_stalled(struct conn *c)
{
    struct peer *p = peer_of(c);
    sched_start(&p->http->loop->sched, &p->stall, p->http->limits.write_timeout_ms);
}

static void peer_on_stall_timeout(struct timer *t)
{
    close_now(container_of(t, struct peer, stall));
}

static void peer_on_failed(struct conn *c)
{
    close_now(peer_of(c));
}

static void peer_on_nothing(struct conn *c)
{
}

/* ---- the end ---- */

static void peer_discard(struct conn *c)
{
    struct peer *p = peer_of(c);
    for (int i = 0; i < 16; i++) {
        ssize_t got = conn_read(c, p->http->loop->scratch, LOOP_SCRATCH);
        if (got == CONN_AGAIN)
            return;
        if (got <= 0) {
            close_now(p);
            return;
        }
    }
}

static const struct conn_ops lingering = {
    .readable = peer_discard,
    .drained = peer_on_nothing,
    .stalled = peer_on_nothing,
    .failed = peer_on_failed,
    .closed = peer_closed,
};

static void peer_on_end_timeout(struct timer *t)
{
    close_now(container_of(t, struct peer, timer));
}

void peer_linger(struct peer *p)
{
    conn_shutdown_write(&p->conn);
    if (p->conn.ended) {
        close_now(p);
        return;
    }
    p->lingering = true;
    p->conn.ops = &lingering;
    timer_stop(&p->stall);
    timer_stop(&p->timer);
    timer_init(&p->timer, peer_on_end_timeout);
    sched_start(&p->http->loop->sched, &p->timer, LINGER_MS);
    conn_want_read(&p->conn, true);
}

void peer_drain(struct link *l)
{
    struct peer *p = list_item(l, struct peer, link);
    if (p->lingering)
        return;
    if (p->speaks != NULL)
        p->speaks->drain(p);
    else if (p->n_first == 0 && p->http->closing) /* else its first request may be on its way */
        peer_close(p);
}

void peer_end(struct link *l)
{
    close_now(list_item(l, struct peer, link));
}

/* ---- the beginning ---- */

void peer_speaks(struct peer *p, const struct protocol *protocol, void *session,
                 const struct conn_ops *ops, void (*on_timeout)(struct timer *t))
{
    p->speaks = protocol;
    p->session = session;
    p->conn.ops = ops;
    timer_stop(&p->timer);
    timer_init(&p->timer, on_timeout);
}

/* For a peer that has not begun. During a handshake there is no way to say anything, and one that
 * was promised HTTP/2 would not understand. */
static void peer_refuse(struct peer *p, int status, const char *why)
{
    if (conn_is_ready(&p->conn) && !str_eq(conn_protocol(&p->conn), STR("h2")))
        h1_refuse(p, status, why);
    else
        peer_close(p);
}

static void refuse_surplus(struct peer *p)
{
    peer_refuse(p, 503, "too many connections; try again in a moment");
}

/* The protocol that the handshake agreed on, or else the one that the first bytes belong to. False:
 * they might yet become the preface. */
static bool peer_start(struct peer *p, struct str bytes)
{
    struct str preface = STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    struct str agreed = conn_protocol(&p->conn);
    if (str_eq(agreed, STR("h2")) || (agreed.n == 0 && str_starts(bytes, preface)))
        h2_start(p, bytes);
    else if (agreed.n == 0 && str_starts(preface, bytes))
        return false;
    else
        h1_start(p, bytes);
    return true;
}

static void peer_on_first_bytes(struct conn *c)
{
    struct peer *p = peer_of(c);
    char *bytes = p->http->loop->scratch;
    memcpy(bytes, p->first, p->n_first);
    ssize_t got = conn_read(c, bytes + p->n_first, FIRST_READ - p->n_first);
    if (got == CONN_AGAIN)
        return;
    if (got <= 0) {
        peer_close(p);
        return;
    }
    if (p->surplus) {
        refuse_surplus(p);
        return;
    }
    size_t n = p->n_first + (size_t)got;
    if (peer_start(p, str_of(bytes, n)))
        return;
    memcpy(p->first, bytes, n);
    p->n_first = (uint8_t)n;
}

static const struct conn_ops unknown = {
    .readable = peer_on_first_bytes,
    .drained = peer_on_nothing,
    .stalled = peer_on_nothing,
    .failed = peer_on_failed,
    .closed = peer_closed,
};

static void peer_on_first_timeout(struct timer *t)
{
    peer_refuse(container_of(t, struct peer, timer), 408, "the request head took too long");
}

void peer_accept(struct http *http, int fd, struct tls *tls)
{
    struct peer *p = mem_zalloc(sizeof *p);
    if (conn_init(&p->conn, http->loop, fd, &unknown) != 0) {
        close(fd);
        free(p);
        return;
    }
    p->http = http;
    timer_init(&p->timer, peer_on_first_timeout);
    timer_init(&p->stall, peer_on_stall_timeout);
    list_push(&http->connections, &p->link);
    http->n_connections++;
    if ((tls != NULL && conn_start_tls(&p->conn, tls) != 0) ||
        http->n_connections > http->limits.connections + REFUSED_SPARE) {
        peer_close(p);
    } else if (http->n_connections > http->limits.connections && tls == NULL) {
        refuse_surplus(p);
    } else {
        p->surplus = http->n_connections > http->limits.connections;
        sched_start(&http->loop->sched, &p->timer, http->limits.head_timeout_ms);
        conn_want_read(&p->conn, true);
    }
}
