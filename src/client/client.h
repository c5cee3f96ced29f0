// SPDX-License-Identifier: Apache-2.0
/* client.h -- streams of a tidemark server (or any other that speaks Durable Streams) from C.
 *
 * Synchronous: a call returns when it is done, and blocks until then. One client belongs to one
 * thread at a time and makes one request at a time over connections that it keeps; its producers
 * and followers share it. No call on a client may be made from a callback of that client.
 *
 * Calls return 0 or a code of base/err.h; client_error then has a sentence for people. ERR_REFUSED
 * means that the server could not be reached or the connection was lost, ERR_TIMEOUT that it went
 * silent, ERR_CANCELLED that a callback or the watched descriptor ended the call.
 *
 * Only plain C types appear here, as this is to be the interface of a library of its own. */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client;

/* Buffer sizes, NUL included; a server that exceeds them is answered with ERR_SYNTAX. */
#define CLIENT_OFFSET_SIZE 256
#define CLIENT_TYPE_SIZE   256
#define CLIENT_REASON_SIZE 32

/* Zero in a field means its default. */
struct client_options {
    uint32_t connect_timeout_ms; /* 10 s */
    uint32_t stall_timeout_s;    /* 30 s: an answer under way that brings nothing for so long */
    uint32_t live_timeout_s;     /* 90 s: the same while following; heartbeats come more often */
    uint32_t retry_first_ms;     /* 100 ms: bound of the first wait before a retry; doubles... */
    uint32_t retry_max_ms;       /* 10 s: ...up to this */
    size_t value_max;            /* 64 MiB: one JSON value or one live event; ERR_TOO_LARGE */
    const char *token;           /* NULL: none. Presented with every request, as a bearer's */
    /* Told what is retried and why, for people. NULL: nobody is told. */
    void *user;
    void (*notice)(void *user, const char *text);
};

/* server: http(s)://HOST[:PORT][/PREFIX], or unix:PATH. ERR_SYNTAX if it is neither. options may be
 * NULL; it is copied, with the token. */
int client_new(const char *server, const struct client_options *options, struct client **out);
void client_free(struct client *c); /* NULL is allowed; its producers and followers go first */

/* What went wrong in the last call that failed; until the next call. */
const char *client_error(const struct client *c);

/* Every call, and every wait between retries, ends with ERR_CANCELLED as soon as the other side of
 * this descriptor is gone: a pipe that nobody reads any more. -1: none. */
void client_watch(struct client *c, int fd);

/* -- streams ------------------------------------------------------------------------------------
 * name: any bytes but NUL, not empty; `/` separates parts. Nothing here is retried. */

struct client_config {
    const char *content_type; /* NULL: application/octet-stream */
    uint64_t ttl_s;           /* 0: lives until it is deleted */
    bool closed;
};

/* Makes the stream, or finds that it is there with the same configuration. created may be NULL.
 * ERR_EXISTS: it is there with another one. */
int client_create(struct client *c, const char *name, const struct client_config *config,
                  bool *created);

struct client_state {
    char content_type[CLIENT_TYPE_SIZE];
    char next_offset[CLIENT_OFFSET_SIZE];
    bool closed;
    char end_reason[CLIENT_REASON_SIZE]; /* empty: open, or the server gives none */
};

/* ERR_NOT_FOUND; ERR_DELETED: forks of it still hold its data. */
int client_head(struct client *c, const char *name, struct client_state *out);

/* One append, sent once. When the connection is lost before the answer, nobody knows whether it was
 * stored: a producer does. next_offset (CLIENT_OFFSET_SIZE bytes) may be NULL. */
int client_append(struct client *c, const char *name, const char *content_type, const void *data,
                  size_t n, char *next_offset);

/* Closing a closed stream is a success. */
int client_close(struct client *c, const char *name);
int client_delete(struct client *c, const char *name);

/* Lent for the call. */
struct client_row {
    const char *name, *content_type, *next_offset;
    bool closed;
};

/* Every stream whose name begins with prefix, in order of names, asked for in pages as it goes.
 * prefix and after (only names behind it) may be NULL; limit 0: all. A callback that returns false
 * ends the list, which is a success. */
int client_list(struct client *c, const char *prefix, const char *after, uint64_t limit, void *user,
                bool (*row)(void *user, const struct client_row *row));

/* -- sessions -----------------------------------------------------------------------------------
 * Shown to those whose token is a worker's; to others there is none (ERR_NOT_FOUND). */

/* Lent for the call. */
struct client_session {
    const char *key;
    const char *service; /* tidemark.v1, aiserver.v1 */
    const char *created; /* RFC 3339 */
    bool connected;      /* its client is there */
    bool key_held;       /* the server can read what was said */
    bool expired;
    uint64_t answered; /* of the client's messages */
    /* Of show. All 0 and empty if it has expired. */
    uint64_t in_events, in_bytes, out_events, out_bytes;
    bool in_closed;
    const char *end; /* completed, cancelled, failed, ...; empty: still open */
};

