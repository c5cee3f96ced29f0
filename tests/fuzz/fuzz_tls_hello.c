// SPDX-License-Identifier: Apache-2.0
/* fuzz_tls_hello.c -- the guard in front of OpenSSL's handshakes says the same however the bytes
 * are cut, and the same as a reader that has all of them at once. The first byte of an input says
 * into what pieces it is cut, and which version was agreed on. */
#include "net/tls_hello.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define INPUT_MAX 70000

/* Joins what the records of handshakes hold, until one of them cannot be read any more. -1: the
 * first is none. */
static long join(const uint8_t *p, size_t n, bool tls12, uint8_t *into)
{
    size_t at = 0, all = 0;
    while (n - at >= 5) {
        const uint8_t *head = p + at;
        if (at == 0 && (head[0] != 22 || head[1] != 3))
            return -1;
        if (head[0] == 20 && tls12)
            break;
        size_t length = (size_t)head[3] * 256 + head[4];
        at += 5;
        length = length < n - at ? length : n - at;
        for (size_t i = 0; head[0] == 22 && i < length; i++)
            into[all++] = p[at + i];
        at += length;
    }
    return (long)all;
}

static bool has_large_hello(const uint8_t *p, size_t n)
{
    size_t at = 0;
    while (at + 4 <= n) {
        size_t length = (size_t)p[at + 1] * 65536 + (size_t)p[at + 2] * 256 + p[at + 3];
        if (p[at] == 1 && length > TLS_HELLO_MAX)
            return true;
        at += 4 + length;
    }
    return false;
}

static bool is_refused(const uint8_t *p, size_t n, size_t step, bool tls12)
{
    struct tls_hello h = {0};
    for (size_t at = 0; at < n; at += step) {
        size_t piece = step < n - at ? step : n - at;
        if (tls_hello_take(&h, str_of((const char *)p + at, piece), tls12) != NULL)
            return true;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static uint8_t joined[INPUT_MAX];
    if (n < 2 || n > INPUT_MAX)
        return 0;
    bool tls12 = data[0] & 1;
    size_t step = 1 + data[0] / 2;
    data++;
    n--;
    long all = join(data, n, tls12, joined);
    bool expected = all < 0 || has_large_hello(joined, (size_t)all);
    if (is_refused(data, n, n, tls12) != expected || is_refused(data, n, step, tls12) != expected) {
        fprintf(stderr, "fuzz_tls_hello: %s, and that was not expected\n",
                expected ? "taken" : "refused");
        abort();
    }
    return 0;
}
