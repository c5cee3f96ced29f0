// SPDX-License-Identifier: Apache-2.0
/* fuzz_cbor.c -- CBOR has one spelling. The first bytes of an input say what to ask for, the rest
 * is read; what was read without an error, written again, gives the bytes that were there. */
#include "base/utf8.h"
#include "token/cbor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define STEPS_MAX 16

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_cbor: %s\n", what);
    abort();
}

/* Reads one item as asked for, and writes it again if it was one. */
static void step(uint8_t wanted, struct cbor_in *in, struct cbor_out *out)
{
    struct cbor_in before = *in;
    uint64_t v = 0;
    struct str s = STR_NONE;
    switch (wanted % 4) {
    case 0: v = cbor_take_uint(in); break;
    case 1: s = cbor_take_bytes(in); break;
    case 2: s = cbor_take_text(in); break;
    default: v = cbor_take_map(in);
    }
    if (in->err != 0) {
        check(v == 0 && s.n == 0, "an error that gives something");
        return;
    }
    check(before.err == 0, "an error that went away");
    check(in->rest.n < before.rest.n, "an item of no bytes");
    switch (wanted % 4) {
    case 0: cbor_put_uint(out, v); break;
    case 1: cbor_put_bytes(out, s); break;
    case 2:
        check(utf8_valid(s), "a text that is not UTF-8");
        cbor_put_text(out, s);
        break;
    default: cbor_put_map(out, v);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1)
        return 0;
    size_t steps = data[0] % STEPS_MAX + 1;
    if (n < 1 + steps)
        return 0;
    struct str bytes = str_of((const char *)data + 1 + steps, n - 1 - steps);
    struct cbor_in in = {.rest = bytes};
    struct cbor_out out = {.p = malloc(bytes.n + CBOR_HEAD_MAX)};
    for (size_t i = 0; i < steps; i++) {
        step(data[1 + i], &in, &out);
        size_t read = bytes.n - in.rest.n;
        check(in.err != 0 || (read == out.n && memcmp(out.p, bytes.p, read) == 0),
              "another spelling");
    }
    check((cbor_end(&in) == 0) == (in.err == 0 && in.rest.n == 0), "an end that is none");
    free(out.p);
    return 0;
}
