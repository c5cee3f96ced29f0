// SPDX-License-Identifier: Apache-2.0
#include "client/client_wire.h"
#include "client/client_wire_core.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define READ_SIZE        (16 * 1024)
#define READS_A_TURN     16 /* so that one busy wire does not starve the others */
#define WRITES_A_TURN    64
#define UNIX_RETRY_MS    20 /* a Unix socket whose backlog is full does not tell when it is not */
#define ADDRESS_LEAST_MS 250

static void connect_next(struct wire *w);

static void client_wire_on_connect(struct task *t)
{
    struct wire *w = container_of(t, struct wire, connect);
    w->give_up_ms = w->client->sched.now_ms + (uint64_t)w->client->options.connect_timeout_ms;
    connect_next(w);
}

/* A turn flushes every wire at its end: that there is one is all that is needed. */
static void client_wire_on_wake(struct task *t)
{
}

static void client_wire_on_timer(struct timer *t);

struct wire *wire_new(struct tm_client *c, const struct speaker *speaker, struct str alpn)
{
    struct wire *w = client_zalloc(c, sizeof(*w));
    if (w == NULL)
        return NULL;
    w->client = c;
    w->speaker = speaker;
    w->fd = -1;
    task_init(&w->connect, client_wire_on_connect);
    task_init(&w->wake, client_wire_on_wake);
    timer_init(&w->timer, client_wire_on_timer);
    list_init(&w->exchanges);
    list_init(&w->finished);
    list_init(&w->link);
    if (c->server.tls && tls_start(w, alpn) != 0) {
        client_free(c, w);
        return NULL;
    }
    list_push(&c->wires, &w->link);
    sched_post(&c->sched, &w->connect);
    return w;
}

static void drop_socket(struct wire *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
}

static void drop_addresses(struct wire *w)
{
    if (w->addresses != NULL)
        freeaddrinfo(w->addresses);
    w->addresses = w->next = NULL;
}

