// SPDX-License-Identifier: Apache-2.0
/* subscription.h -- who is to be told when streams have something new.
 *
 * A subscription links streams, by name or by pattern, and keeps for each the position that was
 * acknowledged. When a linked stream has events behind that position, and nobody is at work on
 * the subscription, a *wake* begins: it gets the next generation and an id of its own, and goes
 * out as a webhook or as an event in a wake stream. Whoever takes the wake holds a lease; with its
 * token it acknowledges positions, renews the lease and ends the wake. A lease that runs out
 * begins the next wake, and what still comes from the old one is fenced off by its generation.
 *
 *     idle --pending--> waking --claim, 2xx--> held --done, release--> idle
 *                         ^                      |
 *                         +----- lease over -----+
 *
 * All of it rests in the store; what is in memory can be rebuilt from there and is checked against
 * it before every decision, so that several processes may serve the same subscriptions. Loop
 * thread only. Each call completes exactly once, through its done(), and never before the function
 * that started it has returned. Calls of one subscription run one after another. */
#ifndef FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_H
#define FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_H

#include "base/arena.h"
#include "base/list.h"
#include "base/sched.h"
#include "base/str.h"
#include "store/offset.h"

#include <stdint.h>

struct signer;
struct store;
struct subscriptions;

/* Where they are over HTTP, and where the links in webhooks lead. */
#define SUBSCRIPTIONS_PREFIX         "/v1/stream/__ds/"

#define SUBSCRIPTION_MAX             10000 /* of one store: ERR_LIMIT */
#define SUBSCRIPTION_ID_MAX          128   /* bytes */
#define SUBSCRIPTION_STORED_ID_MAX   168   /* with the root of a tenant before it */
#define SUBSCRIPTION_PATTERN_MAX     480
#define SUBSCRIPTION_DESCRIPTION_MAX 1024
#define SUBSCRIPTION_URL_MAX         2048
#define SUBSCRIPTION_WORKER_MAX      256
#define SUBSCRIPTION_LIST_MAX        1000  /* streams or acks in one call */
#define SUBSCRIPTION_EXPLICIT_MAX    10000 /* streams linked by name: ERR_LIMIT */
#define SUBSCRIPTION_SHOWN_MAX       10000 /* streams that GET shows */
#define SUBSCRIPTION_LEASE_MIN_MS    1000
#define SUBSCRIPTION_LEASE_MAX_MS    600000
#define SUBSCRIPTION_LEASE_MS        30000 /* unless asked for otherwise */

/* What a call can be refused with, for reasons of its own: positive, beside the errors of
 * base/err.h. The name is what a client sees as the error's code. */
#define SUBSCRIPTION_REFUSALS(X)                                                                   \
    X(INVALID_REQUEST, 1, 400, "the request does not fit this kind of subscription")               \
    X(SUBSCRIPTION_NOT_FOUND, 2, 404, "no such subscription")                                      \
    X(SUBSCRIPTION_ALREADY_EXISTS, 3, 409, "the subscription exists with another configuration")   \
    X(WEBHOOK_URL_REJECTED, 4, 400, "this webhook URL is not allowed")                             \
    X(TOKEN_INVALID, 5, 401, "the bearer token is missing or not one of this subscription")        \
    X(FENCED, 6, 409, "this wake is over; a newer generation may be at work")                      \
    X(ALREADY_CLAIMED, 7, 409, "another worker holds the lease")                                   \
    X(NO_PENDING_WORK, 8, 409, "every linked stream is acknowledged up to its tail")               \
    X(INVALID_OFFSET, 9, 409,                                                                      \
      "an acknowledged stream is not linked, or its offset lies before the acknowledged one or "   \
      "behind the tail")                                                                           \
    X(QUOTA, 10, 507, "there are as many subscriptions as there may be")

enum subscription_refusal {
#define X(name, code, http, text) SUBSCRIPTION_##name = code,
    SUBSCRIPTION_REFUSALS(X)
#undef X
};

