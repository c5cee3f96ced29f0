// SPDX-License-Identifier: Apache-2.0
/* Clients: options, memory, errors, turns, and where they connect to. */
#include "unit/client/client_peer.h"

#include "client/server_url.h"

#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/un.h>

static struct tm_client *client_at(const char *server)
{
    struct tm_options o = TM_OPTIONS_INIT;
    struct tm_client *c = NULL;
    o.server = server;
    assert_int_equal(tm_open(&o, &c), 0);
    return c;
}

/* ---- options ---- */

static void defaults_are_filled_in(void **state)
{
    struct tm_client *c = client_at("http://h");
    assert_int_equal(c->options.connect_timeout_ms, 10000);
    assert_int_equal(c->options.request_timeout_ms, 30000);
    assert_int_equal(c->options.live_timeout_ms, 90000);
    assert_int_equal(c->options.retry_first_ms, 100);
    assert_int_equal(c->options.retry_max_ms, 10000);
    assert_int_equal(c->options.answer_max, 64 << 20);
    assert_int_equal(c->options.retries, 5);
    assert_true(c->options.retry_multiplier == 1.5);
    assert_int_equal(tm_deadline_ms(c), TM_FOREVER);
    assert_int_equal(tm_descriptors(c, NULL, 0), 0);
    assert_int_equal(tm_turn(c), 0);
    assert_int_equal(tm_wait(c, 0), 0);
    assert_string_equal(tm_error(c), "");
    tm_close(c);
    tm_close(NULL);
    assert_int_equal(tm_abi(), TM_ABI);
    assert_string_equal(tm_version(), TIDEMARK_VERSION);
}

/* A program built with a header that knew less. */
static void older_options_work(void **state)
{
    struct tm_options o = {.size = offsetof(struct tm_options, ca_file), .server = "http://h"};
    struct tm_client *c = NULL;
    o.ca_file = (const char *)1; /* what stands behind its end is not looked at */
    o.http = (enum tm_http)99;
    assert_int_equal(tm_open(&o, &c), 0);
    assert_null(c->options.ca_file);
    tm_close(c);
}

static void remember(void *ctx, const char *text)
{
    snprintf(ctx, 256, "%s", text);
}

/* There is no client to ask then. */
static void who_cannot_open_is_told_why(void **state)
{
    struct tm_options o = TM_OPTIONS_INIT;
    struct tm_client *c = NULL;
    char told[256] = "";
    o.notice = remember;
    o.notice_ctx = told;
    o.server = "ftp://h";
    assert_int_equal(tm_open(&o, &c), TM_E_INVALID);
    assert_string_equal(told, "not a server's address: ftp://h");
    o.server = "https://h";
    o.ca_file = "/nowhere/ca.pem";
    assert_int_equal(tm_open(&o, &c), TM_E_TLS);
    assert_string_equal(told, "no certificates can be read from /nowhere/ca.pem");
    assert_null(c);
}

static void options_are_checked(void **state)
{
    struct tm_client *c = NULL;
    struct tm_options o = TM_OPTIONS_INIT;
    assert_int_equal(tm_open(NULL, &c), TM_E_INVALID);
    assert_int_equal(tm_open(&o, &c), TM_E_INVALID);
    o.server = "http://h";
    assert_int_equal(tm_open(&o, NULL), TM_E_INVALID);
    o.token = "a\r\nb: c";
    assert_int_equal(tm_open(&o, &c), TM_E_INVALID);
    o.token = NULL;
    o.http = (enum tm_http)3;
    assert_int_equal(tm_open(&o, &c), TM_E_INVALID);
    o.http = TM_HTTP_AUTO;
    o.live_timeout_ms = -1;
    assert_int_equal(tm_open(&o, &c), TM_E_INVALID);
    o.live_timeout_ms = 0;
    o.size = 0;
    assert_int_equal(tm_open(&o, &c), TM_E_INVALID);
    assert_null(c);
}

/* One setting at a time: what is told of it, NULL: it is taken. A 0 in `as` is a 0. */
static void expect_told(const struct tm_options *as, const char *sentence)
{
    struct tm_options o = *as;
    struct tm_client *c = NULL;
    char told[256] = "";
    o.notice = remember;
    o.notice_ctx = told;
    o.server = "http://h";
    assert_int_equal(tm_open(&o, &c), sentence ? TM_E_INVALID : 0);
    assert_string_equal(told, sentence ? sentence : "");
    tm_close(c);
}

