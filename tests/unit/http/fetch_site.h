// SPDX-License-Identifier: Apache-2.0
/* fetch_site.h -- what the tests of fetches share: a small HTTP server on the same loop, whose
 * answers are canned by path, and a fetch that writes down all it sees. */
#ifndef UNIT_FETCH_SITE_H
#define UNIT_FETCH_SITE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/list.h"
#include "base/mem.h"
#include "http/fetch.h"
#include "net/loop.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Each test uses a part of it. */
#pragma GCC diagnostic ignored "-Wunused-function"

#define COUNT(a)    (sizeof(a) / sizeof *(a))
#define BIG         300000
#define DRIPS       30
#define DRIP_MS     10
#define PATIENCE_S  60 /* a test that hangs is killed by SIGALRM */
#define LOOPBACK_OK ((struct addr_policy){.allow_loopback = true})

/* -- name lookups: libcurl finds this function before libc's ------------------------------------
 */

static sem_t lookup_entered, lookup_released;

/* What rebound.test is, each time it is asked for; the last stays. */
static const char *const *rebound_to;
static unsigned rebound;

static const char *rebind(void)
{
    const char *to = rebound_to[rebound++];
    if (rebound_to[rebound] == NULL)
        rebound--;
    return to;
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (name != NULL && strcmp(name, "slow.test") == 0) {
        sem_post(&lookup_entered);
        sem_wait(&lookup_released);
        return EAI_AGAIN;
    }
    if (name != NULL && strcmp(name, "inner.test") == 0)
        name = "127.0.0.1";
    if (name != NULL && strcmp(name, "rebound.test") == 0)
        name = rebind();
    if (name != NULL && strcmp(name, "unknown.test") == 0)
        return EAI_NONAME;
    return real(name, service, hints, out);
}

/* -- watches: libuv tries a socket out with no data behind it before it takes it ----------------
 */

static int watches_to_refuse;

int epoll_ctl(int epoll, int op, int fd, struct epoll_event *e)
{
    if (op == EPOLL_CTL_ADD && e->data.fd == -1 && watches_to_refuse > 0) {
        watches_to_refuse--;
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_epoll_ctl, epoll, op, fd, e);
}

/* -- the server -------------------------------------------------------------------------------- */

struct site {
    struct loop loop;
    struct fetcher *fetcher; /* NULL: freed by the test */
    uv_tcp_t listener;
    int port;
    struct link peers, seens;
    unsigned connections, requests;
    struct buf last; /* the last request, as it came */
};

struct peer {
    uv_tcp_t tcp;
    uv_timer_t drip;
    int drips; /* still to come */
    struct link link;
    struct site *site;
    struct buf in;
};

struct reply {
    uv_write_t req;
    struct buf out;
    bool close;
};

static void on_drip_closed(uv_handle_t *h)
{
    struct peer *p = h->data;
    buf_deinit(&p->in);
    free(p);
}

static void on_peer_closed(uv_handle_t *h)
{
    struct peer *p = h->data;
    uv_close((uv_handle_t *)&p->drip, on_drip_closed);
}

static void peer_close(struct peer *p)
{
    if (uv_is_closing((uv_handle_t *)&p->tcp))
        return;
    list_remove(&p->link);
    uv_close((uv_handle_t *)&p->tcp, on_peer_closed);
}

static void on_written(uv_write_t *req, int status)
{
    struct reply *r = container_of(req, struct reply, req);
    if (r->close)
        peer_close(req->handle->data);
    buf_deinit(&r->out);
    free(r);
}

/* Takes over `out`. */
static void reply(struct peer *p, struct buf out, bool close_after)
{
    struct reply *r = mem_alloc(sizeof *r);
    r->out = out;
    r->close = close_after;
    uv_buf_t b = uv_buf_init(out.p, (unsigned)out.n);
    assert_int_equal(uv_write(&r->req, (uv_stream_t *)&p->tcp, &b, 1, on_written), 0);
}

