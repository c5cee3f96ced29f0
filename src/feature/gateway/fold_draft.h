// SPDX-License-Identifier: Apache-2.0
/* fold_draft.h -- a JSON value under construction: what an answer amounts to so far.
 *
 * It is kept as the text it came as and taken apart only where something changes: a string that
 * grows, an element that is added, a member that is replaced. So an item that came whole costs its
 * text.
 *
 * All that is given is of an event, checked and without line breaks. Functions take NULL for a
 * value that is not there, and give NULL when the fold is given up. */
#ifndef FEATURE_GATEWAY_FOLD_DRAFT_H
#define FEATURE_GATEWAY_FOLD_DRAFT_H

#include "feature/gateway/fold_core.h"

#define DRAFT_INDEX_MAX   127 /* of an element that is named by its index */
#define DRAFT_MEMBERS_MAX 256 /* of an object that is taken apart; one with more is given up */

enum draft_kind {
    DRAFT_RAW, /* `raw`; nothing stands for null */
    DRAFT_TEXT,
    DRAFT_LIST,
    DRAFT_OBJECT,
};

struct draft_entry {
    struct str name; /* owned, as it stands between its quotes; of an element: none */
    struct draft *value;
};

/* Zero-initialised it is null. */
struct draft {
    enum draft_kind kind;
    struct str raw;  /* owned */
    struct buf text; /* as it stands between its quotes */
    struct draft_entry *entries;
    size_t n;
};

void draft_deinit(struct draft *d); /* with the fold's state: nothing is counted any more */

void draft_set(struct fold *f, struct draft *d, struct str value);
/* A string, behind what is there if that is a string. */
void draft_grow(struct fold *f, struct draft *d, struct str string);

/* Made as null if it is not there; what is not of the kind before gives way. */
struct draft *draft_member(struct fold *f, struct draft *d, struct str name);
struct draft *draft_element(struct fold *f, struct draft *d, uint64_t index);
struct draft *draft_push(struct fold *f, struct draft *d);

/* Takes it apart, one level. */
void draft_as_list(struct fold *f, struct draft *d);
void draft_as_object(struct fold *f, struct draft *d);

/* Sets all members of an object. */
void draft_merge(struct fold *f, struct draft *d, struct str object);

void draft_remove(struct fold *f, struct draft *d, struct str name);

/* Of an object that has been taken apart; NULL: there is none. */
struct draft *draft_find(const struct draft *d, struct str name);
/* Does a member have this value, as it was set? */
bool draft_member_is(const struct draft *d, struct str name, struct str value);
/* Is it a list of at least one element? */
bool draft_has_elements(const struct draft *d);

void draft_put(const struct draft *d, struct buf *out);

/* An index that an element can have; false: it is none. */
bool draft_index(struct str value, uint64_t *index);

#endif
