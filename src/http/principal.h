// SPDX-License-Identifier: Apache-2.0
/* principal.h -- who is asking: a caller with a bearer token that is known here, or anybody.
 *
 * A token that is not known is no failure: it may be meant for an upstream. Only digests of tokens
 * are kept. */
#ifndef HTTP_PRINCIPAL_H
#define HTTP_PRINCIPAL_H

#include "base/sha256.h"
#include "base/str.h"

struct request;

struct principal {
    struct str name;
    const struct str *capabilities;
    size_t n_capabilities;
};
extern const struct principal principal_anonymous;

bool principal_can(const struct principal *p, struct str capability);

/* A capability as it is spelt in settings: see `check` in base/options.h. */
int principal_check_capability(struct str value, char *reason, size_t size);

struct principals;
struct principals *principals_new(void);
void principals_free(struct principals *all); /* NULL is allowed */

/* Texts are kept by reference. */
void principals_add(struct principals *all, const uint8_t token_sha256[SHA256_SIZE],
                    struct principal p);

/* By the token in Authorization: Bearer; principal_anonymous if it is not there or not known. */
const struct principal *principals_find(const struct principals *all, const struct request *req);

#endif