static void put_body(struct buf *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_putc(out, (char)('a' + i % 26));
}

static bool is_big_body(struct str s, size_t n)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] != (char)('a' + i % 26))
            return false;
    return s.n == n;
}

static const struct {
    const char *path, *answer;
    bool close;
} pages[] = {
    {"/hello", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello",
     false},
    {"/missing", "HTTP/1.1 404 Not Found\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno", false},
    {"/nothing", "HTTP/1.1 204 No Content\r\n\r\n", false},
    {"/hints",
     "HTTP/1.1 103 Early Hints\r\nContent-Type: text/wrong\r\n\r\nHTTP/1.1 200 OK\r\n"
     "Content-Length: 2\r\n\r\nok",
     false},
    {"/trailers",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n"
     "Content-Type: text/late\r\n\r\n",
     false},
    {"/to-hello",
     "HTTP/1.1 302 Found\r\nLocation: /hello\r\nContent-Type: text/html\r\n"
     "Content-Length: 4\r\n\r\ngone",
     false},
    {"/to-big", "HTTP/1.1 302 Found\r\nLocation: /big\r\nContent-Length: 0\r\n\r\n", false},
    {"/to-echo-303", "HTTP/1.1 303 See Other\r\nLocation: /echo\r\nContent-Length: 0\r\n\r\n",
     false},
    {"/to-echo-307",
     "HTTP/1.1 307 Temporary Redirect\r\nLocation: /echo\r\nContent-Length: 0\r\n\r\n", false},
    {"/to-itself", "HTTP/1.1 302 Found\r\nLocation: /to-itself\r\nContent-Length: 0\r\n\r\n",
     false},
    {"/to-file",
     "HTTP/1.1 302 Found\r\nLocation: file:///etc/hostname\r\nContent-Length: 0\r\n\r\n", false},
    {"/to-private", "HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\nContent-Length: 0\r\n\r\n",
     false},
    {"/to-metadata",
     "HTTP/1.1 307 T\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n",
     false},
    {"/to-zero", "HTTP/1.1 301 M\r\nLocation: http://0.0.0.0:1/\r\nContent-Length: 0\r\n\r\n",
     false},
    {"/early-413", "HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno", false},
    {"/early-413-chunked",
     "HTTP/1.1 413 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n", false},
    {"/switch",
     "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nbytes", false},
    {"/short", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nnot fifty", true},
    {"/short-chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", true},
    {"/cut-chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc", true},
    {"/half-head", "HTTP/1.1 200 OK\r\nContent-", true},
    {"/half-line", "HTTP/1.1 2", true},
    {"/garbage", "what is this\r\n\r\n", true},
    {"/hang-up", "", true},
    {"/no-end", "HTTP/1.1 200 OK\r\n\r\nuntil it closes", true},
    {"/old", "HTTP/1.0 200 OK\r\n\r\nuntil it closes", true},
    {"/many-headers",
     "HTTP/1.1 103 Early Hints\r\nX-Early: 1\r\n\r\nHTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\n"
     "X-Request-Id: 7\r\nSet-Cookie: b=2\r\nContent-Length: 0\r\n\r\n",
     false},
    /* /never, and these: no end; /big, /echo, /huge-head, /drip: below */
    {"/hints-only", "HTTP/1.1 103 Early Hints\r\nX-Early: 1\r\n\r\n", false},
    {"/stall", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nnot", false},
    {"/head-only", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", false},
};

static void answer_big(struct peer *p)
{
    struct buf out = {0};
    buf_printf(&out, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BIG);
    put_body(&out, BIG);
    reply(p, out, false);
}

static void on_drip(uv_timer_t *t)
{
    struct peer *p = t->data;
    struct buf out = {0};
    if (uv_is_closing((uv_handle_t *)&p->tcp) || --p->drips == 0)
        uv_timer_stop(t);
    if (uv_is_closing((uv_handle_t *)&p->tcp))
        return;
    buf_putc(&out, '.');
    reply(p, out, false);
}

static void answer_drip(struct peer *p)
{
    struct buf out = {0};
    buf_printf(&out, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", DRIPS);
    reply(p, out, false);
    p->drips = DRIPS;
    uv_timer_start(&p->drip, on_drip, DRIP_MS, DRIP_MS);
}

/* A byte comes behind the answer, when nobody waits for any. */
static void answer_and_more(struct peer *p)
{
    struct buf out = {0};
    buf_put(&out, STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"));
    reply(p, out, false);
    p->drips = 1;
    uv_timer_start(&p->drip, on_drip, 1, 0);
}

static void answer_huge_head(struct peer *p, int lines, size_t size)
{
    struct buf out = {0};
    buf_put(&out, STR("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"));
    for (int i = 0; i < lines; i++) {
        buf_printf(&out, "X-%d: ", i);
        put_body(&out, size);
        buf_put(&out, STR("\r\n"));
    }
    buf_put(&out, STR("\r\n"));
    reply(p, out, true);
}

static void answer_echo(struct peer *p, struct str request)
{
    struct buf out = {0};
    buf_printf(&out, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", request.n);
    buf_put(&out, request);
    reply(p, out, false);
}

static void answer(struct peer *p, struct str request)
{
    struct str rest = request;
    str_cut(&rest, ' ');
    struct str path = str_cut(&rest, ' ');
    if (str_eq(path, STR("/never")))
        return;
    if (str_eq(path, STR("/big")))
        return answer_big(p);
    if (str_eq(path, STR("/huge-head")))
        return answer_huge_head(p, 80, 1000);
    if (str_eq(path, STR("/huge-line")))
        return answer_huge_head(p, 1, 200000);
    if (str_eq(path, STR("/drip")))
        return answer_drip(p);
    if (str_eq(path, STR("/and-more")))
        return answer_and_more(p);
    if (str_eq(path, STR("/echo")))
        return answer_echo(p, request);
    for (size_t i = 0; i < COUNT(pages); i++)
        if (str_eq(path, str_of_cstr(pages[i].path))) {
            struct buf out = {0};
            buf_put(&out, str_of_cstr(pages[i].answer));
            if (out.n == 0)
                return peer_close(p);
            return reply(p, out, pages[i].close);
        }
    fail_msg("no such page: %.*s", (int)path.n, path.p);
}

/* The size of the first request in `in`, 0: not all of it is here. */
static size_t whole_request(struct str in)
{
    const char *end = in.n > 0 ? memmem(in.p, in.n, "\r\n\r\n", 4) : NULL;
    if (end == NULL)
        return 0;
    size_t head = (size_t)(end - in.p) + 4;
    if (memmem(in.p, head, "Transfer-Encoding: chunked", 26) != NULL)
        return str_ends(in, STR("\r\n0\r\n\r\n")) ? in.n : 0;
    const char *length = memmem(in.p, head, "Content-Length: ", 16);
    size_t whole = head + (length != NULL ? strtoul(length + 16, NULL, 10) : 0);
    return in.n >= whole ? whole : 0;
}

static void on_bytes(uv_stream_t *stream, ssize_t n, const uv_buf_t *b)
{
    struct peer *p = stream->data;
    if (n < 0)
        return peer_close(p);
    bool began = p->in.n > 0;
    buf_put(&p->in, str_of(b->base, (size_t)n));
    if (!began && str_starts(buf_str(&p->in), STR("POST /early"))) /* without its body */
        answer(p, buf_str(&p->in));
    size_t whole = whole_request(buf_str(&p->in));
    if (whole == 0)
        return;
    struct site *site = p->site;
    site->requests++;
    site->last.n = 0;
    buf_put(&site->last, str_of(p->in.p, whole));
    p->in.n = 0;
    answer(p, buf_str(&site->last));
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *b)
{
    struct peer *p = h->data;
    *b = uv_buf_init(p->site->loop.scratch, LOOP_SCRATCH);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct site *site = listener->data;
    struct peer *p = mem_zalloc(sizeof *p);
    p->site = site;
    p->tcp.data = p;
    site->connections++;
    list_push(&site->peers, &p->link);
    assert_int_equal(uv_tcp_init(&site->loop.uv, &p->tcp), 0);
    uv_timer_init(&site->loop.uv, &p->drip);
    p->drip.data = p;
    p->tcp.data = p;
    assert_int_equal(uv_accept(listener, (uv_stream_t *)&p->tcp), 0);
    uv_read_start((uv_stream_t *)&p->tcp, on_alloc, on_bytes);
}

static int set_up(void **state)
{
    struct site *site = mem_zalloc(sizeof *site);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int size = sizeof at;
    alarm(PATIENCE_S);
    list_init(&site->peers);
    list_init(&site->seens);
    assert_int_equal(loop_init(&site->loop), 0);
    uv_tcp_init(&site->loop.uv, &site->listener);
    site->listener.data = site;
    assert_int_equal(uv_tcp_bind(&site->listener, (struct sockaddr *)&at, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&site->listener, 64, on_connection), 0);
    uv_tcp_getsockname(&site->listener, (struct sockaddr *)&at, &size);
    site->port = ntohs(at.sin_port);
    site->fetcher = fetcher_new(&site->loop);
    *state = site;
    return 0;
}

/* -- one fetch and what it saw ----------------------------------------------------------------- */

struct seen {
    struct fetch fetch;
    struct link link; /* in site.seens: freed with it */
    struct site *site;
    char url[256];
    int heads, dones, err;
    int status_at_head;
    struct buf body;        /* the answer, or what on_data took */
    char content_type[64];  /* as it was in done() */
    char retry_after[16];   /* as it was in on_head */
    int pauses;             /* to make before taking anything */
    bool resume_at_once;    /* from within on_data */
    bool stay_paused;       /* nobody resumes it but the test */
    struct seen *to_cancel; /* by the callback that is under test */
    struct seen *to_start;
    int restarts; /* of itself, from done() */
    uv_timer_t later;
};

static void on_done(struct fetch *f, int err)
{
    struct seen *s = container_of(f, struct seen, fetch);
    s->dones++;
    s->err = err;
    if (f->on_data == NULL)
        buf_put(&s->body, buf_str(&f->answer));
    snprintf(s->content_type, sizeof s->content_type, "%.*s", (int)f->content_type.n,
             f->content_type.n > 0 ? f->content_type.p : "");
    assert_true((err != 0) == (f->error[0] != '\0'));
    if (s->to_cancel != NULL)
        fetch_cancel(&s->to_cancel->fetch);
    if (s->to_start != NULL)
        fetch_start(s->site->fetcher, &s->to_start->fetch);
    if (s->restarts > 0) {
        s->restarts--;
        fetch_start(s->site->fetcher, f);
    }
}

static void on_head(struct fetch *f)
{
    struct seen *s = container_of(f, struct seen, fetch);
    s->heads++;
    s->status_at_head = f->status;
    struct str v = fetch_header(f, "retry-after");
    snprintf(s->retry_after, sizeof s->retry_after, "%.*s", (int)v.n, v.n > 0 ? v.p : "");
}

static void on_later(uv_timer_t *t)
{
    struct seen *s = t->data;
    fetch_resume(&s->fetch);
}

static bool on_data(struct fetch *f, struct str data)
{
    struct seen *s = container_of(f, struct seen, fetch);
    if (s->pauses > 0) {
        s->pauses--;
        if (s->resume_at_once)
            fetch_resume(f);
        else if (!s->stay_paused)
            uv_timer_start(&s->later, on_later, 1, 0);
        return false;
    }
    buf_put(&s->body, data);
    return true;
}

/* A GET of that path at 127.0.0.1, allowed. */
static struct seen *prepare(struct site *site, const char *path)
{
    struct seen *s = mem_zalloc(sizeof *s);
    s->site = site;
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d%s", site->port, path);
    s->fetch = (struct fetch){.url = str_of_cstr(s->url),
                              .method = STR("GET"),
                              .policy = LOOPBACK_OK,
                              .max_answer = 1 << 20,
                              .on_head = on_head,
                              .done = on_done};
    uv_timer_init(&site->loop.uv, &s->later);
    s->later.data = s;
    list_push(&site->seens, &s->link);
    return s;
}

static void on_seen_closed(uv_handle_t *h)
{
    struct seen *s = h->data;
    buf_deinit(&s->body);
    free(s);
}

static void seen_free(struct seen *s, bool in_use)
{
    if (in_use)
        fetch_cancel(&s->fetch);
    uv_close((uv_handle_t *)&s->later, on_seen_closed);
}

/* loop_deinit asserts that no handle is left. */
static int tear_down(void **state)
{
    struct site *site = *state;
    list_each_safe (l, &site->seens)
        seen_free(list_item(l, struct seen, link), site->fetcher != NULL);
    if (site->fetcher != NULL)
        fetcher_free(site->fetcher);
    uv_close((uv_handle_t *)&site->listener, NULL);
    list_each_safe (l, &site->peers)
        peer_close(list_item(l, struct peer, link));
    loop_run(&site->loop);
    loop_deinit(&site->loop);
    buf_deinit(&site->last);
    free(site);
    return 0;
}

static void start(struct seen *s)
{
    fetch_start(s->site->fetcher, &s->fetch);
    assert_int_equal(s->dones, 0);
}

static void run_until_done(struct seen *s)
{
    while (s->dones == 0)
        uv_run(&s->site->loop.uv, UV_RUN_ONCE);
}

/* Some more rounds, in which nothing is expected to happen. */
static void run_rounds(struct site *site)
{
    for (int i = 0; i < 10; i++)
        uv_run(&site->loop.uv, UV_RUN_NOWAIT);
}

static struct seen *get(struct site *site, const char *path)
{
    struct seen *s = prepare(site, path);
    start(s);
    run_until_done(s);
    return s;
}

static struct seen *get_url(struct site *site, struct addr_policy policy, const char *url)
{
    struct seen *s = prepare(site, "");
    snprintf(s->url, sizeof s->url, "%s", url);
    s->fetch.url = str_of_cstr(s->url);
    s->fetch.policy = policy;
    start(s);
    run_until_done(s);
    return s;
}

static void assert_body(const struct seen *s, const char *text)
{
    assert_int_equal(s->body.n, strlen(text));
    assert_memory_equal(s->body.p, text, s->body.n);
}

static void assert_failed(const struct seen *s, enum fetch_cause cause)
{
    if (s->fetch.cause != cause)
        fail_msg("%s: %s (%s)", s->url, fetch_cause_text(s->fetch.cause), s->fetch.error);
    assert_int_equal(s->dones, 1);
}

static bool last_request_has(const struct site *site, const char *text)
{
    return memmem(site->last.p, site->last.n, text, strlen(text)) != NULL;
}

static struct seen *send_body(struct site *site, const char *method, const char *path,
                              struct str body, const struct header *headers, size_t n)
{
    struct seen *s = prepare(site, path);
    s->fetch.method = str_of_cstr(method);
    s->fetch.body = body;
    s->fetch.headers = headers;
    s->fetch.n_headers = n;
    s->fetch.max_redirects = 3;
    start(s);
    run_until_done(s);
    assert_int_equal(s->err, 0);
    return s;
}

static int site_once(void **state)
{
    sem_init(&lookup_entered, 0, 0);
    sem_init(&lookup_released, 0, 0);
    return 0;
}

#define SITE_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

#endif
