// SPDX-License-Identifier: Apache-2.0
/* producer.h -- exactly-once appends: may this producer's next request be taken?
 *
 * A producer numbers its requests from 0 within an epoch; a restarted one takes a higher epoch. The
 * store keeps {epoch, highest seq} per stream and producer, in the same record as the data. */
#ifndef STORE_PRODUCER_H
#define STORE_PRODUCER_H

#include "base/str.h"

#include <stdint.h>

struct producer_claim {
    struct str id; /* n == 0: the append is not idempotent */
    uint64_t epoch, seq;
};

struct producer_state {
    uint64_t epoch, seq;
};

enum { PRODUCER_ACCEPT = 0, PRODUCER_DUPLICATE = 1 };

/* Pure. `known` is NULL for a producer never seen on this stream.
 *
 *   known    epoch    seq             verdict
 *   no       any      0               ACCEPT
 *   no       any      > 0             ERR_SEQ_GAP, *expected = 0
 *   yes      lower    any             ERR_FENCED
 *   yes      higher   0               ACCEPT
 *   yes      higher   > 0             ERR_EPOCH_START
 *   yes      same     <= last         DUPLICATE
 *   yes      same     last + 1        ACCEPT
 *   yes      same     > last + 1      ERR_SEQ_GAP, *expected = last + 1 */
int producer_check(const struct producer_state *known, const struct producer_claim *claim,
                   uint64_t *expected);

#endif
