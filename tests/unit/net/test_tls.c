// SPDX-License-Identifier: Apache-2.0
/* TLS connections: what is the same as without, and what peers can do wrong. */
#include "base/err.h"
#include "net/tls_hello.h"
#include "net/tls_tickets.h"
#include "unit/net/tls_world.h"

#include <signal.h>

#define BIG (1 << 20)

static char pattern_at(size_t i)
{
    return (char)(i * 31 + i / 251);
}

static char *make_big(void)
{
    char *p = mem_alloc(BIG);
    for (size_t i = 0; i < BIG; i++)
        p[i] = pattern_at(i);
    return p;
}

static void assert_pattern(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != pattern_at(i))
            fail_msg("byte %zu of %zu is wrong", i, n);
}

/* ---- what works ---- */

static void test_hands_are_shaken(void **state)
{
    struct world *w = *state;
    const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (int i = 0; i < 2; i++) {
        char got[32];
        int error;
        SSL_CTX_set_min_proto_version(w->client_context, versions[i]);
        SSL_CTX_set_max_proto_version(w->client_context, versions[i]);
        SSL_CTX_set_alpn_protos(w->client_context, (const unsigned char *)ALPN, sizeof ALPN - 1);
        assert_true(open_client(w, 0));
        assert_int_equal(SSL_version(w->client), versions[i]);
        assert_true(conn_is_ready(&w->end.conn));
        assert_true(str_eq(conn_protocol(&w->end.conn), STR("h2")));
        assert_int_equal(SSL_write(w->client, "ask", 3), 3);
        turns(w, 2);
        assert_true(str_eq(w->end.got, STR("ask")));
        conn_put(&w->end.conn, slice_static(STR("ans")));
        conn_put(&w->end.conn, slice_static(STR("wer")));
        turns(w, 2);
        assert_int_equal(client_read(w->client, got, sizeof got, &error), 6);
        assert_memory_equal(got, "answer", 6);
        assert_int_equal(error, SSL_ERROR_WANT_READ);
        close_client(w);
        close_end(w, &w->end);
    }
}

static void test_large_both_ways(void **state)
{
    /* Both at once, through a socket that takes little. */
    struct world *w = *state;
    char *big = make_big(), *got = mem_alloc(BIG);
    size_t put = 0, sent = 0, back = 0, n;
    int error;
    assert_true(open_client(w, 4096));
    w->end.read_at_once = 5000;
    for (int i = 0; i < 20000 && (w->end.got.n < BIG || back < BIG); i++) {
        size_t piece = 700 + (size_t)i % 3 * 9000; /* little, half a record, more than one */
        for (; put < BIG && conn_pending(&w->end.conn) < 60000; put += piece) {
            piece = piece < BIG - put ? piece : BIG - put;
            conn_put(&w->end.conn, slice_static(str_of(big + put, piece)));
        }
        if (sent < BIG && SSL_write_ex(w->client, big + sent, BIG - sent, &n) == 1)
            sent += n;
        turns(w, 1);
        back += client_read(w->client, got + back, BIG - back, &error);
    }
    assert_int_equal(back, BIG);
    assert_pattern(got, back);
    assert_int_equal(w->end.got.n, BIG);
    assert_pattern(w->end.got.p, BIG);
    assert_true(w->end.stalled > 0);
    free(big);
    free(got);
}

static void test_more_is_put_meanwhile(void **state)
{
    /* A record that waits for the kernel is given again from another place. */
    struct world *w = *state;
    char *big = make_big(), got[24000];
    size_t n = 0;
    int error;
    assert_true(open_client(w, 4096));
    conn_put(&w->end.conn, slice_static(str_of(big, 12000)));
    turns(w, 1);
    assert_true(w->end.conn.blocked);
    for (size_t at = 12000; at < sizeof got; at += 4000)
        conn_put(&w->end.conn, slice_static(str_of(big + at, 4000)));
    for (int i = 0; i < 100 && n < sizeof got; i++) {
        n += client_read(w->client, got + n, sizeof got - n, &error);
        turns(w, 1);
    }
    assert_int_equal(n, sizeof got);
    assert_pattern(got, n);
    free(big);
}