void wire_close(struct wire *w)
{
    if (w->state == WIRE_CLOSED)
        return;
    /* A goodbye goes if it can go at once. */
    if (w->state == WIRE_OPEN && w->ssl != NULL && !w->mute && w->out.n == 0) {
        tls_goodbye(w);
        if (tls_take(w) == 0 && w->out.n > 0)
            (void)!send(w->fd, w->out.p, w->out.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    w->state = WIRE_CLOSED;
    timer_stop(&w->timer);
    task_cancel(&w->connect);
    task_cancel(&w->wake);
    drop_socket(w);
    drop_addresses(w);
    wire_wake(w); /* to be swept away */
}

void wire_free(struct wire *w)
{
    wire_close(w);
    task_cancel(&w->wake);
    list_remove(&w->link);
    w->speaker->free(w);
    tls_free(w);
    bytes_free_secret(w->client, &w->out);
    client_free(w->client, w);
}

void wire_fail(struct wire *w, int err, const char *message)
{
    if (w->state == WIRE_CLOSED)
        return;
    w->mute = true;
    wire_close(w);
    w->speaker->lost(w, err, message);
}

void wire_wake(struct wire *w)
{
    sched_post(&w->client->sched, &w->wake);
}

/* ---- connecting ---- */

static void fail_with_errno(struct wire *w, const char *what, int number)
{
    char buf[80], message[256];
    const struct server_url *server = &w->client->server;
    snprintf(message, sizeof(message), "%s %s: %s", what,
             server->unix_path != NULL ? server->unix_path : server->authority,
             strerror_r(number, buf, sizeof(buf)));
    wire_fail(w, number == ENOMEM ? TM_E_NOMEM : TM_E_NETWORK, message);
}

static void opened(struct wire *w)
{
    w->state = WIRE_OPEN;
    timer_stop(&w->timer);
    w->speaker->opened(w);
}

static void handshake(struct wire *w)
{
    char reason[160];
    int err = tls_handshake(w, reason, sizeof(reason));
    if (err == 0) {
        opened(w);
        return;
    }
    wire_flush(w); /* an alert of ours goes too */
    if (err != TLS_AGAIN)
        wire_fail(w, err, reason);
}

static void connected(struct wire *w)
{
    int on = 1;
    drop_addresses(w);
    if (w->client->server.unix_path == NULL)
        setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (w->ssl == NULL) {
        opened(w);
        return;
    }
    w->state = WIRE_HANDSHAKE;
    sched_start(&w->client->sched, &w->timer, (uint64_t)w->client->options.connect_timeout_ms);
    handshake(w);
}

/* 0: connected or about to be. Otherwise errno. */
static int try_connect(struct wire *w, int family, const struct sockaddr *addr, socklen_t n)
{
    w->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (w->fd < 0)
        return errno;
    /* One that was interrupted goes on by itself. */
    if (connect(w->fd, addr, n) == 0 || errno == EINPROGRESS || errno == EINTR)
        return 0;
    int err = errno;
    drop_socket(w);
    return err;
}

static void connect_unix(struct wire *w)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    memcpy(addr.sun_path, w->client->server.unix_path, strlen(w->client->server.unix_path));
    int err = try_connect(w, AF_UNIX, (struct sockaddr *)&addr, sizeof(addr));
    if (err == 0)
        connected(w);
    else if (err != EAGAIN)
        fail_with_errno(w, "connecting to", err);
    else if (w->client->sched.now_ms >= w->give_up_ms)
        wire_fail(w, TM_E_TIMEOUT, "connecting took too long");
    else
        sched_start(&w->client->sched, &w->timer, UNIX_RETRY_MS);
}

/* A numeric address needs no look-up, and so does not block. */
static bool resolve(struct wire *w)
{
    const struct server_url *server = &w->client->server;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    int err = getaddrinfo(server->host, server->port, &hints, &w->addresses);
    if (err == EAI_NONAME) {
        hints.ai_flags = 0;
        err = getaddrinfo(server->host, server->port, &hints, &w->addresses);
    }
    if (err != 0) {
        char message[256];
        w->addresses = NULL;
        snprintf(message, sizeof(message), "looking up %s: %s", server->host, gai_strerror(err));
        wire_fail(w, err == EAI_MEMORY ? TM_E_NOMEM : TM_E_NETWORK, message);
        return false;
    }
    w->next = w->addresses;
    return true;
}

/* What is left of the time is shared by the addresses that are left. */
static uint64_t time_for_address(const struct wire *w)
{
    uint64_t now = w->client->sched.now_ms, left = 1;
    for (struct addrinfo *a = w->next; a != NULL; a = a->ai_next)
        left++;
    uint64_t ms = w->give_up_ms > now ? (w->give_up_ms - now) / left : 0;
    return ms > ADDRESS_LEAST_MS || left == 1 ? ms : ADDRESS_LEAST_MS;
}

static void connect_next(struct wire *w)
{
    if (w->client->server.unix_path != NULL) {
        connect_unix(w);
        return;
    }
    if (w->addresses == NULL && !resolve(w))
        return;
    while (w->next != NULL) {
        const struct addrinfo *a = w->next;
        w->next = a->ai_next;
        int err = try_connect(w, a->ai_family, a->ai_addr, a->ai_addrlen);
        if (err == 0) {
            sched_start(&w->client->sched, &w->timer, time_for_address(w));
            return;
        }
        w->failure = err;
    }
    if (w->failure == ETIMEDOUT)
        wire_fail(w, TM_E_TIMEOUT, "connecting took too long");
    else
        fail_with_errno(w, "connecting to", w->failure);
}

static void client_wire_on_timer(struct timer *t)
{
    struct wire *w = container_of(t, struct wire, timer);
    if (w->state == WIRE_HANDSHAKE) {
        wire_fail(w, TM_E_TIMEOUT, "the TLS handshake took too long");
        return;
    }
    if (w->fd >= 0)
        w->failure = ETIMEDOUT;
    drop_socket(w);
    connect_next(w);
}

static void connect_ready(struct wire *w)
{
    int err = 0;
    socklen_t n = sizeof(err);
    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &err, &n) != 0)
        err = errno;
    timer_stop(&w->timer);
    if (err == 0) {
        connected(w);
        return;
    }
    w->failure = err;
    drop_socket(w);
    connect_next(w);
}

/* ---- bytes ---- */

