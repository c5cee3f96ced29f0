// SPDX-License-Identifier: Apache-2.0
/* fuzz_sse.c -- the events, the last id, the retry time and the verdict must not depend on how the
 * bytes were cut. The first byte says how small the limits are and how the pieces are cut. */
#include "base/buf.h"
#include "http/sse_host.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Lengths in front, so that no two lists of events read the same. */
static int note(void *user, const struct sse_event *e)
{
    struct buf *log = user;
    buf_printf(log, "%zu,%zu,%zu:", e->type.n, e->data.n, e->id.n);
    buf_put(log, e->type);
    buf_put(log, e->data);
    buf_put(log, e->id);
    return str_eq(e->type, STR("stop")) ? -1 : 0;
}

/* In pieces of piece, then 2 * piece, then 3 * piece, ... bytes; 0: in one. */
static void parse(struct buf *log, struct str bytes, size_t max, size_t piece)
{
    struct sse_parser p;
    sse_parser_init(&p, &sse_server_host, NULL, max, log, note);
    int err = 0;
    for (size_t step = 1; bytes.n > 0 && err == 0; step++) {
        size_t n = piece == 0 || piece * step > bytes.n ? bytes.n : piece * step;
        char *copy = malloc(n); /* its own, so that ASan sees a read past the piece */
        memcpy(copy, bytes.p, n);
        err = sse_parser_feed(&p, str_of(copy, n));
        free(copy);
        bytes = str_skip(bytes, n);
    }
    buf_printf(log, "|%d %d %llu", err, p.has_retry, (unsigned long long)p.retry_ms);
    sse_parser_deinit(&p);
}

static void bytewise(struct buf *log, struct str bytes, size_t max)
{
    struct sse_parser p;
    sse_parser_init(&p, &sse_server_host, NULL, max, log, note);
    int err = 0;
    for (size_t i = 0; i < bytes.n && err == 0; i++)
        err = sse_parser_feed(&p, str_of(bytes.p + i, 1));
    buf_printf(log, "|%d %d %llu", err, p.has_retry, (unsigned long long)p.retry_ms);
    sse_parser_deinit(&p);
}

static void check_same(const struct buf *a, const struct buf *b)
{
    if (!str_eq(buf_str(a), buf_str(b))) {
        fprintf(stderr, "fuzz_sse: the cut matters:\n%.*s\n%.*s\n", (int)a->n, a->p, (int)b->n,
                b->p);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    size_t max = data[0] & 1 ? 16 : 4096, piece = 1 + (data[0] >> 1);
    struct str bytes = str_of((const char *)data + 1, n - 1);
    struct buf whole = {0}, cut = {0}, single = {0};
    parse(&whole, bytes, max, 0);
    parse(&cut, bytes, max, piece);
    bytewise(&single, bytes, max);
    check_same(&whole, &cut);
    check_same(&whole, &single);
    buf_deinit(&whole);
    buf_deinit(&cut);
    buf_deinit(&single);
    return 0;
}
