// SPDX-License-Identifier: Apache-2.0
/* sse_host.h -- the server's memory and errors for base/sse_parse.h: ERR_TOO_LARGE, and memory that
 * cannot run out. */
#ifndef HTTP_SSE_HOST_H
#define HTTP_SSE_HOST_H

#include "base/sse_parse.h"

extern const struct sse_host sse_server_host;

#endif
