// SPDX-License-Identifier: Apache-2.0
#include "access/verb.h"

static const struct {
    struct str word;
    uint32_t kinds;
} verbs[] = {
#define X(verb, word, kinds) {STR_INIT(word), kinds},
    ACCESS_VERBS(X)
#undef X
};

static const struct str kinds[] = {
#define X(kind, word) STR_INIT(word),
    ACCESS_KINDS(X)
#undef X
};

struct str access_verb_text(enum access_verb verb)
{
    return verbs[verb].word;
}

struct str access_kind_text(enum access_kind kind)
{
    return kinds[kind];
}

uint32_t access_verb_kinds(enum access_verb verb)
{
    return verbs[verb].kinds;
}

bool access_verb_parse(struct str word, enum access_verb *out)
{
    for (unsigned i = 0; i < ACCESS_N_VERBS; i++)
        if (str_eq(verbs[i].word, word)) {
            *out = (enum access_verb)i;
            return true;
        }
    return false;
}

bool access_kind_parse(struct str word, enum access_kind *out)
{
    for (unsigned i = 0; i < ACCESS_N_KINDS; i++)
        if (str_eq(kinds[i], word)) {
            *out = (enum access_kind)i;
            return true;
        }
    return false;
}
