// SPDX-License-Identifier: Apache-2.0
#include "base/sections.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/suggest.h"

#include <stdlib.h>

#define REASON_MAX 256
#define SHOWN_MAX  60 /* bytes of a refused header that an error repeats */

static int sections_shown(struct str s)
{
    return s.n > SHOWN_MAX ? SHOWN_MAX : (int)s.n;
}

/* ---- lists ---- */

static struct section_list *list_of(const struct section_kind *kind, void *target)
{
    return (void *)((char *)target + kind->list_field);
}

static void *item(const struct section_kind *kind, const struct section_list *l, size_t i)
{
    return (char *)l->items + i * kind->size;
}

static char **sections_name_of(const struct section_kind *kind, void *settings)
{
    return kind->name ? (void *)((char *)settings + kind->name_field) : NULL;
}

void *sections_find(const struct section_kind *kind, void *target, struct str name)
{
    const struct section_list *l = list_of(kind, target);
    for (size_t i = 0; i < l->n; i++) {
        char **its = sections_name_of(kind, item(kind, l, i));
        if (its == NULL || str_eq(str_of_cstr(*its), name))
            return item(kind, l, i);
    }
    return NULL;
}

static bool is_forgotten(const struct option_row *r, const void *settings)
{
    return r->secret && r->type == OPTION_TEXT &&
           *(char *const *)((const char *)settings + r->field) == NULL;
}

static bool section_same(const struct section_kind *kind, void *a, void *b)
{
    char **name = sections_name_of(kind, a), **other = sections_name_of(kind, b);
    bool same = name == NULL || strcmp(*name, *other) == 0;
    for (size_t i = 0; same && i < kind->options->n; i++) {
        const struct option_row *r = &kind->options->rows[i];
        same = is_forgotten(r, a) || option_same(r, a, b);
    }
    return same;
}

bool sections_same(const struct section_kind *kind, void *a, void *b)
{
    const struct section_list *x = list_of(kind, a), *y = list_of(kind, b);
    bool same = x->n == y->n;
    for (size_t i = 0; same && i < x->n; i++)
        same = section_same(kind, item(kind, x, i), item(kind, y, i));
    return same;
}

void sections_swap(const struct section_kind *kind, void *a, void *b)
{
    struct section_list *x = list_of(kind, a), *y = list_of(kind, b), kept = *x;
    *x = *y;
    *y = kept;
}

/* ---- kinds ---- */

static const struct section_kind *find_kind(const struct section_kinds *k, struct str word)
{
    for (size_t i = 0; i < k->n; i++)
        if (str_eq(str_of_cstr(k->rows[i].word), word))
            return &k->rows[i];
    return NULL;
}

/* `[route PATH]` */
static void put_form(struct buf *out, const struct section_kind *kind)
{
    buf_printf(out, "[%s%s%s]", kind->word, kind->name ? " " : "", kind->name ? kind->name : "");
}

static void put_forms(struct buf *out, const struct section_kinds *k)
{
    for (size_t i = 0; i < k->n; i++) {
        buf_put(out, i == 0 ? STR("") : i + 1 < k->n ? STR(", ") : STR(" and "));
        put_form(out, &k->rows[i]);
    }
}

static void explain_unknown(const struct section_kinds *k, struct str word, char *why, size_t size)
{
    struct suggest s = {.word = word};
    for (size_t i = 0; i < k->n; i++)
        suggest_offer(&s, k->rows[i].word);
    struct buf text = {0};
    if (s.best) {
        put_form(&text, find_kind(k, str_of_cstr(s.best)));
        snprintf(why, size, "unknown section [%.*s]; did you mean %.*s?", sections_shown(word),
                 word.p, (int)text.n, text.p);
    } else {
        put_forms(&text, k);
        snprintf(why, size, "unknown section [%.*s]; there are %.*s", sections_shown(word), word.p,
                 (int)text.n, text.p);
    }
    buf_deinit(&text);
}

/* ---- one section ---- */

static int check_name(const struct section_kind *kind, struct str name, char *why, size_t size)
{
    char reason[REASON_MAX] = "";
    if (kind->name == NULL && name.n > 0) {
        snprintf(why, size, "a section [%s] takes no name", kind->word);
        return ERR_SYNTAX;
    }
    if (kind->name == NULL)
        return 0;
    if (name.n == 0) {
        snprintf(why, size, "the section needs a name: [%s %s]", kind->word, kind->name);
        return ERR_SYNTAX;
    }
    if (name.n > SECTION_NAME_MAX)
        snprintf(reason, sizeof reason, "the name is longer than %d bytes", SECTION_NAME_MAX);
    else if (kind->check_name == NULL || kind->check_name(name, reason, sizeof reason) == 0)
        return 0;
    snprintf(why, size, "[%s %.*s]: %s", kind->word, sections_shown(name), name.p, reason);
    return ERR_SYNTAX;
}

