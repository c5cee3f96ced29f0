// SPDX-License-Identifier: Apache-2.0
/* guard.h -- what stands between a request and its handler: who is asking, and may he?
 *
 *     credential --> principal --> rules of the surface --> handler
 *         |              |                 `--> 403, or 401 if nobody was shown
 *         |              `--> 401, whatever is wrong with it
 *         `--> 400: two at once
 *
 * A server without callers, issuers and [anonymous] has no guard: http->guard is NULL. With callers
 * that are granted nothing it has one that knows them, and lets everybody in, as is fit on a
 * machine of one's own: a token that is not known may be meant for an upstream then.
 *
 * A credential that is not good is never taken for none, and never sent on. Loop thread only. */
#ifndef HTTP_GUARD_H
#define HTTP_GUARD_H

#include "access/verb.h"
#include "base/str.h"

#include <stdbool.h>

struct exchange;
struct http;
struct http_route;
struct policy;
struct surface_refusal;
struct surface_rule;
struct trace;

struct guard;

struct guard_setup {
    struct http *http;
    const struct trace *trace;
};

struct guard *guard_new(const struct guard_setup *setup);
void guard_free(struct guard *g); /* NULL is allowed */

/* The settings have been read, or read again. Takes a reference. */
void guard_set_policy(struct guard *g, struct policy *policy);

/* True: the request may go to its handler (x->route) now. False: it has been answered, or waits,
 * and goes there by http_hand_over. */
bool guard_admit(struct guard *g, struct exchange *x);

/* One thing that a request needs: a rule that it comes under, and the name in question. */
struct guard_need {
    const struct surface_rule *rule; /* NULL: before the first */
    struct str name;                 /* as grants have it; n == 0: there is none */
    bool malformed;                  /* the path's name cannot be decoded: nobody may */
};

/* Goes on to the next; false: there is none. Of x only request, has_body and arena are looked at,
 * so that a request can be judged that nobody has sent. */
bool guard_next_need(struct exchange *x, const struct http_route *route, struct guard_need *need);

/* Answers a refusal in the words of what is served there. */
void guard_refuse(struct exchange *x, const struct http_route *route,
                  const struct surface_refusal *why);

#endif
