// SPDX-License-Identifier: Apache-2.0
#include "access/minted.h"
#include "base/err.h"
#include "base/hex.h"
#include "base/rand.h"

/* ---- making one ---- */

static json_t *text_of(struct str s)
{
    return json_stringn_nocheck(s.p != NULL ? s.p : "", s.n);
}

static void put_text(json_t *claims, const char *name, struct str value)
{
    if (value.n > 0)
        json_object_set_new(claims, name, text_of(value));
}

/* Tokens that p's own was made from, and p's own: texts with a NUL between them, as principals have
 * them. */
static json_t *parents_json(const struct principal *p)
{
    json_t *all = json_array();
    for (struct str rest = p->parent_jti; rest.n > 0;)
        json_array_append_new(all, text_of(str_cut(&rest, '\0')));
    if (p->jti.n > 0)
        json_array_append_new(all, text_of(p->jti));
    return all;
}

bool minted_fits_link(const struct access_grants *g)
{
    for (size_t i = 0; i < g->n; i++)
        if ((g->items[i].verbs & ~(ACCESS_MAY(READ) | ACCESS_MAY(GENERATE))) != 0)
            return false;
    return true;
}

/* One that was not asked for is the minter's. */
static bool limits_fit(const struct access_limits *inner, const struct access_limits *outer)
{
#define X(name, word, what)                                                                        \
    if (outer->name != 0 && inner->name > outer->name)                                             \
        return false;
    ACCESS_LIMITS(X)
#undef X
    return true;
}

/* Limits that are counted by who asks, and not by root or by request. */
static bool is_counted(const struct principal *p)
{
    const struct access_limits *l = &p->limits;
    return p->issuer.n > 0 || l->rate > 0 || l->append_rate > 0 || l->live > 0 ||
           l->connections > 0 || l->creates > 0 || l->subscriptions > 0 || l->generations > 0;
}

/* A user's token is never another one's. */
static bool may_name(const struct principal *p, struct str user)
{
    return user.n == 0 || p->user.n == 0 || str_eq(user, p->user);
}

static void put_user(json_t *claims, const struct principal *p, struct str asked)
{
    struct str user = p->user.n > 0 ? p->user : asked;
    put_text(claims, "user", user);
    if (user.n > 0 && (p->user.n > 0 ? p->apart : !is_counted(p)))
        json_object_set_new(claims, "apart", json_true());
}

static bool may_hand_on(const struct principal *p, const struct minted *m)
{
    return may_name(p, m->user) && p->known && !p->by_link &&
           access_covers(&p->rights, m->grants) && limits_fit(m->limits, &p->limits) &&
           m->expires_s <= p->expires_ms / 1000 && (!m->link || minted_fits_link(m->grants));
}

int minted_sign(const struct jwk_set *keys, const struct principal *p, const struct minted *m,
                struct buf *out, char jti[MINTED_JTI + 1])
{
    json_t *parents = parents_json(p);
    if (!may_hand_on(p, m) || json_array_size(parents) > MINTED_DEPTH_MAX) {
        json_decref(parents);
        return ERR_DENIED;
    }
    uint8_t random[MINTED_JTI / 2];
    rand_bytes(random, sizeof random);
    hex_encode(random, sizeof random, jti);
    jti[MINTED_JTI] = '\0';
    struct access_limits limits = *m->limits;
    access_limits_min(&limits, &p->limits);
    json_t *claims = json_object();
    put_text(claims, "iss", STR(MINTED_ISSUER));
    put_text(claims, "aud", STR(MINTED_ISSUER));
    put_text(claims, "jti", str_of(jti, MINTED_JTI));
    put_text(claims, "sub", p->sub);
    put_text(claims, "iss_name", p->issuer);
    put_text(claims, "root", p->root);
    struct str id = p->user.n > 0 ? p->minter : p->id;
    if (!str_eq(id, p->sub))
        put_text(claims, "id", id);
    put_user(claims, p, m->user);
    json_object_set_new(claims, "iat", json_integer(m->issued_s));
    json_object_set_new(claims, "exp", json_integer(m->expires_s));
    if (json_array_size(parents) > 0)
        json_object_set(claims, "par", parents);
    json_object_set_new(claims, "authorization_details", access_grants_json(m->grants, &limits));
    int err = jwt_sign_hs256(keys, m->link ? JWT_TYP_LINK : JWT_TYP_ACCESS, claims, out);
    json_decref(claims);
    json_decref(parents);
    return err;
}

