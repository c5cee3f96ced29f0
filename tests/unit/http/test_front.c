// SPDX-License-Identifier: Apache-2.0
#include "http/front.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/origin.h"
#include "http/peer.h"

#include <netinet/in.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define HEADERS_MAX 8

/* ---- one request ---- */

struct world {
    struct http http;
    struct peer peer;
    struct header headers[HEADERS_MAX];
    struct request request;
    struct exchange *x;
    int status; /* of the answer; 0: it went on to its handler */
    char answer[4096];
};

static void world_begin(struct exchange *x, int64_t length)
{
    struct world *w = x->transport;
    size_t n = 0;
    w->status = x->status;
    for (const struct exchange_header *h = x->headers; h != NULL; h = h->next)
        n += (size_t)snprintf(w->answer + n, sizeof w->answer - n, "%.*s: %.*s\n",
                              (int)h->header.name.n, h->header.name.p, (int)h->header.value.n,
                              h->header.value.p);
}

static void world_put(struct exchange *x, struct slice s)
{
    struct world *w = x->transport;
    size_t n = strlen(w->answer);
    snprintf(w->answer + n, sizeof w->answer - n, "%.*s", (int)s.bytes.n, s.bytes.p);
}

static void world_end(struct exchange *x)
{
    exchange_finish(x, false);
}

static const struct peer *world_peer(const struct exchange *x)
{
    return &((struct world *)x->transport)->peer;
}

static const struct transport_ops via = {
    .begin = world_begin, .put = world_put, .end = world_end, .peer = world_peer};

static const struct surface_share share = {.exposed = STR_INIT("ETag"),
                                           .methods = STR_INIT("GET, POST"),
                                           .headers = STR_INIT("Stream-Seq"),
                                           .keep_s = STR_INIT(SURFACE_KEEP_S)};
static const struct surface_rule rules[] = {
    {"a.read", "GET HEAD", "{name...}", ACCESS_VERB_READ, ACCESS_STREAM, 0, NULL},
    {"a.write", "POST", "{name...}", ACCESS_VERB_APPEND, ACCESS_STREAM, 0, NULL},
    {0},
};
static const struct surface_rule admin_rules[] = {
    {"b.read", "GET HEAD", "", ACCESS_VERB_METRICS, ACCESS_SERVER, RULE_ADMIN, NULL},
    {0},
};
static const struct surface_rule mixed_rules[] = {
    {"c.list", "GET HEAD", "", ACCESS_VERB_ADMIN, ACCESS_SERVER, RULE_ADMIN, NULL},
    {"c.one", "GET HEAD", "{name...}", ACCESS_VERB_READ, ACCESS_STREAM, 0, NULL},
    {0},
};
static const struct surface shared = {.path = "/a/", .rules = rules, .share = &share};
static const struct surface strict = {
    .path = "/s/", .rules = rules, .share = &share, .strict = true};
static const struct surface admin = {.path = "/b", .rules = admin_rules};
static const struct surface mixed = {.path = "/c", .rules = mixed_rules};
static const struct surface probe = {.path = "/p", .rules = rules, .probe = true};

static void test_front_answer(void *ctx, struct exchange *x)
{
    exchange_send(x, STR("handled"));
}

static void world_init(struct world *w)
{
    static const struct surface *const all[] = {&shared, &strict, &admin, &mixed, &probe};
    memset(w, 0, sizeof *w);
    http_init(&w->http, NULL, NULL, &(struct http_limits){0});
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        http_mount(&w->http, all[i], test_front_answer, w);
}

static enum method method_of(const char *text)
{
    static const char *const texts[] = {
        [METHOD_GET] = "GET",         [METHOD_HEAD] = "HEAD",     [METHOD_POST] = "POST",
        [METHOD_PUT] = "PUT",         [METHOD_DELETE] = "DELETE", [METHOD_PATCH] = "PATCH",
        [METHOD_OPTIONS] = "OPTIONS", [METHOD_OTHER] = "QUERY"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i], text) == 0)
            return (enum method)i;
    return METHOD_OTHER;
}

