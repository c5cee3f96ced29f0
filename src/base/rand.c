// SPDX-License-Identifier: Apache-2.0
#include "base/rand.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

void rand_bytes(void *out, size_t n)
{
    for (char *p = out; n > 0;) {
        ssize_t got = getrandom(p, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            perror("tidemark: getrandom");
            abort();
        }
        p += got;
        n -= (size_t)got;
    }
}

uint64_t rand_u64(void)
{
    uint64_t v;
    rand_bytes(&v, sizeof v);
    return v;
}
