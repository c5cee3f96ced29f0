// SPDX-License-Identifier: Apache-2.0
/* gateway_http_core.h -- what those parts of the gateway share that answer exchanges. */
#ifndef FEATURE_GATEWAY_GATEWAY_HTTP_CORE_H
#define FEATURE_GATEWAY_GATEWAY_HTTP_CORE_H

#include "base/sha256.h"
#include "feature/gateway/gateway_core.h"
#include "http/exchange.h"

/* How who asks is spoken to, before a generation is known. */
struct dialect_voice gateway_voice(const struct gateway_route *r, const struct exchange *x);

/* Of surfaces: what the server refuses before the route is asked. */
struct surface_refusal;
void gateway_on_refused(void *route, struct exchange *x, const struct surface_refusal *why);

/* An error in the form that who asks knows. details: JSON text; n == 0: none. */
void gateway_error(const struct gateway_route *r, struct exchange *x, int status, struct str code,
                   struct str message, struct str details);
/* The same, where more is known of how to speak. */
void gateway_problem(const struct dialect_voice *v, struct exchange *x,
                     const struct dialect_problem *problem);
/* The same as gateway_error, of the table of errors. */
void gateway_refuse(const struct gateway_route *r, struct exchange *x, int err);
/* ... what is new is not begun any more. */
void gateway_refuse_draining(const struct gateway_route *r, struct exchange *x);
/* ... of a generation that came to nothing. */
void gateway_send_failure(struct exchange *x, const struct generation_failure *f);

/* Says that an answer cannot be resumed. */
void gateway_put_degraded(struct exchange *x);

/* ---- gateway_caller_http.c: who asks ---- */

/* Whose keys and chats are told apart: a caller known here, or else by what it shows the upstream.
 * Lives as long as the request. */
struct str gateway_caller(const struct gateway_route *r, struct exchange *x);

/* Does he show anything by which he is told from strangers? His address is nothing of that sort. */
bool gateway_is_told_apart(const struct gateway_route *r, const struct exchange *x);

/* A digest of texts, in hex, that no other texts have. */
void gateway_put_digest(const struct str *parts, size_t n, char out[SHA256_HEX]);
struct str gateway_digest(struct exchange *x, const struct str *parts, size_t n);

/* Counts a request of its caller; false: one too many, and it has been answered. */
bool gateway_within_quota(struct gateway_route *r, struct exchange *x);

/* What of the route counts for its `parallel`. */
static inline uint64_t gateway_under_way(const struct gateway_route *r)
{
    return (uint64_t)(r->running->n + r->passing->n);
}

/* 429, with when to come again. */
void gateway_refuse_limit(const struct gateway_route *r, struct exchange *x, uint64_t retry_after_s,
                          struct str message);

/* May who asks read this generation? False: for him there is none. */
bool gateway_may_read(const struct gateway_route *r, struct exchange *x, struct str request_id);

/* `{"request_id":..,"status":..}`. */
void gateway_send_status(struct exchange *x, struct str request_id, enum end_reason end);

/* ---- gateway_key_http.c: by what a request is recognised when it comes again ---- */

struct key_header {
    struct str name, value; /* name.n == 0: there is none */
    bool implied; /* it was not meant as a key, and is one for this request and no other */
};

/* 0, or ERR_SYNTAX: it is no key that can be taken. */
int gateway_key_find(const struct request *req, struct key_header *k);

/* The document of a key; the fingerprint tells requests apart. */
struct str gateway_key_doc(const struct gateway_route *r, struct exchange *x,
                           const struct key_header *k, struct str fingerprint);

/* Whether it counts its tries (X-Stainless-Retry-Count), and comes from somebody who can be told
 * from strangers. The digest is still to be set, with gateway_mark_request. */
void gateway_mark_tries(const struct gateway_route *r, const struct exchange *x,
                        struct repeat_mark *m);
void gateway_mark_request(const struct gateway_route *r, struct exchange *x, struct str fingerprint,
                          struct repeat_mark *m);

/* Notes what became of it; nothing of one that does not count. connection: of DELIVERED. */
void gateway_note_repeat(const struct gateway_route *r, const struct repeat_note *note);

/* ---- gateway_start_http.c: POST PATH ---- */

void gateway_start(struct gateway_route *r, struct exchange *x);

/* ---- gateway_pass_http.c: a request that goes on as it is, and its answer ---- */

/* body: all of it, lent for the call; NULL: it comes piece by piece. The request was counted by
 * gateway_within_quota. */
void gateway_pass(struct gateway_route *r, struct exchange *x, const struct str *body);

/* Headers of an upstream's answer, but those that were set before; copied. */
void gateway_put_headers(struct exchange *x, const struct header *headers, size_t n);

/* ---- gateway_prefix_http.c: what comes in below a prefix ---- */

void gateway_prefix_handle(void *route, struct exchange *x);

/* The path of a request is sent on, or a part of it: does it mean the same to every server, and is
 * that granted? False: it has been answered. */
bool gateway_admit_path(const struct gateway_route *r, struct exchange *x);

/* ---- gateway_http.c: members of a generation's path ---- */

