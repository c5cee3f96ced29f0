// SPDX-License-Identifier: Apache-2.0
/* sessions_http.h -- sessions over Connect and gRPC. See docs/protocols/sessions.md.
 *
 *     /aiserver.v1.ChatService/StreamUnifiedChatWithToolsIdempotent       both ways in one call
 *     /aiserver.v1.ChatService/StreamUnifiedChatWithToolsIdempotentSSE    the downlink alone
 *     /aiserver.v1.ChatService/StreamUnifiedChatWithToolsIdempotentPoll   the same, piece by piece
 *     /aiserver.v1.BidiService/BidiAppend                                 one message of the uplink
 *     /tidemark.v1.SessionService/Stream, StreamSSE, StreamPoll, Append   all of them again
 *
 * Whoever cannot have both ways in one call (HTTP/1.1) ties a downlink and its appends together by
 * a *request id*, a text of the client's own choice:
 *
 *   - Appends are numbered from 0, and said to the session in that order, whatever order they come
 *     in. One that was said before is answered at once, and not said again. An append is answered
 *     when its message is durable.
 *   - The numbering belongs to the downlink: each new one, also under a request id that was used
 *     before, begins at 0. A number alone could not tell whether a client goes on or begins again.
 *     Who uses a request id again opens the downlink first; otherwise what it appends may be taken
 *     for the older one's, and for said before.
 *   - A downlink replaces an older one with its request id. When one is gone, appends that are not
 *     answered yet fail (unavailable), and those that come wait for the next one for a while.
 *   - Another caller's request ids are other ones, and so are those that come with another
 *     x-idempotent-encryption-key: a name is looked up along with who says it and by which key.
 *     Whoever has the wrong one cannot tell whether there is such a downlink.
 *   - A downlink that is polled begins with start_request and is gone when nobody has polled for a
 *     while. A poll ends when it has given what there was; a newer one replaces it. Its responses
 *     are numbered from 1: who misses one begins again, behind the last event that it has. The last
 *     one has eof and no data. */
#ifndef FEATURE_SESSIONS_SESSIONS_HTTP_H
#define FEATURE_SESSIONS_SESSIONS_HTTP_H

#include "base/list.h"
#include "base/map.h"

#include <stdint.h>

struct surface;
struct http;
struct mac;
struct sched;
struct sessions;

#define SESSION_REQUEST_ID_MAX 128

/* The services of its protocol, as paths. */
#define SESSIONS_CHAT          "/aiserver.v1.ChatService/"
#define SESSIONS_BIDI          "/aiserver.v1.BidiService/"
#define SESSIONS_OWN           "/tidemark.v1.SessionService/"

struct sessions_http {
    struct sched *sched;
    struct sessions *sessions;
    uint64_t max_message;  /* bytes of one message of a client */
    uint64_t long_poll_ms; /* how long a poll waits for something to say */

    /* private */
    struct mac *prover;     /* of proofs: session_proof_read */
    struct map channels;    /* of struct channel, by who, key and request id */
    struct link idle;       /* those without a downlink; the longest first */
    uint64_t n_early;       /* appends that wait for a downlink */
    uint64_t waiting_bytes; /* of all messages that wait for their turn */
};

/* The four members above are set. Kept by reference. */
extern const struct surface sessions_chat_surface, sessions_bidi_surface, sessions_own_surface;
void sessions_http_mount(struct sessions_http *surface, struct http *http);

/* No exchange is left; the sessions are still there, and lose their last clients. */
void sessions_http_deinit(struct sessions_http *surface);

#endif
