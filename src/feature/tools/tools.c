// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/tools.h"
#include "base/err.h"
#include "base/lane.h"
#include "base/rand.h"
#include "base/units.h"
#include "app/config.h"
#include "feature/tools/tools_setup.h"
#include "http/url.h"
#include "feature/lab/lab_config.h"
#include "feature/logs/log_config.h"
#include "net/loop.h"
#include "net/thread_lane.h"
#include "feature/tools/pages_config.h"
#include "feature/tools/tool_makers_upstream.h"
#include "feature/tools/tools_service.h"
#include "feature/tools/tools_socket.h"
#include "feature/tools/tools_trace.h"

#include <openssl/crypto.h>
#include <stdlib.h>

TRACE_TABLE_DEFINE(tools_traces, TOOLS_TRACES);

static const struct pages_config *pages_of(const struct tool_host_setup *setup)
{
    return setup->config->pages.items;
}

/* ---- cursors ---- */

/* A key that is not one must not be taken for a secret that servers share. */
static void find_key(const struct tool_host_setup *setup, uint8_t key[CURSOR_KEY_SIZE])
{
    const char *text = setup->config->cursor_key;
    char why[64];
    size_t got;
    if (text != NULL && cursor_secret_take(str_of_cstr(text), key, CURSOR_KEY_SIZE, &got) == 0)
        return;
    if (text != NULL) {
        if (got > 0)
            snprintf(why, sizeof why, "decoded to %zu bytes; expected %d", got, CURSOR_KEY_SIZE);
        else
            snprintf(why, sizeof why, "base64 decode failed");
        trace(setup->trace, CURSOR_KEY, TRACE_STR("error", str_of_cstr(why)));
    }
    rand_bytes(key, CURSOR_KEY_SIZE);
}

static void init_issuer(struct tool_host *h, const struct tool_host_setup *setup)
{
    const struct pages_config *pages = pages_of(setup);
    uint8_t key[CURSOR_KEY_SIZE], session[CURSOR_SESSION_SIZE];
    find_key(setup, key);
    rand_bytes(session, sizeof session);
    if (pages->cursor_session != NULL)
        memcpy(session, pages->session, sizeof session);
    h->issuer = cursor_issuer_new_as((enum cursor_format)pages->cursor_format, key, session);
    OPENSSL_cleanse(key, sizeof key);
}

/* ---- what tools look at ---- */

static int init_files(struct tool_host *h, const struct tool_host_setup *setup, char *why,
                      size_t size)
{
    const struct config *c = setup->config;
    const struct log_config *logs = c->logs.items;
    const struct lab_config *lab = c->lab.items;
    h->logs = mem_zalloc((c->logs.n + 1) * sizeof *h->logs);
    for (size_t i = 0; i < c->logs.n; i++)
        h->logs[i] = (struct tool_log){str_of_cstr(logs[i].name), logs[i].path};
    if (c->lab.n > 0)
        h->feedback = lab_config_feedback(lab->feedback, false);
    if (c->logs.n == 0 && c->lab.n == 0 && pages_of(setup)->audit == NULL)
        return 0;
    h->lane = thread_lane_new(setup->loop, "tools");
    if (h->lane != NULL)
        return 0;
    snprintf(why, size, "no thread for their files");
    return ERR_IO;
}

static int init_tools(struct tool_host *h, const struct tool_host_setup *setup, char *why,
                      size_t size)
{
    const struct config *c = setup->config;
    h->makers = tool_makers_new(&(struct tool_makers_setup){.loop = setup->loop,
                                                            .fetcher = setup->fetcher,
                                                            .policy = {.configured = true},
                                                            .configs = c->tools.items,
                                                            .n_configs = c->tools.n});
    h->tools =
        tools_new(&(struct tools_setup){.sched = &setup->loop->sched,
                                        .store = setup->store,
                                        .sessions = setup->sessions,
                                        .issuer = h->issuer,
                                        .cursor_ttl_s = pages_of(setup)->cursor_ttl_ms / SECOND_MS,
                                        .keep_max = pages_of(setup)->keep_bytes,
                                        .lane = h->lane,
                                        .logs = h->logs,
                                        .n_logs = c->logs.n,
                                        .feedback = h->feedback,
                                        .specs = tool_makers_specs(h->makers),
                                        .n_specs = c->tools.n},
                  why, size);
    return h->tools != NULL ? 0 : ERR_SYNTAX;
}

/* ---- who may call them ---- */

static int init_surfaces(struct tool_host *h, const struct tool_host_setup *setup, char *why,
                         size_t size)
{
    const struct config *c = setup->config;
    const struct pages_config *pages = pages_of(setup);
    h->surface =
        tools_surface_new(&(struct tools_surface_setup){.tools = h->tools,
                                                        .sched = &setup->loop->sched,
                                                        .trace = setup->trace,
                                                        .audit = pages->audit,
                                                        .lane = h->lane,
                                                        .require_bearer = pages->require_bearer,
                                                        .origins = &pages->allow_origin});
    tools_surface_mount(h->surface, setup->http);
    if (c->tools_socket == NULL)
        return 0;
    char reason[256];
    h->socket = tools_socket_new(&(struct tools_socket_setup){.loop = setup->loop,
                                                              .surface = h->surface,
                                                              .trace = setup->trace,
                                                              .path = c->tools_socket,
                                                              .capabilities = &pages->capabilities},
                                 reason, sizeof reason);
    if (h->socket == NULL) {
        snprintf(why, size, "cannot listen on %s: %s", c->tools_socket, reason);
        return ERR_IO;
    }
    return 0;
}

int tool_host_init(struct tool_host *h, const struct tool_host_setup *setup, char *why, size_t size)
{
    *h = (struct tool_host){0};
    init_issuer(h, setup);
    int err = init_files(h, setup, why, size);
    if (err == 0)
        err = init_tools(h, setup, why, size);
    if (err == 0)
        err = init_surfaces(h, setup, why, size);
    return err;
}

/* ---- ending ---- */

void tool_host_drain(struct tool_host *h)
{
    if (h->socket != NULL)
        tools_socket_drain(h->socket);
}

void tool_host_cut(struct tool_host *h)
{
    if (h->socket != NULL)
        tools_socket_cut(h->socket);
}

static void tools_on_stopped(void *ctx)
{
    struct tool_host *h = ctx;
    tools_free(h->tools);
    tool_makers_free(h->makers);
    lane_free(h->lane);
    cursor_issuer_free(h->issuer);
    free(h->feedback);
    free(h->logs);
    h->stopped(h->ctx);
}

static void tools_on_surface_stopped(void *ctx)
{
    struct tool_host *h = ctx;
    tools_surface_free(h->surface);
    if (h->tools != NULL)
        tools_stop(h->tools, tools_on_stopped, h);
    else
        tools_on_stopped(h);
}

static void tools_on_socket_stopped(void *ctx)
{
    struct tool_host *h = ctx;
    tools_socket_free(h->socket);
    h->socket = NULL;
    if (h->surface != NULL)
        tools_surface_stop(h->surface, tools_on_surface_stopped, h);
    else
        tools_on_surface_stopped(h);
}

void tool_host_stop(struct tool_host *h, void (*stopped)(void *ctx), void *ctx)
{
    h->stopped = stopped;
    h->ctx = ctx;
    if (h->socket != NULL)
        tools_socket_stop(h->socket, tools_on_socket_stopped, h);
    else
        tools_on_socket_stopped(h);
}
