// SPDX-License-Identifier: Apache-2.0
#include "http/rpc_frame.h"
#include "base/mem.h"
#include "base/must.h"

#include <stdlib.h>
#include <zlib.h>

#define INFLATE_STEP (4 * 1024) /* room to begin with; then as much again as there is */
#define GZIP_ONLY    (15 + 16)  /* of inflateInit2: the largest window, gzip's head and checksum */

void rpc_frames_init(struct rpc_frames *f, size_t max, enum rpc_framing framing, bool gzip)
{
    must(max <= RPC_FRAME_MAX_SIZE);
    *f = (struct rpc_frames){.max = max, .framing = framing, .gzip = gzip};
}

static size_t waiting(const struct rpc_frames *f)
{
    return f->in.n - f->at;
}

void rpc_frames_deinit(struct rpc_frames *f)
{
    buf_deinit(&f->in);
    buf_deinit(&f->plain);
    f->at = 0;
}

void rpc_frames_trim(struct rpc_frames *f)
{
    buf_deinit(&f->plain);
    if (waiting(f) > 0)
        return;
    buf_deinit(&f->in);
    f->at = 0;
}

static void move_to_front(struct rpc_frames *f)
{
    if (f->at == 0)
        return;
    memmove(f->in.p, f->in.p + f->at, waiting(f));
    f->in.n -= f->at;
    f->at = 0;
}

void rpc_frames_put(struct rpc_frames *f, struct str bytes)
{
    if (f->framing == RPC_FRAMES_BARE && bytes.n > f->max - f->in.n)
        f->too_long = true;
    if (f->too_long || bytes.n == 0)
        return;
    move_to_front(f);
    buf_put(&f->in, bytes);
}

void rpc_frames_end(struct rpc_frames *f)
{
    f->ended = true;
}

/* ---- gzip ---- */

static void *rpc_frame_zip_alloc(void *ctx, unsigned n, unsigned size)
{
    return mem_zalloc((size_t)n * size);
}

static void rpc_frame_zip_free(void *ctx, void *p)
{
    free(p);
}

/* One more byte than is allowed may come out, and then it was too much. Members that follow one
 * another are one text, as in files. */
static enum rpc_frame inflate_all(z_stream *z, struct buf *out, size_t max)
{
    for (;;) {
        size_t room = out->n > INFLATE_STEP ? out->n : INFLATE_STEP;
        if (room > max + 1 - out->n)
            room = max + 1 - out->n;
        z->next_out = (unsigned char *)buf_reserve(out, room);
        z->avail_out = (unsigned)room;
        int rc = inflate(z, Z_NO_FLUSH);
        out->n += room - z->avail_out;
        if (out->n > max)
            return RPC_FRAME_INFLATES;
        if (rc == Z_STREAM_END && z->avail_in == 0)
            return RPC_FRAME_MESSAGE;
        if (rc == Z_STREAM_END)
            rc = inflateReset(z);
        if (rc != Z_OK)
            return RPC_FRAME_CORRUPT_GZIP;
    }
}

static enum rpc_frame unzip(struct rpc_frames *f, struct str payload, struct str *message)
{
    if (payload.n == 0) { /* some senders do not compress what is empty, and set the bit */
        *message = payload;
        return RPC_FRAME_MESSAGE;
    }
    z_stream z = {.zalloc = rpc_frame_zip_alloc,
                  .zfree = rpc_frame_zip_free,
                  .next_in = (unsigned char *)(uintptr_t)payload.p,
                  .avail_in = (unsigned)payload.n};
    int rc = inflateInit2(&z, GZIP_ONLY);
    must(rc == Z_OK);
    f->plain.n = 0;
    enum rpc_frame result = inflate_all(&z, &f->plain, f->max);
    inflateEnd(&z);
    if (result == RPC_FRAME_MESSAGE)
        *message = buf_str(&f->plain);
    return result;
}

