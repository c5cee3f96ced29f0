// SPDX-License-Identifier: Apache-2.0
#include "http/principal.h"
#include "base/suggest.h"
#include "base/err.h"
#include "base/ascii.h"
#include "base/map.h"
#include "base/mem.h"
#include "http/message.h"

#include <stdio.h>
#include <stdlib.h>

const struct principal principal_anonymous = {.name = STR_INIT("anonymous")};

struct known {
    uint8_t digest[SHA256_SIZE];
    struct principal principal;
};

#define CAPABILITY_MAX 128 /* bytes */

struct principals {
    struct map by_digest;
};

bool principal_can(const struct principal *p, struct str capability)
{
    for (size_t i = 0; i < p->n_capabilities; i++)
        if (str_eq(p->capabilities[i], capability))
            return true;
    return false;
}

struct principals *principals_new(void)
{
    struct principals *all = mem_alloc(sizeof *all);
    map_init(&all->by_digest);
    return all;
}

void principals_free(struct principals *all)
{
    size_t at = 0;
    if (all == NULL)
        return;
    for (struct known *k; (k = map_next(&all->by_digest, &at)) != NULL;)
        free(k);
    map_deinit(&all->by_digest);
    free(all);
}

static struct str principal_key_of(const uint8_t *digest)
{
    return str_of((const char *)digest, SHA256_SIZE);
}

void principals_add(struct principals *all, const uint8_t token_sha256[SHA256_SIZE],
                    struct principal p)
{
    struct known *k = mem_alloc(sizeof *k);
    memcpy(k->digest, token_sha256, SHA256_SIZE);
    k->principal = p;
    free(map_put(&all->by_digest, principal_key_of(k->digest), k));
}

const struct principal *principals_find(const struct principals *all, const struct request *req)
{
    struct str token = request_header(req, STR("Authorization"));
    uint8_t digest[SHA256_SIZE];
    if (!str_eq_nocase(str_cut(&token, ' '), STR("Bearer")) || token.n == 0)
        return &principal_anonymous;
    /* How long the lookup takes tells about a digest, from which no token follows. */
    sha256(str_trim(token), digest);
    const struct known *k = map_get(&all->by_digest, principal_key_of(digest));
    return k == NULL ? &principal_anonymous : &k->principal;
}

static const char *const known[] = {"worker", "tool", "admin"};

/* A misspelt capability would only show as a refusal, much later. */
int principal_check_capability(struct str value, char *reason, size_t size)
{
    bool own = value.n <= CAPABILITY_MAX && memchr(value.p, ':', value.n) != NULL;
    if (own && ascii_is_word(value, "-._:*/"))
        return 0;
    struct suggest s = {.word = value};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (str_eq(str_of_cstr(known[i]), value))
            return 0;
        suggest_offer(&s, known[i]);
    }
    if (s.best)
        snprintf(reason, size, "no such capability; did you mean %s?", s.best);
    return ERR_SYNTAX;
}
