// SPDX-License-Identifier: Apache-2.0
#include "http/credential.h"
#include "base/err.h"
#include "http/exchange.h"
#include "http/url.h"

#define GRANT "grant"

static const struct str cookie_names[] = {STR_INIT("__Host-tidemark"),
                                          STR_INIT("__Secure-tidemark")};

/* The headers of a request that may carry one. */
static const struct carrier {
    struct str name;
    bool bare;                   /* the token alone, without a scheme */
    enum credential_owner least; /* CREDENTIAL_THEIRS: always looked at */
} carriers[] = {
    {STR_INIT("Tidemark-Authorization"), false, CREDENTIAL_THEIRS},
    {STR_INIT("Authorization"), false, CREDENTIAL_OURS},
    {STR_INIT("x-api-key"), true, CREDENTIAL_PROVIDER},
    {STR_INIT("x-goog-api-key"), true, CREDENTIAL_PROVIDER},
};

static bool is_looked_at(const struct carrier *c, enum credential_owner owner)
{
    if (c->least == CREDENTIAL_THEIRS)
        return true;
    return c->least == CREDENTIAL_OURS ? owner != CREDENTIAL_THEIRS : owner == CREDENTIAL_PROVIDER;
}

static const struct carrier *carrier_of(struct str header)
{
    for (size_t i = 0; i < sizeof carriers / sizeof *carriers; i++)
        if (str_eq_nocase(carriers[i].name, header))
            return &carriers[i];
    return NULL;
}

/* A second one, wherever it is, is an error. */
static int take(struct credential *out, enum credential_by by, struct str token)
{
    if (out->by != CREDENTIAL_NONE)
        return ERR_SYNTAX;
    *out = (struct credential){by, token};
    return 0;
}

/* Other schemes are somebody else's, and no credential of ours. */
static int take_header(struct credential *out, const struct carrier *c, struct str value)
{
    if (c->bare)
        return take(out, CREDENTIAL_BEARER, str_trim(value));
    size_t n = 0;
    while (n < value.n && value.p[n] != ' ' && value.p[n] != '\t')
        n++;
    bool ours = str_eq_nocase(str_of(value.p, n), STR("Bearer"));
    return ours ? take(out, CREDENTIAL_BEARER, str_trim(str_skip(value, n))) : 0;
}

static bool is_our_cookie(struct str name)
{
    for (size_t i = 0; i < sizeof cookie_names / sizeof *cookie_names; i++)
        if (str_eq(cookie_names[i], name))
            return true;
    return false;
}

static int take_cookies(struct credential *out, struct str value)
{
    int err = 0;
    while (err == 0 && value.p != NULL) {
        struct str rest = str_trim(str_cut(&value, ';')), name = str_cut(&rest, '=');
        if (is_our_cookie(name))
            err = take(out, CREDENTIAL_COOKIE, rest.p != NULL ? rest : STR(""));
    }
    return err;
}

struct str credential_cut_cookies(struct arena *a, struct str value)
{
    char *to = arena_alloc(a, 2 * value.n + 1); /* a blank may be added behind each semicolon */
    size_t n = 0;
    while (value.p != NULL) {
        struct str pair = str_trim(str_cut(&value, ';')), rest = pair;
        if (pair.n == 0 || is_our_cookie(str_cut(&rest, '=')))
            continue;
        if (n > 0) {
            to[n++] = ';';
            to[n++] = ' ';
        }
        memcpy(to + n, pair.p, pair.n);
        n += pair.n;
    }
    return str_of(to, n);
}

int credential_find(struct exchange *x, enum credential_owner owner, struct credential *out)
{
    const struct request *req = x->request;
    struct str token;
    int err = 0;
    *out = (struct credential){.by = CREDENTIAL_NONE};
    for (size_t i = 0; err == 0 && i < req->n_headers; i++) {
        const struct header *h = &req->headers[i];
        const struct carrier *c = carrier_of(h->name);
        if (c != NULL && is_looked_at(c, owner))
            err = take_header(out, c, h->value);
        else if (c == NULL && str_eq_nocase(h->name, STR("Cookie")))
            err = take_cookies(out, h->value);
    }
    if (err == 0 && req->query.n > 0) {
        int found = url_query(&x->arena, req->query, STR(GRANT), &token);
        err = found < 0 ? found : found > 0 ? take(out, CREDENTIAL_LINK, token) : 0;
    }
    return err;
}

static bool is_grant(struct exchange *x, struct str pair)
{
    struct str key = str_cut(&pair, '=');
    return url_decode(&x->arena, key, true, &key) == 0 && str_eq(key, STR(GRANT));
}

static struct str without_grant(struct exchange *x, struct str rest)
{
    char *to = arena_alloc(&x->arena, rest.n);
    size_t n = 0;
    while (rest.p != NULL) {
        struct str pair = str_cut(&rest, '&');
        if (is_grant(x, pair))
            continue;
        if (n > 0)
            to[n++] = '&';
        memcpy(to + n, pair.p, pair.n);
        n += pair.n;
    }
    return n > 0 ? str_of(to, n) : STR_NONE;
}

static bool has_grant(struct exchange *x, struct str rest)
{
    while (rest.p != NULL)
        if (is_grant(x, str_cut(&rest, '&')))
            return true;
    return false;
}

void credential_cut(struct exchange *x)
{
    const struct request *req = x->request;
    if (!has_grant(x, req->query))
        return;
    struct request *cut = arena_alloc(&x->arena, sizeof *cut);
    *cut = *req;
    cut->query = without_grant(x, req->query);
    x->request = cut;
}
