// SPDX-License-Identifier: Apache-2.0
#include "stream/listing.h"
#include "access/pattern.h"
#include "base/err.h"
#include "base/list.h"
#include "token/bookmark.h"

#include <stdlib.h>

_Static_assert(BOOKMARK_PLACE_MAX >= STORE_NAME_MAX, "any name fits into a bookmark");

/* Rows that are looked at together where some are left out: a grant may take a while to match. */
#define LISTING_STEP     64
#define LISTING_STEP_MAX 256

/* Names that begin so, or this name alone. Two of them are disjoint, or one is in the other. */
struct listing_range {
    struct str start; /* with the root */
    bool exact;
};

bool listing_allowed(const struct principal *p)
{
    return access_holds(&p->rights, ACCESS_VERB_LIST, ACCESS_STREAM);
}

/* ---- ranges ---- */

/* As far as it has names that begin with the prefix that was asked for. */
static void listing_add(struct listing *l, struct str start, bool exact)
{
    if (!str_starts(start, l->prefix)) {
        if (exact || !str_starts(l->prefix, start))
            return;
        start = l->prefix;
    }
    l->ranges[l->n_ranges++] =
        (struct listing_range){principal_rooted(l->principal, l->arena, start), exact};
}

static void listing_add_pattern(struct listing *l, struct str pattern)
{
    struct str start = access_pattern_prefix(pattern);
    if (start.n == pattern.n) {
        listing_add(l, start, true);
    } else if (pattern.p[start.n] == '/') { /* `**` is next: what stands before it, and below it */
        listing_add(l, start, true);
        listing_add(l, str_of(pattern.p, start.n + 1), false);
    } else {
        listing_add(l, start, false);
    }
}

static bool listing_lists(const struct access_grant *g)
{
    return g->kind == ACCESS_STREAM && (g->verbs & ACCESS_MAY(LIST)) != 0;
}

/* How many bytes all names that it allows begin with, at least. */
static size_t listing_depth(const struct access_grants *g)
{
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < g->n; i++) {
        size_t n = access_pattern_prefix(g->items[i].pattern).n;
        if (listing_lists(&g->items[i]) && n < least)
            least = n;
    }
    return least;
}

/* What is not in one set of grants is not allowed, whatever is in the others. */
static const struct access_grants *listing_narrowest(const struct access_rights *r)
{
    const struct access_grants *best = r->layers[0];
    for (size_t i = 1; i < r->n; i++)
        if (listing_depth(r->layers[i]) > listing_depth(best))
            best = r->layers[i];
    return best;
}

static int listing_by_start(const void *a, const void *b)
{
    const struct listing_range *one = a, *other = b;
    int order = str_cmp(one->start, other->start);
    return order != 0 ? order : (int)one->exact - (int)other->exact;
}

/* In byte order, each name in one of them. */
static void listing_sort(struct listing *l)
{
    size_t n = 0;
    qsort(l->ranges, l->n_ranges, sizeof *l->ranges, listing_by_start);
    for (size_t i = 0; i < l->n_ranges; i++) {
        struct listing_range *last = n > 0 ? &l->ranges[n - 1] : NULL;
        bool inside = last != NULL && (last->exact ? str_eq(l->ranges[i].start, last->start)
                                                   : str_starts(l->ranges[i].start, last->start));
        if (!inside)
            l->ranges[n++] = l->ranges[i];
    }
    l->n_ranges = n;
}

static void listing_find_ranges(struct listing *l)
{
    const struct access_rights *r = &l->principal->rights;
    if (r->n == 0) {
        l->ranges = arena_alloc(l->arena, sizeof *l->ranges);
        listing_add(l, STR(""), false);
        return;
    }
    const struct access_grants *g = listing_narrowest(r);
    l->ranges = arena_alloc(l->arena, (2 * g->n + 1) * sizeof *l->ranges);
    for (size_t i = 0; i < g->n; i++)
        if (listing_lists(&g->items[i]))
            listing_add_pattern(l, g->items[i].pattern);
    listing_sort(l);
}

/* ---- steps ---- */

static bool listing_step(struct listing *l);

