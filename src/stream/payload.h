// SPDX-License-Identifier: Apache-2.0
/* payload.h -- a request body as the events of a stream. */
#ifndef STREAM_PAYLOAD_H
#define STREAM_PAYLOAD_H

#include "base/buf.h"
#include "store/store.h"

/* Memory behind a write's data; zero-initialised, kept until the write is done. */
struct payload {
    struct buf bytes, ends, steps;
    struct block *block;
};
void payload_deinit(struct payload *p);

/* Sets data, ends, n_events, block and data_err of w, and what comes with a block. JSON is checked
 * and split into its elements; other types are one event. A body that holds no event is ERR_EMPTY,
 * unless empty_allowed. */
void payload_prepare(struct payload *p, struct store_write *w, struct str content_type,
                     struct str body, bool empty_allowed);

/* A larger body would hold the loop: whoever can prepares it on a lane. */
#define PAYLOAD_LARGE (64 * 1024)

/* The same, on any thread, of a body that is given away: freed as soon as it is not needed. Large
 * data gets a block of its own (store_write.block). */
void payload_prepare_large(struct payload *p, struct store_write *w, struct str content_type,
                           struct buf *body, bool empty_allowed);

#endif