static void test_byte_by_byte(void **state)
{
    struct world *w = *state;
    char chunk[4096];
    int n;
    open_end(w, &w->end, &w->peer, 0);
    w->client = SSL_new(w->client_context);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    SSL_set_bio(w->client, in, out);
    SSL_set_connect_state(w->client);
    bool said = false;
    for (int i = 0; i < 20 && w->end.got.n < 5; i++) {
        if (SSL_do_handshake(w->client) == 1 && !said) {
            assert_int_equal(SSL_write(w->client, "hello", 5), 5);
            said = true;
        }
        while ((n = BIO_read(out, chunk, sizeof chunk)) > 0)
            for (int k = 0; k < n; k++) {
                assert_int_equal(write(w->peer, chunk + k, 1), 1);
                turns(w, 1);
            }
        while ((n = (int)read(w->peer, chunk, sizeof chunk)) > 0)
            BIO_write(in, chunk, n);
    }
    assert_true(str_eq(w->end.got, STR("hello")));
    assert_int_equal(w->end.failed, 0);
}

static void test_put_before_hands_are_shaken(void **state)
{
    struct world *w = *state;
    char got[32];
    int error;
    open_end(w, &w->end, &w->peer, 0);
    conn_put(&w->end.conn, slice_static(STR("too many")));
    turns(w, 3);
    assert_int_equal(w->end.stalled, 1); /* so that a timer runs */
    assert_int_equal(w->end.drained, 0);
    assert_false(conn_is_ready(&w->end.conn));
    w->client = client_on(w, w->peer);
    assert_true(shake(w, w->client));
    assert_int_equal(client_read(w->client, got, sizeof got, &error), 8);
    assert_memory_equal(got, "too many", 8);
    assert_true(w->end.drained > 0);
}

static void test_bytes_that_nobody_wants_yet(void **state)
{
    /* They come with the end of the handshake, and the socket does not report them again. */
    struct world *w = *state;
    open_end(w, &w->end, &w->peer, 0);
    conn_want_read(&w->end.conn, false);
    w->client = client_on(w, w->peer);
    while (SSL_do_handshake(w->client) != 1)
        turns(w, 1);
    assert_int_equal(SSL_write(w->client, "first", 5), 5);
    assert_int_equal(SSL_write(w->client, "second", 6), 6);
    turns(w, 5);
    assert_int_equal(w->end.got.n, 0);
    w->end.read_at_once = 3; /* and not all of a record at once */
    conn_want_read(&w->end.conn, true);
    turns(w, 2);
    assert_true(str_eq(w->end.got, STR("firstsecond")));
}

static void test_new_keys_on_the_way(void **state)
{
    struct world *w = *state;
    char got[32];
    int error;
    assert_true(open_client(w, 0));
    assert_int_equal(SSL_key_update(w->client, SSL_KEY_UPDATE_REQUESTED), 1);
    assert_int_equal(SSL_write(w->client, "with new keys", 13), 13);
    turns(w, 3);
    assert_true(str_eq(w->end.got, STR("with new keys")));
    conn_put(&w->end.conn, slice_static(STR("and back")));
    turns(w, 2);
    assert_int_equal(client_read(w->client, got, sizeof got, &error), 8);
    assert_memory_equal(got, "and back", 8);
}

