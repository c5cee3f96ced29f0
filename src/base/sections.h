// SPDX-License-Identifier: Apache-2.0
/* sections.h -- settings that come in groups: `[route /chat]` and what stands below it in a file.
 *
 * A kind of section is one row of a table, and its settings are a table of options.h. Each section
 * becomes one struct of the kind's own type; those of a kind stand in one array, which hangs in the
 * target, the struct that the settings outside of any section go to. The target is the caller's; it
 * begins with empty lists, and sections_free frees what was put there. */
#ifndef BASE_SECTIONS_H
#define BASE_SECTIONS_H

#include "base/options.h"

/* In the order of the file. items: an array of the kind's struct. */
struct section_list {
    void *items;
    size_t n;
};

struct section_kind {
    const char *word; /* "route" */
    const char *name; /* what its name is called: "PATH"; NULL: it has none, and there is one */
    const char *help; /* one or two sentences */
    const struct options *options;
    size_t size;       /* of its struct */
    size_t name_field; /* offsetof in its struct: a char *, owned; with a name only */
    size_t list_field; /* offsetof in the target: a struct section_list */
    /* Of a name, at most SECTION_NAME_MAX bytes: 0, or ERR_SYNTAX with a reason. */
    int (*check_name)(struct str name, char *reason, size_t size);
    /* Once all settings are there; derives and compares. NULL: nothing to do. 0, or ERR_SYNTAX with
     * a reason. */
    int (*finish)(void *section, char *reason, size_t size);
};
#define SECTION_NAME_MAX 128
#define SECTIONS_MAX     1000 /* of one kind */

struct section_kinds {
    const struct section_kind *rows;
    size_t n;
    /* Of a word that no kind has: why there is none, as a sentence; false: nothing is known. NULL
     * is allowed. */
    bool (*explain)(struct str word, char *why, size_t size);
};

/* A section that is being read. The settings move when the next one of the kind is added. */
struct section {
    const struct section_kind *kind;
    void *settings; /* NULL: none */
};

/* Failures are ERR_SYNTAX with a sentence in `why` (size bytes); sections_free is due all the same.
 */

/* Adds the section whose header reads `[header]`, with its defaults. */
int sections_open(const struct section_kinds *k, void *target, struct str header,
                  struct section *out, char *why, size_t size);

/* The same, of a known kind. */
int sections_add(const struct section_kind *kind, void *target, struct str name,
                 struct section *out, char *why, size_t size);

/* Its last setting has been read: is anything missing? */
int section_finish(const struct section *s, char *why, size_t size);

/* The settings of the section of this name; NULL: there is none. */
void *sections_find(const struct section_kind *kind, void *target, struct str name);

/* Whether two targets have the same sections of this kind. A secret that the first has forgotten
 * meanwhile is no difference. */
bool sections_same(const struct section_kind *kind, void *a, void *b);
/* Those of the one for those of the other. */
void sections_swap(const struct section_kind *kind, void *a, void *b);

/* `route /chat`, as it stands between the brackets, cut to fit. */
#define SECTION_LABEL_MAX 256
void section_label(const struct section *s, char out[SECTION_LABEL_MAX]);

/* The kinds with their help and the names of their settings, as options_help does it. */
void sections_help(const struct section_kinds *k, FILE *to);

/* Leaves all lists empty; may be called twice. */
void sections_free(const struct section_kinds *k, void *target);

#endif
