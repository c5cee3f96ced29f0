// SPDX-License-Identifier: Apache-2.0
/* session_view.h -- the streams of sessions as workers see them: a struct store around the real
 * one.
 *
 * Of `sessions/KEY/in` and `sessions/KEY/out`, and of no others, it gives the records opened, as
 * the events of a JSON stream:
 *
 *     in    {"type":"chunk","seqno":0,"data":"BASE64"}   what the client sent
 *           {"type":"abort"}   {"type":"close"}
 *           {"type":"moved"}     means nothing to a worker; there if it had a backend before
 *     out   {"id":"1","data":"BASE64"}                   the server chunk as it is sent
 *
 * An event has the position of its record: all offsets are those of the sealed stream, and what a
 * read gives is not as long as what lies between them. Reading needs the session's key where there
 * is something to be read; without it the answer is ERR_KEY_ABSENT.
 *
 * `out` takes appends of JSON, {"data":"BASE64"} or {"text":"TEXT"}, and may be closed; they go to
 * the session, which seals them. ERR_SYNTAX: an event is none of these. ERR_DENIED: everything else
 * that would change something. What can be found out without the key, such as that an append was
 * made before, is answered without it.
 *
 * Listings pass through with all names; documents do not. Loop thread only. */
#ifndef FEATURE_SESSIONS_SESSION_VIEW_H
#define FEATURE_SESSIONS_SESSION_VIEW_H

#include "base/buf.h"
#include "base/str.h"

struct sched;
struct session_keys;
struct store;
struct store_write;

/* What it wants of whoever keeps the sessions. */
struct session_view_ops {
    /* The keys of a session; NULL: not held. Lent for the turn. */
    struct session_keys *(*keys)(void *ctx, struct str key);
    /* Appends to a session's `out`, closes it, or both, under the preconditions of *w: claim, seq,
     * if_match, close and end are set, and its name. The events' contents, packed as below and none
     * for a close alone, live until w's done(), which is called as a store would. Only called where
     * the keys are held. */
    void (*write_out)(void *ctx, struct str key, struct store_write *w, struct str contents);
};

/* What an append is told that is ERR_SYNTAX. */
#define SESSION_VIEW_TAKES                                                                         \
    "a session takes events of the form {\"data\":\"BASE64\"}, of its own protocol and padded, "   \
    "or "                                                                                          \
    "{\"text\":\"TEXT\"}, with nothing beside"

/* ops and the real store are kept by reference. store_free frees the view alone. */
struct store *session_view_new(struct sched *sched, struct store *real,
                               const struct session_view_ops *ops, void *ctx);

/* Contents one behind the other:
 *
 *     u8  1: text, 0: bytes
 *     u32 length, little-endian
 *     ..  the content */
void session_content_put(struct buf *out, bool is_text, struct str content);

/* Cuts the first off *rest. false: there is none. */
bool session_content_cut(struct str *rest, bool *is_text, struct str *content);

#endif
