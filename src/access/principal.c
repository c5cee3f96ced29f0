// SPDX-License-Identifier: Apache-2.0
#include "access/principal.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/suggest.h"

#include <stdio.h>
#include <stdlib.h>

#define CAPABILITY_MAX 128 /* bytes */

const struct principal principal_anonymous = {
    .name = STR_INIT("anonymous"), .id = STR_INIT("anonymous"), .expires_ms = INT64_MAX};

struct principal *principal_new(void)
{
    struct principal *p = mem_zalloc(sizeof *p);
    p->refs = 1;
    p->expires_ms = INT64_MAX;
    list_init(&p->answers);
    list_init(&p->active);
    return p;
}

void principal_unref(const struct principal *shared)
{
    struct principal *p = (struct principal *)shared;
    if (p == NULL || p->refs == 0 || --p->refs > 0)
        return;
    must(list_empty(&p->answers) && list_empty(&p->active));
    arena_deinit(&p->arena);
    free(p);
}

bool principal_can(const struct principal *p, struct str capability)
{
    for (size_t i = 0; i < p->n_capabilities; i++)
        if (str_eq(p->capabilities[i], capability))
            return true;
    return false;
}

bool principal_works(const struct principal *p)
{
    return principal_can(p, STR("worker")) ||
           (p->rights.n > 0 && access_holds(&p->rights, ACCESS_VERB_WORK, ACCESS_SESSION));
}

struct str principal_rooted(const struct principal *p, struct arena *a, struct str name)
{
    if (p->root.n == 0)
        return name;
    char *to = arena_alloc(a, p->root.n + name.n + 1);
    memcpy(to, p->root.p, p->root.n);
    if (name.n > 0)
        memcpy(to + p->root.n, name.p, name.n);
    return str_of(to, p->root.n + name.n);
}

struct str principal_unrooted(const struct principal *p, struct str name)
{
    if (p->root.n == 0)
        return name;
    return str_starts(name, p->root) ? str_skip(name, p->root.n) : STR_NONE;
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
