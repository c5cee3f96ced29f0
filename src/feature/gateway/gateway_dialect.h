// SPDX-License-Identifier: Apache-2.0
/* gateway_dialect.h -- what the gateway itself has to say, in the words that a route's clients
 * know.
 *
 * notice     sse                      openai                     ui-message
 * resume     event: resume            comment                    comment
 * gap        event: gap               chunk, then an error       data part, then an error
 * snapshot   id: and event: snapshot  chunk                      data part
 * complete   event: complete          chunk, [DONE]              data part, [DONE]
 * error      event: error             {"error":{..}}             {"type":"error",..}
 * end        event: end, behind an    chunk, then the error, or  data part, then the error, or
 *            error if it failed       [DONE] if it was cancelled an abort if it was cancelled
 *
 * comment    `: resume TOKEN`, a line without a blank line behind it, as heartbeat.h says.
 * chunk      {"id":"","object":"chat.completion.chunk","created":0,"model":"","choices":[],
 *            "tidemark":{..}}: complete for who wants every member, and with an id that keeps the
 *            accumulator of the openai package from taking over the other members.
 * data part  {"type":"data-tidemark","data":{..},"transient":true}: known to the AI SDK by its
 *            prefix, given to onData, and no part of the message.
 *
 * In both, {..} is {"gap":{..}}, {"snapshot":PAYLOAD,"seq":N}, {"complete":PAYLOAD} or
 * {"end":{..}}. Clients of these two dialects do not look at our notices, so an answer that lacks
 * its end or a part must fail in their own form, whatever the reason; that comes last, as it makes
 * them stop.
 *
 * Everything is appended to *out as whole SSE events, or as comments before the next one. Texts may
 * be anything; messages that are not UTF-8 are mended. Pure. */
#ifndef FEATURE_GATEWAY_GATEWAY_DIALECT_H
#define FEATURE_GATEWAY_GATEWAY_DIALECT_H

#include "base/buf.h"
#include "base/str.h"
#include "feature/gateway/route_config.h"
#include "store/store.h"

/* The token is base64url. */
void dialect_put_resume(struct buf *out, enum route_dialect d, struct str token);

/* Event numbers: what was asked for, and the first that is there. */
struct dialect_gap {
    uint64_t requested, earliest;
    enum gap_reason reason;
    struct str snapshot; /* where one can be had; n == 0: nowhere */
};
void dialect_put_gap(struct buf *out, enum route_dialect d, const struct dialect_gap *gap);

/* The gap as JSON: {"gap":{"requested","earliest","reason","snapshot"}}. */
void dialect_put_gap_json(struct buf *out, const struct dialect_gap *gap);

/* The fold of events 1 to seq, as JSON text; the next event is seq + 1. */
void dialect_put_snapshot(struct buf *out, enum route_dialect d, struct str payload, uint64_t seq);

struct dialect_diagnostics {
    uint64_t resumes, trims, recovered_events;
    struct str correlation_id;
};

/* For who came too late for the events: what they amounted to, as JSON text. */
void dialect_put_complete(struct buf *out, enum route_dialect d, struct str payload,
                          const struct dialect_diagnostics *diagnostics);

/* The payload on one line, with a member "diagnostics" in place of any that it had; if it is no
 * JSON object, as it is. */
void dialect_put_payload(struct buf *out, struct str payload,
                         const struct dialect_diagnostics *diagnostics);

/* Something went wrong while this answer was sent. code: a word in capitals. */
void dialect_put_error(struct buf *out, enum route_dialect d, struct str code, struct str message);

/* The end of a stream that did not complete; nothing for one that did. */
void dialect_put_end(struct buf *out, enum route_dialect d, enum end_reason reason,
                     struct str message);

/* How an end is told; notice: in words of the upstream's, if there are any. */
struct str gateway_end_message(enum end_reason end, struct str notice);

/* An error instead of an answer. code: a word in capitals; details: JSON text, n == 0: none. */
struct dialect_problem {
    int status;
    struct str code, message, details;
};

/* ... as a body of OpenAI's API: {"error":{"message","type","param":null,"code"}}, where the status
 * says of which type it is. Details are a fifth member. */
void dialect_put_openai_body(struct buf *out, const struct dialect_problem *p);

/* ... as the clients of a route know it: as above, or as below. */
void dialect_put_problem(struct buf *out, enum route_dialect d, const struct dialect_problem *p);

/* An error as a body: {"schema":"error.v1","code":..,"message":..,"details":{..}}, in this order.
 * details: JSON text; n == 0: left out. */
void dialect_put_error_body(struct buf *out, struct str code, struct str message,
                            struct str details);

#endif
