// SPDX-License-Identifier: Apache-2.0
#include "store/producer.h"
#include "base/err.h"

int producer_check(const struct producer_state *known, const struct producer_claim *claim,
                   uint64_t *expected)
{
    if (known != NULL && claim->epoch < known->epoch)
        return ERR_FENCED;
    if (known != NULL && claim->epoch > known->epoch)
        return claim->seq == 0 ? PRODUCER_ACCEPT : ERR_EPOCH_START;
    if (known != NULL && claim->seq <= known->seq)
        return PRODUCER_DUPLICATE;
    uint64_t next = known == NULL ? 0 : known->seq + 1;
    if (claim->seq == next)
        return PRODUCER_ACCEPT;
    *expected = next;
    return ERR_SEQ_GAP;
}
