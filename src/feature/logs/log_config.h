// SPDX-License-Identifier: Apache-2.0
/* log_config.h -- the settings of one log: `[log NAME]` in the config file. */
#ifndef FEATURE_LOGS_LOG_CONFIG_H
#define FEATURE_LOGS_LOG_CONFIG_H

#include "base/sections.h"

struct log_config {
    char *name; /* letters, digits and -._ */
    char *path; /* its file, which need not be there */
    bool read_only;
    uint64_t max_append_bytes;
    uint64_t key_lifetime_ms; /* of an idempotency key */
};

extern const struct options log_options;

/* For the table of section kinds: see base/sections.h. */
int log_check_name(struct str name, char *reason, size_t size);

/* What the server has of it. */
struct logs_settings {
    struct section_list logs; /* struct log_config; their names differ */
};

extern const struct feature_settings logs_settings;

#endif
