// SPDX-License-Identifier: Apache-2.0
#include "access/issuer.h"
#include "access/principal.h"

static const char bad_details[] = "an entry of authorization_details is malformed";
static const char bad_root[] = "the root cannot be told from the token's claims";
static const char too_old[] = "the token was issued before the issuer's not-before";

/* ---- who ---- */

/* Of the same name under two roots there are two, who have nothing in common. */
static struct str make_id(const struct principal *p, struct arena *a)
{
    struct str last = p->sub.n > 0 ? p->sub : p->jti;
    const char *mark = p->sub.n > 0 ? "|" : "#", *root_mark = p->root.n > 0 ? "|" : "";
    return arena_printf(a, "%.*s%s%.*s%s%.*s", (int)p->issuer.n, p->issuer.p, root_mark,
                        (int)p->root.n, p->root.n > 0 ? p->root.p : "", mark, (int)last.n,
                        last.n > 0 ? last.p : "");
}

static struct principal *bearer_new(const struct jwt *t, struct str issuer)
{
    struct principal *p = principal_new();
    struct arena *a = &p->arena;
    p->known = true;
    p->issuer = arena_dup(a, issuer);
    p->sub = arena_dup(a, t->sub);
    p->jti = arena_dup(a, t->jti);
    p->issued_s = t->iat_s;
    p->name = p->sub.n > 0 ? p->sub : p->issuer;
    return p;
}

static struct principal *refuse(struct principal *p, const char *cause, const char **why)
{
    *why = cause;
    principal_unref(p);
    return NULL;
}

/* ---- what he may do ---- */

static struct access_grants *new_grants(struct principal *p)
{
    struct access_grants *g = arena_alloc(&p->arena, sizeof *g);
    *g = (struct access_grants){0};
    return g;
}

static void add_layer(struct principal *p, const struct access_grants *g)
{
    p->rights.layers[p->rights.n++] = g;
}

/* False: one entry of our type is not as it should be. *found: there are some. */
static bool read_details(struct principal *p, const json_t *payload, struct access_grants *own,
                         bool *found)
{
    const json_t *details = json_object_get(payload, "authorization_details");
    return access_grants_add_json(own, &p->limits, &p->arena, details, found) == 0;
}

static bool is_root(struct str root)
{
    return root.n > 1 && root.n <= ISSUER_ROOT_MAX && root.p[0] != '/' &&
           root.p[root.n - 1] == '/' && memchr(root.p, '\0', root.n) == NULL;
}

/* ---- of an issuer ---- */

void issuer_rules(const struct issuer *i, const struct jwk_set *keys, struct jwt_rules *out)
{
    *out = (struct jwt_rules){.iss = i->iss,
                              .aud = i->aud,
                              .n_aud = i->n_aud,
                              .typ = i->typ,
                              .n_typ = i->n_typ,
                              .max_lifetime_s = i->max_lifetime_s,
                              .skew_s = JWT_SKEW_S,
                              .keys = keys};
}

struct principal *issuer_principal(const struct issuer *i, const struct jwt *t, const char **why)
{
    if (t->iat_s < i->not_before_s) {
        *why = too_old;
        return NULL;
    }
    struct principal *p = bearer_new(t, i->name);
    struct access_grants *ceiling = new_grants(p), *own = new_grants(p);
    bool found;
    p->limits = i->limits;
    p->expires_ms = (t->exp_s + JWT_SKEW_S) * 1000;
    if (!read_details(p, t->payload, own, &found))
        return refuse(p, bad_details, why);
    if (i->root.n > 0 &&
        (!access_expand(i->root, t->payload, &p->arena, &p->root) || !is_root(p->root)))
        return refuse(p, bad_root, why);
    p->id = make_id(p, &p->arena);
    access_grants_expand(&i->grants, t->payload, &p->arena, ceiling);
    add_layer(p, ceiling);
    if (found)
        add_layer(p, own);
    return p;
}
