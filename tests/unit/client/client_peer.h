// SPDX-License-Identifier: Apache-2.0
/* peer.h -- what the tests of libtidemark's connections share: the other end of them, driven in the
 * same thread; an allocator that counts and fails; a request that remembers what it was told. */
#ifndef TESTS_LIB_PEER_H
#define TESTS_LIB_PEER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "client/client_http.h"

/* ---- memory ---- */

struct memory {
    size_t calls, live;
    size_t fail_at; /* this call finds none; 0: all do */
    bool failed;
    struct tm_allocator allocator;
};

static inline void *memory_alloc(void *ctx, void *p, size_t n)
{
    struct memory *m = ctx;
    assert_true(n > 0);
    if (++m->calls == m->fail_at) {
        m->failed = true;
        return NULL;
    }
    m->live += p == NULL;
    return realloc(p, n);
}

static inline void memory_free(void *ctx, void *p)
{
    struct memory *m = ctx;
    m->live -= p != NULL;
    free(p);
}

static inline void memory_init(struct memory *m, size_t fail_at)
{
    *m = (struct memory){.fail_at = fail_at};
    m->allocator = (struct tm_allocator){m, memory_alloc, memory_free};
}

/* ---- growing bytes of the peer's own ---- */

struct heap {
    char *p;
    size_t n, cap;
};

static inline void heap_put(struct heap *h, const void *p, size_t n)
{
    if (h->n + n + 1 > h->cap) {
        h->cap = 2 * (h->n + n + 1);
        h->p = realloc(h->p, h->cap);
        assert_non_null(h->p);
    }
    if (n > 0)
        memcpy(h->p + h->n, p, n);
    h->n += n;
    h->p[h->n] = 0;
}

static inline void heap_cut(struct heap *h, size_t n)
{
    memmove(h->p, h->p + n, h->n - n);
    h->n -= n;
    h->p[h->n] = 0;
}

static inline void heap_free(struct heap *h)
{
    free(h->p);
    *h = (struct heap){0};
}

/* ---- connections ---- */

struct conn {
    int fd;
    SSL *ssl;            /* over memory; NULL: plain */
    struct heap in, out; /* decrypted; as it goes */
    size_t slice;        /* bytes that go in a step; 0: all */
    size_t left;         /* bytes that may still go, then it is closed */
    bool ended;          /* the client has closed it */
    bool deaf;           /* nothing is read */
};

#define CONN_NONE                                                                                  \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

struct peer {
    int fd;
    char url[64];
    unsigned accepted;
    SSL_CTX *tls;
    size_t slice, left; /* of the connections to come */
};

static inline void peer_init(struct peer *p)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(addr);
    *p = (struct peer){.left = SIZE_MAX};
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(p->fd >= 0);
    assert_int_equal(bind(p->fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(p->fd, 256), 0);
    assert_int_equal(getsockname(p->fd, (struct sockaddr *)&addr, &n), 0);
    snprintf(p->url, sizeof(p->url), "http://127.0.0.1:%d", ntohs(addr.sin_port));
}

static inline void peer_deinit(struct peer *p)
{
    close(p->fd);
}

static inline void conn_close(struct conn *k)
{
    if (k->fd >= 0)
        close(k->fd);
    SSL_free(k->ssl);
    heap_free(&k->in);
    heap_free(&k->out);
    *k = (struct conn)CONN_NONE;
}

