// SPDX-License-Identifier: Apache-2.0
#include "http/h1_head.h"
#include "base/buf.h"
#include "base/num.h"

#define FIXED_MAX 256 /* status line, Date, Content-Length, Connection, Transfer-Encoding, end */

static char *h1_head_put(char *to, struct str s)
{
    memcpy(to, s.p, s.n);
    return to + s.n;
}

static char *h1_head_put_header(char *to, const struct header *h)
{
    to = h1_head_put(to, h->name);
    to = h1_head_put(to, STR(": "));
    to = h1_head_put(to, h->value);
    return h1_head_put(to, STR("\r\n"));
}

static size_t header_size(const struct header *h)
{
    return h->name.n + h->value.n + 4;
}

static size_t h1_head_size_of(const struct h1_head *head)
{
    size_t n = FIXED_MAX + response_common[head->kind].lines.n;
    for (const struct exchange_header *h = head->headers; h != NULL; h = h->next)
        n += header_size(&h->header);
    return n;
}

struct block *h1_head_block(const struct h1_head *head)
{
    struct block *b = block_new((uint32_t)h1_head_size_of(head));
    char *to = h1_head_put(b->bytes, STR("HTTP/1.1 "));
    to += num_format((uint64_t)head->status, to);
    *to++ = ' ';
    to = h1_head_put(to, status_reason(head->status));
    to = h1_head_put(to, STR("\r\nDate: "));
    to = h1_head_put(to, head->date);
    to = h1_head_put(to, STR("\r\n"));
    to = h1_head_put(to, response_common[head->kind].lines);
    for (const struct exchange_header *h = head->headers; h != NULL; h = h->next)
        to = h1_head_put_header(to, &h->header);
    if (head->chunked)
        to = h1_head_put(to, STR("Transfer-Encoding: chunked\r\n"));
    if (head->length >= 0) {
        to = h1_head_put(to, STR("Content-Length: "));
        to += num_format((uint64_t)head->length, to);
        to = h1_head_put(to, STR("\r\n"));
    }
    if (head->close)
        to = h1_head_put(to, STR("Connection: close\r\n"));
    if (head->keep_alive)
        to = h1_head_put(to, STR("Connection: keep-alive\r\n"));
    to = h1_head_put(to, STR("\r\n"));
    b->n = (uint32_t)(to - b->bytes);
    return b;
}

/* By hand: printf is too slow for what every delivery does. */
size_t h1_chunk_size(char out[H1_CHUNK_SIZE_MAX], size_t bytes)
{
    int digits = 1;
    while (bytes >> (4 * digits) != 0)
        digits++;
    for (int i = 0; i < digits; i++)
        out[i] = "0123456789abcdef"[bytes >> (4 * (digits - 1 - i)) & 15];
    memcpy(out + digits, "\r\n", 2);
    return (size_t)digits + 2;
}

struct block *h1_last_chunk_block(const struct exchange_header *trailers)
{
    struct buf b = {0};
    buf_put(&b, STR("0\r\n"));
    for (const struct exchange_header *t = trailers; t != NULL; t = t->next) {
        buf_put(&b, t->header.name);
        buf_put(&b, STR(": "));
        buf_put(&b, t->header.value);
        buf_put(&b, STR("\r\n"));
    }
    buf_put(&b, STR("\r\n"));
    struct block *last = block_of(buf_str(&b));
    buf_deinit(&b);
    return last;
}
