/* SPDX-License-Identifier: Apache-2.0 */
/* tidemark.h -- streams and sessions that survive, from C, and cursors. See docs/client.md.
 *
 * Streams work with any server of the Durable Streams protocol; sessions with tidemark.
 *
 * Nothing happens behind the caller's back: no threads, no signals, no globals, no abort. A client
 * and all that was made from it belong to one thread at a time; two clients may be used by two
 * threads. All work is done by tm_turn, which never waits (but for the look-up of the server's name
 * before a connection, where it is not an address), and by what is built on it:
 *
 *   blocking    tm_wait(client, 1000), or a call that takes a timeout_ms, turns until something has
 *               happened or the time is over.
 *   own loop    poll the descriptors of tm_descriptors until tm_deadline_ms, then tm_turn.
 *
 * Functions that can fail return 0 (or what they say) or a negative TM_E_ code; tm_error gives the
 * sentence for people. Out of memory is an error like any other (TM_E_NOMEM): the call has had no
 * effect, and may be made again.
 *
 * Texts and bytes that are handed out live until the next call on the object that gave them, unless
 * it says otherwise. What is handed in is copied. A timeout_ms of 0 does not wait; TM_FOREVER does
 * not end.
 *
 * Structs of options begin with their size, so that a program built with an older header goes on
 * working: set them up with their _INIT. struct tm_result is only ever looked at where the library
 * keeps it, and may grow at its end. */
#ifndef TIDEMARK_H
#define TIDEMARK_H

#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

#if !defined(TM_API)
#define TM_API __attribute__((visibility("default")))
#endif

/* What an _INIT is made of: all zero but for the size. */
#if defined(__cplusplus)
extern "C++" {
template <class T> inline T tm_sized()
{
    T t = T();
    t.size = sizeof(T);
    return t;
}
}
#define TM_SIZED(type) tm_sized<type>()
#else
#define TM_SIZED(type)                                                                             \
    {                                                                                              \
        .size = sizeof(struct type)                                                                \
    }
#endif

#define TM_ABI       1 /* goes up when something that was here is not any more */
#define TM_FOREVER   (-1)
#define TM_UNBOUNDED 0x7fffffff

TM_API int tm_abi(void);             /* of the library that is loaded */
TM_API const char *tm_version(void); /* "1.2.3" */

/* ---- errors ---- */

#define TM_ERRORS(X)                                                                               \
    X(NOMEM, -1, "out of memory")                                                                  \
    X(INVALID, -2, "an argument is not valid")                                                     \
    X(TIMEOUT, -3, "timed out")                                                                    \
    X(NETWORK, -4, "the server could not be reached, or the connection was lost")                  \
    X(TLS, -5, "no secure connection could be made")                                               \
    X(PROTOCOL, -6, "the server's answer could not be understood")                                 \
    X(NOT_FOUND, -7, "there is no such stream")                                                    \
    X(EXISTS, -8, "the stream exists with another configuration")                                  \
    X(CLOSED, -9, "the stream is closed")                                                          \
    X(GAP, -10, "this position can no longer be read")                                             \
    X(OFFSET, -11, "this is not an offset of this stream")                                         \
    X(CONFLICT, -12, "the request conflicts with what is there")                                   \
    X(FENCED, -13, "a newer producer holds this stream")                                           \
    X(DENIED, -14, "the server does not allow this")                                               \
    X(TOO_LARGE, -15, "larger than the limit")                                                     \
    X(BUSY, -16, "overloaded; retry later")                                                        \
    X(REFUSED, -17, "the server refused the request")                                              \
    X(IO, -18, "a file could not be read or written")                                              \
    X(TAMPERED, -19, "saved state or a server event is not what was written")                      \
    X(REPLACED, -20, "another connection has taken over this session")                             \
    X(FAILED, -21, "the session ended because its backend failed")                                 \
    X(CANCELLED, -22, "it was stopped")                                                            \
    X(EXPIRED, -23, "it was too long ago")

