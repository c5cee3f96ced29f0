// SPDX-License-Identifier: Apache-2.0
/* gateway_snapshot.c -- reads what an ended generation amounted to. */
#include "base/mem.h"
#include "feature/gateway/gateway_core.h"
#include "feature/gateway/recorder.h"

#include <stdlib.h>

#define SNAPSHOT_MAX (16 * 1024 * 1024)

static void gateway_on_snapshot_read(struct store_read *read, int err)
{
    struct snapshot_lookup *l = container_of(read, struct snapshot_lookup, read);
    struct gateway *g = l->gateway;
    l->end = err == 0 ? read->info.end : END_NONE;
    for (uint32_t i = 0; err == 0 && i < read->n_slices; i++)
        buf_put(&l->payload, read->slices[i].bytes);
    if (l->payload.n > 0)
        l->payload.n--; /* a JSON stream has a comma behind every value */
    if (err == 0)
        store_read_release(read);
    l->done(l);
    gateway_end(g);
}

struct snapshot_lookup *snapshot_lookup_new(struct gateway_route *r, struct str request_id,
                                            void (*done)(struct snapshot_lookup *l), void *ctx)
{
    struct snapshot_lookup *l = mem_zalloc(sizeof *l);
    l->gateway = r->gateway;
    l->done = done;
    l->ctx = ctx;
    l->read = (struct store_read){
        .name = gateway_stream(&l->arena, r, request_id, RECORDER_SNAPSHOT_SUFFIX),
        .from = READ_START,
        .max_bytes = SNAPSHOT_MAX,
        .done = gateway_on_snapshot_read};
    gateway_begin(r->gateway);
    store_read(r->gateway->setup.store, &l->read);
    return l;
}

void snapshot_lookup_free(struct snapshot_lookup *l)
{
    if (l == NULL)
        return;
    buf_deinit(&l->payload);
    arena_deinit(&l->arena);
    free(l);
}
