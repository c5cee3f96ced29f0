// SPDX-License-Identifier: Apache-2.0
/* gateway_core.h -- what the parts of the gateway share. */
#ifndef FEATURE_GATEWAY_GATEWAY_CORE_H
#define FEATURE_GATEWAY_GATEWAY_CORE_H

#include "base/list.h"
#include "base/map.h"
#include "base/sched.h"
#include "stream/instances.h"
#include "stream/quota.h"
#include "http/exchange.h"
#include "feature/gateway/route_config.h"
#include "store/store.h"
#include "feature/gateway/gateway.h"
#include "feature/gateway/gateway_events.h"
#include "feature/gateway/gateway_source.h"
#include "token/resume.h"

#define REQUEST_ID_TEXT 36 /* a UUID */

struct gateway_route {
    struct gateway *gateway;
    const struct route_config *config;
    struct source_kind source;
    struct str path;
    struct quota quota;
    struct gauge *running;                           /* generations */
    struct counter *refused_rate, *refused_parallel; /* requests beyond the route's limits */
    struct route_config *local; /* what config points to, if it is no setting; NULL: it is */
};

struct gateway {
    struct gateway_setup setup;
    struct gateway_route **routes;
    size_t n_routes;
    struct metric_family *running_family; /* gauges, by route */
    struct metric_family *refused_family; /* counters, by route and limit */
    struct metric_family *failed_family;  /* of upstreams; counters, by route and reason */
    struct resume_keys keys;
    struct gateway_events events;
    struct map running; /* of struct generation, by request id */
    struct map chats;   /* of the same, by route and chat; see gateway_generation.c */
    struct timer sweep; /* of keys whose time is over */
    struct instance_heir heir;
    unsigned leftovers;       /* beats until they are looked for; 0: there should be none */
    struct link inheritances; /* under way */
    struct link awaits;       /* of gateway_await.c */
    struct link wholes;       /* of gateway_whole_http.c */
    bool failing, probing;    /* the store took no stream lately; one is tried all the same */
    uint64_t failed_ms;       /* when it last did not */
    uint32_t background;      /* operations of the store under way that come back here */
    bool draining;
    struct task drain;
    void (*drained)(void *ctx); /* NULL: it has been told, or nobody asked */
    void *drained_ctx;
    bool stopping;
    struct task stop;
    void (*stopped)(void *ctx);
    void *stopped_ctx;
};

/* In the arena: the name of a generation's stream, or with a suffix behind it. */
struct str gateway_stream(struct arena *a, const struct gateway_route *r, struct str request_id,
                          const char *suffix);

/* How long a generation's stream outlives its last event. */
int64_t gateway_ttl_s(const struct route_config *c);

/* It ended without an answer, through no wish of its client's. */
static inline bool gateway_came_to_nothing(enum end_reason end)
{
    return end == END_FAILED || end == END_ORPHANED;
}

/* A text that can be one of our request ids. */
bool gateway_is_request_id(struct str text);

/* An error in the form that the route's clients know. details: JSON text; n == 0: none. */
void gateway_error(const struct gateway_route *r, struct exchange *x, int status, struct str code,
                   struct str message, struct str details);
/* The same, of the table of errors. */
void gateway_refuse(const struct gateway_route *r, struct exchange *x, int err);
/* The same: what is new is not begun any more. */
void gateway_refuse_draining(const struct gateway_route *r, struct exchange *x);
/* The same, of a generation that came to nothing: no event of it was recorded. err: of its source;
 * 0: it is not known. */
void gateway_send_failure(const struct gateway_route *r, struct exchange *x, struct str request_id,
                          enum end_reason end, int err, struct str message);

/* Who is counted, and whose keys and chats are told apart: a caller known here, or else by what it
 * shows the upstream. Lives as long as the request. */
struct str gateway_caller(const struct gateway_route *r, struct exchange *x);

/* `{"request_id":..,"status":..}`. */
void gateway_send_status(struct exchange *x, struct str request_id, enum end_reason end);

/* Around each operation of the store whose end needs the gateway: stopping waits for it, also where
 * the exchange that it was for is over. */
void gateway_begin(struct gateway *g);
void gateway_end(struct gateway *g); /* the last thing that it does */

void gateway_check_stopped(struct gateway *g);

/* ---- gateway_http.c: what comes in ---- */

void gateway_mount(struct gateway_route *r);

/* ---- gateway_start_http.c: POST PATH ---- */

void gateway_start(struct gateway_route *r, struct exchange *x);

/* Counts a request of its caller; false: one too many, and it has been answered. */
bool gateway_within_quota(struct gateway_route *r, struct exchange *x);

/* What a key's document says; a chat's has no fingerprint. */
struct gateway_key {
    struct str request_id, fingerprint;
    int64_t expires_ms;
};
void gateway_key_put(struct buf *out, const struct gateway_key *k);
int gateway_key_take(struct str bytes, struct gateway_key *k); /* ERR_CORRUPT */

/* Forgets keys and chats whose time is over. */
#define GATEWAY_KEYS  "gateway-key/"
#define GATEWAY_CHATS "gateway-chat/"
void gateway_sweep_keys(struct gateway *g);

/* ---- gateway_generation.c ---- */

struct generation;

/* The exchange asks for a new one; its body is given. It is answered from here: as a reader, or
 * with what the upstream says instead of events. docs: the key, written with the stream. taken():
 * somebody else has put another version of the key meanwhile; NULL without docs. */
struct generation_order {
    struct gateway_route *route;
    struct exchange *x;
    struct str body;
    bool whole; /* it is answered when all is there, as gateway_read_whole does */
    const struct doc_put *docs;
    size_t n_docs;
    char request_id[REQUEST_ID_TEXT];
    void (*taken)(struct generation_order *o);
};
void generation_start(struct generation_order *o);

