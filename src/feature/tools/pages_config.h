// SPDX-License-Identifier: Apache-2.0
/* pages_config.h -- how tools are called and their results continued: `[pages]` in the config file.
 */
#ifndef FEATURE_TOOLS_PAGES_CONFIG_H
#define FEATURE_TOOLS_PAGES_CONFIG_H

#include "base/options.h"
#include "token/cursor.h"

struct pages_config {
    uint64_t cursor_ttl_ms;
    uint64_t keep_bytes;
    int cursor_format;    /* enum cursor_format */
    char *cursor_session; /* base64; NULL: a random one */
    uint8_t session[CURSOR_SESSION_SIZE];
    bool require_bearer;
    struct option_list disable;      /* built-in tools that are not offered */
    struct option_list capabilities; /* for clients of the Unix socket */
};

extern const struct options pages_options;

/* For the table of section kinds: see base/sections.h. */
int pages_config_finish(void *pages, char *reason, size_t size);

#endif
