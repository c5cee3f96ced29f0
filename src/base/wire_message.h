// SPDX-License-Identifier: Apache-2.0
/* wire_message.h -- protobuf-c within bounds: into an arena with a budget, out into a buffer.
 *
 * Strings are `bytes` in our .proto files. On the wire that is the same; in memory it keeps their
 * lengths. */
#ifndef BASE_WIRE_MESSAGE_H
#define BASE_WIRE_MESSAGE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/str.h"

#include <protobuf-c/protobuf-c.h>

/* Memory for reading a message: so many times its size, and what every one may take. protobuf-c
 * notes each field that it meets (32 bytes, in arrays that double) and keeps a copy of it even if
 * it is unknown, so that two bytes on the wire could become a hundred. */
#define WIRE_READ_TIMES 8
#define WIRE_READ_FIXED (64 << 10)

/* The reading of one message, and of those that were bytes within it. */
struct wire_reading {
    struct arena *arena;
    size_t left;
    bool exhausted;
    ProtobufCAllocator allocator;
};
void wire_reading_init(struct wire_reading *r, struct arena *a, size_t message_size);

/* *out is a message of that type, in the arena. ERR_SYNTAX: the bytes are none. ERR_TOO_LARGE: the
 * budget is used up. */
int wire_unpack(struct wire_reading *r, const ProtobufCMessageDescriptor *type, struct str bytes,
                void *out);

/* Appends the message. */
void wire_put(struct buf *out, const void *message);

static inline struct str wire_str(ProtobufCBinaryData b)
{
    return str_of((const char *)b.data, b.len);
}

static inline ProtobufCBinaryData wire_bytes(struct str s)
{
    return (ProtobufCBinaryData){s.n, (uint8_t *)s.p}; /* only read from there */
}

#endif
