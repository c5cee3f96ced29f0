// SPDX-License-Identifier: Apache-2.0
/* tls_world.h -- for tests of TLS: certificates made on the spot, a loop with a server's connection
 * on one end of a socket pair, and OpenSSL's own client on the other, driven by hand. */
#ifndef TESTS_TLS_WORLD_H
#define TESTS_TLS_WORLD_H

#include "base/mem.h"
#include "net/conn.h"
#include "net/loop.h"
#include "net/tls.h"
#include "telemetry/trace.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define GOT_MAX (4 << 20)

/* The server's end: keeps what it reads. */
struct end {
    struct conn conn;
    struct str got; /* of `bytes` */
    char *bytes;
    size_t read_at_once;
    int drained, stalled, failed, closed;
    bool at_end, gone; /* what conn_read said last */
};

struct world {
    struct loop loop;
    uv_timer_t alive; /* a loop without active handles would not turn */
    char folder[64], cert[96], key[96];
    struct trace trace;
    char *traced;
    size_t n_traced;
    struct tls *tls;
    SSL_CTX *client_context;
    struct end end;
    int peer; /* the client's socket */
    SSL *client;
};

/* ---- certificates ---- */

static inline EVP_PKEY *make_key(void)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    assert_non_null(key);
    return key;
}

static inline void write_key(const char *path, EVP_PKEY *key, const char *password)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    const EVP_CIPHER *cipher = password ? EVP_aes_128_cbc() : NULL;
    assert_int_equal(PEM_write_PKCS8PrivateKey(f, key, cipher, password,
                                               password ? (int)strlen(password) : 0, NULL, NULL),
                     1);
    fclose(f);
}

/* Valid from `from_s` to `to_s`, seconds from now. */
static inline void write_cert(const char *path, EVP_PKEY *key, const char *name, long from_s,
                              long to_s)
{
    X509 *x = X509_new();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), from_s);
    X509_gmtime_adj(X509_getm_notAfter(x), to_s);
    X509_set_pubkey(x, key);
    X509_NAME *subject = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(x, subject);
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    PEM_write_X509(f, x);
    fclose(f);
    X509_free(x);
}

static inline void make_pair(struct world *w, const char *name)
{
    EVP_PKEY *key = make_key();
    write_key(w->key, key, NULL);
    write_cert(w->cert, key, name, -60, 3600);
    EVP_PKEY_free(key);
}

/* ---- the server's end ---- */

static inline struct end *end_of(struct conn *c)
{
    return container_of(c, struct end, conn);
}

static inline void end_readable(struct conn *c)
{
    struct end *e = end_of(c);
    assert_true(e->got.n + e->read_at_once <= GOT_MAX);
    ssize_t n = conn_read(c, e->bytes + e->got.n, e->read_at_once);
    if (n > 0)
        e->got = str_of(e->bytes, e->got.n + (size_t)n);
    e->at_end = n == 0;
    e->gone = n == CONN_GONE;
}

static inline void end_drained(struct conn *c)
{
    end_of(c)->drained++;
}

static inline void end_stalled(struct conn *c)
{
    end_of(c)->stalled++;
}

static inline void end_failed(struct conn *c)
{
    end_of(c)->failed++;
    conn_close(c);
}

static inline void end_closed(struct conn *c)
{
    end_of(c)->closed++;
}

static const struct conn_ops end_ops = {end_readable, end_drained, end_stalled, end_failed,
                                        end_closed};

/* ---- driving ---- */

static inline void turns(struct world *w, int n)
{
    for (int i = 0; i < n; i++)
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
}

/* A connection whose client is up to the test. send_bytes: what the kernel holds for the server's
 * sending, 0: as it likes. */
static inline void open_end(struct world *w, struct end *e, int *peer, int send_bytes)
{
    int fds[2];
    char *bytes = e->bytes ? e->bytes : mem_alloc(GOT_MAX);
    *e = (struct end){.bytes = bytes, .read_at_once = 16384};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    if (send_bytes > 0)
        setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    assert_int_equal(conn_init(&e->conn, &w->loop, fds[0], &end_ops), 0);
    assert_int_equal(conn_start_tls(&e->conn, w->tls), 0);
    conn_want_read(&e->conn, true);
    *peer = fds[1];
}

