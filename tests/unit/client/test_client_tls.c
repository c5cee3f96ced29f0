// SPDX-License-Identifier: Apache-2.0
/* TLS of the library: whom it believes, and what is spoken behind it. */
#include "unit/client/client_peer.h"

#include <nghttp2/nghttp2.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#define OK_ANSWER "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

/* ---- certificates ---- */

struct authority {
    EVP_PKEY *key;
    X509 *cert;
    char file[64]; /* its certificate */
};

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    assert_non_null(e);
    X509_add_ext(cert, e, -1);
    X509_EXTENSION_free(e);
}

/* issuer NULL: signed by itself. */
static X509 *new_cert(EVP_PKEY *key, const struct authority *issuer, const char *name,
                      const char *alt_names, long seconds)
{
    static long serial = 1;
    X509 *cert = X509_new();
    X509_NAME *subject = X509_get_subject_name(cert);
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(cert), -7200);
    X509_gmtime_adj(X509_getm_notAfter(cert), seconds);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(cert, issuer != NULL ? X509_get_subject_name(issuer->cert) : subject);
    if (issuer == NULL)
        add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE");
    if (alt_names != NULL)
        add_extension(cert, issuer->cert, NID_subject_alt_name, alt_names);
    assert_true(X509_sign(cert, issuer != NULL ? issuer->key : key, EVP_sha256()) > 0);
    return cert;
}

static void authority_init(struct authority *a, const char *name)
{
    a->key = EVP_EC_gen("P-256");
    assert_non_null(a->key);
    a->cert = new_cert(a->key, NULL, name, NULL, 3600);
    strcpy(a->file, "/tmp/tidemark-test-XXXXXX");
    int fd = mkstemp(a->file);
    FILE *f = fdopen(fd, "w");
    assert_int_equal(PEM_write_X509(f, a->cert), 1);
    fclose(f);
}

static void authority_deinit(struct authority *a)
{
    unlink(a->file);
    X509_free(a->cert);
    EVP_PKEY_free(a->key);
}

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_n,
                           const unsigned char *in, unsigned in_n, void *arg)
{
    const char *speaks = arg; /* behind its length */
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_n, (const unsigned char *)speaks,
                              (unsigned)strlen(speaks), in, in_n) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* ---- a client and a server ---- */

struct setting {
    const char *host;      /* of the URL; NULL: localhost */
    const char *alt_names; /* of the certificate; NULL: DNS:localhost */
    const char *alpn;      /* what the server speaks; NULL: it does not know ALPN */
    bool expired;
    bool stranger; /* the client believes another authority */
    int max_version;
    size_t slice;
    enum http_version version;
    const char *answer; /* NULL: OK_ANSWER */
    size_t cut;         /* close after the answer: 1 without, 2 with a goodbye */
    struct memory *mem; /* the client's; NULL: malloc */
};

struct result {
    struct asked asked;
    bool was_asked; /* the server has read a request */
};

static SSL_CTX *server_context(const struct setting *s, const struct authority *a)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = new_cert(key, a, "server", s->alt_names != NULL ? s->alt_names : "DNS:localhost",
                          s->expired ? -3600 : 3600);
    assert_int_equal(SSL_CTX_use_certificate(ctx, cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
    if (s->max_version != 0) {
        SSL_CTX_set_security_level(ctx, 0);
        SSL_CTX_set_max_proto_version(ctx, s->max_version);
    }
    if (s->alpn != NULL)
        SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, (void *)s->alpn);
    X509_free(cert);
    EVP_PKEY_free(key);
    return ctx;
}

/* Answers over HTTP/1.1. */
static void serve(struct conn *k, const struct setting *s, struct result *out)
{
    conn_step(k);
    if (k->in.n == 0 || strstr(k->in.p, "\r\n\r\n") == NULL)
        return;
    out->was_asked = true;
    k->in.n = 0;
    conn_put(k, s->answer != NULL ? s->answer : OK_ANSWER);
    if (s->cut == 2)
        SSL_shutdown(k->ssl);
    conn_take_tls(k);
    if (s->cut != 0)
        k->left = k->out.n;
}

