// SPDX-License-Identifier: Apache-2.0
/* upstream_header.h -- headers that a route itself sends to its upstream, such as the provider's
 * key: `upstream-header` of `[route PATH]`.
 *
 *     x-api-key: sk-123                             as it stands
 *     x-api-key: @FILE:/run/secrets/provider        what the file holds
 *     Authorization: Bearer @ENV:PROVIDER_KEY       what the variable holds, behind a word
 *
 * Values are secrets: no message repeats one, and their memory is wiped. */
#ifndef FEATURE_GATEWAY_UPSTREAM_HEADER_H
#define FEATURE_GATEWAY_UPSTREAM_HEADER_H

#include "base/options.h"
#include "base/str.h"

#include <stdbool.h>

struct upstream_header {
    char *name, *value; /* owned */
};

/* Zero-initialised: none. */
struct upstream_headers {
    struct upstream_header *items;
    size_t n;
};

/* A name that settings may have sent to an upstream, from wherever: see `check` in base/options.h.
 */
int upstream_header_check_name(struct str name, char *reason, size_t size);

/* Is the setting one? See `check` in base/options.h. */
int upstream_header_check(struct str text, char *reason, size_t size);

/* Reads what the settings name, and hides variables from /proc. They have been checked. 0, or
 * ERR_SYNTAX with a sentence; upstream_headers_free is due either way. */
int upstream_headers_load(struct upstream_headers *h, const struct option_list *settings, char *why,
                          size_t size);
void upstream_headers_free(struct upstream_headers *h);

/* Is one of them of this name? */
bool upstream_headers_have(const struct upstream_headers *h, struct str name);

/* Does a setting name a file that users can read which are neither its owner nor of its group? */
bool upstream_headers_are_open(const struct option_list *settings);

#endif
