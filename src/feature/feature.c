// SPDX-License-Identifier: Apache-2.0
#include "feature/feature.h"
#include "base/err.h"

#include <string.h>

void *feature_find(const struct feature_host *host, const char *name)
{
    for (const struct feature_state *s = host->states; s->feature != NULL; s++)
        if (strcmp(s->feature->name, name) == 0)
            return s->state;
    return NULL;
}

const void *feature_config(const struct feature_configs *all, const char *name)
{
    for (size_t i = 0; features[i] != NULL; i++)
        if (strcmp(features[i]->name, name) == 0)
            return all->of[i];
    return NULL;
}

void feature_warn(struct feature_warnings *d, const char *setting, const char *why)
{
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->rows[i].setting, setting) == 0 && strcmp(d->rows[i].why, why) == 0)
            return;
    if (d->n < FEATURE_WARNINGS_MAX)
        d->rows[d->n++] = (struct feature_warning){setting, why};
}

static bool has_word(const char *list, struct str word)
{
    struct str words = str_of_cstr(list);
    while (words.n > 0)
        if (str_eq(str_cut(&words, ' '), word))
            return true;
    return false;
}

const char *feature_absent_section(struct str word)
{
    const struct feature_absent *f = features_absent;
    while (f->name != NULL && !has_word(f->sections, word))
        f++;
    return f->name;
}

const char *feature_absent_command(struct str word)
{
    const struct feature_absent *f = features_absent;
    while (f->name != NULL && !has_word(f->commands, word))
        f++;
    return f->name;
}
