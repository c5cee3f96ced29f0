// SPDX-License-Identifier: Apache-2.0
/* bench_access.h -- credentials, and a server's settings that know them: what access costs. */
#ifndef BENCH_ACCESS_H
#define BENCH_ACCESS_H

#include "base/buf.h"
#include "bench_data.h"

#define ACCESS_CALLER "tm_c7Wm0bZ4n2kVqYx9sLr8TfHd3uJgEaPo5iNvQ1hKzXw" /* a caller's token */

struct access_plan {
    char folder[DATA_PATH_MAX];
    char args[2 * DATA_PATH_MAX]; /* for a server that knows the caller and the issuer */
    struct buf jwt;               /* good for an hour, of about 350 bytes; NUL behind it */
};

/* Writes the settings to a folder below `under`, and puts the issuer's secret into the environment
 * that servers inherit. args: further ones, or NULL. 0 or -1, said on stderr. */
int access_plan_init(struct access_plan *p, const char *under, const char *args);
void access_plan_deinit(struct access_plan *p);

#endif
