// SPDX-License-Identifier: Apache-2.0
/* More history than the server's cache holds, read by plain GETs: from memory, or, after a restart,
 * from the segments where it rests.
 *
 * One stream per connection, so that none finds in the cache what another has just read. */
#include "bench_bulk.h"
#include "bench_data.h"

#define EVENTS 1000000 /* in each */

/* The first start brings to rest what the journal holds, and keeps it in the cache; the second
 * finds all of it at rest, and its cache is empty. */
static void bring_to_rest(struct bench *b)
{
    for (int i = 0; i < 2; i++) {
        bench_stop(b, false);
        bench_start(b);
    }
}

static void measure(struct bench *b, const struct bulk *history, const char *key, double seconds)
{
    struct data_cached before = {0, 0};
    if (*b->data)
        before = data_segments_cached(b->data);
    struct spent spent = spent_begin(b);
    double bytes = (double)bulk_get(b, history, seconds);
    spent_end(b, &spent);
    if (b->swarm.failed)
        return;
    struct row *row = report_add(&b->report, key, bytes / spent.seconds);
    row_spent(row, b, &spent, bytes / 1e6);
    if (before.bytes > 0)
        row_note(row, "segments: %.0f MB, %.0f %% of it in the page cache",
                 (double)before.bytes / 1e6, (double)before.cached / (double)before.bytes * 100);
}

void phase_catchup(struct bench *b)
{
    struct bulk history = {.phase = "catchup", .streams = BULK_GETTERS, .events = EVENTS};
    progress("catchup: filling %d streams with %d events of %d bytes each", BULK_GETTERS, EVENTS,
             BULK_EVENT_SIZE);
    bulk_fill(b, &history);
    bulk_verify(b, &history);
    if (*b->data) {
        bring_to_rest(b);
        data_segments_evict(b->data);
        progress("catchup: GET from the start, once, from disk");
        measure(b, &history, "catchup-disk", 0);
    }
    progress("catchup: GET from the start, again and again");
    measure(b, &history, "catchup", b->seconds);
    bulk_delete(b, &history);
}
