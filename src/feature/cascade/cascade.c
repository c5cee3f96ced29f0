// SPDX-License-Identifier: Apache-2.0
/* cascade.c -- the life of the Cascade bridge. */
#include "feature/cascade/cascade.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/lane.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/secret.h"
#include "base/units.h"
#include "feature/cascade/cascade_config.h"
#include "feature/cascade/cascade_core.h"
#include "feature/cascade/cascade_prompt.h"
#include "feature/cascade/cascade_trace.h"
#include "feature/cascade/editor_state.h"
#include "feature/gateway/gateway.h"
#include "net/loop.h"
#include "net/thread_lane.h"

#include <stdio.h>
#include <stdlib.h>

#define SWEEP_MS     (60 * 1000)

/* The calls before the first poll, at their slowest. */
#define BEGIN_MAX_MS (2 * MINUTE_MS)

TRACE_TABLE_DEFINE(cascade_traces, CASCADE_TRACES);

static void cascade_on_sweep(struct timer *t)
{
    struct cascade *c = container_of(t, struct cascade, sweep);
    cascade_sweep(c);
    sched_start(c->setup.sched, &c->sweep, SWEEP_MS);
}

static void cascade_copy(char *to, size_t size, struct str text)
{
    must(text.n < size);
    if (text.n > 0)
        memcpy(to, text.p, text.n);
    to[text.n] = '\0';
}

struct cascade *cascade_new(const struct cascade_setup *setup)
{
    struct cascade *c = mem_zalloc(sizeof *c);
    c->setup = *setup;
    c->setup.target = c->setup.csrf_token = c->setup.api_key = c->setup.version = STR_NONE;
    c->given = secret_alloc(sizeof *c->given);
    cascade_copy(c->target, sizeof c->target, setup->target);
    cascade_copy(c->version, sizeof c->version, setup->version);
    cascade_copy(c->given->csrf_token, sizeof c->given->csrf_token, setup->csrf_token);
    cascade_copy(c->given->api_key, sizeof c->given->api_key, setup->api_key);
    list_init(&c->lookers);
    map_init(&c->flows);
    gate_init(&c->under_way, setup->sched);
    timer_init(&c->sweep, cascade_on_sweep);
    sched_start(setup->sched, &c->sweep, 0);
    return c;
}

void cascade_stop(struct cascade *c, void (*stopped)(void *ctx), void *ctx)
{
    timer_stop(&c->sweep);
    gate_shut(&c->under_way, stopped, ctx);
    if (c->route != NULL)
        gateway_orphan_route(c->route);
}

void cascade_free(struct cascade *c)
{
    if (c == NULL)
        return;
    timer_stop(&c->sweep);
    cascade_access_unref(c->access);
    secret_free(c->given, sizeof *c->given);
    map_deinit(&c->flows);
    if (c->lane != NULL)
        lane_free(c->lane);
    buf_deinit(&c->state_file);
    free(c);
}

/* ---- in a server ---- */

static struct str text_or_none(const char *text)
{
    return text == NULL ? STR_NONE : str_of_cstr(text);
}

static void find_state_file(struct buf *path)
{
    const char *home = getenv("HOME");
    editor_state_path(path, getenv("XDG_CONFIG_HOME"), home != NULL ? home : "");
}

static struct gateway_route *add_route(struct cascade *c, const struct cascade_config *config,
                                       struct gateway *gateway)
{
    struct gateway_local local = {
        .path = CASCADE_CHAT_PATH,
        .parallel = config->parallel,
        .longest_ms = config->timeout_ms + BEGIN_MAX_MS,
        .source = {.open = cascade_chat_open, .ctx = c, .whole = cascade_prompt_is_whole}};
    return gateway_add_local(gateway, &local);
}

int cascade_open(const struct cascade_host *host, const struct cascade_config *config,
                 struct cascade **out, char *why, size_t size)
{
    bool discover = strcmp(config->target, CASCADE_DISCOVER) == 0;
    struct lane *lane = thread_lane_new(host->loop, "cascade");
    struct buf state_file = {0};
    if (lane == NULL) {
        snprintf(why, size, "no thread to look around with");
        return ERR_IO;
    }
    find_state_file(&state_file);
    struct cascade *c = cascade_new(
        &(struct cascade_setup){.sched = &host->loop->sched,
                                .store = host->store,
                                .fetcher = host->fetcher,
                                .lane = lane,
                                .trace = host->trace,
                                .target = discover ? STR_NONE : str_of_cstr(config->target),
                                .csrf_token = text_or_none(config->csrf_token),
                                .api_key = text_or_none(config->api_key),
                                .version = text_or_none(config->version),
                                .proc = "/proc",
                                .state_file = state_file.p,
                                .timeout_ms = config->timeout_ms,
                                .refuse_tools = config->tools == CASCADE_TOOLS_REFUSE});
    c->lane = lane;
    c->state_file = state_file;
    c->route = add_route(c, config, host->gateway);
    cascade_mount(c, host->http);
    *out = c;
    return 0;
}
