// SPDX-License-Identifier: Apache-2.0
/* tools_world.h -- the wires of tools over an engine that does what a test says. It stands for
 * feature/tools/tool.h, all of it: whoever includes this gets nothing of the real one. */
#ifndef TESTS_TOOLS_WORLD_H
#define TESTS_TOOLS_WORLD_H

#include "base/lane.h"
#include "base/mem.h"
#include "feature/tools/tool.h"
#include "http/audit.h"
#include "http/http.h"
#include "unit/http/callers.h"
#include "net/loop.h"
#include "net/thread_lane.h"
#include "feature/tools/tools_http.h"
#include "feature/tools/tools_service.h"
#include "telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- the engine ---- */

struct tools {
    struct sched *sched;
    const struct tool_info *infos;
    size_t n;
    /* What the next call comes to. */
    enum tool_outcome outcome;
    const char *result, *message, *next_cursor, *details;
    uint16_t code;
    bool retryable;
    uint64_t page;
    bool hold; /* until fake_release */
    /* What the last one was. */
    struct buf tool_id, args, cursor, caller, capabilities;
    bool had_cursor, had_caller, dry_run, loose;
    struct tool_call *call; /* under way */
    size_t n_calls, n_cancelled, max_at_once;
};

static void fake_keep(struct buf *to, struct str s)
{
    to->n = 0;
    buf_put(to, s);
}

static void fake_put(struct buf *out, const char *text)
{
    if (text != NULL)
        buf_put(out, str_of_cstr(text));
}

static void fake_answer(struct tools *t)
{
    struct tool_call *c = t->call;
    t->call = NULL;
    c->outcome = t->outcome;
    c->code = t->code;
    c->retryable = t->retryable;
    c->page = t->page;
    fake_put(&c->result, t->result);
    fake_put(&c->message, t->message);
    fake_put(&c->details, t->details);
    fake_put(&c->next_cursor, t->next_cursor);
    c->done(c);
}

static void fake_run(struct task *task)
{
    struct tool_call *c = container_of(task, struct tool_call, task);
    fake_answer(c->waits);
}

static inline void fake_release(struct tools *t)
{
    t->hold = false;
    if (t->call != NULL)
        sched_post(t->sched, &t->call->task);
}

size_t tools_count(const struct tools *t)
{
    return t->n;
}

const struct tool_info *tools_at(const struct tools *t, size_t i)
{
    return &t->infos[i];
}

const struct tool_info *tools_find(const struct tools *t, struct str id)
{
    for (size_t i = 0; i < t->n; i++)
        if (str_eq(t->infos[i].id, id))
            return &t->infos[i];
    return NULL;
}

struct str tool_outcome_text(enum tool_outcome o)
{
    static const struct str texts[] = {
#define X(name, text) STR_INIT(text),
        TOOL_OUTCOMES(X)
#undef X
    };
    return texts[o];
}

void tools_call(struct tools *t, struct tool_call *c)
{
    t->n_calls++;
    fake_keep(&t->tool_id, c->tool_id);
    fake_keep(&t->args, c->args);
    fake_keep(&t->cursor, c->cursor);
    fake_keep(&t->caller, c->caller_id);
    t->capabilities.n = 0;
    for (size_t i = 0; i < c->n_capabilities; i++) {
        buf_put(&t->capabilities, c->capabilities[i]);
        buf_putc(&t->capabilities, ' ');
    }
    t->had_cursor = c->cursor.p != NULL;
    t->had_caller = c->caller_id.p != NULL;
    t->dry_run = c->dry_run;
    t->loose = c->cursor_loose;
    t->max_at_once += t->call != NULL;
    t->call = c;
    c->waits = t;
    task_init(&c->task, fake_run);
    if (!t->hold)
        sched_post(t->sched, &c->task);
}

void tools_cancel(struct tools *t, struct tool_call *c)
{
    task_cancel(&c->task);
    t->n_cancelled++;
    if (t->call == c)
        t->call = NULL;
}

void tool_call_deinit(struct tool_call *c)
{
    buf_deinit(&c->result);
    buf_deinit(&c->next_cursor);
    buf_deinit(&c->message);
    buf_deinit(&c->details);
}

static const struct tool_info fake_infos[] = {
    {.id = STR_INIT("conformance:page_gen"),
     .description = STR_INIT("Rows."),
     .input_schema = STR_INIT("{\"type\":\"object\",\n\"properties\":{\"__cursor\":{}}}"),
     .pages = true},
    {.id = STR_INIT("plain"),
     .description = STR_INIT("One \"thing\"."),
     .input_schema = STR_INIT("{\"type\":\"object\"}"),
     .capability = STR_INIT("a:b")},
};

/* ---- the world ---- */

struct world_setup {
    const char *audit;
    bool require_bearer;
    const struct option_list *origins; /* of allow-origin */
};

