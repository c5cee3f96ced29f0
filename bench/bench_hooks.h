// SPDX-License-Identifier: Apache-2.0
/* bench_hooks.h -- a receiver of webhooks within the load generator. It answers each POST at once,
 * or never. */
#ifndef BENCH_HOOKS_H
#define BENCH_HOOKS_H

#include "bench_swarm.h"

#include "base/list.h"

struct hooks {
    struct swarm *swarm;
    int fd;
    unsigned host, port;
    bool answers;
    uint64_t got; /* POSTs, whole */
    struct source listener;
    struct link conns;
};

/* Listens on a free port of 127.0.HOST. The host is two bytes: 0x0001 is 127.0.0.1. */
void hooks_init(struct hooks *h, struct swarm *s, unsigned host, bool answers);
void hooks_deinit(struct hooks *h);

#endif
