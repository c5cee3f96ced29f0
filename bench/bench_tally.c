// SPDX-License-Identifier: Apache-2.0
#include "bench_tally.h"

#include <assert.h>

static void count(struct tally *t, uint64_t number)
{
    t->seen++;
    if (number < t->next) {
        t->twice++;
        return;
    }
    t->lost += number - t->next;
    t->next = number + 1;
}

/* Goes on with a number; stays in it if the piece ends first. Returns how many bytes it took. */
static size_t take_digits(struct tally *t, struct str in)
{
    size_t n = 0;
    while (n < in.n && t->digits <= TALLY_DIGITS) {
        t->value = t->value * 10 + (uint64_t)(in.p[n++] - '0');
        t->digits++;
    }
    if (t->digits > TALLY_DIGITS) {
        count(t, t->value);
        t->digits = 0;
    }
    return n;
}

void tally_feed(struct tally *t, struct str piece)
{
    t->bytes += piece.n;
    if (t->digits > 0)
        piece = str_skip(piece, take_digits(t, piece));
    while (piece.n > 0) {
        const char *mark = memchr(piece.p, '#', piece.n);
        if (!mark)
            return;
        piece = str_skip(piece, (size_t)(mark - piece.p) + 1);
        t->digits = 1; /* the mark itself, so that 0 means "between numbers" */
        t->value = 0;
        piece = str_skip(piece, take_digits(t, piece));
    }
}

static void put_number(struct buf *out, uint64_t number)
{
    char *p = buf_reserve(out, TALLY_DIGITS + 1);
    p[0] = '#';
    for (int i = TALLY_DIGITS; i > 0; i--, number /= 10)
        p[i] = (char)('0' + number % 10);
    out->n += TALLY_DIGITS + 1;
}

/* Words rather than one letter, so that a compressing or scanning server sees what it would. */
static void pad(struct buf *out, size_t until)
{
    static const char words[] = "the tide leaves a mark where it turned and comes back for more ";
    for (size_t i = 0; out->n < until; i++)
        buf_putc(out, words[i % (sizeof words - 1)]);
}

void event_put_json(struct buf *out, uint64_t number, size_t size)
{
    size_t start = out->n;
    buf_put(out, STR("{\"id\":\""));
    put_number(out, number);
    buf_put(out, STR("\",\"text\":\""));
    assert(out->n - start + 2 <= size);
    pad(out, start + size - 2);
    buf_put(out, STR("\"}"));
}

void event_put_text(struct buf *out, uint64_t number, size_t size)
{
    size_t start = out->n;
    put_number(out, number);
    buf_putc(out, ' ');
    assert(out->n - start <= size);
    pad(out, start + size);
}

void event_put_array(struct buf *out, uint64_t first, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++) {
        buf_putc(out, i == 0 ? '[' : ',');
        event_put_json(out, first + i, size);
    }
    buf_putc(out, ']');
}

void event_renumber(char *bytes, size_t n, uint64_t number)
{
    char *mark = memchr(bytes, '#', n);
    assert(mark);
    for (int i = TALLY_DIGITS; i > 0; i--, number /= 10)
        mark[i] = (char)('0' + number % 10);
}
