// SPDX-License-Identifier: Apache-2.0
/* tokens.h -- credentials that were looked at lately, so that most requests need no digest and no
 * signature.
 *
 *     good ones   TOKENS_MAX at most, TOKENS_BYTES together, each for TOKENS_FRESH_MS and never
 *                 beyond its expiry. The oldest make room. Found by a fast hash whose secret is
 *                 drawn here, and then compared byte by byte, in constant time. One that was
 *                 let in lately is compared at once
 *     bad ones    the hashes of some, for TOKENS_BAD_MS, so that repeating one is cheap
 *     a budget    TOKENS_CHECKS signatures a second may turn out to be bad. Whoever comes with
 *                 something unknown when they are used up is told to come back later; what was
 *                 good before is verified again nevertheless
 *
 * Whatever changes what is good empties it: settings, keys, revocations. Loop thread only. */
#ifndef HTTP_TOKENS_H
#define HTTP_TOKENS_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct principal;
struct sched;
struct tokens;

#define TOKENS_MAX      16384
#define TOKENS_BYTES    (16 * 1024 * 1024)
#define TOKENS_FRESH_MS 60000
#define TOKENS_KEPT_MS  (10 * 60 * 1000) /* after that: it was good, and is verified again */
#define TOKENS_BAD_MS   10000
/* The dearest signature takes about 120 us: these take about a sixteenth of a core. */
#define TOKENS_CHECKS   500

struct tokens *tokens_new(const struct sched *sched);
void tokens_free(struct tokens *t); /* NULL is allowed */

/* The hash of a credential, for the calls below. */
struct tokens_key {
    uint64_t low, high;
};
struct tokens_key tokens_key(const struct tokens *t, struct str token);

/* Lent until the next call. NULL: it is not known. */
const struct principal *tokens_find(struct tokens *t, const struct tokens_key *key,
                                    struct str token);

/* One that is known was let in: nothing is to be asked about it until tokens_forget. */
void tokens_let_in(struct tokens *t, const struct tokens_key *key, struct str token);

/* Lent until the next call. NULL: it is not known, or was not let in lately. Needs no hash. */
const struct principal *tokens_find_recent(struct tokens *t, struct str token);

/* It is good, and this principal's, to whom a reference is taken. */
void tokens_put(struct tokens *t, const struct tokens_key *key, struct str token,
                const struct principal *p);

/* It is bad, and stays so for a while. ended: it was good, and its time is over. */
void tokens_put_bad(struct tokens *t, const struct tokens_key *key, bool ended);
bool tokens_is_bad(const struct tokens *t, const struct tokens_key *key, bool *ended);

/* May a signature be looked at that is likely to be bad? And one was. */
bool tokens_may_check(struct tokens *t, struct str token);
void tokens_checked_bad(struct tokens *t);

/* Forgets all, good and bad. */
void tokens_forget(struct tokens *t);

#endif
