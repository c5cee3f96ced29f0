// SPDX-License-Identifier: Apache-2.0
/* TLS as the client: of a real Redis, and of one that hangs up. Whom we trust is the point. */
#include "unit/store/redis/client/redis_world.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

static struct redis_server server;
static char folder[64];

static const char *file(const char *name)
{
    static char paths[8][128];
    static size_t next;
    char *path = paths[next++ % 8];
    snprintf(path, 128, "%s/%s", folder, name);
    return path;
}

/* Signed by itself, good for `names`. */
static void make_cert(const char *name, const char *names)
{
    char path[32];
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_NAME *subject = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(x, subject);
    X509_set_pubkey(x, key);
    X509_EXTENSION *san = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, names);
    X509_add_ext(x, san, -1);
    X509_EXTENSION_free(san);
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    snprintf(path, sizeof path, "%s.crt", name);
    FILE *f = fopen(file(path), "w");
    assert_non_null(f);
    PEM_write_X509(f, x);
    fclose(f);
    snprintf(path, sizeof path, "%s.key", name);
    f = fopen(file(path), "w");
    assert_non_null(f);
    PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL);
    fclose(f);
    X509_free(x);
    EVP_PKEY_free(key);
}

static int set_up(void **state)
{
    strcpy(folder, "/tmp/tidemark-redis-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    make_cert("redis", "DNS:localhost,IP:127.0.0.1");
    make_cert("other", "DNS:localhost,IP:127.0.0.1");
    make_cert("elsewhere", "DNS:elsewhere.test,IP:127.0.0.2");
    return world_set_up(state);
}

static int tear_down(void **state)
{
    char command[96];
    int result = world_tear_down(state);
    redis_server_clean(&server);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 ? -1 : result;
}

static void need_server(const char *cert, const char *key)
{
    char port[8];
    if (!redis_server_installed()) {
        print_message("redis-server is not installed; skipped\n");
        skip();
    }
    server.port = redis_server_free_port();
    snprintf(port, sizeof port, "%u", (unsigned)server.port);
    const char *const more[] = {"--port",
                                "0",
                                "--tls-port",
                                port,
                                "--tls-cert-file",
                                cert,
                                "--tls-key-file",
                                key,
                                "--tls-ca-cert-file",
                                cert,
                                "--tls-auth-clients",
                                "no",
                                NULL};
    if (!redis_server_start(&server, more)) {
        print_message("this redis-server knows no TLS; skipped\n");
        skip();
    }
}

static void connect_to(struct world *w, const char *host, const char *ca)
{
    char url[192];
    snprintf(url, sizeof url, "rediss://%s:%u%s%s", host, (unsigned)server.port,
             ca != NULL ? "?ca=" : "", ca != NULL ? ca : "");
    world_connect(w, url, 5000, 8 << 20);
}

static void assert_works(struct world *w)
{
    struct ask a;
    ask_wait(w, &a, "SET a 1");
    assert_int_equal(a.err, 0);
    assert_string_equal(a.text, "OK");
    world_stop(w);
}

static void assert_refuses(struct world *w, const char *why)
{
    WAIT_FOR(w, w->downs > 0);
    assert_int_equal(w->ups, 0);
    buf_putc(&w->why, '\0');
    if (strstr(w->why.p, why) == NULL)
        fail_msg("`%s` does not say `%s`", w->why.p, why);
    world_stop(w);
    w->downs = 0;
}

static void test_whom_we_trust(void **state)
{
    struct world *w = *state;
    need_server(file("redis.crt"), file("redis.key"));
    connect_to(w, "127.0.0.1", file("other.crt"));
    assert_refuses(w, "self-signed certificate");
    connect_to(w, "127.0.0.1", NULL); /* the system's */
    assert_refuses(w, "self-signed certificate");
    connect_to(w, "127.0.0.1", file("missing.crt"));
    assert_refuses(w, "cannot read the certificate");
    connect_to(w, "127.0.0.1", file("redis.crt"));
    assert_works(w);
    connect_to(w, "localhost", file("redis.crt"));
    assert_works(w);
}

static void test_the_name_has_to_match(void **state)
{
    struct world *w = *state;
    need_server(file("elsewhere.crt"), file("elsewhere.key"));
    connect_to(w, "localhost", file("elsewhere.crt"));
    assert_refuses(w, "hostname mismatch");
    connect_to(w, "127.0.0.1", file("elsewhere.crt"));
    assert_refuses(w, "IP address mismatch");
}

static void test_a_lot_at_once(void **state)
{
    /* More than a record, and more than the kernel takes, both ways. */
    struct world *w = *state;
    struct ask a[3];
    size_t n = 3 << 20;
    char *big = mem_alloc(n);
    memset(big, 'x', n);
    need_server(file("redis.crt"), file("redis.key"));
    connect_to(w, "127.0.0.1", file("redis.crt"));
    redis_subscribe(w->redis, STR("c"));
    WAIT_FOR(w, w->missed_all == 1);
    memset(a, 0, sizeof a);
    const char *words[3][3] = {{"SET", "big"}, {"STRLEN", "big"}, {"GET", "big"}};
    for (int i = 0; i < 3; i++) {
        a[i].words[0] = str_of_cstr(words[i][0]);
        a[i].words[1] = str_of_cstr(words[i][1]);
        a[i].words[2] = str_of(big, n);
        a[i].call = (struct redis_call){
            .args = a[i].words, .n_args = i == 0 ? 3 : 2, .sent = REDIS_ONCE, .done = on_asked};
        redis_call(w->redis, &a[i].call);
    }
    WAIT_FOR(w, a[2].ended);
    assert_string_equal(a[0].text, "OK");
    assert_int_equal(a[1].integer, (long long)n);
    assert_int_equal(a[2].err, 0);
    assert_int_equal(strlen(a[2].text), sizeof a[2].text - 1);
    ask_wait(w, &a[0], "PUBLISH c hello");
    WAIT_FOR(w, str_eq(buf_str(&w->messages), STR("c=hello;")));
    free(big);
}

static void test_no_tls_there(void **state)
{
    struct world *w = *state;
    world_fakes(w, 1);
    w->fakes[0].is_deaf = true;
    server.port = w->fakes[0].port;
    connect_to(w, "127.0.0.1", file("redis.crt"));
    assert_refuses(w, "TLS failed");
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_whom_we_trust),
        TEST(test_the_name_has_to_match),
        TEST(test_a_lot_at_once),
        TEST(test_no_tls_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
