// SPDX-License-Identifier: Apache-2.0
/* gateway_keys.c -- the documents of idempotency keys and chats, and how they are swept. */
#include "base/err.h"
#include "base/mem.h"
#include "base/pack.h"
#include "feature/gateway/gateway_core.h"

#include <stdlib.h>

#define SWEEP_PAGE 256

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

/* A walk over all of them, a page at a time. Those that change meanwhile are left for the next. */
struct sweep {
    struct gateway *gateway;
    struct str prefix;
    struct store_docs docs;
    struct store_put put;
    struct doc_put removals[SWEEP_PAGE];
    struct arena page; /* their keys, and where the page has ended */
    struct str last;   /* n == 0: there is no page behind it */
};

static void sweep_free(struct sweep *s)
{
    struct gateway *g = s->gateway;
    arena_deinit(&s->page);
    free(s);
    gateway_end(g);
}

static void gateway_keys_on_docs(struct store_docs *docs, int err);

static void sweep_page(struct sweep *s)
{
    s->docs = (struct store_docs){
        .prefix = s->prefix, .after = s->last, .limit = SWEEP_PAGE, .done = gateway_keys_on_docs};
    store_docs(s->gateway->setup.store, &s->docs);
}

static void sweep_on(struct sweep *s)
{
    if (s->last.n == 0 || s->gateway->stopping)
        sweep_free(s);
    else
        sweep_page(s);
}

static void gateway_keys_on_swept(struct store_put *put, int err)
{
    struct sweep *s = container_of(put, struct sweep, put);
    if (err == 0 || err == ERR_VERSION)
        sweep_on(s);
    else
        sweep_free(s);
}

/* Those of the page that are over; how many. */
static size_t find_expired(struct sweep *s, const struct store_docs *docs, struct arena *page)
{
    int64_t now = s->gateway->setup.sched->wall_ms;
    struct gateway_key v;
    size_t n = 0;
    for (size_t i = 0; i < docs->n_rows; i++) {
        const struct doc_row *row = &docs->rows[i];
        if (gateway_key_take(row->value, &v) == 0 && v.expires_ms <= now)
            s->removals[n++] =
                (struct doc_put){.key = arena_dup(page, row->key), .expect_version = row->version};
    }
    return n;
}

static void gateway_keys_on_docs(struct store_docs *docs, int err)
{
    struct sweep *s = container_of(docs, struct sweep, docs);
    if (err != 0) {
        sweep_free(s);
        return;
    }
    struct arena page = {0};
    size_t n = find_expired(s, docs, &page);
    bool more = docs->more && docs->n_rows > 0;
    s->last = more ? arena_dup(&page, docs->rows[docs->n_rows - 1].key) : STR_NONE;
    arena_deinit(&s->page); /* `after` was in it */
    s->page = page;
    if (n == 0) {
        sweep_on(s);
        return;
    }
    s->put = (struct store_put){.docs = s->removals, .n_docs = n, .done = gateway_keys_on_swept};
    store_put(s->gateway->setup.store, &s->put);
}

static void sweep_prefix(struct gateway *g, struct str prefix)
{
    struct sweep *s = mem_zalloc(sizeof *s);
    s->gateway = g;
    s->prefix = prefix;
    gateway_begin(g);
    sweep_page(s);
}

void gateway_sweep_keys(struct gateway *g)
{
    sweep_prefix(g, STR(GATEWAY_KEYS));
    if (g->setup.instances != NULL)
        sweep_prefix(g, STR(GATEWAY_CHATS));
}
