// SPDX-License-Identifier: Apache-2.0
#include "client/client_wire_core.h"

#include <arpa/inet.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>

int wire_tls_new(struct tm_client *c)
{
    const char *file = c->options.ca_file;
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (ctx == NULL)
        return TM_E_NOMEM;
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1 ||
        (file != NULL ? SSL_CTX_load_verify_locations(ctx, file, NULL)
                      : SSL_CTX_set_default_verify_paths(ctx)) != 1) {
        SSL_CTX_free(ctx);
        ERR_clear_error();
        return client_fail(c, TM_E_TLS, "no certificates can be read from %s",
                           file != NULL ? file : "the system's store");
    }
    c->tls = ctx;
    return 0;
}

void wire_tls_free(struct tm_client *c)
{
    SSL_CTX_free(c->tls);
    c->tls = NULL;
}

static bool is_address(const char *host)
{
    unsigned char buf[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, buf) == 1 || inet_pton(AF_INET6, host, buf) == 1;
}

/* Whom the certificate must be for. An address is not sent as a server name: RFC 6066. */
static bool expect_host(SSL *ssl, const char *host)
{
    if (is_address(host))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

int tls_start(struct wire *w, struct str alpn)
{
    ERR_clear_error();
    SSL *ssl = SSL_new(w->client->tls);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    if (ssl == NULL || in == NULL || out == NULL) {
        BIO_free(in);
        BIO_free(out);
        SSL_free(ssl);
        return TM_E_NOMEM;
    }
    SSL_set_bio(ssl, in, out);
    SSL_set_connect_state(ssl);
    if (!expect_host(ssl, w->client->server.host) ||
        SSL_set_alpn_protos(ssl, (const unsigned char *)alpn.p, (unsigned)alpn.n) != 0) {
        SSL_free(ssl);
        return TM_E_NOMEM;
    }
    w->ssl = ssl;
    return 0;
}

void tls_free(struct wire *w)
{
    SSL_free(w->ssl);
    w->ssl = NULL;
}

struct str wire_alpn(const struct wire *w)
{
    const unsigned char *p = NULL;
    unsigned n = 0;
    if (w->ssl != NULL)
        SSL_get0_alpn_selected(w->ssl, &p, &n);
    return str_of((const char *)p, n);
}

int tls_put(struct wire *w, struct str encrypted)
{
    return BIO_write(SSL_get_rbio(w->ssl), encrypted.p, (int)encrypted.n) == (int)encrypted.n
               ? 0
               : TM_E_NOMEM;
}

size_t tls_pending(const struct wire *w)
{
    return BIO_ctrl_pending(SSL_get_wbio(w->ssl));
}

int tls_take(struct wire *w)
{
    BIO *bio = SSL_get_wbio(w->ssl);
    char *p = NULL;
    long n = BIO_get_mem_data(bio, &p);
    if (n <= 0)
        return 0;
    if (bytes_put(w->client, &w->out, str_of(p, (size_t)n)) != 0)
        return TM_E_NOMEM;
    (void)BIO_reset(bio);
    return 0;
}

/* The certificate's fault is said rather than the handshake's. */
static void client_wire_explain(struct wire *w, char *reason, size_t size)
{
    long verified = SSL_get_verify_result(w->ssl);
    unsigned long e = ERR_peek_last_error();
    const char *text = e != 0 ? ERR_reason_error_string(e) : NULL;
    w->alpn_refused = ERR_GET_REASON(e) == SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL;
    if (verified != X509_V_OK)
        snprintf(reason, size, "the server's certificate is refused: %s",
                 X509_verify_cert_error_string(verified));
    else
        snprintf(reason, size, "TLS failed: %s", text != NULL ? text : "unknown reason");
    ERR_clear_error();
}

int tls_handshake(struct wire *w, char *reason, size_t size)
{
    ERR_clear_error();
    int r = SSL_do_handshake(w->ssl);
    if (r == 1) {
        w->client->tls_worked = true;
        return 0;
    }
    if (SSL_get_error(w->ssl, r) == SSL_ERROR_WANT_READ)
        return TLS_AGAIN;
    client_wire_explain(w, reason, size);
    /* Bytes were spoilt on the way, if it is not about who the server is and what it speaks. */
    bool spoilt =
        w->client->tls_worked && !w->alpn_refused && SSL_get_verify_result(w->ssl) == X509_V_OK;
    return spoilt ? TM_E_NETWORK : TM_E_TLS;
}

int tls_read(struct wire *w, char *buf, size_t size, size_t *n, char *reason, size_t reason_size)
{
    ERR_clear_error();
    int r = SSL_read(w->ssl, buf, size < INT_MAX ? (int)size : INT_MAX);
    if (r > 0) {
        *n = (size_t)r;
        return 0;
    }
    switch (SSL_get_error(w->ssl, r)) {
    case SSL_ERROR_WANT_READ: return TLS_AGAIN;
    case SSL_ERROR_ZERO_RETURN: return TLS_ENDED;
    default: break;
    }
    client_wire_explain(w, reason, reason_size);
    return TM_E_NETWORK;
}

int tls_write(struct wire *w, struct str bytes)
{
    size_t written;
    if (bytes.n == 0)
        return 0;
    ERR_clear_error();
    if (SSL_write_ex(w->ssl, bytes.p, bytes.n, &written) != 1) {
        ERR_clear_error();
        return TM_E_NOMEM;
    }
    return 0;
}

void tls_goodbye(struct wire *w)
{
    ERR_clear_error();
    SSL_shutdown(w->ssl);
    ERR_clear_error();
}
