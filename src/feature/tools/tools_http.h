// SPDX-License-Identifier: Apache-2.0
/* tools_http.h -- the two wires of tools over HTTP: /atd/v1/ (tools_http.c) and /mcp (mcp_http.c).
 * See docs/protocols/pages.md. */
#ifndef FEATURE_TOOLS_TOOLS_HTTP_H
#define FEATURE_TOOLS_TOOLS_HTTP_H

#include "base/str.h"

#include <stdbool.h>

struct surface;
struct http;
struct tools_service;

#define TOOLS_PREFIX "/atd/v1/"
#define MCP_PATH     "/mcp"
/* What RFC 9728 has for clients that are to get a token first; also with MCP_PATH behind it. */
#define MCP_METADATA "/.well-known/oauth-protected-resource"

/* Kept by reference, with all it points to. */
struct tools_http {
    struct tools_service *service;
    bool require_bearer;
    struct str public_url; /* n == 0: as each client reached us */
};

extern const struct surface tools_surface, mcp_surface, mcp_metadata_surface;
/* Of the Unix socket, for the table of what requests need: its clients are users of this machine,
 * whom the file's mode lets in. They may call every tool, which then may look at everything. */
extern const struct surface tools_socket_surface;
void tools_http_mount(struct tools_http *t, struct http *http);
void mcp_http_mount(struct tools_http *t, struct http *http);

#endif