/* ---- reading one ---- */

static struct str text_at(const json_t *claims, const char *name)
{
    const json_t *v = json_object_get(claims, name);
    return json_is_string(v) ? str_of(json_string_value(v), json_string_length(v)) : STR_NONE;
}

static struct str parents_of(const json_t *claims, struct arena *a)
{
    const json_t *all = json_object_get(claims, "par"), *item;
    struct buf text = {0};
    size_t i;
    json_array_foreach(all, i, item)
    {
        if (i > 0)
            buf_putc(&text, '\0');
        buf_put(&text, str_of(json_string_value(item), json_string_length(item)));
    }
    struct str kept = arena_dup(a, buf_str(&text));
    buf_deinit(&text);
    return kept;
}

/* Who bears it, of those whom the minter knows. */
static void set_user(struct principal *p, const json_t *claims)
{
    struct arena *a = &p->arena;
    p->user = arena_dup(a, text_at(claims, "user"));
    if (p->user.n == 0)
        return;
    p->minter = p->id;
    p->id = arena_printf(a, ">%.*s>%.*s", (int)p->user.n, p->user.p, (int)p->id.n, p->id.p);
    p->name = p->user;
    p->apart = json_is_true(json_object_get(claims, "apart"));
}

/* We have signed it: what is in it is as we have put it, and missing grants are none. */
struct principal *minted_principal(const struct jwt *t, bool link)
{
    struct principal *p = principal_new();
    struct arena *a = &p->arena;
    struct access_grants *g = arena_alloc(a, sizeof *g);
    struct str id = text_at(t->payload, "id");
    bool found;
    *g = (struct access_grants){0};
    p->known = true;
    p->by_link = link;
    p->minted = true;
    p->sub = arena_dup(a, t->sub);
    p->name = p->sub;
    p->id = id.n > 0 ? arena_dup(a, id) : p->sub;
    set_user(p, t->payload);
    p->issuer = arena_dup(a, text_at(t->payload, "iss_name"));
    p->root = arena_dup(a, text_at(t->payload, "root"));
    p->jti = arena_dup(a, t->jti);
    p->kid = arena_dup(a, str_of_cstr(t->kid));
    p->key = t->key;
    p->parent_jti = parents_of(t->payload, a);
    p->issued_s = t->iat_s > 0 ? t->iat_s : 0;
    p->expires_ms = t->exp_s * 1000;
    if (access_grants_add_json(g, &p->limits, a,
                               json_object_get(t->payload, "authorization_details"), &found) != 0)
        g->n = 0;
    p->rights = (struct access_rights){.layers = {g}, .n = 1};
    return p;
}

enum jwt_verdict minted_verify(const struct jwk_set *keys, struct str token, bool link,
                               int64_t now_s, struct principal **out)
{
    const struct str aud = STR(MINTED_ISSUER), typ = link ? JWT_TYP_LINK : JWT_TYP_ACCESS;
    struct jwt_rules rules = {.iss = STR(MINTED_ISSUER),
                              .aud = &aud,
                              .n_aud = 1,
                              .typ = &typ,
                              .n_typ = 1,
                              .max_lifetime_s = MINTED_LIFETIME_S,
                              .skew_s = JWT_SKEW_S, /* of the server that made it */
                              .keys = keys,
                              .iat_optional = link};
    struct jwt t;
    enum jwt_verdict v = jwt_verify(&rules, token, now_s, &t);
    if (v != JWT_OK)
        return v;
    if (now_s >= t.exp_s || t.sub.n == 0 || t.jti.n == 0)
        v = now_s >= t.exp_s ? JWT_EXPIRED : JWT_BAD_CLAIM;
    else
        *out = minted_principal(&t, link);
    jwt_deinit(&t);
    return v;
}
