// SPDX-License-Identifier: Apache-2.0
/* mcp_params.h -- arguments of a tool that a client has to repeat in headers, for proxies on the
 * way: those whose schema says `"x-mcp-header":"NAME"` stand in `Mcp-Param-NAME`. */
#ifndef FEATURE_TOOLS_MCP_PARAMS_H
#define FEATURE_TOOLS_MCP_PARAMS_H

#include "base/str.h"

#include <stdbool.h>

struct arena;
struct request;

/* Whether all of them are there, and say what the arguments say. schema, arguments: valid JSON;
 * arguments n == 0: none. */
bool mcp_params_match(struct str schema, struct str arguments, const struct request *req);

/* A header's value, decoded if it says that it is encoded: `=?base64?...?=`. p == NULL: it is not
 * there, or no value. */
struct str mcp_header_value(struct arena *a, struct str given);

#endif