static void test_others_have_their_turn(void **state)
{
    /* Many hellos at once are answered a few a turn. Some of those who wait are given up, one
     * leaves, and all others have their turn in the end. */
    struct world *w = *state;
    enum { N = 20, GIVEN_UP = 17, LEAVES = 18, LAST = 19 };
    struct end ends[N];
    int peers[N], answered = 0;
    SSL *clients[N];
    memset(ends, 0, sizeof ends);
    for (int i = 0; i < N; i++) {
        open_end(w, &ends[i], &peers[i], 0);
        clients[i] = client_on(w, peers[i]);
        assert_int_equal(SSL_do_handshake(clients[i]), -1); /* its hello is out */
    }
    turns(w, 1);
    for (int i = 0; i < N; i++)
        answered += SSL_do_handshake(clients[i]) == 1;
    assert_in_range(answered, 1, N / 2);
    close_end(w, &ends[GIVEN_UP]);
    close(peers[LEAVES]);
    conn_want_read(&ends[LAST].conn, false); /* which must not put it in line twice */
    conn_want_read(&ends[LAST].conn, true);
    for (int i = 0; i < N; i++)
        assert_int_equal(i == LEAVES || shake(w, clients[i]), i != GIVEN_UP);
    for (int i = 0; i < N; i++) {
        SSL_free(clients[i]);
        if (i != LEAVES)
            close(peers[i]);
        if (i == GIVEN_UP)
            continue;
        assert_int_equal(ends[i].failed, i == LEAVES);
        assert_true(i == LEAVES || conn_is_ready(&ends[i].conn));
        close_end(w, &ends[i]);
    }
}

/* ---- ends ---- */

static void test_peer_says_its_end(void **state)
{
    struct world *w = *state;
    char got[32];
    int error;
    assert_true(open_client(w, 0));
    assert_int_equal(SSL_write(w->client, "last words", 10), 10);
    assert_true(SSL_shutdown(w->client) >= 0); /* in the same read, and the socket stays open */
    turns(w, 3);
    assert_true(str_eq(w->end.got, STR("last words")));
    assert_true(w->end.at_end);
    assert_true(w->end.conn.ended);
    conn_put(&w->end.conn, slice_static(STR("an answer"))); /* it can still be given */
    turns(w, 2);
    SSL_set_shutdown(w->client, 0);
    assert_int_equal(client_read(w->client, got, sizeof got, &error), 9);
}

static void test_peer_is_cut_off(void **state)
{
    struct world *w = *state;
    char got[32];
    int error;
    assert_true(open_client(w, 0));
    client_read(w->client, got, sizeof got, &error); /* unread tickets would make it a reset */
    assert_int_equal(SSL_write(w->client, "half a requ", 11), 11);
    close(w->peer);
    w->peer = -1;
    turns(w, 3);
    assert_int_equal(w->end.got.n, 11);
    assert_false(w->end.at_end);
    assert_true(w->end.gone || w->end.failed > 0);
    assert_traced(w, "TLS with a peer failed: unexpected eof");
}

static void test_our_end_is_said(void **state)
{
    struct world *w = *state;
    char got[32];
    int error;
    assert_true(open_client(w, 0));
    conn_put(&w->end.conn, slice_static(STR("all")));
    turns(w, 2);
    conn_shutdown_write(&w->end.conn);
    turns(w, 2);
    assert_int_equal(client_read(w->client, got, sizeof got, &error), 3);
    assert_int_equal(error, SSL_ERROR_ZERO_RETURN);
    assert_int_equal(SSL_write(w->client, "thanks", 6), 6); /* what still comes can be read */
    conn_shutdown_write(&w->end.conn);
    turns(w, 2);
    assert_true(str_eq(w->end.got, STR("thanks")));
}

/* Puts pieces of 100 bytes, a turn each, until there are n or one finds no room. How many went. */
static size_t fill(struct world *w, const char *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        conn_put(&w->end.conn, slice_static(str_of(from + i * 100, 100)));
        turns(w, 1);
        if (w->end.conn.blocked)
            return i;
    }
    return n;
}

