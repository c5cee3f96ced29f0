// SPDX-License-Identifier: Apache-2.0
#include "net/conn.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/loop.h"
#include "net/tls_channel.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define OUTQ_FIRST  8
#define SPARES_MAX  1024
#define IOV_AT_ONCE 64
#define EVENTS_ALL  (UV_READABLE | UV_WRITABLE)

/* Bytes that take a while: several requests, or an answer that is copied by the kernel. */
#define MUCH_READ   2048
#define MUCH_SENT   16384

/* Sent from `first` on. */
struct outq {
    struct loop_spare spare;
    uint32_t first, n, cap;
    struct slice items[];
};

static struct outq *outq_new(struct loop *l)
{
    struct outq *q;
    if (l->spares != NULL) {
        q = container_of(l->spares, struct outq, spare);
        l->spares = q->spare.next;
        l->n_spares--;
    } else {
        q = mem_alloc(sizeof *q + OUTQ_FIRST * sizeof *q->items);
        q->cap = OUTQ_FIRST;
    }
    q->first = q->n = 0;
    return q;
}

static void outq_free(struct loop *l, struct outq *q)
{
    if (q->cap != OUTQ_FIRST || l->n_spares == SPARES_MAX) {
        free(q);
        return;
    }
    q->spare.next = l->spares;
    l->spares = &q->spare;
    l->n_spares++;
}

/* A TLS connection's part. `again` stands in for the poll when bytes have been taken from the
 * socket that nobody has read. */
struct conn_tls {
    struct conn *conn;
    struct tls_channel *channel;
    struct task again;
    bool has_more;  /* bytes that the socket will not report any more */
    bool from_task; /* within `again`: the socket is left alone, and has its own turn */
    bool finishing; /* nothing more is to be sent but that this was all ... */
    bool finished;  /* ... and that has been */
};

static void set_events(struct conn *c);

static bool is_handshaking(const struct conn *c)
{
    return c->tls != NULL && !tls_channel_ready(c->tls->channel);
}

/* Of what has been taken from the socket. */
static void conn_read_on(struct conn *c)
{
    if (c->tls != NULL && c->tls->has_more && c->want_read && !c->closing)
        sched_post(&c->loop->sched, &c->tls->again);
}

/* It costs half a millisecond. When thousands come back at once, most of them wait in line. */
static void step_handshake(struct conn *c)
{
    sched_work(&c->loop->sched, "TLS handshake");
    int result = tls_channel_handshake(c->tls->channel);
    if (result == TLS_GONE) {
        c->ops->failed(c);
        return;
    }
    c->blocked = result == TLS_WANT_WRITE;
    set_events(c);
    if (result == 0) {
        c->tls->has_more = tls_channel_has_more(c->tls->channel); /* the first request, say */
        conn_read_on(c);
        conn_flush_later(c);
    }
}

static void conn_on_events(struct conn *c, int events)
{
    if (is_handshaking(c)) {
        step_handshake(c);
        return;
    }
    if (events & UV_WRITABLE) {
        c->blocked = false;
        conn_flush_later(c); /* and then looks whether this is still wanted */
        conn_read_on(c);     /* which can wait for that, too */
    }
    if (!(events & UV_READABLE))
        return;
    if (c->want_read)
        c->ops->readable(c);
    else
        set_events(c);
}

static void conn_poll(struct conn *c, int events)
{
    c->events = (unsigned)events & EVENTS_ALL;
    socket_set_change(&c->loop->sockets, c->fd, c, events);
}

static void conn_on_late(struct task *t)
{
    struct conn *c = container_of(t, struct conn, late);
    int events = c->late_events;
    c->late_events = 0;
    conn_on_events(c, events);
    set_events(c);
}

/* Those who still wait at the next poll are not polled any more: the loop would do little else than
 * to be told of them. */
static void conn_put_off(struct conn *c, int events)
{
    if (c->late_events != 0)
        conn_poll(c, 0);
    c->late_events |= (unsigned)events & EVENTS_ALL;
    sched_post_io(&c->loop->sched, &c->late);
}

