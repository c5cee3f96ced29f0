// SPDX-License-Identifier: Apache-2.0
/* gateway_keys.c -- the documents of idempotency keys and chats, and how they are swept. */
#include "base/err.h"
#include "base/mem.h"
#include "base/pack.h"
#include "feature/gateway/gateway_core.h"

#include <stdlib.h>

#define SWEEP_AT_ONCE 256

void gateway_key_put(struct buf *out, const struct gateway_key *k)
{
    pack_str(out, k->request_id);
    pack_str(out, k->fingerprint);
    pack_i64(out, k->expires_ms);
}

int gateway_key_take(struct str bytes, struct gateway_key *k)
{
    struct unpack u = {.rest = bytes};
    k->request_id = unpack_str(&u);
    k->fingerprint = unpack_str(&u);
    k->expires_ms = unpack_i64(&u);
    return u.err == 0 && k->request_id.n != REQUEST_ID_TEXT ? ERR_CORRUPT : unpack_end(&u);
}

struct str gateway_chat_key(struct arena *a, const struct gateway_route *r, struct str caller,
                            struct str chat)
{
    return arena_printf(a, "%.*s %.*s %.*s", (int)r->path.n, r->path.p, (int)caller.n, caller.p,
                        (int)chat.n, chat.p);
}

/* ---- keys whose time is over ---- */

struct sweep {
    struct gateway *gateway;
    struct store_docs docs;
    struct store_put put;
    struct buf removals; /* of struct doc_put */
    size_t done;         /* of them */
    struct arena arena;
};

static void sweep_free(struct sweep *s)
{
    struct gateway *g = s->gateway;
    arena_deinit(&s->arena);
    buf_deinit(&s->removals);
    free(s);
    gateway_end(g);
}

static void gateway_keys_on_swept(struct store_put *put, int err);

static void sweep_some(struct sweep *s)
{
    const struct doc_put *all = (const struct doc_put *)(const void *)s->removals.p;
    size_t n = s->removals.n / sizeof *all - s->done;
    if (n == 0 || s->gateway->stopping) {
        sweep_free(s);
        return;
    }
    if (n > SWEEP_AT_ONCE)
        n = SWEEP_AT_ONCE;
    s->put = (struct store_put){.docs = all + s->done, .n_docs = n, .done = gateway_keys_on_swept};
    s->done += n;
    store_put(s->gateway->setup.store, &s->put);
}

static void gateway_keys_on_swept(struct store_put *put, int err)
{
    struct sweep *s = container_of(put, struct sweep, put);
    if (err == 0 || err == ERR_VERSION) /* one of them has changed meanwhile: next time */
        sweep_some(s);
    else
        sweep_free(s);
}

static void gateway_keys_on_docs(struct store_docs *docs, int err)
{
    struct sweep *s = container_of(docs, struct sweep, docs);
    int64_t now = s->gateway->setup.sched->wall_ms;
    struct gateway_key v;
    for (size_t i = 0; err == 0 && i < docs->n_rows; i++) {
        const struct doc_row *row = &docs->rows[i];
        if (gateway_key_take(row->value, &v) != 0 || v.expires_ms > now)
            continue;
        struct doc_put put = {.key = arena_dup(&s->arena, row->key),
                              .expect_version = row->version};
        buf_put(&s->removals, str_of((const char *)&put, sizeof put));
    }
    sweep_some(s);
}

static void sweep_prefix(struct gateway *g, struct str prefix)
{
    struct sweep *s = mem_zalloc(sizeof *s);
    s->gateway = g;
    s->docs =
        (struct store_docs){.prefix = prefix, .limit = SIZE_MAX, .done = gateway_keys_on_docs};
    gateway_begin(g);
    store_docs(g->setup.store, &s->docs);
}

void gateway_sweep_keys(struct gateway *g)
{
    sweep_prefix(g, STR(GATEWAY_KEYS));
    if (g->setup.instances != NULL)
        sweep_prefix(g, STR(GATEWAY_CHATS));
}
