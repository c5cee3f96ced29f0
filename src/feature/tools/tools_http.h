// SPDX-License-Identifier: Apache-2.0
/* tools_http.h -- the two wires of tools over HTTP: /atd/v1/ (tools_http.c) and /mcp (mcp_http.c).
 * See docs/protocols/pages.md. */
#ifndef FEATURE_TOOLS_TOOLS_HTTP_H
#define FEATURE_TOOLS_TOOLS_HTTP_H

#include <stdbool.h>

struct surface;
struct http;
struct tools_service;

#define TOOLS_PREFIX "/atd/v1/"
#define MCP_PATH     "/mcp"

/* Kept by reference, with all it points to. */
struct tools_http {
    struct tools_service *service;
    bool require_bearer;
};

extern const struct surface tools_surface, mcp_surface;
void tools_http_mount(struct tools_http *t, struct http *http);
void mcp_http_mount(struct tools_http *t, struct http *http);

#endif
