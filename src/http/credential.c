// SPDX-License-Identifier: Apache-2.0
#include "http/credential.h"
#include "base/err.h"
#include "http/exchange.h"
#include "http/url.h"

#define GRANT  "grant"
#define BEARER "Bearer"

static const struct str cookie_names[] = {STR_INIT("__Host-tidemark"),
                                          STR_INIT("__Secure-tidemark")};

/* The headers of a request that may carry one, by their lengths: every header is looked up here. */
static const struct carrier {
    struct str name;
    bool bare;                   /* the token alone, without a scheme */
    bool cookie;                 /* among others */
    enum credential_owner least; /* CREDENTIAL_THEIRS: always looked at */
} carriers[] = {
    [6] = {STR_INIT("Cookie"), false, true, CREDENTIAL_THEIRS},
    [9] = {STR_INIT("x-api-key"), true, false, CREDENTIAL_PROVIDER},
    [13] = {STR_INIT("Authorization"), false, false, CREDENTIAL_OURS},
    [14] = {STR_INIT("x-goog-api-key"), true, false, CREDENTIAL_PROVIDER},
    [22] = {STR_INIT("Tidemark-Authorization"), false, false, CREDENTIAL_THEIRS},
};

static bool is_looked_at(const struct carrier *c, enum credential_owner owner)
{
    if (c->least == CREDENTIAL_THEIRS)
        return true;
    return c->least == CREDENTIAL_OURS ? owner != CREDENTIAL_THEIRS : owner == CREDENTIAL_PROVIDER;
}

/* NULL: none. */
static inline const struct carrier *carrier_of(struct str header)
{
    if (header.n >= sizeof carriers / sizeof *carriers)
        return NULL;
    const struct carrier *c = &carriers[header.n];
    return str_eq_nocase(c->name, header) && header.n > 0 ? c : NULL;
}

/* A second one, wherever it is, is an error. */
static int take(struct credential *out, enum credential_by by, struct str token)
{
    if (out->by != CREDENTIAL_NONE)
        return ERR_SYNTAX;
    *out = (struct credential){by, token};
    return 0;
}

static bool is_trimmed(struct str s)
{
    return s.n > 0 && s.p[0] > ' ' && s.p[s.n - 1] > ' ';
}

/* Most spell it like that; a tab will do as well as a blank. */
static bool is_bearer(struct str value)
{
    size_t n = sizeof BEARER - 1;
    if (str_starts(value, STR(BEARER " ")))
        return true;
    return value.n >= n && str_eq_nocase(str_of(value.p, n), STR(BEARER)) &&
           (value.n == n || value.p[n] == ' ' || value.p[n] == '\t');
}

/* Other schemes are somebody else's, and no credential of ours. */
static int take_header(struct credential *out, const struct carrier *c, struct str value)
{
    if (c->bare)
        return take(out, CREDENTIAL_BEARER, str_trim(value));
    if (!is_bearer(value))
        return 0;
    struct str token = str_skip(value, value.n < sizeof BEARER ? value.n : sizeof BEARER);
    return take(out, CREDENTIAL_BEARER, is_trimmed(token) ? token : str_trim(token));
}

static bool is_our_cookie(struct str name)
{
    for (size_t i = 0; i < sizeof cookie_names / sizeof *cookie_names; i++)
        if (str_eq(cookie_names[i], name))
            return true;
    return false;
}

__attribute__((noinline)) static int take_cookies(struct credential *out, struct str value)
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

__attribute__((noinline)) static int take_link(struct exchange *x, struct credential *out)
{
    struct str token;
    int found = url_query(&x->arena, x->request->query, STR(GRANT), &token);
    return found <= 0 ? found : take(out, CREDENTIAL_LINK, token);
}

int credential_find(struct exchange *x, enum credential_owner owner, struct credential *out)
{
    const struct request *req = x->request;
    *out = (struct credential){.by = CREDENTIAL_NONE};
    for (const struct header *h = req->headers, *end = h + req->n_headers; h < end; h++) {
        const struct carrier *c = carrier_of(h->name);
        if (c == NULL || !is_looked_at(c, owner))
            continue;
        int err = c->cookie ? take_cookies(out, h->value) : take_header(out, c, h->value);
        if (err != 0)
            return err;
    }
    return req->query.n > 0 ? take_link(x, out) : 0;
}

/* Whatever stands before the token: a scheme that is misspelt, or none, does not hide it. */
static struct str behind_scheme(struct str value)
{
    value = str_trim(value);
    for (size_t i = 0; i < value.n; i++)
        if (value.p[i] == ' ' || value.p[i] == '\t')
            return str_trim(str_skip(value, i));
    return value;
}

struct str credential_next_theirs(const struct exchange *x, size_t *at)
{
    const struct request *req = x->request;
    while (*at < req->n_headers) {
        const struct header *h = &req->headers[(*at)++];
        const struct carrier *c = carrier_of(h->name);
        if (c != NULL && !is_looked_at(c, CREDENTIAL_THEIRS))
            return behind_scheme(h->value);
    }
    return STR_NONE;
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
