// SPDX-License-Identifier: Apache-2.0
/* mcp.h -- the Model Context Protocol, as far as tools go: one JSON-RPC message in, at most one
 * out.
 *
 * Versions 2025-06-18 and 2025-11-25 begin with `initialize`; 2026-07-28 has no beginning, and each
 * request says in its `_meta` which version it is. Nothing is kept between two messages in either
 * case, so that both may come over one connection:
 *
 *     2025   initialize  ping  tools/list  tools/call  notifications, which nothing follows from
 *     2026   server/discover  tools/list  tools/call
 *
 * `tools/call` takes the cursor of a page as the argument `__cursor` and gives the next one as
 * `nextCursor`; a note tells it to models, which see nothing but the content.
 *
 * As a bridge (what `tidemark mcp` speaks, and /mcp?bridge=1) tools have names that every model's
 * API takes, and failures are results that the model sees. */
#ifndef FEATURE_TOOLS_MCP_H
#define FEATURE_TOOLS_MCP_H

#include "base/arena.h"
#include "base/buf.h"
#include "feature/tools/mcp_message.h"
#include "feature/tools/tools_service.h"

#define MCP_VERSION "2026-07-28"
#define MCP_VERSION_LEGACY                                                                         \
    "2025-11-25" /* what somebody gets who asks for one that is not known                          \
                  */

/* The caller embeds it, zero-initialised but for the `in` part, and keeps it until it is answered
 * or cancelled; then mcp_request_deinit is due. */
struct mcp_request {
    /* in */
    struct str text;                   /* the message; lent as long */
    const struct mcp_headers *headers; /* NULL: not over HTTP */
    bool bridge;
    bool quiet;          /* no note about the next page */
    struct tool_ask ask; /* the caller of its call, and nothing else */
    void (*done)(struct mcp_request *r);

    /* out */
    struct buf answer; /* n == 0: none, for it was a notification */
    int status;        /* of HTTP */
    bool denied;       /* the tool is not granted: there is no answer, whoever asks is refused */

    /* private */
    struct arena arena;
    struct str id; /* JSON text */
    bool modern, asked;
};

/* True: it is answered. False: it will be, and done() called. */
bool mcp_handle(struct tools_service *s, struct mcp_request *r);

/* After false and before done(), which is then not called. */
void mcp_cancel(struct mcp_request *r);
void mcp_request_deinit(struct mcp_request *r);

/* A name with `_` in place of all but letters, digits, `_` and `-`. */
void mcp_put_plain_name(struct buf *out, struct str id);

#endif