#define expect_strict(name, value, sentence)                                                       \
    do {                                                                                           \
        struct tm_options o_ = TM_OPTIONS_STRICT_INIT;                                             \
        o_.name = value;                                                                           \
        expect_told(&o_, sentence);                                                                \
    } while (0)

static void strict_options_take_no_zero_for_a_default(void **state)
{
    expect_strict(size, sizeof(struct tm_options), NULL);
    expect_strict(connect_timeout_ms, 0, "connect_timeout_ms must be positive");
    expect_strict(request_timeout_ms, 0, "request_timeout_ms must be positive");
    expect_strict(live_timeout_ms, 0, "live_timeout_ms must be positive");
    expect_strict(answer_max, 0, "answer_max must be positive");
    expect_strict(retry_first_ms, 0, "retry_first_ms must be positive");
    expect_strict(retry_max_ms, 0, "retry_max_ms is less than retry_first_ms");
    expect_strict(retry_multiplier, 0, "retry_multiplier is less than 1");
    expect_strict(retries, 0, NULL); /* none */
}

static void retry_options_are_checked(void **state)
{
    struct tm_options o = TM_OPTIONS_INIT;
    expect_strict(retries, -1, "retries cannot be negative");
    expect_strict(retry_first_ms, -100, "retry_first_ms must be positive");
    expect_strict(retry_multiplier, 0.5, "retry_multiplier is less than 1");
    expect_strict(retry_multiplier, strtod("nan", NULL), "retry_multiplier is less than 1");
    expect_strict(retry_multiplier, 1, NULL);
    /* What is set holds against the default of the other ... */
    o.retry_first_ms = 20000;
    expect_told(&o, NULL);
    o.retry_first_ms = 0;
    o.retry_max_ms = 50;
    expect_told(&o, NULL);
    /* ... and two that contradict each other are refused, strict or not. */
    o.retry_first_ms = 1000;
    o.retry_max_ms = 500;
    expect_told(&o, "retry_max_ms is less than retry_first_ms");
}

static void opening_without_memory_leaves_nothing(void **state)
{
    struct tm_options o = TM_OPTIONS_INIT;
    struct memory m;
    size_t n = 1;
    o.server = "https://h:1/p";
    o.token = "t";
    o.allocator = &m.allocator;
    for (;; n++) {
        struct tm_client *c = NULL;
        memory_init(&m, n);
        int err = tm_open(&o, &c);
        assert_int_equal(err, m.failed ? TM_E_NOMEM : 0);
        assert_int_equal(c != NULL, err == 0);
        tm_close(c);
        assert_int_equal(m.live, 0);
        if (!m.failed)
            break;
    }
    assert_true(n > 5);
}

/* ---- places ---- */

struct place_case {
    const char *url;
    bool tls;
    const char *host, *port, *prefix, *authority, *unix_path;
};

static const struct place_case places[] = {
    {"http://h", false, "h", "80", "", "h", NULL},
    {"https://h", true, "h", "443", "", "h", NULL},
    {"HTTPS://Ex-a_m.ple:8443/", true, "Ex-a_m.ple", "8443", "", "Ex-a_m.ple:8443", NULL},
    {"http://h:80", false, "h", "80", "", "h", NULL},
    {"https://h:80", true, "h", "80", "", "h:80", NULL},
    {"http://1.2.3.4:5/a/b//", false, "1.2.3.4", "5", "/a/b", "1.2.3.4:5", NULL},
    {"http://[::1]", false, "::1", "80", "", "[::1]", NULL},
    {"http://[fe80::1]:99/x", false, "fe80::1", "99", "/x", "[fe80::1]:99", NULL},
    {"unix:/run/t.sock", false, "localhost", "80", "", "localhost", "/run/t.sock"},
};