enum subscription_type { SUBSCRIPTION_WEBHOOK, SUBSCRIPTION_PULL };

/* What a subscription is created with. Names and the pattern are in their plain form
 * (subscription_pattern.h), texts are UTF-8, and all are within the bounds above. */
struct subscription_config {
    enum subscription_type type;
    struct str pattern; /* n == 0: none */
    const struct str *streams;
    size_t n_streams;
    struct str webhook_url; /* of a webhook */
    struct str wake_stream; /* of a pull; the stream should exist */
    uint64_t lease_ttl_ms;
    struct str description; /* p == NULL: none */
    /* It may link sealed streams (store/names.h), and is then shown to those alone who may know of
     * them: a pull, created by one of them, whose names or pattern can mean such streams. Without
     * it the pattern never does, and none may be among the names. */
    bool sealed;
    /* Before the id and all names, which are stored with it: the tenant's whose subscription it is.
     * His webhooks, tickets and wakes are told names without it. n == 0: none. */
    struct str root;
    /* Under which it counts (most_owned): a tenant's root, or who created it. n == 0: none. No part
     * of what has to be the same when it is created again. */
    struct str owner;
    struct str public_url; /* where clients reach this server, `http://host:port`; may differ when
                              the same configuration is confirmed, the first stays */
};

/* A linked stream. The zero offset is the start. */
struct subscription_stream {
    struct str path;
    bool is_explicit; /* linked by name; otherwise by the pattern */
    struct offset acked;
    struct offset tail;
    bool has_pending;
};

struct subscription_ack {
    struct str stream;
    struct str offset;
};

/* The caller keeps it, and all it points to, alive until done() runs. Zeroed memory to begin with.
 * What comes out lives in `arena` until the caller calls subscription_call_deinit. */
struct subscription_call {
    /* in, as each function below says */
    struct str id;
    struct str root;  /* of the caller; lives in what it is told to ack with */
    bool sees_sealed; /* the caller may know of sealed streams */
    /* May the caller know of a subscription of this configuration (stream.n == 0), and that it
     * links this stream by name? Otherwise there is none for it. NULL: yes. */
    bool (*allows)(const struct subscription_call *c, const struct subscription_config *config,
                   struct str stream);
    /* Told of each linked stream as they are read, some at a time, since there may be thousands; in
     * byte order, without its tail, lent for the call. Of _create and _get. NULL: nobody asks. */
    void (*shown)(struct subscription_call *c, const struct subscription_stream *s);
    const struct subscription_config *config;
    uint64_t most_owned; /* that config->owner may have: QUOTA; 0: no bound */
    const struct str *streams;
    size_t n_streams;
    struct str worker;
    struct str token, wake_id;
    uint64_t generation;
    const struct subscription_ack *acks;
    size_t n_acks;
    bool finished; /* the "done" of an ack or of a delivery's answer */
    bool delivered;
    uint64_t retry_ms;

    /* out */
    bool created;
    bool next_wake; /* the next wake has begun already */
    struct subscription_view {
        struct subscription_config config; /* without the list of streams */
        int64_t created_ms;
        bool failing; /* the last delivery failed */
        uint64_t generation;
        struct str wake_id, token, holder;
        uint32_t attempts;                   /* deliveries of this wake that failed */
        struct subscription_stream *streams; /* of a wake */
        size_t n_streams;
        bool more; /* not every linked stream is listed, or was shown */
    } view;
    /* result: 0, a refusal (positive), or an error (negative). The call may be used again, or freed
     * after its deinit, from within done(). */
    void (*done)(struct subscription_call *c, int result);

    struct arena arena;
    struct subscription_job *job; /* private */
};
void subscription_call_deinit(struct subscription_call *c);

/* Loads what is in the store and goes on with it. */
struct subscriptions *subscriptions_new(struct sched *sched, struct store *store);

/* Takes no more calls (they end with ERR_CANCELLED, as those that wait do) and begins nothing more.
 * stopped() runs, never from within this call, when nothing is under way in the store any longer;
 * subscriptions_free is due then. */
