// SPDX-License-Identifier: Apache-2.0
/* buf.h -- a growing run of bytes with one owner.
 *
 * Zero-initialised is empty. A writer that puts a peer's bytes in here checks their size first;
 * the buffer itself has no cap. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/str.h"

#include <stdint.h>

struct buf {
    char *p;
    size_t n, cap;
};

void buf_deinit(struct buf *b);

/* Room for n more bytes at b->p + b->n, never NULL; the caller adds to b->n what it wrote. */
char *buf_reserve(struct buf *b, size_t n);

void buf_put(struct buf *b, struct str s);
void buf_putc(struct buf *b, char c);
void buf_put_u64(struct buf *b, uint64_t v);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static inline struct str buf_str(const struct buf *b)
{
    return str_of(b->p, b->n);
}

#endif