static void test_our_end_waits_for_room(void **state)
{
    /* The kernel has just taken the last of the answer, and takes no more. */
    struct world *w = *state;
    char *big = make_big(), *got = mem_alloc(BIG);
    int error = SSL_ERROR_NONE;
    size_t n = 0;
    assert_true(open_client(w, 4096));
    size_t room = fill(w, big, BIG / 100);
    assert_in_range(room, 1, 1000);
    close_client(w);
    close_end(w, &w->end);

    assert_true(open_client(w, 4096));
    assert_int_equal(fill(w, big, room), room);
    assert_int_equal(conn_pending(&w->end.conn), 0);
    conn_shutdown_write(&w->end.conn);
    assert_true(w->end.conn.blocked);
    for (int i = 0; i < 100 && error != SSL_ERROR_ZERO_RETURN; i++) {
        n += client_read(w->client, got + n, BIG - n, &error);
        turns(w, 1);
    }
    assert_int_equal(error, SSL_ERROR_ZERO_RETURN);
    assert_int_equal(n, room * 100);
    assert_pattern(got, n);
    free(big);
    free(got);
}

static void test_closed_without_a_word_is_no_end(void **state)
{
    /* Who was cut off in the middle must be able to tell. */
    struct world *w = *state;
    char got[32];
    int error;
    assert_true(open_client(w, 0));
    conn_put(&w->end.conn, slice_static(STR("some")));
    turns(w, 2);
    close_end(w, &w->end);
    assert_int_equal(client_read(w->client, got, sizeof got, &error), 4);
    assert_int_not_equal(error, SSL_ERROR_ZERO_RETURN);
    assert_int_not_equal(error, SSL_ERROR_WANT_READ);
}

/* ---- what peers can do wrong ---- */

/* A client's side of a conversation, cut after so many bytes. True: it got further than that. */
static bool vanish_after(struct world *w, size_t n, bool tls12)
{
    size_t sent = 0;
    char chunk[8192];
    int got;
    bool said = false;
    SSL_CTX_set_max_proto_version(w->client_context, tls12 ? TLS1_2_VERSION : TLS1_3_VERSION);
    open_end(w, &w->end, &w->peer, 0);
    w->client = SSL_new(w->client_context);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    SSL_set_bio(w->client, in, out);
    SSL_set_connect_state(w->client);
    for (int i = 0; i < 8 && sent < n; i++) {
        if (SSL_do_handshake(w->client) == 1 && !said)
            said = SSL_write(w->client, "a request", 9) == 9;
        while (sent < n &&
               (got = BIO_read(out, chunk, (int)(n - sent < 8192 ? n - sent : 8192))) > 0) {
            assert_int_equal(write(w->peer, chunk, (size_t)got), got);
            sent += (size_t)got;
        }
        turns(w, 2);
        while ((got = (int)read(w->peer, chunk, sizeof chunk)) > 0)
            BIO_write(in, chunk, got);
    }
    close_client(w);
    turns(w, 3);
    assert_true(w->end.failed > 0 || w->end.gone); /* and nothing leaks */
    assert_false(w->end.at_end);
    close_end(w, &w->end);
    return sent == n;
}

static void test_peers_that_vanish(void **state)
{
    struct world *w = *state;
    for (int tls12 = 0; tls12 < 2; tls12++) {
        size_t n = 0;
        while (vanish_after(w, n, tls12))
            n += n < 20 ? 1 : 13;
        assert_in_range(n, 200, 5000);
    }
}

static void expect_refused(struct world *w, const void *bytes, size_t n, const char *why)
{
    open_end(w, &w->end, &w->peer, 0);
    assert_int_equal(write(w->peer, bytes, n), (ssize_t)n);
    turns(w, 3);
    assert_int_equal(w->end.failed, 1);
    assert_int_equal(w->end.got.n, 0);
    assert_traced(w, why);
    close_end(w, &w->end);
    close(w->peer);
    w->peer = -1;
}

