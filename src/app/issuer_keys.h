// SPDX-License-Identifier: Apache-2.0
/* issuer_keys.h -- what an `[issuer]` signs with, as far as it is on this machine: a file of public
 * keys, or a secret in the environment. */
#ifndef APP_ISSUER_KEYS_H
#define APP_ISSUER_KEYS_H

#include "base/str.h"
#include "token/jwk.h"

struct option_list;

/* As the section says; one of the first two is NULL. */
struct issuer_source {
    const char *jwks, *secret_env;
    const struct option_list *alg;
};

/* For the table: a URL that may be asked for keys, or a path. See `check` in base/options.h. */
int issuer_keys_check(struct str jwks, char *reason, size_t size);

/* The algorithms that the section names. */
struct jwk_policy issuer_keys_algs(const struct issuer_source *c);

/* 0 and the keys, the caller's from then on; *out is NULL if they are at a URL. ERR_SYNTAX with a
 * reason. */
int issuer_keys_load(const struct issuer_source *c, struct jwk_set **out, char *reason,
                     size_t size);

/* Hides the variables of its secrets: see base/env_secret.h. */
void issuer_keys_hide(const struct issuer_source *c);

#endif
