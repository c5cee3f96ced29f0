// SPDX-License-Identifier: Apache-2.0
/* gateway_core.h -- what the parts of the gateway share that know no exchange. */
#ifndef FEATURE_GATEWAY_GATEWAY_CORE_H
#define FEATURE_GATEWAY_GATEWAY_CORE_H

#include "base/arena.h"
#include "base/gate.h"
#include "base/list.h"
#include "base/map.h"
#include "base/rand.h"
#include "base/sched.h"
#include "stream/instances.h"
#include "stream/quota.h"
#include "feature/gateway/route_config.h"
#include "store/store.h"
#include "feature/gateway/gateway.h"
#include "feature/gateway/gateway_dialect.h"
#include "feature/gateway/gateway_events.h"
#include "feature/gateway/gateway_repeats.h"
#include "feature/gateway/gateway_source.h"
#include "feature/gateway/upstream_header.h"
#include "token/resume.h"

#define REQUEST_ID_TEXT RAND_UUID

struct gateway_route {
    struct gateway *gateway;
    const struct route_config *config;
    struct source_kind source;
    struct str path;
    struct quota quota;                              /* by caller */
    struct quota anonymous;                          /* of all together that are not known */
    struct upstream_headers added;                   /* to what the upstream gets */
    struct gauge *running;                           /* generations */
    struct gauge *passing;                           /* requests that are passed on */
    struct counter *refused_rate, *refused_parallel; /* requests beyond the route's limits */
    struct route_config *local; /* what config points to, if it is no setting; NULL: it is */
};

struct gateway {
    struct gateway_setup setup;
    struct gateway_route **routes;
    size_t n_routes;
    struct metric_family *running_family; /* gauges, by route */
    struct metric_family *passing_family; /* the same */
    struct metric_family *refused_family; /* counters, by route and limit */
    struct metric_family *failed_family;  /* of upstreams; counters, by route and reason */
    struct resume_keys keys;
    struct gateway_events events;
    struct map running; /* of struct generation, by request id */
    struct map chats;   /* of the same, by route and chat; see gateway_generation.c */
    struct timer sweep; /* of keys whose time is over */
    struct instance_observer observer;
    unsigned leftovers;       /* beats until they are looked for; 0: there should be none */
    struct link inheritances; /* under way */
    struct link awaits;       /* of gateway_await.c */
    struct link wholes;       /* of gateway_whole_http.c */
    struct link passes;       /* of gateway_pass_http.c */
    bool failing, probing;    /* the store took no stream lately; one is tried all the same */
    uint64_t failed_ms;       /* when it last did not */
    size_t kept_bytes;        /* of answers that are being collected */
    struct repeats repeats;
    struct gate generations; /* those in `running`; shut: it is draining */
    struct gate under_way;   /* operations of the store that come back here */
    bool stopping;
    void (*stopped)(void *ctx);
    void *stopped_ctx;
};

/* In the arena: the name of a generation's stream, or with a suffix behind it. */
struct str gateway_stream(struct arena *a, const struct gateway_route *r, struct str request_id,
                          const char *suffix);

/* Is it the stream, or the snapshot, of a generation that is under way here? */
bool gateway_runs(const struct gateway *g, struct str stream);

/* How long a generation's stream outlives its last event. */
int64_t gateway_ttl_s(const struct route_config *c);

/* It ended without an answer, through no wish of its client's. */
static inline bool gateway_came_to_nothing(enum end_reason end)
{
    return end == END_FAILED || end == END_ORPHANED;
}

/* Ids of events name their generation, so that they say of which one they are wherever they are
 * sent. */
static inline bool gateway_has_full_ids(const struct gateway_route *r, enum route_dialect d)
{
    return d != ROUTE_DIALECT_SSE || r->config->ids == ROUTE_IDS_FULL;
}

/* A text that can be one of our request ids. */
bool gateway_is_request_id(struct str text);

/* Around each operation of the store whose end needs the gateway: stopping waits for it, also where
 * the exchange that it was for is over. */
static inline void gateway_begin(struct gateway *g)
{
    gate_enter(&g->under_way);
}
static inline void gateway_end(struct gateway *g)
{
    gate_leave(&g->under_way);
}

/* The store does not take a stream now, and may later. */
bool gateway_is_trouble(int err);

/* While the store takes nothing, one request a second finds out whether that has changed; the
 * others do not wait for what it says. */
bool gateway_is_worth_trying(const struct gateway *g);
/* Around each try. True: this is the one that finds out. */
bool gateway_try(struct gateway *g);
void gateway_tried(struct gateway *g, bool probed, int err);

/* ---- gateway_http.c: what comes in ---- */

extern const struct surface gateway_surface, gateway_prefix_surface;
void gateway_mount(struct gateway_route *r);

/* ---- gateway_owner.c: whose a generation is ----
 *
 * With access configured an id belongs to who began its generation: its first half is random, its
 * second a digest of that and of the principal. So wherever an id comes from, a path, a token or
 * another server's answer, it says by itself whose it is, for as long as anything is kept of it. */

