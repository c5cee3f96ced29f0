// SPDX-License-Identifier: Apache-2.0
/* bench_access.h -- credentials, and a server's settings that know them: what access costs. */
#ifndef BENCH_ACCESS_H
#define BENCH_ACCESS_H

#include "bench.h"

#define ACCESS_CALLER "tm_c7Wm0bZ4n2kVqYx9sLr8TfHd3uJgEaPo5iNvQ1hKzXw" /* a caller's token */

#define ACCESS_DIGITS "0000000000000000" /* in tokens that nobody has signed: to be made others */

struct access_plan {
    char folder[DATA_PATH_MAX];
    char args[2 * DATA_PATH_MAX]; /* for a server that knows the caller and the issuers */
    struct buf jwt;               /* good for an hour, of about 350 bytes; NUL behind it */
    /* As good, but for their signatures, of HMAC and Ed25519, which begin with the digits. */
    struct buf forged_hmac, forged_ed;
};

/* Writes the settings to a folder below `under`, and puts the issuer's secret into the environment
 * that servers inherit. args: further ones, or NULL. 0 or -1, said on stderr. */
int access_plan_init(struct access_plan *p, const char *under, const char *args);
void access_plan_deinit(struct access_plan *p);

/* A server that has just begun to listen may not know yet which tokens were revoked: until it
 * does. */
void access_await(struct bench *b, const char *token);

#endif