/* Of this route, under way; NULL: there is none. */
struct generation *generation_find(struct gateway_route *r, struct str request_id);

/* The id of the one of a chat, in the arena. n == 0: none is under way here, but those that other
 * processes were told of. */
struct str generation_of_chat(struct gateway *g, struct arena *a, struct str key);

/* What has been folded so far, and the number of the last event in it. */
int generation_snapshot(const struct generation *gen, struct buf *out, uint64_t *seq);

/* Keeps who wants to read a generation that cannot be read yet: gateway_read comes when it can, or
 * it is refused with whoever asked for it. False: there is nothing to wait for here. */
struct read_order;
bool generation_keep_waiting(struct read_order *o);

/* A reader that was there from its beginning has a place of its own, or will not come. */
void generation_let_go(struct generation *gen);

/* Ends it as cancelled; the exchange is answered when that is durable. */
void generation_cancel(struct generation *gen, struct exchange *x);

/* Ends all of a route; NULL: of all routes. */
void generations_orphan(struct gateway *g, const struct gateway_route *r);

/* How chats are told apart: by route and caller. */
struct str generation_chat_key(struct arena *a, const struct gateway_route *r, struct str caller,
                               struct str chat);

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

/* The generation under way of a chat, by its key; found() with no request id: there is none. An
 * error has been answered. */
void presence_find_chat(struct gateway_route *r, struct exchange *x, struct str chat,
                        void (*found)(struct gateway_route *r, struct exchange *x,
                                      struct str request_id));

/* A stream may have been made that nobody runs: it is looked for soon. */
void gateway_look_for_leftovers(struct gateway *g);

void gateway_presence_init(struct gateway *g);
void gateway_presence_stop(struct gateway *g);

/* ---- gateway_forward_http.c: an answer that is not recorded ---- */

struct forward;

/* Called from the exchange, never from within the functions below. */
struct forward_ops {
    void (*room)(void *ctx); /* forward_event said to wait, and need not any more */
    void (*gone)(void *ctx); /* the client; the forward is gone as well */
};

/* Begins to answer with events; takes over what holds the exchange. NULL: the client has gone. */
struct forward *forward_new(struct gateway_route *r, struct exchange *x, struct str request_id,
                            const struct forward_ops *ops, void *ctx);
/* 1: taken. 0: taken, and no more should come before room(). */
int forward_event(struct forward *f, struct str type, struct str data);
/* That is all; how it ended is told. It goes by itself. */
void forward_end(struct forward *f, enum end_reason end, struct str message);

/* Says that an answer cannot be resumed. */
void gateway_put_degraded(struct exchange *x);

/* ---- gateway_read_http.c: readers of a generation ---- */

struct read_order {
    struct gateway_route *route;
    struct exchange *x; /* held until it has been answered */
    struct str request_id;
    uint64_t seq;        /* the reader has events up to this one */
    bool from_snapshot;  /* what came before is told by a snapshot */
    bool replay_only;    /* ... and nothing waited for */
    bool resumes;        /* by a token: ends with `complete` */
    bool polite;         /* an EventSource: 204 when nothing will come any more */
    bool whole;          /* of these nothing counts: gateway_read_whole */
    bool waits;          /* until there is an event, so that a failure has a status of its own */
    bool waited;         /* ... and it did */
    bool surplus;        /* ... with too many others for all of them to ask, one by one */
    struct link link;    /* where it waits */
    bool starts;         /* there from the beginning, which the generation keeps until it reads */
    uint64_t started_ms; /* when it was asked for, with resumes */
    /* There is no such stream any more. */
    void (*missing)(struct read_order *o);
};

/* In the arena of its exchange. */
void gateway_read(struct read_order *o);

/* ---- gateway_await.c: readers of what another process has just begun ----
 *
 * Comes back with gateway_read when an event of it is there, when it is over, or when whoever asked
 * for it has been answered in any case. */
void gateway_await(struct read_order *o);
void gateway_await_stop(struct gateway *g);

/* ---- gateway_whole_http.c: those who want no events ----
 *
 * Waits until the generation has ended and answers with its snapshot, as JSON; what did not
 * complete is an error as OpenAI's API has them. Of the order route, x and request_id count. */
void gateway_read_whole(struct read_order *o);
void gateway_whole_stop(struct gateway *g);

/* ---- gateway_read_http.c: snapshots ---- */

/* Reads the snapshot of an ended generation. */
struct snapshot_look {
    struct store_read read;
    struct gateway *gateway;
    struct arena arena;
    struct buf payload; /* out: JSON; n == 0: there is none. Freed with snapshot_look_free. */
    enum end_reason end;
    void (*done)(struct snapshot_look *l);
    void *ctx;
};
struct snapshot_look *snapshot_look_new(struct gateway_route *r, struct str request_id,
                                        void (*done)(struct snapshot_look *l), void *ctx);
void snapshot_look_free(struct snapshot_look *l); /* in done() or later */

/* Answers with the snapshot alone, and how it ended. */
void gateway_send_snapshot(struct gateway_route *r, struct exchange *x, struct str request_id,
                           const struct snapshot_look *l);

/* How an end is told; notice: in words of the upstream's, if there are any. */
struct str gateway_end_message(enum end_reason end, struct str notice);

/* Headers that every event stream of a route has. */
void gateway_event_stream(struct gateway_route *r, struct exchange *x, struct str request_id);

/* ---- gateway_resume_http.c: POST PATH/resume ---- */

void gateway_resume(struct gateway_route *r, struct exchange *x);

/* Last-Event-ID as a number: 0 if it is not there or none of ours. */
uint64_t gateway_last_event_id(const struct exchange *x);

#endif