enum tm_error {
#define X(name, code, text) TM_E_##name = code,
    TM_ERRORS(X)
#undef X
};

TM_API const char *tm_error_text(int err); /* the sentence of the table; static */

/* ---- clients ---- */

struct tm_client;

/* alloc: as realloc (p NULL: new), never of n == 0. NULL stands for failure. free: of NULL too. */
struct tm_allocator {
    void *ctx;
    void *(*alloc)(void *ctx, void *p, size_t n);
    void (*free)(void *ctx, void *p);
};

enum tm_http {
    TM_HTTP_AUTO, /* sessions HTTP/2, the rest HTTP/1.1; sessions fall back when HTTP/2 is refused
                   */
    TM_HTTP_1,
    TM_HTTP_2,
};

struct tm_request; /* see tm_options.prepare */

struct tm_options {
    size_t size;
    const char *server;  /* http(s)://HOST[:PORT][/PREFIX] or unix:PATH */
    const char *token;   /* of Authorization: Bearer; NULL: none */
    const char *ca_file; /* PEM, to trust instead of the system's; NULL: the system's */
    /* What the paths of streams begin with; NULL: /v1/stream/. Other servers have others. */
    const char *stream_path;
    enum tm_http http;
    int connect_timeout_ms; /* 10,000; 0 stands for the default, here and below */
    int request_timeout_ms; /* 30,000: an answer under way that brings nothing for so long */
    /* 90,000: the same of a live one; heartbeats come more often, and for a session over HTTP/2 the
     * server is asked (PING). */
    int live_timeout_ms;
    int retry_first_ms; /* 100: bound of the first wait before a retry, which then grows ... */
    int retry_max_ms;   /* 10,000: ... up to this; full jitter */
    size_t answer_max;  /* 64 MiB: one answer or event that is held in memory */
    const struct tm_allocator *allocator; /* NULL: malloc */
    /* Told what is retried and why, for people, in the middle of a turn: it may not call the
     * library. NULL: nobody is told. */
    void *notice_ctx;
    void (*notice)(void *ctx, const char *text);
    int retries;             /* 5: how often a call is tried again; producers and followers go on */
    int strict;              /* 1: a 0 means 0. See TM_OPTIONS_STRICT_INIT */
    double retry_multiplier; /* 1.5: what each wait is multiplied by for the next; at least 1 */
    /* Called before each request goes, retries and those of followers, producers and sessions
     * included, to add headers and parameters that change: a token, a signature, an id. It may call
     * tm_request_* and nothing else of the library. Not 0: the request is not sent, and what it was
     * for fails with that error (1: TM_E_CANCELLED); a session tries again later. */
    void *prepare_ctx;
    int (*prepare)(void *ctx, struct tm_request *r);
};
#define TM_OPTIONS_INIT TM_SIZED(tm_options)

/* Sets all numbers to their defaults, and strict. A 0 then means 0 (retries: none), or is refused
 * (TM_E_INVALID) like any number that makes no sense. For programs that take settings from
 * people. */
#define TM_OPTIONS_NUMBERS(SET)                                                                    \
    SET(connect_timeout_ms, 10000)                                                                 \
    SET(request_timeout_ms, 30000)                                                                 \
    SET(live_timeout_ms, 90000)                                                                    \
    SET(retry_first_ms, 100)                                                                       \
    SET(retry_max_ms, 10000)                                                                       \
    SET(answer_max, 67108864)                                                                      \
    SET(retries, 5)                                                                                \
    SET(retry_multiplier, 1.5)                                                                     \
    SET(strict, 1)
#if defined(__cplusplus)
#define TM_SET_MEMBER(name, value) o.name = value;
extern "C++" inline tm_options tm_options_strict()
{
    tm_options o = tm_sized<tm_options>();
    TM_OPTIONS_NUMBERS(TM_SET_MEMBER)
    return o;
}
#define TM_OPTIONS_STRICT_INIT tm_options_strict()
#else
#define TM_SET_MEMBER(name, value) .name = value,
#define TM_OPTIONS_STRICT_INIT                                                                     \
    {                                                                                              \
        .size = sizeof(struct tm_options), TM_OPTIONS_NUMBERS(TM_SET_MEMBER)                       \
    }