/* PATH/ID, or PATH/ID/what. The body has been read. */
void gateway_member(struct gateway_route *r, struct exchange *x, struct str id, struct str what);

/* Are its clients those of chats? */
bool gateway_has_chats(const struct gateway_route *r);

/* The newest generation of a chat, by the id that its client has, still encoded. */
typedef void chat_found_fn(struct gateway_route *r, struct exchange *x, struct str request_id);
void gateway_find_chat(struct gateway_route *r, struct exchange *x, struct str encoded,
                       chat_found_fn *found); /* request_id.n == 0: none is under way */

/* The path by which clients name the generations that a request begins. */
struct str gateway_path(const struct gateway_route *r, const struct exchange *x);

/* ---- gateway_forward_http.c ---- */

/* Begins to answer; takes over what holds the exchange. NULL: the client has gone. */
struct forward *forward_new(struct exchange *x, struct str request_id, struct generation *gen,
                            const struct source_head *head, bool degraded);

/* ---- gateway_read_http.c: readers of a generation ---- */

struct read_order {
    struct gateway_route *route;
    struct exchange *x; /* held until it has been answered */
    struct str request_id;
    struct dialect_voice voice; /* set by gateway_read, or with starts */
    bool looked;                /* ... for its dialect, in what is stored */
    uint64_t seq;               /* the reader has events up to this one */
    bool from_snapshot;         /* what came before is told by a snapshot */
    bool replay_only;           /* ... and nothing waited for */
    bool resumes;               /* by a token: ends with `complete` */
    bool polite;                /* an EventSource: 204 when nothing will come any more */
    bool whole;                 /* of these nothing counts: gateway_read_whole */
    bool waits;   /* until there is an event, so that a failure has a status of its own */
    bool waited;  /* ... and it did */
    bool surplus; /* ... with too many others for all of them to ask, one by one */
    struct generation_waiter waiter; /* where it waits */
    struct generation_seat *seat;    /* of who waits, in the arena; NULL: none yet */
    const struct repeat_mark *mark;  /* the same; NULL: it does not count its tries */
    bool starts;         /* there from the beginning, which the generation keeps until it reads */
    uint64_t started_ms; /* when it was asked for, with resumes */
    const struct header *headers; /* of the upstream's, for who asked */
    size_t n_headers;
    /* There is no such stream any more. */
    void (*missing)(struct read_order *o);
};

/* In the arena of its exchange. */
void gateway_read(struct read_order *o);

/* The generation says how its readers are spoken to. */
void gateway_take_voice(struct read_order *o, const struct dialect_voice *v);

/* ---- gateway_reader_http.c: one of them ---- */

struct reader;

/* Goes on where the read ends, and takes of it what it has room for. ahead: notices that come
 * first; trimmed: one of them is a gap. */
struct reader *reader_new(const struct read_order *o, struct store_read *read, struct str ahead,
                          bool trimmed);
/* Begins to answer, and takes over what holds the exchange. */
void reader_start(struct reader *r);

/* Without a notice of ours. */
uint64_t gateway_upstream_events(const struct stream_info *info);

/* ---- gateway_answer_http.c: an answer that is no stream of events, and was recorded ---- */

/* Is it one, from its beginning? */
bool gateway_is_answer(const struct store_read *read);

/* Answers with it, as it came. Releases the read. */
void gateway_send_answer(const struct read_order *o, struct store_read *read);

/* ---- gateway_whole_http.c: those who want no events ----
 *
 * Waits until the generation has ended and answers with its snapshot, as JSON; what did not
 * complete is an error as OpenAI's API has them. Of the order route, x and request_id count. */
void gateway_read_whole(struct read_order *o);

/* ---- gateway_read_http.c: snapshots ---- */

/* Answers with the snapshot alone, and how it ended. */
void gateway_send_snapshot(struct exchange *x, const struct dialect_voice *v, struct str request_id,
                           const struct snapshot_lookup *l);

/* Headers that every stream of events has. */
void gateway_event_stream(struct exchange *x, const struct dialect_voice *v, struct str request_id);

/* Where it can be read again. */
void gateway_put_location(const struct gateway_route *r, struct exchange *x, struct str request_id);

/* ---- gateway_resume_http.c: POST PATH/resume ---- */

void gateway_resume(struct gateway_route *r, struct exchange *x);

/* ---- gateway_continue_http.c: on behind the last event that a client has ---- */

/* Last-Event-ID: N, or GENERATION:N. */
struct event_id {
    struct str generation; /* n == 0: it names none */
    uint64_t seq;          /* 0 if it is not there or none of ours */
};
struct event_id gateway_last_event_id(const struct exchange *x);

/* The same where the generation is known: 0 if it is of another one. */
uint64_t gateway_seq_of(const struct exchange *x, struct str request_id);

/* POST and GET of PATH, with the id of an event that names its generation. Whatever the body says,
 * nothing new is begun. */
void gateway_continue(struct gateway_route *r, struct exchange *x);

/* 410: what the client has is of a generation that is not known, or not any more. */
void gateway_refuse_position(const struct gateway_route *r, struct exchange *x, uint64_t seq);

#endif
