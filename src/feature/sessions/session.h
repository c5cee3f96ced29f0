// SPDX-License-Identifier: Apache-2.0
/* session.h -- two-way streams that survive any drop. See docs/protocols/sessions.md.
 *
 * A session is two streams, `sessions/KEY/in` and `sessions/KEY/out`, and a document that says by
 * which key they are sealed (session_seal.h) and how far the backend has got. KEY is the client's
 * idempotency key. What a client sends is acknowledged when it is durable, and given to the backend
 * once, in order of arrival; what the backend answers is numbered from 1, made durable, and then
 * sent, to whichever connection is the session's newest.
 *
 * Loop thread only. No callback comes from within the call that leads to it, unless said. */
#ifndef FEATURE_SESSIONS_SESSION_H
#define FEATURE_SESSIONS_SESSION_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/sched.h"
#include "base/str.h"
#include "feature/sessions/session_messages.h"
#include "feature/sessions/session_seal.h"
#include "store/store.h"

struct feeds;
struct instances;
struct principal;
struct session;
struct session_view_ops;
struct sessions;
struct trace;

#define SESSION_PREFIX      "sessions/"
#define SESSION_KEY_MAX     200 /* bytes of an idempotency key: visible ASCII without `/` and `%` */
#define SESSION_UPSTREAM_ID 255 /* bytes of the id that a backend gives an event */

bool session_key_valid(struct str key);

/* The key of somebody who has a root, as it is stored: `t/1/` and KEY is `t%1%KEY`, which no other
 * key can be. And as he sees it. */
struct str session_key_rooted(const struct principal *p, struct arena *a, struct str key);
struct str session_key_unrooted(const struct principal *p, struct str key);

/* ---- the backend ---- */

/* One chunk that is being answered. The backend keeps the pointer from start() until it calls
 * session_reply_end or stop() is called. */
struct session_reply {
    struct session *session;
    struct str key; /* the session's */
    enum session_service service;
    uint32_t seqno;
    struct str chunk; /* as it came */
    /* Whether an earlier attempt, which a crash has ended, left events of this answer; and the id
     * that the backend gave the last of them (n == 0: none). */
    bool begun;
    struct str last_id;
    void *state; /* the backend's */
};

struct session_backend {
    void (*start)(void *ctx, struct session_reply *reply);
    /* The session was aborted, or the server is stopping: the reply is not the backend's any more.
     */
    void (*stop)(void *ctx, struct session_reply *reply);
    /* session_reply_event said to wait, and need not any more. */
    void (*room)(void *ctx, struct session_reply *reply);
    void *ctx;
};

/* One event of the answer, copied. id: what the backend calls it, for continuing behind it; n == 0:
 * nothing. 1: taken. 0: taken, and no more should come before room(). Otherwise it was not taken:
 * ERR_SYNTAX (is_text is false and it is no such message), ERR_TOO_LARGE, ERR_LIMIT (the session
 * holds as much as it may). */
int session_reply_event(struct session_reply *reply, struct str content, bool is_text,
                        struct str id);

/* The answer is complete (END_COMPLETED), or there will be none (END_FAILED: the whole session ends
 * so, and message, a sentence, is told to its client). The reply is gone. */
void session_reply_end(struct session_reply *reply, enum end_reason end, struct str message);

/* Answers each chunk with its own text. */
extern const struct session_backend session_echo;

/* ---- all sessions ---- */

/* Kept by reference. */
struct sessions_setup {
    struct sched *sched;
    struct store *store;
    struct feeds *feeds;
    const struct instances *instances; /* NULL: the store is ours alone */
    const struct trace *trace;
    /* NULL: workers read `in` and write `out` (session_view.h). */
    const struct session_backend *backend;
    uint64_t lifetime_ms; /* behind the last activity */
    uint64_t key_hold_ms; /* a worker's: how long a key is kept when its client has gone */
    uint64_t max_open;    /* sessions in memory; more run degraded */
    uint64_t max_bytes;   /* of one session's stream */
};

struct sessions *sessions_new(const struct sessions_setup *setup);

/* Clients are told to come back, and nothing new begins. */
void sessions_drain(struct sessions *all);

/* No client is left. Backends are stopped. stopped() comes from the schedule; sessions_free is due
 * then. */
void sessions_stop(struct sessions *all, void (*stopped)(void *ctx), void *ctx);
void sessions_free(struct sessions *all); /* NULL is allowed */

/* For metrics: those in memory; those that ever ran degraded. */
uint64_t sessions_open(const struct sessions *all);
uint64_t sessions_degraded(const struct sessions *all);

/* For the workers' view; its ctx is the struct sessions. */
extern const struct session_view_ops sessions_view_ops;

