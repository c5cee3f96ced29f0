// SPDX-License-Identifier: Apache-2.0
/* features.c -- the only list of features. A row is the name of a folder beside this file, the
 * words of its sections in a config file, and its commands. Each stands behind those it needs.
 *
 * `make FEATURES="a b"` compiles a copy of this file in which the rows of all others read ABSENT;
 * see the Makefile. The words are for those alone: what a feature has stands in its own row. */
#include "feature/feature.h"

#define FEATURE_TABLE(X, ABSENT)                                                                   \
    X(subscriptions, "", "")                                                                       \
    X(gateway, "route", "")                                                                        \
    X(sessions, "session", "session")                                                              \
    X(logs, "log", "")                                                                             \
    X(lab, "lab", "lab feedback")                                                                  \
    X(poll, "poll", "")                                                                            \
    X(tools, "tool pages", "tool mcp")                                                             \
    X(cascade, "cascade", "cascade")

#define NOTHING(name, sections, commands)

#define DECLARE(name, sections, commands) extern const struct feature name##_feature;
FEATURE_TABLE(DECLARE, NOTHING)

#define ROW(name, sections, commands) &name##_feature,
const struct feature *const features[] = {FEATURE_TABLE(ROW, NOTHING) NULL};
_Static_assert(sizeof features / sizeof *features <= FEATURES_MAX, "a place for each");

#define ABSENT_ROW(name, sections, commands) {#name, sections, commands},
const struct feature_absent features_absent[] = {
    FEATURE_TABLE(NOTHING, ABSENT_ROW){NULL, NULL, NULL}};
