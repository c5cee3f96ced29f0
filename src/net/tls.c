// SPDX-License-Identifier: Apache-2.0
#include "net/tls.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "net/tls_core.h"
#include "net/tls_tickets.h"
#include "telemetry/trace.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <unistd.h>

/* Of those with forward secrecy and authenticated encryption, all that is left; the cheapest first,
 * or what a client without hardware for AES puts first. */
#define CIPHERS_12 "ECDHE+AES128+AESGCM:ECDHE+AESGCM:ECDHE+CHACHA20"
#define CIPHERS_13 "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"

/* What clients have, and nothing that costs a server ten times as much when a peer asks for it. */
#define GROUPS     "X25519:P-256:P-384"

struct tls {
    uint32_t refs;
    SSL_CTX *context;
    BIO_METHOD *socket;
    struct tls_tickets tickets;
    const struct trace *trace;
    char *cert, *key;
    char *client_ca; /* NULL: clients are not asked */
    size_t n_alpn;
    unsigned char alpn[];
};

/* ---- reading the files ---- */

static bool said(int library, int reason)
{
    unsigned long e = ERR_peek_last_error();
    return ERR_GET_LIB(e) == library && ERR_GET_REASON(e) == reason;
}

/* OpenSSL says much about the form of a file, little of it to the point. */
static int refuse_file(const char *what, const char *path, char *why, size_t size)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    if (access(path, R_OK) != 0)
        snprintf(why, size, "cannot read the %s %s: %s", what, path, strerror(errno));
    else if (said(ERR_LIB_SSL, ERR_R_PEM_LIB) || reason == NULL)
        snprintf(why, size, "there is no %s in PEM form in %s", what, path);
    else
        snprintf(why, size, "the %s in %s cannot be used: %s", what, path, reason);
    return ERR_SYNTAX;
}

/* A server has nobody to ask for a password. */
static int tls_no_password(char *buf, int size, int writing, void *ctx)
{
    bool *asked = ctx;
    *asked = true;
    return -1;
}

static int load_key(SSL_CTX *context, const struct tls *t, char *why, size_t size)
{
    bool asked = false;
    SSL_CTX_set_default_passwd_cb(context, tls_no_password);
    SSL_CTX_set_default_passwd_cb_userdata(context, &asked);
    int ok = SSL_CTX_use_PrivateKey_file(context, t->key, SSL_FILETYPE_PEM);
    SSL_CTX_set_default_passwd_cb_userdata(context, NULL);
    if (ok == 1)
        return 0;
    if (said(ERR_LIB_X509, X509_R_KEY_VALUES_MISMATCH) ||
        said(ERR_LIB_X509, X509_R_KEY_TYPE_MISMATCH)) {
        snprintf(why, size, "the key in %s does not belong to the certificate in %s", t->key,
                 t->cert);
        return ERR_SYNTAX;
    }
    if (asked) {
        snprintf(why, size, "the key in %s is protected by a password; store it without one",
                 t->key);
        return ERR_SYNTAX;
    }
    return refuse_file("key", t->key, why, size);
}

static int load_files(SSL_CTX *context, const struct tls *t, char *why, size_t size)
{
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(context, t->cert) != 1)
        return refuse_file("certificate", t->cert, why, size);
    ERR_clear_error();
    return load_key(context, t, why, size);
}

/* Clients refuse it, but the server's clock may be what is wrong. */
static void warn_of_dates(const struct tls *t, SSL_CTX *context)
{
    const X509 *cert = SSL_CTX_get0_certificate(context);
    const char *what = NULL;
    if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0)
        what = "has expired";
    else if (X509_cmp_current_time(X509_get0_notBefore(cert)) > 0)
        what = "is not valid yet";
    if (what != NULL)
        trace(t->trace, TLS_DATES, TRACE_STR("certificate", str_of_cstr(t->cert)),
              TRACE_STR("problem", str_of_cstr(what)));
}

/* ---- clients' certificates ---- */

/* What the tickets of a context are good for: a client that was believed under other authorities
 * has to show its certificate anew. */
static int name_sessions(SSL_CTX *context, const char *ca)
{
    static const unsigned char open[] = "tidemark";
    uint8_t digest[SHA256_SIZE];
    if (ca == NULL)
        return SSL_CTX_set_session_id_context(context, open, sizeof open - 1);
    struct buf all = {0};
    STACK_OF(X509_OBJECT) *objects = X509_STORE_get0_objects(SSL_CTX_get_cert_store(context));
    for (int i = 0; i < sk_X509_OBJECT_num(objects); i++) {
        X509 *one = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(objects, i));
        unsigned char print[EVP_MAX_MD_SIZE];
        unsigned int n = 0;
        if (one != NULL && X509_digest(one, EVP_sha256(), print, &n) == 1)
            buf_put(&all, str_of((const char *)print, n));
    }
    sha256(buf_str(&all), digest);
    buf_deinit(&all);
    return SSL_CTX_set_session_id_context(context, digest, sizeof digest);
}

static int ask_clients(SSL_CTX *context, const char *ca, char *why, size_t size)
{
    ERR_clear_error();
    STACK_OF(X509_NAME) *names = ca != NULL ? SSL_load_client_CA_file(ca) : NULL;
    if (ca != NULL && (names == NULL || SSL_CTX_load_verify_file(context, ca) != 1)) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return refuse_file("certificate", ca, why, size);
    }
    if (ca != NULL) {
        SSL_CTX_set_client_CA_list(context, names);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL); /* who shows none is served, too */
    }
    return name_sessions(context, ca) == 1 ? 0 : ERR_SYNTAX;
}