static void run(const struct setting *s, struct result *out)
{
    struct authority mine, other;
    struct peer peer;
    struct conn k = CONN_NONE;
    struct tm_options o = TM_OPTIONS_INIT;
    struct tm_client *c = NULL;
    char url[64];
    authority_init(&mine, "mine");
    authority_init(&other, "other");
    peer_init(&peer);
    peer.tls = server_context(s, &mine);
    peer.slice = s->slice;
    snprintf(url, sizeof(url), "https://%s%s", s->host != NULL ? s->host : "localhost",
             strrchr(peer.url, ':'));
    o.server = url;
    o.ca_file = s->stranger ? other.file : mine.file;
    o.allocator = s->mem != NULL ? &s->mem->allocator : NULL;
    *out = (struct result){0};
    int err = tm_open(&o, &c);
    asked_init(&out->asked, c, "GET", s->version != HTTP_ANY ? s->version : HTTP_1);
    if (err == 0)
        err = http_start(&out->asked.r);
    struct patience p = patience_new();
    while (err == 0 && out->asked.overs == 0) {
        tm_turn(c);
        if (k.fd < 0)
            peer_accept(&peer, &k);
        serve(&k, s, out);
        patience_spend(&p);
    }
    assert_int_equal(out->asked.overs, err == 0);
    if (err != 0)
        out->asked.err = err;
    tm_close(c);
    conn_close(&k);
    SSL_CTX_free(peer.tls);
    peer_deinit(&peer);
    authority_deinit(&mine);
    authority_deinit(&other);
}

/* ---- who is believed ---- */

static void check_believed(const struct setting *s)
{
    struct result r;
    run(s, &r);
    if (r.asked.err != 0)
        fail_msg("%s", r.asked.r.message);
    assert_string_equal(r.asked.body.p, "ok");
    asked_deinit(&r.asked);
}

static void check_refused(const struct setting *s, const char *reason)
{
    struct result r;
    run(s, &r);
    assert_int_equal(r.asked.err, TM_E_TLS);
    assert_false(r.was_asked);
    if (strstr(r.asked.r.message, reason) == NULL)
        fail_msg("another reason: %s", r.asked.r.message);
    asked_deinit(&r.asked);
}

static void the_right_server_is_believed(void **state)
{
    check_believed(&(struct setting){0});
    check_believed(&(struct setting){.slice = 1});
    check_believed(&(struct setting){.slice = 100, .alpn = "\x08http/1.1"});
    check_believed(&(struct setting){.max_version = TLS1_2_VERSION, .slice = 3});
    check_believed(&(struct setting){.host = "127.0.0.1", .alt_names = "IP:127.0.0.1"});
}

static void others_are_not(void **state)
{
    check_refused(&(struct setting){.alt_names = "DNS:example.com"}, "ame mismatch");
    check_refused(&(struct setting){.alt_names = "DNS:localhost.example.com"}, "ame mismatch");
    check_refused(&(struct setting){.host = "127.0.0.1"}, "address mismatch");
    check_refused(&(struct setting){.host = "127.0.0.1", .alt_names = "DNS:127.0.0.1"},
                  "address mismatch");
    check_refused(&(struct setting){.stranger = true}, "certificate");
    check_refused(&(struct setting){.expired = true}, "expired");
    check_refused(&(struct setting){.max_version = TLS1_1_VERSION}, "TLS failed");
}

static void certificates_that_cannot_be_read_are_said(void **state)
{
    struct tm_options o = TM_OPTIONS_INIT;
    struct tm_client *c = NULL;
    o.server = "https://localhost";
    o.ca_file = "/nonexistent.pem";
    assert_int_equal(tm_open(&o, &c), TM_E_TLS);
    assert_null(c);
    o.ca_file = NULL;
    assert_int_equal(tm_open(&o, &c), 0);
    tm_close(c);
}

