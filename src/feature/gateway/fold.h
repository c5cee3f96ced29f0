// SPDX-License-Identifier: Apache-2.0
/* fold.h -- a stream's events folded into one snapshot while they pass.
 *
 * Whoever comes back too late for the events themselves gets what they amounted to: the final
 * payload, the completion, the message. By kind:
 *
 * `last`: the payload that ended the stream. An event {"stage":"COMPLETE","payload":P} gives P;
 * without one it is the last event's data, as a JSON string where it is no JSON. Events of the SSE
 * type `heartbeat` do not count; one of the type `error` is a failure.
 *
 * `openai`: chat.completion.chunk objects as the chat.completion that would have come without
 * streaming: choices by index with role, content, refusal, tool calls by index, log probabilities
 * and finish reason; the last usage; id, created, model and the like from the first chunk with a
 * choice that has them. A chunk without choices only counts for its usage.
 *
 * `ui-message`: the chunks of an AI SDK 6 UI message stream as the UIMessage that its reducer
 * builds; fold_ui.h says where we differ.
 *
 * `responses`: the events of OpenAI's Responses API as the Response that they have made so far: the
 * last one that came whole, with the output items, their parts, texts, arguments and annotations
 * that came behind it. A response that ended with an output of its own is that.
 *
 * `anthropic`, `gemini`: events of these APIs as the Message or the GenerateContentResponse so far.
 * `ag-ui`: as messages and state. `mcp`: the response of JSON-RPC.
 * `ndjson`: lines as one line. The file of each says more.
 *
 * `[DONE]` ends a stream of any kind; what comes after it is skipped. An event that cannot be used
 * (no JSON where it must be, nested too deep, members of the wrong type, a delta of something that
 * never started) is skipped and counted, and changes nothing. A chunk with several choices of which
 * one cannot be used is counted, and the others are.
 *
 * Values are kept as the text they came as, so that numbers, unpaired surrogates and repeated names
 * leave as they came; texts are joined in their escaped form. The snapshot has no line breaks.
 *
 * Memory: `max` bounds what is held, each part at a price that covers its bookkeeping; with buffers
 * that grow by doubling, about twice `max` at worst. A fold beyond `max` is given up for good and
 * lets go of everything. Loop thread only, no callbacks. */
#ifndef FEATURE_GATEWAY_FOLD_H
#define FEATURE_GATEWAY_FOLD_H

#include "base/buf.h"
#include "base/str.h"

#include <stdint.h>

#define FOLD_DEPTH_MAX 256 /* of an event that is taken apart; of the snapshot a little more */

enum fold_kind {
    FOLD_LAST,
    FOLD_OPENAI,
    FOLD_UI_MESSAGE,
    FOLD_RESPONSES,
    FOLD_ANTHROPIC,
    FOLD_GEMINI,
    FOLD_AG_UI,
    FOLD_MCP,
    FOLD_NDJSON,
    FOLD_KINDS,
};

/* What the events themselves said about how the stream went; of several, the one further down. */
enum fold_end {
    FOLD_RUNNING,
    FOLD_COMPLETE, /* COMPLETE; every choice has its finish reason; `finish`; or [DONE] */
    FOLD_ABORTED,  /* `abort` */
    FOLD_FAILED,   /* an error event, or an error as the payload */
};

/* `last`, `openai`, ...: 0. Otherwise ERR_SYNTAX. */
int fold_kind_parse(struct str name, enum fold_kind *out);
const char *fold_kind_name(enum fold_kind kind);

struct fold;
struct fold *fold_new(enum fold_kind kind, size_t max);
void fold_free(struct fold *f); /* NULL is fine */

/* One event: its SSE type (may be empty) and its data, lent for the call. 0 also when it was
 * skipped; ERR_TOO_LARGE when the fold is given up, now or before. */
int fold_feed(struct fold *f, struct str type, struct str data);

/* Appends the snapshot of what has come so far, as JSON text. ERR_EMPTY: nothing has.
 * ERR_TOO_LARGE: given up. May be called at any time, and again. */
int fold_put(const struct fold *f, struct buf *out);

enum fold_end fold_end(const struct fold *f);

/* What the last error event said, as JSON text, lent until the next call; empty if there was none.
 * For a UI message it is the error's text, for chunks the `error` member. */
struct str fold_error(const struct fold *f);

uint64_t fold_skipped(const struct fold *f);
size_t fold_size(const struct fold *f); /* held now, in the terms of `max` */

#endif
