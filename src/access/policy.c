// SPDX-License-Identifier: Apache-2.0
#include "access/policy.h"
#include "base/mem.h"

#include <stdlib.h>

struct policy_caller {
    uint8_t digest[SHA256_SIZE];
    struct principal *principal;
};

struct policy *policy_new(void)
{
    struct policy *p = mem_zalloc(sizeof *p);
    p->refs = 1;
    p->anonymous = &principal_anonymous;
    map_init(&p->callers);
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
    for (struct policy_caller *c; (c = map_next(&p->callers, &at)) != NULL;) {
        principal_unref(c->principal);
        free(c);
    }
    map_deinit(&p->callers);
    principal_unref(p->anonymous);
    arena_deinit(&p->arena);
    free(p);
}

static struct str digest_key(const uint8_t *digest)
{
    return str_of((const char *)digest, SHA256_SIZE);
}

void policy_add_caller(struct policy *p, const uint8_t token_sha256[SHA256_SIZE],
                       struct principal *caller)
{
    struct policy_caller *c = mem_alloc(sizeof *c);
    memcpy(c->digest, token_sha256, SHA256_SIZE);
    c->principal = caller;
    struct policy_caller *before = map_put(&p->callers, digest_key(c->digest), c);
    if (before != NULL)
        principal_unref(before->principal);
    free(before);
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

const struct principal *policy_find_name(const struct policy *p, struct str name)
{
    size_t at = 0;
    for (const struct policy_caller *c; (c = map_next(&p->callers, &at)) != NULL;)
        if (str_eq(c->principal->name, name))
            return c->principal;
    return NULL;
}
