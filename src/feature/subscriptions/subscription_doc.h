// SPDX-License-Identifier: Apache-2.0
/* subscription_doc.h -- subscriptions as they rest in the store: their documents, read and written.
 *
 *   sub/head/ID        one subscription: its configuration, where it stands, and its current wake
 *   sub/link/ID/PATH   one linked stream and the position acknowledged there
 *   key/...            the seed of the signing key and the root of the token keys, 32 bytes each
 *
 * ID is percent-encoded, PATH is the name of the stream. Links have documents of their own so that
 * an acknowledgement rewrites a line and not the list of a hundred thousand streams. */
#ifndef FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_DOC_H
#define FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_DOC_H

#include "base/arena.h"
#include "base/buf.h"
#include "feature/subscriptions/subscription.h"

#define SUBSCRIPTION_KEY_SIGNING "key/webhook-signing"
#define SUBSCRIPTION_KEY_TOKENS  "key/subscription-tokens"
#define SUBSCRIPTION_HEADS       "sub/head/"
#define SUBSCRIPTION_LINKS       "sub/link/"

/* Room for the streams of a wake in a head; with everything else it stays below DOC_VALUE_MAX. */
#define SUBSCRIPTION_WAKE_BYTES  (40 * 1024)

enum subscription_phase {
    SUBSCRIPTION_LINKING, /* being created; not yet one for anybody */
    SUBSCRIPTION_ACTIVE,
    SUBSCRIPTION_DELETING, /* its links are being removed; no longer one */
};

enum subscription_state { SUBSCRIPTION_IDLE, SUBSCRIPTION_WAKING, SUBSCRIPTION_HELD };

#define SUBSCRIPTION_HASH_TEXT 64

struct subscription_head {
    enum subscription_phase phase;
    uint64_t birth; /* random; links of an earlier one of the same id have another */
    uint64_t edits; /* counts the calls that changed the links by name */
    struct subscription_config config;
    char hash[SUBSCRIPTION_HASH_TEXT];
    int64_t created_ms;

    enum subscription_state state;
    uint64_t generation;
    struct str wake_id; /* n == 0 when idle */
    struct str holder;  /* of a pull's lease */
    /* HELD: when the lease ends. WAKING, webhook: when somebody should deliver (again). */
    int64_t until_ms;
    uint32_t attempts;                   /* deliveries that failed in a row */
    struct subscription_stream *streams; /* what the wake was sent with, up to which tails */
    size_t n_streams;
};

struct subscription_link {
    bool is_explicit;
    uint64_t birth;
    uint64_t life; /* of the stream that `acked` belongs to; 0: there was none */
    struct offset acked;
};

void subscription_head_put(struct buf *out, const struct subscription_head *h);

/* Texts live in a. ERR_CORRUPT: not such a document. */
int subscription_head_parse(struct arena *a, struct str doc, struct subscription_head *out);

#define SUBSCRIPTION_LINK_TEXT 69
void subscription_link_format(const struct subscription_link *l, char out[SUBSCRIPTION_LINK_TEXT]);
int subscription_link_parse(struct str doc, struct subscription_link *out);

/* Percent-encoding of an id in a key, with its root. A key that holds none is ERR_CORRUPT. */
void subscription_id_put(struct buf *out, struct str id);
int subscription_id_parse(struct arena *a, struct str text, struct str *id);

/* The bytes a stream takes up in a head, at most. */
size_t subscription_stream_cost(const struct subscription_stream *s);

/* Names the configuration: equal for two that differ only in the order of their streams or in
 * repeated ones, and in the public URL. */
void subscription_config_hash(const struct subscription_config *c,
                              char out[SUBSCRIPTION_HASH_TEXT]);

#endif