/* headers: "name: value" with lines between them, the first of which may be `admin`. */
static void set_request(struct world *w, const char *method, const char *path, const char *host,
                        const char *headers)
{
    struct str rest = str_of_cstr(headers);
    w->request = (struct request){.method = method_of(method),
                                  .method_text = str_of_cstr(method),
                                  .path = str_of_cstr(path),
                                  .host = str_of_cstr(host),
                                  .headers = w->headers};
    while (rest.n > 0) {
        struct str value = str_cut(&rest, '\n'), name = str_cut(&value, ':');
        w->headers[w->request.n_headers++] = (struct header){name, str_trim(value)};
    }
    w->status = 0;
    w->answer[0] = '\0';
    w->x = exchange_new(&w->http, &via, w);
    w->x->request = &w->request;
}

static int ask(struct world *w, const char *method, const char *path, const char *host,
               const char *headers)
{
    set_request(w, method, path, host, headers);
    http_dispatch(&w->http, w->x);
    return w->status;
}

static int ask_admin(struct world *w, const char *method, const char *path)
{
    set_request(w, method, path, "127.0.0.1", "");
    w->x->admin = true;
    http_dispatch(&w->http, w->x);
    return w->status;
}

static bool says(const struct world *w, const char *line)
{
    return strstr(w->answer, line) != NULL;
}

#define OURS "127.0.0.1:4437"

static struct option_list list_of(char **items, size_t n)
{
    return (struct option_list){.items = items, .n = n};
}

/* ---- names ---- */

static void names_of_this_server(void **state)
{
    static const char *const ours[] = {
        "localhost",
        "LocalHost",
        "localhost:4437",
        "localhost.",
        "localhost.:80",
        "127.0.0.1",
        "127.0.0.1:4437",
        "127.0.0.2:1",
        "192.168.1.7:4437",
        "[::1]",
        "[::1]:4437",
        "[::ffff:127.0.0.1]:80",
        "203.0.113.9",
        "[2001:db8::1]",
        "us.example",
        "US.example:8443",
        "us.example.",
        "tidemark",
        "TIDEMARK:4437",
        "metrics.internal.:80",
        "tidemark.",
        "127.0.0.1.",
        "",
    };
    static const char *const others[] = {
        "evil.example",
        "evil.example:4437",
        "localhost.evil.example",
        "localhostt",
        "alocalhost",
        "127.0.0.1.evil.example",
        "127.0.0.1.nip.io",
        "us.example.evil",
        "xus.example",
        "example",
        "0x7f.1",
        "2130706433",
        "127.1",
        "[::1%25lo]",
        "[evil.example]",
        "tidemark.local",
        ".",
        "..",
        "us.example..",
    };
    char *items[] = {(char[]){"tidemark"}, (char[]){"metrics.internal"}};
    struct option_list hosts = list_of(items, 2);
    struct world w;
    world_init(&w);
    w.http.names = (struct http_names){.public_host = origin_host_of("https://us.example:8443/x"),
                                       .hosts = &hosts};
    for (int guarded = 0; guarded < 2; guarded++) {
        w.http.front.guarded = guarded;
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
            if (ask(&w, "GET", "/a/x", ours[i], "") != 200)
                fail_msg("%s", ours[i]);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            if (ask(&w, "GET", "/a/x", others[i], "") != 421 || !says(&w, "\"WRONG_HOST\""))
                fail_msg("%s", others[i]);
    }
    http_deinit(&w.http);
}

static void every_path_looks_at_the_name(void **state)
{
    static const char *const paths[] = {"/a/x", "/s/x", "/b", "/c", "/c/x", "/nowhere", "/"};
    struct world w;
    world_init(&w);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_int_equal(ask(&w, "GET", paths[i], "evil.example", ""), 421);
        assert_int_equal(ask(&w, "POST", paths[i], "evil.example", ""), 421);
        assert_int_equal(ask(&w, "OPTIONS", paths[i], "evil.example", ""), 421);
    }
    assert_int_equal(ask(&w, "GET", "/p", "evil.example", "Via: 1.1 x\nOrigin: null"), 200);
    w.http.front.open = true; /* by any name, but where it acts */
    assert_int_equal(ask(&w, "GET", "/a/x", "any.example", ""), 200);
    assert_int_equal(ask(&w, "GET", "/s/x", "any.example", ""), 421);
    w.http.front.open = false;
    w.http.names.any = true;
    assert_int_equal(ask(&w, "POST", "/s/x", "any.example", "Origin: http://x.example"), 200);
    http_deinit(&w.http);
}

