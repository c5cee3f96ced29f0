// SPDX-License-Identifier: Apache-2.0
#include "base/rand.h"
#include "base/hex.h"
#include "base/must.h"

#include <errno.h>
#include <sys/random.h>

void rand_bytes(void *out, size_t n)
{
    for (char *p = out; n > 0;) {
        ssize_t got = getrandom(p, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        must(got > 0);
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

void rand_uuid(char out[RAND_UUID + 1])
{
    uint8_t b[16];
    rand_bytes(b, sizeof b);
    hex_uuid(b, out);
    out[RAND_UUID] = '\0';
}
