// SPDX-License-Identifier: Apache-2.0
/* mem_store.h -- the store in memory: nothing survives the process. */
#ifndef STORE_MEM_MEM_STORE_H
#define STORE_MEM_MEM_STORE_H

#include "store/store.h"

struct store *mem_store_new(struct sched *sched);

#endif