#endif

/* When it fails there is no client to ask: notice is told the sentence. */
TM_API int tm_open(const struct tm_options *options, struct tm_client **out);
/* Free all that was made from it before. NULL is fine. */
TM_API void tm_close(struct tm_client *c);

/* What went wrong in the last call that failed, in full; until the next call. */
TM_API const char *tm_error(const struct tm_client *c);

/* Does what can be done now. 0: nothing has happened. 1: something has, look at what was made from
 * the client. */
TM_API int tm_turn(struct tm_client *c);

/* Turns until something has happened: 1. 0: the time is over. */
TM_API int tm_wait(struct tm_client *c, int timeout_ms);

struct tm_descriptor {
    int fd;
    int readable, writable; /* wait for this */
};
/* How many descriptors there are; as many as fit are written. They change with every call. */
TM_API size_t tm_descriptors(const struct tm_client *c, struct tm_descriptor *out, size_t max);
/* In how many milliseconds tm_turn has something to do without a descriptor; TM_FOREVER. */
TM_API int tm_deadline_ms(const struct tm_client *c);

/* ---- requests: in tm_options.prepare, and there alone ---- */

TM_API const char *tm_request_method(const struct tm_request *r); /* GET */
TM_API const char *tm_request_path(const struct tm_request *r);   /* with its query */
/* At most 16 headers; Authorization and User-Agent are sent instead of the library's.
 * TM_E_CONFLICT: the request has one of this name, which stays. Every other error makes the request
 * fail. */
TM_API int tm_request_header(struct tm_request *r, const char *name, const char *value);
/* name=value behind the query; encoded. */
TM_API int tm_request_param(struct tm_request *r, const char *name, const char *value);

/* ---- streams: single requests ----
 *
 * A call is started and then waited for, alone or with others:
 *
 *     struct tm_call *call = NULL;
 *     err = tm_append(c, "chats/1", &what, &call);
 *     if (err == 0)
 *         err = tm_call_wait(call, TM_FOREVER);
 *     ... tm_call_result(call)->next_offset ...
 *     tm_call_free(call);
 *
 * Network failures, 5xx and 429 are tried again `retries` times, not before what Retry-After says,
 * where nothing can happen twice by that: reads, heads, creates, deletes, closes, and appends with
 * a producer's numbers or an if_match. */

struct tm_call;

struct tm_result {
    int status;               /* of HTTP; 0: there was no answer */
    const char *content_type; /* texts are "" where the answer said nothing */
    const char *next_offset;
    const char *cursor; /* of live reads */
    const char *end_reason;
    int created, closed, up_to_date, duplicate;
    const void *data; /* of a read, n bytes: the body as it came */
    size_t n;
    uint64_t producer_epoch, producer_expected_seq;
    int64_t ttl_s;          /* of a head; -1: none */
    const char *expires_at; /* "" */
    /* With TM_E_GAP. */
    const char *gap_requested, *gap_earliest, *gap_reason;
};

struct tm_create_options {
    size_t size;
    const char *content_type; /* NULL: application/octet-stream */
    int64_t ttl_s;            /* 0: none */
    const char *expires_at;   /* RFC 3339; NULL: none */
    int closed;
    const void *data; /* what it begins with */
    size_t n;
    const char *forked_from, *fork_offset;
};
#define TM_CREATE_INIT TM_SIZED(tm_create_options)

struct tm_append_options {
    size_t size;
    const char *content_type; /* the stream's; NULL: application/octet-stream */
    const void *data;
    size_t n;
    int close;       /* ... behind it; with n == 0 it is only closed */
    const char *seq; /* Stream-Seq */
    /* The offset the tail must have, otherwise TM_E_CONFLICT: also when that is of an earlier try
     * of this call, whose answer was lost. */
    const char *if_match;
    int at_least_once;       /* try again in any case, though it may then stand there twice */
    const char *producer_id; /* with the two below */
    uint64_t producer_epoch, producer_seq;
};
#define TM_APPEND_INIT TM_SIZED(tm_append_options)

