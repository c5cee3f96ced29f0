// SPDX-License-Identifier: Apache-2.0
/* subscriptions_http.h -- subscriptions over HTTP: all below /v1/stream/__ds/.
 *
 *   GET    jwks.json                        the key that webhooks are signed with
 *   PUT    subscriptions/ID                 create or confirm
 *   GET    subscriptions/ID                 show
 *   DELETE subscriptions/ID
 *   POST   subscriptions/ID/streams         link streams by name
 *   DELETE subscriptions/ID/streams/PATH    and no longer
 *   POST   subscriptions/ID/callback        a webhook's receiver acknowledges
 *   POST   subscriptions/ID/claim           a worker takes the wake of a pull subscription,
 *   POST   subscriptions/ID/ack             acknowledges,
 *   POST   subscriptions/ID/release         and gives it back
 *
 * See docs/protocols/subscriptions.md. */
#ifndef FEATURE_SUBSCRIPTIONS_SUBSCRIPTIONS_HTTP_H
#define FEATURE_SUBSCRIPTIONS_SUBSCRIPTIONS_HTTP_H

#include "base/str.h"
#include "feature/subscriptions/webhook_upstream.h"

struct surface;
struct durable;
struct exchange;
struct http;
struct subscriptions;

#define SUBSCRIPTIONS_BODY_MAX (256 * 1024)

struct subscriptions_http {
    struct subscriptions *subscriptions;
    struct webhook_policy policy;
    const struct durable *durable; /* no wakes are written to the streams that it owns; public_url
                                      is where the links in webhooks lead */
};

void subscriptions_http_handle(void *surface, struct exchange *x);

/* At SUBSCRIPTIONS_PREFIX. */
extern const struct surface subscriptions_surface;
void subscriptions_http_mount(struct subscriptions_http *s, struct http *http);

#endif
