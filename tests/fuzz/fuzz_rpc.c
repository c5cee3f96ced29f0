// SPDX-License-Identifier: Apache-2.0
/* fuzz_rpc.c -- the messages of a request's body, and the verdict on it, must not depend on how the
 * bytes were cut; no message is longer than is allowed, however it was compressed, and no memory is
 * taken for what has not come. The first byte says how the body is framed and whether messages may
 * be compressed, the second how it is cut. */
#include "http/rpc_frame.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX 600

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void demand(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_rpc: %s\n", what);
    abort();
}

static void check_memory(const struct rpc_frames *f, size_t put)
{
    demand(rpc_frames_bytes(f) <= put, "more is kept than was put");
    demand(f->in.cap <= 4 * put + 128, "memory for what has not come");
    demand(f->plain.cap <= 4 * MAX, "a message was inflated beyond its limit");
}

/* Lengths in front, so that no two lists of messages read the same. */
static enum rpc_frame take_all(struct rpc_frames *f, struct buf *log, size_t put)
{
    struct str message;
    enum rpc_frame result;
    while ((result = rpc_frames_next(f, &message)) == RPC_FRAME_MESSAGE) {
        demand(message.n <= MAX, "a message is too long");
        buf_printf(log, "%zu:", message.n);
        buf_put(log, message);
        check_memory(f, put);
        rpc_frames_trim(f);
    }
    check_memory(f, put);
    return result;
}

/* In pieces of piece, then piece + more, then piece + 2 * more, ... bytes. */
static void read_all(struct buf *log, struct str bytes, uint8_t mode, size_t piece, size_t more)
{
    struct rpc_frames f;
    struct str message;
    enum rpc_frame result = RPC_FRAME_MORE;
    size_t put = 0;
    rpc_frames_init(&f, MAX, (enum rpc_framing)(mode % 3), mode & 0x80);
    for (; bytes.n > 0 && result == RPC_FRAME_MORE; piece += more) {
        size_t n = piece < bytes.n ? piece : bytes.n;
        char *copy = malloc(n); /* its own, so that ASan sees a read past the piece */
        memcpy(copy, bytes.p, n);
        rpc_frames_put(&f, str_of(copy, n));
        free(copy);
        put += n;
        result = take_all(&f, log, put);
        demand(result != RPC_FRAME_END, "it ended before its end");
        bytes = str_skip(bytes, n);
    }
    if (result == RPC_FRAME_MORE) {
        rpc_frames_end(&f);
        result = take_all(&f, log, put);
        demand(result != RPC_FRAME_MORE, "it waits for what cannot come");
    }
    demand(rpc_frames_next(&f, &message) == result, "it changed its mind");
    buf_printf(log, "|%d", result);
    rpc_frames_deinit(&f);
}

static void check_same(const struct buf *a, const struct buf *b)
{
    if (!str_eq(buf_str(a), buf_str(b))) {
        fprintf(stderr, "fuzz_rpc: the cut matters:\n%.*s\n%.*s\n", (int)a->n, a->p, (int)b->n,
                b->p);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2)
        return 0;
    struct str bytes = str_of((const char *)data + 2, n - 2);
    struct buf whole = {0}, cut = {0}, single = {0};
    read_all(&whole, bytes, data[0], n, 0);
    read_all(&cut, bytes, data[0], 1 + data[1], 1 + data[1]);
    read_all(&single, bytes, data[0], 1, 0);
    check_same(&whole, &cut);
    check_same(&whole, &single);
    buf_deinit(&whole);
    buf_deinit(&cut);
    buf_deinit(&single);
    return 0;
}