/* ---- clients ---- */

/* Why a client's connection to its session is over. */
enum session_over {
    SESSION_ENDED,        /* the session has ended: `end` says how, `message` maybe why */
    SESSION_IDLE,         /* the client sends no more, and has been told all there is */
    SESSION_REPLACED,     /* a newer connection has the session now, maybe to another process */
    SESSION_WRONG_SECRET, /* of a session that exists, or existed */
    SESSION_UNKNOWN,      /* it names a position, but there is no such session */
    SESSION_EXPIRED,      /* there was one, longer ago than a session lasts */
    SESSION_GAP,          /* `position` can no longer be read, or never could */
    SESSION_MALFORMED,    /* a message that is none; `message` says what is wrong */
    SESSION_BUSY,         /* too many sessions, even for degraded ones, or too much that waits to be
                             written; come back later */
    SESSION_FAILED,       /* the store does not work at present: `err`; come back later */
    SESSION_DRAINING,     /* the server is being stopped; come back later */
};

struct session_client;

struct session_client_ops {
    /* session_next has something, or session_room is true again. */
    void (*ready)(struct session_client *c);
    /* Messages were settled: session_settled has grown. May be NULL. */
    void (*settled)(struct session_client *c);
};

/* Embedded by the HTTP interface. All but `ops` is private or out. */
struct session_client {
    const struct session_client_ops *ops;
    struct session *session; /* private, as what follows up to `over` */
    struct session_visit *visit;
    uint64_t given; /* out: events that session_next has given so far */
    /* out, with NEXT_OVER */
    enum session_over over;
    enum end_reason end;
    bool aborted; /* with END_CANCELLED: it was this client that did it */
    int err;
    struct str message; /* lent until session_disconnect; may be empty */
    uint64_t earliest;  /* with SESSION_GAP: the first event that is there */
    uint64_t latest;    /* ... and the last */
};

/* Lent for the call. */
struct session_hello {
    struct str key;        /* valid */
    const uint8_t *secret; /* SESSION_SECRET_SIZE bytes */
    uint64_t position;     /* the client has events up to this one */
    enum session_service service;
};

/* Finds or creates the session and makes this its connection; an older one is over. c: zeroed but
 * for ops. Everything else is told by session_next. */
void session_connect(struct sessions *all, struct session_client *c,
                     const struct session_hello *hello);

/* The connection is gone, whether it was over or not. Twice is fine. */
void session_disconnect(struct session_client *c);

/* A message that the client sent, lent for the call. What is wrong with it is told by session_next.
 * May be said at any time after session_connect. */
void session_receive(struct session_client *c, struct str message);

/* Is there room for more to be said? Otherwise ready() tells when. */
bool session_room(const struct session_client *c);

/* How many of the messages said are durable, or need not be. In the order in which they were said.
 */
uint64_t session_settled(const struct session_client *c);

/* The client sends no more: when all it said is answered, it is over (SESSION_IDLE). With workers,
 * who alone know that, the end of the session is waited for. */
void session_half_close(struct session_client *c);

enum session_next {
    SESSION_NEXT_MESSAGE, /* a response message was appended to *out */
    SESSION_NEXT_WAIT,    /* ready() will be called */
    SESSION_NEXT_OVER,    /* c->over says why */
};
enum session_next session_next(struct session_client *c, struct buf *out);

/* ---- looking from outside: no payloads, no keys ---- */

struct session_row {
    struct str key;
    enum session_service service;
    int64_t created_ms;
    uint64_t answered;          /* `in` records that the backend is done with */
    struct stream_info in, out; /* of show */
    bool expired;
    bool connected, key_held;
};

/* Keys in byte order. One whose document cannot be read is left out, so a page may have fewer rows
 * than the limit, or none, although there are more. */
struct sessions_list {
    struct sessions *all;
    struct str prefix, after;
    size_t limit;
    struct session_row *rows; /* out, lent until done() returns; without streams' infos */
    size_t n_rows;
    bool more;
    struct str next; /* with more: what `after` is for the next page; lent as the rows are */
    void (*done)(struct sessions_list *l, int err);
    struct store_docs docs; /* private, as what follows */
    struct arena arena;
};
void sessions_list(struct sessions_list *l);

/* ERR_NOT_FOUND. */
struct sessions_show {
    struct sessions *all;
    struct str key;
    struct session_row row; /* out, lent until done() returns */
    void (*done)(struct sessions_show *s, int err);
    struct store_docs docs; /* private, as what follows */
    struct store_stat in, out;
    struct arena arena;
};
void sessions_show(struct sessions_show *s);

#endif