/* What was found to be ours is remembered, until names change. */
static void a_name_that_is_taken_back(void **state)
{
    char *items[] = {(char[]){"tidemark"}};
    struct option_list hosts = list_of(items, 1);
    struct world w;
    world_init(&w);
    w.http.names.hosts = &hosts;
    assert_int_equal(ask(&w, "GET", "/a/x", "tidemark", ""), 200);
    hosts.n = 0;
    front_forget(&w.http.front);
    assert_int_equal(ask(&w, "GET", "/a/x", "tidemark", ""), 421);
    http_deinit(&w.http);
}

/* ---- proxies ---- */

static void an_open_server_behind_a_proxy(void **state)
{
    static const char *const headers[] = {"X-Forwarded-For: 192.0.2.1",
                                          "x-forwarded-for:", "Forwarded: for=192.0.2.1",
                                          "VIA: 1.1 proxy"};
    struct world w;
    world_init(&w);
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        w.http.front.guarded = w.http.front.open = false;
        assert_int_equal(ask(&w, "GET", "/a/x", OURS, headers[i]), 403);
        assert_true(says(&w, "\"PROTECTED\""));
        assert_int_equal(ask(&w, "OPTIONS", "/a/x", OURS, headers[i]), 403);
        w.http.front.open = true;
        assert_int_equal(ask(&w, "GET", "/a/x", OURS, headers[i]), 200);
        w.http.front.open = false;
        w.http.front.guarded = true;
        assert_int_equal(ask(&w, "GET", "/a/x", OURS, headers[i]), 200);
    }
    http_deinit(&w.http);
}

/* fds[0]: a socket whose peer is at 127.0.0.1. */
static void connect_pair(int fds[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int listener = fds[1] = socket(AF_INET, SOCK_STREAM, 0);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&at, sizeof at), 0);
}

static void whose_address_counts(void **state)
{
    static const struct {
        const char *from, *headers, *client; /* client: as addr_parse_net reads it */
    } rows[] = {
        {"10.0.0.0/8", "X-Forwarded-For: 192.0.2.1", "127.0.0.1"}, /* nobody trusts this one */
        {"127.0.0.0/8", "X-Forwarded-For: 192.0.2.1", "192.0.2.1"},
        {"127.0.0.1", "X-Forwarded-For: 192.0.2.1:4711", "192.0.2.1"},
        {"127.0.0.1", "X-Forwarded-For: 127.0.0.1", "127.0.0.1"},
        {"127.0.0.0/8", "X-Forwarded-For: 203.0.113.9, 192.0.2.1, 127.0.0.9", "192.0.2.1"},
        {"127.0.0.0/8", "X-Forwarded-For: 192.0.2.1\nX-Forwarded-For: 127.0.0.9", "192.0.2.1"},
        {"127.0.0.0/8", "X-Forwarded-For: 192.0.2.1\nX-Forwarded-For: evil, 127.0.0.9",
         "127.0.0.9"},
        {"127.0.0.0/8", "X-Forwarded-For: 192.0.2.1, unknown", "127.0.0.1"},
        {"127.0.0.0/8", "X-Forwarded-For:", "127.0.0.1"},
        {"127.0.0.0/8", "X-Forwarded-For: ,", "127.0.0.1"},
        {"127.0.0.0/8", "", "127.0.0.1"},
        {"127.0.0.0/8", "X-Forwarded-For: 2001:db8:1:2:3::4", "2001:db8:1:2::/128"},
        {"127.0.0.0/8", "X-Forwarded-For: [2001:db8:1:2:3::4]:80", "2001:db8:1:2::/128"},
        {"127.0.0.0/8", "X-Forwarded-For: ::ffff:192.0.2.1", "192.0.2.1"},
        {"127.0.0.0/8", "Forwarded: for=192.0.2.1;proto=http", "192.0.2.1"},
        {"127.0.0.0/8", "Forwarded: by=x;For=\"[2001:db8:1:2::9]:80\"", "2001:db8:1:2::/128"},
        {"127.0.0.0/8", "Forwarded: for=192.0.2.1, for=127.0.0.9", "192.0.2.1"},
        {"127.0.0.0/8", "Forwarded: for=192.0.2.1, for=_hidden", "127.0.0.1"},
        {"127.0.0.0/8", "Forwarded: proto=http", "127.0.0.1"},
        {"::/0", "X-Forwarded-For: 192.0.2.1, 192.0.2.2", "192.0.2.1"},
        {"0.0.0.0/0", "X-Forwarded-For: 192.0.2.1, 192.0.2.2", "192.0.2.1"},
    };
    struct world w;
    world_init(&w);
    int fds[2];
    connect_pair(fds);
    w.peer.conn.fd = fds[0];
    w.http.front.guarded = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *items[] = {(char *)(uintptr_t)rows[i].from};
        struct option_list from = list_of(items, 1);
        struct addr_net expected;
        uint8_t key[ADDR_IP_N];
        front_set_proxies(&w.http.front, &from);
        set_request(&w, "GET", "/a/x", OURS, rows[i].headers);
        front_client(w.x, key);
        assert_int_equal(addr_parse_net(str_of_cstr(rows[i].client), &expected), 0);
        if (memcmp(key, expected.ip, sizeof key) != 0)
            fail_msg("%s %s", rows[i].from, rows[i].headers);
        http_dispatch(&w.http, w.x);
    }
    close(fds[0]);
    close(fds[1]);
    http_deinit(&w.http);
}

