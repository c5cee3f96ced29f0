// SPDX-License-Identifier: Apache-2.0
/* listing.h -- the streams that somebody may list, page by page.
 *
 * Only what his grants can match is looked at: the literal beginning of each pattern is a range of
 * names, and ranges are gone through in byte order. What lies in them and is not granted is left
 * out, and leaves no trace. O(log n + page) where patterns end in `**` or have no wildcard. With
 * `*` inside, all that lies below it is looked at: LISTING_MOST names for a page, which may then
 * have fewer rows than asked for, or none. It goes on behind a name that is not his to know, so
 * `next` is a bookmark then.
 *
 * Names are as the principal sees them, without its root. Loop thread only. */
#ifndef STREAM_LISTING_H
#define STREAM_LISTING_H

#include "access/principal.h"
#include "base/buf.h"
#include "store/store.h"

struct bookmark_key;
struct listing_range;

#define LISTING_MOST 10000

/* The caller embeds it, zeroed but for the `in` part, and keeps it alive until done(). */
struct listing {
    /* in */
    struct store *store;
    const struct principal *principal; /* lives as long as this */
    struct arena *arena;               /* the same */
    struct str prefix;                 /* n == 0: any */
    struct str after;                  /* a name, or what `next` was; n == 0: from the first */
    size_t limit;
    bool reserved;                        /* as store_list has it */
    const struct bookmark_key *bookmarks; /* NULL: all is looked at, however much */
    /* One that is shown; lent for the call. */
    void (*row)(struct listing *l, const struct store_row *row);
    /* Does anybody still wait for it? Asked before each step. NULL: yes. */
    bool (*wanted)(const struct listing *l);
    void (*done)(struct listing *l, int err);

    /* out */
    size_t n;        /* rows that were shown */
    struct str next; /* in the arena; n == 0: nothing follows */

    /* private */
    struct store_list list;
    struct listing_range *ranges;
    size_t n_ranges, at;
    struct str from;  /* `after`, with the root */
    struct buf last;  /* the range goes on behind this name */
    struct buf shown; /* the name of the last row */
    size_t looked;    /* at so many names */
    bool more;        /* another row follows */
};

/* May the principal list anything at all? */
bool listing_allowed(const struct principal *p);

enum listing_start {
    LISTING_UNDER_WAY, /* done() comes later, exactly once */
    LISTING_NOTHING,   /* there is nothing to look at, and done() does not come */
    LISTING_BAD_AFTER, /* nor here: `after` is a bookmark, but none of ours */
};
enum listing_start listing_start(struct listing *l);

#endif
