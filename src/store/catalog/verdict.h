// SPDX-License-Identifier: Apache-2.0
/* verdict.h -- may this write be done to that stream? The preconditions of store.h, as pure
 * functions, so that every engine that runs them here agrees. */
#ifndef STORE_CATALOG_VERDICT_H
#define STORE_CATALOG_VERDICT_H

#include "store/store.h"

/* What the verdict needs to know of a stream that exists. */
struct verdict_state {
    struct str content_type;
    uint64_t life, tail;
    bool closed;
    struct producer_claim closed_by;       /* id.n == 0: closed by no producer */
    const struct producer_state *producer; /* of w->claim; NULL: never seen */
    struct str last_seq;                   /* p == NULL: none yet */
};

enum { VERDICT_APPLY = 0, VERDICT_DUPLICATE = 1 };

/* VERDICT_APPLY, VERDICT_DUPLICATE (a success that changes nothing), or the error. Fills the
 * results of w that belong to the verdict: producer, expected_seq. Documents are not looked at. */
int verdict_write(const struct verdict_state *s, struct store_write *w);

/* Is `asked` the configuration that `kept` was created with? */
bool verdict_same_config(const struct stream_config *kept, const struct stream_config *asked,
                         struct str content_type);

#endif
