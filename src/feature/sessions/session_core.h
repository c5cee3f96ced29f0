// SPDX-License-Identifier: Apache-2.0
/* session_core.h -- what the parts of the sessions share.
 *
 *     session.c         sessions in memory: found, kept, evicted
 *     session_open.c    the document and the two streams: created, or read back
 *     session_own.c     which of several processes has a session
 *     session_client.c, session_say.c, session_next.c  one client's connection
 *     session_write.c   what goes into the two streams
 *     session_reply.c     chunks given to the backend, and its answers
 *     session_doc.c     the document's format
 *     session_list.c    looking at sessions, and sweeping up behind those that are over
 *
 * The store holds the truth; a session in memory is a copy of it that is right as long as nobody
 * else writes its streams, which every write checks (If-Match). When one fails the copy is thrown
 * away, clients come back, and it is read anew. */
#ifndef FEATURE_SESSIONS_SESSION_CORE_H
#define FEATURE_SESSIONS_SESSION_CORE_H

#include "base/gate.h"
#include "base/list.h"
#include "base/map.h"
#include "base/ranges.h"
#include "feature/sessions/session.h"
#include "feature/sessions/session_doc.h"
#include "stream/subscriber.h"
#include "stream/writer.h"

#define SESSION_CONTENT_TYPE "application/x-tidemark-session"
#define SESSION_PENDING_MAX  (256 * 1024)        /* bytes that wait to be written, each way */
#define SESSION_SAID_MAX     (128 * 1024 * 1024) /* bytes that clients said and that wait, of all */
#define SESSION_ACKS_MAX     1024                /* that wait for their client */
#define SESSION_RANGES_MAX   4096                /* of seqnos, with gaps between them */
#define SESSION_CONTENT_MAX  (16 * 1024 * 1024)
#define SESSION_KEEP_MAX     (16 * 1024) /* of a buffer between one use and the next */

/* Where sessions are kept: the server's store, or memory for those that run degraded. */
struct session_home {
    struct store *store;
    struct feeds *feeds;
};

struct sessions {
    struct sessions_setup setup;
    struct session_home durable, degraded;
    struct feeds degraded_feeds;
    struct map by_key; /* of struct session */
    struct link open;  /* the same, but for those that were told of the drain */
    struct link told;  /* those */
    struct task end;   /* tells or kills some of `open`, until there are none */
    struct link idle;  /* those that nobody needs now; the longest idle first */
    struct link dying; /* those that are dead, with operations under way */
    uint64_t visits;   /* so far */
    uint64_t n;        /* sessions, those that are dead but not freed yet included */
    uint64_t n_degraded;
    uint64_t n_degraded_ever;
    size_t said;           /* bytes that clients said, not written yet */
    struct gate under_way; /* sessions, and operations of the store that belong to none */
    struct session_sweep *sweep;
    bool failed; /* the store took nothing lately: who comes now runs degraded */
    enum { SESSIONS_OPEN, SESSIONS_DRAINING, SESSIONS_STOPPING } phase;
};

/* One stream, and what waits to be written to it. */
struct session_stream {
    struct session *session;
    enum session_direction direction;
    struct str name;
    uint64_t life, tail, events; /* durable, as far as we know */
    uint64_t bytes;              /* the same; no position is a number of bytes */
    struct link queue;           /* of struct session_write */
    struct session_write *going; /* its first, under way */
    size_t pending;              /* bytes of contents in the queue */
    struct task flush;
    struct writer writer;    /* of `going` */
    struct store_read touch; /* so that the stream lasts as long as the session does, */
    bool touching;           /* under way */
};

/* One write of a stream. Its contents are sealed when its turn has come, since only then their
 * ordinals are known. */
struct session_write {
    struct link link;
    struct session *session;
    struct session_stream *lane;
    struct buf contents; /* struct session_content and bytes, one behind the other */
    uint32_t n;
    struct ranges seqnos; /* of `in`: of its chunks */
    struct buf again;     /* of `in`: seqnos that came once more meanwhile, uint32_t */
    uint64_t by, said; /* of `in`: which visit said the last of it, and how much it had said then */
    struct buf sealed, ends;
    struct store_write *asked; /* a worker's, with its preconditions; NULL: our own */
    struct buf doc;            /* as it will be */
    struct doc_put doc_put;
    bool sets_answered;
    uint64_t answered;
    bool close;
    enum end_reason end;
    uint8_t mac[SESSION_MAC_SIZE]; /* behind it */
};

