// SPDX-License-Identifier: Apache-2.0
/* tools_feature.c -- tools as a feature of a server: cursors, makers, engine, wires. */
#include "feature/feature.h"
#include "feature/tools/tool_core.h"
#include "feature/tools/tools_commands.h"
#include "base/err.h"
#include "base/lane.h"
#include "base/rand.h"
#include "base/units.h"
#include "feature/tools/tools.h"
#include "http/url.h"
#include "net/loop.h"
#include "net/thread_lane.h"
#include "stream/durable.h"
#include "feature/tools/pages_config.h"
#include "feature/tools/tool_config.h"
#include "feature/tools/tools_config.h"
#include "feature/tools/tool_makers_upstream.h"
#include "feature/tools/tools_http.h"
#include "feature/tools/tools_service.h"
#include "feature/tools/tools_socket.h"
#include "feature/tools/tools_trace.h"

#include <openssl/crypto.h>
#include <stdlib.h>

struct tools_state {
    struct cursor_issuer *issuer;
    struct lane *lane; /* NULL: nothing needs one */
    struct tool_makers *makers;
    struct tools *tools;
    struct tools_service *service;
    struct tools_http http;
    struct tools_socket *socket; /* NULL: none is configured */
    void (*stopped)(void *ctx);
    void *ctx;
};

/* ---- cursors ---- */

/* A key that is not one must not be taken for a secret that servers share. */
static void find_key(const struct feature_host *h, const struct tools_settings *c,
                     uint8_t key[CURSOR_KEY_SIZE])
{
    const char *text = c->cursor_key;
    char why[64];
    size_t got;
    if (text != NULL && cursor_secret_take(str_of_cstr(text), key, CURSOR_KEY_SIZE, &got) == 0)
        return;
    if (text != NULL) {
        if (got > 0)
            snprintf(why, sizeof why, "decoded to %zu bytes; expected %d", got, CURSOR_KEY_SIZE);
        else
            snprintf(why, sizeof why, "base64 decode failed");
        trace(h->trace, CURSOR_KEY, TRACE_STR("error", str_of_cstr(why)));
    }
    rand_bytes(key, CURSOR_KEY_SIZE);
}

static void init_issuer(struct tools_state *s, const struct feature_host *h,
                        const struct tools_settings *c)
{
    const struct pages_config *pages = c->pages.items;
    uint8_t key[CURSOR_KEY_SIZE], session[CURSOR_SESSION_SIZE];
    find_key(h, c, key);
    rand_bytes(session, sizeof session);
    if (pages->cursor_session != NULL)
        memcpy(session, pages->session, sizeof session);
    s->issuer = cursor_issuer_new_as((enum cursor_format)pages->cursor_format, key, session);
    OPENSSL_cleanse(key, sizeof key);
}

/* ---- tools ---- */

/* What features offer that are there: all of them are open before this one. */
static size_t find_offers(struct tools_state *s, const struct feature_host *h,
                          struct builtin_offer out[FEATURES_MAX])
{
    size_t n = 0;
    for (size_t i = 0; features[i] != NULL; i++) {
        const struct feature *f = features[i];
        void *state = f->tools == tools_builtins ? s : feature_find(h, f->name);
        if (f->tools != NULL && state != NULL)
            out[n++] = (struct builtin_offer){f->tools, state};
    }
    return n;
}

static bool needs_lane(const struct builtin_offer *offers, size_t n)
{
    bool needs = false;
    for (size_t i = 0; i < n; i++)
        for (const struct builtin_tool *t = offers[i].tools; t->id != NULL; t++)
            needs = needs || t->files;
    return needs;
}

static int init_tools(struct tools_state *s, const struct feature_host *h,
                      const struct tools_settings *c, char *why, size_t size)
{
    const struct pages_config *pages = c->pages.items;
    struct builtin_offer offers[FEATURES_MAX];
    size_t n = find_offers(s, h, offers);
    if (needs_lane(offers, n)) {
        s->lane = thread_lane_new(h->loop, "tools");
        if (s->lane == NULL) {
            snprintf(why, size, "no thread for their files");
            return ERR_IO;
        }
    }
    s->makers = tool_makers_new(&(struct tool_makers_setup){.loop = h->loop,
                                                            .fetcher = h->fetcher,
                                                            .policy = {.configured = true},
                                                            .configs = c->tools.items,
                                                            .n_configs = c->tools.n});
    s->tools = tools_new(&(struct tools_setup){.sched = &h->loop->sched,
                                               .store = h->store,
                                               .issuer = s->issuer,
                                               .cursor_ttl_s = pages->cursor_ttl_ms / SECOND_MS,
                                               .keep_max = pages->keep_bytes,
                                               .lane = s->lane,
                                               .durable = h->durable,
                                               .offers = offers,
                                               .n_offers = n,
                                               .specs = tool_makers_specs(s->makers),
                                               .n_specs = c->tools.n,
                                               .disabled = &pages->disable},
                         why, size);
    return s->tools != NULL ? 0 : ERR_SYNTAX;
}