/* As client_list. */
int client_session_list(struct client *c, const char *prefix, const char *after, uint64_t limit,
                        void *user, bool (*row)(void *user, const struct client_session *row));

/* row is called once, or not at all. */
int client_session_show(struct client *c, const char *key, void *user,
                        void (*row)(void *user, const struct client_session *row));

/* -- producer: appends that are stored exactly once, in order ----------------------------------
 *
 * What is appended gathers in a batch. The batch is sent by a flush, and by an append that finds it
 * full or its first piece older than linger_ms: an append is stored when a later flush (or close)
 * has returned 0. Bytes are joined; on JSON streams each append is one value, and the batch travels
 * as one array.
 *
 * Network errors, 5xx and 429 are retried with growing, jittered waits (and not before what
 * Retry-After says); the server recognises a batch that it has, so a retry stores nothing twice.
 * One batch is in flight at a time, the next is not sent before it is stored: order holds.
 *
 * After a failure the batch is kept as it is, and every later call tries it again first. */

struct client_producer;

struct client_producer_options {
    const char *content_type; /* the stream's; application/json: each append is one JSON value */
    const char *id;           /* NULL: a random one */
    uint64_t epoch;
    /* When another producer of this id has taken a newer epoch (ERR_FENCED): take the next one and
     * go on. A batch whose answer was lost just before that may then be stored twice. */
    bool claim;
    uint32_t linger_ms;    /* 0: 5 ms */
    size_t batch_bytes;    /* 0: 1 MiB; a larger single append is a batch of its own */
    uint64_t retry_for_ms; /* 0: for ever */
};

/* name and options are copied. Asks the server nothing yet. */
struct client_producer *client_producer_new(struct client *c, const char *name,
                                            const struct client_producer_options *options);
void client_producer_free(struct client_producer *p); /* what was not flushed is dropped */

/* n > 0; ERR_EMPTY otherwise, ERR_JSON for what is no JSON value on a JSON stream. With any failure
 * the piece was not taken: what failed was to send the batch before it. */
int client_producer_append(struct client_producer *p, const void *data, size_t n);
int client_producer_flush(struct client_producer *p);

/* Flushes and closes the stream for good, in one step if there is something to flush. */
int client_producer_close(struct client_producer *p);

/* In how many milliseconds the batch wants a flush: what to wait for input at most. UINT64_MAX: it
 * is empty. */
uint64_t client_producer_due_ms(const struct client_producer *p);

/* Behind the last batch that was stored; empty before the first. Lent until the next call. */
const char *client_producer_offset(const struct client_producer *p);

/* -- follower: a stream from some position on, through any number of connections ----------------
 *
 * Catches up with plain reads, then follows live: by SSE where the bytes survive it (JSON, and
 * binary types as base64), by long-polling otherwise. After any drop it goes on from where it was,
 * for ever unless told otherwise; nothing is handed over twice and nothing is left out. */

struct client_follower;

/* A position that can no longer be read. Lent for the call. */
struct client_gap {
    const char *requested, *earliest;
    const char *reason;   /* trimmed, expired, reborn, unknown */
    const char *snapshot; /* NULL: there is none */
};

/* Callbacks return 0 to go on; anything else ends the run with ERR_CANCELLED. All but data may be
 * NULL. */
struct client_follow_options {
    const char *from;      /* "start", "now" or an offset; NULL: start */
    bool stop_at_tail;     /* do not follow */
    uint64_t retry_for_ms; /* give up when nothing came for so long; 0: never */
    void *user;
    /* Bytes as they are in the stream, in pieces of any size; on JSON streams one value a call. */
    int (*data)(void *user, const void *data, size_t n);
    /* All before this offset has been handed over; one may start here another time. */
    int (*position)(void *user, const char *next_offset, bool up_to_date);
    /* 0: go on from the earliest position. Without this callback a gap ends the run (ERR_GAP). */
    int (*gap)(void *user, const struct client_gap *gap);
};

/* name and options are copied. */
struct client_follower *client_follower_new(struct client *c, const char *name,
                                            const struct client_follow_options *options);
void client_follower_free(struct client_follower *f);

/* 0: the stream is closed and all of it was handed over (or, with stop_at_tail, all there is).
 * ERR_NOT_FOUND, ERR_DELETED, ERR_GAP, ERR_OFFSET, ERR_CANCELLED, ... may be followed by another
 * run, which goes on from the same place. ERR_KEY_ABSENT comes with stop_at_tail only: otherwise
 * the key is waited for. */
int client_follower_run(struct client_follower *f);

/* What is known so far; lent as long as the follower is. next_offset: where a new follower would go
 * on. content_type is empty before the first answer. */
const struct client_state *client_follower_state(const struct client_follower *f);

#endif