/* ---- messages ---- */

static enum rpc_frame check_flags(const struct rpc_frames *f, unsigned flags)
{
    if (flags & ~(unsigned)(RPC_FLAG_GZIP | RPC_FLAG_END))
        return RPC_FRAME_FLAGS;
    if (flags & RPC_FLAG_END)
        return RPC_FRAME_END_STREAM;
    if ((flags & RPC_FLAG_GZIP) && !f->gzip)
        return RPC_FRAME_UNANNOUNCED;
    return RPC_FRAME_MESSAGE;
}

static size_t length_of(const unsigned char *envelope)
{
    return (size_t)envelope[1] << 24 | (size_t)envelope[2] << 16 | (size_t)envelope[3] << 8 |
           envelope[4];
}

/* Is there a whole envelope at p, of which n bytes have come? */
static enum rpc_frame rpc_frame_look(const struct rpc_frames *f, const unsigned char *p, size_t n)
{
    enum rpc_frame missing = f->ended ? RPC_FRAME_CUT : RPC_FRAME_MORE;
    enum rpc_frame flags = check_flags(f, p[0]);
    if (flags != RPC_FRAME_MESSAGE)
        return flags;
    if (n < RPC_ENVELOPE)
        return missing;
    if (length_of(p) > f->max)
        return RPC_FRAME_TOO_LONG;
    return n - RPC_ENVELOPE < length_of(p) ? missing : RPC_FRAME_MESSAGE;
}

/* Takes `n` bytes from the front, the last of which are the payload. */
static enum rpc_frame rpc_frame_take(struct rpc_frames *f, size_t n, struct str payload,
                                     bool zipped, struct str *message)
{
    enum rpc_frame result = RPC_FRAME_MESSAGE;
    if (zipped)
        result = unzip(f, payload, message);
    else
        *message = payload;
    if (result == RPC_FRAME_MESSAGE) {
        f->taken = true;
        f->at += n;
    }
    return result;
}

static enum rpc_frame next_bare(struct rpc_frames *f, struct str *message)
{
    if (f->too_long)
        return RPC_FRAME_TOO_LONG;
    if (!f->ended)
        return RPC_FRAME_MORE;
    return f->taken ? RPC_FRAME_END : rpc_frame_take(f, f->in.n, buf_str(&f->in), f->gzip, message);
}

static enum rpc_frame next_nothing(const struct rpc_frames *f)
{
    if (!f->ended)
        return RPC_FRAME_MORE;
    return f->framing == RPC_FRAMES_ONE && !f->taken ? RPC_FRAME_COUNT : RPC_FRAME_END;
}

enum rpc_frame rpc_frames_next(struct rpc_frames *f, struct str *message)
{
    size_t n = waiting(f);
    if (f->framing == RPC_FRAMES_BARE)
        return next_bare(f, message);
    if (n == 0)
        return next_nothing(f);
    const unsigned char *p = (const unsigned char *)f->in.p + f->at;
    enum rpc_frame result = rpc_frame_look(f, p, n);
    if (result != RPC_FRAME_MESSAGE)
        return result;
    size_t whole = RPC_ENVELOPE + length_of(p);
    if (f->framing == RPC_FRAMES_ONE && n > whole)
        return RPC_FRAME_COUNT;
    if (f->framing == RPC_FRAMES_ONE && !f->ended)
        return RPC_FRAME_MORE;
    struct str payload = str_of((const char *)p + RPC_ENVELOPE, length_of(p));
    return rpc_frame_take(f, whole, payload, p[0] & RPC_FLAG_GZIP, message);
}

void rpc_envelope(char *out, uint8_t flags, size_t n)
{
    must(n <= UINT32_MAX);
    out[0] = (char)flags;
    for (int i = 1; i < RPC_ENVELOPE; i++)
        out[i] = (char)(n >> (8 * (RPC_ENVELOPE - 1 - i)));
}
