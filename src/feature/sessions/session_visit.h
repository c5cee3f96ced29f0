// SPDX-License-Identifier: Apache-2.0
/* session_visit.h -- one client's connection to its session: a *visit*.
 *
 *     session_client.c  it comes, is admitted, and is over
 *     session_say.c     what it says
 *     session_next.c    what it is sent */
#ifndef FEATURE_SESSIONS_SESSION_VISIT_H
#define FEATURE_SESSIONS_SESSION_VISIT_H

#include "feature/sessions/session_core.h"

/* WAITING --the session is open and the secret right--> ADMITTED --pulled--> WELCOMED; each of them
 * --> OVER, when it is detached from its session. */
enum visit_state { VISIT_WAITING, VISIT_ADMITTED, VISIT_WELCOMED, VISIT_OVER };

/* The last that it has said of the session as a whole. */
enum visit_said { VISIT_SAYS_MORE, VISIT_SAID_CLOSE, VISIT_SAID_ABORT };

struct session_visit {
    struct link link; /* among those that wait */
    struct session_client *client;
    enum visit_state state;
    struct session *session; /* NULL: over */
    struct sched *sched;
    struct task wake;
    uint64_t no;
    uint8_t secret[SESSION_SECRET_SIZE]; /* until it is admitted */
    enum session_service service;
    uint64_t position;
    enum visit_said said_last;
    bool half_closed;                  /* it sends no more, whatever it said */
    bool late_chunk_due;               /* see session_next.c: */
    struct timer late_timer;           /* how long it is waited for */
    struct buf early;                  /* messages said before it was admitted */
    uint64_t said, processed, settled; /* messages; heard: not early any more */
    uint64_t late;   /* the first of them that came behind the end; 0: none. Never settled */
    struct buf acks; /* seqnos, uint32_t */
    size_t acks_at;
    struct visit_open *open; /* the read that finds its position, under way */
    struct subscriber subscriber;
    struct event_batch *batch; /* being sent */
    uint32_t slice;
    struct str rest;
    uint64_t ordinal;    /* of the next event */
    enum end_reason end; /* of the stream, when all of it has been sent */
    struct buf plain, message;
};

/* Its client is told, from the schedule, that there is something. */
void session_visit_wake(struct session_visit *v);

/* It is detached from its session, but stays until its client has gone. The first call counts. */
void session_visit_over(struct session_visit *v, enum session_over why, int err);
void session_visit_malformed(struct session_visit *v, const char *why);

static inline bool session_visit_is_admitted(const struct session_visit *v)
{
    return v->state == VISIT_ADMITTED || v->state == VISIT_WELCOMED;
}

/* ---- session_say.c ---- */

/* What was said early is the caller's now. */
struct buf session_visit_take_early(struct session_visit *v);
/* It is admitted: what it said before is heard. */
void session_visit_receive_early(struct session_visit *v);
/* So many of its messages are settled. v may be gone behind it. */
void session_visit_settled(struct session_visit *v, uint64_t settled);

/* A chunk came that cannot be taken any more: it is over. */
void session_visit_late(struct session_visit *v);

/* ---- session_next.c ---- */

void session_visit_init_next(struct session_visit *v);
/* It has said something: so it may say more. */
void session_visit_active(struct session_visit *v);

size_t session_visit_acks(const struct session_visit *v); /* that wait to be taken */
/* Reads on in `out`. False: there is no record now. */
bool session_visit_read(struct session_visit *v);

#endif
