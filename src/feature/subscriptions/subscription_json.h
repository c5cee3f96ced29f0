// SPDX-License-Identifier: Apache-2.0
/* subscription_json.h -- subscriptions as their clients and receivers see them. */
#ifndef FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_JSON_H
#define FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_JSON_H

#include "base/buf.h"
#include "base/str.h"

struct signer;
struct subscription_view;

/* What PUT and GET answer. */
void subscription_json_put(struct buf *out, struct str id, const struct subscription_view *v,
                           const struct signer *signer);

/* What a claim answers, and the body of a webhook. */
void subscription_json_claim(struct buf *out, const struct subscription_view *v);
void subscription_json_wake(struct buf *out, struct str id, const struct subscription_view *v);

#endif