/* ---- who may call them ---- */

static int init_wires(struct tools_state *s, const struct feature_host *h,
                      const struct tools_settings *c, char *why, size_t size)
{
    const struct pages_config *pages = c->pages.items;
    s->service = tools_service_new(&(struct tools_service_setup){
        .tools = s->tools, .sched = &h->loop->sched, .trace = h->trace, .audit = h->audit});
    s->http = (struct tools_http){.service = s->service,
                                  .require_bearer = pages->require_bearer,
                                  .public_url = h->durable->public_url};
    tools_http_mount(&s->http, h->http);
    mcp_http_mount(&s->http, h->http);
    if (c->socket == NULL || h->private)
        return 0;
    char reason[256];
    s->socket = tools_socket_new(&(struct tools_socket_setup){.loop = h->loop,
                                                              .service = s->service,
                                                              .trace = h->trace,
                                                              .path = c->socket,
                                                              .capabilities = &pages->capabilities},
                                 reason, sizeof reason);
    if (s->socket == NULL) {
        snprintf(why, size, "cannot listen on %s: %s", c->socket, reason);
        return ERR_IO;
    }
    return 0;
}

static int tools_feature_open(const struct feature_host *h, const void *settings, void **state,
                              char *why, size_t size)
{
    const struct tools_settings *c = settings;
    struct tools_state *s = *state = mem_zalloc(sizeof *s);
    init_issuer(s, h, c);
    int err = init_tools(s, h, c, why, size);
    if (err == 0)
        err = init_wires(s, h, c, why, size);
    return err;
}

/* ---- ending ---- */

/* No new clients of the socket. */
static void tools_feature_quiesce(void *state)
{
    struct tools_state *s = state;
    if (s->socket != NULL)
        tools_socket_drain(s->socket);
}

static void tools_feature_close(void *state)
{
    struct tools_state *s = state;
    if (s->socket != NULL)
        tools_socket_cut(s->socket);
}

static void tools_on_service_stopped(void *ctx)
{
    struct tools_state *s = ctx;
    tools_service_free(s->service);
    if (s->tools != NULL)
        tools_stop(s->tools, s->stopped, s->ctx);
    else
        s->stopped(s->ctx);
}

static void tools_on_socket_stopped(void *ctx)
{
    struct tools_state *s = ctx;
    tools_socket_free(s->socket);
    s->socket = NULL;
    if (s->service != NULL)
        tools_service_stop(s->service, tools_on_service_stopped, s);
    else
        tools_on_service_stopped(s);
}

static void tools_feature_stop(void *state, void (*stopped)(void *ctx), void *ctx)
{
    struct tools_state *s = state;
    s->stopped = stopped;
    s->ctx = ctx;
    if (s->socket != NULL)
        tools_socket_stop(s->socket, tools_on_socket_stopped, s);
    else
        tools_on_socket_stopped(s);
}

static void tools_feature_free(void *state)
{
    struct tools_state *s = state;
    tools_free(s->tools);
    tool_makers_free(s->makers);
    lane_free(s->lane);
    cursor_issuer_free(s->issuer);
    free(s);
}

/* Opened before: it offers tools. */
static const char *const needs[] = {"logs", NULL};
static const struct surface *const surfaces[] = {
    &tools_surface, &mcp_surface, &mcp_metadata_surface, &tools_socket_surface, NULL};

static const struct command commands[] = {
    {"tool", cmd_tool, "call tools, page by page"},
    {"mcp", cmd_mcp, "tools for an agent that starts this program (MCP)"},
    {NULL, NULL, NULL},
};

static const struct feature_names streams[] = {{TOOL_STREAMS, true}, {0}};

const struct feature tools_feature = {
    .name = "tools",
    .title = "the tools",
    .scope = FEATURE_OF_PROCESS,
    .needs = needs,
    .settings = &tools_settings,
    .surfaces = surfaces,
    .streams = streams,
    .traces = tools_traces,
    .commands = commands,
    .tools = tools_builtins,
    .open = tools_feature_open,
    .quiesce = tools_feature_quiesce,
    .close = tools_feature_close,
    .stop = tools_feature_stop,
    .free = tools_feature_free,
};
