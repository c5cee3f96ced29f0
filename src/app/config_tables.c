// SPDX-License-Identifier: Apache-2.0
#include "app/config_tables.h"
#include "base/mem.h"
#include "base/must.h"

#include <stdalign.h>
#include <string.h>

static size_t align_up(size_t n)
{
    size_t unit = alignof(max_align_t);
    return (n + unit - 1) / unit * unit;
}

static void count_rows(const struct options *options, const struct section_kinds *kinds,
                       size_t *n_options, size_t *n_kinds)
{
    *n_options = options->n;
    *n_kinds = kinds->n;
    for (size_t i = 0; features[i] != NULL; i++)
        if (features[i]->settings != NULL) {
            *n_options += features[i]->settings->n_options;
            *n_kinds += features[i]->settings->n_sections;
        }
}

/* `[lab]` in a program that was built without the Lab. */
static bool config_tables_explain_absent(struct str word, char *why, size_t size)
{
    const char *feature = feature_absent_section(word);
    if (feature == NULL)
        return false;
    snprintf(why, size, "[%.*s] needs the feature %s, which this program was built without",
             (int)word.n, word.p, feature);
    return true;
}

struct config_tables *config_tables_new(const struct options *options,
                                        const struct section_kinds *kinds, size_t from, size_t room)
{
    size_t n_options, n_kinds, end = from + room;
    count_rows(options, kinds, &n_options, &n_kinds);
    size_t head = align_up(sizeof(struct config_tables));
    size_t middle = align_up(n_options * sizeof *options->rows);
    struct config_tables *t = mem_zalloc(head + middle + n_kinds * sizeof *kinds->rows);
    struct option_row *row = (void *)((char *)t + head);
    struct section_kind *kind = (void *)((char *)t + head + middle);
    t->options = (struct options){row, n_options};
    t->file_options = (struct options){row + 1, n_options - 1};
    t->kinds = (struct section_kinds){kind, n_kinds, config_tables_explain_absent};
    memcpy(row, options->rows, options->n * sizeof *row);
    memcpy(kind, kinds->rows, kinds->n * sizeof *kind);
    row += options->n;
    kind += kinds->n;
    for (size_t i = 0; features[i] != NULL; i++) {
        const struct feature_settings *s = features[i]->settings;
        if (s == NULL)
            continue;
        t->at[i] = from = align_up(from);
        for (size_t k = 0; k < s->n_options; k++, row++) {
            *row = s->options[k];
            row->field += from;
        }
        for (size_t k = 0; k < s->n_sections; k++, kind++) {
            *kind = s->sections[k];
            kind->list_field += from;
        }
        from += s->size;
    }
    must(from <= end);
    return t;
}
