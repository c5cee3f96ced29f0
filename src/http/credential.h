// SPDX-License-Identifier: Apache-2.0
/* credential.h -- the one credential of a request, wherever it stands.
 *
 * | where                                  | taken for                                         |
 * |----------------------------------------|---------------------------------------------------|
 * | Authorization: Bearer TOKEN            | everything, unless it is the upstream's           |
 * | Tidemark-Authorization: Bearer TOKEN   | everything                                        |
 * | x-api-key, x-goog-api-key              | routes that hold the provider's key themselves    |
 * | cookie __Host-tidemark, __Secure-...   | GET and HEAD                                      |
 * | ?grant=TOKEN                           | GET and HEAD of what a rule has RULE_LINK for     |
 *
 * Two at once are refused: nobody could tell which one was meant. */
#ifndef HTTP_CREDENTIAL_H
#define HTTP_CREDENTIAL_H

#include "base/str.h"
#include "http/message.h"
#include "http/surface.h"

#include <stdbool.h>

struct arena;
struct exchange;

enum credential_by {
    CREDENTIAL_NONE,
    CREDENTIAL_BEARER,
    CREDENTIAL_COOKIE,
    CREDENTIAL_LINK,
};

struct credential {
    enum credential_by by;
    struct str token; /* lent as long as the request */
};

/* 0, or ERR_SYNTAX: there are two, or one that cannot be. `Bearer` without a token is
 * CREDENTIAL_BEARER with none. */
int credential_find(struct exchange *x, enum credential_owner owner, struct credential *out);

/* Where Authorization is the upstream's: the next text behind *at (0 at first) that would be a
 * credential if it were ours. p == NULL: there is none. */
struct str credential_next_theirs(const struct exchange *x, size_t *at);

/* The same at a glance, of a request that has it where most do, and none where others may: the
 * token of an Authorization that is ours. p == NULL: credential_find has to look. */
static inline struct str credential_glance(const struct request *req)
{
    const uint64_t others = header_bit(STR("Cookie")) | header_bit(STR("Tidemark-Authorization"));
    if (req->authorization == 0 || req->query.n > 0 || !request_lacks(req, others))
        return STR_NONE;
    struct str value = req->headers[req->authorization - 1].value, scheme = STR("Bearer ");
    if (value.n <= scheme.n || !str_starts(value, scheme) || value.p[scheme.n] <= ' ')
        return STR_NONE;
    return str_skip(value, scheme.n);
}

/* Takes `grant` out of the request's query, once it was found: nothing that shows or sends on the
 * query has it. */
void credential_cut(struct exchange *x);

/* The same of a Cookie header without our cookies; n == 0: nothing is left. */
struct str credential_cut_cookies(struct arena *a, struct str value);

#endif