struct tm_post_options {
    size_t size;
    const char *content_type; /* NULL: none is said */
    const void *data;
    size_t n;
    int answer_timeout_ms; /* how long the answer may be silent; 0: request_timeout_ms */
};
#define TM_POST_INIT TM_SIZED(tm_post_options)

enum tm_live {
    TM_LIVE_NO,
    TM_LIVE_AUTO, /* SSE where the bytes survive it (JSON, and others as base64); text: long-poll */
    TM_LIVE_SSE,  /* in any case: line ends of a text may come as others */
    TM_LIVE_LONG_POLL,
};

/* name: any text, not empty; `/` separates parts. */
TM_API int tm_create(struct tm_client *c, const char *name, const struct tm_create_options *o,
                     struct tm_call **out);
TM_API int tm_append(struct tm_client *c, const char *name, const struct tm_append_options *o,
                     struct tm_call **out);
TM_API int tm_head(struct tm_client *c, const char *name, struct tm_call **out);
TM_API int tm_delete(struct tm_client *c, const char *name, struct tm_call **out);
/* One read from an offset ("-1" or NULL: the start, "now": the end). live: NO, or LONG_POLL. */
TM_API int tm_read(struct tm_client *c, const char *name, const char *offset, enum tm_live live,
                   struct tm_call **out);
/* GET of a path of the server's own that answers JSON, such as /v1/stream/?prefix=chats/. */
TM_API int tm_get(struct tm_client *c, const char *path, struct tm_call **out);
/* POST to a path of the server's own. Any answer is a success, for the caller to look at its status
 * and data. It is not tried again: nobody knows what a lost one has done. */
TM_API int tm_post(struct tm_client *c, const char *path, const struct tm_post_options *o,
                   struct tm_call **out);

/* Further headers of one call, before its first turn. Host and what says how the request is to be
 * read (Content-Length, ...) cannot be set. */
TM_API int tm_call_header(struct tm_call *call, const char *name, const char *value);

/* 1: it is over, with the error of tm_call_error (0: success). 0: not yet. */
TM_API int tm_call_done(const struct tm_call *call);
/* Turns the client until it is over, and returns its error; TM_E_TIMEOUT: not yet. */
TM_API int tm_call_wait(struct tm_call *call, int timeout_ms);
TM_API int tm_call_error(const struct tm_call *call);
TM_API const char *tm_call_message(const struct tm_call *call); /* what the server said of it */
TM_API const struct tm_result *tm_call_result(const struct tm_call *call);
TM_API void tm_call_free(struct tm_call *call); /* over or not; NULL is fine */

/* ---- producers: appends that are stored exactly once, in order ----
 *
 * What is appended gathers in a batch, which goes when it is full or linger_ms old. Several batches
 * may be under way; each has its number, so that a retry after any failure stores nothing twice,
 * and one that arrived before its predecessor is sent again behind it. */

struct tm_producer;

struct tm_producer_options {
    size_t size;
    const char *content_type; /* the stream's; application/json: each append is one JSON value */
    const char *id;           /* NULL: a random one */
    uint64_t epoch;
    /* When fenced: take the next epoch and go on. A batch whose answer was lost just before may
     * then be stored twice: the server forgets its number with the epoch. */
    int claim;
    int linger_ms;      /* 5, and up to 16 more; TM_FOREVER: only a flush or a full batch sends */
    size_t batch_bytes; /* 1 MiB */
    int in_flight;      /* 5 batches */
    size_t pending_max; /* 16 MiB: bytes not acknowledged yet; more: TM_E_BUSY */
    int retry_for_ms;   /* 0: for ever */
    size_t batch_items; /* TM_UNBOUNDED: appends that go in one batch */
    int strict;         /* 1: a 0 means 0: linger_ms sends at once, the others are refused */
    int reserved;       /* 0 */
};
#define TM_PRODUCER_INIT TM_SIZED(tm_producer_options)