static void listing_end(struct listing *l, int err)
{
    if (l->more)
        l->next = arena_dup(l->arena, buf_str(&l->shown));
    buf_deinit(&l->last);
    buf_deinit(&l->shown);
    l->done(l, err);
}

/* False: there is one more than is asked for. */
static bool listing_take(struct listing *l, const struct store_row *row)
{
    struct store_row shown = *row;
    shown.name = principal_unrooted(l->principal, row->name);
    if (shown.name.n == 0 ||
        !principal_may(l->principal, ACCESS_VERB_LIST, ACCESS_STREAM, shown.name))
        return true;
    if (l->n == l->limit) {
        l->more = true;
        return false;
    }
    l->n++;
    l->shown.n = 0;
    buf_put(&l->shown, shown.name);
    l->row(l, &shown);
    return true;
}

/* Behind these rows. */
static void listing_advance(struct listing *l, const struct store_list *list)
{
    l->last.n = 0;
    l->looked += list->n_rows;
    if (list->more && !l->ranges[l->at].exact)
        buf_put(&l->last, list->rows[list->n_rows - 1].name);
    else
        l->at++;
}

/* It has looked at as many as it may, and there are others. */
static bool listing_pauses(struct listing *l, const struct store_list *list)
{
    struct buf bookmark = {0};
    if (l->bookmarks == NULL || l->looked < LISTING_MOST || list->n_rows == 0 ||
        l->at == l->n_ranges)
        return false;
    bookmark_put(l->bookmarks, list->rows[list->n_rows - 1].name, &bookmark);
    l->next = arena_dup(l->arena, buf_str(&bookmark));
    buf_deinit(&bookmark);
    return true;
}

static void listing_on_rows(struct store_list *list, int err)
{
    struct listing *l = container_of(list, struct listing, list);
    const struct listing_range *range = &l->ranges[l->at];
    for (size_t i = 0; err == 0 && i < list->n_rows; i++)
        if ((range->exact && !str_eq(list->rows[i].name, range->start)) ||
            !listing_take(l, &list->rows[i]))
            break;
    if (err == 0 && l->principal->rights.n == 0) {
        l->more = list->more;
    } else if (err == 0 && !l->more) {
        listing_advance(l, list);
        bool wanted = l->wanted == NULL || l->wanted(l);
        if (wanted && !listing_pauses(l, list) && listing_step(l))
            return;
    }
    listing_end(l, err);
}

/* Nothing of the range lies behind the name. */
static bool listing_is_past(const struct listing_range *range, struct str after)
{
    return str_cmp(after, range->start) >= 0 && (range->exact || !str_starts(after, range->start));
}

/* False: all has been looked at. */
static bool listing_step(struct listing *l)
{
    struct str after = l->last.n > 0 ? buf_str(&l->last) : l->from;
    while (l->at < l->n_ranges && after.n > 0 && listing_is_past(&l->ranges[l->at], after))
        l->at++;
    if (l->at == l->n_ranges)
        return false;
    const struct listing_range *range = &l->ranges[l->at];
    size_t wanted = l->limit - l->n + 1;
    if (l->principal->rights.n == 0)
        wanted = l->limit;
    else if (wanted < LISTING_STEP || wanted > LISTING_STEP_MAX)
        wanted = wanted < LISTING_STEP ? LISTING_STEP : LISTING_STEP_MAX;
    l->list = (struct store_list){
        .prefix = range->start,
        .after = !range->exact && str_starts(after, range->start) ? after : STR_NONE,
        .limit = range->exact ? 1 : wanted,
        .reserved = l->reserved,
        .done = listing_on_rows,
    };
    store_list(l->store, &l->list);
    return true;
}

/* False: it is a bookmark that cannot be read. */
static bool listing_find_after(struct listing *l)
{
    if (l->bookmarks != NULL && bookmark_is(l->after))
        return bookmark_take(l->bookmarks, l->arena, l->after, &l->from) == 0;
    if (l->after.n > 0)
        l->from = principal_rooted(l->principal, l->arena, l->after);
    return true;
}

enum listing_start listing_start(struct listing *l)
{
    if (!listing_find_after(l))
        return LISTING_BAD_AFTER;
    listing_find_ranges(l);
    return listing_step(l) ? LISTING_UNDER_WAY : LISTING_NOTHING;
}
