// SPDX-License-Identifier: Apache-2.0
#include "stream/access_key.h"
#include "base/err.h"
#include "base/hex.h"
#include "base/must.h"
#include "base/rand.h"
#include "base/sha256.h"
#include "telemetry/trace.h"
#include "token/bookmark.h"
#include "token/jwk.h"

#include <stdio.h>

#define RETRY_MS 1000
#define KID      "tm-"
#define KID_HEX  8 /* characters of the key's digest behind that */

/* The kid tells keys apart, and tells nothing of them. */
static void use_key(struct access_key *k, struct str secret)
{
    char why[256], digest[SHA256_HEX], kid[sizeof KID + KID_HEX];
    sha256_hex(secret, digest);
    snprintf(kid, sizeof kid, KID "%.*s", KID_HEX, digest);
    struct jwk_secret current = {.bytes = secret, .kid = str_of_cstr(kid)};
    must(jwk_set_from_secret(&current, NULL, &k->keys, why, sizeof why) == 0);
    k->bookmarks = bookmark_key_new((const uint8_t *)secret.p);
    explicit_bzero(k->drawn, sizeof k->drawn);
    k->ready(k);
}

static void load_again(struct access_key *k, int err)
{
    if (k->stopping)
        return;
    trace(k->trace, ACCESS_LATE, TRACE_STR("error", str_of_cstr(err_text(err))));
    sched_start(k->sched, &k->retry, RETRY_MS);
}

static void access_key_on_put(struct store_put *p, int err)
{
    struct access_key *k = container_of(p, struct access_key, put);
    if (err == ERR_VERSION && !k->stopping)
        sched_start(k->sched, &k->retry, 0); /* another process was first: use its key */
    else if (err != 0)
        load_again(k, err);
    else
        use_key(k, k->doc.value);
    gate_leave(&k->calls);
}

static void draw(struct access_key *k)
{
    rand_bytes(k->drawn, sizeof k->drawn);
    k->doc = (struct doc_put){.key = STR(ACCESS_KEY_DOCUMENT),
                              .value = str_of((const char *)k->drawn, sizeof k->drawn)};
    k->put = (struct store_put){.docs = &k->doc, .n_docs = 1, .done = access_key_on_put};
    gate_enter(&k->calls);
    store_put(k->store, &k->put);
}

static void access_key_on_doc(struct store_docs *d, int err)
{
    struct access_key *k = container_of(d, struct access_key, docs);
    bool found = err == 0 && d->n_rows > 0;
    if (found && d->rows[0].value.n != ACCESS_KEY_SIZE)
        err = ERR_CORRUPT;
    if (err != 0)
        load_again(k, err);
    else if (found)
        use_key(k, d->rows[0].value);
    else if (!k->stopping)
        draw(k);
    gate_leave(&k->calls);
}

static void access_key_on_retry(struct timer *t)
{
    struct access_key *k = container_of(t, struct access_key, retry);
    k->docs = (struct store_docs){
        .prefix = STR(ACCESS_KEY_DOCUMENT), .limit = 1, .exact = true, .done = access_key_on_doc};
    gate_enter(&k->calls);
    store_docs(k->store, &k->docs);
}

void access_key_load(struct access_key *k)
{
    gate_init(&k->calls, k->sched);
    timer_init(&k->retry, access_key_on_retry);
    access_key_on_retry(&k->retry);
}

void access_key_stop(struct access_key *k, void (*stopped)(void *ctx), void *ctx)
{
    k->stopping = true;
    timer_stop(&k->retry);
    gate_shut(&k->calls, stopped, ctx);
}

void access_key_deinit(struct access_key *k)
{
    timer_stop(&k->retry);
    jwk_set_free(k->keys);
    bookmark_key_free(k->bookmarks);
    explicit_bzero(k->drawn, sizeof k->drawn);
}