struct principal;

void gateway_id_make(const struct principal *p, char id[REQUEST_ID_TEXT]);

/* Without access everybody's is everybody's. */
bool gateway_id_is_of(struct str request_id, const struct principal *p);

/* ---- gateway_keys.c ---- */

/* What a key's document says; a chat's has no fingerprint. */
struct gateway_key {
    struct str request_id, fingerprint;
    int64_t expires_ms;
};
void gateway_key_put(struct buf *out, const struct gateway_key *k);
int gateway_key_take(struct str bytes, struct gateway_key *k); /* ERR_CORRUPT */

/* How chats are told apart: by route and caller. */
struct str gateway_chat_key(struct arena *a, const struct gateway_route *r, struct str caller,
                            struct str chat);

/* What the names of its streams and documents begin with; those of streams are in store/names.h. */
#define GATEWAY_STREAMS ".route/"
#define GATEWAY_RUNNING "running/"
#define GATEWAY_KEYS    "gateway-key/"
#define GATEWAY_CHATS   "gateway-chat/"

/* Forgets keys and chats whose time is over. */
void gateway_sweep_keys(struct gateway *g);

/* ---- gateway_generation.c ---- */

struct surface;
struct generation;

/* Why it came to nothing: no event of it was recorded. Lent for the call. */
struct generation_failure {
    struct str request_id;
    enum end_reason end;
    int err;            /* of its source or the store; 0: it is not known */
    struct str message; /* n == 0: none */
    bool degraded;      /* it would not have been recorded */
    struct dialect_voice voice;
};

/* Somebody who wants to read a generation that cannot be read yet. One of the functions is called,
 * once. */
struct generation_waiter {
    struct link link;
    const struct generation_waiter_ops *ops;
    const struct dialect_voice *voice; /* of the generation, with ready(); lent for the call */
};
struct generation_waiter_ops {
    /* It can be read. Its beginning is kept until generation_unpin. */
    void (*ready)(struct generation_waiter *w);
    void (*failed)(struct generation_waiter *w, const struct generation_failure *f);
    /* What came was no stream of events, and went to whoever asked: the next has to ask again.
     * surplus: enough others do. */
    void (*missing)(struct generation_waiter *w, bool surplus);
};

/* A new one. It is the generation's until refused(), direct(), or a function of the waiter is
 * called. */
struct generation_order {
    struct gateway_route *route;
    const struct request *request; /* what follows is lent until asked() */
    struct str body;
    bool known;                 /* by its Authorization, which is not for the source then */
    struct dialect_voice voice; /* as far as it is known */
    struct str chat;            /* as gateway_chat_key makes it; n == 0: none */
    bool whole;                 /* its snapshot is wanted, and no events */
    const struct doc_put *docs; /* the key, written with the stream */
    size_t n_docs;
    char request_id[REQUEST_ID_TEXT];
    struct account *lease;           /* goes to ops->ended with the generation; NULL: none */
    struct generation_waiter waiter; /* who asked; missing() is not called */
    const struct generation_asker_ops *ops;
};
struct generation_asker_ops {
    void (*asked)(struct generation_order *o); /* the source has a copy of the request */
    /* It answers with events. What else it says is for who asked. NULL: nobody wants it. */
    void (*headed)(struct generation_order *o, const struct source_head *head);
    /* Its stream could not be made. ERR_VERSION: somebody else has put the key meanwhile. */
    void (*refused)(struct generation_order *o, int err);
    /* The answer goes to whoever asked and nowhere else: as it is, or as events that the store
     * does not take. NULL: nobody is there any more. */
    struct forward *(*direct)(struct generation_order *o, struct generation *gen,
                              const struct source_head *head, bool degraded);
    /* The generation is over, however it went; the order may be gone. NULL: nobody counts. */
    void (*ended)(struct account **lease);
};
void generation_start(struct generation_order *o);

/* Of forwards: there is room again; the client has gone, and the forward with it. */
void generation_resume(struct generation *gen);
void generation_detach(struct generation *gen);

/* Of this route, under way; NULL: there is none. */
struct generation *generation_find(struct gateway_route *r, struct str request_id);

/* The id of the one of a chat, in the arena. n == 0: none is under way here, but those that other
 * processes were told of. */
struct str generation_of_chat(struct gateway *g, struct arena *a, struct str key);

/* How its readers are spoken to; lent for as long as it is under way. Its dialect is known for good
 * from the first event on, or when it can be read without one. */
const struct dialect_voice *generation_voice(const struct generation *gen);

/* What has been folded so far, and the number of the last event in it. */
int generation_snapshot(const struct generation *gen, struct buf *out, uint64_t *seq);

/* Keeps who wants to read a generation that cannot be read yet. False: there is nothing to wait for
 * here. */
bool generation_wait(struct gateway_route *r, struct str request_id, struct generation_waiter *w);

/* Calls missing() of all on a list of waiters, and takes them off. */
void generation_notify_missing(struct link *waiters);

