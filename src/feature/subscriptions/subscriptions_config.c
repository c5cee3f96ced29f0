// SPDX-License-Identifier: Apache-2.0
#include "feature/subscriptions/subscriptions_config.h"
#include "feature/feature.h"

static const struct option_row rows[] = {
    {.name = "allow-private-targets",
     .type = OPTION_BOOL,
     .field = offsetof(struct subscriptions_settings, allow_private_targets),
     .heading = "Outgoing requests",
     .fallback = "no",
     .help = "Whether webhooks may reach addresses of private networks."},
    {.name = "allow-loopback-targets",
     .type = OPTION_BOOL,
     .field = offsetof(struct subscriptions_settings, allow_loopback_targets),
     .fallback = "no",
     .help =
         "Whether webhooks may reach other servers on this machine. They never reach this one."},
};

const struct feature_settings subscriptions_settings = {
    .size = sizeof(struct subscriptions_settings),
    .options = rows,
    .n_options = sizeof rows / sizeof *rows,
};
