// SPDX-License-Identifier: Apache-2.0
#include "net/tls_channel.h"
#include "base/mem.h"
#include "base/must.h"
#include "net/addr.h"
#include "net/tls.h"
#include "net/tls_core.h"
#include "net/tls_hello.h"
#include "net/tls_names.h"
#include "telemetry/trace.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <sys/socket.h>

struct tls_channel {
    SSL *ssl;
    struct tls *tls;
    int fd;
    bool ready;         /* hands have been shaken */
    bool buffered_only; /* the socket is left alone for the moment */
    bool ended;         /* the socket has no more */
    bool gone;          /* it has failed, and was traced */
    bool is_client;
    struct tls_hello hello;  /* of a client, for the server's side */
    const char *refused;     /* why we hung up; NULL: we did not */
    const char *why;         /* once gone */
    struct tls_names *names; /* NULL: not asked for yet, or there are none */
};

/* ---- the socket, as OpenSSL sees it ---- */

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK;
}

static int tls_channel_socket_read(BIO *b, char *into, int n)
{
    struct tls_channel *c = BIO_get_data(b);
    ssize_t got;
    BIO_clear_retry_flags(b);
    if (c->buffered_only) {
        BIO_set_retry_read(b);
        return -1;
    }
    do
        got = recv(c->fd, into, (size_t)n, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0 && would_block())
        BIO_set_retry_read(b);
    if (got == 0)
        c->ended = true;
    if (got > 0 && !c->ready && !c->is_client) {
        bool tls12 = SSL_version(c->ssl) == TLS1_2_VERSION;
        c->refused = tls_hello_take(&c->hello, str_of(into, (size_t)got), tls12);
        if (c->refused != NULL)
            return -1;
    }
    return (int)got;
}

static int tls_channel_socket_write(BIO *b, const char *bytes, int n)
{
    struct tls_channel *c = BIO_get_data(b);
    ssize_t sent;
    BIO_clear_retry_flags(b);
    do
        sent = send(c->fd, bytes, (size_t)n, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && would_block())
        BIO_set_retry_write(b);
    return (int)sent;
}

static long tls_channel_socket_control(BIO *b, int what, long number, void *p)
{
    struct tls_channel *c = BIO_get_data(b);
    if (what == BIO_CTRL_EOF)
        return c->ended;
    return what == BIO_CTRL_FLUSH; /* nothing is held back; of all else there is nothing here */
}

BIO_METHOD *tls_channel_socket(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "connection");
    must(m != NULL && BIO_meth_set_read(m, tls_channel_socket_read) == 1 &&
         BIO_meth_set_write(m, tls_channel_socket_write) == 1 &&
         BIO_meth_set_ctrl(m, tls_channel_socket_control) == 1);
    return m;
}

/* ---- a channel ---- */