static void places_are_understood(void **state)
{
    struct tm_client *c = client_at("http://h");
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const struct place_case *k = &places[i];
        struct server_url p;
        assert_int_equal(server_url_parse(c, k->url, &p), 0);
        assert_int_equal(p.tls, k->tls);
        assert_string_equal(p.host, k->host);
        assert_string_equal(p.port, k->port);
        assert_string_equal(p.prefix, k->prefix);
        assert_string_equal(p.authority, k->authority);
        if (k->unix_path == NULL)
            assert_null(p.unix_path);
        else
            assert_string_equal(p.unix_path, k->unix_path);
        server_url_free(c, &p);
    }
    tm_close(c);
}

static void other_places_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "h",
        "ftp://h",
        "http://",
        "http:///p",
        "http://h:",
        "http://:1",
        "http://h:0",
        "http://h:x",
        "http://h:65536",
        "http://u@h",
        "http://h/a b",
        "http://h/?q",
        "http://h/#f",
        "http://[::1",
        "http://[::1]x",
        "http://[]",
        "http://h\r\n",
        "http://h:01",
        "http://\xc3\xa9",
        "unix:",
        "http://[::1]:",
        "http://[abc]",
        "http://[1:2:3]",
        "http://[fe80::1%25eth0]",
        "http://h?",
    };
    struct tm_client *c = client_at("http://h");
    char path[200];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct server_url p;
        if (server_url_parse(c, bad[i], &p) != TM_E_INVALID)
            fail_msg("taken: %s", bad[i]);
        assert_non_null(strstr(tm_error(c), "address"));
    }
    memset(path, 'x', sizeof(path));
    memcpy(path, "unix:/", 6);
    path[sizeof(path) - 1] = 0;
    assert_int_equal(server_url_parse(c, path, &(struct server_url){0}), TM_E_INVALID);
    tm_close(c);
}

/* ---- errors ---- */

static void errors_have_sentences(void **state)
{
    assert_string_equal(tm_error_text(0), "success");
    assert_string_equal(tm_error_text(TM_E_NOMEM), "out of memory");
    assert_string_equal(tm_error_text(TM_E_EXPIRED), "it was too long ago");
    assert_string_equal(tm_error_text(-1000), "unknown error");
    assert_string_equal(tm_error(NULL), "");
}

static void sentences_do_not_steer_terminals(void **state)
{
    struct tm_client *c = client_at("http://h");
    assert_int_equal(client_fail(c, TM_E_IO, "a%s\x7fz %d", "\x1b[2J\n", 7), TM_E_IO);
    assert_string_equal(tm_error(c), "a?[2J??z 7");
    client_fail(c, TM_E_IO, "\xc3\xa9 \xc2\x9b \xc2\xa0");
    assert_string_equal(tm_error(c), "\xc3\xa9 ?? \xc2\xa0");
    client_fail(c, TM_E_IO, "a\x9b\xff z");
    assert_string_equal(tm_error(c), "a?? z");
    client_fail(c, TM_E_IO, "again: %s", tm_error(c));
    assert_string_equal(tm_error(c), "again: a?? z");
    /* Cut in the middle of a character. */
    char text[ERROR_SIZE + 3];
    memset(text, 'x', sizeof(text));
    memcpy(text + ERROR_SIZE - 2, "\xc3\xa9", 3);
    client_fail(c, TM_E_IO, "%s", text);
    assert_int_equal(strlen(tm_error(c)), ERROR_SIZE - 2);
    tm_close(c);
}

static void told(void *ctx, const char *text)
{
    snprintf(ctx, 64, "%s", text);
}

static void notices_are_told(void **state)
{
    struct tm_client *c = client_at("http://h");
    char text[64] = "";
    client_notice(c, "nobody hears %d", 1);
    c->options.notice = told;
    c->options.notice_ctx = text;
    client_notice(c, "try %d\n", 2);
    assert_string_equal(text, "try 2?");
    tm_close(c);
}

