// SPDX-License-Identifier: Apache-2.0
/* cascade_feature.c -- the Cascade bridge as a feature of a server. Its state is a struct cascade.
 */
#include "feature/cascade/cascade.h"
#include "feature/cascade/cascade_commands.h"
#include "feature/cascade/cascade_config.h"
#include "feature/cascade/cascade_core.h"
#include "feature/cascade/cascade_trace.h"
#include "feature/feature.h"

static int cascade_feature_open(const struct feature_host *h, const void *settings, void **state,
                                char *why, size_t size)
{
    const struct cascade_settings *c = settings;
    struct cascade_host host = {.loop = h->loop,
                                .store = h->store,
                                .fetcher = h->fetcher,
                                .http = h->http,
                                .gateway = feature_find(h, "gateway"),
                                .trace = h->trace};
    struct cascade *cascade = NULL;
    int err = 0;
    if (c->bridges.n > 0)
        err = cascade_open(&host, c->bridges.items, &cascade, why, size);
    *state = cascade;
    return err;
}

static void cascade_feature_stop(void *state, void (*stopped)(void *ctx), void *ctx)
{
    cascade_stop(state, stopped, ctx);
}

static void cascade_feature_free(void *state)
{
    cascade_free(state);
}

static const char *const needs[] = {"gateway", NULL};
static const struct surface *const surfaces[] = {&cascade_chat_surface, &cascade_models_surface,
                                                 NULL};
static const struct command commands[] = {
    {"cascade", cmd_cascade, "ask the models of an editor on this machine"},
    {NULL, NULL, NULL},
};

static const char *const documents[] = {CASCADE_DOC_PREFIX, NULL};

const struct feature cascade_feature = {
    .name = "cascade",
    .title = "the Cascade bridge",
    .scope = FEATURE_OF_PROCESS,
    .needs = needs,
    .settings = &cascade_settings,
    .surfaces = surfaces,
    .documents = documents,
    .traces = cascade_traces,
    .commands = commands,
    .open = cascade_feature_open,
    .stop = cascade_feature_stop,
    .free = cascade_feature_free,
};
