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
 * A credential that is not good is never taken for none, and never sent on. A request whose token
 * needs keys that are being fetched waits for them, JWKS_TIMEOUT_MS at most. A client's certificate
 * counts where there is no other credential. Loop thread only. */
#ifndef HTTP_GUARD_H
#define HTTP_GUARD_H

#include "access/verb.h"
#include "base/str.h"

#include <stdbool.h>

struct audit;
struct exchange;
struct fetcher;
struct http;
struct http_route;
struct jwk_set;
struct metrics;
struct policy;
struct principal;
struct sched;
struct trace;

struct guard;

struct guard_setup {
    struct http *http;
    const struct trace *trace;
    struct sched *sched;     /* NULL: tokens are for callers alone, and none is remembered */
    struct fetcher *fetcher; /* for keys of issuers; until guard_stop */
    struct audit *audit;     /* of keys; NULL: none */
    struct metrics *metrics; /* NULL: decisions are not counted */
    /* Asked about everybody who shows a token, and about some again only after
     * guard_forget_tokens. NULL: nobody is revoked. */
    bool (*revoked)(void *ctx, const struct principal *p);
    /* What that needs is not there yet: tokens are answered 503. NULL: it is. */
    bool (*starting)(void *ctx);
    void *ctx;
};

#define GUARD_WAITING_MAX 1000 /* requests that wait for keys; more: 503 */

struct guard *guard_new(const struct guard_setup *setup);
void guard_free(struct guard *g); /* NULL is allowed */

/* No key is fetched any more. The fetcher may go; NULL is allowed. */
void guard_stop(struct guard *g);

/* The settings have been read, or read again. Takes a reference. */
void guard_set_policy(struct guard *g, struct policy *policy);

const struct policy *guard_policy(const struct guard *g);

/* What tokens of our own are verified with (access/minted.h); kept by the caller. NULL: there are
 * none. */
void guard_set_own_keys(struct guard *g, const struct jwk_set *keys);

/* Somebody was revoked: whoever is known by his token is looked at again. */
void guard_forget_tokens(struct guard *g);

/* True: the request may go to its handler (x->route) now. False: it has been answered, or waits,
 * and goes there by http_hand_over. */
bool guard_admit(struct guard *g, struct exchange *x);

/* Is this, named as the store has it, for everybody? */
bool guard_is_public(const struct guard *g, enum access_verb verb, enum access_kind kind,
                     struct str name);

#endif