/* Another connection's callback may have closed this one, or taken its interest away. */
static void conn_on_poll(void *conn, int events)
{
    struct conn *c = conn;
    if (c->closing || c->events == 0)
        return;
    bool later = sched_io(&c->loop->sched);
    if (events < 0) {
        conn_poll(c, 0);
        c->ops->failed(c);
        return;
    }
    events &= c->events;
    if (later)
        conn_put_off(c, events);
    else
        conn_on_events(c, events);
}

/* Interest in bytes is dropped only when some come that nobody wants: most often it is back before
 * that, and a system call is saved each way. */

static void set_events(struct conn *c)
{
    bool read = (c->want_read && !c->ended) || is_handshaking(c);
    int events = (read ? UV_READABLE : 0) | (c->blocked ? UV_WRITABLE : 0);
    if (events == c->events || c->closing || c->late_events != 0)
        return;
    conn_poll(c, events);
}

static void conn_drop(struct conn *c)
{
    struct outq *q = c->out;
    for (uint32_t i = q->first; i < q->n; i++)
        block_unref(q->items[i].owner);
    outq_free(c->loop, q);
    c->out = NULL;
}

/* Takes what the kernel took off the queue. */
static void conn_advance(struct conn *c, size_t sent)
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

static ssize_t write_plain(struct conn *c)
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
    if (sent >= 0)
        return sent;
    return errno == EAGAIN || errno == EWOULDBLOCK ? CONN_AGAIN : CONN_GONE;
}

/* What the next record holds: small slices are put side by side, a large one is sealed from where
 * it is. A call that is made again finds the same bytes, since the queue only grows meanwhile. */
static struct str gather_record(const struct conn *c)
{
    const struct outq *q = c->out;
    struct str first = q->items[q->first].bytes;
    if (first.n >= TLS_RECORD_MAX || q->first + 1 == q->n)
        return first;
    char *into = c->loop->scratch;
    size_t n = 0;
    for (uint32_t i = q->first; i < q->n && n < TLS_RECORD_MAX; i++) {
        size_t room = TLS_RECORD_MAX - n;
        size_t take = q->items[i].bytes.n < room ? q->items[i].bytes.n : room;
        memcpy(into + n, q->items[i].bytes.p, take);
        n += take;
    }
    return str_of(into, n);
}

static ssize_t write_some(struct conn *c)
{
    if (c->tls == NULL)
        return write_plain(c);
    ssize_t sent = tls_channel_write(c->tls->channel, gather_record(c));
    if (sent >= 0)
        return sent;
    return sent == TLS_WANT_WRITE ? CONN_AGAIN : CONN_GONE;
}

/* Says that this was all; or later, when the kernel takes nothing now. */
static void conn_finish(struct conn *c)
{
    c->tls->finishing = true;
    if (c->tls->finished)
        return;
    if (!is_handshaking(c) && tls_channel_finish(c->tls->channel) == TLS_WANT_WRITE) {
        conn_yield(c);
        return;
    }
    c->tls->finished = true;
    shutdown(c->fd, SHUT_WR);
}