static void both_headers_of_proxies(void **state)
{
    static const char both[] = "X-Forwarded-For: 192.0.2.1\nForwarded: for=192.0.2.2";
    char *items[] = {(char[]){"127.0.0.1"}};
    struct option_list from = list_of(items, 1);
    struct world w;
    world_init(&w);
    int fds[2];
    connect_pair(fds);
    w.peer.conn.fd = fds[0];
    w.http.front.guarded = true;
    assert_int_equal(ask(&w, "GET", "/a/x", OURS, both), 200); /* neither counts */
    front_set_proxies(&w.http.front, &from);
    assert_int_equal(ask(&w, "GET", "/a/x", OURS, both), 400);
    close(fds[0]);
    close(fds[1]);
    http_deinit(&w.http);
}

static void a_unix_socket(void **state)
{
    static const uint8_t none[ADDR_IP_N];
    char *items[] = {(char[]){"unix"}};
    struct option_list from = list_of(items, 1);
    struct addr_net expected;
    uint8_t key[ADDR_IP_N];
    int fds[2];
    struct world w;
    world_init(&w);
    w.http.front.guarded = true;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    w.peer.conn.fd = fds[0];
    set_request(&w, "GET", "/a/x", OURS, "X-Forwarded-For: 192.0.2.1");
    assert_false(front_address(w.x, key));
    front_client(w.x, key);
    assert_memory_equal(key, none, sizeof key);
    front_set_proxies(&w.http.front, &from);
    assert_true(front_address(w.x, key));
    addr_parse_net(STR("192.0.2.1"), &expected);
    assert_memory_equal(key, expected.ip, sizeof key);
    http_dispatch(&w.http, w.x);
    close(fds[0]);
    close(fds[1]);
    http_deinit(&w.http);
}

