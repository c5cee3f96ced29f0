// SPDX-License-Identifier: Apache-2.0
/* rules.h -- which rules of its surface a request comes under, what name is in question, and what
 * of that is granted. */
#ifndef HTTP_RULES_H
#define HTTP_RULES_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct exchange;
struct http_route;
struct http_rules;
struct surface;
struct surface_rule;

/* For whoever makes a route: reads the rules once. A surface has HTTP_RULES_MAX at most. */
void rules_prepare(const struct surface *surface, struct http_rules *out);

/* One thing that a request needs. */
struct need {
    const struct surface_rule *rule; /* NULL: before the first */
    struct str name;                 /* as grants have it; n == 0: there is none */
    uint64_t left;                   /* rules that were not looked at */
    bool malformed;                  /* the path's name cannot be decoded: nobody may */
};

/* Goes on to the next; false: there is none. Of x only request, has_body and arena are looked at,
 * so that a request can be judged that nobody has sent. */
bool rules_next(struct exchange *x, const struct http_route *route, struct need *need);

/* Of enum rule_how, of all that it comes under. */
unsigned rules_how(struct exchange *x, const struct http_route *route);

/* Does x->principal have all that x->route asks for? Where a handler is to decide, x->undecided is
 * set. */
bool rules_granted(struct exchange *x);

/* The same the other way round, and what he does not have: need->rule == NULL: it comes under no
 * rule. */
bool rules_missing(struct exchange *x, struct need *need);

#endif
