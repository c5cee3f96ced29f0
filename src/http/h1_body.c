// SPDX-License-Identifier: Apache-2.0
#include "http/h1_body.h"

static int take_chunks(struct h1_body *b, char *bytes, size_t n, size_t *used, struct str *data,
                       bool *end)
{
    size_t filled = 0;
    *used = 0;
    *end = false;
    while (*used < n && !*end) {
        size_t step;
        struct str piece;
        int rc = h1_chunked_decode(&b->decoder, bytes + *used, n - *used, &step, &piece);
        if (rc < 0)
            return -1;
        if (piece.n > 0)
            memmove(bytes + filled, piece.p, piece.n);
        filled += piece.n;
        *used += step;
        *end = rc == 1;
    }
    *data = str_of(bytes, filled);
    return 0;
}

int h1_body_take(struct h1_body *b, char *bytes, size_t n, size_t *used, struct str *data,
                 bool *end)
{
    if (b->chunked)
        return take_chunks(b, bytes, n, used, data, end);
    size_t take = n < b->left ? n : (size_t)b->left;
    b->left -= take;
    *used = take;
    *data = str_of(bytes, take);
    *end = b->left == 0;
    return 0;
}
