// SPDX-License-Identifier: Apache-2.0
/* callers.h -- a guard that knows one caller and lets everybody in. */
#ifndef TESTS_UNIT_HTTP_CALLERS_H
#define TESTS_UNIT_HTTP_CALLERS_H

#include "access/policy.h"
#include "http/guard.h"
#include "http/http.h"

static inline struct guard *guard_with_caller(struct http *http, struct str token, struct str name,
                                              const struct str *capabilities, size_t n)
{
    uint8_t digest[SHA256_SIZE];
    struct policy *policy = policy_new();
    struct principal *p = principal_new();
    sha256(token, digest);
    p->name = p->sub = p->id = name;
    p->known = true;
    p->capabilities = capabilities;
    p->n_capabilities = n;
    policy_add_caller(policy, digest, p);
    struct guard *g = guard_new(&(struct guard_setup){.http = http});
    guard_set_policy(g, policy);
    policy_unref(policy);
    http->guard = g;
    return g;
}

#endif
