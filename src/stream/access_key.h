// SPDX-License-Identifier: Apache-2.0
/* access_key.h -- the key that tokens of our own are signed with: a document of the store, which
 * the first process draws and all others use. Loop thread only. */
#ifndef STREAM_ACCESS_KEY_H
#define STREAM_ACCESS_KEY_H

#include "base/gate.h"
#include "store/store.h"

#define ACCESS_KEY_DOCUMENT "key/access"
#define ACCESS_KEY_SIZE     32

struct bookmark_key;
struct jwk_set;
struct trace;

/* Zero-initialised with the first four set. */
struct access_key {
    struct sched *sched;
    struct store *store;
    const struct trace *trace;
    void (*ready)(struct access_key *k); /* k->keys is there */

    struct jwk_set *keys;           /* NULL: not known yet */
    struct bookmark_key *bookmarks; /* derived from the same; NULL as well */
    struct store_docs docs;
    struct store_put put;
    struct doc_put doc;
    struct timer retry;
    struct gate calls;
    bool stopping;
    uint8_t drawn[ACCESS_KEY_SIZE];
};

/* Tries until the store answers; ready() comes from the schedule. */
void access_key_load(struct access_key *k);

/* stopped() comes from the schedule; access_key_deinit is due then. */
void access_key_stop(struct access_key *k, void (*stopped)(void *ctx), void *ctx);
void access_key_deinit(struct access_key *k);

#endif
