// SPDX-License-Identifier: Apache-2.0
/* tools_config.h -- all settings of tools: `[tool NAME]`, `[pages]`, and those of the server. */
#ifndef FEATURE_TOOLS_TOOLS_CONFIG_H
#define FEATURE_TOOLS_TOOLS_CONFIG_H

#include "base/sections.h"

struct tools_settings {
    struct section_list tools; /* struct tool_config; their names differ */
    struct section_list pages; /* struct pages_config; always one */
    char *socket;              /* a path; ATD_SOCK unless it is set. NULL: none */
    char *cursor_key;          /* ATD_CURSOR_SIGNING_KEY; NULL: none */
};

extern const struct feature_settings tools_settings;

#endif