/* ---- ends ---- */

#define UNTIL_CLOSE "HTTP/1.1 200 OK\r\n\r\nok"

/* Where the end of the connection is the end of the answer, only a goodbye tells it from a cut. */
static void cut_connections_are_told_apart(void **state)
{
    struct result r;
    check_believed(&(struct setting){.answer = UNTIL_CLOSE, .cut = 2});
    check_believed(&(struct setting){.answer = UNTIL_CLOSE, .cut = 2, .slice = 1});
    run(&(struct setting){.answer = UNTIL_CLOSE, .cut = 1}, &r);
    assert_int_equal(r.asked.err, TM_E_NETWORK);
    asked_deinit(&r.asked);
    check_believed(&(struct setting){.cut = 1}); /* its length was said */
}

/* A goodbye that came while nobody turned is noticed before the next request goes out. */
static void ended_connections_are_replaced(void **state)
{
    struct authority mine;
    struct peer peer;
    struct conn k = CONN_NONE;
    struct tm_options o = TM_OPTIONS_INIT;
    struct tm_client *c = NULL;
    struct setting s = {0};
    char url[64];
    authority_init(&mine, "mine");
    peer_init(&peer);
    peer.tls = server_context(&s, &mine);
    snprintf(url, sizeof(url), "https://localhost%s", strrchr(peer.url, ':'));
    o.server = url;
    o.ca_file = mine.file;
    assert_int_equal(tm_open(&o, &c), 0);
    for (unsigned i = 0; i < 4; i++) {
        struct result r = {0};
        asked_init(&r.asked, c, "GET", HTTP_1);
        r.asked.r.resend = false;
        assert_int_equal(http_start(&r.asked.r), 0);
        struct patience p = patience_new();
        while (r.asked.overs == 0) {
            tm_turn(c);
            if (k.fd < 0)
                peer_accept(&peer, &k);
            serve(&k, &s, &r);
            patience_spend(&p);
        }
        assert_int_equal(r.asked.err, 0);
        assert_int_equal(peer.accepted, 1 + i / 2);
        asked_deinit(&r.asked);
        if (i == 1) {
            SSL_shutdown(k.ssl);
            conn_take_tls(&k);
            conn_step(&k);
            conn_close(&k);
        }
    }
    tm_close(c);
    conn_close(&k);
    SSL_CTX_free(peer.tls);
    peer_deinit(&peer);
    authority_deinit(&mine);
}

static void check_plain_server(const char *says, size_t left, int timeout_ms, int err)
{
    struct peer peer;
    struct conn k = CONN_NONE;
    struct asked a;
    struct tm_options o = TM_OPTIONS_INIT;
    struct tm_client *c = NULL;
    char url[128];
    peer_init(&peer);
    snprintf(url, sizeof(url), "https%s", peer.url + 4);
    o.server = url;
    o.connect_timeout_ms = timeout_ms;
    assert_int_equal(tm_open(&o, &c), 0);
    asked_init(&a, c, "GET", HTTP_1);
    assert_int_equal(http_start(&a.r), 0);
    struct patience p = patience_new();
    while (a.overs == 0) {
        tm_turn(c);
        if (peer.accepted == 0 && peer_accept(&peer, &k)) {
            k.left = left;
            conn_put(&k, says);
        }
        conn_step(&k);
        patience_spend(&p);
    }
    assert_int_equal(a.err, err);
    asked_deinit(&a);
    tm_close(c);
    conn_close(&k);
    peer_deinit(&peer);
}

static void servers_without_tls_are_errors(void **state)
{
    check_plain_server("HTTP/1.1 400 Bad Request\r\n\r\n", SIZE_MAX, 0, TM_E_TLS);
    check_plain_server("", 0, 0, TM_E_NETWORK);
    check_plain_server("", SIZE_MAX, 60, TM_E_TIMEOUT);
}