/* As TM_OPTIONS_STRICT_INIT. */
#define TM_PRODUCER_NUMBERS(SET)                                                                   \
    SET(linger_ms, 5)                                                                              \
    SET(batch_bytes, 1048576)                                                                      \
    SET(in_flight, 5)                                                                              \
    SET(pending_max, 16777216)                                                                     \
    SET(batch_items, TM_UNBOUNDED)                                                                 \
    SET(strict, 1)
#if defined(__cplusplus)
extern "C++" inline tm_producer_options tm_producer_strict()
{
    tm_producer_options o = tm_sized<tm_producer_options>();
    TM_PRODUCER_NUMBERS(TM_SET_MEMBER)
    return o;
}
#define TM_PRODUCER_STRICT_INIT tm_producer_strict()
#else
#define TM_PRODUCER_STRICT_INIT                                                                    \
    {                                                                                              \
        .size = sizeof(struct tm_producer_options), TM_PRODUCER_NUMBERS(TM_SET_MEMBER)             \
    }
#endif

TM_API int tm_producer_new(struct tm_client *c, const char *name,
                           const struct tm_producer_options *o, struct tm_producer **out);
/* Taken: 0. TM_E_BUSY: too much is pending, turn first. TM_E_INVALID (empty, or no JSON value),
 * TM_E_TOO_LARGE, TM_E_NOMEM: not taken. Another error: the producer has failed for good with it
 * (tm_producer_error). */
TM_API int tm_producer_append(struct tm_producer *p, const void *data, size_t n);
TM_API size_t tm_producer_pending(const struct tm_producer *p); /* bytes not acknowledged */
TM_API int tm_producer_error(const struct tm_producer *p);
TM_API const char *tm_producer_offset(const struct tm_producer *p); /* behind what is stored; "" */
TM_API uint64_t tm_producer_epoch(const struct tm_producer *p);
/* Sends all and waits for it. */
TM_API int tm_producer_flush(struct tm_producer *p, int timeout_ms);
/* The same, and closes the stream behind it. data: a last append, or NULL. After TM_E_TIMEOUT it
 * goes on: another call waits for it, and its data is not looked at. */
TM_API int tm_producer_close(struct tm_producer *p, const void *data, size_t n, int timeout_ms);
TM_API void tm_producer_free(struct tm_producer *p); /* what is pending is dropped */

/* ---- followers: a stream from some position on, through any number of connections ---- */

struct tm_follower;

struct tm_follow_options {
    size_t size;
    const char *offset; /* NULL: the start; "now" */
    enum tm_live live;  /* NO: up to the end that there is now */
    int skip_gap;       /* go on from the earliest position that there is; told all the same */
    int retry_for_ms;   /* give up when nothing came for so long; 0: never */
    int json_values;    /* of a JSON stream: one value at a time; otherwise arrays of them */
};
#if defined(__cplusplus)
extern "C++" inline tm_follow_options tm_follow_init()
{
    tm_follow_options o = tm_sized<tm_follow_options>();
    o.live = TM_LIVE_AUTO;
    return o;
}
#define TM_FOLLOW_INIT tm_follow_init()
#else
#define TM_FOLLOW_INIT                                                                             \
    {                                                                                              \
        .size = sizeof(struct tm_follow_options), .live = TM_LIVE_AUTO                             \
    }
#endif

struct tm_batch {
    const void *data; /* n == 0: only the position, or the end, is news */
    size_t n;
    const char *next_offset; /* all before it has been handed out with this batch: a follower that
                              * begins here misses nothing. json_values: it moves with the last
                              * value of what came at once */
    int up_to_date;
    int closed;               /* nothing comes behind it */
    int gap;                  /* events are missing before this batch: see skip_gap */
    const char *content_type; /* "": not known yet, which only TM_LIVE_SSE brings about */
    const char *end_reason;
    const void *reserved[4]; /* room for what later versions tell; all NULL */
};

