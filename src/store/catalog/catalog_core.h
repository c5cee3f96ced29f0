// SPDX-License-Identifier: Apache-2.0
/* catalog_core.h -- what the parts of the catalog share: catalog.c has the streams,
 * catalog_family.c their forks, catalog_docs.c the documents, catalog_list.c listings of both,
 * catalog_term.c when they expire, catalog_trim.c what streams retain. */
#ifndef STORE_CATALOG_CATALOG_CORE_H
#define STORE_CATALOG_CATALOG_CORE_H

#include "base/mem.h"
#include "store/catalog/catalog.h"

#include <stdlib.h>

/* Texts that streams and documents have of their own. */
static inline struct str text_dup(struct str s)
{
    if (s.p == NULL)
        return s;
    return str_of(memcpy(mem_alloc(s.n + 1), s.p, s.n), s.n);
}

static inline void text_free(struct str *s)
{
    free((char *)(uintptr_t)s->p);
    *s = STR_NONE;
}

void catalog_init_sweep(struct catalog *c);
void catalog_add_term(struct catalog *c, struct stream *s, const struct stream_config *config);
bool stream_expired(struct catalog *c, const struct stream *s);

/* Something has been appended, and may age. */
void stream_look_for_age(struct catalog *c, struct stream *s);

void catalog_free_docs(struct catalog *c);

/* Lets go of what nobody needs of a stream, and of those that it was forked from. */
void stream_shed(struct catalog *c, struct stream *s);

/* It is a fork no more; returns what it was forked from (NULL: nothing). */
struct stream *stream_leave(struct catalog *c, struct stream *s);
void stream_free_family(struct stream *s);

bool retain_any(const struct retain *r);
struct retain stream_retains(const struct catalog *c, const struct stream *s);

/* Before an append: so that what has aged can be told from what has not. */
void catalog_split_by_age(struct catalog *c, struct stream *s, int64_t now_ms);

#endif