static void settings_of_proxies(void **state)
{
    static const char *const good[] = {"10.0.0.0/8", "10.1.2.3",  "::1",
                                       "fd00::/8",   "0.0.0.0/0", "unix"};
    static const char *const bad[] = {"",       "10.0.0.0/33", "fd00::/129", "10.0.0.0/",
                                      "10.0.0", "localhost",   "10.0.0.0/x", "unix:/run/x"};
    char why[256];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(front_check_proxy(str_of_cstr(good[i]), why, sizeof why), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (front_check_proxy(str_of_cstr(bad[i]), why, sizeof why) == 0)
            fail_msg("%s", bad[i]);
}

/* ---- pages ---- */

#define ACAO "Access-Control-Allow-Origin: "

/* What a page may do: 'x' nothing, 'r' its reads are answered but not shown, 's' all is shown, '='
 * it is a page of ours, which needs no word. */
static char page_rights(struct world *w, const char *path, const char *host, const char *origin)
{
    char header[256];
    snprintf(header, sizeof header, "Origin: %s", origin);
    int read = ask(w, "GET", path, host, header);
    bool shown = says(w, ACAO);
    int write = ask(w, "POST", path, host, header);
    assert_true(read == 200 || (read == 403 && says(w, "\"FORBIDDEN\"")));
    assert_true(write == 200 || says(w, "\"FORBIDDEN\""));
    if (read != 200)
        return 'x';
    if (write != 200)
        return shown ? '!' : 'r';
    assert_true(says(w, ACAO) == shown);
    return shown ? 's' : '=';
}

static void pages(void **state)
{
    static const struct {
        const char *host, *origin;
        char open, open_strict, guarded, guarded_strict, exposed;
    } rows[] = {
        {"localhost:4437", "http://localhost:4437", '=', '=', '=', '=', '='},
        {"localhost:4437", "http://LOCALHOST:4437", '=', '=', '=', '=', '='},
        {"localhost:4437", "http://localhost:3000", 's', 's', 'r', 'x', 'r'},
        {"127.0.0.1:4437", "http://localhost:4437", 's', 's', 'r', 'x', 'r'},
        {"127.0.0.1:4437", "http://[::1]:80", 's', 's', 'r', 'x', 'r'},
        {"192.0.2.7:4437", "http://192.0.2.7:4437", '=', '=', '=', '=', '='},
        {"192.0.2.7:4437", "http://192.0.2.8:4437", 'r', 'x', 'r', 'x', 'r'},
        {"127.0.0.1:4437", "https://us.example", 's', 's', 's', 's', 's'},
        {"us.example", "https://us.example", '=', '=', '=', '=', '='},
        {"127.0.0.1:4437", "https://us.example.evil", 'r', 'x', 'r', 'x', 'r'},
        {"127.0.0.1:4437", "null", 'r', 'x', 'r', 'x', 'r'},
        {"127.0.0.1:4437", "", 'r', 'x', 'r', 'x', 'r'},
        {"127.0.0.1:4437", "*", 'r', 'x', 'r', 'x', 'r'},
        {"127.0.0.1:4437", "127.0.0.1:4437", 'r', 'x', 'r', 'x', 'r'},
        {"127.0.0.1:4437", "http://evil.example/127.0.0.1:4437", 'r', 'x', 'r', 'x', 'r'},
        {"127.0.0.1:4437", "http://u@127.0.0.1:4437", 'r', 'x', 'r', 'x', 'r'},
        {"127.0.0.1:4437", "https://friend.example", 's', 's', 's', 's', 's'},
        {"127.0.0.1:4437", "http://friend.example", 'r', 'x', 'r', 'x', 'r'},
        {"127.0.0.1:4437", "https://friend.example.evil", 'r', 'x', 'r', 'x', 'r'},
        {"127.0.0.1:4437", "https://x.friend.example", 'r', 'x', 'r', 'x', 'r'},
        {"127.0.0.1:4437", "https://friend.example:444", 'r', 'x', 'r', 'x', 'r'},
    };
    char *items[] = {(char[]){"https://friend.example"}};
    struct option_list origins = list_of(items, 1);
    struct world w;
    world_init(&w);
    w.http.names.public_host = origin_host_of("https://us.example");
    w.http.front.origins = &origins;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char got[6] = "", want[6] = {rows[i].open, rows[i].open_strict, rows[i].guarded,
                                     rows[i].guarded_strict, rows[i].exposed};
        got[0] = page_rights(&w, "/a/x", rows[i].host, rows[i].origin);
        got[1] = page_rights(&w, "/s/x", rows[i].host, rows[i].origin);
        w.http.front.guarded = true;
        got[2] = page_rights(&w, "/a/x", rows[i].host, rows[i].origin);
        got[3] = page_rights(&w, "/s/x", rows[i].host, rows[i].origin);
        w.http.front.guarded = false;
        w.http.front.open = w.http.front.exposed = true;
        got[4] = page_rights(&w, "/a/x", rows[i].host, rows[i].origin);
        w.http.front.open = w.http.front.exposed = false;
        if (strcmp(got, want) != 0)
            fail_msg("%s at %s: %s, expected %s", rows[i].origin, rows[i].host, got, want);
    }
    http_deinit(&w.http);
}

