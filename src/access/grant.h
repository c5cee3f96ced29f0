// SPDX-License-Identifier: Apache-2.0
/* grant.h -- who may do what: verbs on patterns of names, within limits.
 *
 * One grammar in four places. In the config file, of [caller], [issuer] and [anonymous]:
 *
 *     grant = read, append chats/{sub}             streams
 *     grant = generate, stop route:/v1/chat        other kinds by their word
 *     grant = metrics server                       and what has no names by its word alone
 *
 * In a token, entries of RFC 9396 whose type is ours:
 *
 *     "authorization_details": [{"type": "tidemark", "actions": ["read"], "on": ["chats/42"],
 *                                "limits": {"live": 5}}]
 *
 * Grants only allow; what none allows is forbidden. Whoever is bounded by several sets of them (an
 * issuer's ceiling and a token's own) may do what each set allows. Pure. */
#ifndef ACCESS_GRANT_H
#define ACCESS_GRANT_H

#include "access/verb.h"
#include "base/arena.h"

#include <jansson.h>
#include <stdio.h>

#define ACCESS_GRANTS_MAX   32 /* entries of a token */
#define ACCESS_PATTERNS_MAX 64 /* in all of them */
#define ACCESS_CLAIM_MAX    128
#define ACCESS_LIMIT_MAX    (INT64_C(1) << 53) /* a token's limit; what is more counts as that */
#define ACCESS_DETAIL_TYPE  "tidemark"

/* X(name, word, what is counted): 0 is no limit. The smaller one of two holds. */
#define ACCESS_LIMITS(X)                                                                           \
    X(rate, "rate", "requests a second")                                                           \
    X(append_rate, "append-rate", "bytes appended a second")                                       \
    X(live, "live", "live readers at once")                                                        \
    X(connections, "connections", "connections at once")                                           \
    X(creates, "creates", "streams created a second")                                              \
    X(streams, "streams", "streams there may be")                                                  \
    X(stored, "stored", "bytes that may be stored")                                                \
    X(subscriptions, "subscriptions", "subscriptions there may be")                                \
    X(generations, "generations", "answers under way at once")                                     \
    X(max_append, "max-append", "bytes of one append")                                             \
    X(max_ttl, "max-ttl", "seconds that a stream may live")

struct access_limits {
#define X(name, word, what) uint64_t name;
    ACCESS_LIMITS(X)
#undef X
};

/* Each limit becomes the smaller one of both. */
void access_limits_min(struct access_limits *into, const struct access_limits *other);

/* One limit by its word, as `rate`; false: there is none of that name. */
bool access_limit_set(struct access_limits *into, struct str word, uint64_t value);

struct access_grant {
    uint32_t verbs; /* of enum access_verb */
    enum access_kind kind;
    struct str pattern; /* n == 0: the kind has no names */
    size_t literal;     /* access_pattern_literal of it */
};

struct access_grants {
    struct access_grant *items;
    size_t n;
};

/* Reads one line of the file and adds a grant for each pattern. Texts and items live in *a. 0, or
 * ERR_SYNTAX with a reason. */
int access_grants_add_line(struct access_grants *g, struct arena *a, struct str line, char *reason,
                           size_t size);

/* The same for settings' tables: is the line one? See `check` in base/options.h. */
int access_grant_check(struct str line, char *reason, size_t size);

/* Entries of our type in an array of RFC 9396, and their limits. 0, or ERR_SYNTAX: one is not as it
 * should be, and then none counts. *found: there is one of our type. */
int access_grants_add_json(struct access_grants *g, struct access_limits *limits, struct arena *a,
                           const json_t *details, bool *found);

/* The same for one object with `actions` and `on`, as a request for a grant has them. */
int access_grants_add_entry(struct access_grants *g, struct arena *a, const json_t *actions,
                            const json_t *on);

/* Whether a claim's value can be a segment: 1 to ACCESS_CLAIM_MAX characters that mean nothing to
 * anybody. */
bool access_claim_is_valid(struct str value);

/* With each `{claim}` replaced by its value in claims. A grant whose claim is missing, or no text
 * that can be a segment, is left out. */
void access_grants_expand(const struct access_grants *templates, const json_t *claims,
                          struct arena *a, struct access_grants *out);

/* One `{claim}` in any text, such as a root `t/{tenant}/`. False: it cannot be. */
bool access_expand(struct str text, const json_t *claims, struct arena *a, struct str *out);

bool access_grants_allow(const struct access_grants *g, enum access_verb verb,
                         enum access_kind kind, struct str name);

/* Is there a grant of this verb for every name that the pattern matches? */
bool access_grants_contain(const struct access_grants *g, enum access_verb verb,
                           enum access_kind kind, struct str pattern);

/* The sets that bound somebody: he may do what each of them allows. */
#define ACCESS_LAYERS_MAX 3
struct access_rights {
    const struct access_grants *layers[ACCESS_LAYERS_MAX];
    size_t n; /* 0: nothing is bounded: everything is allowed */
};

bool access_allows(const struct access_rights *r, enum access_verb verb, enum access_kind kind,
                   struct str name);
bool access_contains(const struct access_rights *r, enum access_verb verb, enum access_kind kind,
                     struct str pattern);

/* Is the verb granted at all, on whatever name? */
bool access_holds(const struct access_rights *r, enum access_verb verb, enum access_kind kind);

/* Every grant of `inner` is contained in r: nobody gets more from it than he has. */
bool access_covers(const struct access_rights *r, const struct access_grants *inner);

/* As JSON entries, for a token: an array. */
json_t *access_grants_json(const struct access_grants *g, const struct access_limits *limits);

#endif
