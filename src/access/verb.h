// SPDX-License-Identifier: Apache-2.0
/* verb.h -- what can be granted: verbs on kinds of things.
 *
 * Every request of every surface needs some of these (access/rule.h), and nothing else is ever
 * decided. docs/security.md has the table for people. */
#ifndef ACCESS_VERB_H
#define ACCESS_VERB_H

#include "base/str.h"

#include <stdint.h>

/* X(kind, word): a pattern of that kind begins with the word and a colon; streams need none. */
#define ACCESS_KINDS(X)                                                                            \
    X(STREAM, "stream")                                                                            \
    X(ROUTE, "route")                                                                              \
    X(SESSION, "session")                                                                          \
    X(TOOL, "tool")                                                                                \
    X(LOG, "log")                                                                                  \
    X(LAB, "lab")                                                                                  \
    X(SERVER, "server")

enum access_kind {
#define X(kind, word) ACCESS_##kind,
    ACCESS_KINDS(X)
#undef X
        ACCESS_N_KINDS,
};

/* X(verb, word, kinds that have it) */
#define ACCESS_VERBS(X)                                                                            \
    X(READ, "read", ACCESS_IN(STREAM) | ACCESS_IN(LOG))                                            \
    X(APPEND, "append", ACCESS_IN(STREAM) | ACCESS_IN(LOG))                                        \
    X(CREATE, "create", ACCESS_IN(STREAM))                                                         \
    X(CLOSE, "close", ACCESS_IN(STREAM))                                                           \
    X(DELETE, "delete", ACCESS_IN(STREAM))                                                         \
    X(LIST, "list", ACCESS_IN(STREAM))                                                             \
    X(FORK, "fork", ACCESS_IN(STREAM))                                                             \
    X(SUBSCRIBE, "subscribe", ACCESS_IN(STREAM))                                                   \
    X(WEBHOOK, "webhook", ACCESS_IN(STREAM))                                                       \
    X(ERASE, "erase", ACCESS_IN(STREAM))                                                           \
    X(GENERATE, "generate", ACCESS_IN(ROUTE))                                                      \
    X(STOP, "stop", ACCESS_IN(ROUTE))                                                              \
    X(CALL, "call", ACCESS_IN(ROUTE))                                                              \
    X(SESSION, "session", ACCESS_IN(SESSION))                                                      \
    X(WORK, "work", ACCESS_IN(SESSION))                                                            \
    X(TOOL, "tool", ACCESS_IN(TOOL))                                                               \
    X(LAB, "lab", ACCESS_IN(LAB))                                                                  \
    X(ADMIN, "admin", ACCESS_IN(SERVER))                                                           \
    X(MINT, "mint", ACCESS_IN(SERVER))                                                             \
    X(REVOKE, "revoke", ACCESS_IN(SERVER))                                                         \
    X(METRICS, "metrics", ACCESS_IN(SERVER))

enum access_verb {
#define X(verb, word, kinds) ACCESS_VERB_##verb,
    ACCESS_VERBS(X)
#undef X
        ACCESS_N_VERBS,
};

#define ACCESS_IN(kind)   (1u << ACCESS_##kind)      /* of a set of kinds */
#define ACCESS_MAY(verb)  (1u << ACCESS_VERB_##verb) /* of a set of verbs */
#define ACCESS_BIT(verb)  (1u << (unsigned)(verb))
#define ACCESS_EVERY_VERB ((1u << ACCESS_N_VERBS) - 1)

struct str access_verb_text(enum access_verb verb);
struct str access_kind_text(enum access_kind kind);

/* Which kinds have that verb: a set of ACCESS_IN. */
uint32_t access_verb_kinds(enum access_verb verb);

/* Of a word; false: there is none of that name. */
bool access_verb_parse(struct str word, enum access_verb *out);
bool access_kind_parse(struct str word, enum access_kind *out);

/* Has it names? The Lab and the server are one thing each. */
static inline bool access_kind_named(enum access_kind kind)
{
    return kind != ACCESS_LAB && kind != ACCESS_SERVER;
}

#endif