/* A page of the same name that came without TLS is another's. */
static void a_page_without_tls(void **state)
{
    struct world w;
    world_init(&w);
    set_request(&w, "POST", "/a/x", "us.example", "Origin: http://us.example");
    w.http.names.public_host = STR("other.example");
    w.http.front.open = w.http.front.exposed = true;
    w.x->secure = true;
    http_dispatch(&w.http, w.x);
    assert_int_equal(w.status, 403);
    http_deinit(&w.http);
}

static void what_a_page_reads(void **state)
{
    char *items[] = {(char[]){"https://friend.example"}, (char[]){"*"}};
    struct option_list origins = list_of(items, 1);
    struct world w;
    world_init(&w);
    w.http.front.origins = &origins;
    ask(&w, "GET", "/a/x", OURS, "Origin: https://friend.example");
    assert_true(says(&w, ACAO "https://friend.example\n"));
    assert_true(says(&w, "Access-Control-Allow-Credentials: true\n"));
    assert_true(says(&w, "Access-Control-Expose-Headers: ETag\n"));
    assert_true(says(&w, "Vary: Origin\n"));
    ask(&w, "GET", "/a/x", OURS, "Origin: http://localhost:3000"); /* no cookie of this one */
    assert_true(says(&w, ACAO "http://localhost:3000\n"));
    assert_false(says(&w, "Credentials"));
    ask(&w, "GET", "/a/x", OURS, ""); /* a cache may have it for a page later */
    assert_false(says(&w, ACAO));
    assert_true(says(&w, "Vary: Origin\n"));
    ask(&w, "POST", "/a/x", OURS, "");
    assert_false(says(&w, "Vary"));
    origins = list_of(items, 2);
    ask(&w, "GET", "/a/x", OURS, "Origin: null");
    assert_true(says(&w, ACAO "*\n"));
    assert_false(says(&w, "Credentials"));
    assert_int_equal(ask(&w, "POST", "/a/x", OURS, "Origin: https://any.example"), 200);
    assert_int_equal(ask(&w, "GET", "/s/x", OURS, "Origin: https://any.example"), 403);
    ask(&w, "GET", "/a/x", OURS, "Origin: https://friend.example");
    assert_true(says(&w, ACAO "https://friend.example\n"));
    assert_true(says(&w, "Access-Control-Allow-Credentials: true\n"));
    http_deinit(&w.http);
}

static void every_site(void **state)
{
    char *items[] = {(char[]){"*"}};
    struct option_list origins = list_of(items, 1);
    struct world w;
    world_init(&w);
    w.http.front.origins = &origins;
    w.http.front.open = w.http.front.exposed = true;
    ask(&w, "GET", "/a/x", OURS, "");
    assert_true(says(&w, ACAO "*\n"));
    assert_false(says(&w, "Vary"));
    ask(&w, "GET", "/a/x", OURS, "Origin: *"); /* no browser's */
    assert_false(says(&w, "Credentials"));
    http_deinit(&w.http);
}

/* A page that asks without an Origin, as forms of old browsers do. */
static void writes_across_sites(void **state)
{
    static const char *const writes[] = {"POST", "PUT", "DELETE", "PATCH", "QUERY"};
    struct world w;
    world_init(&w);
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++) {
        assert_int_equal(ask(&w, writes[i], "/a/x", OURS, "Sec-Fetch-Site: cross-site"), 403);
        assert_int_equal(ask(&w, writes[i], "/a/x", OURS, "Origin: https://evil.example"), 403);
        assert_int_equal(ask(&w, writes[i], "/a/x", OURS, "Sec-Fetch-Site: same-origin"), 200);
        assert_int_equal(ask(&w, writes[i], "/a/x", OURS, "Sec-Fetch-Site: none"), 200);
        assert_int_equal(ask(&w, writes[i], "/a/x", OURS, ""), 200);
        assert_int_equal(ask(&w, writes[i], "/a/x", OURS,
                             "Origin: http://localhost:3000\nSec-Fetch-Site: cross-site"),
                         200);
    }
    assert_int_equal(ask(&w, "GET", "/a/x", OURS, "Sec-Fetch-Site: cross-site"), 200);
    http_deinit(&w.http);
}

