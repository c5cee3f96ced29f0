// SPDX-License-Identifier: Apache-2.0
/* subscriptions_config.h -- the settings of subscriptions: where their webhooks may go. */
#ifndef FEATURE_SUBSCRIPTIONS_SUBSCRIPTIONS_CONFIG_H
#define FEATURE_SUBSCRIPTIONS_SUBSCRIPTIONS_CONFIG_H

#include <stdbool.h>

struct subscriptions_settings {
    bool allow_private_targets, allow_loopback_targets;
};

extern const struct feature_settings subscriptions_settings;

#endif