/* Whoever was told ready() has a place of its own, or will not come. */
void generation_unpin(struct generation *gen);

/* Somebody who wants it stopped; done() comes when that is durable. end: how it has ended, maybe by
 * itself. */
struct generation_stopper {
    struct link link;
    void (*done)(struct generation_stopper *s, enum end_reason end, int err);
};
/* Ends it as cancelled. */
void generation_cancel(struct generation *gen, struct generation_stopper *s);

/* Ends all of a route; NULL: of all routes. */
void generations_orphan(struct gateway *g, const struct gateway_route *r);

/* ---- gateway_generation_kept.c ---- */

/* Whoever asked has lost it, and may come again: it is kept even if it is no stream of events. */
void generation_want_kept(struct generation *gen);

/* ---- gateway_generation_readers.c: who reads a generation in this process ---- */

/* Zero-initialised: none is taken. */
struct generation_seat {
    struct link link;
    struct generation *gen; /* NULL: none, or it is over */
};

/* Of the generation with this id, if it is under way here. A seat in another one is left. */
void generation_sit(struct gateway_route *r, struct str request_id, struct generation_seat *s);
/* May be called twice. */
void generation_stand(struct generation_seat *s);

/* ---- gateway_discard.c ---- */

/* Removes the key, if there is one, and the stream; then the waiters, which it takes over, are told
 * that it is missing. */
void gateway_discard(struct gateway *g, struct str name, const struct doc_put *key,
                     struct link *waiters);

/* ---- gateway_presence.c: generations where several processes share the store ---- */

struct presence;

struct presence_order {
    struct gateway_route *route;
    struct str request_id, name, chat; /* chat.n == 0: none */
    /* Another process has ended it. */
    void (*ended)(void *ctx, enum end_reason end);
    void *ctx;
};
struct presence *presence_new(const struct presence_order *o);

/* To be written with the stream. */
const struct doc_put *presence_doc(const struct presence *p);

/* The stream is there, and the document with it. */
void presence_started(struct presence *p);
/* It took something of ours: it was open. */
void presence_wrote(struct presence *p);
/* Its stream could not be closed: that is left to who looks for leftovers. */
void presence_abandon(struct presence *p);
/* Others find it by its chat: what they are told is the truth, also here. */
bool presence_is_told(const struct presence *p);

/* The generation is over. What others were told of it is taken back in the background. NULL is
 * fine. */
void presence_free(struct presence *p);

/* Looks for the generation of a chat that is under way. The caller keeps it, and what it points to,
 * until done(). */
struct chat_lookup {
    struct gateway_route *route;
    struct str chat; /* its key */
    struct arena *arena;
    struct str request_id; /* out, in the arena; n == 0: there is none */
    void (*done)(struct chat_lookup *l, int err);
    struct store_docs docs; /* private, as is what follows */
    struct store_stat stat;
};
void presence_find_chat(struct chat_lookup *l);

/* A stream may have been made that nobody runs: it is looked for soon. */
void gateway_look_for_leftovers(struct gateway *g);

void gateway_presence_init(struct gateway *g);
void gateway_presence_stop(struct gateway *g);

/* ---- gateway_await.c: what another process has just begun ----
 *
 * done() comes when an event of it is there, or when it is over. late: it took so long that whoever
 * asked for it has been answered in any case. */
void gateway_await(struct gateway_route *r, struct str request_id,
                   void (*done)(void *ctx, bool late), void *ctx);
void gateway_await_stop(struct gateway *g);

/* ---- gateway_upstream.c ---- */

/* What a source failed with whose message this was; 0: it is not known. */
int gateway_notice_err(struct str notice);

/* ---- gateway_forward_http.c: an answer that is not recorded ---- */

struct forward;

/* As recorder_event: 1 if it was taken, 0 if no more should come before generation_resume. */
int forward_event(struct forward *f, struct str type, struct str data);
/* False: it was not taken; again after generation_resume. */
bool forward_data(struct forward *f, struct str data);
/* That is all, and the forward goes by itself. How events ended is told; data that has not
 * completed is cut off. */
void forward_end(struct forward *f, enum end_reason end, struct str message);

/* ---- gateway_pass_http.c ---- */

void gateway_pass_stop(struct gateway *g);

/* ---- gateway_whole_http.c ---- */

void gateway_whole_stop(struct gateway *g);

/* ---- gateway_snapshot.c ---- */

/* Reads the snapshot of an ended generation. */
struct snapshot_lookup {
    struct store_read read;
    struct gateway *gateway;
    struct arena arena;
    struct buf payload; /* out: JSON; n == 0: there is none. Freed with snapshot_lookup_free. */
    enum end_reason end;
    void (*done)(struct snapshot_lookup *l);
    void *ctx;
};
struct snapshot_lookup *snapshot_lookup_new(struct gateway_route *r, struct str request_id,
                                            void (*done)(struct snapshot_lookup *l), void *ctx);
void snapshot_lookup_free(struct snapshot_lookup *l); /* in done() or later */

#endif