static void waits_grow_to_their_bound(void **state)
{
    struct tm_client *c = client_at("http://h");
    uint64_t most[40] = {0};
    for (unsigned f = 1; f < 40; f++)
        for (int i = 0; i < 200; i++) {
            uint64_t ms = client_backoff_ms(c, f);
            assert_true(ms <= 10000);
            most[f] = ms > most[f] ? ms : most[f];
        }
    assert_true(most[1] <= 100 && most[1] > 0);
    assert_true(most[2] <= 152);
    assert_true(most[30] > 5000);
    /* What is asked for. */
    assert_int_equal(client_backoff_bound_ms(c, 100, 3), 225);
    c->options.retry_multiplier = 3;
    assert_int_equal(client_backoff_bound_ms(c, 100, 3), 900);
    c->options.retry_multiplier = strtod("inf", NULL);
    assert_int_equal(client_backoff_bound_ms(c, 100, 1), 100);
    assert_int_equal(client_backoff_bound_ms(c, 100, 2), 10000);
    c->options.retry_multiplier = 1;
    assert_int_equal(client_backoff_bound_ms(c, 100, UINT32_MAX), 100);
    c->options.retry_multiplier = 1.5;
    assert_true(client_backoff_ms(c, 0) <= 100);
    assert_true(client_backoff_ms(c, UINT32_MAX) <= 10000);
    tm_close(c);
}

/* ---- bytes ---- */

static void bytes_grow_and_shrink(void **state)
{
    struct tm_client *c = client_at("http://h");
    struct bytes b = {0}, s = {0};
    char expect[4096] = "";
    for (int i = 0; i < 300; i++) {
        char piece[16];
        snprintf(piece, sizeof(piece), "%d,", i);
        strcat(expect, piece);
        assert_int_equal(
            i % 2 ? bytes_put(c, &b, str_of_cstr(piece)) : bytes_printf(c, &b, "%d,", i), 0);
        assert_int_equal(bytes_put_secret(c, &s, str_of_cstr(piece)), 0);
        assert_string_equal(b.p, expect);
        assert_string_equal(s.p, expect);
    }
    bytes_cut(&b, 2);
    assert_string_equal(b.p, expect + 2);
    bytes_cut(&b, b.n);
    assert_int_equal(b.n, 0);
    assert_string_equal(b.p, "");
    assert_int_equal(bytes_put(c, &b, STR_NONE), 0);
    assert_non_null(bytes_room(c, &b, 10000));
    assert_true(b.cap > 10000);
    assert_null(bytes_room(c, &b, SIZE_MAX - 1));
    bytes_free(c, &b);
    bytes_free_secret(c, &s);
    assert_null(b.p);
    tm_close(c);
}

static void bytes_without_memory_stay_as_they_were(void **state)
{
    struct tm_options o = TM_OPTIONS_INIT;
    struct memory m;
    struct tm_client *c = NULL;
    struct bytes b = {0};
    memory_init(&m, 0);
    o.server = "http://h";
    o.allocator = &m.allocator;
    assert_int_equal(tm_open(&o, &c), 0);
    assert_int_equal(bytes_put(c, &b, STR("here")), 0);
    for (int i = 0; i < 3; i++) {
        char large[500];
        memset(large, 'x', sizeof(large));
        large[499] = 0;
        m.fail_at = m.calls + 1;
        assert_int_equal(i == 0   ? bytes_put(c, &b, str_of_cstr(large))
                         : i == 1 ? bytes_printf(c, &b, "%s", large)
                                  : bytes_put_secret(c, &b, str_of_cstr(large)),
                         TM_E_NOMEM);
        assert_string_equal(b.p, "here");
    }
    m.fail_at = m.calls + 1;
    assert_null(client_copy(c, STR("x")));
    bytes_free(c, &b);
    tm_close(c);
    assert_int_equal(m.live, 0);
}

/* ---- waiting ---- */

static bool is_set(void *ctx)
{
    return *(bool *)ctx;
}

struct alarm {
    struct timer timer;
    struct tm_client *client;
    bool rung;
};

static void ring(struct timer *t)
{
    struct alarm *a = container_of(t, struct alarm, timer);
    a->rung = true;
    client_happened(a->client);
}