struct session_content {
    enum session_record_type type;
    bool is_text;
    uint8_t n_id;
    uint32_t n;
    uint64_t a;
};

/* Four machines, each drawn where it is driven: the life of the copy in memory (session.c), whose
 * it is (session_own.c), what the backend has of it (session_reply.c), and the end of `out`
 * (session_write.c). */

enum session_state {
    SESSION_STATE_QUEUED,  /* behind another one of its name that is dying */
    SESSION_STATE_LOADING, /* read or created */
    SESSION_STATE_BUSY,    /* open, and somebody or something needs it */
    SESSION_STATE_IDLE,    /* open */
    SESSION_STATE_DYING,   /* not in the map any more; freed when its operations are over */
};

enum session_own {
    SESSION_OWN_UNWATCHED, /* nobody can take it away, or it is not known whether */
    SESSION_OWN_SURE,
    SESSION_OWN_DOUBTED, /* somebody may have taken it away */
    SESSION_OWN_LOOKING,
    SESSION_OWN_LOOKING_DOUBTED, /* and what the look will find may be old already */
};

enum session_reply_state {
    SESSION_REPLY_NONE,
    SESSION_REPLY_READING, /* what is next is read back from `in` */
    SESSION_REPLY_ACTIVE,  /* the backend has it */
    SESSION_REPLY_FULL,    /* the same, and was told that there is no room */
};

enum session_out_state { SESSION_OUT_OPEN, SESSION_OUT_ENDING, SESSION_OUT_ENDED };

struct session {
    struct sessions *all;
    struct session_home *home;
    struct link link;        /* of those in the map */
    struct link idle_link;   /* or among the dying */
    struct timer idle_timer; /* idle: when to evict. Otherwise: when to touch the streams */
    uint64_t left_ms;        /* when its last client went away */
    uint64_t written_ms;     /* when something last became durable */
    enum session_state state;
    uint32_t operations; /* of the store, under way */
    struct task reap;
    bool crowded; /* there was no room for it: it runs degraded or not at all */

    struct session_doc doc;
    uint64_t doc_version;
    struct session_keys *keys; /* NULL: not held */

    struct session_stream in, out;
    uint64_t in_queued;            /* events of `in`, those that wait included */
    struct ranges seen;            /* seqnos in `in`, those that wait included */
    bool closed, aborted;          /* such a record is in `in`, or waits; there may be both */
    uint8_t mac[SESSION_MAC_SIZE]; /* of the last event */
    enum session_out_state out_state;
    enum end_reason end; /* with SESSION_OUT_ENDED */
    struct buf message;  /* with END_FAILED */

    struct link waiting; /* visits that are not admitted yet */
    struct task admit;
    struct session_visit *visit; /* the newest that was */
    uint64_t shown; /* events that clients have; `out` may not have been told of the last yet */

    uint64_t next; /* ordinal of the `in` record that the backend gets next */
    enum session_reply_state reply_state;
    struct session_reply reply;
    struct buf chunk, last_id; /* of the reply */
    bool answer_begun;         /* events of an answer are there that is not complete */
    struct store_read reply_read;

    enum session_own own;
    struct store_watch watch;
    struct store_stat stat; /* a look */
    uint64_t stat_tail;     /* ours when it began */
    struct store_docs check;
    bool checking; /* for visits that wait: is it still ours? */

    struct str key, doc_key;
    struct buf names; /* these, and the streams' */
};

/* ---- session.c ---- */

static inline bool session_is_open(const struct session *s)
{
    return s->state == SESSION_STATE_BUSY || s->state == SESSION_STATE_IDLE;
}
static inline bool session_is_degraded(const struct session *s)
{
    return s->home == &s->all->degraded;
}

struct session *session_find(struct sessions *all, struct str key);
/* Is there a dead one of this name whose last operations are under way? */
bool session_is_dying(const struct sessions *all, struct str key);

/* The same; if there is none, a new one in the map, which session_load is due for. */
struct session *session_find_or_create(struct sessions *all, struct str key);

/* Every operation of the store that comes back to the session is between these two. A session is
 * freed from the schedule alone, so that nobody finds it gone in the middle of something. */
void session_hold(struct session *s);
void session_release(struct session *s);

/* It may have become idle, or busy. */
void session_settle(struct session *s);

/* A buffer is done with for now. One large message does not cost its memory for hours. */
void session_buf_rest(struct buf *b);

