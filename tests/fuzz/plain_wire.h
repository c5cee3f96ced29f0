// SPDX-License-Identifier: Apache-2.0
/* plain_wire.h -- the fields of a protobuf message, read in a plainer way than protobuf-c does. */
#ifndef FUZZ_PLAIN_WIRE_H
#define FUZZ_PLAIN_WIRE_H

#include "base/str.h"

#include <stdint.h>

struct field {
    uint32_t tag;
    int wire;
    uint64_t number;  /* wire 0 */
    struct str value; /* wire 2 */
    struct str bytes; /* all but the tag, as it came */
};

static inline bool cut_varint(struct str *rest, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < rest->n && i < 10; i++) {
        uint8_t b = (uint8_t)rest->p[i];
        v |= (uint64_t)(b & 127) << (7 * i);
        if (b < 128) {
            *rest = str_skip(*rest, i + 1);
            *out = v;
            return true;
        }
    }
    return false;
}

static inline bool cut_bytes(struct str *rest, uint64_t n, struct str *out)
{
    if (n > rest->n)
        return false;
    *out = str_of(rest->p, n);
    *rest = str_skip(*rest, n);
    return true;
}

/* One field off *rest. No groups, as nobody has them; no tags of more than five bytes. */
static inline bool cut_field(struct str *rest, struct field *f)
{
    struct str before = *rest, skipped;
    uint64_t tag, n;
    if (!cut_varint(rest, &tag) || before.n - rest->n > 5 || tag > UINT32_MAX || tag >> 3 == 0)
        return false;
    struct str start = *rest;
    *f = (struct field){.tag = (uint32_t)tag >> 3, .wire = tag & 7};
    bool ok = false;
    switch (f->wire) {
    case 0: ok = cut_varint(rest, &f->number); break;
    case 1: ok = cut_bytes(rest, 8, &skipped); break;
    case 2: ok = cut_varint(rest, &n) && cut_bytes(rest, n, &f->value); break;
    case 5: ok = cut_bytes(rest, 4, &skipped); break;
    }
    f->bytes = str_of(start.p, (size_t)(rest->p - start.p));
    return ok;
}

#endif
