// SPDX-License-Identifier: Apache-2.0
#include "net/conn.h"
#include "base/mem.h"
#include "net/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define OUTQ_FIRST  8
#define SPARES_MAX  1024
#define IOV_AT_ONCE 64

/* Sent from `first` on. */
struct outq {
    uint32_t first, n, cap;
    struct outq *next_spare;
    struct slice items[];
};

static struct outq *outq_new(struct loop *l)
{
    struct outq *q = l->spare_outqs;
    if (q != NULL) {
        l->spare_outqs = q->next_spare;
        l->n_spare_outqs--;
    } else {
        q = mem_alloc(sizeof *q + OUTQ_FIRST * sizeof *q->items);
        q->cap = OUTQ_FIRST;
    }
    q->first = q->n = 0;
    return q;
}

static void outq_free(struct loop *l, struct outq *q)
{
    if (q->cap != OUTQ_FIRST || l->n_spare_outqs == SPARES_MAX) {
        free(q);
        return;
    }
    q->next_spare = l->spare_outqs;
    l->spare_outqs = q;
    l->n_spare_outqs++;
}

void conn_drop_spares(struct loop *l)
{
    while (l->spare_outqs != NULL) {
        struct outq *q = l->spare_outqs;
        l->spare_outqs = q->next_spare;
        free(q);
    }
}

static void set_events(struct conn *c);

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct conn *c = container_of(poll, struct conn, poll);
    if (status < 0) {
        c->ops->failed(c);
        return;
    }
    if (events & UV_WRITABLE) {
        c->blocked = false;
        conn_flush_later(c); /* and then looks whether this is still wanted */
    }
    if (!(events & UV_READABLE))
        return;
    if (c->want_read)
        c->ops->readable(c);
    else
        set_events(c);
}

/* Interest in bytes is dropped only when some come that nobody wants: most often it is back before
 * that, and a system call is saved each way. */

static void set_events(struct conn *c)
{
    int events = (c->want_read && !c->ended ? UV_READABLE : 0) | (c->blocked ? UV_WRITABLE : 0);
    if (events == c->events || c->closing)
        return;
    c->events = (uint8_t)events;
    if (events == 0)
        uv_poll_stop(&c->poll);
    else
        uv_poll_start(&c->poll, events, on_poll);
}

static void drop(struct conn *c)
{
    struct outq *q = c->out;
    for (uint32_t i = q->first; i < q->n; i++)
        block_unref(q->items[i].owner);
    outq_free(c->loop, q);
    c->out = NULL;
}

/* Takes what the kernel took off the queue. */
static void advance(struct conn *c, size_t sent)
{
    struct outq *q = c->out;
    while (q->first < q->n && sent >= q->items[q->first].bytes.n) {
        sent -= q->items[q->first].bytes.n;
        block_unref(q->items[q->first].owner);
        q->first++;
    }
    if (q->first == q->n) {
        outq_free(c->loop, q);
        c->out = NULL;
    } else {
        q->items[q->first].bytes = str_skip(q->items[q->first].bytes, sent);
    }
}

static ssize_t write_some(struct conn *c)
{
    struct outq *q = c->out;
    struct iovec iov[IOV_AT_ONCE];
    int n = 0;
    for (uint32_t i = q->first; i < q->n && n < IOV_AT_ONCE; i++, n++)
        iov[n] = (struct iovec){(char *)(uintptr_t)q->items[i].bytes.p, q->items[i].bytes.n};
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)n};
    ssize_t sent;
    do
        sent = sendmsg(c->fd, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent;
}

static void flush(struct task *t)
{
    struct conn *c = container_of(t, struct conn, flush);
    while (c->out != NULL && !c->blocked) {
        ssize_t sent = write_some(c);
        if (sent >= 0) {
            advance(c, (size_t)sent);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            conn_yield(c);
            c->ops->stalled(c);
        } else {
            c->ops->failed(c);
            return;
        }
    }
    if (c->out == NULL && !c->blocked && (c->events & UV_WRITABLE))
        set_events(c);
    if (c->out == NULL)
        c->ops->drained(c);
}

int conn_init(struct conn *c, struct loop *loop, int fd, const struct conn_ops *ops)
{
    *c = (struct conn){.ops = ops, .loop = loop, .fd = fd};
    task_init(&c->flush, flush);
    return uv_poll_init_socket(&loop->uv, &c->poll, fd);
}

static void on_closed(uv_handle_t *h)
{
    struct conn *c = container_of((uv_poll_t *)h, struct conn, poll);
    close(c->fd);
    c->ops->closed(c);
}

void conn_close(struct conn *c)
{
    if (c->closing)
        return;
    c->closing = true;
    task_cancel(&c->flush);
    if (c->out != NULL)
        drop(c);
    uv_close((uv_handle_t *)&c->poll, on_closed);
}

void conn_want_read(struct conn *c, bool want)
{
    c->want_read = want;
    if (want)
        set_events(c);
}

ssize_t conn_read(struct conn *c, char *into, size_t n)
{
    ssize_t got;
    do
        got = recv(c->fd, into, n, 0);
    while (got < 0 && errno == EINTR);
    if (got == 0) {
        c->ended = true;
        set_events(c);
    }
    if (got >= 0)
        return got;
    return errno == EAGAIN || errno == EWOULDBLOCK ? CONN_AGAIN : CONN_GONE;
}

/* A full queue: where half of it has been sent there is room, and a queue that never runs empty
 * stays as small as what is in it. */
__attribute__((noinline)) static struct outq *make_room(struct outq *q)
{
    if (q->first < q->cap / 2) {
        q->cap *= 2;
        return mem_realloc(q, sizeof *q + q->cap * sizeof *q->items);
    }
    q->n -= q->first;
    memmove(q->items, q->items + q->first, q->n * sizeof *q->items);
    q->first = 0;
    return q;
}

static void push(struct conn *c, struct slice s)
{
    struct outq *q = c->out;
    if (q == NULL)
        q = c->out = outq_new(c->loop);
    else if (q->n == q->cap)
        q = c->out = make_room(q);
    q->items[q->n++] = s;
}

void conn_put(struct conn *c, struct slice s)
{
    block_ref(s.owner);
    conn_give(c, s);
}

void conn_put_take(struct conn *c, struct block *b)
{
    conn_give(c, slice_of(b, 0, b->n));
}

void conn_give(struct conn *c, struct slice s)
{
    if (!c->closing && s.bytes.n > 0) {
        push(c, s);
        conn_flush_later(c);
    } else {
        block_unref(s.owner);
    }
}

void conn_flush_later(struct conn *c)
{
    if (!c->closing && !c->blocked)
        sched_post_flush(&c->loop->sched, &c->flush);
}

void conn_yield(struct conn *c)
{
    c->blocked = true;
    set_events(c);
}

size_t conn_pending(const struct conn *c)
{
    size_t n = 0;
    if (c->out != NULL)
        for (uint32_t i = c->out->first; i < c->out->n; i++)
            n += c->out->items[i].bytes.n;
    return n;
}

void conn_shutdown_write(struct conn *c)
{
    if (!c->closing)
        shutdown(c->fd, SHUT_WR);
}
