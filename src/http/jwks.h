// SPDX-License-Identifier: Apache-2.0
/* jwks.h -- the keys of one issuer, fetched from its URL and kept fresh.
 *
 *                 fetched at the start, and again          JWKS_FRESH_MS later, or as the answer's
 *                                                          max-age says, within bounds
 *     a token names a key that is not there                at once, but JWKS_APART_MS after the
 *                                                          last fetch began at the soonest
 *     a fetch has failed                                   soon, then ever later
 *
 * A fetch that fails leaves the keys as they are, for JWKS_STALE_MS after the last one that did
 * not; then there are none. A key that is gone from the answer is gone. One fetch is under way at a
 * time, whoever waits for it.
 *
 * The URL is of the settings, so that it may be on this machine or in a private network. Redirects
 * are not followed. Loop thread only. */
#ifndef HTTP_JWKS_H
#define HTTP_JWKS_H

#include "base/list.h"
#include "base/str.h"
#include "token/jwk.h"

#include <stdint.h>

struct audit;
struct fetch;
struct fetcher;
struct sched;
struct trace;

#define JWKS_FRESH_MS     (10 * 60 * 1000)
#define JWKS_FRESH_MIN_MS (5 * 60 * 1000) /* what max-age is held to */
#define JWKS_FRESH_MAX_MS (60 * 60 * 1000)
#define JWKS_APART_MS     (30 * 1000)
#define JWKS_STALE_MS     (24 * 60 * 60 * 1000)
#define JWKS_TIMEOUT_MS   5000
#define JWKS_RETRY_MS     5000 /* after a failure; doubled each time */
#define JWKS_RETRY_MAX_MS (60 * 1000)

struct jwks;

struct jwks_setup {
    struct sched *sched;
    struct fetcher *fetcher;
    const struct trace *trace;
    struct audit *audit; /* NULL: none */
    struct str name;     /* of the issuer, for traces; this and url are copied */
    struct str url;
    struct jwk_policy policy;
    /* How a fetch is begun: fetch_start, unless a test says otherwise. */
    void (*start)(struct fetcher *fetcher, struct fetch *fetch);
    /* The keys are others than before. Tokens that were found good with those may not be so. */
    void (*changed)(void *ctx);
    void *ctx;
};

/* Begins to fetch. */
struct jwks *jwks_new(const struct jwks_setup *setup);
/* Those who wait are told first. */
void jwks_free(struct jwks *j); /* NULL is allowed */

/* NULL: there are none, or none that are good any more. Until the next call of the schedule. */
const struct jwk_set *jwks_keys(const struct jwks *j);

/* Somebody who waits for the fetch that is under way. */
struct jwks_waiter {
    struct link link;
    void (*done)(struct jwks_waiter *w); /* it is over, however it went. Never from jwks_wait */
};

/* A token needs a key that is not there. True: a fetch is under way, maybe begun now, and w->done
 * comes when it is over, within JWKS_TIMEOUT_MS. False: it is too early for another one. */
bool jwks_wait(struct jwks *j, struct jwks_waiter *w);

/* The settings were read again: asks anew, whenever that was last done. */
void jwks_refresh(struct jwks *j);

/* Is it the keys of this place, used in this way? */
bool jwks_is(const struct jwks *j, struct str url, const struct jwk_policy *policy);

/* For how long an answer with this Cache-Control is fresh. */
uint64_t jwks_fresh_ms(struct str cache_control);

#endif
