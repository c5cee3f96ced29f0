// SPDX-License-Identifier: Apache-2.0
/* suggest.h -- "did you mean ...?": the nearest of some names to a word that is none of them.
 *
 *     struct suggest s = {.word = word};
 *     suggest_offer(&s, "listen");
 *     suggest_offer(&s, "store");
 *     if (s.best) ...
 */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include "base/str.h"

struct suggest {
    struct str word;
    const char *best; /* NULL: nothing is near enough; else the first of the nearest offered */
    size_t edits;     /* how far it is */
};

/* The name is borrowed for as long as best is used. */
void suggest_offer(struct suggest *s, const char *name);

#endif
