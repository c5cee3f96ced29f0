// SPDX-License-Identifier: Apache-2.0
/* subscriptions_feature.c -- subscriptions as a feature of a server. */
#include "base/mem.h"
#include "feature/feature.h"
#include "feature/subscriptions/subscription.h"
#include "feature/subscriptions/subscription_doc.h"
#include "feature/subscriptions/subscriptions_config.h"
#include "feature/subscriptions/subscriptions_http.h"
#include "feature/subscriptions/subscriptions_trace.h"
#include "feature/subscriptions/webhook_upstream.h"
#include "net/loop.h"
#include "store/store.h"

#include <stdlib.h>

#define REFRESH_MS 5000 /* how soon it is seen what other processes did to subscriptions */

struct subscriptions_state {
    struct subscriptions *subscriptions;
    struct webhooks *webhooks;
    struct subscriptions_http surface;
};

static int subscriptions_feature_open(const struct feature_host *h, const void *settings,
                                      void **state, char *why, size_t size)
{
    const struct subscriptions_settings *c = settings;
    struct subscriptions_state *s = *state = mem_zalloc(sizeof *s);
    struct sched *sched = &h->loop->sched;
    struct webhook_policy policy = {.allow_local = c->allow_loopback_targets,
                                    .allow_private = c->allow_private_targets,
                                    .own = h->own};
    s->subscriptions = subscriptions_new(sched, h->store);
    if (h->store->shared)
        subscriptions_set_refresh(s->subscriptions, REFRESH_MS);
    s->webhooks = webhooks_new(sched, s->subscriptions, h->fetcher, policy, h->trace, h->metrics);
    webhooks_set_audit(s->webhooks, h->audit);
    s->surface = (struct subscriptions_http){
        .subscriptions = s->subscriptions, .policy = policy, .durable = h->durable};
    subscriptions_http_mount(&s->surface, h->http);
    return 0;
}

static size_t subscriptions_feature_erase(void *state, struct str prefix)
{
    struct subscriptions_state *s = state;
    return subscriptions_erase(s->subscriptions, prefix);
}

static void subscriptions_feature_stop(void *state, void (*stopped)(void *ctx), void *ctx)
{
    struct subscriptions_state *s = state;
    webhooks_stop(s->webhooks);
    subscriptions_stop(s->subscriptions, stopped, ctx);
}

static void subscriptions_feature_free(void *state)
{
    struct subscriptions_state *s = state;
    webhooks_free(s->webhooks);
    subscriptions_free(s->subscriptions);
    free(s);
}

static const struct surface *const surfaces[] = {&subscriptions_surface, NULL};

static const char *const documents[] = {SUBSCRIPTION_HEADS, SUBSCRIPTION_LINKS,
                                        SUBSCRIPTION_KEY_SIGNING, SUBSCRIPTION_KEY_TOKENS, NULL};

const struct feature subscriptions_feature = {
    .name = "subscriptions",
    .title = "subscriptions",
    .scope = FEATURE_OF_PROCESS,
    .settings = &subscriptions_settings,
    .surfaces = surfaces,
    .documents = documents,
    .traces = subscriptions_traces,
    .metrics = webhook_metrics,
    .open = subscriptions_feature_open,
    .erase = subscriptions_feature_erase,
    .stop = subscriptions_feature_stop,
    .free = subscriptions_feature_free,
};
