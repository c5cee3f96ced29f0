// SPDX-License-Identifier: Apache-2.0
/* mcp_message.h -- the messages of the Model Context Protocol as text, for those who answer them
 * (mcp.h) and those who hand them on (`tidemark mcp`). */
#ifndef FEATURE_TOOLS_MCP_MESSAGE_H
#define FEATURE_TOOLS_MCP_MESSAGE_H

#include "base/buf.h"
#include "base/json_view.h"
#include "base/str.h"

struct arena;
struct request;

#define MCP_META            "io.modelcontextprotocol/"

#define MCP_PARSE_ERROR     (-32700)
#define MCP_INVALID_REQUEST (-32600)
#define MCP_INTERNAL        (-32603)

/* All of it slices of the text: JSON; empty: not there. */
struct mcp_message {
    struct str id; /* a text or a whole number; empty: a notification */
    struct str method, params;
};

/* 0, MCP_PARSE_ERROR or MCP_INVALID_REQUEST, which knows the id all the same if there is one. */
int mcp_message_read(struct str text, struct mcp_message *out);

/* What a request of 2026 says in its `_meta`. JSON text; empty: not there. */
struct mcp_envelope {
    struct str version, capabilities, client;
};
struct mcp_envelope mcp_envelope_of(struct str params);

/* view_pick, of what may be no object. */
void mcp_pick(struct str object, struct view_want *wants, size_t n);

/* ---- answers ---- */

/* Up to the id; then a result or an error follows, and a bracket. */
void mcp_begin_answer(struct buf *out, struct str id);

/* Without its closing brackets, so that data may follow. */
void mcp_begin_error(struct buf *out, struct str id, int code, struct str message);

/* id empty: null. */
void mcp_put_error(struct buf *out, struct str id, int code, struct str message);

/* ---- handing on ---- */

/* The id of a message; empty if it is no request. */
struct str mcp_id_of(struct str text);

/* Of a notification that somebody wants no answer any more: the id. Else empty. */
struct str mcp_cancelled_id(struct str text);

/* What a request over HTTP repeats in its headers; p == NULL: it does not. */
struct mcp_headers {
    struct str version, method, name;
    const struct request *request; /* for those of arguments; NULL: there are none to look at */
};

/* What a client has to repeat in headers when it hands the message on over HTTP, in *a. */
struct mcp_headers mcp_headers_of(struct str text, struct arena *a);

/* A value that cannot be a header as it is, as the protocol writes it there. */
void mcp_put_header(struct buf *out, struct str value);

#endif
