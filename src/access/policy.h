// SPDX-License-Identifier: Apache-2.0
/* policy.h -- what the settings say of access: callers, issuers, and what nobody in particular may.
 *
 * Made from the config file, whole, and not changed after that: a reload makes another one. Shared
 * by reference count, loop thread only. */
#ifndef ACCESS_POLICY_H
#define ACCESS_POLICY_H

#include "access/grant.h"
#include "access/issuer.h"
#include "access/principal.h"
#include "base/map.h"
#include "base/sha256.h"

struct policy {
    bool on;                 /* something is granted somewhere: what is not granted is forbidden */
    struct map callers;      /* by the digest of their tokens */
    struct map certificates; /* callers by what stands in theirs */
    struct map names;        /* callers by their names */
    struct issuer *issuers;  /* no two have the same iss */
    size_t n_issuers;
    const struct principal *anonymous; /* who shows no credential */
    struct arena arena;
    uint32_t refs;
};

/* Without callers; whoever shows no credential may do everything. */
struct policy *policy_new(void);
struct policy *policy_ref(struct policy *p);
void policy_unref(struct policy *p); /* NULL is allowed */

/* One caller. The principal is taken over. token_sha256: NULL, and it has no token. */
void policy_add_caller(struct policy *p, const uint8_t *token_sha256, struct principal *caller);

/* A caller that was added has a certificate with this name: a URI, or a DNS name, which has no `:`.
 * No two callers have the same. */
void policy_add_certificate(struct policy *p, const struct principal *caller, struct str name);

/* One issuer; its texts are in p->arena, its keys are taken over. */
void policy_add_issuer(struct policy *p, const struct issuer *issuer);

/* What nobody in particular may do; taken over. From now on the policy is on. */
void policy_set_anonymous(struct policy *p, struct principal *anonymous);

/* By a token; NULL: none has it. */
const struct principal *policy_find_caller(const struct policy *p, struct str token);

/* By a name of a certificate that was verified, a URI or a DNS name in whatever case; NULL: none.
 */
const struct principal *policy_find_certificate(const struct policy *p, struct str name, bool uri);

const struct principal *policy_find_name(const struct policy *p, struct str name);
const struct issuer *policy_find_issuer(const struct policy *p, struct str iss);
const struct issuer *policy_find_issuer_named(const struct policy *p, struct str name);

/* Has somebody, who was let in by the settings `before`, still what he had, by these? False where
 * his section or his token is gone, or either may do less. */
bool policy_upholds(const struct policy *p, const struct policy *before,
                    const struct principal *who);

#endif