static void timers_end_waits(void **state)
{
    struct tm_client *c = client_at("http://h");
    struct alarm a = {.client = c};
    timer_init(&a.timer, ring);
    sched_start(&c->sched, &a.timer, 20);
    int deadline = tm_deadline_ms(c);
    assert_true(deadline >= 0 && deadline <= 20 + 2 * SCHED_TICK_MS);
    assert_int_equal(tm_wait(c, TM_FOREVER), 1);
    assert_true(a.rung);
    assert_int_equal(tm_turn(c), 0);

    a.rung = false;
    sched_start(&c->sched, &a.timer, 20);
    assert_int_equal(client_wait_for(c, is_set, &a.rung, TM_FOREVER), 0);
    /* Whoever waited for something else has not seen it. */
    assert_int_equal(tm_deadline_ms(c), 0);
    assert_int_equal(tm_wait(c, 0), 1);

    a.rung = false;
    assert_int_equal(client_wait_for(c, is_set, &a.rung, 20), TM_E_TIMEOUT);
    assert_string_equal(tm_error(c), "timed out");
    assert_int_equal(tm_wait(c, 20), 0);
    tm_close(c);
}

/* ---- connections ---- */

#define OK_ANSWER "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

/* The client is driven by a loop of somebody else's, which knows it by its descriptors alone. */
static void somebody_elses_loop_drives_it(void **state)
{
    struct peer peer;
    struct conn k = CONN_NONE;
    struct asked a;
    int set = epoll_create1(0), registered = -1;
    char *body = calloc(1, 3 << 20);
    peer_init(&peer);
    struct tm_client *c = client_at(peer.url);
    asked_init(&a, c, "POST", HTTP_1);
    a.r.body = str_of(body, 3 << 20);
    assert_int_equal(http_start(&a.r), 0);
    struct patience p = patience_new();
    while (a.overs == 0) {
        struct tm_descriptor d = {.fd = -1};
        struct epoll_event e = {0};
        tm_descriptors(c, &d, 1);
        if (registered >= 0 && registered != d.fd)
            epoll_ctl(set, EPOLL_CTL_DEL, registered, NULL);
        e.events = (d.readable ? EPOLLIN : 0) | (d.writable ? EPOLLOUT : 0);
        if (d.fd >= 0)
            epoll_ctl(set, registered == d.fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, d.fd, &e);
        registered = d.fd;
        /* Nothing is ready and nothing is due: a turn would have nothing to do. */
        if (epoll_wait(set, &e, 1, 0) == 1 || tm_deadline_ms(c) == 0)
            tm_turn(c);
        if (k.fd < 0)
            peer_accept(&peer, &k);
        conn_step(&k);
        if (k.in.n > 3 << 20) {
            k.in.n = 0;
            conn_put(&k, OK_ANSWER);
        }
        patience_spend(&p);
    }
    assert_int_equal(a.err, 0);
    assert_string_equal(a.body.p, "ok");
    asked_deinit(&a);
    tm_close(c);
    conn_close(&k);
    peer_deinit(&peer);
    close(set);
    free(body);
}