static void decrypted(struct wire *w)
{
    char buf[READ_SIZE], reason[160];
    size_t n;
    while (w->state == WIRE_OPEN) {
        int err = tls_read(w, buf, sizeof(buf), &n, reason, sizeof(reason));
        if (err == TLS_AGAIN)
            return;
        if (err == TLS_ENDED)
            wire_fail(w, 0, "the server closed the connection");
        else if (err != 0)
            wire_fail(w, err, reason);
        else
            w->speaker->bytes(w, str_of(buf, n));
    }
}

static void came(struct wire *w, struct str bytes)
{
    if (w->ssl == NULL) {
        w->speaker->bytes(w, bytes);
        return;
    }
    if (tls_put(w, bytes) != 0) {
        wire_fail(w, TM_E_NOMEM, NULL);
        return;
    }
    if (w->state == WIRE_HANDSHAKE)
        handshake(w);
    decrypted(w);
}

static void ended(struct wire *w)
{
    if (w->ssl == NULL)
        wire_fail(w, 0, "the server closed the connection");
    else if (w->state == WIRE_HANDSHAKE)
        wire_fail(w, TM_E_NETWORK, "the server closed the connection during the TLS handshake");
    else
        wire_fail(w, TM_E_NETWORK, "the connection was cut off");
}

static void read_some(struct wire *w)
{
    char buf[READ_SIZE];
    w->busy = true;
    for (int i = 0; i < READS_A_TURN && w->state != WIRE_CLOSED; i++) {
        ssize_t n = recv(w->fd, buf, sizeof(buf), 0);
        if (n > 0) {
            came(w, str_of(buf, (size_t)n));
        } else if (n == 0) {
            ended(w);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno != EINTR) {
            fail_with_errno(w, "connection to", errno);
        }
    }
    w->busy = false;
}

void wire_look(struct wire *w)
{
    if (w->state == WIRE_OPEN && !w->busy)
        read_some(w);
}

void wire_ready(struct wire *w, int revents)
{
    if (w->state == WIRE_CLOSED || revents == 0)
        return;
    if (w->state == WIRE_CONNECTING)
        connect_ready(w);
    else if ((revents & (POLLIN | POLLHUP | POLLERR)) != 0)
        read_some(w);
    wire_flush(w);
}

int wire_write(struct wire *w, struct str bytes)
{
    if (w->mute)
        return 0;
    return w->ssl != NULL ? tls_write(w, bytes) : bytes_put_secret(w->client, &w->out, bytes);
}

bool wire_has_room(const struct wire *w)
{
    size_t held = w->out.n + (w->ssl != NULL ? tls_pending(w) : 0);
    return w->state == WIRE_OPEN && !w->mute && held < WIRE_OUT_MAX;
}

/* The peer may have answered before it stopped listening: reading finds out. */
static void fall_silent(struct wire *w)
{
    w->mute = true;
    w->out.n = 0;
}

/* Fills and takes what TLS makes of it; false: there is nothing to send. */
static bool gather(struct wire *w)
{
    if (w->state == WIRE_OPEN) {
        w->busy = true;
        w->speaker->fill(w);
        w->busy = false;
    }
    if (w->state != WIRE_OPEN && w->state != WIRE_HANDSHAKE)
        return false;
    if (w->ssl != NULL && tls_take(w) != 0) {
        wire_fail(w, TM_E_NOMEM, NULL);
        return false;
    }
    return w->out.n > 0;
}

void wire_flush(struct wire *w)
{
    for (int i = 0; i < WRITES_A_TURN; i++) {
        if (w->mute || !gather(w))
            return;
        ssize_t n = send(w->fd, w->out.p, w->out.n, MSG_NOSIGNAL);
        if (n >= 0)
            bytes_cut(&w->out, (size_t)n);
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        else if (errno != EINTR)
            fall_silent(w);
    }
    wire_wake(w);
}

bool wire_interest(const struct wire *w, struct tm_descriptor *out)
{
    if (w->fd < 0)
        return false;
    *out = (struct tm_descriptor){
        .fd = w->fd,
        .readable = w->state != WIRE_CONNECTING,
        .writable = w->state == WIRE_CONNECTING || (w->out.n > 0 && !w->mute),
    };
    return true;
}