TM_API int tm_follower_new(struct tm_client *c, const char *name, const struct tm_follow_options *o,
                           struct tm_follower **out);
/* 1: *out is the next batch; nothing more is asked for before all was taken. 0: nothing now. A
 * closed stream, or live NO at its end: TM_E_CLOSED when all was handed out. TM_E_GAP and what a
 * read can fail with. Network failures, 5xx and 429 are no failures: it goes on when it can. */
TM_API int tm_follower_next(struct tm_follower *f, struct tm_batch *out);
/* The same, but waits; 0: the time is over. */
TM_API int tm_follower_wait(struct tm_follower *f, struct tm_batch *out, int timeout_ms);
/* The HTTP status of the last answer. 204: a long-poll ended without news. 0: no answer yet. */
TM_API int tm_follower_status(const struct tm_follower *f);
TM_API void tm_follower_free(struct tm_follower *f);

/* ---- sessions ---- */

struct tm_session;

enum tm_service {
    TM_SERVICE_TIDEMARK, /* tidemark.v1.SessionService: payloads are bytes */
    TM_SERVICE_AISERVER, /* aiserver.v1.ChatService: payloads are its messages, serialised */
};

struct tm_session_options {
    size_t size;
    enum tm_service service;
    const char *key;        /* idempotency key; NULL: a random UUID */
    const uint8_t *secret;  /* 32 bytes; NULL: random */
    const char *generation; /* chatGenerationUUID of the saved state; NULL: the key */
    const char *state_dir;  /* where its state is saved; NULL: it is not */
    /* The gates by their names in the protocol; 0 and 1: open. */
    int persist_idempotent_stream_state; /* -1: do not save, whatever state_dir says */
    int idempotent_agentic_composer;     /* -1: one connection, without replay, resume and saving */
    int reconnect_ms;                    /* 1,000 between connections */
    int backoff;                         /* grow that with jitter, up to retry_max_ms */
    int give_up_ms;                      /* without a connection for so long; 0: never */
    size_t unacknowledged_max;           /* 16 MiB of chunks; more: TM_E_BUSY */
};
#define TM_SESSION_INIT TM_SIZED(tm_session_options)

enum tm_event_kind {
    TM_EVENT_CHUNK,     /* of the server */
    TM_EVENT_ACK,       /* of one of ours: seqno */
    TM_EVENT_WELCOME,   /* connected; degraded says that nothing can be resumed from now on */
    TM_EVENT_RECONNECT, /* the connection was lost, or none could be had: text says why */
    TM_EVENT_END, /* the last: err says how (0: completed; TM_E_CANCELLED, TM_E_FAILED, ...) */
};

struct tm_event {
    enum tm_event_kind kind;
    const void *data; /* of a chunk: its payload; with AISERVER the whole message */
    size_t n;
    const char *event_id;     /* of a chunk */
    const char *text;         /* AISERVER: the text it says, or ""; of other kinds, for people */
    const char *thinking;     /* AISERVER: the same of what was thought */
    const char *tool_call_id; /* AISERVER: it is a tool call; "" */
    int verified;             /* the MAC is there and right */
    int degraded;
    uint32_t seqno;
    int err;
    const void *reserved[4]; /* room for what later versions tell; all NULL */
};

/* Connects with the next turn, and again whenever that is needed. A key whose state is saved in
 * state_dir: goes on with that session, its secret, its chunks and its position. TM_E_CONFLICT: it
 * is of another service or secret; TM_E_BUSY: it is in use, here or in another process;
 * TM_E_TAMPERED: the state was changed by somebody, and has been set aside. */
TM_API int tm_session_new(struct tm_client *c, const struct tm_session_options *o,
                          struct tm_session **out);
/* Numbered, kept until it is acknowledged, saved before it is sent. seqno may be NULL. TM_E_BUSY:
 * more than unacknowledged_max; TM_E_CLOSED: finished, or ended. */