/* False: nobody has come. */
static inline bool peer_accept(struct peer *p, struct conn *k)
{
    int on = 1, fd = accept4(p->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return false;
    *k = (struct conn){.fd = fd, .slice = p->slice, .left = p->left};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    p->accepted++;
    if (p->tls != NULL) {
        k->ssl = SSL_new(p->tls);
        assert_non_null(k->ssl);
        SSL_set_bio(k->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
        SSL_set_accept_state(k->ssl);
    }
    return true;
}

static inline void conn_take_tls(struct conn *k)
{
    char buf[4096];
    int n;
    while (k->ssl != NULL && (n = BIO_read(SSL_get_wbio(k->ssl), buf, sizeof(buf))) > 0)
        heap_put(&k->out, buf, (size_t)n);
}

static inline void conn_write(struct conn *k, const void *p, size_t n)
{
    if (k->ssl == NULL)
        heap_put(&k->out, p, n);
    else if (n > 0)
        assert_int_equal(SSL_write(k->ssl, p, (int)n), (int)n);
    conn_take_tls(k);
}

static inline void conn_put(struct conn *k, const char *text)
{
    conn_write(k, text, strlen(text));
}

static inline void conn_read(struct conn *k)
{
    char buf[16384];
    ssize_t n;
    int m;
    while (k->fd >= 0 && !k->deaf && (n = recv(k->fd, buf, sizeof(buf), 0)) >= 0) {
        if (n == 0) {
            k->ended = true;
            return;
        }
        if (k->ssl == NULL) {
            heap_put(&k->in, buf, (size_t)n);
            continue;
        }
        BIO_write(SSL_get_rbio(k->ssl), buf, (int)n);
        while ((m = SSL_read(k->ssl, buf, sizeof(buf))) > 0)
            heap_put(&k->in, buf, (size_t)m);
        conn_take_tls(k);
    }
}

/* Reads what there is, and writes a slice; when it has said what it may, it closes. */
static inline void conn_step(struct conn *k)
{
    if (k->fd < 0)
        return;
    conn_read(k);
    size_t n = k->out.n;
    if (k->slice != 0 && n > k->slice)
        n = k->slice;
    if (n > k->left)
        n = k->left;
    ssize_t sent = n > 0 ? send(k->fd, k->out.p, n, MSG_NOSIGNAL) : 0;
    if (sent > 0) {
        heap_cut(&k->out, (size_t)sent);
        k->left -= k->left != SIZE_MAX ? (size_t)sent : 0;
    }
    if (k->left == 0) {
        close(k->fd);
        k->fd = -1;
    }
}

/* ---- requests ---- */

struct asked {
    struct http_request r;
    struct heap body;
    unsigned heads, overs;
    int err;
    char type[32]; /* of the answer */
    char trailer[32];
    int refuse;                    /* what data() gives */
    int cancel_at;                 /* 1: in head, 2: in data */
    void (*then)(struct asked *a); /* in over */
    void *ctx;
};

static inline void copy_header(struct http_request *r, struct str name, char *out, size_t size)
{
    struct str v = http_answer_header(r, name);
    snprintf(out, size, "%.*s", (int)v.n, v.p != NULL ? v.p : "");
}

static inline void asked_head(struct http_request *r)
{
    struct asked *a = container_of(r, struct asked, r);
    a->heads++;
    assert_true(r->status >= 200);
    copy_header(r, STR("content-type"), a->type, sizeof(a->type));
    if (a->cancel_at == 1)
        http_cancel(r);
}

static inline int asked_data(struct http_request *r, struct str bytes)
{
    struct asked *a = container_of(r, struct asked, r);
    assert_true(bytes.n > 0);
    heap_put(&a->body, bytes.p, bytes.n);
    if (a->cancel_at == 2)
        http_cancel(r);
    return a->refuse;
}

static inline void asked_over(struct http_request *r, int err)
{
    struct asked *a = container_of(r, struct asked, r);
    a->overs++;
    a->err = err;
    copy_header(r, STR("x-trailer"), a->trailer, sizeof(a->trailer));
    assert_true(err == 0 || r->message[0] != 0);
    http_cancel(r); /* does nothing */
    client_happened(r->client);
    if (a->then != NULL)
        a->then(a);
}

static inline void asked_init(struct asked *a, struct tm_client *c, const char *method,
                              enum http_version version)
{
    *a = (struct asked){.r = {.client = c,
                              .method = str_of_cstr(method),
                              .path = STR("/v1/x?y=1"),
                              .version = version,
                              .resend = true,
                              .head = asked_head,
                              .data = asked_data,
                              .over = asked_over}};
    heap_put(&a->body, "", 0);
}

static inline void asked_deinit(struct asked *a)
{
    http_cancel(&a->r);
    heap_free(&a->body);
}

/* ---- time ---- */

/* Turns for at most ten seconds, which no test comes near unless it fails; the sleep is for the
 * kernel, which may take its time between two sockets. */
struct patience {
    time_t until;
    unsigned rounds;
};

static inline struct patience patience_new(void)
{
    return (struct patience){.until = time(NULL) + 10};
}

static inline void patience_spend(struct patience *p)
{
    if (++p->rounds % 64 == 0)
        poll(NULL, 0, 1);
    if (time(NULL) > p->until)
        fail_msg("it takes too long");
}

#endif
