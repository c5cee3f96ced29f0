// SPDX-License-Identifier: Apache-2.0
/* engines.h -- the stores that the model tests are run on. */
#ifndef MODEL_ENGINES_H
#define MODEL_ENGINES_H

#include "store/store.h"

struct engine {
    const char *name;
    struct store *(*make)(struct sched *sched);
    /* Operations take effect in the order of the calls. Otherwise they are made one by one where
     * the order counts. */
    bool in_order;
};

static const struct engine engines[] = {
    {"mem", mem_store_new, true},
};
#define N_ENGINES (sizeof engines / sizeof *engines)

#endif
