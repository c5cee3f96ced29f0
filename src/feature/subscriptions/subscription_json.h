// SPDX-License-Identifier: Apache-2.0
/* subscription_json.h -- subscriptions as their clients and receivers see them. */
#ifndef FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_JSON_H
#define FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_JSON_H

#include "base/buf.h"
#include "base/str.h"

struct signer;
struct subscription_stream;
struct subscription_view;

/* What PUT and GET answer to one of this root, which is taken off all names. streams: what
 * subscription_json_link has put for those that were shown. */
void subscription_json_put(struct buf *out, struct str id, const struct subscription_view *v,
                           struct str streams, struct str root, const struct signer *signer);
void subscription_json_link(struct buf *streams, const struct subscription_stream *s,
                            struct str root);

/* What a claim answers, the same, and the body of a webhook. */
void subscription_json_claim(struct buf *out, const struct subscription_view *v, struct str root);
void subscription_json_wake(struct buf *out, struct str id, const struct subscription_view *v);

#endif
