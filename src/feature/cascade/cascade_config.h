// SPDX-License-Identifier: Apache-2.0
/* cascade_config.h -- the settings of the Cascade bridge: `[cascade]` in the config file. */
#ifndef FEATURE_CASCADE_CASCADE_CONFIG_H
#define FEATURE_CASCADE_CASCADE_CONFIG_H

#include "base/sections.h"

#define CASCADE_DISCOVER "discover"

enum cascade_tools { CASCADE_TOOLS_IGNORE, CASCADE_TOOLS_REFUSE };

struct cascade_config {
    char *target; /* http://ADDRESS:PORT on this machine, or CASCADE_DISCOVER */
    /* Secrets, which the bridge takes over (cascade_forget). NULL: WINDSURF_CSRF_TOKEN and
     * WINDSURF_API_KEY, or else what is found. */
    char *csrf_token, *api_key;
    char *version;       /* of the editor; NULL: what is found, or a known one */
    uint64_t timeout_ms; /* of one answer */
    uint64_t parallel;   /* answers under way; 0: no limit */
    int tools;           /* enum cascade_tools */
};

extern const struct options cascade_options;

/* For the table of section kinds: see base/sections.h. */
int cascade_config_finish(void *cascade, char *reason, size_t size);

/* What a server keeps of it. */
struct cascade_settings {
    struct section_list bridges; /* struct cascade_config; at most one */
};

extern const struct feature_settings cascade_settings;

#endif
