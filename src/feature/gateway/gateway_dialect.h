// SPDX-License-Identifier: Apache-2.0
/* gateway_dialect.h -- what the gateway itself has to say, in the words that a reader's client
 * knows. gateway_dialect_table.c has one row for each dialect.
 *
 * There are three forms of an answer:
 *
 * numbered  server-sent events with `id:`; a comment is a line without a blank line behind it, as
 *           heartbeat.h says, and belongs to the block of the next event
 * bare      the same without ids, for clients that take only blocks that begin with `data:`; a
 *           comment is a block of its own
 * lines     JSON values, one on each line; there are no comments
 *
 * notice     sse                      openai                     ui-message
 * gap        event: gap               chunk, then an error       data part, then an error
 * snapshot   id: and event: snapshot  chunk                      data part
 * complete   event: complete          chunk, [DONE]              data part, [DONE]
 * end        event: end, behind an    chunk, then the error, or  data part, then the error, or
 *            error if it failed       [DONE] if it was cancelled an abort if it was cancelled
 *
 * chunk      {"id":"","object":"chat.completion.chunk","created":0,"model":"","choices":[],
 *            "tidemark":{..}}: complete for who wants every member, and with an id that keeps the
 *            accumulator of the openai package from taking over the other members.
 * data part  {"type":"data-tidemark","data":{..},"transient":true}: known to the AI SDK by its
 *            prefix, given to onData, and no part of the message.
 *
 * In both, {..} is {"gap":{..}}, {"snapshot":PAYLOAD,"seq":N}, {"complete":PAYLOAD} or
 * {"end":{..}}. In the other dialects a notice is a comment `: NAME JSON`; the end's is named
 * `reason`, since `: end` says that all has been told. Clients of all but sse do not look at our
 * notices, so an answer that lacks its end or a part must fail in their own form, whatever the
 * reason; that comes last, as it makes them stop.
 *
 * Everything is appended to *out as whole events, or as comments. Texts may be anything; messages
 * that are not UTF-8 are mended. Pure. */
#ifndef FEATURE_GATEWAY_GATEWAY_DIALECT_H
#define FEATURE_GATEWAY_GATEWAY_DIALECT_H

#include "base/buf.h"
#include "base/str.h"
#include "feature/gateway/fold.h"
#include "feature/gateway/route_config.h"
#include "store/store.h"

/* How somebody is spoken to. */
struct dialect_voice {
    enum route_dialect dialect;
    uint64_t seq;          /* of the last event that was sent */
    struct str generation; /* n > 0: ids of events name it */
    struct str media_type; /* of lines, as the upstream calls it; n == 0: the usual one */
    struct str rpc_id;     /* of the JSON-RPC request, as JSON text; n == 0: not known */
};

/* ---- what a dialect is like ---- */

enum dialect_form { DIALECT_NUMBERED, DIALECT_BARE, DIALECT_LINES };

enum dialect_form dialect_form(enum route_dialect d);
enum fold_kind dialect_fold(enum route_dialect d);
struct str dialect_media_type(const struct dialect_voice *v);

/* Its notices are events that clients wait for: `complete` comes behind what was resumed. */
bool dialect_has_events(enum route_dialect d);

/* The error that ends an answer has an id as if it were the next event. Whoever comes back with
 * that has been told, and is not told again: its client would come back for ever. */
bool dialect_counts_error(enum route_dialect d);

/* A header that every stream of events has; name NULL: none. */
struct dialect_header {
    const char *name, *value;
};
struct dialect_header dialect_header(enum route_dialect d);

/* ---- in the answer ---- */

/* The token is base64url. */
void dialect_put_resume(struct buf *out, const struct dialect_voice *v, struct str token);

/* Before the first event, to a client whose protocol has this version: an id that it can come back
 * with. Nothing in dialects that know no such thing. */
void dialect_put_prime(struct buf *out, const struct dialect_voice *v, struct str version);

/* Nothing has been sent for a while. */
struct str dialect_heartbeat(enum route_dialect d);

/* Event numbers: what was asked for, and the first that is there. */
struct dialect_gap {
    uint64_t requested, earliest;
    enum gap_reason reason;
    struct str snapshot; /* where one can be had; n == 0: nowhere */
};
void dialect_put_gap(struct buf *out, const struct dialect_voice *v, const struct dialect_gap *gap);

/* The gap as JSON: {"gap":{"requested","earliest","reason","snapshot"}}. */
void dialect_put_gap_json(struct buf *out, const struct dialect_gap *gap);

/* The fold of events 1 to seq, as JSON text; the next event is seq + 1. */
void dialect_put_snapshot(struct buf *out, const struct dialect_voice *v, struct str payload,
                          uint64_t seq);

struct dialect_diagnostics {
    uint64_t resumes, trims, recovered_events;
    struct str correlation_id;
};

/* For who came too late for the events: what they amounted to, as JSON text. */
void dialect_put_complete(struct buf *out, const struct dialect_voice *v, struct str payload,
                          const struct dialect_diagnostics *diagnostics);

/* The payload on one line, with a member "diagnostics" in place of any that it had; if it is no
 * JSON object, as it is. */
void dialect_put_payload(struct buf *out, struct str payload,
                         const struct dialect_diagnostics *diagnostics);

/* Something went wrong while this answer was sent. code: a word in capitals. */
void dialect_put_error(struct buf *out, const struct dialect_voice *v, struct str code,
                       struct str message);

/* The end of a stream that did not complete; nothing for one that did. */
void dialect_put_end(struct buf *out, const struct dialect_voice *v, enum end_reason reason,
                     struct str message);

/* The last line of an answer whose end has been told: without it, it was only cut. */
struct str dialect_end_mark(enum route_dialect d);

/* How an end is told; notice: in words of the upstream's, if there are any. */
struct str gateway_end_message(enum end_reason end, struct str notice);

/* ---- instead of an answer ---- */

/* code: a word in capitals; details: JSON text, n == 0: none. */
struct dialect_problem {
    int status;
    struct str code, message, details;
};

/* As a body that clients of the dialect know. */
void dialect_put_problem(struct buf *out, const struct dialect_voice *v,
                         const struct dialect_problem *p);

/* As OpenAI's API has it: {"error":{"message","type","param":null,"code"}}, where the status says
 * of which type it is. Details are a fifth member. */
void dialect_put_openai_body(struct buf *out, const struct dialect_problem *p);

/* {"schema":"error.v1","code":..,"message":..,"details":{..}}, in this order. details: JSON text;
 * n == 0: left out. */
void dialect_put_error_body(struct buf *out, struct str code, struct str message,
                            struct str details);

#endif