static void conn_on_flush(struct task *t)
{
    struct conn *c = container_of(t, struct conn, flush);
    if (c->tls != NULL && c->tls->finishing) {
        conn_finish(c);
        set_events(c);
        return;
    }
    if (c->out != NULL && is_handshaking(c)) {
        c->ops->stalled(c);
        return;
    }
    while (c->out != NULL && !c->blocked) {
        ssize_t sent = write_some(c);
        if (sent >= 0) {
            if (sent >= MUCH_SENT)
                sched_look_soon(&c->loop->sched);
            conn_advance(c, (size_t)sent);
        } else if (sent == CONN_AGAIN) {
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
    *c = (struct conn){.ops = ops, .loop = loop, .fd = fd, .events = UV_READABLE};
    task_init(&c->flush, conn_on_flush);
    task_init(&c->late, conn_on_late);
    return socket_set_add(&loop->sockets, fd, c, UV_READABLE, conn_on_poll);
}

static void conn_read_again(struct task *t)
{
    struct conn_tls *tls = container_of(t, struct conn_tls, again);
    struct conn *c = tls->conn;
    if (!c->want_read)
        return; /* conn_want_read comes back to it */
    tls->from_task = true;
    c->ops->readable(c);
    tls->from_task = false;
}

static int start_tls(struct conn *c, struct tls *t, const char *host)
{
    struct tls_channel *channel = tls_channel_new(t, c->fd, host);
    if (channel == NULL)
        return ERR_NOMEM;
    c->tls = mem_zalloc(sizeof *c->tls);
    *c->tls = (struct conn_tls){.conn = c, .channel = channel};
    task_init(&c->tls->again, conn_read_again);
    c->blocked = host != NULL; /* a client speaks first, as soon as it can */
    set_events(c);
    return 0;
}

int conn_start_tls(struct conn *c, struct tls *t)
{
    return start_tls(c, t, NULL);
}

int conn_start_tls_to(struct conn *c, struct tls *t, const char *host)
{
    return start_tls(c, t, host);
}

const struct tls_names *conn_peer_names(const struct conn *c)
{
    return c->tls != NULL ? tls_channel_names(c->tls->channel) : NULL;
}

const char *conn_tls_why(const struct conn *c)
{
    return c->tls != NULL ? tls_channel_why(c->tls->channel) : NULL;
}

bool conn_is_ready(const struct conn *c)
{
    return !is_handshaking(c);
}

struct str conn_protocol(const struct conn *c)
{
    return c->tls != NULL ? tls_channel_protocol(c->tls->channel) : STR_NONE;
}

static void conn_on_close(struct task *t)
{
    struct conn *c = container_of(t, struct conn, flush);
    struct loop *loop = c->loop;
    if (c->tls != NULL)
        tls_channel_free(c->tls->channel);
    free(c->tls);
    close(c->fd);
    c->ops->closed(c);
    socket_set_release(&loop->sockets);
}

void conn_close(struct conn *c)
{
    if (c->closing)
        return;
    c->closing = true;
    task_cancel(&c->flush);
    task_cancel(&c->late);
    if (c->tls != NULL)
        task_cancel(&c->tls->again);
    if (c->out != NULL)
        conn_drop(c);
    socket_set_remove(&c->loop->sockets, c->fd);
    task_init(&c->flush, conn_on_close);
    sched_post(&c->loop->sched, &c->flush);
}

void conn_want_read(struct conn *c, bool want)
{
    c->want_read = want;
    if (!want)
        return;
    set_events(c);
    conn_read_on(c);
}

static ssize_t read_plain(struct conn *c, char *into, size_t n)
{
    ssize_t got;
    do
        got = recv(c->fd, into, n, 0);
    while (got < 0 && errno == EINTR);
    if (got >= 0)
        return got;
    return errno == EAGAIN || errno == EWOULDBLOCK ? CONN_AGAIN : CONN_GONE;
}

static ssize_t read_tls(struct conn *c, char *into, size_t n)
{
    struct conn_tls *tls = c->tls;
    if (is_handshaking(c))
        return tls->finishing ? CONN_GONE : CONN_AGAIN;
    ssize_t got = tls_channel_read(tls->channel, into, n, tls->from_task);
    tls->has_more = (got > 0 && tls_channel_has_more(tls->channel)) || got == TLS_WANT_WRITE;
    if (got == TLS_WANT_WRITE)
        conn_yield(c);
    else
        conn_read_on(c);
    if (got >= 0)
        return got;
    return got == TLS_GONE ? CONN_GONE : CONN_AGAIN;
}

ssize_t conn_read(struct conn *c, char *into, size_t n)
{
    ssize_t got = c->tls == NULL ? read_plain(c, into, n) : read_tls(c, into, n);
    if (got >= MUCH_READ)
        sched_look_soon(&c->loop->sched);
    if (got == 0) {
        c->ended = true;
        set_events(c);
    }
    return got;
}

/* A full queue: where half of it has been sent there is room, and a queue that never runs empty
 * stays as small as what is in it. */
__attribute__((noinline)) static struct outq *conn_make_room(struct outq *q)
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

static void conn_enqueue(struct conn *c, struct slice s)
{
    struct outq *q = c->out;
    if (q == NULL)
        q = c->out = outq_new(c->loop);
    else if (q->n == q->cap)
        q = c->out = conn_make_room(q);
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
        conn_enqueue(c, s);
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
    if (c->closing)
        return;
    if (c->tls != NULL)
        conn_finish(c);
    else
        shutdown(c->fd, SHUT_WR);
}
