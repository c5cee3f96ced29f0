// SPDX-License-Identifier: Apache-2.0
/* caller_config.h -- who may call: `[caller NAME]` in the config file. */
#ifndef APP_CALLER_CONFIG_H
#define APP_CALLER_CONFIG_H

#include "base/options.h"

#define CALLER_DIGEST_N 32

struct caller_config {
    char *name; /* letters, digits and `-._@` */
    char *token_text;
    uint8_t token_sha256[CALLER_DIGEST_N]; /* of the token's bytes; no two callers have the same */
    struct option_list capabilities;       /* plain words are known ones; `a:b` belongs to a tool */
};

extern const struct options caller_options;

/* For the table of section kinds: see base/sections.h. */
int caller_check_name(struct str name, char *reason, size_t size);
int caller_finish(void *caller, char *reason, size_t size);

#endif