/* ---- the context ---- */

/* A client that names nothing we speak is told so: bytes meant for another protocol must not be
 * taken for ours. */
static int tls_choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *n,
                               const unsigned char *offered, unsigned int n_offered, void *ctx)
{
    const struct tls *t = ctx;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, n, t->alpn, (unsigned int)t->n_alpn, offered, n_offered) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int tls_on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
                         EVP_MAC_CTX *mac, int sealing)
{
    struct tls *t = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    int64_t now_s = (int64_t)(clock_mono_ms() / 1000) + 1;
    bool once =
        SSL_version(ssl) == TLS1_3_VERSION; /* clients use a ticket once, and want another */
    return tls_tickets_apply(&t->tickets, name, iv, cipher, mac, sealing != 0, once, now_s);
}

/* What holds on either side. */
static bool set_up_both(struct tls *t, SSL_CTX *c)
{
    SSL_CTX_set_app_data(c, t);
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(c, 1); /* a record's head and body with one system call */
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF); /* tickets do it, without memory */
    return SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_cipher_list(c, CIPHERS_12) == 1 &&
           SSL_CTX_set_ciphersuites(c, CIPHERS_13) == 1 && SSL_CTX_set1_groups_list(c, GROUPS) == 1;
}

static bool set_up(struct tls *t, SSL_CTX *c)
{
    SSL_CTX_set_options(c, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_timeout(c, TLS_TICKET_LIFE_S);
    SSL_CTX_set_alpn_select_cb(c, tls_choose_protocol, t);
    return set_up_both(t, c) && SSL_CTX_set_num_tickets(c, 1) == 1 &&
           SSL_CTX_set_tlsext_ticket_key_evp_cb(c, tls_on_ticket) == 1;
}

int tls_reload(struct tls *t, char *why, size_t size)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (context == NULL || !set_up(t, context)) {
        snprintf(why, size, "OpenSSL cannot be set up as needed");
        SSL_CTX_free(context);
        ERR_clear_error();
        return ERR_SYNTAX;
    }
    int err = load_files(context, t, why, size);
    if (err == 0)
        err = ask_clients(context, t->client_ca, why, size);
    ERR_clear_error();
    if (err != 0) {
        SSL_CTX_free(context);
        return err;
    }
    warn_of_dates(t, context);
    SSL_CTX_free(t->context); /* connections keep theirs */
    t->context = context;
    return 0;
}

/* ---- the whole ---- */

static char *copy_text(const char *text)
{
    size_t n = strlen(text) + 1;
    return memcpy(mem_alloc(n), text, n);
}

struct tls *tls_new(const struct tls_settings *settings, char *why, size_t size)
{
    struct tls *t = mem_zalloc(sizeof *t + settings->alpn.n);
    t->refs = 1;
    t->trace = settings->trace;
    t->cert = copy_text(settings->cert);
    t->key = copy_text(settings->key);
    t->client_ca = settings->client_ca != NULL ? copy_text(settings->client_ca) : NULL;
    t->n_alpn = settings->alpn.n;
    memcpy(t->alpn, settings->alpn.p, settings->alpn.n);
    t->socket = tls_channel_socket();
    if (tls_reload(t, why, size) != 0) {
        tls_unref(t);
        return NULL;
    }
    return t;
}

static int trust(SSL_CTX *context, const char *ca, char *why, size_t size)
{
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    ERR_clear_error();
    if (ca != NULL && SSL_CTX_load_verify_file(context, ca) != 1)
        return refuse_file("certificate", ca, why, size);
    if (ca == NULL && SSL_CTX_set_default_verify_paths(context) != 1) {
        snprintf(why, size, "the system's certificates cannot be found");
        return ERR_SYNTAX;
    }
    return 0;
}

struct tls *tls_new_client(const char *ca, const struct trace *trace, char *why, size_t size)
{
    struct tls *t = mem_zalloc(sizeof *t);
    t->refs = 1;
    t->trace = trace;
    t->socket = tls_channel_socket();
    t->context = SSL_CTX_new(TLS_client_method());
    int err = 0;
    if (t->context == NULL || !set_up_both(t, t->context)) {
        snprintf(why, size, "OpenSSL cannot be set up as needed");
        err = ERR_SYNTAX;
    }
    if (err == 0)
        err = trust(t->context, ca, why, size);
    ERR_clear_error();
    if (err != 0) {
        tls_unref(t);
        return NULL;
    }
    return t;
}

struct tls *tls_ref(struct tls *t)
{
    t->refs++;
    return t;
}

void tls_unref(struct tls *t)
{
    if (t == NULL || --t->refs > 0)
        return;
    SSL_CTX_free(t->context);
    BIO_meth_free(t->socket);
    tls_tickets_wipe(&t->tickets);
    free(t->cert);
    free(t->key);
    free(t->client_ca);
    free(t);
}

SSL_CTX *tls_context(const struct tls *t)
{
    return t->context;
}

const BIO_METHOD *tls_socket(const struct tls *t)
{
    return t->socket;
}

const struct trace *tls_trace(const struct tls *t)
{
    return t->trace;
}