void subscriptions_stop(struct subscriptions *s, void (*stopped)(void *ctx), void *ctx);

/* Never stopped: only allowed when nothing is under way. NULL is allowed. */
void subscriptions_free(struct subscriptions *s);

/* Looks at the store again every so often, for what other processes have changed there or left
 * behind; 0 (at first): never, which will do where one process owns the store. */
void subscriptions_set_refresh(struct subscriptions *s, uint64_t every_ms);

/* id, config. Streams that exist are linked at their tails, later ones from their start. Again with
 * the same configuration: created is false. Out: view. */
void subscription_create(struct subscriptions *s, struct subscription_call *c);

/* id. Out: view. Up to SUBSCRIPTION_SHOWN_MAX streams are shown. */
void subscription_get(struct subscriptions *s, struct subscription_call *c);

/* id. Removing what is not there succeeds. */
void subscription_delete(struct subscriptions *s, struct subscription_call *c);

/* Begins to delete those whose ids begin so, some at a time. How many there are, 1 at least while
 * they are not known yet. */
size_t subscriptions_erase(struct subscriptions *s, struct str prefix);

/* id, streams: to link by name, at their tails; or one to link by name no longer (it stays linked
 * if the pattern has it). INVALID_REQUEST: a sealed stream, in a subscription not for them.
 */
void subscription_link(struct subscriptions *s, struct subscription_call *c);
void subscription_unlink(struct subscriptions *s, struct subscription_call *c);

/* id, worker. Takes the wake of a pull subscription, or begins one when something is pending. Out:
 * view with the token and the streams, those with something pending first; with ALREADY_CLAIMED the
 * holder and generation. */
void subscription_claim(struct subscriptions *s, struct subscription_call *c);

/* id, token, wake_id, generation, acks, finished. All positions are taken, or none. Renews the
 * lease, or ends the wake when finished; if then something is pending the next begins at once
 * (next_wake). _callback is for webhooks, _ack for pull. */
void subscription_callback(struct subscriptions *s, struct subscription_call *c);
void subscription_ack(struct subscriptions *s, struct subscription_call *c);

/* id, token, wake_id, generation. Ends the wake without acknowledging anything. */
void subscription_release(struct subscriptions *s, struct subscription_call *c);

/* No input. Completes when the keys are there, so that subscriptions_signer may be used. */
void subscription_keys(struct subscriptions *s, struct subscription_call *c);

/* Signs webhooks; the same for ever and in all processes. NULL until a call has succeeded. */
struct signer *subscriptions_signer(struct subscriptions *s);

/* ---- for whoever delivers webhooks ---- */

/* due() is told whenever a delivery should be tried; the same id may come again. It answers, now or
 * when it has room, with subscription_attempt. receiver: host and port of the webhook, in lower
 * case. Both are lent for the call. */
struct subscription_notifier {
    void (*due)(struct subscription_notifier *c, struct str id, struct str receiver);
};
void subscriptions_set_notifier(struct subscriptions *s, struct subscription_notifier *c);

/* How long one delivery may take: a lease, but not more than this. */
#define SUBSCRIPTION_DELIVERY_MAX_MS 60000
static inline uint64_t subscription_delivery_ms(uint64_t lease_ttl_ms)
{
    return lease_ttl_ms < SUBSCRIPTION_DELIVERY_MAX_MS ? lease_ttl_ms
                                                       : SUBSCRIPTION_DELIVERY_MAX_MS;
}

/* id. Out: view with all that a delivery needs. NO_PENDING_WORK: nothing is to be delivered. */
void subscription_attempt(struct subscriptions *s, struct subscription_call *c);

/* id, wake_id, generation; delivered (and then finished: acknowledges what the wake was sent with)
 * or not (retry_ms: when to try again). A wake that is over by now is left alone. */
void subscription_report(struct subscriptions *s, struct subscription_call *c);

#endif
