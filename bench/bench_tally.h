// SPDX-License-Identifier: Apache-2.0
/* bench_tally.h -- numbered events: how a phase writes them, and how a reader finds that none was
 * lost and none came twice.
 *
 * Every event holds one `#` and ten digits; nothing else in an answer or in our padding holds a
 * `#`. So a reader need not understand SSE or JSON to check what it got, and counts millions a
 * second. */
#ifndef BENCH_TALLY_H
#define BENCH_TALLY_H

#include "base/buf.h"
#include "base/str.h"

#include <stdint.h>

#define TALLY_DIGITS 10

struct tally {
    uint64_t next;  /* the number expected next */
    uint64_t seen;  /* events, whatever their numbers */
    uint64_t bytes; /* of body, events or not */
    uint64_t lost, twice;
    unsigned digits; /* of a number that straddles two pieces; 0: between numbers */
    uint64_t value;
};

void tally_feed(struct tally *t, struct str piece);

/* Exactly the events up to and without `end`, each once. */
static inline bool tally_whole(const struct tally *t, uint64_t end)
{
    return t->next == end && t->lost == 0 && t->twice == 0;
}

/* One event of exactly `size` bytes (JSON: at least 40; text: at least 12). */
void event_put_json(struct buf *out, uint64_t number, size_t size);
void event_put_text(struct buf *out, uint64_t number, size_t size);

/* `count` JSON events from number `first` on, as one array. */
void event_put_array(struct buf *out, uint64_t first, size_t count, size_t size);

/* Changes the number of the one event in these bytes. */
void event_renumber(char *bytes, size_t n, uint64_t number);

#endif