static void test_garbage(void **state)
{
    struct world *w = *state;
    const char *plain = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    expect_refused(w, plain, strlen(plain), "does not begin with a TLS hello");
    char noise[600];
    for (size_t seed = 1; seed < 40; seed++) {
        for (size_t i = 0; i < sizeof noise; i++)
            noise[i] = (char)((i + 7) * (seed * 2654435761u) >> 13);
        expect_refused(w, noise, sizeof noise, "TLS with a peer failed");
    }
    char hello[200] = {22, 3, 1, 0, 195, 1, 0, 0, 191, 3, 3}; /* well framed, and senseless */
    expect_refused(w, hello, sizeof hello, "TLS with a peer failed");
}

static void test_hello_that_claims_too_much(void **state)
{
    struct world *w = *state;
    const unsigned char large[] = {22, 3, 1, 1, 0, 1, 1, 0, 0, 3, 3};
    expect_refused(w, large, sizeof large, "its hello is too large");
}

static const char *take_all(struct tls_hello *h, const void *bytes, size_t n, size_t step,
                            bool tls12)
{
    const char *p = bytes;
    for (size_t at = 0; at < n; at += step) {
        const char *why = tls_hello_take(h, str_of(p + at, step < n - at ? step : n - at), tls12);
        if (why != NULL)
            return why;
    }
    return NULL;
}

static void test_hellos_in_pieces(void **state)
{
    /* A small hello over three records, a change of ciphers, a second one that is too large: its
     * length is in the last byte. */
    const unsigned char two[] = {22, 3, 1, 0,  2, 1, 0, 22, 3, 1,  0, 4, 0, 3, 9, 9, 22, 3, 1,
                                 0,  1, 9, 20, 3, 3, 0, 1,  1, 22, 3, 3, 0, 9, 1, 0, 64, 1};
    for (size_t step = 1; step <= sizeof two; step++) {
        struct tls_hello h = {0}, early = {0}, old = {0};
        assert_string_equal(take_all(&h, two, sizeof two, step, false), "its hello is too large");
        assert_null(take_all(&early, two, sizeof two - 1, step, false));
        assert_null(take_all(&old, two, sizeof two, step, true)); /* that would be ciphertext */
    }
    const unsigned char most[] = {22, 3, 1, 0, 4, 1, 0, 64, 0};
    const unsigned char other[] = {22, 3, 1, 0, 4, 16, 255, 255, 255}; /* OpenSSL knows its bound */
    const unsigned char old_hello[] = {0x80, 0x2e, 1, 3, 1};
    struct tls_hello h = {0}, o = {0}, v2 = {0};
    assert_null(take_all(&h, most, sizeof most, 3, false));
    assert_null(take_all(&o, other, sizeof other, 3, false));
    assert_non_null(take_all(&v2, old_hello, sizeof old_hello, 5, false));
}

static void test_protocols_that_are_not_spoken(void **state)
{
    struct world *w = *state;
    const unsigned char other[] = "\x03"
                                  "ftp";
    SSL_CTX_set_alpn_protos(w->client_context, other, sizeof other - 1);
    assert_false(open_client(w, 0));
    turns(w, 2);
    assert_int_equal(w->end.failed, 1);
    assert_traced(w, "no application protocol");
}

static void test_client_without_protocols(void **state)
{
    struct world *w = *state;
    assert_true(open_client(w, 0));
    assert_int_equal(conn_protocol(&w->end.conn).n, 0);
}

