// SPDX-License-Identifier: Apache-2.0
/* fold_ui.h -- a UI message under way: its parts, and how chunks find them. For
 * src/feature/gateway/fold_ui*.c only.
 *
 * Parts stay in the order in which they began. Those that later chunks speak of are found by id: of
 * a text or reasoning while it is open, of a tool call, and of data by its type and id. A message
 * has steps, and a tool call that comes up again in a later step is another part there, unless the
 * chunk only brings its outcome.
 *
 * The message is the one that readUIMessageStream of the AI SDK (6.0) ends with, but for streams
 * that nobody should send:
 * - A chunk that makes its reader stop (a delta of something that never started, an unknown type, a
 *   member of the wrong type) is skipped; null for a member that may be missing is as if it were.
 * - Input for a tool call that has its input or its outcome already is skipped; there it would
 *   begin again where it stopped. Its text is not kept that long.
 * - Metadata that is no object is replaced and replaces; there a string's letters are merged.
 * - Unfinished input is what json_repair makes of it: `[-` gives [], and what begins no JSON value
 *   gives nothing; there it is the other way round.
 * - Input that goes on in the next step keeps title and toolMetadata of the part it began in, even
 *   if its last start did not repeat them.
 * - The first input of a dynamic tool in a later step has its rawInput. */
#ifndef FEATURE_GATEWAY_FOLD_UI_H
#define FEATURE_GATEWAY_FOLD_UI_H

#include "base/list.h"
#include "base/map.h"
#include "feature/gateway/fold_core.h"
#include "feature/gateway/fold_meta.h"

/* ---- chunks ---- */

/* The members that any chunk can have. One that its type does not use, or that is null where that
 * means nothing, counts as not there. */
#define UI_CHUNK_MEMBERS(X)                                                                        \
    X(TYPE, "type", STRING)                                                                        \
    X(ID, "id", STRING)                                                                            \
    X(DELTA, "delta", STRING)                                                                      \
    X(PROVIDER_METADATA, "providerMetadata", OBJECT)                                               \
    X(TOOL_CALL_ID, "toolCallId", STRING)                                                          \
    X(TOOL_NAME, "toolName", STRING)                                                               \
    X(TITLE, "title", STRING)                                                                      \
    X(DYNAMIC, "dynamic", BOOL)                                                                    \
    X(INPUT_ENCODING, "inputEncoding", STRING)                                                     \
    X(INPUT_TEXT_DELTA, "inputTextDelta", STRING)                                                  \
    X(INPUT, "input", NONE)                                                                        \
    X(OUTPUT, "output", NONE)                                                                      \
    X(ERROR_TEXT, "errorText", STRING)                                                             \
    X(PRELIMINARY, "preliminary", BOOL)                                                            \
    X(PROVIDER_EXECUTED, "providerExecuted", BOOL)                                                 \
    X(TOOL_METADATA, "toolMetadata", OBJECT)                                                       \
    X(APPROVAL_ID, "approvalId", STRING)                                                           \
    X(APPROVAL_DESCRIPTOR, "approvalDescriptor", NONE)                                             \
    X(INPUT_SCHEMA_INPUT, "inputSchemaInput", NONE)                                                \
    X(SIGNATURE, "signature", STRING)                                                              \
    X(SOURCE_ID, "sourceId", STRING)                                                               \
    X(URL, "url", STRING)                                                                          \
    X(MEDIA_TYPE, "mediaType", STRING)                                                             \
    X(FILENAME, "filename", STRING)                                                                \
    X(DATA, "data", NONE)                                                                          \
    X(TRANSIENT, "transient", BOOL)                                                                \
    X(MESSAGE_ID, "messageId", STRING)                                                             \
    X(MESSAGE_METADATA, "messageMetadata", NONE)                                                   \
    X(FINISH_REASON, "finishReason", STRING)

enum ui_chunk_member {
#define X(name, text, type) UI_CHUNK_##name,
    UI_CHUNK_MEMBERS(X)
#undef X
        UI_CHUNK_N,
};

struct ui_chunk {
    struct fold *f;
    struct ui *ui;
    struct str object; /* all of it */
    struct str type;   /* decoded */
    struct str values[UI_CHUNK_N];
};

/* ---- parts ---- */

enum part_kind {
    PART_TEXT,
    PART_REASONING,
    PART_TOOL,
    PART_DYNAMIC_TOOL,
    PART_DATA,  /* `text` is the whole chunk, but for its data */
    PART_WHOLE, /* `text` is all of it */
};

/* What a part keeps of its chunks; those of text and reasoning come first. */
enum part_member {
    PART_ID,
    PART_PROVIDER_METADATA,
    PART_TEXT_N,
    PART_TOOL_NAME = PART_TEXT_N,
    PART_TOOL_CALL_ID,
    PART_TITLE,
    PART_TOOL_METADATA,
    PART_INPUT,
    PART_INPUT_ENCODING,
    PART_OUTPUT,
    PART_RAW_INPUT,
    PART_ERROR_TEXT,
    PART_PROVIDER_EXECUTED,
    PART_PRELIMINARY,
    PART_CALL_METADATA,
    PART_RESULT_METADATA,
    PART_APPROVAL,
    PART_TOOL_N,
};

struct part {
    struct link link; /* among those of the message */
    enum part_kind kind;
    const char *state;  /* static */
    uint64_t step;      /* in which it began */
    struct part *older; /* of the same tool call */
    struct str key;     /* owned: its id (with the type, of data) in the map */
    struct buf text;    /* escaped: the text so far; of a tool, its input as far as it has come */
    struct str data;    /* owned */
    size_t data_at;     /* where in `text` it belongs */
    bool lacks_data;    /* `text` has no name for it either */
    bool live;          /* a tool whose input is what `text` has so far */
    struct str values[];
};

/* All parts that a tool call has, and the one that its input goes to. */
struct ui_tool_call {
    struct str key; /* owned */
    struct part *newest;
    struct part *streaming; /* NULL: no input is expected */
};

struct ui {
    struct str id; /* owned; with its quotes */
    struct fold_meta metadata;
    struct link parts;
    uint64_t step;
    struct map texts, reasonings; /* open ones: struct part */
    struct map calls;             /* struct ui_tool_call */
    struct map data;              /* struct part */
    struct buf scratch;           /* a decoded id, until the next */
};

/* NULL: no room, the fold is given up. */
struct part *part_new(struct ui_chunk *c, enum part_kind kind);
void part_set(struct ui_chunk *c, struct part *p, enum part_member to, enum ui_chunk_member from);

/* What the string decodes to; lent until the next call. */
struct str ui_decode(struct ui *ui, struct str string);

/* The chunks about tools; false: the chunk does not fit, and nothing was changed. */
bool tool_input_start(struct ui_chunk *c);
bool tool_input_delta(struct ui_chunk *c);
bool tool_input_available(struct ui_chunk *c);
bool tool_input_error(struct ui_chunk *c);
bool tool_approval_request(struct ui_chunk *c);
bool tool_output_available(struct ui_chunk *c);
bool tool_output_error(struct ui_chunk *c);
bool tool_output_denied(struct ui_chunk *c);

/* The calls, not the map of them. f may be NULL: nothing is counted. */
void tool_calls_free(struct fold *f, struct ui *ui);

/* The input as far as it has come, if that can be told; nothing otherwise. */
void tool_put_live_input(const struct part *p, struct buf *out);

#endif
