// SPDX-License-Identifier: Apache-2.0
/* names.h -- names that mean something to a store, whoever gave them.
 *
 * What features store is recognised by how its name begins. The rows are part of a store's format
 * and hold in every build: one that leaves a feature out still hides what that feature has stored,
 * and finds it in the same slot of a Redis cluster. So rows are added, and never removed or
 * changed. Whose they are is not known here: a feature says so in its own row (feature.h), and a
 * test compares both. */
#ifndef STORE_NAMES_H
#define STORE_NAMES_H

#include "base/str.h"

/* Reserved: streams whose names begin so are the server's. Nobody is shown them unasked, and
 * clients write none, unless a feature gives workers a view of them. */
struct store_names {
    struct str prefix; /* n == 0 behind the last */
    bool sealed;  /* they mean nothing but in their place, to who has a key: none can be forked, and
                     workers are shown a view or nothing */
    bool grouped; /* PREFIX KEY / ...: those of one KEY are kept together */
};
#define STORE_NAMES(X)                                                                             \
    X(".route/", .sealed = false)                                                                  \
    X(".tool/", .sealed = false)                                                                   \
    X("sessions/", .sealed = true, .grouped = true)
extern const struct store_names store_names[];

/* Documents that are written together, or with a stream, are kept together: PREFIX KEY / ..., where
 * `/ ...` may be missing, in the group GROUP KEY. */
struct store_doc_group {
    struct str prefix, group; /* prefix.n == 0 behind the last */
};
extern const struct store_doc_group store_doc_groups[];

/* NULL: it is not reserved. Asked of every request, so that the compiler gets to see the texts. */
static inline const struct store_names *store_names_of(struct str name)
{
    const struct store_names *names = store_names;
#define X(text, ...)                                                                               \
    if (str_starts(name, STR(text)))                                                               \
        return names;                                                                              \
    names++;
    STORE_NAMES(X)
#undef X
    return NULL;
}

static inline bool store_reserved(struct str name)
{
    return store_names_of(name) != NULL;
}

static inline bool store_sealed(struct str name)
{
    const struct store_names *names = store_names_of(name);
    return names != NULL && names->sealed;
}

#endif
