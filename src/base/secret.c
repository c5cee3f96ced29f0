// SPDX-License-Identifier: Apache-2.0
#include "base/secret.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

void secret_shield(void)
{
    prctl(PR_SET_DUMPABLE, 0);
}

void secret_unshield(void)
{
    prctl(PR_SET_DUMPABLE, 1);
}

void *secret_alloc(size_t n)
{
    secret_shield();
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(p != MAP_FAILED && madvise(p, n, MADV_DONTDUMP) == 0 && madvise(p, n, MADV_DONTFORK) == 0);
    mlock(p, n); /* as far as the limits allow */
    return p;
}

void secret_free(void *p, size_t n)
{
    if (p == NULL)
        return;
    explicit_bzero(p, n);
    munmap(p, n);
}
