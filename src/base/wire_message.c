// SPDX-License-Identifier: Apache-2.0
#include "base/wire_message.h"

#include "base/err.h"
#include "base/must.h"

#define READ_ALIGN _Alignof(max_align_t) /* as the arena does */

static void *wire_message_reading_alloc(void *ctx, size_t n)
{
    struct wire_reading *r = ctx;
    n = (n + READ_ALIGN - 1) / READ_ALIGN * READ_ALIGN;
    if (n > r->left) {
        r->exhausted = true;
        return NULL;
    }
    r->left -= n;
    return arena_alloc(r->arena, n);
}

/* The arena gives it back. What was freed still counts, so that the budget holds at any time. */
static void wire_message_reading_free(void *ctx, void *p)
{
    (void)ctx;
    (void)p;
}

void wire_reading_init(struct wire_reading *r, struct arena *a, size_t message_size)
{
    must(message_size <= SIZE_MAX / (2 * WIRE_READ_TIMES));
    *r = (struct wire_reading){
        .arena = a,
        .left = WIRE_READ_TIMES * message_size + WIRE_READ_FIXED,
        .allocator = {wire_message_reading_alloc, wire_message_reading_free, r},
    };
}

int wire_unpack(struct wire_reading *r, const ProtobufCMessageDescriptor *type, struct str bytes,
                void *out)
{
    ProtobufCMessage *m =
        protobuf_c_message_unpack(type, &r->allocator, bytes.n, (const uint8_t *)bytes.p);
    if (m == NULL)
        return r->exhausted ? ERR_TOO_LARGE : ERR_SYNTAX;
    *(ProtobufCMessage **)out = m;
    return 0;
}

void wire_put(struct buf *out, const void *message)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    protobuf_c_message_pack(message, (uint8_t *)buf_reserve(out, n));
    out->n += n;
}
