// SPDX-License-Identifier: Apache-2.0
/* tools_socket.c -- a client and its requests:
 *
 *     READS --call--> BUSY --answer--> READS
 *     READS --no message--> REFUSED --told so--> disconnected
 *
 * A client that sends no more, or whose server drains, is disconnected when it has its answers. */
#include "feature/tools/tools_socket.h"
#include "base/arena.h"
#include "base/be.h"
#include "base/err.h"
#include "base/gate.h"
#include "base/options.h"
#include "net/conn.h"
#include "net/listener.h"
#include "net/loop.h"
#include "feature/tools/tools_service.h"
#include "feature/tools/tools_message.h"
#include "telemetry/trace.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_STEP   (64 * 1024)
#define AHEAD_MAX   (64 * 1024) /* bytes of the next requests that are taken while one waits */
#define SOCKET_MODE 0600
#define CODE_BAD    400

struct tools_socket {
    struct tools_socket_setup setup;
    struct listener *listener; /* NULL: none, or closed */
    struct link clients;
    struct gate connected; /* those */
    bool draining;
};

struct client {
    struct conn conn;
    struct tools_socket *socket;
    struct link link;
    struct timer deadline;
    struct buf in;    /* not looked at yet */
    struct buf frame; /* the request under way, which its slices point into */
    struct arena arena;
    struct tool_ask ask;
    struct str client_id; /* p == NULL: it has not said */
    struct buf id_text;
    struct str *granted; /* texts of the configuration */
    size_t n_granted;
    enum { CLIENT_READS, CLIENT_BUSY, CLIENT_REFUSED } state;
    bool said_hello;
    bool ended; /* it sends no more */
};

static void tools_socket_look(struct client *c);

/* ---- frames ---- */

int tools_frame_take(struct str bytes, struct str *json)
{
    if (bytes.n < TOOLS_FRAME_HEAD)
        return 0;
    size_t n = be_get((const uint8_t *)bytes.p, TOOLS_FRAME_HEAD);
    if (n > TOOLS_FRAME_MAX)
        return ERR_TOO_LARGE;
    if (bytes.n - TOOLS_FRAME_HEAD < n)
        return 0;
    *json = str_of(bytes.p + TOOLS_FRAME_HEAD, n);
    return 1;
}

static struct block *frame_of(struct str json)
{
    struct block *b = block_new((uint32_t)(TOOLS_FRAME_HEAD + json.n));
    be_put((uint8_t *)b->bytes, json.n, TOOLS_FRAME_HEAD);
    memcpy(b->bytes + TOOLS_FRAME_HEAD, json.p, json.n);
    b->n = (uint32_t)(TOOLS_FRAME_HEAD + json.n);
    return b;
}

/* ---- the life of a client ---- */

static void stop_call(struct client *c)
{
    if (c->state != CLIENT_BUSY)
        return;
    c->state = CLIENT_READS;
    tools_ask_cancel(&c->ask);
    tools_ask_deinit(&c->ask);
}

static void close_client(struct client *c)
{
    timer_stop(&c->deadline);
    stop_call(c);
    conn_close(&c->conn);
}

static void free_client(struct client *c)
{
    buf_deinit(&c->in);
    buf_deinit(&c->frame);
    buf_deinit(&c->id_text);
    arena_deinit(&c->arena);
    free(c->granted);
    list_remove(&c->link);
    free(c);
}

static void tools_socket_on_closed(struct conn *conn)
{
    struct client *c = container_of(conn, struct client, conn);
    struct tools_socket *s = c->socket;
    free_client(c);
    gate_leave(&s->connected);
}

static void tools_socket_on_failed(struct conn *conn)
{
    close_client(container_of(conn, struct client, conn));
}

static void tools_socket_on_deadline(struct timer *t)
{
    close_client(container_of(t, struct client, deadline));
}

/* The next request has so long to come, and the answer before it to be taken. */
static void start_deadline(struct client *c)
{
    const struct tools_socket_setup *s = &c->socket->setup;
    uint64_t hello_ms = s->hello_ms > 0 ? s->hello_ms : TOOLS_HELLO_MS;
    uint64_t active_ms = s->active_ms > 0 ? s->active_ms : TOOLS_ACTIVE_MS;
    sched_start(&s->loop->sched, &c->deadline, c->said_hello ? active_ms : hello_ms);
}

/* ---- answers ---- */

/* For an answer, or for room to give it: a client that reads nothing is told nothing more. */
static bool waits(const struct client *c)
{
    return c->state == CLIENT_BUSY || conn_pending(&c->conn) > 0;
}

static void tools_socket_answer(struct client *c, struct buf *json)
{
    if (json->n > TOOLS_FRAME_MAX) {
        json->n = 0;
        tools_put_error(json, STR("the answer does not fit in a frame; ask for smaller pages"), 0,
                        false);
    }
    conn_put_take(&c->conn, frame_of(buf_str(json)));
    buf_deinit(json);
    start_deadline(c);
}