static void test_old_versions(void **state)
{
    struct world *w = *state;
    SSL_CTX_set_security_level(w->client_context, 0);
    SSL_CTX_set_min_proto_version(w->client_context, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(w->client_context, TLS1_1_VERSION);
    assert_false(open_client(w, 0));
    turns(w, 2);
    assert_int_equal(w->end.failed, 1);
}

static void test_weak_ciphers(void **state)
{
    struct world *w = *state;
    SSL_CTX_set_max_proto_version(w->client_context, TLS1_2_VERSION);
    SSL_CTX_set_cipher_list(w->client_context, "ECDHE-ECDSA-AES128-SHA256:AES128-GCM-SHA256");
    assert_false(open_client(w, 0));
    turns(w, 2);
    assert_traced(w, "no shared cipher");
}

static void test_no_renegotiation(void **state)
{
    struct world *w = *state;
    SSL_CTX_set_max_proto_version(w->client_context, TLS1_2_VERSION);
    assert_true(open_client(w, 0));
    assert_int_equal(SSL_renegotiate(w->client), 1);
    assert_false(shake(w, w->client));
}

/* ---- tickets ---- */

static int keep_session(SSL *ssl, SSL_SESSION *session)
{
    SSL_SESSION **kept = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    SSL_SESSION_free(*kept);
    *kept = session;
    return 1;
}

static bool comes_back(struct world *w, SSL_SESSION **session)
{
    char got[8];
    int error;
    open_end(w, &w->end, &w->peer, 0);
    w->client = client_on(w, w->peer);
    if (*session != NULL)
        SSL_set_session(w->client, *session);
    assert_true(shake(w, w->client));
    client_read(w->client, got, sizeof got, &error); /* which takes the tickets */
    bool reused = SSL_session_reused(w->client);
    SSL_shutdown(w->client); /* a session that ends badly is not used again */
    close_client(w);
    close_end(w, &w->end);
    return reused;
}

static void test_tickets(void **state)
{
    struct world *w = *state;
    char why[512];
    for (int tls12 = 0; tls12 < 2; tls12++) {
        SSL_SESSION *session = NULL;
        SSL_CTX_set_max_proto_version(w->client_context, tls12 ? TLS1_2_VERSION : TLS1_3_VERSION);
        SSL_CTX_set_session_cache_mode(w->client_context, SSL_SESS_CACHE_CLIENT);
        SSL_CTX_set_app_data(w->client_context, &session);
        SSL_CTX_sess_set_new_cb(w->client_context, keep_session);
        assert_false(comes_back(w, &session));
        assert_non_null(session);
        assert_true(comes_back(w, &session));
        assert_true(comes_back(w, &session));
        assert_int_equal(tls_reload(w->tls, why, sizeof why), 0);
        assert_true(comes_back(w, &session)); /* a renewed certificate costs nobody a handshake */
        tls_unref(w->tls);
        w->tls = world_tls(w, why, sizeof why);
        assert_false(comes_back(w, &session)); /* another server does not know the key */
        SSL_SESSION_free(session);
    }
}

static void test_ticket_keys_change(void **state)
{
    struct tls_tickets t = {0};
    const int64_t half = TLS_TICKET_KEY_S;
    uint8_t first[16], second[16];
    assert_null(tls_tickets_opening(&t, (const uint8_t[16]){0}, 1));
    memcpy(first, tls_tickets_sealing(&t, 1)->name, sizeof first);
    assert_memory_equal(tls_tickets_sealing(&t, half)->name, first, sizeof first);
    memcpy(second, tls_tickets_sealing(&t, half + 1)->name, sizeof second);
    assert_memory_not_equal(second, first, sizeof first);
    assert_ptr_equal(tls_tickets_opening(&t, first, half + 1), &t.keys[1]);
    assert_ptr_equal(tls_tickets_opening(&t, second, half + 1), &t.keys[0]);
    assert_null(tls_tickets_opening(&t, first, 2 * half + 1));
    tls_tickets_sealing(&t, 10 * half);
    assert_null(tls_tickets_opening(&t, first, 10 * half));
    assert_null(tls_tickets_opening(&t, second, 10 * half)); /* a long silence does not keep one */
    tls_tickets_wipe(&t);
    assert_null(tls_tickets_opening(&t, second, 10 * half));
}

/* ---- files ---- */

static void assert_named(struct world *w, const char *name)
{
    X509 *x = SSL_get1_peer_certificate(w->client);
    char text[64] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_commonName, text, sizeof text);
    X509_free(x);
    assert_string_equal(text, name);
}