/* Whom the peer has to prove to be, and for servers of many names, which of them we mean. */
static bool expect_host(SSL *ssl, const char *host)
{
    struct sockaddr_storage sa;
    SSL_set_connect_state(ssl);
    if (addr_parse_ip(str_of_cstr(host), &sa) == 0)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

struct tls_channel *tls_channel_new(struct tls *t, int fd, const char *host)
{
    SSL *ssl = SSL_new(tls_context(t));
    BIO *b = BIO_new(tls_socket(t));
    if (ssl == NULL || b == NULL || (host != NULL && !expect_host(ssl, host))) {
        SSL_free(ssl);
        BIO_free(b);
        ERR_clear_error();
        return NULL;
    }
    struct tls_channel *c = mem_zalloc(sizeof *c);
    *c = (struct tls_channel){.ssl = ssl, .tls = tls_ref(t), .fd = fd, .is_client = host != NULL};
    BIO_set_data(b, c);
    BIO_set_init(b, 1);
    SSL_set_bio(ssl, b, b);
    if (host == NULL)
        SSL_set_accept_state(ssl);
    return c;
}

void tls_channel_free(struct tls_channel *c)
{
    if (c == NULL)
        return;
    SSL_free(c->ssl);
    tls_unref(c->tls);
    tls_names_free(c->names);
    free(c);
}

static const char *failure(const struct tls_channel *c, int error, int system)
{
    long verdict = SSL_get_verify_result(c->ssl);
    const char *why = c->refused;
    if (why == NULL && verdict != X509_V_OK)
        why = X509_verify_cert_error_string(verdict);
    if (why == NULL && error == SSL_ERROR_SSL)
        why = ERR_reason_error_string(ERR_peek_error());
    if (why == NULL)
        why = system != 0 ? strerror(system) : "it left without a word";
    return why;
}

/* What the caller is to wait for after a call that returned `result`. */
static int outcome(struct tls_channel *c, int result)
{
    int system = errno;
    int error = SSL_get_error(c->ssl, result);
    if (error == SSL_ERROR_WANT_READ)
        return TLS_WANT_READ;
    if (error == SSL_ERROR_WANT_WRITE)
        return TLS_WANT_WRITE;
    c->why = failure(c, error, system);
    if (tls_trace(c->tls) != NULL)
        trace(tls_trace(c->tls), TLS_FAILED, TRACE_STR("error", str_of_cstr(c->why)));
    ERR_clear_error();
    c->gone = true;
    return TLS_GONE;
}

int tls_channel_handshake(struct tls_channel *c)
{
    ERR_clear_error();
    errno = 0;
    int result = SSL_do_handshake(c->ssl);
    if (result != 1)
        return outcome(c, result);
    c->ready = true;
    return 0;
}

const char *tls_channel_why(const struct tls_channel *c)
{
    return c->why;
}

bool tls_channel_ready(const struct tls_channel *c)
{
    return c->ready;
}

struct str tls_channel_protocol(const struct tls_channel *c)
{
    const unsigned char *name = NULL;
    unsigned int n = 0;
    if (c->ready)
        SSL_get0_alpn_selected(c->ssl, &name, &n);
    return str_of((const char *)name, n);
}

/* A session that came back by a ticket has the certificate that it began with. */
const struct tls_names *tls_channel_names(struct tls_channel *c)
{
    X509 *shown = c->ready && !c->is_client ? SSL_get0_peer_certificate(c->ssl) : NULL;
    if (c->names == NULL && shown != NULL && SSL_get_verify_result(c->ssl) == X509_V_OK)
        c->names = tls_names_of(shown);
    return c->names;
}

static ssize_t read_record(struct tls_channel *c, char *into, size_t n)
{
    size_t got = 0;
    ERR_clear_error();
    errno = 0;
    if (SSL_read_ex(c->ssl, into, n, &got) == 1)
        return (ssize_t)got;
    if (SSL_get_error(c->ssl, 0) == SSL_ERROR_ZERO_RETURN)
        return 0;
    return outcome(c, 0);
}

ssize_t tls_channel_read(struct tls_channel *c, char *into, size_t n, bool buffered_only)
{
    size_t all = 0;
    must(c->ready && n > 0);
    c->buffered_only = buffered_only;
    if (c->gone)
        return TLS_GONE;
    do {
        ssize_t got = read_record(c, into + all, n - all);
        if (got <= 0 && all == 0)
            return got;
        if (got <= 0)
            break; /* is told once more by the next call */
        all += (size_t)got;
    } while (all < n && SSL_has_pending(c->ssl));
    return (ssize_t)all;
}

bool tls_channel_has_more(const struct tls_channel *c)
{
    return SSL_has_pending(c->ssl) == 1 || c->gone ||
           (SSL_get_shutdown(c->ssl) & SSL_RECEIVED_SHUTDOWN) != 0;
}

ssize_t tls_channel_write(struct tls_channel *c, struct str bytes)
{
    size_t n = bytes.n < TLS_RECORD_MAX ? bytes.n : TLS_RECORD_MAX;
    size_t sent = 0;
    must(c->ready && n > 0);
    if (c->gone)
        return TLS_GONE;
    ERR_clear_error();
    errno = 0;
    if (SSL_write_ex(c->ssl, bytes.p, n, &sent) == 1)
        return (ssize_t)sent;
    int result = outcome(c, 0);
    return result == TLS_WANT_READ ? TLS_GONE : result; /* there is no renegotiation to wait for */
}

int tls_channel_finish(struct tls_channel *c)
{
    must(c->ready);
    if (c->gone)
        return TLS_GONE;
    ERR_clear_error();
    errno = 0;
    int result = SSL_shutdown(c->ssl);
    return result >= 0 ? 0 : outcome(c, result);
}