/* A folder of its own for a Unix socket. */
static int unix_listen(char *dir, char *url, size_t size, int backlog)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    assert_non_null(mkdtemp(dir));
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/s", dir);
    snprintf(url, size, "unix:%s", addr.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

static void unix_remove(int fd, const char *dir, const char *url)
{
    close(fd);
    unlink(url + 5);
    rmdir(dir);
}

static void unix_sockets_work(void **state)
{
    char dir[] = "/tmp/tidemark-test-XXXXXX", url[128];
    struct conn k = CONN_NONE;
    struct asked a;
    struct peer peer = {.fd = unix_listen(dir, url, sizeof(url), 5), .left = SIZE_MAX};
    struct tm_client *c = client_at(url);
    asked_init(&a, c, "GET", HTTP_1);
    assert_int_equal(http_start(&a.r), 0);
    struct patience p = patience_new();
    while (a.overs == 0) {
        tm_turn(c);
        if (k.fd < 0)
            peer_accept(&peer, &k);
        conn_step(&k);
        if (k.in.n > 0) {
            assert_non_null(strstr(k.in.p, "\r\nhost: localhost\r\n"));
            k.in.n = 0;
            conn_put(&k, OK_ANSWER);
        }
        patience_spend(&p);
    }
    assert_int_equal(a.err, 0);
    asked_deinit(&a);
    tm_close(c);
    conn_close(&k);
    unix_remove(peer.fd, dir, url);
}

static void connecting_takes_only_so_long(void **state)
{
    char dir[] = "/tmp/tidemark-test-XXXXXX", url[128];
    struct asked a;
    int fd = unix_listen(dir, url, sizeof(url), 0);
    struct tm_client *other = client_at(url), *c = client_at(url);
    struct asked filler;
    asked_init(&filler, other, "GET", HTTP_1);
    assert_int_equal(http_start(&filler.r), 0);
    tm_turn(other); /* nobody accepts: the queue is full now */
    c->options.connect_timeout_ms = 60;
    asked_init(&a, c, "GET", HTTP_1);
    assert_int_equal(http_start(&a.r), 0);
    while (a.overs == 0)
        assert_int_equal(tm_wait(c, 10000), 1);
    assert_int_equal(a.err, TM_E_TIMEOUT);
    asked_deinit(&a);
    asked_deinit(&filler);
    tm_close(c);
    tm_close(other);
    unix_remove(fd, dir, url);
}

static void what_cannot_be_reached_is_said(void **state)
{
    static const char *const nowhere[] = {"unix:/nonexistent/socket", "http://nowhere.invalid:1"};
    for (int i = 0; i < 2; i++) {
        struct asked a;
        struct tm_client *c = client_at(nowhere[i]);
        asked_init(&a, c, "GET", HTTP_ANY);
        assert_int_equal(http_start(&a.r), 0);
        assert_int_equal(a.overs, 0);
        while (a.overs == 0)
            assert_int_equal(tm_wait(c, 20000), 1);
        assert_int_equal(a.err, TM_E_NETWORK);
        assert_non_null(strstr(a.r.message, i == 0 ? "/nonexistent/socket" : "nowhere.invalid"));
        asked_deinit(&a);
        tm_close(c);
    }
}

/* More connections than are polled in one go, and more than are kept afterwards. */
static void many_connections_work(void **state)
{
    enum { N = 150 };
    struct peer peer;
    static struct conn conns[N];
    static struct asked asked[N];
    unsigned over = 0;
    peer_init(&peer);
    struct tm_client *c = client_at(peer.url);
    for (int i = 0; i < N; i++) {
        conns[i] = (struct conn)CONN_NONE;
        asked_init(&asked[i], c, "GET", HTTP_1);
        assert_int_equal(http_start(&asked[i].r), 0);
    }
    struct patience p = patience_new();
    while (over < N) {
        tm_wait(c, 1);
        while (peer.accepted < N && peer_accept(&peer, &conns[peer.accepted]))
            continue;
        for (int i = 0; i < N; i++) {
            conn_step(&conns[i]);
            if (peer.accepted == N && conns[i].in.n > 0) {
                conns[i].in.n = 0;
                conn_put(&conns[i], OK_ANSWER);
            }
        }
        over = 0;
        for (int i = 0; i < N; i++)
            over += asked[i].overs;
        patience_spend(&p);
    }
    tm_turn(c);
    assert_true(tm_descriptors(c, NULL, 0) <= 8);
    assert_true(tm_descriptors(c, NULL, 0) > 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(asked[i].err, 0);
        asked_deinit(&asked[i]);
        conn_close(&conns[i]);
    }
    tm_close(c);
    peer_deinit(&peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_filled_in),
        cmocka_unit_test(older_options_work),
        cmocka_unit_test(who_cannot_open_is_told_why),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(strict_options_take_no_zero_for_a_default),
        cmocka_unit_test(retry_options_are_checked),
        cmocka_unit_test(opening_without_memory_leaves_nothing),
        cmocka_unit_test(places_are_understood),
        cmocka_unit_test(other_places_are_refused),
        cmocka_unit_test(errors_have_sentences),
        cmocka_unit_test(sentences_do_not_steer_terminals),
        cmocka_unit_test(notices_are_told),
        cmocka_unit_test(waits_grow_to_their_bound),
        cmocka_unit_test(bytes_grow_and_shrink),
        cmocka_unit_test(bytes_without_memory_stay_as_they_were),
        cmocka_unit_test(timers_end_waits),
        cmocka_unit_test(somebody_elses_loop_drives_it),
        cmocka_unit_test(unix_sockets_work),
        cmocka_unit_test(connecting_takes_only_so_long),
        cmocka_unit_test(what_cannot_be_reached_is_said),
        cmocka_unit_test(many_connections_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
