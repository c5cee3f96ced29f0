// SPDX-License-Identifier: Apache-2.0
#include "http/curl_loop.h"
#include "base/mem.h"
#include "base/must.h"
#include "net/loop.h"

#include <stdlib.h>

/* A socket that libcurl waits for. Freed in its close callback. */
struct socket_watch {
    uv_poll_t poll;
    struct curl_loop *owner;
    curl_socket_t fd;
    int events;       /* what libcurl waits for */
    struct task late; /* when I/O had had its share of the turn */
    int late_bits;
};

/* What libcurl does then may be a handshake of TLS, or a transfer that ends. */
static void curl_loop_tell(struct curl_loop *c, curl_socket_t fd, int bits)
{
    sched_look_soon(c->sched);
    c->ready(c, fd, bits);
}

static void curl_loop_on_timer(uv_timer_t *timer)
{
    struct curl_loop *c = timer->data;
    sched_io(c->sched);
    curl_loop_tell(c, CURL_SOCKET_TIMEOUT, 0);
}

/* libcurl does not mind being asked too early, as when the loop's clock was behind: it then names
 * the time that is left. */
static int curl_loop_on_set_timer(CURLM *multi, long ms, void *arg)
{
    struct curl_loop *c = arg;
    if (ms < 0)
        uv_timer_stop(&c->timer);
    else
        uv_timer_start(&c->timer, curl_loop_on_timer, (uint64_t)ms, 0);
    return 0;
}

static void curl_loop_on_poll(uv_poll_t *poll, int status, int events)
{
    struct socket_watch *w = container_of(poll, struct socket_watch, poll);
    int bits = 0; /* on an error libcurl looks for itself */
    if (status == 0 && events & UV_READABLE)
        bits |= CURL_CSELECT_IN;
    if (status == 0 && events & UV_WRITABLE)
        bits |= CURL_CSELECT_OUT;
    if (!sched_io(w->owner->sched)) {
        curl_loop_tell(w->owner, w->fd, bits);
        return;
    }
    if (!list_empty(&w->late.link))
        uv_poll_stop(poll); /* told again: it need not be told any more */
    w->late_bits = bits;
    sched_post_io(w->owner->sched, &w->late);
}

static void curl_loop_on_late(struct task *t)
{
    struct socket_watch *w = container_of(t, struct socket_watch, late);
    if (!uv_is_active((uv_handle_t *)&w->poll)) /* first: ready() may close it */
        uv_poll_start(&w->poll, w->events, curl_loop_on_poll);
    curl_loop_tell(w->owner, w->fd, w->late_bits);
}

static void curl_loop_on_watch_closed(uv_handle_t *h)
{
    free(container_of(h, struct socket_watch, poll));
}

/* NULL: no memory or watches left in the kernel. */
static struct socket_watch *watch_new(struct curl_loop *c, curl_socket_t fd)
{
    struct socket_watch *w = mem_alloc(sizeof *w);
    w->owner = c;
    w->fd = fd;
    task_init(&w->late, curl_loop_on_late);
    if (uv_poll_init_socket(c->timer.loop, &w->poll, fd) == 0) {
        curl_multi_assign(c->multi, fd, w);
        return w;
    }
    free(w);
    return NULL;
}

/* An error from here would end every transfer of the multi handle, so stuck() is told instead. */
static int curl_loop_on_watch(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct curl_loop *c = arg;
    struct socket_watch *w = socket_arg;
    if (what == CURL_POLL_REMOVE) {
        curl_multi_assign(c->multi, fd, NULL);
        if (w == NULL)
            return 0;
        task_cancel(&w->late);
        uv_close((uv_handle_t *)&w->poll, curl_loop_on_watch_closed);
        return 0;
    }
    if (w == NULL)
        w = watch_new(c, fd);
    if (w == NULL) {
        c->stuck(c, easy);
        return 0;
    }
    w->events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    uv_poll_start(&w->poll, w->events, curl_loop_on_poll);
    return 0;
}

void curl_loop_init(struct curl_loop *c, struct loop *loop)
{
    must(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK); /* libcurl counts and locks */
    c->multi = curl_multi_init();
    must(c->multi != NULL);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, curl_loop_on_watch);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, curl_loop_on_set_timer);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    c->sched = &loop->sched;
    uv_timer_init(&loop->uv, &c->timer);
    uv_idle_init(&loop->uv, &c->wake);
    c->timer.data = c->wake.data = c;
    c->open_handles = 2;
}

static void curl_loop_on_wake(uv_idle_t *wake)
{
    struct curl_loop *c = wake->data;
    uv_idle_stop(wake);
    sched_io(c->sched);
    curl_loop_tell(c, CURL_SOCKET_TIMEOUT, 0);
}

/* Not the timer at 0: libuv runs that again and again before it looks at any socket. */
void curl_loop_wake(struct curl_loop *c)
{
    uv_idle_start(&c->wake, curl_loop_on_wake);
}

static void curl_loop_on_closed(uv_handle_t *h)
{
    struct curl_loop *c = h->data;
    if (--c->open_handles == 0)
        c->closed(c);
}

void curl_loop_close(struct curl_loop *c)
{
    curl_multi_cleanup(c->multi); /* closes kept connections, and with them what watches them */
    curl_global_cleanup();
    uv_close((uv_handle_t *)&c->timer, curl_loop_on_closed);
    uv_close((uv_handle_t *)&c->wake, curl_loop_on_closed);
}