static void preflights(void **state)
{
    struct world w;
    world_init(&w);
    assert_int_equal(ask(&w, "OPTIONS", "/a/x", OURS, "Origin: https://evil.example"), 204);
    assert_false(says(&w, ACAO));
    assert_true(says(&w, "Access-Control-Allow-Methods: GET, POST\n"));
    assert_true(says(&w, "Access-Control-Allow-Headers: Stream-Seq\n"));
    assert_true(says(&w, "Access-Control-Max-Age: 7200\n"));
    assert_true(says(&w, "Vary: Origin\n"));
    assert_int_equal(ask(&w, "OPTIONS", "/a/x", OURS, "Origin: http://localhost:1"), 204);
    assert_true(says(&w, ACAO "http://localhost:1\n"));
    assert_int_equal(ask(&w, "OPTIONS", "/s/x", OURS, "Origin: https://evil.example"), 403);
    assert_int_equal(ask(&w, "OPTIONS", "/b", OURS, "Origin: http://localhost:1"), 200);
    assert_true(says(&w, "handled")); /* nothing is shared there: its handler answers */
    http_deinit(&w.http);
}

static void once_access_is_configured(void **state)
{
    char *items[] = {(char[]){"https://friend.example"}};
    struct option_list origins = list_of(items, 1);
    struct world w;
    world_init(&w);
    ask(&w, "GET", "/a/x", OURS, "");
    assert_false(says(&w, "Referrer-Policy"));
    w.http.front.guarded = true;
    w.http.front.origins = &origins;
    ask(&w, "GET", "/a/x", OURS, "");
    assert_true(says(&w, "Vary: Authorization, Cookie, Origin, Tidemark-Authorization\n"));
    assert_true(says(&w, "Cross-Origin-Resource-Policy: same-origin\n"));
    assert_true(says(&w, "Referrer-Policy: no-referrer\n"));
    ask(&w, "GET", "/a/x", OURS, "Origin: https://friend.example");
    assert_true(says(&w, "Cross-Origin-Resource-Policy: cross-origin\n"));
    http_deinit(&w.http);
}

/* ---- listeners ---- */

static void a_listener_for_admins(void **state)
{
    struct world w;
    world_init(&w);
    assert_int_equal(ask(&w, "GET", "/b", OURS, ""), 200);
    w.http.front.admin_apart = true;
    assert_int_equal(ask(&w, "GET", "/b", OURS, ""), 404);
    assert_true(says(&w, "\"NO_ROUTE\""));
    assert_int_equal(ask(&w, "DELETE", "/b", OURS, ""), 404); /* nor does it say that it is there */
    assert_int_equal(ask(&w, "GET", "/c", OURS, ""), 404);
    assert_int_equal(ask(&w, "GET", "/c/x", OURS, ""), 200);
    assert_int_equal(ask(&w, "GET", "/a/x", OURS, ""), 200);
    assert_int_equal(ask(&w, "GET", "/p", OURS, ""), 200);
    assert_int_equal(ask_admin(&w, "GET", "/b"), 200);
    assert_int_equal(ask_admin(&w, "GET", "/c"), 200);
    assert_int_equal(ask_admin(&w, "GET", "/c/x"), 404);
    assert_int_equal(ask_admin(&w, "GET", "/a/x"), 404);
    assert_int_equal(ask_admin(&w, "OPTIONS", "/a/x"), 404);
    assert_int_equal(ask_admin(&w, "GET", "/p"), 200);
    http_deinit(&w.http);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_this_server),
        cmocka_unit_test(every_path_looks_at_the_name),
        cmocka_unit_test(a_name_that_is_taken_back),
        cmocka_unit_test(an_open_server_behind_a_proxy),
        cmocka_unit_test(whose_address_counts),
        cmocka_unit_test(both_headers_of_proxies),
        cmocka_unit_test(a_unix_socket),
        cmocka_unit_test(settings_of_proxies),
        cmocka_unit_test(pages),
        cmocka_unit_test(a_page_without_tls),
        cmocka_unit_test(what_a_page_reads),
        cmocka_unit_test(every_site),
        cmocka_unit_test(writes_across_sites),
        cmocka_unit_test(preflights),
        cmocka_unit_test(once_access_is_configured),
        cmocka_unit_test(a_listener_for_admins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
