// SPDX-License-Identifier: Apache-2.0
/* lab_entry.h -- feedback as it is stored, from what somebody sent. */
#ifndef FEATURE_LAB_LAB_ENTRY_H
#define FEATURE_LAB_LAB_ENTRY_H

#include "base/str.h"

#include <jansson.h>
#include <stdbool.h>

struct lab_roots;

struct lab_said {
    struct str id, session;                         /* session.n == 0: of none */
    struct str experiment, variant, run, topic;     /* n == 0: none */
    const json_t *ratings, *notes, *tags, *answers; /* as they were sent; NULL: not at all */
    bool keep_no_tags;                              /* a list that has none stays one */
    const json_t *record;                           /* of the run; NULL: none */
    const struct lab_roots *roots;                  /* with a record: looks at its artifacts */
};

/* What cannot be used is left out. The caller's reference; NULL: an id or topic is no UTF-8. */
json_t *lab_entry_new(const struct lab_said *said);

/* Those of them that are numbers from 0 to 100 once they are rounded; NULL: there are none. */
json_t *lab_ratings(const json_t *sent);

#endif