/* Its copy in memory is not to be trusted, or not to be had: all clients are over. */
void session_kill(struct session *s, enum session_over over, int err);

/* The server's store does not take it: it goes on in memory. False: it cannot, for workers would
 * not find it there or there are too many already. */
bool session_degrade(struct session *s);

/* ---- session_open.c ---- */

/* If another of its name is dying, it is called again when that is over. */
void session_load(struct session *s);

/* Asks for its document; done() is given what session_doc_found takes. */
void session_doc_ask(const struct session *s, struct store_docs *d,
                     void (*done)(struct store_docs *d, int err));
/* 0, ERR_NOT_FOUND, or what is wrong. */
int session_doc_found(const struct store_docs *d, int err, struct session_doc *out);

/* A stream of it is not there any more, or not what it was. */
bool session_is_gone(int err);

/* Each record of a read, in order. Not 0: stops, and is returned. */
typedef int session_record_fn(void *ctx, const struct session_record *r);
int session_each_record(const struct slice *slices, size_t n, void *ctx, session_record_fn *fn);

/* ---- session_own.c ---- */

/* Several processes share the store, and this session is not degraded. */
bool session_is_shared(const struct session *s);
/* By the document, as far as we know: it has to be taken over first. */
bool session_is_anothers(const struct session *s);

/* From before it is read until it dies: whether another process takes it over. */
void session_own_watch(struct session *s);
void session_own_unwatch(struct session *s);
/* It was: the connection it had is replaced. Visits that wait may be newer than that, and are to
 * come back. */
void session_taken(struct session *s);
/* Something may have happened to `in`, and no write of ours is under way there. */
void session_own_look(struct session *s);

/* Admits the visits that wait if the session is still ours. */
void session_own_admit(struct session *s);

/* ---- session_client.c ---- */

/* The session is open: admits the visits that wait. */
void session_admit(struct session *s);

/* While it is looked for. Visits that wait with a wrong secret are over; the keys of a right one
 * are the session's from now on. */
void session_check_waiting(struct session *s);
/* There is no such session: visits that wait with a position are over. */
void session_refuse_positions(struct session *s);
/* The first visit that waits; there is one. */
const struct session_visit *session_waiting_first(const struct session *s);
const uint8_t *session_visit_secret(const struct session_visit *v);
enum session_service session_visit_service(const struct session_visit *v);

/* Of all who are connected or wait. */
void session_visits_over(struct session *s, enum session_over over, int err);

/* The number of the visit and how much it has said; and that all of that is written. */
uint64_t session_visit_no(const struct session *s);
uint64_t session_received(const struct session *s);
void session_notify_settled(struct session *s, uint64_t by, uint64_t said);

/* The client is told of a chunk that is durable, if there is one. */
void session_notify_ack(struct session *s, uint32_t seqno);
/* Something that a client may wait for has happened. */
void session_wake(struct session *s);

/* ---- session_write.c ---- */

void session_stream_init(struct session_stream *l, struct session *s, enum session_direction d,
                         struct str name);
void session_stream_deinit(struct session_stream *l, int err);

/* Puts a record of the client's at the end of `in`. */
void session_put_in(struct session *s, enum session_record_type type, uint32_t seqno,
                    struct str content);
/* A seqno that was there before: it is acknowledged again, when it is durable. */
void session_put_again(struct session *s, uint32_t seqno);

/* Puts an event at the end of `out`. */
void session_put_out(struct session *s, struct str content, bool is_text, struct str id,
                     uint64_t in_ordinal);
void session_put_answered(struct session *s, uint64_t answered);
void session_put_end(struct session *s, enum end_reason end, struct str message);
/* As the store says; END_NONE: it goes on. */
void session_set_end(struct session *s, enum end_reason end);

/* ---- session_reply.c ---- */

/* Gives the backend what comes next, if it is free. */
void session_pump(struct session *s);
/* A record of `in` is durable: the backend gets it now if it is next and the backend free, and
 * otherwise when its turn comes, read back. */
void session_reply_offer(struct session *s, uint64_t ordinal, enum session_record_type type,
                         uint64_t a, struct str content);
void session_reply_stop(struct session *s);
void session_reply_room(struct session *s);
/* All that the client said is answered, and written. */
bool session_is_answered(const struct session *s);

/* ---- session_list.c ---- */

void session_sweep_start(struct sessions *all);
void session_sweep_stop(struct sessions *all); /* what is under way is in the background */
void session_sweep_free(struct sessions *all);

#endif
