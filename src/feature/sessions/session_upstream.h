// SPDX-License-Identifier: Apache-2.0
/* session_upstream.h -- a backend of sessions that asks an HTTP server.
 *
 * Each chunk is POSTed until it is answered, always with the same `Idempotency-Key: KEY/SEQNO`. The
 * answer is a stream of server-sent events, each of which becomes an event of the session, or
 * something else, which is one event as a whole. docs/configuration.md says what counts as an
 * answer, what is tried again and what ends the session as failed.
 *
 * What is assumed of the upstream, so that no event is lost or doubled:
 *
 *   - The same Idempotency-Key is the same work: asked again, it does nothing twice.
 *   - An event's id, where it carries one itself, is the id of no other event of that answer. Asked
 *     again with it as Last-Event-ID, the upstream goes on behind that event.
 *
 * Against the second not being so: a continued answer that begins with the event it was to go on
 * behind, or with the one the whole answer began with, is passed over up to and with the former.
 * Only what was seen since the reply's start is known: an upstream that begins anew after this
 * server's restart is not noticed. An id that comes twice in a row counts as none.
 *
 * Loop thread only. */
#ifndef FEATURE_SESSIONS_SESSION_UPSTREAM_H
#define FEATURE_SESSIONS_SESSION_UPSTREAM_H

#include "feature/sessions/session.h"

struct fetcher;
struct session_config;
struct session_upstream;

#define SESSION_UPSTREAM_EVENT_MAX (1024 * 1024) /* bytes of one event, or of another answer */

struct session_upstream_setup {
    struct sched *sched;
    struct fetcher *fetcher;
    const struct trace *trace;
    const struct session_config *config; /* with an upstream */
    /* session_reply_event and session_reply_end, or what a test has in their place. */
    int (*event)(struct session_reply *reply, struct str content, bool is_text, struct str id);
    void (*end)(struct session_reply *reply, enum end_reason end, struct str message);
};

/* The setup is copied; what it points to is kept by reference. */
struct session_upstream *session_upstream_new(const struct session_upstream_setup *setup);

/* All its replies have ended or been stopped. NULL is allowed. */
void session_upstream_free(struct session_upstream *u);

/* For the setup of sessions; lives as long as u. start() neither takes events nor ends the reply
 * before it has returned. */
const struct session_backend *session_upstream_backend(const struct session_upstream *u);

/* The delay before the next try after so many (from 1 on) have failed in a row; random decides
 * about the jitter. */
uint64_t session_upstream_retry_ms(uint32_t failures, uint64_t random);

#endif
