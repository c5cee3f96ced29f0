// SPDX-License-Identifier: Apache-2.0
#include "http/sse_host.h"
#include "base/err.h"
#include "base/mem.h"

#include <stdlib.h>

static void *sse_host_resize(void *memory, void *p, size_t n)
{
    (void)memory;
    if (n > 0)
        return mem_realloc(p, n);
    free(p);
    return NULL;
}

const struct sse_host sse_server_host = {sse_host_resize, ERR_TOO_LARGE, ERR_NOMEM};