static void test_reload(void **state)
{
    struct world *w = *state;
    struct end late = {0};
    int peer;
    char why[512];
    assert_true(open_client(w, 0));
    assert_named(w, "first");
    make_pair(w, "second");
    assert_int_equal(tls_reload(w->tls, why, sizeof why), 0);
    SSL *before = w->client;
    assert_int_equal(SSL_write(before, "still here", 10), 10);
    turns(w, 2);
    assert_true(str_eq(w->end.got, STR("still here")));

    open_end(w, &late, &peer, 0);
    w->client = client_on(w, peer);
    assert_true(shake(w, w->client));
    assert_named(w, "second");
    SSL_free(w->client);
    w->client = before;
    close(peer);
    close_end(w, &late);
}

static void expect_kept(struct world *w, const char *sentence)
{
    char why[512] = "";
    assert_int_equal(tls_reload(w->tls, why, sizeof why), ERR_SYNTAX);
    if (strstr(why, sentence) == NULL)
        fail_msg("no \"%s\" in: %s", sentence, why);
    assert_null(world_tls(w, why, sizeof why));
    assert_true(open_client(w, 0));
    assert_named(w, "first");
    close_client(w);
    close_end(w, &w->end);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_bad_files(void **state)
{
    struct world *w = *state;
    EVP_PKEY *key = make_key(), *other = make_key();
    write_key(w->key, other, NULL);
    write_cert(w->cert, key, "changed", -60, 3600);
    expect_kept(w, "does not belong to the certificate in");
    write_key(w->key, key, "secret");
    expect_kept(w, "is protected by a password");
    write_text(w->key, "this is no key\n");
    expect_kept(w, "there is no key in PEM form in");
    write_text(w->cert, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    expect_kept(w, "there is no certificate in PEM form in");
    write_text(w->cert, "");
    expect_kept(w, "there is no certificate in PEM form in");
    unlink(w->cert);
    expect_kept(w, "No such file or directory");
    write_cert(w->cert, key, "changed", -60, 3600);
    unlink(w->key);
    expect_kept(w, "cannot read the key");
    EVP_PKEY_free(key);
    EVP_PKEY_free(other);
}

static void test_dates(void **state)
{
    struct world *w = *state;
    EVP_PKEY *key = make_key();
    char why[512] = "";
    write_key(w->key, key, NULL);
    write_cert(w->cert, key, "old", -7200, -3600);
    assert_int_equal(tls_reload(w->tls, why, sizeof why), 0);
    assert_traced(w, "has expired; clients will refuse it");
    write_cert(w->cert, key, "early", 3600, 7200);
    assert_int_equal(tls_reload(w->tls, why, sizeof why), 0);
    assert_traced(w, "is not valid yet");
    assert_true(open_client(w, 0));
    assert_named(w, "early");
    EVP_PKEY_free(key);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    signal(SIGPIPE, SIG_IGN); /* of the client, whose library raises it */
    const struct CMUnitTest tests[] = {
        T(test_hands_are_shaken),
        T(test_large_both_ways),
        T(test_more_is_put_meanwhile),
        T(test_byte_by_byte),
        T(test_put_before_hands_are_shaken),
        T(test_bytes_that_nobody_wants_yet),
        T(test_new_keys_on_the_way),
        T(test_others_have_their_turn),
        T(test_peer_says_its_end),
        T(test_peer_is_cut_off),
        T(test_our_end_is_said),
        T(test_our_end_waits_for_room),
        T(test_closed_without_a_word_is_no_end),
        T(test_peers_that_vanish),
        T(test_garbage),
        T(test_hello_that_claims_too_much),
        cmocka_unit_test(test_hellos_in_pieces),
        T(test_protocols_that_are_not_spoken),
        T(test_client_without_protocols),
        T(test_old_versions),
        T(test_weak_ciphers),
        T(test_no_renegotiation),
        T(test_tickets),
        cmocka_unit_test(test_ticket_keys_change),
        T(test_reload),
        T(test_bad_files),
        T(test_dates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
