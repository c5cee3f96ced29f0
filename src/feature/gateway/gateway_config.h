// SPDX-License-Identifier: Apache-2.0
/* gateway_config.h -- all settings of the gateway: `[route PATH]`, and those of the server. */
#ifndef FEATURE_GATEWAY_GATEWAY_CONFIG_H
#define FEATURE_GATEWAY_GATEWAY_CONFIG_H

#include "base/sections.h"

struct gateway_settings {
    struct option_list route, proxy; /* the short forms; routes holds these, too */
    char *openai, *anthropic;        /* the same; NULL: none */
    struct section_list routes;      /* struct route_config; their paths differ */
    char *telemetry_prefix;
    char *resume_secret;          /* SSE_RESUME_SECRET, else HMAC_SECRET; NULL: none */
    char *resume_secret_previous; /* SSE_RESUME_SECRET_PREVIOUS; NULL: none */
};

extern const struct feature_settings gateway_settings;

#endif