TM_API int tm_session_send(struct tm_session *s, const void *data, size_t n, uint32_t *seqno);
/* 1: *out is the next event. 0: nothing now. An event counts as dealt with when the next one is
 * asked for: then its id is what a resume begins behind (AISERVER: only if it says or thinks
 * something, so that tool calls come again). After TM_EVENT_END: TM_E_CLOSED, and what was saved of
 * a session that is over for good is gone; freeing it does the same.
 *
 * Within one process no event comes twice if its id is a number, as tidemark's are. After a restart
 * those that were not dealt with do, and the last few that were: the position is saved a moment
 * later (250 ms at most). Their ids are the same, so keep the last id with what you make of an
 * event, and pass over what you have. */
TM_API int tm_session_next(struct tm_session *s, struct tm_event *out);
TM_API int tm_session_wait(struct tm_session *s, struct tm_event *out, int timeout_ms);
/* Nothing more is sent; the session ends when all is answered. */
TM_API int tm_session_finish(struct tm_session *s);
/* Stops it; TM_EVENT_END comes with TM_E_CANCELLED. */
TM_API int tm_session_abort(struct tm_session *s);
/* Leaves it as it is: what was saved can be resumed. NULL is fine. */
TM_API void tm_session_free(struct tm_session *s);

TM_API const char *tm_session_key(const struct tm_session *s);
TM_API enum tm_service tm_session_service(const struct tm_session *s);
TM_API const uint8_t *tm_session_secret(const struct tm_session *s); /* 32 bytes */
TM_API const char *tm_session_event_id(const struct tm_session *s);  /* dealt with; "0" */
TM_API size_t tm_session_unacknowledged(const struct tm_session *s); /* chunks */
/* What the next chunk gets: as many were sent, before a resume, too. Whoever sends the items of a
 * list knows by it which comes next. */
TM_API uint64_t tm_session_next_seqno(const struct tm_session *s);

/* Results of tool calls, so that a call that is sent again is not made again: kept, and saved,
 * until the session's position moves behind it. get: 1 found, 0 not. */
TM_API int tm_session_put_result(struct tm_session *s, const char *tool_call_id, const void *data,
                                 size_t n);
TM_API int tm_session_get_result(struct tm_session *s, const char *tool_call_id, const void **data,
                                 size_t *n);

/* ---- saved state ---- */

struct tm_resume_options {
    size_t size;
    /* Of each; what is saved (service, key, secret, generation, directory) is not taken from here.
     * NULL: the defaults. */
    const struct tm_session_options *session;
    int64_t retry_lookback_window_ms; /* 7,200,000: older state is left alone */
    /* Whether a generation is still wanted: 0 clears its state. NULL: all that name one are. */
    int (*wanted)(void *ctx, const char *generation);
    /* Each session that goes on; it is the callee's. Not 0: stop. */
    int (*resumed)(void *ctx, struct tm_session *s, const char *generation);
    void *ctx;
};
#define TM_RESUME_INIT TM_SIZED(tm_resume_options)

struct tm_resume_report {
    unsigned resumed, too_old, cleared; /* cleared: without or with an unwanted generation */
    unsigned refused;                   /* changed by somebody: renamed to NAME.refused */
    unsigned in_use;                    /* by another session, here or in another process */
    unsigned chunks_dropped;            /* that could not be read */
    unsigned reserved[6];               /* 0 */
};

/* Goes on with every session saved in a directory, which need not exist. report may be NULL. */
TM_API int tm_resume_all(struct tm_client *c, const char *state_dir,
                         const struct tm_resume_options *o, struct tm_resume_report *report);

/* ---- cursors: pages of tools of one's own ----
 *
 * A server that gives out its results in pages signs what the next one needs and hands it to the
 * client, instead of keeping it: nobody without the key can make or change such a cursor, and it
 * is good for one tool, one caller, one set of arguments and a while. These are the cursors of
 * tidemark itself; with its key and session each takes those of the other. Pure functions: no
 * client is needed, and several threads may call them at once. */

