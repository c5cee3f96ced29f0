// SPDX-License-Identifier: Apache-2.0
/* tools_core.h -- what the parts of the tools' service share. */
#ifndef FEATURE_TOOLS_TOOLS_CORE_H
#define FEATURE_TOOLS_TOOLS_CORE_H

#include "feature/logs/log.h"
#include "http/origin.h"
#include "feature/tools/tools_service.h"

struct exchange;
struct principal;

/* The largest body of a request: arguments, and a little around them. */
#define TOOLS_BODY_MAX     (TOOL_ARGS_MAX + 64 * 1024)

/* Of the protocol, as CURSOR_VERDICTS has it: the result is to be asked for anew. */
#define TOOLS_CODE_EXPIRED 1020

struct tools_service {
    struct tools_service_setup setup;
    struct log audit;
    size_t lines; /* of the audit, being written */
    void (*stopped)(void *ctx);
    void *ctx;
};

/* tools_http.c */
void tools_http_mount(struct tools_service *s, struct http *http);

/* Whether this server is meant, and no page of another site asks. */
enum origin_verdict tools_origin(const struct tools_service *s, const struct exchange *x);

/* What a browser has to know to let a page of an allowed site see the answer. True: that was all it
 * asked for, and it is answered. */
bool tools_tell_browser(const struct tools_service *s, struct exchange *x);

/* Who asks: 0 and a caller or principal_anonymous, or ERR_UNAUTHENTICATED: a token that is not
 * known, or none where one is required. *challenge is then the value of WWW-Authenticate. */
int tools_who(const struct tools_service *s, const struct exchange *x, const struct principal **out,
              struct str *challenge);

/* The call is theirs. */
void tools_ask_as(struct tool_ask *a, const struct principal *p);

/* A body of JSON, as Content-Type says. */
bool tools_is_json(const struct exchange *x);

/* mcp_http.c */
void mcp_http_mount(struct tools_service *s, struct http *http);

#endif
