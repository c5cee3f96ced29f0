// SPDX-License-Identifier: Apache-2.0
/* sessions_http_core.h -- what the parts of the HTTP interface of sessions share.
 *
 *     sessions_http.c          paths, headers
 *     session_call_http.c      calls that go both ways
 *     session_channel_http.c   a downlink and its appends, tied together by a request id
 *     session_downlink_http.c  downlink calls: streams and polls
 *     session_append_http.c    append calls
 *     session_window.c         appends in order
 *     session_errors_http.c    how calls end */
#ifndef FEATURE_SESSIONS_SESSIONS_HTTP_CORE_H
#define FEATURE_SESSIONS_SESSIONS_HTTP_CORE_H

#include "base/sched.h"
#include "feature/sessions/session.h"
#include "feature/sessions/session_errors_http.h"
#include "feature/sessions/session_window.h"
#include "feature/sessions/sessions_http.h"

struct exchange;
struct request;

/* ---- sessions_http.c ---- */

/* What the headers of a call say. Wiped as soon as the session is connected. */
struct session_headers {
    size_t key_n; /* 0: absent */
    char key[SESSION_KEY_MAX];
    uint8_t secret[SESSION_SECRET_SIZE];
    uint64_t position;
};

/* Copies, and wipes the secret from the request. false: *why. */
bool session_headers_read(const struct request *req, struct session_headers *out,
                          enum session_refusal *why);
void session_headers_wipe(struct session_headers *h);
/* May whoever asks have the session of this key, or any if there is none yet? The key gets his
 * root. false: he may not, or *why is set to more than that: it is too long with the root. */
bool session_headers_enter(struct exchange *x, struct session_headers *h,
                           enum session_refusal *why);
/* Wipes the secret from a request that is not read. */
void session_headers_drop(const struct request *req);

/* A MAC of the secret, by which a downlink and its appends know each other. It is made under a key
 * that nobody else has, so how long a comparison takes tells nothing. */
#define SESSION_PROOF_SIZE 32
/* false: the request has no secret, or a malformed one. */
bool session_proof_read(struct sessions_http *s, const struct request *req,
                        uint8_t out[SESSION_PROOF_SIZE]);

/* Connects, and wipes h but for the position. */
void session_connect_headers(struct sessions_http *s, struct session_client *c,
                             struct session_headers *h, enum session_service service);

/* Gives put() what the session has for its client, up to about EXCHANGE_PULL bytes; its events
 * count for whoever asks. SESSION_NEXT_MESSAGE: there may be more. */
enum session_next session_pull(struct rpc *r, struct session_client *c,
                               void (*put)(void *ctx, struct str message), void *ctx);
void session_put_rpc(void *rpc, struct str message); /* a put(): as it is */

/* ---- calls: each begins one ---- */

void session_call_begin(struct sessions_http *s, enum session_service service, struct exchange *x);
void session_stream_begin(struct sessions_http *s, enum session_service service,
                          struct exchange *x);
void session_poll_begin(struct sessions_http *s, enum session_service service, struct exchange *x);
void session_append_begin(struct sessions_http *s, enum session_service service,
                          struct exchange *x);

/* ---- session_channel_http.c ---- */

#define CHANNEL_MAX           10000              /* of one server */
#define CHANNEL_LINGER_MS     (10 * 60 * 1000)   /* known behind its downlink */
#define CHANNEL_POLL_AWAY_MS  (60 * 1000)        /* between polls */
#define CHANNEL_EARLY_MS      (10 * 1000)        /* appends wait for their downlink, */
#define CHANNEL_EARLY_MAX     256                /* at most so many */
#define CHANNEL_WAITING_BYTES (64 * 1024 * 1024) /* of all appends that wait */
#define APPEND_EXTRA          (64 * 1024)        /* bytes of an append besides its data */

struct session_downlink;

/* NEW --a downlink--> STREAMED or POLLED --it is gone--> LINGERING, or ENDED with its session; from
 * there, as from NEW, the next downlink leads on. A newer one passes through LINGERING. */
enum channel_state {
    CHANNEL_NEW, /* appends came before their downlink */
    CHANNEL_STREAMED,
    CHANNEL_POLLED, /* a poll is under way, or expected */
    CHANNEL_LINGERING,
    CHANNEL_ENDED,
};

struct channel {
    struct sessions_http *surface;
    enum channel_state state;
    struct link idle;
    struct timer timer; /* without a downlink: linger. Between polls: how long they stay away */
    struct session_client client; /* while attached */
    uint64_t position;
    struct session_downlink *downlink; /* the call; NULL: between polls */
    uint64_t polls_given;              /* responses so far */
    struct session_window window;      /* of appends that wait for their turn */
    size_t n_waiting, waiting_bytes;
    struct link said; /* appends whose message is not settled, in order */
    uint64_t n_said;
    size_t name_n;
    char name[];
};

static inline bool channel_is_attached(const struct channel *ch)
{
    return ch->state == CHANNEL_STREAMED || ch->state == CHANNEL_POLLED;
}

/* Who is asking for which channel. A request id alone opens none: whoever has another secret has
 * another channel. */
struct channel_name {
    enum session_service service;
    const uint8_t *proof;
    struct str request_id, caller;
};

struct channel *channel_find(struct sessions_http *s, const struct channel_name *name);
/* Finds or makes. NULL: there are too many. */
struct channel *channel_get(struct sessions_http *s, const struct channel_name *name);

/* A new downlink, STREAMED or POLLED: an older one is over. What waits is said. */
void channel_attach(struct channel *ch, enum channel_state state, struct session_downlink *d,
                    struct session_headers *h, enum session_service service);
/* The downlink is gone; so are the appends that are under way. state: LINGERING or ENDED. */
void channel_detach(struct channel *ch, enum channel_state state, const struct rpc_status *appends);
void channel_drop(struct channel *ch); /* the same: they are told that it is gone */
/* It may be of no use any more: then it is freed. */
void channel_tidy(struct channel *ch);
void channel_free(struct channel *ch);
void channel_release(struct channel *ch); /* the same, but for the map */
/* Says what is next, as far as the session has room. */
void channel_deliver(struct channel *ch);

/* ---- session_downlink_http.c ---- */

/* There is something to pull. */
void downlink_wake(struct session_downlink *d);
/* Ends the call; of the channel nothing changes. */
void downlink_end(struct session_downlink *d, const struct rpc_status *status);

/* ---- session_append_http.c ---- */

/* EARLY: no downlink is there. WAITING: for its turn, or for room in the session. */
enum append_state { APPEND_READING, APPEND_EARLY, APPEND_WAITING, APPEND_DELIVERED };

struct session_append_call {
    struct sessions_http *surface;
    enum append_state state;
    enum session_service service;
    struct rpc *rpc;         /* NULL: the peer is gone */
    struct channel *channel; /* from EARLY or WAITING on */
    struct link link;        /* channel.said */
    struct timer early;      /* how long it waits for a downlink */
    bool proves;             /* it came with a secret */
    uint8_t proof[SESSION_PROOF_SIZE];
    uint64_t number;
    uint64_t ordinal; /* with SAID: among what was said, from 1 */
    struct buf data;
};

/* It does not wait for a downlink any more. */
void append_is_due(struct session_append_call *a);
/* Its message was said as the ordinal-th, and is not needed any more. */
void append_delivered(struct session_append_call *a, uint64_t ordinal);
void append_answer(struct session_append_call *a);
void append_end(struct session_append_call *a, const struct rpc_status *status);

#endif