/* ---- HTTP/2 ---- */

static void servers_without_http2_refuse_it(void **state)
{
    static const char *const speaks[] = {"\x08http/1.1", NULL, "\x08http/1.0"};
    for (int i = 0; i < 3; i++) {
        struct result r;
        run(&(struct setting){.version = HTTP_2, .alpn = speaks[i]}, &r);
        assert_int_equal(r.asked.err, i < 2 ? TM_E_PROTOCOL : TM_E_TLS);
        assert_true(r.asked.r.http2_refused);
        assert_false(r.was_asked);
        asked_deinit(&r.asked);
    }
}

/* The answer is in frames that are written here by hand: SETTINGS, its ACK, HEADERS with the
 * indexed
 * `:status: 200`, and DATA. */
static const char frames[] = "\0\0\0\x04\0\0\0\0\0"
                             "\0\0\0\x04\x01\0\0\0\0"
                             "\0\0\x01\x01\x04\0\0\0\x01\x88"
                             "\0\0\x02\0\x01\0\0\0\x01ok";

static void http2_is_spoken_by_alpn(void **state)
{
    for (size_t slice = 0; slice < 2; slice++) {
        struct authority mine;
        struct peer peer;
        struct conn k = CONN_NONE;
        struct asked a;
        struct tm_options o = TM_OPTIONS_INIT;
        struct tm_client *c = NULL;
        char url[64];
        bool answered = false;
        authority_init(&mine, "mine");
        peer_init(&peer);
        peer.tls = server_context(&(struct setting){.alpn = "\x02h2"}, &mine);
        peer.slice = slice;
        snprintf(url, sizeof(url), "https://localhost%s", strrchr(peer.url, ':'));
        o.server = url;
        o.ca_file = mine.file;
        assert_int_equal(tm_open(&o, &c), 0);
        asked_init(&a, c, "GET", HTTP_2);
        assert_int_equal(http_start(&a.r), 0);
        struct patience p = patience_new();
        while (a.overs == 0) {
            tm_turn(c);
            if (k.fd < 0)
                peer_accept(&peer, &k);
            conn_step(&k);
            if (!answered && k.in.n > NGHTTP2_CLIENT_MAGIC_LEN + 9 * 2) {
                assert_memory_equal(k.in.p, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
                conn_write(&k, frames, sizeof(frames) - 1);
                answered = true;
            }
            patience_spend(&p);
        }
        assert_int_equal(a.err, 0);
        assert_int_equal(a.r.status, 200);
        assert_string_equal(a.body.p, "ok");
        asked_deinit(&a);
        tm_close(c);
        conn_close(&k);
        SSL_CTX_free(peer.tls);
        peer_deinit(&peer);
        authority_deinit(&mine);
    }
}

/* OpenSSL's own memory is not the client's; what is around it is. */
static void every_allocation_may_fail(void **state)
{
    struct memory m;
    size_t n = 1;
    for (;; n++) {
        struct result r;
        memory_init(&m, n);
        run(&(struct setting){.mem = &m}, &r);
        assert_int_equal(r.asked.err, m.failed ? TM_E_NOMEM : 0);
        assert_int_equal(m.live, 0);
        asked_deinit(&r.asked);
        if (!m.failed)
            break;
    }
    assert_true(n > 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_right_server_is_believed),
        cmocka_unit_test(others_are_not),
        cmocka_unit_test(certificates_that_cannot_be_read_are_said),
        cmocka_unit_test(cut_connections_are_told_apart),
        cmocka_unit_test(ended_connections_are_replaced),
        cmocka_unit_test(servers_without_tls_are_errors),
        cmocka_unit_test(servers_without_http2_refuse_it),
        cmocka_unit_test(http2_is_spoken_by_alpn),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
