// SPDX-License-Identifier: Apache-2.0
/* access_config.h -- who may do what: `[caller NAME]`, `[issuer NAME]` and `[anonymous]` in the
 * config file. */
#ifndef APP_ACCESS_CONFIG_H
#define APP_ACCESS_CONFIG_H

#include "access/grant.h"
#include "base/options.h"
#include "base/sections.h"

struct feature_warnings;
struct policy;

#define CALLER_DIGEST_N 32

/* What all sections have that grant something. */
struct grant_config {
    struct option_list grants;
    struct access_limits limits; /* 0: none */
};

struct caller_config {
    char *name;                            /* letters, digits and `-._@` */
    char *token_text;                      /* NULL: it has none, but a certificate */
    uint8_t token_sha256[CALLER_DIGEST_N]; /* of the token's bytes; no two callers have the same */
    struct option_list certificates;       /* names in a certificate that is this caller's */
    struct option_list capabilities;       /* plain words are known ones; `a:b` belongs to a tool */
    char *root;
    struct grant_config granted;
};

struct issuer_config {
    char *name; /* as a caller's */
    char *iss;
    struct option_list aud, typ, alg;
    char *jwks;       /* a URL or a file; NULL: secret_env */
    char *secret_env; /* a variable; NULL: jwks */
    uint64_t max_lifetime_ms;
    char *not_before; /* RFC 3339; NULL: none */
    char *root;
    struct grant_config granted;
};

struct anonymous_config {
    struct grant_config granted;
};

/* The sections of a file. */
struct access_config {
    struct section_list callers;   /* struct caller_config */
    struct section_list issuers;   /* struct issuer_config */
    struct section_list anonymous; /* struct anonymous_config; one or none */
    const char *public_url;        /* whom tokens are for, unless a section says it; may be NULL */
};

extern const struct options caller_options, issuer_options, anonymous_options;

/* For the table of section kinds: see base/sections.h. */
int caller_check_name(struct str name, char *reason, size_t size);
int caller_finish(void *caller, char *reason, size_t size);
int issuer_check_name(struct str name, char *reason, size_t size);
int issuer_finish(void *issuer, char *reason, size_t size);

/* What cannot be said of one section alone, and whether files and variables have keys in them. 0,
 * or ERR_SYNTAX with a sentence. */
int access_config_check(const struct access_config *c, char *why, size_t size);

/* Moves secrets out of the environment that others can read: see base/env_secret.h. Before there
 * are threads. */
void access_config_hide_secrets(const struct access_config *c);
bool access_config_has_secrets(const struct access_config *c);

/* A section that grants nothing; NULL: there is none. */
const char *access_config_idle_issuer(const struct access_config *c);

/* Does anything grant something? Then all that is not granted is forbidden. */
bool access_config_on(const struct access_config *c);

/* The longest that a token of any issuer lives. */
uint64_t access_config_longest_s(const struct access_config *c);

/* Limits that are set and cannot hold. */
void access_config_warnings(const struct access_config *c, struct feature_warnings *out);

/* One reference is the caller's. The settings have been checked; key files are read anew. NULL with
 * a sentence in why: one cannot be any more. */
struct policy *access_config_policy(const struct access_config *c, char *why, size_t size);

#endif