/* The last thing that it is told. */
static void tools_socket_refuse(struct client *c, const char *why)
{
    struct buf json = {0};
    tools_put_error(&json, str_of_cstr(why), CODE_BAD, false);
    c->state = CLIENT_REFUSED;
    tools_socket_answer(c, &json);
    conn_want_read(&c->conn, false);
}

/* It has all its answers, and nothing more is to come. */
static void end_if_over(struct client *c)
{
    if (waits(c) || !(c->state == CLIENT_REFUSED || c->ended || c->socket->draining))
        return;
    conn_shutdown_write(&c->conn);
    close_client(c);
}

static void tools_socket_on_drained(struct conn *conn)
{
    struct client *c = container_of(conn, struct client, conn);
    tools_socket_look(c);
    end_if_over(c);
}

static void tools_socket_on_stalled(struct conn *conn)
{
}

/* ---- requests ---- */

static bool asks_for(const struct tools_request *r, struct str capability)
{
    for (size_t i = 0; i < r->n_capabilities; i++)
        if (str_eq(r->capabilities[i], capability))
            return true;
    return false;
}

/* All that an earlier one said is forgotten. */
static void hello(struct client *c, const struct tools_request *r)
{
    const struct option_list *allowed = c->socket->setup.capabilities;
    struct buf json = {0};
    size_t n = allowed != NULL ? allowed->n : 0;
    c->said_hello = true;
    c->id_text.n = 0;
    buf_put(&c->id_text, r->client_id);
    c->client_id = r->client_id.p == NULL ? STR_NONE
                   : r->client_id.n == 0  ? STR("")
                                          : buf_str(&c->id_text);
    free(c->granted);
    c->granted = mem_alloc((n + 1) * sizeof *c->granted);
    c->n_granted = 0;
    for (size_t i = 0; i < n; i++)
        if (asks_for(r, str_of_cstr(allowed->items[i])))
            c->granted[c->n_granted++] = str_of_cstr(allowed->items[i]);
    tools_put_hello_ack(&json, c->granted, c->n_granted);
    tools_socket_answer(c, &json);
}

static void schema(struct client *c, const struct tools_request *r)
{
    const struct tool_info *info =
        tools_find(tools_service_tools(c->socket->setup.service), r->tool_id);
    struct buf json = {0}, message = {0};
    if (info != NULL) {
        tools_put_schema(&json, info);
    } else {
        tools_put_not_found(&message, r->tool_id);
        tools_put_error(&json, buf_str(&message), 0, false);
    }
    buf_deinit(&message);
    tools_socket_answer(c, &json);
}

static void tools_socket_on_done(struct tool_ask *a)
{
    struct client *c = container_of(a, struct client, ask);
    struct buf json = {0};
    c->state = CLIENT_READS;
    tools_put_answer(&json, &a->call);
    tools_ask_deinit(a);
    tools_socket_answer(c, &json);
    tools_socket_look(c);
}

static void tools_socket_run(struct client *c, const struct tools_request *r)
{
    timer_stop(&c->deadline);
    c->state = CLIENT_BUSY;
    c->ask = (struct tool_ask){.done = tools_socket_on_done};
    c->ask.call.tool_id = r->tool_id;
    c->ask.call.args = r->args;
    c->ask.call.cursor = r->cursor;
    c->ask.call.dry_run = r->dry_run;
    c->ask.call.caller_id = c->client_id;
    c->ask.call.capabilities = c->granted;
    c->ask.call.n_capabilities = c->n_granted;
    tools_ask(c->socket->setup.service, &c->ask);
}

static void tools_socket_handle(struct client *c, struct str text)
{
    struct tools_request r;
    struct buf json = {0};
    const char *why;
    arena_deinit(&c->arena);
    if (tools_request_read(text, &c->arena, &r, &why) != 0) {
        tools_socket_refuse(c, why);
        return;
    }
    switch (r.type) {
    case TOOLS_PING:
        tools_put_pong(&json);
        tools_socket_answer(c, &json);
        break;
    case TOOLS_LIST:
        tools_put_list(&json, tools_service_tools(c->socket->setup.service), NULL);
        tools_socket_answer(c, &json);
        break;
    case TOOLS_HELLO: hello(c, &r); break;
    case TOOLS_SCHEMA: schema(c, &r); break;
    case TOOLS_RUN:
    case TOOLS_CONTINUE: tools_socket_run(c, &r); break;
    }
}

/* Moves the first frame out of what has come. */
static void take_frame(struct client *c, size_t n)
{
    struct buf rest = {0};
    buf_deinit(&c->frame);
    if (c->in.n > n)
        buf_put(&rest, str_skip(buf_str(&c->in), n));
    c->frame = c->in;
    c->in = rest;
}