#define TM_CURSOR_SIZE      513 /* of a cursor, its NUL included */
#define TM_CURSOR_STATE_MAX 256 /* bytes; where names are long fewer fit */
#define TM_CURSOR_ARGS_SIZE 32
#define TM_CURSOR_ROOM      512 /* for what a cursor says */

/* Servers that share both take each other's cursors. */
struct tm_cursor_key {
    uint8_t key[32];    /* secret */
    uint8_t session[8]; /* a new one makes all cursors expire */
};

/* Both at random: good for as long as this process lives. TM_E_NOMEM: there is no randomness. */
TM_API int tm_cursor_key_random(struct tm_cursor_key *k);
/* From texts, as tidemark is configured with: base64url without padding or base64 with it, white
 * space around it allowed. NULL or empty: random. TM_E_INVALID: not base64 of 32 and 8 bytes; *k is
 * as it was. */
TM_API int tm_cursor_key_take(const char *key, const char *session, struct tm_cursor_key *k);
/* The key in the environment, ATD_CURSOR_SIGNING_KEY or the file that ATD_CURSOR_SIGNING_KEY_FILE
 * names, and a session: NULL, random. 1: that key is in *k. 0: none is set; the key is random.
 * TM_E_INVALID, TM_E_IO (the file): there is one that cannot be used; *k is as it was. */
TM_API int tm_cursor_key_environment(const char *session, struct tm_cursor_key *k);

struct tm_cursor {
    size_t size;
    const char *tool_id;   /* UTF-8, as is the caller's */
    const char *caller_id; /* NULL: nobody has said who it is */
    /* tm_cursor_fingerprint of the arguments: SHA-256 of their canonical form (RFC 8785).
     * tm_cursor_verify: NULL, none were sent and so none differ. */
    const uint8_t *args;
    uint64_t page;       /* that it leads to: the first cursor says 2 */
    int64_t issued_at_s; /* Unix time */
    const void *state;   /* n bytes, the tool's own; whoever has the cursor can read them */
    size_t n;
};
#define TM_CURSOR_INIT TM_SIZED(tm_cursor)

/* The fingerprint of arguments: n bytes of JSON, at most 1 MiB. The order of members and the
 * spelling of numbers make no difference. TM_E_INVALID: not JSON, or a name that comes twice;
 * TM_E_NOMEM, TM_E_TOO_LARGE. This takes memory, from malloc. */
TM_API int tm_cursor_fingerprint(const char *args, size_t n, uint8_t out[TM_CURSOR_ARGS_SIZE]);

/* A text of at most 512 characters, letters, digits, `-` and `_`. TM_E_TOO_LARGE: names and state
 * do not fit; TM_E_INVALID: one of them is missing or not UTF-8, or the time is before 1970. */
TM_API int tm_cursor_issue(const struct tm_cursor_key *k, const struct tm_cursor *c,
                           char out[TM_CURSOR_SIZE]);

/* Whether a cursor may be used for what is asked (of which tool_id, caller_id and args count) at
 * the time now_s, ttl_s seconds after it was issued at the latest. 0 and what it says, in room.
 * TM_E_EXPIRED: too old, or of another session; ask for the result anew. TM_E_TAMPERED: not signed
 * with this key. TM_E_CONFLICT: for another tool, caller or arguments; *out is set. TM_E_INVALID:
 * no cursor at all. */
TM_API int tm_cursor_verify(const struct tm_cursor_key *k, const char *cursor,
                            const struct tm_cursor *asked, int64_t now_s, uint64_t ttl_s,
                            struct tm_cursor *out, char room[TM_CURSOR_ROOM]);

/* What clients of tools are told: 1020 for TM_E_EXPIRED, 1021 for the others, 0 for 0. */
TM_API int tm_cursor_code(int err);

#if defined(__cplusplus)
}
#endif

#endif
