// SPDX-License-Identifier: Apache-2.0
#include "feature/cascade/cascade.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/lane.h"
#include "base/mem.h"
#include "base/secret.h"
#include "base/units.h"
#include "feature/cascade/cascade_config.h"
#include "feature/cascade/editor_state.h"
#include "http/http.h"
#include "net/loop.h"
#include "net/thread_lane.h"
#include "feature/cascade/cascade_http.h"
#include "feature/cascade/cascade_trace.h"
#include "feature/gateway/gateway.h"

#include <stdlib.h>

TRACE_TABLE_DEFINE(cascade_traces, CASCADE_TRACES);

static struct str text_or_none(const char *text)
{
    return text == NULL ? STR_NONE : str_of_cstr(text);
}

/* The calls before the first poll, at their slowest. */
#define BEGIN_MAX_MS (2 * MINUTE_MS)

/* A route as any other, with the defaults. Its stream must not expire while an answer is under way.
 */
static void make_route(struct cascade_host *h, const struct cascade_config *c)
{
    char ignored[64];
    options_defaults(&route_options, &h->route, ignored, sizeof ignored);
    h->route.path = mem_alloc(sizeof CASCADE_CHAT_PATH);
    memcpy(h->route.path, CASCADE_CHAT_PATH, sizeof CASCADE_CHAT_PATH);
    h->route.dialect = ROUTE_DIALECT_OPENAI;
    h->route.parallel = c->parallel;
    if (h->route.state_ttl_ms < c->timeout_ms + BEGIN_MAX_MS)
        h->route.state_ttl_ms = c->timeout_ms + BEGIN_MAX_MS;
    route_finish(&h->route, ignored, sizeof ignored);
}

static char *find_state_file(void)
{
    struct buf path = {0};
    const char *home = getenv("HOME");
    editor_state_path(&path, getenv("XDG_CONFIG_HOME"), home != NULL ? home : "");
    return path.p;
}

int cascade_host_init(struct cascade_host *h, const struct cascade_host_setup *setup)
{
    struct cascade_config *c = setup->config;
    bool discover = strcmp(c->target, CASCADE_DISCOVER) == 0;
    *h = (struct cascade_host){.lane = thread_lane_new(setup->loop, "cascade")};
    if (h->lane == NULL)
        return ERR_IO;
    secret_shield(); /* it may find secrets, whatever the settings hold */
    h->state_file = find_state_file();
    h->cascade =
        cascade_new(&(struct cascade_setup){.sched = &setup->loop->sched,
                                            .store = setup->store,
                                            .fetcher = setup->fetcher,
                                            .lane = h->lane,
                                            .trace = setup->trace,
                                            .target = discover ? STR_NONE : str_of_cstr(c->target),
                                            .csrf_token = text_or_none(c->csrf_token),
                                            .api_key = text_or_none(c->api_key),
                                            .version = text_or_none(c->version),
                                            .proc = "/proc",
                                            .state_file = h->state_file,
                                            .timeout_ms = c->timeout_ms,
                                            .refuse_tools = c->tools == CASCADE_TOOLS_REFUSE});
    make_route(h, c);
    cascade_config_forget(c);
    cascade_mount(h->cascade, setup->http);
    return 0;
}

void cascade_host_add_route(const struct cascade_host *h, struct gateway_setup *to)
{
    if (h->cascade == NULL)
        return;
    to->local.config = &h->route;
    to->local.source = cascade_source(h->cascade);
}

void cascade_host_stop(struct cascade_host *h, void (*stopped)(void *ctx), void *ctx)
{
    if (h->cascade == NULL)
        stopped(ctx);
    else
        cascade_stop(h->cascade, stopped, ctx);
}

void cascade_host_deinit(struct cascade_host *h)
{
    if (h->cascade == NULL)
        return;
    cascade_free(h->cascade);
    lane_free(h->lane);
    options_free(&route_options, &h->route);
    free(h->route.path);
    free(h->state_file);
    *h = (struct cascade_host){0};
}
