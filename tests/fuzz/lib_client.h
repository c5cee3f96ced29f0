// SPDX-License-Identifier: Apache-2.0
/* lib_client.h -- what the fuzz targets of libtidemark share: a client that connects to nobody, and
 * a record of what was heard, which must not depend on how the bytes were cut. */
#ifndef TESTS_FUZZ_LIB_CLIENT_H
#define TESTS_FUZZ_LIB_CLIENT_H

#include "client/client_core.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static inline void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static inline struct tm_client *fuzz_client(void)
{
    struct tm_options o = TM_OPTIONS_INIT;
    struct tm_client *c = NULL;
    o.server = "http://127.0.0.1:1";
    check(tm_open(&o, &c) == 0, "no client");
    return c;
}

/* Lengths in front, so that no two records read the same. */
static inline void note(struct tm_client *c, struct bytes *record, struct str s)
{
    check(bytes_printf(c, record, "%zu:", s.n) == 0 && bytes_put(c, record, s) == 0, "no memory");
}

static inline void note_number(struct tm_client *c, struct bytes *record, long long v)
{
    check(bytes_printf(c, record, "#%lld", v) == 0, "no memory");
}

/* The next piece, in memory of its own, so that ASan sees a read past it: size bytes, then
 * 2 * size, then 3 * size, ...; 0: all there is. It is freed by the caller. */
struct cutter {
    struct str rest;
    size_t size, step;
};
static inline bool cut(struct cutter *k, struct str *piece)
{
    size_t n = k->size * ++k->step;
    if (k->rest.n == 0)
        return false;
    if (n == 0 || n > k->rest.n)
        n = k->rest.n;
    char *p = malloc(n);
    memcpy(p, k->rest.p, n);
    *piece = str_of(p, n);
    k->rest = str_skip(k->rest, n);
    return true;
}

#endif
