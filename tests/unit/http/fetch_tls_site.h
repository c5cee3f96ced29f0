// SPDX-License-Identifier: Apache-2.0
/* fetch_tls_site.h -- a site behind TLS, on a thread of its own: one answer to everything, under a
 * certificate for inner.test that it has signed itself. */
#ifndef UNIT_FETCH_TLS_SITE_H
#define UNIT_FETCH_TLS_SITE_H

#include "unit/http/fetch_site.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <signal.h>

struct tls_site {
    SSL_CTX *ctx;
    const char *protocol; /* to choose; NULL: hangs up instead of a handshake */
    struct str answer;
    int fd, port;
    pthread_t thread;
    char ca_file[64];
    char offered[64]; /* protocols, each behind its length */
    /* If given: whether what has come of the request calls for the answer. */
    bool (*asked)(struct str in);
};

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_n,
                           const unsigned char *in, unsigned in_n, void *arg)
{
    struct tls_site *t = arg;
    snprintf(t->offered, sizeof t->offered, "%.*s", (int)in_n, (const char *)in);
    *out = (const unsigned char *)t->protocol;
    *out_n = (unsigned char)strlen(t->protocol);
    return SSL_TLSEXT_ERR_OK;
}

static X509 *self_signed(EVP_PKEY *key)
{
    X509 *x = X509_new();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_NAME *name = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1, 0);
    X509_set_issuer_name(x, name);
    X509_set_pubkey(x, key);
    X509_EXTENSION *san = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "DNS:inner.test");
    X509_add_ext(x, san, -1);
    X509_EXTENSION_free(san);
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    return x;
}

/* False: the peer went away before it had asked. */
static bool read_request(const struct tls_site *t, SSL *ssl)
{
    char in[16384];
    size_t have = 0;
    for (int n; have < sizeof in && (n = SSL_read(ssl, in + have, (int)(sizeof in - have))) > 0;) {
        have += (size_t)n;
        if (t->asked == NULL || t->asked(str_of(in, have)))
            return true;
    }
    return false;
}

static void serve_tls_peer(const struct tls_site *t, int fd)
{
    SSL *ssl = SSL_new(t->ctx);
    SSL_set_fd(ssl, fd);
    if (SSL_accept(ssl) == 1 && read_request(t, ssl))
        SSL_write(ssl, t->answer.p, (int)t->answer.n);
    SSL_shutdown(ssl);
    SSL_free(ssl);
}

/* Serves one connection after the other until its socket is shut. */
static void *serve_tls(void *arg)
{
    struct tls_site *t = arg;
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE); /* a client that trusts us not hangs up; ours must do without */
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    for (int fd; (fd = accept(t->fd, NULL, NULL)) >= 0; close(fd))
        if (t->protocol != NULL)
            serve_tls_peer(t, fd);
    return NULL;
}

static void tls_site_init(struct tls_site *t, const char *protocol, struct str answer)
{
    *t = (struct tls_site){
        .protocol = protocol, .answer = answer, .ca_file = "/tmp/test_fetch_ca_XXXXXX"};
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = self_signed(key);
    t->ctx = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(t->ctx, x);
    SSL_CTX_use_PrivateKey(t->ctx, key);
    SSL_CTX_set_alpn_select_cb(t->ctx, choose_protocol, t);
    FILE *ca = fdopen(mkstemp(t->ca_file), "w");
    PEM_write_X509(ca, x);
    fclose(ca);
    X509_free(x);
    EVP_PKEY_free(key);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    t->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(t->fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(t->fd, 8), 0);
    assert_int_equal(getsockname(t->fd, (struct sockaddr *)&at, &size), 0);
    t->port = ntohs(at.sin_port);
    pthread_create(&t->thread, NULL, serve_tls, t);
}

static void tls_site_deinit(struct tls_site *t)
{
    shutdown(t->fd, SHUT_RDWR);
    pthread_join(t->thread, NULL);
    close(t->fd);
    unlink(t->ca_file);
    SSL_CTX_free(t->ctx);
}

#endif
