// SPDX-License-Identifier: Apache-2.0
/* subscription_patterns.h -- which of many patterns match a name, without asking each of them.
 *
 * A trie of segments: a node has a child for each literal segment, one for `*` and one for `**`.
 * Only the first SUB_PATTERNS_DEPTH segments of a pattern are in it, so that a long pattern costs
 * no more memory than a short one; the rest is compared when its node is reached. Equal patterns
 * are one, with several members.
 *
 * A *walk* finds the patterns that match one name. It follows all ways through the trie at once,
 * segment by segment, and visits each node at most once per segment. A walk can be made in pieces:
 * patterns may be added and removed between them, and what was found stays there until its end. */
#ifndef FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_PATTERNS_H
#define FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_PATTERNS_H

#include "base/list.h"
#include "base/map.h"
#include "base/str.h"

#include <stdint.h>

#define SUB_PATTERNS_DEPTH 8

struct sub_news;
struct sub_node;

struct sub_pattern {
    struct link members;   /* the caller's, who may take some out for a while */
    size_t n_members;      /* with those */
    size_t n_listening;    /* without; the caller counts them from then on */
    struct sub_news *news; /* the caller's; NULL at first, and when the last member goes */
    struct link in_node, emptied;
    struct sub_node *node;
    uint64_t found;  /* by which walk, last */
    struct str rest; /* of the text, behind what is in the trie; p == NULL: nothing */
    size_t n;
    char text[];
};

struct sub_nodes {
    struct sub_node **at;
    size_t n, room;
};

struct sub_patterns {
    struct map by_text;  /* of struct sub_pattern */
    struct map literals; /* child nodes by their parent and segment */
    struct sub_node *root;
    uint64_t next_id, stamp, walks;
    struct link emptied; /* patterns without members, kept for the walk */
    uint64_t visited;    /* nodes, by all walks */

    /* the walk; only one at a time */
    bool walking;
    struct str name; /* what is left of it, behind the segments that were taken */
    struct sub_nodes now, then;
    size_t at;            /* in now */
    struct link *pattern; /* of that node, to be compared next; NULL: the first */
    struct sub_pattern **found;
    size_t n_found, room_found;
};

void sub_patterns_init(struct sub_patterns *ps);
void sub_patterns_deinit(struct sub_patterns *ps); /* has no patterns and no walk */

/* Puts the member into those of the pattern (subscription_pattern_valid). */
struct sub_pattern *sub_patterns_add(struct sub_patterns *ps, struct str text, struct link *member);
void sub_patterns_remove(struct sub_patterns *ps, struct sub_pattern *p, struct link *member);

/* The name is kept by the caller until the walk's end. */
void sub_patterns_walk(struct sub_patterns *ps, struct str name);
/* Goes on until about so many nodes were visited; true: all that match are in `found`. */
bool sub_patterns_step(struct sub_patterns *ps, size_t visits);
/* Whether it is through or not. */
void sub_patterns_walked(struct sub_patterns *ps);

#endif