static int check_place(const struct section_kind *kind, void *target, struct str name, char *why,
                       size_t size)
{
    if (sections_find(kind, target, name)) {
        snprintf(why, size, "there is a section [%s%s%.*s] already", kind->word,
                 name.n > 0 ? " " : "", sections_shown(name), name.n > 0 ? name.p : "");
        return ERR_SYNTAX;
    }
    if (list_of(kind, target)->n == SECTIONS_MAX) {
        snprintf(why, size, "there are more than %d sections [%s]", SECTIONS_MAX, kind->word);
        return ERR_SYNTAX;
    }
    return 0;
}

static char *sections_copy(struct str s)
{
    char *z = mem_alloc(s.n + 1);
    memcpy(z, s.p, s.n);
    z[s.n] = '\0';
    return z;
}

int sections_add(const struct section_kind *kind, void *target, struct str name,
                 struct section *out, char *why, size_t size)
{
    int err = check_name(kind, name, why, size);
    if (err == 0)
        err = check_place(kind, target, name, why, size);
    if (err != 0)
        return err;
    struct section_list *l = list_of(kind, target);
    l->items = mem_realloc(l->items, (l->n + 1) * kind->size);
    void *settings = item(kind, l, l->n);
    memset(settings, 0, kind->size);
    /* From here on sections_free has to find it. */
    l->n++;
    if (kind->name)
        *sections_name_of(kind, settings) = sections_copy(name);
    *out = (struct section){kind, settings};
    return options_defaults(kind->options, settings, why, size);
}

int sections_open(const struct section_kinds *k, void *target, struct str header,
                  struct section *out, char *why, size_t size)
{
    struct str name = str_trim(header);
    size_t n = 0;
    while (n < name.n && name.p[n] != ' ' && name.p[n] != '\t')
        n++;
    struct str word = str_of(name.p, n);
    const struct section_kind *kind = find_kind(k, word);
    if (kind)
        return sections_add(kind, target, str_trim(str_skip(name, n)), out, why, size);
    if (k->explain == NULL || !k->explain(word, why, size))
        explain_unknown(k, word, why, size);
    return ERR_SYNTAX;
}

void section_label(const struct section *s, char out[SECTION_LABEL_MAX])
{
    char **name = sections_name_of(s->kind, s->settings);
    snprintf(out, SECTION_LABEL_MAX, "%s%s%s", s->kind->word, name ? " " : "", name ? *name : "");
}

int section_finish(const struct section *s, char *why, size_t size)
{
    char label[SECTION_LABEL_MAX], reason[REASON_MAX] = "";
    section_label(s, label);
    const struct option_row *missing = options_missing(s->kind->options, s->settings);
    if (missing) {
        snprintf(why, size, "[%s] needs a line `%s = %s`", label, missing->name,
                 missing->value ? missing->value : "VALUE");
        return ERR_SYNTAX;
    }
    if (s->kind->finish == NULL || s->kind->finish(s->settings, reason, sizeof reason) == 0)
        return 0;
    snprintf(why, size, "[%s]: %s", label, reason);
    return ERR_SYNTAX;
}

/* ---- all of them ---- */

void sections_help(const struct section_kinds *k, FILE *to)
{
    for (size_t i = 0; i < k->n; i++) {
        const struct section_kind *kind = &k->rows[i];
        struct buf text = {0};
        put_form(&text, kind);
        fprintf(to, "  %.*s\n", (int)text.n, text.p);
        text.n = 0;
        buf_printf(&text, "%s Settings:", kind->help);
        for (size_t j = 0; j < kind->options->n; j++)
            buf_printf(&text, " %s%s", kind->options->rows[j].name,
                       j + 1 < kind->options->n ? "," : ".");
        buf_putc(&text, '\0');
        options_help_text(text.p, to);
        buf_deinit(&text);
    }
}

void sections_free(const struct section_kinds *k, void *target)
{
    for (size_t i = 0; i < k->n; i++) {
        const struct section_kind *kind = &k->rows[i];
        struct section_list *l = list_of(kind, target);
        for (size_t j = 0; j < l->n; j++) {
            void *settings = item(kind, l, j);
            options_free(kind->options, settings);
            if (kind->name)
                free(*sections_name_of(kind, settings));
        }
        free(l->items);
        *l = (struct section_list){0};
    }
}
