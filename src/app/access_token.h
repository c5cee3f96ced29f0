// SPDX-License-Identifier: Apache-2.0
/* access_token.h -- who shows a token, as far as it can be told without a server. */
#ifndef APP_ACCESS_TOKEN_H
#define APP_ACCESS_TOKEN_H

#include "base/str.h"

#include <stdint.h>

struct policy;
struct principal;

/* What was found out. */
struct access_token {
    const struct principal *principal; /* one reference is the caller's; NULL: it is not good */
    const char *why;                   /* ... for this reason: static */
    const char *unchecked;             /* why its signature was not checked; NULL: it was */
};

/* A caller's token, one of an issuer, or one that a server has minted. Keys at a URL are not
 * fetched, and a server's own are in its store: what such a token says is then believed, and
 * `unchecked` says so. now_s: wall clock. */
void access_token_read(const struct policy *policy, struct str token, int64_t now_s,
                       struct access_token *out);

#endif
