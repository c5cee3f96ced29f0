// SPDX-License-Identifier: Apache-2.0
/* listing.h -- the streams that somebody may list, page by page.
 *
 * Only what his grants can match is looked at: the literal beginning of each pattern is a range of
 * names, and ranges are gone through in byte order. What lies in them and is not granted is left
 * out, and leaves no trace: `more` says that another one of his own follows. O(log n + page) where
 * patterns end in `**` or have no wildcard; with `*` inside, O(what lies below it).
 *
 * Names are as the principal sees them, without its root. Loop thread only. */
#ifndef STREAM_LISTING_H
#define STREAM_LISTING_H

#include "access/principal.h"
#include "base/buf.h"
#include "store/store.h"

struct listing_range;

/* The caller embeds it, zeroed but for the `in` part, and keeps it alive until done(). */
struct listing {
    /* in */
    struct store *store;
    const struct principal *principal; /* lives as long as this */
    struct arena *arena;               /* the same */
    struct str prefix, after;          /* n == 0: any; from the first */
    size_t limit;
    bool reserved; /* as store_list has it */
    /* One that is shown; lent for the call. */
    void (*row)(struct listing *l, const struct store_row *row);
    /* Does anybody still wait for it? Asked before each step. NULL: yes. */
    bool (*wanted)(const struct listing *l);
    void (*done)(struct listing *l, int err);

    /* out */
    size_t n; /* rows that were shown */
    bool more;

    /* private */
    struct store_list list;
    struct listing_range *ranges;
    size_t n_ranges, at;
    struct buf last; /* the range goes on behind this name */
};

/* May the principal list anything at all? */
bool listing_allowed(const struct principal *p);

/* done() comes later, exactly once. False: there is nothing to look at, and it does not come. */
bool listing_start(struct listing *l);

#endif
