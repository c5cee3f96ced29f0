// SPDX-License-Identifier: Apache-2.0
/* client_session_wire.h -- what a session says and hears, as it lies in bodies: Connect's envelopes
 * and the few protobuf messages in them (proto/), read and written by hand.
 *
 * An envelope:
 *
 *     u8      flags      bit 0: compressed, which we never ask for; bit 1: the end of the stream
 *     u32     length     of the payload, big-endian
 *     bytes   payload    a message; of the end: {"error":{"code","message","details"}} or {}
 *
 * Reading copies nothing: texts point into what was read. Of a field that comes twice the last one
 * counts; unknown ones are passed over. Outs are untouched on failure. */
#ifndef CLIENT_CLIENT_SESSION_WIRE_H
#define CLIENT_CLIENT_SESSION_WIRE_H

#include "client/client_core.h"
#include "client/session_mac.h"

#define SWIRE_ENVELOPE     5
#define SWIRE_EVENT_ID_MAX 255 /* bytes, visible ASCII: it must fit into a header again */

/* ---- what the client says: appended; 0 or TM_E_NOMEM, and then nothing was put ---- */

int swire_put_chunk(struct tm_client *c, struct bytes *out, struct str chunk, uint32_t seqno);
int swire_put_abort(struct tm_client *c, struct bytes *out);
int swire_put_close(struct tm_client *c, struct bytes *out);
int swire_put_request_id(struct tm_client *c, struct bytes *out, struct str id);
/* AppendRequest around a message: as hex, which is what older servers know, or as it is. */
int swire_put_append(struct tm_client *c, struct bytes *out, struct str message, bool hex,
                     struct str request_id, uint64_t append_seqno);

/* Opens an envelope at the end of out; what is put behind it is its payload, until it is closed. */
int swire_open_envelope(struct tm_client *c, struct bytes *out, size_t *at);
void swire_close_envelope(struct bytes *out, size_t at);

/* ---- what the server says ---- */

enum swire_kind {
    SWIRE_NOTHING, /* that we know */
    SWIRE_CHUNK,
    SWIRE_WELCOME,
    SWIRE_ACK,
};

struct swire_response {
    enum swire_kind kind;
    struct str chunk;
    struct str message; /* of a welcome */
    bool degraded;
    uint32_t seqno;
};
int swire_read_response(struct str bytes, struct swire_response *out); /* TM_E_PROTOCOL */

struct swire_chunk {
    struct str payload;  /* tidemark: its payload; aiserver: the whole message */
    struct str event_id; /* may be empty */
    struct str text, thinking, tool_call_id; /* aiserver */
    /* Whether the client's position moves behind it: tidemark: always; aiserver: it is a
     * stream_unified_chat_response that says something or has a thinking. */
    bool moves;
    bool has_mac;
    uint8_t mac[MAC_SIZE];
    struct str covered; /* by the MAC: all in front of it */
};
/* TM_E_PROTOCOL: also for a MAC that is not the last field, or an event id that no header takes. */
int swire_read_chunk(enum tm_service service, struct str bytes, struct swire_chunk *out);

/* ---- envelopes as they come in ---- */

struct swire_frames {
    size_t max; /* bytes of one payload */
    struct bytes in;
    size_t at;
};
void swire_frames_free(struct tm_client *c, struct swire_frames *f);
int swire_frames_put(struct tm_client *c, struct swire_frames *f, struct str bytes);
/* 1: *payload is the next one, lent until the next put; *end: it is the end of the stream. 0: more
 * is needed. TM_E_TOO_LARGE, as soon as the length is known; TM_E_PROTOCOL for unknown flags. */
int swire_frames_next(struct swire_frames *f, struct str *payload, bool *end);

/* ---- how a call ended ---- */

struct swire_end {
    bool failed;
    bool final; /* there are aiserver.v1.ErrorDetails: coming back is pointless */
    char code[32];
    char message[256]; /* cut where a character ends */
};
/* Of the end of a stream, and of an answer to a unary call. TM_E_PROTOCOL, TM_E_NOMEM. */
int swire_read_end(struct str json, struct swire_end *out);
int swire_read_error(struct str json, struct swire_end *out);

/* The code of tidemark.h for one of Connect's. */
int swire_error_code(const char *code);

#endif