static inline void close_end(struct world *w, struct end *e)
{
    conn_close(&e->conn);
    conn_close(&e->conn);
    for (int i = 0; i < 5 && e->closed == 0; i++)
        turns(w, 1);
    assert_int_equal(e->closed, 1);
    free(e->bytes);
    e->bytes = NULL;
}

static inline SSL *client_on(struct world *w, int fd)
{
    SSL *ssl = SSL_new(w->client_context);
    SSL_set_fd(ssl, fd);
    SSL_set_connect_state(ssl);
    return ssl;
}

/* One try of the client's handshake and a turn of the loop, until it is done or has failed. */
static inline bool shake(struct world *w, SSL *client)
{
    for (int i = 0; i < 50; i++) {
        ERR_clear_error();
        int result = SSL_do_handshake(client);
        if (result == 1) {
            turns(w, 3);
            return true;
        }
        int error = SSL_get_error(client, result);
        if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
            return false;
        turns(w, 1);
    }
    return false;
}

static inline bool open_client(struct world *w, int send_bytes)
{
    open_end(w, &w->end, &w->peer, send_bytes);
    w->client = client_on(w, w->peer);
    return shake(w, w->client);
}

static inline void close_client(struct world *w)
{
    SSL_free(w->client);
    w->client = NULL;
    if (w->peer >= 0)
        close(w->peer);
    w->peer = -1;
}

/* What the client can read now, at most n; then `*error` says why no more. */
static inline size_t client_read(SSL *client, char *into, size_t n, int *error)
{
    size_t all = 0, got;
    *error = SSL_ERROR_NONE;
    while (all < n) {
        ERR_clear_error();
        if (SSL_read_ex(client, into + all, n - all, &got) != 1) {
            *error = SSL_get_error(client, 0);
            break;
        }
        all += got;
    }
    return all;
}

/* ---- the whole ---- */

#define ALPN "\x02h2\x08http/1.1"

static inline struct tls *world_tls(struct world *w, char *why, size_t size)
{
    return tls_new(
        &(struct tls_settings){
            .cert = w->cert, .key = w->key, .alpn = STR(ALPN), .trace = &w->trace},
        why, size);
}

static void on_alive(uv_timer_t *t)
{
}

static inline int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    char why[512] = "";
    assert_int_equal(loop_init(&w->loop), 0);
    uv_timer_init(&w->loop.uv, &w->alive);
    uv_timer_start(&w->alive, on_alive, 10, 10);
    snprintf(w->folder, sizeof w->folder, "/tmp/tidemark-tls-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->cert, sizeof w->cert, "%s/cert.pem", w->folder);
    snprintf(w->key, sizeof w->key, "%s/key.pem", w->folder);
    w->trace = (struct trace){.to = open_memstream(&w->traced, &w->n_traced), .level = TRACE_DEBUG};
    w->peer = -1;
    make_pair(w, "first");
    w->tls = world_tls(w, why, sizeof why);
    assert_string_equal(why, "");
    w->client_context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_mode(w->client_context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    *state = w;
    return 0;
}

static inline int tear_down(void **state)
{
    struct world *w = *state;
    close_client(w);
    if (w->end.bytes != NULL)
        close_end(w, &w->end);
    uv_close((uv_handle_t *)&w->alive, NULL);
    loop_deinit(&w->loop);
    tls_unref(w->tls);
    SSL_CTX_free(w->client_context);
    fclose(w->trace.to);
    free(w->traced);
    unlink(w->cert);
    unlink(w->key);
    rmdir(w->folder);
    free(w);
    return 0;
}

static inline void assert_traced(struct world *w, const char *text)
{
    fflush(w->trace.to);
    if (strstr(w->traced, text) == NULL)
        fail_msg("no \"%s\" in the traces: %s", text, w->traced);
}

#endif
