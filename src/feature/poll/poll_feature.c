// SPDX-License-Identifier: Apache-2.0
/* poll_feature.c -- polled resources as a feature of a server. Its state is a struct polls. */
#include "feature/feature.h"
#include "feature/poll/poll_config.h"
#include "feature/poll/poll_trace.h"
#include "feature/poll/poll.h"
#include "net/loop.h"

static int poll_feature_open(const struct feature_host *h, const void *settings, void **state,
                             char *why, size_t size)
{
    const struct poll_settings *c = settings;
    if (c->polls.n == 0)
        return 0;
    *state = polls_new(&(struct polls_setup){.sched = &h->loop->sched,
                                             .store = h->store,
                                             .feeds = h->feeds,
                                             .fetcher = h->fetcher,
                                             .durable = h->durable,
                                             .trace = h->trace,
                                             .configs = c->polls.items,
                                             .n_configs = c->polls.n});
    return 0;
}

static void poll_feature_stop(void *state, void (*stopped)(void *ctx), void *ctx)
{
    polls_stop(state, stopped, ctx);
}

static void poll_feature_free(void *state)
{
    polls_free(state);
}

static const struct feature_names streams[] = {{POLL_STREAMS, false}, {0}};
static const char *const documents[] = {POLL_STREAMS, NULL};

const struct feature poll_feature = {
    .name = "poll",
    .title = "polled resources",
    .scope = FEATURE_OF_PROCESS,
    .settings = &poll_settings,
    .streams = streams,
    .documents = documents,
    .traces = poll_traces,
    .open = poll_feature_open,
    .stop = poll_feature_stop,
    .free = poll_feature_free,
};