/* Deals with the requests that have come, until one of them has to be waited for. */
static void tools_socket_look(struct client *c)
{
    struct str json;
    while (!waits(c) && c->state != CLIENT_REFUSED && !c->socket->draining && !c->conn.closing) {
        int got = tools_frame_take(buf_str(&c->in), &json);
        if (got == ERR_TOO_LARGE)
            tools_socket_refuse(c, "a frame has at most 10 MiB");
        if (got != 1)
            break;
        take_frame(c, TOOLS_FRAME_HEAD + json.n);
        tools_socket_handle(c, str_of(c->frame.p + TOOLS_FRAME_HEAD, json.n));
    }
    if (c->state != CLIENT_REFUSED)
        conn_want_read(&c->conn, !c->ended && (!waits(c) || c->in.n < AHEAD_MAX));
}

/* ---- reading ---- */

/* It has closed the socket, not only said that it will send no more. */
static bool has_left(const struct client *c)
{
    struct pollfd p = {.fd = c->conn.fd};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}

static void tools_socket_on_end(struct client *c)
{
    c->ended = true;
    conn_want_read(&c->conn, false);
    if (has_left(c))
        close_client(c);
    else
        end_if_over(c);
}

static void tools_socket_on_readable(struct conn *conn)
{
    struct client *c = container_of(conn, struct client, conn);
    ssize_t n = conn_read(conn, buf_reserve(&c->in, READ_STEP), READ_STEP);
    if (n > 0) {
        c->in.n += (size_t)n;
        tools_socket_look(c);
    } else if (n == 0) {
        tools_socket_on_end(c);
    } else if (n == CONN_GONE) {
        close_client(c);
    }
}

static const struct conn_ops conn_ops = {.readable = tools_socket_on_readable,
                                         .drained = tools_socket_on_drained,
                                         .stalled = tools_socket_on_stalled,
                                         .failed = tools_socket_on_failed,
                                         .closed = tools_socket_on_closed};

/* ---- listening ---- */

void tools_socket_accept(struct tools_socket *s, int fd)
{
    struct client *c = NULL;
    if (!s->draining && s->connected.inside < TOOLS_SOCKET_CONNS)
        c = mem_zalloc(sizeof *c);
    if (c == NULL || conn_init(&c->conn, s->setup.loop, fd, &conn_ops) != 0) {
        close(fd);
        free(c);
        return;
    }
    c->socket = s;
    timer_init(&c->deadline, tools_socket_on_deadline);
    list_push(&s->clients, &c->link);
    gate_enter(&s->connected);
    start_deadline(c);
    conn_want_read(&c->conn, true);
}

static void tools_socket_on_accepted(void *ctx, int fd)
{
    tools_socket_accept(ctx, fd);
}

static void tools_socket_on_accept_failed(void *ctx, int error)
{
    struct tools_socket *s = ctx;
    trace(s->setup.trace, ACCEPT_FAILED, TRACE_STR("error", str_of_cstr(strerror(error))));
}

static const struct listener_ops listener_ops = {.accepted = tools_socket_on_accepted,
                                                 .failed = tools_socket_on_accept_failed,
                                                 .unix_mode = SOCKET_MODE};

struct tools_socket *tools_socket_new(const struct tools_socket_setup *setup, char *why,
                                      size_t size)
{
    struct tools_socket *s = mem_zalloc(sizeof *s);
    struct buf address = {0};
    s->setup = *setup;
    list_init(&s->clients);
    gate_init(&s->connected, &setup->loop->sched);
    if (setup->path == NULL)
        return s;
    buf_printf(&address, "unix:%s", setup->path);
    s->listener = listener_new(setup->loop, buf_str(&address), &listener_ops, s, why, size);
    buf_deinit(&address);
    if (s->listener == NULL) {
        free(s);
        return NULL;
    }
    trace(setup->trace, LISTENING, TRACE_STR("address", listener_address(s->listener)));
    return s;
}

void tools_socket_drain(struct tools_socket *s)
{
    s->draining = true;
    if (s->listener != NULL)
        listener_close(s->listener);
    s->listener = NULL;
    list_each_safe (l, &s->clients) {
        struct client *c = list_item(l, struct client, link);
        if (!waits(c))
            close_client(c);
    }
}

void tools_socket_cut(struct tools_socket *s)
{
    list_each_safe (l, &s->clients)
        close_client(list_item(l, struct client, link));
}

void tools_socket_stop(struct tools_socket *s, void (*stopped)(void *ctx), void *ctx)
{
    tools_socket_drain(s);
    gate_shut(&s->connected, stopped, ctx);
}

void tools_socket_free(struct tools_socket *s)
{
    free(s);
}
