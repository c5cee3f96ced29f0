// SPDX-License-Identifier: Apache-2.0
/* fuzz_resp.c -- what Redis says becomes the same replies however it is cut, each within its bound;
 * and a reply of bulk strings, sent as a command, comes back as it was. The first byte of an input
 * says how it is cut and how large a reply may be. */
#include "base/buf.h"
#include "store/redis/client/resp.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define ARGS_MAX 16

static size_t show(struct buf *out, const struct redisReply *reply)
{
    size_t cost = sizeof *reply;
    struct str text = resp_text(reply);
    buf_printf(out, "%d,%lld,%zu,%zu:", reply->type, reply->integer, text.n, reply->elements);
    buf_put(out, text);
    for (size_t i = 0; i < reply->elements; i++)
        cost += show(out, reply->element[i]);
    return cost + text.n;
}

static void check_round_trip(const struct redisReply *reply)
{
    struct str args[ARGS_MAX];
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 || reply->elements > ARGS_MAX)
        return;
    for (size_t i = 0; i < reply->elements; i++) {
        if (reply->element[i]->type != REDIS_REPLY_STRING)
            return;
        args[i] = resp_text(reply->element[i]);
    }
    size_t split = reply->elements / 2;
    struct block *b = resp_encode(args, split, args + split, reply->elements - split);
    struct resp *r = resp_new((size_t)1 << 20);
    const struct redisReply *back;
    if (resp_feed(r, str_of(b->bytes, b->n)) != 0 || resp_next(r, &back) != 1 ||
        back->elements != reply->elements)
        abort();
    for (size_t i = 0; i < reply->elements; i++)
        if (!str_eq(resp_text(back->element[i]), args[i]))
            abort();
    resp_free(r);
    block_unref(b);
}

static void decode(struct buf *out, struct str bytes, size_t max, size_t piece)
{
    struct resp *r = resp_new(max);
    const struct redisReply *reply;
    int got = 0;
    while (bytes.n > 0 && got >= 0) {
        size_t n = piece < bytes.n ? piece : bytes.n;
        char *copy = malloc(n); /* its own, so that ASan sees a read past the piece */
        memcpy(copy, bytes.p, n);
        got = resp_feed(r, str_of(copy, n));
        free(copy);
        bytes = str_skip(bytes, n);
        while (got >= 0 && (got = resp_next(r, &reply)) == 1) {
            if (show(out, reply) > max)
                abort();
            check_round_trip(reply);
        }
    }
    buf_printf(out, "|%d", got < 0);
    resp_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    size_t max = data[0] & 1 ? 512 : 65536, piece = 1 + (data[0] >> 1);
    struct str bytes = str_of((const char *)data + 1, n - 1);
    struct buf whole = {0}, cut = {0};
    decode(&whole, bytes, max, bytes.n);
    decode(&cut, bytes, max, piece);
    if (!str_eq(buf_str(&whole), buf_str(&cut))) {
        fprintf(stderr, "fuzz_resp: the cut matters:\n%.*s\n%.*s\n", (int)whole.n, whole.p,
                (int)cut.n, cut.p);
        abort();
    }
    buf_deinit(&whole);
    buf_deinit(&cut);
    return 0;
}