struct world {
    struct loop loop;
    struct http http;
    struct trace trace;
    struct guard *guard;
    struct tools tools;
    struct lane *lane; /* of the audit; NULL: there is none */
    struct audit *audit;
    struct tools_service *service;
    struct tools_http wires;
    uv_timer_t alive; /* so that a turn without events ends */
};

static void world_alive(uv_timer_t *t)
{
}

static inline void world_turn(struct world *w)
{
    uv_run(&w->loop.uv, UV_RUN_ONCE);
}

static inline void world_turns(struct world *w, int n)
{
    for (int i = 0; i < n; i++)
        world_turn(w);
}

/* given: what differs from the usual, or NULL. */
static inline struct world *world_new(const struct world_setup *given)
{
    static const struct str granted[] = {STR_INIT("a:b"), STR_INIT("worker")};
    struct world *w = mem_zalloc(sizeof *w);
    assert_int_equal(loop_init(&w->loop), 0);
    w->trace = (struct trace){.to = stderr, .level = TRACE_ERROR};
    http_init(&w->http, &w->loop, &w->trace,
              &(struct http_limits){.connections = 8,
                                    .inflight_bytes = 64 << 20,
                                    .head_timeout_ms = 10000,
                                    .idle_timeout_ms = 10000,
                                    .body_timeout_ms = 10000,
                                    .write_timeout_ms = 10000,
                                    .body_min_bytes = 1});
    w->guard = guard_with_caller(&w->http, STR("good-token"), STR("ci"), granted, COUNT(granted));
    w->tools = (struct tools){.sched = &w->loop.sched,
                              .infos = fake_infos,
                              .n = COUNT(fake_infos),
                              .outcome = TOOL_SUCCESS,
                              .result = "[{\"row\":0}]",
                              .page = 1};
    struct world_setup setup = given != NULL ? *given : (struct world_setup){0};
    if (setup.audit != NULL) {
        w->lane = thread_lane_new(&w->loop, "audit");
        w->audit = audit_new(&(struct audit_setup){
            .sched = &w->loop.sched, .lane = w->lane, .path = setup.audit, .trace = &w->trace});
    }
    w->service = tools_service_new(&(struct tools_service_setup){
        .tools = &w->tools, .sched = &w->loop.sched, .trace = &w->trace, .audit = w->audit});
    w->wires = (struct tools_http){.service = w->service, .require_bearer = setup.require_bearer};
    w->http.front.origins = setup.origins;
    tools_http_mount(&w->wires, &w->http);
    mcp_http_mount(&w->wires, &w->http);
    uv_timer_init(&w->loop.uv, &w->alive);
    uv_timer_start(&w->alive, world_alive, 5, 5);
    return w;
}

static void world_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static inline void world_free(struct world *w)
{
    bool stopped = false;
    http_close_all(&w->http);
    while (w->http.n_connections > 0)
        world_turn(w);
    tools_service_stop(w->service, world_stopped, &stopped);
    while (!stopped)
        world_turn(w);
    tools_service_free(w->service);
    audit_free(w->audit);
    lane_free(w->lane);
    uv_close((uv_handle_t *)&w->alive, NULL);
    uv_run(&w->loop.uv, UV_RUN_DEFAULT);
    http_deinit(&w->http);
    guard_free(w->guard);
    buf_deinit(&w->tools.tool_id);
    buf_deinit(&w->tools.args);
    buf_deinit(&w->tools.cursor);
    buf_deinit(&w->tools.caller);
    buf_deinit(&w->tools.capabilities);
    loop_deinit(&w->loop);
    free(w);
}

/* ---- HTTP ---- */

static inline int world_connect(struct world *w)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    http_accept(&w->http, fds[0], NULL);
    return fds[1];
}

static inline void world_send(int fd, const char *head, struct str body)
{
    struct buf all = {0};
    buf_printf(&all, "%s\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
               head, body.n);
    buf_put(&all, body);
    for (size_t at = 0; at < all.n;) {
        ssize_t n = write(fd, all.p + at, all.n - at);
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    buf_deinit(&all);
}

/* All that comes until the connection is closed; NUL-terminated, the caller frees. */
static inline char *world_receive(struct world *w, int fd)
{
    struct buf got = {0};
    for (int i = 0; i < 2000; i++) {
        ssize_t n = read(fd, buf_reserve(&got, 65536), 65536);
        if (n > 0)
            got.n += (size_t)n;
        else if (n == 0)
            break;
        world_turn(w);
    }
    close(fd);
    buf_putc(&got, '\0');
    return got.p;
}

/* head: the request line and further headers, without the last line end. */
static inline char *world_ask(struct world *w, const char *head, const char *body)
{
    int fd = world_connect(w);
    world_send(fd, head, str_of_cstr(body));
    return world_receive(w, fd);
}

static inline int status_of(const char *answer)
{
    return atoi(answer + sizeof "HTTP/1.1 " - 1);
}

static inline const char *body_of(const char *answer)
{
    const char *at = strstr(answer, "\r\n\r\n");
    assert_non_null(at);
    return at + 4;
}

#endif
