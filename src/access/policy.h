// SPDX-License-Identifier: Apache-2.0
/* policy.h -- what the settings say of access: callers, issuers, and what nobody in particular may.
 *
 * Made from the config file, whole, and not changed after that: a reload makes another one. Shared
 * by reference count, loop thread only. */
#ifndef ACCESS_POLICY_H
#define ACCESS_POLICY_H

#include "access/grant.h"
#include "access/principal.h"
#include "base/map.h"
#include "base/sha256.h"

struct policy {
    bool on;            /* something is granted somewhere: what is not granted is forbidden */
    struct map callers; /* by the digest of their tokens */
    const struct principal *anonymous; /* who shows no credential */
    struct arena arena;
    uint32_t refs;
};

/* Without callers; whoever shows no credential may do everything. */
struct policy *policy_new(void);
struct policy *policy_ref(struct policy *p);
void policy_unref(struct policy *p); /* NULL is allowed */

/* One caller. The principal is taken over. */
void policy_add_caller(struct policy *p, const uint8_t token_sha256[SHA256_SIZE],
                       struct principal *caller);

/* What nobody in particular may do; taken over. From now on the policy is on. */
void policy_set_anonymous(struct policy *p, struct principal *anonymous);

/* By a token; NULL: none has it. */
const struct principal *policy_find_caller(const struct policy *p, struct str token);

/* A caller by its name; NULL: none has it. */
const struct principal *policy_find_name(const struct policy *p, struct str name);

#endif
