// SPDX-License-Identifier: Apache-2.0
#include "access/policy.h"
#include "base/ascii_char.h"
#include "base/mem.h"
#include "base/must.h"

#include <stdlib.h>

struct policy_caller {
    uint8_t digest[SHA256_SIZE]; /* if it has a token */
    struct principal *principal;
};

#define CERTIFICATE_NAME_MAX 512 /* bytes: a longer one is nobody's */

struct policy *policy_new(void)
{
    struct policy *p = mem_zalloc(sizeof *p);
    p->refs = 1;
    p->anonymous = &principal_anonymous;
    map_init(&p->callers);
    map_init(&p->certificates);
    map_init(&p->names);
    return p;
}

struct policy *policy_ref(struct policy *p)
{
    p->refs++;
    return p;
}

void policy_unref(struct policy *p)
{
    size_t at = 0;
    if (p == NULL || --p->refs > 0)
        return;
    for (struct policy_caller *c; (c = map_next(&p->names, &at)) != NULL;) {
        principal_unref(c->principal);
        free(c);
    }
    map_deinit(&p->callers);
    map_deinit(&p->certificates);
    map_deinit(&p->names);
    principal_unref(p->anonymous);
    for (size_t i = 0; i < p->n_issuers; i++)
        jwk_set_free(p->issuers[i].keys);
    free(p->issuers);
    arena_deinit(&p->arena);
    free(p);
}

static struct str digest_key(const uint8_t *digest)
{
    return str_of((const char *)digest, SHA256_SIZE);
}

void policy_add_caller(struct policy *p, const uint8_t *token_sha256, struct principal *caller)
{
    struct policy_caller *c = mem_zalloc(sizeof *c);
    c->principal = caller;
    must(map_put(&p->names, caller->name, c) == NULL);
    if (token_sha256 == NULL)
        return;
    memcpy(c->digest, token_sha256, SHA256_SIZE);
    must(map_put(&p->callers, digest_key(c->digest), c) == NULL);
}

/* DNS names have no case, and are told from URIs by their first byte. */
static struct str certificate_key(char to[CERTIFICATE_NAME_MAX], struct str name, bool uri)
{
    if (name.n >= CERTIFICATE_NAME_MAX)
        return STR_NONE;
    to[0] = uri ? 'U' : 'D';
    for (size_t i = 0; i < name.n; i++)
        to[i + 1] = uri ? name.p[i] : ascii_lower(name.p[i]);
    return str_of(to, name.n + 1);
}

void policy_add_certificate(struct policy *p, const struct principal *caller, struct str name)
{
    char key[CERTIFICATE_NAME_MAX];
    bool uri = memchr(name.p, ':', name.n) != NULL;
    struct str kept = arena_dup(&p->arena, certificate_key(key, name, uri));
    must(kept.n > 0 && map_put(&p->certificates, kept, (void *)caller) == NULL);
}

void policy_add_issuer(struct policy *p, const struct issuer *issuer)
{
    p->issuers = mem_realloc(p->issuers, (p->n_issuers + 1) * sizeof *p->issuers);
    p->issuers[p->n_issuers++] = *issuer;
}

void policy_set_anonymous(struct policy *p, struct principal *anonymous)
{
    principal_unref(p->anonymous);
    p->anonymous = anonymous;
    p->on = true;
}

const struct principal *policy_find_caller(const struct policy *p, struct str token)
{
    uint8_t digest[SHA256_SIZE];
    if (p->callers.n == 0)
        return NULL;
    /* How long the lookup takes tells about a digest, from which no token follows. */
    sha256(token, digest);
    const struct policy_caller *c = map_get(&p->callers, digest_key(digest));
    return c == NULL ? NULL : c->principal;
}

const struct principal *policy_find_certificate(const struct policy *p, struct str name, bool uri)
{
    char key[CERTIFICATE_NAME_MAX];
    struct str found = certificate_key(key, name, uri);
    return found.n == 0 ? NULL : map_get(&p->certificates, found);
}

const struct principal *policy_find_name(const struct policy *p, struct str name)
{
    const struct policy_caller *c = map_get(&p->names, name);
    return c == NULL ? NULL : c->principal;
}

const struct issuer *policy_find_issuer(const struct policy *p, struct str iss)
{
    for (size_t i = 0; i < p->n_issuers; i++)
        if (str_eq(p->issuers[i].iss, iss))
            return &p->issuers[i];
    return NULL;
}

const struct issuer *policy_find_issuer_named(const struct policy *p, struct str name)
{
    for (size_t i = 0; i < p->n_issuers; i++)
        if (str_eq(p->issuers[i].name, name))
            return &p->issuers[i];
    return NULL;
}

/* ---- from one to the next ---- */

static bool caller_is_upheld(const struct policy *p, const struct policy *before,
                             const struct principal *who)
{
    const struct policy_caller *was = map_get(&before->names, who->sub);
    const struct policy_caller *is = map_get(&p->names, who->sub);
    if (was == NULL || is == NULL || !str_eq(who->root, is->principal->root))
        return false;
    if (who->jti.n == 0 && memcmp(was->digest, is->digest, SHA256_SIZE) != 0)
        return false;
    if (who->rights.n == 0)
        return is->principal->rights.n == 0;
    return access_covers(&is->principal->rights, who->rights.layers[0]);
}

/* What stands for a claim is the same claim, or it is another template. */
static bool issuer_is_upheld(const struct policy *p, const struct policy *before,
                             const struct principal *who)
{
    const struct issuer *was = policy_find_issuer_named(before, who->issuer);
    const struct issuer *is = policy_find_issuer_named(p, who->issuer);
    if (was == NULL || is == NULL || !str_eq(was->iss, is->iss) || !str_eq(was->root, is->root))
        return false;
    const struct access_rights ceiling = {.layers = {&is->grants}, .n = 1};
    return who->issued_s >= is->not_before_s && access_covers(&ceiling, &was->grants);
}

bool policy_upholds(const struct policy *p, const struct policy *before,
                    const struct principal *who)
{
    if (!who->known)
        return access_covers(&p->anonymous->rights, who->rights.layers[0]);
    return who->issuer.n > 0 ? issuer_is_upheld(p, before, who) : caller_is_upheld(p, before, who);
}
