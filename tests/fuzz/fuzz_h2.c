// SPDX-License-Identifier: Apache-2.0
/* fuzz_h2.c -- what an HTTP/2 client may send behind the preface, to handlers that do all that a
 * handler can: answer at once, collect a body, echo it while it comes, send without end, wait.
 *
 * The first byte of an input says how the rest is cut up. It stops when memory grows beyond what
 * the windows allow, when an exchange is still under way after its peer has gone, or when bytes of
 * bodies are still counted then. */
#include "base/mem.h"
#include "http/exchange.h"
#include "http/http.h"
#include "unit/http/mount.h"
#include "net/loop.h"
#include "telemetry/trace.h"

#include <sanitizer/allocator_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MEMORY_MAX (8u << 20)
#define TURNS      3

struct world {
    struct loop loop;
    struct http http;
    struct trace trace;
    uv_timer_t alive;
    int exchanges; /* under way */
};

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_h2: %s\n", what);
    abort();
}

/* ---- handlers ---- */

struct echo {
    struct world *w;
    struct block *piece;
    bool ended;
};

static void echo_free(struct echo *e)
{
    e->w->exchanges--;
    block_unref(e->piece);
    free(e);
}

static void echo_body(struct exchange *x, struct str data, bool end)
{
    struct echo *e = x->state;
    if (data.n > 0)
        e->piece = block_of(data);
    e->ended = end;
    exchange_wake(x);
}

static enum pull echo_pull(struct exchange *x)
{
    struct echo *e = x->state;
    if (e->piece != NULL) {
        exchange_put(x, slice_of(e->piece, 0, e->piece->n));
        block_unref(e->piece);
        e->piece = NULL;
        if (!e->ended)
            exchange_want(x, echo_body);
        return PULL_MORE;
    }
    if (!e->ended)
        return PULL_WAIT;
    exchange_trailer(x, STR("Done"), STR("yes"));
    echo_free(e);
    return PULL_END;
}

static void echo_gone(struct exchange *x)
{
    echo_free(x->state);
}

static const struct exchange_ops echo_ops = {.pull = echo_pull, .gone = echo_gone};

static void echo(void *ctx, struct exchange *x)
{
    struct echo *e = mem_zalloc(sizeof *e);
    e->w = ctx;
    e->w->exchanges++;
    x->ops = &echo_ops;
    x->state = e;
    exchange_stream(x);
    exchange_want(x, echo_body);
}

static void end_exchange(struct exchange *x)
{
    ((struct world *)x->state)->exchanges--;
}

static enum pull endless_pull(struct exchange *x)
{
    static char filler[10000];
    exchange_put(x, slice_static(str_of(filler, sizeof filler)));
    return PULL_MORE;
}
static const struct exchange_ops endless_ops = {.pull = endless_pull, .gone = end_exchange};

static void endless(void *ctx, struct exchange *x)
{
    ((struct world *)ctx)->exchanges++;
    x->ops = &endless_ops;
    x->state = ctx;
    exchange_stream(x);
}

static void wait_for_nothing(void *ctx, struct exchange *x)
{
    ((struct world *)ctx)->exchanges++;
    x->ops = &endless_ops;
    x->state = ctx;
}

static void on_collected(struct exchange *x, struct str body, int err)
{
    if (err != 0)
        exchange_error(x, err);
    else
        exchange_send(x, body);
}

static void collect(void *ctx, struct exchange *x)
{
    exchange_collect(x, 100000, on_collected);
}

/* /: by the query, if at all; headers are looked at, as a surface does. */
static void root(void *ctx, struct exchange *x)
{
    if (request_header(x->request, STR("abort")).p != NULL)
        exchange_abort(x);
    else
        exchange_send(x, x->request->query);
}

/* ---- the world ---- */

static void on_alive(uv_timer_t *t)
{
}

static struct world *world_new(void)
{
    static const struct http_limits limits = {.connections = 10,
                                              .inflight_bytes = 1 << 20,
                                              .head_timeout_ms = 600000,
                                              .idle_timeout_ms = 600000,
                                              .body_timeout_ms = 600000,
                                              .write_timeout_ms = 600000};
    struct world *w = mem_zalloc(sizeof *w);
    check(loop_init(&w->loop) == 0, "no loop");
    w->trace = (struct trace){.to = stderr, .level = TRACE_ERROR};
    http_init(&w->http, &w->loop, &w->trace, &limits);
    mount_for_test(&w->http, "/", root, w);
    mount_for_test(&w->http, "/e", echo, w);
    mount_for_test(&w->http, "/n", endless, w);
    mount_for_test(&w->http, "/w", wait_for_nothing, w);
    mount_for_test(&w->http, "/c", collect, w);
    uv_timer_init(&w->loop.uv, &w->alive);
    uv_timer_start(&w->alive, on_alive, 1, 1);
    return w;
}

static void turns(struct world *w, int fd, int n)
{
    static char heard[65536];
    for (int i = 0; i < n; i++) {
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
        while (read(fd, heard, sizeof heard) > 0)
            ;
    }
}

/* False: nobody listens any more. */
static bool say(struct world *w, int fd, const void *bytes, size_t n)
{
    const char *at = bytes;
    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent < 0)
            return false;
        at += sent;
        n -= (size_t)sent;
        turns(w, fd, 1);
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct world *w;
    if (w == NULL)
        w = world_new();
    if (n == 0)
        return 0;
    size_t before = __sanitizer_get_current_allocated_bytes();
    size_t step = data[0] == 0 ? n : data[0];
    int fds[2];
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0, "no sockets");
    http_accept(&w->http, fds[0], NULL);
    bool open = say(w, fds[1], "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    for (size_t at = 1; at < n && open; at += step)
        open = say(w, fds[1], data + at, n - at < step ? n - at : step);
    turns(w, fds[1], TURNS);
    size_t grown = __sanitizer_get_current_allocated_bytes();
    check(grown < before + MEMORY_MAX, "more memory than the windows allow");
    if (data[0] % 7 == 0) {
        http_drain(&w->http);
        turns(w, fds[1], TURNS);
        w->http.draining = false;
    }
    close(fds[1]);
    while (w->http.n_connections > 0)
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
    check(w->exchanges == 0, "an exchange is still under way");
    check(w->http.inflight_bytes == 0, "bytes are still counted");
    return 0;
}
