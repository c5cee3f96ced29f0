// SPDX-License-Identifier: Apache-2.0
/* rpc_frame.h -- the messages of a call as they lie in bodies. Both protocols put each message of a
 * stream into an envelope:
 *
 *     u8      flags      bit 0: the payload is compressed
 *                        bit 1: the end of a stream; Connect, and only from server to client
 *     u32     length     of the payload, big-endian
 *     bytes   payload
 *
 * A unary call of Connect has none: its body is the message.
 *
 * The bytes of a request are put here as they come, in whatever pieces, and taken out as whole
 * messages. A length is judged before the bytes that it speaks of are waited for, and memory grows
 * with the bytes that have come, not with what they claim. */
#ifndef HTTP_RPC_FRAME_H
#define HTTP_RPC_FRAME_H

#include "base/buf.h"

#include <stdint.h>

#define RPC_ENVELOPE       5 /* bytes in front of a payload */
#define RPC_FLAG_GZIP      0x01
#define RPC_FLAG_END       0x02
#define RPC_FRAME_MAX_SIZE (1u << 30) /* of `max` below */

enum rpc_framing {
    RPC_FRAMES_BARE, /* the whole body is one message, without an envelope */
    RPC_FRAMES_ONE,  /* one envelope */
    RPC_FRAMES_MANY, /* any number of envelopes */
};

struct rpc_frames {
    size_t max; /* bytes of a message: as it comes, and decompressed */
    enum rpc_framing framing;
    bool gzip; /* the call said that messages may be (bare: that this one is) compressed */

    /* private */
    bool ended, taken, too_long;
    struct buf in; /* from `at` on not taken yet */
    size_t at;
    struct buf plain; /* the last message that was compressed */
};

enum rpc_frame {
    RPC_FRAME_MESSAGE,
    RPC_FRAME_MORE, /* than has been put is needed */
    RPC_FRAME_END,  /* there are no more messages */
    /* From here on: what is no message. The same comes again, whatever is put. */
    RPC_FRAME_FLAGS,        /* bits that mean nothing */
    RPC_FRAME_END_STREAM,   /* as only a server sends it */
    RPC_FRAME_UNANNOUNCED,  /* compressed, and the call did not say with what */
    RPC_FRAME_TOO_LONG,     /* as it comes */
    RPC_FRAME_INFLATES,     /* too long once decompressed */
    RPC_FRAME_CORRUPT_GZIP, /* or cut short */
    RPC_FRAME_CUT,          /* the body ended within an envelope */
    RPC_FRAME_COUNT,        /* none where there must be one, or more than that */
};

void rpc_frames_init(struct rpc_frames *f, size_t max, enum rpc_framing framing, bool gzip);
void rpc_frames_deinit(struct rpc_frames *f);

void rpc_frames_put(struct rpc_frames *f, struct str bytes);
void rpc_frames_end(struct rpc_frames *f); /* nothing more is put */

/* *message: lent until the next put, trim, or message. Where there can be one only, it comes when
 * the body has ended: it is not decompressed before, and a second one is noticed first. */
enum rpc_frame rpc_frames_next(struct rpc_frames *f, struct str *message);

/* Gives back the memory of what has been taken. */
void rpc_frames_trim(struct rpc_frames *f);

/* Bytes in memory: all that was put and has not been given back. */
static inline size_t rpc_frames_bytes(const struct rpc_frames *f)
{
    return f->in.n;
}

/* Writes the five bytes that stand before a payload of n bytes. */
void rpc_envelope(char *out, uint8_t flags, size_t n);

#endif
