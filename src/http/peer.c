// SPDX-License-Identifier: Apache-2.0
#include "http/peer.h"
#include "base/mem.h"
#include "http/http.h"
#include "http/account.h"
#include "net/loop.h"

#include <stdlib.h>
#include <unistd.h>

#define LINGER_MS 1000

/* Ends a peer that takes nothing for too long. */
struct peer_stall {
    struct timer timer;
    struct peer *peer;
};

void peer_end_stall(struct peer *p)
{
    if (p->stall == NULL)
        return;
    timer_stop(&p->stall->timer);
    free(p->stall);
    p->stall = NULL;
}

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
    peer_end_stall(p);
    conn_close(&p->conn);
}

static const struct conn_ops lingering;

void peer_closed(struct conn *c)
{
    struct peer *p = peer_of(c);
    struct http *http = p->http;
    if (c->ops != &lingering) /* else we have ended it */
        hangups_note(&http->hangups, p, sched_awake_ms(&http->loop->sched));
    if (p->speaks != NULL)
        p->speaks->free(p->session);
    else
        free(p->session);
    peer_queued(p, 0);
    account_disconnect(p->account, p->over_limit);
    http->n_surplus -= p->surplus;
    list_remove(&p->link);
    slab_free(&http->peers, p);
    http->n_connections--;
    if (http->draining && http->n_connections == 0 && http->idle != NULL)
        http->idle(http);
}

void peer_queued(struct peer *p, size_t bytes)
{
    unsent_queued(&p->http->unsent, &p->share, bytes);
}

static void peer_on_stall_timeout(struct timer *t)
{
    close_now(container_of(t, struct peer_stall, timer)->peer);
}

void peer_cut(struct unsent_share **share)
{
    close_now(container_of(share, struct peer, share));
}

void peer_stalled(struct conn *c)
{
    struct peer *p = peer_of(c);
    peer_queued(p, conn_pending(c));
    if (p->stall == NULL) {
        p->stall = mem_zalloc(sizeof *p->stall);
        p->stall->peer = p;
        timer_init(&p->stall->timer, peer_on_stall_timeout);
    }
    sched_start(&p->http->loop->sched, &p->stall->timer, p->http->limits.write_timeout_ms);
}

void peer_failed(struct conn *c)
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
    .failed = peer_failed,
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
    p->conn.ops = &lingering;
    peer_end_stall(p);
    timer_stop(&p->timer);
    timer_init(&p->timer, peer_on_end_timeout);
    sched_start(&p->http->loop->sched, &p->timer, LINGER_MS);
    conn_want_read(&p->conn, true);
}

void peer_drain(struct link *l)
{
    struct peer *p = list_item(l, struct peer, link);
    if (p->conn.ops == &lingering)
        return;
    if (p->speaks != NULL)
        p->speaks->drain(p);
    else if (p->session == NULL && p->http->closing) /* else its first request may be on its way */
        peer_close(p);
}

void peer_end(struct link *l)
{
    close_now(list_item(l, struct peer, link));
}

/* ---- the beginning ---- */

struct peer *peer_new(struct http *http, int fd, const struct conn_ops *ops,
                      void (*on_timeout)(struct timer *t))
{
    struct peer *p = slab_zalloc(&http->peers, sizeof *p);
    if (conn_init(&p->conn, http->loop, fd, ops) != 0) {
        close(fd);
        slab_free(&http->peers, p);
        return NULL;
    }
    p->http = http;
    timer_init(&p->timer, on_timeout);
    list_push(&http->connections, &p->link);
    http->n_connections++;
    return p;
}

void peer_speaks(struct peer *p, const struct protocol *protocol, void *session,
                 const struct conn_ops *ops, void (*on_timeout)(struct timer *t))
{
    if (p->speaks == NULL)
        free(p->session);
    p->speaks = protocol;
    p->session = session;
    p->conn.ops = ops;
    timer_stop(&p->timer);
    timer_init(&p->timer, on_timeout);
}
