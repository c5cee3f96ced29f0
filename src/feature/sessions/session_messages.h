// SPDX-License-Identifier: Apache-2.0
/* session_messages.h -- the messages of a session on the wire, made and read with protobuf-c.
 *
 * Two services speak of the same things with the same field numbers (proto/): the editor's
 * aiserver.v1.ChatService, whose chunks are messages, and tidemark.v1.SessionService, whose chunks
 * are bytes. A nested message and bytes look the same on the wire, so one reader serves both; only
 * where a chunk's inside matters are they told apart.
 *
 * Pure functions. What a peer sends is bounded before it gets here. Reading it has a budget of
 * eight times its size and 64 KiB of memory: a message of more and smaller fields than that allows
 * is ERR_TOO_LARGE, from all that read. Of a field that comes twice the last one counts. Outs are
 * untouched on failure. */
#ifndef FEATURE_SESSIONS_SESSION_MESSAGES_H
#define FEATURE_SESSIONS_SESSION_MESSAGES_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/str.h"
#include "feature/sessions/session_seal.h" /* SESSION_MAC_SIZE */

#include <stdint.h>

enum session_service { SESSION_TIDEMARK = 1, SESSION_AISERVER = 2 }; /* also on disk */

/* ---- what clients send ---- */

enum session_request_kind { SESSION_CHUNK, SESSION_ABORT, SESSION_CLOSE };

struct session_request {
    enum session_request_kind kind;
    struct str chunk; /* of SESSION_CHUNK; may be empty */
    struct str key;   /* field 4; p == NULL: absent */
    bool has_seqno;
    uint32_t seqno;
};

/* Texts point into the arena. ERR_SYNTAX: not such a message, or one that says nothing (no chunk,
 * abort or close), or a key that is no UTF-8. */
int session_request_read(struct arena *a, struct str bytes, struct session_request *out);

/* The text of a chunk's last conversation message (aiserver), or the chunk (tidemark). Empty if
 * there is none. In the arena, or a part of chunk. ERR_SYNTAX: not such a message, or the text is
 * no UTF-8. */
int session_chunk_text(struct arena *a, enum session_service service, struct str chunk,
                       struct str *out);

/* ---- what the server sends ---- */

/* These append one whole response message. */
void session_put_welcome(struct buf *out, struct str message, bool degraded);
void session_put_ack(struct buf *out, uint32_t seqno);
/* chunk: what session_put_chunk made. */
void session_put_event(struct buf *out, struct str chunk);

/* A server chunk in the form in which it is stored, sent and signed:
 *
 *     its content, the event id (field 7, decimal), and as the last field the MAC
 *     (tidemark: field 8; aiserver: field 2048)
 *
 * content: the payload (tidemark: any bytes; aiserver: a StreamUnifiedChatResponseWithTools of
 * which the event id and MAC, if it has any, count for nothing), or with is_text the text of a
 * StreamUnifiedChatResponse (tidemark: the payload all the same). The MAC field is appended with
 * zeros; the *covered bytes in front of it, from the chunk's first one on, are what it signs;
 * session_set_mac fills it in.
 *
 * ERR_SYNTAX (aiserver): the text is no UTF-8, or the content is no such message, as far as we know
 * them. ERR_TOO_LARGE as above. Nothing is appended then. */
int session_put_chunk(struct buf *out, enum session_service service, struct str content,
                      bool is_text, uint64_t event_id, size_t *covered);
void session_set_mac(struct buf *out, const uint8_t mac[SESSION_MAC_SIZE]);
/* The MAC of a stored chunk: its last bytes. ERR_CORRUPT: it is too short. */
int session_get_mac(struct str chunk, uint8_t out[SESSION_MAC_SIZE]);

/* Contents for session_put_chunk (aiserver). What is a string here is UTF-8. */
void session_put_thinking(struct buf *out, struct str text);

struct session_tool_call {
    struct str id, name, raw_args;
    bool has_timeout, has_index, is_streaming, is_last_message;
    double timeout_ms;
    uint32_t index;
};
void session_put_tool_call(struct buf *out, const struct session_tool_call *call);

/* ---- beside HTTP/2: a downlink and appends ---- */

/* BidiRequestId, as the body of a downlink call. ERR_SYNTAX, here and below, also for a request id
 * that is missing, empty or no UTF-8. */
int session_request_id_read(struct arena *a, struct str bytes, struct str *request_id);

struct session_append {
    struct str request_id;
    int64_t seqno;   /* from 0 */
    struct str data; /* a request message: decoded from hex, or as it came */
};
/* ERR_SYNTAX also for data that is no hex (of either case), both kinds of data, a negative seqno.
 */
int session_append_read(struct arena *a, struct str bytes, struct session_append *out);

struct session_poll {
    struct str request_id;
    bool start;
};
int session_poll_read(struct arena *a, struct str bytes, struct session_poll *out);
/* data: a response message; goes out as hex. */
void session_put_poll(struct buf *out, int64_t seqno, struct str data, bool eof);

/* ---- errors ---- */

/* Codes of aiserver.v1.ErrorDetails that we use. */
enum session_error_code {
    SESSION_ERROR_UNSPECIFIED = 0,
    SESSION_ERROR_NOT_HIGH_ENOUGH_PERMISSIONS = 4,
    SESSION_ERROR_USER_ABORTED_REQUEST = 21,
    SESSION_ERROR_TIMEOUT = 25,
    SESSION_ERROR_UNAUTHORIZED = 38,
    SESSION_ERROR_RESOURCE_EXHAUSTED = 41,
    SESSION_ERROR_PROVIDER_ERROR = 57,
};

struct session_error_details {
    enum session_error_code code;
    struct str title, detail;
    bool is_retryable;
};
#define SESSION_ERROR_DETAILS_TYPE "aiserver.v1.ErrorDetails"
void session_put_error_details(struct buf *out, const struct session_error_details *e);

/* tidemark.v1.Gap {1 requested, 2 earliest, 3 reason}: strings. */
#define SESSION_GAP_TYPE "tidemark.v1.Gap"
void session_put_gap(struct buf *out, struct str requested, struct str earliest, struct str reason);

#endif
