// SPDX-License-Identifier: Apache-2.0
/* gateway_discard.c -- takes back the stream and the key of a generation that needed none. */
#include "base/mem.h"
#include "feature/gateway/gateway_core.h"

#include <stdlib.h>

struct discard {
    struct store_remove remove;
    struct store_put put;
    struct gateway *gateway;
    struct doc_put key;
    struct link waiters; /* of struct generation_waiter: they ask for themselves */
    struct arena arena;
};

static void discard_free(struct discard *d)
{
    generation_notify_missing(&d->waiters);
    gateway_end(d->gateway);
    arena_deinit(&d->arena);
    free(d);
}

static void gateway_discard_on_stream_removed(struct store_remove *r, int err)
{
    discard_free(container_of(r, struct discard, remove));
}

static void gateway_discard_on_key_removed(struct store_put *p, int err)
{
    struct discard *d = container_of(p, struct discard, put);
    store_remove(d->gateway->setup.store, &d->remove);
}

void gateway_discard(struct gateway *g, struct str name, const struct doc_put *key,
                     struct link *waiters)
{
    struct discard *d = mem_zalloc(sizeof *d);
    list_init(&d->waiters);
    list_splice(&d->waiters, waiters);
    d->gateway = g;
    d->key = *key;
    d->key.key = arena_dup(&d->arena, key->key);
    d->remove = (struct store_remove){.name = arena_dup(&d->arena, name),
                                      .done = gateway_discard_on_stream_removed};
    d->put =
        (struct store_put){.docs = &d->key, .n_docs = 1, .done = gateway_discard_on_key_removed};
    gateway_begin(g);
    if (d->key.key.n > 0) /* first: it must not lead to a stream that is gone */
        store_put(g->setup.store, &d->put);
    else
        store_remove(g->setup.store, &d->remove);
}
