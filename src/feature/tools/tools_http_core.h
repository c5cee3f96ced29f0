// SPDX-License-Identifier: Apache-2.0
/* tools_http_core.h -- who may ask over HTTP: what both of its wires look at. */
#ifndef FEATURE_TOOLS_TOOLS_HTTP_CORE_H
#define FEATURE_TOOLS_TOOLS_HTTP_CORE_H

#include "feature/tools/tools_http.h"
#include "feature/tools/tools_service.h"
#include "http/exchange.h"
#include "http/http.h"

/* The largest body of a request: arguments, and a little around them. */
#define TOOLS_BODY_MAX (TOOL_ARGS_MAX + 64 * 1024)

/* What pages of other sites may ask, if they may ask at all. */
extern const struct surface_share tools_share;

/* Who asks: 0 and a caller or principal_anonymous, or ERR_UNAUTHENTICATED: a token that is not
 * known, or none where one is required. *challenge is then the value of WWW-Authenticate. */
int tools_who(const struct tools_http *t, const struct exchange *x, const struct principal **out,
              struct str *challenge);

/* Whether any tool is for whoever asks, which is looked at before a message is read. False: it has
 * been answered. */
bool tools_may_ask(struct exchange *x);

/* The call is theirs. */
void tools_ask_as(struct tool_ask *a, struct exchange *x, const struct principal *p);

/* A body of JSON, as Content-Type says. */
bool tools_is_json(const struct exchange *x);

#endif
